"""From a kernel and one of its launches to something that can be run: sizes, dimensions, buffers, scalars.

A harness is made from facts alone: the parameters of the launch as terms over the host's sizes, the
extents of buffers from their allocation where the host shows it, else from the kernel's tests and the
sizes that the grid divides. Where no launch is visible the kernel's own parameters are the sizes.
"""

from __future__ import annotations

import math
import zlib
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from cudalint.contracts.block import shape, tiled
from cudalint.facts import concrete, kernels, search, shapes, tiles
from cudalint.facts import terms as t
from cudalint.facts import witness as w
from cudalint.facts.calls import parses
from cudalint.facts.events import Induction, Pointer, Record, conjuncts
from cudalint.facts.extents import replaced, rounded_up, scale
from cudalint.facts.ids import BDIM, BID, GDIM, TID
from cudalint.facts.uniformity import expand
from cudalint.frontend.given import given
from cudalint.ir.nodes import Call, While
from cudalint.ir.types import BOOL, F32, U8, Array, Float, Int, Param, Ptr, Struct, Type, Void
from cudalint.lazy import NamedTuple
from cudalint.rules import launches, support
from cudalint.sim import Buffer, View
from cudalint.sim.memory import hashed, numpy_type
from cudalint.sim.run import MAX_THREADS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from cudalint.facts.events import Access, Obj
    from cudalint.facts.model import Kernel, Launch
    from cudalint.facts.terms import Poly, Term

Triple = tuple[int, int, int]
Values = dict["Term", int]
#: What a scalar gets that is no size: small, odd, not one.
_SMALL = 3
_ELEMENTS = 1 << 12
"""Extent of a buffer of which no fact tells how large it is."""
_DATA = frozenset({"load", "call", "unknown"})
_LARGEST = 1 << 40
_TRIES, _MOST_TRIES = 400, 3000
"""Values of a host's sizes and flags that are tried, one after the other, to get through its checks: for one run, and
for all runs of an experiment."""
_PASSES = 4096
"""Passes of a loop of the host that are followed to see what it comes to."""
_COARSE = 1 << 20
_FEW = (0, 1, 2, 3, 5, 40, 100)
"""Integers that comparisons with small constants and with each other part."""


class Unready(Exception):
    """The kernel cannot be given what it needs to run; the text says what."""


class Setup(NamedTuple):
    """One launch, ready to run. ``values`` holds the kernel's atoms, ``host`` those of the host function."""

    grid: Triple
    block: Triple
    args: list[Any]
    shared: int
    values: Values
    host: Values
    case: kernels.Case


class _Start(NamedTuple):
    """The host's values to start from. ``free`` were chosen by nobody, ``near`` may be others beside them, ``late`` are
    what loops begin with and leave behind."""

    host: Values
    free: tuple[Term, ...]
    near: tuple[Term, ...]
    late: tuple[Term, ...]


class _Bound:
    """Stands for a launch whose arguments are known numbers, as :class:`kernels.Case` asks for one."""

    def __init__(self, mapping: dict[Term, Term]) -> None:
        self.mapping = mapping


class Harness:
    """A kernel with one visible launch, or with none.

    ``sizes`` are the atoms that an experiment varies, the one that the kernel's own tests name first.
    ``given`` are the values that a ``// cudalint: confirm(…)`` comment fixes, by name.
    """

    def __init__(self, kernel: Kernel, launch: Launch | None) -> None:
        kernel, launch = _bound(kernel, launch)
        self.kernel, self.launch = kernel, launch
        self.flow = kernel.flow
        self.given = _given(kernel, launch)
        self.current: Values = {}
        """The host's values of the run that is being made ready."""
        self.coarse = False
        """Whether floats are few and round, so that comparisons of data come out either way."""
        self.literal = False
        """Whether a grid that the caller passes is taken as it is, though it may be too small."""
        self.by_grid = False
        """Whether an axis has no more elements than the grid was rounded up for, whatever the tests let through."""
        self._tries = iter(range(_MOST_TRIES))
        self.shape = shape(self.flow)
        """What a launch of the tool's own choice keeps to."""
        self.adjusted: Callable[[Obj, int, kernels.Case], int] | None = None
        """What an experiment makes of a buffer's extent."""
        self.constant: int | None = None
        """What all data is, if it is one value."""
        self.opposed: frozenset[str] = frozenset()
        """Buffers whose data is minus that."""
        self.ending: frozenset[str] = frozenset()
        """Buffers that end where the tests of an index end, though its neighbours are touched as well."""
        self._stated = _stated(launch)
        self._loaded = self._loads()
        self._leaves = self._all_leaves()
        self._pitches = self._find_pitches()
        self.sizes = [x for x in self._leaves if self._is_size(x)]
        self.untold = self._untold()
        """What the grid is made of that nobody here can see."""
        self._check_given()

    def _check_given(self) -> None:
        """Every value that a comment gives is for something."""
        known = {"block", *(x.data.name for x in self._leaves)}
        for var, value in self.flow.params.items():
            known |= {var.name, *(x.data.name for x in _numbers(value) if x.op == "atom")}
        for name in self.given:
            if name not in known:
                raise Unready(f"the comment confirm({name}=…): neither the kernel nor its launch has a '{name}'")

    # --- sizes --------------------------------------------------------------------------------

    def _all_leaves(self) -> list[Term]:
        """Every atom that a value is needed for, sizes first."""
        limits = [x for c in self.kernel.layout.coordinates for x in t.atoms_of(c.limit)]
        launch = self.launch
        if launch is None:
            found = [x for x in self._order(limits) if x.data.kind == "param"]
            return list(dict.fromkeys([*found, *self._scalars()]))
        at_host = [launch.at_launch(x) for x in limits]
        rest = [*(launch.grid or ()), *(launch.block or ()), *launch.mapping.values()]
        rest += [p.obj.bytes for p in launch.objects().values() if p.obj.bytes is not None]
        if launch.event.shared is not None:
            rest.append(launch.event.shared)
        formal = set(launch.mapping) | {*BDIM.values(), *GDIM.values(), *BID.values(), *TID.values()}
        found = search.ordered(at_host, launch.grid or ())
        found += [x for x in search.ordered(rest, launch.conditions) if x not in found]
        found = [x for x in found if x not in formal and x.data.kind not in ("count",)]
        begun = search.ordered(_made_by_loops(found), ())
        known = {*found, *formal}
        return [*found, *(x for x in begun if x not in known and x.data.kind != "count")]

    def _order(self, terms: Iterable[Term]) -> list[Term]:
        return search.ordered(terms, ())

    def _scalars(self) -> Iterator[Term]:
        for value in self.flow.params.values():
            yield from _numbers(value)

    def _is_size(self, leaf: Term) -> bool:
        if isinstance(self.given.get(leaf.data.name), float) or not isinstance(leaf.type, Int) or leaf.type is BOOL:
            return False
        if leaf in self._stated:
            return False
        if self.launch is None:
            limits = search.leaves_of(x for c in self.kernel.layout.coordinates for x in t.atoms_of(c.limit))
            return leaf in limits if limits else leaf in self._asked()
        wanted = search.leaves_of(
            [*(self.launch.grid or ()), *(self.launch.at_launch(x) for c in self.kernel.layout.coordinates
              for x in t.atoms_of(c.limit))]
        )  # fmt: skip
        blocks = search.leaves_of(self.launch.block)
        if not any(search.is_size(x) and x not in blocks and w.assumed(x) is None for x in wanted):
            wanted = search.leaves_of(self.launch.at_launch(x) for x in self._asked())
        return leaf in wanted and leaf not in blocks and search.is_size(leaf) and w.assumed(leaf) is None

    def _untold(self) -> list[Term]:
        """What functions that are not here make of their arguments, and what they give the grid alone."""
        limits = self._limits()
        grid = search.ordered(self.launch.grid or (), ()) if self.launch is not None else []
        given = [x for x in grid if x not in limits and isinstance(x.data.data, Call) and not parses(x.data.data)]
        computed = [x for x in search.ordered([*grid, *limits], ()) if search.is_computed(x)]
        return list(dict.fromkeys([*computed, *(x for x in given if x.data.kind == "call")]))

    def _limits(self) -> frozenset[Term]:
        """What the host makes the limits of the kernel's coordinates of."""
        launch = self.launch
        if launch is None:
            return frozenset()
        limits = (x for c in self.kernel.layout.coordinates for x in t.atoms_of(c.limit))
        return frozenset(search.leaves_of(launch.at_launch(x) for x in limits))

    def _asked(self) -> set[Term]:
        """The atoms in the conditions that the kernel's loops, returns and barriers are under."""
        events = [*self.flow.returns, *self.flow.barriers, *self.flow.accesses]
        return search.leaves_of(x for e in events for x in conjuncts(e.guard))

    def _find_pitches(self) -> set[Term]:
        """The atoms that a coordinate is multiplied by in an address, or that memory is allocated by, and that
        nothing is tested against."""
        found: set[Term] = set()
        for access in self.flow.accesses:
            if access.obj.kind != "global":
                continue
            for monomial in expand(access.scalar or {}):
                if any(x in _IDS for x in monomial):
                    found.update(x for x in monomial if x.op == "atom" and x.data.kind == "param")
        self._own_pitches = found
        if self.launch is None:
            return found
        found = {y for x in found for y in t.leaves(self.launch.at_launch(x))}
        # What is allocated for another size is as large as this launch needs it.
        allocated = (p.obj.bytes for p in self.launch.objects().values())
        return found | search.leaves_of(x for x in allocated if x is not None)

    def assignment(self, chosen: Mapping[str, int], block: int | None = None) -> Values:
        """A value for every atom: ``chosen`` by name, then what a comment gives, then small defaults."""
        return self._admitted(self._start(chosen, block))

    def let_in(self, chosen: Mapping[str, int], block: int | None = None) -> dict[str, int] | None:
        """The sizes next to these at which the host's checks let the launch happen; None where none are found."""
        start = self._start(chosen, block)
        sizes = [x for x in self.sizes if x in start.host and x.data.name not in self.given]
        host = self._admitted(start._replace(near=(*sizes, *start.near)))
        return {x.data.name: host[x] for x in self.sizes if x in host} if self.reached(host) else None

    def _start(self, chosen: Mapping[str, int], block: int | None) -> _Start:
        """The values to start from: ``chosen`` ones, those that a comment gives, and small ones."""
        result: Values = {}
        names = dict(self.given)
        names.update(chosen)
        own = {x.data.name for x in self.sizes}
        in_block = search.leaves_of(self.launch.block) if self.launch is not None else set()
        free: list[Term] = []
        late: list[Term] = []
        near: list[Term] = []
        for leaf in self._leaves:
            name = leaf.data.name
            fixed = w.assumed(leaf)
            if name in names and (name not in own or leaf in self.sizes):  # another value may go by the same name
                result[leaf] = _whole(name, names[name])
            elif fixed is not None:
                result[leaf] = fixed
            elif leaf in self._stated:
                result[leaf] = self._stated[leaf]
            elif (info := _induction(leaf)) is not None and (leaf.data.kind == "exit" or info.init is not None):
                late.append(leaf)
            elif leaf in in_block:
                usual = block or self.shape.fit((self.kernel.config.block_size, 1, 1))[0]
                result[leaf] = max(leaf.data.lo, min(leaf.data.hi, usual))
                if block is None:
                    near.append(leaf)
            elif isinstance(leaf.type, Float):
                result[leaf] = 2
            elif _asks_runtime(leaf):
                result[leaf] = 0  # cudaSuccess, under whatever name the host keeps it
                free.append(leaf)
            elif leaf in self._pitches:
                result[leaf] = max([_SMALL, *(v for k, v in chosen.items() if k in own)])
                near.append(leaf)
            else:
                result[leaf] = max(leaf.data.lo, min(leaf.data.hi, _SMALL))
                free.append(leaf)
        return _Start(result, tuple(free), tuple(near), tuple(late))

    def _admitted(self, start: _Start) -> Values:
        """The values with those that may be others (flags, ranks, variants; the block's sizes) made such that the host
        comes to the launch, if there are any."""
        host = _looped(start.host, start.late)
        # Flags that no check brings together are chosen apart: a host may check what many calls return.
        behind = [(c, search.leaves_of([c, *_made_by_loops(t.leaves(c))])) for c in self._conditions]
        for atoms, checks in _together((*start.near, *start.free), behind):
            if all(w.allowed(c, host) for c in checks):
                continue
            constants = sorted(int(c) for c in w.constants(checks))
            # A flag may be held against a size: what there is room for.
            others = sorted({host[x] for x in search.leaves_of(checks) if x in host and x not in start.free})
            steps, open_ = [], {*atoms, *start.late}
            for leaf in atoms:
                if leaf in start.near:
                    tries = _beside(start.host[leaf], [*constants, *others], checks)
                else:
                    tries = [start.host[leaf], 0, 1, *sorted({c + k for c in constants for k in (-1, 0, 1)}), *others]
                possible = [v for v in dict.fromkeys(tries) if leaf.data.lo <= v <= leaf.data.hi]
                # A check is asked once all that it hangs on is chosen, the one that is quickly told first.
                open_.discard(leaf)
                told = [c for c in checks if leaf in t.leaves(c) and open_.isdisjoint(t.leaves(c))]
                steps.append((leaf, possible, sorted(told, key=lambda c: c.depth)))

            def through(values: Values, checks: Sequence[Term] = checks) -> bool:
                looped = _looped(values, start.late)
                return all(w.allowed(c, looped) for c in checks)

            known = {x: v for x, v in host.items() if x not in atoms and x not in start.late}
            with suppress(StopIteration):
                found = w.chosen(known, steps, islice(self._tries, _TRIES), through)
                host = _looped(found, start.late) if found is not None else host
        return host

    @property
    def _conditions(self) -> Sequence[Term]:
        return self.launch.conditions if self.launch is not None else ()

    def reached(self, host: Values) -> bool:
        """Whether the host's checks let the launch happen at these sizes."""
        return all(w.allowed(c, host) for c in self._conditions)

    def block(self) -> Triple:
        """The block where the launch does not say: known from elsewhere, else the configured size along x."""
        known = [self.kernel.known_block(a) for a in "xyz"]
        if None not in known:
            return (known[0] or 1, known[1] or 1, known[2] or 1)
        used = {a for a in "xyz" if any(TID[a] in c.ids for c in self.kernel.layout.coordinates)}
        if len(used) > 1:
            return self.shape.fit((16, 16, 1) if "z" not in used else (8, 8, 4))
        if "block" in self.given:
            return (int(self.given["block"]), 1, 1)
        return self.shape.fit((self.kernel.config.block_size, 1, 1))

    # --- one launch ---------------------------------------------------------------------------

    def dimensions(self, host: Values) -> tuple[Triple, Triple] | None:
        """Grid and block as the host computes them, limits not looked at; None where they have no value."""
        launch = self.launch
        if launch is None or launch.grid is None or launch.block is None:
            return None
        found = kernels.case(launch, host)
        if found is None:
            return None
        return self._passed(found.grid, found.block, host), found.block

    def _passed(self, grid: Triple, block: Triple, host: Values) -> Triple:
        """The grid, large enough on an axis where the caller passes it, or nobody here can see how it is computed: what
        it is to be is somebody else's business."""
        assert self.launch is not None and self.launch.grid is not None
        limits = self._limits()
        free = [
            (t.bare(x).op == "atom" and t.bare(x).data.kind == "param" and t.bare(x) not in limits)
            or not t.leaves(x).isdisjoint(self.untold)
            for x in self.launch.grid
        ]
        if self.literal or not any(free):
            return grid
        enough = self.cover(self.kernel_values(host), block)
        x, y, z = (max(a, b) if take else a for a, b, take in zip(grid, enough, free))
        return x, y, z

    def setup(self, host: Values, grid: Triple | None = None, block: Triple | None = None) -> Setup:
        """The launch at these sizes; ``grid`` and ``block`` replace the host's."""
        if any(each.term is t.FALSE for each in self.flow.asserted):
            raise Unready("no template arguments are shown that meet its static_assert")
        values = self.kernel_values(host)
        own = self.dimensions(host)
        if block is None:
            block = own[1] if own is not None else self.block()
        if grid is None:
            grid = own[0] if own is not None else self.cover(values, block, self.at_least(block))
        return self._made(values, host, grid, block)

    def _made(self, values: Values, host: Values, grid: Triple, block: Triple) -> Setup:
        case = self.case(values, grid, block)
        buffers: dict[Obj, Buffer | View] = {}
        args = []
        self.current = host
        for var, value in self.flow.params.items():
            args.append(self._argument(var.name, var.type, value, case, host, buffers))
        return Setup(grid, block, args, self._shared_bytes(host, block), values, host, case)

    def case(self, values: Values, grid: Triple, block: Triple) -> kernels.Case:
        """The launch as :mod:`cudalint.facts.kernels` counts what its threads come to."""
        bound = _Bound({k: t.const(v, k.type) for k, v in values.items()})
        return kernels.Case(bound, {}, grid, block)  # type: ignore[arg-type]  # only its mapping is asked for

    def kernel_values(self, host: Values) -> Values:
        """The kernel's scalar parameters at these sizes."""
        if self.launch is None:
            return dict(host)
        result: Values = {}
        for formal, actual in self.launch.mapping.items():
            if formal.data.kind in ("bdim", "gdim"):
                continue
            try:
                value = t.evaluate(actual, host)
            except t.Undefined:
                continue
            if isinstance(formal.type, Int) and isinstance(value, int):
                value = formal.type.wrap(value)
            result[formal] = value
        sizes = [host[x] for x in self.sizes if x in host]
        for pitch in self._own_pitches:
            if pitch.data.kind == "param" and isinstance(pitch.type, Int):
                result.setdefault(pitch, min(pitch.type.hi, max([_SMALL, *sizes])))
        return result

    def _shared_bytes(self, host: Values, block: Triple) -> int:
        dynamic = any(a.obj.kind == "shared" and a.obj.extent is None for a in self.flow.accesses)
        plenty = block[0] * block[1] * block[2] * 16 if dynamic else 0
        if self.launch is None:
            return plenty
        shared = self.launch.event.shared
        if shared is None:
            return 0 if self.launch.event.node.form == "<<<>>>" else plenty
        try:
            passed = int(t.evaluate(shared, host))
        except t.Undefined:
            return plenty
        # Bytes that the caller passes as they are, for nothing else: what they are to be is the caller's business.
        return max(passed, plenty) if self._callers(shared) else passed

    def _callers(self, given: Term) -> bool:
        """Whether a count of bytes is a parameter of the host function that nothing else of the launch is made of."""
        assert self.launch is not None
        bare = t.bare(given)
        others = search.leaves_of([*(self.launch.grid or ()), *(self.launch.block or ()),
                                     *self.launch.mapping.values()])  # fmt: skip
        return bare.op == "atom" and bare.data.kind == "param" and bare not in others

    def _allocated(self, given: Term) -> bool:
        """Whether the source shows how many bytes are allocated."""
        return not self._callers(given) and not any(search.is_computed(x) for x in t.leaves(given))

    def at_least(self, block: Triple) -> Triple:
        """Blocks that a launch of the kernel by itself has: two on every axis that has threads."""
        return 2, 2 if block[1] > 1 else 1, 2 if block[2] > 1 else 1

    # --- a grid that covers -------------------------------------------------------------------

    def cover(self, values: Values, block: Triple, at_least: Triple = (1, 1, 1)) -> Triple:
        """The smallest grid (no smaller than ``at_least``) whose threads come to every element that is tested."""
        grid = list(at_least)
        for at, axis in enumerate("xyz"):
            for item in self.kernel.layout.coordinates:
                if BID[axis] not in item.ids:
                    continue
                grid[at] = max(grid[at], self._blocks(item, at, grid, block, values))
        return grid[0], grid[1], grid[2]

    def _blocks(self, item: kernels.Coordinate, at: int, grid: list[int], block: Triple, values: Values) -> int:
        def covers(blocks: int) -> bool:
            tried = [*grid[:at], blocks, *grid[at + 1 :]]
            case = self.case(values, (tried[0], tried[1], tried[2]), block)
            return case.reach(item) >= case.size(item)

        try:
            if item.loop is not None:
                return 2
            high = 1
            while not covers(high):
                high *= 2
                if high > 1 << 31:
                    return 1
            low = high // 2
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (low, middle) if covers(middle) else (middle, high)
            return high
        except t.Undefined:
            return 1

    def wide(self, values: Values, grid: Triple, block: Triple) -> Triple:
        """The block, large enough for coordinates of a thread's number alone."""
        result = list(block)
        for at, axis in enumerate("xyz"):
            for item in self.kernel.layout.coordinates:
                if item.ids != {TID[axis]} or item.loop is not None:
                    continue
                for extent in range(result[at], MAX_THREADS + 2):
                    tried = [*result[:at], extent, *result[at + 1 :]]
                    case = self.case(values, grid, (tried[0], tried[1], tried[2]))
                    try:
                        if case.reach(item) >= case.size(item):
                            result[at] = extent
                            break
                    except t.Undefined:
                        break
                else:
                    result[at] = MAX_THREADS + 1
        wider = result[0], result[1], result[2]
        return self.shape.fit(wider) if block != wider and max(wider) <= MAX_THREADS else wider

    def reach(self, values: Values, grid: Triple, block: Triple) -> int | None:
        """Elements of the first tested coordinate that a launch comes to; None where that cannot be counted."""
        for item in self.kernel.layout.coordinates:
            if item.loop is None:
                try:
                    return self.case(values, grid, block).reach(item)
                except t.Undefined:
                    return None
        return None

    def divided(self, at: int, host: Values) -> int:
        """Blocks along an axis that the size which the host divides needs; 1 where it divides none."""
        division = launches.division(self.launch.grid[at]) if self.launch is not None and self.launch.grid else None
        if division is None:
            return 1
        try:
            size, by = (int(t.evaluate(x, host)) for x in division)
        except t.Undefined:
            return 1
        return max(1, -(-size // by)) if by > 0 else 1

    # --- arguments ----------------------------------------------------------------------------

    def _argument(
        self, name: str, type_: Type, value: Any, case: kernels.Case, host: Values, buffers: dict[Obj, Buffer | View],
    ) -> Any:  # fmt: skip
        if isinstance(type_, Param):
            raise Unready(f"'{name}' is of a type that no visible launch binds")
        if name in self.given and isinstance(type_, (Int, Float)) and not self._is_varied(value):
            number = self.given[name]
            if isinstance(type_, Int) and not type_.lo <= number <= type_.hi:
                raise Unready(f"{name} = {number} does not fit {type_}")
            return int(number) if isinstance(type_, Int) else number
        if isinstance(value, Pointer) and isinstance(type_, Ptr):
            return self._buffer(name, type_, value.obj, case, host, buffers)
        if isinstance(type_, Ptr):
            return None
        if isinstance(type_, Int):
            found = case.launch.mapping.get(value) if isinstance(value, t.Term) else None
            return found.data if found is not None else _SMALL
        if isinstance(type_, Float):
            found = case.launch.mapping.get(value) if isinstance(value, t.Term) else None
            return found.data if found is not None and not isinstance(found.data, int) else 1.5
        if isinstance(type_, Struct) and type_.fields is not None:
            inner = value.fields if isinstance(value, Record) else {}
            return {
                n: self._argument(f"{name}.{n}", x, inner.get(n), case, host, buffers) for n, x in type_.fields.items()
            }
        if isinstance(type_, Array) and isinstance(type_.extent, int):
            return [self._argument(name, type_.element, None, case, host, buffers)] * type_.extent
        raise Unready(f"an argument of type '{type_}'")

    def _is_varied(self, value: Any) -> bool:
        """Whether a parameter of the kernel is a size, which each run has its own of."""
        if not isinstance(value, t.Term):
            return False
        actual = value if self.launch is None else self.launch.mapping.get(value)
        return actual is not None and t.bare(actual) in self.sizes

    def _within(self, obj: Obj, host: Values) -> tuple[Obj, int] | None:
        """The parameter to whose memory the launch makes this one point too, and how many bytes into it."""
        passed = self.launch.objects() if self.launch is not None else {}
        mine = passed.get(obj)
        first = next((o for o, p in passed.items() if mine is not None and p.obj is mine.obj and not p.pieces), None)
        if mine is None or first is None or first is obj:
            return None
        offset = 0
        try:
            for term, unit in mine.pieces:
                if unit is None:
                    return None
                offset += int(t.evaluate(term, host)) * unit
        except t.Undefined:
            return None
        return (first, offset) if offset >= 0 else None

    def _buffer(
        self, name: str, type_: Ptr, obj: Obj, case: kernels.Case, host: Values, buffers: dict[Obj, Buffer | View],
    ) -> Buffer | View:  # fmt: skip
        if obj in buffers:
            return buffers[obj]
        element = _element(obj, type_)
        within = self._within(obj, host)
        if within is not None:
            first, offset = within
            whole = self._buffer(first.name, type_, first, case, host, buffers)
            assert isinstance(whole, Buffer)
            buffers[obj] = whole if not offset and whole.element is element else View(whole, offset)
            return buffers[obj]
        passed = self.launch.objects() if self.launch is not None else {}
        mine = passed.get(obj)
        inside = {o: found[1] for o in passed if (found := self._within(o, host)) is not None and found[0] is obj}
        assert element.size is not None
        extent = None
        if mine is not None and mine.obj.bytes is not None and not mine.pieces and self._allocated(mine.obj.bytes):
            try:
                extent = int(t.evaluate(mine.obj.bytes, host)) // element.size
            except t.Undefined:
                extent = None
        if extent is None:
            same = [o for o, at in inside.items() if not at and _element(o, type_) is element]
            extent = self.extent([obj, *same], case)
            for other in inside.keys() - set(same):
                reach = inside[other] + self.extent([other], case) * (_element(other, type_).size or 1)
                extent = max(extent, -(-reach // element.size))
        if self.adjusted is not None:
            extent = self.adjusted(obj, extent, case)
        extent = max(1, min(extent, _LARGEST))
        buffers[obj] = buffer = Buffer(name, element, extent, self._fill({obj, *inside}, obj, element, case, extent))
        return buffer

    def _fill(self, objects: set[Obj], obj: Obj, element: Type, case: kernels.Case, extent: int) -> Any:
        accesses = [a for a in self.flow.accesses if a.obj in objects]
        if accesses and all(a.mode == "w" for a in accesses):
            return "nan"
        if accesses and all(a.mode == "atomic" for a in accesses):
            return 0
        if self.constant is not None and _is_signed(element):
            return -self.constant if obj.name in self.opposed else self.constant
        if any(x.data.data is obj for x in concrete.read_ends(self.flow)):
            return _passes(case)
        if isinstance(element, Int) and obj.name in self._loaded:
            return ("hash", 0, max(1, self._largest(case)))
        if self.coarse and isinstance(element, (Int, Float)) and extent <= _COARSE:
            few = (hashed(zlib.crc32(obj.name.encode()), np.arange(extent)) % np.uint64(7)).astype(np.int64)
            return (np.array(_FEW)[few] if isinstance(element, Int) else few - 2.5).astype(numpy_type(element))
        return "hash"

    def _loads(self) -> dict[str, list[Term]]:
        """What takes part in addresses and is loaded from memory, by the name of the memory."""
        found: dict[str, list[Term]] = {}
        for leaf in search.leaves_of(a.index for a in self.flow.accesses if a.index is not None):
            if leaf.data.kind == "load":
                found.setdefault(leaf.data.name.partition("[")[0], []).append(leaf)
        return found

    def indices(self) -> list[str]:
        """The buffers that hold indices, which are filled such that these lie within what they are for."""
        held = {a.obj.name for a in self.flow.accesses if a.obj.kind == "global"}
        return [name for name, leaves in self._loaded.items()
                if name in held and any(isinstance(x.type, Int) for x in leaves)]  # fmt: skip

    def _largest(self, case: kernels.Case) -> int:
        sizes = []
        for item in filter(lambda x: _rises(x.index), self.kernel.layout.coordinates):
            try:
                sizes.append(case.size(item))
            except t.Undefined:
                continue
        return max(sizes, default=_ELEMENTS)

    # --- extents ------------------------------------------------------------------------------

    def extent(self, objects: list[Obj], case: kernels.Case) -> int:
        """How many elements the kernel means to touch: its tests, or the sizes that the grid divides, bound them."""
        found = []
        for access in self.flow.accesses:
            if access.obj in objects and access.scalar is not None:
                ends = access.obj.name in self.ending
                top = self._end(access, case) if ends else self.top(access, case)
                if top is not None:
                    found.append(top if ends else top + access.width)
        return max(found) if found else max(_ELEMENTS, self._largest(case))

    def _end(self, access: Access, case: kernels.Case) -> int | None:
        """The size that a test keeps an index below which the address is, or lies a constant beside."""
        address = expand(access.scalar or {})
        found = []
        for item in map(self.kernel.layout.coordinate, conjuncts(access.guard)):
            if item is None or not _rises(item.index) or any(t.add(address, item.index, -1)):
                continue
            try:
                # `i < n - 1`: the size is what is left without the constant.
                found.append(case.number({m: c for m, c in item.limit.items() if m} or item.limit))
            except t.Undefined:
                continue
        return min(found, default=None)

    def top(self, access: Access, case: kernels.Case) -> int | None:
        """The greatest element that an access means to touch; None where nothing bounds it."""
        ranges = {**self._ranges(case), **self._tested(access, case)}
        polys = [self._bounded(access, case)]
        loops = [x for x in t.atoms_of(access.scalar or {}) if x.op == "atom" and x.data.kind == "loop"]
        others = [x for x in t.atoms_of(access.scalar or {}) if x not in loops]
        if loops and all(x.data.data.limit for x in loops) and not kernels.ids_of(others):
            polys.append(access.scalar or {})  # the loop's own limit may say more than its passes
        tops = [top for top in (_highest(p, ranges) for p in polys) if top is not None and top < _LARGEST]
        return min(tops, default=None)

    def farthest(self, access: Access, case: kernels.Case) -> int | None:
        """The greatest element that the threads and the passes of loops come to, tests left aside."""
        return _highest(expand(access.scalar or {}), self._ranges(case))

    def _tested(self, access: Access, case: kernels.Case) -> dict[Term, t.Interval]:
        """What the tests around an access leave of data: a ticket is below the number of rows. What is loaded again
        from where the tested value was is taken to be that value."""
        found: dict[Term, t.Interval] = {}
        used = [x for x in t.atoms_of(access.scalar or {}) if x.op == "atom" and x.data.kind in _DATA]
        for term in conjuncts(access.guard):
            if term.op not in ("lt", "le"):
                continue
            data = t.bare(term.args[0])
            if data.op != "atom" or data.data.kind not in _DATA:
                continue
            try:
                top = case.number(t.poly(term.args[1])) - (term.op == "lt")
            except t.Undefined:
                continue
            for atom in used:
                if _origin(atom) == _origin(data):
                    _, before = found.get(atom, (0, top))
                    found[atom] = (0, max(0, min(before, top)))
        return found

    def _bounded(self, access: Access, case: kernels.Case) -> Poly:
        """The address with every tested coordinate at its last value."""
        p = expand(access.scalar or {})
        layout = self.kernel.layout
        whole = [x.ids for x in shapes.axes(p).values() if x.thread and x.block and shapes.is_block(x.block)]
        tests: list[tuple[kernels.Coordinate, Poly]] = []
        for term in conjuncts(access.guard):
            item = layout.coordinate(term)
            # A test of the thread's number alone bounds no index that the block's number takes part in.
            if item is not None and not any(item.ids & ids and not ids <= item.ids for ids in whole):
                tests.append((item, self._last(item, case, p)))
        for item, last in tests:
            p = _at_most(p, item.index, min((x for o, x in tests if o.index == item.index), key=_value(case, last)))
        for axis in shapes.axes(p).values():
            if axis.thread and axis.grid and axis.block is not None:
                size = self._axis_size(axis, case)
                if size is not None:
                    index = t.add({(TID[axis.name],): 1}, t.multiply(axis.block, {(BID[axis.grid],): 1}) or {})
                    index.update({(count,): step for count, step in tiled(p, axis)})
                    p = _at_most(p, index, {(): size - 1})
        for place, size in self.tiled(access, case):
            p = _at_most(p, place.place, {(): size - 1})
        return p

    def tiled(self, access: Access, case: kernels.Case) -> Iterator[tuple[tiles.Coordinate, int]]:
        """The coordinates of an address along folded blocks or loops over tiles, and the sizes along them."""
        found = tiles.coordinates(expand(access.scalar or {}))
        for place in found:
            if place.digits and (place.is_folded or place.counters):
                size = self._tile_size(place, found, case)
                if size is not None:
                    yield place, size

    def _last(self, item: kernels.Coordinate, case: kernels.Case, p: Poly) -> Poly:
        """The greatest index that a tested coordinate is meant to have in the address ``p``."""
        last = t.add(item.limit, {(): 1}, -1)
        launch = self.launch
        if not self.by_grid or item.block is None or item.thread is None or launch is None or launch.grid is None:
            return last
        blocks = launch.grid["xyz".index(item.block.data.axis)]
        division = launches.division(blocks)
        if division is None:
            return last
        more = rounded_up(blocks, *division)
        try:
            size, by = (int(t.evaluate(x, self.current)) for x in division)
            if more is None or case.number(item.share) != by:
                return last
            rows = shapes.axes(t.add(p, item.index, -1)).values()
            if any(case.number(row.scale) >= case.size(item) for row in rows):
                return last  # rows have room for all that the test lets through
            return {(): min(case.size(item), size + more) - 1}
        except t.Undefined:
            return last

    def _axis_size(self, axis: shapes.Axis, case: kernels.Case) -> int | None:
        """The size along an untested axis: what another test of the coordinate says, else what the grid divides. Of
        workers, which go over more than one element each, there are as many as there are threads."""
        shared = self._shared_out(axis, case)
        same = [x for x in self.kernel.layout.coordinates if x.ids == axis.ids]
        if shared is not None and shared[1] > shared[2] and any(x.strides_grid for x in same):
            return None
        for item in same:
            if _rises(item.index):
                try:
                    return case.size(item)
                except t.Undefined:
                    continue
        if shared is None:
            return None
        size, by, each = shared
        return size * each // by if by > 0 else None

    def _shared_out(self, axis: shapes.Axis, case: kernels.Case) -> tuple[int, int, int] | None:
        """The size that the grid divides along an axis, by what, and the elements of a block's coordinate."""
        launch = self.launch
        division = launches.division(launch.grid["xyz".index(axis.grid)]) if launch and launch.grid else None
        if division is None:
            return None
        try:
            size, by = (int(t.evaluate(x, self.current)) for x in division)
            return size, by, case.number(axis.block or {})
        except t.Undefined:
            return None

    def _tile_size(self, item: tiles.Coordinate, among: list[tiles.Coordinate], case: kernels.Case) -> int | None:
        """The size along a coordinate of a folded block or of a loop over tiles: a row's length, else what the grid
        divides into blocks of the coordinate."""
        row, launch = tiles.row(item, among), self.launch
        try:
            if row is not None:
                return case.number({(row,): 1})
            if item.share is None or launch is None or launch.grid is None:
                return None
            (block,) = item.blocks
            division = launches.division(launch.grid["xyz".index(block.data.axis)])
            if division is None:
                return None
            size, by = (int(t.evaluate(x, self.current)) for x in division)
            return size if case.number(item.share) == by else None
        except t.Undefined:
            return None

    def _ranges(self, case: kernels.Case) -> dict[Term, t.Interval]:
        ranges: dict[Term, t.Interval] = {k: (v.data, v.data) for k, v in case.launch.mapping.items()
                                          if isinstance(v.data, int)}  # fmt: skip
        for i, axis in enumerate("xyz"):
            ranges[GDIM[axis]] = (case.grid[i], case.grid[i])
            ranges[BDIM[axis]] = (case.block[i], case.block[i])
            ranges[BID[axis]] = (0, max(0, case.grid[i] - 1))
            ranges[TID[axis]] = (0, max(0, case.block[i] - 1))
        for obj in {a.obj for a in self.flow.accesses if a.obj.kind == "global"}:
            # Data is filled such that it names elements; what the kernel puts there itself may name others. There is
            # room for all that a narrow type holds.
            own = any(a.obj is obj and a.mode != "r" for a in self.flow.accesses)
            top = max(self._largest(case), _ELEMENTS if own else 1) - 1
            loaded = self._loaded.get(obj.name, ())
            wide = [x for x in loaded if isinstance(x.type, Int) and x.type.bits >= 32 and top <= x.type.hi]
            ranges.update(dict.fromkeys(wide, (0, top)))
        ranges.update(dict.fromkeys(concrete.read_ends(self.flow), (0, _passes(case))))
        for loop in self.flow.loops:
            found = kernels.trips(loop)
            if found is None:
                continue
            distance, step = (_highest(x, ranges) for x in found)
            if distance is not None and step is not None and step > 0:
                ranges[loop.counter] = (0, max(0, distance // step))
        return ranges


def _is_signed(type_: Type) -> bool:
    """Whether values of a type, or all members of one, can be negative."""
    if isinstance(type_, Struct) and type_.fields:
        return all(map(_is_signed, type_.fields.values()))
    return isinstance(type_, Float) or (isinstance(type_, Int) and type_.signed)


def _origin(data: Term) -> tuple[object, ...]:
    """Where a value comes from: an element of an array or a member of one, whenever it is read."""
    info = data.data
    return (info.data, info.spelled, info.inputs) if info.kind == "load" and info.data is not None else (data,)


def _passes(case: kernels.Case) -> int:
    """What a loop that ends by what is read from memory runs to: several passes, by threads or by blocks."""
    return max(4 * case.block[0], 2 * case.grid[0])


def _bound(kernel: Kernel, launch: Launch | None) -> tuple[Kernel, Launch | None]:
    """The kernel with template parameters that no visible launch binds bound to something usual."""
    missing = [x for x in kernel.decl.template if x[0] not in dict(kernel.bindings)]
    if not missing:
        return kernel, launch
    usual: dict[str, Type | int] = {name: F32 if kind == "type" else 2 for name, kind in missing}
    shown = support.instances(kernel)
    if shown:
        usual.update({x.data.name: value for x, value in shown[0][0].items() if x.data.name in usual})
    made = type(kernel)(kernel.decl, tuple(sorted({**usual, **dict(kernel.bindings)}.items())), kernel.config)
    if launch is None:
        return made, None
    launched = type(launch)(launch.event, launch.flow, made, launch.config)
    made.launches.append(launched)
    return made, launched


def _element(obj: Obj, type_: Ptr) -> Type:
    """What a parameter points to; bytes where that has no size."""
    element = obj.element if obj.element is not None else type_.element
    return U8 if isinstance(element, (Void, Param)) or element.size is None else element


def _stated(launch: Launch | None) -> Values:
    """What the host's checks leave one value: ``n == 64``, or ``case 64`` of a switch over it."""
    found: Values = {}
    for condition in launch.conditions if launch is not None else ():
        if condition.op == "eq":
            for side, other in (condition.args, condition.args[::-1]):
                atom, number = t.bare(side), t.bare(other)
                # What is computed of something else (`odd_factor(n) == 1`) has the value that this gives it.
                own = atom.op == "atom" and atom.data.kind == "param" and isinstance(atom.type, Int)
                if own and isinstance(number.data, int):
                    found.setdefault(atom, number.data)
    return found


def _asks_runtime(leaf: Term) -> bool:
    """Whether an atom is what a function of the CUDA runtime returns."""
    info = leaf.data
    callee = info.data.name if isinstance(info.data, Call) else info.name
    return info.kind == "call" and callee.startswith(("cuda", "hip"))


def _together(
    open_: Iterable[Term], conditions: Iterable[tuple[Term, set[Term]]]
) -> list[tuple[list[Term], list[Term]]]:
    """The atoms in groups that share conditions, each with all conditions that it takes part in."""
    groups: list[tuple[list[Term], list[Term]]] = []
    order = list(open_)
    for condition, own in conditions:
        atoms, checks = {x for x in order if x in own}, [condition]
        if not atoms:
            continue
        for group in [g for g in groups if not atoms.isdisjoint(g[0])]:
            groups.remove(group)
            atoms, checks = {*group[0], *atoms}, [*group[1], *checks]
        groups.append(([x for x in order if x in atoms], checks))
    return groups


def _beside(wished: int, known: Iterable[int], checks: Iterable[Term]) -> list[int]:
    """What to try for a size instead of a number: others beside it, ``known`` ones, and multiples of what the host
    divides by, the nearest first and 0 last."""
    divisors = {p.args[1].data for p in t.inside(checks) if p.op in ("mod", "div") and p.args[1].op == "const"}
    units = [u for u in divisors if isinstance(u, int) and u > 1]
    wanted = {n + k for n in (wished, *known) for k in (-1, 0, 1)} | {wished + k for k in (-3, -2, 2, 3)}
    for unit in (*units, math.lcm(*units)):
        wanted |= {n // unit * unit + k for n in (wished, *known) for k in (0, unit)}
    return sorted((v for v in wanted if v >= 0), key=lambda v: (v == 0 and wished != 0, abs(v - wished), v))


def _induction(leaf: Term) -> Induction | None:
    """What an atom is that a loop of the host changes or leaves behind."""
    found = leaf.data.data
    return found if leaf.data.kind in ("loop", "exit") and isinstance(found, Induction) else None


def _made_by_loops(leaves: Iterable[Term]) -> list[Term]:
    """What loops of the host begin with and compute, where atoms are what they change or leave behind."""
    found: dict[Term, None] = {}
    waiting, seen = list(leaves), set()
    while waiting:
        info = _induction(waiting.pop())
        if info is None or info.loop in seen:
            continue
        seen.add(info.loop)
        made = [x for each in info.loop.inductions.values() for x in (each.init, each.next) if x is not None]
        found |= dict.fromkeys(made)
        waiting += search.leaves_of(made)
    return [*found]


def _looped(host: Values, late: Iterable[Term]) -> Values:
    """The values with those that loops of the host begin with, and leave behind."""
    result = dict(host)
    for leaf in late:
        info: Induction = leaf.data.data
        begins = leaf.data.kind == "loop"
        try:
            result[leaf] = _whole_value(info.init, result) if begins else _left(info, result)
        except t.Undefined:
            result[leaf] = 0 if begins else max(leaf.data.lo, min(leaf.data.hi, _SMALL))
    return result


def _left(info: Induction, host: Values) -> int:
    """What a loop of the host leaves in a variable, its passes made one after the other."""
    loop = info.loop
    if info.term is None or loop.cond is None or loop.leaves:
        raise t.Undefined
    own = {x.term: x for x in loop.inductions.values() if x.term is not None}
    taken = {info.term, *(t.leaves(loop.cond) & own.keys())}
    for term in (waiting := list(taken)):
        following = own[term].next
        more = search.leaves_of([following] if following is not None else ()) & own.keys() - taken
        taken |= more
        waiting += more
    state = {**host, **{x: _whole_value(own[x].init, host) for x in taken}}
    entered = isinstance(loop.node, While) and loop.node.post
    for _ in range(_PASSES):
        if not entered and not t.evaluate(loop.cond, state):
            return state[info.term]
        state |= {x: _whole_value(own[x].next, state) for x in taken}
        entered = False
    raise t.Undefined


def _whole_value(term: Term | None, host: Values) -> int:
    value = t.evaluate(term, host) if term is not None else None
    if not isinstance(value, int):
        raise t.Undefined
    return value


def _numbers(value: Any) -> Iterator[Term]:
    if isinstance(value, t.Term):
        yield value
    elif isinstance(value, Record):
        for inner in value.fields.values():
            yield from _numbers(inner)


_IDS = frozenset([*TID.values(), *BID.values()])


def _rises(p: Poly | None) -> bool:
    """Whether a polynomial of numbers that are positive can grow with them."""
    return p is not None and any(value > 0 for value in p.values())


def _at_most(p: Poly, index: Poly, last: Poly) -> Poly:
    """``p`` with ``index`` at its ``last`` value, unless it falls with it: then its end is not there."""
    return replaced(p, index, last) if _rises(scale(p, index)) else p


def _value(case: kernels.Case, unknown: Poly) -> Callable[[Poly], tuple[bool, int]]:
    """Orders polynomials by their value in a launch, those that have none behind ``unknown``."""

    def key(p: Poly) -> tuple[bool, int]:
        try:
            return False, case.number(p)
        except t.Undefined:
            return p is not unknown, 0

    return key


def _highest(p: Poly, ranges: dict[Term, t.Interval]) -> int | None:
    """The greatest value of a polynomial; None where a part of it has no bound."""
    total = 0
    memo: dict[Term, t.Interval] = {}
    for monomial, value in p.items():
        low, high = 1, 1
        for item in monomial:
            a, b = t.bounds(item, ranges, memo)
            limit = item.data.data.limit if item.op == "atom" and item.data.kind == "loop" else None
            if limit is not None:
                b = max(a, min(b, t.bounds(limit[0], ranges, memo)[1] + limit[1]))
            ends = [low * a, low * b, high * a, high * b]
            low, high = min(ends), max(ends)
        best = max(low * value, high * value)
        if abs(best) > 1 << 62:
            return None
        total += best
    return total


def _whole(name: str, number: int | float) -> int:
    """A given number as the host's arithmetic has it."""
    if not -_LARGEST < number < _LARGEST and not isinstance(number, int):
        raise Unready(f"{name} = {number} is no size")
    return int(number)


def _given(kernel: Kernel, launch: Launch | None) -> dict[str, int | float]:
    """What ``// cudalint: confirm(n = 611, block = 256)`` gives above the kernel or on the launch's line, by the names
    of the kernel and of the host."""
    decl = kernel.decl
    places = [(decl.file, decl.file.span(decl.start, decl.start).text.line, 3)]
    if launch is not None:
        node, file = launch.event.node, launch.event.fn.file
        places.append((file, file.span(node.start, node.start).text.line, 1))
    result: dict[str, int | float] = {}
    for file, line, above in places:
        for comment in given(file.raw):
            if line - above <= comment.lines[1] and comment.lines[0] <= line:
                if comment.fault is not None:
                    raise Unready(comment.fault)
                result.update(comment.values)
    if launch is not None:
        for formal, actual in launch.mapping.items():
            bare = t.bare(actual)
            if formal.data.name in result and bare.op == "atom":
                result.setdefault(bare.data.name, result[formal.data.name])
    return result


__all__ = ["Harness", "Setup", "Triple", "Unready", "Values", "replaced"]
