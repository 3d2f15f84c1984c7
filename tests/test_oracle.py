"""The type oracle: what libclang settles, what it must not, and that a plain check never imports it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from cudalint.config import Config
from cudalint.facts import analyse
from cudalint.facts.model import Launch
from cudalint.frontend import oracle
from cudalint.frontend.source import SourceFile
from cudalint.ir.nodes import VarDecl
from cudalint.ir.types import F32, I16, I32, I64, U32, U64, Ptr, Struct, Type, Unknown
from cudalint.project import Project

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from conftest import Cudalint


def types_in(file: SourceFile, name: str = "f") -> dict[str, Type]:
    (decl,) = (d for d in file.declarations.functions if d.name == name and d.has_body)
    body = decl.lower(asked=True).body.body
    return {stmt.var.name: stmt.var.type for stmt in body if isinstance(stmt, VarDecl)}


def types(source: str) -> dict[str, Type]:
    return types_in(SourceFile("/nowhere/t.cu", source.encode()))


CASES = [
    ("std::vector<float> &v", "auto x = v.size();", U64),
    ("std::vector<int> &v", "auto x = v.end() - v.begin();", I64),
    ("std::vector<float> &v", "auto x = *std::max_element(v.begin(), v.end());", F32),
    ("std::vector<int> &v", "auto x = std::distance(v.begin(), v.end());", I64),
    ("std::map<int, long> &m", "auto x = m[3];", I64),
    ("std::map<int, unsigned> &m", "auto x = m.begin()->second;", U32),
    ("std::tuple<int, long> t", "auto x = std::get<1>(t);", I64),
    ("int n, size_t s", "auto x = std::min<size_t>(n, s);", U64),
    ("std::string s", "auto x = s.substr(1).length();", U64),
    ("std::unordered_map<int, int> &m", "auto x = m.size() + 1;", U64),
    ("at::Tensor t", "auto x = t.size(0);", I64),
    ("torch::Tensor t", "auto x = t.numel();", I64),
    ("torch::Tensor t", "auto x = t.sizes()[0];", I64),
    ("torch::Tensor t", "auto x = t.sizes().size();", U64),
    ("torch::Tensor t", "auto x = t.accessor<float, 2>().size(1);", I64),
    ("torch::Tensor t", "auto x = t.packed_accessor32<float, 2>().size(0);", I32),
    ("thrust::device_vector<int> &v", "auto x = thrust::raw_pointer_cast(v.data());", Ptr(I32)),
    ("const std::array<float, 4> (&a)[3]", "auto x = a[0].size();", U64),
    ("int n", "std::optional<short> o; auto x = o.value();", I16),
    ("int n", "auto x = [](long v) { return v * 2; }(n);", I64),
    ("cooperative_groups::grid_group g", "auto x = g.num_threads();", U64),
    ("int n", "struct S { long operator()(int) const; } s; auto x = s(n);", I64),
    ("std::function<unsigned(int)> g", "auto x = g(1);", U32),
    ("long (*g)(int)", "auto x = g(1);", I64),
]  # fmt: skip


@pytest.mark.parametrize(("params", "body", "expected"), CASES)
def test_library_types(params: str, body: str, expected: Type) -> None:
    assert types(f"void f({params}) {{ {body} }}")["x"] is expected


def test_a_structured_binding() -> None:
    assert types("void f(std::pair<int, size_t> p) { auto [a, b] = p; auto x = b + 1; }")["x"] is U64


def test_overloads_and_bases_of_the_project() -> None:
    found = types("""
        struct Base { long count() const; };
        template <class T> struct Box : Base { T get(int) const; unsigned get(long long) const; T *data; };
        void f(Box<short> b, std::vector<Box<int>> &all) {
            auto a = b.get(3LL);
            auto c = b.get(3);
            auto n = b.count();
            auto p = all.front().data;
            auto e = all[0];
        }
    """)
    assert [found[name] for name in "acnp"] == [U32, I16, I64, Ptr(I32)]
    assert isinstance(found["e"], Struct)
    assert found["e"].fields == {"data": Ptr(I32)}


def test_members_of_a_header_of_the_project(write: Callable[..., Path], tmp_path: Path) -> None:
    write("sizes.h", "struct Sizes { std::map<int, long> by; unsigned rows; int of[4]; }; typedef unsigned long big;\n")
    path = write(
        "k.cu",
        '#include "sizes.h"\nvoid f(const Sizes &s, big b) { auto x = s.by.at(1); auto y = s.of; auto z = s.by.size() * b; }\n',
    )
    found = types_in(Project(str(tmp_path)).file(str(path)))
    assert (found["x"], found["y"], found["z"]) == (I64, Ptr(I32), U64)


def test_offsets_hold_behind_macros() -> None:
    found = types(
        "#define GET(m, k) ((m)[(k) * 2])\n#define N 3\nvoid f(std::map<int, long> &m) { auto x = GET(m, N); auto y = m[N]; }"
    )
    assert found["x"] is I64
    assert found["y"] is I64


UNKNOWN = [
    "Missing m; auto x = m;",
    "Missing *m; auto x = m->size();",
    "lib::Missing m; auto x = m.n;",
    "lib::Missing<int> m; auto x = m.n;",
    "Late q; auto x = q;",
    "Late q; auto x = q + 1;",
    "std::vector<Late> v; auto x = v[0];",
    "Held h; auto x = h.late;",
    "Held h; auto x = h.missing;",
    "auto x = made();",
    "auto x = missing(3);",
    "auto x = missing(n) + n;",
    "auto x = lib::missing(n);",
    "auto x = std::vector<int>(3).no_such_method();",
    "auto x = near(3);",
    "auto x = n ? missing() : 3;",
    "auto x = static_cast<Missing>(n);",
    "auto x = MISSING_CONSTANT;",
    "for (auto v : missing()) {} auto x = *missing();",
]


@pytest.mark.parametrize("body", UNKNOWN)
def test_an_unknown_name_is_never_int(body: str) -> None:
    source = f"""
        typedef Missing Late;
        struct Held {{ Missing missing; Late late; int known; }};
        Missing made();
        int nearby(int);
        void f(int n, std::map<int, int> &sizes) {{ {body} auto sure = sizes[1]; }}
    """
    found = types(source)
    assert isinstance(found["x"], Unknown), found["x"]
    assert found["sure"] is I32  # the rest is answered all the same


def test_a_typedef_that_cannot_be_known_silences_the_file() -> None:
    # Such a typedef is one of int to libclang, and where it goes from there leaves no trace.
    found = types(
        "typedef std::vector<int>::nothing Late; void f(std::map<int, long> &m) { std::vector<Late> v; auto x = v[0]; auto y = m[1]; }"
    )
    assert isinstance(found["x"], Unknown)
    assert isinstance(found["y"], Unknown)


def test_what_depends_on_an_open_template_stays_unknown() -> None:
    found = types(
        "template <class T> void f(T t, std::map<int, T> &m, std::map<int, long> &k) { auto x = t.size(); auto y = m[1]; auto z = k[1]; }"
    )
    assert isinstance(found["x"], Unknown)
    assert isinstance(found["y"], Unknown)
    assert found["z"] is I64


def test_text_that_would_open_a_file_has_no_answers() -> None:
    found = types('void f(std::map<int, long> &m) { auto x = m[1]; }\n%:include "/etc/passwd"\n')
    assert isinstance(found["x"], Unknown)


@pytest.mark.parametrize(
    "text", ["void f(std::map<int, long> &m) { auto x = m[", "}}}} void f() { auto x = std::get<", "template <"]
)
def test_broken_text_never_fails(text: str) -> None:
    file = SourceFile("/nowhere/t.cu", text.encode())
    assert file.oracle.type_of(0, len(text)) is None
    assert file.oracle.declared(3) is None


def test_a_missing_libclang_is_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oracle, "_index", [])
    monkeypatch.setitem(sys.modules, "clang", None)
    assert isinstance(types("void f(std::map<int, long> &m) { auto x = m[1]; }")["x"], Unknown)


LAUNCH = """
#include <map>
__global__ void k(float *p, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) p[i] = 0; }
void go(float *p, std::map<int, int> &m) { k<<<dim3((m[0] + 255) / 256), 256>>>(p, m[0]); }
"""


def test_a_launch_gets_its_types_from_the_oracle(write: Callable[..., Path], tmp_path: Path) -> None:
    path = write("k.cu", LAUNCH)
    units = list(analyse(Project(str(tmp_path)), str(path), Config(str(tmp_path))))
    (launch,) = (unit for unit in units if isinstance(unit, Launch))
    assert launch.event.args is not None
    assert launch.event.args[1].type is I32  # type: ignore[union-attr]  # a term
    assert launch.flow.function.asked


def _modules(folder: Path, *arguments: str) -> str:
    """The modules that ``cudalint`` imports, one a line."""
    code = f"import sys; from cudalint.cli import main\ntry: main({list(arguments)!r})\nexcept SystemExit: pass\nprint(*sys.modules, sep='\\n')"
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.parametrize(("source", "asked"), [
    ("__global__ void k(float *p, int n) { int i = threadIdx.x; if (i < n) p[i] = 0; }\nvoid go(float *p, std::vector<float> &v) { k<<<(v.size() + 255) / 256, 256>>>(p, v.size()); }\n", False),
    ("__global__ void k(float *p, int n) { int i = threadIdx.x; if (i < n) p[i] = 0; }\nvoid go(float *p, Missing m) { k<<<div_up(m.n, 256), 256>>>(p, m.n); }\n", False),
    (LAUNCH, True),
])  # fmt: skip
def test_libclang_is_imported_only_where_it_can_help(
    write: Callable[..., Path], tmp_path: Path, source: str, asked: bool
) -> None:
    write("k.cu", source)
    loaded = _modules(tmp_path, "check", "k.cu", "--no-cache").splitlines()
    assert "cudalint.facts.flow" in loaded
    assert ("clang.cindex" in loaded) is asked


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_no_file_outside_of_the_project_is_opened(write: Callable[..., Path], tmp_path: Path) -> None:
    write("h.h", "struct Sizes { std::map<int, int> by; };\n#include <map>\n#include </etc/hostname>\n")
    write("k.cu", '#include "h.h"\n' + LAUNCH)
    code = """
import os, sys
from cudalint.project import Project
from cudalint.frontend import oracle
file = Project(os.getcwd()).file(os.path.abspath("k.cu"))
oracle._clang(), oracle.known_names(), file.text, file.declarations, [f.text for f in file.includes]
import clang.cindex
os.write(2, b"asking")
decl = file.declarations.functions[0]
assert file.oracle.declared(decl.start) is None and file.oracle._view(decl.start) is not None
os.write(2, b"asked")
"""
    log = tmp_path / "trace"
    command = [
        "strace",
        "-f",
        "-qq",
        "-e",
        "trace=open,openat,openat2,write",
        "-o",
        str(log),
        sys.executable,
        "-c",
        code,
    ]
    if subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode:
        pytest.skip("strace may not trace here")
    lines = log.read_text().splitlines()
    first = next(i for i, line in enumerate(lines) if '"asking"' in line)
    last = next(i for i, line in enumerate(lines) if '"asked"' in line)
    assert [line for line in lines[first + 1 : last] if "open" in line] == []


def test_debug_says_what_settled_each_type(cudalint: Cudalint, write: Callable[..., Path]) -> None:
    write("h.h", "typedef long index_t;\n")
    write(
        "k.cu",
        '#include "h.h"\ntemplate <class T> __global__ void k(T *p, index_t n) { int i = threadIdx.x; T v = p[i]; if (i < n) p[i] = v; }\nvoid go(float *p, std::map<int, int> &m, Missing u) { auto c = m[0]; k<<<1, c>>>(p, c); }\n',
    )
    result = cudalint("debug", "--stage", "ir", "k.cu")
    assert result.returncode == 0, result.stderr
    lines = {
        line.split(":")[0].strip(): line for line in result.stdout.splitlines() if ", " in line and "# line" in line
    }
    assert "kernel k [T = float]" in result.stdout
    for name, origin in {"n": "project header h.h", "v": "template binding", "i": "syntax", "c": "libclang"}.items():
        assert lines[name].endswith(origin)
    assert "type 'Missing' is not declared" in lines["u"].split("# line")[1]


def test_stubs_have_no_errors_of_their_own() -> None:
    text = "void f() { using namespace std; using namespace cooperative_groups; using namespace cub; using namespace thrust; using namespace torch; }"
    view = SourceFile("/nowhere/t.cu", text.encode()).oracle._view(0)
    assert view is not None
    unit = view.unit
    assert [each.spelling for each in unit.diagnostics] == []
    assert os.path.isdir(os.path.join(os.path.dirname(oracle.__file__), "stubs"))
