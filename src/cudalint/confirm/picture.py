"""What is kept of a run to be drawn: who wrote which element, who arrived at which barrier, what was odd.

A run's buffers are given back once it is judged, so that this is taken while they are there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cudalint.findings import digits
from cudalint.lazy import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudalint.confirm.runner import Outcome
    from cudalint.sim import BufferState, Observation

NOBODY, ONE, SEVERAL, MISSING, NOT_RUN = range(5)
"""Of an element: no thread wrote it; one did; several did; none did and it was due; none of the blocks that ran did,
and not all ran."""
_CELLS = 1024
"""Elements that a view shows one by one; of more, a cell stands for as many as are needed."""
_CLOSE = 128
_WHOLE = 1 << 20
"""Elements up to which all of a buffer is looked at; of a larger one, the places that matter."""
_SEEN = 6
"""Events of one kind that are told."""


class Stretch(NamedTuple):
    """``cells`` neighbouring cells alike: the k-th was written by thread ``thread + k * step`` of ``block``, on its
    pass ``turn`` over the buffer (-1 where that is not known), and, where several did, by ``other + k * step``.
    Threads and blocks are linear numbers, of threads those in the block; ``other`` is one in the grid."""

    cells: int
    state: int
    block: int = -1
    thread: int = -1
    step: int = 0
    turn: int = -1
    other: int = -1


class View(NamedTuple):
    """Cells of a buffer from element ``first`` on, each ``each`` elements."""

    first: int
    each: int
    end: int
    stretches: tuple[Stretch, ...]


class Map(NamedTuple):
    """A buffer, and who wrote it."""

    name: str
    extent: int
    views: tuple[View, ...]


class Chart(NamedTuple):
    """Arrivals of the threads of one block at one barrier: (threads, arrivals each), in the order of the threads."""

    line: int
    text: str
    block: int
    arrivals: tuple[tuple[int, int], ...]
    others: int
    """Further blocks of which some threads arrived and others did not, or not as often."""


class Picture(NamedTuple):
    """One run. ``partial`` tells that only some blocks of the launch were run."""

    maps: tuple[Map, ...]
    charts: tuple[Chart, ...]
    events: tuple[str, ...]
    partial: bool


def picture(outcome: Outcome) -> Picture | None:
    """The run of an outcome, None where nothing was run or seen. Its buffers are still held."""
    if outcome.setup is None or not outcome.seen or outcome.seen[0].end == "refused":
        return None
    seen = outcome.seen[0]
    reference = outcome.seen[1] if len(outcome.seen) > 1 and not outcome.seen[1].sampled else None
    maps = []
    if not seen.sampled and "buffers" not in getattr(seen, "unseen", ()):
        for name, state in seen.buffers.items():
            due = reference.buffers.get(name) if reference is not None else None
            drawn = _map(outcome, state, due)
            if drawn is not None:
                maps.append(drawn)
    return Picture(tuple(maps), tuple(_charts(seen)), tuple(_events(outcome, seen)), seen.blocks is not None)


def _map(outcome: Outcome, state: BufferState, due: BufferState | None) -> Map | None:
    """The map of a buffer that a thread wrote, or should have."""
    if not len(state.written()) and (due is None or not len(due.written())):
        return None
    fault, extent = outcome.fault, state.extent
    views = []
    if extent <= _CELLS:
        views.append(_view(outcome, state, due, 0, extent, 1))
    else:
        if extent <= _WHOLE:
            views.append(_view(outcome, state, due, 0, extent, -(-extent // _CELLS)))
        matter = {0, extent}
        if fault is not None and fault.first is not None:
            matter.add(fault.first)
        for first in sorted({max(0, min(middle - _CLOSE // 2, extent - _CLOSE)) for middle in matter}):
            views.append(_view(outcome, state, due, first, first + _CLOSE, 1))
    return Map(state.name, extent, tuple(views))


def _view(outcome: Outcome, state: BufferState, due: BufferState | None, first: int, end: int, each: int) -> View:
    assert outcome.setup is not None
    index = np.arange(first, end, dtype=np.int64)
    mine, second = state.writers(index)
    turns = _turns(state, index)
    empty = NOBODY if outcome.seen[0].blocks is None else NOT_RUN
    kind = np.where(second >= 0, SEVERAL, np.where(mine >= 0, ONE, empty))
    if due is not None:
        kind = np.where((mine < 0) & (due.writers(index)[0] >= 0), MISSING, kind)
    if each > 1:
        # A cell is what its most telling element is.
        weight = np.array([1, 2, 3, 4, 0])[kind]
        starts = np.arange(0, len(index), each)
        most = np.maximum.reduceat(weight, starts)
        chosen = [int(s + np.argmax(weight[s : s + each] == m)) for s, m in zip(starts, most)]
        kind, mine, second, turns = kind[chosen], mine[chosen], second[chosen], turns[chosen]
    x, y, z = outcome.setup.block
    return View(first, each, end, tuple(_stretches(kind, mine, second, turns, max(1, x * y * z))))


def _turns(state: BufferState, index: Any) -> Any:
    """How many elements of the buffer before this one its writer wrote."""
    if state.extent > _WHOLE:
        return np.full(len(index), -1, np.int64)
    first, _ = state.writers()
    order = np.argsort(first, kind="stable")
    ordered = first[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    rank = np.empty(len(first), np.int64)
    rank[order] = np.arange(len(first)) - np.repeat(starts, np.diff(np.r_[starts, len(first)]))
    return np.where(first < 0, -1, rank)[index]


def _stretches(kind: Any, first: Any, second: Any, turns: Any, threads: int) -> Iterator[Stretch]:
    cells = [
        (int(k), f // threads if f >= 0 else -1, f % threads if f >= 0 else -1, int(u), int(s))
        for k, f, s, u in zip(kind, first.tolist(), second.tolist(), turns)
    ]
    at = 0
    while at < len(cells):
        state, block, thread, turn, other = cells[at]
        alike = at + 1
        step = None
        while alike < len(cells) and (cells[alike][0], cells[alike][1], cells[alike][3]) == (state, block, turn):
            by = cells[alike][2] - cells[alike - 1][2]
            if step is None:
                step = by
            if by != step or (other >= 0 and cells[alike][4] != other + step * (alike - at)):
                break
            alike += 1
        yield Stretch(alike - at, state, block, thread, step or 0, turn, other)
        at = alike


def _charts(seen: Observation) -> Iterator[Chart]:
    """Each barrier of a block, the block whose threads differ first."""
    for site in seen.arrivals or ():
        counts = np.asarray(site.counts)
        if not len(counts):
            continue
        uneven = np.flatnonzero(counts.min(axis=1) != counts.max(axis=1))
        row = int(uneven[0]) if len(uneven) else 0
        numbers = counts[row].tolist()
        starts = [0, *(i for i in range(1, len(numbers)) if numbers[i] != numbers[i - 1])]
        ends = [*starts[1:], len(numbers)]
        runs = tuple((end - start, int(numbers[start])) for start, end in zip(starts, ends))
        blocks = site.blocks
        number = int(blocks[row]) if blocks is not None else row
        yield Chart(site.site.line, " ".join(site.site.text.split()), number, runs, max(0, len(uneven) - 1))


def _events(outcome: Outcome, seen: Observation) -> Iterator[str]:
    """What the oracle asked for and was seen, in words."""
    told = {"outside": seen.outside, "races": seen.races, "wraps": seen.wraps, "absent": seen.absent,
            "misaligned": seen.misaligned, "uninitialised": seen.uninitialised}  # fmt: skip
    for field, events in told.items():
        if field not in outcome.asked or not events:
            continue
        for each in events[:_SEEN]:
            yield f"line {each.site.line}: {_WORDS[field](each)}"
        if len(events) > _SEEN:
            yield f"and more of the kind, {len(events) - _SEEN} of them kept"


def _who(thread: Any) -> str:
    def short(triple: Any) -> str:
        return str(triple[0]) if tuple(triple[1:]) == (0, 0) else str(tuple(triple))

    return f"thread {short(thread.thread)} of block {short(thread.block)}"


_VERBS = {"load": "reads", "store": "writes", "atomic": "updates", "index": "takes the address of"}
_RACES = {"write-write": "both write", "read-write": "one reads and then another writes",
          "write-read": "one writes and then another reads"}  # fmt: skip
_WORDS = {
    "outside": lambda e: (
        f"{_who(e.thread)} {_VERBS.get(e.kind, e.kind)} element {e.element} of `{e.buffer}`, which has {e.extent}"
    ),
    "races": lambda e: (
        f"{_who(e.first)} and {_who(e.second)} at element {e.element} of `{e.buffer}`:"
        f" {_RACES.get(e.kind, e.kind)} between two barriers"
    ),
    "wraps": lambda e: f"`{' '.join(e.site.text.split())}` comes out as {digits(e.value)} in {_who(e.thread)}",
    "absent": lambda e: f"{e.name}: lane {e.lane} is not there for {_who(e.thread)}",
    "misaligned": lambda e: f"{_who(e.thread)} is at byte {e.offset} of `{e.buffer}`, no multiple of {e.size}",
    "uninitialised": lambda e: (
        f"{_who(e.thread)} reads `{e.name}`{'' if e.element is None else f' at {e.element}'} before anybody wrote it"
    ),
}

__all__ = ["MISSING", "NOBODY", "NOT_RUN", "ONE", "SEVERAL", "Chart", "Map", "Picture", "Stretch", "View", "picture"]
