"""The symbolic executor: walks one function once, device or host alike, and records what it does.

The IR is structured, so one pass suffices: variables are replaced by what they hold
(:mod:`cudalint.facts.terms`), branches are merged by ``select``, loops give their variables a head
value that is completed after the body (:class:`~cudalint.facts.events.Induction`), and project
functions are walked in place of their calls. What cannot be known becomes an atom that says so.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from cudalint.facts import terms as t
from cudalint.facts.calls import (
    ASSERTION_OPERATORS,
    ATOMICS,
    BLOCK_BARRIERS,
    DEVICE_MEMBERS,
    LEGACY_COLLECTIVES,
    NO_RETURN,
    PARSERS,
    PURE,
    ROUNDING,
    THREAD_RESULTS,
    WARP_COLLECTIVES,
    is_assertion,
)
from cudalint.facts.events import (
    Access,
    Barrier,
    CallEvent,
    CallSite,
    Closure,
    Collective,
    Comparison,
    Conversion,
    Definition,
    Designator,
    Event,
    Flow,
    Guard,
    Induction,
    LaunchEvent,
    Loop,
    Obj,
    Operation,
    Pointer,
    Record,
    ReturnEvent,
    chain,
)
from cudalint.facts.quiet import is_quiet_call
from cudalint.facts.terms import THREAD, UNKNOWN, WARP_UNIFORM, Atom, Term, const
from cudalint.frontend.calls import signature
from cudalint.ir import nodes as ir
from cudalint.ir.types import BOOL, DIM3, I32, I64, U32, U64, Array, Float, Int, Param, Ptr, Struct, Type, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cudalint.facts.events import GuardWhy, Value

_MAX_DEPTH = 8
_BUDGET = 60_000
_BINARY = {
    "+": "add", "-": "sub", "*": "mul", "/": "div", "%": "mod", "&": "and", "|": "or", "^": "xor", "<<": "shl",
    ">>": "shr",
}  # fmt: skip
_LIMITS = {"x": (1 << 31) - 1, "y": 65535, "z": 65535}
_BLOCK_LIMITS = {"x": 1024, "y": 1024, "z": 64}
_SPECIALS = {"threadIdx": "tid", "blockIdx": "bid", "blockDim": "bdim", "gridDim": "gdim"}

Env = dict[ir.Var, "Value"]
_SCOPED = frozenset({"local", "param", "template"})
"""Kinds of variables that are gone after their block or call."""


def special_atom(which: str, axis: str) -> Term:
    """The atom of a launch built-in; one per built-in, so flows of different functions share it."""
    kind = _SPECIALS[which]
    if kind in ("tid", "bdim"):
        high = _BLOCK_LIMITS[axis]
    else:
        high = _LIMITS[axis]
    low, high = (0, high - 1) if kind in ("tid", "bid") else (1, high)
    return t.atom(
        Atom(kind, f"{which}.{axis}", low, high, axis=axis, level=THREAD if kind == "tid" else 0), U32
    )  # fmt: skip


SPECIALS: dict[tuple[str, str], Term] = {(w, a): special_atom(w, a) for w in _SPECIALS for a in "xyz"}
TID = {a: SPECIALS["threadIdx", a] for a in "xyz"}
BID = {a: SPECIALS["blockIdx", a] for a in "xyz"}
BDIM = {a: SPECIALS["blockDim", a] for a in "xyz"}
GDIM = {a: SPECIALS["gridDim", a] for a in "xyz"}


def run(function: ir.Function) -> Flow:
    """The flow of ``function``, with its parameters (and open template values) as atoms."""
    return _Walker(function).run()


def walk(decl: ir.FunctionDecl, bindings: dict[str, Type | int] | None = None) -> Flow:
    """The flow of a function of the project with these template parameters bound.

    Where an integer that counts is left without a type, and the type oracle may know it, it is asked.
    """
    flow = run(decl.lower(bindings))
    if flow.untyped:
        from cudalint.facts.untyped import may_settle

        if may_settle(flow.untyped):
            return run(decl.lower(bindings, asked=True))
    return flow


def _counts_arguments(var: ir.Var, following: ir.Var) -> bool:
    """Whether two parameters are the ``int argc, char **argv`` of a program, whatever their names."""
    type_ = following.type
    strings = type_.element if isinstance(type_, (Ptr, Array)) else None
    text = strings.element if isinstance(strings, Ptr) else None
    return isinstance(var.type, Int) and isinstance(text, Int) and text.bits == 8


def _asks_arguments(cond: Term) -> bool:
    leaves = t.leaves(cond)
    return bool(leaves) and all(x.data.kind == "argc" for x in leaves)


def _read_side(a: Term, b: Term) -> bool | None:
    """Which of two values comes from outside, where the other is a default: True for ``a``."""
    first, second = (any(x.data.kind in ("call", "load") for x in t.leaves(v)) for v in (a, b))
    return first if first != second else None


def number(type_: Type) -> Type | None:
    return type_ if isinstance(type_, (Int, Float)) else None


class _Exits:
    """Where ``break``, ``continue`` or ``return`` leave a construct: the environments and the guards there."""

    __slots__ = ("base", "breaks", "continues", "kind", "loop")

    def __init__(self, kind: str, base: Guard | None, loop: Loop | None = None) -> None:
        self.kind, self.base, self.loop = kind, base, loop
        self.breaks: list[tuple[Env, Guard | None]] = []
        self.continues: list[tuple[Env, Guard | None]] = []


class _Frame:
    """One function being walked: its exits by ``return``."""

    __slots__ = ("base", "returns")

    def __init__(self, base: Guard | None) -> None:
        self.base = base
        self.returns: list[tuple[Guard | None, Value | None, Env]] = []


class _Walker:
    def __init__(self, function: ir.Function) -> None:
        self.flow = Flow(function)
        self.fn = function
        self.device = function.kind in ("kernel", "device", "both")
        self.env: Env = {}
        self.aliases: dict[ir.Var, Any] = {}
        self.guard: Guard | None = None
        self.alive = True
        self.stack: tuple[CallSite, ...] = ()
        self.seq = 0
        self.steps = 0
        self.exits: list[_Exits] = []
        self.frames: list[_Frame] = []
        self.receiver: Value | None = None
        self.epoch = 0
        self.loads: dict[tuple[Any, ...], Value] = {}
        self.globals: dict[ir.Var, Value] = {}
        self.assigned_cache: dict[int, list[ir.Var]] = {}
        self.stores_cache: dict[int, set[ir.Var]] = {}

    # --- entry --------------------------------------------------------------------------------

    def run(self) -> Flow:
        fn = self.fn
        for var in fn.template:
            self.env[var] = self.fresh("param", var.name, var.type, data=var)
        for var, following in zip_longest(fn.params, fn.params[1:]):
            counts = not self.device and following is not None and _counts_arguments(var, following)
            value = self.unknown_value("argc" if counts else "param", var.name, var.type, var)
            self.env[var] = self.flow.params[var] = value
        self.frames.append(_Frame(None))
        self.block(fn.body)
        return self.flow

    # --- atoms and values ---------------------------------------------------------------------

    def fresh(
        self, kind: str, name: str, type_: Type | None, *, data: Any = None, inputs: tuple[Term, ...] = (),
        level: int = 0,
    ) -> Term:  # fmt: skip
        low, high = t.type_range(type_)
        return t.atom(
            Atom(kind, name, low, high, data=data, inputs=inputs, level=level), number(type_) if type_ else None
        )

    def unknown_value(
        self, kind: str, name: str, type_: Type, data: Any = None, *, inputs: tuple[Term, ...] = (), level: int = 0
    ) -> Value:
        """A value nothing is known of, of the shape its type has."""
        if isinstance(type_, Ptr):
            var = data if isinstance(data, ir.Var) else None
            return Pointer(Obj("global", name, type_.element, var=var, origin=inputs), type_.element)
        if isinstance(type_, Struct) and type_.fields is not None:
            return Record(name, type_, {}, level, kind)
        return self.fresh(kind, name, type_, data=data, inputs=inputs, level=level)

    def field(self, record: Record, name: str) -> Value:
        found = record.fields.get(name)
        if found is None:
            fields = record.type.fields if isinstance(record.type, Struct) else None
            type_ = (fields or {}).get(name)
            found = record.fields[name] = (
                self.unknown_value(record.kind, f"{record.name}.{name}", type_, level=record.level)
                if type_ is not None
                else self.fresh("unknown", f"{record.name}.{name}", None, level=max(record.level, 0))
            )
        return found

    def term(self, value: Value | None, name: str = "?") -> Term:
        """``value`` as a number; an unknown where it is none."""
        if isinstance(value, Term):
            return value
        if isinstance(value, Pointer):
            return self.fresh("unknown", value.obj.name, None, inputs=self.sources(value))
        return self.fresh("unknown", name, None, level=UNKNOWN)

    # --- conversions --------------------------------------------------------------------------

    def convert(self, value: Term, type_: Type, node: ir.Expr) -> Term:
        """``value`` converted to ``type_``; changes of integer width are recorded."""
        have = value.type
        if have is type_:
            return value
        if isinstance(type_, Int) and isinstance(have, Int) and value.op != "const":
            if type_.bits > have.bits:
                if have.bits == 32 and value.op != "atom":
                    self.record_conversion(value, type_, node)
            elif have.bits == 64 and type_.bits == 32:
                self.record_conversion(value, type_, node)
        elif isinstance(type_, Int) and isinstance(have, Float) and value.op != "const":
            self.record_conversion(value, type_, node)
        elif have is None and isinstance(type_, Int) and type_ is not BOOL:
            self.untyped(node)
        return t.convert(value, number(type_))

    def record_conversion(self, value: Term, type_: Type, node: ir.Expr) -> None:
        event = self.event(Conversion, node)
        event.term, event.to = value, type_
        (self.flow.roundings if isinstance(value.type, Float) else self.flow.conversions).append(event)

    def untyped(self, node: ir.Expr) -> None:
        """Remembers an integer without a type, where lowering left it open."""
        if type(node.type) is Unknown:
            self.flow.untyped.append(node)

    def operation(self, term: Term, node: ir.Expr) -> None:
        """Remembers where a product or quotient was formed: a term says what it is, not where."""
        if term.op != "const":
            event = self.event(Operation, node)
            event.term = term
            self.flow.operations.append(event)

    def source(self, node: ir.Node) -> str:
        """The text of a node."""
        return " ".join(self.fn.file.text[node.start : node.end].decode("utf-8", "replace").split())

    def event(self, cls: type[Any], node: ir.Node) -> Any:
        self.seq += 1
        return cls(self.seq, node, self.fn, self.guard, self.stack)

    # --- environments -------------------------------------------------------------------------

    def merge_value(self, cond: Term, a: Value | None, b: Value | None, var: ir.Var) -> Value:
        if a is b and a is not None:
            return a
        if a is None or b is None:
            # Declared on one side only: out of scope after the merge.
            return a if a is not None else b  # type: ignore[return-value]  # one of the two is there
        if isinstance(a, Term) and isinstance(b, Term):
            return t.select(cond, a, b, a.type if a.type is b.type else number(var.type))
        if isinstance(a, Pointer) and isinstance(b, Pointer):
            if a.obj is b.obj and len(a.pieces) == len(b.pieces) <= 1 and a.element is b.element:
                if a.pieces and a.pieces[0][1] == b.pieces[0][1]:
                    piece = t.select(cond, a.pieces[0][0], b.pieces[0][0], a.pieces[0][0].type)
                    return Pointer(a.obj, a.element, ((piece, a.pieces[0][1]),), ())
                if not a.pieces and not b.pieces:
                    return a
            if a.obj is b.obj and (not a.pieces or not b.pieces):
                one = a if a.pieces else b
                if len(one.pieces) == 1:
                    other = const(0, one.pieces[0][0].type)
                    first, second = (one.pieces[0][0], other) if one is a else (other, one.pieces[0][0])
                    piece = t.select(cond, first, second, one.pieces[0][0].type)
                    return Pointer(a.obj, a.element, ((piece, one.pieces[0][1]),), ())
            kind = a.obj.kind if a.obj.kind == b.obj.kind else "unknown"
            either = self.fresh("phi", var.name, None, inputs=(cond, *self.sources(a), *self.sources(b)))
            return Pointer(Obj(kind, var.name, a.element, origin=(either,)), a.element)
        if isinstance(a, Designator) and isinstance(b, Designator) and a.decl is b.decl:
            return Designator(a.decl, [])
        if isinstance(a, Record) and isinstance(b, Record):
            merged = Record(a.name, a.type, {}, max(a.level, b.level), a.kind)
            for name in {*a.fields, *b.fields}:
                merged.fields[name] = self.merge_value(cond, self.field(a, name), self.field(b, name), var)
            return merged
        return self.fresh("phi", var.name, var.type, inputs=(cond,), level=UNKNOWN)

    def sources(self, pointer: Pointer) -> tuple[Term, ...]:
        """What a pointer's value follows."""
        return (*(p for p, _ in pointer.pieces), *pointer.obj.origin)

    def command_line(self, cond: Term, a: Env, b: Env) -> bool | None:
        """Of a branch that hangs on the number of arguments alone, the side that reads them: True for ``a``.

        What a default was is then one of the values that may be given: the other side adds nothing.
        """
        if self.device or not _asks_arguments(cond):
            return None
        for var, value in a.items():
            other = b.get(var)
            if other is not value and isinstance(value, Term) and isinstance(other, Term):
                side = _read_side(value, other)
                if side is not None:
                    return side
        return None

    def merge(self, cond: Term, a: Env, b: Env) -> Env:
        """The environment after a branch: ``a`` where ``cond`` holds, else ``b``."""
        if a == b:
            return b
        result = dict(b)
        for var, value in a.items():
            other = b.get(var)
            if other is not value:
                result[var] = self.merge_value(cond, value, other, var)
        return result

    def condition_since(self, guard: Guard | None, base: Guard | None) -> Term:
        """The conjunction of the guards added since ``base``."""
        result = t.TRUE
        for item in chain(guard, base):
            result = t.land(item.term, result)
        return result

    def push(self, term: Term, why: GuardWhy, node: ir.Node, positive: bool = True, loop: Loop | None = None) -> None:
        if term is not t.TRUE or loop is not None:
            self.guard = Guard(self.guard, term, why, node, positive, self.fn, len(self.stack), loop)

    # --- statements ---------------------------------------------------------------------------

    def block(self, node: ir.Block) -> None:
        known = len(self.env)
        for stmt in node.body:
            if not self.alive:
                return
            self.stmt(stmt)
        if self.alive:
            self.forget(known)

    def forget(self, known: int) -> None:
        """Drops the locals that came after the first ``known`` names: a dictionary keeps its order.

        Every branch copies the environment, so it must not grow with each block and call.
        """
        env = self.env
        kept = []
        while len(env) > known:
            item = env.popitem()
            if item[0].kind not in _SCOPED:
                kept.append(item)
        env.update(reversed(kept))

    def stmt(self, node: ir.Stmt) -> None:
        self.steps += 1
        if self.steps > _BUDGET:
            self.flow.complete = False
            self.alive = False
            return
        _STATEMENTS[type(node)](self, node)

    def do_decl(self, node: ir.VarDecl) -> None:
        var = node.var
        type_ = var.type
        self.aliases.pop(var, None)
        if var.ref and node.init is not None:
            place = self.place(node.init)
            if place is not None:
                self.aliases[var] = place
                return
        if isinstance(type_, Array) or var.kind in ("shared", "constant"):
            self.env[var] = self.array(var)
            if node.init is not None:
                self.initialise_array(var, node.init)
            return
        if var.static and not self.device and not var.const:
            self.env[var] = self.unknown_value("var", var.name, type_, var)
            return
        if node.init is None:
            if type_ is DIM3:
                self.env[var] = Record(var.name, DIM3, {a: const(1, U32) for a in "xyz"})
            else:
                self.env[var] = self.unknown_value("uninit", var.name, type_, var)
            return
        value = self.value(node.init)
        held = self.env[var] = self.stored(value, var, node.init)
        if self.device and isinstance(held, Term) and isinstance(type_, Int) and _is_computed(held):
            event: Definition = self.event(Definition, node)
            event.var, event.term = var, held
            self.flow.definitions.append(event)

    def stored(self, value: Value | None, var: ir.Var, node: ir.Expr) -> Value:
        """``value`` as ``var`` holds it."""
        type_ = var.type
        if isinstance(value, Term):
            source = value
            while source.op == "cast":
                source = source.args[0]
            if source.op == "atom" and source.data.kind in ("call", "load") and not source.data.name.isidentifier():
                source.data.name = var.name
            if type_ is DIM3:
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
        return value.data if isinstance(value, Term) and value.op == "const" and isinstance(value.data, int) else None

    def initialise_array(self, var: ir.Var, init: ir.Expr) -> None:
        obj = self.flow.objects[var]
        if isinstance(init, ir.Construct):
            for arg in init.args:
                value = self.value(arg)
                if isinstance(value, Term):
                    obj.stores.append(value)
            if obj.extent is None or len(init.args) < obj.extent:
                obj.stores.append(const(0))  # the rest of the array
        else:
            self.value(init)

    def do_expr(self, node: ir.ExprStmt) -> None:
        self.value(node.expr)

    def do_if(self, node: ir.If) -> None:
        cond = t.truth(self.term(self.value(node.cond)))
        if cond.op == "const":
            chosen = node.then if cond.data else node.other
            if chosen is not None:
                self.stmt(chosen)
            return
        base, env = self.guard, self.env
        self.env = dict(env)
        self.push(cond, "if", node, True)
        inner = self.guard
        self.stmt(node.then)
        then_env, then_alive, then_guard, then_exit = self.env, self.alive, self.guard, self.last_exit
        self.env, self.alive, self.guard = env if node.other is None else dict(env), True, base
        self.push(t.lnot(cond), "if", node, False)
        other_inner = self.guard
        if node.other is not None:
            self.stmt(node.other)
        other_env, other_alive, other_guard, other_exit = self.env, self.alive, self.guard, self.last_exit
        self.guard = base
        if then_alive and other_alive:
            read = self.command_line(cond, then_env, other_env)
            if read is not None:
                self.env = then_env if read else other_env
                self.repush(*((then_guard, inner) if read else (other_guard, other_inner)))
                return
            self.env = self.merge(cond, then_env, other_env)
            self.implied(then_guard, inner, t.lnot(cond))
            self.implied(other_guard, other_inner, cond)
            return
        self.alive = then_alive or other_alive
        if then_alive:
            self.env = then_env
            self.push(cond, other_exit, node, True)
            self.repush(then_guard, inner)
        elif other_alive:
            self.env = other_env
            self.push(t.lnot(cond), then_exit, node, False)
            self.repush(other_guard, other_inner)
        else:
            self.last_exit = then_exit if then_exit == other_exit else "return"

    last_exit: GuardWhy = "return"

    def implied(self, guard: Guard | None, base: Guard | None, unless: Term) -> None:
        """What held at the end of one side of a branch holds after it too, unless the other side ran."""
        for item in reversed(list(chain(guard, base))):
            term = t.lor(unless, item.term)
            if term is not t.TRUE:
                self.guard = item.after(self.guard)
                self.guard.term = term

    def repush(self, guard: Guard | None, base: Guard | None) -> None:
        for item in reversed(list(chain(guard, base))):
            self.guard = item.after(self.guard)

    # --- loops --------------------------------------------------------------------------------

    def do_for(self, node: ir.For) -> None:
        for stmt in node.init:
            self.stmt(stmt)
        self.loop(node, node.cond, node.step, node.body, post=False)

    def do_while(self, node: ir.While) -> None:
        if node.post and isinstance(node.cond, ir.Const) and not node.cond.value:
            self.once(node)
            return
        self.loop(node, node.cond, None, node.body, post=node.post)

    def once(self, node: ir.While) -> None:
        """``do { … } while (0)``: a block that ``break`` and ``continue`` leave."""
        base = self.guard
        exits = _Exits("loop", base)
        self.exits.append(exits)
        self.stmt(node.body)
        self.exits.pop()
        left = exits.breaks + exits.continues
        if not left:
            return
        ends = [*([(self.env, self.guard)] if self.alive else []), *left]
        env = ends[-1][0]
        for other, guard in reversed(ends[:-1]):
            env = self.merge(self.condition_since(guard, base), other, env)
        self.env, self.guard, self.alive = env, base, True

    def do_range_for(self, node: ir.RangeFor) -> None:
        over = self.value(node.range)
        self.loop(node, None, None, node.body, post=False, each=node.var, over=over)

    def loop(
        self, node: ir.Stmt, cond: ir.Expr | None, step: ir.Expr | None, body: ir.Stmt, *, post: bool,
        each: ir.Var | None = None, over: Value | None = None,
    ) -> None:  # fmt: skip
        loop = Loop(node, self.fn, self.guard, self.stack, self.seq + 1)
        self.flow.loops.append(loop)
        changed = [v for v in self.assigned_in(node) if v in self.env]
        before = {v: self.env[v] for v in changed}
        base = self.guard
        self.env = dict(self.env)
        for var in changed:
            self.env[var] = self.head(loop, var, before[var])
        exits = _Exits("loop", base, loop)
        self.exits.append(exits)
        if each is not None:
            element = self.env[each] = self.unknown_value("load", each.name, each.type, each, level=UNKNOWN)
            if isinstance(over, Pointer):
                self.bound_by_contents(element, over.obj)
            loop.control.append(self.fresh("unknown", "range", None, level=UNKNOWN))
        test = t.TRUE
        if cond is not None and not post:
            self.push(t.TRUE, "loop", node, True, loop)
            test = t.truth(self.term(self.value(cond)))
            self.guard = base
            loop.cond = test
            loop.control.append(test)
            self.limit(loop, test)
        self.push(test, "loop", node, True, loop)
        exits.base = self.guard
        self.stmt(body)
        self.join_continues(exits)
        if cond is not None and post and self.alive:
            test = t.truth(self.term(self.value(cond)))
            loop.cond = test
            loop.control.append(test)
        if step is not None and self.alive:
            self.value(step)
        for _env, guard in exits.breaks:
            condition = self.condition_since(guard, exits.base)
            loop.control.append(condition)
            if guard is not None and guard is not exits.base:
                loop.leaves[condition] = guard
        loop.last = self.seq
        reached = self.alive
        for var in changed:
            self.complete(loop, var, self.env.get(var) if reached else None)
        self.exits.pop()
        self.guard = base
        never_ends = cond is None and each is None and not exits.breaks
        self.alive = not (never_ends or (test is t.TRUE and not exits.breaks and not post and each is None))
        if post and not reached and not exits.breaks:
            self.alive = False
        broken = {v: [env.get(v) for env, _ in exits.breaks] for v in changed}
        for var in changed:
            self.env[var] = self.after(loop, var, before[var], broken[var])

    def assigned_in(self, node: ir.Stmt) -> list[ir.Var]:
        found = self.assigned_cache.get(id(node))
        if found is None:
            resolved = set()
            for var in _assigned(node, self.stores_cache):
                resolved.add(var)
                place = self.aliases.get(var)
                if place is not None and place[0] == "var":
                    resolved.add(place[1])
            found = self.assigned_cache[id(node)] = sorted(resolved, key=lambda v: v.start)
        return found

    def head(self, loop: Loop, var: ir.Var, value: Value) -> Value:
        if isinstance(value, Term):
            info = Induction(loop, var, value)
            low, high = t.type_range(value.type)
            term = t.atom(Atom("loop", var.name, low, high, data=info), value.type)
            info.term = term
            loop.inductions[var] = info
            return term
        if isinstance(value, Pointer) and len(value.pieces) <= 1 and not isinstance(value.element, Array):
            size = value.element.size if value.element is not None else None
            unit = value.pieces[0][1] if value.pieces else size
            start = value.pieces[0][0] if value.pieces else const(0, I64)
            info = Induction(loop, var, start)
            term = t.atom(Atom("loop", var.name, -t.INF, t.INF, data=info), I64)
            info.term = term
            loop.inductions[var] = info
            return Pointer(value.obj, value.element, ((term, unit),))
        if isinstance(value, Pointer):
            inputs = self.sources(value)
            return Pointer(Obj(value.obj.kind, var.name, value.element, origin=inputs), value.element)
        if isinstance(value, Record):
            return Record(var.name, value.type, {}, UNKNOWN if self.device else 0)
        return self.fresh("unknown", var.name, var.type, level=UNKNOWN)

    def limit(self, loop: Loop, test: Term) -> None:
        """Records the bound that a loop's test sets on its variable."""
        stack = [test]
        while stack:
            term = stack.pop()
            if term.op == "land":
                stack.extend(term.args)
            elif term.op in ("lt", "le"):
                strict = -1 if term.op == "lt" else 0
                for side, other, sign in ((term.args[0], term.args[1], 1), (term.args[1], term.args[0], -1)):
                    while side.op == "cast":
                        side = side.args[0]
                    if side.op == "atom" and side.data.kind == "loop" and side.data.data.loop is loop:
                        side.data.data.limit = (other, strict * sign)

    def complete(self, loop: Loop, var: ir.Var, value: Value | None) -> None:
        info = loop.inductions.get(var)
        if info is None or info.term is None:
            return
        if isinstance(value, Pointer):
            value = value.pieces[0][0] if len(value.pieces) == 1 else None
        if not isinstance(value, Term):
            info.next = None
            info.term.data.level = UNKNOWN if value is None and self.alive else info.term.data.level
            return
        info.next = value
        if isinstance(value.type, Float):
            return
        difference = t.add(t.poly(value), t.poly(info.term), -1)
        if self.invariant(difference, loop):
            info.step = from_poly(difference, info.term.type)

    def invariant(self, p: t.Poly, loop: Loop) -> bool:
        """Whether nothing in ``p`` was made inside ``loop``."""
        return all(leaf.key <= loop.counter.key for a in t.atoms_of(p) for leaf in t.leaves(a))

    def after(self, loop: Loop, var: ir.Var, before: Value, broken: list[Value | None]) -> Value:
        info = loop.inductions.get(var)
        if info is not None and info.term is not None:
            inputs = [info.term, *loop.control]
            if info.init is not None:
                inputs.append(info.init)
            if info.next is not None:
                inputs.append(info.next)
            for value in broken:
                if isinstance(value, Term):
                    inputs.append(value)
                elif isinstance(value, Pointer):
                    inputs.extend(p for p, _ in value.pieces)
            if isinstance(before, Pointer):
                exit_term = t.atom(Atom("exit", var.name, -t.INF, t.INF, data=info, inputs=tuple(inputs)), I64)
                unit = before.pieces[0][1] if before.pieces else (before.element.size if before.element else None)
                return Pointer(before.obj, before.element, ((exit_term, unit),))
            type_ = info.term.type
            low, high = t.type_range(type_)
            return t.atom(Atom("exit", var.name, low, high, data=info, inputs=tuple(inputs)), type_)
        if isinstance(before, Pointer):
            return Pointer(Obj(before.obj.kind, var.name, before.element, origin=tuple(loop.control)), before.element)
        if isinstance(before, Record):
            return Record(var.name, before.type, {}, UNKNOWN if self.device else 0)
        return self.fresh("unknown", var.name, var.type, level=UNKNOWN)

    def join_continues(self, exits: _Exits) -> None:
        """The state at the end of a pass: the body's end and every ``continue``."""
        env = self.env if self.alive else None
        for other, guard in reversed(exits.continues):
            env = other if env is None else self.merge(self.condition_since(guard, exits.base), other, env)
        if env is not None:
            self.env, self.alive = env, True
            if exits.continues:
                self.guard = exits.base

    def do_switch(self, node: ir.Switch) -> None:
        subject = self.term(self.value(node.cond))
        base, entry = self.guard, self.env
        exits = _Exits("switch", base)
        self.exits.append(exits)
        ends: list[tuple[Env, Guard | None]] = []
        tests: list[Term] = []
        for case in node.cases:
            test = t.FALSE
            for label in case.labels:
                test = t.lor(test, t.compare("==", subject, t.convert(self.term(self.value(label)), subject.type)))
            tests.append(test)
        others = t.TRUE
        for test in tests:
            others = t.land(others, t.lnot(test))
        fallen: Env | None = None
        has_default = any(not case.labels for case in node.cases)
        for case, test in zip(node.cases, tests):
            if not case.labels:
                test = others
            if test is t.FALSE and fallen is None:
                continue
            self.env = dict(entry) if fallen is None else self.merge(test, dict(entry), fallen)
            self.guard, self.alive = base, True
            if fallen is None:
                self.push(test, "switch", node, True)
            else:
                self.push(self.fresh("unknown", "switch", BOOL, inputs=(subject,)), "switch", node, True)
            for stmt in case.body:
                if self.alive:
                    self.stmt(stmt)
            fallen = self.env if self.alive else None
            ends.extend(exits.breaks)
            exits.breaks.clear()
        if fallen is not None:
            ends.append((fallen, self.guard))
        if not has_default and others is not t.FALSE:
            ends.append((entry, Guard(base, others, "switch", node, False, self.fn, len(self.stack))))
        self.exits.pop()
        self.guard = base
        self.alive = bool(ends)
        if ends:
            env = ends[-1][0]
            for other, guard in reversed(ends[:-1]):
                env = self.merge(self.condition_since(guard, base), other, env)
            self.env = env
            if len(ends) == 1 and ends[0][1] is not None:
                self.repush(ends[0][1], base)

    def do_return(self, node: ir.Return) -> None:
        value: Value | None = None
        if node.value is not None:
            value = self.value(node.value)
            if isinstance(value, Term):
                value = self.convert(value, self.fn.returns, node.value)
        self.flow.returns.append(self.event(ReturnEvent, node))
        if not node.throws:
            self.frames[-1].returns.append((self.guard, value, self.env))
        self.alive, self.last_exit = False, "return"

    def do_break(self, node: ir.Break) -> None:
        if self.exits:
            exits = self.exits[-1]
            exits.breaks.append((self.env, self.guard))
            self.last_exit = "break" if exits.kind == "loop" else "switch"
        self.alive = False

    def do_continue(self, node: ir.Continue) -> None:
        for exits in reversed(self.exits):
            if exits.kind == "loop":
                exits.continues.append((self.env, self.guard))
                break
        self.alive, self.last_exit = False, "continue"

    def do_opaque(self, node: ir.OpaqueStmt) -> None:
        self.flow.opaques.append(self.event(Event, node))
        self.clobber(node.writes)

    def clobber(self, variables: Iterable[ir.Var]) -> None:
        for var in variables:
            if var in self.env and not isinstance(var.type, Array) and var.kind != "shared":
                self.env[var] = self.unknown_value("unknown", var.name, var.type, var, level=UNKNOWN)

    # --- places -------------------------------------------------------------------------------

    def place(self, node: ir.Expr) -> Any:
        """Where an lvalue is: ("var", var, path), ("mem", pointer, node), or None where it is not known."""
        kind = type(node)
        if kind is ir.Ref:
            alias = self.aliases.get(node.var)  # type: ignore[attr-defined]  # it is a Ref
            if alias is None and self.in_memory(node.var):  # type: ignore[attr-defined]
                return ("mem", self.array(node.var), node)  # type: ignore[attr-defined]
            return alias if alias is not None else ("var", node.var, ())  # type: ignore[attr-defined]
        if kind is ir.Member:
            base = self.place(node.base)  # type: ignore[attr-defined]
            if base is None:
                return None
            if base[0] == "var":
                return ("var", base[1], (*base[2], node.field))  # type: ignore[attr-defined]
            return ("field", base, node.field, node)  # type: ignore[attr-defined]
        if kind is ir.Index:
            pointer = self.index(node)  # type: ignore[arg-type]
            if pointer is None:
                return None
            return self.memory(pointer, node)
        if kind is ir.Cast:
            operand = self.place(node.operand)  # type: ignore[attr-defined]
            return operand if operand is not None and operand[0] == "var" else None
        if kind is ir.Assign or kind is ir.IncDec:
            self.value(node)
            return self.place(node.target)  # type: ignore[attr-defined]
        return None

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
            record = self.read(place[1], place[3].base.type)
            if isinstance(record, Record):
                return self.field(record, place[2])
            key = ("field", record if isinstance(record, Term) else id(record), place[2])
            found = self.loads.get(key)
            if found is None:
                inputs = (record,) if isinstance(record, Term) else ()
                name = record.data.name if isinstance(record, Term) and record.op == "atom" else "?"
                title = f"{name}.{place[2]}"
                if place[2] in DEVICE_MEMBERS and not self.device:
                    found = self.fresh("device", title, number(type_) or I32, inputs=inputs)
                else:
                    found = self.unknown_value("load", title, type_, inputs=inputs)
                self.loads[key] = found
            return found
        return self.load(place[1], place[2], type_)

    def lookup(self, var: ir.Var) -> Value:
        value = self.env.get(var)
        if value is not None:
            return value
        if var.kind == "field" and isinstance(self.receiver, Record):
            return self.field(self.receiver, var.name)
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
            value = self.unknown_value("var", var.name, var.type, var)
        assert value is not None
        self.globals[var] = value
        return value

    def write(self, place: Any, value: Value | None, node: ir.Expr, target: ir.Expr) -> None:
        if place is None:
            return
        if place[0] == "var":
            var, path = place[1], place[2]
            if var.ref:
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
            inner = place
            while inner[0] == "field":
                inner = inner[1]
            if inner[0] == "mem":
                self.store(inner[1], inner[2], value, "w")

    def with_field(
        self, record: Value, name: str, type_: Type, path: tuple[str, ...], value: Value | None, node: ir.Expr,
        leaf: Type,
    ) -> Value:  # fmt: skip
        if not isinstance(record, Record):
            record = Record(name, type_, {}, UNKNOWN if self.device else 0)
        copy = Record(record.name, record.type, dict(record.fields), record.level, record.kind)
        if len(path) == 1:
            if isinstance(value, Term) and isinstance(leaf, (Int, Float)):
                value = self.convert(value, leaf, node)
            copy.fields[path[0]] = value if value is not None else self.fresh("unknown", path[0], leaf, level=UNKNOWN)
        else:
            inner = self.field(record, path[0])
            inner_type = inner.type if isinstance(inner, Record) else leaf
            copy.fields[path[0]] = self.with_field(inner, path[0], inner_type, path[1:], value, node, leaf)
        return copy

    # --- memory -------------------------------------------------------------------------------

    def index(self, node: ir.Index) -> Pointer | None:
        """The pointer that ``base[index]`` dereferences."""
        base = self.value(node.base)
        index = self.term(self.value(node.index))
        if isinstance(base, (Closure, Record, Designator)):
            return None
        if isinstance(base, Term):
            base = Pointer(
                Obj("unknown", base.data.name if base.op == "atom" else "?", node.type, origin=(base,)), node.type
            )
        return self.advance(base, index, node)

    def advance(self, base: Pointer, index: Term, node: ir.Expr | None) -> Pointer:
        element = base.element
        if isinstance(element, Array):
            inner: Type = element
            unit: int | None = 1
            extent = self.extent(element)
            while isinstance(inner, Array):
                d = self.extent(inner)
                unit = None if unit is None or d is None else unit * d
                inner = inner.element
            size = inner.size
            piece = (index, None if unit is None or size is None else unit * size)
            outer = base.obj.var.type if base.obj.var is not None else None
            first = self.extent(outer) if not base.dims and isinstance(outer, Array) else extent
            return Pointer(base.obj, element.element, (*base.pieces, piece), (*base.dims, (index, first)))
        if index.op == "const" and index.data == 0 and node is None:
            return base
        size = element.size if element is not None else None
        last: int | None = None
        outer = base.obj.var.type if base.obj.var is not None else None
        if not base.dims and isinstance(outer, Array):
            last = self.extent(outer)
        elif base.dims and isinstance(outer, Array):
            inner = outer
            for _ in base.dims:
                inner = inner.element if isinstance(inner, Array) else inner
            last = self.extent(inner) if isinstance(inner, Array) else None
        return Pointer(base.obj, element, (*base.pieces, (index, size)), (*base.dims, (index, last)))

    def access(self, pointer: Pointer, node: ir.Expr, mode: str, value: Term | None = None) -> Access:
        event: Access = self.event(Access, node)
        obj, element = pointer.obj, pointer.element
        event.mode, event.obj, event.element, event.dims, event.value = mode, obj, element, pointer.dims, value
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
        epoch = (obj.epoch, self.epoch) if obj.kind in ("shared", "local") else (obj.epoch, 0)
        key = (obj, tuple(pointer.pieces), epoch, type_)
        found = self.loads.get(key)
        if found is None:
            inputs = self.sources(pointer)
            data = obj if obj.kind == "local" else None
            name = (
                f"{obj.name}[{', '.join(t.show(p) for p, _ in pointer.pieces)}]"
                if not self.device
                else f"{obj.name}[…]"
            )
            found = self.loads[key] = self.unknown_value("load", name, type_, data, inputs=inputs)
            self.bound_by_contents(found, obj)
        return found

    def bound_by_contents(self, value: Value, obj: Obj) -> None:
        """An element of a local table of constants that nothing has written since is one of them."""
        table = [x.data for x in obj.stores if x.op == "const" and isinstance(x.data, int)]
        if obj.kind == "local" and table and len(table) == len(obj.stores) and isinstance(value, Term):
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
        if obj.kind == "local":
            obj.stores.extend(x for x in (term, *(p for p, _ in pointer.pieces)) if x is not None)
            obj.stores.extend(g.term for g in chain(self.guard) if g.why in ("if", "continue", "break", "switch"))

    # --- expressions --------------------------------------------------------------------------

    def value(self, node: ir.Expr) -> Value:
        return _EXPRESSIONS[type(node)](self, node)  # type: ignore[no-any-return]  # by node class

    def do_const(self, node: ir.Const) -> Value:
        if isinstance(node.value, (int, float)):
            return const(node.value, number(node.type))
        if isinstance(node.type, Ptr):
            return Pointer(Obj("unknown", node.text or "null", node.type.element), node.type.element)
        return self.fresh("unknown", node.text or "?", None)

    def do_ref(self, node: ir.Ref) -> Value:
        var = node.var
        alias = self.aliases.get(var)
        if alias is not None:
            return self.read(alias, node.type)
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
        if pointer is None:
            return self.unknown_value("unknown", "[]", node.type, level=UNKNOWN)
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
        if node.op == ">>" and not isinstance(node.left.type, Int) and isinstance(node.right, ir.Ref):
            self.clobber([node.right.var])  # `std::cin >> n`
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
        if op in _BINARY:
            term = t.binary(_BINARY[op], a, b, number(optype))
            if op in ("*", "/"):
                self.operation(term, node)
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
            if left.obj is right.obj and len(left.pieces) <= 1 and len(right.pieces) <= 1:
                x = left.pieces[0][0] if left.pieces else const(0, I64)
                y = right.pieces[0][0] if right.pieces else const(0, I64)
                return t.compare(node.op, t.convert(x, I64), t.convert(y, I64))
        inputs = [self.term(left), self.term(right)]
        return self.fresh("unknown", node.op, node.type, inputs=tuple(inputs))

    def moved(self, pointer: Pointer, offset: Term) -> Pointer:
        """``pointer + offset`` in elements of what it points to."""
        element = pointer.element
        size = element.size if element is not None else None
        if isinstance(element, Array):
            return Pointer(pointer.obj, element, (*pointer.pieces, (offset, size)), ())
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
            read = _read_side(then, other) if not self.device and _asks_arguments(cond) else None
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
        place = self.place(target)
        if not op:
            value: Value = self.value(node.value)
            if isinstance(value, Term) and isinstance(target.type, (Int, Float)):
                value = self.convert(value, target.type, node.value)
            self.write(place, value, node.value, target)
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

    def compound(self, node: ir.Assign, old: Value, right: Value) -> Value:
        if isinstance(old, Pointer) and isinstance(right, Term):
            offset = right if node.op == "+" else t.negate(t.convert(right, I64), I64)
            return self.moved(old, offset)
        result = self.arithmetic(node, node.op, self.term(old), self.term(right), node.optype, node.target, node.value)
        return t.convert(result, number(node.target.type))

    def do_incdec(self, node: ir.IncDec) -> Value:
        place = self.place(node.target)
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
                    if name not in fields and isinstance(field_type, (Int, Float)) and len(args) <= 1:
                        fields[name] = const(0, field_type)
            return Record(type_.name, type_, fields)
        if isinstance(type_, (Int, Float)):
            if not args:
                return const(0, type_)
            if len(args) == 1 and isinstance(args[0], Term):
                return self.convert(args[0], type_, node.args[0])
        inputs = tuple(a for a in args if isinstance(a, Term))
        return self.unknown_value("unknown", str(type_), type_, inputs=inputs)

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
        return Closure(node.function)

    def do_opaque_expr(self, node: ir.Opaque) -> Value:
        self.flow.opaques.append(self.event(Event, node))
        self.clobber(node.writes)
        return self.unknown_value("unknown", "?", node.type, level=UNKNOWN)

    # --- launches and calls -------------------------------------------------------------------

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
        return self.fresh("call", "launch", node.type)

    def do_call(self, node: ir.Call) -> Value:
        from cudalint.facts.builtins import known_call

        name = node.name.rsplit("::", 1)[-1]
        if node.target is not None and node.target.has_body:
            result = self.inline(node, node.target)
            if result is not None:
                return result
        if node.callee is not None:
            callee = self.value(node.callee)
            if isinstance(callee, Closure):
                return self.enter(node, callee.function, [self.value(a) for a in node.args], None)
        elif node.receiver is None and node.target is None:
            return known_call(self, node, name)
        if node.receiver is not None:
            return known_call(self, node, name)
        return self.unseen(node, [self.value(a) for a in node.args])

    def unseen(self, node: ir.Call, args: list[Value], level: int = UNKNOWN) -> Value:
        """A call nothing is known of: it may write through what it is given."""
        target = node.target
        for arg, value in zip(node.args, args):
            if isinstance(value, Pointer) and value.obj.kind == "var" and value.obj.data is not None:
                var, path = value.obj.data
                type_ = value.element or var.type
                name = ".".join((var.name, *path))
                fresh = self.unknown_value("call", name, type_, node, level=level if self.device else 0)
                self.write(("var", var, path), fresh, arg, arg)
            elif isinstance(value, Term) and value.op == "atom" and value.data.kind == "uninit" and isinstance(arg, ir.Ref):
                # Nobody reads a variable that was never set: the callee takes it by reference and sets it.
                self.write(self.place(arg), self.fresh("call", arg.var.name, arg.type, data=node), arg, arg)
            elif isinstance(value, Pointer):
                value.obj.epoch += 1
                if value.obj.kind == "local":
                    value.obj.stores.append(self.fresh("unknown", "call", None, level=UNKNOWN))
        if target is not None and not target.has_body:
            pass
        # What the standard library reads from a text can be any number.
        name = self.source(node) if node.name.rsplit("::", 1)[-1] in PARSERS else node.name + "()"
        result = self.unknown_value("call", name, node.type, node, level=level if self.device else 0)
        event: CallEvent = self.event(CallEvent, node)
        event.args, event.result = args, result
        self.flow.calls.append(event)
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
        self.flow.callees.add(target)
        bindings = self.bindings(target, node.targs, node.args)
        callee = target.lower(bindings, asked=self.flow.function.asked)
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
        if receiver is not None:
            for var in [v for v in self.env if v.kind == "field"]:
                del self.env[var]
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
        for var in callee.params[len(args) :]:
            self.env[var] = (
                self.value(var.init) if var.init is not None else self.unknown_value("unknown", var.name, var.type)
            )
        for var in callee.template:
            self.env[var] = self.fresh("param", var.name, var.type, data=var)
        base = self.guard
        site = CallSite(node, self.fn, callee, base)
        saved = self.fn, self.stack, self.exits, self.last_exit, self.receiver
        if receiver is not None:
            self.receiver = receiver
        self.fn, self.stack, self.exits = callee, (*self.stack, site), []
        frame = _Frame(base)
        self.frames.append(frame)
        self.block(callee.body)
        self.frames.pop()
        self.fn, self.stack, self.exits, self.last_exit, self.receiver = saved
        paths = frame.returns
        if self.alive:
            paths = [*paths, (self.guard, None, self.env)]
        self.guard = base
        self.alive = bool(paths)
        if not paths:
            return self.unknown_value("unknown", callee.name, node.type)
        result: Value | None
        last_guard, result, env = paths[-1]
        for guard, value, other in reversed(paths[:-1]):
            cond = self.condition_since(guard, base)
            env = self.merge(cond, other, env)
            if value is not None and result is not None:
                result = self.merge_value(cond, value, result, ir.Var(callee.name, node.type, "local", 0, 0))
            elif result is None:
                result = value
        self.env = env
        self.forget(known)
        if len(paths) == 1:
            for item in reversed(list(chain(last_guard, base))):
                if item.why != "loop":
                    self.guard = item.after(self.guard)
        return result if result is not None else self.unknown_value("call", callee.name, node.type, level=0)

    def place_again(self, node: ir.Expr) -> Any:
        """The place of an argument already evaluated once: memory is not accessed a second time."""
        flow = self.flow
        events: list[list[Any]] = [flow.accesses, flow.conversions, flow.comparisons, flow.roundings, flow.operations]
        marks = [len(each) for each in events]
        place = self.place(node)
        for each, mark in zip(events, marks):
            del each[mark:]
        return place


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


def _is_computed(term: Term) -> bool:
    """Whether a value is worth a definition event: made of something, or a launch id."""
    return term.data.kind in ("tid", "bid") if term.op == "atom" else term.op != "const"


def _is_zero(pointer: Pointer) -> bool:
    return all(p.op == "const" and p.data == 0 for p, _ in pointer.pieces)


# --- which variables a statement assigns ---------------------------------------------------------


def _root(node: ir.Expr) -> ir.Var | None:
    while isinstance(node, (ir.Member, ir.Cast)):
        node = node.base if isinstance(node, ir.Member) else node.operand
    if isinstance(node, ir.Index) and isinstance(node.base, ir.Ref) and isinstance(node.base.var.type, Struct):
        return node.base.var
    return node.var if isinstance(node, ir.Ref) else None


_CHILDREN: dict[type, tuple[str, ...]] = {
    ir.Member: ("base",), ir.Index: ("base", "index"), ir.AddrOf: ("operand",), ir.Unary: ("operand",),
    ir.Binary: ("left", "right"), ir.Logical: ("left", "right"), ir.Cond: ("cond", "then", "other"),
    ir.Cast: ("operand",), ir.Assign: ("target", "value"), ir.IncDec: ("target",), ir.Comma: ("left", "right"),
    ir.VarDecl: ("init",), ir.ExprStmt: ("expr",), ir.If: ("cond", "then", "other"),
    ir.For: ("cond", "step", "body"), ir.While: ("cond", "body"), ir.RangeFor: ("range", "body"),
    ir.Switch: ("cond",), ir.Return: ("value",),
}  # fmt: skip


def children(node: Any) -> list[Any]:
    """The direct children of an IR node (expressions and statements), in source order."""
    kind = type(node)
    found = [c for c in (getattr(node, name) for name in _CHILDREN.get(kind, ())) if c is not None]
    if kind is ir.Block:
        found = node.body
    elif kind is ir.For:
        found = [*node.init, *found]
    elif kind is ir.Switch:
        for case in node.cases:
            found = [*found, *case.labels, *case.body]
    elif kind is ir.Call:
        found = [c for c in (node.receiver, node.callee, *node.args) if c is not None]
    elif kind is ir.Construct:
        found = node.args
    elif kind is ir.Launch:
        found = [c for c in (node.grid, node.block, node.shared, node.stream, *(node.args or ())) if c is not None]
    elif kind is ir.Lambda:
        found = [node.function.body]
    return found


_LOOPS = (ir.For, ir.While, ir.RangeFor)


def _assigned(loop: Any, known: dict[int, set[ir.Var]]) -> set[ir.Var]:
    """The variables that a loop assigns; ``known`` holds the loops seen before, those inside it among them."""
    into = known.get(id(loop))
    if into is not None:
        return into
    into = known[id(loop)] = set()
    stack = children(loop)[:]
    while stack:
        item = stack.pop()
        kind = type(item)
        if kind in _LOOPS:
            into |= _assigned(item, known)
            continue
        if kind is ir.Assign or kind is ir.IncDec:
            root = _root(item.target)
            if root is not None:
                into.add(root)
        elif kind is ir.Call:
            # By reference or through a pointer: `f(x)` with T& x, `f(&x)`.
            target = item.target
            refs = signature(target).refs if target is not None and target.has_body else ()
            for position, arg in enumerate(item.args):
                if type(arg) is ir.AddrOf:
                    root = _root(arg.operand)
                    if root is not None:
                        into.add(root)
                elif (position < len(refs) and refs[position]) or (
                    target is None and item.name.rsplit("::", 1)[-1] == "swap"
                ):
                    root = _root(arg)
                    if root is not None:
                        into.add(root)
        elif kind is ir.OpaqueStmt or kind is ir.Opaque:
            into.update(item.writes)
        stack.extend(children(item))
    return into


_STATEMENTS: dict[type, Any] = {
    ir.VarDecl: _Walker.do_decl, ir.ExprStmt: _Walker.do_expr, ir.Block: _Walker.block, ir.If: _Walker.do_if,
    ir.For: _Walker.do_for, ir.While: _Walker.do_while, ir.RangeFor: _Walker.do_range_for,
    ir.Switch: _Walker.do_switch, ir.Return: _Walker.do_return, ir.Break: _Walker.do_break,
    ir.Continue: _Walker.do_continue, ir.OpaqueStmt: _Walker.do_opaque,
}  # fmt: skip
_EXPRESSIONS: dict[type, Any] = {
    ir.Const: _Walker.do_const, ir.Ref: _Walker.do_ref, ir.Name: _Walker.do_name, ir.Special: _Walker.do_special,
    ir.Member: _Walker.do_member, ir.Index: _Walker.do_index, ir.AddrOf: _Walker.do_addr, ir.Unary: _Walker.do_unary,
    ir.Binary: _Walker.do_binary, ir.Logical: _Walker.do_logical, ir.Cond: _Walker.do_cond, ir.Cast: _Walker.do_cast,
    ir.Assign: _Walker.do_assign, ir.IncDec: _Walker.do_incdec, ir.Call: _Walker.do_call,
    ir.Construct: _Walker.do_construct, ir.SizeOf: _Walker.do_sizeof, ir.Comma: _Walker.do_comma,
    ir.Lambda: _Walker.do_lambda, ir.Launch: _Walker.do_launch, ir.Opaque: _Walker.do_opaque_expr,
}  # fmt: skip

# Names the calls module uses.
Walker = _Walker
__all__ = [
    "ASSERTION_OPERATORS", "ATOMICS", "BDIM", "BID", "BLOCK_BARRIERS", "GDIM", "LEGACY_COLLECTIVES", "NO_RETURN",
    "PURE", "ROUNDING", "SPECIALS", "THREAD_RESULTS", "TID", "WARP_COLLECTIVES", "WARP_UNIFORM", "Barrier",
    "Collective", "Walker", "bind_template", "children", "from_poly", "is_assertion", "run",
]  # fmt: skip
