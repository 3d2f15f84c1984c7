"""CL213 unclamped-block: a block as long as the data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudalint.facts import search
from cudalint.facts import terms as t
from cudalint.facts import witness as w
from cudalint.facts.ids import TID
from cudalint.facts.reach import Reach
from cudalint.findings import Witness, digits
from cudalint.ir import nodes as ir
from cudalint.ir.types import DIM3, U64
from cudalint.rules import launches, width
from cudalint.rules.cl202_cl203_coverage import short
from cudalint.rules.draft import Draft, EditDraft, FixDraft

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudalint.confirm.experiment import Bench, Plan
    from cudalint.facts.model import Launch
    from cudalint.facts.terms import Term

CODES = ("CL213",)

_THREADS = 1024
_CONSTANTS = frozenset({"device", "sizeof", "name"})


def check(launch: Launch) -> Iterator[Draft]:
    if launch.kernel is None or launch.block is None or launch.grid is None:
        return
    leaves = search.leaves_of(launch.block)
    if not leaves or not launch.kernel.flow.complete:
        return
    if not all(x.data.kind in _CONSTANTS or (search.is_size(x) and not x.data.axis) for x in leaves):
        return
    if any(search.is_template(x) for x in leaves):
        return
    counts = {x for x in leaves & _counted(launch) if x.data.kind not in _CONSTANTS} - _divisors(launch)
    if not counts:
        return
    threads = t.const(1, U64)
    for side in launch.block:
        threads = t.binary("mul", threads, t.convert(side, U64), U64)
    reach = Reach(None, launch.config, launch.conditions)
    # How long a block of a constant's multiple is, nobody can tell where the constant cannot be seen.
    told = not any(w.unseen(x) for x in leaves)
    over = width.passing(threads, _THREADS, launch, reach, counts.__contains__) if told else None
    none = _none(launch, counts)
    if over is None and none is None:
        return
    found = short(launch)
    if found is not None and found.floored:
        return  # elements are lost at other sizes too: CL203
    yield _draft(launch, threads, over, none)


def _counted(launch: Launch) -> set[Term]:
    """The host's sizes that the kernel tests an index against, or walks to."""
    return search.leaves_of(_limits(launch))


def _limits(launch: Launch) -> list[Term]:
    assert launch.kernel is not None
    return [launch.at_launch(x) for item in launch.kernel.layout.coordinates for x in t.atoms_of(item.limit)]


def _divisors(launch: Launch) -> set[Term]:
    """What the grid or a count divides by serves as the block's size, whatever else it is."""
    assert launch.grid is not None
    parts = (part for term in (*launch.grid, *_limits(launch)) for part in t.inside([term]) if part.op == "div")
    return search.leaves_of(part.args[1] for part in parts)


def _none(launch: Launch, counts: set[Term]) -> dict[Term, int] | None:
    """The smallest sizes at which the block has no threads while the grid has blocks."""
    assert launch.block is not None and launch.grid is not None
    block, grid = launch.block, launch.grid

    def goal(env: dict[Term, int]) -> bool:
        if any(v == 0 and w.unseen(x) for x, v in env.items()):
            return False
        return min(int(t.evaluate(x, env)) for x in block) == 0 < min(int(t.evaluate(x, env)) for x in grid)

    sizes = sorted(counts, key=lambda x: x.key)
    others = [x for x in search.ordered(block, grid) if x not in counts]
    tries = search.edges(launch, block)
    leaves = [*sizes, *others]
    for zero in ((), leaves):
        env = search.smallest(goal, leaves, launch, tries, zero=zero)
        if env is not None:
            return env
    return None


def _draft(
    launch: Launch, threads: Term, over: tuple[dict[Term, int], Term] | None, none: dict[Term, int] | None
) -> Draft:
    event = launch.event
    assert launch.block is not None
    side = next(x for x in launch.block if t.leaves(x))
    at = []
    values: dict[str, int | str] = {}
    if over is not None:
        env, main = over
        count = width.value(threads, env, exact=False) or 0
        at.append(f"at {launches.words({main: env[main]})} it has {digits(count)}, more than the 1024 there may be")
        values["threads in a block"] = count
    if none is not None:
        zero = {x: v for x, v in none.items() if x in search.leaves_of(launch.block) and x.data.kind not in _CONSTANTS}
        at.append(f"at {launches.words(zero)} it has none")
        values.setdefault("threads in a block", 0)
    sizes = over[0] if over is not None else none
    assert sizes is not None
    only_nothing = over is None and none is not None and 0 in none.values()
    advice = "keep the block between 1 and 1,024 threads, `min(n, 1024)`, and let the kernel loop over the rest"
    if only_nothing:
        advice = "return before the launch when there is nothing to do"
    elif (blocks := _swapped(launch, side)) is not None:
        advice = (
            f"the grid and the block stand in each other's place: launch `{t.show(side)}` blocks of {blocks} threads"
        )
    return Draft(
        "CL213", event.fn, event.fn.file, event.node.start, event.node.end,
        f"the block of {event.node.kernel or 'the kernel'} has `{t.show(side)}` threads, a number of elements that "
        f"the kernel counts to: {', and '.join(at)}; the driver refuses the launch", advice,
        Witness(search.sizes_of(sizes), None, None, None, values), launches.callers(launch),
        fix=_clamped(launch, none) if over is not None else None,
    )  # fmt: skip


def _swapped(launch: Launch, side: Term) -> int | None:
    """The number of blocks where it is what the block's size is divided by, as the size of a block would be."""
    assert launch.grid is not None and launch.block is not None
    shared, blocks = launches.division(side), t.bare(launch.grid[launch.block.index(side)])
    divisor = t.bare(shared[1]) if shared is not None else None
    same = divisor is not None and divisor.op == blocks.op == "const" and divisor.data == blocks.data
    return int(blocks.data) if same and 1 < blocks.data <= _THREADS else None


def _clamped(launch: Launch, none: dict[Term, int] | None) -> FixDraft | None:
    """At most as many threads as there may be, where the kernel's loops go over the rest, and no launch without any."""
    from cudalint.rules import edits

    event, kernel = launch.event, launch.kernel
    assert kernel is not None
    block = event.node.block
    if event.stack or not isinstance(block, ir.Expr) or block.type is DIM3 or not edits.plain(block):
        return None
    loops = all(item.loop is not None for item in kernel.layout.coordinates if TID["x"] in item.ids)
    if not loops or any(a.obj.kind == "shared" for a in kernel.flow.accesses) or kernel.flow.collectives:
        return None
    body = edits.body_of(event.fn)
    zero = [x for x, v in (none or {}).items() if v == 0]
    guard = edits.under_sizes(launch, zero) if zero else []
    if guard is None or not body.lone(block.start, block.end):
        return None
    n = body.source(block)
    edit = EditDraft(body.file, block.start, block.end, f"({n} < {_THREADS} ? {n} : {_THREADS})")
    return FixDraft(True, f"launch at most {_THREADS} threads a block", (edit, *guard))


def experiment_cl213(bench: Bench) -> Plan:
    """The launch as the host computes it, each size in turn at the ends of what a block takes."""
    from cudalint.confirm.experiment import Plan, oracle

    bench.harness.literal = True

    def judge(run: oracle.Run) -> oracle.Fault | None:
        x, y, z = run.setup.block
        return oracle.refused(run) if not 0 < x * y * z <= _THREADS else None

    return Plan(bench.together(0, 1, 1024, 1025, many=1), judge, watch=frozenset(), refusal=True, unrun=True)
