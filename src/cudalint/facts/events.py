"""What the executor records about a function: values, guards and events in program order."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from operator import attrgetter
from typing import TYPE_CHECKING, Literal

from cudalint.facts.terms import INF, Atom, Poly, Term, atom
from cudalint.ir.types import I64
from cudalint.lazy import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cudalint.ir.nodes import Call, Expr, Function, FunctionDecl, Launch, Node, Return, Var
    from cudalint.ir.types import Type

ObjectKind = Literal["global", "shared", "local", "constant", "var", "unknown"]


class Obj:
    """A piece of memory: what a pointer parameter points to, a ``__shared__`` or local array, a variable.

    ``element`` is the declared element type; ``extent`` the number of elements where it is known.
    ``origin`` is the term or value that the pointer came from (for uniformity of unknown pointers).
    ``stores`` collects the terms that a local array's contents follow. ``bytes`` is the size that was
    allocated, where the host function walked allocates it. ``either`` holds the local arrays one of which
    this is, where a pointer is to one or another.
    """

    __slots__ = ("bytes", "data", "either", "element", "epoch", "extent", "kind", "name", "origin", "stores", "var")

    def __init__(
        self, kind: ObjectKind, name: str, element: Type | None, *, var: Var | None = None,
        extent: int | None = None, origin: tuple[Term, ...] = (), data: Place | None = None,
    ) -> None:  # fmt: skip
        self.kind, self.name, self.element, self.var, self.extent = kind, name, element, var, extent
        self.origin, self.data = origin, data
        self.epoch = 0
        self.stores: list[Term] = []
        self.either: tuple[Obj, ...] = ()
        self.bytes: Term | None = None

    def __repr__(self) -> str:
        return f"Obj({self.kind} {self.name})"


class Pointer:
    """A pointer value: an object and the offset in ``pieces``, each (term, bytes per unit or None).

    ``element`` is what it points to now. ``dims`` holds (index, extent) of the dimensions of a
    multi-dimensional array passed so far, outermost first.
    """

    __slots__ = ("dims", "element", "obj", "pieces")

    def __init__(
        self, obj: Obj, element: Type | None, pieces: tuple[tuple[Term, int | None], ...] = (),
        dims: tuple[tuple[Term, int | None], ...] = (),
    ) -> None:  # fmt: skip
        self.obj, self.element, self.pieces, self.dims = obj, element, pieces, dims


class Record:
    """A value of class type: its fields' values; those not there yet are made on demand, as atoms of ``kind``.

    What follows other values has these as ``inputs``; an element of an array was loaded from ``array``.
    """

    __slots__ = ("array", "fields", "inputs", "kind", "level", "name", "type")

    def __init__(
        self, name: str, type_: Type, fields: dict[str, Value], level: int = 0, kind: str = "unknown",
        inputs: tuple[Term, ...] = (), array: Obj | None = None,
    ) -> None:  # fmt: skip
        self.name, self.type, self.fields, self.level, self.kind = name, type_, fields, level, kind
        self.inputs, self.array = inputs, array

    def having(self, fields: dict[str, Value]) -> Record:
        """The same value with other fields."""
        return Record(self.name, self.type, fields, self.level, self.kind, self.inputs, self.array)


class Closure:
    """A lambda as a value, with its copies of variables."""

    __slots__ = ("copies", "function")

    def __init__(self, function: Function, copies: dict[Var, Value]) -> None:
        self.function, self.copies = function, copies


class Designator:
    """A function as a value: what ``&k<4>`` and a pointer to it hold."""

    __slots__ = ("decl", "targs")

    def __init__(self, decl: FunctionDecl, targs: list[Type | Expr]) -> None:
        self.decl, self.targs = decl, targs


Value = Term | Pointer | Record | Closure | Designator
#: A variable with a path of field names, or memory: (object, pieces, element, dims).
Place = tuple["Var", tuple[str, ...]]


class CallSite:
    """One inlined call: the call expression, the function it stands in, what holds there, and the values passed."""

    __slots__ = ("call", "callee", "fn", "guard", "values")

    def __init__(
        self, call: Expr, fn: Function, callee: Function, guard: Guard | None, values: dict[str, Value]
    ) -> None:  # fmt: skip
        self.call, self.fn, self.callee, self.guard, self.values = call, fn, callee, guard, values


GuardWhy = Literal["if", "loop", "return", "break", "continue", "short-circuit", "switch", "assert", "implied"]


class Guard:
    """One condition that holds here; ``parent`` holds those before it.

    ``term`` is true. ``why`` says where it comes from: the branch we are in (``if``), the loop whose
    body this is, an early ``return``, ``break`` or ``continue`` that was not taken, a ``division`` by a divisor that
    is not 0. ``node`` is the statement and ``positive`` the side of it, so that two sides of one branch are known as
    such.
    ``fn`` is the function it stands in and ``depth`` the number of inlined calls around it.
    """

    __slots__ = ("depth", "fn", "loop", "node", "parent", "positive", "term", "why")

    def __init__(
        self, parent: Guard | None, term: Term, why: GuardWhy, node: Node, positive: bool, fn: Function, depth: int,
        loop: Loop | None = None,
    ) -> None:  # fmt: skip
        self.parent, self.term, self.why, self.node, self.positive, self.loop = parent, term, why, node, positive, loop
        self.fn, self.depth = fn, depth

    def after(self, parent: Guard | None) -> Guard:
        """The same condition with other conditions before it."""
        return Guard(parent, self.term, self.why, self.node, self.positive, self.fn, self.depth, self.loop)


def chain(guard: Guard | None, until: Guard | None = None) -> Iterator[Guard]:
    """The guards from the innermost out, up to (not including) ``until``."""
    while guard is not None and guard is not until:
        yield guard
        guard = guard.parent


def conjuncts(guard: Guard | None) -> Iterator[Term]:
    """Every single condition that holds, ``&&`` taken apart."""
    for item in chain(guard):
        yield from conjuncts_of(item.term)


def conditions(guards: Iterable[Guard | None]) -> Iterator[Term]:
    """Every single condition that holds at some of the guards, those of a guard that several come after once."""
    seen: set[Guard] = set()
    for guard in guards:
        for item in chain(guard):
            if item in seen:
                break
            seen.add(item)
            yield from conjuncts_of(item.term)


def conjuncts_of(term: Term) -> Iterator[Term]:
    """The conditions that ``&&`` joins in ``term``."""
    stack = [term]
    while stack:
        item = stack.pop()
        if item.op == "land":
            stack.extend(item.args)
        else:
            yield item


def disjuncts_of(term: Term) -> Iterator[Term]:
    """The conditions that ``||`` joins in ``term``."""
    stack = [term]
    while stack:
        item = stack.pop()
        if item.op == "lor":
            stack.extend(item.args)
        else:
            yield item


class Induction:
    """A variable that a loop changes. Its value on pass k is ``init + k * step`` when ``step`` is not None.

    ``next`` is its value at the end of a pass in terms of the value at its start (``term``).
    ``limit`` is (B, c): inside the body the variable is at most B + c (at least, for a falling one).
    """

    __slots__ = ("init", "limit", "loop", "next", "step", "term", "var")

    def __init__(self, loop: Loop, var: Var, init: Term | None) -> None:
        self.loop, self.var, self.init = loop, var, init
        self.next: Term | None = None
        self.step: Term | None = None
        self.limit: tuple[Term, int] | None = None
        self.term: Term | None = None


class Loop:
    """A loop as executed. ``cond`` is its test (None: endless), ``control`` all that decides when a thread
    leaves it: the test, and the conditions of its ``break``\\ s (``leaves`` says where those stand).
    ``first``/``last`` bound the sequence
    numbers of the events inside. ``trips`` is what :func:`cudalint.facts.kernels.trips` has found, kept here."""

    __slots__ = (
        "cond", "control", "counter", "first", "fn", "guard", "inductions", "last", "leaves", "node", "stack", "trips",
    )  # fmt: skip

    def __init__(self, node: Node, fn: Function, guard: Guard | None, stack: tuple[CallSite, ...], first: int) -> None:
        self.node, self.fn, self.guard, self.stack, self.first, self.last = node, fn, guard, stack, first, first
        self.cond: Term | None = None
        self.control: list[Term] = []
        self.leaves: dict[Term, Guard] = {}
        self.inductions: dict[Var, Induction] = {}
        self.counter = atom(Atom("count", "pass", 0, INF, data=self), I64)
        self.trips: tuple[Poly, Poly] | Literal[False] | None = False


class Event:
    """``seq`` orders events; ``fn`` is the function whose text the node stands in; ``stack`` the inlined calls."""

    __slots__ = ("fn", "guard", "node", "seq", "stack")

    def __init__(self, seq: int, node: Node, fn: Function, guard: Guard | None, stack: tuple[CallSite, ...]) -> None:
        self.seq, self.node, self.fn, self.guard, self.stack = seq, node, fn, guard, stack


class Access(Event):
    """A load or store. ``mode``: r, w, rw (compound assignment), atomic.

    ``index`` is the element index in units of the accessed type, None where units differ or are not
    known; ``scalar`` the same as a polynomial in units of the object's declared element, and ``width``
    how many of those the access touches (4 for a ``float4`` over ``float``). ``dims`` are the
    (index, extent) pairs of a declared multi-dimensional array. ``value`` is what a store stores. ``part`` is the way
    to the member of a class that is touched, () where the element is touched as a whole.
    """

    __slots__ = ("dims", "element", "index", "mode", "obj", "part", "scalar", "value", "width")
    node: Expr
    obj: Obj
    mode: str
    index: Term | None
    scalar: Poly | None
    width: int
    dims: tuple[tuple[Term, int | None], ...]
    element: Type | None
    value: Term | None
    part: tuple[str, ...]


class Barrier(Event):
    """``scope``: block, grid, cluster or warp (``__syncwarp``, a tile's sync). ``name`` as called.

    ``collective`` marks a block-wide exchange of values (``cub::BlockReduce``), which reads every thread's ``value``
    and is declared for so many ``threads`` along x, where its type tells."""

    __slots__ = ("collective", "name", "scope", "threads", "value")
    scope: str
    name: str
    collective: bool
    value: Term | None
    threads: int | None


class Collective(Event):
    """A warp collective: ``name``, its ``mask`` and ``value`` terms where it has them.

    ``lanes`` is the size of the groups that exchange (32 for a warp, a tile's), None where it is not known;
    ``reads`` says whose value a lane gets: ``down``, ``up``, ``xor`` or ``index`` of ``operand`` within segments of
    ``width`` lanes, ``all`` in a reduction or scan, "" in a vote, a match or a mere sync."""

    __slots__ = ("lanes", "mask", "name", "operand", "reads", "value", "width")
    name: str
    mask: Term | None
    value: Term | None
    lanes: int | None
    reads: str
    operand: Term | None
    width: Term | None


class ReturnEvent(Event):
    """A ``return`` (or ``exit`` of a thread). ``stack`` tells whether it ends the thread or a call."""

    __slots__ = ()
    node: Return


class Conversion(Event):
    """A value converted between integer widths: ``term`` before, ``to`` the new type; ``node`` the expression."""

    __slots__ = ("term", "to")
    node: Expr
    term: Term
    to: Type


class Operation(Event):
    """A product (``*``, ``<<``, ``__mul24``) or quotient (``/``, ``>>``): where the ``term`` was formed."""

    __slots__ = ("term",)
    node: Expr
    term: Term


class Comparison(Event):
    """``left op right`` with both sides converted to their common type. ``raw`` are the two before that."""

    __slots__ = ("left", "op", "raw", "right", "term")
    node: Expr
    op: str
    left: Term
    right: Term
    raw: tuple[Term, Term]
    term: Term


class Definition(Event):
    """A local that is given a value, where it is declared or later: ``var`` and the ``term`` it holds."""

    __slots__ = ("term", "var")
    var: Var
    term: Term


class LaunchEvent(Event):
    """A launch as executed: ``grid`` and ``block`` as three terms each, the kernel's arguments as values; None where
    not visible.
    """

    __slots__ = ("args", "block", "grid", "kernel", "shared", "targs")
    node: Launch
    grid: tuple[Term, Term, Term] | None
    block: tuple[Term, Term, Term] | None
    shared: Term | None
    args: list[Value | None] | None
    kernel: Designator | None
    """What a launch through a variable launches, where its value is known."""
    targs: dict[int, Term]
    """The values of non-type template arguments by the id of their expression."""


class CallEvent(Event):
    """A call that was not inlined: CUDA's, the standard library's, an unseen one."""

    __slots__ = ("args", "result")
    node: Call
    args: list[Value]
    result: Value | None


class Asserted(NamedTuple):
    """An assertion: its condition as a term, the call and the function in whose text it stands."""

    term: Term
    node: Node
    fn: Function


class Ending(NamedTuple):
    """One end of a host function: what holds there, and what the members of its class that it has set hold."""

    guard: Guard | None
    members: dict[str, Term]


_seq = attrgetter("seq")


class Flow:
    """Everything the executor found in one function (and in what it inlined)."""

    __slots__ = (
        "accesses", "answers", "asserted", "barriers", "bodies", "callees", "calls", "collectives", "comparisons",
        "complete", "constructors", "conversions", "definitions", "endings", "exhausted", "extents", "function",
        "handed", "kept", "launches", "loops", "members", "objects", "opaques", "operations", "params", "returns",
        "roundings", "steps", "template", "told", "untyped",
    )  # fmt: skip

    def __init__(self, function: Function) -> None:
        self.function = function
        self.params: dict[Var, Value] = {}
        self.template: dict[str, Term] = {}
        """The open template parameters by name."""
        self.members: dict[str, Term] = {}
        """The members of its class that a host function reads, as they were before it, by name."""
        self.endings: list[Ending] = []
        """How a host function ends where it does not fail."""
        self.constructors: list[FunctionDecl] = []
        """The constructors of its class that a file defines which it does not include."""
        self.kept: list[Term] | None = None
        """What all that set its class's members let them be, once that was asked for."""
        self.objects: dict[Var, Obj] = {}
        self.extents: list[Term] = []
        """The extents of arrays that are no known numbers."""
        self.accesses: list[Access] = []
        self.handed: list[Access] = []
        """What device functions that nobody sees read from a pointer on that they are given."""
        self.asserted: list[Asserted] = []
        """What assertions say that every thread meets."""
        self.barriers: list[Barrier] = []
        self.collectives: list[Collective] = []
        self.returns: list[ReturnEvent] = []
        self.conversions: list[Conversion] = []
        self.roundings: list[Conversion] = []
        """Conversions of a floating value to an integer."""
        self.operations: list[Operation] = []
        self.comparisons: list[Comparison] = []
        self.definitions: list[Definition] = []
        self.launches: list[LaunchEvent] = []
        self.calls: list[CallEvent] = []
        self.loops: list[Loop] = []
        self.opaques: list[Event] = []
        self.callees: set[FunctionDecl] = set()
        self.bodies: dict[Function, None] = {function: None}
        """The function and those that were walked in place of their calls."""
        self.untyped: list[Expr] = []
        """Expressions without a type where an integer counts: compared with one, converted to one, launched with."""
        self.steps = 0
        """The statements that were walked."""
        self.told: set[object] = set()
        """What a rule has said of the launches of a host function."""
        self.answers: dict[object, object] = {}
        """What was worked out for one of them and goes for others too."""
        self.complete = True
        """False when the walk ended early or passed over something: rules that need all of the function are silent."""
        self.exhausted = False
        """Whether it ended early since there was too much to walk."""

    def within(self, loop: Loop) -> list[Access]:
        """The accesses in a loop. They stand in the order of their sequence numbers."""
        first = bisect_left(self.accesses, loop.first, key=_seq)
        return self.accesses[first : bisect_right(self.accesses, loop.last, lo=first, key=_seq)]

    def unlink(self) -> None:
        """Empties the flow and takes its cycles apart, so that it goes at once and not when a collection finds it."""
        for loop in self.loops:
            for info in loop.inductions.values():
                info.term = info.next = info.limit = None
            loop.inductions.clear()
            loop.control.clear()
            loop.cond = loop.counter.data.data = None
        for obj in self.objects.values():
            obj.stores.clear()
        for name in self.__slots__:
            value = getattr(self, name)
            if isinstance(value, (list, dict, set)):
                value.clear()
