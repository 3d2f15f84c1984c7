"""Lowering: types of expressions, repairs of what the grammar misreads, launches, templates, statements."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cudalint.frontend.calls import bindings_of
from cudalint.frontend.fold import fold
from cudalint.frontend.source import SourceFile
from cudalint.ir import nodes as ir
from cudalint.ir.show import expression, show
from cudalint.ir.types import F32, I32, U32, U64, Array, Ptr, Struct, Unknown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudalint.ir.types import Type


def lower(text: str, name: str = "f", bindings: dict[str, Type | int] | None = None) -> ir.Function:
    file = SourceFile("/project/a.cu", text.encode())
    return next(f for f in file.declarations.functions if f.name == name and f.has_body).lower(bindings)


def body(text: str, before: str = "") -> ir.Function:
    """``text`` as the body of a function with a few variables of each type."""
    return lower(
        before
        + "\n__device__ void f(bool b, char c, unsigned char uc, short s, unsigned short us, int i, unsigned u, long l,"
        " size_t z, long long ll, unsigned long long ull, float x, double d, __half h, float* p, const double* q,"
        " float4* v4, dim3 g, float4 v) {\n" + text + "\n}"
    )


def nodes(root: object) -> Iterator[ir.Node]:
    """All nodes below a function or node, in order."""
    if isinstance(root, (list, tuple)):
        for item in root:
            yield from nodes(item)
    elif isinstance(root, ir.Function):
        yield from nodes(root.body)
    elif isinstance(root, ir.Node):
        yield root
        for kind in type(root).__mro__:
            for slot in getattr(kind, "__slots__", ()):
                child = getattr(root, slot, None)
                if isinstance(child, (ir.Node, list)) or (slot == "function" and isinstance(child, ir.Function)):
                    yield from nodes(child)


def only(function: ir.Function) -> ir.Expr:
    """The expression of the last statement."""
    last = function.body.body[-1]
    if isinstance(last, ir.VarDecl):
        assert last.init is not None
        return last.init
    assert isinstance(last, ir.ExprStmt), show(function)
    return last.expr


def typed(text: str, before: str = "") -> str:
    return str(only(body(text + ";", before)).type)


def shown(text: str, before: str = "") -> str:
    return expression(only(body(text + ";", before)))


def launch(text: str, name: str = "f") -> ir.Launch:
    found = [n for n in nodes(lower(text, name)) if isinstance(n, ir.Launch)]
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("1", "int"), ("1u", "unsigned int"), ("1L", "long long"), ("1ULL", "unsigned long long"), ("0xFFFFFFFF", "unsigned int"),
        ("4294967295", "long long"), ("2147483648", "long long"), ("0x100000000", "long long"), ("1'000'000", "int"),
        ("0b101", "int"), ("1.0", "double"), ("1.0f", "float"), ("1e5", "double"), ("1.f", "float"), (".5", "double"),
        ("'a'", "signed char"), ("true", "bool"), ("sizeof(int)", "unsigned long long"), ("nullptr", "void*"),
    ],
)  # fmt: skip
def test_literals(text: str, type_: str) -> None:
    assert typed(text) == type_


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0x1F", 31),
        ("010", 8),
        ("1'000'000", 1000000),
        ("0b11", 3),
        ("'a'", 97),
        (r"'\n'", 10),
        (r"'\x41'", 65),
        ("1.5f", 1.5),
        ("2e3", 2000.0),
    ],
)
def test_literal_values(text: str, value: float) -> None:
    found = only(body(text + ";"))
    assert isinstance(found, ir.Const)
    assert found.value == value


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("c + c", "int"), ("us * us", "int"), ("i + u", "unsigned int"), ("u + l", "long long"), ("i + z", "unsigned long long"),
        ("ll + ull", "unsigned long long"), ("i * x", "float"), ("i * d", "double"), ("x + d", "double"), ("h + h", "__half"),
        ("h * x", "float"), ("-us", "int"), ("~u", "unsigned int"), ("!x", "bool"), ("s << l", "int"), ("u >> 2L", "unsigned int"),
        ("l << 1", "long long"), ("i < u", "bool"), ("i && x", "bool"), ("b ? 1 : 2u", "unsigned int"), ("b ? c : c", "signed char"),
        ("b ? c : s", "int"), ("b ? p : nullptr", "float*"), ("b ? nullptr : p", "float*"), ("(i, l)", "long long"),
        ("p + i", "float*"), ("i + p", "float*"), ("p - 1", "float*"), ("p - p", "long long"), ("p[i]", "float"), ("*p", "float"),
        ("*(p + i)", "float"), ("i[p]", "float"), ("&p[i]", "float*"), ("p++", "float*"), ("++us", "unsigned short"),
        ("p += 4", "float*"), ("s += 1.5", "short"), ("v.x", "float"), ("v4[i].w", "float"), ("v4->y", "float"), ("g.x * i", "unsigned int"),
        ("threadIdx.x", "unsigned int"), ("blockIdx.x * blockDim.x + threadIdx.x", "unsigned int"), ("warpSize", "int"),
        ("i % warpSize", "int"), ("INT_MAX", "int"), ("UINT_MAX", "unsigned int"), ("FLT_MAX", "float"), ("-INFINITY", "float"),
        ("INT_MAX + 1u", "unsigned int"), ("NULL", "void*"), ("b + b", "int"), ("i == u ? x : d", "double"), ("i not_eq u", "bool"),
    ],
)  # fmt: skip
def test_operators(text: str, type_: str) -> None:
    assert typed(text) == type_


@pytest.mark.parametrize(
    ("text", "optype"),
    [("i < u", "unsigned int"), ("i < z", "unsigned long long"), ("c < s", "int"), ("u << l", "unsigned int"), ("p < p", "float*"),
     ("i < x", "float"), ("p == nullptr", "float*"), ("p - p", "float*"), ("i - u", "unsigned int")],
)  # fmt: skip
def test_operation_types(text: str, optype: str) -> None:
    found = only(body(text + ";"))
    assert isinstance(found, ir.Binary)
    assert str(found.optype) == optype


@pytest.mark.parametrize(
    ("text", "optype"),
    [
        ("s += i", "int"),
        ("s += l", "long long"),
        ("i <<= l", "int"),
        ("x *= d", "double"),
        ("p += u", "float*"),
        ("uc += uc", "int"),
    ],
)
def test_compound_assignment(text: str, optype: str) -> None:
    found = only(body(text + ";"))
    assert isinstance(found, ir.Assign)
    assert str(found.optype) == optype


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("min(i, u)", "unsigned int"), ("max(i, i)", "int"), ("min(l, i)", "long long"), ("min(x, 1.0)", "double"), ("std::min<long>(i, l)", "long long"),
        ("std::max(i, i)", "int"), ("std::max(l, l)", "long long"), ("fmaxf(x, 0.f)", "float"), ("sqrt(x)", "float"), ("sqrt(i)", "double"), ("sqrt(d)", "double"),
        ("ceil(x)", "float"), ("ceil((double)i / 2)", "double"), ("ceilf(i)", "float"), ("abs(s)", "int"), ("std::abs(x)", "float"),
        ("pow(x, 2)", "double"), ("atomicAdd(p, 1.0f)", "float"), ("atomicAdd(&i, 1)", "int"), ("atomicCAS(&ull, 0, 1)", "unsigned long long"),
        ("__shfl_down_sync(0xffffffff, x, 16)", "float"), ("__shfl_xor_sync(~0, l, 1)", "long long"), ("__ballot_sync(~0u, b)", "unsigned int"),
        ("__syncthreads_count(b)", "int"), ("__ldg(p)", "float"), ("__ldg(&q[i])", "double"), ("__mul24(i, i)", "int"), ("__umul24(u, u)", "unsigned int"),
        ("__popc(u)", "int"), ("make_float4(x, x, x, x)", "float4"), ("make_float4(x, x, x, x).x", "float"), ("__float2half(x)", "__half"),
        ("std::numeric_limits<float>::max()", "float"), ("std::numeric_limits<int>::lowest()", "int"), ("std::numeric_limits<size_t>::max()", "unsigned long long"),
        ("cg::this_grid().thread_rank()", "unsigned long long"), ("cg::this_grid().size()", "unsigned long long"), ("cg::this_thread_block().thread_rank()", "unsigned int"),
        ("cg::tiled_partition<32>(cg::this_thread_block()).thread_rank()", "unsigned int"), ("cg::this_thread_block().group_index().x", "unsigned int"),
        ("cg::reduce(cg::tiled_partition<32>(cg::this_thread_block()), x, cg::plus<float>())", "float"), ("std::min({l, l})", "long long"),
        ("cg::this_cluster().block_rank()", "unsigned int"), ("cudaMalloc(&p, 4)", "int"), ("malloc(4)", "void*"), ("clock64()", "long long"), ("cudaGetLastError()", "int"),
    ],
)  # fmt: skip
def test_known_functions(text: str, type_: str) -> None:
    assert typed(text) == type_


@pytest.mark.parametrize("text", ["nowhere(i)", "mystery", "unseen.field", "other::name", "p->x", "make_tensor(p)[i]"])
def test_unresolved_is_unknown(text: str) -> None:
    assert isinstance(only(body(text + ";")).type, Unknown)


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("auto a = i * 2.f", "float"), ("const auto a = &p[i]", "float*"), ("auto* a = p + 1", "float*"), ("auto& a = p[i]", "float"),
        ("unsigned long long int a = 1", "unsigned long long"), ("long double a = 1", "double"), ("unsigned a = 1", "unsigned int"),
        ("const unsigned char* a = 0", "unsigned char*"), ("std::size_t a = 1", "unsigned long long"), ("int64_t a = 1", "long long"),
        ("std::uint32_t a = 1", "unsigned int"), ("float (*a)[16] = 0", "float[16]*"), ("float a[4][8] = {}", "float[8][4]"),
        ("int a[] = {1, 2, 3}", "int[3]"), ("char a[] = \"abc\"", "signed char[4]"), ("decltype(i + l) a = 0", "long long"),
        ("unknown_t a = 1", "unknown (type 'unknown_t' is not declared in the project)"), ("std::vector<float> a(i)", "std::vector<float>"),
        ("int a{3}", "int"), ("auto a = min(i, u)", "unsigned int"), ("auto a = std::vector<int>(3)[0]", "int"), ("volatile int a = 1", "int"),
        ("[[maybe_unused]] int a = 1", "int"), ("cudaDeviceProp r; auto a = r.multiProcessorCount * 2u", "unsigned int"),
        ("cudaLaunchConfig_t r; auto a = r.gridDim.x", "unsigned int"),
        ("auto a = offsetof(T, n)", "unsigned long long"),
        ("int a = 1, *a2 = 0", "int*"),
    ],
)  # fmt: skip
def test_declared_types(text: str, type_: str) -> None:
    last = body(text + ";").body.body[-1]
    assert isinstance(last, ir.VarDecl)
    assert str(last.var.type) == type_


def test_constant_extents() -> None:
    before = """
    const int TILE = 16; enum { PAD = 1, NEXT }; constexpr int twice(int x); constexpr int W = TILE * 2 + PAD;
    struct S { static const int N = 8; }; typedef float row[4];
    """
    function = body(
        "const int k = 4; __shared__ float a[TILE][W], b[NEXT * k]; int c[S::N]; int d[sizeof(double)]; row e; int w[i];",
        before,
    )
    found = {s.var.name: str(s.var.type) for s in function.body.body if isinstance(s, ir.VarDecl)}
    assert found == {
        "k": "int", "a": "float[33][16]", "b": "float[8]", "c": "int[8]", "d": "int[8]", "e": "float[4]", "w": "int[]",
    }  # fmt: skip


def test_shared() -> None:
    function = lower(
        "template <typename T, int N> __global__ void f() { extern __shared__ __align__(16) float s[];"
        " __shared__ alignas(16) T a[N]; __shared__ typename B::TempStorage t; static int c; const int k = 1; }",
        bindings={"N": 8},
    )
    found = {s.var.name: s.var for s in function.body.body if isinstance(s, ir.VarDecl)}
    assert (found["s"].kind, found["s"].extern, str(found["s"].type)) == ("shared", True, "float[]")
    assert (found["a"].kind, str(found["a"].type)) == ("shared", "T[8]")
    assert found["t"].kind == "shared"
    assert (found["c"].kind, found["c"].static, found["k"].const) == ("local", True, True)


# Normal forms.


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("*p", "p[0]"), ("*(p + i)", "p[i]"), ("*(i + p)", "p[i]"), ("i[p]", "p[i]"), ("v4->x", "v4[0].x"), ("(*v4).x", "v4[0].x"),
        ("((i))", "i"), ("i and b", "(i && b)"), ("blockIdx.y", "blockIdx.y"), ("(float)i", "(float)(i)"), ("float(i)", "(float)(i)"),
        ("static_cast<long>(i)", "(long long)(i)"), ("reinterpret_cast<float4*>(p)[i]", "(float4*)(p)[i]"), ("*p++", "p++[0]"),
    ],
)  # fmt: skip
def test_normal_forms(text: str, form: str) -> None:
    assert shown(text) == form


# Repairs.


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("dim3 a(i, u)", "dim3{i, u}"), ("dim3 a(i)", "dim3{i}"), ("dim3 a(i * u)", "dim3{(i *:unsigned int u)}"), ("dim3 a(i & u)", "dim3{(i &:unsigned int u)}"),
        ("dim3 a(K, K)", "dim3{K, K}"), ("dim3 a(up(i, 4), up(u, 4))", "dim3{up(i, 4), up(u, 4)}"), ("dim3 a(up(i, u), 1)", "dim3{up(i, u), 1}"),
        ("dim3 a(S::N, i)", "dim3{N, i}"), ("dim3 a{i, u}", "dim3{i, u}"), ("dim3 a = {i, u}", "dim3{i, u}"), ("dim3 a = dim3(i)", "dim3{i}"),
        ("dim3 a = i", "dim3{i}"), ("dim3 a", "dim3{}"), ("float a(x)", "x"), ("std::vector<float> a(i)", "std::vector<float>{i}"),
        ("dim3 a(undeclared, i)", "dim3{undeclared?, i}"), ("g = dim3(i, i)", "g = dim3{i, i}"), ("dim3 a(p[i], i)", "dim3{p[i], i}"),
    ],
)  # fmt: skip
def test_declarations_read_as_functions(text: str, form: str) -> None:
    assert (
        shown(text, "const int K = 4; struct S { static const int N = 2; }; int up(int a, int b);").removeprefix("a = ")
        == form
    )


def test_local_prototypes_stay() -> None:
    assert body("float g1(int); dim3 g2(int a, int b); float g3();").body.body == []


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("(ulong)(i)", "(unsigned long long)(i)"), ("(size_t)(i)*u", "((unsigned long long)(i) *:unsigned long long u)"),
        ("(real)(i) + 1", "((double)(i) +:double 1)"), ("(real) * p", "(double)(p[0])"), ("(real) - i", "(double)(-i)"),
        ("(real) & i", "(double)(&i)"), ("(real) - i * u", "((double)(-i) *:double u)"), ("u + (real) - i", "(u +:double (double)(-i))"),
        ("u * (real) - i", "(u *:double (double)(-i))"), ("real(i)", "(double)(i)"), ("(ns::real)(i)", "(float)(i)"),
    ],
)  # fmt: skip
def test_casts_read_as_something_else(text: str, form: str) -> None:
    assert shown(text, "typedef double real; namespace ns { typedef float real; }") == form


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("b = i < s || c > (i)", "b = ((i <:int s) || (c >:int i))"), ("b = i < s && u > (u)", "b = ((i <:int s) && (u > u))"),
        ("b = i < s || c > (i) && b", "b = ((i <:int s) || ((c >:int i) && b))"), ("b = b && i < s || c > (i + 1)", "b = ((b && (i <:int s)) || (c >:int (i + 1)))"),
    ],
)  # fmt: skip
def test_comparisons_read_as_templates(text: str, form: str) -> None:
    assert shown(text) == form


@pytest.mark.parametrize(("text", "form"), [("i * u", "(i *:unsigned int u)"), ("i & u", "(i &:unsigned int u)")])
def test_expressions_read_as_declarations(text: str, form: str) -> None:
    assert shown(text) == form


def test_declarations_read_as_expressions() -> None:
    function = lower(
        "__global__ void f(float* x) { namespace cg = cooperative_groups; cg::thread_block block = cg::this_thread_block();\n"
        "cg::thread_block_tile<32> warp = cg::tiled_partition<32>(block); if (warp.thread_rank() == 0) x[0] = 1; }"
    )
    found = {s.var.name: str(s.var.type) for s in function.body.body if isinstance(s, ir.VarDecl)}
    assert found == {"block": "cooperative_groups::thread_block", "warp": "cooperative_groups::thread_block_tile<32>"}


def test_pointer_to_array_read_as_assignment() -> None:
    function = body("float (*a)[16] = (float (*)[16])p; a[1][2] = 3; int (*b)[2][3];")
    found = {s.var.name: str(s.var.type) for s in function.body.body if isinstance(s, ir.VarDecl)}
    assert found["a"] == "float[16]*"
    assert found["b"] == "int[3][2]*"


# Launches.

KERNEL = """
template <typename T, int N> __global__ void tk(T* x, int n) {}
__global__ void k(float* x, int n) {}
namespace ns { __global__ void k2(float* x) {} struct S { static __global__ void m(int n) {} }; }
"""


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("k<<<g, 256>>>(x, n);", "k<<<g, 256, -, ->>>(x, n)"), ("k<<<g, dim3(16, 16), 4 * n, s>>>(x, n);", "k<<<g, dim3{16, 16}, (4 * n), s>>>(x, n)"),
        ("tk<float, 4><<<1, 32>>>(x, n);", "tk<float, 4><<<1, 32, -, ->>>(x, n)"), ("ns::k2<<<1, {32, 2}>>>(x);", "ns::k2<<<1, dim3{32, 2}, -, ->>>(x)"),
        ("ns::S::m<<<1, 32>>>(n);", "ns::S::m<<<1, 32, -, ->>>(n)"),
        ("void* a[] = {&x, (void*)&n}; cudaLaunchKernel((void*)k, g, b, a, 8, s);", "k<<<g, b, 8, s>>>(x, n)"),
        ("void* a[2] = {&x, &n}; cudaLaunchKernel((const void*)tk<float, 4>, g, b, a);", "tk<float, 4><<<g, b, -, ->>>(x, n)"),
        ("void* a[] = {&x, &n}; cudaLaunchCooperativeKernel((void*)k, g, b, a, 0, 0);", "k<<<g, b, 0, 0>>>(x, n)"),
        ("cudaLaunchKernel((void*)&k, g, b, unseen(), 0, 0);", "k<<<g, b, 0, 0>>>(?)"),
        ("cudaLaunchKernel(reinterpret_cast<void*>(&k), g, b, 0, 0, 0);", "k<<<g, b, 0, 0>>>(?)"),
        ("cudaLaunchConfig_t c = {}; c.gridDim = g; c.blockDim = b; c.dynamicSmemBytes = 4; cudaLaunchKernelEx(&c, k, x, n);", "k<<<g, b, 4, ->>>(x, n)"),
        ("cudaLaunchConfig_t c; c.blockDim = b; if (n) c.blockDim = g; cudaLaunchKernelEx(&c, k, x, n);", "k<<<-, -, -, ->>>(x, n)"),
        ("cudaLaunchConfig_t c; c.gridDim = g; void* a[] = {&x, &n}; cudaLaunchKernelExC(&c, (void*)k, a);", "k<<<g, -, -, ->>>(x, n)"),
        ("hipLaunchKernelGGL(k, g, b, 0, s, x, n);", "k<<<g, b, 0, s>>>(x, n)"), ("hipLaunchKernelGGL(HIP_KERNEL_NAME(tk<float, 4>), g, b, 0, 0, x, n);", "tk<float, 4><<<g, b, 0, 0>>>(x, n)"),
        ("hipLaunchKernelGGL((tk<float, 4>), dim3(1), dim3(2), 0, 0, x, n);", "tk<float, 4><<<dim3{1}, dim3{2}, 0, 0>>>(x, n)"),
    ],
)  # fmt: skip
def test_launch_forms(text: str, form: str) -> None:
    found = launch(KERNEL + "void f(float* x, int n, dim3 g, dim3 b, cudaStream_t s) { " + text + "}")
    assert expression(found) == form
    assert found.target is not None
    assert found.target.kind == "kernel"


def test_built_ins_by_their_older_names() -> None:
    old = body("z = hipBlockDim_x * hipBlockIdx_x + hipThreadIdx_x;")
    assert show(old) == show(body("z = blockDim.x * blockIdx.x + threadIdx.x;"))


def test_launch_of_a_pointer() -> None:
    found = launch("void f(void (*fp)(float*), float* x) { fp<<<1, 2>>>(x); }")
    assert found.kernel == ""
    assert expression(found.callee) == "fp"


def test_launch_with_template_arguments_that_are_names() -> None:
    text = KERNEL + "const int A = 4; void f(float* x, int n) { tk<float, A><<<n, 32>>>(x, n); }"
    found = launch(text)
    assert found.target is not None
    assert bindings_of(found.target, found.targs, found.args or []) == {"T": F32, "N": 4}
    text = "template <int A, int B> __global__ void tk(float* x) {} const int P = 4, Q = 2; void f(float* x, dim3 g) { tk<P, Q><<<g, P>>>(x); }"
    found = launch(text)
    assert found.target is not None
    assert bindings_of(found.target, found.targs, found.args or []) == {"A": 4, "B": 2}


def test_launch_span() -> None:
    text = KERNEL + "void f(float* x, int n) { k<<<1, 2>>>(x, n); }"
    found = launch(text)
    assert text[found.start : found.end] == "k<<<1, 2>>>(x, n)"


# Templates.


def test_open_parameters() -> None:
    function = lower("template <typename T, int N> __global__ void f(T* x) { T a[N]; int b = N; x[0] = a[N - 1] * 2; }")
    assert [v.name for v in function.template] == ["N"]
    assert str(function.params[0].type) == "T*"
    assert "a: T[]" in show(function)


def test_bound_parameters() -> None:
    text = "template <typename T, int N, bool B = (N > 2)> __global__ void f(T* x) { T a[N]; int b = N; if constexpr (N > 2) x[0] = sizeof(T); }"
    function = lower(text, bindings={"T": F32, "N": 4})
    assert function.params[0].type is Ptr(F32)
    assert isinstance(function.body.body[0], ir.VarDecl)
    assert function.body.body[0].var.type is Array(F32, 4)
    branch = function.body.body[2]
    assert isinstance(branch, ir.If)
    assert branch.constexpr
    assert fold(branch.cond) == 1
    assert [v.name for v in function.template] == ["B"]


def test_deduced_return_types() -> None:
    before = """
    template <typename T> __device__ T larger(T a, T b) { return a > b ? a : b; }
    template <typename T> __device__ T first(const T* a) { return a[0]; }
    template <typename T, int N> __device__ T sum(T (&a)[N]) { return a[0]; }
    template <typename T> __device__ auto doubled(T a) { return a * 2.0f; }
    template <typename T> struct Box { T value; __device__ T get() const { return value; } static const int W = sizeof(T); };
    template <int N> struct Wide { static constexpr int twice = N * 2; float data[N]; };
    __device__ long over(int a) { return a; }
    __device__ double over(float a) { return a; }
    """
    assert typed("larger(i, i)", before) == "int"
    assert typed("first(q)", before) == "double"
    assert typed("larger<float>(i, i)", before) == "float"
    assert typed("doubled(i)", before) == "float"
    assert typed("over(i)", before) == "long long"
    assert typed("over(x)", before) == "double"
    assert typed("Box<double>{}.get()", before) == "double"
    function = body(
        "Box<short> bs; auto a = bs.get(); auto w = bs.value; int e[Wide<4>::twice]; auto n = sizeof(Wide<4>);", before
    )
    found = {s.var.name: s for s in function.body.body if isinstance(s, ir.VarDecl)}
    assert str(found["a"].var.type) == "short"
    assert str(found["w"].var.type) == "short"
    assert str(found["e"].var.type) == "int[8]"
    assert fold(found["n"].init) == 16


def test_recursive_templates_end() -> None:
    function = body(
        "int a = F<100>::value;", "template <int N> struct F { static const int value = F<N - 1>::value + 1; };"
    )
    assert len(function.body.body) == 1


def test_overloads_prefer_types_and_arity() -> None:
    text = """
    __device__ int a(int x) { return 0; }
    __device__ int a(int x, int y = 2) { return 1; }
    __device__ int a(float* x, int y) { return 2; }
    __device__ int a(float* x, int y, int z) { return 3; }
    __device__ void f(float* p, int i) { a(p, i); a(i, i); a(p, i, i); }
    """
    calls = [n for n in nodes(lower(text)) if isinstance(n, ir.Call)]
    assert [len(c.target.params) if c.target else 0 for c in calls] == [2, 2, 3]
    assert calls[0].target is not calls[1].target


# Classes.


def test_layout() -> None:
    before = """
    struct A { char c; double d; int n; }; struct __align__(16) B { float x; }; union U { float f[3]; long l; };
    struct C : A { short s; float* p; }; struct D { unsigned a : 3; }; typedef struct { int v; A a; } P, *PP;
    """
    sizes = {
        n: fold(only(body(f"sizeof({n});", before)))
        for n in ("A", "B", "U", "C", "D", "P", "PP", "float4", "float3", "dim3")
    }
    assert sizes == {
        "A": 24,
        "B": 16,
        "U": 16,
        "C": 40,
        "D": None,
        "P": 32,
        "PP": 8,
        "float4": 16,
        "float3": 12,
        "dim3": 12,
    }
    assert typed("((PP)p)->a.d", before) == "double"
    before = "struct __attribute__((packed)) A { char c; int n; }; struct B { int n; } __attribute__((aligned(16)));"
    assert [fold(only(body(f"sizeof({n});", before))) for n in "AB"] == [None, 16]


def test_methods_see_fields() -> None:
    text = """
    struct Grid { int w; float* data; static const int N = 4; enum { K = 2 };
      __device__ float f(int i) { int a[N * K]; data[i] = this->w; return at(i) + data[i]; }
      __device__ float at(int i) const { return data[i * w]; } };
    """
    function = lower(text)
    fields = {n.var.name for n in nodes(function) if isinstance(n, ir.Ref) and n.var.kind == "field"}
    assert fields == {"w", "data"}
    call = next(n for n in nodes(function) if isinstance(n, ir.Call))
    assert call.target is not None
    assert call.target.qualname == "Grid::at"
    assert "a: int[8]" in show(function)


def test_out_of_class_method() -> None:
    function = lower(
        "template <class T> struct B { T* x; void f(int n); };\ntemplate <class T> void B<T>::f(int n) { x[n] = n; }",
        bindings={"T": F32},
    )
    assert str(only(function).type) == "float"


def test_constructor_initialisers() -> None:
    assert show(lower("struct f { int a; float b; f(int n) : a(n), b{2} { a += 1; } };")).splitlines()[1:] == [
        "  a = n",
        "  b = 2",
        "  a += 1",
    ]


def test_lambdas() -> None:
    function = body(
        "auto sq = [=] __device__ (int k) { return k * x; }; auto r = sq(i); auto m = [n = l](auto e) -> double { return n; }; auto w = m(1);"
    )
    found = {s.var.name: s for s in function.body.body if isinstance(s, ir.VarDecl)}
    assert isinstance(found["sq"].init, ir.Lambda)
    assert found["sq"].init.function.kind == "device"
    assert str(found["r"].var.type) == "float"
    assert str(found["w"].var.type) == "double"


def test_functors_and_operators() -> None:
    before = "struct Add { __device__ double operator()(int a) const { return a; } }; struct C { float r; };\n__device__ C operator+(C a, C b) { return a; }"
    assert typed("Add()(i)", before) == "double"
    assert typed("C{1} + C{2}", before) == "C"
    assert typed("(C{1} + C{2}).r", before) == "float"


# Statements.


def test_statements() -> None:
    function = body("""
      for (int k = 0, m = 1; k < i; ++k, m *= 2) { if (k == 3) continue; else break; }
      while (i) --i;
      do { i++; } while (i < 3);
      if (int t = i; t > 2) i = t;
      if (int t = i) i = t;
      switch (i) { case 1: case 2: i = 3; break; default: i = 4; }
      for (float e : std::vector<float>(3)) x += e;
      { int i = 3; u = i; }
      i = 2;
      return;
    """)
    kinds = [type(s).__name__ for s in function.body.body]
    assert kinds == ["For", "While", "While", "Block", "Block", "Switch", "RangeFor", "Block", "ExprStmt", "Return"]
    switch = function.body.body[5]
    assert isinstance(switch, ir.Switch)
    assert [len(c.labels) for c in switch.cases] == [2, 0]
    # The inner `i` is another variable.
    inner, outer = function.body.body[7:9]
    assert isinstance(inner, ir.Block)
    assert isinstance(inner.body[0], ir.VarDecl)
    assert isinstance(outer, ir.ExprStmt)
    assert isinstance(outer.expr, ir.Assign)
    assert isinstance(outer.expr.target, ir.Ref)
    assert outer.expr.target.var is function.params[5]
    assert inner.body[0].var is not function.params[5]


def test_header_end() -> None:
    text = "void f(int n) { for (int i = 0; i < n; i++) { } while (n) { } }"
    function = lower(text)
    loop, other = function.body.body
    assert isinstance(loop, ir.For)
    assert isinstance(other, ir.While)
    assert text[loop.start : loop.header_end] == "for (int i = 0; i < n; i++)"
    assert text[other.start : other.header_end] == "while (n)"


def test_opaque_statements() -> None:
    function = body(
        'asm volatile("bar.sync 0;" : "=r"(i) : "r"(u)); goto end; end: i = 1; try { i = 2; } catch (...) { u = 3; } auto [a1, a2] = foo(i);'
    )
    opaque = [s for s in function.body.body if isinstance(s, ir.OpaqueStmt)]
    assert [s.why for s in opaque] == [
        "inline assembly",
        "goto",
        "a label",
        "an exception handler",
        "a structured binding",
    ]
    assert opaque[0].barrier
    assert [v.name for v in opaque[0].writes] == ["i"]
    assert [v.name for v in opaque[0].reads] == ["u"]
    assert opaque[1].jumps


def test_an_error_costs_its_own_region() -> None:
    function = body("i = 1; for (int k = 0; k < i; k++) { p[k] = 0; @ $ garbage ( ; p[k] = 1; } i = 2;")
    assert function.file.declarations.gaps
    assert any(isinstance(s, ir.For) for s in function.body.body)
    assert expression(only(function)) == "i = 2"


@pytest.mark.parametrize(
    "text",
    ["x = " + " + ".join(["x"] * 10_000) + ";", "x = " + "(" * 3000 + "x" + ")" * 3000 + ";", "if (i) {" * 400 + "}" * 400, "if (i) " * 1500 + "i = 1;",
     "if (i) i = 0; " + "else if (i) i = 1; " * 1500, "x = " + "-" * 0 + "!" * 2000 + "x;", "p" + "[0]" * 2000 + ";", "i = " + "i ? i : " * 2000 + "i;"],
    ids=["sum", "parentheses", "blocks", "ifs", "else-ifs", "nots", "indices", "conditionals"],
)  # fmt: skip
def test_deep_nesting_is_opaque(text: str) -> None:
    function = body(text + " i = 3;")
    assert any(isinstance(n, (ir.Opaque, ir.OpaqueStmt)) and n.why == "nested too deeply" for n in _walk(function))
    assert expression(only(function)) == "i = 3"


def _walk(function: ir.Function) -> Iterator[object]:
    stack: list[object] = [function.body]
    while stack:
        node = stack.pop()
        if isinstance(node, list):
            stack.extend(node)
        elif isinstance(node, ir.Node):
            yield node
            for kind in type(node).__mro__:
                stack.extend(getattr(node, slot, None) for slot in getattr(kind, "__slots__", ()))


def test_launch_bounds() -> None:
    function = lower("const int T = 128; __global__ void __launch_bounds__(T, 2) f() {}")
    assert fold(function.launch_bounds) == 128


def test_globals() -> None:
    function = body(
        "i = N + t[i] + count + A; u = us;",
        "static const int N = 4 * 2; __constant__ int t[N]; __device__ int count; enum E { Z, A = Z + 5 };",
    )
    found = {n.var.name: n.var for n in nodes(function) if isinstance(n, ir.Ref)}
    assert (found["t"].kind, str(found["t"].type)) == ("constant", "int[8]")
    assert found["count"].kind == "global"
    assert fold(found["N"].init) == 8
    assert fold(found["A"].init) == 5
    assert found["N"].const


def test_global_variables_are_one() -> None:
    file = SourceFile("/project/a.cu", b"__constant__ int t[4]; void f() { t[0]; } void g() { t[1]; }")
    found = {n.var for f in file.declarations.functions for n in nodes(f.lower()) if isinstance(n, ir.Ref)}
    assert len(found) == 1


def test_standard_containers() -> None:
    assert typed("std::vector<float>(3).size()") == "unsigned long long"
    assert typed("std::vector<float>(3)[i]") == "float"
    assert typed("std::array<int, 4>().size()") == "unsigned long long"
    assert typed("std::vector<float>(3).data()") == "float*"


def test_types_are_shared() -> None:
    function = body("U a; V b; W<int> c;", "typedef unsigned int U; using V = size_t; template <class T> using W = T*;")
    types = [s.var.type for s in function.body.body if isinstance(s, ir.VarDecl)]
    assert types == [U32, U64, Ptr(I32)]


def test_structs_of_two_files_differ() -> None:
    a, b = (SourceFile(path, b"struct P { int n; }; void f(P p) {}") for path in ("/a.cu", "/b.cu"))
    first, second = (x.declarations.functions[0].lower().params[0].type for x in (a, b))
    assert isinstance(first, Struct)
    assert first is not second


TRAITS = """
template <class T> struct Vec;
template <> struct Vec<float> { using Type = float4; static const int N = 4; };
template <> struct Vec<__half> { using Type = __half2; static const int N = 2; };
template <class T, int L> struct CV { T x[L]; __device__ CV operator+(const CV& o) const { return o; } };
template <class T> struct CV<T, 2> { T x, y; __device__ CV operator+(const CV& o) const { CV r; r.x = x + o.x; return r; } };
template <class T> struct Pack { static constexpr const int size = 16 / sizeof(T); T d[size];
  __device__ T operator[](int i) { return d[i]; } };
typedef Pack<float> pack;
"""


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("*reinterpret_cast<Vec<float>::Type*>(p)", "float4"),
        ("*reinterpret_cast<typename Vec<__half>::Type*>(p)", "__half2"),
        ("int a[Vec<__half>::N]", "int[2]"),
        ("int a[pack::size]", "int[4]"),
        ("auto a = pack()[0]", "float"),
        ("auto a = (CV<double, 2>() + CV<double, 2>()).y", "double"),
        ("auto& a = (CV<int, 3>() + CV<int, 3>()).x", "int[3]"),
    ],
)
def test_specialisations(text: str, type_: str) -> None:
    last = body(text + ";", TRAITS).body.body[-1]
    assert str(last.var.type if isinstance(last, ir.VarDecl) else last.expr.type) == type_  # type: ignore[attr-defined]  # a statement


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("i * (s) + c % (s)", "((i *:int s) + (c %:int s))"),
        ("(i) - s * 2", "(i - (s *:int 2))"),
        ("l = (i) + s", "l = (i +:int s)"),
        ("u * (i) - 1", "((u *:unsigned int i) -:unsigned int 1)"),
    ],
)
def test_operations_read_as_casts(text: str, form: str) -> None:
    assert shown(text) == form


def test_bindings_of_a_method() -> None:
    text = "template <class T> struct B { T v; __device__ T get() { return v; } }; __device__ void f(B<double> b) { b.get(); }"
    call = only(lower(text))
    assert isinstance(call, ir.Call)
    assert call.target is not None
    assert call.receiver is not None
    bindings = bindings_of(call.target, call.targs, call.args, call.receiver.type)
    assert str(call.target.lower(bindings).returns) == "double"


RICH = """
template <typename T, int N = 4> __global__ void __launch_bounds__(256) k(const T* __restrict__ x, T* y, int n) {
  extern __shared__ float s[]; __shared__ T tile[N][N + 1]; int i = blockIdx.x * blockDim.x + threadIdx.x;
  for (int k = 0; k < n && i < (n); k += 2) { if (i >= n) return; else y[i] = (T)(x[i]) + s[k]; __syncthreads(); }
  switch (i) { case 1: break; default: asm volatile("bar.sync 0;" : "=r"(i)); }
}
struct S : B { enum { K = 1 << 3 }; float f[K]; S(int a) : f{} {} template <class U> U g(U u) const { return this->f[u]; } };
void run(float* d, int n) { dim3 g(n, S::K), b{32}; void* a[] = {&d, &n}; auto l = [=](int q) -> int { return q * n; };
  k<float, 2><<<g, dim3(b.x, 2), n * sizeof(float)>>>(d, d, l(n)); cudaLaunchKernel((void*)k<float>, g, b, a, 0, 0); }
"""


@pytest.mark.parametrize("step", [1, 2, 3])
def test_broken_text_never_fails(step: int) -> None:
    for at in range(step, len(RICH), 11):
        for text in (RICH[:at], RICH[:at] + RICH[at + step :], RICH[at:]):
            for decl in SourceFile("/project/broken.cu", text.encode()).declarations.functions:
                show(decl.lower())


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("(j < w && j >= (0)) ? 1 : 0", "(((j < w) && (j >= 0)) ? 1 : 0)"),
        ("(i > 0 && j < w && i >= w) ? 1 : 0", "((((i > 0) && (j < w)) && (i >= w)) ? 1 : 0)"),
    ],
)
def test_a_comparison_read_as_an_assignment_to_a_template(source: str, wanted: str) -> None:
    function = lower(f"__global__ void k(int i, int j, int w) {{ int a = {source}; }}", "k")
    assert f"a: int = {wanted}" in show(function)
