"""The proof of a finding is a fault at its own place, or the words say that it is at another."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from cudalint.config import Config
from cudalint.confirm.command import proved
from cudalint.confirm.oracle import Flagged
from cudalint.confirm.runner import Limits, Subject, proofs
from cudalint.engine import Options, check
from cudalint.facts import analyse
from cudalint.facts.model import Kernel
from cudalint.project import Project
from cudalint.select import Layer

if TYPE_CHECKING:
    from conftest import Cudalint

    from cudalint.findings import Evidence

ELSEWHERE = ", which is not the access that is flagged"


def _evidence(folder: Path, source: str, *codes: str) -> dict[tuple[int, str], Evidence]:
    """By line and text of the place."""
    (folder / "k.cu").write_text(source, encoding="utf-8")
    result, _ = proved(check([str(folder)], Options(Layer("the test", codes), isolated=True)), Limits())
    lines = source.splitlines()
    return {
        (f.span.line, lines[f.span.line - 1][f.span.column - 1 : f.span.end_column - 1]): f.evidence
        for f in result.findings
    }


CALLS = """\
#define N 100
__global__ void f(float *x, int n) { int i = blockIdx.x * 256 + threadIdx.x; if (i < n) x[i] = 1.0f; }
void run(float *x, float *h, int n, int m) {
    if (n > 0) f<<<(n - 1) / 256 + 1, 256>>>(x, n);
    if (m > 0) f<<<(m - 1) / 256 + 1, 256>>>(h, m);
    cudaMemcpy(x, h, n, cudaMemcpyDefault);
    cudaMemset(h, 0, m);
}
"""


def test_each_call_is_shown_by_itself(tmp_path: Path) -> None:
    found = _evidence(tmp_path, CALLS, "CL217")
    reasons = {line: (e.reason or "").split()[0] for (line, _), e in found.items()}
    assert reasons == {6: "cudaMemcpy", 7: "cudaMemset"}
    assert all(e.prediction is not None and e.prediction.held for e in found.values())


ROWS = """\
__global__ void f(const float *u, float *v, int nx, int ny) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y;
    int k = j * nx + i;
    if (i < nx && j < ny) v[k] = u[k - 1] + u[k + 1];
}
void run(const float *u, float *v, int nx, int ny) {
    if (nx > 0 && ny > 0) f<<<dim3((nx + 15) / 16, (ny + 15) / 16), dim3(16, 16)>>>(u, v, nx, ny);
}
"""


def test_accesses_of_one_line(tmp_path: Path) -> None:
    """The plane is as large as its rows and columns are, and each neighbour leaves it by itself."""
    found = _evidence(tmp_path, ROWS, "CL403")
    assert {text: e.first_wrong for (_, text), e in found.items()} == {"u[k - 1]": -1, "u[k + 1]": 5}
    assert "`u[5]`, of 5 elements" in (found[4, "u[k + 1]"].reason or "")


HALO = """\
__global__ void f(const int *in, int *out, int n) {
    int g = threadIdx.x + blockIdx.x * blockDim.x;
    out[g] = in[g];
    if (threadIdx.x < 3) out[g] += in[g + 128] + in[g - 3];
}
void run(const int *in, int *out, int n) { if (n > 0) f<<<(n + 127) / 128, 128>>>(in, out, n); }
"""


def test_another_access_is_said_to_be_another(tmp_path: Path) -> None:
    """There is room for `in[g + 128]`, so that `in[g]` does not leave the array in the one run that is predicted."""
    found = _evidence(tmp_path, HALO, "CL209")
    assert (found[3, "in[g]"].reason or "").endswith(f"writes `out[1]`, of 1 element (line 3){ELSEWHERE}")
    found = _evidence(tmp_path, HALO.replace("out[g] =", "if (g < n) out[g] ="), "CL209")
    assert ELSEWHERE not in (found[4, "in[g + 128]"].reason or "")


def test_a_prediction_that_does_not_hold_says_why(write: Any, cudalint: Cudalint) -> None:
    write("k.cu", HALO)
    shown = cudalint("confirm", "--select", "CL209", "k.cu").stdout
    assert "did not hold, another element, thread or access is wrong in that run" in shown


MAXIMUM = """\
#include <math.h>
__global__ void largest(const float *in, float *out, int n) {
    __shared__ float s[256];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    s[t] = i < n ? in[i] : -INFINITY;
    __syncthreads();
    for (int k = 128; k > 0; k /= 2) {
        if (t < k) s[t] = fmaxf(s[t], s[t + k]);
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = s[0];
}
void run(const float *in, float *out, int n) { if (n > 0) largest<<<(n - 1) / 128 + 1, 128>>>(in, out, n); }
"""


def test_memory_that_nothing_has_written_is_no_wrong_identity(write: Any, cudalint: Cudalint) -> None:
    write("k.cu", MAXIMUM)
    result = cudalint("confirm", "--as", "CL401", "k.cu")
    assert "inconclusive: what is read before anything has written it" in result.stdout
    write("k.cu", MAXIMUM.replace("<<<(n - 1) / 128 + 1, 128>>>", "<<<(n - 1) / 256 + 1, 256>>>"))
    assert "not reproduced" in cudalint("confirm", "--as", "CL401", "k.cu").stdout


TILED = Path(__file__).parents[1] / "fixtures" / "CL209-missing-bounds-guard" / "faulty-loop-of-tiles.cu"


def test_a_loop_that_makes_no_pass_shows_nothing(tmp_path: Path) -> None:
    """At less than a tile nothing is read, and rows past the end are no elements of the rest."""
    found = _evidence(tmp_path, TILED.read_text(encoding="utf-8"), "CL209", "CL215")
    for evidence in found.values():
        assert evidence.prediction is not None
        assert (evidence.verdict, evidence.sizes, evidence.prediction.sizes) == ("confirmed", {"n": 17}, {"n": 17})
        assert evidence.cases[0].result == "ok"
    ((_, rest),) = [(k, e) for k, e in found.items() if "for" in k[1]]
    assert rest.first_wrong == 17 * 17 - 1
    assert rest.prediction is not None
    assert rest.prediction.held


def test_a_kernel_by_itself_shows_nothing_of_launches(write: Any, cudalint: Cudalint) -> None:
    """How large an array is, the launch says: a kernel that nobody is seen to launch is neither sound nor faulty."""
    kernel = "__global__ void f(float *x, int n) { int i = blockIdx.x * 256 + threadIdx.x; if (i <= n) x[i] = 1; }\n"
    launch = "void run(float *x, int n) { if (n > 0) f<<<(n + 255) / 256, 256>>>(x, n); }\n"
    write("k.cu", kernel)
    for code in ("CL209", "CL214", "CL203", "CL216"):
        assert "inconclusive: no launch is visible" in cudalint("confirm", "--as", code, "k.cu").stdout
    write("k.cu", kernel + launch)
    assert "CL214 on f: confirmed" in cudalint("confirm", "--as", "CL214", "k.cu").stdout
    write("k.cu", (kernel + launch).replace("<= n", "< n"))
    assert "CL214 on f: not reproduced" in cudalint("confirm", "--as", "CL214", "k.cu").stdout


PASSES = """\
__global__ void turns(int *x) {
    __shared__ int s[64];
    int t = threadIdx.x, other = 63 - t;
    s[t] = x[t];
    BARRIER
    for (int k = 0; k < 4; ++k) {
        int v = s[other];
        s[t] = v + k;
    }
    x[t] = s[t];
}
void run(int *x) { turns<<<1, 64>>>(x); }
"""


def _verdicts(folder: Path, source: str) -> dict[tuple[str, int], str]:
    """Of each race that a finding may be of: the reads of line 7 with a write before them, and in the next pass."""
    (folder / "k.cu").write_text(source, encoding="utf-8")
    path = str(folder / "k.cu")
    (kernel,) = (x for x in analyse(Project(str(folder)), path, Config(str(folder))) if isinstance(x, Kernel))
    places = {
        (a.mode, a.fn.file.span(a.node.start, a.node.end).line): (a.fn.file, a.node.start, a.node.end)
        for a in kernel.flow.accesses
        if a.obj.name == "s"
    }
    found = {}
    for code, line in (("CL304", 4), ("CL305", 8)):
        flagged = Flagged(*places["r", 7], related=(places["w", line],))
        for proof in proofs(code, Subject(kernel, tuple(kernel.launches), None, flagged), Limits()):
            found[code, line] = proof.evidence.verdict
    return found


def test_a_race_of_other_accesses_is_no_proof(tmp_path: Path) -> None:
    assert _verdicts(tmp_path, PASSES.replace("BARRIER", "")) == {
        ("CL304", 4): "confirmed", ("CL305", 8): "confirmed",
    }  # fmt: skip
    assert _verdicts(tmp_path, PASSES.replace("BARRIER", "__syncthreads();")) == {
        ("CL304", 4): "not-reproduced", ("CL305", 8): "confirmed",
    }  # fmt: skip


SAME = """\
#include <type_traits>
template <typename T, typename U> __global__ void f(T *x, const U *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i > n) return;
    if (std::SAME) x[i] = y[i];
    else x[i] = y[i] + T(1);
}
void run(float *x, const float *y, const int *z, int n) {
    if (n > 0) f<<<(n + 255) / 256, 256>>>(x, y, n);
    if (n > 0) f<<<(n + 255) / 256, 256>>>(x, z, n);
}
"""


def test_types_that_are_compared_pick_the_branch(write: Any, cudalint: Cudalint) -> None:
    for same in ("is_same<T, U>::value", "is_same_v<T, U>"):
        write("k.cu", SAME.replace("SAME", same))
        shown = cudalint("confirm", "--as", "CL214", "k.cu").stdout
        assert [x.rpartition("(")[2] for x in shown.splitlines() if "confirmed" in x] == [
            "line 5)",
            "line 6)",
            "2 confirmed",
        ]
