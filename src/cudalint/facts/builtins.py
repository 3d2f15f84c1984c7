"""What a call of a function outside the project does: barriers, collectives, atomics, arithmetic, checks."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any

from cudalint.facts import terms as t
from cudalint.facts.calls import (
    ALLOCATIONS,
    ASSERTION_OPERATORS,
    AT_MOST,
    ATOMICS,
    BLOCK_BARRIERS,
    DEVICE_QUERIES,
    LAUNCH_ERRORS,
    LEGACY_COLLECTIVES,
    NO_RETURN,
    PURE,
    ROUNDING,
    THREAD_RESULTS,
    WAITS,
    WARP_COLLECTIVES,
    WARP_UNIFORM_RESULTS,
    is_assertion,
)
from cudalint.facts.events import Barrier, Collective, Pointer, Record
from cudalint.facts.ids import SPECIALS
from cudalint.facts.terms import THREAD, UNIFORM, UNKNOWN, WARP_UNIFORM, Term, const
from cudalint.frontend.fold import fold
from cudalint.ir import nodes as ir
from cudalint.ir.types import BOOL, I32, I64, U32, U64, Float, Int, Struct
from cudalint.lazy import pattern

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudalint.facts.events import Value
    from cudalint.facts.expressions import Expressions as Walker

_CUB_BLOCK = pattern(
    r"\bBlock(Reduce|Scan|Load|Store|Exchange|RadixSort|RadixRank|Discontinuity|AdjacentDifference|Histogram"
    r"|MergeSort|Shuffle|RunLengthDecode)\b"
)
_CUB_WARP = pattern(r"\bWarp(Reduce|Scan|Exchange|Load|Store|MergeSort)\b")
_GROUP_SCOPES = {
    "grid_group": "grid", "cluster_group": "cluster", "thread_block_tile": "warp", "coalesced_group": "warp",
    "thread_block": "block",
}  # fmt: skip
_LOADS = frozenset({"__ldg", "__ldcg", "__ldca", "__ldcs", "__ldlu", "__ldcv"})
_STORES = frozenset({"__stcg", "__stwb", "__stcs", "__stwt"})
_AXES = "xyz"
_SHUFFLE = pattern(r"shfl(?:_(down|up|xor))?")
_TILE = pattern(r"thread_block_tile<\s*(\d+)")
_LOGICAL_WARP = pattern(r"Warp\w+<[^<>]*,\s*(\d+)\s*>")
TENSORS = frozenset({"empty", "zeros", "ones", "full", "rand", "randn"})
_GROUP_SIZES = frozenset({"size", "num_threads", "dim_threads", "num_blocks", "dim_blocks", "group_dim"})
"""How large a group is, which all its threads are told alike."""
_EXTENTS = frozenset({"size", "length", "numel", "rows", "cols", "width", "height"})
"""Methods that say how large an object is (``size(0)``: along one of its axes)."""
_BLOCK_THREADS = pattern(r"Block\w+<[^<>,]*(?:<[^<>]*>)?[^<>,]*,\s*(\d+)\s*[,>]")
"""The second template argument, after the type."""
_ALL_LANES = 0xFFFFFFFF


def group_scope(type_name: str) -> str | None:
    """The scope of a cooperative group by its type's name; None for anything else."""
    for name, scope in _GROUP_SCOPES.items():
        if name in type_name:
            return scope
    return None


def known_call(walker: Walker, node: ir.Call, name: str) -> Value:
    """The value of a call that cannot be walked, with its effects recorded on ``walker``."""
    if node.receiver is not None:
        return _method(walker, node, name)
    handler = _HANDLERS.get(name)
    if handler is not None:
        return handler(walker, node, name)  # type: ignore[no-any-return]  # by name
    if name.startswith("make_") and isinstance(node.type, Struct) and len(node.args) == len(node.type.fields or ()):
        return walker.value(ir.Construct(node.start, node.end, node.type, node.args))  # `make_int2(w, h)`
    args = [walker.value(a) for a in node.args]
    if name in PURE or name.startswith(("make_", "__float2", "__double2", "__int2", "__uint2", "__half2", "__ll2")):
        terms = tuple(a for a in args if isinstance(a, Term))
        if isinstance(node.type, (Int, Float)) and len(terms) == len(args):
            return t.make("call", node.type, *terms, data=name)
        return walker.unknown_value("call", name, node.type, inputs=terms)
    if name in ("printf", "fprintf", "__threadfence", "__threadfence_block", "__threadfence_system", "__prof_trigger"):
        return walker.fresh("call", name, node.type)
    if name == "sync" and node.args:
        return _sync(walker, node, str(node.args[0].type))
    if name == "reduce" and len(args) == 3 and group_scope(str(node.args[0].type)) == "warp":
        event: Collective = walker.event(Collective, node)
        value = args[1] if isinstance(args[1], Term) else None
        _exchange(walker, event, "cg::reduce", value, _tile_lanes(str(node.args[0].type)), reads="all")
        return walker.fresh("call", name, node.type, level=WARP_UNIFORM)
    if is_assertion(name) and (args[0] in walker.answers if args else "launch" in name.lower()):
        walker.started(walker.answers[args[0]] if args else walker.flow.launches, node)
    elif is_assertion(name) and args and _assertion(walker, node, name, args):
        return walker.fresh("call", name, node.type)
    return walker.unseen(node, args)


def _assertion(walker: Walker, node: ir.Call, name: str, args: list[Value]) -> bool:
    """What a check macro states, taken as a guard; False where its argument is no condition."""
    lowered = name.lower()
    for suffix, operator in ASSERTION_OPERATORS.items():
        if lowered.endswith(suffix) and len(args) >= 2 and isinstance(args[0], Term) and isinstance(args[1], Term):
            walker.push(t.compare(operator, args[0], args[1]), "assert", node)
            return True
    first = args[0]
    if not isinstance(first, Term):
        return False
    # `assert(n)` states that n is not 0; `check(status)` most likely the contrary.
    if first.op not in ("lt", "le", "eq", "ne", "land", "lor", "lnot", "const"):
        states = ("assert" in lowered or name.isupper()) and isinstance(first.type, Int)
        if not states or any(x.data.kind in ("call", "unknown") for x in t.leaves(first)):
            return False
    # `check(cudaMalloc(...) == cudaSuccess)` states nothing of sizes, and costs nothing.
    walker.push(t.truth(first), "assert", node)
    return True


def _no_return(walker: Walker, node: ir.Call, name: str) -> Value:
    for arg in node.args:
        walker.value(arg)
    walker.alive, walker.last_exit = False, "return"
    return walker.fresh("call", name, node.type)


def _block_barrier(walker: Walker, node: ir.Call, name: str) -> Value:
    args = [walker.term(walker.value(arg)) for arg in node.args]
    _barrier(walker, node, name, "block")
    result = walker.fresh("call", name, node.type, level=UNIFORM)
    return walker.vote(name, result, args[0]) if args else result


def _barrier(
    walker: Walker, node: ir.Expr, name: str, scope: str, collective: bool = False, value: Term | None = None,
    threads: int | None = None,
) -> None:  # fmt: skip
    event: Barrier = walker.event(Barrier, node)
    event.scope, event.name, event.collective, event.value = scope, name, collective, value
    event.threads = threads
    walker.flow.barriers.append(event)
    walker.epoch += 1


def _sync(walker: Walker, node: ir.Call, type_name: str) -> Value:
    scope = group_scope(type_name)
    if scope is None:
        for arg in node.args:
            walker.value(arg)
        return walker.unknown_value("call", node.name, node.type, level=UNKNOWN)
    _barrier(walker, node, "sync", scope)
    if scope == "warp":
        _exchange(walker, walker.event(Collective, node), "sync", None, _tile_lanes(type_name))
    return walker.fresh("call", node.name, node.type)


def _collective(walker: Walker, node: ir.Call, name: str) -> Value:
    args = [walker.term(walker.value(a)) for a in node.args]
    event: Collective = walker.event(Collective, node)
    masked = name not in LEGACY_COLLECTIVES
    position = WARP_COLLECTIVES.get(name) if masked else 0
    mask = args[0] if masked and args else const(_ALL_LANES, U32) if name == "__syncwarp" else None
    value = args[position] if position is not None and position < len(args) else None
    _exchange(walker, event, name, value, 32, mask=mask, operands=args[2 if masked else 1 :])
    if name == "__syncwarp":
        _barrier(walker, node, name, "warp")
        return walker.fresh("call", name, node.type)
    if name in WARP_UNIFORM_RESULTS or name in ("__ballot", "__any", "__all"):
        result = walker.fresh("call", name, node.type, level=WARP_UNIFORM)
        return walker.vote(name, result, value) if value is not None else result
    lane = args[2] if masked and len(args) > 2 else args[1] if not masked and len(args) > 1 else None
    if name in ("__shfl_sync", "__shfl") and lane is not None and lane.op == "const":
        return walker.fresh("call", name, node.type, level=WARP_UNIFORM)
    return walker.fresh("call", name, node.type, level=THREAD)


def _exchange(
    walker: Walker, event: Collective, name: str, value: Term | None, lanes: int | None, *, mask: Term | None = None,
    operands: Sequence[Term] = (), reads: str | None = None,
) -> None:  # fmt: skip
    """Records a warp collective; what a shuffle reads is told by its name."""
    if reads is None:
        found = _SHUFFLE.search(name)
        reads = (found[1] or "index") if found is not None else ""
    event.name, event.mask, event.value, event.lanes, event.reads = name, mask, value, lanes, reads
    event.operand = operands[0] if operands and reads else None
    event.width = operands[1] if len(operands) > 1 and reads else None
    walker.flow.collectives.append(event)


def _atomic(walker: Walker, node: ir.Call, name: str) -> Value:
    args = [walker.value(a) for a in node.args]
    if args and isinstance(args[0], Pointer):
        value = args[1] if len(args) > 1 else None
        pointer = args[0]
        target = node.args[0]
        place = target.operand if isinstance(target, ir.AddrOf) else target
        if pointer.obj.kind != "var":
            walker.store(pointer, place, value, "atomic")
    return walker.unknown_value("call", name, node.type, node, level=THREAD)


def _extremum(walker: Walker, node: ir.Call, name: str) -> Value:
    args = [walker.value(a) for a in node.args]
    op = "max" if "max" in name else "min"
    type_ = node.type if isinstance(node.type, (Int, Float)) else None
    if len(args) >= 2 and isinstance(args[0], Term) and isinstance(args[1], Term):
        a, b = args[0], args[1]
        if type_ is not None:
            a, b = walker.convert(a, type_, node.args[0]), walker.convert(b, type_, node.args[1])
        return t.binary(op, a, b, type_ or (a.type if a.type is b.type else None))
    if len(args) == 1 and isinstance(node.args[0], ir.Construct):
        items = [walker.value(a) for a in node.args[0].args]
        terms = [a for a in items if isinstance(a, Term)]
        if terms and len(terms) == len(items):
            result = terms[0]
            for item in terms[1:]:
                result = t.binary(op, result, item, result.type)
            return result
    return walker.unknown_value("call", name, node.type, inputs=tuple(a for a in args if isinstance(a, Term)))


def _ceil_div(walker: Walker, node: ir.Call, name: str) -> Value:
    """The division that rounds up of PyTorch, of two numbers of one type, and of CUDA, which adds nothing before."""
    args = [walker.value(a) for a in node.args]
    terms = [x for x in args if isinstance(x, Term)]
    if node.name.removeprefix("::") == "cuda::ceil_div" and len(terms) == 2 and isinstance(node.type, Int):
        number, by = (walker.convert(x, node.type, a) for x, a in zip(terms, node.args))
        rest = t.compare("!=", t.binary("mod", number, by, node.type), t.const(0, node.type))
        return t.binary("add", t.binary("div", number, by, node.type), t.convert(rest, node.type), node.type)
    if name == "ceil_div" and not node.name.startswith("at::"):
        return walker.unseen(node, args)  # somebody else's
    if len(args) != 2 or len(terms) != 2 or not isinstance(type_ := terms[0].type, Int):
        return walker.unseen(node, args)
    number, by = terms[0], walker.convert(terms[1], type_, node.args[1])
    return t.binary("div", t.binary("add", number, t.binary("sub", by, t.const(1, type_), type_), type_), by, type_)


def _length(walker: Walker, node: ir.Call, _name: str) -> Value:
    """``strlen``: of a literal the number of its characters."""
    args = [walker.value(a) for a in node.args]
    literal: Value | None = args[0] if len(args) == 1 else None
    if isinstance(literal, Pointer) and not literal.pieces and len(literal.obj.origin) == 1:
        literal = literal.obj.origin[0]
    said = literal.data.data if isinstance(literal, Term) and literal.op == "atom" else None
    # One with a prefix is kept as it is written; what escapes stand for is not looked up.
    if isinstance(said, ir.Const) and said.value != said.text:
        text = said.value
        if isinstance(text, str) and "\\" not in text:
            return const(len(text.encode()), U64)
    return walker.unseen(node, args)


def _multiply(walker: Walker, node: ir.Call, name: str) -> Value:
    type_ = U32 if name == "__umul24" else I32
    args = [walker.convert(walker.term(walker.value(a)), type_, a) for a in node.args]
    if len(args) != 2:
        return walker.fresh("unknown", name, type_)
    term = t.binary("mul", args[0], args[1], type_)
    walker.operation(term, node)
    return term


def _rounding(walker: Walker, node: ir.Call, name: str) -> Value:
    args = [walker.term(walker.value(a)) for a in node.args]
    type_ = node.type if isinstance(node.type, (Int, Float)) else None
    if isinstance(type_, Float):
        args = [t.convert(a, type_) for a in args]
    return t.make("call", type_, *args, data=ROUNDING[name])


def _exponent(walker: Walker, node: ir.Call, _name: str) -> Value:
    """``frexp(x, &exponent)``: the power of two just above x."""
    args = [walker.value(a) for a in node.args]
    result = walker.unseen(node, args)
    if len(args) == 2 and isinstance(args[0], Term) and isinstance(args[1], Pointer) and args[1].obj.data is not None:
        power = t.make("call", I32, args[0], data="exponent")
        walker.write(("var", *args[1].obj.data), power, node.args[1], node.args[1])
    return result


def _absolute(walker: Walker, node: ir.Call, _name: str) -> Value:
    args = [walker.term(walker.value(a)) for a in node.args]
    return t.make("call", args[0].type if args else None, *args, data="abs")


def _load(walker: Walker, node: ir.Call, name: str) -> Value:
    value = walker.value(node.args[0]) if node.args else None
    if isinstance(value, Pointer):
        target = node.args[0]
        place = target.operand if isinstance(target, ir.AddrOf) else node
        return walker.load(value, place, node.type)
    return walker.unknown_value("load", name, node.type, level=UNKNOWN)


def _store(walker: Walker, node: ir.Call, name: str) -> Value:
    args = [walker.value(a) for a in node.args]
    if len(args) >= 2 and isinstance(args[0], Pointer):
        walker.store(args[0], node.args[0], args[1], "w")
    return walker.fresh("call", name, node.type)


def _thread_result(walker: Walker, node: ir.Call, name: str) -> Value:
    for arg in node.args:
        walker.value(arg)
    return walker.unknown_value("call", name, node.type, level=THREAD)


def _device_query(walker: Walker, node: ir.Call, name: str) -> Value:
    args = [walker.value(a) for a in node.args]
    for arg_node, value in zip(node.args, args):
        if isinstance(value, Pointer) and value.obj.kind == "var" and value.obj.data is not None:
            var, path = value.obj.data
            type_ = value.element if value.element is not None else var.type
            fresh = walker.unknown_value("device", ".".join((var.name, *path)), type_, node)
            walker.write(("var", var, path), fresh, arg_node, arg_node)
    return walker.fresh("call", name, node.type)


def _allocation(walker: Walker, node: ir.Call, _name: str) -> Value:
    """``cudaMalloc(&p, bytes)``: p points to new memory of that size."""
    args = [walker.value(a) for a in node.args]
    result = walker.unseen(node, args)
    if len(args) >= 2 and isinstance(args[0], Pointer) and args[0].obj.data is not None and isinstance(args[1], Term):
        held = walker.read(("var", *args[0].obj.data), node.args[0].type)
        if isinstance(held, Pointer) and not held.pieces:
            held.obj.bytes = args[1]
    return result


def _fits_int(walker: Walker, node: ir.Call, name: str) -> Value:
    """``canUse32BitIndexMath(tensor)``: fewer elements than the largest int, and offsets that an int holds too."""
    if len(node.args) != 1:
        return walker.unseen(node, [walker.value(a) for a in node.args])
    asked = ir.Call(node.start, node.end, I64, "numel", [], receiver=node.args[0])
    count = t.convert(walker.term(_method(walker, asked, "numel")), I64)
    return t.land(t.compare("<", count, const(I32.hi, I64)), walker.fresh("call", f"{name}()", BOOL, data=node))


def _at_most(walker: Walker, node: ir.Call, name: str) -> Value:
    """``fread(values, sizeof *values, n, file)``: as many as asked for, or fewer."""
    args = [walker.value(a) for a in node.args]
    result = walker.unseen(node, args)
    asked = args[AT_MOST[name]] if len(args) > AT_MOST[name] else None
    if isinstance(result, Term) and isinstance(result.type, Int) and isinstance(asked, Term):
        walker.follows(t.compare("<=", result, t.convert(asked, result.type)), node)
    return result


def _launch_error(walker: Walker, node: ir.Call, _name: str) -> Value:
    result = walker.unseen(node, [walker.value(a) for a in node.args])
    if isinstance(result, Term):
        walker.answers[result] = list(walker.flow.launches)
    return result


def _tensor_map(walker: Walker, node: ir.Call, _name: str) -> Value:
    """``cuTensorMapEncodeTiled(&map, type, rank, address, extents, …)``: no extent may be 0."""
    args = [walker.value(a) for a in node.args]
    extents = args[4] if len(args) > 4 else None
    held = list(extents.obj.stores) if isinstance(extents, Pointer) and extents.obj.kind == "local" else []
    result = walker.unseen(node, args)
    if isinstance(result, Term):
        walker.answers[result] = [t.truth(x) for x in held if isinstance(x.type, Int)]
    return result


def _swap(walker: Walker, node: ir.Call, name: str) -> Value:
    if len(node.args) == 2:
        places = [walker.place(a) for a in node.args]
        values = [walker.value(a) for a in node.args]
        for place, value, arg in zip(places, reversed(values), node.args):
            walker.write(place, value, arg, arg)
    return walker.fresh("call", name, node.type)


def _get(walker: Walker, node: ir.Call, _name: str) -> Value:
    """``std::get<1>(t)``"""
    args = [walker.value(a) for a in node.args]
    whole, which = (args[0] if args else None), (node.targs[0] if node.targs else None)
    if isinstance(whole, Record) and isinstance(which, ir.Expr):
        members, number = list(whole.type.fields or ()) if isinstance(whole.type, Struct) else [], fold(which)
        if number is not None and 0 <= number < len(members):
            return walker.field(whole, members[number])
    return walker.unseen(node, args)


def _isspace(walker: Walker, node: ir.Call, name: str) -> Value:
    args = tuple(walker.term(walker.value(a)) for a in node.args)
    return walker.fresh("call", name, node.type, inputs=args)


def _triple(which: str) -> dict[str, Value]:
    return {axis: SPECIALS[which, axis] for axis in _AXES}


def _linear(which: str, extents: str) -> Term:
    """The rank of a thread in its block, or of a block in its grid, over all three axes (64-bit)."""
    total = t.convert(SPECIALS[which, "z"], U64)
    for axis in "yx":
        total = t.binary("mul", total, t.convert(SPECIALS[extents, axis], U64), U64)
        total = t.binary("add", total, t.convert(SPECIALS[which, axis], U64), U64)
    return total


def _size(extents: str) -> Term:
    total = t.convert(SPECIALS[extents, "x"], U64)
    for axis in "yz":
        total = t.binary("mul", total, t.convert(SPECIALS[extents, axis], U64), U64)
    return total


def _group_value(walker: Walker, node: ir.Call, scope: str, name: str, type_name: str) -> Value | None:
    """Ranks and sizes of cooperative groups as arithmetic on the launch built-ins."""
    if scope == "grid":
        if name == "thread_rank":
            block = t.binary("mul", _linear("blockIdx", "gridDim"), _size("blockDim"), U64)
            return t.binary("add", block, _linear("threadIdx", "blockDim"), U64)
        if name in ("size", "num_threads"):
            return t.binary("mul", _size("gridDim"), _size("blockDim"), U64)
        if name == "block_rank":
            return _linear("blockIdx", "gridDim")
        if name == "num_blocks":
            return _size("gridDim")
    if scope == "block":
        if name == "thread_rank":
            return t.convert(_linear("threadIdx", "blockDim"), U32)
        if name in ("size", "num_threads"):
            return t.convert(_size("blockDim"), U32)
        if name in ("thread_index", "group_index", "dim_threads", "group_dim"):
            which = {"thread_index": "threadIdx", "group_index": "blockIdx"}.get(name, "blockDim")
            return Record(which, node.type, _triple(which))
    if scope == "warp":
        lanes = _tile_lanes(type_name)
        rank = t.convert(_linear("threadIdx", "blockDim"), U32)
        if name in ("size", "num_threads"):
            return const(lanes, U32) if lanes else walker.fresh("call", name, node.type, level=WARP_UNIFORM)
        if name == "thread_rank":
            if lanes:
                return t.binary("mod", rank, const(lanes, U32), U32)
            return walker.fresh("call", name, node.type, level=THREAD)
        if name == "meta_group_rank":
            if lanes:
                return t.binary("div", rank, const(lanes, U32), U32)
            return walker.fresh("call", name, node.type, level=WARP_UNIFORM)
    return None


def _tile_lanes(type_name: str) -> int | None:
    """Lanes of a tile, where the type tells."""
    match = _TILE.search(type_name)
    return int(match.group(1)) if match else None


def _method(walker: Walker, node: ir.Call, name: str) -> Value:
    receiver = node.receiver
    assert receiver is not None
    type_name = str(receiver.type)
    scope = group_scope(type_name)
    if scope is not None:
        if not isinstance(receiver, ir.Ref):
            walker.value(receiver)
        if name == "sync":
            for arg in node.args:
                walker.value(arg)
            _barrier(walker, node, f"{type_name.rsplit('::', 1)[-1]}::sync", scope)
            if scope == "warp":
                _exchange(walker, walker.event(Collective, node), "tile::sync", None, _tile_lanes(type_name))
            return walker.fresh("call", name, node.type)
        operands = [walker.term(walker.value(a)) for a in node.args]
        value = _group_value(walker, node, scope, name, type_name)
        if value is not None:
            return value
        if scope == "warp" and name.startswith(("shfl", "any", "all", "ballot", "match")):
            event: Collective = walker.event(Collective, node)
            value_in = operands[0] if operands else None
            _exchange(walker, event, f"tile::{name}", value_in, _tile_lanes(type_name), operands=operands[1:])
            level = WARP_UNIFORM if name in ("any", "all", "ballot") else THREAD
            result = walker.fresh("call", name, node.type, level=level)
            return walker.vote(name, result, value_in) if value_in is not None else result
        if scope != "warp" and name in _GROUP_SIZES:
            return walker.unknown_value("call", name, node.type, level=UNIFORM)
        return walker.unknown_value("call", name, node.type, level=THREAD if scope != "grid" else UNKNOWN)
    if cub := _CUB_BLOCK.search(type_name):
        walker.value(receiver)
        given = [walker.value(arg) for arg in node.args]
        value_in = given[0] if given and isinstance(given[0], Term) else None
        declared = _BLOCK_THREADS.search(type_name)
        threads = int(declared.group(1)) if declared else None
        _barrier(walker, node, f"{cub.group(0)}::{name}", "block", collective=True, value=value_in, threads=threads)
        for arg in node.args if len(node.args) > 1 else ():
            # Results come back through references: per-thread values.
            if isinstance(arg, ir.Ref):
                walker.write(walker.place(arg), walker.unknown_value("call", name, arg.type, level=THREAD), arg, arg)
        return walker.unknown_value("call", name, node.type, level=THREAD)
    if cub := _CUB_WARP.search(type_name):
        walker.value(receiver)
        values = [walker.value(a) for a in node.args]
        event = walker.event(Collective, node)
        logical = _LOGICAL_WARP.search(type_name)
        # A number of valid items says whose values are read.
        lanes = None if cub.group(1) == "Reduce" and len(values) > 1 + (name == "Reduce") else 32
        if lanes and logical:
            lanes = int(logical.group(1))
        value_in = walker.term(values[0]) if values else None
        reads = "all" if cub.group(1) in ("Reduce", "Scan") else ""
        _exchange(walker, event, f"{cub.group(0)}::{name}", value_in, lanes, reads=reads)
        return walker.unknown_value("call", name, node.type, level=THREAD)
    args = [walker.value(a) for a in node.args]
    if name == "empty" and not node.args:
        size = ir.Call(node.start, node.end, U64, "size", [], receiver=receiver)
        return t.compare("==", t.convert(walker.term(_method(walker, size, "size")), U64), const(0, U64))
    shape = _shape(walker, receiver)
    if shape and name == "numel":
        return functools.reduce(lambda a, b: t.binary("mul", a, b, I64), shape)
    axis = args[0].data if args and isinstance(args[0], Term) and args[0].op == "const" else None
    if shape and name == "size" and isinstance(axis, int) and -len(shape) <= axis < len(shape):
        return shape[axis]
    if not node.args and name not in WAITS:
        # An accessor: the same object answers the same until something else is called on it.
        asked = identity(walker, receiver)
        key: tuple[Any, ...] = (asked, name)
        found = answered(walker, asked).get(key)
        if found is None:
            base = walker.value(receiver)
            if name not in _EXTENTS:
                walker.forget_elements(base)  # `v.data()`: whoever gets it may write there
            inputs = (base,) if isinstance(base, Term) else ()
            title = re.sub(r"\bempty(?=\(\)$)", "size", walker.source(node))  # which asks for the size, see above
            if not re.search(rf"\b{name} ?\( ?\)$", title):
                title = f"{walker.source(receiver)}.{name}()"  # asked by something else: an index, a check
            found = walker.unknown_value(
                "size", title, node.type, node, inputs=inputs, level=UNKNOWN if walker.device and not inputs else 0
            )
            if isinstance(found, Term) and name in _EXTENTS:
                found.data.lo = max(0, found.data.lo)
            answered(walker, asked)[key] = found
            _extents(walker, node)
        return found
    if name in _EXTENTS and all(isinstance(a, Term) and a.op == "const" for a in args):
        walker.value(receiver)
        asked = identity(walker, receiver)
        key = (asked, name, *args)
        known = answered(walker, asked).get(key)
        if known is None:
            known = answered(walker, asked)[key] = walker.unseen(node, args)
            _extents(walker, node)
        return known
    walker.forget_elements(walker.value(receiver))
    if name.endswith("_") or str(receiver.type).rpartition("::")[2] != "Tensor":
        may_have_changed(walker, receiver)  # of a tensor's methods, those that change it end in an underscore
    return walker.unseen(node, args)


def _extents(walker: Walker, node: ir.Call) -> None:
    """A tensor with elements has no extent of 0: what relates ``x.numel()`` and ``x.size(k)`` once both are asked."""
    if node.name not in ("numel", "size") or node.receiver is None:
        return
    asked = identity(walker, node.receiver)
    same = {key[1:]: x for key, x in answered(walker, asked).items() if key[0] == asked and isinstance(x, Term)}
    whole = same.get(("numel",))
    if whole is None or not isinstance(whole.type, Int):
        return
    for key, extent in same.items():
        if key[0] == "size" and len(key) == 2 and isinstance(extent.type, Int):
            walker.follows(t.lor(t.truth(extent), t.compare("==", whole, const(0, whole.type))), node)


def made(walker: Walker, node: ir.Call, args: list[Value]) -> None:
    """A tensor that is made from a list of extents has none below 0: that throws."""
    if node.name.rpartition("::")[2] in TENSORS and node.args and isinstance(node.args[0], ir.Construct):
        listed = args[0]
        for extent in listed.data.inputs if isinstance(listed, Term) and listed.op == "atom" else ():
            if isinstance(extent.type, Int):
                walker.follows(t.compare("<=", const(0, extent.type), extent), node)


def _shape(walker: Walker, receiver: ir.Expr) -> list[Term] | None:
    """The extents of a tensor that was made from a list of them in this function: ``at::zeros({n, 3})``."""
    made = walker.value(receiver) if isinstance(receiver, ir.Ref) else None
    event = next((x for x in walker.tensors if x.result is made), None)
    if event is None or not event.args:
        return None
    listed, given = event.node.args[0], event.args[0]
    if not isinstance(listed, ir.Construct) or not isinstance(given, Term) or given.op != "atom":
        return None
    extents = given.data.inputs
    return [t.convert(x, I64) for x in extents] if len(extents) == len(listed.args) else None


def answered(walker: Walker, named: object) -> dict[tuple[Any, ...], Value]:
    """What the methods of an object answered, and those of the whole that it is a part of and of the other parts."""
    while isinstance(named, tuple):
        named = named[0]
    return walker.answered.setdefault(named, {})


def may_have_changed(walker: Walker, node: ir.Expr) -> None:
    """What an object and its parts answered no longer holds: something that may change it was called on it."""
    named = identity(walker, node)
    known = answered(walker, named)
    for key in [x for x in known if _is_part(x[0], named)]:
        del known[key]


def _is_part(named: object, of: object) -> bool:
    while named != of:
        if not isinstance(named, tuple):
            return False
        named = named[0]
    return True


def identity(walker: Walker, node: ir.Expr) -> object:
    """What two expressions that name the same object have in common: through references, members and elements."""
    while isinstance(node, ir.Cast):
        node = node.operand
    if isinstance(node, ir.Ref):
        kind, base, path = (*(walker.aliases.get(node.var) or ("var", node.var, ())), ())[:3]
        if kind != "var":
            return base
        # A copy is the same object as long as nothing is called on either.
        held = walker.env.get(base)
        is_object = isinstance(held, Record) or (isinstance(held, Term) and held.op == "atom" and held.type is None)
        same = held if is_object else base
        return functools.reduce(lambda whole, field: (whole, field), path, same)
    if isinstance(node, ir.Member):
        return (identity(walker, node.base), node.field)
    if isinstance(node, ir.Index) and isinstance(node.index, (ir.Const, ir.Ref)):
        return (identity(walker, node.base), walker.term(walker.value(node.index)))
    if isinstance(node, ir.Name):
        return node.name
    return id(node)


_HANDLERS: dict[str, Any] = {
    **dict.fromkeys(BLOCK_BARRIERS, _block_barrier),
    **dict.fromkeys(WARP_COLLECTIVES, _collective),
    **dict.fromkeys(LEGACY_COLLECTIVES, _collective),
    **dict.fromkeys(ATOMICS, _atomic),
    **dict.fromkeys(("min", "max", "fminf", "fmaxf", "fmin", "fmax", "umin", "umax", "llmin", "llmax", "ullmin",
                     "ullmax"), _extremum),
    **dict.fromkeys(("ceil_div", "ATenCeilDiv"), _ceil_div),
    "strlen": _length,
    **dict.fromkeys(("__mul24", "__umul24"), _multiply),
    **dict.fromkeys(ROUNDING, _rounding),
    **dict.fromkeys(("abs", "labs", "llabs"), _absolute),
    **dict.fromkeys(("frexp", "frexpf"), _exponent),
    **dict.fromkeys(_LOADS, _load),
    **dict.fromkeys(_STORES, _store),
    **dict.fromkeys(THREAD_RESULTS, _thread_result),
    **dict.fromkeys(NO_RETURN, _no_return),
    **dict.fromkeys(DEVICE_QUERIES, _device_query),
    **dict.fromkeys(LAUNCH_ERRORS, _launch_error),
    **dict.fromkeys(ALLOCATIONS, _allocation),
    **dict.fromkeys(AT_MOST, _at_most),
    "canUse32BitIndexMath": _fits_int,
    "cuTensorMapEncodeTiled": _tensor_map,
    "get": _get,
    "swap": _swap,
}  # fmt: skip
