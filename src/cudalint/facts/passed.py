"""What the only callers of a function let its parameters be, and constructors the const members of their class: no
witness may take another value."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING

from cudalint.facts import flow
from cudalint.facts import terms as t
from cudalint.facts.events import Record, conjuncts
from cudalint.facts.reach import Reach
from cudalint.ir.types import Int

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cudalint.facts.events import CallSite, Value
    from cudalint.facts.model import Launch
    from cudalint.facts.terms import Interval, Term
    from cudalint.ir.nodes import FunctionDecl

_UNITS = frozenset({".cu", ".cpp", ".cc", ".cxx", ".c"})
"""Endings of files that nobody includes."""
Side = tuple[dict["Term", "Term"], Reach, set["Term"]]
"""What one caller passes for each parameter, what it says of its values, and its checks of them."""
Caller = tuple["CallSite", "Launch"]
"""A call of the function in which a walk began, and the launch as the walk from that caller comes to it."""


def calls_all(decl: FunctionDecl, callers: list[Caller]) -> bool:
    """Whether these are all calls of a function that no other file can call, or that no header offers to others."""
    if os.path.splitext(decl.file.path)[1] not in _UNITS or not (decl.static or _is_private(decl)):
        return False
    calls = decl.file.declarations.calls(decl.name)
    return calls is not None and calls <= {site.call.start for site, _ in callers if site.fn.file is decl.file}


def _is_private(decl: FunctionDecl) -> bool:
    """Whether a function with external linkage is declared in its own file alone."""
    declared = (
        f for each in decl.file.declarations.scope.closure for f in each.functions_by_name.get(decl.name, ())
    )  # fmt: skip
    written = decl.file.text[decl.start : decl.name_start]
    return not decl.owner and b"extern" not in written and all(f.file is decl.file for f in declared)


def _by_name(values: Iterable[tuple[str, Value]]) -> Iterator[tuple[str, Term]]:
    """The integers among values, and among the fields of those that have fields."""
    for name, value in values:
        if isinstance(value, t.Term) and isinstance(value.type, Int):
            yield name, value
        elif isinstance(value, Record):
            yield from _by_name((f"{name}.{field}", x) for field, x in value.fields.items())


def stated(launch: Launch, callers: list[Caller]) -> Iterator[Term]:
    """Conditions on the parameters of the function in which the walk of ``launch`` began: the checks that every caller
    makes of what it passes; where nobody else can call, common divisors and ranges too."""
    formals = dict(_by_name((var.name, value) for var, value in launch.flow.params.items()))
    sides: list[Side] = []
    for site, other in callers:
        values = {formals[name]: x for name, x in _by_name(site.values.items()) if name in formals}
        sides.append((values, Reach(None, launch.config, other.conditions), _translated(values, other.conditions)))
    decl = launch.flow.function.decl
    yield from _agreed(list(formals.values()) if decl is not None and decl.static else [], sides)


def constructed(launch: Launch) -> Iterator[Term]:
    """Conditions on the const members that the launching method reads: what all constructors of its class let them be.

    A constructor that sets none of them leaves it to another one.
    """
    method = launch.flow.function.decl
    if method is None or not method.owner:
        return
    name = method.owner.rpartition("::")[2]
    makers = [
        f
        for each in method.file.declarations.scope.closure
        for f in each.functions_by_name.get(name, ())
        if f.owner == method.owner
    ]
    defined = [f for f in makers if f.has_body]
    if method in makers or {len(f.params) for f in makers} != {len(f.params) for f in defined}:
        return
    flows = [flow.run(f.lower()) for f in defined]
    formals = {name: x for name, x in launch.flow.members.items() if isinstance(x.type, Int)}
    sides: list[Side] = []
    for each in flows:
        values = {formals[name]: x for name, x in each.members.items() if name in formals}
        if values:
            conditions = list(conjuncts(each.ensured))
            sides.append((values, Reach(None, launch.config, conditions), _translated(values, conditions)))
    if sides:
        yield from _agreed(list(formals.values()), sides)


def _agreed(formals: list[Term], sides: list[Side]) -> Iterator[Term]:
    for formal in formals:
        given = [(values[formal], reach) for values, reach, _ in sides if formal in values]
        if len(given) == len(sides):
            yield from _divisible(formal, [x for x, _ in given])
            yield from _within(formal, [reach.interval(x) for x, reach in given])
    checks = {check for _, _, translated in sides for check in translated}
    for check in sorted(checks, key=lambda x: x.key):
        if all(check in translated or _holds(check, values) for values, _, translated in sides):
            yield check


def _translated(values: dict[Term, Term], conditions: list[Term]) -> set[Term]:
    """What a caller checks of nothing but what it passes, as conditions on the parameters."""
    back = {x: formal for formal, x in values.items() if x.op != "const" and x.type is formal.type}
    formals = set(back.values())
    found = (t.substitute(c, {}, dict(back)) for c in conditions)
    return {c for c in found if c.op != "const" and t.leaves(c) <= formals}


def _holds(check: Term, values: dict[Term, Term]) -> bool:
    try:
        return bool(t.evaluate(check, {x: v.data for x, v in values.items() if v.op == "const"}))
    except t.Undefined:
        return False


def _divisible(formal: Term, values: list[Term]) -> Iterator[Term]:
    polys = [t.poly(x) for x in values]
    rest = [p.get((), 0) for p in polys]
    divisor = math.gcd(*(c for p in polys for m, c in p.items() if m), *(r - rest[0] for r in rest))
    if divisor > 1:
        remainder = t.binary("mod", formal, t.const(divisor, formal.type), formal.type)
        yield t.compare("==", remainder, t.const(rest[0] % divisor, formal.type))


def _within(formal: Term, ranges: list[Interval]) -> Iterator[Term]:
    low, high = min(x for x, _ in ranges), max(x for _, x in ranges)
    if low > max(0, formal.data.lo):
        yield t.compare("<=", t.const(low, formal.type), formal)
    if high < formal.data.hi:
        yield t.compare("<=", formal, t.const(high, formal.type))
