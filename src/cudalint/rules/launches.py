"""What the launch rules share: which dimensions the source shows, the search over host sizes, related places."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudalint.facts import kernels
from cudalint.facts import terms as t
from cudalint.facts import witness as w
from cudalint.facts.assigned import children
from cudalint.facts.calls import parses
from cudalint.facts.events import Pointer, Record, chain
from cudalint.facts.expressions import from_poly
from cudalint.findings import digits
from cudalint.ir import nodes as ir
from cudalint.ir.types import I64, Int
from cudalint.rules import support

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from cudalint.facts.events import Guard, Induction, LaunchEvent, Obj, Value
    from cudalint.facts.model import Kernel, Launch
    from cudalint.facts.terms import Term
    from cudalint.rules.support import Place, Triple

_SIZES = frozenset({"param", "argc", "size", "call", "load", "var"})
"""Atoms of a host function that can be a runtime size; the others (loop counters, merged paths) are not varied."""
_BLOCKS = (256, 128, 64, 32, 512, 1024, 16, 8)
_SIDES = (16, 4, 32, 64, 128, 8)
"""Extents of a block whose extent on another axis is open too: 1024 threads are the most it may have."""
_BUDGET = 160
_NEAR = 100
"""Launches before and after one among which that of the rest is looked for: tables have thousands."""
LARGEST = 1 << 30
"""Sizes beyond this are not tried: where the arithmetic of the sizes wraps the width rules speak."""


def parts(term: Term) -> Iterator[Term]:
    """Every sub-term of ``term``, itself included."""
    stack, seen = [term], set()
    while stack:
        item = stack.pop()
        if item not in seen:
            seen.add(item)
            yield item
            stack.extend(item.args)


def bare(term: Term) -> Term:
    """``term`` without conversions around it."""
    while term.op == "cast":
        term = term.args[0]
    return term


def leaves_of(terms: Iterable[Term] | None) -> set[Term]:
    return {x for term in terms or () for x in t.leaves(term)}


def is_size(leaf: Term) -> bool:
    """Whether an atom of a host function can be a runtime size: no loop counter, no element of a range, and not
    what a function nobody here can see makes of its arguments (``div_ceil(n, 64)`` may well be at least 1)."""
    info = leaf.data
    if info.kind == "call" and isinstance(info.data, ir.Call) and info.name.endswith(")") and not parses(info.data):
        return False
    return (info.kind in _SIZES or (info.kind == "exit" and _accumulated(info.data))) and info.level < t.UNKNOWN


def is_template(leaf: Term) -> bool:
    """Whether an atom is a template parameter that is left open: a constant in every instance."""
    return leaf.data.kind == "param" and getattr(leaf.data.data, "kind", "") == "template"


def _accumulated(induction: Induction) -> bool:
    """Whether a loop multiplies or adds up sizes: ``for (…) n *= dims[i]``; not one that doubles or halves."""
    following = induction.next
    if following is None or induction.step is not None or following.op not in ("mul", "add"):
        return False
    others = [x for x in following.args if induction.term not in t.leaves(x)]
    return len(others) == 1 and any(x.data.kind in _SIZES for x in t.leaves(others[0]))


def visible(blocks: Sequence[Term], threads: Sequence[Term], limits: Sequence[Term]) -> bool:
    """Whether the source shows what the dimensions are: constants, the kernel's own sizes, the device's, or another
    size that is divided into blocks. A dimension that is just passed through is the caller's business.
    """
    own, inner = leaves_of(limits), leaves_of(threads)
    if not all(is_size(x) for x in own) or not all(is_size(x) or x.data.kind == "device" for x in inner):
        return False
    shown = own | inner
    for term in blocks:
        others = {x for x in t.leaves(term) if x not in shown and x.data.kind != "device" and not w.instances(x)}
        if not others:
            continue
        if any(x.data.kind != "param" for x in (*others, *own)) or (limits and not own):
            return False
        divided = {x for part in parts(term) if part.op in ("div", "shr") for x in t.leaves(part.args[0])}
        if not others <= divided:
            return False
    in_grid = leaves_of(blocks)
    return all(x in own or x in in_grid or x.data.kind == "device" or w.instances(x) for x in leaves_of(threads))


def ordered(first: Iterable[Term], then: Iterable[Term]) -> list[Term]:
    """The atoms of some terms, those of ``first`` before the others."""
    result: dict[Term, None] = {}
    for terms in (first, then):
        for leaf in sorted(leaves_of(terms), key=lambda x: x.key):
            result.setdefault(leaf)
    return list(result)


def edges(launch: Launch, terms: Iterable[Term | None]) -> set[int]:
    """Sizes worth trying: around every constant of ``terms`` and of what the host checks."""
    known = w.constants([*(x for x in terms if x is not None), *launch.conditions])
    return {v for c in known for v in (abs(int(c)) - 1, abs(int(c)), abs(int(c)) + 1) if 0 < v <= LARGEST}


def smallest(
    goal: Callable[[w.Assignment], bool], leaves: Sequence[Term], launch: Launch, tries: Iterable[int], *,
    block_leaves: Iterable[Term] = (), least: Iterable[Term] = (), zero: Iterable[Term] = (),
) -> w.Assignment | None:  # fmt: skip
    """The smallest sizes found at which ``goal`` holds and the host's checks let the launch happen.

    The first of ``leaves`` is made as small as possible; those of ``least`` stay at the smallest size that the checks
    allow; as few of ``zero`` as will do are 0. None where no case is found.
    """
    inner, kept, nothing = set(block_leaves), set(least), set(zero)
    sides = _SIDES if sum(bool(t.leaves(x)) for x in launch.block or ()) > 1 else _BLOCKS
    # `block(K / 4)`: K is a size as any other, and its remainders are what matters.
    divided = {
        x
        for term in launch.block or ()
        for part in parts(term)
        if part.op in ("div", "shr")
        for x in t.leaves(part.args[0])
    }
    # What a grid divides by is a block's size, even if nothing else can be varied.
    divisors = {
        x for term in launch.grid or () for part in parts(term) if part.op == "div" for x in t.leaves(part.args[1])
    }
    limit = min(LARGEST, launch.config.max_elements or LARGEST)
    usual = (sides[0] - 1, sides[0], sides[0] + 1) if inner else ()
    ascending = sorted({1, 2, 3, *usual, *(v for v in tries if v <= limit)})
    choices: list[list[int]] = []
    for number, leaf in enumerate(leaves):
        info = leaf.data
        fixed = w.assumed(leaf)
        possible = [v for v in ascending if info.lo <= v <= info.hi]
        if w.instances(leaf):
            choices.append(list(w.instances(leaf)))
        elif leaf in kept:
            allowed = (v for v in possible if all(w.allowed(c, {leaf: v}) for c in launch.conditions))
            choices.append([v for v in (next(allowed, None),) if v is not None])
        elif fixed is not None:
            choices.append([fixed])
        elif info.kind == "sizeof":
            choices.append([*w.WIDTHS])
        elif info.kind == "argc":
            choices.append([1, 2, 3, 4, 5, 8])
        elif leaf in inner and (number or leaf in divisors) and leaf not in divided:
            choices.append([v for v in sides if info.lo <= v <= info.hi])
        else:
            # The others stay at 1 where one is 0.
            choices.append([*possible[:1], 0, *possible[1:]] if leaf in nothing and info.lo <= 0 else possible)
    if any(not c for c in choices):
        return None

    def good(env: w.Assignment) -> bool:
        return w.instantiated(env) and w.holds(goal, env) and w.completed(env, launch.conditions) is not None

    for tried, values in enumerate(_diagonal(choices)):
        if tried > _BUDGET:
            return None
        env = dict(zip(leaves, values, strict=True))
        if good(env):
            return _refined(env, leaves, choices, good, inner)
    return None


def never_empty(terms: Iterable[Term]) -> bool:
    """Whether dimensions are 1 or more at all sizes of 1 and more, as is seen without trying any."""
    terms = list(terms)
    ranges = {}
    for leaf in leaves_of(terms):
        fixed = w.assumed(leaf)
        given = w.instances(leaf) or ((fixed,) if fixed is not None else (leaf.data.lo, leaf.data.hi))
        low, high = min(given), max(given)
        ranges[leaf] = max(1, low), min(high, LARGEST)
    return all(_positive(x, ranges) for x in terms)


def _positive(term: Term, ranges: dict[Term, t.Interval]) -> bool:
    if t.bounds(term, ranges)[0] > 0:
        return True
    op, args, type_ = term.op, term.args, term.type
    if not isinstance(type_, Int) or any(not isinstance(x.type, Int) for x in args):
        return False
    if op == "select":
        return _positive(args[1], ranges) and _positive(args[2], ranges)
    if t.mathematical_bounds(term, ranges)[1] > type_.hi:
        return False
    if op == "cast":
        return _positive(args[0], ranges)
    if op == "add":
        return min(t.bounds(x, ranges)[0] for x in args) >= 0 and any(_positive(x, ranges) for x in args)
    if op == "div" and min(t.bounds(x, ranges)[0] for x in args) >= 0:
        # `(n + t - 1) / t`: what is divided is no less than what divides it.
        surplus = t.add(t.poly(args[0]), t.poly(args[1]), -1)
        if any(len(m) > 1 for m in surplus):
            return False
        return sum(c * (t.bounds(m[0], ranges)[0 if c > 0 else 1] if m else 1) for m, c in surplus.items()) >= 0
    return op in ("mul", "min") and all(_positive(x, ranges) for x in args)


def _diagonal(choices: list[list[int]]) -> Iterator[tuple[int, ...]]:
    """Combinations in which one size moves and the others stay at their first few values; then all moving together."""
    if not choices:
        yield ()
        return
    moving = [k for k, c in enumerate(choices) if len(c) > 1] or [0]
    positive = [[v for v in c if v] or c for c in choices]
    bases = [tuple(c[min(k, len(c) - 1)] for c in of) for of, k in ((positive, 0), (positive, 1), (choices, 1))]
    seen = set()
    for base in bases:
        for at in moving:
            for value in choices[at]:
                values = (*base[:at], value, *base[at + 1 :])
                if values not in seen:
                    seen.add(values)
                    yield values
    longest = max(len(c) for c in choices)
    for k in range(longest):
        yield tuple(c[min(k, len(c) - 1)] for c in choices)
    for k in range(longest):
        # The first size large where the others are small, and the other way round.
        yield tuple(c[min(k, len(c) - 1)] if n else c[-1] for n, c in enumerate(choices))


def _refined(
    env: w.Assignment, leaves: Sequence[Term], choices: list[list[int]], good: Callable[[w.Assignment], bool],
    kept: set[Term],
) -> w.Assignment:  # fmt: skip
    """The same case with as few sizes at 0 as will do, and the others brought down by halving, one after the other;
    block sizes and widths of types are kept."""
    for leaf, tries in zip(leaves, choices, strict=True):
        if env[leaf] == 0:
            more = ({**env, leaf: v} for v in tries if v)
            env = next((x for x in more if good(x)), env)
            continue
        if leaf in kept or len(tries) < 2 or leaf.data.kind == "sizeof":
            continue
        low = max((v for v in tries if v < env[leaf]), default=env[leaf])
        while env[leaf] - low > 1:
            middle = (low + env[leaf]) // 2
            lower = {**env, leaf: middle}
            if good(lower):
                env = lower
            else:
                low = middle
    return env


def all_at(leaves: Iterable[Term], value: int) -> w.Assignment:
    """All sizes at one value, as far as their types allow; what only the machine knows as it is taken to be."""
    env = {}
    for leaf in leaves:
        fixed = w.assumed(leaf)
        env[leaf] = fixed if fixed is not None else max(leaf.data.lo, min(value, leaf.data.hi))
    return env


def reaches(launch: Launch, leaves: Sequence[Term], item: kernels.Coordinate) -> set[int]:
    """How far the launch comes with small, middle and large sizes: where the grid stops growing is such a place."""
    result: set[int] = set()
    for value in (1, 1009, 1 << 20, 1 << 27):
        case = kernels.case(launch, all_at(leaves, value))
        if case is None:
            continue
        try:
            reach = case.reach(item)
        except t.Undefined:
            continue
        result.update(v for v in range(reach - 1, reach + 3) if 0 < v <= LARGEST)
    return result


def division(blocks: Term) -> tuple[Term, Term] | None:
    """The size that a dimension divides and what by; what is added for rounding left out. None where it does not."""
    stack = [blocks]
    while stack:
        part = stack.pop()
        if part.op == "select":
            # Which side of a choice counts is not known here; `n % t ? n / t + 1 : n / t` has one quotient.
            first, second = (division(side) for side in part.args[1:])
            if first is not None and second is not None and _same(first, second):
                return first
            continue
        if part.op not in ("div", "shr"):
            stack.extend(part.args)
            continue
        by = part.args[1]
        if part.op == "shr":
            if by.op != "const" or not 0 <= by.data < 63:
                continue
            by = t.const(1 << by.data, I64)
        added = t.poly(by)
        dividend = {m: c for m, c in t.poly(part.args[0]).items() if m and m not in added}
        size = from_poly(dividend, I64)
        if not t.leaves(size):
            continue
        inner = bare(size)
        if inner.op == "div" and inner.args[1].op == by.op == "const" and t.leaves(inner.args[0]):
            # Two floored divisions are one by the product.
            return inner.args[0], t.const(inner.args[1].data * by.data, I64)
        return size, by
    return None


def _same(first: tuple[Term, Term], second: tuple[Term, Term]) -> bool:
    return all(t.poly(a) == t.poly(b) for a, b in zip(first, second, strict=True))


def has_tail(launch: Launch, dimensions: Sequence[Term]) -> bool:
    """Whether the host handles the rest of a floored division elsewhere: another launch or call with the same memory,
    or a loop, that begins where this one ends or that asks for the remainder."""
    quotients = [p for d in dimensions for p in parts(d) if p.op in ("div", "shr") and t.leaves(p)]
    if not quotients:
        return False
    dividends = [t.poly(q.args[0]) for q in quotients]
    atoms = {m[0] for q in quotients for m in t.poly(q) if len(m) == 1}
    flow, own = launch.flow, _memory(launch.event.args)

    def counts(term: Term) -> bool:
        return any(p.op == "mod" and t.poly(p.args[0]) in dividends for p in parts(term))

    def rounds_up(term: Term) -> bool:
        # `n / t + (n % t != 0)`: the grid of a launch that does everything by itself.
        return any(p.op in ("div", "shr") and t.poly(p.args[0]) in dividends for p in parts(term))

    def takes(args: Iterable[Value | None] | None, *, starts: bool) -> bool:
        passed = list(args or ())
        scalars = [x for x in passed if isinstance(x, t.Term)]
        offsets = [p for x in passed if isinstance(x, Pointer) for p, _ in x.pieces]
        begins = (*scalars, *offsets) if starts else offsets
        return any(counts(x) for x in (*scalars, *offsets)) or any(_begins(x, atoms) for x in begins)

    at = flow.launches.index(launch.event)
    for event in flow.launches[max(0, at - _NEAR) : at + _NEAR]:
        if event.node is launch.event.node or not _meet(own, _memory(event.args)):
            continue
        # `n % t == 0` on the way asks whether there is a rest, and is the case without one.
        asked = [g.term for g in _own_guards(event, launch) if g.term.op != "eq"]
        shape = [x for x in (*(event.grid or ()), *(event.block or ())) if not rounds_up(x)]
        if any(counts(x) for x in (*shape, *asked)) or takes(event.args, starts=True):
            return True
    # A quotient in the numbers of a copy is its length.
    if any(_meet(own, _memory(x.args)) and takes(x.args, starts=False) for x in flow.calls):
        return True
    return any(
        info.init is not None and _begins(info.init, atoms) for loop in flow.loops for info in loop.inductions.values()
    )


def _memory(args: Iterable[Value | None] | None) -> set[Obj] | None:
    """What memory the arguments of a launch or call lead to; None where some of it cannot be seen."""
    found: set[Obj] = set()
    if args is None:
        return None
    stack = list(args)
    while stack:
        item = stack.pop()
        if isinstance(item, Pointer):
            found.add(item.obj)
        elif isinstance(item, Record) and item.fields:
            stack.extend(item.fields.values())
        elif not isinstance(item, t.Term):
            return None
    return found


def _meet(one: set[Obj] | None, other: set[Obj] | None) -> bool:
    return one is None or other is None or not one.isdisjoint(other)


def _own_guards(event: LaunchEvent, launch: Launch) -> list[Guard]:
    shared = set(chain(launch.event.guard))
    return [g for g in chain(event.guard) if g not in shared]


def _begins(term: Term, quotients: set[Term]) -> bool:
    """Whether a value holds a quotient times something: the place where the full blocks end."""
    return any(
        (len(m) > 1 or abs(c) != 1) and not quotients.isdisjoint(m) for m, c in t.poly(term).items()
    )  # fmt: skip


def written_division(launch: Launch) -> bool:
    """Whether the launch's dimensions are written with a division, through locals and helpers, though all is known."""
    node = launch.event.node
    declared = _initialisers(launch.event.fn)
    stack: list[object] = [x for x in (node.grid, node.block) if x is not None]
    seen: set[int] = set()
    while stack and len(seen) < 400:
        item = stack.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, ir.Binary) and item.op in ("/", ">>"):
            return True
        if isinstance(item, ir.Ref):
            stack.extend(declared.get(item.var, ()))
            if item.var.init is not None:
                stack.append(item.var.init)
        elif isinstance(item, ir.Call) and item.target is not None and item.target.has_body:
            stack.append(item.target.lower({}).body)
        stack.extend(children(item))
    return False


def _initialisers(fn: ir.Function) -> dict[ir.Var, list[ir.Expr]]:
    """What a function gives its variables, by variable."""
    result: dict[ir.Var, list[ir.Expr]] = {}
    stack: list[object] = [fn.body]
    while stack:
        item = stack.pop()
        if isinstance(item, ir.VarDecl) and item.init is not None:
            result.setdefault(item.var, []).append(item.init)
        elif isinstance(item, ir.Assign):
            target = item.target
            while isinstance(target, ir.Member):
                target = target.base
            if isinstance(target, ir.Ref):
                result.setdefault(target.var, []).append(item.value)
        stack.extend(children(item))
    return result


# --- words and places ---------------------------------------------------------------------------


def named(env: w.Assignment) -> dict[str, int]:
    return support.sizes_of(env)


def words(env: w.Assignment, launch: Launch | None = None) -> str:
    """``n = 257, m = 1``; in words about the kernel of a launch ``n = 257 (64 in the kernel)``, where both have an
    ``n`` and the launch passes something else."""
    inner = {} if launch is None else {x.data.name: value for x, value in support.with_parameters(launch, env).items()}
    sizes = named(env)
    return ", ".join(
        told({name: size}) + (f" ({digits(inner[name])} in the kernel)" if inner.get(name, size) != size else "")
        for name, size in sizes.items()
    )


def told(sizes: dict[str, int]) -> str:
    """As :func:`words`, for sizes by name."""
    return ", ".join(f"{name} = {digits(value)}" for name, value in sizes.items())


def thread_words(thread: tuple[Triple, Triple], grid: Triple, block: Triple) -> str:
    """``thread 3 of block 1``, ``thread (8, 3) of block (31, 21)``: as many coordinates as the launch has axes."""
    b, i = thread
    return f"thread {position(i, block)} of block {position(b, grid)}"


def position(index: Triple, extents: Triple) -> str:
    """``3``, ``(8, 3)``: as many coordinates as the extents have axes."""
    axes = 3 if extents[2] > 1 else 2 if extents[1] > 1 else 1
    return digits(index[0]) if axes == 1 else f"({', '.join(str(x) for x in index[:axes])})"


def launched(launch: Launch) -> Place:
    """The launch as a related place."""
    event = launch.event
    return event.fn.file, event.node.start, event.node.end, f"{event.node.kernel or 'the kernel'} is launched here"


def kernel_place(kernel: Kernel) -> Place:
    decl = kernel.decl
    return decl.file, decl.name_start, decl.name_end, "the kernel"


def callers(launch: Launch) -> tuple[Place, ...]:
    """The calls through which the launch is reached, innermost first."""
    return tuple(
        (site.fn.file, site.call.start, site.call.end, f"called here from {site.fn.name}")
        for site in reversed(launch.event.stack)
        if site.callee.decl is not None
    )
