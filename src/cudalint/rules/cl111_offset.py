"""CL111 truncated-offset: an offset computed in 64 bits and cut to 32 before it addresses memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudalint.facts import terms as t
from cudalint.facts import witness as w
from cudalint.facts.events import conjuncts
from cudalint.facts.kernels import ids_of
from cudalint.facts.reach import Reach, is_wide
from cudalint.findings import Witness, digits
from cudalint.ir.types import U32, U64, Int
from cudalint.rules import offsets, support, width
from cudalint.rules.draft import Draft, FixDraft

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Set as AbstractSet

    from cudalint.confirm.experiment import Bench, Plan
    from cudalint.facts.events import Access, Conversion
    from cudalint.facts.model import Kernel, Launch
    from cudalint.facts.terms import Term

CODES = ("CL111",)

_PARTS = frozenset({"tid", "bid", "bdim", "gdim", "param", "loop", "exit"})
_QUOTIENTS = frozenset({"div", "mod", "shr", "and"})


def check(kernel: Kernel) -> Iterator[Draft]:
    """One finding a conversion: the first access that it gets to unbounded."""
    flow = kernel.flow
    if not flow.complete:
        return
    cut = [x for x in flow.conversions if _is_cut(x)]
    if not cut:
        return
    reported: set[int] = set()
    for access in flow.accesses:
        if access.obj.kind != "global" or access.index is None:
            continue
        made = _made_of(access.index)
        for event in cut:
            if id(event.node) in reported or event.seq > access.seq:
                continue
            assert isinstance(event.to, Int)
            if t.convert(event.term, event.to) not in made or _limited(access, event):
                continue
            draft = _at(kernel, access, event)
            if draft is not None:
                reported.add(id(event.node))
                yield draft


def _is_cut(event: Conversion) -> bool:
    """Whether a conversion keeps the lower half of an index or an offset: no size, no quotient, no data."""
    if not (isinstance(event.to, Int) and event.to.bits == 32 and isinstance(event.term.type, Int)):
        return False
    computed = t.bare(event.term)  # what was widened from 32 bits comes back as it was
    if not (isinstance(computed.type, Int) and computed.type.bits == 64) or computed.op in _QUOTIENTS:
        return False
    leaves = t.leaves(event.term)
    if any(x.data.kind not in _PARTS for x in leaves) or not ids_of([event.term]):
        return False
    return not _is_remainder(event.term)


def _is_remainder(term: Term) -> bool:
    """``i - i / w * w``, in steps."""
    if term.op == "cast":
        return _is_remainder(term.args[0])
    if term.op != "sub":
        return False
    first = t.poly(term.args[0])
    return any(
        item.op in ("div", "shr") and t.poly(item.args[0]) == first
        for item in t.atoms_of(t.poly(term.args[1]))
    )  # fmt: skip


def _made_of(index: Term) -> set[Term]:
    """Every value that an index is made of, through the starts of loops too."""
    seen: set[Term] = set()
    stack = [index]
    while stack:
        item = stack.pop()
        if item in seen:
            continue
        seen.add(item)
        stack.extend(item.args)
        if item.op == "atom" and item.data.kind == "loop" and item.data.data.init is not None:
            stack.append(item.data.data.init)
    return seen


def _limited(access: Access, event: Conversion) -> bool:
    """Whether a test on the way keeps the value, before or after it is cut, below a bound of 32 bits."""
    assert isinstance(event.to, Int)
    kept = {event.term, t.convert(event.term, event.to)}
    for condition in conjuncts(access.guard):
        if condition.op in ("lt", "le", "eq"):
            for side, other in (condition.args, condition.args[::-1]):
                bound = t.bare(other)
                narrow = bound.op == "const" or (isinstance(bound.type, Int) and bound.type.bits <= 32)
                if narrow and not kept.isdisjoint(_made_of(side)):
                    return True
    return False


def _turned_away(access: Access, event: Conversion) -> bool:
    """Whether a test on the way to an access keeps away a value that is negative once it is cut: one of unsigned
    64 bits, to which it is huge."""
    assert isinstance(event.to, Int)
    kept = t.convert(event.term, event.to)
    return any(
        condition.op in ("lt", "le") and condition.args[0].type is U64 and kept in _made_of(condition.args[0])
        for condition in conjuncts(access.guard)
    )


def _at(kernel: Kernel, access: Access, event: Conversion) -> Draft | None:
    assert isinstance(event.to, Int)
    positive = event.to.lo == 0 or _turned_away(access, event)
    top = U32.hi if positive else event.to.hi
    for value, chosen in _sides(event.term):
        several = any(
            not ids_of(made) or any(offsets.is_free(x) for factor in made for x in t.leaves(factor))
            for made in offsets.factors(value)
        )
        largest = offsets.highest(kernel.layout, access, t.poly(value))
        if largest is None:
            continue
        for launch in kernel.launches or (None,):
            reach = Reach(launch, kernel.config)
            if reach.index(t.poly(largest)) <= top or not (several or _counts_far(access, value, launch)):
                continue
            here = launch.at_launch(largest) if launch is not None else largest
            asked = [launch.at_launch(x) for x in chosen] if launch is not None else chosen
            choice = _choice(asked, t.leaves(here))
            if choice is None:
                continue
            known = launch.conditions if launch is not None else ()
            made = {x: t.const(v, x.type) for x, v in choice.items()}
            conditions = [*known, *offsets.reached(kernel.layout, access, launch), *asked]
            conditions = [t.substitute(x, made) for x in conditions]
            env = offsets.sizes_over(here, top, reach, kernel.config, launch, conditions)
            offset = width.value(here, env, exact=False) if env is not None else None
            if env is None or offset is None or (positive and event.to.wrap(offset) < 0):
                continue
            return _draft(kernel, access, event, width.named({**env, **choice}), offset)
    return None


def _choice(asked: list[Term], sizes: AbstractSet[Term]) -> w.Assignment | None:
    """Values of what else is asked than sizes; None where there are none."""
    others = sorted({x for term in asked for x in t.leaves(term)} - sizes, key=lambda x: x.key)
    return w.solve(lambda env: all(w.allowed(x, env) for x in asked), others)


def _sides(term: Term) -> Iterator[tuple[Term, list[Term]]]:
    """The values that a choice is made of, each with what chooses it, which must be the same in every thread."""
    term = t.bare(term)
    if term.op != "select":
        yield term, []
    elif not ids_of([term.args[0]]):
        for condition, side in ((term.args[0], term.args[1]), (t.lnot(term.args[0]), term.args[2])):
            for value, others in _sides(side):
                yield value, [condition, *others]


def _counts_far(access: Access, index: Term, launch: Launch | None) -> bool:
    """Whether there can be so many elements for a thread's own index: a test against 64 bits, or a grid made of it."""
    ids = ids_of([index])
    for condition in conjuncts(access.guard):
        if condition.op in ("lt", "le"):
            for side, other in (condition.args, condition.args[::-1]):
                bound = t.bare(other)
                if ids & ids_of([side]) and isinstance(bound.type, Int) and bound.type.bits == 64 and t.leaves(bound):
                    return True
    return launch is not None and launch.grid is not None and any(is_wide(x) for x in launch.grid)


def _draft(kernel: Kernel, access: Access, event: Conversion, sizes: dict[str, int], offset: int) -> Draft:
    assert isinstance(event.to, Int)
    kept = event.to.wrap(offset)
    text, name = support.text(event.fn, event.node), str(event.to)
    shown = ", ".join(f"{k} = {digits(v)}" for k, v in sizes.items() if v > 1)
    return Draft(
        "CL111", event.fn, event.fn.file, event.node.start, event.node.end,
        f"`{text}` is computed in 64 bits and cut to 32 (`{name}`) before it addresses "
        f"`{access.obj.name}`: {f'at {shown} ' if shown else ''}offset {digits(offset)} becomes {digits(kept)}",
        "keep the offset in 64 bits: `size_t i = …`",
        Witness(sizes, None, None, None, {"offset in 32 bits": kept, "offset meant": offset}),
        ((access.fn.file, access.node.start, access.node.end, "used here"), *support.calls(event),
         *support.launched_at(kernel)),
        fix=_widened(event),
    )  # fmt: skip


def _widened(event: Conversion) -> FixDraft | None:
    from cudalint.rules import widening

    var = widening.holder(event.fn, event.node)
    edits = widening.widened(event.fn, [var], quotients=True) if var is not None else None
    return FixDraft(True, f"make `{var.name}` 64 bits wide", edits) if var is not None and edits else None


def experiment_cl111(bench: Bench) -> Plan:
    """The last blocks at offsets from 2^31 and 2^32 on: a value that is cut names another element."""
    from cudalint.confirm.experiment import Plan, oracle

    places = [
        (place.fn.file, place.node.start, place.node.end)
        for place in bench.kernel.flow.conversions
        if isinstance(place.to, Int) and place.to.bits == 32
    ]

    def judge(run: oracle.Run) -> oracle.Fault | None:
        return oracle.wraps(run, places, kinds=("convert",))

    alone = len(bench.harness.sizes) < 2
    trials = bench.sparse(5, (1 << 31) + 1, (1 << 32) + 1) if alone else bench.together(5, 46342, 65537)
    return Plan(trials, judge, watch=frozenset())
