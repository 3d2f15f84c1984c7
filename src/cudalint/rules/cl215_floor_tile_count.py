"""CL215 floor-tile-count: a loop over whole tiles, and nothing for the elements that do not fill one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudalint.facts import kernels, search, shapes
from cudalint.facts import terms as t
from cudalint.facts.events import conditions, conjuncts_of
from cudalint.facts.expressions import from_poly
from cudalint.facts.uniformity import expand
from cudalint.findings import Witness, digits, plural
from cudalint.ir.types import I64
from cudalint.lazy import NamedTuple
from cudalint.rules import launches, support
from cudalint.rules.draft import Draft

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudalint.confirm.experiment import Bench, Plan
    from cudalint.confirm.oracle import Fault, Run
    from cudalint.facts.events import Access, Loop, Obj
    from cudalint.facts.kernels import Case
    from cudalint.facts.model import Kernel, Launch
    from cudalint.facts.terms import Poly, Term

CODES = ("CL215",)


class Tiles(NamedTuple):
    """A loop that runs ``size / each`` times, rounded down. ``accesses`` move by a tile a pass, each with the distance
    of neighbours along the tile."""

    loop: Loop
    size: Poly
    each: Poly
    accesses: list[tuple[Access, Poly]]


def check(kernel: Kernel) -> Iterator[Draft]:
    """One finding a loop, at the first launch that shows it."""
    if not kernel.is_kernel or not kernel.flow.complete:
        return
    for loop in kernel.flow.loops:
        tiles = floored(kernel, loop) if kernel.launches else None
        if tiles is None:
            continue
        for launch in kernel.launches:
            found = _case(launch, tiles)
            if found is not None:
                if not _rest(kernel, tiles):
                    yield _draft(launch, tiles, *found)
                break


def floored(kernel: Kernel, loop: Loop) -> Tiles | None:
    """The loop read as one over whole tiles; None where it is none, or where its count is rounded up."""
    found = kernels.trips(loop) or _whole(loop)
    if found is None:
        return None
    distance, step = found
    count = t.add(distance, step)
    if step == shapes.ONE:
        # `k < n / T`
        if len(count) != 1:
            return None
        ((monomial, factor),) = count.items()
        if factor != 1 or len(monomial) != 1 or monomial[0].op != "div":
            return None
        size, each = (expand(t.poly(x)) for x in monomial[0].args)
    else:
        # `k + T <= n; k += T`
        size, each = count, step
    if not _is_data(size) or size.get((), 0) or any(m in size for m in each if m):
        return None  # what is added before the division rounds it up
    if t.constant(each) is not None and t.constant(each) < 2:  # type: ignore[operator]  # just asked
        return None
    if any(x.data.kind in ("tid", "bid", "count", "loop", "load") for m in each for y in m for x in t.leaves(y)):
        return None
    tiled: Poly | None = each if step == shapes.ONE else shapes.ONE
    accesses = []
    for access in kernel.flow.within(loop):
        if access.obj.kind == "global" and access.scalar is not None:
            within = _within(access, loop, each if step == shapes.ONE else step)
            if within is not None:
                accesses.append((access, within))
    return Tiles(loop, size, each, accesses) if accesses and tiled else None


def _whole(loop: Loop) -> tuple[Poly, Poly] | None:
    """Distance and step of ``for (k = 0; k + T <= n; k += T)``."""
    for term in conjuncts_of(loop.cond) if loop.cond is not None else ():
        for info in loop.inductions.values():
            if term.op not in ("lt", "le") or info.term is None or info.step is None or info.init is None:
                continue
            room = t.add(t.poly(term.args[1]), t.poly(term.args[0]), -1)
            if room.get((info.term,)) == -1 and sum(info.term in m for m in room) == 1:
                room = t.add(t.add(room, {(info.term,): 1}), t.poly(info.init), -1)
                return expand(room if term.op == "le" else t.add(room, {(): -1})), t.poly(info.step)
    return None


def _is_data(size: Poly) -> bool:
    """Whether a size is made of parameters alone."""
    leaves = {x for m in size for y in m for x in t.leaves(y)}
    return bool(leaves) and all(x.data.kind in ("param", "size", "load") for x in leaves)


def _within(access: Access, loop: Loop, each: Poly) -> Poly | None:
    """The distance of two neighbours in a tile, where the address moves by a whole tile a pass."""
    p = expand(access.scalar or {})
    per_pass = shapes.coefficient(p, loop.counter)
    if not per_pass:
        return None
    pack: Poly = {(): access.width}
    if access.width > 1 and per_pass == each == pack:
        return shapes.ONE
    for item in t.atoms_of(p):
        if item is loop.counter or not _is_place(item):
            continue
        neighbour = shapes.coefficient(p, item)
        if access.width > 1 and neighbour == pack and per_pass == each:
            return shapes.ONE
        if neighbour and t.multiply(neighbour, each) == per_pass:
            return neighbour
    return None


def _is_place(item: Term) -> bool:
    """Whether an atom tells places within a tile apart: a thread's number or its lane, or the counter of a loop."""
    if item.op in ("mod", "div"):
        kinds = {x.data.kind for x in t.leaves(item)}
        return "tid" in kinds and kinds <= {"tid", "bdim"}
    return item.op == "atom" and item.data.kind in ("tid", "count")


def _rest(kernel: Kernel, tiles: Tiles) -> bool:
    """Whether the kernel asks for the remainder, goes on where the loop ends, or tests the size itself elsewhere."""
    loop = tiles.loop
    own = {x.term for x in loop.inductions.values() if x.step is not None}

    terms = []
    for other in kernel.flow.loops:
        if other is not loop:
            terms += [x.init for x in other.inductions.values() if x.init is not None]
            terms += [other.cond] if other.cond is not None else []
    within = kernel.flow.within(loop)
    if any(x.data.kind == "exit" for c in conditions({a.guard for a in within}) for x in t.leaves(c)):
        return True
    outside = [a for a in kernel.flow.accesses if not loop.first <= a.seq <= loop.last]
    terms += [a.index for a in outside if a.index is not None]
    terms += conditions({a.guard for a in outside})
    everything = list(t.inside(terms))
    counts = {x for x in everything if x.op == "div" and t.poly(x.args[0]) == tiles.size}
    for part in everything:
        if part.op == "mod" and t.poly(part.args[0]) == tiles.size:
            return True
        if part.op == "atom" and part.data.kind == "exit" and part.data.data.term in own:
            return True
        if counts and part.op in ("mul", "sub") and not counts.isdisjoint(t.inside([part])):
            return True
    return False


def _case(launch: Launch, tiles: Tiles) -> tuple[dict[Term, int], Case, int, int] | None:
    """The smallest sizes found that are no multiple of the tile: host sizes, the launch, the size and the tile."""
    if launch.grid is None or launch.block is None:
        return None
    size, each = (launch.at_launch(from_poly(p, I64)) for p in (tiles.size, tiles.each))
    if not all(search.is_size(x) or x.data.kind == "device" for x in search.leaves_of([size, each])):
        return None
    formal = set(launch.kernel.flow.params.values()) if launch.kernel is not None else set()
    if any(x in formal for x in search.leaves_of([size, each])):
        return None

    def goal(env: dict[Term, int]) -> bool:
        case = kernels.case(launch, env)
        n, by = int(t.evaluate(size, env)), int(t.evaluate(each, env))
        return case is not None and case.possible and 1 < by < n and n % by != 0

    leaves = search.ordered([size], [each, *launch.grid, *launch.block])
    tries = search.edges(launch, [size, each, *launch.grid, *launch.block])
    inner = search.leaves_of([*launch.block, each])
    env = search.smallest(goal, leaves, launch, tries, block_leaves=inner)
    case = kernels.case(launch, env) if env is not None else None
    if env is None or case is None:
        return None
    return env, case, int(t.evaluate(size, env)), int(t.evaluate(each, env))


def _draft(launch: Launch, tiles: Tiles, host: dict[Term, int], case: Case, size: int, each: int) -> Draft:
    loop = tiles.loop
    access = tiles.accesses[0][0]
    names = launches.words(host, launch)
    at = f"at {names} " if names else ""
    first, lost = size // each * each, size % each
    left = f"element {digits(first)}" if lost == 1 else f"elements {digits(first)} to {digits(size - 1)}"
    related = [(access.fn.file, access.node.start, access.node.end, f"a tile of {plural(each, 'element')} a pass")]
    return Draft(
        "CL215", loop.fn, loop.fn.file, loop.node.start, getattr(loop.node, "header_end", loop.node.end),
        f"the loop runs over whole tiles of {each}, and nothing handles the rest: {at}it runs "
        f"{plural(size // each, 'time')}, and {left} of {digits(size)} {'is' if lost == 1 else 'are'} left out",
        "round the number of tiles up, and test each element of the last one against the size",
        Witness(
            search.sizes_of(host), case.grid, case.block, None,
            {"tiles": size // each, "first element left out": first, "elements left out": lost},
        ),
        (*related, *support.sites(loop.stack), launches.launched(launch)),
    )  # fmt: skip


def _end(bench: Bench, case: Case, tiles: Tiles, access: Access, within: Poly) -> int:
    """Elements of a buffer where the tiles are of all of the size: as many as the loop comes to, and the rest."""
    highest, farthest = bench.harness.top(access, case), bench.harness.farthest(access, case)
    if highest is not None and any(tiles.loop.counter in x.counters for x, _ in bench.harness.tiled(access, case)):
        return highest + access.width  # a row that bounds the address has the rest in it already
    top = min((x for x in (highest, farthest) if x is not None), default=None)
    size, each = case.number(tiles.size), case.number(tiles.each)
    if top is None or each < 1 or kernels.trips(tiles.loop) is None:
        raise t.Undefined
    return top + access.width + (size - max(1, size // each) * each) * case.number(within)


def experiment_cl215(bench: Bench) -> Plan:
    """Whether somebody touches the last element of what the tiles are of: the buffers are one element short, so that
    it shows as an access outside."""
    from cudalint.confirm.experiment import Plan, oracle

    kernel = bench.kernel
    found = [x for loop in kernel.flow.loops if (x := floored(kernel, loop)) is not None]
    lasts: dict[Obj, int] = {}

    def short(obj: Obj, extent: int, case: Case) -> int:
        known = bench.launch is not None and (p := bench.launch.objects().get(obj)) is not None and p.obj.bytes
        mine = [(tiles, a, within) for tiles in found for a, within in tiles.accesses if a.obj is obj]
        if not mine:
            return extent
        try:
            ends = [] if known else [_end(bench, case, *each) for each in mine]
        except t.Undefined:
            return extent
        extent = max(ends, default=extent)
        lasts[obj] = extent - 1
        return extent - 1

    def untouched(run: Run) -> Fault | None:
        for obj, last in lasts.items():
            # What the thread has of its own, before the loop, is not what the loop goes over.
            first = min(tiles.loop.first for tiles in found for a, _ in tiles.accesses if a.obj is obj)
            sites = {a.node for a in kernel.flow.accesses if a.obj is obj and a.seq >= first}
            events = [e for e in run.seen.outside or () if e.buffer == obj.name and e.site.node in sites]
            seen = any(e.element <= last < e.element + 64 for e in events)
            if not seen and last > 0 and run.seen.end == "done":
                return oracle.Fault("wrong-value", f"the last element of `{obj.name}`, {last}, is never used", last)
        return None

    bench.harness.adjusted = short
    return Plan(bench.trials(), untouched)
