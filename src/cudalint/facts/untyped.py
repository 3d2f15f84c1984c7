"""Which expressions without a type the type oracle may settle: asking costs a parse, and most it cannot know either."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cudalint.facts.assigned import children
from cudalint.frontend.oracle import hopeful
from cudalint.ir.nodes import Call, Construct, Expr, Member, Ref
from cudalint.ir.types import Unknown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_CLASS = re.compile(r"type '[^<']*(?<!_t)<")
"""An instance of a template that is no alias: a class, whatever its name."""


def may_settle(exprs: Iterable[Expr]) -> bool:
    """Whether libclang can know what leaves one of these without a type."""
    return any(hopeful(leaf) and not _is_object(leaf) for expr in exprs for leaf in _roots(expr))


def _is_object(expr: Expr) -> bool:
    """Whether ``expr`` is a variable or a new object of a class: whatever is known of the class, it is no number."""
    type_ = expr.type
    return isinstance(expr, (Ref, Construct)) and isinstance(type_, Unknown) and _CLASS.match(type_.why) is not None


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
