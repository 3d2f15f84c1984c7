"""Walks over IR: the children of a node, and which variables a loop assigns."""

from __future__ import annotations

from typing import Any

from cudalint.frontend.calls import signature
from cudalint.ir import nodes as ir
from cudalint.ir.types import Struct


def _root(node: ir.Expr) -> ir.Var | None:
    while isinstance(node, (ir.Member, ir.Cast)):
        node = node.base if isinstance(node, ir.Member) else node.operand
    if isinstance(node, ir.Index) and isinstance(node.base, ir.Ref) and isinstance(node.base.var.type, Struct):
        return node.base.var
    return node.var if isinstance(node, ir.Ref) else None


_CHILDREN: dict[type, tuple[str, ...]] = {
    ir.Member: ("base",), ir.Index: ("base", "index"), ir.AddrOf: ("operand",), ir.Unary: ("operand",),
    ir.Binary: ("left", "right"), ir.Logical: ("left", "right"), ir.Cond: ("cond", "then", "other"),
    ir.Cast: ("operand",), ir.Assign: ("target", "value"), ir.IncDec: ("target",), ir.Comma: ("left", "right"),
    ir.VarDecl: ("init",), ir.ExprStmt: ("expr",), ir.If: ("cond", "then", "other"),
    ir.For: ("cond", "step", "body"), ir.While: ("cond", "body"), ir.RangeFor: ("range", "body"),
    ir.Switch: ("cond",), ir.Return: ("value",),
}  # fmt: skip


def children(node: Any) -> list[Any]:
    """The direct children of an IR node (expressions and statements), in source order."""
    kind = type(node)
    found = [c for c in (getattr(node, name) for name in _CHILDREN.get(kind, ())) if c is not None]
    if kind is ir.Block:
        found = node.body
    elif kind is ir.For:
        found = [*node.init, *found]
    elif kind is ir.Switch:
        for case in node.cases:
            found = [*found, *case.labels, *case.body]
    elif kind is ir.Call:
        found = [c for c in (node.receiver, node.callee, *node.args) if c is not None]
    elif kind is ir.Construct:
        found = node.args
    elif kind is ir.Launch:
        found = [c for c in (node.grid, node.block, node.shared, node.stream, *(node.args or ())) if c is not None]
    elif kind is ir.Lambda:
        found = [node.function.body]
    return found


def changed_objects(node: Any, known: dict[int, set[ir.Var]]) -> set[ir.Var]:
    """The variables on which code calls visible methods that set members."""
    found: set[ir.Var] = set()
    stack = [node]
    while stack:
        item = stack.pop()
        stack.extend(children(item))
        if type(item) is ir.Call and item.receiver is not None and item.target is not None and item.target.has_body:
            root = _root(item.receiver)
            if root is not None and any(x.kind == "field" for x in assigned(item.target.lower({}).body, known)):
                found.add(root)
    return found


def exposed(node: Any) -> set[ir.Var]:
    """The variables that code names otherwise than to read an element of theirs, or how many there are."""
    found: set[ir.Var] = set()
    stack = [node]
    while stack:
        item = stack.pop()
        kind = type(item)
        if kind is ir.Ref:
            found.add(item.var)
        elif kind is ir.Index and type(item.base) is ir.Ref:
            stack.append(item.index)
        elif kind is ir.Call and type(item.receiver) is ir.Ref and item.name in ("size", "empty"):
            stack.extend(item.args)
        elif kind is ir.RangeFor and type(item.range) is ir.Ref and not item.var.ref:
            stack.append(item.body)
        else:
            stack.extend(children(item))
        target = item.operand if kind is ir.AddrOf else getattr(item, "target", None)
        if kind in (ir.AddrOf, ir.Assign, ir.IncDec) and type(target) is ir.Index and type(target.base) is ir.Ref:
            found.add(target.base.var)
    return found


_LOOPS = (ir.For, ir.While, ir.RangeFor)


def assigned(loop: Any, known: dict[int, set[ir.Var]]) -> set[ir.Var]:
    """The variables that a loop assigns; ``known`` holds the loops seen before, those inside it among them."""
    into = known.get(id(loop))
    if into is not None:
        return into
    into = known[id(loop)] = set()
    stack = children(loop)[:]
    while stack:
        item = stack.pop()
        kind = type(item)
        if kind in _LOOPS:
            into |= assigned(item, known)
            continue
        if kind is ir.Assign or kind is ir.IncDec:
            root = _root(item.target)
            if root is not None:
                into.add(root)
        elif kind is ir.Call:
            # By reference or through a pointer: `f(x)` with T& x, `f(&x)`.
            target = item.target
            refs = signature(target).refs if target is not None and target.has_body else ()
            for position, arg in enumerate(item.args):
                if type(arg) is ir.AddrOf:
                    root = _root(arg.operand)
                    if root is not None:
                        into.add(root)
                elif (position < len(refs) and refs[position]) or (
                    target is None and item.name.rsplit("::", 1)[-1] == "swap"
                ):
                    root = _root(arg)
                    if root is not None:
                        into.add(root)
        elif kind is ir.OpaqueStmt or kind is ir.Opaque:
            into.update(item.writes)
        stack.extend(children(item))
    return into
