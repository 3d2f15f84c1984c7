"""What can be done about a finding: repair it, ignore it, read of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lsprotocol import types

from cudalint.add_ignore import add_at
from cudalint.engine import GAP, UNUSED
from cudalint.findings import Span
from cudalint.frontend.embedded import sources
from cudalint.frontend.source import decode, is_host

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from cudalint.findings import Edit, Finding
    from cudalint.lsp.session import Snapshot
    from cudalint.lsp.text import Lines

OPEN = "cudalint.open"
APPLY = "cudalint.apply"
REPAIRS = SAFE, ALL = "safe", "all"
FIX_ALL = f"{types.CodeActionKind.SourceFixAll.value}.cudalint"
_IGNORED_FILE = re.compile(r"cudalint:[ \t]*ignore-file[ \t]*\[([^\]\r\n]*)(?=\])")

Edits = dict[str, list[types.TextEdit]]


def actions(
    snapshot: Snapshot, at: types.Range, uri: str, lines_of: Callable[[str], Lines],
    edit: Callable[[Edits], types.WorkspaceEdit], shown: Callable[[Finding], types.Diagnostic],
) -> Iterator[types.CodeAction]:  # fmt: skip
    """The actions for the findings that meet a range; what goes through the whole text is put off."""
    lines = lines_of(snapshot.text.path)
    here = [f for f in snapshot.shown if _meets(lines.range(f.span), at)]
    told = [[shown(f)] for f in here]
    for finding, about in zip(here, told, strict=True):
        if finding.fix is not None:
            safe = finding.fix.applicability == "safe"
            title = f"{finding.code}: {finding.fix.title}" + ("" if safe else " (look it over)")
            change = edit(_changes(finding.fix.edits, lines_of))
            yield types.CodeAction(title, types.CodeActionKind.QuickFix, about, is_preferred=safe, edit=change)
    for finding, about in zip(here, told, strict=True):
        if finding.code not in (GAP, UNUSED) and _can_ignore(finding, snapshot, lines):
            title = f"Ignore {finding.code} on this line"
            yield _put_off(title, types.CodeActionKind.QuickFix, uri, finding.fingerprint, about)
    for finding in {f.code: f for f in reversed(here)}.values():
        ignored = _ignore_file(finding, snapshot, lines) if finding.code != UNUSED else None
        if ignored is not None:
            change = edit({finding.span.file: [ignored]})
            yield types.CodeAction(f"Ignore {finding.code} in this file", types.CodeActionKind.QuickFix, edit=change)
        title = f"Read about {finding.code} {finding.name}"
        command = types.Command(title, OPEN, arguments=[finding.url])
        yield types.CodeAction(title, types.CodeActionKind.QuickFix, command=command)


def fix_all(snapshot: Snapshot, uri: str) -> Iterator[types.CodeAction]:
    """The actions that repair all of a text, put off."""
    fixes = [f.fix for f in snapshot.findings if f.fix is not None]
    if any(fix.applicability == "safe" for fix in fixes):
        yield _put_off("Make all safe fixes of cudalint", FIX_ALL, uri, SAFE)
    if any(fix.applicability == "unsafe" for fix in fixes):
        title = "Make all fixes of cudalint, those to look over too"
        yield _put_off(title, types.CodeActionKind.QuickFix, uri, ALL)


def repairs_all(action: types.CodeAction) -> bool:
    return action.data is not None and action.data["what"] in REPAIRS


def _put_off(
    title: str, kind: str, uri: str, what: str, told: list[types.Diagnostic] | None = None
) -> types.CodeAction:
    """An action whose edit is computed when it is chosen: ``what`` says which, in the text behind the URI."""
    return types.CodeAction(title, kind, told, data={"uri": uri, "what": what})


def ignore_line(finding: Finding, snapshot: Snapshot, lines: Lines) -> list[types.TextEdit]:
    """What ``--add-ignore`` would write: a comment behind the line, or the code in one that is there."""
    data = snapshot.text.data
    new, _ = add_at(finding.span.file, data, [(finding.span, finding.code)])
    return whole_text(decode(new).raw.decode(), lines) if new != data else []


def whole_text(new: str, lines: Lines) -> list[types.TextEdit]:
    """The edit that makes a text ``new``: of the lines that differ."""
    from cudalint.lsp.text import Lines as Split

    old, now = lines.lines, Split(new, "utf-32").lines
    most = min(len(old), len(now))
    same = next((i for i in range(most) if old[i] != now[i]), most)
    after = next((i for i in range(most - same) if old[-1 - i] != now[-1 - i]), most - same)
    if after == 0:
        end = types.Position(len(old) - 1, lines.position(len(old), len(old[-1]) + 1).character)
        start = types.Position(same, 0) if same < len(old) else end
    else:
        start, end = types.Position(same, 0), types.Position(len(old) - after, 0)
    return [types.TextEdit(types.Range(start, end), "".join(now[same : len(now) - after]))]


def _meets(one: types.Range, other: types.Range) -> bool:
    return one.start <= other.end and other.start <= one.end


def _changes(edits: Iterable[Edit], lines_of: Callable[[str], Lines]) -> Edits:
    found: Edits = {}
    for each in edits:
        lines = lines_of(each.span.file)
        text = each.text.replace("\n", lines.newline)
        found.setdefault(each.span.file, []).append(types.TextEdit(lines.range(each.span), text))
    return found


def _can_ignore(finding: Finding, snapshot: Snapshot, lines: Lines) -> bool:
    """Can a comment be written? In a string of Python that has to be tried."""
    return not is_host(finding.span.file) or bool(ignore_line(finding, snapshot, lines))


def _ignore_file(finding: Finding, snapshot: Snapshot, lines: Lines) -> types.TextEdit | None:
    """A comment at the top of the CUDA text, or the code in the one that is there already; None where it cannot be
    written."""
    for number, line in enumerate(lines.lines, 1):
        known = _IGNORED_FILE.search(line)
        if known is not None:
            return _insert(lines, number, known.end(1), f", {finding.code}" if known[1].strip() else finding.code)
    comment = f"// cudalint: ignore-file[{finding.code}]\n"
    path, inside = finding.span.file, finding.span.inside
    if inside is None:
        return None if is_host(path) else _insert(lines, 1, 0, comment.replace("\n", lines.newline))
    top = sources(path, snapshot.text.data)[inside.file].edit(0, 0, comment)
    return None if top is None else _changes([top], lambda _: lines)[path][0]


def _insert(lines: Lines, line: int, before: int, text: str) -> types.TextEdit:
    """Text put into a line, before its character of that index."""
    return types.TextEdit(lines.range(Span("", line, before + 1, line, before + 1)), text)
