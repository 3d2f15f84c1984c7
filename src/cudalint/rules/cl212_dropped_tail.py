"""CL212 dropped-tail: whole packs of k elements are handled, and the last n % k elements are not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudalint.facts import extents, kernels, search
from cudalint.facts import terms as t
from cudalint.facts.events import conjuncts
from cudalint.facts.expressions import from_poly
from cudalint.facts.uniformity import expand
from cudalint.findings import Witness, digits, plural
from cudalint.ir.types import I64
from cudalint.lazy import NamedTuple
from cudalint.rules import launches, support
from cudalint.rules.cl202_cl203_coverage import short
from cudalint.rules.draft import Draft

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudalint.confirm.experiment import Bench, Plan
    from cudalint.confirm.oracle import Fault, Run
    from cudalint.facts.events import Access
    from cudalint.facts.kernels import Case, Coordinate
    from cudalint.facts.model import Kernel, Launch
    from cudalint.facts.terms import Poly, Term

CODES = ("CL212",)

_ONE: Poly = {(): 1}
_WIDEST = 64
"""Elements in a pack that one thread handles."""


class Packs(NamedTuple):
    """A test that lets whole packs of ``each`` elements through, of ``total`` (a host term) elements. ``accesses`` are
    the accesses to the pack, with how many elements each of their units is."""

    item: Coordinate
    each: int
    total: Term
    accesses: list[tuple[Access, int]]


def check(kernel: Kernel) -> Iterator[Draft]:
    """One finding a test, at the first launch that shows it."""
    if not kernel.is_kernel or not kernel.flow.complete:
        return
    for item in kernel.layout.coordinates:
        for launch in kernel.launches:
            packs = packed(launch, item)
            found = _case(launch, packs) if packs is not None else None
            if packs is not None and found is not None:
                draft = _draft(kernel, launch, packs, *found)
                if draft is not None:
                    yield draft
                    break


def packed(launch: Launch, item: Coordinate) -> Packs | None:
    """What a test of packs lets through, where nothing else in sight touches what it leaves."""
    if launch.kernel is None or launch.grid is None or launch.block is None or not item.axes:
        return None
    found = _whole(launch, item) or _numbered(launch, item)
    if found is None or _tail_in_kernel(launch, launch.kernel, found):
        return None
    pack = t.binary("div", found.total, t.const(found.each, I64), I64)
    return None if launches.has_tail(launch, [pack]) else found


def _whole(launch: Launch, item: Coordinate) -> Packs | None:
    """``i + k - 1 < n`` with i a multiple of k."""
    each = t.constant(item.pitch) if item.pitch else None
    last = -item.limit.get((), 0)
    if each is None or not 1 < each <= _WIDEST or last != each - 1:
        return None
    accesses = []
    ends = set()
    for access in item.accesses:
        p = expand(access.scalar or {})
        scale = extents.scale(p, item.index)
        if scale != _ONE:
            continue
        at = _offset(t.add(p, item.index, -1))
        if at is None:
            return None
        accesses.append((access, 1))
        ends.add(at + access.width - 1)
    total = _at_host(launch, {m: c for m, c in item.limit.items() if m})
    if total is None or max(ends, default=0) != last:
        return None
    return Packs(item, each, total, accesses)


def _offset(p: Poly) -> int | None:
    """The greatest value of what is added to a pack's first element: a constant, or a counter with a known end."""
    total = p.get((), 0)
    for monomial, value in p.items():
        if not monomial:
            continue
        if len(monomial) != 1 or monomial[0].op != "atom" or monomial[0].data.kind != "count" or value < 0:
            return None
        found = kernels.trips(monomial[0].data.data)
        distance, step = (t.constant(x) for x in found) if found is not None else (None, None)
        if distance is None or not step:
            return None
        total += value * (distance // step)
    return total


def _numbered(launch: Launch, item: Coordinate) -> Packs | None:
    """``q < n / k`` with k elements at q."""
    passed = _at_host(launch, item.limit)
    if passed is None or (item.pitch or _ONE) != _ONE:
        return None
    # As the kernel has it, where known sizes still show their division.
    found = floored(item.limit) or floored(t.poly(passed))
    if found is None:
        return None
    each, size = found
    total = _at_host(launch, size)
    if total is None:
        return None
    accesses = []
    for access in item.accesses:
        unit = _unit(launch, access, item, each)
        if unit is not None:
            accesses.append((access, unit))
    return Packs(item, each, total, accesses) if accesses else None


def floored(p: Poly) -> tuple[int, Poly] | None:
    """k and n of a polynomial that is ``n / k`` and rounded down; ``(n + k - 1) / k`` is not."""
    if len(p) != 1:
        return None
    ((monomial, factor),) = p.items()
    if factor != 1 or len(monomial) != 1 or monomial[0].op != "div":
        return None
    size, by = (t.poly(x) for x in monomial[0].args)
    each = t.constant(by)
    return (each, size) if each is not None and 1 < each <= _WIDEST and not size.get((), 0) else None


def _unit(launch: Launch, access: Access, item: Coordinate, each: int) -> int | None:
    """Elements in a unit of the address, where the access is one to the pack of this number; None where it is not."""
    p = expand(access.scalar or {})
    scale = extents.scale(p, item.index)
    if scale == {(): each}:
        rest = t.add(p, t.multiply(scale, item.index) or {}, -1)
        at = _offset(rest)
        return 1 if at is not None and at < each else None
    if scale != _ONE or access.width != 1 or t.add(p, item.index, -1):
        return None
    passed = launch.objects().get(access.obj)
    wide = access.obj.element.size if access.obj.element is not None else None
    narrow = passed.obj.element.size if passed is not None and passed.obj.element is not None else None
    return each if wide and narrow and wide == narrow * each else None


def _at_host(launch: Launch, p: Poly) -> Term | None:
    term = launch.at_launch(from_poly(p, I64))
    formal = set(launch.kernel.flow.params.values()) if launch.kernel is not None else set()
    unknown = any(x in formal or x.data.kind in ("bdim", "gdim", "tid", "bid", "count", "loop") for x in t.leaves(term))
    return None if unknown else term


def _tail_in_kernel(launch: Launch, kernel: Kernel, packs: Packs) -> bool:
    """Whether the kernel touches the same arrays without that test, be it before, after or on its other side, and
    through which parameter it may be."""
    passed = {formal: actual.obj for formal, actual in launch.objects().items()}
    stored = {a.obj for a, _ in packs.accesses if a.mode != "r"} or {a.obj for a, _ in packs.accesses}
    memory = {passed.get(obj, obj) for obj in stored}
    return any(
        passed.get(a.obj, a.obj) in memory and packs.item.term not in conjuncts(a.guard) for a in kernel.flow.accesses
    )


def _case(launch: Launch, packs: Packs) -> tuple[dict[Term, int], Case, int] | None:
    """The smallest sizes found that are no multiple of the pack."""
    assert launch.grid is not None and launch.block is not None
    if not all(search.is_size(x) for x in t.leaves(packs.total)):
        return None
    lost = short(launch)
    if lost is not None and lost.floored:
        return None  # CL203 speaks of it
    each = packs.each

    def goal(env: dict[Term, int]) -> bool:
        case = kernels.case(launch, env)
        total = int(t.evaluate(packs.total, env))
        return case is not None and case.possible and total > each and total % each != 0

    leaves = search.ordered([packs.total], [*launch.grid, *launch.block])
    tries = search.edges(launch, [packs.total, *launch.grid, *launch.block]) | {each + 1, 2 * each + 1}
    inner = search.leaves_of(launch.block)
    env = search.smallest(goal, leaves, launch, tries, block_leaves=inner)
    case = kernels.case(launch, env) if env is not None else None
    return (env, case, int(t.evaluate(packs.total, env))) if env is not None and case is not None else None


def _draft(kernel: Kernel, launch: Launch, packs: Packs, host: dict[Term, int], case: Case, total: int) -> Draft | None:
    wanted = (packs.item.term, t.lnot(packs.item.term))
    place = next((c for c in kernel.flow.comparisons if c.term in wanted), None)
    if place is None:
        return None
    access = packs.accesses[0][0]
    first, lost = total // packs.each * packs.each, total % packs.each
    names = launches.words(host, launch)
    at = f"at {names} " if names else ""
    left = f"element {digits(first)}" if lost == 1 else f"elements {digits(first)} to {digits(total - 1)}"
    return Draft(
        "CL212", place.fn, place.fn.file, place.node.start, place.node.end,
        f"`{support.text(place.fn, place.node)}` lets whole packs of {packs.each} elements through, and nothing "
        f"handles the rest: {at}{left} of {digits(total)} of "
        f"`{access.obj.name}` {'is' if lost == 1 else 'are'} left out",
        f"handle the last n % {packs.each} elements one by one, here or in a launch of their own",
        Witness(
            search.sizes_of(host), case.grid, case.block, None,
            {"first element without a thread": first, "elements without a thread": lost},
        ),
        ((access.fn.file, access.node.start, access.node.end, f"{plural(packs.each, 'element')} a thread"),
         *support.calls(place), launches.launched(launch)),
    )  # fmt: skip


def experiment_cl212(bench: Bench) -> Plan:
    """Elements that nobody writes, of those that the packs are made of."""
    from cudalint.confirm.experiment import Plan, oracle

    launch = bench.launch
    found = [packed(launch, item) for item in bench.kernel.layout.coordinates] if launch is not None else []

    def dropped(run: Run) -> Fault | None:
        for packs in found:
            if packs is None or run.seen.end != "done":
                continue
            total = int(t.evaluate(packs.total, run.setup.host))
            for access, unit in packs.accesses:
                state = run.seen.buffers.get(access.obj.name)
                if access.mode == "r" or state is None:
                    continue
                first = next(iter(state.never(limit=1)), state.extent) * unit
                if first < total:
                    text = f"element {first} of `{access.obj.name}`, of {total}, is never written"
                    return oracle.Fault("never-written", text, first, (), total)
        return None

    return Plan(bench.trials(), dropped, first=("first element without a thread",))
