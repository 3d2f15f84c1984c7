"""What a run shows. Every field of :class:`Observation` is None where it was not observed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudalint.lazy import NamedTuple

if TYPE_CHECKING:
    from cudalint.findings import Span
    from cudalint.frontend.source import SourceFile
    from cudalint.ir.nodes import Node
    from cudalint.sim.memory import BufferState

#: At most so many events of one kind are kept for one place in the source; all are counted.
KEPT = 16


class Thread(NamedTuple):
    """A thread by its place in the launch: (x, y, z) each."""

    block: tuple[int, int, int]
    thread: tuple[int, int, int]


class Site:
    """A node of the source, as events name it."""

    __slots__ = ("file", "node")

    def __init__(self, node: Node, file: SourceFile) -> None:
        self.node, self.file = node, file

    @property
    def span(self) -> Span:
        return self.file.span(self.node.start, self.node.end)

    @property
    def line(self) -> int:
        return self.span.told_line

    @property
    def text(self) -> str:
        return self.file.text[self.node.start : self.node.end].decode("utf-8", "replace")

    def __repr__(self) -> str:
        return f"Site({self.line}: {self.text})"


class Outside(NamedTuple):
    """An access outside of a buffer, at ``element`` (in elements of the buffer).

    ``kind`` is ``load``, ``store``, ``atomic`` or ``index``. ``dimension`` is true where only one
    dimension of an array of arrays was left, not the whole array.
    """

    buffer: str
    space: str
    element: int
    extent: int
    thread: Thread
    site: Site
    kind: str
    dimension: bool = False


class Uninitialised(NamedTuple):
    """A read of shared or local memory, or of a local variable, that nothing had written."""

    name: str
    space: str
    element: int | None
    thread: Thread
    site: Site


class Divergent(NamedTuple):
    """A barrier that some live threads of a block reached and others did not."""

    block: tuple[int, int, int]
    arrived: Thread
    missing: Thread
    arrivals: int
    live: int
    site: Site


class Arrivals(NamedTuple):
    """Arrivals at one barrier of the source: ``counts[b, t]`` for thread ``t`` of the block ``blocks[b]``.

    ``blocks`` are linear numbers; those in whose batch no thread arrived are not among them.
    """

    site: Site
    scope: str
    counts: Any
    blocks: Any


class Absent(NamedTuple):
    """A warp collective that read a lane that did not take part (``lane``), or whose mask names absent lanes.

    ``read`` is true where a value was taken from the absent lane: the undefined case. ``gone`` tells a lane
    that has exited (or never was) from one that is elsewhere.
    """

    name: str
    thread: Thread
    lane: int
    read: bool
    gone: bool
    site: Site


class Race(NamedTuple):
    """Two threads at one element within one barrier interval, at least one of them writing."""

    buffer: str
    space: str
    element: int
    first: Thread
    second: Thread
    kind: str
    """``write-write``, ``read-write`` (the read came first) or ``write-read``."""
    site: Site
    earlier: Site | None = None
    """Where the first of the two stands; None where that was not seen."""


class Wrap(NamedTuple):
    """An integer operation whose value the type cannot hold.

    ``kind``: ``signed`` (overflow), ``unsigned`` (wraps), ``convert`` (a conversion that changes the value),
    ``divide`` (by zero). ``value`` is what the machine holds afterwards.
    """

    kind: str
    operation: str
    value: int
    thread: Thread
    site: Site


class Misaligned(NamedTuple):
    """An access at an address that is no multiple of its size: a fault on the hardware."""

    buffer: str
    offset: int
    size: int
    thread: Thread
    site: Site


class Log:
    """Events of one kind: the first few for each place, and how many there were at each."""

    __slots__ = ("counts", "events")

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.counts: dict[tuple[int, object], int] = {}

    def room(self, site: Site, count: int, key: object = None) -> int:
        """How many of ``count`` new events at ``site`` are to be kept; all are counted."""
        slot = (id(site), key)
        seen = self.counts.get(slot, 0)
        self.counts[slot] = seen + count
        return max(0, min(count, KEPT - seen))

    @property
    def total(self) -> int:
        return sum(self.counts.values())


class Observation:
    """What one launch did.

    ``end``: ``done``; ``refused`` (``launch_error`` says why); ``no-end`` (a loop that gets nowhere:
    ``reason``); ``fault`` (an access far outside, a trap); ``inconclusive`` (``reason`` is ``unsupported <what> at
    line <n>``, ``spin``, or what of its time or steps was used up). After anything but ``done`` the events are those
    up to that point. ``blocks`` are the linear indices of the blocks that ran, None for all; ``sampled`` is true
    where a loop ran at chosen iterations only: then elements not written tell nothing.
    """

    def __init__(self) -> None:
        self.end = "done"
        self.reason: str | None = None
        self.launch_error: str | None = None
        self.line: int | None = None
        self.buffers: dict[str, BufferState] = {}
        self.outside: list[Outside] | None = None
        self.uninitialised: list[Uninitialised] | None = None
        self.arrivals: list[Arrivals] | None = None
        self.divergent: list[Divergent] | None = None
        self.absent: list[Absent] | None = None
        self.races: list[Race] | None = None
        self.wraps: list[Wrap] | None = None
        self.misaligned: list[Misaligned] | None = None
        self.printed: list[str] = []
        self.failed_assertions: list[tuple[Thread, Site]] = []
        self.blocks: list[int] | None = None
        self.sampled = False
        self.steps = 0
        self.threads_run = 0
        self.outside_count = 0
        self.race_count = 0

    def release(self) -> None:
        """Give the memory of the buffers back: only the events are left."""
        for state in self.buffers.values():
            state.release()
        self.buffers = {}

    @property
    def conclusive(self) -> bool:
        return self.end != "inconclusive"

    def __repr__(self) -> str:
        return f"Observation({self.end}{': ' + self.reason if self.reason else ''})"
