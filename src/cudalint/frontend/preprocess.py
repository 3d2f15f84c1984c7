"""Preprocessing: ``#if``, ``#include`` and macros, with the way back to the file for every byte of the result.

Two passes. :func:`scan_file` follows the directives: it blanks them and the branches not taken, byte
for byte, and notes where macros come and go. :func:`expand` then replaces the macro uses in what is
left. Neither looks at a token that is not near a directive, a comment, a literal or a macro's name.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudalint.frontend.source import Reading, SourceFile

MAX_INCLUDE_DEPTH = 60
MAX_DEPTH = 40
"""Arguments within arguments that are still expanded."""
MAX_STEPS = 200_000
"""Tokens that one use may take; a file may take four times as many."""


class Gap(NamedTuple):
    """A range of ``raw`` that could not be made sense of."""

    start: int
    end: int
    why: str


class Token(NamedTuple):
    """``space``: white space before it. [start, end) of ``raw`` is where it comes from: its own bytes if
    ``same``, else the macro use that made it. ``hidden`` names are not expanded in it any more."""

    kind: int
    text: bytes
    space: bool
    start: int
    end: int
    same: bool
    hidden: frozenset[bytes]


LITERAL, NAME, NUMBER, PUNCTUATOR, CHUNK, NOTHING = range(6)
"""CHUNK is an argument without a macro's name in it, kept whole; NOTHING is what ``##`` makes of two empty sides."""

_NONE: frozenset[bytes] = frozenset()


class Macro:
    """A macro. ``params`` is None for an object-like one; the last one takes all the rest if ``variadic``.

    ``start``/``end`` span the directive in ``file.raw``. ``file`` is None and ``predefined`` true for
    what the compiler defines; ``file`` is None also for what the configuration defines.
    """

    __slots__ = ("_tokens", "body", "end", "file", "name", "params", "predefined", "start", "variadic")

    def __init__(
        self, name: bytes, params: tuple[bytes, ...] | None, body: bytes, *, variadic: bool = False,
        file: SourceFile | None = None, start: int = 0, end: int = 0, predefined: bool = False,
    ) -> None:  # fmt: skip
        self.name, self.params, self.body, self.variadic = name, params, body, variadic
        self.file, self.start, self.end, self.predefined = file, start, end, predefined
        self._tokens: list[Token] | None = None

    def __repr__(self) -> str:
        params = "" if self.params is None else "(" + ", ".join(p.decode() for p in self.params) + ")"
        return f"Macro({self.name.decode()}{params} {self.body.decode()})"

    @property
    def tokens(self) -> list[Token]:
        if self._tokens is None:
            self._tokens = tokenize(self.body)
        return self._tokens


Table = dict[bytes, Macro]


class Environment:
    """What preprocessing asks of the project. This one knows no other file."""

    def predefined(self, path: str, reading: Reading) -> Table:
        """The macros that ``path`` starts with."""
        del path
        return predefined(reading)

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


def predefined(reading: Reading, defines: tuple[tuple[str, str], ...] = ()) -> Table:
    """What the compiler defines in a reading, and the configuration's ``defines`` on top."""
    table = dict(_PREDEFINED)
    if reading == "device":
        table[b"__CUDA_ARCH__"] = Macro(b"__CUDA_ARCH__", None, b"900", predefined=True)
    for name, text in defines:
        define = _define(f"{name} {text}".encode())
        if define is not None:
            table[define.name] = define
    return table


_PREDEFINED: Table = {
    macro.name: macro
    for macro in (
        Macro(b"__CUDACC__", None, b"1", predefined=True),
        Macro(b"__NVCC__", None, b"1", predefined=True),
        Macro(b"__cplusplus", None, b"201703L", predefined=True),
        Macro(b"_Pragma", (b"text",), b"", predefined=True),
    )
}


# Lexing

_INTERESTING = re.compile(
    rb"""/(?:/[^\n\\]*(?:\\(?:\r?\n)?[^\n\\]*)*|\*)"""
    rb"""|"[^"\\\n]*(?:\\(?:\r\n|[\s\S])[^"\\\n]*)*"?"""
    rb"""|'[^'\\\n]*(?:\\(?:\r\n|[\s\S])[^'\\\n]*)*'?"""
    rb"""|\#"""
)
"""Comments, literals and what may be a directive. Every alternative begins with a character: sre skips to the next."""
_RAW_STRING = re.compile(rb'"([^()\\\s"]{0,16})\([\s\S]*?\)\1"')
_RAW_PREFIX = re.compile(rb"(?:^|[^\w$])(?:u8|[uUL])?R$")
_TOKEN = re.compile(
    rb"""((?:\s+|\\\r?\n|//(?:\\\r?\n|[^\n])*|/\*[\s\S]*?(?:\*/|\Z))+)
    |((?:u8|[uUL])?R"([^()\\\s"]{0,16})\([\s\S]*?\)\3"
      |(?:u8|[uUL])?"(?:[^"\\\n]|\\[\s\S])*"
      |(?:u8|[uUL])?'(?:[^'\\\n]|\\[\s\S])*')
    |([A-Za-z_$\x80-\xff][\w$\x80-\xff]*)
    |(\.?\d(?:[eEpP][+-]|'[0-9a-zA-Z]|[\w.])*)
    |(<<<|>>>|<<=|>>=|->\*|\.\.\.|::|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|\#\#|[\s\S])""",
    re.VERBOSE,
)
_KINDS = {2: LITERAL, 4: NAME, 5: NUMBER, 6: PUNCTUATOR}
_NAME = re.compile(rb"[A-Za-z_$\x80-\xff][\w$\x80-\xff]*")
_DIRECTIVE = re.compile(rb"\#\s*([a-z_]+)\s*")
_COMMENT = re.compile(
    rb"""("(?:[^"\\\n]|\\[\s\S])*"|(?<![0-9a-fA-F])'(?:[^'\\\n]|\\[\s\S])*')|//[^\n]*|/\*[\s\S]*?(?:\*/|\Z)"""
)
_SPLICE = re.compile(rb"\\\r?\n")
_CONFLICT = re.compile(rb"^(?:(<<<<<<<|\|\|\|\|\|\|\||>>>>>>>)(?:[ \t][^\n]*)?|=======[ \t]*)\r?$", re.MULTILINE)
_SPACE = re.compile(rb"(?:\s+|\\\r?\n|//(?:\\\r?\n|[^\n])*|/\*[\s\S]*?\*/)*")
_BOUNDARY = re.compile(rb"[(),]")
_LONE_CR = re.compile(rb"\r(?!\n)")
_BLANKS = bytes(byte if byte in b"\r\n" else 0x20 for byte in range(256))
_WORD = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_$") | frozenset(range(0x80, 0x100))
_GLUE = frozenset(b"+-&|<>=!:/*#.%^")


def _blank(text: bytes) -> bytes:
    """As many spaces, with the line ends kept."""
    return text.translate(_BLANKS)


def tokenize(text: bytes, at: int = -1) -> list[Token]:
    """The tokens of ``text``, which lies at ``at`` of ``raw`` (-1: in a macro's body)."""
    tokens = []
    space = False
    for match in _TOKEN.finditer(text):
        group = match.lastindex or 0
        if group == 1:
            space = True
            continue
        kind = _KINDS.get(group, LITERAL)
        if at >= 0:
            tokens.append(Token(kind, match[0], space, at + match.start(), at + match.end(), True, _NONE))
        else:
            tokens.append(Token(kind, match[0], space, -1, -1, False, _NONE))
        space = False
    return tokens


def _plain(text: bytes) -> bytes:
    """A directive on one line, without comments."""
    text = _SPLICE.sub(b"", text)
    if b"/" in text:
        text = _COMMENT.sub(lambda match: match[1] or b" ", text)
    return text


def _define(text: bytes, file: SourceFile | None = None, start: int = 0, end: int = 0) -> Macro | None:
    """The macro of ``NAME(params) body``; None where that is malformed."""
    name = _NAME.match(text)
    if name is None:
        return None
    at = name.end()
    if text[at : at + 1] != b"(":
        return Macro(name[0], None, text[at:].strip(), file=file, start=start, end=end)
    close = text.find(b")", at)
    if close < 0:
        return None
    inside = text[at + 1 : close].strip()
    params = [param.strip() for param in inside.split(b",")] if inside else []
    variadic = False
    if params and params[-1].endswith(b"..."):
        variadic = True
        params[-1] = params[-1][:-3].strip() or b"__VA_ARGS__"
    if not all(_NAME.fullmatch(param) for param in params):
        return None
    body = text[close + 1 :].strip()
    return Macro(name[0], tuple(params), body, variadic=variadic, file=file, start=start, end=end)


# The first pass


class Scan:
    """What the directives of a file say.

    ``text`` has the length of ``raw``. ``events`` are (offset, name, Macro) for ``#define``, (offset,
    name, None) for ``#undef`` and (offset, None, table) for ``#include``, in order. ``skips`` are the
    comments and literals. ``table`` holds the macros at the end, ``exports`` those among them that the
    file does not begin with. ``arch``: ``__CUDA_ARCH__`` is
    mentioned in the file or in one that it includes.
    """

    __slots__ = ("arch", "base", "ends", "events", "exports", "file", "gaps", "includes", "starts", "table", "text")

    def __init__(self, file: SourceFile, base: Table) -> None:
        self.file = file
        self.base = base
        self.table: Table = dict(base)
        self.exports: Table = {}
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

    def run(self) -> None:
        scan = self.scan
        raw = self.file.raw
        if b"\r" in raw:
            raw = _LONE_CR.sub(b"\n", raw)
        if b"<<<<<<<" in raw:
            raw = self._first_sides(raw)
        for path in self.file.env.forced(self.file.path):
            self._include(path, 0)
        search, find = _INTERESTING.search, raw.find
        starts, ends = scan.starts, scan.ends
        out: list[bytes] = []
        copied = 0  # raw[:copied] is in out
        skipping = -1  # where the branch not taken begins
        # Open conditionals: (is the surrounding text read, was a branch taken, is this one).
        stack: list[tuple[bool, bool, bool]] = []
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
                    self._conditional(name, rest, stack)
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

    def _conditional(self, name: bytes, rest: bytes, stack: list[tuple[bool, bool, bool]]) -> None:
        if name in _OPENING:
            outside = not stack or stack[-1][2]
            taken = outside and self._holds(name, rest)
            stack.append((outside, taken, taken))
        elif not stack:
            return  # no #if for it: as if it were not there
        elif name == b"endif":
            stack.pop()
        else:
            outside, before, _ = stack.pop()
            taken = outside and not before and (name == b"else" or self._holds(name, rest))
            stack.append((outside, before or taken, taken))

    def _holds(self, name: bytes, rest: bytes) -> bool:
        if name.endswith(b"def"):
            macro = _NAME.match(rest)
            return (macro is not None and macro[0] in self.scan.table) == (b"ndef" not in name)
        return evaluate(rest, self.scan.table, self._has_include) != 0

    def _has_include(self, name: str, angled: bool) -> bool:
        return self.file.env.resolve(self.file.path, name, angled) is not None

    def _directive(self, name: bytes, rest: bytes, start: int, end: int) -> None:
        scan = self.scan
        if name == b"define":
            macro = _define(rest, self.file, start, end)
            if macro is not None:
                scan.table[macro.name] = macro
                scan.events.append((end, macro.name, macro))
        elif name == b"undef":
            found = _NAME.match(rest)
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
            tokens = Expander(self.scan.table).tokens(tokenize(rest))
            rest = b"".join((b" " if token.space else b"") + token.text for token in tokens).strip()
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

    __slots__ = ("_at", "_end", "_length", "_same", "_start", "_use", "gaps", "raw", "text", "uses")

    def __init__(self, scan: Scan) -> None:
        self.raw = scan.text
        self.text = scan.text
        self.gaps: list[Gap] = []
        self.uses: list[tuple[bytes, int, int, Macro]] = []
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

    def use(self, offset: int) -> tuple[bytes, int, int, Macro] | None:
        if not self._at:
            return None
        use = self._use[max(bisect_right(self._at, offset) - 1, 0)]
        return self.uses[use] if use >= 0 and offset < self._length else None


class _ExhaustedError(Exception):
    """A macro use takes more than it may."""


class Expander:
    """Expands tokens by the macros of a table, as C does (each token with its own set of names not to expand)."""

    def __init__(self, table: Table, line: Callable[[int], int] | None = None) -> None:
        self.table = table
        self.steps = 0
        self.limit = MAX_STEPS
        self.count = 0
        self.line = line

    def tokens(self, tokens: list[Token], depth: int = 0, pull: Callable[[], list[Token] | None] | None = None) -> list[Token]:
        """Expand ``tokens``; ``pull`` gives the parenthesised arguments that follow them in the file, if any."""
        table = self.table
        out: list[Token] = []
        stack = tokens[::-1]
        while stack:
            token = stack.pop()
            self.steps += 1
            if token.kind != NAME:
                out.append(token)
                continue
            macro = table.get(token.text)
            if macro is None:
                out.append(self._dynamic(token) if token.text in _DYNAMIC else token)
                continue
            if token.text in token.hidden:
                out.append(token)
                continue
            if macro.params is None:
                result = self._substitute(macro, [], token, token.hidden | {macro.name}, depth)
            else:
                if not stack and pull is not None:
                    more = pull()
                    if more is not None:
                        stack = more[::-1]
                if not stack or stack[-1].text != b"(":
                    out.append(token)
                    continue
                found = self._arguments(stack, macro)
                if found is None:
                    out.append(token)
                    continue
                arguments, close, closing = found
                del stack[close:]
                if token.same and closing.same and closing.end > token.start:
                    token = token._replace(end=closing.end)
                hidden = (token.hidden & closing.hidden) | {macro.name}
                result = self._substitute(macro, arguments, token, hidden, depth)
            self.steps += len(result)
            if self.steps > self.limit:
                raise _ExhaustedError
            if result:
                result[0] = result[0]._replace(space=token.space)
                stack += reversed(result)
            elif token.space and stack and not stack[-1].space:
                stack[-1] = stack[-1]._replace(space=True)
        return out

    def _dynamic(self, token: Token) -> Token:
        if token.text == b"__COUNTER__":
            self.count += 1
            text = b"%d" % (self.count - 1)
        else:
            text = b"%d" % (self.line(token.start) if self.line is not None and token.start >= 0 else 0)
        return token._replace(kind=NUMBER, text=text, same=False)

    def _arguments(self, stack: list[Token], macro: Macro) -> tuple[list[list[Token]], int, Token] | None:
        """Split what follows (a stack: the next token is the last) at its commas; None where it does not end."""
        params = macro.params or ()
        arguments: list[list[Token]] = [[]]
        depth = 0
        for at in range(len(stack) - 1, -1, -1):
            token = stack[at]
            if token.kind == PUNCTUATOR:
                text = token.text
                if text == b"(":
                    depth += 1
                    if depth == 1:
                        continue
                elif text == b")":
                    depth -= 1
                    if depth == 0:
                        self.steps += len(stack) - at
                        if macro.variadic and len(arguments) < len(params):
                            arguments.append([])
                        if len(arguments) == len(params) or (not params and arguments == [[]]):
                            return arguments, at, token
                        return None
                elif text == b"," and depth == 1 and not (macro.variadic and len(arguments) == len(params)):
                    arguments.append([])
                    continue
            arguments[-1].append(token)
        self.steps += len(stack)
        return None

    def _substitute(
        self, macro: Macro, arguments: list[list[Token]], use: Token, hidden: frozenset[bytes], depth: int
    ) -> list[Token]:
        body = macro.tokens
        if self.steps + len(body) > self.limit:
            raise _ExhaustedError
        out = self._replace(macro, body, arguments, use, hidden, depth, {})
        return [token for token in out if token.kind != NOTHING]

    def _replace(
        self, macro: Macro, body: list[Token], arguments: list[list[Token]], use: Token, hidden: frozenset[bytes],
        depth: int, expanded: dict[int, list[Token]],
    ) -> list[Token]:  # fmt: skip
        params = macro.params or ()
        start, end = use.start, use.end
        out: list[Token] = []
        pasting = False
        i, n = 0, len(body)
        while i < n:
            token = body[i]
            i += 1
            text = token.text
            paste_next = i < n and body[i].text == b"##" and body[i].kind == PUNCTUATOR
            piece: list[Token]
            if token.kind == PUNCTUATOR and text == b"##" and out:
                pasting = True
                continue
            if token.kind == PUNCTUATOR and text == b"#" and i < n and body[i].text in params:
                value = _stringize(arguments[params.index(body[i].text)])
                piece = [Token(LITERAL, value, token.space, start, end, False, hidden)]
                i += 1
            elif token.kind == NAME and text in params:
                which = params.index(text)
                paste_next = i < n and body[i].text == b"##" and body[i].kind == PUNCTUATOR
                if pasting or paste_next:
                    if pasting and macro.variadic and which == len(params) - 1 and out[-1].text == b",":
                        # GNU: ", ## __VA_ARGS__" drops the comma where there is nothing to follow it.
                        pasting = False
                        if not arguments[which]:
                            out.pop()
                        piece = self._argument(arguments, which, depth, expanded)
                    else:
                        piece = _unchunked(arguments[which])
                    piece = piece or [Token(NOTHING, b"", token.space, start, end, False, hidden)]
                else:
                    piece = self._argument(arguments, which, depth, expanded)
                if piece:
                    piece = [
                        part if part.kind == CHUNK else part._replace(hidden=part.hidden | hidden) for part in piece
                    ]
                    piece[0] = piece[0]._replace(space=token.space)
            elif text == b"__VA_OPT__" and macro.variadic and i < n and body[i].text == b"(":
                close = _closing(body, i)
                piece = []
                if self._argument(arguments, len(params) - 1, depth, expanded):
                    piece = self._replace(macro, body[i + 1 : close], arguments, use, hidden, depth, expanded)
                    if piece:
                        piece[0] = piece[0]._replace(space=token.space)
                i = close + 1
                if not piece and (pasting or (i < n and body[i].text == b"##")):
                    piece = [Token(NOTHING, b"", token.space, start, end, False, hidden)]
            else:
                piece = [Token(token.kind, text, token.space, start, end, False, hidden)]
            if pasting and out and piece:
                out[-1:] = _paste(out[-1], piece[0], start, end, hidden)
                out += piece[1:]
                pasting = False
            else:
                out += piece
            self.steps += len(piece)
            if self.steps > self.limit:
                raise _ExhaustedError
        return out

    def _argument(
        self, arguments: list[list[Token]], which: int, depth: int, expanded: dict[int, list[Token]]
    ) -> list[Token]:
        """An argument, expanded on its own."""
        found = expanded.get(which)
        if found is None:
            found = arguments[which]
            if any(token.kind == NAME for token in found) and depth < MAX_DEPTH:
                found = self.tokens(found, depth + 1)
            expanded[which] = found
        return found


_DYNAMIC = frozenset((b"__LINE__", b"__COUNTER__"))


def _closing(body: list[Token], at: int) -> int:
    depth = 0
    for i in range(at, len(body)):
        if body[i].kind == PUNCTUATOR:
            if body[i].text == b"(":
                depth += 1
            elif body[i].text == b")":
                depth -= 1
                if depth == 0:
                    return i
    return len(body)


def _stringize(argument: list[Token]) -> bytes:
    parts: list[bytes] = []
    for token in _unchunked(argument):
        if token.space and parts:
            parts.append(b" ")
        if token.kind == LITERAL:
            parts.append(token.text.replace(b"\\", b"\\\\").replace(b'"', b'\\"'))
        else:
            parts.append(token.text)
    return b'"' + b"".join(parts) + b'"'


def _unchunked(argument: list[Token]) -> list[Token]:
    tokens: list[Token] = []
    for part in argument:
        if part.kind == CHUNK:
            inner = tokenize(part.text, part.start)
            inner[0] = inner[0]._replace(space=part.space)
            tokens += inner
        else:
            tokens.append(part)
    return tokens


def _paste(left: Token, right: Token, start: int, end: int, hidden: frozenset[bytes]) -> list[Token]:
    if right.kind == NOTHING:
        return [left]
    if left.kind == NOTHING:
        return [right._replace(space=left.space)]
    made = tokenize(left.text + right.text)
    hidden = (left.hidden & right.hidden) | hidden
    if not made or (len(made) > 1 and left.kind == PUNCTUATOR):
        return [left, right._replace(space=False)]
    return [
        Token(token.kind, token.text, token.space if i else left.space, start, end, False, hidden)
        for i, token in enumerate(made)
    ]


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
        names &= set(_NAME.findall(text))
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
        self.last = -1  # the last byte written, -1 for none
        self.closing: dict[int, int] | None = None  # the parenthesis that closes each one, when computed

    def run(self) -> None:
        scan, expansion, text = self.scan, self.expansion, self.text
        events = scan.events
        table: Table = dict(scan.base)
        expander = Expander(table, lambda offset: scan.file.position(offset)[0])
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
            expander.steps, expander.limit = 0, min(MAX_STEPS, total)
            token = Token(NAME, name, False, at, self.end, True, _NONE)
            try:
                tokens = expander.tokens([token], 0, self._pull)
                length = sum(len(token.text) + 1 for token in tokens)
                if self.written + length > budget:
                    raise _ExhaustedError
            except _ExhaustedError:
                total -= expander.steps
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

    def _called(self, at: int) -> bool:
        space = _SPACE.match(self.text, at)
        return space is not None and self.text[space.end() : space.end() + 1] == b"("

    def _copy(self, end: int) -> None:
        """Copy the file up to ``end``."""
        start = self.cursor
        if end <= start:
            return
        if self.out and _glues(self.last, self.text[start]):
            # ``-N`` with N = -1 is no decrement.
            self.out.append(b" ")
            self.expansion.add(1, start, start, False, -1)
        self.out.append(self.text[start:end])
        self.expansion.add(end - start, start, end, True, -1)
        self.written += end - start
        self.last = self.text[end - 1]

    def _emit(self, tokens: list[Token], name: bytes, start: int, macro: Macro) -> None:
        out, expansion, text = self.out, self.expansion, self.text
        use = len(expansion.uses)
        expansion.uses.append((name, start, self.end, macro))
        add = expansion.add
        before = -1  # the end in the file of the token before, if it was copied
        for token in tokens:
            if token.same and token.end <= self.end:
                low, high, same = token.start, token.end, True
            elif token.start == start or token.start < 0:
                low, high, same = start, self.end, False
            else:
                low, high, same = token.start, token.end, False
            gap = text[before:low] if same and before >= 0 and before < low <= before + 400 else b""
            if gap and gap.isspace():
                out.append(gap)
                add(len(gap), before, low, True, use)
            elif token.space or _glues(self.last, token.text[0]):
                out.append(b" ")
                add(1, start, self.end, False, use) if not same else add(1, low, low, False, use)
                self.written += 1
            out.append(token.text)
            add(len(token.text), low, high, same, use)
            self.written += len(token.text)
            self.last = token.text[-1]
            before = high if same else -1
        if not tokens:
            # Nothing: what stood around the use stays apart.
            out.append(b" ")
            add(1, start, self.end, False, use)
            self.last = 0x20

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
        tokens = [Token(PUNCTUATOR, b"(", at > self.end, at, at + 1, True, _NONE)]
        begin = at + 1
        for cut in cuts:
            tokens += self._segment(begin, cut)
            tokens.append(Token(PUNCTUATOR, text[cut : cut + 1], False, cut, cut + 1, True, _NONE))
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
        return [Token(CHUNK, inner, before > 0, start + before, start + before + len(inner), True, _NONE)]

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


def _glues(left: int, right: int) -> bool:
    """Whether two bytes must not become neighbours: they would make another token."""
    if left in _WORD:
        return right in _WORD
    return (left in _GLUE and right in _GLUE) or (left == 0x2E and 0x30 <= right <= 0x39)


# The expressions of #if


class _MalformedError(Exception):
    """The expression cannot be read."""


_BINARY: dict[bytes, int] = {
    b"||": 1, b"&&": 2, b"|": 3, b"^": 4, b"&": 5, b"==": 6, b"!=": 6, b"<": 7, b">": 7, b"<=": 7, b">=": 7,
    b"<<": 8, b">>": 8, b"+": 9, b"-": 9, b"*": 10, b"/": 10, b"%": 10,
}  # fmt: skip
_SPELLED = {
    b"and": b"&&", b"or": b"||", b"not": b"!", b"bitand": b"&", b"bitor": b"|", b"xor": b"^", b"compl": b"~",
    b"not_eq": b"!=",
}  # fmt: skip
_INTEGER = re.compile(rb"(0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)(?:[uU]?[lL]{0,2}|[lL]{1,2}[uU]|[uU]?[zZ])")
_ESCAPES = {b"n": 10, b"t": 9, b"r": 13, b"0": 0, b"a": 7, b"b": 8, b"f": 12, b"v": 11}
_MAX_NESTING = 60


def evaluate(text: bytes, table: Table, has_include: Callable[[str, bool], bool] | None = None) -> int:
    """The value of a ``#if`` expression; 0 where it cannot be read."""
    try:
        return _Expression(text, table, has_include).value()
    except (_MalformedError, _ExhaustedError):
        return 0


class _Expression:
    def __init__(self, text: bytes, table: Table, has_include: Callable[[str, bool], bool] | None) -> None:
        tokens = self._answered(tokenize(text), table, has_include)
        if any(token.kind == NAME and token.text in table for token in tokens):
            # ``defined`` may come out of a macro as well.
            tokens = self._answered(Expander(table).tokens(tokens), table, has_include)
        self.tokens = tokens
        self.at = 0
        self.depth = 0

    @staticmethod
    def _answered(tokens: list[Token], table: Table, has_include: Callable[[str, bool], bool] | None) -> list[Token]:
        """``defined`` and ``__has_include`` replaced by their values."""
        out = []
        i = 0
        while i < len(tokens):
            token = tokens[i]
            i += 1
            if token.kind == NAME and token.text == b"defined":
                parenthesised = i < len(tokens) and tokens[i].text == b"("
                name = tokens[i + parenthesised] if i + parenthesised < len(tokens) else None
                if name is None or name.kind != NAME:
                    raise _MalformedError
                i += 3 if parenthesised else 1
                value = name.text in table or name.text == b"__has_include"
            elif token.kind == NAME and token.text in (b"__has_include", b"__has_include_next"):
                if i >= len(tokens) or tokens[i].text != b"(":
                    raise _MalformedError
                close = _closing(tokens, i)
                spelled = b"".join(part.text for part in tokens[i + 1 : close])
                i = close + 1
                name_, angled = spelled[1:-1].decode(errors="replace"), spelled[:1] == b"<"
                value = len(spelled) > 2 and has_include is not None and has_include(name_, angled)
            else:
                out.append(token)
                continue
            out.append(token._replace(kind=NUMBER, text=b"1" if value else b"0"))
        return out

    def value(self) -> int:
        value = self._conditional(True)
        if self.at != len(self.tokens):
            raise _MalformedError
        return value

    def _next(self) -> bytes:
        if self.at >= len(self.tokens):
            return b""
        token = self.tokens[self.at]
        return _SPELLED.get(token.text, token.text) if token.kind == NAME else token.text

    def _expect(self, text: bytes) -> None:
        if self._next() != text:
            raise _MalformedError
        self.at += 1

    def _conditional(self, live: bool) -> int:
        self.depth += 1
        if self.depth > _MAX_NESTING:
            raise _MalformedError
        value = self._binary(1, live)
        if self._next() == b"?":
            self.at += 1
            then = self._conditional(live and value != 0)
            self._expect(b":")
            other = self._conditional(live and value == 0)
            value = then if value else other
        self.depth -= 1
        return value

    def _binary(self, weakest: int, live: bool) -> int:
        left = self._unary(live)
        while True:
            op = self._next()
            strength = _BINARY.get(op, 0)
            if strength < weakest:
                return left
            self.at += 1
            if op == b"&&":
                right = self._binary(strength + 1, live and left != 0)
                left = int(left != 0 and right != 0)
            elif op == b"||":
                right = self._binary(strength + 1, live and left == 0)
                left = int(left != 0 or right != 0)
            else:
                left = _apply(op, left, self._binary(strength + 1, live), live)

    def _unary(self, live: bool) -> int:
        signs = []
        while self._next() in (b"!", b"-", b"+", b"~"):
            signs.append(self._next())
            self.at += 1
        value = self._primary(live)
        for sign in reversed(signs):
            value = {b"!": int(not value), b"-": -value, b"+": value, b"~": ~value}[sign]
        return value

    def _primary(self, live: bool) -> int:
        if self.at >= len(self.tokens):
            raise _MalformedError
        token = self.tokens[self.at]
        self.at += 1
        text = token.text
        if text == b"(":
            value = self._conditional(live)
            self._expect(b")")
            return value
        if token.kind == NUMBER:
            number = _INTEGER.fullmatch(text.replace(b"'", b""))
            if number is None:
                raise _MalformedError
            digits = number[1].decode()
            try:
                return _wrap(int(digits, 0 if digits[:2].lower() in ("0x", "0b") else 8 if digits[0] == "0" else 10))
            except ValueError:
                raise _MalformedError from None
        if token.kind == LITERAL:
            return _character(text)
        if token.kind == NAME:
            return int(text == b"true")
        raise _MalformedError


def _character(text: bytes) -> int:
    inner = text[text.find(b"'") + 1 : -1]
    if not text.endswith(b"'") or not inner:
        raise _MalformedError
    if inner[:1] == b"\\":
        return _ESCAPES.get(inner[1:2], inner[1] if len(inner) > 1 else 0)
    return inner[0]


def _wrap(value: int) -> int:
    """To 64 bits, as the preprocessor's intmax_t."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def _apply(op: bytes, left: int, right: int, live: bool) -> int:
    if op in (b"/", b"%"):
        if right == 0:
            if live:
                raise _MalformedError
            return 0
        quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        return _wrap(quotient if op == b"/" else left - quotient * right)
    if op == b"<<":
        return _wrap(left << (right & 63))
    if op == b">>":
        return left >> (right & 63)
    if op in _COMPARISONS:
        return int(_COMPARISONS[op](left, right))
    return _wrap(_ARITHMETIC[op](left, right))


_COMPARISONS: dict[bytes, Callable[[int, int], bool]] = {
    b"==": lambda a, b: a == b,
    b"!=": lambda a, b: a != b,
    b"<": lambda a, b: a < b,
    b">": lambda a, b: a > b,
    b"<=": lambda a, b: a <= b,
    b">=": lambda a, b: a >= b,
}
_ARITHMETIC: dict[bytes, Callable[[int, int], int]] = {
    b"+": lambda a, b: a + b,
    b"-": lambda a, b: a - b,
    b"*": lambda a, b: a * b,
    b"|": lambda a, b: a | b,
    b"^": lambda a, b: a ^ b,
    b"&": lambda a, b: a & b,
}
