"""What an edit of a file can change of what its check finds: the functions that are to be checked again.

A unit (a kernel, a launch, a host function) depends on its own text, on the functions that it names, on the functions
that name it (its launches and their callers), and on what stands outside of functions. So an edit inside functions
concerns these, whoever names them, and what host functions among those name in turn.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cudalint.findings import Finding, Span
    from cudalint.frontend.source import SourceFile
    from cudalint.ir.nodes import FunctionDecl

_WORD = re.compile(rb"[A-Za-z_]\w*")
_DIRECTIVE = re.compile(rb"^[ \t]*#", re.MULTILINE)
_LINE = re.compile(r"\bline \d")
"""Words that hold only as long as the line does."""


class Edit(NamedTuple):
    """``names`` are the functions that the edit concerns, ``moved`` the line ranges of edited functions before and
    after it."""

    path: str
    names: frozenset[str]
    moved: list[tuple[tuple[int, int], tuple[int, int]]]

    def line(self, line: int) -> int | None:
        """Where a line outside of edited functions is now; None for one of theirs."""
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


def edit(old: SourceFile, new: SourceFile) -> Edit | None:
    """What differs, where that is within functions and can be told to stay there; None where anything may differ."""
    before, after = _functions(old), _functions(new)
    if [f.qualname for f, _, _ in before] != [f.qualname for f, _, _ in after]:
        return None
    differing = []
    at_old = at_new = 0
    for one, other in zip(before, after, strict=True):
        if old.raw[at_old : one[1]] != new.raw[at_new : other[1]]:
            return None
        if old.raw[one[1] : one[2]] != new.raw[other[1] : other[2]]:
            differing.append((one, other))
        at_old, at_new = one[2], other[2]
    if old.raw[at_old:] != new.raw[at_new:]:
        return None
    named: dict[str, set[str]] = {}
    hosts = set()
    for decl, _, _ in (*before, *after):
        named.setdefault(decl.name, set()).update(_names(decl))
        if decl.kind not in ("kernel", "device"):
            hosts.add(decl.name)
    touched: set[str] = set()
    moved = []
    for (decl, start, end), (now, first, last) in differing:
        # A constructor matters to methods that do not name it; a macro to whatever follows.
        if decl.owner or _DIRECTIVE.search(old.raw, start, end) or _DIRECTIVE.search(new.raw, first, last):
            return None
        touched |= {decl.name, *(_names(decl) ^ _names(now)) & named.keys()}
        moved.append((_lines(old, start, end), _lines(new, first, last)))
    return Edit(new.path, frozenset(_closed(touched, named, hosts)), moved)


def widened(edit: Edit, more: Iterable[str], new: SourceFile) -> Edit:
    """The edit, concerning some more functions."""
    functions = _functions(new)
    named: dict[str, set[str]] = {}
    for decl, _, _ in functions:
        named.setdefault(decl.name, set()).update(_names(decl))
    hosts = {decl.name for decl, _, _ in functions if decl.kind not in ("kernel", "device")}
    return edit._replace(names=frozenset(_closed({*edit.names, *more}, named, hosts)))


def _closed(names: set[str], named: dict[str, set[str]], hosts: set[str]) -> set[str]:
    """The functions, those that name one of them, and those that a host function among them names."""
    while True:
        more = {name for name, words in named.items() if not words.isdisjoint(names)}
        more = more.union(*(named[name] & named.keys() for name in (names | more) & hosts))
        if more <= names:
            return names
        names = names | more


def _functions(file: SourceFile) -> list[tuple[FunctionDecl, int, int]]:
    """The functions with a body and where they stand in what the user sees; none that stands in another."""
    found: list[tuple[FunctionDecl, int, int]] = []
    at = 0
    for decl in sorted(file.declarations.functions, key=lambda f: (f.start, -f.end)):
        if decl.has_body and decl.file is file:
            start, end = file.origin(decl.start, decl.end)
            if start >= at:
                found.append((decl, start, end))
                at = end
    return found


def _names(decl: FunctionDecl) -> set[str]:
    return {word.decode() for word in _WORD.findall(decl.file.text, decl.start, decl.end)}


def _lines(file: SourceFile, start: int, end: int) -> tuple[int, int]:
    return file.position(start)[0], file.position(end)[0]
