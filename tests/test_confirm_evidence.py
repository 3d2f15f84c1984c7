"""What is confirmed is the fault that a finding names, on the axis it names, and the words are of the run shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cudalint.config import Configs
from cudalint.confirm.command import proved
from cudalint.confirm.runner import Limits, Proof, trial_of
from cudalint.engine import Options, Worker, check
from cudalint.select import Layer
from cudalint.walk import walk

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Cudalint

    from cudalint.findings import Evidence


def _proofs(folder: Path, source: str, code: str, *sizes: int) -> list[Proof]:
    """The verdicts of a rule's experiment, one a launch."""
    (folder / "k.cu").write_text(source, encoding="utf-8")
    targets, _, _ = walk([str(folder)], Configs(Layer("the test"), isolated=True), force_exclude=False)
    worker = Worker({}, None, frozenset({targets[0].path}))
    return [p for found in trial_of(code, None, worker, targets, Limits(sizes)) for p in found]


def _evidence(folder: Path, source: str, code: str, *sizes: int) -> Evidence:
    (proof,) = _proofs(folder, source, code, *sizes)
    return proof.evidence


BLOCK_SUM = """\
template <int BLOCK>
__global__ void sum(const float *in, float *out, int n) {
    __shared__ float s[BLOCK];
    int i = blockIdx.x * BLOCK + threadIdx.x;
    s[threadIdx.x] = i < n ? in[i] : 0.0f;
    __syncthreads();
    for (int k = BLOCK / 2; k > 0; k /= 2) {
        if (threadIdx.x < k) s[threadIdx.x] += s[threadIdx.x + k];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = s[0];
}
void run(const float *in, float *out, int n) { if (n > 0) sum<256><<<(n - 1) / 256 + 1, THREADS>>>(in, out, n); }
"""
SHARE = """\
__global__ void add(const int *in, int *out, int n) {
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i < n) atomicAdd(out, in[i]);
}
void run(const int *in, int *out, int n) { if (n > 0) add<<<(n - 1) / 256 + 1, THREADS>>>(in, out, n); }
"""


def test_a_tile_that_a_smaller_block_does_not_fill(tmp_path: Path) -> None:
    found = _evidence(tmp_path, BLOCK_SUM.replace("THREADS", "128"), "CL307", 129)
    assert (found.verdict, found.symptom, found.first_wrong) == ("confirmed", "stale-read", 128)
    assert _evidence(tmp_path, BLOCK_SUM.replace("THREADS", "256"), "CL307").verdict == "not-reproduced"


def test_elements_that_a_smaller_block_leaves_out(tmp_path: Path) -> None:
    found = _evidence(tmp_path, SHARE.replace("THREADS", "128"), "CL307", 128, 129)
    assert (found.verdict, found.symptom, found.sizes) == ("confirmed", "wrong-value", {"n": 129})
    assert found.reason.endswith("in blocks of 256")
    assert _evidence(tmp_path, SHARE.replace("THREADS", "256"), "CL307").verdict == "not-reproduced"


ROWS = """\
__global__ void copy(const float *in, float *out, int width, int height) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < width && y < height) out[y * PITCH + x] = in[y * width + x];
}
void run(const float *in, float *out, int w, int h) {
    if (w > 0 && h > 0) copy<<<dim3((w - 1) / 16 + 1, (h - 1) / 16 + 1), dim3(16, 16)>>>(in, out, w, h);
}
"""
TRANSPOSED = """\
__global__ void transpose(const float *in, float *out, int width, int height) {
    __shared__ float tile[32][33];
    int x = blockIdx.x * 32 + threadIdx.x;
    int y = blockIdx.y * 32 + threadIdx.y;
    if (x < width && y < height) tile[threadIdx.y][threadIdx.x] = in[y * width + x];
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x;
    y = blockIdx.x * 32 + threadIdx.y;
    if (TESTS) out[y * height + x] = tile[threadIdx.x][threadIdx.y];
}
void run(const float *in, float *out, int w, int h) {
    if (w > 0 && h > 0) transpose<<<dim3((w - 1) / 32 + 1, (h - 1) / 32 + 1), dim3(32, 32)>>>(in, out, w, h);
}
"""


@pytest.mark.parametrize(
    ("faulty", "sound"),
    [
        (ROWS.replace("PITCH", "height"), ROWS.replace("PITCH", "width")),
        (
            TRANSPOSED.replace("TESTS", "x < width && y < height"),
            TRANSPOSED.replace("TESTS", "x < height && y < width"),
        ),
    ],
)
def test_coverage_is_of_both_axes(tmp_path: Path, faulty: str, sound: str) -> None:
    found = _evidence(tmp_path, faulty, "CL503", 15)
    assert (found.verdict, found.symptom, found.sizes) == ("confirmed", "never-written", {"w": 15, "h": 5})
    cases = {tuple(c.sizes.values()): c.result for c in _evidence(tmp_path, faulty, "CL503").cases}
    assert all((result == "ok") == (w == h) for (w, h), result in cases.items()), cases
    assert _evidence(tmp_path, sound, "CL503").verdict == "not-reproduced"


PAIRS = """\
__global__ void square(float *a, int n) {
    int i = 2 * (blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) { a[i] *= a[i]; a[i + 1] *= a[i + 1]; }
}
void run(float *a, int n) { if (n > 0) square<<<(n - 1) / 512 + 1, 256>>>(a, n); }
"""
BLUR = """\
__global__ void blur(const float *in, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = (in[i - 1] + in[i] + in[i + 1]) / 3;
}
void run(const float *in, float *out, int n) { if (n > 0) blur<<<(n - 1) / 256 + 1, 256>>>(in, out, n); }
"""
REVERSE = """\
__global__ void reverse(const int *in, int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[n - 1 - i] = in[i];
}
void run(const int *in, int *out, int n) { if (n > 0) reverse<<<n / 256, 256>>>(in, out, n); }
"""


def test_the_second_of_a_pair(tmp_path: Path) -> None:
    cases = _evidence(tmp_path, PAIRS, "CL402", 1, 2, 3, 255, 256).cases
    assert [case.result for case in cases] == ["wrong@1", "ok", "wrong@3", "wrong@255", "ok"]


def test_each_finding_has_its_own_evidence(tmp_path: Path) -> None:
    """All wrong places count for what was predicted, and the place that was is the one that is shown."""
    (tmp_path / "k.cu").write_text(BLUR, encoding="utf-8")
    result, _ = proved(check([str(tmp_path)], Options(Layer("the test", ("CL402",)), isolated=True)), Limits())
    found = [(f.evidence.first_wrong, f.evidence.prediction, f.evidence) for f in result.findings]
    assert len(found) == 2
    for first, prediction, evidence in found:
        assert prediction is not None
        assert prediction.held
        assert prediction.first == first
        assert f"`in[{first}]`" in (evidence.reason or "")
        assert evidence.sizes == prediction.sizes


def test_a_launch_without_blocks_leaves_out_element_0(tmp_path: Path) -> None:
    found = _evidence(tmp_path, REVERSE, "CL203")
    assert found.prediction is not None
    assert (found.verdict, found.cases[0].result, found.prediction.held) == ("confirmed", "refused", True)
    (proof,) = _proofs(tmp_path, REVERSE, "CL203", 0, 256)
    assert proof.evidence.verdict == "not-reproduced"


TAIL = """\
__global__ void scale(const float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * 2;
}
void run(const float *x, float *y, int n) {
    const int done = n / 256 * 256;
    scale<<<n / 256, 256>>>(x, y, n);
    cudaMemcpy(y + done, x + done, (n - done) * sizeof(float), cudaMemcpyDeviceToDevice);
}
"""


def test_what_is_handled_elsewhere_is_not_left_out(tmp_path: Path) -> None:
    assert _evidence(tmp_path, TAIL, "CL203").verdict == "not-reproduced"
    assert _evidence(tmp_path, TAIL.replace("    cudaMemcpy(", "    // "), "CL203").verdict == "confirmed"


def test_the_words_of_the_report(write: Any, cudalint: Cudalint) -> None:
    write("blur.cu", BLUR)
    text = cudalint("confirm", "blur.cu", "--backend", "sim").stdout
    assert "confirmed at n = " in text
    assert "pass 0" not in text
    write("pairs.cu", PAIRS.replace("i < n", "i < n - 1"))
    assert "predicted" not in cudalint("confirm", "pairs.cu", "--as", "CL402", "--backend", "sim").stdout
    write("two.cu", PAIRS.replace("if (i < n)", "if (blockIdx.x < 9)"))
    assert "predicted no fault" not in cudalint("confirm", "two.cu", "--as", "CL214", "--backend", "sim").stdout


IMAGE = """\
__global__ void gray(const float *in, float *out, int w, int h) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < w && y < h) out[y * w + x] = in[y * w + x];
}
void run(const float *in, float *out, int w, int h) {
    if (w <= 0 || h <= 0) return;
    gray<<<dim3((w - 1) / 16 + 1, (h - 1) / 16 + 1), dim3(16, 16)>>>(in, out, w, h);
}
"""


@pytest.mark.parametrize(
    "source",
    [
        IMAGE.replace("(w - 1) / 16 + 1, (h - 1) / 16 + 1", "(h - 1) / 16 + 1, (w - 1) / 16 + 1"),
        IMAGE.replace("dim3(16, 16)", "dim3(64, 32)"),
        IMAGE.replace("(h - 1) / 16 + 1", "(h - 1) / 32 + 1"),
    ],
)
def test_another_fault_is_no_overflow(tmp_path: Path, source: str) -> None:
    """A grid with its axes swapped, a block that is too large, rows that are left out: no count overflows."""
    assert _evidence(tmp_path, source, "CL104").verdict == "not-reproduced"


def test_the_overflow_is_on_the_axis_that_is_named(tmp_path: Path) -> None:
    swapped = IMAGE.replace("(w - 1) / 16 + 1, (h - 1) / 16 + 1", "(h + 15) / 16, (w - 1) / 16 + 1")
    found = _evidence(tmp_path, swapped, "CL104")
    assert found.prediction is not None
    assert (found.verdict, found.symptom, found.prediction.held) == ("confirmed", "wrap", True)
    assert found.sizes is not None
    assert found.sizes["h"] == 2147483633
    assert "the grid on x is -134217728" in (found.reason or "")
    assert {c.result for c in found.cases if c.sizes["h"] < 1 << 30} == {"ok"}


def test_a_grid_is_empty_on_the_axis_that_is_named(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(
        IMAGE.replace("    if (w <= 0 || h <= 0) return;\n", "").replace(
            "(w - 1) / 16 + 1, (h - 1) / 16 + 1", "(h + 15) / 16, (w + 15) / 16"
        ),
        encoding="utf-8",
    )
    result, _ = proved(check([str(tmp_path)], Options(Layer("the test", ("CL204",)), isolated=True)), Limits())
    assert result.findings
    for finding in result.findings:
        evidence = finding.evidence
        assert finding.witness is not None
        assert evidence.grid is not None
        assert evidence.prediction is not None
        (axis,) = (name[-1] for name in finding.witness.values)
        assert evidence.grid["xyz".index(axis)] == 0
        assert evidence.prediction.held
