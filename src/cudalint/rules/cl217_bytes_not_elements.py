"""CL217 bytes-not-elements: a count of elements where bytes are due."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cudalint.facts import search
from cudalint.facts import terms as t
from cudalint.facts import witness as w
from cudalint.facts.events import Pointer, conjuncts
from cudalint.facts.expressions import from_poly
from cudalint.facts.model import Launch
from cudalint.facts.uniformity import expand
from cudalint.findings import Witness, digits, plural
from cudalint.ir import nodes as ir
from cudalint.ir.types import I64, Ptr
from cudalint.lazy import NamedTuple, pattern
from cudalint.rules import launches, support
from cudalint.rules.draft import Draft, EditDraft, FixDraft

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cudalint.confirm.experiment import Bench, Plan
    from cudalint.confirm.harness import Values
    from cudalint.confirm.oracle import Fault, Flagged, Run
    from cudalint.facts.events import CallEvent, Flow
    from cudalint.facts.model import HostFunction
    from cudalint.facts.terms import Poly, Term
    from cudalint.ir.types import Type

CODES = ("CL217",)

#: Where the calls take their bytes, and which arguments point to the memory.
_ALLOCATIONS = {"cudaMalloc", "cudaMallocManaged", "cudaMallocAsync", "cudaMallocHost", "cudaHostAlloc",
                "hipMalloc", "hipMallocManaged", "hipMallocAsync"}  # fmt: skip
_COPIES = {"cudaMemcpy", "cudaMemcpyAsync", "hipMemcpy", "hipMemcpyAsync"}
_SETS = {"cudaMemset", "cudaMemsetAsync", "hipMemset", "hipMemsetAsync"}
_BYTES = pattern(r"byte|sizeof|mem(?:ory)?_?size|pitch", re.IGNORECASE)


class Memory(NamedTuple):
    """A call that is given bytes: ``names`` are the pointers, ``element`` the size of what they point to."""

    event: CallEvent
    given: Term
    node: ir.Expr
    names: tuple[str, ...]
    element: int
    allocates: bool
    pointer: str
    """One of the names whose type says what it points to."""


class Miscount(NamedTuple):
    """A call whose bytes are a count of elements, as ``other`` shows."""

    memory: Memory
    other: CallEvent | Launch


def check(host: HostFunction) -> Iterator[Draft]:
    for found in miscounts(host.flow, host.launches):
        draft = _draft(found)
        if draft is not None:
            yield draft


def miscounts(flow: Flow, launched: Sequence[Launch]) -> Iterator[Miscount]:
    """The calls of a host function that are given a number which elsewhere counts elements."""
    calls = [x for x in (_memory(event) for event in flow.calls) if x is not None]
    for memory in calls:
        if memory.element < 2 or _BYTES.search(_spelled(memory)):
            continue
        count = t.poly(memory.given)
        if not count or any(x.op != "atom" for x in t.atoms_of(count)):
            continue
        other = _elements_by_call(memory, count, calls) or _elements_by_launch(memory, count, launched)
        if other is not None:
            yield Miscount(memory, other)


def _memory(event: CallEvent) -> Memory | None:
    name = event.node.name.rsplit("::", 1)[-1]
    at = 1 if name in _ALLOCATIONS else 2 if name in _COPIES or name in _SETS else 0
    if not at or len(event.args) <= at or not isinstance(given := event.args[at], t.Term):
        return None
    if at == 1:
        pointers = [_pointee(event.node.args[0])]
    else:
        pointers = [_bare(x) for x in event.node.args[: 2 if name in _COPIES else 1]]
    sizes, names, pointer = set(), [], ""
    for node, value in zip(pointers, event.args):
        element = _element(node.type) if node is not None else None
        if element is None and at == 2 and isinstance(value, Pointer) and value.obj.element is not None:
            element = value.obj.element.size
        if element:
            sizes.add(element)
        if isinstance(node, ir.Ref):
            names.append(node.var.name)
            if _element(node.type):
                pointer = pointer or node.var.name
    if len(sizes) != 1:
        return None
    return Memory(event, given, event.node.args[at], tuple(names), sizes.pop(), at == 1, pointer)


def _bare(node: ir.Expr) -> ir.Expr:
    while isinstance(node, ir.Cast):
        node = node.operand
    return node


def _pointee(node: ir.Expr) -> ir.Expr | None:
    """``p`` in ``(void **)&p``."""
    inner = _bare(node)
    return inner.operand if isinstance(inner, ir.AddrOf) else None


def _element(type_: Type) -> int | None:
    return type_.element.size if isinstance(type_, Ptr) else None


def _elements_by_call(memory: Memory, count: Poly, calls: list[Memory]) -> CallEvent | None:
    """Another call that is given as many bytes as so many elements have: for the same pointer where the count is a
    known number, which may be anything."""
    known = t.constant(count) is not None
    for other in calls:
        same = not set(memory.names).isdisjoint(other.names)
        if (
            other is memory
            or other.element < 2
            or other.event.fn is not memory.event.fn
            or (known and not (same and other.element == memory.element))
        ):
            continue
        # Two known numbers may be four times each other by chance: one has to be written by way of the other.
        if t.poly(other.given) == t.scale(count, other.element) and not (known and not _written_with(other, memory)):
            return other.event
    return None


def _written_with(other: Memory, memory: Memory) -> bool:
    """Whether the bytes of one call are written with what the other is given: ``N * sizeof(float)`` beside ``N``."""
    return set(re.findall(r"\w+", _source(memory.event, memory.node))) <= set(re.findall(r"\w+", _spelled(other)))


def _spelled(memory: Memory) -> str:
    """The bytes as written, and what the variable that holds them begins with."""
    node = _bare(memory.node)
    init = node.var.init if isinstance(node, ir.Ref) else None
    return " ".join(_source(memory.event, x) for x in (node, init) if x is not None)


def _source(event: CallEvent, node: ir.Expr) -> str:
    """What stands in the file, macros by their names."""
    first, last = event.fn.file.origin(node.start, node.end)
    return " ".join(event.fn.file.raw[first:last].decode("utf-8", "replace").split())


def _elements_by_launch(memory: Memory, count: Poly, launched: Sequence[Launch]) -> Launch | None:
    """A launch whose kernel gets the pointer and goes over so many elements of it."""
    for launch in launched:
        if launch.kernel is None or not launch.kernel.flow.complete:
            continue
        mine = {obj for obj, p in launch.objects().items() if p.obj.name in memory.names and not p.pieces}
        for item in launch.kernel.layout.coordinates:
            if t.poly(launch.at_launch(from_poly(item.limit, I64))) != count:
                continue
            # One element for each index, of the very type: not a byte, a word or a vector of another view.
            if any(
                a.obj in mine and a.width == 1 and a.scalar is not None and _covers(a.scalar, item.index)
                and a.element is not None and a.element.size == memory.element for a in item.accesses
            ):  # fmt: skip
                return launch
    return None


def _covers(p: Poly, index: Poly) -> bool:
    return t.constant(t.add(expand(p), index, -1)) is not None


def _draft(found: Miscount) -> Draft | None:
    memory, event = found.memory, found.memory.event
    leaves = search.ordered([memory.given], [])
    if not all(search.is_size(x) or x.data.kind == "device" for x in leaves):
        return None

    def goal(env: w.Assignment) -> bool:
        return int(t.evaluate(memory.given, env)) > memory.element

    env = w.solve(goal, leaves, given=list(conjuncts(event.guard)), extra=(memory.element + 1,))
    if env is None:
        return None
    count = int(t.evaluate(memory.given, env))
    first = count // memory.element
    names = launches.words(env)
    at = f"at {names} " if names else ""
    what = _source(event, memory.node)
    who = f"`{memory.names[0]}`" if memory.names else "the array"
    effect = (
        f"{who} has room for {plural(first, 'element')}, and element {digits(first)} is outside"
        if memory.allocates
        else f"{_first(first, count)} handled, and element {digits(first)} is not"
    )
    other = found.other
    place = (
        launches.launched(other) if isinstance(other, Launch)
        else (other.fn.file, other.node.start, other.node.end, f"`{what}` counts elements here")
    )  # fmt: skip
    return Draft(
        "CL217", event.fn, event.fn.file, event.node.start, event.node.end,
        f"{event.node.name} is given `{what}`, a count of elements of {memory.element} bytes each: {at}{effect}",
        f"pass bytes: `{what} * sizeof(*{memory.names[0] if memory.names else 'p'})`",
        Witness(search.sizes_of(env), values={"bytes": count, "elements": count, "first element outside": first}),
        (place, *support.calls(event)),
        fix=_scaled(memory),
    )  # fmt: skip


def _scaled(memory: Memory) -> FixDraft | None:
    """The count times the size of what the pointer points to; in a copy or a fill, more is touched than before."""
    event, node = memory.event, memory.node
    if not memory.pointer:
        return None
    start, end = node.start, node.end
    if isinstance(node, (ir.Binary, ir.Cond)):
        opened, closed = "(", f") * sizeof(*{memory.pointer})"
    else:
        opened, closed = "", f" * sizeof(*{memory.pointer})"
    if event.fn.file.text[:start].rstrip().endswith(b"(") and event.fn.file.text[end:].lstrip().startswith(b")"):
        opened, closed = "", closed.removeprefix(")")  # in parentheses of its own, or the last argument
        if isinstance(node, (ir.Binary, ir.Cond)):
            return None
    changes = [EditDraft(event.fn.file, end, end, closed)]
    if opened:
        changes.insert(0, EditDraft(event.fn.file, start, start, opened))
    return FixDraft(memory.allocates, "pass bytes", tuple(changes))


def _first(handled: int, count: int) -> str:
    if handled == 1:
        return f"the first of {plural(count, 'element')} is"
    return f"{plural(handled, 'element')} of {digits(count)} are"


def experiment_cl217(bench: Bench) -> Plan:
    """Accesses outside of buffers as large as the host allocates; of copies and fills, what they leave out. Where one
    call is flagged, of its own buffer, and what it leaves out itself."""
    from cudalint.confirm.experiment import Plan, oracle

    launch = bench.launch
    calls = [] if launch is None else [x.memory for x in miscounts(launch.flow, [launch])]
    names = None
    if launch is not None and bench.flagged is not None:
        calls = [x for x in calls if _stands_at(x.event, bench.flagged)]
        own = {name for x in calls if x.allocates for name in x.names}
        names = {obj.name for obj, p in launch.objects().items() if p.obj.name in own}
    found = [x for x in calls if not x.allocates]

    def judge(run: Run) -> Fault | None:
        return oracle.outside(run, names=names)

    def host(values: Values) -> Fault | None:
        for memory in found:
            try:
                count = int(t.evaluate(memory.given, values))
            except t.Undefined:
                continue
            first = count // memory.element
            if count > 0:
                text = (
                    f"{memory.event.node.name} handles {first} of {plural(count, 'element')}:"
                    f" element {first} is left as it was"
                )
                return oracle.Fault("stale-read", text, first)
        return None

    return Plan(bench.trials(), judge, first=("first element outside",), host=host)


def _stands_at(event: CallEvent, flagged: Flagged) -> bool:
    return (event.fn.file, event.node.start, event.node.end) == flagged[:3]
