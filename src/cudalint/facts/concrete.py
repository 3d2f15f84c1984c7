"""Launches in numbers: what a kernel's parameters and dimensions are at its visible launches, or by itself.

All runtime sizes get one value, so that what belongs together (a row's length and its pitch, an extent and
the bound tested) stays together; several values are tried in turn, and what shows at all of them hangs on
none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudalint.facts import terms as t
from cudalint.facts import witness as w
from cudalint.facts.events import chain
from cudalint.facts.ids import BDIM, GDIM, TID
from cudalint.ir.types import Float, Int
from cudalint.lazy import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from cudalint.facts.events import Flow
    from cudalint.facts.model import Kernel, Launch
    from cudalint.facts.terms import Term

Triple = tuple[int, int, int]
_THREADS = 1024
_HOST = frozenset(
    {"param", "argc", "var", "name", "load", "call", "size", "unknown", "uninit", "phi", "exit", "device"}
)
_SIZES = _HOST - {"device", "name"}
_OF_BLOCK = frozenset({"param", "name", "bid", "bdim", "gdim"})
_OF_LAUNCH = frozenset({"tid", "bid", "bdim", "gdim"})
_LARGE = (1 << 20, (1 << 20) + 37)
_TIMES = 2
"""Sizes that a launch is tried with."""
_MOST = 2
"""Visible launches of a kernel that are tried."""
_BLOCKS = (512, 256, 128, 64, 32)


class Launched(NamedTuple):
    """A launch in numbers: ``values`` are those of the kernel's parameters and dimensions, ``sizes`` the same by name
    as a witness shows them. ``free`` are the parameters that nothing in the source fixes. ``launch`` is the visible
    one, None where the kernel is taken by itself."""

    grid: Triple
    block: Triple
    values: dict[Term, Any]
    sizes: dict[str, int]
    free: frozenset[Term]
    launch: Launch | None = None


def launches(
    kernel: Kernel, terms: Iterable[Term], fit: Callable[[Triple], Triple] = lambda block: block
) -> Iterator[list[Launched]]:
    """For each visible launch the same launch with several sizes; where there is none, the kernel by itself in several
    blocks, each made by ``fit`` one that the kernel can have."""
    leaves = sorted({x for term in terms for x in t.leaves(term)}, key=lambda x: x.key)
    ends = read_ends(kernel.flow)
    shown = [x for x in kernel.launches if x.grid is not None and x.block is not None]
    for launch in shown[:_MOST]:
        width = launch.known_block("x") or launch.config.block_size
        found = list(_visible(launch, leaves, ends, _sizes(width)))
        if found:
            yield found
        if any(launch.known_grid(a) != 1 for a in "xyz") and len({x.grid for x in found}) < 2:
            # A grid that no size makes larger: loops come round where there is more than one grid of data. Or one that
            # is empty at each of them.
            large = list(_visible(launch, leaves, ends, _LARGE))
            if large:
                yield large
    if not shown:
        yield _alone(kernel, leaves, ends, fit)


def small_blocks(
    kernel: Kernel, terms: Iterable[Term], fit: Callable[[Triple], Triple] = lambda block: block
) -> Iterator[list[Launched]]:
    """As :func:`launches`, where a test of the block's size keeps small blocks from a barrier, as in
    ``if (blockDim.x > 32)``: in the largest such blocks that a launch can have."""
    tests = {
        guard.term for barrier in kernel.flow.barriers for guard in chain(barrier.guard)
        if guard.why == "if" and {x.data.kind for x in t.leaves(guard.term)} == {"bdim"}
    }  # fmt: skip
    if not tests:
        return
    leaves = sorted({x for term in terms for x in t.leaves(term)}, key=lambda x: x.key)
    ends = read_ends(kernel.flow)
    shown = [x for x in kernel.launches if x.grid is not None and x.block is not None]
    tried: list[Launch | None] = [*shown[:_MOST]]
    for launch in tried or [None]:
        for width in _BLOCKS:
            if launch is None:
                found = _in_blocks(leaves, ends, [fit((width, 1, 1))] * _TIMES)
            else:
                found = list(_visible(launch, leaves, ends, _sizes(width), width))
            if found and all(any(_value(x, case.values) == 0 for x in tests) for case in found):
                yield found
                break


def _visible(
    launch: Launch, leaves: list[Term], ends: list[Term], sizes: tuple[int, ...], width: int | None = None
) -> Iterator[Launched]:
    """``width`` is the block where the launch leaves it open, the configured one unless given."""
    assert launch.grid is not None
    assert launch.block is not None
    mapping = {x: launch.mapping[x] for x in leaves if x in launch.mapping}
    dims = (*launch.grid, *launch.block)
    blocks = {x for term in launch.block for x in t.leaves(term)}
    hosts = {x for term in (*mapping.values(), *dims) for x in t.leaves(term)}
    hosts |= {x for c in w.relevant(launch.conditions, hosts) for x in t.leaves(c)}
    flat = {x for x in dims if x.op == "atom" and x.data.axis in _unused(leaves)}
    done: set[tuple[int, ...]] = set()
    for size in sizes:
        if len(done) >= _TIMES:
            return
        values: dict[Term, Any] = {}
        late = []
        for leaf in sorted(hosts, key=lambda x: x.key):
            usual = 1 if leaf in flat else launch.usual_block(leaf, width) if leaf in blocks else size
            chosen = _host_value(leaf, usual)
            if chosen is not None:
                values[leaf] = chosen
            elif leaf.data.kind == "loop":
                late.append(leaf)
        for leaf in late:
            first = leaf.data.data.init
            number = _value(first, values) if first is not None else None
            if number is not None:
                values[leaf] = number
        numbers = [_value(x, values) for x in dims]
        if None in numbers or not all(w.allowed(c, values) for c in launch.conditions):
            continue
        gx, gy, gz, bx, by, bz = (int(x) for x in numbers)
        if min(gx, gy, gz, bx, by, bz) < 1 or bx * by * bz > _THREADS or gx >= 1 << 31 or max(gy, gz) >= 1 << 16:
            continue
        inner = _dimensions((gx, gy, gz), (bx, by, bz))
        for formal, actual in mapping.items():
            number = _value(actual, values)
            if number is not None:
                inner[formal] = formal.type.wrap(number) if isinstance(formal.type, Int) else number
        named = {x.data.name: v for x, v in values.items() if x.data.kind in _SIZES}
        inner.update((x, _host_value(x, size)) for x in ends)
        named.update((x.data.name, inner[x]) for x in ends)
        key = (gx, gy, gz, bx, by, bz, *(inner.get(x, 0) for x in mapping))
        if key in done:
            continue
        done.add(key)
        # A block's size is none that threads know nothing of: their numbers go up to it.
        free = frozenset(x for x, actual in mapping.items() if x.data.kind != "bdim" and t.leaves(actual))
        yield Launched((gx, gy, gz), (bx, by, bz), inner, named, free, launch)


def _unused(leaves: Iterable[Term]) -> set[str]:
    """The axes that a kernel knows nothing of: a ``dim3`` that its launch is handed is 1 along them."""
    return {"y", "z"} - {x.data.axis for x in leaves if x.data.kind in _OF_LAUNCH}


def read_ends(flow: Flow) -> list[Term]:
    """Where loops end by what a kernel is given in memory, one number for a whole block: sizes like its parameters."""
    written = {x.obj for x in flow.accesses if x.mode != "r"}
    leaves = {x for loop in flow.loops for term in loop.control for x in t.leaves(term)}
    return sorted(
        (
            x for x in leaves
            if x.data.kind == "load" and isinstance(x.type, Int) and x.data.data not in written
            and {y.data.kind for term in x.data.inputs for y in t.leaves(term)} <= _OF_BLOCK
        ),
        key=lambda x: x.key,
    )  # fmt: skip


def _host_value(leaf: Term, size: int) -> Any:
    fixed = w.assumed(leaf)
    if fixed is not None:
        return fixed
    if leaf.data.kind not in _HOST or isinstance(leaf.type, Float):
        return None
    high = min(leaf.data.hi, leaf.type.hi) if isinstance(leaf.type, Int) else leaf.data.hi
    return max(leaf.data.lo, min(size, high))


def _alone(kernel: Kernel, leaves: list[Term], ends: list[Term], fit: Callable[[Triple], Triple]) -> list[Launched]:
    ids = {x for x in leaves if x.data.kind == "tid"}
    size, other = kernel.config.block_size, 64
    bounds = kernel.largest_block_x()
    if bounds is not None and bounds <= _THREADS:
        size = other = bounds  # what the source says is not one size of many
    if not ids:
        shapes = [(1, 1, 1), (1, 1, 1)]
    elif TID["z"] in ids:
        shapes = [(8, 8, 4), (4, 4, 4)]
    elif TID["y"] in ids:
        shapes = [(16, 16, 1), (8, 8, 1)]
    else:
        shapes = [(size, 1, 1), (other, 1, 1)]
    return _in_blocks(leaves, ends, [fit(x) for x in shapes])


def _in_blocks(leaves: list[Term], ends: list[Term], shapes: list[Triple]) -> list[Launched]:
    """A kernel by itself in two blocks, with a size for each."""
    found = []
    uses = {x.data.axis for x in leaves if x.data.kind in ("bid", "gdim")}
    several = 16 if shapes[0][1] == 1 else 4
    gx, gy, gz = (several if axis in uses else 1 for axis in "xyz")
    grid = (gx, gy, gz)
    for shape, number in zip(shapes, (_sizes(shapes[0][0])[0], _sizes(shapes[1][0])[1])):
        values = _dimensions(grid, shape)
        named: dict[str, int] = {}
        for leaf in leaves:
            info = leaf.data
            if info.kind not in ("param", "name") or isinstance(leaf.type, Float):
                continue
            of_block = info.kind == "name" or getattr(info.data, "kind", "") == "template"
            high = min(info.hi, leaf.type.hi) if isinstance(leaf.type, Int) else info.hi
            values[leaf] = named[info.name] = max(info.lo, min(shape[0] if of_block else number, high))
        for leaf in ends:
            values[leaf] = named[leaf.data.name] = _host_value(leaf, number)
        found.append(Launched(grid, shape, values, named, frozenset(x for x in values if x.data.kind == "param")))
    return found


def _sizes(width: int) -> tuple[int, ...]:
    # The small ones are for what is no size: a side of a square, an exponent.
    return 4 * width, 3 * width + 5, 1024, 96, 16, 8


def _dimensions(grid: Triple, block: Triple) -> dict[Term, Any]:
    result: dict[Term, Any] = {}
    for i, axis in enumerate("xyz"):
        result[GDIM[axis]], result[BDIM[axis]] = grid[i], block[i]
    return result


def _value(term: Term, values: dict[Term, Any]) -> Any:
    try:
        return t.evaluate(term, values)
    except t.Undefined:
        return None


def terms_of(flow: Flow) -> set[Term]:
    """All that addresses, conditions and loops of a flow are made of, through induction variables too."""
    seen: set[Term] = set()
    stack: list[Term] = []
    for event in (*flow.accesses, *flow.barriers, *flow.returns):
        guard = event.guard
        while guard is not None:
            stack.append(guard.term)
            guard = guard.parent
    for access in flow.accesses:
        stack.extend(t.atoms_of(access.scalar or {}))
    while stack:
        item = stack.pop()
        if item in seen:
            continue
        seen.add(item)
        stack.extend(item.args)
        if item.op == "atom" and item.data.kind in ("loop", "exit") and item.data.data is not None:
            info = item.data.data
            stack.extend(x for x in (info.init, info.next, info.loop.cond, *info.loop.control) if x is not None)
    return {x for x in seen if x.op == "atom"}
