"""C++ types as cudalint sees them: interned, comparable with ``is``, LP64 everywhere.

A type that cannot be resolved is :class:`Unknown` with the reason, never ``int``: a rule that
depends on it stays silent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from cudalint.ir.nodes import Expr

_T = TypeVar("_T", bound="Type")
_interned: dict[tuple[object, ...], Type] = {}


def _intern(cls: type[_T], *key: object) -> _T:
    identity = (cls, *key)
    found = _interned.get(identity)
    if found is None:
        found = _interned[identity] = object.__new__(cls)
    return found  # type: ignore[return-value]  # the key holds the class


class Type:
    """Base of all types. ``size`` is in bytes, or None where it is not known."""

    __slots__ = ()

    @property
    def size(self) -> int | None:
        return None

    def __str__(self) -> str:
        raise AssertionError("every type prints itself")

    def __repr__(self) -> str:
        return f"<{self}>"


class Int(Type):
    """An integer of ``bits`` bits; ``bool`` is ``Int(1, False)``."""

    __slots__ = ("bits", "hi", "lo", "signed")
    bits: int
    signed: bool
    lo: int
    hi: int

    def __new__(cls, bits: int, signed: bool) -> Int:
        self = _intern(cls, bits, signed)
        self.bits, self.signed = bits, signed
        self.lo = -(1 << (bits - 1)) if signed else 0
        self.hi = (1 << (bits - 1)) - 1 if signed else (1 << bits) - 1
        return self

    @property
    def size(self) -> int:
        return max(1, self.bits // 8)

    def wrap(self, value: int) -> int:
        """``value`` as this type holds it: modulo 2^bits, two's complement; ``bool`` is non-zero."""
        if self.lo <= value <= self.hi:
            return value
        if self.bits == 1:
            return 1
        value &= (1 << self.bits) - 1
        return value - (1 << self.bits) if value > self.hi else value

    def __str__(self) -> str:
        return _INT_NAMES[self.bits, self.signed]


_INT_NAMES = {
    (1, False): "bool",
    (8, True): "signed char",
    (8, False): "unsigned char",
    (16, True): "short",
    (16, False): "unsigned short",
    (32, True): "int",
    (32, False): "unsigned int",
    (64, True): "long long",
    (64, False): "unsigned long long",
    (128, True): "__int128",
    (128, False): "unsigned __int128",
}


class Float(Type):
    """A floating type of 16, 32 or 64 bits; ``name`` tells half from bfloat16."""

    __slots__ = ("bits", "name")
    bits: int
    name: str

    def __new__(cls, bits: int, name: str = "") -> Float:
        name = name or {16: "__half", 32: "float", 64: "double"}[bits]
        self = _intern(cls, bits, name)
        self.bits, self.name = bits, name
        return self

    @property
    def size(self) -> int:
        return self.bits // 8

    def __str__(self) -> str:
        return self.name


class Void(Type):
    __slots__ = ()

    def __new__(cls) -> Void:
        return _intern(cls)

    def __str__(self) -> str:
        return "void"


class Ptr(Type):
    """A pointer. Which memory it points into is a fact of its value, not of its type."""

    __slots__ = ("element",)
    element: Type

    def __new__(cls, element: Type) -> Ptr:
        self = _intern(cls, element)
        self.element = element
        return self

    @property
    def size(self) -> int:
        return 8

    def __str__(self) -> str:
        return f"{self.element}*"


class Array(Type):
    """An array of ``extent`` elements: an int when it is known, None for ``[]``, else its expression."""

    __slots__ = ("element", "extent")
    element: Type
    extent: int | Expr | None

    def __new__(cls, element: Type, extent: int | Expr | None) -> Array:
        key = extent if extent is None or isinstance(extent, int) else ("expr", id(extent))
        self = _intern(cls, element, key)
        self.element, self.extent = element, extent
        return self

    @property
    def size(self) -> int | None:
        inner = self.element.size
        if inner is None or not isinstance(self.extent, int):
            return None
        return inner * self.extent

    def __str__(self) -> str:
        return f"{self.element}[{self.extent if isinstance(self.extent, int) else ''}]"


class Struct(Type):
    """A class type. ``fields`` maps names to types in order; None when the body was not seen. ``defaults`` are
    what some of them start as where nothing else is said; ``fixed`` are the const ones, ``refs`` the references;
    ``bases`` the classes it is made of. ``built`` tells of a constructor of its own: what that leaves in a field is for
    it to say.

    Instances are made by :func:`struct` (interned by qualified name and declaring file), so two
    projects' ``Params`` never mix.
    """

    __slots__ = ("align", "bases", "built", "defaults", "fields", "fixed", "key", "name", "packed_size", "refs")
    name: str
    key: object
    fields: dict[str, Type] | None
    packed_size: int | None
    align: int | None
    defaults: dict[str, Expr]
    fixed: set[str]
    refs: set[str]
    bases: list[Struct]
    built: bool

    def __new__(cls, name: str, key: object = None) -> Struct:
        self = _intern(cls, name, key)
        if not hasattr(self, "name"):
            self.name, self.key, self.fields, self.packed_size, self.align = name, key, None, None, None
            self.defaults, self.fixed, self.refs, self.bases, self.built = {}, set(), set(), [], False
        return self

    @property
    def size(self) -> int | None:
        return self.packed_size

    def __str__(self) -> str:
        return self.name


class Param(Type):
    """A template type parameter that no visible use binds."""

    __slots__ = ("name",)
    name: str

    def __new__(cls, name: str) -> Param:
        self = _intern(cls, name)
        self.name = name
        return self

    def __str__(self) -> str:
        return self.name


class Unknown(Type):
    """A type that could not be resolved, with the reason in words (``member of an unseen class``)."""

    __slots__ = ("why",)
    why: str

    def __new__(cls, why: str) -> Unknown:
        self = _intern(cls, why)
        self.why = why
        return self

    def __str__(self) -> str:
        return f"unknown ({self.why})"


BIT_FIELD = Unknown("bit-field")
"""The type of a member of less than its type's bits: neither its width nor its place is modelled."""
BOOL = Int(1, False)
I8, U8 = Int(8, True), Int(8, False)
I16, U16 = Int(16, True), Int(16, False)
I32, U32 = Int(32, True), Int(32, False)
I64, U64 = Int(64, True), Int(64, False)
F16, BF16, F32, F64 = Float(16), Float(16, "__nv_bfloat16"), Float(32), Float(64)
VOID = Void()


def _vector(name: str, element: Type, lanes: int) -> Struct:
    result = Struct(name)
    result.fields = dict.fromkeys("xyzw"[:lanes], element)
    assert element.size is not None
    result.packed_size = element.size * lanes
    # CUDA aligns vectors of 2 and 4 lanes to their size, at most 16 bytes; 3 lanes to one element.
    result.align = element.size if lanes in (1, 3) else min(16, element.size * lanes)
    return result


DIM3 = _vector("dim3", U32, 3)
EXTENT = Struct("cudaExtent")
EXTENT.fields, EXTENT.packed_size, EXTENT.align = {"width": U64, "height": U64, "depth": U64}, 24, 8

#: CUDA's built-in vector types by name (``float4``, ``uint3``, ``longlong2`` ...).
VECTORS: dict[str, Struct] = {
    f"{base}{lanes}": _vector(f"{base}{lanes}", element, lanes)
    for base, element in {
        "char": I8, "uchar": U8, "short": I16, "ushort": U16, "int": I32, "uint": U32,
        "long": I64, "ulong": U64, "longlong": I64, "ulonglong": U64, "float": F32, "double": F64,
    }.items()
    for lanes in (1, 2, 3, 4)
}  # fmt: skip
VECTORS["half2"] = VECTORS["__half2"] = _vector("__half2", F16, 2)
VECTORS["nv_bfloat162"] = VECTORS["__nv_bfloat162"] = _vector("__nv_bfloat162", BF16, 2)

#: Names that need no header of the project: built-in typedefs of C, C++, CUDA and common platforms.
BUILTIN_NAMES: dict[str, Type] = {
    "void": VOID, "bool": BOOL, "char": I8, "int8_t": I8, "uint8_t": U8, "uchar": U8, "u_char": U8,
    "int16_t": I16, "uint16_t": U16, "ushort": U16, "int32_t": I32, "uint32_t": U32, "int": I32,
    "uint": U32, "u_int": U32, "int64_t": I64, "uint64_t": U64, "size_t": U64, "ssize_t": I64,
    "ptrdiff_t": I64, "intptr_t": I64, "uintptr_t": U64, "ulong": U64, "long": I64,
    "unsigned": U32, "signed": I32, "short": I16,
    "float": F32, "double": F64, "half": F16, "__half": F16, "nv_bfloat16": BF16,
    "__nv_bfloat16": BF16, "wchar_t": I32, "clock_t": I64, "time_t": I64, "dim3": DIM3,
    "cudaError_t": I32, "cudaError": I32, "char16_t": U16, "char32_t": U32, "cudaTextureObject_t": U64,
    "cudaSurfaceObject_t": U64, "cudaMemcpyKind": I32, "cudaDeviceProp": Struct("cudaDeviceProp"),
    "hipDeviceProp_t": Struct("cudaDeviceProp"), "cudaExtent": EXTENT,
    **VECTORS,
}  # fmt: skip


def promote(type_: Type) -> Type:
    """Integral promotion: every integer narrower than ``int`` becomes ``int``."""
    if isinstance(type_, Int) and type_.bits < 32:
        return I32
    return type_


def common(a: Type, b: Type) -> Type:
    """The usual arithmetic conversions of C++ for ``a op b``; Unknown or Param where either is."""
    if isinstance(a, (Unknown, Param)) and not (isinstance(b, Float) and b.bits == 64):
        return a
    if isinstance(b, (Unknown, Param)) and not (isinstance(a, Float) and a.bits == 64):
        return b
    if isinstance(a, Float) and isinstance(b, Float):
        return a if a.bits >= b.bits else b
    if isinstance(a, Float):
        return a
    if isinstance(b, Float):
        return b
    if not (isinstance(a, Int) and isinstance(b, Int)):
        return Unknown("arithmetic on a class type")
    a, b = promote(a), promote(b)
    assert isinstance(a, Int)
    assert isinstance(b, Int)
    if a.bits != b.bits:
        return a if a.bits > b.bits else b
    return a if not a.signed else b
