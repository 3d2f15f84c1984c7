"""Every fixture's experiment on a GPU and in the simulator, compared field by field.

    python benchmarks/gpu.py [-j N] [--json FILE] [PATH...]

The faulty fixtures' findings are confirmed, their sound twins are put through the same experiments; then the four
runs that end badly, each of which is to be survived. ``--json`` writes what ``tests/data/gpu-results.json`` holds.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures import TimeoutError as FutureTimeout
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

from cudalint.config import Config, Configs  # noqa: E402
from cudalint.confirm import gpu, runner  # noqa: E402
from cudalint.confirm.command import proved  # noqa: E402
from cudalint.confirm.experiment import Bench  # noqa: E402
from cudalint.engine import Options, Worker, check  # noqa: E402
from cudalint.facts import analyse  # noqa: E402
from cudalint.facts.model import Kernel  # noqa: E402
from cudalint.project import Project  # noqa: E402
from cudalint.rules.registry import experiment  # noqa: E402
from cudalint.select import Layer  # noqa: E402
from cudalint.walk import walk  # noqa: E402


def by_line(seen: Any) -> dict[int, Any]:
    """Arrivals at the barriers of a line: one function may have been called from several places."""
    found: dict[int, Any] = {}
    for a in seen.arrivals or ():
        if a.scope != "warp":
            before = found.get(a.site.line)
            same = before is not None and np.array_equal(before.blocks, a.blocks)
            found[a.site.line] = a._replace(counts=np.asarray(before.counts) + a.counts) if same else a
    return found


def differences(ours: Any, theirs: Any) -> list[str]:
    """Where the simulator's observation and the GPU's disagree, on every field that both have."""
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
            found.append(f"end: {ours.end} ({ours.reason}), on the GPU {theirs.end} ({theirs.reason})")
        return found
    if theirs.end == "refused":
        return found

    def compare(field: str, a: set[Any], b: set[Any]) -> None:
        if field in unseen:
            return
        if (a != b) if whole else not a <= b:
            found.append(f"{field}: {sorted(a - b)[:4]} in the simulator only, {sorted(b - a)[:4] if whole else ''}")

    compare(
        "outside",
        *(
            {(e.buffer, e.space, e.site.line, e.kind) for e in x.outside or () if not e.dimension}
            for x in (ours, theirs)
        ),
    )
    compare("wraps", *({(e.kind, e.site.line) for e in x.wraps or () if e.kind != "divide"} for x in (ours, theirs)))
    # A lane that was elsewhere may have exited meanwhile: the hardware does not run in lockstep.
    compare("absent", *({e.site.line for e in x.absent or () if e.read} for x in (ours, theirs)))
    compare(
        "uninitialised",
        *({(e.name, e.site.line) for e in x.uninitialised or () if e.space == "shared"} for x in (ours, theirs)),
    )
    compare(
        "races",
        *(
            {e.buffer for e in x.races or () if e.space == "shared" and e.kind != "write-write"}
            if ours.races is not None
            else set()
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
                    found.append(f"arrivals: none on the GPU at line {line}")
                continue
            common, x, y = np.intersect1d(a.blocks, b.blocks, return_indices=True)
            if len(common) and not np.array_equal(np.asarray(a.counts)[x], np.asarray(b.counts)[y]):
                found.append(f"arrivals: other counts at line {line}")
    watched = any(p.first is not None for state in ours.buffers.values() for p in state._object.pages.values())
    if watched and "buffers" not in unseen and not ours.sampled and not uneven and theirs.end == "done":
        for name, a in ours.buffers.items():
            b = theirs.buffers.get(name)
            if b is None or not a.touched() or not any(p.first is not None for p in b._object.pages.values()):
                continue
            for start, stop in b.touched():
                index = np.arange(start, stop, dtype=np.int64)
                (f1, s1), (f2, s2) = a.writers(index), b.writers(index)
                wrong = (f1 >= 0) & (f2 < 0) if not whole else (f1 >= 0) != (f2 >= 0)
                if wrong.any():
                    found.append(f"writes: element {start + int(np.flatnonzero(wrong)[0])} of {name}")
                    break
                two = ((s1 >= 0) != (s2 >= 0)) if whole else (s1 >= 0) & (s2 < 0)
                if two.any() and name not in theirs.unordered:
                    found.append(f"writers: element {start + int(np.flatnonzero(two)[0])} of {name}")
                    break
                single = (f1 >= 0) & (s1 < 0) & (f2 >= 0) & (s2 < 0)
                if whole and not badly and not theirs.unordered and (f1 != f2)[single].any():
                    at = int(np.flatnonzero(single & (f1 != f2))[0])
                    found.append(f"writer: element {start + at} of {name}: {f1[at]}, {f2[at]}")
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
                        found.append(f"values: {name}[{start + at}] is {x[at]}, {y[at]} on the GPU")
                        break
    return found


_gpu: Any = None


def one(path: str) -> dict[str, Any]:
    """A fixture: verdicts of both backends, and where they disagree."""
    global _gpu
    if _gpu is None:
        _gpu = gpu.Gpu()
    name = Path(path)
    rule = next(p.name for p in name.parents if p.name.startswith("CL"))
    code, faulty = rule[:5], name.name.startswith("faulty")
    began = time.monotonic()
    found: list[Any] = []
    if faulty:
        selected = (code, "pedantic") if "opt-in" in name.parts else (code,)
        result = check([path], Options(Layer("", selected), isolated=True))
        _, proofs = proved(result, runner.Limits(timeout=40, backend=_gpu))
        found = list(proofs.values())
        _, simulated = proved(check([path], Options(Layer("", selected), isolated=True)), runner.Limits())
        others = list(simulated.values())
    else:

        def run(limits: Any) -> list[Any]:
            targets, _, _ = walk([path], Configs(Layer(""), isolated=True), force_exclude=False)
            worker = Worker({}, None, frozenset(t.path for t in targets))
            return [p for proofs in trial_of(code, None, worker, targets, limits) for p in proofs]

        trial_of = runner.trial_of
        found, others = run(runner.Limits(timeout=40, backend=_gpu)), run(runner.Limits())
    seconds = time.monotonic() - began
    differ, notes = [], []
    compared = 0
    for mine, other in zip(found, others):
        for g, s in zip(mine.outcomes, other.outcomes):
            notes += [n for o in g.seen for n in getattr(o, "notes", ())]
            for a, b in zip(s.seen, g.seen):
                compared += 1
                case = f"{mine.kernel} {dict(g.trial.sizes)} {g.setup.grid if g.setup else ''}"
                differ += [f"{case}: {x}" for x in differences(a, b)]
    return {
        "fixture": f"{rule}/{name.name}", "code": code,
        "gpu": [p.evidence.verdict for p in found], "sim": [p.evidence.verdict for p in others],
        "reason": [p.evidence.reason for p in found], "compared": compared, "differ": differ[:6],
        "notes": sorted(set(notes))[:3], "seconds": round(seconds, 2), "starts": _gpu.starts,
        "cells": [[c.result for c in p.evidence.cases] for p in found],
        "cells_why": sorted({c.note or "" for p in found for c in p.evidence.cases if c.result == "inconclusive"}),
    }  # fmt: skip


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
            row["outside"] = [(e.element, str(e.thread)) for e in (seen.outside or [])[:2]]
            row["wraps"] = len(seen.wraps or [])
            row["arrivals"] = [np.asarray(a.counts)[0][:4].tolist() for a in seen.arrivals or []]
            rows.append(row)
    backend.close()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("-j", type=int, default=1)
    parser.add_argument("--json")
    parser.add_argument("--no-bad", action="store_true", help="leave out the runs that end badly")
    parser.add_argument("--large", type=float, default=3600.0, metavar="SECONDS", help="for what needs the whole GPU")
    parser.add_argument("paths", nargs="*")
    options = parser.parse_args()
    rules = [p for p in sorted(ROOT.glob("fixtures/**/CL*")) if p.is_dir() and experiment(p.name[:5]) is not None]
    paths = (
        []
        if options.paths == ["none"]
        else options.paths
        or [str(f) for r in rules for f in sorted(r.glob("*.cu")) if f.name[:5] in ("fault", "sound")]
    )
    rows: list[dict[str, Any]] = []
    began = time.monotonic()
    ended = [] if options.no_bad else bad()
    done: dict[str, dict[str, Any]] = {}
    # What one of several children finds too little memory for is tried again by one alone, while there is time.
    for many in (options.j, 1):
        again = []
        pool = ProcessPoolExecutor(many)
        jobs = {pool.submit(one, p): p for p in paths}
        try:
            for job in as_completed(jobs, timeout=options.large if many == 1 and done else None):
                try:
                    row = job.result()
                except Exception as fault:
                    row = {"fixture": "/".join(Path(jobs[job]).parts[-2:]), "error": f"{type(fault).__name__}: {fault}"}
                done[jobs[job]] = row
                if any("of GPU memory" in x or "OutOfMemory" in x for x in row.get("cells_why", [])):
                    again.append(jobs[job])
        except FutureTimeout:
            print("no time for the rest", file=sys.stderr)
        rows = list(done.values())
        if options.json:
            save(options.json, rows, ended, time.monotonic() - began)
        pool.shutdown(wait=not again or many > 1, cancel_futures=True)
        print(f"{len(rows)} fixtures after {time.monotonic() - began:.0f} s, {len(again)} too large", file=sys.stderr)
        if options.j == 1 or not again:
            break
        paths = again
    report(rows, ended)


def save(path: str, rows: list[dict[str, Any]], ended: list[dict[str, Any]], seconds: float) -> None:
    about = {"date": datetime.now(timezone.utc).date().isoformat(), "seconds": round(seconds)}
    try:
        import cupy
        from cupy.cuda import runtime

        about |= {"gpu": runtime.getDeviceProperties(0)["name"].decode(), "driver": runtime.driverGetVersion(),
                  "cuda": runtime.runtimeGetVersion(), "cupy": cupy.__version__}  # fmt: skip
    except Exception as fault:
        about["gpu"] = str(fault)
    data = {"about": about, "bad": ended, "fixtures": sorted(rows, key=lambda r: r["fixture"])}
    Path(path).write_text(json.dumps(data, indent=1) + "\n")


def report(rows: list[dict[str, Any]], ended: list[dict[str, Any]]) -> None:
    for row in sorted(rows, key=lambda r: r["fixture"]):
        faulty = "/faulty" in row["fixture"]
        wanted = "confirmed" if faulty else "not-reproduced"
        if "error" in row or row["differ"] or row["notes"] or any(v != wanted for v in row["gpu"]):
            print(json.dumps({k: v for k, v in row.items() if k not in ("cells",)}))
    for row in ended:
        print(json.dumps(row))
    total = sum(r.get("compared", 0) for r in rows)
    print(f"{len(rows)} fixtures, {total} runs compared, {sum(bool(r.get('differ')) for r in rows)} with differences")


if __name__ == "__main__":
    main()
