"""Variables of a program or a class that are given one thing alone: what the device answered, which is no size of data
however it is spelled, or a number."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from cudalint.facts.assigned import children
from cudalint.facts.calls import DEVICE_MEMBERS, DEVICE_QUERIES
from cudalint.ir import nodes as ir

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from cudalint.frontend.declare import Declarations


def answer(var: ir.Var, closure: list[Declarations]) -> ir.Expr | None:
    """What of the device a variable is given, where all functions in sight give it that alone: a member of its
    properties, or the call that asks for it."""
    found = None
    for given in _given(var, closure):
        if given is None:
            return None
        found = found or given
    return found


def only_number(var: ir.Var, closure: list[Declarations]) -> int | None:
    """The number that a member is given in every place in sight that can change it: a block's size, set once by a
    constructor. What starts at 0 is filled in elsewhere."""
    found: set[int | None] = set()
    for declarations in closure:
        places = {*declarations.changes(var.name)}
        for function in _changing(places, declarations):
            for item in _given_in(function, var.name):
                if isinstance(item, ir.Assign) and not item.op and _is(item.target, var):
                    places.discard(item.target.start)
                    if not (isinstance(item.value, ir.Member) and item.value.field == var.name):  # copied
                        found.add(_constant(item.value))
            if len(found) > 1 or None in found:
                return None
        if places:
            return None
    value = found.pop() if found else None
    return value if value is not None and value > 0 else None


def _constant(node: ir.Expr) -> int | None:
    while isinstance(node, ir.Cast):
        node = node.operand
    return node.value if isinstance(node, ir.Const) and isinstance(node.value, int) else None


def _given(var: ir.Var, closure: list[Declarations]) -> Iterator[ir.Expr | None]:
    for declarations in closure:
        for function in _changing(declarations.changes(var.name), declarations):
            for item in _given_in(function, var.name):
                if isinstance(item, ir.Call):
                    if any(isinstance(x, ir.AddrOf) and _is(x.operand, var) for x in item.args):
                        yield item if item.name in DEVICE_QUERIES else None
                elif _is(item.target, var):
                    yield None if item.op else _property(item.value)


def _changing(places: Collection[int], declarations: Declarations) -> Iterator[ir.Function]:
    """The functions that some of ``places`` stand in."""
    ordered = sorted(places)
    if ordered:
        for function in declarations.functions:
            at = bisect_left(ordered, function.start)
            if function.has_body and at < len(ordered) and ordered[at] < function.end:
                yield function.lower({})


def _given_in(function: ir.Function, name: str) -> Sequence[ir.Assign | ir.Call]:
    """The assignments to variables of a name, and the calls that get their address."""
    if function.given is None:
        function.given = {}
        stack: list[object] = [function.body]
        while stack:
            item = stack.pop()
            stack.extend(children(item))
            targets: list[ir.Expr] = []
            if isinstance(item, ir.Assign):
                targets = [item.target]
            elif isinstance(item, ir.Call):
                targets = [x.operand for x in item.args if isinstance(x, ir.AddrOf)]
            if isinstance(item, (ir.Assign, ir.Call)):
                for each in {x.var.name for x in targets if isinstance(x, ir.Ref)}:
                    function.given.setdefault(each, []).append(item)
    return function.given.get(name, ())


def _is(node: ir.Expr, var: ir.Var) -> bool:
    return isinstance(node, ir.Ref) and node.var.name == var.name and node.var.kind == var.kind


def _property(node: ir.Expr) -> ir.Expr | None:
    while isinstance(node, ir.Cast):
        node = node.operand
    return node if isinstance(node, ir.Member) and node.field in DEVICE_MEMBERS else None
