"""CL202 short-grid and CL203 floor-div-grid: elements of a one-element kernel that no thread owns."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from cudalint.facts import kernels, search, shapes
from cudalint.facts import terms as t
from cudalint.facts import witness as w
from cudalint.facts.events import conjuncts
from cudalint.facts.expressions import from_poly
from cudalint.facts.ids import BDIM, BID, GDIM, TID
from cudalint.facts.roots import concerning
from cudalint.facts.uniformity import expand
from cudalint.findings import Witness, digits
from cudalint.ir.types import I64, Float
from cudalint.lazy import NamedTuple
from cudalint.rules import launches
from cudalint.rules.draft import Draft
from cudalint.rules.overlap import overlap

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from cudalint.confirm.experiment import Bench, Plan
    from cudalint.confirm.oracle import Fault, Run
    from cudalint.facts.events import Loop, Obj
    from cudalint.facts.kernels import Case, Coordinate
    from cudalint.facts.model import Kernel, Launch
    from cudalint.facts.terms import Poly, Term
    from cudalint.rules.draft import FixDraft
    from cudalint.rules.overlap import Overlap

CODES = ("CL202", "CL203")

_FLOAT_EXACT = 1 << 24
"""From here on a count computed in `float` is short by rounding, which is CL109's to say."""

_MOST = 1 << 30
"""Elements in a case; beyond it the arithmetic of the sizes themselves wraps, which the width rules say."""

_FETCHES = frozenset({"tex1Dfetch", "tex1D", "tex2D", "tex3D"})
"""Reads of a texture at coordinates."""


class Unit(NamedTuple):
    """What a coordinate counts: ``element`` and ``elements``, ``pack of 4 elements`` and ``packs of 4 elements``."""

    one: str
    many: str

    def counted(self, number: int) -> str:
        return f"{digits(number)} {self.one if number == 1 else self.many}"


_ELEMENT, _ROW, _PLANE = Unit("element", "elements"), Unit("row", "rows"), Unit("plane", "planes")


class Short(NamedTuple):
    """Host sizes at which the launch comes to ``reach`` of ``size`` elements of an axis.

    ``floored`` tells that a division rounded down is why: less than one block's share is missing at any size.
    """

    axis: str
    case: Case
    host: w.Assignment
    reach: int
    size: int
    size_words: str
    floored: bool
    coordinate: Coordinate | None = None
    """What the kernel tests, where it does."""


def check(launch: Launch) -> Iterator[Draft]:
    """One finding of a kind a launch: the first axis that a division rounds down, the first that is short otherwise."""
    handed = short(launch) is None and launch.own is not None
    if handed:
        assert launch.own is not None
        launch = launch.own
    if short(launch) is None or lost(launch) is not None:
        return
    told: set[bool] = set()
    for found in _every(launch):
        if handed and not found.floored:
            continue  # of blocks nobody hands over
        if found.floored not in told and not _swapped(launch, found):
            told.add(found.floored)
            yield _draft(launch.first_pass, found, _repair(launch, found))


def _swapped(launch: Launch, found: Short) -> bool:
    """Whether the coordinate is tested against another axis's size (CL503): the grid is right, the test is not."""
    from cudalint.rules.cl503_swapped_axis_check import swaps

    assert launch.kernel is not None
    item = found.coordinate
    if item is None or found.floored:
        return False
    accesses = [a for a in launch.kernel.flow.accesses if a.obj.kind == "global"]
    return any(item.term in (*x.fast.terms, *x.slow.terms) for a in accesses for x in swaps(a))


def lost(launch: Launch) -> Overlap | None:
    """What a wrong index does to a launch that comes to too few elements: no other grid makes it right (CL211)."""
    if "lost" not in launch.answers:
        found = short(launch)
        launch.answers["lost"] = (
            overlap(launch.first_pass, found.case, found.coordinate, found.reach, found.size)
            if found is not None and found.coordinate is not None
            else None
        )
    return launch.answers["lost"]  # type: ignore[return-value]  # put there above


def short(launch: Launch) -> Short | None:
    """The axis on which a launch does not come to every element of its one-element kernel, with a witness."""
    if "short" not in launch.answers:
        launch.answers["short"] = next(_every(launch), None)
    return launch.answers["short"]  # type: ignore[return-value]  # put there above


def _every(launch: Launch) -> Iterator[Short]:
    """One case for each axis that is short."""
    kernel = launch.kernel
    if kernel is None or launch.grid is None or launch.block is None or not kernel.flow.complete:
        return
    first = launch.first_pass
    for axis in kernels.AXES:
        found = next((x for group in kernel.layout.groups(axis) if (x := _group(first, axis, group))), None)
        # A host loop may launch in pieces: what one leaves out is another's, but for what a division drops.
        if found is not None and (found.floored or first is launch):
            yield found
    for axis in kernels.AXES:
        found = _untested(first, axis)
        if found is not None:
            yield found


def _group(launch: Launch, axis: str, group: list[Coordinate]) -> Short | None:
    """The coordinates made of the same ids: short where every size they are tested against is out of reach."""
    assert launch.grid is not None and launch.block is not None
    if any(c.loop is not None for c in group) or axis != group[0].axes[0]:
        return None
    first = group[0]
    at = "xyz".index(axis)
    has_block = any(BID[a] in first.ids for a in kernels.AXES)
    if not has_block and t.bare(launch.grid[at]) is not t.const(1, t.bare(launch.grid[at]).type):
        touched = kernels.ids_of(x for c in group for a in c.accesses for x in t.atoms_of(a.scalar or {}))
        if touched.isdisjoint(BID.values()):
            return None  # all blocks do the same: CL211
    limits = []
    for item in group:
        limit = _at_host(launch, _extent(item))
        if limit is None:
            return None
        limits.append(limit)
    if not has_block and not any(t.leaves(x) for x in limits):
        # `threadIdx.x < 32`: a choice of threads, no size.
        return None
    if not has_block and any(_walks(loop, c) for c in group for loop in c.counters):
        return None  # tile by tile: how far is the loop's to say (CL215)
    blocks, threads = _along(launch, first)
    if _is_elsewhere(launch, blocks, threads, limits, group):
        return None
    if _covers(launch, at, first, group, limits):
        return None

    known, asked = launch.flow.answers, _asked(launch, group, limits)
    if asked not in known:
        known[asked] = _lacking(launch, group, limits, [*blocks, *threads])
    env: w.Assignment | None = known[asked]  # type: ignore[assignment]  # put there above
    if env is None:
        return None
    case = kernels.case(launch, env)
    assert case is not None
    if any(_wraps(x, case.host) for x in blocks):
        return None  # the width rules say it
    reach, size = max((case.reach(c), _size(case, c) - c.inclusive) for c in group)
    if any(isinstance(x.type, Float) for b in blocks for x in t.inside([b])) and size >= _FLOAT_EXACT:
        return None
    floored = _is_floored(launch, [*blocks, *threads], limits, group, env)
    if case.empty is not None and not floored:
        return None  # an empty launch is CL204
    if floored and launches.has_tail(launch, [*blocks, *threads]):
        return None
    unit = _unit(first)
    plain = t.leaves(limits[0]) and shapes.positive(t.poly(limits[0]))
    words = f"{t.show(limits[0])} {unit.many}" if plain else unit.counted(size)
    return Short(axis, case, env, reach, size, words, floored, first)


def _asked(launch: Launch, group: list[Coordinate], limits: list[Term]) -> object:
    """All that :func:`_lacking` looks at: dispatches launch one grid for many instances of a kernel."""
    indices = [launch.at_launch(from_poly(c.index, I64)) for c in group]
    items = tuple((limit, index, c.ids, c.inclusive, c.last) for c, limit, index in zip(group, limits, indices))
    sizes = search.leaves_of([*limits, *indices, *(launch.grid or ()), *(launch.block or ())])
    return "lacking", launch.grid, launch.block, items, concerning(launch.conditions, sizes)


def _lacking(
    launch: Launch, group: list[Coordinate], limits: list[Term], dimensions: list[Term]
) -> w.Assignment | None:
    """Sizes at which all coordinates of a group stay below what they are tested against; ``dimensions`` are those of
    the grid and of the block that they are made of."""
    axes = group[0].axes
    cases: dict[tuple[int, ...], Case | None] = {}
    powers = _powers(launch)

    def goal(env: w.Assignment, *, empty: bool = False) -> bool:
        key = tuple(env.values())  # of the same sizes in the same order, whichever search asks
        if key not in cases:
            cases[key] = kernels.case(launch, env)
        case = cases[key]
        if any(v & v - 1 for x, v in env.items() if x in powers):
            return False
        if case is None or case.oversized or not (case.empty and case.empty in axes if empty else case.possible):
            return False
        sizes = [(case.reach(c), _size(case, c) - c.inclusive) for c in group]
        return all(reach < size <= _MOST for reach, size in sizes)

    leaves = search.ordered(limits, [*dimensions, *(launch.grid or ()), *(launch.block or ())])
    tries = search.edges(launch, [*dimensions, *limits, _share(launch, group[0])])
    for item in group:
        tries |= launches.reaches(launch, leaves, item)
    tries |= _scaled(tries, limits)
    return _search(goal, leaves, launch, tries)


def _along(launch: Launch, item: Coordinate) -> tuple[list[Term], list[Term]]:
    """The dimensions of the grid and of the block that a coordinate is made of."""
    grid, block = launch.grid or (), launch.block or ()
    blocks = [x for axis, x in zip("xyz", grid) if axis in item.axes and BID[axis] in item.ids]
    return blocks, [x for axis, x in zip("xyz", block) if axis in item.axes and TID[axis] in item.ids]


def _is_elsewhere(
    launch: Launch, blocks: list[Term], threads: list[Term], limits: list[Term], group: list[Coordinate]
) -> bool:
    """Whether it is no matter of this launch how far it comes: its dimensions are handed over, or what is tested is a
    part of what there is, which the grid is made for."""
    apart = search.leaves_of(limits).isdisjoint(search.leaves_of(blocks))
    return not launches.visible(blocks, threads, limits) or (apart and any(_chooses(launch, c) for c in group))


def _walks(loop: Loop, item: Coordinate) -> bool:
    """Whether a loop's passes are counted from the size that a coordinate is tested against."""
    found = kernels.trips(loop)
    sizes = search.leaves_of(t.atoms_of(item.limit))
    return found is not None and not sizes.isdisjoint(search.leaves_of(t.atoms_of(found[0])))


def _wraps(blocks: Term, host: Mapping[Term, int]) -> bool:
    """Whether a number of blocks is another than its formula says, for an overflow on the way."""
    try:
        return bool(t.evaluate(blocks, {**host}) != t.evaluate(blocks, {**host}, exact=False))
    except t.Undefined:
        return False


def _chooses(launch: Launch, item: Coordinate) -> bool:
    """Whether threads beyond a limit store to the same array as those within: what the test chooses is the value."""
    assert launch.kernel is not None
    within = {a.obj for a in item.accesses if a.mode != "r"}
    beyond = t.lnot(item.term)
    return any(
        a.obj in within and a.mode != "r" and any(beyond in kernels.disjuncts(g) for g in conjuncts(a.guard))
        for a in launch.kernel.flow.accesses
    )


def _scaled(tries: set[int], limits: list[Term]) -> set[int]:
    """Sizes that are still those of ``tries`` where elements are counted in larger ones (``m / 3``)."""
    scales = {math.ceil(c) for c in w.constants(limits, floats=True) if 1 < c <= 1 << 16}
    return {v * c for v in tries for c in scales if v * c < search.LARGEST}


def _extent(item: Coordinate) -> Poly:
    """Elements that there are: what the test compares with, and for a pack of elements a block apart of which the test
    asks for the last (``i + 3 * blockDim.x < n``) those up to it."""
    pack = {m: -c for m, c in item.limit.items() if c < 0 and any(BDIM[a] in m for a in item.axes)}
    if not pack or any(c < 0 for c in t.add(item.share, pack, -1).values()):
        return item.limit
    return t.add(item.limit, pack)


def _size(case: Case, item: Coordinate) -> int:
    """Elements that there are; all of a pack that lies side by side where the test asks for its last
    (``4 * i + 3 < n``)."""
    number, pack = case.number(_extent(item)), t.constant(item.pitch) or 1
    return -(-number // pack) * pack if 1 < pack <= 1 - item.limit.get((), 0) else number


def _search(goal: Callable[..., bool], leaves: list[Term], launch: Launch, tries: set[int]) -> w.Assignment | None:
    """A launch that the driver takes and that is short; failing that, one that is empty."""
    inner = search.leaves_of(launch.block)
    found = search.smallest(goal, leaves, launch, tries, block_leaves=inner)
    if found is not None or search.never_empty([*(launch.grid or ()), *(launch.block or ())]):
        return found
    return search.smallest(lambda env: goal(env, empty=True), leaves, launch, tries, block_leaves=inner)


def _at_host(launch: Launch, p: Poly) -> Term | None:
    """A kernel polynomial over the host's sizes; None where a part of it is not passed at the launch."""
    term = launch.at_launch(from_poly(p, I64))
    formal = set(launch.kernel.flow.params.values()) if launch.kernel is not None else set()
    if any(x in formal or x.data.kind in ("bdim", "gdim", "tid", "bid", "count") for x in t.leaves(term)):
        return None
    return term


def _share(launch: Launch, item: Coordinate) -> Term | None:
    return _at_host(launch, item.share or item.pitch)


def _covers(launch: Launch, at: int, first: Coordinate, group: list[Coordinate], limits: list[Term]) -> bool:
    """The usual case, seen without a search: blocks of t elements, ``(n + t - 1) / t`` of them."""
    assert launch.grid is not None
    blocks = launch.grid[at]
    while blocks.op == "cast":
        blocks = blocks.args[0]
    if blocks.op != "div" or len(group) != 1:
        return False
    by = t.poly(blocks.args[1])
    share = _share(launch, first)
    if share is None or t.poly(share) != by:
        return False
    return t.add(t.poly(blocks.args[0]), t.add(t.poly(limits[0]), t.add(by, {(): 1}, -1)), -1) == {}


# --- why it is short ----------------------------------------------------------------------------


def _is_floored(
    launch: Launch, dimensions: list[Term], limits: list[Term], group: list[Coordinate], env: w.Assignment
) -> bool:
    """Whether a division of the kernel's own size is what loses elements, and not more than its remainder."""
    sizes = {x for limit in limits for x in t.leaves(limit)}
    divided = any(
        part.op in ("div", "shr") and not sizes.isdisjoint(t.leaves(part))
        for dimension in dimensions
        for part in t.inside([dimension])
    )
    if not sizes:
        divided = launches.written_division(launch)
    if not divided:
        return False
    # A floored block loses its remainder once a block.
    every_block = any(
        part.op in ("div", "shr") and not sizes.isdisjoint(t.leaves(part))
        for dimension in launch.block or ()
        for part in t.inside([dimension])
    )
    # At a large size a clamp, a constant or too large a divisor leaves out far more than one block's share.
    for large in ((1 << 29) + 3, 1_000_003, 10_007, 1_009, 1_008):
        big = {x: (large if x in sizes else v) for x, v in env.items()}
        if not all(w.allowed(c, big) for c in launch.conditions):
            continue
        case = kernels.case(launch, big)
        if case is None or not case.possible or any(_size(case, c) > _MOST for c in group):
            continue
        return _within_share(case, group, every_block)
    case = kernels.case(launch, env)
    return case is not None and _within_share(case, group, every_block)


def _within_share(case: Case, group: list[Coordinate], every_block: bool) -> bool:
    """Whether what is lost is less than one block's share (one a block where every block is short)."""
    blocks = case.grid[0] * case.grid[1] * case.grid[2] if every_block else 1
    try:
        for item in group:
            share = max(case.peak(item.share), case.peak(item.pitch), 1)
            if _size(case, item) - case.reach(item) >= share * blocks:
                return False
    except t.Undefined:
        return True
    return True


# --- kernels that test nothing ------------------------------------------------------------------


def _untested(launch: Launch, axis: str) -> Short | None:
    """A floored grid on an axis that the kernel addresses by and never tests."""
    assert launch.grid is not None and launch.block is not None and launch.kernel is not None
    at = "xyz".index(axis)
    blocks = launch.grid[at]
    division = launches.division(blocks, launches.packs(launch, [launch.block[at]]))
    if division is None:
        return None
    size, divisor = division
    if not all(search.is_size(x) or x.data.kind == "device" for x in t.leaves(blocks)):
        return None
    if not t.leaves(size) or t.leaves(divisor) & t.leaves(size):
        return None
    inner = {x for extent in launch.block for x in t.atoms_of(t.poly(extent))}
    if not all(x in inner or x.data.kind == "device" or w.instances(x) for x in t.leaves(divisor)):
        return None  # another extent of the data (`numel / columns`), which divides without a rest
    layout = launch.kernel.layout
    if any(BID[axis] in c.ids for c in layout.coordinates):
        return None
    if not _addresses(launch, axis) or launches.are_records(launch, axis, divisor):
        return None
    before = _blocks_before(launch, axis, blocks)

    cases: dict[tuple[int, ...], Case | None] = {}
    powers = _powers(launch)

    def goal(env: w.Assignment, *, empty: bool = False) -> bool:
        key = tuple(env.values())  # of the same sizes in the same order, whichever search asks
        if key not in cases:
            cases[key] = kernels.case(launch, env)
        case = cases[key]
        if any(v & v - 1 for x, v in env.items() if x in powers):
            return False
        if case is None or case.oversized or not (case.empty == axis if empty else case.possible):
            return False
        n, by = t.evaluate(size, env), t.evaluate(divisor, env)
        return bool(by > 1 and (before + case.grid[at]) * by < n <= _MOST)

    leaves = search.ordered([size], [blocks, divisor, *launch.grid, *launch.block])
    tries = search.edges(launch, [blocks, size, divisor])
    tries |= _scaled(tries, [size])
    tries |= {v * (before + 1) + 1 for v in tries if before}
    env = _search(goal, leaves, launch, tries)
    if env is None or launches.has_tail(launch, [blocks]):
        return None
    case = kernels.case(launch, env)
    assert case is not None
    n, by = t.evaluate(size, env), t.evaluate(divisor, env)
    for leaf in t.leaves(size):
        # Far from the size it divides, the grid is something else than a rounded count.
        big = {**env, leaf: 1_000_003}
        large = kernels.case(launch, big)
        told = large is not None and all(w.allowed(c, big) for c in launch.conditions)
        if large is not None and told and t.evaluate(size, big) - (before + large.grid[at]) * by >= by:
            return None
    return Short(axis, case, env, (before + case.grid[at]) * by, n, t.show(size), True)


def _blocks_before(launch: Launch, axis: str, blocks: Term) -> int:
    """The blocks that are left out at the start (``n / t - 1``), where the kernel counts its own from there: it has
    something else for their elements (the diagonal of a factorisation)."""
    assert launch.kernel is not None
    left_out = -t.poly(blocks).get((), 0)
    if left_out <= 0:
        return 0
    for access in launch.kernel.flow.accesses:
        p = expand(access.scalar or {})
        if access.obj.kind == "global" and access.mode != "r":
            steps = shapes.stepped(p, BID[axis])
            if any(p.get(m, 0) != left_out * c for m, c in steps.items()):
                return 0
    return left_out


def _powers(launch: Launch) -> set[Term]:
    """The sizes of which the host checks what a loop, or a function of the project that cannot be seen, has made of
    them: that they are powers of two, for all that is known."""
    checked = search.leaves_of(launch.conditions)
    loops = {x.data.data.init for x in checked if x.data.kind == "exit"}
    calls = [x for x in launch.flow.calls if x.result in checked and x.node.target is not None]
    told = [*loops, *(x for call in calls for x in call.args)]
    return search.leaves_of(x for x in told if isinstance(x, t.Term))


def _addresses(launch: Launch, axis: str) -> bool:
    """Whether every block of the axis works at an address of its own, with no loop over the grid: stores there, or
    fetches its texels, one a thread."""
    assert launch.kernel is not None
    flow = launch.kernel.flow
    fetched = [x for call in flow.calls if call.node.name in _FETCHES for x in call.args if isinstance(x, t.Term)]
    texels = [expand(t.poly(t.bare(x))) for x in fetched]
    found = any(shapes.stepped(p, BID[axis]) and shapes.stepped(p, TID[axis]) == {(): 1} for p in texels)
    for access in () if found else flow.accesses:
        p = expand(access.scalar or {})
        if access.obj.kind != "global" or access.mode == "r" or not shapes.stepped(p, BID[axis]):
            continue
        if any(shapes.mentions(p, GDIM[a]) for a in kernels.AXES):
            return False
        found = True
    return found and not any(
        GDIM[axis] in t.leaves(info.step)
        for loop in flow.loops
        for info in loop.inductions.values()
        if info.step is not None
    )


# --- the finding --------------------------------------------------------------------------------


def _empty_at(launch: Launch, found: Short) -> str:
    """The largest size below the witness at which the grid is empty, in words; "" where there is none."""
    kept = search.leaves_of(launch.block)
    moving = [x for x in found.host if x not in kept and w.assumed(x) is None]
    if not moving:
        return ""
    leaf = moving[0]

    def empty(value: int) -> bool:
        env = {**found.host, leaf: value}
        case = kernels.case(launch, env)
        return case is not None and case.empty is not None and all(w.allowed(c, env) for c in launch.conditions)

    low, high = 1, found.host[leaf]
    if not empty(low):
        return ""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if empty(middle) else (low, middle)
    return f"{leaf.data.called(low)} = {digits(low)}"


def _share_words(found: Short) -> str:
    item = found.coordinate
    return "each block" if item is not None and item.thread is None and item.block is not None else "each thread"


def _unit(item: Coordinate | None) -> Unit:
    """What the coordinate counts, by the addresses made of it: packs where it is multiplied by a constant in all of
    them, rows where by a size or where it is a quotient by one, planes where by two sizes."""
    if item is None:
        return _ELEMENT
    if any(x.op == "div" and t.leaves(x.args[1]) for x in t.atoms_of(item.index)):
        return _ROW
    own, factor = next(iter(item.index.items()))
    packs: set[int] = set()
    sizes: set[int] = set()
    for access in item.accesses:
        for monomial, times in expand(access.scalar or {}).items():
            rest = [x for x in monomial if x not in own]
            if len(rest) == len(monomial) - len(own):
                (sizes if rest else packs).add(len(rest) or times // factor)
    each = min((k for k in packs if k > 0), default=0)
    if each > 1:
        return Unit(f"pack of {each} elements", f"packs of {each} elements")
    return _ELEMENT if packs or not sizes else _ROW if 1 in sizes else _PLANE


def _each(found: Short) -> str:
    """How many elements a thread (or a block without threads in its index) handles, in words."""
    item, unit = found.coordinate, _unit(found.coordinate)
    if item is not None and not item.counters and not any(x.data.kind == "count" for x in item.ids):
        try:
            k = found.case.number(item.each or item.share)
        except t.Undefined:
            k = 0
        if k > 0:
            return f"one {unit.one}" if k == 1 else unit.counted(k)
    return f"a fixed number of {unit.many}"


def _counts_down(item: Coordinate) -> bool:
    """Whether blocks and threads take the elements from the end: those that are left out are not the last ones."""
    return any(
        factor < 0 and not item.ids.isdisjoint(monomial)
        for access in item.accesses
        for monomial, factor in expand(access.scalar or {}).items()
    )


def _rounded(launch: Launch, axis: str) -> str:
    """What of the launch is divided on an axis: the block alone, or the grid."""
    assert launch.grid is not None and launch.block is not None
    grid, block = (
        any(p.op in ("div", "shr") and t.leaves(p) for p in t.inside([dims["xyz".index(axis)]]))
        for dims in (launch.grid, launch.block)
    )
    return "the threads of a block" if block and not grid else "the number of blocks"


def _draft(launch: Launch, found: Short, fix: FixDraft | None) -> Draft:
    kernel = launch.kernel
    assert kernel is not None
    case, axis, event = found.case, found.axis, launch.event
    names = launches.words(found.host)
    at = f"at {names} " if names else ""
    on = "" if case.grid[1:] == (1, 1) and case.block[1:] == (1, 1) and axis == "x" else f" on {axis}"
    count, reach = found.size - found.reach, digits(found.reach)
    unit = _unit(found.coordinate)
    noun = unit.one.split()[0]
    elements = f"{noun} {reach} has" if count == 1 else f"{noun}s {reach} to {digits(found.size - 1)} have"
    backwards = found.coordinate is not None and _counts_down(found.coordinate)
    if backwards:
        elements = f"{unit.counted(count)} {'has' if count == 1 else 'have'}"
    empty = case.empty is not None
    start, end = event.node.start, event.node.end
    if found.floored:
        message = (
            f"the launch of {kernel.decl.name} rounds {_rounded(launch, axis)} down{on}: {at}"
            + (f"it starts no block at all for {unit.counted(count)}" if empty
               else f"its threads come to {reach} of {unit.counted(found.size)}, and {elements} no thread")
        )  # fmt: skip
        also = _empty_at(launch, found)
        if also and not empty:
            message += f"; at {also} the launch is empty, and refused"
        help_ = "round up, `n / t + (n % t != 0)`, with the guard in the kernel that surplus threads need"
    else:
        message = (
            f"{_share_words(found)} of {kernel.decl.name} handles {_each(found)}, and this launch has too few for "
            f"{found.size_words}{on}: {at}they come to {reach} of {digits(found.size)}, and {elements} no thread"
        )
        help_ = "size the grid from the number of elements, or step the kernel's index by the whole grid in a loop"
    values: dict[str, int | str] = {f"{noun}s without a thread": count}
    if not backwards:
        values = {f"first {noun} without a thread": found.reach, **values}
    grid = case.grid
    return Draft(
        "CL203" if found.floored else "CL202", event.fn, event.fn.file, start, end, message, help_,
        Witness(search.sizes_of(found.host), grid, case.block, None, values),
        (launches.kernel_place(kernel), *launches.callers(launch)),
        fix=fix,
    )  # fmt: skip


def _repair(launch: Launch, found: Short) -> FixDraft | None:
    from cudalint.rules import round_up

    if launch.first_pass is not launch:
        return None  # what is written is not what the first pass makes of it
    if not found.floored:
        return round_up.sized(launch, found)
    return round_up.repair(launch, [x for x in _every(launch) if x.floored])


# --- the experiment -----------------------------------------------------------------------------


def _tied(kernel: Kernel) -> list[str]:
    """The arrays to which no grid brings all values: stored to at two coordinates that hang on one block's number, at
    one whose blocks lie between the elements of a thread, or at one of a block's threads on several axes alone."""
    found: dict[str, None] = {}
    for item in kernel.layout.coordinates:
        in_block = len(item.axes) > 1 and item.ids.isdisjoint(BID.values())
        if item.each != item.pitch or in_block:
            found.update((a.obj.name, None) for a in item.accesses if a.obj.kind == "global" and a.mode != "r")
        for other in kernel.layout.coordinates:
            apart = item.ids - other.ids and other.ids - item.ids
            if apart and any(x.data.kind == "bid" for x in item.ids & other.ids):
                both = [a for a in item.accesses if a in other.accesses and a.obj.kind == "global" and a.mode != "r"]
                found.update(dict.fromkeys(a.obj.name for a in both))
    return list(found)


def _is_all_elsewhere(launch: Launch) -> bool:
    """Whether it is no matter of a launch how far it comes along any of its kernel's coordinates."""
    coordinates = launch.kernel.layout.coordinates if launch.kernel is not None else []
    limits = [(item, _at_host(launch, _extent(item))) for item in coordinates]
    return bool(limits) and all(
        limit is not None and _is_elsewhere(launch, *_along(launch, item), [limit], [item]) for item, limit in limits
    )


def experiment_cl202(bench: Bench) -> Plan:
    """Elements that the same kernel writes on a grid that covers, and not on this one; all of them where the grid has
    no blocks."""
    from cudalint.confirm.experiment import Plan, oracle

    launch = bench.launch
    handled = launch is not None and launches.has_tail(launch, launch.grid or ())

    def unlaunched(run: Run) -> Fault | None:
        found = oracle.empty(run)
        if found is None or handled:
            return None
        for item in bench.kernel.layout.coordinates:
            for axis, blocks in zip("xyz", run.setup.grid):
                try:
                    if blocks == 0 and axis in item.axes and run.setup.case.size(item) > 0:
                        return found._replace(text=f"{found.text}, and no element is written", first=0)
                except t.Undefined:
                    continue
        return None

    def with_room(obj: Obj, extent: int, case: Case) -> int:
        # Elements for which too little is allocated (CL217) are to be missed by this launch all the same.
        tested = any(a.obj is obj for item in bench.kernel.layout.coordinates for a in item.accesses)
        return max(extent, bench.harness.extent([obj], case)) if tested else extent

    tied = _tied(bench.kernel)
    elsewhere = launch is not None and _is_all_elsewhere(launch.first_pass)

    def unreached(run: Run) -> Fault | None:
        """Where no grid covers: what this launch leaves of all that the tests let through."""
        if run.seen.end != "done" or run.seen.sampled:
            return None
        for name in tied:
            state = run.seen.buffers.get(name)
            first = next(iter(state.never(limit=1)), None) if state is not None else None
            if state is not None and first is not None:
                text = f"element {first} of `{name}`, of {state.extent}, is never written"
                return oracle.Fault("never-written", text, first, (), state.extent)
        return None

    bench.harness.adjusted = with_room
    trials = bench.trials(*bench.totals())
    first = tuple(f"first {noun} without a thread" for noun in ("element", "pack", "row", "plane"))
    judge = unlaunched if elsewhere else oracle.first_of(unlaunched, unreached, oracle.coverage)
    return Plan(trials, judge, bench.covering, first=first, refusal=True)


experiment_cl203 = experiment_cl202
