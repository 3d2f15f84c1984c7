"""CL405 unfilled-tile: positions that only threads in range fill, and that others read all the same."""

from __future__ import annotations

import math
from itertools import compress, islice, product
from typing import TYPE_CHECKING, Any

from cudalint.contracts import block as needs
from cudalint.facts import kernels
from cudalint.facts import terms as t
from cudalint.facts.events import Pointer, chain
from cudalint.facts.expressions import from_poly
from cudalint.facts.ids import TID
from cudalint.findings import Witness, plural
from cudalint.ir.types import I64
from cudalint.lazy import NamedTuple
from cudalint.rules import launches, support
from cudalint.rules.draft import Draft
from cudalint.rules.trials import Trial, counts_blocks, last_pass, others, trials, unreached, value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cudalint.confirm.experiment import Bench, Plan
    from cudalint.facts.events import Access, Barrier, Collective, Event, Guard, Loop, Obj
    from cudalint.facts.model import Kernel, Launch
    from cudalint.facts.terms import Term
    from cudalint.rules.support import Triple

CODES = ("CL405",)

_CASES, _TRIES, _MORE = 40, 8, 4
"""Launches that are thought of, the first of them, which are tried, and those tried for the sizes that they have."""
_LOADS = 3
"""Reads of an array that are looked at: a hole shows at the first ones."""
_MOST_PASSES = 64
_NOWHERE = -(1 << 60)
_BUDGET = 48_000
"""Accesses of single threads that are evaluated for one kernel; what takes more is left alone."""
_LAUNCH_KINDS = frozenset({"tid", "bid", "bdim", "gdim", "count", "loop"})
_X, _Y, _Z = TID.values()


class _Step(NamedTuple):
    """A store or load in numbers: its index, the conditions on the way, the loops around it. ``common`` are the
    conditions that hang on neither thread nor pass; ``place`` is the index under all conditions, else _NOWHERE."""

    access: Access
    position: Term
    guards: list[Term]
    loops: list[Loop]
    common: list[Term]
    place: Term


_Unfilled = tuple[list[tuple["Triple", int]], bool]
"""Threads that read what nobody stored, with the positions; whether anybody stored at all."""


class _Spent(Exception):
    """The budget of a kernel is spent."""


class _Budget:
    """Accesses that may still be evaluated, and the positions that were found."""

    __slots__ = ("found", "left")

    def __init__(self) -> None:
        self.left = _BUDGET
        self.found: dict[object, list[list[int]] | None] = {}

    def take(self, count: int) -> None:
        """_Spent where it does not suffice."""
        self.left -= count
        if self.left < 0:
            raise _Spent


class _Hole(NamedTuple):
    """``thread`` of ``block``, itself in range, reads ``position``, which nobody in its block filled."""

    trial: Trial
    block: Triple
    thread: Triple
    position: int


def check_tile(kernel: Kernel) -> Iterator[Draft]:
    """One finding a tile: the first read of a position that only a thread in range would have stored."""
    flow = kernel.flow
    if not flow.complete or flow.opaques or not any(b.scope == "block" for b in flow.barriers):
        return
    budget = _Budget()
    for obj in dict.fromkeys(a.obj for a in flow.accesses if a.obj.kind == "shared"):
        stores = [a for a in flow.accesses if a.obj is obj and a.mode == "w"]
        partial = next((a for a in stores if _in_range(a)), None)
        if partial is None or _written_elsewhere(kernel, obj) or _returns(kernel):
            continue
        steps = [_step(a) for a in stores]
        if None in steps:
            continue
        filled = [s for s in steps if s is not None]
        loads = [a for a in flow.accesses if a.obj is obj and a.mode != "w" and a.seq >= partial.seq]
        for load in loads[:_LOADS]:
            try:
                found = _hole(kernel, filled, _step(load), budget)
            except _Spent:
                return
            if found is not None:
                yield _tile_draft(kernel, load, partial, found)
                break


def _in_range(access: Access) -> Guard | None:
    """The bounds test under which a store stands: of the thread's place in the grid against a runtime size."""
    return next((g for g in chain(access.guard) if g.why not in ("assert", "implied") and _is_range_test(g.term)), None)


def _is_range_test(term: Term) -> bool:
    kinds = {x.data.kind for x in t.leaves(support.over_passes(term))}
    return "tid" in kinds and ("bid" in kinds or "count" in kinds) and not kinds <= _LAUNCH_KINDS


def _returns(kernel: Kernel) -> bool:
    """Whether threads return above a barrier of the same call: of those CL301 speaks."""
    return any(
        event.node.value is None
        and any(_is_thread(g.term) for g in chain(event.guard))
        and any(b.seq > event.seq and b.stack[: len(event.stack)] == event.stack for b in kernel.flow.barriers)
        for event in kernel.flow.returns
    )


def _is_thread(term: Term) -> bool:
    return any(x.data.kind == "tid" for x in t.leaves(support.over_passes(term)))


def _written_elsewhere(kernel: Kernel, obj: Obj) -> bool:
    """Whether a function that cannot be seen may fill the array."""
    return any(isinstance(v, Pointer) and v.obj is obj for call in kernel.flow.calls for v in call.args)


def _step(access: Access) -> _Step | None:
    if access.scalar is None:
        return None
    guards = [
        support.first_pass(support.over_passes(g.term))
        for g in chain(access.guard)
        if g.why not in ("assert", "implied")
    ]
    loops = [g.loop for g in chain(access.guard) if g.loop is not None][::-1]
    index = support.first_pass(support.over_passes(from_poly(access.scalar, I64)))
    common = [g for g in guards if not _of_thread(t.leaves(g))]
    place = index
    for guard in guards:
        place = t.select(guard, place, t.const(_NOWHERE, I64), I64)
    return _Step(access, index, guards, loops, common, place)


def _of_thread(leaves: Iterable[Term]) -> bool:
    """Whether something that is made of these differs from thread to thread or pass to pass."""
    return any(x.data.kind in ("tid", "count") for x in leaves)


def _hole(kernel: Kernel, stores: list[_Step], load: _Step | None, budget: _Budget) -> _Hole | None:
    """A hole at a visible launch or in the kernel by itself."""
    if load is None or any(_is_own(s, load) for s in stores):
        return None
    terms = [x for s in (*stores, load) for x in (s.position, *s.guards)]
    for launch in (None, *others(kernel)):
        found = _hole_at(_cases(kernel, terms, launch), stores, load, budget)
        if found is not None:
            return found
    return None


def _hole_at(cases: Iterable[Trial], stores: list[_Step], load: _Step, budget: _Budget) -> _Hole | None:
    """A hole in one block or pass that is none in another: the tile is filled where everybody is in range."""
    hole: _Hole | None = None
    whole = False
    for case in cases:
        # All passes of loops are gone through, not the one of the case.
        trial = case._replace(env={x: v for x, v in case.env.items() if x.data.kind != "count"})
        x, y, z = trial.grid
        for block in dict.fromkeys([(0, 0, 0), (x - 1, y - 1, z - 1), (x - 1, 0, 0)]):
            for passes in _common_passes(load, stores, trial.at(block, (0, 0, 0))):
                found = _missing(trial, block, stores, load, passes, budget)
                if found is None:
                    return None
                missing, stored = found
                whole = whole or (stored and not missing)
                if missing and hole is None:
                    hole = _Hole(trial, block, *missing[0])
        if hole is not None and whole:
            return hole
    return None


def _is_own(store: _Step, load: _Step) -> bool:
    """Whether a thread reads what it has stored itself, under no fewer conditions: in the same pass, or in that of a
    loop which goes through the same passes."""
    if store.access.seq >= load.access.seq or store.access.width < load.access.width:
        return False
    names: dict[Term, Term] = {}
    for loop in store.loops:
        if loop not in load.loops:
            passes = _passes(loop, names)
            others = (x for x in load.loops if x not in store.loops and x.counter not in names)
            twin = next((x for x in others if passes and _passes(x, names) == passes), None)
            if twin is None:
                return False
            names[twin.counter] = loop.counter
    guards = {t.substitute(x, names) for x in load.guards}
    return t.substitute(load.position, names) is store.position and guards.issuperset(store.guards)


def _passes(loop: Loop, names: dict[Term, Term]) -> tuple[Term, ...]:
    """What the number of a loop's passes is made of, with counters renamed; nothing where that is not known."""
    return tuple(t.substitute(from_poly(p, I64), names) for p in kernels.trips(loop) or ())


def _cases(kernel: Kernel, terms: list[Term], launch: Launch | None) -> Iterator[Trial]:
    cases = islice(trials(kernel, terms, at=launch), _CASES)
    yield from islice(cases, _TRIES)
    yield from islice(filter(_ends_early, cases), _MORE)


def _ends_early(trial: Trial) -> bool:
    """Whether a size ends in the second block along an axis, next to a whole one."""
    return any(side < size < 2 * side for size in trial.sizes.values() for side in trial.block if side > 1)


def _common_passes(load: _Step, stores: list[_Step], env: dict[Term, Any]) -> Iterator[dict[Term, int]]:
    """The passes of the loops that the load shares with a store: the first two and the last of each."""
    shared = [x for x in load.loops if any(x in s.loops for s in stores)]
    choices = []
    for loop in shared:
        last = last_pass(loop, env)
        choices.append(sorted({0, min(1, last), last}) if last is not None and last >= 0 else [0])
    for combination in product(*choices):
        yield {loop.counter: k for loop, k in zip(shared, combination)}


def _missing(
    trial: Trial, block: Triple, stores: list[_Step], load: _Step, passes: dict[Term, int], budget: _Budget, *,
    all_read: bool = False,
) -> _Unfilled | None:  # fmt: skip
    """Threads that stored, and read what nobody stored, with the positions; whether anybody stored at all (a block may
    lie out of range). None where that cannot be told. With ``all_read`` those that stored nothing count as well."""
    anyone = {**trial.at(block, (0, 0, 0)), **passes}
    reads = _holding(load.common, anyone) is not False
    stores = [x for x in stores if _holding(x.common, anyone) is not False]
    if not stores:
        return [], False
    loops = dict.fromkeys(loop for step in (load, *stores) for loop in step.loops)
    lasts = {x: last_pass(x, anyone) for x in loops if not _of_thread(_trip_leaves(x))}
    known = {x: t.const(v, x.type) for x, v in anyone.items() if x not in (_X, _Y, _Z)}
    memo: dict[Term, Term] = {}
    written: set[int] = set()
    mine = [all_read] * (trial.block[0] * trial.block[1] * trial.block[2])
    for store in stores:
        # Blocks and passes that differ in nothing which a store hangs on, and all loads, have it once.
        passes_of = [p for x in store.loops if x not in lasts for p in kernels.trips(x) or ()]
        left = (t.substitute(x, known, memo) for x in (store.place, *(from_poly(p, I64) for p in passes_of)))
        asked = store.access, trial.block, tuple(lasts.get(x) for x in store.loops), *left
        if asked not in budget.found:
            budget.found[asked] = _stored(trial, anyone, store, lasts, budget)
        found = budget.found[asked]
        if found is None:
            return None
        for rank, positions in enumerate(found):
            if positions:
                mine[rank] = True
                written.update(p + k for p in positions for k in range(store.access.width))
    if any(mine) and not reads:
        return None
    asking: list[tuple[Triple, list[int]]] = []
    env = dict(anyone)
    for thread in compress(trial.threads(), mine):
        env[_X], env[_Y], env[_Z] = thread
        read = _positions(load, env, lasts, budget)
        if read is None:
            return None
        asking.append((thread, read))
    if asking and not any(found for _, found in asking):
        return None
    return [(thread, p) for thread, found in asking for p in found if p not in written], bool(asking)


def _stored(
    trial: Trial, anyone: dict[Term, Any], store: _Step, lasts: dict[Loop, int | None], budget: _Budget
) -> list[list[int]] | None:
    """The positions that each thread of a block stores to, by its rank; None where that cannot be told."""
    result = []
    env = dict(anyone)
    for thread in trial.threads():
        env[_X], env[_Y], env[_Z] = thread
        found = _positions(store, env, lasts, budget)
        if found is None:
            return None
        result.append(found)
    return result


def _trip_leaves(loop: Loop) -> Iterator[Term]:
    return (leaf for p in kernels.trips(loop) or () for x in t.atoms_of(p) for leaf in t.leaves(x))


def _positions(step: _Step, env: dict[Term, Any], lasts: dict[Loop, int | None], budget: _Budget) -> list[int] | None:
    """The positions that a thread comes to, on all passes of loops that have none yet; None where one is not known.
    ``lasts`` are the last passes of the loops in which they are the same for all threads."""
    result: list[int] = []
    return result if _come_to(step, step.loops, env, lasts, budget, result) else None


def _come_to(
    step: _Step, loops: list[Loop], env: dict[Term, Any], lasts: dict[Loop, int | None], budget: _Budget,
    found: list[int],
) -> bool:  # fmt: skip
    """Add the positions on all passes of ``loops``; False where one is not known. ``env`` is what it was afterwards."""
    if loops:
        loop, *inner = loops
        if loop.counter in env:
            return _come_to(step, inner, env, lasts, budget, found)
        last = lasts[loop] if loop in lasts else last_pass(loop, env)
        if last is None and step.access.mode != "w":
            last = 0
        if last is None or last >= _MOST_PASSES:
            return False
        try:
            for number in range(last + 1):
                env[loop.counter] = number
                if not _come_to(step, inner, env, lasts, budget, found):
                    return False
        finally:
            env.pop(loop.counter, None)
        return True
    budget.take(1)
    at = value(step.place, env)
    if at is None:  # a part has no value: perhaps one that does not matter
        here = _holding(step.guards, env)
        if here is None:
            return False
        at = value(step.position, env) if here else _NOWHERE
    if not isinstance(at, int):
        return False
    if at != _NOWHERE:
        found.append(at)
    return True


def _holding(guards: list[Term], env: dict[Term, Any]) -> bool | None:
    """Whether all conditions hold; None where none fails and one has no value."""
    unknown = False
    for guard in guards:
        found = value(guard, env)
        if found is None:
            unknown = True
        elif not found:
            return False
    return None if unknown else True


def _tile_draft(kernel: Kernel, load: Access, store: Access, found: _Hole) -> Draft:
    trial = found.trial
    guard = _in_range(store)
    under = support.condition(guard) if guard is not None else "a test"
    exact = unreached(kernel, trial)
    where = launches.thread_words((found.block, found.thread), trial.grid, trial.block)
    at = f"at {launches.told(trial.sizes)} " if trial.sizes else ""
    launched, related = launches.which(kernel, trial.launch, load.fn.file)
    return Draft(
        "CL405", load.fn, load.fn.file, load.node.start, load.node.end,
        f"this reads positions of `{load.obj.name}` that are stored only where {under}: {at}{where} reads element "
        f"{found.position}, which holds what was left there{launched}{support.EXACT if exact else ''}",
        "store the identity of what is computed in an `else`, or fill the array before",
        Witness(
            trial.sizes, None if exact else trial.grid, trial.block, (found.block, found.thread),
            {"position": found.position},
        ),
        ((store.fn.file, store.node.start, store.node.end, "stored here, by threads in range only"),
         *related, *support.calls(load)),
        "warning" if exact else None,
    )  # fmt: skip


def check_part(kernel: Kernel) -> Iterator[Draft]:
    """Positions that nobody stores in a block that the source fixes, whatever the sizes, and that results are made
    of. Of a block that is too small for its array CL307 speaks."""
    flow = kernel.flow
    if not flow.complete or flow.opaques or _returns(kernel):
        return
    budget = _Budget()
    small = {tile.read.obj for tile in needs.whole_tiles(flow)}
    for obj in dict.fromkeys(a.obj for a in flow.accesses if a.obj.kind == "shared" and a.obj.extent is not None):
        stores = [a for a in flow.accesses if a.obj is obj and a.mode == "w"]
        steps = [s for s in map(_step, stores) if s is not None]
        settled = len(steps) == len(stores) > 0 and all(_is_settled(s.position, *s.guards) for s in steps)
        if not settled or _set_otherwise(kernel, obj):
            continue
        if obj in small and not any(_is_thread(g.term) for a in stores for g in chain(a.guard)):
            continue
        for load in islice(_results(kernel, obj, stores[0].seq), _LOADS):
            try:
                found = _never_stored(kernel, steps, load, budget)
            except _Spent:
                return
            if found is not None:
                yield _part_draft(kernel, load.access, stores[0], found)
                break


def _is_settled(*terms: Term) -> bool:
    """Whether the launch's dimensions alone say what these are."""
    return all(x.data.kind in _LAUNCH_KINDS for term in terms for x in t.leaves(term))


def _set_otherwise(kernel: Kernel, obj: Obj) -> bool:
    """Whether an array may be filled by a function that cannot be seen, by a member, or by an exchange; an atomic that
    data brings to an element makes use of what is there."""
    accesses = [a for a in kernel.flow.accesses if a.obj is obj]
    atomics = {x for a in accesses if a.mode == "atomic" for x in t.atoms_of(a.scalar or {})}
    return (
        _written_elsewhere(kernel, obj)
        or any(a.part for a in accesses)
        or any(x.data.kind != "load" for item in atomics for x in t.leaves(item))
    )


def _results(kernel: Kernel, obj: Obj, after: int) -> Iterator[_Step]:
    """Reads of an array that go into global memory as they are or computed with, under all conditions on the way."""
    loads = [a for a in kernel.flow.accesses if a.obj is obj and a.mode == "r" and a.seq > after]
    for result in kernel.flow.accesses if loads else ():
        if result.obj.kind != "global" or result.mode == "r" or result.value is None:
            continue
        for leaf in _parts(result.value):
            for load in loads if leaf.data.kind == "load" and leaf.data.data is obj else ():
                step, kept = _step(load), _step(result)
                same = tuple(index for index, _ in load.dims) == leaf.data.inputs
                if same and step and kept and _is_settled(step.position):
                    loops = [*step.loops, *(x for x in kept.loops if x not in step.loops)]
                    place = step.place
                    for guard in kept.guards:
                        place = t.select(guard, place, t.const(_NOWHERE, I64), I64)
                    yield step._replace(
                        guards=[*step.guards, *kept.guards], loops=loops, common=[*step.common, *kept.common],
                        place=place,
                    )  # fmt: skip


def _parts(term: Term) -> Iterator[Term]:
    """The atoms that a value is computed from, whatever they are; not those of which a choice is made."""
    stack = [term]
    while stack:
        item = stack.pop()
        if item.op == "atom":
            yield item
        elif item.op != "select":
            stack.extend(item.args)


def _never_stored(kernel: Kernel, stores: list[_Step], load: _Step, budget: _Budget) -> _Hole | None:
    """A position within the array that a block in the midst of the grid reads and never stores."""
    terms = [x for s in (*stores, load) for x in (s.position, *s.guards)]
    extent = load.access.obj.extent or 0
    for launch in (None, *others(kernel)):
        for case in islice(_cases(kernel, terms, launch), _TRIES):
            if not _is_fixed(kernel, case, terms):
                continue
            trial = case._replace(env={x: v for x, v in case.env.items() if x.data.kind != "count"})
            x, y, z = trial.grid
            block = (min(1, x - 1), min(1, y - 1), min(1, z - 1))
            found = _missing(trial, block, stores, load, {}, budget, all_read=True)
            if found is None:
                return None
            missing = [(thread, at) for thread, at in found[0] if 0 <= at < extent]
            if missing:
                return _Hole(trial, block, *missing[0])
    return None


def _is_fixed(kernel: Kernel, trial: Trial, terms: list[Term]) -> bool:
    """Whether the source says the block of a trial: that of the launch, or on each axis that is asked about the only
    extent that the kernel can have."""
    if trial.launch is not None:
        return all(trial.launch.known_block(a) is not None for a in "xyz")
    asked = {x.data.axis for term in terms for x in t.leaves(term) if x.data.kind in ("tid", "bdim")}
    shape = support.shape(kernel)
    return not kernel.launches and all(shape.least[at] == shape.most[at] for at, a in enumerate("xyz") if a in asked)


def _part_draft(kernel: Kernel, load: Access, store: Access, found: _Hole) -> Draft:
    trial = found.trial
    where = launches.thread_words((found.block, found.thread), trial.grid, trial.block)
    launched, related = launches.which(kernel, trial.launch, load.fn.file)
    return Draft(
        "CL405", load.fn, load.fn.file, load.node.start, load.node.end,
        f"this reads positions of `{load.obj.name}` that nobody stores: in a block of "
        f"{plural(math.prod(trial.block), 'thread')} {where} reads element {found.position}, which holds what was left "
        f"there{launched}",
        "store all positions that are read, or read no others",
        Witness(trial.sizes, trial.grid, trial.block, (found.block, found.thread), {"position": found.position}),
        ((store.fn.file, store.node.start, store.node.end, "stored here, and not all of it"), *related,
         *support.calls(load)),
    )  # fmt: skip


def check_local(kernel: Kernel) -> Iterator[Draft]:
    """A local that only threads in range set, handed to a collective by all of them."""
    flow = kernel.flow
    if not flow.complete:
        return
    told: set[Term] = set()
    events: list[Collective | Barrier] = [*flow.collectives, *(b for b in flow.barriers if b.collective)]
    for event in events:
        if event.value is None:
            continue
        value = support.first_pass(event.value)
        for condition, unset in _unset(value):
            if unset in told or not _is_range_test(condition):
                continue
            told.add(unset)
            draft = _local_draft(kernel, event, [condition, _is_unset(value, unset, {})], unset)
            if draft is not None:
                yield draft


def _is_unset(term: Term, unset: Term, known: dict[Term, Term]) -> Term:
    """The condition under which a value is that of a variable which was never set."""
    if term is unset:
        return t.TRUE
    if term not in known:
        known[term] = t.FALSE
        if term.op == "cast":
            known[term] = _is_unset(term.args[0], unset, known)
        elif term.op == "select":
            cond, then, other = term.args
            known[term] = t.lor(
                t.land(cond, _is_unset(then, unset, known)), t.land(t.lnot(cond), _is_unset(other, unset, known))
            )
    return known[term]


def _unset(term: Term) -> Iterator[tuple[Term, Term]]:
    """The conditions under which a value is that of a variable which was never set, with that variable."""
    stack, seen = [term], {term}
    while stack:
        item = stack.pop()
        inner: tuple[Term, ...] = ()
        if item.op == "cast":
            inner = item.args[:1]
        elif item.op == "select":
            cond, then, other = item.args
            inner = then, other
            for side in inner:
                if side.op == "atom" and side.data.kind == "uninit":
                    yield cond if side is then else t.lnot(cond), side
        # a value may be part of both sides of many conditions
        stack += [side for side in inner if side not in seen]
        seen.update(inner)


def _local_draft(kernel: Kernel, event: Collective | Barrier, when: list[Term], unset: Term) -> Draft | None:
    around: list[Term] = [g.term for g in chain(event.guard) if g.why != "assert"]
    split = support.split(kernel, [*when, *around])
    if split is None:
        return None
    fn, node, related = _outermost(event)
    exact = split.visible is False
    where = launches.thread_words((split.first_block, split.first), split.grid, split.block)
    at = f"at {launches.told(split.sizes)} " if split.sizes else ""
    return Draft(
        "CL405", fn, fn.file, node.start, node.end,
        f"{event.name} takes `{unset.data.name}` from every thread, and only threads in range have set it: {at}{where} "
        f"gives what was left there{support.EXACT if exact else ''}",
        "start the variable with the identity of what is computed",
        Witness(
            split.sizes, None if exact else split.grid, split.block, (split.first_block, split.first),
            {"threads that give it unset": split.taken},
        ),
        related, "warning" if exact else None,
    )  # fmt: skip


def _outermost(event: Event) -> tuple[Any, Any, tuple[support.Place, ...]]:
    """Where the kernel itself calls what ends in the collective."""
    if not event.stack:
        return event.fn, event.node, ()
    site = event.stack[0]
    return site.fn, site.call, ((event.fn.file, event.node.start, event.node.end, "the collective inside"),)


def experiment_cl405(bench: Bench) -> Plan:
    """Reads of shared memory, or of a local, that nothing had written."""
    from cudalint.confirm.experiment import Plan, oracle

    kernel = bench.kernel
    tied = kernel.launches and any(counts_blocks(x.term) for x in kernel.flow.comparisons)
    chosen = bench if tied or bench.as_predicted() else bench.alone()
    return Plan(chosen.trials(), oracle.unset, watch=frozenset(), anywhere=True, bench=chosen)
