"""CUDA's own functions: arithmetic, intrinsics, loads, atomics, barriers, printf."""

from __future__ import annotations

import math
import re
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from cudalint.ir import nodes as ir
from cudalint.ir.types import (
    BF16,
    F16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    VECTORS,
    Array,
    Float,
    Int,
    Ptr,
    Struct,
    Type,
)
from cudalint.sim import values as v
from cudalint.sim import warps
from cudalint.sim.memory import hash_values, hashed
from cudalint.sim.places import MemoryPlace, pointed
from cudalint.sim.values import Stop, Unsupported, convert, scalar, spread

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudalint.sim.calls import Calls
    from cudalint.sim.expressions import Eval
    from cudalint.sim.frame import Frame


def builtin(code: Calls, node: ir.Call) -> Eval:
    """A call of a function that the project does not define."""
    name = node.name.rpartition("::")[2]
    if node.receiver is not None:
        group = warps.method(code, node, name)
        return group if group is not None else code.refuse(node, f"the method '{name}' of '{node.receiver.type}'")
    handler = _HANDLERS.get(name)
    if handler is None and name.endswith("f") and name[:-1] in _REAL:
        handler = _real
    if handler is None:
        handler = warps.FUNCTIONS.get(name)
    if handler is None:
        vector = name[5:] if name.startswith("make_") else ""
        if vector in VECTORS:
            return code.expr(ir.Construct(node.start, node.end, VECTORS[vector], node.args))
    if handler is None:
        return code.refuse(node, f"the function '{node.name}'")
    try:
        return handler(code, node, name)  # type: ignore[no-any-return]  # by name
    except IndexError:
        return code.refuse(node, f"'{name}' with {len(node.args)} arguments")


# Arithmetic on floating values.


def _erf(x: Any) -> Any:
    return np.vectorize(math.erf, otypes=[np.float64])(x) if np.ndim(x) else np.float64(math.erf(float(x)))


def _erfc(x: Any) -> Any:
    return np.vectorize(math.erfc, otypes=[np.float64])(x) if np.ndim(x) else np.float64(math.erfc(float(x)))


def _each(function: Callable[[float], float]) -> Callable[[Any], Any]:
    def safe(x: float) -> float:
        try:
            return function(x)
        except (ValueError, OverflowError):
            return math.inf if x > 0 else math.nan

    return lambda x: np.vectorize(safe, otypes=[np.float64])(x) if np.ndim(x) else np.float64(safe(float(x)))


def _round(x: Any) -> Any:
    """Halves away from zero."""
    return np.copysign(np.floor(np.abs(x) + x.dtype.type(0.5)), x)


def _wide(function: Callable[..., Any]) -> Callable[..., Any]:
    """Computed in float64: for functions NumPy has no float32 form of."""
    return lambda *args: function(*[np.asarray(a, np.float64)[()] for a in args])


#: Functions of floating values by name; ``f`` may follow. Computed in the precision of the call's type.
_REAL: dict[str, Callable[..., Any]] = {
    "sqrt": np.sqrt, "rsqrt": lambda x: x.dtype.type(1) / np.sqrt(x), "cbrt": np.cbrt, "exp": np.exp, "exp2": np.exp2,
    "exp10": lambda x: np.power(x.dtype.type(10), x), "expm1": np.expm1, "log": np.log, "log2": np.log2,
    "log10": np.log10, "log1p": np.log1p, "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin,
    "acos": np.arccos, "atan": np.arctan, "atan2": np.arctan2, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh,
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh, "pow": np.power, "fmod": np.fmod, "hypot": np.hypot,
    "ceil": np.ceil, "floor": np.floor, "trunc": np.trunc, "round": _round, "rint": np.rint, "nearbyint": np.rint,
    "fma": lambda a, b, c: (np.asarray(a, np.float64) * b + c)[()], "fdim": lambda a, b: np.maximum(a - b, 0),
    "fmax": np.fmax, "fmin": np.fmin, "erf": _erf, "erfc": _erfc, "fabs": np.abs, "copysign": np.copysign,
    "tgamma": _each(math.gamma), "lgamma": _each(math.lgamma), "sinpi": _wide(lambda x: np.sin(np.pi * x)),
    "cospi": _wide(lambda x: np.cos(np.pi * x)), "rhypot": lambda a, b: a.dtype.type(1) / np.hypot(a, b),
    "fdivide": np.divide, "remainder": lambda a, b: a - b * np.rint(a / b), "nextafter": np.nextafter, "max": np.fmax,
    "normcdf": _wide(lambda x: 0.5 * _erfc(-x / math.sqrt(2.0))), "mul": np.multiply,
    "norm3d": lambda a, b, c: np.sqrt(a * a + b * b + c * c),
    "rnorm3d": lambda a, b, c: a.dtype.type(1) / np.sqrt(a * a + b * b + c * c), "min": np.fmin,
    "frcp": lambda x: x.dtype.type(1) / x, "saturate": lambda x: np.fmin(np.fmax(x, 0), x.dtype.type(1)),
}  # fmt: skip


def _real(code: Calls, node: ir.Call, name: str) -> Eval:
    function = _REAL[name if name in _REAL else name[:-1]]
    return _apply(code, node, function, node.type if isinstance(node.type, Float) else None)


def _apply(
    code: Calls, node: ir.Call, function: Callable[..., Any], type_: Type | None, count: int | None = None
) -> Eval:
    """``function`` of the arguments, each converted to ``type_``, the result too."""
    nodes = node.args if count is None else node.args[:count]
    if type_ is None:
        return _dynamic(code, node, function)
    args = [code.converted(a, type_) for a in nodes]
    if len(args) == 1:
        first = args[0]

        def one(f: Frame) -> Any:
            return convert(scalar(function(first(f))), type_)

        return one
    if len(args) == 2:
        left, right = args
        return lambda f: convert(scalar(function(left(f), right(f))), type_)
    return lambda f: convert(scalar(function(*[a(f) for a in args])), type_)


def _dynamic(code: Calls, node: ir.Call, function: Callable[..., Any]) -> Eval:
    """The same where only the values tell the type."""
    args = [code.expr(a) for a in node.args]

    def run(f: Frame) -> Any:
        found = [a(f) for a in args]
        if not all(hasattr(x, "dtype") for x in found):
            raise Unsupported(f"'{node.name}' of such values")
        kinds = [x.dtype for x in found]
        dtype = max((d for d in kinds if d.kind == "f"), key=lambda d: d.itemsize, default=np.dtype(np.float64))
        if any(d.kind != "f" for d in kinds):
            dtype = np.dtype(np.float64)
        return scalar(function(*[x.astype(dtype) for x in found])).astype(dtype)

    return run


def _typed(function: Callable[..., Any], takes: Type, gives: Type | None = None) -> Any:
    """A handler: ``function`` of arguments converted to ``takes``; the result converted to ``gives``."""

    def handler(code: Calls, node: ir.Call, _name: str) -> Eval:
        args = [code.converted(a, takes) for a in node.args]
        result = gives or takes
        return lambda f: convert(scalar(function(*[a(f) for a in args])), result)

    return handler


def _extremum(code: Calls, node: ir.Call, name: str) -> Eval:
    largest = "max" in name
    type_ = node.type
    nodes = node.args
    if len(nodes) == 1 and isinstance(nodes[0], ir.Construct):
        nodes = nodes[0].args
        type_ = nodes[0].type
    elif len(nodes) > 2:
        return code.refuse(node, f"'{name}' with a comparison")
    if isinstance(type_, (Int, Float)):
        args = [code.converted(a, type_) for a in nodes]
        function: Any = (
            (np.maximum if largest else np.minimum) if isinstance(type_, Int) else (np.fmax if largest else np.fmin)
        )
        if len(args) == 2:
            left, right = args
            return lambda f: function(left(f), right(f))

        def reduce(f: Frame) -> Any:
            result = args[0](f)
            for each in args[1:]:
                result = function(result, each(f))
            return result

        return reduce
    values = [code.expr(a) for a in nodes]

    def run(f: Frame) -> Any:
        result = values[0](f)
        for each in values[1:]:
            other = each(f)
            if not hasattr(result, "dtype") or not hasattr(other, "dtype"):
                raise Unsupported(f"'{name}' of such values")
            dtype = v.common_dtype(result, other)
            a, b = result.astype(dtype), other.astype(dtype)
            result = (np.fmax if largest else np.fmin)(a, b)
        return result

    return run


def _abs(code: Calls, node: ir.Call, name: str) -> Eval:
    value = code.promoted(node.args[0])
    if name in ("labs", "llabs"):
        value = code.converted(node.args[0], I64)
    return lambda f: np.abs(value(f))


def _clamp(code: Calls, node: ir.Call, _name: str) -> Eval:
    type_ = node.type
    if not isinstance(type_, (Int, Float)):
        return code.refuse(node, "clamp of such values")
    value, lo, hi = (code.converted(a, type_) for a in node.args[:3])
    return lambda f: np.minimum(np.maximum(value(f), lo(f)), hi(f))


# Integer intrinsics.


def popcount(x: Any) -> Any:
    """The bits set in an unsigned integer, as int32."""
    x = np.asarray(x).astype(np.uint64)
    x = x - ((x >> np.uint64(1)) & np.uint64(0x5555555555555555))
    x = (x & np.uint64(0x3333333333333333)) + ((x >> np.uint64(2)) & np.uint64(0x3333333333333333))
    x = (x + (x >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return ((x * np.uint64(0x0101010101010101)) >> np.uint64(56)).astype(np.int32)[()]


def _clz(bits: int) -> Callable[[Any], Any]:
    def run(x: Any) -> Any:
        x = np.asarray(x).astype(np.uint64)
        for step in (1, 2, 4, 8, 16, 32):
            x = x | (x >> np.uint64(step))
        return (np.int32(bits) - popcount(x)).astype(np.int32)[()]

    return run


def _ffs(x: Any) -> Any:
    x = np.asarray(x).astype(np.uint64)
    lowest = x & (~x + np.uint64(1))
    return np.where(x == 0, 0, popcount(lowest - np.uint64(1)) + 1).astype(np.int32)[()]


def _brev(bits: int) -> Callable[[Any], Any]:
    def run(x: Any) -> Any:
        x = np.asarray(x).astype(np.uint64)
        for step, mask in (
            (1, 0x5555555555555555), (2, 0x3333333333333333), (4, 0x0F0F0F0F0F0F0F0F),
            (8, 0x00FF00FF00FF00FF), (16, 0x0000FFFF0000FFFF), (32, 0x00000000FFFFFFFF),
        ):  # fmt: skip
            x = ((x >> np.uint64(step)) & np.uint64(mask)) | ((x & np.uint64(mask)) << np.uint64(step))
        return (x >> np.uint64(64 - bits))[()]

    return run


def _mulhi(a: Any, b: Any) -> Any:
    wide = np.int64 if a.dtype.kind == "i" else np.uint64
    return (np.asarray(a, wide) * np.asarray(b, wide) >> wide(32))[()]


def _umul64hi(a: Any, b: Any) -> Any:
    a, b = np.asarray(a, np.uint64), np.asarray(b, np.uint64)
    half, mask = np.uint64(32), np.uint64(0xFFFFFFFF)
    al, ah, bl, bh = a & mask, a >> half, b & mask, b >> half
    middle = (al * bl >> half) + (ah * bl & mask) + (al * bh & mask)
    return (ah * bh + (ah * bl >> half) + (al * bh >> half) + (middle >> half))[()]


def _mul64hi(a: Any, b: Any) -> Any:
    a, b = np.asarray(a, np.int64), np.asarray(b, np.int64)
    high = _umul64hi(a.astype(np.uint64), b.astype(np.uint64)).astype(np.int64)
    return (high - np.where(a < 0, b, 0) - np.where(b < 0, a, 0))[()]


def _mul24(signed: bool) -> Callable[[Any, Any], Any]:
    def run(a: Any, b: Any) -> Any:
        if signed:
            a, b = (np.asarray(x, np.int32) << np.int32(8) >> np.int32(8) for x in (a, b))
        else:
            a, b = (np.asarray(x, np.uint32) & np.uint32(0xFFFFFF) for x in (a, b))
        return (a * b)[()]

    return run


def _funnel(left: bool, clamp: bool) -> Callable[[Any, Any, Any], Any]:
    def run(lo: Any, hi: Any, count: Any) -> Any:
        wide = (np.asarray(hi, np.uint64) << np.uint64(32)) | np.asarray(lo, np.uint64)
        shift = np.minimum(count, 32) if clamp else np.asarray(count) & 31
        shift = np.asarray(shift).astype(np.uint64)
        return ((wide << shift >> np.uint64(32)) if left else (wide >> shift) & np.uint64(0xFFFFFFFF))[()]

    return run


def _byte_perm(a: Any, b: Any, selector: Any) -> Any:
    wide = np.asarray(a, np.uint64) | (np.asarray(b, np.uint64) << np.uint64(32))
    result = np.uint64(0) * wide
    for i in range(4):
        which = (np.asarray(selector, np.uint64) >> np.uint64(4 * i)) & np.uint64(7)
        result = result | (((wide >> (which * np.uint64(8))) & np.uint64(0xFF)) << np.uint64(8 * i))
    return result[()]


def _dp4a(code: Calls, node: ir.Call, _name: str) -> Eval:
    type_ = node.type if node.type in (I32, U32) else I32
    args = [code.expr(a) if isinstance(a.type, Struct) else code.converted(a, type_) for a in node.args]
    lanes = np.int8 if type_ is I32 else np.uint8

    def packed(f: Frame, x: Any) -> Any:
        if type(x) is dict:
            x = np.stack([spread(x[n], f.n).astype(lanes) for n in "xyzw"], axis=1).view(v.DTYPES[type_]).reshape(-1)
        return spread(x, f.n)

    def run(f: Frame) -> Any:
        a, b, c = (packed(f, x(f)) for x in args)
        parts = a.view(lanes).reshape(-1, 4).astype(np.int64) * b.view(lanes).reshape(-1, 4).astype(np.int64)
        return (parts.sum(axis=1) + c).astype(v.DTYPES[type_])

    return run


def _reinterpret(source: Type, target: Type) -> Any:
    def handler(code: Calls, node: ir.Call, _name: str) -> Eval:
        value = code.converted(node.args[0], source)
        dtype = v.DTYPES[target]
        return lambda f: _view(value(f), dtype)

    return handler


def _view(x: Any, dtype: np.dtype[Any]) -> Any:
    return np.asarray(x).view(dtype)[()]


def _rounded(target: Type, how: str) -> Any:
    """``__float2int_rd`` and the like."""
    function: Any = {"rn": np.rint, "rz": np.trunc, "ru": np.ceil, "rd": np.floor}[how]

    def handler(code: Calls, node: ir.Call, name: str) -> Eval:
        value = code.expr(node.args[0])

        def run(f: Frame) -> Any:
            x = value(f)
            if not hasattr(x, "dtype"):
                raise Unsupported(f"'{name}' of such a value")
            return convert(function(x) if x.dtype.kind == "f" else x, target)

        return run

    return handler


def _to(target: Type) -> Any:
    """A plain conversion by a function's name."""

    def handler(code: Calls, node: ir.Call, _name: str) -> Eval:
        return code.converted(node.args[0], target)

    return handler


def _predicate(function: Callable[[Any], Any]) -> Any:
    def handler(code: Calls, node: ir.Call, name: str) -> Eval:
        value = code.expr(node.args[0])

        def run(f: Frame) -> Any:
            x = value(f)
            if not hasattr(x, "dtype"):
                raise Unsupported(f"'{name}' of such a value")
            return scalar(function(x if x.dtype.kind == "f" else x.astype(np.float64)))

        return run

    return handler


# Half precision.


def _halves(function: Callable[..., Any]) -> Any:
    """Arithmetic on half, bfloat16 or pairs of them, element by element."""

    def handler(code: Calls, node: ir.Call, name: str) -> Eval:
        args = [code.expr(a) for a in node.args]
        brain = node.type is BF16 or (isinstance(node.type, Struct) and "bfloat" in node.type.name)

        def one(*values: Any) -> Any:
            result = scalar(function(*values))
            if result.dtype == np.bool_:
                return result
            return v.to_bfloat(result) if brain else result.astype(np.float16)

        def run(f: Frame) -> Any:
            found = [a(f) for a in args]
            if all(type(x) is dict for x in found):
                return {field: one(*[x[field] for x in found]) for field in found[0]}
            if any(not hasattr(x, "dtype") for x in found):
                raise Unsupported(f"'{name}' of such values")
            return one(*found)

        return run

    return handler


def _pair(brain: bool, _count: int) -> Any:
    """A pair of halves from two floats or halves, or from one, twice."""
    type_ = BF16 if brain else F16

    def handler(code: Calls, node: ir.Call, _name: str) -> Eval:
        args = [code.expr(a) for a in node.args]

        def run(f: Frame) -> Any:
            found = [a(f) for a in args]
            if type(found[0]) is dict:
                return {n: convert(x, type_) for n, x in found[0].items()}
            return {"x": convert(found[0], type_), "y": convert(found[-1], type_)}

        return run

    return handler


def _of_pair(field: str | None, type_: Type) -> Any:
    """A half of a pair, or both as floats."""

    def handler(code: Calls, node: ir.Call, name: str) -> Eval:
        value = code.expr(node.args[0])

        def run(f: Frame) -> Any:
            pair = value(f)
            if type(pair) is not dict:
                raise Unsupported(f"'{name}' of no pair")
            return convert(pair[field], type_) if field else {n: convert(x, type_) for n, x in pair.items()}

        return run

    return handler


# Textures.


def _texture(code: Calls, node: ir.Call, name: str) -> Eval:
    """A fetch from a texture: input data of which no more is known than that it depends on the place, as filled by
    hash as that of buffers is. A place outside is none: the hardware clamps it, wraps it or gives zero."""
    type_, source = node.type, node.args[0]
    fields = dict(type_.fields or {}) if isinstance(type_, Struct) else {"": type_}
    if not fields or not all(isinstance(t, (Int, Float)) for t in fields.values()):
        return code.refuse(node, f"'{name}' of '{type_}'")
    handle = None if isinstance(source, ir.Ref) and isinstance(source.type, Struct) else code.expr(source)
    seed = zlib.crc32(source.var.name.encode()) if isinstance(source, ir.Ref) else 0
    places = [code.converted(a, F64) for a in node.args[1:]]

    def run(f: Frame) -> Any:
        key = np.full(f.n, seed, np.uint64) if handle is None else spread(handle(f), f.n).astype(np.uint64)
        for place in places:
            key = hashed(0, key ^ spread(place(f), f.n).view(np.uint64))
        found = {n: hash_values(number, key, v.dtype_of(t)) for number, (n, t) in enumerate(fields.items())}
        return found if isinstance(type_, Struct) else found[""]

    return run


# Memory.


def _element(node: ir.Expr, _code: Calls) -> Type:
    type_ = node.type
    if isinstance(type_, (Ptr, Array)):
        return type_.element
    raise Unsupported(f"a pointer of type '{type_}'")


def _load(code: Calls, node: ir.Call, _name: str) -> Eval:
    pointer, site = code.expr(node.args[0]), code.site(node)
    type_ = node.type if isinstance(node.type, (Int, Float, Struct, Ptr)) else _element(node.args[0], code)
    return lambda f: MemoryPlace(pointed(pointer(f)), type_).load(f, site)


def _store(code: Calls, node: ir.Call, _name: str) -> Eval:
    pointer, site = code.expr(node.args[0]), code.site(node)
    type_ = _element(node.args[0], code)
    value = code.initial(node.args[1], type_)

    def run(f: Frame) -> Any:
        MemoryPlace(pointed(pointer(f)), type_).store(f, value(f), site)

    return run


def _out(code: Calls, node: ir.Expr) -> Callable[[Frame, Any], None]:
    """Stores through a pointer argument (``sincosf(x, &s, &c)``)."""
    pointer, site = code.expr(node), code.site(node)
    type_ = _element(node, code)
    return lambda f, x: MemoryPlace(pointed(pointer(f)), type_).store(f, convert(x, type_), site)


def _sincos(code: Calls, node: ir.Call, name: str) -> Eval:
    value = code.converted(node.args[0], F64 if name in ("sincos", "sincospi") else F32)
    sine, cosine = _out(code, node.args[1]), _out(code, node.args[2])
    scale = math.pi if "pi" in name else 1.0

    def run(f: Frame) -> Any:
        x = value(f) * scale if scale != 1.0 else value(f)
        sine(f, np.sin(x))
        cosine(f, np.cos(x))

    return run


def _modf(code: Calls, node: ir.Call, _name: str) -> Eval:
    type_ = node.type if isinstance(node.type, Float) else F64
    value, whole = code.converted(node.args[0], type_), _out(code, node.args[1])

    def run(f: Frame) -> Any:
        x = value(f)
        part = np.trunc(x)
        whole(f, part)
        return x - part

    return run


def _ldexp(code: Calls, node: ir.Call, _name: str) -> Eval:
    type_ = node.type if isinstance(node.type, Float) else F64
    value, power = code.converted(node.args[0], type_), code.converted(node.args[1], I32)
    return lambda f: np.ldexp(value(f), power(f))


def _swap(code: Calls, node: ir.Call, _name: str) -> Eval:
    first, second = code.place(node.args[0]), code.place(node.args[1])
    site = code.site(node)

    def run(f: Frame) -> Any:
        a, b = first(f), second(f)
        x, y = a.load(f, site), b.load(f, site)
        a.store(f, y, site)
        b.store(f, x, site)

    return run


def _same(code: Calls, node: ir.Call, _name: str) -> Eval:
    return code.expr(node.args[0])


# Atomics.


def _atomic(code: Calls, node: ir.Call, name: str) -> Eval:
    kind = re.sub(r"^atomic|_block$|_system$", "", name)
    pointer_node = node.args[0]
    type_ = _element(pointer_node, code)
    if isinstance(type_, Struct):
        return code.refuse(node, f"'{name}' on '{type_}'")
    if not isinstance(type_, (Int, Float)):
        return code.refuse(node, f"'{name}' on '{type_}'")
    pointer = code.expr(pointer_node)
    operands = [code.converted(a, type_) for a in node.args[1:3]]
    if not operands:
        raise IndexError
    site = code.site(node)
    machine = code.machine
    dtype = v.dtype_of(type_)

    def run(f: Frame) -> Any:
        given = [spread(x(f), f.n) for x in operands]
        where = pointed(pointer(f))

        def operation(view: Any, index: Any, lanes: Any) -> Any:
            old = atomic(kind, view, index, [x[lanes] for x in given], dtype)
            if machine.tracking and not machine.changed:
                machine.changed = kind != "CAS" and bool(np.any(view[index] != old))
                if kind == "CAS":
                    machine.changed = bool(np.any((old == given[0][lanes]) & (given[0][lanes] != given[1][lanes])))
            return old

        return machine.memory.atomic(f, where, type_, operation, site, kind != "Exch")

    return run


_COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "Add": lambda old, x: old + x, "Sub": lambda old, x: old - x, "Exch": lambda old, x: x,
    "Min": lambda old, x: np.minimum(old, x), "Max": lambda old, x: np.maximum(old, x),
    "And": lambda old, x: old & x, "Or": lambda old, x: old | x, "Xor": lambda old, x: old ^ x,
    "Inc": lambda old, x: np.where(old >= x, old.dtype.type(0), old + old.dtype.type(1)),
    "Dec": lambda old, x: np.where((old == 0) | (old > x), x, old - old.dtype.type(1)),
}  # fmt: skip


def atomic(kind: str, view: Any, index: Any, operands: list[Any], dtype: np.dtype[Any]) -> Any:
    """Apply an atomic at ``view[index]``, lane by lane in order; gives what each lane found there."""
    combine = _COMBINE.get(kind)
    if combine is None and kind != "CAS":
        raise Unsupported(f"atomic{kind}")
    x = operands[0]
    count = len(index)
    order = np.argsort(index, kind="stable")
    placed = index[order]
    first = np.ones(count, bool)
    first[1:] = placed[1:] != placed[:-1]
    if first.all():
        old = view[index]
        view[index] = _stepped(kind, old, operands)
        return old
    if kind in ("Add", "Sub") and dtype.kind in "iu":
        # Old values are what stood there plus a running sum within each group of equal indices.
        value = x[order] if kind == "Add" else -x[order]
        total = np.cumsum(value, dtype=dtype)
        starts = np.flatnonzero(first)
        group = np.cumsum(first) - 1
        before = total - value
        base = before[starts][group]
        old_sorted = view[placed] + (before - base)
        old = np.empty(count, dtype)
        old[order] = old_sorted
        np.add.at(view, index, x if kind == "Add" else -x)
        return old
    starts = np.flatnonzero(first)
    rank = np.arange(count) - starts[np.cumsum(first) - 1]
    rounds = int(rank.max()) + 1
    old = np.empty(count, dtype)
    if rounds <= 64:
        for turn in range(rounds):
            lanes = order[rank == turn]
            where = index[lanes]
            found = view[where]
            old[lanes] = found
            view[where] = _stepped(kind, found, [o[lanes] for o in operands])
        return old
    # Many lanes at few places: group by group.
    if kind in ("Min", "Max", "And", "Or", "Xor", "Add", "Sub"):
        function: Any = {
            "Min": np.minimum, "Max": np.maximum, "And": np.bitwise_and, "Or": np.bitwise_or, "Xor": np.bitwise_xor,
            "Add": np.add, "Sub": np.add,
        }[kind]  # fmt: skip
        ends = np.append(starts[1:], count)
        for a, b in zip(starts, ends):
            lanes = order[a:b]
            where = int(index[lanes[0]])
            values = -x[lanes] if kind == "Sub" else x[lanes]
            run = function.accumulate(np.concatenate([view[where : where + 1], values]), dtype=dtype)
            old[lanes] = run[:-1]
            view[where] = run[-1]
        return old
    for lane in order:
        where = int(index[lane])
        found = view[where]
        old[lane] = found
        view[where] = _stepped(kind, found, [o[lane] for o in operands])
    return old


def _stepped(kind: str, old: Any, operands: list[Any]) -> Any:
    if kind == "CAS":
        return np.where(old == operands[0], operands[1], old)
    return _COMBINE[kind](old, operands[0])


# Barriers, checks, output.


def _barrier(code: Calls, node: ir.Call, name: str) -> Eval:
    site, machine = code.site(node), code.machine
    if name == "__barrier_sync" and not (isinstance(node.args[0], ir.Const)):
        return code.refuse(node, "a barrier whose number is not constant")
    if name.startswith("__syncthreads_"):
        cond = code.condition(node.args[0])
        kind = name.rpartition("_")[2]

        def counted(f: Frame) -> Any:
            truth = spread(cond(f), f.n)
            machine.barrier(f, site)
            blocks = f.lanes() // machine.threads_per_block
            votes = np.bincount(blocks, weights=truth, minlength=len(machine.batch)).astype(np.int32)
            here = np.bincount(blocks, minlength=len(machine.batch)).astype(np.int32)
            result = votes if kind == "count" else (votes > 0) if kind == "or" else (votes == here)
            result = result.astype(np.int32)
            return result[0] if len(result) == 1 else result[blocks]

        return counted
    return lambda f: machine.barrier(f, site)


def _syncwarp(code: Calls, node: ir.Call, name: str) -> Eval:
    machine, site = code.machine, code.site(node)
    mask = code.converted(node.args[0], U32) if node.args else None

    def run(f: Frame) -> Any:
        warps.check_mask(f, mask(f) if mask is not None else np.uint32(0xFFFFFFFF), name, site)
        machine.warp_barrier(f)

    return run


def _nothing(code: Calls, node: ir.Call, _name: str) -> Eval:
    args = [code.effect(a) for a in node.args]

    def run(f: Frame) -> Any:
        for each in args:
            each(f)

    return run


def _trap(_code: Calls, _node: ir.Call, name: str) -> Eval:
    def run(_f: Frame) -> Any:
        raise Stop("fault", f"'{name}'")

    return run


def _assert(code: Calls, node: ir.Call, _name: str) -> Eval:
    from cudalint.frontend.stated import stated

    cond, site, machine = code.condition(node.args[0]), code.site(node), code.machine
    at, _ = site.file.origin(node.start, node.end)
    if any(each.start <= at < each.end for each in stated(site.file.raw)):
        return lambda f: None  # what a comment states stops nobody

    def run(f: Frame) -> Any:
        truth = cond(f)
        if not np.all(truth):
            lanes = np.flatnonzero(~truth) if type(truth) is np.ndarray else np.arange(f.n)
            machine.failed.extend((f.thread(int(lane)), site) for lane in lanes[:16])
            raise Stop("fault", "an assertion failed")

    return run


def _clock(code: Calls, node: ir.Call, _name: str) -> Eval:
    type_ = node.type if isinstance(node.type, Int) else I64
    machine = code.machine

    def run(_f: Frame) -> Any:
        machine.clock += 100
        machine.changed = True
        return v.DTYPES[type_].type(machine.clock)

    return run


_FORMAT = re.compile(r"%([-+ #0]*)(\*|\d+)?(?:\.(\d+))?(?:hh|h|ll|l|z|j|t|L)?([diouxXeEfFgGcspaA%])")
_PRINTED = 4096


def _printf(code: Calls, node: ir.Call, _name: str) -> Eval:
    format_ = code.expr(node.args[0])
    args = [code.expr(a) for a in node.args[1:]]
    machine = code.machine

    def run(f: Frame) -> Any:
        text = format_(f)
        found = [a(f) for a in args]
        if not isinstance(text, str):
            raise Unsupported("printf with a format that is no literal")
        try:
            body = text.encode("latin-1", "replace").decode("unicode_escape")
        except UnicodeDecodeError:
            body = text
        for lane in range(f.n):
            if len(machine.printed) >= _PRINTED:
                break
            items = [x[lane] if type(x) is np.ndarray else x for x in found]
            machine.printed.append(_formatted(body, items))
        return np.int32(len(args))

    return run


def _formatted(text: str, items: list[Any]) -> str:
    left = list(items)

    def one(match: re.Match[str]) -> str:
        flags, width, precision, kind = match.groups()

        if kind == "%":
            return "%"
        if width == "*" and left:
            width = str(int(left.pop(0)))
        if not left:
            return match.group(0)
        item = left.pop(0)
        spec = "%" + (flags or "") + (width or "") + (f".{precision}" if precision else "")
        try:
            if kind in "diu":
                return (spec + "d") % (int(item),)
            if kind in "oxX":
                value = int(item)
                return (spec + kind) % (value if value >= 0 else value + (1 << (8 * item.dtype.itemsize)))
            if kind == "c":
                return (spec + "c") % chr(int(item) & 0xFF)
            if kind == "s":
                return str(spec + "s") % (item,)
            if kind == "p":
                return hex(int(item))
            return (spec + ("e" if kind in "aA" else kind)) % float(item)
        except (TypeError, ValueError, OverflowError):
            return str(item)

    result: str = _FORMAT.sub(one, text)
    return result


_HANDLERS: dict[str, Any] = {
    **dict.fromkeys(_REAL, _real),
    **dict.fromkeys(("tex1Dfetch", "tex1D", "tex2D", "tex3D"), _texture),
    **dict.fromkeys(("min", "max", "umin", "umax", "llmin", "llmax", "ullmin", "ullmax"), _extremum),
    **dict.fromkeys(("abs", "labs", "llabs"), _abs),
    "clamp": _clamp, "swap": _swap, "forward": _same, "move": _same, "ref": _same, "__builtin_expect": _same,
    "__builtin_assume_aligned": _same, "__popc": _typed(popcount, U32, I32), "__popcll": _typed(popcount, U64, I32),
    "__clz": _typed(_clz(32), U32, I32), "__clzll": _typed(_clz(64), U64, I32), "__ffs": _typed(_ffs, U32, I32),
    "__ffsll": _typed(_ffs, U64, I32), "__brev": _typed(_brev(32), U32), "__brevll": _typed(_brev(64), U64),
    "__mulhi": _typed(_mulhi, I32), "__umulhi": _typed(_mulhi, U32), "__umul64hi": _typed(_umul64hi, U64),
    "__mul64hi": _typed(_mul64hi, I64), "__mul24": _typed(_mul24(True), I32), "__umul24": _typed(_mul24(False), U32),
    "__funnelshift_l": _typed(_funnel(True, False), U32), "__funnelshift_r": _typed(_funnel(False, False), U32),
    "__funnelshift_lc": _typed(_funnel(True, True), U32), "__funnelshift_rc": _typed(_funnel(False, True), U32),
    "__byte_perm": _typed(_byte_perm, U32), "__dp4a": _dp4a,
    "__usad": _typed(lambda a, b, c: np.maximum(a, b) - np.minimum(a, b) + c, U32),
    "__sad": _typed(lambda a, b, c: np.abs(np.asarray(a, np.int64) - b) + c, I32, U32),
    "__hadd": _halves(lambda a, b: a + b), "__hsub": _halves(lambda a, b: a - b), "__hmul": _halves(lambda a, b: a * b),
    "__hdiv": _halves(lambda a, b: a / b),
    "__hfma": _halves(lambda a, b, c: np.asarray(a, np.float32) * np.asarray(b, np.float32) + c),
    "__hneg": _halves(lambda a: -a), "__habs": _halves(np.abs), "__hmax": _halves(np.fmax), "__hmin": _halves(np.fmin),
    "__heq": _halves(np.equal), "__hne": _halves(np.not_equal), "__hlt": _halves(np.less),
    "__hle": _halves(np.less_equal), "__hgt": _halves(np.greater), "__hge": _halves(np.greater_equal),
    "__hisnan": _halves(np.isnan), "__hisinf": _halves(np.isinf),
    "__float_as_int": _reinterpret(F32, I32), "__float_as_uint": _reinterpret(F32, U32),
    "__int_as_float": _reinterpret(I32, F32), "__uint_as_float": _reinterpret(U32, F32),
    "__double_as_longlong": _reinterpret(F64, I64), "__longlong_as_double": _reinterpret(I64, F64),
    "__half_as_short": _reinterpret(F16, I16), "__half_as_ushort": _reinterpret(F16, U16),
    "__short_as_half": _reinterpret(I16, F16), "__ushort_as_half": _reinterpret(U16, F16),
    "__half2float": _to(F32), "__bfloat162float": _to(F32), "__float2half": _to(F16), "__float2half_rn": _to(F16),
    "__double2half": _to(F16), "__int2half_rn": _to(F16), "__float2bfloat16": _to(BF16),
    "__float2bfloat16_rn": _to(BF16),
    "__int2float_rn": _to(F32), "__int2float_rz": _to(F32), "__uint2float_rn": _to(F32), "__uint2float_rz": _to(F32),
    "__ll2float_rn": _to(F32), "__ull2float_rn": _to(F32), "__int2double_rn": _to(F64), "__uint2double_rn": _to(F64),
    "__double2float_rn": _to(F32), "__ll2double_rn": _to(F64),
    "__float2half2_rn": _pair(False, 1), "__floats2half2_rn": _pair(False, 2), "__half2half2": _pair(False, 1),
    "__halves2half2": _pair(False, 2), "__float22half2_rn": _pair(False, 1), "__float2bfloat162_rn": _pair(True, 1),
    "__float22bfloat162_rn": _pair(True, 1), "__low2float": _of_pair("x", F32), "__high2float": _of_pair("y", F32),
    "__half22float2": _of_pair(None, F32), "__bfloat1622float2": _of_pair(None, F32), "__low2half": _of_pair("x", F16),
    "__high2half": _of_pair("y", F16), "make_half2": _pair(False, 2),
    "isnan": _predicate(np.isnan), "isinf": _predicate(np.isinf), "isfinite": _predicate(np.isfinite),
    "signbit": _predicate(np.signbit), "__isnanf": _predicate(np.isnan),
    "lround": _rounded(I64, "rn"), "lrint": _rounded(I64, "rn"), "lrintf": _rounded(I64, "rn"),
    "llrint": _rounded(I64, "rn"), "llrintf": _rounded(I64, "rn"),
    **dict.fromkeys(("__ldg", "__ldcg", "__ldca", "__ldcs", "__ldlu", "__ldcv"), _load),
    **dict.fromkeys(("__stcg", "__stcs", "__stwb", "__stwt"), _store),
    **dict.fromkeys(("sincos", "sincosf", "__sincosf", "sincospi", "sincospif"), _sincos),
    "modf": _modf, "modff": _modf, "ldexp": _ldexp, "ldexpf": _ldexp, "scalbn": _ldexp, "scalbnf": _ldexp,
    **{f"atomic{op}{scope}": _atomic for op in (*_COMBINE, "CAS") for scope in ("", "_block", "_system")},
    **dict.fromkeys(
        ("__syncthreads", "__syncthreads_count", "__syncthreads_and", "__syncthreads_or", "__barrier_sync"), _barrier
    ),
    "__syncwarp": _syncwarp, "__trap": _trap, "assert": _assert, "printf": _printf,
    **dict.fromkeys(("clock", "clock64", "__clock", "__clock64", "globaltimer"), _clock),
    **dict.fromkeys(
        ("__threadfence", "__threadfence_block", "__threadfence_system", "__nanosleep", "__prof_trigger", "__brkpt",
         "__pipeline_commit", "__pipeline_wait_prior", "static_assert"), _nothing,
    ),
}  # fmt: skip
for _name in ("exp", "log", "sqrt", "rsqrt", "sin", "cos", "tanh", "exp2", "log2", "ceil", "floor", "trunc", "rint"):
    _HANDLERS[f"h{_name}"] = _HANDLERS[f"h2{_name}"] = _halves(
        (lambda g: lambda x: g(np.asarray(x, np.float32)[()]))(_REAL[_name])
    )
_HANDLERS["hrcp"] = _HANDLERS["h2rcp"] = _halves(lambda x: x.dtype.type(1) / x)
for _name in ("add", "sub", "mul", "fma", "neg", "abs", "max", "min"):
    _HANDLERS[f"__h{_name}2"] = _HANDLERS[f"__h{_name}"]
_HANDLERS["__h2div"] = _HANDLERS["__hdiv"]
for _source in ("float", "double", "half", "bfloat16"):
    for _target, _type in (
        ("int", I32), ("uint", U32), ("ll", I64), ("ull", U64), ("short", I16), ("ushort", U16), ("char", I8),
        ("uchar", U8),
    ):  # fmt: skip
        for _mode in ("rn", "rz", "ru", "rd"):
            _HANDLERS[f"__{_source}2{_target}_{_mode}"] = _rounded(_type, _mode)
for _prefix, _real_type in (("f", F32), ("d", F64)):
    for _mode in ("rn", "rz", "ru", "rd"):
        for _name, _function in (("add", np.add), ("sub", np.subtract), ("mul", np.multiply), ("div", np.divide),
                                 ("sqrt", np.sqrt), ("rcp", lambda x: x.dtype.type(1) / x)):  # fmt: skip
            # Rounding other than to nearest is not modelled: the last bit may differ.
            if _mode == "rn":
                _HANDLERS[f"__{_prefix}{_name}_{_mode}"] = _typed(_function, _real_type)
        _HANDLERS[f"__fma{'f' if _prefix == 'f' else ''}_rn"] = _typed(_REAL["fma"], _real_type)
for _name in ("exp", "exp10", "log", "log2", "log10", "sin", "cos", "tan", "pow", "fdivide", "saturate"):
    _HANDLERS[f"__{_name}f"] = (lambda g: lambda code, node, name: _apply(code, node, g, F32))(_REAL[_name])
_HANDLERS["__frsqrt_rn"] = _typed(_REAL["rsqrt"], F32)
for _name in ("lround", "llround"):
    _HANDLERS[_name] = _HANDLERS[f"{_name}f"] = lambda code, node, name: (
        lambda value: lambda f: convert(_round(value(f)), I64)
    )(code.converted(node.args[0], F64))

_IMPURE = frozenset(
    {"swap", "__syncwarp", "__trap", "assert", "printf", "clock", "clock64", "__clock", "__clock64", "globaltimer"}
)


def is_pure(name: str) -> bool:
    """Whether a built-in function only computes a value (or reads memory through its pointer)."""
    if name.startswith(
        ("atomic", "__syncthreads", "__barrier", "__stc", "__stw", "sincos", "__sincos", "modf", "__threadfence")
    ):
        return False
    return (name in _HANDLERS and name not in _IMPURE) or (name.endswith("f") and name[:-1] in _REAL)
