"""Variables of a program or a class that hold what the device answered: no sizes of data, however they are spelled."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cudalint.facts.assigned import children
from cudalint.facts.calls import DEVICE_MEMBERS, DEVICE_QUERIES
from cudalint.ir import nodes as ir

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudalint.frontend.declare import Declarations


def answer(var: ir.Var, closure: list[Declarations]) -> ir.Expr | None:
    """What of the device a variable is given, where all functions in sight give it that alone: a member of its
    properties, or the call that asks for it."""
    given = list(_given(var, closure))
    return given[0] if given and None not in given else None


def _given(var: ir.Var, closure: list[Declarations]) -> Iterator[ir.Expr | None]:
    written = re.compile(rf"\b{re.escape(var.name)}\s*=[^=]|&\s*{re.escape(var.name)}\b")
    for declarations in closure:
        places = [match.start() for match in written.finditer(declarations.source)]
        functions = (
            [f for each in declarations.functions_by_name.values() for f in each if f.has_body] if places else []
        )
        for function in functions:
            if any(function.start <= place < function.end for place in places):
                stack: list[object] = [function.lower({}).body]
                while stack:
                    item = stack.pop()
                    stack.extend(children(item))
                    if isinstance(item, ir.Assign) and _is(item.target, var):
                        yield None if item.op else _property(item.value)
                    elif isinstance(item, ir.Call) and any(
                        isinstance(x, ir.AddrOf) and _is(x.operand, var) for x in item.args
                    ):
                        yield item if item.name in DEVICE_QUERIES else None


def _is(node: ir.Expr, var: ir.Var) -> bool:
    return isinstance(node, ir.Ref) and node.var.name == var.name and node.var.kind == var.kind


def _property(node: ir.Expr) -> ir.Expr | None:
    while isinstance(node, ir.Cast):
        node = node.operand
    return node if isinstance(node, ir.Member) and node.field in DEVICE_MEMBERS else None
