"""CL301 return-before-barrier and CL302 divergent-barrier: threads that never arrive."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from cudalint.facts import terms as t
from cudalint.facts.events import chain, conjuncts_of
from cudalint.facts.terms import THREAD, WARP_UNIFORM
from cudalint.findings import Witness
from cudalint.rules import launches, support
from cudalint.rules.draft import Draft

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudalint.confirm.experiment import Bench, Plan
    from cudalint.facts.events import Access, Barrier, CallSite, Event, Flow, Guard, ReturnEvent
    from cudalint.facts.model import Kernel
    from cudalint.facts.terms import Term
    from cudalint.findings import Level
    from cudalint.rules.draft import FixDraft

CODES = ("CL301", "CL302")

#: Guards that only tell what the threads still here have in common; the rest decide who is here.
_ALIVE = frozenset({"return", "assert", "implied"})
_COUNTERS = frozenset({"loop", "count"})
_PASSES = 4
"""Passes of a loop that are looked at."""
_CALLS = 16
"""Calls of a device function in which a `return` or barrier of it is judged: what thousands say is one finding."""
_DIVERGENT = frozenset({WARP_UNIFORM, THREAD})


def check_return(kernel: Kernel) -> Iterator[Draft]:
    """A ``return`` that some threads of a block take, with a barrier ahead for the others."""
    flow = kernel.flow
    if not flow.barriers or not flow.complete:
        return
    ahead = _by_call(flow)
    tried: dict[tuple[object, object], int] = {}
    for event in flow.returns:
        guards = _deciding(event)
        if not guards:
            continue
        place = event.fn, event.node
        for barrier in ahead.get(event.stack[-1] if event.stack else None, ()):
            if not _reachable(event, barrier):
                continue
            if _divergent(kernel, guards, barrier.scope):
                tried[place] = tried.get(place, 0) + 1
                if tried[place] > _CALLS:
                    break
                draft = _return_draft(kernel, event, barrier, guards)
                if draft is not None:
                    yield draft
                break


def _by_call(flow: Flow) -> dict[CallSite | None, list[Barrier]]:
    """The barriers that are met inside each call that was followed, and (None) all of them."""
    found: dict[CallSite | None, list[Barrier]] = {}
    for barrier in flow.barriers:
        if barrier.scope != "warp":
            for site in (None, *barrier.stack):
                found.setdefault(site, []).append(barrier)
    return found


def check_barrier(kernel: Kernel) -> Iterator[Draft]:
    """A barrier that only some threads of a block come to."""
    flow = kernel.flow
    if not flow.complete:
        return
    tried: dict[tuple[object, object], int] = {}
    for barrier in flow.barriers:
        if barrier.scope == "warp":
            continue
        guards = [g for g in chain(barrier.guard) if g.why not in _ALIVE]
        if parting := _divergent(kernel, guards, barrier.scope):
            culprit = parting[-1]
            place = barrier.node, culprit.node
            tried[place] = tried.get(place, 0) + 1
            draft = _barrier_draft(kernel, barrier, culprit) if tried[place] <= _CALLS else None
            if draft is not None:
                yield draft


def _deciding(event: ReturnEvent) -> list[Guard]:
    """The guards inside the function that the return ends, outermost first."""
    base = event.stack[-1].guard if event.stack else None
    return [g for g in chain(event.guard, base) if g.why not in _ALIVE][::-1]


def _divergent(kernel: Kernel, guards: list[Guard], scope: str) -> list[Guard]:
    """Those of ``guards`` on which threads of one block (of the grid, for a grid barrier) differ."""
    uniformity = kernel.uniformity("block" if scope == "block" else "grid")
    return [g for g in guards if uniformity.divergent(g) in _DIVERGENT]


def _reachable(event: ReturnEvent, barrier: Barrier) -> bool:
    """Whether threads that did not return can come to the barrier, inside the call that the return ends, afterwards."""
    depth = len(event.stack)
    sides = {(id(g.node), g.positive) for g in chain(event.guard) if g.why in ("if", "switch")}
    exclusive = any((id(g.node), not g.positive) in sides for g in chain(barrier.guard) if g.why == "if")
    # A branch that always returns: what is behind it holds where the branch was not taken. What the return itself
    # stands under says no such thing: it is what the threads that go on have against it.
    outer = {t.lnot(x) for g in [*chain(event.guard)][1:] if g.why in ("if", "switch") for x in conjuncts_of(g.term)}
    exclusive = exclusive or any(g.why == "return" and g.term in outer for g in chain(barrier.guard))
    if barrier.seq > event.seq:
        return not exclusive
    return any(
        g.loop is not None and g.loop.first <= barrier.seq <= g.loop.last and len(g.loop.stack) >= depth
        for g in chain(event.guard)
    )


def _return_draft(kernel: Kernel, event: ReturnEvent, barrier: Barrier, guards: list[Guard]) -> Draft | None:
    conditions = [g.term for g in guards]
    split = support.split(kernel, conditions, scope=barrier.scope)
    if split is None:
        return None
    lost = _lost(kernel, event, barrier, split, support.unrolled(conditions))
    level: Level = "error" if lost else "warning"
    exact = split.visible is False
    if exact:
        level = support.dropped(level)
    what = f"the barrier {barrier.name} on {support.line(barrier, event.fn.file)}"
    consequence = (
        lost
        or "since compute capability 7.0 the barrier waits for the remaining threads only; before that it was undefined"
    )
    message = f"threads for which {support.condition(guards[-1])} return here and never reach {what}: {consequence}" + (
        support.EXACT if exact else ""
    )
    return Draft(
        "CL301", event.fn, event.fn.file, event.node.start, event.node.end, message,
        "keep every thread alive up to the barrier: put the loads and stores under the condition instead of returning",
        Witness(
            split.sizes, None if exact else split.grid, split.block, (split.first_block, split.first),
            _values(split, barrier.scope, arrive=split.others, miss=split.taken, returned=True),
        ),
        ((barrier.fn.file, barrier.node.start, barrier.node.end, "the barrier they miss"), *support.calls(event)),
        level,
        fix=_kept_alive(kernel, event) if lost is None else None,
    )  # fmt: skip


def _kept_alive(kernel: Kernel, event: ReturnEvent) -> FixDraft | None:
    from cudalint.rules import predicated

    return predicated.repair(kernel, event)


def _lost(kernel: Kernel, event: ReturnEvent, barrier: Barrier, split: support.Split, condition: Term) -> str | None:
    """What goes wrong in the data: a shared location that returned threads would have stored is read later."""
    if barrier.collective:
        return f"{barrier.name} takes a value from every thread of the block"
    stores = [a for a in kernel.flow.accesses if a.obj.kind == "shared" and a.mode != "r" and _after(a, event)]
    loads = [a for a in kernel.flow.accesses if a.obj.kind == "shared" and a.mode != "w" and _after(a, barrier)]
    handed = [a for a in kernel.flow.handed if _after(a, barrier)]
    for store in stores:
        for load in (*loads, *handed):
            if load.obj is not store.obj or _is_own(store, load, onward=load in handed):
                continue
            if _met(store, load, split, condition, onward=load in handed):
                line = support.line(load, event.fn.file)
                return f"{line} reads positions of `{store.obj.name}` that they would have stored"
    return None


def _is_own(store: Access, load: Access, *, onward: bool) -> bool:
    """Whether a thread reads what it stores itself; ``onward``, from a place of its own record on."""
    if not onward or store.scalar is None or load.scalar is None:
        return load.scalar == store.scalar
    return t.constant(t.add(load.scalar, store.scalar, -1)) is not None


def _met(store: Access, load: Access, split: support.Split, condition: Term, *, onward: bool) -> bool:
    """Whether a thread that stays reads where one that returned would have stored, or ``onward`` from a place before;
    true where it cannot be told."""
    if store.index is None or load.index is None or not split.counted:
        return True
    missing: set[int] = set()
    read: set[int] = set()
    x, y, z = split.block
    try:
        for thread in ((i, j, k) for k in range(z) for j in range(y) for i in range(x)):
            env = {**split.env, **support.coordinates(split.first_block, thread)}
            if t.evaluate(condition, env):
                missing |= _positions(store.index, env)
            else:
                read |= _positions(load.index, env)
    except t.Undefined:
        return True
    if onward:
        return max(missing, default=-1) >= min(read, default=0)
    return not missing.isdisjoint(read)


def _positions(index: Term, env: dict[Term, int]) -> set[int]:
    """Where a thread accesses an array, in the first passes of the loops around; Undefined where it cannot be told."""
    counters = sorted((x for x in t.leaves(index) if x.data.kind in _COUNTERS and x not in env), key=lambda x: x.key)
    if len(counters) > 2:
        raise t.Undefined
    return {
        int(t.evaluate(index, {**env, **dict(zip(counters, values, strict=True))}))
        for values in product(range(_PASSES), repeat=len(counters))
    }


def _after(access: Access, event: Event) -> bool:
    if access.seq > event.seq:
        return True
    return any(g.loop is not None and g.loop.first <= access.seq <= g.loop.last for g in chain(event.guard))


def _barrier_draft(kernel: Kernel, barrier: Barrier, culprit: Guard) -> Draft | None:
    reason, conditions, parting = _reason(kernel, culprit, barrier.scope)
    split = support.split(kernel, conditions, scope=barrier.scope, given=_entered(barrier, culprit))
    if split is None:
        return None
    exact = split.visible is False
    # Where a caller parts its threads, the call is the barrier they miss.
    fn, node, related = barrier.fn, barrier.node, support.calls(barrier)
    name = barrier.name
    if culprit.depth < len(barrier.stack):
        site = barrier.stack[culprit.depth]
        related = ((fn.file, node.start, node.end, f"the {name} inside"),)
        fn, node, name = site.fn, site.call, f"{support.called(site)}, which waits at a {name},"
    return Draft(
        "CL302", fn, fn.file, node.start, node.end,
        f"{name} is reached by some threads of the {barrier.scope} only: {reason}{support.EXACT if exact else ''}",
        "move the barrier to where every thread passes it equally often",
        Witness(
            split.sizes, None if exact else split.grid, split.block, (split.stays_block, split.stays),
            _values(split, barrier.scope, arrive=split.taken, miss=split.others, returned=False),
        ),
        ((parting.fn.file, parting.node.start, support.header_end(parting), "threads part here"), *related),
        "warning" if exact else None, fix=_hoisted(kernel, barrier),
    )  # fmt: skip


def _hoisted(kernel: Kernel, barrier: Barrier) -> FixDraft | None:
    from cudalint.rules import barriers

    return barriers.hoisted(kernel, barrier)


def _entered(barrier: Barrier, culprit: Guard) -> list[Term]:
    """What the first pass of the loops around a barrier asks for: without it nobody comes there."""
    return [
        t.substitute(g.term, {x.term: x.init for x in g.loop.inductions.values() if x.term and x.init})
        for g in chain(barrier.guard)
        if g.loop is not None and g is not culprit
    ]


def _values(split: support.Split, scope: str, arrive: int, miss: int, *, returned: bool) -> dict[str, int | str]:
    """How many threads of the block (or the grid) arrive and do not; one of either kind where data decides."""
    if split.counted:
        block = launches.position(split.first_block, split.grid)
        whom = f"of block {block}" if scope == "block" else f"of the {scope}"
        return {**split.there, f"threads {whom} that arrive": arrive, f"threads {whom} that do not": miss}
    taken, other = (
        launches.thread_words(x, split.grid, split.block)
        for x in ((split.first_block, split.first), (split.stays_block, split.stays))
    )
    here, away = (other, taken) if returned else (taken, other)
    return {**split.there, "arrives": here, "does not": away}


def _reason(kernel: Kernel, guard: Guard, scope: str) -> tuple[str, list[Term], Guard]:
    """Why a guard parts the threads, the conditions under which a thread comes to the barrier, and where it is."""
    differs = "which differs between " + ("threads" if scope == "block" else f"blocks of the {scope}")
    if guard.loop is not None:
        uniformity = kernel.uniformity("block" if scope == "block" else "grid")
        for control in guard.loop.control:
            if uniformity.level(control) in _DIVERGENT:
                if control is guard.loop.cond:
                    return f"the loop around it runs while {support.condition(guard)}, {differs}", [control], guard
                leaving = guard.loop.leaves.get(control, guard)
                under = support.condition(leaving) if leaving is not guard else "a condition"
                return f"the loop around it is left by a `break` under {under}, {differs}", [t.lnot(control)], leaving
    if guard.why in ("continue", "break"):
        return f"it comes after a `{guard.why}` under {support.condition(guard)}, {differs}", [guard.term], guard
    return f"it stands under {support.condition(guard)}, {differs}", [guard.term], guard


def experiment_cl301(bench: Bench) -> Plan:
    """How often each thread of a block arrives at each barrier, by the kernel's own contract."""
    from cudalint.confirm.experiment import Plan, oracle

    alone = bench.alone()
    alone.harness.coarse = True
    data_decides = bench.witness is not None and not any(x.startswith("threads ") for x in bench.witness.values)
    return Plan(alone.trials(), oracle.arrivals, watch=frozenset(), anywhere=data_decides, bench=alone)


experiment_cl302 = experiment_cl301
