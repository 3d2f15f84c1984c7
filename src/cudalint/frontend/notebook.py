"""Notebooks: the cells that are CUDA (``%%cu``, ``%%cuda``, ``%%writefile x.cu``), and those of Python with CUDA in
strings.

The JSON is read twice: by ``json``, which says whether it is a notebook, and here for where each character stands.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from typing import TYPE_CHECKING, Any

from cudalint.frontend.embedded import Found, Layer, Part
from cudalint.frontend.preprocess import Gap
from cudalint.frontend.source import takes_cuda
from cudalint.lazy import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_STRING = re.compile(rb'"([^"\\]*(?:\\.[^"\\]*)*)"', re.DOTALL)
_SPACE = re.compile(rb"[ \t\r\n]*")
_SCALAR = re.compile(rb"[^\s,\]}]+")
_NESTED = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)
_ESCAPE = re.compile(rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)")
_CELL_MAGIC = re.compile(rb"\s*%%([\w.]+)([^\r\n]*)(?:\r\n|\r|\n|\Z)")
_CUDA_MAGICS = ("cu", "cuda", "cuda_group_save", "nvcc", "nvcc_run")
_FILE_MAGICS = ("writefile", "file")
_PYTHON_MAGICS = ("time", "timeit", "capture", "prun", "python", "python3")
_LINE = re.compile(rb"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_LINE_MAGIC = re.compile(
    rb"(?P<before>[ \t]*(?:[\w., \t]+=[ \t]*)?)(?P<magic>%time[ \t]+(?P<timed>[\w(][^\r\n]*)|[%!?][^\r\n]*|[\w.]+\?+)"
)
"""A line for IPython: ``%matplotlib inline``, ``files = !ls``, ``print?``."""
_SOURCES = (".cu", ".cuh", ".hip", ".h", ".hh", ".hpp", ".hxx", ".inl", ".inc", ".ipp", ".tpp", ".c", ".cc",
    ".cpp", ".cxx")  # fmt: skip
_NAME_OPTIONS = ("-n", "--name")


class _Cell(NamedTuple):
    number: int
    layer: Layer

    @property
    def text(self) -> bytes:
        return bytes(self.layer.text)


def read(raw: bytes) -> Found:
    """The CUDA texts of a notebook."""
    try:
        book = json.loads(raw.decode())
    except json.JSONDecodeError as fault:
        at = len(raw.decode()[: fault.pos].encode())
        return Found({}, [Gap(at, at, f"the file is no notebook: {fault.msg[:1].lower()}{fault.msg[1:]}")])
    except (ValueError, RecursionError) as fault:
        return Found({}, [Gap(0, 0, f"the file is no notebook: {fault}")])
    if not isinstance(book, dict) or not isinstance(book.get("cells"), list):
        if isinstance(book, dict) and isinstance(book.get("worksheets"), list):
            why = (
                "the notebook has the format of 2013: `jupyter nbconvert --to notebook --inplace` brings it up to date"
            )
        else:
            why = "the file is no notebook: it has no cells"
        return Found({}, [Gap(0, 0, why)])
    found = Found({}, [])
    python = Layer(_through)
    for cell in _cells(raw, book["cells"]):
        text = cell.text
        magic = _CELL_MAGIC.match(text)
        if magic is None:
            _add_python(python, cell, 0, found)
            continue
        word, options, start = magic[1].decode(), _words(magic[2].decode("utf-8", "replace")), magic.end()
        if word in _CUDA_MAGICS:
            named = _named(options)
            name = _free(found, named, cell.number) if named else f"cell {cell.number}.cu"
            found.texts[name] = _part(_write_json(raw), cell, start)
        elif word in _FILE_MAGICS and options:
            path = options[-1]
            if not path.lower().endswith(_SOURCES):
                if path.lower().endswith(".py"):
                    _add_python(python, cell, start, found)
                continue
            name = _inside(path)
            if {"-a", "--append"} & set(options):
                versions = [known for known in found.texts if known == name or known.endswith(f"/{name}")]
                if versions:
                    layer = found.texts[versions[-1]]
                    _end_line(layer)
                    _append(layer, cell, start)
                    continue
            found.texts[_free(found, name, cell.number)] = _part(_write_json(raw), cell, start)
        elif word in _PYTHON_MAGICS:
            _add_python(python, cell, start, found)
    if python.pieces:
        from cudalint.frontend.pystrings import parse
        from cudalint.frontend.pystrings import read as read_python

        whole = bytes(python.text)
        python.write = _write_json(raw)
        try:
            inner = read_python(whole, parse(whole), python)
        except SyntaxError:
            return found
        found.texts.update(inner.texts)
        found.passed.extend(inner.passed)
    return found


def _through(_: Layer, _start: int, _end: int, _new: str) -> str | None:
    return None


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _named(options: list[str]) -> str | None:
    """The file that a cell is compiled as."""
    for option, value in zip(options, [*options[1:], ""], strict=False):
        if option in _NAME_OPTIONS and value.lower().endswith(_SOURCES):
            return _inside(value)
        if option.startswith("--name=") and option.lower().endswith(_SOURCES):
            return _inside(option[7:])
    return None


def _inside(path: str) -> str:
    """The path below the notebook."""
    path = os.path.normpath(path.replace("\\", "/"))
    parts = [part for part in path.replace(os.sep, "/").split("/") if part not in ("", ".", "..", "~")]
    return os.sep.join(parts[-1:] if os.path.isabs(path) or path[:1] == "~" else parts) or "cell.cu"


def _free(found: Found, name: str, number: int) -> str:
    """The name, in a folder of the cell's own where an earlier cell has taken it: the file is written once more."""
    return name if name not in found.texts else os.path.join(f"cell {number}", name)


def _part(write: Callable[[Layer, int, int, str], str | None], cell: _Cell, start: int) -> Layer:
    layer = Layer(write)
    _append(layer, cell, start)
    return layer


def _append(layer: Layer, cell: _Cell, start: int) -> None:
    layer.parts.append(Part(len(layer.text), cell.number, cell.text, start))
    layer.join(cell.layer, start, layer.pieces[-1].token + 1 if layer.pieces else 0)


def _end_line(layer: Layer) -> None:
    if layer.pieces and not layer.text.endswith(b"\n"):
        at = layer.pieces[-1].end
        layer.add(b"\n", at, at, layer.pieces[-1].token)


def _add_python(python: Layer, cell: _Cell, start: int, found: Found) -> None:
    """Put a cell of Python behind those before it; one that is none is left out."""
    text = cell.text
    try:
        code = _python(text[start:])
    except SyntaxError as fault:
        if takes_cuda(text):
            first, last = cell.layer.outer(start, len(text))
            found.passed.append(Gap(first, last, f"the cell is no Python that this version reads: {fault.msg}"))
        return
    _end_line(python)
    at = len(python.text)
    _append(python, cell, start)
    python.text[at:] = code


def _python(code: bytes) -> bytes:
    """A cell without its lines for IPython, which are those where a parser stumbles: no line in a string is taken for
    one. All else stays where it is. SyntaxError for what is no Python."""
    from cudalint.frontend.pystrings import parse

    lines = _LINE.findall(code)
    while True:
        try:
            parse(b"".join(lines))
        except SyntaxError as fault:
            number = (fault.lineno or 1) - 1
            magic = _LINE_MAGIC.match(lines[number]) if number < len(lines) else None
            if magic is None:
                raise
            lines[number] = _as_number(magic) + lines[number][magic.end() :]
        else:
            return b"".join(lines)


def _as_number(magic: re.Match[bytes]) -> bytes:
    """A line for IPython as a number, and a comment of the same length; what is timed stays."""
    word, kept = magic["magic"], magic["timed"] or b""
    skipped = len(word) - len(kept)
    return magic["before"] + (b"0;" if kept else b"0#")[:skipped] + b" " * (skipped - 2) + kept


# JSON


def _cells(raw: bytes, values: list[Any]) -> Iterator[_Cell]:
    """The code cells of a notebook that ``json`` has read."""
    for name, at in _members(raw, _SPACE.match(raw).end()):  # type: ignore[union-attr]  # it matches anything
        if name != "cells":
            continue
        for number, (cell, value) in enumerate(zip(_elements(raw, at), values, strict=False), 1):
            if not isinstance(value, dict) or value.get("cell_type") != "code":
                continue
            source = value.get("source")
            meant = "".join(filter(_is_text, source)) if isinstance(source, list) else source
            for key, place in _members(raw, cell):
                if key == "source" and isinstance(meant, str):
                    layer = _text(raw, place)
                    if layer.text == meant.encode("utf-8", "replace"):
                        yield _Cell(number, layer)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _text(raw: bytes, at: int) -> Layer:
    """A string, or a list of strings, as one text."""
    layer = Layer(_through)
    places = [at] if raw[at : at + 1] == b'"' else list(_elements(raw, at))
    for token, place in enumerate(places):
        string = _STRING.match(raw, place)
        if string is None:
            continue
        done, end = string.span(1)
        for escape in _ESCAPE.finditer(raw, done, end):
            layer.add(raw[done : escape.start()], done, escape.start(), token)
            layer.add(_decoded(escape[0]), escape.start(), escape.end(), token)
            done = escape.end()
        layer.add(raw[done:end], done, end, token)
    return layer


def _decoded(text: bytes) -> bytes:
    decoded: str = json.loads(b'"' + text + b'"')
    return decoded.encode("utf-8", "replace")


def _members(raw: bytes, at: int) -> Iterator[tuple[str, int]]:
    """The names of an object with where their values begin."""
    at = _after(raw, at + 1)
    while raw[at : at + 1] == b'"':
        name = _STRING.match(raw, at)
        assert name is not None
        at = _after(raw, _after(raw, name.end()) + 1)  # behind the colon
        yield json.loads(name[0]), at
        at = _after(raw, _skip(raw, at))
        if raw[at : at + 1] != b",":
            return
        at = _after(raw, at + 1)


def _elements(raw: bytes, at: int) -> Iterator[int]:
    """Where the values of a list begin."""
    at = _after(raw, at + 1)
    while raw[at : at + 1] not in (b"]", b""):
        yield at
        at = _after(raw, _skip(raw, at))
        if raw[at : at + 1] != b",":
            return
        at = _after(raw, at + 1)


def _after(raw: bytes, at: int) -> int:
    space = _SPACE.match(raw, at)
    return at if space is None else space.end()


def _skip(raw: bytes, at: int) -> int:
    """Where the value that begins at ``at`` ends."""
    first = raw[at : at + 1]
    if first not in (b"[", b"{"):
        match = (_STRING if first == b'"' else _SCALAR).match(raw, at)
        return at + 1 if match is None else match.end()
    depth = 0
    for match in _NESTED.finditer(raw, at):
        if match[0] in (b"[", b"{"):
            depth += 1
        elif match[0] in (b"]", b"}"):
            depth -= 1
            if not depth:
                return match.end()
    return len(raw)


_BETWEEN = re.compile(rb'"[ \t\r\n]*,[ \t\r\n]*"')


def _write_json(raw: bytes) -> Callable[[Layer, int, int, str], str | None]:
    def write(layer: Layer, start: int, end: int, new: str) -> str | None:
        """JSON for a text. Where each line of a cell is a string of its own, so are the new ones."""
        first, last = layer.index(start), layer.index(max(end - 1, start))
        if _part_of(layer, layer.pieces[first].at) != _part_of(layer, layer.pieces[last].at):
            return None
        lines = new.split("\n")
        separator = _separator(raw, layer, first) if len(lines) > 1 else None
        if separator is None:
            return _encoded(new)
        rows = [_encoded(f"{line}\n") for line in lines[:-1]]
        goes_on = end < len(layer.text) and layer.pieces[layer.index(end)].token == layer.pieces[last].token
        if lines[-1] or goes_on:
            rows.append(_encoded(lines[-1]))
        return separator.join(rows)

    return write


def _encoded(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _separator(raw: bytes, layer: Layer, index: int) -> str | None:
    """What stands between two lines of the cell that a piece is of; None for a cell that is one string."""
    at = _part_of(layer, layer.pieces[index].at)
    for i in (*range(index + 1, len(layer.pieces)), *range(index, 0, -1)):
        one, other = layer.pieces[i - 1], layer.pieces[i]
        if one.token != other.token and _part_of(layer, one.at) == _part_of(layer, other.at) == at:
            between = _BETWEEN.fullmatch(raw, one.end, other.start)
            if between is not None:
                return between[0].decode().replace("\r", "")
    return None


def _part_of(layer: Layer, at: int) -> int:
    return max((part.at for part in layer.parts if part.at <= at), default=0)
