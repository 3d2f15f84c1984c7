"""CL304 shared-race and CL305 shared-race-loop: two threads at one address with no barrier between them."""

from __future__ import annotations

from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from cudalint.facts import concrete, races
from cudalint.findings import Witness
from cudalint.rules import launches, support
from cudalint.rules.draft import Draft

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudalint.confirm.experiment import Bench, Plan
    from cudalint.confirm.oracle import Fault, Place, Run
    from cudalint.facts.concrete import Launched
    from cudalint.facts.events import Access, Obj
    from cudalint.facts.model import Kernel
    from cudalint.facts.races import Meeting
    from cudalint.rules.draft import FixDraft

CODES = ("CL304", "CL305")


def check(kernel: Kernel) -> Iterator[Draft]:
    """One finding for each array and kind of race: the first that occurs at every size tried."""
    flow = kernel.flow
    if not kernel.is_kernel or not flow.complete:
        return
    objects = {a.obj for a in flow.accesses if a.obj.kind in _SHARED and a.mode != "r" and races.is_plain(a.obj)}
    # What nobody reads does no harm.
    objects &= {a.obj for a in flow.accesses if a.mode != "w"}
    objects -= _own_elements(kernel, objects)
    if not objects:
        return
    told: set[object] = set()
    terms, fit = concrete.terms_of(flow), partial(support.fitted, kernel)
    for same in chain(concrete.launches(kernel, terms, fit), concrete.small_blocks(kernel, terms, fit)):
        wanted = races.suspects(flow, objects, same[0])
        if not wanted:
            continue
        found = _everywhere(kernel, same, wanted)
        for item in found:
            code = "CL305" if item.loop is not None else "CL304"
            line = item.later.fn.file.span(item.later.node.start, item.later.node.end).line
            keys = {(code, item.later.obj), (item.later.obj, item.later.fn, line)}
            if told.isdisjoint(keys) and _of_block(kernel, item, same[0]):
                yield _draft(kernel, code, item, same[0])
            told |= keys


_SHARED = frozenset({"shared", "global"})
_DOES = {"r": "reads", "atomic": "updates"}


def _own_elements(kernel: Kernel, objects: set[Obj]) -> set[Obj]:
    """Arrays in global memory that each access comes to at one and the same index: updates of it are CL308's."""
    indices: dict[Obj, set[object]] = {}
    for access in kernel.flow.accesses:
        if access.obj in objects and access.obj.kind == "global":
            key = frozenset(access.scalar.items()) if access.scalar is not None else None
            indices.setdefault(access.obj, set()).add(key)
    return {obj for obj, seen in indices.items() if len(seen - {None}) < 2}


def _of_block(kernel: Kernel, item: Meeting, launched: Launched) -> bool:
    """Whether threads of one block alone come to the array, or to their block's part of it: other blocks' threads
    cannot be waited for, and what meets them is CL308 or CL407."""
    obj = item.later.obj
    if obj.kind == "shared":
        return True
    if item.earlier.scalar == item.later.scalar or not any(x.scope == "block" for x in kernel.flow.barriers):
        return False
    accesses = [a for a in kernel.flow.accesses if a.obj is obj]
    replay = races.Replay(kernel.flow, launched, races.spread(launched), accesses, across=True, apart=True)
    return not replay.run()


def _everywhere(kernel: Kernel, same: list[Launched], wanted: set[Access]) -> list[Meeting]:
    """The meetings of the first launch that all of them have."""
    first: list[Meeting] = []
    for number, launched in enumerate(same):
        threads = [((0, 0, 0), x) for x in races.sample(launched.block, wanted)]
        found = races.Replay(kernel.flow, launched, threads, wanted).run()
        if number == 0:
            first = found
        else:
            kept = set(races.pairs_of(found))
            first = [x for x, pair in zip(first, races.pairs_of(first)) if pair in kept]
        if not first:
            break
    return first


def _repair(kernel: Kernel, item: Meeting) -> FixDraft | None:
    from cudalint.rules import atomics, barriers

    if item.earlier is item.later and item.later.mode == "rw":
        return atomics.atomic(item.later)
    if item.loop is not None:
        return barriers.round_the_loop(kernel, item.loop, item.later)
    return barriers.between(kernel, item.earlier, item.later)


def _draft(kernel: Kernel, code: str, item: Meeting, launched: Launched) -> Draft:
    a, b = item.earlier, item.later
    name = f"`{a.obj.name}[{item.address}]`" if a.obj.extent != 1 else f"`{a.obj.name}`"
    one, other = (launches.position(x[1], launched.block) for x in (item.first, item.second))
    first, second = (_DOES.get(x.mode, "writes") for x in (a, b))
    where = "here" if a is b else f"on {support.line(a, b.fn.file)}"
    by_data = " (its data picks the element)" if item.by_data else ""
    values: dict[str, int | str] = {
        "address": item.address,
        f"{first} it": f"thread {one}",
        f"{second} it": f"thread {other}",
    }
    if a is b or first == second:
        values = {"address": item.address, "first thread": one, "second thread": other}
    if item.loop is not None:
        values["first pass"], values["second pass"] = item.passes
        message = (
            f"thread {other} {second} {name} here in the next pass of the loop while thread {one} still {first} it"
            f" {where}{by_data}: no barrier lies between the passes"
        )
        text = "a barrier at the end of the loop's body, or two buffers used in turn"
    else:
        message = (
            f"thread {one} {first} {name} {where} and thread {other} {second} it here{by_data}, with no barrier between"
        )
        text = (
            "an atomic operation, or one element a thread and a reduction"
            if a is b and a.mode == "rw"
            else "a barrier between the two"
        )
    words, place = launches.which(kernel, launched.launch, b.fn.file)
    return Draft(
        code, b.fn, b.fn.file, b.node.start, b.node.end, message + words, text,
        Witness(launched.sizes, launched.grid, launched.block, item.second, values),
        ((a.fn.file, a.node.start, a.node.end, "the first access"), *place, *support.calls(b)),
        fix=_repair(kernel, item),
    )  # fmt: skip


def experiment_cl304(bench: Bench) -> Plan:
    """What the threads of a block do between two barriers, in arrays that anyone reads; where a finding is flagged,
    at its two accesses."""
    from cudalint.confirm.experiment import Plan, Trial, oracle

    # What the threads of a block do to each other any block shows.
    kernel, trials = bench.kernel, bench.trials(blocks="tail")
    if bench.launch is None:
        cases = concrete.small_blocks(kernel, concrete.terms_of(kernel.flow), partial(support.fitted, kernel))
        trials += [Trial(same[0].sizes, same[0].grid, same[0].block) for same in cases]
    read = {a.obj.name for a in bench.kernel.flow.accesses if a.mode != "w"}
    which = None
    if bench.flagged is not None:
        later, earlier = bench.flagged[:3], bench.flagged.related[0]
        which = oracle.between((earlier, _did(bench, earlier)), (later, _did(bench, later)))

    def judge(run: Run) -> Fault | None:
        return oracle.races(run, read, which)

    return Plan(trials, judge, watch=frozenset({"races", "global-races"}))


def _did(bench: Bench, place: Place) -> frozenset[str]:
    """What is done at a place, as races are told of."""
    modes = {a.mode for a in bench.kernel.flow.accesses if (a.fn.file, a.node.start, a.node.end) == place}
    return frozenset().union(*(_KINDS[x] for x in modes))


_KINDS = {
    "r": frozenset({"read"}),
    "w": frozenset({"write"}),
    "rw": frozenset({"read", "write"}),
    "atomic": frozenset({"atomic"}),
}

experiment_cl305 = experiment_cl304
