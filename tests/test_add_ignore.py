"""``check --add-ignore[=REASON]``: afterwards nothing is found, and nothing but comments has changed."""

from __future__ import annotations

import re

import pytest
from conftest import GAP, GOOD

MARK = "<<<<<<< ours"
KERNEL = GOOD
LAUNCH = "scale<<<n / 256, 256>>>(x, n);"
RUN = f"void run(float *x, int n) {{\n    {LAUNCH}\n}}\n"
COMMENT = re.compile(r"[ \t]*// cudalint: [^\r\n]*")


def ignored(cudalint, path, *arguments) -> str:
    """The file's text after ``--add-ignore``, when a second run finds nothing."""
    done = cudalint("check", "--add-ignore", *arguments)
    assert (done.returncode, "left" in done.stderr) == (0, False), done.stderr
    text = path.read_bytes().decode()
    lines = re.split(r"\r\n|\r|\n", text)
    assert done.stdout
    for each in done.stdout.splitlines():
        _, number, comment = each.split(":", 2)
        assert comment.strip() in lines[int(number) - 1]
    assert cudalint.concise() == []
    return text


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("last", [True, False])
def test_at_the_finding(cudalint, write, end, last):
    text = (KERNEL + RUN).replace("\n", end)
    text = text if last else text.removesuffix(end)
    path = write("k.cu", text)
    assert ignored(cudalint, path) == text.replace(LAUNCH, f"{LAUNCH} // cudalint: ignore[CL203]")


def test_at_a_last_line_without_an_end(cudalint, write):
    text = KERNEL + f"void run(float *x, int n) {{ {LAUNCH} }}"
    path = write("k.cu", text)
    assert ignored(cudalint, path) == text + " // cudalint: ignore[CL203]"


def test_at_a_last_line_that_would_go_on(cudalint, write):
    run = f"void run(float *x, int n) {{ {LAUNCH} }} \\"
    path = write("k.cu", KERNEL + run)
    assert ignored(cudalint, path) == f"{KERNEL}// cudalint: ignore-next-line[CL001, CL203]\n{run}"


def test_what_is_told(cudalint, write):
    write("a.cu", KERNEL + RUN)
    write("sub/b.cu", GAP)
    done = cudalint("check", "--add-ignore=an old one: #12")
    assert done.returncode == 0
    assert done.stdout.splitlines() == [
        "a.cu:6: // cudalint: ignore[CL203]: an old one: #12",
        "sub/b.cu:5: // cudalint: ignore[CL001]: an old one: #12",
    ]
    assert done.stderr == "cudalint: 2 findings ignored in 2 files\n"
    again = cudalint("check", "--add-ignore")
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "cudalint: 0 findings ignored in 0 files\n")


def test_the_word_behind_it_is_a_path(cudalint, write):
    write("a.cu", GAP)
    path = write("b.cu", GAP)
    done = cudalint("check", "--add-ignore", "b.cu")
    assert done.stdout == "b.cu:5: // cudalint: ignore[CL001]\n"
    assert path.read_text() == GAP.rstrip("\n") + " // cudalint: ignore[CL001]\n"


PLACES = [
    # (before, after): what stands in run()
    pytest.param(f"    {LAUNCH} // starts\n", f"    {LAUNCH} // starts // cudalint: ignore[CL203]\n", id="comment"),
    pytest.param(f"    {LAUNCH} /* it */\n", f"    {LAUNCH} /* it */ // cudalint: ignore[CL203]\n", id="block comment"),
    pytest.param(
        f"    {LAUNCH} /* it\n    starts */\n",
        f"    // cudalint: ignore-next-line[CL203]\n    {LAUNCH} /* it\n    starts */\n",
        id="block comment that goes on",
    ),
    pytest.param(
        f"\t{LAUNCH} // {'x' * 90}\n", f"\t// cudalint: ignore-next-line[CL203]\n\t{LAUNCH} // {'x' * 90}\n", id="long"
    ),
    pytest.param(
        "    scale<<<n / 256,\n        256>>>(\n        x, n);\n",
        "    scale<<<n / 256, // cudalint: ignore[CL203]\n        256>>>(\n        x, n);\n",
        id="several lines",
    ),
    pytest.param(
        f"    {LAUNCH} int a; \\\n    int b;\n",
        f"    // cudalint: ignore-next-line[CL203]\n    {LAUNCH} int a; \\\n    int b;\n",
        id="a line that is continued",
    ),
    pytest.param(
        f"    int a; \\\n    {LAUNCH} int b; \\\n    int c;\n",
        f"    // cudalint: disable[CL203]\n    int a; \\\n    {LAUNCH} int b; \\\n    int c;\n    // cudalint: enable[CL203]\n",
        id="between lines that are continued",
    ),
    pytest.param(
        f'    const char *s = R"(\n    )"; {LAUNCH} const char *t = R"(\n    )";\n',
        f'    // cudalint: disable[CL203]\n    const char *s = R"(\n    )"; {LAUNCH} const char *t = R"(\n    )";\n    // cudalint: enable[CL203]\n',
        id="between raw strings",
    ),
    pytest.param(
        f'    {LAUNCH} const char *s = "// no comment";\n',
        f'    {LAUNCH} const char *s = "// no comment"; // cudalint: ignore[CL203]\n',
        id="string",
    ),
    # what is there already is extended
    pytest.param(
        f"    {LAUNCH} // cudalint: ignore[CL208]: checked later\n",
        f"    {LAUNCH} // cudalint: ignore[CL208, CL203]: checked later\n",
        id="ignore",
    ),
    pytest.param(
        f"    {LAUNCH} /* see #1, cudalint: ignore[ unchecked-launch ] */\n",
        f"    {LAUNCH} /* see #1, cudalint: ignore[ unchecked-launch, CL203] */\n",
        id="ignore in a block comment",
    ),
    pytest.param(
        f"    // cudalint: ignore-next-line[CL208]\n    {LAUNCH}\n",
        f"    // cudalint: ignore-next-line[CL208, CL203]\n    {LAUNCH}\n",
        id="ignore-next-line",
    ),
    pytest.param(
        f"    {LAUNCH} // cudalint: ignore[CL999]\n",
        f"    {LAUNCH} // cudalint: ignore[CL999] // cudalint: ignore[CL002, CL203]\n",
        id="one that names no rule",
    ),
]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize(("before", "after"), PLACES)
def test_places(cudalint, write, before, after, end):
    def run(body: str) -> bytes:
        return f"{KERNEL}void run(float *x, int n) {{\n{body}}}\n".replace("\n", end).encode()

    path = write("k.cu", run(before))
    select = ("--extend-select", "CL208") if "CL208" in before or "unchecked" in before else ()
    write("cudalint.toml", 'ignore = ["CL208"]\n' if not select else "")
    ignored(cudalint, path)
    assert path.read_bytes() == run(after)


def test_several_codes_at_one_line(cudalint, write):
    launch = f"{LAUNCH} scale<<<n, 2048>>>(x, n);"
    path = write("k.cu", KERNEL + RUN.replace(LAUNCH, launch))
    codes = sorted({f["code"] for f in cudalint.json()})
    assert codes == ["CL203", "CL206"]
    assert ignored(cudalint, path) == KERNEL + RUN.replace(LAUNCH, f"{launch} // cudalint: ignore[{', '.join(codes)}]")


MACRO = """\
#define START(x, n) \\
    do { \\
        scale<<<(n) / 256, 256>>>(x, n); \\
    } while (0)
"""


def test_a_macro_used_once(cudalint, write):
    text = KERNEL + MACRO + RUN.replace(LAUNCH, "START(x, n);")
    path = write("k.cu", text)
    assert ignored(cudalint, path) == text.replace("START(x, n);", "START(x, n); // cudalint: ignore[CL203]")


def test_a_macro_used_often(cudalint, write):
    """One comment above its definition, in which no comment can stand."""
    runs = "".join(RUN.replace(LAUNCH, "START(x, n);").replace("run", name) for name in ("one", "two", "three"))
    path = write("k.cu", KERNEL + MACRO + runs)
    above = "// cudalint: ignore-next-line[CL203]\n"
    assert ignored(cudalint, path) == KERNEL + above + MACRO + runs


def test_in_a_header(cudalint, write):
    text = "__device__ void wait(int i, int n) {\n    if (i >= n) return;\n    __syncthreads();\n}\n"
    header = write("wait.cuh", text)
    write("main.cu", '#include "wait.cuh"\n__global__ void k(int n) { wait(threadIdx.x, n); }\n')
    want = text.replace("return;", "return; // cudalint: ignore[CL301]")
    assert ignored(cudalint, header, "main.cu") == want


def test_encodings_stay(cudalint, write):
    text = (KERNEL + RUN).replace("\n", " // Größe\r\n")
    for codec, mark in (("utf-16-le", b"\xff\xfe"), ("cp1252", b""), ("utf-8", b"\xef\xbb\xbf")):
        path = write("k.cu", mark + text.encode(codec))
        assert cudalint("check", "--add-ignore=Größe").returncode == 0
        assert cudalint.concise() == []
        data = path.read_bytes()
        assert data.startswith(mark)
        now = data[len(mark) :].decode(codec)
        assert "ignore[CL203]: Größe\r\n" in now
        assert COMMENT.sub("", now) == text


def test_only_what_is_new_or_changed(cudalint, write):
    old = KERNEL + RUN
    path = write("k.cu", old)
    cudalint("check", "--write-baseline", "baseline.json")
    text = old + RUN.replace("run", "more").replace("256", "128")
    write("k.cu", text)
    cudalint("check", "--add-ignore", "--baseline", "baseline.json")
    assert path.read_text() == text.replace("128>>>(x, n);", "128>>>(x, n); // cudalint: ignore[CL203]")


def test_what_no_comment_can_speak_for(cudalint, write):
    data = b"__global__ void k() {}\n\0\n"
    path = write("k.cu", data)
    done = cudalint("check", "--add-ignore", ".")
    assert (done.returncode, done.stdout) == (0, "")
    assert "k.cu:1: CL001 parse-gap is left" in done.stderr
    assert "0 findings ignored in 0 files" in done.stderr
    assert path.read_bytes() == data


def test_a_file_that_may_not_be_written(cudalint, write):
    path = write("sub/k.cu", KERNEL + RUN)
    path.chmod(0o444)
    done = cudalint("check", "--add-ignore", obeying=True)
    assert (done.returncode, done.stdout) == (2, "")
    told, counted = done.stderr.splitlines()
    assert "cannot be written" in told
    assert counted == "cudalint: 0 findings ignored in 0 files"


@pytest.mark.parametrize(
    "arguments",
    [
        ("--add-ignore=two\nlines",),
        ("--add-ignore=a backslash \\",),
        ("--add-ignore=cudalint: enable[CL203]",),
        ("--add-ignore", "--fix"),
        ("--add-ignore", "--diff"),
        ("--add-ignore", "--write-baseline", "b.json"),
        ("--add-ignore", "--stdin-filename", "k.cu"),
        ("--add-ignore", "--confirm"),
    ],
)
def test_misuse(cudalint, write, arguments):
    path = write("k.cu", KERNEL + RUN)
    done = cudalint("check", *arguments, stdin="" if "--stdin-filename" in arguments else None)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("cudalint: --add-ignore")
    assert path.read_text() == KERNEL + RUN


def test_nothing_is_changed_where_an_argument_cannot_be_read(cudalint, write):
    path = write("k.cu", KERNEL + RUN)
    before = path.read_bytes()
    done = cudalint("check", "--add-ignore", "a reason", "k.cu")
    assert (done.returncode, done.stdout) == (2, "")
    assert "cudalint: a reason: No such file or directory\n" in done.stderr
    assert done.stderr.endswith("cudalint: no file was changed (a reason follows a '=': --add-ignore=REASON)\n")
    assert path.read_bytes() == before
