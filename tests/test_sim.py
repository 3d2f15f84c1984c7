"""The simulator: hand-computed cases, C's arithmetic, random kernels against NumPy, events, speed of sparse runs."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from cudalint.frontend.source import SourceFile
from cudalint.ir.types import BOOL, F16, F32, F64, I8, I16, I32, I64, U8, U32, U64, VECTORS
from cudalint.sim import Buffer, Launch, Observation, run

if TYPE_CHECKING:
    from pathlib import Path

    from cudalint.ir.nodes import Function


def kernel(source: str, name: str | None = None, **bindings: Any) -> Function:
    file = SourceFile("/nowhere/k.cu", source.encode())
    found = [d for d in file.declarations.functions if d.kind == "kernel" and name in (None, d.name)]
    return found[-1].lower(bindings)


def launch(source: str, grid: Any, block: Any, *args: Any, **how: Any) -> Observation:
    grid = grid if isinstance(grid, tuple) else (grid, 1, 1)
    block = block if isinstance(block, tuple) else (block, 1, 1)
    bindings = how.pop("bindings", {})
    return run(Launch(kernel(source, **bindings), grid, block, args, **how))


def values(observation: Observation, name: str) -> Any:
    assert observation.end == "done", observation
    return observation.buffers[name].values()


# Arithmetic against a C compiler.

_VARIABLES = {
    "a": "int",
    "b": "unsigned",
    "c": "long long",
    "d": "unsigned long long",
    "e": "short",
    "f": "unsigned char",
    "g": "bool",
    "h": "signed char",
}
_BITS = {
    "a": (32, True),
    "b": (32, False),
    "c": (64, True),
    "d": (64, False),
    "e": (16, True),
    "f": (8, False),
    "g": (1, False),
    "h": (8, True),
}
_IR = {"a": I32, "b": U32, "c": I64, "d": U64, "e": I16, "f": U8, "g": BOOL, "h": I8}
_leaf = st.one_of(
    st.sampled_from(sorted(_VARIABLES)),
    st.sampled_from(
        [
            "0",
            "1",
            "(-1)",
            "2u",
            "7",
            "255",
            "65536",
            "2147483647",
            "4294967295u",
            "1ll",
            "(-3ll)",
            "18446744073709551615ull",
            "0x80000000",
            "'a'",
        ]
    ),
)


def _wider(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    pair = st.tuples(inner, inner)
    return st.one_of(
        st.tuples(
            pair, st.sampled_from(["+", "-", "*", "&", "|", "^", "<", "<=", ">", ">=", "==", "!=", "&&", "||"])
        ).map(lambda t: f"({t[0][0]} {t[1]} {t[0][1]})"),
        st.tuples(pair, st.sampled_from(["/", "%"])).map(lambda t: f"({t[0][0]} {t[1]} (({t[0][1]} & 15) + 1))"),
        st.tuples(pair, st.sampled_from(["/", "%"])).map(lambda t: f"({t[0][0]} {t[1]} -(int)(({t[0][1]} & 15) + 2))"),
        st.tuples(pair, st.sampled_from(["<<", ">>"])).map(lambda t: f"({t[0][0]} {t[1]} ({t[0][1]} & 31))"),
        st.tuples(inner, st.sampled_from(["-", "~", "!", "+"])).map(lambda t: f"({t[1]}{t[0]})"),
        st.tuples(inner, st.sampled_from(sorted(set(_VARIABLES.values())))).map(lambda t: f"(({t[1]}){t[0]})"),
        st.tuples(inner, inner, inner).map(lambda t: f"({t[0]} ? {t[1]} : {t[2]})"),
    )


_expression = st.recursive(_leaf, _wider, max_leaves=8)


def _cell(name: str) -> st.SearchStrategy[int]:
    bits, signed = _BITS[name]
    lo, hi = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    return st.one_of(st.integers(lo, hi), st.sampled_from([lo, hi, 0, 1]))


_row = st.fixed_dictionaries({name: _cell(name) for name in _VARIABLES})


def in_c(folder: Path, expressions: list[str], rows: list[dict[str, int]]) -> list[list[int]]:
    """What a C compiler makes of each expression in each row, as 64-bit integers."""
    text = ["#include <stdio.h>", "#include <stdbool.h>", "typedef long long L;"]
    params = ", ".join(f"{t} {n}" for n, t in _VARIABLES.items())
    text += [f"static void f({params}) {{"]
    text += [f'printf("%lld ", (L)({e}));' for e in expressions] + ['puts(""); }', "int main(void) {"]
    for row in rows:
        text.append(
            "f("
            + ", ".join(f"({t}){row[n]}ull" if row[n] >= 0 else f"({t})(-{-row[n]}ull)" for n, t in _VARIABLES.items())
            + ");"
        )
    text.append("return 0; }")
    source, program = folder / "e.c", folder / "e"
    source.write_text("\n".join(text))
    subprocess.run(["gcc", "-O1", "-fwrapv", "-w", "-o", program, source], check=True)
    out = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    return [[int(x) for x in line.split()] for line in out.splitlines()]


def in_simulator(expressions: list[str], rows: list[dict[str, int]], lanes: bool) -> Any:
    stores = "".join(f"out[i * {len(expressions)} + {j}] = (long long)({e});" for j, e in enumerate(expressions))
    if lanes:
        params = ", ".join(f"const {t}* {n}_" for n, t in _VARIABLES.items())
        loads = "".join(f"{t} {n} = {n}_[i];" for n, t in _VARIABLES.items())
        source = f"__global__ void k({params}, long long* out) {{ int i = threadIdx.x; {loads} {stores} }}"
        args = [
            Buffer(n, _IR[n], len(rows), np.array([r[n] for r in rows], dtype=object).astype(_dtype(n)))
            for n in _VARIABLES
        ]
        out = Buffer("out", I64, len(rows) * len(expressions), "nan")
        seen = launch(source, 1, len(rows), *args, out)
        return values(seen, "out").reshape(len(rows), -1)
    result = []
    params = ", ".join(f"{t} {n}" for n, t in _VARIABLES.items())
    source = f"__global__ void k({params}, long long* out) {{ const int i = 0; {stores} }}"
    for row in rows:
        seen = launch(source, 1, 1, *[row[n] for n in _VARIABLES], Buffer("out", I64, len(expressions), "nan"))
        result.append(values(seen, "out"))
    return np.array(result)


def _dtype(name: str) -> Any:
    bits, signed = _BITS[name]
    return np.bool_ if bits == 1 else np.dtype(f"{'i' if signed else 'u'}{bits // 8}")


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler")
@settings(max_examples=6, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(st.lists(_expression, min_size=40, max_size=60), st.lists(_row, min_size=3, max_size=6))
def test_integers_as_in_c(
    tmp_path_factory: pytest.TempPathFactory, expressions: list[str], rows: list[dict[str, int]]
) -> None:
    want = in_c(tmp_path_factory.mktemp("c"), expressions, rows)
    for lanes in (True, False):
        got = in_simulator(expressions, rows, lanes)
        for r, row in enumerate(rows):
            for e, text in enumerate(expressions):
                assert int(got[r][e]) == want[r][e], (text, row, "lanes" if lanes else "uniform")


# Arithmetic that C leaves undefined: as the hardware does it.


def test_shifts_by_the_width_and_more() -> None:
    seen = launch(
        "__global__ void k(const int* s, int* a, unsigned* b, long long* c, int* d) { int i = threadIdx.x;"
        " a[i] = -8 >> s[i]; b[i] = 0xF0000000u >> s[i]; c[i] = 1ll << s[i]; d[i] = 3 << s[i]; }",
        1, 7, Buffer("s", I32, 7, np.array([0, 1, 31, 32, 33, 64, -1], np.int32)),
        Buffer("a", I32, 7), Buffer("b", U32, 7), Buffer("c", I64, 7), Buffer("d", I32, 7),
    )  # fmt: skip
    assert values(seen, "a").tolist() == [-8, -4, -1, -1, -1, -1, -1]
    assert values(seen, "b").tolist() == [0xF0000000, 0x78000000, 1, 0, 0, 0, 0]
    assert values(seen, "c").tolist() == [1, 2, 1 << 31, 1 << 32, 1 << 33, 0, 0]
    assert values(seen, "d").tolist() == [3, 6, -(1 << 31), 0, 0, 0, 0]


def test_floating_values_saturate_as_integers() -> None:
    given = np.array([1.9, -1.9, 3e9, -3e9, 1e20, -1e20, np.nan, np.inf, 2147483648.0, 300.5], np.float32)
    n = len(given)
    seen = launch(
        "__global__ void k(const float* x, int* a, unsigned* b, long long* c, unsigned char* d, bool* e) { int i = threadIdx.x;"
        " a[i] = (int)x[i]; b[i] = (unsigned)x[i]; c[i] = x[i]; d[i] = (unsigned char)x[i]; e[i] = x[i]; }",
        1, n, Buffer("x", F32, n, given), Buffer("a", I32, n), Buffer("b", U32, n), Buffer("c", I64, n), Buffer("d", U8, n), Buffer("e", BOOL, n),
    )  # fmt: skip
    hi, lo = (1 << 31) - 1, -(1 << 31)
    assert values(seen, "a").tolist() == [1, -1, hi, lo, hi, lo, 0, hi, hi, 300]
    assert values(seen, "b").tolist() == [1, 0, 3000000000, 0, 0xFFFFFFFF, 0, 0, 0xFFFFFFFF, 1 << 31, 300]
    assert values(seen, "c").tolist()[:6] == [1, -1, 3000000000, -3000000000, (1 << 63) - 1, -(1 << 63)]
    assert values(seen, "d").tolist()[9] == 300 % 256
    assert values(seen, "e").all()


def test_division_by_zero_and_of_the_least_integer() -> None:
    seen = launch(
        "__global__ void k(const int* x, const int* y, int* q, int* r) { int i = threadIdx.x; q[i] = x[i] / y[i]; r[i] = x[i] % y[i]; }",
        1, 4, Buffer("x", I32, 4, np.array([7, -7, -(1 << 31), 5], np.int32)), Buffer("y", I32, 4, np.array([-2, 2, -1, 0], np.int32)),
        Buffer("q", I32, 4), Buffer("r", I32, 4),
    )  # fmt: skip
    assert values(seen, "q").tolist() == [-3, -3, -(1 << 31), -1]
    assert values(seen, "r").tolist() == [1, -1, 0, 5]
    assert seen.wraps is not None
    assert {(w.kind, w.thread.thread[0]) for w in seen.wraps} == {("divide", 3)}


def test_precision_of_floating_types() -> None:
    seen = launch(
        "__global__ void k(float* f, double* d, half* h) { float a = 16777216.0f; f[0] = a + 1; d[0] = a + 1.0; half x = __float2half(2048.0f);"
        " h[0] = __hadd(x, __float2half(1.0f)); f[1] = 1 / 3; f[2] = 1 / 3.0f; f[3] = sqrtf(2.0f); f[4] = fmaxf(NAN, 1.0f); }",
        1, 1, Buffer("f", F32, 5), Buffer("d", F64, 1), Buffer("h", F16, 1),
    )  # fmt: skip
    f = values(seen, "f")
    assert f[0] == 16777216.0
    assert values(seen, "d")[0] == 16777217.0
    assert values(seen, "h")[0] == 2048.0
    assert f[1] == 0.0
    assert f[2] == np.float32(1) / np.float32(3)
    assert f[3] == np.sqrt(np.float32(2))
    assert f[4] == 1.0


# Control flow.


def each(body: str, n: int = 64, extra: str = "", **how: Any) -> list[int]:
    """The values of ``int r`` computed by ``body`` in each of ``n`` threads with ``int i``."""
    seen = launch(
        f"{extra}\n__global__ void k(int* out) {{ int i = threadIdx.x; int r = 0; {body} out[i] = r; }}",
        1,
        n,
        Buffer("out", I32, n, "nan"),
        **how,
    )
    return [int(x) for x in values(seen, "out")]


def test_branches() -> None:
    assert each("if (i % 2) { if (i % 3) r = 1; else r = 2; } else r = 3;") == [
        3 if i % 2 == 0 else 1 if i % 3 else 2 for i in range(64)
    ]
    assert each("r = i < 10 ? (i < 5 ? 1 : 2) : 3;") == [1 if i < 5 else 2 if i < 10 else 3 for i in range(64)]


def test_loops_with_break_and_continue() -> None:
    def plain(i: int) -> int:
        r = 0
        for j in range(i):
            if j == 7:
                continue
            if j > 20:
                break
            r += j
        return r

    assert each("for (int j = 0; j < i; ++j) { if (j == 7) continue; if (j > 20) break; r += j; }") == [
        plain(i) for i in range(64)
    ]
    assert each("int j = 0; while (true) { if (++j > i) break; if (j & 1) continue; r += j; }") == [
        sum(range(0, i + 1, 2)) for i in range(64)
    ]
    assert each("int j = 0; do { r += j; } while (j++ < i);") == [i * (i + 1) // 2 for i in range(64)]
    assert each("do { if (i < 3) break; r = 1; } while (0); r += 2;") == [2 if i < 3 else 3 for i in range(64)]
    assert each("for (int a = 0; a < 3; a++) for (int b = 0; b < i; b++) { if (b == a) break; r++; }") == [
        sum(min(a, i) for a in range(3)) for i in range(64)
    ]


def test_switch() -> None:
    def plain(i: int) -> int:
        r = 0
        case = i % 5
        if case == 0:
            r += 1
        if case in (0, 1):
            return r + 10
        if case == 2:
            return r + 100
        return r + 1000

    assert each(
        "switch (i % 5) { case 0: r += 1; case 1: r += 10; break; case 2: r += 100; break; default: r += 1000; }"
    ) == [plain(i) for i in range(64)]
    assert each(
        "for (int j = 0; j < 4; j++) { switch (j) { case 1: continue; case 2: if (i > 30) continue; break; } r += 1; }"
    ) == [2 if i > 30 else 3 for i in range(64)]


def test_short_circuit_reads_nothing_it_must_not() -> None:
    seen = launch(
        "__global__ void k(const int* a, int* o, int n) { int i = threadIdx.x; o[i] = i < n && a[i] >= 0 || i == 60; }",
        1,
        64,
        Buffer("a", I32, 10, 1),
        Buffer("o", I32, 64),
        10,
    )
    assert values(seen, "o").tolist() == [int(i < 10 or i == 60) for i in range(64)]
    assert seen.outside == []


def test_functions_return_lane_by_lane() -> None:
    extra = "__device__ int f(int x) { if (x < 5) return 1; for (int j = 0; ; j++) { if (j * j > x) return j; } }"
    assert each("if (i % 2) r = f(i); r += 1;", extra=extra) == [
        (0 if i % 2 == 0 else 1 if i < 5 else next(j for j in range(99) if j * j > i)) + 1 for i in range(64)
    ]
    extra = "__device__ int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }"
    assert each("r = fib(i % 9);", extra=extra)[:9] == [0, 1, 1, 2, 3, 5, 8, 13, 21]


def test_references_pointers_and_lambdas() -> None:
    extra = "__device__ void inc(int& x, int by = 2) { x += by; } __device__ void put(int* p) { *p = *p * 2; } template <typename T> __device__ T twice(T x) { return x + x; }"
    assert each("r = i; inc(r); if (i > 3) put(&r); inc(r, 1); r = twice(r);", extra=extra) == [
        2 * (((i + 2) * 2 if i > 3 else i + 2) + 1) for i in range(64)
    ]
    assert each("int k = 3; auto f = [&](int x) { k += 1; return x * k; }; r = f(i) + f(1);") == [
        i * 4 + 5 for i in range(64)
    ]
    assert each("int a = i, b = 1; int& c = i % 2 ? a : b; c = 9; r = a * 10 + b;")[:4] == [9, 91, 29, 91]


def test_classes() -> None:
    extra = """struct V { float x, y; __device__ V(float a, float b) : x(a), y(b) {} __device__ float dot(const V& o) const { return x * o.x + y * o.y; }
    __device__ V operator+(const V& o) const { return V(x + o.x, y + o.y); } };
    struct Box { int data[4]; int n; __device__ void push(int v) { data[n++] = v; } __device__ int& at(int i) { return data[i]; } };"""
    assert each("V a(i, 1.0f), b(2.0f, 3.0f); r = (int)(a + b).dot(b);", extra=extra) == [
        (i + 2) * 2 + 12 for i in range(64)
    ]
    assert each(
        "Box b; b.n = 0; b.push(i); b.push(2 * i); b.at(0) += 5; r = b.data[0] * 100 + b.data[1] + b.n;", extra=extra
    ) == [(i + 5) * 100 + 2 * i + 2 for i in range(64)]
    assert each("int2 p = make_int2(i, 1); p.y += p.x; int2 q = p; q.x = 0; r = p.x + 10 * p.y + q.x;") == [
        i + 10 * (i + 1) for i in range(64)
    ]
    assert each("union { float f; int i; } u; u.f = 1.0f; r = u.i + i;", extra=extra)[0] == 0x3F800000


def test_local_arrays_and_bytes() -> None:
    assert each("int t[4] = {1, 2, 3}; t[i & 3] += 10; r = t[0] + 100 * t[1] + 10000 * t[2] + 1000000 * t[3];")[:4] == [
        30211,
        31201,
        130201,
        10030201,
    ]
    assert each("float f = 1.0f; r = *(int*)&f + i;")[:2] == [0x3F800000, 0x3F800001]
    assert (
        each("int w = 0x04030201; unsigned char* b = reinterpret_cast<unsigned char*>(&w); b[1] = i; r = w;")[255 % 64]
        == 0x04033F01
    )


# Random kernels with a known answer.

_size = st.integers(1, 700)
_block = st.sampled_from([1, 7, 32, 64, 100, 128])
_quick = settings(max_examples=12, deadline=None)


@_quick
@given(_size, _block, st.integers(1, 9))
def test_grid_stride_map(n: int, t: int, blocks: int) -> None:
    seen = launch(
        "__global__ void k(const float* x, float* y, int n) { for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) y[i] = 2.0f * x[i] + 1.0f; }",
        blocks,
        t,
        Buffer("x", F32, n),
        Buffer("y", F32, n, "nan"),
        n,
    )
    assert (values(seen, "y") == np.float32(2) * values(seen, "x") + np.float32(1)).all()
    first, second = seen.buffers["y"].writers()
    assert first.tolist() == [i % (blocks * t) for i in range(n)]
    assert (second == -1).all()


@_quick
@given(_size, _block)
def test_reverse_through_shared_memory(n: int, t: int) -> None:
    source = "__global__ void k(int* x, int n) { extern __shared__ int s[]; int b = blockIdx.x * blockDim.x, i = threadIdx.x, m = min(n - b, (int)blockDim.x); if (i < m) s[i] = x[b + i]; __syncthreads(); if (i < m) x[b + i] = s[m - 1 - i]; }"
    given_ = np.arange(n, dtype=np.int32)
    seen = launch(source, -(-n // t), t, Buffer("x", I32, n, given_), n, shared_bytes=4 * t)
    assert values(seen, "x").tolist() == [x for b in range(0, n, t) for x in given_[b : b + t][::-1].tolist()]
    assert not (seen.races or seen.uninitialised or seen.outside or seen.divergent)


@_quick
@given(_size, st.sampled_from([32, 64, 128]))
def test_block_reduce(n: int, t: int) -> None:
    source = f"""__global__ void k(const int* x, int* total, int n) {{ __shared__ int s[{t}]; int i = blockIdx.x * blockDim.x + threadIdx.x;
    s[threadIdx.x] = i < n ? x[i] : 0; __syncthreads();
    for (int w = blockDim.x / 2; w > 0; w >>= 1) {{ if (threadIdx.x < w) s[threadIdx.x] += s[threadIdx.x + w]; __syncthreads(); }}
    if (threadIdx.x == 0) atomicAdd(total, s[0]); }}"""
    seen = launch(source, -(-n // t), t, Buffer("x", I32, n), Buffer("total", I32, 1, 0), n)
    assert values(seen, "total")[0] == values(seen, "x").sum()
    assert not (seen.races or seen.uninitialised or seen.divergent)


@_quick
@given(_size, st.sampled_from([32, 96, 128]))
def test_warp_reduce_and_scan(n: int, t: int) -> None:
    source = """__global__ void k(const int* x, int* sum, int* scan, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; int lane = threadIdx.x & 31;
    int v = i < n ? x[i] : 0, p = v;
    for (int d = 1; d < 32; d <<= 1) { int o = __shfl_up_sync(0xffffffff, p, d); if (lane >= d) p += o; }
    for (int d = 16; d; d >>= 1) v += __shfl_xor_sync(0xffffffffu, v, d);
    if (i < n) { scan[i] = p; sum[i] = v; } }"""
    seen = launch(source, -(-n // t), t, Buffer("x", I32, n), Buffer("sum", I32, n), Buffer("scan", I32, n), n)
    x = values(seen, "x")
    padded = np.concatenate([x, np.zeros(-n % 32, np.int32)]).reshape(-1, 32)
    assert (values(seen, "scan") == padded.cumsum(axis=1).reshape(-1)[:n]).all()
    assert (values(seen, "sum") == padded.sum(axis=1).repeat(32)[:n]).all()
    assert seen.absent == []


@_quick
@given(_size, _block)
def test_stencil(n: int, t: int) -> None:
    source = "__global__ void k(const float* x, float* y, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return; float l = i > 0 ? x[i - 1] : 0.0f; float r = i + 1 < n ? x[i + 1] : 0.0f; y[i] = l + x[i] + r; }"
    seen = launch(source, -(-n // t), t, Buffer("x", F32, n), Buffer("y", F32, n, "nan"), n)
    x = np.concatenate([[0], values(seen, "x"), [0]]).astype(np.float32)
    assert (values(seen, "y") == (x[:-2] + x[1:-1]) + x[2:]).all()


@_quick
@given(st.integers(1, 50), st.integers(1, 50))
def test_transpose(w: int, h: int) -> None:
    source = """__global__ void k(const int* x, int* y, int w, int h) { __shared__ int s[8][9]; int i = blockIdx.x * 8 + threadIdx.x, j = blockIdx.y * 8 + threadIdx.y;
    if (i < w && j < h) s[threadIdx.y][threadIdx.x] = x[j * w + i]; __syncthreads(); i = blockIdx.y * 8 + threadIdx.x; j = blockIdx.x * 8 + threadIdx.y;
    if (i < h && j < w) y[j * h + i] = s[threadIdx.x][threadIdx.y]; }"""
    seen = launch(
        source,
        (-(-w // 8), -(-h // 8), 1),
        (8, 8, 1),
        Buffer("x", I32, w * h, "index"),
        Buffer("y", I32, w * h, "nan"),
        w,
        h,
    )
    assert (values(seen, "y").reshape(w, h) == np.arange(w * h).reshape(h, w).T).all()
    assert not (seen.races or seen.uninitialised or seen.outside)


@_quick
@given(_size, _block, st.booleans())
def test_histogram(n: int, t: int, old: bool) -> None:
    use = "rank[i] = atomicAdd(&h[x[i]], 1);" if old else "atomicAdd(h + x[i], 1);"
    source = f"__global__ void k(const int* x, int* h, int* rank, int n) {{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) {{ {use} }} }}"
    seen = launch(
        source, -(-n // t), t, Buffer("x", I32, n, ("hash", 0, 10)), Buffer("h", I32, 10, 0), Buffer("rank", I32, n), n
    )
    x = values(seen, "x")
    assert (values(seen, "h") == np.bincount(x, minlength=10)).all()
    if old:
        assert values(seen, "rank").tolist() == [int((x[:i] == x[i]).sum()) for i in range(n)]


# Memory.


def test_vectors_over_scalars_and_structs() -> None:
    source = """struct P { float x; int id; double w; };
    __global__ void k(const float* a, float* b, P* p) { int i = threadIdx.x; float4 v = reinterpret_cast<const float4*>(a)[i]; v.x += 1; reinterpret_cast<float4*>(b)[i] = v;
    p[i].x = v.y; p[i].id = i; p[i].w = p[i].id * 0.5; }"""
    function = kernel(source)
    element = function.params[2].type.element  # type: ignore[attr-defined]  # a Ptr
    seen = run(
        Launch(
            function,
            (1, 1, 1),
            (4, 1, 1),
            [Buffer("a", F32, 16, "index"), Buffer("b", F32, 16, "nan"), Buffer("p", element, 4)],
        )
    )
    assert values(seen, "b").tolist() == [x + (1 if x % 4 == 0 else 0) for x in range(16)]
    p = values(seen, "p")
    assert p["x"].tolist() == [1, 5, 9, 13]
    assert p["w"].tolist() == [0, 0.5, 1, 1.5]
    first, _ = seen.buffers["b"].writers()
    assert first.tolist() == [i // 4 for i in range(16)]


def test_constant_and_device_variables() -> None:
    source = "__constant__ float c[4]; __device__ int counter = 5; __device__ const int lut[3] = {7, 8, 9}; constexpr int N = 3;\n__global__ void k(float* o) { int i = threadIdx.x; o[i] = c[i] * lut[i % N] + atomicAdd(&counter, 1); }"
    seen = launch(
        source, 1, 4, Buffer("o", F32, 4), constants={"c": Buffer("c", F32, 4, np.array([1, 2, 3, 4], np.float32))}
    )
    assert values(seen, "o").tolist() == [7 + 5, 16 + 6, 27 + 7, 28 + 8]


def test_a_struct_by_value_with_pointers() -> None:
    source = "struct A { float* p; int n; float k[2]; };\n__global__ void k(A a) { int i = threadIdx.x; if (i < a.n) a.p[i] = a.k[i & 1]; }"
    seen = launch(source, 1, 8, {"p": Buffer("p", F32, 5, 0), "n": 5, "k": [1.0, 2.0]})
    assert values(seen, "p").tolist() == [1, 2, 1, 2, 1]


def test_fills() -> None:
    seen = launch(
        "__global__ void k(float* a, int* b, float4* c, float* d) { a[0] = a[0]; b[0] = b[0]; c[0] = c[0]; d[0] = d[0]; }",
        1,
        1,
        Buffer("a", F32, 5000),
        Buffer("b", I32, 5000),
        Buffer("c", VECTORS["float4"], 3, 2.5),
        Buffer("d", F32, 2, "nan"),
    )
    a, b = values(seen, "a"), values(seen, "b")
    assert -1 <= a.min() < -0.99
    assert 0.99 < a.max() < 1
    assert (b.min(), b.max()) == (-100, 100)
    assert values(seen, "c")["w"].tolist() == [2.5] * 3
    assert np.isnan(values(seen, "d")).all()
    assert len(set(a.tolist())) > 4990


# Events.


def test_outside_accesses_know_thread_and_line() -> None:
    seen = launch(
        "__global__ void k(const int* x, int* y, int n) {\n  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i <= n)\n    y[i] = x[i - 1];\n}",
        2,
        8,
        Buffer("x", I32, 10),
        Buffer("y", I32, 10),
        10,
    )
    assert seen.outside is not None
    found = {(o.buffer, o.element, o.kind, o.thread.block[0], o.thread.thread[0], o.site.line) for o in seen.outside}
    assert found == {("x", -1, "load", 0, 0, 4), ("y", 10, "store", 1, 2, 4)}
    assert seen.outside_count == 2


def test_outside_of_shared_memory_and_of_one_dimension() -> None:
    seen = launch(
        "__global__ void k(int* o) { __shared__ int s[8]; __shared__ int t[2][4]; int i = threadIdx.x; s[i + 1] = i; t[0][i % 5] = 1; __syncthreads(); o[i] = s[i]; }",
        1,
        8,
        Buffer("o", I32, 8),
    )
    assert seen.outside is not None
    assert [(o.buffer, o.element, o.thread.thread[0], o.dimension) for o in seen.outside] == [
        ("s", 8, 7, False),
        ("t", 4, 4, True),
    ]
    assert seen.uninitialised is not None
    assert [(u.name, u.element, u.thread.thread[0]) for u in seen.uninitialised] == [("s", 0, 0)]


def test_null_far_and_misaligned() -> None:
    seen = launch("__global__ void k(int* p) { p[threadIdx.x] = 1; }", 1, 4, None)
    assert (seen.end, seen.reason) == ("fault", "an access through a pointer to null")
    seen = launch("__global__ void k(int* p) { p[threadIdx.x - 2147483647] = 1; }", 1, 4, Buffer("p", I32, 4))
    assert seen.end == "fault"
    seen = launch(
        "__global__ void k(float* p, int o) { float4 v = *reinterpret_cast<float4*>(p + o); p[0] = v.w; }",
        1,
        1,
        Buffer("p", F32, 16, "index"),
        1,
    )
    assert values(seen, "p")[0] == 4


def test_reads_of_what_nobody_wrote() -> None:
    seen = launch(
        "__global__ void k(const int* x, int* o, int n) { __shared__ int s[32]; int i = threadIdx.x; int v; if (i < n) { s[i] = x[i]; v = 1; } __syncthreads(); o[i] = s[31 - i] + v; }",
        1,
        32,
        Buffer("x", I32, 32),
        Buffer("o", I32, 32),
        30,
    )
    assert seen.uninitialised is not None
    assert sorted((u.name, u.space, u.element, u.thread.thread[0]) for u in seen.uninitialised) == [
        ("s", "shared", 30, 1),
        ("s", "shared", 31, 0),
        ("v", "register", None, 30),
        ("v", "register", None, 31),
    ]


def test_arrivals_after_an_early_return() -> None:
    source = "__global__ void k(int* x, int n) { __shared__ int s[64]; int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return; s[threadIdx.x] = x[i]; __syncthreads(); x[i] = s[threadIdx.x]; }"
    seen = launch(source, 2, 64, Buffer("x", I32, 100), 100)
    assert seen.arrivals is not None
    (arrivals,) = seen.arrivals
    assert arrivals.counts.shape == (2, 64)
    assert arrivals.counts[0].tolist() == [1] * 64
    assert arrivals.counts[1].tolist() == [1] * 36 + [0] * 28
    # The hardware counts only threads that have not exited.
    assert seen.divergent == []


def test_divergent_barriers() -> None:
    seen = launch(
        "__global__ void k(int* x) {\n int i = threadIdx.x;\n if (i < 10)\n  __syncthreads();\n x[i] = 1; }",
        2,
        32,
        Buffer("x", I32, 32),
    )
    assert seen.divergent is not None
    assert [
        (d.block[0], d.arrivals, d.live, d.arrived.thread[0], d.missing.thread[0], d.site.line) for d in seen.divergent
    ] == [(0, 10, 32, 0, 10, 4), (1, 10, 32, 0, 10, 4)]
    seen = launch(
        "__global__ void k(int* x) { for (int j = 0; j < threadIdx.x; j++) __syncthreads(); x[threadIdx.x] = 1; }",
        1,
        4,
        Buffer("x", I32, 4),
    )
    assert seen.divergent
    assert seen.arrivals is not None
    assert seen.arrivals[0].counts.tolist() == [[0, 1, 2, 3]]


def test_counting_barriers() -> None:
    assert each(
        "r = __syncthreads_count(i < 10) * 100 + __syncthreads_or(i == 3) * 10 + __syncthreads_and(i < 63);", 64
    )[:2] == [1010, 1010]


def test_shuffles_from_absent_lanes() -> None:
    source = "__global__ void k(int* x, int n) { int i = threadIdx.x; if (i >= n) return; int v = i; v += __shfl_down_sync(0xffffffff, v, 16); x[i] = v; }"
    seen = launch(source, 1, 32, Buffer("x", I32, 32), 20)
    assert seen.absent is not None
    read = [(a.thread.thread[0], a.lane, a.gone) for a in seen.absent if a.read]
    assert read == [(i, i + 16, True) for i in range(4, 16)]
    # A ballot is defined over the lanes that have not exited.
    assert each("if (i < 20) r = __popc(__ballot_sync(__activemask(), i & 1));", 32)[:21] == [10] * 20 + [0]


def test_races() -> None:
    source = "__global__ void k(int* o) { __shared__ int s[64]; int i = threadIdx.x; s[i] = i; BAR o[i] = s[63 - i]; }"
    assert launch(source.replace("BAR", "__syncthreads();"), 1, 64, Buffer("o", I32, 64)).races == []
    racy = launch(source.replace("BAR", ""), 1, 64, Buffer("o", I32, 64)).races
    assert racy
    assert {(r.buffer, r.kind) for r in racy} == {("s", "write-read")}
    assert {(r.earlier and r.earlier.text, r.site.text) for r in racy} == {("s[i] = i", "s[63 - i]")}
    assert all(r.first.thread[0] == 63 - r.second.thread[0] and r.element == r.first.thread[0] for r in racy)
    # Within a warp a __syncwarp orders; two writes of one value are none; the second barrier of a loop matters.
    assert (
        launch(
            "__global__ void k(int* o) { __shared__ int s[32]; int i = threadIdx.x; s[i] = i; __syncwarp(); o[i] = s[31 - i]; }",
            1,
            32,
            Buffer("o", I32, 32),
        ).races
        == []
    )
    assert (
        launch(
            "__global__ void k(int* o) { __shared__ int f; f = 1; __syncthreads(); o[threadIdx.x] = f; }",
            1,
            32,
            Buffer("o", I32, 32),
        ).races
        == []
    )
    racy = launch(
        "__global__ void k(int* o) { __shared__ int f; f = threadIdx.x; __syncthreads(); o[threadIdx.x] = f; }",
        1,
        32,
        Buffer("o", I32, 32),
    ).races
    assert racy
    assert racy[0].kind == "write-write"
    loop = "__global__ void k(int* o) { __shared__ int s[32]; int i = threadIdx.x, t = 0; for (int j = 0; j < 3; j++) { s[i] = i + j; __syncthreads(); t += s[31 - i]; BAR } o[i] = t; }"
    assert launch(loop.replace("BAR", "__syncthreads();"), 1, 32, Buffer("o", I32, 32)).races == []
    racy = launch(loop.replace("BAR", ""), 1, 32, Buffer("o", I32, 32)).races
    assert racy
    assert {r.kind for r in racy} == {"read-write"}
    # Global memory within a block, where asked for.
    source = "__global__ void k(int* x) { int i = threadIdx.x; if (i > 0) x[i] = x[i - 1]; }"
    assert launch(source, 1, 8, Buffer("x", I32, 8), watch=frozenset({"races"})).races == []
    racy = launch(source, 1, 8, Buffer("x", I32, 8), watch=frozenset({"global-races"})).races
    assert racy
    assert (racy[0].first.thread[0], racy[0].second.thread[0], racy[0].element) == (2, 1, 1)


def test_writes_by_several_threads() -> None:
    seen = launch(
        "__global__ void k(int* x, int n) { for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x) x[i] = 1; }",
        2,
        4,
        Buffer("x", I32, 12, "nan"),
        10,
    )
    x = seen.buffers["x"]
    assert x.never() == [10, 11]
    assert x.several(2) == [(4, 0, 4), (5, 1, 5)]


def test_wraps() -> None:
    seen = launch(
        "__global__ void k(int* x, int big) {\n unsigned u = blockDim.x * 268435456u;\n int s = big + threadIdx.x; int t = big + 1;\n long long w = 3000000000ll; int n = w; x[threadIdx.x] = u + s + t + n; }",
        1,
        16,
        Buffer("x", I32, 16),
        (1 << 31) - 1,
    )
    assert seen.wraps is not None
    found = {(w.kind, w.operation, w.value, w.site.line) for w in seen.wraps if w.thread.thread[0] == 0}
    assert ("unsigned", "*", 0, 2) in found
    assert ("signed", "+", -(1 << 31), 3) in found
    assert ("convert", "int", 3000000000 - (1 << 32), 4) in found


def test_refused_launches() -> None:
    source = "__global__ void k(int* x) { x[0] = 1; }"
    for grid, block in ((0, 1), (1, 0), (1, 1025), ((1, 65536, 1), 1), (1 << 31, 1), (1, (1, 1, 65))):
        seen = launch(source, grid, block, Buffer("x", I32, 1))
        assert seen.end == "refused"
        assert seen.launch_error


def test_loops_that_do_not_end() -> None:
    seen = launch(
        "__global__ void k(int* x, int n, int s) { for (int i = threadIdx.x; i < n; i += s) x[i] = x[i] + 1; }",
        1,
        4,
        Buffer("x", I32, 4),
        4,
        0,
    )
    assert (seen.end, seen.reason) == ("no-end", "the loop at line 1 makes no progress")
    seen = launch(
        "__global__ void k(int* x) { for (unsigned i = 0; i < 4000000000u; i++) x[0] += i; }",
        1,
        1,
        Buffer("x", I32, 4),
        budget=1000,
    )
    assert (seen.end, seen.reason) == ("inconclusive", "more than 1000 steps")
    seen = launch(
        "__global__ void k(volatile int* x) {\n if (threadIdx.x == 0) x[1] = 1; else\n  while (x[0] == 0) { }\n }",
        1,
        2,
        Buffer("x", I32, 4, 0),
    )
    assert (seen.end, seen.reason, seen.line) == ("inconclusive", "spin", 3)
    seen = launch(
        "__global__ void k(int* x) { while (atomicCAS(x, 0, 1) != 0); x[1] += 1; atomicExch(x, 0); }",
        1,
        2,
        Buffer("x", I32, 4, 0),
    )
    assert (seen.end, seen.reason) == ("inconclusive", "spin")


def test_what_is_not_modelled_is_said_where_it_is_reached() -> None:
    source = '__global__ void k(int* x, int n) {\n if (n > 5)\n  asm volatile("exit;");\n x[0] = 1; }'
    assert launch(source, 1, 1, Buffer("x", I32, 1), 5).end == "done"
    seen = launch(source, 1, 1, Buffer("x", I32, 1), 6)
    assert (seen.end, seen.reason) == ("inconclusive", "unsupported inline assembly at line 3")


def test_printf_and_assert() -> None:
    seen = launch(
        '__global__ void k(int n) { printf("%d: %5.2f %s\\n", threadIdx.x, 1.5f * threadIdx.x, "a"); assert(threadIdx.x < n); }',
        1,
        2,
        1,
    )
    assert seen.printed == ["0:  0.00 a\n", "1:  1.50 a\n"]
    assert seen.end == "fault"
    assert [t.thread[0] for t, _ in seen.failed_assertions] == [1]


# Groups.


def test_cooperative_groups() -> None:
    source = """#include <cooperative_groups.h>
    namespace cg = cooperative_groups;
    __global__ void k(int* o, int* sums) { cg::thread_block b = cg::this_thread_block(); auto t = cg::tiled_partition<8>(b); auto g = cg::this_grid();
    int v = t.thread_rank(); for (int d = t.size() / 2; d > 0; d /= 2) v += t.shfl_down(v, d); b.sync(); if (t.thread_rank() == 0) o[g.thread_rank() / 8] = v * 100 + t.meta_group_rank();
    g.sync(); if (g.thread_rank() == 0) { int s = 0; for (int i = 0; i < g.size() / 8; i++) s += o[i]; sums[0] = s; } }"""
    seen = launch(source, 2, 32, Buffer("o", I32, 8, "nan"), Buffer("sums", I32, 1), cooperative=True)
    assert values(seen, "o").tolist() == [2800 + i % 4 for i in range(8)]
    assert values(seen, "sums")[0] == 8 * 2800 + 12


# Sparse runs.


def test_one_thread_over_four_million_elements() -> None:
    n = 4194304
    seen = launch(
        "__global__ void k(float* x, int n) { for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) x[i] = 2 * x[i] + 1; }",
        1,
        1,
        Buffer("x", F32, n, "index"),
        n,
    )
    x = values(seen, "x")
    assert (x == np.arange(n, dtype=np.float32) * 2 + 1).all()
    assert seen.steps < 3000
    assert seen.buffers["x"].never() == []


@_quick
@given(st.integers(0, 3000), st.sampled_from([1, 3, 8]), st.integers(0, 5), st.integers(1, 3))
def test_iterations_as_lanes_are_the_loop(n: int, t: int, start: int, step: int) -> None:
    """A body that must run as it stands, and one whose iterations may be lanes: the same values."""
    bodies = [
        "s += x[i] * 1.5f;",
        "if (x[i] > 0) s -= x[i];",
        "s = s + 0.1f * x[i];",
        "s = 0.25f + s;",
        "y[i] = x[i] + i;",
        "y[i] *= 2;",
        "int j = i * 2; if (j < n) y[j] = x[i]; ",
        "atomicAdd(&y[i % 7], x[i]);",
    ]
    loop = "".join(f"for (int i = {start} + threadIdx.x; i < n; i += {step} * blockDim.x) {{ {b} }}\n" for b in bodies)
    source = f"__global__ void k(const float* x, float* y, float* o, int n, int* never) {{ float s = 0; {loop} o[threadIdx.x] = s; }}"
    plain = source.replace(") {", ") { if (never) never[0] = 1;")
    for b in bodies:
        plain = plain.replace(f"{{ {b} }}", f"{{ if (never) break; {b} }}")
    results = []
    for text in (source, plain):
        seen = launch(
            text.replace("if (never) never[0] = 1;", ""),
            1,
            t,
            Buffer("x", F32, n + 1),
            Buffer("y", F32, n + 1),
            Buffer("o", F32, t),
            n,
            None,
        )
        results.append((values(seen, "y"), values(seen, "o"), seen.steps))
    assert (results[0][0] == results[1][0]).all()
    assert (results[0][1] == results[1][1]).all()


def test_wraps_at_two_to_the_31_and_32() -> None:
    n = 2**32 + 1000
    seen = launch(
        "__global__ void k(char* x, size_t n) { size_t i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] = 1; }",
        n // 256 + 1,
        256,
        Buffer("x", I8, n, "nan"),
        n,
        blocks=[0, 2**24 - 1, 2**24],
    )
    assert seen.end == "done"
    assert seen.wraps is not None
    assert {(w.kind, w.value, w.thread.block[0]) for w in seen.wraps} == {("unsigned", 0, 2**24)}
    assert seen.buffers["x"].several(1) == [(0, 0, 2**32)]
    assert seen.buffers["x"].writers([2**32 - 1, 2**32])[0].tolist() == [2**32 - 1, -1]
    # The index of a 32-bit loop turns negative past the maximum, and passes the test.
    n = 2**31 - 1
    seen = launch(
        "__global__ void k(char* x, int n) {\n for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x)\n  x[i] = 1; }",
        160,
        256,
        Buffer("x", I8, n, "nan"),
        n,
        blocks=[0],
        loops="ends",
    )
    assert seen.end == "fault"
    assert seen.sampled
    assert seen.outside
    assert seen.outside[0].element < 0
    # An uncast step of 2^32 threads is 0.
    seen = launch(
        "__global__ void k(char* x, size_t n) { for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) x[i] = 1; }",
        2**24,
        256,
        Buffer("x", I8, 2**32, "nan"),
        2**32,
        blocks=[0],
    )
    assert (seen.end, seen.reason) == ("no-end", "the loop at line 1 makes no progress")


def _passes(kind: str, start: int, bound: int, step: int, op: str) -> tuple[int, int] | None:
    """How often `while (i op bound) i += step` passes and where it leaves i, pass by pass; None where it starts over."""
    lo = -(1 << 31) if kind == "int" else 0
    i, count, seen = start, 0, set()
    while i < bound if op == "<" else i > bound:
        if i in seen:
            return None
        seen.add(i)
        i, count = (i + step - lo) % (1 << 32) + lo, count + 1
    return count, i


@settings(max_examples=60)
@given(
    st.sampled_from(["int", "unsigned"]), st.sampled_from(["<", ">"]), st.integers(0, 40), st.integers(1, 9),
    st.integers(20, 27), st.booleans(), st.data(),
)  # fmt: skip
def test_counters_that_wrap(kind: str, op: str, off: int, odd: int, power: int, ends: bool, data: Any) -> None:
    """What a sampled run says of the end of a loop is what its passes say."""
    lo, hi = (-(1 << 31), (1 << 31) - 1) if kind == "int" else (0, (1 << 32) - 1)
    step = odd << power
    start = data.draw(st.integers(lo, hi))
    bound = hi - off * data.draw(st.sampled_from([1, step // 8])) if op == "<" else lo + off
    wanted = _passes(kind, start, bound, step if op == "<" else -step, op)
    seen = launch(
        f"__global__ void f({kind}* o, {kind}* x, {kind} i, {kind} n, {kind} s) {{"
        f" while (i {op} n) {{ x[0] = 1; i {'+' if op == '<' else '-'}= s; }} o[0] = i; }}",
        1, 1, Buffer("o", I32 if kind == "int" else U32, 1, 0), Buffer("x", I32 if kind == "int" else U32, 1, 0),
        start, bound, step, loops="ends" if ends else "all", budget=10_000_000,
    )  # fmt: skip
    assert seen.steps < 3000 or not ends
    if wanted is None:
        assert seen.end == "no-end", seen
        assert seen.steps < 3000
    else:
        assert int(values(seen, "o")[0]) == wanted[1]


@pytest.fixture(autouse=True)
def _faults_are_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault of the simulator itself fails the test instead of ending the run as inconclusive."""
    monkeypatch.setenv("CUDALINT_DEBUG", "1")


def test_two_pointers_to_one_buffer_are_no_independent_iterations() -> None:
    shared = Buffer("x", I32, 100, 0)
    seen = launch(
        "__global__ void k(const int* a, int* b, int n) { for (int i = 0; i + 1 < n; i++) b[i + 1] = a[i] + 1; }",
        1,
        1,
        shared,
        shared,
        100,
    )
    assert values(seen, "x").tolist() == list(range(100))
    seen = launch(
        "__global__ void k(const int* a, int* b, int n) { for (int i = 0; i < n; i++) b[i + 1] = a[i] + 1; }",
        1,
        1,
        shared,
        shared,
        99,
    )
    assert values(seen, "x").tolist() == list(range(100))


def test_inner_braces_may_be_left_out() -> None:
    source = """
__global__ void f(float *o, float v) {
    float a[2][3] = {v}, b[2][2] = {v, v + 1.0f, v + 2.0f}, c[2][2] = {{v}, {v + 1.0f}};
    o[threadIdx.x] = a[0][0] * 1000 + a[1][2] + b[1][0] * 10 + b[1][1] + c[1][0] * 100 + c[0][1];
}
"""
    assert values(launch(source, 1, 2, Buffer("o", F32, 2), 2.0), "o").tolist() == [2340, 2340]


def test_textures_are_inputs() -> None:
    """A fetch gives the same at one place whoever asks, and something else elsewhere."""
    source = """
texture<float, 2, cudaReadModeElementType> old;
__global__ void f(cudaTextureObject_t t, float *a, float *b, int *c, float4 *d) {
    int i = threadIdx.x;
    a[i] = tex2D<float>(t, i / 2 + 0.5f, 1.5f);
    b[i] = tex2D(old, i, 2);
    c[i] = tex1Dfetch<unsigned char>(t, i);
    d[i] = tex1Dfetch<float4>(t, 0);
}
"""
    buffers = [Buffer("a", F32, 64), Buffer("b", F32, 64), Buffer("c", I32, 64), Buffer("d", VECTORS["float4"], 64)]
    seen = launch(source, 1, 64, 3, *buffers)
    a, b, c, d = (values(seen, x) for x in "abcd")
    assert (a[::2] == a[1::2]).all()
    assert len(np.unique(a)) == 32
    assert len(np.unique(b)) == 64
    assert len(np.unique(c)) > 32
    assert len(np.unique(d)) == 1
    assert d["x"][0] != d["y"][0]
    seen = launch(source.replace("tex1Dfetch<float4>(t, 0)", "tex2DLod<float4>(t, 0, 0, 0)"), 1, 64, 3, *buffers)
    assert (seen.end, seen.line) == ("inconclusive", 8)


def test_launches_that_make_no_sense_are_errors() -> None:
    source = "__global__ void k(int* x, int n) { x[0] = n; }"
    with pytest.raises(ValueError, match="takes 2 arguments"):
        launch(source, 1, 1, Buffer("x", I32, 1))
    with pytest.raises(ValueError, match="no such block"):
        launch(source, 1, 1, Buffer("x", I32, 1), 1, blocks=[1])


def test_static_methods_and_local_lambdas_in_device_functions() -> None:
    extra = "struct S { int v; __device__ static int one() { return 1; } __device__ int get() const { return v + one(); } }; template <class F> __device__ int apply(F f, int x) { return f(x) + f(x + 1); }"
    assert each("S s{i}; r = s.get() + S::one();", extra=extra) == [i + 2 for i in range(64)]
    assert each("int a = 3; r = apply([=](int x) { return x * a; }, i);", extra=extra) == [
        3 * (2 * i + 1) for i in range(64)
    ]


def test_cub_is_a_barrier_and_a_sum() -> None:
    source = """#include <cub/cub.cuh>
    __global__ void k(const int* x, int* total, int* scan, int n) { using R = cub::BlockReduce<int, 64>; using S = cub::BlockScan<int, 64>;
    __shared__ typename R::TempStorage a; __shared__ typename S::TempStorage b; int i = blockIdx.x * 64 + threadIdx.x; if (i >= n) return;
    int sum = R(a).Sum(x[i]); int e; S(b).ExclusiveSum(x[i], e); scan[i] = e; if (threadIdx.x == 0) total[blockIdx.x] = sum; }"""
    seen = launch(source, 2, 64, Buffer("x", I32, 100), Buffer("total", I32, 2), Buffer("scan", I32, 100), 100)
    x = values(seen, "x")
    assert values(seen, "total").tolist() == [x[:64].sum(), x[64:].sum()]
    assert values(seen, "scan").tolist() == [*(x[:64].cumsum() - x[:64]), *(x[64:].cumsum() - x[64:])]
    assert seen.arrivals is not None
    assert [a.counts.sum(axis=1).tolist() for a in seen.arrivals] == [[64, 36], [64, 36]]


def test_cub_with_an_operation() -> None:
    source = """
__global__ void k(const int *x, int *most, int *high, int *low) {
    using R = cub::BlockReduce<int, 64>;
    using S = cub::BlockScan<int, 64>;
    __shared__ typename R::TempStorage a;
    __shared__ typename S::TempStorage b;
    int i = blockIdx.x * 64 + threadIdx.x, up, down;
    int all = R(a).Reduce(x[i], cub::Max());
    S(b).InclusiveScan(x[i], up, cub::Max());
    __syncthreads();
    S(b).ExclusiveScan(x[i], down, 7, cub::Min());
    high[i] = up;
    low[i] = down;
    if (threadIdx.x == 0) most[blockIdx.x] = all;
}
"""
    buffers = [Buffer(name, I32, extent) for name, extent in (("x", 128), ("most", 2), ("high", 128), ("low", 128))]
    seen = launch(source, 2, 64, *buffers)
    x = values(seen, "x").reshape(2, 64)
    assert values(seen, "most").tolist() == x.max(axis=1).tolist()
    assert (values(seen, "high") == np.maximum.accumulate(x, axis=1).reshape(-1)).all()
    before = np.concatenate([np.full((2, 1), 7, x.dtype), x[:, :-1]], axis=1)
    assert (values(seen, "low") == np.minimum.accumulate(before, axis=1).reshape(-1)).all()
    assert launch(source.replace("cub::Min()", "Mine()"), 2, 64, *buffers).end == "inconclusive"


def test_captures() -> None:
    """A copy is made where the lambda stands; what a mutable lambda makes of it, it finds again."""
    source = """
    __global__ void k(int *o) {
        int z = 5, y = 1;
        if (threadIdx.x & 1) y = 2;
        auto all = [=] { return z; };
        auto one = [z, &y]() mutable { return ++z + 10 * y; };
        auto made = [v = z + 1] { return v; };
        auto seen = [&] { return z; };
        z = 900;
        int first = one();
        y = 3;
        int *at = o + 6 * threadIdx.x;
        at[0] = all(), at[1] = first, at[2] = one(), at[3] = made(), at[4] = seen(), at[5] = z;
    }"""
    got = values(launch(source, 1, 2, Buffer("o", I32, 12, "nan")), "o").reshape(2, 6)
    assert got.tolist() == [[5, 16, 37, 6, 900, 900], [5, 26, 37, 6, 900, 900]]


def test_member_defaults() -> None:
    source = """
    struct S { int a = 4, c; int b{5}; };
    struct T { S s; int d = 6; __device__ T() : e(7) {} int e = 1; };
    struct A { int v[2] = {8, 9}; };
    __global__ void k(int *o) {
        S s; S braced{}; S given{1}; T t; A a; int one = 1;
        o[0] = s.a, o[1] = s.b, o[2] = braced.a, o[3] = braced.c, o[4] = given.a, o[5] = given.b;
        o[6] = t.s.a, o[7] = t.d, o[8] = t.e, o[9] = a.v[one];
    }"""
    got = values(launch(source, 1, 1, Buffer("o", I32, 10, "nan")), "o")
    assert got.tolist() == [4, 5, 4, 0, 1, 5, 4, 6, 7, 9]


def test_bit_field() -> None:
    source = """
    struct S { unsigned a : 3; int b; };
    __global__ void k(int *o) { S s; s.b = 1; o[0] = s.b; if (o[1] > 0) { s.a = 9; o[1] = s.a; } }"""
    assert values(launch(source, 1, 1, Buffer("o", I32, 2, 0)), "o").tolist() == [1, 0]
    found = launch(source, 1, 1, Buffer("o", I32, 2, 1))
    assert (found.end, "bit-field" in (found.reason or "")) == ("inconclusive", True)


def test_who_reads_an_element() -> None:
    """The lowest and the highest thread of the grid, whatever the width of the access."""
    source = (
        "__global__ void k(const float* x, float* y) { int i = blockIdx.x * blockDim.x + threadIdx.x;"
        " if (i) y[i] = x[i - 1] + x[i]; else { float2 v = ((const float2*)x)[2]; y[i] = v.x + v.y; } }"
    )
    how = {"watch": frozenset({"reads"})}
    seen = launch(source, 2, 4, Buffer("x", F32, 10, "index"), Buffer("y", F32, 8, "nan"), **how)
    low, high = seen.buffers["x"].readers()
    assert low.tolist() == [1, 1, 2, 3, 0, 0, 6, 7, -1, -1]
    assert high.tolist() == [1, 2, 3, 4, 5, 6, 7, 7, -1, -1]
    assert [x.tolist() for x in seen.buffers["x"].readers([4, 9])] == [[0, -1], [5, -1]]
    assert (seen.buffers["y"].readers()[1] == -1).all()


def test_memory_is_bounded() -> None:
    """A run that touches more pages than it may have ends without a verdict."""
    source = "__global__ void k(float *o, long long s) { o[(blockIdx.x * 256 + threadIdx.x) * s] = 1.0f; }"
    seen = launch(source, 8, 256, Buffer("o", F32, 1 << 34), 1 << 20)
    assert (seen.end, seen.reason) == ("inconclusive", "more than 512 MB of memory in use")
    assert sum(len(p.data) for p in seen.buffers["o"]._object.pages.values()) < 1 << 28


@pytest.mark.parametrize(
    ("use", "operator"),
    [
        ("++t;", "++"),
        ("t--;", "--"),
        ("t += 2;", "+="),
        ("S u = t + t;", "+"),
        ("o[0] = -t;", "-"),
        ("if (t) return;", "bool"),
    ],
)
def test_overloaded_operators(use: str, operator: str) -> None:
    """Operators of a class that is not a vector's are said not to be modelled."""
    source = (
        "struct S { int v; __device__ S& operator++() { v += 2; return *this; } };\n"
        f"__global__ void k(int *o) {{ S t{{0}}; {use} o[0] = t.v; }}"
    )
    seen = launch(source, 1, 1, Buffer("o", I32, 1, 0))
    assert seen.end == "inconclusive"
    assert (seen.reason or "").startswith(f"unsupported overloaded operator '{operator}' of 'S'")
