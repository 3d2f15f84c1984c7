"""A kernel's slice: the part of its project that it is made of, as one source that NVRTC compiles by itself.

Macros of the project are expanded already, its headers are inlined, and of all their declarations only
those are kept whose names the kernel, or what it uses, mentions. No host function is among them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from cudalint.confirm.prelude import PRELUDE
from cudalint.frontend.declare import syntax_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tree_sitter import Node

    from cudalint.facts.model import Kernel
    from cudalint.frontend.declare import Declarations
    from cudalint.frontend.source import SourceFile

_WORD = re.compile(rb"[A-Za-z_]\w*")
_INCLUDE = re.compile(rb"""^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]""", re.MULTILINE)
#: Headers of the toolkit that device code needs; of the others the prelude has what kernels use.
_DEVICE_HEADERS = re.compile(
    rb"cooperative_groups(?:/\w+)*\.h|cuda_(?:fp16|bf16|fp8|pipeline|awbarrier)\.h|cub/[\w/.]+|cuda/[\w/.]+|mma\.h"
    rb"|math_constants\.h|curand_kernel\.h|cuComplex\.h|cuda_pipeline_primitives\.h"
)
_OUTERMOST = ("translation_unit", "declaration_list")


class Slice(NamedTuple):
    """``source`` is what is compiled, ``name`` the expression by which the kernel is found in it."""

    source: str
    name: str


class _Piece(NamedTuple):
    """One declaration at namespace scope, with the heads of the namespaces and linkages around it."""

    file: SourceFile
    start: int
    end: int
    around: tuple[str, ...]


def slice_of(kernel: Kernel) -> Slice:
    """The slice of a kernel, with the expression that names the instance of a template."""
    files = _in_order(kernel.decl.file)
    offered: dict[bytes, list[_Piece]] = {}
    always: list[_Piece] = []
    for file in files:
        _offer(file.declarations, offered, always)
    wanted: dict[tuple[int, int], _Piece] = {}
    order = {id(file): number for number, file in enumerate(files)}
    first = _piece(kernel.decl.file, syntax_of(kernel.decl).node)
    stack = [first, *always]
    while stack:
        piece = stack.pop()
        key = (order[id(piece.file)], piece.start)
        if key not in wanted:
            wanted[key] = piece
            for word in set(_WORD.findall(piece.file.text[piece.start : piece.end])):
                stack.extend(offered.get(word, ()))
    body = "".join(_shown(piece) for _, piece in sorted(wanted.items()))
    return Slice("".join([*_includes(files), PRELUDE, body]), _name(kernel))


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
        for name in type_.constants or ():
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


def _shown(piece: _Piece) -> str:
    text = piece.file.text[piece.start : piece.end].decode("utf-8", "replace")
    line = piece.file.span(piece.start, piece.start).line
    heads = "".join(f"{head} {{ " for head in piece.around)
    path = piece.file.path.replace("\\", "/").rpartition("/")[2]
    return f'{heads}\n#line {line} "{path}"\n{text}\n{"}" * len(piece.around)}\n'


def _includes(files: Iterable[SourceFile]) -> Iterator[str]:
    """The includes of the toolkit's headers, in the order of the files that have them."""
    found = dict.fromkeys(
        name.decode() for file in files for name in _INCLUDE.findall(file.raw) if _DEVICE_HEADERS.fullmatch(name)
    )
    for name in found:
        yield f"#include <{name}>\n"


def _name(kernel: Kernel) -> str:
    """``ns::kernel<float, 256>``."""
    if not kernel.decl.template:
        return kernel.name
    bound = dict(kernel.bindings)
    arguments = []
    for name, _ in kernel.decl.template:
        value = bound.get(name)
        if value is None:
            break  # the rest has defaults, or is deduced and cannot be named
        arguments.append(str(value))
    return f"{kernel.name}<{', '.join(arguments)}>"


__all__ = ["Slice", "slice_of"]
