"""CL404 tile-overrun: a shared array that is indexed beyond what it was declared with."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from cudalint.facts import terms as t
from cudalint.facts.events import chain
from cudalint.facts.expressions import from_poly
from cudalint.facts.ids import BDIM
from cudalint.facts.uniformity import expand
from cudalint.findings import Witness, digits, plural
from cudalint.ir.types import I64
from cudalint.lazy import NamedTuple
from cudalint.rules import launches, support
from cudalint.rules.draft import Draft
from cudalint.rules.trials import Trial, Visit, others, shown, trials, value, visits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudalint.confirm.experiment import Bench, Plan
    from cudalint.facts.events import Access
    from cudalint.facts.model import Kernel, Launch
    from cudalint.facts.terms import Poly, Term

CODES = ("CL404",)

_KINDS = frozenset({"tid", "bid", "bdim", "gdim", "count"})
"""What an index is made of that the source fixes; a radius that the caller passes is the caller's business."""
_TRIES = 12


class _Outside(NamedTuple):
    trial: Trial
    visit: Visit
    element: int


def check(kernel: Kernel) -> Iterator[Draft]:
    """One finding for each place in the source, and for each array the first direction in which it is left."""
    flow = kernel.flow
    if not flow.complete or not any(x.kind == "shared" for x in flow.objects.values()):
        return
    told: set[tuple[object, bool]] = set()
    for access in flow.accesses:
        obj = access.obj
        if obj.kind != "shared" or obj.extent is None or access.scalar is None or (obj.var and obj.var.extern):
            continue
        index = expand(access.scalar)
        given = _given(kernel, index)
        if not _may_leave(kernel, index, obj.extent - access.width, given) or _by_contract(access, index, given):
            continue
        found = _outside(kernel, access, from_poly(index, I64))
        if found is not None and (access.obj, found.element < 0) not in told:
            told.add((access.obj, found.element < 0))
            yield _draft(kernel, access, found)


def _given(kernel: Kernel, index: Poly) -> set[Term]:
    """Parameters in an index for which every visible launch passes a constant: the source fixes them too."""
    parameters = {x for item in t.atoms_of(index) for x in t.leaves(item) if x.data.kind == "param"}
    passed = [launch.mapping for launch in kernel.launches] if parameters else []
    return {x for x in parameters if passed and all(x in each and each[x].op == "const" for each in passed)}


def _may_leave(kernel: Kernel, index: Poly, last: int, given: set[Term]) -> bool:
    """Whether an index of launch ids, counters and ``given`` parameters can lie outside of 0 … ``last``, as the ranges
    of its parts tell."""
    leaves = {x for item in t.atoms_of(index) for x in t.leaves(item)}
    if not leaves or any(x.data.kind not in _KINDS and x not in given for x in leaves):
        return False
    if any(x.data.kind == "count" for x in leaves):
        return True
    ranges = kernel.ranges()
    low = high = 0
    for monomial, factor in index.items():
        below, above = 1, 1
        for item in monomial:
            a, b = t.bounds(item, ranges)
            corners = (below * a, below * b, above * a, above * b)
            below, above = min(corners), max(corners)
        low += min(below * factor, above * factor)
        high += max(below * factor, above * factor)
    return low < 0 or high > last


def _by_contract(access: Access, index: Poly, given: set[Term]) -> bool:
    """Whether a runtime size alone bounds what the index is made of within a block: it has to suit the array."""
    own = {x for item in t.atoms_of(index) for x in t.leaves(item) if x.data.kind in ("tid", "count")}
    for guard in chain(access.guard):
        leaves = t.leaves(support.over_passes(guard.term)) - given
        kinds = {x.data.kind for x in leaves}
        if not own.isdisjoint(leaves) and "bid" not in kinds and not kinds <= _KINDS:
            return True
    return False


def _outside(kernel: Kernel, access: Access, index: Term) -> _Outside | None:
    extent = access.obj.extent or 0
    terms = [index, *(g.term for g in chain(access.guard) if g.why != "assert")]
    near = [index, t.const(extent, I64)]

    def first(trial: Trial, *, every: bool) -> _Outside | None:
        for visit in visits(access, trial, near, every=every):
            at = value(index, visit.env)
            if isinstance(at, int) and not 0 <= at <= extent - access.width:
                return _Outside(trial, visit, at if at < 0 else max(at, extent))
        return None

    for launch in (None, *others(kernel)):
        for trial in islice(_cases(kernel, terms, launch), _TRIES):
            if first(trial, every=False) is not None:
                return first(trial, every=True)
    return None


def _cases(kernel: Kernel, terms: list[Term], launch: Launch | None) -> Iterator[Trial]:
    """Trials with a block that the source fixes: a visible launch's, else the largest by ``__launch_bounds__``."""
    known = {x for x in shown(kernel) if all(x.known_block(a) is not None for a in "xyz")}
    bound = kernel.largest_block_x()
    for trial in trials(kernel, terms, alone=not kernel.launches and bound is not None, at=launch):
        if trial.launch in known:
            yield trial
        elif trial.launch is None and bound is not None:
            block = (bound, 1, 1)
            yield trial._replace(block=block, env={**trial.env, **{BDIM[a]: v for a, v in zip("xyz", block)}})


def _draft(kernel: Kernel, access: Access, found: _Outside) -> Draft:
    trial, visit = found.trial, found.visit
    extent, element = access.obj.extent or 0, support.element(access, found.element)
    where = launches.thread_words((visit.block, visit.thread), trial.grid, trial.block)
    at = f"at {launches.told(trial.sizes)} " if trial.sizes else ""
    launched, related = launches.which(kernel, trial.launch, access.fn.file)
    return Draft(
        "CL404", access.fn, access.fn.file, access.node.start, access.node.end,
        f"`{support.text(access.fn, access.node)}` leaves the shared array: `{access.obj.name}` has "
        f"{plural(extent, 'element')}, and {at}{where} comes to element {digits(element)}"
        f"{launched}",
        _help(access),
        Witness(
            trial.sizes, trial.grid, trial.block, (visit.block, visit.thread),
            {"index": element, "elements": extent},
        ),
        (*(related or support.launched_at(kernel, 1)), *support.calls(access)),
    )  # fmt: skip


def _help(access: Access) -> str:
    index = expand(access.scalar or {})
    if () in index or any(x.data.kind == "count" for item in t.atoms_of(index) for x in t.leaves(item)):
        return "give the array room for its halo, or test the index"
    if any(c < 0 for c in index.values()):
        return "count down from the last element, one less than the size, or test the index"
    return "launch no more threads than the array has elements, or give it an element for each"


def experiment_cl404(bench: Bench) -> Plan:
    """Accesses outside of shared arrays at the visible launch, or in the largest block that is allowed."""
    from cudalint.confirm.experiment import Plan, oracle

    found = bench.trials()
    bound = bench.kernel.largest_block_x()
    if bench.launch is None and bound is not None:
        found = [x._replace(block=(bound, 1, 1)) for x in found]
    return Plan(found, oracle.outside_shared, first=("index",), watch=frozenset())
