"""How many elements there are: what the host allocates, what a grid was sized for; which thread is at one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudalint.facts import kernels
from cudalint.facts import terms as t
from cudalint.facts.ids import BID, TID
from cudalint.facts.uniformity import expand

if TYPE_CHECKING:
    from cudalint.facts.events import Obj
    from cudalint.facts.kernels import Case
    from cudalint.facts.model import Launch
    from cudalint.facts.terms import Poly, Term

_SAMPLES = (1, 31, 32, 33, 64, 255, 256, 257, 1024, 1025, 4096, 12345)


def allocated(launch: Launch, obj: Obj) -> Poly | None:
    """Elements of what is passed for a pointer parameter, where the host function that launches allocates it."""
    memory = launch.objects().get(obj)
    size = obj.element.size if obj.element is not None else None
    if memory is None or memory.pieces or memory.obj.bytes is None or not size:
        return None
    return divided(t.poly(memory.obj.bytes), size)


def divided(p: Poly, by: int) -> Poly | None:
    """``p / by`` where that is a polynomial."""
    return {m: c // by for m, c in p.items()} if all(c % by == 0 for c in p.values()) else None


def rounded_up(blocks: Term, size: Term, divisor: Term) -> int | None:
    """``d`` where a grid dimension is ``size + d`` over ``divisor``, rounded up, at all sizes that are tried."""
    fixed = dict.fromkeys(t.leaves(divisor), 32)
    free = sorted(t.leaves(size) - fixed.keys(), key=lambda x: x.key)
    found: set[int] = {-1, 0, 1}
    for number in range(len(_SAMPLES)):
        env = {**fixed, **{x: _SAMPLES[(number + k) % len(_SAMPLES)] for k, x in enumerate(free)}}
        try:
            have, n, by = (int(t.evaluate(x, env)) for x in (blocks, size, divisor))
        except t.Undefined:
            return None
        found = {d for d in found if by > 0 and have == -(-(n + d) // by)}
    return found.pop() if len(found) == 1 else None


def replaced(p: Poly, index: Poly, by: Poly) -> Poly:
    """``p`` with every multiple of ``index`` in it replaced by the same multiple of ``by``."""
    multiplier = scale(p, index)
    if multiplier is None:
        return p
    rest = t.add(p, t.multiply(multiplier, index) or {}, -1)
    return expand(t.add(rest, t.multiply(multiplier, by) or {}))


def scale(p: Poly, index: Poly) -> Poly | None:
    """What ``index`` (without its constant) is multiplied by in ``p``; None where it takes no part in it as a whole."""
    ids = {*TID.values(), *BID.values()}
    moving = [(m, c) for m, c in index.items() if m]
    heads = [(m, c) for m, c in moving if not ids.isdisjoint(m)] or moving
    if not heads:
        return None
    head, factor = heads[0]
    multiplier: Poly = {}
    for monomial, value in p.items():
        rest = t.cofactor(monomial, head)
        if value % factor or rest is None:
            continue
        candidate: Poly = {rest: value // factor}
        whole = t.multiply(candidate, index)
        if whole and all(p.get(m) == c for m, c in whole.items() if m):
            multiplier = t.add(multiplier, candidate)
    return multiplier or None


def thread_at(case: Case, index: Poly, value: int) -> tuple[tuple[int, int, int], tuple[int, int, int]] | None:
    """The block and thread whose ``index`` has this value on the first pass of its loops; None where there is none."""
    linear = {m: c for m, c in index.items() if not any(x.op == "atom" and x.data.kind == "count" for x in m)}
    axes = "xyz"
    used = kernels.ids_of(x for m in linear for x in m)
    bids = [k for k, a in enumerate(axes) if BID[a] in used and case.grid[k] > 1]
    tids = [k for k, a in enumerate(axes) if TID[a] in used and case.block[k] > 1]
    if len(bids) > 1 or len(tids) > 1:
        return None
    b, i = [0, 0, 0], [0, 0, 0]

    def here() -> int:
        return case.of((b[0], b[1], b[2]), (i[0], i[1], i[2])).peak(linear)

    try:
        left = value - here()
        for at, place, extents in ((bids, b, case.grid), (tids, i, case.block)):
            for k in at:
                place[k] = 1
                step = here() - (value - left)
                if step < 1 or left < 0:
                    return None
                place[k] = min(left // step, extents[k] - 1)
                left -= place[k] * step
    except t.Undefined:
        return None
    return ((b[0], b[1], b[2]), (i[0], i[1], i[2])) if left == 0 else None
