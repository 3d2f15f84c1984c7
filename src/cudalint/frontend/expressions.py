"""The other expressions: assignments, conditionals, casts, braces, sizeof, new."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudalint.frontend.fold import fold
from cudalint.frontend.typing import alignment, decay
from cudalint.ir.nodes import (
    Assign,
    Call,
    Cast,
    Comma,
    Cond,
    Const,
    Construct,
    Expr,
    Opaque,
    SizeOf,
)
from cudalint.ir.types import (
    U64,
    VOID,
    Array,
    Float,
    Int,
    Param,
    Ptr,
    Struct,
    Type,
    Unknown,
    common,
    promote,
)

if TYPE_CHECKING:
    from tree_sitter import Node

from cudalint.frontend.operators import WORDS, Operators


class Expressions(Operators):
    """All expressions but calls and lambdas."""

    def assignment_expression(self, n: Node) -> Expr:
        children = n.children
        if len(children) != 3:
            return self.opaque(n, "an unusual assignment")
        if self.is_at_least(n):
            return self.rebuilt(n)
        target_node, op_node, value_node = children
        op = op_node.type
        op = WORDS.get(op, op)[:-1]
        target = self.expr(target_node)
        value = self.initialiser(value_node, target.type)
        return self.assign(n.start_byte, n.end_byte, op, target, value)

    def assign(self, a: int, b: int, op: str, target: Expr, value: Expr) -> Expr:
        type_ = target.type
        if not op:
            return Assign(a, b, type_, op, target, value, type_)
        if op == "<<" or op == ">>":
            optype = promote(type_)
        elif isinstance(type_, (Ptr, Array)):
            optype = decay(type_)
        elif isinstance(type_, Struct):
            optype = type_
        else:
            optype = common(type_, value.type)
        return Assign(a, b, type_, op, target, value, optype)

    def initialiser(self, node: Node, type_: Type) -> Expr:
        """A value for something of type ``type_``: a braced list takes that type."""
        if node.type == "initializer_list":
            return self.braced(node, type_)
        return self.expr(node)

    def braced(self, node: Node, type_: Type) -> Expr:
        """``{...}`` as a value of ``type_``; of a scalar, the value in it."""
        a, b = node.start_byte, node.end_byte
        nodes = [child for child in node.named_children if child.type != "comment"]
        if isinstance(type_, (Int, Float, Ptr, Param)) and len(nodes) == 1 and nodes[0].type != "initializer_pair":
            return self.initialiser(nodes[0], type_)
        if isinstance(type_, (Int, Float)) and not nodes:
            return Const(a, b, type_, 0, "{}")
        if isinstance(type_, Ptr) and not nodes:
            return Const(a, b, type_, 0, "{}")
        args: list[Expr] = []
        names = list(type_.fields) if isinstance(type_, Struct) and type_.fields else []
        for child in nodes:
            if child.type == "initializer_pair":
                designator = child.children[0].named_children
                name = self.text(designator[-1]) if designator else ""
                field = type_.fields.get(name) if isinstance(type_, Struct) and type_.fields else None
                if name in names:
                    # Fields that are skipped are zero.
                    while len(args) < names.index(name):
                        missing = names[len(args)]
                        assert isinstance(type_, Struct)
                        assert type_.fields is not None
                        args.append(Construct(a, a, type_.fields[missing], []))
                args.append(self.initialiser(child.children[-1], field or Unknown("an initialiser")))
            elif isinstance(type_, Array):
                args.append(self.initialiser(child, type_.element))
            elif len(args) < len(names) and isinstance(type_, Struct) and type_.fields:
                args.append(self.initialiser(child, type_.fields[names[len(args)]]))
            else:
                args.append(self.initialiser(child, Unknown("a braced list")))
        return Construct(a, b, type_, args)

    def initializer_list(self, n: Node) -> Expr:
        return self.braced(n, Unknown("a braced list"))

    def initializer_pair(self, n: Node) -> Expr:
        return self.expr(n.children[-1])

    def conditional_expression(self, n: Node) -> Expr:
        a, b = n.start_byte, n.end_byte
        children = n.children
        if len(children) == 4:
            cond = self.expr(children[0])
            other = self.expr(children[3])
            return Cond(a, b, self.either(cond, other), cond, cond, other)
        if len(children) != 5:
            return self.opaque(n, "an unusual conditional")
        cond = self.expr(children[0])
        then = self.expr(children[2])
        other = self.expr(children[4])
        return Cond(a, b, self.either(then, other), cond, then, other)

    def either(self, then: Expr, other: Expr) -> Type:
        """The type of ``c ? then : other``."""
        a, b = decay(then.type), decay(other.type)
        if a is b:
            return a
        if isinstance(a, Ptr) or isinstance(b, Ptr):
            pointer, value = (a, other) if isinstance(a, Ptr) else (b, then)
            assert isinstance(pointer, Ptr)
            if isinstance(value.type, Ptr) and pointer.element is VOID:
                return value.type
            return pointer
        if isinstance(a, Struct):
            return a
        if isinstance(b, Struct):
            return b
        if a is VOID or b is VOID:
            return VOID
        return common(a, b)

    def cast_expression(self, n: Node) -> Expr:
        type_node = value = None
        for child in n.children:
            if child.type == "type_descriptor":
                type_node = child
            elif child.is_named:
                value = child
        if type_node is None or value is None:
            return self.opaque(n, "an unusual cast")
        if self.is_operation(n):
            return self.rebuilt(n)
        type_ = self.type_of(type_node)
        if value.type == "initializer_list":
            return self.braced(value, type_)
        return Cast(n.start_byte, n.end_byte, type_, self.expr(value), "c")

    def sizeof_expression(self, n: Node) -> Expr:
        a, b = n.start_byte, n.end_byte
        named = n.named_children
        if not named:
            return self.opaque(n, "an unusual sizeof")
        if "..." in (c.type for c in n.children):
            return Opaque(a, b, U64, "the size of a parameter pack", [], [], False)
        return SizeOf(a, b, U64, self.sizeof_type(named[-1]))

    def sizeof_type(self, node: Node) -> Type:
        kind = node.type
        if kind == "type_descriptor":
            return self.type_of(node) if not self.names_value(node) else self.expr(node.children[0]).type
        inner = node
        while inner.type == "parenthesized_expression" and inner.child_count == 3:
            inner = inner.children[1]
        if inner.type == "identifier" and self.is_type(inner):
            return self.named(self.text(inner))
        if (
            inner.type == "subscript_expression"
            and inner.children[0].type == "identifier"
            and self.is_type(inner.children[0])
        ):
            extent = fold(self.expr(inner.children[-1].named_children[0]))
            return Array(self.named(self.text(inner.children[0])), extent)
        if inner.type == "qualified_identifier" or inner.type == "template_function":
            found = self.type_of(inner)
            if not isinstance(found, Unknown):
                return found
        return self.expr(inner).type

    def alignof_expression(self, n: Node) -> Expr:
        a, b = n.start_byte, n.end_byte
        named = n.named_children
        type_ = self.type_of(named[-1]) if named and named[-1].type == "type_descriptor" else Unknown("alignof")
        if type_.size is None:
            return Opaque(a, b, U64, "an alignment", [], [], False)
        return Const(a, b, U64, alignment(type_), self.s[a:b])

    def offsetof_expression(self, n: Node) -> Expr:
        return Opaque(n.start_byte, n.end_byte, U64, "an offset in a class", [], [], False)

    def comma_expression(self, n: Node) -> Expr:
        children = n.children
        if len(children) != 3:
            return self.opaque(n, "an unusual comma")
        left = self.expr(children[0])
        right = self.expr(children[2])
        return Comma(n.start_byte, n.end_byte, right.type, left, right)

    def compound_literal(self, n: Node) -> Expr:
        children = [c for c in n.children if c.is_named]
        type_ = self.type_of(children[0])
        value = self.braced(children[-1], type_)
        a, b = n.start_byte, n.end_byte
        if isinstance(value, Construct) and value.type is type_:
            value.start, value.end = a, b
            return value
        return Cast(a, b, type_, value, "functional")

    def new_expression(self, n: Node) -> Expr:
        type_node = n.child_by_field_name("type")
        if type_node is None:
            return self.opaque(n, "an unusual new")
        type_ = self.type_of(type_node)
        args: list[Expr] = []
        declarator = n.child_by_field_name("declarator")
        if declarator is not None:
            args = [self.expr(c) for c in declarator.named_children if c.type != "new_declarator"]
        arguments = n.child_by_field_name("arguments")
        if arguments is not None and declarator is None:
            args = []
        return Call(
            n.start_byte,
            n.end_byte,
            Ptr(type_),
            "operator new[]" if declarator is not None else "operator new",
            args,
            targs=[type_],
        )

    def delete_expression(self, n: Node) -> Expr:
        args = [self.expr(c) for c in n.named_children]
        return Call(n.start_byte, n.end_byte, VOID, "operator delete", args)
