"""The expressions of ``#if``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cudalint.frontend.macros import LITERAL, NAME, NUMBER, ExhaustedError, Expander, closing_at, spell, tokenize

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudalint.frontend.macros import Table, Token


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
    except (_MalformedError, ExhaustedError):
        return 0


class _Expression:
    def __init__(self, text: bytes, table: Table, has_include: Callable[[str, bool], bool] | None) -> None:
        tokens = self._answered(tokenize(text), table, has_include)
        if any(token.kind == NAME and token.text in table for token in tokens):
            # ``defined`` may come out of a macro as well.
            tokens = self._answered(tokenize(spell(Expander(table, condition=True).tokens(tokens))), table, has_include)
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
