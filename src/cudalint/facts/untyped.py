"""Which expressions without a type the type oracle may settle: asking costs a parse, and most it cannot know either."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cudalint.facts.flow import children
from cudalint.frontend.oracle import known_names
from cudalint.ir.nodes import Call, Expr, Index, Member, Ref
from cudalint.ir.types import Struct, Unknown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_OPEN = frozenset({
    "a structured binding", "a call through a pointer", "arithmetic on a class type", "an overloaded operator()",
    "auto without an initialiser",
})  # fmt: skip
_QUOTED = re.compile(r"'([^'<]*)")


def may_settle(exprs: Iterable[Expr]) -> bool:
    """Whether libclang can know what leaves one of these without a type."""
    return any(_hopeful(leaf) for expr in exprs for leaf in _roots(expr))


def _roots(expr: Expr) -> Iterator[Expr]:
    """The innermost expressions whose unknown type makes that of ``expr`` unknown."""
    stack, seen = [expr], 0
    while stack and seen < 200:
        node = stack.pop()
        seen += 1
        inner = [c for c in children(node) if isinstance(c, Expr) and isinstance(c.type, Unknown)]
        if isinstance(node, Ref) and node.var.init is not None and isinstance(node.var.init.type, Unknown):
            inner.append(node.var.init)
        if inner:
            stack.extend(inner)
        if not inner or isinstance(node, (Call, Member)):
            yield node


def _hopeful(expr: Expr) -> bool:
    why = expr.type.why if isinstance(expr.type, Unknown) else ""
    if why in _OPEN:
        return True
    names = _QUOTED.findall(why)
    if not names or "depends on" in why:
        return False
    words = known_names()
    if names[0].rpartition("::")[2].strip() in words:
        return True
    # A member or method of a class of the project that syntax does not lead to: inherited, overloaded, a template's.
    base = expr.base if isinstance(expr, (Member, Index)) else expr.receiver if isinstance(expr, Call) else None
    if base is not None and isinstance(base.type, Struct):
        return base.type.key is not None or base.type.name.partition("<")[0].rpartition("::")[2] in words
    return why.startswith("no overload")
