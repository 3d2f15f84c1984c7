"""CUDA in notebooks and in strings of Python: the right place in the outer file, repaired and suppressed there."""

from __future__ import annotations

import ast
import json
import os
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudalint.findings import Edit
from cudalint.fix import edited
from cudalint.frontend.embedded import Host, sources
from cudalint.frontend.source import host_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from conftest import Cudalint

    from cudalint.frontend.embedded import Embedded

    Write = Callable[..., Path]

KERNEL = """\
__global__ void scale(float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= 2.0f;
}
"""
LAUNCH = """\
void run(float *x, int n) {
    scale<<<n / 256, 256>>>(x, n);
}
"""
FAULTY = KERNEL + LAUNCH
REPAIRED = FAULTY.replace("scale<<<n / 256", "if (n > 0) scale<<<n / 256 + (n % 256 != 0)")


def code(source: str | list[str]) -> dict[str, Any]:
    return {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": source}


def notebook(*cells: str, indent: int | None = 1, whole: bool = False) -> str:
    """A notebook with code cells behind one of text, as Jupyter writes it; ``whole``: a cell's source is one string."""
    text = {"cell_type": "markdown", "metadata": {}, "source": ["# größer\n", "__global__"]}
    book = {
        "cells": [text, *(code(cell if whole else cell.splitlines(keepends=True)) for cell in cells)],
        "metadata": {"tags": ["x", "y"]}, "nbformat": 4, "nbformat_minor": 5,
    }  # fmt: skip
    return json.dumps(book, indent=indent, ensure_ascii=False) + "\n"


def module(literal: str, before: str = "") -> str:
    return f"import cupy\n{before}m = cupy.RawModule(code={literal})\n"


def string_of(path: Path) -> str:
    """The longest string of a Python file."""
    constants = [n.value for n in ast.walk(ast.parse(path.read_bytes())) if isinstance(n, ast.Constant)]
    return max((text for text in constants if isinstance(text, str)), key=len)


# Places


def test_the_place_is_the_one_in_the_outer_file(cudalint: Cudalint, write: Write) -> None:
    write("a.py", module('"""' + FAULTY + '"""', 'größe = "ä"; '))
    write("b.ipynb", notebook("%%cu\n" + FAULTY))
    at_py, at_nb = cudalint.json(".")
    line = "scale<<<n / 256, 256>>>(x, n)"
    rows = (cudalint.folder / "a.py").read_text().split("\n")
    assert rows[at_py["line"] - 1][at_py["column"] - 1 : at_py["end_column"] - 1] == line
    assert "cell" not in at_py
    rows = (cudalint.folder / "b.ipynb").read_text().split("\n")
    assert rows[at_nb["line"] - 1][at_nb["column"] - 1 : at_nb["end_column"] - 1] == line
    assert at_nb["cell"] == {"number": 2, "line": 7, "column": 5}
    assert at_nb["related"][0]["cell"] == {"number": 2, "line": 2, "column": 17}
    full = cudalint("check", "b.ipynb").stdout
    assert full.startswith("b.ipynb:cell 2:7:5: error CL203")
    assert "\n7 | scale<<<n / 256, 256>>>(x, n);\n  | ^^^" in full


def test_every_format_has_the_place(cudalint: Cudalint, write: Write) -> None:
    write("b.ipynb", notebook("%%cu\n" + FAULTY))
    [found] = cudalint.json("b.ipynb")
    line, column = found["line"], found["column"]

    def said(name: str) -> str:
        return cudalint("check", "--output-format", name, "b.ipynb").stdout

    assert said("concise").startswith("b.ipynb:cell 2:7:5: error CL203")
    assert f"file=b.ipynb,line={line},endLine={line},col={column}," in said("github")
    assert json.loads(said("gitlab"))[0]["location"] == {"path": "b.ipynb", "lines": {"begin": line, "end": line}}
    region = json.loads(said("sarif"))["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["region"]
    assert (region["startLine"], region["startColumn"]) == (line, column)
    assert f'line="{line}"' in said("junit")


def test_cells_see_one_another_and_the_folder(cudalint: Cudalint, write: Write) -> None:
    write("block.cuh", "#define BLOCK 256\n")
    launch = LAUNCH.replace("256", "BLOCK")
    write("b.ipynb", notebook(
        "%%writefile src/scale.cuh\n#include \"block.cuh\"\n" + KERNEL,
        "%%writefile main.cu\n#include \"src/scale.cuh\"",
        "%%writefile -a main.cu\n" + launch,
    ))  # fmt: skip
    [found] = cudalint.json("b.ipynb")
    assert (found["code"], found["cell"]["number"], found["cell"]["line"]) == ("CL203", 4, 3)
    assert found["related"][0]["cell"]["number"] == 2
    done = cudalint("contract", "b.ipynb")
    assert done.stdout.startswith("b.ipynb:cell 2:3: scale\n")
    assert "launched at cell 4, line 3: broken" in done.stdout
    [contract] = json.loads(cudalint("contract", "--output-format", "json", "b.ipynb").stdout)
    assert contract["cell"] == {"number": 2, "line": 3, "column": 17}
    assert contract["launches"][0]["cell"]["number"] == 4
    assert "launch of scale in run" in cudalint("debug", "--stage", "facts", "b.ipynb").stdout


def test_confirm_runs_the_text(cudalint: Cudalint, write: Write) -> None:
    given = FAULTY.replace("    scale<", "    // cudalint: confirm(n = 777)\n    scale<")
    write("a.py", module("'''" + given + "'''", "x = 1\n" * 20))
    write("b.ipynb", notebook("1", "%%cu\n" + given))
    done = cudalint("confirm", "--backend", "sim", ".")
    assert "a.py:28:5: CL203 floor-div-grid in run: confirmed at n = 777" in done.stdout
    assert "b.ipynb:cell 3:8:5: CL203 floor-div-grid in run: confirmed at n = 777" in done.stdout
    assert "777" in cudalint("confirm", "--backend", "sim", "--as", "CL203", "a.py").stdout


def test_a_notebook_is_not_read_once_a_cell(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    from cudalint.engine import Options, check
    from cudalint.frontend import notebook as reader

    reads, usual = [], reader.read
    monkeypatch.setattr(reader, "read", lambda raw: reads.append(len(raw)) or usual(raw))
    path = write("a.ipynb", notebook(*["%%cu\n" + FAULTY] * 20))
    assert len(check([str(path)], Options(jobs=1)).findings) == 20
    assert len(reads) <= 3


def test_several_processes_find_the_same(cudalint: Cudalint, write: Write) -> None:
    for name, made in FORMS.items():
        write(name, made(FAULTY))
    assert cudalint.json("--jobs", "2", ".") == cudalint.json("--jobs", "1", ".")


MAGICS = ["%%cu", "%%cuda", "%%cuda --name k.cu", '%%cuda_group_save --name "k.cu" --group one', "\n%%cu",
          "%%writefile k.cu", "%%file ./sub/k.cuh", "%%writefile /content/k.hpp"]  # fmt: skip


@pytest.mark.parametrize("magic", MAGICS)
def test_magics(magic: str) -> None:
    [text] = sources("/n.ipynb", notebook(f"{magic}\n{FAULTY}").encode()).values()
    assert text.raw.decode() == FAULTY
    assert text.raw_span(0, 10).cell == (2, magic.count("\n") + 2, 1)


@pytest.mark.parametrize("magic", ["%%bash", "%%writefile notes.txt", "%%writefile", "%%html", "%%"])
def test_other_cells_are_nothing_to_us(magic: str) -> None:
    host = Host("/n.ipynb", notebook(f"{magic}\n{FAULTY}", "%%cu\n" + FAULTY).encode())
    assert [text.raw_span(0, 1).cell[0] for text in host.sources.values()] == [3]  # type: ignore[index]  # a notebook has cells
    assert not host.gaps


def test_a_file_that_is_written_once_more_is_another(cudalint: Cudalint, write: Write) -> None:
    write("b.ipynb", notebook("%%writefile k.cu\n" + FAULTY, "%%writefile k.cu\n" + FAULTY))
    assert [f["cell"]["number"] for f in cudalint.json("b.ipynb")] == [2, 3]


ENTRIES = [
    ("import cupy as cp", "cp.RawKernel({}, 'k')"),
    ("from cupy import RawModule as M", "M(options=(), code={})"),
    ("from pycuda.compiler import SourceModule", "SourceModule({})"),
    ("import pycuda.compiler", "pycuda.compiler.SourceModule(source={})"),
    ("import pycuda.compiler as c", "c.DynamicSourceModule({})"),
    ("from pycuda.compiler import *", "SourceModule({})"),
    ("from torch.utils import cpp_extension", "cpp_extension.load_inline('n', '', {})"),
    ("from torch.utils.cpp_extension import load_inline", "load_inline(name='n', cpp_sources='', cuda_sources=[{}])"),
    ("from cuda.core.experimental import Program", "Program({}, code_type='c++')"),
    ("from cuda.bindings import nvrtc", "nvrtc.nvrtcCreateProgram(str.encode({}), b'k', 0, [], [])"),
    ("from cuda.bindings import nvrtc", "nvrtc.nvrtcCreateProgram(b{}, b'k', 0, [], [])"),
    ("from cuda.bindings import nvrtc", "nvrtc.nvrtcCreateProgram(Rb{}, b'k', 0, [], [])"),
    ("import cupy\nTEXT = {}", "cupy.RawModule(code=TEXT)"),
    ("import cupy\ndef f():\n  text: str = {}", "  return cupy.RawModule(code=text.encode())"),
    ("import cupy\nTEXT = {}\ndef f():", "  return lambda: cupy.RawModule(code=TEXT)"),
    ("import cupy\nTEXT = ''\nif cupy: TEXT = TEXT + {}", "cupy.RawModule(code=TEXT)"),
    ("import cupy\nHEAD = ''\nTEXT = HEAD + {}", "cupy.RawModule(code=TEXT + '')"),
]


@pytest.mark.parametrize(("start", "call"), ENTRIES)
def test_what_takes_cuda(start: str, call: str) -> None:
    text = f"{start}\n{call}\n".replace("{}", f'"""{FAULTY}"""')
    *_, found = sources("/a.py", text.encode()).values()
    assert found.raw.decode().strip() == FAULTY.strip()


def test_a_repair_in_a_literal_of_bytes(cudalint: Cudalint, write: Write) -> None:
    text = KERNEL + "void run(float *x, int n) { if (n > 0) scale<<<(n + 255) / 256, 256>>>(x, n); }\n"
    path = write("a.py", f'from cuda import nvrtc\nnvrtc.nvrtcCreateProgram(b"""\\x0a// \\u0041\n{text}""", b"k")\n')
    assert "1 finding repaired" in cudalint("check", "--fix", "--select", "CL104", "a.py").stderr
    assert "<<<n / 256 + (n % 256 != 0), 256>>>" in path.read_text()


NOT_CUDA = [
    "def RawKernel(x): pass\nRawKernel({})",
    "import cupy\ncupy.other.RawKernel({})",
    "from mine import SourceModule\nSourceModule({})",
    "import cupy\nTEXT = {}\ncupy.RawModule(path='x.cu')",
    "from pyopencl.elementwise import ElementwiseKernel  # no cupy\nElementwiseKernel(None, '', {})",
    "import cupy\ncupy.ElementwiseKernel('T x', 'T y', '  ')\ncupy.ElementwiseKernel(*{})",
    "import cupy\ndef f(body): return cupy.ElementwiseKernel('T x', 'T y', body)",
    "import cupy\ndef f(text={}):\n  cupy.RawModule(code=None)",
]


@pytest.mark.parametrize("text", NOT_CUDA)
def test_what_does_not(text: str) -> None:
    host = Host("/a.py", text.replace("{}", f'"""{FAULTY}"""').encode())
    assert not host.sources
    assert not host.gaps


UNREADABLE = [
    ("cupy.RawModule(code=f'''{F}''')\n", "an f-string"),
    ("cupy.RawModule(code='''{F}''' % n)", "when the program runs"),
    ("cupy.RawModule(code='''{F}'''.format(1))", "when the program runs"),
    ("cupy.RawModule(code='''{F}''' + head())", "when the program runs"),
    ("TEXT = f'''{F}'''\nfor k in 'ab': cupy.RawKernel(TEXT, k)\ncupy.RawKernel(TEXT, 'c')", "an f-string"),
    ("from other import HEAD\ncupy.RawModule(code=HEAD + '''{F}''')", "in another file"),
    ("TEXT = '''{F}'''\nTEXT += tail()\ncupy.RawModule(code=TEXT)", "when the program runs"),
]


@pytest.mark.parametrize(("text", "why"), UNREADABLE)
def test_what_cannot_be_read_is_told_once(text: str, why: str) -> None:
    host = Host("/a.py", ("import cupy\n" + text.replace("{F}", KERNEL.replace("{", "{{").replace("}", "}}"))).encode())
    assert not host.sources
    [gap] = host.gaps
    assert why in gap.why
    assert gap.end > gap.start > 0


def test_of_texts_of_other_files_nothing_is_said() -> None:
    text = (
        "import cupy\ncupy.RawModule(code=open('k.cu').read())\ndef f(c): return cupy.RawModule(code=c)\n# __global__"
    )
    assert not Host("/a.py", text.encode()).gaps


# Kernels of which a library writes the rest

BODIES = """\
import cupy as cp
from pycuda.elementwise import ElementwiseKernel
from pycuda.reduction import ReductionKernel

HELPER = r'''
__device__ float next(const float *p) {
    if (threadIdx.x < 5) __syncthreads();  // CL302
    return p[1];
}
'''
wide = cp.ElementwiseKernel('raw float32 z, T x, int32 w', 'raw float32 y', '''
    int j = i * 4;  // CL111
    y[j + 1] = z[j] + x;
''', 'wide', preamble=HELPER)
stop = cp._core.ElementwiseKernel('T x', 'T y', 'y = x; if (x > 0) __syncthreads();', preamble=HELPER)  # CL302
total = cp.ElementwiseKernel('float32 x', 'raw float32 y', 'y[0] += x')  # CL308
lin = ElementwiseKernel(  # no size is known: nothing is said about the neighbours
    "float *a, const float *b, float c", "int k = i * 3; a[k] = b[i - 1] + b[i + 1];", "lin")  # CL111
norm = cp.ReductionKernel('T x, raw int32 q', 'T y', 'x * x + q[(int)_j]', 'a + b', 'y = a', '0', 'norm')  # CL111
dot = ReductionKernel('f', '0', "a+b", map_expr="x[(int)i]*y[i]", arguments="const float *x, float *y")  # CL111
"""
SOUND_BODIES = """\
import cupy
from pycuda.elementwise import ElementwiseKernel

size = cupy.ElementwiseKernel('raw T x, S flag, int32 n', 'T y, raw int32 seen', '''
    ptrdiff_t j = i * 2;
    y = i + 1 < _ind.size() && flag > 0 ? x[j + 1] : T(n);  // a comment may end it
    if (flag == 3) seen[0] = 1;
    if (n > 4) atomicAdd(&seen[i % n], 1);
    int k = threadIdx.x  // as may no semicolon''', 'size_' + str(4), preamble='#define ONE 1', loop_prep='int a = 1')
mean = cupy.ElementwiseKernel('raw T x', 'T y', 'if (i > 0) y = (x[i - 1] + x[i + 1]) / 2')
lin = ElementwiseKernel('float *a, float *b, int m[]', 'if (i + 1 < n) a[i] = b[i + 1] * (tid + m[cta_start])')
norm = cupy.ReductionKernel('T x, T w', 'T y', 'abs(x) * w', 'max(a, b)', 'y = sqrt(a)', '0', 'norm')
"""


def test_bodies_are_checked_in_place(cudalint: Cudalint, write: Write) -> None:
    write("a.py", BODIES)
    write("b.ipynb", notebook("import os", BODIES))
    at_py, at_nb = ([f for f in cudalint.json(".") if f["file"] == name] for name in ("a.py", "b.ipynb"))
    rows = BODIES.split("\n")
    assert [(f["code"], f["line"]) for f in at_py] == [
        (row.rpartition("CL")[1] + row.rpartition("CL")[2], number) for number, row in enumerate(rows, 1) if "CL" in row
    ]
    places = {rows[f["line"] - 1][f["column"] - 1 : f["end_column"] - 1] for f in at_py}
    assert places == {"__syncthreads()", "i * 4", "y[0]", "i * 3", "_j", "i"}
    assert [(f["code"], f["cell"]["line"], f["cell"]["column"]) for f in at_nb] == [
        (f["code"], f["line"], f["column"]) for f in at_py
    ]
    assert [f["function"] for f in at_py] == ["next", "wide", "kernel", "kernel", "lin", "norm", "kernel"]


IDENTITIES = """\
import cupy as cp
from pycuda.elementwise import ElementwiseKernel
from pycuda.reduction import ReductionKernel

m = cp.ReductionKernel('float32 x', 'float32 y', 'x', 'max(a, b)', 'y = a', '0', 'm')  # CL401
p = cp.ReductionKernel('float32 x', 'float32 y', 'x', 'a * b', 'y = a', identity='0')  # CL401
q = ReductionKernel(float, neutral="0", reduce_expr="max(a, b)", map_expr="x[i]", arguments="const float *x")  # CL401
h = cp.ElementwiseKernel('raw int32 d, raw int32 h', '', 'h[d[i]]++', 'h')  # CL308
g = cp.ElementwiseKernel('raw int32 d, raw int32 h', '', 'int x = d[i]; h[x] += 1', 'g')  # CL308
e = ElementwiseKernel("int *h, const int *d", "h[d[i]] += 1", "e")  # CL308
"""
SOUND_IDENTITIES = """\
import cupy as cp
from pycuda.reduction import ReductionKernel

a = cp.ReductionKernel('float32 x', 'float32 y', 'abs(x)', 'max(a, b)', 'y = a', '0', 'a')
b = cp.ReductionKernel('float32 x', 'float32 y', 'x', 'max(a, b)', 'y = a', '-INFINITY', 'b')
c = cp.ReductionKernel('uint32 x', 'uint32 y', 'x', 'max(a, b)', 'y = a', '0', 'c')
d = cp.ReductionKernel('T x', 'T y', 'x', 'max(a, b)', 'y = a', '0', 'd')
e = cp.ReductionKernel('float32 x', 'float32 y', 'x', 'a * b', 'y = a', '1', 'e')
f = cp.ReductionKernel('float32 x', 'float32 y', 'x', 'max(a, b)', 'y = a', None, 'f')
g = ReductionKernel(float, neutral="0", reduce_expr="a + b", map_expr="x[i]", arguments="const float *x")
h = cp.ReductionKernel('float32 x', 'float32 y', 'x', 'max(a, b)', 'y = a', str(lowest), 'h')
i = cp.ElementwiseKernel('raw int32 d, raw int32 h', '', 'atomicAdd(&h[d[i]], 1); h[d[i]] = 1')
"""


def test_what_a_reduction_begins_with_and_counts_by_data(cudalint: Cudalint, write: Write) -> None:
    write("a.py", IDENTITIES)
    found = cudalint.json("a.py")
    rows = IDENTITIES.split("\n")
    assert [(f["code"], f["line"]) for f in found] == [
        (row[-5:], number) for number, row in enumerate(rows, 1) if "# CL" in row
    ]
    places = [rows[f["line"] - 1][f["column"] - 1 : f["end_column"] - 1] for f in found]
    assert places == ["0", "0", "0", "h[d[i]]", "h[x]", "h[d[i]]"]
    write("a.py", SOUND_IDENTITIES)
    assert cudalint.json("a.py") == []
    assert len(sources("a.py", SOUND_IDENTITIES.encode())) == 9


def test_sound_bodies(cudalint: Cudalint, write: Write) -> None:
    write("a.py", SOUND_BODIES)
    assert cudalint.json("a.py") == []
    assert len(sources("a.py", SOUND_BODIES.encode())) == 4


def test_bodies_that_ask_for_nothing_have_no_contract(cudalint: Cudalint, write: Write) -> None:
    write("a.py", "import cupy\nhalf = cupy.ElementwiseKernel('float32 x', 'float32 y', 'y = x / 2', 'half')\n")
    assert cudalint("contract", "a.py").stdout == ""


def test_bodies_are_repaired_in_place(cudalint: Cudalint, write: Write) -> None:
    path = write("a.py", BODIES)
    cudalint("check", "--fix", "a.py")
    changes = {"int j =": "long long j =", "'y[0] += x'": "'atomicAdd(&y[0], x)'", "int k =": "long long k ="}
    repaired = BODIES
    for old, new in changes.items():
        repaired = repaired.replace(old, new)
    assert path.read_text() == repaired


def test_a_literal_of_several_texts_is_suppressed_once(cudalint: Cudalint, write: Write) -> None:
    literal = "__syncthreads();  // CL302"
    write("a.py", BODIES.replace(literal, f"{literal}, cudalint: ignore[CL302]"))
    after = cudalint.json("a.py")
    assert [f["code"] for f in after].count("CL302") == 1
    assert "CL002" not in {f["code"] for f in after}
    assert len(after) == 6


@pytest.mark.parametrize(
    "call",
    [
        "cupy.ElementwiseKernel('T x', 'T y', f'y = {f}(x)')",
        "cupy.ElementwiseKernel('T x', 'T y', 'y = %s(x)' % f)",
        "cupy.ElementwiseKernel('T x', 'T y', 'y = x', preamble='#define N ' + str(f))",
        "cupy.ReductionKernel('T x', 'T y', 'x', f'{f}(a, b)', 'y = a', '0')",
    ],
)
def test_bodies_that_cannot_be_read_are_told(call: str) -> None:
    host = Host("/a.py", f"import cupy\n{call}\n".encode())
    assert not host.sources
    [gap] = host.gaps
    assert "put together" in gap.why


# Repairs


def form(literal: str) -> Callable[[str], str]:
    return lambda text: module(literal.replace("TEXT", text))


def lines_of(text: str) -> str:
    return "(\n" + "".join(f"    {line!r}  # a line\n" for line in text.splitlines(keepends=True)) + ")"


FORMS: dict[str, Callable[[str], str]] = {
    "raw.py": form("r'''TEXT'''"),
    "triple.py": form('u"""\\\nTEXT\\x20"""'),
    "lines.py": lambda text: module(lines_of(text)),
    "one.py": lambda text: module(json.dumps(text)),
    "crlf.py": lambda text: module("'''" + text + "'''").replace("\n", "\r\n"),
    "book.ipynb": lambda text: notebook("1", "%%cu\n" + text),
    "small.ipynb": lambda text: notebook("%%cu\n" + text, indent=None),
    "whole.ipynb": lambda text: notebook("%%cu\n" + text, whole=True),
    "timed.ipynb": lambda text: notebook(
        "import cupy as cp\nx = !ls\ncp?", f"if x:\n    !ls\n%time m = cp.RawModule(code=r'''{text}/*\n% 1 */''')"
    ),
    "later.ipynb": lambda text: notebook("import cupy\nT = '''\n" + text + "'''", "%time\ncupy.RawModule(code=T)"),
}


def test_repairs_are_made_in_place(cudalint: Cudalint, write: Write) -> None:
    for name, made in FORMS.items():
        write(name, made(FAULTY))
    diff = cudalint("check", "--diff", ".")
    assert diff.returncode == 1
    assert diff.stdout.count("+++") == len(FORMS)
    done = cudalint("check", "--fix", ".")
    assert done.returncode == 0, done.stdout
    for name, made in FORMS.items():
        assert (cudalint.folder / name).read_bytes().decode() == made(REPAIRED), name


RACE = """\
__global__ void reverse(int *out, const int *in) {
    __shared__ int t[256];
    t[threadIdx.x] = in[threadIdx.x] + '"';
    out[threadIdx.x] = t[255 - threadIdx.x] + "a\\\\"[0];  // a line end: \\n
}
void run(int *y, const int *x) { reverse<<<1, 256>>>(y, x); }
"""


def test_a_repair_that_adds_a_line(cudalint: Cudalint, write: Write) -> None:
    """In a notebook it is a string of its own in the list of lines, if the cell is a list."""
    escaped = ("triple.py", "crlf.py", "later.ipynb")
    for name, made in FORMS.items():
        write(name, made(RACE.replace("\\", "\\\\") if name in escaped else RACE))
    write("plain.cu", RACE)
    cudalint("check", "--fix", "--unsafe-fixes", ".")
    repaired = (cudalint.folder / "plain.cu").read_text()
    assert repaired.count("\n") == RACE.count("\n") + 1
    for name, made in FORMS.items():
        if name == "lines.py":  # the new line is in the literal of the one before
            assert string_of(cudalint.folder / name) == repaired
        else:
            after = made(repaired.replace("\\", "\\\\") if name in escaped else repaired)
            assert (cudalint.folder / name).read_bytes().decode() == after, name


def test_stdin(cudalint: Cudalint) -> None:
    for name in ("raw.py", "book.ipynb"):
        text = FORMS[name](FAULTY)
        assert [f["code"] for f in cudalint.json("--stdin-filename", name, stdin=text)] == ["CL203"]
        done = cudalint("check", "--fix", "--stdin-filename", name, stdin=text)
        assert done.stdout == FORMS[name](REPAIRED)


# Suppressions, baselines, changes


def test_suppressions(cudalint: Cudalint, write: Write) -> None:
    kept = FAULTY.replace("(x, n);\n}", "(x, n);  // cudalint: ignore[CL203]: known\n}")
    for name, made in FORMS.items():
        write(name, made(kept))
    done = cudalint("check", ".")
    assert done.stdout == f"No findings in {len(FORMS)} files.\n"
    # it speaks for its own text, though all of a small notebook is one line
    write("small.ipynb", notebook("%%cu\n" + kept, "%%cu\n" + FAULTY, "%%cu\n// cudalint: ignore[CL301]\n" + KERNEL,
                                  indent=None))  # fmt: skip
    found = cudalint.json("small.ipynb")
    assert [(f["code"], f["cell"]["number"], f["cell"]["line"]) for f in found] == [("CL203", 3, 7), ("CL002", 4, 2)]


def test_add_ignore(cudalint: Cudalint, write: Write) -> None:
    for name, made in FORMS.items():
        write(name, made(FAULTY))
    done = cudalint("check", "--add-ignore=known", ".")
    comment = "// cudalint: ignore[CL203]: known"
    assert f"book.ipynb:cell 3:7: {comment}\n" in done.stdout
    assert f"raw.py:7: {comment}\n" in done.stdout
    for name, made in FORMS.items():
        assert (cudalint.folder / name).read_bytes().decode() == made(FAULTY.replace("(x, n);", f"(x, n); {comment}"))
    assert cudalint("check", ".").returncode == 0


def test_baseline_and_fingerprints(cudalint: Cudalint, write: Write) -> None:
    write("a.py", module("'''" + FAULTY + "'''"))
    write("b.ipynb", notebook("%%cu\n" + FAULTY))
    before = [f["fingerprint"] for f in cudalint.json(".")]
    assert cudalint("check", "--write-baseline", "base.json", ".").returncode == 0
    # elsewhere in the file, and in how it is written
    write("a.py", module(lines_of(FAULTY), "x = 1\n"))
    write("b.ipynb", notebook("new", "%%cu\n" + FAULTY, indent=None))
    assert [f["fingerprint"] for f in cudalint.json(".")] == before
    assert cudalint.json("--baseline", "base.json", ".") == []


def test_changed_since(cudalint: Cudalint, write: Write, folder: Path) -> None:
    (folder / ".git").rmdir()

    def git(*arguments: str) -> None:
        clean = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
        who = ("-c", "user.name=t", "-c", "user.email=t@example.invalid", "-c", "core.autocrlf=false")
        subprocess.run(["git", *who, *arguments], cwd=folder, env=clean, check=True, capture_output=True)

    other = FAULTY.replace("scale", "grow")
    write("a.py", module("'''" + FAULTY + other + "'''"))
    write("b.ipynb", notebook("%%cu\n" + FAULTY, "%%cu\n" + other))
    git("init", "-q")
    git("add", "-A")
    git("commit", "-q", "-m", "first")
    assert cudalint.json("--changed-since", "HEAD", ".") == []
    write("a.py", module("'''" + FAULTY + other.replace("2.0f", "3.0f") + "'''", "import os\n"))
    write("b.ipynb", notebook("new", "%%cu\n" + FAULTY, "%%cu\n" + other, "%%cu\n" + FAULTY.replace("2.0f", "4.0f")))
    found = cudalint.json("--changed-since", "HEAD", ".")
    assert [(f["file"], f["line"]) for f in found if f["file"] == "a.py"] == [("a.py", 15)]
    assert [f["cell"]["number"] for f in found if "cell" in f] == [5]


# What is walked, and what is wrong with it


def test_files_without_cuda_are_left_out(cudalint: Cudalint, write: Write) -> None:
    write("plain.py", "x = '__global__'\n")
    write("plain.ipynb", notebook("1 + 1"))
    write("venv/pyvenv.cfg", "")
    write("venv/lib/a.py", module("'''" + FAULTY + "'''"))
    write("src/A.PY", module("'''" + FAULTY + "'''"))
    assert cudalint.concise(".") == ["src/A.PY:7: CL203"]
    assert cudalint("check", "--force-exclude", "plain.py").stderr.startswith("cudalint: no CUDA file to check")
    write("folder.py/k.cu", FAULTY)
    assert cudalint.concise("folder.py") == ["folder.py/k.cu:6: CL203"]


WRONG = [
    ("a.py", "import cupy\nprint 'RawKernel __global__'\n", 2, "no Python"),
    ("a.py", "# coding: shift_jis\n# ä\nRawKernel = '__global__'\n", 1, "encoding"),
    ("a.py", "RawKernel('__global__')\n" + "(" * 500, 2, "no Python"),
    ("a.ipynb", '{"cells": [\n"%%cu __global__"', 2, "no notebook"),
    ("a.ipynb", '["%%cu __global__"]', 1, "no cells"),
    ("a.ipynb", '{"cells": {}, "a": "%%cu __global__"}', 1, "no cells"),
    ("a.ipynb", '{"worksheets": [], "a": "%%cu __global__"}', 1, "2013"),
    ("a.ipynb", "[" * 100_000 + '"%%cu __global__"', 1, "no notebook"),
    ("a.ipynb", notebook("from cupy import RawKernel\nprint 'RawKernel __global__'"), 17, "no Python"),
]


@pytest.mark.parametrize(("name", "text", "line", "words"), WRONG)
def test_what_cannot_be_parsed_is_told_in_a_line(
    cudalint: Cudalint, write: Write, name: str, text: str, line: int, words: str
) -> None:
    write(name, text)
    for arguments in ((name,), (".",)):
        [found] = cudalint.json(*arguments)
        assert (found["code"], found["file"], found["level"]) == ("CL001", name, "note")
        assert words in found["message"]
        assert abs(found["line"] - line) <= 1


@pytest.mark.parametrize(
    "cells",
    [
        [1, None, "x", {}, {"cell_type": "code"}, {"cell_type": "code", "source": 3}, code(["%%cu\n", 1])],  # type: ignore[list-item]  # broken on purpose
        [code("%%cu"), code("%%writefile -a k.cu"), code([]), code(["", "%%cu\n", "", "__global__ void k() {}"])],
        [code('%%writefile "k.cu\n__global__ void f();'), code("%%writefile ../../k.cu\n\ud800")],
    ],
)
def test_odd_cells(cells: list[Any]) -> None:
    text = json.dumps({"x": '"%%', "cells": cells, "__global__": 1})
    for source in sources("/n.ipynb", text.encode()).values():
        source.raw_span(0, len(source.raw))


def test_a_text_is_no_folder_of_ours(tmp_path: Path) -> None:
    (tmp_path / "a.py").mkdir()
    assert host_of(str(tmp_path / "a.py" / "k.cu")) is None
    assert host_of(str(tmp_path / "b.py" / "sub" / "k.cu")) == str(tmp_path / "b.py")
    assert host_of(str(tmp_path / "b.py")) is None


# The map


CHARACTERS = st.text(
    st.sampled_from("ab\"'\\\n\té€😀\x00{}%x1u") | st.characters(exclude_categories=["Cs"]), max_size=12
)
QUOTES = st.sampled_from(["'", '"', "'''", '"""'])


def spelled(text: str, quote: str, how: list[int]) -> str:
    """A literal of the text: each character as itself or by one of its escapes."""
    out = []
    for i, c in enumerate(text):
        ways = [f"\\U{ord(c):08x}"]
        if ord(c) < 0x10000:
            ways.append(f"\\u{ord(c):04X}")
        if ord(c) < 0x100:
            ways += [f"\\x{ord(c):02x}", f"\\{ord(c):03o}"]
        if c not in "\\\r\0" + quote[0] and (c != "\n" or len(quote) == 3):
            ways += [c] * 3
        if c == "\n":
            ways += ["\\n", "\\\n\\n"]
        out.append(ways[how[i % len(how)] % len(ways)])
    return quote + "".join(out) + quote


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(CHARACTERS, QUOTES), min_size=1, max_size=4), st.lists(st.integers(0, 50), min_size=1))
def test_each_character_of_a_literal_is_where_it_is_written(parts: list[tuple[str, str]], how: list[int]) -> None:
    mark = "__global__ void k();"
    literals = [repr(mark), *(spelled(text, quote, how) for text, quote in parts)]
    outer = "import cupy; ä = cupy.RawModule(\n " + " # '\n ".join(literals) + ")\n"
    if "\r" in outer or any(part != ast.literal_eval(x) for x, (part, _) in zip(literals[1:], parts, strict=True)):
        return
    raw = outer.encode()
    found = list(sources("/a.py", raw).values())
    if b"\0" in raw:
        assert not found
        return
    [source] = found
    assert source.layer.text.decode() == mark + "".join(text for text, _ in parts)
    _each_character(source, raw, lambda text: ast.literal_eval("'''" + text + "'''"))


@settings(max_examples=200, deadline=None)
@given(st.lists(CHARACTERS, min_size=1, max_size=4), st.booleans(), st.sampled_from([None, 1]))
def test_each_character_of_a_cell_is_where_it_is_written(
    lines: list[str], ascii_only: bool, indent: int | None
) -> None:
    cells = [code(["%%cu\n", *lines, "\n__global__"])]
    raw = json.dumps({"cells": cells, "é": 1}, ensure_ascii=ascii_only, indent=indent).encode()
    [source] = sources("/n.ipynb", raw).values()
    assert source.layer.text.decode() == "".join(lines) + "\n__global__"
    _each_character(source, raw, lambda text: json.loads(f'"{text}"'))


def _each_character(source: Embedded, raw: bytes, meaning: Callable[[str], str]) -> None:
    at = 0
    for c in source.layer.text.decode():
        start, end = source.layer.outer(at, at + len(c.encode()))
        at += len(c.encode())
        written = raw[start:end].decode()
        assert written == c or meaning(written) == c


@settings(max_examples=300, deadline=None)
@given(st.data(), CHARACTERS)
def test_an_edit_means_what_was_meant_or_is_not_made(data: st.DataObject, new: str) -> None:
    text = "/* \\ \" */ __global__ void k(int n) {\n    '\\n'; ä;\n}\n"
    name, made = data.draw(st.sampled_from(sorted(FORMS.items())))
    outer = made(text.replace("\\", "\\\\") if name in ("triple.py", "crlf.py", "later.ipynb") else text).encode()
    [source] = sources(f"/{name}", outer).values()
    inner = source.raw.decode()
    first = data.draw(st.integers(0, len(inner)))
    last = data.draw(st.integers(first, len(inner)))
    new = new.replace("\r", "").replace("\0", "")
    edit = source.edit(len(inner[:first].encode()), len(inner[:last].encode()), new)
    if edit is None:
        assert name.endswith(".py") or "later" in name
        return
    assert isinstance(edit, Edit)
    after = edited(outer, [edit])
    if "__global__" in inner[:first] + new + inner[last:]:
        [now] = sources(f"/{name}", after).values()
        assert now.raw.decode() == inner[:first] + new + inner[last:]


def test_nothing_is_said_of_a_text_that_is_not_in_sight(cudalint, write):
    write("k.py", "import cupy\n\n\ndef made(code):\n    return cupy.RawKernel(code, 'k')  # a __global__ function\n")
    write("read.py", "import cupy\n\nk = cupy.RawKernel(open('k.cu').read(), 'k')  # a __global__ function\n")
    write("none.ipynb", '{"cells": 5}')
    assert cudalint.concise("k.py", "read.py", "none.ipynb") == []
    write("broken.ipynb", '{"cells": 5, "x": "%%cu __global__"}')
    assert cudalint.concise("broken.ipynb") == ["broken.ipynb:1: CL001"]
