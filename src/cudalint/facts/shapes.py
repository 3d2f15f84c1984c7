"""Shapes of indices and guards: which launch axes an address depends on, and which of them are tested.

All of it works on polynomials (:func:`cudalint.facts.terms.poly`), so spelling, order, helpers,
macros and locals do not matter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudalint.facts import terms as t
from cudalint.facts.events import conjuncts
from cudalint.facts.ids import BDIM, BID, GDIM, TID
from cudalint.facts.uniformity import expand
from cudalint.ir.types import Int
from cudalint.lazy import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cudalint.facts.events import Guard
    from cudalint.facts.terms import Poly, Term

AXES = "xyz"
ONE: Poly = {(): 1}


def coefficient(p: Poly, item: Term) -> Poly:
    """What ``item`` is multiplied by in ``p`` (terms of higher degree in it keep the rest of their power)."""
    result: Poly = {}
    for monomial, value in p.items():
        if item in monomial:
            rest = list(monomial)
            rest.remove(item)
            key = tuple(rest)
            result[key] = result.get(key, 0) + value
    return result


def stepped(p: Poly, item: Term) -> Poly:
    """What one more of ``item`` adds to ``p``, seen through quotients and masks that drop none of it: 8 for
    ``(32 * item + x) / 4``. Empty where it adds nothing, or nothing that can be told."""
    result = coefficient(p, item)
    for monomial, value in p.items():
        for k, atom in enumerate(monomial):
            inner, unit, by = _rounded(atom)
            step = stepped(t.poly(inner), item) if unit else {}
            if step and all(c % unit == 0 for c in step.values()):
                rest = {(*monomial[:k], *monomial[k + 1 :]): value}
                result = t.add(result, t.multiply({m: c // by for m, c in step.items()}, rest) or {})
    return result


def _rounded(atom: Term) -> tuple[Term, int, int]:
    """A value that is rounded down to a multiple of a constant, the constant, and what it is divided by then; the
    constant is 0 where an atom is no such thing."""
    by = atom.args[1].data if len(atom.args) == 2 and atom.args[1].op == "const" else 0
    if not isinstance(atom.type, Int):
        return atom, 0, 1
    if atom.op == "div" and by > 0:
        return atom.args[0], by, by
    if atom.op == "and":
        low = by & -by  # `x & 0xffffffe0`
        if by % (1 << atom.type.bits) == (1 << atom.type.bits) - low:
            return atom.args[0], low, 1
    return atom, 0, 1


def without(p: Poly, items: Iterable[Term]) -> Poly:
    """The part of ``p`` in which none of ``items`` takes part."""
    banned = set(items)
    return {m: c for m, c in p.items() if banned.isdisjoint(m)}


def mentions(p: Poly, item: Term) -> bool:
    """Whether ``item`` occurs in ``p``, inside ``/ % min max`` too."""
    return any(item in t.leaves(a) for a in t.atoms_of(p))


class Axis(NamedTuple):
    """One coordinate of an index: the launch ids that take part in it with one scale.

    The index grows by ``scale`` a thread and by ``scale * block`` a block. ``name`` is the axis of its
    ``threadIdx`` (of its ``blockIdx`` where it has none), ``grid`` the axis of its ``blockIdx``, which
    differs from ``name`` in a transpose (``blockIdx.y * 16 + threadIdx.x``) and is "" where it has none.
    ``ids`` are the atoms. ``block`` is None when no ``blockIdx`` takes part.
    """

    name: str
    scale: Poly
    block: Poly | None
    thread: bool
    grid: str
    ids: frozenset[Term]

    @property
    def is_global(self) -> bool:
        """``blockIdx * blockDim + threadIdx`` (or with the block's size written out), times ``scale``."""
        return self.thread and self.block is not None


def axes(p: Poly) -> dict[str, Axis]:
    """The coordinates that an index is made of, by the name of their axis."""
    threads = {a: c for a in AXES if (c := coefficient(p, TID[a]))}
    blocks = {a: c for a in AXES if (c := coefficient(p, BID[a]))}
    result: dict[str, Axis] = {}
    pairs: dict[str, tuple[str, Poly]] = {}
    # A block's number belongs to the thread's whose scale it is a block of, of the same axis first.
    for same, fits in (
        (True, is_extent), (False, is_extent), (True, is_block), (False, is_block), (True, bool)
    ):  # fmt: skip
        for a, scale in threads.items():
            for b, per_block in blocks.items():
                if a in pairs or (a == b) is not same or any(b == other for other, _ in pairs.values()):
                    continue
                size = divide(per_block, scale)
                if size is not None and fits(size):
                    pairs[a] = (b, size)
    for a, scale in threads.items():
        grid, size = pairs.get(a, ("", None))
        ids = {TID[a], BID[grid]} if grid else {TID[a]}
        result[a] = Axis(a, scale, size, True, grid, frozenset(ids))
    for b, per_block in blocks.items():
        if all(b != grid for grid, _ in pairs.values()):
            name = b if b not in result else f"block {b}"
            result[name] = Axis(name, per_block, None, False, b, frozenset({BID[b]}))
    return result


def is_extent(size: Poly) -> bool:
    """Whether a number of elements is the block's extent along one axis."""
    return any(size == block_size(a) for a in AXES)


def is_block(size: Poly) -> bool:
    """Whether a number of elements can be a block's extent: a constant, or made of ``blockDim``."""
    return t.constant(size) is not None or all(x.data.kind == "bdim" for x in t.atoms_of(size) if x.op == "atom")


def divide(p: Poly, q: Poly) -> Poly | None:
    """``p / q`` where it is a polynomial found by comparing terms; None otherwise."""
    if p == q:
        return dict(ONE)
    if len(q) == 1:
        ((divisor, factor),) = q.items()
        result: Poly = {}
        for monomial, value in p.items():
            rest = t.cofactor(monomial, divisor)
            if rest is None or value % factor:
                return None
            result[rest] = value // factor
        return result
    # A common factor of every term: try each monomial quotient of the first terms.
    for monomial, value in p.items():
        for divisor, factor in q.items():
            if value % factor:
                continue
            rest = t.cofactor(monomial, divisor)
            if rest is not None:
                candidate: Poly = {rest: value // factor}
                if t.multiply(candidate, q) == p:
                    return candidate
        break
    return None


def block_size(axis: str) -> Poly:
    return {(BDIM[axis],): 1}


def is_grid_step(p: Poly, axis: str = "x") -> bool:
    """``blockDim * gridDim`` of an axis, whatever constant the block's size is written as."""
    per_grid = coefficient(p, GDIM[axis])
    return bool(per_grid) and len(p) == len(per_grid)


class Bound(NamedTuple):
    """A test on the way: ``left < limit`` (``left <= limit`` when ``inclusive``), both polynomials.

    ``excess`` is ``left - limit``, expanded; ``term`` the comparison itself.
    """

    left: Poly
    limit: Poly
    excess: Poly
    inclusive: bool
    term: Term


def upper_bounds(guard: Guard | None) -> Iterator[Bound]:
    """Every ``<`` and ``<=`` that holds, each as written (left below right)."""
    for term in conjuncts(guard):
        if term.op in ("lt", "le"):
            a, b = t.poly(term.args[0]), t.poly(term.args[1])
            yield Bound(a, b, expand(t.add(a, b, -1)), term.op == "le", term)
        elif term.op == "eq":
            for x, y in (term.args, term.args[::-1]):
                left, right = t.poly(x), t.poly(y)
                yield Bound(left, right, expand(t.add(left, right, -1)), True, term)


def positive(p: Poly) -> bool:
    """Whether ``p`` is positive for sizes and dimensions that are at least 1: every coefficient is."""
    return bool(p) and all(c > 0 for c in p.values())


def tested_axes(guard: Guard | None, found: dict[str, Axis] | None = None) -> tuple[set[str], list[Bound]]:
    """The coordinates each bounded by a test of its own, and the tests that bound several at once.

    A coordinate counts as tested when some test's index grows with its thread or block number and with
    no other coordinate's. ``found`` are the coordinates asked about; without it they are the launch axes.
    """
    ids = {a: x.ids for a, x in found.items()} if found else {a: frozenset({TID[a], BID[a]}) for a in AXES}
    alone: set[str] = set()
    together: list[Bound] = []
    for bound in upper_bounds(guard):
        grows = [
            name for name, items in ids.items() if any(positive(coefficient(bound.excess, x)) for x in items)
        ]  # fmt: skip
        if len(grows) == 1:
            alone.add(grows[0])
        elif len(grows) > 1:
            together.append(bound)
    return alone, together


def same_up_to_constant(p: Poly, q: Poly) -> int | None:
    """``p - q`` when it is a constant."""
    return t.constant(t.add(p, q, -1))
