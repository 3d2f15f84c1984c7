"""What the tests share: the real command in a process of its own, and folders of files."""

from __future__ import annotations

import ctypes
import gc
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parents[1]

GOOD = """\
__global__ void scale(float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= 2.0f;
}
"""
GAP = GOOD + "<<<<<<< ours\n"
"""A file with one CL001, at line 5."""


_MARKER = re.compile(r"\bexpect(-next)?:\s*(CL\d{3}(?:[,\s]+CL\d{3})*)")


def expected(path: Path) -> set[tuple[int, str]]:
    """What the file's ``expect: CL203`` and ``expect-next:`` comments ask for: (line, code) each."""
    return {
        (number + bool(following), code)
        for number, line in enumerate(re.split(r"\r\n|\r|\n", path.read_bytes().decode("utf-8", "replace")), 1)
        for following, codes in _MARKER.findall(line)
        for code in re.findall(r"CL\d{3}", codes)
    }


def obey_permissions() -> None:
    """Root reads and writes everything; without these two capabilities it does not."""
    if sys.platform == "linux" and os.geteuid() == 0:
        for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
            ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP


class Cudalint:
    """Runs ``cudalint`` in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(
        self,
        *arguments: str,
        stdin: str | bytes | None = None,
        env: dict[str, str] | None = None,
        cwd: Path | None = None,
        obeying: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        environment = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR", "CUDALINT_DEBUG")}
        done = subprocess.run(
            [sys.executable, "-m", "cudalint", *arguments],
            cwd=cwd or self.folder,
            input=stdin.encode() if isinstance(stdin, str) else stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            env={**environment, **(env or {})},
            timeout=120,
            preexec_fn=obey_permissions if obeying else None,  # what root may do shows nothing
            check=False,
        )
        out, err = done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")
        assert "Traceback" not in err, err
        return subprocess.CompletedProcess(done.args, done.returncode, out, err)

    def json(self, *arguments: str, **how: Any) -> list[dict[str, Any]]:
        """The findings of ``check``."""
        import json

        done = self("check", "--output-format", "json", *arguments, **how)
        assert done.returncode in (0, 1), done.stderr
        found: list[dict[str, Any]] = json.loads(done.stdout)
        return found

    def concise(self, *arguments: str, **how: Any) -> list[str]:
        """The findings of ``check``, ``file:line: code`` each."""
        return [f"{f['file']}:{f['line']}: {f['code']}" for f in self.json(*arguments, **how)]


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """Checks in this process turn garbage collection off and collect between their own files; a test ends before."""
    yield
    if gc.get_count()[0] > 200_000:
        gc.unfreeze()
        gc.collect()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder that is a project of its own."""
    (tmp_path / ".git").mkdir()
    return tmp_path


@pytest.fixture
def cudalint(folder: Path) -> Cudalint:
    return Cudalint(folder)


@pytest.fixture
def write(folder: Path) -> Callable[..., Path]:
    """Write a file below the folder; makes what is missing on the way."""

    def write(name: str, content: str | bytes = GOOD) -> Path:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write
