"""By what the type of each declared variable was settled: for ``cudalint debug --stage ir``."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from cudalint.facts.assigned import children
from cudalint.frontend.declare import syntax_of
from cudalint.frontend.typing import class_of
from cudalint.ir.nodes import Call, Expr, Member, Var, VarDecl
from cudalint.ir.types import Array, Param, Ptr, Struct, Type, Unknown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudalint.frontend.source import SourceFile
    from cudalint.ir.nodes import Function, FunctionDecl

_WORD = re.compile(r"[A-Za-z_][\w:]*")


def settled(decl: FunctionDecl, bindings: dict[str, Type | int]) -> tuple[Function, dict[Var, str]]:
    """The function with every type that can be had, and for each parameter and local what settled its type.

    That is ``syntax``, ``project header``, ``template binding`` or ``libclang``; else ``open`` where
    it follows a template parameter that nothing binds, or ``unknown`` with the reason.
    """
    function = decl.lower(bindings, asked=True)
    plain = {var.start: var for var, _, _ in _variables(decl.lower(bindings))}
    unbound = {var.start: var for var, _, _ in _variables(decl.lower())} if bindings else {}
    result = {}
    for var, start, init in _variables(function):
        before = plain.get(var.start)
        opened = unbound.get(var.start)
        inner = _element(var.type)
        if isinstance(inner, Unknown):
            result[var] = f"unknown: {inner.why}"
        elif before is not None and isinstance(_element(before.type), Unknown):
            result[var] = "libclang"
        elif opened is not None and opened.type is not var.type:
            result[var] = "template binding"
        elif isinstance(inner, Param):
            result[var] = f"open: template parameter {inner.name}"
        else:
            header = _header(decl, start, var, init)
            result[var] = f"project header {os.path.basename(header.path)}" if header is not None else "syntax"
    return function, result


def _variables(function: Function) -> Iterator[tuple[Var, int, Expr | None]]:
    """Parameters and declared variables, each with where its declaration begins and its initialiser."""
    at = function.decl.name_end if function.decl is not None else function.start
    for var in function.params:
        yield var, at, None
        at = var.end
    stack: list[Any] = [function.body]
    while stack:
        node = stack.pop()
        if isinstance(node, VarDecl):
            yield node.var, node.start, node.init
        stack.extend(children(node))


def _element(type_: Type) -> Type:
    while isinstance(type_, (Ptr, Array)):
        type_ = type_.element
    return type_


def _header(decl: FunctionDecl, start: int, var: Var, init: Expr | None) -> SourceFile | None:
    """The other file that declares what the type of ``var`` comes from: its name, or what it is initialised with."""
    scope, prefix = decl.file.declarations.scope, syntax_of(decl).scope
    written = decl.file.text[start : var.start].decode("utf-8", "replace")
    for word in _WORD.findall(written):
        found = scope.type(word, prefix)
        if found is not None and found.declarations.file is not decl.file:
            return found.declarations.file
    if not re.search(r"\bauto\b", written):
        return None
    stack: list[Any] = [init] if init is not None else []
    while stack:
        node = stack.pop()
        if isinstance(node, Call) and node.target is not None and node.target.file is not decl.file:
            return node.target.file
        base = node.base.type if isinstance(node, Member) else None
        owner = class_of.get(base) if isinstance(base, Struct) else None
        if owner is not None and owner.declarations.file is not decl.file:
            return owner.declarations.file
        stack.extend(children(node))
    return None
