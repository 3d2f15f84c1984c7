"""Operators, with the conversions of C++, and operands that the grammar misreads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudalint.frontend.builtins import AXES, SPECIALS, element_type, member_type
from cudalint.frontend.typing import FUNCTION, arguments_of, decay
from cudalint.ir.nodes import (
    AddrOf,
    Binary,
    Cast,
    Comma,
    Const,
    Expr,
    IncDec,
    Index,
    Logical,
    Member,
    Name,
    Ref,
    Special,
    Unary,
    Var,
)
from cudalint.ir.types import (
    BOOL,
    I32,
    I64,
    U32,
    Array,
    Int,
    Ptr,
    Struct,
    Type,
    Unknown,
    common,
    promote,
)

if TYPE_CHECKING:
    from tree_sitter import Node

from cudalint.frontend.names import Names, broken
from cudalint.frontend.parse import DEPTH

_COMPARISONS = frozenset({"<", "<=", ">", ">=", "==", "!="})
WORDS = {
    "and": "&&", "or": "||", "not": "!", "bitand": "&", "bitor": "|", "xor": "^", "compl": "~", "not_eq": "!=",
    "and_eq": "&=", "or_eq": "|=", "xor_eq": "^=",
}  # fmt: skip
PRECEDENCE = {
    op: level
    for level, ops in enumerate((
        ("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!="), ("<", "<=", ">", ">="), ("<=>",), ("<<", ">>"),
        ("+", "-"),
        ("*", "/", "%"),
    ))
    for op in ops
}  # fmt: skip

#: Operands that may be something else than they were read as.
_SUSPECTS = frozenset({"parenthesized_expression", "call_expression", "cast_expression", "template_function"})


class Operators(Names):
    """Adds operators to :class:`~cudalint.frontend.names.Names`."""

    def binary_expression(self, n: Node) -> Expr:
        chain: list[list[Node]] = []
        node = n
        repair = False
        while node.type == "binary_expression":
            children = node.children
            if len(children) != 3 or (self.careful and node.has_error and broken(node)):
                break
            chain.append(children)
            if len(chain) + self.depth > DEPTH:
                return self.opaque(n, "nested too deeply")
            if not repair:
                kind = children[2].type
                repair = kind in _SUSPECTS and self.misread(children[2])
            node = children[0]
        if not chain:
            return self.opaque(n, "the text could not be parsed")
        if not repair and node.type in _SUSPECTS:
            repair = self.misread(node)
        if repair:
            return self.rebuilt(n)
        left = self.expr(node)
        a = node.start_byte
        for _, op, right in reversed(chain):
            operator = op.type
            left = self.binary(a, right.end_byte, WORDS.get(operator, operator), left, self.expr(right))
        return left

    def misread(self, node: Node) -> bool:
        """Whether an operand is not what it was read as.

        ``(T)`` before an operator, ``(n) + m`` read as a cast, ``a < b || c > (d)`` read as a call, ``a < b && c > -d``
        read as a difference.
        """
        if node.type == "parenthesized_expression":
            inner = node.children[1]
            return inner.type == "identifier" and self.is_type(inner)
        if node.type == "cast_expression":
            return self.is_operation(node)
        if node.type == "template_function":
            return self.is_compared(node)
        return self.is_comparison(node)

    def is_operation(self, node: Node) -> bool:
        """``(n) + m`` with a variable ``n``, read as a cast of ``+m``."""
        children = node.children
        return (
            len(children) == 4
            and children[3].type in ("unary_expression", "pointer_expression")
            and children[3].children[0].type in PRECEDENCE
            and self.names_value(children[1])
        )

    def is_type(self, node: Node) -> bool:
        name = self.text(node)
        local = self.names.get(name)
        if local is not None:
            return isinstance(local, Type)
        if name in self.globals and type(self.globals[name]) in (Var, Const):
            return False
        return self.find_type(name) is not None and self.scope.value(name, self.prefix) is None

    def names_value(self, node: Node) -> bool:
        """Whether a type descriptor is the name of a variable."""
        if node.child_count != 1 or node.children[0].type != "type_identifier":
            return False
        name = self.text(node.children[0])
        local = self.names.get(name)
        if local is not None:
            return not isinstance(local, Type)
        return self.find_type(name) is None and (
            self.member(name) is not None or self.scope.value(name, self.prefix) is not None
        )

    def is_comparison(self, node: Node) -> bool:
        """``a < b || c > (d)`` with a variable ``a``, read as a call of a template."""
        return self.is_compared(node.children[0])

    def is_compared(self, function: Node) -> bool:
        """``a < b && c >`` with a variable ``a``, read as a template's name."""
        if function.type != "template_function":
            return False
        name = function.children[0]
        if name.type != "identifier":
            return False
        arguments = function.children[-1]
        if arguments.named_child_count != 1:
            return False
        found = self.name_at(name.start_byte, name.end_byte, self.text(name))
        if not isinstance(found, Name):
            return True
        # `a < b || c > (d)` with an undeclared a: no template takes a disjunction.
        inner = arguments.named_children[0]
        return (
            found.type is not FUNCTION and inner.type == "binary_expression" and inner.children[1].type in ("||", "&&")
        )

    def is_at_least(self, node: Node) -> bool:
        """``a < b && c >= d`` with a variable ``a``, read as an assignment to a template: ``a<b && c> = d``."""
        if (
            node.child_count != 3
            or node.children[1].type != "="
            or node.children[0].end_byte != node.children[1].start_byte
        ):
            return False
        last = node.children[0]
        while last.type == "binary_expression" and last.child_count == 3:
            last = last.children[2]
        return self.is_compared(last)

    def rebuilt(self, n: Node) -> Expr:
        """A binary expression whose operands were misread, put together again by precedence."""
        items: list[Expr | str | Type | None] = []
        spans: list[tuple[int, int]] = []
        if not self.flatten(n, items, spans):
            return self.opaque(n, "nested too deeply")
        # `(T) - x`: the operand that is a type casts what follows it; where none is, the operator is unary.
        operands: list[tuple[Expr, int, int]] = []
        operators: list[str] = []
        position = 0
        while position < len(items):
            casts: list[tuple[Type | None, int, str, int]] = []
            while not isinstance(cast := items[position], (Expr, str)) and position + 2 < len(items):
                casts.append((cast, spans[position][0], str(items[position + 1]), spans[position + 1][0]))
                position += 2
            item = items[position]
            end = spans[position][1]
            start = spans[position][0]
            value = item if isinstance(item, Expr) else Name(start, end, self.s[start:end])
            for type_, at, op, sign in reversed(casts):
                if op == "*":
                    value = self.deref(sign, end, value)
                elif op == "&":
                    value = AddrOf(sign, end, Ptr(value.type), value)
                else:
                    value = self.unary(sign, end, op, value)
                start = at
                if type_ is not None:
                    value = Cast(start, end, type_, value, "c")
            operands.append((value, start, end))
            if position + 1 < len(items):
                operators.append(str(items[position + 1]))
            position += 2
        stack = [operands[0]]
        pending: list[str] = []

        def reduce() -> None:
            right, _, end = stack.pop()
            left, start, _ = stack.pop()
            stack.append((self.binary(start, end, pending.pop(), left, right), start, end))

        for op, operand in zip(operators, operands[1:], strict=True):
            while pending and PRECEDENCE.get(pending[-1], 0) >= PRECEDENCE.get(op, 0):
                reduce()
            pending.append(op)
            stack.append(operand)
        while pending:
            reduce()
        return stack[0][0]

    def flatten(
        self, n: Node, items: list[Expr | str | Type | None], spans: list[tuple[int, int]], depth: int = 0
    ) -> bool:
        """Operands and operators of ``n`` in textual order, None where an operand is missing before an operator that
        is unary; False past the nesting bound."""
        if depth > DEPTH:
            return False
        kind = n.type
        if kind == "binary_expression" and n.child_count == 3:
            left, op, right = n.children
            if not self.flatten(left, items, spans, depth + 1):
                return False
            items.append(WORDS.get(op.type, op.type))
            spans.append((op.start_byte, op.end_byte))
            return self.flatten(right, items, spans, depth + 1)
        if kind == "call_expression" and self.is_comparison(n):
            function, arguments = n.children[0], n.children[-1]
            if not self.flatten_compared(function, ">", function.end_byte, items, spans, depth):
                return False
            items.append(self.arguments_as_value(arguments))
            spans.append((arguments.start_byte, arguments.end_byte))
            return True
        if kind == "template_function" and self.is_compared(n):
            if not self.flatten_compared(n, ">", n.end_byte, items, spans, depth):
                return False
            items.append(None)
            spans.append((n.end_byte, n.end_byte))
            return True
        if kind == "assignment_expression" and self.is_at_least(n):
            function, op, value = n.children
            while function.type == "binary_expression":
                if not self.flatten(function.children[0], items, spans, depth + 1):
                    return False
                items.append(WORDS.get(function.children[1].type, function.children[1].type))
                spans.append((function.children[1].start_byte, function.children[1].end_byte))
                function = function.children[2]
            if not self.flatten_compared(function, ">=", op.end_byte, items, spans, depth):
                return False
            return self.flatten(value, items, spans, depth + 1)
        if kind == "cast_expression" and self.is_operation(n):
            _, name, _, value = n.children
            items.append(self.expr(name.children[0]))
            spans.append((n.start_byte, name.end_byte))
            items.append(value.children[0].type)
            spans.append((value.start_byte, value.start_byte + 1))
            return self.flatten(value.children[-1], items, spans, depth + 1)
        if kind == "parenthesized_expression" and n.children[1].type == "identifier" and self.is_type(n.children[1]):
            items.append(self.named(self.text(n.children[1])))
        elif kind == "type_descriptor":
            items.append(self.type_descriptor_value(n))
        else:
            items.append(self.expr(n))
        spans.append((n.start_byte, n.end_byte))
        return True

    def flatten_compared(
        self, n: Node, op: str, end: int, items: list[Expr | str | Type | None], spans: list[tuple[int, int]],
        depth: int,
    ) -> bool:  # fmt: skip
        """``a < b && c >``, read as a template's name, where ``>`` begins the operator ``op`` up to ``end``."""
        list_ = n.children[-1]
        opening, closing = list_.children[0], list_.children[-1]
        self.flatten(n.children[0], items, spans, depth + 1)
        items.append("<")
        spans.append((opening.start_byte, opening.end_byte))
        if not self.flatten(list_.named_children[0], items, spans, depth + 1):
            return False
        items.append(op)
        spans.append((closing.start_byte, end))
        return True

    def arguments_as_value(self, n: Node) -> Expr:
        """``(d)`` that was read as arguments."""
        values = [self.expr(child) for child in n.named_children]
        if not values:
            return self.opaque(n, "an empty parenthesis")
        result = values[0]
        for value in values[1:]:
            result = Comma(result.start, value.end, value.type, result, value)
        return result

    def binary(self, a: int, b: int, op: str, left: Expr, right: Expr) -> Expr:
        """``left op right`` with the conversions of C++."""
        lt, rt = left.type, right.type
        if op == "&&" or op == "||":
            return Logical(a, b, BOOL, op, left, right)
        if op in _COMPARISONS:
            if lt is rt and type(lt) is Int and lt.bits >= 32:
                return Binary(a, b, BOOL, op, left, right, lt)
            if type(lt) is Array or type(lt) is Ptr:
                return Binary(a, b, BOOL, op, left, right, decay(lt))
            if type(rt) is Array or type(rt) is Ptr:
                return Binary(a, b, BOOL, op, left, right, decay(rt))
            if type(lt) is Struct or type(rt) is Struct:
                return self.operator_call(a, b, op, [left, right]) or Binary(
                    a, b, BOOL, op, left, right, common(lt, rt)
                )
            return Binary(a, b, BOOL, op, left, right, common(lt, rt))
        if lt is rt and type(lt) is Int and lt.bits >= 32:
            return Binary(a, b, lt, op, left, right, lt)
        if op == "<<" or op == ">>":
            if isinstance(lt, Struct):
                return self.operator_call(a, b, op, [left, right]) or Binary(a, b, lt, op, left, right, lt)
            optype = promote(lt)
            return Binary(a, b, optype, op, left, right, optype)
        if type(lt) is Array or type(lt) is Ptr or type(rt) is Array or type(rt) is Ptr:
            lt, rt = decay(lt), decay(rt)
            if isinstance(lt, Ptr) and isinstance(rt, Ptr):
                return Binary(a, b, I64, op, left, right, lt)
            optype = lt if isinstance(lt, Ptr) else rt
            return Binary(a, b, optype, op, left, right, optype)
        if type(lt) is Struct or type(rt) is Struct:
            found = self.operator_call(a, b, op, [left, right])
            if found is not None:
                return found
            # half2 and the like have operators of their own.
            optype = lt if lt is rt else Unknown("arithmetic on a class type")
            return Binary(a, b, optype, op, left, right, optype)
        optype = common(lt, rt)
        return Binary(a, b, optype, op, left, right, optype)

    def unary_expression(self, n: Node) -> Expr:
        op, operand = n.children[0].type, n.children[-1]
        return self.unary(n.start_byte, n.end_byte, WORDS.get(op, op), self.expr(operand))

    def unary(self, a: int, b: int, op: str, operand: Expr) -> Expr:
        type_ = operand.type
        if op == "!":
            return Unary(a, b, BOOL, op, operand)
        if isinstance(type_, Struct):
            found = self.operator_call(a, b, op, [operand])
            if found is not None:
                return found
        return Unary(a, b, promote(decay(type_)), op, operand)

    def update_expression(self, n: Node) -> Expr:
        first, second = n.children[0], n.children[-1]
        prefix = first.type == "++" or first.type == "--"
        op = first.type if prefix else second.type
        target = self.expr(second if prefix else first)
        return IncDec(n.start_byte, n.end_byte, target.type, op[0], prefix, target)

    def pointer_expression(self, n: Node) -> Expr:
        op, operand_node = n.children[0].type, n.children[-1]
        a, b = n.start_byte, n.end_byte
        operand = self.expr(operand_node)
        if op == "*":
            return self.deref(a, b, operand)
        return AddrOf(a, b, Ptr(operand.type) if not isinstance(operand.type, Unknown) else operand.type, operand)

    def deref(self, a: int, b: int, operand: Expr) -> Expr:
        if isinstance(operand, Binary) and operand.op == "+" and isinstance(operand.optype, Ptr):
            base, index = operand.left, operand.right
            if isinstance(decay(base.type), Int):
                base, index = index, base
            return Index(a, b, operand.optype.element, base, index)
        return Index(a, b, self.element(operand.type), operand, Const(b, b, I32, 0, "0"))

    def element(self, type_: Type) -> Type:
        """The type of ``*p`` and ``p[i]``."""
        if isinstance(type_, (Ptr, Array)):
            return type_.element
        if isinstance(type_, Struct):
            found = element_type(type_.name, (arguments_of.get(type_) or (None,))[0])
            if found is not None:
                return found
            method = self.method_returns(type_, "operator[]")
            if method is not None:
                return method
            return Unknown(f"element of '{type_}'")
        return type_ if isinstance(type_, Unknown) else Unknown(f"element of '{type_}'")

    def method_returns(self, class_: Struct, name: str) -> Type | None:
        """The return type of a method by name only, when the project declares it."""
        raise NotImplementedError  # given by a layer above

    def subscript_expression(self, n: Node) -> Expr:
        children = n.children
        base = self.expr(children[0])
        indices = children[-1].named_children
        a, b = n.start_byte, n.end_byte
        if len(indices) != 1:
            return self.opaque(n, "an unusual subscript")
        index = self.expr(indices[0])
        type_ = base.type
        if type(type_) is Ptr or type(type_) is Array:
            return Index(a, b, type_.element, base, index)
        if isinstance(index.type, (Ptr, Array)) and isinstance(type_, Int):
            return Index(a, b, index.type.element, index, base)
        return Index(a, b, self.element(type_), base, index)

    def field_expression(self, n: Node) -> Expr:
        children = n.children
        a, b = n.start_byte, n.end_byte
        if len(children) != 3:
            return self.opaque(n, "an unusual member access")
        object_, op, field = children
        name = self.text(field)
        if object_.type == "identifier":
            special = self.text(object_)
            if special in SPECIALS and name in AXES and special not in self.names:
                return Special(a, b, U32, special, name)
        elif object_.type == "this":
            member = self.member(name)
            if member is not None:
                return Ref(a, b, member)
        base = self.expr(object_)
        if op.type == "->":
            base = self.arrow(base)
        elif op.type == ".*":
            return self.opaque(n, "a pointer to a member")
        elif isinstance(base, Special) and base.axis == "" and name in AXES:
            return Special(a, b, U32, base.which, name)
        return self.field(a, b, base, name)

    def arrow(self, base: Expr) -> Expr:
        """The object of ``base->``."""
        type_ = base.type
        element = type_.element if isinstance(type_, (Ptr, Array)) else self.element(type_)
        return Index(base.start, base.end, element, base, Const(base.end, base.end, I32, 0, "0"))

    def field(self, a: int, b: int, base: Expr, name: str) -> Expr:
        type_ = base.type
        if isinstance(type_, Struct):
            if type_.fields is not None:
                field = type_.fields.get(name)
                if field is not None:
                    return Member(a, b, field, base, name)
                value = self.static_member(type_, name)
                if type(value) is Var:
                    return Ref(a, b, value)
            known = member_type(type_.name, name)
            return Member(a, b, known or Unknown(f"member '{name}' of '{type_}'"), base, name)
        if isinstance(type_, Unknown):
            return Member(a, b, type_, base, name)
        return Member(a, b, Unknown(f"member '{name}' of '{type_}'"), base, name)
