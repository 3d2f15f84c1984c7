"""What a message calls things: names that the source has, places that can be found, threads that are the ones meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from conftest import Cudalint


def test_coordinates_are_called_what_the_tests_call_them(cudalint: Cudalint, write: Callable[..., Path]) -> None:
    write("k.cu", """
        __global__ void scale(float* out, const float* y, int cols, int rows) {
            int i = blockIdx.x * blockDim.x + threadIdx.x;
            int j = blockIdx.y * blockDim.y + threadIdx.y;
            int at = j * cols + i;
            if (i < cols && j < rows) out[at] = 2.0f * y[at];
        }
        __global__ void rows_first(float* out, int cols, int rows) {
            int col = blockIdx.x * blockDim.x + threadIdx.x;
            int row = blockIdx.y * blockDim.y + threadIdx.y;
            if (row >= rows) return;
            int at = row * cols + col;
            if (col >= cols) return;
            out[at] = 1.0f;
        }""")  # fmt: skip
    scale, first = cudalint.json("--select", "CL504", "k.cu")
    assert scale["message"].startswith("`at` is formed before `i` and `j` are tested:")
    assert first["message"].startswith("`at` is formed before `col` is tested:")


BARRIER = """
__global__ void __launch_bounds__(256) tile(const float* x, float* y, int m, int n) {
    int row = blockIdx.y * 128 + threadIdx.x / 2;
    int col = blockIdx.x * 128 + threadIdx.x % 16 * 8;
    if (row >= m || col >= n) return;
    float v = x[row * n + col];
    __syncthreads();
    y[row * n + col] = v;
}
void run(const float* x, float* y, int m, int n) {
    tile<<<dim3((n + 127) / 128, (m + 127) / 128), 256>>>(x, y, m, n);
}
"""


def test_a_block_of_a_plane_is_told_by_two_coordinates(cudalint: Cudalint, write: Callable[..., Path]) -> None:
    write("k.cu", BARRIER)
    (finding,) = cudalint.json("--select", "CL301", "k.cu")
    assert finding["witness"]["thread"]["block"] == [2, 2, 0]
    assert set(finding["witness"]["values"]) == {
        "threads of block (2, 2) that arrive",
        "threads of block (2, 2) that do not",
    }


def test_a_line_of_another_file_comes_with_its_name(cudalint: Cudalint, write: Callable[..., Path]) -> None:
    write(
        "sum.cuh",
        """
        #pragma once
        inline __device__ float first_of(float v, int warp) {
            __shared__ float part[8];
            if (threadIdx.x % 32 == 0) part[warp] = v;
            __syncthreads();
            return part[0] + part[7];
        }""",
    )
    write(
        "k.cu",
        """
        #include "sum.cuh"
        __global__ void __launch_bounds__(256) total(const float* x, float* y, int n) {
            int i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i >= n) return;
            y[i] = first_of(x[i], threadIdx.x / 32);
        }""",
    )
    (finding,) = cudalint.json("--select", "CL301", "k.cu")
    assert "__syncthreads on line 6 of sum.cuh: line 7 of sum.cuh reads positions of `part`" in finding["message"]
