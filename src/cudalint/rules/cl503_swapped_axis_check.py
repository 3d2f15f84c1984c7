"""CL503 swapped-axis-check: a column tested against the number of rows, and the row against the number of columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudalint.facts import extents, kernels, search, shapes
from cudalint.facts import terms as t
from cudalint.facts import witness as w
from cudalint.facts.events import conjuncts
from cudalint.facts.expressions import from_poly
from cudalint.findings import Witness, digits
from cudalint.ir.types import I64, Float
from cudalint.lazy import NamedTuple
from cudalint.rules import launches, support
from cudalint.rules.draft import Draft

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudalint.confirm.experiment import Bench, Plan
    from cudalint.confirm.oracle import Fault, Run
    from cudalint.facts.events import Access, Comparison, Obj
    from cudalint.facts.model import Kernel, Launch
    from cudalint.facts.terms import Poly, Term
    from cudalint.rules.draft import FixDraft

CODES = ("CL503",)


class Tested(NamedTuple):
    """A coordinate of an address, which multiplies ``place`` by ``scale``; ``terms`` keep it below ``limits``."""

    place: Poly
    scale: Poly
    limits: list[Poly]
    terms: list[Term]


class Swap(NamedTuple):
    """An address with rows of ``own`` elements: ``fast`` is tested against ``other`` and ``slow`` against ``own``."""

    access: Access
    fast: Tested
    slow: Tested
    own: Poly
    other: Poly


def check(kernel: Kernel) -> Iterator[Draft]:
    """One finding a kernel: the test of the coordinate that moves within the row."""
    if not kernel.is_kernel or not kernel.flow.complete:
        return
    for access in kernel.flow.accesses:
        if access.obj.kind != "global" or access.scalar is None:
            continue
        for swap in swaps(access):
            place = _place(kernel, swap)
            found = _case(kernel, swap)
            if place is not None and found is not None:
                yield _draft(kernel, swap, place, found)
                return


def coordinates(access: Access) -> list[Tested]:
    """The tested coordinates of an address, as written: loop counters are coordinates too."""
    p = access.scalar or {}
    found: dict[frozenset[tuple[tuple[Term, ...], int]], Tested] = {}
    for term in conjuncts(access.guard):
        if term.op not in ("lt", "le") or any(isinstance(x.type, Float) for x in term.args):
            continue
        excess = t.add(t.poly(term.args[0]), t.poly(term.args[1]), -1)
        index = {m: c for m, c in excess.items() if any(_varies(x) for x in m)}
        limit = {m: -c for m, c in excess.items() if m not in index}
        key = frozenset(index.items())
        scale = extents.scale(p, index) if index else None
        if scale is None or not limit:
            continue
        item = found.setdefault(key, Tested(index, scale, [], []))
        item.limits.append({m: c for m, c in limit.items() if m})
        item.terms.append(term)
    return list(found.values())


def _varies(item: Term) -> bool:
    return any(x.data.kind in ("tid", "bid", "loop", "count") for x in t.leaves(item))


def swaps(access: Access) -> Iterator[Swap]:
    """The pairs of coordinates whose tests are the wrong way round in an address."""
    tested = coordinates(access)
    for fast in tested:
        if len(fast.limits) != 1 or not fast.limits[0]:
            continue
        own = _row(fast, tested)
        other = fast.limits[0]
        if own is None or other == own:
            continue
        for slow in tested:
            if slow is fast or slow.limits != [own] or _row(slow, tested) == own:
                continue
            if shapes.divide(slow.scale, fast.scale) is not None:
                yield Swap(access, fast, slow, own, other)


def _row(item: Tested, tested: list[Tested]) -> Poly | None:
    """How many values the coordinate has by the address itself: the next larger scale over its own."""
    rows = [shapes.divide(x.scale, item.scale) for x in tested if x is not item]
    larger = [x for x in rows if x and x != shapes.ONE and t.constant(x) is None]
    return min(larger, key=lambda x: max(len(m) for m in x)) if larger else None


def _place(kernel: Kernel, swap: Swap) -> Comparison | None:
    """Where the wrong test is written: that of the coordinate within the row."""
    wanted = {*swap.fast.terms, *(t.lnot(x) for x in swap.fast.terms)}
    return next((c for c in kernel.flow.comparisons if c.term in wanted), None)


# --- the witness --------------------------------------------------------------------------------


class _Case(NamedTuple):
    """Sizes with ``own`` > ``other``: ``lost`` is the first element that no thread handles, ``beyond`` the first of a
    row that is not there, None where no thread comes so far. ``covers`` tells whether the launch has threads for whole
    rows: if not, it is the address that has its coordinates the wrong way round."""

    sizes: dict[str, int]
    own: int
    other: int
    lost: int
    beyond: int | None
    covers: bool
    launch: Launch | None


def _case(kernel: Kernel, swap: Swap) -> _Case | None:
    """Twice as many columns as rows, where the host lets that through, at a visible launch if there is one."""
    shown = [x for x in kernel.launches if x.grid is not None and x.block is not None]
    for launch in shown:
        found = _sizes(swap, launch)
        if found is not None:
            return found
    # Square, or of sizes that the host keeps equal.
    return None if shown and len(shown) == len(kernel.launches) else _sizes(swap, None)


def _sizes(swap: Swap, launch: Launch | None) -> _Case | None:
    parts = [from_poly(p, I64) for p in (swap.own, swap.other, swap.fast.scale, swap.slow.scale)]
    if launch is not None:
        parts = [launch.at_launch(x) for x in parts]
    own, other = parts[:2]
    leaves = search.ordered([own], parts[1:])
    if t.poly(own) == t.poly(other) or any(kernels.ids_of([x]) for x in leaves):
        return None
    if launch is not None and not all(search.is_size(x) or x.data.kind == "device" for x in leaves):
        return None
    known = [launch.known_block(a) or 16 for a in "xy"] if launch is not None else [16]
    tries = sorted({2, *(k * v for v in known for k in (1, 2))})
    for times, overrun in ((2, True), (None, True), (2, False), (None, False)):

        def goal(env: w.Assignment, times: int | None = times, overrun: bool = overrun) -> bool:
            n, m = int(t.evaluate(own, env)), int(t.evaluate(other, env))
            if not (n > m > 1 if times is None else n == times * m > times):
                return False
            return not overrun or _comes_to(launch, env, swap.slow.place, m)

        values = {x: tries for x in leaves if w.assumed(x) is None}
        env = w.solve(goal, leaves, given=launch.conditions if launch is not None else (), values=values)
        if env is not None:
            n, m, inner, outer = (int(t.evaluate(x, env)) for x in parts)
            covers = _comes_to(launch, env, swap.fast.place, n - 1)
            return _Case(search.sizes_of(env), n, m, m * inner, m * outer if overrun else None, covers, launch)
    return None


def _comes_to(launch: Launch | None, env: w.Assignment, place: Poly, number: int) -> bool:
    """Whether a launch has a thread that comes to a row; true where that cannot be told."""
    case = kernels.case(launch, env) if launch is not None else None
    try:
        return case is None or case.peak(place) >= number
    except t.Undefined:
        return True


def _draft(kernel: Kernel, swap: Swap, place: Comparison, found: _Case) -> Draft:
    access, own, other = swap.access, found.own, found.other
    row, size = t.show_poly(swap.own), t.show_poly(swap.other)
    names = launches.told(found.sizes)
    at = f"at {names} " if names else ""
    where = access.fn.file, access.node.start, access.node.end, f"the address: rows of {row} elements"
    values: dict[str, int | str] = {"first element without a thread": found.lost}
    beyond = ""
    if found.beyond is not None:
        values["first element of a row that is not there"] = found.beyond
        beyond = f", and rows from {digits(other)} on, which are not there, have threads"
    launched = (launches.launched(found.launch),) if found.launch is not None else support.launched_at(kernel, 1)
    return Draft(
        "CL503", place.fn, place.fn.file, place.node.start, place.node.end,
        f"`{support.text(place.fn, place.node)}` tests a coordinate against another's size: rows are {row} long, and "
        f"it is the row's number that is tested against {row}: {at}elements {digits(other)} to {digits(own - 1)} of "
        f"each row have no thread{beyond}",
        f"swap the sizes: the coordinate within a row against {row}, the row's number against {size}"
        if found.covers
        else "swap the coordinates in the address: the launch has no threads for whole rows as it is",
        Witness(
            found.sizes, None, None, None, values),
        (where, *support.calls(place), *launched),
        fix=_swapped(kernel, swap, place) if found.covers else None,
    )  # fmt: skip


def _swapped(kernel: Kernel, swap: Swap, place: Comparison) -> FixDraft | None:
    from cudalint.rules import guards

    return guards.swapped(kernel, swap, place)


# --- the experiment -----------------------------------------------------------------------------


def experiment_cl503(bench: Bench) -> Plan:
    """Elements of an image that nobody writes, and accesses outside of it, with twice as many columns as rows."""
    from cudalint.confirm.experiment import Plan, oracle

    images: list[tuple[Obj, Term]] = []
    for access in bench.kernel.flow.accesses:
        if access.obj.kind == "global" and access.mode != "r" and access.scalar is not None:
            images += [(access.obj, from_poly(size, I64)) for size in _image(access)]

    def whole(obj: Obj, extent: int, case: kernels.Case) -> int:
        """No less than both axes make it, however far the addresses go that a wrong row length gives."""
        sizes = {x: found.data for x, found in case.launch.mapping.items()}
        for each, size in images:
            try:
                extent = max(extent, int(t.evaluate(size, sizes))) if each is obj else extent
            except t.Undefined:
                continue
        return extent

    bench.harness.adjusted = whole

    def incomplete(run: Run) -> Fault | None:
        for obj, size in images:
            name = obj.name
            state = run.seen.buffers.get(name)
            try:
                total = int(t.evaluate(size, run.setup.values))
            except t.Undefined:
                continue
            if state is None or run.seen.end != "done" or not 0 < total <= state.extent:
                continue
            missed = [i for i in state.never(limit=total) if i < total]
            if missed:
                wrong = tuple(map(oracle.Wrong, missed[:10]))
                text = f"element {missed[0]} of `{name}`, of {total}, is never written"
                return oracle.Fault("never-written", text, missed[0], wrong, total)
        return None

    first = ("first element without a thread", "first element of a row that is not there")
    return Plan(bench.trials(), oracle.first_of(incomplete, oracle.outside), first=first)


def _image(access: Access) -> Iterator[Poly]:
    """The elements that an address goes over from the first on, whichever coordinate is tested against which size."""
    tested = coordinates(access)
    rows = [x for x in (_row(item, tested) for item in tested) if x is not None]
    limits = [x.limits[0] for x in tested if len(x.limits) == 1]
    rest = access.scalar or {}
    for item in tested:
        rest = t.add(rest, t.multiply(item.place, item.scale) or {}, -1)
    if rest or len(tested) < 2 or all(item.scale != shapes.ONE for item in tested):
        return  # a line, or one that starts elsewhere or leaves elements out: no image
    if len(limits) == len(tested) == len(rows) + 1 and all(x in limits for x in rows):
        total: Poly | None = shapes.ONE
        for limit in limits:
            total = t.multiply(total, limit) if total is not None else None
        if total:
            yield total
