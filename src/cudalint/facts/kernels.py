"""How a kernel lays its threads over its data: which coordinates it tests, against which sizes, in which loops.

A *coordinate* is what a test on the way to a global access bounds: ``X < n`` with X made of launch ids
and loop counters. Where the kernel's own loop steps it up to the bound, the loop covers the data whatever
the launch (*grid-stride* where it steps by the grid). Where nothing does, each thread handles a fixed share
of elements once (*one-element*), and the launch has to be large enough: :class:`Case` tells what one
launch with given sizes reaches.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from cudalint.facts import terms as t
from cudalint.facts.events import conjuncts
from cudalint.facts.ids import BDIM, BID, GDIM, TID
from cudalint.facts.shapes import axes, is_block, upper_bounds
from cudalint.facts.uniformity import expand
from cudalint.ir.types import Float

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cudalint.facts.events import Access, Flow, Loop
    from cudalint.facts.model import Launch
    from cudalint.facts.terms import Poly, Term

AXES = "xyz"
_COORDINATES = tuple(ids[axis] for ids in (GDIM, BDIM, BID, TID) for axis in AXES)
_IDS = frozenset({"tid", "bid"})
_DIMENSIONS = frozenset({"tid", "bid", "bdim", "gdim"})


class Coordinate:
    """``index < limit``, as it holds on the way to ``accesses``.

    ``index`` holds what differs between threads or passes (loops written out over their counters),
    ``limit`` the rest: the size, uniform over the grid. ``term`` is the comparison as a term. ``axes``
    are the launch axes whose ids take part, ``ids`` those ids. ``loop`` is the loop that steps the
    coordinate up to this very limit, None where no loop does; ``counters`` are the other loops in it.
    """

    __slots__ = ("_last", "accesses", "axes", "counters", "ids", "inclusive", "index", "limit", "loop", "term")

    def __init__(
        self, term: Term, index: Poly, limit: Poly, ids: frozenset[Term], loop: Loop | None, counters: tuple[Loop, ...]
    ) -> None:
        self.term, self.index, self.limit, self.ids, self.loop, self.counters = term, index, limit, ids, loop, counters
        self.axes = "".join(a for a in AXES if TID[a] in ids or BID[a] in ids)
        self.accesses: list[Access] = []
        self.inclusive = len(limit) > 1 and limit.get((), 0) == 1
        """Written ``index <= n`` or ``index < n + 1``: n may be what was meant, and the guard off by one."""
        self._last: float | None = None

    @property
    def leaves(self) -> set[Term]:
        """All that the index is made of."""
        return {leaf for item in t.atoms_of(self.index) for leaf in t.leaves(item)}

    @property
    def last(self) -> float:
        """The last thread of its axis that a test of its own number against a constant lets through."""
        if self._last is None:
            self._last = math.inf
            for bound in upper_bounds(self.accesses[0].guard) if self.accesses else ():
                limit = t.constant(bound.limit)
                if limit is not None and self.thread is not None and bound.left == {(self.thread,): 1}:
                    self._last = min(self._last, limit - (not bound.inclusive))
        return self._last

    @property
    def is_global(self) -> bool:
        """Made of a block's number and a thread's, of one axis."""
        return len(self.axes) == 1 and TID[self.axes] in self.ids and BID[self.axes] in self.ids

    @property
    def strides_grid(self) -> bool:
        """The loop steps by a multiple of the grid's dimension."""
        return self.loop is not None and any(GDIM[a] in t.leaves(x) for x in t.atoms_of(self.index) for a in AXES)

    @property
    def thread(self) -> Term | None:
        """The one ``threadIdx`` in it, None where there is none or several."""
        return self._one("tid")

    @property
    def block(self) -> Term | None:
        """The one ``blockIdx`` in it, which may be of another axis than the thread's (a transpose)."""
        return self._one("bid")

    def _one(self, kind: str) -> Term | None:
        found = [x for x in self.ids if x.data.kind == kind]
        return found[0] if len(found) == 1 else None

    @property
    def share(self) -> Poly:
        """Elements from one block's first to the next block's: ``k * blockDim`` for k elements a thread."""
        return _coefficient(self.index, self.block) if self.block is not None else {}

    @property
    def pitch(self) -> Poly:
        """Elements from one thread's first to the next thread's."""
        return _coefficient(self.index, self.thread) if self.thread is not None else {}

    @property
    def each(self) -> Poly:
        """Elements that one thread handles: up to the next thread's first, or to the next block's where the blocks
        come between (``threadIdx.x * blockDim.x + blockIdx.x``)."""
        pitch, share = self.pitch, self.share
        return share if t.constant(share) and pitch and t.constant(pitch) is None else pitch


class Layout:
    """The coordinates of one kernel. Tests in front of global accesses only count where the access follows them."""

    __slots__ = ("_by_term", "coordinates", "flow")

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self._by_term: dict[Term, Coordinate | None] = {}
        self.coordinates: list[Coordinate] = []
        for access in flow.accesses:
            if access.obj.kind == "global":
                self._add(access)

    def _add(self, access: Access) -> None:
        touched: set[Term] | None = None
        for term in conjuncts(access.guard):
            found = self.coordinate(term)
            if found is None:
                continue
            if touched is None:
                touched = ids_of(_index_atoms(access))
            if not found.ids <= touched or not _follows(access, found):
                continue
            if not found.accesses:
                self.coordinates.append(found)
            found.accesses.append(access)

    def coordinate(self, term: Term) -> Coordinate | None:
        """The coordinate that a comparison bounds from above; None where it bounds none."""
        if term not in self._by_term:
            self._by_term[term] = coordinate(term)
        return self._by_term[term]

    def groups(self, axis: str) -> list[list[Coordinate]]:
        """The coordinates of an axis, those that are made of the same launch ids together."""
        result: dict[frozenset[Term], list[Coordinate]] = {}
        for item in self.coordinates:
            if axis in item.axes:
                result.setdefault(item.ids, []).append(item)
        return list(result.values())

    def strides(self, axis: str) -> bool:
        """Whether a loop steps some coordinate of the axis over its data: the grid need not cover it."""
        return any(axis in c.axes and (c.loop is not None) for c in self.coordinates)


def coordinate(term: Term) -> Coordinate | None:
    """``term`` read as ``index < limit``."""
    if term.op not in ("lt", "le") or any(isinstance(a.type, Float) for a in term.args):
        return None
    left, right = t.poly(term.args[0]), t.poly(term.args[1])
    raw = t.add(left, right, -1)
    excess = expand(raw)
    index: Poly = {}
    limit: Poly = {(): 1} if term.op == "le" else {}
    ids: set[Term] = set()
    for monomial, value in excess.items():
        grows = [x for x in monomial if varies(x)]
        if grows:
            index[monomial] = value
            ids |= ids_of(grows)
        else:
            limit = t.add(limit, {monomial: -value})
    if not ids:
        return None
    loops = {x.data.data: None for m in index for x in m if x.op == "atom" and x.data.kind == "count"}
    own = next((x for x in loops if x.cond is not None and term in _conjuncts(x.cond)), None)
    if own is None:
        # `while (true) { if (i >= n) break; … }` ends by this test as well.
        own = next((x for x in loops if any(t.lnot(term) in disjuncts(c) for c in x.control)), None)
    return Coordinate(term, index, limit, frozenset(ids), own, tuple(x for x in loops if x is not own))


def varies(item: Term) -> bool:
    """Whether an atom of a polynomial differs between threads or passes."""
    if item.op == "atom":
        return item.data.kind in ("tid", "bid", "count", "loop")
    return any(x.data.kind in ("tid", "bid", "loop", "count") for x in t.leaves(item))


def ids_of(items: Iterable[Term]) -> set[Term]:
    """The launch ids that terms are made of, through loop variables, loads and their like too."""
    return set().union(*map(_ids, items))


def _ids(term: Term) -> frozenset[Term]:
    """The launch ids of one term, kept with it: the walk that made it is done."""
    if term.ids is not None:
        return term.ids
    result: set[Term] = set()
    seen: set[Term] = set()
    stack = [term]
    while stack:
        item = stack.pop()
        if item in seen:
            continue
        seen.add(item)
        if item.op != "atom":
            stack.extend(item.args)
            continue
        info = item.data
        if info.kind in _IDS:
            result.add(item)
        elif info.kind == "loop":
            stack.extend(x for x in (info.data.init, info.data.step, info.data.next) if x is not None)
        else:
            stack.extend(info.inputs)
    term.ids = frozenset(result)
    return term.ids


def _follows(access: Access, item: Coordinate) -> bool:
    """Whether the address is made of the coordinate: not of a block's number and a thread's of which the test
    asks for one alone, nor of something else than the quotient that the test asks for."""
    if access.scalar is None:
        return True
    p = expand(access.scalar)
    atoms = set(t.atoms_of(p))
    made = [x for x in atoms if x.op != "atom"]
    for tested in t.atoms_of(item.index):
        if tested.op != "atom" and varies(tested) and tested not in atoms:
            return any(tested in x.args for x in made)
    if len({x.data.kind for x in item.ids}) > 1:
        return True
    if any(not item.ids.isdisjoint(ids_of([x])) for x in made):
        return all(x in t.atoms_of(item.index) for x in made if not item.ids.isdisjoint(ids_of([x])))
    found = axes(p).values()
    return all(any(x in a.ids and (a.block is None or not is_block(a.block)) for a in found) for x in item.ids)


def _index_atoms(access: Access) -> list[Term]:
    if access.scalar is not None:
        return list(t.atoms_of(access.scalar))
    items = [access.index] if access.index is not None else []
    return [*items, *(x for x, _ in access.dims), *access.obj.origin]


def _conjuncts(term: Term) -> list[Term]:
    return [x for a in term.args for x in _conjuncts(a)] if term.op == "land" else [term]


def disjuncts(term: Term) -> list[Term]:
    """The conditions that ``||`` and ``&&`` join in ``term``."""
    return [x for a in term.args for x in disjuncts(a)] if term.op in ("lor", "land") else [term]


def _coefficient(p: Poly, item: Term) -> Poly:
    result: Poly = {}
    for monomial, value in p.items():
        if item in monomial:
            rest = list(monomial)
            rest.remove(item)
            result[tuple(rest)] = result.get(tuple(rest), 0) + value
    return result


def trips(loop: Loop) -> tuple[Poly, Poly] | None:
    """A loop's passes as (distance, step): it runs ``distance // step + 1`` times when distance >= 0."""
    if loop.trips is False:
        loop.trips = _trips(loop)
    return loop.trips


def _trips(loop: Loop) -> tuple[Poly, Poly] | None:
    for info in loop.inductions.values():
        if info.limit is None or info.step is None or info.init is None:
            continue
        bound, offset = info.limit
        step = t.poly(info.step)
        distance = t.add(t.add(t.poly(bound), {(): offset} if offset else {}), t.poly(info.init), -1)
        constant = t.constant(step)
        if constant is not None and constant < 0:
            distance, step = t.scale(distance, -1), {(): -constant}
        return expand(distance), step
    return None


# --- one launch with given sizes ------------------------------------------------------------------


class Case:
    """A launch at given host sizes: its dimensions, and what the last thread of each axis comes to.

    ``grid`` and ``block`` are (x, y, z). ``empty`` is an axis with no block or no thread, None otherwise.
    """

    __slots__ = ("_common", "_own", "block", "empty", "grid", "host", "launch", "values")

    def __init__(
        self, launch: Launch, host: Mapping[Term, int], grid: tuple[int, int, int], block: tuple[int, int, int]
    ) -> None:
        self.launch, self.host, self.grid, self.block = launch, host, grid, block
        self._common: tuple[int, dict[Term, int]] = 0, {}
        self._own = False
        dimensions = (*grid, *block)
        self.values = dict(zip(_COORDINATES, (*dimensions, *[x - 1 if x > 0 else 0 for x in dimensions])))
        self.empty = None
        if min(dimensions) < 1:
            self.empty = next(a for a, g, b in zip(AXES, grid, block, strict=True) if g < 1 or b < 1)

    def of(self, block: tuple[int, int, int], thread: tuple[int, int, int]) -> Case:
        """The same case as one thread sees it."""
        result = object.__new__(Case)
        result.launch, result.host, result.grid, result.block = self.launch, self.host, self.grid, self.block
        result.empty = self.empty
        if self._common[0] != len(self.values):
            common = {x: v for x, v in self.values.items() if x.op == "atom" and x.data.kind != "count"}
            self._common = len(self.values), common
        result._common, result._own = (0, {}), True
        result.values = dict(self._common[1])
        for i, axis in enumerate(AXES):
            result.values[BID[axis]], result.values[TID[axis]] = block[i], thread[i]
        return result

    def truth(self, term: Term) -> bool | None:
        """Whether a kernel condition holds for this thread; None where it hangs on data or on a loop's pass."""
        try:
            for leaf in t.leaves(term):
                if leaf not in self.values:
                    if leaf.data.kind in ("loop", "count"):
                        return None
                    self._item(leaf)
            return bool(t.evaluate(term, self.values))
        except t.Undefined:
            return None

    @property
    def possible(self) -> bool:
        """Whether the driver takes the launch: dimensions within their limits, and none of them 0."""
        gx, gy, gz = self.grid
        return (
            0 < gx < 1 << 31 and 0 < gy < 1 << 16 and 0 < gz < 1 << 16 and min(self.block) > 0 and not self.oversized
        )  # fmt: skip

    @property
    def oversized(self) -> bool:
        """Whether no device takes a block of so many threads, however many blocks there are. None on one axis does not
        make it any smaller on another."""
        x, y, z = (max(1, extent) for extent in self.block)
        return z > 64 or x * y * z > 1024

    def number(self, p: Poly) -> int:
        """A kernel polynomial without ids; Undefined where a part has no value here."""
        return sum(c * self._product(m) for m, c in p.items())

    def peak(self, p: Poly) -> int:
        """The greatest value of a polynomial of launch ids and loop counters over all threads.

        Undefined where it is not known to grow with every id in it.
        """
        total = 0
        for monomial, value in p.items():
            if value < 0 and any(varies(x) for x in monomial):
                raise t.Undefined
            total += value * self._product(monomial)
        return total

    def _product(self, monomial: tuple[Term, ...]) -> int:
        result = 1
        for item in monomial:
            result *= self._item(item)
        return result

    def _item(self, item: Term) -> int:
        found = self.values.get(item)
        if found is not None:
            return found
        if item.op == "atom":
            if item.data.kind == "count":
                found = self.passes(item.data.data)
            else:
                actual = self.launch.mapping.get(item)
                if actual is None:
                    raise t.Undefined
                found = int(t.evaluate(actual, self.host))
        elif item.op == "const":
            return int(item.data)
        elif not varies(item):
            for leaf in t.leaves(item):
                self._item(leaf)
            found = int(t.evaluate(item, self.values))
        elif item.op in ("div", "shr") and not varies(item.args[1]):
            # Rounding down keeps the order, so the greatest dividend gives the greatest quotient.
            top = self.peak(expand(t.poly(item.args[0])))
            by = self.number(t.poly(item.args[1]))
            if by < (1 if item.op == "div" else 0):
                raise t.Undefined
            found = top // by if item.op == "div" else top >> by
        elif item.op == "cast":
            found = self.peak(expand(t.poly(item.args[0])))
        else:
            raise t.Undefined
        self.values[item] = found
        return found

    def passes(self, loop: Loop) -> int:
        """The number of the last pass; of a loop in which threads make more or fewer passes only one thread's."""
        found = trips(loop)
        if found is None:
            raise t.Undefined
        distance, step = found
        if not self._own and any(varies(x) for p in found for x in t.atoms_of(p)):
            raise t.Undefined
        by = self.number(step)
        if by < 1:
            raise t.Undefined
        return max(0, self.number(distance) // by)

    def reach(self, item: Coordinate) -> int:
        """Elements 0 … reach - 1 of a coordinate are those that the launch can come to.

        A block's share ends where the next block's begins, a thread's where the next thread's does: what a
        thread handles beyond the element that is tested (a pack, an unrolled pass) is taken to be there.
        """
        if self.empty is not None:
            return 0
        furthest = self._furthest(item)
        if furthest is not self:
            return furthest.reach(item)
        last = self.peak(item.index) + 1
        tid, bid = item.thread, item.block
        if bid is not None and item.each != item.pitch:
            between = self.number(item.share) * self.grid[AXES.index(bid.data.axis)]
            if between < self.number(item.pitch):
                return between  # the first hole
        if tid is not None and not any(x.op == "atom" and x.data.kind == "count" for x in t.atoms_of(item.index)):
            last += max(0, self.number(item.each) - 1)
        if bid is not None and len(item.ids) <= 2:
            alone = {m: c for m, c in item.index.items() if bid in m and tid not in m}
            if alone and not any(varies(x) for m in alone for x in m if x is not bid):
                kept = self.values[bid]
                self.values[bid] = kept + 1
                try:
                    last = max(last, sum(c * self._fresh(m, bid) for m, c in alone.items()))
                finally:
                    self.values[bid] = kept
        return last

    def _furthest(self, item: Coordinate) -> Case:
        """The case as the last thread sees it that a test of its own number lets through to the element."""
        tid = item.thread
        if tid is None or not 0 <= item.last < self.values[tid]:
            return self
        x, y, z = (int(item.last) if TID[a] is tid else self.values[TID[a]] for a in AXES)
        return self.of((self.values[BID["x"]], self.values[BID["y"]], self.values[BID["z"]]), (x, y, z))

    def _fresh(self, monomial: tuple[Term, ...], bid: Term) -> int:
        """A product in which the block's number is the one of the moment."""
        result = 1
        for item in monomial:
            result *= self.values[bid] if item is bid else self._item(item)
        return result

    def size(self, item: Coordinate) -> int:
        """Elements that the coordinate's test lets through."""
        return self.number(item.limit)


def case(launch: Launch, host: Mapping[Term, int]) -> Case | None:
    """The launch at host sizes; None where a dimension has no value there."""
    if launch.grid is None or launch.block is None:
        return None
    values = [t.evaluated(x, host) for x in (*launch.grid, *launch.block)]
    if None in values:
        return None
    numbers = [int(x) for x in values]
    return Case(launch, host, (numbers[0], numbers[1], numbers[2]), (numbers[3], numbers[4], numbers[5]))
