"""Whether a launch keeps to a contract."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cudalint.facts import search
from cudalint.facts import terms as t
from cudalint.facts import witness as w

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cudalint.contracts.infer import Requirement
    from cudalint.facts.model import Launch
    from cudalint.facts.terms import Term


_USUAL = 1000


class Kept(NamedTuple):
    """Does a launch keep to a requirement: ``holds`` is None where that cannot be told.

    ``sizes`` are the smallest ones found at which it does not.
    """

    requirement: Requirement
    holds: bool | None
    sizes: Mapping[str, int] = {}


def kept(requirement: Requirement, launch: Launch) -> Kept:
    """Look for sizes at which the launch, as its host function makes it, breaks the requirement.

    Where a dimension is whatever a caller passes, one value that would break it says nothing.
    """
    condition = requirement.condition
    if condition is None:
        form = launch.event.node.form
        return Kept(requirement, None if not form else "Cooperative" in form)
    if launch.grid is None or launch.block is None:
        return Kept(requirement, None)
    at_host = launch.at_launch(condition)
    if at_host.op == "const":
        return Kept(requirement, bool(at_host.data))
    if not _seen(launch, at_host):
        return Kept(requirement, None)
    if t.lnot(at_host) in launch.conditions or at_host in launch.conditions:
        return Kept(requirement, at_host in launch.conditions)
    leaves = search.ordered([at_host], [*launch.grid, *launch.block])
    parts = (*launch.grid, *launch.block)
    tries = search.edges(launch, [at_host, *parts])

    def broken(env: w.Assignment) -> bool:
        dims = [int(t.evaluate(x, env)) for x in parts]
        block = dims[3:]
        return min(block) > 0 and block[0] * block[1] * block[2] <= 1024 and not t.evaluate(at_host, env, exact=False)

    if requirement.kind == "limit":
        env = _largest_sizes(broken, leaves, launch)
    else:
        env = search.smallest(broken, leaves, launch, tries, block_leaves=search.leaves_of(launch.block))
    if env is None:
        # What has no value at an ordinary size (a division by 0) was not looked at.
        usual = search.all_at(leaves, _USUAL)
        return Kept(requirement, True if _value(at_host, usual) is not None else None)
    if _left_to_callers(launch, condition):
        return Kept(requirement, None)
    return Kept(requirement, False, search.sizes_of(env))


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
    # What the kernel is passed as well is a size of its.
    sizes = {x for formal, actual in launch.mapping.items() if formal.data.kind not in ("bdim", "gdim")
             for x in t.leaves(actual)}  # fmt: skip
    dimensions = {x for leaf in asked if leaf.data.kind in ("bdim", "gdim") for x in t.leaves(launch.at_launch(leaf))}
    return any(leaf.data.kind != "device" for leaf in dimensions - sizes)
