"""Places and memory: where an lvalue is, what a pointer points to, loads and stores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudalint.facts import terms as t
from cudalint.facts.calls import (
    DEVICE_MEMBERS,
)
from cudalint.facts.contents import Contents
from cudalint.facts.events import (
    Access,
    Closure,
    Designator,
    Obj,
    Pointer,
    Record,
    chain,
)
from cudalint.facts.queried import answer, lasting, only_number
from cudalint.facts.state import number
from cudalint.facts.terms import UNKNOWN, Term, const
from cudalint.ir import nodes as ir
from cudalint.ir.types import DIM3, I32, I64, U32, Array, Float, Int, Param, Ptr, Struct, Type

if TYPE_CHECKING:
    from cudalint.facts.events import Value


class Places(Contents):
    """Reads and writes of variables, fields and memory."""

    def value(self, node: ir.Expr) -> Value:
        """What an expression computes."""
        raise NotImplementedError  # given by the layer of expressions

    def place(self, node: ir.Expr) -> Any:
        """Where an lvalue is: ("var", var, path), ("mem", pointer, node), or None where it is not known."""
        if isinstance(node, ir.Ref):
            alias = self.aliases.get(node.var)
            if alias is None and self.in_memory(node.var):
                return ("mem", self.array(node.var), node)
            if alias is not None and alias[0] == "mem" and node.var.kind == "param":
                return ("mem", alias[1], node)  # what is passed stands in the caller, and maybe in another file
            return alias if alias is not None else ("var", node.var, ())
        if isinstance(node, ir.Member):
            base = self.place(node.base)
            if base is None:
                return None
            if base[0] == "var":
                return ("var", base[1], (*base[2], node.field))
            return ("field", base, node.field, node)
        if isinstance(node, ir.Index):
            pointer = self.index(node)
            if pointer is None:
                return None
            return self.memory(pointer, node)
        if isinstance(node, ir.Cast):
            return self.recast(node, self.place(node.operand))
        if isinstance(node, (ir.Assign, ir.IncDec)):
            self.value(node)
            target = node.target
            while isinstance(target, (ir.Assign, ir.IncDec)):
                target = target.target  # what they do is done
            return self.place(target)
        return None

    def recast(self, node: ir.Cast, place: Any) -> Any:
        """A place that a cast to a reference takes for one of another type."""
        if place is None or place[0] == "field":
            return None
        if place[0] == "var":
            if place[2] or not isinstance(place[1].type, Array) or isinstance(node.type, (Ptr, Array)):
                return place
            pointer = self.array(place[1])
        else:
            pointer = place[1]
            if node.how not in ("reinterpret", "c") or isinstance(node.type, (Ptr, Int, Float, Array)):
                return None
        return ("mem", Pointer(pointer.obj, node.type, pointer.pieces), node)

    def in_memory(self, var: ir.Var) -> bool:
        """Whether a scalar or class variable lies in memory that threads share."""
        if isinstance(var.type, Array):
            return False
        return var.kind == "shared" or (self.device and var.kind == "global" and not var.const)

    def memory(self, pointer: Pointer, node: ir.Expr) -> Any:
        if pointer.obj.kind == "var" and pointer.obj.data is not None and _is_zero(pointer):
            return ("var", *pointer.obj.data)
        return ("mem", pointer, node)

    def read(self, place: Any, type_: Type) -> Value:
        if place[0] == "var":
            value = self.lookup(place[1])
            for name in place[2]:
                if isinstance(value, Record):
                    value = self.field(value, name)
                elif isinstance(value, Term) and value.op == "atom" and value.data.kind == "device":
                    asked = ("device", value, name)
                    found = self.loads.get(asked)
                    if found is None:
                        # cudaDeviceProp's members that size launches are ints.
                        found = self.loads[asked] = self.fresh(
                            "device", f"{place[1].name}.{name}", number(type_) or I32
                        )
                    value = found
                else:
                    level = value.data.level if isinstance(value, Term) and value.op == "atom" else UNKNOWN
                    return self.unknown_value("unknown", f"{place[1].name}.{name}", type_, level=level)
            return value
        if place[0] == "field":
            seq = self.flow.accesses[-1].seq if self.flow.accesses else -1
            record = self.read(place[1], place[3].base.type)
            if self.flow.accesses and (last := self.flow.accesses[-1]).seq > seq:
                last.part = (*last.part, place[2])
            if isinstance(record, Record):
                return self.field(record, place[2])
            key = ("field", record if isinstance(record, Term) else id(record), place[2])
            found = self.loads.get(key)
            if found is None:
                inputs = (record,) if isinstance(record, Term) else ()
                named = record.data.name if isinstance(record, Term) and record.op == "atom" else None
                title = f"{named or self.source(place[3].base)}.{place[2]}"
                if place[2] in DEVICE_MEMBERS and not self.device:
                    found = self.fresh("device", title, number(type_) or I32, inputs=inputs)
                else:
                    found = self.unknown_value("load", title, type_, inputs=inputs)
                self.loads[key] = found
            return found
        return self.load(place[1], place[2], type_)

    def lookup(self, var: ir.Var) -> Value:
        value = self.env.get(var)
        return value if value is not None else self.outside(var)

    def outside(self, var: ir.Var) -> Value:
        if var.kind == "field" and isinstance(self.receiver, Record):
            return self.field(self.receiver, var.name)
        if var.kind == "template" and var.name in self.flow.template:
            return self.flow.template[var.name]  # a class's parameter, read in the initialiser of a member
        value = self.globals.get(var)
        if value is not None:
            return value
        if isinstance(var.type, Array) or (var.kind in ("shared", "constant") and not (var.const and var.init)):
            value = self.array(var)
            if var.kind == "constant" and not isinstance(var.type, Array):
                value = self.unknown_value("var", var.name, var.type, var)
        elif var.const and var.init is not None and var.kind != "param":
            self.globals[var] = self.unknown_value("var", var.name, var.type, var)  # ends a cyclic initialiser
            initial = self.value(var.init)
            value = t.convert(initial, number(var.type)) if isinstance(initial, Term) else initial
        else:
            asked, known = self.asked(var), self.number_of(var)
            value = self.unknown_value("device" if asked is not None else "var", var.name, var.type, asked or var)
            value = t.const(known, var.type) if known is not None else value
        assert value is not None
        self.globals[var] = value
        return value

    def asked(self, var: ir.Var) -> ir.Expr | None:
        """What of the device a variable of the host outside its functions holds."""
        if self.device or var.kind not in ("global", "field") or not isinstance(var.type, Int):
            return None
        return answer(var, self.fn.file.declarations.scope.closure)

    def number_of(self, var: ir.Var) -> int | None:
        """The number that a member or a variable of the host is given once and for all."""
        if self.device or not isinstance(var.type, Int) or self.fn.decl is None:
            return None
        if var.kind == "global":
            return lasting(var, self.fn.file)
        return None if var.kind != "field" else only_number(var, self.fn.file.declarations.scope.closure)

    def write(self, place: Any, value: Value | None, node: ir.Expr, target: ir.Expr) -> None:
        if place is None:
            return
        if place[0] == "var":
            var, path = place[1], place[2]
            if var.ref and (self.device or var.kind != "field"):
                # What an unseen reference is bound to may be shared: nothing is known of it afterwards.
                self.env[var] = self.unknown_value("unknown", var.name, var.type, var, level=UNKNOWN)
                return
            if not path:
                self.env[var] = self.stored(value, var, node)
                return
            self.env[var] = self.with_field(self.lookup(var), var.name, var.type, path, value, node, target.type)
        elif place[0] == "mem":
            self.store(place[1], target, value, "w")
        elif place[0] == "field":
            inner, path = place, []
            while inner[0] == "field":
                path.append(inner[2])
                inner = inner[1]
            if inner[0] == "mem":
                self.store_field(inner[1], inner[2], path[::-1], value)

    def store_field(self, pointer: Pointer, node: ir.Expr, path: list[str], value: Value | None) -> None:
        """A store to a member of a class in memory. On the host the other members are what they were."""
        key, element = self.load_key(pointer, node.type), pointer.element
        before = self.loads.get(key)
        self.store(pointer, node, value, "w")
        if pointer.obj.kind != "var":
            self.flow.accesses[-1].part = tuple(path)
        if not self.device and isinstance(before, Record) and isinstance(element, Struct):
            self.loads[self.load_key(pointer, node.type)] = _without(before, path)

    def with_field(
        self, record: Value, name: str, type_: Type, path: tuple[str, ...], value: Value | None, node: ir.Expr,
        leaf: Type,
    ) -> Value:  # fmt: skip
        if not isinstance(record, Record):
            record = Record(name, type_, {}, UNKNOWN if self.device else 0)
        copy = record.having(dict(record.fields))
        if len(path) == 1:
            if isinstance(value, Term) and isinstance(leaf, (Int, Float)):
                value = self.convert(value, leaf, node)
            copy.fields[path[0]] = value if value is not None else self.fresh("unknown", path[0], leaf, level=UNKNOWN)
        else:
            inner = self.field(record, path[0])
            inner_type = inner.type if isinstance(inner, Record) else leaf
            copy.fields[path[0]] = self.with_field(inner, path[0], inner_type, path[1:], value, node, leaf)
        return copy

    def stored(self, value: Value | None, var: ir.Var, node: ir.Expr) -> Value:
        """``value`` as ``var`` holds it."""
        type_ = var.type
        if isinstance(value, Term):
            source = value
            while source.op == "cast":
                source = source.args[0]
            if (
                source.op == "atom"
                and source.data.kind in ("call", "load", "exit", "unknown")
                and not source.data.name.isidentifier()
            ):
                source.data.name, source.data.held = var.name, t.type_range(type_)
            elif source.op == "atom" and source.data.name not in (source.data.spelled, var.name):
                if isinstance(_uncast(node), (ir.Call, ir.Index)):
                    source.data.name = source.data.spelled  # what two variables are given has neither's name
            elif source.op == "atom" and isinstance(type_, Struct) and source.data.name == str(type_):
                source.data.name = var.name  # made here: `std::vector<int> v(n);`
            if type_ is DIM3:
                if value.type is None:
                    return Record(var.name, DIM3, {}, value.data.level if value.op == "atom" else 0)  # may be one too
                return Record(
                    var.name, DIM3, {"x": self.convert(value, U32, node), "y": const(1, U32), "z": const(1, U32)}
                )
            if isinstance(type_, (Int, Float)):
                return self.convert(value, type_, node)
            if isinstance(type_, Ptr):
                return Pointer(Obj("global", var.name, type_.element, var=var, origin=(value,)), type_.element)
            if isinstance(type_, Struct) and type_.fields is not None:
                return Record(var.name, type_, {}, UNKNOWN if self.device else 0, "load")
            return value
        if isinstance(value, Pointer) and isinstance(type_, Ptr):
            if value.element is not type_.element and not isinstance(type_.element, (Param,)):
                return Pointer(value.obj, type_.element, value.pieces, ())
            return value
        if value is None:
            return self.unknown_value("unknown", var.name, type_, var, level=UNKNOWN)
        return value

    def array(self, var: ir.Var) -> Pointer:
        obj = self.flow.objects.get(var)
        element: Type = var.type
        extent: int | None = 1
        if isinstance(element, Array):
            dims = []
            while isinstance(element, Array):
                dims.append(self.extent(element))
                element = element.element
            extent = 1
            for d in dims:
                extent = None if extent is None or d is None else extent * d
        if obj is None:
            kind = {"shared": "shared", "constant": "constant", "global": "global"}.get(var.kind, "local")
            obj = Obj(kind, var.name, element, var=var, extent=extent)  # type: ignore[arg-type]  # one of the kinds
            self.flow.objects[var] = obj
        return Pointer(obj, var.type.element if isinstance(var.type, Array) else var.type)

    def extent(self, type_: Array) -> int | None:
        if isinstance(type_.extent, int) or type_.extent is None:
            return type_.extent
        value = self.value(type_.extent)
        if not isinstance(value, Term):
            return None
        if value.op == "const" and isinstance(value.data, int):
            return value.data
        self.flow.extents.append(value)
        return None

    def initialise_array(self, var: ir.Var, init: ir.Expr) -> None:
        obj = self.flow.objects[var]
        if isinstance(init, ir.Construct):
            values = []
            for arg in init.args:
                value = self.value(arg)
                if isinstance(value, Term):
                    values.append(value)
                    obj.stores.append(value)
            if obj.extent is None or len(init.args) < obj.extent:
                obj.stores.append(const(0))  # the rest of the array
            if len(values) == len(init.args) and (var.const or not var.static):
                self.hold(self.array(var), values, obj.extent)
        else:
            self.value(init)

    def index(self, node: ir.Index) -> Pointer | None:
        """The pointer that ``base[index]`` dereferences."""
        base = self.value(node.base)
        index = self.term(self.value(node.index))
        if isinstance(base, (Closure, Record, Designator)):
            return None
        if isinstance(base, Term):
            # A container of the host holds the same while nothing is stored there.
            made = self.elements.get((base, node.type)) if not self.device else None
            if made is None:
                name = base.data.name if base.op == "atom" else self.source(node.base)
                made = self.elements[base, node.type] = Pointer(
                    Obj("unknown", name, node.type, origin=(base,)), node.type
                )
                self.hold(made, self.listed.pop(base, ()))
            base = made
        return self.advance(base, index, node)

    def advance(self, base: Pointer, index: Term, node: ir.Expr | None) -> Pointer:
        element = base.element
        if isinstance(element, Array):
            dims = (*base.dims, (index, self._next_extent(base)))
            return Pointer(base.obj, element.element, (*base.pieces, self.steps(index, element)), dims)
        if index.op == "const" and index.data == 0 and node is None:
            return base
        dims = (*base.dims, (index, self._next_extent(base)))
        return Pointer(base.obj, element, (*base.pieces, self.steps(index, element)), dims)

    def steps(self, index: Term, element: Type | None) -> tuple[Term, int | None]:
        """``index`` times ``element`` as a piece of a pointer: in innermost elements where their size is not known."""
        unit: int | None = 1
        inner = element
        while isinstance(inner, Array):
            extent = self.extent(inner)
            unit = None if unit is None or extent is None else unit * extent
            inner = inner.element
        size = inner.size if inner is not None else None
        if size is not None or unit == 1:
            return index, None if unit is None or size is None else unit * size
        if unit is None:
            return self.fresh("unknown", "row", I64, inputs=(index,)), None
        return t.binary("mul", t.convert(index, I64), const(unit, I64), I64), None

    def _next_extent(self, base: Pointer) -> int | None:
        """The extent of the dimension of the declared array that the next index is for; None where it is no such."""
        inner: Type | None = base.obj.var.type if base.obj.var is not None else None
        for _ in base.dims:
            inner = inner.element if isinstance(inner, Array) else None
        return self.extent(inner) if isinstance(inner, Array) else None

    def access(self, pointer: Pointer, node: ir.Expr, mode: str, value: Term | None = None) -> Access:
        event: Access = self.event(Access, node)
        obj, element = pointer.obj, pointer.element
        event.mode, event.obj, event.element, event.dims, event.value = mode, obj, element, pointer.dims, value
        event.part = ()
        size = element.size if element is not None else None
        unit = obj.element.size if obj.element is not None else None
        pieces = [(p, s) for p, s in pointer.pieces if not (p.op == "const" and p.data == 0)]
        # Where sizes are not known (an open template type) but all steps are in the same element, they cancel.
        if element is obj.element and all(s == size for _, s in pieces):
            size = unit = 1
            pieces = [(p, 1) for p, _ in pieces]
        event.width = size // unit if size and unit and size % unit == 0 else 1
        event.index, event.scalar = None, None
        if all(s == size and s for _, s in pieces):
            total = const(0, I64)
            for p, _ in pieces:
                total = p if total.op == "const" else t.binary("add", total, p, I64)
            event.index = total
        if unit and all(s for _, s in pieces):
            scalar: t.Poly = {}
            for p, s in pieces:
                if not s or s % unit:
                    return event
                scalar = t.add(scalar, t.poly(p), s // unit)
            event.scalar = scalar
        return event

    def load(self, pointer: Pointer, node: ir.Expr, type_: Type) -> Value:
        obj = pointer.obj
        event = self.access(pointer, node, "r")
        if obj.kind != "var":
            self.flow.accesses.append(event)
        held = self.held_at(pointer)
        if held is not None:
            return held
        key = self.load_key(pointer, type_)
        found = self.loads.get(key)
        if found is None:
            inputs = self.sources(pointer)
            data = obj if obj.kind != "var" else None
            name = (
                f"{obj.name}[{', '.join(t.show(p) for p, _ in pointer.pieces)}]"
                if not self.device
                else f"{obj.name}[…]"
            )
            whole = obj.origin[0] if obj.origin else None
            if isinstance(whole, Term) and whole.op == "atom" and whole.data.kind == "device":
                found = self.fresh("device", name, number(type_) or I32)  # `info.maxGridSize[0]`
            else:
                # What a function keeps for its next call it has computed: no size of somebody else's.
                var = whole.data.data if isinstance(whole, Term) and whole.op == "atom" else None
                kept = isinstance(var, ir.Var) and var.kind == "local" and var.static
                found = self.unknown_value("load", name, type_, data, inputs=inputs, level=UNKNOWN if kept else 0)
            self.loads[key] = found
            self.bound_by_contents(found, obj)
        return found

    def load_key(self, pointer: Pointer, type_: Type) -> tuple[Any, ...]:
        """What two loads that give the same value have in common."""
        obj = pointer.obj
        epoch = (obj.epoch, self.epoch) if obj.kind in ("shared", "local") else (obj.epoch, 0)
        return obj, tuple(pointer.pieces), epoch, type_

    def bound_by_contents(self, value: Value, obj: Obj) -> None:
        """An element of a local table of constants, or of one of several, that nothing wrote since is one of them."""
        if obj.kind != "local" or not all(x.stores for x in obj.either or (obj,)):
            return
        table = []
        for each in (obj, *obj.either):
            for stored in each.stores:
                if stored.op != "const" or not isinstance(stored.data, int):
                    return
                table.append(stored.data)
        if isinstance(value, Term):
            value.data.lo, value.data.hi = max(value.data.lo, min(table)), min(value.data.hi, max(table))

    def store(self, pointer: Pointer, node: ir.Expr, value: Value | None, mode: str) -> None:
        obj = pointer.obj
        term = value if isinstance(value, Term) else None
        if obj.kind == "var" and obj.data is not None and _is_zero(pointer):
            var, path = obj.data
            self.write(("var", var, path), value, node, node)
            return
        self.flow.accesses.append(self.access(pointer, node, mode, term))
        obj.epoch += 1
        self.hold_at(pointer, term if mode == "w" else None)
        if obj.kind == "local":
            for each in (obj, *obj.either):
                each.stores.extend(x for x in (term, *(p for p, _ in pointer.pieces)) if x is not None)
                each.stores.extend(g.term for g in chain(self.guard) if g.why in ("if", "continue", "break", "switch"))


def _without(record: Record, path: list[str]) -> Record:
    """``record`` with nothing known of the member that ``path`` leads to."""
    rest = {name: value for name, value in record.fields.items() if name != path[0]}
    inner = record.fields.get(path[0])
    if len(path) > 1 and isinstance(inner, Record):
        rest[path[0]] = _without(inner, path[1:])
    return record.having(rest)


def _uncast(node: ir.Expr) -> ir.Expr:
    while isinstance(node, ir.Cast):
        node = node.operand
    return node


def is_computed(term: Term) -> bool:
    """Whether a value is worth a definition event: made of something, or a launch id."""
    return term.data.kind in ("tid", "bid") if term.op == "atom" else term.op != "const"


def _is_zero(pointer: Pointer) -> bool:
    return all(p.op == "const" and p.data == 0 for p, _ in pointer.pieces)
