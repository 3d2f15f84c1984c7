"""How long the simulator takes: a vector add of a million threads, a tiled matrix multiply, the fixtures' experiments.

python benchmarks/simulate.py
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cudalint.ir.types import F32
from cudalint.project import Project
from cudalint.sim import Buffer, Launch, run

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parents[1]
SOURCE = """
__global__ void add(const float* a, const float* b, float* c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}

__global__ void multiply(const float* a, const float* b, float* c, int n) {
    __shared__ float s[16][16], t[16][16];
    int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
    float sum = 0.0f;
    for (int k = 0; k < n; k += 16) {
        s[threadIdx.y][threadIdx.x] = a[y * n + k + threadIdx.x];
        t[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * n + x];
        __syncthreads();
        for (int j = 0; j < 16; ++j) sum += s[threadIdx.y][j] * t[j][threadIdx.x];
        __syncthreads();
    }
    c[y * n + x] = sum;
}
"""


def best(launch: Launch, runs: int = 5) -> float:
    """The shortest of some runs, in seconds."""
    times = []
    for _ in range(runs):
        began = time.perf_counter()
        observation = run(launch)
        times.append(time.perf_counter() - began)
        assert observation.end == "done", observation.reason
    return min(times)


def buffers(extent: int) -> Sequence[Any]:
    return [Buffer(name, F32, extent, "hash") for name in "abc"]


def experiments() -> list[float]:
    """Seconds of every experiment that the fixtures' findings get, ascending."""
    from cudalint.confirm.runner import Limits, confirm
    from cudalint.engine import Options, check

    result = check([str(ROOT / "fixtures")], Options(jobs=1))
    began: list[float] = []
    confirm(result, result.worker, result.targets, Limits(), lambda _: began.append(time.perf_counter()))
    began.append(time.perf_counter())
    return sorted(later - earlier for earlier, later in pairwise(began))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "k.cu"
        path.write_text(SOURCE, encoding="utf-8")
        kernels = {f.name: f.lower() for f in Project(folder).file(str(path)).declarations.functions}
        n = 1_000_000
        add = Launch(
            kernels["add"], ((n + 255) // 256, 1, 1), (256, 1, 1), [*buffers(n), n], watch=frozenset({"writes"})
        )
        multiply = Launch(kernels["multiply"], (16, 16, 1), (16, 16, 1), [*buffers(256 * 256), 256])
        print(f"vector add, 1,000,000 threads      {best(add):6.3f} s   (aim 0.05)")
        print(f"tiled multiply 256 x 256, races    {best(multiply):6.3f} s   (aim 0.5)")
    times = experiments()
    print(f"median of {len(times)} experiments          {statistics.median(times):6.3f} s   (aim 0.3)")
    print(f"slowest experiment                 {times[-1]:6.3f} s")


if __name__ == "__main__":
    sys.exit(main())
