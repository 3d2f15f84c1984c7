"""tree-sitter-cuda, loaded when first needed, and the few things it must not see.

Everything here keeps offsets: what is masked is replaced by as many other bytes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cudalint.lazy import pattern

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tree_sitter import Node, Parser, Tree

_parser: Parser | None = None
_last: tuple[bytes, bytes] = (b"", b"")

# Comments would turn up as children anywhere; strings are matched so that what looks like a comment in them stays.
# Every alternative begins with a character of its own: so the search goes from one of those to the next.
_COMMENT = pattern(
    rb"""//(?:\\\r?\n|[^\n])*|/\*.*?(?:\*/|\Z)|"(?:\\.|[^"\\\n])*"|'(?<![0-9a-fA-F]')(?:\\.|[^'\\\n])*'"""
    rb"""|R"([^()\\\s]{0,16})\(.*?\)\1\"""",
    re.DOTALL,
)
_BLANKS = bytes(c if c in b"\r\n" else 32 for c in range(256))
# `struct __align__(16) S` and `extern __shared__ __align__(16) float s[]` are errors to the grammar, alignas is not.
_ALIGN = pattern(rb"\b__(?:builtin_)?align__(?=\s*\()")
# Attributes of kernels that the grammar does not know: of them only __launch_bounds__ matters to an analysis.
_ATTRIBUTES = (b"__cluster_dims__", b"__maxnreg__", b"__block_size__", b"_Pragma")
_ATTRIBUTE = pattern(rb"\b(?:" + b"|".join(_ATTRIBUTES) + rb")\s*\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)")
# `[=] __device__ (int i) { }`: the grammar has no place for execution spaces there.
_LAMBDA_SPACE = pattern(rb"\](?:\s*__(?:device|host)__)+(?=\s*[({])")
# `k<<<g, {32, 2}>>>()`: braces are an error in a launch's configuration, parentheses are not.
_BRACED_LAUNCH = re.compile(rb"<<<[^;<>]*?\{[^;<>]*?>>>")
# Calling conventions that expand to nothing on the platforms we model.
_ROUND = bytes.maketrans(b"{}", b"()")
_CONVENTIONS = (b"CUDART_CB", b"CUDARTAPI", b"CUDAAPI", b"__stdcall", b"__cdecl")
_CONVENTION = pattern(rb"\b(?:" + b"|".join(_CONVENTIONS) + rb")\b")
DEPTH = 200
"""How deep statements and expressions may nest before the rest is opaque."""


def _blank(match: re.Match[bytes]) -> bytes:
    return match[0].translate(_BLANKS)


def _blank_comment(match: re.Match[bytes]) -> bytes:
    found = match[0]
    return found.translate(_BLANKS) if found[:1] == b"/" else found


def masked(text: bytes) -> bytes:
    """``text`` without comments and without the spellings that the grammar lacks, of the same length."""
    global _last
    # A file is parsed and then declared: the second asks for the same.
    if _last[0] is not text:
        _last = (text, _masked(text))
    return _last[1]


def _masked(text: bytes) -> bytes:
    if b"//" in text or b"/*" in text:
        text = _COMMENT.sub(_blank_comment, text)
    if b"<<<" in text:
        text = _BRACED_LAUNCH.sub(lambda match: match[0].translate(_ROUND), text)
    if b"align__" in text:
        text = _ALIGN.sub(lambda match: b"alignas".ljust(len(match[0])), text)
    if any(name in text for name in _ATTRIBUTES):
        text = _ATTRIBUTE.sub(_blank, text)
    if b"__device__" in text or b"__host__" in text:
        text = _LAMBDA_SPACE.sub(lambda match: b"]" + match[0][1:].translate(_BLANKS), text)
    if any(name in text for name in _CONVENTIONS):
        text = _CONVENTION.sub(_blank, text)
    return text


def _get_parser() -> Parser:
    global _parser
    if _parser is None:
        import tree_sitter
        import tree_sitter_cuda

        _parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_cuda.language()))
    return _parser


def parse(text: bytes) -> Tree:
    """The tree of ``text``; never fails, what cannot be parsed is in ERROR nodes."""
    return _get_parser().parse(masked(text))


def parse_ranges(text: bytes, ranges: list[tuple[int, int]]) -> Node:
    """The root of a tree over ``ranges`` of ``text`` only, with offsets of the whole text."""
    from tree_sitter import Range

    parser = _get_parser()
    # Rows and columns are not used anywhere, so the points need not be true, only ordered.
    parser.included_ranges = [Range((0, start), (0, end), start, end) for start, end in ranges]
    try:
        return parser.parse(text).root_node
    finally:
        parser.included_ranges = []


def descendants(node: Node) -> Iterator[Node]:
    """``node`` and all below it in no particular order, without recursion."""
    stack = [node]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(node.children)


def comma_separated(node: Node) -> list[Node]:
    """The operands of a comma expression, or the node itself."""
    result = []
    while node.type == "comma_expression":
        result.append(node.children[0])
        node = node.children[-1]
    result.append(node)
    return result
