"""CL401 wrong-identity: a maximum, a minimum, a product or a sum that starts from, or is filled with, another value."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from cudalint.facts import terms as t
from cudalint.facts.assigned import children
from cudalint.facts.events import chain
from cudalint.facts.ids import TID
from cudalint.facts.kernels import ids_of
from cudalint.findings import Witness
from cudalint.ir import nodes as ir
from cudalint.ir.types import Float, Int
from cudalint.lazy import NamedTuple
from cudalint.rules import launches, support
from cudalint.rules.draft import Draft

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cudalint.confirm.experiment import Bench, Plan
    from cudalint.confirm.oracle import Fault, Run
    from cudalint.facts.events import Access, Flow, Induction, Obj
    from cudalint.facts.model import Kernel
    from cudalint.facts.terms import Term
    from cudalint.findings import Level
    from cudalint.ir.nodes import Function
    from cudalint.rules.draft import FixDraft

CODES = ("CL401",)

_LOWEST = 1e4
"""A constant as far out as this is taken for the end of the values that occur."""
_NAMES = {"max": "maximum", "min": "minimum", "mul": "product", "add": "sum"}
_WRONG_SIDE = {"max": -2, "min": 2, "mul": 2, "add": 2}


class _Fill(NamedTuple):
    """A constant that takes part in an operation it is no identity of; ``cond`` is the case in which it does, None
    where it always does. What it is no identity for is made of ``opposed`` elements of a sign and others of the other,
    if there are any."""

    op: str
    constant: Term
    cond: Term | None
    fn: Function
    start: int
    end: int
    opposed: Obj | None = None


def check(kernel: Kernel) -> Iterator[Draft]:
    """One finding for each fill."""
    if not kernel.flow.complete:
        return
    told: set[tuple[str, int]] = set()
    for fill in _fills(kernel):
        place = fill.fn.file.path, fill.start
        if place in told:
            continue
        told.add(place)
        draft = _draft(kernel, fill)
        if draft is not None:
            yield draft


def _fills(kernel: Kernel) -> Iterator[_Fill]:
    yield from _accumulators(kernel)
    yield from _tiles(kernel)
    yield from _elements(kernel)


def _accumulators(kernel: Kernel) -> Iterator[_Fill]:
    """Variables that a loop gathers data in, by what they start from."""
    for loop in kernel.flow.loops:
        for var, info in loop.inductions.items():
            if info.next is None or info.init is None or info.term is None:
                continue
            found = _gathers(info.next, info.term)
            if found is None:
                continue
            op, other = found
            for constant, cond, rest in _constants(info.init):
                if cond is None and op == "add":
                    continue
                # What other lanes have, elements that are loaded, or what a loop makes of them; of `v *= 0.5f` nothing
                # is known.
                data = other if cond is None else rest
                taken_in = other.op == "atom" and other.data.kind in ("load", "call", "exit")
                wrong = taken_in and _is_wrong(kernel.flow, op, constant, data)
                opposed = _opposed(kernel.flow, op, constant, data) if taken_in and not wrong and cond is None else None
                node = _node(info, var, constant, filled=cond is not None) if wrong or opposed else None
                if node is not None:
                    yield _Fill(op, constant, cond, *node, opposed)


def _tiles(kernel: Kernel) -> Iterator[_Fill]:
    """Shared arrays that are combined element by element, by what they are filled with out of range."""
    flow = kernel.flow
    for obj in dict.fromkeys(a.obj for a in flow.accesses if a.obj.kind == "shared"):
        stores = [a for a in flow.accesses if a.obj is obj and a.mode != "r" and a.value is not None]
        ops = {op for a in stores if (op := _combines(a)) is not None}
        if len(ops) != 1:
            continue
        (op,) = ops
        for store in stores:
            if store.value is None or _combines(store) is not None:
                continue
            for constant, cond, rest in _constants(store.value):
                if cond is not None and _is_wrong(flow, op, constant, rest):
                    found = _filled(store.fn.body, constant, _end(store))
                    if found is not None:
                        yield _Fill(op, constant, cond, store.fn, found.start, found.end)


def _elements(kernel: Kernel) -> Iterator[_Fill]:
    """Shared arrays in whose elements threads gather data, each in its own, by the constant that all start from."""
    flow = kernel.flow
    for obj in dict.fromkeys(a.obj for a in flow.accesses if a.obj.kind == "shared"):
        stores = [a for a in flow.accesses if a.obj is obj and a.mode != "r" and _combines(a) is None]
        start = stores[0] if stores else None
        if start is None or start.value is None or t.bare(start.value).op != "const":
            continue
        taken = [_takes_in(flow, a) if a.scalar == start.scalar else None for a in stores[1:]]
        constant, node = t.bare(start.value), _assignment(start)
        # What else is stored may be the true start.
        if node is None or not taken or None in taken:
            continue
        for op, other in filter(None, taken):
            if op != "add" and _is_wrong(flow, op, constant, other):
                yield _Fill(op, constant, None, start.fn, node.value.start, node.value.end)
                break


def _takes_in(flow: Flow, store: Access) -> tuple[str, Term] | None:
    """The operation by which a store in a loop puts an element of another array and its own former one together, and
    that of the other array."""
    found = _operation(store.value) if store.value is not None else None
    node = _assignment(store)
    if found is None or node is None or all(g.loop is None for g in chain(store.guard)):
        return None
    again = any(
        a.obj is store.obj and a.mode == "r" and a.scalar is not None and a.scalar == store.scalar
        and node.value.start <= a.node.start < node.value.end and a.fn is store.fn
        for a in flow.accesses
    )  # fmt: skip
    op, *sides = found
    loads = [x for x in map(t.bare, sides) if x.op == "atom" and x.data.kind == "load"]
    others = [x for x in loads if x.data.data is not store.obj]
    return (op, others[0]) if again and len(loads) == 2 and len(others) == 1 else None


def _gathers(following: Term, own: Term) -> tuple[str, Term] | None:
    """The operation by which a value takes in another one on each pass, or on those that a test of places lets
    through, and that other one; a loop within may do so in turn."""
    following = t.bare(following)
    if following.op == "atom" and following.data.kind == "exit":
        inner = following.data.data
        within = inner.next is not None and inner.init is not None and t.bare(inner.init) is own
        return _gathers(inner.next, inner.term) if within and inner.term is not None else None
    found = _operation(following)
    if found is None and following.op == "select" and not _asks_data(following.args[0], own):
        taking = [x for x in following.args[1:] if t.bare(x) is not own]
        return _gathers(taking[0], own) if len(taking) == 1 else None
    if found is None:
        return None
    op, a, b = found
    if own not in (t.bare(a), t.bare(b)):
        return None
    return op, t.bare(b if t.bare(a) is own else a)


def _operation(term: Term) -> tuple[str, Term, Term] | None:
    term = t.bare(term)
    if term.op in _NAMES:
        return term.op, *term.args  # type: ignore[return-value]  # of two operands
    if (
        term.op == "select"
        and term.args[0].op in ("lt", "le")
        and {term.args[1], term.args[2]} == set(term.args[0].args)
    ):
        # `a < b ? b : a`, and the same as an `if`.
        small, large = term.args[0].args
        return ("max" if term.args[1] is large else "min"), small, large
    return None


def _combines(store: Access) -> str | None:
    """The operation by which a store puts two elements of its own array together."""
    found = _operation(store.value) if store.value is not None else None
    if found is None:
        return None
    op, *sides = found
    prefix = store.obj.name
    own = [x for x in map(t.bare, sides) if x.op == "atom" and x.data.kind == "load" and x.data.name.startswith(prefix)]
    return op if len(own) == 2 else None


def _constants(term: Term) -> Iterator[tuple[Term, Term | None, Term]]:
    """The constants that a value may be, the condition of each (a test of a thread's place), and what it is else."""
    term = t.bare(term)
    if term.op == "const":
        yield term, None, term
    elif term.op == "select" and _is_place(term.args[0]):
        cond, then, other = term.args
        for side, when, rest in ((then, cond, other), (other, t.lnot(cond), then)):
            constant = t.bare(_where(side, when))
            if constant.op == "const":
                yield constant, when, t.bare(_where(rest, t.lnot(when)))


def _where(term: Term, cond: Term, memo: dict[Term, Term] | None = None) -> Term:
    """A value where a condition holds: choices by that very condition made."""
    memo = {} if memo is None else memo
    if term not in memo:
        if term.op == "select" and cond in (term.args[0], t.lnot(term.args[0])):
            memo[term] = _where(term.args[1 if term.args[0] is cond else 2], cond, memo)
        else:
            args = [_where(x, cond, memo) for x in term.args]
            same = all(x is y for x, y in zip(args, term.args, strict=True))
            memo[term] = term if same else t.rebuild(term, args)
    return memo[term]


def _is_place(cond: Term) -> bool:
    kinds = {x.data.kind for x in t.leaves(support.over_passes(cond))}
    return "tid" in kinds and "load" not in kinds


def _is_element(leaf: Term) -> bool:
    """Whether each thread, or each pass of a loop, loads a value of its own."""
    places = (support.over_passes(x) for x in leaf.data.inputs)
    return not ids_of([leaf]).isdisjoint(TID.values()) or any(
        x.data.kind == "count" for place in places for x in t.leaves(place)
    )


def _asks_data(cond: Term, own: Term) -> bool:
    """Whether a test looks at what is taken in or at what is gathered."""
    return any(x is own or x.data.kind in ("load", "call") for x in t.leaves(cond))


def _is_wrong(flow: Flow, op: str, constant: Term, data: Term) -> bool:
    """Whether a constant changes what the operation makes of ``data``: elements of memory of either sign."""
    if not _may_be_wrong(op, constant):
        return False
    made = _made(flow, op).of(data)
    if made is None:
        return False
    return {"mul": made != 0, "add": True, "min": made > 0, "max": made < 0}[op]


def _may_be_wrong(op: str, constant: Term) -> bool:
    value = constant.data
    return isinstance(value, (int, float)) and (0 <= value < _LOWEST if op == "max" else value == (op == "add"))


def _opposed(flow: Flow, op: str, constant: Term, data: Term) -> Obj | None:
    """The array by whose elements ``data`` comes to the wrong side of a constant where they are of the one sign and all
    others of the other: one factor of dot products."""
    if op not in ("max", "min") or not _may_be_wrong(op, constant):
        return None
    both = _made(flow, op)
    if both.of(data) is None:
        return None
    for obj in sorted(both.arrays, key=lambda x: x.name):
        made = _made(flow, op, obj).of(data)
        if made is not None and (made < 0 if op == "max" else made > 0):
            return obj
    return None


@lru_cache(maxsize=8)
def _made(flow: Flow, op: str, opposed: Obj | None = None) -> _Made:
    """One for all accumulators of the kernel that is being looked at."""
    return _Made(flow, op, opposed)


class _Made:
    """What comes of data where all elements of memory that it is made of lie on the wrong side for an operation, and
    parameters and what is loaded for all threads are 1. The elements of an ``opposed`` array lie on the other side."""

    def __init__(self, flow: Flow, op: str, opposed: Obj | None = None) -> None:
        self.flow, self.inputs, self.opposed = flow, _WRONG_SIDE[op], opposed
        self.arrays: dict[Obj, None] = {}
        """What such elements have been of."""
        self.worst: Callable[[list[float]], float] = min if op == "max" else max
        self.open: set[Term] = set()
        self.elements = False
        self.known: dict[object, tuple[float | None, bool]] = {}
        self.stores: dict[Obj, list[Term]] = {}
        self.former: dict[Term, Obj] = {}
        """What elements have held, as `+=` takes it, and what they are elements of."""
        self.started: dict[Obj, list[Term]] = {}
        """What those begin with: whatever else is stored but by `+=`."""
        for access in flow.accesses:
            if access.value is not None and _combines(access) is None:
                self.stores.setdefault(access.obj, []).append(access.value)
                if access.mode != "rw":
                    self.started.setdefault(access.obj, []).append(access.value)
                elif access.value.args:
                    self.former[t.bare(access.value.args[0])] = access.obj

    def of(self, data: Term) -> float | None:
        """The value; None where it is made of something else, or of elements that are never negative."""
        self.elements = False
        made = self._number(data)
        return made if self.elements else None

    def _number(self, term: Term) -> float | None:
        """The value of a term; ``elements`` is set where elements that may be negative take part."""
        key = (term, frozenset(self.open)) if self.open else term
        if key not in self.known:
            before, self.elements = self.elements, False
            self.known[key] = self._computed(term), self.elements
            self.elements = before
        found, elements = self.known[key]
        self.elements = self.elements or elements
        return found

    def _computed(self, term: Term) -> float | None:
        if t.bare(term).op == "select":
            arms = t.bare(term).args[1:]
            return self._worst([x for x in arms if x.op != "const"] or arms)
        values = {x: self._leaf(x) for x in t.leaves(term)}
        if None in values.values():
            return None
        try:
            found = t.evaluate(term, values)
        except t.Undefined:
            return None
        return found if isinstance(found, (int, float)) else None

    def _worst(self, terms: Sequence[Term]) -> float | None:
        made = [x for x in map(self._number, terms) if x is not None]
        return self.worst(made) if len(made) == len(terms) else None

    def _leaf(self, leaf: Term) -> float | None:
        info = leaf.data
        if info.kind == "exit":
            return self._gathered(info.data)
        if info.kind not in ("load", "param"):
            return None
        known = self._stored(leaf) if info.kind == "load" else ()
        stored = [x for x in known if x.op == "const" or x not in self.open]
        if stored:
            self.open.update(stored)
            made = self._worst(stored)
            self.open.difference_update(stored)
            return made
        signed = info.kind == "load" and (isinstance(leaf.type, Float) or info.lo < 0)
        if not signed or not _is_element(leaf):
            return 1
        self.elements = True
        array = self._array(leaf)
        if array is not None:
            self.arrays[array] = None
        return self.inputs if array is None or array is not self.opposed else -self.inputs

    def _array(self, leaf: Term) -> Obj | None:
        """What a value was loaded from."""
        found: Obj | None = self.former.get(leaf, leaf.data.data)
        return found

    def _stored(self, leaf: Term) -> list[Term]:
        """What the function itself has stored in an array by the time that an element of it is loaded."""
        array = self._array(leaf)
        stores = self.started if leaf in self.former else self.stores
        return [x for x in stores.get(array, ()) if x.key <= leaf.key] if array is not None else []

    def _gathered(self, info: Induction) -> float | None:
        """What a variable holds after a loop that gathers data in it, in which other lanes have what this one has."""
        found = _gathers(info.next, info.term) if info.next is not None and info.term is not None else None
        start = self._number(info.init) if info.init is not None else None
        if found is None or start is None:
            return None
        op, other = found
        if other.op == "atom" and other.data.kind == "call":
            return start
        taken = self._number(other)
        return t.apply(op, other.type, (start, taken)) if taken is not None else None


# --- places -----------------------------------------------------------------------------------------


def _node(
    info: Induction, var: ir.Var, constant: Term, *, filled: bool
) -> tuple[Function, int, int] | None:  # fmt: skip
    """Where the constant stands: the variable's initialiser or last assignment above the loop, or a `? :` in the
    function where the data is taken in."""
    fn = info.loop.fn
    if filled:
        uses = [(fn, info.loop.node.start), *((site.fn, site.call.end) for site in reversed(info.loop.stack))]
        for each, use in uses:
            found = _filled(each.body, constant, use)
            if found is not None:
                return each, found.start, found.end
        return None
    best: ir.Expr | None = None
    for item in _all(fn.body):
        given = None
        if isinstance(item, ir.VarDecl) and item.var is var:
            given = item.init
        elif isinstance(item, ir.Assign) and not item.op and isinstance(item.target, ir.Ref) and item.target.var is var:
            given = item.value
        if isinstance(given, ir.Ref) and given.var.kind == "param":
            given = None  # the caller's choice
        if given is not None and given.start < info.loop.node.start and (best is None or given.start > best.start):
            best = given
    return (fn, best.start, best.end) if best is not None else None


def _end(store: Access) -> int:
    """Where the assignment ends that a store is the target of."""
    return (_assignment(store) or store.node).end


def _assignment(store: Access) -> ir.Assign | None:
    return next((x for x in _all(store.fn.body) if isinstance(x, ir.Assign) and x.target is store.node), None)


def _filled(body: Any, constant: Term, use: int) -> ir.Expr | None:
    """Where a value that is used at ``use`` was given this constant or something else: the arm of a `? :`, else what a
    variable is initialised with that a branch sets anew; the last of them."""
    chosen: list[ir.Expr] = []
    kept: dict[ir.Var, ir.Expr] = {}
    renewed: set[ir.Var] = set()
    for item in _all(body):
        if isinstance(item, ir.Cond) and type(item.type) is type(constant.type):
            chosen += [arm for arm in (item.then, item.other) if _is_constant(arm, constant)]
        elif isinstance(item, ir.VarDecl) and item.init is not None and item.var.type is constant.type:
            if _is_constant(item.init, constant):
                kept[item.var] = item.init
        elif isinstance(item, ir.If):
            inner = (x for arm in (item.then, item.other) for x in _all(arm) if isinstance(x, ir.Assign))
            renewed.update(x.target.var for x in inner if isinstance(x.target, ir.Ref))
    for found in (chosen, [x for var, x in kept.items() if var in renewed]):
        above = [x for x in found if x.start < use]
        if above:
            return max(above, key=lambda x: x.start)
    return None


def _is_constant(node: Any, constant: Term) -> bool:
    while isinstance(node, ir.Cast):
        node = node.operand
    return isinstance(node, ir.Const) and node.value == constant.data


def _all(body: Any) -> Iterator[Any]:
    stack: list[Any] = [body]
    while stack:
        item = stack.pop()
        yield item
        stack.extend(children(item))


# --- words ------------------------------------------------------------------------------------------


def _draft(kernel: Kernel, fill: _Fill) -> Draft | None:
    inputs = _WRONG_SIDE[fill.op]
    type_ = fill.constant.type
    made = t.apply(fill.op, type_, (fill.constant.data, inputs))
    if made == inputs or made is None:
        return None
    spelled = support.clip(fill.fn.file, fill.start, fill.end)
    name = _NAMES[fill.op]
    sizes: dict[str, int] = {}
    grid, block, thread = None, None, None
    at, exact = "", False
    if fill.cond is not None:
        split = support.split(kernel, [fill.cond])
        if split is None:
            return None
        sizes, grid, block, thread = split.sizes, split.grid, split.block, (split.first_block, split.first)
        exact = split.visible is False
        at = f"at {launches.told(split.sizes)}, " if split.sizes else ""
    how = "fills the places out of range of" if fill.cond is not None else "is where"
    tail = "" if fill.cond is not None else " starts"
    signed = fill.op == "max" and isinstance(type_, Int)
    values: dict[str, int | str] = {"every input": inputs, "result": str(made)}
    if fill.opposed is not None:
        values = {"inputs": inputs, f"inputs in {fill.opposed.name}": -inputs, "result": str(made)}
    text = (
        f"`{spelled}` {how} a {name}{tail} and is not its identity: {at}of inputs that are "
        f"{_inputs(fill)} it makes {made:g}{support.EXACT if exact else ''}"
    )
    level: Level | None = "warning" if signed or exact else None
    return Draft(
        "CL401", fill.fn, fill.fn.file, fill.start, fill.end, text, _HELP[fill.op],
        Witness(sizes, None if exact else grid, block, thread, values),
        (), level, fix=_repair(fill),
    )  # fmt: skip


def _inputs(fill: _Fill) -> str:
    """What the inputs are that show the fault."""
    number = _WRONG_SIDE[fill.op]
    return f"{number}, and {-number} in `{fill.opposed.name}`," if fill.opposed is not None else f"all {number}"


def _repair(fill: _Fill) -> FixDraft | None:
    from cudalint.rules import identities

    type_ = fill.constant.type
    return identities.identity(fill.op, fill.fn, fill.start, fill.end, type_, filled=fill.cond is not None)


_HELP = {
    "max": "start from the lowest value, `-INFINITY` or the type's `lowest()`, or from the first element",
    "min": "start from the highest value, `INFINITY` or the type's `max()`, or from the first element",
    "mul": "start a product from 1",
    "add": "fill a sum with 0",
}


def experiment_cl401(bench: Bench) -> Plan:
    """Results that lie on the other side of all inputs. Where no wrong identity is seen in the source, memory that
    nothing has written may be what they come from."""
    from cudalint.confirm.experiment import Plan, oracle
    from cudalint.sim.values import Unsupported

    chosen = bench if bench.launch is not None else bench.alone()
    found = next(_fills(chosen.kernel), None)
    ops = set(_used(chosen.kernel))
    op = found.op if found is not None else next(iter(sorted(ops)), "max")
    chosen.harness.constant = _WRONG_SIDE[op]
    if found is not None and found.opposed is not None:
        chosen.harness.opposed = frozenset([found.opposed.name])
    stores = [a for a in chosen.kernel.flow.accesses if a.mode != "r"]
    names = {
        a.obj.name for a in stores
        if a.obj.kind == "global" and _holds_data(stores, a, set())
        # A sum may lie anywhere: only of what is chosen among the inputs one can tell without a finding.
        and (found is not None or not _is_computed(a))
    }  # fmt: skip
    of = _inputs(found).rstrip(",") if found is not None else f"all {_WRONG_SIDE[op]}"
    beyond = oracle.beyond(op, _WRONG_SIDE[op], names, of)

    def judge(run: Run) -> Fault | None:
        if found is not None and not names:
            raise Unsupported("results none of which is made of the data: a place in it tells nothing")
        fault = beyond(run)
        if fault is not None and found is None and oracle.unset(run) is not None:
            raise Unsupported("what is read before anything has written it may be what the results come from")
        return fault

    return Plan(chosen.trials(), judge, anywhere=True, bench=chosen)


def _holds_data(stores: list[Access], store: Access, seen: set[object]) -> bool:
    """Whether what is stored may be one of the inputs, or made of them, and not the place where one was found."""
    if store.value is None:
        return True
    stack = [store.value]
    while stack:
        item = stack.pop()
        if item in seen:
            continue
        seen.add(item)
        stack.extend(item.args[1:] if item.op == "select" else item.args)
        if item.op != "atom":
            continue
        info = item.data
        if info.kind in ("loop", "exit") and info.data is not None:
            stack.extend(x for x in (info.data.init, info.data.next) if x is not None)
        elif info.kind == "load" and info.data is not None and info.data.kind == "shared":
            if any(_holds_data(stores, a, seen) for a in stores if a.obj is info.data):
                return True
        elif info.kind not in ("tid", "bid", "bdim", "gdim", "param", "name", "count", "size"):
            return True
    return False


def _is_computed(store: Access) -> bool:
    """Whether what is stored is calculated from data, here or in a loop on the way, and not one of the inputs."""
    stack = [store.value] if store.value is not None else []
    seen: set[Term] = set()
    while stack:
        item = stack.pop()
        if item in seen:
            continue
        seen.add(item)
        if item.op == "atom":
            if item.data.kind in ("loop", "exit") and item.data.data is not None:
                stack.extend(x for x in (item.data.data.init, item.data.data.next) if x is not None)
        elif item.op in ("select", "max", "min", "cast"):
            stack.extend(item.args[1:] if item.op == "select" else item.args)
        elif any(x.data.kind in ("load", "loop", "exit") for x in t.leaves(item)):
            return True
    return False


def _used(kernel: Kernel) -> Iterator[str]:
    for loop in kernel.flow.loops:
        for info in loop.inductions.values():
            if info.next is not None and info.term is not None:
                found = _gathers(info.next, info.term)
                if found is not None and found[0] != "add":
                    yield found[0]
