"""What can be done about a finding: repair it, ignore it, read of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lsprotocol import types

from cudalint.add_ignore import add
from cudalint.engine import GAP, UNUSED
from cudalint.findings import Span
from cudalint.frontend.source import decode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from cudalint.findings import Edit, Finding
    from cudalint.lsp.session import Snapshot
    from cudalint.lsp.text import Lines

OPEN = "cudalint.open"
FIX_ALL = f"{types.CodeActionKind.SourceFixAll.value}.cudalint"
_IGNORED_FILE = re.compile(r"cudalint:[ \t]*ignore-file[ \t]*\[([^\]\r\n]*)(?=\])")

Edits = dict[str, list[types.TextEdit]]


def actions(
    snapshot: Snapshot, at: types.Range, lines_of: Callable[[str], Lines], edit: Callable[[Edits], types.WorkspaceEdit],
    shown: dict[str, types.Diagnostic],
) -> Iterator[types.CodeAction]:  # fmt: skip
    """The actions for the findings that meet a range. ``shown`` are the diagnostics by fingerprint."""
    lines = lines_of(snapshot.text.path)
    here = [f for f in snapshot.shown if _meets(lines.range(f.span), at)]
    for finding in here:
        told = [shown[finding.fingerprint]] if finding.fingerprint in shown else None
        if finding.fix is not None:
            safe = finding.fix.applicability == "safe"
            title = f"{finding.code}: {finding.fix.title}" + ("" if safe else " (look it over)")
            change = edit(_changes(finding.fix.edits, lines_of))
            yield types.CodeAction(title, types.CodeActionKind.QuickFix, told, is_preferred=safe, edit=change)
    for finding in here:
        told = [shown[finding.fingerprint]] if finding.fingerprint in shown else None
        if finding.code not in (GAP, UNUSED):
            change = edit({finding.span.file: _ignore_line(finding, snapshot, lines)})
            title = f"Ignore {finding.code} on this line"
            yield types.CodeAction(title, types.CodeActionKind.QuickFix, told, edit=change)
    for finding in {f.code: f for f in reversed(here)}.values():
        if finding.code != UNUSED:
            change = edit({finding.span.file: [_ignore_file(finding, lines)]})
            yield types.CodeAction(f"Ignore {finding.code} in this file", types.CodeActionKind.QuickFix, edit=change)
        title = f"Read about {finding.code} {finding.name}"
        command = types.Command(title, OPEN, arguments=[finding.url])
        yield types.CodeAction(title, types.CodeActionKind.QuickFix, command=command)


def fix_all(snapshot: Snapshot, uri: str) -> Iterator[types.CodeAction]:
    """The actions that repair all of a text; what they change is computed when one is chosen."""
    fixes = [f.fix for f in snapshot.findings if f.fix is not None]
    if any(fix.applicability == "safe" for fix in fixes):
        yield types.CodeAction("Make all safe fixes of cudalint", FIX_ALL, data={"uri": uri, "unsafe": False})
    if any(fix.applicability == "unsafe" for fix in fixes):
        title = "Make all fixes of cudalint, those to look over too"
        yield types.CodeAction(title, types.CodeActionKind.QuickFix, data={"uri": uri, "unsafe": True})


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


def _ignore_line(finding: Finding, snapshot: Snapshot, lines: Lines) -> list[types.TextEdit]:
    """What ``--add-ignore`` would write: a comment behind the line, or the code in one that is there."""
    new, _ = add(snapshot.text.data, {finding.span.line: {finding.code}})
    return whole_text(decode(new).raw.decode(), lines)


def _ignore_file(finding: Finding, lines: Lines) -> types.TextEdit:
    """A comment at the top of the file, or the code in the one that is there already."""
    for number, line in enumerate(lines.lines, 1):
        known = _IGNORED_FILE.search(line)
        if known is not None:
            return _insert(lines, number, known.end(1), f", {finding.code}" if known[1].strip() else finding.code)
    return _insert(lines, 1, 0, f"// cudalint: ignore-file[{finding.code}]{lines.newline}")


def _insert(lines: Lines, line: int, before: int, text: str) -> types.TextEdit:
    """Text put into a line, before its character of that index."""
    return types.TextEdit(lines.range(Span("", line, before + 1, line, before + 1)), text)
