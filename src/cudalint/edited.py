"""What an edit of a file can change of what its check finds: the functions that are to be checked again.

A unit (a kernel, a launch, a host function) depends on its own text, on the functions that it names, on the functions
that name it (its launches and their callers), and on what stands outside of functions. So an edit inside functions
concerns these, whoever names them, and what host functions among those name in turn.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING

from cudalint.lazy import NamedTuple, pattern

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cudalint.findings import Finding, Span
    from cudalint.frontend.source import SourceFile
    from cudalint.ir.nodes import FunctionDecl

_WORD = re.compile(rb"[A-Za-z_]\w*")
_DIRECTIVE = pattern(rb"^[ \t]*#", re.MULTILINE)
# Whole lines without a word of code; a comment in the middle of a line may be part of a string.
_NO_CODE = pattern(rb"^[ \t]*(?://[^\r\n]*|/\*(?:[^*]|\*(?!/))*\*/[ \t]*)?(?:\r\n|\r|\n|\Z)", re.MULTILINE)
_NOT_PLAIN = pattern(rb'cudalint:|\\\s|R"')
_LINE = pattern(r"\blines?\b")
"""Where a finding may tell a line's number."""


class Edit(NamedTuple):
    """``names`` are the functions that the edit concerns, ``moved`` the lines of edited functions, and of blank lines
    and comments between functions, before and after it."""

    path: str
    names: frozenset[str]
    moved: list[tuple[tuple[int, int], tuple[int, int]]]

    def line(self, line: int) -> int | None:
        """Where a line outside of them is now; None for one of theirs."""
        by = 0
        for (first, last), (now, end) in self.moved:
            if line < first:
                break
            if line <= last:
                return None
            by += end - now - last + first
        return line + by

    def span(self, span: Span) -> Span | None:
        if span.file != self.path:
            return span
        first, last = self.line(span.line), self.line(span.end_line)
        return None if first is None or last is None else span._replace(line=first, end_line=last)

    def finding(self, finding: Finding) -> Finding | None:
        """The finding where it stands now; None where its words or its places hold no longer."""
        span = self.span(finding.span)
        related = [(each, self.span(each.span)) for each in finding.related]
        edits = [(each, self.span(each.span)) for each in (finding.fix.edits if finding.fix else ())]
        if span is None or any(place is None for _, place in (*related, *edits)):
            return None
        if (span, *(p for _, p in related)) != (finding.span, *(r.span for r in finding.related)) and any(
            map(_LINE.search, _words(finding))
        ):
            return None
        return finding._replace(
            span=span,
            related=tuple(each._replace(span=place) for each, place in related if place),
            fix=finding.fix and finding.fix._replace(edits=tuple(e._replace(span=p) for e, p in edits if p)),
        )


def _words(finding: Finding) -> Iterator[str]:
    yield from (finding.message, finding.help, *(each.message for each in finding.related))
    if finding.witness is not None:
        yield from (str(each) for pair in finding.witness.values.items() for each in pair)


class Outline:
    """The functions of a file that have a body, where they stand in what the user sees, and the words of each; of
    functions in functions, the outer."""

    def __init__(self, file: SourceFile, old: Outline | None = None) -> None:
        """``old`` is an earlier version: what did not change is taken from it."""
        self.file = file
        self.functions: list[tuple[FunctionDecl, int, int]] = []
        at = 0
        for decl in sorted(file.declarations.functions, key=lambda f: (f.start, -f.end)):
            if decl.has_body and decl.file is file:
                start, end = file.origin(decl.start, decl.end)
                if start >= at:
                    self.functions.append((decl, start, end))
                    at = end
        known: dict[bytes, set[str]] = {}
        if old is not None and old.code == self.code:  # macros among it
            known = {old.raw(i): words for i, words in enumerate(old.words)}
        self.words: list[set[str]] = [
            known.get(self.raw(i)) or _words_of(f) for i, (f, _, _) in enumerate(self.functions)
        ]

    def raw(self, index: int) -> bytes:
        _, start, end = self.functions[index]
        return self.file.raw[start:end]

    @cached_property
    def rest(self) -> list[bytes]:
        """What stands before, between and behind the functions."""
        stops = [0, *(end for _, _, end in self.functions)]
        starts = [*(start for _, start, _ in self.functions), len(self.file.raw)]
        return [self.file.raw[stop:start] for stop, start in zip(stops, starts)]

    @cached_property
    def code(self) -> list[bytes]:
        """The same without blank lines and lines of comments, where these can mean nothing."""
        return [rest if _NOT_PLAIN.search(rest) else _NO_CODE.sub(b"", rest) for rest in self.rest]

    def between(self, index: int) -> tuple[int, int]:
        """The lines before a function (behind the last, for the index after it) that it and the function before it
        have no part in."""
        first = self.lines(index - 1)[1] + 1 if index else 1
        last = self.lines(index)[0] - 1 if index < len(self.functions) else self.file.position(len(self.file.raw))[0]
        return first, last

    def lines(self, index: int) -> tuple[int, int]:
        _, start, end = self.functions[index]
        return self.file.position(start)[0], self.file.position(end)[0]


def edit(old: Outline, new: Outline) -> Edit | None:
    """What differs, where that is within functions and can be told to stay there; None where anything may differ."""
    if [f.qualname for f, _, _ in old.functions] != [f.qualname for f, _, _ in new.functions] or old.code != new.code:
        return None
    names = {decl.name for decl, _, _ in new.functions}
    touched: set[str] = set()
    moved = []
    for i, (one, other) in enumerate(zip(old.rest, new.rest)):
        if one != other:
            if _shared(one, i, new) != _shared(other, i, new):
                return None
            moved.append((old.between(i), new.between(i)))
    for i, (decl, _, _) in enumerate(new.functions):
        if old.raw(i) == new.raw(i):
            continue
        # A constructor matters to methods that do not name it; a macro to whatever follows.
        if decl.owner or _DIRECTIVE.search(old.raw(i)) or _DIRECTIVE.search(new.raw(i)):
            return None
        touched |= {decl.name, *((old.words[i] ^ new.words[i]) & names)}
        moved.append((old.lines(i), new.lines(i)))
    found = Edit(new.file.path, frozenset(), sorted(moved))
    return widened(widened(found, touched, old), touched, new)


def widened(edit: Edit, more: Iterable[str], outline: Outline) -> Edit:
    """The edit, concerning some more functions, those that name one of them, and those that host functions among
    these name."""
    named: dict[str, set[str]] = {}
    hosts = set()
    for (decl, _, _), words in zip(outline.functions, outline.words):
        named.setdefault(decl.name, set()).update(words)
        if decl.kind not in ("kernel", "device"):
            hosts.add(decl.name)
    found: set[str] = set()
    more = edit.names.union(more)
    while not more <= found:
        found |= more
        more = {name for name, words in named.items() if not words.isdisjoint(found)}
        more = more.union(*(named[name] & named.keys() for name in found & hosts))
    return edit._replace(names=frozenset(found))


def _shared(rest: bytes, index: int, outline: Outline) -> tuple[bytes, ...]:
    """What stands before a function on lines that functions have a part in."""
    first, newline, after = rest.partition(b"\n")
    head = (first, newline) if index else ()
    tail = (after.rpartition(b"\n")[2] if newline else first,) if index < len(outline.functions) else ()
    return (*head, *tail)


def _words_of(decl: FunctionDecl) -> set[str]:
    return {word.decode() for word in _WORD.findall(decl.file.text, decl.start, decl.end)}
