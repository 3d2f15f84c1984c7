"""CL214 off-by-one-guard: a guard that lets the thread past the last element through."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudalint.facts import extents, kernels, search, shapes
from cudalint.facts import terms as t
from cudalint.facts.events import conjuncts
from cudalint.facts.expressions import from_poly
from cudalint.facts.ids import BDIM, BID, GDIM, TID
from cudalint.facts.uniformity import expand
from cudalint.findings import Witness, plural
from cudalint.ir.types import I64, Int
from cudalint.lazy import NamedTuple
from cudalint.rules import launches, support
from cudalint.rules.draft import Draft

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudalint.confirm.experiment import Bench, Plan
    from cudalint.facts.events import Access, Comparison
    from cudalint.facts.kernels import Case, Coordinate
    from cudalint.facts.model import Kernel, Launch
    from cudalint.facts.terms import Poly, Term
    from cudalint.rules.draft import FixDraft
    from cudalint.rules.support import Triple

CODES = ("CL214",)

_ONE: Poly = {(): 1}


class _Past(NamedTuple):
    """Host sizes at which a thread passes the test and comes to ``element`` where there are ``extent``. With ``spare``
    the grid has a thread for n + 1 elements at every n, as ``n / t + 1`` has by the way."""

    case: Case
    host: dict[Term, int]
    thread: tuple[Triple, Triple]
    place: int
    element: int
    extent: int
    spare: bool = False


def check(kernel: Kernel) -> Iterator[Draft]:
    """One finding a test: the first access behind it that is one past the end."""
    if not kernel.is_kernel or not kernel.flow.complete:
        return
    comparisons: dict[Term, Comparison] = {}
    for comparison in kernel.flow.comparisons:
        for term in (comparison.term, t.lnot(comparison.term)):
            comparisons.setdefault(term, comparison)
    seen: set[Term] = set()
    for access in kernel.flow.accesses:
        if access.obj.kind != "global" or access.scalar is None:
            continue
        for item in _tests(kernel, access):
            place = comparisons.get(item.term)
            if item.term in seen or not _lets_through(item) or place is None:
                continue
            for launch in kernel.launches:
                found = _past(launch, access, item)
                if found is not None:
                    seen.add(item.term)
                    yield _draft(launch, access, item, place, found)
                    break


def _tests(kernel: Kernel, access: Access) -> list[Coordinate]:
    """The coordinates that the tests on the way to an access bound from above."""
    found = (kernel.layout.coordinate(term) for term in conjuncts(access.guard))
    return [x for x in found if x is not None]


def _lets_through(item: Coordinate) -> bool:
    """Written so that the size itself passes: ``i <= n``, ``!(i > n)``, ``i < n + 1``."""
    return item.term.op == "le" or item.inclusive


def _past(launch: Launch, access: Access, item: Coordinate) -> _Past | None:
    if launch.grid is None or launch.block is None or launch.kernel is None:
        return None
    p, tests = expand(access.scalar or {}), _tests(launch.kernel, access)
    strict = p
    for other in tests:
        strict = _at_last(strict, other, lowered=_lets_through(other))
    loose = p
    for other in tests:
        loose = _at_last(loose, other, lowered=other is not item and _lets_through(other))
    memory = launch.objects().get(access.obj)
    spare = False
    if memory is not None and memory.obj.bytes is not None:
        extent = extents.allocated(launch, access.obj)
        last = _at_host(launch, strict)
        # The strict test ends at the last element that the host allocated, so the test as written ends behind it.
        if extent is None or last is None or t.constant(t.add(extent, last, -1)) != access.width:
            return None
    else:
        sized = _sized(launch, access, p, item)
        if sized is None:
            return None
        extent, spare = sized
    top = _at_host(launch, loose)
    found = _search(launch, access, item, tests, p, extent) if top is not None else None
    return found._replace(spare=spare) if found is not None else None


def _at_last(p: Poly, item: Coordinate, *, lowered: bool) -> Poly:
    """An address with a coordinate at the last value that its test lets through, or one below."""
    return extents.replaced(p, item.index, t.add(item.limit, {(): 1 + lowered}, -1))


def _at_host(launch: Launch, p: Poly) -> Poly | None:
    """A kernel polynomial over the host's sizes; None where ids, loops or unseen parts are left in it."""
    term = launch.at_launch(from_poly(p, I64))
    if any(x.data.kind in ("tid", "bid", "bdim", "gdim", "count", "loop") for x in t.leaves(term)):
        return None
    return t.poly(term)


def _sized(launch: Launch, access: Access, p: Poly, item: Coordinate) -> tuple[Poly, bool] | None:
    """The elements along the tested axis where only the grid tells: a one-element kernel of which the launch starts
    just the blocks that they need; or one more at multiples of the block, which is then true."""
    thread, block = item.thread, item.block
    if item.term.op != "le" or item.loop is not None or item.counters or thread is None or block is None:
        return None
    assert launch.grid is not None
    if item.pitch != _ONE or access.width != 1 or _is_offsets(launch, access, item) or _from_one(access, item):
        return None
    blocks = launch.grid["xyz".index(block.data.axis)]
    division = launches.division(blocks)
    if division is None:
        return None
    size, divisor = division
    share = launch.at_launch(from_poly(item.share, I64))
    surplus = extents.rounded_up(blocks, size, divisor) if t.poly(share) == t.poly(divisor) else None
    if surplus is None or not 0 <= surplus <= 1 or (surplus and not _maps(launch, blocks, size, item)):
        return None
    limit = _at_host(launch, item.limit)
    if limit is None or t.constant(t.add(limit, t.poly(size), -1)) != 1:
        return None
    if not _own_extent(launch, p, item, t.poly(size)):
        return None
    return t.poly(size), surplus > 0


def _maps(launch: Launch, blocks: Term, size: Term, item: Coordinate) -> bool:
    """Whether ``n / t + 1`` blocks are likely to be for n elements and not for n + 1: all that the kernel does is to
    make numbers of numbers at the tested index itself, and nothing in the host function is n + 1."""
    assert launch.kernel is not None
    flow, host = launch.kernel.flow, launch.flow
    touched = [a for a in flow.accesses if a.obj.kind == "global"]
    plain = all(
        a.scalar is not None and a.width == 1 and expand(a.scalar) == item.index and item.term in conjuncts(a.guard)
        for a in touched
    )  # fmt: skip
    asked = {c.term for c in flow.comparisons if kernels.ids_of([c.term])}
    if not plain or all(a.mode == "w" for a in touched) or len({a.obj for a in touched}) < 2:
        return False
    # Integers may be the n + 1 offsets of n rows.
    if any(isinstance(a.obj.element, Int) and a.obj.element.bits > 8 for a in touched):
        return False
    if not asked <= {item.term, t.lnot(item.term)}:
        return False
    n = t.poly(size)
    if not any(x.op in ("div", "shr") and t.poly(x.args[0]) == n for x in t.inside([blocks])):
        return False
    passed = [*(x.args or () for x in host.launches), *(x.args for x in host.calls)]
    numbers = [x for args in passed for x in args if isinstance(x, t.Term)]
    return all(_is_count(x, n) for x in numbers if not t.leaves(size).isdisjoint(t.leaves(x)))


def _is_count(term: Term, n: Poly) -> bool:
    """Whether a term is n elements, or their bytes."""
    return any(t.poly(term) == t.scale(n, each) for each in (1, 2, 4, 8, 16))


def _own_extent(launch: Launch, p: Poly, item: Coordinate, size: Poly) -> bool:
    """Whether the coordinate alone says what element it is along its axis: nothing is subtracted from it, and rows, if
    there are any, are as long as the size."""
    scale = extents.scale(p, item.index)
    if scale is None:
        return False
    rest = t.add(p, t.multiply(scale, item.index) or {}, -1)
    if rest.get((), 0) < 0:
        return False
    if scale != _ONE:
        return t.constant(scale) is None and () not in rest
    # Rows next to each other, and what is made of whole rows.
    rows = shapes.axes(rest)
    pitches = [_at_host(launch, x.scale) for x in rows.values()]
    others = shapes.without(rest, [x for axis in rows.values() for x in axis.ids])
    if any(others) or not all(x is not None and shapes.divide(x, size) for x in pitches):
        return False
    return not pitches or size in pitches


def _is_offsets(launch: Launch, access: Access, item: Coordinate) -> bool:
    """An integer array that can be one of n + 1 offsets: read at i and i + 1, or all that the test is in front of."""
    if not isinstance(access.obj.element, Int):
        return False
    assert launch.kernel is not None
    behind = [a for a in launch.kernel.flow.accesses if item.term in conjuncts(a.guard) and a.obj.kind == "global"]
    if all(a.obj is access.obj for a in behind):
        return True
    own = [expand(a.scalar) for a in launch.kernel.flow.accesses if a.obj is access.obj and a.scalar is not None]
    return any(t.constant(t.add(a, b, -1)) == 1 for a in own for b in own)


def _from_one(access: Access, item: Coordinate) -> bool:
    """Counted from 1: a test from below goes with the one from above."""
    for term in conjuncts(access.guard):
        if term.op not in ("lt", "le"):
            continue
        below = expand(t.add(t.poly(term.args[1]), t.poly(term.args[0]), -1))
        if t.constant(t.add(below, item.index, -1)) is not None and below != item.index:
            return True
        if term.op == "lt" and below == item.index:
            return True
    return False


def _search(
    launch: Launch, access: Access, item: Coordinate, tests: list[Coordinate], p: Poly, extent: Poly
) -> _Past | None:
    """The smallest sizes found at which a thread of the launch has the index that should not pass."""
    assert launch.grid is not None and launch.block is not None
    size = from_poly(extent, I64)
    scale = extents.scale(p, item.index) or _ONE

    def past(env: dict[Term, int]) -> _Past | None:
        case = kernels.case(launch, env)
        if case is None or not case.possible:
            return None
        index, there = case.size(item) - 1, int(t.evaluate(size, env))
        found = extents.thread_at(case, item.index, index) if index >= 0 and there > 0 else None
        if found is None:
            return None
        b, i = list(found[0]), list(found[1])
        for other in tests:
            if other.ids.isdisjoint(item.ids):
                rows = extents.thread_at(case, other.index, case.size(other) - 1 - _lets_through(other))
                if rows is None:
                    return None
                for k, axis in enumerate("xyz"):
                    b[k] = rows[0][k] if BID[axis] in other.ids else b[k]
                    i[k] = rows[1][k] if TID[axis] in other.ids else i[k]
        thread = (b[0], b[1], b[2]), (i[0], i[1], i[2])
        here = case.of(*thread)
        if any(here.truth(term) is False for term in conjuncts(access.guard)):
            return None
        first_pass = {m: c for m, c in p.items() if not any(x.op == "atom" and x.data.kind == "count" for x in m)}
        element = here.peak(first_pass) + access.width - 1
        # What another test bounds is the place of a thread within the tested block of places.
        finer = any(item.ids < other.ids for other in tests)
        along_axis = not finer and (scale != _ONE or len(tests) > 1)
        if element < there and not along_axis:
            return None
        return _Past(case, env, thread, index, element, there)

    limit = launch.at_launch(from_poly(item.limit, I64))
    terms = [size, limit, *launch.grid, *launch.block]
    leaves = search.ordered([size], terms)
    if not all(search.is_size(x) or x.data.kind == "device" for x in search.leaves_of([size, limit])):
        return None
    if any(x in (*BDIM.values(), *GDIM.values()) for x in search.leaves_of(terms)):
        return None
    env = search.smallest(
        lambda e: past(e) is not None, leaves, launch, search.edges(launch, terms),
        block_leaves=search.leaves_of(launch.block),
    )  # fmt: skip
    return past(env) if env is not None else None


def _draft(launch: Launch, access: Access, item: Coordinate, place: Comparison, found: _Past) -> Draft:
    names = launches.words(found.host, launch)
    at = f"at {names} " if names else ""
    thread = launches.thread_words(found.thread, found.case.grid, found.case.block)
    what = f"`{support.text(access.fn, access.node)}`"
    line = support.line(access, place.fn.file)
    ends = (
        f"comes to element {found.element} of `{access.obj.name}`, which has {found.extent}"
        if found.element >= found.extent
        else f"comes to index {found.place} where there are {plural(found.extent, 'element')}"
    )
    related = [(access.fn.file, access.node.start, access.node.end, "what it lets through")]
    return Draft(
        "CL214", place.fn, place.fn.file, place.node.start, place.node.end,
        f"`{support.text(place.fn, place.node)}` is off by one in front of {what} on {line}: {at}{thread} passes "
        f"and {ends}",
        "the indices end at n - 1: test `i < n`, or return at `i >= n`",
        Witness(
            search.sizes_of(found.host), found.case.grid, found.case.block, found.thread,
            {"index": found.element, "elements": found.extent},
        ),
        (*related, *support.calls(place), launches.launched(launch)),
        "warning" if found.spare else None,
        fix=_strict(launch, item, place),
    )  # fmt: skip


def _strict(launch: Launch, item: Coordinate, place: Comparison) -> FixDraft | None:
    from cudalint.rules import guards

    assert launch.kernel is not None
    behind = [x for x in launch.kernel.flow.accesses if item.term in conjuncts(x.guard) and x.obj.kind == "global"]
    if item.term.op != "le" or any(x.scalar is None or _past(launch, x, item) is None for x in behind):
        return None  # for something behind the test the last index may be right
    return guards.strict(place)


def _spare(kernel: Kernel, launch: Launch) -> frozenset[str]:
    """The arrays that are taken to end where their test should, though the grid has a thread for one element more."""
    found = set()
    for access in kernel.flow.accesses:
        for item in _tests(kernel, access) if access.obj.kind == "global" and access.scalar is not None else ():
            past = _past(launch, access, item) if _lets_through(item) else None
            if past is not None and past.spare:
                found.add(access.obj.name)
    return frozenset(found)


def experiment_cl214(bench: Bench) -> Plan:
    """Accesses outside of buffers as large as the host allocates, or as the sizes that the grid is rounded up from."""
    from cudalint.confirm.experiment import Plan, oracle

    bench.harness.by_grid = True
    bench.harness.ending = _spare(bench.kernel, bench.launch) if bench.launch is not None else frozenset()
    return Plan(bench.trials(), oracle.outside, first=("index",))
