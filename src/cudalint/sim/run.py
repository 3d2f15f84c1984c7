"""Launches and runs: the entry to the simulator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from cudalint.ir.types import Array, Float, Int, Ptr, Struct, Type
from cudalint.lazy import NamedTuple
from cudalint.sim.calls import keep_in_memory
from cudalint.sim.code import Code
from cudalint.sim.frame import Frame
from cudalint.sim.machine import Machine
from cudalint.sim.memory import Buffer, BufferState
from cudalint.sim.observe import Observation
from cudalint.sim.places import undefined_value
from cudalint.sim.values import Stop, Unsupported, convert, dtype_of, lives_in_memory

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cudalint.ir.nodes import Function

Triple = tuple[int, int, int]
Argument = Any
BUDGET = 100_000
#: Lanes of a batch of blocks: enough to keep NumPy busy, few enough to stay in cache.
LANES = 1 << 16
MAX_THREADS, MAX_GRID_X, MAX_GRID_YZ, MAX_SHARED = 1024, (1 << 31) - 1, 65535, 227 * 1024


class View(NamedTuple):
    """A pointer into a buffer, ``offset`` bytes from its start."""

    buffer: Buffer
    offset: int


class Launch(NamedTuple):
    """A kernel with everything that one run needs.

    ``args``: ints and floats for scalars, a :class:`Buffer` or a :class:`View` (or None: a null pointer) for a pointer,
    a dict of the same for a class passed by value. ``blocks``: the linear numbers of the blocks to run, ``"all"``
    (default). ``budget``: how many passes of loops and calls may be made, in vector steps. ``watch``: what to
    observe beside the values: ``writes`` and ``reads`` (by whom), ``races`` (in shared memory), ``global-races``
    (within a block).
    ``constants``: values or buffers of ``__constant__`` and ``__device__`` variables by name; others are filled by
    hash or with zeros. ``loops``: ``ends`` runs loops that carry only their counter at their first and last
    iterations alone. ``lanes``: threads in a batch, at least a block. ``until``: when the run is to end, by the
    monotonic clock; then it is inconclusive.
    """

    kernel: Function
    grid: Triple
    block: Triple
    args: Sequence[Argument] = ()
    shared_bytes: int = 0
    blocks: Sequence[int] | Literal["all"] = "all"
    budget: int = BUDGET
    watch: frozenset[str] = frozenset({"writes", "races"})
    constants: Mapping[str, Buffer | int | float] = {}
    loops: Literal["all", "ends"] = "all"
    lanes: int = LANES
    cooperative: bool = False
    until: float | None = None


def refusal(launch: Launch) -> str | None:
    """Why the driver refuses the launch; None where it does not."""
    gx, gy, gz = launch.grid
    bx, by, bz = launch.block
    if min(gx, gy, gz) < 1:
        return f"a grid of {gx} x {gy} x {gz} blocks"
    if gx > MAX_GRID_X or max(gy, gz) > MAX_GRID_YZ:
        return f"a grid of {gx} x {gy} x {gz} blocks: at most {MAX_GRID_X} x {MAX_GRID_YZ} x {MAX_GRID_YZ}"
    if min(bx, by, bz) < 1:
        return f"a block of {bx} x {by} x {bz} threads"
    if bx * by * bz > MAX_THREADS or bz > 64:
        return (
            f"a block of {bx * by * bz} threads: at most {MAX_THREADS}"
            if bz <= 64
            else f"a block {bz} deep: at most 64"
        )
    if launch.shared_bytes > MAX_SHARED:
        return f"{launch.shared_bytes} bytes of shared memory: at most {MAX_SHARED}"
    return None


def run(launch: Launch) -> Observation:
    """Run a launch. Faults of the kernel are events of the result; none is raised.

    ValueError where the launch itself makes no sense: another number of arguments, a block that does not exist.
    """
    observation = Observation()
    refused = refusal(launch)
    if refused is not None:
        observation.end, observation.launch_error = "refused", refused
        return observation
    _validate(launch)
    machine = Machine(launch.grid, launch.block, launch.shared_bytes, launch.budget)
    machine.until = launch.until
    machine.given = dict(launch.constants)
    machine.watch_writes = "writes" in launch.watch
    machine.watch_reads = "reads" in launch.watch
    several = machine.threads_per_block > 1
    machine.races = several and ("races" in launch.watch or "global-races" in launch.watch)
    machine.global_races = several and "global-races" in launch.watch
    machine.sample_loops = launch.loops == "ends"
    states: dict[str, BufferState] = {}
    try:
        with np.errstate(all="ignore"):
            _execute(launch, machine, states, observation)
    except Stop as stop:
        observation.end, observation.reason = stop.end, stop.reason
    except Unsupported as fault:
        observation.end, observation.line = "inconclusive", fault.line
        at = f" at line {fault.line}" if fault.line is not None else ""
        observation.reason = fault.what if fault.what == "spin" else f"unsupported {fault.what}{at}"
    except RecursionError:
        observation.end, observation.reason = "inconclusive", "unsupported nesting this deep"
    except (TypeError, AttributeError, KeyError, IndexError, AssertionError, ValueError) as fault:
        # A value of a kind that nobody thought of: said, not guessed.
        if machine.strict:
            raise
        observation.end, observation.reason = "inconclusive", f"unsupported: {type(fault).__name__}: {fault}"
    except MemoryError:
        observation.end, observation.reason = "inconclusive", "unsupported: not enough memory"
    _collect(observation, machine, states)
    return observation


def _validate(launch: Launch) -> None:
    params = launch.kernel.params
    if len(params) != len(launch.args):
        raise ValueError(f"{launch.kernel.name} takes {len(params)} arguments, not {len(launch.args)}")
    total = launch.grid[0] * launch.grid[1] * launch.grid[2]
    if launch.blocks != "all" and not all(0 <= b < total for b in launch.blocks):
        raise ValueError("no such block")
    buffers: dict[str, Buffer] = {}
    stack = list(launch.args)
    while stack:
        item = stack.pop()
        if isinstance(item, View):
            item = item.buffer
        if isinstance(item, Buffer):
            if buffers.setdefault(item.name, item) is not item:
                raise ValueError(f"two buffers of the name '{item.name}'")
        elif isinstance(item, dict):
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)


def _execute(launch: Launch, machine: Machine, states: dict[str, BufferState], observation: Observation) -> None:
    code = Code(machine, launch.kernel)
    machine.codes[launch.kernel] = code
    params = launch.kernel.params
    values = {p: _argument(machine, a, p.type, states) for p, a in zip(params, launch.args)}
    total = launch.grid[0] * launch.grid[1] * launch.grid[2]
    threads = machine.threads_per_block
    per_batch = max(1, launch.lanes // threads)
    if launch.blocks == "all":
        whole = uses_grid_sync(launch.kernel)
        if whole:
            per_batch = total
        if whole and total * threads > 1 << 22:
            raise Unsupported(f"a grid sync of {total * threads} threads")
        if total * threads > 1 << 31:
            raise Unsupported(f"a run of all {total} blocks")
        batches = (np.arange(a, min(total, a + per_batch), dtype=np.int64) for a in range(0, total, per_batch))
    else:
        chosen = np.array(sorted(set(launch.blocks)), np.int64)
        observation.blocks = [int(b) for b in chosen]
        batches = (chosen[a : a + per_batch] for a in range(0, len(chosen), per_batch))
    for blocks in batches:
        specials = machine.begin(blocks)
        frame = Frame(machine, code, len(blocks) * threads, None, None)
        frame.specials = specials
        machine.step(frame.total)
        for param, value in values.items():
            frame.vars[param] = value
            if param in code.in_memory or lives_in_memory(param.type):
                keep_in_memory(frame, param, machine.site(launch.kernel.body, code))
        code.run(frame)
        if frame.n:
            machine.exit(frame.lanes())
        frame.release()
        observation.threads_run += frame.total


def _argument(machine: Machine, given: Argument, type_: Type, states: dict[str, BufferState]) -> Any:
    """A kernel argument as a value."""
    if isinstance(given, View):
        return _argument(machine, given.buffer, type_, states) + np.int64(given.offset)
    if isinstance(given, Buffer):
        state = states.get(given.name)
        if state is None:
            size = given.element.size
            if size is None:
                raise Unsupported(f"a buffer of '{given.element}'")
            obj = machine.memory.add(given.name, "global", given.element, size * given.extent)
            obj.fill = given.fill
            state = states[given.name] = BufferState(given, obj)
        return np.int64(state.base)
    if isinstance(type_, Ptr) and (given is None or given == 0):
        return np.int64(0)
    if isinstance(type_, (Int, Float)):
        if isinstance(type_, Int):
            return dtype_of(type_).type(type_.wrap(int(given)))
        return convert(np.float64(given), type_)
    if isinstance(type_, Struct) and isinstance(given, dict):
        fields = type_.fields or {}
        return {
            n: _argument(machine, given[n], t, states) if n in given else undefined_value(t) for n, t in fields.items()
        }
    if isinstance(type_, Array) and isinstance(given, (list, tuple)):
        return [_argument(machine, g, type_.element, states) for g in given]
    raise Unsupported(f"an argument of type '{type_}'")


def uses_grid_sync(kernel: Function) -> bool:
    """Whether the kernel (or what it calls) may sync the whole grid: then all blocks run at once."""
    from cudalint.sim.expressions import children

    stack: list[Any] = [kernel.body]
    seen: set[Any] = set()
    while stack:
        item = stack.pop()
        name = getattr(item, "name", "")
        if isinstance(name, str) and name.rpartition("::")[2] in ("this_grid", "this_multi_grid"):
            return True
        target = getattr(item, "target", None)
        if (
            target is not None
            and getattr(target, "has_body", False)
            and target not in seen
            and hasattr(target, "lower")
        ):
            seen.add(target)
            if len(seen) < 200:
                stack.append(target.lower({}).body)
        stack.extend(children(item))
    return False


def _collect(observation: Observation, machine: Machine, states: dict[str, BufferState]) -> None:
    memory = machine.memory
    observation.buffers = states
    observation.outside, observation.outside_count = memory.outside.events, memory.outside.total
    observation.uninitialised = memory.unknown.events + machine.unset.events
    observation.races = memory.races.events if machine.races or machine.threads_per_block == 1 else None
    observation.race_count = memory.races.total
    observation.misaligned = memory.misaligned.events
    observation.wraps = machine.wraps.events
    observation.divergent = machine.divergences.events
    observation.absent = machine.absences.events
    observation.arrivals = machine.arrivals_seen()
    observation.printed = machine.printed
    observation.failed_assertions = machine.failed
    observation.steps = machine.steps
    observation.sampled = machine.sampled
