"""Variables of a program or a class that are given one thing alone: what the device answered, which is no size of data
however it is spelled, or a number."""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from typing import TYPE_CHECKING

from cudalint.facts.assigned import assigned, children
from cudalint.facts.calls import DEVICE_MEMBERS, DEVICE_QUERIES
from cudalint.frontend.fold import fold
from cudalint.frontend.lower import global_variable
from cudalint.ir import nodes as ir
from cudalint.ir.types import Int

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from cudalint.frontend.declare import Declarations, ValueDecl
    from cudalint.frontend.source import SourceFile

_MAX_NAMING = 20
"""Files that may name one variable; where there are more, it is not looked for what they do with it."""
numbers: dict[tuple[Declarations, str], int | None] = {}
"""What :func:`lasting` knows of variables, until files are forgotten."""


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


def lasting(var: ir.Var, file: SourceFile) -> int | None:
    """The number that a variable of the program begins with and keeps: nothing changes it in any file that can name
    it. What begins at 0 is filled in elsewhere."""
    declared = [
        decl
        for each in file.declarations.scope.closure
        for decl in each.values_by_name.get(var.name, ())
        if decl.lowered.get(()) is var
    ]
    if not declared:
        return None
    key = declared[0].declarations, declared[0].qualname
    if key not in numbers:
        numbers[key] = None  # an initialiser that names its own variable
        numbers[key] = _lasting(var, declared)
    return numbers[key]


def _lasting(var: ir.Var, declared: list[ValueDecl]) -> int | None:
    home = declared[0].declarations.file
    paths = {path for decl in declared for path in home.env.including(decl.declarations.file.path)}
    if not var.static:
        paths.update(home.env.siblings(os.path.dirname(home.path)))  # one may declare it for itself
    paths.difference_update(decl.declarations.file.path for decl in declared)
    word = re.compile(rf"\b{re.escape(var.name)}\b".encode())
    naming = [path for path in sorted(paths) if word.search(home.env.content(path))]
    if len(naming) > _MAX_NAMING:
        return None
    others = [x.declarations for x in map(home.env.file, naming) if x.error is None]
    everywhere = list(dict.fromkeys([*(decl.declarations for decl in declared), *others]))
    same = [x for each in everywhere for x in each.values_by_name.get(var.name, ()) if x.enum is None]
    defined = [(x, of) for x in same if x.qualname == declared[0].qualname and (of := global_variable(x)).init]
    if len(defined) != 1 or len({x.qualname for x in same}) != 1:
        return None
    decl, definition = defined[0]
    for each in everywhere:
        places = {*each.changes(var.name)} - ({definition.start} if each is decl.declarations else set())
        functions = list(_changing(places, each))
        if any(_is_changed(function, var.name) for function in functions):
            return None
        if any(not any(x.start <= at < x.end for x in functions) for at in places):
            return None  # outside of functions too, a variable's address can be taken
    given: dict[ir.Var, int] = {}
    for item in _inside(definition.init):
        if isinstance(item, ir.Ref) and not item.var.const:
            number = lasting(item.var, decl.declarations.file)
            if number is None:
                return None
            given[item.var] = number
    value = fold(definition.init, given=given)
    return definition.type.wrap(value) if value and value > 0 and isinstance(definition.type, Int) else None


def _is_changed(function: ir.Function, name: str) -> bool:
    """Whether a function sets a variable of the program, or hands it to others that may."""
    if any(x.name == name and x.kind == "global" for x in assigned(function.body, {})):
        return True
    for item in _inside(function.body):
        target = item.operand if isinstance(item, ir.AddrOf) else None
        if isinstance(item, ir.Binary) and item.op == ">>" and not isinstance(item.left.type, Int):
            target = item.right  # `std::cin >> n`
        if isinstance(target, ir.Ref) and target.var.name == name and target.var.kind == "global":
            return True
    return False


def _inside(node: object) -> Iterator[object]:
    stack = [node]
    while stack:
        item = stack.pop()
        yield item
        stack.extend(children(item))


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
