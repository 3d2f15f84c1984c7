"""Symbolic values: hash-consed terms with exact C++ semantics and a polynomial reading.

A :class:`Term` is what an expression computes, with variables replaced by what they hold, down to
*atoms*: launch built-ins, parameters, loads, loop counters, results of unseen calls. Terms are
interned, so equal values are one object. There are two readings of a term:

* :func:`evaluate`: the machine's, exact in width and sign, for given values of the atoms;
* :func:`poly`: an integer polynomial over atoms in the mathematical integers (nothing wraps), in
  which index shapes and grid arithmetic are recognised whatever their spelling.
"""

from __future__ import annotations

import math
import operator
import struct
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from cudalint.ir.types import BOOL, F32, I32, Float, Int, Type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

#: Stands for "no bound" in intervals; far beyond every machine type, closed under the arithmetic here.
INF = 1 << 300

# Uniformity, ordered: a value is as dependent as its most dependent part.
UNIFORM, WARP_UNIFORM, UNKNOWN, THREAD = 0, 1, 2, 3


class Atom:
    """What an atom stands for.

    ``kind``: tid, bid, bdim, gdim (with ``axis``, as has a field of a dim3 that is not made here), param, argc (how
    many arguments a program got), var, load, call, loop, exit, phi, size, unknown. ``lo``/``hi`` bound its value
    whatever the launch. ``data`` depends
    on the kind: the :class:`~cudalint.ir.nodes.Var`, the loop, the callee. ``inputs`` are the terms its uniformity
    follows (for ``phi``, ``exit`` and ``loop`` these are completed after the atom is made). ``spelled`` is what the
    value was called where it was met first, before a variable gave it a shorter ``name``; ``held`` is what that
    variable can hold of it.
    """

    __slots__ = ("axis", "data", "held", "hi", "inputs", "kind", "level", "lo", "name", "spelled")

    def __init__(
        self, kind: str, name: str, lo: int, hi: int, *, axis: str = "", data: Any = None,
        inputs: tuple[Term, ...] = (), level: int = UNIFORM,
    ) -> None:  # fmt: skip
        self.kind, self.name, self.lo, self.hi, self.axis, self.data = kind, name, lo, hi, axis, data
        self.inputs, self.level, self.spelled = inputs, level, name
        self.held = -INF, INF

    def called(self, value: int) -> str:
        """The name of this value: a variable's only where that holds all of it."""
        return self.name if self.held[0] <= value <= self.held[1] else self.spelled


class Term:
    """An interned value. ``type`` is Int, Float, or None where the type is not known (or not a number).

    ``data`` is the value of a ``const``, the :class:`Atom` of an ``atom``, the name of a ``call``.
    """

    __slots__ = ("args", "data", "depth", "ids", "key", "leaves", "op", "poly", "programs", "type")
    op: str
    args: tuple[Term, ...]
    type: Type | None
    data: Any
    key: int
    depth: int
    poly: Poly | None
    programs: tuple[_Program | None, _Program | None]
    leaves: frozenset[Term] | None
    ids: frozenset[Term] | None

    def __repr__(self) -> str:
        return f"<{show(self)}>"


#: A polynomial: monomials (atoms sorted by key, with repetition; () is the constant) to coefficients.
Poly = dict[tuple[Term, ...], int]

_table: dict[tuple[Any, ...], Term] = {}
_nonlinear: dict[tuple[Any, ...], Term] = {}
_zeroed: dict[tuple[Term, frozenset[Term]], Term] = {}
_negated: dict[Term, Term] = {}
"""Conjunctions and disjunctions: one may be part of many."""
_MAX_MONOMIALS = 48
_MAX_DEGREE = 12
_DEEPEST = 300
"""Operators in one another: the readings of a term below call themselves up to three times a level."""


def reset() -> None:
    """Forgets all interned terms; called between files so that memory stays bounded."""
    _table.clear()
    _table.update(_PERMANENT)
    _nonlinear.clear()
    _negated.clear()
    _zeroed.clear()


_count = 0


_NO_PROGRAMS = (None, None)


def _new(op: str, args: tuple[Term, ...], type_: Type | None, data: Any) -> Term:
    global _count
    term = object.__new__(Term)
    _count += 1
    term.op, term.args, term.type, term.data, term.key, term.poly = op, args, type_, data, _count, None
    term.programs = _NO_PROGRAMS
    term.leaves = term.ids = None
    term.depth = 0
    return term


def make(op: str, type_: Type | None, *args: Term, data: Any = None) -> Term:
    """The interned term ``op(args)`` as written; use the operators below, which fold and convert.

    Where that would be deeper than all that reads terms can follow it is an unknown.
    """
    key = (op, type_, data, *args)
    found = _table.get(key)
    if found is None:
        depth = 1 + max([x.depth for x in args], default=0)
        if depth <= _DEEPEST:
            found = _new(op, args, type_, data)
            found.depth = depth
        else:
            found = atom(Atom("unknown", op, *type_range(type_), level=UNKNOWN), type_)
        _table[key] = found
    return found


def const(value: int | float, type_: Type | None = I32) -> Term:
    if isinstance(value, bool):
        value = int(value)
    key = ("const", type_, value, type(value))
    found = _table.get(key)
    if found is None:
        found = _table[key] = _new("const", (), type_, value)
    return found


def atom(info: Atom, type_: Type | None) -> Term:
    """A new atom; never interned: two calls give two unknowns."""
    return _new("atom", (), type_, info)


ZERO, ONE, TRUE, FALSE = const(0), const(1), const(1, BOOL), const(0, BOOL)
_PERMANENT = dict(_table)


def type_range(type_: Type | None) -> tuple[int, int]:
    return (type_.lo, type_.hi) if isinstance(type_, Int) else (-INF, INF)


# --- construction ------------------------------------------------------------------------------


def convert(term: Term, type_: Type | None) -> Term:
    """``term`` converted to ``type_`` as C++ does; the same term where nothing changes."""
    have = term.type
    if have is type_ or not isinstance(type_, (Int, Float)):
        return term
    if term.op == "const" and isinstance(term.data, (int, float)):
        folded = cast_value(term.data, type_)
        # An integer that a float cannot hold stays visible: 20000001 as a float is not what was meant.
        if folded is not None and not (type_ is F32 and isinstance(term.data, int) and folded != term.data):
            return const(folded, type_)
    if have is None:
        return make("cast", type_, term)
    if type_ is BOOL:
        return truth(term)
    # A widening of a widening is one widening.
    if (
        term.op == "cast" and isinstance(type_, Int) and isinstance(have, Int)
        and isinstance(inner := term.args[0].type, Int) and _holds(have, inner) and _holds(type_, have)
    ):  # fmt: skip
        return convert(term.args[0], type_)
    return make("cast", type_, term)


def _holds(wide: Int, narrow: Int) -> bool:
    return wide.lo <= narrow.lo and narrow.hi <= wide.hi


def cast_value(value: int | float, type_: Type) -> int | float | None:
    """The value after conversion; None for a float that does not fit the integer type (undefined in C++)."""
    if isinstance(type_, Int):
        if isinstance(value, float):
            if not math.isfinite(value):
                return None
            value = int(value)
            return value if type_.lo <= value <= type_.hi or type_ is BOOL else None
        return type_.wrap(value)
    return round_float(float(value), type_)


def round_float(value: float, type_: Type) -> float:
    """``value`` rounded to the precision of ``type_``."""
    if type_ is F32 and math.isfinite(value):
        try:
            return float(struct.unpack("f", struct.pack("f", value))[0])
        except OverflowError:
            return math.copysign(math.inf, value)
    return value


_FOLD = {"add", "sub", "mul", "div", "mod", "and", "or", "xor", "shl", "shr", "min", "max"}
_COMPARE = {"lt", "le", "eq", "ne"}


def binary(op: str, a: Term, b: Term, type_: Type | None) -> Term:
    """``a op b`` in ``type_``, operands already converted; constants folded, identities removed."""
    if a.op == "const" and b.op == "const":
        value = apply(op, type_, (a.data, b.data))
        if value is not None:
            return const(value, type_)
    elif b.op == "const":
        data = b.data
        if data == 0 and op in ("add", "sub", "or", "xor", "shl", "shr") and not isinstance(type_, Float):
            return a
        if data == 1 and op in ("mul", "div") and not isinstance(type_, Float):
            return a
    elif (a.op == "const" and a.data == 0 and op == "add" and not isinstance(type_, Float)) or (
        a.op == "const" and a.data == 1 and op == "mul" and not isinstance(type_, Float)
    ):
        return b
    if op == "mul" and isinstance(type_, Int) and 0 in (x.data for x in (a, b) if x.op == "const"):
        return const(0, type_)
    if a is b and op in ("min", "max", "and", "or"):
        return a
    if op in ("min", "max") and isinstance(type_, Int) and (a.op == "const" or b.op == "const"):
        fixed, other = (a, b) if a.op == "const" else (b, a)
        low, high = bounds(other, {})
        # That sizes are 0 or more is a convention: `min(n, 0)` is there for those that are not.
        if high <= fixed.data if op == "max" else 0 < fixed.data <= low:
            return fixed
    return make(op, type_, a, b)


def negate(a: Term, type_: Type | None) -> Term:
    if a.op == "const":
        value = apply("neg", type_, (a.data,))
        if value is not None:
            return const(value, type_)
    return make("neg", type_, a)


def invert(a: Term, type_: Type | None) -> Term:
    if a.op == "const" and isinstance(type_, Int) and isinstance(a.data, int):
        return const(type_.wrap(~a.data), type_)
    return make("not", type_, a)


def compare(op: str, a: Term, b: Term) -> Term:
    """``op`` is one of < <= > >= == !=; operands already converted to their common type."""
    if op in (">", ">="):
        a, b, op = b, a, "<" if op == ">" else "<="
    name = {"<": "lt", "<=": "le", "==": "eq", "!=": "ne"}[op]
    if a.op == "const" and b.op == "const":
        return const(apply(name, BOOL, (a.data, b.data)) or 0, BOOL)
    if a is b and not isinstance(a.type, Float):
        return TRUE if name in ("le", "eq") else FALSE
    return make(name, BOOL, a, b)


def truth(a: Term) -> Term:
    """``a`` as a condition."""
    if a.type is BOOL:
        return a
    if a.op == "const":
        return TRUE if a.data else FALSE
    if a.op == "select" and "const" in (a.args[1].op, a.args[2].op):
        return _either(*a.args)
    return make("ne", BOOL, a, const(0, a.type))


def _either(cond: Term, a: Term, b: Term) -> Term:
    """``cond ? a : b`` as a condition, one side of which is known: a flag that a check clears tells of the check."""
    if a.op == "const":
        return lor(cond, b) if a.data else land(lnot(cond), b)
    return lor(lnot(cond), a) if b.data else land(cond, a)


_OPPOSITE = {"eq": "ne", "ne": "eq"}


def lnot(a: Term) -> Term:
    a = truth(a)
    if a.op == "const":
        return FALSE if a.data else TRUE
    if a.op == "lnot":
        return a.args[0]
    if a.op in _OPPOSITE:
        return make(_OPPOSITE[a.op], BOOL, *a.args)
    if a.op in ("lt", "le") and not any(isinstance(x.type, Float) for x in a.args):
        return make("le" if a.op == "lt" else "lt", BOOL, a.args[1], a.args[0])
    if a.op in ("land", "lor"):
        if a not in _negated:
            _negated[a] = make("lor" if a.op == "land" else "land", BOOL, lnot(a.args[0]), lnot(a.args[1]))
        return _negated[a]
    return make("lnot", BOOL, a)


def land(a: Term, b: Term) -> Term:
    a, b = truth(a), truth(b)
    if a.op == "const":
        return b if a.data else FALSE
    if b.op == "const":
        return a if b.data else FALSE
    return a if a is b else make("land", BOOL, a, b)


def lor(a: Term, b: Term) -> Term:
    a, b = truth(a), truth(b)
    if a.op == "const":
        return TRUE if a.data else b
    if b.op == "const":
        return TRUE if b.data else a
    return a if a is b else make("lor", BOOL, a, b)


def select(cond: Term, a: Term, b: Term, type_: Type | None) -> Term:
    cond = truth(cond)
    if cond.op == "const":
        return a if cond.data else b
    if a is b:
        return a
    # `a < b ? a : b` is a minimum, however it is spelled.
    if cond.op in ("lt", "le") and isinstance(type_, Int) and {a, b} == set(cond.args):
        return binary("min" if cond.args[0] is a else "max", a, b, type_)
    if type_ is BOOL and "const" in (a.op, b.op):
        return _either(cond, a, b)
    return make("select", type_, cond, a, b)


# --- the machine's reading ----------------------------------------------------------------------


def apply(op: str, type_: Type | None, args: tuple[Any, ...]) -> Any:
    """One operation on values; None where it is undefined (division by zero, a shift too far)."""
    return _operation(op, type_)(args[0], args[1] if len(args) > 1 else 0)


def _product(a: Any, b: Any) -> Any:
    # The mathematical integers end where no machine's sizes come from; repeated squares would fill the memory.
    if isinstance(a, int) and isinstance(b, int) and a.bit_length() + b.bit_length() > _WIDEST:
        raise OverflowError
    return a * b


_WIDEST = 1024


def _quotient(a: Any, b: Any) -> Any:
    if isinstance(a, float) or isinstance(b, float):
        return a / b
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _remainder(a: int, b: int) -> int:
    remainder = abs(a) % abs(b)
    return -remainder if a < 0 else remainder


_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": _product, "div": _quotient, "mod": _remainder,
    "neg": lambda a, b: -a, "min": min, "max": max, "and": operator.and_, "or": operator.or_, "xor": operator.xor,
    "not": lambda a, b: ~a,
    "lt": lambda a, b: int(a < b), "le": lambda a, b: int(a <= b), "eq": lambda a, b: int(a == b),
    "ne": lambda a, b: int(a != b), "lnot": lambda a, b: int(not a),
    "land": lambda a, b: int(bool(a) and bool(b)), "lor": lambda a, b: int(bool(a) or bool(b)),
}  # fmt: skip
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "ceil": math.ceil, "floor": math.floor, "round": lambda x: math.floor(x + 0.5) if x >= 0 else -math.floor(0.5 - x),
    "trunc": math.trunc, "rint": round, "sqrt": math.sqrt, "fabs": abs, "abs": abs, "log2": math.log2,
    "exp2": lambda x: 2.0**x, "pow": math.pow, "log": math.log, "gcd": math.gcd,
    "logb": lambda x: math.frexp(x)[1] - 1 if x else -math.inf, "exponent": lambda x: math.frexp(x)[1],
}  # fmt: skip
#: What Python raises where C++ leaves the result undefined, or where a value is not of the kind expected.
_FAULTS = (ZeroDivisionError, OverflowError, ValueError, TypeError)


@cache
def _operation(op: str, type_: Type | None) -> Callable[[Any, Any], Any]:
    """The function of two operands (the second is unused by unary ones) that computes ``op`` in ``type_``."""
    if op in ("shl", "shr"):
        return _shift(op, type_)
    function = _OPERATORS.get(op)
    if function is None:
        return lambda a, b: None

    def checked(a: Any, b: Any) -> Any:
        try:
            return function(a, b)
        except _FAULTS:
            return None

    if isinstance(type_, Int):
        low, high, wrap = type_.lo, type_.hi, type_.wrap

        def integer(a: Any, b: Any) -> Any:
            try:
                value = function(a, b)
            except _FAULTS:
                return None
            return value if low <= value <= high or isinstance(value, float) else wrap(value)

        return integer
    if isinstance(type_, Float):
        return lambda a, b: None if (value := checked(a, b)) is None else round_float(float(value), type_)
    return checked


def _shift(op: str, type_: Type | None) -> Callable[[Any, Any], Any]:
    bits = type_.bits if isinstance(type_, Int) else 64

    def shift(a: Any, b: Any) -> Any:
        if not isinstance(a, int) or not isinstance(b, int) or not 0 <= b < bits:
            return None
        value = a << b if op == "shl" else a >> b
        return type_.wrap(value) if isinstance(type_, Int) else value

    return shift


class Undefined(Exception):
    """The term has no value here: an atom without one, a division by zero, an unseen function."""


def evaluate(term: Term, env: Mapping[Term, Any], *, exact: bool = True) -> Any:
    """The value of ``term`` for the atoms' values in ``env``.

    ``exact`` wraps as the machine does; without it, integer arithmetic is that of the mathematical
    integers. Raises :class:`Undefined`.
    """
    value = evaluated(term, env, exact)
    if value is None:
        raise Undefined
    return value


def evaluated(term: Term, env: Mapping[Term, Any], exact: bool = True) -> Any:
    """As :func:`evaluate`, but None where there is no value: for whoever asks so often that an exception costs."""
    if term.op == "const":
        return term.data
    return (term.programs[exact] or _program(term, exact)).run(env)


def _program(term: Term, exact: bool) -> _Program:
    program = _Program(term, exact)
    term.programs = (term.programs[0], program) if exact else (program, term.programs[1])
    return program


def size(term: Term) -> int:
    """How many different values a term is made of, itself included: what evaluating it costs."""
    return len((term.programs[1] or term.programs[0] or _program(term, True)).steps)


def inside(terms: Iterable[Term]) -> Iterator[Term]:
    """The terms and what they are made of, each once."""
    stack = list(terms)
    seen = set(stack)
    while stack:
        item = stack.pop()
        yield item
        inner = [x for x in item.args if x not in seen]
        seen.update(inner)
        stack += inner


# A step in dependency order is (kind, what, operands); the value of a step is None where it has none, and only
# operators that do not look at that operand survive it.
_CONSTANT, _ATOM, _OPERATE, _SELECT, _AND, _OR, _CALL = range(7)
_Step = tuple[int, Any, int, int, int]
_OFTEN = 48
"""Runs after which a program is worth the price of a Python function of its own."""


class _Program:
    """What evaluates one term: steps that are interpreted, and functions made of them when it is run often."""

    __slots__ = ("exact", "lacking", "lenient", "required", "run", "runs", "steps", "term")

    def __init__(self, term: Term, exact: bool) -> None:
        self.term, self.exact = term, exact
        self.runs = self.lacking = 0
        self.steps = _compile(term, exact)
        self.required = _required(term)
        self.run: Callable[[Mapping[Term, Any]], Any] = self._counted
        self.lenient: Callable[[Mapping[Term, Any]], Any] = self._interpreted

    def _counted(self, env: Mapping[Term, Any]) -> Any:
        self.runs += 1
        if self.runs == _OFTEN:
            self.run = _function(self, self.without)
        return self._interpreted(env)

    def without(self, env: Mapping[Term, Any]) -> Any:
        """The value where some step may have none."""
        for atom in self.required:
            if env.get(atom) is None:
                return None
        self.lacking += 1
        if self.lacking == _OFTEN:
            self.lenient = _function(self, None)
        return self.lenient(env)

    def _interpreted(self, env: Mapping[Term, Any]) -> Any:
        return _execute(self.steps, env)


def _required(term: Term) -> list[Term]:
    """The atoms without whose values the term has none, whatever the rest is."""
    found: list[Term] = []
    stack, seen = [term], {term}
    while stack:
        item = stack.pop()
        operands = _operands(item)
        if item.op == "atom" and not operands:
            found.append(item)
        elif item.op != "atom":
            inner = [x for x in (operands[:1] if item.op in _LOGIC else operands) if x not in seen]
            stack += inner
            seen.update(inner)
    return found


def _execute(program: list[_Step], env: Mapping[Term, Any]) -> Any:
    values: list[Any] = []
    push = values.append
    for kind, what, a, b, c in program:
        if kind == _OPERATE:
            x, y = values[a], values[b]
            push(None if x is None or y is None else what(x, y))
        elif kind == _ATOM:
            value = env.get(what)
            if value is None and a >= 0:
                # The k-th value of an induction variable: its loop's counter is an atom of its own.
                passes, first, step = values[a], values[b], values[c]
                if passes is not None and first is not None and step is not None:
                    value = first + passes * step
                    if isinstance(what.type, Int):
                        value = what.type.wrap(value)
            push(value)
        elif kind == _CONSTANT:
            push(what)
        elif kind == _SELECT:
            x = values[a]
            push(None if x is None else values[b] if x else values[c])
        elif kind == _CALL:
            x, y = values[a], values[b]
            push(None if x is None or y is None else _call(what, x, y))
        else:
            x = values[a]
            if x is None:
                push(None)
            elif bool(x) == (kind == _OR):
                push(int(kind == _OR))
            else:
                y = values[b]
                push(None if y is None else int(bool(y)))
    return values[-1]


def _call(what: tuple[str, int, Type | None], x: Any, y: Any) -> Any:
    name, operands, type_ = what
    try:
        value = _FUNCTIONS[name](x, y) if operands == 2 else _FUNCTIONS[name](x)
    except (KeyError, *_FAULTS):
        return None
    return round_float(float(value), type_) if isinstance(type_, Float) else value


def _places(term: Term) -> dict[Term, int]:
    """The parts of a term, each after its operands, with its number."""
    places: dict[Term, int] = {}
    stack = [(term, False)]
    while stack:
        item, ready = stack.pop()
        if item in places:
            continue
        if ready:
            places[item] = len(places)
        else:
            stack.append((item, True))
            stack.extend((x, False) for x in reversed(_operands(item)) if x not in places)
    return places


def _compile(term: Term, exact: bool) -> list[_Step]:
    program: list[_Step] = []
    places = _places(term)
    for item in places:
        at = [places[x] for x in _operands(item)]
        a, b, c = (*at, -1, -1, -1)[:3]
        if item.op == "atom":
            program.append((_ATOM, item, a, b, c))
        else:
            program.append((*_step(item, exact, len(at)), a, b if b >= 0 else a, c))
    return program


def _operands(term: Term) -> tuple[Term, ...]:
    if term.op == "atom" and term.data.kind == "loop":
        induction = term.data.data
        if induction.init is not None and induction.step is not None:
            return (induction.loop.counter, induction.init, induction.step)
    return term.args


def _step(term: Term, exact: bool, operands: int) -> tuple[int, Any]:
    op, type_ = term.op, term.type
    if op == "const" or not operands:
        return _CONSTANT, term.data if op == "const" else None
    if op in _LOGIC:
        return _LOGIC[op], None
    if op == "call":
        return _CALL, (term.data, operands, type_)
    if op == "cast":
        if isinstance(type_, Int) and not exact:
            return _OPERATE, lambda a, b: cast_value(a, type_) if isinstance(a, float) else a
        return _OPERATE, (lambda a, b: a) if type_ is None else lambda a, b: cast_value(a, type_)
    return _OPERATE, _operation(op, None if not exact and isinstance(type_, Int) else type_)


_LOGIC = {"select": _SELECT, "land": _AND, "lor": _OR}


def _function(
    program: _Program, without: Callable[[Mapping[Term, Any]], Any] | None
) -> Callable[[Mapping[Term, Any]], Any]:
    """A Python function with the program's steps as statements.

    It holds where every step has a value, which is nearly always, and leaves the rest to ``without``; where there is
    no such function, each step sees for itself whether its operands have values. A fault in it is one step's.
    """
    places, steps = _places(program.term), program.steps
    names: dict[str, Any] = {"without": without, "interpreted": partial(_execute, steps), "faults": _FAULTS}
    lines: list[str] = []

    def unless(test: str, do: str) -> None:
        lines.append(f" if {test}: {do}")

    def given(here: str, text: str, operands: Sequence[str]) -> None:
        missing = " or ".join(f"{x} is None" for x in operands) if without is None else ""
        lines.append(f" {here} = None if {missing} else ({text})" if missing else f" {here} = {text}")

    def present(here: str) -> None:
        if without is not None:
            unless(f"{here} is None", "return without(env)")

    def wrapped(here: str, at: int, type_: Int) -> None:
        names[f"w{at}"] = type_.wrap
        some = f"{here} is not None and " if without is None else ""
        unless(f"{some}not {type_.lo} <= {here} <= {type_.hi}", f"{here} = w{at}({here})")

    for item, at in places.items():
        operands = [f"v{places[x]}" for x in _operands(item)]
        a, b, c = (*operands, "", "", "")[:3]
        here, type_ = f"v{at}", item.type
        if item.op == "const":
            names[f"k{at}"] = item.data
            lines.append(f" {here} = k{at}")
            continue
        if item.op == "atom":
            names[f"k{at}"] = item
            lines.append(f" {here} = get(k{at})")
            if not a:
                present(here)
                continue
            lines.append(f" if {here} is None:")
            given(f" {here}", f"{a} * {c} + {b}", operands)
            if isinstance(type_, Int):
                wrapped(here, at, type_)
            continue
        integers = isinstance(type_, Int) and all(isinstance(x.type, Int) for x in item.args)
        text = _INLINE.get(item.op) if integers and (program.exact or item.op not in _MACHINE) else None
        if item.op in _SPLIT:
            split = _SPLIT[item.op] if without is not None else _SPLIT_LENIENT[item.op]
            lines.append(" " + split.format(here=here, a=a, b=b, c=c))
        elif text is None:
            kind, what, *_ = steps[at]
            names[f"k{at}"] = partial(_call, what) if kind == _CALL else what
            given(here, f"k{at}({a}, {b or a})", operands)
            present(here)
        else:
            names[f"k{at}"] = steps[at][1]
            given(here, text.format(a=a, b=b, k=f"k{at}", bits=getattr(type_, "bits", 0)), operands)
            if item.op in _PARTIAL:
                present(here)
            if item.op in _WRAPPING and program.exact and isinstance(type_, Int):
                wrapped(here, at, type_)
    body = [" get = env.get", *lines, f" return v{len(places) - 1}"]
    source = ["def run(env):", " try:", *(f" {x}" for x in body), " except faults:", "  return interpreted(env)"]
    exec("\n".join(source), names)  # made of the texts below and of numbers: nothing of the source that is checked
    run: Callable[[Mapping[Term, Any]], Any] = names["run"]
    return run


_INLINE = {
    "add": "{a} + {b}", "sub": "{a} - {b}", "mul": "{a} * {b}", "and": "{a} & {b}", "or": "{a} | {b}",
    "xor": "{a} ^ {b}", "neg": "-{a}", "not": "~{a}", "cast": "{a}",
    "div": "{a} // {b} if {a} >= 0 < {b} else {k}({a}, {b})", "mod": "{a} % {b} if {a} >= 0 < {b} else {k}({a}, {b})",
    "min": "{a} if {a} <= {b} else {b}", "max": "{a} if {a} >= {b} else {b}",
    "lt": "1 if {a} < {b} else 0", "le": "1 if {a} <= {b} else 0", "eq": "1 if {a} == {b} else 0",
    "ne": "1 if {a} != {b} else 0", "lnot": "0 if {a} else 1",
    "shl": "{a} << {b} if 0 <= {b} < {bits} else None", "shr": "{a} >> {b} if 0 <= {b} < {bits} else None",
}  # fmt: skip
"""Operations between integers as Python writes them."""
_WRAPPING = frozenset({"add", "sub", "mul", "and", "or", "xor", "neg", "not", "cast", "shl", "shr"})
_PARTIAL = frozenset({"div", "mod", "shl", "shr"})
"""Operations that not all integers have."""
_MACHINE = frozenset({"mul", *_PARTIAL})
"""Operations that are others between mathematical integers."""
_SPLIT = {
    "select": "{here} = {b} if {a} else {c}",
    "land": "{here} = 1 if {a} and {b} else 0",
    "lor": "{here} = 1 if {a} or {b} else 0",
}
_SPLIT_LENIENT = {
    "select": "{here} = None if {a} is None else {b} if {a} else {c}",
    "land": "{here} = None if {a} is None else 0 if not {a} else None if {b} is None else 1 if {b} else 0",
    "lor": "{here} = None if {a} is None else 1 if {a} else None if {b} is None else 1 if {b} else 0",
}
"""Operations that do not look at all of their operands."""


# --- the mathematical reading -------------------------------------------------------------------


def poly(term: Term) -> Poly:
    """``term`` as a polynomial over atoms; ``/ % min max & | select`` and the like are atoms of it.

    Conversions between integers of 32 bits and more are the identity here. Two spellings of one
    value (``(n + 255) / 256`` twice) have one atom.
    """
    found = term.poly
    if found is None:
        found = term.poly = _poly(term)
    return found


def _poly(term: Term) -> Poly:
    op, args = term.op, term.args
    if op == "const":
        if isinstance(term.data, int):
            return {(): term.data} if term.data else {}
        return {(term,): 1}
    if op == "atom":
        return {(term,): 1}
    if isinstance(term.type, Float):
        return {(_canonical(term),): 1}
    if op == "add":
        return add(poly(args[0]), poly(args[1]))
    if op == "sub":
        return add(poly(args[0]), poly(args[1]), -1)
    if op == "neg":
        return scale(poly(args[0]), -1)
    if op == "mul":
        result = multiply(poly(args[0]), poly(args[1]))
        return {(_canonical(term),): 1} if result is None else result
    if op == "cast":
        inner = args[0]
        if isinstance(term.type, Int) and term.type.bits >= 32 and not isinstance(inner.type, Float):
            return poly(inner)
    if op == "shl" and args[1].op == "const" and 0 <= args[1].data < 63:
        return scale(poly(args[0]), 1 << args[1].data)
    if op == "shr" and args[1].op == "const" and 0 <= args[1].data < 63:
        return poly(make("div", term.type, args[0], const(1 << args[1].data, term.type)))
    if op == "div" and args[1].op == "const" and args[1].data > 1:
        # (x * k) / k is x: exact where nothing wraps.
        inner_poly = poly(args[0])
        if inner_poly and all(c % args[1].data == 0 for c in inner_poly.values()):
            return {m: c // args[1].data for m, c in inner_poly.items()}
    return {(_canonical(term),): 1}


def _canonical(term: Term) -> Term:
    """One representative for all terms with this operator and these operands' polynomials."""
    parts = tuple([frozenset(poly(a).items()) if not isinstance(a.type, Float) else a for a in term.args])
    key = (term.op, term.data, parts)
    return _nonlinear.setdefault(key, term)


def add(a: Poly, b: Poly, factor: int = 1) -> Poly:
    """``a + factor * b``"""
    if not b:
        return a
    result = dict(a)
    for monomial, coefficient in b.items():
        value = result.get(monomial, 0) + factor * coefficient
        if value:
            result[monomial] = value
        else:
            result.pop(monomial, None)
    return result


def scale(a: Poly, factor: int) -> Poly:
    return {m: c * factor for m, c in a.items()} if factor else {}


def _degree(p: Poly) -> int:
    return max((len(m) for m in p), default=0)


def multiply(a: Poly, b: Poly) -> Poly | None:
    """The product; None where it would have too many monomials to be of use."""
    if len(a) * len(b) > _MAX_MONOMIALS or _degree(a) + _degree(b) > _MAX_DEGREE:
        return None
    result: Poly = {}
    for left, x in a.items():
        for right, y in b.items():
            monomial = tuple(sorted(left + right, key=_key)) if left and right else left or right
            value = result.get(monomial, 0) + x * y
            if value:
                result[monomial] = value
            else:
                result.pop(monomial, None)
    return result


def _key(term: Term) -> int:
    return term.key


def cofactor(monomial: Sequence[Term], factors: Sequence[Term]) -> tuple[Term, ...] | None:
    """What a product is multiplied by besides ``factors``; None where it lacks one of them."""
    rest = list(monomial)
    for item in factors:
        if item not in rest:
            return None
        rest.remove(item)
    return tuple(rest)


def constant(p: Poly) -> int | None:
    """The value of a constant polynomial, else None."""
    if not p:
        return 0
    return p.get(()) if len(p) == 1 else None


def bare(term: Term) -> Term:
    """A value without the conversions around it."""
    while term.op == "cast":
        term = term.args[0]
    return term


def atoms_of(p: Poly) -> Iterator[Term]:
    """The atoms of a polynomial, each once, not looking into ``/ % min max``."""
    seen: set[Term] = set()
    for monomial in p:
        for item in monomial:
            if item not in seen:
                seen.add(item)
                yield item


def leaves(term: Term) -> frozenset[Term]:
    """Every atom a term is made of, through all operators and through induction variables."""
    found = term.leaves
    if found is None:
        if term.op == "atom":
            found = frozenset((term,))
        elif len(term.args) == 1:
            found = leaves(term.args[0])
        else:
            found = frozenset().union(*map(leaves, term.args))
        term.leaves = found
    return found


def substitute(term: Term, mapping: Mapping[Term, Term], memo: dict[Term, Term] | None = None) -> Term:
    """``term`` with atoms replaced (values converted to the atom's type, as an argument is)."""
    if memo is None:
        memo = {}
    found = memo.get(term)
    if found is not None:
        return found
    if term.op == "const":
        return term
    if term.op == "atom":
        value = mapping.get(term)
        result = term if value is None else convert(value, term.type)
    else:
        args = [substitute(arg, mapping, memo) for arg in term.args]
        result = term if all(x is y for x, y in zip(args, term.args)) else rebuild(term, args)
    memo[term] = result
    return result


def with_zeros(term: Term, atoms: frozenset[Term]) -> Term:
    """``term`` with 0 for some of its atoms."""
    found = _zeroed.get((term, atoms))
    if found is None:
        found = _zeroed[term, atoms] = substitute(term, {x: const(0, x.type) for x in atoms})
    return found


def rebuild(term: Term, args: list[Term]) -> Term:
    """``term``'s operator on other operands, folded."""
    op, type_ = term.op, term.type
    if op in _FOLD:
        return binary(op, args[0], args[1], type_)
    if op in _COMPARE:
        return compare({"lt": "<", "le": "<=", "eq": "==", "ne": "!="}[op], args[0], args[1])
    if op == "cast":
        return convert(args[0], type_)
    if op == "neg":
        return negate(args[0], type_)
    if op == "not":
        return invert(args[0], type_)
    if op == "lnot":
        return lnot(args[0])
    if op == "land":
        return land(args[0], args[1])
    if op == "lor":
        return lor(args[0], args[1])
    if op == "select":
        return select(args[0], args[1], args[2], type_)
    return make(op, type_, *args, data=term.data)


# --- intervals ----------------------------------------------------------------------------------

Interval = tuple[int, int]


def bounds(term: Term, ranges: Mapping[Term, Interval], memo: dict[Term, Interval] | None = None) -> Interval:
    """An interval that holds the machine value of ``term`` for atoms within ``ranges``.

    Where an operation can leave its type the whole type's range is the answer.
    """
    low, high = mathematical_bounds(term, ranges, memo)
    type_ = term.type
    if isinstance(type_, Int) and (low < type_.lo or high > type_.hi):
        return type_.lo, type_.hi
    return low, high


def mathematical_bounds(
    term: Term, ranges: Mapping[Term, Interval], memo: dict[Term, Interval] | None = None
) -> Interval:
    """As :func:`bounds`, but the last operation itself is not wrapped: the type's range tells whether it can."""
    if memo is None:
        memo = {}
    found = memo.get(term)
    if found is None:
        found = memo[term] = _bounds(term, ranges, memo)
    return found


def plausible_bounds(term: Term, ranges: Mapping[Term, Interval], memo: dict[Term, Interval] | None = None) -> Interval:
    """As :func:`bounds`, on the assumption that nothing overflows: what leaves a type is cut at its ends.

    Floating values are taken as the integers below them.
    """
    if memo is None:
        memo = {}
    found = memo.get(term)
    if found is None:
        found = memo[term] = _bounds(term, ranges, memo, plausible_bounds)
        known = ranges.get(term)
        if known is not None and term.op != "atom":
            found = memo[term] = (max(found[0], known[0]), min(found[1], known[1]))
    low, high = found
    type_ = term.type
    if isinstance(type_, Int):
        low, high = min(max(low, type_.lo), type_.hi), max(min(high, type_.hi), type_.lo)
    return low, high


def _bounds(
    term: Term, ranges: Mapping[Term, Interval], memo: dict[Term, Interval],
    bounds: Callable[[Term, Mapping[Term, Interval], dict[Term, Interval]], Interval] = bounds,
) -> Interval:  # fmt: skip
    op = term.op
    plausible = bounds is plausible_bounds
    if op == "const":
        if plausible and isinstance(term.data, float) and math.isfinite(term.data):
            return math.floor(term.data), math.ceil(term.data)
        return (term.data, term.data) if isinstance(term.data, int) else (-INF, INF)
    if op == "atom":
        found = ranges.get(term)
        if found is not None:
            return found
        return _loop_bounds(term, ranges, memo) if term.data.kind == "loop" else (term.data.lo, term.data.hi)
    if op in ("lt", "le", "eq", "ne", "land", "lor", "lnot"):
        return 0, 1
    if not plausible and (isinstance(term.type, Float) or any(isinstance(a.type, Float) for a in term.args)):
        return type_range(term.type)
    args = [bounds(a, ranges, memo) for a in term.args]
    (a, b) = args[0] if args else (-INF, INF)
    c, d = args[1] if len(args) > 1 else (0, 0)
    if op == "add":
        return a + c, b + d
    if op == "sub":
        return a - d, b - c
    if op == "neg":
        return -b, -a
    if op == "mul":
        corners = (a * c, a * d, b * c, b * d)
        return max(min(corners), -INF), min(max(corners), INF)
    if op == "div":
        if c > 0:
            quotients = (_div(a, c), _div(a, d), _div(b, c), _div(b, d))
            return min(quotients), max(quotients)
        if a >= 0 and c >= 0:
            return 0, b
        return type_range(term.type)
    if op == "mod":
        if c >= 0 or d > 0:
            top = max(0, d - 1)
            return (0 if a >= 0 else -top), min(top, b) if a >= 0 else top
        return type_range(term.type)
    if op == "min":
        return min(a, c), min(b, d)
    if op == "max":
        return max(a, c), max(b, d)
    if op == "and":
        if c >= 0 or a >= 0:
            return 0, min([x for x, y in ((b, a), (d, c)) if y >= 0])
        return type_range(term.type)
    if op in ("or", "xor"):
        if a >= 0 and c >= 0:
            return 0, (1 << max(b, d).bit_length()) - 1
        return type_range(term.type)
    if op == "shl":
        if c >= 0 and d < 64:
            corners = (a << c, a << d, b << c, b << d)
            return min(corners), max(corners)
        return type_range(term.type)
    if op == "shr":
        if a >= 0 and c >= 0:
            return a >> min(d, 400), b >> c
        return type_range(term.type)
    if op == "select":
        e, f = args[2]
        return min(c, e), max(d, f)
    if op == "cast":
        return a, b
    if op == "call" and term.data in ("abs", "fabs"):
        return 0, max(abs(a), abs(b))
    if plausible and op == "call" and term.data in ("ceil", "floor", "round", "rint", "trunc"):
        return a, b
    return type_range(term.type)


def _loop_bounds(term: Term, ranges: Mapping[Term, Interval], memo: dict[Term, Interval]) -> Interval:
    """An induction variable lies between its start and its loop's bound."""
    info = term.data
    memo[term] = (info.lo, info.hi)
    induction = info.data
    low, high = info.lo, info.hi
    if induction.init is None or induction.step is None:
        return low, high
    first = bounds(induction.init, ranges, memo)
    step = bounds(induction.step, ranges, memo)
    if step[0] >= 0:
        low = max(low, first[0])
        limit = induction.limit
        if limit is not None:
            top = bounds(limit[0], ranges, memo)[1] + limit[1]
            high = min(high, max(top, low))
    elif step[1] <= 0:
        high = min(high, first[1])
        limit = induction.limit
        if limit is not None:
            low = max(low, min(bounds(limit[0], ranges, memo)[0] + limit[1], high))
    return low, high


def _div(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


# --- printing -----------------------------------------------------------------------------------

_SIGNS = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "mod": "%", "and": "&", "or": "|", "xor": "^", "shl": "<<",
    "shr": ">>", "lt": "<", "le": "<=", "eq": "==", "ne": "!=", "land": "&&", "lor": "||",
}  # fmt: skip
_BUILTINS = {"tid": "threadIdx", "bid": "blockIdx", "bdim": "blockDim", "gdim": "gridDim"}


#: How tightly operators bind, as in C++; a higher number binds tighter.
_BINDING = {
    "lor": 1, "land": 2, "or": 3, "xor": 4, "and": 5, "eq": 6, "ne": 6, "lt": 7, "le": 7, "shl": 8, "shr": 8, "add": 9,
    "sub": 9, "mul": 10, "div": 10, "mod": 10,
}  # fmt: skip


_SHOWN = 60
"""Operators of a term that are printed; the rest is an ellipsis. Shared parts would be printed again and again."""


def show(term: Term) -> str:
    """A term in C++ notation, conversions left out."""
    return _show(term, 0, [_SHOWN])


def _show(term: Term, outer: int, left_over: list[int]) -> str:
    op = term.op
    left_over[0] -= 1
    if left_over[0] < 0 and term.args:
        return "…"
    if op == "const":
        return str(term.data)
    if op == "atom":
        info = term.data
        return f"{_BUILTINS[info.kind]}.{info.axis}" if info.kind in _BUILTINS else info.name
    if op == "cast":
        return _show(term.args[0], outer, left_over)
    binding = _BINDING.get(op)
    if binding is not None:
        left, right = term.args
        text = f"{_show(left, binding, left_over)} {_SIGNS[op]} {_show(right, binding + 1, left_over)}"
        return f"({text})" if binding < outer else text
    if op in _PREFIXES:
        return f"{_PREFIXES[op]}{_show(term.args[0], 11, left_over)}"
    if op == "select":
        cond, then, other = (_show(a, 1, left_over) for a in term.args)
        return f"({cond} ? {then} : {other})"
    return f"{term.data or op}({', '.join(_show(a, 0, left_over) for a in term.args)})"


_PREFIXES = {"neg": "-", "not": "~", "lnot": "!"}


def show_poly(p: Poly) -> str:
    """A polynomial as a sum of products."""
    parts = []
    for monomial, coefficient in p.items():
        factors = [_show(x, 10, [_SHOWN]) for x in monomial]
        if abs(coefficient) != 1 or not factors:
            factors.insert(0, str(abs(coefficient)))
        parts.append(("- " if coefficient < 0 else "+ ") + " * ".join(factors))
    text = " ".join(parts) or "0"
    return text[2:] if text.startswith("+ ") else text
