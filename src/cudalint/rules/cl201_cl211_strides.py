"""CL201 block-stride-only and CL211 lost-block-offset: loops over data that threads of several blocks share wrongly."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cudalint.facts import kernels, shapes
from cudalint.facts import terms as t
from cudalint.facts import witness as w
from cudalint.facts.flow import BDIM, BID, GDIM, TID, children
from cudalint.facts.uniformity import expand
from cudalint.findings import Witness
from cudalint.ir import nodes as ir
from cudalint.rules import launches, support
from cudalint.rules.draft import Draft

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudalint.confirm.experiment import Bench, Plan
    from cudalint.facts.events import Access, Induction, Loop
    from cudalint.facts.model import Kernel, Launch
    from cudalint.facts.terms import Poly, Term
    from cudalint.ir.nodes import Function

CODES = ("CL201", "CL211")

_AXES = kernels.AXES
_MOST_THREADS = 1 << 14
_UNIT: Poly = {(): 1}


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
        draft = _unused(kernel)
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
    for access in kernel.flow.accesses:
        if access.obj.kind != "global" or not walk.loop.first <= access.seq <= walk.loop.last:
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


Thread = tuple[tuple[int, int, int], tuple[int, int, int]]


class _Shares(NamedTuple):
    """What goes wrong with some grid and block: ``element`` is handled by both ``threads``, ``missing`` by none."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    element: int | None
    threads: tuple[Thread, Thread] | None
    missing: int | None


def _shapes(
    kernel: Kernel, blocks: list[str], one_axis: bool
) -> Iterator[tuple[tuple[int, int, int], tuple[int, int, int]]]:
    """Grids and blocks worth a try: the visible launches', else two blocks an axis of the usual size."""
    usual = support.block_shape(kernel)
    for launch in kernel.launches:
        block = [launch.known_block(a) for a in _AXES]
        if None in block:
            continue
        known = [launch.known_grid(a) for a in _AXES]
        grid = [k if k is not None else (2 if a in blocks else 1) for k, a in zip(known, _AXES, strict=True)]
        if any(g > 1 for g, a in zip(grid, _AXES, strict=True) if a in blocks):
            yield (grid[0], grid[1], grid[2]), (block[0] or 1, block[1] or 1, block[2] or 1)
    if one_axis and (not kernel.launches or any(None in [x.known_block(a) for a in _AXES] for x in kernel.launches)):
        # How wide a block of several axes is on each is the kernel's contract; without a launch it is not known.
        two = [2 if a in blocks else 1 for a in _AXES]
        yield (two[0], two[1], two[2]), usual


def _wrong_shares(kernel: Kernel, walk: Walk, blocks: list[str], threads: list[str]) -> _Shares | None:
    """Elements that two threads or none handle, from the starts and the step; the ids of some axes are varied."""
    moving = {m: c for m, c in walk.start.items() if kernels.ids_of(m)}
    for grid, block in _shapes(kernel, blocks, len({*blocks, *threads}) <= 1):
        if grid[0] * grid[1] * grid[2] * block[0] * block[1] * block[2] > _MOST_THREADS:
            grid = (min(grid[0], 2), min(grid[1], 2), min(grid[2], 2))
        env: dict[Term, int] = {}
        for i, axis in enumerate(_AXES):
            env[GDIM[axis]], env[BDIM[axis]] = grid[i], block[i]
        try:
            step = _number(walk.step, env)
            found = _collision(moving, step, env, grid, block, blocks, threads) if step > 0 else None
        except t.Undefined:
            continue
        if found is not None:
            return found
    return None


def _number(p: Poly, env: dict[Term, int]) -> int:
    total = 0
    for monomial, value in p.items():
        for item in monomial:
            known = env.get(item)
            value *= known if known is not None else int(t.evaluate(item, env))
        total += value
    return total


def _collision(
    moving: Poly, step: int, env: dict[Term, int], grid: tuple[int, int, int], block: tuple[int, int, int],
    blocks: list[str], threads: list[str],
) -> _Shares | None:  # fmt: skip
    def span(values: tuple[int, int, int], axes: list[str]) -> list[tuple[int, int, int]]:
        x, y, z = (range(v if a in axes else 1) for v, a in zip(values, _AXES, strict=True))
        return [(i, j, k) for k in z for j in y for i in x]

    starts: dict[int, list[tuple[int, Thread]]] = {}
    here = dict(env)
    for b in span(grid, blocks):
        for i in span(block, threads):
            here.update(support.coordinates(b, i))
            at = _number(moving, here)
            starts.setdefault(at % step, []).append((at, (b, i)))
    best: tuple[int, tuple[Thread, Thread]] | None = None
    for same in starts.values():
        same.sort(key=lambda item: item[0])
        # Threads of one block may share an element (lanes of a warp, a row each); blocks may not.
        other = next((x for x in same if x[1][0] != same[0][1][0]), None)
        if other is not None and (best is None or other[0] < best[0]):
            best = other[0], (same[0][1], other[1])
    first = {residue: min(at for at, _ in same) for residue, same in starts.items()}
    missing = next((e for e in range(2 * step) if e % step not in first or e < first[e % step]), None)
    if best is not None:
        return _Shares(grid, block, best[0], best[1], missing)
    # Where threads skip elements on purpose (two a pass), none is handled twice; a whole block does not.
    return _Shares(grid, block, None, None, missing) if missing is not None and not threads else None


def _draft(kernel: Kernel, walk: Walk, code: str, blocks: list[str], threads: list[str]) -> Draft | None:
    found = _wrong_shares(kernel, walk, blocks, threads)
    if found is None:
        return None
    loop, name = walk.loop, walk.info.var.name
    step = t.show(walk.info.step) if walk.info.step is not None else "?"
    start = t.show(walk.info.init) if walk.info.init is not None else "?"
    unit = all(c == 1 for a in _AXES for c in shapes.coefficient(walk.start, TID[a]).values())
    values: dict[str, int | str] = {}
    faults = []
    if found.element is not None and found.threads is not None:
        one, two = (_thread(x) for x in found.threads)
        values = {"element handled twice": found.element, "by": f"{one} and {two}"}
        faults.append(f"element {found.element} is handled by {one} and again by {two}")
    if found.missing is not None and unit:
        values["element never handled"] = found.missing
        faults.append(f"element {found.missing} is never handled")
    if not faults or (code == "CL211" and found.element is None):
        return None
    if code == "CL201":
        what = f"`{name}` starts at `{start}` and steps by `{step}`, not by the whole grid"
        advice = "step by the whole grid, `size_t(blockDim.x) * gridDim.x`; by gridDim.x where a block owns an element"
    else:
        what = f"`{name}` steps by the whole grid, but not each thread of the grid has a start of its own (`{start}`)"
        advice = "start at the global index, `size_t(blockIdx.x) * blockDim.x + threadIdx.x`"
    size = max(found.element or 0, found.missing or 0) + 1
    return Draft(
        code, loop.fn, loop.fn.file, loop.node.start, _header_end(loop.node),
        f"{what}: {', and '.join(faults)}", advice,
        Witness(_sizes(walk, size), found.grid, found.block, found.threads and found.threads[1], values),
        (*_sites(loop), *support.launched_at(kernel, 1)),
    )  # fmt: skip


def _sizes(walk: Walk, size: int) -> dict[str, int]:
    """The bound's name with a value, where it is a single size."""
    bound = walk.info.limit[0] if walk.info.limit is not None else t.ZERO
    leaf = launches.bare(bound)
    return {leaf.data.name: size} if leaf.op == "atom" else {}


def _sites(loop: Loop) -> tuple[support.Place, ...]:
    return tuple(
        (site.fn.file, site.call.start, site.call.end, f"called here from {site.fn.name}")
        for site in reversed(loop.stack)
    )


def _header_end(node: ir.Node) -> int:
    return getattr(node, "header_end", node.end)


def _thread(thread: Thread) -> str:
    b, i = thread
    return f"thread {_index(i)} of block {_index(b)}"


def _index(index: tuple[int, int, int]) -> str:
    return str(index[0]) if index[1:] == (0, 0) else str(index)


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
    if not walked:
        return None
    accumulates = [a for a in touched if a.mode in ("rw", "atomic")]
    asked = kernels.ids_of(x for a in touched for x in t.atoms_of(a.scalar or {}))
    open_axes = [
        (launch, axis, which)
        for launch in kernel.launches
        for axis in _AXES
        for which, atom, extent in (
            ("blockIdx", BID[axis], launch.known_grid(axis)),
            ("threadIdx", TID[axis], launch.known_block(axis) if accumulates else 1),
        )
        if atom not in asked and extent != 1 and (extent is not None or which == "blockIdx")
    ]
    used = _used(kernel) if open_axes else None
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


def _used(kernel: Kernel) -> set[tuple[str, str]] | None:
    """The launch ids that the kernel and what it calls ask for; None where that cannot be told."""
    result: set[tuple[str, str]] = set()
    bodies: list[Function] = [kernel.function]
    bodies.extend(decl.lower({}) for decl in kernel.flow.callees)
    stack: list[object] = [fn.body for fn in bodies]
    while stack:
        item = stack.pop()
        if isinstance(item, ir.Special):
            for axis in item.axis or _AXES:
                result.add((item.which, axis))
        elif isinstance(item, (ir.Opaque, ir.OpaqueStmt)):
            return None
        elif isinstance(item, ir.Call) and "this_" in item.name:
            return None  # a group that knows its rank
        elif isinstance(item, ir.Call) and item.target is None and item.receiver is not None:
            return None  # an object that may
        stack.extend(children(item))
    return result


def _several(launch: Launch, axis: str) -> kernels.Case | None:
    """A case of the launch with more than one block on the axis (any case, without an axis)."""
    if launch.grid is None or launch.block is None:
        return None
    blocks = launch.grid["xyz".index(axis)] if axis else t.ONE
    if axis and launch.known_grid(axis) == 1:
        return None
    if launches.bare(blocks).op != "const" and not all(
        launches.is_size(x) or x.data.kind == "device" for x in t.leaves(blocks)
    ):
        return None
    if axis and launches.bare(blocks).op == "atom":
        return None  # whoever gave it its value has to know

    def goal(env: w.Assignment) -> bool:
        case = kernels.case(launch, env)
        return case is not None and case.possible and (not axis or case.grid["xyz".index(axis)] > 1)

    leaves = launches.ordered([blocks], [*launch.grid, *launch.block])
    env = launches.smallest(
        goal, leaves, launch, launches.edges(launch, [*launch.grid, *launch.block]),
        block_leaves=launches.leaves_of(launch.block),
    )  # fmt: skip
    return None if env is None else kernels.case(launch, env)


def _unused_draft(kernel: Kernel, launch: Launch, axis: str, case: kernels.Case, access: Access, which: str) -> Draft:
    at = "xyz".index(axis)
    if which == "blockIdx":
        count, second = case.grid[at], (_at(at, 1), (0, 0, 0))
        fault = "no address depends on {}, so each of them does the same work on the same elements"
        what = f"{count} blocks on {axis}"
    else:
        count, second = case.block[at], ((0, 0, 0), _at(at, 1))
        fault = f"nothing depends on {{}}, so `{support.text(access.fn, access.node)}` happens {count} times"
        what = f"{count} threads on {axis}"
    fn, start, end = _index_place(kernel, access)
    values: dict[str, int | str] = {"element handled twice": 0, "times": count}
    return Draft(
        "CL211", fn, fn.file, start, end,
        f"{kernel.decl.name} is launched with {what}, and " + fault.format(f"{which}.{axis}"),
        f"let the index depend on {which}.{axis}, or launch it with 1 on {axis}",
        Witness(launches.named(dict(case.host)), case.grid, case.block, second, values),
        (*support.calls(access), *support.launched_at(kernel, 1)),
    )  # fmt: skip


def _index_place(kernel: Kernel, access: Access) -> tuple[Function, int, int]:
    """Where the index of an access comes from: the header of the loop that steps it, its definition, the access."""
    loop = _walking_loop(kernel, access)
    if loop is not None:
        return loop.fn, loop.node.start, _header_end(loop.node)
    ids = kernels.ids_of(t.atoms_of(access.scalar or {}))
    for definition in kernel.flow.definitions:
        if definition.seq < access.seq and not definition.stack and ids:
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
    judges = [oracle.written_twice, oracle.coverage, lambda run: oracle.gaps(run, whole)]
    if bench.independent():
        judges.append(oracle.independence)
    judge = oracle.first_of(*judges)
    return Plan(bench.trials(), judge, bench.one_block, first="element handled twice")


experiment_cl211 = experiment_cl201
