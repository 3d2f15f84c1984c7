"""CL408 misaligned-pack: a vector access whose scalar offset need not be a multiple of the vector's width."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from cudalint.facts import search, shapes
from cudalint.facts import terms as t
from cudalint.facts.events import chain
from cudalint.facts.expressions import from_poly
from cudalint.facts.uniformity import expand
from cudalint.findings import Witness
from cudalint.ir.types import I64
from cudalint.rules import launches, support
from cudalint.rules.draft import Draft
from cudalint.rules.trials import trials, unreached, value, visits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudalint.confirm.experiment import Bench, Plan
    from cudalint.facts.events import Access
    from cudalint.facts.model import Kernel
    from cudalint.facts.terms import Poly, Term
    from cudalint.rules.trials import Trial, Visit

CODES = ("CL408",)

_TRIES = 30
_KINDS = frozenset({"tid", "bid", "bdim", "gdim", "count", "param"})


def check(kernel: Kernel) -> Iterator[Draft]:
    """One finding for each runtime size that need not be a multiple: the first access that hangs on it."""
    if not kernel.is_kernel or not kernel.flow.complete:
        return
    told: set[frozenset[Term]] = set()
    for access in kernel.flow.accesses:
        if access.obj.kind != "global" or access.width not in (2, 4, 8, 16) or not access.scalar or access.obj.origin:
            continue
        address = expand(access.scalar)
        culprits = _culprits(address, access.width)
        if not culprits or culprits in told or not _are_sizes(kernel, culprits):
            continue
        draft = _draft(kernel, access, address)
        if draft is not None:
            told.add(culprits)
            yield draft


def _culprits(address: Poly, width: int) -> frozenset[Term]:
    """The runtime sizes that multiply what need be no multiple of the width, the numbers of threads, blocks and passes
    or what is computed from them alone; none where something else does."""
    found: set[Term] = set()
    for monomial, factor in address.items():
        if factor % width == 0:
            continue
        if any(leaf.data.kind not in _KINDS for x in monomial for leaf in t.leaves(x)):
            return frozenset()
        sizes = {x for x in monomial if x.op == "atom" and x.data.kind == "param"}
        # A thread's or a block's number alone, or a constant, is the kernel's own arithmetic and no size's.
        if not sizes:
            return frozenset()
        found |= sizes
    return frozenset(found)


def _are_sizes(kernel: Kernel, culprits: frozenset[Term]) -> bool:
    """Whether some visible launch, if there is one, passes sizes for them. What an object that nobody here can follow
    holds is none: a matrix may well round its pitch up."""
    passed = [[launch.at_launch(x) for x in culprits] for launch in kernel.launches]
    return not passed or any(all(x.data.kind != "unknown" for x in search.leaves_of(each)) for each in passed)


def _draft(kernel: Kernel, access: Access, address: Poly) -> Draft | None:
    index, width = from_poly(address, I64), access.width
    trial = _trial(kernel, access, address, index)
    if trial is None:
        return None
    # A few threads tell that there is one; all of them, which is the first.
    found = _misaligned(visits(access, trial, [index], every=True), index, width)
    assert found is not None
    visit, at = found
    exact = unreached(kernel, trial)
    where = launches.thread_words((visit.block, visit.thread), trial.grid, trial.block)
    known = trial.launch is not None or not kernel.launches
    return Draft(
        "CL408", access.fn, access.fn.file, access.node.start, access.node.end,
        f"`{support.text(access.fn, access.node)}` takes {width} elements at once from an offset that need not "
        f"be a multiple of {width}: at {launches.told(trial.sizes)} {where} comes to offset {at}, a misaligned "
        f"address{support.EXACT if exact else ''}",
        f"check on the host that the size is a multiple of {width}, and take single elements where it is not",
        Witness(
            trial.sizes, trial.grid if known else None, trial.block if known or exact else None,
            (visit.block, visit.thread),
            {"offset": at, "width": width},
        ),
        (*support.launched_at(kernel, 1), *support.calls(access)),
        "note" if exact else None,
    )  # fmt: skip


def _trial(kernel: Kernel, access: Access, address: Poly, index: Term) -> Trial | None:
    """The first trial with a misaligned access; one in which rows overlap only where there is no other."""
    guards = [g.term for g in chain(access.guard) if g.why != "assert"]
    overlapping = None
    for trial in islice(trials(kernel, [index, *guards, t.const(access.width)]), _TRIES):
        if _misaligned(visits(access, trial, [index]), index, access.width) is not None:
            if not _overlap(access, trial, address):
                return trial
            overlapping = overlapping or trial
    return overlapping


def _overlap(access: Access, trial: Trial, address: Poly) -> bool:
    """Whether a thread takes something in its row that is beyond the beginning of the next, in blocks' rows that lie
    a size apart."""
    pitches = [m for m in address if len(m) == 2 and {x.data.kind for x in m if x.op == "atom"} == {"bid", "param"}]
    if len(pitches) != 1:
        return False
    pitch = value(next(x for x in pitches[0] if x.data.kind == "param"), trial.env)
    inside = from_poly(shapes.without(address, pitches[0]), I64)
    taken = [value(inside, visit.env) for visit in visits(access, trial, [inside])]
    return pitch is not None and any(x is not None and x + access.width > pitch for x in taken)


def _misaligned(among: Iterator[Visit], index: Term, width: int) -> tuple[Visit, int] | None:
    """The first to come to an offset that is no multiple of the width, with the offset."""
    for visit in among:
        at = value(index, visit.env)
        if isinstance(at, int) and at >= 0 and at % width:
            return visit, at
    return None


def experiment_cl408(bench: Bench) -> Plan:
    """Accesses at addresses that are no multiple of their size."""
    from cudalint.confirm.experiment import Plan, oracle

    chosen = bench if bench.witness is None or bench.as_predicted() else bench.alone()
    return Plan(chosen.trials(), oracle.misaligned, watch=frozenset(), anywhere=True, bench=chosen)
