"""Expressions, launches and calls: every node class has one function that gives its value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudalint.facts import terms as t
from cudalint.facts.assigned import assigned
from cudalint.facts.builtins import TENSORS, answered, identity, known_call, made
from cudalint.facts.calls import READERS
from cudalint.facts.events import (
    CallEvent,
    CallSite,
    Closure,
    Comparison,
    Definition,
    Designator,
    Event,
    LaunchEvent,
    Obj,
    Pointer,
    Record,
    chain,
)
from cudalint.facts.ids import SPECIALS
from cudalint.facts.places import Places, is_computed
from cudalint.facts.quiet import is_quiet_call
from cudalint.facts.state import Frame, asks_arguments, number, read_side
from cudalint.facts.terms import UNKNOWN, Atom, Term, const
from cudalint.frontend.calls import bind_defaults, read_only, signature
from cudalint.frontend.lower import default_arguments
from cudalint.ir import nodes as ir
from cudalint.ir.types import BIT_FIELD, DIM3, I32, I64, U32, U64, Array, Float, Int, Param, Ptr, Struct, Type, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudalint.facts.events import Value


_MAX_DEPTH, _MAX_LAMBDAS = 8, 64
_MAX_ENTERED = 2_000
"""Calls that are followed in one walk of a host function: thousands are those of an image library, not of launches."""
_MAX_INSTANCES, _LARGE = 6, 20_000
"""Instances that are walked of a host template with more text than this. Only macros write that much: a dispatch over
runtime flags that comes to one launch dozens of times, and of such a table a few instances tell all."""
_BINARY = {
    "+": "add", "-": "sub", "*": "mul", "/": "div", "%": "mod", "&": "and", "|": "or", "^": "xor", "<<": "shl",
    ">>": "shr",
}  # fmt: skip
_CONTAINERS = ("std::vector", "std::deque", "std::span", "thrust::host_vector")


walked: dict[ir.FunctionDecl, set[tuple[tuple[str, Type | int], ...]]] = {}
"""The bindings with which large host templates were called since the last file."""


_ENTRY = 4
"""Statements that it costs to follow a call: its arguments are bound, and what its ends leave is merged."""
lambdas: dict[Type, ir.Lambda] = {}
"""The lambdas that were met since the last file, by their types: a kernel gets one as an argument, perhaps."""


class Expressions(Places):
    """The values of expressions, with their effects."""

    def block(self, node: ir.Block) -> None:
        """Walks statements."""
        raise NotImplementedError  # given by the layer of statements

    def value(self, node: ir.Expr) -> Value:
        return _EXPRESSIONS[type(node)](self, node)  # type: ignore[no-any-return]  # by node class

    def do_const(self, node: ir.Const) -> Value:
        if isinstance(node.value, (int, float)):
            return const(node.value, number(node.type))
        if isinstance(node.type, Ptr):
            return Pointer(Obj("unknown", node.text or "null", node.type.element), node.type.element)
        return self.fresh("unknown", node.text or "?", None, data=node)

    def do_ref(self, node: ir.Ref) -> Value:
        var = node.var
        alias = self.aliases.get(var)
        if alias is not None:
            return self.read(self.place(node), node.type)
        if self.in_memory(var):
            return self.read(("mem", self.array(var), node), node.type)
        return self.env.get(var) or self.lookup(var)

    def do_name(self, node: ir.Name) -> Value:
        found_functions = self.fn.file.declarations.scope.functions(node.name)
        if found_functions:
            return Designator(found_functions[0], node.targs)
        key = ("name", node.name)
        found = self.loads.get(key)
        if found is None:
            found = self.loads[key] = self.unknown_value("name", node.name, node.type)
        return found

    def do_special(self, node: ir.Special) -> Value:
        if node.which == "warpSize":
            return const(32, I32)
        if node.axis:
            return SPECIALS[node.which, node.axis]
        return Record(node.which, node.type, {a: SPECIALS[node.which, a] for a in "xyz"})

    def do_member(self, node: ir.Member) -> Value:
        if node.type is BIT_FIELD:
            # It holds some bits of what was put into it.
            whole = self.term(self.whole_member(node))
            return self.fresh("unknown", node.field, None, inputs=(whole,)) if whole.type is not None else whole
        return self.whole_member(node)

    def whole_member(self, node: ir.Member) -> Value:
        """What was put into a member."""
        place = self.place(node)
        if place is not None:
            return self.read(place, node.type)
        base = self.value(node.base)
        if isinstance(base, Record):
            return self.field(base, node.field)
        inputs = (base,) if isinstance(base, Term) else ()
        return self.unknown_value("unknown", node.field, node.type, inputs=inputs, level=0 if inputs else UNKNOWN)

    def do_index(self, node: ir.Index) -> Value:
        pointer = self.index(node)
        if not self.device and isinstance(node.index, ir.Const) and str(node.base.type).startswith(_CONTAINERS):
            # `v[0]` is read: there is a first element.
            size = self.value(ir.Call(node.start, node.end, U64, "size", [], receiver=node.base))
            self.follows(t.compare("<", t.convert(self.term(self.value(node.index)), U64), self.term(size)), node)
        if pointer is None:
            if self.device:
                return self.unknown_value("unknown", self.source(node), node.type, level=UNKNOWN)
            # An object's own `operator[]` answers the same until something else is called on it.
            named = identity(self, node.base)
            key = (named, "[]", self.term(self.value(node.index)))
            known = answered(self, named)
            if key not in known:
                known[key] = self.unknown_value("load", self.source(node), node.type, level=0)
            return known[key]
        if isinstance(node.type, Array):
            return pointer
        place = self.memory(pointer, node)
        return self.read(place, node.type)

    def do_addr(self, node: ir.AddrOf) -> Value:
        operand = node.operand
        if isinstance(operand, ir.Name):
            named = self.value(operand)
            if isinstance(named, Designator):
                return named
        if isinstance(operand, ir.Index):
            pointer = self.index(operand)
            if pointer is not None:
                return pointer
            return self.unknown_value("unknown", "&", node.type, level=UNKNOWN)
        place = self.place(operand)
        if place is not None and place[0] == "var":
            var, path = place[1], place[2]
            value = self.env.get(var)
            if isinstance(value, Pointer) and isinstance(var.type, Array):
                return value
            return Pointer(Obj("var", var.name, operand.type, var=var, data=(var, path)), operand.type)
        if place is not None and place[0] == "mem":
            return place[1]  # type: ignore[no-any-return]  # a Pointer
        self.value(operand)
        return self.unknown_value("unknown", "&", node.type, level=UNKNOWN)

    def do_unary(self, node: ir.Unary) -> Value:
        operand = self.term(self.value(node.operand))
        if node.op == "!":
            return t.lnot(operand)
        operand = self.convert(operand, node.type, node.operand)
        type_ = number(node.type)
        if node.op == "-":
            return t.negate(operand, type_)
        return t.invert(operand, type_) if node.op == "~" else operand

    def do_binary(self, node: ir.Binary) -> Value:
        left, right = self.value(node.left), self.value(node.right)
        if node.op == ">>" and not isinstance(node.left.type, Int):
            if isinstance(node.right, ir.Ref):
                self.clobber([node.right.var])  # `std::cin >> n`
            elif isinstance(node.right, ir.Index) and isinstance(node.right.base, ir.Ref):
                array = self.value(node.right.base)
                if isinstance(array, Pointer):
                    self.filled(array)  # `std::cin >> n[0]`
        if isinstance(left, Pointer) or isinstance(right, Pointer):
            return self.pointer_arithmetic(node, left, right)
        return self.arithmetic(node, node.op, self.term(left), self.term(right), node.optype, node.left, node.right)

    def arithmetic(
        self, node: ir.Expr, op: str, left: Term, right: Term, optype: Type, left_node: ir.Expr, right_node: ir.Expr
    ) -> Term:
        a, b = self.convert(left, optype, left_node), right
        if type(optype) is Unknown:
            if isinstance(right.type, Int):
                self.untyped(left_node)
            if isinstance(left.type, Int):
                self.untyped(right_node)
        if op in ("<<", ">>"):
            term = t.binary(_BINARY[op], a, b, number(optype))
            self.operation(term, node)
            return term
        b = self.convert(right, optype, right_node)
        if op == "-" and not self.device and a.op == b.op == "atom" and a.type is b.type is None and a is not b:
            # Of two things that nobody knows the difference is known to be a number: they may well be iterators.
            return self.fresh("call", self.source(node), None, data=node, inputs=(a, b))
        if op in _BINARY:
            term = t.binary(_BINARY[op], a, b, number(optype))
            if op in ("*", "/"):
                self.operation(term, node)
            if op in ("/", "%") and not self.device and isinstance(optype, Int):
                self.divided(b, node)
            return term
        term = t.compare(op, a, b) if op in ("<", "<=", ">", ">=", "==", "!=") else self.fresh("unknown", op, None)
        if term.op != "const":
            event: Comparison = self.event(Comparison, node)
            event.op, event.left, event.right, event.raw, event.term = op, a, b, (left, right), term
            self.flow.comparisons.append(event)
        return term

    def pointer_arithmetic(self, node: ir.Binary, left: Value, right: Value) -> Value:
        if node.op in ("+", "-"):
            if isinstance(left, Pointer) and isinstance(right, Term):
                offset = right if node.op == "+" else t.negate(t.convert(right, I64), I64)
                return self.moved(left, offset)
            if isinstance(right, Pointer) and isinstance(left, Term):
                return self.moved(right, left)
            if isinstance(left, Pointer) and isinstance(right, Pointer) and left.obj is right.obj:
                a, b = left.pieces, right.pieces
                if len(a) <= 1 and len(b) <= 1:
                    x = a[0][0] if a else const(0, I64)
                    y = b[0][0] if b else const(0, I64)
                    return t.binary("sub", t.convert(x, I64), t.convert(y, I64), I64)
        if node.op in ("<", "<=", ">", ">=") and isinstance(left, Pointer) and isinstance(right, Pointer):
            comparable = left.obj is right.obj and len(left.pieces) <= 1 and len(right.pieces) <= 1
            if comparable:
                x = left.pieces[0][0] if left.pieces else const(0, I64)
                y = right.pieces[0][0] if right.pieces else const(0, I64)
                return t.compare(node.op, t.convert(x, I64), t.convert(y, I64))
        inputs = [self.term(left), self.term(right)]
        named = self.source(node) if node.op == "-" else node.op  # a comparison is no size
        return self.fresh("unknown", named, node.type, inputs=tuple(inputs))

    def moved(self, pointer: Pointer, offset: Term) -> Pointer:
        """``pointer + offset`` in elements of what it points to."""
        element = pointer.element
        if isinstance(element, Array):
            return Pointer(pointer.obj, element, (*pointer.pieces, self.steps(offset, element)), ())
        size = element.size if element is not None else None
        if pointer.pieces and pointer.pieces[-1][1] == size and not pointer.dims:
            *rest, (last, _) = pointer.pieces
            # Pointer arithmetic is 64-bit; a 32-bit sum inside one operand stays what it was.
            total = t.binary("add", t.convert(last, I64), t.convert(offset, I64), I64)
            return Pointer(pointer.obj, element, (*rest, (total, size)), ())
        if offset.op == "const" and offset.data == 0:
            return pointer
        return Pointer(pointer.obj, element, (*pointer.pieces, (offset, size)), pointer.dims and ())

    def do_logical(self, node: ir.Logical) -> Value:
        left = t.truth(self.term(self.value(node.left)))
        base, env = self.guard, self.env
        self.env = dict(env)
        positive = node.op == "&&"
        self.push(left if positive else t.lnot(left), "short-circuit", node, positive)
        right = t.truth(self.term(self.value(node.right)))
        self.guard = base
        if self.env != env:
            self.env = self.merge(left if positive else t.lnot(left), self.env, env)
        return t.land(left, right) if positive else t.lor(left, right)

    def do_cond(self, node: ir.Cond) -> Value:
        cond = t.truth(self.term(self.value(node.cond)))
        if cond.op == "const":
            value = self.value(node.then if cond.data else node.other)
            return self.convert(value, node.type, node) if isinstance(value, Term) and number(node.type) else value
        base, env = self.guard, self.env
        self.env = dict(env)
        self.push(cond, "if", node, True)
        then, then_env = self.value(node.then), self.env
        self.env, self.guard = dict(env), base
        self.push(t.lnot(cond), "if", node, False)
        other, other_env = self.value(node.other), self.env
        self.guard = base
        self.env = self.merge(cond, then_env, other_env)
        if isinstance(then, Term) and isinstance(other, Term):
            type_ = node.type
            if number(type_):
                then, other = self.convert(then, type_, node.then), self.convert(other, type_, node.other)
            read = read_side(cond, then, other) if not self.device and asks_arguments(cond) else None
            if read is not None:
                return then if read else other
            return t.select(cond, then, other, number(type_))
        return self.merge_value(cond, then, other, ir.Var("?", node.type, "local", node.start, node.end))

    def do_cast(self, node: ir.Cast) -> Value:
        value = self.value(node.operand)
        type_ = node.type
        if isinstance(value, Term):
            if isinstance(type_, (Int, Float)):
                return self.convert(value, type_, node.operand)
            if type_ is DIM3:
                x = self.convert(value, U32, node.operand)
                return Record("dim3", DIM3, {"x": x, "y": const(1, U32), "z": const(1, U32)})
            if isinstance(type_, Ptr):
                return Pointer(Obj("unknown", "?", type_.element, origin=(value,)), type_.element)
            return value
        if isinstance(value, Pointer) and isinstance(type_, Ptr):
            return Pointer(value.obj, type_.element, value.pieces, ())
        if isinstance(value, Pointer):
            return self.term(value)
        return value

    def do_assign(self, node: ir.Assign) -> Value:
        target, op = node.target, node.op
        if isinstance(target, ir.Call) and target.name in ("std::tie", "tie") and not op:
            return self.unpacked(target, self.value(node.value))
        place = self.written(target)
        if not op:
            value: Value = self.value(node.value)
            if isinstance(value, Term) and isinstance(target.type, (Int, Float)):
                value = self.convert(value, target.type, node.value)
            self.write(place, value, node.value, target)
            if place is not None and place[0] == "var" and not place[2]:
                self.define(node, place[1], value)
            return value
        right = self.value(node.value)
        if place is not None and place[0] == "mem":
            pointer = place[1]
            old: Value = self.unknown_value(
                "load", pointer.obj.name, target.type, inputs=tuple(p for p, _ in pointer.pieces)
            )
            result = self.compound(node, old, right)
            self.store(pointer, target, result, "rw")
            return result
        old = self.read(place, target.type) if place is not None else self.unknown_value("unknown", "?", target.type)
        result = self.compound(node, old, right)
        self.write(place, result, node, target)
        return result

    def define(self, node: ir.Node, var: ir.Var, held: Value | None) -> None:
        """Note what a local of device code holds from here on, where that is made of something."""
        if self.device and isinstance(held, Term) and isinstance(var.type, Int) and is_computed(held):
            event: Definition = self.event(Definition, node)
            event.var, event.term = var, held
            self.flow.definitions.append(event)

    def unpacked(self, target: ir.Call, whole: Value) -> Value:
        """``std::tie(a, b) = whole``"""
        members = list(whole.type.fields or ()) if isinstance(whole, Record) and isinstance(whole.type, Struct) else []
        for index, arg in enumerate(target.args):
            if isinstance(whole, Record) and index < len(members):
                value = self.field(whole, members[index])
            else:
                value = self.unknown_value("call", self.source(arg), arg.type)
            if isinstance(value, Term) and isinstance(arg.type, (Int, Float)):
                value = self.convert(value, arg.type, arg)
            self.write(self.place(arg), value, arg, arg)
        return whole

    def written(self, target: ir.Expr) -> Any:
        """The place of what is assigned to; what an object's own `operator[]` answered there is forgotten."""
        place = self.place(target)
        if place is None and isinstance(target, ir.Index):
            named, index = identity(self, target.base), self.term(self.value(target.index))
            known = answered(self, named)
            for key in [x for x in known if x[:2] == (named, "[]")]:
                if key[2] is index or key[2].op != "const" or index.op != "const":
                    del known[key]
        return place

    def compound(self, node: ir.Assign, old: Value, right: Value) -> Value:
        if isinstance(old, Pointer) and isinstance(right, Term):
            offset = right if node.op == "+" else t.negate(t.convert(right, I64), I64)
            return self.moved(old, offset)
        result = self.arithmetic(node, node.op, self.term(old), self.term(right), node.optype, node.target, node.value)
        return t.convert(result, number(node.target.type))

    def do_incdec(self, node: ir.IncDec) -> Value:
        place = self.written(node.target)
        type_ = node.target.type
        if place is not None and place[0] == "mem":
            pointer = place[1]
            old: Value = self.unknown_value("load", pointer.obj.name, type_, inputs=tuple(p for p, _ in pointer.pieces))
            self.store(pointer, node.target, None, "rw")
            return old
        if place is None:
            return self.unknown_value("unknown", "?", type_)
        old = self.read(place, type_)
        one = const(1, I64 if isinstance(old, Pointer) else number(type_))
        if isinstance(old, Pointer):
            new: Value = self.moved(old, one if node.op == "+" else const(-1, I64))
        else:
            old = self.term(old)
            new = t.binary("add" if node.op == "+" else "sub", old, one, number(type_))
        self.write(place, new, node, node.target)
        return new if node.prefix else old

    def do_construct(self, node: ir.Construct) -> Value:
        type_ = node.type
        args = [self.value(arg) for arg in node.args]
        if isinstance(type_, Struct) and type_.fields is not None:
            if len(args) == 1 and isinstance(args[0], Record) and args[0].type is type_:
                return args[0]
            fields: dict[str, Value] = {}
            for (name, field_type), arg, arg_node in zip(type_.fields.items(), args, node.args):
                if isinstance(arg, Term) and isinstance(field_type, (Int, Float)):
                    arg = self.convert(arg, field_type, arg_node)
                fields[name] = arg
            if type_ is DIM3:
                for axis in "xyz":
                    fields.setdefault(axis, const(1, U32))
            else:
                for name, field_type in type_.fields.items():
                    if name in fields or not isinstance(field_type, (Int, Float)) or len(args) > 1:
                        continue
                    start = type_.defaults.get(name)
                    if start is None and not type_.built:
                        fields[name] = const(0, field_type)
                    elif isinstance(start, ir.Const) and isinstance(start.type, (Int, Float)):
                        fields[name] = self.convert(self.term(self.value(start)), field_type, start)
            return Record(type_.name, type_, fields, UNKNOWN if self.device and type_.built else 0)
        if isinstance(type_, (Int, Float)):
            if not args:
                return const(0, type_)
            if len(args) == 1 and isinstance(args[0], Term):
                return self.convert(args[0], type_, node.args[0])
        inputs = tuple(a for a in args if isinstance(a, Term))
        result = self.unknown_value("unknown", str(type_), type_, inputs=inputs)
        if isinstance(result, Term) and isinstance(type_, Struct):
            self.list_elements(result, node)
        return result

    def do_sizeof(self, node: ir.SizeOf) -> Value:
        size = node.of.size
        if size is not None:
            return const(size, U64)
        key = ("sizeof", node.of)
        found = self.loads.get(key)
        if found is None:
            found = self.loads[key] = t.atom(Atom("sizeof", f"sizeof({node.of})", 1, 1 << 20, data=node.of), U64)
        return found

    def do_comma(self, node: ir.Comma) -> Value:
        self.value(node.left)
        return self.value(node.right)

    def do_lambda(self, node: ir.Lambda) -> Value:
        copies = {var: value for var, value in self.env.items() if not var.ref and node.by_value(var)}
        copies.update((var, self.value(var.init)) for var in node.made if var.init is not None)
        lambdas[node.type] = node
        return Closure(node.function, copies)

    def do_opaque_expr(self, node: ir.Opaque) -> Value:
        self.flow.opaques.append(self.event(Event, node))
        self.clobber(node.writes)
        return self.unknown_value("unknown", "?", node.type, level=UNKNOWN)

    # --- launches and calls

    def triple(self, node: ir.Expr | None) -> tuple[Term, Term, Term] | None:
        if node is None:
            return None
        value = self.value(node)
        one = const(1, U32)
        if isinstance(value, Term):
            if value.type is None:
                self.untyped(node)
                return None
            return self.convert(value, U32, node), one, one
        if isinstance(value, Record):
            return tuple(self.term(self.field(value, axis)) for axis in "xyz")  # type: ignore[return-value]  # three
        return None

    def do_launch(self, node: ir.Launch) -> Value:
        grid, block = self.triple(node.grid), self.triple(node.block)
        shared = self.term(self.value(node.shared)) if node.shared is not None else None
        if node.stream is not None:
            self.value(node.stream)
        args: list[Value | None] | None = None
        if node.args is not None:
            args = [self.value(a) if a is not None else None for a in node.args]
        for arg in (node.grid, node.block, *(node.args or ())):
            if arg is not None:
                self.untyped(arg)
        event: LaunchEvent = self.event(LaunchEvent, node)
        event.grid, event.block, event.shared, event.args = grid, block, shared, args
        callee = self.value(node.callee) if node.callee is not None else None
        event.kernel = callee if isinstance(callee, Designator) else None
        targs = event.kernel.targs if event.kernel is not None else node.targs
        event.targs = {id(a): self.term(self.value(a)) for a in targs if isinstance(a, ir.Expr)}
        self.flow.launches.append(event)
        result = self.fresh("call", "launch", node.type)
        self.answers[result] = [event]
        return result

    def do_call(self, node: ir.Call) -> Value:
        name = node.name.rsplit("::", 1)[-1]
        if node.target is not None and node.target.has_body:
            result = self.inline(node, node.target)
            if result is not None:
                return result
        if node.callee is not None:
            callee = self.value(node.callee)
            if isinstance(callee, Closure) and not self.is_recursive(callee):
                return self.enter_closure(node, callee, [self.value(a) for a in node.args])
        elif node.receiver is None and node.target is None:
            return known_call(self, node, name)
        if node.receiver is not None:
            return known_call(self, node, name)
        return self.unseen(node, [self.value(a) for a in node.args])

    def filled(self, pointer: Pointer) -> None:
        """What nobody here can see may have written to memory."""
        pointer.obj.epoch += 1
        self.forget_elements(pointer)
        if pointer.obj.kind == "local":
            for each in (pointer.obj, *pointer.obj.either):
                each.stores.append(self.fresh("unknown", "call", None, level=UNKNOWN))

    def unseen(self, node: ir.Call, args: list[Value], level: int = UNKNOWN) -> Value:
        """A call nothing is known of: it may write through what it is given, but for what it is given to read."""
        read = {i for i, _ in self.to_read(node, args)}
        for i, (arg, value) in enumerate(zip(node.args, args)):
            if i in read:
                continue
            if isinstance(value, Pointer) and value.obj.kind == "var" and value.obj.data is not None:
                var, path = value.obj.data
                type_ = value.element or var.type
                name = ".".join((var.name, *path))
                fresh = self.unknown_value("call", name, type_, node, level=level if self.device else 0)
                self.write(("var", var, path), fresh, arg, arg)
            elif (
                isinstance(value, Term)
                and value.op == "atom"
                and value.data.kind == "uninit"
                and isinstance(arg, ir.Ref)
            ):
                # Nobody reads a variable that was never set: the callee takes it by reference and sets it.
                self.write(self.place(arg), self.fresh("call", arg.var.name, arg.type, data=node), arg, arg)
            elif isinstance(value, Pointer):
                self.filled(value)
            elif isinstance(value, Closure) and not self.device:
                self.called_back(node, value)
        result = self.unknown_value("call", self.source(node), node.type, node, level=level if self.device else 0)
        event: CallEvent = self.event(CallEvent, node)
        event.args, event.result = args, result
        self.flow.calls.append(event)
        if node.name.rpartition("::")[2] in TENSORS:
            self.tensors.append(event)
        made(self, node, args)
        if self.device:
            self.handed(node, args)
        return result

    def handed(self, node: ir.Call, args: list[Value]) -> None:
        """Records what a function that nobody sees reads from the pointers on that it is given to read."""
        pointers = self.to_read(node, args)
        self.flow.handed.extend(self.access(x, node.args[i], "r") for i, x in pointers if x.obj.kind != "var")

    @staticmethod
    def to_read(node: ir.Call, args: list[Value]) -> list[tuple[int, Pointer]]:
        """The pointers, with their places among the arguments, through which a function that nobody sees only reads."""
        pointers = [(i, x) for i, x in enumerate(args) if isinstance(x, Pointer)]
        if node.target is not None:
            reads = dict(enumerate(read_only(node.target)))
            return [(i, x) for i, x in pointers if reads.get(i)]
        position = READERS.get(node.name.rpartition("::")[2], len(pointers))
        return pointers[position : position + 1]

    def called_back(self, node: ir.Call, closure: Closure) -> None:
        """What a function that nobody sees does with a lambda: it calls it, any number of times, with anything
        (``DISPATCH(type, "name", [&] { kernel<<<…>>>(…); })``)."""
        if self.is_recursive(closure):
            return
        changed = assigned(closure.function.body, self.stores_cache)
        self.clobber(changed)
        self.forget_exposed(closure.function.body)
        self.enter_closure(node, closure, [])
        self.clobber(changed)
        self.alive = True

    def is_recursive(self, closure: Closure) -> bool:
        """Whether a lambda is being walked already (one that is handed itself), or would be too deep: a dispatch over
        flags calls one in the other, as deep as the source has them."""
        return len(self.stack) >= _MAX_LAMBDAS or any(site.callee is closure.function for site in self.stack)

    def enter_closure(self, node: ir.Call, closure: Closure, args: list[Value]) -> Value:
        outer = {var: self.env[var] for var in closure.copies if var in self.env}
        self.env.update(closure.copies)
        result = self.enter(node, closure.function, args, None)
        for var in closure.copies:
            self.env.pop(var, None)
        self.env.update(outer)
        return result

    def inline(self, node: ir.Call, target: ir.FunctionDecl) -> Value | None:
        """Walks the callee here; None where it is recursive or too deep."""
        if len(self.stack) >= _MAX_DEPTH or any(site.callee.decl is target for site in self.stack):
            return None
        if target is self.flow.function.decl:
            return None
        receiver = None
        if node.receiver is not None:
            receiver = self.value(node.receiver)
        args = [self.value(a) for a in node.args]
        if not self.device and receiver is None and is_quiet_call(target, args):
            return self.unseen(node, args)
        bindings = self.bindings(target, node.targs, node.args)
        if not self.device and target.end - target.start > _LARGE:
            known, instance = walked.setdefault(target, set()), tuple(bindings.items())
            if instance not in known and len(known) >= _MAX_INSTANCES:
                return self.unseen(node, args)
            known.add(instance)
        if not self.device:
            self.entered += 1
            if self.entered > _MAX_ENTERED:
                return self.unseen(node, args)
        self.flow.callees.add(target)
        callee = target.lower(bindings, asked=self.flow.function.asked)
        self.flow.bodies[callee] = None
        return self.enter(node, callee, args, receiver)

    def bindings(
        self, target: ir.FunctionDecl, targs: list[Type | ir.Expr], args: list[ir.Expr]
    ) -> dict[str, Type | int]:
        return bind_template(target, targs, [a.type for a in args], self.constant_of)

    def constant_of(self, node: ir.Expr) -> int | None:
        value = self.value(node)
        if isinstance(value, Term) and value.op == "const" and isinstance(value.data, int):
            return value.data
        return None

    def enter(self, node: ir.Call, callee: ir.Function, args: list[Value], receiver: Value | None) -> Value:
        if receiver is not None and self.device:
            for var in [v for v in self.env if v.kind == "field"]:
                del self.env[var]
        members = {v for v in self.env if v.kind == "field"}
        known = len(self.env)
        for var, arg_node, value in zip(callee.params, node.args, args):
            self.aliases.pop(var, None)
            if var.ref:
                place = self.place_again(arg_node)
                if place is not None:
                    self.aliases[var] = place
                    continue
            if isinstance(value, Term) and isinstance(var.type, (Int, Float)):
                value = self.convert(value, var.type, arg_node)
                self.env[var] = value
            else:
                self.env[var] = self.stored(value, var, arg_node)
        for var, start in zip(callee.params[len(args) :], default_arguments(callee, len(args))):
            caller, self.fn = self.fn, callee
            value = self.value(start) if start is not None else self.unknown_value("unknown", var.name, var.type)
            self.env[var] = self.stored(value, var, start) if start is not None else value
            self.fn = caller
        for var in callee.template:
            self.env[var] = self.fresh("param", var.name, var.type, data=var)
        base = self.guard
        values = {var.name: x for var, x in zip(callee.params, args)}  # a reference has no value of its own
        values.update({var.name: self.env[var] for var in callee.params if var in self.env})
        site = CallSite(node, self.fn, callee, base, values)
        saved = self.fn, self.stack, self.exits, self.last_exit, self.receiver
        if receiver is not None:
            self.receiver = receiver
        self.fn, self.stack, self.exits = callee, (*self.stack, site), []
        frame = Frame(base)
        self.frames.append(frame)
        self.flow.steps += _ENTRY
        self.block(callee.body)
        self.frames.pop()
        self.fn, self.stack, self.exits, self.last_exit, outer = saved
        paths = frame.returns
        if self.alive:
            paths = [*paths, (self.guard, None, self.env)]
        self.guard = base
        self.alive = bool(paths)
        if not paths:
            self.receiver = outer
            return self.unknown_value("unknown", self.source(node), node.type)
        last_guard, result, env = paths[-1]
        for guard, returned, other in reversed(paths[:-1]):
            cond = self.condition_since(guard, base)
            env = self.merge(cond, other, env)
            read = None
            if isinstance(returned, Term) and isinstance(result, Term) and not self.device and asks_arguments(cond):
                read = read_side(cond, returned, result)
            if read is not None:
                result = returned if read else result
            elif returned is not None and result is not None:
                result = self.merge_value(cond, returned, result, ir.Var(callee.name, node.type, "local", 0, 0))
            elif result is None:
                result = returned
        self.env = env
        self.forget(known)
        self.receiver = outer
        if receiver is not None and not self.device:
            self.leave(node, receiver, members)
        if isinstance(result, Term) and result.op == "atom" and result.data.kind == "exit":
            result.data.name = self.source(node)  # what its loop adds up has a name of the callee's
        if len(paths) == 1:
            for item in reversed(list(chain(last_guard, base))):
                if item.why != "loop":
                    self.guard = item.after(self.guard)
        else:
            self.agreed([guard for guard, _, _ in paths], base)
        return result if result is not None else self.unknown_value("call", self.source(node), node.type, level=0)

    def leave(self, node: ir.Call, receiver: Value, members: set[ir.Var]) -> None:
        """After a method of another object: the members that it has set are that object's."""
        aliased = {place[1] for place in self.aliases.values() if place[0] == "var"}
        changed = [v for v in self.env if v.kind == "field" and v not in members and v not in aliased]
        fields = {v.name: self.env.pop(v) for v in changed}
        if fields and isinstance(receiver, Record) and node.receiver is not None:
            types = receiver.type.fields or {} if isinstance(receiver.type, Struct) else {}
            for name, value in fields.items():
                type_ = types.get(name) or value.type if isinstance(value, Term) else None
                if isinstance(value, Term) and type_ is not None:
                    # What a function that nobody sees decided (`if (fgets(…)) rows = …`) is a number of its own.
                    own = any(_is_answer(x) for x in t.leaves(value))
                    fresh = self.fresh(receiver.kind, f"{receiver.name}.{name}", type_, level=receiver.level)
                    fields[name] = fresh if own else t.convert(value, number(type_))
            whole = receiver.having({**receiver.fields, **fields})
            place = self.place_again(node.receiver)
            if place is not None and place[0] == "var":
                self.write(place, whole, node, node.receiver)

    def place_again(self, node: ir.Expr) -> Any:
        """The place of an argument already evaluated once: memory is not accessed a second time."""
        flow = self.flow
        events: list[list[Any]] = [flow.accesses, flow.conversions, flow.comparisons, flow.roundings, flow.operations]
        marks = [len(each) for each in events]
        place = self.place(node)
        for each, mark in zip(events, marks):
            del each[mark:]
        return place


def _is_answer(leaf: Term) -> bool:
    """Whether a value is what a function that cannot be seen made of its arguments."""
    asked = leaf.data.data
    return leaf.data.kind == "call" and isinstance(asked, ir.Call) and bool(asked.args) and leaf.data.name[-1:] == ")"


def bind_template(
    target: ir.FunctionDecl, targs: list[Type | ir.Expr], args: list[Type], constant_of: Callable[[ir.Expr], int | None]
) -> dict[str, Type | int]:
    """Template parameters by name from explicit arguments, then deduced from the arguments' types."""
    result: dict[str, Type | int] = {}
    if not target.template:
        return result
    for (name, kind), given in zip(target.template, targs):
        if isinstance(given, Type):
            if kind == "type" and not isinstance(given, Param):
                result[name] = given
        elif kind == "value":
            value = constant_of(given)
            if value is not None:
                result[name] = value
    missing = {name for name, kind in target.template if kind == "type" and name not in result}
    if missing:
        for want, have in zip(signature(target).params, args):
            _deduce(want, have, missing, result)
    if len(result) < len(target.template):
        bind_defaults(target, result, len(targs))
    return result


def _deduce(want: Type, have: Type, missing: set[str], into: dict[str, Type | int]) -> None:
    if isinstance(want, Param):
        if want.name in missing and want.name not in into and isinstance(have, (Int, Float, Struct, Ptr)):
            into[want.name] = have
    elif isinstance(want, Ptr) and isinstance(have, (Ptr, Array)):
        _deduce(want.element, have.element, missing, into)


def from_poly(p: t.Poly, type_: Type | None) -> Term:
    """A term with the polynomial ``p``."""
    total: Term | None = None
    for monomial, coefficient in p.items():
        product: Term | None = None
        for item in monomial:
            item = t.convert(item, type_)
            product = item if product is None else t.binary("mul", product, item, type_)
        if product is None:
            product = const(coefficient, type_)
        elif coefficient != 1:
            product = t.binary("mul", product, const(coefficient, type_), type_)
        total = product if total is None else t.binary("add", total, product, type_)
    return total if total is not None else const(0, type_)


_EXPRESSIONS: dict[type, Any] = {
    ir.Const: Expressions.do_const,
    ir.Ref: Expressions.do_ref,
    ir.Name: Expressions.do_name,
    ir.Special: Expressions.do_special,
    ir.Member: Expressions.do_member,
    ir.Index: Expressions.do_index,
    ir.AddrOf: Expressions.do_addr,
    ir.Unary: Expressions.do_unary,
    ir.Binary: Expressions.do_binary,
    ir.Logical: Expressions.do_logical,
    ir.Cond: Expressions.do_cond,
    ir.Cast: Expressions.do_cast,
    ir.Assign: Expressions.do_assign,
    ir.IncDec: Expressions.do_incdec,
    ir.Call: Expressions.do_call,
    ir.Construct: Expressions.do_construct,
    ir.SizeOf: Expressions.do_sizeof,
    ir.Comma: Expressions.do_comma,
    ir.Lambda: Expressions.do_lambda,
    ir.Launch: Expressions.do_launch,
    ir.Opaque: Expressions.do_opaque_expr,
}
