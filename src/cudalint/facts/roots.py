"""Which walks of a launch are judged: the launching function's own, or those that begin at its callers.

A launch is walked once from the function it stands in and once from every visible function that calls
that one, so that a wrapper's grid can be seen. Rules judge each launch once: a parameter of a host
function is a runtime size, whatever a caller passes, unless the source fixes who calls it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudalint.facts import terms as t
from cudalint.facts.passed import calls_all, fixes
from cudalint.ir import nodes as ir

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cudalint.facts.events import CallSite
    from cudalint.facts.model import Launch
    from cudalint.facts.terms import Term

Path = tuple[tuple[str, int], ...]
_FEW = 4
"""Launches written in one place that are judged without a look at whether they differ."""


def judged(launches: list[Launch]) -> list[Launch]:
    """Of all walks that come to some launches, those that rules are to judge."""
    groups: dict[tuple[str, int], list[Launch]] = {}
    for launch in launches:
        event = launch.event
        groups.setdefault((event.fn.file.path, event.node.start), []).append(launch)
    # A call from which no walk comes to a launch rules it out by what it passes.
    walked = {step for launch in launches if launch.flow.complete for step in _path(launch)}
    result: list[Launch] = []
    for group in groups.values():
        result.extend(group if len(group) == 1 else _group(group, walked))
    return result


def distinct(launches: list[Launch]) -> Iterator[Launch]:
    """The launches but for those of which rules would say the same as of another: macros that turn runtime flags into
    template arguments write one launch hundreds of times, and what is asked on the way concerns few of its sizes.
    """
    groups: dict[tuple[str, tuple[int, int]], list[Launch]] = {}
    for launch in launches:
        event = launch.event
        place = event.fn.file.origin(event.node.start, event.node.end)
        groups.setdefault((event.fn.file.path, place), []).append(launch)
    for group in groups.values():
        told: set[tuple[object, ...]] = set()
        for launch in group:
            if len(group) > _FEW:
                shape = _shape(launch)
                if shape in told:
                    continue
                told.add(shape)
            yield launch


def _shape(launch: Launch) -> tuple[object, ...]:
    """All that findings of a launch are made of: its kernel, how it is reached, its dimensions, and the conditions on
    sizes that come into those or into the kernel, directly or through others."""
    event = launch.event
    shared = () if event.shared is None else (event.shared,)
    sizes = {x for term in (*(launch.grid or ()), *(launch.block or ()), *shared) for x in t.leaves(term)}
    sizes.update(x for term in launch.mapping.values() for x in t.leaves(term))
    related = concerning(launch.conditions, sizes)
    return launch.kernel, launch.host, _path(launch), launch.grid, launch.block, event.shared, related


def concerning(conditions: Iterable[Term], sizes: Iterable[Term]) -> frozenset[Term]:
    """The conditions that speak of some sizes, directly or through others."""
    reached = set(sizes)
    found: set[Term] = set()
    others = [(x, t.leaves(x)) for x in conditions]
    while more := [pair for pair in others if not pair[1].isdisjoint(reached)]:
        found.update(x for x, _ in more)
        reached.update(*(leaves for _, leaves in more))
        others = [pair for pair in others if pair[0] not in found]
    return frozenset(found)


def _group(group: list[Launch], walked: set[tuple[str, int]]) -> list[Launch]:
    by_path: dict[Path, list[Launch]] = {}
    for launch in group:
        by_path.setdefault(_path(launch), []).append(launch)
    result = []
    for path, launches in by_path.items():
        # Nearest first: a root of which no other walk is a part.
        if not any(path[k:] in by_path for k in range(1, len(path) + 1)):
            for launch in launches:
                result.extend(_pick(launch, path, by_path, walked))
    return result


def _pick(launch: Launch, path: Path, by_path: dict[Path, list[Launch]], walked: set[tuple[str, int]]) -> list[Launch]:
    """The walk itself, or those one call further out where they tell what this one cannot."""
    callers = [(x, p) for p, items in by_path.items() if len(p) == len(path) + 1 and p[1:] == path for x in items]
    if not callers:
        return [launch]
    picked = [y for x, p in callers for y in _pick(x, p, by_path, walked)]
    sites = [(_sites(x)[len(_sites(x)) - len(path) - 1], x) for x, _ in callers]
    known = all(fixes(site) for site, _ in sites)
    wrapper = is_wrapper(launch) or launch.kernel is None
    if known and (wrapper or all(fixed(y) for y in picked)):
        return picked
    if wrapper and (launch.grid is None or any(map(_is_parameter, launch.grid))):
        return picked
    decl = launch.flow.function.decl
    if decl is not None and calls_all(decl, {start for file, start in walked if file == decl.file.path}):
        launch.callers = sites
    if not wrapper:
        return [launch]
    for found in picked:
        found.own = launch
    launch.blocks = [x.block for x in picked]
    return picked


def _sites(launch: Launch) -> list[CallSite]:
    """The inlined calls around a launch, outermost first; a lambda is part of the function it stands in."""
    return [site for site in launch.event.stack if site.callee.decl is not None]


def _path(launch: Launch) -> Path:
    return tuple((site.fn.file.path, site.call.start) for site in _sites(launch))


def is_wrapper(launch: Launch) -> bool:
    """Whether a dimension of the launch is a parameter of the function in which the walk began, passed through."""
    return any(_is_parameter(x) for triple in (launch.grid, launch.block) if triple is not None for x in triple)


def _is_parameter(term: Term) -> bool:
    while term.op == "cast":
        term = term.args[0]
    if term.op != "atom" or term.data.kind != "param":
        return False
    var = term.data.data
    return not (isinstance(var, ir.Var) and var.kind == "template")


def fixed(launch: Launch) -> bool:
    """Whether the source fixes the launch's dimensions and the sizes that the kernel tests."""
    if launch.grid is None or launch.block is None or any(t.leaves(x) for x in (*launch.grid, *launch.block)):
        return False
    if launch.kernel is None:
        return True
    for item in launch.kernel.layout.coordinates:
        for atom in t.atoms_of(item.limit):
            if t.leaves(launch.at_launch(atom)):
                return False
    return True


__all__ = ["distinct", "fixed", "is_wrapper", "judged"]
