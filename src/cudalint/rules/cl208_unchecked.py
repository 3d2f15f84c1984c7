"""CL208 unchecked-launch: a launch after which nobody asks whether the driver took it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudalint.facts.assigned import children
from cudalint.facts.calls import LAUNCH_ERRORS
from cudalint.findings import Witness
from cudalint.ir import nodes as ir
from cudalint.rules.draft import Draft

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudalint.facts.model import HostFunction
    from cudalint.ir.nodes import Function, FunctionDecl, Launch

CODES = ("CL208",)

_RUNTIME = ("cuda", "hip", "cublas", "cufft", "curand", "cusparse", "cusolver", "cudnn", "nccl", "nvtx", "std::")
_PLAIN = frozenset(
    {"printf", "fprintf", "puts", "malloc", "calloc", "free", "memcpy", "memset", "exit", "abort", "assert", "min",
     "max", "swap", "sqrt", "fabs", "abs", "ceil", "floor", "time", "clock", "rand", "srand", "fopen", "fclose",
     "fread", "fwrite", "fflush", "atoi", "atof", "strcmp", "strlen"}
)  # fmt: skip
"""Functions of libraries, which read no error; what else nobody here can see may well do so."""
_DEPTH = 4

Pending = dict[int, "Launch"]


def check(host: HostFunction) -> Iterator[Draft]:
    """The launches of a function (and of the lambdas in it), each followed on every way to the next or to the end."""
    stack = [host.function]
    while stack:
        fn = stack.pop()
        walk = _Walk()
        walk.leave(walk.statement(fn.body, {}))
        for launch, end in walk.found.values():
            yield _draft(fn, launch, end)
        stack.extend(walk.lambdas)


class _Walk:
    """Goes through a function in order with the launches that nobody has asked about yet."""

    def __init__(self) -> None:
        self.found: dict[int, tuple[Launch, str]] = {}
        self.lambdas: list[Function] = []

    def leave(self, pending: Pending, end: str = "the function's end") -> None:
        """What is pending where a way ends stays unasked."""
        for key, launch in pending.items():
            self.found.setdefault(key, (launch, end))

    def statement(self, node: ir.Stmt, pending: Pending) -> Pending:
        """What is pending after a statement."""
        if isinstance(node, ir.Block):
            for item in node.body:
                pending = self.statement(item, pending)
            return pending
        if isinstance(node, ir.If):
            pending = self.expression(node.cond, pending)
            other = self.statement(node.other, pending) if node.other is not None else pending
            return {**self.statement(node.then, pending), **other}
        if isinstance(node, ir.Switch):
            after = dict(pending)
            for case in node.cases:
                held = pending
                for item in case.body:
                    held = self.statement(item, held)
                after.update(held)
            return after
        if isinstance(node, ir.Return):
            if node.value is not None:
                pending = self.expression(node.value, pending)
            self.leave(pending)
            return {}
        if isinstance(node, ir.ExprStmt) and isinstance(node.expr, ir.Launch):
            return self.launch(node.expr, pending)
        if isinstance(node, ir.OpaqueStmt) or (isinstance(node, ir.ExprStmt) and isinstance(node.expr, ir.Name)):
            return {}  # nobody here can tell what it does: a macro of a header that is not there, most often
        for item in children(node):
            pending = self.statement(item, pending) if isinstance(item, ir.Stmt) else self.part(item, pending)
        return pending

    def launch(self, node: Launch, pending: Pending) -> Pending:
        """A launch ends the way of those before it."""
        pending = self.parts(node, pending)
        self.leave({k: v for k, v in pending.items() if k != id(node)}, "the next launch")
        return {id(node): node}

    def part(self, node: object, pending: Pending) -> Pending:
        return self.expression(node, pending) if isinstance(node, ir.Expr) else self.parts(node, pending)

    def parts(self, node: object, pending: Pending) -> Pending:
        for item in children(node):
            pending = self.part(item, pending)
        return pending

    def expression(self, node: ir.Expr, pending: Pending) -> Pending:
        """What is pending after an expression. A launch whose own result is looked at is asked about."""
        if isinstance(node, ir.Lambda):
            self.lambdas.append(node.function)
            return pending
        pending = self.parts(node, pending)
        return {} if isinstance(node, (ir.Call, ir.Opaque)) and _may_read(node) else pending


def _may_read(node: ir.Call | ir.Opaque) -> bool:
    """Whether an expression reads the error, or calls what nobody here can see and may do so."""
    if isinstance(node, ir.Opaque):
        return True
    name = node.name.removeprefix("::")
    if name in LAUNCH_ERRORS:
        return True
    if node.target is not None and node.target.has_body:
        return _reads(node.target, _DEPTH)
    if node.receiver is not None or name.startswith(_RUNTIME) or name in _PLAIN:
        return False
    # `CHECK(cudaDeviceSynchronize())` looks at what it is given.
    return not any(isinstance(x, ir.Call) and x.name.startswith(_RUNTIME) for x in node.args)


def _reads(function: FunctionDecl, depth: int) -> bool:
    """Whether a function of the project, or what it calls, reads the error."""
    if depth == 0:
        return True
    stack: list[object] = [function.lower({}).body]
    while stack:
        item = stack.pop()
        if isinstance(item, ir.Call):
            if item.name.removeprefix("::") in LAUNCH_ERRORS:
                return True
            target = item.target
            if target is not None and target.has_body and target is not function and _reads(target, depth - 1):
                return True
        stack.extend(children(item))
    return False


def _draft(fn: Function, launch: Launch, end: str) -> Draft:
    return Draft(
        "CL208", fn, fn.file, launch.start, launch.end,
        f"nothing asks whether the launch of {launch.kernel or 'the kernel'} was refused before {end}; a checked "
        "cudaDeviceSynchronize does not tell",
        "check cudaGetLastError() after the launch",
        Witness({}, None, None, None, {"reads of the error after the launch": 0}),
    )  # fmt: skip
