"""A source file: its bytes, its expanded text, and the way back from one to the other."""

from __future__ import annotations

import os
import re
import stat
from bisect import bisect_right
from typing import TYPE_CHECKING, Literal

from cudalint.findings import Edit, Span
from cudalint.frontend import preprocess
from cudalint.lazy import NamedTuple, pattern

if TYPE_CHECKING:
    from tree_sitter import Tree

    from cudalint.frontend.declare import Declarations
    from cudalint.frontend.macros import Macro
    from cudalint.frontend.oracle import Oracle
    from cudalint.frontend.preprocess import Expansion, Gap, Scan

Reading = Literal["device", "host"]

_LINE_END = re.compile(rb"\r\n?|\n")
_CONTINUATION_BYTES = bytes(range(0x80, 0xC0))
_BLOCK = 4096
"""Code points are counted once every this many bytes, so that a column costs the same on any line."""

_CONTROL = pattern(rb"[\x00-\x08\x0e-\x19\x1c-\x1f\x7f]")
# Windows-1252 where it is defined (typographic quotes); its five holes stay the control characters of Latin-1.
_FROM_1252 = {b: ord(bytes([b]).decode("cp1252")) for b in range(0x80, 0xA0) if b not in (0x81, 0x8D, 0x8F, 0x90, 0x9D)}
_TO_1252 = {point: byte for byte, point in _FROM_1252.items()}


class Decoded(NamedTuple):
    """``raw`` is UTF-8 without a byte order mark; ``encoding`` and ``bom`` say how to write the file back."""

    raw: bytes
    encoding: str
    bom: bytes
    error: str | None


def decode(data: bytes) -> Decoded:
    """Decode a file: UTF-8, UTF-16 or UTF-32 by their marks, else UTF-8, else Windows-1252 where it looks like text."""
    for bom, encoding in (
        (b"\xef\xbb\xbf", "utf-8"),
        (b"\xff\xfe\x00\x00", "utf-32-le"),
        (b"\x00\x00\xfe\xff", "utf-32-be"),
        (b"\xff\xfe", "utf-16-le"),
        (b"\xfe\xff", "utf-16-be"),
    ):
        if data.startswith(bom):
            body = data[len(bom) :]
            if encoding == "utf-8":
                data = body
                break
            try:
                text = body.decode(encoding)
            except UnicodeDecodeError as fault:
                why = f"not valid {encoding.upper()}: {fault.reason} at byte {fault.start + len(bom)}"
                return Decoded(b"", encoding, bom, why)
            if "\0" in text:
                return Decoded(b"", encoding, bom, "binary: it holds NUL characters")
            return Decoded(text.encode(), encoding, bom, None)
    else:
        bom = b""
    nul = data.find(0)
    if nul >= 0:
        return Decoded(b"", "binary", bom, f"binary: it holds a NUL at byte {nul + len(bom)}")
    if data.isascii():
        return Decoded(data, "utf-8", bom, None)
    try:
        data.decode()
        return Decoded(data, "utf-8", bom, None)
    except UnicodeDecodeError as fault:
        if bom:
            return Decoded(b"", "utf-8", bom, f"not valid UTF-8: {fault.reason} at byte {fault.start + len(bom)}")
        if _CONTROL.search(data):
            return Decoded(b"", "binary", bom, f"neither UTF-8 nor text: {fault.reason} at byte {fault.start}")
    return Decoded(data.decode("latin-1").translate(_FROM_1252).encode(), "cp1252", bom, None)


def encode(text: str, decoded: Decoded) -> bytes:
    """The way back from :func:`decode`: a text in the encoding, and with the mark, that the file had."""
    if decoded.encoding != "cp1252":
        return decoded.bom + text.encode(decoded.encoding)
    return text.translate(_TO_1252).encode("latin-1", "replace")


class MacroUse(NamedTuple):
    """The use of a macro in a file: ``start``/``end`` in ``raw``, the name through the closing parenthesis."""

    name: str
    start: int
    end: int
    macro: Macro

    @property
    def body(self) -> Span | None:
        """Where the macro is defined (its ``#define`` line); None where the configuration defines it."""
        file = self.macro.file
        return file.raw_span(self.macro.start, self.macro.end) if file is not None else None


class SourceFile:
    """One file in one reading.

    ``path`` is absolute. ``raw`` is what the user sees, as UTF-8. ``text`` is what is parsed:
    directives and inactive branches blanked, macro uses expanded; both are empty where the file
    could not be read, and then ``error`` says why. Everything but ``raw`` is computed on first use.
    """

    __slots__ = (
        "_blocks", "_declarations", "_expansion", "_host", "_includes", "_lines", "_macros", "_oracle", "_other",
        "_scan", "_tree", "bom", "encoding", "env", "error", "path", "raw", "reading",
    )  # fmt: skip

    def __init__(
        self, path: str, data: bytes, env: preprocess.Environment | None = None, reading: Reading = "device",
        error: str | None = None,
    ) -> None:  # fmt: skip
        self.path = path
        self.raw, self.encoding, self.bom, problem = decode(data)
        self.error = error or problem
        self.env = env if env is not None else preprocess.Environment()
        self.reading: Reading = reading
        self._scan: Scan | None = None
        self._expansion: Expansion | None = None
        self._lines: list[int] | None = None
        self._blocks: list[int] | None = None
        self._includes: list[SourceFile] | None = None
        self._macros: dict[str, Macro] | None = None
        self._tree: Tree | None = None
        self._declarations: Declarations | None = None
        self._host: SourceFile | None = None
        self._other: SourceFile | None = None
        self._oracle: Oracle | None = None

    def __repr__(self) -> str:
        return f"SourceFile({self.path!r}, {self.reading})"

    # Preprocessing

    @property
    def scan(self) -> Scan:
        """The directives of the file, followed through its includes."""
        if self._scan is None:
            self._scan = preprocess.scan_file(self)
        return self._scan

    @property
    def expansion(self) -> Expansion:
        if self._expansion is None:
            self._expansion = preprocess.expand(self.scan)
        return self._expansion

    @property
    def text(self) -> bytes:
        return self.expansion.text

    @property
    def includes(self) -> list[SourceFile]:
        """The project files it includes, in the order of their first ``#include``."""
        if self._includes is None:
            files = [self.env.file(path) for path in dict.fromkeys(self.scan.includes)]
            self._includes = [file.host if self.reading == "host" else file for file in files]
        return self._includes

    @property
    def macros(self) -> dict[str, Macro]:
        """Macros defined at the end of the file, those of its includes among them; not the predefined ones."""
        if self._macros is None:
            table = self.scan.table
            self._macros = {name.decode(): macro for name, macro in table.items() if not macro.predefined}
        return self._macros

    @property
    def gaps(self) -> list[Gap]:
        """Regions that preprocessing could not make sense of, as ranges of ``raw``, sorted."""
        return sorted(self.scan.gaps + self.expansion.gaps)

    @property
    def host(self) -> SourceFile:
        """The reading with ``__CUDA_ARCH__`` undefined: the file itself where that makes no difference."""
        if self._host is None:
            other = self.host_reading
            self._host = other if other is not self and other.text != self.text else self
        return self._host

    @property
    def host_reading(self) -> SourceFile:
        """The reading with ``__CUDA_ARCH__`` undefined, whether or not its text differs."""
        if self.reading == "host" or not self.scan.arch:
            return self
        if self._other is None:
            other = self._other = self._again("host")
            other.raw, other.encoding, other.bom = self.raw, self.encoding, self.bom
            other._lines, other._blocks, other._host = self._lines, self._blocks, other
        return self._other

    def _again(self, reading: Reading) -> SourceFile:
        """The file in another reading, without its bytes."""
        return SourceFile(self.path, b"", self.env, reading, self.error)

    # Positions

    def origin(self, start: int, end: int) -> tuple[int, int]:
        """The range of ``raw`` that [start, end) of ``text`` comes from.

        Text that a macro made maps to the whole use; an argument that was copied through maps to
        the argument; a range over both maps to the use.
        """
        return self.expansion.origin(start, end)

    def macro_use(self, offset: int) -> MacroUse | None:
        """The macro use whose expansion holds ``offset`` of ``text``: of several around one another the innermost that
        the file itself has."""
        use = self.expansion.use(offset)
        return use and MacroUse(use[0].decode(), use[1], use[2], use[3])

    def editable(self, start: int, end: int) -> Span | None:
        """What to replace in the file to replace [start, end) of ``text``; None where a macro made one of its ends."""
        first, last = self.expansion.edge(start), self.expansion.edge(end)
        return None if first is None or last is None else self.raw_span(first, last)

    def replacing(self, start: int, end: int, new: str) -> Edit | None:
        """The edit after which ``new`` stands for [start, end) of ``text``; None where a macro made one of its ends."""
        first, last = self.expansion.edge(start), self.expansion.edge(end)
        return None if first is None or last is None else self.edit(first, last, new)

    def edit(self, start: int, end: int, new: str) -> Edit | None:
        """The edit after which ``new`` stands for [start, end) of ``raw``; None where it cannot be written there."""
        return Edit(self.raw_span(start, end), new)

    def span(self, start: int, end: int) -> Span:
        """Where the user sees [start, end) of ``text``."""
        return self.raw_span(*self.origin(start, end))

    def raw_span(self, start: int, end: int) -> Span:
        """Where the user sees [start, end) of ``raw``."""
        return Span(self.path, *self.position(start), *self.position(end))

    def position(self, offset: int) -> tuple[int, int]:
        """Line and column (1-based, the column in code points) of an offset of ``raw``."""
        lines = self._lines
        if lines is None:
            lines = self._lines = [0, *[match.end() for match in _LINE_END.finditer(self.raw)]]
        offset = min(max(offset, 0), len(self.raw))
        line = bisect_right(lines, offset)
        return line, self._points(offset) - self._points(lines[line - 1]) + 1

    def _points(self, offset: int) -> int:
        """Code points before ``offset``."""
        blocks = self._blocks
        if blocks is None:
            blocks = self._blocks = []
            if not self.raw.isascii():
                total = 0
                for at in range(0, len(self.raw) + 1, _BLOCK):
                    blocks.append(total)
                    total += len(self.raw[at : at + _BLOCK].translate(None, _CONTINUATION_BYTES))
        if not blocks:
            return offset
        block = offset // _BLOCK
        return blocks[block] + len(self.raw[block * _BLOCK : offset].translate(None, _CONTINUATION_BYTES))

    # Syntax

    @property
    def tree(self) -> Tree:
        if self._tree is None:
            from cudalint.frontend.parse import parse

            self._tree = parse(self.text)
        return self._tree

    @property
    def declarations(self) -> Declarations:
        if self._declarations is None:
            from cudalint.frontend.declare import declare

            self._declarations = declare(self)
        return self._declarations

    @property
    def oracle(self) -> Oracle:
        """What libclang makes of the file: for types that nothing else settles."""
        if self._oracle is None:
            from cudalint.frontend.oracle import Oracle

            self._oracle = Oracle(self)
        return self._oracle


MAX_SOURCE = 4 << 20
"""Bytes of the largest file that is read. What people write is far smaller."""


def _opened(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # a pipe without a writer must not hold us up


def load(path: str, env: preprocess.Environment | None = None) -> SourceFile:
    """Read a file; one that cannot be read comes back empty, with ``error`` set."""
    data, error = read(path)
    return SourceFile(os.path.abspath(path), data, env, error=error)


def read(path: str, most: int = MAX_SOURCE) -> tuple[bytes, str | None]:
    """The bytes of a file of at most ``most``, or none and why it cannot be read."""
    try:
        with open(path, "rb", opener=_opened) as stream:
            state = os.fstat(stream.fileno())
            if not stat.S_ISREG(state.st_mode):
                return b"", "is no ordinary file: pipe its text in with --stdin-filename NAME"
            if state.st_size > most:
                size = f"{state.st_size / (1 << 20):.1f} MiB"
                return b"", f"has {size}, and no more than {most >> 20} MiB are read: is it generated?"
            return stream.read(), None
    except OSError as fault:
        return b"", f"cannot be read: {fault.strerror or fault}"


_CUDA = pattern(rb"(?<!\w)__(?:global|device|shared|constant)__\b|(?<!<)<<<(?!<)[^;{}]*?(?<!>)>>>\s*\(")
_SIGNS = (b"__global__", b"__device__", b"<<<", b"__shared__", b"__constant__")
_CUDA_INCLUDE = pattern(
    rb"""\#[ \t]*include[ \t]*[<"]
    (?:cuda\.h|cuda_runtime|device_launch_parameters|cooperative_groups|cuda_fp16|cuda_bf16|cub/|thrust/|hip/hip_runtime)""",
    re.VERBOSE,
)
_ASIDE = pattern(
    rb"""//(?:\\\r?\n|[^\n])*|/\*[\s\S]*?(?:\*/|\Z)"""
    rb"""|"(?:[^"\\\n]|\\[\s\S])*"|(?<![0-9a-fA-F])'(?:[^'\\\n]|\\[\s\S])*'"""
)


def without_asides(text: bytes) -> bytes:
    """A text without its comments, strings and characters."""
    return _ASIDE.sub(b" ", text)


def without_comments(text: bytes) -> bytes:
    return _ASIDE.sub(lambda match: b" " if match[0][:1] == b"/" else match[0], text)


def holds_cuda(head: bytes) -> bool:
    """Whether the beginning of a header or source shows that it is CUDA: kernels, launches or the runtime's headers."""
    if any(sign in head for sign in _SIGNS) and _CUDA.search(without_asides(head)) is not None:
        return True
    return any(not head[head.rfind(b"\n", 0, at) + 1 : at].strip() for at in map(_start, _CUDA_INCLUDE.finditer(head)))


def _start(match: re.Match[bytes]) -> int:
    return match.start()


# Files that hold CUDA texts, which are files of their own to us: see embedded.py

NOTEBOOK, PYTHON = ".ipynb", ".py"
HOSTS = (NOTEBOOK, PYTHON)
MAX_HOST = 64 << 20
"""Bytes of the largest host that is read: the pictures of a notebook are in it."""

ENTRIES = ("RawKernel", "RawModule", "SourceModule", "load_inline", "nvrtcCreateProgram", "Program")
"""Functions of Python libraries that take CUDA, by the last part of their names."""
BODIES = ("ElementwiseKernel", "ReductionKernel")
"""Those that take the body of a kernel, which shows by nothing else that it is CUDA."""
_BODY_NAMES = [name.encode() for name in BODIES]
_ENTRY = pattern(rb"(?:%s)\b" % "|".join(ENTRIES).encode())
_HOST = re.compile(r"\.(?:ipynb|py)(?=/)" if os.sep == "/" else r"\.(?:ipynb|py)(?=[\\/])", re.IGNORECASE)


def is_host(path: str) -> bool:
    return path.lower().endswith(HOSTS)


def host_of(path: str) -> str | None:
    """The file that holds the text of this path; None for a path that is a file's own."""
    for match in _HOST.finditer(path):
        host = path[: match.end()]
        if not os.path.isdir(host):
            return host
    return None


def may_hold_cuda(path: str, data: bytes) -> bool:
    """Whether a notebook or a Python file is worth a look: it costs nothing to say so of one that is not."""
    return takes_cuda(data) or (b"__global__" in data and path.lower().endswith(NOTEBOOK) and b"%%" in data)


def takes_cuda(python: bytes) -> bool:
    """Whether Python may give CUDA to a library that compiles it."""
    if b"__global__" in python and _ENTRY.search(python) is not None:
        return True
    if b"Kernel" not in python:
        return False
    return any(body in python for body in _BODY_NAMES) and (b"cupy" in python or b"pycuda" in python)
