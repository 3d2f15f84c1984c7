"""An experiment runs a kernel as the host launches it, and where it cannot, nothing is shown."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Cudalint


def _of(cudalint: Cudalint, folder: Path, source: str, code: str, *more: str) -> dict[str, Any]:
    """The evidence of one kernel that is put through the experiment of a rule."""
    file = folder / "k.cu"
    file.write_text(source, encoding="utf-8")
    done = cudalint("confirm", "--as", code, *more, "--backend", "sim", "--output-format", "json", str(file))
    (row,) = json.loads(done.stdout)
    found: dict[str, Any] = row["evidence"]
    assert done.returncode == int(found["verdict"] == "confirmed"), done.stderr
    return found


HALF = """\
__global__ void scale(float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= 2.0f;
}
"""
MACRO = """\
#define CHECK(call) do { %s if (%s) { fprintf(stderr, "failed\\n"); exit(1); } } while (0)
"""
HOST = """\
void run(float *x, int n) {
    if (n <= 0) return;
    CHECK(%s(0)); CHECK(%s(1)); CHECK(%s(2)); CHECK(%s(3)); CHECK(%s(4)); CHECK(%s(5));
    scale<<<n / 256, 256>>>(x, n);
}
"""
WAYS = {
    "a variable": ("cudaError_t e = (call);", "e != cudaSuccess"),
    "auto": ("auto e = (call);", "e != cudaSuccess"),
    "in the test": ("", "cudaError_t e = (call); e != cudaSuccess"),
    "by itself": ("", "(call) != cudaSuccess"),
    "a number": ("int e = (call);", "e != 7"),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("callee", ["cudaSetDevice", "open_device"])
def test_checked_calls_let_the_host_go_on(cudalint: Cudalint, tmp_path: Path, way: str, callee: str) -> None:
    source = MACRO % WAYS[way] + HALF + HOST.replace("%s", callee)
    found = _of(cudalint, tmp_path, source, "CL203", "--sizes", "256,257")
    assert found["verdict"] == "confirmed", found
    assert [case["result"] for case in found["cases"]] == ["ok", "wrong@256"]


def test_no_run_shows_nothing(cudalint: Cudalint, tmp_path: Path) -> None:
    source = HALF + "void run(float *x, int n) { if (n == 4096) scale<<<n / 256, 256>>>(x, n + 1); }\n"
    found = _of(cudalint, tmp_path, source.replace("n == 4096", "n > 100 && n < 100"), "CL203")
    assert found["verdict"] == "inconclusive"


UNSEEN = {
    "in the launch": "void run(float *x, int n) { if (n > 0) scale<<<ceil_div(n, 256), 256>>>(x, n); }\n",
    "in a variable": "void run(float *x, int n) { int blocks = ceil_div(n, 256); scale<<<blocks, 256>>>(x, n); }\n",
    "of two axes": "void run(float *x, int n) { dim3 grid(ceil_div(n, 256), 1); scale<<<grid, 256>>>(x, n); }\n",
    "of nothing": "void run(float *x, int n) { scale<<<blocks(), 256>>>(x, n); }\n",
}


@pytest.mark.parametrize("way", UNSEEN)
def test_a_grid_that_nobody_sees(cudalint: Cudalint, tmp_path: Path, way: str) -> None:
    source = HALF + UNSEEN[way]
    found = _of(cudalint, tmp_path, source, "CL202")
    assert found["verdict"] == "inconclusive"
    assert found["reason"].startswith("the source does not show how large the launch is")
    # What is wrong in any launch is looked for in one that comes to every element.
    source = source.replace("if (i < n) x[i] *= 2.0f", "if (i >= n) return; x[i] *= 2.0f; __syncthreads()")
    found = _of(cudalint, tmp_path, source, "CL301")
    assert found["verdict"] == "confirmed"


def test_memory_whose_size_nobody_sees(cudalint: Cudalint, tmp_path: Path) -> None:
    host = "{ float *x; cudaMalloc(&x, padded(n * sizeof(float))); scale<<<(n + 255) / 256, 256>>>(x, n); }\n"
    assert _of(cudalint, tmp_path, f"{HALF}void run(int n) {host}", "CL209")["verdict"] == "not-reproduced"


LINES = {
    "from an element on": ("first + i < n", "c[first + i] = 1.0f"),
    "of one axis": ("i < n", "c[i] = 1.0f"),
    "every second": ("i < n && j < first", "c[2 * (j * n + i)] = 1.0f"),
    "behind others": ("i < n && j < first", "c[j * n + i + 5] = 1.0f"),
}


@pytest.mark.parametrize("way", LINES)
def test_elements_that_are_no_image(cudalint: Cudalint, tmp_path: Path, way: str) -> None:
    test, store = LINES[way]
    source = f"""\
__global__ void fill(float *c, int first, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y;
    if ({test}) {store};
}}
void run(float *c, int first, int n) {{
    if (first > 0 && n > first) fill<<<dim3((n + 15) / 16, (n + 15) / 16), dim3(16, 16)>>>(c, first, n);
}}
"""
    assert _of(cudalint, tmp_path, source, "CL503")["verdict"] == "not-reproduced"


def test_what_an_index_counts(cudalint: Cudalint, tmp_path: Path) -> None:
    file = tmp_path / "k.cu"
    early = HALF.replace("if (i < n) x[i] *= 2.0f", "if (i >= n) return; x[i] *= 2.0f; __syncthreads()")
    half = HALF.replace("scale", "half")
    host = "void run(float *x, int n) { if (n > 0) half<<<n / 256 + 1, 128>>>(x, n); }\n"
    file.write_text(early + half + host, encoding="utf-8")
    shown = cudalint(
        "confirm", "--as", "CL301", "--kernel", "scale", "--sizes", "255", "--backend", "sim", str(file)
    ).stdout
    assert "wrong threads: 255 (block 0, thread 255)" in shown
    assert "n = 255  wrong@thread 255\n" in shown
    shown = cudalint(
        "confirm", "--as", "CL202", "--kernel", "half", "--sizes", "255", "--backend", "sim", str(file)
    ).stdout
    assert "wrong elements: 128 " in shown
    assert "n = 255  wrong@128\n" in shown
