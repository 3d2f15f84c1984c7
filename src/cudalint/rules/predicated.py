"""The repair of CL301: an early return made a condition of what comes after it.

Imported where a finding is made: a run without findings needs none of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudalint.ir import nodes as ir
from cudalint.rules import edits
from cudalint.rules.draft import FixDraft

if TYPE_CHECKING:
    from cudalint.facts.events import ReturnEvent
    from cudalint.facts.model import Kernel
    from cudalint.rules.draft import EditDraft


def repair(kernel: Kernel, event: ReturnEvent) -> FixDraft | None:
    """``if (cond) return;`` taken out, and the stores and loads behind it put under the opposite, barriers left out.

    Only where the kernel's body goes on in plain statements, each with nothing but barriers or none, and what they
    declare takes nothing from memory.
    """
    flow, fn = kernel.flow, kernel.function
    if event.fn is not fn or event.stack or flow.collectives or flow.opaques or any(x.stack for x in flow.barriers):
        return None
    shared = [x for x in flow.accesses if x.obj.kind == "shared" and x.seq > event.seq]
    if any(x.obj is y.obj and x.scalar != y.scalar for x in shared for y in shared if y.mode != "r"):
        return None  # what nobody stores any more may be read: it would need a value of its own
    body = edits.body_of(fn)
    test = body.parent(event.node)
    if isinstance(test, ir.Block):
        test = body.parent(test)
    if not isinstance(test, ir.If) or test.other is not None or not edits.leaves(test.then):
        return None
    if not edits.plain(test.cond) or test not in fn.body.body:
        return None
    if not all(body.steady(x.var) for x in edits.inner(test.cond) if isinstance(x, ir.Ref)):
        return None
    staying, gone = body.negated(test.cond), body.removed(test)
    if staying is None or gone is None:
        return None
    changes: list[EditDraft] = [gone]
    waits = [x.node.start for x in flow.barriers]
    for statement in fn.body.body[fn.body.body.index(test) + 1 :]:
        if any(statement.start <= x < statement.end for x in waits):
            if not isinstance(statement, ir.ExprStmt) or not isinstance(statement.expr, ir.Call):
                return None
            continue
        if isinstance(statement, ir.VarDecl) and (statement.init is None or edits.plain(statement.init)):
            continue
        if not isinstance(statement, (ir.ExprStmt, ir.For, ir.If, ir.While)):
            return None
        if any(isinstance(x, ir.Return) for x in edits.inner(statement)):
            return None
        if isinstance(statement, ir.If) and statement.other is not None:
            return None
        under = body.under(staying, [statement])
        if under is None:
            return None
        changes += under
    return FixDraft(False, "keep every thread alive, and put what follows under the condition", tuple(changes))
