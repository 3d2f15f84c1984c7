"""The contract of a kernel, inferred from what it does and taken from what its comments and assertions state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from cudalint.contracts.block import folded, shape
from cudalint.facts import asked, kernels, shapes
from cudalint.facts import terms as t
from cudalint.facts.events import conjuncts
from cudalint.facts.expressions import from_poly
from cudalint.facts.ids import BDIM, BID, GDIM, TID
from cudalint.facts.terms import Atom
from cudalint.facts.uniformity import expand
from cudalint.ir.nodes import Call, Const
from cudalint.ir.types import I64, Int
from cudalint.lazy import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudalint.facts.events import Access, Loop, Obj
    from cudalint.facts.kernels import Coordinate
    from cudalint.facts.model import Kernel
    from cudalint.facts.terms import Poly, Term

Kind = Literal["cover", "room", "block", "shared", "grid", "limit", "cooperative", "stated"]
_AXES = "xyz"
_SIDES = {"x": 1024, "y": 1024, "z": 64}
DYNAMIC = t.atom(Atom("dynamic", "bytes of dynamic shared memory", 0, t.INF), I64)
"""What the launch has asked for as its third argument."""


class Requirement(NamedTuple):
    """One thing that a kernel needs of its launches.

    ``condition`` says it over the kernel's parameters and the launch's dimensions, in exact integers; None for
    ``cooperative``, which is about the form of the launch.
    """

    kind: Kind
    text: str
    source: Literal["inferred", "stated"]
    condition: Term | None


def requirements(kernel: Kernel) -> list[Requirement]:
    """What the kernel needs: that its elements have threads and its threads elements, the block it was written for and
    shared memory for it, a single block, sizes at which no index wraps, a cooperative launch, and what it states
    itself."""
    found = [*_cover(kernel), *_untested(kernel), *_block(kernel), *_shared(kernel), *_single(kernel)]
    found += [*_limits(kernel), *_cooperative(kernel), *_stated(kernel)]
    return list({each.text: each for each in reversed(found)}.values())[::-1]


def _inferred(kind: Kind, condition: Term, text: str = "") -> Requirement:
    return Requirement(kind, text or t.show(condition), "inferred", condition)


def _number(value: int) -> Term:
    return t.const(value, I64)


def _product(*factors: Term) -> Term:
    result = factors[0]
    for factor in factors[1:]:
        result = t.binary("mul", result, factor, I64)
    return result


# --- every element has a thread -----------------------------------------------------------------


def _cover(kernel: Kernel) -> Iterator[Requirement]:
    """Where each thread handles its own elements and no loop goes over the rest, the grid must come to all of them."""
    for axis in _AXES:
        for group in kernel.layout.groups(axis):
            own = [each for each in group if each.loop is None]
            rest = [each for each in group if each.loop is not None and _ahead(each)]
            if not own or axis != group[0].axes[0] or not all(_after(each, own) for each in rest):
                continue
            reached = _reached(own)
            if reached is None:
                continue
            for sizes in _covered(own):
                whole = t.FALSE
                for size in sizes:
                    whole = t.lor(whole, t.compare(">=", from_poly(reached, I64), from_poly(size, I64)))
                text = " || ".join(f"{_shown(reached)} >= {_shown(size)}" for size in sizes)
                yield _inferred("cover", whole, text)


def _covered(group: list[Coordinate]) -> list[list[Poly]]:
    """The sizes that each access is kept under: of several for one access the least is to be reached, of several
    accesses each. What follows of another is left out."""
    found: dict[frozenset[tuple[object, ...]], list[Poly]] = {}
    for access in dict.fromkeys(x for each in group for x in each.accesses):
        sizes = _sizes([each for each in group if access in each.accesses])
        if sizes:
            found.setdefault(frozenset(tuple(sorted(size.items(), key=str)) for size in sizes), sizes)
    return [sizes for key, sizes in found.items() if not any(other < key for other in found)]


def _sizes(group: list[Coordinate]) -> list[Poly]:
    """The sizes that the coordinates of one kind are tested against: of two a constant apart (a neighbour's test), the
    plain one; tests from below left out."""
    found: list[Poly] = []
    ahead = [x for x in group if _ahead(x) and not _walks(x)]
    for item in ahead:
        limit = _meant(item)
        # A thread's number in its block that is tested against a constant is one of those that do a part of the work.
        if t.constant(limit) is not None and not item.is_global:
            continue
        near = [other for other in found if t.constant(t.add(limit, other, -1)) is not None]
        if not near:
            found.append(limit)
        elif abs(limit.get((), 0)) < abs(near[0].get((), 0)):
            found[found.index(near[0])] = limit
    return found


def _ahead(item: Coordinate) -> bool:
    """Whether the coordinate grows with the threads: `j <= i` bounds another one by a thread's own."""
    return min([*item.share.values(), *item.pitch.values()], default=0) > 0


def _meant(item: Coordinate) -> Poly:
    """The size that the test leaves to the grid at the least: of `i <= n`, n, as the last may be a slip."""
    slip = item.inclusive and item.term.op == "le"
    return t.add(item.limit, {(): 1}, -1) if slip else item.limit


def _after(item: Coordinate, own: list[Coordinate]) -> bool:
    """Whether a loop goes over the elements after a thread's own one, one by one: `for (j = i + 1; j < n; ++j)` below
    `if (i < n)`. It relieves no other thread of its element."""
    assert item.loop is not None
    one = any(i.step is not None and t.constant(t.poly(i.step)) == 1 for i in item.loop.inductions.values())
    return one and any(t.constant(t.add(each.limit, item.limit, -1)) is not None for each in own)


def _walks(item: Coordinate) -> bool:
    """Whether a loop walks over neighbours, `first - radius + k < n`: that element has a thread of its own."""
    return bool(item.counters) and (len(item.limit) > 1 or any(len(monomial) > 1 for monomial in item.limit))


def _shown(p: Poly) -> str:
    """A polynomial as people write it: constants after what varies."""
    return t.show_poly(dict(sorted(p.items(), key=lambda each: (not each[0], each[1] < 0))))


def _reached(group: list[Coordinate]) -> Poly | None:
    """How many elements of an axis the grid comes to: a block's share by the blocks, or a thread's by the threads."""
    item = group[0]
    thread, block = item.thread, item.block
    if len(item.ids) != (thread is not None) + (block is not None):
        return None
    if any(not _leaves_of(x).isdisjoint(GDIM.values()) for each in group for x in t.atoms_of(each.index)):
        return None  # a loop around steps by the grid
    if block is not None:
        return _times(GDIM[_axis(block, BID)], item.share)
    # Where a loop moves the block along, it is the loop that comes to all elements.
    moved = any(each.counters for each in group)
    return None if thread is None or moved else _times(BDIM[_axis(thread, TID)], item.pitch)


def _leaves_of(item: Term) -> frozenset[Term]:
    """What a term is made of; the step of its loop for a pass."""
    found = t.leaves(item)
    steps = [i.step for x in found if x.data.kind == "count" for i in x.data.data.inductions.values()]
    return found.union(*(t.leaves(step) for step in steps if step is not None))


def _axis(item: Term, ids: dict[str, Term]) -> str:
    return next(axis for axis in _AXES if ids[axis] is item)


def _times(dimension: Term, share: Poly) -> Poly | None:
    if not share or any(x.op != "atom" or x.data.kind not in ("bdim", "param") for x in t.atoms_of(share)):
        return None
    return {(dimension, *monomial): coefficient for monomial, coefficient in share.items()}


# --- every thread has an element ----------------------------------------------------------------


def _untested(kernel: Kernel) -> Iterator[Requirement]:
    """Where each thread of the grid, or each block, comes to an element of its own and nothing tests whether there is
    one, memory must have room for all of them; where threads write them from the first on, they are to be all of its
    elements."""
    reached: dict[Obj, tuple[Poly, bool]] = {}
    for access in kernel.flow.accesses:
        came, by_thread = (_comes_to(access) if access.obj.kind == "global" else None) or (None, False)
        if came is None:
            continue
        before, wrote = reached.get(access.obj, (came, False))
        further = t.constant(t.add(came, before, -1))
        if further is not None:
            reached[access.obj] = (came if further > 0 else before, wrote or (by_thread and access.mode != "r"))
    for obj, (came, wrote) in reached.items():
        elements = elements_of(obj)
        text = f"{_shown(came)} {{}} {elements.data.name}"
        yield _inferred("room", t.compare("<=", from_poly(came, I64), elements), text.format("<="))
        if wrote and () not in came:
            # A grid of no blocks does for no elements.
            whole = t.lor(t.compare(">=", from_poly(came, I64), elements), t.compare("<=", elements, _number(0)))
            yield _inferred("cover", whole, text.format(">="))


def _comes_to(access: Access) -> tuple[Poly, bool] | None:
    """The number of elements that the grid (of shared memory: the block) comes to in an access that each thread, or
    some thread of each block, makes by its own index on each axis and no test on the way asks about, and whether each
    thread of the grid has its own from the first on; None of any other."""
    p = expand(access.scalar or {})
    if any(x.op != "atom" or x.data.kind not in ("tid", "bid", "bdim", "param") for x in t.atoms_of(p)):
        return None
    axes = list(shapes.axes(p).values())
    ids = kernels.ids_of(t.atoms_of(p))
    if not axes or ids != {x for axis in axes for x in axis.ids} or not _is_made(access, ids):
        return None
    first = shapes.without(p, ids)
    came = t.add(first, {(): access.width})
    for axis in axes:
        if (access.obj.kind == "shared") is bool(axis.grid):
            return None
        if axis.block is not None and not shapes.is_block(axis.block):
            return None
        share = t.multiply(axis.scale, axis.block) if axis.block is not None else axis.scale
        dimension = GDIM[axis.grid] if axis.grid else BDIM[axis.name]
        whole = _times(dimension, share) if share is not None and min(share.values()) > 0 else None
        if whole is None:
            return None
        came = t.add(t.add(came, whole), axis.scale, -1)
    return came, not first and all(axis.thread for axis in axes)


def _is_made(access: Access, ids: set[Term]) -> bool:
    """Whether some thread of each block makes the access, at any sizes: tests on the way ask for other launch ids only
    (`if (threadIdx.x == 0)`)."""
    return all(
        x not in ids and x.data.kind in ("tid", "bid", "bdim")
        for test in conjuncts(access.guard)
        for x in t.leaves(test)
    )


def _shared(kernel: Kernel) -> Iterator[Requirement]:
    """Where each thread of the block comes to an element of its own in the array whose bytes the launch decides."""
    needed: dict[frozenset[object], Poly] = {}
    for access in kernel.flow.accesses:
        obj = access.obj
        dynamic = obj.kind == "shared" and obj.var is not None and obj.var.extern
        size = obj.element.size if dynamic and obj.element is not None else None
        came = _comes_to(access) if size else None
        total = t.multiply(came[0], {(): size}) if came is not None and size else None
        if total is None:
            continue
        key = frozenset(each for each in total.items() if each[0])
        if key not in needed or total.get((), 0) > needed[key].get((), 0):
            needed[key] = total
    for total in needed.values():
        condition = t.compare("<=", from_poly(total, I64), DYNAMIC)
        yield _inferred("shared", condition, f"{_shown(total)} bytes of dynamic shared memory")


def elements_of(obj: Obj) -> Term:
    """The number of elements that an array has, which the host tells where it allocates it."""
    return t.atom(Atom("extent", f"elements of {obj.name}", 0, t.INF, data=obj), I64)


# --- the block ----------------------------------------------------------------------------------


def _block(kernel: Kernel) -> Iterator[Requirement]:
    needs = shape(kernel.flow)
    for at, axis in enumerate(_AXES):
        extent = BDIM[axis]
        least, most, multiple = needs.least[at], needs.most[at], needs.multiple[at]
        if least == most:
            yield _inferred("block", t.compare("==", extent, _number(least)))
            continue
        if least > 1:
            yield _inferred("block", t.compare(">=", extent, _number(least)), f"blockDim.{axis} >= {least}")
        if most < _SIDES[axis]:
            yield _inferred("block", t.compare("<=", extent, _number(most)))
        if needs.power[at]:
            yield _power_of_two(extent)
        elif multiple > 1:
            rest = t.binary("mod", extent, _number(multiple), I64)
            yield _inferred("block", t.compare("==", rest, _number(0)))
    tree = folded(kernel.flow)
    for size in kernel.flow.params.values():
        if size in tree:
            yield _power_of_two(size)
    threads = _product(*(BDIM[axis] for axis in _used(kernel)))
    if needs.together > 1 and not any(m % needs.together == 0 for m in needs.multiple):
        rest = t.binary("mod", threads, _number(needs.together), I64)
        yield _inferred("block", t.compare("==", rest, _number(0)))
    bounds = kernel.function.launch_bounds
    if isinstance(bounds, Const) and isinstance(bounds.value, int):
        yield _inferred("block", t.compare("<=", threads, _number(bounds.value)))


def _power_of_two(size: Term) -> Requirement:
    rest = t.binary("and", size, t.binary("sub", size, _number(1), I64), I64)
    return _inferred("block", t.compare("==", rest, _number(0)), f"{t.show(size)} is a power of two")


def _used(kernel: Kernel) -> str:
    """The axes of a block that the kernel asks about; x where it asks about none."""
    asked = {x for c in kernel.layout.coordinates for x in c.ids}
    asked |= {x for a in kernel.flow.accesses if a.index is not None for x in t.leaves(a.index)}
    return "".join(a for a in _AXES if TID[a] in asked or BDIM[a] in asked) or "x"


# --- the grid -----------------------------------------------------------------------------------


def _single(kernel: Kernel) -> Iterator[Requirement]:
    """A block, or a thread, goes over all the data by itself, whichever it is: of several, each would add its own to
    the result."""
    flow = kernel.flow
    touched = [a for a in flow.accesses if a.obj.kind == "global"]
    walked = {
        x for loop in flow.loops if any(a.obj.kind == "global" for a in flow.within(loop)) for x in _strides(loop)
    }
    if flow.calls or flow.opaques or not flow.complete:
        return
    used, twice = asked.ids(kernel), asked.accumulations(kernel)
    if used is None or not twice or asked.draws_work(touched):
        return
    # Atomic functions may be there to count the threads.
    if not used and any(x.mode != "atomic" for x in twice):
        yield _inferred("grid", t.compare("==", _product(GDIM["x"], BDIM["x"]), _number(1)))
    for axis in _AXES:
        if axis in walked and ("blockIdx", axis) not in used:
            yield _inferred("grid", t.compare("==", GDIM[axis], _number(1)))


def _strides(loop: Loop) -> Iterator[str]:
    """The axes along which a loop starts at a thread's number in its block and steps by the block, up to a size."""
    for item in loop.inductions.values():
        if item.init is None or item.step is None or item.limit is None or not t.leaves(item.limit[0]):
            continue
        yield from (a for a in _AXES if TID[a] in t.leaves(item.init) and BDIM[a] in t.leaves(item.step))


# --- before an index wraps ----------------------------------------------------------------------


def _limits(kernel: Kernel) -> Iterator[Requirement]:
    """An index of 32 bits is formed, and in a loop stepped, before it is tested: what it comes to must fit its type."""
    for item in kernel.layout.coordinates:
        type_ = _index_type(item)
        if type_ is None or not item.is_global:
            continue
        for size in _sizes([item]):
            if t.constant(size) is not None:
                continue
            limit, most = from_poly(size, I64), type_.hi + 1
            if item.strides_grid:
                step = _product(GDIM[item.axes], BDIM[item.axes])
                condition = t.compare("<=", t.binary("add", limit, step, I64), _number(most))
                yield _inferred("limit", condition, f"{_shown(size)} <= {most} - {t.show(step)}")
            elif (
                item.loop is None and () not in size and t.bounds(limit, {})[1] > (most := min(most, _most(item, size)))
            ):
                yield _inferred("limit", t.compare("<=", limit, _number(most)), f"{_shown(size)} <= {most}")


def _most(item: Coordinate, size: Poly) -> int:
    """The largest value that the type has in which the kernel computes the size."""
    computed = next((t.bare(x) for x in item.term.args if item.ids.isdisjoint(t.leaves(x))), None)
    if computed is None or not isinstance(computed.type, Int) or expand(t.poly(computed)) != size:
        return I64.hi
    return computed.type.hi


def _index_type(item: Coordinate) -> Int | None:
    """The 32-bit type in which the coordinate is computed; None where it is wider."""
    side = next((x for x in item.term.args if not item.ids.isdisjoint(t.leaves(x))), None)
    if item.loop is not None:
        types = {info.term.type for info in item.loop.inductions.values() if info.term is not None}
        types &= {x.type for a in item.accesses if a.index is not None for x in t.leaves(a.index)} or types
        found = types.pop() if len(types) == 1 else None
    else:
        while side is not None and side.op == "cast" and isinstance(side.type, Int) and side.type.bits > 32:
            side = side.args[0]
        found = side.type if side is not None else None
    return found if isinstance(found, Int) and found.bits == 32 else None


# --- the rest -----------------------------------------------------------------------------------


def _cooperative(kernel: Kernel) -> Iterator[Requirement]:
    if any(barrier.scope == "grid" for barrier in kernel.flow.barriers):
        yield Requirement("cooperative", "a cooperative launch", "inferred", None)


def _stated(kernel: Kernel) -> Iterator[Requirement]:
    for term, node, fn in kernel.flow.asserted:
        # What the compiler has checked asks nothing of a launch.
        if term.op != "const" and isinstance(node, Call) and node.args and node.name != "static_assert":
            condition = node.args[0]
            text = " ".join(fn.file.text[condition.start : condition.end].decode("utf-8", "replace").split())
            yield Requirement("stated", text, "stated", term)
