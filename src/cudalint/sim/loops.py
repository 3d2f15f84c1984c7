"""Loops that carry only their counter: their iterations run as lanes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudalint.ir import nodes as ir
    from cudalint.sim.code import Code
    from cudalint.sim.frame import Frame


def fan_out(_code: Code, _node: ir.For) -> Callable[[Frame], None] | None:
    return None
