"""Input that is broken, odd or hostile: each has its clear line and its exit code, and nothing else is lost.

Beside each bad file lies one with a fault; its finding is in every report.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest
from conftest import GOOD

FAULTY = """\
__global__ void sum(float *x, float *out, int n) {
    __shared__ float tile[256];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    tile[threadIdx.x] = x[i];
    __syncthreads();
    out[i] = tile[255 - threadIdx.x];
}
"""
FAULT = "fault.cu:4: CL301"


@pytest.fixture
def beside(cudalint, write):
    """Check a folder that holds a faulty file and the one given; what else than the fault was found, as text."""

    def check(name: str, content: str | bytes, *arguments: str) -> list[str]:
        write("fault.cu", FAULTY)
        write(name, content)
        began = time.perf_counter()
        done = cudalint("check", "--output-format", "concise", *arguments)
        assert time.perf_counter() - began < 60  # it must end; how fast is for benchmarks
        assert done.stderr == ""
        assert done.returncode == 1
        lines = done.stdout.splitlines()
        (fault,) = [line for line in lines if line.startswith("fault.cu:4:")]
        assert " error CL301 " in fault
        return [line for line in lines if line != fault]

    return check


# Encodings and line ends: read as text, placed right


@pytest.mark.parametrize(
    "encode",
    [
        lambda text: b"\xef\xbb\xbf" + text.encode(),
        lambda text: text.encode("utf-16"),
        lambda text: b"\xfe\xff" + text.encode("utf-16-be"),
        lambda text: text.encode("latin-1"),
        lambda text: text.replace("\n", "\r\n").encode(),
        lambda text: text.replace("\n", "\r").encode(),
    ],
    ids=["bom", "utf-16-le", "utf-16-be", "latin-1", "crlf", "cr"],
)
def test_encodings(beside, encode):
    text = FAULTY.replace("if (i", "/* é */ if (i")
    (line,) = beside("odd.cu", encode("// ©\n" + text))
    column = text.splitlines()[3].index("return") + 1
    assert line.startswith(f"odd.cu:5:{column}: error CL301 ")


# Files that cannot be read as text


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"\x7fELF\x00\x01", "binary: it holds a NUL at byte 4"),
        (GOOD.encode() + b"\0", "binary: it holds a NUL"),
        ("int a;\n".encode("utf-16-le"), "binary: it holds a NUL"),
        (b"\xff\xfe\x00", "not valid UTF-16"),
        (b"\x80\x81\x01\x02", "neither UTF-8 nor text"),
    ],
    ids=["elf", "nul", "utf-16-without-mark", "half-utf-16", "bytes"],
)
def test_unreadable_content(beside, cudalint, content, why):
    (line,) = beside("bad.cu", content)
    assert line.startswith(f"bad.cu:1:1: note CL001 parse-gap: the file was not checked: {why}")
    assert beside("bad.cu", content, "--ignore", "CL001") == []
    assert "1 note in 2 files of 2; 1 file could not be read." in cudalint("check").stdout.replace("1 error, ", "")
    alone = cudalint("check", "bad.cu")
    assert (alone.returncode, alone.stdout) == (2, "Nothing was checked; 1 file could not be read.\n")
    named = cudalint("check", "--output-format", "concise", "bad.cu", "fault.cu")
    assert named.returncode == 2
    assert named.stderr.startswith(f"cudalint: bad.cu: {why}")
    assert named.stderr.count("\n") == 1
    assert named.stdout.startswith("fault.cu:4:")


def test_a_file_without_permission(cudalint, write):
    write("fault.cu", FAULTY)
    write("secret.cu").chmod(0)
    write("closed/k.cu")
    (cudalint.folder / "closed").chmod(0)

    def check(*arguments: str) -> subprocess.CompletedProcess[str]:
        return cudalint("check", "--output-format", "concise", *arguments, obeying=True)

    try:
        walked, named, folder = check(), check("secret.cu", "fault.cu"), check("closed", "fault.cu")
    finally:
        (cudalint.folder / "closed").chmod(0o700)
    assert (walked.returncode, walked.stderr) == (1, "")
    fault, secret = walked.stdout.splitlines()
    assert fault.startswith("fault.cu:4:")
    assert "secret.cu:1:1: note CL001" in secret
    assert "Permission denied" in secret
    assert (named.returncode, named.stderr) == (2, "cudalint: secret.cu: Permission denied\n")
    assert named.stdout.splitlines() == [fault]
    assert (folder.returncode, folder.stderr) == (2, "cudalint: closed: Permission denied\n")
    assert folder.stdout.splitlines() == [fault]


@pytest.mark.parametrize("name", ["a\0b.cu", "x" * 300 + ".cu", "loop.cu"])
def test_names_that_cannot_be_opened(cudalint, write, name):
    write("fault.cu", FAULTY)
    (cudalint.folder / "loop.cu").symlink_to("loop.cu")
    if "\0" in name:
        with pytest.raises(ValueError, match="null byte"):  # no process can be given such an argument
            cudalint("check", name)
        return
    done = cudalint("check", "--output-format", "concise", "fault.cu", name)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert done.stdout.startswith("fault.cu:4:")


def test_a_pipe_and_a_folder_that_look_like_sources(cudalint, write):
    write("fault.cu", FAULTY)
    os.mkfifo(cudalint.folder / "pipe.cu")
    (cudalint.folder / "folder.cu").mkdir()
    assert cudalint.concise() == [FAULT]


def test_an_empty_file(beside):
    assert beside("empty.cu", "") == []
    assert beside("blank.cu", "\n\n\r\n") == []


def test_a_name_that_is_not_text(cudalint):
    (cudalint.folder / "fault.cu").write_text(FAULTY)
    os.rename(os.fsencode(cudalint.folder / "fault.cu"), os.fsencode(cudalint.folder) + b"/f\xff.cu")
    for form in ("full", "concise", "json", "sarif", "github"):
        done = cudalint("check", "--output-format", form)
        assert (done.returncode, done.stderr) == (1, ""), form
        assert "CL301" in done.stdout
    done = cudalint("confirm", "--backend", "sim", "--repro", "scripts", "--html", "page.html")
    assert (done.returncode, "CL301" in done.stdout) == (1, True), done.stderr
    assert r"f\udcff.cu" in (cudalint.folder / "page.html").read_text()
    (script,) = (cudalint.folder / "scripts").iterdir()
    compile(script.read_bytes(), script.name, "exec")


def test_the_diff_of_a_file_whose_name_is_not_text_can_be_applied(cudalint, write):
    name = os.fsencode(cudalint.folder) + b"/f\xff.cu"
    os.rename(
        write("fault.cu", "// \u0416\n" + GOOD + "void run(float *x, int n) { scale<<<n / 256, 256>>>(x, n); }\n"), name
    )
    done = cudalint("check", "--diff", "--output-file", "one.diff")
    assert done.returncode == 1
    command = [sys.executable, "-m", "cudalint", "check", "--diff"]
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii"}
    patch = subprocess.run(command, cwd=cudalint.folder, env=ascii_only, capture_output=True, check=False).stdout
    assert patch == (cudalint.folder / "one.diff").read_bytes()
    subprocess.run(["patch", "-p1"], cwd=cudalint.folder, input=patch, check=True, capture_output=True)
    assert cudalint("check").returncode == 0


# Text that is no CUDA, or a strange one


@pytest.mark.parametrize("shape", ["spaces", "statements", "comment", "string", "initialiser"])
def test_a_megabyte_on_one_line(beside, shape):
    size = 1_000_000
    line = {
        "spaces": " " * size,
        "statements": "int f() { int a; " + "a = a + 1; " * (size // 11) + "}",
        "comment": "/*" + "x" * size + "*/",
        "string": 'const char *s = "' + "x" * size + '";',
        "initialiser": "const float t[] = {" + "1.5f, " * (size // 6) + "};",
    }[shape]
    (found,) = beside("wide.cu", line + FAULTY)
    assert found.startswith("wide.cu:4:17: error CL301 ")


def test_ten_megabytes_on_one_line(beside):
    (found,) = beside("wide.cu", "/*" + "x" * 10_000_000 + "*/" + FAULTY)
    assert found.startswith("wide.cu:1:1: note CL001 parse-gap: the file was not checked: has 9.5 MiB")


@pytest.mark.parametrize("shape", ["parentheses", "braces", "brackets", "unary", "else-if", "ternary", "calls"])
def test_ten_thousand_levels(beside, shape):
    deep = 10_000
    body = {
        "parentheses": "x[0] = " + "(" * deep + "1" + ")" * deep + ";",
        "braces": "{" * deep + "}" * deep,
        "brackets": "x" + "[p" * deep + "]" * deep + " = 1;",
        "unary": "x[0] = " + "- " * deep + "1;",
        "else-if": "if (n) n = 1; " + "else if (n) n = 2; " * deep,
        "ternary": "n = " + "n ? 1 : " * deep + "2;",
        "calls": "f" + "(f" * deep + ")" * deep + ";",
    }[shape]
    found = beside("deep.cu", "__global__ void k(float *x, int *p, int n) { " + body + " }\n" + FAULTY)
    assert any(line.startswith("deep.cu:5:17: error CL301 ") for line in found)
    assert all(" CL001 " in line or " CL301 " in line for line in found)


def test_a_block_of_a_million_threads(cudalint, write):
    write(
        "a.cu",
        "__global__ void k(const float *in, float *out, int n) {\n    __shared__ float tile[256];\n"
        "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i >= n) return;\n    tile[threadIdx.x] = in[i];\n"
        "    __syncthreads();\n    out[i] = tile[255 - threadIdx.x];\n}\n"
        "void run(const float *in, float *out, int n) { k<<<1, 1000000>>>(in, out, n); }\n",
    )
    assert "a.cu:9: CL206" in cudalint.concise()


def test_forty_loops_around_a_barrier(cudalint, write):
    loops = "".join(f"for (int j{k} = 0; j{k} < n; j{k}++) {{ " for k in range(40))
    write(
        "a.cu",
        "__global__ void k(const float *in, float *out, int n) {\n    __shared__ float tile[256];\n"
        f"    if (threadIdx.x >= n) return;\n    {loops} tile[threadIdx.x] += j0; __syncthreads(); {'}' * 40}\n"
        "    out[threadIdx.x] = tile[255 - threadIdx.x];\n}\n",
    )
    assert "a.cu:3: CL301" in cudalint.concise()


@pytest.mark.parametrize(
    "text",
    [
        "/* never closed\n",
        'const char *s = "never closed;\n',
        "int f() {\n",
        "#if 1\nint a;\n",
        "#else\n",
        "'",
        "\\",
        '"',
        'R"(x',
    ],
)
def test_what_is_left_open_at_the_end(beside, text):
    found = beside("open.cu", FAULTY + text)
    assert found[0].startswith("open.cu:4:17: error CL301 ")
    assert all(" CL001 " in line for line in found[1:])


def test_an_unterminated_comment_is_told(beside):
    assert any(" CL001 " in line for line in beside("open.cu", FAULTY + "/* never closed\n"))


@pytest.mark.parametrize("opening", ["#if 0", "#if", "#ifdef NOBODY", "# if 1", "#if 0\n#if 1\n#endif"])
def test_an_unterminated_conditional_is_told(beside, opening):
    assert any(line.startswith("open.cu:1:1: note CL001 ") for line in beside("open.cu", f"{opening}\n{FAULTY}"))


@pytest.mark.parametrize("splice", ["\\\n", "\\\r\n", "\\ \t\n", "\\\n\\\n"])
def test_a_word_goes_on_below_its_line(cudalint, write, splice):
    for word in ("__syncthreads", "__shared__", "threadIdx", "tile"):
        for at in (1, len(word) // 2):
            split = word[:at] + splice + word[at:-1] + splice + word[-1:]
            write("k.cu", f"#define COUNT 2\\\n56\n{FAULTY}".replace("256", "COUNT").replace(word, split))
            assert [found["code"] for found in cudalint.json()] == ["CL301"]


def test_a_merge_conflict(beside):
    text = FAULTY + "<<<<<<< ours\nint a;\n=======\nint b;\n>>>>>>> theirs\n" + FAULTY.replace("sum", "other")
    found = beside("conflict.cu", text)
    assert [line.split()[2] for line in found] == ["CL301", "CL001", "CL301"]
    assert found[1].startswith("conflict.cu:9:1: note CL001 ")


def test_includes_in_a_circle(beside, write):
    write("a.cuh", '#include "b.cuh"\n#include "a.cuh"\n' + GOOD)
    write("b.cuh", '#include "a.cuh"\n')
    write("self.cuh", '#include __FILE__\n#include "self.cuh"\n')
    found = beside("k.cu", '#include "a.cuh"\n#include "self.cuh"\n#include "k.cu"\n' + FAULTY)
    assert [line.rpartition(" error ")[0] for line in found] == ["k.cu:7:17:"]


@pytest.mark.parametrize(
    "macros",
    [
        "#define A B\n#define B A\n#define F(x) F(F(x))\nint a = A + F(A);\n",
        "#define D0 1\n" + "".join(f"#define D{i} (D{i - 1} + D{i - 1})\n" for i in range(1, 60)) + "int a = D59;\n",
        "#define E(x) x x x x x x x x\nint a = E(E(E(E(E(E(E(E(E(1)))))))));\n",
        "#define G( \n#define\n#define 3\n#define H(x\n#define I(...) __VA_ARGS__ ## __VA_ARGS__ #\nI(\n",
        "#include\n#include <\n#include MACRO\n#if\n#elif\n#endif\n#if (\n#endif\n#if 1 / 0\n#endif\n#undef\n#line\n",
    ],
    ids=["circle", "doubling", "nested", "malformed", "directives"],
)
def test_macros_that_recur_or_are_malformed(beside, macros):
    found = beside("macros.cu", FAULTY + macros)
    assert found[0].startswith("macros.cu:4:17: error CL301 ")
    assert all(" CL001 " in line for line in found[1:])


def test_python_and_prose_that_are_called_cuda(beside):
    assert all(" CL001 " in line for line in beside("prose.cu", "Dear reader,\n\nthis isn't CUDA: {[(<<<\n" * 50))


# Slips: each is told where it is, and hides nothing but the statement that it is in

LAUNCH = """\
void run(float *x, float *out, int n) {
    if (n <= 0) return;
    sum<<<n / 256 + (n % 256 != 0), 256>>>(x, out, n);
}
"""


@pytest.mark.parametrize(
    ("right", "wrong", "line", "says"),
    [
        ("threadIdx.x;\n    if", "threadIdx.x\n    if", 3, "`;` is missing here"),
        ("= x[i];", "= x[i]", 5, "this region was not understood"),
        ("__syncthreads();", "__syncthreads()", 7, "this region was not understood"),
        ("if (i >= n)", "if (i >= n", 4, "this region was not understood"),
        ("x[i]", "x[i", 5, ""),
        ("int n) {\n    __shared__", "int n {\n    __shared__", 1, ""),
        ("256>>>(", "256>>(", 11, "this region was not understood"),
        ("n);\n}", "n)\n}", 11, "`;` is missing here"),
        ("n, 256>>>", "n 256>>>", 11, ""),
    ],
)
def test_a_slip_is_told(beside, right, wrong, line, says):
    text = FAULTY + LAUNCH.replace("n / 256 + (n % 256 != 0), 256", "n, 256")
    assert right in text
    found = beside("slip.cu", text.replace(right, wrong, 1) + FAULTY.replace("sum", "other"))
    gaps = [each for each in found if " CL001 " in each]
    assert len(gaps) <= 2  # the parser may need a second statement to find back
    assert gaps[0].startswith(f"slip.cu:{line}:")
    assert says in gaps[0]
    assert any(each.startswith("slip.cu:16:17: error CL301 ") for each in found)


def test_a_missing_semicolon_costs_no_finding(beside):
    found = beside("slip.cu", FAULTY.replace("threadIdx.x;", "threadIdx.x"))
    assert [each.split()[2] for each in found] == ["CL001", "CL301"]


def test_a_macro_that_nobody_defines_is_no_slip(beside):
    text = "REGISTER(sum)\nvoid f(int x) {\n    CHECK_INPUT(x)\n    x = 1;\n}\ntemplate class Sum<float>;\n"
    assert beside("macros.cu", text) == []
    (gap,) = beside("call.cu", text.replace("CHECK_INPUT", "check_input"))
    assert gap.startswith("call.cu:3:")


# A fault of ours


RULE = """
from __future__ import annotations

from cudalint.rules.draft import Draft

CODES = ("CL990",)


def check_one(kernel: Kernel):
    function = kernel.function
    yield Draft("CL990", function, function.file, function.start, function.start + 1, "before the fault", "")
    raise RuntimeError("boom")
"""
RULE_PAGE = """\
---
code: CL990
name: broken-rule
level: warning
group: barrier
default: true
fixable: no
---
# broken-rule (CL990)

A rule that breaks.
"""


def test_a_rule_that_breaks_costs_no_other_finding(cudalint, write):
    write("rules/cl990.py", RULE)
    write("rules/pages/CL990-broken-rule.md", RULE_PAGE)
    write("fault.cu", FAULTY)
    script = (
        "import sys, cudalint.rules; cudalint.rules.__path__.append('rules');"
        "from cudalint.cli import main; sys.exit(main(['check', '--output-format', 'concise', 'fault.cu']))"
    )

    def check(**env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", script], cwd=cudalint.folder, env={**os.environ, **env}, capture_output=True,
            text=True, check=False,
        )  # fmt: skip

    done = check()
    assert done.returncode == 2
    assert done.stderr == (
        "cudalint: fault.cu: internal error in cl990.check_one: RuntimeError: boom"
        " (CUDALINT_DEBUG=1 shows where; please report it)\n"
    )
    assert [line.split()[2] for line in done.stdout.splitlines()] == ["CL990", "CL301"]
    assert "Traceback" in check(CUDALINT_DEBUG="1").stderr


def test_a_function_that_breaks_costs_no_other_finding(cudalint, write):
    write(
        "k.cu", FAULTY.replace("sum", "broken") + FAULTY + "void run(float *x, int n) { sum<<<1, 256>>>(x, x, n); }\n"
    )
    script = (
        "import sys; from cudalint.facts import flow; walk = flow.walk\n"
        "def broken(decl, *rest):\n"
        "    if decl.name in ('broken', 'run'): raise RuntimeError(decl.name)\n"
        "    return walk(decl, *rest)\n"
        "flow.walk = broken\n"
        "from cudalint.cli import main; sys.exit(main(['check', '--output-format', 'concise', 'k.cu']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=cudalint.folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert [line.split(" (")[0] for line in done.stderr.splitlines()] == [
        f"cudalint: k.cu: internal error in the analysis: RuntimeError: {name}" for name in ("run", "broken")
    ]
    assert [line.split()[2] for line in done.stdout.splitlines()] == ["CL301"]


def test_a_fault_that_several_files_meet_is_told_once(cudalint, write):
    for name in "abc":
        write(f"{name}.cu")
    script = (
        "import sys, cudalint.rules; cudalint.rules.__path__.append('no such folder');"
        "from cudalint.cli import main; sys.exit(main(['check', 'a.cu', 'b.cu', 'c.cu']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=cudalint.folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("cudalint: a.cu and 2 more files: internal error in the rules: FileNotFoundError")
    assert done.stderr.count("\n") == 1
    assert done.stdout == "No findings in 3 files; not everything was checked.\n"


def test_a_lambda_that_is_handed_itself(beside):
    body = "auto f = [&](auto self, int x) -> int { return self(self, x); }; a[threadIdx.x] = f(f, 1);"
    assert beside("lambda.cu", "__global__ void k(float *a) { " + body + " }\n") == []


def test_a_chain_of_decrements(cudalint, write):
    """Each of them is a place that the next one changes."""
    write("a.cu", "__global__ void k(float *x, int n) { x[0] = " + "-" * 4000 + "n; }\n" + FAULTY)
    began = time.perf_counter()
    assert " CL301 " in cudalint("check", "--output-format", "concise", "a.cu").stdout
    assert time.perf_counter() - began < 10


def test_conditions_may_nest_as_deep_as_they_like(beside):
    deep = 5000
    text = f"#if {'(' * deep}1{')' * deep}\n{FAULTY}#elif {'!' * deep}0\nint a;\n#endif\n"
    (found,) = beside("deep.cu", text)
    assert found.startswith("deep.cu:5:17: error CL301 ")


def test_a_kernel_with_a_jump_says_that_it_was_not_checked(beside):
    text = FAULTY.replace("return;", "goto done;").replace("}\n", "done:;\n}\n")
    host = "void run(int n) { if (n < 0) goto done; n = 1;\ndone:; }\n"
    (found,) = beside("jump.cu", text + host)
    assert found.startswith("jump.cu:4:17: note CL001 parse-gap: a jump is not followed: this function was not checked")


@pytest.mark.parametrize("comment", ["", "// why\n", "/* why */", "\n// why )\n\n", "/* a,\n b */\n"])
def test_a_comment_between_arguments_changes_nothing(cudalint, write, comment):
    use = f"INST(if (x) y;,{comment}\n 2)"
    body = "    int i = blockIdx.x;\n    " + use + "\n    x[i] = 1;\n"
    write("a.cu", "#define INST(...) __VA_ARGS__\n__global__ void k(float *x, int n) {\n" + body + "}\n")
    codes = [each["code"] for each in cudalint.json("a.cu")]
    assert codes == ["CL001", "CL001"]


def test_more_launching_functions_than_are_followed(cudalint, write):
    """A faulty launch behind a hundred sound ones is found; where it becomes too many, one note says from where on."""
    kernel = "__global__ void k{0}(float *x, int n) {{ int i = blockIdx.x * 64 + threadIdx.x; if (i < n) x[i] = 1; }}\n"
    launch = "void f{0}(float *x, int n) {{ if (n > 0 && n < 9999) k{0}<<<{1}, 64>>>(x, n); }}\n"
    pairs = [kernel.format(i) + launch.format(i, "n / 64" if i in (100, 505) else "(n + 63) / 64") for i in range(510)]
    write("many.cu", "".join(pairs))
    found = cudalint.json("many.cu")
    assert [(x["code"], x["line"]) for x in found] == [("CL203", 202), ("CL001", 1002)]


def test_a_return_type_that_asks_for_itself_without_end(cudalint, write):
    write(
        "k.cu",
        "template <int N> __device__ auto f(float x) -> decltype(f<N - 1>(x)) { return x; }\n"
        "__global__ void k(float *p) { int i = blockIdx.x * blockDim.x + threadIdx.x; p[i] = f<5>(p[i]); }\n"
        "void run(float *p, int n) { k<<<n / 256, 256>>>(p); }\n",
    )
    for command in ("check", "contract", "confirm"):
        done = cudalint(command, "k.cu")
        assert "internal error" not in done.stderr
        assert done.stdout
    assert "CL203" in cudalint("check", "k.cu").stdout


def test_template_arguments_in_one_another(cudalint, write):
    kernel = (
        "__global__ void k(float *x, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] = 1; }\n"
    )
    write(
        "k.cu",
        "template <class T> struct A {};\n" + "A<" * 2000 + "int" + ">" * 2000 + " deep;\n" + kernel
        + "void run(float *x, int n) { k<<<n / 256, 256>>>(x, n); }\n",
    )  # fmt: skip
    for command in ("check", "contract", "confirm"):
        assert "internal error" not in cudalint(command, "k.cu").stderr
    assert "CL203" in [x["code"] for x in cudalint.json("k.cu")]


@pytest.mark.parametrize("command", ["contract", "confirm"])
def test_a_file_that_breaks_costs_no_other_file(command, cudalint, write):
    run = "void run(float *x, int n) {{ sum{0}<<<1, 256>>>(x, x, n); }}\n"
    write("a.cu", FAULTY.replace("sum", "sumA") + run.format("A"))
    write("b.cu", FAULTY.replace("sum", "sumB") + run.format("B"))
    script = (
        "import sys; from cudalint.contracts import infer; from cudalint.facts import model\n"
        "from cudalint.confirm import runner\n"
        "def breaking(of):\n"
        "    def broken(*given, **named):\n"
        "        if any('sumA' in str(getattr(getattr(x, 'decl', None), 'name', '')) for x in given):\n"
        "            raise RuntimeError('a kernel')\n"
        "        return of(*given, **named)\n"
        "    return broken\n"
        "infer.requirements = breaking(infer.requirements)\n"
        "found = runner.checks\n"
        "runner.checks = lambda codes: {\n"
        "    k: [x._replace(run=breaking(x.run)) for x in v] for k, v in found(codes).items()}\n"
        f"from cudalint.cli import main; sys.exit(main(['{command}', '.']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=cudalint.folder, capture_output=True, text=True, check=False
    )
    assert "sumB" in done.stdout
    assert "Traceback" not in done.stderr
    if command == "contract":
        assert done.returncode == 2
        assert done.stderr.startswith("cudalint: a.cu: internal error in its contracts: RuntimeError: a kernel")


# Little text that comes to much


def test_calls_that_multiply(beside):
    """Each function calls the three before it: what can be followed is checked, and the rest is told."""
    end = "if (x < n) return r; __syncthreads(); return x; }\n"
    first = f"__device__ int f0(int x, int n) {{ int r = 0; {end}"
    others = [
        f"__device__ int f{i}(int x, int n) {{ int r = 0; "
        + " ".join(f"r += f{j}(x + {j}, n);" for j in range(max(0, i - 3), i))
        + end
        for i in range(1, 40)
    ]
    kernel = "__global__ void k(int *a, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; a[f39(i, n)] = 1; }\n"
    found = beside("calls.cu", first + "".join(others) + kernel)
    assert any(" CL301 " in line for line in found)
    (note,) = [line for line in found if " CL001 " in line]
    assert "this function and more after it were not checked: with all that is called there is too much" in note


def test_twenty_loops_over_the_grid_in_one_another(beside):
    step = "j{0} += blockDim.x * gridDim.x"
    loop = f"for (int j{{0}} = i; j{{0}} < n; {step}) {{{{ if (j{{0}} % 3) continue; s[j{{0}} % 256] += 1;\n"
    text = (
        "__global__ void k(float *a, int n) { __shared__ float s[256]; int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        + "".join(loop.format(i) + "__syncthreads(); if (s[0]) break;\n" for i in range(20))
        + "a[i] = s[i % 256]; }"
        + "}" * 20
        + "\nvoid r(float *a, int n) { if (n > 0) k<<<(n - 1) / 256 + 1, 256>>>(a, n); }\n"
    )
    assert len([line for line in beside("loops.cu", text) if " CL302 " in line]) == 20


def test_a_condition_that_doubles_is_told(beside):
    doubling = "#define A0 1\n" + "".join(f"#define A{i} A{i - 1} + A{i - 1}\n" for i in range(1, 41))
    found = beside("doubling.cu", doubling + f"#if A40\n{FAULTY}#endif\n" * 200)
    assert all(" CL001 " in line and "the condition expands to too much" in line for line in found)
    assert len(found) == 200


@pytest.mark.parametrize("opening", ["{ ", "if (n > 0) { ", "for (int j = 0; j < n; j++) { "])
def test_a_kernel_nested_too_deeply_is_told(beside, opening):
    for deep, known in ((90, True), (1000, False)):
        body = FAULTY.replace("    if (i", "    " + opening * deep + "if (i").replace(
            "];\n}", "];" + "}" * deep + "\n}"
        )
        found = beside("deep.cu", body)
        told = [line for line in found if "this is nested too deeply and was not checked" in line]
        assert [" CL001 " in line for line in told] == ([] if known else [True])
        assert any(line.startswith("deep.cu:4:") and " error CL30" in line for line in found) or not known


@pytest.mark.parametrize("option", ["--baseline", "--compile-commands", "--config"])
def test_a_pipe_or_device_given_as_a_file(cudalint, write, option):
    write("fault.cu", FAULTY)
    os.mkfifo(cudalint.folder / "pipe")
    for name in ("pipe", "/dev/zero"):
        done = cudalint("check", option, name, "fault.cu")
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == f"cudalint: {name}: is no ordinary file\n"


@pytest.mark.parametrize("text", ["{} = 1", "[{}]", "x = {{ {} = 1 }}"])
def test_a_key_of_too_many_parts(cudalint, write, text):
    write("fault.cu", FAULTY)
    for part in ("a", "'a'", '"a b"'):
        write("cudalint.toml", text.format(".".join([part] * 100_000)))
        done = cudalint("check", "fault.cu")
        assert (done.returncode, done.stderr) == (2, "cudalint: cudalint.toml: a key has too many parts\n")


def test_a_number_of_thousands_of_digits_costs_no_other_finding(cudalint, write):
    write("given.cu", f"// cudalint: confirm(n={'9' * 5000})\n__global__ void k(int n) {{}}\n")
    write("other.cu", FAULTY)
    done = cudalint("check", ".", "--output-format", "concise")
    assert (done.returncode, done.stderr) == (1, "")
    assert "other.cu:" in done.stdout and "given.cu:1:1: warning CL002" in done.stdout
    assert cudalint("confirm", "--sizes", "9" * 5000, ".").stderr.count("\n") == 1


def test_a_line_end_in_a_name_is_written_out(cudalint):
    done = cudalint("check", "a\nb.cu")
    assert (done.returncode, done.stderr) == (2, "cudalint: a\\nb.cu: No such file or directory\n")
