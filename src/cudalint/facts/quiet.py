"""Host functions that need no walk: computations on the host's own data, which no launch can feel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudalint.facts.calls import NO_RETURN, is_assertion
from cudalint.facts.events import Closure, Pointer
from cudalint.frontend.calls import signature
from cudalint.frontend.declare import syntax_of
from cudalint.ir.types import VOID
from cudalint.lazy import pattern

if TYPE_CHECKING:
    from cudalint.facts.events import Value
    from cudalint.frontend.declare import Declarations
    from cudalint.ir.nodes import FunctionDecl

_WORD = pattern(r"[A-Za-z_]\w*")
_CONSTANT = frozenset({"const", "constexpr"})
_ENDS = NO_RETURN | {"throw", "longjmp", "goto"}


def is_quiet_call(target: FunctionDecl, args: list[Value]) -> bool:
    """Whether a call of a host function can be taken as one of an unseen function without a loss.

    It gives no value, gets nothing that it could write a size to, always returns, and neither it nor
    what it calls launches or touches a variable of the namespace.
    """
    if target.kind != "host" or target.owner or target.template or not is_quiet(target):
        return False
    if any(isinstance(x, Closure) or (isinstance(x, Pointer) and x.obj.kind == "var") for x in args):
        return False
    found = signature(target)
    return found.returns is VOID and not any(found.refs)


def is_quiet(function: FunctionDecl) -> bool:
    """By the names in its text: it launches nothing, ends no thread of control and changes no global variable."""
    syntax = syntax_of(function)
    if syntax.quiet is None:
        syntax.quiet = True  # so a recursive one is, unless something else speaks against it
        syntax.quiet = not syntax.has_launches and _is_quiet_text(function)
    return syntax.quiet


def _is_quiet_text(function: FunctionDecl) -> bool:
    declarations = function.file.declarations
    words = set(_WORD.findall(declarations.source[function.start : function.end]))
    if not _ENDS.isdisjoint(words) or any(map(is_assertion, words)):
        return False
    closure = declarations.scope.closure
    if any(_is_variable(each, word) for each in closure for word in words & each.values_by_name.keys()):
        return False
    return all(
        is_quiet(callee)
        for each in closure
        for word in words & each.functions_by_name.keys()
        for callee in each.functions_by_name[word]
    )


def _is_variable(declarations: Declarations, name: str) -> bool:
    for value in declarations.values_by_name[name]:
        text = declarations.source[value.node.start_byte : value.node.end_byte]
        if value.enum is None and _CONSTANT.isdisjoint(_WORD.findall(text)):
            return True
    return False
