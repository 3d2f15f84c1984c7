"""The repair of CL401: the identity of an operator, written as its type has it.

Imported where a finding is made: a run without findings needs none of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudalint.ir import nodes as ir
from cudalint.ir.types import Float, Int
from cudalint.rules import edits
from cudalint.rules.draft import EditDraft, FixDraft

if TYPE_CHECKING:
    from cudalint.ir.nodes import Function
    from cudalint.ir.types import Type

_SIGNS = {"max": "-", "min": ""}


def identity(op: str, fn: Function, start: int, end: int, type_: Type | None, *, filled: bool) -> FixDraft | None:
    """The constant at a place of a function replaced. Where data out of range is ``filled``, what is in range stays as
    it is; a maximum that starts elsewhere may have been meant to be at least that."""
    if fn.within is not None and any(kind == "type" for _, kind in fn.within.template):
        return None  # another instance may have another type
    body = edits.body_of(fn)
    node = next((x for x in body.nodes if isinstance(x, ir.Expr) and (x.start, x.end) == (start, end)), None)
    while isinstance(node, (ir.Cast, ir.Unary)):
        node = node.operand
    text = _written(op, type_)
    if not isinstance(node, ir.Const) or text is None or not body.lone(start, end):
        return None
    return FixDraft(filled, f"use `{text}`", (EditDraft(body.file, start, end, text),))


def _written(op: str, type_: Type | None) -> str | None:
    if op in ("add", "mul"):
        number = "0" if op == "add" else "1"
        return f"{number}.0{'f' if type_.bits == 32 else ''}" if isinstance(type_, Float) else number
    if isinstance(type_, Float):
        return f"{_SIGNS[op]}INFINITY" if type_.bits in (32, 64) else None
    if not isinstance(type_, Int) or type_.bits not in (32, 64):
        return None
    suffix = ("" if type_.signed else "u") + ("ll" if type_.bits == 64 else "")
    return f"{type_.hi}{suffix}" if op == "min" else f"(-{type_.hi}{suffix} - 1)" if type_.signed else f"0{suffix}"


__all__ = ["identity"]
