"""Indices without a loop that give two threads of a grid one element: a block's number scaled by the wrong thing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudalint.facts import shapes
from cudalint.facts import terms as t
from cudalint.facts.events import conjuncts
from cudalint.facts.ids import BID
from cudalint.lazy import NamedTuple
from cudalint.rules import launches, support

if TYPE_CHECKING:
    from cudalint.facts.kernels import Case, Coordinate
    from cudalint.facts.model import Launch
    from cudalint.facts.terms import Poly, Term
    from cudalint.rules.support import Triple

_MOST_THREADS = 1 << 15


class Overlap(NamedTuple):
    """``element`` is handled by both ``threads`` (block, thread), ``missing`` by none."""

    element: int
    threads: tuple[tuple[Triple, Triple], tuple[Triple, Triple]]
    missing: int


def overlap(launch: Launch, case: Case, item: Coordinate, reach: int, size: int) -> Overlap | None:
    """What such an index does in a case of a launch that comes to ``reach`` of ``size`` elements; None for another."""
    bid, tid = item.block, item.thread
    if bid is None or tid is None or not _is_wrong(launch, case, item.index, bid, tid):
        return None
    on_grid, on_block = "xyz".index(bid.data.axis), "xyz".index(tid.data.axis)
    blocks, threads = case.grid[on_grid], case.block[on_block]
    some = max(2, _MOST_THREADS // max(1, threads))
    taking = _taking_part(case, item, tid, threads)
    kept = dict(case.values)
    owners: dict[int, tuple[Triple, Triple]] = {}
    twice: list[tuple[int, tuple[Triple, Triple]]] = []
    try:
        for b in range(min(blocks, some)):
            for i in taking:
                case.values[bid], case.values[tid] = b, i
                element = case.number(item.index)
                here = support.on_axis(bid.data.axis, b), support.on_axis(tid.data.axis, i)
                first = owners.setdefault(element, here)
                if first[0] != here[0] and element < size:
                    twice.append((element, here))
    except t.Undefined:
        return None
    finally:
        case.values.clear()
        case.values.update(kept)
    if not twice:
        return None
    element, second = min(twice)
    # Not all blocks were tried: what lies beyond the last thread's element is in nobody's reach either way.
    missing = next((e for e in range(size) if e not in owners), reach) if blocks <= some else reach
    return Overlap(element, (owners[element], second), missing)


def _taking_part(case: Case, item: Coordinate, tid: Term, threads: int) -> list[int]:
    """The threads of a block that a test of the thread's own number lets through to the access."""
    tests = [
        x for x in conjuncts(item.accesses[0].guard) if tid in t.leaves(x) and t.leaves(x).isdisjoint(BID.values())
    ]
    if not tests:
        return list(range(threads))
    first = (0, 0, 0)
    each = ((i, case.of(first, support.on_axis(tid.data.axis, i))) for i in range(threads))
    return [i for i, seen in each if all(seen.truth(x) is not False for x in tests)]


def _is_wrong(launch: Launch, case: Case, index: Poly, bid: Term, tid: Term) -> bool:
    """Whether a block's number is added, multiplied by a thread's, or scaled by something else than the block."""
    if any(x.op != "atom" or x.data.kind not in ("bid", "tid", "bdim", "gdim", "param") for x in t.atoms_of(index)):
        return False
    per_block, per_thread = shapes.coefficient(index, bid), shapes.coefficient(index, tid)
    if any(tid in m for m in per_block) or per_block == per_thread:
        return True
    share = shapes.divide(per_block, per_thread)
    if share is None:
        return False
    dimensions = {(x.data.kind, x.data.axis) for x in t.atoms_of(share)}
    if any(kind == "gdim" for kind, _ in dimensions):
        return True
    if {kind for kind, _ in dimensions} == {"bdim"}:
        return ("bdim", tid.data.axis) not in dimensions
    # A number other than the block's size: right where blocks overlap on purpose, and the grid counts such shares.
    written, threads = t.constant(share), case.block["xyz".index(tid.data.axis)]
    assert launch.grid is not None
    division = launches.division(launch.grid["xyz".index(bid.data.axis)])
    if written is None or written == threads or division is None:
        return False
    try:
        return int(t.evaluate(division[1], case.host)) == threads
    except t.Undefined:
        return False
