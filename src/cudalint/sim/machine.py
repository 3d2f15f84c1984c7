"""One run: batches of blocks, their live threads, barriers, and the events seen."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from cudalint.sim.memory import Buffer, Memory, Object, stamp
from cudalint.sim.observe import Absent, Arrivals, Divergent, Log, Site, Thread, Uninitialised, Wrap
from cudalint.sim.values import Stop, Unsupported

if TYPE_CHECKING:
    from cudalint.ir import nodes as ir
    from cudalint.ir.types import Array
    from cudalint.sim.code import Code
    from cudalint.sim.frame import Frame


OUT_OF_TIME = "no time left"


class Machine:
    """The state of a run. ``lanes`` of a batch are numbered block by block, thread by thread."""

    def __init__(self, grid: tuple[int, int, int], block: tuple[int, int, int], shared_bytes: int, budget: int) -> None:
        self.grid, self.block, self.shared_bytes, self.budget = grid, block, shared_bytes, budget
        self.threads_per_block = block[0] * block[1] * block[2]
        self.memory = Memory(self)
        self.codes: dict[ir.Function, Code] = {}
        self.sites: dict[tuple[int, int], Site] = {}
        self.statics: dict[Any, Object] = {}
        self.shared: dict[Any, Object] = {}
        self.values: dict[Any, Any] = {}
        self.given: dict[str, Buffer | int | float] = {}
        self.races = True
        self.global_races = True
        self.watch_writes = True
        self.watch_reads = False
        self.strict = bool(os.environ.get("CUDALINT_DEBUG"))
        self.sample_loops = False
        self.sampled = False
        self.until: float | None = None
        """When the run has to end, by the monotonic clock."""
        self.steps = 0
        self.effects = 0
        self.tracking = False
        self.changed = False
        self.wraps, self.unset, self.divergences, self.absences = Log(), Log(), Log(), Log()
        self.arrivals: dict[Site, list[tuple[Any, Any, str]]] = {}
        self.printed: list[str] = []
        self.failed: list[tuple[Thread, Site]] = []
        self.batch: Any = np.zeros(0, np.int64)
        self.live: Any = np.zeros(0, bool)
        self.live_count = 0
        self.stamps: Any = np.zeros(0, np.int64)
        self.intervals: Any = np.zeros(0, np.int64)
        self.next_interval = 1
        self.lanes: dict[int, dict[str, Any]] = {}
        self.warp_epochs: Any = np.zeros(0, np.int64)
        self.version = 0
        self.epoch = 0
        self.clock = 0

    # Batches.

    def begin(self, blocks: Any) -> dict[str, Any]:
        """Start a batch of blocks (linear numbers); gives what its lanes are."""
        self.batch = blocks
        threads = self.threads_per_block
        count = len(blocks)
        total = count * threads
        for obj in self.shared.values():
            self.memory.remove(obj)
        self.shared = {}
        self.live = np.ones(total, bool)
        self.live_count = total
        self.intervals = np.arange(self.next_interval, self.next_interval + count, dtype=np.int64)
        self.next_interval += count
        self.epoch += 1
        if self.races:
            self.warp_epochs = np.zeros(total, np.int64)
            self.restamp()
        inside = np.arange(threads, dtype=np.uint32)
        bx, by, _ = self.block
        gx, gy, _ = self.grid

        def per_thread(values: Any) -> Any:
            return values[0] if threads == 1 or (values == values[0]).all() else np.tile(values, count)

        # What is the same in every batch of so many blocks; never written to.
        same = self.lanes.get(count)
        if same is None:
            tid = np.tile(np.arange(threads, dtype=np.int64), count)
            same = self.lanes[count] = {
                "tx": per_thread(inside % bx), "ty": per_thread(inside // bx % by),
                "tz": per_thread(inside // (bx * by)), "lane": np.arange(total, dtype=np.int64), "tid": tid,
                "row": np.int64(0) if count == 1 else np.repeat(np.arange(count, dtype=np.int64), threads),
            }  # fmt: skip

        def per_block(values: Any) -> Any:
            return values[0] if count == 1 or (values == values[0]).all() else np.repeat(values, threads)

        return same | {
            "bx": per_block((blocks % gx).astype(np.uint32)),
            "by": per_block((blocks // gx % gy).astype(np.uint32)),
            "bz": per_block((blocks // (gx * gy)).astype(np.uint32)),
            "thread": np.repeat(blocks * threads, threads) + same["tid"],
        }  # fmt: skip

    def restamp(self) -> None:
        """Renew what accesses are stamped with."""
        threads = self.threads_per_block
        count = len(self.batch)
        self.stamps = stamp(
            np.repeat(self.intervals, threads), self.warp_epochs, np.tile(np.arange(threads, dtype=np.int64), count)
        )
        self.version += 1

    def exit(self, lanes: Any) -> None:
        """These lanes have ended."""
        self.live_count -= len(lanes)
        if self.live_count:
            self.live[lanes] = False

    def thread(self, lane: int) -> Thread:
        """The thread that a lane of the batch is."""
        number, inside = divmod(lane, self.threads_per_block)
        return Thread(self.block_index(int(self.batch[number])), self.thread_index(inside))

    def block_index(self, number: int) -> tuple[int, int, int]:
        """(x, y, z) of a block by its linear number."""
        gx, gy, _ = self.grid
        return number % gx, number // gx % gy, number // (gx * gy)

    def thread_index(self, number: int) -> tuple[int, int, int]:
        bx, by, _ = self.block
        return number % bx, number // bx % by, number // (bx * by)

    def thread_of(self, block: tuple[int, int, int], number: int) -> Thread:
        return Thread(block, self.thread_index(number))

    def site(self, node: ir.Node, code: Code) -> Site:
        key = (id(node), 0)
        found = self.sites.get(key)
        if found is None:
            found = self.sites[key] = Site(node, code.function.file)
        return found

    def step(self, lanes: int) -> None:
        """Count one pass of a loop, one call or one block of statements; Stop where no steps or no time is left."""
        self.steps += 1 + (lanes >> 12)
        if self.steps > self.budget:
            raise Stop("inconclusive", f"more than {self.budget} steps")
        self.on_time()

    def on_time(self) -> None:
        """Stop where no time is left."""
        if self.until is not None and time.monotonic() > self.until:
            raise Stop("inconclusive", OUT_OF_TIME)

    # Barriers.

    def barrier(self, f: Frame, site: Site, scope: str = "block") -> None:
        """The active lanes arrive at a barrier; all live threads of the block (or grid) should."""
        lanes = f.lanes()
        threads = self.threads_per_block
        count = len(self.batch)
        record = self.arrivals.setdefault(site, [])
        if not record or record[-1][0] is not self.batch:
            record.append((self.batch, np.zeros(count * threads, np.int64), scope))
        counts = record[-1][1]
        counts[lanes] += 1
        if scope == "grid" and count * threads < self.grid[0] * self.grid[1] * self.grid[2] * threads:
            raise Unsupported("a grid sync with only some of the blocks running")
        if len(lanes) < self.live_count:
            arrived = np.bincount(lanes // threads, minlength=count)
            living = np.bincount(np.flatnonzero(self.live) // threads, minlength=count)
            if scope == "grid":
                uneven = np.flatnonzero(arrived < living)
            else:
                uneven = np.flatnonzero((arrived > 0) & (arrived < living))
            for position in range(self.divergences.room(site, len(uneven))):
                number = int(uneven[position])
                here = lanes[lanes // threads == number]
                there = np.setdiff1d(
                    np.flatnonzero(self.live[number * threads : (number + 1) * threads]) + number * threads, here
                )
                arrived_at = self.thread(int(here[0] if len(here) else lanes[0]))
                self.divergences.events.append(
                    Divergent(
                        self.block_index(int(self.batch[number])),
                        arrived_at,
                        self.thread(int(there[0])),
                        int(arrived[number]),
                        int(living[number]),
                        site,
                    )
                )
            blocks = np.flatnonzero(arrived > 0)
        else:
            blocks = np.arange(count)
            self.epoch += 1
        if scope == "grid":
            blocks = np.arange(count)
        self.intervals[blocks] = np.arange(self.next_interval, self.next_interval + len(blocks))
        self.next_interval += len(blocks)
        if self.races:
            self.restamp()

    def warp_barrier(self, f: Frame) -> None:
        """``__syncwarp`` by the active lanes: orders their accesses within each warp."""
        if not self.races:
            return
        lanes = f.lanes()
        self.warp_epochs[lanes] += 1
        self.restamp()

    # Memory of declared variables.

    def shared_object(self, var: ir.Var, size: int) -> Object:
        """The memory of a ``__shared__`` variable; all ``extern`` ones are the dynamic part."""
        key: Any = "dynamic" if var.extern else var
        found = self.shared.get(key)
        if found is None:
            if var.extern:
                size = self.shared_bytes
            if size * len(self.batch) > 1 << 31:
                raise Unsupported("shared arrays of this size")
            found = self.memory.add(var.name, "shared", var.type, size, len(self.batch), "block")
            self.shared[key] = found
        return found

    # Events.

    def wrap(self, f: Frame, lanes: Any, kind: str, operation: str, result: Any, site: Site) -> None:
        """An operation wrapped in the active lanes where ``lanes`` (a bool, or one a lane) says so."""
        where = np.flatnonzero(lanes) if type(lanes) is np.ndarray else ([0] if lanes else [])
        for position in range(self.wraps.room(site, len(where), kind)):
            lane = int(where[position])
            value = int(result[lane] if type(result) is np.ndarray else result)
            self.wraps.events.append(Wrap(kind, operation, value, f.thread(lane), site))

    def unset_read(self, f: Frame, var: ir.Var, lanes: Any, site: Site) -> None:
        for position in range(self.unset.room(site, len(lanes))):
            self.unset.events.append(Uninitialised(var.name, "register", None, f.thread(int(lanes[position])), site))

    def absent(self, f: Frame, name: str, lanes: Any, sources: Any, read: bool, site: Site) -> None:
        """Lanes (positions) of a collective met ``sources`` (lanes of their warp) that do not take part."""
        threads = self.threads_per_block
        for position in range(self.absences.room(site, len(lanes), read)):
            at = int(lanes[position])
            lane = int(f.lanes()[at])
            other = lane - lane % threads % 32 + int(sources[position])
            gone = other >= (lane // threads + 1) * threads or not self.live[other]
            self.absences.events.append(Absent(name, f.thread(at), int(sources[position]), read, bool(gone), site))

    def arrivals_seen(self) -> list[Arrivals]:
        threads = self.threads_per_block
        return [
            Arrivals(
                site,
                parts[0][2],
                np.concatenate([counts.reshape(-1, threads) for _, counts, _ in parts]),
                np.concatenate([blocks for blocks, _, _ in parts]),
            )
            for site, parts in self.arrivals.items()
        ]


def extent_of(type_: Array) -> int | None:
    return type_.extent if isinstance(type_.extent, int) else None
