"""Shapes of indices and guards: which launch axes an address depends on, and which of them are tested.

All of it works on polynomials (:func:`cudalint.facts.terms.poly`), so spelling, order, helpers,
macros and locals do not matter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cudalint.facts import terms as t
from cudalint.facts.events import conjuncts
from cudalint.facts.flow import BDIM, BID, GDIM, TID
from cudalint.facts.uniformity import expand

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


def without(p: Poly, items: Iterable[Term]) -> Poly:
    """The part of ``p`` in which none of ``items`` takes part."""
    banned = set(items)
    return {m: c for m, c in p.items() if banned.isdisjoint(m)}


def mentions(p: Poly, item: Term) -> bool:
    """Whether ``item`` occurs in ``p``, inside ``/ % min max`` too."""
    return any(item in t.leaves(a) for a in t.atoms_of(p))


class Axis(NamedTuple):
    """One launch axis of an index: the index grows by ``scale`` a thread and by ``scale * block`` a block.

    ``block`` is None when ``blockIdx`` of the axis does not take part (or in no product with the scale),
    ``thread`` is false when ``threadIdx`` of it does not.
    """

    name: str
    scale: Poly
    block: Poly | None
    thread: bool

    @property
    def is_global(self) -> bool:
        """``blockIdx * blockDim + threadIdx`` (or with the block's size written out), times ``scale``."""
        return self.thread and self.block is not None


def axes(p: Poly) -> dict[str, Axis]:
    """The launch axes that take part in an index, by name."""
    result = {}
    for name in AXES:
        per_thread, per_block = coefficient(p, TID[name]), coefficient(p, BID[name])
        if per_thread:
            result[name] = Axis(name, per_thread, divide(per_block, per_thread) if per_block else None, True)
        elif per_block:
            result[name] = Axis(name, per_block, None, False)
    return result


def divide(p: Poly, q: Poly) -> Poly | None:
    """``p / q`` where it is a polynomial found by comparing terms; None otherwise."""
    if p == q:
        return dict(ONE)
    if len(q) == 1:
        ((divisor, factor),) = q.items()
        result: Poly = {}
        for monomial, value in p.items():
            rest = list(monomial)
            for item in divisor:
                if item not in rest:
                    return None
                rest.remove(item)
            if value % factor:
                return None
            result[tuple(rest)] = value // factor
        return result
    # A common factor of every term: try each monomial quotient of the first terms.
    for monomial, value in p.items():
        for divisor, factor in q.items():
            if value % factor:
                continue
            rest = list(monomial)
            if all(item in rest and not rest.remove(item) for item in divisor):  # type: ignore[func-returns-value]  # removes
                candidate: Poly = {tuple(rest): value // factor}
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
    """A test on the way: ``index < limit`` (``index <= limit`` when ``inclusive``), both polynomials.

    ``excess`` is ``index - limit``, expanded; ``term`` the comparison itself.
    """

    index: Poly
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
            for a, b in (term.args, term.args[::-1]):
                left, right = t.poly(a), t.poly(b)
                yield Bound(left, right, expand(t.add(left, right, -1)), True, term)


def positive(p: Poly) -> bool:
    """Whether ``p`` is positive for sizes and dimensions that are at least 1: every coefficient is."""
    return bool(p) and all(c > 0 for c in p.values())


def tested_axes(guard: Guard | None) -> tuple[set[str], list[Bound]]:
    """The axes each bounded by a test of its own, and the tests that bound several axes at once.

    An axis counts as tested when some test's index grows with its thread number (or its block number)
    and with no other axis's.
    """
    alone: set[str] = set()
    together: list[Bound] = []
    for bound in upper_bounds(guard):
        grows = [
            a for a in AXES if positive(coefficient(bound.excess, TID[a])) or positive(coefficient(bound.excess, BID[a]))
        ]
        if len(grows) == 1:
            alone.add(grows[0])
        elif len(grows) > 1:
            together.append(bound)
    return alone, together


def same_up_to_constant(p: Poly, q: Poly) -> int | None:
    """``p - q`` when it is a constant."""
    return t.constant(t.add(p, q, -1))
