"""CL107 narrow-offset: an offset into global memory multiplied in 32 bits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudalint.facts import terms as t
from cudalint.facts.kernels import ids_of
from cudalint.facts.reach import Reach
from cudalint.findings import Witness, digits
from cudalint.ir.types import Int
from cudalint.rules import offsets, support, width
from cudalint.rules.draft import Draft

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudalint.confirm.experiment import Bench, Plan
    from cudalint.facts.events import Access
    from cudalint.facts.model import Kernel
    from cudalint.facts.terms import Term

CODES = ("CL107",)

_GRID = frozenset({"bdim", "gdim"})


def check(kernel: Kernel) -> Iterator[Draft]:
    """One finding a product: the first access that it takes part in and at which it can wrap."""
    flow = kernel.flow
    if not flow.operations or not flow.complete:
        return
    reported: set[int] = set()
    tried: set[tuple[Term, int]] = set()
    for access in flow.accesses:
        if access.obj.kind != "global" or access.index is None:
            continue
        for product in _narrow(access.index):
            if (product, id(access.guard)) in tried or not _is_offset(product):
                continue
            tried.add((product, id(access.guard)))
            place = width.origin(flow, product, access)
            if place is None or id(place.node) in reported:
                continue
            found = _wrapping(kernel, access, product)
            if found is None:
                continue
            reported.add(id(place.node))
            sizes, kept, meant = found
            shown = ", ".join(f"{k} = {digits(v)}" for k, v in sizes.items() if v > 1)
            yield Draft(
                "CL107", place.fn, place.fn.file, place.node.start, place.node.end,
                f"`{support.text(place.fn, place.node)}` is computed in 32 bits and addresses `{access.obj.name}`: "
                f"{f'at {shown} ' if shown else ''}it wraps to {digits(kept)} instead of {digits(meant)}",
                "cast the first factor: `(size_t)row * width`",
                Witness(sizes, None, None, None, {"product in 32 bits": kept, "product meant": meant}),
                (*support.calls(place), *support.launched_at(kernel)),
                fix=offsets.cast_first(place.fn, place.node),
            )  # fmt: skip


def _narrow(index: Term) -> Iterator[Term]:
    """The products of 32 bits that an index is made of."""
    stack, seen = [index], set()
    while stack:
        item = stack.pop()
        if item in seen:
            continue
        seen.add(item)
        if isinstance(item.type, Int) and item.type.bits == 32:
            yield from width.products(item)
        elif item.op in ("add", "sub", "mul", "cast", "select", "min", "max"):
            stack.extend(item.args[1:] if item.op == "select" else item.args)


def _is_offset(product: Term) -> bool:
    """A product of two sizes, of an index and a size, or of a thread's index and a constant; what launch dimensions
    alone make is CL101's and CL102's."""
    for made in offsets.factors(product):
        sizes = sum(1 for x in made if any(offsets.is_free(y) for y in t.leaves(x)))
        if sizes > 1 or (sizes == 1 and len(made) > 1 and any(_indexes(x) for x in made)):
            return True
    scaled = all(c > 1 for m, c in t.poly(product).items() if m)
    return scaled and any(x.data.kind == "bid" for x in ids_of([product]))


def _indexes(item: Term) -> bool:
    return any(x.data.kind in ("tid", "bid", "loop") for x in t.leaves(item))


def _wrapping(kernel: Kernel, access: Access, product: Term) -> tuple[dict[str, int], int, int] | None:
    """Sizes at which the product of the last thread that gets to the access wraps, with what it is and should be."""
    assert isinstance(product.type, Int)
    type_ = product.type
    largest = offsets.highest(kernel.layout, access, t.poly(product))
    if largest is None:
        return None
    for launch in kernel.launches or (None,):
        reach = Reach(launch, kernel.config)
        if reach.index(t.poly(largest)) <= type_.hi:
            continue
        here = launch.at_launch(largest) if launch is not None else largest
        conditions = [
            *(launch.conditions if launch is not None else ()), *offsets.reached(kernel.layout, access, launch),
        ]  # fmt: skip
        env = offsets.sizes_over(here, type_.hi, reach, kernel.config, launch, conditions)
        meant = width.value(here, env, exact=False) if env is not None else None
        if env is not None and meant is not None:
            return width.named(env), type_.wrap(meant), meant
    return None


def experiment_cl107(bench: Bench) -> Plan:
    """The last blocks where two sizes multiply to more than 32 bits hold: whether a product in an address wraps."""
    from cudalint.confirm.experiment import Plan, oracle

    alone = len(bench.harness.sizes) < 2
    trials = bench.sparse(5, (1 << 31) - 64, (1 << 32) + 1) if alone else bench.together(5, 46342, 65538)
    places = [
        (place.fn.file, place.node.start, place.node.end)
        for place in bench.kernel.flow.operations
        if isinstance(place.term.type, Int) and place.term.type.bits == 32 and _is_offset(place.term)
    ]

    def judge(run: oracle.Run) -> oracle.Fault | None:
        return oracle.wraps(run, places) if places else None

    return Plan(trials, judge, watch=frozenset())
