"""What is confirmed is the fault that a finding names, on the axis it names, and the words are of the run shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudalint.config import Configs
from cudalint.confirm.runner import Limits, Proof, trial_of
from cudalint.engine import Worker
from cudalint.select import Layer
from cudalint.walk import walk

if TYPE_CHECKING:
    from pathlib import Path

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
    assert found.reason == "`out[0]` is 256, and 258 in blocks of 256"
    assert _evidence(tmp_path, SHARE.replace("THREADS", "256"), "CL307").verdict == "not-reproduced"
