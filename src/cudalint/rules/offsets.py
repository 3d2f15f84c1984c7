"""What the rules about narrow products share: how large an offset gets, the sizes at which it wraps, the repair."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from cudalint.facts import extents, kernels, search, shapes
from cudalint.facts import terms as t
from cudalint.facts import witness as w
from cudalint.facts.assigned import children
from cudalint.facts.calls import DEVICE_MEMBERS
from cudalint.facts.events import conjuncts
from cudalint.facts.expressions import from_poly
from cudalint.facts.ids import BDIM, BID, GDIM, TID
from cudalint.facts.uniformity import expand, replace
from cudalint.ir import nodes as ir
from cudalint.ir.types import I64, Int
from cudalint.rules import width
from cudalint.rules.draft import EditDraft, FixDraft

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cudalint.config import Config
    from cudalint.facts.events import Access
    from cudalint.facts.kernels import Layout
    from cudalint.facts.model import Launch
    from cudalint.facts.reach import Reach
    from cudalint.facts.terms import Poly, Term
    from cudalint.ir.nodes import Expr, Function

_FREE = frozenset({"param", "argc", "size", "call", "load", "exit", "uninit"})
"""Atoms that can be as large as their type; the others are launch built-ins or what nobody here can tell."""
_NESTED = 4
"""Loops in one another whose limits are followed."""
_LAST = 1 << 62
_SECOND = (1 << 16) + 1
"""The square of this is the first above 2^32 that is more than 0 in 32 bits."""
_MULTIPLE = 1 << 12


def is_free(leaf: Term) -> bool:
    """Whether an atom can be a runtime size, or data that is used as an index."""
    info = leaf.data
    if info.kind not in _FREE or not isinstance(leaf.type, Int) or search.is_template(leaf):
        return False
    return info.name.rpartition(".")[2] not in DEVICE_MEMBERS


def highest(layout: Layout, access: Access, offset: Poly) -> Term | None:
    """The largest value of an offset that gets to an access, in terms of sizes and dimensions: loop variables at
    their limits, tested coordinates at their last values. None where a part of it has no limit in sight."""
    exact = _floored(layout, access, _tested(layout, access, expand(offset)))
    if any(x.data.kind == "count" for item in t.atoms_of(exact) for x in t.leaves(item)):
        ended = _ended(offset)
        if ended is None:
            return None
        exact = _floored(layout, access, _tested(layout, access, expand(ended)))
    offset = exact
    for axis in shapes.AXES:
        for index, extent in ((TID[axis], BDIM[axis]), (BID[axis], GDIM[axis])):
            offset = replace(offset, index, {(extent,): 1, (): -1}) or offset
    if any(x.data.kind in ("loop", "count") for item in t.atoms_of(offset) for x in t.leaves(item)):
        return None
    return from_poly(offset, I64)


def _floored(layout: Layout, access: Access, offset: Poly) -> Poly:
    """An offset with quotients by what is the same everywhere at their last values: those of the last dividends."""
    for item in list(t.atoms_of(offset)):
        if item.op == "div" and kernels.varies(item.args[0]) and not kernels.varies(item.args[1]):
            dividend = highest(layout, access, t.poly(item.args[0]))
            if dividend is not None:
                last = t.binary("div", dividend, t.convert(item.args[1], I64), I64)
                offset = replace(offset, item, t.poly(last)) or offset
    return offset


def _ended(offset: Poly) -> Poly | None:
    """An offset with loop variables at their limits; None where one has none."""
    for _ in range(_NESTED):
        ends = {x: x.data.data.limit for x in t.atoms_of(offset) if x.op == "atom" and x.data.kind == "loop"}
        for item, limit in ends.items():
            if limit is None:
                return None
            bound, less = limit
            further = replace(offset, item, t.add(t.poly(bound), {(): less} if less else {}))
            if further is None:
                return None
            offset = further
    return offset


def _tested(layout: Layout, access: Access, offset: Poly) -> Poly:
    """An offset with the coordinates that are tested on the way to an access at their last values."""
    for condition in conjuncts(access.guard):
        item = layout.coordinate(condition)
        if item is not None:
            offset = extents.replaced(offset, item.index, t.add(item.limit, {(): 1}, -1))
    return offset


def reached(layout: Layout, access: Access, launch: Launch | None) -> Iterator[Term]:
    """What holds where a launch has a thread that gets to an access: it has blocks, and of each coordinate that is
    tested on the way there is one, up to the last."""
    zero = t.const(0, I64)
    for condition in conjuncts(access.guard):
        item = layout.coordinate(condition)
        if item is not None:
            limit = from_poly(item.limit, I64)
            last = _within_remainders(item.index)
            yield t.compare("<", zero, launch.at_launch(limit) if launch is not None else limit)
            if last is not None:
                whole = t.compare("<=", limit, from_poly(t.add(last, {(): 1}), I64))
                yield launch.at_launch(whole) if launch is not None else whole
    for blocks in (launch.grid or ()) if launch is not None else ():
        yield t.compare("<", zero, blocks)


def _within_remainders(index: Poly) -> Poly | None:
    """The largest value of a coordinate that remainders keep small whatever the grid is (``blockDim.x * (k % chunks) +
    threadIdx.x``); None where none do."""
    last = expand(index)
    remainders = [x for x in t.atoms_of(last) if x.op == "mod" and not kernels.varies(x.args[1])]
    for item in remainders:
        last = replace(last, item, t.add(t.poly(item.args[1]), {(): 1}, -1)) or last
    for axis in shapes.AXES:
        last = replace(last, TID[axis], {(BDIM[axis],): 1, (): -1}) or last
    bounded = remainders and not any(kernels.varies(x) for x in t.atoms_of(last))
    return last if bounded else None


def sizes_over(
    term: Term, top: int, reach: Reach, config: Config, launch: Launch | None = None, conditions: Iterable[Term] = ()
) -> dict[Term, int] | None:
    """The smallest sizes at which a value is more than ``top``: two factors of a product alike, the others at 1, or
    one size alone. None where ranges and checks let it come to no such value."""
    leaves = t.leaves(term)
    asked = list(conditions)
    fixed = {x: v for x, v in width.defaults(launch, leaves, config).items() if not is_free(x)}
    given = {x for c in asked for x in t.leaves(c) if x.data.kind == "device"}
    fixed.update({x: v for x in given | leaves if (v := w.assumed(x)) is not None})
    free = sorted((x for x in leaves if x not in fixed), key=lambda x: x.key)
    if not all(is_free(x) for x in free):
        return None
    multiples = [int(c) for c in w.constants(asked) if 1 < c <= _MULTIPLE]
    limits = {x: (max(1, reach.interval(x)[0]), min(reach.high(x), _LAST)) for x in free}
    for others in (1, 2):
        for group in _groups(term, free):

            def at(n: int, group: tuple[Term, ...] = group, others: int = others) -> dict[Term, int]:
                rest = {x: max(limits[x][0], min(others, limits[x][1])) for x in free}
                return {**rest, **{x: max(limits[x][0], min(n, limits[x][1])) for x in group}, **fixed}

            def over(n: int) -> bool:
                found = width.value(term, at(n), exact=False)
                return found is not None and found > top

            least = width.smallest(1, max(limits[x][1] for x in group), over)
            if least is None:
                continue
            # A product that comes out negative may be turned away; past 2^32 it is positive again.
            further = [n for n in (least, _SECOND) if n >= least]
            for n in sorted({*further, *(-(-n // c) * c for c in multiples for n in further)}):
                env = at(n)
                if over(n) and all(w.allowed(c, env) for c in asked):
                    return env
    return None


def _groups(term: Term, free: list[Term]) -> Iterator[tuple[Term, ...]]:
    """The sizes to let grow together: pairs that are multiplied, the last named first, then each alone."""
    pairs: set[tuple[Term, ...]] = set()
    for monomial in t.poly(term):
        made = {x for item in monomial for x in t.leaves(item) if x in free}
        pairs.update(combinations(sorted(made, key=lambda x: x.key), 2))
    yield from sorted(pairs, key=lambda pair: [-x.key for x in pair])
    yield from ((x,) for x in reversed(free))


def factors(product: Term) -> Iterator[list[Term]]:
    """The atoms of each product of two or more in a sum of products (or of one with a constant over 1)."""
    for monomial, coefficient in t.poly(product).items():
        if len(monomial) > 1 or (monomial and abs(coefficient) > 1):
            yield list(monomial)


def cast_first(fn: Function, node: Expr) -> FixDraft | None:
    """``(long long)`` before the first factor of a product, which makes all of it wide, and 64 bits for the locals in
    it that products are kept in; None inside a macro, and where a factor is itself a narrow product."""
    from cudalint.rules.widening import Cannot, Widening

    item, factors = node, []
    while isinstance(item, ir.Binary) and item.op == "*":
        if _has_product(item.right):
            return None
        factors.append(item.right)
        item = item.left
    if item is node or _has_product(item) or fn.file.macro_use(node.start) is not None:
        return None
    work = Widening(fn, within=node)
    try:
        for factor in (*factors, item):
            if isinstance(factor, ir.Ref) and work.is_product(factor.var):
                work.add(factor.var)
        if work.variables:
            work.value(node, "long long")
            names = " and ".join(f"`{x.name}`" for x in work.variables)
            return FixDraft(True, f"make {names} 64 bits wide, and cast the products", work.edits())
    except Cannot:
        return None
    edit = EditDraft(fn.file, node.start, node.start, "(long long)")
    return FixDraft(True, "cast the first factor, so that the product is computed in 64 bits", (edit,))


def _has_product(node: object) -> bool:
    stack = [node]
    while stack:
        item = stack.pop()
        if isinstance(item, ir.Binary) and item.op in ("*", "<<"):
            return True
        stack.extend(children(item))
    return False
