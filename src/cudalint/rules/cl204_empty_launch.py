"""CL204 empty-launch: a grid that has no blocks for some size that nothing turns away."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudalint.facts import grids, kernels, search
from cudalint.facts import terms as t
from cudalint.facts import witness as w
from cudalint.facts.calls import ROUNDING
from cudalint.facts.expressions import from_poly
from cudalint.facts.ids import BID, GDIM
from cudalint.facts.model import condition_ranges
from cudalint.facts.roots import concerning
from cudalint.facts.terms import Term
from cudalint.findings import Witness
from cudalint.ir import nodes as ir
from cudalint.ir.types import BOOL, I64, Int
from cudalint.rules import launches
from cudalint.rules.cl202_cl203_coverage import lost, short
from cudalint.rules.draft import Draft, FixDraft

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from cudalint.confirm.experiment import Bench, Plan
    from cudalint.facts.events import Access
    from cudalint.facts.kernels import Case, Coordinate
    from cudalint.facts.model import Launch

CODES = ("CL204",)

_FEW = 1 << 10


def check(launch: Launch) -> Iterator[Draft]:
    for each in filter(None, (launch, launch.own)):
        found = list(_check(each))
        if found:
            yield from found
            return


def _check(launch: Launch) -> Iterator[Draft]:
    written, launch = launch, launch.first_pass
    if launch.grid is None:
        return
    found = []
    for axis, blocks in zip(kernels.AXES, launch.grid, strict=True):
        env = _empty(launch, blocks)
        if env is not None and not _are_workers(launch, axis, blocks):
            found.append((axis, blocks, env))
    if not found:
        return
    # A floored grid that also loses elements is CL203, which says that it is empty below one block.
    coverage = short(launch)
    if coverage is None or not coverage.floored or lost(launch) is not None:
        axis, blocks, env = next((x for x in found if not _is_nothing(x[1], x[2])), found[0])
        # What is written is not what the first pass makes of it.
        yield _draft(launch, axis, blocks, env, fixable=launch is written)


def _empty(launch: Launch, blocks: Term) -> w.Assignment | None:
    """Sizes at which a grid dimension is 0: sizes above 0 first, since those are an error."""
    key = ("empty", blocks)
    if key not in launch.answers:
        # Dispatches write one launch hundreds of times, under conditions that do not concern its grid.
        asked, known = _asked(launch, blocks), launch.flow.answers
        if asked not in known:
            known[asked] = _emptied(launch, blocks)
        launch.answers[key] = known[asked]
    return launch.answers[key]  # type: ignore[return-value]  # put there above


def _asked(launch: Launch, blocks: Term) -> object:
    """All that :func:`_emptied` looks at."""
    tests: dict[Access, list[object]] = {}
    terms = [*(launch.grid or ()), *(launch.block or ())]
    for item in _coordinates(launch):
        limit = launch.at_launch(from_poly(item.limit, I64))
        terms.append(limit)
        for access in item.accesses:
            tests.setdefault(access, []).append((limit, item.inclusive, item.axes, item.ids))
    grouped = frozenset(map(tuple, tests.values()))
    return "empty", blocks, launch.grid, launch.block, grouped, concerning(launch.conditions, search.leaves_of(terms))


def _emptied(launch: Launch, blocks: Term) -> w.Assignment | None:
    leaves = search.ordered([blocks], [])
    if t.bare(blocks).op == "atom" and t.bare(blocks).data.axis:
        return None  # a member of a dim3: a finished grid that somebody made
    if not leaves or not all(search.is_size(x) or x.data.kind == "device" for x in leaves):
        return None
    known = condition_ranges(launch.conditions)
    ranges = {}
    for leaf in leaves:
        low, high = known.get(leaf, (leaf.data.lo, leaf.data.hi))
        ranges[leaf] = max(0, low), min(high, search.LARGEST)
    if t.bounds(blocks, ranges)[0] > 0:
        return None

    # Each instance, each build has its constants, none of which is 0.
    constants = {x for x in leaves if _is_constant(x)}
    inner, flags = grids.block_sizes(launch), _flags(blocks)
    # What only divides (`C / heads`) is not what comes to nothing: it divides without a rest.
    quotients = [x for x in t.inside([blocks]) if x.op in _QUOTIENTS]
    outer, divided = _divided(blocks)
    divisors = {
        x
        for q in quotients
        for x in t.leaves(q.args[1]) - t.leaves(q.args[0]) - flags
        if q in outer or x not in divided
    }
    sizes = [x for x in leaves if x not in inner and x not in divisors] or leaves
    whole = {x for x in divisors - inner if not w.instances(x)}
    axes = [a for a, x in zip(kernels.AXES, launch.grid or (), strict=True) if x is blocks]
    exact = [
        q.args
        for q in quotients
        if q.op == "div"
        and (whole & t.leaves(q.args[1]) or any(launches.are_records(launch, a, q.args[1]) for a in axes))
    ]

    def goal(env: w.Assignment) -> bool:
        # A product that wraps to 0 is the width rules' to say.
        if t.evaluate(blocks, env) != 0 or t.evaluate(blocks, env, exact=False) != 0:
            return False
        if not all(env[x] for x in constants & env.keys()):
            return False
        if any(t.evaluate(dividend, env) % t.evaluate(by, env) for dividend, by in exact):
            return False
        return not _is_oversized(launch, env)

    extents = launch.block or ()
    # That the block has no threads is another fault.
    in_grid = search.leaves_of(launch.grid)
    alone = (x for x in extents if t.leaves(x) and in_grid.isdisjoint(t.leaves(x)))
    there = [t.compare("<", t.const(0, x.type), x) for x in alone]
    # Small ranges tell as well whether sizes above 0 can give 0, and no sum in them leaves its type.
    few = {
        x: (max(0 if x in flags else 1, low), max(1, low, min(high, _FEW))) for x, (low, high) in ranges.items()
    }  # fmt: skip
    positive = t.bounds(blocks, few)[0] > 0

    def sought(
        goal: Callable[[w.Assignment], bool], terms: Sequence[Term], zero: Collection[Term]
    ) -> w.Assignment | None:
        others = [x for x in search.ordered(terms, ()) if search.is_size(x)]
        tried = [*dict.fromkeys((*sizes, *leaves, *others))]
        edges = search.edges(launch, [blocks, *terms])
        for given in (there, []) if there else ([],):
            found = search.smallest(
                goal, tried, launch, edges, block_leaves=inner, least=whole, zero=zero, given=given
            )  # fmt: skip
            if found is not None:
                return found
        return None

    converted = [x for x in t.inside([blocks]) if x.op == "cast" and isinstance(x.type, Int) and x.type.lo == 0]

    def is_counted(env: w.Assignment) -> bool:
        """Whether what is converted to unsigned is a count: a difference below 0 is none."""
        return all(t.evaluate(x.args[0], env, exact=False) >= 0 for x in converted)

    if not positive:
        counts = [launch.at_launch(from_poly(x.limit, I64)) for x in _coordinates(launch)]
        found = sought(
            lambda env: goal(env) and is_counted(env) and _are_lost(launch, blocks, env), [*extents, *counts], flags
        ) or sought(lambda env: goal(env) and is_counted(env) and not _is_nothing(blocks, env), extents, flags)
        if found is not None:
            return found
    return sought(goal, extents, set(leaves) - constants)


_QUOTIENTS = frozenset({"div", "shr", "mod"})


def _divided(blocks: Term) -> tuple[set[Term], set[Term]]:
    """The quotients that a number of blocks is made of, but for those that divide it themselves, and the atoms of what
    is divided in them."""
    quotients: set[Term] = set()
    atoms: set[Term] = set()
    stack, seen = [(blocks, False)], set()
    while stack:
        item = part, inside = stack.pop()
        if item in seen:
            continue
        seen.add(item)
        if part.op in _QUOTIENTS:
            quotients.add(part)
            stack.append((part.args[0], True))
            continue
        if part.op == "atom" and inside:
            atoms.add(part)
        stack.extend((x, inside) for x in part.args[part.op == "select" :])  # what chooses is part of neither
    return quotients, atoms


def _is_constant(leaf: Term) -> bool:
    """Whether an atom is a constant of the program or of a template's instance whose value is not in sight."""
    return w.unseen(leaf) or search.is_template(leaf)


def _is_oversized(launch: Launch, env: w.Assignment) -> bool:
    """Whether the block has more threads than the driver takes, whatever the grid."""
    if launch.block is None:
        return False
    try:
        x, y, z = (int(t.evaluate(extent, env)) for extent in launch.block)
    except t.Undefined:
        return False
    return kernels.Case(launch, env, (0, 0, 0), (x, y, z)).oversized


def _coordinates(launch: Launch) -> Sequence[Coordinate]:
    return launch.kernel.layout.coordinates if launch.kernel is not None else ()


def _flags(blocks: Term) -> frozenset[Term]:
    """What chooses between numbers of blocks and is part of none: at 0 it is no size of 0."""
    counted: set[Term] = set()
    stack = [blocks]
    seen: set[Term] = set()
    while stack:
        part = stack.pop()
        if part in seen:
            continue
        seen.add(part)
        if part.op == "select" and part.args[0].op == "atom":
            stack.extend(part.args[1:])
        elif part.op == "atom" and part.type is not BOOL:
            counted.add(part)
        elif part.op not in ("eq", "ne") or all(x.op != "const" for x in part.args):
            stack.extend(part.args)
    return t.leaves(blocks) - counted


def _moving(blocks: Term, env: w.Assignment) -> w.Assignment:
    """The sizes among what a number of blocks is made of: what a caller can make larger or smaller."""
    counted = t.leaves(blocks) - _flags(blocks)
    return {x: v for x, v in env.items() if x in counted and w.assumed(x) is None}


def _zero(blocks: Term, env: w.Assignment) -> w.Assignment:
    """The sizes of 0 among them."""
    return {x: v for x, v in _moving(blocks, env).items() if v == 0}


def _is_nothing(blocks: Term, env: w.Assignment) -> bool:
    """Whether there is nothing to make blocks of: a size of 0, or none from one size to another (``end - begin``)."""
    counts = [t.poly(blocks)]
    for part in t.inside([blocks]):
        if part.op == "div":
            dividend, by = map(t.poly, part.args)
            rounded = t.add(dividend, t.add(by, {(): 1}, -1), -1)
            counts += [dividend] if any(m in rounded for m in by if m) else [dividend, rounded]
    spans = [from_poly(p, I64) for p in counts if sorted(p.values()) == [-1, 1] and () not in p]
    return bool(_zero(blocks, env)) or any((t.evaluated(x, env) or 0) <= 0 for x in spans)


def _are_lost(launch: Launch, blocks: Term, env: w.Assignment) -> bool:
    """Whether there are elements where there are no blocks: those that the kernel counts to with a block's number on
    that axis; where it does not, or with that of another axis too, there must be some of what the host makes blocks of.
    """
    assert launch.grid is not None
    tests: dict[Access, list[Coordinate]] = {}
    for item in _coordinates(launch):
        for access in item.accesses:
            tests.setdefault(access, []).append(item)
    axes = [a for a, x in zip(kernels.AXES, launch.grid, strict=True) if x is blocks]
    tested = [items for items in tests.values() if any(BID[a] in x.ids for a in axes for x in items)]
    case = kernels.Case(launch, env, (0, 0, 0), (0, 0, 0))
    there = [items for items in tested if all(_count(case, x) > 0 for x in items)]
    if any(BID[a] in x.ids and x.axes == a for a in axes for items in there for x in items):
        return True
    return (bool(there) or not tested) and _is_something(blocks, env)


def _count(case: Case, item: Coordinate) -> int:
    """What a coordinate counts to on the host's sizes; nothing where that is not known."""
    try:
        return case.number(item.limit) - item.inclusive
    except t.Undefined:
        return 0


def _is_something(blocks: Term, env: w.Assignment) -> bool:
    """Whether there is any of what a number of blocks is made of, before it is divided."""
    blocks = t.bare(blocks)
    op, args = blocks.op, blocks.args
    if op in ("mul", "min"):
        return all(_is_something(x, env) for x in args)
    if op == "select":
        return _is_something(args[1] if t.evaluate(args[0], env) else args[2], env)
    if op == "call" and blocks.data in ROUNDING.values():
        return _is_something(args[0], env)
    if op not in ("div", "shr"):
        return bool(t.evaluate(blocks, env) > 0)
    dividend, by = t.evaluate(args[0], env), t.evaluate(args[1], env)
    if op == "shr":
        by = 1 << by
    # What is added for rounding up is more than half of what divides.
    added = t.constant({m: c for m, c in t.poly(args[0]).items() if not m}) or 0
    if 2 * added >= by or any(m and m in t.poly(args[0]) for m in t.poly(args[1])):
        dividend -= by - 1
    return bool(dividend > 0)


def _are_workers(launch: Launch, axis: str, blocks: Term) -> bool:
    """Whether the grid is one finished number beside the sizes, or a constant times that, or a few times what a
    function answers that is told no size: the kernel tests what it makes of its block's number against something
    else, divides its work by the number of blocks or steps by that, or does not ask for its block's number at all (its
    work is drawn from a counter)."""
    number = t.bare(blocks)
    while number.op == "select" and len(sides := [x for x in number.args[1:] if x.op != "const" or not x.data]) == 1:
        number = t.bare(sides[0])
    if number.op != "atom":
        product, *others = t.poly(number) or [()]
        own = [x for x in product if not (x.op == "atom" and _is_constant(x))]
        number = t.bare(own[0]) if len(own) == 1 and not others else number
        asked = number.data.data if number.op == "atom" else None
        answers = isinstance(asked, ir.Call) and asked.receiver is None and not asked.args
        if number.op != "atom" or not (len(own) < len(product) or answers):
            return False
    if launch.kernel is None:
        return False
    flow = launch.kernel.flow
    asked = [x for access in flow.accesses for x, _ in access.dims]
    asked += [x for access in flow.accesses for x in t.atoms_of(access.scalar or {})]  # a pointer's base too
    asked += [x for each in flow.comparisons for x in (each.left, each.right)]
    asked += [x for call in flow.calls for x in call.args if isinstance(x, Term)]
    if BID[axis] not in kernels.ids_of(asked) and not flow.opaques:
        return True
    # What is divided among the blocks, or gone over by all of them, is not their number, unless they go up to that.
    told = search.leaves_of(launch.at_launch(x) for c in _coordinates(launch) for x in t.atoms_of(c.limit))
    steps = [x.step for loop in flow.loops for x in loop.inductions.values() if x.step is not None]
    shares = [x.args[1] for x in t.inside(asked) if x.op == "div"]
    if number not in told and any(GDIM[axis] in t.leaves(x) for x in (*steps, *shares)):
        return True
    return any(
        BID[axis] in item.ids and not any(number in t.leaves(launch.at_launch(x)) for x in t.atoms_of(item.limit))
        for item in launch.kernel.layout.coordinates
    )


def _draft(launch: Launch, axis: str, blocks: Term, env: w.Assignment, *, fixable: bool) -> Draft:
    event = launch.event
    start, end = event.node.start, event.node.end
    name = event.node.kernel or "the kernel"
    on = "" if axis == "x" else f" on {axis}"
    zero = _zero(blocks, env)
    are_lost = not zero and _are_lost(launch, blocks, env)
    flags = {x: v for x, v in env.items() if x in _flags(blocks)}
    shown = launches.words(zero or {**_moving(blocks, env), **flags})
    return Draft(
        "CL204", event.fn, event.fn.file, start, end,
        f"the grid of {name} has no blocks{on} at {shown}: the driver refuses the launch"
        + (", and elements that exist are not handled" if are_lost else ""),
        "return before the launch when there is nothing to do"
        if not are_lost
        else "round the number of blocks up, or keep it at 1 or more for a kernel that loops",
        Witness(search.sizes_of(env), None, None, None, {f"grid {axis}": 0}),
        launches.callers(launch),
        level="note" if _is_nothing(blocks, env) else "error",
        fix=guarded(launch) if fixable and zero else None,
    )  # fmt: skip


def guarded(launch: Launch) -> FixDraft | None:
    """The launch under a test of every size that can leave it without blocks."""
    from cudalint.rules.edits import under_sizes

    sizes: dict[Term, None] = {}
    for blocks in launch.grid or ():
        env = _empty(launch, blocks)
        if env is not None:
            if all(_moving(blocks, env).values()):
                return None  # on this axis no size is 0
            leaves = search.ordered([blocks], [])
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
        return bool(t.evaluate(blocks, {**search.all_at(leaves, _FEW), size: 0}) == 0)
    except t.Undefined:
        return False


def experiment_cl204(bench: Bench) -> Plan:
    """The launch as the host computes it, each size at 0 in turn: a grid without blocks (on the axis that is named) is
    refused."""
    from cudalint.confirm.experiment import Plan, oracle

    bench.harness.literal = True
    said = bench.witness.values if bench.witness is not None else {}
    axis = next((a for a in "xyz" if f"grid {a}" in said), "")
    launch = bench.launch
    workers = launch is not None and any(map(_are_workers, [launch] * 3, kernels.AXES, launch.grid or ()))
    trials = bench.trials(zero=not workers)  # how many workers there are is no size
    return Plan(trials, lambda run: oracle.empty(run, axis), watch=frozenset(), refusal=True, unrun=True)
