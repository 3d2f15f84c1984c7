"""``cudalint confirm``: what a kernel's own tests say of how large its buffers are."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from cudalint.config import Configs
from cudalint.confirm.runner import Limits, trial_of
from cudalint.engine import Worker
from cudalint.select import Layer
from cudalint.walk import walk

if TYPE_CHECKING:
    from conftest import Cudalint

LAUNCH = """
void run(const float *a, float *o, int n) { if (n <= 0) return; k<<<n / 256 + (n % 256 != 0), 256>>>(a, o, n); }
"""
SOUND = [
    "if (i < n && i >= 0) o[i] = 1.f;",
    "if (i >= 0 && i < n) o[i] = 1.f;",
    "if (i >= n || i < 0) return; o[i] = 1.f;",
    "if (!(i < n)) return; if (i >= 0) o[i] = 1.f;",
    "if (i < n) { if (i >= 0) o[i] = 1.f; }",
    "while (i < n && i >= 0) { o[i] = 1.f; i += gridDim.x * blockDim.x; }",
    "if (i < n && i > 5) o[i] = 1.f;",
    "if (i < 2 * n && i < n) o[i] = 1.f;",
    "int j = n - 1 - i; if (j >= 0) o[j] = 1.f;",
    "int j = n - 1 - i; if (j >= 0 && j < n) o[j] = 1.f;",
    "if (i < n - 1 && i > 0) o[i] = a[i - 1] + a[i] + a[i + 1];",
]


def _kernel(body: str) -> str:
    index = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
    return f"__global__ void k(const float *a, float *o, int n) {{ {index} {body} }}{LAUNCH}"


@pytest.mark.parametrize("code", ["CL209", "CL214", "CL402"])
@pytest.mark.parametrize("body", SOUND)
def test_sound(write: Any, body: str, code: str) -> None:
    """A lower bound is no extent, and of several upper bounds the least counts."""
    targets, _, _ = walk(
        [str(write("k.cu", _kernel(body)))], Configs(Layer("the test"), isolated=True), force_exclude=False
    )
    worker = Worker({}, None, frozenset(target.path for target in targets))
    ((proof,),) = trial_of(code, None, worker, targets, Limits())
    assert proof.evidence.verdict == "not-reproduced", proof.evidence


def test_neighbour(write: Any, cudalint: Cudalint) -> None:
    """It is the neighbour that lies outside, not the element whose index is tested from both sides."""
    write("k.cu", _kernel("if (i < n && i > 0) o[i] = a[i - 1] + a[i + 1];"))
    done = cudalint("confirm", "k.cu", "--backend", "sim", "--select", "CL402", "--output-format", "json")
    (found,) = json.loads(done.stdout)
    assert found["evidence"]["verdict"] == "confirmed"
    assert "reads `a[257]`, of 257 elements" in found["evidence"]["reason"]
    assert found["evidence"]["prediction"]["held"] is True


def test_threads_meet_in_a_buffer_that_is_too_small_all_the_same(write: Any, cudalint: Cudalint) -> None:
    """An allocation of one element is another finding's: how they meet is judged with room for what they touch."""
    write(
        "shift.cu",
        """\
__global__ void shift(int *a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n - 1) a[i] = a[i + 1];
}
int main() {
    int *p;
    cudaMalloc(&p, sizeof(int));
    shift<<<8, 128>>>(p, 1000);
}
""",
    )
    done = cudalint("confirm", "shift.cu", "--select", "CL407", "--output-format", "json")
    assert [x["evidence"]["verdict"] for x in json.loads(done.stdout)] == ["confirmed"]


def test_indices_that_are_data_are_within_a_buffer_of_their_size(write: Any, cudalint: Cudalint) -> None:
    """They are filled to be in range, which is said; what they are for is as large as that, not as their type."""
    path = write(
        "k.cu",
        "__global__ void k(const int *order, float *a, int n) {\n    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "    if (i < n) a[(int)order[i]] = 1;\n}\n"
        "void run(const int *order, float *a, int n) { if (n > 0) k<<<n / 256 + 1, 256>>>(order, a, n); }\n",
    )
    done = cudalint("confirm", "--backend", "sim", "--as", "CL209", "k.cu")
    assert "CL209 on k: not reproduced: the indices that `order` holds were made to lie within range\n" in done.stdout
    targets, _, _ = walk([str(path)], Configs(Layer("the test"), isolated=True), force_exclude=False)
    worker = Worker({}, None, frozenset(target.path for target in targets))
    ((proof,),) = trial_of("CL209", None, worker, targets, Limits(sizes=(611, 5000)))
    extents = [[x.extent for x in o.setups[0].args[:2]] for o in proof.outcomes]
    assert extents == [[611, 611], [5000, 5000]]


def test_a_tested_ticket_is_as_large_as_its_test_lets_it_be(write: Any) -> None:
    """Rows that threads draw from a counter, once more after a barrier: there are as many as the kernel was told."""
    path = write(
        "k.cu",
        "__global__ void k(float *o, int *head, int rows) {\n    __shared__ int ticket;\n"
        "    if (threadIdx.x == 0) ticket = atomicAdd(head, 1);\n    __syncthreads();\n"
        "    if (ticket >= rows) return;\n    __syncthreads();\n    o[(size_t)ticket * 256 + threadIdx.x] = 1.f;\n}\n"
        "void run(float *o, int *head, int rows) { if (rows > 0) k<<<rows, 256>>>(o, head, rows); }\n",
    )
    targets, _, _ = walk([str(path)], Configs(Layer("")), force_exclude=False)
    worker = Worker({}, None, frozenset(target.path for target in targets))
    ((proof,),) = trial_of("CL301", None, worker, targets, Limits(sizes=(3, 611)))
    assert [o.setups[0].args[0].extent for o in proof.outcomes] == [3 * 256, 611 * 256]


def test_an_element_that_is_larger_than_a_page(write: Any, cudalint: Cudalint) -> None:
    """What a row of a huge array holds is made up as it is touched, a page at a time."""
    write(
        "k.cu", "__global__ void k(float (*a)[1 << 30], int n) { a[0][blockIdx.x * blockDim.x + threadIdx.x] += 1; }\n"
    )
    done = cudalint("confirm", "--backend", "sim", "--as", "CL308", "k.cu")
    assert "inconclusive" not in done.stdout
    assert "ValueError" not in done.stdout


@pytest.mark.parametrize(("room", "verdict"), [("n", "confirmed at n = 1"), ("2 * n", "not reproduced")])
def test_parameters_that_alias_are_one_buffer(write: Any, cudalint: Cudalint, room: str, verdict: str) -> None:
    """What the launch makes point into memory that another parameter points to begins where it says."""
    write(
        "k.cu",
        "__global__ void k(const float *a, float *b, int n) {\n    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "    if (i < n) b[i] = a[i];\n}\n"
        f"void run(int n) {{\n    float *x;\n    cudaMalloc(&x, {room} * sizeof(float));\n"
        "    k<<<(n + 255) / 256, 256>>>(x, x + n, n);\n}\n",
    )
    done = cudalint("confirm", "--backend", "sim", "--as", "CL209", "k.cu")
    assert f"CL209 on k: {verdict}" in done.stdout
