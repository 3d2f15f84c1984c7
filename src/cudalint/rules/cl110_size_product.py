"""CL110 uncast-size-product: sizes multiplied in 32 bits whose product is widened when it has already wrapped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudalint.facts import terms as t
from cudalint.facts.calls import ALLOCATIONS
from cudalint.facts.events import Record, conjuncts
from cudalint.facts.kernels import ids_of
from cudalint.facts.reach import Reach
from cudalint.findings import Witness, digits
from cudalint.ir import nodes as ir
from cudalint.ir.types import I64, Int
from cudalint.rules import offsets, support, width
from cudalint.rules.draft import Draft

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cudalint.config import Config
    from cudalint.confirm.experiment import Bench, Plan
    from cudalint.confirm.harness import Values
    from cudalint.confirm.oracle import Fault
    from cudalint.facts.events import CallEvent, Event, Flow, Operation
    from cudalint.facts.model import HostFunction, Kernel, Launch
    from cudalint.facts.terms import Term

CODES = ("CL110",)

_BYTES = ALLOCATIONS | {"malloc", "calloc", "realloc"}
_SIZED, _PASSED = _COUNTS = ("sizes a grid", "is passed to a kernel")
_COPIES = ("cudaMemcpy", "cudaMemset", "hipMemcpy", "hipMemset", "memcpy", "memset")


def check_host(host: HostFunction) -> Iterator[Draft]:
    """Products of a host function that size a launch, an allocation or a copy, or are handed to a kernel."""
    if host.decl.static and not host.launches:
        return  # judged where it is called, with the sizes that it is called with
    found: dict[int, Draft] = {}
    uses: list[tuple[Event, str, list[Term]]] | None = None
    scaled: dict[Term, set[int]] | None = None
    flow = host.flow
    for event in flow.conversions:
        if not _own(event) or not (isinstance(event.to, Int) and event.to.bits == 64):
            continue
        for product in width.products(event.term):
            if not _of_sizes(product):
                continue
            if uses is None:
                uses = list(_uses(host))
            if scaled is None:
                scaled = _scaled(flow)
            wide = t.convert(event.term, event.to)
            pedantic = id(event.node) in scaled.get(wide, ())
            # What is multiplied by `sizeof` somewhere is what counts bytes: not the same product elsewhere.
            meant = (x for x in uses if x[0].seq > event.seq and (pedantic or x[1] in _COUNTS or wide not in scaled))
            use = next(((x, how) for x, how, values in meant if _hold(values, wide)), None)
            if use is not None:
                _add(found, host.config, flow, product, event, use, pedantic=pedantic)
    for taker, how, value in _widening(host) if flow.operations else ():
        for product in width.products(value):
            if _own(taker) and _of_sizes(product):
                _add(found, host.config, flow, product, taker, (taker, how), pedantic=False)
    yield from found.values()


def _own(event: Event) -> bool:
    """Whether an event stands in the function itself, or in a lambda or a template, whose types only a call shows:
    what else it calls is judged on its own."""
    return all(site.callee.decl is None or site.callee.decl.template for site in event.stack)


def _of_sizes(product: Term) -> bool:
    """Whether a product is made of runtime sizes alone, two at least in one of its terms."""
    if not all(offsets.is_free(x) for x in t.leaves(product)):
        return False
    return any(sum(map(_is_size, made)) > 1 for made in offsets.factors(product))


def _is_size(item: Term) -> bool:
    """A size, or a size divided by a constant: not a number of blocks that something else was divided into."""
    while item.op == "cast" or (item.op in ("div", "shr") and item.args[1].op == "const"):
        item = item.args[0]
    return item.op == "atom"


def _uses(host: HostFunction) -> Iterator[tuple[Event, str, list[Term]]]:
    """What counts elements or bytes: dimensions and arguments of launches, sizes of allocations and copies."""
    mappings = {launch.event: launch.mapping for launch in host.launches if launch.kernel is not None}
    for launch in host.flow.launches:
        yield launch, _SIZED, list(launch.grid or ())
        passed = mappings.get(launch, {})
        taken = [t.convert(x, formal.type) for formal, x in passed.items() if formal.data.kind == "param"]
        yield launch, _PASSED, taken or [x for value in launch.args or () for x in _numbers(value)]
    for call in host.flow.calls:
        use, numbers = _bytes_of(call)
        yield call, use, numbers


def _bytes_of(call: CallEvent) -> tuple[str, list[Term]]:
    """What a call allocates or copies, in words and as the numbers it is given."""
    name = call.node.name.rsplit("::", 1)[-1]
    numbers = [x for x in call.args if isinstance(x, t.Term)]
    if name in _BYTES:
        return "is what is allocated", numbers if name == "calloc" else numbers[:1]
    return "is how much is copied or set", numbers if name.startswith(_COPIES) else []


def _widening(host: HostFunction) -> Iterator[tuple[Event, str, Term]]:
    """Values of 32 bits handed to what takes 64: parameters of kernels, sizes of allocations and copies."""
    for launch in host.launches:
        for formal, actual in launch.mapping.items():
            if isinstance(formal.type, Int) and formal.type.bits == 64:
                yield launch.event, _PASSED, actual
    for call in host.flow.calls:
        use, numbers = _bytes_of(call)
        for value in numbers:
            yield call, use, value


def _numbers(value: object) -> Iterator[Term]:
    if isinstance(value, Record):
        for inner in value.fields.values():
            yield from _numbers(inner)
    elif isinstance(value, t.Term):
        yield value


def _hold(values: Iterable[Term], part: Term) -> bool:
    return any(part in _parts(x) for x in values)


def _parts(term: Term) -> set[Term]:
    """What a number is computed from: not what it is divided by, what a choice hangs on, or what is cut to 32 bits
    again, where a wider product is of no use."""
    seen: set[Term] = set()
    stack = [term]
    while stack:
        item = stack.pop()
        if item in seen:
            continue
        seen.add(item)
        if item.op in ("div", "shr", "mod"):
            stack.append(item.args[0])
        elif _cuts(item) and not _is_share(item.args[0]):
            continue
        elif item.op in ("cast", "add", "sub", "mul", "neg", "min", "max", "shl", "select"):
            stack.extend(item.args[1:] if item.op == "select" else item.args)
    return seen


def _is_share(value: Term) -> bool:
    """A number of blocks, or of packs: what is left of a product, divided before anything else is made of it."""
    value = t.bare(value)
    dividend = t.bare(value.args[0]).type if value.op in ("div", "shr") else None
    return width.is_quotient(value) or (isinstance(dividend, Int) and dividend.bits == 32)


def _cuts(item: Term) -> bool:
    inner = item.args[0].type if item.op == "cast" else None
    return isinstance(inner, Int) and isinstance(item.type, Int) and item.type.bits < inner.bits


def _scaled(flow: Flow) -> dict[Term, set[int]]:
    """The values that are widened where they are multiplied by a ``sizeof``, with the ids of those operands."""
    operands: set[int] = set()
    for operation in flow.operations:
        node = operation.node
        if isinstance(node, ir.Binary) and node.op == "*":
            for side, other in ((node.left, node.right), (node.right, node.left)):
                if isinstance(other, ir.SizeOf):
                    operands.add(id(side))
    found: dict[Term, set[int]] = {}
    for event in flow.conversions:
        if id(event.node) in operands:
            found.setdefault(t.convert(event.term, event.to), set()).add(id(event.node))
    return found


def _add(
    found: dict[int, Draft], config: Config, flow: Flow, product: Term, event: Event,
    use: tuple[Event, str], *, pedantic: bool,
) -> None:  # fmt: skip
    """Adds the finding about a product, unless the same stands there as no mere form of the rule."""
    place = width.origin(flow, product, event)
    if place is None or not _own(place):
        return
    before = found.get(id(place.node))
    if before is not None and (pedantic or before.form is None):
        return
    conditions = [*conjuncts(use[0].guard), *conjuncts(event.guard)]
    reach = Reach(None, config, conditions)
    draft = _draft(product, place, reach, config, conditions, None, event, use[1])
    if draft is not None:
        found[id(place.node)] = draft._replace(form="pedantic", level="note") if pedantic else draft


# --- inside a kernel ----------------------------------------------------------------------------


def check_kernel(kernel: Kernel) -> Iterator[Draft]:
    """Products of parameters that an index is tested against in 64 bits."""
    flow = kernel.flow
    if not flow.operations or not flow.complete:
        return
    limits: set[Term] | None = None
    reported: set[int] = set()
    for event in flow.conversions:
        if not (isinstance(event.to, Int) and event.to.bits == 64):
            continue
        for product in width.products(event.term):
            if any(x.data.kind != "param" for x in t.leaves(product)) or not _of_sizes(product):
                continue
            if limits is None:
                limits = _limits(flow)
            place = width.origin(flow, product, event)
            if place is None or id(place.node) in reported or t.convert(event.term, event.to) not in limits:
                continue
            for launch in kernel.launches or (None,):
                reach = Reach(launch, kernel.config)
                conditions = launch.conditions if launch is not None else ()
                draft = _draft(
                    product, place, reach, kernel.config, conditions, launch, event, "bounds the kernel's index"
                )
                if draft is not None:
                    reported.add(id(place.node))
                    yield draft
                    break


def _limits(flow: Flow) -> set[Term]:
    """All that launch ids are compared with."""
    found: set[Term] = set()
    for event in flow.comparisons:
        for side, other in ((event.left, event.right), (event.right, event.left)):
            if ids_of([other]) and not ids_of([side]):
                found |= _parts(side)
    return found


# --- the finding --------------------------------------------------------------------------------


def _draft(
    product: Term, place: Operation, reach: Reach, config: Config, conditions: Iterable[Term], launch: Launch | None,
    event: Event, use: str,
) -> Draft | None:  # fmt: skip
    assert isinstance(product.type, Int)
    top = product.type.hi
    here = launch.at_launch(product) if launch is not None else product
    if reach.index(t.poly(product)) <= top:
        return None
    env = offsets.sizes_over(here, top, reach, config, launch, conditions)
    if env is None:
        return None
    wrapped, meant = width.value(here, env), width.value(here, env, exact=False)
    if wrapped is None or meant is None or wrapped == meant:
        return None
    sizes = width.named(env)
    shown = {k: v for k, v in sizes.items() if v > 1} or sizes
    text = support.text(place.fn, place.node)
    inside = width.inside(place.node, event.node) and place.fn is event.fn
    related = () if inside else ((event.fn.file, event.node.start, event.node.end, "widened here, too late"),)
    return Draft(
        "CL110", place.fn, place.fn.file, place.node.start, place.node.end,
        f"`{text}` is computed in 32 bits and widened afterwards, and {use}: at "
        f"{', '.join(f'{k} = {digits(v)}' for k, v in shown.items())} it wraps to {digits(wrapped)} instead of "
        f"{digits(meant)}",
        "cast the first factor: `(size_t)width * height`",
        Witness(sizes, None, None, None, {"product in 32 bits": wrapped, "product meant": meant}),
        (*related, *support.calls(place)),
        fix=offsets.cast_first(place.fn, place.node) if inside and not _cut_again(place) else None,
    )  # fmt: skip


def _cut_again(place: Operation) -> bool:
    """Whether the wide variable that a product is kept in goes on, not divided, into one of 32 bits: with the product
    alone widened, that one would wrap."""
    from cudalint.rules.edits import body_of
    from cudalint.rules.widening import holder, is_narrow

    wide = holder(place.fn, place.node)
    if wide is None or is_narrow(wide.type):
        return False
    for node in body_of(place.fn).nodes:
        target = node.target if isinstance(node, ir.Assign) else node
        value = node.value if isinstance(node, ir.Assign) else node.init if isinstance(node, ir.VarDecl) else None
        narrow = isinstance(target, (ir.Ref, ir.VarDecl)) and is_narrow(target.var.type)
        if narrow and value is not None and _carries(value, wide):
            return True
    return False


def _carries(value: ir.Expr, wide: ir.Var) -> bool:
    """Whether a value grows with a variable: by sums and products."""
    if isinstance(value, ir.Cast):
        return _carries(value.operand, wide)
    if isinstance(value, ir.Binary) and value.op in ("+", "-", "*", "<<"):
        return _carries(value.left, wide) or _carries(value.right, wide)
    return isinstance(value, ir.Ref) and value.var is wide


def experiment_cl110(bench: Bench) -> Plan:
    """What the host computes from two sizes of 46,341 or 65,536, then what the kernel makes of them."""
    from cudalint.confirm.experiment import Plan, oracle

    places = [
        (place.fn.file, place.node.start, place.node.end)
        for place in bench.kernel.flow.operations
        if isinstance(place.term.type, Int) and place.term.type.bits == 32 and _of_sizes(place.term)
    ]
    judge = oracle.first_of(oracle.refused, *([lambda run: oracle.wraps(run, places)] if places else []))

    def host(values: Values) -> Fault | None:
        return bench.narrowed(values) or _bytes(bench, values)

    return Plan(bench.together(3, 46341, 65536), judge, watch=frozenset(), refusal=True, host=host)


def _bytes(bench: Bench, host: Values) -> Fault | None:
    """What is allocated for the kernel's buffers, where the mathematical value is another."""
    from cudalint.confirm.experiment import oracle

    for obj, pointer in bench.launch.objects().items() if bench.launch is not None else ():
        if pointer.obj.bytes is not None:
            size = t.convert(pointer.obj.bytes, I64)
            kept, meant = width.value(size, host), width.value(size, host, exact=False)
            if kept is not None and meant is not None and kept != meant:
                return oracle.Fault("wrap", f"`{obj.name}` is allocated with {kept} bytes, {meant} were meant")
    return None
