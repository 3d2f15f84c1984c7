"""``cudalint confirm``: every faulty fixture is confirmed as predicted, no sound one is, and the course's table."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from conftest import ROOT, Cudalint

from cudalint.config import Configs
from cudalint.confirm.command import proved
from cudalint.confirm.runner import ADVICE, NO_LAUNCH, UNTOLD, Limits, trial_of
from cudalint.engine import Options, Worker, check
from cudalint.rules.registry import experiment
from cudalint.select import Layer
from cudalint.walk import walk

if TYPE_CHECKING:
    from pathlib import Path

RULES = [p for p in sorted(ROOT.glob("fixtures/**/CL*")) if p.is_dir() and experiment(p.name[:5]) is not None]
FIXTURES = [p for rule in RULES for p in sorted(rule.glob("*.cu"))]
FAULTY = [p for p in FIXTURES if p.name.startswith("faulty")]
SOUND = [p for p in FIXTURES if p.name.startswith("sound")]

LIMITS = Limits(timeout=120.0)
"""What is tried is the verdict, however slow the machine is and whatever else it does."""

#: Fixtures that the simulator does not run, with what it says: they are inconclusive, never sound.
UNSUPPORTED = {
    "CL110-uncast-size-product/faulty-template.cu": "no kernel of it can be seen",
    "CL108-int-stride-overflow/faulty-by-warps.cu": "steps",
    "CL108-int-stride-overflow/sound-countdown.cu": "MB of memory",
    "CL301-return-before-barrier/sound-goto.cu": "goto",
    "CL302-divergent-barrier/sound-member-of-type-parameter.cu": "does not declare",
    "CL302-divergent-barrier/sound-template-loop.cu": "static_assert",
    "CL301-return-before-barrier/sound-named-barrier.cu": "inline assembly",
    "CL301-return-before-barrier/sound-unseen-call.cu": "call",
    "CL301-return-before-barrier/faulty-cub-block-reduce.cu": "cub",
    "CL301-return-before-barrier/sound-cub-block-reduce.cu": "cub",
    "CL301-return-before-barrier/faulty-unseen-constant.cu": "does not declare",
    "CL301-return-before-barrier/sound-unseen-constant.cu": "does not declare",
    "CL302-divergent-barrier/faulty-cluster-sync.cu": "cluster",
    "CL302-divergent-barrier/sound-cluster-sync.cu": "cluster",
    "CL302-divergent-barrier/faulty-cub-block-scan.cu": "cub",
    "CL302-divergent-barrier/sound-cub-block-scan.cu": "cub",
    "CL302-divergent-barrier/sound-cluster-size.cu": "cluster",
    "CL302-divergent-barrier/sound-reference-member.cu": "layout",
    "CL302-divergent-barrier/sound-barrier-count.cu": "__barrier_sync_count",
    "CL302-divergent-barrier/sound-cuda-barrier.cu": "init",
    "CL302-divergent-barrier/sound-goto.cu": "goto",
    "CL302-divergent-barrier/sound-unseen-call.cu": "call",
    "CL402-unguarded-neighbour/sound-moved-pointer.cu": "a pointer into an array",
    "CL402-unguarded-neighbour/sound-room-in-front.cu": "a pointer into an array",
    "CL402-unguarded-neighbour/sound-rows.cu": "a pointer into an array",
    "CL404-tile-overrun/sound-bit-field.cu": "bit-field",
    "CL209-missing-bounds-guard/faulty-lambda-body.cu": "lambda",
    "CL209-missing-bounds-guard/sound-lambda-body.cu": "lambda",
    "CL308-global-race/sound-lock.cu": "spin",
    "CL402-unguarded-neighbour/sound-kernel-pointer.cu": "through a pointer",
}


_UNSEEN = "how many blocks there are is said by a function or a class that is declared only"
#: Sound fixtures with a launch that nothing can be run for, and why: no size that is tried would be one of the source.
UNRUN = {
    "CL106-truncated-count/sound-blocks-a-multiprocessor.cu": _UNSEEN,
    "CL106-truncated-count/sound-bytes-of-a-type.cu": _UNSEEN,
    "CL202-short-grid/sound-unseen-helper.cu": _UNSEEN,
    "CL204-empty-launch/sound-extent-checked.cu": _UNSEEN,
    "CL204-empty-launch/sound-first-element-read.cu": _UNSEEN,
    "CL204-empty-launch/sound-workers.cu": _UNSEEN,
    "CL205-grid-axis-limit/sound-flag.cu": "the grid is what a function that is declared only has loaded",
    "CL306-grid-sync-launch/sound-unseen-launch.cu": "no launch is visible, which is what the fixture is about",
}


def _name(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


@pytest.mark.parametrize("path", FAULTY, ids=_name)
def test_faulty(path: Path) -> None:
    code = path.parent.name[:5]
    selected = (code, "pedantic") if "opt-in" in path.parts else (code,)
    result, _ = proved(check([str(path)], Options(Layer("the test", selected), isolated=True)), LIMITS)
    assert result.findings or "sibling" in path.name
    for finding in result.findings:
        evidence = finding.evidence
        if _name(path) in UNSUPPORTED and evidence.verdict == "inconclusive":
            assert UNSUPPORTED[_name(path)] in (evidence.reason or "")
            continue
        assert evidence.verdict == "confirmed", evidence
        assert evidence.prediction is not None
        assert evidence.prediction.held, evidence
        assert evidence.symptom


@pytest.mark.parametrize("path", SOUND, ids=_name)
def test_sound(path: Path) -> None:
    configs = Configs(Layer("the test"), isolated=True)
    targets, _, _ = walk([str(path)], configs, force_exclude=False)
    worker = Worker({}, None, frozenset(target.path for target in targets))
    for proofs in trial_of(path.parent.name[:5], None, worker, targets, LIMITS):
        for proof in proofs:
            if _name(path) in UNSUPPORTED and proof.evidence.verdict == "inconclusive":
                assert UNSUPPORTED[_name(path)] in (proof.evidence.reason or "")
            elif _name(path) not in UNRUN or not (proof.evidence.reason or "").startswith((NO_LAUNCH, UNTOLD)):
                assert proof.evidence.verdict == "not-reproduced", proof.evidence


COURSE = """\
__global__ void one(float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= 2.0f;
}

__global__ void stride(float *x, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) x[i] *= 2.0f;
}

void sized(float *x, int n) { one<<<(n + 255) / 256, 256>>>(x, n); }
void device(float *x, int n) { one<<<160, 256>>>(x, n); }
void strided(float *x, int n) { stride<<<160, 256>>>(x, n); }
"""
SIZES = [0, 1, 31, 32, 611, 1024, 1025, 40960, 40961, 4194304]


def _cases(found: dict[str, Any]) -> dict[str, dict[int, str]]:
    result: dict[str, dict[int, str]] = {}
    for case in found["evidence"]["cases"]:
        result.setdefault(case["launch"], {})[case["sizes"]["n"]] = case["result"]
    return result


def test_course_table(write: Any, cudalint: Cudalint) -> None:
    write("course.cu", COURSE)
    sizes = ",".join(map(str, SIZES))
    done = cudalint("confirm", "course.cu", "--as", "CL202", "--sizes", sizes, "--output-format", "json")
    assert done.returncode == 1, done.stderr
    sized, device, stride = (_cases(found) for found in json.loads(done.stdout))
    assert sized == {"as launched": {n: "ok" if n else "refused" for n in SIZES}}
    assert device == {"as launched": {n: "ok" if n <= 40960 else "wrong@40960" for n in SIZES}}
    assert list(stride) == ["as launched", "<<<1,1>>>", "<<<1,256>>>", "<<<160,256>>>", "<<<10000,32>>>"]
    assert all(set(column.values()) == {"ok"} for column in stride.values()), stride


def test_report(write: Any, cudalint: Cudalint) -> None:
    write("course.cu", COURSE)
    done = cudalint("confirm", "course.cu", "--select", "CL202")
    assert done.returncode == 1, done.stderr
    assert "confirmed at n = 40,961: processed the first 40960 elements only" in done.stdout
    assert "held" in done.stdout
    assert "wrong@40960" in done.stdout


def test_json(write: Any, cudalint: Cudalint) -> None:
    write("course.cu", COURSE)
    done = cudalint("confirm", "course.cu", "--select", "CL202", "--only-confirmed", "--output-format", "json")
    (finding,) = json.loads(done.stdout)
    evidence = finding["evidence"]
    assert (evidence["grade"], evidence["verdict"]) == ("simulated", "confirmed")
    assert (evidence["sizes"], evidence["grid"], evidence["block"]) == ({"n": 40961}, [160, 1, 1], [256, 1, 1])
    assert (evidence["symptom"], evidence["first_wrong"]) == ("never-written", 40960)
    assert evidence["wrong"] == [{"index": 40960, "block": [0, 0, 0], "thread": [0, 0, 0], "pass": 1}]
    assert evidence["prediction"]["held"] is True
    assert evidence["prediction"]["first"] == 40960
    assert {"sizes", "launch", "grid", "block", "result", "note"} == set(evidence["cases"][0])


def test_check_confirm(write: Any, cudalint: Cudalint) -> None:
    write("course.cu", COURSE)
    found = cudalint.json("course.cu", "--select", "CL202", "--confirm")
    assert [f["evidence"]["verdict"] for f in found] == ["confirmed"]
    assert [f["evidence"] for f in cudalint.json("course.cu", "--select", "CL202")] == [
        {"grade": "static", "verdict": "not-run", "reason": None}
    ]


def test_advice() -> None:
    path = ROOT / "fixtures" / "CL504-early-offset" / "faulty-early-return.cu"
    result, _ = proved(check([str(path)], Options(Layer("the test", ("CL504",)), isolated=True)), Limits())
    assert "CL504" in ADVICE
    assert [(f.evidence.verdict, f.evidence.reason) for f in result.findings] == [("not-run", "advice")]


def test_comment(write: Any, cudalint: Cudalint) -> None:
    write("given.cu", COURSE.replace("void device", "// cudalint: confirm(n = 50000)\nvoid device"))
    done = cudalint("confirm", "given.cu", "--select", "CL202", "--output-format", "json")
    (finding,) = json.loads(done.stdout)
    assert finding["evidence"]["verdict"] == "confirmed"


LONG = """\
__global__ void f(float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i];
    for (int k = 0; k < 60000; ++k) v = v * 0.5f + 1.0f / (v + k);
    x[i] = v;
}

void run(float *x, int n) { f<<<160, 256>>>(x, n); }
"""


def test_timeout(write: Any, cudalint: Cudalint) -> None:
    """One long run ends at its deadline, not only the experiment between two runs."""
    write("long.cu", LONG)
    began = time.monotonic()
    done = cudalint("confirm", "long.cu", "--select", "CL202", "--timeout", "1", "--output-format", "json")
    assert time.monotonic() - began < 60  # and not for the minutes that the whole run takes
    (finding,) = json.loads(done.stdout)
    assert finding["evidence"]["verdict"] == "inconclusive"
    assert finding["evidence"]["reason"] == "no time left after 1 s"
    text = cudalint("confirm", "long.cu", "--as", "CL202", "--timeout", "1").stdout
    assert "inconclusive: no time left after 1 s" in text


def test_misuse(write: Any, cudalint: Cudalint) -> None:
    write("course.cu", COURSE)
    assert cudalint("confirm", "course.cu", "--kernel", "one").returncode == 2
    assert cudalint("confirm", "course.cu", "--as", "CL999").returncode == 2
    assert cudalint("confirm", "course.cu", "--as", "CL202", "--kernel", "none").returncode == 2
    assert cudalint("confirm", "course.cu", "--sizes", "many").returncode == 2


@pytest.mark.parametrize("more", [(), ("--as", "CL202")])
def test_a_sanitizer_without_a_gpu_is_said_not_to_be_asked(
    more: tuple[str, ...], write: Any, cudalint: Cudalint
) -> None:
    write("course.cu", COURSE)
    done = cudalint("confirm", "course.cu", "--backend", "sim", "--sanitizer", *more)
    assert done.stderr == (
        "cudalint: compute-sanitizer is not asked: it looks at runs on a GPU, and kernels are simulated\n"
    )


def test_short_memory_does_not_hide_elements_without_a_thread(write: Any, cudalint: Cudalint) -> None:
    """The host allocates bytes for elements (CL217), and what the floored grid loses lies beyond them."""
    text = """\
__global__ void fill(float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = 1.0f;
}
void run(int n) {
    float *x;
    cudaMalloc(&x, n);
    fill<<<n / 256, 256>>>(x, n);
}
"""
    write("a.cu", text)
    out = cudalint("confirm", "--backend", "sim", "--select", "CL203,CL217", "a.cu").stdout
    assert "a.cu:8:5: CL203 floor-div-grid in run: confirmed at n = 257: processed the first 256 elements only" in out
    assert "a.cu:7:5: CL217 bytes-not-elements in run: confirmed" in out


def test_the_product_of_another_rule_is_no_proof(write: Any, cudalint: Cudalint) -> None:
    """The step of CL101 is wide, and the index of CL102 wraps: each is judged by its own product."""
    write(
        "k.cu",
        "__global__ void scale(float *x, size_t n) {\n"
        "    size_t first = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "    for (size_t i = first; i < n; i += (size_t)blockDim.x * gridDim.x) x[i] *= 2.0f;\n"
        "}\n"
        "void run(float *x, size_t n) { scale<<<n / 256 + 1, 256>>>(x, n); }\n",
    )

    def verdict(code: str) -> str:
        asked = ("confirm", "--as", code, "--backend", "sim", "--output-format", "json")
        return str(json.loads(cudalint(*asked).stdout)[0]["evidence"]["verdict"])

    assert (verdict("CL101"), verdict("CL102")) == ("not-reproduced", "confirmed")
    # And the other way round: the step starts again from 0, and elements have several threads for that.
    write(
        "k.cu",
        "__global__ void scale(float *x, size_t n) {\n"
        "    size_t first = (size_t)blockIdx.x * blockDim.x + threadIdx.x;\n"
        "    for (size_t i = first; i < n; i += blockDim.x * gridDim.x) x[i] *= 2.0f;\n"
        "}\n"
        "void run(float *x, size_t n) { scale<<<n / 256 + 1, 256>>>(x, n); }\n",
    )
    assert (verdict("CL101"), verdict("CL102")) == ("confirmed", "not-reproduced")
