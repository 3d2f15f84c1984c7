"""What a kernel does, made visible by edits to its source: who touches what, arrives where, wraps when.

Every edit calls a function of :data:`DEVICE` with the number of a site; a table made by the runner says which
buffer a site is about. Nothing of what the kernel computes changes, but for accesses outside of a buffer: those go to
a scratch page, so that they can all be told and the context survives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudalint.facts.assigned import children
from cudalint.frontend.calls import signature
from cudalint.ir import nodes as ir
from cudalint.ir.types import BOOL, Array, Float, Int, Ptr, Struct, Unknown
from cudalint.lazy import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cudalint.facts.events import Access, Barrier, Collective, Obj
    from cudalint.facts.model import Kernel
    from cudalint.frontend.source import SourceFile

Edit = tuple[int, int, str]
"""Replace the bytes [start, end) of a file's text by these words."""
_KINDS = {"r": "0", "w": "1", "atomic": "2", "rw": "3"}
_ARITHMETIC = {"+": "add", "-": "subtract", "*": "multiply"}
_REDUCTIONS = tuple(f"__reduce_{x}_sync" for x in ("add", "min", "max", "and", "or", "xor"))
_WARP = (
    "__shfl_sync", "__shfl_up_sync", "__shfl_down_sync", "__shfl_xor_sync", "__ballot_sync", "__any_sync",
    "__all_sync", "__match_any_sync", "__syncwarp", *_REDUCTIONS,
)  # fmt: skip
_TILE = ("shfl", "shfl_up", "shfl_down", "shfl_xor")
_WARP_SIZE = 32


class Site(NamedTuple):
    """A place in the source that calls in. ``objects`` are those that an access there is to, ``slot`` the number of
    an arrival's counters."""

    node: ir.Node
    file: SourceFile
    what: str
    objects: frozenset[Obj] = frozenset()
    slot: int = -1
    name: str = ""


class Watch:
    """The edits that let a kernel be watched. ``blind`` names the fields of an observation that they leave open."""

    def __init__(self, kernel: Kernel) -> None:
        self.sites: list[Site] = []
        self.slots = 0
        self.arrays = 0
        """How many shared arrays of the kernel tell where they are, for its device functions to know them by."""
        self.blind: set[str] = set()
        self._flags = 0
        self._marks: dict[int, tuple[SourceFile, list[tuple[int, int, int, int, str]]]] = {}
        flow = kernel.flow
        self._kernel = kernel.function
        self._members = {id(n.base): n for f in _functions(kernel) for n in _below(f.body) if isinstance(n, ir.Member)}
        self._homes = {
            _place(n.var): (f, n)
            for f in _functions(kernel) for n in _below(f.body) if isinstance(n, ir.VarDecl) and n.var.kind == "shared"
        }  # fmt: skip
        self._inits = {
            n.var: n.init for f in _functions(kernel) for n in _below(f.body) if isinstance(n, ir.VarDecl)
        }  # fmt: skip
        self._targets = {
            id(n.target)
            for f in _functions(kernel) for n in _below(f.body) if isinstance(n, ir.Assign) and not n.op
        }  # fmt: skip
        self._told: dict[tuple[str, int], int] = {}
        accesses: dict[tuple[int, int, int], list[Access]] = {}
        for access in flow.accesses:
            if access.obj.kind in ("global", "shared", "unknown"):
                key = (id(access.fn.file), access.node.start, access.node.end)
                accesses.setdefault(key, []).append(access)
        for group in accesses.values():
            self._access(group)
        for barrier in _once(flow.barriers):
            if barrier.scope != "warp":
                self._barrier(barrier)
            elif isinstance(barrier.node, ir.Call) and barrier.name != "__syncwarp":
                node = barrier.node
                self._around(barrier.fn.file, node.start, node.end, "(cudalint_pass(1), ", ")", 3)
        for collective in _once(flow.collectives):
            self._collective(collective)
        if flow.collectives:
            body = self._kernel.body
            self._put(self._kernel.file, body.start, body.start + 1, "{ cudalint_leaving cudalint_left; ")
        exchanges = {id(e.node) for e in (*flow.collectives, *flow.barriers)}
        for function in _functions(kernel):
            self._numbers(function)
            self._registers(function, exchanges)
            if any(
                isinstance(n, (ir.Assign, ir.IncDec)) and isinstance(n.target, ir.Call) for n in _below(function.body)
            ):
                self.blind |= {"outside", "shared"}  # what a call refers to is set, and by no access that is known
        if flow.opaques or not flow.complete:
            self.blind |= {"outside"}

    def edits(self) -> dict[int, tuple[SourceFile, list[Edit]]]:
        """The edits by file (its ``id``), in the order of their places."""
        found = {}
        for key, (file, marks) in self._marks.items():
            ordered = sorted(marks)
            found[key] = (file, [(start, end, text) for start, _, _, end, text in ordered])
        return found

    # --- where edits go -----------------------------------------------------------------------

    def _put(self, file: SourceFile, start: int, end: int, text: str) -> None:
        """Other words in place of [start, end)."""
        self._mark(file, start, 2, 0, end, text)

    def _around(self, file: SourceFile, start: int, end: int, before: str, after: str, level: int = 0) -> None:
        """Words before and after [start, end); of several pairs for one node that of the highest level is outside."""
        # At one place ends come first, the inner ones before the outer ones; then beginnings, the outer ones first;
        # then words in place of something.
        self._mark(file, end, 0, (end - start) * 4 + level, end, after)
        self._mark(file, start, 1, -(end - start) * 4 - level, start, before)

    def _mark(self, file: SourceFile, at: int, rank: int, order: int, end: int, text: str) -> None:
        self._marks.setdefault(id(file), (file, []))[1].append((at, rank, order, end, text))

    def _site(self, node: ir.Node, file: SourceFile, what: str, **more: Any) -> int:
        self.sites.append(Site(node, file, what, **more))
        return len(self.sites) - 1

    def _slot(self) -> int:
        self.slots += 1
        return self.slots - 1

    # --- memory -------------------------------------------------------------------------------

    def _access(self, group: list[Access]) -> None:
        first = group[0]
        node, file = first.node, first.fn.file
        while id(node) in self._members and isinstance(node.type, Struct):
            node = self._members[id(node)]  # the field alone is touched
        text = file.text[node.start : node.end]
        objects = frozenset(a.obj for a in group)
        kinds = {o.kind for o in objects}
        modes = {a.mode for a in group}
        mode = modes.pop() if len(modes) == 1 else "rw"
        field = "shared" if "shared" in kinds else "outside"
        place = isinstance(node, ir.Member) and (b"." in text or b"->" in text) and _in_memory(node)
        place |= isinstance(node, ir.Index) and isinstance(node.base.type, (Ptr, Array)) and (
            text.endswith(b"]") or text.startswith(b"*"))  # fmt: skip
        pointer = not place and isinstance(node.type, Ptr) and not isinstance(node, (ir.Index, ir.Member))
        if isinstance(node, ir.Ref) and node.var.kind in ("shared", "global") and not isinstance(node.type, Array):
            place = True
        if isinstance(node.type, Struct) and node.type.size is None and kinds == {"shared"}:
            return  # the storage of a library
        if not place and not pointer:
            self.blind.add(field)
            return
        call = f"{len(self.sites)}, {_KINDS[mode]}"
        valued = False
        if "shared" in kinds:
            array = self._array(first.fn, objects)
            if array is None:
                self.blind |= {"shared", "outside"}
                return
            valued = place and id(node) in self._targets and isinstance(node.type, (Int, Float))
            call = f"{len(self.sites)}, {array}" if valued else f"{call}, {array}"
        self._site(node, file, "access", objects=objects)
        if valued:
            self._around(file, node.start, node.end, f"cudalint_to({call}, &(", "))", 1)
        elif place:
            self._around(file, node.start, node.end, f"(*cudalint_at({call}, &(", ")))", 1)
        else:
            self._around(file, node.start, node.end, f"cudalint_at({call}, ", ")", 1)

    def _array(self, function: ir.Function, objects: frozenset[Obj]) -> str | None:
        """Where the one shared array is that an access in a function is to, and its bytes; None where it cannot be
        told."""
        places = {None if o.var is None else _place(o.var) for o in objects}
        var = next(iter(objects)).var
        if len(places) > 1 or var is None:
            return None
        place = _place(var)
        home, declared = self._homes.get(place, (self._kernel, None))
        here = f"(const void *)&{var.name}, {'cudalint_dynamic()' if var.extern else f'sizeof({var.name})'}"
        if function.decl is home.decl and function.decl is not None:
            return here
        if home is not self._kernel:
            return None
        if place not in self._told:
            # A device function knows it as a pointer, if at all: the kernel tells where it is.
            body = self._kernel.body
            at = body.start + 1 if declared is None else home.file.text.index(b";", declared.end - 1) + 1
            self._put(home.file, at, at, f" cudalint_declare({self.arrays}, {here}); ")
            self._told[place] = self.arrays
            self.arrays += 1
        known = f"cudalint_watch.arrays[{self._told[place]}]"
        return f"(const void *){known}.base, {known}.bytes"

    # --- arrivals -----------------------------------------------------------------------------

    def _barrier(self, event: Barrier) -> None:
        slot = self._slot()
        self._site(event.node, event.fn.file, event.scope, slot=slot, name=event.name)
        self._around(
            event.fn.file, event.node.start, event.node.end, f"(cudalint_arrive({slot}), cudalint_pass(0), ", ")", 3
        )

    def _registers(self, function: ir.Function, exchanges: set[int]) -> None:
        """Variables that nothing sets where they are declared: a flag beside each is set with it, and looked at where
        it is read. ``exchanges`` are calls of a library that take their first argument by value."""
        text = function.file.text
        unset = {
            n.var: n
            for n in _below(function.body)
            if isinstance(n, ir.VarDecl) and n.init is None and n.var.kind == "local"
        }
        if not unset:
            return
        declared = {id(x) for n in _below(function.body) if isinstance(n, ir.Block) for x in n.body}
        plain = {
            var for var, n in unset.items()
            if id(n) in declared and isinstance(var.type, (Int, Float)) and not var.static
            and b"constexpr" not in text[function.start : function.body.start]
        }  # fmt: skip
        reads: list[ir.Ref] = []
        sets: list[tuple[ir.Assign, ir.Var]] = []
        stack: list[Any] = [function.body]
        while stack:
            item = stack.pop()
            below = children(item)
            if isinstance(item, (ir.Lambda, ir.AddrOf, ir.Opaque)):
                plain -= {x.var for x in _below(item) if isinstance(x, ir.Ref)}
            elif isinstance(item, ir.Call):
                # What the language's own functions take is a value; an unseen one may set what it is given.
                known = item.target is None and item.receiver is None and not isinstance(item.type, Unknown)
                refs = list(signature(item.target).refs) if item.target is not None else [not known] * len(item.args)
                refs[:1] = [False] if id(item) in exchanges else refs[:1]
                taken = [x for i, x in enumerate(item.args) if i >= len(refs) or refs[i]]
                plain -= {x.var for x in taken if isinstance(x, ir.Ref)}
            elif isinstance(item, (ir.Assign, ir.IncDec)) and isinstance(item.target, ir.Ref):
                if isinstance(item, ir.Assign):
                    below = [item.value]
                    sets.append((item, item.target.var))
                else:
                    below = []
            elif isinstance(item, ir.Ref):
                reads.append(item)
                if text[item.start : item.end] != item.var.name.encode():
                    plain.discard(item.var)
            stack.extend(below)
        if plain != unset.keys():
            self.blind.add("uninitialised")
        flags = {var: f"cudalint_set{self._flags + i}" for i, var in enumerate(x for x in unset if x in plain)}
        self._flags += len(flags)
        for var, flag in flags.items():
            at = text.index(b";", unset[var].end - 1) + 1
            self._put(function.file, at, at, f" bool {flag} = false; ")
        for node, var in sets:
            if var in flags:
                self._around(function.file, node.start, node.end, f"cudalint_did({flags[var]}, ", ")", 4)
        for ref in reads:
            if ref.var in flags:
                site = self._site(ref, function.file, "register", name=ref.var.name)
                self._around(function.file, ref.start, ref.end, f"cudalint_given({site}, {flags[ref.var]}, ", ")")

    def _collective(self, event: Collective) -> None:
        node, file = event.node, event.fn.file
        text = file.text
        name = event.name.rpartition("::")[2]
        if not isinstance(node, ir.Call):
            self.blind.add("absent")
        elif name in _WARP and text.startswith(name.encode(), node.start):
            slot = self._slot()
            site = self._site(node, file, "lanes", slot=slot, name=name)
            bracket = text.index(b"(", node.start)
            comma = ", " if node.args else ""
            self._put(file, node.start, bracket + 1, f"cudalint{name}({slot}, {site}{comma}")
        elif name in _TILE and node.receiver is not None and "tile" in str(node.receiver.type):
            slot = self._slot()
            site = self._site(node, file, "lanes", slot=slot, name=event.name)
            bracket = text.index(b"(", node.receiver.end)
            self._put(file, node.receiver.end, bracket + 1, ", ")
            self._around(file, node.start, node.end, f"cudalint_tile_{name}({slot}, {site}, ", "")
        elif node.receiver is not None and event.lanes == _WARP_SIZE and event.reads == "all":
            slot = self._slot()
            site = self._site(node, file, "lanes", slot=slot, name=event.name)
            self._around(file, node.start, node.end, f"(cudalint_all({slot}, {site}), ", ")", 3)
        else:
            self.blind.add("absent")

    # --- arithmetic ---------------------------------------------------------------------------

    def _numbers(self, function: ir.Function) -> None:
        text = function.file.text
        head = text[function.start : function.body.start]
        if b"constexpr" in head or b"consteval" in head:
            return
        stack: list[tuple[Any, bool]] = [(function.body, False)]
        while stack:
            node, constant = stack.pop()
            kind = type(node)
            if kind is ir.VarDecl and (node.var.static or _fixed(text, node)):
                constant = True
            if not constant:
                if kind is ir.Binary and isinstance(node.optype, Int) and node.op not in ("<<", ">>"):
                    self._stored(function, node.left, node.optype)
                    self._stored(function, node.right, node.optype)
                if kind is ir.Binary and node.op in _ARITHMETIC and isinstance(node.optype, Int):
                    if not (self._literal(node.left) and self._literal(node.right)):
                        self._operation(function, node)
                elif kind is ir.Assign:
                    self._assignment(function, node)
                elif kind is ir.VarDecl and node.init is not None:
                    self._stored(function, node.init, node.var.type)
                elif kind is ir.Cast:
                    self._stored(function, node.operand, node.type)
                elif kind is ir.Return and node.value is not None:
                    self._stored(function, node.value, function.returns)
                elif kind is ir.Call and node.target is not None:
                    for value, to in zip(node.args, signature(node.target).params):
                        self._stored(function, value, to)
            stack.extend((child, constant) for child in children(node))

    def _operation(self, function: ir.Function, node: ir.Binary) -> None:
        at = _operator(function.file.text, node.left.end, node.right.start, node.op)
        if at is None or node.start > node.left.start:
            return
        site = self._site(node, function.file, "wrap", name=node.op)
        self._put(function.file, at, at + 1, ",")
        self._around(function.file, node.start, node.end, f"cudalint_{_ARITHMETIC[node.op]}({site}, ", ")")

    def _assignment(self, function: ir.Function, node: ir.Assign) -> None:
        target = node.target
        if not node.op:
            if isinstance(target.type, Int):
                self._stored(function, node.value, target.type)
            return
        if not isinstance(target, ir.Ref) or node.op not in _ARITHMETIC or not isinstance(node.optype, Int):
            return
        text = function.file.text
        at = _operator(text, target.end, node.value.start, node.op + "=")
        if at is None or not isinstance(target.type, Int):
            return
        name = text[target.start : target.end].decode()
        self._stored(function, node.value, node.optype)
        site = self._site(node, function.file, "wrap", name=node.op)
        words, end = f"cudalint_{_ARITHMETIC[node.op]}({site}, {name}, ", ")"
        if target.type.bits >= 32 and not _holds(target.type, node.optype):
            words, end = self._fits(node, function.file, target.type) + words, "))"
        self._put(function.file, at, at + 2, f"= {words}")
        self._around(function.file, node.start, node.end, "", end)

    def _stored(self, function: ir.Function, value: ir.Expr, to: Any) -> None:
        """A value that is put into an integer that does not hold all of its type."""
        have = value.type
        if not isinstance(to, Int) or not isinstance(have, Int) or to is BOOL or have.bits < 32 or self._literal(value):
            return
        if _holds(to, have) or isinstance(value, (ir.Construct, ir.Comma)):
            return
        self._around(function.file, value.start, value.end, self._fits(value, function.file, to), ")", 2)

    def _fits(self, node: ir.Node, file: SourceFile, to: Int) -> str:
        """The beginning of a call that tells of a value that an integer of a type does not hold."""
        return f"cudalint_fits<{to.bits}, {int(to.signed)}>({self._site(node, file, 'convert', name=str(to))}, "

    def _literal(self, node: ir.Expr) -> bool:
        """Whether an expression is made of constants alone, so that it may stand where a constant is asked for."""
        stack: list[Any] = [node]
        while stack:
            item = stack.pop()
            if isinstance(item, (ir.Special, ir.Call, ir.Index, ir.Opaque)):
                return False
            if isinstance(item, ir.Ref) and item.var.kind != "template":
                if not item.var.const or item.var.kind == "param":
                    return False
                stack.append(self._inits.get(item.var))  # a local one is as constant as what it begins with
            stack.extend(children(item))
        return True


def _once(events: Iterable[Any]) -> Iterator[Any]:
    seen = set()
    for event in events:
        key = (id(event.fn.file), event.node.start, event.node.end)
        if key not in seen:
            seen.add(key)
            yield event


def _functions(kernel: Kernel) -> Iterator[ir.Function]:
    """The kernel and what it calls, each text once."""
    flow = kernel.flow
    seen: set[tuple[int, int]] = set()
    events: list[Any] = [*flow.accesses, *flow.operations, *flow.conversions, *flow.barriers, *flow.calls]
    called = [call.callee for event in events for call in event.stack]
    for function in [kernel.function, *called]:
        key = (id(function.file), function.start)
        if key not in seen and function.decl is not None:
            seen.add(key)
            yield function


def _holds(to: Int, have: Int) -> bool:
    """Whether one integer type has all values of another."""
    return to.lo <= have.lo and have.hi <= to.hi


def _place(var: ir.Var) -> tuple[str, int]:
    """What tells a shared array from others, in whichever instance of its function."""
    return var.name, var.start


def _in_memory(node: ir.Expr) -> bool:
    while isinstance(node, ir.Member):
        node = node.base
    return isinstance(node, ir.Index) and isinstance(node.base.type, (Ptr, Array))


def _below(node: Any) -> Iterator[Any]:
    stack = [node]
    while stack:
        item = stack.pop()
        yield item
        stack.extend(children(item))


def _fixed(text: bytes, node: ir.VarDecl) -> bool:
    line = text.rfind(b";", 0, node.start), text.rfind(b"{", 0, node.start)
    return b"constexpr" in text[max(*line, 0) : node.end]


def _operator(text: bytes, start: int, end: int, op: str) -> int | None:
    """Where an operator stands between its operands; None where more than brackets and blanks stand beside it."""
    between = text[start:end]
    at = between.find(op.encode())
    if at < 0 or between.replace(op.encode(), b"", 1).strip(b" \t\r\n()\\"):
        return None
    return start + at


DEVICE = r"""
struct cudalint_span {
    unsigned long long base, bytes, element, granule, guard;
    void *first, *second;       // the lowest thread that wrote a granule, the highest that did by a plain store
    void *low, *high;           // the lowest and the highest that read it
    unsigned long long *shadow; // of each word: who wrote it last, two who read it, who updated it last by an atomic
};
struct cudalint_array { unsigned long long base, bytes; };
struct cudalint_event { int kind, site; long long thread, at, value; };
struct cudalint_table {
    cudalint_span *spans;
    int *buffer;  // of each site: its span, -1 none, -2 the one that the address lies in or near
    cudalint_event *events;
    unsigned *logged;  // events; of each kind at each site
    unsigned *arrivals;
    unsigned char *gone;
    char *scratch;
    unsigned *passed;            // of each thread: barriers of the block, syncs of the warp
    unsigned long long *shadow;  // of each word of shared memory, as in a span, and what was written last
    cudalint_array *arrays;      // shared arrays that are known by a number
    long long threads, room, count, words, narrow;  // narrow: 32 bits hold the number of a thread
    long long share;  // events of one kind at one site that there is room for
};
__device__ cudalint_table cudalint_watch;

__device__ __forceinline__ int cudalint_rank() {
    return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}
__device__ __forceinline__ int cudalint_each() { return blockDim.x * blockDim.y * blockDim.z; }
__device__ __forceinline__ long long cudalint_me() {
    return (blockIdx.x + (long long)gridDim.x * (blockIdx.y + (long long)gridDim.y * blockIdx.z)) * cudalint_each()
        + cudalint_rank();
}
__device__ __noinline__ void cudalint_log(int kind, int site, long long at, long long value) {
    cudalint_table &w = cudalint_watch;
    // What one place tells over and over leaves room for the others.
    unsigned *told = w.logged + 1 + site * 64ll + kind + (kind == 10 ? value : 0);
    if (*(volatile unsigned *)w.logged >= w.room || *(volatile unsigned *)told >= w.share) return;
    if (atomicAdd(told, 1u) >= w.share) return;
    unsigned slot = atomicAdd(w.logged, 1u);
    if (slot < w.room) w.events[slot] = {kind + 1, site, cudalint_me(), at, value};
    __threadfence_system();
}
__device__ __forceinline__ long long cudalint_floor(long long a, long long b) { return a / b - (a % b < 0); }

// Who meets whom at a word between two barriers of a block: kind 30 a read after a write, 31 a write after a read,
// 32 two writes (of one value, maybe), 37 two of different values, 33 a read and 34 a write after an atomic, 35 and 36
// the other way about, 40 a read of shared memory that nothing has written.
__device__ __forceinline__ void cudalint_pass(int which) { ++cudalint_watch.passed[cudalint_me() * 2 + which]; }
__device__ __forceinline__ unsigned long long cudalint_stamp(long long block) {
    const unsigned *passed = cudalint_watch.passed + cudalint_me() * 2;
    return ((unsigned long long)block & 4194303) << 42 | (unsigned long long)(passed[0] & 1048575) << 22
        | (unsigned long long)(passed[1] & 2047) << 11 | (cudalint_rank() + 1);
}
__device__ __forceinline__ bool cudalint_conflict(unsigned long long a, unsigned long long b) {
    if (!a || a >> 22 != b >> 22 || (a & 2047) == (b & 2047)) return false;
    bool one_warp = ((a & 2047) - 1) / 32 == ((b & 2047) - 1) / 32;
    return !one_warp || (a >> 11 & 2047) == (b >> 11 & 2047);
}
__device__ void cudalint_meet(int kind, int site, long long off, unsigned long long other, unsigned long long mine) {
    if (cudalint_conflict(other, mine)) cudalint_log(kind, site, off, (other & 2047) - 1);
}
// What is stored, in 22 bits, where that is known.
struct cudalint_value { bool known; unsigned bits; };
template <typename T> __device__ cudalint_value cudalint_short(T value) {
    unsigned long long bits = 0;
    if (value == value && value != T(0)) memcpy(&bits, &value, sizeof value < 8 ? sizeof value : 8);
    return {true, value == value ? (unsigned)(bits * 0x9e3779b97f4a7c15ull >> 42) : 4194303u};
}
// Each says first that it is here and looks for others then: of two, one at least sees the other. The fifth word of a
// cell of shared memory has who wrote it last with what: barriers passed, thread and value.
__device__ void cudalint_word(
    int site, int kind, unsigned long long *cell, unsigned long long mine, long long off, bool whole, bool set,
    cudalint_value value = {false, 0}
) {
    if (kind == 2) {
        atomicExch(cell + 3, mine);
        cudalint_meet(36, site, off, atomicCAS(cell, 0ull, ~0ull), mine);
        for (int i = 1; i < 3; ++i) cudalint_meet(35, site, off, atomicOr(cell + i, 0ull), mine);
    }
    if (kind == 0 || kind == 3) {
        unsigned long long other = atomicExch(cell + 1, mine);
        if (cudalint_conflict(other, mine)) atomicExch(cell + 2, other);
        other = atomicOr(cell, 0ull);
        if (!other && !set) cudalint_log(40, site, off, 0);
        if (whole) cudalint_meet(30, site, off, other, mine);
        if (whole) cudalint_meet(33, site, off, atomicOr(cell + 3, 0ull), mine);
    }
    if (kind == 1 || kind == 3) {
        unsigned long long other = atomicExch(cell, mine);
        if (!whole) return;
        const unsigned long long here = (1ull << 42) - 1;
        unsigned long long last = value.known ? atomicExch(cell + 4, (mine & here) << 22 | value.bits) : 0;
        if (!value.known || (last >> 22) != (other & here)) cudalint_meet(32, site, off, other, mine);
        if (last && (last & 4194303) != value.bits) cudalint_meet(37, site, off, last >> 22, mine & here);
        for (int i = 1; i < 3; ++i) cudalint_meet(31, site, off, atomicOr(cell + i, 0ull), mine);
        cudalint_meet(34, site, off, atomicOr(cell + 3, 0ull), mine);
    }
}
__device__ void cudalint_lowest(void *threads, unsigned long long g) {
    long long me = cudalint_me();
    if (cudalint_watch.narrow) atomicMin((unsigned *)threads + g, (unsigned)me);
    else atomicMin((unsigned long long *)threads + g, (unsigned long long)me);
}
__device__ void cudalint_highest(void *threads, unsigned long long g) {
    long long me = cudalint_me();
    if (cudalint_watch.narrow) atomicMax((int *)threads + g, (int)me);
    else atomicMax((long long *)threads + g, me);
}

// An access: kind 0 loads, 1 stores, 2 does both at once, 3 one after the other.
template <typename T> __device__ T *cudalint_at(int site, int kind, T *p) {
    cudalint_table &w = cudalint_watch;
    int number = w.buffer[site];
    unsigned long long a = (unsigned long long)p;
    for (int i = 0; number == -2 && i < w.count; ++i)
        if (a + w.spans[i].guard >= w.spans[i].base && a < w.spans[i].base + w.spans[i].bytes + w.spans[i].guard)
            number = i;
    if (number < 0) return p;
    cudalint_span &s = w.spans[number];
    long long off = (long long)(a - s.base), end = off + sizeof(T);
    bool reads = s.low && (kind == 0 || kind == 3), writes = s.first && kind != 0;
    if ((reads || writes) && end > 0 && off < (long long)s.bytes && a % alignof(T) == 0) {
        unsigned long long low = off < 0 ? 0 : off, high = end > (long long)s.bytes ? s.bytes : end;
        for (unsigned long long g = low / s.granule; g <= (high - 1) / s.granule; ++g) {
            if (reads) cudalint_lowest(s.low, g), cudalint_highest(s.high, g);
            if (writes) cudalint_lowest(s.first, g);
            if (writes && kind != 2) cudalint_highest(s.second, g);
        }
    }
    if (off < 0 || off + sizeof(T) > s.bytes) {
        const long long far = 1ll << 30;
        long long at = cudalint_floor(off, s.element);
        if (kind == 2) cudalint_log(2, site, at, number);
        if (kind == 0 || kind == 3) cudalint_log(0, site, at, number);
        if (kind == 1 || kind == 3) cudalint_log(1, site, at, number);
        if (off < -far || off > (long long)s.bytes + far) asm volatile("trap;");
        return (T *)w.scratch;
    }
    if (a % alignof(T)) {
        cudalint_log(50, site, off, sizeof(T));
        return (T *)w.scratch;
    }
    if (s.shadow) {
        long long block = cudalint_me() / cudalint_each();
        for (long long word = off / 4; word <= (off + (long long)sizeof(T) - 1) / 4; ++word)
            cudalint_word(site, kind, s.shadow + word * 4, cudalint_stamp(block), off, sizeof(T) >= 4, true);
    }
    return p;
}
__device__ void cudalint_share(
    int site, int kind, long long off, const void *p, int size, cudalint_value value = {false, 0}
) {
    cudalint_table &w = cudalint_watch;
    long long block = cudalint_me() / cudalint_each();
    unsigned first = (unsigned)__cvta_generic_to_shared(p) / 4;
    for (unsigned word = first; word <= first + (size - 1) / 4 && word < w.words; ++word)
        cudalint_word(site, kind, w.shadow + (block * w.words + word) * 5, cudalint_stamp(block), off, size >= 4, false,
                      value);
}
__device__ __forceinline__ void cudalint_declare(int number, const void *base, unsigned long long bytes) {
    cudalint_watch.arrays[number] = {(unsigned long long)base, bytes};
}
// An access to an array of shared memory.
template <typename T>
__device__ T *cudalint_at(
    int site, int kind, const void *base, unsigned long long bytes, T *p, cudalint_value value = {false, 0}
) {
    long long off = (long long)((unsigned long long)p - (unsigned long long)base);
    if (off >= 0 && off + sizeof(T) <= bytes) {
        if ((unsigned long long)p % alignof(T)) {
            cudalint_log(50, site, off, sizeof(T));
            return (T *)cudalint_watch.scratch;
        }
        if (cudalint_watch.shadow) cudalint_share(site, kind, off, (const void *)p, sizeof(T), value);
        return p;
    }
    if (kind == 2) cudalint_log(6, site, off, bytes);
    if (kind == 0 || kind == 3) cudalint_log(4, site, off, bytes);
    if (kind == 1 || kind == 3) cudalint_log(5, site, off, bytes);
    return (T *)cudalint_watch.scratch;
}
// What is assigned to: it knows the value that it gets.
template <typename T> struct cudalint_target {
    int site;
    const void *base;
    unsigned long long bytes;
    T *p;
    template <typename V> __device__ T operator=(const V &value) {
        T result = (T)value;
        *cudalint_at(site, 1, base, bytes, p, cudalint_short(result)) = result;
        return result;
    }
};
template <typename T>
__device__ cudalint_target<T> cudalint_to(int site, const void *base, unsigned long long bytes, T *p) {
    return {site, base, bytes, p};
}
__device__ __forceinline__ unsigned long long cudalint_dynamic() {
    unsigned size;
    asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(size));
    return size;
}

// Arrivals at a barrier, and who takes part in a collective.
__device__ __forceinline__ unsigned cudalint_arrive(int slot) {
    volatile unsigned *count = cudalint_watch.arrivals + slot * cudalint_watch.threads + cudalint_me();
    unsigned mine = *count + 1;
    *count = mine;
    __threadfence();
    return mine;
}
struct cudalint_leaving {
    __device__ ~cudalint_leaving() {
        *(volatile unsigned char *)(cudalint_watch.gone + cudalint_me()) = 1;
        __threadfence();
        asm volatile("exit;");
    }
};
__device__ __forceinline__ bool cudalint_there(int lane) {
    return cudalint_rank() / 32 * 32 + lane < cudalint_each();
}
__device__ bool cudalint_present(int slot, unsigned mine, int lane) {
    if (!cudalint_there(lane)) return false;
    long long other = cudalint_me() - cudalint_rank() % 32 + lane;
    return *(volatile unsigned *)(cudalint_watch.arrivals + slot * cudalint_watch.threads + other) >= mine;
}
__device__ bool cudalint_gone(int lane) {
    if (!cudalint_there(lane)) return true;
    long long other = cudalint_me() - cudalint_rank() % 32 + lane;
    for (int i = 0; i < 4096; ++i)
        if (*(volatile unsigned char *)(cudalint_watch.gone + other)) return true;
    return false;
}
// Before the collective: a mask that lacks its caller, which the hardware may trap.
__device__ unsigned cudalint_join(int slot, int site, unsigned mask) {
    int self = cudalint_rank() % 32;
    if (!(mask >> self & 1)) cudalint_log(10, site, self, 0);
    return cudalint_arrive(slot);
}
__device__ void cudalint_named(int slot, int site, unsigned mine, unsigned mask, bool read) {
    for (int lane = 0; lane < 32; ++lane)
        if ((mask >> lane & 1) && (read || cudalint_there(lane)) && !cudalint_present(slot, mine, lane)) {
            int gone = cudalint_gone(lane) ? 2 : 0;
            if (read) cudalint_log(10, site, lane, gone | 1);
            cudalint_log(10, site, lane, gone);
            return;
        }
}
__device__ void cudalint_taken(int slot, int site, unsigned mine, unsigned mask, int lane) {
    // What a lane holds that the mask leaves out is nobody's business.
    if ((mask >> (lane & 31) & 1) && !cudalint_present(slot, mine, lane & 31))
        cudalint_log(10, site, lane & 31, (cudalint_gone(lane & 31) ? 2 : 0) | 1);
}
__device__ __forceinline__ int cudalint_source(int kind, int lane, int operand, int width) {
    int first = lane / width * width;
    int from = kind == 0 ? first + (operand & (width - 1)) : kind == 1 ? lane - operand
        : kind == 2 ? lane + operand : lane ^ operand;
    return from < first || from >= first + width ? lane : from;
}
#define CUDALINT_SHUFFLE(name, kind) \
    template <typename T, typename U> \
    __device__ T cudalint##name(int slot, int site, unsigned mask, T value, U operand, int width = 32) { \
        unsigned mine = cudalint_join(slot, site, mask); \
        T result = name(mask, value, operand, width); \
        cudalint_named(slot, site, mine, mask, false); \
        cudalint_taken(slot, site, mine, mask, cudalint_source(kind, cudalint_rank() % 32, (int)operand, width)); \
        return result; \
    }
CUDALINT_SHUFFLE(__shfl_sync, 0)
CUDALINT_SHUFFLE(__shfl_up_sync, 1)
CUDALINT_SHUFFLE(__shfl_down_sync, 2)
CUDALINT_SHUFFLE(__shfl_xor_sync, 3)
#define CUDALINT_VOTE(name) \
    template <typename T> __device__ auto cudalint##name(int slot, int site, unsigned mask, T value) { \
        unsigned mine = cudalint_join(slot, site, mask); \
        auto result = name(mask, value); \
        cudalint_named(slot, site, mine, mask, false); \
        return result; \
    }
CUDALINT_VOTE(__ballot_sync) CUDALINT_VOTE(__any_sync) CUDALINT_VOTE(__all_sync) CUDALINT_VOTE(__match_any_sync)
__device__ __forceinline__ void cudalint__syncwarp(int slot, int site, unsigned mask = 0xffffffffu) {
    unsigned mine = cudalint_join(slot, site, mask);
    cudalint_pass(1);
    __syncwarp(mask);
    cudalint_named(slot, site, mine, mask, false);
}
#if __CUDA_ARCH__ >= 800
CUDALINT_VOTE(__reduce_add_sync) CUDALINT_VOTE(__reduce_min_sync) CUDALINT_VOTE(__reduce_max_sync)
CUDALINT_VOTE(__reduce_and_sync) CUDALINT_VOTE(__reduce_or_sync) CUDALINT_VOTE(__reduce_xor_sync)
#endif
#define CUDALINT_TILE(name, kind) \
    template <typename G, typename T, typename U> \
    __device__ T cudalint_tile_##name(int slot, int site, const G &group, T value, U operand) { \
        unsigned mine = cudalint_arrive(slot); \
        T result = group.name(value, operand); \
        int size = group.size(); \
        unsigned mask = (unsigned)((1ull << size) - 1) << (cudalint_rank() % 32 / size * size); \
        cudalint_named(slot, site, mine, mask, false); \
        cudalint_taken(slot, site, mine, mask, cudalint_source(kind, cudalint_rank() % 32, (int)operand, size)); \
        return result; \
    }
CUDALINT_TILE(shfl, 0) CUDALINT_TILE(shfl_up, 1) CUDALINT_TILE(shfl_down, 2) CUDALINT_TILE(shfl_xor, 3)

// All lanes of a warp take part in an exchange that a library does.
struct cudalint_all {
    int slot, site;
    unsigned mine;
    __device__ cudalint_all(int slot, int site) : slot(slot), site(site), mine(cudalint_arrive(slot)) {}
    __device__ ~cudalint_all() { cudalint_named(slot, site, mine, 0xffffffffu, true); }
};

// Variables: kind 41 a read of one that nothing has set.
template <typename T> __device__ __forceinline__ T &cudalint_given(int site, bool set, T &value) {
    if (!set) cudalint_log(41, site, 0, 0);
    return value;
}
template <typename T> __device__ __forceinline__ T &cudalint_did(bool &set, T &value) {
    set = true;
    return value;
}

// Arithmetic that wraps: kind 20 signed, 21 unsigned, 22 a conversion that changes the value.
template <typename R> __device__ __forceinline__ void cudalint_exact(int site, __int128 exact, R result) {
    if (exact != (__int128)result) cudalint_log((R)-1 < (R)0 ? 20 : 21, site, 0, (long long)result);
}
#define CUDALINT_OPERATION(name, op) \
    template <typename A, typename B> __device__ __forceinline__ auto name(int site, A a, B b) { \
        typedef decltype(a op b) R; \
        R result = (R)((unsigned long long)(R)a op (unsigned long long)(R)b); \
        cudalint_exact<R>(site, (__int128)(R)a op (__int128)(R)b, result); \
        return result; \
    }
CUDALINT_OPERATION(cudalint_add, +)
CUDALINT_OPERATION(cudalint_subtract, -)
CUDALINT_OPERATION(cudalint_multiply, *)
template <int bits, int is_signed, typename V> __device__ __forceinline__ V cudalint_fits(int site, V value) {
    __int128 low = is_signed ? -((__int128)1 << (bits - 1)) : 0;
    __int128 high = ((__int128)1 << (bits - is_signed)) - 1;
    if ((__int128)value < low || (__int128)value > high) {
        unsigned long long kept = bits == 64 ? (unsigned long long)value
            : (unsigned long long)value & ((1ull << (bits % 64)) - 1);
        if (is_signed && bits < 64 && (kept >> (bits - 1) & 1)) kept |= ~0ull << (bits % 64);
        cudalint_log(22, site, 0, (long long)kept);
    }
    return value;
}
"""

__all__ = ["DEVICE", "Edit", "Site", "Watch"]
