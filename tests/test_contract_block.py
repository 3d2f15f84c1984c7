"""The block that a kernel needs: what facts say of it, and that an experiment's own launches keep to it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from cudalint.config import Config
from cudalint.contracts.block import Shape, shape
from cudalint.facts import analyse
from cudalint.facts.model import Kernel
from cudalint.project import Project

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Cudalint

TREE = """\
__global__ void reduce(const float *x, float *sums, int n) {
    extern __shared__ float part[];
    int me = threadIdx.x;
    float own = 0.0f;
    for (int i = blockIdx.x * blockDim.x + me; i < n; i += blockDim.x * gridDim.x) own += x[i];
    part[me] = own;
    __syncthreads();
    for (int reach = blockDim.x / 2; reach > 0; reach >>= 1) {
        if (me < reach) part[me] += part[me + reach];
        __syncthreads();
    }
    if (me == 0) atomicAdd(sums, part[0]);
}
"""
WARPS = """\
__device__ float over_warp(float v) {
    for (int o = warpSize / 2; o > 0; o /= 2) v += __shfl_down_sync(0xffffffffu, v, o);
    return v;
}
__global__ void reduce(const float *x, float *sums, int n) {
    __shared__ float each[32];
    float own = 0.0f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) own += x[i];
    own = over_warp(own);
    if (threadIdx.x % 32 == 0) each[threadIdx.x / 32] = own;
    __syncthreads();
    own = threadIdx.x < blockDim.x / 32 ? each[threadIdx.x] : 0.0f;
    if (threadIdx.x < 32) own = over_warp(own);
    if (threadIdx.x == 0) atomicAdd(sums, own);
}
"""
DOUBLING = """\
__global__ void f(const float *x, float *sums, int n) {
    __shared__ float s[128];
    unsigned t = threadIdx.x;
    s[t] = t < n ? x[t] : 0.0f;
    __syncthreads();
    for (unsigned k = 1; k < blockDim.x; k *= 2) {
        if (t % (2 * k) == 0) s[t] += s[t + k];
        __syncthreads();
    }
    if (t == 0) sums[0] = s[0];
}
"""
TILES = """\
#define TILE 32
__global__ void f(const float *x, float *y, int n) {
    __shared__ float s[TILE][TILE + 1];
    int c = blockIdx.x * TILE + threadIdx.x, r = blockIdx.y * TILE + threadIdx.y;
    for (int j = 0; j < TILE; j += 8) s[threadIdx.y + j][threadIdx.x] = x[(r + j) * n + c];
    __syncthreads();
    for (int j = 0; j < TILE; j += 8)
        y[(blockIdx.x * TILE + threadIdx.y + j) * n + blockIdx.y * TILE + threadIdx.x] = s[threadIdx.x][threadIdx.y + j];
}
"""
MAP = "__global__ void f(float *x, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] = 0; }\n"


def _shape(folder: Path, source: str) -> Shape:
    path = folder / "k.cu"
    path.write_text(source, encoding="utf-8")
    units = analyse(Project(str(folder)), str(path), Config(str(folder)))
    return next(shape(unit.flow) for unit in units if isinstance(unit, Kernel) and unit.is_kernel)


@pytest.mark.parametrize(
    ("source", "asked", "block"),
    [
        (MAP, (1, 1, 1), (1, 1, 1)), (MAP, (100, 1, 1), (100, 1, 1)),
        (TREE, (1, 1, 1), (1, 1, 1)), (TREE, (100, 1, 1), (128, 1, 1)),
        (WARPS, (1, 1, 1), (32, 1, 1)), (WARPS, (100, 1, 1), (128, 1, 1)),
        (DOUBLING, (100, 1, 1), (128, 1, 1)), (DOUBLING, (256, 1, 1), (128, 1, 1)),
        (TILES, (16, 16, 1), (32, 8, 1)),
    ],
)  # fmt: skip
def test_fit(tmp_path: Path, source: str, asked: Any, block: Any) -> None:
    assert _shape(tmp_path, source).fit(asked) == block


def test_a_block_never_holds_more_than_a_launch_takes() -> None:
    assert Shape(multiple=(32, 1, 1)).fit((16, 64, 4)) == (32, 32, 1)
    assert Shape(together=32).fit((5, 3, 1)) == (32, 3, 1)


@pytest.mark.parametrize("source", [TREE, WARPS])
def test_sound_reductions(write: Any, cudalint: Cudalint, source: str) -> None:
    """In none of the course's launches, and beside no launch at all, is a sound reduction shown to be faulty."""
    call = "void run(float *x, float *s, int n) { reduce<<<160, 256, 1024>>>(x, s, n); }\n"
    for code, text in (("CL201", source + call), ("CL202", source + call), ("CL301", source)):
        write("reduce.cu", text)
        sizes = ("--sizes", "1,611,4097") if code != "CL301" else ()
        done = cudalint("confirm", "reduce.cu", "--as", code, *sizes, "--output-format", "json")
        (found,) = json.loads(done.stdout)
        assert found["evidence"]["verdict"] == "not-reproduced", found
        launches = {case["launch"] for case in found["evidence"]["cases"]}
        if code != "CL301":
            assert ("<<<1,1>>>" in launches) is (source is TREE)
