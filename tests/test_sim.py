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

_VARIABLES = {"a": "int", "b": "unsigned", "c": "long long", "d": "unsigned long long", "e": "short", "f": "unsigned char", "g": "bool", "h": "signed char"}
_BITS = {"a": (32, True), "b": (32, False), "c": (64, True), "d": (64, False), "e": (16, True), "f": (8, False), "g": (1, False), "h": (8, True)}
_IR = {"a": I32, "b": U32, "c": I64, "d": U64, "e": I16, "f": U8, "g": BOOL, "h": I8}
_leaf = st.one_of(
    st.sampled_from(sorted(_VARIABLES)),
    st.sampled_from(["0", "1", "(-1)", "2u", "7", "255", "65536", "2147483647", "4294967295u", "1ll", "(-3ll)", "18446744073709551615ull", "0x80000000", "'a'"]),
)


def _wider(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    pair = st.tuples(inner, inner)
    return st.one_of(
        st.tuples(pair, st.sampled_from(["+", "-", "*", "&", "|", "^", "<", "<=", ">", ">=", "==", "!=", "&&", "||"])).map(lambda t: f"({t[0][0]} {t[1]} {t[0][1]})"),
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
        text.append("f(" + ", ".join(f"({t}){row[n]}ull" if row[n] >= 0 else f"({t})(-{-row[n]}ull)" for n, t in _VARIABLES.items()) + ");")
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
        args = [Buffer(n, _IR[n], len(rows), np.array([r[n] for r in rows], dtype=object).astype(_dtype(n))) for n in _VARIABLES]
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
def test_integers_as_in_c(tmp_path_factory: pytest.TempPathFactory, expressions: list[str], rows: list[dict[str, int]]) -> None:
    want = in_c(tmp_path_factory.mktemp("c"), expressions, rows)
    for lanes in (True, False):
        got = in_simulator(expressions, rows, lanes)
        for r, row in enumerate(rows):
            for e, text in enumerate(expressions):
                assert int(got[r][e]) == want[r][e], (text, row, "lanes" if lanes else "uniform")
