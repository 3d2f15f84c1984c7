"""Repairs of CL302, CL304 and CL305: a barrier put where every thread comes to it.

Imported where a finding is made: a run without findings needs none of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudalint.facts import terms as t
from cudalint.facts.events import chain
from cudalint.ir import nodes as ir
from cudalint.rules import edits
from cudalint.rules.draft import EditDraft, FixDraft

if TYPE_CHECKING:
    from cudalint.facts.events import Access, Barrier, Event, Loop
    from cudalint.facts.model import Kernel

_BARRIER = "__syncthreads();"


def between(kernel: Kernel, earlier: Access, later: Access) -> FixDraft | None:
    """A barrier in front of the statement with the later access, in the block that holds both."""
    if not _plain(kernel, earlier) or not _plain(kernel, later):
        return None
    body = edits.body_of(kernel.function)
    paths = [body.path(x.node) for x in (earlier, later)]
    common = [a for a, b in zip(*paths, strict=False) if a is b]
    block = common[-1] if common else None
    if not isinstance(block, ir.Block) or min(map(len, paths)) <= len(common):
        return None
    first, second = (path[len(common)] for path in paths)
    begin = body.line_start(second.start)
    if first.end > begin or body.text[begin : second.start].strip() or not body.lone(second.start, second.end):
        return None
    if not _met_by_all(kernel, later, second.start):
        return None
    text = f"{_BARRIER}\n{body.indent(second.start)}"
    edit = EditDraft(body.file, second.start, second.start, text)
    return FixDraft(False, "put a barrier between the two", (edit,))


def round_the_loop(kernel: Kernel, loop: Loop, event: Event) -> FixDraft | None:
    """A barrier at the end of a loop's body."""
    node = loop.node
    if not _plain(kernel, event) or loop.fn is not kernel.function or loop.stack:
        return None
    if not isinstance(node, (ir.For, ir.While)) or not isinstance(node.body, ir.Block) or not node.body.body:
        return None
    body = edits.body_of(kernel.function)
    last = node.body.body[-1]
    line = body.whole_lines(last)
    if line is None or any(isinstance(x, (ir.Break, ir.Continue)) for x in edits.inner(node.body)):
        return None
    if not _met_by_all(kernel, event, node.body.start, within=loop):
        return None
    text = f"{body.indent(last.start)}{_BARRIER}\n"
    edit = EditDraft(body.file, line[1], line[1], text)
    return FixDraft(False, "put a barrier at the end of the loop's body", (edit,))


def hoisted(kernel: Kernel, barrier: Barrier) -> FixDraft | None:
    """The barrier that a branch begins or ends with, before or behind it, where every thread comes by."""
    if barrier.scope != "block" or barrier.collective or not _plain(kernel, barrier):
        return None
    body = edits.body_of(kernel.function)
    statement = body.statement(barrier.node)
    block = body.parent(statement) if statement is not None else None
    test = body.parent(block) if block is not None else None
    if not isinstance(statement, ir.ExprStmt) or statement.expr is not barrier.node or not isinstance(block, ir.Block):
        return None
    if not isinstance(test, ir.If) or test.then is not block or test.other is not None or len(block.body) < 2:
        return None
    lines, after = body.whole_lines(statement), body.text.find(b"\n", test.end) + 1
    begin = body.line_start(test.start)
    alone = lines is not None and after and not body.text[begin : test.start].strip()
    if (
        not alone
        or lines is None
        or not body.lone(test.start, test.end)
        or not _met_by_all(kernel, barrier, test.start)
    ):
        return None
    if body.text[test.end : after].strip() and not body.text[test.end : after].lstrip().startswith(b"//"):
        return None
    first, last = body.file.origin(*lines)  # with what is said of it
    line = f"{body.indent(test.start)}{body.file.raw[first:last].decode('utf-8', 'replace').strip()}\n"
    if statement is block.body[-1]:
        edit = EditDraft(body.file, after, after, line)
    elif statement is block.body[0] and edits.plain(test.cond):
        edit = EditDraft(body.file, begin, begin, line)
    else:
        return None
    gone = EditDraft(body.file, *lines, "")
    return FixDraft(False, "let every thread come to the barrier", (gone, edit))


def _plain(kernel: Kernel, event: Event) -> bool:
    return event.fn is kernel.function and not event.stack and not kernel.flow.opaques


def _met_by_all(kernel: Kernel, event: Event, at: int, within: Loop | None = None) -> bool:
    """Whether all threads of a block come to a place before an event, or none: what decides about it until there is
    the same for them. ``within`` is a loop at the end of whose body the place is."""
    known = kernel.uniformity()
    guards = [g for g in chain(event.guard) if g.node.start < at or g.loop is within is not None]
    return all(
        g.fn is kernel.function and known.divergent(g) == t.UNIFORM
        for g in guards
        if g.why not in ("assert", "implied")
    )


__all__ = ["between", "hoisted", "round_the_loop"]
