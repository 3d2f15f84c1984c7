"""Values in the simulator: NumPy scalars where all lanes agree, arrays with one entry a lane otherwise.

The arithmetic is that of the device: integers of exact width that wrap, shifts that clamp, conversions
from floating point that saturate. What C++ leaves undefined is reported to the caller, who makes an
event of it, and then computed as the hardware does.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cudalint.frontend.typing import alignment
from cudalint.ir.types import (
    BF16,
    BIT_FIELD,
    BOOL,
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
    Array,
    Float,
    Int,
    Ptr,
    Struct,
    Type,
)

#: A NumPy scalar (the same in all lanes), an array (one entry a lane), a dict (a class's fields), a list (the
#: elements of an array in a class), or an object of the simulator (a group, a lambda).
Value = Any
Lanes = "np.ndarray[Any, Any]"


class Unsupported(Exception):
    """Something the simulator does not model. ``site`` is filled in where it is caught first."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what
        self.line: int | None = None


class Stop(Exception):
    """The kernel ends here: ``end`` is as in an observation, ``reason`` says why in words."""

    def __init__(self, end: str, reason: str) -> None:
        super().__init__(reason)
        self.end, self.reason = end, reason


DTYPES: dict[Type, np.dtype[Any]] = {
    BOOL: np.dtype(np.bool_), I8: np.dtype(np.int8), U8: np.dtype(np.uint8), I16: np.dtype(np.int16),
    U16: np.dtype(np.uint16), I32: np.dtype(np.int32), U32: np.dtype(np.uint32), I64: np.dtype(np.int64),
    U64: np.dtype(np.uint64), F16: np.dtype(np.float16), F32: np.dtype(np.float32), F64: np.dtype(np.float64),
    BF16: np.dtype(np.float32),
}  # fmt: skip
#: The types of values whose static type is not known.
TYPES: dict[np.dtype[Any], Type] = {dtype: type_ for type_, dtype in DTYPES.items() if type_ is not BF16}
ADDRESS = np.dtype(np.int64)
_LIMITS = {d: (int(np.iinfo(d).min), int(np.iinfo(d).max)) for d in DTYPES.values() if d.kind in "iu"}
_LIMITS[np.dtype(np.bool_)] = (0, 1)


def dtype_of(type_: Type) -> np.dtype[Any]:
    """The dtype that holds a scalar of ``type_`` in a register."""
    found = DTYPES.get(type_)
    if found is not None:
        return found
    if isinstance(type_, (Ptr, Array)):
        return ADDRESS
    raise no_value(type_)


def no_value(type_: Type) -> Unsupported:
    """That the simulator has no values of this type."""
    return Unsupported("bit-field" if type_ is BIT_FIELD else f"a value of type '{type_}'")


def memory_dtype(type_: Type) -> np.dtype[Any]:
    """The dtype that holds a scalar of ``type_`` in memory."""
    return np.dtype(np.uint16) if type_ is BF16 else dtype_of(type_)


def is_scalar(type_: Type) -> bool:
    return isinstance(type_, (Int, Float, Ptr))


def offsets(type_: Struct) -> dict[str, int]:
    """The byte offset of each field of a class; those of a union are all 0."""
    if type_.fields is None:
        raise Unsupported(f"the class '{type_}'")
    found = _layouts.get(type_)
    if found is not None and found[0] is type_.fields:  # a class of a file that was read again has others
        return found[1]
    at, widest, result = 0, 0, {}
    for name, field in type_.fields.items():
        size = field.size
        if size is None:
            raise Unsupported("bit-field" if field is BIT_FIELD else f"the layout of '{type_}'")
        align = alignment(field)
        at = -(-at // align) * align
        result[name] = at
        at += size
        widest = max(widest, size)
    align = max(1, type_.align or 1)
    if type_.packed_size is not None and -(-at // align) * align != type_.packed_size:
        if -(-widest // align) * align != type_.packed_size:
            raise Unsupported(f"the layout of '{type_}'")
        result = dict.fromkeys(result, 0)
    _layouts[type_] = type_.fields, result
    return result


_layouts: dict[Struct, tuple[dict[str, Type], dict[str, int]]] = {}


def is_union(type_: Struct) -> bool:
    if not type_.fields or len(type_.fields) < 2 or type_.packed_size is None:
        return False
    return not any(offsets(type_).values())


def lives_in_memory(type_: Type) -> bool:
    """Whether values of this type are addressed by index or by several types: arrays, unions, classes with one."""
    if isinstance(type_, Array):
        return True
    if isinstance(type_, Struct) and type_.fields:
        return any(lives_in_memory(field) for field in type_.fields.values()) or (
            type_.packed_size is not None and len(type_.fields) > 1 and _may_be_union(type_)
        )
    return False


def _may_be_union(type_: Struct) -> bool:
    try:
        return is_union(type_)
    except Unsupported:
        return False


def is_array(value: Value) -> bool:
    return type(value) is np.ndarray


def gather(value: Value, index: Any) -> Value:
    """``value`` in the lanes ``index`` alone."""
    kind = type(value)
    if kind is np.ndarray:
        return value[index]
    if kind is dict:
        return {name: gather(field, index) for name, field in value.items()}
    if kind is list:
        return [gather(item, index) for item in value]
    if hasattr(value, "gather"):
        return value.gather(index)
    return value


def merge(old: Value, new: Value, index: Any, lanes: int) -> Value:
    """``old`` with ``new`` in the lanes ``index``; neither is changed. ``old`` may be None (undefined)."""
    kind = type(new)
    if kind is dict:
        before = old if type(old) is dict else {}
        return {**before, **{name: merge(before.get(name), field, index, lanes) for name, field in new.items()}}
    if kind is list:
        items = old if type(old) is list and len(old) == len(new) else [None] * len(new)
        return [merge(a, b, index, lanes) for a, b in zip(items, new)]
    if kind is not np.ndarray and not isinstance(new, np.generic):
        if hasattr(new, "merge"):
            return new.merge(old, index, lanes)
        return new
    if old is None or not isinstance(old, (np.ndarray, np.generic)):
        result = np.zeros(lanes, new.dtype)
    elif type(old) is np.ndarray:
        result = old.copy() if old.dtype == new.dtype else old.astype(new.dtype)
    else:
        result = np.full(lanes, old, new.dtype)
    result[index] = new
    return result


def spread(value: Value, lanes: int) -> Any:
    """``value`` as an array of one entry a lane."""
    return value if type(value) is np.ndarray else np.full(lanes, value, value.dtype)


def low(value: Any) -> int:
    """The least value over the lanes."""
    if type(value) is np.ndarray:
        return int(np.minimum.reduce(value)) if value.size else 0
    return int(value)


def high(value: Any) -> int:
    """The greatest value over the lanes."""
    if type(value) is np.ndarray:
        return int(np.maximum.reduce(value)) if value.size else 0
    return int(value)


def as_truth(value: Any) -> Any:
    """A scalar as a condition."""
    if value.dtype == np.bool_:
        return value
    return value != value.dtype.type(0)


# Conversions.


def to_bfloat(value: Any) -> Any:
    """float32 rounded to the nearest bfloat16, ties to even."""
    bits = np.asarray(value, np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) & np.uint32(0xFFFF0000)
    rounded = np.where(np.isnan(np.asarray(value)), bits | np.uint32(0x400000), rounded)
    result = np.asarray(rounded, np.uint32).view(np.float32)
    return result if type(value) is np.ndarray else result[()]


def from_float(value: Any, type_: Int) -> Any:
    """A floating value as an integer: toward zero, saturated; NaN is 0. Narrow types go through 32 bits."""
    wide = type_ if type_.bits >= 32 else (I32 if type_.signed else U32)
    dtype = DTYPES[wide]
    lo, hi = _LIMITS[dtype]
    plain = value if type(value) is np.ndarray else value[None]
    if plain.dtype != np.float64:
        plain = plain.astype(np.float64)
    with np.errstate(invalid="ignore"):
        result = plain.astype(dtype)
        # float(hi) may be hi + 1: every double below it fits.
        top = float(hi) if wide.bits == 32 else float(hi + 1)
        over, under = plain >= top, plain <= float(lo)
        odd = over | under | np.isnan(plain)
        if odd.any():
            result[over], result[under], result[np.isnan(plain)] = hi, lo, 0
    if wide is not type_:
        result = result.astype(DTYPES[type_])
    return result if type(value) is np.ndarray else result[0]


def convert(value: Any, type_: Type) -> Any:
    """A scalar as ``type_`` holds it."""
    dtype = dtype_of(type_)
    have = getattr(value, "dtype", None)
    if have is None:
        raise Unsupported(f"a conversion to '{type_}'")
    if have == dtype:
        return to_bfloat(value) if type_ is BF16 else value
    if dtype == np.bool_:
        return value != have.type(0)
    if have.kind == "f" and dtype.kind in "iu":
        return from_float(value, type_ if isinstance(type_, Int) else I64)
    result = value.astype(dtype)
    return to_bfloat(result) if type_ is BF16 else result


def common_dtype(a: Any, b: Any) -> np.dtype[Any]:
    """The usual arithmetic conversions, from the values' own types."""
    from cudalint.ir.types import common

    type_ = common(TYPES[a.dtype], TYPES[b.dtype])
    return dtype_of(type_)


def limits(dtype: np.dtype[Any]) -> tuple[int, int]:
    """The least and greatest value of an integer dtype."""
    return _LIMITS[dtype]


# Integer arithmetic. Each returns (result, lanes that wrapped or None).


def add(a: Any, b: Any) -> tuple[Any, Any]:
    result = a + b
    if result.dtype.kind == "f" or _sum_fits(low(a), high(a), low(b), high(b), result.dtype):
        return result, None
    wrapped = ((a ^ result) & (b ^ result)) < 0 if result.dtype.kind == "i" else result < a
    return result, wrapped if np.any(wrapped) else None


def subtract(a: Any, b: Any) -> tuple[Any, Any]:
    result = a - b
    if result.dtype.kind == "f" or _sum_fits(low(a), high(a), -high(b), -low(b), result.dtype):
        return result, None
    wrapped = ((a ^ b) & (a ^ result)) < 0 if result.dtype.kind == "i" else b > a
    return result, wrapped if np.any(wrapped) else None


def _sum_fits(a0: int, a1: int, b0: int, b1: int, dtype: np.dtype[Any]) -> bool:
    lo, hi = _LIMITS[dtype]
    return a0 + b0 >= lo and a1 + b1 <= hi


def multiply(a: Any, b: Any) -> tuple[Any, Any]:
    result = a * b
    dtype = result.dtype
    if dtype.kind == "f":
        return result, None
    lo, hi = _LIMITS[dtype]
    corners = [x * y for x in (low(a), high(a)) for y in (low(b), high(b))]
    if min(corners) >= lo and max(corners) <= hi:
        return result, None
    if dtype.itemsize == 4:
        wide = np.multiply(a, b, dtype=np.int64 if dtype.kind == "i" else np.uint64)
        wrapped = wide != result
    else:
        # Exact where the quotient gives the operand back.
        safe = np.where(b == 0, dtype.type(1), b)
        quotient = divide(result, safe)[0]
        wrapped = (b != 0) & (quotient != a)
        if dtype.kind == "i":
            wrapped = wrapped | ((a == lo) & (b == -1)) | ((b == lo) & (a == -1))
    return result, wrapped if np.any(wrapped) else None


def divide(a: Any, b: Any) -> tuple[Any, Any]:
    """The quotient toward zero; lanes that divide by zero get all ones, as the hardware gives."""
    zero = b == 0
    none = not np.any(zero)
    divisor = b if none else np.where(zero, b.dtype.type(1), b)
    if a.dtype.kind == "u" or (low(a) >= 0 and low(divisor) >= 0):
        result = a // divisor
    else:
        result = (a - np.fmod(a, divisor)) // divisor
    if none:
        return result, None
    return np.where(zero, ~a.dtype.type(0), result), zero


def remainder(a: Any, b: Any) -> tuple[Any, Any]:
    """The remainder with the dividend's sign; by zero it is the dividend."""
    zero = b == 0
    none = not np.any(zero)
    divisor = b if none else np.where(zero, b.dtype.type(1), b)
    if a.dtype.kind == "u" or (low(a) >= 0 and low(divisor) >= 0):
        result = a - (a // divisor) * divisor
    else:
        result = np.fmod(a, divisor)
    if none:
        return result, None
    return np.where(zero, a, result), zero


def shift(op: str, a: Any, count: Any) -> Any:
    """A shift by ``count``, taken as 32-bit unsigned: by the width or more it leaves 0, or the sign."""
    count = count.astype(np.uint32)
    width = a.dtype.itemsize * 8
    if high(count) >= width:
        count = np.minimum(count, np.uint32(width))
        past = count >= width
        inside = np.where(past, np.uint32(0), count).astype(a.dtype)
        if op == "<<":
            return np.where(past, a.dtype.type(0), np.left_shift(a, inside))
        gone = np.where(a < 0, a.dtype.type(-1), a.dtype.type(0)) if a.dtype.kind == "i" else a.dtype.type(0)
        return np.where(past, gone, np.right_shift(a, inside))
    count = count.astype(a.dtype)
    return np.left_shift(a, count) if op == "<<" else np.right_shift(a, count)


def scalar(value: Any) -> Any:
    """0-dimensional arrays as NumPy scalars: what ``np.where`` makes of uniform operands."""
    return value[()] if type(value) is np.ndarray and value.ndim == 0 else value
