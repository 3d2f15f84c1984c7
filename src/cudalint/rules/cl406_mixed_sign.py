"""CL406 mixed-sign-guard: a bounds test that a conversion to unsigned makes constant, or wrong below zero."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudalint.facts import terms as t
from cudalint.facts.ids import TID
from cudalint.findings import Witness
from cudalint.ir import nodes as ir
from cudalint.ir.types import Int
from cudalint.rules import launches, support
from cudalint.rules.draft import Draft
from cudalint.rules.trials import Trial, trials, value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudalint.confirm.experiment import Bench, Plan
    from cudalint.confirm.oracle import Fault, Run
    from cudalint.facts.events import Comparison
    from cudalint.facts.model import Kernel
    from cudalint.facts.terms import Term
    from cudalint.rules.support import Triple

CODES = ("CL406",)

_TRIES = 12


def check(kernel: Kernel) -> Iterator[Draft]:
    """One finding for each test."""
    if not kernel.flow.complete:
        return
    told: set[tuple[str, int]] = set()
    for event in kernel.flow.comparisons:
        place = event.fn.file.path, event.node.start
        if place in told:
            continue
        signed = _signed(event)
        if signed is None:
            continue
        draft = _draft(kernel, event, *signed)
        if draft is not None:
            told.add(place)
            yield draft


def _signed(event: Comparison) -> tuple[Term, Term] | None:
    """The test as it was meant, over the integers, with the side that can lie below zero."""
    left, right = event.left, event.right
    if not isinstance(left.type, Int) or left.type.signed or left.type.bits < 32 or event.op in ("==", "!="):
        return None
    for mine, other, raw in ((left, right, event.raw[0]), (right, left, event.raw[1])):
        if not _falls(raw) or not _of_thread(raw):
            continue
        zero = other.op == "const" and other.data == 0
        is_own = isinstance(raw.type, Int) and not raw.type.signed
        if zero and is_own and _always(event, mine is left):
            return event.term, raw
        if not is_own and not zero:
            return event.term, raw
    return None


def _always(event: Comparison, mine_left: bool) -> bool:
    """Whether the test asks for no less than 0: ``x >= 0``, ``0 <= x``, and their contrary."""
    return event.op in ((">=", "<") if mine_left else ("<=", ">"))


def _falls(term: Term) -> bool:
    """Whether a subtraction or a negation can take a value below zero."""
    while term.op == "cast":
        term = term.args[0]
    if term.op == "neg":
        return True
    if term.op in ("add", "sub"):
        return any(c < 0 for c in t.poly(term).values())
    return term.op == "mul" and any(_falls(x) for x in term.args)


def _of_thread(term: Term) -> bool:
    return not t.leaves(support.over_passes(term)).isdisjoint(TID.values())


def _draft(kernel: Kernel, event: Comparison, test: Term, side: Term) -> Draft | None:
    from cudalint.facts.events import chain

    guards = [support.over_passes(g.term) for g in chain(event.guard) if g.why != "assert"]
    wanted, own = support.over_passes(test), support.over_passes(side)
    for number, trial in enumerate(trials(kernel, [wanted, own, *guards])):
        if number >= _TRIES:
            return None
        found = _differs(trial, wanted, own, guards)
        if found is None:
            continue
        block, thread, below = found
        where = launches.thread_words((block, thread), trial.grid, trial.block)
        at = f"at {launches.told(trial.sizes)} " if trial.sizes else ""
        return Draft(
            "CL406", event.fn, event.fn.file, event.node.start, event.node.end,
            f"`{support.text(event.fn, event.node)}` compares as unsigned: {at}{where} has {below} for "
            f"`{_spelled(event, side)}`, which is taken for {below % (1 << _bits(event))}",
            "compare in a signed type, or write the test without the subtraction: `x >= 1`",
            Witness(trial.sizes, trial.grid, trial.block, (block, thread), {"value": below}),
            support.calls(event),
        )  # fmt: skip
    return None


def _bits(event: Comparison) -> int:
    return event.left.type.bits if isinstance(event.left.type, Int) else 32


def _spelled(event: Comparison, side: Term) -> str:
    node = event.node
    if isinstance(node, ir.Binary):
        return support.text(event.fn, node.left if event.raw[0] is side else node.right)
    return t.show(side)


def _differs(trial: Trial, test: Term, side: Term, guards: list[Term]) -> tuple[Triple, Triple, int] | None:
    """A thread for which the machine's answer is not that of the integers."""
    x, y, z = trial.block
    places = [(i, j, k) for i in (0, 1, x - 1) for j in (0, y - 1) for k in (0, z - 1) if i < x]
    for block in trial.blocks():
        for thread in places:
            env = trial.at(block, thread)
            if any(found is not None and not found for found in (value(g, env) for g in guards)):
                continue
            try:
                meant, got = t.evaluate(test, env, exact=False), t.evaluate(test, env)
                below = t.evaluate(side, env, exact=False)
            except t.Undefined:
                continue
            if bool(meant) is not bool(got) and below < 0:
                return block, thread, int(below)
    return None


def experiment_cl406(bench: Bench) -> Plan:
    """A value below zero that is converted to unsigned, or a subtraction that wraps below zero, where it is tested."""
    from cudalint.confirm.experiment import Plan, oracle

    chosen = bench if bench.witness is None or bench.as_predicted() else bench.alone()
    places = []
    for event in chosen.kernel.flow.comparisons:
        if _signed(event) is not None:
            places.append((event.fn.file, event.node.start, event.node.end))

    def judge(run: Run) -> Fault | None:
        return oracle.wraps(run, places, ("unsigned", "convert")) if places else None

    return Plan(chosen.trials(), judge, watch=frozenset({"wraps"}), anywhere=True, bench=chosen)
