"""Repairs: what --fix changes, what it leaves, and that a repaired file is better and nothing else."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections import Counter

import pytest
from conftest import ROOT

from cudalint.engine import Options, check
from cudalint.fix import repair

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


def test_findings_that_are_gone_are_counted_not_repairs(cudalint, write):
    """Two launches of one size, each of which asks for the guard that the other one gets."""
    text = (ROOT / "fixtures/CL204-empty-launch/faulty-checked-launch-before.cu").read_text()
    write("k.cu", text)
    before = len(cudalint.json("k.cu"))
    done = cudalint("check", "--fix", "--unsafe-fixes", "--output-format", "json", "k.cu")
    gone = before - len(json.loads(done.stdout))
    assert gone > 0
    assert f"cudalint: {gone} findings repaired in 1 file" in done.stderr


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


@pytest.mark.parametrize("count", ["(n /*a*/ + /*b*/255) / 256", "(n + 255) // rounded up\n / 256"])
def test_a_safe_repair_keeps_comments(cudalint, write, count):
    path = write("k.cu", COUNT.replace("(n + 255) / 256", count))
    text = path.read_text()
    assert cudalint("check", "--fix").stderr == "cudalint: 0 findings repaired in 0 files; --unsafe-fixes: 1 more\n"
    assert path.read_text() == text


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


@pytest.mark.parametrize("mode", [(0o444, 0o755), (0o644, 0o555)])
def test_what_cannot_be_written_is_not_repaired(cudalint, write, mode):
    path, other = write("sub/k.cu", COUNT), write("other.cu", COUNT)
    path.chmod(mode[0])
    path.parent.chmod(mode[1])
    done = cudalint("check", "--fix", obeying=True)
    assert done.returncode == 2
    told, counted = done.stderr.splitlines()
    assert "k.cu: cannot be written (Permission denied)" in told
    assert counted == "cudalint: 1 finding repaired in 1 file"
    assert (path.read_text(), other.read_text()) == (COUNT, REPAIRED)
    assert done.stdout.count(" CL") == 1
    assert "sub/k.cu:7:13:" in done.stdout


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


#: For each rule with a repair, a fixture that has one.
REPAIRABLE = {
    "CL101": "faulty-step", "CL102": "faulty-initialiser", "CL103": "faulty-cast-bound", "CL104": "faulty-argv",
    "CL106": "faulty-explicit-cast", "CL202": "faulty-constant-grid", "CL108": "faulty-block-granular", "CL109": "faulty-literal",
    "CL110": "faulty-allocation", "CL111": "faulty-loop-start", "CL201": "faulty-large-grid", "CL203": "faulty-two-axes",
    "CL204": "faulty-late-guard", "CL209": "faulty-store-unguarded", "CL211": "faulty-thread-start",
    "CL213": "faulty-row-per-block", "CL214": "faulty-two-axes", "CL216": "faulty-no-bytes", "CL217": "faulty-memcpy", "CL301": "faulty-nothing-lost",
    "CL302": "faulty-atomic-result", "CL304": "faulty-reverse", "CL305": "faulty-scan", "CL308": "faulty-sum",
    "CL401": "faulty-tile", "CL501": "faulty-local-flag", "CL502": "faulty-and-for-or", "CL503": "faulty-stride",
}  # fmt: skip


@pytest.mark.parametrize("code", REPAIRABLE)
def test_confirm_no_longer_reproduces_the_fault(cudalint, folder, code):
    (source,) = ROOT.glob(f"fixtures/{code}-*/{REPAIRABLE[code]}.cu")
    shutil.copy(source, folder / "k.cu")

    def verdicts() -> set[str]:
        asked = ("confirm", "--as", code, "--backend", "sim", "--output-format", "json", "k.cu")
        return {f["evidence"]["verdict"] for f in json.loads(cudalint(*asked).stdout)}

    assert "confirmed" in verdicts()
    cudalint("check", "--fix", "--unsafe-fixes")
    assert verdicts() == {"not-reproduced"}


LOOP = """\
__device__ float shade(float, long long);
__device__ int hashed(int);
__global__ void walk(float *x, unsigned *y, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
        BODY
    }
}
void run(float *x, unsigned *y, int n) { walk<<<1024, 256>>>(x, y, n); }
"""


@pytest.mark.parametrize(
    "body",
    ["x[i] = shade(x[i], i);", "y[i] = i;", "const int row = i / 64; x[row * 64 + i % 64] = 1.0f;", "x[i] += 0.5f * i;",
     "if (i + 1 < n) x[i] = x[i + 1];", "y[i] = (unsigned)i * 2654435761u;", "__stcs(&x[i], 1.0f);"],
)  # fmt: skip
def test_an_index_is_widened_where_nothing_else_changes(cudalint, write, body):
    path = write("k.cu", LOOP.replace("BODY", body))
    cudalint("check", "--fix", "--select", "CL108")
    assert "for (long long i = (long long)blockIdx.x" in path.read_text()
    assert "i += (long long)blockDim.x * gridDim.x" in path.read_text()


@pytest.mark.parametrize(
    "body",
    ["y[i] = hashed(i);", "y[i] = 2654435761u * i >> 7;", "x[i] = min(i, n);", 'printf("%d", i);', "y[i] = i ^ 12345;",
     "int *p = &i; x[*p] = 1.0f;", "int2 q{i, i}; x[q.x] = 1.0f;"],
)  # fmt: skip
def test_an_index_whose_type_something_hangs_on_is_left(cudalint, write, body):
    path = write("k.cu", LOOP.replace("BODY", body))
    before = path.read_text()
    done = cudalint("check", "--fix", "--unsafe-fixes", "--select", "CL108")
    assert "CL108" in done.stdout
    assert path.read_text() == before


def test_what_a_large_index_is_divided_into_is_widened(cudalint, write):
    """Its rows may be as many as its elements: the columns are one, and the index is past 32 bits."""
    body = "int row = i / cols; int column = i % cols; x[(long long)row * cols + column] = 1.0f;"
    whole = LOOP.replace("BODY", body).replace("int n)", "int n, int cols)").replace("x, y, n)", "x, y, n, 64)")
    path = write("k.cu", whole)
    cudalint("check", "--fix", "--select", "CL108")
    assert "    int row = i / cols;" in path.read_text()
    path.write_text(whole.replace("i < n", "i < n * cols"))
    cudalint("check", "--fix", "--select", "CL108")
    assert "long long row = i / cols; int column = i % cols;" in path.read_text()
    path.write_text(whole.replace("int n, int cols", "size_t n, size_t cols"))
    cudalint("check", "--fix", "--select", "CL103")
    assert "long long row = i / cols; long long column = i % cols;" in path.read_text()


def test_a_wide_index_below_a_widened_size_is_made_in_64_bits(cudalint, write):
    path = write(
        "k.cu",
        """\
__global__ void scale(float *x, unsigned n) {
    const size_t step = gridDim.x * blockDim.x;
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) x[i] *= 2.0f;
}
void run(float *x, size_t n) { scale<<<1024, 256>>>(x, n); }
""",
    )
    cudalint("check", "--fix", "--unsafe-fixes", "--select", "CL106")
    assert "scale(float *x, size_t n)" in path.read_text()
    assert "step = (size_t)gridDim.x * blockDim.x;" in path.read_text()
    assert "size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;" in path.read_text()


def test_what_wraps_below_zero_in_32_bits_stays_negative(cudalint, write):
    """`threadIdx.x - pad` is unsigned: as an int it is negative, widened as it stands it would be 2^32 - 1."""
    loop = LOOP.replace("blockIdx.x * blockDim.x + threadIdx.x", "blockIdx.x * blockDim.x + first").replace(
        "    for", "    int first = threadIdx.x - 1;\n    for"
    )
    path = write("k.cu", loop.replace("BODY", "if (i >= 0) x[i] = 1.0f;"))
    cudalint("check", "--fix", "--select", "CL108")
    assert "(long long)blockIdx.x * blockDim.x + first;" in path.read_text()
    path.write_text(loop.replace("+ first", "+ (threadIdx.x - 1)").replace("BODY", "if (i >= 0) x[i] = 1.0f;"))
    cudalint("check", "--fix", "--select", "CL108")
    assert "(long long)blockIdx.x * blockDim.x + ((long long)threadIdx.x - 1);" in path.read_text()


def test_a_repair_that_leaves_something_else_behind_is_taken_back(write):
    path = str(write("k.cu", COUNT))
    result = check([path], Options(isolated=True))
    (finding,) = result.findings
    asked = []

    def again(texts, _paths):
        asked.append(texts)
        return result._replace(findings=[finding._replace(code="CL203", fix=None)])

    repaired = repair(result, again, {}, unsafe=True)
    assert asked
    assert (repaired.texts, repaired.fixed) == ({}, 0)
    assert [f.code for f in repaired.result.findings] == ["CL104"]
    assert repaired.result.findings[0].fix is None


def test_an_else_keeps_its_if(cudalint, write):
    """A launch under an `if` with an `else` gets no second `if` that would take the `else`."""
    path = write(
        "k.cu",
        COUNT.replace("(n + 255) / 256", "n / 256 + (n % 256 != 0)")
        .replace("    if (n <= 0) return;\n", "")
        .replace("void run(float *x, int n) {\n    ", "void run(float *x, int n, bool on) {\n    if (on) ")
        .replace("(x, n);\n", "(x, n); else x = nullptr;\n"),
    )
    before = path.read_text()
    assert "CL204" in cudalint("check", "--fix", "--unsafe-fixes").stdout
    assert path.read_text() == before


@pytest.mark.parametrize(("type_", "repaired"), [("size_t", 1), ("int", 0)])
def test_a_wide_product_that_is_cut_again_is_left(cudalint, write, type_, repaired):
    """With the product alone in 64 bits, the bytes that an int keeps would wrap."""
    write(
        "k.cu",
        "#include <cstddef>\n"
        "__global__ void fill(float *x, size_t n) {\n"
        "    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;\n"
        "    if (i < n) x[i] = 1.0f;\n"
        "}\n"
        "void run(int rows, int columns) {\n"
        "    if (rows <= 0 || columns <= 0) return;\n"
        "    size_t n = rows * columns;\n"
        f"    {type_} bytes = sizeof(float) * n;\n"
        "    float *x;\n"
        "    cudaMalloc(&x, bytes);\n"
        "    fill<<<(n - 1) / 256 + 1, 256>>>(x, n);\n"
        "}\n",
    )
    done = cudalint("check", "--select", "CL110", "--fix")
    assert f"cudalint: {repaired} finding{'s' * (repaired != 1)} repaired" in done.stderr
