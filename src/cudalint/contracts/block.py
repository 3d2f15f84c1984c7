"""What a kernel needs of its block, from facts: whole tiles, whole warps, a power of two.

An experiment that chooses a launch of its own keeps to it, so that a sound kernel is not run in a block that it was
not written for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudalint.facts import kernels, shapes
from cudalint.facts import terms as t
from cudalint.facts.events import chain, conditions, conjuncts, conjuncts_of
from cudalint.facts.ids import BDIM, BID, TID
from cudalint.facts.uniformity import expand
from cudalint.lazy import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudalint.facts.events import Access, Collective, Flow, Loop, Obj
    from cudalint.facts.terms import Poly, Term

Triple = tuple[int, int, int]
_LIMITS = (1024, 1024, 64)
_WARP = 32


class Shape(NamedTuple):
    """Needs along x, y and z: an extent between ``least`` and ``most``, a multiple of ``multiple``, a power of two
    where ``power`` says so. The threads of a block are a multiple of ``together``."""

    least: Triple = (1, 1, 1)
    most: Triple = _LIMITS
    multiple: Triple = (1, 1, 1)
    power: tuple[bool, bool, bool] = (False, False, False)
    together: int = 1

    def fit(self, block: Triple) -> Triple:
        """The block nearest to ``block`` that the kernel can have, larger rather than smaller."""
        x, y, z = (self._fitted(at, extent) for at, extent in enumerate(block))
        if x * y * z % self.together:
            widened = -(-x // self.together) * self.together
            x = 1 << (widened - 1).bit_length() if self.power[0] else widened
        while x * y * z > _LIMITS[0] and max(y, z) > 1:
            y, z = (y, z // 2) if z > 1 else (y // 2, z)
        return x, y, z

    def _fitted(self, at: int, extent: int) -> int:
        each = self.multiple[at]
        extent = -(-max(extent, self.least[at]) // each) * each
        if self.power[at]:
            extent = 1 << (extent - 1).bit_length()
        while extent > self.most[at] > 0:
            extent = extent // 2 if self.power[at] else max(1, self.most[at] // each * each)
        return extent


def shape(flow: Flow) -> Shape:
    """What the kernel of ``flow`` needs, or says that it needs."""
    least, most, multiple = [1, 1, 1], list(_LIMITS), [1, 1, 1]
    tree = folded(flow)
    power = [BDIM[a] in tree for a in "xyz"]
    for access in flow.accesses:
        if access.obj.kind == "shared":
            _room(access, most)
    for term in t.inside(_terms(flow)):
        _part(term, multiple)
    places = [expand(a.scalar) for a in flow.accesses if a.scalar]
    whole = list(whole_tiles(flow))
    for at, axis in enumerate("xyz"):
        extents = {x for p in places for x in _tiles(p, axis)}
        extents |= {x for loop in flow.loops for x in _steps(flow, loop, axis)}
        extents = set(_stated(flow, axis)) or extents
        if len(extents) == 1 and 0 < min(extents) <= most[at]:
            least[at] = most[at] = extents.pop()
        elif power[at]:
            ahead = (t.constant(t.add(a.scalar, {(TID[axis],): 1}, -1)) for a in _shared(flow) if a.scalar)
            least[at] = min(most[at], max([1, *(2 * x for x in ahead if x is not None)]))
        slots = [tile.slots for tile in whole if tile.axis == axis]
        slots += [x for x in (_filled(a, axis) for a in _shared(flow)) if x <= most[at]]
        least[at] = max(least[at], min(max(slots, default=1), most[at]))
    groups = [_together(x) for x in flow.collectives if x.reads]
    return Shape(
        (least[0], least[1], least[2]), (most[0], most[1], most[2]), (multiple[0], multiple[1], multiple[2]),
        (power[0], power[1], power[2]), max(groups, default=1),
    )  # fmt: skip


def _together(collective: Collective) -> int:
    """The lanes that exchange values with each other: a shuffle's segment, or its warp or tile; of `xor` by a constant
    those whose numbers differ in its bits only, and 1 where a parameter says which they are."""
    width, mask = collective.width, collective.operand
    if mask is not None and any(x.data.kind == "param" for x in t.leaves(mask)):
        return 1
    segment = width.data if width is not None and width.op == "const" and width.data > 0 else _WARP
    if collective.reads == "xor" and mask is not None and mask.op == "const" and mask.data > 0:
        segment = min(segment, 1 << mask.data.bit_length())
    return min(segment, collective.lanes or _WARP)


def _shared(flow: Flow) -> Iterator[Access]:
    return (a for a in flow.accesses if a.obj.kind == "shared")


def folded(flow: Flow) -> set[Term]:
    """The block's extents and the kernel's parameters that the extents of trees are made of: distances in shared
    memory that loops halve, or double up to them."""
    found: set[Term] = set()
    for loop in flow.loops:
        for item in loop.inductions.values():
            if item.term is None or item.next is None or item.init is None or not _distance(flow, loop, item.term):
                continue
            by = _factor(item.next, item.term)
            if by == "halved":
                found |= t.leaves(item.init)
            elif by == "doubled" and loop.cond is not None:
                found |= t.leaves(loop.cond)
    return found & {*BDIM.values(), *flow.params.values()}


def _steps(flow: Flow, loop: Loop, axis: str) -> Iterator[int]:
    """The extent of a block that a constant written in its place means: a loop goes over data from each thread's own
    element on in steps of it. Where only some threads come to the loop, they alone have to be so many."""
    asked = {x for guard in chain(loop.guard) for x in t.leaves(guard.term)}
    if not flow.within(loop) or not asked.isdisjoint(TID.values()):
        return
    for item in loop.inductions.values():
        if item.init is None or item.step is None or item.limit is None:
            continue
        first, step = expand(t.poly(item.init)), t.constant(t.poly(item.step))
        ids = kernels.ids_of(t.atoms_of(first))
        if ids == {TID[axis]} and shapes.coefficient(first, TID[axis]) == {(): 1} and step is not None and step > 1:
            yield step


def _stated(flow: Flow, axis: str) -> Iterator[int]:
    """The extents of a block that the kernel asserts."""
    for term in (x for asserted in flow.asserted for x in conjuncts_of(asserted.term)):
        if term.op == "eq" and BDIM[axis] in (t.bare(x) for x in term.args):
            yield from (x.data for x in term.args if x.op == "const")


def _filled(access: Access, axis: str) -> int:
    """The slots of an array of which each thread stores its own, where the only test is whether it has one; 1 of any
    other."""
    if access.mode != "w" or len(access.dims) != 1:
        return 1
    tests = list(conjuncts(access.guard))
    bounds = [x for x in shapes.upper_bounds(access.guard) if x.left == {(TID[axis],): 1}]
    if len(tests) != 1 or len(bounds) != 1:
        return 1
    (index, extent), limit = access.dims[0], t.constant(bounds[0].limit)
    if _own_slot(index) != axis or limit is None or extent != limit + bounds[0].inclusive:
        return 1
    return extent


def _distance(flow: Flow, loop: Loop, counter: Term) -> bool:
    return any(
        a.obj.kind == "shared" and a.index is not None and counter in t.leaves(a.index) for a in flow.within(loop)
    )


def _factor(after: Term, before: Term) -> str:
    """Whether a value is half or twice what it was."""
    after = t.bare(after)
    if len(after.args) != 2 or t.bare(after.args[0]) is not t.bare(before) or after.args[1].op != "const":
        return ""
    step = (after.op, after.args[1].data)
    return "halved" if step in _HALVED else "doubled" if step in _DOUBLED else ""


_HALVED, _DOUBLED = {("shr", 1), ("div", 2)}, {("shl", 1), ("mul", 2)}


def _room(access: Access, most: list[int]) -> None:
    """An array in shared memory that is indexed by a thread's coordinate, forwards or backwards, has room for so many
    threads."""
    tests = [t.leaves(term) for term in conjuncts(access.guard)]
    # A test in which a block's number takes part bounds the element, not the place in the block.
    tested = {x for leaves in tests if leaves.isdisjoint(BID.values()) for x in leaves}
    for index, extent in access.dims:
        if extent is None:
            continue
        p = expand(t.poly(index))
        for at, axis in enumerate("xyz"):
            if TID[axis] in tested:
                continue
            ahead, back = (t.constant(t.add(p, {(TID[axis],): sign}, -1)) for sign in (1, -1))
            if ahead is not None and extent > ahead:
                most[at] = min(most[at], extent - max(0, ahead))
            elif back is not None and extent > back >= 0:
                most[at] = min(most[at], back + 1)


class Tile(NamedTuple):
    """An array in shared memory of which each thread along ``axis`` stores the slot of its own number, and no other,
    and of which ``read`` comes to the first ``slots``."""

    axis: str
    slots: int
    read: Access


def whole_tiles(flow: Flow) -> Iterator[Tile]:
    """What is read of tiles with a slot for each thread, where it can be told without asking for data."""
    stored: dict[tuple[Obj, int], set[str | None]] = {}
    for access in _shared(flow):
        for number, (index, _) in enumerate(access.dims):
            # What an update finds has to be there before.
            if access.mode == "w" or (access.mode != "r" and _picked(access, index) is None):
                stored.setdefault((access.obj, number), set()).add(_own_slot(index))
    for access in _shared(flow):
        for number, (index, extent) in enumerate(access.dims):
            axes = stored.get((access.obj, number), set())
            axis = next(iter(axes)) if len(axes) == 1 else None
            p = expand(t.poly(index))
            last = _furthest(access, p) if axis is not None and extent is not None else None
            if axis is not None and last is None:
                last = _paired(access, axis, p) or _picked(access, index)
            if axis is not None and last is not None and 0 < last < (extent or 0):
                yield Tile(axis, last + 1, access)


def _own_slot(index: Term) -> str | None:
    """The axis whose thread number an index is."""
    return next((axis for axis in "xyz" if t.bare(index) is TID[axis]), None)


def _furthest(access: Access, p: Poly) -> int | None:
    """The greatest value of an index that is made of constants, of passes of loops that run a known number of times,
    and of threads counted down from a constant; None of any other, or where a test asks for a part of it."""
    last = 0
    counts: dict[Term, Loop] = {}
    for monomial, factor in p.items():
        if not monomial:
            last += factor
            continue
        (item, *more) = monomial
        if more or item.op != "atom" or item.data.kind not in ("count", "tid"):
            return None
        if item.data.kind == "count":
            counts[item] = item.data.data
            passes = _last_pass(item.data.data)
            if passes is None:
                return None
            last += max(0, factor * passes)
        elif factor > 0:
            return None
    for guard in chain(access.guard):
        if guard.loop is None or guard.loop not in counts.values():
            asked = (x.data.data for x in t.leaves(guard.term) if x.data.kind in ("loop", "exit"))
            if any(x.loop in counts.values() for x in asked):
                return None
    return last


def _paired(access: Access, axis: str, p: Poly) -> int | None:
    """The last slot of the first pass of a tree of a constant extent: each thread below a distance comes to the slot
    so far ahead of its own, and beside the loop nothing else says which threads do."""
    ahead = t.add(p, {(TID[axis],): 1}, -1)
    alone = False
    for guard in chain(access.guard):
        for term in conjuncts_of(guard.term):
            pair = term.op == "lt" and t.bare(term.args[0]) is TID[axis] and t.poly(t.bare(term.args[1])) == ahead
            if not pair and guard.loop is None and guard.why != "assert" and BID[axis] not in t.leaves(term):
                return None
            alone = alone or pair
    distance = t.constant(ahead) if alone else None
    (item,) = t.atoms_of(ahead) if alone and len(ahead) == 1 and distance is None else (None,)
    if item is not None and item.op == "atom" and item.data.kind == "loop":
        induction = item.data.data
        halved = induction.next is not None and _factor(induction.next, item) == "halved"
        distance = t.constant(t.poly(induction.init)) if halved and induction.init is not None else None
    return 2 * distance - 1 if distance is not None and distance > 0 else None


def _picked(access: Access, index: Term) -> int | None:
    """The last slot that data picks which is as wide as it is, and which nothing asks about before."""
    leaves = t.leaves(index)
    if not leaves or any(x.data.kind != "load" for x in leaves):
        return None
    if any(not leaves.isdisjoint(t.leaves(term)) for term in conjuncts(access.guard)):
        return None
    low, high = t.bounds(index, {})
    return high if low >= 0 else None


def _last_pass(loop: Loop) -> int | None:
    """The number of a loop's last pass, where only its counter ends it and runs to a constant."""
    alone = loop.cond is not None and loop.control == [loop.cond] and loop.cond.op in ("lt", "le")
    found = kernels.trips(loop) if alone else None
    distance, step = (t.constant(each) for each in found) if found is not None else (None, None)
    return distance // step if distance is not None and step and distance >= 0 else None


def _terms(flow: Flow) -> Iterator[Term]:
    for access in flow.accesses:
        if access.index is not None:
            yield access.index
        yield from (index for index, _ in access.dims)
    yield from conditions({event.guard for event in (*flow.accesses, *flow.barriers, *flow.collectives)})


def _part(term: Term, multiple: list[int]) -> None:
    """A coordinate that is cut into a warp's number and a lane, or an extent that is divided into warps."""
    if len(term.args) == 2 and term.args[1].op == "const" and (term.op, term.args[1].data) in _BY_WARP:
        cut = t.bare(term.args[0])
        for at, axis in enumerate("xyz"):
            if cut in (TID[axis], BDIM[axis]):
                multiple[at] = _WARP


_BY_WARP = {("shr", 5), ("div", _WARP), ("mod", _WARP), ("and", _WARP - 1)}


def _tiles(p: Poly, axis: str) -> Iterator[int]:
    """The extent of a block that a constant written in its place means: of a tile, or the step of a loop over it."""
    for found in shapes.axes(p).values():
        if found.name != axis or not found.thread or found.block is None:
            continue
        extent = t.constant(found.block)
        if extent is None or extent < 2:
            continue
        yield min((step for _, step in tiled(p, found)), default=extent)


def tiled(p: Poly, axis: shapes.Axis) -> Iterator[tuple[Term, int]]:
    """The passes of a loop that goes over a tile in steps of the block, with the step."""
    extent = t.constant(axis.block or {})
    for item in t.atoms_of(p):
        if extent is not None and item.op == "atom" and item.data.kind == "count":
            passed = shapes.divide(shapes.coefficient(p, item), axis.scale)
            step = t.constant(passed) if passed is not None else None
            if step is not None and step > 1 and extent % step == 0:
                yield item, step


__all__ = ["Shape", "Tile", "folded", "shape", "tiled", "whole_tiles"]
