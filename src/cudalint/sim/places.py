"""Places: what an assignment stores to and a reference is bound to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cudalint.ir.types import Array, Float, Int, Ptr, Struct, Type
from cudalint.sim.values import ADDRESS, Unsupported, convert, dtype_of, gather, no_value, offsets

if TYPE_CHECKING:
    from cudalint.sim.frame import Frame
    from cudalint.sim.observe import Site

Address = tuple[Any, Any, int]
ZERO = np.int64(0)


class Place:
    """Somewhere a value of ``type`` is kept, as seen by the active lanes of a frame."""

    __slots__ = ("type",)
    type: Type

    def load(self, f: Frame, site: Site) -> Any:
        raise NotImplementedError  # given by a layer above

    def store(self, f: Frame, value: Any, site: Site) -> None:
        raise NotImplementedError  # given by a layer above

    def member(self, name: str, type_: Type) -> Place:
        raise NotImplementedError  # given by a layer above

    def address(self, _f: Frame) -> Address:
        raise Unsupported("the address of a variable held in a register")

    def bound(self, f: Frame) -> Place:
        """The same place as a reference keeps it, whatever lanes are active when it is used."""
        raise NotImplementedError  # given by a layer above

    def entered(self, f: Frame, inner: Frame) -> Place:
        """The place for ``inner``, a call made from ``f`` by its active lanes."""
        raise NotImplementedError  # given by a layer above


class VariablePlace(Place):
    """A variable of ``frame`` (or of one it is nested in), or a field of it by ``path``."""

    __slots__ = ("frame", "path", "var")

    def __init__(self, frame: Frame, var: Any, type_: Type, path: tuple[str, ...] = ()) -> None:
        self.frame, self.var, self.type, self.path = frame, var, type_, path

    def lanes(self, f: Frame) -> Any:
        """The active lanes of ``f`` as lanes of the variable's frame."""
        frame, mapping = f, f.active()
        while frame is not self.frame:
            if frame.index is not None:
                mapping = frame.index[mapping]
            assert frame.parent is not None
            frame = frame.parent
        return mapping

    def load(self, f: Frame, site: Site) -> Any:
        if f is self.frame:
            return self._read(f, site)
        with self.frame.at(self.lanes(f)):
            return self._read(self.frame, site)

    def _read(self, f: Frame, site: Site) -> Any:
        lost = f.unknown(self.var)
        if lost is not None:
            f.machine.unset_read(f, self.var, lost, site)
            if self.var not in f.vars:
                return undefined_value(self.type)
        value = f.read(self.var)
        for name in self.path:
            if type(value) is not dict:
                raise Unsupported(f"the member '{name}'")
            if name not in value:
                return undefined_value(self.type)
            value = value[name]
        return value

    def store(self, f: Frame, value: Any, _site: Site) -> None:
        if f is self.frame:
            self._write(f, value)
            return
        with self.frame.at(self.lanes(f)):
            self._write(self.frame, value)

    def _write(self, f: Frame, value: Any) -> None:
        if not self.path:
            f.write(self.var, value)
            return
        old = f.read(self.var) if self.var in f.vars else {}
        f.write(self.var, _with(old if type(old) is dict else {}, self.path, value))

    def member(self, name: str, type_: Type) -> Place:
        return VariablePlace(self.frame, self.var, type_, (*self.path, name))

    def bound(self, _f: Frame) -> Place:
        return self

    def entered(self, _f: Frame, _inner: Frame) -> Place:
        return self


def _with(record: dict[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    if len(path) == 1:
        return {**record, path[0]: value}
    inner = record.get(path[0])
    return {**record, path[0]: _with(inner if type(inner) is dict else {}, path[1:], value)}


class MemoryPlace(Place):
    """Memory at ``where``, valid for the lanes active when it was made."""

    __slots__ = ("where",)

    def __init__(self, where: Address, type_: Type) -> None:
        self.where, self.type = where, type_

    def load(self, f: Frame, site: Site) -> Any:
        return load(f, self.where, self.type, site)

    def store(self, f: Frame, value: Any, site: Site) -> None:
        store(f, self.where, self.type, value, site)

    def member(self, name: str, type_: Type) -> Place:
        assert isinstance(self.type, Struct)
        return MemoryPlace(moved(self.where, offsets(self.type)[name]), type_)

    def address(self, _f: Frame) -> Address:
        return self.where

    def bound(self, f: Frame) -> Place:
        return BoundMemory(f, flat(self.where), self.type)

    def entered(self, _f: Frame, inner: Frame) -> Place:
        # The lanes of the inner frame are the active ones here, in order.
        return BoundMemory(inner, flat(self.where), self.type, whole=True)


class BoundMemory(Place):
    """Memory that a reference of ``frame`` is bound to: an address for each of the frame's lanes."""

    __slots__ = ("frame", "value")

    def __init__(self, f: Frame, value: Any, type_: Type, *, whole: bool = False) -> None:
        self.frame, self.type = f, type_
        if type(value) is np.ndarray and f.sel is not None and not whole:
            full = np.zeros(f.total, np.int64)
            full[f.sel] = value
            value = full
        self.value = value

    def address(self, f: Frame) -> Address:
        value = self.value
        if type(value) is not np.ndarray:
            return int(value), ZERO, 1
        frame, mapping = f, f.active()
        while frame is not self.frame:
            if frame.index is not None:
                mapping = frame.index[mapping]
            assert frame.parent is not None
            frame = frame.parent
        return None, gather(value, mapping), 1

    def load(self, f: Frame, site: Site) -> Any:
        return load(f, self.address(f), self.type, site)

    def store(self, f: Frame, value: Any, site: Site) -> None:
        store(f, self.address(f), self.type, value, site)

    def member(self, name: str, type_: Type) -> Place:
        assert isinstance(self.type, Struct)
        result = BoundMemory.__new__(BoundMemory)
        result.frame, result.type = self.frame, type_
        result.value = self.value + np.int64(offsets(self.type)[name])
        return result

    def bound(self, _f: Frame) -> Place:
        return self

    def entered(self, _f: Frame, _inner: Frame) -> Place:
        return self


class ValuePlace(Place):
    """A value that is nowhere: what a const reference may be bound to, and a method called on."""

    __slots__ = ("frame", "key")

    def __init__(self, f: Frame, value: Any, type_: Type) -> None:
        self.key, self.type, self.frame = object(), type_, f
        f.write(self.key, value)

    def load(self, f: Frame, site: Site) -> Any:
        return VariablePlace(self.frame, self.key, self.type).load(f, site)

    def store(self, f: Frame, value: Any, site: Site) -> None:
        VariablePlace(self.frame, self.key, self.type).store(f, value, site)

    def member(self, name: str, type_: Type) -> Place:
        return VariablePlace(self.frame, self.key, type_, (name,))

    def bound(self, _f: Frame) -> Place:
        return self

    def entered(self, _f: Frame, _inner: Frame) -> Place:
        return self


def undefined_value(type_: Type) -> Any:
    """What a variable that was never set holds here: 0; the read is an event."""
    if isinstance(type_, (Int, Float, Ptr)):
        return dtype_of(type_).type(0)
    if isinstance(type_, Struct) and type_.fields is not None:
        return {name: undefined_value(field) for name, field in type_.fields.items()}
    if isinstance(type_, Array) and isinstance(type_.extent, int):
        return [undefined_value(type_.element) for _ in range(type_.extent)]
    raise no_value(type_)


def moved(where: Address, offset: int) -> Address:
    """``where`` and ``offset`` bytes on."""
    base, index, unit = where
    if not offset:
        return where
    return (base + offset, index, unit) if base is not None else (None, index + np.int64(offset), unit)


def flat(where: Address) -> Any:
    """An address as a pointer's value."""
    base, index, unit = where
    if base is None:
        return index
    if type(index) is not np.ndarray and not index:
        return np.int64(base)
    return np.int64(base) + index * np.int64(unit)


def pointed(pointer: Any) -> Address:
    """The address that a pointer's value stands for."""
    if type(pointer) is np.ndarray:
        return None, pointer, 1
    if not isinstance(pointer, np.generic):
        raise Unsupported("a pointer to something that has no address")
    return int(pointer), ZERO, 1


def load(f: Frame, where: Address, type_: Type, site: Site) -> Any:
    """The value of any type at an address; an array is its address."""
    if isinstance(type_, Array):
        return flat(where)
    return load_whole(f, where, type_, site)


def load_whole(f: Frame, where: Address, type_: Type, site: Site) -> Any:
    """The value of any type at an address, arrays element by element."""
    if isinstance(type_, (Int, Float, Ptr)):
        return f.machine.memory.load(f, where, type_, site)
    if isinstance(type_, Struct):
        f.machine.memory.check_alignment(f, flat(where), type_.align or 1, site)
        places = offsets(type_)
        return {
            name: load_whole(f, moved(where, places[name]), field, site) for name, field in (type_.fields or {}).items()
        }
    if isinstance(type_, Array) and isinstance(type_.extent, int) and type_.element.size is not None:
        size = type_.element.size
        return [load_whole(f, moved(where, i * size), type_.element, site) for i in range(type_.extent)]
    raise Unsupported(f"memory of type '{type_}'")


def store(f: Frame, where: Address, type_: Type, value: Any, site: Site) -> None:
    """Store a value of any type."""
    if isinstance(type_, (Int, Float, Ptr)):
        if not isinstance(value, (np.ndarray, np.generic)):
            raise Unsupported(f"storing something else as '{type_}'")
        if value.dtype != dtype_of(type_):
            value = convert(value, type_)
        f.machine.memory.store(f, where, type_, value, site)
    elif isinstance(type_, Struct):
        if type(value) is not dict:
            raise Unsupported(f"storing something else as '{type_}'")
        f.machine.memory.check_alignment(f, flat(where), type_.align or 1, site)
        places = offsets(type_)
        for name, field in (type_.fields or {}).items():
            if name in value:
                store(f, moved(where, places[name]), field, value[name], site)
    elif isinstance(type_, Array) and type_.element.size is not None:
        size = type_.element.size
        if type(value) is not list:
            raise Unsupported("storing an array")
        for i, item in enumerate(value):
            store(f, moved(where, i * size), type_.element, item, site)
    else:
        raise Unsupported(f"memory of type '{type_}'")


assert ADDRESS.itemsize == 8
