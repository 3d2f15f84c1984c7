"""CL307 block-shape-mismatch: a kernel written for one block, launched with another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudalint.contracts import block as needs
from cudalint.facts import grids, kernels, search, shapes
from cudalint.facts import terms as t
from cudalint.facts import witness as w
from cudalint.facts.events import chain
from cudalint.facts.ids import BDIM, BID, TID
from cudalint.facts.uniformity import expand
from cudalint.findings import Witness, plural
from cudalint.ir.nodes import Const
from cudalint.lazy import NamedTuple
from cudalint.rules import launches, support
from cudalint.rules.draft import Draft

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudalint.confirm.experiment import Bench, Plan
    from cudalint.confirm.harness import Setup, Values
    from cudalint.confirm.oracle import Fault, Run
    from cudalint.facts.events import Access, Event
    from cudalint.facts.model import Kernel, Launch
    from cudalint.facts.terms import Poly, Term
    from cudalint.frontend.source import SourceFile
    from cudalint.rules.support import Triple

CODES = ("CL307",)

_LARGEST_UNIT = 1 << 12
"""Constants up to here may be what sizes are divided into or rounded up to."""


class _Mismatch(NamedTuple):
    """What the kernel takes the block to be, where, and what is left out for it."""

    text: str
    help: str
    event: Event | None
    value: tuple[str, int]


def check(launch: Launch) -> Iterator[Draft]:
    """One finding a launch: the first thing in its kernel that another block was meant for."""
    kernel = launch.kernel
    if kernel is None or not kernel.flow.complete or launch.block is None:
        return
    known = [launch.known_block(a) for a in "xyz"]
    if None not in known:
        x, y, z = (k or 0 for k in known)
        if not 0 < x * y * z <= 1024:
            return
        found = next(_mismatches(kernel, launch, (x, y, z)), None)
        if found is not None:
            case = next(support.assignments_at(launch, [], set()), None)
            if case is not None:
                yield _draft(launch, found, case.named, case.grid, case.block)
            return
    for tree in _halving(kernel):
        shown = _uneven(launch, tree)
        if shown is not None:
            yield shown
            return


def _draft(
    launch: Launch, found: _Mismatch, sizes: dict[str, int], grid: Triple | None, block: Triple, at: str = ""
) -> Draft:
    event, place = launch.event, found.event
    related = ((place.fn.file, place.node.start, place.node.end, "written for another block"),) if place else ()
    return Draft(
        "CL307", event.fn, event.fn.file, event.node.start, event.node.end,
        f"{event.node.kernel or 'the kernel'} is launched with "
        f"{plural(block[0] * block[1] * block[2], 'thread')} a block{at}, and {found.text}",
        found.help, Witness(sizes, grid, block, None, dict([found.value])), (*related, *launches.callers(launch)),
    )  # fmt: skip


def _uneven(launch: Launch, tree: _Tree) -> Draft | None:
    """A tree over a number that the host computes from a size, at the smallest size that makes it no power of two."""
    if launch.grid is None or launch.block is None:
        return None
    width = launch.at_launch(tree.width)
    leaves = search.ordered([width], [*launch.block, *launch.grid])
    chosen = grids.block_sizes(launch)  # what is only a block's size is for whoever chooses it
    if not t.leaves(width) or t.leaves(width) <= chosen or not all(search.is_size(x) for x in leaves):
        return None

    def goal(env: w.Assignment) -> bool:
        case, count = kernels.case(launch, env), int(t.evaluate(width, env))
        return (
            case is not None and case.possible and case.block[1:] == (1, 1)
            and count > 2 and count & (count - 1) != 0 and count // 2 <= case.block[0]
        )  # fmt: skip

    units = {1, *(int(c) for c in w.constants([width]) if 1 < c <= _LARGEST_UNIT)}
    tries = {c * k + d for c in units for k in (1, 2, 3, 5) for d in (-1, 0, 1)}
    env = search.smallest(goal, leaves, launch, tries, block_leaves=chosen)
    case = kernels.case(launch, env) if env is not None else None
    if env is None or case is None:
        return None
    found = _added_to_nothing(launch, tree, int(t.evaluate(width, env)))
    return _draft(launch, found, search.sizes_of(env), case.grid, case.block, f" at {launches.words(env)}")


def _mismatches(kernel: Kernel, launch: Launch, block: Triple) -> Iterator[_Mismatch]:
    yield from _bounds(kernel, block)
    yield from _collectives(kernel, block, launch.event.fn.file)
    yield from _trees(kernel, launch, block)
    yield from _written(kernel, block, launch.event.fn.file)
    yield from _tiles(kernel, block, launch.event.fn.file)


def _bounds(kernel: Kernel, block: Triple) -> Iterator[_Mismatch]:
    """More threads than ``__launch_bounds__`` allows."""
    bounds = kernel.function.launch_bounds
    threads = block[0] * block[1] * block[2]
    if isinstance(bounds, Const) and isinstance(bounds.value, int) and threads > bounds.value:
        yield _Mismatch(
            f"its `__launch_bounds__` allow {bounds.value}: the launch is refused",
            "launch no more threads than the kernel was compiled for", None, ("threads allowed", bounds.value),
        )  # fmt: skip


def _collectives(kernel: Kernel, block: Triple, seen_from: SourceFile) -> Iterator[_Mismatch]:
    """A ``cub::Block*`` declared for other dimensions."""
    for barrier in kernel.flow.barriers:
        declared = barrier.threads
        if barrier.collective and declared is not None and declared != block[0]:
            what = f"{barrier.name} on {support.line(barrier, seen_from)} is declared for {plural(declared, 'thread')}"
            yield _Mismatch(
                what, "launch the block that the collective is declared for", barrier, ("threads declared", declared)
            )


def _trees(kernel: Kernel, launch: Launch, block: Triple) -> Iterator[_Mismatch]:
    """A tree that halves a width that is no power of two: where it is odd, an element is dropped."""
    if block[1:] != (1, 1):
        return
    for tree in _halving(kernel):
        width = _width(tree, launch)
        if width is None or width < 2 or width // 2 > block[0] or width & (width - 1) == 0:
            continue
        yield _added_to_nothing(launch, tree, width)


def _added_to_nothing(launch: Launch, tree: _Tree, width: int) -> _Mismatch:
    dropped = _dropped(width)
    what = "it" if _of_block(tree.width) else plural(width, "element")
    line = support.line(tree.access, launch.event.fn.file)
    return _Mismatch(
        f"the tree on {line} halves {what}, which is no power of two: element {dropped} of the block is added to "
        "nothing",
        "launch a power of two, or let the tree round its half up", tree.access, ("element left out", dropped),
    )  # fmt: skip


class _Tree(NamedTuple):
    """A loop that puts together elements half a ``width`` apart, a quarter, and so on, from ``access`` on."""

    access: Access
    width: Term


def _halving(kernel: Kernel) -> Iterator[_Tree]:
    for loop in kernel.flow.loops:
        for info in loop.inductions.values():
            if info.init is None or info.next is None or info.term is None or info.next.op not in ("shr", "div"):
                continue
            own, by = info.next.args
            two = by.op == "const" and by.data == (1 if info.next.op == "shr" else 2) and t.bare(own) is info.term
            width = _doubled(info.init)
            if two and width is not None and _adds_pair(kernel, loop.first, loop.last, info.term):
                yield _Tree(kernel.flow.within(loop)[0], width)


def _gathered(kernel: Kernel, tree: _Tree) -> bool:
    """Whether threads fill the tree's array in a loop, with more than an element each."""
    stores = [a for a in kernel.flow.accesses if a.obj is tree.access.obj and a.mode == "w" and a.seq < tree.access.seq]
    return any(g.loop is not None and g.loop.last < tree.access.seq for a in stores for g in chain(a.guard))


def _doubled(half: Term) -> Term | None:
    """What a first half is the half of; None where that cannot be told."""
    half = t.bare(half)
    if half.op == "const" and isinstance(half.data, int):
        return t.const(2 * half.data, half.type)
    if half.op in ("shr", "div") and half.args[1].op == "const" and half.args[1].data == (1 if half.op == "shr" else 2):
        return t.bare(half.args[0])
    return None


def _of_block(width: Term) -> bool:
    return width is BDIM["x"]


def _width(tree: _Tree, launch: Launch) -> int | None:
    """The elements that a tree puts together at a launch, where that is known."""
    found = launch.at_launch(tree.width)
    return found.data if found.op == "const" and isinstance(found.data, int) else None


def _adds_pair(kernel: Kernel, first: int, last: int, half: Term) -> bool:
    """Whether shared elements half a width apart are put together in the loop, below the half alone, and nothing else
    is done to their array there."""
    pair = {(TID["x"],): 1, (half,): 1}
    inner = [a for a in kernel.flow.accesses if first <= a.seq <= last and a.obj.kind == "shared"]
    arrays = {
        a.obj for a in inner
        if a.mode == "r" and a.scalar is not None and expand(a.scalar) == pair
        and any(g.term.op == "lt" and t.bare(g.term.args[0]) is TID["x"] and t.bare(g.term.args[1]) is half
                for g in chain(a.guard))
    }  # fmt: skip
    return bool(arrays) and all(
        a.scalar is not None and expand(a.scalar) in (pair, {(TID["x"],): 1}) for a in inner if a.obj in arrays
    )


def _dropped(threads: int) -> int:
    """The first element that a tree over so many threads does not bring to element 0."""
    sums = [{i} for i in range(threads)]
    half = threads // 2
    while half:
        for i in range(half):
            sums[i] |= sums[i + half]
        half //= 2
    return min(set(range(threads)) - sums[0])


def _written(kernel: Kernel, block: Triple, seen_from: SourceFile) -> Iterator[_Mismatch]:
    """A larger block than the launched one written into the index: the rest of each share has no thread."""
    for access, share in _shares(kernel):
        if share > block[0] and block[1:] == (1, 1):
            yield _Mismatch(
                f"its index on {support.line(access, seen_from)} gives each block {share} elements: elements "
                f"{block[0]} to {share - 1} of each have no thread",
                "form the index with `blockDim.x`, or launch the block that is written there", access,
                ("first element of a share without a thread", block[0]),
            )  # fmt: skip
            return


def _tiles(kernel: Kernel, block: Triple, seen_from: SourceFile) -> Iterator[_Mismatch]:
    """A tile with a slot for each thread of a larger block, read whole: nobody stores the rest."""
    for tile in needs.whole_tiles(kernel.flow):
        threads = block["xyz".index(tile.axis)]
        if threads < tile.slots:
            line = support.line(tile.read, seen_from)
            does = "reads" if tile.read.mode == "r" else "updates"
            yield _Mismatch(
                f"each stores its own slot of `{tile.read.obj.name}`, of which {line} {does} {tile.slots}: nobody "
                f"stores slots {threads} to {tile.slots - 1}",
                f"launch blocks of {tile.slots} threads on {tile.axis}, or read no more slots than there are threads",
                tile.read, ("first slot that nobody stores", threads),
            )  # fmt: skip
            return


def _shares(kernel: Kernel) -> Iterator[tuple[Access, int]]:
    """The elements of a block's share that are written into an index, one a thread, and where."""
    touched = [a for a in kernel.flow.accesses if a.obj.kind == "global" and a.scalar]
    for access in touched:
        axis = shapes.axes(expand(access.scalar or {})).get("x")
        if axis is None or axis.grid != "x" or axis.block is None or t.constant(axis.scale) != 1:
            continue
        share = t.constant(axis.block)
        if share is not None and all(_is_one(a.scalar or {}, share) for a in touched):
            yield access, share


def _is_one(scalar: Poly, share: int) -> bool:
    """Whether an address is the thread's own place in its block's share, or has nothing to do with the share."""
    p = expand(scalar)
    if any(x.op != "atom" or x.data.kind not in ("tid", "bid", "bdim", "gdim", "param") for x in t.atoms_of(p)):
        return False
    own = p.get((TID["x"],), 0)
    return own == 0 or (own == 1 and p.get((BID["x"],), 0) == share and not p.get(()))


def experiment_cl307(bench: Bench) -> Plan:
    """What the launch leaves out: results of a sum over the block that lack elements, elements that nobody writes, a
    tile that is not filled, results that differ from those of the block that is written into the index. What a
    declaration says of the block (bounds, cub) is compared with the block that the host computes."""
    from cudalint.confirm.experiment import Plan, oracle

    names = [a.obj.name for a in bench.kernel.flow.accesses if a.obj.kind == "global" and a.mode == "w"]
    tree = next(_halving(bench.kernel), None)
    if tree is not None:
        bench.harness.constant = 2
    share = next((share for _, share in _shares(bench.kernel)), 0)
    tiles = list(needs.whole_tiles(bench.kernel.flow))

    def declared(host: Values) -> Fault | None:
        found = bench.harness.dimensions(host)
        if found is None:
            return None
        for wrong in _bounds(bench.kernel, found[1]):
            return oracle.Fault("refused", wrong.text)
        for wrong in _collectives(bench.kernel, found[1], bench.kernel.decl.file):
            return oracle.Fault("wrong-value", wrong.text)
        return None

    def judge(run: Run) -> Fault | None:
        x = run.setup.block[0]
        if any(tile.slots > run.setup.block["xyz".index(tile.axis)] for tile in tiles):
            return oracle.unset(run)
        found = oracle.gaps(run, names) if tree is None else None
        if found is None and share > x:
            found = oracle.unset(run) or oracle.independence(run, f"in blocks of {share}")
        if found is None and tree is not None and not _gathered(bench.kernel, tree):
            # A tree wider than the block has places that are no element's.
            found = oracle.short_sums(run, 2, min(value(run, t.poly(tree.width)) or x, x), elements(run))
        return found

    def elements(run: Run) -> int | None:
        """The size that the kernel's own index is tested against, where it is."""
        for item in bench.kernel.layout.coordinates:
            if item.is_global and (size := value(run, item.limit)) is not None:
                return size
        return None

    def value(run: Run, p: Poly) -> int | None:
        try:
            return run.setup.case.number(p)
        except t.Undefined:
            return None

    def meant(setup: Setup) -> tuple[Triple, Triple]:
        """The block that is written into the index, where a smaller one is launched."""
        larger = share > setup.block[0] and setup.block[1:] == (1, 1)
        return setup.grid, (share, 1, 1) if larger else setup.block

    return Plan(bench.trials(), judge, meant, host=declared, anywhere=True)
