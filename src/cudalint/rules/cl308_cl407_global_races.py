"""CL308 global-race and CL407 in-place-stencil: threads of the grid that meet in global memory."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from cudalint.facts import concrete, kernels, races, search, shapes
from cudalint.facts import terms as t
from cudalint.facts.events import conjuncts
from cudalint.facts.expressions import from_poly
from cudalint.facts.ids import BID, TID
from cudalint.facts.uniformity import expand
from cudalint.findings import Witness
from cudalint.ir.types import I64
from cudalint.lazy import NamedTuple
from cudalint.rules import cl201_cl211_strides, launches, support
from cudalint.rules.draft import Draft

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudalint.confirm.experiment import Bench, Plan
    from cudalint.confirm.oracle import Fault, Run
    from cudalint.facts.concrete import Launched
    from cudalint.facts.events import Access, Loop, Obj
    from cudalint.facts.kernels import Case
    from cudalint.facts.model import Kernel
    from cudalint.facts.races import Meeting, Thread
    from cudalint.facts.terms import Poly, Term
    from cudalint.sim import Race

CODES = ("CL308", "CL407")


class _Update(NamedTuple):
    """A location that a thread reads and then writes: ``reads`` are the reads, ``write`` the store."""

    reads: tuple[Access, ...]
    write: Access


def check_update(kernel: Kernel) -> Iterator[Draft]:
    """Locations that several threads read, change and write back."""
    flow = kernel.flow
    if not kernel.is_kernel or not flow.complete:
        return
    updates = [x for x in _updates(kernel) if not _held(kernel, x.write)]
    if not updates:
        return
    told: set[object] = set()
    for same in concrete.launches(kernel, concrete.terms_of(flow)):
        for update in updates:
            write = update.write
            if write.obj in told or races.is_own(write, same[0]) or _is_apart(write, same[0]):
                continue
            met = [_shared_update(kernel, update, x) for x in same]
            if all(x is not None for x in met) and met[0] is not None:
                if any(True for _ in cl201_cl211_strides.check(kernel)):
                    return  # threads have the wrong elements: what they do to them in common comes of that
                told.add(update.write.obj)
                yield _update_draft(update, met[0], same[0])


def _updates(kernel: Kernel) -> Iterator[_Update]:
    """The stores to what the same thread has read, at the same address as far as terms tell."""
    reads: dict[tuple[Obj, frozenset[tuple[tuple[Term, ...], int]]], list[Access]] = {}
    for access in kernel.flow.accesses:
        if access.obj.kind != "global" or access.scalar is None or not races.is_plain(access.obj):
            continue
        key = access.obj, frozenset(access.scalar.items())
        if access.mode == "r":
            reads.setdefault(key, []).append(access)
        elif access.mode == "rw":
            yield _Update((), access)
        elif access.mode == "w" and key in reads:
            yield _Update(tuple(reads[key]), access)


def _held(kernel: Kernel, access: Access) -> bool:
    """Whether threads may take turns at the access: a loop before it waits for an atomic, or an unseen call does."""
    for loop in kernel.flow.loops:
        if loop.first <= access.seq and any(
            leaf.data.kind == "call" for control in loop.control for leaf in t.leaves(control)
        ):
            return True
    return any(x.seq < access.seq for x in kernel.flow.calls)


class _Met(NamedTuple):
    """Two threads at one address; ``data`` are the loads that have to agree for it, in words."""

    first: Thread
    second: Thread
    address: int | None
    data: str


def _is_apart(write: Access, launched: Launched) -> bool:
    return races.are_apart(write, launched, _threads(write, launched))


def _threads(write: Access, launched: Launched) -> list[Thread]:
    """The threads that are tried: `i % size` comes round to the same element size threads further on."""
    rounds = {x.args[1] for x in t.atoms_of(write.scalar or {}) if x.op == "mod"}
    return races.spread(launched, [y for x in rounds if isinstance(y := _value(x, launched), int) and y > 0])


def _shared_update(kernel: Kernel, update: _Update, launched: Launched) -> _Met | None:
    threads, accesses = _threads(update.write, launched), (*update.reads, update.write)
    replay = races.Replay(kernel.flow, launched, threads, accesses, across=True)
    met = _lost(replay, update)
    if met is not None:
        return met
    if _accumulates(update.write):
        found = _same_data(replay, update.write)
        if found is not None:
            return found
    return _under_data(kernel, update, launched) if _counts(update.write) or _keeps_greatest(update.write) else None


def _under_data(kernel: Kernel, update: _Update, launched: Launched) -> _Met | None:
    """Two threads that come to one location, both let through by what they have read: `if (a[i] > 0) (*count)++`."""
    replay = races.Replay(
        kernel.flow, launched, _threads(update.write, launched), (*update.reads, update.write), across=True, data=True
    )
    met = _lost(replay, update)
    return _same_data(replay, update.write) if met is None and _adds(update.write) else met


def _lost(replay: races.Replay, update: _Update) -> _Met | None:
    """Two threads that both write back what they have read, one of them in between."""
    for item in replay.run():
        if update.write in (item.earlier, item.later) and replay.may_reach(update.write, (item.first, item.second)):
            return _Met(item.first, item.second, item.address, "")
    return None


def _counts(write: Access) -> bool:
    """Whether what is stored is surely made of what was there: a flag that is set is not."""
    return write.mode == "rw" or (
        write.value is not None and _accumulates(write) and any(_is_of(x, write.obj) for x in t.leaves(write.value))
    )


def _adds(write: Access) -> bool:
    """Whether what is stored is surely the element itself with something added, not made of another one."""
    if write.mode == "rw":
        return True
    found = t.leaves(write.value) if write.value is not None and _accumulates(write) else ()
    return any(_is_of(x, write.obj) and any(t.poly(y) == write.scalar for y in x.data.inputs) for x in found)


def _is_of(leaf: Term, obj: Obj) -> bool:
    return leaf.data.kind == "load" and leaf.data.data is obj


def _keeps_greatest(write: Access) -> bool:
    """Whether what is stored was found to be greater, or less, than what is there."""
    for test in conjuncts(write.guard):
        if test.op in ("lt", "le") and write.value in test.args:
            other = test.args[test.args[0] is write.value]
            if other.op == "atom" and _is_of(other, write.obj):
                return True
    return False


def _accumulates(write: Access) -> bool:
    """Whether the store adds to what was there: counters and sums are met again, while elements that an array of
    indices picks out to be scaled or replaced are likely to be distinct."""
    value = write.value
    while value is not None and value.op == "cast":
        value = value.args[0]
    return value is None or value.op in ("add", "sub", "min", "max", "or")


def _value(term: Term, launched: Launched) -> object:
    try:
        return t.evaluate(term, launched.values)
    except t.Undefined:
        return None


def _same_data(replay: races.Replay, access: Access) -> _Met | None:
    """Two threads whose addresses are the same once the elements loaded for them agree."""
    fixed: Poly = {}
    loaded: list[Term] = []
    for monomial, coefficient in (access.scalar or {}).items():
        leaves = [leaf for x in monomial for leaf in t.leaves(x)]
        if any(x.data.kind == "load" for x in leaves):
            loaded.extend(monomial)
        else:
            fixed[monomial] = coefficient
    if not loaded or not all(_is_data(leaf) for x in loaded for leaf in t.leaves(x)):
        return None
    if any(leaf.data.kind in ("loop", "exit") for m in fixed for x in m for leaf in t.leaves(x)):
        return None  # `first[i] + k`: an offset, and what begins there is likely the thread's own
    seen: dict[int, int] = {}
    for thread in replay.open.get(access, ()):
        rest = replay.address(list(fixed.items()), replay.envs[thread])
        if rest is None:
            continue
        other = seen.setdefault(rest, thread)
        if other != thread:
            names = dict.fromkeys(leaf.data.name for x in loaded for leaf in t.leaves(x) if leaf.data.kind == "load")
            return _Met(replay.threads[other], replay.threads[thread], None, " and ".join(f"`{x}`" for x in names))
    return None


def _is_data(leaf: Term) -> bool:
    """An element of global memory at a known place, or a number that all threads share."""
    info = leaf.data
    if info.kind == "load":
        return all(
            x.data.kind in _KNOWN or (x.data.kind == "loop" and x.data.data.step is not None)
            for y in info.inputs
            for x in t.leaves(y)
        )
    return info.kind in ("param", "bdim", "gdim", "name")


_KNOWN = frozenset({"tid", "bid", "bdim", "gdim", "param", "name", "size"})


def _update_draft(update: _Update, met: _Met, launched: Launched) -> Draft:
    access = update.write
    one, other = (launches.thread_words(x, launched.grid, launched.block) for x in (met.first, met.second))
    values: dict[str, int | str] = {"first": one, "second": other}
    if met.address is not None:
        values["element"] = met.address
        where = f"`{access.obj.name}[{met.address}]`"
        message = (
            f"{one} and {other} both read and write back {where}, and no atomic keeps them apart: updates are lost"
        )
    else:
        values["where equal"] = met.data
        message = (
            f"{one} and {other} update one element of `{access.obj.name}` wherever {met.data} is the same for both,"
            " and no atomic keeps them apart: updates are lost"
        )
    from cudalint.rules import atomics

    related = tuple((x.fn.file, x.node.start, x.node.end, "read here") for x in update.reads[-1:])
    return Draft(
        "CL308", access.fn, access.fn.file, access.node.start, access.node.end, message,
        "an atomic operation, or one partial result a thread and a reduction",
        Witness(launched.sizes, launched.grid, launched.block, met.second, values), (*related, *support.calls(access)),
        fix=atomics.atomic(access),
    )  # fmt: skip


# --- in place -------------------------------------------------------------------------------------


def check_stencil(kernel: Kernel) -> Iterator[Draft]:
    """Neighbours read from the array that the kernel writes."""
    flow = kernel.flow
    if not kernel.is_kernel or not flow.complete:
        return
    found = _neighbours(kernel)
    if not found:
        return
    told: set[Obj] = set()
    for same in concrete.launches(kernel, concrete.terms_of(flow)):
        for array, item in found.items():
            if array in told:
                continue
            for sizes in (same, [_near(item, x) for x in same]) if item.radii else (same,):
                met = [_stencil(kernel, item, x) for x in sizes]
                if met[0] is not None and all(x is not None for x in met):
                    told.add(array)
                    yield _stencil_draft(met[0], sizes[0])
                    break


class _InPlace(NamedTuple):
    """The accesses to an array that is written and read beside what is written: a fixed distance beside (of the
    ``distances``), at the distances that a loop counts through, or at an index that runs another way (the ``crossing``
    pairs of a read and a write). ``radii`` are the parameters that say how far beside."""

    accesses: set[Access]
    distances: list[Poly]
    crossing: list[tuple[Access, Access]]
    radii: set[Term]


def _neighbours(kernel: Kernel) -> dict[Obj, _InPlace]:
    """The arrays that are written and read beside what is written."""
    same = _aliases(kernel)
    by_array: dict[Obj, tuple[list[Access], list[Access]]] = {}
    for access in kernel.flow.accesses:
        if access.obj.kind == "global" and access.scalar is not None and races.is_plain(access.obj):
            reads, writes = by_array.setdefault(same.get(access.obj, access.obj), ([], []))
            (reads if access.mode == "r" else writes).append(access)
    result: dict[Obj, _InPlace] = {}
    for array, (reads, writes) in by_array.items():
        found = _InPlace(set(), [], [], set())
        for write in writes[:_MOST] if reads else ():
            if write.mode == "atomic" or not kernels.ids_of(t.atoms_of(write.scalar or {})):
                continue  # what one thread puts in one place is no neighbour of what others have
            for read in reads[:_MOST]:
                p = t.add(read.scalar or {}, write.scalar or {}, -1)
                if p and all(map(_is_shared, t.atoms_of(p))):
                    found.accesses.update((read, write))
                    if p not in found.distances:
                        found.distances.append(p)
                    found.radii.update(_shifts(kernel, read, write, p))
                elif p and (loops := _windows(p, write)):
                    found.accesses.update((read, write))
                    found.radii.update(_radii(loops) - t.leaves(from_poly(write.scalar or {}, I64)))
                elif p and (own := _own_ids(write)) and own == _own_ids(read):
                    found.accesses.update((read, write))
                    found.crossing.append((read, write))
        if found.accesses and not any(_held(kernel, x) for x in found.accesses):
            result[array] = found
    return result


def _is_shared(item: Term) -> bool:
    """Whether all threads have the same number."""
    return item.op == "const" or (item.op == "atom" and item.data.kind in ("param", "name"))


def _shifts(kernel: Kernel, read: Access, write: Access, p: Poly) -> set[Term]:
    """The parameter by which an array is moved: of what is stored nothing was there, and the thread's element is tested
    together with it, so that it can be any number. What is added up may be halves of the array."""
    own = [x for x in kernel.flow.accesses if x.obj is read.obj and x.mode != "w" and x.scalar == write.scalar]
    if own or len(p) != 1 or len(next(iter(p))) != 1:
        return set()
    tested = [t.leaves(x) for x in conjuncts(write.guard)]
    moved = {x for x in t.atoms_of(p) if x.data.kind == "param" and any(x in y and _with_thread(y) for y in tested)}
    return moved - set(t.atoms_of(write.scalar or {}))


def _with_thread(leaves: frozenset[Term]) -> bool:
    return any(x.data.kind in ("tid", "bid") for x in leaves)


def _windows(p: Poly, write: Access) -> list[Loop]:
    """The loops that count through elements beside the thread's own, which is ``p`` away from what is read; none where
    something else takes part. A loop without a constant end has to go in the threads' own steps or to begin a size of
    its own before them: what a thread has of an array may be as long as the loop."""
    counters = [x for x in t.atoms_of(p) if x.op == "atom" and x.data.kind == "loop" and x.data.data.step is not None]
    around = {y for x in counters for y in kernels.ids_of([x])}
    for item in t.atoms_of(p):
        if item not in counters and not _is_shared(item) and not (around and kernels.ids_of([item]) <= around):
            return []
    loops = [x.data.data.loop for x in counters]
    own = expand(write.scalar or {})
    steps = [shapes.coefficient(own, x) for x in (*TID.values(), *BID.values())]
    for counter, loop in zip(counters, loops):
        found = kernels.trips(loop)
        each = t.multiply(shapes.coefficient(p, counter), t.poly(counter.data.data.step))
        begin = _parameters(counter.data.data.init)
        constant = found is not None and t.constant(found[0]) is not None
        if not (constant or each in steps or begin - set(t.atoms_of(own))):
            return []
    return loops


def _radii(loops: list[Loop]) -> set[Term]:
    """The parameters that say how far before an element loops begin, or else where they end: an end may be that of
    the array as well."""
    begin = {x for loop in loops for info in loop.inductions.values() for x in _parameters(info.init)}
    return begin or {x for loop in loops for x in _parameters(loop.cond)}


def _parameters(term: Term | None) -> set[Term]:
    return {x for x in t.leaves(term) if x.data.kind == "param"} if term is not None else set()


def _near(item: _InPlace, launched: Launched) -> Launched:
    """The launch with neighbours close by, where their distance is a size of its own."""
    launch, values, sizes = launched.launch, dict(launched.values), dict(launched.sizes)
    for radius in item.radii & launched.free:
        name = radius
        if launch is not None:
            name = t.bare(launch.mapping[radius])
            others = (y for x, y in launch.mapping.items() if x is not radius)
            if name.op != "atom" or name in search.leaves_of([*others, *launch.conditions]):
                continue
        values[radius] = sizes[name.data.name] = _RADIUS
    return launched._replace(values=values, sizes=sizes)


_RADIUS = 2
"""Far enough that red and black meet their own colour."""


def _own_ids(access: Access) -> set[Term]:
    """The launch ids of an address by which each thread comes to an element, made of them and of sizes that its index
    is tested against; none where something else takes part."""
    atoms = set(t.atoms_of(expand(access.scalar or {})))
    tested = {x for term in conjuncts(access.guard) for x in t.leaves(term)}
    if any(x.op != "atom" or not (x.data.kind in _PLACED or (x.data.kind == "param" and x in tested)) for x in atoms):
        return set()
    return {x for x in atoms if x.data.kind != "param"}


_PLACED = frozenset({"tid", "bid", "bdim"})


_MOST = 24
"""Accesses of one array that are compared with each other."""


def _aliases(kernel: Kernel) -> dict[Obj, Obj]:
    """Parameters that every visible launch gives the same buffer."""
    found: dict[Obj, Obj] = {}
    for number, launch in enumerate(kernel.launches):
        here: dict[Obj, Obj] = {}
        first: dict[object, Obj] = {}
        for formal, actual in launch.objects().items():
            if not actual.pieces:
                other = first.setdefault(actual.obj, formal)
                if other is not formal:
                    here[formal] = other
        found = here if number == 0 else {a: b for a, b in found.items() if here.get(a) is b}
    return found


def _stencil(kernel: Kernel, item: _InPlace, launched: Launched) -> Meeting | None:
    numbers, accesses = [], item.accesses
    for p in item.distances:
        try:
            numbers.append(abs(sum(c * _product(m, launched) for m, c in p.items())))
        except t.Undefined:
            continue
    threads = races.spread(launched, dict.fromkeys(numbers))
    try:
        partners = [x for pair in item.crossing for x in _partners(pair, threads[:_READERS], launched)]
    except t.Undefined:
        partners = []
    threads = list(dict.fromkeys([*threads, *partners]))
    given = frozenset([x.obj for x in accesses])
    found = _met(kernel, launched, threads, accesses)
    if found is None and any(_changes(x, given) for x in accesses if x.mode != "r"):
        found = _met(kernel, launched, threads, {x for x in accesses if x.mode != "r" or not _asks(x, given)}, given)
    return found


def _met(
    kernel: Kernel, launched: Launched, threads: list[Thread], accesses: set[Access],
    given: frozenset[Obj] = frozenset(),
) -> Meeting | None:  # fmt: skip
    """The first meeting, where data of the arrays ``given`` may be whatever it takes."""

    def replay(*, apart: bool) -> races.Replay:
        return races.Replay(
            kernel.flow, launched, threads, accesses, across=True, apart=apart, same=_aliases(kernel), given=given
        )

    # Where blocks keep to parts of their own, or there is one block and barriers in it, CL304 speaks.
    if any(x > 1 for x in launched.grid):
        if _beside(replay(apart=True)) is None:
            return None
    elif any(x.scope == "block" for x in kernel.flow.barriers):
        return None
    return _beside(replay(apart=False))


def _asks(access: Access, arrays: frozenset[Obj]) -> bool:
    """Whether the elements of some arrays decide if an access is made."""
    return any(races.asks_alone(x, arrays) for x in conjuncts(access.guard))


def _changes(write: Access, arrays: frozenset[Obj]) -> bool:
    """Whether a store is made where the elements of some arrays ask for it, and is not one of those that come to the
    same in the end: a mark that is set, the least of neighbours that is kept."""
    value = t.bare(write.value) if write.value is not None else None
    compared = {t.bare(y) for x in conjuncts(write.guard) if x.op in ("lt", "le") for y in x.args}
    return value is not None and value.op != "const" and value not in compared and _asks(write, arrays)


def _partners(pair: tuple[Access, Access], readers: list[Thread], launched: Launched) -> Iterator[Thread]:
    """The threads that write what some others read."""
    read, write = (_Line(expand(x.scalar or {}), launched) for x in pair)
    wanted = {read.at(x) for x in readers}
    (gx, gy, gz), (bx, by, bz) = launched.grid, launched.block
    if gx * gy * gz * bx * by * bz <= _THREADS:
        for z, y, x, k, j, i in product(*map(range, (gz, gy, gx, bz, by, bx))):
            if write.at(((x, y, z), (i, j, k))) in wanted:
                yield (x, y, z), (i, j, k)


_THREADS = 1 << 12
_READERS = 16


class _Line:
    """An address as numbers of a launch: what each of a block's and a thread's numbers adds to it."""

    def __init__(self, p: Poly, launched: Launched) -> None:
        self.start, self.steps = 0, [0] * 6
        ids = [*BID.values(), *TID.values()]
        for monomial, coefficient in p.items():
            own = [x for x in monomial if x in ids]
            if len(own) > 1:
                raise t.Undefined
            coefficient *= _product(tuple([x for x in monomial if x not in ids]), launched)
            if own:
                self.steps[ids.index(own[0])] += coefficient
            else:
                self.start += coefficient

    def at(self, thread: Thread) -> int:
        return self.start + sum(step * x for step, x in zip(self.steps, (*thread[0], *thread[1])))


def _beside(replay: races.Replay) -> Meeting | None:
    """The first meeting of a read with a write beside the reader's own element."""
    for item in replay.run():
        modes = {item.earlier.mode, item.later.mode}
        if "r" in modes and len(modes) > 1 and item.earlier.scalar != item.later.scalar:
            return item
    return None


def _product(monomial: tuple[Term, ...], launched: Launched) -> int:
    result = 1
    for item in monomial:
        result *= t.evaluate(item, launched.values)
    return result


def _stencil_draft(item: Meeting, launched: Launched) -> Draft:
    read, write = (item.earlier, item.later) if item.earlier.mode == "r" else (item.later, item.earlier)
    reader, writer = (item.first, item.second) if item.earlier is read else (item.second, item.first)
    element = f"`{read.obj.name}[{item.address}]`"
    one, other = (launches.thread_words(x, launched.grid, launched.block) for x in (reader, writer))
    line = support.line(write, read.fn.file)
    return Draft(
        "CL407", read.fn, read.fn.file, read.node.start, read.node.end,
        f"{one} reads {element}, which {other} writes on {line}: the value is the old one or the new by chance",
        "write to a second buffer, and exchange the two between launches",
        Witness(
            launched.sizes, launched.grid, launched.block, reader,
            {"element": item.address, "reads it": one, "writes it": other},
        ),
        ((write.fn.file, write.node.start, write.node.end, "written here"), *support.calls(read)),
    )  # fmt: skip


def experiment_cl308(bench: Bench) -> Plan:
    """What the threads of a block do to the locations that are updated, and which of them several threads write; where
    one update is flagged, of its own."""
    from cudalint.confirm.experiment import Plan, oracle

    updates = [x.write for x in _updates(bench.kernel) if not _held(bench.kernel, x.write)]
    names = {x.obj.name for x in updates if x.value is None or t.bare(x.value).op != "const"}  # a flag loses nothing

    if bench.accessed is not None:
        names &= bench.accessed.names

    def judge(run: Run) -> Fault | None:
        def lost(race: Race) -> bool:
            # What one thread alone writes nobody else overwrites: others may only read it.
            state = None if "atomic" in race.kind else run.seen.buffers.get(race.buffer)
            return bench.at_flagged(race) and (state is None or int(state.writers([race.element])[1][0]) >= 0)

        several = oracle.written_twice(run, names)
        # Two of those who write are known, and there are more.
        return oracle.races(run, names, lost) or (several and several._replace(threads=None))

    return Plan(bench.trials(), judge, watch=frozenset({"writes", "races", "global-races"}))


def experiment_cl407(bench: Bench) -> Plan:
    """Which threads meet in the arrays that are read beside what is written: those of a block between two barriers,
    and those of two blocks where nothing makes blocks wait for each other."""
    from cudalint.confirm.experiment import Plan, oracle

    flow = bench.kernel.flow
    names = {a.obj.name for item in _neighbours(bench.kernel).values() for a in item.accesses}
    wide = any(x.scope not in ("block", "warp") for x in flow.barriers)
    ordered = wide or any(a.mode == "atomic" for a in flow.accesses)
    watch = frozenset({"races", "global-races", *(() if ordered else ("writes", "reads"))})

    def judge(run: Run) -> Fault | None:
        return oracle.races(run, names) or (None if ordered else oracle.between_blocks(run, names))

    def with_room(obj: Obj, extent: int, case: Case) -> int:
        # Threads that are out of range (CL402) do not meet.
        return max(extent, bench.harness.extent([obj], case)) if obj.name in names else extent

    bench.harness.adjusted = with_room
    return Plan(bench.trials(), judge, watch=watch)
