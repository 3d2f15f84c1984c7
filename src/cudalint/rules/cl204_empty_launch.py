"""CL204 empty-launch: a grid that has no blocks for some size that nothing turns away."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudalint.facts import grids, kernels
from cudalint.facts import terms as t
from cudalint.facts import witness as w
from cudalint.facts.ids import BID
from cudalint.facts.model import condition_ranges
from cudalint.facts.terms import Term
from cudalint.findings import Witness
from cudalint.rules import launches
from cudalint.rules.cl202_cl203_coverage import lost, short
from cudalint.rules.draft import Draft, FixDraft

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cudalint.confirm.experiment import Bench, Plan
    from cudalint.facts.model import Launch

CODES = ("CL204",)

_FEW = 1 << 10


def check(launch: Launch) -> Iterator[Draft]:
    if launch.grid is None:
        return
    for axis, blocks in zip(kernels.AXES, launch.grid, strict=True):
        env = _empty(launch, blocks)
        if env is None or _are_workers(launch, axis, blocks):
            continue
        # A floored grid that also loses elements is CL203, which says that it is empty below one block.
        found = short(launch)
        if found is None or not found.floored or lost(launch) is not None:
            yield _draft(launch, axis, env)
        return


def _empty(launch: Launch, blocks: Term) -> w.Assignment | None:
    """Sizes at which a grid dimension is 0: sizes above 0 first, since those are an error."""
    key = ("empty", blocks)
    if key not in launch.answers:
        launch.answers[key] = _emptied(launch, blocks)
    return launch.answers[key]  # type: ignore[return-value]  # put there above


def _emptied(launch: Launch, blocks: Term) -> w.Assignment | None:
    leaves = launches.ordered([blocks], [])
    if launches.bare(blocks).op == "atom" and _is_given(launches.bare(blocks)):
        return None
    if not leaves or not all(launches.is_size(x) or x.data.kind == "device" for x in leaves):
        return None
    known = condition_ranges(launch.conditions)
    ranges = {}
    for leaf in leaves:
        low, high = known.get(leaf, (leaf.data.lo, leaf.data.hi))
        ranges[leaf] = max(0, low), min(high, launches.LARGEST)
    if t.bounds(blocks, ranges)[0] > 0:
        return None

    def goal(env: w.Assignment) -> bool:
        # A product that wraps to 0 is the width rules' to say.
        if t.evaluate(blocks, env) != 0 or t.evaluate(blocks, env, exact=False) != 0:
            return False
        case = kernels.case(launch, env)
        return case is None or not case.oversized  # an oversized block is refused whatever the grid

    inner = grids.block_sizes(launch)
    # What only divides (`C / heads`) is not what comes to nothing.
    divisors = {
        x
        for part in launches.parts(blocks)
        if part.op in ("div", "shr", "mod")
        for x in t.leaves(part.args[1]) - t.leaves(part.args[0])
    }
    sizes = [x for x in leaves if x not in inner and x not in divisors] or leaves
    others = [x for x in leaves if x not in sizes]
    tries = launches.edges(launch, [blocks])
    # Small ranges tell as well whether sizes above 0 can give 0, and no sum in them leaves its type.
    few = {x: (max(1, low), max(1, low, min(high, _FEW))) for x, (low, high) in ranges.items()}
    positive = t.bounds(blocks, few)[0] > 0
    for zero in (True,) if positive else (False, True):
        env = launches.smallest(
            goal, [*sizes, *others], launch, tries, block_leaves=inner, ones=divisors - inner, zero=zero
        )  # fmt: skip
        if env is not None:
            return env
    return None


def _is_given(leaf: Term) -> bool:
    """Whether a dimension is a member of a dim3 or of a parameter of class type: a finished grid that somebody made."""
    return bool(leaf.data.axis) or (leaf.data.kind == "param" and leaf.data.data is None)


def _are_workers(launch: Launch, axis: str, blocks: Term) -> bool:
    """Whether the grid is one finished number beside the sizes: the kernel tests what it makes of its block's number
    against something else, or does not ask for the number at all (its work is drawn from a counter)."""
    number = launches.bare(blocks)
    if launch.kernel is None or number.op != "atom":
        return False
    flow = launch.kernel.flow
    asked = [x for access in flow.accesses for x, _ in access.dims]
    asked += [x for each in flow.comparisons for x in (each.left, each.right)]
    asked += [x for call in flow.calls for x in call.args if isinstance(x, Term)]
    if BID[axis] not in kernels.ids_of(asked) and not flow.opaques:
        return True
    return any(
        BID[axis] in item.ids and not any(number in t.leaves(launch.at_launch(x)) for x in t.atoms_of(item.limit))
        for item in launch.kernel.layout.coordinates
    )


def _draft(launch: Launch, axis: str, env: w.Assignment) -> Draft:
    event = launch.event
    start, end = event.node.start, event.node.end
    name = event.node.kernel or "the kernel"
    on = "" if axis == "x" else f" on {axis}"
    moving = {x: v for x, v in env.items() if w.assumed(x) is None}
    worse = all(v > 0 for v in moving.values())
    shown = launches.words(moving if worse else {x: v for x, v in moving.items() if v == 0})
    return Draft(
        "CL204", event.fn, event.fn.file, start, end,
        f"the grid of {name} has no blocks{on} at {shown}: the driver refuses the launch"
        + (", and elements that exist are not handled" if worse else ""),
        "return before the launch when there is nothing to do"
        if not worse
        else "round the number of blocks up, or keep it at 1 or more for a kernel that loops",
        Witness(launches.named(env), None, None, None, {f"grid {axis}": 0}),
        launches.callers(launch),
        level="error" if worse else "note",
        fix=None if worse else guarded(launch),
    )  # fmt: skip


def guarded(launch: Launch) -> FixDraft | None:
    """The launch under a test of every size that can leave it without blocks."""
    from cudalint.rules.edits import under_sizes

    sizes: dict[Term, None] = {}
    for blocks in launch.grid or ():
        env = _empty(launch, blocks)
        if env is not None:
            if all(v > 0 for x, v in env.items() if w.assumed(x) is None):
                return None  # on this axis no size is 0
            leaves = launches.ordered([blocks], [])
            sizes.update(dict.fromkeys(x for x in leaves if w.assumed(x) is None and _empties(blocks, leaves, x)))
    for blocks in launch.grid or ():
        env = _empty(launch, blocks)
        if env is not None and t.evaluate(blocks, {x: max(1, v) if x in sizes else v for x, v in env.items()}) == 0:
            return None  # something else can leave it without blocks
    edits = under_sizes(launch, list(sizes))
    return FixDraft(True, "launch only where there is something to do", tuple(edits)) if edits else None


def _empties(blocks: Term, leaves: Sequence[Term], size: Term) -> bool:
    """Whether there are no blocks where one size is 0."""
    try:
        return bool(t.evaluate(blocks, {**launches.all_at(leaves, _FEW), size: 0}) == 0)
    except t.Undefined:
        return False


def experiment_cl204(bench: Bench) -> Plan:
    """The launch as the host computes it, each size at 0 in turn: a grid without blocks (on the axis that is named) is
    refused."""
    from cudalint.confirm.experiment import Plan, oracle

    bench.harness.literal = True
    said = bench.witness.values if bench.witness is not None else {}
    axis = next((a for a in "xyz" if f"grid {a}" in said), "")
    return Plan(bench.trials(zero=True), lambda run: oracle.empty(run, axis), watch=frozenset(), refusal=True)
