"""Coordinates that a folded block or a loop over tiles makes, beside a tested one (CL502)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudalint.facts import kernels, search, shapes, tiles
from cudalint.facts import terms as t
from cudalint.facts import witness as w
from cudalint.facts.events import conjuncts
from cudalint.facts.ids import BID
from cudalint.facts.uniformity import expand
from cudalint.lazy import NamedTuple
from cudalint.rules import launches, support

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudalint.facts.events import Access, Loop
    from cudalint.facts.kernels import Case
    from cudalint.facts.model import Kernel, Launch
    from cudalint.facts.terms import Term
    from cudalint.facts.tiles import Coordinate
    from cudalint.rules.support import Triple

_SCANS = 6
"""Sizes at which the threads of a block are tried one by one."""


class Outside(NamedTuple):
    """An access that thread ``thread`` of ``launch`` at the sizes ``host`` makes at ``value`` of ``extent`` elements
    along a coordinate; ``on`` is what moves along it, ``tile`` the pass of the loop over tiles."""

    access: Access
    launch: Launch
    host: w.Assignment
    grid: Triple
    block: Triple
    thread: tuple[Triple, Triple]
    value: int
    extent: int
    on: str
    tile: int | None


def outside(kernel: Kernel) -> Outside | None:
    """The first access of a kernel that a thread makes beyond the end of such a coordinate, at a visible launch."""
    accesses = [a for a in kernel.flow.accesses if a.obj.kind == "global" and a.scalar and a.guard is not None]
    accesses.sort(key=lambda a: (a.fn.file.path, a.node.start))
    for access in accesses:
        p = expand(access.scalar or {})
        if all(x.op == "atom" and x.data.kind != "count" for x in t.atoms_of(p)):
            continue
        found = tiles.coordinates(p)
        if len(found) < 2:
            continue
        guards = list(conjuncts(access.guard))
        tested = [any(tiles.tests(term, item) for term in guards) for item in found]
        if not any(tested):
            continue
        for item, known in zip(found, tested, strict=True):
            if known or not item.digits or not (item.counters or (item.is_folded and item.blocks)):
                continue
            for launch in kernel.launches:
                result = _at_launch(launch, access, found, item, guards)
                if result is not None:
                    return result
    return None


def _at_launch(
    launch: Launch, access: Access, found: list[Coordinate], item: Coordinate, guards: list[Term]
) -> Outside | None:
    if launch.grid is None or launch.block is None:
        return None
    loops: list[Loop] = [x.data.data for x in item.counters]
    if any(len(x.control) != 1 for x in loops):
        return None  # a `break` ends it where it likes
    extent, divisor = _extent(launch, found, item)
    if extent is None:
        return None
    steps = [x for loop in loops for x in _trip_terms(launch, loop)]
    # A row may be padded beyond the size that its tiles or blocks are counted from.
    driving = [*steps, *(launch.grid["xyz".index(x.data.axis)] for x in item.blocks)]
    if _data(driving) - search.leaves_of(launch.block) != _data([extent]):
        return None
    sizes = [extent, *steps, *launch.grid, *launch.block]
    leaves = search.ordered([extent], sizes)
    if not all(search.is_size(x) or x.data.kind == "device" for x in leaves):
        return None
    unrolled = [support.unrolled([term]) for term in guards]
    scans = 0

    def first(case: Case) -> tuple[tuple[Triple, Triple], int, int | None] | None:
        nonlocal scans
        limit = int(t.evaluate(extent, case.host))
        if not case.possible or limit < 1:
            return None
        if divisor is not None and int(t.evaluate(divisor, case.host)) != case.number(item.share or {}):
            return None  # the grid counts something else
        last = {x: case.passes(x.data.data) for x in item.counters}
        case.values.update(last)
        if tiles.settled(case, item.place).peak(item.place) < limit:
            return None
        scans += 1
        return _first(case, item, unrolled, last, limit) if scans <= _SCANS else None

    def goal(env: w.Assignment) -> bool:
        case = kernels.case(launch, env)
        return case is not None and first(case) is not None

    env = search.smallest(
        goal, leaves, launch, search.edges(launch, sizes), block_leaves=search.leaves_of(launch.block)
    )
    case = kernels.case(launch, env) if env is not None else None
    scans = 0
    shown = first(case) if case is not None else None
    if env is None or case is None or shown is None:
        return None
    thread, value, tile = shown
    on = "".join(sorted({x.data.axis for x in item.blocks} or {d.thread.data.axis for d in item.digits.values()}))
    return Outside(
        access, launch, env, case.grid, case.block, thread, value, int(t.evaluate(extent, env)), on, tile
    )  # fmt: skip


def _data(terms: list[Term]) -> set[Term]:
    """The sizes of the data that terms are made of."""
    return {x for x in search.leaves_of(terms) if x.data.kind != "device"}


def _extent(launch: Launch, found: list[Coordinate], item: Coordinate) -> tuple[Term | None, Term | None]:
    """How many elements there are along a coordinate, a host term: the row's length, else what the grid divides
    (and by what)."""
    row = tiles.row(item, found)
    if row is not None:
        return launch.at_launch(row), None
    if item.counters or item.share is None or not shapes.is_block(item.share) or launch.grid is None:
        return None, None
    (block,) = item.blocks
    division = launches.division(launch.grid["xyz".index(block.data.axis)])
    return division if division is not None else (None, None)


def _trip_terms(launch: Launch, loop: Loop) -> Iterator[Term]:
    """The host terms that a loop's number of passes is made of."""
    for info in loop.inductions.values():
        if info.limit is not None and info.step is not None and info.init is not None:
            for term in (info.limit[0], info.step, info.init):
                if not kernels.ids_of([term]):
                    yield launch.at_launch(term)


def _first(
    case: Case, item: Coordinate, guards: list[Term], last: dict[Term, int], limit: int
) -> tuple[tuple[Triple, Triple], int, int | None] | None:
    """The first thread beyond ``limit``, in the last block along the coordinate and the first on the other axes, on
    the last pass or the one before; its value, and the pass."""
    ends = {a: case.grid["xyz".index(a)] - 1 if BID[a] in item.blocks else 0 for a in "xyz"}
    block = ends["x"], ends["y"], ends["z"]
    x, y, z = (range(v) for v in case.block)
    involved = [g for g in guards if kernels.ids_of([g]) or not t.leaves(g).isdisjoint(item.counters)]
    for back in (0, 1) if last else (0,):
        passes = {counter: number - back for counter, number in last.items()}
        if min(passes.values(), default=0) < 0:
            break
        for thread in ((i, j, k) for k in z for j in y for i in x):
            here = case.of(block, thread)
            here.values.update(passes)
            value = tiles.settled(here, item.place).peak(item.place)
            if value < limit:
                continue
            answers = [_truth(here, guard) for guard in involved]
            if None in answers:
                return None
            if all(answers):
                tile = next(iter(passes.values())) if len(passes) == 1 else None
                return ((block, thread), value, tile)
    return None


def _truth(here: Case, guard: Term) -> bool | None:
    """Whether a condition holds for this thread on this pass; None where that hangs on data or on another loop."""
    env = dict(here.values)
    for leaf in t.leaves(guard):
        if leaf not in env:
            actual = here.launch.mapping.get(leaf)
            if actual is None:
                return None
            try:
                env[leaf] = int(t.evaluate(actual, here.host))
            except t.Undefined:
                return None
    try:
        return bool(t.evaluate(guard, env))
    except t.Undefined:
        return None
