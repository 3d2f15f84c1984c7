"""Oracles: pure functions from what a run showed to the fault in it, None where there is none."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from cudalint.findings import plural
from cudalint.lazy import NamedTuple
from cudalint.sim.run import MAX_THREADS
from cudalint.sim.values import Unsupported

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable

    from cudalint.confirm.harness import Setup, Triple
    from cudalint.frontend.source import SourceFile
    from cudalint.sim import BufferState, Observation
    from cudalint.sim.observe import Outside, Race, Site

_WRONG = 10

Place = tuple["SourceFile", int, int]
"""Where an access stands: its file and its start and end in the text."""


class Wrong(NamedTuple):
    """One wrong element: who should have handled it (or did what was wrong) where one can tell, and after how many
    passes of a grid-stride loop."""

    at: int
    block: Triple | None = None
    thread: Triple | None = None
    turn: int = 0

    def to_json(self) -> dict[str, Any]:
        """As the evidence has it."""
        block, thread = self.block and list(self.block), self.thread and list(self.thread)
        return {"index": self.at, "block": block, "thread": thread, "pass": self.turn}


class Fault(NamedTuple):
    """What went wrong in a run: ``first`` is the first wrong index (of an element, a thread), ``text`` the words."""

    symptom: str
    text: str
    first: int | None = None
    wrong: tuple[Wrong, ...] = ()
    of: int | None = None
    """Elements that were meant to be handled, where that is known."""
    owner: tuple[Triple, Triple] | None = None
    """The thread that handles the first wrong element where nothing is amiss: (block, thread)."""
    threads: Any = None
    """The numbers in the grid of all threads that took part in what is wrong, where they were seen."""
    elsewhere: bool = False
    """It shows at another access than the flagged one."""


class Flagged(NamedTuple):
    """The access that a finding flags, the names of what it is to, and the other places that the finding tells of."""

    file: Any
    start: int
    end: int
    names: frozenset[str] = frozenset()
    related: tuple[tuple[Any, int, int], ...] = ()


class Run(NamedTuple):
    """A run with what it ran; ``reference`` is the same kernel where nothing is amiss, ``repaired`` its setup."""

    setup: Setup
    seen: Observation
    repaired: Setup | None = None
    reference: Observation | None = None
    flagged: Flagged | None = None


def _flagged_first(run: Run, events: Iterable[Any]) -> tuple[list[Any], bool]:
    """The events at the flagged access; all of them where there are none, which are then elsewhere."""
    found, flagged = list(events), run.flagged
    if flagged is None:
        return found, False
    here = [e for e in found if e.site.file is flagged.file and e.site.node.start == flagged.start]
    # `p[i].x` begins where `p[i]` does, and so does the row of `p[i][j]`.
    here = [e for e in here if e.site.node.end == flagged.end] or here
    return here or found, not here and bool(found)


def _elsewhere(fault: Fault) -> Fault:
    """The fault, said to be at another access than the flagged one."""
    return fault._replace(text=f"{fault.text}, which is not the access that is flagged", elsewhere=True)


def place(linear: int, grid: Triple, block: Triple) -> tuple[Triple, Triple]:
    """A thread's block and place in it, by its number in the grid."""
    each = block[0] * block[1] * block[2]
    b, i = divmod(linear, each)
    return (
        (b % grid[0], b // grid[0] % grid[1], b // (grid[0] * grid[1])),
        (i % block[0], i // block[0] % block[1], i // (block[0] * block[1])),
    )


def number(grid: Triple, block: Triple, at: Triple, thread: Triple) -> int:
    """The number in the grid of a thread of the block ``at``; the inverse of :func:`place`."""
    first = (at[0] + grid[0] * (at[1] + grid[1] * at[2])) * block[0] * block[1] * block[2]
    return first + thread[0] + block[0] * (thread[1] + block[1] * thread[2])


def _numbers(run: Run, threads: Iterable[tuple[Triple, Triple]]) -> Any:
    return np.array([number(run.setup.grid, run.setup.block, *each) for each in threads], np.int64)


def coverage(run: Run, *, twice: bool = False) -> Fault | None:
    """Elements that the covering launch writes and this one does not; with ``twice``, those that several threads
    write here and one thread there."""
    if run.reference is None or run.repaired is None or run.seen.end == "refused" or run.seen.sampled:
        return None
    for name, state in run.reference.buffers.items():
        here = run.seen.buffers.get(name)
        if here is None:
            continue
        found = _missed(run, state, here)
        if found is not None:
            return found
    if twice:
        return written_twice(run)
    return None


def _missed(run: Run, wanted: BufferState, got: BufferState) -> Fault | None:
    assert run.repaired is not None
    due = wanted.written()
    mine, _ = got.writers(due)
    gaps = np.flatnonzero(mine < 0)
    count, done = len(gaps), len(due) - len(gaps)
    lost = [int(x) for x in due[gaps[:_WRONG]]]
    owners = [int(x) for x in wanted.writers(lost)[0]]
    if not lost:
        return None
    threads = _product(run.setup.grid) * _product(run.setup.block)
    flat = run.setup.grid[1:] == run.setup.block[1:] == (1, 1)
    wrong = []
    for at, owner in zip(lost, owners):
        if flat and _own_index(run):
            wrong.append(Wrong(at, *place(at % threads, run.setup.grid, run.setup.block), at // threads))
        else:
            wrong.append(Wrong(at, *place(owner, run.repaired.grid, run.repaired.block)))
    text = f"element {lost[0]} of `{wanted.name}` is never written"
    if count > 1:
        text = f"{count} elements of `{wanted.name}` are never written, the first is {lost[0]}"
    if done == lost[0] == threads and count == int(due[-1]) + 1 - lost[0]:
        text = (
            f"processed the first {threads} elements only: `{wanted.name}[{threads}]` and all after it are not written"
        )
    elif not done:
        text = f"no element of `{wanted.name}` is written"
    first_owner = place(owners[0], run.repaired.grid, run.repaired.block)
    return Fault("never-written", text, lost[0], tuple(wrong), len(due), first_owner)


def _own_index(run: Run) -> bool:
    """Whether a thread's number is the index of its element, on one axis."""
    return run.repaired is not None and run.repaired.grid[1:] == (1, 1)


def _product(triple: Iterable[int]) -> int:
    result = 1
    for item in triple:
        result *= item
    return result


def written_twice(run: Run, names: Container[str] | None = None) -> Fault | None:
    """Elements (of the buffers ``names``, if some are given) that several threads write, and that only one writes in
    the reference run (where there is one)."""
    for name, state in run.seen.buffers.items():
        if names is not None and name not in names:
            continue
        other = run.reference.buffers.get(name) if run.reference is not None else None
        found = []
        for element, a, b in state.several(_WRONG):
            if other is not None and int(other.writers([element])[1][0]) >= 0:
                continue
            found.append((element, a, b))
        if found:
            wrong = tuple(Wrong(e, *place(b, run.setup.grid, run.setup.block)) for e, _, b in found)
            first, *two = found[0]
            here, there = (thread_name(*place(x, run.setup.grid, run.setup.block)) for x in two)
            text = f"`{name}[{first}]` is written by {here} and by {there}"
            threads = np.array([x for _, a, b in found for x in (a, b)], np.int64)
            return Fault("written-twice", text, first, wrong, threads=threads)
    return None


def outside(
    run: Run, space: str = "global", element: int | None = None, names: Container[str] | None = None,
    which: Callable[[Outside], bool] | None = None,
) -> Fault | None:  # fmt: skip
    """Accesses outside of a global buffer (or of another ``space``; of the buffers ``names``, and those ``which`` are
    asked for, if some are): the flagged one before others, that of ``element`` before others."""
    seen = (e for e in run.seen.outside or () if e.space == space and not e.dimension)
    if names is not None:
        seen = (e for e in seen if e.buffer in names)
    if which is not None:
        seen = (e for e in seen if which(e))
    events, elsewhere = _flagged_first(run, seen)
    if not events:
        return None
    events.sort(key=lambda e: e.element != element)
    wrong = tuple(Wrong(e.element, e.thread.block, e.thread.thread) for e in events[:_WRONG])
    e = events[0]
    fault = Fault(
        "outside",
        f"{thread_name(*e.thread)} {_DID[e.kind]} `{e.buffer}[{e.element}]`, of {plural(e.extent, 'element')}"
        f" (line {e.site.line})",
        e.element, wrong, e.extent, threads=_numbers(run, (e.thread for e in events)),
    )  # fmt: skip
    return _elsewhere(fault) if elsewhere else fault


def outside_shared(run: Run) -> Fault | None:
    """Accesses outside of a shared array."""
    return outside(run, "shared")


_DID = {"load": "reads", "store": "writes", "atomic": "updates", "index": "indexes"}


def thread_name(block: Triple, thread: Triple) -> str:
    b, i = (str(x[0]) if x[1:] == (0, 0) else str(x) for x in (block, thread))
    return f"thread {i} of block {b}"


def arrivals(run: Run) -> Fault | None:
    """Barriers that some threads of a block pass less often than others, returned threads counted."""
    block = run.setup.block
    for item in run.seen.arrivals or ():
        counts = np.asarray(item.counts)
        if item.scope == "warp" or counts.size == 0:
            continue
        wide = item.scope != "block"
        rows = counts.reshape(1, -1) if wide else counts
        uneven = np.flatnonzero(rows.max(axis=1) != rows.min(axis=1))
        if not len(uneven):
            continue
        row = rows[uneven[0]]
        missing = np.flatnonzero(row < row.max())
        each = _product(block)
        number = int(uneven[0]) if not wide else 0
        blocks = np.asarray(item.blocks)
        wrong = []
        for index in missing[:_WRONG]:
            b, i = divmod(int(index), each) if wide else (number, int(index))
            b = int(blocks[b])
            wrong.append(Wrong(i, *place(b * each + i, run.setup.grid, block)))
        arrived = int((row == row.max()).sum())
        first = wrong[0].block or (0, 0, 0)
        where = first[0] if first[1:] == (0, 0) else first
        whom = f"of block {where}" if not wide else f"of the {item.scope}"
        return Fault(
            "divergent-barrier",
            f"line {item.site.line}: {plural(arrived, 'thread')} {whom} {_do(arrived, 'arrive')} at the barrier"
            f" and {len(missing)} {_do(len(missing), 'do')} not",
            wrong[0].at, tuple(wrong), len(row), threads=_missing(run),
        )  # fmt: skip
    for event in run.seen.divergent or ():
        wrong_one, count = Wrong(event.missing.thread[0], *event.missing), event.arrivals
        return Fault(
            "divergent-barrier",
            f"line {event.site.line}: {plural(count, 'thread')} of {event.live} {_do(count, 'arrive')} at the barrier,"
            f" {thread_name(*event.missing)} does not",
            event.missing.thread[0], (wrong_one,), event.live,
        )  # fmt: skip
    return None


def _do(count: int, verb: str) -> str:
    """The verb that goes with a number of threads."""
    return verb if count != 1 else "does" if verb == "do" else f"{verb}s"


def rank(block: Triple, thread: Triple) -> int:
    """A thread's number in its block."""
    return thread[0] + block[0] * (thread[1] + block[1] * thread[2])


def lanes(run: Run) -> Fault | None:
    """Lanes that a collective reads and that take no part, live ones that its mask names, a caller that it lacks."""
    for event in run.seen.absent or ():
        if event.read is not event.gone:
            # Votes, matches and syncs are defined over the lanes that have not exited; of a live lane that is read
            # the mask tells, where it names it.
            continue
        caller = thread_name(*event.thread)
        did = "reads" if event.read else "names"
        where = "which has exited" if event.gone else "which is elsewhere"
        text = f"line {event.site.line}: `{event.name}` of {caller} {did} lane {event.lane}, {where}"
        if not event.read and rank(run.setup.block, event.thread.thread) % 32 == event.lane:
            text = f"line {event.site.line}: the mask of `{event.name}` lacks the lane of {caller}"
        return Fault("absent-lane", text, event.lane, (Wrong(event.lane, *event.thread),), 32)
    return None


def _missing(run: Run) -> Any:
    """The numbers of all threads that arrive less often than others at some barrier."""
    found = []
    for item in run.seen.arrivals or ():
        counts, blocks = np.asarray(item.counts), np.asarray(item.blocks)
        if item.scope == "warp" or counts.size == 0:
            continue
        most = counts.max() if item.scope != "block" else counts.max(axis=1)[:, None]
        row, inside = np.nonzero(counts < most)
        found.append(blocks[row] * counts.shape[1] + inside)
    return np.concatenate(found)


def grid_waits(run: Run) -> Fault | None:
    """Blocks that come to a barrier over the whole grid."""
    for item in run.seen.arrivals or ():
        if item.scope == "grid" and np.asarray(item.counts).any():
            return Fault("hang", f"line {item.site.line}: the blocks wait for the whole grid in a plain launch", None)
    return None


def beyond(op: str, inputs: int, names: Container[str], of: str) -> Callable[[Run], Fault | None]:
    """Results (in the buffers ``names``) of a maximum (``max``) above all inputs, of a minimum below, products that are
    0; what is as far from 0 as the inputs was made of them. ``of`` says what those are."""

    def judge(run: Run) -> Fault | None:
        for name, state in run.seen.buffers.items():
            if name not in names or state.extent > 1 << 22:
                continue
            values, due = state.values(), state.writers()[0] >= 0
            if values.dtype.kind not in "if":
                continue
            wrong = values > inputs if op == "max" else values < inputs if op == "min" else values == 0
            found = np.flatnonzero(due & wrong & (values != -inputs))
            if len(found):
                at = int(found[0])
                text = f"`{name}[{at}]` is {values[at]:.6g}, of inputs that are {of}"
                return Fault("wrong-value", text, at, (Wrong(at),))
        return None

    return judge


def misaligned(run: Run) -> Fault | None:
    """Accesses at an address that is no multiple of their size."""
    events, elsewhere = _flagged_first(run, run.seen.misaligned or ())
    for e in events:
        where = f"byte {e.offset} of `{e.buffer}` (line {e.site.line})"
        text = f"{thread_name(*e.thread)} accesses {e.size} bytes at {where}"
        fault = Fault("misaligned", text, e.offset // 4, (Wrong(e.offset, *e.thread),))
        return _elsewhere(fault) if elsewhere else fault
    return None


def short_sums(run: Run, each: int, count: int, size: int | None = None) -> Fault | None:
    """Results that are sums of some, and not of all, of ``count`` elements which are ``each``; where there are ``size``
    elements in all, those after the last ``count`` of them are too few to make one."""
    for name, state in run.seen.buffers.items():
        if state.extent > 1 << 22:
            continue
        values, due = state.values(), state.writers()[0] >= 0
        found = np.flatnonzero(due & (values > each) & (values < each * count))
        if size is not None:
            found = found[found < size // count]
        if len(found):
            at = int(found[0])
            text = f"`{name}[{at}]` is {values[at]:g}, and {count} elements of {each} make {each * count}"
            return Fault("wrong-value", text, at, (Wrong(at),))
    return None


def unset(run: Run) -> Fault | None:
    """Reads of shared memory, or of locals, that nothing had written."""
    events, elsewhere = _flagged_first(run, run.seen.uninitialised or ())
    for event in events:
        name = event.name if event.element is None else f"{event.name}[{event.element}]"
        text = f"line {event.site.line}: {thread_name(*event.thread)} reads `{name}`, which nothing has written"
        fault = Fault("stale-read", text, event.element, (Wrong(event.element or 0, *event.thread),))
        return _elsewhere(fault) if elsewhere else fault
    return None


def refused(run: Run) -> Fault | None:
    if run.seen.end != "refused":
        return None
    return Fault("refused", f"the launch is refused: {run.seen.launch_error}")


def empty(run: Run, axis: str = "") -> Fault | None:
    """A launch that is refused because a dimension of its grid (that on ``axis``, if one is given) or block is 0, and
    for nothing else."""
    legal = _product(run.setup.block) <= MAX_THREADS
    looked_at = (run.setup.grid["xyz".index(axis)],) if axis else (*run.setup.grid, *run.setup.block)
    return refused(run) if legal and 0 in looked_at else None


def large(run: Run, least: int) -> bool:
    """Whether a size is so large, and the block no cause of itself for a launch to be refused."""
    sizes = (*run.setup.host.values(), *run.setup.values.values())
    return max(sizes, default=0) >= least and 0 < _product(run.setup.block) <= MAX_THREADS


def last(run: Run) -> Fault | None:
    """The last element of a buffer that the kernel writes, written by nobody."""
    if run.seen.end != "done":
        return None
    for name, state in run.seen.buffers.items():
        if not len(state.written()):
            continue
        if int(state.writers([state.extent - 1])[0][0]) < 0:
            at = state.extent - 1
            return Fault("never-written", f"the last element of `{name}`, {at}, is never written", at, (), state.extent)
    return None


def gaps(run: Run, names: Iterable[str]) -> Fault | None:
    """Elements that nobody writes, of buffers of which all are to be written."""
    if run.seen.end != "done" or run.seen.sampled or run.seen.blocks is not None:
        return None
    for name in names:
        state = run.seen.buffers.get(name)
        missed = state.never(_WRONG) if state is not None else []
        if missed and state is not None:
            text = f"element {missed[0]} of `{name}` is never written"
            return Fault("never-written", text, missed[0], tuple(map(Wrong, missed)), state.extent)
    return None


def races(run: Run, names: Container[str] | None = None, which: Callable[[Race], bool] | None = None) -> Fault | None:
    """Two threads that meet in one barrier interval, in one of the arrays ``names`` (and as ``which`` asks for) if some
    are given; what is flagged is one side of a race, so that its array comes before others."""
    seen = [e for e in run.seen.races or () if (names is None or e.buffer in names) and (which is None or which(e))]
    if run.flagged is not None:
        mine = run.flagged.names
        seen = [e for e in seen if e.buffer in mine] or seen
    whole = len(run.seen.races or ()) == run.seen.race_count  # only the first few of each place are kept
    for e in seen:
        fault = Fault(
            "race",
            f"{thread_name(*e.first)} and {thread_name(*e.second)} meet at `{e.buffer}[{e.element}]` ({e.kind})",
            e.element, (Wrong(e.element, *e.second),),
            threads=_numbers(run, (x for e in seen for x in (e.first, e.second))) if whole else None,
        )  # fmt: skip
        other = run.flagged is not None and e.buffer not in run.flagged.names
        return _elsewhere(fault) if other else fault
    return None


def between(one: tuple[Place, Container[str]], other: tuple[Place, Container[str]]) -> Callable[[Race], bool]:
    """The races of two accesses, each given by its place and what is done there: ``read``, ``write``, ``atomic``. Of
    the first to come it may be known only what it did."""

    def asked(race: Race) -> bool:
        first, second = race.kind.split("-")
        for (early, did), (late, does) in ((one, other), (other, one)):
            here = stands_at(race.site, late) and second in does and first in did
            if here and (race.earlier is None or stands_at(race.earlier, early)):
                return True
        return False

    return asked


def stands_at(site: Site, place: Place) -> bool:
    """Whether an event is of the access at a place, or of what it is a part of: a call that updates it, a member."""
    file, start, end = place
    a, b = site.node.start, site.node.end
    return site.file is file and (start <= a <= b <= end or a <= start <= end <= b)


def between_blocks(run: Run, names: Container[str]) -> Fault | None:
    """A thread that reads what one of another block writes, in the arrays ``names``: where blocks do not wait for each
    other, which comes first is chance."""
    each = _product(run.setup.block)
    for name, state in run.seen.buffers.items():
        for start, stop in state.touched() if name in names else ():
            index = np.arange(start, stop, dtype=np.int64)
            for writer, reader in product(state.writers(index), state.readers(index)):
                found = np.flatnonzero((reader >= 0) & (writer >= 0) & (reader // each != writer // each))
                if len(found):
                    at = int(found[0])
                    one, other = (place(int(x[at]), run.setup.grid, run.setup.block) for x in (reader, writer))
                    text = f"{thread_name(*one)} reads `{name}[{start + at}]`, which {thread_name(*other)} writes"
                    return Fault("race", text, start + at, (Wrong(start + at, *one),))
    return None


def independence(run: Run, where: str = "in one block") -> Fault | None:
    """Values that differ from those of the same kernel in another launch, beyond the rounding of a sum; ``where`` says
    how that one differs."""
    if run.reference is None or run.seen.end != "done":
        return None
    for name, state in run.reference.buffers.items():
        here = run.seen.buffers.get(name)
        if here is None or state.extent > 1 << 24:
            continue
        try:
            a, b = here.values(), state.values()
        except Unsupported:
            continue
        if a.dtype.kind not in "iufb":
            continue
        due = state.writers()[0] >= 0
        same = np.isclose(a, b, rtol=1e-3, atol=1e-4, equal_nan=True) if a.dtype.kind == "f" else a == b
        found = np.flatnonzero(due & ~same)
        if len(found):
            first = int(found[0])
            return Fault(
                "wrong-value", f"`{name}[{first}]` is {a[first]:.6g}, and {b[first]:.6g} {where}",
                first, tuple(Wrong(int(g)) for g in found[:_WRONG]),
            )  # fmt: skip
    return None


def wraps(
    run: Run, spans: Iterable[tuple[Any, int, int]] = (), kinds: Iterable[str] = ("signed", "unsigned"),
    but: Iterable[tuple[Any, int, int]] = (),
) -> Fault | None:  # fmt: skip
    """Integer operations that wrapped, at one of the places (file, start, end) if some are given, and at none of those
    of ``but``."""
    places, others = list(spans), list(but)
    wanted = set(kinds)

    def lies(site: Any, places: list[tuple[Any, int, int]]) -> bool:
        node, file = site.node, site.file
        return any(f is file and a <= node.start and node.end <= b for f, a, b in places)

    def asked(site: Any) -> bool:
        return (not places or lies(site, places)) and not lies(site, others)

    found = [e for e in run.seen.wraps or () if e.kind in wanted and asked(e.site)]
    if not found:
        return None
    e = found[0]
    return Fault(
        "wrap",
        f"line {e.site.line}: `{' '.join(e.site.text.split())}` wraps to {e.value} in {thread_name(*e.thread)}",
        None, (Wrong(int(e.value), *e.thread),), threads=_numbers(run, (e.thread for e in found)),
    )  # fmt: skip


def no_end(run: Run) -> Fault | None:
    if run.seen.end != "no-end":
        return None
    return Fault("hang", f"the kernel does not end: {run.seen.reason}")


def first_of(*oracles: Callable[[Run], Fault | None]) -> Callable[[Run], Fault | None]:
    """The first fault that one of the oracles sees."""

    def judge(run: Run) -> Fault | None:
        for each in oracles:
            found = each(run)
            if found is not None:
                return found
        return None

    return judge


__all__ = [
    "Fault", "Flagged", "Run", "Wrong", "arrivals", "between", "between_blocks", "beyond", "coverage", "empty",
    "first_of", "gaps", "grid_waits", "independence", "lanes", "large", "last", "misaligned", "no_end", "outside",
    "outside_shared", "place", "races", "refused", "short_sums", "stands_at", "thread_name", "unset", "wraps",
    "written_twice",
]  # fmt: skip
