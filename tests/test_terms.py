"""Symbolic values: the machine's reading, the mathematical one, and the intervals between them."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from cudalint.facts import terms as t
from cudalint.ir.types import BOOL, F32, I32, I64, U32, U64, Int

TYPES = (I32, U32, I64, U64)
ATOMS = tuple(t.atom(t.Atom("param", f"p{i}", type_.lo, type_.hi), type_) for i, type_ in enumerate(TYPES * 2))
OPERATORS = ("add", "sub", "mul", "div", "mod", "min", "max", "and", "or", "xor", "shl", "shr")


@st.composite
def terms(draw: st.DrawFn, depth: int = 4) -> t.Term:
    if depth == 0 or draw(st.booleans()):
        if draw(st.booleans()):
            return draw(st.sampled_from(ATOMS))
        type_ = draw(st.sampled_from(TYPES))
        return t.const(type_.wrap(draw(st.integers(-(2**33), 2**33))), type_)
    type_ = draw(st.sampled_from(TYPES))
    a, b = (t.convert(draw(terms(depth=depth - 1)), type_) for _ in range(2))
    if draw(st.integers(0, 5)) == 0:
        cond = t.compare(draw(st.sampled_from(("<", "<=", "==", "!=", ">", ">="))), a, b)
        return t.select(cond, a, b, type_)
    return t.binary(draw(st.sampled_from(OPERATORS)), a, b, type_)


def values() -> st.SearchStrategy[dict[t.Term, int]]:
    edges = (0, 1, 2, 31, 255, 2**31 - 1, 2**31, 2**32 - 1, -1, -(2**31))
    number = st.one_of(st.sampled_from(edges), st.integers(-(2**63), 2**63 - 1))
    return st.tuples(*[number.map(a.type.wrap) for a in ATOMS]).map(lambda v: dict(zip(ATOMS, v)))  # type: ignore[union-attr]  # Ints


def machine(term: t.Term, env: dict[t.Term, int]) -> int | None:
    """The same arithmetic written out once more, plainly: None where C++ leaves it undefined."""
    if term.op == "const":
        return int(term.data)
    if term.op == "atom":
        return env[term]
    if term.op == "select":
        cond = machine(term.args[0], env)
        return None if cond is None else machine(term.args[1 if cond else 2], env)
    args = [machine(a, env) for a in term.args]
    if None in args:
        return None
    a, b = args[0] or 0, (args[1] if len(args) > 1 else 0) or 0
    type_ = term.type
    assert isinstance(type_, Int)
    if term.op in ("div", "mod"):
        if b == 0:
            return None
        quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        return wrapped(quotient if term.op == "div" else a - quotient * b, type_)
    if term.op in ("shl", "shr"):
        if not 0 <= b < type_.bits:
            return None
        return wrapped(a * 2**b if term.op == "shl" else a // 2**b, type_)
    plain = {
        "add": a + b, "sub": a - b, "mul": a * b, "min": min(a, b), "max": max(a, b), "and": a & b, "or": a | b,
        "xor": a ^ b, "lt": a < b, "le": a <= b, "eq": a == b, "ne": a != b, "cast": a,
    }  # fmt: skip
    return wrapped(int(plain[term.op]), type_)


def wrapped(value: int, type_: Int) -> int:
    if type_ is BOOL:
        return int(value != 0)
    value %= 2**type_.bits
    return value - 2**type_.bits if type_.signed and value >= 2 ** (type_.bits - 1) else value


@settings(max_examples=400)
@given(terms(), values())
def test_evaluation_is_that_of_the_machine(term: t.Term, env: dict[t.Term, int]) -> None:
    expected = machine(term, env)
    try:
        assert t.evaluate(term, env) == expected
    except t.Undefined:
        assert expected is None


def result(term: t.Term, env: dict[t.Term, int]) -> int | None:
    try:
        return t.evaluate(term, env)  # type: ignore[no-any-return]  # an int
    except t.Undefined:
        return None


@settings(max_examples=200)
@given(terms(), values(), st.sets(st.sampled_from(ATOMS), max_size=2))
def test_the_hundredth_evaluation_is_as_the_first(
    term: t.Term, env: dict[t.Term, int], missing: set[t.Term]
) -> None:  # also where an atom has no value, which a part that is not chosen may need
    given = {a: v for a, v in env.items() if a not in missing}
    assert {result(term, given) for _ in range(100)} == {result(term, given)}
    assert {result(term, env) for _ in range(100)} == {machine(term, env)}


@settings(max_examples=400)
@given(terms(), values())
def test_intervals_hold_every_value(term: t.Term, env: dict[t.Term, int]) -> None:
    value = machine(term, env)
    if value is None:
        return
    low, high = t.bounds(term, {a: (v, v) for a, v in env.items()})
    assert low <= value <= high
    low, high = t.bounds(term, {a: (v - 3, v + 3) for a, v in env.items()})
    assert low <= value <= high


@settings(max_examples=300)
@given(terms(), values())
def test_substitution_commutes_with_evaluation(term: t.Term, env: dict[t.Term, int]) -> None:
    constants = {a: t.const(v, a.type) for a, v in env.items()}
    folded = t.substitute(term, constants)
    try:
        assert t.evaluate(folded, {}) == t.evaluate(term, env)
    except t.Undefined:
        assert machine(term, env) is None


@settings(max_examples=300)
@given(terms(depth=3), terms(depth=3), values())
def test_equal_polynomials_have_equal_mathematical_values(a: t.Term, b: t.Term, env: dict[t.Term, int]) -> None:
    both = t.binary("add", t.convert(a, I64), t.convert(b, I64), I64)
    swapped = t.binary("add", t.convert(b, I64), t.convert(a, I64), I64)
    assert t.poly(both) == t.poly(swapped)
    assert t.poly(t.binary("sub", both, t.convert(b, I64), I64)) == t.poly(t.convert(a, I64))
    del env


N, W, X, Y = (t.atom(t.Atom("param", name, I32.lo, I32.hi), I32) for name in ("n", "w", "x", "y"))


def test_spellings_of_one_value_are_one_polynomial() -> None:
    rows = t.binary("add", t.binary("mul", Y, W, I32), X, I32)
    columns = t.binary("add", X, t.binary("mul", W, Y, I32), I32)
    assert t.poly(rows) == t.poly(columns)
    eight = t.binary("shl", N, t.const(3), I32)
    assert t.poly(eight) == t.poly(t.binary("mul", t.const(8), N, I32))
    blocks = [
        t.binary("div", t.binary("add", a, b, I32), t.const(256), I32)
        for a, b in ((N, t.const(255)), (t.const(255), N))
    ]
    assert t.poly(blocks[0]) == t.poly(blocks[1])


def test_a_ternary_minimum_is_a_minimum() -> None:
    chosen = t.select(t.compare("<", N, W), N, W, I32)
    assert chosen is t.binary("min", N, W, I32)


def test_negation_keeps_floats_apart() -> None:
    a, b = (t.atom(t.Atom("param", name, -t.INF, t.INF), F32) for name in "ab")
    # Not (a < b) is not b <= a: a NaN makes both false.
    assert t.evaluate(t.lnot(t.compare("<", a, b)), {a: float("nan"), b: 1.0}) == 1


def test_terms_print_with_the_parentheses_they_need() -> None:
    total = t.binary("mul", t.binary("add", N, t.const(1), I32), W, I32)
    assert t.show(total) == "(n + 1) * w"
    assert t.show(t.binary("add", t.binary("mul", N, W, I32), X, I32)) == "n * w + x"
    assert t.show(t.binary("sub", N, t.binary("sub", W, X, I32), I32)) == "n - (w - x)"
    assert t.show_poly(t.poly(t.binary("sub", total, t.const(3), I32))) == "n * w + w - 3"
