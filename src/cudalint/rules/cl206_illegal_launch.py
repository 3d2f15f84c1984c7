"""CL206 illegal-launch: known dimensions that no device takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudalint.facts import witness as w
from cudalint.findings import Witness
from cudalint.rules import launches
from cudalint.rules.cl202_cl203_coverage import short
from cudalint.rules.draft import Draft

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudalint.confirm.experiment import Bench, Plan
    from cudalint.facts.model import Launch

CODES = ("CL206",)

_THREADS = 1024
_SIDES = {"x": 1024, "y": 1024, "z": 64}


def check(launch: Launch) -> Iterator[Draft]:
    block = {a: launch.known_block(a) for a in "xyz"}
    grid = {a: launch.known_grid(a) for a in "xyz"}
    fault = _fault(block, grid)
    if fault is None or not all(w.allowed(c, {}) for c in launch.conditions):
        return
    if 0 in grid.values():
        # A known size over a known block that rounds down to 0 loses its elements: CL203 says both.
        found = short(launch)
        if found is not None and found.floored:
            return
    event = launch.event
    start, end = event.node.start, event.node.end
    what, values, advice = fault
    yield Draft(
        "CL206", event.fn, event.fn.file, start, end,
        f"{what}: the driver refuses the launch, and the kernel never runs", advice,
        Witness({}, _triple(grid), _triple(block), None, values), launches.callers(launch),
    )  # fmt: skip


def _fault(block: dict[str, int | None], grid: dict[str, int | None]) -> tuple[str, dict[str, int | str], str] | None:
    for axis, extent in block.items():
        if extent == 0:
            return f"the block has no threads on {axis}", {f"block {axis}": 0}, "give every axis of a block at least 1"
        if extent is not None and extent > _SIDES[axis]:
            return (
                f"the block has {extent} threads on {axis}, more than the {_SIDES[axis]} there may be",
                {f"block {axis}": extent, "limit": _SIDES[axis]}, f"use at most {_SIDES[axis]} threads on {axis}",
            )  # fmt: skip
    threads = 1
    for extent in block.values():
        # An unknown side has one thread at least.
        threads *= extent if extent is not None else 1
    if threads > _THREADS:
        sides = " x ".join(str(v) if v is not None else "?" for v in block.values() if v != 1)
        return (
            f"the block has {sides} = {threads} threads, more than the {_THREADS} there may be"
            if None not in block.values()
            else f"the block has at least {threads} threads, more than the {_THREADS} there may be",
            {"threads in a block": threads, "limit": _THREADS}, f"use at most {_THREADS} threads a block",
        )  # fmt: skip
    for axis, extent in grid.items():
        if extent == 0:
            return f"the grid has no blocks on {axis}", {f"grid {axis}": 0}, "an axis that is not used is 1, not 0"
    return None


def _triple(known: dict[str, int | None]) -> tuple[int, int, int] | None:
    x, y, z = known.values()
    return None if x is None or y is None or z is None else (x, y, z)


def experiment_cl206(bench: Bench) -> Plan:
    """The launch with the dimensions it has: the driver takes it or not."""
    from cudalint.confirm.experiment import Plan, oracle

    return Plan(bench.trials(), oracle.refused, watch=frozenset(), refusal=True, unrun=True)
