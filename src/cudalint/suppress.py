"""Suppressions in comments: ``// cudalint: ignore[CL301]: reason`` and its relatives.

* ``ignore[…]`` on any line of the finding; ``ignore-next-line[…]`` above it; ``ignore-file[…]`` anywhere;
* ``disable[…]`` to ``enable[…]`` (or the end of the file).

Rules are named as where they are selected, several with commas between; a reason may follow after a colon. Other
words after ``cudalint:`` (``requires(…)``, ``confirm(…)``) belong to other features: those
that cannot be used are told.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cudalint.errors import closest
from cudalint.frontend.given import WORD as CONFIRM
from cudalint.frontend.given import given
from cudalint.frontend.stated import WORDS, stated
from cudalint.lazy import NamedTuple, pattern
from cudalint.rules.pages import by_name
from cudalint.select import canonical, is_selector, named, suggestion

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudalint.findings import Finding, Inside, Span

_WORDS = ("ignore", "ignore-next-line", "ignore-file", "disable", "enable")
# Strings and characters are matched so that a comment mark inside one is not taken for a comment.
LEXEME = pattern(
    rb"""(?P<comment>//(?:\\(?:\r\n|\n|\r)|[^\r\n])*|/\*.*?(?:\*/|\Z))"""
    rb"""|R"(?P<delimiter>[^()\\\s]{0,16})\(.*?\)(?P=delimiter)\""""
    rb"""|"(?:\\.|[^"\\\r\n])*"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\r\n])*'""",
    re.DOTALL,
)
_DIRECTIVE = pattern(rb"cudalint:[ \t]*([A-Za-z-]+)(?:[ \t]*(\[[^\]\r\n]*\]?))?", re.IGNORECASE)
_MARK = pattern(rb"cudalint:", re.IGNORECASE)
_OPENING = pattern(rb"(?://+|/\*+)[ \t!<]*")
_NAME = pattern(rb"[^\s,\[\]][^,\[\]]*")
_LINE_END = pattern(rb"\r\n|\r|\n")


class Directive(NamedTuple):
    """One selector of a suppression, or a comment that cannot be followed (``fault``: why, in words).

    ``selector`` is the code where it names one rule, ``codes`` are all that it names.
    ``start`` and ``end`` are the (line, column) of what is written; ``lines`` the first and last line
    that it speaks for (None: to the end of the file).
    """

    word: str
    selector: str
    codes: frozenset[str]
    start: tuple[int, int]
    end: tuple[int, int]
    lines: tuple[int, int | None]
    fault: str | None = None

    def covers(self, finding: Finding, span: Span | Inside) -> bool:
        """Does it speak for ``finding`` at ``span``?"""
        if self.fault or self.word == "enable" or (finding.code not in self.codes and finding.form != self.selector):
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
    if not _MARK.search(raw):
        return []
    found = [*_directives(raw), *_wrongly_stated(raw)]
    found.sort(key=lambda directive: directive.start)
    chained = {d.lines[0] - 1 for d in found if d.word == "ignore-next-line"}
    for i, directive in enumerate(found):
        if directive.word == "ignore-next-line":
            line = directive.lines[0]
            while line in chained:  # several, one above the other, speak for the same line
                line += 1
            found[i] = directive._replace(lines=(line, line))
        elif directive.word == "enable" and not directive.fault:
            opened = [j for j in range(i) if found[j].word == "disable" and found[j].selector == directive.selector]
            for j in opened:
                first, last = found[j].lines
                found[j] = found[j]._replace(lines=(first, directive.start[0] if last is None else last))
            if not opened:
                fault = f"'enable[{directive.selector}]' has no 'disable[{directive.selector}]' before it"
                found[i] = directive._replace(fault=fault)
    return found


def _wrongly_stated(raw: bytes) -> Iterator[Directive]:
    """The ``assume(…)``, ``requires(…)`` and ``confirm(…)`` that cannot be used."""
    faults = [(x.word, x.start, x.end, x.fault) for x in stated(raw)]
    faults += [(CONFIRM, x.start, x.end, x.fault) for x in given(raw)]
    for word, at, stop, fault in faults:
        if fault is not None:
            lines = _Lines(raw)
            first = lines.line(at)
            yield Directive(word, "", frozenset(), lines.place(at), lines.place(stop), (first, first), fault)


def _directives(raw: bytes) -> Iterator[Directive]:
    lines = _Lines(raw)
    for lexeme in LEXEME.finditer(raw):
        if lexeme["comment"] is None:
            continue
        for match in _DIRECTIVE.finditer(raw, lexeme.start(), lexeme.end()):
            word = match[1].decode().lower()
            opening = _OPENING.match(raw, lexeme.start(), lexeme.end())
            fault = _fault(word, match, alone=opening is not None and opening.end() == match.start())
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
                start, end = lines.place(match.start()), lines.place(match.end())
                yield Directive(word, "", frozenset(), start, end, speaks_for, fault)
                continue
            for name in _NAME.finditer(raw, match.start(2), match.end(2)):
                written = name[0].decode("utf-8", "replace").rstrip()
                wrong = None
                if not is_selector(written):
                    wrong = f"unknown rule '{written}' in 'cudalint: {word}'{suggestion(written)}"
                page = by_name().get(canonical(written))
                selector = page.code if page else canonical(written)
                start, end = lines.place(name.start()), lines.place(name.start() + len(name[0].rstrip()))
                yield Directive(word, selector, named(selector), start, end, speaks_for, wrong)


def _fault(word: str, match: re.Match[bytes], *, alone: bool) -> str | None:
    """Why a directive cannot be followed; ``alone`` tells that the comment begins with it, and is not prose."""
    bracket = match[2]
    if word in (*WORDS, CONFIRM):
        # Those who read these words read small letters.
        small = match[0].startswith(b"cudalint:") and match[1].islower()
        return None if small else f"'cudalint: {word}' has to be written in small letters"
    if word not in _WORDS:
        words = (*_WORDS, *WORDS, CONFIRM)
        meant = closest(word, words)
        if not meant and alone:
            meant = f"; there are {', '.join(words[:-1])} and {words[-1]}"
        return f"unknown word '{word}' after 'cudalint:'{meant}" if meant else None
    if bracket is None:
        return f"'cudalint: {word}' needs the rules in brackets, like {word}[CL301]"
    if not bracket.endswith(b"]"):
        return f"'cudalint: {word}[' has no closing bracket"
    if not _NAME.search(bracket):
        return f"'cudalint: {word}[]' names no rule"
    return None
