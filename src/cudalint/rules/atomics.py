"""The repair of CL308: an update made atomic.

Imported where a finding is made: a run without findings needs none of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudalint.ir import nodes as ir
from cudalint.ir.types import Float, Int
from cudalint.rules import edits
from cudalint.rules.draft import EditDraft, FixDraft

if TYPE_CHECKING:
    from cudalint.facts.events import Access
    from cudalint.ir.types import Type

_FUNCTIONS = {"+": "atomicAdd", "-": "atomicSub", "&": "atomicAnd", "|": "atomicOr", "^": "atomicXor"}


def atomic(write: Access) -> FixDraft | None:
    """``x += v;``, ``x = x + v;`` or ``++x;`` as a call of an atomic function, where the type has one."""
    body = edits.body_of(write.fn)
    node = body.parent(write.node)
    statement = body.statement(write.node)
    if not isinstance(statement, ir.ExprStmt) or statement.expr is not node or not body.lone(node.start, node.end):
        return None
    target = body.source(write.node)
    if isinstance(node, ir.IncDec):
        op, value, type_ = node.op, "1", node.target.type
    elif isinstance(node, ir.Assign):
        added: ir.Expr = node.value
        op = node.op
        if not op:
            if not isinstance(added, ir.Binary) or body.source(added.left) != target:
                return None
            op, added = added.op, added.right
        value, type_ = body.source(added), node.target.type
        if not _fits(added.type, type_):
            return None
        if op == "-" and isinstance(type_, Float):
            op, value = "+", f"-{value}" if isinstance(added, (ir.Ref, ir.Index, ir.Const)) else f"-({value})"
    else:
        return None
    if not _has_atomics(type_, op) or b"volatile" in body.text[write.fn.start : write.fn.end]:
        return None
    place = target[1:].strip() if target.startswith("*") else f"&{target}"
    text = f"{_FUNCTIONS[op]}({place}, {value})"
    edit = EditDraft(body.file, node.start, node.end, text)
    return FixDraft(True, f"make it an `{_FUNCTIONS[op]}`", (edit,))


def _has_atomics(type_: Type, op: str) -> bool:
    if isinstance(type_, Float):
        return op == "+" and type_.bits in (32, 64)
    return isinstance(type_, Int) and type_.bits == 32 and op in _FUNCTIONS


def _fits(value: Type, type_: Type) -> bool:
    """Whether adding a value of one type to the other is done in the other."""
    if isinstance(type_, Float):
        return (isinstance(value, Float) and value.bits <= type_.bits) or isinstance(value, Int)
    return isinstance(value, Int) and isinstance(type_, Int) and value.bits <= type_.bits


__all__ = ["atomic"]
