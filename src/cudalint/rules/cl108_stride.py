"""CL108 int-stride-overflow: a 32-bit index that passes its type's maximum before the bound is tested."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudalint.facts import shapes
from cudalint.facts import terms as t
from cudalint.facts import witness as w
from cudalint.facts.ids import BDIM, BID, GDIM, TID
from cudalint.facts.kernels import ids_of
from cudalint.facts.reach import Reach
from cudalint.findings import Witness, digits
from cudalint.ir.types import I32, Int
from cudalint.rules import support, width
from cudalint.rules.draft import Draft, FixDraft
from cudalint.rules.stride import overrun, sides

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudalint.confirm.experiment import Bench, Plan
    from cudalint.confirm.oracle import Fault, Run
    from cudalint.facts.events import Event, Induction, Loop
    from cudalint.facts.model import Kernel, Launch
    from cudalint.facts.terms import Term
    from cudalint.ir.nodes import Function, Var
    from cudalint.rules.width import Bound, Triple

CODES = ("CL108",)

_AXES = "xyz"
#: So many rows an experiment may be of.
_ROWS = (1 << 30) + 1
_BLOCK_HELP = "make the index 64 bits wide and cast the first operand of the products in its start and its step"
_HELP = "make the index 64 bits wide and cast its products: `size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x`"


def check_loops(kernel: Kernel) -> Iterator[Draft]:
    """Loops that step a 32-bit index by the grid, or by the block where the kernel is for one block."""
    flow = kernel.flow
    one_block = _knows_no_blocks(kernel) if flow.loops else False
    for loop in flow.loops:
        for induction in loop.inductions.values():
            if _strides(kernel, induction, one_block):
                draft = _loop_draft(kernel, loop, induction)
                if draft is not None:
                    yield draft
                    break


def _knows_no_blocks(kernel: Kernel) -> bool:
    """Whether no block's number takes part in what a kernel touches: one block does it all. A row of a block's own is
    never so long."""
    flow = kernel.flow
    places = [a.scalar for a in flow.accesses if a.obj.kind == "global"]
    terms = [*(x for place in places for x in t.atoms_of(place or {})), *(c.term for c in flow.comparisons)]
    known = kernel.is_kernel and flow.complete and None not in places
    return known and ids_of(terms).isdisjoint(BID.values())


def _strides(kernel: Kernel, induction: Induction, one_block: bool) -> bool:
    """A 32-bit variable that starts at a place of its block and steps by the grid; in ``one_block`` by the block."""
    term, init, step = induction.term, induction.init, induction.step
    if term is None or init is None or step is None:
        return False
    if not (isinstance(term.type, Int) and term.type.bits == 32):
        return False
    if one_block:
        return t.poly(step) == {(BDIM["x"],): 1} and TID["x"] in ids_of([init])
    if not any(GDIM[a] in t.leaves(step) for a in _AXES):
        return False
    return not _of_rows(kernel, term, step) and any(BID[a] in ids_of([init]) for a in _AXES)


def _of_rows(kernel: Kernel, term: Term, step: Term) -> bool:
    """Whether an index is stepped by blocks alone: of rows, or whatever else has several elements, no machine has
    2^31."""
    if any(m not in {(x,) for x in GDIM.values()} or abs(c) != 1 for m, c in t.poly(step).items()):
        return False
    scalars = [a.scalar for a in kernel.flow.accesses if a.obj.kind == "global"]
    own = [p for p in scalars if p is None or any(term in t.leaves(x) for x in t.atoms_of(p))]
    return not own or any({m: abs(c) for m, c in (p or {}).items() if term in m} != {(term,): 1} for p in own)


def _tests(loop: Loop, induction: Induction) -> Iterator[Term]:
    """The single conditions that each keep the loop going while they hold."""
    for control in loop.control:
        stack = [control if control is loop.cond else t.lnot(control)]
        while stack:
            term = stack.pop()
            if term.op == "land":
                stack.extend(term.args)
            else:
                yield _past_start(term, induction)


def _past_start(test: Term, induction: Induction) -> Term:
    """``i < max(start, n)`` as ``i < n``: an index that grows is never below where it starts."""
    if test.op == "lt" and test.args[0] is induction.term and test.args[1].op == "max":
        ends = [x for x in test.args[1].args if x is not induction.init]
        if len(ends) == 1:
            return t.compare("<", test.args[0], ends[0])
    return test


def _ends_by_wrap(induction: Induction, test: Term) -> bool:
    """Whether an unsigned index counts down under a test ``i < n``: the wrap below 0 ends the loop, on purpose."""
    term, step = induction.term, induction.step
    if term is None or step is None or not isinstance(term.type, Int) or term.type.signed:
        return False
    if test.op not in ("lt", "le") or any(c > 0 for c in t.poly(step).values()):
        return False
    return t.add(t.poly(test.args[0]), t.poly(test.args[1]), -1).get((term,), 0) > 0


def _loop_draft(kernel: Kernel, loop: Loop, induction: Induction) -> Draft | None:
    assert induction.term is not None
    type_ = induction.term.type
    assert isinstance(type_, Int)
    for test in _tests(loop, induction):
        found = sides(test, induction)
        if found is None or ids_of([found[1]]) or _ends_by_wrap(induction, test):
            continue
        limit = t.bare(found[1])
        launches: list[Launch | None] = [*kernel.launches] or [None]
        for launch in launches:
            wide = isinstance(limit.type, Int) and limit.type.bits == 64
            if wide and Reach(launch, kernel.config).high(limit) > type_.hi:
                continue  # CL103
            case = overrun(kernel, launch, induction, test, found[1])
            if case is None:
                continue
            sizes, grid, block, values, consequence = case
            node = loop.node
            return Draft(
                "CL108", loop.fn, loop.fn.file, node.start, getattr(node, "header_end", node.end),
                f"the index `{induction.var.name}` is stepped in 32 bits (`{type_}`) before the bound is tested: "
                f"{consequence}",
                _HELP if any(TID[a] in ids_of([induction.init or t.ZERO]) for a in _AXES) else _BLOCK_HELP,
                Witness(sizes, grid, block, None, values),
                (*support.sites(loop.stack), *support.launched_at(kernel)),
                fix=widen(loop.fn, induction.var, large=next(width.products(limit), None) is not None),
            )  # fmt: skip
    return None


def widen(fn: Function, var: Var, *, large: bool = False, tested: Var | None = None) -> FixDraft | None:
    """The repair of an index: 64 bits for it, its products cast, in its start and its step. A ``large`` one is past 32
    bits where it is used too, not in its last step alone; so is the variable ``tested`` that is made of it, if any."""
    from cudalint.rules import widening

    edits = widening.widened(fn, [var], quotients=large, tested=tested)
    return FixDraft(True, f"make `{var.name}` 64 bits wide, and cast its products", edits) if edits else None


def widen_at(place: Event, *, large: bool = False, tested: Var | None = None) -> FixDraft | None:
    """The same for the local whose value is formed at a place."""
    from cudalint.rules import widening

    var = widening.holder(place.fn, place.node)
    return widen(place.fn, var, large=large, tested=tested) if var is not None else None


def check_surplus(kernel: Kernel) -> Iterator[Draft]:
    """Surplus threads of the last block whose signed index turns negative, where t does not divide 2^31."""
    if not any(_odd_block(launch) for launch in kernel.launches):
        return
    reported: set[int] = set()
    for bound in width.bounds(kernel.flow):
        if bound.value.type is not I32:
            continue
        axes = [a for a in shapes.axes(t.poly(bound.value)).values() if a.is_global]
        if len(axes) != 1 or axes[0].name != "x":
            continue
        product = next(width.products(t.bare(bound.value)), None)
        place = width.origin(kernel.flow, product, bound.event) if product is not None else None
        if place is None or id(place.node) in reported:
            continue
        for launch in kernel.launches:
            case = _surplus(kernel, launch, bound) if _odd_block(launch) else None
            if case is None:
                continue
            sizes, grid, block, thread, wrapped, meant = case
            reported.add(id(place.node))
            told = ", ".join(f"{k} = {digits(v)}" for k, v in sizes.items())
            yield Draft(
                "CL108", place.fn, place.fn.file, place.node.start, place.node.end,
                "the index of the last block's surplus threads turns negative, since blocks of "
                f"{block[0]} do not divide 2^31: at {told} thread {thread[1][0]} of block {digits(thread[0][0])} has "
                f"index {digits(wrapped)} instead of {digits(meant)}, passes the test and touches memory below the "
                "array",
                "use an unsigned or a 64-bit index: `size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x`",
                Witness(sizes, grid, block, thread, {"index in 32 bits": wrapped, "index meant": meant}),
                (*support.calls(place), *support.launched_at(kernel)),
                fix=widen_at(place),
            )  # fmt: skip
            break


def _odd_block(launch: Launch) -> bool:
    size = launch.known_block("x")
    return size is not None and size > 0 and size & (size - 1) != 0 and launch.known_grid("x") is None


def _surplus(
    kernel: Kernel, launch: Launch, bound: Bound
) -> tuple[dict[str, int], Triple, Triple, tuple[Triple, Triple], int, int] | None:
    """Sizes, grid, block, the first thread whose index turns negative, that index in 32 bits and as meant."""
    if launch.grid is None:
        return None
    size = launch.known_block("x") or 1
    grid, limit = launch.grid[0], launch.at_launch(t.bare(bound.limit))
    reach = Reach(launch, kernel.config)
    if limit.op != "atom" or limit not in t.leaves(grid):
        return None
    leaves = t.leaves(grid) | {limit}
    env = {**width.others_at(launch, leaves, 1, kernel.config), **width.defaults(launch, leaves, kernel.config)}
    over = 1 << 31

    def enough(n: int) -> bool:
        blocks = width.value(grid, {**env, limit: n}, exact=False)
        return blocks is not None and blocks * size > over

    least = width.smallest(1, min(reach.high(limit), over - 1), enough)
    if least is None:
        return None
    env[limit] = least
    blocks = width.value(grid, env)
    if blocks is None or not 1 <= blocks < over or not all(w.allowed(c, env) for c in launch.conditions):
        return None
    thread = ((over // size, 0, 0), (over % size, 0, 0))
    ids = {BID["x"]: thread[0][0], TID["x"]: thread[1][0]}
    here = {**env, **ids}
    index = launch.at_launch(bound.value)
    wrapped, meant = width.value(index, here), width.value(index, here, exact=False)
    test = launch.at_launch(bound.event.term)
    truth = width.value(test, here)
    if wrapped is None or meant is None or wrapped >= 0 or truth is None:
        return None
    below = bool(ids_of([bound.event.term.args[0]]))
    if bool(truth) != below:
        return None
    block = width.block_of(launch, kernel.config)
    return width.named(env), (blocks, 1, 1), block, thread, wrapped, meant


def _counts_of_rows(kernel: Kernel) -> set[str]:
    """The names of the sizes that bound an index of rows."""
    return {
        leaf.data.name
        for loop in kernel.flow.loops
        for i in loop.inductions.values()
        if i.term is not None and i.step is not None and _of_rows(kernel, i.term, i.step)
        for test in _tests(loop, i)
        if (found := sides(test, i)) is not None
        for leaf in t.leaves(found[1])
    }


def experiment_cl108(bench: Bench) -> Plan:
    """The last passes of loops near the end of the index's type: whether the step wraps before the test."""
    from cudalint.confirm.experiment import Plan, oracle

    trials = bench.sparse(bench.threads() + 1, _ROWS, (1 << 31) - 1, (1 << 32) - 1)
    loops = bench.kernel.flow.loops
    rows = _counts_of_rows(bench.kernel) if bench.witness is None else ()
    trials = [x for x in trials if all(x.sizes.get(name, 0) <= _ROWS for name in rows)]
    purpose = any(_ends_by_wrap(i, x) for loop in loops for i in loop.inductions.values() for x in _tests(loop, i))
    kinds = ("signed",) if purpose else ("signed", "unsigned")

    def wraps(run: Run) -> Fault | None:
        return oracle.wraps(run, kinds=kinds)

    def before(run: Run) -> Fault | None:
        return oracle.outside(run, which=bench.has_wrapped)

    judges = [wraps, before]
    if bench.witness is not None:
        judges.append(oracle.no_end)  # a GPU's run that was stopped may only be long, unless it was said not to end
    return Plan(trials, oracle.first_of(*judges), watch=frozenset())
