"""Pieces of repairs: where a name is declared, what a size is called in a kernel, statements put under a test.

Imported where a finding is made: a run without findings needs none of it.
"""

from __future__ import annotations

import re
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from cudalint.facts import terms as t
from cudalint.facts.assigned import children
from cudalint.facts.uniformity import expand
from cudalint.ir import nodes as ir
from cudalint.ir.types import Int
from cudalint.lazy import pattern
from cudalint.rules.draft import EditDraft

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cudalint.facts.events import Comparison, Flow
    from cudalint.facts.model import Kernel, Launch
    from cudalint.facts.terms import Poly, Term
    from cudalint.ir.nodes import Expr, Function, Node, Stmt, Var

_FLIPPED = {"<": ">=", ">=": "<", ">": "<=", "<=": ">", "==": "!=", "!=": "=="}
_FIELD = pattern(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
_INDENT = "    "


def _changed(node: Node) -> Iterable[Var]:
    """The variables that a node gives a value, or may."""
    if isinstance(node, (ir.Opaque, ir.OpaqueStmt)):
        return node.writes
    target: Node | None = None
    if isinstance(node, (ir.Assign, ir.IncDec)):
        target = node.target
        while isinstance(target, (ir.Member, ir.Cast)):
            target = target.base if isinstance(target, ir.Member) else target.operand
    elif isinstance(node, ir.AddrOf):
        target = node.operand
    return (target.var,) if isinstance(target, ir.Ref) else ()


class Body:
    """The nodes of a function: parents, uses of variables, text."""

    def __init__(self, fn: Function) -> None:
        self.fn, self.file, self.text = fn, fn.file, fn.file.text
        self.parents: dict[int, Node] = {}
        self.nodes: list[Node] = []
        stack: list[Node] = [fn.body]
        while stack:
            node = stack.pop()
            self.nodes.append(node)
            for child in children(node):
                self.parents[id(child)] = node
                stack.append(child)

    def parent(self, node: Node) -> Node | None:
        return self.parents.get(id(node))

    def source(self, node: Node) -> str:
        """The text of a node, as the user wrote it."""
        start, end = self.file.origin(node.start, node.end)
        return self.file.raw[start:end].decode("utf-8", "replace")

    def statement(self, node: Node) -> Stmt | None:
        """The innermost statement that a node stands in."""
        item: Node | None = node
        while item is not None and not isinstance(item, ir.Stmt):
            item = self.parent(item)
        return item

    def path(self, node: Node) -> list[Stmt]:
        """The statements that a node stands in, from the outside in."""
        found: list[Stmt] = []
        item: Node | None = node
        while item is not None:
            if isinstance(item, ir.Stmt):
                found.append(item)
            item = self.parent(item)
        return found[::-1]

    def uses(self, var: Var) -> list[ir.Ref]:
        return [x for x in self.nodes if isinstance(x, ir.Ref) and x.var is var]

    def changes(self, var: Var) -> Sequence[Node]:
        """Where a variable gets another value than its first, or may: opaque parts, its address."""
        return self._changes.get(var, ())

    @cached_property
    def _changes(self) -> dict[Var, list[Node]]:
        found: dict[Var, list[Node]] = {}
        for node in self.nodes:
            for var in _changed(node):
                found.setdefault(var, []).append(node)
        return found

    def hidden(self, var: Var) -> bool:
        """Whether a variable may be used where nobody sees how: in assembly, in a branch of ``#if`` not taken."""
        if any(var in x.reads for x in self.nodes if isinstance(x, (ir.Opaque, ir.OpaqueStmt))):
            return True
        first, last = self.file.origin(self.fn.start, self.fn.end)
        word = re.compile(rb"\b" + re.escape(var.name.encode()) + rb"\b")
        there = self.file.raw[first:last], self.text[self.fn.start : self.fn.end]
        written, seen = (len(word.findall(x)) for x in there)
        return written > seen

    def steady(self, var: Var) -> bool:
        """Whether a variable keeps its first value."""
        return not self.changes(var)

    def declaration(self, var: Var) -> ir.VarDecl | None:
        return next((x for x in self._declared.get(var.name, ()) if x.var is var), None)

    @cached_property
    def _declared(self) -> dict[str, list[ir.VarDecl]]:
        """The declarations of variables by name."""
        found: dict[str, list[ir.VarDecl]] = {}
        for node in self.nodes:
            if isinstance(node, ir.VarDecl):
                found.setdefault(node.var.name, []).append(node)
        return found

    def visible(self, var: Var, at: Node) -> bool:
        """Whether a variable's name means it at a place: declared before in a block around it, and not hidden."""
        named = self._declared.get(var.name, [])
        if var in self.fn.params:
            return not named
        if len(named) != 1 or named[0].var is not var or named[0].end > at.start:
            return False
        scope = self.parent(named[0])
        return scope is not None and scope.start <= at.start and at.end <= scope.end

    def operator(self, node: ir.Binary | ir.Logical) -> tuple[int, int] | None:
        """Where the operator itself stands."""
        between = self.text[node.left.end : node.right.start]
        found = re.search(re.escape(node.op.encode()), between)
        if found is None or len(re.findall(rb"[<>=!&|]+", between)) != 1:
            return None
        return node.left.end + found.start(), node.left.end + found.end()

    def lone(self, start: int, end: int) -> bool:
        """Whether no macro made any of a region."""
        return self.file.macro_use(start) is None and self.file.macro_use(end - 1) is None

    # Conditions

    def negated(self, cond: Expr) -> str | None:
        """The source of the opposite of a condition."""
        if isinstance(cond, ir.Binary) and cond.op in _FLIPPED:
            at = self.operator(cond)
            if at is None or not self.lone(cond.start, cond.end):
                return None
            text = self.text
            pieces = (text[cond.start : at[0]], _FLIPPED[cond.op].encode(), text[at[1] : cond.end])
            return b"".join(pieces).decode("utf-8", "replace")
        if isinstance(cond, ir.Logical):
            left, right = self.negated(cond.left), self.negated(cond.right)
            if left is None or right is None:
                return None
            if cond.op == "&&":
                return f"{left} || {right}"
            left, right = (f"({x})" if "||" in x else x for x in (left, right))
            return f"{left} && {right}"
        if isinstance(cond, ir.Unary) and cond.op == "!":
            held = self.source(cond.operand)
            return f"({held})" if isinstance(cond.operand, (ir.Logical, ir.Binary, ir.Cond)) else held
        return f"!({self.source(cond)})" if self.lone(cond.start, cond.end) else None

    # Statements

    def line_start(self, at: int) -> int:
        return self.text.rfind(b"\n", 0, at) + 1

    def indent(self, at: int) -> str:
        line = self.text[self.line_start(at) : at]
        return line[: len(line) - len(line.lstrip())].decode()

    def under(self, cond: str, statements: Sequence[Stmt]) -> list[EditDraft] | None:
        """Neighbouring statements put under ``if (cond)``; None where that changes what an ``else`` belongs to."""
        first, last = statements[0], statements[-1]
        if not self.lone(first.start, last.end):
            return None
        parent = self.parent(first)
        if len(statements) == 1 and not isinstance(first, ir.VarDecl):
            if isinstance(parent, ir.If) and parent.other is not None and parent.then is first:
                return None
            inner_cond = first.cond if isinstance(first, ir.If) and first.other is None else None
            if isinstance(inner_cond, (ir.Binary, ir.Logical, ir.Ref, ir.Call, ir.Member, ir.Index)):
                # One `if` is enough, if its own condition may be asked later as well.
                outer = f"({cond})" if "||" in cond else cond
                at, mixed = inner_cond.start, isinstance(inner_cond, ir.Logical) and inner_cond.op == "||"
                edits = [EditDraft(self.file, at, at, f"{outer} && {'(' if mixed else ''}")]
                return [*edits, EditDraft(self.file, inner_cond.end, inner_cond.end, ")")] if mixed else edits
            return [EditDraft(self.file, first.start, first.start, f"if ({cond}) ")]
        if not isinstance(parent, ir.Block):
            return None
        outer = self.indent(first.start)
        begin = self.line_start(first.start)
        if self.text[begin : first.start].strip():
            return None
        edits = [EditDraft(self.file, first.start, first.start, f"if ({cond}) {{\n{outer}{_INDENT}")]
        at = self.text.find(b"\n", first.start, last.end)
        while at >= 0:
            if self.text[at + 1 : at + 2] not in (b"\n", b"\r", b"#"):
                edits.append(EditDraft(self.file, at + 1, at + 1, _INDENT))
            at = self.text.find(b"\n", at + 1, last.end)
        # A comment at the end of the last line stays with its statement.
        end = self.text.find(b"\n", last.end)
        rest = self.text[last.end : end if end >= 0 else len(self.text)]
        place = last.end if rest.strip() and not rest.lstrip().startswith(b"//") else last.end + len(rest.rstrip())
        return [*edits, EditDraft(self.file, place, place, f"\n{outer}}}")]

    def whole_lines(self, statement: Stmt) -> tuple[int, int] | None:
        """The lines of a statement with the line's end, where nothing but a comment shares them."""
        begin = self.line_start(statement.start)
        end = self.text.find(b"\n", statement.end)
        if end < 0 or self.text[begin : statement.start].strip():
            return None
        rest = self.text[statement.end : end].strip()
        if rest and not (rest.startswith(b"//") or (rest.startswith(b"/*") and rest.endswith(b"*/"))):
            return None
        return (begin, end + 1) if self.file.editable(begin, end + 1) is not None else None

    def removed(self, statement: Stmt) -> EditDraft | None:
        """A statement taken out with its lines."""
        lines = self.whole_lines(statement)
        return EditDraft(self.file, *lines, "") if lines is not None else None

    def moved(self, var: Var, test: ir.If, unread: Node | None = None) -> list[EditDraft] | None:
        """A local's declaration brought below a test: into its body, or behind an ``if (…) return;``. Uses inside
        ``unread`` do not count. None where something else needs the local, or its value would be another there."""
        declared = self.declaration(var)
        if declared is None or not isinstance(self.parent(declared), ir.Block) or not plain(declared.init):
            return None
        alone = sum(isinstance(x, ir.VarDecl) and x.start == declared.start for x in self.nodes) == 1
        lines = self.whole_lines(declared)
        if not alone or lines is None or declared.end > test.start or not self.steady(var) or self.hidden(var):
            return None
        if not all(self.steady(x.var) for x in inner(declared) if isinstance(x, ir.Ref)):
            return None
        uses = [x for x in self.uses(var) if unread is None or not unread.start <= x.start <= unread.end]
        first, last = self.file.origin(*lines)
        text = self.file.raw[first:last].decode("utf-8", "replace")
        gone = EditDraft(self.file, *lines, "")
        if leaves(test.then):
            end = self.text.find(b"\n", test.end) + 1
            if not end or any(x.start < end for x in uses):
                return None
            return [gone, EditDraft(self.file, end, end, text)]
        body = test.then
        if any(not body.start <= x.start < body.end for x in uses):
            return None
        outer = self.indent(test.start)
        if isinstance(body, ir.Block):
            at = self.text.find(b"\n", body.start) + 1
            if not body.body or not 0 < at <= body.body[0].start:
                return None
            return [gone, EditDraft(self.file, at, at, f"{outer}{_INDENT}{text.lstrip()}")]
        before = len(self.text[: body.start].rstrip())
        end = self.text.find(b"\n", body.end)
        rest = self.text[body.end : end].strip()
        if end < 0 or (rest and not rest.startswith(b"//")):
            return None
        opened = f" {{\n{outer}{_INDENT}{text.strip()}\n{outer}{_INDENT}"
        return [
            gone,
            EditDraft(self.file, before, body.start, opened),
            EditDraft(self.file, end, end, f"\n{outer}}}"),
        ]


# --- names ----------------------------------------------------------------------------------------


def local_of(kernel: Kernel, body: Body, value: Poly, at: Node) -> Var | None:
    """The local of a kernel that holds a value and still does at a place, where its name can be used."""
    for definition in kernel.flow.definitions:
        if definition.stack or definition.fn is not body.fn or not isinstance(definition.term.type, Int):
            continue
        var = definition.var
        if expand(t.poly(definition.term)) == value and body.visible(var, at) and not var.ref and body.steady(var):
            return var
    return None


def spelled(body: Body, value: Poly, at: Node) -> str | None:
    """How a kernel writes a size: a parameter, a field of one, a product of those; None where it does not."""
    if len(value) != 1 or t.constant(value) is not None:
        return None
    ((atoms, factor),) = value.items()
    names = [_called(body, x, at) for x in atoms]
    if factor != 1 or None in names:
        return None
    return " * ".join(x for x in names if x is not None)


def _called(body: Body, size: Term, at: Node) -> str | None:
    if size.op != "atom" or size.data.kind != "param":
        return None
    name: str = size.data.name
    first = name.partition(".")[0]
    var = next((x for x in body.fn.params if x.name == first), None)
    if var is None or not body.visible(var, at) or not body.steady(var):
        return None
    return name if "." not in name or _FIELD.fullmatch(name) else None


def parameter(launch: Launch, body: Body, size: Poly, at: Node, widest: int = 64) -> str | None:
    """The kernel's parameter, or a field of one, for which a launch passes a size of the host as it is."""
    for formal, actual in launch.mapping.items():
        fits = isinstance(formal.type, Int) and 32 <= formal.type.bits <= widest
        if fits and t.poly(actual) == size and t.constant(size) is None:
            name = _called(body, formal, at)
            if name is not None:
                return name
    return None


def host_name(launch: Launch, body: Body, size: Term) -> str | None:
    """The variable of a launch's function that holds a size when the launch is reached."""
    event = launch.event
    if event.stack:
        return None
    named = [x for x in event.fn.params if size.data.kind == "param" and x.name == size.data.name]
    for definition in launch.flow.definitions:
        value = definition.term
        while value.op == "cast":
            value = value.args[0]
        if (
            value is size
            and definition.fn is event.fn
            and not definition.stack
            and isinstance(definition.term.type, Int)
        ):
            named.append(definition.var)
    for var in named:
        if isinstance(var.type, Int) and not var.ref and body.visible(var, event.node) and body.steady(var):
            return var.name
    return None


@lru_cache(maxsize=2)
def body_of(fn: Function) -> Body:
    """The body of the function that is being looked at; its findings and launches come one after another."""
    return Body(fn)


def under_sizes(launch: Launch, sizes: Sequence[Term]) -> list[EditDraft] | None:
    """``if (n > 0) `` in front of a launch that is a statement of its own."""
    body = body_of(launch.event.fn)
    names = [host_name(launch, body, x) for x in sizes]
    statement = body.statement(launch.event.node)
    if not names or None in names or not isinstance(statement, ir.ExprStmt) or statement.expr is not launch.event.node:
        return None
    return body.under(" && ".join(f"{x} > 0" for x in names), [statement])


# --- tests ----------------------------------------------------------------------------------------


def comparison(flow: Flow, fn: Function, term: Term) -> Comparison | None:
    """Where a condition that holds is written in a function, as itself or as its opposite."""
    wanted = (term, t.lnot(term))
    found = [x for x in flow.comparisons if x.term in wanted and x.fn is fn and not x.stack]
    return found[0] if len({(x.node.start, x.node.end) for x in found}) == 1 else None


def test_of(body: Body, node: Expr) -> tuple[ir.If, bool] | None:
    """The ``if`` that a comparison decides, and whether its body runs where the comparison holds: true for
    ``if (i < n) …``, false for ``if (i >= n) return;``."""
    item: Node = node
    parent = body.parent(item)
    while isinstance(parent, ir.Logical):
        item, parent = parent, body.parent(parent)
    if not isinstance(parent, ir.If) or parent.cond is not item or parent.other is not None:
        return None
    return parent, not leaves(parent.then)


def leaves(statement: Stmt) -> bool:
    """Whether a statement is a plain ``return`` (or ``continue``), alone or in braces."""
    while isinstance(statement, ir.Block) and len(statement.body) == 1:
        statement = statement.body[0]
    return (isinstance(statement, ir.Return) and statement.value is None and not statement.throws) or isinstance(
        statement, ir.Continue
    )


def plain(node: Expr | None) -> bool:
    """Whether a value may be written twice and moved: variables, members and constants, and arithmetic on them."""
    if isinstance(node, (ir.Ref, ir.Const, ir.Special)):
        return True
    if isinstance(node, ir.Member):
        return plain(node.base)
    if isinstance(node, (ir.Binary, ir.Logical)):
        return plain(node.left) and plain(node.right)
    return isinstance(node, (ir.Cast, ir.Unary)) and plain(node.operand)


def inner(node: Node) -> Iterator[Node]:
    """A node and all below it."""
    stack = [node]
    while stack:
        item = stack.pop()
        yield item
        stack.extend(children(item))
