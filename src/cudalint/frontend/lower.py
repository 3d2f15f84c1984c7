"""Functions to IR: statements, declarations, lambdas, and what the grammar misread among them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cudalint.frontend.calls import returned
from cudalint.frontend.declare import (
    in_bytes,
    parameter_list,
    parameter_nodes,
    syntax_of,
    template_names,
)  # fmt: skip
from cudalint.frontend.fold import fold
from cudalint.frontend.names import broken
from cudalint.frontend.parse import DEPTH, comma_separated, descendants, parse_ranges
from cudalint.frontend.typing import AUTO, INSTANCES, decay
from cudalint.frontend.variables import Variables, completed
from cudalint.ir.nodes import (
    Assign,
    Block,
    Break,
    Call,
    Case,
    Const,
    Continue,
    Expr,
    ExprStmt,
    For,
    Function,
    If,
    Lambda,
    Launch,
    Member,
    OpaqueStmt,
    RangeFor,
    Ref,
    Return,
    Stmt,
    Switch,
    Var,
    VarDecl,
    VarKind,
    While,
)  # fmt: skip
from cudalint.ir.types import I32, VOID, Array, Param, Struct, Type, Unknown
from cudalint.lazy import pattern

if TYPE_CHECKING:
    from collections.abc import Callable

    from tree_sitter import Node

    from cudalint.frontend.declare import ValueDecl
    from cudalint.ir.nodes import FunctionDecl, FunctionKind

_READ_FOR_DECLARATION = frozenset({"assignment_expression", "binary_expression", "comma_expression"})
_CONFIG_FIELDS = frozenset({"gridDim", "blockDim", "dynamicSmemBytes", "stream"})
#: Initialisers longer than this are tables; nothing asks for their values.
_LONG_INITIALISER = 4096

#: The method that lowers each kind of statement.
_STATEMENTS = {
    "expression_statement": "expression_statement", "declaration": "declaration",
    "compound_statement": "compound_statement", "if_statement": "if_statement", "for_statement": "for_statement",
    "while_statement": "while_statement", "do_statement": "do_statement", "return_statement": "return_statement",
    "break_statement": "break_statement", "continue_statement": "continue_statement",
    "switch_statement": "switch_statement", "for_range_loop": "range_loop", "type_definition": "type_definition",
    "alias_declaration": "alias_declaration", "struct_specifier": "local_type", "class_specifier": "local_type",
    "union_specifier": "local_type", "enum_specifier": "local_type", "labeled_statement": "labeled_statement",
    "goto_statement": "goto_statement", "attributed_statement": "attributed_statement",
    "try_statement": "try_statement", "throw_statement": "throw_statement", "else_clause": "attributed_statement",
    "init_statement": "attributed_statement", "using_declaration": "nothing",
    "static_assert_declaration": "static_assertion",
    ";": "nothing", "namespace_alias_definition": "nothing", "template_instantiation": "nothing",
    "comment": "nothing", "co_return_statement": "return_statement",
}  # fmt: skip


class Lowerer(Variables):
    """Lowers the body of one function (and of the lambdas in it)."""

    # Statements.

    def statement(self, node: Node, out: list[Stmt]) -> None:
        """Lower one statement; some give none, some several."""
        handler = _statements.get(node.type)
        if handler is None:
            if node.is_error or node.is_named:
                self.opaque_statement(node, out, f"a {node.type.replace('_', ' ')}", gap=node.is_error)
            return
        if self.depth >= DEPTH:
            self.opaque_statement(node, out, "nested too deeply")
            return
        if node.type == "expression_statement" and node.children[0].type == "gnu_asm_expression":
            self.asm(node.children[0], out)
            return
        if self.careful and node.has_error and node.type != "compound_statement" and _broken_head(node):
            if not self.repaired(node, out):
                self.opaque_statement(node, out, "the text could not be parsed", gap=True)
            return
        self.depth += 1
        handler(self, node, out)
        self.depth -= 1

    def repaired(self, node: Node, out: list[Stmt]) -> bool:
        """``k<A, B><<<g, b>>>(x)``, which reads as a broken declaration."""
        text = self.text(node)
        opening = text.find("<<<")
        if opening < 0 or text.count("<<<") != 1 or not text.rstrip().endswith(";"):
            return False
        template = text.find("<")
        if template >= opening or not text[:template].strip().replace("::", "").isidentifier():
            return False
        a = node.start_byte
        masked = self.declarations.masked
        root = parse_ranges(masked, [(a, a + template), (a + opening, node.end_byte)])
        call = next((n for n in descendants(root) if n.type == "call_expression"), None)
        closing = text.rfind(">", template, opening)
        if closing < 0:
            return False
        inner = (a + template + 1, a + closing)
        semicolon = (node.end_byte - 1, node.end_byte)
        if call is None or root.has_error:
            return False
        expr = self.expr(call)
        if not isinstance(expr, Launch):
            return False
        # The arguments are read as an expression; names of types come out as types.
        arguments = parse_ranges(masked, [inner, semicolon])
        if arguments.has_error or arguments.child_count != 1 or arguments.children[0].type != "expression_statement":
            return False
        expr.targs = [self.argument(n) for n in comma_separated(arguments.children[0].children[0])]
        expr.target = self.kernel(expr.kernel, expr.args, expr.targs, None)
        out.append(ExprStmt(node.start_byte, node.end_byte, expr))
        return True

    def static_assertion(self, node: Node, out: list[Stmt]) -> None:
        """``static_assert(condition)``, a call like any other assertion's."""
        condition = node.child_by_field_name("condition")
        if condition is not None:
            call = Call(node.start_byte, node.end_byte, VOID, "static_assert", [self.expr(condition)])
            out.append(ExprStmt(node.start_byte, node.end_byte, call))

    def nothing(self, _node: Node, _out: list[Stmt]) -> None:
        """Declares nothing and does nothing."""

    def scoped(self, node: Node) -> Stmt:
        """A sub-statement: one statement, in a block where it gives none or several."""
        mark = len(self.undo)
        out: list[Stmt] = []
        self.statement(node, out)
        self.leave(mark)
        return out[0] if len(out) == 1 else Block(node.start_byte, node.end_byte, out)

    def block(self, node: Node) -> Block:
        mark = len(self.undo)
        out: list[Stmt] = []
        statements = _statements
        careful = self.careful
        for child in node.children:
            kind = child.type
            if kind == "{" or kind == "}":
                continue
            if careful or kind not in statements or self.depth >= DEPTH:
                self.statement(child, out)
            else:
                self.depth += 1
                statements[kind](self, child, out)
                self.depth -= 1
        self.leave(mark)
        return Block(node.start_byte, node.end_byte, out)

    def compound_statement(self, node: Node, out: list[Stmt]) -> None:
        out.append(self.block(node))

    def expression_statement(self, node: Node, out: list[Stmt]) -> None:
        inner = node.children[0]
        kind = inner.type
        if kind == ";":
            return
        if kind == "gnu_asm_expression":
            self.asm(inner, out)
            return
        if kind == "parenthesized_expression" and inner.children[1].type == "compound_statement":
            out.append(self.block(inner.children[1]))  # GNU's statement expression, whose value nobody takes
            return
        if kind == "assignment_expression" or kind == "subscript_expression":
            left = inner.children[0]
            if (kind == "subscript_expression" or left.type == "subscript_expression") and self.pointer_to_array(
                inner, node, out
            ):
                return
        if kind in _READ_FOR_DECLARATION and self.declaration_read_as_expression(inner, node, out):
            return
        expr = self.expr(inner)
        if type(expr) is Assign and type(expr.target) is Member and expr.target.field in _CONFIG_FIELDS and not expr.op:
            base = expr.target.base
            if type(base) is Ref:
                fields = self.configs.setdefault(base.var, {})
                # A second assignment may be on another path: then it cannot be told which one counts.
                fields[expr.target.field] = None if expr.target.field in fields else expr.value
        out.append(ExprStmt(node.start_byte, node.end_byte, expr))

    def asm(self, node: Node, out: list[Stmt]) -> None:
        reads: list[Var] = []
        writes: list[Var] = []
        for child in node.children:
            if child.type == "gnu_asm_output_operand_list":
                writes += self.touched(child)[0]
            elif child.type == "gnu_asm_input_operand_list":
                reads += self.touched(child)[0]
        barrier = self.touched(node)[2]
        out.append(OpaqueStmt(node.start_byte, node.end_byte, "inline assembly", reads, writes, barrier))

    # Control flow.

    def condition(self, node: Node, out: list[Stmt]) -> Expr:
        """A condition clause; its init statement and declaration go to ``out``."""
        if node.type != "condition_clause":
            return self.expr(node)
        value: Expr | None = None
        for child in node.named_children:
            kind = child.type
            if kind == "init_statement":
                for inner in child.children:
                    self.statement(inner, out)
            elif kind == "declaration":
                self.declaration(child, out)
                last = out[-1] if out else None
                if isinstance(last, VarDecl):
                    value = Ref(last.var.start, last.var.end, last.var)
            else:
                value = self.expr(child)
        return value if value is not None else self.opaque(node, "an unusual condition")

    def if_statement(self, node: Node, out: list[Stmt]) -> None:
        mark = len(self.undo)
        before: list[Stmt] = []
        constexpr = False
        cond: Expr | None = None
        then: Stmt | None = None
        other: Stmt | None = None
        for child in node.children:
            kind = child.type
            if kind == "condition_clause":
                cond = self.condition(child, before)
            elif kind == "constexpr":
                constexpr = True
            elif kind == "else_clause":
                other = self.scoped(child.children[-1])
            elif kind != "if" and cond is not None and then is None:
                then = self.scoped(child)
        self.leave(mark)
        a, b = node.start_byte, node.end_byte
        if cond is None or then is None:
            self.opaque_statement(node, out, "an unusual if", gap=True)
            return
        result = If(a, b, cond, then, other, constexpr)
        out.append(Block(a, b, [*before, result]) if before else result)

    def for_statement(self, node: Node, out: list[Stmt]) -> None:
        mark = len(self.undo)
        init: list[Stmt] = []
        cond: Expr | None = None
        step: Expr | None = None
        body: Stmt | None = None
        part = 0
        header_end = node.end_byte
        for child in node.children:
            kind = child.type
            if kind == ";":
                part += 1
            elif kind == ")" and body is None:
                part = 3
                header_end = child.end_byte
            elif kind == "for" or kind == "(":
                continue
            elif part == 0:
                if kind == "declaration":
                    self.declaration(child, init)
                    part = 1
                else:
                    expr = self.expr(child)
                    init.append(ExprStmt(expr.start, expr.end, expr))
            elif part == 1:
                cond = self.expr(child)
            elif part == 2:
                step = self.expr(child)
            else:
                body = self.scoped(child)
        self.leave(mark)
        if body is None:
            self.opaque_statement(node, out, "an unusual for", gap=True)
            return
        out.append(For(node.start_byte, node.end_byte, init, cond, step, body, header_end))

    def while_statement(self, node: Node, out: list[Stmt]) -> None:
        children = [c for c in node.children if c.is_named]
        if len(children) != 2:
            self.opaque_statement(node, out, "an unusual while")
            return
        mark = len(self.undo)
        before: list[Stmt] = []
        cond = self.condition(children[0], before)
        if before:
            self.leave(mark)
            self.opaque_statement(node, out, "a declaration in a loop's condition")
            return
        body = self.scoped(children[1])
        self.leave(mark)
        out.append(While(node.start_byte, node.end_byte, cond, body, False, children[0].end_byte))

    def do_statement(self, node: Node, out: list[Stmt]) -> None:
        children = [c for c in node.children if c.is_named]
        if len(children) != 2:
            self.opaque_statement(node, out, "an unusual do")
            return
        body = self.scoped(children[0])
        cond = self.expr(children[1])
        out.append(While(node.start_byte, node.end_byte, cond, body, True, children[1].end_byte))

    def range_loop(self, node: Node, out: list[Stmt]) -> None:
        mark = len(self.undo)
        before: list[Stmt] = []
        children = node.children
        colon = next((i for i, c in enumerate(children) if c.type == ":"), None)
        body_node, range_node = node.child_by_field_name("body"), node.child_by_field_name("right")
        if colon is None or body_node is None or range_node is None:
            self.opaque_statement(node, out, "an unusual for", gap=True)
            return
        for child in children[:colon]:
            if child.type == "init_statement":
                self.statement(child, before)
        type_, flags, declarators = self.specified(children[:colon])
        range_ = self.initialiser(range_node, Unknown("a range"))
        if declarators:
            name_node, declared, ref = self.declare(type_, declarators[0])
            bindings = [n for n in descendants(declarators[0]) if n.type == "identifier"] if name_node is None else []
        else:
            name_node, declared, ref, bindings = None, type_, False, []
        if declared is AUTO:
            declared = self.element(range_.type)
        name = self.text(name_node) if name_node is not None else ""
        at = name_node or node
        var = Var(name, declared, "local", at.start_byte, at.end_byte, ref=ref, const=flags.const and not ref)
        if name:
            self.bind(name, var)
        for binding in bindings:
            text = self.text(binding)
            self.bind(text, Var(text, Unknown("a structured binding"), "local", binding.start_byte, binding.end_byte))
        body = self.scoped(body_node)
        self.leave(mark)
        loop = RangeFor(node.start_byte, node.end_byte, var, range_, body)
        out.append(Block(node.start_byte, node.end_byte, [*before, loop]) if before else loop)

    def switch_statement(self, node: Node, out: list[Stmt]) -> None:
        named = [c for c in node.children if c.is_named]
        if len(named) != 2 or named[1].type != "compound_statement":
            self.opaque_statement(node, out, "an unusual switch")
            return
        mark = len(self.undo)
        before: list[Stmt] = []
        cond = self.condition(named[0], before)
        cases: list[Case] = []
        for child in named[1].children:
            if child.type != "case_statement":
                if child.is_named and cases:
                    self.statement(child, cases[-1].body)
                continue
            labels: list[Expr] = []
            body: list[Stmt] = []
            past = False
            for inner in child.children:
                kind = inner.type
                if past:
                    self.statement(inner, body)
                elif kind == ":":
                    past = True
                elif inner.is_named:
                    labels.append(self.expr(inner))
            if cases and not cases[-1].body and cases[-1].labels and labels:
                last = cases[-1]
                last.labels += labels
                last.body, last.end = body, child.end_byte
            else:
                cases.append(Case(child.start_byte, child.end_byte, labels, body))
        self.leave(mark)
        switch = Switch(node.start_byte, node.end_byte, cond, cases)
        out.append(Block(node.start_byte, node.end_byte, [*before, switch]) if before else switch)

    def return_statement(self, node: Node, out: list[Stmt]) -> None:
        value: Expr | None = None
        for child in node.children:
            if child.is_named:
                value = self.initialiser(child, self.result)
                if self.result is AUTO:
                    self.result = decay(value.type)
        out.append(Return(node.start_byte, node.end_byte, value))

    def break_statement(self, node: Node, out: list[Stmt]) -> None:
        out.append(Break(node.start_byte, node.end_byte))

    def continue_statement(self, node: Node, out: list[Stmt]) -> None:
        out.append(Continue(node.start_byte, node.end_byte))

    def labeled_statement(self, node: Node, out: list[Stmt]) -> None:
        label, inner = node.children[0], node.children[-1]
        out.append(OpaqueStmt(label.start_byte, label.end_byte, "a label", [], [], False))
        if inner.type != ":":
            self.statement(inner, out)

    def goto_statement(self, node: Node, out: list[Stmt]) -> None:
        out.append(OpaqueStmt(node.start_byte, node.end_byte, "goto", [], [], False, jumps=True))

    def attributed_statement(self, node: Node, out: list[Stmt]) -> None:
        self.statement(node.children[-1], out)

    def try_statement(self, node: Node, out: list[Stmt]) -> None:
        for child in node.children:
            if child.type == "compound_statement":
                out.append(self.block(child))
            elif child.type == "catch_clause":
                self.opaque_statement(child, out, "an exception handler")

    def throw_statement(self, node: Node, out: list[Stmt]) -> None:
        """``throw`` leaves the function."""
        out.append(Return(node.start_byte, node.end_byte, None, throws=True))

    # Lambdas.

    def lambda_expression(self, n: Node) -> Expr:
        mark = len(self.undo)
        a, b = n.start_byte, n.end_byte
        body_node: Node | None = None
        declarator: Node | None = None
        kind: FunctionKind = self.kind if self.kind != "kernel" else "device"
        for child in n.children:
            if child.type == "compound_statement":
                body_node = child
            elif child.type == "lambda_declarator":
                declarator = child
            elif child.type == "template_parameter_list":
                for name, what in template_names(self.s, child):
                    if what == "type" and name:
                        from cudalint.ir.types import Param

                        self.bind(name, Param(name))
        if body_node is None:
            return self.opaque(n, "an unusual lambda")
        copies, named, made = False, set[str](), list[Var]()
        marks = [child.type for child in n.children[0].children]
        for mark_before, capture in zip(marks, n.children[0].children[1:]):
            if capture.type == "lambda_default_capture":
                copies = self.text(capture) == "="
            elif capture.type == "identifier" and (mark_before == "&") is copies:
                named.add(self.text(capture))
            elif capture.type == "lambda_capture_initializer" and capture.named_child_count == 2:
                name_node, value_node = capture.named_children
                value = self.expr(value_node)
                var = Var(
                    self.text(name_node),
                    decay(value.type),
                    "local",
                    name_node.start_byte,
                    name_node.end_byte,
                    init=value,
                )
                if capture.children[0].type != "&":
                    made.append(var)
                self.bind(var.name, var)
        head_end = declarator.start_byte if declarator is not None else body_node.start_byte
        head = self.file.text[n.start_byte : head_end]
        if b"__device__" in head:
            kind = "both" if b"__host__" in head else "device"
        params: list[Var] = []
        returns: Type = AUTO
        if declarator is not None:
            for child in declarator.children:
                if child.type == "parameter_list":
                    params = self.parameters(child)
                elif child.type == "trailing_return_type":
                    returns = self.type_of(child.named_children[-1])
        result, self.result = self.result, returns
        body = self.block(body_node)
        result, self.result = self.result, result
        self.leave(mark)
        function = Function(
            self.within.name if self.within is not None else "", kind, params, VOID if result is AUTO else result,
            body, self.file, a, b, within=self.within,
        )  # fmt: skip
        type_ = Struct(f"lambda@{a}", self.file.path)
        self.lambdas[type_] = function
        return Lambda(a, b, type_, function, copies, frozenset(named), tuple(made))


_statements: dict[str, Callable[[Lowerer, Node, list[Stmt]], None]] = {
    kind: getattr(Lowerer, method) for kind, method in _STATEMENTS.items()
}


_BRACKETS = pattern(r"[<>(),;{}]")
_INTEGER = pattern(r"(0[xX][0-9a-fA-F]+|[1-9][0-9]*|0)[uUlL]*")
_LONGEST = 1000
"""Characters in which a list of template arguments ends."""


def _give_usual(decl: FunctionDecl, opened: list[Var]) -> None:
    """Tells open template parameters which values they have where the file names the template with arguments."""
    names = [name for name, _ in decl.template]
    own = [var for var in opened if var.name in names]
    found: dict[tuple[int, ...], None] = {}
    apart: list[set[tuple[int, ...]]] = [set() for _ in own]
    for arguments in _named(decl):
        given = dict(zip(names, arguments, strict=False))
        # What is not given has its default.
        values = [_literal(given[x.name], decl) if x.name in given else x.usual for x in own]
        if all(values):
            found.setdefault(tuple(x[0] for x in values))
        for seen, value in zip(apart, values, strict=True):
            seen.add(value)
    if found:
        for var, column in zip(own, zip(*found, strict=True), strict=False):
            var.usual = column
    else:
        for var, seen in zip(own, apart, strict=True):
            if len(seen) == 1:
                (var.usual,) = seen  # the same wherever the template is named, whatever the others are


def _named(decl: FunctionDecl) -> list[list[str]]:
    """The lists of template arguments that follow the function's name in its file."""
    syntax = syntax_of(decl)
    if syntax.named is None:
        source, name = decl.file.declarations.source, decl.name
        # A pattern that begins with a literal is searched for much faster than one that begins with a word's border.
        found = re.finditer(rf"{re.escape(in_bytes(name))}\s*<(?!<)", source)
        syntax.named = [
            template_arguments(source, x.end()) for x in found if not source[x.start() - 1 : x.start()].isidentifier()
        ]
    return syntax.named


def _instance(decl: FunctionDecl, scope: str, params: list[Var]) -> dict[str, Type]:
    """The classes that open type parameters stand for as types of whole parameters (``const P &sizes``), where the file
    instantiates the template explicitly: those of the first instance, which names what others have too."""
    names = {x.name for x in (p.type for p in params) if isinstance(x, Param)}
    declarations = decl.file.declarations
    source = declarations.source
    if names.isdisjoint(name for name, _ in decl.template) or "template" not in source:
        return {}
    for found in re.finditer(rf"{re.escape(in_bytes(decl.name))}\s*[<(]", source):
        start = max(source.rfind(sign, 0, found.start()) for sign in ";{}") + 1
        end = source.find(";", found.end())
        if not _INSTANTIATION.match(source, start, found.start()) or end < 0:
            continue
        root = parse_ranges(declarations.masked, [(start, end + 1)])
        lists = [x for x in descendants(root) if x.type == "parameter_list"]
        if lists:
            given = Lowerer(declarations, scope).parameters(min(lists, key=lambda x: x.start_byte))
            pairs = [(x.type, y.type) for x, y in zip(params, given)]
            return {x.name: y for x, y in pairs if isinstance(x, Param) and isinstance(y, Struct)}
    return {}


_INSTANTIATION = pattern(r"(?:\s*#[^\n]*\n)*\s*(?:extern\s+)?template\b(?!\s*<)")


def _literal(text: str, decl: FunctionDecl) -> tuple[int, ...]:
    """The value of an integer or truth value as written, or of an enumerator; empty for what may be anything."""
    number = _INTEGER.fullmatch(text)
    if number is not None:
        return (int(number[1], 0),)
    if text in ("true", "false"):
        return (int(text == "true"),)
    named = decl.file.declarations.scope.value(text, "") if text.isidentifier() else None
    value = global_variable(named).init if named is not None and named.enum is not None else None
    return (value.value,) if isinstance(value, Const) and isinstance(value.value, int) else ()


def template_arguments(source: str, start: int) -> list[str]:
    """The template arguments from ``start`` to the bracket that closes them; none where none does."""
    found, depth, last = [], 0, start
    for match in _BRACKETS.finditer(source, start, start + _LONGEST):
        sign, at = match[0], match.start()
        if sign in ";{}":
            return []
        if depth == 0 and sign in ",>":
            found.append(source[last:at].strip())
            if sign == ">":
                return found
            last = at + 1
        depth += (sign in "<(") - (sign in ">)")
    return []


def lower_function(decl: FunctionDecl, bindings: dict[str, Type | int], asked: bool = False) -> Function:
    """The function behind ``decl`` with these template parameters bound; the others stay open.

    ``asked``: the type oracle is asked for each type that stays unknown.
    """
    syntax = syntax_of(decl)
    kind = Lowerer
    if asked:
        from copy import copy

        from cudalint.frontend.oracle import Asking, answers

        plain = decl.lower(bindings)
        if not answers(plain):
            result = copy(plain)
            result.asked = True
            return result
        kind = Asking
    lowerer = kind(decl.file.declarations, syntax.scope)
    lowerer.kind, lowerer.within = decl.kind, decl
    opened = lowerer.bind_templates(syntax.templates, bindings)
    if opened and decl.template:
        _give_usual(decl, opened)
    if decl.owner:
        lowerer.this = _owner(lowerer, decl)
    body_node = syntax.body
    launch_bounds: Expr | None = None
    for child in syntax.node.children:
        if child.type == "launch_bounds":
            launch_bounds = lowerer.expr(child.named_children[0]) if child.named_child_count else None
    returns = returned(lowerer, syntax)
    lowerer.result = returns
    params = lowerer.parameters(parameter_list(syntax.inner))
    if decl.kind == "host" and decl.template and (known := _instance(decl, syntax.scope, params)):
        lowerer.names.update(known)
        params = lowerer.parameters(parameter_list(syntax.inner))
    if body_node is None:
        body = Block(decl.end, decl.end, [])
    else:
        lowerer.careful = body_node.has_error
        statements: list[Stmt] = []
        if b"cudalint:" in decl.file.raw:
            _stated_above(lowerer, syntax.node, statements)
        for child in syntax.node.children:
            if child.type == "field_initializer_list":
                _field_initialisers(lowerer, child, statements)
        if body_node.type == "try_statement":
            lowerer.try_statement(body_node, statements)
            body = Block(body_node.start_byte, body_node.end_byte, statements)
        else:
            body = lowerer.block(body_node)
            body.body[:0] = statements
    deduced = lowerer.result
    function = Function(
        decl.name, decl.kind, params, VOID if deduced is AUTO else deduced, body, decl.file, decl.start, decl.end,
        decl=decl, template=opened,
        launch_bounds=launch_bounds,
    )  # fmt: skip
    function.asked, function.doubts = asked, lowerer.doubts
    return function


def default_arguments(function: Function, given: int) -> list[Expr | None]:
    """The default arguments of the parameters that a call of a lowered function leaves out."""
    missing = function.params[given:]
    decl = function.decl
    found: list[Expr | None] = []
    if missing and decl is not None:
        syntax = syntax_of(decl)
        lowerer = Lowerer(decl.file.declarations, syntax.scope)
        for node in parameter_nodes(lowerer.s, parameter_list(syntax.inner))[given : len(function.params)]:
            value = node.child_by_field_name("default_value")
            found.append(lowerer.expr(value) if value is not None else None)
    return found + [None] * (len(missing) - len(found))


def _stated_above(lowerer: Lowerer, node: Node, out: list[Stmt]) -> None:
    """What comments above a function state of its parameters, which reads as assertions between declarations."""
    while node.parent is not None and node.parent.type == "template_declaration":
        node = node.parent
    above: list[Node] = []
    while (before := node.prev_sibling) is not None and lowerer.text(before).startswith("assert("):
        above.append(before)
        node = before
    for each in reversed(above):
        lowerer.statement(each, out)


def _owner(lowerer: Lowerer, decl: FunctionDecl) -> Struct | None:
    """The class of a method, with its template parameters as they are bound."""
    owner = decl.file.declarations.types.get(decl.owner) or lowerer.scope.type(decl.owner, "")
    if owner is None or owner.kind != "class":
        return None
    arguments: list[Type | int | None] = []
    if owner.templates and not (owner.in_class and len(owner.templates) == 0):
        for name, _ in template_names(owner.declarations.source, owner.templates[-1]):
            bound = lowerer.names.get(name)
            if isinstance(bound, Type):
                arguments.append(bound)
            elif isinstance(bound, Const) and isinstance(bound.value, int):
                arguments.append(bound.value)
            else:
                arguments.append(None)
    found = lowerer.resolve(owner, tuple(arguments))
    return found if isinstance(found, Struct) else None


def _field_initialisers(lowerer: Lowerer, node: Node, out: list[Stmt]) -> None:
    for child in node.named_children:
        if child.type != "field_initializer" or child.child_count < 2:
            continue
        name_node, value_node = child.children[0], child.children[-1]
        field = lowerer.member(lowerer.text(name_node))
        if field is None:
            continue
        value = lowerer.initial_value(value_node, field.type)
        if value is not None:
            a, b = child.start_byte, child.end_byte
            target = Ref(name_node.start_byte, name_node.end_byte, field)
            out.append(ExprStmt(a, b, lowerer.assign(a, b, "", target, value)))


def global_variable(decl: ValueDecl, arguments: tuple[Type | int | None, ...] = (), instances: int = 0) -> Var:
    """The variable behind a namespace-scope declaration, static member or enumerator.

    ``arguments`` are the template arguments of its class, ``instances`` how deep in instances of
    templates it is asked for.
    """
    if arguments in decl.lowered:
        return decl.lowered[arguments]
    lowerer = Lowerer(decl.declarations, decl.scope)
    lowerer.instances = instances
    if decl.enum is not None:
        value = _enumerators(decl, lowerer, arguments).get(decl.name)
        a, b = decl.node.start_byte, decl.node.end_byte
        init = Const(a, b, I32, value, decl.name) if value is not None else None
        base = lowerer.resolve(decl.enum, ())
        found = decl.lowered[arguments] = Var(decl.name, base, "global", a, b, const=True, init=init)
        return found
    lowerer.bind_templates(decl.templates, None, arguments)
    children = decl.node.children
    equals = next((i for i, c in enumerate(children) if c.type == "="), len(children))
    type_, flags, _ = lowerer.specified(children[:equals])
    declarator, value_node = decl.declarator, None
    if declarator.type == "init_declarator":
        declarator, value_node = declarator.children[0], declarator.children[-1]
    elif equals < len(children):
        value_node = children[equals + 1]
    else:
        following = declarator.next_sibling
        if following is not None and following.type == "initializer_list":
            value_node = following
    name_node, declared, ref = lowerer.declare(type_, declarator)
    at = name_node or decl.node
    kind: VarKind = "constant" if flags.constant else "shared" if flags.shared else "global"
    const = lowerer.const_of(declarator, flags, ref)
    var = Var(
        decl.name, declared, kind, at.start_byte, at.end_byte, const=const, ref=ref, extern=flags.extern,
        static=flags.static,
    )  # fmt: skip
    if instances > INSTANCES:
        return var
    # Before its initialiser is read: that may name the variable.
    decl.lowered[arguments] = var
    if value_node is not None and value_node.end_byte - value_node.start_byte <= _LONG_INITIALISER:
        var.init = lowerer.initial_value(value_node, declared)
        var.type = completed(declared, var.init, ref)
    elif declared is AUTO:
        var.type = Unknown("auto with a long initialiser")
    elif isinstance(declared, Array) and declared.extent is None and value_node is not None:
        var.type = Array(declared.element, value_node.named_child_count)
    return var


def _enumerators(
    decl: ValueDecl, lowerer: Lowerer, arguments: tuple[Type | int | None, ...]
) -> dict[str, int | None]:  # fmt: skip
    """The values of the enumerators of ``decl``'s enum, None where they cannot be told."""
    assert decl.enum is not None
    values = decl.enum.constants.get(arguments)
    if values is None:
        values = decl.enum.constants[arguments] = {}
        if decl.enum.templates:
            lowerer.bind_templates(decl.enum.templates, None, arguments)
        following: int | None = 0
        body = decl.enum.node.child_by_field_name("body")
        for child in body.children if body is not None else ():
            if child.type != "enumerator":
                continue
            if child.child_count >= 3:
                following = fold(lowerer.expr(child.children[-1]))
            name = lowerer.text(child.children[0])
            values[name] = following
            if following is not None:
                lowerer.names[name] = Const(child.start_byte, child.end_byte, I32, following, name)
                following += 1
    return values


def _broken_head(node: Node) -> bool:
    """Whether an error is in a statement itself, not in a statement below it."""
    if broken(node):
        return True
    return node.type == "declaration" and node.has_error and any(
        c.has_error
        and (
            c.type in ("function_declarator", "pointer_declarator", "parenthesized_declarator", "array_declarator")
            or (c.type == "init_declarator" and broken(c))
        )
        for c in node.children
    )  # fmt: skip
