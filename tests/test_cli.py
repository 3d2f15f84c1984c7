"""The command line: what is checked, exit codes, output, misuse."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from conftest import GAP, GOOD, ROOT

SCALE = "k.cu:5: CL001"


def test_clean(cudalint, write):
    write("k.cu")
    done = cudalint("check")
    assert (done.returncode, done.stdout, done.stderr) == (0, "No findings in 1 file.\n", "")


def test_notes_do_not_fail(cudalint, write):
    write("k.cu", GAP)
    done = cudalint("check", "--output-format", "concise")
    assert done.returncode == 0
    assert done.stdout.startswith("k.cu:5:1: note CL001 parse-gap: ")


def test_warnings_fail_and_exit_zero_forgives(cudalint, write):
    write("k.cu", "// cudalint: ignore[CL001]\n")
    assert cudalint("check").returncode == 1
    done = cudalint("check", "--exit-zero", "--output-format", "concise")
    assert done.returncode == 0
    assert "warning CL002 unused-ignore" in done.stdout


def test_no_file(cudalint, write):
    write("readme.txt")
    done = cudalint("check")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "cudalint: no CUDA file to check in .\n"


def test_no_file_says_what_was_left_out(cudalint, write):
    write("old/k.cu")
    write("cudalint.toml", 'exclude = ["old"]\n')
    assert cudalint("check").stderr == "cudalint: no CUDA file to check in . (1 left out by 'exclude')\n"


def test_an_argument_that_is_missing_loses_nothing_else(cudalint, write):
    write("k.cu", GAP)
    done = cudalint("check", "--output-format", "concise", "nowhere.cu", "k.cu", "nowhere/")
    assert done.returncode == 2
    assert done.stderr == (
        "cudalint: nowhere.cu: No such file or directory\ncudalint: nowhere/: No such file or directory\n"
    )
    assert done.stdout.startswith("k.cu:5:1: note CL001")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "required: COMMAND"),
        (["chekc"], "chekc"),
        (["check", "--frobnicate"], "--frobnicate"),
        (["check", "--jobs", "0"], "'0' is no number of processes"),
        (["check", "--jobs", "many"], "'many' is no number of processes"),
        (["check", "--output-format", "xml"], "'xml'"),
        (["check", "--select"], "--select"),
        (["check", "--select", "CL999"], "unknown rule 'CL999' in the command line"),
        (["check", "--ignore", "parse-gpa"], "unknown rule 'parse-gpa' in the command line; did you mean 'parse-gap'?"),
        (["check", "--extend-select", "barier"], "did you mean 'barrier'?"),
        (["check", "--select", ""], "'select' in the command line names no rule"),
        (["check", "--select", "CL021"], "unknown rule 'CL021' in the command line; the rules of CL0 are CL001, CL002"),
        (["check", "--select", "CL999"], "unknown rule 'CL999' in the command line; 'cudalint rules' lists them"),
        (["rule", "CL0"], "'CL0' is a prefix; its rules are CL001, CL002"),
        (["rule", "barrier"], "'barrier' is a group; its rules are CL3"),
        (["check", "--config", "none.toml"], "none.toml: no such configuration file"),
        (["check", "--config", "a.toml", "--isolated"], "exclude each other"),
        (["check", "--baseline", "none.json"], "none.json: no such baseline; --write-baseline makes one"),
        (["check", "--stdin-filename", "k.cu", "k.cu"], "exclude each other"),
        (["check", "-"], "--stdin-filename NAME"),
        (["check", "--stdin-filename", "/"], "/ is a folder"),
        (["check", "--output-file", "no/such/folder"], "cannot be written"),
        (["check", "--compile-commands", "none.json"], "none.json"),
        (["check", "--compile-commands", "deep.json"], "deep.json: not a compile_commands.json"),
        (["check", "--jobs", "\u0663"], "no number of processes"),
        (["confirm", "--sizes", "1,,2"], "no sizes"),
        (["confirm", "--sizes", "\u0663"], "no sizes"),
        (["confirm", "--block", "\u0663"], "no block"),
        (["confirm", "--timeout", "\u0663"], "no time"),
        *[
            (["check", option, ""], "the name is empty")
            for option in ("--baseline", "--write-baseline", "--config", "--output-file", "--compile-commands")
        ],
        (["confirm", "--repro", ""], "the name is empty"),
        (["rule"], "CODE|NAME"),
        (["rule", "parse-gapp"], "unknown rule 'parse-gapp'; did you mean 'parse-gap'?"),
        (["debug", "k.cu"], "--stage"),
        (["debug", "--stage", "source", "none.cu"], "none.cu"),
    ],
)
def test_misuse_is_one_line_and_exit_2(cudalint, write, arguments, says):
    write("k.cu")
    write("deep.json", "[" * 100_000)
    done = cudalint(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("cudalint: ")
    assert done.stderr.count("\n") == 1
    assert says in done.stderr


@pytest.mark.parametrize("command", [[], ["check"], ["rule"], ["rules"], ["debug"]])
def test_help(cudalint, command):
    done = cudalint(*command, "-h")
    assert done.returncode == 0
    assert done.stdout.startswith(" ".join(["usage: cudalint", *command]))
    assert "--no-cache" not in done.stdout


def test_version(cudalint):
    import cudalint as package

    assert cudalint("--version").stdout == f"cudalint {package.__version__}\n"


def test_rule_prints_its_page_by_code_or_name(cudalint):
    by_code, by_name = cudalint("rule", "CL001"), cudalint("rule", "parse-gap")
    assert by_code.stdout == by_name.stdout
    assert by_code.stdout.startswith("# parse-gap (CL001)\n")
    assert "front matter" not in by_code.stdout
    assert "default:" not in by_code.stdout


def test_capitals_do_not_matter_in_selectors(cudalint, write):
    write("k.cu", GAP)
    for selector in ("cl001", "CL001", "cl0", "all", "Parse-Gap", "FILE"):
        assert cudalint.concise("--select", selector) == ["k.cu:5: CL001"]
    assert cudalint.concise("--ignore", "cl001") == []
    assert cudalint("rule", "cl001").stdout == cudalint("rule", "CL001").stdout


def test_rules_lists_every_page(cudalint):
    heads, *listed = [line.split()[0] for line in cudalint("rules").stdout.splitlines()]
    assert heads == "Code"
    assert listed == sorted(page.name[:5] for page in (ROOT / "rules").glob("CL*.md"))


# Which files


def test_a_folder_is_walked_for_cuda(cudalint, write):
    for name in ("a.cu", "b.cuh", "sub/c.hip", "D.CU", "host.cpp", "plain.h", "kernel.h", "launch.cpp", "notes.txt"):
        write(name, "int x;\n")
    write("kernel.h", "__device__ int f();\n")
    write("launch.cpp", "#include <cuda_runtime.h>\n")
    write(".hidden/h.cu")
    write("sub/._c.cu", b"\0\0")
    done = cudalint("check", "--statistics")
    assert "in 6 files," in done.stdout
    listed = checked(cudalint)
    assert listed == ["D.CU", "a.cu", "b.cuh", "kernel.h", "launch.cpp", "sub/c.hip"]


def checked(cudalint, *arguments) -> list[str]:
    """The files that a run checks: each is given an idle suppression first."""
    for path in cudalint.folder.rglob("*"):
        if path.is_file() and not path.is_symlink() and path.suffix not in (".toml", ".json") and path.name[0] != ".":
            text = path.read_bytes()
            if b"ignore[CL001]" not in text:
                path.write_bytes(text + b"\n// cudalint: ignore[CL001]\n")
    return [line.partition(":")[0] for line in cudalint.concise("--select", "CL001,CL002", *arguments)]


def test_gitignore_that_ignores_all_but_names_with_a_dot(cudalint, write):
    write("sub/k.cu")
    write(".gitignore", "*\n!*.*\n!*/\n")
    assert "in 1 file" in cudalint("check").stdout


def test_gitignore(cudalint, write):
    for name in ("a.cu", "build/b.cu", "gen/c.cu", "gen/keep.cu", "sub/gen/d.cu", "sub/e.cu", "sub/f.cu"):
        write(name)
    write(".gitignore", "build/\n/gen/*\n!keep.cu\n")
    write("sub/.gitignore", "f.cu\n")
    assert checked(cudalint) == ["a.cu", "gen/keep.cu", "sub/e.cu", "sub/gen/d.cu"]
    assert checked(cudalint, "sub") == ["sub/e.cu", "sub/gen/d.cu"]
    assert checked(cudalint, "gen") == ["gen/keep.cu"]
    assert checked(cudalint, "build/b.cu") == ["build/b.cu"]


def test_exclude_and_force_exclude(cudalint, write):
    for name in ("a.cu", "third_party/b.cu", "sub/third_party/c.cu", "sub/d_gen.cu"):
        write(name)
    write("plain.h", "int x;\n")
    write("cudalint.toml", 'exclude = ["third_party", "*_gen.cu"]\n')
    assert checked(cudalint) == ["a.cu"]
    named = ["a.cu", "sub/d_gen.cu", "third_party/b.cu"]
    assert checked(cudalint, *named) == named
    assert checked(cudalint, "--force-exclude", *named) == ["a.cu"]
    assert checked(cudalint, "third_party") == ["third_party/b.cu"]
    assert checked(cudalint, "third_party", "--force-exclude") == []
    assert checked(cudalint, "plain.h") == ["plain.h"]
    assert checked(cudalint, "plain.h", "--force-exclude") == []


def test_links_are_not_followed_unless_named(cudalint, write, tmp_path_factory):
    write("a.cu")
    outside = tmp_path_factory.mktemp("outside")
    (outside / "o.cu").write_text("// cudalint: ignore[CL001]\n")
    (cudalint.folder / "loop").symlink_to(cudalint.folder, target_is_directory=True)
    (cudalint.folder / "out").symlink_to(outside, target_is_directory=True)
    (cudalint.folder / "o.cu").symlink_to(outside / "o.cu")
    assert checked(cudalint) == ["a.cu"]
    assert checked(cudalint, "out") == ["out/o.cu"]
    assert checked(cudalint, "o.cu") == ["o.cu"]


def test_each_file_once_in_the_order_of_paths(cudalint, write):
    for name in ("b.cu", "a/z.cu", "a.cu"):
        write(name, GAP)
    want = ["a.cu:5: CL001", "a/z.cu:5: CL001", "b.cu:5: CL001"]
    assert sorted(cudalint.concise("b.cu", ".", "a", "./b.cu")) == sorted(want)
    assert cudalint.concise("b.cu", ".") == cudalint.concise(".")


def test_several_processes_give_the_same(cudalint, write):
    for i in range(60):
        write(f"d{i % 7}/k{i}.cu", GAP if i % 3 else GOOD)
    one, default, four = (cudalint("check", *how) for how in (["--jobs", "1"], [], ["--jobs", "4"]))
    assert one.stdout == default.stdout == four.stdout
    assert one.stdout.count("CL001") == 40 * 2  # the header and the page's address


@pytest.mark.skipif(sys.platform != "linux", reason="limits open files")
def test_no_more_open_files_for_processes(cudalint, write, tmp_path):
    for i in range(4):
        write(f"k{i}.cu", GAP)
    limited = "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (14, 14)); import cudalint.cli as c; "
    command = [sys.executable, "-c", limited + "sys.exit(c.main())", "check", "--jobs", "2"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    assert done.stdout == cudalint("check", "--jobs", "1").stdout


# Streams


def test_stdin(cudalint, write):
    write("cudalint.toml", 'level = { CL001 = "error" }\n')
    done = cudalint("check", "--stdin-filename", "sub/k.cu", "--output-format", "concise", stdin=GAP)
    assert done.returncode == 1
    assert done.stdout.startswith("sub/k.cu:5:1: error CL001")
    full = cudalint("check", "--stdin-filename", "sub/k.cu", stdin=GAP)
    assert "<<<<<<< ours" in full.stdout


def test_stdin_stands_for_the_file_on_disk(cudalint, write):
    write("k.cu", GAP)
    on_disk = cudalint.json("k.cu")
    assert on_disk == cudalint.json("--stdin-filename", "k.cu", stdin=GAP)
    assert cudalint.json("--stdin-filename", "k.cu", stdin=GOOD) == []
    assert cudalint.json("--stdin-filename", "k.cu", "-", stdin=GOOD) == []


def test_output_file(cudalint, write):
    write("k.cu", GAP)
    on_stdout = cudalint("check", "--output-format", "json").stdout
    done = cudalint("check", "--output-format", "json", "--output-file", "report.json")
    assert done.stdout == ""
    assert (cudalint.folder / "report.json").read_text() == on_stdout
    assert [p.name for p in cudalint.folder.glob("report*")] == ["report.json"]


@pytest.mark.parametrize("option", ["--output-file", "--write-baseline"])
def test_a_source_is_not_overwritten(cudalint, write, option):
    source = write("k.cu", GAP)
    done = cudalint("check", option, "k.cu", "k.cu")
    assert done.returncode == 2
    assert "is a source file and is not overwritten" in done.stderr
    assert source.read_text() == GAP


def test_statistics(cudalint, write):
    write("a.cu", GAP)
    write("b.cu", GAP + "// cudalint: ignore[CL001]\n")
    done = cudalint("check", "--statistics", "--output-format", "concise")
    assert (
        "2  CL001  note     parse-gap\n1  CL002  warning  unused-ignore\n3 findings in 2 files, 11 lines, "
        in done.stdout
    )
    machine = cudalint("check", "--statistics", "--output-format", "json")
    assert len(json.loads(machine.stdout)) == 3
    assert "2  CL001" in machine.stderr


def test_a_reader_that_goes_away(cudalint, write):
    for i in range(30):
        write(f"k{i}.cu", GAP * 40)
    command = f"{sys.executable} -m cudalint check | head -n 1"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"], cwd=cudalint.folder, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert done.stdout.count("\n") == 1


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_ctrl_c(cudalint, write, jobs):
    for i in range(400):
        write(f"k{i}.cu", GOOD * 200)
    process = subprocess.Popen(
        [sys.executable, "-m", "cudalint", "check", "--jobs", jobs],
        cwd=cudalint.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        # a shell that runs us in the background makes its children deaf to Ctrl-C
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    time.sleep(0.7)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert err == ""
    assert out == ""


def test_start_up_loads_nothing_heavy(cudalint, write):
    """The budget of a cold run is 120 ms: what costs more than it gives must not creep in."""
    write("k.cu")
    script = (
        "import sys; from cudalint.cli import main; main(['check', 'k.cu']);"
        "print(*sorted({'numpy', 'clang', 'pathspec', 'tomllib', 'tomli', 'dataclasses', 'inspect', 'jsonschema',"
        " 'importlib.metadata', 'importlib.resources', 'multiprocessing', 'concurrent.futures', 'pathlib', 'difflib',"
        " 'json', 'urllib.parse', 'unicodedata', 'subprocess', 'socket', 'logging'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=cudalint.folder, capture_output=True, text=True, check=True
    )
    assert done.stdout == "No findings in 1 file.\n\n"


def test_a_baseline_does_not_depend_on_what_marks_the_root(cudalint, write, folder):
    write("src/k.cu", GAP)
    assert cudalint("check", "src", "--write-baseline", "old.json").returncode == 0
    (folder / ".git").rmdir()
    assert cudalint.json("--baseline", "old.json", "src") == []
    write("moved/k.cu", GAP)
    assert [f["file"] for f in cudalint.json("--baseline", "old.json", "src", "moved")] == ["moved/k.cu"]


def test_paths_may_follow_options(cudalint, write):
    write("a.cu")
    write("b.cu", GAP)
    assert "b.cu:5" in cudalint("check", "a.cu", "--output-format", "concise", "b.cu").stdout


def test_an_empty_path_is_a_mistake(cudalint, write):
    write("a.cu")
    for arguments in (("",), ("--stdin-filename", "")):
        done = cudalint("check", *arguments, stdin="")
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1
        assert "empty" in done.stderr


@pytest.mark.parametrize("name", ["cudalint.toml", ".cudalint.toml", "pyproject.toml"])
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_a_configuration_that_is_no_file_is_refused(cudalint, write, folder, name, make):
    write("k.cu")
    make(folder / name)
    done = cudalint("check", "k.cu")
    assert (done.returncode, done.stderr) == (2, f"cudalint: {name}: is no ordinary file\n")


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_ignores_nothing(cudalint, write, folder, make):
    write("sub/k.cu", GAP)
    make(folder / ".gitignore")
    assert cudalint.concise(".") == cudalint.concise("sub") == ["sub/k.cu:5: CL001"]


def test_a_baseline_is_of_everything(cudalint, write):
    write("k.cu", GAP)
    old = write("old.json", "as it was")
    done = cudalint("check", "--write-baseline", "old.json", "k.cu", "missing.cu")
    assert done.returncode == 2
    assert done.stderr.endswith("cudalint: old.json is not written: not everything was checked\n")
    assert old.read_text() == "as it was"


def test_what_is_no_file_is_refused(cudalint, folder):
    os.mkfifo(folder / "pipe.cu")
    for name in ("pipe.cu", "/dev/zero"):
        done = cudalint("check", name)
        assert done.returncode == 2
        assert "no ordinary file" in done.stderr


def test_a_huge_file_is_told_and_left(cudalint, write):
    write("huge.cu", "// " + "x" * (5 << 20))
    write("k.cu", GAP)
    assert cudalint.concise(".") == ["huge.cu:1: CL001", "k.cu:5: CL001"]


def test_a_full_disk_is_one_line(cudalint, write):
    write("k.cu", GAP)
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "cudalint", "check", "k.cu"], cwd=cudalint.folder, stdout=full,
            stderr=subprocess.PIPE, check=False,
        )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.count(b"\n") == 1
