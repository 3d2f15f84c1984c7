"""Calls: what is called, with which template arguments, and what it gives."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cudalint.frontend.builtins import FLOAT_LIMITS, RETURNS, method_type
from cudalint.frontend.declare import (
    Syntax,
    parameter_list,
    parameter_nodes,
    qualified_text,
    split,
    syntax_of,
    template_names,
)  # fmt: skip
from cudalint.frontend.expressions import Expressions
from cudalint.frontend.fold import fold
from cudalint.frontend.typing import AUTO, arguments_of, class_of, decay, fits
from cudalint.ir.nodes import Call, Cast, Const, Construct, Expr, Ref, Var
from cudalint.ir.types import (
    BOOL,
    F64,
    I32,
    VOID,
    Array,
    Float,
    Int,
    Param,
    Ptr,
    Struct,
    Type,
    Unknown,
    promote,
)  # fmt: skip
from cudalint.lazy import pattern

if TYPE_CHECKING:
    from tree_sitter import Node

    from cudalint.ir.nodes import FunctionDecl

_NAMED_CASTS = {
    "static_cast": "static",
    "reinterpret_cast": "reinterpret",
    "const_cast": "const",
    "dynamic_cast": "dynamic",
}
_ERROR_CODE = pattern(r"(?:cuda|hip|cublas|cudnn|cufft|curand|cusparse|cusolver|nccl|nvrtc|cu|nvml)[A-Z]\w*")
_GROUPS = {
    "tiled_partition": "cooperative_groups::thread_block_tile",
    "labeled_partition": "cooperative_groups::coalesced_group",
    "binary_partition": "cooperative_groups::coalesced_group",
}  # fmt: skip


class Signature:
    """The types of a function's parameters and result, under template bindings."""

    __slots__ = ("params", "refs", "required", "returns", "variadic")

    def __init__(self, params: list[Type], refs: list[bool], required: int, variadic: bool, returns: Type) -> None:
        self.params, self.refs, self.required, self.variadic, self.returns = params, refs, required, variadic, returns


_FOR_EVERY_NUMBER = frozenset({"min", "max", "abs", "fabs", "pow", "sqrt", "exp", "log", "floor", "ceil", "round"})
_MOST_RETURNING = 8
_returning: list[Syntax] = []
"""Functions whose return types are being worked out, each for the one before."""


def signature(decl: FunctionDecl, bindings: dict[str, Type | int] | None = None) -> Signature:
    """The signature of ``decl``; parameters of the template that ``bindings`` lacks stay open."""
    syntax = syntax_of(decl)
    key = tuple(sorted((bindings or {}).items(), key=lambda item: item[0]))
    found = syntax.signatures.get(key)
    if found is None:
        from cudalint.frontend.lower import Lowerer

        lowerer = Lowerer(decl.file.declarations, syntax.scope)
        lowerer.bind_templates(syntax.templates, bindings)
        found = syntax.signatures[key] = _signature(lowerer, syntax)
        # `-> decltype(f(x))` may call the function itself, whose parameters are known by now, and
        # `decltype(f<N - 1>(x))` another instance, as often as it likes.
        if _returning.count(syntax) < _MOST_RETURNING:
            _returning.append(syntax)
            try:
                found.returns = returned(lowerer, syntax)
            finally:
                _returning.pop()
    assert isinstance(found, Signature)
    return found


def _signature(lowerer: Expressions, syntax: Syntax) -> Signature:
    """The parameters; what is returned is not known yet."""
    params: list[Type] = []
    refs: list[bool] = []
    required = 0
    list_ = parameter_list(syntax.inner)
    variadic = list_ is not None and "..." in (c.type for c in list_.children)
    for node in parameter_nodes(lowerer.s, list_):
        type_, _, declarators = lowerer.specified(node.children)
        ref = False
        if declarators:
            _, type_, ref = lowerer.declare(type_, declarators[0])
        params.append(type_ if ref else decay(type_))
        refs.append(ref)
        if node.type == "parameter_declaration":
            required = len(params)
        elif node.type == "variadic_parameter_declaration":
            variadic = True
            params.pop()
            refs.pop()
    return Signature(params, refs, required, variadic, Unknown("a function whose type is being worked out"))


def read_only(decl: FunctionDecl) -> list[bool]:
    """Which parameters of a function are pointers to const, through which it reads and does not write."""
    syntax = syntax_of(decl)
    source = decl.file.declarations.source
    found = []
    for node in parameter_nodes(source, parameter_list(syntax.inner)):
        target, pointer, _ = source[node.start_byte : node.end_byte].partition("*")
        found.append(bool(pointer) and "const" in target.split() and target.count("<") == target.count(">"))
    return found


def returned(lowerer: Expressions, syntax: Syntax) -> Type:
    """The declared return type; ``AUTO`` where it is to be deduced."""
    inner, outer = syntax.inner, syntax.declarator
    if inner.type == "function_declarator":
        for child in inner.children:
            if child.type == "trailing_return_type":
                return lowerer.type_of(child.named_children[-1])
    type_node, _ = split(syntax.node.children)
    if type_node is None or type_node.id == inner.id:
        return VOID
    type_ = lowerer.type_of(type_node)
    while outer is not None and outer.id != inner.id:
        if outer.type == "pointer_declarator":
            type_ = Ptr(type_)
        outer = next((c for c in outer.children if c.type.endswith("declarator")), None)
    return type_


def deduce(param: Type, arg: Type, into: dict[str, Type | int]) -> None:
    """Bind the open template parameters in ``param`` so that it matches ``arg``."""
    if isinstance(param, Param):
        if not isinstance(arg, (Unknown, Param)):
            into.setdefault(param.name, decay(arg))
    elif isinstance(param, (Ptr, Array)) and isinstance(arg, (Ptr, Array)):
        deduce(param.element, arg.element, into)
        if (
            isinstance(param, Array)
            and isinstance(arg, Array)
            and isinstance(arg.extent, int)
            and isinstance(param.extent, Ref)
        ):
            into.setdefault(param.extent.var.name, arg.extent)
    elif isinstance(param, Struct) and isinstance(arg, Struct) and param is not arg:
        wanted, given = arguments_of.get(param), arguments_of.get(arg)
        if wanted and given and param.name.partition("<")[0] == arg.name.partition("<")[0]:
            for a, b in zip(wanted, given, strict=False):
                if isinstance(a, Type) and isinstance(b, Type):
                    deduce(a, b, into)


def bindings_of(
    decl: FunctionDecl, targs: list[Type | Expr], args: list[Expr], class_: Type | None = None
) -> dict[str, Type | int]:  # fmt: skip
    """Template bindings of a call or launch of ``decl``: explicit arguments, then deduced ones, then defaults.

    ``class_`` is the type of the object a method is called on: the parameters of its class template
    are bound as well.
    """
    result: dict[str, Type | int] = {}
    owner = class_of.get(class_) if isinstance(class_, Struct) else None
    if owner is not None and owner.templates and isinstance(class_, Struct):
        names = template_names(owner.declarations.source, owner.templates[-1])
        for (name, _), argument in zip(names, arguments_of.get(class_, ()), strict=False):
            if name and argument is not None and not isinstance(argument, (Param, Unknown)):
                result[name] = argument
    if not decl.template:
        return result
    of_class, result = result, {}
    for (name, _), targ in zip(decl.template, targs, strict=False):
        value = targ if isinstance(targ, Type) else fold(targ)
        if value is not None and not isinstance(value, (Param, Unknown)):
            result[name] = value
    if len(result) < len(decl.template):
        for param, arg in zip(signature(decl, (of_class | result) or None).params, args, strict=False):
            deduce(param, arg.type, result)
    if len(result) < len(decl.template):
        bind_defaults(decl, result)
    return of_class | result


def bind_defaults(decl: FunctionDecl, into: dict[str, Type | int], given: int = 0) -> None:
    """Adds the defaults of template parameters that are not bound; the first ``given`` have an argument."""
    from cudalint.frontend.lower import Lowerer

    syntax = syntax_of(decl)
    nodes = [c for c in syntax.templates[-1].named_children if c.type.endswith("parameter_declaration")]
    own = [
        (name, kind, node)
        for (name, kind), node in list(zip(decl.template, nodes, strict=False))[given:]
        if name and name not in into and node.type.startswith("optional")
    ]
    if not own:
        return
    lowerer = Lowerer(decl.file.declarations, syntax.scope)
    lowerer.bind_templates(syntax.templates, into)
    for name, kind, node in own:
        default = lowerer.default_argument(node, kind)
        if default is not None and not isinstance(default, (Param, Unknown)):
            into[name] = default


def _cost(param: Type, arg: Type) -> float | None:
    """How far an argument is from a parameter; None when it cannot be passed."""
    if param is arg:
        return 0
    if isinstance(param, (Unknown, Param)) or isinstance(arg, (Unknown, Param)):
        return 1.5
    if isinstance(param, Ptr):
        if not isinstance(arg, (Ptr, Array)):
            return 3 if isinstance(arg, Int) else None
        if param.element is VOID or arg.element is VOID:
            return 2
        return _cost(param.element, arg.element) if param.element is not arg.element else 0
    if isinstance(param, (Int, Float)):
        if isinstance(arg, (Ptr, Array)):
            return 5 if param is BOOL else None
        if isinstance(arg, (Int, Float)):
            return 1 if promote(arg) is param or (param is F64 and isinstance(arg, Float)) else 2
        return 4
    if isinstance(param, Struct):
        if isinstance(arg, Struct):
            return 1.5 if param.name.partition("<")[0] == arg.name.partition("<")[0] else 6
        return 4
    return 3


class Calls(Expressions):
    """Adds calls to :class:`~cudalint.frontend.expressions.Expressions`."""

    # Given by the launch layer.
    def kernel_call(self, n: Node, function: Node, config: Node, arguments: Node) -> Expr:
        """``k<<<config>>>(arguments)``."""
        raise NotImplementedError  # given by the layer of launches

    def launch_call(self, n: Node, name: str, arguments: Node) -> Expr | None:
        """A launch by a function of the runtime called ``name``; None when it is no such call."""
        raise NotImplementedError  # given by the layer of launches

    def choose(self, candidates: list[FunctionDecl], args: list[Expr], targs: list[Type | Expr]) -> FunctionDecl | None:
        """The overload that a call means, or None when none fits."""
        best: FunctionDecl | None = None
        least: float | None = None
        for decl in candidates:
            if targs and not decl.template and not self.specialises(decl, targs):
                continue
            sig = signature(decl)
            if len(args) < sig.required or (len(args) > len(sig.params) and not sig.variadic):
                continue
            total = 0.1 if decl.template else 0.0
            for param, arg in zip(sig.params, args, strict=False):
                cost = _cost(param, arg.type)
                if cost is None:
                    break
                # A pointer to something else is no match; a null constant is one to any.
                total += cost
            else:
                if least is None or total < least:
                    best, least = decl, total
        if best is None and len(candidates) == 1 and not takes(signature(candidates[0]), len(args)):
            return None
        return best

    def specialises(self, decl: FunctionDecl, targs: list[Type | Expr]) -> bool:
        """Whether a function is the ``template <>`` that is written for these arguments."""
        syntax = syntax_of(decl)
        name = syntax.inner.children[0] if syntax.own_template else syntax.inner
        while name.type == "qualified_identifier":
            name = name.children[-1]
        if name.type != "template_function":
            return False
        typer = self.nested(decl.file.declarations, syntax.scope)
        patterns = [typer.argument(node) for node in name.children[-1].named_children]
        given = [x if isinstance(x, Type) else fold(x) for x in targs]
        return len(patterns) == len(given) and all(fits(x, y, {}) for x, y in zip(patterns, given, strict=True))

    def operator_call(self, a: int, b: int, op: str, args: list[Expr]) -> Expr | None:
        name = f"operator{op}"
        first = args[0].type
        if isinstance(first, Struct):
            methods = self.methods(first, name)
            target = self.choose(methods, args[1:], [])
            if target is not None:
                return Call(
                    a, b, self.returns(target, args[1:], [], first), name, args[1:], receiver=args[0], target=target
                )
        candidates = self.scope.functions(name, self.prefix)
        if not candidates:
            return None
        target = self.choose(candidates, args, [])
        if target is None:
            return None
        return Call(a, b, self.returns(target, args, []), name, args, target=target)

    def methods(self, class_: Struct, name: str) -> list[FunctionDecl]:
        """The methods ``name`` of a class or, where it has none, of its bases; definitions first."""
        decl = class_of.get(class_)
        seen = 0
        while decl is not None and seen < 8:
            seen += 1
            qualname = f"{decl.qualname}::{name}"
            found = [
                f for d in (decl.declarations, *self.scope.closure) for f in d.functions_by_name.get(name, ())
                if f.qualname == qualname
            ]  # fmt: skip
            if found:
                return sorted(dict.fromkeys(found), key=lambda f: not f.has_body)
            base = next((c for c in decl.node.children if c.type == "base_class_clause"), None)
            names = (
                [
                    c
                    for c in base.named_children
                    if c.type in ("type_identifier", "qualified_identifier", "template_type")
                ]
                if base
                else []
            )
            source = decl.declarations.source
            if not names:
                break
            text = re.sub(r"<.*|\s+", "", source[names[0].start_byte : names[0].end_byte])
            decl = decl.declarations.scope.type(text, decl.scope)
        return []

    def method_returns(self, class_: Struct, name: str) -> Type | None:
        found = self.methods(class_, name)
        return self.returns(found[0], [], [], class_) if found else None

    def returns(
        self, decl: FunctionDecl, args: list[Expr], targs: list[Type | Expr], class_: Struct | None = None
    ) -> Type:  # fmt: skip
        """The type of a call of ``decl``."""
        bindings = bindings_of(decl, targs, args, class_)
        result = signature(decl, bindings or None).returns
        if result is AUTO:
            return self.deduced(decl, bindings)
        return result

    def deduced(self, decl: FunctionDecl, bindings: dict[str, Type | int]) -> Type:
        """The type that a function declared ``auto`` returns."""
        syntax = syntax_of(decl)
        if ("auto",) in syntax.signatures or not decl.has_body:
            return AUTO
        syntax.signatures["auto",] = None
        try:
            result = decl.lower(bindings).returns
        finally:
            del syntax.signatures["auto",]
        if type(result) is Unknown:
            self.doubts.append((decl, bindings))
        return result

    def arguments(self, node: Node) -> list[Expr]:
        return [self.expr(child) for child in node.named_children]

    def call_expression(self, n: Node) -> Expr:
        children = n.children
        function, arguments = children[0], children[-1]
        if len(children) == 3 and children[1].type == "kernel_call_syntax":
            return self.kernel_call(n, function, children[1], arguments)
        if len(children) != 2 or arguments.type not in ("argument_list", "initializer_list"):
            return self.opaque(n, "an unusual call")
        kind = function.type
        if kind == "identifier":
            name = self.text(function)
            launch = self.launch_call(n, name, arguments)
            if launch is not None:
                return launch
            return self.named_call(n, function, name, [], arguments)
        if kind == "field_expression":
            return self.method_call(n, function, arguments)
        if kind == "template_function":
            name_node = function.children[0]
            name = self.text(name_node)
            list_ = function.children[-1]
            if name in _NAMED_CASTS:
                return self.named_cast(n, name, list_, arguments)
            if self.is_comparison(n):
                return self.rebuilt(n)
            return self.named_call(n, function, name, [self.argument(c) for c in list_.named_children], arguments)
        if kind == "qualified_identifier":
            return self.qualified_call(n, function, arguments)
        if kind == "primitive_type" or kind == "sized_type_specifier" or kind == "decltype":
            return self.construct(n, self.type_of(function), arguments)
        if kind == "parenthesized_expression":
            inner = function.children[1]
            if inner.type == "identifier" and self.is_type(inner):
                return Cast(
                    n.start_byte, n.end_byte, self.named(self.text(inner)), self.arguments_as_value(arguments), "c"
                )
            if inner.type == "qualified_identifier":
                type_ = self.qualified(inner)
                if not isinstance(type_, Unknown):
                    return Cast(n.start_byte, n.end_byte, type_, self.arguments_as_value(arguments), "c")
            if inner.type in ("template_function", "identifier"):
                function = inner
                if inner.type == "identifier":
                    return self.named_call(n, inner, self.text(inner), [], arguments)
        callee = self.expr(function)
        return self.value_call(n, callee, self.arguments(arguments))

    def value_call(self, n: Node, callee: Expr, args: list[Expr]) -> Expr:
        """A call through a value: a lambda, a functor, a function pointer."""
        a, b = n.start_byte, n.end_byte
        type_ = callee.type
        if isinstance(type_, Struct):
            function = self.lambdas.get(type_)
            if function is not None:
                return Call(a, b, function.returns, "", args, callee=callee)
            methods = self.methods(type_, "operator()")
            if methods:
                target = self.choose(methods, args, [])
                returns = (
                    self.returns(target, args, [], type_) if target is not None else Unknown("an overloaded operator()")
                )
                return Call(a, b, returns, "operator()", args, receiver=callee, target=target)
        why = (
            f"a call of a value of type '{type_}'" if isinstance(type_, (Param, Struct)) else "a call through a pointer"
        )
        return Call(a, b, Unknown(why), "", args, callee=callee)

    def named_call(self, n: Node, function: Node, name: str, targs: list[Type | Expr], arguments: Node) -> Expr:
        a, b = n.start_byte, n.end_byte
        local = self.names.get(name)
        if local is not None:
            if isinstance(local, Type):
                return self.construct(n, local, arguments)
            if isinstance(local, Var):
                return self.value_call(n, Ref(function.start_byte, function.end_byte, local), self.arguments(arguments))
        if self.this is not None:
            methods = self.methods(self.this, name)
            if methods:
                args = self.arguments(arguments)
                target = self.choose(methods, args, targs)
                if target is not None:
                    return Call(
                        a, b, self.returns(target, args, targs, self.this), name, args, targs=targs, target=target
                    )
            member = self.member(name)
            if member is not None:
                return self.value_call(
                    n, Ref(function.start_byte, function.end_byte, member), self.arguments(arguments)
                )
        candidates = self.scope.functions(name, self.prefix)
        if not candidates:
            type_ = self.find_type(name) if function.type == "identifier" else None
            if type_ is None and function.type == "template_function":
                found = self.template(name, function.children[-1])
                type_ = None if isinstance(found, Unknown) else found
            if type_ is not None:
                return self.construct(n, type_, arguments)
            decl = self.scope.value(name, self.prefix)
            if decl is not None:
                value = self.name_at(function.start_byte, function.end_byte, name)
                return self.value_call(n, value, self.arguments(arguments))
        return self.resolved(a, b, name, self.arguments(arguments), targs, candidates)

    def resolved(
        self, a: int, b: int, name: str, args: list[Expr], targs: list[Type | Expr], candidates: list[FunctionDecl]
    ) -> Expr:  # fmt: skip
        """A call of one of ``candidates`` or of what CUDA and the standard library declare."""
        target = self.choose(candidates, args, targs) if candidates else None
        if target is not None:
            # CUDA declares these for every number, beside whatever the project adds; the rest of the library
            # hides in std.
            builtin = name in RETURNS and (name in _FOR_EVERY_NUMBER or name.startswith(("__", "atomic")))
            if not builtin or self.exact(target, args):
                return Call(a, b, self.returns(target, args, targs), name, args, targs=targs, target=target)
        type_ = self.declared_elsewhere(name, args, targs)
        if type_ is None:
            type_ = Unknown(
                f"'{name}' is not declared in the project" if not candidates else f"no overload of '{name}' fits"
            )
        return Call(a, b, type_, name, args, targs=targs)

    def exact(self, decl: FunctionDecl, args: list[Expr]) -> bool:
        """Whether a project's overload of a built-in is nearer to the arguments than the built-in's own: it takes the
        first one as it is (the pointer of an atomic, a mask), and makes no object of a number."""
        return all(
            isinstance(param, Param) or decay(arg.type) is param or isinstance(arg.type, (Unknown, Param))
            for number, (param, arg) in enumerate(zip(signature(decl).params, args, strict=False))
            if number == 0 or isinstance(param, Struct)
        )

    def known(self, name: str) -> bool:
        """Whether CUDA or the standard library has a function of this name that we know."""
        full = self.scope.expand(name)
        last = full.rpartition("::")[2]
        return full in RETURNS or last in RETURNS or last in _GROUPS

    def declared_elsewhere(self, name: str, args: list[Expr], targs: list[Type | Expr]) -> Type | None:
        """The type of a call of a function that CUDA or the standard library declares."""
        full = self.scope.expand(name)
        last = full.rpartition("::")[2]
        if last in _GROUPS:
            group = _GROUPS[last]
            size = fold(targs[0]) if targs and isinstance(targs[0], Expr) else None
            if last == "tiled_partition" and size is None and not targs:
                return Struct("cooperative_groups::thread_group")
            result = Struct(f"{group}<{size}>" if size is not None else group)
            if size is not None:
                arguments_of[result] = (size,)
            return result
        rule = RETURNS.get(full) if "::" in full else None
        if rule is None:
            rule = RETURNS.get(last)
        if rule is not None:
            if isinstance(rule, Type):
                return rule
            return rule(args, targs) if args or targs else Unknown(f"'{name}' without arguments")
        if _ERROR_CODE.fullmatch(last):
            return I32
        return None

    def qualified_call(self, n: Node, function: Node, arguments: Node) -> Expr:
        a, b = n.start_byte, n.end_byte
        last = function
        templated = False
        while last.type == "qualified_identifier":
            templated = templated or last.children[0].type == "template_type"
            last = last.children[-1]
        targs: list[Type | Expr] = []
        if last.type == "dependent_name":
            last = last.children[-1]
        if last.type in ("template_function", "template_type", "template_method"):
            targs = [self.argument(c) for c in last.children[-1].named_children]
        name = qualified_text(self.s, function)
        short = name.rpartition("::")[2]
        if short in _NAMED_CASTS and name.startswith("std::"):
            return self.named_cast(n, short, last.children[-1], arguments)
        if "numeric_limits" in name:
            limit = self.limit(n, function, short)
            if limit is not None:
                return limit
        if templated:
            outer = self.qualified_outer(function)
        else:
            head = name.rpartition("::")[0]
            outer = self.find_type(head) or VOID if head else VOID
        if isinstance(outer, Struct) and class_of.get(outer) is not None:
            args = self.arguments(arguments)
            methods = self.methods(outer, short)
            target = self.choose(methods, args, targs)
            if target is not None:
                return Call(a, b, self.returns(target, args, targs, outer), name, args, targs=targs, target=target)
        candidates = self.scope.functions(name, self.prefix)
        if not candidates and not self.known(name):
            type_ = self.qualified(function)
            if not isinstance(type_, Unknown):
                return self.construct(n, type_, arguments)
        return self.resolved(a, b, name, self.arguments(arguments), targs, candidates)

    def limit(self, n: Node, function: Node, which: str) -> Expr | None:
        """``std::numeric_limits<T>::max()``."""
        outer = self.qualified_outer(function)
        given = arguments_of.get(outer) if isinstance(outer, Struct) else None
        type_ = given[0] if given else None
        if not isinstance(type_, Type):
            return None
        a, b = n.start_byte, n.end_byte
        text = self.s[a:b]
        if isinstance(type_, Int) and which in ("max", "min", "lowest"):
            return Const(a, b, type_, type_.hi if which == "max" else type_.lo, text)
        if isinstance(type_, Float):
            top, tiny, epsilon = FLOAT_LIMITS[type_.bits]
            value = {
                "max": top,
                "min": tiny,
                "lowest": -top,
                "epsilon": epsilon,
                "infinity": float("inf"),
                "quiet_NaN": float("nan"),
            }.get(which)
            if value is not None:
                return Const(a, b, type_, value, text)
        return Call(a, b, type_, "std::numeric_limits::" + which, [], targs=[type_])

    def method_call(self, n: Node, function: Node, arguments: Node) -> Expr:
        children = function.children
        a, b = n.start_byte, n.end_byte
        if len(children) != 3:
            return self.opaque(n, "an unusual method call")
        object_, op, field = children
        targs: list[Type | Expr] = []
        if field.type == "dependent_name":
            field = field.children[-1]
        if field.type in ("template_method", "template_function"):
            targs = [self.argument(c) for c in field.children[-1].named_children]
            field = field.children[0]
        name = self.text(field)
        if object_.type == "this" and self.this is not None:
            methods = self.methods(self.this, name)
            args = self.arguments(arguments)
            target = self.choose(methods, args, targs)
            if target is not None:
                return Call(a, b, self.returns(target, args, targs, self.this), name, args, targs=targs, target=target)
            member = self.member(name)
            if member is not None:
                return self.value_call(n, Ref(object_.start_byte, field.end_byte, member), args)
        receiver = self.expr(object_)
        if op.type == "->":
            receiver = self.arrow(receiver)
        args = self.arguments(arguments)
        class_ = receiver.type
        if not isinstance(class_, Struct):
            why = class_ if isinstance(class_, Unknown) else Unknown(f"method '{name}' of '{class_}'")
            return Call(a, b, why, name, args, receiver=receiver, targs=targs)
        methods = self.methods(class_, name)
        if methods:
            target = self.choose(methods, args, targs)
            if target is not None:
                return Call(
                    a,
                    b,
                    self.returns(target, args, targs, class_),
                    name,
                    args,
                    receiver=receiver,
                    targs=targs,
                    target=target,
                )
        if class_.fields and name in class_.fields:
            return self.value_call(n, self.field(function.start_byte, function.end_byte, receiver, name), args)
        first = (arguments_of.get(class_) or (None,))[0]
        type_ = method_type(class_.name, name, first, args, targs)
        if type_ is None:
            type_ = Unknown(f"method '{name}' of '{class_}'")
        return Call(a, b, type_, name, args, receiver=receiver, targs=targs)

    def named_cast(self, n: Node, name: str, targs: Node, arguments: Node) -> Expr:
        values = self.arguments(arguments)
        named = targs.named_children
        if len(values) != 1 or len(named) != 1:
            return self.opaque(n, "an unusual cast")
        return Cast(n.start_byte, n.end_byte, self.type_of(named[0]), values[0], _NAMED_CASTS[name])

    def construct(self, n: Node, type_: Type, arguments: Node) -> Expr:
        """``T(x)`` and ``T{x}``."""
        a, b = n.start_byte, n.end_byte
        if arguments.type == "initializer_list":
            args = [self.initialiser(c, Unknown("a braced list")) for c in arguments.named_children]
        else:
            args = self.arguments(arguments)
        if isinstance(type_, Struct) or len(args) > 1:
            return Construct(a, b, type_, args)
        if not args:
            return (
                Const(a, b, type_, 0, self.s[a:b])
                if isinstance(type_, (Int, Float, Ptr))
                else Construct(a, b, type_, [])
            )
        return Cast(a, b, type_, args[0], "functional")


def takes(sig: Signature, count: int) -> bool:
    """Whether a call with ``count`` arguments fits."""
    return sig.required <= count and (count <= len(sig.params) or sig.variadic)
