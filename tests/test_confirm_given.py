"""``// cudalint: confirm(…)``, ``--sizes`` and ``--block``: what is asked for is run, and told where it cannot be."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from cudalint.frontend.given import given

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Cudalint

FILL = """\
// cudalint: confirm(n=611, block=256, alpha=2.0)
__global__ void k(float *o, int n, float alpha) { o[blockIdx.x * blockDim.x + threadIdx.x] = alpha; }
void run(float *o, int count) { if (count > 0) k<<<count / 256 + (count % 256 != 0), 256>>>(o, count, 1.f); }
"""
REVERSE = """\
__global__ void reverse(float *x, int n) {
    __shared__ float s[256];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    s[threadIdx.x] = x[i];
    __syncthreads();
    x[i] = s[blockDim.x - 1 - threadIdx.x];
}
void run(float *x, int n) { if (n > 0) reverse<<<(n + 255) / 256, 256>>>(x, n); }
"""


def _evidence(cudalint: Cudalint, *arguments: str) -> dict[str, Any]:
    done = cudalint("confirm", "k.cu", "--backend", "sim", "--output-format", "json", *arguments)
    (found,) = json.loads(done.stdout)
    evidence: dict[str, Any] = found["evidence"]
    return evidence


@pytest.mark.parametrize(("arguments", "sizes"), [((), [611]), (("--sizes", "5,700"), [5, 700])])
def test_sizes(write: Any, cudalint: Cudalint, arguments: tuple[str, ...], sizes: list[int]) -> None:
    """A comment's size, by the kernel's name or the host's, is the one that is run; the command line's go before."""
    write("k.cu", FILL)
    evidence = _evidence(cudalint, "--select", "CL209", *arguments)
    assert [case["sizes"]["count"] for case in evidence["cases"]] == sizes
    assert evidence["sizes"] == {"count": sizes[0]}
    assert evidence["first_wrong"] == sizes[0]


@pytest.mark.parametrize("arguments", [("--sizes", "1"), ("--block", "128")])
def test_prediction_not_run(write: Any, cudalint: Cudalint, arguments: tuple[str, ...]) -> None:
    """What was not run has neither held nor failed."""
    write("k.cu", REVERSE)
    assert _evidence(cudalint, "--select", "CL301")["prediction"]["held"] is True
    assert _evidence(cudalint, "--select", "CL301", *arguments)["prediction"]["held"] is None
    shown = cudalint("confirm", "k.cu", "--backend", "sim", "--select", "CL301", *arguments).stdout
    assert ": not run\n" in shown


def test_sizes_fit(write: Any, cudalint: Cudalint) -> None:
    write("k.cu", REVERSE)
    evidence = _evidence(cudalint, "--select", "CL301", "--sizes", "2147483648")
    assert (evidence["verdict"], evidence["reason"]) == ("inconclusive", "n = 2147483648 does not fit int")
    assert [case["result"] for case in evidence["cases"]] == ["inconclusive"]


VALUES = {
    "n=611": 611, "n = -5": -5, "n=256u": 256, "n=256ULL": 256, "n=0x10": 16, "n=010": 8, "n=1.f": 1.0, "n=.5": 0.5,
    "n=2e3": 2000.0, "n=inf": float("inf"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "value"), VALUES.items())
def test_values(text: str, value: float) -> None:
    (found,) = given(f"// cudalint: confirm({text})\nint n;\n".encode())
    assert found.fault is None
    assert found.values == {"n": value}
    assert type(found.values["n"]) is type(value)


def test_nan() -> None:
    (found,) = given(b"/* cudalint: confirm(n=nan) */ float n;")
    assert str(found.values["n"]) == "nan"


FAULTS = {
    "confirm(zork=3)": "no 'zork' in this file",
    "confirm(n=, n=5)": "'n=' in 'cudalint: confirm' is no name with a number",
    "confirm(n==5)": "'n==5'",
    "confirm(n=5": "needs values in parentheses",
    "confirm n=5": "needs values in parentheses",
    "confirm()": "gives nothing",
    "confirm(o=nullptr)": "'o=nullptr'",
    "confirm(block=0)": "no block has 0 threads",
    "confirm(block=99999)": "no block has 99999 threads",
}


@pytest.mark.parametrize(("comment", "words"), FAULTS.items())
def test_faults(write: Any, cudalint: Cudalint, comment: str, words: str) -> None:
    """A comment that cannot be used is told, by the check and by what would have used it."""
    write("k.cu", FILL.replace("confirm(n=611, block=256, alpha=2.0)", comment))
    (found,) = cudalint.json("k.cu", "--select", "CL002")
    assert words in found["message"]
    assert found["line"] == 1
    if comment in ("confirm(zork=3)", "confirm(n==5)"):
        evidence = _evidence(cudalint, "--as", "CL209")
        assert evidence["verdict"] == "inconclusive"
        assert words in evidence["reason"]


MISUSE = {
    ("--block", "0"): "'0' is no block: 1 to 1024 threads",
    ("--block", "4096"): "'4096' is no block: 1 to 1024 threads",
    ("--timeout", "0"): "'0' is no time: seconds above 0",
    ("--timeout", "nan"): "'nan' is no time: seconds above 0",
    ("--as", "CL302", "--kernel", ""): "--kernel is empty",
}


@pytest.mark.parametrize(("arguments", "words"), MISUSE.items())
def test_misuse(write: Any, cudalint: Cudalint, arguments: tuple[str, ...], words: str) -> None:
    write("k.cu", REVERSE)
    done = cudalint("confirm", "k.cu", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr


def test_full_disk(write: Any, folder: Path) -> None:
    """A full disk is told as the check tells it."""
    write("k.cu", REVERSE)
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "cudalint", "confirm", "k.cu", "--backend", "sim", "--select", "CL301"]
        done = subprocess.run(command, cwd=folder, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "cudalint: stdout cannot be written: No space left on device\n"
