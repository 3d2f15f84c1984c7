# The runner: the same text in every script. It needs NumPy and CuPy only.
#
# A kernel runs once with its source edited so that every access, arrival and wrap is told (the watched run), and
# twice as it is, with different values in the guard zones and in memory that nobody has written.

from __future__ import annotations

import base64
import contextlib
import ctypes
import itertools
import json
import os
import sys
import time
import zlib
from typing import Any

GUARD = 1 << 16  # bytes before and after each buffer
DENSE, PAGE = 1 << 24, 1 << 20  # larger buffers are shown in pages, of which those that tell are kept
ROOM = 1 << 18  # events told
KEPT = 1 << 8  # events of one kind at one place that are looked at
SITE = 64  # counters of a site: one for each kind of event, four for the kind that tells of four things
COUNTED = 1 << 22  # arrivals shown for all blocks
HELD = 1 << 30  # bytes of GPU memory kept from one experiment for the next
SHADOW = 1 << 31  # bytes to note accesses to shared memory in
OPTIONS = ("-std=c++17", "--device-int128", "-w")
MASK = (1 << 64) - 1
KINDS = {0: "load", 1: "store", 2: "atomic", 4: "load", 5: "store", 6: "atomic"}
RACES = (30, 31, 33, 34, 35, 36, 37)
HOW = "pip install cupy-cuda13x (or cupy-cuda12x, as the driver's CUDA version is)"


class Cannot(Exception):
    """Nothing can be run here; the text is one line that says what to do."""


def load() -> Any:
    """CuPy, once it has been shown to work."""
    try:
        import numpy  # noqa: F401  # whether it is there, before CuPy asks for it
    except ImportError as fault:
        raise Cannot("NumPy is missing: pip install numpy") from fault
    try:
        import cupy
    except ImportError as fault:
        what = "is missing" if getattr(fault, "name", "") == "cupy" else f"does not load ({first_line(fault)})"
        raise Cannot(f"CuPy {what}: {HOW}") from fault
    try:
        count = cupy.cuda.runtime.getDeviceCount()
        if count:
            cupy.cuda.runtime.memGetInfo()
    except Exception as fault:
        words = first_line(fault)
        if "InsufficientDriver" in words:
            version = cupy.cuda.runtime.runtimeGetVersion()
            wanted = f"CUDA {version // 1000}.{version % 1000 // 10}"
            raise Cannot(f"no NVIDIA driver, or one too old for CuPy's {wanted}: update the driver or {HOW}") from fault
        raise Cannot(f"no GPU that works ({words})") from fault
    if not count:
        raise Cannot("no GPU")
    return cupy


def first_line(fault: BaseException) -> str:
    return (str(fault).strip() or type(fault).__name__).splitlines()[0]


def device(cupy: Any) -> dict[str, Any]:
    """What the results were found on."""
    properties = cupy.cuda.runtime.getDeviceProperties(0)
    driver, runtime = cupy.cuda.runtime.driverGetVersion(), cupy.cuda.runtime.runtimeGetVersion()
    free, total = cupy.cuda.runtime.memGetInfo()
    return {
        "gpu": properties["name"].decode(), "capability": f"{properties['major']}.{properties['minor']}",
        "driver": f"CUDA {driver // 1000}.{driver % 1000 // 10}",
        "cuda": f"{runtime // 1000}.{runtime % 1000 // 10}", "cupy": cupy.__version__, "free": free, "total": total,
    }  # fmt: skip


# --- what memory holds --------------------------------------------------------------------------


def hashed(xp: Any, seed: int, index: Any) -> Any:
    """A 64-bit hash of (seed, index): the same on every backend."""
    x = index.astype(xp.uint64) + xp.uint64((seed + 1) & MASK)
    x = x * xp.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> xp.uint64(shift))) * xp.uint64(factor)
    return x ^ (x >> xp.uint64(31))


def hash_values(xp: Any, seed: int, index: Any, dtype: Any, bounds: Any) -> Any:
    bits = hashed(xp, seed, index)
    if dtype.kind == "f":
        unit = (bits >> xp.uint64(40)).astype(xp.float64) / float(1 << 24)
        lo, hi = bounds or (-1.0, 1.0)
        return (lo + unit * (hi - lo)).astype(dtype)
    if dtype.kind == "b":
        return (bits >> xp.uint64(63)).astype(bool)
    lo, hi = bounds or ((-100, 101) if dtype.kind == "i" else (0, 101))
    return (int(lo) + (bits >> xp.uint64(11)).astype(xp.int64) % max(1, int(hi) - int(lo))).astype(dtype)


def sentinel(dtype: Any, other: bool) -> Any:
    """What stands in memory that the kernel is to write; ``other`` for the second run."""
    import numpy as np

    if dtype.kind == "f" and not other:
        return dtype.type("nan")
    if dtype.kind == "b":
        return np.bool_(not other)
    pattern = b"\x5e\x71\xa6\x3d\x92\x4f\xc8\x17" if other else b"\xa7\x5b\xc3\x95\x6d\xe1\x3a\xb9"
    return np.frombuffer(pattern[: dtype.itemsize], dtype)[0]


def fill(cupy: Any, target: Any, spec: dict[str, Any], other: bool) -> None:
    """Fill a buffer (bytes on the GPU). ``parts`` are its scalars: offset, dtype, how many in a row."""
    import numpy as np

    how = spec["fill"]
    if isinstance(how, dict):
        raw = zlib.decompress(base64.b64decode(how["base64"]))
        target[: len(raw)] = cupy.asarray(np.frombuffer(raw, np.uint8))
        return
    width, extent = spec["width"], spec["extent"]
    for number, (offset, name, count) in enumerate(spec["parts"]):
        dtype = np.dtype(name.replace("bf16", "u2"))
        step = max(1, (1 << 22) // count)
        for start in range(0, extent, step):
            stop = min(extent, start + step)
            index = cupy.arange(start * count, stop * count, dtype=np.int64)
            kind = how[0] if isinstance(how, list) else how
            real = np.dtype("f4") if name == "bf16" else dtype
            if spec.get("pointer"):
                values = cupy.zeros(len(index), dtype)
            elif kind == "hash":
                bounds = how[1:] if isinstance(how, list) else None
                values = hash_values(cupy, spec["seed"] + number * 7919, index, real, bounds)
            elif kind == "nan":
                values = cupy.full(len(index), sentinel(real, other), real)
            elif kind == "index":
                values = index.astype(real)
            else:
                values = cupy.full(len(index), how, real)
            if name == "bf16":
                values = (values.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
            place = target[start * width : stop * width].reshape(stop - start, width)
            place[:, offset : offset + count * dtype.itemsize] = values.view(np.uint8).reshape(stop - start, -1)


class Memory:
    """The buffers of an experiment on the GPU, each between two guard zones."""

    def __init__(self, cupy: Any, specs: dict[str, Any], guard: int) -> None:
        self.cupy, self.specs, self.guard = cupy, specs, guard
        self.whole = {n: cupy.empty(bytes_of(s) + 2 * guard, "u1") for n, s in specs.items()}
        self.inside = {n: w[guard : guard + bytes_of(specs[n])] for n, w in self.whole.items()}

    def fill(self, other: bool) -> None:
        for name, spec in self.specs.items():
            guard = 0x5A if other else 0x3C
            self.whole[name][: self.guard] = guard
            self.whole[name][self.guard + bytes_of(spec) :] = guard
            fill(self.cupy, self.inside[name], spec, other)

    def address(self, name: str) -> int:
        return int(self.inside[name].data.ptr)

    def spilled(self, other: bool) -> list[tuple[str, int]]:
        """The first element outside of each buffer whose guard zone has changed."""
        found = []
        for name, spec in self.specs.items():
            guard = 0x5A if other else 0x3C
            whole, size, width = self.whole[name], bytes_of(spec), spec["width"]
            for zone, start in ((whole[self.guard + size :], size), (whole[: self.guard], -self.guard)):
                changed = self.cupy.flatnonzero(zone != guard)
                if len(changed):
                    found.append((name, (start + int(changed[0 if start > 0 else -1])) // width))
        return found


def bytes_of(spec: dict[str, Any]) -> int:
    return int(spec["extent"]) * int(spec["width"])


# --- one run ------------------------------------------------------------------------------------


class Hang(Exception):
    pass


class Fault(Exception):
    pass


class Refused(Exception):
    pass


def compiled(cupy: Any, source: str, name: str, more: tuple[str, ...] = ()) -> Any:
    """The module of a source; CompileException has NVRTC's words."""
    include = os.path.join(next(iter(cupy.__path__)), "_core", "include", "cupy", "_cccl")
    places = tuple(f"-I{os.path.join(include, x)}" for x in ("cub", "libcudacxx", "thrust"))
    own = tuple(f"-I{x}" for x in ("/usr/local/cuda/include", "/usr/local/cuda/include/cccl") if os.path.isdir(x))
    return cupy.RawModule(code=source, options=(*OPTIONS, *more, *places, *own), name_expressions=(name,))


def packed(arguments: list[Any], memory: Memory) -> tuple[Any, list[Any]]:
    """The arguments as the driver takes them: an array of addresses, and what has to be kept alive meanwhile."""
    import numpy as np

    kept: list[Any] = []
    for size, fields in arguments:
        raw = bytearray(size)
        for offset, dtype, value in fields:
            if dtype == "buffer":
                dtype, value = "u8", memory.address(value)
            elif dtype == "view":
                dtype, value = "u8", memory.address(value[0]) + value[1]
            elif dtype == "null":
                dtype, value = "u8", 0
            number = np.array([value if value is not None else 0])
            with np.errstate(all="ignore"):
                data = number.astype(np.dtype(dtype.replace("bf16", "f4")))
            if dtype == "bf16":
                data = (data.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
            raw[offset : offset + data.itemsize] = data.tobytes()
        kept.append((ctypes.c_char * max(1, size)).from_buffer_copy(bytes(raw) or b"\0"))
    return (ctypes.c_void_p * max(1, len(kept)))(*[ctypes.addressof(x) for x in kept]), kept


def launch(
    cupy: Any, module: Any, experiment: dict[str, Any], how: dict[str, Any], memory: Memory, until: float
) -> None:
    """Launch through the driver and wait. Raises Refused, Fault or Hang."""
    kernel = module.get_function(experiment["kernel"])
    shared = how["shared"]
    stream = cupy.cuda.Stream(non_blocking=True)
    parameters, kept = packed(experiment["arguments"], memory)
    dims = [int(x) & 0xFFFFFFFF for x in (*how["grid"], *how["block"])]
    cupy.cuda.runtime.deviceSynchronize()
    try:
        if shared > 48 << 10:
            kernel.max_dynamic_shared_size_bytes = shared
        address = ctypes.addressof(parameters)
        if experiment.get("cooperative"):
            cupy.cuda.driver.launchCooperativeKernel(kernel.kernel.ptr, *dims, shared, stream.ptr, address)
        else:
            cupy.cuda.driver.launchKernel(kernel.kernel.ptr, *dims, shared, stream.ptr, address, 0)
    except Exception as fault:
        raise Refused(first_line(fault)) from fault
    event = cupy.cuda.Event(disable_timing=True)
    event.record(stream)
    pause = 0.0001
    while (status := cupy.cuda.runtime.eventQuery(event.ptr)) == 600:
        if time.monotonic() > until:
            raise Hang
        time.sleep(pause)
        pause = min(0.02, pause * 1.5)
    if status:
        try:
            cupy.cuda.runtime.deviceSynchronize()
        except Exception as fault:
            raise Fault(first_line(fault)) from fault
        raise Fault(f"error {status}")
    del kept


def constants(cupy: Any, module: Any, experiment: dict[str, Any], other: bool) -> None:
    """Fill the ``__constant__`` variables that the host would have filled."""
    for name, spec in experiment.get("constants", {}).items():
        with contextlib.suppress(Exception):  # not used, so not there
            place = module.get_global(name)
            fill(cupy, cupy.ndarray((bytes_of(spec),), "u1", place), spec, other)


#: What the variables of a source held when its module was loaded.
LOADED: dict[tuple[str | None, str], Any] = {}


def variable(cupy: Any, module: Any, name: str, spec: dict[str, Any]) -> Any:
    """The bytes of a ``__device__`` variable; None where the module does not know it by its name."""
    try:
        return cupy.ndarray((bytes_of(spec),), "u1", module.get_global(name))
    except Exception:
        return None


def variables(cupy: Any, module: Any, source: str | None, experiment: dict[str, Any]) -> None:
    """Give the ``__device__`` variables what they held first: a module is loaded once, and runs share it."""
    for name, spec in experiment.get("variables", {}).items():
        place = variable(cupy, module, name, spec)
        if place is not None:
            place[:] = LOADED.setdefault((source, name), place.copy())


class Watched:
    """The tables of a watched run."""

    def __init__(self, cupy: Any, module: Any, experiment: dict[str, Any], how: dict[str, Any], memory: Memory) -> None:
        import numpy as np

        self.cupy, self.experiment, self.memory = cupy, experiment, memory
        specs = {**memory.specs, **experiment.get("variables", {})}
        names = list(specs)
        number: dict[str | None, int] = {None: -1, "?": -2, **{n: i for i, n in enumerate(names)}}
        # Of each buffer a thread for each granule: two that wrote it, the lowest and the highest that read it.
        tables: list[dict[str, Any]] = [{}, {}, {}, {}]
        self.first, self.second, self.low, self.high = tables
        self.threads = threads = threads_of(how)
        number_of = np.int32 if threads < 1 << 31 else np.int64
        spans = np.zeros((max(1, len(names)), 10), np.uint64)
        self.met: dict[str, Any] = {}
        for i, name in enumerate(names):
            spec, mine = specs[name], name in memory.specs
            place = memory.inside[name] if mine else variable(cupy, module, name, spec)
            if place is None:
                number[name] = -1
                continue
            granules = -(-bytes_of(spec) // spec["granule"])
            read = mine and experiment.get("reads") and small(spec)
            for of, asked in zip(tables, (spec["written"], spec["written"], read, read)):
                if asked:
                    # All bits set: none, and the highest number where it has no sign.
                    of[name] = cupy.full(granules, -1, number_of)
            if experiment.get("races") and bytes_of(spec) <= DENSE:
                self.met[name] = cupy.zeros(bytes_of(spec) // 4 * 4 + 4, np.uint64)
            shadow = self.met[name].data.ptr if name in self.met else 0
            sizes = [bytes_of(spec), spec["width"], spec["granule"], memory.guard if mine else 0]
            told = [of[name].data.ptr if name in of else 0 for of in tables]
            spans[i] = [place.data.ptr, *sizes, *told, shadow]
        self.unplaced = any(number[name] < 0 for name in names)
        slots = experiment["slots"]
        # On the host's side, so that what was told outlives a fault.
        self.pinned = cupy.cuda.alloc_pinned_memory(ROOM * 32)
        self.events = np.frombuffer(self.pinned, np.int64, ROOM * 4).reshape(ROOM, 4)
        self.events[:] = 0
        sites = max(1, len(experiment["sites"]))
        self.logged = cupy.zeros(1 + sites * SITE, np.uint32)
        self.arrivals = cupy.zeros(max(1, slots * threads), np.uint32)
        self.gone = cupy.zeros(threads if experiment["lanes"] else 1, np.uint8)
        self.kept = [
            cupy.asarray(spans),
            cupy.asarray(np.array([number[x] for x in experiment["sites"]] or [-1], np.int32)),
            cupy.zeros(1 << 16, np.uint8),
            cupy.zeros(max(1, experiment["arrays"]) * 2, np.uint64),
        ]
        each = max(1, threads_of({"grid": [1, 1, 1], "block": how["block"]}))
        self.words = (module.get_function(experiment["kernel"]).shared_size_bytes + how["shared"] + 2048) // 4
        size = threads // each * self.words * 5
        free = cupy.cuda.runtime.memGetInfo()[0]
        self.shadowed = bool(experiment["shared"]) and size * 8 < min(SHADOW, free // 4)
        self.passed = cupy.zeros(threads * 2 if experiment["slots"] or self.shadowed or self.met else 2, np.uint32)
        self.shadow = cupy.zeros(size if self.shadowed else 1, np.uint64)
        parts = [
            self.kept[0].data.ptr, self.kept[1].data.ptr, self.events.ctypes.data, self.logged.data.ptr,
            self.arrivals.data.ptr, self.gone.data.ptr, self.kept[2].data.ptr, self.passed.data.ptr,
            self.shadow.data.ptr if self.shadowed else 0, self.kept[3].data.ptr,
        ]  # fmt: skip
        share = max(KEPT, ROOM // (4 * sites))
        table = np.array([*parts, threads, ROOM, len(names), self.words, number_of is np.int32, share], np.int64)
        place = module.get_global("cudalint_watch")
        cupy.ndarray((len(table),), np.int64, place)[:] = cupy.asarray(table)

    def told(self) -> tuple[Any, bool]:
        """Events in the order of threads: kind, site, thread, place, value; and whether some were lost."""
        import numpy as np

        raw = self.events[(self.events[:, 0] & 0xFFFFFFFF) > 0].copy()
        raw[:, 0] -= 1
        heads = (
            np.ascontiguousarray(raw[:, 0]).view(np.int32).reshape(-1, 2) if len(raw) else np.zeros((0, 2), np.int32)
        )
        events = np.column_stack([heads, raw[:, 1:4]]) if len(raw) else np.zeros((0, 5), np.int64)
        events = events[np.argsort(events[:, 2], kind="stable")]
        # Of a collective each event says of what kind it is by its value.
        same = np.column_stack([events[:, :2], np.where(events[:, 0] == 10, events[:, 4], 0)])
        _, group = np.unique(same, axis=0, return_inverse=True)
        group = group.reshape(-1)
        kept = [np.flatnonzero(group == k)[:KEPT] for k in range(group.max(initial=-1) + 1)]
        return events[np.sort(np.concatenate(kept))] if kept else events, len(raw) >= ROOM

    def counts(self, each: int, stream: Any = None) -> tuple[Any, Any]:
        """Arrivals as [slot, block, thread], and the blocks that are in it: all, or those that tell."""
        import numpy as np

        slots = self.experiment["slots"]
        blocks = self.threads // each
        whole = self.arrivals[: slots * self.threads].reshape(slots, blocks, each)
        if whole.size <= COUNTED or stream is not None:
            return whole.get(stream=stream), np.arange(blocks)
        uneven = (whole.max(axis=2) != whole.min(axis=2)).any(axis=0)
        chosen = np.unique([*self.cupy.flatnonzero(uneven)[:64].get(), *range(64), *range(blocks - 64, blocks)])
        return whole[:, chosen].get(), chosen


def threads_of(how: dict[str, Any]) -> int:
    total: int = 1
    for item in (*how["grid"], *how["block"]):
        total *= max(0, item)
    return max(1, total)


def needed(experiment: dict[str, Any], how: dict[str, Any]) -> int:
    """Bytes of GPU memory that a run takes."""
    total = ROOM * 32 + (1 << 28)
    threads = threads_of(how)
    for spec in experiment["buffers"].values():
        size = bytes_of(spec)
        total += size + 2 * GUARD + min(size, DENSE)
        tables = bool(spec["written"]) + bool(experiment.get("reads") and small(spec))
        total += tables * (size // spec["granule"]) * (8 if threads < 1 << 31 else 16)
    return total + threads * (4 * int(experiment["slots"]) + 8 * bool(experiment["slots"]) + int(experiment["lanes"]))


def telling(first: Any, second: Any, each: int) -> set[int]:
    """The pages of a large buffer (``each`` granules a page) that tell: the ends, where it begins or ceases to be
    written, where several threads wrote."""
    import numpy as np

    pages = -(-len(first) // each)
    share, several = np.zeros(pages), np.zeros(pages, bool)
    for start in range(0, pages, 64):
        a, b = first[start * each : (start + 64) * each], second[start * each : (start + 64) * each]
        whole = len(a) // each
        for k, size in ((0, whole), (whole, int(len(a) > whole * each))):
            if size:
                part = a[k * each : (k + size) * each].reshape(size, -1)
                other = b[k * each : (k + size) * each].reshape(size, -1)
                share[start + k : start + k + size] = (part >= 0).mean(axis=1).get()
                both = (other >= 0) & (other != part)
                several[start + k : start + k + size] = both.any(axis=1).get()
    found = {0, 1, pages - 2, pages - 1}
    partial = np.flatnonzero((share > 0) & (share < 1))
    edges = np.flatnonzero(np.diff(share > 0))
    for places in (partial, edges, edges + 1, np.flatnonzero(several)):
        found.update(int(x) for x in [*places[:4], *places[-4:]])
    return {p for p in found if 0 <= p < pages}


def observe(cupy: Any, experiment: dict[str, Any], how: dict[str, Any], seconds: float, pages: Any = None) -> Any:
    """One launch: (what it showed, arrays by name, the pages that tell)."""
    import numpy as np

    seen: dict[str, Any] = {"end": "done", "notes": []}
    arrays: dict[str, Any] = {}
    chosen: dict[str, set[int]] = {}
    need, free = needed(experiment, how), cupy.cuda.runtime.memGetInfo()[0]
    if need > free // 2:
        cupy.get_default_memory_pool().free_all_blocks()
        free = cupy.cuda.runtime.memGetInfo()[0]
    grid, block = how["grid"], how["block"]
    legal = all(0 < g <= m for g, m in zip(grid, (2147483647, 65535, 65535))) and threads_of(how) > 0
    legal = legal and min(block) > 0 and block[0] * block[1] * block[2] <= 1024
    if need > free * 0.95 and legal:
        return {**seen, "end": "inconclusive", "reason": f"needs {need} bytes of GPU memory, {free} are free"}, {}, {}
    memory = Memory(cupy, experiment["buffers"], experiment.get("guard", GUARD))
    each = max(1, block[0] * block[1] * block[2])
    source, watched = experiment["source"], experiment.get("watched")
    try:
        plain = compiled(cupy, source, experiment["kernel"])
        plain.get_function(experiment["kernel"])
    except Exception as fault:
        return {**seen, "end": "inconclusive", "reason": f"does not compile: {compiler_says(fault)}"}, {}, {}
    module = None
    if watched is not None and legal:
        try:
            # So few registers that a block of 1,024 threads has room.
            module = compiled(cupy, watched, experiment["kernel"], ("--maxrregcount=64",))
            module.get_function(experiment["kernel"])
        except Exception as fault:
            seen["notes"].append(f"the edited source does not compile: {compiler_says(fault)}")
            module = None
    seen["watched"], seen["shadowed"] = module is not None, False
    table = None
    if module is not None:
        memory.fill(False)
        constants(cupy, module, experiment, False)
        variables(cupy, module, watched, experiment)
        table = Watched(cupy, module, experiment, how, memory)
        seen["shadowed"], seen["unplaced"] = table.shadowed, table.unplaced
        try:
            launch(cupy, module, experiment, how, memory, time.monotonic() + seconds)
        except Refused as fault:
            return {**seen, "end": "refused", "launch_error": str(fault)}, {}, {}
        except Fault as fault:
            arrays["events"], seen["lost"] = table.told()
            return {**seen, "end": "fault", "reason": str(fault), "poisoned": True}, arrays, {}
        except Hang:
            # Copies still work on another stream: who waits where can be seen.
            other = cupy.cuda.Stream(non_blocking=True)
            before, blocks = table.counts(each, other)
            other.synchronize()
            before = before.copy()
            time.sleep(0.3)
            arrays["arrivals"], arrays["blocks"] = table.counts(each, other)[0], blocks
            arrays["events"], _ = table.told()
            seen["stuck"] = bool((before == arrays["arrivals"]).all())
            reason = f"did not end within {seconds:g} s"
            return {**seen, "end": "no-end", "reason": reason, "poisoned": True}, arrays, {}
        arrays["events"], seen["lost"] = table.told()
        if experiment["slots"]:
            arrays["arrivals"], arrays["blocks"] = table.counts(each)
        for what, of in (("low", table.low), ("high", table.high)):
            arrays.update({f"{what} {name}": threads.get().astype(np.int64) for name, threads in of.items()})
        for name in table.first:
            size = bytes_of(memory.specs[name])
            if size <= DENSE:
                arrays[f"first {name}"] = table.first[name].get().astype(np.int64)
                arrays[f"second {name}"] = table.second[name].get().astype(np.int64)
                continue
            per = PAGE // memory.specs[name]["granule"]
            chosen[name] = telling(table.first[name], table.second[name], per)
            for page in (pages or chosen).get(name, chosen[name]):
                part = slice(page * per, (page + 1) * per)
                arrays[f"first {name} {page}"] = table.first[name][part].get().astype(np.int64)
                arrays[f"second {name} {page}"] = table.second[name][part].get().astype(np.int64)
    runs = []
    untouched: dict[str, Any] = {}
    for other in (False, True) if any(small(s) for s in memory.specs.values()) else (False,):
        module = compiled(cupy, source, experiment["kernel"])
        memory.fill(other)
        constants(cupy, module, experiment, other)
        variables(cupy, module, source, experiment)
        before = {n: memory.inside[n].copy() for n, s in memory.specs.items() if s["fill"] == "nan" and small(s)}
        try:
            launch(cupy, module, experiment, how, memory, time.monotonic() + seconds)
        except Refused as fault:
            return {**seen, "end": "refused", "launch_error": str(fault)}, {}, {}
        except Fault as fault:
            return {**seen, "end": "fault", "reason": str(fault), "poisoned": True}, arrays, chosen
        except Hang:
            reason = f"did not end within {seconds:g} s"
            # The watched run came to its end: its arrivals are all there are.
            return {**seen, "end": "no-end", "reason": reason, "poisoned": True, "stuck": True}, arrays, chosen
        seen.setdefault("spilled", [])
        seen["spilled"] += [x for x in memory.spilled(other) if x not in seen["spilled"]]
        runs.append({n: memory.inside[n].get() for n, s in memory.specs.items() if small(s)})
        for name, was in before.items():
            width = memory.specs[name]["width"]
            same = (memory.inside[name] == was).reshape(-1, width).all(axis=1).get()
            untouched[name] = same & untouched[name] if name in untouched else same
        if not other:
            for name, spec in memory.specs.items():
                if small(spec):
                    arrays[f"data {name}"] = runs[0][name]
                else:
                    for page in (pages or chosen).get(name, chosen.get(name, {0})):
                        part = slice(page * PAGE, min((page + 1) * PAGE, bytes_of(spec)))
                        arrays[f"data {name} {page}"] = memory.inside[name][part].get()
    for name, same in untouched.items():
        arrays[f"untouched {name}"] = same
        key = f"first {name}"
        if key in arrays:
            # The run that nothing was added to has the last word on what is written.
            each_granule = memory.specs[name]["width"] // memory.specs[name]["granule"] or 1
            told = (arrays[key][: len(same) * each_granule].reshape(len(same), -1) >= 0).any(axis=1)
            if (told == same).any():
                count, at = int((told == same).sum()), int(np.flatnonzero(told == same)[0])
                seen["notes"].append(f"the two runs differ over who writes {count} elements of {name}, first {at}")
                missing = np.flatnonzero(~told & ~same)
                arrays[key].reshape(-1)[missing * each_granule] = 0
    seen["differ"] = [] if len(runs) < 2 else differing(memory.specs, runs, untouched, experiment.get("unordered", []))
    return seen, arrays, chosen


def small(spec: dict[str, Any]) -> bool:
    return bytes_of(spec) <= DENSE


def differing(specs: dict[str, Any], runs: list[Any], untouched: dict[str, Any], unordered: list[str]) -> list[Any]:
    """Elements that came out otherwise where only guard zones and sentinels were other ones."""
    import numpy as np

    found = []
    for name, spec in specs.items():
        if name not in runs[0] or name in unordered or len(spec["parts"]) != 1:
            continue
        offset, kind, count = spec["parts"][0]
        if offset or np.dtype(kind.replace("bf16", "u2")).itemsize * count != spec["width"]:
            continue
        a, b = (r[name].view(np.dtype(kind.replace("bf16", "u2"))) for r in runs)
        with np.errstate(all="ignore"):
            close = np.isclose(a, b, rtol=1e-3, atol=1e-5, equal_nan=True) if a.dtype.kind == "f" else a == b
        wrong = ~close.reshape(-1, count).all(axis=1)
        if name in untouched:
            wrong &= ~untouched[name]
        if wrong.any():
            found.append([name, int(np.flatnonzero(wrong)[0]), int(wrong.sum())])
    return found


def compiler_says(fault: BaseException) -> str:
    """The first error of NVRTC, without the name of the temporary file."""
    import re

    lines = [x for x in str(fault).splitlines() if re.search(r"\berror\b", x)] or [first_line(fault)]
    line = re.sub(r"^.*?([\w.-]+\(\d+\): )", r"\1", lines[0].strip())
    missing = re.search(r"cannot open source file \"([^\"]+)\"", line)
    if missing:
        return f"the header {missing[1]} is missing: install the CUDA toolkit, or pip install 'cupy-cuda13x[ctk]'"
    return line[:300]


def experiment_run(cupy: Any, experiment: dict[str, Any], seconds: float) -> list[tuple[dict[str, Any], Any]]:
    """All launches of an experiment, until one of them cannot go on."""
    found: list[tuple[dict[str, Any], Any]] = []
    chosen: dict[str, set[int]] = {}
    for how in experiment["launches"]:
        seen, arrays, pages = observe(cupy, experiment, how, seconds)
        found.append((seen, arrays))
        for name, each in pages.items():
            chosen.setdefault(name, set()).update(each)
        if seen["end"] != "done":
            return found
    if len(found) > 1 and chosen:
        found = [observe(cupy, experiment, how, seconds, chosen)[:2] for how in experiment["launches"]]
    return found


# --- what is wrong ------------------------------------------------------------------------------


def judged(experiment: dict[str, Any], found: list[tuple[dict[str, Any], Any]]) -> list[str]:
    """The faults that an experiment looks for and that its runs show, in words."""
    import numpy as np

    wanted = set(experiment["judge"])
    (seen, arrays), reference = found[0], found[1][1] if len(found) > 1 else None
    block = experiment["launches"][0]["block"]
    each = max(1, block[0] * block[1] * block[2])
    faults: list[str] = []

    def say(symptom: str, text: str) -> None:
        if symptom in wanted:
            faults.append(f"{symptom}: {text}")

    if seen["end"] == "refused":
        say("refused", f"the launch is refused: {seen['launch_error']}")
    if seen["end"] == "no-end":
        say("hang", f"the kernel {seen['reason']}")
    if seen["end"] == "fault":
        say("outside", f"the GPU says: {seen['reason']}")
    places = experiment.get("places")
    lines = experiment["lines"]
    for kind, site, thread, at, value in arrays.get("events", np.zeros((0, 5))).tolist():
        who = f"line {lines[site]}: thread {thread % each} of block {thread // each}"
        if kind in (0, 1, 2):
            name = [*experiment["buffers"], *experiment.get("variables", {})][value]
            say("outside", f"{who}: {KINDS[kind]} at element {at} of {name}")
        elif kind in (4, 5, 6):
            say("outside-shared", f"{who}: {KINDS[kind]} at byte {at} of a shared array of {value} bytes")
        elif kind == 10 and (value & 1) == (value >> 1 & 1):
            say("absent-lane", f"{who} meets lane {at}, which {'has exited' if value & 2 else 'its mask lacks'}")
        elif kind in RACES:
            say("race", f"{who} and thread {value} of the block meet at byte {at}")
        elif kind == 50:
            say("misaligned", f"{who} accesses {value} bytes at byte {at}")
        elif kind == 40:
            say("stale-read", f"{who} reads byte {at} of a shared array, which nothing has written")
        elif kind == 41:
            say("stale-read", f"{who} reads a variable that nothing has set")
        elif kind in (20, 21, 22) and (places is None or site in places):
            say("wrap", f"{who}: a value wraps to {value}")
    if "arrivals" in arrays and (seen["end"] == "done" or seen.get("stuck")):
        for slot, line in experiment["barriers"]:
            counts = arrays["arrivals"][slot]
            uneven = np.flatnonzero(counts.max(axis=1) != counts.min(axis=1))
            if len(uneven):
                row = counts[uneven[0]]
                few = int((row < row.max()).sum())
                number = int(arrays["blocks"][uneven[0]])
                who = f"1 thread of block {number} does" if few == 1 else f"{few} threads of block {number} do"
                say("divergent-barrier", f"line {line}: {who} not arrive as the others do")
    if seen["end"] == "done":
        for key in [k for k in arrays if k.startswith("first ")]:
            name, _, page = key[6:].partition(" ")
            spec = experiment["buffers"][name]
            start = int(page) * PAGE // spec["granule"] if page else 0
            per = spec["width"] // spec["granule"] or 1
            first, second = arrays[key], arrays[key.replace("first", "second", 1)]
            if reference is not None and key in reference:
                gaps = np.flatnonzero((reference[key] >= 0) & (first < 0))
                if len(gaps):
                    say("never-written", f"element {(start + int(gaps[0])) // per} of {name}, and {len(gaps) - 1} more")
            elif reference is None and name in experiment.get("whole", []):
                gaps = np.flatnonzero(first < 0)
                if len(gaps):
                    say("never-written", f"element {(start + int(gaps[0])) // per} of {name}, and {len(gaps) - 1} more")
            low, high = (arrays.get(f"{x} {key[6:]}") for x in ("low", "high"))
            if low is not None and high is not None:
                for writer, reader in itertools.product((first, second), (low, high)):
                    met = np.flatnonzero((writer >= 0) & (reader >= 0) & (writer // each != reader // each))
                    if len(met):
                        at = int(met[0])
                        text = f"thread {reader[at]} of the grid reads element {(start + at) // per} of {name}, which"
                        say("race", f"{text} thread {writer[at]}, of another block, writes")
                        break
            two = (second >= 0) & (second != first)
            if reference is not None and key in reference:
                other = reference[key.replace("first", "second", 1)]
                two &= ~((other >= 0) & (other != reference[key]))
            if two.any():
                at = int(np.flatnonzero(two)[0])
                text = f"element {(start + at) // per} of {name}, by threads {first[at]} and {second[at]} of the grid"
                say("written-twice", text)
            if reference is not None and f"data {name}" in reference and not page and len(spec["parts"]) == 1:
                kind = np.dtype(spec["parts"][0][1].replace("bf16", "u2"))
                a, b = arrays[f"data {name}"].view(kind), reference[f"data {name}"].view(kind)
                close = np.isclose(a, b, rtol=1e-3, atol=1e-4, equal_nan=True) if kind.kind == "f" else a == b
                if not close.all():
                    at = int(np.flatnonzero(~close)[0])
                    say("wrong-value", f"{name}[{at}] is {a[at]}, and {b[at]} in the launch to compare with")
    return list(dict.fromkeys(faults))


def run_script(experiment: dict[str, Any]) -> int:
    """Run one experiment and say what it shows. 1: the fault shows, 0: it does not, 2: it cannot be run."""
    try:
        cupy = load()
    except Cannot as fault:
        print(f"cannot run: {fault}", file=sys.stderr)
        return 2
    if "--plain" in sys.argv[1:]:
        # For a tool that looks on: it knows the ends of what the driver gave, not those of parts of it.
        experiment = {**experiment, "watched": None, "guard": 0}
        cupy.cuda.set_allocator(None)
    found = experiment_run(cupy, experiment, experiment.get("seconds", 10.0))
    seen = found[0][0]
    about = device(cupy) if not any(s.get("poisoned") for s, _ in found) else {}
    print(f"{about.get('gpu', 'GPU')}: kernel {experiment['kernel']}")
    for how, (each, _) in zip(experiment["launches"], found):
        ended = each["end"] + (f": {each.get('reason') or each.get('launch_error')}" if each["end"] != "done" else "")
        print(f"  grid {tuple(how['grid'])}, block {tuple(how['block'])}: {ended}")
        for note in each["notes"]:
            print(f"  note: {note}")
        for name, at in each.get("spilled", []):
            print(f"  the memory beside {name} was changed, at element {at}")
        for name, at, count in each.get("differ", []):
            print(f"  {count} elements of {name} (first {at}) depend on memory that the kernel has no business with")
    faults = judged(experiment, found)
    print(f"looked for: {', '.join(experiment['judge'])}")
    for text in faults[:10]:
        print(f"  {text}")
    if not faults and any(s["end"] == "inconclusive" for s, _ in found):
        print(f"cannot run: {seen.get('reason')}", file=sys.stderr)
        return 2
    print("the fault shows" if faults else "the fault does not show")
    sys.stdout.flush()
    return int(bool(faults))


def serve() -> int:
    """Experiments on stdin, a line of JSON each; what they show goes to files, a line of JSON each to stdout."""
    import numpy as np

    # A kernel that prints writes to the process's first output.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        cupy = load()
        print(json.dumps({"ready": device(cupy)}), file=answers, flush=True)
    except Cannot as fault:
        print(json.dumps({"cannot": str(fault)}), file=answers, flush=True)
        return 2
    for line in sys.stdin:
        request = json.loads(line)
        try:
            found = experiment_run(cupy, request["experiment"], request["seconds"])
        except Exception as fault:
            poisoned = "memory allocation" not in str(fault) and type(fault).__name__ != "OutOfMemoryError"
            reason = f"{type(fault).__name__}: {first_line(fault)}"
            found = [({"end": "inconclusive", "reason": reason, "poisoned": poisoned, "notes": []}, {})]
        flat = {f"{number} {key}": value for number, (_, arrays) in enumerate(found) for key, value in arrays.items()}
        with open(request["file"], "wb") as file:
            np.savez(file, **flat)
        print(json.dumps({"seen": [seen for seen, _ in found]}), file=answers, flush=True)
        if any(seen.get("poisoned") for seen, _ in found):
            return 1
        if cupy.get_default_memory_pool().total_bytes() > HELD:
            cupy.get_default_memory_pool().free_all_blocks()
    return 0


def main(experiment: dict[str, Any] | None) -> int:
    return serve() if experiment is None or "--serve" in sys.argv[1:] else run_script(experiment)
