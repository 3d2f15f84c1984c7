"""``cudalint debug``: what each stage says of a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from conftest import Cudalint

KERNEL = """
__global__ void scale(float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    __syncthreads();
    x[i] *= 2.0f;
}
void go(float* x, int n) { scale<<<n / 256 + (n % 256 != 0), 256>>>(x, n); }
"""


@pytest.fixture
def shown(cudalint: Cudalint, write: Callable[..., Path]) -> Callable[[str], str]:
    write("k.cu", KERNEL)

    def show(stage: str) -> str:
        result = cudalint("debug", "--stage", stage, "k.cu")
        assert result.returncode == 0, result.stderr
        return result.stdout

    return show


def test_facts_are_indices_conditions_and_launches(shown: Callable[[str], str]) -> None:
    out = shown("facts")
    assert "kernel scale, visible launches: 1" in out
    assert "updates global x[blockIdx.x * blockDim.x + threadIdx.x] where" in out
    assert "grid (n / 256 + (n % 256 != 0), 1, 1), block (256, 1, 1)" in out


def test_uniformity_tells_what_threads_share(shown: Callable[[str], str]) -> None:
    out = shown("uniformity")
    assert "barrier __syncthreads" in out
    assert "n <= blockIdx.x * blockDim.x + threadIdx.x: thread-dependent" in out


def test_a_launch_beside_the_file_is_seen_through_the_declaration(
    cudalint: Cudalint, write: Callable[..., Path]
) -> None:
    write("kernels.cuh", "#pragma once\n__global__ void clear(float *x, int n);\n")
    write("launch.cu", '#include "kernels.cuh"\nvoid run(float *x, int n) { clear<<<(n + 255) / 256, 256>>>(x, n); }\n')
    write(
        "kernels.cu",
        '#include "kernels.cuh"\n__global__ void clear(float *x, int n) {\n'
        "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i < n) x[i] = 0;\n}\n",
    )
    assert "kernel clear, visible launches: 1" in cudalint("debug", "--stage", "facts", "kernels.cu").stdout


def test_source_names_the_macros_that_are_taken_as_defined(cudalint: Cudalint, write: Callable[..., Path]) -> None:
    write("k.cu", f"#ifdef WITH_CUDA\n{KERNEL}#endif\n")
    out = cudalint("debug", "--stage", "source", "k.cu").stdout
    assert out.splitlines()[0].endswith("k.cu, device reading, WITH_CUDA taken as defined")
    assert "x[i] *= 2.0f;" in out
