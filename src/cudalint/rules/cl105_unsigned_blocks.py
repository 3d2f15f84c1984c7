"""CL105 unsigned-block-count: a rounded-up block count that starts again at 0 within a block of 2^32."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudalint.ir.types import U32
from cudalint.rules.cl104_cl109_blocks import ceilings, overflow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudalint.confirm.experiment import Bench, Plan
    from cudalint.facts.model import Launch
    from cudalint.rules.draft import Draft

CODES = ("CL105",)


def check(launch: Launch) -> Iterator[Draft]:
    yield from ceilings(launch, U32)


def experiment_cl105(bench: Bench) -> Plan:
    """The host's count at sizes near 2^32. What else a launch may be refused for, or leave out, is not asked."""
    from cudalint.confirm.experiment import Plan

    t_ = bench.threads()
    trials = bench.sparse(t_ + 1, (1 << 32) - t_ + 1, (1 << 32) - 1, of=bench.named)
    return Plan(trials, lambda run: None, watch=frozenset(), host=overflow(bench, U32))
