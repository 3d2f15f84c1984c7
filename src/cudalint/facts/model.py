"""What rules are asked about: kernels with their visible launches, launches, host functions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from cudalint.facts import flow as flows
from cudalint.facts import terms as t
from cudalint.facts.events import Closure, Pointer, Record, chain, conjuncts, conjuncts_of, disjuncts_of
from cudalint.facts.ids import BDIM, BID, GDIM, TID
from cudalint.facts.kernels import Layout
from cudalint.facts.passed import constructed, stated
from cudalint.facts.reach import Reach
from cudalint.facts.uniformity import Uniformity, expand
from cudalint.frontend import literals
from cudalint.frontend.fold import fold_var
from cudalint.frontend.lower import global_variable
from cudalint.ir.nodes import Call, Const, Var
from cudalint.ir.types import I64, U64, Int

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cudalint.config import Config
    from cudalint.facts.events import Flow, Guard, LaunchEvent, Obj, Value
    from cudalint.facts.passed import Caller
    from cudalint.facts.terms import Interval, Term
    from cudalint.ir.nodes import Function, FunctionDecl
    from cudalint.ir.types import Type

Bindings = tuple[tuple[str, "Type | int"], ...]
THREADS_MAX, GRID_X_MAX, GRID_YZ_MAX = 1024, (1 << 31) - 1, 65535
SHARED_MAX = 227 * 1024
"""Bytes of shared memory that a block can have with an opt-in on any device up to compute capability 12.x."""


_LANES = frozenset({2, 4, 8, *(1 << k for k in range(5, 11))})
"""Elements of a vector, threads of a block."""
_LAUNCH_ATOMS = frozenset({"tid", "bid", "bdim", "gdim"})


class Kernel:
    """A kernel with one binding of its template parameters and the launches of that binding one can see.

    A ``__device__`` function that nothing in its file calls is judged as one too (``is_kernel`` is
    false): barriers and guards inside it can be wrong on their own.

    ``flow`` is what it does (walked on first use); ``launches`` is empty where none is visible.
    """

    __slots__ = ("_flow", "_layout", "_uniformity", "answers", "bindings", "config", "decl", "launches", "pointed")

    def __init__(self, decl: FunctionDecl, bindings: Bindings, config: Config) -> None:
        self.decl, self.bindings, self.config = decl, bindings, config
        self.launches: list[Launch] = []
        self.pointed = False
        """Whether a host function has a pointer to it and launches what a pointer leads to: its sizes are seen there,
        but not which of them are this kernel's."""
        self._flow: Flow | None = None
        self._uniformity: dict[str, Uniformity] = {}
        self._layout: Layout | None = None
        self.answers: dict[object, object] = {}
        """What rules found out at some cost and may ask again."""

    @property
    def name(self) -> str:
        return self.decl.qualname

    @property
    def is_kernel(self) -> bool:
        return self.decl.kind == "kernel"

    @property
    def function(self) -> Function:
        return self.flow.function

    @property
    def flow(self) -> Flow:
        if self._flow is None:
            self._flow = flows.walk(self.decl, dict(self.bindings))
            self._tie_blocks(self._flow)
            self._fill_arrays(self._flow)
        return self._flow

    def _tie_blocks(self, flow: Flow) -> None:
        """An open template parameter that stands for the block in ``blockIdx.x * THREADS + threadIdx.x`` has the
        block's size, where the source gives it none."""
        opened = {x for x in flow.template.values() if isinstance(x.data.data, Var) and not x.data.data.usual}
        if not opened:
            return
        for access in flow.accesses:
            index = expand(access.scalar or {})
            own = index.get((TID["x"],))
            for monomial, factor in index.items():
                rest = [x for x in monomial if x is not BID["x"]]
                if own == factor and len(monomial) == 2 and len(rest) == 1 and rest[0] in opened:
                    rest[0].data.data.usual = (self.known_block("x") or self.config.block_size,)

    def _fill_arrays(self, flow: Flow) -> None:
        """An open template parameter with ``[RANKS - 1]`` as an extent is the least that leaves an element, where the
        source gives it no value."""
        opened = [x for x in flow.template.values() if isinstance(x.data.data, Var) and not x.data.data.usual]
        for leaf in opened if flow.extents else ():
            own = [x for x in dict.fromkeys(flow.extents) if set(t.atoms_of(t.poly(x))) == {leaf}]
            least = next((n for n in range(1, 33) if all(t.evaluate(x, {leaf: n}) > 0 for x in own)), 1)
            if least > 1:
                leaf.data.data.usual = (least,)

    @property
    def layout(self) -> Layout:
        """Which coordinates the kernel tests against which sizes."""
        if self._layout is None:
            self._layout = Layout(self.flow)
        return self._layout

    def uniformity(self, scope: str = "block") -> Uniformity:
        """Uniformity in a block (or ``grid``); warps lie along x unless a visible launch says otherwise."""
        found = self._uniformity.get(scope)
        if found is None:
            along_x = all(launch.warps_along_x for launch in self.launches)
            found = self._uniformity[scope] = Uniformity(scope, warps_along_x=along_x, block_x=self.largest_block_x())
        return found

    def largest_block_x(self) -> int | None:
        """The largest x extent of a block: of the visible launches, else by ``__launch_bounds__``."""
        sizes = [launch.known_block("x") for launch in self.launches]
        known = [s for s in sizes if s is not None]
        if sizes and len(known) == len(sizes):
            return max(known)
        bounds = self.function.launch_bounds
        return bounds.value if isinstance(bounds, Const) and isinstance(bounds.value, int) else None

    @property
    def params(self) -> list[Term]:
        """The kernel's scalar parameters as atoms, in order."""
        return [v for v in self.flow.params.values() if isinstance(v, t.Term)]

    def known_block(self, axis: str) -> int | None:
        """The block's extent along an axis where every visible launch has the same known one."""
        sizes = {launch.known_block(axis) for launch in self.launches}
        return sizes.pop() if len(sizes) == 1 else None

    @property
    def threads(self) -> int:
        """Threads in a block for a witness: the first visible launch's known block, else the configured size."""
        for launch in self.launches:
            sizes = [launch.known_block(a) for a in "xyz"]
            known = [s for s in sizes if s is not None]
            if len(known) == len(sizes):
                return known[0] * known[1] * known[2]
        return self.config.block_size

    def ranges(self) -> dict[Term, Interval]:
        """Intervals of launch built-ins and parameters over all visible launches.

        Empty where no launch is visible, so that the atoms' own ranges apply.
        """
        result: dict[Term, Interval] = {}
        for number, launch in enumerate(self.launches):
            seen = launch.ranges()
            if number == 0:
                result = seen
            else:
                result = {a: (min(lo, seen[a][0]), max(hi, seen[a][1])) for a, (lo, hi) in result.items() if a in seen}
        return result


class Launch:
    """One launch as executed in a host function, linked to its kernel where that can be seen.

    ``grid`` and ``block`` are (x, y, z) as terms over the host function's sizes, None where not
    visible; ``shared`` are the bytes of dynamic shared memory. ``mapping`` takes the kernel's atoms
    (parameters, ``blockDim``, ``gridDim``) to host terms.
    """

    __slots__ = (
        "_conditions", "_mapping", "answers", "block", "blocks", "callers", "config", "event", "flow", "grid", "kernel",
        "own", "shared",
    )  # fmt: skip

    def __init__(self, event: LaunchEvent, flow: Flow, kernel: Kernel | None, config: Config) -> None:
        self.event, self.flow, self.kernel, self.config = event, flow, kernel, config
        chosen = dict(_chosen(event.guard))
        if kernel is not None and event.fn.file is not kernel.decl.file:
            chosen.update(_named(event, kernel.decl))
        self.grid, self.block = _where(event.grid, chosen), _where(event.block, chosen)
        self.shared = t.substitute(event.shared, chosen) if event.shared is not None and chosen else event.shared
        self._mapping: dict[Term, Term] | None = None
        self._conditions: list[Term] | None = None
        self.callers: list[Caller] = []
        """All calls of the function in which the walk began, where no others can be."""
        self.own: Launch | None = None
        """The launch as its function is by itself, where callers are walked only for the block that they hand over:
        what they pass for sizes is not all that can be passed."""
        self.blocks: list[tuple[Term, Term, Term] | None] = []
        """The blocks that those callers hand over."""
        self.answers: dict[object, object] = {}
        """What one rule found out and others ask for too, by its name."""

    def turn_to(self, kernel: Kernel) -> None:
        """Take it for a launch of another instance of its kernel."""
        self.kernel, self._mapping, self._conditions = kernel, None, None
        self.answers.clear()
        kernel.launches.append(self)

    @property
    def host(self) -> Function:
        """The host function in which the walk began; the launch may stand in one that it calls."""
        return self.flow.function

    def known_block(self, axis: str) -> int | None:
        return _known(self.block, axis)

    def known_grid(self, axis: str) -> int | None:
        return _known(self.grid, axis)

    @property
    def warps_along_x(self) -> bool:
        """Whether ``threadIdx.x / 32`` is a warp's number: one-axis blocks, or x a multiple of 32."""
        x, y, z = (self.known_block(a) for a in "xyz")
        return (y == 1 and z == 1) or x is None or x % 32 == 0

    @property
    def mapping(self) -> dict[Term, Term]:
        if self._mapping is None:
            self._mapping = dict(self._map())
        return self._mapping

    def _map(self) -> Iterator[tuple[Term, Term]]:
        for triple, atoms in ((self.grid, GDIM), (self.block, BDIM)):
            if triple is not None:
                for axis, value in zip("xyz", triple):
                    yield atoms[axis], value
        if self.kernel is None:
            return
        kernel, event = self.kernel, self.event
        targs = event.kernel.targs if event.kernel is not None else event.node.targs
        for (name, _), given in zip(kernel.decl.template, targs):
            passed = event.targs.get(id(given))
            if name in kernel.flow.template and passed is not None:
                yield kernel.flow.template[name], passed
        if event.args is None:
            return
        for formal, actual in zip(kernel.flow.params.values(), event.args):
            if isinstance(formal, t.Term) and isinstance(actual, t.Term):
                yield formal, actual
            elif isinstance(formal, Record) and isinstance(actual, Record):
                yield from _map_record(formal, actual)
            elif isinstance(formal, Closure) and isinstance(actual, Closure):
                for inner, captured in _captured(formal, actual):
                    if isinstance(inner, t.Term) and isinstance(captured, t.Term):
                        yield inner, captured

    def objects(self) -> dict[Obj, Pointer]:
        """The host pointers passed for the kernel's pointer parameters."""
        result: dict[Obj, Pointer] = {}
        if self.kernel is not None and self.event.args is not None:
            for formal, actual in zip(self.kernel.flow.params.values(), self.event.args):
                if isinstance(formal, Pointer) and isinstance(actual, Pointer):
                    result[formal.obj] = actual
                elif isinstance(formal, Closure) and isinstance(actual, Closure):
                    for inner, captured in _captured(formal, actual):
                        if isinstance(inner, Pointer) and isinstance(captured, Pointer):
                            result[inner.obj] = captured
        return result

    def at_launch(self, term: Term) -> Term:
        """A kernel term in terms of the host function: parameters and dimensions replaced by what is passed."""
        return t.substitute(term, self.mapping)

    @property
    def conditions(self) -> list[Term]:
        """What holds when the launch is reached, one condition each: what the host makes sure of, and what the kernel
        states of its sizes, which is taken as given."""
        if self._conditions is None:
            self._conditions = self.checked()
            if self.kernel is not None:
                for term in (x for asserted in self.kernel.flow.asserted for x in conjuncts_of(asserted.term)):
                    # What it asks of the launch is for the launch to keep.
                    if not any(leaf.data.kind in _LAUNCH_ATOMS for leaf in t.leaves(term)):
                        self._conditions.extend(x for x in conjuncts_of(self.at_launch(term)) if x.op != "const")
            self._conditions.extend(_remaining(self._conditions))
            self._conditions.extend(_carried(self._conditions))
        return self._conditions

    def checked(self) -> list[Term]:
        """What the host makes sure of: its checks and branches on the way to the launch."""
        written = list(conjuncts(self.event.guard))
        found = [*written]
        found.extend(stated(self, self.callers) if self.callers else ())
        found.extend(self._handed())
        found.extend(constructed(self) if self.flow.members else ())
        found.extend(_fitting(self.event.shared) if self.event.shared is not None else ())
        found.extend(_whole_rows([*(self.grid or ()), *self.mapping.values()], self.block or ()))
        first: dict[Term, Term] = {}
        for guard in chain(self.event.guard):
            if guard.loop is not None:
                # Where a loop's body runs at all, its test held on the first pass.
                steps = guard.loop.inductions.values()
                begun = {x.term: x.init for x in steps if x.term is not None and x.init is not None}
                found.extend(x for x in conjuncts_of(t.substitute(guard.term, begun)) if x.op != "const")
                # What is kept from one pass to the next (`if (n == done) break; … done = n;`) is at first nothing of
                # the kind: a case that shows something is of the first pass.
                first.update((x.term, begun[x.term]) for x in steps if x.term in begun and x.step is None)
        for term in written if first else ():
            if term.op == "ne" and not t.leaves(term).isdisjoint(first):
                found.extend(x for x in conjuncts_of(t.substitute(term, first)) if x.op != "const")
        return found

    def _handed(self) -> Iterator[Term]:
        """What the block is by all callers that hand it over."""
        for at, extent in enumerate(self.block or ()):
            values = [x[at] if x is not None else None for x in self.blocks]
            known = [x.data for x in values if x is not None and x.op == "const"]
            if extent.op != "const" and known and len(known) == len(values):
                yield t.compare("<=", t.const(min(known), extent.type), extent)
                yield t.compare("<=", extent, t.const(max(known), extent.type))

    def usual_block(self, leaf: Term, width: int | None = None) -> int:
        """What a size that makes the block is taken to be: the configured size (or ``width``), or the nearest that is
        known to be possible beside the block's known extents."""
        low, high = Reach(None, self.config, self.conditions).interval(leaf)
        known: int = math.prod(x.data for x in self.block or () if x.op == "const")
        usual = min(width or self.config.block_size, THREADS_MAX // max(1, known))
        return min(max(usual, low), high)

    @property
    def first_pass(self) -> Launch:
        """The launch on the first pass of the host's loops, where its dimensions are made of their counters: each is
        what it starts from. The launch itself otherwise."""
        if "first pass" not in self.answers:
            self.answers["first pass"] = self._on_first_pass()
        return self.answers["first pass"]  # type: ignore[return-value]  # put there above

    def _on_first_pass(self) -> Launch:
        dimensions = (*(self.grid or ()), *(self.block or ()))
        if not any(x.data.kind == "loop" for term in dimensions for x in t.leaves(term)):
            return self

        def begun(term: Term) -> Term:
            # An inner loop may start from an outer one's counter.
            while starts := {
                x: x.data.data.init
                for x in t.leaves(term)
                if x.data.kind == "loop" and x.data.data.init is not None
            }:  # fmt: skip
                term = t.substitute(term, starts)
            return term

        result = Launch(self.event, self.flow, self.kernel, self.config)
        result.callers = self.callers
        result.grid, result.block = _each(self.grid, begun), _each(self.block, begun)
        result._mapping = {x: begun(value) for x, value in self.mapping.items()}
        result._conditions = [begun(x) for x in self.conditions]
        result.answers["first pass"] = result
        return result

    def ranges(self) -> dict[Term, Interval]:
        """Intervals of the kernel's atoms at this launch, from the host's types, constants and checks."""
        host = condition_ranges(self.conditions)
        memo: dict[Term, Interval] = {}
        result = {}
        for formal, actual in self.mapping.items():
            low, high = t.bounds(actual, host, memo)
            floor, ceiling = formal.data.lo, formal.data.hi
            result[formal] = (
                (max(low, floor), min(high, ceiling)) if low <= ceiling and high >= floor else (floor, ceiling)
            )
        for axis in "xyz":
            for index, extent in ((TID[axis], BDIM[axis]), (BID[axis], GDIM[axis])):
                if extent in result:
                    result[index] = (0, max(0, result[extent][1] - 1))
        return result


def _chosen(guard: Guard | None) -> Iterator[tuple[Term, Term]]:
    """The sizes that a branch fixes: `case 64:`, `if (n == 64)`. That it asks for one cut to an int does not matter."""
    for term in conjuncts(guard):
        if term.op == "eq":
            for size, value in (term.args, term.args[::-1]):
                while size.op == "cast" and isinstance(size.type, Int) and size.type.bits >= 32:
                    size = size.args[0]
                if size.op == "atom" and isinstance(size.type, Int) and value.op == "const":
                    yield size, value


def _named(event: LaunchEvent, kernel: FunctionDecl) -> Iterator[tuple[Term, Term]]:
    """The constants that a launch in a header names without including what defines them: in a unit that has the kernel
    too they are those of the kernel's file."""
    for leaf in {x for term in (*(event.grid or ()), *(event.block or ())) for x in t.leaves(term)}:
        if leaf.data.kind == "name":
            decl = kernel.file.declarations.scope.value(leaf.data.name)
            value: int | float | None = fold_var(global_variable(decl)) if decl is not None else None
            macro = kernel.file.macros.get(leaf.data.name)
            if macro is not None and len(macro.tokens) == 1:
                value = literals.number(macro.body.decode("utf-8", "replace"))[1]
            if isinstance(value, int):
                yield leaf, t.const(value, I64)


def _remaining(conditions: list[Term]) -> list[Term]:
    """What is left of alternatives of which the other conditions rule out all but one: what one side of a branch
    checks holds where the same branch is taken again."""
    found: list[Term] = []
    either = [x for x in reversed(conditions) if x.op == "lor"]  # what held first may settle what came after
    known = set(conditions) if either else set()
    for condition in either:
        possible = [x for x in disjuncts_of(condition) if known.isdisjoint(map(t.lnot, conjuncts_of(x)))]
        if len(possible) == 1:
            more = [x for x in conjuncts_of(possible[0]) if x not in known]
            found += more
            known.update(more)
    return found


def _carried(conditions: list[Term]) -> list[Term]:
    """What the checks of a size say of another that it is checked to be equal to."""
    found: list[Term] = []
    alone: dict[Term, list[Term]] = {}
    for condition in conditions:
        if len(leaves := t.leaves(condition)) == 1:
            alone.setdefault(next(iter(leaves)), []).append(condition)
    for condition in conditions if alone else ():
        if condition.op == "eq":
            first, second = map(t.bare, condition.args)
            for size, other in ((first, second), (second, first)):
                if size.op == other.op == "atom" and isinstance(size.type, Int) and isinstance(other.type, Int):
                    same = {other: t.convert(size, other.type)}
                    found.extend(t.substitute(x, same) for x in alone.get(other, ()))
    return found


def _captured(formal: Closure, actual: Closure) -> Iterator[tuple[Value, Value]]:
    """What a lambda holds in a kernel, and what it captured on the host."""
    for var, inner in formal.copies.items():
        if var in actual.copies:
            yield inner, actual.copies[var]


def _where(triple: tuple[Term, Term, Term] | None, chosen: dict[Term, Term]) -> tuple[Term, Term, Term] | None:
    """Dimensions where sizes have these values."""
    return _each(triple, lambda extent: t.substitute(extent, chosen)) if chosen else triple


def _each(triple: tuple[Term, Term, Term] | None, change: Callable[[Term], Term]) -> tuple[Term, Term, Term] | None:
    if triple is None:
        return None
    x, y, z = map(change, triple)
    return x, y, z


def _map_record(formal: Record, actual: Record) -> Iterator[tuple[Term, Term]]:
    for name, inner in formal.fields.items():
        value = actual.fields.get(name)
        if isinstance(inner, t.Term) and isinstance(value, t.Term):
            yield inner, value
        elif isinstance(inner, Record) and isinstance(value, Record):
            yield from _map_record(inner, value)


def _known(triple: tuple[Term, Term, Term] | None, axis: str) -> int | None:
    if triple is None:
        return None
    value = triple["xyz".index(axis)]
    return value.data if value.op == "const" and isinstance(value.data, int) else None


def _fitting(shared: Term) -> Iterator[Term]:
    """What a launch's dynamic shared memory says of its sizes: more bytes than any device has are refused."""
    sizes = t.poly(shared)
    if any(factor < 0 for factor in sizes.values()) or sizes.keys() == {()}:
        return
    yield t.compare("<=", t.convert(shared, U64), t.const(SHARED_MAX, U64))
    for monomial, factor in sizes.items():
        if len(monomial) == 1 and monomial[0].op == "atom" and isinstance(monomial[0].type, Int):
            most = (SHARED_MAX - sizes.get((), 0)) // factor
            if monomial[0].type.lo <= most <= monomial[0].type.hi:
                yield t.compare("<=", monomial[0], t.const(most, monomial[0].type))


def _whole_rows(terms: list[Term], block: Sequence[Term]) -> Iterator[Term]:
    """A tensor's elements divided by the length of a row: a tensor is a product of its extents.

    What is divided by the block, by the lanes of a vector or by a power of two like those is no number of rows.
    """
    seen: set[Term] = set()
    while terms:
        item = terms.pop()
        if item in seen:
            continue
        seen.add(item)
        terms.extend(item.args)
        if item.op == "div":
            whole, row = item.args
            while whole.op == "cast":
                whole = whole.args[0]
            asked = whole.data.data if whole.op == "atom" else None
            if not (isinstance(asked, Call) and asked.name == "numel" and isinstance(whole.type, Int)):
                continue
            parts = {row, *t.leaves(row)}
            if parts.isdisjoint(block) and not (row.op == "const" and row.data in _LANES):
                rest = t.binary("mod", whole, t.convert(row, whole.type), whole.type)
                yield t.compare("==", rest, t.const(0, whole.type))


def condition_ranges(conditions: list[Term]) -> dict[Term, Interval]:
    """Intervals of single atoms that conditions of the form ``atom < constant`` give; sizes are >= 0 by convention."""
    result: dict[Term, Interval] = {}
    for term in conditions:
        if term.op not in ("lt", "le", "eq"):
            continue
        a, b = term.args
        strict = 1 if term.op == "lt" else 0
        for side, other, upper in ((a, b, True), (b, a, False)):
            while side.op == "cast":
                side = side.args[0]
            if side.op != "atom" or other.op != "const" or not isinstance(other.data, int):
                continue
            low, high = result.get(side, (side.data.lo, side.data.hi))
            if term.op == "eq":
                low, high = max(low, other.data), min(high, other.data)
            elif upper:
                high = min(high, other.data - strict)
            else:
                low = max(low, other.data + strict)
            result[side] = (low, high)
    return result


class HostFunction:
    """A host function that launches, allocates or copies, with its flow."""

    __slots__ = ("config", "decl", "flow", "launches")

    def __init__(self, decl: FunctionDecl, flow: Flow, config: Config) -> None:
        self.decl, self.flow, self.config = decl, flow, config
        self.launches: list[Launch] = []

    @property
    def function(self) -> Function:
        return self.flow.function
