"""Which expressions without a type the type oracle may settle: asking costs a parse, and most it cannot know either."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudalint.facts.assigned import children
from cudalint.frontend.oracle import hopeful
from cudalint.ir.nodes import Call, Expr, Member, Ref
from cudalint.ir.types import Unknown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def may_settle(exprs: Iterable[Expr]) -> bool:
    """Whether libclang can know what leaves one of these without a type."""
    return any(hopeful(leaf) for expr in exprs for leaf in _roots(expr))


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
