"""The search for a witness: values of the runtime sizes at which something goes wrong.

A finding needs a case that shows it, evaluated under exact machine semantics; no case, no finding.
The search tries boundary values (0, 1, around every constant in sight, the ends of the types), in
ascending order, so that the case it finds is the smallest of its kind.
"""

from __future__ import annotations

from itertools import islice, product
from typing import TYPE_CHECKING

from cudalint.facts import terms as t
from cudalint.ir.nodes import Call, Member, Name, Var
from cudalint.ir.types import Int

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from cudalint.facts.terms import Term

Assignment = dict["Term", int]
_BUDGET, _STEPS = 6000, 200
_CHOSEN = frozenset({"param", "argc", "var", "size", "call", "load", "device", "sizeof"})
"""Atoms of a host function whose values a case may choose."""
#: A device-sized grid where the source asks the device: multiprocessors and blocks on each.
SM_COUNT, BLOCKS_PER_SM = 40, 4
#: What a constant that nobody here can see may be, the usual first.
UNSEEN = (32, 1, 2, 4, 8, 16, 64, 128, 256, 512, 1024)
#: What the size of a type that is left open may be, the usual first.
WIDTHS = (4, 2, 8, 1, 16)
_DEVICE = {
    ("thread", "perblock"): 1024, ("thread", "permultiprocessor"): 2048, ("thread", "dim"): 1024, ("blockdim",): 1024,
    ("blocks", "permultiprocessor"): 32, ("warpsize",): 32, ("maxgridsize[1]",): 65535,
    ("maxgridsize[2]",): 65535, ("maxgridsize",): (1 << 31) - 1,
    ("griddimx",): (1 << 31) - 1, ("griddim",): 65535, ("shared", "optin"): 227 << 10, ("shared", "perblock"): 48 << 10,
    ("shared", "permultiprocessor"): 228 << 10, ("register",): 65536, ("regs",): 65536, ("block", "size"): 256,
}  # fmt: skip
"""What devices usually answer, by words of what they are asked."""


def assumed(leaf: Term, sm_count: int = SM_COUNT) -> int | None:
    """The value taken for what only the machine knows (SM count, occupancy) and for template parameters that the source
    gives one; None for data."""
    info = leaf.data
    usual = instances(leaf)
    if usual:
        return usual[0]
    if info.kind not in ("device",):
        return None
    if isinstance(info.data, Call) and "PerMultiprocessor" in info.data.name:
        return BLOCKS_PER_SM  # an occupancy query, whatever its result is put into
    asked = next((x.name for x in info.data.args if isinstance(x, Name)), "") if isinstance(info.data, Call) else ""
    if isinstance(info.data, Member):
        asked = info.data.field
    name = (asked or info.name.rpartition(".")[2]).lower().replace("_", "")
    if "multiprocessorcount" in name or "sm" in name.replace("smem", ""):
        return sm_count
    for words, value in _DEVICE.items():
        if all(word in name for word in words):
            return value
    if "grid" in name:
        return sm_count * BLOCKS_PER_SM
    return BLOCKS_PER_SM


def instances(leaf: Term) -> tuple[int, ...]:
    """The values that the source gives a template parameter: the k-th of each parameter make one instance."""
    var = leaf.data.data
    return var.usual if leaf.data.kind == "param" and isinstance(var, Var) and var.kind == "template" else ()


def unseen(leaf: Term) -> bool:
    """Whether an atom is a constant of the program whose value nobody here can see: of a header that is not there, of
    a class that is not known, set in another file, or left for a build to fill in."""
    info = leaf.data
    var = info.data
    return info.kind == "name" or (
        info.kind == "var" and isinstance(var, Var) and var.kind == "global" and var.const and var.init is None
    )


def instantiated(env: Assignment) -> bool:
    """Whether the values of template parameters are together those of an instance that the source shows."""
    columns = [(instances(x), v) for x, v in env.items() if x.op == "atom" and len(instances(x)) > 1]
    return not columns or any(
        all(k < len(values) and values[k] == v for values, v in columns) for k in range(len(columns[0][0]))
    )


def constants(terms: Iterable[Term], *, floats: bool = False) -> set[int | float]:
    """The constants that terms are made of, integers only unless ``floats``."""
    kinds = (int, float) if floats else (int,)
    result: set[int | float] = set()
    seen: set[Term] = set()
    stack = list(terms)
    while stack:
        term = stack.pop()
        if term in seen:
            continue
        seen.add(term)
        if term.op == "const" and isinstance(term.data, kinds) and abs(term.data) < 1 << 70:
            result.add(term.data)
        stack.extend(term.args)
    return result


def candidates(leaf: Term, known: Iterable[int], extra: Iterable[int] = ()) -> list[int]:
    """Values worth trying for a size, ascending: small ones, around ``known`` constants, ``extra`` as given."""
    info = leaf.data
    if unseen(leaf):
        return [*UNSEEN]
    if info.kind == "sizeof":
        return [*WIDTHS]
    low, high = max(0, info.lo), info.hi
    if isinstance(leaf.type, Int):
        high = min(high, leaf.type.hi)
    values = {0, 1, 2, 3}
    for c in known:
        c = abs(c)
        values.update((c - 1, c, c + 1))
    values.update(extra)
    return sorted(v for v in values if low <= v <= high)


def solve(
    goal: Callable[[Assignment], bool] | Term, leaves: Sequence[Term], *, given: Iterable[Term] = (),
    extra: Iterable[int] = (), values: Mapping[Term, Sequence[int]] | None = None, limit: int | None = None,
    budget: int = _BUDGET,
) -> Assignment | None:  # fmt: skip
    """The smallest assignment tried for which ``goal`` holds and every condition of ``given`` does.

    ``leaves`` are the atoms to vary, most important first; ``values`` fixes the tries of some.
    ``limit`` is the largest size taken as possible (the configuration's ``max-elements``).
    Conditions that cannot be evaluated (they hang on other unknowns) do not count.
    """
    conditions = [g for g in given if g.op != "const"]
    related = relevant(conditions, leaves)
    everything = list(leaves)
    for condition in related:
        for leaf in sorted(t.leaves(condition), key=lambda x: x.key):
            if leaf not in everything and leaf.data.kind != "loop":
                everything.append(leaf)
    known = [int(c) for c in constants([*related, *([goal] if isinstance(goal, t.Term) else [])])]
    tries: list[Sequence[int]] = []
    for leaf in everything:
        chosen = (values or {}).get(leaf)
        if chosen is None:
            fixed = assumed(leaf)
            chosen = instances(leaf) or ([fixed] if fixed is not None else candidates(leaf, known, extra))
            if limit is not None:
                chosen = [v for v in chosen if v <= limit]
        if not chosen:
            return None
        tries.append(chosen)
    for combination in islice(product(*tries), budget):
        env = dict(zip(everything, combination))
        if instantiated(env) and holds(goal, env) and all(allowed(c, env) for c in related):
            return env
    return None


class Tests:
    """Conditions that assignment after assignment is held against: the one that refused the last is asked first."""

    def __init__(self, conditions: Iterable[Term]) -> None:
        self._order = list(conditions)

    def allow(self, env: Assignment) -> bool:
        for number, condition in enumerate(self._order):
            if not allowed(condition, env):
                self._order.insert(0, self._order.pop(number))
                return False
        return True


def completed(env: Assignment, conditions: Collection[Term]) -> Assignment | None:
    """``env`` with values of what else its sizes are checked against, directly or through others, so that all
    conditions hold; None where there are no such values among those tried.

    What is no size stays without a value, and a condition that hangs on it does not count. So does everything where
    the search takes too long.
    """
    if not all(allowed(c, env) for c in conditions):
        return None
    asked = [(c, t.leaves(c)) for c in conditions]
    asked = [(c, leaves) for c, leaves in asked if all(x in env or _can_be_chosen(x) for x in leaves)]
    reached = list(env)
    for leaf in reached:  # grows on the way
        for _, leaves in asked:
            if leaf in leaves:
                reached += sorted(leaves.difference(reached), key=lambda x: x.key)
    if len(reached) == len(env):
        return env
    if not instantiated(env):
        return None
    told = tuple([c for c, _ in asked])
    if told not in spoken:
        spoken[told] = {int(c) for c in constants(told)}
    known = spoken[told].union(env.values())
    steps = []
    given = set(env)
    for leaf in reached[len(env) :]:
        given.add(leaf)
        fixed = 4 if leaf.data.kind == "sizeof" else assumed(leaf)
        values = instances(leaf) or ([fixed] if fixed is not None else candidates(leaf, known))
        # Each condition is asked once it has all its values.
        due = [c for c, leaves in asked if leaf in leaves and leaves <= given]
        steps.append((leaf, sorted(values, key=lambda v: v == 0), due))
    try:
        return chosen(env, steps, iter(range(_STEPS)))
    except StopIteration:
        return env


def undecided(conditions: Iterable[Term], sizes: Iterable[Term]) -> bool:
    """Whether some condition on sizes hangs on something too that is none."""
    return any(not _can_be_chosen(x) for c in relevant(conditions, sizes) for x in t.leaves(c))


def _can_be_chosen(leaf: Term) -> bool:
    return leaf.data.kind in _CHOSEN and isinstance(leaf.type, Int) and leaf.data.level < t.UNKNOWN


def chosen(
    env: Assignment, steps: Sequence[tuple[Term, Sequence[int], list[Term]]], budget: Iterator[int],
    last: Callable[[Assignment], bool] = lambda env: True,
) -> Assignment | None:  # fmt: skip
    """``env`` with one of its values for each atom of ``steps``, so that the conditions on each hold, and ``last`` of
    them all.

    Each try takes one from ``budget``, which raises StopIteration at its end. Values of template parameters in ``env``
    are those of an instance."""
    if not steps:
        return env if last(env) else None
    leaf, values, conditions = steps[0]
    for value in values:
        next(budget)
        more = {**env, leaf: value}
        if (len(instances(leaf)) < 2 or instantiated(more)) and all(allowed(c, more) for c in conditions):
            found = chosen(more, steps[1:], budget, last)
            if found is not None:
                return found
    return None


def refuted(conditions: Iterable[Term], env: Assignment) -> bool:
    """Whether a condition is false whatever the values are that are missing: a product with a factor of 0 is 0."""
    for condition in conditions:
        leaves = t.leaves(condition)
        if leaves <= env.keys():
            if t.evaluated(condition, env) == 0:
                return True
        elif not leaves.isdisjoint(env):
            key = condition, *((x, env[x]) for x in leaves if x in env)
            if key not in refutations:
                known = {x: t.const(v, x.type) for x, v in env.items() if x in leaves}
                refutations[key] = t.substitute(condition, known) is t.FALSE
            if refutations[key]:
                return True
    return False


refutations: dict[tuple[object, ...], bool] = {}
"""Whether sizes refute a condition, for launch after launch of a dispatch, until the terms are forgotten."""
spoken: dict[tuple[Term, ...], set[int]] = {}
"""The constants in the conditions of launches, likewise."""


def relevant(conditions: Iterable[Term], leaves: Iterable[Term]) -> list[Term]:
    """The conditions that speak of one of ``leaves``."""
    wanted = set(leaves)
    return [c for c in conditions if not wanted.isdisjoint(t.leaves(c))]


def holds(goal: Callable[[Assignment], bool] | Term, env: Assignment) -> bool:
    """Whether ``goal`` is true; false where it has no value."""
    if isinstance(goal, t.Term):
        return bool(t.evaluated(goal, env))
    try:
        return goal(env)
    except t.Undefined:
        return False


def allowed(condition: Term, env: Assignment) -> bool:
    """Whether ``condition`` permits the assignment: true where a value is missing that it asks for, false where it
    has none for these (a division by zero comes before the launch)."""
    value = t.evaluated(condition, env)
    if value is not None:
        return bool(value)
    leaves = t.leaves(condition)
    if leaves <= env.keys():
        return False
    # A product is 0 with any of its factors, whatever the others are.
    nothing = frozenset(x for x in leaves if env.get(x) == 0 and isinstance(x.type, Int))
    return not nothing or t.with_zeros(condition, nothing) is not t.FALSE
