"""CL104 int-block-count and CL109 float-block-count: block counts that come out too small, or negative."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from cudalint.facts import search
from cudalint.facts import terms as t
from cudalint.facts import witness as w
from cudalint.facts.events import conjuncts
from cudalint.facts.ids import BID, GDIM
from cudalint.facts.kernels import ids_of
from cudalint.facts.model import GRID_YZ_MAX
from cudalint.facts.reach import Reach
from cudalint.facts.roots import concerning
from cudalint.findings import Witness, digits
from cudalint.ir import nodes as ir
from cudalint.ir.types import F32, F64, I32, U32, Float, Int
from cudalint.rules import launches, support, width
from cudalint.rules.draft import Draft, EditDraft, FixDraft

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from cudalint.confirm.experiment import Bench, Plan
    from cudalint.confirm.harness import Values
    from cudalint.confirm.oracle import Fault, Run
    from cudalint.facts.events import Conversion, Event, Flow, LaunchEvent, Operation
    from cudalint.facts.model import Kernel, Launch
    from cudalint.facts.terms import Term

CODES = ("CL104", "CL109")

_LAST = 1 << 62
_EXACT = 1 << 24
_ROUNDINGS = frozenset({"ceil", "floor", "round", "rint", "trunc"})


def parts(roots: Iterable[Term]) -> Iterator[Term]:
    """Every operator that values are made of, the tests of choices left out."""
    stack, seen = list(roots), set()
    while stack:
        item = stack.pop()
        if item in seen:
            continue
        seen.add(item)
        yield item
        stack.extend(item.args[1:] if item.op == "select" else item.args)


# --- CL104 --------------------------------------------------------------------------------------


def check_sum(launch: Launch) -> Iterator[Draft]:
    """A ceiling division of the grid whose sum overflows an int."""
    yield from ceilings(launch, I32)


def ceilings(launch: Launch, type_: Int) -> Iterator[Draft]:
    """Ceiling divisions of the grid in ``type_`` whose sum wraps: CL104 for int, CL105 for unsigned int."""
    if launch.grid is None:
        return
    # What is the number of blocks on one axis may be what another is divided by.
    counts: dict[Term, str] = {}
    for number, axis in enumerate("xyz"):
        for item in _finished(launch.grid[number]):
            counts.setdefault(item, axis)
    reach: Reach | None = None
    told: set[Term] = set()
    for number, axis in enumerate("xyz"):
        for item in parts([launch.grid[number]]):
            if item.op not in ("div", "shr") or item.type is not type_ or item in told:
                continue
            told.add(item)
            if reach is None:
                reach = Reach(None, launch.config, launch.conditions)
            if not _rounds_up(item) or not any(_overflows(x, reach) for x in _sums(item.args[0], type_)):
                continue
            place = width.origin(launch.flow, item, launch.event)
            if place is not None and (known := _told(launch, place, type_)) not in launch.flow.told:
                asked = "sum", item, place, number, *_asked(launch, item)
                if asked in launch.flow.answers:
                    continue  # another launch of a dispatch, in which the sum does not overflow either
                what = (
                    f"the count that sizes the grid on {counts[item]}"
                    if item in counts
                    else f"a count that the grid on {axis} is computed from"
                )
                draft = _sum_draft(launch, what, item, place, reach, number)
                if draft is None:
                    launch.flow.answers[asked] = None
                else:
                    launch.flow.told.add(known)
                    yield draft


def _asked(launch: Launch, division: Term) -> tuple[object, ...]:
    """All of a launch that it hangs on whether a division of its grid goes wrong."""
    sizes = search.leaves_of([division, *(launch.grid or ()), *(launch.block or ())])
    strides = launch.kernel is not None and tuple(map(launch.kernel.layout.strides, "xyz"))
    return launch.grid, launch.block, strides, concerning(launch.conditions, sizes)


def _told(launch: Launch, place: Operation, type_: Int) -> object:
    """What a finding is known by: a launch that a dispatch writes a hundred times has it once."""
    around = (*_launch_place(launch, place), *support.calls(place))
    return type_, place.fn.file.path, place.node.start, place.node.end, *(x[1:] for x in around)


def _finished(blocks: Term) -> Iterator[Term]:
    """What a grid dimension is, but for conversions, limits and choices."""
    stack = [blocks]
    while stack:
        item = stack.pop()
        yield item
        if item.op in ("cast", "min", "max"):
            stack.extend(item.args)
        elif item.op == "select":
            stack.extend(item.args[1:])


def _rounds_up(division: Term) -> bool:
    """Whether a dividend is a runtime size with about the divisor added to it, as in ``n + t - 1``."""
    dividend, divisor = t.poly(division.args[0]), t.poly(division.args[1])
    if division.args[1].op == "const":
        if dividend.get((), 0) <= 0:
            return False
        rest = {m: c for m, c in dividend.items() if m}
    else:
        if any(dividend.get(m, 0) < c for m, c in divisor.items() if m):
            return False
        rest = {m: c for m, c in t.add(dividend, divisor, -1).items() if m}
    return bool(rest)


def _sums(term: Term, type_: Int) -> Iterator[Term]:
    """The sums that a dividend is made of."""
    stack = [term]
    while stack:
        item = stack.pop()
        if item.type is type_ and item.op in ("add", "sub"):
            if item.op == "add":
                yield item
            stack.extend(item.args)


def _overflows(total: Term, reach: Reach) -> bool:
    assert isinstance(total.type, Int)
    return reach.high(total.args[0]) + reach.high(total.args[1]) > total.type.hi


def _sum_draft(
    launch: Launch, what: str, division: Term, place: Operation, reach: Reach, axis: int
) -> Draft | None:  # fmt: skip
    config = launch.config
    dividend = division.args[0]
    leaves = t.leaves(division)
    # A size that the dividend has beside the divisor is varied: n of `(n + b - 1) / b` where b is `min(n, 256)`.
    by = division.args[1]
    divisors = t.leaves(by) - (set(t.atoms_of(t.poly(dividend))) - set(t.atoms_of(t.poly(by))))
    block = {x for item in launch.block or () for x in t.leaves(item)}
    choosing = {x for part in parts([by]) if part.op == "select" for x in t.leaves(part.args[0])}
    fixed = {**dict.fromkeys(divisors & block - choosing, config.block_size), **width.defaults(launch, leaves, config)}
    # What divides and is no size of the block may be anything: with 1, nothing is added.
    open_ = divisors - fixed.keys()
    edges = {int(c) + d for c in w.constants([by] if open_ & choosing else []) for d in (-1, 0, 1)}
    divide = (2, *([config.block_size, *sorted(v for v in edges if 0 < v <= _EXACT)] if open_ else []))
    free = sorted(t.leaves(dividend) - fixed.keys() - open_, key=lambda x: (-reach.high(x), x.key))
    conditions = sorted(width.on_the_way(launch, place), key=lambda c: c.depth)  # what is quickly told first
    tests = w.Tests(conditions)
    settled = [c for c in conditions if t.leaves(c) <= {*leaves, *fixed, *open_}]
    before = {main: w.Tests(c for c in settled if main not in t.leaves(c)) for main in free}
    multiples = width.multiples(launch)
    cuts = _cuts(dividend)
    # A size that is divided before it comes into the product needs others that are more than a few.
    more = [] if any(x.data.kind == "sizeof" or search.is_template(x) for x in leaves) else free
    tries = (*width.tries(free), *((x, config.block_size) for x in more))
    usual = {n: width.others_at(launch, leaves, n, config) for n in {others for _, others in tries}}
    cases = [(main, others, number, usual[others]) for number in divide for main, others in tries]
    # A product is not to wrap before the sum does, if that can be: its other factors are 1, even if the block is made
    # of them.
    wrapped: Draft | None = None
    products = [x for x in parts([dividend]) if x.op == "mul"]
    cases += [(main, 1, number, dict.fromkeys(leaves, 1)) for number in divide for main in free if products]
    for main, others, number, beside in cases:
        env = {**beside, **dict.fromkeys(open_, number), **fixed}
        if not before[main].allow(env):
            continue

        def wrong(n: int, main: Term = main, env: dict[Term, int] = env) -> bool:
            here = {**env, main: n}
            return width.value(division, here) != width.value(division, here, exact=False)

        def cut(n: int, main: Term = main, env: dict[Term, int] = env) -> bool:
            return _is_cut(cuts, {**env, main: n})

        low, high = max(1, reach.interval(main)[0]), min(reach.high(main), _LAST)
        beyond = width.smallest(low, high, cut) if cuts else None  # what is cut there is CL106's
        high = high if beyond is None else beyond - 1
        least = width.smallest(low, high, wrong)
        if least is None:
            continue
        # The host may ask for a multiple of something.
        sizes = sorted({least, *(-(-least // c) * c for c in multiples)})
        tried = ({**env, main: n} for n in sizes if n <= high)
        possible = (x[main] for x in tried if tests.allow(x) and w.completed(x, conditions) is not None)
        env[main] = least = next(possible, -1)
        count, meant = width.value(division, env), width.value(division, env, exact=False)
        if least < 0 or count is None or meant is None or meant < 0:
            continue
        if _refused_before(launch, env) or _limited(launch, axis, env):
            continue
        text = support.text(place.fn, place.node)
        own = {x.data.name for x in leaves}  # a factor of 1 is part of the case
        named = {k: v for k, v in width.named(env).items() if v != others or k in own}
        named = {main.data.called(least): least, **named}
        draft = Draft(
            "CL104" if division.type is I32 else "CL105", place.fn, place.fn.file, place.node.start, place.node.end,
            f"`{text}` adds in {division.type} before it divides: at {launches.told(named)} the sum overflows and "
            f"{what} comes out as {digits(count)} instead of {digits(meant)}",
            "divide first: `n / t + (n % t != 0)`, or compute the count in 64 bits",
            Witness(named, None, None, None, {"count": count, "count meant": meant}),
            (*_launch_place(launch, place), *support.calls(place)),
            fix=_divide_first(place),
        )  # fmt: skip
        if all(width.value(x, env) == width.value(x, env, exact=False) for x in products):
            return draft
        wrapped = wrapped or draft
    return wrapped


def _cuts(dividend: Term) -> list[tuple[Term, Int]]:
    """What is narrowed on the way to a dividend, with the type that it is narrowed to."""
    casts = [(x.args[0], x.args[0].type, x.type) for x in parts([dividend]) if x.op == "cast"]
    return [(x, to) for x, of, to in casts if isinstance(of, Int) and isinstance(to, Int) and of.hi > to.hi]


def _is_cut(cuts: Iterable[tuple[Term, Int]], env: dict[Term, int]) -> bool:
    """Whether something does not fit what it is narrowed to, which is CL106's to say."""
    whole = ((width.value(x, env, exact=False), to) for x, to in cuts)
    return any(x is not None and x > to.hi for x, to in whole)


def _refused_before(launch: Launch, env: Mapping[Term, int]) -> bool:
    """Whether there are more blocks on y or z than a grid takes, as there are long before a sum overflows, and before a
    float is inexact: CL205 says so."""
    whole = width.with_grid(launch, env)
    return any((width.value(rows, whole, exact=False) or 0) > GRID_YZ_MAX for rows in (launch.grid or ())[1:])


def _limited(launch: Launch, axis: int, env: Mapping[Term, int]) -> bool:
    """Whether a limit between a count and the grid makes an overflow harmless: as many blocks come of it as without, or
    enough for a kernel that loops."""
    assert launch.grid is not None
    blocks = launch.grid[axis]
    env = {**width.defaults(launch, t.leaves(blocks), launch.config), **env}
    made, meant = width.value(blocks, env), width.value(blocks, env, exact=False)
    strides = launch.kernel is not None and launch.kernel.layout.strides("xyz"[axis])
    return made is not None and (made == meant or (strides and 0 < made <= GRID_YZ_MAX))


def _launch_place(launch: Launch, place: Event) -> Iterator[support.Place]:
    event = launch.event
    if place.fn is not event.fn or not width.inside(place.node, event.node):
        yield event.fn.file, event.node.start, event.node.end, "the grid of this launch"


def _divide_first(place: Operation) -> FixDraft | None:
    """``(n + t - 1) / t`` as ``n / t + (n % t != 0)``, where n and t can be told and are plain values."""
    node = place.node
    if not (isinstance(node, ir.Binary) and node.op == "/" and _plain(node.right)):
        return None
    terms: list[tuple[int, ir.Expr]] = []
    _addends(node.left, 1, terms)
    divisor = _shown(place, node.right)
    known = _known(node.right)
    sizes = []
    rounding = 0
    divisors = 0
    for sign, item in terms:
        constant = _known(item)
        if constant is not None:
            rounding += sign * constant
        elif sign == 1 and _shown(place, item) == divisor and divisors == 0:
            divisors += 1
        else:
            sizes.append((sign, item))
    added = rounding + divisors * known if known is not None else None
    covers = added == known - 1 if known is not None and divisors == 0 else divisors == 1 and rounding == -1
    if known is not None and divisors == 1:
        covers = rounding == -1
    if not covers or len(sizes) != 1 or sizes[0][0] != 1 or not _plain(sizes[0][1]):
        return None
    if _in_macro(place):
        return None
    return _ceiling(place, _operand(place, sizes[0][1]), _operand(place, node.right))


def _operand(place: Event, node: ir.Expr) -> str:
    """The source of a value as an operand of ``/`` and ``%``."""
    text = _shown(place, node)
    return f"({text})" if isinstance(node, (ir.Binary, ir.Cast)) else text


def _ceiling(place: Event, size: str, divisor: str) -> FixDraft:
    """``size / divisor`` rounded up, in place of the event's expression."""
    file, start, end = place.fn.file, place.node.start, place.node.end
    text = f"{size} / {divisor} + ({size} % {divisor} != 0)"
    before, after = file.text[:start].rstrip(), file.text[end:].lstrip()[:1]
    if not (before.endswith((b"(", b",", b"=", b"{", b"<<<", b"return")) and after in (b")", b",", b";", b"}", b">")):
        text = f"({text})"
    return FixDraft(True, "divide first, then add one for a remainder", (EditDraft(file, start, end, text),))


def _addends(node: ir.Expr, sign: int, into: list[tuple[int, ir.Expr]]) -> None:
    if isinstance(node, ir.Binary) and node.op in ("+", "-") and node.optype in (I32, U32):
        _addends(node.left, sign, into)
        _addends(node.right, sign if node.op == "+" else -sign, into)
    else:
        into.append((sign, node))


def _known(node: ir.Expr) -> int | None:
    return node.value if isinstance(node, ir.Const) and isinstance(node.value, int) else None


def _plain(node: ir.Expr) -> bool:
    """Whether a value may be written twice: variables, members and constants, and arithmetic on them."""
    if isinstance(node, (ir.Ref, ir.Const)):
        return True
    if isinstance(node, ir.Member):
        return _plain(node.base)
    if isinstance(node, ir.Binary):
        return _plain(node.left) and _plain(node.right)
    return isinstance(node, ir.Cast) and _plain(node.operand)


def _in_macro(place: Event) -> bool:
    """Whether an expression lies in a macro's body, where an edit of the use would be wrong."""
    use = place.fn.file.macro_use(place.node.start)
    return use is not None and use == place.fn.file.macro_use(place.node.end - 1)


def _shown(place: Event, node: ir.Expr) -> str:
    file = place.fn.file
    start, end = file.origin(node.start, node.end)
    return file.raw[start:end].decode("utf-8", "replace")


# --- CL109 --------------------------------------------------------------------------------------


def check_float_grid(launch: Launch) -> Iterator[Draft]:
    """A grid dimension that goes through float."""
    if launch.grid is None or not launch.flow.roundings:
        return
    for number, axis in enumerate("xyz"):
        if launch.kernel is not None and _strides(launch.kernel, axis):
            continue  # a block fewer leaves nothing out
        for item in parts([launch.grid[number]]):
            source = _count(item)
            if source is None:
                continue
            place = _rounded(launch.flow, source, launch.event)
            if place is not None:
                draft = _float_draft(launch, item, place, f"blocks on {axis}")
                if draft is not None:
                    yield draft


def _strides(kernel: Kernel, axis: str) -> bool:
    """Whether all that the kernel tests of the blocks on an axis is stepped by the whole grid; where what it touches
    cannot be seen, whether the loops that begin at a block are."""
    tested = [x for x in kernel.layout.coordinates if BID[axis] in x.ids]
    if tested:
        return all(x.strides_grid for x in tested)
    loops = [x for loop in kernel.flow.loops for x in loop.inductions.values()]
    steps = [x.step for x in loops if x.step is not None and x.init is not None and BID[axis] in ids_of([x.init])]
    return bool(steps) and all(GDIM[axis] in m for x in steps for m in t.poly(x) or [()])


def check_float_count(kernel: Kernel) -> Iterator[Draft]:
    """A chunk length or another element count of a kernel that goes through float."""
    if not kernel.flow.roundings:
        return
    bounding: set[Term] | None = None
    for event in kernel.flow.roundings:
        if not isinstance(event.to, Int):
            continue
        item = t.convert(event.term, event.to)
        if _count(item) is None:
            continue
        if any(x.data.kind not in ("param", "var", "bdim", "gdim") for x in t.leaves(item)):
            continue
        if bounding is None:
            flow = kernel.flow
            bounding = set(parts([side for c in flow.comparisons for side in (c.left, c.right)]))
            for loop in flow.loops:
                for info in loop.inductions.values():
                    bounding.update(parts([x for x in (info.init, info.step) if x is not None]))
        if item not in bounding:
            continue
        for launch in kernel.launches:
            draft = _float_draft(launch, launch.at_launch(item), event, "elements in the chunk")
            if draft is not None:
                yield draft
                break


def _count(item: Term) -> Term | None:
    """The float that an integer was made from, where it is a ceiling of a quotient of integers in `float`."""
    if item.op != "cast" or not isinstance(item.type, Int) or not isinstance(item.args[0].type, Float):
        return None
    source = item.args[0]
    single = rounds_up = made_of_integer = False
    for part in parts([source]):
        if part.type is F32:
            single = True
        if part.op == "call":
            if part.data not in _ROUNDINGS:
                return None
            rounds_up = rounds_up or part.data == "ceil"
        elif part.op == "atom":
            if not isinstance(part.type, Int):
                return None
        elif part.op == "cast" and part.type is F32 and isinstance(part.args[0].type, Int):
            made_of_integer = True
            rounds_up = rounds_up or any(x.op == "add" for x in parts(part.args))
        elif part.op == "add":
            rounds_up = True
    return source if single and rounds_up and made_of_integer else None


def _rounded(flow: Flow, source: Term, event: LaunchEvent) -> Conversion | None:
    """The conversion that made an integer of a float for a launch's grid: the one written there, else the nearest
    before the launch, whose arguments may count the same."""
    found = None
    grid = event.node.grid
    for conversion in flow.roundings:
        if conversion.term is source and conversion.seq < event.seq:
            there = conversion.fn is event.fn and width.inside(conversion.node, event.node)
            if there and grid is not None and width.inside(conversion.node, grid):
                return conversion
            if not there or found is None:
                found = conversion
    return found


def _doubled(term: Term, memo: dict[Term, Term]) -> Term:
    """The same computation in double precision."""
    found = memo.get(term)
    if found is None:
        type_ = F64 if term.type is F32 else term.type
        if term.op == "const":
            found = t.const(term.data, type_)
        elif term.op == "atom":
            found = term
        else:
            found = t.make(term.op, type_, *(_doubled(a, memo) for a in term.args), data=term.data)
        memo[term] = found
    return found


def _float_draft(launch: Launch, item: Term, place: Conversion, what: str) -> Draft | None:
    # Where a loop doubles a number from a known one on, the first pass tells of the count as well as any.
    loops = (x for x in t.leaves(item) if x.data.kind == "loop" and x.data.data.step is None)
    begun = t.substitute(
        item, {x: x.data.data.init for x in loops if x.data.data.init is not None and x.data.data.init.op == "const"}
    )
    meant_term = _doubled(begun, {})
    leaves = t.leaves(begun)
    fixed = width.defaults(launch, leaves, launch.config)
    free = sorted((x for x in leaves if x not in fixed), key=lambda x: (-x.data.hi, x.key))
    reach = Reach(None, launch.config, launch.conditions)
    divisors: set[int] = {abs(int(c)) for c in w.constants([begun])} | {int(v) for v in fixed.values()}
    for part in parts([begun]):
        if part.op == "const" and isinstance(part.data, float) and part.data > 0:
            divisors.update({math.ceil(part.data), round(1 / part.data)})
    mains: list[Term | None] = [*free] or [None]
    conditions = width.on_the_way(launch, launch.event if item not in parts(launch.grid or ()) else place)
    for main, others in width.tries(mains):
        env = {**width.others_at(launch, leaves, others, launch.config), **fixed}
        tries = [0] if main is None else _tries(divisors, reach.high(main))
        for n in tries:
            if main is not None:
                env[main] = n
            count, meant = width.value(begun, env), width.value(meant_term, env)
            if count is None or meant is None or count >= meant:
                continue
            if w.completed(env, conditions) is None or _refused_before(launch, env):
                continue
            text = support.text(place.fn, place.node)
            own = {x.data.name for x in leaves}
            sizes = {k: v for k, v in width.named(env).items() if v != others or k in own}
            if main is not None:
                sizes.setdefault(main.data.called(n), n)  # a counter of the host's: no size, and yet the count's
            at = f"at {launches.told(sizes)}" if main is not None else "for the size given here"
            return Draft(
                "CL109", place.fn, place.fn.file, place.node.start, place.node.end,
                f"`{text}` counts in float, which is exact only up to 2^24: {at} it gives {digits(count)} and "
                f"{digits(meant)} are needed, so the last elements are left out",
                "use integer division: `n / t + (n % t != 0)`",
                Witness(sizes, None, None, None, {what: count, "needed": meant}),
                (*_launch_place(launch, place), *support.calls(place)),
                fix=_integer_ceiling(place),
            )  # fmt: skip
    return None


def _integer_ceiling(place: Conversion) -> FixDraft | None:
    """``ceilf(n / 256.0f)`` and ``ceil((float)n / t)`` as an integer ceiling division, for plain n and t."""
    node = place.node
    while isinstance(node, ir.Cast):
        node = node.operand
    if not (isinstance(node, ir.Call) and node.name.rsplit("::", 1)[-1] in ("ceil", "ceilf") and len(node.args) == 1):
        return None
    quotient = node.args[0]
    if not (isinstance(quotient, ir.Binary) and quotient.op == "/") or _in_macro(place):
        return None
    size, divisor = _integer(place, quotient.left), _integer(place, quotient.right)
    return _ceiling(place, size, divisor) if size is not None and divisor is not None else None


def _integer(place: Event, node: ir.Expr) -> str | None:
    """The integer that a floating operand was made from, as source."""
    while isinstance(node, ir.Cast) and isinstance(node.type, Float):
        node = node.operand
    if isinstance(node, ir.Const) and isinstance(node.value, float):
        return str(int(node.value)) if node.value == int(node.value) and node.value > 0 else None
    return _operand(place, node) if isinstance(node.type, Int) and _plain(node) else None


def _tries(divisors: Iterable[int], high: int) -> list[int]:
    """Sizes beyond 2^24 just over a multiple of a divisor, ascending."""
    found = set()
    for base in (_EXACT, _EXACT << 1, _EXACT << 2, _EXACT << 4):
        found.add(base + 1)
        for divisor in divisors:
            if 1 < divisor <= _EXACT:
                first = -(-base // divisor)
                found.update((first + k) * divisor + 1 for k in range(8))
    return sorted(n for n in found if n <= high)


def _counts(launch: Launch, type_: Int) -> Iterator[tuple[str, Term]]:
    """The ceiling divisions in ``type_`` that the grid is made of, each with the first axis that it takes part in."""
    told: set[Term] = set()
    for axis, blocks in zip("xyz", launch.grid or ()):
        for item in parts([blocks]):
            if item.op in ("div", "shr") and item.type is type_ and _rounds_up(item) and item not in told:
                told.add(item)
                yield axis, item


def overflow(bench: Bench, type_: Int) -> Callable[[Values], Fault | None]:
    """Looks at the host's side of a case: whether a count overflows, the one that the witness names if there is one."""
    from cudalint.confirm.experiment import oracle

    found = list(_counts(bench.launch, type_)) if bench.launch is not None else []
    if bench.witness is not None:
        said = tuple(bench.witness.values.get(x) for x in ("count", "count meant"))
        host = bench.harness.assignment(bench.predicted()[0])
        found = [x for x in found if (width.value(x[1], host), width.value(x[1], host, exact=False)) == said] or found

    def judge(host: Values) -> Fault | None:
        for axis, item in found:
            count, meant = width.value(item, host), width.value(item, host, exact=False)
            place = width.origin(bench.launch.flow, item, bench.launch.event) if bench.launch is not None else None
            formed = place is None or all(w.allowed(c, host) for c in conjuncts(place.guard))
            formed = formed and not _is_cut(_cuts(item.args[0]), host)
            formed = formed and not (
                bench.launch is not None
                and (_refused_before(bench.launch, host) or _limited(bench.launch, "xyz".index(axis), host))
            )
            if formed and count is not None and meant is not None and count != meant:
                text = f"a count of the grid on {axis} is {count} in the machine's arithmetic, {meant} was meant"
                return oracle.Fault("wrap", text)
        return None

    return judge


def experiment_cl104(bench: Bench) -> Plan:
    """The host's count at sizes near 2^31. What else a launch may be refused for, or leave out, is not asked."""
    from cudalint.confirm.experiment import Plan

    t_ = bench.threads()
    trials = bench.sparse(t_ + 1, (1 << 31) - t_ + 1, (1 << 31) - 1, of=bench.named)
    return Plan(trials, lambda run: None, watch=frozenset(), unrun=True, host=overflow(bench, I32))


def experiment_cl109(bench: Bench) -> Plan:
    """The first and last blocks from 2^24 + 1 elements on: whether the last element has a thread."""
    from cudalint.confirm.experiment import Plan, oracle

    trials = bench.sparse(bench.threads() + 1, (1 << 24) + 1, (1 << 25) + 3, of=bench.named)
    trials = [trial._replace(loops="all") for trial in trials]

    def last(run: Run) -> Fault | None:
        # What is left out where an index wraps is the index's doing.
        return None if oracle.wraps(run) else oracle.last(run)

    judge = oracle.first_of(oracle.coverage, last, bench.fewer)
    return Plan(trials, lambda run: judge(run) if oracle.large(run, _EXACT) else None, bench.covering, refusal=True)
