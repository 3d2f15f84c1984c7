"""CL306 grid-sync-launch: a barrier over the grid in a launch that does not promise that all blocks run at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudalint.facts import kernels, search
from cudalint.facts import terms as t
from cudalint.facts import witness as w
from cudalint.facts.events import chain
from cudalint.facts.ids import BID
from cudalint.findings import Witness, digits
from cudalint.lazy import NamedTuple
from cudalint.rules import launches, support
from cudalint.rules.draft import Draft
from cudalint.rules.trials import value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudalint.confirm.experiment import Bench, Plan
    from cudalint.confirm.harness import Values
    from cudalint.confirm.oracle import Fault, Run
    from cudalint.facts.events import Access, Event, Loop
    from cudalint.facts.model import Kernel, Launch
    from cudalint.facts.terms import Term
    from cudalint.rules.support import Triple

CODES = ("CL306",)

_PLAIN = frozenset({"<<<>>>", "cudaLaunchKernel", "hipLaunchKernelGGL"})
"""Forms of a launch that cannot ask for cooperation."""
_RESIDENT = w.SM_COUNT * w.BLOCKS_PER_SM
"""So many blocks of a grid that the source fixes are taken to run at once."""


class _Sync(NamedTuple):
    """Where a kernel waits for its whole grid; ``limit`` is what the counter of a home-made barrier is to come to, None
    for a real one."""

    event: Event
    name: str
    limit: Term | None


def check(launch: Launch) -> Iterator[Draft]:
    """One finding a launch: of a kernel that waits for the whole grid."""
    kernel = launch.kernel
    if kernel is None or not kernel.flow.complete or launch.event.node.form not in _PLAIN:
        return
    sync = _sync(launch, kernel)
    if sync is None:
        return
    found = _blocks(launch, sync)
    if found is None:
        return
    sizes, grid, block = found
    event, place = launch.event, sync.event
    line = support.line(place, event.fn.file)
    at = f" at {launches.told(sizes)}" if sizes else ""
    count = grid[0] * grid[1] * grid[2]
    if sync.limit is not None:
        text = (
            f"{kernel.decl.name} waits on {line} until all blocks have counted, and a plain launch does not "
            f"promise that its {digits(count)} blocks{at} run at once"
        )
    else:
        text = (
            f"{kernel.decl.name} syncs the whole grid on {line} and is launched without cooperation: {sync.name} "
            f"is undefined for its {digits(count)} blocks{at}"
        )
    yield Draft(
        "CL306", event.fn, event.fn.file, event.node.start, event.node.end, text,
        "launch it with `cudaLaunchCooperativeKernel`, on no more blocks than the occupancy query allows",
        Witness(sizes, grid, block, None, {"blocks that have to run at once": count}),
        ((place.fn.file, place.node.start, place.node.end, "it waits for the grid here"), *launches.callers(launch)),
    )  # fmt: skip


def _sync(launch: Launch, kernel: Kernel) -> _Sync | None:
    """The first place where the launch comes to a barrier over the grid."""
    for barrier in kernel.flow.barriers:
        if barrier.scope == "grid" and _reached(launch, barrier):
            return _Sync(barrier, barrier.name, None)
    for loop in kernel.flow.loops:
        found = _counted(kernel, loop)
        if found is not None and _reached(launch, found.event):
            return found
    return None


def _reached(launch: Launch, event: Event) -> bool:
    """Whether nothing that the launch passes keeps it from there."""
    return not any(
        (held := launch.at_launch(g.term)).op == "const" and not held.data for g in chain(event.guard)
    )  # fmt: skip


def _counted(kernel: Kernel, loop: Loop) -> _Sync | None:
    """A loop that does nothing but look at a counter in global memory which every block has raised before."""
    if loop.cond is None:
        return None
    inside = kernel.flow.within(loop)
    watched = {a.obj for a in inside}
    if len(watched) != 1 or any(a.mode in ("w", "rw") or a.obj.kind != "global" for a in inside):
        return None
    raised = [
        a for a in kernel.flow.accesses
        if a.obj in watched and a.mode == "atomic" and a.seq < loop.first and not _of_some_blocks(a)
    ]  # fmt: skip
    sides = [x for term in _comparisons(loop.cond) for x in term.args]
    limit = next((x for x in sides if not any(y.data.kind in ("load", "call") for y in t.leaves(x))), None)
    return _Sync(inside[0], "a counter", limit) if raised and limit is not None else None


def _of_some_blocks(access: Access) -> bool:
    return not kernels.ids_of(g.term for g in chain(access.guard)).isdisjoint(BID.values())


def _comparisons(term: Term) -> list[Term]:
    if term.op in ("land", "lor"):
        return [x for a in term.args for x in _comparisons(a)]
    return [term] if term.op in ("lt", "le", "eq", "ne") else []


def _blocks(launch: Launch, sync: _Sync) -> tuple[dict[str, int], Triple, Triple] | None:
    """The first sizes at which the launch has blocks to wait for."""
    if launch.grid is None or launch.block is None:
        return None
    leaves = search.leaves_of((*launch.grid, *launch.block))
    if sync.limit is not None and any(x.data.kind == "device" for x in leaves):
        return None
    for case in support.assignments_at(launch, [], set()):
        blocks = case.grid[0] * case.grid[1] * case.grid[2]
        if sync.limit is None:
            return case.named, case.grid, case.block
        if blocks < 2 or (not leaves and blocks <= _RESIDENT):
            continue
        env = {**support.with_parameters(launch, case.env), **support.coordinates((0, 0, 0), (0, 0, 0))}
        if value(sync.limit, env) in (blocks, blocks - 1):
            return case.named, case.grid, case.block
    return None


def experiment_cl306(bench: Bench) -> Plan:
    """Blocks that wait for the whole grid in a launch that does not promise that they run at once."""
    from cudalint.confirm.experiment import Plan, oracle

    launch = bench.launch
    sync = None
    if launch is not None and launch.event.node.form in _PLAIN:
        sync = _sync(launch, bench.kernel)

    def waits(run: Run) -> Fault | None:
        return oracle.grid_waits(run) if sync is not None else None

    def counted(host: Values) -> Fault | None:
        if sync is None or sync.limit is None or launch is None or _blocks(launch, sync) is None:
            return None
        found = kernels.case(launch, host)
        if found is None or found.grid[0] * found.grid[1] * found.grid[2] < 2:
            return None
        return oracle.Fault(
            "hang", f"{found.grid[0]} blocks wait for one another, and no launch promises that they run"
        )

    return Plan(bench.trials(), waits, watch=frozenset(), host=counted, anywhere=True)
