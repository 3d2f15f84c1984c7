"""Preprocessing: ``#if``, ``#include`` and macros, with the way back to the file for every byte of the result."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from cudalint.frontend.source import SourceFile


class Gap(NamedTuple):
    """A range of ``raw`` that could not be made sense of."""

    start: int
    end: int
    why: str


class Environment:
    def resolve(self, path: str, name: str, angled: bool) -> str | None:
        return None

    def file(self, path: str) -> SourceFile:
        raise NotImplementedError


class Macro:
    __slots__ = ("body", "end", "file", "name", "params", "predefined", "start")
    name: bytes
    params: tuple[bytes, ...] | None
    body: bytes
    file: SourceFile | None
    start: int
    end: int
    predefined: bool


class Scan:
    __slots__ = ("arch", "gaps", "includes", "table", "text")

    def __init__(self, text: bytes) -> None:
        self.text = text
        self.arch = False
        self.gaps: list[Gap] = []
        self.includes: list[str] = []
        self.table: dict[bytes, Macro] = {}


class Expansion:
    __slots__ = ("gaps", "text")

    def __init__(self, text: bytes) -> None:
        self.text = text
        self.gaps: list[Gap] = []

    def origin(self, start: int, end: int) -> tuple[int, int]:
        return start, end

    def use(self, offset: int) -> tuple[bytes, int, int, Macro] | None:
        return None


def scan_file(file: SourceFile) -> Scan:
    return Scan(file.raw)


def expand(scan: Scan) -> Expansion:
    return Expansion(scan.text)
