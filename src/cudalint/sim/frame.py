"""The lanes of one function activation: which are active, and what their variables hold.

Values of expressions are compact: one entry for each *active* lane, so nothing is ever computed for a lane
that is not there. Variables are kept for all lanes of the activation. A value that all lanes share stays one
NumPy scalar.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from cudalint.sim.values import Unsupported, gather, merge

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudalint.ir.nodes import Var
    from cudalint.sim.code import Code
    from cudalint.sim.machine import Machine
    from cudalint.sim.memory import Object
    from cudalint.sim.observe import Thread
    from cudalint.sim.places import Place

EMPTY = np.zeros(0, np.int64)
_MISSING = object()
_identities: dict[int, Any] = {}


def identity(lanes: int) -> Any:
    """0 .. lanes - 1; shared, never written to."""
    found = _identities.get(lanes)
    if found is None:
        if len(_identities) > 64:
            _identities.clear()
        found = _identities[lanes] = np.arange(lanes, dtype=np.int64)
    return found


class LoopState:
    """The lanes that left the body of a loop or switch by ``break`` or ``continue``."""

    __slots__ = ("breaks", "continues", "is_switch")

    def __init__(self, is_switch: bool = False) -> None:
        self.breaks: list[Any] = []
        self.continues: list[Any] = []
        self.is_switch = is_switch


class Frame:
    """One activation. ``index`` are its lanes in ``parent`` (None: all of them, in order).

    ``lexical`` is true for a lambda and for iterations run as lanes: the parent's variables are seen.
    """

    __slots__ = (
        "cache", "code", "dead", "depth", "index", "lexical", "loops", "machine", "n", "objects", "owned", "parent",
        "result", "sel", "space", "specials", "this", "total", "undefined", "vars", "want_place",
    )  # fmt: skip

    def __init__(
        self, machine: Machine, code: Code, total: int, parent: Frame | None, index: Any, lexical: bool = False
    ) -> None:
        self.machine, self.code, self.total, self.parent, self.index = machine, code, total, parent, index
        self.lexical = lexical
        self.sel: Any = None
        self.n = total
        self.vars: dict[Any, Any] = {}
        self.owned: set[Any] = set()
        self.undefined: dict[Any, Any] = {}
        self.specials: dict[Any, Any] = {}
        self.cache: dict[Any, Any] = {}
        self.dead: Any = None
        self.loops: list[LoopState] = []
        self.objects: dict[Any, Object] = {}
        self.this: Place | None = None
        self.result: Any = None
        self.want_place = False
        self.depth: int = 0 if parent is None else parent.depth + 1
        # Local arrays have a row for each lane of the outermost frame of the space.
        self.space: Frame = self if parent is None else parent.space

    # Active lanes.

    def active(self) -> Any:
        """The active lanes as indices into this frame's."""
        return identity(self.total) if self.sel is None else self.sel

    def select(self, sel: Any) -> None:
        """Make ``sel`` (None: all) the active lanes."""
        if sel is not None and len(sel) == self.total:
            sel = None
        self.sel = sel
        self.n = self.total if sel is None else len(sel)
        if self.cache:
            self.cache = {}

    def subset(self, index: Any) -> Any:
        """The active lanes at positions ``index``."""
        return index if self.sel is None else self.sel[index]

    @contextmanager
    def narrowed(self, index: Any) -> Iterator[None]:
        """Only the active lanes at positions ``index`` are active inside."""
        before, cache = self.sel, self.cache
        self.cache = {}
        self.select(self.subset(index))
        try:
            yield
        finally:
            self.sel = before
            self.n = self.total if before is None else len(before)
            self.cache = cache

    def leave(self) -> None:
        """The active lanes end this activation."""
        if self.dead is None:
            self.dead = np.zeros(self.total, bool)
        if self.sel is None:
            self.dead[:] = True
        else:
            self.dead[self.sel] = True
        if self.parent is None:
            self.machine.exit(self.lanes())
        self.select(EMPTY)

    def without_dead(self, sel: Any) -> Any:
        """``sel`` (None: all) without the lanes that have ended."""
        if self.dead is None:
            return sel
        lanes = identity(self.total) if sel is None else sel
        return lanes[~self.dead[lanes]]

    def mapping(self) -> Any:
        """This frame's active lanes as lanes of its parent."""
        if self.index is None:
            return self.active()
        return self.index if self.sel is None else self.index[self.sel]

    # Variables.

    def read(self, var: Any) -> Any:
        """The variable's value in the active lanes; places of references are left to the caller."""
        value = self.vars.get(var, _MISSING)
        if value is _MISSING:
            return self.outer(var)
        if type(value) is np.ndarray:
            if self.sel is not None:
                return value[self.sel]
            # The array is handed out: a later partial write must not change it.
            self.owned.discard(var)
            return value
        if (self.sel is not None and type(value) in (dict, list)) or hasattr(value, "gather"):
            return gather(value, self.active()) if self.sel is not None else value
        return value

    def outer(self, var: Any) -> Any:
        """A variable of the enclosing function, for lambdas and iterations run as lanes."""
        owner, mapping = self.owner(var)
        return gather(owner.read_full(var), mapping)

    def owner(self, var: Any) -> tuple[Frame, Any]:
        """The frame that holds ``var``, and the active lanes as lanes of it."""
        frame: Frame = self
        mapping = self.active()
        while var not in frame.vars and var not in frame.undefined:
            parent = frame.parent
            if parent is None or not frame.lexical:
                raise Unsupported(f"'{getattr(var, 'name', var)}', which has no value here")
            if frame.index is not None:
                mapping = frame.index[mapping]
            frame = parent
        return frame, mapping

    def read_full(self, var: Any) -> Any:
        """The value in all lanes of this frame."""
        self.owned.discard(var)
        return self.vars.get(var)

    def write(self, var: Any, value: Any) -> None:
        """Set a variable in the active lanes."""
        if self.lexical and var not in self.vars and var not in self.undefined and self.outside(var):
            owner, mapping = self.owner(var)
            with owner.at(mapping):
                owner.write(var, value)
            return
        sel = self.sel
        if sel is None:
            self.vars[var] = value
            if self.owned:
                self.owned.discard(var)
            if self.undefined:
                self.undefined.pop(var, None)
            return
        self.write_at(var, value, sel)

    def outside(self, var: Any) -> bool:
        """Whether an enclosing function has ``var``."""
        frame: Frame | None = self
        while frame is not None:
            if var in frame.vars or var in frame.undefined:
                return True
            frame = frame.parent if frame.lexical else None
        return False

    @contextmanager
    def at(self, sel: Any) -> Iterator[None]:
        """``sel`` are the active lanes inside. Lanes may repeat: the last one's value counts."""
        before, cache, n = self.sel, self.cache, self.n
        self.sel, self.n, self.cache = sel, len(sel), {}
        try:
            yield
        finally:
            self.sel, self.n, self.cache = before, n, cache

    def write_at(self, var: Any, value: Any, sel: Any) -> None:
        old = self.vars.get(var)
        if type(old) is np.ndarray and isinstance(value, (np.ndarray, np.generic)) and old.dtype == value.dtype:
            if var not in self.owned:
                old = self.vars[var] = old.copy()
                self.owned.add(var)
            old[sel] = value
        else:
            self.vars[var] = merge(old, value, sel, self.total)
            if type(self.vars[var]) is np.ndarray:
                self.owned.add(var)
        if var in self.undefined:
            known = self.undefined[var]
            known = np.zeros(self.total, bool) if known is None else known.copy()
            known[sel] = True
            if known.all():
                del self.undefined[var]
            else:
                self.undefined[var] = known

    def declare(self, var: Any) -> None:
        """A variable without a value in the active lanes."""
        if self.sel is None or var not in self.vars:
            self.vars.pop(var, None)
            self.undefined[var] = None
            return
        known = self.undefined.get(var)
        known = np.ones(self.total, bool) if known is None and var not in self.undefined else known
        if known is None:
            return
        known = known.copy()
        known[self.sel] = False
        self.undefined[var] = known

    def unknown(self, var: Any) -> Any:
        """The positions among the active lanes where ``var`` was never set; None where it is set in all."""
        if var not in self.undefined:
            return None
        known = self.undefined[var]
        if known is None:
            return identity(self.n)
        lost = np.flatnonzero(~known) if self.sel is None else np.flatnonzero(~known[self.sel])
        return lost if len(lost) else None

    # What a lane is.

    def whole(self, name: Any) -> Any:
        """A property of lanes (``tx``, ``row``, ``lane`` ...) for all lanes of this frame."""
        found = self.specials.get(name)
        if found is None:
            assert self.parent is not None, name
            outer = self.parent.whole(name)
            if type(outer) is np.ndarray and self.index is not None:
                outer = outer[self.index]
            found = self.specials[name] = outer
        return found

    def special(self, name: Any) -> Any:
        """A property of lanes, in the active ones."""
        found = self.whole(name)
        if self.sel is None or type(found) is not np.ndarray:
            return found
        here = self.cache.get(name)
        if here is None:
            here = self.cache[name] = found[self.sel]
        return here

    def lanes(self) -> Any:
        """The active lanes as lanes of the batch."""
        return self.special("lane")

    def threads(self) -> Any:
        """The active lanes' threads by their number in the grid."""
        return self.special("thread")

    def thread(self, position: int) -> Thread:
        """The thread of the active lane at ``position``."""
        return self.machine.thread(int(self.lanes()[position]))

    def stamps(self) -> Any:
        """For each active lane, its barrier interval and number: what accesses are compared by."""
        machine = self.machine
        found = self.cache.get("stamps")
        if found is not None and found[0] == machine.version:
            return found[1]
        stamps = machine.stamps[self.lanes()]
        self.cache["stamps"] = (machine.version, stamps)
        return stamps

    def rows(self, obj: Object, size: int) -> Any:
        """Where each active lane's copy of a shared or local object begins, in units of ``size`` bytes."""
        scale = obj.row_bytes // size
        if obj.row == "block":
            rows = self.special("row")
            if type(rows) is not np.ndarray:
                return int(rows) * scale
        else:
            rows = self.slots()
        key = (obj.row, scale)
        found = self.cache.get(key)
        if found is None:
            found = self.cache[key] = rows * np.int64(scale)
        return found

    def slots(self) -> Any:
        """The active lanes' rows in local arrays."""
        space = self.space
        if space is self:
            return self.active()
        found = self.specials.get("slot")
        if found is None:
            parent = self.parent
            assert parent is not None
            outer = identity(parent.total) if parent is space else parent.whole_slots()
            found = self.specials["slot"] = outer if self.index is None else outer[self.index]
        return found if self.sel is None else found[self.sel]

    def whole_slots(self) -> Any:
        with self.at(identity(self.total)):
            return self.slots()

    def local(self, var: Var, size: int) -> Object:
        """The memory of a local variable that lives in memory."""
        found = self.objects.get(var)
        if found is None:
            if size * self.space.total > 1 << 30:
                raise Unsupported("local arrays of this size")
            found = self.machine.memory.add(var.name, "local", var.type, size, self.space.total, "lane")
            self.objects[var] = found
        return found

    def holder(self, var: Var) -> Object | None:
        """The memory of a local of this activation or, for a lambda, of an enclosing one."""
        frame: Frame | None = self
        while frame is not None:
            found = frame.objects.get(var)
            if found is not None:
                return found
            frame = frame.parent if frame.lexical else None
        return None

    def release(self) -> None:
        """Give the memory of local arrays back."""
        for obj in self.objects.values():
            self.machine.memory.remove(obj)
