"""What the executor carries along: variables and what they hold, guards, and the events it records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudalint.facts import terms as t
from cudalint.facts.calls import DEVICE_MEMBERS
from cudalint.facts.events import (
    Asserted,
    CallEvent,
    CallSite,
    Conversion,
    Designator,
    Flow,
    Guard,
    Loop,
    Obj,
    Operation,
    Pointer,
    Record,
    chain,
    conjuncts_of,
)
from cudalint.facts.terms import UNKNOWN, Atom, Term, const
from cudalint.ir import nodes as ir
from cudalint.ir.types import BOOL, DIM3, I32, Array, Float, Int, Ptr, Struct, Type, Unknown

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from cudalint.facts.events import GuardWhy, LaunchEvent, Value


Env = dict[ir.Var, "Value"]
_NAMED = 48
"""Characters of an expression that names a value without a name."""
_PROPERTIES = frozenset({"cudaDeviceProp", "hipDeviceProp_t"})
_SCOPED = frozenset({"local", "param", "template"})
"""Kinds of variables that are gone after their block or call."""


def number(type_: Type) -> Type | None:
    return type_ if isinstance(type_, (Int, Float)) else None


def _is_entered(guard: Guard | None, passed: Collection[Guard]) -> bool:
    """Whether a place is come to wherever ``passed`` hold: around it there are but loops that make a first pass."""
    while guard is not None and guard not in passed:
        loop = guard.loop
        if guard.why != "loop" or loop is None or loop.cond is None:
            return False
        begins = {x.term: x.init for x in loop.inductions.values() if x.term is not None and x.init is not None}
        if t.substitute(loop.cond, begins) is not t.TRUE:
            return False
        guard = guard.parent
    return True


class Exits:
    """Where ``break``, ``continue`` or ``return`` leave a construct: the environments and the guards there."""

    __slots__ = ("base", "breaks", "continues", "kind", "loop")

    def __init__(self, kind: str, base: Guard | None, loop: Loop | None = None) -> None:
        self.kind, self.base, self.loop = kind, base, loop
        self.breaks: list[tuple[Env, Guard | None]] = []
        self.continues: list[tuple[Env, Guard | None]] = []


class Frame:
    """One function being walked: its exits by ``return``."""

    __slots__ = ("base", "returns")

    def __init__(self, base: Guard | None) -> None:
        self.base = base
        self.returns: list[tuple[Guard | None, Value | None, Env]] = []


class State:
    """The lowest layer of the executor; :class:`cudalint.facts.flow.Walker` is the whole."""

    def __init__(self, function: ir.Function) -> None:
        self.flow = Flow(function)
        self.fn = function
        self.device = function.kind in ("kernel", "device", "both")
        self.env: Env = {}
        self.aliases: dict[ir.Var, Any] = {}
        self.guard: Guard | None = None
        self.alive = True
        self.last_exit: GuardWhy = "return"
        """How the statement walked last left the path, where it did."""
        self.stack: tuple[CallSite, ...] = ()
        self.seq = 0
        self.exits: list[Exits] = []
        self.frames: list[Frame] = []
        self.receiver: Value | None = None
        self.epoch = 0
        self.loads: dict[tuple[Any, ...], Value] = {}
        self.answered: dict[object, dict[tuple[Any, ...], Value]] = {}
        """What methods of objects answered, by the outermost object."""
        self.tensors: list[CallEvent] = []
        """The calls that make a tensor."""
        self.elements: dict[tuple[Term, Type], Pointer] = {}
        self.held: dict[Obj, dict[int | None, tuple[Guard | None, Term]]] = {}
        """What is known of the elements of arrays and containers, and under which guard it was stored."""
        self.listed: dict[Term, tuple[Term, ...]] = {}
        """Containers that were made from a list of numbers, until one of their elements is asked for."""
        self.globals: dict[ir.Var, Value] = {}
        self.answers: dict[Value, list[LaunchEvent | Term]] = {}
        """What was answered when it was asked whether the driver took these launches, or what else holds if it did."""
        self.votes: dict[Term, tuple[str, Term]] = {}
        """The outcome of a vote: how it was taken (``all``, ``any``, ``count``), and what this thread voted."""
        self.parts: dict[tuple[ir.Var, str], ir.Var] = {}
        self.assigned_cache: dict[int, list[ir.Var]] = {}
        self.stores_cache: dict[int, set[ir.Var]] = {}
        self.entered = 0

    # --- atoms and values

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
            # The host's sizes are told apart by what they are called, not by where they are kept.
            array = data if self.device and isinstance(data, Obj) else None
            return Record(name, type_, {}, level, kind, inputs if self.device else (), array)
        return self.fresh(kind, name, type_, data=data, inputs=inputs, level=level)

    def field(self, record: Record, name: str) -> Value:
        found = record.fields.get(name)
        if found is None:
            fields = record.type.fields if isinstance(record.type, Struct) else None
            type_ = (fields or {}).get(name)
            asked = not self.device and name in DEVICE_MEMBERS and str(record.type) in _PROPERTIES
            found = record.fields[name] = (
                self.fresh("device", f"{record.name}.{name}", number(type_) if type_ is not None else I32)
                if asked
                else self.unknown_value(
                    record.kind, f"{record.name}.{name}", type_, record.array, inputs=record.inputs, level=record.level
                )
                if type_ is not None
                else self.fresh("unknown", f"{record.name}.{name}", None, level=max(record.level, 0))
            )
            if record.type is DIM3 and isinstance(found, Term):
                found.data.axis = name
        return found

    def term(self, value: Value | None, name: str = "?") -> Term:
        """``value`` as a number; an unknown where it is none."""
        if isinstance(value, Term):
            return value
        if isinstance(value, Pointer):
            return self.fresh("unknown", value.obj.name, None, inputs=self.sources(value))
        return self.fresh("unknown", name, None, level=UNKNOWN)

    # --- conversions

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
        """The text of a node on one line; of a long one the beginning, and the end of a call."""
        text = self.fn.file.text[node.start : min(node.end, node.start + 2 * _NAMED)]
        words = " ".join(text.decode("utf-8", "replace").split())
        if node.end - node.start == len(text) and len(words) <= _NAMED:
            return words
        return words[: _NAMED - 2] + ("…)" if isinstance(node, ir.Call) else "…")

    def event(self, cls: type[Any], node: ir.Node) -> Any:
        self.seq += 1
        return cls(self.seq, node, self.fn, self.guard, self.stack)

    # --- environments

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
            obj = Obj(kind, var.name, a.element, origin=(either,))
            if kind == "local":
                obj.either = tuple(dict.fromkeys(x for each in (a.obj, b.obj) for x in each.either or (each,)))
            return Pointer(obj, a.element)
        if isinstance(a, Designator) and isinstance(b, Designator) and a.decl is b.decl:
            return Designator(a.decl, [])
        if isinstance(a, Record) and isinstance(b, Record):
            if a.inputs == b.inputs and a.array is b.array:
                merged = Record(a.name, a.type, {}, max(a.level, b.level), a.kind, a.inputs, a.array)
            else:
                inputs = (cond, *a.inputs, *b.inputs)
                merged = Record(a.name, a.type, {}, max(a.level, b.level), a.kind, inputs)
            for name in {*a.fields, *b.fields}:
                merged.fields[name] = self.merge_value(cond, self.field(a, name), self.field(b, name), var)
            return merged
        return self.fresh("phi", var.name, var.type, inputs=(cond,), level=UNKNOWN)

    def sources(self, pointer: Pointer) -> tuple[Term, ...]:
        """What a pointer's value follows."""
        return (*(p for p, _ in pointer.pieces), *pointer.obj.origin)

    def command_line(self, cond: Term, a: Env, b: Env) -> bool | None:
        """Of a branch that hangs on which arguments are given alone, the side that reads them: True for ``a``.

        What a default was is then one of the values that may be given: the other side adds nothing.
        """
        if self.device or not asks_arguments(cond):
            return None
        for var, value in a.items():
            other = b.get(var)
            if other is not value and isinstance(value, Term) and isinstance(other, Term):
                side = read_side(cond, value, other)
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
            if other is None and self.is_member(var):
                other = self.outside(var)
            if other is not value:
                result[var] = self.merge_value(cond, value, other, var)
        for var in () if self.device else [x for x in b if x not in a and self.is_member(x)]:
            result[var] = self.merge_value(cond, self.outside(var), b[var], var)
        return result

    def is_member(self, var: ir.Var) -> bool:
        """Whether a variable of the host has a value before a function sets it, and keeps the new one after it."""
        return var.kind == "field" and not self.device

    def outside(self, var: ir.Var) -> Value:
        """What a variable holds that was not set here."""
        raise NotImplementedError  # given by the layer of places

    def condition_since(self, guard: Guard | None, base: Guard | None) -> Term:
        """The conjunction of the guards added since ``base``."""
        result = t.TRUE
        for item in chain(guard, base):
            if item.why != "implied":  # it chooses no path
                result = t.land(item.term, result)
        return result

    def push(self, term: Term, why: GuardWhy, node: ir.Node, positive: bool = True, loop: Loop | None = None) -> None:
        if why == "assert" and positive and (self.guard is None or all(x.why == "assert" for x in chain(self.guard))):
            self.flow.asserted.append(Asserted(term, node, self.fn))
        if term is not t.TRUE or loop is not None:
            self.guard = Guard(self.guard, term, why, node, positive, self.fn, len(self.stack), loop)
            if self.answers and term.op == "eq":
                for answer, success in (term.args, term.args[::-1]):
                    asked = self.answers.get(t.bare(answer))
                    if asked and is_success(success):
                        self.started(asked, node)
            for condition in conjuncts_of(term) if self.votes else ():
                self.voted(condition, node)

    def vote(self, name: str, result: Term, own: Term) -> Term:
        """A vote by this name was taken among threads of which this is one."""
        how = {"and": "all", "all": "all", "or": "any", "any": "any", "ballot": "count", "count": "count"}
        kind = how.get(name.removeprefix("__syncthreads_").removesuffix("_sync").lstrip("_"))
        if kind is not None:
            self.votes[result] = kind, t.truth(own)
        return result

    def voted(self, condition: Term, node: ir.Node) -> None:
        """What the outcome of a vote says of this thread: all of them, it among them; none of them, it neither. A count
        that is asked for by number is taken for that of all: how many they are, only a launch may tell."""
        if condition.op in ("eq", "ne"):
            is_equal, sides = condition.op == "eq", condition.args
        else:
            is_equal = condition.op == "lnot"
            sides = (condition.args[0] if is_equal else condition), t.ZERO
        for outcome, number in (sides, sides[::-1]):
            kind, own = self.votes.get(t.bare(outcome), ("", t.TRUE))
            is_zero = number.op == "const" and not number.data
            if kind in ("any", "count") and is_equal and is_zero:
                self.follows(t.lnot(own), node)
            elif (kind == "all" and is_zero and not is_equal) or (kind == "count" and is_equal and not is_zero):
                self.follows(own, node)

    def started(self, launches: Sequence[LaunchEvent | Term], node: ir.Node) -> None:
        """The driver took these launches, as far as they are on the way to here: no dimension of theirs was 0."""
        passed = set(chain(self.guard))
        for event in launches:
            if isinstance(event, Term):
                self.follows(event, node)
            elif _is_entered(event.guard, passed):
                for extent in (*(event.grid or ()), *(event.block or ())):
                    if not any(x.data.kind == "loop" for x in t.leaves(extent)):
                        self.follows(t.truth(extent), node)

    def divided(self, divisor: Term, node: ir.Node) -> None:
        """What a host function divides by is not 0 from there on: it would have ended there."""
        if t.bounds(divisor, {})[0] <= 0:
            self.follows(t.truth(divisor), node)

    def follows(self, term: Term, node: ir.Node) -> None:
        """What holds from there on, since the program would have ended there or for what the values are."""
        if term.op != "const" and all(x.term is not term for x in chain(self.guard)):
            self.push(term, "implied", node)

    def agreed(self, ends: list[Guard | None], base: Guard | None) -> set[Term]:
        """Where paths meet again, what holds on each of them since ``base`` holds for all; returns those conditions."""
        first = [x for x in chain(ends[0], base) if x.why != "loop"]
        shared = {x.term for x in first}
        for end in ends[1:]:
            shared &= {x.term for x in chain(end, base)}
        for item in reversed(first if shared else []):
            if item.term in shared:
                self.guard = item.after(self.guard)
        return shared

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

    def clobber(self, variables: Iterable[ir.Var]) -> None:
        for var in sorted(variables, key=lambda x: x.start):  # a set has an order of its own in each run
            if var in self.env and not isinstance(var.type, Array) and var.kind != "shared":
                self.env[var] = self.unknown_value("unknown", var.name, var.type, var, level=UNKNOWN)


def is_success(value: Term) -> bool:
    """Whether a value is `cudaSuccess` or `CUDA_SUCCESS`, declared or not."""
    value = t.bare(value)
    named = value.op == "atom" and value.data.kind == "name" and value.data.name.lower().endswith("success")
    return named or (value.op == "const" and value.data == 0)


def asks_arguments(cond: Term) -> bool:
    """Whether a condition is about which arguments the program got: their number, or what a loop over them found."""
    leaves = t.leaves(cond)
    return bool(leaves) and all(x.data.kind == "argc" or _is_found(x) for x in leaves)


def _is_found(leaf: Term) -> bool:
    """Whether an atom is what a loop over the program's arguments has left."""
    return leaf.data.kind == "exit" and any(x.data.kind == "argc" for i in leaf.data.inputs for x in t.leaves(i))


def read_side(cond: Term, a: Term, b: Term) -> bool | None:
    """Which of two values that ``cond`` chooses from is an argument, where the other is a default: True for ``a``. What
    is found may be what the choice is about (``n > 0 ? n : 1``): then neither is."""
    if not {x for x in t.leaves(cond) if x.data.kind == "exit"}.isdisjoint(t.leaves(a) | t.leaves(b)):
        return None
    first, second = (any(x.data.kind in ("call", "load") or _is_found(x) for x in t.leaves(v)) for v in (a, b))
    return first if first != second else None
