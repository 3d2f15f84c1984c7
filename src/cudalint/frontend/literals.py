"""Numeric and character literals."""

from __future__ import annotations

import re

from cudalint.ir.types import F32, F64, I8, I32, I64, U32, U64, Type, Unknown

_FLOAT = re.compile(r"[.]|^(?!0[xX])[0-9']*[eE]|^0[xX].*[pP]")
_ESCAPES = {"n": 10, "t": 9, "r": 13, "0": 0, "a": 7, "b": 8, "f": 12, "v": 11}
_literals: dict[str, tuple[Type, int | float | None]] = {}


def number(text: str) -> tuple[Type, int | float | None]:
    """The type and value of a numeric literal."""
    found = _literals.get(text)
    if found is None:
        if len(_literals) > 10_000:
            _literals.clear()
        found = _literals[text] = _number(text)
    return found


def _number(text: str) -> tuple[Type, int | float | None]:
    digits = text.replace("'", "")
    sign = -1 if digits.startswith("-") else 1
    digits = digits.lstrip("+-").strip()
    if _FLOAT.search(digits):
        hexadecimal = digits[:2] in ("0x", "0X")
        body = digits.rstrip("fFlL" if not hexadecimal else "lL")
        suffix = digits[len(body) :].lower()
        if hexadecimal and digits[-1] in "fF" and "p" in digits.lower():
            body, suffix = digits[:-1], "f"
        try:
            value = float.fromhex(body) if hexadecimal else float(body)
        except (ValueError, OverflowError):
            return Unknown(f"the literal {text}"), None
        return (F32 if "f" in suffix else F64), sign * value
    body = digits.rstrip("uUlLzZ")
    suffix = digits[len(body) :].lower()
    if body[-1:] in "fF" and body[:2] not in ("0x", "0X") and body[:-1].isdigit():
        return F32, sign * float(body[:-1])
    try:
        if body[:2] in ("0b", "0B", "0x", "0X"):
            number_ = int(body, 0)
            decimal = False
        else:
            decimal = not (body.startswith("0") and len(body) > 1)
            number_ = int(body, 10 if decimal else 8)
    except ValueError:
        return Unknown(f"the literal {text}"), None
    wide = "l" in suffix or "z" in suffix
    if "u" in suffix or suffix == "z":
        type_ = U64 if wide or number_ > U32.hi else U32
    elif number_ <= I32.hi and not wide:
        type_ = I32
    elif number_ <= U32.hi and not wide and not decimal:
        type_ = U32
    elif number_ <= I64.hi:
        type_ = I64
    else:
        type_ = U64
    return type_, sign * number_


def character(text: str) -> int | None:
    """The value of a character literal, quotes included; None for one of several characters."""
    body = text[text.index("'") + 1 : -1] if text.count("'") >= 2 else ""
    value: int | None = None
    if len(body) == 1:
        value = ord(body)
    elif body[:2] == "\\x":
        value = int(body[2:], 16) if re.fullmatch(r"[0-9a-fA-F]+", body[2:]) else None
    elif re.fullmatch(r"\\[0-7]{1,3}", body):
        value = int(body[1:], 8)
    elif len(body) == 2 and body[0] == "\\":
        value = _ESCAPES.get(body[1], ord(body[1]))
    return value if value is None else I8.wrap(value)
