"""CL210 chunk-per-thread: neighbouring threads that work a chunk apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudalint.facts import kernels, shapes
from cudalint.facts import terms as t
from cudalint.facts.expressions import from_poly
from cudalint.facts.ids import BID, TID
from cudalint.facts.reach import Reach
from cudalint.facts.uniformity import expand
from cudalint.findings import Witness, digits
from cudalint.ir.types import I64
from cudalint.rules import offsets, support, width
from cudalint.rules.draft import Draft

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudalint.facts.events import Access, Loop
    from cudalint.facts.model import Kernel
    from cudalint.facts.terms import Poly

CODES = ("CL210",)

_WARP, _SECTOR = 32, 32
"""Lanes of a warp, and the bytes that memory is read in: lanes that far apart share nothing."""


def check(kernel: Kernel) -> Iterator[Draft]:
    """One finding a loop: the first access that walks a chunk."""
    flow = kernel.flow
    if not flow.complete or not kernel.is_kernel or kernel.known_block("x") == 1:
        return
    told: set[int] = set()
    for loop in reversed(flow.loops):
        for access in flow.accesses:
            if loop.first <= access.seq <= loop.last and access.obj.kind == "global" and id(loop.node) not in told:
                chunk = _chunk(access, loop)
                draft = _draft(kernel, access, loop, chunk) if chunk else None
                if draft is not None:
                    told.add(id(loop.node))
                    yield draft


def _chunk(access: Access, loop: Loop) -> Poly | None:
    """Elements from one lane's to the next lane's where a thread takes one element after the other; None elsewhere."""
    if not access.scalar:
        return None
    p = expand(access.scalar)
    if shapes.coefficient(p, loop.counter) != shapes.ONE:
        return None
    chunk = shapes.coefficient(p, TID["x"])
    linear = {TID[a] for a in "xyz"} | set(BID.values())
    if any(item not in linear and not linear.isdisjoint(kernels.ids_of([item])) for item in t.atoms_of(p)):
        return None
    if not chunk or any(kernels.ids_of([x]) or x is loop.counter for x in t.atoms_of(chunk)):
        return None
    return chunk


def _draft(kernel: Kernel, access: Access, loop: Loop, chunk: Poly) -> Draft | None:
    size = access.obj.element.size if access.obj.element is not None else None
    if not size:
        return None
    least = max(2, -(-_SECTOR // size))
    apart = t.constant(chunk)
    sizes: dict[str, int] = {}
    if apart is None:
        launch = kernel.launches[0] if kernel.launches else None
        term = from_poly(chunk, I64)
        here = launch.at_launch(term) if launch is not None else term
        conditions = launch.conditions if launch is not None else ()
        reach = Reach(launch, kernel.config)
        env = offsets.sizes_over(here, least - 1, reach, kernel.config, launch, conditions)
        if env is None and not t.leaves(here):
            env = {}
        apart = width.value(here, env) if env is not None else None
        sizes = width.named(env) if env is not None else {}
    if apart is None or apart < least:
        return None
    shown = ", ".join(f"{k} = {digits(v)}" for k, v in sizes.items() if v > 1)
    span = _WARP * apart
    node = loop.node
    return Draft(
        "CL210", access.fn, access.fn.file, access.node.start, access.node.end,
        f"each thread walks a chunk of `{access.obj.name}` of its own: {f'at {shown} ' if shown else ''}neighbouring "
        f"lanes are {digits(apart)} elements apart, and the 32 accesses of a warp span {digits(span)} elements",
        "let neighbouring threads take neighbouring elements, `for (i = global index; i < n; i += all threads)`",
        Witness(sizes, None, None, None, {"elements between lanes": apart, "elements a warp spans": span}),
        ((loop.fn.file, node.start, getattr(node, "header_end", node.end), "the walk"), *support.calls(access)),
    )  # fmt: skip
