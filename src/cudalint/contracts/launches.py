"""Whether a launch keeps to a contract."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudalint.facts import search
from cudalint.facts import terms as t
from cudalint.facts import witness as w
from cudalint.facts.events import conjuncts_of
from cudalint.facts.expressions import from_poly
from cudalint.facts.extents import allocated
from cudalint.facts.model import condition_ranges
from cudalint.ir.types import I64, Int
from cudalint.lazy import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cudalint.contracts.infer import Requirement
    from cudalint.facts.model import Launch
    from cudalint.facts.terms import Term


_USUAL = 1000
_LAUNCHED = frozenset({"bdim", "gdim"})
_SIDES = frozenset({33, 48, 96, 1024})
"""Sides of a block that are no power of two, no whole warps, or as long as there are."""


class Kept(NamedTuple):
    """Does a launch keep to a requirement: ``holds`` is None where that cannot be told.

    ``sizes`` are the smallest ones found at which it does not.
    """

    requirement: Requirement
    holds: bool | None
    sizes: Mapping[str, int] = {}


def kept(requirement: Requirement, launch: Launch) -> Kept:
    """Does the launch, as its host function makes it, keep to the requirement: to each condition that it is made of."""
    if requirement.condition is None:
        form = launch.event.node.form
        return Kept(requirement, None if not form else "Cooperative" in form)
    sides = [_kept(requirement, each, launch) for each in conjuncts_of(requirement.condition)]
    sides.sort(key=lambda each: (False, None, True).index(each.holds))
    return sides[0]


def _kept(requirement: Requirement, condition: Term, launch: Launch) -> Kept:
    """Look for sizes at which the launch breaks the condition.

    Where a dimension is whatever a caller passes, one value that would break it says nothing.
    """
    at_host = _at_host(launch, condition)
    if not _is_meant(requirement, condition, launch):
        return Kept(requirement, True if at_host is t.TRUE else None)
    if at_host.op == "const":
        return Kept(requirement, bool(at_host.data))
    if not any(leaf.data.kind in _LAUNCHED for leaf in t.leaves(condition)):
        # What the kernel's sizes may be is for the host to make sure of, and what it may be asked for is not seen.
        return Kept(requirement, _assured(at_host, launch.checked()))
    if launch.grid is None or launch.block is None or not _seen(launch, at_host):
        return Kept(requirement, None)
    if t.lnot(at_host) in launch.conditions or at_host in launch.conditions:
        return Kept(requirement, at_host in launch.conditions)
    leaves = search.ordered([at_host], [*launch.grid, *launch.block])
    parts = (*launch.grid, *launch.block)
    tries = search.edges(launch, [at_host, *parts])
    if requirement.kind == "block":
        tries |= _SIDES
    passed = [launch.mapping[leaf] for leaf in t.leaves(condition) if leaf in launch.mapping]
    tried = False

    def broken(env: w.Assignment) -> bool:
        nonlocal tried
        dims = [int(t.evaluate(x, env)) for x in parts]
        block = dims[3:]
        if min(block) <= 0 or block[0] * block[1] * block[2] > 1024:
            return False
        tried = True
        if t.evaluate(at_host, env, exact=False):
            return False
        # Where the host's own arithmetic wraps, the kernel is not asked for that size.
        return all(t.evaluate(x, env) == t.evaluate(x, env, exact=False) for x in passed)

    if requirement.kind == "limit":
        env = _largest_sizes(broken, leaves, launch)
    else:
        # What is asked of the block is broken by the sides that a search for sizes leaves out.
        usual_sides = () if requirement.kind == "block" else search.leaves_of(launch.block)
        env = search.smallest(broken, leaves, launch, tries, block_leaves=usual_sides)
    if env is None:
        # What has no value at an ordinary size (a division by 0) was not looked at.
        usual = search.all_at(leaves, _USUAL)
        return Kept(requirement, True if tried and _value(at_host, usual) is not None else None)
    if _left_to_callers(launch, condition):
        return Kept(requirement, None)
    return Kept(requirement, False, search.sizes_of(env))


def _at_host(launch: Launch, condition: Term) -> Term:
    """A condition of the kernel in terms of the host function, arrays as long as it allocates them."""
    known = {}
    for leaf in t.leaves(condition):
        elements = allocated(launch, leaf.data.data) if leaf.data.kind == "extent" else None
        passed = _dynamic(launch) if leaf.data.kind == "dynamic" else None
        if elements is not None:
            known[leaf] = from_poly(elements, I64)
        elif passed is not None:
            known[leaf] = t.convert(passed, I64)
    return launch.at_launch(t.substitute(condition, known))


def _dynamic(launch: Launch) -> Term | None:
    """The bytes of dynamic shared memory that the launch asks for; None where that cannot be seen."""
    if launch.event.shared is None:
        # What a configuration object holds may have been put there elsewhere.
        return None if launch.event.node.form.startswith("cudaLaunchKernelEx") else t.const(0, I64)
    return launch.event.shared


def _is_meant(requirement: Requirement, condition: Term, launch: Launch) -> bool:
    """Is it to be expected that the condition holds? Memory may have more elements than a launch is meant for, unless
    the grid is sized for them."""
    if requirement.kind != "cover":
        return True
    extents = [leaf for leaf in t.leaves(condition) if leaf.data.kind == "extent"]
    sized = {x for leaf in extents for x in t.leaves(_at_host(launch, leaf))}
    return not extents or not sized.isdisjoint(search.leaves_of(launch.grid))


def _assured(condition: Term, checked: list[Term]) -> bool | None:
    """Do the host's checks tell that the condition holds, or that it does not?"""
    if condition in checked or t.lnot(condition) in checked:
        return condition in checked
    ranges, sides = condition_ranges(checked), condition.args
    if condition.op not in ("lt", "le"):
        return None
    (low, high), (least, most) = (t.bounds(side, ranges) for side in sides)
    if high < least or (condition.op == "le" and high == least):
        return True
    return False if low > most or (condition.op == "lt" and low == most) else None


def _largest_sizes(broken: Callable[[w.Assignment], bool], leaves: list[Term], launch: Launch) -> w.Assignment | None:
    """The least size, near the largest that its type takes, at which an index wraps; the others as they usually are."""
    ends = [bound - less for bound in (1 << 31, 1 << 32, 1 << 33) for less in (0, 1, 1 << 20)]
    found = w.solve(broken, leaves, given=launch.conditions, extra=ends, limit=launch.config.max_elements)
    if not found:
        return None
    leaf, high = max(found.items(), key=lambda item: item[1])
    low = 0
    while high - low > 1:
        middle = (low + high) // 2
        lower = {**found, leaf: middle}
        if w.holds(broken, lower) and all(w.allowed(c, lower) for c in launch.conditions):
            high = middle
        else:
            low = middle
    return {**found, leaf: high}


def _value(term: Term, env: w.Assignment) -> object:
    try:
        return t.evaluate(term, env, exact=False)
    except t.Undefined:
        return None


def _seen(launch: Launch, at_host: Term) -> bool:
    """Is everything in the condition known at the launch, or a size of its host function?"""
    formal = set(launch.kernel.flow.params.values()) if launch.kernel is not None else set()
    return all(
        leaf not in formal and (search.is_size(leaf) or w.assumed(leaf) is not None) for leaf in t.leaves(at_host)
    )


def _left_to_callers(launch: Launch, condition: Term) -> bool:
    """Is a dimension that the condition asks about what a caller passes, and no size of the kernel's?"""
    asked = t.leaves(condition)
    # What the kernel is passed as well, or a product of it, is a size of its; what a size is divided by is none.
    passed = [t.bare(actual) for formal, actual in launch.mapping.items() if formal.data.kind not in _LAUNCHED]
    sizes = {x for actual in passed if isinstance(actual.type, Int) for x in t.atoms_of(t.poly(actual))}
    sizes |= {x for leaf in asked if leaf.data.kind == "extent" for x in t.leaves(_at_host(launch, leaf))}
    dimensions = {x for leaf in asked if leaf.data.kind in _LAUNCHED for x in t.leaves(launch.at_launch(leaf))}
    return any(leaf.data.kind != "device" for leaf in dimensions - sizes)
