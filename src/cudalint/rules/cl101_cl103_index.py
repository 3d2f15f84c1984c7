"""CL101 uncast-grid-product, CL102 uncast-global-index, CL103 narrow-index: indices and steps that wrap in 32 bits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudalint.facts import search, shapes
from cudalint.facts import terms as t
from cudalint.facts import witness as w
from cudalint.facts.events import conjuncts
from cudalint.facts.ids import BID, GDIM, TID
from cudalint.facts.kernels import ids_of
from cudalint.facts.reach import Reach, is_wide
from cudalint.findings import Witness, digits
from cudalint.ir import nodes as ir
from cudalint.ir.types import I32, U32, Int
from cudalint.lazy import NamedTuple
from cudalint.rules import support, width
from cudalint.rules.draft import Draft
from cudalint.rules.stride import overrun

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from cudalint.confirm.experiment import Bench, Plan
    from cudalint.confirm.oracle import Fault, Run
    from cudalint.facts.events import Conversion, Induction, Operation
    from cudalint.facts.model import Kernel, Launch
    from cudalint.facts.terms import Term
    from cudalint.rules.draft import FixDraft
    from cudalint.rules.width import Bound, Triple

CODES = ("CL101", "CL102", "CL103")

_DIMENSIONS = frozenset({"bdim", "gdim"})
_AXES = "xyz"


def check_products(kernel: Kernel) -> Iterator[Draft]:
    """All three in one walk: an index that CL103 reports is not reported again by CL102."""
    flow = kernel.flow
    if not flow.operations or not flow.complete:
        return
    bounds = width.bounds(flow)
    reported: set[int] = set()
    for narrow, node in _narrow(kernel, bounds):
        if node not in reported:
            reported.add(node)
            yield narrow
    compared = {id(getattr(c.node, side, None)) for c in flow.comparisons for side in ("left", "right")}
    addresses: set[Term] | None = None
    for event in flow.conversions:
        if not (isinstance(event.to, Int) and event.to.bits == 64):
            continue
        for product in width.products(event.term):
            axes = _launch_axes(product)
            if axes is None:
                continue
            alone = all(x.data.kind in _DIMENSIONS for x in t.leaves(product))
            if not alone and id(event.node) in compared:
                continue  # CL103's, or harmless
            place = width.origin(flow, product, event)
            if place is None or id(place.node) in reported:
                continue
            if not alone:
                if addresses is None:
                    addresses = _address_parts(kernel)
                if t.convert(event.term, event.to) not in addresses:
                    continue
            if alone:
                draft = _alone(kernel, event, product, place, axes, bounds)
            else:
                assert addresses is not None
                draft = _indexed(kernel, event, product, place, axes, bounds, divided=_divided(event, addresses))
            if draft is not None:
                reported.add(id(place.node))
                yield draft


def _divided(event: Conversion, addresses: set[Term]) -> bool:
    """Whether what is widened is no index yet: it is divided first."""
    whole = t.convert(event.term, event.to)
    return any(x.op in ("div", "shr") and whole in t.inside([x.args[0]]) for x in addresses)


def _launch_axes(product: Term) -> set[str] | None:
    """The axes whose block numbers or grid dimensions a product scales; None where it scales none."""
    axes: set[str] = set()
    for monomial, coefficient in t.poly(product).items():
        for axis in _AXES:
            if (BID[axis] in monomial or GDIM[axis] in monomial) and (len(monomial) > 1 or abs(coefficient) > 1):
                axes.add(axis)
    return axes or None


def _address_parts(kernel: Kernel) -> set[Term]:
    """Every value that takes part in an address or a comparison, through loops and loads too; what is cut to 32 bits
    on the way is not as wide as it was."""
    flow = kernel.flow
    stack: list[Term] = [side for c in flow.comparisons for side in (c.left, c.right)]
    for access in flow.accesses:
        if access.index is not None:
            stack.append(access.index)
        elif access.scalar is not None:
            stack.extend(t.atoms_of(access.scalar))
    for access in flow.accesses:
        stack.extend(x for x, _ in access.dims)
        stack.extend(access.obj.origin)
    seen: set[Term] = set()
    while stack:
        item = stack.pop()
        if item in seen:
            continue
        seen.add(item)
        if not _cuts(item):
            stack.extend(item.args)
        if item.op == "atom":
            info = item.data
            stack.extend(info.inputs)
            if info.kind == "loop":
                stack.extend(x for x in (info.data.init, info.data.step, info.data.next) if x is not None)
    return seen


def _cuts(term: Term) -> bool:
    """Whether a term is the lower half of a 64-bit value."""
    if term.op != "cast" or not isinstance(term.type, Int) or not isinstance(term.args[0].type, Int):
        return False
    return term.type.bits <= 32 and term.args[0].type.bits == 64


def _reaching(kernel: Kernel, product: Term, axes: set[str], bounds: list[Bound]) -> Iterator[Launch | None]:
    """The launches at which a product can pass its type's maximum while there is data for such an index.

    A launch whose grid comes from a 64-bit size has the data; for another (a number of blocks that is a
    parameter, no visible launch at all) a test of the index against a 64-bit bound has to tell.
    """
    assert isinstance(product.type, Int)
    p = t.poly(product)
    # `0 < i` bounds nothing from above.
    tests = [b for b in bounds if b.limit.op != "const" or b.limit.data > 0]
    limits = [b.limit for b in tests if any(BID[a] in b.ids for a in axes)]
    launches: list[Launch | None] = [*kernel.launches] or [None]
    for launch in launches:
        reach = Reach(launch, kernel.config)
        if reach.index(p) <= product.type.hi:
            continue
        if limits:
            if max(reach.high(t.bare(x)) for x in limits) > product.type.hi:
                yield launch
        elif launch is not None and launch.grid is not None and any(is_wide(launch.grid[_AXES.index(a)]) for a in axes):
            yield launch


def _alone(
    kernel: Kernel, event: Conversion, product: Term, place: Operation, axes: set[str], bounds: list[Bound]
) -> Draft | None:
    assert isinstance(product.type, Int)
    over = product.type.hi + 1
    for launch in _reaching(kernel, product, axes, bounds):
        block = _block(kernel, launch)
        given = _given(launch, product, block)
        grid = _grid_for(product, axes, block, given, over)
        if grid is None:
            continue
        last = {BID[a]: grid[_AXES.index(a)] - 1 for a in axes}
        found = _sizes(kernel, launch, grid, block, last, bounds, axes, given)
        if found is None:
            continue
        first, (sizes, grid) = grid, found
        env = width.grid_env(grid, block)
        wrapped, meant = width.value(product, env), width.value(product, env, exact=False)
        if wrapped is None or meant is None or wrapped == meant:
            continue
        text = support.text(place.fn, place.node)
        message = (
            f"`{text}` is computed in 32 bits and widened afterwards: from {digits(_blocks(first))} blocks of "
            f"{_shape(block)} threads on it wraps, here to {digits(wrapped)} instead of {digits(meant)}"
        )
        return Draft(
            "CL101", place.fn, place.fn.file, place.node.start, place.node.end, message,
            "cast the first operand of every product: `(size_t)blockDim.x * gridDim.x`",
            Witness(sizes, grid, block, None, {"product in 32 bits": wrapped, "product meant": meant}),
            (*_widened(event, place), *support.calls(place), *support.launched_at(kernel)),
            fix=_fix(event, place),
        )  # fmt: skip
    return None


def _indexed(
    kernel: Kernel, event: Conversion, product: Term, place: Operation, axes: set[str], bounds: list[Bound], *,
    divided: bool,
) -> Draft | None:  # fmt: skip
    assert isinstance(product.type, Int)
    # An int product in an unsigned sum may pass 2^31 and be none the worse.
    ends = {x.hi + 1 for x in (product.type, event.term.type) if isinstance(x, Int)}
    what = "value" if divided else "index"
    for launch in _reaching(kernel, product, axes, bounds):
        block = _block(kernel, launch)
        given = _given(launch, product, block)
        cases = (_first_thread(event.term, axes, block, given, over) for over in sorted(ends))
        case = next((x for x in cases if x is not None), None)
        if case is None:
            continue
        grid, thread, wrapped, meant = case
        coordinates = support.coordinates(*thread)
        if _turned_away(event, {**width.grid_env(grid, block), **coordinates}, meant):
            continue
        found = _sizes(kernel, launch, grid, block, coordinates, bounds, axes, given)
        if found is None:
            continue
        sizes, grid = found
        text = support.text(place.fn, place.node)
        message = (
            f"`{text}` is computed in 32 bits and widened afterwards: in thread {thread[1][0]} of block "
            f"{digits(max(thread[0]))} (blocks of {_shape(block)}) {what} {digits(meant)} becomes {digits(wrapped)}, "
            f"{'below the array' if wrapped < 0 else 'which another thread has'}"
        )
        return Draft(
            "CL102", place.fn, place.fn.file, place.node.start, place.node.end, message,
            "cast the first operand of every product: `(size_t)blockIdx.x * blockDim.x + threadIdx.x`",
            Witness(sizes, grid, block, thread, {f"{what} in 32 bits": wrapped, f"{what} meant": meant}),
            (*_widened(event, place), *support.calls(place), *support.launched_at(kernel)),
            fix=_fix(event, place),
        )  # fmt: skip
    return None


def _turned_away(event: Conversion, thread: Mapping[Term, int], meant: int) -> bool:
    """Whether a test on the way to a conversion lets a thread through but for an index that has wrapped in it, at sizes
    beyond the element that is meant."""
    for test in conjuncts(event.guard):
        env = {**dict.fromkeys(t.leaves(test), meant + 1), **thread}
        sizes = (x.data.hi for x in t.leaves(test) if x not in thread)
        if min(sizes, default=0) > meant and width.value(test, env) == 0 and width.value(test, env, exact=False) == 1:
            return True
    return False


def _block(kernel: Kernel, launch: Launch | None) -> Triple:
    """The block of a witness; where no launch shows it, one that the kernel's ``__launch_bounds__`` allows: all of it
    where the source instantiates the template with one."""
    bound = kernel.function.launch_bounds
    if launch is None and isinstance(bound, ir.Const) and isinstance(bound.value, int):
        return min(kernel.config.block_size, bound.value), 1, 1
    if launch is None and isinstance(bound, ir.Ref) and bound.var.kind == "template" and bound.var.usual:
        return bound.var.usual[0], 1, 1
    return width.block_of(launch, kernel.config)


def _blocks(grid: Triple) -> int:
    return grid[0] * grid[1] * grid[2]


def _shape(block: Triple) -> str:
    return str(block[0]) if block[1:] == (1, 1) else " x ".join(str(b) for b in block if b > 1) or "1"


def _fix(event: Conversion, place: Operation) -> FixDraft | None:
    """A cast in front of the product where it is widened, else 64 bits for the local that takes it there."""
    if event.fn is not place.fn:
        return None
    if width.inside(place.node, event.node):
        signed = isinstance(event.to, Int) and event.to.signed
        return width.cast_products(event.fn, event.node, "long long" if signed else "size_t")
    from cudalint.rules.cl108_stride import widen_at

    return widen_at(place, large=True)


def _widened(event: Conversion, place: Operation) -> Iterator[support.Place]:
    """Where the value is widened, if that is elsewhere."""
    if not (event.fn is place.fn and width.inside(place.node, event.node)):
        yield event.fn.file, event.node.start, event.node.end, "widened here, too late"


class _Given(NamedTuple):
    """What a launch passes for the parameters of a product (``values``), and the host's sizes that it is made of."""

    values: dict[Term, int]
    sizes: dict[Term, int]


def _given(launch: Launch | None, product: Term, block: Triple) -> _Given:
    """The parameters that a product has for factors, about a block's size each: the next value that the launch's own
    arithmetic and checks let them have."""
    values: dict[Term, int] = {}
    sizes: dict[Term, int] = {}
    for leaf in sorted((x for x in t.leaves(product) if x.data.kind == "param"), key=lambda x: x.key):
        values[leaf] = w.assumed(leaf) or block[0]
        passed = launch.at_launch(leaf) if launch is not None else leaf
        if launch is None or passed is leaf or w.assumed(leaf):
            continue
        reach = Reach(launch, launch.config)
        for top in (block[0] - 1, 0):
            found = width.passing(passed, top, launch, reach, search.is_size)
            value = width.value(passed, found[0]) if found is not None else t.constant(t.poly(passed))
            if value is not None and value > top:
                values[leaf] = value
                sizes.update(found[0] if found is not None else {})
                break
    return _Given(values, sizes)


def _grid_for(product: Term, axes: set[str], block: Triple, given: _Given, over: int) -> Triple | None:
    """The fewest blocks along x (all axes that take part, where x does not) at which a product is ``over``."""

    def shaped(count: int) -> Triple:
        if "x" in axes:
            return count, 1, 1
        return 1, count if "y" in axes else 1, count if "z" in axes else 1

    def enough(count: int) -> bool:
        found = width.value(product, {**given.values, **width.grid_env(shaped(count), block)}, exact=False)
        return found is not None and found >= over

    least = width.smallest(1, (1 << 31) - 1 if "x" in axes else 65535, enough)
    return None if least is None else shaped(least)


def _first_thread(
    index: Term, axes: set[str], block: Triple, given: _Given, over: int
) -> tuple[Triple, tuple[Triple, Triple], int, int] | None:
    """The grid and the first thread (block, thread) whose index is ``over``, with the index in 32 bits and as meant."""
    rest = _beside([index], given)
    grids = (1, 1, 1)

    def at(count: int, thread: int) -> dict[Term, int]:
        found = {**rest, **width.grid_env(grids, block)}
        for axis in _AXES:
            if axis in axes and ("x" not in axes or axis == "x"):
                found[BID[axis]] = count
                found[GDIM[axis]] = count + 1
        found[TID["x"]] = thread
        return found

    sums = list(_sums(index))

    def enough(count: int, thread: int) -> bool:
        env = at(count, thread)
        return any((width.value(x, env, exact=False) or 0) >= over for x in sums)

    last = block[0] - 1
    top = (1 << 31) - 2 if "x" in axes else 65534
    count = width.smallest(0, top, lambda c: enough(c, last))
    if count is None:
        return None
    thread = width.smallest(0, last, lambda x: enough(count, x))
    if thread is None:
        return None
    env = at(count, thread)
    wrapped, meant = width.value(index, env), width.value(index, env, exact=False)
    if wrapped is None or meant is None or wrapped == meant:
        return None
    grid = (env[GDIM["x"]], env[GDIM["y"]], env[GDIM["z"]])
    return grid, ((env.get(BID["x"], 0), env.get(BID["y"], 0), env.get(BID["z"], 0)), (thread, 0, 0)), wrapped, meant


def _beside(terms: Iterable[Term], given: _Given) -> dict[Term, int]:
    """Values of what terms are made of beside a grid: the first thread, the first pass, no data."""
    result: dict[Term, int] = {}
    for leaf in search.leaves_of(terms):
        kind = leaf.data.kind
        if kind in ("tid", "bid", "loop", "count", "load", "call", "phi", "exit", "unknown"):
            result[leaf] = 0
        elif kind == "param":
            result[leaf] = given.values.get(leaf) or w.assumed(leaf) or 0
    return result


def _sums(index: Term) -> Iterator[Term]:
    """The sums and products that a 32-bit index passes through: each of them can wrap."""
    stack = [index]
    while stack:
        item = stack.pop()
        if item.op in ("add", "mul", "shl"):
            yield item
        if item.op in ("add", "sub", "mul", "shl", "cast", "div", "shr", "select"):
            stack.extend(x for x in item.args if isinstance(x.type, Int) and x.type.bits == 32)


def _sizes(
    kernel: Kernel, launch: Launch | None, grid: Triple, block: Triple, thread: Mapping[Term, int],
    bounds: list[Bound], axes: set[str], given: _Given,
) -> tuple[dict[str, int], Triple] | None:  # fmt: skip
    """The sizes by name that start such a grid, with the grid that the launch has there; None where it cannot.

    Where no launch says how its grid comes about, the size is what ``thread`` of the grid is tested against.
    """
    if launch is not None and launch.grid is not None:
        main = launch.grid[grid.index(max(grid))]
        if main.op != "const":
            env = width.sizes_for(launch, grid, kernel.config, given.sizes)
            if env is None:
                return None
            if any(x.data.kind != "device" for x in env):
                shown = width.decisive(env, [*launch.grid, *(x for x in given.sizes if x in env)])
                x, y, z = (width.value(blocks, env) or least for blocks, least in zip(launch.grid, grid))
                return width.named(shown), (x, y, z)
    for bound in bounds:
        leaf = t.bare(bound.limit)
        if leaf.op == "atom" and any(BID[a] in bound.ids for a in axes):
            tested = support.over_passes(bound.value)
            last = width.value(
                tested, {**_beside([tested], given), **width.grid_env(grid, block), **thread}, exact=False
            )
            size = last + 1 if last is not None else 0
            if 0 < size <= min(leaf.data.hi, kernel.config.max_elements or size):
                return {leaf.data.name: size}, grid
    return {}, grid


# --- CL103 --------------------------------------------------------------------------------------


def _narrow(kernel: Kernel, bounds: list[Bound]) -> Iterator[tuple[Draft, int]]:
    """32-bit indices made of block and thread ids that are tested against a 64-bit bound."""
    for bound in bounds:
        index, limit = bound.value, t.bare(bound.limit)
        if not (isinstance(index.type, Int) and index.type.bits == 32):
            continue
        if not (isinstance(limit.type, Int) and limit.type.bits == 64 and limit.op != "const"):
            continue
        induction = _induction(index)
        start = induction.init if induction is not None and induction.init is not None else index
        axes = shapes.axes(shapes.without(t.poly(start), ()))
        if not any(a.block is not None or a.scale for a in axes.values()):
            continue
        product = next((x for x in width.products(t.bare(start)) if _scales_block(x)), None)
        if product is None:
            continue
        place = width.origin(kernel.flow, product, bound.event)
        if place is None:
            continue
        launches: list[Launch | None] = [*kernel.launches] or [None]
        for launch in launches:
            draft = _narrow_at(kernel, launch, bound, limit, induction, place)
            if draft is not None:
                yield draft, id(place.node)
                break


def _scales_block(product: Term) -> bool:
    scaled = [m for m, c in t.poly(product).items() if len(m) > 1 or abs(c) > 1]
    return any(BID[a] in m for m in scaled for a in _AXES)


def _induction(index: Term) -> Induction | None:
    """The loop variable that an index is, up to what is added to it."""
    for item in t.atoms_of(t.poly(index)):
        if item.op == "atom" and item.data.kind == "loop" and ids_of([item]):
            found: Induction = item.data.data
            return found
    return None


def _narrow_at(
    kernel: Kernel, launch: Launch | None, bound: Bound, limit: Term, induction: Induction | None, place: Operation
) -> Draft | None:
    index = bound.value
    assert isinstance(index.type, Int)
    reach = Reach(launch, kernel.config)
    if reach.high(limit) <= index.type.hi:
        return None
    over = index.type.hi + 1
    text = support.text(bound.event.fn, bound.event.node)
    name = "int" if index.type is I32 else str(index.type)
    if induction is not None:
        if induction.step is None:
            return None
        found = overrun(kernel, launch, induction, bound.event.term, limit)
        if found is None:
            return None
        sizes, grid, block, values, consequence = found
        what = f"the loop's index has 32 bits (`{name}`) and is tested against a 64-bit bound (`{text}`)"
        message = f"{what}: {consequence}"
        witness = Witness(sizes, grid, block, None, values)
    else:
        if reach.index(t.poly(index)) < over:
            return None
        block = _block(kernel, launch)
        axes = {a for a in _AXES if BID[a] in bound.ids}
        given = _given(launch, index, block)
        case = _first_thread(index, axes, block, given, over)
        if case is None:
            return None
        grid, thread, wrapped, meant = case
        started = _sizes(kernel, launch, grid, block, support.coordinates(*thread), [bound], axes, given)
        if started is None:
            return None
        sizes, grid = started
        if not _passes(bound, wrapped):
            consequence = f"fails the test, and element {digits(meant)} is left out"
        elif wrapped < 0:
            consequence = f"passes the test and touches element {digits(wrapped)}"
        else:
            consequence = f"gets element {digits(wrapped)} again, and element {digits(meant)} is left out"
        message = (
            f"this index has 32 bits (`{name}`) and is tested against a 64-bit bound (`{text}`): the thread of element "
            f"{digits(meant)} {consequence}"
        )
        witness = Witness(sizes, grid, block, thread, {"index in 32 bits": wrapped, "index meant": meant})
    return Draft(
        "CL103", place.fn, place.fn.file, place.node.start, place.node.end, message,
        "make the index as wide as its bound and cast its product: "
        "`size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x`",
        witness,
        ((bound.event.fn.file, bound.event.node.start, bound.event.node.end, "tested here"), *support.calls(place),
         *support.launched_at(kernel)),
        fix=_wide_index(bound, induction, place),
    )  # fmt: skip


def _wide_index(bound: Bound, induction: Induction | None, place: Operation) -> FixDraft | None:
    from cudalint.rules.cl108_stride import widen, widen_at
    from cudalint.rules.widening import is_narrow

    if induction is not None:
        return widen(bound.event.fn, induction.var, large=True)
    node, tested = bound.event.node, None
    if isinstance(node, ir.Binary) and bound.event.fn is place.fn:
        side = node.left if bound.value is bound.event.raw[0] else node.right
        while isinstance(side, ir.Cast):
            side = side.operand
        if isinstance(side, ir.Ref) and side.var.kind == "local" and is_narrow(side.var.type):
            tested = side.var
    return widen_at(place, large=True, tested=tested)


def _passes(bound: Bound, wrapped: int) -> bool:
    """Whether the wrapped index passes the test as the machine computes it, with the bound beyond the index that was
    meant: so does all that is not negative, and what is negative where the two are compared as signed."""
    compared = bound.event.left.type
    return wrapped >= 0 or (isinstance(compared, Int) and compared.signed)


def experiment_cl101(bench: Bench) -> Plan:
    """The first and last blocks of a launch of 2^32 threads: whether a product of dimensions wraps."""
    from cudalint.confirm.experiment import Plan, oracle

    of_blocks = bench.products("bid")  # CL102
    places = bench.own([x for x in bench.products("bdim", "gdim") if x not in of_blocks])
    trials = bench.sparse(bench.threads() + 1, (1 << 32) + 1)
    return Plan(trials, lambda run: oracle.wraps(run, places), watch=frozenset())


def experiment_cl102(bench: Bench) -> Plan:
    """The same for a product that a block's number takes part in: the first thread past 2^32. That elements have
    several threads is its doing where no product of dimensions wraps."""
    from cudalint.confirm.experiment import Plan, oracle

    places = bench.products("bid")
    of_dimensions = [x for x in bench.products("bdim", "gdim") if x not in places]  # CL101
    trials = bench.sparse(bench.threads() + 1, (1 << 32) + 1)
    meant = bench.witness.values.get("index meant") if bench.witness is not None else None
    kinds: tuple[str, ...] = ("signed", "unsigned")
    if isinstance(meant, int):
        # An int product in an unsigned sum is still right when it has passed 2^31; an unsigned one in an int is not.
        kinds = ("unsigned",) if meant > U32.hi else (*kinds, "convert")

    # What every block leaves in one place hangs on no product.
    stores = (a for a in bench.kernel.flow.accesses if a.mode != "r" and a.scalar is not None)
    names = {a.obj.name for a in stores if not ids_of(t.atoms_of(a.scalar or {})).isdisjoint(BID.values())}

    def twice(run: Run) -> Fault | None:
        if not oracle.large(run, 1 << 31) or (of_dimensions and oracle.wraps(run, of_dimensions)):
            return None
        return oracle.written_twice(run, names)

    return Plan(trials, oracle.first_of(lambda run: oracle.wraps(run, places, kinds), twice))


def experiment_cl103(bench: Bench) -> Plan:
    """The last blocks at 2^31 + 1 and 2^32 + 1 elements: an index that cannot name them wraps."""
    from cudalint.confirm.experiment import Plan, oracle

    trials = bench.sparse(bench.threads() + 1, (1 << 31) + 1, (1 << 32) + 1)
    kinds = ("signed", "unsigned", "convert")
    of_sizes = [
        (place.fn.file, place.node.start, place.node.end)
        for place in bench.kernel.flow.operations
        if not ids_of([place.term])
    ]

    def judge(run: Run) -> Fault | None:
        before = oracle.outside(run, which=bench.has_wrapped)
        return before or oracle.wraps(run, kinds=kinds, but=of_sizes)

    return Plan(trials, judge, watch=frozenset())
