"""The GPU backend: scripts, slices for NVRTC, and (``-m gpu``) real runs; what a GPU showed is what is simulated.

Run this file to make ``docs/gpu.md`` anew from the results.
"""

from __future__ import annotations

import ast
import ctypes
import glob
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from conftest import ROOT, Cudalint

from cudalint.config import Config, Configs
from cudalint.confirm.child import judged
from cudalint.confirm.command import proved
from cudalint.confirm.experiment import Bench
from cudalint.confirm.gpu import Experiment
from cudalint.confirm.prelude import PRELUDE
from cudalint.confirm.repro import script
from cudalint.confirm.runner import Limits, trial_of
from cudalint.confirm.slice import slice_of
from cudalint.confirm.watch import DEVICE, Watch
from cudalint.engine import Options, Worker, check
from cudalint.facts import analyse
from cudalint.facts.model import Kernel
from cudalint.project import Project
from cudalint.select import Layer
from cudalint.walk import walk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

RESULTS = json.loads((ROOT / "tests/data/gpu-results.json").read_text())
MEASURED = [r for r in RESULTS["fixtures"] if set(r["gpu"]) <= {"confirmed", "not-reproduced"} and r["gpu"] == r["sim"]]
SHORT = ROOT / "fixtures/CL202-short-grid/faulty-sm-count.cu"
BARRIER = ROOT / "fixtures/CL301-return-before-barrier/faulty-early-return.cu"


PAGE = ROOT / "docs/gpu.md"


def page() -> str:
    """What the results say, in words and tables."""
    about, rows = RESULTS["about"], RESULTS["fixtures"]
    earlier = sum(bool(r.get("earlier")) for r in rows)
    words = ("confirmed", "not-reproduced", "inconclusive")
    found = {k: Counter(v for r in rows if f"/{k}" in r["fixture"] for v in r["gpu"]) for k in ("faulty", "sound")}
    lines = [
        "# What a GPU showed", "",
        "Made from `tests/data/gpu-results.json` by `python tests/test_gpu.py`; `benchmarks/gpu.py` measures.", "",
        f"{about['gpu']}, driver {about['driver']}, CuPy {about['cupy']}, {about['date']}: {len(rows)} fixtures, "
        f"{sum(r['runs'] for r in rows)} launches compared with the simulator field by field. {earlier} fixtures were "
        "measured by an earlier state of cudalint.", "",
        "## Verdicts", "", _row(["", *words]), _row(["---"] * 4),
        *(_row([f"{k} fixtures", *(count[w] for w in words)]) for k, count in found.items()), "",
        "## Why a fixture has another verdict than it should", "", _row(["Reason", "Fixtures"]), _row(["---"] * 2),
        *_counted(Counter(map(_why, filter(_odd, rows)))), "",
        "## Where simulator and GPU differ", "",
        *_differences("Neither is wrong", "forgiven", rows), *_differences("Faults that were found so", "cause", rows),
        "## The course's kernels", "", *_course(), "",
        "## In one run, each survived", "", _row(["Kernel", "n", "Ends", "Why"]), _row(["---"] * 4),
        *(_row([r["kernel"], r["n"], r["end"], r["reason"] or _lost(r)]) for r in RESULTS["ended"]),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _row(cells: Iterable[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def _counted(found: Counter[str]) -> Iterable[str]:
    return (_row(x) for x in sorted(found.items(), key=lambda x: (-x[1], x[0])))


def _odd(row: dict[str, Any]) -> bool:
    return any(v != ("confirmed" if "/faulty" in row["fixture"] else "not-reproduced") for v in row["gpu"])


def _why(row: dict[str, Any]) -> str:
    reason: str = row.get("reason") or "no size or launch shows it, in the simulator neither"
    if re.search(r"bytes of GPU memory|OutOfMemory", reason):
        return "needs more memory than was free"
    if row["gpu"] != row["sim"]:
        return reason
    return f"{reason} (in the simulator too)" if row.get("reason") else reason


def _differences(title: str, key: str, rows: list[dict[str, Any]]) -> list[str]:
    found: Counter[str] = Counter()
    for row in rows:
        texts = [x.rpartition(": ")[2] for x in row["forgiven"]] if key == "forgiven" and key in row else []
        found.update(set(texts) or set(row.get("cause", "").split("; ") if key == "cause" and key in row else ()))
    return [_row([title, "Fixtures"]), _row(["---"] * 2), *_counted(found), ""]


def _lost(row: dict[str, Any]) -> str:
    return "" if not row["never"] else f"elements from {row['never'][0]} on are not written, those from 0 on twice"


def _course() -> list[str]:
    table = RESULTS["course"]
    launches = [k.replace("<", "\\<") for k in table if k != "sizes"]
    lines = zip(*(table[k] for k in table))
    return [_row(["n", *launches]), _row(["---"] * len(table)), *(_row(x) for x in lines)]


def _path(name: str) -> Path:
    (found,) = [p for p in (ROOT / "fixtures" / name, ROOT / "fixtures/opt-in" / name) if p.exists()]
    return found


@pytest.mark.parametrize("row", MEASURED[::16], ids=lambda r: r["fixture"])
def test_simulator_agrees_with_the_gpu(row: dict[str, Any]) -> None:
    path = _path(row["fixture"])
    code = path.parent.name[:5]
    if path.name.startswith("faulty"):
        selected = (code, "pedantic") if "opt-in" in path.parts else (code,)
        _, proofs = proved(check([str(path)], Options(Layer("the test", selected), isolated=True)), Limits())
        found = [p.evidence.verdict for p in proofs.values()]
    else:
        targets, _, _ = walk([str(path)], Configs(Layer("the test"), isolated=True), force_exclude=False)
        worker = Worker({}, None, frozenset(t.path for t in targets))
        found = [p.evidence.verdict for each in trial_of(code, None, worker, targets, Limits()) for p in each]
    assert found == row["gpu"]


def test_the_gpu_results_hold_what_was_to_be_shown() -> None:
    faulty = [v for r in RESULTS["fixtures"] if "/faulty" in r["fixture"] for v in r["gpu"]]
    sound = [v for r in RESULTS["fixtures"] if "/sound" in r["fixture"] for v in r["gpu"]]
    assert faulty.count("confirmed") > 400
    assert "confirmed" not in sound
    assert all(r.get("cause") for r in RESULTS["fixtures"] if "differ" in r)
    ends = [r["end"] for r in RESULTS["ended"]]
    assert ends[0] == "done"
    assert 4294967296 in RESULTS["ended"][0]["never"]
    assert ends[1] == ends[2] == "no-end"
    assert "illegal memory access" in RESULTS["ended"][3]["reason"]
    assert ends[-1] == "done"  # after all of them


def test_the_page_of_results_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python tests/test_gpu.py"


def test_a_script_runs_the_case_that_the_evidence_states(cudalint: Cudalint, tmp_path: Path) -> None:
    wide = ROOT / "fixtures/CL101-uncast-grid-product/faulty-added.cu"
    done = cudalint(
        "confirm", "--backend", "sim", "--isolated", str(wide), "--repro", str(tmp_path), "--output-format", "json"
    )
    (finding,) = json.loads(done.stdout)
    (path,) = tmp_path.glob("*.py")
    assigned = {t.id: n.value for n in ast.parse(path.read_text()).body if isinstance(n, ast.Assign)
                for t in n.targets if isinstance(t, ast.Name)}  # fmt: skip
    first = ast.literal_eval(assigned["EXPERIMENT"])["launches"][0]
    evidence = finding["evidence"]
    assert (first["grid"], first["block"]) == (evidence["grid"], evidence["block"])
    assert f"n = {evidence['sizes']['n']}" in path.read_text()


def _watched(source: str, folder: Path) -> str:
    path = folder / "k.cu"
    path.write_text(source)
    (unit,) = [u for u in analyse(Project(str(folder)), str(path), Config(str(folder))) if isinstance(u, Kernel)]
    return slice_of(unit, Watch(unit)).watched or ""


def test_a_shared_array_is_watched_where_it_is_passed_to(tmp_path: Path) -> None:
    """Found by the GPU: what a device function stored there seemed never to have been written."""
    text = _watched(
        "__device__ void put(float *tile, float v) { tile[threadIdx.x] = v; }\n"
        "__global__ void k(float *x) { __shared__ float t[32]; put(t, x[threadIdx.x]); x[threadIdx.x] = t[0]; }\n",
        tmp_path,
    )
    assert "cudalint_declare(0, (const void *)&t, sizeof(t));" in text
    assert "cudalint_watch.arrays[0].base, cudalint_watch.arrays[0].bytes, &(tile[threadIdx.x])" in text


def test_conversions_of_local_constants_and_of_steps_are_told(tmp_path: Path) -> None:
    """Found by the GPU: they were in the simulator's run only."""
    text = _watched(
        "__global__ void k(float *x, size_t n) {\n    const int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "    const int w = 4;\n    float t[w * 2];\n    int j = 0;\n    j += blockDim.x;\n"
        "    if (i < n) x[i] = t[0] + j;\n}\n",
        tmp_path,
    )
    assert re.search(r"cudalint_fits<64, 0>\(\d+, i\) < n", text)
    assert re.search(r"j = cudalint_fits<32, 1>\(\d+, cudalint_add\(\d+, j, ", text)
    assert "t[w * 2]" in text


def test_conversions_of_arguments_are_told(tmp_path: Path) -> None:
    """Found by the GPU: the access that the cut index led to ended the run before any wrap was seen."""
    text = _watched(
        "__device__ float take(const float *x, int at) { return x[at]; }\n"
        "template <typename T> __device__ float same(const float *x, T at) { return x[at]; }\n"
        "__global__ void k(const float *x, float *y, long i) { y[0] = take(x, i) + same(x, i); }\n",
        tmp_path,
    )
    assert re.search(r"take\(x, cudalint_fits<32, 1>\(\d+, i\)\) \+ same\(x, i\)", text)


def test_a_variable_of_the_device_is_watched(tmp_path: Path) -> None:
    """Found by the GPU: a race on one was not seen, and seemed not to be there."""
    path = tmp_path / "k.cu"
    path.write_text(
        "__device__ unsigned errors, seen[8];\n"
        "__global__ void k(const int *x) { if (x[threadIdx.x] < 0) errors++; seen[threadIdx.x % 8] = 1; }\n"
    )
    (unit,) = analyse(Project(str(tmp_path)), str(path), Config(str(tmp_path)))
    assert isinstance(unit, Kernel)
    bench = Bench("CL308", unit, None, None)
    experiment = Experiment(unit, [bench.harness.setup(bench.harness.assignment({}), (1, 1, 1), (32, 1, 1))])
    assert "(*cudalint_at(1, 3, &(errors)))++" in experiment.watched
    assert {n: (v["extent"], v["width"]) for n, v in experiment.data["variables"].items()} == {
        "errors": (1, 4), "seen": (8, 4)
    }  # fmt: skip
    assert experiment.data["sites"][:3] == ["x", "errors", "seen"]


def test_what_a_call_refers_to_is_not_said_to_be_seen(tmp_path: Path) -> None:
    """Found by the GPU: the simulator saw accesses outside where the watched run told of none."""
    path = tmp_path / "k.cu"
    path.write_text(
        "__device__ float &at(float *x, int i) { return x[i]; }\n"
        "__global__ void k(float *x) { at(x, threadIdx.x) = 1; }\n"
    )
    (unit,) = [u for u in analyse(Project(str(tmp_path)), str(path), Config(str(tmp_path))) if isinstance(u, Kernel)]
    assert Watch(unit).blind >= {"outside", "shared"}


def test_only_what_a_kernel_uses_is_included(tmp_path: Path) -> None:
    """NVRTC refuses the header that takes in all of CUB."""
    path = tmp_path / "k.cu"
    path.write_text(
        "#include <cub/cub.cuh>\n#include <cooperative_groups.h>\n#include <cuda_fp16.h>\n"
        "__global__ void sum(const float *x, float *y) {\n    typedef cub::BlockReduce<float, 128> Reduce;\n"
        "    __shared__ typename Reduce::TempStorage kept;\n    y[0] = Reduce(kept).Sum(x[threadIdx.x]);\n}\n"
        "__global__ void sorted(int *x) {\n    __shared__ cub::WarpMergeSort<int, 4>::TempStorage kept;\n}\n"
        "__global__ void plain(float *x) { x[threadIdx.x] = 1; }\n"
    )
    units = analyse(Project(str(tmp_path)), str(path), Config(str(tmp_path)))
    found = {u.name: slice_of(u).includes.split("\n")[:-1] for u in units if isinstance(u, Kernel)}
    operators = "#include <cub/thread/thread_operators.cuh>"
    assert found == {
        "sum": ["#include <cub/block/block_reduce.cuh>", operators, "#include <cuda_fp16.h>"],
        "sorted": ["#include <cub/warp/warp_merge_sort.cuh>", operators, "#include <cuda_fp16.h>"],
        "plain": ["#include <cuda_fp16.h>"],
    }


def test_a_script_tells_who_reads_what_another_block_writes() -> None:
    a = np.array
    arrays = {"first a": a([0, 4, -1]), "second a": a([-1, -1, -1]), "low a": a([1, 3, 0]), "high a": a([3, 5, 9])}
    experiment = {
        "judge": ["race"], "lines": [], "barriers": [], "launches": [{"block": [4, 1, 1]}],
        "buffers": {"a": {"granule": 4, "width": 4}},
    }  # fmt: skip
    (text,) = judged(experiment, [({"end": "done"}, arrays)])
    assert text == "race: thread 3 of the grid reads element 1 of a, which thread 4, of another block, writes"


def test_a_script_is_python_that_ruff_reads(cudalint: Cudalint, tmp_path: Path) -> None:
    done = cudalint("confirm", "--backend", "sim", "--isolated", str(SHORT), str(BARRIER), "--repro", str(tmp_path))
    assert done.returncode == 1
    written = sorted(tmp_path.glob("*.py"))
    assert len(written) == 2
    for path in written:
        text = path.read_text()
        tree = ast.parse(text)
        assert "EXPERIMENT" in text
        assert "void run(" not in text  # nothing of the host
        assert "cudalint" not in {
            a.name.partition(".")[0] for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names
        }
    ast.parse(script(None))


@pytest.mark.skipif(importlib.util.find_spec("cupy") is not None, reason="CuPy is installed")
def test_no_cupy_is_said_in_one_line(cudalint: Cudalint, tmp_path: Path) -> None:
    done = cudalint("confirm", "--backend", "cupy", "--isolated", str(SHORT))
    assert done.returncode == 2
    assert done.stderr.startswith("cudalint: --backend cupy: CuPy is not installed: pip install cupy-cuda")
    assert done.stderr.count("\n") == 1
    cudalint("confirm", "--backend", "sim", "--isolated", str(SHORT), "--repro", str(tmp_path))
    (path,) = tmp_path.glob("*.py")
    ran = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr.count("\n")) == (2, 1)
    assert "pip install cupy-cuda" in ran.stderr


def _nvrtc() -> Callable[[str, str], str] | None:
    """Compiles a source with a name expression; what it gives are the errors."""
    spec = importlib.util.find_spec("nvidia")
    if spec is None:
        return None
    roots = [os.path.join(p, "cu13") for p in spec.submodule_search_locations or ()]
    found = [x for r in roots for x in glob.glob(os.path.join(r, "lib", "libnvrtc.so.*"))]
    includes = [os.path.join(r, "include") for r in roots] + ["/usr/local/cuda/include"]
    includes = [x for i in includes for x in (i, os.path.join(i, "cccl")) if os.path.isdir(x)]
    if not found or not any(os.path.exists(os.path.join(i, "cooperative_groups.h")) for i in includes):
        return None
    for library in glob.glob(os.path.join(os.path.dirname(found[0]), "libnvrtc-builtins.so.*")):
        ctypes.CDLL(library, ctypes.RTLD_GLOBAL)
    library = ctypes.CDLL(found[0])
    words = ["--gpu-architecture=sm_90", "-std=c++17", "-default-device", "--device-int128", "-w"]
    options = [x.encode() for x in (*words, *(f"-I{i}" for i in includes))]

    def compile_source(source: str, name: str) -> str:
        program = ctypes.c_void_p()
        assert library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"slice.cu", 0, None, None) == 0
        library.nvrtcAddNameExpression(program, name.encode())
        failed = library.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
        size = ctypes.c_size_t()
        library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        library.nvrtcGetProgramLog(program, log)
        library.nvrtcDestroyProgram(ctypes.byref(program))
        return log.value.decode() if failed else ""

    return compile_source


NVRTC = _nvrtc()
#: Templates that no launch binds: what is taken in place of their parameters does not fit; and kernels of a lambda,
#: whose type only the host function can name.
OPEN = {"faulty-template.cu", "sound-functor.cu", "faulty-template-loop.cu", "sound-template-loop.cu",
        "faulty-unseen-constant.cu", "sound-unseen-constant.cu", "sound-member-of-type-parameter.cu",
        "faulty-lambda-body.cu", "sound-lambda-body.cu"}  # fmt: skip


@pytest.mark.skipif(NVRTC is None, reason="no NVRTC with headers: pip install nvidia-cuda-nvrtc nvidia-cuda-runtime")
@pytest.mark.parametrize("folder", sorted(p.name for p in (ROOT / "fixtures").iterdir() if p.name[:2] in ("CL", "pr")))
def test_slices_compile(folder: str) -> None:
    assert NVRTC is not None
    project = Project(str(ROOT / "fixtures" / folder))
    for path in sorted((ROOT / "fixtures" / folder).glob("*.cu")):
        for unit in analyse(project, str(path), Config(project.root)):
            if isinstance(unit, Kernel) and unit.is_kernel and path.name not in OPEN:
                made = slice_of(unit, Watch(unit))
                assert NVRTC(made.source, made.name) == "", path
                assert NVRTC(f"{made.includes}{PRELUDE}{DEVICE}{made.watched}", made.name) == "", path


def _gpu() -> str | None:
    """Why there is no GPU to run on."""
    from cudalint.confirm.child import Cannot, load

    try:
        load()
    except Cannot as why:
        return str(why)
    return None


NO_GPU = _gpu()


@pytest.mark.gpu
@pytest.mark.skipif(NO_GPU is not None, reason=f"no GPU: {NO_GPU}")
@pytest.mark.parametrize("path", [SHORT, BARRIER], ids=lambda p: p.name)
def test_confirmed_on_the_gpu(path: Path, cudalint: Cudalint, tmp_path: Path) -> None:
    done = cudalint("confirm", "--backend", "cupy", "--isolated", str(path), "--repro", str(tmp_path))
    assert done.returncode == 1, done.stderr
    assert "1 confirmed" in done.stdout
    (written,) = tmp_path.glob("*.py")
    assert subprocess.run([sys.executable, str(written)], capture_output=True, check=False).returncode == 1


def test_a_sum_in_an_inner_loop_is_summed(tmp_path: Path) -> None:
    """Found by the GPU: of a loop whose iterations run as lanes, an inner loop's last term alone was kept."""
    from cudalint.ir.types import F32
    from cudalint.sim import Buffer, Launch, run

    path = tmp_path / "sum.cu"
    path.write_text(
        "__global__ void d(const float *m, float *out, int n) {\n    float s = 0;\n    for (int q = 0; q < n; ++q)\n"
        "        for (int c = 0; c < 4; ++c) s += m[4 * q + c];\n    out[0] = s;\n}\n"
    )
    (unit,) = analyse(Project(str(tmp_path)), str(path), Config(str(tmp_path)))
    assert isinstance(unit, Kernel)
    buffers = [Buffer("m", F32, 64, "index"), Buffer("out", F32, 1, 0)]
    seen = run(Launch(unit.function, (1, 1, 1), (1, 1, 1), [*buffers, 16]))
    assert seen.buffers["out"].values()[0] == sum(range(64))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
