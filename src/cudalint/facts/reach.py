"""How large values get: host sizes by their types and checks, and with them the indices of a launch.

Sizes are taken as not negative, and every value as what its type can hold: an index is not blamed
for a grid whose own arithmetic has gone wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudalint.facts import shapes
from cudalint.facts import terms as t
from cudalint.facts import witness as w
from cudalint.facts.ids import BDIM, BID, GDIM, TID
from cudalint.ir.types import Int

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudalint.config import Config
    from cudalint.facts.model import Launch
    from cudalint.facts.terms import Interval, Poly, Term

#: Atoms whose values are data or come with them: taken as sizes, which are not negative.
_DATA = frozenset({"param", "argc", "var", "name", "load", "call", "size", "unknown", "uninit", "phi", "exit"})
#: What a query of the device returns at most (multiprocessors, resident blocks, threads); grid limits aside.
_DEVICE_MAX = 1 << 16
_AXES = "xyz"


class Reach:
    """Upper bounds under the conditions of one launch; ``launch`` None: nothing is known of the launch.

    Terms may be a kernel's (its parameters and dimensions are replaced by what is passed) or the host's.
    """

    __slots__ = ("_memo", "_ranges", "launch", "limit")

    def __init__(self, launch: Launch | None, config: Config, conditions: Sequence[Term] | None = None) -> None:
        self.launch, self.limit = launch, config.max_elements
        self._memo: dict[Term, Interval] = {}
        self._ranges: dict[Term, Interval] = {}
        if conditions is None:
            conditions = launch.conditions if launch is not None else ()
        for condition in conditions:
            self._condition(condition)
        if launch is not None:
            for triple, extents, ids in ((launch.grid, GDIM, BID), (launch.block, BDIM, TID)):
                for number, axis in enumerate(_AXES):
                    top = extents[axis].data.hi
                    if triple is not None:
                        top = min(top, max(1, self.interval(triple[number])[1]))
                    self._ranges[ids[axis]] = (0, top - 1)

    def _condition(self, term: Term) -> None:
        """``x < constant`` and its like, for any value x."""
        if term.op not in ("lt", "le", "eq"):
            return
        strict = 1 if term.op == "lt" else 0
        first, second = term.args
        for side, other, upper in ((first, second, True), (second, first, False)):
            if other.op != "const" or not isinstance(other.data, int):
                continue
            side = t.bare(side)
            low, high = self._ranges.get(side) or self._own(side)
            if upper or term.op == "eq":
                high = min(high, other.data - strict)
            if not upper or term.op == "eq":
                low = max(low, other.data + strict)
            self._ranges[side] = (low, max(low, high))

    def _own(self, term: Term) -> Interval:
        if term.op != "atom":
            return t.type_range(term.type)
        info = term.data
        low, high = info.lo, info.hi
        if info.kind in _DATA:
            low = max(0, low)
            if self.limit is not None:
                high = min(high, self.limit)
        elif info.kind == "device":
            known = w.assumed(term) or 0
            low, high = 1, min(high, max(_DEVICE_MAX, known))
        return low, max(low, high)

    def interval(self, term: Term) -> Interval:
        """Bounds of a value at this launch."""
        if self.launch is not None:
            term = self.launch.at_launch(term)
        found = self._memo.get(term)
        if found is None:
            for leaf in t.leaves(term):
                if leaf not in self._ranges and leaf.data.kind != "loop":
                    self._ranges[leaf] = self._own(leaf)
            found = t.plausible_bounds(term, self._ranges, self._memo)
        return found

    def high(self, term: Term) -> int:
        """The largest value of a term at this launch."""
        return self.interval(term)[1]

    def index(self, p: Poly) -> int:
        """The largest value of an index, a step or a product of launch dimensions (or a bound above it)."""
        total = 0
        for monomial, coefficient in p.items():
            if coefficient > 0:
                total += self._product(list(monomial), coefficient)
        return total

    def _product(self, factors: list[Term], coefficient: int) -> int:
        total = coefficient
        launch = self.launch
        for number, axis in enumerate(_AXES):
            if launch is None or launch.grid is None or launch.block is None or BDIM[axis] not in factors:
                continue
            for extent in (BID[axis], GDIM[axis]):
                if extent in factors:
                    factors.remove(extent)
                    factors.remove(BDIM[axis])
                    total *= self.threads(launch.grid[number], launch.block[number])
                    break
        for factor in factors:
            total *= max(0, self.high(factor))
        return total

    def threads(self, blocks: Term, block: Term) -> int:
        """The most threads that ``blocks`` blocks of ``block`` threads have: ``ceil(n / t) * t`` is about n."""
        size = max(0, self.high(block))
        op, args = blocks.op, blocks.args
        if op == "cast":
            inner = self.threads(args[0], block)
            return min(inner, blocks.type.hi * size) if isinstance(blocks.type, Int) else inner
        if op == "add":
            return self.threads(args[0], block) + self.threads(args[1], block)
        if op == "sub":
            return self.threads(args[0], block)
        if op == "min":
            return min(self.threads(args[0], block), self.threads(args[1], block))
        if op == "max":
            return max(self.threads(args[0], block), self.threads(args[1], block))
        if op == "select":
            return max(self.threads(args[1], block), self.threads(args[2], block))
        if op == "call" and blocks.data in ("ceil", "round", "rint", "floor", "trunc"):
            return self.threads(args[0], block) + size
        if op == "shr" and args[1].op == "const" and 0 <= args[1].data < 63:
            return self.threads(t.make("div", blocks.type, args[0], t.const(1 << args[1].data, blocks.type)), block)
        if op == "div":
            divisor, extent = t.poly(t.bare(args[1])), t.poly(t.bare(block))
            if not extent:
                return 0
            times = t.constant(shapes.divide(divisor, extent) or {})
            if times:
                return max(0, self.high(args[0])) // times
            low = self.interval(args[1])[0]
            if low > 0:
                return max(0, self.high(args[0])) * size // low
        return max(0, self.high(blocks)) * size


def is_wide(term: Term) -> bool:
    """Whether a host value comes from a size of 64 bits: one that is given, or a power of two (``1UL << n``)."""
    for part in t.inside([term]):
        if not isinstance(part.type, Int) or part.type.bits <= 32:
            continue
        given = [part] if part.op == "atom" else t.leaves(part.args[1]) if part.op == "shl" else ()
        if given and all(x.data.kind in _DATA for x in given):
            return True
    return False
