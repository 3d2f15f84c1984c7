"""Suppressions, baselines and CL002, through the command. CL001 at a conflict marker is what is suppressed."""

from __future__ import annotations

import json

import pytest
from conftest import GOOD

MARK = "<<<<<<< ours"


def check(cudalint, text, *arguments) -> list[str]:
    """``line: code`` of the findings."""
    found = cudalint.json("--stdin-filename", "k.cu", *arguments, stdin=text)
    return [f"{f['line']}: {f['code']}" for f in found]


def messages(cudalint, text, *arguments) -> list[str]:
    return [
        f["message"] for f in cudalint.json("--stdin-filename", "k.cu", *arguments, stdin=text) if f["code"] == "CL002"
    ]


@pytest.mark.parametrize(
    "text",
    [
        f"{MARK} // cudalint: ignore[CL001]\n",
        f"{MARK} // cudalint: ignore[parse-gap]\n",
        f"{MARK} // cudalint:ignore[CL001]: a conflict, on purpose\n",
        f"{MARK} // cudalint: ignore[ CL001 ] and why\n",
        f"{MARK} // first a word, then cudalint: ignore[CL001]\n",
        f"{MARK} /* cudalint: ignore[CL001] */\n",
        f"// cudalint: ignore-next-line[CL001]\n{MARK}\n",
        f"/* cudalint:\n ignore */ // cudalint: ignore-next-line[CL001]\n{MARK}\n",
        f"/* a\n   b\n cudalint: ignore-next-line[CL001]\n */\n{MARK}\n",
        f"// cudalint: ignore-file[CL001]\n\n{MARK}\n",
        f"\n{MARK}\n\n// cudalint: ignore-file[CL001]\n",
        f"// cudalint: disable[CL001]\n\n{MARK}\n// cudalint: enable[CL001]\n",
        f"// cudalint: disable[CL001]\n\n{MARK}\n",
        f"// cudalint: disable[CL001]\r\n\r\n{MARK}\r\n// cudalint: enable[CL001]\r\n",
        f"// cudalint: ignore-next-line[CL001]\r{MARK}\r",
        f"{MARK} // cudalint: ignore[cl001]\n",
        f"{MARK} // Cudalint: Ignore[cl001]\n",
        f"{MARK} // cudalint: ignore[CL0]\n",
        f"{MARK} // cudalint: ignore[file]\n",
        f"{MARK} // cudalint: ignore[ALL]\n",
        f"// cudalint: disable[CL00]\n{MARK}\n// cudalint: enable[CL00]\n",
        f'const char *s = "// cudalint: ignore[CL002]"; // cudalint: ignore-next-line[CL001]\n{MARK}\n',
        f"int big = 1'000'000; // cudalint: ignore-next-line[CL001]\n{MARK}\n",
    ],
)
def test_suppressed(cudalint, text):
    assert check(cudalint, GOOD.replace("\n", " ") + "\n" + text) == []


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (f"// cudalint: ignore[CL001]\n{MARK}\n", ["1: CL002", "2: CL001"]),
        (f"// cudalint: ignore-next-line[CL001]\n\n{MARK}\n", ["1: CL002", "3: CL001"]),
        (f"{MARK}\n// cudalint: disable[CL001]\n", ["1: CL001", "2: CL002"]),
        (f"// cudalint: disable[CL001]\n// cudalint: enable[CL001]\n{MARK}\n", ["1: CL002", "3: CL001"]),
        (f"{MARK} // cudalint: ignore[CL002]\n", ["1: CL001"]),
        (f"{MARK} // cudalint: ignore\n", ["1: CL001", "1: CL002"]),
        (f'const char *s = "// cudalint: ignore-next-line[CL001]";\n{MARK}\n', ["2: CL001"]),
        (f'const char *s = R"(\n// cudalint: ignore-next-line[CL001])";\n{MARK}\n', ["3: CL001"]),
    ],
)
def test_not_suppressed(cudalint, text, want):
    assert check(cudalint, text) == want


def test_a_group_is_unused_only_where_all_of_it_ran(cudalint):
    text = GOOD + "// cudalint: ignore-file[barrier]\n"
    assert check(cudalint, text) == ["5: CL002"]
    assert check(cudalint, text, "--select", "CL002,CL301") == []
    assert check(cudalint, text, "--select", "CL002,CL3") == ["5: CL002"]
    assert check(cudalint, GOOD + "// cudalint: ignore-file[pedantic]\n") == []


def test_several_on_one_line_and_above_one_line(cudalint):
    text = f"// cudalint: ignore-next-line[CL002]\n// cudalint: ignore-next-line[CL001]\n{MARK} // cudalint: ignore[CL777]\n"
    assert check(cudalint, text) == []
    assert check(cudalint, f"{MARK} // cudalint: ignore[CL001, CL002]\n") == []


@pytest.mark.parametrize(
    ("comment", "says"),
    [
        ("// cudalint: ignore[CL001]", "'ignore[CL001]' suppresses nothing: no parse-gap here"),
        ("// cudalint: ignore-file[parse-gap]", "'ignore-file[CL001]' suppresses nothing: no parse-gap here"),
        ("// cudalint: disable[CL001]", "'disable[CL001]' suppresses nothing: no parse-gap here"),
        ("// cudalint: disable[cl1]", "'disable[CL1]' suppresses nothing: no finding of these rules here"),
        (
            "// cudalint: ignore-file[barrier]",
            "'ignore-file[barrier]' suppresses nothing: no finding of these rules here",
        ),
        ("// cudalint: enable[CL1]", "'enable[CL1]' has no 'disable[CL1]' before it"),
        ("// cudalint: enable[CL001]", "'enable[CL001]' has no 'disable[CL001]' before it"),
        ("// cudalint: ignore[CL021]", "unknown rule 'CL021' in 'cudalint: ignore'; the rules of CL0 are CL001, CL002"),
        (
            "// cudalint: ignore[parse-gaps]",
            "unknown rule 'parse-gaps' in 'cudalint: ignore'; did you mean 'parse-gap'?",
        ),
        ("// cudalint: ignore", "'cudalint: ignore' needs the rules in brackets, like ignore[CL301]"),
        ("// cudalint: ignore[]", "'cudalint: ignore[]' names no rule"),
        ("// cudalint: ignore[CL001", "'cudalint: ignore[' has no closing bracket"),
        ("// cudalint: ingore[CL001]", "unknown word 'ingore' after 'cudalint:'; did you mean 'ignore'?"),
        ("// cudalint: bogus", "unknown word 'bogus' after 'cudalint:'; there are ignore, ignore-next-line,"),
        ("// Cudalint: Requires(n > 0)", "'cudalint: requires' has to be written in small letters"),
    ],
)
def test_cl002_says_what_is_wrong(cudalint, comment, says):
    (message,) = messages(cudalint, GOOD + comment + "\n")
    assert message.startswith(says)


def test_cl002_stands_at_the_name(cudalint):
    (found,) = cudalint.json("--stdin-filename", "k.cu", stdin="/* é */ // cudalint: ignore[ CL001]\n")
    assert (found["code"], found["line"], found["column"], found["end_column"]) == ("CL002", 1, 30, 35)


@pytest.mark.parametrize(
    "comment",
    [
        "// cudalint: requires(n > 0)",
        "// cudalint: assume(n <= 10)",
        "// cudalint: confirm(n=3)",
        "// cudalint is a tool",
        "// what cudalint: says of it",
    ],
)
def test_words_of_other_features_are_left_alone(cudalint, comment):
    assert check(cudalint, GOOD + comment + "\n") == []


def test_rules_that_did_not_run_are_not_called_unused(cudalint, write):
    text = GOOD + "// cudalint: ignore[CL001]\n"
    assert check(cudalint, text, "--ignore", "CL001") == []
    assert check(cudalint, text, "--select", "CL001") == []
    assert check(cudalint, text, "--select", "CL001,CL002") == ["5: CL002"]
    write("cudalint.toml", 'per-file-ignores = { "k.cu" = ["CL001"] }\n')
    assert check(cudalint, text) == []


def test_held_back_findings_are_counted(cudalint, write):
    write("k.cu", f"{MARK} // cudalint: ignore[CL001]\n")
    assert cudalint("check", "--statistics").stdout.endswith(" s\n")
    assert (
        "0 findings, 1 more suppressed or in the baseline in 1 file, 1 line, "
        in cudalint("check", "--statistics").stdout
    )


# Fingerprints and baselines


def prints(cudalint, text) -> list[str]:
    return [f["fingerprint"] for f in cudalint.json("--stdin-filename", "k.cu", stdin=text)]


def test_fingerprints_survive_edits_elsewhere(cudalint):
    (one,) = prints(cudalint, f"int a;\n{MARK}\n")
    assert len(one) >= 16
    assert set(one) <= set("0123456789abcdef")
    assert prints(cudalint, f"int a;\nint b;\n\n  {MARK}   // said why\n") == [one]
    assert prints(cudalint, f"int a;\n{MARK} and theirs\n") != [one]


def test_fingerprints_differ_in_one_file(cudalint):
    conflict = f"{MARK}\n=======\n>>>>>>> theirs\n"
    both = prints(cudalint, f"{conflict}int a;\n{conflict}int b;\n")
    assert len(set(both)) == 2
    # a suppression or another selection does not renumber
    text = f"// cudalint: ignore-next-line[CL001]\n{conflict}int a;\n{conflict}int b;\n"
    assert prints(cudalint, text) == both[1:]


def test_fingerprints_do_not_depend_on_where_it_runs(cudalint, write):
    write("sub/k.cu", f"{MARK}\n")
    here = cudalint.json()[0]
    there = cudalint.json("k.cu", cwd=cudalint.folder / "sub")[0]
    assert here["file"] == "sub/k.cu"
    assert there["file"] == "k.cu"
    assert here["fingerprint"] == there["fingerprint"]


def test_baseline(cudalint, write):
    write("k.cu", f"{MARK}\n// cudalint: ignore[CL777]\n")
    done = cudalint("check", "--write-baseline", "base.json")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "2 findings written to base.json\n"
    clean = cudalint("check", "--baseline", "base.json")
    assert (clean.returncode, clean.stdout) == (0, "No findings in 1 file.\n")
    write("k.cu", f"int moved;\n{MARK}\n// cudalint: ignore[CL777]\n// cudalint: ignore[CL778]\n")
    assert cudalint.concise("--baseline", "base.json") == ["k.cu:4: CL002"]


def test_baseline_does_not_change_with_lines(cudalint, write):
    write("k.cu", f"{MARK}\n")
    cudalint("check", "--write-baseline", "base.json")
    before = (cudalint.folder / "base.json").read_text()
    assert [set(e) for e in json.loads(before)["findings"]] == [{"fingerprint", "code", "file", "function"}]
    write("k.cu", f"\n\nint a;\n{MARK}\n")
    cudalint("check", "--baseline", "base.json", "--write-baseline", "base.json")
    assert (cudalint.folder / "base.json").read_text() == before


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 1}', '{"version": 1, "findings": [3]}', b"\xff\xfe"])
def test_a_file_that_is_no_baseline(cudalint, write, text):
    write("k.cu")
    write("base.json", text)
    done = cudalint("check", "--baseline", "base.json")
    assert done.returncode == 2
    assert done.stderr == "cudalint: base.json: not a baseline that cudalint wrote\n"


def test_a_baseline_of_another_version(cudalint, write):
    write("k.cu")
    write("base.json", '{"version": 9, "findings": []}')
    assert "version 9" in cudalint("check", "--baseline", "base.json").stderr


SPLIT = """\
__global__ void scale(float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= 2.0f;
}
void run(float *x, int n) {
    scale<<<n / 256,
            256>>>(
        x,
        n);
}
"""


@pytest.mark.parametrize("line", [6, 7, 8, 9])
def test_any_line_of_a_launch_may_carry_its_suppression(cudalint, write, line):
    lines = SPLIT.splitlines(keepends=True)
    lines[line - 1] = lines[line - 1].replace("\n", "  // cudalint: ignore[CL203]\n")
    write("k.cu", "".join(lines))
    assert cudalint.concise("--select", "CL203,CL002") == []


# Macros: the fault of a body is one finding, and may be suppressed at a use or at the body

MACRO = """\
#define SUM(NAME) \\
    __global__ void NAME(float *x, float *out, int n) { \\
        __shared__ float tile[256]; \\
        int i = blockIdx.x * blockDim.x + threadIdx.x; \\
        if (i >= n) return; \\
        tile[threadIdx.x] = x[i]; \\
        __syncthreads(); \\
        out[i] = tile[255 - threadIdx.x]; \\
    }{BODY}
SUM(one){ONE}
SUM(two){TWO}
"""


def macro(body="", one="", two="") -> str:
    text = MACRO
    for key, comment in (("{BODY}", body), ("{ONE}", one), ("{TWO}", two)):
        text = text.replace(key, comment and f" // cudalint: {comment}")
    return text


def test_a_macro_is_one_finding(cudalint):
    (found,) = cudalint.json("--stdin-filename", "k.cu", stdin=macro())
    assert (found["code"], found["line"], found["column"]) == ("CL301", 10, 1)
    related = [(r["line"], r["message"]) for r in found["related"]]
    assert (1, "the macro SUM is defined here") in related
    assert (11, "SUM is used here too") in related


def test_a_macro_used_in_an_argument_of_another_is_the_macro_itself(cudalint, write):
    write(
        "a.cu",
        "template <int N> __global__ void k(float *x, int c) {\n"
        "    for (int i = threadIdx.x; i < c; i += blockDim.x) x[blockIdx.x * c + i] = N;\n}\n"
        "#define CALL(...) [&] { __VA_ARGS__(); }()\n"
        "#define LAUNCH(N) case N: k<N><<<rows, 256>>>(x, c); break;\n"
        "void run(float *x, int c, int rows, int which) {\n"
        "    CALL([&] {\n        switch (which) {\n            LAUNCH(1)\n            LAUNCH(2)\n        }\n    });\n}\n",
    )
    (found,) = cudalint.json("--select", "CL204")
    assert (found["line"], found["column"]) == (9, 13)
    assert [(r["line"], r["message"]) for r in found["related"]] == [
        (5, "the macro LAUNCH is defined here"),
        (10, "LAUNCH is used here too"),
    ]


def test_a_macro_is_suppressed_at_each_use_or_at_its_body(cudalint):
    assert check(cudalint, macro(one="ignore[CL301]")) == ["11: CL301"]
    assert check(cudalint, macro(one="ignore[CL301]", two="ignore[CL301]")) == []
    assert check(cudalint, macro(body="ignore[CL301]")) == []


def test_a_baseline_knows_a_macro_by_any_use(cudalint, write):
    write("k.cu", macro())
    cudalint("check", "--write-baseline", "base.json")
    assert cudalint.concise("--baseline", "base.json") == []
    write("k.cu", macro().replace("SUM(one)", "SUM(zero)\nSUM(one)"))
    assert cudalint.concise("--baseline", "base.json") == []


SCALES = """\
#pragma once
#define EACH(i, n) for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x)
"""
SCALE = """\
#include "each.cuh"
__global__ void {0}(float *x, int n) {{
    EACH(i, n) x[i] *= 2.0f;{1}
}}
void run_{0}(float *x, int n) {{ {0}<<<64, 256>>>(x, n); }}
"""


def test_a_macro_of_a_header_is_one_finding_whichever_of_its_users_is_checked(cudalint, write):
    write("each.cuh", SCALES)
    for name in "abc":
        write(f"{name}.cu", SCALE.format(name, ""))
    (whole,) = cudalint.json("--select", "CL201")
    for path in ("a.cu", "b.cu", "c.cu"):
        (found,) = cudalint.json("--select", "CL201", path)
        assert (found["file"], found["line"], found["fingerprint"]) == ("a.cu", 3, whole["fingerprint"])
    write("a.cu", SCALE.format("a", "  // cudalint: ignore[CL201]"))
    assert cudalint.concise("--select", "CL201") == cudalint.concise("--select", "CL201", "c.cu") == ["b.cu:3: CL201"]


# Headers: what stands in one is found, and its suppression used, from whichever side the check begins

HEADER = """\
__device__ void reduce(float *tile, float v, int i, int n) {
    if (i >= n) return;{COMMENT}
    tile[threadIdx.x] = v;
    __syncthreads();
}
"""
KERNEL = """\
#include "reduce.cuh"
__global__ void k(const float *x, float *out, int n) {
    __shared__ float tile[256];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    reduce(tile, x[i < n ? i : 0], i, n);
    out[i] = tile[255 - threadIdx.x];
}
"""


def test_a_header_gives_the_same_alone(cudalint, write):
    write("reduce.cuh", HEADER.replace("{COMMENT}", ""))
    write("k.cu", KERNEL)
    whole = [f for f in cudalint.json() if f["file"] == "reduce.cuh"]
    assert [(f["line"], f["code"]) for f in whole] == [(2, "CL301")]
    assert cudalint.json("reduce.cuh") == whole
    assert [f for f in cudalint.json("k.cu") if f["file"] == "reduce.cuh"] == whole


def test_a_suppression_in_a_header_is_used_from_outside(cudalint, write):
    write("reduce.cuh", HEADER.replace("{COMMENT}", " // cudalint: ignore[CL301]"))
    write("k.cu", KERNEL)
    for paths in ([], ["reduce.cuh"], ["k.cu"]):
        assert [f for f in cudalint.json(*paths) if f["file"] == "reduce.cuh"] == []
