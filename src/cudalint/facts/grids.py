"""Grids: how many threads a launch starts along an axis, and the size its grid was computed from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudalint.facts import terms as t
from cudalint.facts import witness as w
from cudalint.ir.types import U64
from cudalint.lazy import NamedTuple

if TYPE_CHECKING:
    from cudalint.facts.model import Launch
    from cudalint.facts.shapes import Axis
    from cudalint.facts.terms import Poly, Term


class Sizing(NamedTuple):
    """``blocks`` of a grid axis as ``size`` (a term) divided by ``divisor``; None where it is the size itself."""

    size: Term
    divisor: Term | None


def threads(launch: Launch, axis: Axis) -> Term | None:
    """Threads along a coordinate over the whole grid, a 64-bit term over the host's sizes."""
    if launch.grid is None or launch.block is None:
        return None
    blocks = t.convert(launch.grid["xyz".index(axis.grid)], U64) if axis.grid else t.const(1, U64)
    each = t.convert(launch.block["xyz".index(axis.name)], U64) if axis.thread else t.const(1, U64)
    return t.binary("mul", blocks, each, U64)


def block_sizes(launch: Launch) -> set[Term]:
    """The atoms that are a block's extent as they stand, or a factor of it.

    What an extent is computed from otherwise (``min(n, 256)``, ``n < 256 ? n : 256``, ``n / 8``) is a size like any
    other.
    """
    return {x for item in launch.block or () for x in t.atoms_of(t.poly(item)) if x.op == "atom"}


def sizing(blocks: Term) -> Sizing:
    """The size a grid dimension is computed from: the dividend of its division, what is added for rounding left out."""
    stack = [blocks]
    seen = set()
    while stack:
        term = stack.pop()
        if term in seen:
            continue
        seen.add(term)
        if term.op in ("div", "shr"):
            return Sizing(_without_rounding(term.args[0]), term.args[1])
        stack.extend(term.args)
    return Sizing(blocks, None)


def _without_rounding(term: Term) -> Term:
    """``n`` of ``n + t - 1``: the part of a dividend that grows with data."""
    while term.op == "cast":
        term = term.args[0]
    if term.op in ("add", "sub"):
        sides = [a for a in term.args if any(_is_size(x) for x in t.leaves(a))]
        if len(sides) == 1 and (term.op == "add" or sides[0] is term.args[0]):
            return _without_rounding(sides[0])
        if len(sides) == 2 and term.op == "add":
            # `n + block.x - 1` with a block size that is itself a variable: the larger part is n.
            named = [s for s in term.args if s.op != "atom" or "block" not in s.data.name.lower()]
            if len(named) == 1:
                return _without_rounding(named[0])
    return term


def _is_size(leaf: Term) -> bool:
    return leaf.data.kind not in ("bdim", "gdim", "device", "sizeof")


def surplus(launch: Launch, axis: Axis) -> w.Assignment | None:
    """Host sizes at which the launch starts more threads along an axis than the size its grid comes from.

    None where it never does (an exact or floored grid, one block an item), or where that cannot be told.
    """
    total = threads(launch, axis)
    if total is None or launch.grid is None or not axis.grid:
        return None
    blocks = launch.grid["xyz".index(axis.grid)]
    source = sizing(blocks)
    if source.divisor is None:
        return None
    return exceeds(launch, axis, source.size) if t.leaves(total) else None


def exceeds(launch: Launch, axis: Axis, size: Term) -> w.Assignment | None:
    """Host sizes at which the launch starts more threads along an axis than ``size`` (a host term, at least 1)."""
    total = threads(launch, axis)
    if total is None:
        return None
    leaves = sorted(t.leaves(total) | t.leaves(size), key=lambda x: x.key)
    goal = t.land(t.compare("<", t.const(0, size.type), size), t.compare("<", t.convert(size, U64), total))
    return w.solve(goal, leaves, given=launch.conditions, limit=launch.config.max_elements)


def size_poly(launch: Launch, axis: str) -> Poly | None:
    """The polynomial of the size that an axis's grid is computed from."""
    if launch.grid is None:
        return None
    return t.poly(sizing(launch.grid["xyz".index(axis)]).size)
