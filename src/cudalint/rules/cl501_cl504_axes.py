"""CL501 linear-guard-2d, CL502 missing-axis-check, CL504 early-offset: two axes, and which of them are tested."""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING

from cudalint.facts import grids, kernels, search, shapes
from cudalint.facts import terms as t
from cudalint.facts import witness as w
from cudalint.facts.events import conjuncts
from cudalint.facts.expressions import from_poly
from cudalint.facts.ids import BDIM, BID, GDIM, TID
from cudalint.facts.uniformity import expand
from cudalint.findings import Witness, digits, plural
from cudalint.ir.nodes import Binary
from cudalint.ir.types import I64
from cudalint.lazy import NamedTuple
from cudalint.rules import launches, support, tile_axes
from cudalint.rules.draft import Draft

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudalint.confirm.experiment import Bench, Plan
    from cudalint.facts.events import Access, Definition, Guard
    from cudalint.facts.model import Kernel, Launch
    from cudalint.facts.shapes import Axis, Bound
    from cudalint.facts.terms import Poly, Term
    from cudalint.rules.draft import FixDraft
    from cudalint.rules.tile_axes import Outside

CODES = ("CL501", "CL502", "CL504")

_DIMENSIONS = frozenset({"bdim", "gdim"})
_LAUNCH = _DIMENSIONS | {"tid", "bid"}
_FEW = 100
"""Sizes that are tried where each asks what threads of a block do."""
_DEFAULT_BLOCKS = ((16, 16, 1), (8, 8, 4))


class Plane(NamedTuple):
    """An offset made of several launch axes: ``fast`` moves within a row, ``slow`` from row to row.

    ``row`` is the row's length in elements as a polynomial (the slow axis's scale over the fast one's).
    """

    fast: Axis
    slow: Axis
    row: Poly
    axes: dict[str, Axis]


def plane(p: Poly) -> Plane | None:
    """The two fastest axes of an index, None where it has fewer or its rows are a launch dimension long."""
    found = shapes.axes(p)
    if len(found) < 2:
        return None
    axes = list(found.values())
    for fast in axes:
        if not fast.thread and fast.block is None and not fast.scale:
            continue
        rows = []
        for slow in axes:
            if slow is fast:
                continue
            row = shapes.divide(slow.scale, fast.scale)
            if row and _is_data(row):
                rows.append((len(next(iter(row))), slow, row))
        if len(rows) == len(axes) - 1:
            _, slow, row = min(rows, key=lambda item: item[0])
            return Plane(fast, slow, row, found)
    return None


def _is_data(row: Poly) -> bool:
    """Whether a row's length comes from data or is a constant over 1, and not from the launch alone."""
    constant = t.constant(row)
    if constant is not None:
        return constant > 1
    return shapes.positive(row) and not all(a.data.kind in _DIMENSIONS for a in t.atoms_of(row) if a.op == "atom")


class _Use(NamedTuple):
    access: Access
    plane: Plane
    alone: set[str]
    together: list[Bound]


def _uses(kernel: Kernel) -> list[_Use]:
    """The global accesses at offsets of two axes and more, by position in the source."""
    result = []
    for access in kernel.flow.accesses:
        if access.obj.kind != "global" or access.scalar is None:
            continue
        found = plane(expand(access.scalar))
        if found is not None:
            result.append(_Use(access, found, *shapes.tested_axes(access.guard, found.axes)))
    result.sort(key=lambda use: (use.access.fn.file.path, use.access.node.start))
    return result


def check_guards(kernel: Kernel) -> Iterator[Draft]:
    """One finding a kernel and fault: the first access that a thread outside of a row can reach."""
    if not kernel.is_kernel or not kernel.flow.complete:
        return
    uses = _uses(kernel)
    reported: set[str] = set()
    for use in uses:
        draft = _linear(kernel, use) or _late(kernel, use, uses)
        code = "CL501"
        if draft is None:
            draft, code = _missing(kernel, use), "CL502"
        if draft is not None and code not in reported:
            reported.add(code)
            yield draft
    if not reported:
        outside = tile_axes.outside(kernel)
        if outside is not None:
            yield _tile_draft(outside)


def check_early(kernel: Kernel) -> Iterator[Draft]:
    """An offset formed before the tests of both its axes, and used only after them."""
    if not kernel.is_kernel:
        return
    uses = _uses(kernel)
    for definition in kernel.flow.definitions:
        if definition.stack:
            continue
        p = expand(t.poly(definition.term))
        found = plane(p)
        if found is None or not (found.fast.is_global or found.slow.is_global):
            continue
        tested, _ = shapes.tested_axes(definition.guard, found.axes)
        needed = {found.fast.name, found.slow.name}
        if needed - _untestable(kernel, found) <= tested:
            continue
        using = [u for u in uses if u.plane.axes.keys() == found.axes.keys() and u.plane.row == found.row]
        using = [u for u in using if u.access.index is not None and definition.term in _parts(u.access.index)]
        if not using or not all(needed <= u.alone for u in using):
            continue
        later = [x for x in (found.fast, found.slow) if x.name not in tested]
        names = _tested_words(kernel, definition, later, using[0].access.guard)
        yield Draft(
            "CL504", definition.fn, definition.fn.file, definition.node.start, definition.node.end,
            f"`{definition.var.name}` is formed before {names} tested: nothing is wrong while it is used after "
            "the tests only, but the next edit that uses it above them is out of range",
            "form the offset below the tests of both axes",
            Witness({}, values={"first use is on line": _line(using[0].access)}),
            fix=_below(kernel, definition, using),
        )  # fmt: skip


def _tested_words(kernel: Kernel, definition: Definition, axes: list[Axis], guard: Guard | None) -> str:
    """What the tests of some axes compare, as the source has it, with its verb: "`i` and `j` are"."""
    places = {x: place for place in kernel.flow.comparisons for x in (place.term, t.lnot(place.term))}
    names: dict[str, str] = {}
    for bound in shapes.upper_bounds(guard):
        place = places.get(bound.term)
        if place is None or place.fn is not definition.fn or not isinstance(place.node, Binary):
            continue
        for axis in axes:
            for side, node in zip(place.raw, (place.node.left, place.node.right)):
                if any(shapes.mentions(expand(t.poly(side)), x) for x in axis.ids):
                    names.setdefault(axis.name, f"`{support.text(place.fn, node)}`")
    if len(names) < len(axes):
        return "its coordinates are" if len(axes) > 1 else "one of its coordinates is"
    return f"{' and '.join(names[x.name] for x in axes)} {'are' if len(axes) > 1 else 'is'}"


def _below(kernel: Kernel, definition: Definition, using: list[_Use]) -> FixDraft | None:
    from cudalint.rules import guards

    return guards.later(kernel, definition, definition.var, [u.access for u in using])


def _parts(term: Term) -> set[Term]:
    """Every sub-term of ``term``, conversions seen through."""
    result: set[Term] = set()
    stack = [term]
    while stack:
        item = stack.pop()
        if item not in result:
            result.add(item)
            stack.extend(item.args)
    return result


def _line(access: Access) -> int:
    return access.fn.file.span(access.node.start, access.node.end).told_line


def _untestable(kernel: Kernel, found: Plane) -> set[str]:
    """Axes that need no test: one block an item, or an exact grid, at every visible launch."""
    return {
        axis.name
        for axis in found.axes.values()
        if kernel.launches and not axis.thread and all(grids.surplus(x, axis) is None for x in kernel.launches)
    }


def _shape(kernel: Kernel) -> tuple[int, int, int]:
    shape = support.block_shape(kernel)
    return shape if kernel.launches and shape[1:] != (1, 1) else _DEFAULT_BLOCKS[0]


# --- CL501 --------------------------------------------------------------------------------------


def _linear(kernel: Kernel, use: _Use) -> Draft | None:
    """The offset alone is tested, so a thread beyond the row's end works on the next row."""
    if use.plane.fast.name in use.alone:
        return None
    bound = next((b for b in use.together if _grows(b, use.plane.fast) and _grows(b, use.plane.slow)), None)
    if bound is None or not use.plane.fast.thread:
        return None
    return _overlap(kernel, use, bound, "only the offset is tested")


def _grows(bound: Bound, axis: Axis) -> bool:
    return any(shapes.coefficient(bound.excess, x) for x in axis.ids)


def _late(kernel: Kernel, use: _Use, uses: list[_Use]) -> Draft | None:
    """Used above the tests that come later for the very same offset."""
    fast, slow = use.plane.fast.name, use.plane.slow.name
    if use.alone or use.together:
        return None
    later = [
        u for u in uses
        if u.access.seq > use.access.seq and {fast, slow} <= u.alone and u.access.scalar == use.access.scalar
    ]  # fmt: skip
    if not later:
        return None
    why = f"the tests of both axes come only later, on the way to line {_line(later[0].access)}"
    if use.plane.fast.is_global:
        return _overlap(kernel, use, None, why)
    return _beyond(kernel, use, later[0].access.guard, why)


def _beyond(kernel: Kernel, use: _Use, tests: Guard | None, why: str) -> Draft | None:
    """The same where the tests, not the axes, say what the coordinates are: each thread has a tile of its own."""
    offset = expand(use.access.scalar or {})
    bounds = [*shapes.upper_bounds(tests)]
    for down, along in permutations(bounds, 2):
        moved = t.multiply(down.left, use.plane.row)
        if moved is None or expand(t.add(moved, along.left)) != offset:
            continue
        found = (_astray(x, use, down, along) for x in kernel.launches if x.grid is not None and x.block is not None)
        case = next((x for x in found if x is not None), None)
        if case is None:
            return None
        from cudalint.rules import edits

        place = edits.comparison(kernel.flow, use.access.fn, along.term)
        past = f"past the test `{support.text(place.fn, place.node)}`" if place is not None else "past the row's end"
        sizes, grid, block, thread, column = case
        return Draft(
            "CL501", use.access.fn, use.access.fn.file, use.access.node.start, use.access.node.end,
            f"`{support.text(use.access.fn, use.access.node)}` is reached by threads past the end of a row: {why}, so "
            f"a thread {past} works on an element outside of its row",
            "test both coordinates before the first use of the offset",
            Witness(sizes, grid, block, thread, {"column of that thread": column}),
            (*support.calls(use.access), *support.launched_at(kernel, 1)),
        )  # fmt: skip
    return None


def _astray(launch: Launch, use: _Use, down: Bound, along: Bound) -> _Case | None:
    """The first thread of a block in a row that is there, and in a column past its end, in the first pass of loops."""
    assert launch.grid is not None and launch.block is not None
    column = from_poly(expand(along.left), I64)
    row, limit = from_poly(use.plane.row, I64), from_poly(expand(along.limit), I64)
    condition = t.lnot(along.term)
    for left, right in ((t.const(1, I64), row), (limit, row), (row, column)):
        condition = t.land(condition, t.compare("<=", left, right))
    for term in (down.term, *conjuncts(use.access.guard)):
        condition = t.land(condition, term)
    condition = launch.at_launch(support.over_passes(condition))
    column = launch.at_launch(support.over_passes(column))
    parts = [*launch.grid, *launch.block]
    asked = t.leaves(condition) | {x for p in parts for x in t.leaves(p)}
    first = {x: 0 for x in asked | t.leaves(column) if x.data.kind == "count"}
    leaves = sorted((x for x in asked if x not in first and x.data.kind not in _LAUNCH), key=lambda x: x.key)

    def thread(env: w.Assignment) -> tuple[_Triple, _Triple, int] | None:
        grid, block = support.halves([int(t.evaluate(p, env)) for p in parts])
        if min(*grid, *block) < 1:
            return None
        here = {**env, **first, **support.dimensions(grid, block)}
        for each in ((x, y, 0) for y in range(min(block[1], 2)) for x in range(min(block[0], 64))):
            for at in dict.fromkeys([(0, 0, 0), (grid[0] - 1, 0, 0), (0, grid[1] - 1, 0)]):
                there = {**here, **support.coordinates(at, each)}
                if t.evaluate(condition, there):
                    return at, each, int(t.evaluate(column, there))
        return None

    def goal(env: w.Assignment) -> bool:
        return thread(env) is not None

    env = w.solve(goal, leaves, given=launch.conditions, limit=launch.config.max_elements, budget=_FEW)
    found = thread(env) if env is not None else None
    if env is None or found is None:
        return None
    grid, block = support.halves([int(t.evaluate(p, env)) for p in parts])
    return search.sizes_of(env), grid, block, found[:2], found[2]


def _overlap(kernel: Kernel, use: _Use, bound: Bound | None, why: str) -> Draft | None:
    """The draft with its witness: a thread with x = w whose offset is a legal one of row 1."""
    row = from_poly(use.plane.row, I64)
    visible = [x for x in kernel.launches if x.grid is not None and x.block is not None]
    case = None
    for launch in visible:
        case = _at_launch(launch, use, row, bound)
        if case is not None:
            break
    if case is None and len(visible) < max(1, len(kernel.launches)):
        case = _by_itself(kernel, use, row, bound)
    if case is None:
        return None
    sizes, grid, block, thread, width = case
    fast, slow = use.plane.fast.name, use.plane.slow.name
    row_words = t.show(row)
    return Draft(
        "CL501", use.access.fn, use.access.fn.file, use.access.node.start, use.access.node.end,
        f"`{support.text(use.access.fn, use.access.node)}` is reached by threads past the end of a row: {why}, "
        f"so a thread with {fast} >= {row_words} works on an element of the next row, which has a thread of its own",
        f"test {fast} and {slow} each against its own size, then form the offset",
        Witness(sizes, grid, block, thread, {f"{fast} of that thread": width, "row it should not touch": 1}),
        (*support.calls(use.access), *support.launched_at(kernel, 1)),
        fix=_by_axis(kernel, use, bound) if bound is not None else None,
    )  # fmt: skip


def _by_axis(kernel: Kernel, use: _Use, bound: Bound) -> FixDraft | None:
    from cudalint.rules import guards

    return guards.by_axis(kernel, use.plane, bound, use.access)


_Triple = tuple[int, int, int]
_Case = tuple[dict[str, int], _Triple, _Triple, tuple[_Triple, _Triple], int]


def _at_launch(launch: Launch, use: _Use, row: Term, bound: Bound | None) -> _Case | None:
    axis = use.plane.fast
    total, width = grids.threads(launch, axis), launch.at_launch(row)
    if total is None or launch.grid is None or launch.block is None:
        return None
    limit = launch.at_launch(bound.term) if bound is not None else t.TRUE
    at = "xyz".index(axis.name)
    parts = [*launch.grid, *launch.block]
    step = launch.at_launch(from_poly(axis.block, I64)) if axis.block else parts[3 + at]
    leaves = sorted(
        {
            x
            for p in (total, width, step, limit, *parts)
            for x in t.leaves(p)
            if x.data.kind not in ("tid", "bid", "bdim", "gdim")
        },
        key=lambda x: x.key,
    )

    def thread(env: w.Assignment) -> tuple[_Triple, _Triple, dict[Term, int]] | None:
        w_, t_ = t.evaluate(width, env), t.evaluate(total, env)
        case = kernels.case(launch, env) if 0 < w_ < t_ else None
        if case is None or not case.possible:
            return None
        numbers = [t.evaluate(p, env) for p in parts]
        each, size = t.evaluate(step, env), numbers[3 + at]
        if each < size or w_ % each >= size:
            return None
        b, i = support.on_axis(axis.grid or axis.name, w_ // each), support.on_axis(axis.name, w_ % each)
        return b, i, {**support.coordinates(b, i), **support.dimensions(*support.halves(numbers))}

    def goal(env: w.Assignment) -> bool:
        found = thread(env)
        return found is not None and bool(t.evaluate(limit, {**env, **found[2]}))

    env = w.solve(goal, leaves, given=launch.conditions, extra=_edges(launch, at), limit=launch.config.max_elements)
    if env is None:
        return None
    found = thread(env)
    assert found is not None
    grid, block = support.halves([t.evaluate(p, env) for p in parts])
    return search.sizes_of(env), grid, block, (found[0], found[1]), t.evaluate(width, env)


def _edges(launch: Launch, at: int) -> tuple[int, ...]:
    size = launch.known_block("xyz"[at])
    return (size - 1, size, size + 1) if size else (17,)


def _by_itself(kernel: Kernel, use: _Use, row: Term, bound: Bound | None) -> _Case | None:
    """The same without a visible launch: two blocks of 16 x 16 threads over rows of 17 elements, of 15 where the
    block's number takes no part in the coordinate."""
    shape = _shape(kernel)
    axis = use.plane.fast
    size = shape["xyz".index(axis.name)]
    length = size + 1 if axis.is_global else size - 1
    limit = bound.term if bound is not None else t.TRUE
    grid = support.on_axis(axis.grid or axis.name, 2, other=1)
    thread = support.on_axis(axis.grid or axis.name, length // size), support.on_axis(axis.name, length % size)
    here = {**support.coordinates(*thread), **support.dimensions(grid, shape)}
    leaves = sorted(
        {x for p in (row, limit) for x in t.leaves(p) if x.data.kind not in ("tid", "bid", "bdim", "gdim")},
        key=lambda x: x.key,
    )

    def goal(env: w.Assignment) -> bool:
        everything = {**env, **here}
        return bool(t.evaluate(row, everything) == length and t.evaluate(limit, everything))

    env = w.solve(goal, leaves, extra=(length, 2 * length))
    if env is None:
        return None
    return search.sizes_of(env), grid, shape, thread, length


# --- CL502 --------------------------------------------------------------------------------------


def _missing(kernel: Kernel, use: _Use) -> Draft | None:
    """An axis without a test of its own, where a visible launch starts more threads than it has elements."""
    either = _either(use.access.guard)
    tested = use.alone | {a.name for b in use.together for a in use.plane.axes.values() if _grows(b, a)}
    if not tested and either is None:
        return None
    for axis in use.plane.axes.values():
        if axis.name in tested or not axis.thread:
            # A block's number without a thread's: one block an item, however many blocks there are.
            continue
        for launch in kernel.launches:
            if launch.grid is None or launch.block is None or not axis.grid:
                continue
            size = _extent(kernel, use, axis, launch)
            env = grids.exceeds(launch, axis, size) if size is not None else None
            if size is not None and env is not None and _comes(use, axis, launch, size, env):
                draft = _missing_draft(use, axis, launch, size, env, either is not None)
                return draft._replace(fix=_tested(kernel, use, axis, launch, size, either))
    return None


def _comes(use: _Use, axis: Axis, launch: Launch, size_term: Term, env: w.Assignment) -> bool:
    """Whether the first thread out of range, or the last, passes the tests on the way that ask for the launch's own
    numbers alone: ``blockIdx.y != gridDim.y - 1`` keeps the last block out."""
    assert launch.grid is not None and launch.block is not None
    grid, block = support.halves([_number(p, env) for p in (*launch.grid, *launch.block)])
    size, per_block = _number(size_term, env), max(1, block["xyz".index(axis.name)])
    last = grid["xyz".index(axis.grid)] * per_block - 1
    dimensions = {ids[a]: n for ids, of in ((GDIM, grid), (BDIM, block)) for a, n in zip("xyz", of)}
    tests = [
        x for x in conjuncts(use.access.guard) if all(y in dimensions or y in _OWN for y in t.leaves(x))
    ]  # fmt: skip
    return any(
        all(t.evaluated(x, {**dimensions, **support.coordinates(
            support.on_axis(axis.grid, number // per_block), support.on_axis(axis.name, number % per_block)
        )}) != 0 for x in tests)
        for number in (size, last)
    )  # fmt: skip


_OWN = frozenset((*BID.values(), *TID.values()))


def _tested(
    kernel: Kernel, use: _Use, axis: Axis, launch: Launch, size: Term, either: Term | None
) -> FixDraft | None:  # fmt: skip
    from cudalint.rules import guards

    if either is not None:
        return guards.joined(kernel, use.plane, use.access, either)
    shown = _shown(kernel, use, axis)
    polynomial = t.poly(shown) if shown is not None else None
    return guards.add_axis(kernel, use.plane, use.access, axis, launch, polynomial, size, use.alone)


def _extent(kernel: Kernel, use: _Use, axis: Axis, launch: Launch) -> Term | None:
    """How many elements an axis has, in terms of the host: what the kernel shows, else what its grid divides."""
    assert launch.grid is not None
    shown = _shown(kernel, use, axis)
    if shown is not None:
        return launch.at_launch(shown)
    total = grids.threads(launch, axis)
    own = grids.sizing(launch.grid["xyz".index(axis.grid)])
    if own.divisor is None or total is None or not t.leaves(total):
        return None
    others = [_shown(kernel, use, x) for x in use.plane.axes.values() if x is not axis]
    taken = [t.poly(launch.at_launch(x)) for x in others if x is not None]
    if t.poly(own.size) in taken:
        # The grid's axes are swapped where it divides another axis's size here, and this one's there.
        found = (grids.sizing(x) for x in launch.grid if x is not launch.grid["xyz".index(axis.grid)])
        left = [x.size for x in found if x.divisor is not None and t.poly(x.size) not in taken]
        if len(left) == 1:
            return left[0]
    return own.size


def _shown(kernel: Kernel, use: _Use, axis: Axis) -> Term | None:
    """An axis's extent as the kernel shows it: what it is tested against anywhere, or what multiplies the next axis."""
    for item in kernel.layout.coordinates:
        if item.ids == axis.ids and item.loop is None and item.pitch == shapes.ONE:
            return from_poly(item.limit, I64)
    rows = [shapes.divide(x.scale, axis.scale) for x in use.plane.axes.values() if x is not axis]
    data = sorted((r for r in rows if r and _is_data(r)), key=lambda r: len(next(iter(r))))
    return from_poly(data[0], I64) if data else None


def _either(guard: Guard | None) -> Term | None:
    """A test that holds when either axis is in range: ``x < w || y < h``."""
    for term in conjuncts(guard):
        if term.op != "lor":
            continue
        sides: list[set[str]] = []
        for part in term.args:
            if part.op in ("lt", "le"):
                excess = expand(t.add(t.poly(part.args[0]), t.poly(part.args[1]), -1))
                sides.append({a for a in shapes.AXES if shapes.positive(shapes.coefficient(excess, TID[a]))})
        if len(sides) == 2 and sides[0] and sides[1] and sides[0] != sides[1]:
            return term
    return None


def _missing_draft(use: _Use, axis: Axis, launch: Launch, size_term: Term, env: w.Assignment, either: bool) -> Draft:
    assert launch.grid is not None and launch.block is not None
    at, on_grid = "xyz".index(axis.name), "xyz".index(axis.grid)
    parts = [_number(p, env) for p in (*launch.grid, *launch.block)]
    size, threads = _number(size_term, env), parts[on_grid] * parts[3 + at]
    per_block = max(1, parts[3 + at])
    grid, block = support.halves(parts)
    names = launches.words(env)
    where = f"at {names} " if names else ""
    why = (
        f"the tests of {' and '.join(sorted(use.plane.axes))} are joined so that one in range is enough"
        if either
        else f"{' and '.join(sorted(use.alone)) or 'the other axis'} is tested, {axis.name} is not"
    )
    return Draft(
        "CL502", use.access.fn, use.access.fn.file, use.access.node.start, use.access.node.end,
        f"`{support.text(use.access.fn, use.access.node)}` can be out of range on {axis.name}: {why}, and {where}the "
        f"launch starts {plural(threads, 'thread')} along {axis.name} for {plural(size, 'element')}",
        "return unless every axis is in range: `if (x >= w || y >= h) return;`",
        Witness(
            search.sizes_of(env), grid, block,
            (support.on_axis(axis.grid, size // per_block), support.on_axis(axis.name, size % per_block)),
            {f"{axis.name} of that thread": size},
        ),
        ((launch.event.fn.file, launch.event.node.start, launch.event.node.end, "launched here"),
         *support.calls(use.access)),
    )  # fmt: skip


def _tile_draft(found: Outside) -> Draft:
    access, event = found.access, found.launch.event
    names = launches.words(found.host)
    where = f"at {names} " if names else ""
    tile = f" in pass {found.tile} of the loop over tiles" if found.tile is not None else ""
    along = found.on if len(found.on) == 1 else "another axis"
    return Draft(
        "CL502", access.fn, access.fn.file, access.node.start, access.node.end,
        f"`{support.text(access.fn, access.node)}` can be out of range: one of its coordinates is tested, and {where}"
        f"{launches.thread_words(found.thread, found.grid, found.block)} comes to coordinate {digits(found.value)} "
        f"along {along}{tile}, where there {'is' if found.extent == 1 else 'are'} {plural(found.extent, 'element')} "
        "and no test",
        "put the access under tests of all its coordinates: `row < rows && column < columns`",
        Witness(
            search.sizes_of(found.host), found.grid, found.block, found.thread,
            {"coordinate": found.value, "elements along it": found.extent},
        ),
        ((event.fn.file, event.node.start, event.node.end, "launched here"), *support.calls(access)),
    )  # fmt: skip


def _number(term: Term, env: w.Assignment) -> int:
    """A dimension's value; 1 where it hangs on something the witness does not vary."""
    try:
        return int(t.evaluate(term, env))
    except t.Undefined:
        return 1


def experiment_cl501(bench: Bench) -> Plan:
    """Elements that two threads write, one of them from the row before, and accesses outside of the image."""
    from cudalint.confirm.experiment import Plan, oracle

    return Plan(bench.trials(), oracle.first_of(oracle.written_twice, oracle.outside))


experiment_cl502 = experiment_cl501
