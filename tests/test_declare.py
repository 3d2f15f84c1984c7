"""What a file declares, seen at ``SourceFile.declarations`` and its scope."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cudalint.frontend.declare import syntax_of
from cudalint.frontend.source import SourceFile

if TYPE_CHECKING:
    from pathlib import Path

    from cudalint.frontend.declare import Declarations
    from cudalint.ir.nodes import FunctionDecl


def declared(text: str) -> Declarations:
    return SourceFile("/project/a.cu", text.encode()).declarations


def function(text: str, name: str) -> FunctionDecl:
    found = [f for f in declared(text).functions if f.qualname == name]
    assert len(found) == 1, [f.qualname for f in declared(text).functions]
    return found[0]


@pytest.mark.parametrize(
    ("text", "name", "kind"),
    [
        ("__global__ void k(int n) {}", "k", "kernel"),
        ('extern "C" __global__ void k(int n) {}', "k", "kernel"),
        ('extern "C" { __global__ void __launch_bounds__(256, 2) k(int n) {} }', "k", "kernel"),
        ("template <typename T> __global__ void k(T* x);", "k", "kernel"),
        ("static __device__ __forceinline__ float f(float x) { return x; }", "f", "device"),
        ("__host__ __device__ int f() { return 1; }", "f", "both"),
        ("constexpr int f() { return 1; }", "f", "both"),
        ("[[nodiscard]] __attribute__((noinline)) int f() { return 1; }", "f", "host"),
        ("__device__ auto f(int x) -> long { return x; }", "f", "device"),
        ("namespace a::b { __device__ int f(); }", "a::b::f", "device"),
        ("namespace { int f() { return 1; } }", "f", "host"),
        ("struct S { __device__ int operator()(int i) const { return i; } };", "S::operator()", "device"),
        ("struct S { __device__ bool operator<(const S& o) const; };", "S::operator<", "device"),
        ("struct S { __device__ S(int a) : a(a) {} int a; };", "S::S", "device"),
        ("struct S { static __global__ void k(int* x) {} };", "S::k", "kernel"),
        ("__global__ void __cluster_dims__(2, 1, 1) k(int n) {}", "k", "kernel"),
        ("__global__ __launch_bounds__(256) void k(const __grid_constant__ int n) {}", "k", "kernel"),
        ("void __launch_bounds__(256) __global__ k(int n) {}", "k", "kernel"),
        ("__device__ int f(int n) try { return n; } catch (...) { return 1; }", "f", "device"),
        ("void A::f() const { }", "A::f", "host"),
        ("template <class T> void ns::B<T>::f(T x) { }", "ns::B::f", "host"),
        ("float *f(int x) { return 0; }", "f", "host"),
    ],
)
def test_functions(text: str, name: str, kind: str) -> None:
    assert function(text, name).kind == kind


def test_parameters_and_templates() -> None:
    f = function(
        "template <typename T, int N = 4, class... Rest> __global__ void k(const T* __restrict__ x, int, int (&a)[N]) {}",
        "k",
    )
    assert f.params == ["x", "", "a"]
    assert f.template == [("T", "type"), ("N", "value"), ("Rest", "type")]
    assert f.has_body
    assert not function("void f(void);", "f").has_body
    assert function("void f(void);", "f").params == []


def test_own_template_parameters_only() -> None:
    text = "template <class T> struct B { template <int N> void g(); void f(); };"
    assert function(text, "B::g").template == [("N", "value")]
    assert function(text, "B::f").template == []
    assert function("template <class T> void B<T>::f() {}", "B::f").template == []
    assert function("template <class T> template <int N> void B<T>::g() {}", "B::g").template == [("N", "value")]


def test_name_span() -> None:
    text = "namespace n { template <class T>\n__global__ void add(T *x) {} }"
    f = function(text, "n::add")
    assert text[f.name_start : f.name_end] == "add"
    assert text[f.start : f.end] == "__global__ void add(T *x) {}"


def test_internal_linkage() -> None:
    assert function("static int f() { return 1; }", "f").static
    assert function("namespace { int f() { return 1; } }", "f").static
    assert not function("int f() { return 1; }", "f").static
    assert not function("struct S { static int f() { return 1; } };", "S::f").static


def test_launch_sites() -> None:
    d = declared(
        "__global__ void k() {}\n"
        "void a() { k<<<1, 2>>>(); }\n"
        "void b() { k; }\n"
        "void c() { cudaLaunchKernel((void*)k, g, b, 0, 0, 0); }\n"
        "void d() { hipLaunchKernelGGL(k, g, b, 0, 0); }\n"
    )
    assert d.has_launches
    assert [f.name for f in d.launch_sites] == ["a", "c", "d"]
    assert not declared("void b() { 1 << 2; }").has_launches


def test_bodies_are_not_declarations() -> None:
    d = declared("void f() { struct L { int x; }; int local; dim3 g(a, b); }")
    assert [f.qualname for f in d.functions] == ["f"]
    assert not d.values


def test_gaps() -> None:
    assert declared("int a;\n__global__ void k() {}\n").gaps == []
    # The gap does not hide what follows it.
    d = declared("__global__ void k() {}\n<<<<<<< ours\n__global__ void m() {}\n")
    assert d.gaps
    assert {"k", "m"} <= {f.name for f in d.functions}
    # A macro that the project does not define, without a semicolon, is no gap.
    assert declared("MODULE_REGISTER(a)\nvoid f() {}\n").gaps == []


def test_comments_are_not_seen() -> None:
    f = function("__global__ /* x */ void // y\n k(int /* n */ n, /* m */ int m) { /* } */ }", "k")
    assert f.params == ["n", "m"]


def test_scope_nearest_first() -> None:
    d = declared("int f(int); namespace a { int f(int); namespace b { int f(int); } int g(); }\nusing namespace a;")
    scope = d.scope
    assert [f.qualname for f in scope.functions("f")] == ["f"]
    assert [f.qualname for f in scope.functions("f", "a::b")] == ["a::b::f"]
    assert [f.qualname for f in scope.functions("f", "a")] == ["a::f"]
    assert [f.qualname for f in scope.functions("b::f")] == ["a::b::f"]
    assert [f.qualname for f in scope.functions("g")] == ["a::g"]
    assert scope.functions("nowhere") == []


def test_scope_definitions_first() -> None:
    d = declared("int f(int);\nint f(int x) { return x; }")
    assert [f.has_body for f in d.scope.functions("f")] == [True, False]


def test_scope_members_need_their_class() -> None:
    d = declared("struct S { using index_t = short; static const int N = 4; enum { K = 3 }; };")
    assert d.scope.type("index_t") is None
    assert d.scope.type("S::index_t") is not None
    assert d.scope.type("index_t", "S") is not None
    assert d.scope.value("N") is None
    assert d.scope.value("S::K") is not None


def test_scope_include_closure(tmp_path: Path) -> None:
    from cudalint.project import Project

    (tmp_path / "a.cu").write_text('#include "b.cuh"\n__global__ void k(real* x) { x[0] = twice(N); }\n')
    (tmp_path / "b.cuh").write_text(
        '#include "a.cu"\ntypedef double real;\nconst int N = 7;\n__device__ long twice(int x) { return 2L * x; }\n'
    )
    file = Project(str(tmp_path)).file(str(tmp_path / "a.cu"))
    scope = file.declarations.scope
    assert scope.type("real") is not None
    assert [f.qualname for f in scope.functions("twice")] == ["twice"]
    kernel = next(f for f in file.declarations.functions if f.name == "k")
    assert str(kernel.lower().params[0].type) == "double*"


def test_syntax_of_launching_function() -> None:
    d = declared("__global__ void k() {}\nvoid a() { k<<<1, 2>>>(); }")
    assert [syntax_of(f).has_launches for f in d.functions] == [False, True]
