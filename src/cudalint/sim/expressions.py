"""Expressions compiled to closures over a :class:`~cudalint.sim.frame.Frame`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cudalint.frontend.typing import class_of
from cudalint.ir import nodes as ir
from cudalint.ir.types import BF16, BIT_FIELD, BOOL, DIM3, U64, VOID, Array, Float, Int, Ptr, Struct, Type
from cudalint.sim import values as v
from cudalint.sim.frame import Frame, identity
from cudalint.sim.places import (
    ZERO,
    MemoryPlace,
    Place,
    ValuePlace,
    VariablePlace,
    flat,
    moved,
    undefined_value,
)
from cudalint.sim.values import Unsupported, convert, dtype_of, lives_in_memory, merge, scalar

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from cudalint.sim.machine import Machine
    from cudalint.sim.observe import Site

    Eval = Callable[[Frame], Any]
    Addresser = Callable[[Frame], tuple[Any, Any, int]]

_AXES = {
    ("threadIdx", "x"): "tx", ("threadIdx", "y"): "ty", ("threadIdx", "z"): "tz",
    ("blockIdx", "x"): "bx", ("blockIdx", "y"): "by", ("blockIdx", "z"): "bz",
}  # fmt: skip
_COMPARE = {
    "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal, "==": np.equal, "!=": np.not_equal,
}  # fmt: skip
_BITS = {"&": np.bitwise_and, "|": np.bitwise_or, "^": np.bitwise_xor}


class Closure:
    """A lambda as a value: its function and the frame whose variables it sees. ``copies`` are the variables that it
    has a copy of, each with that under which the frame keeps the copy."""

    __slots__ = ("code", "copies", "frame", "function")

    def __init__(self, function: ir.Function, frame: Frame, code: Any, copies: dict[ir.Var, Any]) -> None:
        self.function, self.frame, self.code, self.copies = function, frame, code, copies


class _Copy:
    """What a lambda's copy of a variable is kept under."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


class Expressions:
    """Compiles the expressions of one function."""

    def __init__(self, machine: Machine, function: ir.Function, outer: Any = None) -> None:
        self.machine, self.function, self.outer = machine, function, outer
        self.locals: set[ir.Var] = set()
        self.in_memory: set[ir.Var] = set() if outer is None else outer.in_memory

    def site(self, node: ir.Node) -> Site:
        key = (id(node), 0)
        found = self.machine.sites.get(key)
        if found is None:
            from cudalint.sim.observe import Site

            found = self.machine.sites[key] = Site(node, self.function.file)
        return found

    def refuse(self, node: ir.Node, what: str) -> Eval:
        """What cannot be modelled is refused when it is reached, not before."""
        site = self.site(node)

        def run(_f: Frame) -> Any:
            fault = Unsupported(what)
            fault.line = site.line
            raise fault

        return run

    def scan(self, node: Any) -> None:
        """Find the variables whose address is taken: they live in memory."""
        stack = [node]
        while stack:
            item = stack.pop()
            if isinstance(item, ir.AddrOf) or (
                isinstance(item, ir.Cast) and item.how == "reinterpret" and not isinstance(item.type, (Ptr, Int))
            ):
                self.addressed(item.operand)
            elif isinstance(item, ir.VarDecl) and item.var.ref and isinstance(item.init, ir.Cond):
                self.addressed(item.init.then)
                self.addressed(item.init.other)
            stack.extend(children(item))

    def addressed(self, operand: ir.Expr) -> None:
        while isinstance(operand, ir.Member):
            operand = operand.base
        if isinstance(operand, ir.Ref) and operand.var.kind in ("local", "param") and not operand.var.ref:
            self.in_memory.add(operand.var)

    def size(self, type_: Type) -> int:
        """The size of a type in bytes."""
        if isinstance(type_, Array):
            return self.size(type_.element) * self.extent(type_)
        size = 1 if type_ is VOID else type_.size
        if size is None:
            raise Unsupported(f"the size of '{type_}'")
        return size

    def extent(self, type_: Array) -> int:
        if isinstance(type_.extent, int):
            return type_.extent
        if type_.extent is None:
            raise Unsupported("an array without an extent")
        from cudalint.frontend.fold import fold

        found = fold(type_.extent)
        if found is None:
            raise Unsupported("an array whose extent is not known")
        return found

    # Expressions.

    def expr(self, node: ir.Expr) -> Eval:
        """The value of ``node`` in the active lanes, of its static type where that is known."""
        method = _EXPRESSIONS.get(type(node))
        if method is None:
            return self.refuse(node, f"a {type(node).__name__}")
        try:
            result: Eval = method(self, node)
        except Unsupported as fault:
            return self.refuse(node, fault.what)
        return result

    def effect(self, node: ir.Expr) -> Eval:
        """``node`` for its effects: ``x++`` need not keep the old value, an atomic not give it."""
        if isinstance(node, ir.IncDec):
            return self.expr(ir.IncDec(node.start, node.end, node.type, node.op, True, node.target))
        if isinstance(node, ir.Comma):
            left, right = self.effect(node.left), self.effect(node.right)

            def both(f: Frame) -> None:
                left(f)
                right(f)

            return both
        if isinstance(node, ir.Cond):
            return self.do_cond(node)
        return self.expr(node)

    def condition(self, node: ir.Expr) -> Eval:
        """``node`` as a bool: a NumPy bool or an array of them."""
        value = self.expr(node)
        if node.type is BOOL:
            return value

        def run(f: Frame) -> Any:
            c = value(f)
            if not isinstance(c, (np.ndarray, np.generic)):
                of = f"overloaded operator 'bool' of '{node.type}'" if isinstance(node.type, Struct) else ""
                raise Unsupported(of or "a condition that is no number")
            return c if c.dtype == np.bool_ else c != c.dtype.type(0)

        return run

    def converted(self, node: ir.Expr, type_: Type) -> Eval:
        """``node`` converted to ``type_``; a conversion that changes an integer's value is an event."""
        value = self.expr(node)
        if node.type is type_ and not isinstance(type_, Struct):
            return value
        if not isinstance(type_, (Int, Float, Ptr)):
            return value
        dtype = dtype_of(type_)
        site = self.site(node)
        machine = self.machine
        if dtype.kind not in "iu" or isinstance(type_, Ptr):

            def plain(f: Frame) -> Any:
                x = value(f)
                if getattr(x, "dtype", None) is dtype and type_ is not BF16:
                    return x
                return convert(x, type_)

            return plain
        lo, hi = v.limits(dtype)

        def run(f: Frame) -> Any:
            x = value(f)
            have = getattr(x, "dtype", None)
            if have is dtype:
                return x
            if have is None:
                raise Unsupported(f"a conversion to '{type_}'")
            result = convert(x, type_)
            if have.kind in "iu" and have.itemsize >= 4 and n_changes(x, have, lo, hi):
                changed = (x < lo) | (x > hi) if have.kind == "i" else x > hi
                machine.wrap(f, changed, "convert", str(type_), result, site)
            return result

        return run

    def initial(self, node: ir.Expr, type_: Type) -> Eval:
        """An initialiser, an argument or a returned value for something of ``type_``."""
        if isinstance(type_, (Int, Float, Ptr)):
            if isinstance(node, ir.Construct) and len(node.args) == 1:
                return self.converted(node.args[0], type_)
            if isinstance(node, ir.Construct) and not node.args:
                return self.zero(type_)
            return self.converted(node, type_)
        if isinstance(type_, Struct) and isinstance(node, ir.Construct) and not isinstance(node.type, Struct):
            return self.expr(ir.Construct(node.start, node.end, type_, node.args))
        if (
            isinstance(type_, Struct)
            and node.type is not type_
            and isinstance(node.type, (Int, Float))
            and type_.fields is not None
        ):
            return self.expr(ir.Construct(node.start, node.end, type_, [node]))
        return self.expr(node)

    def zero(self, type_: Type) -> Eval:
        value = undefined_value(type_)
        return lambda f: value

    def do_const(self, node: ir.Const) -> Eval:
        value: Any = node.value
        if value is None:
            return self.refuse(node, f"the constant '{node.text}'")
        if isinstance(value, str):
            return lambda f: value
        if isinstance(node.type, (Int, Float, Ptr)):
            dtype = dtype_of(node.type)
            if dtype.kind in "iu" and isinstance(node.type, Int):
                value = node.type.wrap(int(value))
            made = dtype.type(value)
        else:
            made = np.int64(value) if isinstance(value, int) else np.float64(value)
        return lambda f: made

    def do_ref(self, node: ir.Ref) -> Eval:
        var = node.var
        site = self.site(node)
        machine = self.machine
        if var.kind in ("shared", "global", "constant", "field"):
            return self.static_ref(node)
        if var.ref:

            def through(f: Frame) -> Any:
                return self.ref_place(f, var).load(f, site)

            return through
        if var.kind in ("local", "param") and (var in self.in_memory or lives_in_memory(var.type)):
            place = self.place(node)
            return lambda f: place(f).load(f, site)
        if var.kind == "template" or (var not in self.locals and self.outer is None):
            if var.init is not None and var.const:
                return self.constant(var)
            if var.init is not None and var.kind == "local":
                # A capture with an initialiser: its value where the lambda is.
                return self.expr(var.init)
            if var.kind == "template":
                return self.refuse(node, f"the template parameter '{var.name}', which nothing binds")

        def run(f: Frame) -> Any:
            if f.undefined or f.lexical:
                lost = self.lost(f, var)
                if lost is not None:
                    machine.unset_read(f, var, lost, site)
                    if var not in f.vars and not f.lexical:
                        return undefined_value(var.type)
            return f.read(var)

        return run

    def lost(self, f: Frame, var: ir.Var) -> Any:
        if not f.lexical or var in f.vars or var in f.undefined:
            return f.unknown(var)
        try:
            owner, mapping = f.owner(var)
        except Unsupported:
            if var.init is not None:
                f.write(var, self.expr(var.init)(f))
                return None
            raise
        with owner.at(mapping):
            lost = owner.unknown(var)
        if lost is not None and var not in owner.vars:
            owner.vars[var] = undefined_value(var.type)
        return lost

    def ref_place(self, f: Frame, var: ir.Var) -> Place:
        frame: Frame | None = f
        while frame is not None:
            found = frame.vars.get(var)
            if found is not None:
                if not isinstance(found, Place):
                    return VariablePlace(frame, var, var.type)
                return found
            frame = frame.parent if frame.lexical else None
        raise Unsupported(f"the reference '{var.name}', which is not bound here")

    def constant(self, var: ir.Var) -> Eval:
        """A constant variable: its initialiser, evaluated once."""
        assert var.init is not None
        machine = self.machine
        code = self
        made: list[Eval] = []

        def run(f: Frame) -> Any:
            found = machine.values.get(var)
            if found is None:
                if not made:
                    made.append(code.initial(var.init, var.type))  # type: ignore[arg-type]  # not None
                found = made[0](f)
                if type(found) is np.ndarray:
                    return found
                machine.values[var] = found
            return found

        return run

    def static_ref(self, node: ir.Ref) -> Eval:
        var = node.var
        site = self.site(node)
        if (
            var.kind in ("global", "constant")
            and var.const
            and var.init is not None
            and not lives_in_memory(var.type)
            and var.name not in self.machine.given
        ):
            return self.constant(var)
        if var.kind == "field":

            def field(f: Frame) -> Any:
                return self.field_place(f, var).load(f, site)

            return field
        place = self.place(node)
        return lambda f: place(f).load(f, site)

    def field_place(self, f: Frame, var: ir.Var) -> Place:
        frame: Frame | None = f
        while frame is not None and frame.this is None:
            frame = frame.parent if frame.lexical else None
        if frame is None or frame.this is None:
            raise Unsupported(f"the member '{var.name}' of no object")
        return frame.this.member(var.name, var.type)

    # Places.

    def is_memory(self, node: ir.Expr) -> bool:
        """Whether ``node`` is certain to name memory."""
        if isinstance(node, ir.Index):
            return isinstance(node.base.type, (Ptr, Array))
        if isinstance(node, ir.Member):
            return self.is_memory(node.base)
        if isinstance(node, ir.Ref):
            var = node.var
            if var.kind == "field":
                return False
            return not var.ref and (
                var.kind in ("shared", "global", "constant") or var in self.in_memory or lives_in_memory(var.type)
            )
        if isinstance(node, ir.Cast):
            return (
                node.how in ("reinterpret", "c")
                and not isinstance(node.type, (Ptr, Int, Float))
                and self.is_memory(node.operand)
            )
        return False

    def address(self, node: ir.Expr) -> Addresser:
        """The address of what ``node`` names, as (base, index, unit)."""
        if isinstance(node, ir.Index) and isinstance(node.base.type, (Ptr, Array)):
            return self.index_address(node)
        if isinstance(node, ir.Member):
            base_type = node.base.type
            if not isinstance(base_type, Struct):
                raise Unsupported(f"the member '{node.field}' of '{base_type}'")
            base = self.address(node.base)
            offset = v.offsets(base_type).get(node.field)
            if offset is None:
                raise Unsupported(f"the member '{node.field}' of '{base_type}'")
            at: int = offset
            return lambda f: moved(base(f), at)
        if isinstance(node, ir.Cast):
            return self.address(node.operand)
        if isinstance(node, ir.Ref) and self.is_memory(node):
            return self.variable_address(node)
        place = self.place(node)
        return lambda f: place(f).address(f)

    def variable_address(self, node: ir.Ref) -> Addresser:
        var = node.var
        machine = self.machine
        if var.kind == "shared":
            size = 0 if var.extern else self.size(var.type)
            return lambda f: (machine.shared_object(var, size).base, ZERO, 1)
        if var.kind in ("global", "constant"):
            code = self
            return lambda f: (code.static_object(f, var).base, ZERO, 1)
        size = self.size(var.type)
        param = var.kind == "param"

        def run(f: Frame) -> tuple[Any, Any, int]:
            obj = f.holder(var)
            if obj is None:
                obj = f.local(var, size)
                if param and var in f.vars:
                    MemoryPlace((obj.base, ZERO, 1), var.type).store(f, f.read(var), self.site(node))
            return obj.base, ZERO, 1

        return run

    def static_object(self, f: Frame, var: ir.Var) -> Any:
        """The memory of a ``__device__`` or ``__constant__`` variable."""
        machine = self.machine
        found = machine.statics.get(var)
        if found is not None:
            return found
        from cudalint.sim.memory import Buffer

        given = machine.given.get(var.name)
        type_ = var.type
        element = type_
        while isinstance(element, Array):
            element = element.element
        found = machine.memory.add(var.name, "global", element, self.size(type_))
        machine.statics[var] = found
        if isinstance(given, Buffer):
            found.fill = given.fill
        elif given is not None:
            found.fill = given
        elif var.init is None and var.kind == "constant":
            found.fill = "hash"
        if var.init is not None and given is None:
            watching, machine.watch_writes = machine.watch_writes, False
            races, machine.races = machine.races, False
            self.fill(var.init, type_)(f, (found.base, ZERO, 1))  # type: ignore[attr-defined]  # of Code
            machine.watch_writes, machine.races = watching, races
        return found

    def index_address(self, node: ir.Index) -> Addresser:
        base_node, index_node = node.base, node.index
        type_ = base_node.type
        assert isinstance(type_, (Ptr, Array))
        element = type_.element
        unit = self.size(element)
        index = self.index_value(index_node)
        if isinstance(type_, Array) and self.is_memory(base_node):
            inner = self.address(base_node)
            extent = type_.extent if isinstance(type_.extent, int) else None
            site = self.site(node)
            machine = self.machine
            nested = isinstance(base_node, ir.Index)

            def of_array(f: Frame) -> tuple[Any, Any, int]:
                base, at, step = inner(f)
                i = index(f)
                if nested and extent is not None and (v.low(i) < 0 or v.high(i) >= extent):
                    _note_dimension(machine, f, base, i, extent, site)
                if base is None:
                    return None, at + i * np.int64(unit), 1
                if type(at) is not np.ndarray and not at:
                    return base, i, unit
                if step % unit == 0:
                    return base, at * np.int64(step // unit) + i, unit
                return base, at * np.int64(step) + i * np.int64(unit), 1

            return of_array
        base = self.expr(base_node)

        def run(f: Frame) -> tuple[Any, Any, int]:
            pointer = base(f)
            i = index(f)
            if type(pointer) is np.ndarray:
                return None, pointer + i * np.int64(unit), 1
            if not isinstance(pointer, np.generic):
                raise Unsupported("indexing something that is no pointer")
            return int(pointer), i, unit

        return run

    def index_value(self, node: ir.Expr) -> Eval:
        """An index as int64."""
        if isinstance(node, ir.Const) and isinstance(node.value, int):
            made = np.int64(node.value)
            return lambda f: made
        value = self.expr(node)
        int64 = np.dtype(np.int64)

        def run(f: Frame) -> Any:
            i = value(f)
            dtype = getattr(i, "dtype", None)
            if dtype is int64:
                return i
            if dtype is None or dtype.kind not in "iub":
                raise Unsupported("an index that is no integer")
            return i.astype(int64)

        return run

    def place(self, node: ir.Expr) -> Callable[[Frame], Place]:
        """What ``node`` names, to be stored to or bound to a reference."""
        type_ = node.type
        if self.is_memory(node):
            where = self.address(node)
            return lambda f: MemoryPlace(where(f), type_)
        if isinstance(node, ir.Ref):
            var = node.var
            if var.kind == "field":
                return lambda f: self.field_place(f, var)
            if var.ref:
                return lambda f: self.ref_place(f, var)

            def variable(f: Frame) -> Place:
                if not f.lexical or var in f.vars or var in f.undefined:
                    return VariablePlace(f, var, type_)
                owner, _ = f.owner(var)
                return VariablePlace(owner, var, type_)

            return variable
        if isinstance(node, ir.Member):
            if type_ is BIT_FIELD:
                raise v.no_value(type_)
            base = self.place(node.base)
            field = node.field
            return lambda f: base(f).member(field, type_)
        if isinstance(node, ir.Call):
            return self.call_place(node)
        if isinstance(node, ir.Index) and isinstance(node.base.type, Struct):
            call = self.subscript_call(node)
            if call is not None:
                return self.call_place(call)
        if isinstance(node, (ir.Assign, ir.IncDec)):
            effect = self.expr(node)
            target = self.place(node.target)

            def assigned(f: Frame) -> Place:
                effect(f)
                return target(f)

            return assigned
        if isinstance(node, ir.Cast):
            return self.place(node.operand)
        if isinstance(node, ir.Name) and node.name == "this":
            raise Unsupported("'this' as a value")
        if isinstance(node, ir.Comma):
            left, right = self.effect(node.left), self.place(node.right)

            def comma(f: Frame) -> Place:
                left(f)
                return right(f)

            return comma
        if isinstance(node, ir.Cond):
            return self.cond_place(node)
        raise Unsupported(f"{type(node).__name__} as a place")

    def cond_place(self, node: ir.Cond) -> Callable[[Frame], Place]:
        cond, then, other = self.condition(node.cond), self.place(node.then), self.place(node.other)

        def run(f: Frame) -> Place:
            c = cond(f)
            if type(c) is not np.ndarray:
                return then(f) if c else other(f)
            if c.all():
                return then(f)
            if not c.any():
                return other(f)
            address = np.zeros(f.n, np.int64)
            for lanes, side in ((np.flatnonzero(c), then), (np.flatnonzero(~c), other)):
                with f.narrowed(lanes):
                    address[lanes] = flat(side(f).address(f))
            return MemoryPlace((None, address, 1), node.type)

        return run

    def call_place(self, node: ir.Call) -> Callable[[Frame], Place]:
        raise NotImplementedError  # given by a layer above

    def subscript_call(self, node: ir.Index) -> ir.Call | None:
        raise NotImplementedError  # given by a layer above

    def reference(self, node: ir.Expr, var: ir.Var) -> Callable[[Frame], Place]:
        """What a reference parameter or variable is bound to; a value of its own where ``node`` is none."""
        type_ = var.type
        base = node
        while isinstance(base, (ir.Member, ir.Cast)):
            base = base.base if isinstance(base, ir.Member) else base.operand
        lvalue = isinstance(base, (ir.Ref, ir.Index)) and not (
            isinstance(node, ir.Cast) and isinstance(type_, (Int, Float)) and node.type is not node.operand.type
        )
        if isinstance(node, ir.Index) and isinstance(node.base.type, Struct) and self.subscript_call(node) is None:
            lvalue = False
        if (
            isinstance(base, ir.Ref)
            and base.var.const
            and base.var.init is not None
            and base.var.kind in ("global", "constant", "template")
        ):
            lvalue = lives_in_memory(base.var.type)
        if isinstance(type_, (Int, Float)) and node.type is not type_ and isinstance(node.type, (Int, Float)):
            lvalue = False  # a temporary of the other type
        if lvalue:
            try:
                return self.place(node)
            except Unsupported:
                if not var.const:
                    raise
        elif not var.const:
            try:
                return self.place(node)
            except Unsupported:
                if isinstance(node, (ir.Cond, ir.Assign, ir.IncDec, ir.Comma)):
                    raise  # an lvalue; anything else is a value of its own
        value = self.initial(node, type_)
        return lambda f: ValuePlace(f, value(f), type_)

    # Operators.

    def do_special(self, node: ir.Special) -> Eval:
        machine = self.machine
        which, axis = node.which, node.axis
        if which == "warpSize":
            size = np.int32(32)
            return lambda f: size
        if which in ("blockDim", "gridDim"):
            extents = machine.block if which == "blockDim" else machine.grid
            if axis:
                value = np.uint32(extents["xyz".index(axis)])
                return lambda f: value
            record = {a: np.uint32(e) for a, e in zip("xyz", extents)}
            return lambda f: record
        if axis:
            name = _AXES[which, axis]
            return lambda f: f.special(name)
        names = [_AXES[which, a] for a in "xyz"]
        return lambda f: {a: f.special(n) for a, n in zip("xyz", names)}

    def do_member(self, node: ir.Member) -> Eval:
        site = self.site(node)
        type_ = node.type
        field = node.field
        if type_ is BIT_FIELD:
            return self.refuse(node, "bit-field")
        if self.is_memory(node):
            where = self.address(node)
            return lambda f: MemoryPlace(where(f), type_).load(f, site)
        base_node = node.base
        if isinstance(base_node, (ir.Ref, ir.Member)) and _rooted(base_node):
            place = self.place(node)
            return lambda f: place(f).load(f, site)
        base = self.expr(base_node)

        def run(f: Frame) -> Any:
            value = base(f)
            if type(value) is dict and field in value:
                return value[field]
            raise Unsupported(f"the member '{field}' of '{base_node.type}'")

        return run

    def do_index(self, node: ir.Index) -> Eval:
        site = self.site(node)
        type_ = node.type
        if isinstance(node.base.type, (Ptr, Array)):
            where = self.index_address(node)
            if isinstance(type_, (Int, Float, Ptr)):
                memory = self.machine.memory
                return lambda f: memory.load(f, where(f), type_, site)
            return lambda f: MemoryPlace(where(f), type_).load(f, site)
        call = self.subscript_call(node)
        if call is not None:
            return self.expr(call)
        if isinstance(node.base.type, Struct):
            return self.overloaded(node, "[]' or '*", node.base.type)
        return self.refuse(node, f"indexing '{node.base.type}'")

    def do_addr(self, node: ir.AddrOf) -> Eval:
        operand = node.operand
        if isinstance(operand, ir.Name):
            return self.refuse(node, f"the address of '{operand.name}'")
        where = self.address(operand)
        return lambda f: flat(where(f))

    def do_unary(self, node: ir.Unary) -> Eval:
        op = node.op
        if op == "!":
            cond = self.condition(node.operand)
            return lambda f: ~cond(f)
        type_ = node.type
        if isinstance(type_, Struct):
            return self.struct_unary(node)
        value = (
            self.converted(node.operand, type_) if isinstance(type_, (Int, Float, Ptr)) else self.promoted(node.operand)
        )
        if op == "+":
            return value
        if op == "~":
            return lambda f: ~value(f)
        machine, site = self.machine, self.site(node)

        def negate(f: Frame) -> Any:
            x = value(f)
            result = -x
            if x.dtype.kind == "i" and v.low(x) == v.limits(x.dtype)[0]:
                machine.wrap(f, x == v.limits(x.dtype)[0], "signed", "-", result, site)
            return result

        return negate

    def struct_unary(self, node: ir.Unary) -> Eval:
        if node.op != "-" or node.operand.type in class_of:
            return self.overloaded(node, node.op, node.operand.type)
        value = self.expr(node.operand)
        return lambda f: {name: -x for name, x in value(f).items()}

    def overloaded(self, node: ir.Node, op: str, type_: Type) -> Eval:
        """An operator of a class of the project."""
        return self.refuse(node, f"overloaded operator '{op}' of '{type_}'")

    def promoted(self, node: ir.Expr) -> Eval:
        """A value of a type not known before, promoted as C++ does."""
        value = self.expr(node)

        def run(f: Frame) -> Any:
            x = value(f)
            dtype = getattr(x, "dtype", None)
            if dtype is None:
                raise Unsupported(f"arithmetic on '{node.type}'")
            return x.astype(np.int32) if dtype.kind in "iub" and dtype.itemsize < 4 else x

        return run

    def do_binary(self, node: ir.Binary) -> Eval:
        optype = node.optype
        if isinstance(optype, Ptr):
            return self.pointer_binary(node)
        if isinstance(optype, (Int, Float)):
            operate = self.operation(node.op, optype, node)
            left = self.converted(node.left, optype)
            right = self.promoted(node.right) if node.op in ("<<", ">>") else self.converted(node.right, optype)
            return lambda f: operate(f, left(f), right(f))
        for type_ in (node.left.type, node.right.type):
            if type_ in class_of:
                return self.overloaded(node, node.op, type_)
        return self.dynamic_binary(node.op, node.left, node.right, node)

    def operation(self, op: str, optype: Type, node: ir.Expr) -> Callable[[Frame, Any, Any], Any]:
        """``a op b`` with both operands of ``optype`` (the count of a shift of any)."""
        compare = _COMPARE.get(op)
        if compare is not None:
            return lambda f, a, b: compare(a, b)
        bits = _BITS.get(op)
        if bits is not None:
            if isinstance(optype, Float):
                raise Unsupported(f"'{op}' on floating values")
            return lambda f, a, b: bits(a, b)
        if op in ("<<", ">>"):
            return lambda f, a, b: scalar(v.shift(op, a, b))
        machine, site = self.machine, self.site(node)
        if isinstance(optype, Float):
            real = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide}.get(op)
            if real is None:
                raise Unsupported(f"'{op}' on floating values")
            if optype is BF16:
                return lambda f, a, b: v.to_bfloat(real(a, b))
            return lambda f, a, b: real(a, b)
        exact = {"+": v.add, "-": v.subtract, "*": v.multiply, "/": v.divide, "%": v.remainder}.get(op)
        if exact is None:
            raise Unsupported(f"the operator '{op}'")
        signed = "divide" if op in "/%" else "signed" if isinstance(optype, Int) and optype.signed else "unsigned"
        # A difference below zero in unsigned arithmetic is common and meant (i - 1 before a test).

        def run(f: Frame, a: Any, b: Any) -> Any:
            result, wrapped = exact(a, b)
            if wrapped is not None:
                result = scalar(result)
                machine.wrap(f, wrapped, signed, op, result, site)
            return result

        return run

    def dynamic_binary(self, op: str, left_node: ir.Expr, right_node: ir.Expr, node: ir.Expr) -> Eval:
        """An operation whose type only the values tell, or one on the fields of vectors (half2)."""
        left, right = self.expr(left_node), self.expr(right_node)
        cache: dict[Any, Any] = {}

        def scalars(f: Frame, a: Any, b: Any) -> Any:
            if not hasattr(a, "dtype") or not hasattr(b, "dtype"):
                raise Unsupported(f"'{op}' on '{left_node.type}' and '{right_node.type}'")
            if op in ("<<", ">>"):
                a = a.astype(np.int32) if a.dtype.itemsize < 4 else a
                dtype = a.dtype
            else:
                dtype = v.common_dtype(a, b)
                a, b = a.astype(dtype), b.astype(dtype)
            operate = cache.get(dtype)
            if operate is None:
                operate = cache[dtype] = self.operation(op, v.TYPES[dtype], node)
            return operate(f, a, b)

        def run(f: Frame) -> Any:
            a, b = left(f), right(f)
            if type(a) is dict and type(b) is dict and a.keys() == b.keys():
                if op in ("==", "!="):
                    parts = [scalars(f, a[n], b[n]) for n in a]
                    result = parts[0]
                    for part in parts[1:]:
                        result = (result & part) if op == "==" else (result | part)
                    return result
                return {name: scalars(f, a[name], b[name]) for name in a}
            return scalars(f, a, b)

        return run

    def pointer_binary(self, node: ir.Binary) -> Eval:
        op = node.op
        optype = node.optype
        assert isinstance(optype, Ptr)
        left, right = self.expr(node.left), self.expr(node.right)
        compare = _COMPARE.get(op)
        if compare is not None:
            return lambda f: compare(_address(left(f)), _address(right(f)))
        unit = np.int64(self.size(optype.element))
        if op == "-" and isinstance(node.right.type, (Ptr, Array)):
            return lambda f: (left(f) - right(f)) // unit
        swapped = not isinstance(node.left.type, (Ptr, Array))
        base, index = (right, self.index_value(node.left)) if swapped else (left, self.index_value(node.right))
        if op == "+":
            return lambda f: base(f) + index(f) * unit
        if op == "-":
            return lambda f: base(f) - index(f) * unit
        raise Unsupported(f"'{op}' on a pointer")

    def do_logical(self, node: ir.Logical) -> Eval:
        left, right = self.condition(node.left), self.condition(node.right)
        conjunction = node.op == "&&"
        if _simple(node.right):
            combine = np.logical_and if conjunction else np.logical_or

            def both(f: Frame) -> Any:
                a = left(f)
                if type(a) is not np.ndarray:
                    return right(f) if bool(a) == conjunction else a
                return combine(a, right(f))

            return both

        def run(f: Frame) -> Any:
            a = left(f)
            if type(a) is not np.ndarray:
                return right(f) if bool(a) == conjunction else a
            open_ = np.flatnonzero(a if conjunction else ~a)
            if not len(open_):
                return a
            if len(open_) == f.n:
                return right(f)
            with f.narrowed(open_):
                b = right(f)
            result = a.copy()
            result[open_] = b
            return result

        return run

    def do_cond(self, node: ir.Cond) -> Eval:
        type_ = node.type
        cond = self.condition(node.cond)
        if isinstance(type_, (Int, Float, Ptr)):
            then, other = self.converted(node.then, type_), self.converted(node.other, type_)
        else:
            then, other = self.initial(node.then, type_), self.initial(node.other, type_)
        harmless = _simple(node.then) and _simple(node.other) and isinstance(type_, (Int, Float))

        def run(f: Frame) -> Any:
            c = cond(f)
            if type(c) is not np.ndarray:
                return then(f) if c else other(f)
            if harmless:
                return np.where(c, then(f), other(f))
            yes = np.flatnonzero(c)
            if len(yes) == f.n:
                return then(f)
            if not len(yes):
                return other(f)
            no = np.flatnonzero(~c)
            n = f.n
            with f.narrowed(yes):
                a = then(f)
            with f.narrowed(no):
                b = other(f)
            if type_ is VOID or (a is None and b is None):
                return None
            return merge(_scatter(a, yes, n), b, no, n)

        return run

    def do_cast(self, node: ir.Cast) -> Eval:
        type_ = node.type
        operand = node.operand
        if type_ is VOID:
            return self.effect(operand)
        if isinstance(type_, Ptr):
            value = self.expr(operand)

            def pointer(f: Frame) -> Any:
                x = value(f)
                if isinstance(x, str):
                    return x
                if not hasattr(x, "dtype") or x.dtype.kind not in "iu":
                    raise Unsupported(f"a cast to '{type_}'")
                return x if x.dtype == np.int64 else x.astype(np.int64)

            return pointer
        if isinstance(type_, (Int, Float)):
            if isinstance(operand.type, Struct):
                return self.struct_cast(node)
            if node.how == "bit":
                return self.refuse(node, "a bit cast")
            return self.converted(operand, type_)
        if isinstance(type_, Struct):
            if operand.type is type_:
                return self.expr(operand)
            if self.is_memory(operand):
                where = self.address(operand)
                site = self.site(node)
                return lambda f: MemoryPlace(where(f), type_).load(f, site)
            return self.expr(ir.Construct(node.start, node.end, type_, [operand]))
        value = self.expr(operand)
        site = self.site(node)
        return self.refuse(node, f"a cast to '{type_}'")

    def struct_cast(self, node: ir.Cast) -> Eval:
        raise NotImplementedError  # given by a layer above

    def do_assign(self, node: ir.Assign) -> Eval:
        target = node.target
        type_ = target.type
        site = self.site(node)
        memory = self.machine.memory
        plain = (
            isinstance(target, ir.Ref)
            and not target.var.ref
            and target.var.kind in ("local", "param")
            and not self.is_memory(target)
        )
        if type_ in class_of and (node.op or self.method(type_, "operator=", 1) is not None):
            return self.overloaded(node, f"{node.op}=", type_)
        if not node.op:
            value = self.initial(node.value, type_)
            if plain:
                assert isinstance(target, ir.Ref)
                var = target.var

                def assign(f: Frame) -> Any:
                    x = value(f)
                    f.write(var, x)
                    return x

                return assign
            if isinstance(type_, (Int, Float, Ptr)) and self.is_memory(target):
                where = self.address(target)

                def put(f: Frame) -> Any:
                    x = value(f)
                    memory.store(f, where(f), type_, x, site)
                    return x

                return put
            place = self.place(target)

            def store(f: Frame) -> Any:
                x = value(f)
                place(f).store(f, x, site)
                return x

            return store
        combine = self.compound(node)
        if plain:
            assert isinstance(target, ir.Ref)
            var = target.var
            old = self.expr(target)

            def update(f: Frame) -> Any:
                x = combine(f, old(f))
                f.write(var, x)
                return x

            return update
        place = self.place(target)
        target_site = self.site(target)

        def modify(f: Frame) -> Any:
            here = place(f)
            x = combine(f, here.load(f, target_site))
            here.store(f, x, site)
            return x

        return modify

    def compound(self, node: ir.Assign) -> Callable[[Frame, Any], Any]:
        """``old op value``, converted back to the target's type."""
        type_, optype = node.target.type, node.optype
        op = node.op
        if isinstance(optype, Ptr):
            unit = np.int64(self.size(optype.element))
            index = self.index_value(node.value)
            if op == "+":
                return lambda f, old: old + index(f) * unit
            return lambda f, old: old - index(f) * unit
        if isinstance(optype, (Int, Float)) and isinstance(type_, (Int, Float)):
            operate = self.operation(op, optype, node)
            value = self.promoted(node.value) if op in ("<<", ">>") else self.converted(node.value, optype)
            narrow = isinstance(optype, Int) and isinstance(type_, Int) and optype is not type_ and type_.bits >= 32
            machine, site = self.machine, self.site(node)

            def run(f: Frame, old: Any) -> Any:
                x = operate(f, convert(old, optype), value(f))
                result = convert(x, type_)
                if narrow:
                    lo, hi = v.limits(result.dtype)
                    if n_changes(x, x.dtype, lo, hi):
                        machine.wrap(
                            f,
                            (x < lo) | (x > hi) if x.dtype.kind == "i" else x > hi,
                            "convert",
                            str(type_),
                            result,
                            site,
                        )
                return result

            return run
        value = self.expr(node.value)
        cache: dict[Any, Any] = {}

        def dynamic(f: Frame, old: Any) -> Any:
            x = value(f)

            def one(a: Any, b: Any) -> Any:
                if not hasattr(a, "dtype") or not hasattr(b, "dtype"):
                    raise Unsupported(f"'{op}=' on '{type_}'")
                dtype = v.common_dtype(a, b) if op not in ("<<", ">>") else a.dtype
                operate = cache.get(dtype)
                if operate is None:
                    operate = cache[dtype] = self.operation(op, v.TYPES[dtype], node)
                return operate(f, a.astype(dtype), b.astype(dtype)).astype(a.dtype)

            if type(old) is dict and type(x) is dict:
                return {name: one(old[name], x[name]) for name in old}
            if type(old) is dict:
                return {name: one(old[name], x) for name in old}
            return one(old, x)

        return dynamic

    def do_incdec(self, node: ir.IncDec) -> Eval:
        target = node.target
        type_ = target.type
        if isinstance(type_, Struct):
            return self.overloaded(node, node.op * 2, type_)
        site = self.site(node)
        machine = self.machine
        op = v.add if node.op == "+" else v.subtract
        down = node.op == "-"
        prefix = node.prefix
        unit = np.int64(self.size(type_.element)) if isinstance(type_, Ptr) else None

        def stepped(f: Frame, old: Any) -> Any:
            if unit is not None:
                return old - unit if down else old + unit
            dtype = old.dtype
            if dtype.kind == "b":
                return np.True_
            if dtype.kind == "f":
                return old - dtype.type(1) if down else old + dtype.type(1)
            result, wrapped = op(old, dtype.type(1))
            if wrapped is not None and dtype.itemsize >= 4:
                machine.wrap(f, wrapped, "signed" if dtype.kind == "i" else "unsigned", node.op * 2, result, site)
            return result

        if (
            isinstance(target, ir.Ref)
            and not target.var.ref
            and target.var.kind in ("local", "param")
            and not self.is_memory(target)
        ):
            var = target.var
            read = self.expr(target)

            def local(f: Frame) -> Any:
                old = read(f)
                new = stepped(f, old)
                f.write(var, new)
                return new if prefix else old

            return local
        place = self.place(target)

        def run(f: Frame) -> Any:
            here = place(f)
            old = here.load(f, site)
            new = stepped(f, old)
            here.store(f, new, site)
            return new if prefix else old

        return run

    def do_construct(self, node: ir.Construct) -> Eval:
        type_ = node.type
        args = node.args
        if isinstance(type_, (Int, Float, Ptr)):
            return self.initial(node, type_)
        if not isinstance(type_, Struct):
            if len(args) == 1:
                return self.expr(args[0])
            return self.refuse(node, f"an object of type '{type_}'")
        if type_.name.startswith("cooperative_groups::"):
            marker = type_.name
            return lambda f: marker
        if type_ is DIM3:
            parts = [self.converted(a, v.TYPES[np.dtype(np.uint32)]) for a in args[:3]]
            if len(args) == 1 and isinstance(args[0].type, Struct):
                return self.expr(args[0])
            one = np.uint32(1)
            return lambda f: {axis: parts[i](f) if i < len(parts) else one for i, axis in enumerate("xyz")}
        if len(args) == 1 and args[0].type is type_:
            return self.expr(args[0])
        constructor = self.constructor(type_, args, node)
        if constructor is not None:
            return constructor
        if type_.fields is None:
            return self.refuse(node, f"an object of the class '{type_}'")
        fields = list(type_.fields.items())
        if len(args) > len(fields):
            return self.refuse(node, f"an object of the class '{type_}' from {len(args)} values")
        if len(args) == 1 and isinstance(args[0].type, Struct) and len(fields) > 1:
            if args[0].type.fields is not None and list(args[0].type.fields) == list(type_.fields):
                source = self.expr(args[0])
                types = dict(fields)
                return lambda f: {n: convert(x, types[n]) for n, x in source(f).items()}
            return self.refuse(node, f"a conversion to '{type_}'")
        made = [(name, self.field_value(arg, field)) for (name, field), arg in zip(fields, args)]
        rest = self.blank(type_, frozenset(name for name, _ in fields[len(args) :]))
        return lambda f: {**{name: value(f) for name, value in made}, **rest(f)}

    def blank(self, type_: Struct, names: Container[str] | None = None) -> Eval:
        """The fields (those in ``names``, if given) of an object of which nothing is said: their defaults, if any."""
        made: list[tuple[str, Eval]] = []
        rest: dict[str, Any] = {}
        for name, field in (type_.fields or {}).items():
            if names is not None and name not in names:
                continue
            if name in type_.defaults:
                made.append((name, self.field_value(type_.defaults[name], field)))
            elif isinstance(field, Struct) and has_defaults(field):
                made.append((name, self.blank(field)))
            else:
                rest[name] = None if field is BIT_FIELD else undefined_value(field)
        return lambda f: {**rest, **{name: value(f) for name, value in made}}

    def field_value(self, node: ir.Expr, type_: Type) -> Eval:
        if isinstance(type_, Array):
            if not isinstance(node, ir.Construct):
                raise Unsupported("an array in a class")
            extent = self.extent(type_)
            items = [self.field_value(arg, type_.element) for arg in node.args]
            zero = undefined_value(type_.element)
            return lambda f: [items[i](f) if i < len(items) else zero for i in range(extent)]
        return self.initial(node, type_)

    def constructor(self, type_: Struct, args: list[ir.Expr], node: ir.Node) -> Eval | None:
        raise NotImplementedError  # given by a layer above

    def method(self, type_: Type, name: str, count: int) -> ir.FunctionDecl | None:
        raise NotImplementedError  # given by a layer above

    def do_sizeof(self, node: ir.SizeOf) -> Eval:
        made = dtype_of(U64).type(self.size(node.of))
        return lambda f: made

    def do_comma(self, node: ir.Comma) -> Eval:
        left, right = self.effect(node.left), self.expr(node.right)

        def run(f: Frame) -> Any:
            left(f)
            return right(f)

        return run

    def do_lambda(self, node: ir.Lambda) -> Eval:
        from cudalint.sim.loops import below

        function = node.function
        code = self
        inside = below(function.body)
        own = {n.var for n in inside if isinstance(n, ir.VarDecl)} | {*function.params}
        used = dict.fromkeys(
            n.var for n in inside if isinstance(n, ir.Ref) and n.var not in own and node.by_value(n.var)
        )
        copies = []
        for var in used:
            if var.static or (var.const and var.init is not None and var not in node.made):
                continue
            if isinstance(var.type, Array):
                return self.refuse(node, f"a lambda's copy of the array '{var.name}'")
            value = var.init if var in node.made and var.init is not None else ir.Ref(node.start, node.end, var)
            copies.append((var, _Copy(var.name), self.expr(value)))

        def run(f: Frame) -> Any:
            made = {}
            for var, key, value in copies:
                # A variable without a value has none to copy: that is said where it is read.
                if var not in f.undefined:
                    f.write(key, value(f))
                    made[var] = key
            return Closure(function, f, code, made)

        return run

    def do_name(self, node: ir.Name) -> Eval:
        if node.name == "this":
            return self.refuse(node, "'this' as a value")
        name = node.name
        given = self.machine.given.get(name)
        if isinstance(given, (int, float)):
            made = np.int32(given) if isinstance(given, int) else np.float32(given)
            return lambda f: made
        same = _same(node.targs) if name.startswith("std::is_same") and name.endswith((">", ">::value")) else None
        if same is not None:
            return lambda f: same
        return self.refuse(node, f"'{name}', which the project does not declare")

    def do_opaque(self, node: ir.Opaque) -> Eval:
        return self.refuse(node, node.why)

    def do_call(self, node: ir.Call) -> Eval:
        raise NotImplementedError  # given by a layer above


def _same(types: list[Type | ir.Expr]) -> Any:
    """What ``std::is_same`` of two types is; None where that is not known: types of one width may have several names
    (``long``, ``long long``), and what the project does not declare may be anything."""
    if len(types) != 2 or not all(isinstance(x, (Int, Float, Struct)) for x in types):
        return None
    one, other = types
    if one is other and isinstance(one, Int) and one.bits in (8, 64):
        return None
    return np.bool_(one is other)


def has_defaults(type_: Type) -> bool:
    """Whether some member of a class starts as something."""
    if isinstance(type_, Array):
        return has_defaults(type_.element)
    if not isinstance(type_, Struct):
        return False
    return bool(type_.defaults) or any(has_defaults(x) for x in (type_.fields or {}).values())


def n_changes(x: Any, dtype: np.dtype[Any], lo: int, hi: int) -> bool:
    """Whether some integer in ``x`` is outside of [lo, hi]."""
    own_lo, own_hi = v.limits(dtype)
    return (own_lo < lo and v.low(x) < lo) or (own_hi > hi and v.high(x) > hi)


def _address(x: Any) -> Any:
    if isinstance(x, (np.ndarray, np.generic)):
        return x if x.dtype == np.int64 else x.astype(np.int64)
    raise Unsupported("comparing something that is no pointer")


def _scatter(value: Any, lanes: Any, total: int) -> Any:
    """``value`` of the lanes ``lanes`` as one of all ``total``."""
    return merge(None, value, lanes, total)


def _rooted(node: ir.Expr) -> bool:
    while isinstance(node, ir.Member):
        node = node.base
    return isinstance(node, ir.Ref)


def _simple(node: ir.Expr) -> bool:
    """Whether evaluating ``node`` in every lane does nothing and reports nothing."""
    if isinstance(node, (ir.Const, ir.Special)):
        return not isinstance(getattr(node, "value", 0), str)
    if isinstance(node, ir.Ref):
        var = node.var
        return (
            var.kind in ("param", "local")
            and not var.ref
            and isinstance(var.type, (Int, Float))
            and var.kind == "param"
        )
    if isinstance(node, ir.Binary):
        return (node.op in _COMPARE and _simple(node.left) and _leaf(node.right)) or (
            node.op in _COMPARE and _leaf(node.left) and _leaf(node.right)
        )
    if isinstance(node, ir.Unary):
        return node.op in "!-" and isinstance(node.operand, ir.Const)
    return False


def _leaf(node: ir.Expr) -> bool:
    if isinstance(node, ir.Ref):
        var = node.var
        initialised = var.kind == "param" or (var.kind == "local" and var.init is not None)
        return initialised and not var.ref and isinstance(var.type, (Int, Float))
    return isinstance(node, (ir.Const, ir.Special))


def _note_dimension(machine: Any, f: Frame, base: Any, index: Any, extent: int, site: Site) -> None:
    from cudalint.sim.observe import Outside

    obj = machine.memory.at(base) if base is not None else None
    if obj is None:
        return
    lanes = np.flatnonzero((index < 0) | (index >= extent)) if type(index) is np.ndarray else identity(f.n)[:1]
    for position in range(machine.memory.outside.room(site, len(lanes), "dimension")):
        lane = int(lanes[position])
        at = int(index[lane] if type(index) is np.ndarray else index)
        machine.memory.outside.events.append(
            Outside(obj.name, obj.space, at, extent, f.thread(lane), site, "index", True)
        )


def children(node: Any) -> list[Any]:
    """The nodes directly below ``node``, statements and expressions alike."""
    from cudalint.facts.assigned import children as below

    return below(node)


_EXPRESSIONS: dict[type, Any] = {
    ir.Const: Expressions.do_const, ir.Ref: Expressions.do_ref, ir.Name: Expressions.do_name,
    ir.Special: Expressions.do_special, ir.Member: Expressions.do_member, ir.Index: Expressions.do_index,
    ir.AddrOf: Expressions.do_addr, ir.Unary: Expressions.do_unary, ir.Binary: Expressions.do_binary,
    ir.Logical: Expressions.do_logical, ir.Cond: Expressions.do_cond, ir.Cast: Expressions.do_cast,
    ir.Assign: Expressions.do_assign, ir.IncDec: Expressions.do_incdec,
    ir.Call: lambda self, node: self.do_call(node), ir.Construct: Expressions.do_construct,
    ir.SizeOf: Expressions.do_sizeof, ir.Comma: Expressions.do_comma, ir.Lambda: Expressions.do_lambda,
    ir.Opaque: Expressions.do_opaque,
}  # fmt: skip
