"""The symbolic executor: walks one function once, device or host alike, and records what it does.

The IR is structured, so one pass suffices: variables are replaced by what they hold
(:mod:`cudalint.facts.terms`), branches are merged by ``select``, loops give their variables a head
value that is completed after the body (:class:`~cudalint.facts.events.Induction`), and project
functions are walked in place of their calls. What cannot be known becomes an atom that says so.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from cudalint.facts import terms as t
from cudalint.facts.assigned import assigned, changed_objects, children
from cudalint.facts.builtins import may_have_changed
from cudalint.facts.events import (
    Closure,
    Ending,
    Event,
    Flow,
    Guard,
    Induction,
    Loop,
    Obj,
    Pointer,
    Record,
    ReturnEvent,
    chain,
)
from cudalint.facts.expressions import Expressions, from_poly, lambdas, walked
from cudalint.facts.queried import numbers
from cudalint.facts.search import tried
from cudalint.facts.state import Exits, Frame
from cudalint.facts.terms import UNKNOWN, Atom, Term, const
from cudalint.facts.witness import refutations, spoken
from cudalint.ir import nodes as ir
from cudalint.ir.types import BOOL, DIM3, I32, I64, U32, Array, Float, Int, Ptr, Type
from cudalint.lazy import pattern

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudalint.facts.events import Value
    from cudalint.facts.state import Env


_LEAVES = pattern(rb"\b(?:exit|ret|bra|trap)\s*;")
"""Inline assembly that ends a thread or jumps."""
_BUDGET = 60_000


def run(function: ir.Function) -> Flow:
    """The flow of ``function``, with its parameters (and open template values) as atoms."""
    flow = Walker(function).run()
    _flows.append(flow)
    return flow


_flows: list[Flow] = []
"""Those that are in use, until :func:`forget`."""
_hosts: dict[ir.FunctionDecl, Flow] = {}
"""Those of :func:`of_host` among them."""


def forget() -> None:
    """Forgets all flows and the terms that they are made of; called between files so that memory stays bounded."""
    for flow in _flows:
        flow.unlink()
    _flows.clear()
    _hosts.clear()
    _asked.clear()
    walked.clear()
    lambdas.clear()
    numbers.clear()
    refutations.clear()
    spoken.clear()
    tried[0] = 0
    t.reset()


def walk(decl: ir.FunctionDecl, bindings: dict[str, Type | int] | None = None) -> Flow:
    """The flow of a function of the project with these template parameters bound.

    Where an integer that counts is left without a type, and the type oracle may know it, it is asked.
    """
    function = decl.lower(bindings)
    if decl in _asked or (_asked and any(x in _asked for x in _called(function))):
        return run(decl.lower(bindings, asked=True))
    flow = run(function)
    if flow.untyped:
        from cudalint.facts.untyped import may_settle
        from cudalint.frontend.oracle import answers

        if may_settle(flow.untyped) and any(map(answers, flow.bodies)):
            _asked.update((decl, *flow.callees))
            return run(decl.lower(bindings, asked=True))
    return flow


def _called(function: ir.Function) -> Iterator[ir.FunctionDecl]:
    stack: list[object] = [function.body]
    while stack:
        item = stack.pop()
        if isinstance(item, ir.Call) and item.target is not None:
            yield item.target
        stack.extend(children(item))


_asked: set[ir.FunctionDecl] = set()
"""Functions of flows for which the type oracle was asked: it is at once where another function calls them."""


def of_host(decl: ir.FunctionDecl) -> Flow:
    """The flow of a host function with its template parameters open, walked once."""
    flow = _hosts.get(decl)
    if flow is None:
        flow = _hosts[decl] = walk(decl)
    return flow


def _counts_arguments(var: ir.Var, following: ir.Var) -> bool:
    """Whether two parameters are the ``int argc, char **argv`` of a program, whatever their names."""
    type_ = following.type
    strings = type_.element if isinstance(type_, (Ptr, Array)) else None
    text = strings.element if isinstance(strings, Ptr) else None
    return isinstance(var.type, Int) and isinstance(text, Int) and text.bits == 8


def _at(key: Any, values: dict[Term, Term]) -> Any:
    """What an object answers is kept under, with the indices in it at these values."""
    if isinstance(key, tuple):
        return tuple(_at(x, values) for x in key)
    return values.get(key, key) if isinstance(key, Term) else key


def _members(values: Env) -> dict[str, Term]:
    return {var.name: x for var, x in values.items() if var.kind == "field" and isinstance(x, Term)}


def _is_failure(value: Value | None, last: Value | None) -> bool:
    """Whether a function tells by what it returns that it failed: by a constant that is not the one of its end; where
    that is none, by `false` or a number other than 0."""
    if not isinstance(value, Term) or value.op != "const":
        return False
    if isinstance(last, Term) and last.op != "const":
        return bool(value.data) is not (value.type is BOOL)
    return last is None or value is not last


class Walker(Expressions):
    """Statements and loops; with the layers below, the executor."""

    def run(self) -> Flow:
        fn = self.fn
        for var in fn.template:
            self.env[var] = self.flow.template[var.name] = self.fresh("param", var.name, var.type, data=var)
        for var, following in zip_longest(fn.params, fn.params[1:]):
            counts = not self.device and following is not None and _counts_arguments(var, following)
            passed = lambdas.get(var.type) if self.device else None
            if passed is not None:
                self.env[var] = self.flow.params[var] = self.given(passed)
                continue
            value = self.unknown_value("argc" if counts else "param", var.name, var.type, var)
            self.env[var] = self.flow.params[var] = value
        self.frames.append(Frame(None))
        self.block(fn.body)
        if not self.device:
            self.flow.members = _members(self.globals)
            ends = self.frames[0].returns + ([(self.guard, None, self.env)] if self.alive else [])
            self.flow.endings = [
                Ending(guard, _members(env)) for guard, value, env in ends if not _is_failure(value, ends[-1][1])
            ]
        return self.flow

    def given(self, node: ir.Lambda) -> Closure:
        """A lambda that a kernel gets: what it has captured is an argument of the launch."""
        captured: dict[ir.Var, Value] = {}
        stack: list[Any] = [node.function.body]
        while stack:
            item = stack.pop()
            if isinstance(item, ir.Ref) and item.var.start < node.start and node.by_value(item.var):
                var = item.var
                captured[var] = self.unknown_value("param", var.name, var.type, var)
            stack.extend(children(item))
        return Closure(node.function, captured)

    def block(self, node: ir.Block) -> None:
        known = len(self.env)
        for stmt in node.body:
            if not self.alive:
                return
            self.stmt(stmt)
        if self.alive:
            self.forget(known)

    def stmt(self, node: ir.Stmt) -> None:
        self.flow.steps += 1
        if self.flow.steps > _BUDGET:
            self.flow.complete = False
            self.flow.exhausted = True
            self.alive = False
            return
        _STATEMENTS[type(node)](self, node)

    def do_decl(self, node: ir.VarDecl) -> None:
        var = node.var
        type_ = var.type
        self.aliases.pop(var, None)
        if var.ref and node.init is not None:
            place = self.place(node.init)
            if place is not None:
                self.aliases[var] = place
                return
        if isinstance(type_, Array) or var.kind in ("shared", "constant"):
            self.env[var] = self.array(var)
            if node.init is not None:
                self.initialise_array(var, node.init)
            elif not var.static:
                self.follow(self.array(var))
            return
        if var.static and not self.device and not var.const:
            self.env[var] = self.unknown_value("var", var.name, type_, var)
            return
        if node.init is None:
            if type_ is DIM3:
                self.env[var] = Record(var.name, DIM3, {a: const(1, U32) for a in "xyz"})
            else:
                self.env[var] = self.unknown_value("uninit", var.name, type_, var)
            return
        value = self.value(node.init)
        held = self.env[var] = self.stored(value, var, node.init)
        self.define(node, var, held)

    def do_expr(self, node: ir.ExprStmt) -> None:
        self.value(node.expr)
        if isinstance(node.expr, ir.Call) and node.expr.receiver is not None:
            may_have_changed(self, node.expr.receiver)  # `v.clear()`: called for what it does

    def do_if(self, node: ir.If) -> None:
        cond = t.truth(self.term(self.value(node.cond)))
        if cond.op == "const":
            chosen = node.then if cond.data else node.other
            if chosen is not None:
                self.stmt(chosen)
            return
        base, env = self.guard, self.env
        self.env = dict(env)
        self.push(cond, "if", node, True)
        inner = self.guard
        self.stmt(node.then)
        then_env, then_alive, then_guard, then_exit = self.env, self.alive, self.guard, self.last_exit
        self.env, self.alive, self.guard = env if node.other is None else dict(env), True, base
        self.push(t.lnot(cond), "if", node, False)
        other_inner = self.guard
        if node.other is not None:
            self.stmt(node.other)
        other_env, other_alive, other_guard, other_exit = self.env, self.alive, self.guard, self.last_exit
        self.guard = base
        if then_alive and other_alive:
            read = self.command_line(cond, then_env, other_env)
            if read is not None:
                self.env = then_env if read else other_env
                self.repush(*((then_guard, inner) if read else (other_guard, other_inner)))
                return
            self.env = self.merge(cond, then_env, other_env)
            shared = self.agreed([then_guard, other_guard], base)
            self.implied(then_guard, inner, t.lnot(cond), shared)
            self.implied(other_guard, other_inner, cond, shared)
            return
        self.alive = then_alive or other_alive
        if then_alive:
            self.env = then_env
            self.push(cond, other_exit, node, True)
            self.repush(then_guard, inner)
        elif other_alive:
            self.env = other_env
            self.push(t.lnot(cond), then_exit, node, False)
            self.repush(other_guard, other_inner)
        else:
            self.last_exit = then_exit if then_exit == other_exit else "return"

    def implied(self, guard: Guard | None, base: Guard | None, unless: Term, known: set[Term]) -> None:
        """What held at the end of one side of a branch holds after it too, unless the other side ran."""
        for item in reversed(list(chain(guard, base))):
            if item.term in known:
                continue
            term = t.lor(unless, item.term)
            if term is not t.TRUE:
                self.guard = item.after(self.guard)
                self.guard.term = term

    def repush(self, guard: Guard | None, base: Guard | None) -> None:
        for item in reversed(list(chain(guard, base))):
            self.guard = item.after(self.guard)

    # --- loops

    def do_for(self, node: ir.For) -> None:
        for stmt in node.init:
            self.stmt(stmt)
        self.loop(node, node.cond, node.step, node.body, post=False)

    def do_while(self, node: ir.While) -> None:
        if node.post and isinstance(node.cond, ir.Const) and not node.cond.value:
            self.once(node)
            return
        self.loop(node, node.cond, None, node.body, post=node.post)

    def once(self, node: ir.While) -> None:
        """``do { … } while (0)``: a block that ``break`` and ``continue`` leave."""
        base = self.guard
        exits = Exits("loop", base)
        self.exits.append(exits)
        self.stmt(node.body)
        self.exits.pop()
        left = exits.breaks + exits.continues
        if not left:
            return
        ends = [*([(self.env, self.guard)] if self.alive else []), *left]
        env = ends[-1][0]
        for other, guard in reversed(ends[:-1]):
            env = self.merge(self.condition_since(guard, base), other, env)
        self.env, self.guard, self.alive = env, base, True

    def do_range_for(self, node: ir.RangeFor) -> None:
        over = self.value(node.range)
        self.loop(node, None, None, node.body, post=False, each=node.var, over=over)

    def loop(
        self, node: ir.Stmt, cond: ir.Expr | None, step: ir.Expr | None, body: ir.Stmt, *, post: bool,
        each: ir.Var | None = None, over: Value | None = None,
    ) -> None:  # fmt: skip
        loop = Loop(node, self.fn, self.guard, self.stack, self.seq + 1)
        self.flow.loops.append(loop)
        self.forget_exposed(node)
        for var in filter(self.is_member, self.assigned_in(node)):
            self.env.setdefault(var, self.lookup(var))
        changed = [v for v in self.assigned_in(node) if v in self.env]
        before = {v: self.env[v] for v in changed}
        base = self.guard
        self.env = dict(self.env)
        for var in changed:
            self.env[var] = self.head(loop, var, before[var])
        exits = Exits("loop", base, loop)
        self.exits.append(exits)
        if each is not None:
            element = self.env[each] = self.unknown_value("load", each.name, each.type, each, level=UNKNOWN)
            if isinstance(over, Pointer):
                self.bound_by_contents(element, over.obj)
            loop.control.append(self.fresh("unknown", "range", None, level=UNKNOWN))
        test = t.TRUE
        if cond is not None and not post:
            self.push(t.TRUE, "loop", node, True, loop)
            test = t.truth(self.term(self.value(cond)))
            self.guard = base
            loop.cond = test
            loop.control.append(test)
            self.limit(loop, test)
        self.push(test, "loop", node, True, loop)
        exits.base = self.guard
        self.stmt(body)
        self.join_continues(exits)
        if cond is not None and post and self.alive:
            test = t.truth(self.term(self.value(cond)))
            loop.cond = test
            loop.control.append(test)
        if step is not None and self.alive:
            self.value(step)
        for _env, guard in exits.breaks:
            condition = self.condition_since(guard, exits.base)
            loop.control.append(condition)
            if guard is not None and guard is not exits.base:
                loop.leaves[condition] = guard
        loop.last = self.seq
        reached = self.alive
        for var in changed:
            self.complete(loop, var, self.env.get(var) if reached else None)
        self.exits.pop()
        checked = [] if self.device or exits.breaks or exits.continues else list(chain(self.guard, exits.base))
        self.guard = base
        self.checked_first(loop, test, [x.term for x in reversed(checked) if x.why != "loop"])
        never_ends = cond is None and each is None and not exits.breaks
        self.alive = not (never_ends or (test is t.TRUE and not exits.breaks and not post and each is None))
        if post and not reached and not exits.breaks:
            self.alive = False
        broken = {v: [env.get(v) for env, _ in exits.breaks] for v in changed}
        for var in changed:
            self.env[var] = self.after(loop, var, before[var], broken[var])

    def assigned_in(self, node: ir.Stmt) -> list[ir.Var]:
        found = self.assigned_cache.get(id(node))
        if found is None:
            resolved = set()
            objects = set() if self.device else changed_objects(node, self.stores_cache)
            for var in assigned(node, self.stores_cache) | objects:
                resolved.add(var)
                place = self.aliases.get(var)
                if place is not None and place[0] == "var":
                    resolved.add(place[1])
            found = self.assigned_cache[id(node)] = sorted(resolved, key=lambda v: v.start)
        return found

    def head(self, loop: Loop, var: ir.Var, value: Value) -> Value:
        if isinstance(value, Term):
            info = Induction(loop, var, value)
            low, high = t.type_range(value.type)
            term = t.atom(Atom("loop", var.name, low, high, data=info), value.type)
            info.term = term
            loop.inductions[var] = info
            return term
        if isinstance(value, Pointer) and len(value.pieces) <= 1 and not isinstance(value.element, Array):
            size = value.element.size if value.element is not None else None
            unit = value.pieces[0][1] if value.pieces else size
            start = value.pieces[0][0] if value.pieces else const(0, I64)
            info = Induction(loop, var, start)
            term = t.atom(Atom("loop", var.name, -t.INF, t.INF, data=info), I64)
            info.term = term
            loop.inductions[var] = info
            return Pointer(value.obj, value.element, ((term, unit),))
        if isinstance(value, Pointer):
            inputs = self.sources(value)
            return Pointer(Obj(value.obj.kind, var.name, value.element, origin=inputs), value.element)
        if isinstance(value, Record):
            fields = {} if self.device else self.counted(value)
            heads: dict[str, Value] = {
                name: self.head(loop, self.part(var, name, x.type), x) for name, x in fields.items()
            }
            return Record(var.name, value.type, heads, UNKNOWN if self.device else 0)
        return self.fresh("unknown", var.name, var.type, level=UNKNOWN)

    def counted(self, record: Record) -> dict[str, Term]:
        """The numbers among the members of a class: a loop changes each of them, or leaves it, by itself."""
        return {name: x for name, x in record.fields.items() if isinstance(x, Term) and isinstance(x.type, Int)}

    def part(self, var: ir.Var, name: str, type_: Type | None) -> ir.Var:
        """A member of a variable as a variable of its own."""
        found = self.parts.get((var, name))
        if found is None:
            found = self.parts[var, name] = ir.Var(f"{var.name}.{name}", type_ or I32, var.kind, var.start, var.end)
        return found

    def limit(self, loop: Loop, test: Term) -> None:
        """Records the bound that a loop's test sets on its variable."""
        stack = [test]
        while stack:
            term = stack.pop()
            if term.op == "land":
                stack.extend(term.args)
            elif term.op in ("lt", "le"):
                strict = -1 if term.op == "lt" else 0
                for side, other, sign in ((term.args[0], term.args[1], 1), (term.args[1], term.args[0], -1)):
                    while side.op == "cast":
                        side = side.args[0]
                    if side.op == "atom" and side.data.kind == "loop" and side.data.data.loop is loop:
                        side.data.data.limit = (other, strict * sign)

    def complete(self, loop: Loop, var: ir.Var, value: Value | None) -> None:
        for (whole, name), part in list(self.parts.items()):
            if whole is var and part in loop.inductions:
                self.complete(loop, part, value.fields.get(name) if isinstance(value, Record) else None)
        info = loop.inductions.get(var)
        if info is None or info.term is None:
            return
        if isinstance(value, Pointer):
            value = value.pieces[0][0] if len(value.pieces) == 1 else None
        if not isinstance(value, Term):
            info.next = None
            info.term.data.level = UNKNOWN if value is None and self.alive else info.term.data.level
            return
        info.next = value
        if isinstance(value.type, Float):
            return
        difference = t.add(t.poly(value), t.poly(info.term), -1)
        if self.invariant(difference, loop):
            info.step = from_poly(difference, info.term.type)

    def invariant(self, p: t.Poly, loop: Loop) -> bool:
        """Whether nothing in ``p`` was made inside ``loop``."""
        return all(leaf.key <= loop.counter.key for a in t.atoms_of(p) for leaf in t.leaves(a))

    def after(self, loop: Loop, var: ir.Var, before: Value, broken: list[Value | None]) -> Value:
        info = loop.inductions.get(var)
        if info is not None and info.term is not None:
            inputs = [info.term, *loop.control]
            if info.init is not None:
                inputs.append(info.init)
            if info.next is not None:
                inputs.append(info.next)
            for value in broken:
                if isinstance(value, Term):
                    inputs.append(value)
                elif isinstance(value, Pointer):
                    inputs.extend(p for p, _ in value.pieces)
            if isinstance(before, Pointer):
                exit_term = t.atom(Atom("exit", var.name, -t.INF, t.INF, data=info, inputs=tuple(inputs)), I64)
                unit = before.pieces[0][1] if before.pieces else (before.element.size if before.element else None)
                return Pointer(before.obj, before.element, ((exit_term, unit),))
            type_ = info.term.type
            low, high = t.type_range(type_)
            return t.atom(Atom("exit", var.name, low, high, data=info, inputs=tuple(inputs)), type_)
        if isinstance(before, Pointer):
            return Pointer(Obj(before.obj.kind, var.name, before.element, origin=tuple(loop.control)), before.element)
        if isinstance(before, Record):
            fields: dict[str, Value] = {}
            for name, x in ({} if self.device else self.counted(before)).items():
                ends = [y.fields.get(name) if isinstance(y, Record) else None for y in broken]
                part = self.part(var, name, x.type)
                info = loop.inductions[part]
                kept = info.next is info.term and all(y is info.term for y in ends)
                fields[name] = x if kept else self.after(loop, part, x, ends)
            return Record(var.name, before.type, fields, UNKNOWN if self.device else 0)
        return self.fresh("unknown", var.name, var.type, level=UNKNOWN)

    def checked_first(self, loop: Loop, test: Term, checks: list[Term]) -> None:
        """What a loop's body checks held on its first pass, if there was one."""
        first = {x.term: x.init for x in loop.inductions.values() if x.term is not None and x.init is not None}
        ran = self.on_first_pass(test, loop, first) if checks else None
        for check in checks if ran is not None else ():
            held = self.on_first_pass(check, loop, first)
            if held is not None and ran is not None:
                self.follows(t.lor(t.lnot(ran), held), loop.node)

    def on_first_pass(self, term: Term, loop: Loop, first: dict[Term, Term]) -> Term | None:
        """A value as it was on the first pass, of what is known outside of the loop; None where something else is in
        it."""
        known: dict[Term, Term] = {}
        inside = [x for x in t.leaves(term) if x.key > loop.counter.key]
        for leaf in inside:
            if leaf in first:
                known[leaf] = first[leaf]
                continue
            kept = (self.loads, *self.answered.values())
            asked = next(((held, key) for held in kept for key, x in held.items() if x is leaf), None)
            found = asked[0].get(_at(asked[1], first)) if asked is not None else None
            if not isinstance(found, Term) or found is leaf:
                return None
            known[leaf] = found
        return t.substitute(term, known)

    def join_continues(self, exits: Exits) -> None:
        """The state at the end of a pass: the body's end and every ``continue``."""
        env = self.env if self.alive else None
        for other, guard in reversed(exits.continues):
            env = other if env is None else self.merge(self.condition_since(guard, exits.base), other, env)
        if env is not None:
            self.env, self.alive = env, True
            if exits.continues:
                self.guard = exits.base

    def do_switch(self, node: ir.Switch) -> None:
        subject = self.term(self.value(node.cond))
        base, entry = self.guard, self.env
        exits = Exits("switch", base)
        self.exits.append(exits)
        ends: list[tuple[Env, Guard | None]] = []
        tests: list[Term] = []
        for case in node.cases:
            test = t.FALSE
            for label in case.labels:
                test = t.lor(test, t.compare("==", subject, t.convert(self.term(self.value(label)), subject.type)))
            tests.append(test)
        others = t.TRUE
        for test in tests:
            others = t.land(others, t.lnot(test))
        fallen: Env | None = None
        has_default = any(not case.labels for case in node.cases)
        for case, test in zip(node.cases, tests):
            if not case.labels:
                test = others
            if test is t.FALSE and fallen is None:
                continue
            self.env = dict(entry) if fallen is None else self.merge(test, dict(entry), fallen)
            self.guard, self.alive = base, True
            if fallen is None:
                self.push(test, "switch", node, True)
            else:
                self.push(self.fresh("unknown", "switch", BOOL, inputs=(subject,)), "switch", node, True)
            for stmt in case.body:
                if self.alive:
                    self.stmt(stmt)
            fallen = self.env if self.alive else None
            ends.extend(exits.breaks)
            exits.breaks.clear()
        if fallen is not None:
            ends.append((fallen, self.guard))
        if not has_default and others is not t.FALSE:
            ends.append((entry, Guard(base, others, "switch", node, False, self.fn, len(self.stack))))
        self.exits.pop()
        self.guard = base
        self.alive = bool(ends)
        if ends:
            env = ends[-1][0]
            for other, guard in reversed(ends[:-1]):
                env = self.merge(self.condition_since(guard, base), other, env)
            self.env = env
            if len(ends) == 1 and ends[0][1] is not None:
                self.repush(ends[0][1], base)
            else:
                self.agreed([guard for _, guard in ends], base)

    def do_return(self, node: ir.Return) -> None:
        value: Value | None = None
        if node.value is not None:
            value = self.value(node.value)
            if isinstance(value, Term):
                value = self.convert(value, self.fn.returns, node.value)
        self.flow.returns.append(self.event(ReturnEvent, node))
        if not node.throws:
            self.frames[-1].returns.append((self.guard, value, self.env))
        self.alive, self.last_exit = False, "return"

    def do_break(self, _node: ir.Break) -> None:
        if self.exits:
            exits = self.exits[-1]
            exits.breaks.append((self.env, self.guard))
            self.last_exit = "break" if exits.kind == "loop" else "switch"
        self.alive = False

    def do_continue(self, _node: ir.Continue) -> None:
        for exits in reversed(self.exits):
            if exits.kind == "loop":
                exits.continues.append((self.env, self.guard))
                break
        self.alive, self.last_exit = False, "continue"

    def do_opaque(self, node: ir.OpaqueStmt) -> None:
        self.flow.opaques.append(self.event(Event, node))
        self.clobber(node.writes)
        text = self.fn.file.text[node.start : node.end]
        if not self.device:
            # `goto cleanup`: what follows is for those who did not jump.
            if text.lstrip().startswith(b"goto"):
                self.alive, self.last_exit = False, "return"
        elif node.jumps or _LEAVES.search(text):
            # Who still runs here, and under which conditions, is not known any more.
            self.flow.complete = False


_STATEMENTS: dict[type, Any] = {
    ir.VarDecl: Walker.do_decl, ir.ExprStmt: Walker.do_expr, ir.Block: Walker.block, ir.If: Walker.do_if,
    ir.For: Walker.do_for, ir.While: Walker.do_while, ir.RangeFor: Walker.do_range_for,
    ir.Switch: Walker.do_switch, ir.Return: Walker.do_return, ir.Break: Walker.do_break,
    ir.Continue: Walker.do_continue, ir.OpaqueStmt: Walker.do_opaque,
}  # fmt: skip
