"""Repairs of narrow indices: 64 bits for a variable, for what it is made from and for what is made of it.

Imported where a finding is made: a run without findings needs none of it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cudalint.ir import nodes as ir
from cudalint.ir.types import U32, Float, Int, Ptr
from cudalint.rules.draft import EditDraft
from cudalint.rules.edits import body_of, inner

if TYPE_CHECKING:
    from cudalint.ir.nodes import Expr, Function, Node, Var

_TYPE = re.compile(
    rb"(?:\s|\bconst\b)*"
    rb"(?P<type>unsigned\s+int|signed\s+int|unsigned|signed|(?!const\b|static\b|volatile\b)[A-Za-z_][\w:]*)"
    rb"(?:\s|\bconst\b)*"
)
_CAST = re.compile(
    rb"\(\s*(?P<c>unsigned\s+int|unsigned|[A-Za-z_][\w:]*)\s*\)"
    rb"|static_cast\s*<\s*(?P<s>unsigned\s+int|unsigned|[A-Za-z_][\w:]*)\s*>"
    rb"|(?P<f>unsigned|[A-Za-z_][\w:]*)\s*\("
)
_KEEPS = frozenset({"+", "-", "*", "/", "%", ">>", "<<", "&", "|"})
_LINEAR = frozenset({"+", "-", "*", "<<"})
_SUMS = frozenset({"", "+", "-"})
_COMPARES = frozenset({"<", "<=", ">", ">=", "==", "!="})
_COMPOUND = frozenset({"", "+", "-", "*", "&", "|", "^"})
"""Assignments whose lower 32 bits hang on the lower 32 bits of what they are given alone."""
_MIXER = 1 << 16
"""A factor from here on is one of a hash: its product wraps on purpose."""


class Cannot(Exception):
    """The repair cannot be done whole."""


def is_narrow(type_: object) -> bool:
    return isinstance(type_, Int) and type_.bits == 32


class Widening:
    """Collects the edits that give variables of a function 64 bits.

    Every product that goes into one is cast, every local that takes one on to an address is widened as well;
    :class:`Cannot` is raised where that would change more than the width: a call whose overload hangs on the type, a
    hash that wraps on purpose, a type that others share.
    """

    def __init__(
        self, fn: Function, *, parameters: bool = False, quotients: bool = False, within: Expr | None = None
    ) -> None:  # fmt: skip
        self.body = body_of(fn)
        self.within = within
        """An expression whose value is taken in 64 bits: what is made of variables in it is no concern."""
        self.parameters = parameters
        self.quotients = quotients
        """Whether what is divided may still be large: a local that is made so is widened as well."""
        self.variables: dict[Var, None] = {}
        self._casts: dict[int, str] = {}
        self._types: dict[int, tuple[int, str]] = {}
        self._written: dict[int, tuple[int, str]] = {}

    def edits(self) -> tuple[EditDraft, ...]:
        """Everything that was asked for."""
        declared: set[Var] = set()
        while todo := [x for x in self.variables if x not in declared]:
            for var in todo:
                self._declare(var)
            declared.update(todo)
        file = self.body.file
        changes = [EditDraft(file, at, at, text) for at, text in self._casts.items()]
        changes += [
            EditDraft(file, at, end, text) for at, (end, text) in (*self._types.items(), *self._written.items())
        ]
        return tuple(sorted(changes, key=lambda x: (x.start, x.end)))

    def add(self, var: Var) -> None:
        """Give a variable 64 bits."""
        if var in self.variables:
            return
        if not is_narrow(var.type) or var.ref or var.static:
            raise Cannot
        if var.kind != "local" and not (var.kind == "param" and self.parameters):
            raise Cannot
        if any(var in x.reads for x in self.body.nodes if isinstance(x, (ir.Opaque, ir.OpaqueStmt))):
            raise Cannot
        self.variables[var] = None
        declared = self.body.declaration(var)
        if declared is None and var.kind == "local":
            raise Cannot
        if declared is not None and declared.init is not None:
            self.value(declared.init, spelling(var.type))
        for node in self.body.changes(var):
            if isinstance(node, ir.Assign) and node.op in _SUMS:
                self.value(node.value, spelling(var.type))
            elif not isinstance(node, ir.IncDec):
                raise Cannot
        for use in self.body.uses(var):
            self._use(use)

    # What a variable is made from

    def value(self, node: Expr, wide: str) -> bool:
        """Computes an expression in 64 bits where it multiplies; whether it has 64 bits now."""
        if not isinstance(node.type, Int):
            raise Cannot
        if node.type.bits == 64:
            return True
        if isinstance(node, ir.Ref):
            if node.var not in self.variables and node.var.kind == "local" and self._multiplies(node.var):
                self.add(node.var)
            return node.var in self.variables
        if isinstance(node, ir.Binary):
            if node.op in _COMPARES:
                return False
            left, right = self.value(node.left, wide), self.value(node.right, wide)
            if node.op in ("*", "<<"):
                if not (left or (right and node.op == "*")) and not _constants(node):
                    self.cast(node.start, wide)
                return left or right or not _constants(node)
            if left or (right and node.op not in ("<<", ">>")):
                return True
            if node.optype is U32 and (
                node.op == "-" or (node.op == "+" and (_falls(node.left) or _falls(node.right)))
            ):
                # What wraps below 0 in 32 bits comes out negative in 32 bits only.
                self.cast(node.start, wide)
                return True
            return False
        if isinstance(node, ir.Cond):
            then, other = self.value(node.then, wide), self.value(node.other, wide)
            return then or other
        if isinstance(node, ir.Unary):
            if node.op != "!" and node.type is U32:
                raise Cannot
            return self.value(node.operand, wide)
        if isinstance(node, ir.Cast):
            if is_narrow(node.type) and isinstance(node.operand.type, Int):
                if self.value(node.operand, wide):
                    self.uncut(node, wide)
                    return True
                return False
            if isinstance(node.operand.type, Float):
                return False
            raise Cannot
        if isinstance(node, ir.Call) and (node.target is not None or node.name.startswith(("__mul24", "__umul24"))):
            raise Cannot
        if isinstance(node, (ir.Const, ir.Special, ir.Member, ir.Index)):
            return False
        if isinstance(node, ir.Call) and not any(isinstance(x, ir.Binary) for a in node.args for x in inner(a)):
            return False
        raise Cannot

    def is_product(self, var: Var) -> bool:
        """Whether a narrow local is made by a product."""
        return var.kind == "local" and is_narrow(var.type) and self._multiplies(var)

    def _multiplies(self, var: Var) -> bool:
        """Whether a local is made by a product, an index of the grid say, or of a local that is."""
        declared = self.body.declaration(var)
        values = [declared.init] if declared is not None and declared.init is not None else []
        values += [x.value for x in self.body.changes(var) if isinstance(x, ir.Assign)]
        for value in values:
            for item in inner(value):
                if isinstance(item, ir.Binary) and item.op in ("*", "<<") and not _constants(item):
                    return True
                if isinstance(item, ir.Ref) and item.var is not var and item.var.kind == "local":
                    if is_narrow(item.var.type) and item.var not in self.variables and self._multiplies(item.var):
                        return True
                    if item.var in self.variables:
                        return True
                if isinstance(item, ir.Call) and item.target is not None:
                    return True
        return False

    def cast(self, at: int, wide: str) -> None:
        """A cast of what begins at an offset."""
        self._casts[at] = f"({wide})"

    def replace(self, node: Expr, text: str) -> None:
        """Other text for an expression; what was to change inside of it is dropped."""
        for changes in (self._casts, self._types, self._written):
            for at in [x for x in changes if node.start <= x < node.end]:
                del changes[at]
        self._written[node.start] = node.end, text

    def uncut(self, node: ir.Cast, wide: str) -> None:
        """A cast to 32 bits, as one to 64."""
        found = _CAST.match(self.body.text, node.start)
        if found is None:
            raise Cannot
        for group, text in (("c", wide), ("s", wide), ("f", f"({wide})")):
            if found[group] is not None:
                self._written[found.start(group)] = found.end(group), text

    # What is made of it

    def _use(self, use: ir.Ref) -> None:
        node: Node = use
        linear, wraps = True, False
        while True:
            if self.within is not None and (node.start, node.end) == (self.within.start, self.within.end):
                return
            parent = self.body.parent(node)
            if isinstance(parent, ir.Index):
                if node is parent.index:
                    return
                raise Cannot
            if isinstance(parent, ir.Binary):
                if isinstance(parent.optype, (Ptr, Float)):
                    if wraps and isinstance(parent.optype, Float):
                        raise Cannot
                    return
                other = parent.right if node is parent.left else parent.left
                if parent.op in _COMPARES:
                    if wraps:
                        raise Cannot
                    self._beside(other)
                    return
                if not isinstance(parent.optype, Int) or parent.op not in _KEEPS:
                    raise Cannot
                if parent.op in ("/", "%", ">>") and wraps:
                    raise Cannot
                if parent.op in ("<<", ">>") and node is parent.right:
                    return
                wraps = wraps or (parent.op == "*" and _mixes(other))
                linear = linear and (parent.op in _LINEAR or self._large(parent, node))
                node = parent
                continue
            if isinstance(parent, (ir.Unary, ir.Cond)):
                if isinstance(parent, ir.Unary) and parent.op == "!":
                    return
                if isinstance(parent, ir.Cond) and node is parent.cond:
                    return
                if isinstance(parent, ir.Unary) and isinstance(use.var.type, Int) and not use.var.type.signed:
                    raise Cannot
                node = parent
                continue
            if isinstance(parent, ir.VarDecl):
                self._taken(parent.var, linear, wraps)
                return
            if isinstance(parent, ir.Assign):
                if node is parent.target:
                    if isinstance(self.body.parent(parent), (ir.ExprStmt, ir.For, ir.Comma)):
                        return
                    raise Cannot
                if isinstance(parent.target, ir.Ref) and parent.target.var.kind == "local" and parent.op in _SUMS:
                    self._taken(parent.target.var, linear, wraps)
                    return
                if parent.op not in _COMPOUND or (wraps and not is_narrow(parent.target.type)):
                    raise Cannot
                return
            if isinstance(parent, ir.Cast):
                if wraps and not is_narrow(parent.type):
                    raise Cannot
                return
            if isinstance(parent, ir.Call):
                self._passed(parent, node, wraps)
                return
            if isinstance(parent, (ir.IncDec, ir.ExprStmt, ir.If, ir.While, ir.For, ir.Logical)):
                return
            raise Cannot

    def _large(self, node: ir.Binary, value: Node) -> bool:
        """Whether a quotient or a remainder of a widened value may need 64 bits as well: the divisor may be 1."""
        if not self.quotients or value is not node.left:
            return False
        return node.op in ("/", ">>") or (node.op == "%" and not is_narrow(node.right.type))

    def _beside(self, other: Expr) -> None:
        """What a widened value is compared with: a bound that is multiplied, or cut to 32 bits, has to be wide too."""
        if not isinstance(other.type, Int):
            raise Cannot
        if any(isinstance(x, (ir.Binary, ir.Cast)) for x in inner(other)) or (
            isinstance(other, ir.Ref) and other.var.kind == "local" and self._multiplies(other.var)
        ):
            self.value(other, spelling(other.type))
        if self.parameters and isinstance(other, ir.Ref) and other.var.kind == "local":
            self._index(other.var, {other.var})

    def _index(self, var: Var, seen: set[Var]) -> None:
        """A wide index that a widened size bounds: what its start and its steps are made of has to be wide too."""
        if is_narrow(var.type):
            return
        declared = self.body.declaration(var)
        values = [declared.init] if declared is not None and declared.init is not None else []
        for value in (*values, *(x.value for x in self.body.changes(var) if isinstance(x, ir.Assign))):
            if is_narrow(value.type):
                self.value(value, spelling(var.type))
            elif isinstance(value, ir.Ref) and value.var.kind == "local" and value.var not in seen:
                seen.add(value.var)
                self._index(value.var, seen)

    def _taken(self, var: Var, linear: bool, wraps: bool) -> None:
        if isinstance(var.type, Int) and var.type.bits == 64:
            if wraps:
                raise Cannot
            return
        if isinstance(var.type, Float) and not wraps and not var.ref:
            return
        if not is_narrow(var.type) or var.ref:
            raise Cannot
        if linear and not wraps:
            self.add(var)

    def _passed(self, call: ir.Call, node: Node, wraps: bool) -> None:
        """An argument: fine where the parameter's type is the function's own and as wide."""
        target = call.target
        if wraps or target is None or target.template or node not in call.args:
            raise Cannot
        if len(target.file.declarations.functions_by_name.get(target.name, ())) > 1:
            raise Cannot  # an overload
        params = target.lower({}).params
        at = call.args.index(node)
        if at >= len(params) or params[at].ref:
            raise Cannot
        type_ = params[at].type
        if not (isinstance(type_, Float) or (isinstance(type_, Int) and type_.bits == 64)):
            raise Cannot

    # The declarations

    def _declare(self, var: Var) -> None:
        text = self.body.text
        if var.kind == "param":
            start = max(text.rfind(b",", 0, var.start), text.rfind(b"(", 0, var.start)) + 1
            end = var.start
        else:
            declared = self.body.declaration(var)
            assert declared is not None
            together = [x for x in self.body.nodes if isinstance(x, ir.VarDecl) and x.start == declared.start]
            if any(x.var not in self.variables and not self._harmless(x) for x in together):
                raise Cannot
            start, end = declared.start, min(x.var.start for x in together)
        found = _TYPE.fullmatch(text, start, end)
        if found is None:
            raise Cannot
        if found["type"] != b"auto":
            self._types[found.start("type")] = found.end("type"), spelling(var.type)

    def _harmless(self, declared: ir.VarDecl) -> bool:
        """Another variable of the same declaration, which has to take the type along."""
        try:
            self.add(declared.var)
        except Cannot:
            return False
        return True


def spelling(type_: object) -> str:
    return "long long" if isinstance(type_, Int) and type_.signed else "size_t"


def _constants(node: Expr) -> bool:
    return not any(isinstance(x, (ir.Ref, ir.Special, ir.Member, ir.Index, ir.Call)) for x in inner(node))


def _falls(node: Expr) -> bool:
    """Whether an operand can be negative."""
    if isinstance(node, ir.Const):
        return False
    return isinstance(node.type, Int) and node.type.signed


def _mixes(node: Expr) -> bool:
    return isinstance(node, ir.Const) and isinstance(node.value, int) and abs(node.value) >= _MIXER


def widened(
    fn: Function, variables: list[Var], *, parameters: bool = False, quotients: bool = False, tested: Var | None = None
) -> tuple[EditDraft, ...] | None:
    """The edits that give variables 64 bits, with ``quotients`` also what they are divided into, as far as it can be;
    None where that cannot be done whole, or does not come to the variable ``tested``, if one is given."""
    for attempt in (True, False) if quotients else (False,):
        work = Widening(fn, parameters=parameters, quotients=attempt)
        try:
            for var in variables:
                work.add(var)
            edits = work.edits()
        except Cannot:
            continue
        if tested is None or tested in work.variables:
            return edits
    return None


def holder(fn: Function, node: Node) -> Var | None:
    """The local that an expression is the value of: a declaration's, or an assignment's."""
    body = body_of(fn)
    item: Node | None = next((x for x in body.nodes if x.start == node.start and x.end == node.end), None)
    while item is not None:
        item = body.parent(item)
        if isinstance(item, ir.VarDecl):
            return item.var
        if isinstance(item, ir.Assign):
            return item.target.var if isinstance(item.target, ir.Ref) else None
        if isinstance(item, (ir.Index, ir.Call)):
            return None
    return None
