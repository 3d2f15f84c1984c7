"""Repairs of tests: one that is missing, one of the wrong thing, one that is off by one.

Imported where a finding is made: a run without findings needs none of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudalint.facts import kernels, shapes
from cudalint.facts import terms as t
from cudalint.facts.events import chain, conjuncts_of
from cudalint.facts.expressions import from_poly
from cudalint.facts.ids import BID, TID
from cudalint.facts.uniformity import expand
from cudalint.ir import nodes as ir
from cudalint.ir.types import I64, Int
from cudalint.rules import edits, launches
from cudalint.rules.draft import EditDraft, FixDraft

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudalint.facts.events import Access, Comparison, Event
    from cudalint.facts.model import Kernel, Launch
    from cudalint.facts.shapes import Axis, Bound
    from cudalint.facts.terms import Poly, Term
    from cudalint.ir.nodes import Node, Stmt
    from cudalint.rules.cl501_cl504_axes import Plane
    from cudalint.rules.cl503_swapped_axis_check import Swap

_STRICT = {">": ">=", "<=": "<", "<": "<=", ">=": ">"}


def place_of(axis: Axis) -> Poly:
    """A coordinate by itself: the thread's number and its block's first."""
    found: Poly = {(TID[axis.name],): 1} if axis.thread else {}
    if axis.grid:
        found = t.add(found, t.multiply(axis.block or shapes.ONE, {(BID[axis.grid],): 1}) or {})
    return found


def _meets(kernel: Kernel, nodes: Iterable[Node]) -> bool:
    """Whether threads wait for each other, or exchange values, inside one of some nodes."""
    flow = kernel.flow
    places = [event.stack[0].call if event.stack else event.node for event in (*flow.barriers, *flow.collectives)]
    return bool(flow.opaques) or any(x.start <= p.start <= x.end for x in nodes for p in places)


# --- CL209 --------------------------------------------------------------------------------------


def guarded(kernel: Kernel, launch: Launch, access: Access) -> FixDraft | None:
    """The accesses of a kernel under tests of their coordinates, where all go by the same plain variables."""
    if launch.grid is None or access.fn is not kernel.function or access.stack or _asks(access):
        return None
    body = edits.body_of(kernel.function)
    statements = _statements(kernel, body)
    if not statements or _meets(kernel, statements):
        return None
    first = statements[0]
    found = shapes.axes(expand(access.scalar or {}))
    if not _alike(kernel, found) or (len(found) > 1 and _offsets(kernel, found)):
        return None
    tests = []
    for axis in found.values():
        if axis.block is None or not axis.thread:
            return None
        index = edits.local_of(kernel, body, place_of(axis), first)
        division = launches.division(launch.grid["xyz".index(axis.grid)])
        if index is None or division is None or not isinstance(index.type, Int):
            return None
        size = edits.parameter(launch, body, t.poly(division[0]), first, index.type.bits)
        if size is None:
            return None
        tests.append(f"{index.name} < {size}")
    changes = body.under(" && ".join(tests), statements)
    title = "put the access under a test of its index" if len(tests) == 1 else "put the access under tests of its axes"
    return FixDraft(True, title, tuple(changes)) if changes else None


def _asks(access: Access) -> bool:
    """Whether something about its thread decides if an access is made."""
    return any(kernels.ids_of([guard.term]) for guard in chain(access.guard))


def _alike(kernel: Kernel, found: dict[str, Axis]) -> bool:
    """Whether every address of global memory is made of the same coordinates, with nothing added to them."""
    for access in kernel.flow.accesses:
        if access.obj.kind != "global":
            continue
        if access.scalar is None or access.width > 1:
            return False
        p = expand(access.scalar)
        own = shapes.axes(p)
        if not own and not kernels.ids_of(t.atoms_of(p)):
            continue
        whole: Poly = {}
        for axis in own.values():
            if axis.name not in found or place_of(axis) != place_of(found[axis.name]):
                return False
            whole = t.add(whole, t.multiply(axis.scale, place_of(axis)) or {})
        if own.keys() != found.keys() or whole != p or (len(own) == 1 and next(iter(own.values())).scale != shapes.ONE):
            return False
    return True


def _offsets(kernel: Kernel, found: dict[str, Axis]) -> list[ir.Var]:
    """The locals that hold an offset made of several of the coordinates."""
    return [
        x.var
        for x in kernel.flow.definitions
        if not x.stack and len(shapes.axes(expand(t.poly(x.term))).keys() & found.keys()) > 1
    ]


def _statements(kernel: Kernel, body: edits.Body) -> list[Stmt]:
    """The neighbouring statements that hold all accesses to global memory, and the uses of what they declare."""
    nodes: list[Node] = []
    for access in kernel.flow.accesses:
        if access.obj.kind == "global":
            if access.stack:
                return []
            if not _asks(access):
                nodes.append(access.node)
    if any(isinstance(x, ir.Return) for x in body.nodes):
        return []
    held = [body.path(node) for node in nodes]
    common = [x for x in zip(*held, strict=False) if all(y is x[0] for y in x)]
    if not common:
        return []
    block = common[-1][0]
    if not isinstance(block, ir.Block):
        return [block] if isinstance(block, (ir.ExprStmt, ir.If)) else []
    inside = {id(path[len(common)]) for path in held if len(path) > len(common)}
    marked = [i for i, x in enumerate(block.body) if id(x) in inside]
    begin, end = marked[0], marked[-1]
    at = begin
    while at <= end:
        declared = block.body[at]
        if isinstance(declared, ir.VarDecl):
            using = {x.start for x in body.uses(declared.var)}
            later = [i for i, x in enumerate(block.body) if i > end and any(x.start <= u < x.end for u in using)]
            end = max([end, *later])
        at += 1
    return block.body[begin : end + 1]


# --- CL214 --------------------------------------------------------------------------------------


def strict(place: Comparison) -> FixDraft | None:
    """A test without its equality."""
    body = edits.body_of(place.fn)
    node = place.node
    at = body.operator(node) if isinstance(node, ir.Binary) and node.op in _STRICT and not place.stack else None
    if at is None or not isinstance(node, ir.Binary):
        return None
    new = _STRICT[node.op]
    return FixDraft(True, f"test with `{new}`", (EditDraft(place.fn.file, *at, new),))


# --- CL501, CL502, CL504 ------------------------------------------------------------------------


def by_axis(kernel: Kernel, plane: Plane, bound: Bound, access: Access) -> FixDraft | None:
    """Tests of both coordinates in place of one of the offset."""
    place = edits.comparison(kernel.flow, kernel.function, bound.term)
    found = _test(access, bound.term)
    fast, slow = plane.fast, plane.slow
    if place is None or found is None or access.stack or len(plane.axes) != 2 or not (fast.thread and slow.thread):
        return None
    test, positive = found
    body = edits.body_of(kernel.function)
    limit = {m: -c for m, c in bound.excess.items() if not kernels.ids_of(m)}
    if bound.inclusive:
        limit = t.add(limit, shapes.ONE)
    rows = shapes.divide(limit, plane.row)
    if shapes.coefficient(bound.excess, TID[fast.name]) != shapes.ONE or rows is None or test.other is not None:
        return None
    x, y = (edits.local_of(kernel, body, place_of(a), place.node) for a in (fast, slow))
    w, h = (edits.spelled(body, p, place.node) for p in (plane.row, rows))
    if x is None or y is None or w is None or h is None:
        return None
    if not all(_goes_by(each, a, p) for each in kernel.launches for a, p in ((fast, plane.row), (slow, rows))):
        return None  # the row's length in memory, say, where the launch has fewer columns
    if _meets(kernel, [test] if positive else [kernel.function.body]):
        return None
    holds = place.term is bound.term
    text = f"{x.name} < {w} && {y.name} < {h}" if holds else f"{x.name} >= {w} || {y.name} >= {h}"
    if isinstance(body.parent(place.node), (ir.Logical, ir.Unary)):
        text = f"({text})"
    changes = [EditDraft(place.fn.file, place.node.start, place.node.end, text)]
    lower = _lowered(kernel, body, plane, test, place.node)
    if lower is None:
        return None
    return FixDraft(False, f"test `{x.name}` and `{y.name}` instead of the offset", (*changes, *lower))


def _goes_by(launch: Launch, axis: Axis, size: Poly) -> bool:
    """Whether a launch's grid, where it divides a size, divides this one."""
    if launch.grid is None or not axis.grid:
        return True
    division = launches.division(launch.grid["xyz".index(axis.grid)])
    return division is None or t.poly(division[0]) == t.poly(launch.at_launch(from_poly(size, I64)))


def _test(access: Access, term: Term) -> tuple[ir.If, bool] | None:
    """The ``if`` that lets only threads through for which a condition holds: around an access, or before it."""
    for guard in chain(access.guard):
        if term in conjuncts_of(guard.term) and isinstance(guard.node, ir.If) and guard.fn is access.fn:
            if guard.why == "if" and guard.positive:
                return guard.node, True
            if guard.why in ("return", "continue") and edits.leaves(guard.node.then):
                return guard.node, False
    return None


def _lowered(
    kernel: Kernel, body: edits.Body, plane: Plane, test: ir.If, unread: Node | None = None
) -> list[EditDraft] | None:
    """Offsets that are formed above a test of both axes, brought below it (CL504 would ask for that)."""
    changes: list[EditDraft] = []
    for var in _offsets(kernel, plane.axes):
        declared = body.declaration(var)
        if declared is None or declared.start > test.start:
            continue
        moved = body.moved(var, test, unread)
        if moved is None or changes:
            return None
        changes += moved
    return changes


def add_axis(kernel: Kernel, plane: Plane, access: Access, axis: Axis, launch: Launch, shown: Poly | None,
             size: Term, tested: set[str]) -> FixDraft | None:  # fmt: skip
    """The missing test of an axis in the condition that tests another."""
    body = edits.body_of(kernel.function)
    for bound in shapes.upper_bounds(access.guard):
        alone, _ = shapes.tested_axes(None, plane.axes)
        grows = [a for a, x in plane.axes.items() if any(shapes.coefficient(bound.excess, i) for i in x.ids)]
        if len(grows) != 1 or grows[0] not in tested | alone or access.stack:
            continue
        found = _test(access, bound.term)
        if found is None or found[0].other is not None or not axis.thread:
            continue
        test, positive = found
        index = edits.local_of(kernel, body, place_of(axis), test.cond)
        name = edits.spelled(body, shown, test.cond) if shown is not None else None
        name = name or edits.parameter(launch, body, t.poly(size), test.cond)
        if index is None or name is None or _meets(kernel, [test] if positive else [kernel.function.body]):
            continue
        lower = _lowered(kernel, body, plane, test)
        if lower is None:
            return None
        file, cond = kernel.function.file, test.cond
        op, compare = ("&&", "<") if positive else ("||", ">=")
        more = f" {op} {index.name} {compare} {name}"
        mixed = isinstance(cond, ir.Cond) or (isinstance(cond, ir.Logical) and cond.op != op)
        if isinstance(cond, (ir.Assign, ir.Comma)):
            return None
        changes = [EditDraft(file, cond.end, cond.end, f"){more}" if mixed else more)]
        if mixed:
            changes.append(EditDraft(file, cond.start, cond.start, "("))
        return FixDraft(True, f"test `{index.name}` as well", (*changes, *lower))
    return None


def joined(kernel: Kernel, plane: Plane, access: Access, term: Term) -> FixDraft | None:
    """The other operator between two tests of which one was enough."""
    found = _test(access, term)
    if found is None or access.stack or found[0].other is not None:
        return None
    test, positive = found
    body = edits.body_of(kernel.function)
    node = test.cond
    if not isinstance(node, ir.Logical) or node.op != ("||" if positive else "&&"):
        return None
    if not (isinstance(node.left, ir.Binary) and isinstance(node.right, ir.Binary)):
        return None
    at = body.operator(node)
    lower = _lowered(kernel, body, plane, test)
    if at is None or lower is None or _meets(kernel, [test] if positive else [kernel.function.body]):
        return None
    new = "&&" if positive else "||"
    edit = EditDraft(kernel.function.file, *at, new)
    return FixDraft(True, f"join the tests with `{new}`", (edit, *lower))


def later(kernel: Kernel, definition: Event, var: ir.Var, using: Iterable[Access]) -> FixDraft | None:
    """The declaration of an offset below the tests of its axes."""
    body = edits.body_of(kernel.function)
    declared = body.declaration(var)
    block = body.parent(declared) if declared is not None else None
    if declared is None or not isinstance(block, ir.Block) or definition.fn is not kernel.function:
        return None
    test = _last_test(body, block, declared, var)
    if test is None:
        return None
    changes = body.moved(var, test)
    if changes is None:
        return None
    below = test.end if edits.leaves(test.then) else test.then.start
    for access in using:
        for guard in chain(access.guard):
            if guard.fn is kernel.function and kernels.ids_of([guard.term]) and guard.node.start >= below:
                return None
    return FixDraft(True, "form the offset below the tests", tuple(changes))


def _last_test(body: edits.Body, block: ir.Block, declared: ir.VarDecl, var: ir.Var) -> ir.If | None:
    """The innermost ``if`` around all uses of a local, or the last ``if (…) return;`` above them."""
    uses = [x.start for x in body.uses(var)]
    found: ir.If | None = None
    statements = [x for x in block.body if x.start > declared.start]
    while statements:
        statement, *statements = statements
        inside = [u for u in uses if statement.start <= u < statement.end]
        if not isinstance(statement, ir.If) or statement.other is not None:
            if inside:
                break
            continue
        if not inside:
            found = statement if edits.leaves(statement.then) else found
        elif len(inside) == len(uses) and all(statement.then.start <= u for u in inside):
            found = statement
            statements = statement.then.body if isinstance(statement.then, ir.Block) else [statement.then]
        else:
            break
    return found


# --- CL503 --------------------------------------------------------------------------------------


def swapped(kernel: Kernel, swap: Swap, place: Comparison) -> FixDraft | None:
    """The sizes of two tests in each other's place."""
    wanted = {*swap.slow.terms, *(t.lnot(x) for x in swap.slow.terms)}
    other = [c for c in kernel.flow.comparisons if c.term in wanted]
    if len({(x.node.start, x.node.end) for x in other}) != 1 or place.stack or other[0].stack:
        return None
    first, second = _limit(place, swap.other), _limit(other[0], swap.own)
    if first is None or second is None or not all(_in_place(x, swap) for x in kernel.launches):
        return None
    body = edits.body_of(place.fn)
    changes = (
        EditDraft(place.fn.file, first.start, first.end, body.source(second)),
        EditDraft(place.fn.file, second.start, second.end, body.source(first)),
    )
    return FixDraft(True, "swap the sizes", changes)


def _in_place(launch: Launch, swap: Swap) -> bool:
    """Whether the launch's grid goes by the coordinates' own sizes."""
    for item, other in ((swap.fast, swap.other), (swap.slow, swap.own)):
        blocks = [x.data.axis for m in item.place for x in m if x.op == "atom" and x.data.kind == "bid"]
        if len(blocks) != 1 or launch.grid is None:
            continue
        division = launches.division(launch.grid["xyz".index(blocks[0])])
        if division is not None and t.poly(division[0]) == t.poly(launch.at_launch(from_poly(other, I64))):
            return False
    return True


def _limit(place: Comparison, size: Poly) -> ir.Expr | None:
    """The side of a comparison that is just a size."""
    node = place.node
    if not isinstance(node, ir.Binary):
        return None
    for side, value in zip((node.left, node.right), place.raw, strict=True):
        if expand(t.poly(value)) == size and not kernels.ids_of([value]):
            return side if isinstance(side, (ir.Ref, ir.Member, ir.Const)) else None
    return None
