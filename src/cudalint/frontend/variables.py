"""Declarations in bodies, and what the grammar misreads for them or they are misread for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudalint.frontend.declare import parameter_nodes, split
from cudalint.frontend.fold import fold
from cudalint.frontend.launches import Launches
from cudalint.frontend.parse import comma_separated, descendants, parse_ranges
from cudalint.frontend.typing import AUTO, Flags, decay
from cudalint.ir.nodes import (
    Const,
    Construct,
    Expr,
    ExprStmt,
    Member,
    Name,
    OpaqueStmt,
    Ref,
    Stmt,
    Var,
    VarDecl,
    VarKind,
)
from cudalint.ir.types import (
    DIM3,
    I32,
    VOID,
    Array,
    Float,
    Int,
    Ptr,
    Struct,
    Type,
    Unknown,
)

if TYPE_CHECKING:
    from tree_sitter import Node

    from cudalint.frontend.declare import Declarations
    from cudalint.ir.nodes import FunctionKind


class Variables(Launches):
    """Adds declarations to :class:`~cudalint.frontend.launches.Launches`."""

    def __init__(self, declarations: Declarations, prefix: str) -> None:
        super().__init__(declarations, prefix)
        self.kind: FunctionKind = "host"
        self.undo: list[tuple[str, Var | Type | Const | None]] = []
        self.result: Type = VOID
        self.configs = {}

    # Scopes.

    def bind(self, name: str, meaning: Var | Type | Const) -> None:
        if type(meaning) is Var and type(meaning.type) is Unknown:
            self.doubts.append(meaning)
        self.undo.append((name, self.names.get(name)))
        self.names[name] = meaning

    def leave(self, mark: int) -> None:
        """Forget what was declared since ``mark`` (a length of ``undo``)."""
        while len(self.undo) > mark:
            name, before = self.undo.pop()
            if before is None:
                del self.names[name]
            else:
                self.names[name] = before

    def opaque_statement(
        self, node: Node, out: list[Stmt], why: str, *, gap: bool = False, jumps: bool = False
    ) -> None:
        reads, _, barrier = self.touched(node)
        out.append(OpaqueStmt(node.start_byte, node.end_byte, why, reads, reads, barrier, jumps=jumps, gap=gap))

    def declaration(self, node: Node, out: list[Stmt]) -> None:
        children = node.children
        first = children[0]
        if (
            first.type == "type_identifier"
            and len(children) == 3
            and self.expression_read_as_declaration(node, children, out)
        ):
            return
        equals = next((i for i, c in enumerate(children) if c.type == "="), None)
        if equals is not None:
            # `if (int x = f())` has no init_declarator.
            type_, flags, declarators = self.specified(children[:equals])
            for declarator in declarators[:1]:
                self.declare_variable(node, type_, flags, declarator, children[equals + 1], out)
            return
        type_, flags, declarators = self.specified(children)
        for declarator in declarators:
            kind = declarator.type
            if kind == "init_declarator":
                parts = declarator.children
                target = parts[0]
                if target.type == "structured_binding_declarator" or (
                    target.type == "reference_declarator"
                    and target.children[-1].type == "structured_binding_declarator"
                ):
                    self.structured_binding(node, target, parts[-1], out)
                else:
                    self.declare_variable(node, type_, flags, target, parts[-1], out)
            elif kind == "function_declarator":
                self.function_like(node, type_, flags, declarator, children, out)
            elif kind == "structured_binding_declarator":
                self.structured_binding(node, declarator, None, out)
            else:
                self.declare_variable(node, type_, flags, declarator, None, out)

    def expression_read_as_declaration(self, node: Node, children: list[Node], out: list[Stmt]) -> bool:
        """``a * b;``, ``a & b;`` and ``a && b;`` with a variable ``a``."""
        declarator = children[1]
        if declarator.type not in ("pointer_declarator", "reference_declarator"):
            return False
        op = declarator.children[0].type
        if declarator.children[-1].type != "identifier":
            return False
        name = self.text(children[0])
        local = self.names.get(name)
        if isinstance(local, Type) or (
            local is None and (self.find_type(name) is not None or self.scope.value(name, self.prefix) is None)
        ):
            return False
        left, right = self.identifier(children[0]), self.identifier(declarator.children[-1])
        out.append(ExprStmt(node.start_byte, node.end_byte, self.binary(left.start, right.end, op, left, right)))
        return True

    def declaration_read_as_expression(self, inner: Node, node: Node, out: list[Stmt]) -> bool:
        """``A<32> x = y;`` and ``A<B, 32> x;``, read as comparisons."""
        first = inner.children[0]
        if inner.type == "binary_expression":
            first = inner
        if first.type != "binary_expression" or first.children[1].type not in ("<", ">"):
            return False
        while first.type == "binary_expression":
            first = first.children[0]
        if first.type not in ("identifier", "qualified_identifier") or not isinstance(self.expr(first), Name):
            return False
        root = parse_ranges(self.declarations.masked, [(node.start_byte, node.end_byte)])
        if root.has_error or root.child_count != 1 or root.children[0].type != "declaration":
            return False
        self.declaration(root.children[0], out)
        return True

    def pointer_to_array(self, node: Node, statement: Node, out: list[Stmt]) -> bool:
        """``float (*p)[16] = q;``, read as an assignment to an element of a call."""
        value: Node | None = None
        left = node
        if node.type == "assignment_expression":
            if node.children[1].type != "=":
                return False
            left, value = node.children[0], node.children[-1]
        extents = []
        while left.type == "subscript_expression":
            extents.append(left.children[-1])
            left = left.children[0]
        if left.type != "call_expression" or left.child_count != 2:
            return False
        function, arguments = left.children
        named = arguments.named_children
        if len(named) != 1 or named[0].type != "pointer_expression" or named[0].children[-1].type != "identifier":
            return False
        if function.type not in ("primitive_type", "sized_type_specifier") and not (
            function.type == "identifier" and self.is_type(function)
        ):
            return False
        type_ = self.type_of(function)
        for extent in extents:
            expr = self.expr(extent.named_children[0]) if extent.named_child_count else None
            folded = fold(expr)
            type_ = Array(type_, folded if folded is not None else expr)
        name_node = named[0].children[-1]
        ref = named[0].children[0].type == "&"
        init = self.initialiser(value, type_) if value is not None else None
        var = Var(
            self.text(name_node), type_ if ref else Ptr(type_), "local", name_node.start_byte, name_node.end_byte,
            ref=ref, init=init,
        )  # fmt: skip
        self.bind(var.name, var)
        out.append(VarDecl(statement.start_byte, statement.end_byte, var, init))
        return True

    def declare_variable(
        self, node: Node, type_: Type, flags: Flags, declarator: Node, value: Node | None, out: list[Stmt]
    ) -> None:  # fmt: skip
        name_node, declared, ref = self.declare(type_, declarator)
        if name_node is None:
            self.opaque_statement(node, out, "a declaration without a name")
            return
        init = self.initial_value(value, declared) if value is not None else None
        if init is None and declared is DIM3 and not ref and not flags.extern:
            init = Construct(name_node.end_byte, name_node.end_byte, DIM3, [])
        self.add_variable(node, declared, flags, declarator, name_node, ref, init, out)

    def add_variable(
        self, node: Node, type_: Type, flags: Flags, declarator: Node, name_node: Node, ref: bool, init: Expr | None,
        out: list[Stmt],
    ) -> None:  # fmt: skip
        type_ = completed(type_, init, ref)
        kind: VarKind = "local"
        if flags.shared:
            kind = "shared"
        elif flags.constant:
            kind = "constant"
        const = (
            self.const_of(declarator, flags, ref) if flags.const or flags.constexpr or isinstance(type_, Ptr) else False
        )
        a, b = name_node.start_byte, name_node.end_byte
        var = Var(
            self.s[a:b], type_, kind, a, b, const=const, ref=ref, extern=flags.extern, static=flags.static, init=init
        )
        self.bind(var.name, var)
        out.append(VarDecl(node.start_byte, node.end_byte, var, init))

    def initial_value(self, node: Node, type_: Type) -> Expr | None:
        """What a variable of type ``type_`` starts as."""
        kind = node.type
        if kind == "argument_list":
            args = [self.initialiser(c, Unknown("a braced list")) for c in node.named_children]
            return self.constructed(node, type_, args)
        if kind == "initializer_list":
            value = self.braced(node, type_)
            if type_ is AUTO and isinstance(value, Construct) and len(value.args) == 1:
                return value.args[0]
            return value
        value = self.expr(node)
        if type_ is DIM3 and isinstance(value.type, Int):
            return Construct(value.start, value.end, DIM3, [value])
        return value

    def constructed(self, node: Node, type_: Type, args: list[Expr]) -> Expr | None:
        """The initialiser ``(args)``."""
        if len(args) == 1 and (isinstance(type_, (Int, Float, Ptr)) or type_ is AUTO):
            return args[0]
        return Construct(node.start_byte, node.end_byte, type_, args)

    def function_like(
        self, node: Node, type_: Type, flags: Flags, declarator: Node, siblings: list[Node], out: list[Stmt]
    ) -> None:  # fmt: skip
        """``dim3 g(a, b);``, which reads as a function declaration, or one that is."""
        name_node, list_ = declarator.children[0], declarator.children[-1]
        if name_node.type == "parenthesized_declarator":
            self.declare_variable(node, type_, flags, declarator, None, out)
            return
        if name_node.type != "identifier" or list_.type != "parameter_list" or flags.extern or type_ is VOID:
            return
        parameters = list_.named_children
        if not parameters or not all(self.reads_as_value(p) for p in parameters):
            return
        args = self.parameters_as_values(list_, parameters, siblings[-1])
        if args is None:
            self.opaque_statement(node, out, "a declaration that cannot be told from a function's")
            return
        init = self.constructed(list_, type_, args)
        self.add_variable(node, type_, flags, name_node, name_node, False, init, out)

    def reads_as_value(self, node: Node) -> bool:
        """Whether a parameter declaration is an expression: its type is no type here."""
        type_node, _ = split(node.children)
        if node.type != "parameter_declaration" or type_node is None:
            return False
        if type_node.type == "type_identifier":
            name = self.text(type_node)
            local = self.names.get(name)
            if local is not None:
                return not isinstance(local, Type)
            if self.member(name) is not None or self.scope.value(name, self.prefix) is not None:
                return True
            return self.find_type(name) is None and not any(c.type == "type_qualifier" for c in node.children)
        if type_node.type == "qualified_identifier":
            return isinstance(self.qualified(type_node), Unknown)
        if type_node.type in ("template_type", "primitive_type", "sized_type_specifier"):
            # `dim3 g(div_up<4>(n))`: a call; `float f(int)`: a function.
            return type_node.type == "template_type" and isinstance(self.type_of(type_node), Unknown)
        return False

    def parameters_as_values(self, list_: Node, parameters: list[Node], semicolon: Node) -> list[Expr] | None:
        if all(
            p.child_count == 1 and p.children[0].type in ("type_identifier", "qualified_identifier") for p in parameters
        ):
            return [self.expr(p.children[0]) for p in parameters]
        root = parse_ranges(
            self.declarations.masked, [(list_.start_byte, list_.end_byte), (semicolon.start_byte, semicolon.end_byte)]
        )  # fmt: skip
        if root.has_error or root.child_count != 1 or root.children[0].type != "expression_statement":
            return None
        inner = root.children[0].children[0]
        if inner.type != "parenthesized_expression" or inner.child_count != 3:
            return None
        return [self.expr(n) for n in comma_separated(inner.children[1])]

    def structured_binding(self, node: Node, declarator: Node, value: Node | None, out: list[Stmt]) -> None:
        names = [inner for inner in descendants(declarator) if inner.type == "identifier"]
        names.sort(key=lambda inner: inner.start_byte)
        whole = self.initial_value(value, AUTO) if value is not None else None
        if whole is not None and isinstance(whole.type, Struct) and len(whole.type.fields or ()) == len(names):
            ref = declarator.type == "reference_declarator"
            object_ = Var("", whole.type, "local", declarator.start_byte, declarator.end_byte, ref=ref, init=whole)
            out.append(VarDecl(node.start_byte, node.end_byte, object_, whole))
            for inner, (field, type_) in zip(names, (whole.type.fields or {}).items()):
                a, b = inner.start_byte, inner.end_byte
                member = Member(a, b, type_, Ref(a, b, object_), field)
                var = Var(self.text(inner), type_, "local", a, b, ref=ref, init=member)
                self.bind(var.name, var)
                out.append(VarDecl(a, b, var, member))
            return
        reads, _, barrier = self.touched(value) if value is not None else ([], [], False)
        writes = []
        for inner in names:
            var = Var(self.text(inner), Unknown("a structured binding"), "local", inner.start_byte, inner.end_byte)
            self.bind(var.name, var)
            writes.append(var)
        out.append(OpaqueStmt(node.start_byte, node.end_byte, "a structured binding", reads, writes, barrier))

    def type_definition(self, node: Node, _out: list[Stmt]) -> None:
        type_, _, declarators = self.specified(node.children)
        for declarator in declarators:
            name, declared, _ = self.declare(type_, declarator)
            if name is not None:
                self.bind(self.text(name), declared)

    def alias_declaration(self, node: Node, _out: list[Stmt]) -> None:
        type_node = node.child_by_field_name("type")
        if type_node is not None:
            self.bind(self.text(node.children[1]), self.type_of(type_node))

    def local_type(self, node: Node, _out: list[Stmt]) -> None:
        self.class_type(node)

    def class_type(self, node: Node) -> Type:
        type_ = super().class_type(node)
        name = node.child_by_field_name("name")
        if name is not None and node.child_by_field_name("body") is not None and name.type == "type_identifier":
            self.bind(self.text(name), type_)
        return type_

    def local_enum(self, node: Node) -> Type:
        body = node.child_by_field_name("body")
        following: int | None = 0
        for child in body.children if body is not None else ():
            if child.type == "enumerator":
                written = self.expr(child.children[-1]) if child.child_count >= 3 else None
                if written is not None:
                    following = fold(written)
                name = self.text(child.children[0])
                a, b = child.start_byte, child.end_byte
                if following is None:
                    self.bind(name, Var(name, I32, "local", a, b, const=True, init=written))
                else:
                    self.bind(name, Const(a, b, I32, following, name))
                    following += 1
        return I32

    def parameters(self, list_: Node | None) -> list[Var]:
        """The parameters of a list, bound."""
        result = []
        for node in parameter_nodes(self.s, list_):
            type_, flags, declarators = self.specified(node.children)
            name_node: Node | None = None
            ref = False
            const = flags.const
            if declarators:
                name_node, type_, ref = self.declare(type_, declarators[0])
                const = self.const_of(declarators[0], flags, ref)
            if node.type == "variadic_parameter_declaration":
                type_ = Unknown("a parameter pack")
            elif not ref:
                type_ = decay(type_)
            if type_ is AUTO:
                type_ = Unknown("a parameter of type auto")
            at = name_node or node
            name = self.text(name_node) if name_node is not None else ""
            var = Var(name, type_, "param", at.start_byte, at.end_byte, const=const, ref=ref)
            result.append(var)
            if name:
                self.bind(name, var)
        return result


def completed(type_: Type, init: Expr | None, ref: bool) -> Type:
    """A declared type with what the initialiser says: ``auto``, ``auto*``, ``[]``."""
    if type_ is AUTO:
        if init is None:
            return type_
        return init.type if ref else decay(init.type)
    if isinstance(type_, Ptr) and type_.element is AUTO and init is not None:
        return decay(init.type)
    if isinstance(type_, Array) and type_.extent is None and init is not None:
        if isinstance(init, Construct):
            return Array(type_.element, len(init.args))
        if isinstance(init, Const) and isinstance(init.value, str) and "\\" not in init.value:
            return Array(type_.element, len(init.value) + 1)
    return type_
