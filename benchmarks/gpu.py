"""Every fixture's experiment on a GPU and in the simulator, compared field by field.

    python benchmarks/gpu.py [-j N] [--json FILE] [--seconds S] [PATH...]

The faulty fixtures' findings are confirmed, their sound twins are put through the same experiments; then the table of
the course's kernels, and the four runs that end badly, each of which is to be survived. ``--json`` writes what
``tests/data/gpu-results.json`` holds.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures import TimeoutError as FutureTimeout
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

from cudalint.config import Config, Configs  # noqa: E402  # the path is set above
from cudalint.confirm import gpu, runner  # noqa: E402  # the path is set above
from cudalint.confirm.child import needed  # noqa: E402  # the path is set above
from cudalint.confirm.command import proved  # noqa: E402  # the path is set above
from cudalint.confirm.experiment import Bench  # noqa: E402  # the path is set above
from cudalint.engine import Options, Worker, check  # noqa: E402  # the path is set above
from cudalint.facts import analyse  # noqa: E402  # the path is set above
from cudalint.facts.model import Kernel  # noqa: E402  # the path is set above
from cudalint.project import Project  # noqa: E402  # the path is set above
from cudalint.rules.registry import experiment  # noqa: E402  # the path is set above
from cudalint.select import Layer  # noqa: E402  # the path is set above
from cudalint.walk import walk  # noqa: E402  # the path is set above

if TYPE_CHECKING:
    from collections.abc import Iterator

TIMEOUT = 400.0
COURSE = (0, 1, 31, 32, 611, 1024, 1025, 40960, 40961, 4194304)
LARGE, ROOM = 1 << 32, 125 << 30
"""Bytes from which on an experiment waits for room on the GPU, and how much there is for those that do."""
#: Where the two may differ, and neither is wrong.
STOPS = "the simulator ends a loop after so many steps, on a GPU it goes on until it leaves the memory"
FIRST = "which of two racing threads comes first is the hardware's choice"
TICKETS = "which thread draws what from an atomic counter is the hardware's choice"
LEFT_OUT = "of lanes that the mask leaves out the simulator alone tells"


def by_line(seen: Any) -> dict[int, Any]:
    """Arrivals at the barriers of a line: one function may have been called from several places."""
    found: dict[int, Any] = {}
    for a in seen.arrivals or ():
        if a.scope != "warp":
            before = found.get(a.site.line)
            same = before is not None and np.array_equal(before.blocks, a.blocks)
            found[a.site.line] = a._replace(counts=np.asarray(before.counts) + a.counts) if same else a
    return found


def differences(ours: Any, theirs: Any) -> list[tuple[str, str]]:
    """Where the simulator's observation and the GPU's disagree, on every field that both have; and why, where neither
    is wrong."""
    if "inconclusive" in (ours.end, theirs.end):
        return []
    found = []
    unseen = getattr(theirs, "unseen", set())
    whole = ours.blocks is None and not ours.sampled
    uneven = any(len({*np.asarray(a.counts).ravel().tolist()}) > 1 for a in ours.arrivals or ())
    badly = bool(uneven or ours.outside or ours.absent or ours.uninitialised or ours.races or ours.misaligned)
    if ours.end != theirs.end:
        # A divergent barrier may hang; an access far outside may be refused by the hardware.
        if not (theirs.end == "no-end" and badly) and not (theirs.end == "fault" and badly) and whole:
            why = STOPS if "steps" in (ours.reason or "") and theirs.end == "fault" else ""
            found.append((f"end: {ours.end} ({ours.reason}), on the GPU {theirs.end} ({theirs.reason})", why))
        return found
    if theirs.end == "refused":
        return found

    def compare(field: str, a: set[Any], b: set[Any], why: str = "") -> None:
        if field in unseen:
            return
        if (a != b) if whole else not a <= b:
            more = sorted(b - a)[:4] if whole else ""
            found.append((f"{field}: {sorted(a - b)[:4]} in the simulator only, {more}", why))

    compare(
        "outside",
        *(
            {(e.buffer, e.space, e.site.line, e.kind) for e in x.outside or () if not e.dimension}
            for x in (ours, theirs)
        ),
    )
    compare("wraps", *({(e.kind, e.site.line) for e in x.wraps or () if e.kind != "divide"} for x in (ours, theirs)))
    # A lane that was elsewhere may have exited meanwhile: the hardware does not run in lockstep.
    ours_read, theirs_read = ({e.site.line for e in x.absent or () if e.read} for x in (ours, theirs))
    compare("absent", ours_read, theirs_read, LEFT_OUT if theirs_read <= ours_read else "")
    compare(
        "uninitialised",
        *({(e.name, e.site.line) for e in x.uninitialised or () if e.space == "shared"} for x in (ours, theirs)),
        TICKETS if theirs.unordered else FIRST if ours.races or theirs.races else "",
    )
    compare(
        "races",
        *(
            {e.buffer for e in x.races or () if e.space == "shared"} if ours.races is not None else set()
            for x in (ours, theirs)
        ),
    )
    if "arrivals" not in unseen and theirs.end == "done" and not theirs.unordered:
        mine = by_line(ours)
        other = by_line(theirs)
        for line, a in mine.items():
            b = other.get(line)
            if b is None:
                if np.asarray(a.counts).any():
                    found.append((f"arrivals: none on the GPU at line {line}", ""))
                continue
            common, x, y = np.intersect1d(a.blocks, b.blocks, return_indices=True)
            if len(common) and not np.array_equal(np.asarray(a.counts)[x], np.asarray(b.counts)[y]):
                found.append((f"arrivals: other counts at line {line}", ""))
    watched = any(p.first is not None for state in ours.buffers.values() for p in state._object.pages.values())
    met = False  # whether a thread reads what another one writes
    if watched and "buffers" not in unseen and not ours.sampled and not uneven and theirs.end == "done":
        for name, a in ours.buffers.items():
            b = theirs.buffers.get(name)
            if b is None or not a.touched() or not any(p.first is not None for p in b._object.pages.values()):
                continue
            for start, stop in b.touched():
                index = np.arange(start, stop, dtype=np.int64)
                (f1, s1), (f2, s2) = a.writers(index), b.writers(index)
                (l1, h1), (l2, h2) = (state.readers(index) for state in (a, b))
                if whole and ((l1 != l2) | (h1 != h2)).any():
                    at = int(np.flatnonzero((l1 != l2) | (h1 != h2))[0])
                    found.append((f"readers: element {start + at} of {name}", FIRST if badly else ""))
                    break
                met |= bool(((h1 >= 0) & (f1 >= 0) & ((l1 != f1) | (h1 != f1))).any())
                wrong = (f1 >= 0) & (f2 < 0) if not whole else (f1 >= 0) != (f2 >= 0)
                if wrong.any():
                    found.append((f"writes: element {start + int(np.flatnonzero(wrong)[0])} of {name}", ""))
                    break
                two = ((s1 >= 0) != (s2 >= 0)) if whole else (s1 >= 0) & (s2 < 0)
                if two.any() and name not in theirs.unordered:
                    found.append((f"writers: element {start + int(np.flatnonzero(two)[0])} of {name}", ""))
                    break
                single = (f1 >= 0) & (s1 < 0) & (f2 >= 0) & (s2 < 0)
                if whole and not badly and not theirs.unordered and (f1 != f2)[single].any():
                    at = int(np.flatnonzero(single & (f1 != f2))[0])
                    found.append((f"writer: element {start + at} of {name}: {f1[at]}, {f2[at]}", ""))
                    break
                if (
                    whole
                    and not badly
                    and not theirs.unordered
                    and not two.any()
                    and not (s1 >= 0).any()
                    and len(index) <= 1 << 22
                ):
                    x, y = a.values(index), b.values(index)
                    if x.dtype.kind not in "iufb":
                        continue
                    close = np.isclose(x, y, rtol=1e-3, atol=1e-4, equal_nan=True) if x.dtype.kind == "f" else x == y
                    if not close.all():
                        at = int(np.flatnonzero(~close)[0])
                        text = f"values: {name}[{start + at}] is {x[at]}, {y[at]} on the GPU"
                        found.append((text, FIRST if met else ""))
                        break
    return found


class Room:
    """The GPU's memory, which several processes share: each waits until there is room for what it is about to run."""

    def __init__(self, total: int) -> None:
        self.total, self.free = total, multiprocessing.Value("q", total, lock=False)
        self.changed = multiprocessing.Condition()

    @contextlib.contextmanager
    def taken(self, size: int) -> Iterator[None]:
        size = min(size, self.total)
        with self.changed:
            self.changed.wait_for(lambda: self.free.value >= size)
            self.free.value -= size
        try:
            yield
        finally:
            with self.changed:
                self.free.value += size
                self.changed.notify_all()


class Backend(gpu.Gpu):
    """A GPU in a room of several."""

    room = Room(ROOM)
    inside = False  # what ends a child is asked once more, in the room that it has already

    def ask(self, experiment: gpu.Experiment, *more: Any, **others: Any) -> list[gpu.Measured]:
        size = max(needed(experiment.data, how) for how in experiment.data["launches"])
        if self.inside or size < LARGE:
            return super().ask(experiment, *more, **others)
        with self.room.taken(size):
            self.inside = True
            try:
                return super().ask(experiment, *more, **others)
            finally:
                self.inside = False


_gpu: Any = None


def begin(room: Room) -> None:
    """What each process starts with."""
    Backend.room = room


def one(path: str) -> dict[str, Any]:
    """A fixture: verdicts of both backends, and where they disagree."""
    global _gpu
    if _gpu is None:
        _gpu = Backend()
    name = Path(path)
    rule = next(p.name for p in name.parents if p.name.startswith("CL"))
    code, faulty = rule[:5], name.name.startswith("faulty")
    began = time.monotonic()
    found: list[Any] = []
    if faulty:
        selected = (code, "pedantic") if "opt-in" in name.parts else (code,)
        result = check([path], Options(Layer("", selected), isolated=True))
        _, proofs = proved(result, runner.Limits(timeout=TIMEOUT, backend=_gpu))
        found = list(proofs.values())
        seconds = time.monotonic() - began
        _, simulated = proved(check([path], Options(Layer("", selected), isolated=True)), runner.Limits())
        others = list(simulated.values())
    else:

        def run(limits: Any) -> list[Any]:
            targets, _, _ = walk([path], Configs(Layer(""), isolated=True), force_exclude=False)
            worker = Worker({}, None, frozenset(t.path for t in targets))
            return [p for proofs in trial_of(code, None, worker, targets, limits) for p in proofs]

        trial_of = runner.trial_of
        found = run(runner.Limits(timeout=TIMEOUT, backend=_gpu))
        seconds = time.monotonic() - began
        others = run(runner.Limits())
    differ: list[tuple[str, str]] = []
    compared = 0
    for mine, other in zip(found, others):
        for g, s in zip(mine.outcomes, other.outcomes):
            for a, b in zip(s.seen, g.seen):
                compared += 1
                case = f"{mine.kernel} {dict(g.trial.sizes)} {g.setup.grid if g.setup else ''}"
                differ += [(f"{case}: {text}", why) for text, why in differences(a, b)]
    row = {"fixture": f"{rule}/{name.name}", "gpu": [p.evidence.verdict for p in found],
           "sim": [p.evidence.verdict for p in others], "runs": compared, "seconds": round(seconds, 2)}  # fmt: skip
    wanted = "confirmed" if faulty else "not-reproduced"
    reasons = [p.evidence.reason or "" for p in found if p.evidence.verdict != wanted]
    if any(reasons):
        row["reason"] = "; ".join(dict.fromkeys(x for x in reasons if x))
    if any(not why for _, why in differ):
        row["differ"] = [text for text, why in differ if not why][:6]
    if any(why for _, why in differ):
        row["forgiven"] = [f"{text}: {why}" for text, why in differ if why][:2]
    return row


SOURCE = """\
__global__ void wraps(unsigned char *x, size_t n) {
    size_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = 1;
}
__global__ void endless(unsigned char *x, size_t n) {
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) x[i] = 1;
}
__global__ void uneven(float *x, int n) {
    for (int k = 0; k < threadIdx.x; ++k) {
        __syncthreads();
        x[blockIdx.x * blockDim.x + threadIdx.x] = k;
    }
}
__global__ void far_away(unsigned char *x, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) x[i] = 1;
}
"""
BAD = (
    ("wraps", (1 << 32) + 1000, ((1 << 24) + 4, 1, 1), (256, 1, 1)),
    ("endless", (1 << 32) + 1000, (1 << 24, 1, 1), (256, 1, 1)),
    ("uneven", 256, (1, 1, 1), (64, 1, 1)),
    ("far_away", (1 << 31) - 1, (160, 1, 1), (256, 1, 1)),
    ("wraps", 1000, (4, 1, 1), (256, 1, 1)),
)


def bad() -> list[dict[str, Any]]:
    """The runs that end badly, and one that shows that all were survived."""
    backend, rows = gpu.Gpu(), []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bad.cu"
        path.write_text(SOURCE)
        units = analyse(Project(folder), str(path), Config(folder))
        kernels = {u.name: u for u in units if isinstance(u, Kernel)}
        for name, n, grid, block in BAD:
            began = time.monotonic()
            bench = Bench("CL101", kernels[name], None, None)
            setup = bench.harness.setup(bench.harness.assignment({"n": n}), grid, block)
            (seen,) = backend.ask(gpu.Experiment(bench.kernel, [setup]))
            row = {"kernel": name, "n": n, "grid": list(grid), "block": list(block), "end": seen.end,
                   "reason": seen.reason, "notes": seen.notes, "seconds": round(time.monotonic() - began, 1),
                   "children": backend.starts}  # fmt: skip
            state = seen.buffers.get("x")
            if state is not None and seen.end == "done":
                row["never"] = []
                for start, stop in state.touched():
                    first, _ = state.writers(np.arange(start, stop, dtype=np.int64))
                    row["never"] += [start + int(g) for g in np.flatnonzero(first < 0)[:2]]
                row["twice"] = [e for e, _, _ in state.several(3)]
            rows.append(row)
    backend.close()
    return rows


def course() -> dict[str, list[Any]]:
    """The course's kernels: by launch, a word for each size."""
    targets, _, _ = walk([str(ROOT / "fixtures/programs/faulty-course.cu")], Configs(Layer(""), isolated=True),
                         force_exclude=False)  # fmt: skip
    worker = Worker({}, None, frozenset(t.path for t in targets))
    table: dict[str, list[Any]] = {"sizes": [*COURSE]}
    backend = gpu.Gpu()
    for proofs in runner.trial_of("CL202", None, worker, targets, runner.Limits(sizes=COURSE, backend=backend)):
        for proof in proofs:
            for outcome in proof.outcomes:
                label = f"{proof.kernel}, line {proof.line}, {outcome.trial.label}"
                table.setdefault(label, []).append(outcome.cell)
    backend.close()
    return table


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("-j", type=int, default=1)
    parser.add_argument("--json")
    parser.add_argument("--seconds", type=float, default=3600.0, help="until what is not done is left out")
    parser.add_argument("paths", nargs="*")
    options = parser.parse_args()
    rules = [p for p in sorted(ROOT.glob("fixtures/**/CL*")) if p.is_dir() and experiment(p.name[:5]) is not None]
    paths = options.paths or [str(f) for r in rules for f in sorted(r.glob("*.cu")) if f.name[:5] in ("fault", "sound")]
    began = time.monotonic()
    done: dict[str, dict[str, Any]] = {}
    # While nobody else is there.
    table, ended = ({}, []) if options.paths else (course(), bad())
    room = Room(ROOM)
    # Sizes at which arithmetic wraps want much memory; they wait for each other, the others do not wait for them.
    wide = [p for p in paths if "/CL1" in p]
    pools = [
        (ProcessPoolExecutor(many, initializer=begin, initargs=(room,)), part)
        for many, part in ((max(1, options.j // 2), wide), (options.j, [p for p in paths if p not in wide]))
    ]
    jobs = {pool.submit(one, p): p for pool, part in pools for p in part}
    with contextlib.suppress(FutureTimeout):
        for job in as_completed(jobs, timeout=options.seconds):
            try:
                done[jobs[job]] = job.result()
            except Exception as fault:
                done[jobs[job]] = {"fixture": "/".join(Path(jobs[job]).parts[-2:]), "gpu": [], "sim": [], "runs": 0,
                                   "seconds": 0, "error": f"{type(fault).__name__}: {fault}"}  # fmt: skip
    late = [p for p in paths if p not in done]
    print(f"{len(done)} fixtures after {time.monotonic() - began:.0f} s, no time for {late}", file=sys.stderr)
    again = [p for p, row in done.items() if "bytes of GPU memory" in row.get("reason", "") and not late]
    if again:  # by nobody else's side
        for pool, _ in pools:
            pool.shutdown()
        done |= {p: one(p) for p in again}
    rows = sorted(done.values(), key=lambda r: r["fixture"])
    if options.json:
        save(options.json, rows, table, ended)
    report(rows, ended)
    sys.stdout.flush()
    for child in multiprocessing.active_children():  # without a wait for what is late
        child.kill()
    os._exit(0)


def save(path: str, rows: list[dict[str, Any]], table: dict[str, Any], ended: list[dict[str, Any]]) -> None:
    """One row a line."""
    import cupy
    from cupy.cuda import nvrtc, runtime

    version = runtime.driverGetVersion()
    nvidia = Path("/proc/driver/nvidia/version")
    words = nvidia.read_text().split() if nvidia.exists() else []
    release = next((w for w in words if w.count(".") == 2 and w[0].isdigit()), "")
    about = {
        "date": datetime.now(timezone.utc).date().isoformat(),
        "gpu": runtime.getDeviceProperties(0)["name"].decode(),
        "driver": f"{release} CUDA {version // 1000}.{version % 1000 // 10}".strip(),
        "nvrtc": "CUDA {}.{}".format(*nvrtc.getVersion()), "cupy": cupy.__version__,
    }  # fmt: skip
    parts = [f'"about": {json.dumps(about)}']
    for name, items in (("ended", ended), ("fixtures", rows)):
        parts.append(f'"{name}": [\n' + ",\n".join(json.dumps(x) for x in items) + "\n]")
    lines = ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in table.items())
    parts.insert(2, f'"course": {{\n{lines}\n}}')
    Path(path).write_text("{\n" + ",\n".join(parts) + "\n}\n")


def report(rows: list[dict[str, Any]], ended: list[dict[str, Any]]) -> None:
    for row in rows:
        wanted = "confirmed" if "/faulty" in row["fixture"] else "not-reproduced"
        if "error" in row or "differ" in row or any(v != wanted for v in row["gpu"]):
            print(json.dumps(row))
    for row in ended:
        print(json.dumps(row))
    for kind in ("faulty", "sound"):
        verdicts = [v for r in rows if f"/{kind}" in r["fixture"] for v in r["gpu"]]
        print(kind, {v: verdicts.count(v) for v in sorted(set(verdicts))})
    seconds = statistics.median([r["seconds"] for r in rows] or [0])
    differ, forgiven = (sum(key in r for r in rows) for key in ("differ", "forgiven"))
    print(f"{len(rows)} fixtures, {sum(r['runs'] for r in rows)} runs compared, median {seconds:.2f} s")
    print(f"{differ} with differences, {forgiven} with differences of which neither side is wrong")


if __name__ == "__main__":
    main()
