"""CL209 missing-bounds-guard: surplus threads of a launch with nothing to stop them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudalint.facts import kernels, search, shapes, tiles
from cudalint.facts import terms as t
from cudalint.facts import witness as w
from cudalint.facts.events import chain, conjuncts
from cudalint.facts.expressions import from_poly
from cudalint.facts.ids import BID, TID
from cudalint.facts.uniformity import expand
from cudalint.findings import Witness, digits, plural
from cudalint.ir.types import I64, Int
from cudalint.lazy import NamedTuple
from cudalint.rules import launches, support
from cudalint.rules.cl202_cl203_coverage import short
from cudalint.rules.draft import Draft

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cudalint.confirm.experiment import Bench, Plan
    from cudalint.facts.events import Access
    from cudalint.facts.kernels import Case
    from cudalint.facts.model import Kernel, Launch
    from cudalint.facts.shapes import Axis
    from cudalint.facts.terms import Poly, Term
    from cudalint.facts.tiles import Coordinate
    from cudalint.rules.draft import FixDraft

CODES = ("CL209",)

_SCANS = 5
"""Sizes at which the threads of a block are tried one by one."""


class _Outside(NamedTuple):
    """Host sizes at which thread ``thread`` of the launch is out of range: ``index`` where there are ``extent``."""

    case: Case
    host: w.Assignment
    thread: tuple[tuple[int, int, int], tuple[int, int, int]]
    element: int
    extent: int
    what: str
    along: str


def check(kernel: Kernel) -> Iterator[Draft]:
    """One finding a kernel: the first access that a surplus thread comes to."""
    if not kernel.is_kernel or not kernel.launches or not kernel.flow.complete:
        return
    accesses = [a for a in kernel.flow.accesses if a.obj.kind == "global" and a.scalar]
    accesses.sort(key=lambda a: a.seq)
    for access in accesses:
        p = expand(access.scalar or {})
        found = _coordinates(p)
        folded = [] if found else _folded(kernel, access, p)
        if not found and not folded:
            continue
        if found and (any(_tested(access, x) for x in shapes.axes(p).values()) or _axes_rule_speaks(kernel, access)):
            continue
        for launch in kernel.launches:
            outside = _outside(launch, access, p, found, folded)
            if outside is not None:
                yield _draft(kernel, launch, access, outside)
                return


def _coordinates(p: Poly) -> list[Axis]:
    """The axes by whose global index an address is formed; none where a part is clamped, wrapped or data."""
    for atom in t.atoms_of(p):
        if atom.op != "atom" and kernels.ids_of([atom]):
            return []
        if atom.op == "atom" and atom.data.kind not in ("tid", "bid") and kernels.ids_of([atom]):
            return []
    return [a for a in shapes.axes(p).values() if a.thread and a.block is not None and shapes.is_block(a.block)]


def _folded(kernel: Kernel, access: Access, p: Poly) -> list[Coordinate]:
    """The coordinates made of a block's number and a quotient or a remainder of a thread's, where nothing tests any
    coordinate of the address, here or where the same address is used again."""
    found = tiles.coordinates(p) if any(x.op != "atom" for x in t.atoms_of(p)) else []
    if not any(x.is_folded for x in found):
        return []
    if any(tiles.tests(term, x) for x in found for term in conjuncts(access.guard)):
        return []
    for later in kernel.flow.accesses:
        if later.scalar == access.scalar:
            terms = list(conjuncts(later.guard))
            if all(any(tiles.tests(term, x) for term in terms) for x in found):
                return []
    return [x for x in found if x.digits and (share := x.share) is not None and shapes.is_block(share)]


def _tested(access: Access, axis: Axis) -> bool:
    """Whether anything on the way asks for all that the coordinate is made of, or for its whole block."""
    if any(axis.ids <= kernels.ids_of([guard.term]) and not _one_sided(guard.term) for guard in chain(access.guard)):
        return True
    if not axis.grid or axis.block is None:
        return False
    for bound in shapes.upper_bounds(access.guard):
        # `first + blockDim.x <= n`: the block ends within n.
        ends = shapes.without(bound.excess, [BID[axis.grid]])
        if len(ends) < len(bound.excess) and all(ends.get(m, 0) >= c for m, c in axis.block.items()):
            return True
    return False


def _one_sided(term: Term) -> bool:
    """A test that bounds an index from below only, so that every thread from some size on passes it: ``n <= i``,
    ``i >= 0``, and ``i >= 0 || i < n`` too."""
    if term.op == "lor":
        return any(map(_one_sided, term.args))
    if term.op not in ("le", "lt"):
        return False
    index = expand(t.poly(term.args[1]))
    found = list(shapes.axes(index).values())
    plain = len(found) == 1 and found[0].is_global and found[0].scale == shapes.ONE and () not in index
    size = t.poly(term.args[0])
    return plain and all(x.op == "atom" and x.data.kind == "param" for x in t.atoms_of(size))


def _inverted(term: Term) -> bool:
    """A one-sided test of a size: ``n <= i`` looks like a guard that was written the wrong way round."""
    return term.op != "lor" and _one_sided(term) and bool(t.leaves(term.args[0]))


def _axes_rule_speaks(kernel: Kernel, access: Access) -> bool:
    """Whether the same offset of several axes is used below tests of all of them: CL501 says what is above them."""
    found = shapes.axes(expand(access.scalar or {}))
    return len(found) > 1 and any(
        later.seq > access.seq and later.scalar == access.scalar and all(_tested(later, x) for x in found.values())
        for later in kernel.flow.accesses
    )


def _outside(
    launch: Launch, access: Access, p: Poly, found: list[Axis], folded: list[Coordinate]
) -> _Outside | None:  # fmt: skip
    if launch.grid is None or launch.block is None:
        return None
    memory = launch.objects().get(access.obj)
    if memory is not None and memory.obj.bytes is not None and not memory.pieces:
        size = access.obj.element.size if access.obj.element is not None else None
        limits = [_memory(access, p, memory.obj.bytes, size)] if size else []
    else:
        alone = p if len(shapes.axes(p)) == 1 else None
        sized = [_size(launch, axis, alone, _pitch(launch, p, axis)) for axis in found]
        sized += [_tile_size(launch, item, several=len(tiles.coordinates(p)) > 1) for item in folded]
        limits = [x for x in sized if x is not None]
    for limit in limits:
        result = _search(launch, access, limit)
        if result is not None:
            lost = short(launch)
            # Of a floored grid CL203 speaks.
            return None if lost is not None and lost.floored else result
    return None


class _Limit(NamedTuple):
    """What an access must stay within: ``extent`` elements, of which a thread comes to ``element``; ``sizes`` are
    the host terms that they are made of."""

    extent: Callable[[Case], int]
    element: Callable[[Case], int]
    sizes: tuple[Term, ...]
    words: Callable[[Case], str]
    along: str = ""
    """The axis that is meant, where the address has several."""


def _memory(access: Access, p: Poly, allocated: Term, size: int) -> _Limit:
    """What the host function allocated."""

    def extent(case: Case) -> int:
        return int(t.evaluate(allocated, case.host)) // size

    return _Limit(
        extent, lambda case: tiles.settled(case, p).peak(p) + access.width - 1, (allocated,),
        lambda case: f"`{access.obj.name}` has {plural(extent(case), 'element')}",
    )  # fmt: skip


def _pitch(launch: Launch, p: Poly, axis: Axis) -> Term | None:
    """How far apart the rows of an address lie whose elements an axis counts, where the host passes it as a size."""
    others = [x.scale for x in shapes.axes(p).values() if x.ids != axis.ids]
    if axis.scale != shapes.ONE or len(others) != 1 or [len(m) for m in others[0]] != [1]:
        return None
    pitch = launch.at_launch(from_poly(others[0], I64))
    return pitch if t.leaves(pitch) and all(map(search.is_size, t.leaves(pitch))) else None


def _told(launch: Launch, size: Term) -> list[Term]:
    """The sizes that the kernel is told where it is not told what the grid divides: each may be the array's."""
    params = launch.kernel.params if launch.kernel is not None else []
    passed = [launch.at_launch(x) for x in params if isinstance(x.type, Int)]
    sizes = [x for x in passed if t.leaves(x) and all(map(search.is_size, t.leaves(x)))]
    told = t.leaves(size) <= search.leaves_of(passed) or any(t.poly(x) == t.poly(size) for x in passed)
    return [] if told else list(dict.fromkeys(sizes))


def _is_walked(launch: Launch, size: Term) -> bool:
    """Whether the kernel goes over the elements in a loop: a thread's own number is that of a worker then, whose part
    of the result has a place of its own."""
    assert launch.kernel is not None
    limits = [launch.at_launch(from_poly(x.limit, I64)) for x in launch.kernel.layout.coordinates if x.strides_grid]
    return not t.leaves(size).isdisjoint(search.leaves_of(limits))


def _size(launch: Launch, axis: Axis, alone: Poly | None, pitch: Term | None) -> _Limit | None:
    """The size that the grid is computed from, along one axis; ``alone`` is the address where it has no other.

    Rows that lie ``pitch`` apart have as many elements, which are no fewer than the size."""
    assert launch.grid is not None and launch.block is not None
    on_grid, at = "xyz".index(axis.grid), "xyz".index(axis.name)
    division = launches.division(launch.grid[on_grid])
    if division is None or axis.block is None:
        return None
    size, divisor = division
    share = axis.block
    # `in[g - radius]`: the threads past the end come to elements within it again.
    rest = shapes.without(alone or {}, axis.ids)
    before = rest if any(c < 0 for c in rest.values()) else None
    others = [pitch] if pitch is not None else _told(launch, size) if alone is not None else []
    walked = _is_walked(launch, size)

    def element(case: Case) -> int:
        by, each = int(t.evaluate(divisor, case.host)), case.number(share)
        if each < 1 or by % each or case.block[at] > each or (walked and by > each):
            raise t.Undefined  # the grid counts something else
        if alone is not None and by > each:
            return tiles.settled(case, alone).peak(alone)  # which of its elements a thread comes to here
        # Each block has `each` coordinates for `by` elements.
        top = (case.values[BID[axis.grid]] * each + case.values[TID[axis.name]]) * (by // each)
        return top if before is None else top + case.peak(before)

    def extent(case: Case) -> int:
        n, *more = (int(t.evaluate(x, case.host)) for x in (size, *others))
        if pitch is not None and more[0] < n:
            raise t.Undefined
        return max([n, *more])

    def words(case: Case) -> str:
        n, top = extent(case), element(case) + 1
        if alone is None:
            there = f"there {'is' if n == 1 else 'are'} {digits(n)}"
            return f"the launch comes to {plural(top, 'element')} along {axis.name} where {there}"
        threads = case.grid[on_grid] * case.block[at]
        return f"the launch starts {plural(threads, 'thread')} for {plural(n, 'element')}"

    return _Limit(
        extent, element, (size, launch.grid[on_grid], divisor, *others), words,
        "" if alone is not None else axis.name,
    )  # fmt: skip


def _tile_size(launch: Launch, item: Coordinate, *, several: bool) -> _Limit | None:
    """The size that the grid is computed from, along a coordinate of a folded block (of ``several``)."""
    assert launch.grid is not None
    (block,) = item.blocks
    axis, share = block.data.axis, item.share
    division = launches.division(launch.grid["xyz".index(axis)])
    if division is None or share is None:
        return None
    size, divisor = division

    def element(case: Case) -> int:
        each = case.number(share)
        found = tiles.settled(case, item.place).peak(item.place)
        if int(t.evaluate(divisor, case.host)) != each or found - case.values[block] * each >= each:
            raise t.Undefined  # the grid counts something else
        return found

    def words(case: Case) -> str:
        n, top = int(t.evaluate(size, case.host)), element(case) + 1
        along = f" along {axis}" if several else ""
        return (
            f"the launch comes to {plural(top, 'element')}{along} where there {'is' if n == 1 else 'are'} {digits(n)}"
        )

    return _Limit(
        lambda case: int(t.evaluate(size, case.host)), element,
        (size, launch.grid["xyz".index(axis)], divisor), words, axis if several else "",
    )  # fmt: skip


def _search(launch: Launch, access: Access, limit: _Limit) -> _Outside | None:
    """The smallest sizes found at which some thread that gets to the access is out of range."""
    assert launch.grid is not None and launch.block is not None
    sizes = [x for term in limit.sizes for x in t.leaves(term)]
    if not all(search.is_size(x) or x.data.kind == "device" for x in sizes):
        return None
    leaves = search.ordered(limit.sizes, [*launch.grid, *launch.block])
    asks = any(kernels.ids_of([guard.term]) for guard in chain(access.guard))
    scans = 0

    def goal(env: w.Assignment) -> bool:
        nonlocal scans
        case = kernels.case(launch, env)
        if case is None or not case.possible or not 0 < limit.extent(case) <= limit.element(case):
            return False
        if not _comes_to(case, access):
            return False
        if not asks:
            return True
        # Tests of thread numbers alone: whether a thread out of range passes them has to be tried.
        scans += 1
        return scans <= _SCANS and _first(case, access, limit) is not None

    tries = search.edges(launch, [*launch.grid, *launch.block, *limit.sizes])
    env = search.smallest(goal, leaves, launch, tries, block_leaves=search.leaves_of(launch.block))
    case = kernels.case(launch, env) if env is not None else None
    thread = _first(case, access, limit) if case is not None else None
    if env is None or case is None or thread is None:
        return None
    block, index = (
        (thread.values[atoms["x"]], thread.values[atoms["y"]], thread.values[atoms["z"]]) for atoms in (BID, TID)
    )
    return _Outside(
        case, env, (block, index), limit.element(thread), limit.extent(case), limit.words(case), limit.along
    )  # fmt: skip


def _comes_to(case: Case, access: Access) -> bool:
    """Whether each loop around an access makes a pass, as far as the sizes alone say."""
    for guard in chain(access.guard):
        found = kernels.trips(guard.loop) if guard.why == "loop" and guard.loop is not None else None
        if found is None or any(map(kernels.varies, t.atoms_of(found[0]))):
            continue
        try:
            if case.number(found[0]) < 0:
                return False
        except t.Undefined:
            continue
    return True


def _first(case: Case, access: Access, limit: _Limit) -> Case | None:
    """The first thread of the last block that gets to the access and is out of range; None also where a test of
    thread numbers cannot be told."""
    guards = [g.term for g in chain(access.guard)]
    last = (case.grid[0] - 1, case.grid[1] - 1, case.grid[2] - 1)
    extent = limit.extent(case)
    x, y, z = (range(v) for v in case.block)
    for thread in ((i, j, k) for k in z for j in y for i in x):
        here = case.of(last, thread)
        if limit.element(here) < extent:
            continue
        for guard in guards:
            holds = here.truth(guard)
            if holds is None and kernels.ids_of([guard]):
                return None
            if holds is False:
                break
        else:
            return here
    return None


def _draft(kernel: Kernel, launch: Launch, access: Access, found: _Outside) -> Draft:
    event = launch.event
    names = launches.words(found.host, launch)
    at = f"at {names} " if names else ""
    start, end = event.node.start, event.node.end
    several = bool(found.along) or len(shapes.axes(expand(access.scalar or {}))) > 1
    along = f" along {found.along}" if found.along else ""
    what = f"`{support.text(access.fn, access.node)}`"
    tests = [guard.term for guard in chain(access.guard)]
    inverted = any(map(_inverted, tests))
    why = f"only threads past the end come to {what}" if inverted else f"nothing tests the index of {what}"
    if not inverted and any(map(_one_sided, tests)):
        why = f"the test in front of {what} does not keep its index under a size"
    return Draft(
        "CL209", access.fn, access.fn.file, access.node.start, access.node.end,
        f"{why}: {at}{found.what}, and "
        f"{launches.thread_words(found.thread, found.case.grid, found.case.block)} is out of range",
        ("turn the test round: `if (i < n)`" if inverted
         else "put the access under tests of all its coordinates, each against its own size, "
              "`if (x < width && y < height)`"
         if several else "put the access under `if (i < n)`")
        + "; where a barrier follows, do not return early",
        Witness(
            search.sizes_of(found.host), found.case.grid, found.case.block, found.thread,
            {f"index{along}": found.element, f"elements{along}": found.extent},
        ),
        ((event.fn.file, start, end, f"{kernel.decl.name} is launched here"), *support.calls(access)),
        fix=_guarded(kernel, launch, access),
    )  # fmt: skip


def _guarded(kernel: Kernel, launch: Launch, access: Access) -> FixDraft | None:
    from cudalint.rules import guards

    return guards.guarded(kernel, launch, access)


def experiment_cl209(bench: Bench) -> Plan:
    """Accesses outside of buffers as large as the host allocates, or as the sizes that the grid divides."""
    from cudalint.confirm.experiment import Plan, oracle

    return Plan([bench.of_the_block_named(x) for x in bench.trials()], oracle.outside, first=("index",))
