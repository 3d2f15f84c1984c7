"""The expressions of ``#if``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudalint.frontend.macros import (
    LITERAL,
    MAX_STEPS,
    NAME,
    NUMBER,
    ExhaustedError,
    Expander,
    closing_at,
    spell,
    tokenize,
)
from cudalint.lazy import pattern

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudalint.frontend.macros import Table, Token


class _MalformedError(Exception):
    """The expression cannot be read."""


_BINARY: dict[bytes, int] = {
    b"?": 0, b":": 0, b"||": 1, b"&&": 2, b"|": 3, b"^": 4, b"&": 5, b"==": 6, b"!=": 6, b"<": 7, b">": 7,
    b"<=": 7, b">=": 7, b"<<": 8, b">>": 8, b"+": 9, b"-": 9, b"*": 10, b"/": 10, b"%": 10,
    b"unary !": 11, b"unary -": 11, b"unary +": 11, b"unary ~": 11,
}  # fmt: skip
"""How strongly operators bind."""
_SIGNS = {sign: b"unary " + sign for sign in (b"!", b"-", b"+", b"~")}
_APPLIED: dict[bytes, Callable[[int], int]] = {
    b"unary !": lambda a: int(not a), b"unary -": lambda a: -a, b"unary +": lambda a: a, b"unary ~": lambda a: ~a,
}  # fmt: skip
_SPELLED = {
    b"and": b"&&", b"or": b"||", b"not": b"!", b"bitand": b"&", b"bitor": b"|", b"xor": b"^", b"compl": b"~",
    b"not_eq": b"!=",
}  # fmt: skip
_INTEGER = pattern(rb"(0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)(?:[uU]?[lL]{0,2}|[lL]{1,2}[uU]|[uU]?[zZ])")
_COMPILERS = pattern(rb"_[A-Z_]\w*|NDEBUG|WIN32|WIN64|linux|unix|i386|(?:\w*_)?(?:HIP|ROCM)(?:_\w*)?")
"""Macros of compilers, the language and its library, and of the platform that is not CUDA."""
_ESCAPES = {b"n": 10, b"t": 9, b"r": 13, b"0": 0, b"a": 7, b"b": 8, b"f": 12, b"v": 11}


def is_switch(name: bytes) -> bool:
    """Whether a name in a condition can be a macro that a build defines."""
    return not (name in (b"defined", b"true", b"false") or name in _SPELLED or _COMPILERS.fullmatch(name))


class Conditions:
    """The conditions of one file, whose macros together may take so many steps."""

    def __init__(self, has_include: Callable[[str, bool], bool] | None = None) -> None:
        self.has_include = has_include
        self.left = MAX_STEPS

    def evaluate(self, text: bytes, table: Table) -> int:
        """The value of a ``#if`` expression; 0 where it cannot be read. ExhaustedError where it takes too much."""
        try:
            return _Expression(text, table, self).value()
        except _MalformedError:
            return 0


def evaluate(text: bytes, table: Table, has_include: Callable[[str, bool], bool] | None = None) -> int:
    """The value of a condition by itself; 0 where it cannot be read, or takes too much."""
    try:
        return Conditions(has_include).evaluate(text, table)
    except ExhaustedError:
        return 0


class _Expression:
    def __init__(self, text: bytes, table: Table, conditions: Conditions) -> None:
        has_include = conditions.has_include
        tokens = self._answered(tokenize(text), table, has_include)
        if any(token.kind == NAME and token.text in table for token in tokens):
            # ``defined`` may come out of a macro as well.
            expander = Expander(table, condition=True)
            expander.limit = conditions.left
            try:
                tokens = self._answered(tokenize(spell(expander.tokens(tokens))), table, has_include)
            finally:
                conditions.left = max(0, conditions.left - expander.steps)
        self.tokens = tokens

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
                close = closing_at(tokens, i)
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
        """Operators wait on a stack until one that binds less comes, so that nesting may be as deep as it likes."""
        values: list[int | None] = []
        waiting: list[bytes] = []
        operand = True
        for token in self.tokens:
            text = _SPELLED.get(token.text, token.text) if token.kind == NAME else token.text
            if operand:
                operand = text == b"(" or text in _SIGNS
                if operand:
                    waiting.append(text if text == b"(" else _SIGNS[text])
                else:
                    values.append(_primary(token))
                continue
            strength = 0 if text == b")" else _BINARY.get(text, -1)
            if strength < 0:
                raise _MalformedError
            while waiting and _BINARY.get(waiting[-1], 0) >= max(strength, 1):
                _reduce(values, waiting.pop())
            if text in (b")", b":"):
                opening = b"(" if text == b")" else b"?"
                while waiting and waiting[-1] == b":":
                    _reduce(values, waiting.pop())
                if not waiting or waiting.pop() != opening:
                    raise _MalformedError
            operand = text != b")"
            if operand:
                waiting.append(text)
        if operand:
            raise _MalformedError
        while waiting:
            _reduce(values, waiting.pop())
        if values[0] is None:
            raise _MalformedError
        return values[0]


def _reduce(values: list[int | None], op: bytes) -> None:
    """Applies an operator to the last values. None is what has no value: a quotient by 0. It has to be asked for to do
    harm."""
    if op in (b"(", b"?"):
        raise _MalformedError
    last = values.pop()
    if op in _APPLIED:
        values.append(None if last is None else _APPLIED[op](last))
    elif op == b":":
        then, condition = values.pop(), values.pop()
        values.append(None if condition is None else then if condition else last)
    elif op in (b"&&", b"||"):
        left = values.pop()
        decided = left is not None and (left == 0) == (op == b"&&")
        known = left is not None and (decided or last is not None)
        values.append(None if not known else int(op == b"||") if decided else int(last != 0))
    else:
        left = values.pop()
        values.append(None if left is None or last is None else _apply(op, left, last))


def _primary(token: Token) -> int:
    text = token.text
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


def _apply(op: bytes, left: int, right: int) -> int | None:
    if op in (b"/", b"%"):
        if right == 0:
            return None
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
