"""CL209 missing-bounds-guard: surplus threads of a launch with nothing to stop them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cudalint.facts import kernels, shapes
from cudalint.facts import terms as t
from cudalint.facts import witness as w
from cudalint.facts.events import chain
from cudalint.facts.flow import BID
from cudalint.facts.uniformity import expand
from cudalint.findings import Witness
from cudalint.rules import launches, support
from cudalint.rules.draft import Draft

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudalint.facts.events import Access
    from cudalint.facts.kernels import Case
    from cudalint.facts.model import Kernel, Launch
    from cudalint.facts.shapes import Axis
    from cudalint.facts.terms import Poly, Term

CODES = ("CL209",)


class _Outside(NamedTuple):
    """Host sizes at which thread ``thread`` of the launch is out of range: ``index`` where there are ``extent``."""

    case: Case
    host: w.Assignment
    thread: tuple[tuple[int, int, int], tuple[int, int, int]] | None
    element: int
    extent: int
    what: str


def check(kernel: Kernel) -> Iterator[Draft]:
    """One finding a kernel: the first access that a surplus thread comes to."""
    if not kernel.is_kernel or not kernel.launches or not kernel.flow.complete:
        return
    accesses = [a for a in kernel.flow.accesses if a.obj.kind == "global" and a.scalar]
    accesses.sort(key=lambda a: a.seq)
    for access in accesses:
        p = expand(access.scalar or {})
        found = _coordinates(p)
        if not found or any(_tested(access, axis) for axis in shapes.axes(p).values()):
            continue
        if _axes_rule_speaks(kernel, access):
            continue
        for launch in kernel.launches:
            outside = _outside(launch, access, p, found)
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


def _tested(access: Access, axis: Axis) -> bool:
    """Whether anything on the way asks for all that the coordinate is made of, or for its whole block."""
    if any(axis.ids <= kernels.ids_of([guard.term]) for guard in chain(access.guard)):
        return True
    if not axis.grid or axis.block is None:
        return False
    for bound in shapes.upper_bounds(access.guard):
        # `first + blockDim.x <= n`: the block ends within n.
        ends = shapes.without(bound.excess, [BID[axis.grid]])
        if len(ends) < len(bound.excess) and all(ends.get(m, 0) >= c for m, c in axis.block.items()):
            return True
    return False


def _axes_rule_speaks(kernel: Kernel, access: Access) -> bool:
    """Whether the same offset of several axes is used below tests of all of them: CL501 says what is above them."""
    found = shapes.axes(expand(access.scalar or {}))
    return len(found) > 1 and any(
        later.seq > access.seq and later.scalar == access.scalar and all(_tested(later, x) for x in found.values())
        for later in kernel.flow.accesses
    )


def _outside(launch: Launch, access: Access, p: Poly, found: list[Axis]) -> _Outside | None:
    if launch.grid is None or launch.block is None:
        return None
    memory = launch.objects().get(access.obj)
    if memory is not None and memory.obj.bytes is not None and not memory.pieces:
        size = access.obj.element.size if access.obj.element is not None else None
        return _beyond_memory(launch, access, p, memory.obj.bytes, size) if size else None
    for axis in found:
        result = _beyond_size(launch, axis)
        if result is not None:
            return result
    return None


def _beyond_memory(launch: Launch, access: Access, p: Poly, allocated: Term, size: int) -> _Outside | None:
    """The last thread's element against what the host function allocated."""
    assert launch.grid is not None and launch.block is not None

    def ends(env: w.Assignment) -> tuple[Case, int, int] | None:
        case = kernels.case(launch, env)
        if case is None or not case.possible:
            return None
        try:
            return case, case.peak(p) + access.width - 1, int(t.evaluate(allocated, env)) // size
        except t.Undefined:
            return None

    def goal(env: w.Assignment) -> bool:
        found = ends(env)
        return found is not None and found[1] >= found[2] > 0

    leaves = launches.ordered([allocated], [*launch.grid, *launch.block])
    if not all(launches.is_size(x) or x.data.kind == "device" for x in leaves):
        return None
    env = launches.smallest(
        goal, leaves, launch, launches.edges(launch, [*launch.grid, *launch.block]),
        block_leaves=launches.leaves_of(launch.block),
    )  # fmt: skip
    found = ends(env) if env is not None else None
    if env is None or found is None:
        return None
    case, last, extent = found
    grid, block = case.grid, case.block
    thread = (
        (grid[0] - 1, grid[1] - 1, grid[2] - 1), (block[0] - 1, block[1] - 1, block[2] - 1)
    )  # fmt: skip
    return _Outside(case, env, thread, last, extent, f"`{access.obj.name}` was allocated with {extent}")


def _beyond_size(launch: Launch, axis: Axis) -> _Outside | None:
    """The last thread's coordinate against the size that the grid is computed from."""
    assert launch.grid is not None and launch.block is not None
    on_grid, at = "xyz".index(axis.grid), "xyz".index(axis.name)
    blocks = launch.grid[on_grid]
    division = launches.division(blocks)
    if division is None or axis.block is None:
        return None
    size, divisor = division
    share = axis.block

    def counts(env: w.Assignment) -> tuple[Case, int, int] | None:
        case = kernels.case(launch, env)
        if case is None or not case.possible:
            return None
        n, by, each = t.evaluate(size, env), t.evaluate(divisor, env), case.number(share)
        if each < 1 or by % each or case.block[at] > each:
            return None
        # Each block has `each` coordinates for `by` elements.
        last = (case.grid[on_grid] - 1) * each + case.block[at] - 1
        return case, last * (by // each), n

    def goal(env: w.Assignment) -> bool:
        found = counts(env)
        return found is not None and found[1] >= found[2] > 0

    leaves = launches.ordered([size], [blocks, divisor, *launch.grid, *launch.block])
    if not all(launches.is_size(x) or x.data.kind == "device" for x in (*t.leaves(size), *t.leaves(blocks))):
        return None
    env = launches.smallest(
        goal, leaves, launch, launches.edges(launch, [blocks, size, divisor]),
        block_leaves=launches.leaves_of(launch.block),
    )  # fmt: skip
    found = counts(env) if env is not None else None
    if env is None or found is None:
        return None
    case, _, n = found
    each = case.number(share)
    coordinate = -(-n // (t.evaluate(divisor, env) // each))
    index, inner = [0, 0, 0], [0, 0, 0]
    index[on_grid], inner[at] = divmod(coordinate, each)
    thread = ((index[0], index[1], index[2]), (inner[0], inner[1], inner[2]))
    started = case.grid[on_grid] * case.block[at]
    return _Outside(case, env, thread, coordinate, n, f"the launch starts {started} threads for {n} elements")


def _draft(kernel: Kernel, launch: Launch, access: Access, found: _Outside) -> Draft:
    event = launch.event
    names = launches.words(found.host)
    at = f"at {names} " if names else ""
    which = ""
    if found.thread is not None:
        block, thread = (str(x[0]) if x[1:] == (0, 0) else str(x) for x in found.thread)
        which = f"thread {thread} of block {block}"
    start, end = launches.place(event.node)
    return Draft(
        "CL209", access.fn, access.fn.file, access.node.start, access.node.end,
        f"`{support.text(access.fn, access.node)}` is reached by every thread, and nothing tests its index: {at}"
        f"{found.what}, and {which} is out of range",
        "put the access under `if (i < n)`; where a barrier follows, do not return early",
        Witness(
            launches.named(found.host), found.case.grid, found.case.block, found.thread,
            {"index": found.element, "elements": found.extent},
        ),
        ((event.fn.file, start, end, f"{kernel.decl.name} is launched here"), *support.calls(access)),
    )  # fmt: skip
