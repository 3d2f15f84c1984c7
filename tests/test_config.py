"""The configuration and the selection of rules, through the command."""

from __future__ import annotations

import pytest
from conftest import GAP, GOOD

IDLE = GOOD + "// cudalint: ignore[CL001]\n"
BOTH = GAP.replace("<<<<<<<", "// cudalint: ignore-file[CL777]\n<<<<<<<")
"""One CL001 (line 6) and one CL002 (line 5)."""


def codes(cudalint, *arguments) -> list[str]:
    return [f["code"] for f in cudalint.json(*arguments)]


# Selection


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        ([], ["CL002", "CL001"]),
        (["--select", "CL001"], ["CL001"]),
        (["--select", "parse-gap"], ["CL001"]),
        (["--select", "CL001", "--select", "CL002"], ["CL002", "CL001"]),
        (["--select", "CL001,unused-ignore"], ["CL002", "CL001"]),
        (["--select", "CL0"], ["CL002", "CL001"]),
        (["--select", "file"], ["CL002", "CL001"]),
        (["--select", "ALL"], ["CL002", "CL001"]),
        (["--select", "CL00", "--ignore", "CL002"], ["CL001"]),
        (["--ignore", "CL0"], []),
        (["--ignore", "file"], []),
        (["--ignore", "ALL"], []),
        (["--ignore", "CL001"], ["CL002"]),
        (["--select", "CL001", "--extend-select", "CL002"], ["CL002", "CL001"]),
        # the more specific selector decides, ignore wins between equals
        (["--select", "CL001", "--ignore", "CL0"], ["CL001"]),
        (["--select", "CL0", "--ignore", "CL0"], []),
        (["--select", "CL001", "--ignore", "CL001"], []),
        (["--select", "CL001", "--ignore", "parse-gap"], []),
        (["--select", "CL00", "--ignore", "CL0"], ["CL002", "CL001"]),
        (["--select", "file", "--ignore", "CL0"], []),
        (["--extend-select", "CL001", "--ignore", "ALL"], ["CL001"]),
    ],
)
def test_selection(cudalint, write, arguments, want):
    write("k.cu", BOTH)
    assert codes(cudalint, *arguments) == want


@pytest.mark.parametrize(
    ("config", "arguments", "want"),
    [
        ('select = ["CL001"]', [], ["CL001"]),
        ('select = ["CL001"]', ["--extend-select", "CL002"], ["CL002", "CL001"]),
        ('ignore = ["CL001"]', [], ["CL002"]),
        ('ignore = ["CL001"]', ["--ignore", "CL002"], []),
        ('ignore = ["CL001"]', ["--extend-select", "CL001"], ["CL002", "CL001"]),
        ('select = ["CL001"]\nextend-select = ["CL002"]', [], ["CL002", "CL001"]),
        # --select replaces all that the configuration selects and ignores
        ('select = ["CL001"]\nextend-select = ["CL001"]', ["--select", "CL002"], ["CL002"]),
        ('ignore = ["CL001"]', ["--select", "CL001"], ["CL001"]),
        ('select = ["CL001"]', ["--ignore", "ALL"], []),
        ('select = ["CL001"]', ["--isolated"], ["CL002", "CL001"]),
    ],
)
def test_the_command_line_stands_above_the_configuration(cudalint, write, config, arguments, want):
    write("k.cu", BOTH)
    write("cudalint.toml", config)
    assert codes(cudalint, *arguments) == want


# Files


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pyproject.toml", '[tool.cudalint]\nselect = ["CL001"]\n'),
        ("cudalint.toml", 'select = ["CL001"]\n'),
        (".cudalint.toml", 'select = ["CL001"]\n'),
        ("cudalint.toml", '\ufeffselect = ["CL001"]\r\n'),
    ],
)
def test_where_it_is_read_from(cudalint, write, name, text):
    write("sub/k.cu", BOTH)
    write(name, text)
    assert codes(cudalint) == ["CL001"]


def test_the_nearest_one_decides_for_each_file(cudalint, write):
    write("k.cu", BOTH)
    write("sub/k.cu", BOTH)
    write("sub/deep/k.cu", BOTH)
    write("other/k.cu", BOTH)
    write("pyproject.toml", '[tool.cudalint]\nselect = ["CL001"]\n')
    write("sub/cudalint.toml", 'select = ["CL002"]\n')
    write("other/pyproject.toml", "[project]\nname = 'not ours'\n")
    want = ["k.cu:6: CL001", "other/k.cu:6: CL001", "sub/deep/k.cu:5: CL002", "sub/k.cu:5: CL002"]
    assert sorted(cudalint.concise()) == want
    assert cudalint.concise("sub/k.cu") == ["sub/k.cu:5: CL002"]
    assert cudalint.concise("k.cu", cwd=cudalint.folder / "sub" / "deep") == ["k.cu:5: CL002"]


def test_one_folder_three_files(cudalint, write):
    write("k.cu", BOTH)
    write("pyproject.toml", '[tool.cudalint]\nselect = ["CL001"]\n')
    write("cudalint.toml", 'select = ["CL002"]\n')
    assert codes(cudalint) == ["CL002"]
    write(".cudalint.toml", 'select = ["CL001", "CL002"]\n')
    assert codes(cudalint) == ["CL002", "CL001"]


def test_config_option_replaces_the_ones_in_the_tree(cudalint, write):
    write("k.cu", BOTH)
    write("cudalint.toml", 'select = ["CL002"]\n')
    write("ci/strict.toml", 'select = ["CL001"]\nexclude = ["old"]\n')
    write("old/k.cu", BOTH)
    assert cudalint.concise("--config", "ci/strict.toml") == ["k.cu:6: CL001"]


def test_per_file_ignores(cudalint, write):
    write("k.cu", BOTH)
    write("tests/k.cu", BOTH)
    write("tests/deep/k.cu", BOTH)
    write("cudalint.toml", 'per-file-ignores = { "tests/**" = ["CL001"], "deep" = ["unused-ignore"] }\n')
    assert cudalint.concise("tests") == ["tests/k.cu:5: CL002"]
    assert cudalint.concise("k.cu", cwd=cudalint.folder / "tests" / "deep") == []
    assert len(cudalint.concise("k.cu")) == 2


def test_levels(cudalint, write):
    write("k.cu", GAP)
    write("cudalint.toml", '[level]\nCL0 = "warning"\nparse-gap = "error"\n')
    assert [f["level"] for f in cudalint.json()] == ["error"]
    assert cudalint("check").returncode == 1
    write("cudalint.toml", 'level = { file = "warning" }\n')
    assert [f["level"] for f in cudalint.json()] == ["warning"]


def test_a_configuration_that_says_nothing(cudalint, write):
    write("k.cu", BOTH)
    write("cudalint.toml", "")
    assert codes(cudalint) == ["CL002", "CL001"]


# Faults: one line that names file and key, exit 2, no report


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('select = ["CL001"', "cudalint.toml: not valid TOML: "),
        ("a = 1\nb = = 2\n", "line 2"),
        (b"select = ['\xff']\n", "cudalint.toml: line 1 is not UTF-8"),
        ('selct = ["CL001"]', "cudalint.toml: unknown key 'selct'; did you mean 'select'?"),
        ("zzz = 1", "cudalint.toml: unknown key 'zzz'"),
        ('select = "CL001"', "cudalint.toml: 'select' must be a list of strings"),
        ("select = []", "'select' in cudalint.toml names no rule"),
        ("select = [1]", "'select' must be a list of strings"),
        ('select = ["CL99"]', "unknown rule 'CL99' in 'select' of cudalint.toml"),
        ('ignore = ["parsegap"]', "unknown rule 'parsegap' in 'ignore' of cudalint.toml; did you mean 'parse-gap'?"),
        ('extend-select = ["nope"]', "unknown rule 'nope' in 'extend-select' of cudalint.toml"),
        ('exclude = "old"', "'exclude' must be a list of strings"),
        ('exclude = ["old", "["]', "'exclude' must be a list of globs, and '[' matches nothing"),
        ('exclude = ["[z-a]"]', "'exclude' must be a list of globs, and '[z-a]' matches nothing"),
        ('exclude = [""]', "'exclude' must be a list of globs, and '' matches nothing"),
        ('per-file-ignores = { "!" = ["CL001"] }', "'per-file-ignores' must be a list of globs, and '!' matches"),
        ('per-file-ignores = ["CL001"]', "'per-file-ignores' must be a table"),
        ('per-file-ignores = { "a" = "CL001" }', "'per-file-ignores' must be a table"),
        ('per-file-ignores = { "a" = ["CL9"] }', "unknown rule 'CL9' in 'per-file-ignores' of cudalint.toml"),
        ('level = { CL001 = "fatal" }', "'level' must be a table from rules to error, warning or note"),
        ('level = { CL9 = "error" }', "unknown rule 'CL9' in 'level' of cudalint.toml"),
        ('block-size = "big"', "'block-size' must be a whole number of at least 1"),
        ("block-size = 2048", "'block-size' must be a number of threads from 1 to 1024"),
        ("sm-count = 0", "'sm-count' must be a whole number of at least 1"),
        ("max-elements = true", "'max-elements' must be a whole number of at least 1"),
        (f"max-elements = {1 << 63}", "'max-elements' must be a whole number of at least 1, and of 63 bits at most"),
        ('defines = ["2X"]', "'defines' must be a list of macros"),
        ("defines = { A = 1 }", "'defines' must be a list of macros"),
    ],
)
def test_faults(cudalint, write, text, says):
    write("k.cu", BOTH)
    write("cudalint.toml", text)
    done = cudalint("check")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert says in done.stderr
    assert cudalint("check", "--isolated").returncode == 1


def test_an_include_path_that_is_not_there_is_an_error(cudalint, write):
    write("k.cu", BOTH)
    write("cudalint.toml", 'include-paths = ["gone", "."]\n')
    done = cudalint("check")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "cudalint: cudalint.toml: 'include-paths': there is no folder 'gone'\n"


@pytest.mark.parametrize("section", ["[tool.cudalint]\nignore = []\n", "[tool.cudalint]\nno-key = 1\n"])
def test_a_second_configuration_in_a_folder_is_told_not_to_count(cudalint, write, section):
    write("k.cu", BOTH)
    write("cudalint.toml", 'select = ["CL002"]\n')
    write("pyproject.toml", "[tool.ruff]\n")
    alone = cudalint("check")
    assert (alone.returncode, alone.stderr) == (1, "")
    write("pyproject.toml", section)
    done = cudalint("check")
    assert (done.returncode, done.stdout) == (1, alone.stdout)
    assert done.stderr == "cudalint: cudalint.toml counts, and what pyproject.toml says of cudalint does not\n"


def test_a_pyproject_that_is_not_about_cudalint_may_be_anything(cudalint, write):
    write("k.cu", BOTH)
    write("pyproject.toml", "= broken\n")
    assert len(codes(cudalint)) == 2
    write("pyproject.toml", "[tool.cudalint]\nselect = broken\n")
    done = cudalint("check")
    assert (done.returncode, done.stdout) == (2, "")
    assert "pyproject.toml: not valid TOML: " in done.stderr
    assert "line 2" in done.stderr


def test_tool_must_be_a_table(cudalint, write):
    write("k.cu", BOTH)
    write("pyproject.toml", "[tool]\ncudalint = 3\n")
    assert cudalint("check").stderr == "cudalint: pyproject.toml: 'tool.cudalint' must be a table\n"
