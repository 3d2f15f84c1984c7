"""The IR: a structured tree with resolved variables, one class a construct.

Positions (``start``, ``end``) are byte offsets into the *expanded* text of the function's file
(:class:`cudalint.frontend.source.SourceFile`), parentheses around an expression excluded; the file
maps them to what the user sees. Facts about nodes live outside of them.

Normal forms, so that every analysis sees one spelling:

* ``*p`` is ``Index(p, 0)``, ``*(p + i)`` and ``i[p]`` are ``Index(p, i)``, ``p->f`` is ``Member(Index(p, 0), f)``;
* ``threadIdx.x`` (and blockIdx, blockDim, gridDim) is ``Special("threadIdx", "x")``; ``warpSize`` is
  ``Special("warpSize", "")``;
* ``dim3 g(a, b)`` is a ``VarDecl`` whose init is ``Construct(DIM3, [a, b])``; so is ``dim3 g = {a, b}``
  and ``g = dim3(a, b)`` has a ``Construct`` on the right;
* every C, functional, ``static_cast``, ``reinterpret_cast`` or ``const_cast`` is a ``Cast``;
* ``a and b`` is ``Logical("&&")``; parentheses vanish; a comma is ``Comma``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from cudalint.ir.types import Type, Unknown

if TYPE_CHECKING:
    from cudalint.frontend.source import SourceFile

VarKind = Literal["param", "local", "shared", "global", "constant", "template", "field"]


class Var:
    """A declared name.

    ``kind``: ``shared`` is ``__shared__``, ``constant`` is ``__constant__``, ``global`` is any other
    namespace-scope variable, ``template`` a non-type template parameter that is left open.
    ``type`` is the referent's type when ``ref`` (a C++ reference). ``const`` means the value cannot
    change after initialisation. ``extern`` marks ``extern __shared__``. ``init`` is lowered for
    namespace-scope constants as well. ``usual`` are the values that the source gives an open template parameter:
    one for each way in which its file names the template with arguments (in the same order for all parameters),
    else its default.
    """

    __slots__ = ("const", "end", "extern", "init", "kind", "name", "ref", "start", "static", "type", "usual")

    def __init__(
        self, name: str, type_: Type, kind: VarKind, start: int, end: int, *, const: bool = False,
        ref: bool = False, extern: bool = False, static: bool = False, init: Expr | None = None,
    ) -> None:  # fmt: skip
        self.name, self.type, self.kind, self.start, self.end = name, type_, kind, start, end
        self.const, self.ref, self.extern, self.static, self.init = const, ref, extern, static, init
        self.usual: tuple[int, ...] = ()

    def __repr__(self) -> str:
        return f"Var({self.name}: {self.type}, {self.kind})"


class Node:
    __slots__ = ("end", "start")
    start: int
    end: int


class Expr(Node):
    __slots__ = ("type",)
    type: Type


class Const(Expr):
    """A literal or a named constant of the language (``INT_MAX``, ``nullptr``): int, float, bool, str or None."""

    __slots__ = ("text", "value")

    def __init__(self, start: int, end: int, type_: Type, value: int | float | str | None, text: str = "") -> None:
        self.start, self.end, self.type, self.value, self.text = start, end, type_, value, text


class Ref(Expr):
    """A use of a variable."""

    __slots__ = ("var",)

    def __init__(self, start: int, end: int, var: Var) -> None:
        self.start, self.end, self.type, self.var = start, end, var.type, var


class Name(Expr):
    """A name that nothing in the unit declares, or a function's, as written (``foo``, ``ns::bar``); type Unknown.

    ``targs`` are the template arguments of a function's name (``k<4>``), and the types that ``std::is_same`` compares.
    """

    __slots__ = ("name", "targs")

    def __init__(
        self, start: int, end: int, name: str, type_: Type | None = None, targs: list[Type | Expr] | None = None
    ) -> None:
        self.start, self.end, self.name, self.targs = start, end, name, targs or []
        self.type = type_ or Unknown(f"'{name}' is not declared in the project")


class Special(Expr):
    """A launch built-in: ``which`` is threadIdx, blockIdx, blockDim, gridDim (U32, ``axis`` x, y, z;
    ``""`` for the whole triple) or warpSize (I32)."""

    __slots__ = ("axis", "which")

    def __init__(self, start: int, end: int, type_: Type, which: str, axis: str) -> None:
        self.start, self.end, self.type, self.which, self.axis = start, end, type_, which, axis


class Member(Expr):
    __slots__ = ("base", "field")

    def __init__(self, start: int, end: int, type_: Type, base: Expr, field: str) -> None:
        self.start, self.end, self.type, self.base, self.field = start, end, type_, base, field


class Index(Expr):
    """``base[index]`` on a pointer, an array or a class with ``operator[]`` (then the type may be Unknown)."""

    __slots__ = ("base", "index")

    def __init__(self, start: int, end: int, type_: Type, base: Expr, index: Expr) -> None:
        self.start, self.end, self.type, self.base, self.index = start, end, type_, base, index


class AddrOf(Expr):
    __slots__ = ("operand",)

    def __init__(self, start: int, end: int, type_: Type, operand: Expr) -> None:
        self.start, self.end, self.type, self.operand = start, end, type_, operand


class Unary(Expr):
    """``op`` is one of ``- + ~ !``; the operand is converted to ``type`` (bool for ``!``)."""

    __slots__ = ("op", "operand")

    def __init__(self, start: int, end: int, type_: Type, op: str, operand: Expr) -> None:
        self.start, self.end, self.type, self.op, self.operand = start, end, type_, op, operand


class Binary(Expr):
    """Arithmetic, bitwise, shift and comparison operators.

    Both operands are converted to ``optype`` before the operation (for a shift: the promoted left
    type; the right operand is promoted alone). ``type`` is ``optype``, or bool for a comparison.
    Pointer arithmetic has a Ptr ``optype``; ``p - q`` has type I64.
    """

    __slots__ = ("left", "op", "optype", "right")

    def __init__(self, start: int, end: int, type_: Type, op: str, left: Expr, right: Expr, optype: Type) -> None:
        self.start, self.end, self.type = start, end, type_
        self.op, self.left, self.right, self.optype = op, left, right, optype


class Logical(Expr):
    """``&&`` or ``||``, short-circuit."""

    __slots__ = ("left", "op", "right")

    def __init__(self, start: int, end: int, type_: Type, op: str, left: Expr, right: Expr) -> None:
        self.start, self.end, self.type, self.op, self.left, self.right = start, end, type_, op, left, right


class Cond(Expr):
    """``cond ? then : other``; both arms are converted to ``type``."""

    __slots__ = ("cond", "other", "then")

    def __init__(self, start: int, end: int, type_: Type, cond: Expr, then: Expr, other: Expr) -> None:
        self.start, self.end, self.type = start, end, type_
        self.cond, self.then, self.other = cond, then, other


class Cast(Expr):
    """A cast as written. ``how``: c, functional, static, reinterpret, const, dynamic, bit."""

    __slots__ = ("how", "operand")

    def __init__(self, start: int, end: int, type_: Type, operand: Expr, how: str) -> None:
        self.start, self.end, self.type, self.operand, self.how = start, end, type_, operand, how


class Assign(Expr):
    """``target op= value``; ``op`` is ``""`` for ``=``.

    For a compound assignment the operation is done in ``optype`` (the common type, a Ptr for
    ``p += n``) and the result converted to the target's type.
    """

    __slots__ = ("op", "optype", "target", "value")

    def __init__(self, start: int, end: int, type_: Type, op: str, target: Expr, value: Expr, optype: Type) -> None:
        self.start, self.end, self.type = start, end, type_
        self.op, self.target, self.value, self.optype = op, target, value, optype


class IncDec(Expr):
    """``++x`` (prefix) or ``x++``; ``op`` is ``+`` or ``-``."""

    __slots__ = ("op", "prefix", "target")

    def __init__(self, start: int, end: int, type_: Type, op: str, prefix: bool, target: Expr) -> None:
        self.start, self.end, self.type, self.op, self.prefix, self.target = start, end, type_, op, prefix, target


class Call(Expr):
    """A call.

    ``name`` is the callee as written without template arguments (``min``, ``cg::this_grid``,
    ``std::max``), for a method call the method's name, with the object in ``receiver``; a call
    through any other expression has name ``""`` and that expression in ``callee``.
    ``target`` is the project's function it resolves to, chosen by name, scope and arity; None for
    CUDA's, the standard library's and unseen ones. ``targs`` are the explicit template arguments.
    """

    __slots__ = ("args", "callee", "name", "receiver", "target", "targs")

    def __init__(
        self, start: int, end: int, type_: Type, name: str, args: list[Expr], *, receiver: Expr | None = None,
        callee: Expr | None = None, targs: list[Type | Expr] | None = None, target: FunctionDecl | None = None,
    ) -> None:  # fmt: skip
        self.start, self.end, self.type, self.name, self.args = start, end, type_, name, args
        self.receiver, self.callee, self.targs, self.target = receiver, callee, targs or [], target


class Construct(Expr):
    """An object made from arguments: ``dim3(a, b)``, ``float4{x, y}``, ``T()``; aggregates included.

    ``type`` is the class; an array or an unknown aggregate initialiser ``{1, 2}`` has the declared type.
    """

    __slots__ = ("args",)

    def __init__(self, start: int, end: int, type_: Type, args: list[Expr]) -> None:
        self.start, self.end, self.type, self.args = start, end, type_, args


class SizeOf(Expr):
    """``sizeof`` of ``of``, of type U64."""

    __slots__ = ("of",)

    def __init__(self, start: int, end: int, type_: Type, of: Type) -> None:
        self.start, self.end, self.type, self.of = start, end, type_, of


class Comma(Expr):
    __slots__ = ("left", "right")

    def __init__(self, start: int, end: int, type_: Type, left: Expr, right: Expr) -> None:
        self.start, self.end, self.type, self.left, self.right = start, end, type_, left, right


class Lambda(Expr):
    """A lambda; its body sees the enclosing variables by name.

    ``copies`` tells that it captures by value what ``named`` does not hold; otherwise by value what it holds.
    ``made`` are its own variables, captured with an initialiser.
    """

    __slots__ = ("copies", "function", "made", "named")

    def __init__(
        self, start: int, end: int, type_: Type, function: Function, copies: bool = False,
        named: frozenset[str] = frozenset(), made: tuple[Var, ...] = (),
    ) -> None:  # fmt: skip
        self.start, self.end, self.type, self.function = start, end, type_, function
        self.copies, self.named, self.made = copies, named, made

    def by_value(self, var: Var) -> bool:
        """Whether a local variable or parameter of the function around is captured by value, if at all."""
        return var in self.made or (var.kind in ("local", "param") and (var.name in self.named) is not self.copies)


LaunchForm = Literal[
    "<<<>>>", "cudaLaunchKernel", "cudaLaunchKernelEx", "cudaLaunchCooperativeKernel", "hipLaunchKernelGGL"
]  # fmt: skip


class Launch(Expr):
    """A kernel launch in any of the five forms.

    ``kernel`` is the name as written without template arguments (``ns::k``), or ``""`` when the
    callee is an expression (a function pointer), which is then in ``callee``. ``target`` is the
    kernel's declaration where the unit (or, after linking, a sibling file) has one. ``grid``,
    ``block``, ``shared`` and ``stream`` are as written (int or dim3 expressions), None when absent
    or not visible. ``args`` are the kernel's arguments in order, None where they cannot be seen
    (an argument array that is not a local initialiser).
    """

    __slots__ = (
        "args",
        "block",
        "callee",
        "form",
        "grid",
        "kernel",
        "shared",
        "stream",
        "target",
        "targs",
    )  # fmt: skip

    def __init__(
        self, start: int, end: int, type_: Type, kernel: str, form: LaunchForm, grid: Expr | None,
        block: Expr | None, shared: Expr | None, stream: Expr | None, args: list[Expr] | None, *,
        callee: Expr | None = None, targs: list[Type | Expr] | None = None, target: FunctionDecl | None = None,
    ) -> None:  # fmt: skip
        self.start, self.end, self.type, self.kernel, self.form = start, end, type_, kernel, form
        self.grid, self.block, self.shared, self.stream, self.args = grid, block, shared, stream, args
        self.callee, self.targs, self.target = callee, targs or [], target


class Opaque(Expr):
    """What cannot be modelled as an expression: error nodes, nesting past the bound, requires-expressions.

    ``reads`` and ``writes`` are the variables it may touch; ``barrier`` whether it may hold one
    (its text names one). ``why`` says what it is, in words.
    """

    __slots__ = ("barrier", "reads", "why", "writes")

    def __init__(
        self, start: int, end: int, type_: Type, why: str, reads: list[Var], writes: list[Var], barrier: bool
    ) -> None:
        self.start, self.end, self.type, self.why = start, end, type_, why
        self.reads, self.writes, self.barrier = reads, writes, barrier


class Stmt(Node):
    __slots__ = ()


class VarDecl(Stmt):
    """One declared variable; ``int a = 1, b;`` gives two. Extents of arrays are in the variable's type."""

    __slots__ = ("init", "var")

    def __init__(self, start: int, end: int, var: Var, init: Expr | None) -> None:
        self.start, self.end, self.var, self.init = start, end, var, init


class ExprStmt(Stmt):
    __slots__ = ("expr",)

    def __init__(self, start: int, end: int, expr: Expr) -> None:
        self.start, self.end, self.expr = start, end, expr


class Block(Stmt):
    __slots__ = ("body",)

    def __init__(self, start: int, end: int, body: list[Stmt]) -> None:
        self.start, self.end, self.body = start, end, body


class If(Stmt):
    """``init`` statements of C++17 are hoisted before it, inside a Block. ``constexpr`` marks ``if constexpr``."""

    __slots__ = ("cond", "constexpr", "other", "then")

    def __init__(
        self, start: int, end: int, cond: Expr, then: Stmt, other: Stmt | None, constexpr: bool = False
    ) -> None:
        self.start, self.end, self.cond, self.then, self.other = start, end, cond, then, other
        self.constexpr = constexpr


class For(Stmt):
    """``header_end`` is the end of the closing parenthesis: the loop's header is [start, header_end)."""

    __slots__ = ("body", "cond", "header_end", "init", "step")

    def __init__(
        self, start: int, end: int, init: list[Stmt], cond: Expr | None, step: Expr | None, body: Stmt, header_end: int
    ) -> None:
        self.start, self.end, self.init, self.cond, self.step = start, end, init, cond, step
        self.body, self.header_end = body, header_end


class While(Stmt):
    """``while (cond) body``; ``do body while (cond)`` when ``post`` is true (the test follows the body)."""

    __slots__ = ("body", "cond", "header_end", "post")

    def __init__(self, start: int, end: int, cond: Expr, body: Stmt, post: bool, header_end: int) -> None:
        self.start, self.end, self.cond, self.body, self.post = start, end, cond, body, post
        self.header_end = header_end


class RangeFor(Stmt):
    """``for (T x : range)``: the trip count is not known."""

    __slots__ = ("body", "range", "var")

    def __init__(self, start: int, end: int, var: Var, range_: Expr, body: Stmt) -> None:
        self.start, self.end, self.var, self.range, self.body = start, end, var, range_, body


class Case(Node):
    """Labels (empty for ``default``) and the statements up to the next label; falls through without a break."""

    __slots__ = ("body", "labels")

    def __init__(self, start: int, end: int, labels: list[Expr], body: list[Stmt]) -> None:
        self.start, self.end, self.labels, self.body = start, end, labels, body


class Switch(Stmt):
    __slots__ = ("cases", "cond")

    def __init__(self, start: int, end: int, cond: Expr, cases: list[Case]) -> None:
        self.start, self.end, self.cond, self.cases = start, end, cond, cases


class Return(Stmt):
    """``return``; with ``throws`` a ``throw``, which leaves the callers as well."""

    __slots__ = ("throws", "value")

    def __init__(self, start: int, end: int, value: Expr | None, throws: bool = False) -> None:
        self.start, self.end, self.value, self.throws = start, end, value, throws


class Break(Stmt):
    __slots__ = ()

    def __init__(self, start: int, end: int) -> None:
        self.start, self.end = start, end


class Continue(Stmt):
    __slots__ = ()

    def __init__(self, start: int, end: int) -> None:
        self.start, self.end = start, end


class OpaqueStmt(Stmt):
    """``goto``, labels, inline assembly, ``try``, error nodes, nesting past the bound: see :class:`Opaque`.

    ``jumps`` is true where control may leave it for elsewhere (``goto``); ``gap`` where the text
    could not be parsed (CL001 reports it).
    """

    __slots__ = ("barrier", "gap", "jumps", "reads", "why", "writes")

    def __init__(
        self, start: int, end: int, why: str, reads: list[Var], writes: list[Var], barrier: bool,
        *, jumps: bool = False, gap: bool = False,
    ) -> None:  # fmt: skip
        self.start, self.end, self.why = start, end, why
        self.reads, self.writes, self.barrier, self.jumps, self.gap = reads, writes, barrier, jumps, gap


FunctionKind = Literal["kernel", "device", "host", "both"]


class FunctionDecl:
    """A function of the project before lowering: what a summary knows of it.

    ``kind``: kernel (``__global__``), device, host, both (``__host__ __device__``, or constexpr).
    ``qualname`` has its namespaces and class (``ns::Cls::f``). ``params`` holds the parameters'
    names. ``template`` holds the template parameters' names in order, with "type" or "value".
    ``static`` is internal linkage (``static`` or an anonymous namespace). ``has_body`` is false for
    a prototype. ``start``/``end`` span the whole definition, ``name_start``/``name_end`` the name.
    ``lower(bindings)`` gives the function with template parameters bound (Type or int by name);
    parameters not bound stay open; ``asked`` has the type oracle asked for what stays unknown. It is
    cached by both.
    """

    __slots__ = (
        "_lowered", "end", "file", "has_body", "kind", "name", "name_end", "name_start", "node", "owner", "params",
        "qualname", "start", "static", "template",
    )  # fmt: skip

    name: str
    qualname: str
    kind: FunctionKind
    file: SourceFile
    start: int
    end: int
    name_start: int
    name_end: int
    params: list[str]
    template: list[tuple[str, str]]
    static: bool
    has_body: bool
    owner: str
    node: object
    _lowered: dict[tuple[tuple[str, Type | int], ...], Function]

    def lower(self, bindings: dict[str, Type | int] | None = None, *, asked: bool = False) -> Function:
        from cudalint.frontend.lower import lower_function

        key = tuple(sorted((bindings or {}).items(), key=lambda item: item[0]))
        if asked:
            key = (("", 1), *key)
        found = self._lowered.get(key)
        if found is None:
            found = self._lowered[key] = lower_function(self, bindings or {}, asked)
        return found


class Function:
    """A lowered function. ``launch_bounds`` is the first argument of ``__launch_bounds__``.

    ``decl`` is None for a lambda, whose captures are free: the variables of the enclosing function
    appear in it as they are. ``within`` is the declaration in whose text it stands. ``this`` is the
    class of a method, whose fields appear as ``Var`` of kind "field". ``asked`` is true where the type
    oracle was asked for what syntax leaves unknown. ``doubts`` are what that is: expressions, variables, and
    calls of functions whose result is deduced (the function, its bindings); ``answered`` is whether the oracle
    knows one of them, None before it is asked. ``given`` are the assignments to a variable in the body, and the calls
    that get its address, by its name; None before somebody asks.
    """

    __slots__ = (
        "answered", "asked", "body", "decl", "doubts", "end", "file", "given", "kind", "launch_bounds", "name",
        "params", "returns", "start", "template", "within",
    )  # fmt: skip

    def __init__(
        self, name: str, kind: FunctionKind, params: list[Var], returns: Type, body: Block, file: SourceFile,
        start: int, end: int, *, decl: FunctionDecl | None = None, template: list[Var] | None = None,
        launch_bounds: Expr | None = None, within: FunctionDecl | None = None,
    ) -> None:  # fmt: skip
        self.name, self.kind, self.params, self.returns, self.body = name, kind, params, returns, body
        self.file, self.start, self.end, self.decl = file, start, end, decl
        self.within = decl or within
        self.template, self.launch_bounds = template or [], launch_bounds
        self.asked = False
        self.doubts: list[Expr | Var | tuple[FunctionDecl, dict[str, Type | int]]] = []
        self.answered: bool | None = None
        self.given: dict[str, list[Assign | Call]] | None = None
