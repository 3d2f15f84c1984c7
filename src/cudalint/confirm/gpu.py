"""The ``cupy`` backend: kernels compiled by NVRTC and run on a GPU, in a child process with a deadline.

The child runs the script that ``--repro`` writes, without an experiment of its own: it reads experiments on stdin.
What it answers becomes an :class:`~cudalint.sim.Observation`, so that the same oracles judge both backends.
"""

from __future__ import annotations

import base64
import importlib.util
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from cudalint.confirm.oracle import place
from cudalint.confirm.prelude import PRELUDE
from cudalint.confirm.slice import slice_of
from cudalint.confirm.watch import DEVICE, Watch
from cudalint.errors import UsageError
from cudalint.facts.assigned import children
from cudalint.facts.events import Pointer, Record
from cudalint.ir import nodes as ir
from cudalint.ir.types import BF16, Array, Float, Int, Ptr, Struct, Type
from cudalint.sim import (
    Absent,
    Arrivals,
    Buffer,
    BufferState,
    Misaligned,
    Observation,
    Outside,
    Race,
    Thread,
    Uninitialised,
    View,
    Wrap,
)  # fmt: skip
from cudalint.sim.memory import Object, Page, granule_of, runs
from cudalint.sim.observe import Site
from cudalint.sim.run import uses_grid_sync
from cudalint.sim.values import Unsupported, memory_dtype, offsets

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cudalint.confirm.experiment import Bench, Plan, Trial
    from cudalint.confirm.harness import Setup
    from cudalint.facts.events import Obj
    from cudalint.facts.model import Kernel

#: Seconds for one run of a kernel, and what compiling may take on top.
_RUN, _COMPILE = 8.0, 60.0
_START = 120.0
_DENSE, _PAGE = 1 << 24, 1 << 20
_WRAPS = {20: "signed", 21: "unsigned", 22: "convert"}
_KINDS = {0: "load", 1: "store", 2: "atomic", 4: "load", 5: "store", 6: "atomic"}
_SHARED = frozenset({"races", "uninitialised"})
_RACES = {30: "write-read", 31: "read-write", 33: "atomic-read", 34: "atomic-write", 35: "read-atomic",
          36: "write-atomic", 37: "write-write"}  # fmt: skip


class Experiment:
    """A kernel's launches with all that they need, as data: ``data`` is what the child gets and a script holds."""

    def __init__(self, kernel: Kernel, setups: list[Setup], watch: frozenset[str] = frozenset()) -> None:
        self.kernel, self.setups = kernel, setups
        self.watch = Watch(kernel)
        self.slice = slice_of(kernel, self.watch)
        self.buffers: dict[str, Buffer] = {}
        self._objects: dict[Obj, Buffer] = {}
        arguments = []
        for param, argument in zip(kernel.function.params, setups[0].args):
            arguments.append(self._argument(argument, param.type))
        for (_, value), argument in zip(kernel.flow.params.items(), setups[0].args):
            self._match(value, argument)
        self.variables = self._variables()
        written = self._written()
        self.data: dict[str, Any] = {
            "kernel": self.slice.name,
            "arguments": arguments,
            "buffers": {n: {**spec_of(b), "written": n in written} for n, b in self.buffers.items()},
            "variables": {n: {**spec_of(b), "written": False} for n, b in self.variables.items()},
            "launches": [{"grid": list(s.grid), "block": list(s.block), "shared": s.shared} for s in setups],
            "cooperative": uses_grid_sync(kernel.function),
            "sites": [self._buffer_of(s.objects) for s in self.watch.sites],
            "lines": [s.file.span(s.node.start, s.node.end).line for s in self.watch.sites],
            "races": "global-races" in watch,
            "reads": "reads" in watch,
            "slots": self.watch.slots,
            "arrays": self.watch.arrays,
            "barriers": [
                [s.slot, s.file.span(s.node.start, s.node.end).line]
                for s in self.watch.sites if s.slot >= 0 and s.what == "block"
            ],
            "lanes": bool(kernel.flow.collectives),
            "shared": any(o.kind == "shared" for s in self.watch.sites for o in s.objects),
            "constants": {v.name: spec_of(b) for v, b in _constants(kernel)},
            "unordered": sorted({self._objects[a.obj].name if a.obj in self._objects else a.obj.name
                                 for a in kernel.flow.accesses if a.mode == "atomic" and a.obj.kind != "shared"}),
        }  # fmt: skip

    @property
    def source(self) -> str:
        return self.slice.source

    @property
    def watched(self) -> str:
        """The source with the edits by which the run is watched."""
        return f"{self.slice.includes}{PRELUDE}{DEVICE}{self.slice.watched}"

    @property
    def places(self) -> dict[str, Buffer]:
        """The memory that accesses are told of, in the order of the table in the watched run."""
        return {**self.buffers, **self.variables}

    def memory(self, site: int) -> tuple[str, str, int]:
        """What an access at a site is to: the name, the space, the size of an element."""
        where = self.watch.sites[site]
        if all(o.kind == "shared" for o in where.objects):
            obj, size = _array(where)
            if obj.var is not None and obj.var.extern:  # all of them are one array, and its first name tells it
                dynamic = (o for x in self.watch.sites for o in x.objects if o.var is not None and o.var.extern)
                obj = next(dynamic, obj)
            return obj.name, "shared", size
        name = self._buffer_of(where.objects)
        buffer = self.places.get(name or "")
        return (buffer.name, "global", buffer.element.size or 1) if buffer is not None else ("memory", "global", 1)

    def request(self) -> dict[str, Any]:
        return {**self.data, "source": self.source, "watched": self.watched}

    def _argument(self, given: Any, type_: Type) -> list[Any]:
        size = type_.size
        if size is None:
            raise Unsupported(f"an argument of type '{type_}'")
        return [size, [list(field) for field in self._fields(given, type_, 0)]]

    def _fields(self, given: Any, type_: Type, at: int) -> Iterator[tuple[int, str, Any]]:
        if isinstance(given, Buffer):
            self.buffers[given.name] = given
            yield at, "buffer", given.name
        elif isinstance(given, View):
            self.buffers[given.buffer.name] = given.buffer
            yield at, "view", (given.buffer.name, given.offset)
        elif isinstance(type_, Ptr):
            yield at, "null", None
        elif isinstance(type_, Int):
            yield at, memory_dtype(type_).str, type_.wrap(int(given))
        elif isinstance(type_, Float):
            yield at, _dtype(type_), float(given)
        elif isinstance(type_, Struct) and isinstance(given, dict):
            places = offsets(type_)
            for name, field in (type_.fields or {}).items():
                if name in given:
                    yield from self._fields(given[name], field, at + places[name])
        elif isinstance(type_, Array) and isinstance(given, (list, tuple)):
            for i, each in enumerate(given):
                yield from self._fields(each, type_.element, at + i * (type_.element.size or 0))
        else:
            raise Unsupported(f"an argument of type '{type_}'")

    def _match(self, value: Any, argument: Any) -> None:
        """Which buffer each object of the kernel's flow is."""
        if isinstance(value, Pointer) and isinstance(argument, (Buffer, View)):
            self._objects[value.obj] = argument if isinstance(argument, Buffer) else argument.buffer
        elif isinstance(value, Record) and isinstance(argument, dict):
            for name, inner in value.fields.items():
                self._match(inner, argument.get(name))

    def _variables(self) -> dict[str, Buffer]:
        """The ``__device__`` variables that the kernel touches: they are in the module, and no argument."""
        found: dict[str, Buffer] = {}
        for obj in {a.obj: None for a in self.kernel.flow.accesses if a.obj not in self._objects}:
            var = obj.var
            if var is None or var.kind != "global" or var.name in self.buffers:
                continue
            element = var.type
            while isinstance(element, Array):
                element = element.element
            if element.size and var.type.size:
                self._objects[obj] = found.setdefault(
                    var.name, Buffer(var.name, element, var.type.size // element.size, 0)
                )
        return found

    def _written(self) -> set[str]:
        unknown = any(a.obj not in self._objects and a.obj.kind in ("global", "unknown") and a.mode != "r"
                      for a in self.kernel.flow.accesses)  # fmt: skip
        if unknown:
            return set(self.buffers)
        return {self._objects[a.obj].name for a in self.kernel.flow.accesses
                if a.obj in self._objects and a.mode != "r"}  # fmt: skip

    def _buffer_of(self, objects: frozenset[Obj]) -> str | None:
        names = {self._objects[o].name if o in self._objects else "?" for o in objects if o.kind != "shared"}
        return None if not names else names.pop() if len(names) == 1 else "?"


def _dtype(type_: Type) -> str:
    return "bf16" if type_ is BF16 else str(memory_dtype(type_).str)


def spec_of(buffer: Buffer) -> dict[str, Any]:
    """A buffer as data."""
    element = buffer.element
    if element.size is None:
        raise Unsupported(f"a buffer of '{element}'")
    fill = buffer.fill
    if isinstance(fill, np.ndarray):
        fill = {"base64": base64.b64encode(zlib.compress(np.ascontiguousarray(fill).tobytes(), 9)).decode()}
    elif isinstance(fill, tuple):
        fill = [x if isinstance(x, str) else float(x) if isinstance(x, float) else int(x) for x in fill]
    parts = runs(element)
    return {
        "extent": buffer.extent, "width": element.size, "granule": granule_of(element), "fill": fill,
        "seed": zlib.crc32(buffer.name.encode()), "parts": [[at, _dtype(t), n] for at, t, n in parts],
        "pointer": isinstance(parts[0][1], Ptr), "written": True,
    }  # fmt: skip


def _constants(kernel: Kernel) -> Iterator[tuple[ir.Var, Buffer]]:
    """The ``__constant__`` variables that the host fills: by hash, as in the simulator."""
    stack: list[Any] = [kernel.function.body]
    seen = set()
    while stack:
        item = stack.pop()
        var = item.var if isinstance(item, ir.Ref) else None
        if var is not None and var.kind == "constant" and var.init is None and var not in seen:
            seen.add(var)
            element = var.type
            while isinstance(element, Array):
                element = element.element
            if element.size and var.type.size:
                yield var, Buffer(var.name, element, var.type.size // element.size, "hash")
        stack.extend(children(item))


class Measured(Observation):
    """What a run on a GPU shows. ``unseen`` names the fields that were not observed, ``notes`` say what was odd."""

    def __init__(self) -> None:
        super().__init__()
        self.unseen: set[str] = set()
        self.notes: list[str] = []
        self.differ: list[Any] = []
        self.spilled: list[Any] = []
        self.watched = False
        self.unordered: frozenset[str] = frozenset()
        """Buffers that atomics update, so that the order of threads counts."""


def measured(experiment: Experiment, number: int, seen: Mapping[str, Any], arrays: Mapping[str, Any]) -> Measured:
    """The answer to one launch as an observation."""
    setup, watch = experiment.setups[number], experiment.watch
    result = Measured()
    result.end, result.reason, result.launch_error = seen["end"], seen.get("reason"), seen.get("launch_error")
    result.notes = list(seen.get("notes", ()))
    result.differ, result.spilled = seen.get("differ", []), seen.get("spilled", [])
    result.unseen = set()
    result.watched = "events" in arrays
    result.unordered = frozenset(experiment.data["unordered"])
    if not result.watched:
        result.unseen |= {"outside", "arrivals", "divergent", "absent", "wraps", "buffers", "misaligned", *_SHARED}
        return result

    def thread(linear: int) -> Thread:
        return Thread(*place(linear, setup.grid, setup.block))

    result.outside, result.absent, result.wraps, result.divergent = [], [], [], []
    result.races, result.uninitialised, result.misaligned = [], [], []
    maybe = False
    places = experiment.places
    names = list(places)
    for kind, site, who, at, value in arrays["events"].tolist():
        where = watch.sites[site]
        here = Site(where.node, where.file)
        if kind in (0, 1, 2):
            buffer = places[names[value]]
            result.outside.append(Outside(buffer.name, "global", at, buffer.extent, thread(who), here, _KINDS[kind]))
        elif kind in (4, 5, 6):
            obj, size = _array(where)
            result.outside.append(
                Outside(obj.name, "shared", at // size, value // size, thread(who), here, _KINDS[kind])
            )
        elif kind == 10:
            result.absent.append(Absent(where.name, thread(who), at, bool(value & 1), bool(value & 2), here))
        elif kind in _RACES:
            name, space, size = experiment.memory(site)
            each = setup.block[0] * setup.block[1] * setup.block[2]
            other = thread(who // each * each + value)
            result.races.append(Race(name, space, at // size, other, thread(who), _RACES[kind], here))
        elif kind == 32:
            maybe = True
        elif kind == 50:
            name, _, _ = experiment.memory(site)
            result.misaligned.append(Misaligned(name, at, value, thread(who), here))
        elif kind == 40:
            obj, size = _array(where)
            result.uninitialised.append(Uninitialised(obj.name, "shared", at // size, thread(who), here))
        elif kind == 41:
            result.uninitialised.append(Uninitialised(where.name, "register", None, thread(who), here))
        elif kind in _WRAPS:
            result.wraps.append(Wrap(_WRAPS[kind], where.name, value, thread(who), here))
    result.unseen |= {field for field in watch.blind if not getattr(result, field, None)}
    blind = "shared" in watch.blind or not (seen.get("shadowed") or not experiment.data["shared"])
    result.unseen |= {field for field in _SHARED if not getattr(result, field) and (blind or maybe)}
    if experiment.data["races"] and seen.get("unplaced") and not result.races:
        result.unseen.add("races")
    if "shared" in watch.blind:
        # What seems never to have been written may have been written where nobody looked.
        result.uninitialised = []
        result.unseen.add("uninitialised")
    if result.end == "done" or seen.get("stuck"):
        result.arrivals = [
            Arrivals(Site(s.node, s.file), s.what, arrays["arrivals"][s.slot], arrays["blocks"])
            for s in watch.sites
            if s.slot >= 0 and s.what != "lanes" and arrays["arrivals"][s.slot].any()
        ] if "arrivals" in arrays else []  # fmt: skip
    else:
        result.unseen |= {"arrivals", "divergent"}
    for i, (name, buffer) in enumerate(experiment.buffers.items()):
        result.buffers[name] = _state(buffer, i + 1, arrays)
    blind = "outside" in watch.blind or any(f"low {name}" not in arrays for name in experiment.buffers)
    if result.end == "no-end" or (experiment.data["reads"] and blind):
        result.unseen.add("buffers")
    if result.end != "done" or seen.get("lost"):
        # It was stopped, or some places told so much that nothing more could be kept: there may be others.
        result.unseen |= {"outside", "absent", "wraps", "misaligned", *_SHARED}
    return result


def _array(site: Any) -> tuple[Obj, int]:
    """The shared array of a site, and the size of its elements."""
    obj = next(iter(site.objects))
    element = obj.element
    while isinstance(element, Array):
        element = element.element
    return obj, max(1, element.size or 1) if element is not None else 1


def _state(buffer: Buffer, number: int, arrays: Mapping[str, Any]) -> BufferState:
    size = (buffer.element.size or 1) * buffer.extent
    obj = Object(buffer.name, "global", buffer.element, size, number)
    obj.fill = buffer.fill
    for key in [k for k in arrays if k.partition(" ")[2].partition(" ")[0] == buffer.name]:
        what, _, rest = key.partition(" ")
        page_number = int(rest.partition(" ")[2] or 0)
        page = obj.pages.get(page_number)
        if page is None:
            page = obj.pages[page_number] = Page(
                min(_PAGE, size - page_number * _PAGE) if obj.paged else size, obj.granule
            )
        values = arrays[key]
        if what == "data":
            page.data[: len(values)] = values
        elif what in ("first", "second", "low", "high"):
            full = np.full(page.granules, -1, np.int64)
            full[: len(values)] = values[: page.granules]
            setattr(page, what, full)
    for page in obj.pages.values():
        if page.second is not None and page.first is not None:
            page.second = np.where(page.second == page.first, -1, page.second)
    return BufferState(buffer, obj)


class Gpu:
    """The backend. One child process serves experiments until it hangs, faults or dies; then another does.

    UsageError (one line) where nothing can be run here.
    """

    grade: Literal["simulated", "measured"] = "measured"

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="cudalint-")
        self._child: subprocess.Popen[str] | None = None
        self._lines: queue.Queue[str | None] = queue.Queue()
        self.about: dict[str, Any] = {}
        self.starts = 0
        self._start()

    @property
    def name(self) -> str:
        return f"{self.about['gpu']}, CUDA {self.about['cuda']}"

    def _start(self) -> None:
        from cudalint.confirm.repro import script

        path = os.path.join(self._folder.name, "child.py")
        if not os.path.exists(path):
            with open(path, "w", encoding="utf-8") as file:
                file.write(script(None))
        self.starts += 1
        self._lines = queue.Queue()
        self._child = subprocess.Popen(
            [sys.executable, "-u", path, "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True, encoding="utf-8",
        )  # fmt: skip
        threading.Thread(target=self._listen, args=(self._child, self._lines), daemon=True).start()
        answer = self._answer(_START)
        if answer is None or "ready" not in answer:
            self.close()
            raise UsageError(answer["cannot"] if answer else "CuPy did not start")
        self.about = answer["ready"]

    @staticmethod
    def _listen(child: subprocess.Popen[str], lines: queue.Queue[str | None]) -> None:
        assert child.stdout is not None
        for line in child.stdout:
            lines.put(line)
        lines.put(None)

    def _answer(self, seconds: float) -> dict[str, Any] | None:
        """The child's next answer; None where it ends or is too late."""
        try:
            line = self._lines.get(timeout=seconds)
        except queue.Empty:
            return None
        found: dict[str, Any] | None = json.loads(line) if line else None
        return found

    def close(self) -> None:
        """End the child, and wait until its GPU context is gone."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            self._child = None

    def run(
        self, bench: Bench, plan: Plan, trial: Trial, setups: list[Setup], until: float | None
    ) -> list[Observation]:
        """Run the launches, each of them whole."""
        del trial
        return [*self.ask(Experiment(bench.kernel, setups, plan.watch), until)]

    def ask(self, experiment: Experiment, until: float | None = None, *, watched: bool = True) -> list[Measured]:
        """Run an experiment; without ``watched`` its source as it is alone."""
        if self._child is None:
            self._start()
        assert self._child is not None
        assert self._child.stdin is not None
        seconds = _RUN if until is None else max(1.0, min(_RUN, until - time.monotonic()))
        path = os.path.join(self._folder.name, "answer.npz")
        request: dict[str, Any] = {"experiment": experiment.request(), "seconds": seconds, "file": path}
        if not watched:
            del request["experiment"]["watched"]
        try:
            self._child.stdin.write(json.dumps(request) + "\n")
            self._child.stdin.flush()
        except OSError:
            self.close()
            return self.ask(experiment, until, watched=watched)
        answer = self._answer(_COMPILE + 6 * seconds * len(experiment.setups))
        if answer is None:
            status = self._child.poll()
            self.close()
            lost = Measured()
            lost.end = "inconclusive" if status is not None else "no-end"
            lost.reason = f"the child process ended with {status}" if status is not None else "does not answer"
            lost.unseen = {"buffers", "outside", "arrivals", "absent", "wraps", "misaligned", *_SHARED}
            return [lost]
        with np.load(path) as loaded:
            arrays = {key: loaded[key] for key in loaded.files}
        found = []
        for number, seen in enumerate(answer["seen"]):
            mine = {k.partition(" ")[2]: v for k, v in arrays.items() if k.partition(" ")[0] == str(number)}
            found.append(measured(experiment, number, seen, mine))
        if any(seen.get("poisoned") for seen in answer["seen"]):
            self.close()
        if found[0].end == "fault" and found[0].outside and "watched" in request["experiment"]:
            # The watched run was stopped at an access far outside: what the hardware does is seen without it.
            plain = self.ask(experiment, until, watched=False)[0]
            found[0].end, found[0].reason = plain.end, plain.reason
        return found


def available() -> str | None:
    """Why there is no CuPy to try; None where there is one."""
    return None if importlib.util.find_spec("cupy") is not None else "CuPy is not installed"


__all__ = ["Experiment", "Gpu", "Measured", "available", "measured"]
