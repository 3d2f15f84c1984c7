"""The report of ``cudalint confirm``: a verdict a finding, and a table of its runs, sizes down and launches across."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cudalint.findings import digits, plural
from cudalint.report import visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cudalint.findings import Case, Evidence, Finding
    from cudalint.report import Report

_COLOURS = {"confirmed": "1;31", "not-reproduced": "1;32", "inconclusive": "1;33", "not-run": "1;36"}
_WORDS = {"confirmed": "confirmed", "not-reproduced": "not reproduced", "inconclusive": "inconclusive",
          "not-run": "not run"}  # fmt: skip


class Verdict(NamedTuple):
    """What is printed: ``title`` says of what, ``columns`` are the runs, one group of cases a launch."""

    title: str
    evidence: Evidence
    columns: Sequence[tuple[str, Sequence[Case]]]


def render(report: Report) -> Iterator[str]:
    """The verdicts of a report's findings, and how many there are of each."""
    verdicts = []
    for f in report.findings:
        at = f"{report.relative(f.span.file)}:{f.span.line}:{f.span.column}"
        verdicts.append(Verdict(f"{at}: {f.code} {f.name}{_in(f)}", f.evidence, [("", f.evidence.cases)]))
    yield from tables(verdicts, colour=report.colour)


def _in(finding: Finding) -> str:
    return f" in {finding.function}" if finding.function else ""


def tables(verdicts: Sequence[Verdict], *, colour: bool = False) -> Iterator[str]:
    for verdict in verdicts:
        yield from _verdict(verdict, colour)
    if verdicts:
        counts = [(word, sum(v.evidence.verdict == word for v in verdicts)) for word in _WORDS]
        yield ", ".join(f"{digits(n)} {_WORDS[word]}" for word, n in counts if n) + "\n"
    else:
        yield f"{plural(0, 'finding')} to confirm\n"


def _verdict(verdict: Verdict, colour: bool) -> Iterator[str]:
    evidence = verdict.evidence
    word = _WORDS[evidence.verdict]
    shown = f"\x1b[{_COLOURS[evidence.verdict]}m{word}\x1b[0m" if colour else word
    reason = f": {evidence.reason}" if evidence.reason else ""
    yield f"{visible(verdict.title)}: {shown}{visible(reason)}\n"
    if evidence.prediction is not None and evidence.verdict == "confirmed":
        held = "held" if evidence.prediction.held else "did not hold"
        yield f"  predicted {visible(_predicted(evidence))}: {held}\n"
    if evidence.wrong:
        listed = "; ".join(
            f"{w['index']} (block {_short(w['block'])}, thread {_short(w['thread'])}, pass {w['pass']})"
            for w in evidence.wrong
        )
        yield f"  wrong: {listed}\n"
    yield from _table(verdict.columns)
    yield "\n"


def _predicted(evidence: Evidence) -> str:
    assert evidence.prediction is not None
    words = evidence.prediction.words
    sizes = ", ".join(f"{name} = {digits(value)}" for name, value in evidence.prediction.sizes.items())
    return f"{words} at {sizes}" if sizes else words


def _short(triple: Sequence[int]) -> str:
    return str(triple[0]) if tuple(triple[1:]) == (0, 0) else str(tuple(triple))


def _table(groups: Sequence[tuple[str, Sequence[Case]]]) -> Iterator[str]:
    """Sizes down, launches across."""
    rows: dict[str, dict[str, str]] = {}
    columns: dict[str, None] = {}
    for title, cases in groups:
        for case in cases:
            size = ", ".join(f"{name} = {value}" for name, value in case.sizes.items()) or "-"
            column = f"{title}: {case.launch}" if title else case.launch
            columns.setdefault(column)
            rows.setdefault(size, {})[column] = case.result
    if not rows:
        return
    table = [["", *columns], *([size, *(cells.get(c, "") for c in columns)] for size, cells in rows.items())]
    widths = [max(len(line[k]) for line in table) for k in range(len(columns) + 1)]
    for line in table:
        yield "  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() + "\n"


__all__ = ["Verdict", "render", "tables"]
