"""A prediction holds where what it names is what the run shows: the size, the element, and the thread too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cudalint.config import Configs
from cudalint.confirm.runner import Limits, Subject, drafts, proofs
from cudalint.engine import Worker
from cudalint.facts.model import Kernel
from cudalint.select import Layer
from cudalint.walk import walk

if TYPE_CHECKING:
    from pathlib import Path

    from cudalint.findings import Prediction, Witness

OUTSIDE = """\
__global__ void f(float *x, int n) { x[blockIdx.x * blockDim.x + threadIdx.x] = 1.0f; }
void run(float *x, int n) { f<<<(n + 255) / 256, 256>>>(x, n); }
"""
ROWS = """\
__global__ void f(float *x, int w, int h) {
    int i = blockIdx.x * 16 + threadIdx.x, j = blockIdx.y * 16 + threadIdx.y;
    if (j * w + i < w * h) x[j * w + i] = 1.0f;
}
void run(float *x, int w, int h) { f<<<dim3((w + 15) / 16, (h + 15) / 16), dim3(16, 16)>>>(x, w, h); }
"""
BARRIER = """\
__global__ void f(const float *x, float *y, int n) {
    __shared__ float s[256];
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= n) return;
    s[threadIdx.x] = x[i];
    __syncthreads();
    y[i] = s[255 - threadIdx.x];
}
"""


def _prediction(folder: Path, source: str, code: str, **changed: Any) -> tuple[Prediction, Witness]:
    (folder / "k.cu").write_text(source, encoding="utf-8")
    targets, _, _ = walk([str(folder)], Configs(Layer("the test"), isolated=True), force_exclude=False)
    (target,) = targets
    worker = Worker({}, None, frozenset({target.path}))
    for unit, draft in drafts(worker, target, frozenset({code})):
        kernel = unit if isinstance(unit, Kernel) else unit.kernel
        witness = draft.witness
        assert witness is not None
        launches = tuple(kernel.launches) or (None,)
        for proof in proofs(code, Subject(kernel, launches, witness._replace(**changed)), Limits()):
            assert proof.evidence.verdict == "confirmed", proof
            assert proof.evidence.prediction is not None
            return proof.evidence.prediction, witness
    raise AssertionError("no finding")


@pytest.mark.parametrize(("source", "code"), [(OUTSIDE, "CL209"), (ROWS, "CL501"), (BARRIER, "CL301")])
def test_the_thread_is_part_of_it(tmp_path: Path, source: str, code: str) -> None:
    told, witness = _prediction(tmp_path, source, code)
    assert told.held
    assert witness.thread is not None
    block, (x, y, z) = witness.thread
    other = (block, (x, y, z + 1)) if code != "CL501" else (block, (x + 7, y, z))
    assert not _prediction(tmp_path, source, code, thread=other)[0].held
    assert _prediction(tmp_path, source, code, thread=None)[0].held
