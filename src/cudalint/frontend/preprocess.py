"""Preprocessing: ``#if``, ``#include`` and macros, with the way back to the file for every byte of the result.

Two passes. :func:`scan_file` follows the directives: it blanks them and the branches not taken, byte
for byte, and notes where macros come and go. :func:`expand` then replaces the macro uses in what is
left. Neither looks at a token that is not near a directive, a comment, a literal or a macro's name.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from cudalint.frontend.conditions import Conditions, is_switch
from cudalint.frontend.macros import (
    CHUNK,
    MAX_STEPS,
    NAME,
    NAME_PATTERN,
    NO_NAMES,
    PUNCTUATOR,
    ExhaustedError,
    Expander,
    Macro,
    Token,
    define,
    predefined,
    spell,
    tokenize,
)
from cudalint.frontend.stated import as_assertions
from cudalint.lazy import NamedTuple, pattern

if TYPE_CHECKING:
    from cudalint.frontend.macros import Table
    from cudalint.frontend.source import Reading, SourceFile

MAX_INCLUDE_DEPTH = 60


class Gap(NamedTuple):
    """A range of ``raw`` that could not be made sense of."""

    start: int
    end: int
    why: str


class Environment:
    """What preprocessing asks of the project. This one knows no other file."""

    def predefined(self, path: str, reading: Reading) -> Table:
        """The macros that ``path`` starts with."""
        del path
        return predefined(reading)

    def assumed(self, path: str) -> Table:
        """The macros that nothing defines and that are taken as defined in ``path``: see :mod:`.assumed`."""
        del path
        return {}

    def forced(self, path: str) -> list[str]:
        """Files that are included before the first line of ``path``."""
        del path
        return []

    def resolve(self, path: str, name: str, angled: bool) -> str | None:
        """The project's file that ``#include "name"`` in ``path`` names, or None."""
        del path, name, angled
        return None

    def file(self, path: str) -> SourceFile:
        raise LookupError(path)

    def content(self, path: str) -> bytes:
        """A file's bytes, for a search in its text."""
        del path
        return b""

    def including(self, path: str) -> list[str]:
        """The project's files that include ``path``, however indirectly."""
        del path
        return []

    def lending(self, path: str, name: str) -> list[str]:
        """The files that ``path`` may take a function or a macro of this name from, where it is included."""
        del path, name
        return []

    def siblings(self, folder: str) -> list[str]:
        """The project's files in a folder."""
        del folder
        return []

    def standard(self, path: str) -> str | None:
        """The language standard that ``path`` is compiled with (``c++17``), where it is known."""
        del path
        return None


# Lexing

_INTERESTING = re.compile(
    rb"""/(?:/[^\n\\]*(?:\\(?:\r?\n)?[^\n\\]*)*|\*)"""
    rb"""|"[^"\\\n]*(?:\\(?:\r\n|[\s\S])[^"\\\n]*)*"?"""
    rb"""|'[^'\\\n]*(?:\\(?:\r\n|[\s\S])[^'\\\n]*)*'?"""
    rb"""|\#"""
)
"""Comments, literals and what may be a directive. Every alternative begins with a character: sre skips to the next."""
_RAW_STRING = pattern(rb'"([^()\\\s"]{0,16})\([\s\S]*?\)\1"')
_RAW_PREFIX = pattern(rb"(?:^|[^\w$])(?:u8|[uUL])?R$")
_DIRECTIVE = pattern(rb"\#\s*([a-z_]+)\s*")
_COMMENT = pattern(
    rb"""("(?:[^"\\\n]|\\[\s\S])*"|(?<![0-9a-fA-F])'(?:[^'\\\n]|\\[\s\S])*')|//[^\n]*|/\*[\s\S]*?(?:\*/|\Z)"""
)
_SPLICE = pattern(rb"\\\r?\n")
_SPLICED_WORD = pattern(rb"\w(?:(?:\\[ \t]*\r?\n)+\w+)+")
_ASIDE_OR_SPLICED = pattern(
    rb"""(?<![\w$])(?:u8|[uUL])?R"([^()\\\s"]{0,16})\([\s\S]*?\)\1"|"(?:[^"\\\n]|\\[\s\S])*"|'(?:[^'\\\n]|\\[\s\S])*'"""
    rb"""|//(?:\\\r?\n|[^\n])*|/\*[\s\S]*?(?:\*/|\Z)|(?P<word>\w(?:(?:\\[ \t]*\r?\n)+\w+)+)"""
)
_LINE_SPLICE = pattern(rb"\\([ \t]*)(\r?\n)")
_CONFLICT = pattern(rb"^(?:(<<<<<<<|\|\|\|\|\|\|\||>>>>>>>)(?:[ \t][^\n]*)?|=======[ \t]*)\r?$", re.MULTILINE)
_SPACE = pattern(rb"(?:\s+(?!\s)|\\\r?\n|//(?:\\\r?\n|[^\n])*|/\*[\s\S]*?\*/)*")
_BOUNDARY = pattern(rb"[(),]")
_LONE_CR = pattern(rb"\r(?!\n)")
_SPACED_LAUNCH = pattern(rb"(?<!<)(?<!operator)<([ \t]*)<([ \t]*)<(?!<)([^;{}]*?)(?<!>)>([ \t]*)>([ \t]*)>(?=\s*\()")
"""A launch as Visual Studio formats it, `k << <grid, block >> > (n)`, which nvcc takes, or clang-format for C++,
`k < < <grid, block >>> (n)`, which it does not: nothing else can have been meant."""
_BLANKS = bytes(byte if byte in b"\r\n" else 0x20 for byte in range(256))
_WORD = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_$") | frozenset(range(0x80, 0x100))
_OPERATORS = frozenset(b"+-&|<>=!:/*#.%^")
_CLASSES = bytes((byte in _WORD) + 2 * (byte in _OPERATORS) for byte in range(256))
"""Neighbours that share a bit would make another token."""


def _joined(match: re.Match[bytes]) -> bytes:
    """A word that goes on below its line, with the line ends behind it: as long as it was."""
    if match["word"] is None:
        return match[0]
    splices = _LINE_SPLICE.finditer(match[0])
    return _LINE_SPLICE.sub(b"", match[0]) + b"".join(b"%b\\%b" % splice.groups() for splice in splices)


def _blank(text: bytes) -> bytes:
    """As many spaces, with the line ends kept."""
    return text.translate(_BLANKS)


def _plain(text: bytes) -> bytes:
    """A directive on one line, without comments."""
    text = _SPLICE.sub(b"", text)
    if b"/" in text:
        text = _COMMENT.sub(lambda match: match[1] or b" ", text)
    return text


# The first pass


class Scan:
    """What the directives of a file say.

    ``text`` has the length of ``raw``. ``events`` are (offset, name, Macro) for ``#define``, (offset,
    name, None) for ``#undef`` and (offset, None, table) for ``#include``, in order. ``skips`` are the
    comments and literals. ``table`` holds the macros at the end, ``exports`` those among them that the
    file does not begin with. ``arch``: ``__CUDA_ARCH__`` is mentioned in it or in what it includes.
    ``assumed`` are the macros that its conditionals test and that are taken as defined.
    """

    __slots__ = (
        "arch",
        "assumed",
        "base",
        "ends",
        "events",
        "exports",
        "file",
        "gaps",
        "includes",
        "starts",
        "table",
        "text",
    )

    def __init__(self, file: SourceFile, base: Table) -> None:
        self.file = file
        self.base = base
        self.table: Table = dict(base)
        self.exports: Table = {}
        self.assumed: list[bytes] = []
        self.text = b""
        self.events: list[tuple[int, bytes | None, Macro | Table | None]] = []
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.includes: list[str] = []
        self.gaps: list[Gap] = []
        self.arch = b"__CUDA_ARCH__" in file.raw


class _Visit:
    """Files being scanned, each because the one before includes it, and what may not outlive an include cycle."""

    __slots__ = ("borrowed", "stack")

    def __init__(self) -> None:
        self.stack: dict[str, int] = {}
        self.borrowed: dict[str, tuple[Scan, int]] = {}


def scan_file(file: SourceFile) -> Scan:
    """Scan a file and, where they are not yet, the files that it includes."""
    return _visit(file, _Visit())[0]


def _visit(file: SourceFile, visit: _Visit) -> tuple[Scan, int]:
    """The scan of a file, and the lowest place on the stack that it was cut short at.

    In an include cycle each file sees the others as its own includes would give them; what a file
    that is cut short shows is true for that entrance only, so it is not kept beyond it. Thus the
    result does not depend on which file was asked for first.
    """
    if file._scan is not None:
        return file._scan, MAX_INCLUDE_DEPTH
    if file.path in visit.borrowed:
        return visit.borrowed[file.path]
    place = visit.stack[file.path] = len(visit.stack)
    scanner = _Scanner(file, visit)
    scanner.run()
    del visit.stack[file.path]
    scan = scanner.scan
    if len(scan.table) > len(scan.base) or scan.events:
        scan.exports = {name: macro for name, macro in scan.table.items() if scan.base.get(name) is not macro}
    if scanner.lowest >= place:
        file._scan = scanner.scan
        visit.borrowed = {path: kept for path, kept in visit.borrowed.items() if kept[1] < place}
        return scanner.scan, MAX_INCLUDE_DEPTH
    visit.borrowed[file.path] = scanner.scan, scanner.lowest
    return scanner.scan, scanner.lowest


class _Scanner:
    def __init__(self, file: SourceFile, visit: _Visit) -> None:
        self.file, self.visit = file, visit
        self.scan = Scan(file, file.env.predefined(file.path, file.reading))
        self.lowest = MAX_INCLUDE_DEPTH
        self.conditions = Conditions(self._has_include)

    def run(self) -> None:
        scan = self.scan
        raw = self.file.raw
        if b"\r" in raw:
            raw = _LONE_CR.sub(b"\n", raw)
        if b"\\" in raw and _SPLICED_WORD.search(raw):
            raw = _ASIDE_OR_SPLICED.sub(_joined, raw)
        if b"<<<<<<<" in raw:
            raw = self._first_sides(raw)
        if b"cudalint:" in raw:
            raw = as_assertions(raw)
        if b"<< " in raw or b">> " in raw or b"< <" in raw:
            raw = _SPACED_LAUNCH.sub(rb"<<<\1\2\3\4\5>>>", raw)
        for path in self.file.env.forced(self.file.path):
            self._include(path, 0)
        search, find = _INTERESTING.search, raw.find
        starts, ends = scan.starts, scan.ends
        out: list[bytes] = []
        copied = 0  # raw[:copied] is in out
        skipping = -1  # where the branch not taken begins
        # Open conditionals: (is the surrounding text read, was a branch taken, is this one).
        stack: list[tuple[bool, bool, bool]] = []
        opened: list[tuple[int, int]] = []  # where they begin
        at = 0
        clean = True  # nothing but white space and comments on the line before ``at``
        while (match := search(raw, at)) is not None:
            start, end = match.span()
            first = raw[start]
            if first == 0x23:  # '#'
                before = raw[at:start]
                newline = before.rfind(b"\n")
                if not (newline >= 0 or clean) or before[newline + 1 :].strip():
                    at, clean = end, False
                    continue
                end = _directive_end(raw, start)
                text = _plain(raw[start:end])
                word = _DIRECTIVE.match(text)
                name = word[1] if word is not None else b""
                rest = text[word.end() :].rstrip() if word is not None else b""
                if name in _CONDITIONALS:
                    was = skipping >= 0
                    self._conditional(name, rest, (start, end), stack)
                    if name in _OPENING:
                        opened.append((start, end))
                    del opened[len(stack) :]
                    now = bool(stack) and not stack[-1][2]
                    if now and not was:
                        skipping = start
                    elif was and not now:
                        out += raw[copied:skipping], _blank(raw[skipping:end])
                        copied, skipping = end, -1
                    elif not now:
                        out += raw[copied:start], _blank(raw[start:end])
                        copied = end
                elif skipping < 0:
                    out += raw[copied:start], _blank(raw[start:end])
                    copied = end
                    self._directive(name, rest, start, end)
                at, clean = end, False
                continue
            if first == 0x2F:  # '/'
                if raw[start + 1] == 0x2A:
                    end = find(b"*/", start + 2) + 2
                    if end < 2:
                        if skipping < 0:
                            scan.gaps.append(Gap(start, len(raw), "the comment that begins here does not end"))
                        end = len(raw)
                    before = raw[at:start]
                    newline = before.rfind(b"\n")
                    clean = (newline >= 0 or clean) and not before[newline + 1 :].strip()
                else:
                    clean = False
            else:
                clean = False
                if first == 0x22:
                    if raw[start - 1 : start] == b"R" and _RAW_PREFIX.search(raw, max(start - 4, 0), start):
                        whole = _RAW_STRING.match(raw, start)
                        if whole is None:
                            if skipping < 0:
                                scan.gaps.append(Gap(start, len(raw), "the raw string that begins here does not end"))
                            end = len(raw)
                        else:
                            end = whole.end()
                    elif (end - start < 2 or raw[end - 1] != 0x22) and skipping < 0:
                        scan.gaps.append(Gap(start, end, "the string that begins here does not end on its line"))
                elif _is_separator(raw, start):
                    at = start + 1
                    continue
                elif (end - start < 2 or raw[end - 1] != 0x27) and skipping < 0:
                    scan.gaps.append(Gap(start, end, "the character that begins here does not end on its line"))
            if skipping < 0:
                starts.append(start)
                ends.append(end)
            at = end
        if skipping >= 0:
            out += raw[copied:skipping], _blank(raw[skipping:])
            copied = len(raw)
        if opened:
            scan.gaps.append(Gap(*opened[-1], "the conditional that begins here does not end"))
        if not copied:
            scan.text = raw
        else:
            out.append(raw[copied:])
            scan.text = b"".join(out)

    def _first_sides(self, raw: bytes) -> bytes:
        """Of a merge conflict take the first side."""
        out: list[bytes] = []
        copied = 0
        opened: re.Match[bytes] | None = None
        second = divided = 0
        for match in _CONFLICT.finditer(raw):
            start, end = match.span()
            mark = match[1]
            if mark == b"<<<<<<<":
                opened, second, divided = match, 0, 0
            elif opened is None:
                continue
            elif mark == b">>>>>>>":
                if divided:
                    first, body = opened.span()
                    out += raw[copied:first], _blank(raw[first:body]), raw[body:second], _blank(raw[second:end])
                    copied = end
                    self.scan.gaps.append(Gap(opened.start(), end, "a merge conflict; its first side was read"))
                opened = None
            else:
                second = second or start
                divided = divided or (mark is None and start)
        out.append(raw[copied:])
        return b"".join(out)

    def _conditional(
        self, name: bytes, rest: bytes, place: tuple[int, int], stack: list[tuple[bool, bool, bool]]
    ) -> None:
        if name in _OPENING:
            outside = not stack or stack[-1][2]
            taken = outside and self._holds(name, rest, *place)
            stack.append((outside, taken, taken))
        elif not stack:
            return  # no #if for it: as if it were not there
        elif name == b"endif":
            stack.pop()
        else:
            outside, before, _ = stack.pop()
            taken = outside and not before and (name == b"else" or self._holds(name, rest, *place))
            stack.append((outside, before or taken, taken))

    def _holds(self, name: bytes, rest: bytes, start: int, end: int) -> bool:
        scan = self.scan
        for tested in NAME_PATTERN.findall(rest):
            if tested not in scan.table and is_switch(tested):
                assumed = self.file.env.assumed(self.file.path).get(tested)
                if assumed is not None:
                    scan.table[tested] = assumed
                    scan.events.append((end, tested, assumed))
                    scan.assumed.append(tested)
        if name.endswith(b"def"):
            macro = NAME_PATTERN.match(rest)
            return (macro is not None and macro[0] in scan.table) == (b"ndef" not in name)
        try:
            return self.conditions.evaluate(rest, scan.table) != 0
        except ExhaustedError:
            scan.gaps.append(Gap(start, end, "the condition expands to too much and was taken as false"))
            return False

    def _has_include(self, name: str, angled: bool) -> bool:
        return self.file.env.resolve(self.file.path, name, angled) is not None

    def _directive(self, name: bytes, rest: bytes, start: int, end: int) -> None:
        scan = self.scan
        if name == b"define":
            macro = define(rest, self.file, start, end)
            if macro is not None:
                scan.table[macro.name] = macro
                scan.events.append((end, macro.name, macro))
        elif name == b"undef":
            found = NAME_PATTERN.match(rest)
            if found is not None and scan.table.pop(found[0], None) is not None:
                scan.events.append((end, found[0], None))
        elif name in (b"include", b"include_next", b"import"):
            target = self._target(rest)
            if target is not None:
                path = self.file.env.resolve(self.file.path, target[0], target[1])
                if path is not None:
                    self._include(path, end)

    def _target(self, rest: bytes) -> tuple[str, bool] | None:
        if rest[:1] not in (b'"', b"<"):
            rest = spell(Expander(self.scan.table).tokens(tokenize(rest))).strip()
        quote = rest[:1]
        close = rest.find(b'"' if quote == b'"' else b">", 1)
        if quote not in (b'"', b"<") or close < 0:
            return None
        return rest[1:close].decode(errors="replace").strip(), quote == b"<"

    def _include(self, path: str, at: int) -> None:
        scan, visit = self.scan, self.visit
        scan.includes.append(path)
        if path in visit.stack:
            self.lowest = min(self.lowest, visit.stack[path])
            return
        if len(visit.stack) >= MAX_INCLUDE_DEPTH:
            self.lowest = -1
            return
        file = self.file.env.file(path)
        if self.file.reading == "host":
            file = file.host_reading
        seen, lowest = _visit(file, visit)
        self.lowest = min(self.lowest, lowest)
        scan.arch = scan.arch or seen.arch
        if seen.exports:
            scan.table.update(seen.exports)
            scan.events.append((at, None, seen.exports))


_OPENING = frozenset((b"if", b"ifdef", b"ifndef"))
_CONDITIONALS = _OPENING | {b"elif", b"elifdef", b"elifndef", b"else", b"endif"}


def _directive_end(raw: bytes, start: int) -> int:
    """Where the line of a directive ends, with its continuations and the comments that it opens."""
    at = start
    while True:
        end = raw.find(b"\n", at)
        if end < 0:
            end = len(raw)
        line = raw[at:end]
        opens = -1
        if b"/*" in line:
            for match in _COMMENT.finditer(raw, at, end):
                if raw.startswith(b"/*", match.start()):
                    close = raw.find(b"*/", match.start() + 2)
                    if close < 0 or close >= end:
                        opens = len(raw) if close < 0 else close + 2
                        break
        if opens >= 0:
            at = opens
        elif line.rstrip(b"\r").endswith(b"\\") and end < len(raw):
            at = end + 1
        else:
            return end - 1 if line.endswith(b"\r") else end
        if at >= len(raw):
            return len(raw)


def _is_separator(raw: bytes, at: int) -> bool:
    """Whether the quote at ``at`` separates digits (``1'000``) and begins no character."""
    begin = at
    while begin > 0 and begin > at - 80 and (raw[begin - 1] in _WORD or raw[begin - 1] == 0x27):
        begin -= 1
    return begin < at and 0x30 <= raw[begin] <= 0x39


# The second pass


class Expansion:
    """The text and its origin map.

    The text is a row of pieces. Piece i begins at ``_at[i]``; if ``_same[i]`` its bytes are those of
    ``raw`` from ``_start[i]`` on, else macro uses made it from [``_start[i]``, ``_end[i]``).
    ``_use[i]`` is its place in ``uses``, -1 outside of them. No pieces: the text is the file's.
    """

    __slots__ = ("_at", "_end", "_length", "_same", "_start", "_use", "gaps", "inner", "raw", "text", "uses")

    def __init__(self, scan: Scan) -> None:
        self.raw = scan.text
        self.text = scan.text
        self.gaps: list[Gap] = []
        self.uses: list[tuple[bytes, int, int, Macro]] = []
        self.inner: dict[tuple[int, int], Macro] = {}
        """All uses in the file, those in arguments of others among them."""
        self._length = 0
        self._at: list[int] = []
        self._start: list[int] = []
        self._end: list[int] = []
        self._same: list[bool] = []
        self._use: list[int] = []

    def add(self, length: int, start: int, end: int, same: bool, use: int) -> None:
        """Append a piece of the text, joined with the one before where they are one."""
        if self._at and self._use[-1] == use and self._same[-1] == same:
            before = self._start[-1]
            if (self._length - self._at[-1] + before == start) if same else (before == start and self._end[-1] == end):
                self._end[-1] = end
                self._length += length
                return
        self._at.append(self._length)
        self._start.append(start)
        self._end.append(end)
        self._same.append(same)
        self._use.append(use)
        self._length += length

    def origin(self, start: int, end: int) -> tuple[int, int]:
        if not self._at:
            return start, end
        first = max(bisect_right(self._at, start) - 1, 0)
        last = max(bisect_left(self._at, end) - 1, first)
        low = self._start[first] + (start - self._at[first] if self._same[first] else 0)
        high = self._start[last] + end - self._at[last] if self._same[last] else self._end[last]
        use = self._use[first]
        if first == last:
            return low, max(low, high)
        if use < 0 or use != self._use[last]:
            if use >= 0:
                low = self.uses[use][1]
            if self._use[last] >= 0:
                high = self.uses[self._use[last]][2]
            return low, max(low, high)
        # Within one use: where the pieces come from, if that is one stretch of the file, else all of the use.
        stretches = [(self._start[i], self._end[i]) for i in range(first, last + 1)]
        stretches[0] = low, stretches[0][1]
        stretches[-1] = stretches[-1][0], high
        stretches.sort()
        low, reach = stretches[0]
        for begin, stop in stretches:
            if begin > reach and not _SPACE.fullmatch(self.raw, reach, begin):
                return self.uses[use][1], self.uses[use][2]
            reach = max(reach, stop)
        return low, reach

    def edge(self, offset: int) -> int | None:
        """Where ``offset`` of the text is in ``raw``; None within what a macro use made."""
        if not self._at:
            return offset
        piece = max(bisect_right(self._at, offset) - 1, 0)
        use = self._use[piece]
        if use < 0:
            return self._start[piece] + offset - self._at[piece]
        if offset >= self._length:
            return self.uses[use][2]
        begins = offset == self._at[piece] and (piece == 0 or self._use[piece - 1] != use)
        return self.uses[use][1] if begins else None

    def use(self, offset: int) -> tuple[bytes, int, int, Macro] | None:
        if not self._at:
            return None
        piece = max(bisect_right(self._at, offset) - 1, 0)
        use = self._use[piece]
        if use < 0 or offset >= self._length:
            return None
        made = self._start[piece], self._end[piece]
        macro = self.inner.get(made) if not self._same[piece] else None
        return self.uses[use] if macro is None else (macro.name, *made, macro)


def expand(scan: Scan) -> Expansion:
    """Expand the macro uses of a scanned file."""
    expansion = Expansion(scan)
    hits = _hits(scan)
    if hits:
        _Second(scan, expansion, hits).run()
    return expansion


def _hits(scan: Scan) -> list[tuple[int, bytes]]:
    """Where the text, comments and literals aside, holds a name that is a macro somewhere in the file; sorted."""
    text = scan.text
    names = set(scan.base)
    for _, name, what in scan.events:
        if name is not None:
            names.add(name)
        elif isinstance(what, dict):
            names.update(what)
    if len(names) > 100:
        names &= set(NAME_PATTERN.findall(text))
    found: list[tuple[int, bytes]] = []
    size = len(text)
    for name in names:
        length = len(name)
        at = text.find(name)
        while at >= 0:
            end = at + length
            if (not at or text[at - 1] not in _WORD) and (end == size or text[end] not in _WORD):
                found.append((at, name))
            at = text.find(name, end)
    found.sort()
    starts, ends = scan.starts, scan.ends
    if not starts:
        return found
    kept = []
    for hit in found:
        before = bisect_right(starts, hit[0]) - 1
        if before < 0 or ends[before] <= hit[0]:
            kept.append(hit)
    return kept


class _Second:
    """One walk over the macro names of a file."""

    def __init__(self, scan: Scan, expansion: Expansion, hits: list[tuple[int, bytes]]) -> None:
        self.scan, self.text, self.expansion, self.hits = scan, scan.text, expansion, hits
        self.places = [at for at, _ in hits]
        self.out: list[bytes] = []
        self.cursor = 0
        self.written = 0
        self.last = 0x0A  # the last byte written
        self.closing: dict[int, int] | None = None  # the parenthesis that closes each one, when computed

    def run(self) -> None:
        scan, expansion, text = self.scan, self.expansion, self.text
        events = scan.events
        table: Table = dict(scan.base)
        expander = Expander(table, lambda offset: scan.file.position(offset)[0])
        expansion.inner = expander.uses
        next_event = 0
        size = len(text)
        budget = 8 * size + (1 << 20)
        total = 4 * MAX_STEPS
        for at, name in self.hits:
            if at < self.cursor:
                continue
            while next_event < len(events) and events[next_event][0] <= at:
                _, changed, what = events[next_event]
                next_event += 1
                if changed is None:
                    if isinstance(what, dict):
                        table.update(what)
                elif isinstance(what, Macro):
                    table[changed] = what
                else:
                    table.pop(changed, None)
            macro = table.get(name)
            if macro is None:
                continue
            self.end = at + len(name)
            if macro.params is not None and not self._called(self.end):
                continue
            tokens = self._expanded(expander, name, at, min(MAX_STEPS, total), budget)
            if tokens is None:
                total -= expander.steps
                # Of a dispatch over several types in one another, one arm of each.
                expander.once = b"{" in text[at : self.end]
                if expander.once and total > 0:
                    self.end = at + len(name)
                    tokens = self._expanded(expander, name, at, min(MAX_STEPS, total), budget)
                    expander.once = False
            if tokens is None:
                expansion.gaps.append(Gap(at, self.end, f"'{name.decode()}' expands to too much and was left as it is"))
                if total <= 0:
                    break
                continue
            total -= expander.steps // 16
            if len(tokens) == 1 and tokens[0].same and tokens[0].start == at and tokens[0].text == name:
                continue
            self._copy(at)
            self._emit(tokens, name, at, macro)
            self.cursor = self.end
        if self.out:
            self._copy(size)
            expansion.text = b"".join(self.out)

    def _expanded(self, expander: Expander, name: bytes, at: int, limit: int, budget: int) -> list[Token] | None:
        """What the use of a macro stands for; None where that is too much."""
        expander.steps, expander.limit = 0, limit
        try:
            tokens = expander.tokens([Token(NAME, name, False, at, self.end, True, NO_NAMES)], 0, self._pull)
        except ExhaustedError:
            return None
        length = sum(len(token.text) + 1 for token in tokens)
        return tokens if self.written + length <= budget else None

    def _called(self, at: int) -> bool:
        space = _SPACE.match(self.text, at)
        return space is not None and self.text[space.end() : space.end() + 1] == b"("

    def _copy(self, end: int) -> None:
        """Copy the file up to ``end``."""
        start = self.cursor
        if end <= start:
            return
        if self.out and _CLASSES[self.last] & _CLASSES[self.text[start]]:
            # ``-N`` with N = -1 is no decrement.
            self.out.append(b" ")
            self.expansion.add(1, start, start, False, -1)
        self.out.append(self.text[start:end])
        self.expansion.add(end - start, start, end, True, -1)
        self.written += end - start
        self.last = self.text[end - 1]

    def _emit(self, tokens: list[Token], name: bytes, start: int, macro: Macro) -> None:
        out, text, stop, last = self.out, self.text, self.end, self.last
        use = len(self.expansion.uses)
        self.expansion.uses.append((name, start, stop, macro))
        add = self.expansion.add
        # The piece that is being written: where it comes from, and its length so far.
        origin = (start, stop, False)
        length = 0
        for token in tokens:
            same = token.same and token.end <= stop
            if same or (token.start >= 0 and token.start != start):
                here = (token.start, token.end, same)
            else:
                here = (start, stop, False)
            apart_by = here[0] - origin[1]
            if same and origin[2] and 0 < apart_by < 4000 and _SPACE.fullmatch(text, origin[1], here[0]):
                # From one argument: with the white space between them as it is there, blanks for comments.
                out += text[origin[1] : here[0]].translate(_BLANKS), token.text
                origin = (origin[0], here[1], True)
                length += apart_by + len(token.text)
                last = token.text[-1]
                continue
            apart = token.space or _CLASSES[last] & _CLASSES[token.text[0]]
            if same or here != origin:
                if length:
                    add(length, *origin, use)
                    self.written += length
                if apart:
                    out.append(b" ")
                    add(1, here[0], here[0] if same else here[1], False, use)
                origin, length = here, 0
            elif apart:
                out.append(b" ")
                length += 1
            out.append(token.text)
            length += len(token.text)
            last = token.text[-1]
        if not tokens:
            # Nothing: what stood around the use stays apart.
            out.append(b" ")
            length, last = 1, 0x20
        add(length, *origin, use)
        self.written += length
        self.last = last

    def _pull(self) -> list[Token] | None:
        """The arguments that follow in the file, in parentheses; the cursor moves behind them."""
        text = self.text
        space = _SPACE.match(text, self.end)
        at = space.end() if space is not None else self.end
        if text[at : at + 1] != b"(":
            return None
        cuts = self._cuts(at)
        if cuts is None:
            return None
        tokens = [Token(PUNCTUATOR, b"(", at > self.end, at, at + 1, True, NO_NAMES)]
        begin = at + 1
        for cut in cuts:
            tokens += self._segment(begin, cut)
            tokens.append(Token(PUNCTUATOR, text[cut : cut + 1], False, cut, cut + 1, True, NO_NAMES))
            begin = cut + 1
        self.end = begin
        return tokens

    def _segment(self, start: int, end: int) -> list[Token]:
        """An argument: one chunk if no macro's name is in it."""
        text = self.text[start:end]
        if b"/" in text:
            text = self._uncommented(start, end)
        hit = bisect_left(self.places, start)
        if (hit < len(self.places) and self.places[hit] < end) or b"__LINE__" in text or b"__COUNTER__" in text:
            return tokenize(text, start)
        inner = text.strip()
        if not inner:
            return []
        before = len(text) - len(text.lstrip())
        return [Token(CHUNK, inner, before > 0, start + before, start + before + len(inner), True, NO_NAMES)]

    def _uncommented(self, start: int, end: int) -> bytes:
        """The text with comments blanked: what follows a macro's argument may come to stand on their line."""
        text, starts, ends = self.text, self.scan.starts, self.scan.ends
        out: list[bytes] = []
        copied = start
        for i in range(bisect_left(starts, start), bisect_left(starts, end)):
            if text[starts[i]] == 0x2F:
                out += text[copied : starts[i]], _blank(text[starts[i] : ends[i]])
                copied = ends[i]
        out.append(text[copied:end])
        return b"".join(out)

    def _cuts(self, start: int) -> list[int] | None:
        """The commas between the arguments, and the closing parenthesis; None if there is none."""
        if self.closing is not None:
            end = self.closing.get(start)
            if end is None:
                return None
        else:
            end = len(self.text)
        starts, ends = self.scan.starts, self.scan.ends
        depth = 0
        cuts = []
        skip = bisect_right(starts, start)
        for match in _BOUNDARY.finditer(self.text, start):
            at = match.start()
            while skip < len(starts) and ends[skip] <= at:
                skip += 1
            if skip < len(starts) and starts[skip] <= at:
                continue
            byte = self.text[at]
            if byte == 0x28:
                depth += 1
            elif byte == 0x29:
                depth -= 1
                if not depth:
                    cuts.append(at)
                    return cuts
            elif depth == 1:
                cuts.append(at)
        if self.closing is None:
            # It does not end; so that a thousand like it do not take a thousand walks to the end of the file:
            self.closing = self._match_all()
        return None

    def _match_all(self) -> dict[int, int]:
        starts, ends = self.scan.starts, self.scan.ends
        skip = 0
        opened: list[int] = []
        closing: dict[int, int] = {}
        for match in re.finditer(rb"[()]", self.text):
            at = match.start()
            while skip < len(starts) and ends[skip] <= at:
                skip += 1
            if skip < len(starts) and starts[skip] <= at:
                continue
            if self.text[at] == 0x28:
                opened.append(at)
            elif opened:
                closing[opened.pop()] = at
        return closing
