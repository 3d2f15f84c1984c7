"""What CI systems are given: the reports `junit` and `gitlab`, the GitHub action, and what docs/ci.md shows."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest
import yaml
from conftest import GAP, GOOD, ROOT
from test_report import finding, rendered

RUN = "void run(float *x, int n) {\n    scale<<<n / 256, 256>>>(x, n);\n}\n"
"""One CL203, at line 6 behind GOOD."""
ODD = 'a <b> & "c"\x1b[31m\x00\ud800\uffff\n]]>'


# junit


def junit(text: str) -> list[tuple[str, dict[str, str], list[tuple[str, str, list[str]]]]]:
    """The suites: name, counts, tests with what is in them. Counts must be right."""
    root = ElementTree.fromstring(text.encode())
    assert root.tag == "testsuites"
    for each in (root, *root):
        for count, tag in (("tests", "testcase"), ("failures", "failure"), ("errors", "error")):
            assert each.get(count) == str(len(list(each.iter(tag))))
    suites = []
    for suite in root:
        assert suite.tag == "testsuite"
        tests = []
        for case in suite:
            assert case.tag == "testcase" and case.get("classname") and case.get("name")
            tests.append((case.get("classname"), case.get("name"), [child.tag for child in case]))
        assert len({test[:2] for test in tests}) == len(tests)
        suites.append((suite.get("name"), tests))
    return suites


def test_junit():
    text = rendered("junit", finding(), finding(line=3, level="warning"), finding("/q/n.cu", level="note"))
    assert junit(text) == [
        (
            "src/k.cu",
            [
                ("src/k.cu", "CL001 parse-gap at 2:2", ["failure"]),
                ("src/k.cu", "CL001 parse-gap at 3:2", ["failure"]),
            ],
        ),
        ("/q/n.cu", [("/q/n.cu", "CL001 parse-gap at 2:2", ["system-out"])]),
    ]
    failure = ElementTree.fromstring(text.encode())[0][0][0]
    assert failure.attrib == {"type": "error", "message": "the grid is too short"}
    assert failure.text.splitlines()[0] == "src/k.cu:2:2"
    assert "n = 257" in failure.text and "help: round up the grid" in failure.text


def test_junit_of_a_clean_run():
    assert junit(rendered("junit")) == [("cudalint", [("cudalint", "run", [])])]


def test_junit_tells_problems():
    text = rendered("junit", finding(), problems=["k.cu: cannot be read", "and another"])
    assert junit(text)[1] == ("cudalint", [("cudalint", "run", ["error"])])
    assert "and another" in text


def test_junit_of_odd_text():
    text = rendered("junit", finding(f"/p/{ODD}.cu", message=ODD, help=ODD))
    ((name, _),) = junit(text)
    failure = ElementTree.fromstring(text.encode("utf-8"))[0][0][0]
    assert name.startswith('a <b> & "c"') and failure.get("message").startswith('a <b> & "c"')


# gitlab

SCHEMA = {
    # What GitLab documents of the report; it shows what it does not know of as "unknown".
    "type": "array",
    "items": {
        "type": "object",
        "required": ["description", "check_name", "fingerprint", "severity", "location"],
        "properties": {
            "description": {"type": "string", "minLength": 1},
            "check_name": {"type": "string", "minLength": 1},
            "fingerprint": {"type": "string", "minLength": 1},
            "severity": {"enum": ["info", "minor", "major", "critical", "blocker"]},
            "location": {
                "type": "object",
                "required": ["path", "lines"],
                "properties": {
                    "path": {"type": "string", "pattern": "^[^/]"},
                    "lines": {
                        "type": "object",
                        "required": ["begin"],
                        "properties": {"begin": {"type": "integer", "minimum": 1}},
                    },
                },
            },
        },
    },
}


def gitlab(text: str) -> list[dict[str, Any]]:
    issues: list[dict[str, Any]] = json.loads(text)
    jsonschema.validate(issues, SCHEMA)
    return issues


def test_gitlab():
    (issue,) = gitlab(rendered("gitlab", finding()))
    description = issue.pop("description")
    assert description.startswith("the grid is too short (n = 257, ")
    assert issue == {
        "check_name": "CL001 parse-gap",
        "fingerprint": "0123456789abcdef",
        "severity": "critical",
        "location": {"path": "src/k.cu", "lines": {"begin": 2, "end": 2}},
    }
    levels = [finding(level=level, witness=None) for level in ("error", "warning", "note")]
    assert [i["severity"] for i in gitlab(rendered("gitlab", *levels))] == ["critical", "major", "info"]
    assert gitlab(rendered("gitlab")) == []
    assert gitlab(rendered("gitlab", finding(message=ODD)))


def test_gitlab_fingerprints(cudalint, write):
    """Each is there once, and stays when lines come before it."""
    text = GOOD + RUN + RUN.replace("run", "again").replace("(x, n);", "(x, n); scale<<<n / 256, 256>>>(x, n);")
    write("k.cu", text)

    def prints() -> list[str]:
        done = cudalint("check", "--output-format", "gitlab")
        assert done.returncode == 1
        return [issue["fingerprint"] for issue in gitlab(done.stdout)]

    before = prints()
    assert len(before) == len(set(before)) == 3
    write("k.cu", "// more\n\n" + text)
    assert prints() == before


@pytest.mark.parametrize(("form", "read"), [("junit", junit), ("gitlab", gitlab)])
def test_to_a_file(cudalint, write, folder, form, read):
    write("k.cu", GOOD + RUN)
    write("gap.cu", GAP)
    done = cudalint("check", "--output-format", form, "--output-file", "report.txt")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "")
    assert len(read((folder / "report.txt").read_text(encoding="utf-8"))) == 2


# the action

ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
STEPS = ACTION["runs"]["steps"]


def step(name: str) -> dict[str, Any]:
    (found,) = (each for each in STEPS if each.get("id") == name or each.get("name") == name)
    return found


def act(which: dict[str, Any], folder, tmp_path, **values: str) -> tuple[int, dict[str, str], str]:
    """Run a step as GitHub's runner does: exit code, outputs, and what it prints."""
    defaults = {f"inputs.{name}": each["default"] for name, each in ACTION["inputs"].items()}
    known = {
        **defaults, "runner.temp": str(tmp_path / "temp"), "steps.python.outputs.python-path": sys.executable,
        **values,
    }  # fmt: skip

    def filled(text: str) -> str:
        return re.sub(r"\$\{\{ (\S+) \}\}", lambda match: known[match[1]], text)

    assert "${{" not in which["run"]  # an input's text must not become code
    (tmp_path / "temp").mkdir(exist_ok=True)
    outputs = tmp_path / "outputs"
    outputs.write_text("")
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", which["run"]],
        cwd=folder, capture_output=True, text=True, check=False,
        env={**os.environ, "GITHUB_OUTPUT": str(outputs), **{k: filled(v) for k, v in which["env"].items()}},
    )  # fmt: skip
    told = dict(line.split("=", 1) for line in outputs.read_text().splitlines())
    return done.returncode, told, done.stdout + done.stderr


def test_action_is_whole():
    assert ACTION["runs"]["using"] == "composite"
    assert all("description" in each and "default" in each for each in ACTION["inputs"].values())
    for each in STEPS:
        assert ("uses" in each) != ("run" in each)
        assert "uses" in each or each["shell"] == "bash"
    used = set(re.findall(r"\$\{\{ inputs\.(\w+)|inputs\.(\w+) ==", (ROOT / "action.yml").read_text()))
    assert {a or b for a, b in used} == set(ACTION["inputs"])
    upload = next(each for each in STEPS if "upload-sarif" in each.get("uses", ""))
    assert STEPS.index(step("Check")) < STEPS.index(upload) < STEPS.index(step("Result"))


@pytest.mark.parametrize(
    ("inputs", "code", "files"),
    [
        ({}, 1, ["src/a b/k.cu", "src/k.cu"]),
        ({"inputs.paths": "src/k.cu\nsrc/good.cu\n"}, 1, ["src/k.cu"]),
        ({"inputs.paths": "src/good.cu"}, 0, []),
        ({"inputs.args": "--ignore CL203 --exit-zero"}, 0, []),
        ({"inputs.args": "--baseline nowhere.json"}, 2, None),
        ({"inputs.paths": "$(touch hacked) ; touch hacked *"}, 2, []),
    ],
)
def test_action_checks(folder, write, tmp_path_factory, inputs, code, files):
    write("src/k.cu", GOOD + RUN)
    write("src/a b/k.cu", GOOD + RUN)
    write("src/good.cu")
    temp = tmp_path_factory.mktemp("runner")
    result, told, said = act(step("check"), folder, temp, **inputs)
    assert result == 0, said
    assert told.pop("code") == str(code), said
    assert not (folder / "hacked").exists()
    if files is None:
        assert told == {}
        return
    sarif = json.loads((temp / "temp" / "cudalint.sarif").read_text(encoding="utf-8"))
    assert told == {"sarif": str(temp / "temp" / "cudalint.sarif")}
    found = [r["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for r in sarif["runs"][0]["results"]]
    assert [uri.replace("%20", " ") for uri in found] == files


@pytest.mark.parametrize("code", ["0", "1", "2"])
def test_action_keeps_the_exit_code(folder, tmp_path_factory, code):
    temp = tmp_path_factory.mktemp("runner")
    assert act(step("Result"), folder, temp, **{"steps.check.outputs.code": code})[0] == int(code)


def test_action_installs(folder, tmp_path_factory):
    temp = tmp_path_factory.mktemp("runner")
    pip = temp / "python"
    pip.write_text('#!/bin/sh\necho "$@"\n')
    pip.chmod(0o755)
    python = {"steps.python.outputs.python-path": str(pip)}
    assert act(step("Install cudalint"), folder, temp, **python)[2].split()[-1] == "cudalint"
    said = act(step("Install cudalint"), folder, temp, **python, **{"inputs.version": "0.1.0"})[2]
    assert said.split()[-1] == "cudalint==0.1.0"


# docs/ci.md

BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", (ROOT / "docs" / "ci.md").read_text(encoding="utf-8"), re.M | re.S)


def blocks(language: str) -> list[str]:
    return [text for name, text in BLOCKS if name == language]


@pytest.fixture
def command(folder, write, tmp_path_factory):
    """Run a shell line with a ``cudalint`` on the path, in a repository with a branch that adds a finding."""
    path = tmp_path_factory.mktemp("bin")
    (path / "cudalint").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m cudalint "$@"\n')
    (path / "cudalint").chmod(0o755)
    clean = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    env = {**clean, "PATH": f"{path}{os.pathsep}{os.environ['PATH']}"}

    def run(line: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", line], cwd=folder, env={**env, **more}, capture_output=True, text=True, check=False
        )

    (folder / ".git").rmdir()
    write("old.cu", GOOD + RUN)
    git = "git -c user.name=t -c user.email=t@example.invalid"
    assert run(f"git init -q -b main && git add -A && {git} commit -q -m one").returncode == 0
    write("new.cu", GOOD + RUN)
    assert run(f"git checkout -q -b work && git add -A && {git} commit -q -m two").returncode == 0
    return run


@pytest.mark.parametrize("text", blocks("yaml"))
def test_shown_workflows(command, folder, text):
    """Parsed, and the commands in them run."""
    shown = yaml.safe_load(text)
    jobs = shown if isinstance(shown, list) else [shown]
    for job in shown["jobs"].values() if "jobs" in shown else ():
        jobs += job["steps"]
    for job in jobs:
        if "cudalint/cudalint@" in job.get("uses", ""):
            assert set(job["with"]) <= set(ACTION["inputs"])
            options = job["with"].get("args", "")
            assert command(f"cudalint check {options}").returncode == 1
        lines = (
            [job["run"]] if "run" in job else [x for each in job.values() if "script" in each for x in each["script"]]
        )
        for line in lines:
            if not line.startswith("pip install"):
                done = command(line, CI_MERGE_REQUEST_DIFF_BASE_SHA="main")
                assert done.returncode == 1, done.stderr
                reports = [each["artifacts"]["reports"] for each in job.values() if "artifacts" in each]
                for path in (path for report in reports for path in report.values()):
                    assert (folder / path).exists()


@pytest.mark.parametrize("text", blocks("sh"))
def test_shown_commands(command, text):
    done = command(text.partition("#")[0])
    assert done.returncode == (0 if "--write-baseline" in text or "--add-ignore" in text else 1), done.stderr
    assert ("old.cu" in done.stdout) == ("--add-ignore" in text)


@pytest.mark.skipif(shutil.which("make") is None, reason="no make")
def test_shown_make(command, write):
    write("Makefile", blocks("make")[0])
    done = command("make lint")
    assert done.returncode == 2 and "CL203" in done.stdout


@pytest.mark.skipif(shutil.which("cmake") is None, reason="no cmake")
def test_shown_cmake(command, write):
    write(
        "CMakeLists.txt", "cmake_minimum_required(VERSION 3.10)\nproject(shown LANGUAGES NONE)\n" + blocks("cmake")[0]
    )
    done = command("cmake -S . -B build && cmake --build build --target lint")
    assert done.returncode != 0 and "CL203" in done.stdout
