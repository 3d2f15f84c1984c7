"""The pre-commit hooks, run by pre-commit itself against a small repository."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from conftest import GOOD, ROOT
from test_bad_input import FAULTY

if TYPE_CHECKING:
    from pathlib import Path

PARTS = ("src", "rules", "pyproject.toml", "README.md", "LICENSE", ".pre-commit-hooks.yaml")


def run(*command: str, cwd: Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("GIT_", "PYTHON"))}
    return subprocess.run(
        command, cwd=cwd, env={**clean, **(env or {})}, capture_output=True, text=True, check=False, timeout=300
    )


def commit(folder: Path) -> None:
    for command in (
        ["git", "init", "-q"],
        ["git", "add", "-A"],
        ["git", "-c", "user.name=t", "-c", "user.email=t@example.invalid", "commit", "-q", "-m", "all"],
    ):
        done = run(*command, cwd=folder)
        assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def hook(tmp_path_factory):
    """``pre-commit try-repo`` of this checkout in a repository of the user's."""
    base = tmp_path_factory.mktemp("hook")
    ours, theirs = base / "cudalint", base / "project"
    ours.mkdir()
    for part in PARTS:
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(source, ours / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, ours / part)
    commit(ours)
    theirs.mkdir()
    for name, text in {
        "src/fault.cu": FAULTY,
        "src/good.cu": GOOD,
        "src/kernel.hip": FAULTY,
        "third_party/fault.cu": FAULTY,
        "include/kernel.hpp": FAULTY,
        "include/plain.hpp": "int x;\n",
        "model.py": f"import cupy\nk = cupy.RawKernel(r'''\n{FAULTY}''', 'k')\n",
        "plain.py": "import cupy\n",
        "lab.ipynb": json.dumps({"cells": [{"cell_type": "code", "source": f"%%cu\n{FAULTY}"}]}),
        "cudalint.toml": 'exclude = ["third_party"]\n',
        "readme.txt": "nothing to do\n",
    }.items():
        (theirs / name).parent.mkdir(parents=True, exist_ok=True)
        (theirs / name).write_text(text)
    commit(theirs)

    def hook(name: str, *files: str) -> subprocess.CompletedProcess[str]:
        return run(
            sys.executable, "-m", "pre_commit", "try-repo", str(ours), name, "--verbose", "--files", *files,
            cwd=theirs, env={"PRE_COMMIT_HOME": str(base / "home"), "PRE_COMMIT_COLOR": "never"},
        )  # fmt: skip

    return hook


def test_the_hook_sees_cuda_sources(hook):
    done = hook("cudalint", "src/fault.cu", "src/good.cu", "third_party/fault.cu", "include/kernel.hpp", "readme.txt")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "src/fault.cu:4:17: error CL301 " in done.stdout
    assert "kernel.hpp" not in done.stdout
    assert "1 error in 1 file of 2 checked." in done.stdout


def test_the_hook_passes_and_skips(hook):
    assert hook("cudalint", "src/good.cu").returncode == 0
    assert "(no files to check)Skipped" in hook("cudalint", "readme.txt").stdout
    assert "src/kernel.hip:4:17: error CL301 " in hook("cudalint", "src/kernel.hip").stdout


def test_the_hook_for_headers(hook):
    done = hook("cudalint-headers", "include/kernel.hpp", "include/plain.hpp", "src/good.cu")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "include/kernel.hpp:4:17: error CL301 " in done.stdout
    assert "1 error in 1 file of 1 checked." in done.stdout
    # each file is the business of one of the two
    assert "(no files to check)Skipped" in hook("cudalint-headers", "src/fault.cu", "src/kernel.hip").stdout


def test_the_hook_for_notebooks_and_python(hook):
    done = hook("cudalint-python", "model.py", "plain.py", "lab.ipynb", "src/fault.cu")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "model.py:6:17: error CL301 " in done.stdout
    assert "lab.ipynb:cell 1:5:17: error CL301 " in done.stdout
    assert "2 errors in 2 files of 2 checked." in done.stdout
