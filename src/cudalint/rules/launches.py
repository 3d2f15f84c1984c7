"""What the launch rules share: which dimensions the source shows, tails, related places."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from cudalint.facts import kernels, search, shapes
from cudalint.facts import terms as t
from cudalint.facts import witness as w
from cudalint.facts.assigned import children
from cudalint.facts.calls import parses
from cudalint.facts.events import Pointer, Record, chain
from cudalint.facts.expressions import from_poly
from cudalint.facts.ids import BID
from cudalint.facts.uniformity import expand
from cudalint.findings import digits
from cudalint.ir import nodes as ir
from cudalint.ir.types import I64, Int
from cudalint.rules import support

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from cudalint.facts.events import Guard, LaunchEvent, Obj, Value
    from cudalint.facts.model import Kernel, Launch
    from cudalint.facts.terms import Term
    from cudalint.frontend.source import SourceFile
    from cudalint.rules.support import Place, Triple

_NEAR = 100
"""Launches before and after one among which that of the rest is looked for: tables have thousands."""


def visible(blocks: Sequence[Term], threads: Sequence[Term], limits: Sequence[Term]) -> bool:
    """Whether the source shows what the dimensions are: constants, the kernel's own sizes, the device's, or another
    size that is divided into blocks. A dimension that is just passed through is the caller's business.
    """
    own, inner = search.leaves_of(limits), search.leaves_of(threads)
    if not all(search.is_size(x) for x in own) or not all(search.is_size(x) or x.data.kind == "device" for x in inner):
        return False
    shown = own | inner
    for term in blocks:
        others = {x for x in t.leaves(term) if x not in shown and x.data.kind != "device" and not w.instances(x)}
        if not others:
            continue
        if not all(_is_given(x) for x in (*others, *own)) or (limits and not own):
            return False
        divided = {x for part in t.inside([term]) if part.op in ("div", "shr") for x in t.leaves(part.args[0])}
        if not others <= divided:
            return False
    # What divides a constant number of threads, as in `dim3(1024 / rows, rows)`, makes no more of them.
    quotients = [part for term in threads for part in t.inside([term]) if part.op == "div"]
    shares = {x for q in quotients if not t.leaves(q.args[0]) for x in t.leaves(q.args[1])}
    told = own | search.leaves_of(blocks) | shares
    return all(x in told or x.data.kind == "device" or w.instances(x) for x in inner)


def _is_given(leaf: Term) -> bool:
    """Whether a size comes from outside as it stands, and has nothing to do with another one."""
    asked = leaf.data.data
    return leaf.data.kind == "param" or (leaf.data.kind == "call" and isinstance(asked, ir.Call) and parses(asked))


def reaches(launch: Launch, leaves: Sequence[Term], item: kernels.Coordinate) -> set[int]:
    """How far the launch comes with small, middle and large sizes: where the grid stops growing is such a place."""
    result: set[int] = set()
    for value in (1, 1009, 1 << 20, 1 << 27):
        case = kernels.case(launch, search.all_at(leaves, value))
        if case is None:
            continue
        try:
            reach = case.reach(item)
        except t.Undefined:
            continue
        result.update(v for v in range(reach - 1, reach + 3) if 0 < v <= search.LARGEST)
    return result


def division(blocks: Term, counts: Collection[Term] = ()) -> tuple[Term, Term] | None:
    """The size that a dimension divides and what by; what is added for rounding left out. None where it does not.
    The quotients among ``counts`` are sizes themselves."""
    stack = [blocks]
    while stack:
        part = stack.pop()
        if part in counts:
            continue
        if part.op == "select":
            # Which side of a choice counts is not known here; `n % t ? n / t + 1 : n / t` has one quotient.
            first, second = (division(side, counts) for side in part.args[1:])
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
        inner = t.bare(size)
        twice = inner.op == "div" and isinstance(inner.type, Int) and inner.args[1].op == by.op == "const"
        if twice and inner not in counts and t.leaves(inner.args[0]):
            # Two floored divisions are one by the product.
            return inner.args[0], t.const(inner.args[1].data * by.data, I64)
        return size, by
    return None


def _same(first: tuple[Term, Term], second: tuple[Term, Term]) -> bool:
    return all(t.poly(a) == t.poly(b) for a, b in zip(first, second, strict=True))


def are_records(launch: Launch, axis: str, divisor: Term) -> bool:
    """Whether what divides a size is the length of its records, of which each block has one: its threads read the same
    elements of it, ``a[3 * b]`` to ``a[3 * b + 2]``, and have no share of their own in as many elsewhere."""
    each = t.constant(t.poly(divisor))
    if each is None or launch.kernel is None:
        return False
    found = False
    for access in launch.kernel.flow.accesses:
        p = expand(access.scalar or {})
        if access.obj.kind != "global" or shapes.stepped(p, BID[axis]) != {(): each}:
            continue
        field = t.constant(t.add(p, {(BID[axis],): each}, -1))
        if field is None or not 0 <= field < each or access.mode != "r":
            return False
        found = True
    return found


def packs(launch: Launch, threads: Iterable[Term]) -> set[Term]:
    """The quotients that the kernel is given: numbers of packs, unless they divide by the block, of blocks."""
    passed = {t.bare(x) for x in launch.event.args or () if isinstance(x, t.Term)}
    own = [t.poly(x) for x in threads]
    return {x for x in passed if x.op in ("div", "shr") and t.poly(x.args[1]) not in own}


def has_tail(launch: Launch, dimensions: Sequence[Term]) -> bool:
    """Whether the host handles the rest of a floored division elsewhere: another launch or call with the same memory,
    or a loop, that begins where this one ends or that asks for the remainder. The rest of a number of packs that the
    kernel is given (``n / 4``) is none of this launch's."""
    asked = ("tail", *dimensions)
    if asked not in launch.answers:
        launch.answers[asked] = _has_tail(launch, dimensions)
    return bool(launch.answers[asked])


def _has_tail(launch: Launch, dimensions: Sequence[Term]) -> bool:
    divided = [p for d in dimensions for p in t.inside([d]) if p.op in ("div", "shr") and t.leaves(p)]
    given = packs(launch, launch.block or ())
    quotients = [p for p in divided if p not in given] or divided
    if not quotients:
        return False
    dividends = [t.poly(q.args[0]) for q in divided]
    others = [[t.poly(x) for x in q.args] for q in divided if q not in quotients]
    atoms = {m[0] for q in quotients for m in t.poly(q) if len(m) == 1}
    flow, own = launch.flow, _memory(launch.event.args)

    @cache
    def asks(term: Term) -> bool:
        rests = [[t.poly(x) for x in p.args] for p in t.inside([term]) if p.op == "mod"]
        return any(p[0] in dividends and p not in others for p in rests)

    @cache
    def rounds_up(term: Term) -> bool:
        # `n / t + (n % t != 0)`: the grid of a launch that does everything by itself.
        return any(p.op in ("div", "shr") and t.poly(p.args[0]) in dividends for p in t.inside([term]))

    def takes(args: Iterable[Value | None] | None, *, starts: bool) -> bool:
        passed = list(args or ())
        scalars = [x for x in passed if isinstance(x, t.Term)]
        offsets = [p for x in passed if isinstance(x, Pointer) for p, _ in x.pieces]
        begins = (*scalars, *offsets) if starts else offsets
        return any(asks(x) for x in (*scalars, *offsets)) or any(_begins(x, atoms) for x in begins)

    at = flow.launches.index(launch.event)
    for event in flow.launches[max(0, at - _NEAR) : at + _NEAR]:
        if event.node is launch.event.node or not _meet(own, _memory(event.args)):
            continue
        # `n % t == 0` on the way asks whether there is a rest, and is the case without one.
        asked = [g.term for g in _own_guards(event, launch) if g.term.op != "eq"]
        shape = [x for x in (*(event.grid or ()), *(event.block or ())) if not rounds_up(x)]
        if any(asks(x) for x in (*shape, *asked)) or takes(event.args, starts=True):
            return True
    # A quotient in the numbers of a copy is its length.
    if any(_meet(own, _memory(x.args)) and takes(x.args, starts=False) for x in flow.calls):
        return True
    return _moves_on(launch) or any(
        info.init is not None and _begins(info.init, atoms) for loop in flow.loops for info in loop.inductions.values()
    )


def _moves_on(launch: Launch) -> bool:
    """Whether a host loop goes on behind the full blocks (``n -= n / t * t``): its next passes handle the rest."""
    written = [*(launch.event.grid or ()), *(launch.event.block or ())]
    quotients = {p for d in written for p in t.inside([d]) if p.op in ("div", "shr")}
    counters = [x.data.data for x in search.leaves_of(written) if x.data.kind == "loop"]
    changes = [x for counter in counters for x in (counter.step, counter.next) if x is not None]
    return any(_begins(part, quotients) for x in changes for part in t.inside([x]))


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


def words(env: w.Assignment, launch: Launch | None = None) -> str:
    """``n = 257, m = 1``; in words about the kernel of a launch ``n = 257 (64 in the kernel)``, where both have an
    ``n`` and the launch passes something else."""
    inner = {} if launch is None else {x.data.name: value for x, value in support.with_parameters(launch, env).items()}
    sizes = search.sizes_of(env)
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


def which(kernel: Kernel, launch: Launch | None, seen_from: SourceFile) -> tuple[str, tuple[Place, ...]]:
    """The launch that a finding in the kernel is about, in words and as a related place, where several are visible."""
    if launch is None or len(kernel.launches) < 2:
        return "", ()
    return f" (launched on {support.line(launch.event, seen_from)})", (launched(launch),)


def kernel_place(kernel: Kernel) -> Place:
    decl = kernel.decl
    return decl.file, decl.name_start, decl.name_end, "the kernel"


def callers(launch: Launch) -> tuple[Place, ...]:
    """The calls through which the launch is reached, innermost first."""
    return support.calls(launch.event)
