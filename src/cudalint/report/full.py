"""The report for people: what is wrong, where (with the source), the case that shows it, what to do."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cudalint.findings import digits, plural
from cudalint.report import visible, witness_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudalint.findings import Finding, Inside, Span
    from cudalint.report import Report

_LINE_END = re.compile(rb"\r\n|\r|\n")
_TAB = 4
_WIDTH = 110
"""Cells of source that are shown of a line; a longer one is cut around its span."""
_COLOURS = {"error": "1;31", "warning": "1;33", "note": "1;36", "dim": "34", "bold": "1"}


def render(report: Report) -> Iterator[str]:
    split: dict[str, list[bytes]] = {}
    for finding in report.findings:
        yield from _finding(finding, report, split)
    yield _summary(report)


def _finding(f: Finding, report: Report, split: dict[str, list[bytes]]) -> Iterator[str]:
    def paint(text: str, how: str) -> str:
        return f"\x1b[{_COLOURS[how]}m{text}\x1b[0m" if report.colour else text

    at = visible(report.place(f.span))
    yield f"{paint(at, 'bold')}: {paint(f.level, f.level)} {paint(f.code, f.level)} {f.name}: {visible(f.message)}\n"
    # A notebook's own lines are JSON: the cell's are shown.
    span, line = (f.span, f.span.line) if f.span.cell is None else (f.span.text, f.span.cell.line)
    last = line + span.end_line - span.line
    excerpt = _excerpt(span, report, split)
    margin = " " * len(str(line))
    if excerpt is not None:
        source, before, under = excerpt
        bar = paint("|", "dim")
        yield f"{margin} {bar}\n"
        yield f"{paint(str(line), 'dim')} {bar} {source}\n"
        carets = "^" * under + (f" … to line {last}" if last > line else "")
        yield f"{margin} {bar} {' ' * before}{paint(carets, f.level)}\n"
    sign = paint("=", "dim")
    for related in f.related:
        yield f"{margin} {sign} {visible(f'{report.place(related.span)}: {related.message}')}\n"
    if f.witness is not None:
        yield f"{margin} {sign} witness: {visible(witness_text(f.witness))}\n"
    if f.evidence.verdict != "not-run" or f.evidence.reason:
        reason = f": {f.evidence.reason}" if f.evidence.reason else ""
        yield f"{margin} {sign} {f.evidence.verdict}{visible(reason)}\n"
    if f.help:
        yield f"{margin} {sign} help: {visible(f.help)}\n"
    if f.fix is not None:
        how = "--fix" if f.fix.applicability == "safe" else "--fix --unsafe-fixes"
        yield f"{margin} {sign} fix: {visible(f.fix.title)} ({how})\n"
    yield f"{margin} {sign} see: {f.url}\n\n"


def _excerpt(span: Span | Inside, report: Report, split: dict[str, list[bytes]]) -> tuple[str, int, int] | None:
    """The line as printed, the cells before its span and the cells of the span in that line."""
    if span.file not in split:
        split[span.file] = _LINE_END.split(report.source(span.file))
    lines = split[span.file]
    if span.line > len(lines):
        return None
    line = lines[span.line - 1].decode("utf-8", "replace")
    if not line.strip():
        return None
    start = span.column - 1
    end = span.end_column - 1 if span.end_line == span.line else len(line.rstrip())
    start, end = min(start, len(line)), min(max(end, start + 1), max(len(line), start + 1))
    # cut in code points first: a line may have millions of them
    first = max(0, start - _WIDTH // 3) if len(line) > _WIDTH else 0
    cut = line[first : first + _WIDTH]
    head = "…" if first else ""
    tail = "…" if first + _WIDTH < len(line) else ""
    indent = 0 if head else len(cut) - len(cut.lstrip())
    before, under = cut[indent : start - first], cut[max(start - first, indent) : end - first]
    shown = _cells(cut[indent:]).rstrip()
    return head + shown + tail, len(head) + _width(_cells(before)), max(1, _width(_cells(under)))


def _cells(text: str) -> str:
    """``text`` with tabs as spaces and without what a terminal would obey."""
    return visible(text.replace("\t", " " * _TAB))


def _width(text: str) -> int:
    """Terminal cells: wide characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)


def _summary(report: Report) -> str:
    unread = f"{plural(report.unread, 'file')} could not be read" if report.unread else ""
    if not report.findings:
        unread = unread or "not everything was checked" * bool(report.problems and report.files)
        nothing = "Nothing was checked" * bool(unread or report.problems)
        read = f"No findings in {plural(report.files, 'file')}" if report.files else nothing
        return "; ".join(part for part in (read, unread) if part) + ".\n" if read else ""
    levels = [f.level for f in report.findings]
    counts = [plural(levels.count(level), level) for level in ("error", "warning", "note") if level in levels]
    files = plural(len({f.span.file for f in report.findings}), "file")
    checked = f"{digits(report.files + report.unread)}; {unread}" if unread else f"{digits(report.files)} checked"
    safe = sum(f.fix is not None and f.fix.applicability == "safe" for f in report.findings)
    more = sum(f.fix is not None for f in report.findings) - safe
    repairs = [f"--fix repairs {digits(safe)}"] * bool(safe) + [f"--fix --unsafe-fixes {digits(safe + more)}"] * bool(
        more
    )
    return f"{', '.join(counts)} in {files} of {checked}{''.join(f'; {each}' for each in repairs)}.\n"
