"""Suppressions in comments: ``// cudalint: ignore[CL301]: reason`` and its relatives.

* ``ignore[…]`` on any line of the finding; ``ignore-next-line[…]`` above it; ``ignore-file[…]`` anywhere;
* ``disable[…]`` to ``enable[…]`` (or the end of the file).

Rules are named by code or name, several with commas between; a reason may follow after a colon. Other
words after ``cudalint:`` (``requires(…)``, ``confirm(…)``) belong to other features.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from cudalint.errors import closest
from cudalint.rules.pages import by_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudalint.findings import Span

_WORDS = ("ignore", "ignore-next-line", "ignore-file", "disable", "enable")
# Strings and characters are matched so that a comment mark inside one is not taken for a comment.
_LEXEME = re.compile(
    rb"""(?P<comment>//(?:\\(?:\r\n|\n|\r)|[^\r\n])*|/\*.*?(?:\*/|\Z))"""
    rb"""|R"(?P<delimiter>[^()\\\s]{0,16})\(.*?\)(?P=delimiter)\""""
    rb"""|"(?:\\.|[^"\\\r\n])*"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\r\n])*'""",
    re.DOTALL,
)
_DIRECTIVE = re.compile(rb"cudalint:[ \t]*([A-Za-z-]+)(?:[ \t]*(\[[^\]\r\n]*\]?))?")
_NAME = re.compile(rb"[^\s,\[\]][^,\[\]]*")
_LINE_END = re.compile(rb"\r\n|\r|\n")


class Directive(NamedTuple):
    """One rule named in a suppression, or a suppression that cannot be followed (``fault``: why, in words).

    ``start`` and ``end`` are the (line, column) of what is written; ``lines`` the first and last line
    that it speaks for (None: to the end of the file).
    """

    word: str
    code: str
    start: tuple[int, int]
    end: tuple[int, int]
    lines: tuple[int, int | None]
    fault: str | None = None

    def covers(self, code: str, span: Span) -> bool:
        """Does it speak for a finding of ``code`` at ``span``?"""
        if code != self.code or self.fault or self.word == "enable":
            return False
        first, last = self.lines
        # an end in column 1 does not reach into its line; a range holds what begins in it
        reach = span.end_line - (span.end_column == 1 and span.end_line > span.line)
        return first <= (span.line if self.word == "disable" else reach) and (last is None or span.line <= last)


class _Lines:
    """Places in a file as the user sees them: any convention of line ends, columns in code points."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._starts = [0, *(end.end() for end in _LINE_END.finditer(raw))]

    def line(self, offset: int) -> int:
        from bisect import bisect_right

        return bisect_right(self._starts, offset)

    def place(self, offset: int) -> tuple[int, int]:
        line = self.line(offset)
        return line, len(self._raw[self._starts[line - 1] : offset].decode("utf-8", "replace")) + 1


def directives(raw: bytes) -> list[Directive]:
    """The suppressions of a file (UTF-8, no BOM), in order."""
    if b"cudalint:" not in raw:
        return []
    found = list(_directives(raw))
    chained = {d.lines[0] - 1 for d in found if d.word == "ignore-next-line"}
    for i, directive in enumerate(found):
        if directive.word == "ignore-next-line":
            line = directive.lines[0]
            while line in chained:  # several, one above the other, speak for the same line
                line += 1
            found[i] = directive._replace(lines=(line, line))
        elif directive.word == "enable" and not directive.fault:
            opened = [j for j in range(i) if found[j].word == "disable" and found[j].code == directive.code]
            for j in opened:
                first, last = found[j].lines
                found[j] = found[j]._replace(lines=(first, directive.start[0] if last is None else last))
            if not opened:
                fault = f"'enable[{directive.code}]' has no 'disable[{directive.code}]' before it"
                found[i] = directive._replace(fault=fault)
    return found


def _directives(raw: bytes) -> Iterator[Directive]:
    lines = _Lines(raw)
    for lexeme in _LEXEME.finditer(raw):
        if lexeme["comment"] is None:
            continue
        for match in _DIRECTIVE.finditer(raw, lexeme.start(), lexeme.end()):
            word = match[1].decode()
            fault = _fault(word, match[2])
            if word not in _WORDS and fault is None:
                continue
            first, last = lines.line(lexeme.start()), lines.line(lexeme.end() - 1)
            speaks_for: tuple[int, int | None] = (first, last)
            if word == "ignore-file":
                speaks_for = (1, None)
            elif word == "ignore-next-line":
                speaks_for = (last + 1, last + 1)
            elif word == "disable":
                speaks_for = (first, None)
            if fault:
                yield Directive(word, "", lines.place(match.start()), lines.place(match.end()), speaks_for, fault)
                continue
            for name in _NAME.finditer(raw, match.start(2), match.end(2)):
                written = name[0].decode("utf-8", "replace").rstrip()
                page = by_name().get(written)
                wrong = None if page else f"unknown rule '{written}' in 'cudalint: {word}'{closest(written, by_name())}"
                end = name.start() + len(name[0].rstrip())
                start = lines.place(name.start())
                yield Directive(word, page.code if page else "", start, lines.place(end), speaks_for, wrong)


def _fault(word: str, bracket: bytes | None) -> str | None:
    if word not in _WORDS:
        # a slip of the pen, or a word of another feature
        meant = closest(word, _WORDS)
        return f"unknown word '{word}' after 'cudalint:'{meant}" if meant else None
    if bracket is None:
        return f"'cudalint: {word}' needs the rules in brackets, like {word}[CL301]"
    if not bracket.endswith(b"]"):
        return f"'cudalint: {word}[' has no closing bracket"
    if not _NAME.search(bracket):
        return f"'cudalint: {word}[]' names no rule"
    return None
