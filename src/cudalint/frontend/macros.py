"""Macros: tokens, definitions, and expansion as C has it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cudalint.lazy import NamedTuple, pattern

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudalint.frontend.source import Reading, SourceFile

MAX_DEPTH = 40
"""Arguments within arguments that are still expanded."""
MAX_STEPS = 200_000
"""Tokens that one use may take; a file may take four times as many."""

LITERAL, NAME, NUMBER, PUNCTUATOR, CHUNK, NOTHING = range(6)
"""CHUNK is an argument without a macro's name in it, kept whole; NOTHING is what ``##`` makes of two empty sides."""

_TOKEN = pattern(
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
NAME_PATTERN = pattern(rb"[A-Za-z_$\x80-\xff][\w$\x80-\xff]*")


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


NO_NAMES: frozenset[bytes] = frozenset()


class Macro:
    """A macro. ``params`` is None for an object-like one; the last one takes all the rest if ``variadic``.

    ``start``/``end`` span the directive in ``file.raw``. ``file`` is None and ``predefined`` true for
    what the compiler defines; ``file`` is None also for what the configuration defines.
    """

    __slots__ = (
        "_names",
        "_parts",
        "_tokens",
        "body",
        "end",
        "file",
        "name",
        "params",
        "predefined",
        "start",
        "variadic",
    )

    def __init__(
        self, name: bytes, params: tuple[bytes, ...] | None, body: bytes, *, variadic: bool = False,
        file: SourceFile | None = None, start: int = 0, end: int = 0, predefined: bool = False,
    ) -> None:  # fmt: skip
        self.name, self.params, self.body, self.variadic = name, params, body, variadic
        self.file, self.start, self.end, self.predefined = file, start, end, predefined
        self._tokens: list[Token] | None = None
        self._names: frozenset[bytes] | None = None
        self._parts: list[Token] | bool | None = False

    def __repr__(self) -> str:
        params = "" if self.params is None else "(" + ", ".join(p.decode() for p in self.params) + ")"
        return f"Macro({self.name.decode()}{params} {self.body.decode()})"

    @property
    def tokens(self) -> list[Token]:
        if self._tokens is None:
            self._tokens = tokenize(self.body)
        return self._tokens

    @property
    def names(self) -> frozenset[bytes]:
        """The names in the body that may be macros."""
        if self._names is None:
            names = frozenset(token.text for token in self.tokens if token.kind == NAME)
            self._names = names.difference(self.params or ())
        return self._names

    @property
    def plain(self) -> bool:
        """Whether the body is but text and parameters: no ``#``, ``##`` or ``__VA_OPT__``."""
        return b"#" not in self.body and b"__VA_OPT__" not in self.names

    @property
    def parts(self) -> list[Token] | None:
        """The body as stretches of text and, as NOTHING with its number for ``start``, parameters.

        None where it is more than that.
        """
        if self._parts is False:
            self._parts = self._split() if self.plain and _DYNAMIC.isdisjoint(self.names) else None
        return self._parts  # type: ignore[return-value]  # not False any more

    def _split(self) -> list[Token]:
        parts: list[Token] = []
        params = self.params or ()
        text: list[bytes] = []
        space = False
        for token in self.tokens:
            if token.kind == NAME and token.text in params:
                if text:
                    parts.append(Token(CHUNK, b"".join(text), space, -1, -1, False, NO_NAMES))
                    text = []
                parts.append(Token(NOTHING, b"", token.space, params.index(token.text), -1, False, NO_NAMES))
            elif text:
                text += (b" ", token.text) if token.space else (token.text,)
            else:
                text, space = [token.text], token.space
        if text:
            parts.append(Token(CHUNK, b"".join(text), space, -1, -1, False, NO_NAMES))
        return parts


Table = dict[bytes, Macro]


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
            tokens.append(Token(kind, match[0], space, at + match.start(), at + match.end(), True, NO_NAMES))
        else:
            tokens.append(Token(kind, match[0], space, -1, -1, False, NO_NAMES))
        space = False
    return tokens


def spell(tokens: list[Token]) -> bytes:
    """The text of tokens."""
    return b"".join(b" " + token.text if token.space else token.text for token in tokens)


def define(text: bytes, file: SourceFile | None = None, start: int = 0, end: int = 0) -> Macro | None:
    """The macro of ``NAME(params) body``; None where that is malformed."""
    name = NAME_PATTERN.match(text)
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
    if not all(NAME_PATTERN.fullmatch(param) for param in params):
        return None
    body = text[close + 1 :].strip()
    return Macro(name[0], tuple(params), body, variadic=variadic, file=file, start=start, end=end)


def predefined(reading: Reading, defines: tuple[tuple[str, str], ...] = ()) -> Table:
    """What the compiler defines in a reading, and the configuration's ``defines`` on top."""
    table = dict(_PREDEFINED)
    if reading == "device":
        table[b"__CUDA_ARCH__"] = Macro(b"__CUDA_ARCH__", None, b"900", predefined=True)
    for name, text in defines:
        macro = define(f"{name} {text}".encode())
        if macro is not None:
            table[macro.name] = macro
    return table


_PREDEFINED: Table = {
    macro.name: macro
    for macro in (
        Macro(b"__CUDACC__", None, b"1", predefined=True),
        Macro(b"__NVCC__", None, b"1", predefined=True),
        # nvcc reads cuda_runtime.h ahead of every file; helpers ask by this name whether they may use its types.
        Macro(b"__DRIVER_TYPES_H__", None, b"", predefined=True),
        Macro(b"__CUDACC_VER_MAJOR__", None, b"12", predefined=True),
        Macro(b"__CUDACC_VER_MINOR__", None, b"9", predefined=True),
        Macro(b"CUDART_VERSION", None, b"12090", predefined=True),
        Macro(b"CUDA_VERSION", None, b"12090", predefined=True),
        Macro(b"__cplusplus", None, b"201703L", predefined=True),
        Macro(b"_Pragma", (b"text",), b"", predefined=True),
    )
}


class ExhaustedError(Exception):
    """A macro use takes more than it may."""


class Expander:
    """Expands tokens by the macros of a table, as C does (each token with its own set of names not to expand).

    ``line`` gives the line of an offset, for ``__LINE__``; ``condition``: they stand in an ``#if``.
    """

    def __init__(self, table: Table, line: Callable[[int], int] | None = None, *, condition: bool = False) -> None:
        self.table = table
        self.condition = condition
        self.steps = 0
        self.limit = MAX_STEPS
        self.once = False
        """Whether what an argument has in braces stands only where a body names it first: in one arm of a dispatch."""
        self.count = 0
        self.line = line
        self.uses: dict[tuple[int, int], Macro] = {}
        """The macros by where the file itself uses them, in arguments of other uses too."""

    def tokens(
        self, tokens: list[Token], depth: int = 0, pull: Callable[[], list[Token] | None] | None = None
    ) -> list[Token]:
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
                if self.condition and token.text == b"defined":
                    # Its operand is a name, not what the name stands for.
                    out += reversed(stack[-2 if stack and stack[-1].text == b"(" else -1 :])
                    del stack[-2 if stack and stack[-1].text == b"(" else -1 :]
                continue
            if token.text in token.hidden:
                out.append(token)
                continue
            if macro.params is None:
                if depth == 0 and not stack and table.keys().isdisjoint(macro.names):
                    self._spell(macro, [], token, depth, out)
                    continue
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
                if token.same:
                    self.uses[token.start, token.end] = macro
                if (
                    depth == 0
                    and not self.once
                    and not stack
                    and table.keys().isdisjoint(macro.names)
                    and self._spell(macro, arguments, token, depth, out)
                ):
                    continue
                hidden = (token.hidden & closing.hidden) | {macro.name}
                result = self._substitute(macro, arguments, token, hidden, depth)
            self.steps += len(result)
            if self.steps > self.limit:
                raise ExhaustedError
            if result:
                result[0] = result[0]._replace(space=token.space)
                stack += reversed(result)
            elif token.space and stack and not stack[-1].space:
                stack[-1] = stack[-1]._replace(space=True)
        return out

    def _spell(self, macro: Macro, arguments: list[list[Token]], use: Token, depth: int, out: list[Token]) -> bool:
        """Write the expansion of a macro to ``out``, where no part of it is to be looked at again; else False."""
        parts = macro.parts
        if parts is None:
            return False
        expanded: dict[int, list[Token]] = {}
        for part in parts:
            if part.kind == NOTHING:
                for token in self._argument(arguments, part.start, depth, expanded):
                    if token.kind == NAME and token.text in self.table:
                        return False
        space = use.space
        for part in parts:
            if part.kind == NOTHING:
                piece = expanded[part.start]
                if piece:
                    first = piece[0]
                    if first.space != (part.space or space):
                        first = first._replace(space=part.space or space)
                    out.append(first)
                    out += piece[1:]
                    self.steps += len(piece)
                    space = False
            else:
                out.append(Token(CHUNK, part.text, part.space or space, use.start, use.end, False, NO_NAMES))
                space = False
        return True

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
            raise ExhaustedError
        if macro.plain:
            return self._fill(macro, arguments, use, hidden, depth)
        out = self._replace(macro, body, arguments, use, hidden, depth, {})
        return [token for token in out if token.kind != NOTHING]

    def _fill(
        self, macro: Macro, arguments: list[list[Token]], use: Token, hidden: frozenset[bytes], depth: int
    ) -> list[Token]:
        """The body with the arguments in it."""
        params = macro.params or ()
        _, _, _, start, end, _, _ = use
        new = tuple.__new__
        out: list[Token] = []
        expanded: dict[int, list[Token]] = {}
        for token in macro.tokens:
            kind, text, space, _, _, _, _ = token
            if kind == NAME and text in params:
                piece = self._argument(arguments, params.index(text), depth, expanded)
                out += _hide(piece, hidden, space)
                self.steps += len(piece)
                if self.steps > self.limit:
                    raise ExhaustedError
            else:
                out.append(new(Token, (kind, text, space, start, end, False, hidden)))
        self.steps += len(macro.tokens)
        return out

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
                piece = _hide(piece, hidden, token.space)
            elif text == b"__VA_OPT__" and macro.variadic and i < n and body[i].text == b"(":
                close = closing_at(body, i)
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
                raise ExhaustedError
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
            expanded[which] = _hollow(found) if self.once else found
        return found


def _hollow(tokens: list[Token]) -> list[Token]:
    """Tokens without what stands in braces."""
    out: list[Token] = []
    depth = 0
    for token in _unchunked(tokens):
        depth -= token.text == b"}"
        if depth <= 0:
            out.append(token)
        depth += token.text == b"{"
    return out


_DYNAMIC = frozenset((b"__LINE__", b"__COUNTER__"))


def closing_at(body: list[Token], at: int) -> int:
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


def _hide(piece: list[Token], hidden: frozenset[bytes], space: bool) -> list[Token]:
    """An argument's tokens in their place in a body."""
    out = [part._replace(hidden=part.hidden | hidden) if part.kind == NAME else part for part in piece]
    if out:
        out[0] = out[0]._replace(space=space)
    return out


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
