"""Warp collectives and cooperative groups."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from cudalint.ir import nodes as ir
from cudalint.ir.types import I32, U32, Float, Int, Type
from cudalint.sim import values as v
from cudalint.sim.values import Unsupported, convert, merge, spread

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudalint.sim.calls import Calls
    from cudalint.sim.expressions import Eval
    from cudalint.sim.frame import Frame
    from cudalint.sim.observe import Site


class Warps:
    """Who takes part in a collective: for each active lane its warp, its lane, and where each other lane is."""

    __slots__ = ("lane", "masks", "table", "warp")

    def __init__(self, f: Frame) -> None:
        machine = f.machine
        threads = machine.threads_per_block
        lanes = f.lanes()
        inside = lanes % threads
        per_block = -(-threads // 32)
        self.warp = lanes // threads * per_block + inside // 32
        self.lane = inside % 32
        count = len(machine.batch) * per_block
        self.table = np.full((count, 32), -1, np.int64)
        self.table[self.warp, self.lane] = np.arange(f.n)
        bits = np.zeros(count, np.uint32)
        np.bitwise_or.at(bits, self.warp, np.uint32(1) << self.lane.astype(np.uint32))
        self.masks = bits


def warps_of(f: Frame) -> Warps:
    found: Warps | None = f.cache.get("warps")
    if found is None:
        found = f.cache["warps"] = Warps(f)
    return found


def check_mask(f: Frame, mask: Any, name: str, site: Site, *, read: bool = False) -> None:
    """Note the lanes that ``mask`` names and that do not take part, and those that take part and that it lacks.

    ``read`` tells that a value is taken from every lane that it names.
    """
    w = warps_of(f)
    named = spread(np.asarray(mask, np.uint32), f.n)
    lacking = np.flatnonzero(named >> w.lane.astype(np.uint32) & np.uint32(1) == 0)
    if len(lacking):
        f.machine.absent(f, name, lacking, w.lane[lacking], False, site)
    missing = named & ~w.masks[w.warp]
    threads = f.machine.threads_per_block
    if threads % 32 and not read:
        # Lanes past the end of the block never were: a full mask may name them.
        inside = f.lanes() % threads // 32 * 32
        exist = np.minimum(threads - inside, 32).astype(np.uint64)
        missing = missing & ((np.uint64(1) << exist) - np.uint64(1)).astype(np.uint32)
    if missing.any():
        lanes = np.flatnonzero(missing)
        lowest = np.asarray(missing[lanes], np.uint64)
        source = np.log2((lowest & (~lowest + np.uint64(1))).astype(np.float64)).astype(np.int64)
        for taken in (True, False) if read else (False,):
            f.machine.absent(f, name, lanes, source, taken, site)


def exchange(f: Frame, value: Any, source: Any, name: str, site: Site) -> Any:
    """The ``value`` of lane ``source`` (0 to 31) of each lane's warp; a lane that is absent gives 0 and an event."""
    if type(value) is dict:
        return {field: exchange(f, x, source, name, site) for field, x in value.items()}
    if not isinstance(value, (np.ndarray, np.generic)):
        raise Unsupported(f"'{name}' of such a value")
    w = warps_of(f)
    at = w.table[w.warp, source]
    value = spread(value, f.n)
    lost = at < 0
    if not lost.any():
        return value[at]
    lanes = np.flatnonzero(lost)
    f.machine.absent(f, name, lanes, source[lanes], True, site)
    result = value[np.where(lost, 0, at)]
    result[lost] = value.dtype.type(0)
    return result


def shuffled(f: Frame, kind: str, value: Any, operand: Any, width: Any, name: str, site: Site) -> Any:
    """``__shfl_*``: by index, up, down or xor, in segments of ``width`` lanes."""
    w = warps_of(f)
    lane = w.lane
    width = spread(width, f.n).astype(np.int64)
    operand = spread(operand, f.n).astype(np.int64)
    first = lane - lane % width
    if kind == "up":
        source = lane - operand
        source = np.where(source < first, lane, source)
    elif kind == "down":
        source = lane + operand
        source = np.where(source >= first + width, lane, source)
    elif kind == "xor":
        source = lane ^ operand
        source = np.where(source >= first + width, lane, source)
    else:
        source = first + operand % width
    return exchange(f, value, source & 31, name, site)


def _shuffle(code: Calls, node: ir.Call, name: str) -> Eval:
    masked = name.endswith("_sync")
    args = node.args if masked else [None, *node.args]
    kind = {"__shfl": "index", "__shfl_up": "up", "__shfl_down": "down", "__shfl_xor": "xor"}[
        name.removesuffix("_sync")
    ]
    mask = code.converted(args[0], U32) if args[0] is not None else None
    assert args[1] is not None
    assert args[2] is not None
    value = code.promoted(args[1]) if isinstance(args[1].type, (Int, Float)) else code.expr(args[1])
    operand = code.converted(args[2], I32)
    width = code.converted(args[3], I32) if len(args) > 3 and args[3] is not None else None
    site = code.site(node)

    def run(f: Frame) -> Any:
        x = value(f)
        if mask is not None:
            check_mask(f, mask(f), name, site)
        return shuffled(f, kind, x, operand(f), width(f) if width is not None else np.int32(32), name, site)

    return run


def ballot(f: Frame, truth: Any) -> Any:
    """For each active lane, the lanes of its warp in which ``truth`` holds."""
    w = warps_of(f)
    truth = spread(truth, f.n)
    bits = np.zeros(len(w.masks), np.uint32)
    lanes = np.flatnonzero(truth)
    np.bitwise_or.at(bits, w.warp[lanes], np.uint32(1) << w.lane[lanes].astype(np.uint32))
    return bits[w.warp]


def _vote(code: Calls, node: ir.Call, name: str) -> Eval:
    masked = name.endswith("_sync")
    args = node.args if masked else [None, *node.args]
    mask = code.converted(args[0], U32) if args[0] is not None else None
    assert args[1] is not None
    cond = code.condition(args[1])
    kind = name.removesuffix("_sync").lstrip("_")
    site = code.site(node)

    def run(f: Frame) -> Any:
        truth = cond(f)
        if mask is not None:
            m = mask(f)
            check_mask(f, m, name, site)
        votes = ballot(f, truth)
        if mask is not None:
            votes = votes & m
        if kind == "ballot":
            return votes
        if kind == "any":
            return (votes != 0).astype(np.int32)
        present = warps_of(f).masks[warps_of(f).warp]
        if mask is not None:
            present = present & m
        if kind == "uni":
            return ((votes == 0) | (votes == present)).astype(np.int32)
        return (votes == present).astype(np.int32)

    return run


def _activemask(_code: Calls, _node: ir.Call, _name: str) -> Eval:
    def run(f: Frame) -> Any:
        w = warps_of(f)
        return w.masks[w.warp]

    return run


def _match(code: Calls, node: ir.Call, name: str) -> Eval:
    mask, value, site = code.converted(node.args[0], U32), code.expr(node.args[1]), code.site(node)
    if "all" in name:
        return code.refuse(node, f"'{name}'")

    def run(f: Frame) -> Any:
        m = mask(f)
        check_mask(f, m, name, site)
        w = warps_of(f)
        x = spread(value(f), f.n)
        result = np.zeros(f.n, np.uint32)
        for other in range(32):
            at = w.table[w.warp, other]
            equal = (at >= 0) & (x[np.where(at >= 0, at, 0)] == x)
            result |= np.where(equal, np.uint32(1 << other), np.uint32(0))
        return result & m

    return run


_REDUCE: dict[str, Any] = {
    "add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}  # fmt: skip


def _reduce(code: Calls, node: ir.Call, name: str) -> Eval:
    function = _REDUCE[name.split("_")[3]]
    mask, site = code.converted(node.args[0], U32), code.site(node)
    value = code.promoted(node.args[1])

    def run(f: Frame) -> Any:
        m = mask(f)
        check_mask(f, m, name, site)
        return grouped(f, spread(value(f), f.n), function, warps_of(f).warp)

    return run


def grouped(_f: Frame, x: Any, function: Any, group: Any) -> Any:
    """``function`` over the active lanes of each group, in the order of lanes, given to each of them."""
    order = np.argsort(group, kind="stable")
    placed = group[order]
    starts = np.flatnonzero(np.append(True, placed[1:] != placed[:-1]))
    totals = function.reduceat(x[order], starts)
    result = np.empty_like(x)
    result[order] = totals[np.cumsum(np.append(True, placed[1:] != placed[:-1])) - 1]
    return result.astype(x.dtype)


FUNCTIONS: dict[str, Any] = {
    **{f"__shfl{kind}{sync}": _shuffle for kind in ("", "_up", "_down", "_xor") for sync in ("", "_sync")},
    **dict.fromkeys(
        ("__ballot_sync", "__any_sync", "__all_sync", "__uni_sync", "__ballot", "__any", "__all", "any", "all"), _vote
    ),
    "__activemask": _activemask, "__match_any_sync": _match, "__match_all_sync": _match,
    **{f"__reduce_{op}_sync": _reduce for op in _REDUCE},
}  # fmt: skip


# Cooperative groups.


class Group:
    """A cooperative group: ``block``, ``grid``, a ``tile`` of ``size`` lanes, or ``lanes`` (a mask a lane)."""

    __slots__ = ("kind", "mask", "size")

    def __init__(self, kind: str, size: int = 0, mask: Any = None) -> None:
        self.kind, self.size, self.mask = kind, size, mask

    def gather(self, index: Any) -> Group:
        if type(self.mask) is not np.ndarray:
            return self
        return Group(self.kind, self.size, self.mask[index])

    def merge(self, old: Any, index: Any, lanes: int) -> Group:
        if self.mask is None:
            return self
        return Group(self.kind, self.size, merge(getattr(old, "mask", None), self.mask, index, lanes))


def _group_of(kind: str) -> Any:
    def handler(_code: Calls, _node: ir.Call, _name: str) -> Eval:
        made = Group(kind)
        return lambda f: made

    return handler


def _coalesced(_code: Calls, _node: ir.Call, _name: str) -> Eval:
    def run(f: Frame) -> Any:
        w = warps_of(f)
        return Group("lanes", 0, w.masks[w.warp])

    return run


def _partition(code: Calls, node: ir.Call, _name: str) -> Eval:
    from cudalint.frontend.fold import fold

    size = fold(node.targs[0]) if node.targs and isinstance(node.targs[0], ir.Expr) else None
    if size is None and len(node.args) > 1:
        size = fold(node.args[1])
    if size is None:
        match = re.search(r"<(\d+)>", str(node.type))
        size = int(match[1]) if match else None
    if size is None or size < 1 or size & (size - 1) or size > 32:
        return code.refuse(node, f"a tile of {size} lanes")
    parent = code.expr(node.args[0])
    made = Group("tile", size)

    def run(f: Frame) -> Any:
        group = parent(f)
        if not isinstance(group, Group) or group.kind not in ("block", "tile"):
            raise Unsupported("a tile of such a group")
        return made

    return run


def _sync(code: Calls, node: ir.Call, _name: str) -> Eval:
    if len(node.args) != 1:
        return code.refuse(node, f"'{node.name}'")
    group, site = code.expr(node.args[0]), code.site(node)
    return lambda f: synchronise(f, group(f), site)


def synchronise(f: Frame, group: Any, site: Site) -> None:
    if not isinstance(group, Group):
        raise Unsupported("the sync of such a group")
    if group.kind in ("block", "grid"):
        f.machine.barrier(f, site, group.kind)
    else:
        if group.kind == "tile":
            check_mask(f, tile_mask(f, group), "tile::sync", site)
        f.machine.warp_barrier(f)


def _group_reduce(code: Calls, node: ir.Call, _name: str) -> Eval:
    """``cg::reduce(tile, value, cg::plus<T>())``."""
    if len(node.args) != 3:
        return code.refuse(node, f"'{node.name}'")
    text = f"{node.args[2].type} {getattr(node.args[2], 'name', '')}"
    kind = next((k for k in ("plus", "less", "greater", "bit_and", "bit_or", "bit_xor") if k in text), None)
    if kind is None:
        return code.refuse(node, f"'{node.name}' with another operator")
    function: Any = {
        "plus": np.add, "less": np.minimum, "greater": np.maximum, "bit_and": np.bitwise_and, "bit_or": np.bitwise_or,
        "bit_xor": np.bitwise_xor,
    }[kind]  # fmt: skip
    group, value, site = code.expr(node.args[0]), code.expr(node.args[1]), code.site(node)

    def run(f: Frame) -> Any:
        g = group(f)
        x = spread(value(f), f.n)
        if g.kind == "tile":
            check_mask(f, tile_mask(f, g), node.name, site, read=True)
        return grouped(f, x, function, group_ids(f, g))

    return run


def group_ids(f: Frame, group: Group) -> Any:
    """A number for each active lane's group."""
    w = warps_of(f)
    if group.kind == "tile":
        return w.warp * 32 + w.lane // group.size
    if group.kind == "lanes":
        lowest = np.asarray(group.mask, np.uint64)
        return w.warp * 64 + np.log2((lowest & (~lowest + np.uint64(1))).astype(np.float64)).astype(np.int64)
    raise Unsupported("a collective of such a group")


FUNCTIONS.update({
    "this_thread_block": _group_of("block"), "this_grid": _group_of("grid"), "coalesced_threads": _coalesced,
    "tiled_partition": _partition, "sync": _sync, "reduce": _group_reduce,
})  # fmt: skip


def method(code: Calls, node: ir.Call, name: str) -> Eval | None:
    """A method of a group; None where the receiver's type cannot be one."""
    receiver = node.receiver
    assert receiver is not None
    type_name = str(receiver.type)
    cub = re.match(r"cub::(Block|Warp)(Reduce|Scan)\b", type_name)
    if cub is not None:
        return _cub(code, node, name, cub[1] == "Block", cub[2])
    if "group" not in type_name and "thread_block" not in type_name and "cooperative" not in type_name:
        return None
    group = code.expr(receiver)
    args = [code.expr(a) for a in node.args]
    site = code.site(node)
    type_: Type = node.type

    def run(f: Frame) -> Any:
        g = group(f)
        if not isinstance(g, Group):
            raise Unsupported(f"the method '{name}' of '{type_name}'")
        if name == "sync":
            synchronise(f, g, site)
            return None
        result = _property(f, g, name)
        if result is not None:
            return convert(result, type_) if isinstance(type_, Int) and not isinstance(result, dict) else result
        return _collective(f, g, name, [a(f) for a in args], site)

    return run


def _cub(code: Calls, node: ir.Call, name: str, block: bool, kind: str) -> Eval | None:
    """``cub::BlockReduce(temp).Sum(x)``, ``BlockScan(temp).InclusiveScan(x, y, cub::Max())`` and the same of a warp.

    A reduction's result is defined in the first thread alone; the others get their own value.
    """
    site, machine = code.site(node), code.machine
    args = list(node.args)
    operation = (
        np.add if name.endswith("Sum") else _CUB_OPERATIONS.get(getattr(args.pop(), "name", "")) if args else None
    )
    out, seed = None, None
    if operation is None:
        return None
    if kind == "Reduce" and name in ("Sum", "Reduce") and len(args) == 1:
        value = code.expr(args[0])
    elif kind == "Scan" and name in ("InclusiveSum", "InclusiveScan", "ExclusiveSum") and len(args) == 2:
        value, out = code.expr(args[0]), code.place(args[1])
    elif kind == "Scan" and name == "ExclusiveScan" and len(args) == 3:
        value, out, seed = code.expr(args[0]), code.place(args[1]), code.converted(args[2], args[0].type)
    else:
        return None

    def run(f: Frame) -> Any:
        x = value(f)
        if not isinstance(x, (np.ndarray, np.generic)):
            raise Unsupported(f"'{name}' of such a value")
        x = spread(x, f.n)
        lanes = f.lanes()
        if block:
            machine.barrier(f, site)
        else:
            check_mask(f, np.uint32(0xFFFFFFFF), name, site, read=True)
            machine.warp_barrier(f)
        group = lanes // machine.threads_per_block if block else warps_of(f).warp
        first = np.flatnonzero(np.append(True, group[1:] != group[:-1]))
        if out is None:
            result = x.copy()
            result[first] = grouped(f, x, operation, group)[first]
            return result
        result = np.empty_like(x)
        initial = spread(seed(f), f.n).astype(x.dtype) if seed is not None else np.zeros_like(x)
        for start, end in zip(first, np.append(first[1:], f.n)):
            if name.startswith("Inclusive"):
                result[start:end] = operation.accumulate(x[start:end], dtype=x.dtype)
            else:
                shifted = np.append(initial[start], x[start : end - 1])
                result[start:end] = operation.accumulate(shifted, dtype=x.dtype)
        out(f).store(f, result, site)
        return None

    return run


#: What ``cub::Max()`` and the like do.
_CUB_OPERATIONS = {"cub::Sum": np.add, "cub::Max": np.fmax, "cub::Min": np.fmin}


def tile_mask(f: Frame, group: Group) -> Any:
    """For each active lane, the lanes of its tile."""
    first = warps_of(f).lane // group.size * group.size
    return (np.uint64((1 << group.size) - 1) << first.astype(np.uint64)).astype(np.uint32)


def _property(f: Frame, g: Group, name: str) -> Any:
    machine = f.machine
    threads = machine.threads_per_block
    blocks = machine.grid[0] * machine.grid[1] * machine.grid[2]
    table: dict[str, Callable[[], Any]]
    if g.kind == "grid":
        table = {
            "thread_rank": lambda: f.threads().astype(np.uint64), "size": lambda: np.uint64(blocks * threads),
            "num_threads": lambda: np.uint64(blocks * threads), "is_valid": lambda: np.True_,
            "block_rank": lambda: (f.threads() // threads).astype(np.uint64), "num_blocks": lambda: np.uint64(blocks),
            "group_dim": lambda: {a: np.uint32(e) for a, e in zip("xyz", machine.grid)},
            "dim_blocks": lambda: {a: np.uint32(e) for a, e in zip("xyz", machine.grid)},
        }  # fmt: skip
    elif g.kind == "block":
        table = {
            "thread_rank": lambda: f.special("tid").astype(np.uint32), "size": lambda: np.uint32(threads),
            "num_threads": lambda: np.uint32(threads),
            "thread_index": lambda: {a: f.special("t" + a) for a in "xyz"},
            "group_index": lambda: {a: f.special("b" + a) for a in "xyz"},
            "group_dim": lambda: {a: np.uint32(e) for a, e in zip("xyz", machine.block)},
            "dim_threads": lambda: {a: np.uint32(e) for a, e in zip("xyz", machine.block)},
        }  # fmt: skip
    elif g.kind == "tile":
        rank = f.special("tid")
        table = {
            "thread_rank": lambda: (rank % g.size).astype(np.uint32), "size": lambda: np.uint32(g.size),
            "num_threads": lambda: np.uint32(g.size), "meta_group_rank": lambda: (rank // g.size).astype(np.uint32),
            "meta_group_size": lambda: np.uint32(-(-threads // g.size)),
        }  # fmt: skip
    else:
        table = _of_lanes(f, g)
    found = table.get(name)
    return found() if found is not None else None


def _of_lanes(f: Frame, g: Group) -> dict[str, Callable[[], Any]]:
    from cudalint.sim.builtins import popcount

    below = (np.uint32(1) << (f.special("tid") % 32).astype(np.uint32)) - np.uint32(1)

    def size() -> Any:
        return spread(popcount(g.mask), f.n).astype(np.uint32)

    return {
        "thread_rank": lambda: spread(popcount(g.mask & below), f.n).astype(np.uint32), "size": size,
        "num_threads": size,
    }  # fmt: skip


def _collective(f: Frame, g: Group, name: str, args: list[Any], site: Site) -> Any:
    w = warps_of(f)
    label = f"tile::{name}"
    if g.kind == "tile":
        first = w.lane // g.size * g.size
        mask = tile_mask(f, g)
    elif g.kind == "lanes":
        mask = np.asarray(g.mask, np.uint32)
    else:
        raise Unsupported(f"'{name}' of a {g.kind} group")
    if name.startswith("shfl"):
        check_mask(f, mask, label, site)
        kind = {"shfl": "index", "shfl_up": "up", "shfl_down": "down", "shfl_xor": "xor"}.get(name)
        if kind is None or len(args) < 2:
            raise Unsupported(f"'{name}' of a group")
        value = args[0]
        if hasattr(value, "dtype") and value.dtype.kind in "iub" and value.dtype.itemsize < 4:
            value = value.astype(np.int32)
        if g.kind == "tile":
            return shuffled(f, kind, value, args[1], np.int32(g.size), label, site)
        return _ranked(f, w, mask, kind, value, args[1], label, site)
    check_mask(f, mask, label, site)
    if name in ("any", "all", "ballot"):
        truth = v.as_truth(args[0])
        votes = ballot(f, truth) & mask
        if name == "any":
            return (votes != 0).astype(np.int32)
        if name == "all":
            return (votes == (w.masks[w.warp] & mask)).astype(np.int32)
        if g.kind == "tile":
            return (votes >> first.astype(np.uint32)).astype(np.uint32)
    raise Unsupported(f"'{name}' of a group")


def _ranked(f: Frame, w: Warps, mask: Any, kind: str, value: Any, operand: Any, label: str, site: Site) -> Any:
    """A shuffle within a coalesced group: by rank among its lanes."""
    from cudalint.sim.builtins import popcount

    mask = spread(mask, f.n)
    operand = spread(operand, f.n).astype(np.int64)
    rank = spread(popcount(mask & ((np.uint32(1) << w.lane.astype(np.uint32)) - np.uint32(1))), f.n).astype(np.int64)
    size = spread(popcount(mask), f.n).astype(np.int64)
    wanted = {
        "index": operand % np.maximum(size, 1),
        "up": rank - operand,
        "down": rank + operand,
        "xor": rank ^ operand,
    }[kind]
    wanted = np.where((wanted < 0) | (wanted >= size), rank, wanted)
    # The lane of each rank.
    bits = (mask[:, None] >> np.arange(32, dtype=np.uint32)) & np.uint32(1)
    ranks = np.cumsum(bits, axis=1) - 1
    source = np.argmax((ranks == wanted[:, None]) & (bits == 1), axis=1)
    return exchange(f, value, source, label, site)
