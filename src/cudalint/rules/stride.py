"""Loops whose index can be stepped past what its type holds before the bound is tested (CL103 and CL108)."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from cudalint.facts import grids
from cudalint.facts import terms as t
from cudalint.facts import witness as w
from cudalint.facts.events import Obj
from cudalint.facts.reach import Reach
from cudalint.findings import digits
from cudalint.ir.types import Int
from cudalint.rules import width

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudalint.facts.events import Induction
    from cudalint.facts.model import Kernel, Launch
    from cudalint.facts.terms import Term

Case = tuple[dict[str, int], "tuple[int, int, int] | None", tuple[int, int, int], dict[str, "int | str"], str]
_EXTENTS = frozenset({"bdim", "gdim"})
_LAST = 1 << 62
_TILE = 1 << 12
"""Constants up to here may be what the host checks a size to be a multiple of."""


def sides(test: Term, induction: Induction) -> tuple[int, Term] | None:
    """``i + c < limit`` as (how much less than the limit i stays at least, limit)."""
    if test.op not in ("lt", "le") or induction.term is None:
        return None
    for position in (0, 1):
        offset = t.constant(t.add(t.poly(test.args[position]), t.poly(induction.term), -1))
        if offset is not None:
            return offset + (1 if (test.op == "lt") == (position == 0) else 0), test.args[1 - position]
    return None


def overrun(kernel: Kernel, launch: Launch | None, induction: Induction, test: Term, limit: Term) -> Case | None:
    """The smallest case in which the index leaves its type and a thread goes on, or an element is lost.

    Returns sizes, grid, block, the numbers, and what happens in words.
    """
    index, step = induction.term, induction.step
    found = sides(test, induction)
    if index is None or step is None or found is None or not isinstance(index.type, Int):
        return None
    type_ = index.type
    less, tested = found
    top = type_.hi
    config = kernel.config
    reach = Reach(launch, config)
    at = launch.at_launch if launch is not None else (lambda term: term)
    bound, exact_bound, pace = at(limit), at(tested), at(step)
    if t.bare(bound).op in ("atom", "const") and reach.high(limit) - less + max(0, reach.high(step)) <= top:
        return None  # a bound that is computed can overflow by itself
    passed = [at(x) for x in t.leaves(limit)]
    extents = {x: at(x) for x in t.leaves(step) if x.data.kind in _EXTENTS}
    own_pace = t.substitute(step, {x: at(x) for x in t.leaves(step) if x not in extents})
    leaves = t.leaves(bound) | t.leaves(pace)
    fixed = width.defaults(launch, leaves, config)
    if launch is not None and launch.grid is not None:
        # One block a row is a number of rows: where the bound is made of it, it is a size as any other.
        for leaf in {t.bare(x) for x in launch.grid} & t.leaves(bound) - grids.block_sizes(launch):
            if w.assumed(leaf) is None:
                fixed.pop(leaf, None)
    free = sorted((x for x in t.leaves(bound) if x not in fixed), key=lambda x: (-reach.high(x), x.key))
    rest = sorted((x for x in leaves if x not in fixed), key=lambda x: x.key)
    # What the host checks a size to be a multiple of.
    multiples = [int(c) for c in w.constants(launch.conditions) if 1 < c <= _TILE] if launch is not None else []

    def case(env: dict[Term, int], main: Term | None) -> Case | None:
        # A grid is what the host's own numbers make it, wrapped or not.
        made = {x: v for x, term in extents.items() if (v := width.value(term, env)) is not None}
        last, pass_ = width.value(bound, env, exact=False), width.value(own_pace, {**env, **made}, exact=False)
        if last is None or pass_ is None or pass_ <= 0 or last - less + pass_ <= top:
            return None
        last -= less
        if any(width.value(x, env) != width.value(x, env, exact=False) for x in passed):
            return None  # the host's own numbers wrap: the kernel never gets such a bound
        if launch is not None and not all(w.allowed(c, env) for c in launch.conditions):
            return None
        shape = _shape(launch, env, kernel)
        if shape is None:
            return None
        grid, block = shape
        dimensions = () if launch is None else (*(launch.grid or ()), *(launch.block or ()))
        shown = width.decisive(env, (bound, pace, *dimensions))
        sizes = width.named(shown)
        told = f"{main.data.called(env[main])} = {digits(env[main])}" if main is not None else ""
        others = {x: shown[x] for x in free if x is not main and shown.get(x, 0) > 1}
        if main is not None and (beside := width.named(others)):
            told += "".join(f", {name} = {digits(number)}" for name, number in beside.items())
        begin = f"at {told} " if told else ""
        machine = width.value(exact_bound, env)
        if machine != last + less and any(width.narrowed(exact_bound)):
            return None  # a count that the host cuts to 32 bits is CL106's
        for value in (last + pass_, top + 1):
            # Stepped to from an index that is still in range, or a thread's very start.
            if value <= top or not (value < pass_ or value - pass_ <= min(last, top)):
                continue
            wrapped = type_.wrap(value)
            here = at(test)
            truth = width.value(here, {**env, index: wrapped})
            if truth is not None and bool(truth):
                then = "the loop goes on below the array" if wrapped < 0 else "the loop runs over elements already done"
                if value < pass_:
                    numbers: dict[str, int | str] = {"index in 32 bits": wrapped, "index meant": value}
                    return (
                        sizes,
                        grid,
                        block,
                        numbers,
                        (f"{begin}a thread starts at {digits(wrapped)} instead of {digits(value)}, and {then}"),
                    )
                numbers = {"index before the step": value - pass_, "index after it": wrapped}
                return (
                    sizes,
                    grid,
                    block,
                    numbers,
                    (
                        f"{begin}a thread steps from {digits(value - pass_)} by {digits(pass_)}, past {digits(top)} to "
                        f"{digits(wrapped)}; {then}"
                    ),
                )
        meant = last + less
        narrow = isinstance(tested.type, Int) and tested.type.bits == 32 and t.bare(tested).type is tested.type
        if narrow and machine is not None and machine != meant:
            return (
                sizes,
                grid,
                block,
                {"bound": machine, "bound meant": meant},
                (
                    f"{begin}the bound itself comes out as {digits(machine)} instead of {digits(meant)}, and elements "
                    "are left out"
                ),
            )
        if last > top:
            wrapped = type_.wrap(top + 1)
            return (
                sizes,
                grid,
                block,
                {"index in 32 bits": wrapped, "first element left out": top + 1},
                (
                    f"{begin}the index {digits(top + 1)} becomes {digits(wrapped)}, the loop ends, and that element "
                    "is left out"
                ),
            )
        return None

    if not free:
        return case({**width.others_at(launch, rest, 1, config), **fixed}, None)
    # What the kernel stores in shared memory may hang on the constants of its instance.
    given = [x for x in fixed if w.instances(x)] if any(map(_is_shared, free)) else []
    instances = [dict(zip(given, row, strict=True)) for row in zip(*map(w.instances, given), strict=False)] or [{}]
    for instance, (main, others) in product(instances, width.tries(free)):
        env = {**width.others_at(launch, rest, others, config), **fixed, **instance}
        high = min(reach.high(main), _LAST, _stored(kernel, main, at, env))

        def enough(n: int, main: Term = main, env: dict[Term, int] = env) -> bool:
            here = {**env, main: n}
            last, pass_ = width.value(bound, here, exact=False), width.value(pace, here, exact=False)
            return last is not None and pass_ is not None and pass_ > 0 and last - less + pass_ > top

        least = width.smallest(max(1, reach.interval(main)[0]), high, enough)
        if least is None:
            continue

        def beyond(n: int, main: Term = main, env: dict[Term, int] = env) -> bool:
            last = width.value(bound, {**env, main: n}, exact=False)
            return last is not None and last - less > top

        result = case({**env, main: least}, main)
        if result is not None:
            return result
        # A negative index passes an unsigned test only where the bound itself is beyond the type's maximum.
        admitted = width.smallest(least, high, beyond)
        tries = {least, top + 2, top + 2 + less, *([admitted] if admitted is not None else [])}
        # What makes the grid may have wrapped before: it is the largest there is next to where it does so.
        tries.update(top + 1 - c for c in multiples)
        for n in sorted({*tries, *(-(-n // c) * c for n in tries for c in multiples)}):
            if least < n <= high:
                result = case({**env, main: n}, main)
                if result is not None:
                    return result
    return None


def _is_shared(leaf: Term) -> bool:
    """Whether a value is an element of shared memory."""
    return leaf.data.kind == "load" and isinstance(leaf.data.data, Obj) and leaf.data.data.kind == "shared"


def _stored(kernel: Kernel, limit: Term, at: Callable[[Term], Term], env: dict[Term, int]) -> int:
    """The largest value that an element of shared memory may have, by what the kernel stores there."""
    if not _is_shared(limit):
        return _LAST
    stored = [a.value for a in kernel.flow.accesses if a.obj is limit.data.data and a.mode != "r"]
    known = {x: (v, v) for x, v in env.items()}
    return max((t.bounds(at(x), known)[1] if x is not None else _LAST for x in stored), default=_LAST)


def _shape(
    launch: Launch | None, env: dict[Term, int], kernel: Kernel
) -> tuple[tuple[int, int, int] | None, tuple[int, int, int]] | None:
    """The grid and block at these sizes; None where the driver would refuse such a launch."""
    default = width.block_of(launch, kernel.config)
    if launch is None or launch.grid is None or launch.block is None:
        return (width.DEVICE_BLOCKS, 1, 1), default
    sizes = {**env}
    for triple in (launch.grid, launch.block):
        for item in triple:
            for leaf in t.leaves(item):
                if leaf not in sizes:
                    sizes.update(width.others_at(launch, {leaf}, 1, kernel.config))
                    sizes.update(width.defaults(launch, {leaf}, kernel.config))
    grid = [width.value(x, sizes) for x in launch.grid]
    block = [width.value(x, sizes) for x in launch.block]
    if any(x is None for x in (*grid, *block)):
        return None, default
    gx, gy, gz = (x or 0 for x in grid)
    bx, by, bz = (x or 0 for x in block)
    if not (1 <= gx < 1 << 31 and 1 <= gy < 1 << 16 and 1 <= gz < 1 << 16 and 1 <= bx * by * bz <= 1024):
        return None
    return (gx, gy, gz), (bx, by, bz)
