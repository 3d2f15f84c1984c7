"""Coordinates of an address by what scales them: rows, columns and batches of data whose row lengths are sizes.

:func:`cudalint.facts.shapes.axes` finds the axes of a grid of threads. Here a coordinate may also be made of a
block that is folded (``threadIdx.x / 32`` and ``threadIdx.x % 32``, two coordinates of known extents) and of loop
counters (a tile's number plus ``threadIdx.x``): in ``row * K + column`` everything that is multiplied by the size
``K`` is one coordinate, and everything that is multiplied by no size is another, of which a row has ``K``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from cudalint.facts import kernels
from cudalint.facts import terms as t
from cudalint.facts.uniformity import expand
from cudalint.ir.types import I64
from cudalint.lazy import NamedTuple

if TYPE_CHECKING:
    from cudalint.facts.kernels import Case
    from cudalint.facts.terms import Poly, Term

_LAUNCH = frozenset({"tid", "bid", "bdim", "gdim", "count"})


class Digit(NamedTuple):
    """``thread / divisor % modulus`` of one thread id; no remainder is taken where ``modulus`` is None.

    Digits of one id are independent of each other where their ranges of it are apart, as those of
    ``threadIdx.x / 32`` and ``threadIdx.x % 32`` are.
    """

    thread: Term
    divisor: int
    modulus: int | None

    def of(self, number: int) -> int:
        """The digit of the thread with this number."""
        quotient = number // self.divisor
        return quotient if self.modulus is None else quotient % self.modulus

    def apart(self, other: Digit) -> bool:
        """Whether one says nothing about the other."""
        if self.thread is not other.thread:
            return True
        low, high = sorted((self, other), key=lambda d: d.divisor)
        return low.modulus is not None and low.divisor * low.modulus <= high.divisor


def digit(item: Term) -> Digit | None:
    """An atom of a polynomial as a digit of a thread id: the id itself, a quotient, a remainder, or one of another."""
    if item.op == "atom":
        return Digit(item, 1, None) if item.data.kind == "tid" else None
    if item.op not in ("div", "mod", "and") or item.args[1].op != "const" or not isinstance(item.args[1].data, int):
        return None
    by = item.args[1].data + (item.op == "and")
    inner = t.poly(item.args[0])
    if by < 1 or (item.op == "and" and by & (by - 1)) or len(inner) != 1:
        return None
    ((monomial, factor),) = inner.items()
    found = digit(monomial[0]) if factor == 1 and len(monomial) == 1 else None
    if found is None:
        return None
    thread, divisor, modulus = found
    if item.op == "div":
        if modulus is not None and modulus % by:
            return None
        return Digit(thread, divisor * by, None if modulus is None else modulus // by)
    if modulus is not None and modulus % by and by % modulus:
        return None
    return Digit(thread, divisor, by if modulus is None else min(by, modulus))


class Coordinate(NamedTuple):
    """``place`` is made of launch ids, digits of them, loop counters and constants; a step of it moves the address by
    the product of the sizes ``scale``."""

    scale: tuple[Term, ...]
    place: Poly
    digits: dict[Term, Digit]
    blocks: frozenset[Term]
    counters: frozenset[Term]

    @property
    def share(self) -> Poly | None:
        """Elements from one block's first to the next block's, None where it is not made of one block id."""
        if len(self.blocks) != 1:
            return None
        (block,) = self.blocks
        own = [(m, c) for m, c in self.place.items() if block in m]
        if any(m.count(block) > 1 or any(x in self.digits or x in self.counters for x in m) for m, _ in own):
            return None
        return {tuple(x for x in m if x is not block): c for m, c in own}

    @property
    def is_folded(self) -> bool:
        """Whether a thread's part is a quotient or a remainder of its number."""
        return any(d.divisor > 1 or d.modulus is not None for d in self.digits.values())


def coordinates(p: Poly) -> list[Coordinate]:
    """The coordinates of an address, the one with the shortest scale first.

    None are found where a part is something else (clamped, data, an offset that no launch id takes part in), or where
    two coordinates hang on each other.
    """
    groups: dict[tuple[Term, ...], Poly] = {}
    digits: dict[Term, Digit] = {}
    for monomial, value in p.items():
        scale: list[Term] = []
        launch: list[Term] = []
        for item in monomial:
            found = digit(item)
            if found is not None:
                digits[item] = found
                launch.append(item)
            elif _is_dimension(item) or (item.op == "atom" and item.data.kind in ("bid", "count")):
                launch.append(item)
            elif kernels.varies(item) or kernels.ids_of([item]):
                return []
            else:
                scale.append(item)
        groups.setdefault(tuple(scale), {})[tuple(launch)] = value
    result = []
    for key, index in groups.items():
        items = set(t.atoms_of(index))
        own = {x: digits[x] for x in items if x in digits}
        atoms = {x for x in items if x.op == "atom"}
        blocks = frozenset(x for x in atoms if x.data.kind == "bid")
        counters = frozenset(x for x in atoms if x.data.kind == "count")
        if not (own or blocks or counters) and key:
            return []
        result.append(Coordinate(key, index, own, blocks, counters))
    for number, first in enumerate(result):
        for second in result[number + 1 :]:
            if first.blocks & second.blocks or first.counters & second.counters:
                return []
            if not all(a.apart(b) for a in first.digits.values() for b in second.digits.values()):
                return []
    return sorted(result, key=lambda x: len(x.scale))


def _is_dimension(item: Term) -> bool:
    """Whether an atom of a polynomial is made of the launch's dimensions alone."""
    leaves = t.leaves(item)
    return bool(leaves) and all(x.data.kind in ("bdim", "gdim") for x in leaves)


def row(of: Coordinate, among: list[Coordinate]) -> Term | None:
    """How many elements of a coordinate there are in one of the next: the size that scales that one on top, times the
    elements of a cell where both go in steps of cells (``(row * cells + cell) * 64 + threadIdx.x % 64``)."""
    result = []
    for other in among:
        rest = t.cofactor(other.scale, of.scale)
        if rest is not None and len(rest) == 1:
            cell = math.gcd(*other.place.values())
            size = t.convert(rest[0], I64)
            cells = cell > 1 and _goes_by(of, cell)
            result.append(t.binary("mul", size, t.const(cell, I64), I64) if cells else rest[0])
    return result[0] if len(result) == 1 else None


def _goes_by(of: Coordinate, cell: int) -> bool:
    """Whether a coordinate is a cell's number and a digit's place in it."""
    lanes = {(x,) for x, found in of.digits.items() if found.modulus is not None}
    rest = {m for m, factor in of.place.items() if factor % cell}
    return len(rest) < len(of.place) and rest <= lanes


def tests(term: Term, item: Coordinate) -> bool:
    """Whether a condition compares what a coordinate is made of with a size: it may be what bounds the coordinate."""
    if term.op in ("land", "lor", "lnot"):
        return any(tests(x, item) for x in term.args)
    data = any(x.data.kind not in _LAUNCH and x.data.kind != "loop" for x in t.leaves(term))
    if not data:
        return False
    threads = {d.thread for d in item.digits.values()}
    if term.op not in ("lt", "le", "eq", "ne"):
        return not kernels.ids_of([term]).isdisjoint(threads | item.blocks)
    for atom in t.atoms_of(expand(t.add(t.poly(term.args[0]), t.poly(term.args[1]), -1))):
        found = digit(atom)
        if found is not None:
            if not all(found.apart(d) for d in item.digits.values()):
                return True
        elif not kernels.ids_of([atom]).isdisjoint(threads | item.blocks):
            return True
    return False


def settled(case: Case, p: Poly) -> Case:
    """``case`` with the digits in ``p`` as they are for its thread."""
    for item in t.atoms_of(p):
        found = digit(item)
        if found is not None:
            case.values[item] = found.of(case.values[found.thread])
    return case
