"""What rules share: source text for messages, related places, threads that part ways."""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING, Any

from cudalint.contracts import block as needs
from cudalint.facts import search
from cudalint.facts import terms as t
from cudalint.facts import witness as w
from cudalint.facts.events import conjuncts_of
from cudalint.facts.ids import BDIM, BID, GDIM, TID
from cudalint.facts.model import GRID_X_MAX, GRID_YZ_MAX, THREADS_MAX
from cudalint.facts.roots import concerning
from cudalint.ir.nodes import Index, Ref
from cudalint.ir.types import Float, Int
from cudalint.lazy import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from cudalint.facts.events import Access, CallSite, Event, Guard
    from cudalint.facts.model import Kernel, Launch
    from cudalint.facts.terms import Term
    from cudalint.findings import Level
    from cudalint.frontend.source import SourceFile
    from cudalint.ir.nodes import Function, Node

Place = tuple["SourceFile", int, int, str]
Triple = tuple[int, int, int]
_LAUNCH_KINDS = frozenset({"tid", "bid", "bdim", "gdim"})
_SIZES = frozenset({"param", "size", "call", "load", "var", "device", "name", "uninit"})
EXACT = "; no visible launch comes to it, but only as long as no block reaches past n, as with a multiple of the block"
_NOTHING: Mapping[Term, int] = {}
_INSTANCES = 3
"""Instances of a kernel that are looked at, where it is judged by itself."""
_SPACE = re.compile(r"\s+")
_SHORT = 60
_DROPPED: dict[Level, Level] = {"error": "warning", "warning": "note", "note": "note"}


def text(fn: Function, node: Node) -> str:
    """The source of a node on one line, clipped, for use in a message."""
    return clip(fn.file, node.start, node.end)


def element(access: Access, at: int) -> int:
    """The element that an access comes to where its index is ``at``: -1 of 32 bits without a sign is 4,294,967,295."""
    node = access.node
    if at >= 0 or not isinstance(node, Index) or not isinstance(node.base, Ref):
        return at
    type_, whole = node.index.type, node.base.var.name == access.obj.name
    return type_.wrap(at) if whole and isinstance(type_, Int) and not type_.signed and type_.bits == 32 else at


def clip(file: SourceFile, start: int, end: int) -> str:
    """The source of a region of the text; what a macro makes of it where it lies in the macro's body."""
    first, last = file.origin(start, end)
    use = file.macro_use(start)
    source = file.text[start:end] if use is not None and (use.start, use.end) == (first, last) else file.raw[first:last]
    found = _SPACE.sub(" ", source.decode("utf-8", "replace")).strip()
    return found if len(found) <= _SHORT else found[: _SHORT - 1] + "…"


def line(event: Event, seen_from: SourceFile) -> str:
    """``line 9``, and ``line 9 of tile.cuh`` in a message about another file."""
    file = event.fn.file
    span = file.span(event.node.start, event.node.end)
    if file.path == seen_from.path:
        return f"line {span.told_line}"
    where = span.file.rpartition("/")[2] if span.cell is None else f"cell {span.cell.number}"
    return f"line {span.told_line} of {where}"


def calls(event: Event) -> tuple[Place, ...]:
    """The calls through which an event inside a function is reached, innermost first."""
    return sites(event.stack)


def sites(stack: Sequence[CallSite]) -> tuple[Place, ...]:
    """The calls on the way to a place, innermost first. A lambda that runs where it is written, at once or by what it
    is handed to (``DISPATCH(type, [&] { … })``), is the text of the function around it."""
    return tuple(
        (site.fn.file, site.call.start, site.call.end, f"called here from {site.fn.name}")
        for site in reversed(stack)
        if not _is_around(site.call, site.callee)
    )


def _is_around(call: Node, callee: Function) -> bool:
    return callee.decl is None and call.start <= callee.body.start and callee.body.end <= call.end


def called(site: CallSite) -> str:
    """What a call calls, by name where it has one."""
    return site.callee.name if site.callee.decl is not None else "the lambda"


def condition(guard: Guard) -> str:
    """The condition that a guard is about, as the source has it."""
    node = guard.node
    cond = getattr(node, "cond", None) or getattr(node, "left", None)
    if cond is None:
        return "a condition"
    spelled = f"`{text(guard.fn, cond)}`"
    taken = guard.why in ("if", "loop", "short-circuit", "switch")
    return spelled if guard.positive is taken or guard.why == "loop" else f"not {spelled}"


def header_end(guard: Guard) -> int:
    """Where the header of the statement that a guard stands for ends."""
    node = guard.node
    cond = getattr(node, "cond", None)
    return getattr(node, "header_end", None) or (cond.end if cond is not None else node.end)


def launched_at(kernel: Kernel, limit: int = 2) -> tuple[Place, ...]:
    """The visible launches, as related places."""
    return tuple(
        (e.fn.file, e.node.start, e.node.end, f"{kernel.decl.name} is launched here")
        for e in (launch.event for launch in kernel.launches[:limit])
    )


def dropped(level: Level) -> Level:
    """One step less severe."""
    return _DROPPED[level]


def block_shape(kernel: Kernel) -> tuple[int, int, int]:
    """The block of a witness: the first visible launch's where it is known, else the one nearest to the configured
    size on x that the kernel can have."""
    for launch in kernel.launches:
        known = [launch.known_block(a) for a in "xyz"]
        if None not in known:
            x, y, z = (k or 1 for k in known)
            return x, y, z
    return fitted(kernel, (kernel.config.block_size, 1, 1))


def fitted(kernel: Kernel, block: Triple) -> Triple:
    """The block nearest to ``block`` that the kernel can have."""
    return shape(kernel).fit(block)


def shape(kernel: Kernel) -> needs.Shape:
    """What the kernel needs of its block."""
    if "shape" not in kernel.answers:
        kernel.answers["shape"] = needs.shape(kernel.flow)
    return kernel.answers["shape"]  # type: ignore[return-value]  # put there above


def dimensions(grid: tuple[int, int, int], block: tuple[int, int, int]) -> dict[Term, int]:
    """The atoms of ``gridDim`` and ``blockDim`` with these values."""
    result = {}
    for i, axis in enumerate("xyz"):
        result[GDIM[axis]], result[BDIM[axis]] = grid[i], block[i]
    return result


def coordinates(block_index: tuple[int, int, int], thread_index: tuple[int, int, int]) -> dict[Term, int]:
    """The atoms of ``blockIdx`` and ``threadIdx`` with these values."""
    return dict(zip(_COORDINATES, (*block_index, *thread_index), strict=True))


_COORDINATES = (*BID.values(), *TID.values())


def on_axis(axis: str, value: int, other: int = 0) -> Triple:
    """(x, y, z) with ``value`` on one axis."""
    return (value if axis == "x" else other, value if axis == "y" else other, value if axis == "z" else other)


def halves(numbers: Sequence[int]) -> tuple[Triple, Triple]:
    """Six numbers as a grid and a block."""
    gx, gy, gz, bx, by, bz = numbers
    return (gx, gy, gz), (bx, by, bz)


class Split(NamedTuple):
    """A block (or grid) whose threads part at a condition.

    ``taken`` threads find it true, ``others`` false; ``first`` of block ``first_block`` is the first
    that finds it true, ``stays`` of block ``stays_block`` the first that does not. ``sizes`` by name.
    ``counted`` is false where data decides: two threads were looked at, any others are as they may be.
    ``env`` holds the values of all atoms but the thread's own coordinates.
    """

    sizes: dict[str, int]
    grid: Triple
    block: Triple
    taken: int
    others: int
    first: Triple
    first_block: Triple
    stays: Triple
    stays_block: Triple
    counted: bool
    env: dict[Term, int]
    visible: bool | None = None
    """Whether a visible launch shows it; None where not all launches can be seen."""
    there: Mapping[str, int] = {}
    """Values of loop variables at that moment."""


def split(
    kernel: Kernel, conditions: Sequence[Term], *, scope: str = "block", given: Sequence[Term] = ()
) -> Split | None:  # fmt: skip
    """The smallest case in which some threads of one block meet all ``conditions`` and others do not, while ``given``
    holds (what the whole block has in common, such as the tests of loops around).

    The visible launches are tried first, with sizes that their host function lets through. Where none
    of them shows it, the kernel is judged by itself, on a grid that covers. With ``scope`` grid or
    cluster, threads of all blocks count. Values that differ from thread to thread and are not made of
    launch built-ins (data) may take any value in each thread.
    """
    cond = unrolled(conditions)
    key = ("split", cond, scope, *given)
    if key not in kernel.answers:
        kernel.answers[key] = _split(kernel, cond, scope, given)
    return kernel.answers[key]  # type: ignore[return-value]  # put there above


def _split(kernel: Kernel, cond: Term, scope: str, given: Sequence[Term]) -> Split | None:
    started = first_pass(cond)
    if any(w.unseen(x) for x in t.leaves(started)):
        cond = started  # whether a loop's variable differs between threads hangs on what its start is
    uniformity = kernel.uniformity("block" if scope == "block" else "grid")
    data = {x for x in t.leaves(cond) if x.data.kind not in _LAUNCH_KINDS and uniformity.level(x) > t.UNIFORM}
    shown = [x for x in kernel.launches if x.grid is not None and x.block is not None]
    common = [x for x in map(over_passes, given) if x.op != "const" and not t.leaves(x) & data]
    # Launches that are alike, as a dispatch over types has them, are one to the condition.
    alike: dict[object, Launch] = {}
    for launch in shown:
        terms = [launch.at_launch(x) for x in (cond, *common)]
        sizes = search.leaves_of([*terms, *(launch.grid or ()), *(launch.block or ())])
        alike.setdefault((launch.grid, launch.block, *terms, concerning(launch.conditions, sizes)), launch)
    for launch in alike.values():
        found = _split_at(launch, cond, data, scope, common)
        if found is not None:
            return found
    found = _search_whatever(
        [cond, *common], data, scope, lambda pinned: assignments_alone(kernel, [cond], data, common, pinned)
    )
    if found is None or not shown or len(shown) < len(kernel.launches):
        return found
    return found._replace(visible=False)


def _split_at(launch: Launch, cond: Term, data: set[Term], scope: str, given: Sequence[Term]) -> Split | None:
    """The same at one visible launch: its own grid and block, sizes that its host function lets through."""
    at_host = launch.at_launch(cond)
    held = [launch.at_launch(x) for x in given]
    parts = [*(launch.grid or ()), *(launch.block or ())]
    found = _search_whatever(
        [at_host, *held, *parts], data, scope, lambda pinned: assignments_at(launch, [at_host], data, held, pinned)
    )
    if found is None:
        return None
    fixed = passed_constants(launch, [cond, *given])
    env = with_parameters(launch, found.env)
    return found._replace(visible=True, sizes={**fixed, **found.sizes}, env=env)


def _value(term: Term, env: dict[Term, int]) -> int | None:
    try:
        return int(t.evaluate(term, env))
    except (t.Undefined, ValueError, OverflowError):
        return None


def _covering(env: dict[Term, int], shape: Triple) -> Triple:
    """A grid of a few blocks for a kernel judged by itself: enough for the largest size, two on other axes."""
    threads = shape[0] * shape[1] * shape[2]
    biggest = max(env.values(), default=0)
    blocks = max(2, biggest // max(1, threads) + 1) if biggest < 1 << 20 else 2
    return blocks, 2 if shape[1] > 1 else 1, 2 if shape[2] > 1 else 1


class Assigned(NamedTuple):
    """Values of everything that is the same in all threads of a launch of ``grid`` and ``block``: ``env`` holds them,
    of which ``sizes`` were chosen."""

    env: dict[Term, int]
    grid: Triple
    block: Triple
    sizes: list[Term]

    def at(self, block_index: Triple, thread_index: Triple) -> dict[Term, int]:
        """The values as one thread sees them."""
        return {**self.env, **coordinates(block_index, thread_index)}

    @property
    def named(self) -> dict[str, int]:
        """The sizes by name."""
        return {x.data.name: self.env[x] for x in self.sizes if x.data.kind in _SIZES}


def assignments_at(
    launch: Launch, terms: Sequence[Term], data: set[Term], given: Sequence[Term] = (),
    pinned: Mapping[Term, int] = _NOTHING,
) -> Iterator[Assigned]:  # fmt: skip
    """Cases of one visible launch for terms in its host's atoms: its own grid and block, sizes that its host function
    lets through and for which ``given`` holds. ``data`` are atoms that get no value, ``pinned`` those that have one."""
    assert launch.grid is not None
    assert launch.block is not None
    parts = (*launch.grid, *launch.block)

    def dims(env: dict[Term, int]) -> tuple[Triple, Triple] | None:
        if not all(w.allowed(c, env) for c in launch.conditions):
            return None
        try:
            grid, block = halves([int(t.evaluate(p, env)) for p in parts])
        except t.Undefined:
            return None
        possible = min(*grid, *block) > 0 and block[0] * block[1] * block[2] <= THREADS_MAX
        taken = grid[0] <= GRID_X_MAX and max(grid[1:]) <= GRID_YZ_MAX
        return (grid, block) if possible and taken else None

    shape = [launch.known_block(a) or 0 for a in "xyz"]
    usual = (shape[0] or launch.config.block_size, shape[1] or 1, shape[2] or 1)
    asked = {x for term in (*terms, *given, *parts) for x in t.leaves(term)}
    # A check of a size that hangs on a template parameter: `n % tile == 0`, where each instance has its tile.
    checked = [
        x for c in launch.conditions if not asked.isdisjoint(t.leaves(c)) for x in t.leaves(c) if w.instances(x)
    ]  # fmt: skip
    hosts = (*parts, *checked)
    return _assignments(terms, data, dims, hosts, usual, launch.config.max_elements, given, pinned=pinned)


def assignments_alone(
    kernel: Kernel, terms: Sequence[Term], data: set[Term], given: Sequence[Term] = (),
    pinned: Mapping[Term, int] = _NOTHING,
) -> Iterator[Assigned]:  # fmt: skip
    """Cases of a kernel by itself for which ``given`` holds: its usual block, and a grid that covers the sizes. What it
    asserts of its sizes holds in all of them. ``pinned`` atoms have a value."""
    stated = [x for each in kernel.flow.asserted for x in conjuncts_of(each.term)]
    asserted = [x for x in stated if not any(y.data.kind in _LAUNCH_KINDS for y in t.leaves(x))]
    known = [int(c) for c in w.constants(asserted)]
    usual = block_shape(kernel)
    for instance, block in (*instances(kernel), (_NOTHING, None)):
        shape = block or usual

        def dims(env: dict[Term, int], shape: Triple = shape) -> tuple[Triple, Triple] | None:
            return (_covering(env, shape), shape) if all(w.allowed(x, env) for x in asserted) else None

        fixed = {**instance, **pinned}
        yield from _assignments(terms, data, dims, (), shape, kernel.config.max_elements, given, known, fixed)


def instances(kernel: Kernel) -> list[tuple[dict[Term, int], Triple | None]]:
    """Values that the visible launches give to template parameters that are open here, with the block that goes with
    them; a few launches' worth."""
    found: list[tuple[dict[Term, int], Triple | None]] = []
    for launch in kernel.launches:
        passed = {x: launch.mapping[x] for x in kernel.flow.template.values() if x in launch.mapping}
        block = launch.block or ()
        inner = {x for actual in (*passed.values(), *block) for x in t.leaves(actual)}
        names = {x: w.UNSEEN[0] for x in inner if w.unseen(x)}
        given = [x for x in inner if w.instances(x)]
        for row in zip(*map(w.instances, given), strict=False) if given else [()]:
            env = {**names, **dict(zip(given, row, strict=True))}
            values = {x: number for x, actual in passed.items() if (number := _value(actual, env)) is not None}
            shape = [number for x in block if (number := _value(x, env))]
            case = values, (shape[0], shape[1], shape[2]) if len(shape) == 3 else None
            if values and case not in found:
                found.append(case)
            if len(found) >= _INSTANCES:
                return found
    return found


def _assignments(
    terms: Sequence[Term], data: set[Term], dims: Callable[[dict[Term, int]], tuple[Triple, Triple] | None],
    parts: Sequence[Term], usual: Triple, limit: int | None, given: Sequence[Term] = (), more: Sequence[int] = (),
    pinned: Mapping[Term, int] = _NOTHING,
) -> Iterator[Assigned]:  # fmt: skip
    threads = usual[0] * usual[1] * usual[2]
    own = {x for term in terms for x in t.leaves(term)}
    terms = [*terms, *given]
    leaves = {x for term in terms for x in t.leaves(term)}
    involved = [x for x in leaves if x not in data] + [x for p in parts for x in t.leaves(p)]
    sizes = list(dict.fromkeys(x for x in involved if x.data.kind not in _LAUNCH_KINDS))
    sizes.sort(key=lambda x: (x not in leaves, x.key))
    known = [*more, *(int(c) for c in w.constants(terms))]
    around = (threads - 1, threads, threads + 1, usual[0] + 1, usual[1] + 1)
    choices: list[Sequence[int]] = []
    for leaf in sizes:
        fixed = pinned.get(leaf, w.UNSEEN[0] if w.unseen(leaf) else None)
        if fixed is None and not w.instances(leaf):
            fixed = w.assumed(leaf)
        values = [fixed] if fixed is not None else w.instances(leaf) or w.candidates(leaf, known, around)
        if leaf.data.kind == "count":
            values = list(range(_PASSES if len(sizes) == 1 else 3))
        elif limit is not None:
            values = [v for v in values if v <= limit]
        choices.append(values or [leaf.data.lo])
    # One thread over a full block is the case people meet; then the smallest.
    over = tuple(min(threads + 1, x.data.hi) if len(c) > 3 else c[0] for x, c in zip(sizes, choices))
    # What only the grid or what is given is made of need not be more than 1, unless it takes another block to show it.
    beside = {x for p in (*parts[:3], *given) for x in t.leaves(p)}
    inner = {x for p in parts[3:] for x in t.leaves(p)}
    spare = beside - own - inner
    least = tuple(1 if x in spare and 1 in c else v for x, c, v in zip(sizes, choices, over))
    most = max(_TRIES, _PASSES if len(sizes) == 1 else 0)
    # Last, one of each in the first pass of loops: a single row for all warps of a block.
    ones = tuple(1 if 1 in c and x.data.kind != "count" else c[0] for x, c in zip(sizes, choices))
    # Or one size that comes near a block, and one that a grid needs: ends of ranges, which begin near 0. What parts
    # threads by their data needs no such sizes.
    near = (
        tuple(threads - 1 if x in (one, other) and threads - 1 in c else v for x, c, v in zip(sizes, choices, ones))
        for other in (None, *(x for x in sizes if x in spare))
        for one in sizes
        if not data
    )
    # Or one that makes one block of a grid that is a part of what is usual (`blocks / 16`), and leaves its last thread
    # one element.
    many = [c * (threads - 1) + 1 for c in _shares(parts[:3])]
    parted = (
        tuple(v if x is one else threads if x in inner else w_ for x, w_ in zip(sizes, ones))
        for v in many
        for one in sizes
        if one in beside - inner and v <= one.data.hi and (limit is None or v <= limit)
    )
    tries = dict.fromkeys([least, over, *islice(_diagonal(choices), most), ones, *near, *parted])
    for assignment in tries:
        env = dict(zip(sizes, assignment))
        shape = dims(env) if w.instantiated(env) else None
        if shape is not None:
            env.update(dimensions(*shape))
            if all(w.allowed(x, env) for x in given):
                yield Assigned(env, *shape, sizes)


def _shares(grid: Sequence[Term]) -> list[int]:
    """The constants that numbers of blocks are divided by once more, ascending."""
    quotients = [x for x in t.inside(grid) if x.op == "div" and x.args[1].op == "const"]
    again = (x for x in quotients if any(y.op in ("div", "shr") for y in t.inside([x.args[0]])))
    return sorted({int(x.args[1].data) for x in again if x.args[1].data > 1})


def with_parameters(launch: Launch, env: dict[Term, int]) -> dict[Term, int]:
    """Values of a host's atoms with those of the kernel's parameters added."""
    result = dict(env)
    for formal, actual in launch.mapping.items():
        number = _value(actual, env)
        if number is not None:
            result[formal] = number
    return result


def passed_constants(launch: Launch, terms: Iterable[Term]) -> dict[str, int]:
    """The kernel's parameters in ``terms`` for which the launch passes a constant, by name."""
    return {
        x.data.name: value.data
        for x in search.ordered(terms, [])
        if (value := launch.mapping.get(x)) is not None and value.op == "const" and x.data.kind not in _LAUNCH_KINDS
    }


def _search_whatever(
    terms: Sequence[Term], data: set[Term], scope: str, cases: Callable[[Mapping[Term, int]], Iterable[Assigned]]
) -> Split | None:
    """What is found for the first of ``terms``, if something is whatever those constants are that nobody here can see.

    Values for which no block has a second thread say nothing.
    """
    found = _search(terms[0], data, scope, cases(_NOTHING))
    names = sorted({x for term in terms for x in t.leaves(term) if w.unseen(x)}, key=lambda x: x.key)
    if found is None or not names:
        return found
    usual, *others = w.UNSEEN
    for value in others:
        for changed in (names, *([x] for x in names)):
            pinned = dict.fromkeys(names, usual) | dict.fromkeys(changed, value)
            several = [x for x in cases(pinned) if max(x.block) > 1]
            if several and _search(terms[0], data, scope, several) is None:
                return None
    return found


def _search(cond: Term, data: set[Term], scope: str, assigned: Iterable[Assigned]) -> Split | None:
    leaves, cases = t.leaves(cond), list(assigned)
    free_leaves = sorted(data & leaves, key=lambda x: x.key)
    if len(free_leaves) > _MOST_LEAVES:
        return None
    free = list(_diagonal([_values(x, w.constants([cond], floats=True)) for x in free_leaves]))[:_MOST_DATA]
    budget = _MOST_STEPS // t.size(cond)
    # A few threads first: most conditions part them at the ends or between neighbours.
    for sampled, case in [(True, c) for c in cases] + [(False, c) for c in cases[:8]]:
        env, grid, block = case.env, case.grid, case.block
        if block[0] * block[1] * block[2] > THREADS_MAX:
            continue  # no device starts it: CL206
        last = (grid[0] - 1, grid[1] - 1, grid[2] - 1)
        groups: Iterable[list[Triple]]
        if scope == "block":
            groups = [[b] for b in dict.fromkeys([(0, 0, 0), (min(1, grid[0] - 1), 0, 0), last])]
        else:
            groups = [[(b, 0, 0) for b in range(min(grid[0], 8))]]
        for group in groups:
            if sampled and not free_leaves and not _differ(cond, env, block, group):
                continue
            budget -= len(free) * (2 if free_leaves else len(group) * block[0] * block[1] * block[2])
            if budget < 0:
                return None
            found = _part(cond, env, block, group, free_leaves, free)
            if found is not None:
                there = {f"{x.data.name} there": env[x] for x in case.sizes if x.data.kind in ("loop", "exit")}
                return Split(case.named, grid, block, *found, not free_leaves, env, there=there)
    return None


_TRIES = 80
_MOST_LEAVES, _MOST_DATA = 16, 256
"""Values out of memory that a condition may hang on, and combinations of them that are tried."""
_MOST_STEPS = 3_000_000
"""What is evaluated of a condition in one search: that of a sorting network in registers has thousands of steps."""


def unrolled(conditions: Sequence[Term]) -> Term:
    """The conjunction, with every induction variable written as its start and a pass number of its loop."""
    cond = t.TRUE
    for item in conditions:
        cond = t.land(cond, item)
    return over_passes(cond)


def over_passes(term: Term) -> Term:
    """A value with every induction variable in it written as its start and a pass number of its loop."""
    for _ in range(4):
        loops = {
            x: t.binary(
                "add",
                x.data.data.init,
                t.binary("mul", t.convert(x.data.data.loop.counter, x.type), step, x.type),
                x.type,
            )
            for x in t.leaves(term)
            if x.data.kind == "loop" and x.data.data.init is not None and (step := x.data.data.step) is not None
        }
        if not loops:
            break
        term = t.substitute(term, loops)
    return term


def first_pass(term: Term) -> Term:
    """A value with variables that a loop halves or doubles at their start."""
    for _ in range(3):
        starts = {
            x: x.data.data.init
            for x in t.leaves(term)
            if x.data.kind == "loop" and x.data.data.init is not None and x.data.data.step is None
        }
        if not starts:
            break
        term = t.substitute(term, starts)
    return term


def _differ(cond: Term, env: dict[Term, int], shape: Triple, blocks: list[Triple]) -> bool:
    """Whether a few threads of the block already disagree."""
    x, y, z = shape
    threads = {(0, 0, 0), (x - 1, y - 1, z - 1), (min(1, x - 1), 0, 0), (min(31, x - 1), 0, 0), (min(32, x - 1), 0, 0),
               (x // 2, 0, 0), (0, y - 1, 0), (x - 1, 0, 0)}  # fmt: skip
    return len({_truth(cond, {**env, **coordinates(b, i)}) for i in threads for b in blocks}) > 1


def _values(leaf: Term, known: set[int | float]) -> list[int | float]:
    """Values that data may have: those worth trying for a size, negative or fractional ones where the type allows."""
    if isinstance(leaf.type, Float):
        edges = sorted({float(c) + d for c in known for d in (-1, 0, 1)})
        return [0.0, 1.0, -1.0, 0.5, *edges]
    low = leaf.type.lo if isinstance(leaf.type, Int) else 0
    return [*w.candidates(leaf, (int(c) for c in known)), *([-1] if low < 0 else [])]


def _diagonal(choices: list[Sequence[Any]]) -> Iterable[tuple[Any, ...]]:
    """Combinations, the ones with like ranks first: sizes tend to grow together."""
    if not choices:
        return [()]
    if len(choices) == 1:
        return [(v,) for v in choices[0]]
    longest = max(len(c) for c in choices)
    same = [tuple(c[min(i, len(c) - 1)] for c in choices) for i in range(longest)]
    mixed = [
        tuple(v if k == j else c[-1 - len(c) // 3] for k, c in enumerate(choices))
        for j in range(len(choices))
        for v in choices[j]
    ]
    # One size over the rest at their least: a single row of any width.
    single = [
        tuple(v if k == j else c[min(1, len(c) - 1)] for k, c in enumerate(choices))
        for j in range(len(choices))
        for v in choices[j]
    ]
    return [*same, *mixed, *single]


def _part(
    cond: Term, env: dict[Term, int], shape: Triple, blocks: list[Triple], data: list[Term],
    free: Sequence[tuple[int | float, ...]],
) -> tuple[int, int, Triple, Triple, Triple, Triple] | None:  # fmt: skip
    taken = others = 0
    first: tuple[Triple, Triple] | None = None
    stays: tuple[Triple, Triple] | None = None
    threads = [(x, y, z) for z in range(shape[2]) for y in range(shape[1]) for x in range(shape[0])]
    everyone = [(thread, block) for block in blocks for thread in threads]
    if data:
        # Any two threads with different data show it; the second thread has what the first has not.
        everyone = everyone[:2] if len(blocks) == 1 else [everyone[0], everyone[-1]]
    here: dict[Term, int] = dict(env)
    for thread, block in everyone:
        here.update(coordinates(block, thread))
        value = _choose(cond, here, data, free, want=first is None) if data else _truth(cond, here)
        if value is None:
            return None
        if value:
            taken += 1
            first = first or (thread, block)
        else:
            others += 1
            stays = stays or (thread, block)
    if first is None or stays is None:
        return None
    return taken, others, *first, *stays


def _choose(
    cond: Term, env: dict[Term, int], data: list[Term], free: Sequence[tuple[int | float, ...]], *, want: bool
) -> bool | None:
    """``want`` when some of the values ``free`` of ``data`` give it."""
    result: bool | None = None
    for values in free:
        here: dict[Term, int | float] = {**env, **dict(zip(data, values))}
        value = _truth(cond, here)
        if value is want:
            return want
        result = value if value is not None else result
    return result


def _truth(cond: Term, env: Mapping[Term, int | float]) -> bool | None:
    value = t.evaluated(cond, env)
    return None if value is None else bool(value)


_PASSES = 64
"""Passes of a loop that are tried where nothing else is open."""
