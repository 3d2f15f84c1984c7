"""The IR as text, one statement a line: for ``cudalint debug --stage ir`` and for tests."""

from __future__ import annotations

from cudalint.ir import nodes as ir
from cudalint.ir.types import Type, Unknown


def show(function: ir.Function) -> str:
    """``function`` as text, with the type of each declared variable and, where one is unknown, why."""
    lines: list[str] = []
    params = ", ".join(_variable(var) for var in function.params)
    bounds = f" __launch_bounds__({expression(function.launch_bounds)})" if function.launch_bounds else ""
    if function.template:
        lines.append("template " + ", ".join(_variable(var) for var in function.template))
    name = function.name if function.decl is not None else "lambda"
    lines.append(f"{function.kind}{bounds} {name}({params}) -> {function.returns}")
    _statements(function.body.body, 1, lines)
    return "\n".join(lines) + "\n"


def _variable(var: ir.Var) -> str:
    words = [w for w, on in (("extern", var.extern), ("static", var.static), ("const", var.const)) if on]
    if var.kind not in ("local", "param", "template"):
        words.append(var.kind)
    return f"{' '.join(words)}{' ' if words else ''}{var.name}: {var.type}{'&' if var.ref else ''}"


def _statements(body: list[ir.Stmt], depth: int, lines: list[str]) -> None:
    for stmt in body:
        _statement(stmt, depth, lines)


def _nested(stmt: ir.Stmt | None, depth: int, lines: list[str]) -> None:
    if isinstance(stmt, ir.Block):
        _statements(stmt.body, depth + 1, lines)
    elif stmt is not None:
        _statement(stmt, depth + 1, lines)


def _statement(stmt: ir.Stmt, depth: int, lines: list[str]) -> None:
    pad = "  " * depth

    def line(text: str) -> None:
        lines.append(pad + text)

    match stmt:
        case ir.VarDecl():
            line(_variable(stmt.var) + (f" = {expression(stmt.init)}" if stmt.init is not None else ""))
        case ir.ExprStmt():
            line(expression(stmt.expr) + _why(stmt.expr))
        case ir.Block():
            line("block")
            _statements(stmt.body, depth + 1, lines)
        case ir.If():
            line(f"if{' constexpr' if stmt.constexpr else ''} {expression(stmt.cond)}")
            _nested(stmt.then, depth, lines)
            if stmt.other is not None:
                line("else")
                _nested(stmt.other, depth, lines)
        case ir.For():
            line(f"for {expression(stmt.cond) if stmt.cond else ''}; {expression(stmt.step) if stmt.step else ''}")
            for init in stmt.init:
                _statement(init, depth + 2, lines)
            _nested(stmt.body, depth, lines)
        case ir.While():
            line(f"{'do while' if stmt.post else 'while'} {expression(stmt.cond)}")
            _nested(stmt.body, depth, lines)
        case ir.RangeFor():
            line(f"for {_variable(stmt.var)} : {expression(stmt.range)}")
            _nested(stmt.body, depth, lines)
        case ir.Switch():
            line(f"switch {expression(stmt.cond)}")
            for case in stmt.cases:
                line("  case " + ", ".join(map(expression, case.labels)) if case.labels else "  default")
                _statements(case.body, depth + 2, lines)
        case ir.Return():
            line("return" + (f" {expression(stmt.value)}{_why(stmt.value)}" if stmt.value is not None else ""))
        case ir.Break():
            line("break")
        case ir.Continue():
            line("continue")
        case ir.OpaqueStmt():
            marks = [m for m, on in (("barrier", stmt.barrier), ("jumps", stmt.jumps), ("gap", stmt.gap)) if on]
            reads, writes = (", ".join(var.name for var in group) for group in (stmt.reads, stmt.writes))
            touched = f"reads {reads or 'nothing'}; writes {writes or 'nothing'}"
            line("; ".join([f"opaque: {stmt.why}", touched, *marks]))


def _why(expr: ir.Expr) -> str:
    return f"  // {expr.type}" if isinstance(expr.type, Unknown) else ""


def _arguments(args: list[ir.Expr] | None) -> str:
    return "?" if args is None else ", ".join(map(expression, args))


def _targs(targs: list[Type | ir.Expr]) -> str:
    return f"<{', '.join(str(t) if isinstance(t, Type) else expression(t) for t in targs)}>" if targs else ""


def expression(expr: ir.Expr | None) -> str:
    """An expression as text, fully parenthesised; operators carry their type where it is not the operands'."""
    match expr:
        case None:
            return "-"
        case ir.Const():
            return expr.text or repr(expr.value)
        case ir.Ref():
            return expr.var.name
        case ir.Name():
            return f"{expr.name}?"
        case ir.Special():
            return f"{expr.which}.{expr.axis}" if expr.axis else expr.which
        case ir.Member():
            return f"{expression(expr.base)}.{expr.field}"
        case ir.Index():
            return f"{expression(expr.base)}[{expression(expr.index)}]"
        case ir.AddrOf():
            return f"&{expression(expr.operand)}"
        case ir.Unary():
            return f"{expr.op}{expression(expr.operand)}"
        case ir.Binary():
            tag = "" if expr.left.type is expr.right.type is expr.optype else f":{expr.optype}"
            return f"({expression(expr.left)} {expr.op}{tag} {expression(expr.right)})"
        case ir.Logical():
            return f"({expression(expr.left)} {expr.op} {expression(expr.right)})"
        case ir.Cond():
            return f"({expression(expr.cond)} ? {expression(expr.then)} : {expression(expr.other)})"
        case ir.Cast():
            return f"({expr.type})({expression(expr.operand)})"
        case ir.Assign():
            return f"{expression(expr.target)} {expr.op}= {expression(expr.value)}"
        case ir.IncDec():
            sign = expr.op * 2
            return f"{sign}{expression(expr.target)}" if expr.prefix else f"{expression(expr.target)}{sign}"
        case ir.Call():
            name = expr.name or f"({expression(expr.callee)})"
            receiver = f"{expression(expr.receiver)}." if expr.receiver is not None else ""
            return f"{receiver}{name}{_targs(expr.targs)}({_arguments(expr.args)})"
        case ir.Construct():
            return f"{expr.type}{{{_arguments(expr.args)}}}"
        case ir.SizeOf():
            return f"sizeof({expr.of})"
        case ir.Comma():
            return f"({expression(expr.left)}, {expression(expr.right)})"
        case ir.Lambda():
            return f"[lambda {show(expr.function).strip()}]" if not expr.function.body.body else "[lambda]"
        case ir.Launch():
            name = expr.kernel or f"({expression(expr.callee)})"
            config = ", ".join(expression(part) for part in (expr.grid, expr.block, expr.shared, expr.stream))
            return f"{name}{_targs(expr.targs)}<<<{config}>>>({_arguments(expr.args)})"
        case ir.Opaque():
            return f"opaque({expr.why})"
    return type(expr).__name__
