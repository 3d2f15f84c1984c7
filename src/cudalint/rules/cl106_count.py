"""CL106 truncated-count: a 64-bit count that loses its upper half on its way into a launch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudalint.facts import search
from cudalint.facts import terms as t
from cudalint.facts import witness as w
from cudalint.facts.assigned import children
from cudalint.facts.ids import GDIM
from cudalint.facts.kernels import ids_of
from cudalint.facts.model import GRID_X_MAX, GRID_YZ_MAX
from cudalint.facts.reach import Reach
from cudalint.facts.roots import concerning
from cudalint.findings import Witness, digits
from cudalint.ir import nodes as ir
from cudalint.ir.types import U32, Int
from cudalint.rules import support, width
from cudalint.rules.draft import Draft, FixDraft

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cudalint.confirm.experiment import Bench, Plan
    from cudalint.confirm.oracle import Fault, Run
    from cudalint.facts.events import Conversion, Event
    from cudalint.facts.model import Kernel, Launch
    from cudalint.facts.terms import Term
    from cudalint.ir.nodes import Function, Node

CODES = ("CL106",)

_LAST = 1 << 62
_EDGE = 1 << 12
"""Constants up to here may be what a shortened count is held against."""


def check_count(launch: Launch) -> Iterator[Draft]:
    """Arguments, fields of arguments, and what sizes the grid."""
    reported: set[int] = set()
    for draft, node in (*_arguments(launch), *_grid(launch)):
        if node not in reported:
            reported.add(node)
            yield draft


def _arguments(launch: Launch) -> Iterator[tuple[Draft, int]]:
    """Counts narrowed into the kernel's size parameters, or into fields of them."""
    kernel = launch.kernel
    if kernel is None or launch.event.args is None:
        return
    sizes: dict[Term, bool] | None = None
    reach: Reach | None = None
    for formal, actual in launch.mapping.items():
        if formal.data.kind != "param" or not (isinstance(formal.type, Int) and formal.type.bits == 32):
            continue
        given = t.convert(actual, formal.type)
        for count, to in width.narrowed(given):
            if reach is None:
                reach = Reach(None, launch.config, launch.conditions)
            if reach.high(count) <= to.hi or width.is_quotient(count):
                continue
            if sizes is None:
                sizes = _size_parameters(kernel)
            if formal not in sizes:
                continue
            place = _place(launch, count, to, actual, _passed(launch, formal))
            if place is None:
                continue
            at, node = place
            role = f"the {to} that" if sizes[formal] else f"an {to} in what"
            what = f"`{formal.data.name}` of {kernel.decl.name} is {role} its index is tested against"
            draft = _draft(launch, reach, count, to.hi, at, node, what, to)
            if draft is not None:
                yield draft._replace(fix=_wide_parameter(launch, formal, count, at.fn, node)), id(node)


def _wide_parameter(launch: Launch, formal: Term, count: Term, fn: Function, node: Node) -> FixDraft | None:
    """64 bits for the kernel's parameter and the index it bounds; for what is cut at the launch itself."""
    from cudalint.rules.widening import Cannot, Widening, spelling, widened

    kernel, event = launch.kernel, launch.event
    if kernel is None or fn is not event.fn or not width.inside(node, event.node):
        return None
    decl = kernel.decl
    var = next((x for x, value in kernel.flow.params.items() if value is formal), None)
    if var is None or decl.file is not event.fn.file or kernel.function.file is not decl.file:
        return None
    if len(decl.file.declarations.functions_by_name.get(decl.name, ())) != 1:
        return None  # a prototype, or an overload
    position = kernel.function.params.index(var)
    passed = event.node.args[position] if event.node.args and position < len(event.node.args) else None
    cut = Widening(fn)
    try:
        while isinstance(passed, ir.Cast) and isinstance(passed.type, Int) and passed.type.bits == 32:
            cut.uncut(passed, spelling(count.type))
            passed = passed.operand
    except Cannot:
        return None
    edits = widened(kernel.function, [var], parameters=True, quotients=True)
    if edits is None or passed is None or passed.type is not count.type:
        return None
    edits = (*edits, *cut.edits())
    return FixDraft(False, f"make `{var.name}` of {decl.name} 64 bits wide, and the index that it bounds", edits)


def _size_parameters(kernel: Kernel) -> dict[Term, bool]:
    """The kernel's parameters that bound an index made of launch ids; whether one is all that the index is tested
    against, where others (``i < rows * cols``) are a part of it.

    One that a mere counter runs to may be anything: a number of axes, of taps.
    """
    found: dict[Term, bool] = {}
    for event in kernel.flow.comparisons:
        for side, other in ((event.left, event.right), (event.right, event.left)):
            if ids_of([other]):
                for leaf in t.leaves(side):
                    found[leaf] = found.get(leaf, False) or t.bare(side) is leaf
    return found


def _grid(launch: Launch) -> Iterator[tuple[Draft, int]]:
    """Counts narrowed before the division that sizes the grid; on x, a count that is the grid itself."""
    if launch.grid is None:
        return
    reach: Reach | None = None
    for number, blocks in enumerate(launch.grid):
        if blocks.op == "const":
            continue
        if reach is None:
            reach = Reach(None, launch.config, launch.conditions)
        for dividend, role in _dividends(blocks):
            for count, to in width.narrowed(dividend):
                if reach.high(count) > to.hi and not width.is_quotient(count):
                    place = _place(launch, count, to, None)
                    if place is not None:
                        at, node = place
                        draft = _draft(launch, reach, count, to.hi, at, node, role, to, number)
                        if draft is not None:
                            yield draft, id(node)
        if number == 0:
            yield from _whole_grid(launch, reach, blocks)


def _dividends(blocks: Term) -> Iterator[tuple[Term, str]]:
    """What the divisions in a dimension of the grid divide, and what that is: what it is divided by is a block's."""
    stack, seen = [(blocks, "it sizes the grid")], set()
    while stack:
        item, role = stack.pop()
        if item in seen:
            continue
        seen.add(item)
        if item.op in ("div", "shr"):
            yield item.args[0], role
            stack.append((item.args[1], "the size of the block is made of it"))
            stack.append((item.args[0], role))
        else:
            stack.extend((x, role) for x in (item.args[1:] if item.op == "select" else item.args))


def _whole_grid(launch: Launch, reach: Reach, blocks: Term) -> Iterator[tuple[Draft, int]]:
    if launch.kernel is not None and _comes_round(launch.kernel):
        return
    for count, to in width.narrowed(t.convert(blocks, U32)):
        if any(x.op in ("div", "shr", "call") for x in _parts(count)) or reach.high(count) <= GRID_X_MAX:
            continue
        if all(x.data.kind == "call" and isinstance(x.type, Int) and x.type.bits <= 32 for x in t.leaves(count)):
            continue  # an int of a function nobody sees may as well be the device's
        place = _place(launch, count, to, None)
        if place is not None:
            at, node = place
            whole = t.bare(blocks)
            what = "it is the grid itself, one block an item"
            if whole is not t.bare(count):
                what = "it is a factor of the grid" if whole.op == "mul" else "it sizes the grid"
            draft = _draft(launch, reach, count, GRID_X_MAX, at, node, what, to, 0)
            if draft is not None:
                yield draft, id(node)


def _comes_round(kernel: Kernel) -> bool:
    """Whether the kernel's blocks go on by the grid along x: of how many there are, none stands for an item."""
    steps = (info.step for loop in kernel.flow.loops for info in loop.inductions.values())
    return any(step is not None and GDIM["x"] in t.leaves(step) for step in steps)


def _parts(term: Term) -> Iterator[Term]:
    stack = [term]
    while stack:
        item = stack.pop()
        yield item
        stack.extend(item.args)


def _passed(launch: Launch, formal: Term) -> ir.Var | None:
    """The variable of the host that a launch passes as it is."""
    values = launch.kernel.flow.params.values() if launch.kernel is not None else ()
    node = next((x for value, x in zip(values, launch.event.node.args or ()) if value is formal), None)
    while isinstance(node, ir.Cast):
        node = node.operand
    return node.var if isinstance(node, ir.Ref) else None


def _written(fn: Function, var: ir.Var) -> Iterator[Node]:
    """What a function writes to a variable."""
    stack: list[object] = [fn.body]
    while stack:
        item = stack.pop()
        stack.extend(children(item))
        if isinstance(item, ir.Assign) and isinstance(item.target, ir.Ref) and item.target.var is var:
            yield item.value
        elif isinstance(item, ir.VarDecl) and item.var is var and item.init is not None:
            yield item.init


def _place(
    launch: Launch, count: Term, to: Int, actual: Term | None, into: ir.Var | None = None
) -> tuple[Event, Node] | None:
    """Where the count loses its upper half: the conversion (on the way ``into`` a variable, if there are several), or
    the argument where the call itself converts."""
    event = launch.event
    if actual is not None and actual is count and event.args is not None and event.node.args is not None:
        for value, node in zip(event.args, event.node.args, strict=False):
            if value is actual and node is not None:
                return event, node
    # What a helper called before does with the count is its own business, unless it is what gave it.
    last: Conversion | None = None
    beside = True
    found = [x for x in launch.flow.conversions if x.term is count and x.to is to and x.seq <= event.seq]
    if into is not None and len(found) > 1:
        found = [x for x in found if any(width.inside(x.node, v) for v in _written(x.fn, into))] or found
    for conversion in found:
        away = conversion.stack != event.stack[: len(conversion.stack)]
        if beside or not away:
            last, beside = conversion, away
    return None if last is None else (last, last.node)


def _draft(
    launch: Launch, reach: Reach, count: Term, top: int, place: Event, node: Node, what: str, to: Int,
    axis: int | None = None,
) -> Draft | None:  # fmt: skip
    """The finding at the smallest count that is cut and launched all the same; ``axis`` is that of the grid which the
    count goes into."""
    if any(x.data.kind in ("loop", "exit", "phi", "unknown") for x in t.leaves(count)):
        # Followed round a loop, or the distance to where an algorithm ends: what bounds it is not known here.
        return None
    conditions = width.on_the_way(launch, place)
    if width.contradictory(conditions):
        return None  # it goes into another launch
    if _is_tied(count, conditions):
        return None
    # Dispatches write one launch many times, under conditions that do not concern the count.
    sizes = search.leaves_of([count, *(launch.grid or ()), *(launch.block or ())])
    spots = [fn.file.span(x.start, x.end).place for fn, x in ((place.fn, node), (launch.event.fn, launch.event.node))]
    asked = "cut", count, top, to, what, axis, *spots, launch.grid, launch.block, concerning(conditions, sizes)
    known = launch.flow.answers
    if asked not in known:
        known[asked] = _searched(launch, conditions, reach, count, top, place, node, what, to, axis)
    return known[asked]  # type: ignore[return-value]  # put there above


def _is_tied(count: Term, conditions: Iterable[Term]) -> bool:
    """Whether the host asks that what is left of a count is the whole of another size, as large as that may be: where
    the two agree nothing is cut, and where they do not the kernel comes to as much as the other has."""
    return any(
        count in (x for x, _ in width.narrowed(one))
        and not any(width.narrowed(other))
        and isinstance(other.type, Int)
        and other.type.bits == 64
        and any(search.is_size(x) for x in t.leaves(other) - t.leaves(count))
        for condition in conditions
        if condition.op == "eq"
        for one, other in (condition.args, condition.args[::-1])
    )


def _searched(
    launch: Launch, conditions: list[Term], reach: Reach, count: Term, top: int, place: Event, node: Node, what: str,
    to: Int, axis: int | None,
) -> Draft | None:  # fmt: skip
    config, fn = launch.config, place.fn
    leaves = t.leaves(count)
    fixed = width.defaults(launch, leaves - {t.bare(count)}, config)
    free = sorted((x for x in leaves if x not in fixed), key=lambda x: (-reach.high(x), x.key))
    # What a function nobody sees makes of its arguments (the bits of a type) is not what grows beside sizes.
    free = [x for x in free if search.is_size(x)] or free
    asked = [*w.relevant(conditions, leaves), *(launch.grid or ())]
    held = (int(c) for c in w.constants(asked) if 0 < c <= _EDGE)
    beyond = sorted({1, *(n for c in held for n in (c, c + 1))})
    # What is checked in a way that is not followed is most likely checked to be there.
    checked = w.undecided(conditions, leaves)
    for main, others in width.tries(free):
        env = {**width.others_at(launch, leaves, others, config), **fixed}

        def first(past: int, main: Term = main, env: dict[Term, int] = env) -> int | None:
            """The smallest size that makes the count larger than that."""

            def over(size: int) -> bool:
                found = width.value(count, {**env, main: size}, exact=False)
                return found is not None and found > past

            return width.smallest(max(0, reach.interval(main)[0]), min(reach.high(main), _LAST), over)

        least = first(top)
        if least is None:
            continue
        # A check of the shortened count turns away what comes out negative, or below what it is held against; a grid
        # made of it, what comes out below what it is divided by.
        tries = [n for n in (least, *((1 << 32) + c for c in beyond)) if least <= n <= reach.high(main)]
        if checked and not to.wrap(width.value(count, {**env, main: least}) or 0):
            tries = [*filter(None, [first(1 << 32)]), *tries]
        env[main] = next(
            (
                n for n in tries
                if w.completed({**env, main: n}, conditions) is not None
                and not w.refuted(conditions, {**env, main: n})
                and _launched(launch, count, {**env, main: n}, axis)
            ),
            0,
        )  # fmt: skip
        meant = width.value(count, env)
        if meant is None or not top < meant <= _LAST:
            continue
        kept = to.wrap(meant)
        if axis is not None and launch.grid is not None and t.bare(launch.grid[axis]).op == "mul":
            grid = width.with_grid(launch, env)
            env.update((x, grid[x]) for x in t.leaves(launch.grid[axis]))  # the other factor
        # The variable that a count is named after may be the narrow one, or another that is given the same.
        renamed = count.op == "atom" and count.data.name != count.data.spelled
        sizes = width.named(env, {count: support.text(fn, node)} if renamed else {})
        outcome = f"becomes {digits(kept)}" if kept != meant else "is more blocks than a grid has on x (2^31 - 1)"
        event = launch.event
        related = (
            ()
            if fn is event.fn and width.inside(node, event.node)
            else ((event.fn.file, event.node.start, event.node.end, "the launch it goes into"),)
        )
        return Draft(
            "CL106", fn, fn.file, node.start, node.end,
            f"`{support.text(fn, node)}` is a 64-bit count cut to 32 bits, and {what}: {digits(meant)} {outcome}",
            "make the parameter (and the index it bounds) 64 bits wide, or check the size before the launch",
            Witness(sizes, None, None, None, {"count": meant, "count in 32 bits": kept}),
            related,
        )  # fmt: skip
    return None


def _launched(launch: Launch, count: Term, env: dict[Term, int], axis: int | None) -> bool:
    """Whether the dimensions that hang on the count are such as a grid can have. Those that the finding is about, on
    ``axis`` and on x where that is made of the cut count, need not be; the former has to show the cut."""
    whole, leaves = width.with_grid(launch, env), t.leaves(count)
    for number, blocks in enumerate(launch.grid or ()):
        inner = t.leaves(blocks)
        made = width.value(t.convert(blocks, U32), whole)
        if made is None or leaves.isdisjoint(inner):
            continue
        if made == 0 and any(x not in env and whole[x] == 1 for x in inner):
            continue  # that may be the doing of a size which is small here
        legal = 0 < made <= (GRID_YZ_MAX if number else GRID_X_MAX)
        if number == axis:
            if legal and made == width.value(blocks, whole, exact=False):
                return False
        elif not legal and (number or not any(x.op == "cast" and x.args[0] is count for x in _parts(blocks))):
            return False
    return True


def experiment_cl106(bench: Bench) -> Plan:
    """What the host passes at 2^31 and 2^32 elements, and the launch it makes of it."""
    from cudalint.confirm.experiment import Plan, oracle

    trials = bench.sparse(bench.threads() + 1, 1 << 31, 1 << 32, of=bench.named)
    sizes = bench.witness.sizes if bench.witness is not None else {}
    if sizes and bench.named != max(sizes, key=lambda x: sizes[x]):
        # The size that is spoken of is none that is varied: another one tells of another count.
        trials = [x for x in trials if dict(x.sizes) in bench.predicted()]

    def judge(run: Run) -> Fault | None:
        return oracle.refused(run) or oracle.coverage(run) if oracle.large(run, 1 << 31) else None

    return Plan(trials, judge, refusal=True, host=bench.narrowed)
