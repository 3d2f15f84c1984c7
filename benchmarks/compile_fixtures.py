"""Compile every fixture and every example on a rule's page with nvcc.

``python benchmarks/compile_fixtures.py [--jobs N] [PATH…]``, by default all of ``fixtures/`` and ``rules/``.
A fixture is a claim about CUDA C++, so it has to be CUDA C++. Prints what fails and exits 1 if anything does.
About a second a file; fixtures of CL001, which are not meant to be CUDA throughout, are left out.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NOT_CUDA = ("CL001",)
EXAMPLE = re.compile(r"^```cuda\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def sources(paths: list[Path], scratch: Path) -> list[Path]:
    """The ``.cu`` files below the paths; a page's examples are written below ``scratch``."""
    found: list[Path] = []
    for path in paths:
        below = sorted(p for p in path.rglob("*") if p.suffix in (".cu", ".md")) if path.is_dir() else [path]
        for file in below:
            if any(part.startswith(NOT_CUDA) for part in file.parts):
                continue
            if file.suffix == ".cu":
                found.append(file)
            else:
                for n, text in enumerate(EXAMPLE.findall(file.read_text())):
                    found.append(scratch / f"{file.stem}-{n}.cu")
                    found[-1].write_text(text)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="*", type=Path, default=[ROOT / "fixtures", ROOT / "rules"])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--arch", default="sm_90")
    options = parser.parse_args()
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        print("no nvcc on PATH", file=sys.stderr)
        return 2

    def compiled(file: Path) -> str:
        command = [nvcc, f"-arch={options.arch}", "-c", "-o", "/dev/null", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stderr or done.stdout if done.returncode else ""

    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(options.jobs) as pool:
        files = sources(options.paths, Path(scratch))
        failures = 0
        for file, errors in zip(files, pool.map(compiled, files), strict=True):
            if errors:
                failures += 1
                print(f"{file}:\n{errors}", flush=True)
    print(f"{len(files)} files, {failures} do not compile")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
