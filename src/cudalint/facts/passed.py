"""What the only callers of a function let its parameters be, and methods the members of their class: no witness may
take another value."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING

from cudalint.facts import flow
from cudalint.facts import terms as t
from cudalint.facts.assigned import assigned
from cudalint.facts.events import Record, conjuncts
from cudalint.facts.reach import Reach
from cudalint.ir.nodes import Call, Ref, Var
from cudalint.ir.types import Int
from cudalint.lazy import pattern

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cudalint.facts.events import CallSite, Value
    from cudalint.facts.model import Launch
    from cudalint.facts.terms import Interval, Term
    from cudalint.ir.nodes import FunctionDecl

_UNITS = frozenset({".cu", ".cpp", ".cc", ".cxx", ".c"})
"""Endings of files that nobody includes."""
_GIVEN = pattern(rb"=\s*(?:default|delete)\s*;?\Z")
Side = tuple[dict["Term", "Term"], Reach, set["Term"]]
"""What one caller passes for each parameter, what it says of its values, and its checks of them."""
Caller = tuple["CallSite", "Launch"]
"""A call of the function in which a walk began, and the launch as the walk from that caller comes to it."""


def calls_all(decl: FunctionDecl, walked: set[int]) -> bool:
    """Whether these, by where they stand in its file, are all calls of a function that no other file can call, or that
    no header offers to others."""
    if os.path.splitext(decl.file.path)[1] not in _UNITS or not (decl.static or _is_private(decl)):
        return False
    calls = decl.file.declarations.calls(decl.name)
    return calls is not None and calls <= walked


def _is_private(decl: FunctionDecl) -> bool:
    """Whether a function with external linkage is declared in its own file alone."""
    declared = (
        f for each in decl.file.declarations.scope.closure for f in each.functions_by_name.get(decl.name, ())
    )  # fmt: skip
    written = decl.file.text[decl.start : decl.name_start]
    return not decl.owner and b"extern" not in written and all(f.file is decl.file for f in declared)


def fixes(site: CallSite) -> bool:
    """Whether what is passed at a call fixes the callee's parameters: nobody else can call it, or `main`'s own
    locals are passed."""
    if site.callee.decl is None or site.callee.decl.static:
        return True
    if site.fn.name != "main" or not isinstance(site.call, Call):
        return False
    sizes = [x for x in site.call.args if isinstance(x.type, Int)]
    return all(isinstance(x, Ref) and x.var.kind == "local" for x in sizes)


def _by_name(values: Iterable[tuple[str, Value]]) -> Iterator[tuple[str, Term]]:
    """The integers among values, and among the fields of those that have fields."""
    for name, value in values:
        if isinstance(value, t.Term) and isinstance(value.type, Int):
            yield name, value
        elif isinstance(value, Record):
            yield from _by_name((f"{name}.{field}", x) for field, x in value.fields.items())


def stated(launch: Launch, callers: list[Caller]) -> Iterator[Term]:
    """Conditions on the parameters of the function in which the walk of ``launch`` began, and on the variables of the
    file that size it: the checks that every caller makes of them; where calls fix parameters, common divisors and
    ranges of those too."""
    formals = dict(_by_name((var.name, value) for var, value in launch.flow.params.items()))
    shared = _globals(launch)
    sides: list[Side] = []
    for site, other in callers:
        values = {formals[name]: x for name, x in _by_name(site.values.items()) if name in formals}
        outside = {shared[var]: x for var, x in _globals(other).items() if var in shared}
        if _dimensions(other) == [t.substitute(x, {**values, **outside}) for x in _dimensions(launch)]:
            values.update(outside)  # else it is not as it was read there
        sides.append((values, Reach(None, launch.config, other.conditions), _translated(values, other.conditions)))
    yield from _agreed(list(formals.values()) if all(fixes(site) for site, _ in callers) else [], sides)


def _dimensions(launch: Launch) -> list[Term]:
    return [*(launch.grid or ()), *(launch.block or ())]


def _globals(launch: Launch) -> dict[Var, Term]:
    """The integers outside of functions that size a launch, as they are when it comes."""
    found: dict[Var, set[Term]] = {}
    for leaf in {x for term in _dimensions(launch) for x in t.leaves(term)}:
        var = leaf.data.data
        if isinstance(var, Var) and var.kind == "global" and isinstance(leaf.type, Int):
            found.setdefault(var, set()).add(leaf)
    return {var: leaves.pop() for var, leaves in found.items() if len(leaves) == 1}


def constructed(launch: Launch) -> list[Term]:
    """Conditions on the members that the launching method reads: what all methods that set them let them be."""
    flow = launch.flow
    if flow.kept is None:
        flow.kept = list(_constructed(launch))
    return flow.kept


def _constructed(launch: Launch) -> Iterator[Term]:
    formals = {name: x for name, x in launch.flow.members.items() if isinstance(x.type, Int) and x.op == "atom"}
    decl = launch.flow.function.decl
    if decl is None or not decl.owner or not formals:
        return
    methods = methods_of(decl)
    elsewhere = launch.flow.constructors
    methods += elsewhere
    if elsewhere:
        formals = {name: x for name, x in formals.items() if is_const(x)}  # other methods may be elsewhere too
    if undefined(methods):
        return
    setters: dict[tuple[FunctionDecl, ...], dict[str, Term]] = {}
    for name, formal in formals.items():
        setters.setdefault(tuple(f for f in methods if f.has_body and _sets(f, name)), {})[name] = formal
    for found, own in setters.items():
        sides = [side for f in found for side in _sides(f, own, launch)]
        if sides:
            yield from _agreed([x for x in own.values() if is_const(x)], sides)


def methods_of(decl: FunctionDecl) -> list[FunctionDecl]:
    """The methods of a method's class, as its file and those that it includes have them."""
    closure = decl.file.declarations.scope.closure
    return [f for d in closure for fs in d.functions_by_name.values() for f in fs if f.owner == decl.owner]


def undefined(methods: list[FunctionDecl]) -> list[FunctionDecl]:
    """The constructors among the methods of a class of which it is not seen what they do."""
    return [f for f in methods if _is_constructor(f) and not _is_defined(f, methods)]


def is_const(member: Term) -> bool:
    return isinstance(member.data.data, Var) and member.data.data.const


def _is_constructor(method: FunctionDecl) -> bool:
    return method.name == method.owner.rpartition("::")[2]


def _is_defined(method: FunctionDecl, methods: list[FunctionDecl]) -> bool:
    """Whether it is seen what a method does, or that it does nothing of its own."""
    if _GIVEN.search(method.file.text[method.name_end : method.end]):
        return True
    return any(f.has_body and f.name == method.name and len(f.params) == len(method.params) for f in methods)


def _sets(method: FunctionDecl, name: str) -> bool:
    """Whether a method sets a member of its class."""
    if not any(method.start <= place < method.end for place in method.file.declarations.changes(name)):
        return False
    return any(x.kind == "field" and x.name == name for x in assigned(method.lower().body, {}))


def _sides(method: FunctionDecl, formals: dict[str, Term], launch: Launch) -> Iterator[Side]:
    """What a method leaves in members that it sets, and its checks of them. A copy is as checked as what is copied,
    and a constructor that puts 0 into a member that is not const leaves it to others."""
    own = flow.of_host(method)
    copied = [x.fields for x in own.params.values() if isinstance(x, Record)]
    blank = {name for name, x in formals.items() if _is_constructor(method) and not is_const(x)}
    if not own.complete or not any(name in left for _, left in own.endings for name in formals):
        yield {}, Reach(None, launch.config, []), set()
        return
    for guard, left in own.endings:
        values = {
            formals[name]: x
            for name, x in left.items()
            if name in formals
            and all(fields.get(name) is not x for fields in copied)
            and not (name in blank and x.op == "const" and not x.data)
        }
        if values:
            conditions = list(conjuncts(guard))
            yield values, Reach(None, launch.config, conditions), _translated(values, conditions)


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
    """What a caller checks of nothing but what it passes, as conditions on the parameters: before it is converted to a
    parameter's type it is taken to be the same number."""
    back = {x: formal for formal, x in values.items() if x.op != "const" and x.type is formal.type}
    formals = set(back.values())
    for x, formal in list(back.items()):
        inner = t.bare(x)
        if isinstance(inner.type, Int) and inner.op != "const":
            back.setdefault(inner, t.convert(formal, inner.type))
    passed = formals.union(*map(t.leaves, back))
    found = (t.substitute(c, {}, dict(back)) for c in conditions if t.leaves(c) <= passed)
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
