"""Integer constants of the language: what an expression of constants is at compile time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudalint.ir.nodes import Binary, Call, Cast, Cond, Const, Construct, Logical, Ref, SizeOf, Unary
from cudalint.ir.types import Float, Int

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cudalint.ir.nodes import Expr, Var

_DEPTH = 100
_NOTHING: Mapping[Var, int] = {}


def fold(expr: Expr | None, depth: int = 0, given: Mapping[Var, int] = _NOTHING) -> int | None:
    """The value of an integer constant expression as its type holds it, or None; some variables in it are ``given``."""
    if expr is None or depth > _DEPTH:
        return None
    kind = type(expr)
    if kind is Const:
        value = expr.value  # type: ignore[attr-defined]  # a Const
        return int(value) if isinstance(value, int) else None
    if kind is Ref:
        var: Var = expr.var  # type: ignore[attr-defined]  # a Ref
        return given[var] if var in given else fold_var(var, depth + 1)
    value = _fold(expr, depth + 1, given)
    if value is None:
        return None
    return expr.type.wrap(value) if isinstance(expr.type, Int) else None


def fold_var(var: Var, depth: int = 0) -> int | None:
    """The value of a constant variable with a constant initialiser, or None."""
    if not var.const or var.init is None or not isinstance(var.type, Int) or var.ref:
        return None
    init: Expr | None = var.init
    if type(init) is Construct:
        init = init.args[0] if len(init.args) == 1 else None
    value = fold(init, depth)
    return None if value is None else var.type.wrap(value)


def _fold(expr: Expr, depth: int, given: Mapping[Var, int]) -> int | None:
    if isinstance(expr, Binary):
        a, b = fold(expr.left, depth, given), fold(expr.right, depth, given)
        if a is None or b is None or not isinstance(expr.optype, Int):
            return None
        return binary(expr.op, expr.optype.wrap(a), b if expr.op in ("<<", ">>") else expr.optype.wrap(b))
    if isinstance(expr, Cast):
        if isinstance(expr.operand, Const) and isinstance(expr.operand.value, float) and isinstance(expr.type, Int):
            value = expr.operand.value
            return int(value) if abs(value) < 2.0**63 else None
        return fold(expr.operand, depth, given)
    if isinstance(expr, SizeOf):
        return expr.of.size
    if isinstance(expr, Unary):
        a = fold(expr.operand, depth, given)
        if a is None:
            return None
        return {"-": -a, "+": a, "~": ~a, "!": int(not a)}[expr.op]
    if isinstance(expr, Logical):
        a = fold(expr.left, depth, given)
        if a is None:
            return None
        if bool(a) == (expr.op == "||"):
            return int(bool(a))
        b = fold(expr.right, depth, given)
        return None if b is None else int(bool(b))
    if isinstance(expr, Cond):
        a = fold(expr.cond, depth, given)
        if a is None or isinstance(expr.type, Float):
            return None
        return fold(expr.then if a else expr.other, depth, given)
    if isinstance(expr, Call) and len(expr.args) == 2 and expr.target is None and not expr.receiver:
        name = expr.name.rpartition("::")[2]
        if name in ("min", "max"):
            a, b = fold(expr.args[0], depth, given), fold(expr.args[1], depth, given)
            if a is None or b is None or not isinstance(expr.type, Int):
                return None
            a, b = expr.type.wrap(a), expr.type.wrap(b)
            return min(a, b) if name == "min" else max(a, b)
    return None


def binary(op: str, a: int, b: int) -> int | None:
    """``a op b`` over the integers, with C's division; None where it is undefined."""
    if op in ("/", "%"):
        if b == 0:
            return None
        quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        return quotient if op == "/" else a - b * quotient
    if op in ("<<", ">>"):
        if not 0 <= b < 128:
            return None
        return a << b if op == "<<" else a >> b
    match op:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
        case "&":
            return a & b
        case "|":
            return a | b
        case "^":
            return a ^ b
        case "<":
            return int(a < b)
        case "<=":
            return int(a <= b)
        case ">":
            return int(a > b)
        case ">=":
            return int(a >= b)
        case "==":
            return int(a == b)
        case "!=":
            return int(a != b)
    return None
