"""What comments give ``confirm`` that it cannot infer: ``// cudalint: confirm(n=611, block=256, alpha=2.0)``."""

from __future__ import annotations

import re

from cudalint.frontend.stated import LEXEME
from cudalint.lazy import NamedTuple, pattern

WORD = "confirm"
BLOCK = "block"
"""The name that stands for the threads of a block."""
MOST_THREADS = 1024
_GIVEN = pattern(rb"""(?://|/\*)[\s*]*cudalint:[ \t]*confirm\b(?:[ \t]*\((?P<settings>[^()]*)\))?""")
_SETTING = pattern(r"\s*([A-Za-z_]\w*(?:\.\w+)*)\s*=\s*(\S+)\s*")
_INTEGER = pattern(r"([-+]?)(0[xX][0-9a-fA-F]+|0[bB][01]+|0[0-7]*|[1-9][0-9]*)(?i:u(?:ll?)?|ll?u?)?")
_FLOAT = pattern(r"([-+]?(?:(?:\d+\.\d*|\.\d+)(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+|nan|inf))[fFlL]?")


class Given(NamedTuple):
    """A comment: [``start``, ``end``) of the file, its first and last ``lines``, and the values by name. ``fault``
    says in words why it cannot be used."""

    start: int
    end: int
    lines: tuple[int, int]
    values: dict[str, int | float]
    fault: str | None


_DIGITS = 80
"""Characters of the longest integer: 64 binary digits, and what is written around them."""


def given(raw: bytes) -> list[Given]:
    """What a file's ``confirm(…)`` comments give, in order."""
    found: list[Given] = []
    if b"cudalint:" not in raw or b"confirm" not in raw:
        return found
    for lexeme in LEXEME.finditer(raw):
        match = _GIVEN.match(lexeme[0]) if b"cudalint:" in lexeme[0] else None
        if match is None:
            continue
        start, end = lexeme.span()
        line = raw.count(b"\n", 0, start) + 1
        values, fault = _read(match["settings"], raw)
        found.append(Given(start, end, (line, line + lexeme[0].count(b"\n")), values, fault))
    return found


def _read(settings: bytes | None, raw: bytes) -> tuple[dict[str, int | float], str | None]:
    form = f"like {WORD}(n=611, block=256, alpha=2.0)"
    if settings is None:
        return {}, f"'cudalint: {WORD}' needs values in parentheses, {form}"
    text = settings.decode("utf-8", "replace")
    if not text.strip():
        return {}, f"'cudalint: {WORD}()' gives nothing: names and values, {form}"
    values: dict[str, int | float] = {}
    for item in text.split(","):
        match = _SETTING.fullmatch(item)
        value = _number(match[2]) if match is not None else None
        if match is None or value is None:
            return {}, f"'{item.strip()[:_DIGITS]}' in 'cudalint: {WORD}' is no name with a number, {form}"
        name = match[1]
        if name == BLOCK and not (isinstance(value, int) and 1 <= value <= MOST_THREADS):
            return {}, f"no block has {match[2]} threads: 1 to {MOST_THREADS}"
        if name != BLOCK and not _is_named(name, raw):
            return {}, f"'cudalint: {WORD}({name}=…)' is for nothing: no '{name}' in this file"
        values[name] = value
    return values, None


def _number(text: str) -> int | float | None:
    """A number as C++ writes it; None for one that no type of C++ holds, too."""
    match = _INTEGER.fullmatch(text)
    if match is not None and len(text) > _DIGITS:
        return None
    if match is not None:
        digits = match[2]
        octal = len(digits) > 1 and digits.isdecimal() and digits[0] == "0"
        return int(match[1] + digits, 8 if octal else 0)
    match = _FLOAT.fullmatch(text)
    return float(match[1]) if match is not None else None


def _is_named(name: str, raw: bytes) -> bool:
    """Whether something but comments names it."""
    last = name.rpartition(".")[2].encode()
    code = LEXEME.sub(lambda lexeme: b" " if lexeme[0][:1] == b"/" else lexeme[0], raw)
    return re.search(rb"\b" + last + rb"\b", code) is not None


__all__ = ["BLOCK", "WORD", "Given", "given"]
