"""CL205 grid-axis-limit: a grid dimension that can pass what the hardware takes on its axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudalint.facts import search
from cudalint.facts import terms as t
from cudalint.facts.reach import Reach
from cudalint.findings import Witness, digits
from cudalint.ir import nodes as ir
from cudalint.rules import launches, width
from cudalint.rules.draft import Draft

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudalint.confirm.experiment import Bench, Plan
    from cudalint.facts.model import Launch
    from cudalint.facts.terms import Term

CODES = ("CL205",)

_LIMITS = {"x": (1 << 31) - 1, "y": 65535, "z": 65535}
_CONSTANTS = frozenset({"device", "sizeof", "name"})
_TESTS = frozenset({"lt", "le", "eq", "ne", "land", "lor", "lnot", "mod", "and"})
"""Operators whose results stay small however large the operands."""


def check(launch: Launch) -> Iterator[Draft]:
    """One finding a launch; where two axes can be too long, the one that is so at fewer elements."""
    if launch.grid is None:
        return
    found = [
        draft
        for axis, blocks in zip("xyz", launch.grid, strict=True)
        if (draft := _known(launch, axis, blocks) or _runtime(launch, axis, blocks)) is not None
    ]
    yield from sorted(found, key=lambda draft: draft.form is not None)[:1]


def _known(launch: Launch, axis: str, blocks: Term) -> Draft | None:
    if blocks.op != "const" or not isinstance(blocks.data, int) or blocks.data <= _LIMITS[axis]:
        return None
    return _draft(launch, axis, f"has {digits(blocks.data)} blocks on {axis}", blocks.data, {}, None)


def _runtime(launch: Launch, axis: str, blocks: Term) -> Draft | None:
    """A dimension on y or z that grows with a size; x takes all that 31 bits can count."""
    if axis == "x" or blocks.op == "const":
        return None
    leaves = t.leaves(blocks)
    if not all(_is_size(x) or x.data.kind in _CONSTANTS for x in leaves):
        return None
    reach = Reach(None, launch.config, launch.conditions)
    limit = _LIMITS[axis]
    if reach.high(blocks) <= limit:
        return None
    block = search.leaves_of(launch.block)
    found = width.passing(blocks, limit, launch, reach, lambda leaf: leaf not in block and _is_size(leaf))
    if found is None:
        return None
    env, main = found
    if any(_shares_out(x, main) for x in launch.grid or () if x is not blocks):
        return None
    count = width.value(blocks, env, exact=False)
    if count is None:
        return None
    text = f"takes its {axis} dimension from `{t.show(blocks)}`: at {launches.words({main: env[main]})} that is "
    form = None if _whole(blocks, main, block) else "pedantic"
    return _draft(launch, axis, f"{text}{digits(count)} blocks", count, width.named(env), form)


def _is_size(leaf: Term) -> bool:
    """A runtime size; what a method answers (``x.size(0)``) is one too, though nobody here can see it. The field of
    a dim3 is not: who made that grid answers for it. Nor is a template parameter: each instance has its own."""
    if leaf.data.axis or search.is_template(leaf):
        return False
    called = leaf.data.data
    by_method = leaf.data.kind == "call" and isinstance(called, ir.Call) and called.receiver is not None
    return by_method or search.is_size(leaf)


def _shares_out(blocks: Term, main: Term) -> bool:
    """Whether an axis has as many blocks as a number of them leaves to each of those along other axes (`x * (most / (x
    * y * z))`): it has none long before ``main`` comes to a limit."""
    for product in (x for x in t.inside([blocks]) if x.op == "mul"):
        for own, quotient in (product.args, product.args[::-1]):
            shared = t.leaves(own)
            divisors = (t.leaves(x.args[1]) for x in t.inside([quotient]) if x.op == "div")
            if shared and any(shared | {main} <= leaves for leaves in divisors):
                return True
    return False


def _whole(blocks: Term, main: Term, block: set[Term]) -> bool:
    """Whether a size comes into a dimension without being divided into blocks or tiles."""
    stack = [blocks]
    while stack:
        item = stack.pop()
        if item is main:
            return True
        if item.op in _TESTS:
            continue
        if item.op in ("div", "shr"):
            divisor = item.args[1]
            if all(x in block or x.data.kind in _CONSTANTS for x in t.leaves(divisor)):
                continue
            rest = t.add(t.poly(item.args[0]), t.poly(divisor), -1)
            if len(rest) <= len(t.poly(item.args[0])):
                continue  # rounded up: by what a block or a thread is given
        stack.extend(item.args[1:] if item.op == "select" else item.args)
    return False


def _draft(launch: Launch, axis: str, what: str, count: int, sizes: dict[str, int], form: str | None) -> Draft:
    event, limit = launch.event, _LIMITS[axis]
    return Draft(
        "CL205", event.fn, event.fn.file, event.node.start, event.node.end,
        f"the grid of {event.node.kernel or 'the kernel'} {what}, more than the {digits(limit)} there may be on "
        f"{axis}: the driver refuses the launch",
        "put the long axis on x, or keep the dimension within its limit and loop over the axis in the kernel",
        Witness(sizes, None, None, None, {f"grid {axis}": count, "limit": limit}),
        launches.callers(launch), level="note" if form else None, form=form,
    )  # fmt: skip


def experiment_cl205(bench: Bench) -> Plan:
    """The launch as the host computes it, each size in turn one more than an axis takes."""
    from cudalint.confirm.experiment import Plan, oracle

    bench.harness.literal = True

    def judge(run: oracle.Run) -> oracle.Fault | None:
        over = any(extent > _LIMITS[axis] for axis, extent in zip("xyz", run.setup.grid, strict=True))
        return oracle.refused(run) if over else None

    trials = bench.together(_LIMITS["y"], _LIMITS["y"] + 1, many=1)
    return Plan(trials, judge, watch=frozenset(), refusal=True, unrun=True)
