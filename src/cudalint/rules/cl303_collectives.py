"""CL303 divergent-collective: a warp collective that reads, names or lacks a lane which it must not."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from cudalint.facts import grids, search
from cudalint.facts import terms as t
from cudalint.facts import witness as w
from cudalint.facts.events import chain
from cudalint.facts.ids import BID
from cudalint.facts.kernels import ids_of
from cudalint.facts.terms import THREAD, UNKNOWN
from cudalint.findings import Witness
from cudalint.lazy import NamedTuple
from cudalint.rules import launches, support
from cudalint.rules.draft import Draft
from cudalint.rules.trials import Trial, trials, unreached, value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudalint.confirm.experiment import Bench, Plan
    from cudalint.facts.events import Collective, Guard
    from cudalint.facts.model import Kernel, Launch
    from cudalint.facts.terms import Term
    from cudalint.rules.support import Triple

CODES = ("CL303",)

_WARP = 32
_ALL = (1 << _WARP) - 1
_TRIALS = 24
"""Launches that are tried."""


class _Condition(NamedTuple):
    """What a lane has to meet to take part: ``term``, on the pass before where ``earlier`` names the loop's counter.
    ``gone`` tells that a lane which does not meet it has left the kernel, ``drawn`` that data decides."""

    guard: Guard
    term: Term
    gone: bool
    drawn: bool
    earlier: Term | None = None


class _Fault(NamedTuple):
    """Lane ``other`` of the warp of ``thread`` is read (or named, or is the calling lane itself and not named)."""

    trial: Trial
    block: Triple
    thread: Triple
    lane: int
    other: int
    how: str
    guard: Guard | None


def check(kernel: Kernel) -> Iterator[Draft]:
    """One finding for each place where the lanes part, and one for lanes that never were."""
    flow = kernel.flow
    if not flow.collectives or not flow.complete:
        return
    told: set[object] = set()
    for event in flow.collectives:
        found = _fault(kernel, event)
        if found is None:
            continue
        place = (found.how, found.guard.node if found.guard is not None else None)
        if place not in told:
            told.add(place)
            yield _draft(kernel, event, found)


def _fault(kernel: Kernel, event: Collective) -> _Fault | None:
    if event.lanes is None or (event.mask is None and not event.reads and event.lanes == _WARP):
        return None
    conditions = _conditions(kernel, event)
    if conditions is None:
        return None
    mask = event.mask if event.mask is None else support.first_pass(event.mask)
    if mask is not None and any(w.unseen(x) or search.is_computed(x) for x in t.leaves(mask)):
        return None  # made of a constant, or by a function, that nobody here can see
    partial = any(_partial(launch) for launch in kernel.launches)
    if not conditions and not partial and (mask is None or (mask.op == "const" and mask.data & _ALL == _ALL)):
        return None
    operand, width = (None if x is None else support.first_pass(x) for x in (event.operand, event.width))
    asked = [c.term for c in conditions]
    key = ("collective", event.name, event.lanes, event.reads, mask, operand, width, *asked)
    if key not in kernel.answers:  # exchanges come in rows
        kernel.answers[key] = _tried(kernel, event, conditions, (mask, operand, width))
    return kernel.answers[key]  # type: ignore[return-value]  # put there above


def _tried(
    kernel: Kernel, event: Collective, conditions: list[_Condition],
    exchange: tuple[Term | None, Term | None, Term | None],
) -> _Fault | None:  # fmt: skip
    asked = [*(c.term for c in conditions), *(x for x in exchange if x is not None)]
    leaves = {x for term in asked for x in t.leaves(term)} | {c.earlier for c in conditions}
    leaves |= {y for x in leaves if x is not None and x.data.kind == "load" for i in x.data.inputs for y in t.leaves(i)}
    common = [x for x in leaves if x is not None and x.data.kind != "tid"]
    seen: set[object] = set()
    for trial in islice(trials(kernel, asked, shared=True, promised=False), _TRIALS):
        if not _whole_warps(trial):
            continue
        for block in trial.blocks():
            env = trial.at(block, (0, 0, 0))
            known = trial.launch, trial.block, tuple(map(env.get, common))
            if known in seen:
                continue  # nothing tells this block from one that was looked at
            seen.add(known)
            for warp in _warps(trial.block):
                found = _in_warp(event, conditions, exchange, trial, block, warp)
                if found is not None and _counts(kernel, found):
                    return found
    return None


def _counts(kernel: Kernel, found: _Fault) -> bool:
    """Whether the fault is the kernel's own: where all launches are visible and none comes to it, it has to take a
    partial block; what a mask must hold only a launch tells."""
    if found.how == "lacks":
        return found.trial.launch is not None
    if not unreached(kernel, found.trial):
        return True
    return found.guard is not None and not ids_of([found.guard.term]).isdisjoint(BID.values())


def _conditions(kernel: Kernel, event: Collective) -> list[_Condition] | None:
    """The conditions on which the lanes of a warp part; None where that cannot be told."""
    uniformity = kernel.uniformity()
    result = []
    for guard in chain(event.guard):
        if guard.why in ("assert", "implied"):
            continue
        found: list[tuple[Term, Term | None]] = [(guard.term, None)]
        loop = guard.loop
        if loop is not None:
            # A pass is for those who did not leave the loop on the pass before.
            found += [(c if c is loop.cond else t.lnot(c), loop.counter) for c in loop.control if c is not guard.term]
        for term, earlier in found:
            level = uniformity.level(term)
            if level == UNKNOWN and guard.why == "loop":
                return None
            if level < THREAD:
                continue
            own = support.first_pass(support.over_passes(term))
            data = [x for x in t.leaves(own) if x.data.kind not in _LAUNCH_KINDS and uniformity.level(x) >= UNKNOWN]
            if any(x.data.kind != "load" or uniformity.level(x) == UNKNOWN for x in data):
                return None
            gone = guard.why == "return" and guard.depth == 0
            result.append(_Condition(guard, own, gone, bool(data), earlier))
    return result


_LAUNCH_KINDS = frozenset({"tid", "bid", "bdim", "gdim", "count", "param"})


def _partial(launch: Launch) -> bool:
    """Whether a launch's known block is no multiple of a warp, or need not be one: its extent is computed from sizes
    (``n / 4``)."""
    if not search.leaves_of(launch.block) <= grids.block_sizes(launch):
        return True
    known = [launch.known_block(a) for a in "xyz"]
    x, y, z = (k or 0 for k in known)
    return x * y * z % _WARP != 0


def _whole_warps(trial: Trial) -> bool:
    """Whether the block is made of whole warps, or the source says that it is not."""
    x, y, z = trial.block
    return x * y * z % _WARP == 0 or (trial.launch is not None and _partial(trial.launch))


def _warps(block: Triple) -> list[list[Triple]]:
    """The threads of the first two warps and of the last."""
    x, y, z = block
    threads = x * y * z
    firsts = dict.fromkeys([0, _WARP, (threads - 1) // _WARP * _WARP])
    return [
        [(r % x, r // x % y, r // (x * y)) for r in range(first, min(first + _WARP, threads))]
        for first in firsts
        if first < threads
    ]


def _in_warp(
    event: Collective, conditions: list[_Condition], exchange: tuple[Term | None, Term | None, Term | None],
    trial: Trial, block: Triple, warp: list[Triple],
) -> _Fault | None:  # fmt: skip
    envs = [trial.at(block, thread) for thread in warp]
    missed = [_missed(conditions, env) for env in envs]
    here = [at for at, guard in enumerate(missed) if guard is None]
    if any(guard is not None and guard.term is _UNTOLD for guard in missed):
        return None
    drawn = next((c for c in conditions if c.drawn and _draws_apart(c.term, envs)), None)
    if drawn is not None and here:
        # Data decides: one of those that may come does, the others do not.
        missed = [guard if guard is not None or at == here[0] else drawn for at, guard in enumerate(missed)]
        here = here[:1]
    away = [(other, each) for other, each in enumerate(missed) if each is not None and not each.gone]
    for lane in here:
        mask, operand, width = (None if x is None else value(x, envs[lane]) for x in exchange)
        if exchange[0] is not None and mask is None:
            return None
        first = lane - lane % (event.lanes or _WARP)
        named = (1 << (event.lanes or _WARP)) - 1 << first if mask is None else int(mask) & _ALL
        fault = _Fault(trial, block, warp[lane], lane, lane, "lacks", None)
        if not named >> lane & 1:
            return fault
        for other in _read(event, lane, operand, width):
            gone = missed[other] if other < len(missed) else None
            if named >> other & 1 and (other >= len(missed) or (gone is not None and gone.gone)):
                return fault._replace(other=other, how="reads", guard=gone.guard if gone is not None else None)
        if event.mask is None and not event.name.startswith(("tile", "cg", "sync", "Warp")):
            continue
        for other, condition in away:
            if named >> other & 1:
                return fault._replace(other=other, how="names", guard=condition.guard)
    return None


_UNTOLD = t.make("untold", None)


def _draws_apart(term: Term, envs: list[dict[Term, int]]) -> bool:
    """Whether what is loaded for a condition may differ between lanes: those that load one element see one value."""
    loads = [x for x in t.leaves(term) if x.data.kind == "load"]
    for index in (i for load in loads for i in load.data.inputs):
        there = {value(index, env) for env in envs}
        if None in there or len(there) > 1:
            return True
    return not loads


def _missed(conditions: list[_Condition], env: dict[Term, int]) -> _Condition | None:
    """The condition that keeps a lane away, the outermost one where there are several."""
    for item in reversed(conditions):
        if item.drawn:
            continue
        if item.earlier is not None:
            passes = env.get(item.earlier)
            if not passes:
                continue
            env = {**env, item.earlier: passes - 1}
        holds = value(item.term, env)
        if holds is None:
            return item._replace(term=_UNTOLD)
        if not holds:
            return item
    return None


def _read(event: Collective, lane: int, operand: object, width: object) -> list[int]:
    """The lanes of the warp whose values a lane gets."""
    size = event.lanes or _WARP
    if event.reads == "all":
        return list(range(lane - lane % size, lane - lane % size + size))
    if not isinstance(operand, int):
        return []
    segment = width if isinstance(width, int) and 0 < width <= size else size
    first = lane - lane % segment
    source = {
        "down": lane + operand, "up": lane - operand, "xor": lane ^ operand, "index": first + operand % segment,
    }.get(event.reads, lane)  # fmt: skip
    return [source] if first <= source < first + segment else []


def _draft(kernel: Kernel, event: Collective, found: _Fault) -> Draft:
    fn, node, related = event.fn, event.node, support.calls(event)
    name, guard, trial = event.name, found.guard, found.trial
    if guard is not None and guard.depth < len(event.stack):
        # Where a caller parts its lanes, the call is where they are missed.
        site = event.stack[guard.depth]
        related = ((fn.file, node.start, node.end, f"the {name} inside"),)
        fn, node, name = site.fn, site.call, f"{support.called(site)}, which does a {name},"
    caller = launches.thread_words((found.block, found.thread), trial.grid, trial.block)
    at = f"at {launches.told(trial.sizes)} " if trial.sizes else ""
    if found.how == "lacks":
        text = f"the mask of {name} lacks the calling lane: {at}{caller} is lane {found.lane}, which it does not name"
    elif guard is None:
        text = (
            f"{name} reads a lane that does not exist: {at}lane {found.lane} reads lane {found.other}, "
            f"and the block ends with lane {_last_lane(trial.block)}"
        )
    elif found.how == "reads":
        text = (
            f"{name} reads lanes that have returned: {at}lane {found.lane} reads lane {found.other}, "
            f"which left under {support.condition(guard)}"
        )
    else:
        text = (
            f"{name} names lanes that are elsewhere: {at}lane {found.lane} waits for lane {found.other}, "
            f"and they part at {support.condition(guard)}"
        )
    exact = unreached(kernel, trial)
    if guard is not None:
        related = ((guard.fn.file, guard.node.start, support.header_end(guard), "lanes part here"), *related)
    return Draft(
        "CL303", fn, fn.file, node.start, node.end, text + (support.EXACT if exact else ""), _HELP[found.how],
        Witness(
            trial.sizes, None if exact else trial.grid, trial.block, (found.block, found.thread),
            {"calling lane": found.lane, "lane that is missing": found.other},
        ),
        related, "warning" if exact else None,
    )  # fmt: skip


def _last_lane(block: Triple) -> int:
    x, y, z = block
    return (x * y * z - 1) % _WARP


_HELP = {
    "lacks": "name every lane that calls: `0xffffffff` for a whole warp",
    "reads": "keep all lanes alive up to the collective: give those without work the identity instead of returning",
    "names": "move the collective to where all lanes that it names come, and give those without work the identity",
}


def experiment_cl303(bench: Bench) -> Plan:
    """Lanes that a collective reads, or names in its mask, and that do not take part."""
    from cudalint.confirm.experiment import Plan, oracle

    chosen = bench if bench.as_predicted() else bench.alone()
    chosen.harness.coarse = True
    return Plan(chosen.trials(), oracle.lanes, watch=frozenset(), anywhere=True, bench=chosen)
