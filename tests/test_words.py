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


LAMBDA = """
template <typename F>
void each(F f) { f(); }
__global__ void one(float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = 1.0f;
}
namespace app {
void fill(float* x, int n) {
    each([&] { one<<<n / 256, 256>>>(x, n); });
}
}
"""


def test_a_launch_in_a_lambda_stands_in_the_function_around_it(cudalint: Cudalint, write: Callable[..., Path]) -> None:
    write("k.cu", LAMBDA)
    (finding,) = cudalint.json("--select", "CL203", "k.cu")
    assert finding["function"] == "app::fill"
    assert "called here from fill" in [x["message"] for x in finding["related"]]


def test_a_size_without_a_name_is_what_the_source_has(cudalint: Cudalint, write: Callable[..., Path]) -> None:
    write("k.cu", """
        struct Shape { long operator[](int axis) const; };
        struct Tensor { float* data; Shape shape; };
        __global__ void one(float* x, int n) {
            int i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i < n) x[i] = 1.0f;
        }
        void fill(const Tensor* to) {
            one<<<to->shape[1] / 256 + 1, 256>>>(to->data, to->shape[1]);
        }""")  # fmt: skip
    (finding,) = cudalint.json("--select", "CL106", "k.cu")
    assert finding["message"].startswith("`to->shape[1]` is a 64-bit count cut to 32 bits")
    assert set(finding["witness"]["sizes"]) == {"to->shape[1]"}


def test_a_floored_block_is_no_floored_grid(cudalint: Cudalint, write: Callable[..., Path]) -> None:
    write("k.cu", """
        __global__ void fours(float* x, int n) {
            int i = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
            if (i < n) *reinterpret_cast<float4*>(x + i) = float4();
        }
        void fill(float* x, int rows, int width) {
            if (width / 4 <= 1024) fours<<<rows, width / 4>>>(x, rows * width);
        }""")  # fmt: skip
    (finding,) = cudalint.json("--select", "CL203", "k.cu")
    assert finding["message"].startswith("the launch of fours rounds the threads of a block down: at ")


def test_a_name_of_both_sides_of_a_launch_is_told_apart(cudalint: Cudalint, write: Callable[..., Path]) -> None:
    write("k.cu", """
        __global__ void copy(float4* y, const float4* x, int n) {
            int i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i < n) y[i] = x[i];
        }
        void run(float* y, const float* x, int n) {
            copy<<<n / 256 + 1, 256>>>((float4*)y, (const float4*)x, n / 4);
        }""")  # fmt: skip
    (finding,) = cudalint.json("--select", "CL212", "k.cu")
    assert "at n = 5 (1 in the kernel) element 4 of 5" in finding["message"]


def test_a_case_beside_the_launches_has_no_grid(cudalint: Cudalint, write: Callable[..., Path]) -> None:
    write(
        "k.cu",
        """
        __global__ void tile(float* y, const float* x, int n) {
            __shared__ float part[256];
            int i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i >= n) return;
            part[threadIdx.x] = x[i];
            __syncthreads();
            y[i] = part[255 - threadIdx.x];
        }
        void run(float* y, const float* x) { tile<<<4, 256>>>(y, x, 1024); }""",
    )
    (finding,) = cudalint.json("--select", "CL301", "k.cu")
    assert "no visible launch comes to it" in finding["message"]
    assert finding["witness"]["grid"] is None
