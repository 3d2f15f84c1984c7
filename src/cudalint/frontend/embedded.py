"""CUDA inside other files: cells of notebooks and strings in Python.

A file that holds CUDA texts is a :class:`Host`. Each text is an :class:`Embedded` source file with a path of its own,
as if the host were a folder: ``nb.ipynb/tile.cuh``, ``model.py/string 1.cu``. So what a text includes, its suppressions
and its fingerprints are found as in any other file, while every span is one of the host.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from typing import TYPE_CHECKING

from cudalint.findings import Cell, Edit, Inside, Span
from cudalint.frontend.preprocess import Gap, Scan
from cudalint.frontend.source import NOTEBOOK, SourceFile, may_hold_cuda
from cudalint.lazy import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudalint.frontend import preprocess
    from cudalint.frontend.source import Reading


class Piece(NamedTuple):
    """Where the text from ``at`` on comes from: from ``start`` to ``end`` in what holds it, byte for byte, or as a
    whole where the lengths differ (an escape). ``token`` is the literal's number."""

    at: int
    start: int
    end: int
    token: int


class Part(NamedTuple):
    """From ``at`` on a text is a notebook's cell, from the cell's byte ``start`` on."""

    at: int
    number: int
    cell: bytes
    start: int


class Layer:
    """A text and the way to what holds it, and so on down to the host: ``below`` is the layer of what holds it.

    ``write(layer, start, end, new)`` spells ``new`` so that it can stand for [start, end) of the text in what holds it.
    """

    def __init__(self, write: Callable[[Layer, int, int, str], str | None], below: Layer | None = None) -> None:
        self.write, self.below = write, below
        self.text = bytearray()
        self.pieces: list[Piece] = []
        self.parts: list[Part] = []

    def add(self, text: bytes, start: int, end: int, token: int) -> None:
        if text:
            self.pieces.append(Piece(len(self.text), start, end, token))
            self.text += text

    def join(self, other: Layer, start: int, token: int = 0) -> None:
        """Add what stands in another text of the same holder from ``start`` on."""
        for i, piece in enumerate(other.pieces):
            stop = other.stop(i)
            if stop > start:
                skipped = max(start - piece.at, 0)
                verbatim = piece.end - piece.start == stop - piece.at
                begin = piece.start + skipped if verbatim else piece.start
                self.add(bytes(other.text[piece.at + skipped : stop]), begin, piece.end, piece.token + token)

    def stop(self, index: int) -> int:
        """Where a piece ends in the text."""
        return self.pieces[index + 1].at if index + 1 < len(self.pieces) else len(self.text)

    def index(self, offset: int) -> int:
        """The piece that holds the character at ``offset``; the last for the end of the text."""
        return max(bisect_right(self.pieces, offset, key=_at) - 1, 0)

    def held(self, start: int, end: int) -> tuple[int, int]:
        """The range of what holds the text that [start, end) comes from."""
        if not self.pieces:
            return 0, 0
        first = self._edge(start, last=False) if start < len(self.text) else self._edge(start - 1, last=True)
        return first, self._edge(end - 1, last=True) if end > start else first

    def _edge(self, offset: int, *, last: bool) -> int:
        i = self.index(offset)
        piece = self.pieces[i]
        if piece.end - piece.start == self.stop(i) - piece.at:
            return piece.start + offset - piece.at + last
        return piece.end if last else piece.start

    def outer(self, start: int, end: int) -> tuple[int, int]:
        """The range of the host."""
        start, end = self.held(start, end)
        return (start, end) if self.below is None else self.below.outer(start, end)

    def edited(self, start: int, end: int, new: str) -> tuple[int, int, str] | None:
        """What to write where in the host so that ``new`` stands for [start, end); None where that cannot be."""
        spelled = self.write(self, start, end, new) if self.pieces else None
        if spelled is None:
            return None
        start, end = self.held(start, end)
        return (start, end, spelled) if self.below is None else self.below.edited(start, end, spelled)

    def cell(self, start: int) -> Cell | None:
        """The place in a notebook."""
        if not self.parts:
            return None if self.below is None else self.below.cell(self.held(start, start)[0])
        part = self.parts[max(bisect_right(self.parts, start, key=_at) - 1, 0)]
        before = part.cell[: part.start + start - part.at].replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        line = before.rpartition(b"\n")[2]
        return Cell(part.number, before.count(b"\n") + 1, len(line.decode("utf-8", "replace")) + 1)


def _at(place: Piece | Part) -> int:
    return place.at


class Found(NamedTuple):
    """What a host holds: CUDA texts by name, and what was passed over."""

    texts: dict[str, Layer]
    passed: list[Gap]


class Host(SourceFile):
    """A file with CUDA texts in it. It has no CUDA of its own: ``text`` is empty."""

    __slots__ = ("_sources", "passed")

    def __init__(
        self, path: str, data: bytes, env: preprocess.Environment | None = None, error: str | None = None
    ) -> None:
        super().__init__(path, data, env, error=error)
        self._sources: dict[str, Embedded] | None = None
        self.passed: list[Gap] = []

    @property
    def sources(self) -> dict[str, Embedded]:
        """The texts by path, in order."""
        if self._sources is None:
            texts: dict[str, Embedded] = {}
            if self.error is None and may_hold_cuda(self.path, self.raw):
                found = _read(self.path, self.raw)
                self.passed = found.passed
                for name, layer in found.texts.items():
                    path = os.path.join(self.path, name)
                    texts[path] = Embedded(path, layer, self)
            self._sources = texts
        return self._sources

    @property
    def scan(self) -> Scan:
        if self._scan is None:
            self._scan = Scan(self, {})
            self._scan.arch = False
        return self._scan

    @property
    def gaps(self) -> list[Gap]:
        _ = self.sources  # what was passed over is known when they are read
        return sorted(self.passed)


def _read(path: str, raw: bytes) -> Found:
    if path.lower().endswith(NOTEBOOK):
        from cudalint.frontend.notebook import read

        return read(raw)
    from cudalint.frontend.pystrings import read_module

    return read_module(raw)


class Embedded(SourceFile):
    """A CUDA text in a host: read by its own offsets, seen at the host's."""

    __slots__ = ("host_file", "layer")

    def __init__(self, path: str, layer: Layer, host: Host, reading: Reading = "device") -> None:
        super().__init__(path, b"", host.env, reading)
        self.layer, self.host_file = layer, host
        self.raw = bytes(layer.text).replace(b"\0", b" ")  # `'\0'` is one in a string that is not raw

    def _again(self, reading: Reading) -> Embedded:
        return Embedded(self.path, self.layer, self.host_file, reading)

    def position(self, offset: int) -> tuple[int, int]:
        return self.host_file.position(self.layer.outer(offset, offset)[0])

    def raw_span(self, start: int, end: int) -> Span:
        first, last = self.layer.outer(start, end)
        inside = Inside(self.path, *super().position(start), *super().position(end), self.layer.cell(start))
        return Span(self.host_file.path, *self.host_file.position(first), *self.host_file.position(last), inside)

    def edit(self, start: int, end: int, text: str) -> Edit | None:
        edited = self.layer.edited(start, end, text)
        return None if edited is None else Edit(self.host_file.raw_span(*edited[:2]), edited[2])

    def outward(self, start: tuple[int, int], end: tuple[int, int]) -> Span:
        """The span between two places (line and column) of the text."""
        return self.raw_span(self._offset(*start), self._offset(*end))

    def _offset(self, line: int, column: int) -> int:
        super().position(0)  # finds the lines
        start = (self._lines or [0])[line - 1]
        return start + len(self.raw[start:].decode("utf-8", "replace")[: column - 1].encode())

    def rewritten(self, new: bytes) -> list[Edit] | None:
        """The edits of the host after which the text is ``new``, by lines; None where one cannot be made."""
        from difflib import SequenceMatcher

        old, now = self.raw.splitlines(keepends=True), new.splitlines(keepends=True)
        edits = []
        starts = [0]
        for line in old:
            starts.append(starts[-1] + len(line))
        for what, i, j, k, m in SequenceMatcher(None, old, now, autojunk=False).get_opcodes():
            if what == "equal":
                continue
            before, after = b"".join(old[i:j]).decode(), b"".join(now[k:m]).decode()
            same = _same(before, after)
            tail = _same(before[same:][::-1], after[same:][::-1])
            start = starts[i] + len(before[:same].encode())
            stop = starts[i] + len(before[: len(before) - tail].encode())
            edit = self.edit(start, stop, after[same : len(after) - tail])
            if edit is None:
                return None
            edits.append(edit)
        return edits


def _same(one: str, other: str) -> int:
    """How many characters two texts begin with alike."""
    most = min(len(one), len(other))
    return next((i for i in range(most) if one[i] != other[i]), most)


def sources(path: str, data: bytes) -> dict[str, Embedded]:
    """The texts of a host with this content."""
    return Host(path, data).sources


def texts_of(host: str, overlay: dict[str, bytes]) -> dict[str, bytes]:
    """The texts (UTF-8) in a host, by path. ``overlay`` stands for what is on disk."""
    data = overlay.get(host)
    if data is None:
        try:
            with open(host, "rb") as file:
                data = file.read()
        except OSError:
            return {}
    return {path: text.raw for path, text in sources(host, data).items()}
