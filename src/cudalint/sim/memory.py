"""Byte-addressed memory of virtual pages: global buffers, shared and local arrays, all in one address space.

An address is a 64-bit integer: the number of an object above, a signed byte offset below. So pointers are
plain integers, pointer arithmetic is arithmetic, a ``reinterpret_cast`` changes nothing, and an access outside
of an object still knows which object it left. Shared and local objects have one copy a block or lane under
one address, as on the hardware.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from cudalint.ir.types import BF16, BOOL, Array, Float, Int, Ptr, Struct, Type
from cudalint.lazy import NamedTuple
from cudalint.sim.observe import Log, Misaligned, Outside, Race, Site, Uninitialised
from cudalint.sim.values import (
    Stop,
    Unsupported,
    dtype_of,
    high,
    low,
    memory_dtype,
    offsets,
    spread,
    to_bfloat,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudalint.sim.frame import Frame
    from cudalint.sim.machine import Machine

_SHIFT = 44
_HALF = 1 << (_SHIFT - 1)
#: Buffers up to so many bytes are one page; larger ones have pages of ``_PAGE`` bytes, made when touched.
_DENSE = 1 << 24
_PAGE = 1 << 20
#: Elements that are filled at a time.
_PIECE = 1 << 13
#: Bytes that a run may hold in pages, with what is known of their granules.
_MOST = 1 << 29
#: An access so many bytes outside of its buffer is taken as one that the hardware refuses.
FAR = 1 << 30
_THREAD_BITS, _WARP_BITS = 11, 18
_INTERVAL = _THREAD_BITS + _WARP_BITS

Array1 = Any
FillKind = Any


class Buffer(NamedTuple):
    """Global memory for a launch: ``extent`` elements of type ``element``.

    ``fill``: ``"hash"`` (a counter-based hash of the index: floats in [-1, 1), integers in [-100, 100] or, unsigned,
    [0, 100]), ``("hash", lo, hi)`` (the same, in [lo, hi)), ``"nan"`` (floats NaN, integers a sentinel), ``"index"``,
    a number, or an array of ``extent`` values. Nothing is stored until it is touched.
    """

    name: str
    element: Type
    extent: int
    fill: FillKind = "hash"


def sentinel(dtype: np.dtype[Any]) -> Any:
    """What ``"nan"`` puts into an integer: a pattern no kernel is likely to write."""
    if dtype.kind == "f":
        return dtype.type("nan")
    if dtype.kind == "b":
        return np.bool_(True)
    return np.frombuffer(b"\xa7\x5b\xc3\x95\x6d\xe1\x3a\xb9"[: dtype.itemsize], dtype)[0]


def hashed(seed: int, index: Array1) -> Array1:
    """A 64-bit hash of (seed, index) with well mixed bits (splitmix64), for any vector of indices."""
    x = np.asarray(index).astype(np.uint64)
    x += np.uint64((seed + 1) & 0xFFFFFFFFFFFFFFFF)
    x *= np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x ^= x >> np.uint64(shift)
        x *= np.uint64(factor)
    x ^= x >> np.uint64(31)
    return x


def hash_values(seed: int, index: Array1, dtype: np.dtype[Any], bounds: tuple[float, float] | None = None) -> Array1:
    """The values that the ``"hash"`` fill gives at ``index``; the same on every backend."""
    bits = hashed(seed, index)
    if dtype.kind == "f":
        if bounds is None and dtype.itemsize == 4:
            bits >>= np.uint64(40)
            result = bits.astype(np.float32)
            result *= np.float32(2.0**-23)
            result -= np.float32(1)
            return result
        unit = (bits >> np.uint64(40)).astype(np.float64) / float(1 << 24)
        lo, hi = bounds if bounds is not None else (-1.0, 1.0)
        return (lo + unit * (hi - lo)).astype(dtype)
    if dtype.kind == "b":
        return (bits >> np.uint64(63)).astype(bool)
    lo, hi = bounds if bounds is not None else ((-100, 101) if dtype.kind == "i" else (0, 101))
    span = max(1, int(hi) - int(lo))
    return (int(lo) + (bits >> np.uint64(11)).astype(np.int64) % span).astype(dtype)


#: Kind, lanes of the access, the stamps of the other ones and the numbers of their places.
Conflict = tuple[str, Any, Any, Any]
#: Reads kept before they are put in order.
_PENDING = 96
_NOBODY = (1 << 63) - 1
"""Higher than the number of any thread."""


class Stamped:
    """Of each granule the stamp of an access (-1: none) and the number of the place in the source that it stands at."""

    __slots__ = ("sites", "stamps")

    def __init__(self, granules: int) -> None:
        self.stamps: Array1 = np.full(granules, -1, np.int64)
        self.sites: Array1 = np.zeros(granules, np.int32)

    def note(self, index: Any, stamps: Array1, site: int) -> None:
        self.stamps[index] = stamps
        self.sites[index] = site


class Page:
    """A stretch of memory and what is known of each granule of it.

    ``first`` and ``second`` are threads that wrote a granule (-1: none), ``low`` and ``high`` the lowest and the
    highest that read it; ``writes``, ``reads``, ``others`` and ``atomics`` are stamps of accesses within a barrier
    interval, for races, with the numbers of their places; ``known`` tells what was written.
    """

    __slots__ = (
        "atomic_epoch", "atomics", "data", "first", "full", "granules", "high", "known", "low", "others", "pending",
        "read_epoch", "reads", "second", "views", "write_epoch", "writes",
    )  # fmt: skip

    def __init__(self, size: int, granule: int) -> None:
        # Rounded up, so that every view fits.
        self.data = np.zeros(-(-size // 16) * 16, np.uint8)
        self.granules = max(1, -(-len(self.data) // granule))
        self.views: dict[np.dtype[Any], Array1] = {}
        self.first: Array1 = None
        self.second: Array1 = None
        self.low: Array1 = None
        self.high: Array1 = None
        self.known: Array1 = None
        self.full = False
        self.writes: Stamped | None = None
        self.reads: Stamped | None = None
        self.others: Stamped | None = None
        self.atomics: Stamped | None = None
        self.pending: list[tuple[Array1, Array1, int]] = []
        self.read_epoch = self.write_epoch = self.atomic_epoch = -1

    def view(self, dtype: np.dtype[Any]) -> Array1:
        found = self.views.get(dtype)
        if found is None:
            found = self.views[dtype] = self.data.view(dtype)
        return found

    def wrote(self, index: Array1, threads: Array1, atomic: bool) -> None:
        """Note which threads wrote the granules ``index``."""
        if self.first is None:
            self.first = np.full(self.granules, -1, np.int64)
        # Backwards: of several lanes at one granule the first one stays.
        index, threads = index[::-1], threads[::-1]
        first = self.first
        before = first[index]
        fresh = before < 0
        if fresh.all():
            first[index] = threads
        elif fresh.any():
            first[index[fresh]] = threads[fresh]
        if atomic:
            return
        odd = first[index] != threads
        if odd.any():
            if self.second is None:
                self.second = np.full(self.granules, -1, np.int64)
            self.second[index[odd]] = threads[odd]

    def wrote_stretch(self, where: slice, threads: Array1) -> None:
        """The same for consecutive granules, a thread each."""
        if self.first is None:
            self.first = np.full(self.granules, -1, np.int64)
        if (self.first[where] < 0).all():
            self.first[where] = threads
        else:
            self.wrote(np.arange(where.start, where.stop), threads, False)

    def read_by(self, index: Array1, threads: Array1) -> None:
        """Note which threads read the granules ``index``."""
        if self.low is None or self.high is None:
            self.low, self.high = (np.full(self.granules, x, np.int64) for x in (_NOBODY, -1))
        np.minimum.at(self.low, index, threads)
        np.maximum.at(self.high, index, threads)

    # Accesses are compared within one epoch: the time between two barriers that all live threads passed.

    def race_read(self, index: Array1, stamps: Array1, epoch: int, site: int) -> list[Conflict]:
        """Note reads; the races with earlier writes that they are part of."""
        found: list[Conflict] = []
        if self.write_epoch == epoch:
            found += _against("write-read", self.writes, index, stamps)
        if self.atomic_epoch == epoch:
            found += _against("atomic-read", self.atomics, index, stamps)
        if self.read_epoch != epoch:
            self.pending.clear()
            self.read_epoch = epoch
            self.reads = self.others = None
        # Reads are put in order only where a write follows in the same epoch.
        self.pending.append((index, stamps, site))
        if len(self.pending) > _PENDING:
            self.settle()
        return found

    def settle(self) -> None:
        """Note the pending reads by granule: one reader, and another one."""
        for index, stamps, site in self.pending:
            if self.reads is None:
                self.reads = Stamped(self.granules)
            reads = self.reads
            if type(index) is not np.ndarray:
                index = np.full(len(stamps), index, np.int64)
            stale = (reads.stamps[index] ^ stamps) >> _INTERVAL != 0
            reads.note(index[stale], stamps[stale], site)
            odd = reads.stamps[index] != stamps
            if odd.any():
                if self.others is None:
                    self.others = Stamped(self.granules)
                self.others.note(index[odd], stamps[odd], site)
        self.pending.clear()

    def race_write(self, index: Array1, stamps: Array1, epoch: int, site: int) -> list[Conflict]:
        """Note plain writes; the races that they are part of."""
        found = self._after_reads("read-write", index, stamps, epoch)
        if self.atomic_epoch == epoch:
            found += _against("atomic-write", self.atomics, index, stamps)
        if self.writes is None:
            self.writes = Stamped(self.granules)
        if self.write_epoch == epoch:
            found += _against("write-write", self.writes, index, stamps)
        self.write_epoch = epoch
        self.writes.note(index, stamps, site)
        # Several lanes of this very access at one granule.
        return found + _against("write-write", self.writes, index, stamps)

    def race_atomic(self, index: Array1, stamps: Array1, epoch: int, site: int) -> list[Conflict]:
        found = self._after_reads("read-atomic", index, stamps, epoch)
        if self.write_epoch == epoch:
            found += _against("write-atomic", self.writes, index, stamps)
        if self.atomics is None:
            self.atomics = Stamped(self.granules)
        self.atomic_epoch = epoch
        self.atomics.note(index, stamps, site)
        return found

    def _after_reads(self, kind: str, index: Array1, stamps: Array1, epoch: int) -> list[Conflict]:
        if self.read_epoch != epoch:
            return []
        self.settle()
        return _against(kind, self.reads, index, stamps) + _against(kind, self.others, index, stamps)


def _against(kind: str, past: Stamped | None, index: Array1, stamps: Array1) -> list[Conflict]:
    if past is None:
        return []
    lanes, other = _conflicts(past.stamps[index], stamps)
    return [] if lanes is None else [(kind, lanes, other, spread(past.sites[index], len(stamps))[lanes])]


def _conflicts(past: Any, now: Array1) -> tuple[Any, Any]:
    """The lanes whose granule was accessed by another thread in the same interval, not ordered by a warp's sync."""
    differ = past ^ now
    lanes = np.flatnonzero((differ >> _INTERVAL == 0) & (differ != 0))
    if not len(lanes):
        return None, None
    other, mine = (past[lanes] if type(past) is np.ndarray else np.full(len(lanes), past)), now[lanes]
    thread_mask, warp_shift = (1 << _THREAD_BITS) - 1, 5
    apart = (other & thread_mask) != (mine & thread_mask)
    one_warp = (other & thread_mask) >> warp_shift == (mine & thread_mask) >> warp_shift
    ordered = one_warp & (other >> _THREAD_BITS != mine >> _THREAD_BITS)
    keep = apart & ~ordered
    if not keep.any():
        return None, None
    return lanes[keep], other[keep]


class Held:
    """How many bytes the pages of a run take. Each granule is taken to have ``notes`` numbers of 8 bytes."""

    __slots__ = ("bytes", "notes")

    def __init__(self, notes: int) -> None:
        self.bytes, self.notes = 0, notes

    def take(self, size: int, granule: int) -> None:
        """Count a page; Stop where that is more than a run may have."""
        self.bytes += size + size // granule * 8 * self.notes
        if self.bytes > _MOST:
            raise Stop("inconclusive", f"more than {_MOST >> 20} MB of memory in use")


class Object:
    """A piece of memory with an address. ``rows`` copies of ``size`` bytes each: one, or one a block or lane."""

    __slots__ = (
        "base",
        "element",
        "element_size",
        "fill",
        "granule",
        "held",
        "name",
        "paged",
        "pages",
        "row",
        "row_bytes",
        "seed",
        "size",
        "space",
        "version",
    )  # fmt: skip

    def __init__(
        self, name: str, space: str, element: Type, size: int, number: int, rows: int = 1, row: str = "",
        held: Held | None = None,
    ) -> None:  # fmt: skip
        self.held = held if held is not None else Held(0)
        self.name, self.space, self.element, self.size = name, space, element, size
        self.base = (number << _SHIFT) + _HALF
        self.row = row
        while space != "global" and isinstance(element, Array):
            element = element.element
        self.granule = granule_of(element)
        self.element_size = element.size or 1
        self.seed = zlib.crc32(name.encode())
        self.fill: FillKind = None
        self.row_bytes = -(-size // 16) * 16
        self.pages: dict[int, Page] = {}
        self.paged = space == "global" and size > _DENSE
        self.version = 0
        if space != "global":
            self.held.take(self.row_bytes * rows, self.granule)
            self.pages[0] = Page(self.row_bytes * rows, self.granule)
            self.pages[0].known = np.zeros(self.pages[0].granules, bool)

    def page(self, number: int) -> Page:
        """A page of a global object, filled when first touched."""
        found = self.pages.get(number)
        if found is None:
            size = min(_PAGE, self.size - number * _PAGE) if self.paged else self.size
            self.held.take(size, self.granule)
            found = self.pages[number] = Page(size, self.granule)
            if self.fill is not None:
                _fill(found, self, number * _PAGE if self.paged else 0, size)
        return found

    def drop(self) -> None:
        """Give the memory back."""
        for page in self.pages.values():
            self.held.take(-len(page.data), self.granule)
        self.pages.clear()

    def __repr__(self) -> str:
        return f"Object({self.space} {self.name})"


def granule_of(element: Type) -> int:
    """The largest size of which every scalar in ``element`` is a multiple, in bytes."""
    import math

    while isinstance(element, Array):
        element = element.element
    if isinstance(element, Struct):
        if not element.fields:
            return 1
        places = offsets(element)
        sizes = [granule_of(f) for f in element.fields.values()] + [p for p in places.values() if p]
        return math.gcd(*sizes, element.size or 1)
    size = element.size
    return size if size in (1, 2, 4, 8) else 1


def runs(element: Type, at: int = 0) -> list[tuple[int, Type, int]]:
    """The scalars of a type in order, as (byte offset, type, how many in a row)."""
    if isinstance(element, Array):
        size = element.element.size
        if size is None or not isinstance(element.extent, int):
            raise Unsupported(f"memory of type '{element}'")
        inner = runs(element.element)
        if len(inner) == 1 and inner[0][2] * (inner[0][1].size or 0) == size:
            return [(at, inner[0][1], inner[0][2] * element.extent)]
        if element.extent > 1024:
            raise Unsupported(f"memory of type '{element}'")
        return [(at + i * size + o, t, n) for i in range(element.extent) for o, t, n in inner]
    if isinstance(element, Struct):
        places = offsets(element)
        return [run for name, field in (element.fields or {}).items() for run in runs(field, at + places[name])]
    return [(at, element, 1)]


def _fill(page: Page, obj: Object, start: int, size: int) -> None:
    """Fill the bytes [start, start + size) of an object, which are those of ``page``."""
    element, fill = obj.element, obj.fill
    width = element.size
    if width is None:
        raise Unsupported(f"a buffer of '{element}'")
    if isinstance(fill, np.ndarray):
        raw = np.ascontiguousarray(fill).view(np.uint8).reshape(-1)[start : start + size]
        page.data[: len(raw)] = raw
        return
    first, last = start // width, -(-(start + size) // width)
    parts = runs(element)
    _, type_, count = parts[0]
    if len(parts) == 1 and start % width == 0 and count * memory_dtype(type_).itemsize == width:
        view = page.view(memory_dtype(type_))
        end = min(last * count, first * count + len(view))  # a page may end within an element
        # In pieces that stay in cache.
        for at in range(first * count, end, _PIECE):
            index = np.arange(at, min(end, at + _PIECE), dtype=np.int64)
            place = at - first * count
            view[place : place + len(index)] = _stored(fill_values(obj, fill, index, type_), type_)
        return
    for number, (offset, type_, count) in enumerate(parts):
        dtype = memory_dtype(type_)
        step = dtype.itemsize
        if count <= 1024:
            index = np.arange(first * count, last * count, dtype=np.int64)
            spans = [(index, index // count * width + index % count * step + offset - start)]
        else:
            # Of a long array, what is on this page.
            spans = []
            for i in range(first, last):
                a, b = (max(0, min(count, -(-(start + x - i * width - offset) // step))) for x in (0, size))
                j = np.arange(a, b, dtype=np.int64)
                spans.append((i * count + j, i * width + offset + j * step - start))
        for index, places in spans:
            values = _stored(fill_values(obj, fill, index, type_, number), type_)
            _scattered(page, places, np.ascontiguousarray(values, dtype), size)


def _stored(values: Array1, type_: Type) -> Array1:
    """Values as they lie in memory."""
    if type_ is BF16:
        return (to_bfloat(np.asarray(values, np.float32)).view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    return values


def _scattered(page: Page, places: Array1, values: Array1, size: int) -> None:
    """Put ``values`` at the bytes ``places``; those outside of the page are left out."""
    inside = (places >= 0) & (places + values.dtype.itemsize <= size)
    places, values = places[inside], values[inside]
    if not (places % values.dtype.itemsize).any():
        page.view(values.dtype)[places // values.dtype.itemsize] = values
        return
    page.data[places[:, None] + np.arange(values.dtype.itemsize)] = values.view(np.uint8).reshape(len(values), -1)


def fill_values(obj: Object, fill: FillKind, index: Array1, type_: Type, part: int = 0) -> Array1:
    """What ``fill`` puts into the ``part``-th scalar of the elements ``index``."""
    dtype = dtype_of(type_)
    if isinstance(type_, Ptr):
        return np.zeros(len(index), dtype)
    if isinstance(fill, tuple):
        return hash_values(obj.seed + part * 7919, index, dtype, (fill[1], fill[2]))
    if isinstance(fill, str):
        if fill == "hash":
            return hash_values(obj.seed + part * 7919, index, dtype)
        if fill == "nan":
            return np.full(len(index), sentinel(dtype), dtype)
        if fill == "index":
            return index.astype(dtype)
        raise ValueError(f"no such fill: {fill!r}")
    return np.full(len(index), fill, dtype)


class Memory:
    """All objects of a run, and the accesses to them."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.objects: list[Object | None] = [None]
        self.free: list[int] = []
        self.outside, self.unknown, self.races, self.misaligned = Log(), Log(), Log(), Log()
        self.sites: list[Site] = []
        self.numbers: dict[Site, int] = {}
        self.lengths: dict[int, int] = {}
        self.held: Held | None = None

    def add(self, name: str, space: str, element: Type, size: int, rows: int = 1, row: str = "") -> Object:
        if self.free:
            number = self.free.pop()
        else:
            number = len(self.objects)
            self.objects.append(None)
            if number >= 1 << (62 - _SHIFT):
                raise Unsupported("so many local arrays")
        if self.held is None:
            # Who wrote a granule first, who is the lowest and the highest to read it, and, where races are looked for,
            # who wrote and who read it last, and where.
            notes = self.machine.watch_writes + 2 * self.machine.watch_reads + 3 * self.machine.global_races
            self.held = Held(notes)
        obj = Object(name, space, element, size, number, rows, row, self.held)
        self.objects[number] = obj
        return obj

    def remove(self, obj: Object) -> None:
        obj.drop()
        number = obj.base >> _SHIFT
        self.objects[number] = None
        self.free.append(number)

    def at(self, address: int) -> Object | None:
        """The object an address belongs to, whether or not it is inside; None for a null or wild pointer."""
        number = address >> _SHIFT
        return self.objects[number] if 0 < number < len(self.objects) else None

    # Accesses. An address is (base, index, unit): base + index * unit, with base None where it differs by lane
    # (then index holds whole addresses and unit is 1).

    def load(self, f: Frame, address: tuple[Any, Any, int], type_: Type, site: Site) -> Any:
        """The value of a scalar in memory, in the active lanes."""
        dtype = memory_dtype(type_)
        value = self._each(f, address, dtype, site, None, "load")
        if type_ is BF16:
            wide = (np.asarray(value, np.uint32) << np.uint32(16)).view(np.float32)
            return wide if type(value) is np.ndarray else wide[()]
        return value

    def store(self, f: Frame, address: tuple[Any, Any, int], type_: Type, value: Any, site: Site) -> None:
        dtype = memory_dtype(type_)
        if type_ is BF16:
            value = (np.asarray(value, np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16)
            value = value if value.ndim else value[()]
        self._each(f, address, dtype, site, value, "store")

    def _each(
        self, f: Frame, address: tuple[Any, Any, int], dtype: np.dtype[Any], site: Site, value: Any, kind: str
    ) -> Any:
        base, index, unit = address
        if base is not None:
            obj = self.at(base)
            if obj is None:
                return self._nowhere(f, dtype, site, kind, base + low(index) * unit)
            return self._object(f, obj, base - obj.base, index, unit, dtype, site, value, kind)
        numbers = index >> _SHIFT
        if low(numbers) == high(numbers):
            obj = self.at(low(index))
            if obj is None:
                return self._nowhere(f, dtype, site, kind, low(index))
            return self._object(f, obj, 0, index - obj.base, 1, dtype, site, value, kind)
        result = np.zeros(f.n, dtype)
        for number in np.unique(numbers):
            lanes = np.flatnonzero(numbers == number)
            with f.narrowed(lanes):
                part = value[lanes] if type(value) is np.ndarray else value
                got = self._each(f, (None, index[lanes], 1), dtype, site, part, kind)
            if got is not None:
                result[lanes] = got
        return result

    def _nowhere(self, f: Frame, _dtype: np.dtype[Any], site: Site, kind: str, address: int) -> Any:
        name = "null" if 0 <= address < 1 << 20 else "nothing"
        if self.outside.room(site, f.n):
            self.outside.events.append(Outside(name, "none", address, 0, f.thread(0), site, kind))
        raise Stop("fault", f"an access through a pointer to {name}")

    def _object(
        self, f: Frame, obj: Object, start: int, index: Any, unit: int, dtype: np.dtype[Any], site: Site, value: Any,
        kind: str,
    ) -> Any:  # fmt: skip
        size = dtype.itemsize
        if unit % size == 0 and start % size == 0:
            scale = unit // size
            element = index if scale == 1 else index * np.int64(scale)
            if start:
                element = element + np.int64(start // size)
        else:
            byte = index * np.int64(unit) + np.int64(start)
            odd = byte % size
            if np.any(odd):
                self._misaligned(f, obj, byte, odd, size, site)
                return self._bytes(f, obj, byte, dtype, site, value, kind)
            element = byte // size
        count = obj.size // size
        if type(element) is np.ndarray:
            where = stretch(element)
            if where is not None and self._simple(obj, where, count, size, kind):
                return self._stretch(f, obj, where, dtype, value, kind)
            bad = low(element) < 0 or high(element) >= count
            if bad:
                return self._partly_outside(f, obj, element, count, dtype, site, value, kind)
        elif not 0 <= element < count:
            self._note_outside(f, obj, element, size, count, site, kind, None)
            return outside_value(dtype)
        return self._inside(f, obj, element, dtype, site, value, kind)

    def _simple(self, obj: Object, where: slice, count: int, size: int, kind: str) -> bool:
        """Whether an access to consecutive elements is inside, and nothing but writers is to be noted of it."""
        machine = self.machine
        if obj.row or obj.paged or obj.space != "global" or where.start < 0 or where.stop > count:
            return False
        if (machine.races and machine.global_races) or kind not in ("load", "store"):
            return False
        return not machine.watch_reads if kind == "load" else size == obj.granule and not machine.tracking

    def _stretch(self, f: Frame, obj: Object, where: slice, dtype: np.dtype[Any], value: Any, kind: str) -> Any:
        """Consecutive elements of a buffer, one a lane."""
        page = obj.page(0)
        view = page.view(dtype)
        if kind == "load":
            return view[where].copy()
        self.machine.effects += 1
        view[where] = value
        if self.machine.watch_writes:
            page.wrote_stretch(where, f.threads())
        return None

    def _partly_outside(
        self, f: Frame, obj: Object, element: Any, count: int, dtype: np.dtype[Any], site: Site, value: Any, kind: str
    ) -> Any:  # fmt: skip
        out = (element < 0) | (element >= count)
        self._note_outside(f, obj, element, dtype.itemsize, count, site, kind, np.flatnonzero(out))
        inside = np.flatnonzero(~out)
        result = np.full(f.n, outside_value(dtype), dtype)
        if len(inside):
            with f.narrowed(inside):
                part = value[inside] if type(value) is np.ndarray else value
                found = self._inside(f, obj, element[inside], dtype, site, part, kind)
            if found is not None:
                result[inside] = found
        return result

    def _note_outside(
        self, f: Frame, obj: Object, element: Any, size: int, count: int, site: Site, kind: str, lanes: Any
    ) -> None:  # fmt: skip
        number = f.n if lanes is None else len(lanes)
        extent = obj.size // obj.element_size
        for position in range(self.outside.room(site, number, obj.base)):
            lane = position if lanes is None else int(lanes[position])
            byte = int(element[lane] if type(element) is np.ndarray else element) * size
            self.outside.events.append(
                Outside(obj.name, obj.space, byte // obj.element_size, extent, f.thread(lane), site, kind)
            )
        far = max(-low(element), high(element) - count) * size
        if far > FAR:
            raise Stop("fault", f"an access {far} bytes outside of '{obj.name}'")

    def check_alignment(self, f: Frame, address: Any, align: int, site: Site) -> None:
        """Note the lanes whose address of a vector is no multiple of its alignment."""
        odd = address % align
        if align < 8 or not np.any(odd):
            return
        first = int(address[np.flatnonzero(odd)[0]] if type(address) is np.ndarray else address)
        obj = self.at(first)
        if obj is not None and obj.base % align == 0:
            self._misaligned(f, obj, address - np.int64(obj.base), odd, align, site)

    def _misaligned(self, f: Frame, obj: Object, byte: Any, odd: Any, size: int, site: Site) -> None:
        lanes = np.flatnonzero(odd) if type(odd) is np.ndarray else [0]
        for position in range(self.misaligned.room(site, len(lanes))):
            lane = int(lanes[position])
            at = int(byte[lane] if type(byte) is np.ndarray else byte)
            self.misaligned.events.append(Misaligned(obj.name, at, size, f.thread(lane), site))

    def _bytes(
        self, f: Frame, obj: Object, byte: Any, dtype: np.dtype[Any], site: Site, value: Any, kind: str
    ) -> Any:  # fmt: skip
        """A misaligned access, byte by byte."""
        single = np.dtype(np.uint8)
        width = dtype.itemsize
        if kind == "store":
            raw = spread(value, f.n).astype(dtype).view(np.uint8).reshape(f.n, width)
            for i in range(width):
                self._object(f, obj, i, spread(byte, f.n), 1, single, site, np.ascontiguousarray(raw[:, i]), kind)
            return None
        columns = [spread(self._object(f, obj, i, byte, 1, single, site, None, kind), f.n) for i in range(width)]
        return np.ascontiguousarray(np.stack(columns, axis=1)).view(dtype).reshape(f.n)

    def _inside(
        self, f: Frame, obj: Object, element: Any, dtype: np.dtype[Any], site: Site, value: Any, kind: str
    ) -> Any:
        if obj.row:
            rows = f.rows(obj, dtype.itemsize)
            if type(rows) is np.ndarray or rows:
                element = element + rows
            return self._page(f, obj, obj.pages[0], 0, element, dtype, site, value, kind)
        if not obj.paged:
            return self._page(f, obj, obj.page(0), 0, element, dtype, site, value, kind)
        each = _PAGE // dtype.itemsize
        if type(element) is not np.ndarray:
            number = int(element) // each
            return self._page(f, obj, obj.page(number), number, element % each, dtype, site, value, kind)
        numbers = element // each
        first = int(numbers[0])
        if low(numbers) == first == high(numbers):
            return self._page(f, obj, obj.page(first), first, element - first * each, dtype, site, value, kind)
        result = np.zeros(f.n, dtype)
        for found in np.unique(numbers):
            number = int(found)
            self.machine.on_time()  # pages take their time where many are touched
            lanes = np.flatnonzero(numbers == number)
            with f.narrowed(lanes):
                part = value[lanes] if type(value) is np.ndarray else value
                here = element[lanes] - number * each
                got = self._page(f, obj, obj.page(number), number, here, dtype, site, part, kind)
            if got is not None:
                result[lanes] = got
        return result

    def _page(
        self, f: Frame, obj: Object, page: Page, number: int, element: Any, dtype: np.dtype[Any], site: Site,
        value: Any, kind: str,
    ) -> Any:  # fmt: skip
        view = page.view(dtype)
        machine = self.machine
        watched = machine.races and obj.space != "local" and (obj.space == "shared" or machine.global_races)
        if kind == "load":
            if page.known is not None or watched:
                self._note_read(f, obj, page, number, element, dtype, site, watched)
            if machine.watch_reads and obj.space == "global":
                for index in self.granules(obj, element, dtype.itemsize, f.n):
                    page.read_by(index, f.threads())
            return view[element]
        if kind == "store":
            machine.effects += 1
            if machine.tracking and not machine.changed:
                machine.changed = bool(np.any(view[element] != value))
            if watched:
                self._race_write(f, obj, page, number, element, dtype, site, value, view)
            # Several lanes at one place: the last one's value stays.
            view[element] = value if type(element) is np.ndarray or type(value) is not np.ndarray else value[-1]
            self._note_write(f, obj, page, element, dtype, False)
            return None
        # An atomic: ``value`` is the function that does it.
        machine.effects += 1
        if watched:
            self._race_atomic(f, obj, page, number, element, dtype, site)
        if page.known is not None and value.reads:
            self._note_read(f, obj, page, number, element, dtype, site, False)
        result = value(view, element)
        self._note_write(f, obj, page, element, dtype, True)
        return result

    def atomic(
        self, f: Frame, address: tuple[Any, Any, int], type_: Type, operation: Any, site: Site, makes_use: bool
    ) -> Any:
        """Apply ``operation(view, index, lanes)`` to each page touched; gives the old values, in lane order.
        ``makes_use`` tells whether what it leaves hangs on what was there."""
        dtype = memory_dtype(type_)
        if type_ is BF16:
            raise Unsupported("an atomic on bfloat16")
        base, index, unit = address
        # The operation is told which of the active lanes it is applied to.
        lanes = np.arange(f.n)

        class Operation:
            reads = makes_use

            def __init__(self, which: Any) -> None:
                self.which = which

            def __getitem__(self, part: Any) -> Operation:
                return Operation(self.which[part])

            def __call__(self, view: Any, element: Any) -> Any:
                return operation(
                    view,
                    spread(np.int64(element) if type(element) is not np.ndarray else element, len(self.which)),
                    self.which,
                )

        return self._each_atomic(f, base, index, unit, dtype, site, Operation(lanes))

    def _each_atomic(
        self, f: Frame, base: Any, index: Any, unit: int, dtype: np.dtype[Any], site: Site, op: Any
    ) -> Any:
        full = spread(index, f.n)
        if base is not None:
            full = np.int64(base) + full * np.int64(unit)
        result = np.zeros(f.n, dtype)
        numbers = full >> _SHIFT
        for number in np.unique(numbers):
            lanes = np.flatnonzero(numbers == number)
            obj = self.at(int(full[lanes[0]]))
            with f.narrowed(lanes):
                if obj is None:
                    self._nowhere(f, dtype, site, "atomic", int(full[lanes[0]]))
                    continue
                byte = full[lanes] - obj.base
                size = dtype.itemsize
                odd = byte % size
                if odd.any():
                    self._misaligned(f, obj, byte, odd, size, site)
                    raise Stop("fault", "a misaligned atomic")
                element = byte // size
                count = obj.size // size
                good = np.flatnonzero((element >= 0) & (element < count))
                if len(good) < len(element):
                    bad = np.flatnonzero((element < 0) | (element >= count))
                    self._note_outside(f, obj, element, size, count, site, "atomic", bad)
                if len(good):
                    with f.narrowed(good):
                        result[lanes[good]] = self._inside_atomic(f, obj, element[good], dtype, site, op[lanes[good]])
        return result

    def _inside_atomic(self, f: Frame, obj: Object, element: Any, dtype: np.dtype[Any], site: Site, op: Any) -> Any:
        if not obj.paged:
            if obj.row:
                element = element + f.rows(obj, dtype.itemsize)
                return self._page(f, obj, obj.pages[0], 0, element, dtype, site, op, "atomic")
            return self._page(f, obj, obj.page(0), 0, element, dtype, site, op, "atomic")
        each = _PAGE // dtype.itemsize
        numbers = element // each
        result = np.zeros(f.n, dtype)
        for found in np.unique(numbers):
            lanes = np.flatnonzero(numbers == found)
            with f.narrowed(lanes):
                here = element[lanes] - int(found) * each
                page = obj.page(int(found))
                result[lanes] = self._page(f, obj, page, int(found), here, dtype, site, op[lanes], "atomic")
        return result

    # Notes.

    def granules(self, obj: Object, element: Any, size: int, lanes: int) -> list[Any]:
        """The granules that an access of ``size`` bytes at ``element`` touches, one index array each."""
        granule = obj.granule
        index = element if type(element) is np.ndarray else np.full(lanes, element, np.int64)
        if size == granule:
            return [index]
        if size > granule:
            scale = size // granule
            return [index * scale + i for i in range(scale)]
        return [index // (granule // size)]

    def _note_read(
        self, f: Frame, obj: Object, page: Page, number: int, element: Any, dtype: np.dtype[Any], site: Site,
        watched: bool,
    ) -> None:  # fmt: skip
        size = dtype.itemsize
        if page.known is not None and type(element) is not np.ndarray and size == obj.granule and not watched:
            if not page.known[element]:
                self._unknown(f, obj, np.full(f.n, element, np.int64), np.arange(f.n), size, site)
            return
        if page.known is not None and not page.full:
            if page.known.all():
                page.full = True
            else:
                for index in self.granules(obj, element, size, f.n):
                    known = page.known[index]
                    if not known.all():
                        self._unknown(f, obj, index, np.flatnonzero(~known), obj.granule, site)
        if watched and size >= obj.granule:
            parts = [element] if size == obj.granule else self.granules(obj, element, size, f.n)
            for index in parts:
                for found in page.race_read(index, f.stamps(), self.machine.epoch, self._number(site)):
                    self._race(f, obj, number, index, found, site)

    def _unknown(self, f: Frame, obj: Object, index: Any, lanes: Any, size: int, site: Site) -> None:
        for position in range(self.unknown.room(site, len(lanes), obj.name)):
            lane = int(lanes[position])
            byte = int(index[lane]) * size % (obj.row_bytes or 1)
            self.unknown.events.append(
                Uninitialised(obj.name, obj.space, byte // obj.element_size, f.thread(lane), site)
            )

    def _race_write(
        self, f: Frame, obj: Object, page: Page, number: int, element: Any, dtype: np.dtype[Any], site: Site,
        value: Any, view: Any,
    ) -> None:  # fmt: skip
        size = dtype.itemsize
        if size < obj.granule:
            return
        same: Any = None
        for index in self.granules(obj, element, size, f.n):
            found = page.race_write(index, f.stamps(), self.machine.epoch, self._number(site))
            for kind, lanes, other, sites in found:
                if kind == "write-write":
                    # Two writes of one value are no race: what stands there now, and what the last lane leaves.
                    if same is None:
                        before = (
                            spread(np.asarray(view[element])[()], f.n)
                            if type(element) is not np.ndarray
                            else view[element]
                        )
                        new = spread(value, f.n)
                        where = element if type(element) is np.ndarray else np.full(f.n, element, np.int64)
                        saved = before.copy()
                        view[where] = new
                        after = view[where]
                        view[where] = saved
                        earlier = (before == new) | ((before != before) & (new != new))
                        last = (after == new) | ((after != after) & (new != new))
                        same = (earlier, last)
                    mine = f.stamps()[lanes]
                    within = other == page.writes.stamps[index[lanes]]  # type: ignore[union-attr]  # just written
                    keep = np.where(within, ~same[1][lanes], ~same[0][lanes])
                    keep &= other != mine
                    lanes, other, sites = lanes[keep], other[keep], sites[keep]
                if len(lanes):
                    self._race(f, obj, number, index, (kind, lanes, other, sites), site)

    def _race_atomic(
        self, f: Frame, obj: Object, page: Page, number: int, element: Any, dtype: np.dtype[Any], site: Site
    ) -> None:  # fmt: skip
        if dtype.itemsize < obj.granule:
            return
        for index in self.granules(obj, element, dtype.itemsize, f.n):
            for found in page.race_atomic(index, f.stamps(), self.machine.epoch, self._number(site)):
                self._race(f, obj, number, index, found, site)

    def _number(self, site: Site) -> int:
        """The number that an access of a place is noted under."""
        found = self.numbers.get(site)
        if found is None:
            found = self.numbers[site] = len(self.sites)
            self.sites.append(site)
        return found

    def _race(self, f: Frame, obj: Object, number: int, index: Any, found: Conflict, site: Site) -> None:
        kind, lanes, other, sites = found
        for first in np.unique(sites).tolist():
            earlier, here = self.sites[first], np.flatnonzero(sites == first)
            for position in here[: self.races.room(site, len(here), (obj.name, earlier))].tolist():
                lane = int(lanes[position])
                at = index[lane] if type(index) is np.ndarray else index
                byte = int(at) * obj.granule
                byte = byte % obj.row_bytes if obj.row else byte + number * _PAGE
                mine = f.thread(lane)
                theirs = self.machine.thread_of(mine.block, int(other[position]) & ((1 << _THREAD_BITS) - 1))
                element = byte // obj.element_size
                self.races.events.append(Race(obj.name, obj.space, element, theirs, mine, kind, site, earlier))

    def _note_write(self, f: Frame, obj: Object, page: Page, element: Any, dtype: np.dtype[Any], atomic: bool) -> None:
        size = dtype.itemsize
        if page.known is not None:
            if type(element) is not np.ndarray and size == obj.granule:
                page.known[element] = True
            else:
                for index in self.granules(obj, element, size, f.n):
                    page.known[index] = True
        elif self.machine.watch_writes:
            threads = f.threads()
            for index in self.granules(obj, element, size, f.n):
                page.wrote(index, threads, atomic)


def stretch(index: Array1) -> slice | None:
    """The slice that ``index`` is, where it names consecutive elements in ascending order."""
    first, last = int(index[0]), int(index[-1])
    if last - first != len(index) - 1 or not (index[1:] > index[:-1]).all():
        return None
    return slice(first, last + 1)


def outside_value(dtype: np.dtype[Any]) -> Any:
    """What a load outside of a buffer gives: NaN, or 0."""
    return dtype.type("nan") if dtype.kind == "f" else dtype.type(0)


def stamp(interval: Array1, warp_epoch: Array1, thread: Array1) -> Array1:
    """One integer for (barrier interval, syncs of the warp in it, thread of the block)."""
    mask = (1 << _WARP_BITS) - 1
    return (interval << _INTERVAL) | ((warp_epoch & mask) << _THREAD_BITS) | thread


class BufferState:
    """A buffer after a run: its values and who wrote them, by element index."""

    def __init__(self, buffer: Buffer, obj: Object) -> None:
        self.buffer, self._object = buffer, obj

    @property
    def name(self) -> str:
        return self.buffer.name

    @property
    def base(self) -> int:
        """The address of the first element."""
        return self._object.base

    def release(self) -> None:
        """Give the memory back: nothing can be asked of it afterwards."""
        self._object.drop()

    @property
    def extent(self) -> int:
        return self.buffer.extent

    def values(self, index: Any = None) -> Any:
        """Values at ``index`` (all elements without one); of a class, a structured array."""
        dtype = numpy_type(self.buffer.element)
        obj = self._object
        if not obj.paged:
            data = obj.page(0).data[: self.extent * dtype.itemsize].view(dtype)
            data = data if index is None else data[np.asarray(index)]
        elif index is None:
            size = self.extent * dtype.itemsize
            raw = np.concatenate([obj.page(n).data for n in range(-(-size // _PAGE))])
            data = raw[:size].view(dtype)
        else:
            wanted = np.asarray(index, np.int64).reshape(-1)
            byte = wanted[:, None] * dtype.itemsize + np.arange(dtype.itemsize)
            raw = np.empty(byte.shape, np.uint8)
            for number in np.unique(byte // _PAGE):
                here = byte // _PAGE == number
                raw[here] = obj.page(int(number)).data[byte[here] - int(number) * _PAGE]
            data = raw.reshape(-1).view(dtype)
        if self.buffer.element is BF16:
            return (data.astype(np.uint32) << np.uint32(16)).view(np.float32)
        return data

    def writers(self, index: Any = None) -> tuple[Any, Any]:
        """Two threads that wrote each element, as linear numbers in the grid; -1 where there is none.

        The second is another thread than the first, with a higher number. Threads that wrote by an atomic
        count as first only.
        """
        wanted = self._wanted(index)
        first, second = np.full(len(wanted), -1, np.int64), np.full(len(wanted), -1, np.int64)
        for page, here, granule in self._granules(wanted):
            if page.first is not None:
                first[here] = np.where(first[here] < 0, page.first[granule], first[here])
                if page.second is not None:
                    second[here] = np.where(second[here] < 0, page.second[granule], second[here])
        both = second >= 0
        lower, upper = np.minimum(first, second), np.maximum(first, second)
        return np.where(both, lower, first), np.where(both, upper, second)

    def readers(self, index: Any = None) -> tuple[Any, Any]:
        """The lowest and the highest thread that read each element, by their numbers in the grid; -1 where none did."""
        wanted = self._wanted(index)
        low, high = np.full(len(wanted), _NOBODY, np.int64), np.full(len(wanted), -1, np.int64)
        for page, here, granule in self._granules(wanted):
            if page.low is not None and page.high is not None:
                highest = page.high[granule]
                low[here] = np.minimum(low[here], np.where(highest < 0, _NOBODY, page.low[granule]))
                high[here] = np.maximum(high[here], highest)
        return np.where(high < 0, -1, low), high

    def _wanted(self, index: Any) -> Array1:
        return np.arange(self.extent, dtype=np.int64) if index is None else np.asarray(index, np.int64).reshape(-1)

    def _granules(self, wanted: Array1) -> Iterator[tuple[Page, Array1, Array1]]:
        """Each page that holds some of the elements ``wanted``, which of them, and the granule of each; several times
        where elements have several granules."""
        obj = self._object
        for part in range(max(1, obj.element_size // obj.granule)):
            byte = wanted * obj.element_size + part * obj.granule
            pages = byte // _PAGE if obj.paged else np.zeros(len(byte), np.int64)
            for number in np.unique(pages):
                page = obj.pages.get(int(number))
                if page is not None:
                    here = np.flatnonzero(pages == number)
                    yield page, here, (byte[here] - (int(number) * _PAGE if obj.paged else 0)) // obj.granule

    def written(self) -> Any:
        """The elements that some thread wrote, in ascending order."""
        obj = self._object
        found = []
        for number in sorted(obj.pages):
            first = obj.pages[number].first
            if first is not None:
                byte = np.flatnonzero(first >= 0) * obj.granule + (number * _PAGE if obj.paged else 0)
                found.append(byte if obj.element_size == 1 else byte // obj.element_size)
        index = np.concatenate(found) if found else np.zeros(0, np.int64)
        index = index[index < self.extent]
        return index if obj.granule == obj.element_size else np.unique(index)

    def never(self, limit: int = 10, within: int | None = None) -> list[int]:
        """The first ``limit`` elements below ``within`` (default: all) that no thread wrote."""
        end = self.extent if within is None else min(within, self.extent)
        found: list[int] = []
        obj = self._object
        step = (_PAGE if obj.paged else max(1, end * obj.element_size)) // obj.element_size or 1
        for start in range(0, end, step):
            stop = min(end, start + step)
            first, _ = self.writers(np.arange(start, stop, dtype=np.int64))
            gaps = np.flatnonzero(first < 0)[: limit - len(found)]
            found.extend(int(g) + start for g in gaps)
            if len(found) >= limit:
                break
        return found

    def several(self, limit: int = 10) -> list[tuple[int, int, int]]:
        """The first ``limit`` elements that two threads wrote: (element, thread, thread)."""
        obj = self._object
        found: list[tuple[int, int, int]] = []
        for number in sorted(obj.pages):
            page = obj.pages[number]
            if page.second is None:
                continue
            for granule in np.flatnonzero(page.second >= 0):
                byte = int(granule) * obj.granule + (number * _PAGE if obj.paged else 0)
                pair = sorted((int(page.first[granule]), int(page.second[granule])))
                item = (byte // obj.element_size, pair[0], pair[1])
                if not found or found[-1][0] != item[0]:
                    found.append(item)
                if len(found) >= limit:
                    return found
        return found

    def touched(self) -> list[tuple[int, int]]:
        """The element ranges [start, end) that exist: what was read or written lies in them."""
        obj = self._object
        if not obj.paged:
            return [(0, self.extent)] if obj.pages else []
        width = obj.element_size
        return [(n * _PAGE // width, min(self.extent, -(-(n + 1) * _PAGE // width))) for n in sorted(obj.pages)]


def numpy_type(element: Type) -> np.dtype[Any]:
    """The dtype of a buffer's elements as they lie in memory."""
    if isinstance(element, (Int, Float, Ptr)):
        return memory_dtype(element)
    if isinstance(element, Array):
        if not isinstance(element.extent, int):
            raise Unsupported(f"memory of type '{element}'")
        return np.dtype((numpy_type(element.element), (element.extent,)))
    if isinstance(element, Struct) and element.size is not None:
        places = offsets(element)
        fields = element.fields or {}
        return np.dtype({
            "names": list(fields), "formats": [numpy_type(t) for t in fields.values()],
            "offsets": [places[n] for n in fields], "itemsize": element.size,
        })  # fmt: skip
    if element is BOOL:
        return np.dtype(np.bool_)
    raise Unsupported(f"memory of type '{element}'")
