"""The search for sizes of a host function at which a launch does something: which atoms are sizes, in what order
their values are tried."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudalint.facts import terms as t
from cudalint.facts import witness as w
from cudalint.facts.calls import parses
from cudalint.ir import nodes as ir
from cudalint.ir.types import Int

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from cudalint.facts.events import Induction
    from cudalint.facts.model import Launch
    from cudalint.facts.terms import Term

_SIZES = frozenset({"param", "argc", "size", "call", "load", "var"})
"""Atoms of a host function that can be a runtime size; the others (loop counters, merged paths) are not varied."""
_BLOCKS = (256, 128, 64, 32, 512, 1024, 16, 8)
_SIDES = (16, 4, 32, 64, 128, 8)
"""Extents of a block whose extent on another axis is open too: 1024 threads are the most it may have."""
_BUDGET, _LESS = 160, 24
"""Combinations of sizes that one search tries, and one after all searches of a file have tried :data:`_MANY`."""
_MANY = 40_000
LARGEST = 1 << 30
"""Sizes beyond this are not tried: where the arithmetic of the sizes wraps the width rules speak."""
_NO_SIZES = frozenset({"tid", "bid", "bdim", "gdim", "count", "loop", "argc"})


tried = [0]
"""Combinations tried so far for launches of the file at hand: dispatches by macros have hundreds."""


def leaves_of(terms: Iterable[Term] | None) -> set[Term]:
    return {x for term in terms or () for x in t.leaves(term)}


def is_size(leaf: Term) -> bool:
    """Whether an atom of a host function can be a runtime size: no loop counter, no element of a range, and not
    what a function nobody here can see makes of its arguments (``div_ceil(n, 64)`` may well be at least 1)."""
    info = leaf.data
    if is_computed(leaf):
        return False
    return (info.kind in _SIZES or (info.kind == "exit" and _accumulated(info.data))) and info.level < t.UNKNOWN


def is_computed(leaf: Term) -> bool:
    """Whether an atom is what a function nobody here can see makes of its arguments."""
    asked = leaf.data.data
    if leaf.data.kind != "call" or not isinstance(asked, ir.Call) or not leaf.data.name.endswith(")"):
        return False
    return bool(asked.args) and not parses(asked)


def is_template(leaf: Term) -> bool:
    """Whether an atom is a template parameter that is left open: a constant in every instance."""
    return leaf.data.kind == "param" and getattr(leaf.data.data, "kind", "") == "template"


def _accumulated(induction: Induction) -> bool:
    """Whether a loop multiplies or adds up sizes: ``for (…) n *= dims[i]``; not one that doubles or halves."""
    if induction.next is None or induction.step is not None:
        return False
    following = t.bare(induction.next)  # an int may be multiplied by 64-bit sizes
    if following.op not in ("mul", "add"):
        return False
    others = [x for x in following.args if induction.term not in t.leaves(x)]
    return len(others) == 1 and any(x.data.kind in _SIZES for x in t.leaves(others[0]))


def _untouched(leaf: Term) -> tuple[Term, Term] | None:
    """When a loop that works out a value makes a pass, and what the value is where it makes none; None where it makes
    one in any case, or that is not known."""
    induction: Induction = leaf.data.data
    loop = induction.loop
    if induction.init is None or loop.cond is None or (isinstance(loop.node, ir.While) and loop.node.post):
        return None
    begins = {x.term: x.init for x in loop.inductions.values() if x.term is not None and x.init is not None}
    return t.substitute(loop.cond, begins), induction.init


def deciding(terms: Iterable[Term], env: w.Assignment) -> set[Term]:
    """The atoms that the values of ``terms`` hang on at ``env``: of a choice only the side that is taken, of a
    conjunction that fails only what makes it fail."""

    def value(term: Term) -> object:
        try:
            return t.evaluate(term, env)
        except t.Undefined:
            return None

    stack, seen, result = list(terms), set(), set()
    while stack:
        item = stack.pop()
        if item in seen:
            continue
        seen.add(item)
        chosen: Sequence[Term] = item.args
        if item.op == "atom":
            result.add(item)
        elif item.op == "select" and (truth := value(item.args[0])) is not None:
            chosen = item.args[0], item.args[1 if truth else 2]
        elif item.op in ("land", "lor"):
            ends = item.op == "lor"
            chosen = [x for x in item.args if (truth := value(x)) is not None and bool(truth) == ends][:1] or chosen
        stack.extend(chosen)
    return result


def ordered(first: Iterable[Term], then: Iterable[Term]) -> list[Term]:
    """The atoms of some terms, those of ``first`` before the others."""
    result: dict[Term, None] = {}
    for terms in (first, then):
        for leaf in sorted(leaves_of(terms), key=lambda x: x.key):
            result.setdefault(leaf)
    return list(result)


def edges(launch: Launch, terms: Iterable[Term | None]) -> set[int]:
    """Sizes worth trying: around every constant of ``terms`` and of what the host checks, and the next multiples of
    what it wants multiples of."""
    known = w.constants([*(x for x in terms if x is not None), *launch.conditions])
    found = {v for c in known for v in (abs(int(c)) - 1, abs(int(c)), abs(int(c)) + 1)}
    remainders = [part for part in t.inside(launch.conditions) if part.op == "mod"]
    units = {x.args[1].data for x in remainders if x.args[1].op == "const" and x.args[1].data > 1}
    return {v for v in (*found, *(-(-v // c) * c for v in found for c in units)) if 0 < v <= LARGEST}


def smallest(
    goal: Callable[[w.Assignment], bool], leaves: Sequence[Term], launch: Launch, tries: Iterable[int], *,
    block_leaves: Iterable[Term] = (), least: Iterable[Term] = (), zero: Iterable[Term] = (),
    given: Sequence[Term] = (),
) -> w.Assignment | None:  # fmt: skip
    """The smallest sizes found at which ``goal`` holds and the host's checks let the launch happen, and ``given`` too.

    The first of ``leaves`` is made as small as possible; those of ``least`` stay at the smallest size that the checks
    allow; as few of ``zero`` as will do are 0. None where no case is found.
    """
    inner, kept, nothing = set(block_leaves), set(least), set(zero)
    checks = [*launch.conditions, *given]
    sides = _SIDES if sum(bool(t.leaves(x)) for x in launch.block or ()) > 1 else _BLOCKS
    # `block(K / 4)`: K is a size as any other, and its remainders are what matters.
    divided = {
        x
        for term in launch.block or ()
        for part in t.inside([term])
        if part.op in ("div", "shr")
        for x in t.leaves(part.args[0])
    }
    # What a grid divides by is a block's size, even if nothing else can be varied.
    divisors = {x for part in t.inside(launch.grid or ()) if part.op == "div" for x in t.leaves(part.args[1])}
    limit = min(LARGEST, launch.config.max_elements or LARGEST)
    usual = (sides[0] - 1, sides[0], sides[0] + 1) if inner else ()
    ascending = sorted({1, 2, 3, *usual, *(v for v in tries if v <= limit)})
    choices: list[list[int]] = []
    for number, leaf in enumerate(leaves):
        info = leaf.data
        fixed = w.assumed(leaf)
        own = [c for c in checks if t.leaves(c) == {leaf}]

        def can_be(values: Iterable[int], leaf: Term = leaf, own: Sequence[Term] = own) -> list[int]:
            in_range = (v for v in values if leaf.data.lo <= v <= leaf.data.hi)
            return [v for v in in_range if all(w.allowed(c, {leaf: v}) for c in own)]

        possible = can_be(ascending)
        if w.instances(leaf):
            choices.append(list(w.instances(leaf)))
        elif leaf in kept:
            allowed = (v for v in possible if all(w.allowed(c, {leaf: v}) for c in checks))
            choices.append([v for v in (next(allowed, None),) if v is not None])
        elif fixed is not None:
            choices.append([fixed])
        elif info.kind == "sizeof":
            choices.append([*w.WIDTHS])
        elif info.kind == "argc":
            choices.append([1, 2, 3, 4, 5, 8])
        elif leaf in inner and (number or leaf in divisors) and leaf not in divided:
            choices.append(can_be(sides) or possible)
        else:
            # The others stay at 1 where one is 0.
            choices.append([*possible[:1], *can_be([0] if leaf in nothing else []), *possible[1:]])
    if any(not c for c in choices):
        return None

    several = [x for x in leaves if len(w.instances(x)) > 1]
    worked = {x: None for x in (*leaves, *ordered(checks, ())) if x.data.kind == "exit"}
    idle = {x: found for x in worked if (found := _untouched(x)) is not None}
    tied = [t.lor(entered, t.compare("==", x, before)) for x, (entered, before) in idle.items() if x in leaves]
    conditions = [*checks, *tied]

    tests = w.Tests(conditions)

    def good(env: w.Assignment) -> bool:
        if several and not w.instantiated({x: env[x] for x in several}):
            return False
        if not w.holds(goal, env) or not tests.allow(env):
            return False
        left = {x: t.evaluated(before, env) for x, (entered, before) in idle.items() if t.evaluated(entered, env) == 0}
        return w.completed({**{x: v for x, v in left.items() if v is not None}, **env}, conditions) is not None

    for number, values in enumerate(_diagonal(choices)):
        if number > (_BUDGET if tried[0] < _MANY else _LESS):
            return None
        tried[0] += 1
        env = dict(zip(leaves, values, strict=True))
        if good(env):
            return _refined(env, leaves, choices, good, inner)
    return None


def _diagonal(choices: list[list[int]]) -> Iterator[tuple[int, ...]]:
    """Combinations in which one size moves and the others stay at their first few values; then all moving together."""
    if not choices:
        yield ()
        return
    moving = [k for k, c in enumerate(choices) if len(c) > 1] or [0]
    positive = [[v for v in c if v] or c for c in choices]
    bases = [tuple(c[min(k, len(c) - 1)] for c in of) for of, k in ((positive, 0), (positive, 1), (choices, 1))]
    seen = set()
    for base in bases:
        for at in moving:
            for value in choices[at]:
                values = (*base[:at], value, *base[at + 1 :])
                if values not in seen:
                    seen.add(values)
                    yield values
    longest = max(len(c) for c in choices)
    for k in range(longest):
        yield tuple(c[min(k, len(c) - 1)] for c in choices)
    for k in range(longest):
        # The first size large where the others are small, and the other way round.
        yield tuple(c[min(k, len(c) - 1)] if n else c[-1] for n, c in enumerate(choices))


def _refined(
    env: w.Assignment, leaves: Sequence[Term], choices: list[list[int]], good: Callable[[w.Assignment], bool],
    kept: set[Term],
) -> w.Assignment:  # fmt: skip
    """The same case with as few sizes at 0 as will do, and the others brought down by halving, one after the other;
    block sizes and widths of types are kept."""
    for leaf, tries in zip(leaves, choices, strict=True):
        if env[leaf] == 0:
            more = ({**env, leaf: v} for v in tries if v)
            env = next((x for x in more if good(x)), env)
            continue
        if leaf in kept or len(tries) < 2 or leaf.data.kind == "sizeof":
            continue
        low = max((v for v in tries if v < env[leaf]), default=env[leaf])
        while env[leaf] - low > 1:
            middle = (low + env[leaf]) // 2
            lower = {**env, leaf: middle}
            if good(lower):
                env = lower
            else:
                low = middle
    return env


def never_empty(terms: Iterable[Term]) -> bool:
    """Whether dimensions are 1 or more at all sizes of 1 and more, as is seen without trying any."""
    terms = list(terms)
    ranges = {}
    for leaf in leaves_of(terms):
        fixed = w.assumed(leaf)
        given = w.instances(leaf) or ((fixed,) if fixed is not None else (leaf.data.lo, leaf.data.hi))
        low, high = min(given), max(given)
        ranges[leaf] = max(1, low), min(high, LARGEST)
    return all(_positive(x, ranges) for x in terms)


def _positive(term: Term, ranges: dict[Term, t.Interval]) -> bool:
    if t.bounds(term, ranges)[0] > 0:
        return True
    op, args, type_ = term.op, term.args, term.type
    if not isinstance(type_, Int) or any(not isinstance(x.type, Int) for x in args):
        return False
    if op == "select":
        return _positive(args[1], ranges) and _positive(args[2], ranges)
    if t.mathematical_bounds(term, ranges)[1] > type_.hi:
        return False
    if op == "cast":
        return _positive(args[0], ranges)
    if op == "add":
        return min(t.bounds(x, ranges)[0] for x in args) >= 0 and any(_positive(x, ranges) for x in args)
    if op == "div" and min(t.bounds(x, ranges)[0] for x in args) >= 0:
        # `(n + t - 1) / t`: what is divided is no less than what divides it.
        surplus = t.add(t.poly(args[0]), t.poly(args[1]), -1)
        if any(len(m) > 1 for m in surplus):
            return False
        return sum(c * (t.bounds(m[0], ranges)[0 if c > 0 else 1] if m else 1) for m, c in surplus.items()) >= 0
    return op in ("mul", "min") and all(_positive(x, ranges) for x in args)


def all_at(leaves: Iterable[Term], value: int) -> w.Assignment:
    """All sizes at one value, as far as their types allow; what only the machine knows as it is taken to be."""
    env = {}
    for leaf in leaves:
        fixed = w.assumed(leaf)
        env[leaf] = fixed if fixed is not None else max(leaf.data.lo, min(value, leaf.data.hi))
    return env


def sizes_of(env: dict[Term, int]) -> dict[str, int]:
    """The runtime sizes of an assignment by name; launch built-ins, passes of loops and `argc` are none."""
    return {a.data.called(v): v for a, v in env.items() if is_shown(a)}


def is_shown(leaf: Term) -> bool:
    """Whether a witness names an atom: what the machine counts is no size, and an operator of a class no name."""
    return leaf.data.kind not in _NO_SIZES and any(map(str.isalnum, leaf.data.name))
