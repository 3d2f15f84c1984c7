"""Expressions: tree nodes to IR with C++'s types and conversions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from cudalint.frontend.builtins import AXES, CONSTANTS, SPECIALS, element_type
from cudalint.frontend.parse import descendants
from cudalint.frontend.typing import FUNCTION, INSTANCES, Typer, arguments_of, class_of, decay
from cudalint.ir.nodes import (
    AddrOf,
    Assign,
    Binary,
    Call,
    Cast,
    Comma,
    Cond,
    Const,
    Construct,
    Expr,
    IncDec,
    Index,
    Logical,
    Member,
    Name,
    Opaque,
    Ref,
    SizeOf,
    Special,
    Unary,
    Var,
)  # fmt: skip
from cudalint.ir.types import (
    BOOL,
    DIM3,
    F32,
    F64,
    I8,
    I32,
    I64,
    U32,
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
)  # fmt: skip

if TYPE_CHECKING:
    from collections.abc import Callable

    from tree_sitter import Node

    from cudalint.frontend.declare import Declarations, TypeDecl
    from cudalint.ir.nodes import Function

#: How deep statements and expressions may nest before the rest is opaque.
DEPTH = 200

_BARRIER = re.compile(r"__syncthreads|__syncwarp|\bbar(?:rier)?\.|\bsync\s*\(|barrier|_sync\s*\(")
_COMPARISONS = frozenset({"<", "<=", ">", ">=", "==", "!="})
_WORDS = {
    "and": "&&", "or": "||", "not": "!", "bitand": "&", "bitor": "|", "xor": "^", "compl": "~", "not_eq": "!=",
    "and_eq": "&=", "or_eq": "|=", "xor_eq": "^=",
}  # fmt: skip
_PRECEDENCE = {
    op: level
    for level, ops in enumerate((
        ("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!="), ("<", "<=", ">", ">="), ("<=>",), ("<<", ">>"), ("+", "-"),
        ("*", "/", "%"),
    ))
    for op in ops
}  # fmt: skip
_FLOAT = re.compile(r"[.]|^(?!0[xX])[0-9']*[eE]|^0[xX].*[pP]")
_ESCAPES = {"n": 10, "t": 9, "r": 13, "0": 0, "a": 7, "b": 8, "f": 12, "v": 11}
_STORES = frozenset({"assignment_expression", "update_expression"})
#: The method that lowers each kind of node.
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
    "alignof_expression": "alignof_expression", "comma_expression": "comma_expression",
    "compound_literal_expression": "compound_literal", "initializer_list": "initializer_list",
    "new_expression": "new_expression", "delete_expression": "delete_expression", "this": "this_expression",
    "template_function": "template_name", "call_expression": "call_expression",
    "lambda_expression": "lambda_expression", "condition_clause": "condition_clause",
    "initializer_pair": "initializer_pair", "dependent_name": "template_name",
    "extension_expression": "extension_expression", "primitive_type": "type_as_value",
    "type_descriptor": "type_descriptor_value",
}  # fmt: skip
_literals: dict[str, tuple[Type, int | float | None]] = {}


def number(text: str) -> tuple[Type, int | float | None]:
    """The type and value of a numeric literal."""
    found = _literals.get(text)
    if found is None:
        if len(_literals) > 10_000:
            _literals.clear()
        found = _literals[text] = _number(text)
    return found


def _number(text: str) -> tuple[Type, int | float | None]:
    digits = text.replace("'", "")
    sign = -1 if digits.startswith("-") else 1
    digits = digits.lstrip("+-").strip()
    if _FLOAT.search(digits):
        hexadecimal = digits[:2] in ("0x", "0X")
        body = digits.rstrip("fFlL" if not hexadecimal else "lL")
        suffix = digits[len(body) :].lower()
        if hexadecimal and digits[-1] in "fF" and "p" in digits.lower():
            body, suffix = digits[:-1], "f"
        try:
            value = float.fromhex(body) if hexadecimal else float(body)
        except (ValueError, OverflowError):
            return Unknown(f"the literal {text}"), None
        return (F32 if "f" in suffix else F64), sign * value
    body = digits.rstrip("uUlLzZ")
    suffix = digits[len(body) :].lower()
    if body[-1:] in "fF" and body[:2] not in ("0x", "0X") and body[:-1].isdigit():
        return F32, sign * float(body[:-1])
    try:
        if body[:2] in ("0b", "0B", "0x", "0X"):
            number_ = int(body, 0)
            decimal = False
        else:
            decimal = not (body.startswith("0") and len(body) > 1)
            number_ = int(body, 10 if decimal else 8)
    except ValueError:
        return Unknown(f"the literal {text}"), None
    wide = "l" in suffix or "z" in suffix
    if "u" in suffix or suffix == "z":
        type_ = U64 if wide or number_ > U32.hi else U32
    elif number_ <= I32.hi and not wide:
        type_ = I32
    elif number_ <= U32.hi and not wide and not decimal:
        type_ = U32
    elif number_ <= I64.hi:
        type_ = I64
    else:
        type_ = U64
    return type_, sign * number_


class Expressions(Typer):
    """Lowers expressions. ``this`` is the class of a method, whose fields are plain variables."""

    def __init__(self, declarations: Declarations, prefix: str) -> None:
        super().__init__(declarations, prefix)
        self.this: Struct | None = None
        self.members: dict[str, Var] = {}
        self.globals: dict[str, Var | Const | Type | None] = {}
        self.careful = False
        self.depth = 0
        self.lambdas: dict[Type, Function] = {}
        self.local_classes: list[TypeDecl] = []

    handlers: dict[str, Callable[[Any, Node], Expr]]

    def __init_subclass__(cls) -> None:
        # One table a class, not a table an object: there is an object a function.
        cls.handlers = {kind: getattr(cls, method) for kind, method in _HANDLERS.items() if hasattr(cls, method)}

    def extension_expression(self, n: Node) -> Expr:
        return self.expr(n.named_children[-1])

    # Given by the call and statement layers.
    def call_expression(self, n: Node) -> Expr:
        raise NotImplementedError

    def lambda_expression(self, n: Node) -> Expr:
        raise NotImplementedError

    def operator_call(self, a: int, b: int, op: str, args: list[Expr]) -> Expr | None:
        """The project's overload of ``op`` for a class among ``args``."""
        raise NotImplementedError

    def expr(self, node: Node) -> Expr:
        """``node`` as IR; Opaque for what cannot be modelled."""
        handler = self.handlers.get(node.type)
        if handler is None:
            return self.opaque(node, f"a {node.type.replace('_', ' ')}")
        if self.careful and node.has_error and _broken(node):
            return self.opaque(node, "the text could not be parsed")
        if self.depth >= DEPTH:
            return self.opaque(node, "nested too deeply")
        self.depth += 1
        result = handler(self, node)
        self.depth -= 1
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
        for inner in descendants(node):
            kind = inner.type
            if kind == "identifier" or kind == "type_identifier":
                found = self.names.get(self.text(inner))
                if type(found) is Var:
                    reads[found] = None
            elif kind in _STORES:
                for leaf in descendants(inner.children[0] if kind[0] == "a" else inner):
                    if leaf.type == "identifier":
                        found = self.names.get(self.text(leaf))
                        if type(found) is Var:
                            writes[found] = None
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
            return Ref(a, b, found)  # type: ignore[arg-type]
        if kind is Const:
            return Const(a, b, found.type, found.value, name)  # type: ignore[union-attr]
        if found is DIM3 and name in SPECIALS:
            return Special(a, b, DIM3, name, "")
        if name == "warpSize" and found is None:
            return Special(a, b, I32, "warpSize", "")
        if kind is Unknown:
            return Name(a, b, name, found)  # type: ignore[arg-type]
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

            return global_variable(decl)
        if name in SPECIALS:
            return DIM3
        if self.scope.functions(name, self.prefix):
            return FUNCTION
        last = name.rpartition("::")[2]
        constant = CONSTANTS.get(last)
        if constant is not None:
            return Const(0, 0, constant[0], constant[1], last)
        return None

    def member(self, name: str) -> Var | None:
        found = self.members.get(name)
        if found is None and self.this is not None and self.this.fields and name in self.this.fields:
            decl = class_of.get(self.this)
            at = decl.start if decl is not None else 0
            found = self.members[name] = Var(name, self.this.fields[name], "field", at, at)
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
            return Name(a, b, re.sub(r"\s+", " ", self.s[a:b]), FUNCTION)
        # `A<T>::value`: a static member of an instance.
        outer = self.qualified_outer(n)
        name = self.text(last)
        value = self.static_member(outer, name) if isinstance(outer, Struct) else None
        if value is not None:
            return Ref(a, b, value) if type(value) is Var else Const(a, b, value.type, value.value, name)  # type: ignore[union-attr]
        return Name(a, b, re.sub(r"\s+", " ", self.s[a:b]), Unknown(f"member '{name}' of '{outer}'"))

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
        """The static member ``name`` of a class, with the class's template arguments in its initialiser."""
        decl = class_of.get(outer)
        if decl is None:
            return None
        value = decl.declarations.values.get(f"{decl.qualname}::{name}")
        if value is None:
            return None
        from cudalint.frontend.lower import global_variable

        if self.instances >= INSTANCES:
            return None
        return global_variable(value, arguments_of.get(outer, ()), self.instances + 1)

    def number_literal(self, n: Node) -> Expr:
        a, b = n.start_byte, n.end_byte
        text = self.s[a:b]
        type_, value = number(text)
        return Const(a, b, type_, value, text)

    def char_literal(self, n: Node) -> Expr:
        a, b = n.start_byte, n.end_byte
        text = self.s[a:b]
        body = text[text.index("'") + 1 : -1] if text.count("'") >= 2 else ""
        value: int | None = None
        if len(body) == 1:
            value = ord(body)
        elif body[:2] == "\\x":
            value = int(body[2:], 16) if re.fullmatch(r"[0-9a-fA-F]+", body[2:]) else None
        elif re.fullmatch(r"\\[0-7]{1,3}", body):
            value = int(body[1:], 8)
        elif len(body) == 2 and body[0] == "\\":
            value = _ESCAPES.get(body[1], ord(body[1]))
        return Const(a, b, I8, value if value is None else I8.wrap(value), text)

    def string_literal(self, n: Node) -> Expr:
        a, b = n.start_byte, n.end_byte
        text = self.s[a:b]
        body = text[1:-1] if n.type == "string_literal" and text[:1] == '"' else text
        return Const(a, b, Array(I8, None), body, text)

    def boolean(self, n: Node) -> Expr:
        return Const(n.start_byte, n.end_byte, BOOL, n.type == "true", n.type)

    def null(self, n: Node) -> Expr:
        return Const(n.start_byte, n.end_byte, Ptr(VOID), 0, self.text(n))

    def this_expression(self, n: Node) -> Expr:
        type_: Type = Ptr(self.this) if self.this is not None else Unknown("this outside of a class")
        return Name(n.start_byte, n.end_byte, "this", type_)

    def template_name(self, n: Node) -> Expr:
        return Name(n.start_byte, n.end_byte, self.text(n.children[0]), FUNCTION)

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

    # Operators.

    def binary_expression(self, n: Node) -> Expr:
        chain: list[list[Node]] = []
        node = n
        repair = False
        while node.type == "binary_expression":
            children = node.children
            if len(children) != 3 or (self.careful and node.has_error and _broken(node)):
                break
            chain.append(children)
            if len(chain) + self.depth > DEPTH:
                return self.opaque(n, "nested too deeply")
            if not repair:
                kind = children[2].type
                repair = (kind == "parenthesized_expression" or kind == "call_expression") and self.misread(children[2])
            node = children[0]
        if not chain:
            return self.opaque(n, "the text could not be parsed")
        if not repair and (node.type == "parenthesized_expression" or node.type == "call_expression"):
            repair = self.misread(node)
        if repair:
            return self.rebuilt(n)
        left = self.expr(node)
        a = node.start_byte
        for _, op, right in reversed(chain):
            operator = op.type
            left = self.binary(a, right.end_byte, _WORDS.get(operator, operator), left, self.expr(right))
        return left

    def misread(self, node: Node) -> bool:
        """Whether an operand is not one: ``(T)`` before an operator, or ``a < b || c > (d)`` read as a call."""
        if node.type == "parenthesized_expression":
            inner = node.children[1]
            return inner.type == "identifier" and self.is_type(inner)
        return self.is_comparison(node)

    def is_type(self, node: Node) -> bool:
        name = self.text(node)
        local = self.names.get(name)
        if local is not None:
            return isinstance(local, Type)
        if name in self.globals and type(self.globals[name]) in (Var, Const):
            return False
        return self.find_type(name) is not None and self.scope.value(name, self.prefix) is None

    def is_comparison(self, node: Node) -> bool:
        """``a < b || c > (d)`` with a variable ``a``, read as a call of a template."""
        function = node.children[0]
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

    def rebuilt(self, n: Node) -> Expr:
        """A binary expression whose operands were misread, put together again by precedence."""
        items: list[Expr | str | Type] = []
        spans: list[tuple[int, int]] = []
        if not self.flatten(n, items, spans):
            return self.opaque(n, "nested too deeply")
        # `(T) - x`: the operand that is a type casts what follows it.
        operands: list[tuple[Expr, int, int]] = []
        operators: list[str] = []
        position = 0
        while position < len(items):
            casts: list[tuple[Type, int, str]] = []
            while isinstance(items[position], Type) and position + 2 < len(items):
                casts.append((items[position], spans[position][0], str(items[position + 1])))  # type: ignore[arg-type]
                position += 2
            item = items[position]
            end = spans[position][1]
            start = spans[position][0]
            value = item if isinstance(item, Expr) else Name(start, end, self.s[start:end])
            for type_, at, op in reversed(casts):
                if op == "*":
                    value = self.deref(value.start, end, value)
                elif op == "&":
                    value = AddrOf(value.start, end, Ptr(value.type), value)
                else:
                    value = self.unary(value.start, end, op, value)
                start = at
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
            while pending and _PRECEDENCE.get(pending[-1], 0) >= _PRECEDENCE.get(op, 0):
                reduce()
            pending.append(op)
            stack.append(operand)
        while pending:
            reduce()
        return stack[0][0]

    def flatten(self, n: Node, items: list[Expr | str | Type], spans: list[tuple[int, int]], depth: int = 0) -> bool:
        """Operands and operators of ``n`` in textual order; False past the nesting bound."""
        if depth > DEPTH:
            return False
        kind = n.type
        if kind == "binary_expression" and n.child_count == 3:
            left, op, right = n.children
            if not self.flatten(left, items, spans, depth + 1):
                return False
            items.append(_WORDS.get(op.type, op.type))
            spans.append((op.start_byte, op.end_byte))
            return self.flatten(right, items, spans, depth + 1)
        if kind == "call_expression" and self.is_comparison(n):
            function, arguments = n.children[0], n.children[-1]
            list_ = function.children[-1]
            opening, closing = list_.children[0], list_.children[-1]
            self.flatten(function.children[0], items, spans, depth + 1)
            items.append("<")
            spans.append((opening.start_byte, opening.end_byte))
            if not self.flatten(list_.named_children[0], items, spans, depth + 1):
                return False
            items.append(">")
            spans.append((closing.start_byte, closing.end_byte))
            items.append(self.arguments_as_value(arguments))
            spans.append((arguments.start_byte, arguments.end_byte))
            return True
        if kind == "parenthesized_expression" and n.children[1].type == "identifier" and self.is_type(n.children[1]):
            items.append(self.named(self.text(n.children[1])))
        elif kind == "type_descriptor":
            items.append(self.type_descriptor_value(n))
        else:
            items.append(self.expr(n))
        spans.append((n.start_byte, n.end_byte))
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
        return self.unary(n.start_byte, n.end_byte, _WORDS.get(op, op), self.expr(operand))

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
        raise NotImplementedError

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
            return Member(a, b, Unknown(f"member '{name}' of '{type_}'"), base, name)
        if isinstance(type_, Unknown):
            return Member(a, b, type_, base, name)
        return Member(a, b, Unknown(f"member '{name}' of '{type_}'"), base, name)

    def assignment_expression(self, n: Node) -> Expr:
        children = n.children
        if len(children) != 3:
            return self.opaque(n, "an unusual assignment")
        target_node, op_node, value_node = children
        op = op_node.type
        op = _WORDS.get(op, op)[:-1]
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
            from cudalint.frontend.fold import fold

            extent = fold(self.expr(inner.children[-1].named_children[0]))
            return Array(self.named(self.text(inner.children[0])), extent)
        if inner.type == "qualified_identifier" or inner.type == "template_function":
            found = self.type_of(inner)
            if not isinstance(found, Unknown):
                return found
        return self.expr(inner).type

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

    def alignof_expression(self, n: Node) -> Expr:
        from cudalint.frontend.typing import _alignment

        a, b = n.start_byte, n.end_byte
        named = n.named_children
        type_ = self.type_of(named[-1]) if named and named[-1].type == "type_descriptor" else Unknown("alignof")
        if type_.size is None:
            return Opaque(a, b, U64, "an alignment", [], [], False)
        return Const(a, b, U64, _alignment(type_), self.s[a:b])

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


def _broken(node: Node) -> bool:
    """Whether an error is directly in ``node``; a missing semicolon follows a macro that nobody defines."""
    return any(child.is_error or (child.is_missing and child.type != ";") for child in node.children)
