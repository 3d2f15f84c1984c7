"""Whether a loop still gets anywhere: what decides when it ends, and whether a pass changed any of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cudalint.ir import nodes as ir
from cudalint.ir.types import Ptr, Struct
from cudalint.sim.loops import below, is_computed
from cudalint.sim.values import Unsupported

if TYPE_CHECKING:
    from cudalint.sim.code import Code
    from cudalint.sim.frame import Frame


class Control:
    """What a loop's tests depend on: ``variables`` from before the loop, and whether memory is among it."""

    __slots__ = ("memory", "variables")

    def __init__(self, code: Code, node: ir.Stmt) -> None:
        nodes = below(node)
        self.memory = False
        # The loop's own counter is from before it.
        body = node.body if isinstance(node, (ir.For, ir.While)) else node
        declared = {n.var for n in below(body) if isinstance(n, ir.VarDecl)}
        stack: list[Any] = [
            n.cond for n in nodes if isinstance(n, (ir.If, ir.For, ir.While, ir.Switch, ir.Cond)) and n.cond is not None
        ]
        # What is assigned under `a && b` or through a call counts as decided by memory.
        assigned: dict[ir.Var, list[ir.Expr]] = {}
        for n in nodes:
            if isinstance(n, ir.VarDecl) and n.init is not None:
                assigned.setdefault(n.var, []).append(n.init)
            elif isinstance(n, ir.Assign):
                root = _root(n.target)
                if root is not None:
                    assigned.setdefault(root, []).append(n.value)
        seen: set[ir.Var] = set()
        while stack:
            for item in below(stack.pop()):
                if isinstance(item, ir.Ref):
                    var = item.var
                    if var.kind in ("local", "param") and not var.ref and var not in code.in_memory:
                        if var not in seen:
                            seen.add(var)
                            stack.extend(assigned.get(var, ()))
                    elif not var.const:
                        self.memory = True
                elif (
                    (isinstance(item, ir.Index) and isinstance(item.base.type, (Ptr, Struct)))
                    or isinstance(item, ir.Index)
                    or (isinstance(item, ir.Call) and not is_computed(item))
                ):
                    self.memory = True
        by_reference = {
            arg.var
            for n in nodes
            if isinstance(n, ir.Call) and n.target is not None
            for arg in n.args
            if isinstance(arg, ir.Ref)
        }
        self.memory = self.memory or bool(by_reference & seen & set(assigned))
        self.variables = [var for var in seen if var not in declared]

    def state(self, f: Frame) -> list[Any] | None:
        """The values that decide, in the active lanes; None where they cannot be read."""
        try:
            return [f.read(var) for var in self.variables if var in f.vars]
        except Unsupported:
            return None

    def unchanged(self, before: list[Any] | None, f: Frame) -> bool:
        after = self.state(f)
        if before is None or after is None or len(before) != len(after):
            return False
        return all(_equal(a, b) for a, b in zip(before, after))


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, (np.ndarray, np.generic)) and isinstance(b, (np.ndarray, np.generic)):
        return np.shape(a) == np.shape(b) and bool(np.array_equal(a, b, equal_nan=a.dtype.kind == "f"))
    if type(a) is dict and type(b) is dict:
        return a.keys() == b.keys() and all(_equal(a[n], b[n]) for n in a)
    return a is b


def _root(node: ir.Expr) -> ir.Var | None:
    while isinstance(node, ir.Member):
        node = node.base
    return node.var if isinstance(node, ir.Ref) else None
