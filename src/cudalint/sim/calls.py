"""Calls: functions of the project, methods, lambdas; CUDA's own are in :mod:`cudalint.sim.builtins`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cudalint.frontend.calls import bindings_of, signature
from cudalint.frontend.lower import default_arguments
from cudalint.frontend.typing import class_of
from cudalint.ir import nodes as ir
from cudalint.ir.types import VOID, Array, Float, Int, Ptr, Struct, Type
from cudalint.sim.expressions import Closure, Expressions, has_defaults
from cudalint.sim.frame import Frame
from cudalint.sim.places import MemoryPlace, Place, ValuePlace, VariablePlace, pointed, undefined_value
from cudalint.sim.values import Unsupported, lives_in_memory

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudalint.sim.code import Code
    from cudalint.sim.expressions import Eval

#: How deep calls may nest: recursion past it is refused.
DEPTH = 100
RESULT = "result"


class Calls(Expressions):
    """Adds calls to :class:`~cudalint.sim.expressions.Expressions`."""

    this_type: Struct | None = None

    def do_call(self, node: ir.Call) -> Eval:
        target = node.target
        if target is not None and target.has_body:
            if target.owner and node.receiver is None and target.name == target.owner.rpartition("::")[2]:
                # `V(x, y)` inside of V.
                type_ = node.type if isinstance(node.type, Struct) else self.this_type
                made = self.constructor(type_, node.args, node) if type_ is not None else None
                return made if made is not None else self.refuse(node, f"a constructor of '{target.owner}'")
            return self.project_call(node, target)
        if node.callee is not None:
            return self.value_call(node)
        from cudalint.sim.builtins import builtin

        return builtin(self, node)

    def code_of(self, function: ir.Function, this: Struct | None = None) -> Code:
        machine = self.machine
        found = machine.codes.get(function)
        if found is None:
            from cudalint.sim.code import Code

            found = machine.codes[function] = Code(machine, function, None, this)
        return found

    def project_call(self, node: ir.Call, target: ir.FunctionDecl, want_place: bool = False) -> Eval:
        receiver = node.receiver
        this: Callable[[Frame], Place] | None = None
        class_: Struct | None = None
        if receiver is not None:
            class_ = receiver.type if isinstance(receiver.type, Struct) else None
            this = self.receiver(receiver)
        elif target.owner:
            class_ = self.this_type
        bindings = bindings_of(target, node.targs, node.args, class_)
        function = target.lower(bindings, asked=self.function.asked)
        own_this = receiver is None and bool(target.owner)
        return self.invoke(node, function, node.args, this, own_this, class_, want_place)

    def receiver(self, node: ir.Expr) -> Callable[[Frame], Place]:
        """The object a method is called on; a temporary where it is a value."""
        base = node
        while isinstance(base, ir.Member):
            base = base.base
        if isinstance(base, (ir.Ref, ir.Index)):
            try:
                return self.place(node)
            except Unsupported:
                pass
        if isinstance(node, ir.Name) and node.name == "this":
            return lambda f: self.this_place(f)
        value, type_ = self.expr(node), node.type
        return lambda f: ValuePlace(f, value(f), type_)

    def this_place(self, f: Frame) -> Place:
        found = this_of(f)
        if found is None:
            raise Unsupported("'this' without an object")
        return found

    def invoke(
        self, node: ir.Expr, function: ir.Function, arg_nodes: list[ir.Expr], this: Callable[[Frame], Place] | None,
        own_this: bool, class_: Struct | None, want_place: bool = False,
    ) -> Eval:  # fmt: skip
        params = function.params
        if len(arg_nodes) > len(params):
            raise Unsupported("a call with a parameter pack")
        defaults = default_arguments(function, len(arg_nodes))
        binders = [self.binder(param, arg) for param, arg in zip(params, [*arg_nodes, *defaults])]
        returns = function.returns if function.returns is not VOID else node.type
        holder: list[Code] = []
        machine = self.machine
        memory_params: list[ir.Var] = []

        def run(f: Frame) -> Any:
            if not holder:
                code = self.code_of(function, class_)
                memory_params.extend(
                    p for p in params if not p.ref and (p in code.in_memory or lives_in_memory(p.type))
                )
                holder.append(code)
            code = holder[0]
            if f.depth > DEPTH:
                raise Unsupported("recursion this deep")
            machine.step(f.n)
            inner = Frame(machine, code, f.n, f, f.sel)
            if this is not None:
                inner.this = this(f).entered(f, inner)
            elif own_this and (outer := this_of(f)) is not None:
                # Without an object the method is a static one.
                inner.this = outer.entered(f, inner)
            for param, bind in zip(params, binders):
                inner.vars[param] = bind(f, inner)
            for param in memory_params:
                keep_in_memory(inner, param, self.site(node))
            inner.want_place = want_place
            code.run(inner)
            if inner.objects:
                inner.release()
            result = inner.vars.get(RESULT)
            if want_place:
                return result
            if result is None and returns is not VOID:
                return undefined_value(returns)
            return result

        return run

    def binder(self, param: ir.Var, arg: ir.Expr | None) -> Callable[[Frame, Frame], Any]:
        """Evaluates an argument for ``param``: a value, or a place for a reference."""
        if arg is None:
            raise Unsupported(f"the default of '{param.name}'")
        if param.ref:
            place = self.reference(arg, param)
            return lambda f, inner: place(f).entered(f, inner)
        value = self.initial(arg, param.type)
        return lambda f, inner: value(f)

    def value_call(self, node: ir.Call) -> Eval:
        """A call of a lambda; of anything else only where the value turns out to be one."""
        assert node.callee is not None
        callee = self.expr(node.callee)
        made: dict[ir.Function, Any] = {}

        def run(f: Frame) -> Any:
            closure = callee(f)
            if not isinstance(closure, Closure):
                raise Unsupported("a call through a pointer")
            found = made.get(closure.function)
            if found is None:
                function = closure.function
                from cudalint.sim.code import Code

                code = self.machine.codes.get(function)
                if code is None:
                    code = self.machine.codes[function] = Code(
                        self.machine, function, closure.code, closure.code.this_type
                    )
                binders = [self.binder(p, a) for p, a in zip(function.params, node.args)]
                found = made[function] = (code, binders)
            return self.enter_lambda(f, closure, *found)

        return run

    def enter_lambda(self, f: Frame, closure: Closure, code: Any, binders: list[Any]) -> Any:
        frame, mapping = f, f.active()
        while frame is not closure.frame:
            if frame.parent is None:
                raise Unsupported("a lambda that outlives its function")
            if frame.index is not None:
                mapping = frame.index[mapping]
            frame = frame.parent
        if f.depth > DEPTH:
            raise Unsupported("recursion this deep")
        self.machine.step(f.n)
        inner = Frame(self.machine, code, f.n, closure.frame, mapping, lexical=True)
        inner.depth = f.depth + 1
        for param, bind in zip(closure.function.params, binders):
            inner.vars[param] = bind(f, inner)
            if not param.ref and (param in code.in_memory or lives_in_memory(param.type)):
                keep_in_memory(inner, param, self.site(closure.function.body))
        with closure.frame.at(mapping):
            for var, key in closure.copies.items():
                inner.vars[var] = closure.frame.read(key)
                if var.ref:
                    held = _Temporary()
                    inner.vars[held], inner.vars[var] = inner.vars[var], VariablePlace(inner, held, var.type)
                elif var in code.in_memory or lives_in_memory(var.type):
                    keep_in_memory(inner, var, self.site(closure.function.body))
        code.run(inner)
        with closure.frame.at(mapping):
            for var, key in closure.copies.items():
                # What it changes of its own, it finds again.
                if not var.ref and var not in inner.objects and inner.vars[var] is not None:
                    closure.frame.write(key, inner.vars[var])
        if inner.objects:
            inner.release()
        return inner.vars.get(RESULT)

    def call_place(self, node: ir.Call) -> Callable[[Frame], Place]:
        """A call that gives a reference."""
        target = node.target
        if target is None or not target.has_body:
            raise Unsupported(f"what '{node.name}' refers to")
        call = self.project_call(node, target, want_place=True)
        type_ = node.type

        def run(f: Frame) -> Place:
            value = call(f)
            if not isinstance(value, (np.ndarray, np.generic)):
                raise Unsupported("a reference to nothing")
            return MemoryPlace(pointed(value), type_)

        return run

    def subscript_call(self, node: ir.Index) -> ir.Call | None:
        """``operator[]`` of a class of the project."""
        type_ = node.base.type
        if not isinstance(type_, Struct):
            return None
        target = self.method(type_, "operator[]", 1)
        if target is None:
            return None
        return ir.Call(node.start, node.end, node.type, "operator[]", [node.index], receiver=node.base, target=target)

    def method(self, type_: Type, name: str, count: int) -> ir.FunctionDecl | None:
        """A method of a class of the project by its name and number of parameters."""
        decl = class_of.get(type_) if isinstance(type_, Struct) else None
        if decl is None:
            return None
        found = [
            f for f in decl.declarations.functions_by_name.get(name, ())
            if f.qualname == f"{decl.qualname}::{name}" and f.has_body and len(f.params) == count
        ]  # fmt: skip
        return found[0] if found else None

    def constructor(self, type_: Struct, args: list[ir.Expr], node: ir.Node) -> Eval | None:
        """A constructor of the project that takes ``args``; None where the class has none of its own."""
        decl = class_of.get(type_)
        if decl is None:
            return None
        name = decl.qualname.rpartition("::")[2]
        candidates = [
            f for f in decl.declarations.functions_by_name.get(name, ())
            if f.qualname == f"{decl.qualname}::{name}" and f.has_body
        ]  # fmt: skip
        if not candidates:
            return None
        fitting: list[tuple[int, int, ir.FunctionDecl, dict[str, Type | int]]] = []
        for candidate in candidates:
            bindings = bindings_of(candidate, [], args, type_)
            found = signature(candidate, bindings or None)
            if found.required <= len(args) <= len(found.params):
                cost = sum(p is not a.type for p, a in zip(found.params, args))
                fitting.append((cost, len(fitting), candidate, bindings))
        if not fitting:
            if not args:
                return None
            raise Unsupported(f"a constructor of '{type_}'")
        _, _, target, bindings = min(fitting)
        function = target.lower(bindings, asked=self.function.asked)
        code = self

        # The object is built in a variable of the caller's frame that nothing else names.
        key = _Temporary()
        blank = self.blank(type_) if has_defaults(type_) else None
        call = code.invoke(
            ir.Call(node.start, node.end, VOID, name, args), function, args,
            lambda f: VariablePlace(f, key, type_), False, type_,
        )  # fmt: skip

        def run(f: Frame) -> Any:
            f.write(key, blank(f) if blank is not None else _empty(type_))
            call(f)
            return f.read(key)

        return run

    def struct_cast(self, node: ir.Cast) -> Eval:
        """A conversion operator of a class, or of half and the like."""
        type_ = node.operand.type
        assert isinstance(type_, Struct)
        target = self.method(type_, f"operator {node.type}", 0)
        if target is None:
            return self.refuse(node, f"a conversion of '{type_}'")
        call = ir.Call(node.start, node.end, node.type, target.name, [], receiver=node.operand, target=target)
        return self.expr(call)


def this_of(f: Frame) -> Place | None:
    """The object whose method runs, or whose method the lambda stands in."""
    frame: Frame | None = f
    while frame is not None and frame.this is None:
        frame = frame.parent if frame.lexical else None
    return None if frame is None else frame.this


class _Temporary:
    """The variable of an object that is being built."""

    name = "a temporary"


def keep_in_memory(f: Frame, param: ir.Var, site: Any) -> None:
    """Move a parameter whose address is taken into memory."""
    size = param.type.size
    if size is None:
        raise Unsupported(f"the size of '{param.type}'")
    obj = f.local(param, size)
    obj.pages[0].known[:] = True
    MemoryPlace((obj.base, np.int64(0), 1), param.type).store(f, f.vars[param], site)


def _empty(type_: Type) -> Any:
    if isinstance(type_, Struct) and type_.fields is not None:
        return {name: _empty(field) for name, field in type_.fields.items()}
    if isinstance(type_, Array) and isinstance(type_.extent, int):
        return [_empty(type_.element) for _ in range(type_.extent)]
    if isinstance(type_, (Int, Float, Ptr)):
        return undefined_value(type_)
    return None
