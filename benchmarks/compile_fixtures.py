"""Compile every fixture and every example on a rule's page with nvcc.

``python benchmarks/compile_fixtures.py [--jobs N] [--fixed] [PATH…]``, by default all of ``fixtures/`` and ``rules/``.
A fixture is a claim about CUDA C++, so it has to be CUDA C++. With ``--fixed``, the sources below the paths that
``cudalint check --fix --unsafe-fixes`` changes are compiled as it leaves them: a repaired file compiles where it did
before. Prints what fails and exits 1 if anything does.
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


def repaired(paths: list[Path], scratch: Path) -> list[Path]:
    """The files that a repair of copies of the paths, made below ``scratch``, changes."""
    copies = []
    for number, path in enumerate(paths):
        copies.append(scratch / "fixed" / str(number) / path.name)
        shutil.copytree(path, copies[-1]) if path.is_dir() else copies[-1].parent.mkdir(parents=True)
        if not path.is_dir():
            shutil.copy(path, copies[-1])
    before = {file: file.read_bytes() for copy in copies for file in sources([copy], scratch)}
    command = [
        sys.executable,
        "-m",
        "cudalint",
        "check",
        "--fix",
        "--unsafe-fixes",
        "--select",
        "ALL",
        *map(str, copies),
    ]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=False, cwd=scratch)
    return [file for file, data in before.items() if file.read_bytes() != data]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="*", type=Path, default=[ROOT / "fixtures", ROOT / "rules"])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--fixed", action="store_true", help="repair copies of the files, and compile those")
    options = parser.parse_args()
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        print("no nvcc on PATH", file=sys.stderr)
        return 2

    def compiled(file: Path) -> str:
        command = [nvcc, f"-arch={options.arch}", "--extended-lambda", "-c", "-o", "/dev/null", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stderr or done.stdout if done.returncode else ""

    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(options.jobs) as pool:
        find = repaired if options.fixed else sources
        files = find(options.paths, Path(scratch))
        failures = 0
        for file, errors in zip(files, pool.map(compiled, files), strict=True):
            if errors:
                failures += 1
                print(f"{file}:\n{errors}", flush=True)
    print(f"{len(files)} files, {failures} do not compile")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
