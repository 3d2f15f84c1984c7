"""A SIMT simulator: runs a kernel's IR over NumPy, lanes in lockstep under masks, and observes what it does.

``run(Launch(kernel, grid, block, args))`` gives an :class:`Observation`. Nothing of the source is executed
natively. What is not modelled ends the run as ``inconclusive``; nothing is guessed.
"""

from __future__ import annotations

from cudalint.sim.memory import Buffer, BufferState
from cudalint.sim.observe import (
    Absent,
    Arrivals,
    Divergent,
    Misaligned,
    Observation,
    Outside,
    Race,
    Site,
    Thread,
    Uninitialised,
    Wrap,
)
from cudalint.sim.run import Launch, View, refusal, run

__all__ = [
    "Absent", "Arrivals", "Buffer", "BufferState", "Divergent", "Launch", "Misaligned", "Observation", "Outside",
    "Race", "Site", "Thread", "Uninitialised", "View", "Wrap", "refusal", "run",
]  # fmt: skip
