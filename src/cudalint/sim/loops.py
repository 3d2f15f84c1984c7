"""Loops that carry only their counter: their iterations run as lanes, many at a time.

``for (i = …; i < n; i += step)`` whose body writes no variable from outside of it (an ``acc += …`` aside) and
reads nothing from memory that another iteration writes. Then one thread's four million iterations are a few
dozen vector operations. The order of effects is that of the ordinary loop: all lanes' first iterations, then
all second ones. The pass in which the counter wraps is made by the ordinary loop, which sees it; whether the
loop then ever ends, and where, is a matter of arithmetic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cudalint.ir import nodes as ir
from cudalint.ir.show import expression
from cudalint.ir.types import Array, Float, Int, Ptr
from cudalint.lazy import NamedTuple
from cudalint.sim import values as v
from cudalint.sim.frame import Frame, LoopState
from cudalint.sim.values import Stop, Unsupported, gather, lives_in_memory, spread

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudalint.sim.code import Code

#: Loops of fewer passes, or with more lanes, run as they are.
_PASSES, _LANES = 12, 1 << 13
#: Where a 32-bit counter comes around.
_AROUND = 1 << 32
#: Iterations in flight.
_WIDTH = 1 << 16
_PURE_PREFIXES = (
    "make_",
    "__float2",
    "__int2",
    "__uint2",
    "__double2",
    "__half2",
    "__ldg",
    "__ldc",
    "__float_as",
    "__int_as",
)
_FORBIDDEN = (ir.Return, ir.Lambda, ir.Launch, ir.Opaque, ir.OpaqueStmt, ir.RangeFor)


class _Ineligible(Exception):  # control flow of the analysis
    """The loop carries more than its counter."""


class Plan:
    """What the analysis found: the loop's parts, what its body reads, and what it accumulates."""

    def __init__(self, counter: ir.Var, op: str, bound: ir.Expr, optype: Int, step: ir.Expr | None, sign: int) -> None:
        assert isinstance(counter.type, Int)
        self.counter, self.type = counter, counter.type
        self.op, self.bound, self.optype = op, bound, optype
        self.step, self.sign = step, sign
        self.declared: set[ir.Var] = set()
        self.used: set[ir.Var] = set()
        self.sums: dict[ir.Var, ir.Assign] = {}
        """What is carried: variables that one statement adds to."""
        self.stores: list[tuple[ir.Var, str]] = []
        self.loads: list[tuple[ir.Var, str, bool]] = []
        self.definitions: dict[ir.Var, ir.Expr] = {}


def fan_out(
    code: Code, cond: ir.Expr | None, step: ir.Expr | None, body: list[ir.Stmt],
    compiled: Callable[[Frame], None] | None, ordinary: Callable[[Frame, int], None],
) -> Callable[[Frame], None] | None:  # fmt: skip
    """Runs what it can of a loop, in front of it; None where the loop carries more than its counter.

    ``compiled`` executes ``body``; None: it is to be compiled here. ``ordinary`` makes so many passes of the loop.
    """
    try:
        plan = _plan(cond, step)
        _scan(code, plan, body)
        _conflicts_possible(plan)
    except _Ineligible:
        return None
    parts = [code.summing(s, plan.sums) for s in body] if plan.sums or compiled is None else [compiled]
    bound = code.converted(plan.bound, plan.optype)
    step_value = code.converted(plan.step, plan.counter.type) if plan.step is not None else None
    return _Fan(code, plan, parts, bound, step_value, ordinary).run


class _Turns(NamedTuple):
    """What is ahead of each lane: the counter, its step, the passes before its test fails or it wraps, which lanes
    wrap, and below which number their test holds (counted upward from the end of the counter's range)."""

    first: Any
    step: Any
    passes: Any
    wraps: Any
    ordered: Any
    below: Any


class _Fan:
    def __init__(
        self, code: Code, plan: Plan, parts: list[Any], bound: Any, step: Any, ordinary: Callable[[Frame, int], None]
    ) -> None:
        self.code, self.plan, self.parts, self.bound, self.step = code, plan, parts, bound, step
        self.ordinary = ordinary
        self.invariant = sorted(plan.used - plan.declared - {plan.counter}, key=lambda var: var.start)

    def run(self, f: Frame) -> None:
        before, around = f.sel, 0
        while 0 < f.n <= _LANES and self.ahead(f, around):
            around += 1
        if around:
            f.select(f.without_dead(before))

    def ahead(self, f: Frame, around: int) -> bool:
        """Run the passes up to the wrap, where there is one, and that one too; whether some lane then goes on.

        ``around``: how often the counter has wrapped. The lanes that did not wrap are left out from then on.
        """
        plan, machine = self.plan, f.machine
        if f.undefined and plan.counter in f.undefined:
            return False
        start = f.read(plan.counter)
        turns = self.turns(f, start)
        if turns is None:
            return False
        longest, wrapping = int(turns.passes.max()), bool(turns.wraps.any())
        if (longest < _PASSES and not wrapping) or not self.apart(f):
            return False
        sample = machine.sample_loops and longest > 4 and not plan.sums
        if sample:
            machine.sampled = True
            for chosen in ([0, 1], [-2, -1]):
                self.chunk(f, turns.first, turns.step, np.array(chosen, np.int64), turns.passes)
        else:
            width = max(1, _WIDTH // f.n)
            for at in range(0, longest, width):
                passes = np.arange(at, min(longest, at + width), dtype=np.int64)
                self.chunk(f, turns.first, turns.step, passes, turns.passes)
        if around == 1:
            self.endless(turns)
        jump = wrapping and around > 0 and sample
        final = turns.first + (self.late(turns) if jump else turns.passes) * turns.step
        final = final.astype(v.dtype_of(plan.type))
        f.write(plan.counter, final if type(start) is np.ndarray or (final != final[0]).any() else final[0])
        if not wrapping or jump:
            return False
        f.select(f.subset(np.flatnonzero(turns.wraps)))
        self.ordinary(f, 1)
        return True

    def turns(self, f: Frame, start: Any) -> _Turns | None:
        """What is ahead of the active lanes; None where that is not known."""
        plan = self.plan
        first = spread(start, f.n).astype(np.int64)
        limit = self.bound(f)
        step: Any = self.step(f) if self.step is not None else np.int64(1)
        if any(x.dtype == np.uint64 and v.high(x) > 1 << 62 for x in (start, limit, step)):
            return None
        step = step.astype(np.int64) * plan.sign
        limit = limit.astype(np.int64)
        if plan.optype is not plan.type and v.low(first) < 0 and not plan.optype.signed:
            return None
        upward = v.low(step) > 0
        if not upward and v.high(step) >= 0:
            return None
        if abs(v.low(first)) > 1 << 61 or abs(v.low(limit)) > 1 << 61 or abs(v.high(limit)) > 1 << 61:
            return None
        lo, hi = v.limits(v.dtype_of(plan.type))
        lo, hi = max(lo, -(1 << 62)), min(hi, 1 << 62)
        # A bound beyond the counter's type is never met: then the counter decides.
        if upward and plan.op in ("<", "<="):
            limit = limit + (plan.op == "<=")
            count = -(-(limit - first) // step)
            room = (hi - first) // step
            ordered, below = first - lo, limit - lo
        elif not upward and plan.op in (">", ">="):
            limit = limit - (plan.op == ">=")
            count = -(-(first - limit) // -step)
            room = (first - lo) // -step
            ordered, below = hi - first, hi - limit
        elif plan.op == "!=":
            distance = limit - first
            if np.any(distance % step):
                return None
            count = distance // step
            room = np.full(f.n, 1 << 62)
            ordered = below = first
        else:
            return None
        # Where the test is made in unsigned numbers, what has wrapped below zero compares otherwise.
        exact = plan.type.bits == 32 and (plan.optype.signed or not plan.type.signed)
        wraps = (count > room) & exact
        return _Turns(first, step, np.maximum(np.minimum(count, room), 0), wraps, ordered, below)

    def endless(self, turns: _Turns) -> None:
        """Stop where a lane's counter never comes to a number that fails the test, however often it wraps."""
        size = np.abs(turns.step)
        # All numbers of its residue class come up; the largest one tells.
        apart = size & -size
        if (turns.wraps & (turns.ordered % apart + _AROUND - apart < turns.below)).any():
            line = self.code.site(self.plan.bound).line
            raise Stop("no-end", f"the counter of the loop at line {line} wraps and starts over")

    def late(self, turns: _Turns) -> Any:
        """Passes ahead of each lane, those that wrap left with their last two."""
        result = turns.passes.copy()
        size, limits = spread(np.abs(turns.step), len(result)), spread(turns.below, len(result))
        for lane in np.flatnonzero(turns.wraps):
            here, step, limit = int(turns.ordered[lane]), int(size[lane]), int(limits[lane])
            end = first_within(step, _AROUND, limit - here, _AROUND - 1 - here)
            assert end is not None
            result[lane] = max(0, end - 2)
        return result

    def apart(self, f: Frame) -> bool:
        """Whether no iteration reads what another one writes: pointers to one object go by one index."""
        plan = self.plan
        if not plan.stores:
            return True
        places: dict[ir.Var, Any] = {}

        def key(var: ir.Var) -> Any:
            if var.kind in ("shared", "global", "constant") or var in plan.declared or isinstance(var.type, Array):
                return var
            if var not in places:
                try:
                    pointer = f.read(var)
                except Unsupported:
                    return None
                numbers = np.unique(np.asarray(pointer) >> 44)
                places[var] = int(numbers[0]) if len(numbers) == 1 else None
            return places[var]

        stored: dict[Any, set[str]] = {}
        roots: dict[Any, set[ir.Var]] = {}
        for var, text in plan.stores:
            where = key(var)
            if where is None:
                return False
            stored.setdefault(where, set()).add(text)
            roots.setdefault(where, set()).add(var)
        if any(len(texts) > 1 for texts in stored.values()) or any(len(found) > 1 for found in roots.values()):
            return False
        for var, text, injective in plan.loads:
            where = key(var)
            if where is None:
                return False
            if where in stored and (text not in stored[where] or not injective or var not in roots[where]):
                return False
        return True

    def chunk(self, f: Frame, first: Any, step: Any, passes: Any, limits: Any) -> None:
        """Run the iterations ``passes`` (negative: from the end) of all lanes that have them, as lanes."""
        machine = f.machine
        step = spread(step, f.n)
        if passes[0] < 0:
            # Not those that the beginning has done already.
            number = limits[None, :] + passes[:, None]
            rows, lanes = np.nonzero(number >= 2)
            turn = number[rows, lanes]
        else:
            rows, lanes = np.nonzero(passes[:, None] < limits[None, :])
            turn = passes[rows]
        total = len(lanes)
        if not total:
            return
        machine.step(total)
        plan = self.plan
        mapping = lanes if f.sel is None else f.sel[lanes]
        inner = Frame(machine, f.code, total, f, mapping, lexical=True)
        inner.space = inner
        inner.want_place = f.want_place
        for var in plan.declared:
            inner.undefined[var] = None
        for var in self.invariant:
            if var in f.vars and not var.ref and var not in f.undefined and var not in f.objects:
                inner.vars[var] = gather(f.read_full(var), mapping)
        inner.vars[plan.counter] = (first[lanes] + turn * step[lanes]).astype(v.dtype_of(plan.type))
        for var in plan.sums:
            dtype = v.dtype_of(var.type)
            # -0.0 is what adds nothing, to the last bit.
            inner.vars["sum", var] = np.full(total, -0.0 if dtype.kind == "f" else 0, dtype)
            inner.owned.add(("sum", var))
        inner.loops.append(LoopState())
        for part in self.parts:
            part(inner)
            if not inner.n:
                break
        for var in plan.sums:
            self.gather_sum(f, var, inner.vars["sum", var], rows, lanes, len(passes))
        if inner.objects:
            inner.release()

    def gather_sum(self, f: Frame, var: ir.Var, terms: Any, rows: Any, lanes: Any, count: int) -> None:
        """Add what each iteration contributed, in their order and in the variable's own precision."""
        before = spread(f.read(var), f.n)
        table = np.full((count + 1, f.n), -0.0 if terms.dtype.kind == "f" else 0, terms.dtype)
        table[0] = before
        table[rows + 1, lanes] = terms
        f.write(var, np.add.accumulate(table, axis=0, dtype=terms.dtype)[-1].copy())


def first_within(step: int, modulus: int, low: int, high: int) -> int | None:
    """The first k >= 0 for which ``low <= step * k % modulus <= high``; None where there is none."""
    if low <= 0:
        return 0
    step %= modulus
    if not step:
        return None
    if 2 * step > modulus:
        return first_within(modulus - step, modulus, modulus - high, modulus - low)
    k = -(-low // step)
    if k * step <= high:
        return k
    turns = first_within(modulus % step, step, -high % step, -low % step)
    return None if turns is None else -(-(low + modulus * turns) // step)


def _plan(cond: ir.Expr | None, step: ir.Expr | None) -> Plan:
    """The counter, its bound and its step."""
    if not isinstance(cond, ir.Binary) or step is None:
        raise _Ineligible
    op, left, bound = cond.op, cond.left, cond.right
    if not isinstance(left, ir.Ref):
        op, left, bound = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "!=": "!="}.get(op, ""), cond.right, cond.left
    if op not in ("<", "<=", ">", ">=", "!=") or not isinstance(left, ir.Ref) or not isinstance(cond.optype, Int):
        raise _Ineligible
    counter = left.var
    if (
        counter.kind not in ("local", "param")
        or counter.ref
        or not isinstance(counter.type, Int)
        or counter.type.bits < 32
    ):
        raise _Ineligible
    if isinstance(step, ir.IncDec) and isinstance(step.target, ir.Ref) and step.target.var is counter:
        return Plan(counter, op, bound, cond.optype, None, 1 if step.op == "+" else -1)
    if not isinstance(step, ir.Assign) or not isinstance(step.target, ir.Ref) or step.target.var is not counter:
        raise _Ineligible
    amount, sign = step.value, 1
    if step.op in ("+", "-"):
        sign = 1 if step.op == "+" else -1
    elif not step.op and isinstance(amount, ir.Binary) and amount.op in ("+", "-"):
        sign = 1 if amount.op == "+" else -1
        if isinstance(amount.left, ir.Ref) and amount.left.var is counter:
            amount = amount.right
        elif amount.op == "+" and isinstance(amount.right, ir.Ref) and amount.right.var is counter:
            amount = amount.left
        else:
            raise _Ineligible
    else:
        raise _Ineligible
    return Plan(counter, op, bound, cond.optype, amount, sign)


def _scan(code: Code, plan: Plan, body: list[ir.Stmt]) -> None:
    """Find what the body declares, reads, stores and sums; raise where it carries anything else."""
    from cudalint.sim.expressions import children

    assigned: list[tuple[ir.Assign | ir.IncDec, ir.Expr]] = []
    nodes: list[Any] = []
    stack: list[tuple[Any, int]] = [(s, 0) for s in body]
    while stack:
        node, depth = stack.pop()
        nodes.append(node)
        if isinstance(node, _FORBIDDEN) or (isinstance(node, ir.Break) and not depth):
            raise _Ineligible
        if isinstance(node, ir.VarDecl):
            if node.var.kind == "shared" or node.var.static or node.var.ref:
                raise _Ineligible
            plan.declared.add(node.var)
            if node.init is not None:
                plan.definitions[node.var] = node.init
        inner = depth + isinstance(node, (ir.For, ir.While, ir.Switch))
        if isinstance(node, ir.Switch) and any(isinstance(c, ir.Continue) for c in below(node)):
            raise _Ineligible
        stack.extend((c, inner) for c in children(node))
    for part in (plan.bound, plan.step):
        nodes.extend(below(part) if part is not None else ())
        if part is not None and any(isinstance(n, (ir.Call, ir.Index, ir.Assign, ir.IncDec)) for n in below(part)):
            raise _Ineligible
    # Of a statement in a loop of the body, what each of its passes adds would have to be told apart.
    again = {id(n) for loop in nodes if isinstance(loop, (ir.For, ir.While)) for n in below(loop)}
    statements = {id(n.expr) for n in nodes if isinstance(n, ir.ExprStmt)}
    single = {id(n.expr) for n in nodes if isinstance(n, ir.ExprStmt) and id(n) not in again}
    bases: set[int] = set()
    for node in nodes:
        if isinstance(node, (ir.Assign, ir.IncDec)):
            assigned.append((node, node.target))
        elif isinstance(node, ir.Call):
            _call(node, statements)
        elif isinstance(node, ir.Ref):
            var = node.var
            if var.ref or var.kind in ("field", "template"):
                raise _Ineligible
            if var.kind in ("local", "param"):
                if var not in plan.declared and (lives_in_memory(var.type) or var in code.in_memory):
                    raise _Ineligible
                plan.used.add(var)
    for node, target in assigned:
        root = target
        while isinstance(root, ir.Member):
            root = root.base
        if isinstance(root, ir.Ref):
            var = root.var
            if var.kind in ("shared", "global"):
                plan.stores.append((var, expression(root)))
                continue
            if var in plan.declared:
                plan.definitions.pop(var, None)
                continue
            _sum(plan, node, var, single)
        elif isinstance(root, ir.Index):
            plan.stores.append((_base(root), expression(root)))
            bases.add(id(root))
        else:
            raise _Ineligible
    for var, statement in plan.sums.items():
        uses = sum(isinstance(n, ir.Ref) and n.var is var for n in nodes)
        if uses != (1 if statement.op else 2):
            raise _Ineligible
        plan.used.discard(var)
    stored_nodes = {id(t) for _, t in assigned}
    for node in nodes:
        if isinstance(node, ir.Index) and not isinstance(node.type, Array):
            compound = id(node) in stored_nodes
            if compound or id(node) not in bases:
                injective = _injective(plan, node)
                plan.loads.append((_base(node), expression(node), injective))
        elif (
            isinstance(node, ir.Ref)
            and node.var.kind in ("shared", "global")
            and not isinstance(node.var.type, Array)
            and not node.var.const
        ):
            plan.loads.append((node.var, expression(node), False))
    # A plain store is no load of its place.
    for node, target in assigned:
        if isinstance(node, ir.Assign) and not node.op and isinstance(target, ir.Index):
            entry = (_base(target), expression(target), _injective(plan, target))
            if entry in plan.loads:
                plan.loads.remove(entry)


def is_computed(node: ir.Call) -> bool:
    """Whether a call only computes a value from its arguments, without memory."""
    from cudalint.sim.builtins import is_pure

    if node.receiver is not None or node.callee is not None:
        return False
    if node.target is not None:
        return _pure_function(node.target, 0)
    name = node.name.rpartition("::")[2]
    return (is_pure(name) and not name.startswith("__ld")) or name.startswith("make_")


def _call(node: ir.Call, statements: set[int]) -> None:
    """Calls allowed in the body: pure ones, and atomics whose result is not used."""
    from cudalint.sim.builtins import is_pure

    if node.receiver is not None or node.callee is not None:
        raise _Ineligible
    name = node.name.rpartition("::")[2]
    if node.target is not None:
        if not _pure_function(node.target, 0):
            raise _Ineligible
        return
    if name.startswith("atomic") and id(node) in statements:
        return
    if not is_pure(name) and not name.startswith(_PURE_PREFIXES):
        raise _Ineligible


def _pure_function(target: ir.FunctionDecl, depth: int) -> bool:
    """Whether a function of the project only computes: it stores to its own variables alone."""
    from cudalint.sim.builtins import is_pure

    if not target.has_body or depth > 4 or target.owner:
        return False
    function = target.lower({})
    own = {p for p in function.params if not p.ref}
    nodes = list(below(function.body))
    own |= {n.var for n in nodes if isinstance(n, ir.VarDecl) and n.var.kind == "local" and not n.var.ref}
    for node in nodes:
        if isinstance(node, (ir.Lambda, ir.Launch, ir.Opaque, ir.OpaqueStmt, ir.AddrOf)):
            return False
        if isinstance(node, (ir.Assign, ir.IncDec)):
            root: ir.Expr = node.target
            while isinstance(root, (ir.Member, ir.Index)):
                if isinstance(root, ir.Index) and not isinstance(root.base.type, Array):
                    return False
                root = root.base
            if not isinstance(root, ir.Ref) or root.var not in own:
                return False
        if isinstance(node, ir.Index) and isinstance(node.base.type, Ptr):
            return False  # what it reads is not compared with what the loop stores
        if isinstance(node, ir.Call):
            name = node.name.rpartition("::")[2]
            if node.receiver is not None or node.callee is not None:
                return False
            if node.target is not None:
                if not _pure_function(node.target, depth + 1):
                    return False
            elif not is_pure(name) and not name.startswith(_PURE_PREFIXES):
                return False
    return True


def _sum(plan: Plan, node: ir.Expr, var: ir.Var, statements: set[int]) -> None:
    """``acc += e;`` or ``acc = acc + e;`` in acc's own type, the one thing that may be carried."""
    if (
        not isinstance(node, ir.Assign)
        or added(node) is None
        or id(node) not in statements
        or var in plan.sums
        or var is plan.counter
        or var.kind not in ("local", "param")
        or not isinstance(var.type, (Int, Float))
        or (isinstance(var.type, Int) and var.type.bits < 32)
        or (isinstance(var.type, Float) and var.type.bits < 32)
        or (node.optype if node.op else getattr(node.value, "optype", None)) is not var.type
    ):
        raise _Ineligible
    plan.sums[var] = node


def added(node: ir.Assign) -> tuple[ir.Expr, bool] | None:
    """What a statement adds to its target, and whether it is subtracted; None where it does something else."""
    if node.op:
        return (node.value, node.op == "-") if node.op in ("+", "-") else None
    value = node.value
    if not isinstance(value, ir.Binary) or value.op not in ("+", "-") or not isinstance(node.target, ir.Ref):
        return None
    var = node.target.var
    if isinstance(value.left, ir.Ref) and value.left.var is var:
        return value.right, value.op == "-"
    if value.op == "+" and isinstance(value.right, ir.Ref) and value.right.var is var:
        return value.left, False
    return None


def _base(node: ir.Expr) -> ir.Var:
    """The pointer or array that an element belongs to."""
    while True:
        if isinstance(node, ir.Index):
            if isinstance(node.base.type, Ptr) and isinstance(node.base, ir.Index):
                raise _Ineligible  # a pointer read from memory
            node = node.base
        elif isinstance(node, (ir.Member,)):
            node = node.base
        elif isinstance(node, (ir.Cast, ir.AddrOf)):
            node = node.operand
        elif isinstance(node, ir.Binary) and isinstance(node.optype, Ptr):
            node = node.left if isinstance(node.left.type, (Ptr, Array)) else node.right
        elif isinstance(node, ir.Ref):
            return node.var
        else:
            raise _Ineligible


def _injective(plan: Plan, node: ir.Index) -> bool:
    """Whether the element differs from iteration to iteration: its index is the counter plus what does not change."""
    coefficient = _coefficient(plan, node.index, 0)
    if isinstance(node.base, ir.Ref):
        return coefficient is not None and coefficient != 0
    return False


def _coefficient(plan: Plan, node: ir.Expr, depth: int) -> int | None:
    """How an index grows with the counter; None where it does not do so evenly."""
    if depth > 12:
        return None
    if isinstance(node, ir.Ref):
        var = node.var
        if var is plan.counter:
            return 1
        if var in plan.declared:
            init = plan.definitions.get(var)
            return None if init is None else _coefficient(plan, init, depth + 1)
        return 0
    if isinstance(node, (ir.Const, ir.Special)):
        return 0
    if isinstance(node, ir.Cast) and isinstance(node.type, Int):
        return _coefficient(plan, node.operand, depth + 1)
    if isinstance(node, ir.Binary) and node.op in ("+", "-", "*"):
        a, b = _coefficient(plan, node.left, depth + 1), _coefficient(plan, node.right, depth + 1)
        if a is None or b is None:
            return None
        if node.op == "+":
            return a + b
        if node.op == "-":
            return a - b
        if a == 0 and b == 0:
            return 0
        constant, other = (node.left, b) if isinstance(node.left, ir.Const) else (node.right, a)
        if isinstance(constant, ir.Const) and isinstance(constant.value, int):
            return constant.value * other
    return None


def _conflicts_possible(plan: Plan) -> None:
    """Raise where the counter itself is used as something else than a value."""
    if plan.counter in plan.declared:
        raise _Ineligible


def below(node: Any) -> list[Any]:
    """``node`` and every node under it."""
    from cudalint.sim.expressions import children

    found, stack = [], [node]
    while stack:
        item = stack.pop()
        found.append(item)
        stack.extend(children(item))
    return found
