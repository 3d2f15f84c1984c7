"""Which launch ids a kernel asks for: what no number of a block tells apart, each block does, and what it does then
that does not come to the same when it is done again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudalint.facts import kernels
from cudalint.facts import terms as t
from cudalint.facts.assigned import children
from cudalint.ir import nodes as ir

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudalint.facts.events import Access, Obj
    from cudalint.facts.model import Kernel
    from cudalint.facts.terms import Term
    from cudalint.ir.nodes import Function


_ACCUMULATING = frozenset({"add", "sub", "mul", "div", "xor", "shl", "shr"})
_ATOMICS = ("atomicAdd", "atomicSub", "atomicInc", "atomicDec", "atomicXor")


def ids(kernel: Kernel) -> set[tuple[str, str]] | None:
    """The launch ids, as ("blockIdx", "x"), that the kernel and what it calls ask for; None where that cannot be
    told."""
    result: set[tuple[str, str]] = set()
    for item in _nodes(kernel):
        if isinstance(item, ir.Special):
            for axis in item.axis or kernels.AXES:
                result.add((item.which, axis))
        elif isinstance(item, (ir.Opaque, ir.OpaqueStmt)):
            return None
        elif isinstance(item, ir.Call) and "this_" in item.name:
            return None  # a group that knows its rank
        elif isinstance(item, ir.Call) and item.target is None and item.receiver is not None:
            return None  # an object that may
    return result


def _nodes(kernel: Kernel) -> Iterator[object]:
    """What the kernel and the functions that it calls are made of."""
    bodies: list[Function] = [kernel.function]
    bodies.extend(decl.lower({}) for decl in kernel.flow.callees)
    stack: list[object] = [fn.body for fn in bodies]
    while stack:
        item = stack.pop()
        yield item
        stack.extend(children(item))


def accumulations(kernel: Kernel) -> list[Access]:
    """Accesses of global memory after which an element depends on what it was: done twice, they come to something
    else than done once."""
    touched = [a for a in kernel.flow.accesses if a.obj.kind == "global"]
    read = {(a.obj, tuple((a.scalar or {}).items())) for a in touched if a.mode == "r"}
    atomic = _accumulated(kernel) if any(a.mode == "atomic" for a in touched) else set()
    return [a for a in touched if id(a.node) in atomic or _depends(a, read)]


def _depends(access: Access, read: set[tuple[Obj, tuple[tuple[tuple[Term, ...], int], ...]]]) -> bool:
    value = access.value
    if access.mode not in ("w", "rw") or value is None or value.op not in _ACCUMULATING:
        return False
    own = access.mode == "rw" or (access.obj, tuple((access.scalar or {}).items())) in read
    return own and any(x.data.kind == "load" and x.data.data in (access.obj, None) for x in t.leaves(value))


def _accumulated(kernel: Kernel) -> set[int]:
    """The places, by their node's id, that an atomic function adds to."""
    calls = [x for x in _nodes(kernel) if isinstance(x, ir.Call) and x.name.startswith(_ATOMICS) and x.args]
    places = [x.args[0] for x in calls]
    return {id(x.operand if isinstance(x, ir.AddrOf) else x) for x in places}


def draws_work(touched: list[Access]) -> bool:
    """Whether blocks may draw their work from an atomic counter: one is there, and an address follows data that
    threads hand round (what one thread drew reaches the others through shared memory or a shuffle)."""
    counter = any(a.mode == "atomic" and not kernels.ids_of(t.atoms_of(a.scalar or {})) for a in touched)
    return counter and any(
        leaf.data.kind in ("load", "call") for a in touched for x in t.atoms_of(a.scalar or {}) for leaf in t.leaves(x)
    )
