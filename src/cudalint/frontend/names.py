"""Names and literals, and the way from a tree node to the method that lowers it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from cudalint.frontend.builtins import CONSTANTS, HIP_SPECIALS, SPECIALS
from cudalint.frontend.literals import character, number
from cudalint.frontend.parse import DEPTH
from cudalint.frontend.typing import FUNCTION, INSTANCES, Typer, arguments_of, class_of
from cudalint.ir.nodes import (
    Const,
    Expr,
    Function,
    Name,
    Opaque,
    Ref,
    Special,
    Var,
)
from cudalint.ir.types import (
    BOOL,
    DIM3,
    I8,
    I32,
    U32,
    VOID,
    Array,
    Ptr,
    Struct,
    Type,
    Unknown,
)
from cudalint.lazy import pattern

if TYPE_CHECKING:
    from collections.abc import Callable

    from tree_sitter import Node

    from cudalint.frontend.declare import Declarations, TypeDecl
    from cudalint.ir.nodes import FunctionDecl

_BARRIER = pattern(r"__syncthreads|__syncwarp|\bbar(?:rier)?\.|\bsync\s*\(|barrier|_sync\s*\(")
_STORES = frozenset({"assignment_expression", "update_expression"})  #: The method that lowers each kind of node.
_HANDLERS = {
    "identifier": "identifier", "type_identifier": "identifier", "field_identifier": "identifier",
    "namespace_identifier": "identifier", "qualified_identifier": "qualified_name",
    "number_literal": "number_literal", "char_literal": "char_literal", "string_literal": "string_literal",
    "raw_string_literal": "string_literal", "concatenated_string": "string_literal", "true": "boolean",
    "false": "boolean", "null": "null", "parenthesized_expression": "parenthesized",
    "binary_expression": "binary_expression", "unary_expression": "unary_expression",
    "update_expression": "update_expression", "pointer_expression": "pointer_expression",
    "subscript_expression": "subscript_expression", "field_expression": "field_expression",
    "assignment_expression": "assignment_expression", "conditional_expression": "conditional_expression",
    "cast_expression": "cast_expression", "sizeof_expression": "sizeof_expression",
    "alignof_expression": "alignof_expression",
    "offsetof_expression": "offsetof_expression", "comma_expression": "comma_expression",
    "compound_literal_expression": "compound_literal", "initializer_list": "initializer_list",
    "new_expression": "new_expression", "delete_expression": "delete_expression", "this": "this_expression",
    "template_function": "template_name", "call_expression": "call_expression",
    "lambda_expression": "lambda_expression", "condition_clause": "condition_clause",
    "initializer_pair": "initializer_pair", "dependent_name": "template_name",
    "extension_expression": "extension_expression", "primitive_type": "type_as_value",
    "type_descriptor": "type_descriptor_value",
}  # fmt: skip


class Names(Typer):
    """Lowers names and literals. ``this`` is the class of a method, whose fields are plain variables."""

    def __init__(self, declarations: Declarations, prefix: str) -> None:
        super().__init__(declarations, prefix)
        self.this: Struct | None = None
        self.within: FunctionDecl | None = None
        """The function whose body this is."""
        self.members: dict[str, Var] = {}
        self.globals: dict[str, Var | Const | Type | None] = {}
        self.careful = False
        self.depth = 0
        self.lambdas: dict[Type, Function] = {}
        self.local_classes: list[TypeDecl] = []
        self.doubts: list[Expr | Var | tuple[FunctionDecl, dict[str, Type | int]]] = []
        """What was left without a type: all that the type oracle can be asked about."""

    handlers: dict[str, Callable[[Any, Node], Expr]]

    def __init_subclass__(cls) -> None:
        # One table a class, not a table an object: there is an object a function.
        cls.handlers = {kind: getattr(cls, method) for kind, method in _HANDLERS.items() if hasattr(cls, method)}

    def extension_expression(self, n: Node) -> Expr:
        return self.expr(n.named_children[-1])

    # Given by the call and statement layers.
    def call_expression(self, n: Node) -> Expr:
        raise NotImplementedError  # given by a layer above

    def lambda_expression(self, n: Node) -> Expr:
        raise NotImplementedError  # given by a layer above

    def operator_call(self, a: int, b: int, op: str, args: list[Expr]) -> Expr | None:
        """The project's overload of ``op`` for a class among ``args``."""
        raise NotImplementedError  # given by a layer above

    def expr(self, node: Node) -> Expr:
        """``node`` as IR; Opaque for what cannot be modelled."""
        handler = self.handlers.get(node.type)
        if handler is None:
            return self.opaque(node, f"a {node.type.replace('_', ' ')}")
        if self.careful and node.has_error and broken(node):
            return self.opaque(node, "the text could not be parsed")
        if self.depth >= DEPTH:
            return self.opaque(node, "nested too deeply")
        self.depth += 1
        result = handler(self, node)
        self.depth -= 1
        if type(result.type) is Unknown:
            self.doubts.append(result)
        return result

    def opaque(self, node: Node, why: str, writes: bool = True) -> Opaque:
        reads, written, barrier = self.touched(node)
        return Opaque(
            node.start_byte, node.end_byte, Unknown(why), why, reads, written if not writes else reads, barrier
        )

    def touched(self, node: Node) -> tuple[list[Var], list[Var], bool]:
        """The variables that the text of ``node`` names, those it stores to, and whether it may hold a barrier."""
        reads: dict[Var, None] = {}
        writes: dict[Var, None] = {}
        stack = [(node, False)]
        while stack:
            inner, stored = stack.pop()
            kind = inner.type
            if kind == "identifier" or kind == "type_identifier":
                found = self.names.get(self.text(inner))
                if type(found) is Var:
                    reads[found] = None
                    if stored and kind == "identifier":
                        writes[found] = None
            elif kind in _STORES:
                # Of an assignment it is the target that is stored to.
                all_ = stored or kind[0] != "a"
                stack.extend((child, all_ or number == 0) for number, child in enumerate(inner.children))
            else:
                stack.extend((child, stored) for child in inner.children)
        return list(reads), list(writes), _BARRIER.search(self.text(node)) is not None

    # Names and literals.

    def identifier(self, n: Node) -> Expr:
        a, b = n.start_byte, n.end_byte
        return self.name_at(a, b, self.s[a:b])

    def name_at(self, a: int, b: int, name: str) -> Expr:
        found: Var | Const | Type | None = self.names.get(name)
        if found is None:
            if name in self.globals:
                found = self.globals[name]
            else:
                found = self.globals[name] = self.global_name(name)
        kind = type(found)
        if kind is Var:
            return Ref(a, b, found)  # type: ignore[arg-type]  # a Var
        if kind is Const:
            return Const(a, b, found.type, found.value, name)  # type: ignore[union-attr]  # a Const
        if found is DIM3 and name in SPECIALS:
            return Special(a, b, DIM3, name, "")
        if name == "warpSize" and found is None:
            return Special(a, b, I32, "warpSize", "")
        if name in HIP_SPECIALS and found is None:
            return Special(a, b, U32, *HIP_SPECIALS[name])
        if kind is Unknown:
            return Name(a, b, name, found)  # type: ignore[arg-type]  # an Unknown
        if found is not None:
            return Name(a, b, name, Unknown(f"'{name}' is a type"))
        return Name(a, b, name)

    def global_name(self, name: str) -> Var | Const | Type | None:
        """What a name that no block declares means: a field, a global, a constant of the language."""
        if self.this is not None:
            member = self.member(name)
            if member is not None:
                return member
        decl = self.scope.value(name, self.prefix)
        if decl is not None:
            from cudalint.frontend.lower import global_variable

            # One member of an instance names another: the same instance's.
            owner = decl.declarations.types.get(decl.scope) if decl.in_class and decl.templates else None
            arguments = self.own_arguments(owner) if owner is not None and self.instances < INSTANCES else ()
            if all(x is None for x in arguments):
                return global_variable(decl)
            return global_variable(decl, arguments, self.instances + 1)
        if name in SPECIALS:
            return DIM3
        if self.scope.functions(name, self.prefix):
            return FUNCTION
        last = name.rpartition("::")[2]
        constant = CONSTANTS.get(last)
        if constant is not None:
            return Const(0, 0, constant[0], constant[1], last)
        lent = self.scope.constant(name)
        if lent is not None:
            return Const(0, 0, lent[0], lent[1], name)
        if "::" in name:
            # `x128::size`, where x128 names an instance of a template.
            outer = self.find_type(name.rpartition("::")[0])
            return self.static_member(outer, last) if isinstance(outer, Struct) else None
        return None

    def member(self, name: str) -> Var | None:
        found = self.members.get(name)
        if found is None and self.this is not None and self.this.fields and name in self.this.fields:
            decl = class_of.get(self.this)
            at = decl.start if decl is not None else 0
            found = self.members[name] = Var(
                name, self.this.fields[name], "field", at, at,
                const=name in self.this.fixed, ref=name in self.this.refs,
            )  # fmt: skip
        return found

    def qualified_name(self, n: Node) -> Expr:
        a, b = n.start_byte, n.end_byte
        last = n
        templated = False
        while last.type == "qualified_identifier":
            if last.children[0].type == "template_type":
                templated = True
            last = last.children[-1]
        if not templated and last.type not in ("template_function", "template_type"):
            return self.name_at(a, b, re.sub(r"\s+", "", self.s[a:b]))
        if last.type in ("template_function", "template_type"):
            name = re.sub(r"\s+", " ", self.s[a:b])
            return Name(a, b, name, FUNCTION, self.compared(last) if name.startswith("std::is_same_v<") else None)
        # `A<T>::value`: a static member of an instance.
        outer = self.qualified_outer(n)
        name = self.text(last)
        value = self.static_member(outer, name) if isinstance(outer, Struct) else None
        if value is not None:
            if isinstance(value, Var):
                return Ref(a, b, value)
            return Const(a, b, value.type, value.value, name)
        written = re.sub(r"\s+", " ", self.s[a:b])
        asks = re.fullmatch(r"std::is_same<.*>::value", written) is not None
        types = self.compared(n.children[-1].children[0]) if asks else None
        return Name(a, b, written, Unknown(f"member '{name}' of '{outer}'"), types)

    def compared(self, n: Node) -> list[Type | Expr]:
        """The arguments of ``is_same<A, B>``."""
        return [self.argument(c) for c in n.children[-1].named_children]

    def qualified_outer(self, n: Node) -> Type:
        """The class that a qualified name's last component is looked up in."""
        scopes: list[Node] = []
        while n.type == "qualified_identifier":
            if n.children[0].type != "::":
                scopes.append(n.children[0])
            n = n.children[-1]
        for index, scope in enumerate(scopes):
            if scope.type == "template_type":
                path = "::".join([self.text(s) for s in scopes[:index]] + [self.text(scope.children[0])])
                return self.of_instance(self.template(path, scope.children[-1]), scopes[index + 1 :])
        return self.named("::".join(self.text(s) for s in scopes))

    def static_member(self, outer: Struct, name: str) -> Var | Const | None:
        """The static member ``name`` of a class or of its bases, with the class's template arguments in its
        initialiser."""
        from cudalint.frontend.lower import global_variable

        if self.instances >= INSTANCES:
            return None
        lineage = [outer]
        for class_ in lineage:  # grows on the way
            decl = class_of.get(class_)
            value = decl.declarations.values.get(f"{decl.qualname}::{name}") if decl is not None else None
            if value is not None:
                return global_variable(value, arguments_of.get(class_, ()), self.instances + 1)
            lineage += [base for base in class_.bases if base not in lineage]
        return None

    def number_literal(self, n: Node) -> Expr:
        a, b = n.start_byte, n.end_byte
        text = self.s[a:b]
        type_, value = number(text)
        return Const(a, b, type_, value, text)

    def char_literal(self, n: Node) -> Expr:
        text = self.text(n)
        return Const(n.start_byte, n.end_byte, I8, character(text), text)

    def string_literal(self, n: Node) -> Expr:
        a, b = n.start_byte, n.end_byte
        pieces = [self.text(x) for x in (n.named_children if n.type == "concatenated_string" else (n,))]
        plain = all(x[:1] == '"' for x in pieces)
        body = "".join(x[1:-1] for x in pieces) if plain else self.s[a:b]
        return Const(a, b, Array(I8, None), body, self.s[a:b])

    def boolean(self, n: Node) -> Expr:
        return Const(n.start_byte, n.end_byte, BOOL, n.type == "true", n.type)

    def null(self, n: Node) -> Expr:
        return Const(n.start_byte, n.end_byte, Ptr(VOID), 0, self.text(n))

    def this_expression(self, n: Node) -> Expr:
        type_: Type = Ptr(self.this) if self.this is not None else Unknown("this outside of a class")
        return Name(n.start_byte, n.end_byte, "this", type_)

    def template_name(self, n: Node) -> Expr:
        targs = [self.argument(c) for c in n.children[-1].named_children]
        return Name(n.start_byte, n.end_byte, self.text(n.children[0]), FUNCTION, targs)

    def type_as_value(self, n: Node) -> Expr:
        return Name(n.start_byte, n.end_byte, self.text(n), Unknown(f"'{self.text(n)}' is a type"))

    def type_descriptor_value(self, n: Node) -> Expr:
        """A value that was read as a type, as in ``f<A::n>``."""
        if n.child_count == 1 and n.children[0].type in ("type_identifier", "qualified_identifier"):
            return self.expr(n.children[0])
        return self.opaque(n, "a type where a value is expected")

    def parenthesized(self, n: Node) -> Expr:
        children = n.children
        return self.expr(children[1]) if len(children) == 3 else self.opaque(n, "an unusual parenthesis")

    def condition_clause(self, n: Node) -> Expr:
        return self.expr(n.named_children[-1])


_LISTS = frozenset({"argument_list", "kernel_call_syntax", "subscript_argument_list"})


def broken(node: Node) -> bool:
    """Whether an error is directly in ``node`` or in its arguments; a missing semicolon hides nothing."""
    return any(
        child.is_error
        or (child.is_missing and child.type != ";")
        or (child.type in _LISTS and child.has_error and broken(child))
        for child in node.children
    )
