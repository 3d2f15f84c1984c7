"""Macros that nothing in sight defines and that kernels wait for, as ``USE_CUDA`` in an ``#ifdef`` around them.

The build defines them, and what is left out without them is what this tool is for. :func:`switches` finds in a text
the conditionals that leave CUDA out; :class:`Wishes` collects which names would bring it in, and :func:`taken` says
which of them are taken as defined. That a name is none of the compiler's, and that nothing before the conditional
defines it, is asked there; no name is known here.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cudalint.frontend.conditions import evaluate, is_switch
from cudalint.frontend.macros import NAME_PATTERN, Macro
from cudalint.frontend.source import holds_cuda, without_asides, without_comments
from cudalint.lazy import NamedTuple, pattern

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cudalint.frontend.macros import Table

_SIGNS = (b"__global__", b"__device__", b"<<<")
_SPLICE = pattern(rb"\\\r?\n")
_DIRECTIVE = pattern(
    rb"""^[ \t]*\#[ \t]*(?:(if|ifdef|ifndef|elif|elifdef|elifndef|else|endif)\b([^\n]*)|(?:define|undef)[ \t]+(\w+)"""
    rb"""|(?:include|include_next|import)[ \t]*(["<])([^">\n]+)[">])""",
    re.MULTILINE,
)
_CONDITION = pattern(rb"\#[ \t]*(?:el)?if(?:n?def)?\b((?:\\\r?\n|[^\n])*)")
DEFINE = pattern(rb"\#[ \t]*(?:define|undef)[ \t]+(\w+)")
_OPENING = frozenset((b"if", b"ifdef", b"ifndef"))
_STUB = pattern(rb"\#[ \t]*define[ \t]+__\w+")
"""``#define __device__``, for compilers that are not CUDA's."""
_ORDERED = pattern(rb"[<>]")
"""What is compared so is a version or a size, not a switch."""
_MOST_NAMES = 8
"""Names in one conditional that are tried."""


class Group(NamedTuple):
    """The branches of one conditional, and where it begins (in the text without comments and continuations)."""

    start: int
    branches: list[Branch]


class Branch:
    """``word`` and ``condition`` are its directive. ``kernels``: it holds device code or a launch, what is in the
    conditionals within it included; ``cuda``: it shows by anything that it is CUDA."""

    __slots__ = ("condition", "cuda", "inner", "kernels", "word")

    def __init__(self, word: bytes, condition: bytes) -> None:
        self.word, self.condition = word, condition
        self.kernels = self.cuda = False
        self.inner: list[Group] = []


class Switches(NamedTuple):
    """The conditionals of a file, and where it first defines or undefines each macro and includes what."""

    groups: list[Group]
    defined: dict[bytes, int]
    includes: list[tuple[int, str, bool]]


def switches(raw: bytes) -> Switches | None:
    """The conditionals of a text; None where none has kernels in it and a name that the file does not define."""
    if b"if" not in raw or not _signs(raw):
        return None
    names = {name for condition in _CONDITION.findall(raw) for name in NAME_PATTERN.findall(condition)}
    if not any(map(is_switch, names.difference(DEFINE.findall(raw)))):
        return None
    text = without_comments(_SPLICE.sub(b"", raw))
    # One that stands in a comment is off.
    found = Switches([], {}, [])
    worthwhile = False
    stack: list[tuple[Group, list[bytes]]] = []  # open conditionals, and the text of the branch so far
    at = 0
    for match in _DIRECTIVE.finditer(text):
        word, condition, defined, quote, included = match.groups()
        if defined is not None:
            found.defined.setdefault(defined, match.start())
            continue
        if included is not None:
            found.includes.append((match.start(), included.decode(errors="replace").strip(), quote == b"<"))
            continue
        if stack:
            stack[-1][1].append(text[at : match.start()])
        at = match.end()
        if word in _OPENING:
            group = Group(match.start(), [Branch(word, condition)])
            (stack[-1][0].branches[-1].inner if stack else found.groups).append(group)
            stack.append((group, []))
        elif stack:
            group, parts = stack[-1]
            _close(group.branches, b"".join(parts))
            parts.clear()
            if word != b"endif":
                group.branches.append(Branch(word, condition))
                continue
            stack.pop()
            kernels = any(branch.kernels for branch in group.branches)
            worthwhile = worthwhile or (kernels and any(found.defined.get(n, at) > group.start for n in _tested(group)))
            if stack:
                outer = stack[-1][0].branches[-1]
                outer.kernels = outer.kernels or kernels
                outer.cuda = outer.cuda or any(branch.cuda for branch in group.branches)
    for name in DEFINE.findall(raw):
        found.defined.setdefault(name, 0)  # in a comment: somebody has switched it off
    return found if worthwhile else None


def shape(raw: bytes) -> list[tuple[bytes, bool]]:
    """What :func:`switches` depends on: the directives of a text, and what is between them."""
    found = []
    at = 0
    for match in _DIRECTIVE.finditer(raw):
        found.append((match[0], _signs(raw[at : match.start()])))
        at = match.end()
    return found


def _close(branches: list[Branch], text: bytes) -> None:
    """Notes what the text of the last branch shows."""
    last = branches[-1]
    text = _STUB.sub(b" ", text)
    last.cuda = last.cuda or holds_cuda(text)
    last.kernels = last.kernels or (_signs(text) and _signs(without_asides(text)))


def _signs(text: bytes) -> bool:
    return any(sign in text for sign in _SIGNS)


def _tested(group: Group) -> list[bytes]:
    """The names in the conditions of a group that a build may define, in their order."""
    found = (name for branch in group.branches for name in NAME_PATTERN.findall(branch.condition))
    return [name for name in dict.fromkeys(found) if is_switch(name)]


class Wishes:
    """``wanted``: for each conditional that leaves kernels out, the sets of names either of which brings them in;
    ``denied``: names that would leave CUDA out, or replace it, somewhere else."""

    def __init__(self) -> None:
        self.wanted: list[list[tuple[bytes, ...]]] = []
        self.denied: set[bytes] = set()

    def add(self, groups: Iterable[Group], base: Table, undefined: Callable[[bytes, int], bool]) -> None:
        """``undefined``: whether nothing defines a name before an offset; ``base`` is what is predefined."""
        waiting = list(groups)
        while waiting:
            group = waiting.pop()
            names = [name for name in _tested(group) if name not in base]
            if (
                len(names) > _MOST_NAMES
                or any(_ORDERED.search(branch.condition) for branch in group.branches)
                or not all(undefined(name, group.start) for name in names)
            ):
                opened = set(range(len(group.branches)))
            else:
                opened = self._ask(group, base, names)
            for number in opened:
                waiting.extend(group.branches[number].inner)

    def _ask(self, group: Group, base: Table, names: list[bytes]) -> set[int]:
        """What a conditional wishes; the branches that may be read."""
        branches = group.branches
        read = _read(group, base, ())
        opened = set() if read is None else {read}
        if read is not None and branches[read].cuda:
            self.denied.update(name for name in names if _read(group, base, (name,)) != read)
            return opened
        for sets in ([(name,) for name in names], [tuple(names)]):
            reads = [(_read(group, base, each), each) for each in sets]
            kernels = min((k for k, _ in reads if k is not None and branches[k].kernels), default=None)
            if kernels is not None:
                self.wanted.append([each for k, each in reads if k == kernels])
                return opened | {kernels}
        return opened


def _read(group: Group, base: Table, names: tuple[bytes, ...]) -> int | None:
    """The branch that is read with these names defined."""
    table = {**base, **{name: macro(name) for name in names}} if names else base
    for number, branch in enumerate(group.branches):
        word, condition = branch.word, branch.condition
        if word.endswith(b"def"):
            tested = NAME_PATTERN.search(condition)
            holds = (tested is not None and tested[0] in table) == (b"ndef" not in word)
        else:
            holds = word == b"else" or evaluate(condition, table) != 0
        if holds:
            return number
    return None


def taken(wishes: Wishes) -> dict[bytes, Macro]:
    """The macros that are taken as defined: first those that alone bring kernels in, then, of several, the first."""
    names: dict[bytes, Macro] = {}
    for alternatives in sorted(wishes.wanted, key=len):
        allowed = [each for each in alternatives if wishes.denied.isdisjoint(each)]
        if allowed and not any(names.keys() >= set(each) for each in allowed):
            names.update((name, macro(name)) for name in allowed[0])
    return names


def macro(name: bytes) -> Macro:
    return Macro(name, None, b"1", predefined=True)
