"""A kernel's slice: the part of its project that it is made of, as one source that NVRTC compiles by itself.

Macros of the project are expanded already, its headers are inlined, and of all their declarations only
those are kept whose names the kernel, or what it uses, mentions. No host function is among them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cudalint.confirm.prelude import PRELUDE
from cudalint.facts.calls import PURE
from cudalint.frontend.declare import syntax_of
from cudalint.lazy import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tree_sitter import Node

    from cudalint.confirm.watch import Edit, Watch
    from cudalint.facts.model import Kernel
    from cudalint.frontend.declare import Declarations
    from cudalint.frontend.source import SourceFile
    from cudalint.ir.nodes import FunctionDecl
    from cudalint.ir.types import Type

_WORD = re.compile(rb"[A-Za-z_]\w*")
_NO_NAME = re.compile('[\\x00-\\x1f"\\ud800-\\udfff]')
"""What cannot stand in the name of a line directive."""
_INCLUDE = re.compile(rb"""^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]""", re.MULTILINE)
#: Headers of the toolkit that device code needs; of the others the prelude has what kernels use.
_DEVICE_HEADERS = re.compile(
    rb"cooperative_groups(?:/\w+)*\.h|cuda_(?:fp16|bf16|fp8|pipeline|awbarrier)\.h|cub/[\w/.]+|cuda/[\w/.]+|mma\.h"
    rb"|math_constants\.h|curand_kernel\.h|cuComplex\.h|cuda_pipeline_primitives\.h"
)
#: The word without which the names of such a header are not used.
_NEEDS = (("cub/", "cub"), ("cuda/", "cuda"), ("cooperative_groups", "cooperative_groups"), ("mma.h", "nvcuda"))
#: What blocks and warps do together: each has a header, while the one of them all takes in what launches from the host.
_CUB = re.compile(
    r"\b(Block|Warp)(AdjacentDifference|Discontinuity|Exchange|Histogram|Load|MergeSort|RadixRank|RadixSort|Reduce"
    r"|RunLengthDecode|Scan|Shuffle|Store)\b"
)
_OUTERMOST = ("translation_unit", "declaration_list")


class Slice(NamedTuple):
    """``name`` is the expression by which the kernel is found in ``source``; ``watched`` is the body with the edits of
    a :class:`~cudalint.confirm.watch.Watch`."""

    includes: str
    body: str
    name: str
    watched: str | None = None

    @property
    def source(self) -> str:
        """What is compiled."""
        return self.includes + PRELUDE + self.body


class _Piece(NamedTuple):
    """One declaration at namespace scope, with the heads of the namespaces and linkages around it."""

    file: SourceFile
    start: int
    end: int
    around: tuple[str, ...]


def slice_of(kernel: Kernel, watch: Watch | None = None) -> Slice:
    """The slice of a kernel, with the expression that names the instance of a template or one of several overloads."""
    files = _in_order(kernel.decl.file)
    offered: dict[bytes, list[_Piece]] = {}
    always: list[_Piece] = []
    for file in files:
        _offer(file.declarations, offered, always)
    wanted: dict[tuple[int, int], _Piece] = {}
    order = {id(file): number for number, file in enumerate(files)}
    first = _piece(kernel.decl.file, syntax_of(kernel.decl).node)
    name = _name(kernel, files)
    stack = [first, *always, *(piece for word in _WORD.findall(name.encode()) for piece in offered.get(word, ()))]
    while stack:
        piece = stack.pop()
        key = (order[id(piece.file)], piece.start)
        if key not in wanted:
            wanted[key] = piece
            for word in set(_WORD.findall(piece.file.text[piece.start : piece.end])):
                stack.extend(offered.get(word, ()))
    pieces = [piece for _, piece in sorted(wanted.items())]
    body, watched = "".join(_shown(piece, {}) for piece in pieces), None
    if watch is not None:
        edits = watch.edits()
        watched = "".join(_shown(piece, edits) for piece in pieces)
    return Slice("".join(_includes(files, body)), body, name, watched)


def _in_order(file: SourceFile) -> list[SourceFile]:
    """The file and what it includes, each after what it includes itself."""
    done: dict[int, SourceFile] = {}
    stack: list[tuple[SourceFile, bool]] = [(file, False)]
    seen: set[int] = set()
    while stack:
        current, ready = stack.pop()
        if ready:
            done[id(current)] = current
        elif id(current) not in seen:
            seen.add(id(current))
            stack.append((current, True))
            stack.extend((each, False) for each in reversed(current.includes))
    return list(done.values())


def _offer(declarations: Declarations, offered: dict[bytes, list[_Piece]], always: list[_Piece]) -> None:
    """Files the declarations by the names that they make known; using directives are wanted in any case."""
    file = declarations.file

    def offer(name: str, node: Node) -> None:
        offered.setdefault(name.encode(), []).append(_piece(file, node))

    for function in declarations.functions:
        if function.kind != "host":
            offer(function.owner.rpartition("::")[2] or function.name, syntax_of(function).node)
            offer(function.name, syntax_of(function).node)
    for type_ in declarations.types.values():
        offer(type_.name, type_.node)
        for name in next(iter(type_.constants.values()), ()):
            offer(name, type_.node)
    for specialisations in declarations.specialisations.values():
        for type_ in specialisations:
            offer(type_.name, type_.node)
    for value in declarations.values.values():
        offer(value.name, value.node)
    stack = [file.tree.root_node]
    while stack:
        node = stack.pop()
        if node.type in ("using_declaration", "namespace_alias_definition"):
            text = file.text[node.start_byte : node.end_byte]
            if b"std" not in _WORD.findall(text) or b"cuda" in text:
                always.append(_piece(file, node))
        elif node.type in ("translation_unit", "namespace_definition", "linkage_specification", "declaration_list"):
            stack.extend(node.children)


def _piece(file: SourceFile, node: Node) -> _Piece:
    """The declaration at namespace scope that holds ``node``."""
    while node.parent is not None and node.parent.type not in _OUTERMOST:
        node = node.parent
    around: list[str] = []
    parent = node.parent
    while parent is not None:
        if parent.type in ("namespace_definition", "linkage_specification"):
            body = parent.child_by_field_name("body")
            if body is not None:
                around.append(file.text[parent.start_byte : body.start_byte].decode("utf-8", "replace").strip())
        parent = parent.parent
    end = node.end_byte
    while file.text[end : end + 1] in (b" ", b";"):
        end += 1
    return _Piece(file, node.start_byte, end, tuple(around[::-1]))


def _shown(piece: _Piece, edits: Mapping[int, tuple[SourceFile, list[Edit]]]) -> str:
    parts, done = [], piece.start
    for start, end, words in edits.get(id(piece.file), (None, []))[1]:
        if piece.start <= start and end <= piece.end:
            parts += [piece.file.text[done:start], words.encode()]
            done = end
    text = b"".join([*parts, piece.file.text[done : piece.end]]).decode("utf-8", "replace")
    line = piece.file.span(piece.start, piece.start).line
    heads = "".join(f"{head} {{ " for head in piece.around)
    name = _NO_NAME.sub("?", piece.file.path.replace("\\", "/").rpartition("/")[2])
    return f'{heads}\n#line {line} "{name}"\n{text}\n{"}" * len(piece.around)}\n'


def _includes(files: Iterable[SourceFile], body: str) -> Iterator[str]:
    """The includes of the toolkit's headers that a text may need, in the order of the files that have them."""
    words = set(re.findall(r"\w+", body))
    found = dict.fromkeys(
        name.decode() for file in files for name in _INCLUDE.findall(file.raw) if _DEVICE_HEADERS.fullmatch(name)
    )
    for name in found:
        if all(word in words for start, word in _NEEDS if name.startswith(start)):
            parts = _CUB.findall(body) if name == "cub/cub.cuh" else ()
            snake = ((level.lower(), re.sub(r"(?=[A-Z])", "_", what).lower()) for level, what in parts)
            own = [f"cub/{level}/{level}{what}.cuh" for level, what in dict.fromkeys(snake)]
            for each in [*own, "cub/thread/thread_operators.cuh"] if own else [name]:
                yield f"#include <{each}>\n"


def _name(kernel: Kernel, files: Sequence[SourceFile]) -> str:
    """``ns::kernel<float, 256>``; of several functions of one name the one with these parameters."""
    decl = kernel.decl
    if not decl.template:
        same = {(f.file.path, f.start) for file in files for f in file.declarations.functions
                if f.qualname == decl.qualname and (f.has_body or f.kind != "kernel")}  # fmt: skip
        if len(same) < 2 and decl.name not in PURE:
            return kernel.name
        parameters = _parameters(decl)
        return f"(void (*){parameters}){kernel.name}" if parameters else kernel.name
    bound = dict(kernel.bindings)
    usual = {var.name: var.usual for var in kernel.function.template}
    defaults = decl.file.text[syntax_of(decl).node.start_byte : decl.name_start].decode("utf-8", "replace")
    arguments = []
    for name, kind in decl.template:
        value: Type | int | str | None = bound.get(name)
        if value is None:
            if re.search(rf"\b{re.escape(name)}\s*=", defaults):
                break  # it and all after it have defaults
            value = "float" if kind == "type" else next(iter(usual.get(name, ())), 2)
        arguments.append(str(value).replace("?", "2"))  # an open number of a class is any
    return f"{kernel.name}<{', '.join(arguments)}>"


def _parameters(decl: FunctionDecl) -> str:
    """The parameters of a function as its text has them, on one line."""
    text = decl.file.text[decl.name_end : decl.end].decode("utf-8", "replace")
    depth = 0
    for at, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if letter == ")" and depth == 0:
            return " ".join(text[: at + 1].split())
    return ""


__all__ = ["Slice", "slice_of"]
