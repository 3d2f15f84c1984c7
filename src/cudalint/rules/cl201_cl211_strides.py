"""CL201 block-stride-only and CL211 lost-block-offset: loops over data that threads of several blocks share wrongly."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from cudalint.facts import asked, kernels, search, shapes
from cudalint.facts import terms as t
from cudalint.facts import witness as w
from cudalint.facts.ids import BDIM, BID, GDIM, TID
from cudalint.facts.uniformity import expand
from cudalint.findings import Witness, digits
from cudalint.ir import nodes as ir
from cudalint.lazy import NamedTuple
from cudalint.rules import launches, support
from cudalint.rules.cl202_cl203_coverage import lost, short
from cudalint.rules.draft import Draft, EditDraft, FixDraft

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cudalint.confirm.experiment import Bench, Plan
    from cudalint.facts.events import Access, Induction, Loop, Operation
    from cudalint.facts.model import Kernel, Launch
    from cudalint.facts.terms import Poly, Term
    from cudalint.ir.nodes import Function
    from cudalint.rules.edits import Body
    from cudalint.rules.support import Triple

    TermTriple = tuple[Term, Term, Term]

CODES = ("CL201", "CL211")

_AXES = kernels.AXES
_MOST_THREADS = 1 << 12
_MOST_SHAPES = 6
"""Grids of one launch that are looked at."""
_UNIT: Poly = {(): 1}
_DIMENSIONS = frozenset([*BDIM.values(), *GDIM.values()])


class Walk(NamedTuple):
    """One loop that steps an index made of launch ids toward a bound that is the same for all blocks."""

    loop: Loop
    info: Induction
    start: Poly
    step: Poly


def check(kernel: Kernel) -> Iterator[Draft]:
    flow = kernel.flow
    if not kernel.is_kernel or not flow.complete or not (flow.loops or flow.accesses):
        return
    done = False
    for walk in _walks(kernel):
        draft = _block_step(kernel, walk) or _grid_step(kernel, walk)
        if draft is not None:
            done = True
            yield draft
    if not done:
        draft = _shared_index(kernel) or _unused(kernel)
        if draft is not None:
            yield draft


def _walks(kernel: Kernel) -> Iterator[Walk]:
    for loop in kernel.flow.loops:
        if loop.cond is None:
            continue
        tests = _conjuncts(loop.cond)
        bounded = [x for x in loop.inductions.values() if x.limit is not None]
        if len(bounded) != 1 or len(tests) != 1:
            continue
        info = bounded[0]
        if info.init is None or info.step is None or info.limit is None or info.term is None:
            continue
        start, step = expand(t.poly(info.init)), expand(t.poly(info.step))
        limit = kernels.ids_of(t.atoms_of(expand(t.poly(info.limit[0]))))
        if limit or not shapes.positive(step) or kernels.ids_of(t.atoms_of(step)):
            continue
        ends = kernels.ids_of(c for c in loop.control if c is not loop.cond)
        if ends & set(BID.values()):
            continue
        yield Walk(loop, info, start, step)


def _conjuncts(term: Term) -> list[Term]:
    return [x for a in term.args for x in _conjuncts(a)] if term.op == "land" else [term]


def _single_block(kernel: Kernel, axis: str) -> bool:
    """Whether every visible launch has one block on the axis."""
    return bool(kernel.launches) and all(x.known_grid(axis) == 1 for x in kernel.launches)


def _other_coordinate(kernel: Kernel, walk: Walk, axis: str) -> bool:
    """Whether an address in the loop depends on the block in another way than through the loop's index."""
    for access in kernel.flow.within(walk.loop):
        if access.obj.kind != "global":
            continue
        if access.scalar is None:
            return True
        items = [x for x in t.atoms_of(access.scalar) if x is not walk.info.term]
        if BID[axis] in kernels.ids_of(_without(items, walk.info.term)):
            return True
    return False


def _without(items: list[Term], banned: Term | None) -> list[Term]:
    """The atoms of some terms, an induction variable left out wherever it stands."""
    leaves = {leaf for item in items for leaf in t.leaves(item)}
    return [x for x in leaves if x is not banned]


# --- CL201 --------------------------------------------------------------------------------------


def _block_step(kernel: Kernel, walk: Walk) -> Draft | None:
    start, step = walk.start, walk.step
    axes = [a for a in _AXES if shapes.coefficient(start, BID[a])]
    if len(axes) != 1:
        return None
    axis = axes[0]
    per_block, per_thread = shapes.coefficient(start, BID[axis]), shapes.coefficient(start, TID[axis])
    alone = {(BDIM[axis],): 1}
    if per_thread:
        share = shapes.divide(per_block, per_thread)
        pace = shapes.divide(step, per_thread)
        if share is None or pace is None or not _is_block(share):
            return None
        by_block = _is_block(pace) and pace != _UNIT and shapes.divide(share, pace) is not None
        by_count = pace == {(GDIM[axis],): 1}
        if not by_block and not by_count:
            return None
    elif per_block != _UNIT or step != alone or any(TID[a] in kernels.ids_of(t.atoms_of(start)) for a in _AXES):
        return None
    if _single_block(kernel, axis) or _other_coordinate(kernel, walk, axis):
        return None
    return _draft(kernel, walk, "CL201", [axis], [axis] if per_thread else [])


def _is_block(size: Poly) -> bool:
    """Whether a number of elements is a block's share: a constant, or made of ``blockDim`` alone."""
    return all(x.op == "atom" and x.data.kind == "bdim" for x in t.atoms_of(size)) and bool(size)


# --- CL211: steps by the grid, starts elsewhere ---------------------------------------------------


def _grid_step(kernel: Kernel, walk: Walk) -> Draft | None:
    atoms = set(t.atoms_of(walk.step))
    on_grid = [a for a in _AXES if GDIM[a] in atoms]
    if not on_grid or (not (atoms - set(GDIM.values())) and t.constant({m: c for m, c in walk.step.items() if not m})):
        return None
    if all(c == 1 and len(m) == 1 for m, c in walk.step.items()):
        return None  # a step of gridDim alone: one block an element
    ids = kernels.ids_of(t.atoms_of(walk.start))
    threads = [a for a in _AXES if TID[a] in ids]
    blocks = [a for a in on_grid if not _single_block(kernel, a)]
    if not blocks or (not threads and not ids):
        return None
    if any(_other_coordinate(kernel, walk, a) for a in blocks):
        return None
    return _draft(kernel, walk, "CL211", blocks, threads)


# --- the case: who handles what -------------------------------------------------------------------


Thread = tuple["Triple", "Triple"]


class _Shares(NamedTuple):
    """What goes wrong with some grid and block: ``element`` is handled by both ``threads``, ``missing`` by none.

    ``launch`` is the one whose grid and block these are at ``sizes``; None where no launch is visible."""

    grid: Triple
    block: Triple
    element: int | None
    threads: tuple[Thread, Thread] | None
    missing: int | None
    sizes: dict[str, int]
    launch: Launch | None = None

    @property
    def size(self) -> int:
        """The least number of elements that shows it."""
        return max(self.element or 0, self.missing or 0) + 1


def _wrong_shares(kernel: Kernel, walk: Walk, blocks: list[str], threads: list[str]) -> _Shares | None:
    """Elements that two threads or none handle, from the starts and the step; the ids of some axes are varied."""
    unseen = not kernel.launches
    for launch in kernel.launches:
        if launch.grid is None or launch.block is None:
            unseen = True
            continue
        found = _at_launch(launch, launch.grid, launch.block, walk, blocks, threads)
        if found is not None:
            return found
    # How wide a block of several axes is on each is the kernel's contract; without a launch it is not known.
    if not unseen or len({*blocks, *threads}) > 1:
        return None
    x, y, z = (2 if a in blocks else 1 for a in _AXES)
    block = support.block_shape(kernel)
    values: dict[Term, int] = support.dimensions((x, y, z), block)
    found = _shares(walk, (x, y, z), block, blocks, threads, values, lambda p: _number(p, values))
    bound = t.bare(walk.info.limit[0]) if walk.info.limit is not None else t.ZERO
    if found is None or bound.op != "atom":
        return found
    return found._replace(sizes={bound.data.name: found.size})


def _at_launch(
    launch: Launch, grid: TermTriple, block: TermTriple, walk: Walk, blocks: list[str], threads: list[str]
) -> _Shares | None:
    """The same with the grid and block of a launch, at the smallest sizes that show it."""
    assert walk.info.limit is not None
    bound, offset = launch.at_launch(walk.info.limit[0]), walk.info.limit[1]
    seen: dict[tuple[Triple, Triple], _Shares | None] = {}

    def shares(env: w.Assignment) -> _Shares | None:
        case = kernels.case(launch, env)
        if case is None or not case.possible or all(case.grid[_AXES.index(a)] == 1 for a in blocks):
            return None
        key = case.grid, case.block
        if key not in seen:
            if len(seen) >= _MOST_SHAPES:
                return None
            seen[key] = _shares(walk, case.grid, case.block, blocks, threads, case.values, case.number)
        return seen[key]

    def goal(env: w.Assignment) -> bool:
        found = shares(env)
        if found is None:
            return False
        try:
            return found.size <= int(t.evaluate(bound, env)) + offset + 1
        except t.Undefined:
            return True

    leaves = search.ordered([bound], [*grid, *block])
    tries = search.edges(launch, [bound, *grid, *block])
    for value in (2, 1009, 1 << 20):
        found = shares(search.all_at(leaves, value))
        if found is not None:
            tries |= {found.size - 1, found.size, found.size + 1}
    env = search.smallest(goal, leaves, launch, tries, block_leaves=search.leaves_of(block))
    found = shares(env) if env is not None else None
    return found._replace(sizes=search.sizes_of(env), launch=launch) if env is not None and found is not None else None


def _number(p: Poly, env: dict[Term, int]) -> int:
    total = 0
    for monomial, value in p.items():
        for item in monomial:
            known = env.get(item)
            value *= known if known is not None else int(t.evaluate(item, env))
        total += value
    return total


def _shares(
    walk: Walk, grid: Triple, block: Triple, blocks: list[str], threads: list[str], values: dict[Term, int],
    number: Callable[[Poly], int],
) -> _Shares | None:  # fmt: skip
    """Who starts where with this grid and block; ``number`` reads a polynomial with ``values``."""

    def span(extents: Triple, axes: list[str]) -> Iterator[Triple]:
        x, y, z = (range(v if a in axes else 1) for v, a in zip(extents, _AXES, strict=True))
        return ((i, j, k) for k in z for j in y for i in x)

    moving = {m: c for m, c in walk.start.items() if kernels.ids_of(m)}
    # What of the launch's own dimensions all threads add: nobody meant to leave out the elements below it.
    common = {m: c for m, c in walk.start.items() if m and all(x in _DIMENSIONS for x in m)}
    starts: dict[int, list[tuple[int, Thread]]] = {}
    kept = dict(values)
    everyone = ((b, i) for b in span(grid, blocks) for i in span(block, threads))
    try:
        step = number(walk.step)
        if step <= 0:
            return None
        extents = [*_extents(BID, grid, blocks), *_extents(TID, block, threads)]
        if _each_once(moving, step, extents, number):
            return None
        place, above = _placing(moving, values, number), number(common)
        for b, i in islice(everyone, _MOST_THREADS):
            at = above + place(b, i)
            starts.setdefault(at % step, []).append((at, (b, i)))
        complete = next(everyone, None) is None
        values.update(support.coordinates(_last(grid, blocks), _last(block, threads)))
        top = number(moving)
    except t.Undefined:
        return None
    finally:
        values.clear()
        values.update(kept)
    best: tuple[int, tuple[Thread, Thread]] | None = None
    for same in starts.values():
        same.sort(key=lambda item: item[0])
        # Threads of one block may share an element (lanes of a warp, a row each); blocks may not.
        other = next((x for x in same if x[1][0] != same[0][1][0]), None)
        if other is not None and (best is None or other[0] < best[0]):
            best = other[0], (same[0][1], other[1])
    missing: int | None
    if complete:
        first = {residue: min(at for at, _ in same) for residue, same in starts.items()}
        missing = next((e for e in range(2 * step) if e % step not in first or e < first[e % step]), None)
    else:
        missing = 0 if above else top + 1 if top + 1 < step else None  # all start below, and the step leaps over it
    if best is not None:
        return _Shares(grid, block, best[0], best[1], missing, {})
    # Where threads skip elements on purpose (two a pass), none is handled twice; a whole block does not.
    return _Shares(grid, block, None, None, missing, {}) if missing is not None and not threads else None


def _strides(moving: Poly, number: Callable[[Poly], int]) -> dict[Term, int] | None:
    """What each launch id adds to a start; None where that is not all there is to it."""
    strides: dict[Term, int] = {}
    for monomial, value in moving.items():
        ids = [x for x in monomial if x.op == "atom" and x.data.kind in ("bid", "tid")]
        rest = tuple(x for x in monomial if x not in ids)
        if len(ids) != 1 or kernels.ids_of(rest):
            return None
        strides[ids[0]] = strides.get(ids[0], 0) + number({rest: value})
    return strides


def _placing(moving: Poly, values: dict[Term, int], number: Callable[[Poly], int]) -> Callable[[Triple, Triple], int]:
    """Where a thread starts, by its block and its place there."""
    strides = _strides(moving, number)
    if strides is not None:
        (bx, by, bz), (tx, ty, tz) = ([strides.get(ids[a], 0) for a in _AXES] for ids in (BID, TID))
        return lambda b, i: bx * b[0] + by * b[1] + bz * b[2] + tx * i[0] + ty * i[1] + tz * i[2]

    by_block: Poly = {}
    by_thread: Poly = {}
    by_both: Poly = {}
    for monomial, value in moving.items():
        kinds = {x.data.kind for x in kernels.ids_of(monomial)}
        part = by_block if kinds == {"bid"} else by_thread if kinds == {"tid"} else by_both
        part[monomial] = value
    blocks: dict[Triple, int] = {}
    threads: dict[Triple, int] = {}

    def read(block: Triple, thread: Triple) -> int:
        if by_both or block not in blocks or thread not in threads:
            values.update(support.coordinates(block, thread))
            blocks[block], threads[thread] = number(by_block), number(by_thread)
        return blocks[block] + threads[thread] + (number(by_both) if by_both else 0)

    return read


def _extents(ids: dict[str, Term], extents: Triple, axes: list[str]) -> Iterator[tuple[Term, int]]:
    return ((ids[a], n) for a, n in zip(_AXES, extents, strict=True) if a in axes and n > 1)


def _each_once(
    moving: Poly, step: int, extents: list[tuple[Term, int]], number: Callable[[Poly], int]
) -> bool:  # fmt: skip
    """Whether the starts are 0 … step - 1, each once: the usual loop, seen without going through its threads."""
    strides = _strides(moving, number)
    if strides is None:
        return False
    whole = 1
    for stride, extent in sorted((strides.get(x, 0), n) for x, n in extents):
        if stride != whole:
            return False
        whole *= extent
    return whole == step


def _last(extents: Triple, axes: list[str]) -> Triple:
    x, y, z = (v - 1 if a in axes else 0 for v, a in zip(extents, _AXES, strict=True))
    return x, y, z


def _draft(kernel: Kernel, walk: Walk, code: str, blocks: list[str], threads: list[str]) -> Draft | None:
    found = _wrong_shares(kernel, walk, blocks, threads)
    if found is None:
        return None
    loop, name = walk.loop, walk.info.var.name
    step = t.show(walk.info.step) if walk.info.step is not None else "?"
    start = t.show(walk.info.init) if walk.info.init is not None else "?"
    unit = all(c == 1 for a in _AXES for c in shapes.coefficient(walk.start, TID[a]).values())
    missing = found.missing if unit else None
    if (found.element is None or found.threads is None) and (missing is None or code == "CL211"):
        return None
    values, faults = _twice(found.element, found.threads, missing, found.grid, found.block)
    axis = blocks[0]
    if code == "CL201":
        what = f"`{name}` starts at `{start}` and steps by `{step}`, not by the whole grid"
        advice = (
            f"step by the whole grid, `size_t(blockDim.{axis}) * gridDim.{axis}`"
            if threads
            else "let each thread start at its global index and step by the whole grid; where a block works on one "
            f"element at a time, `{name}` starts at blockIdx.{axis} and steps by gridDim.{axis}"
        )
    else:
        what = f"`{name}` steps by the whole grid, but not each thread of the grid has a start of its own (`{start}`)"
        advice = f"start at the global index, `{_global_index(axis, 'size_t(blockIdx.{0})')}`"
    at = launches.told(found.sizes)
    return Draft(
        code, loop.fn, loop.fn.file, loop.node.start, _header_end(loop.node),
        f"{what}: {f'at {at} ' if at else ''}{faults}", advice,
        Witness(found.sizes, found.grid, found.block, found.threads and found.threads[1], values),
        (*support.sites(loop.stack), *([launches.launched(found.launch)] if found.launch is not None else [])),
        fix=_whole_grid(kernel, walk, axis, by_thread=bool(threads)) if code == "CL201" else _own_start(walk, blocks),
    )  # fmt: skip


def _whole_grid(kernel: Kernel, walk: Walk, axis: str, *, by_thread: bool) -> FixDraft | None:
    """A step of the whole grid, or of as many elements as there are blocks where a block owns one."""
    from cudalint.rules.widening import Cannot, Widening, is_narrow, spelling

    loop, var = walk.loop, walk.info.var
    work = Widening(loop.fn)
    step = _step(work.body, loop, var)
    if step is None:
        return None
    if not by_thread:
        reached = [a for a in kernel.flow.within(loop) if a.obj.kind == "global"]
        if not isinstance(step, ir.Special) or any(
            a.scalar is None or TID[axis] not in kernels.ids_of(t.atoms_of(a.scalar)) for a in reached
        ):
            return None
        edit = EditDraft(loop.fn.file, step.start, step.end, f"gridDim.{axis}")
        return FixDraft(True, "step by the number of blocks", (edit,))
    if isinstance(step, ir.Binary) and step.op != "*":
        return None
    try:
        if is_narrow(var.type):
            work.add(var)
        if is_narrow(step.type):
            work.cast(step.start, spelling(var.type))
        edits = work.edits()
    except Cannot:
        return None
    other = "blockDim" if shapes.mentions(walk.step, GDIM[axis]) else "gridDim"
    more = EditDraft(loop.fn.file, step.end, step.end, f" * {other}.{axis}")
    return FixDraft(True, "step by the whole grid", (*edits, more))


def _step(body: Body, loop: Loop, var: ir.Var) -> ir.Expr | None:
    """What a loop adds to its index in the one place where it does."""
    changes = [x for x in body.changes(var) if loop.node.start <= x.start and x.end <= loop.node.end]
    others = [x for x in body.changes(var) if x not in changes]
    if len(changes) != 1 or any(not isinstance(x, ir.Assign) or x.start > loop.node.start for x in others):
        return None
    (change,) = changes
    if not isinstance(change, ir.Assign):
        return None
    if change.op == "+":
        return change.value
    if change.op == "" and isinstance(change.value, ir.Binary) and change.value.op == "+":
        left, right = change.value.left, change.value.right
        if isinstance(left, ir.Ref) and left.var is var:
            return right
        if isinstance(right, ir.Ref) and right.var is var:
            return left
    return None


def _own_start(walk: Walk, blocks: list[str]) -> FixDraft | None:
    """The global index as the start of a loop that steps by the whole grid of its axis."""
    from cudalint.rules.edits import plain
    from cudalint.rules.widening import Cannot, Widening, is_narrow, spelling

    loop, var, axis = walk.loop, walk.info.var, blocks[0]
    made = set(t.atoms_of(walk.start))
    if walk.step != t.multiply({(GDIM[axis],): 1}, {(BDIM[axis],): 1}) or len(blocks) != 1:
        return None
    if not made <= {TID[axis], BID[axis], BDIM[axis]} or shapes.coefficient(walk.start, TID[axis]) != _UNIT:
        return None
    work = Widening(loop.fn)
    declared = work.body.declaration(var)
    starts = [x.value for x in work.body.changes(var) if isinstance(x, ir.Assign) and x.start < loop.node.start]
    starts += [x.expr.value for x in getattr(loop.node, "init", ())
               if isinstance(x, ir.ExprStmt) and isinstance(x.expr, ir.Assign)]  # fmt: skip
    if declared is not None and declared.init is not None:
        starts.append(declared.init)
    if len(starts) != 1 or not plain(starts[0]) or _step(work.body, loop, var) is None:
        return None
    if any(not loop.node.start <= x.start <= loop.node.end for x in work.body.uses(var)):
        return None
    wide = spelling(var.type)
    try:
        if is_narrow(var.type):
            work.add(var)
        work.replace(starts[0], _global_index(axis, f"({wide})blockIdx.{{0}}"))
        return FixDraft(True, "start at the global index", work.edits())
    except Cannot:
        return None


def _global_index(axis: str, block: str = "blockIdx.{0}") -> str:
    return (block + " * blockDim.{0} + threadIdx.{0}").format(axis)


def _twice(
    element: int | None, threads: tuple[Thread, Thread] | None, missing: int | None, grid: Triple, block: Triple
) -> tuple[dict[str, int | str], str]:
    """An element that two threads handle, and one that none does: as values of a witness, and in words."""
    values: dict[str, int | str] = {}
    faults = []
    if element is not None and threads is not None:
        one, two = (launches.thread_words(x, grid, block) for x in threads)
        values = {"element handled twice": element, "by": f"{one} and {two}"}
        faults.append(f"element {digits(element)} is handled by {one} and again by {two}")
    if missing is not None:
        values["element never handled"] = missing
        faults.append(f"element {digits(missing)} is never handled")
    return values, ", and ".join(faults)


def _header_end(node: ir.Node) -> int:
    return getattr(node, "header_end", node.end)


# --- CL211: no loop, and an index that several threads share ---------------------------------------


def _shared_index(kernel: Kernel) -> Draft | None:
    """A launch whose threads come to too few elements because the index gives several threads the same ones."""
    for launch in kernel.launches:
        found, twice = short(launch), lost(launch)
        if found is None or twice is None or found.coordinate is None:
            continue
        case, access = found.case, found.coordinate.accesses[0]
        product = _product(kernel, found.coordinate)
        places = support.calls(product or access)
        fn, start, end = (product.fn, product.node.start, product.node.end) if product else _index_place(kernel, access)
        values, faults = _twice(twice.element, twice.threads, twice.missing, case.grid, case.block)
        at = launches.words(found.host)
        return Draft(
            "CL211", fn, fn.file, start, end,
            f"`{t.show_poly(found.coordinate.index)}` is not an index of its own for each thread of the grid: "
            f"{f'at {at} ' if at else ''}{faults}",
            f"multiply blockIdx by the number of threads in a block: `{_global_index(found.axis)}`",
            Witness(search.sizes_of(found.host), case.grid, case.block, twice.threads[1], values),
            (*places, launches.launched(launch)),
            fix=_scaled(fn, start, end) if found.coordinate.index == {(BID[found.axis],): 1, (TID[found.axis],): 1}
            else None,
        )  # fmt: skip
    return None


def _scaled(fn: Function, start: int, end: int) -> FixDraft | None:
    """``blockIdx.x + threadIdx.x`` with the block's number multiplied."""
    from cudalint.rules.edits import inner

    found = [x for x in inner(fn.body) if isinstance(x, ir.Special) and start <= x.start and x.end <= end]
    if len(found) != 2 or {x.which for x in found} != {"blockIdx", "threadIdx"} or len({x.axis for x in found}) != 1:
        return None
    (block,) = (x for x in found if x.which == "blockIdx")
    if not any(isinstance(x, ir.Binary) and x.op == "+" and block in (x.left, x.right) for x in inner(fn.body)):
        return None
    edit = EditDraft(fn.file, block.end, block.end, f" * blockDim.{block.axis}")
    return FixDraft(True, "multiply blockIdx by the number of threads in a block", (edit,))


def _product(kernel: Kernel, item: kernels.Coordinate) -> Operation | None:
    """Where a device function scales the block's number."""
    for operation in kernel.flow.operations:
        if operation.stack and item.block in t.leaves(operation.term) and t.leaves(operation.term) <= item.leaves:
            return operation
    return None


# --- CL211: an axis that nothing depends on -------------------------------------------------------


def _unused(kernel: Kernel) -> Draft | None:
    """An axis of several blocks (of several threads, where the kernel accumulates) that the kernel never asks for."""
    flow = kernel.flow
    touched = [a for a in flow.accesses if a.obj.kind == "global"]
    if not kernel.launches or not touched or flow.calls or flow.opaques:
        return None
    if any(a.scalar is None for a in touched):
        return None
    walked = [a for a in touched if a.scalar is not None and _moves(a.scalar)]
    if not walked or asked.draws_work(touched):
        return None
    accumulates = [a for a in touched if a.mode in ("rw", "atomic")]
    addressed = kernels.ids_of(x for a in touched for x in t.atoms_of(a.scalar or {}))
    open_axes = [
        (launch, axis, which)
        for launch in kernel.launches
        for axis in _AXES
        for which, atom, extent in (
            ("blockIdx", BID[axis], launch.known_grid(axis)),
            ("threadIdx", TID[axis], launch.known_block(axis) if accumulates else 1),
        )
        if atom not in addressed and extent != 1 and (extent is not None or which == "blockIdx")
    ]
    used = asked.ids(kernel) if open_axes else None
    if used is None:
        return None
    for launch, axis, which in open_axes:
        if (which, axis) not in used:
            case = _several(launch, axis if which == "blockIdx" else "")
            if case is not None:
                access = walked[0] if which == "blockIdx" else accumulates[0]
                return _unused_draft(kernel, launch, axis, case, access, which)
    return None


def _moves(p: Poly) -> bool:
    """Whether an address differs between threads or passes, as the place in data does."""
    ids = kernels.ids_of(t.atoms_of(p))
    return bool(ids) or any(x.data.kind == "loop" for a in t.atoms_of(p) for x in t.leaves(a))


def _several(launch: Launch, axis: str) -> kernels.Case | None:
    """A case of the launch with more than one block on the axis (any case, without an axis)."""
    if launch.grid is None or launch.block is None:
        return None
    blocks = launch.grid["xyz".index(axis)] if axis else t.ONE
    if axis and launch.known_grid(axis) == 1:
        return None
    if t.bare(blocks).op != "const" and not all(search.is_size(x) or x.data.kind == "device" for x in t.leaves(blocks)):
        return None
    if axis and t.bare(blocks).op == "atom":
        return None  # whoever gave it its value has to know

    def goal(env: w.Assignment) -> bool:
        case = kernels.case(launch, env)
        return case is not None and case.possible and (not axis or case.grid["xyz".index(axis)] > 1)

    leaves = search.ordered([blocks], [*launch.grid, *launch.block])
    env = search.smallest(
        goal, leaves, launch, search.edges(launch, [*launch.grid, *launch.block]),
        block_leaves=search.leaves_of(launch.block),
    )  # fmt: skip
    return None if env is None else kernels.case(launch, env)


def _unused_draft(kernel: Kernel, launch: Launch, axis: str, case: kernels.Case, access: Access, which: str) -> Draft:
    at = "xyz".index(axis)
    if which == "blockIdx":
        count, second = case.grid[at], (_at(at, 1), (0, 0, 0))
        fault = "no address depends on {}, so each of them does the same work on the same elements"
        what = f"{digits(count)} blocks on {axis}"
    else:
        count, second = case.block[at], ((0, 0, 0), _at(at, 1))
        fault = f"nothing depends on {{}}, so `{support.text(access.fn, access.node)}` happens {digits(count)} times"
        what = f"{digits(count)} threads on {axis}"
    fn, start, end = _index_place(kernel, access)
    values: dict[str, int | str] = {f"{which.removesuffix('Idx')}s that do the same work": count}
    return Draft(
        "CL211", fn, fn.file, start, end,
        f"{kernel.decl.name} is launched with {what}, and " + fault.format(f"{which}.{axis}"),
        f"let the index depend on {which}.{axis}, or launch it with 1 on {axis}",
        Witness(search.sizes_of(dict(case.host)), case.grid, case.block, second, values),
        (*support.calls(access), launches.launched(launch)),
    )  # fmt: skip


def _index_place(kernel: Kernel, access: Access) -> tuple[Function, int, int]:
    """Where the index of an access comes from: the header of the loop that steps it, its definition, the access."""
    loop = _walking_loop(kernel, access)
    if loop is not None:
        return loop.fn, loop.node.start, _header_end(loop.node)
    ids = kernels.ids_of(t.atoms_of(access.scalar or {}))
    for definition in kernel.flow.definitions:
        if definition.seq > access.seq or definition.stack or not ids:
            continue
        if kernels.ids_of(t.atoms_of(t.poly(definition.term))) == ids:
            return definition.fn, definition.node.start, definition.node.end
    return access.fn, access.node.start, access.node.end


def _at(position: int, value: int) -> tuple[int, int, int]:
    index = [0, 0, 0]
    index[position] = value
    return index[0], index[1], index[2]


def _walking_loop(kernel: Kernel, access: Access) -> Loop | None:
    """The outermost loop whose index the address is made of."""
    for loop in kernel.flow.loops:
        if loop.first <= access.seq <= loop.last and access.scalar is not None:
            terms = {x.term for x in loop.inductions.values()}
            if any(leaf in terms for a in t.atoms_of(access.scalar) for leaf in t.leaves(a)):
                return loop
    return None


def experiment_cl201(bench: Bench) -> Plan:
    """Elements that several threads write here and one in a single block; values that depend on the launch."""
    from cudalint.confirm.experiment import Plan, oracle

    bench.harness.coarse = True
    whole = bench.whole()
    judges = [lambda run: oracle.gaps(run, whole), oracle.written_twice, oracle.coverage]
    touched = [a for a in bench.kernel.flow.accesses if a.obj.kind == "global"]
    # A counter that work is drawn from ends wherever the last block left it.
    if bench.independent() and not asked.draws_work(touched):
        judges.append(oracle.independence)
    judge = oracle.first_of(*judges)
    return Plan(bench.trials(), judge, bench.one_block, first=("element handled twice", "element never handled"))


experiment_cl211 = experiment_cl201
