"""``check --changed-since REV`` in real repositories: a finding is reported where something of its unit differs."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

HELPERS = """\
#pragma once
#define BLOCK 128
#define TWICE(x) ((x) + (x))
static const float factor = 2.0f;
__device__ inline float grown(float x) { return x * factor; }
"""
SCALE = """\
#include <cstdio>
#include "helpers.cuh"

template <typename T>
__global__ void scale(T *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = grown(x[i]);
}

void run_scale(float *x, int n) {
    scale<float><<<n / BLOCK, BLOCK>>>(x, n);
}
"""
ADD = """\
#define PLUS(a, b) ((a) + (b))

__global__ void add(float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = PLUS(x[i], 1.0f);
}

static int blocks_of(int n) { return n / 128; }

void run_add(float *x, int n) {
    add<<<blocks_of(n), 128>>>(x, n);
}

__global__ void zero(float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = 0.0f;
}

void run_zero(float *x, int n) {
    zero<<<n / 128, 128>>>(x, n);
}
"""
FILES = {"helpers.cuh": HELPERS, "scale.cu": SCALE, "add.cu": ADD}


@pytest.fixture
def git(folder):
    (folder / ".git").rmdir()

    def git(*arguments: str) -> None:
        clean = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
        who = ("-c", "user.name=t", "-c", "user.email=t@example.invalid", "-c", "core.autocrlf=false")
        subprocess.run(["git", *who, *arguments], cwd=folder, env=clean, check=True, capture_output=True)

    git("init", "-q")
    return git


@pytest.fixture
def repository(git, write):
    for name, text in FILES.items():
        write(name, text)
    git("add", "-A")
    git("commit", "-q", "-m", "first")
    return git


def functions(cudalint, *arguments, **how) -> list[str]:
    """The functions that findings since HEAD stand in."""
    found = cudalint.json("--changed-since", "HEAD", *arguments, **how)
    assert {f["code"] for f in found} <= {"CL203"}
    return [f["function"] for f in found]


@pytest.mark.usefixtures("repository")
def test_nothing_changed(cudalint):
    assert len(cudalint.json()) == 3
    assert functions(cudalint) == []
    done = cudalint("check", "--changed-since", "HEAD")
    assert (done.returncode, done.stdout, done.stderr) == (0, "No findings in 3 files.\n", "")


SINCE = [
    # the kernel, a callee, the launch, what the launch's function calls
    ("add.cu", "x[i] = PLUS(x[i], 1.0f)", "x[i] = PLUS(1.0f, x[i])", ["run_add"]),
    ("add.cu", "x[i] = 0.0f", "x[i] = 1.0f", ["run_zero"]),
    ("helpers.cuh", "return x * factor", "return factor * x", ["run_scale"]),
    ("scale.cu", "template <typename T>", "template <class T>", ["run_scale"]),
    ("add.cu", "zero<<<n / 128, 128>>>", "zero<<<n / 64, 64>>>", ["run_zero"]),
    ("add.cu", "return n / 128", "return n / 64", ["run_add"]),
    # macros: in a kernel, in a launch, and one that nobody uses
    ("add.cu", "((a) + (b))", "((b) + (a))", ["run_add"]),
    ("helpers.cuh", "BLOCK 128", "BLOCK 256", ["run_scale"]),
    ("helpers.cuh", "((x) + (x))", "(2 * (x))", []),
    ("helpers.cuh", "BLOCK 128", "BLOCK LANES\n#define LANES 128", ["run_scale"]),
    # a constant outside of functions: all who see it
    ("helpers.cuh", "factor = 2.0f", "factor = 3.0f", ["run_scale"]),
    ("add.cu", "static int blocks_of", "static int unused;\nstatic int blocks_of", ["run_add", "run_zero"]),
    # what means nothing: comments, blank lines, the layout, a header of the system's, a function beside
    ("add.cu", "    int i", "\n    // the index\n    int  i", []),
    ("add.cu", "#define PLUS", "/* sums\n * of two */\n\n#define PLUS", []),
    ("scale.cu", "#include <cstdio>", "#include <cstdio>\n#include <vector>", []),
    ("add.cu", "void run_add", "int more(int n) { return n; }\n\nvoid run_add", []),
    ("add.cu", "void run_add", "int more(int n);\n\nvoid run_add", []),
    # a comment that means something
    ("add.cu", "    zero<<<", "    // cudalint: ignore-next-line[CL204]\n    zero<<<", ["run_zero"]),
]


@pytest.mark.parametrize(("name", "old", "new", "want"), SINCE)
@pytest.mark.usefixtures("repository")
def test_what_a_change_concerns(cudalint, write, name, old, new, want):
    text = FILES[name]
    assert old in text
    write(name, text.replace(old, new))
    assert functions(cudalint, "--ignore", "CL002") == want


def test_a_macro_that_uses_a_changed_one(cudalint, git, write):
    write("config.h", "#define WARPS 4\n")
    write("launch.h", '#include "config.h"\n#define BLOCK (WARPS * 32)\n')
    write("scale.cu", SCALE.replace("helpers.cuh", "launch.h").replace("grown(x[i])", "2 * x[i]"))
    git("add", "-A")
    git("commit", "-q", "-m", "first")
    write("config.h", "#define WARPS 8\n")
    assert functions(cudalint) == ["run_scale"]


@pytest.mark.usefixtures("repository")
def test_a_moved_function_is_the_same(cudalint, write):
    at = ADD.index("__global__ void zero")
    write("add.cu", ADD[at:] + "\n" + ADD[:at])
    assert functions(cudalint) == []


def test_committed_staged_and_not_added(cudalint, repository, write):
    write("add.cu", ADD.replace("0.0f", "1.0f"))
    repository("commit", "-q", "-a", "-m", "second")
    assert functions(cudalint) == []
    assert [f["function"] for f in cudalint.json("--changed-since", "HEAD~1")] == ["run_zero"]
    write("scale.cu", SCALE.replace("n / BLOCK", "(n) / BLOCK"))
    repository("add", "scale.cu")
    write("new.cu", ADD)
    assert functions(cudalint) == ["run_add", "run_zero", "run_scale"]
    assert functions(cudalint, "scale.cu") == ["run_scale"]


def test_renamed(cudalint, repository, write):
    repository("mv", "add.cu", "sum.cu")
    assert functions(cudalint) == []
    write("sum.cu", ADD.replace("0.0f", "1.0f"))
    assert functions(cudalint) == ["run_zero"]


@pytest.mark.parametrize("autocrlf", ["false", "true"])
def test_line_ends(cudalint, repository, write, autocrlf):
    repository("config", "core.autocrlf", autocrlf)
    write("add.cu", ADD.replace("\n", "\r\n"))
    assert functions(cudalint) == []
    write("add.cu", ADD.replace("\n", "\r\n").replace("0.0f", "1.0f"))
    assert functions(cudalint) == ["run_zero"]


def test_a_launch_in_another_file(cudalint, git, write):
    kernel, launch = ADD[: ADD.index("static int")], ADD[ADD.index("static int") : ADD.index("__global__ void zero")]
    write("kernel.cuh", kernel)
    write("launch.cu", '#include "kernel.cuh"\n' + launch)
    git("add", "-A")
    git("commit", "-q", "-m", "first")
    write("kernel.cuh", kernel.replace("1.0f", "2.0f"))
    assert functions(cudalint) == ["run_add"]
    assert functions(cudalint, "launch.cu") == ["run_add"]


def test_gaps_and_suppressions(cudalint, git, write):
    """What is about no kernel goes by the function around it, else by the rest of its file."""
    text = ADD + "\nvoid f() {\n    int a; // cudalint: ignore[CL301]\n}\n\n<<<<<<< ours\n"
    write("a.cu", text)
    git("add", "-A")
    git("commit", "-q", "-m", "first")

    def codes() -> list[str]:
        return [f["code"] for f in cudalint.json("--changed-since", "HEAD", "--select", "file,CL301")]

    assert codes() == []
    write("a.cu", text.replace("int a;", "int b;"))
    assert codes() == ["CL002"]
    write("a.cu", text.replace("ours", "mine"))
    assert codes() == ["CL002", "CL001"]  # outside of functions: all of the file


@pytest.mark.usefixtures("repository")
def test_text_on_stdin(cudalint):
    for text, want in ((ADD, []), (ADD.replace("0.0f", "1.0f"), ["run_zero"])):
        assert functions(cudalint, "--stdin-filename", "add.cu", stdin=text) == want
    assert functions(cudalint, "--stdin-filename", "new.cu", stdin=ADD) == ["run_add", "run_zero"]


@pytest.mark.usefixtures("repository")
def test_only_what_changed_is_repaired(cudalint, write):
    changed = ADD.replace("0.0f", "1.0f")
    path = write("add.cu", changed)
    scale = path.with_name("scale.cu")
    cudalint("check", "--changed-since", "HEAD", "--fix", "--unsafe-fixes")
    assert path.read_text() != changed
    assert changed.partition("__global__ void zero")[0] in path.read_text()
    assert scale.read_text() == SCALE


@pytest.mark.usefixtures("repository")
def test_several_processes(cudalint, write):
    write("add.cu", ADD.replace("0.0f", "1.0f"))
    assert functions(cudalint, "--jobs", "2") == ["run_zero"]


def test_from_a_folder_below_and_names_that_are_odd(cudalint, repository, write, folder):
    write("sub folder/ä ü.cu", ADD)
    repository("add", "-A")
    repository("commit", "-q", "-m", "second")
    assert functions(cudalint, cwd=folder / "sub folder") == []
    write("sub folder/ä ü.cu", ADD.replace("0.0f", "1.0f"))
    assert functions(cudalint, cwd=folder / "sub folder") == ["run_zero"]


def test_a_submodule(cudalint, git, write, folder, tmp_path_factory):
    """It is compared with the commit that the repository around it had, whatever a revision means inside of it."""
    library = tmp_path_factory.mktemp("library")
    for name, text in FILES.items():
        (library / name).write_text(text)
    git("init", "-q", str(library))
    git("-C", str(library), "add", "-A")
    git("-C", str(library), "commit", "-q", "-m", "library")
    write("own.cu", ADD)
    git("add", "-A")
    git("commit", "-q", "-m", "first")
    git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(library), "sub/library")
    assert functions(cudalint) == ["run_add", "run_zero", "run_scale"]
    git("commit", "-q", "-m", "second")
    assert functions(cudalint) == []
    write("sub/library/add.cu", ADD.replace("0.0f", "1.0f"))
    git("-C", str(folder / "sub/library"), "commit", "-q", "-a", "-m", "a change inside")
    assert functions(cudalint) == functions(cudalint, "sub/library") == ["run_zero"]


def test_a_worktree(cudalint, repository, folder):
    repository("worktree", "add", "-q", "tree", "HEAD")
    (folder / "tree/add.cu").write_text(ADD.replace("0.0f", "1.0f"))
    assert functions(cudalint, cwd=folder / "tree") == ["run_zero"]


def refused(cudalint, *arguments, **how) -> str:
    done = cudalint("check", *arguments, **how)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    return done.stderr


@pytest.mark.usefixtures("repository")
def test_what_cannot_be_asked(cudalint, tmp_path_factory):
    assert "'v9.9' is no revision of" in refused(cudalint, "--changed-since", "v9.9")
    assert "'--all' is no revision" in refused(cudalint, "--changed-since=--all")
    assert "'' is no revision" in refused(cudalint, "--changed-since", "")
    assert "a baseline has all findings" in refused(
        cudalint, "--changed-since", "HEAD", "--write-baseline", "baseline.json"
    )
    outside = tmp_path_factory.mktemp("outside")
    (outside / "a.cu").write_text(ADD)
    assert "is not in a git repository" in refused(cudalint, "--changed-since", "HEAD", cwd=outside)


@pytest.mark.usefixtures("repository")
def test_without_git(cudalint, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    python = os.path.dirname(sys.executable)
    assert not os.path.exists(os.path.join(python, "git"))
    assert "needs git" in refused(cudalint, "--changed-since", "HEAD", env={"PATH": str(empty)})


def test_a_broken_repository(cudalint, write):
    write("a.cu", ADD)
    assert "cudalint: --changed-since: " in refused(cudalint, "--changed-since", "HEAD")
