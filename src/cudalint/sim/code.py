"""Functions compiled to closures: statements, with the lanes that take them.

A statement leaves active the lanes that go on after it. Those that return, break or continue are set aside
and join again where C++ has them join.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cudalint.ir import nodes as ir
from cudalint.ir.types import VOID, Array, Float, Int, Ptr, Struct
from cudalint.sim.calls import Calls
from cudalint.sim.expressions import has_defaults
from cudalint.sim.frame import EMPTY, Frame, LoopState, identity
from cudalint.sim.loops import added, below, fan_out
from cudalint.sim.places import ZERO, MemoryPlace, Place, flat, load_whole
from cudalint.sim.progress import Control
from cudalint.sim.values import Stop, Unsupported, lives_in_memory

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudalint.sim.machine import Machine

    Exec = Callable[[Frame], None]

#: From this pass on, a loop is watched for progress now and then.
_WATCH = 64


class Code(Calls):
    """A compiled function. ``run(frame)`` executes it for the frame's active lanes."""

    def __init__(
        self, machine: Machine, function: ir.Function, outer: Code | None = None, this: Struct | None = None
    ) -> None:
        super().__init__(machine, function, outer)
        self.this_type = this
        self.sums: dict[ir.Var, ir.Assign] = {}
        for param in function.params:
            self.locals.add(param)
        self.scan(function.body)
        self.body = self.block(function.body)

    def run(self, f: Frame) -> None:
        self.body(f)

    # Statements.

    def stmt(self, node: ir.Stmt) -> Exec:
        method = _STATEMENTS.get(type(node))
        if method is None:
            return self.refuse(node, f"a {type(node).__name__}")
        try:
            result: Exec = method(self, node)
        except Unsupported as fault:
            return self.refuse(node, fault.what)
        return result

    def block(self, node: ir.Block) -> Exec:
        body = [self.stmt(s) for s in node.body]
        if len(body) == 1:
            return body[0]
        machine = self.machine

        def run(f: Frame) -> None:
            machine.steps += len(body) - 1
            machine.step(0)
            for each in body:
                each(f)
                if not f.n:
                    return

        return run

    def do_expr(self, node: ir.ExprStmt) -> Exec:
        expr = node.expr
        if self.sums and isinstance(expr, ir.Assign) and isinstance(expr.target, ir.Ref):
            var = expr.target.var
            if self.sums.get(var) is expr:
                found = added(expr)
                assert found is not None
                value, negative = self.converted(found[0], var.type), found[1]
                key = ("sum", var)
                return lambda f: f.write(key, -value(f) if negative else value(f))
        return self.effect(expr)

    def do_decl(self, node: ir.VarDecl) -> Exec:
        var = node.var
        type_ = var.type
        if var.kind == "shared":
            return _nothing
        if var.static and not var.const:
            return self.refuse(node, "a static local variable")
        self.locals.add(var)
        if var.ref:
            if node.init is None:
                return self.refuse(node, "a reference bound to nothing")
            place = self.reference(node.init, var)

            def bind(f: Frame) -> None:
                f.vars[var] = place(f).bound(f)

            return bind
        if var in self.in_memory or lives_in_memory(type_):
            self.in_memory.add(var)
            return self.declare_memory(node)
        if node.init is None:
            if isinstance(type_, Struct) and type_.fields is not None:
                constructor = self.constructor(type_, [], node)
                if constructor is None and has_defaults(type_):
                    constructor = self.blank(type_)
                if constructor is not None:
                    return lambda f: f.write(var, constructor(f))
            return lambda f: f.declare(var)
        value = self.initial(node.init, type_)

        def run(f: Frame) -> None:
            f.write(var, value(f))

        return run

    def declare_memory(self, node: ir.VarDecl) -> Exec:
        var, type_ = node.var, node.var.type
        size = self.size(type_)
        fill = self.fill(node.init, type_) if node.init is not None else None
        constructor = None
        if node.init is None and isinstance(type_, Array) and has_defaults(type_):
            return self.refuse(node, "members of an array's elements that start as something")
        if node.init is None and isinstance(type_, Struct):
            constructor = self.constructor(type_, [], node)
            if constructor is None and has_defaults(type_):
                constructor = self.blank(type_)
            if constructor is not None:
                fill = self.built(constructor, type_, self.site(node))

        def run(f: Frame) -> None:
            obj = f.local(var, size)
            f.vars.setdefault(var, None)
            page = obj.pages[0]
            if f.sel is None and f.space is f:
                page.known[:] = False
                page.full = False
            else:
                per = obj.row_bytes // obj.granule
                rows = page.known[: len(page.known) // per * per].reshape(-1, per)
                rows[f.slots()] = False
                page.full = False
            if fill is not None:
                fill(f, (obj.base, ZERO, 1))

        return run

    @staticmethod
    def built(value: Callable[[Frame], Any], type_: Any, site: Any) -> Callable[[Frame, Any], None]:
        return lambda f, where: MemoryPlace(where, type_).store(f, value(f), site)

    def fill(self, init: ir.Expr, type_: Any) -> Callable[[Frame, Any], None]:
        """Stores an initialiser into memory; what it does not name is zero."""
        site = self.site(init)
        if isinstance(type_, Array):
            element, size = type_.element, self.size(type_.element)
            extent = type_.extent
            if isinstance(init, ir.Const) and isinstance(init.value, str):
                text = [*init.value.encode().decode("unicode_escape").encode("latin-1", "replace"), 0]
                values = [element_const(v) for v in text]

                def put_text(f: Frame, where: Any) -> None:
                    for i, v in enumerate(values):
                        MemoryPlace(_plus(where, i * size), element).store(f, v, site)

                return put_text
            if not isinstance(init, ir.Construct):
                raise Unsupported("an array initialised by something else")
            count = extent if isinstance(extent, int) else len(init.args)
            if count > 4096:
                raise Unsupported("a long initialiser")
            if isinstance(element, Array) and init.args:
                first = init.args[0]
                if isinstance(first.type, (Int, Float)):
                    return self.fill_flat(init, type_)
                if not isinstance(first, ir.Construct):
                    raise Unsupported("an array initialised by something else")
            parts = [self.fill(arg, element) for arg in init.args]
            zero = self.zero(element)

            def put_array(f: Frame, where: Any) -> None:
                for i in range(count):
                    if i < len(parts):
                        parts[i](f, _plus(where, i * size))
                    else:
                        MemoryPlace(_plus(where, i * size), element).store(f, zero(f), site)

            return put_array
        value = self.initial(init, type_)
        return lambda f, where: MemoryPlace(where, type_).store(f, value(f), site)

    def fill_flat(self, init: ir.Construct, type_: Array) -> Callable[[Frame, Any], None]:
        """``{0}`` and ``{1, 2, 3}`` for an array of arrays: scalars in order, the inner braces left out."""
        count, element = 1, type_
        scalar: Any = type_
        while isinstance(scalar, Array):
            count, element, scalar = count * self.extent(scalar), scalar, scalar.element
        return self.fill(init, Array(element.element, count))

    def do_if(self, node: ir.If) -> Exec:
        then = self.stmt(node.then)
        other = self.stmt(node.other) if node.other is not None else None
        cond = self.condition(node.cond)

        def run(f: Frame) -> None:
            c = cond(f)
            if type(c) is not np.ndarray:
                if c:
                    then(f)
                elif other is not None:
                    other(f)
                return
            yes = np.flatnonzero(c)
            count = len(yes)
            if count == f.n:
                then(f)
                return
            if count == 0:
                if other is not None:
                    other(f)
                return
            before, n = f.sel, f.n
            no = f.subset(np.flatnonzero(~c))
            f.select(f.subset(yes))
            then(f)
            first, left = f.sel, f.n
            f.select(no)
            if other is not None:
                other(f)
            if left + f.n == n:
                f.select(before)
            elif left == 0:
                pass
            elif f.n == 0:
                f.select(first)
            else:
                f.select(np.sort(np.concatenate([f.active() if first is None else first, f.active()])))

        return run

    def do_for(self, node: ir.For) -> Exec:
        init = [self.stmt(s) for s in node.init]
        cond = self.condition(node.cond) if node.cond is not None else None
        body = self.stmt(node.body)
        step = self.effect(node.step) if node.step is not None else None
        loop = self.loop(node, cond, body, step, False)
        fanned = fan_out(self, node.cond, node.step, [node.body], body, loop)

        def run(f: Frame) -> None:
            for each in init:
                each(f)
            if fanned is not None:
                fanned(f)
            loop(f)

        return run

    def do_while(self, node: ir.While) -> Exec:
        if node.post and isinstance(node.cond, ir.Const) and not node.cond.value:
            return self.once(node)
        body = self.stmt(node.body)
        loop = self.loop(node, self.condition(node.cond), body, None, node.post)
        inner = node.body.body if isinstance(node.body, ir.Block) else []
        if node.post or len(inner) < 2 or not isinstance(inner[-1], ir.ExprStmt):
            return loop
        # `while (i < n) { …; i += step; }`
        if any(isinstance(n, ir.Continue) for s in inner for n in below(s)):
            return loop
        fanned = fan_out(self, node.cond, inner[-1].expr, inner[:-1], None, loop)
        if fanned is None:
            return loop

        def run(f: Frame) -> None:
            fanned(f)
            loop(f)

        return run

    def summing(self, node: ir.Stmt, sums: dict[ir.Var, ir.Assign]) -> Exec:
        """A statement of a loop whose iterations are lanes: ``acc += e`` notes what it adds."""
        self.sums = sums
        try:
            return self.stmt(node)
        finally:
            self.sums = {}

    def once(self, node: ir.While) -> Exec:
        """``do { … } while (0)``."""
        body = self.stmt(node.body)

        def run(f: Frame) -> None:
            before = f.sel
            f.loops.append(LoopState())
            body(f)
            f.loops.pop()
            f.select(f.without_dead(before))

        return run

    def loop(
        self, node: ir.Stmt, cond: Callable[[Frame], Any] | None, body: Exec, step: Exec | None, post: bool
    ) -> Callable[..., None]:
        """Makes the passes of a loop, at most ``most``."""
        machine = self.machine
        controls: list[Control] = []

        def run(f: Frame, most: float = float("inf")) -> None:
            before = f.sel
            state = LoopState()
            f.loops.append(state)
            passes = 0
            test = not post
            watched: Any = None
            outer = machine.tracking
            while f.n and passes < most:
                if test and cond is not None:
                    c = cond(f)
                    if type(c) is not np.ndarray:
                        if not c:
                            break
                    else:
                        stay = np.flatnonzero(c)
                        if len(stay) == 0:
                            break
                        if len(stay) < f.n:
                            f.select(f.subset(stay))
                            watched = None
                if watched is not None:
                    self.judge(node, controls[0], watched, f)
                    machine.tracking, watched = outer, None
                test = True
                passes += 1
                machine.step(f.n)
                if passes % _WATCH == 0:
                    if not controls:
                        controls.append(Control(self, node))
                    machine.tracking, machine.changed = True, False
                    watched = controls[0].state(f)
                body(f)
                if state.continues:
                    f.select(_joined([f.active(), *state.continues]))
                    state.continues = []
                if not f.n:
                    break
                if state.breaks:
                    watched = None
                if step is not None:
                    step(f)
            if passes >= _WATCH:
                machine.tracking, machine.changed = outer, True
            f.loops.pop()
            f.select(f.without_dead(before))

        return run

    def judge(self, node: ir.Stmt, control: Control, before: Any, f: Frame) -> None:
        """Stop a loop of which a pass changed nothing: the next ones will not either, unless others write memory."""
        if not control.unchanged(before, f):
            return
        line = self.site(node).line
        if not control.memory:
            raise Stop("no-end", f"the loop at line {line} makes no progress")
        if not self.machine.changed:
            fault = Unsupported("spin")
            fault.line = line
            raise fault

    def do_switch(self, node: ir.Switch) -> Exec:
        value = self.expr(node.cond)
        cases = [
            ([self.expr(label) for label in case.labels], [self.stmt(s) for s in case.body]) for case in node.cases
        ]
        defaults = [number for number, case in enumerate(node.cases) if not case.labels]

        def run(f: Frame) -> None:
            v = value(f)
            before = f.sel
            origin = f.active()
            count = f.n
            state = LoopState(True)
            f.loops.append(state)
            left = np.ones(count, bool)
            starts: list[Any] = []
            for labels, _ in cases:
                here = np.zeros(count, bool)
                for label in labels:
                    here |= left & (v == label(f))
                left &= ~here
                starts.append(origin[here])
            for number in defaults:
                starts[number] = origin[left]
            f.select(EMPTY)
            for (_, body), start in zip(cases, starts):
                if len(start):
                    f.select(np.sort(np.concatenate([f.active(), start])) if f.n else start)
                if not f.n:
                    continue
                for each in body:
                    each(f)
                    if not f.n:
                        break
            f.loops.pop()
            # `continue` inside a switch belongs to the loop around it.
            gone = state.continues
            if gone:
                around = next((s for s in reversed(f.loops) if not s.is_switch), None)
                if around is not None:
                    around.continues.extend(gone)
            after = f.without_dead(before)
            if gone:
                lost = np.concatenate(gone)
                after = np.setdiff1d(identity(f.total) if after is None else after, lost)
            f.select(after)

        return run

    def do_break(self, _node: ir.Break) -> Exec:
        def run(f: Frame) -> None:
            f.loops[-1].breaks.append(f.active())
            f.select(EMPTY)

        return run

    def do_continue(self, _node: ir.Continue) -> Exec:
        def run(f: Frame) -> None:
            f.loops[-1].continues.append(f.active())
            f.select(EMPTY)

        return run

    def do_return(self, node: ir.Return) -> Exec:
        if node.throws:
            return self.refuse(node, "an exception")
        if node.value is None or (self.function.returns is VOID and node.value.type is VOID):
            value = self.effect(node.value) if node.value is not None else None

            def leave(f: Frame) -> None:
                if value is not None:
                    value(f)
                f.leave()

            return leave
        returns = self.function.returns
        typed = returns if isinstance(returns, (Int, Float, Ptr, Struct)) else node.value.type
        result = self.initial(node.value, typed)
        place: Callable[[Frame], Place] | None
        try:
            place = self.place(node.value)
        except Unsupported:
            place = None

        def run(f: Frame) -> None:
            if f.want_place:
                if place is None:
                    raise Unsupported("a reference to a temporary")
                f.write(RESULT, flat(place(f).address(f)))
            else:
                f.write(RESULT, result(f))
            f.leave()

        return run

    def do_range_for(self, node: ir.RangeFor) -> Exec:
        range_ = node.range
        type_ = range_.type
        if not isinstance(type_, Array) or not isinstance(type_.extent, int):
            return self.refuse(node, "a loop over a range")
        var = node.var
        self.locals.add(var)
        where = self.address(range_)
        element, size, extent = type_.element, self.size(type_.element), type_.extent
        body = self.stmt(node.body)
        site = self.site(node)

        def run(f: Frame) -> None:
            before = f.sel
            state = LoopState()
            f.loops.append(state)
            for i in range(extent):
                here = MemoryPlace(_plus(where(f), i * size), element)
                if var.ref:
                    f.vars[var] = here.bound(f)
                else:
                    f.write(var, load_whole(f, here.where, element, site))
                body(f)
                if state.continues:
                    f.select(_joined([f.active(), *state.continues]))
                    state.continues = []
                if not f.n:
                    break
            f.loops.pop()
            f.select(f.without_dead(before))

        return run

    def do_opaque_stmt(self, node: ir.OpaqueStmt) -> Exec:
        if node.why == "a label" and not node.jumps:
            return self.refuse(node, "goto")
        return self.refuse(node, node.why)


RESULT = "result"


def element_const(value: int) -> Any:
    return np.int8(value if value < 128 else value - 256)


def _plus(where: Any, offset: int) -> Any:
    from cudalint.sim.places import moved

    return moved(where, offset)


def _joined(parts: list[Any]) -> Any:
    return np.sort(np.concatenate(parts))


def _nothing(_f: Frame) -> None:
    """A declaration that does nothing when it is passed."""


_STATEMENTS: dict[type, Any] = {
    ir.VarDecl: Code.do_decl, ir.ExprStmt: Code.do_expr, ir.Block: Code.block, ir.If: Code.do_if, ir.For: Code.do_for,
    ir.While: Code.do_while, ir.RangeFor: Code.do_range_for, ir.Switch: Code.do_switch, ir.Return: Code.do_return,
    ir.Break: Code.do_break, ir.Continue: Code.do_continue, ir.OpaqueStmt: Code.do_opaque_stmt,
}  # fmt: skip
