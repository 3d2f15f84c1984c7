"""How long cudalint takes: one cold file (the whole process) and a tree on one core.

    python benchmarks/run.py [--quick] [TREE]

TREE is any folder of CUDA sources. Without one, copies of the fixtures are checked, which is the worst
case: short files, most of them made to be flagged, and a finding's witness costs more than a sound
kernel. Nothing is warm but the system's file cache, as for a user who runs it from an editor or a hook.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
AIM_MS, AIM_LINES = 120, 30_000
COPIES = 20


def seconds(command: list[str]) -> tuple[float, str]:
    """Wall time of a process from start to end, and what it printed. Bytecode is kept, as in an installed package."""
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    took = time.perf_counter() - began
    if done.returncode not in (0, 1):
        sys.stderr.write(done.stderr)
    return took, done.stdout


def cold(command: list[str], runs: int) -> float:
    """Median milliseconds."""
    return statistics.median(seconds(command)[0] for _ in range(runs)) * 1000


def one_file() -> Path:
    """The fixture of middling length."""
    files = sorted((ROOT / "fixtures").rglob("*.cu"), key=lambda path: (path.stat().st_size, path))
    return files[len(files) // 2]


def main() -> None:
    parser = argparse.ArgumentParser(description="Time cudalint.")
    parser.add_argument("tree", nargs="?", type=Path, metavar="TREE")
    parser.add_argument("--quick", action="store_true", help="fewer runs")
    options = parser.parse_args()
    runs = 5 if options.quick else 25
    check = [sys.executable, "-m", "cudalint", "check"]
    file = one_file()
    seconds([*check, str(file)])  # compiles the package's bytecode
    empty = cold([sys.executable, "-c", "pass"], runs)
    inside = cold([*check, str(file)], runs)
    with tempfile.TemporaryDirectory() as folder:
        single = cold([*check, shutil.copy(file, folder)], runs)
    with tempfile.TemporaryDirectory() as folder:
        tree = options.tree
        if tree is None:
            tree = Path(folder)
            for i in range(2 if options.quick else COPIES):
                shutil.copytree(ROOT / "fixtures", tree / str(i))
        took, output = seconds([*check, "--jobs", "1", "--statistics", "--output-format", "concise", str(tree)])
    said = re.search(r"([\d,]+) files?, ([\d,]+) lines?, ([\d.]+) s$", output.strip())
    if said is None:
        sys.exit(f"no file to check in {tree}")
    lines = int(said[2].replace(",", ""))

    name = os.path.relpath(file, ROOT)
    print(f"{'python -c pass':<44}{empty:>10.0f} ms")
    print(f"{'cudalint check, one file alone, cold process':<44}{single:>10.0f} ms   (aim {AIM_MS}; {name})")
    print(f"{'the same file in its project':<44}{inside:>10.0f} ms   (whose other files may launch its kernels)")
    print(f"{'cudalint check, a tree, one core':<44}{lines / took:>10,.0f} lines/s   (aim {AIM_LINES:,};"
          f" {said[1]} files, {lines:,} lines, {took:.1f} s)")  # fmt: skip


if __name__ == "__main__":
    main()
