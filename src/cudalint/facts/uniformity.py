"""Uniformity: can a value differ between two threads of one block (or warp, or grid)?

Levels are ordered: UNIFORM < WARP_UNIFORM < UNKNOWN < THREAD. A value is judged in its polynomial
form with induction variables written out, so that parts which cancel do not count:
``j < cols + tid`` with ``j = tid + k * t`` is uniform.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudalint.facts import terms as t
from cudalint.facts.events import Induction
from cudalint.facts.terms import THREAD, UNIFORM, UNKNOWN, WARP_UNIFORM, Poly, Term
from cudalint.ir.types import Float

if TYPE_CHECKING:
    from cudalint.facts.events import Guard

_MAX_ROUNDS = 12


class Uniformity:
    """Answers for one flow. ``scope`` "grid" counts ``blockIdx`` as divergent too; ``warps_along_x`` is true
    where the block's shape lets ``threadIdx.x / 32`` be a warp's number (one-axis blocks, x a multiple of 32).
    ``block_x`` is the largest extent of the block along x, where it is known.
    """

    def __init__(self, scope: str = "block", *, warps_along_x: bool = True, block_x: int | None = None) -> None:
        self.scope = scope
        self.block_x = block_x if block_x is not None else 1024
        self.warps_along_x = warps_along_x
        self.memo: dict[Term, int] = {}
        self.loops: dict[Term, int] = {}
        self.fresh = False

    def level(self, term: Term) -> int:
        """The level of a value; unknown for one that is made of too much to be followed."""
        try:
            return self._settled(term)
        except RecursionError:
            self.fresh = False
            self.memo[term] = UNKNOWN
            return UNKNOWN

    def _settled(self, term: Term) -> int:
        result = self._get(term)
        while self.fresh:
            # Values round a loop follow themselves: assumed uniform, raised until nothing changes.
            self.fresh = False
            for item, assumed in list(self.loops.items()):
                actual = self._loop(item)
                if actual > assumed:
                    self.loops[item] = actual
                    self.fresh = True
            if self.fresh:
                self.memo.clear()
                result = self._get(term)
        return result

    def _get(self, term: Term) -> int:
        found = self.memo.get(term)
        if found is None:
            found = self.memo[term] = self._level(term)
        return found

    def divergent(self, guard: Guard) -> int:
        """The level of a guard: of its condition and, for a loop, of all that ends it."""
        level = self.level(guard.term)
        if guard.loop is not None:
            for control in guard.loop.control:
                level = max(level, self.level(control))
        return level

    def _loop(self, term: Term) -> int:
        induction = term.data.data
        assert isinstance(induction, Induction)
        level: int = term.data.level
        follow = induction.step if induction.step is not None else induction.next
        for item in (induction.init, follow):
            if item is not None:
                level = max(level, self._get(item))
        return level

    def _level(self, term: Term) -> int:
        op = term.op
        if op == "const":
            return UNIFORM
        if op == "atom":
            return self._atom(term)
        if op in ("lt", "le", "eq", "ne"):
            return self._comparison(term)
        special = self._warp(term)
        if special is not None:
            return special
        worst = max((self._get(a) for a in term.args), default=UNIFORM)
        if worst == UNIFORM or isinstance(term.type, Float) or op not in ("add", "sub", "mul", "neg", "cast", "shl"):
            return worst
        p = expand(t.poly(term))
        # A conversion that changes the value is an atom of its own polynomial: there is nothing more to see.
        return worst if term in {a for m in p for a in m} else min(worst, self._poly(p))

    def _comparison(self, term: Term) -> int:
        a, b = term.args
        worst = max(self._get(a), self._get(b))
        if worst == UNIFORM or isinstance(a.type, Float):
            return worst
        difference = expand(t.add(t.poly(a), t.poly(b), -1))
        worst = min(worst, self._poly(difference))
        if worst == THREAD and term.op == "lt" and self._aligned(a, b):
            return UNIFORM
        if worst == THREAD and self.warps_along_x and term.op in ("lt", "le"):
            # threadIdx.x < 64 splits no warp.
            for side, other, strict in ((a, b, 0), (b, a, 0)):
                limit = t.constant(expand(t.poly(other)))
                if limit is None or t.poly(side) != t.poly(_tid_x()):
                    continue
                edge = limit if (term.op == "lt") == (side is a) else limit + 1
                if (edge + strict) % 32 == 0:
                    return WARP_UNIFORM
        return worst

    def _aligned(self, index: Term, limit: Term) -> bool:
        """``tid + k * step < limit`` with the thread's part in [0, step) and a limit that is a multiple of the
        step: every thread makes the same number of passes."""
        p = expand(t.poly(index))
        steps = [(m, c) for m, c in p.items() if any(x.op == "atom" and x.data.kind == "count" for x in m)]
        if len(steps) != 1:
            return False
        (monomial, factor) = steps[0]
        step = tuple(x for x in monomial if not (x.op == "atom" and x.data.kind == "count"))
        if len(step) != len(monomial) - 1 or factor <= 0:
            return False
        rest = {m: c for m, c in p.items() if m != monomial}
        threads = {m: c for m, c in rest.items() if self._poly({m: c}) != UNIFORM}
        if threads != {(_tid_x(),): 1} or not _multiple(
            {m: c for m, c in rest.items() if m not in threads}, step, factor
        ):
            return False
        if not _multiple(expand(t.poly(limit)), step, factor):
            return False
        # The thread's number must stay below the step: a block's worth, or a constant no smaller than a block.
        return [x.data.kind for x in step if x.op == "atom"] == ["bdim"] or (not step and factor >= self.block_x)

    def _warp(self, term: Term) -> int | None:
        """``threadIdx.x / 32``, ``threadIdx.x >> 5`` and multiples: the same in a whole warp."""
        if not self.warps_along_x or term.op not in ("div", "shr", "and"):
            return None
        a, b = term.args
        if b.op != "const" or not isinstance(b.data, int):
            return None
        if term.op == "and":
            aligned = b.data >= 0 and b.data % 32 == 0
        else:
            divisor = b.data if term.op == "div" else 1 << min(b.data, 62)
            aligned = divisor > 0 and divisor % 32 == 0
        if not aligned:
            return None
        rest = dict(expand(t.poly(a)))
        if rest.pop((_tid_x(),), 0) != 1:
            return None
        # What is added must not shift lanes across a multiple of 32.
        for monomial, coefficient in rest.items():
            shifts = coefficient % 32 and not any(i.data.kind == "bdim" for i in monomial if i.op == "atom")
            if shifts or any(self._get(i) > UNIFORM for i in monomial):
                return None
        return WARP_UNIFORM

    def _poly(self, p: Poly) -> int:
        return max((self._get(a) for a in t.atoms_of(p)), default=UNIFORM)

    def _atom(self, term: Term) -> int:
        info = term.data
        kind = info.kind
        if kind == "tid":
            return THREAD
        if kind == "bid":
            return THREAD if self.scope != "block" else UNIFORM
        if kind in ("bdim", "gdim", "param", "count", "sizeof"):
            return info.level  # type: ignore[no-any-return]  # an int
        if kind == "loop":
            if term not in self.loops:
                self.loops[term] = UNIFORM
                self.fresh = True
            return self.loops[term]
        level = info.level
        for item in info.inputs:
            level = max(level, self._get(item))
        if kind == "load" and info.data is not None and getattr(info.data, "kind", "") == "local":
            for item in info.data.stores:
                level = max(level, self._get(item))
        return level  # type: ignore[no-any-return]  # an int


def expand(p: Poly) -> Poly:
    """``p`` with every induction variable written as ``init + pass * step``, outer loops included, and quotients of
    what is a multiple of the divisor then as such: ``y / 2`` where ``y`` begins at an even number and goes in even
    steps."""
    for _ in range(_MAX_ROUNDS):
        target, by = None, None
        for monomial in p:
            for item in monomial:
                by = _written_out(item)
                if by is not None:
                    target = item
                    break
            if target is not None:
                break
        if target is None or by is None:
            return p
        replaced = replace(p, target, by)
        if replaced is None:
            return p
        p = replaced
    return p


def _written_out(item: Term) -> Poly | None:
    """What an atom is over the passes of loops; None where it is nothing else."""
    if item.op == "atom" and item.data.kind == "loop":
        info = item.data.data
        if info.step is not None and info.init is not None:
            passes = t.multiply({(info.loop.counter,): 1}, t.poly(info.step))
            return t.add(t.poly(info.init), passes) if passes is not None else None
    elif item.op == "div" and item.args[1].op == "const" and isinstance(item.args[1].data, int):
        divisor, dividend = item.args[1].data, expand(t.poly(item.args[0]))
        if divisor > 1 and dividend and all(c % divisor == 0 for c in dividend.values()):
            return {m: c // divisor for m, c in dividend.items()}
    return None


def _multiple(p: Poly, step: tuple[Term, ...], factor: int) -> bool:
    """Whether every term of ``p`` has ``factor * step`` in it."""
    for monomial, coefficient in p.items():
        rest = list(monomial)
        for item in step:
            if item not in rest:
                return False
            rest.remove(item)
        if coefficient % factor:
            return False
    return True


def replace(p: Poly, item: Term, by: Poly) -> Poly | None:
    """``p`` with an atom replaced by a polynomial; None where that grows out of hand."""
    result: Poly = {}
    for monomial, coefficient in p.items():
        if item not in monomial:
            result = t.add(result, {monomial: coefficient})
            continue
        product: Poly = {(): coefficient}
        for factor in monomial:
            grown = t.multiply(product, by if factor is item else {(factor,): 1})
            if grown is None:
                return None
            product = grown
        result = t.add(result, product)
    return result


def _tid_x() -> Term:
    from cudalint.facts.ids import TID

    return TID["x"]


__all__ = ["THREAD", "UNIFORM", "UNKNOWN", "WARP_UNIFORM", "Uniformity", "expand", "replace"]
