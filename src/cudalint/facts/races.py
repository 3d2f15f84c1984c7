"""Which threads meet at one address with nothing between them: a replay of a kernel's flow by concrete threads.

The flow of a kernel is a tree of accesses, barriers and loops with their terms. A replay evaluates the terms
for a few threads of a concrete launch, all of them in step: conditions say which threads take part, loops
carry their values round, a block barrier begins a new interval. Two threads that touch one address in one
interval, one of them writing, are a :class:`Meeting`. Since every term involved has a value, a meeting is a
fact of that launch; whatever has no value (data, unseen calls) is taken to part the threads.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

from cudalint.facts import terms as t
from cudalint.facts.events import Access, Barrier, Collective, Loop, ReturnEvent, chain, conjuncts, conjuncts_of
from cudalint.facts.ids import BID, TID
from cudalint.facts.uniformity import expand
from cudalint.ir.nodes import Call, While
from cudalint.ir.types import Float, Int, Param, Ptr, Struct, Type
from cudalint.lazy import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from cudalint.facts.concrete import Launched
    from cudalint.facts.events import Event, Flow, Guard, Induction, Obj
    from cudalint.facts.terms import Term

Triple = tuple[int, int, int]
Thread = tuple[Triple, Triple]
"""A thread by its block and its place in it."""

_PASSES = 16
"""Passes of a loop that are replayed; a tree over the largest block takes ten."""
_BUDGET = 6_000
"""Terms evaluated in one replay."""
_LARGE = 50
"""Steps of a term that count as one more: rounds of a hash have thousands."""
_SMALL = 256
_NO, _YES, _MAYBE = 0, 1, 2


class Meeting(NamedTuple):
    """Two threads at one address: ``earlier`` and ``later`` in the order of the source.

    ``loop`` is the loop whose back edge lies between them, None where there is none; ``passes`` the numbers of
    its passes in which they meet. With ``by_data`` it is data that brings one of them there.
    """

    earlier: Access
    later: Access
    address: int
    first: Thread
    second: Thread
    loop: Loop | None
    passes: tuple[int, int]
    by_data: bool = False


# --- which accesses can meet at all ---------------------------------------------------------------

_Item = Any
"""An access, a barrier, a return, another event that may order threads, or a loop with its items."""


class _Body:
    """A loop with what happens in it; ``touches`` is false where that is no access."""

    __slots__ = ("items", "loop", "sync", "touches")

    def __init__(self, loop: Loop) -> None:
        self.loop, self.sync, self.touches = loop, False, False
        self.items: list[_Item] = []


def is_plain(obj: Obj) -> bool:
    """Whether it is known what an access to the object touches: an element, or a member of a class that is seen. What
    a template does with an element of a type that it leaves open, it does with the whole, where the object itself is
    in sight: what a class makes of such a type may be anything."""
    element = obj.element
    if isinstance(element, Param):
        return obj.kind == "shared" or (obj.var is not None and obj.var.kind == "param")
    return isinstance(element, (Int, Float, Ptr)) or (isinstance(element, Struct) and element.fields is not None)


def array_of(access: Access) -> object:
    """The array that an access is to: a ``__shared__`` of a function template is one array for each instantiation;
    all that are ``extern`` begin at one place."""
    var = access.obj.var
    if var is not None and var.extern and access.obj.kind == "shared" and access.obj.element is not None:
        return "extern", access.obj.element.size
    if access.obj.kind == "shared" and var is not None:
        for site in reversed(access.stack):
            decl = site.callee.decl
            if decl is None or not decl.template or not isinstance(site.call, Call):
                continue
            if decl.start <= var.start < decl.end:
                text = site.fn.file.text
                given = (x if isinstance(x, Type) else text[x.start : x.end] for x in site.call.targs)
                return (access.obj, *given)
    return access.obj


def scopes(flow: Flow, wanted: Iterable[Access]) -> list[_Item]:
    """The tree of ``wanted`` accesses, of all that orders threads and of all that ends them, in program order."""
    events: list[Event] = [*wanted, *flow.barriers, *flow.returns, *flow.collectives]
    events += [*flow.calls, *flow.opaques]  # an unseen call may be a barrier
    events.sort(key=_sequence)
    top: list[_Item] = []
    open_: list[_Body] = []
    loops = iter(sorted(flow.loops, key=lambda x: (x.first, -x.last)))
    following = next(loops, None)
    for event in events:
        while following is not None and following.first <= event.seq:
            if event.seq <= following.last:
                while open_ and open_[-1].loop.last < following.first:
                    open_.pop()
                body = _Body(following)
                (open_[-1].items if open_ else top).append(body)
                open_.append(body)
            following = next(loops, None)
        while open_ and open_[-1].loop.last < event.seq:
            open_.pop()
        (open_[-1].items if open_ else top).append(event)
        for body in open_:
            if isinstance(event, Access):
                body.touches = True
            else:
                # A `return` of what the loop calls ends nothing that outlives the loop.
                body.sync |= not (isinstance(event, ReturnEvent) and len(event.stack) > len(body.loop.stack))
    return top


def _sequence(event: Event) -> int:
    return event.seq


def is_own(access: Access, launched: Launched) -> bool:
    """Whether no two threads of the grid come to one element by this access."""
    return _shape(access, launched, True).own


def are_apart(access: Access, launched: Launched, threads: Sequence[Thread]) -> bool:
    """Whether these threads of the grid surely come to elements of their own, whatever the passes of loops are.

    Cheaper than a replay where a thread's number is taken apart by quotients and remainders.
    """
    p = expand(access.scalar or {})
    moving: set[tuple[Term, ...]] = set()
    still: dict[tuple[Term, ...], list[tuple[list[Term], int]]] = {}
    for monomial, coefficient in p.items():
        counts = [x for x in monomial if x.op == "atom" and x.data.kind in ("count", "loop")]
        open_ = tuple([x for x in monomial if x in launched.free])
        if counts:
            moving.add(open_)
        else:
            still.setdefault(open_, []).append(([x for x in monomial if x not in launched.free], coefficient))
    # What a pass adds must not look like what tells threads apart: multiples of another parameter.
    if () in moving or not moving.isdisjoint(still):
        return False
    seen: set[object] = set()
    try:
        for block, thread in threads:
            env = dict(launched.values)
            for i, axis in enumerate("xyz"):
                env[BID[axis]], env[TID[axis]] = block[i], thread[i]
            key = []
            for open_, parts in still.items():
                total = 0
                for factors, coefficient in parts:
                    for item in factors:
                        coefficient *= t.evaluate(item, env)
                    total += coefficient
                key.append((open_, total))
            seen.add(tuple(key))
    except (t.Undefined, TypeError):
        return False
    return len(seen) == len(threads)


class _Shape:
    """What an address is made of: ``key`` is the same for accesses of one element by one thread; ``own`` tells that
    no two threads share it."""

    __slots__ = ("key", "own")

    def __init__(self, key: object, own: bool) -> None:
        self.key, self.own = key, own


def _shape(access: Access, launched: Launched, across: bool) -> _Shape:
    """``across`` counts the threads of all blocks, not of one."""
    if access.scalar is None:
        return _Shape(access, False)
    p = expand(access.scalar)
    digits: list[tuple[int, int]] = []
    seen: set[Term] = set()
    own = True
    parts = []
    for monomial, coefficient in p.items():
        ids = [x for x in monomial if x.op == "atom" and x.data.kind in ("tid", "bid", "count")]
        parts.append((tuple([None if x.op == "atom" and x.data.kind == "count" else x for x in monomial]), coefficient))
        if not ids:
            own = own and not any(x.op != "atom" or x.data.kind in ("loop", "load") for x in monomial)
            continue
        scale: int | None = abs(coefficient)
        for item in monomial:
            if item not in ids:
                value = launched.values.get(item)
                scale = scale * value if isinstance(value, int) and scale is not None else None
        if len(ids) != 1 or scale is None or not scale or ids[0] in seen:
            own = False
            continue
        seen.add(ids[0])
        info = ids[0].data
        if info.kind == "count":
            digits.append((scale, 0))
        elif info.kind == "tid":
            digits.append((scale, launched.block["xyz".index(info.axis)]))
        elif across:
            digits.append((scale, launched.grid["xyz".index(info.axis)]))
    digits.sort()
    reach = 1
    for scale, extent in digits:
        own = own and scale >= reach
        reach = scale * extent if extent else 1 << 62
    for number, axis in enumerate("xyz"):
        own = own and (launched.block[number] == 1 or TID[axis] in seen)
        own = own and (not across or launched.grid[number] == 1 or BID[axis] in seen)
    return _Shape(frozenset(parts) if own else (frozenset(parts), id(access)), own)


def suspects(flow: Flow, objects: Iterable[Obj], launched: Launched) -> set[Access]:
    """Accesses to ``objects`` between which a path without a barrier leads, threads' own elements left out."""
    chosen = set(objects)
    accesses = [a for a in flow.accesses if a.obj in chosen]
    search = _Search(launched)
    search.walk(scopes(flow, accesses), None, {})
    return search.found


_DEEP = 6
"""Loops in one another whose passes are told apart: each doubles the walk."""
_MOST_PAIRS = 500_000
"""Pairs of accesses that one search compares: thousands in a row with no barrier between are of unrolled code."""
_Open = dict[object, dict[object, "list[Access]"]]


class _Search:
    """A walk over all paths at once: ``open`` holds, for each object, what was done since the last barrier."""

    def __init__(self, launched: Launched) -> None:
        self.launched = launched
        self.pairs = _MOST_PAIRS
        self.found: set[Access] = set()
        self.shapes: dict[Access, _Shape] = {}

    def walk(self, items: list[_Item], base: Guard | None, open_: _Open, depth: int = 0) -> None:
        for item in items:
            if isinstance(item, Access):
                self.access(item, open_)
            elif isinstance(item, _Body):
                inner = {obj: dict(seen) for obj, seen in open_.items()}
                # What stands at the end of a pass meets the beginning of the next; far inside, one pass has to do.
                for _ in range(2 if depth < _DEEP else 1):
                    self.walk(item.items, item.loop.guard, inner, depth + 1)
                for obj, seen in inner.items():
                    open_.setdefault(obj, {}).update(seen)
            elif isinstance(item, Barrier) and item.scope != "warp" and _within(item.guard, base):
                open_.clear()

    def access(self, item: Access, open_: _Open) -> None:
        shape = self.shapes.get(item)
        if shape is None:
            shape = self.shapes[item] = _shape(item, self.launched, False)
        seen = open_.setdefault(array_of(item), {})
        self.pairs -= len(seen)
        for key, earlier in seen.items() if self.pairs > 0 else ():
            if key == shape.key and shape.own:
                continue
            for other in earlier:
                if conflicting(other, item):
                    self.found.add(other)
                    self.found.add(item)
        if not shape.own and conflicting(item, item):
            self.found.add(item)
        mine = seen.setdefault(shape.key, [])
        if all(x.mode != item.mode for x in mine) or (item not in mine and not shape.own):
            seen[shape.key] = [*mine, item]


def conflicting(a: Access, b: Access) -> bool:
    """Whether two accesses of one address by two threads need an order: one of them writes, and not both atomically.

    What reads an object of a class as a whole may be a member function that reads a part of it."""
    if (a.mode == "r" and b.mode == "r") or (a.mode == b.mode == "atomic"):
        return False
    whole = any(x.part == () and x.mode != "r" for x in (a, b))
    return whole or a.part == b.part


def _within(guard: Guard | None, base: Guard | None) -> bool:
    """Whether nothing but early exits and the loop itself decides who comes here from ``base``."""
    while guard is not None and guard is not base:
        if guard.why not in ("return", "assert", "implied", "loop"):
            return False
        guard = guard.parent
    return True


# --- the replay -------------------------------------------------------------------------------------


class _Touch:
    """One access by one thread, with where and when it was, and all values as they were then for a store."""

    __slots__ = ("access", "env", "interval", "passes", "phase", "thread", "warp")

    def __init__(
        self, access: Access, thread: int, interval: int, phase: int, warp: int, passes: tuple[tuple[Loop, int], ...],
        env: dict[Term, Any],
    ) -> None:  # fmt: skip
        self.access, self.thread, self.interval, self.phase, self.warp = access, thread, interval, phase, warp
        self.passes, self.env = passes, env


class _Cell:
    """What was done at one address: of each warp two threads of each mode and member, and the last write of each
    thread."""

    __slots__ = ("kept", "writers")

    def __init__(self) -> None:
        self.kept: dict[tuple[int, str, tuple[str, ...]], list[_Touch]] = {}
        self.writers: dict[int, _Touch] = {}

    def note(self, touch: _Touch) -> None:
        mode = touch.access.mode
        if mode == "w":
            self.writers[touch.thread] = touch
        key = touch.warp, mode, touch.access.part
        kept = self.kept.get(key)
        if kept is None or kept[0].phase != touch.phase or kept[0].interval != touch.interval:
            self.kept[key] = [touch]
        elif len(kept) == 1 and kept[0].thread != touch.thread:
            kept.append(touch)


class Replay:
    """Some threads of a launch going through the accesses of ``wanted``.

    ``meetings`` are found as they occur, in program order; after each one the interval is taken to be ended
    there, as by the barrier that is missing, so that each missing barrier is found once. ``across`` looks at
    threads of several blocks, which no barrier of a block orders, and ``apart`` at no others than of two blocks.

    Addresses are compared with the parameters that nothing fixes left open: rows whose length is a parameter do
    not overlap, whatever it is. Where ``same`` says which parameters are one buffer, numbers are compared.

    A thread that data may keep away (``if (a[i] > 0)``) is not counted, unless ``data`` says that any may pass, or
    ``given`` that the data of some arrays is such that it may.
    """

    def __init__(
        self, flow: Flow, launched: Launched, threads: Sequence[Thread], wanted: Iterable[Access], *,
        across: bool = False, apart: bool = False, same: Mapping[Obj, Obj] | None = None, data: bool = False,
        given: frozenset[Obj] = frozenset(),
    ) -> None:  # fmt: skip
        self.apart, self.same, self.data, self.given = apart, same or {}, data, given
        self.free = launched.free if same is None else frozenset()
        self.launched, self.threads, self.across = launched, threads, across
        self.wanted = set(wanted)
        self.meetings: list[Meeting] = []
        self.budget = _BUDGET
        bx, by, _ = launched.block
        self.envs: list[dict[Term, Any]] = []
        self.warps: list[int] = []
        blocks: dict[Triple, int] = {}
        for block, thread in threads:
            env = dict(launched.values)
            for i, axis in enumerate("xyz"):
                env[BID[axis]], env[TID[axis]] = block[i], thread[i]
            self.envs.append(env)
            linear = thread[0] + bx * (thread[1] + by * thread[2])
            self.warps.append(blocks.setdefault(block, len(blocks)) * 32 + linear // 32)
        self.uniform: dict[Term, bool] = {}
        self.alive = [True] * len(threads)
        self.stored = {x.obj for x in flow.accesses if x.mode != "r"}
        self.kept: dict[int, dict[Term, Any]] = {}
        """The threads' values at this moment, where something has been stored with them."""
        self.interval = self.phase = 0
        self.memo: dict[Guard, list[int]] = {}
        self.running: dict[Loop, list[int]] = {}
        self.passes: tuple[tuple[Loop, int], ...] = ()
        self.log: dict[tuple[object, int, frozenset[Any]], _Cell] = {}
        self.overrun: set[Obj] = set()
        self.open: dict[Access, list[int]] = {}
        """Who comes to accesses whose address hangs on data."""
        self.counters = {x for x in self.wanted if not across and _is_counter(x)}
        self.counted: dict[object, list[_Touch]] = {}
        """Updates of counters in this interval, by array."""
        self.exits = _exits(flow, self.wanted)
        self.sized = {x for x in self.wanted if _is_sized(x)}
        """Accesses whose reach hangs on a parameter."""
        self.items = self._pruned(scopes(flow, self.wanted))

    def _pruned(self, items: list[_Item]) -> list[_Item]:
        """Without loops in which nothing that counts happens."""
        kept = []
        for item in items:
            if isinstance(item, _Body):
                item.items = self._pruned(item.items)
                if not item.items and item.loop not in self.exits:
                    continue
            kept.append(item)
        return kept

    def run(self) -> list[Meeting]:
        """The meetings, in arrays that the sizes chosen do not make the kernel overrun."""
        self.sequence(self.items)
        return [x for x in self.meetings if x.earlier.obj not in self.overrun]

    def may_reach(self, access: Access, threads: Iterable[Thread]) -> bool:
        """Whether each of some threads may come to an access."""
        states = dict(zip(self.threads, self.truth(access.guard)))
        return all(states[thread] != _NO for thread in threads)

    def sequence(self, items: list[_Item]) -> None:
        for item in items:
            if self.budget < 0:
                return
            if isinstance(item, Access):
                self.access(item)
            elif isinstance(item, _Body):
                self.loop(item)
            elif isinstance(item, ReturnEvent):
                self.leave(item)
            elif any(self.truth(item.guard)):
                if isinstance(item, Collective) or (isinstance(item, Barrier) and item.scope == "warp"):
                    self.phase += 1
                else:
                    self.part(isinstance(item, Barrier) and item.scope == "block")

    def part(self, block_only: bool = False) -> None:
        """Begins a new interval, of the block or of the grid."""
        self.interval += 1
        if not (block_only and self.across):
            self.forget()

    def forget(self) -> None:
        self.log.clear()
        self.counted.clear()

    def leave(self, item: ReturnEvent) -> None:
        if item.stack and not any(len(loop.stack) >= len(item.stack) for loop in self.running):
            return  # the guards after it say who stayed
        if self.data and any(map(is_of_data, conjuncts(item.guard))):
            return  # data may let any thread go on
        for i, state in enumerate(self.truth(item.guard)):
            if state == _YES or (state and not self.data):
                self.alive[i] = False

    # --- conditions

    def truth(self, guard: Guard | None) -> list[int]:
        """Who comes here: for each thread no, yes or maybe."""
        pending = []
        at = guard
        state: list[int] | None = None
        while at is not None:
            state = self.running.get(at.loop) if at.loop is not None else self.memo.get(at)
            if state is not None:
                break
            pending.append(at)
            at = at.parent
        if state is None:
            state = [_YES] * len(self.threads)
        for item in reversed(pending):
            for term in conjuncts_of(item.term) if self.data else (item.term,):
                if not (self.data and is_of_data(term)):
                    state = self.narrowed(state, term)
            self.memo[item] = state
        return [x if alive else _NO for x, alive in zip(state, self.alive)]

    def narrowed(self, state: list[int], term: Term) -> list[int]:
        if self.is_uniform(term):
            holds = self.value(term, self.envs[0])
            if holds is None:
                return [x and _MAYBE for x in state]
            return state if holds else [_NO] * len(state)
        result = []
        for value, env in zip(state, self.envs):
            if value:
                holds = self.value(term, env)
                if holds is None:
                    value = value if self.given and asks_alone(term, self.given) else _MAYBE
                elif not holds:
                    value = _NO
            result.append(value)
        return result

    def is_uniform(self, term: Term) -> bool:
        """Whether all threads see the same value at the same pass: one evaluation is enough."""
        found = self.uniform.get(term)
        if found is None:
            self.uniform[term] = True  # a value round a loop follows itself
            found = self.uniform[term] = self._is_uniform(term)
        return found

    def _is_uniform(self, term: Term) -> bool:
        if term.op != "atom":
            return all(self.is_uniform(x) for x in term.args)
        info = term.data
        if info.kind == "loop":
            parts = (info.data.init, info.data.next)
            return all(x is not None and self.is_uniform(x) for x in parts)
        return info.kind in ("bdim", "gdim", "param", "name", "count") or (info.kind == "bid" and not self.across)

    def value(self, term: Term, env: dict[Term, Any]) -> Any:
        self.budget -= 1 + t.size(term) // _LARGE
        return t.evaluated(term, env) if self.budget >= 0 else None

    # --- accesses

    def access(self, item: Access) -> None:
        if item.scalar is None:
            return
        state = self.truth(item.guard)
        if not any(state):
            return
        parts = list(item.scalar.items())
        symbolic = [(m, c) for m, c in parts if not self.free.isdisjoint(m)]
        fixed = [x for x in parts if x not in symbolic] if symbolic else parts
        extent = item.obj.extent
        array = self.same.get(item.obj) or array_of(item)
        for i, here in enumerate(state):
            if here != _YES:
                continue
            env = self.envs[i]
            address = self.address(parts, env)
            if address is None:
                self.open.setdefault(item, []).append(i)
                if item in self.counters:
                    self.count(self.touched(item, i), array)
                continue
            if extent is not None and not 0 <= address < extent:
                if item in self.sized:
                    self.overrun.add(item.obj)
                continue
            touch = self.touched(item, i)
            base, rest = address, frozenset[Any]()
            if symbolic:
                base, rest = self.address(fixed, env) or 0, self.multiples(symbolic, env)
            for k in range(item.width):
                if self.touch(touch, (array, base + k, rest), address + k):
                    break

    def touched(self, item: Access, thread: int) -> _Touch:
        env = self.envs[thread]
        if item.mode == "w" and self.passes:
            env = self.kept.get(thread) or self.kept.setdefault(thread, dict(env))
        return _Touch(item, thread, self.interval, self.phase, self.warps[thread], self.passes, env)

    def address(self, parts: list[tuple[tuple[Term, ...], int]], env: dict[Term, Any]) -> int | None:
        """A sum of products as the thread of ``env`` has it; None where a part has no value."""
        total = 0
        for monomial, coefficient in parts:
            for item in monomial:
                value = env.get(item) if item.op == "atom" and item in env else self.value(item, env)
                if not isinstance(value, int):
                    return None
                coefficient *= value
            total += coefficient
        return total

    def multiples(self, parts: list[tuple[tuple[Term, ...], int]], env: dict[Term, Any]) -> frozenset[Any]:
        """How many of each product of open parameters an address has."""
        found: dict[tuple[Term, ...], int] = {}
        for monomial, coefficient in parts:
            open_ = tuple([x for x in monomial if x in self.free])
            number = self.address([(tuple([x for x in monomial if x not in self.free]), coefficient)], env)
            found[open_] = found.get(open_, 0) + (number or 0)
        return frozenset((k, v) for k, v in found.items() if v)

    def touch(self, touch: _Touch, key: tuple[object, int, frozenset[Any]], address: int) -> bool:
        """Notes an access; True where it meets another thread's."""
        array = key[0]
        cell = self.log.get(key)
        if cell is None:
            cell = self.log[key] = _Cell()
        for kept in cell.kept.values():
            for other in kept:
                self.budget -= 1
                if (
                    other.thread != touch.thread
                    and conflicting(other.access, touch.access)
                    and self.unordered(other, touch)
                    and not self.harmless(other, touch, cell)
                ):
                    self.meet(other, touch, address)
                    # As the missing barrier would: those before it are done.
                    self.forget()
                    self.log[key] = cell = _Cell()
                    cell.note(touch)
                    return True
        for other in self.counted.get(array, ()) if self.counted else ():
            if self.meets(other, touch):
                self.meet(other, touch, address, by_data=True)
                self.forget()
                self.log[key] = cell = _Cell()
                break
        cell.note(touch)
        return False

    def count(self, touch: _Touch, array: object) -> None:
        """Notes the update of a counter that data picks: it meets whoever came to any of them."""
        for (other_array, address, rest), cell in self.log.items():
            if other_array != array or rest:
                continue
            for other in (x for kept in cell.kept.values() for x in kept):
                if self.meets(other, touch):
                    self.meet(other, touch, address, by_data=True)
                    self.forget()
                    self.counted[array] = [touch]
                    return
        counted = self.counted.setdefault(array, [])
        met = next((x for x in counted if self.meets(x, touch)), None)
        if met is not None:
            loads = [x for item in t.atoms_of(touch.access.scalar or {}) for x in t.leaves(item)]
            nothing = {**dict.fromkeys(loads, 0), **self.envs[touch.thread]}
            there = self.address(list((touch.access.scalar or {}).items()), nothing)
            self.meet(met, touch, there or 0, by_data=True)
            counted.clear()
        counted.append(touch)

    def meets(self, a: _Touch, b: _Touch) -> bool:
        self.budget -= 1
        return a.thread != b.thread and conflicting(a.access, b.access) and self.unordered(a, b)

    def unordered(self, a: _Touch, b: _Touch) -> bool:
        if self.across and self.threads[a.thread][0] != self.threads[b.thread][0]:
            return True
        return not self.apart and a.interval == b.interval and (a.warp != b.warp or a.phase == b.phase)

    def harmless(self, a: _Touch, b: _Touch, cell: _Cell) -> bool:
        """Two writes of one value; a read by a thread that has itself just written that very value."""
        if a.access.mode == b.access.mode == "w":
            return self.same_value(a, b)
        read, write = (a, b) if a.access.mode == "r" else (b, a)
        if read.access.mode == "r" and write.access.mode == "w":
            mine = cell.writers.get(read.thread)
            return mine is not None and self.same_value(mine, write)
        return False

    def same_value(self, a: _Touch, b: _Touch) -> bool:
        """Whether two stores put the same there; true where that cannot be told."""
        x, y = a.access.value, b.access.value
        if x is None or y is None:
            return True
        first, second = self.value(x, a.env), self.value(y, b.env)
        if first is not None and second is not None:
            return bool(first == second)
        return not (depends(x) or depends(y)) or (x is y and self.agree(x, a, b))

    def agree(self, term: Term, a: _Touch, b: _Touch) -> bool:
        """Whether a term comes to the same for both: loads do from one place that the kernel writes nothing to."""
        first, second = self.value(term, a.env), self.value(term, b.env)
        if first is not None and second is not None:
            return bool(first == second)
        parts = term.args
        if term.op == "atom":
            constant = term.data.kind == "load" and term.data.data is not None and term.data.data not in self.stored
            parts = term.data.inputs if constant else ()
        return bool(parts) and all(self.agree(x, a, b) for x in parts)

    def meet(self, a: _Touch, b: _Touch, address: int, *, by_data: bool = False) -> None:
        loop, passes = None, (0, 0)
        there = dict(b.passes)
        for each, number in a.passes:
            if each in there and there[each] != number:
                loop, passes = each, (number, there[each])
                break
        self.meetings.append(
            Meeting(a.access, b.access, address, self.threads[a.thread], self.threads[b.thread], loop, passes, by_data)
        )

    # --- loops

    def loop(self, body: _Body) -> None:
        loop = body.loop
        running = self.truth(loop.guard)
        if not any(running):
            return
        # No sum of floats is followed.
        inductions = [x for x in loop.inductions.values() if x.term is not None and not isinstance(x.term.type, Float)]
        for info in inductions:
            self.put_all(info.term, self.values(info.init))
        outer, self.memo = self.memo, {}
        before = self.passes
        post = isinstance(loop.node, While) and loop.node.post
        # What only orders threads does so in one pass as in many.
        ended = not body.touches and loop not in self.exits
        for number in range(1 if ended else _PASSES):
            if not post:
                self.test(loop, running)
            if not any(running) or self.budget < 0:
                ended = True
                break
            self.memo = {}
            self.running[loop] = running
            self.passes = (*before, (loop, number))
            self.sequence(body.items)
            running = [x if alive else _NO for x, alive in zip(running, self.alive)]
            self.running[loop] = running
            self.breaks(loop, running)
            if post:
                self.test(loop, running)
            values = [self.values(info.next) for info in inductions]
            for info, each in zip(inductions, values):
                self.put_all(info.term, each)
        self.running.pop(loop, None)
        self.memo, self.passes = outer, before
        for info in inductions:
            self.put_all(info.term, [None] * len(self.envs))
        if not ended and body.sync:
            self.part()  # what the passes not seen come to is not known

    def values(self, term: Term | None) -> list[Any]:
        """What each thread finds a term to be."""
        if term is None or isinstance(term.type, Float):
            return [None] * len(self.envs)
        if self.is_uniform(term):
            return [self.value(term, self.envs[0])] * len(self.envs)
        return [self.value(term, env) for env in self.envs]

    def put_all(self, atom: Term | None, values: list[Any]) -> None:
        if atom is not None:
            self.kept.clear()
            for env, value in zip(self.envs, values):
                if value is None:
                    env.pop(atom, None)
                else:
                    env[atom] = value

    def put(self, env: dict[Term, Any], atom: Term | None, value: Any) -> None:
        if atom is None:
            return
        self.kept.clear()
        if value is None:
            env.pop(atom, None)
        else:
            env[atom] = value

    def test(self, loop: Loop, running: list[int]) -> None:
        """Who goes on, by the loop's own test; those who leave by it keep the values they leave with."""
        if loop.cond is None:
            return
        holding = self.values(loop.cond)
        for i, state in enumerate(running):
            if not state:
                continue
            env = self.envs[i]
            holds = holding[i]
            if holds:
                continue
            running[i] = _NO
            for leaving, info in self.exits.get(loop, ()):
                self.put(env, leaving, env.get(info.term) if holds is not None and info.term is not None else None)

    def breaks(self, loop: Loop, running: list[int]) -> None:
        for control in loop.control:
            if control is loop.cond:
                continue
            leaving_by_it = self.values(control)
            for i, state in enumerate(running):
                if state and leaving_by_it[i] != 0:
                    running[i] = _NO
                    for leaving, _ in self.exits.get(loop, ()):
                        self.put(self.envs[i], leaving, None)


def is_of_data(term: Term) -> bool:
    """Whether a test asks global memory alone: with the right data any thread passes, and none by its number."""
    leaves = t.leaves(term)
    loads = {x for x in leaves if x.data.kind == "load"}
    return (
        bool(loads)
        and all(x.data.kind in _SHARED_BY_ALL for x in leaves - loads)
        and all(getattr(x.data.data, "kind", "") in ("global", "constant") for x in loads)
    )


def asks_alone(term: Term, arrays: frozenset[Obj]) -> bool:
    """Whether a test asks for elements of ``arrays``, and for nothing else but places and sizes."""
    loads = {x for x in t.leaves(term) if x.data.kind == "load"}
    others = (x for x in t.leaves(term) if x not in loads)
    return (
        bool(loads)
        and all(x.data.data in arrays for x in loads)
        and all(x.data.kind in _SHARED_BY_ALL or x.data.kind in ("tid", "bid", "count", "loop") for x in others)
    )


_SHARED_BY_ALL = frozenset({"param", "name", "bdim", "gdim"})


def depends(term: Term) -> bool:
    """Whether a value differs between threads but by chance: a thread's number takes part, or a load from an address
    that it takes part in, and nothing else of which that is not known (a shuffle may give all lanes one value)."""
    seen: set[Term] = set()
    stack = [term]
    found = False
    while stack:
        item = stack.pop()
        if item in seen:
            continue
        seen.add(item)
        stack.extend(item.args)
        if item.op != "atom":
            continue
        info = item.data
        if info.kind == "tid":
            found = True
        elif info.kind == "load":
            stack.extend(info.inputs)
        elif info.kind in ("loop", "exit") and info.data is not None:
            stack.extend(x for x in (info.data.init, info.data.next) if x is not None)
        elif info.kind in ("call", "unknown", "phi"):
            return False
    return found


def _exits(flow: Flow, wanted: Iterable[Access]) -> dict[Loop, list[tuple[Term, Induction]]]:
    """The values with which loops are left that something still asks for."""
    found: dict[Loop, list[tuple[Term, Induction]]] = {}
    seen: set[Term] = set()
    stack: list[Term] = []
    for access in wanted:
        stack.extend(t.atoms_of(access.scalar or {}))
        stack.extend([access.value] if access.value is not None else [])
        guard = access.guard
        while guard is not None:
            stack.append(guard.term)
            guard = guard.parent
    for barrier in flow.barriers:
        guard = barrier.guard
        while guard is not None:
            stack.append(guard.term)
            guard = guard.parent
    while stack:
        item = stack.pop()
        if item in seen:
            continue
        seen.add(item)
        stack.extend(item.args)
        if item.op == "atom" and item.data.kind in ("loop", "exit"):
            info = item.data.data
            if item.data.kind == "exit":
                found.setdefault(info.loop, []).append((item, info))
            stack.extend(x for x in (info.init, info.next, info.loop.cond) if x is not None)
            stack.extend(info.loop.control)
    return found


def _is_counter(access: Access) -> bool:
    """Whether an access updates a shared element that values from global memory alone pick, as in a histogram: any
    thread may come to any element, and nothing in its conditions says that it is the thread's own."""
    if access.obj.kind != "shared" or access.mode not in ("atomic", "rw") or not access.scalar:
        return False
    leaves = {x for item in t.atoms_of(access.scalar) for x in t.leaves(item)}
    loads = {x for x in leaves if x.data.kind == "load"}
    if not loads or any(x.data.kind not in _SHARED_BY_ALL for x in leaves - loads):
        return False
    if any(getattr(x.data.data, "kind", "") not in ("global", "constant") for x in loads):
        return False
    asked = [t.leaves(guard.term) for guard in chain(access.guard)]
    return not any(own & loads and any(x.data.kind == "tid" for x in own) for own in asked)


def _is_sized(access: Access) -> bool:
    """Whether a parameter says how far into its array an access reaches."""
    seen: set[Term] = set()
    stack = list(t.atoms_of(access.scalar or {}))
    while stack:
        item = stack.pop()
        if item in seen:
            continue
        seen.add(item)
        stack.extend(item.args)
        if item.op == "atom":
            info = item.data
            if info.kind == "param":
                return True
            if info.kind in ("loop", "exit") and info.data is not None:
                around = info.data
                stack.extend(x for x in (around.init, around.next, around.loop.cond) if x is not None)
    return False


# --- threads ----------------------------------------------------------------------------------------


def sample(block: Triple, accesses: Iterable[Access]) -> list[Triple]:
    """Threads of a block that stand for all: neighbours at both ends, and those a power of two apart.

    The remainder of an odd multiple may bring any two together: then all of a small block.
    """
    x, y, z = block
    if x * y * z <= _SMALL and any(_scatters(item) for a in accesses for item in t.atoms_of(a.scalar or {})):
        return [(i, j, k) for k in range(z) for j in range(y) for i in range(x)]
    axes = [_places(extent, few=sum(x > 1 for x in block) > 1) for extent in block]
    return [(x, y, z) for z, y, x in product(axes[2], axes[1], axes[0])]


def _scatters(item: Term) -> bool:
    if item.op not in ("mod", "and", "xor"):
        return False
    inner = expand(t.poly(item.args[0]))
    return any(
        abs(c) & (abs(c) - 1) for m, c in inner.items() if any(x.op == "atom" and x.data.kind == "tid" for x in m)
    )


def _places(extent: int, few: bool) -> list[int]:
    found = {0, 1, extent // 2, extent - 1}
    if not few:
        found |= {2, 3, 31, 33, extent // 2 - 1, extent - 2}
        power = 4
        while power < extent:
            found.add(power)
            power *= 2
    return sorted(x for x in found if 0 <= x < extent)


def spread(launched: Launched, distances: Iterable[int] = ()) -> list[Thread]:
    """A few threads of neighbouring blocks, and pairs of threads of the grid that are ``distances`` apart along x."""
    grid, block = launched.grid, launched.block
    blocks = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)]
    axes = [_places(extent, few=True) for extent in block]
    found = [
        (b, (x, y, z)) for b in blocks if all(i < n for i, n in zip(b, grid))
        for z, y, x in product(axes[2], axes[1], axes[0])
    ]  # fmt: skip
    for distance in distances:
        for base in (1, distance + 1, 2 * distance + 1):
            for number in (base, base + distance):
                b, i = divmod(number, block[0])
                if 0 <= b < grid[0]:
                    found.append(((b, 0, 0), (i, 0, 0)))
    return list(dict.fromkeys(found))


def pairs_of(meetings: Iterable[Meeting]) -> Iterator[tuple[Access, Access, Loop | None]]:
    """What is the same of a meeting in launches of other sizes."""
    for item in meetings:
        yield item.earlier, item.later, item.loop
