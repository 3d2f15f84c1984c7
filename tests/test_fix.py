"""Repairs: what --fix changes, what it leaves, and that a repaired file is better and nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import Counter

import pytest
from conftest import ROOT

COUNT = """\
__global__ void scale(float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= 2.0f;
}
void run(float *x, int n) {
    if (n <= 0) return;
    scale<<<(n + 255) / 256, 256>>>(x, n);
}
"""
REPAIRED = COUNT.replace("(n + 255) / 256", "n / 256 + (n % 256 != 0)")


def test_fix_repairs_the_file_and_reports_what_is_left(cudalint, write):
    path = write("k.cu", COUNT)
    assert "= fix: divide first" in cudalint("check").stdout
    done = cudalint("check", "--fix")
    assert path.read_text() == REPAIRED
    assert done.stdout == "No findings in 1 file.\n"
    assert done.stderr == "cudalint: 1 finding repaired in 1 file\n"
    assert done.returncode == 0
    assert cudalint("check", "--fix").stderr == "cudalint: 0 findings repaired in 0 files\n"


def test_diff_changes_nothing_and_can_be_applied(cudalint, write, folder):
    path = write("src/k.cu", COUNT)
    done = cudalint("check", "--diff")
    assert done.returncode == 1
    assert path.read_text() == COUNT
    assert "1 finding would be repaired in 1 file" in done.stderr
    subprocess.run(["patch", "-p1"], cwd=folder, input=done.stdout.encode(), check=True, capture_output=True)
    assert path.read_text() == REPAIRED
    again = cudalint("check", "--diff")
    assert (again.stdout, again.returncode) == ("", 0)


@pytest.mark.parametrize(
    ("encoding", "newline", "mark"),
    [("utf-8", "\r\n", b""), ("utf-8", "\r", b""), ("utf-8", "\n", b"\xef\xbb\xbf"), ("cp1252", "\n", b""),
     ("utf-16-le", "\r\n", b"\xff\xfe")],
)  # fmt: skip
def test_encoding_mark_and_line_ends_stay(cudalint, write, encoding, newline, mark):
    def data(text: str) -> bytes:
        return mark + ("// Maß, „n“ £\n" + text).replace("\n", newline).encode(encoding)

    path = write("k.cu", data(COUNT))
    assert cudalint("check", "--fix").returncode == 0
    assert path.read_bytes() == data(REPAIRED)


def test_the_mode_of_a_file_stays_and_links_are_written_through(cudalint, write, folder):
    path = write("real/k.cu", COUNT)
    path.chmod(0o750)
    (folder / "link.cu").symlink_to(path)
    assert cudalint("check", "--fix", "link.cu").returncode == 0
    assert path.read_text() == REPAIRED
    assert path.stat().st_mode & 0o777 == 0o750
    assert (folder / "link.cu").is_symlink()


def test_stdin_comes_back_repaired(cudalint, folder):
    done = cudalint("check", "--fix", "--stdin-filename", "k.cu", stdin=COUNT)
    assert done.stdout == REPAIRED
    assert "No findings in 1 file." in done.stderr
    clean = cudalint("check", "--fix", "--stdin-filename", "k.cu", stdin=REPAIRED)
    assert clean.stdout == REPAIRED
    assert not (folder / "k.cu").exists()


def test_what_is_suppressed_or_not_selected_is_left(cudalint, write):
    path = write("k.cu", COUNT.replace(">>>(x, n);", ">>>(x, n);  // cudalint: ignore[CL104]"))
    before = path.read_text()
    cudalint("check", "--fix")
    cudalint("check", "--fix", "--select", "barrier")
    assert path.read_text() == before


def test_a_macro_is_not_repaired_at_its_use(cudalint, write):
    path = write("k.cu", COUNT.replace("(n + 255) / 256", "BLOCKS(n)"))
    path.write_text("#define BLOCKS(n) (((n) + 255) / 256)\n" + path.read_text())
    before = path.read_text()
    done = cudalint("check", "--fix")
    assert "CL104" in done.stdout
    assert path.read_text() == before


def test_an_edit_beside_a_macro_is_made(cudalint, write):
    path = write("k.cu", "#define T 256\n" + COUNT.replace("(n + 255) / 256, 256", "(n + T - 1) / T, T"))
    cudalint("check", "--fix")
    assert "scale<<<n / T + (n % T != 0), T>>>" in path.read_text()


def test_options_that_exclude_each_other(cudalint, write):
    write("k.cu", COUNT)
    for arguments in (["--unsafe-fixes"], ["--fix", "--write-baseline", "b.json"]):
        done = cudalint("check", *arguments)
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anything")
def test_a_file_that_cannot_be_written_is_told(cudalint, write):
    path = write("k.cu", COUNT)
    path.chmod(0o444)
    done = cudalint("check", "--fix")
    assert done.returncode == 2
    assert "cannot be written" in done.stderr
    assert path.read_text() == COUNT


def _codes(found) -> Counter[str]:
    return Counter(f["code"] for f in found if f["code"] != "CL002")


@pytest.mark.parametrize("safe", [True, False], ids=["safe", "unsafe"])
def test_repaired_fixtures_have_lost_their_findings_and_gained_none(cudalint, folder, safe):
    """Over all fixtures at once: what had a fix is gone, nothing else has come."""
    shutil.copytree(ROOT / "fixtures", folder, dirs_exist_ok=True)
    unsafe = [] if safe else ["--unsafe-fixes"]
    before = cudalint.json("--jobs", "2")
    cudalint("check", "--fix", *unsafe, "--jobs", "2")
    after = cudalint.json("--jobs", "2")
    wanted = ("safe",) if safe else ("safe", "unsafe")
    fixed = [f for f in before if f["fix"] and f["fix"]["applicability"] in wanted]
    assert fixed
    assert not [f for f in after if f["fix"] and f["fix"]["applicability"] in wanted]
    files = {e["file"] for f in fixed for e in f["fix"]["edits"]} | {f["file"] for f in fixed}
    for file in sorted(files):
        had, has = (_codes(f for f in side if f["file"] == file) for side in (before, after))
        gone = _codes(f for f in fixed if f["file"] == file)
        assert has == had - gone, file
