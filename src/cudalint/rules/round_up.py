"""The repairs of CL203 and CL202: a division that rounds down made one that rounds up, a grid sized from the elements.

Imported where a finding is made: a run without findings needs none of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudalint.facts import kernels, search, shapes
from cudalint.facts import terms as t
from cudalint.facts import witness as w
from cudalint.facts.expressions import from_poly
from cudalint.facts.ids import BDIM
from cudalint.ir import nodes as ir
from cudalint.ir.types import DIM3, I64
from cudalint.rules import edits, widening, width
from cudalint.rules.draft import EditDraft, FixDraft

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudalint.facts.events import Operation
    from cudalint.facts.kernels import Coordinate
    from cudalint.facts.model import Launch
    from cudalint.facts.terms import Term
    from cudalint.ir.nodes import Expr, Node
    from cudalint.rules.cl202_cl203_coverage import Short


def repair(launch: Launch, short: Iterable[Short]) -> FixDraft | None:
    """Every division that leaves a launch ``short`` rounded up, and the launch under a test that there is something
    to do where only the floor kept it from being refused for its emptiness."""
    body = edits.body_of(launch.event.fn)
    changes: dict[int, EditDraft] = {}
    sizes: dict[Term, None] = {}
    for found in short:
        item = found.coordinate
        place = _quotient(launch, found) if item is not None and _all_tested(launch, item) else None
        if place is None or not _sizes_blocks_only(body, place.node):
            return None
        text = _ceiling(body, place.node)
        if text is None or place.fn is not launch.event.fn:
            return None
        changes[place.node.start] = EditDraft(place.fn.file, place.node.start, place.node.end, text)
        sizes.update(dict.fromkeys(x for x in search.ordered([place.term.args[0]], []) if _can_be_0(launch, found, x)))
    whole = [*(launch.grid or ()), *(launch.block or ())]
    if sizes and not search.never_empty(whole):
        guard = edits.under_sizes(launch, list(sizes))
        if guard is None:
            return None
        changes.update((x.start, x) for x in guard)
    return FixDraft(True, "round the number of blocks up", tuple(changes.values())) if changes else None


def sized(launch: Launch, found: Short) -> FixDraft | None:
    """A block for every ``t`` elements, where the kernel tests each for itself and the launch is of one axis."""
    item, event = found.coordinate, launch.event
    grid, block = event.node.grid, event.node.block
    if item is None or found.axis != "x" or event.stack or not _all_tested(launch, item):
        return None
    if not (isinstance(grid, ir.Expr) and isinstance(block, ir.Expr)) or DIM3 in (grid.type, block.type):
        return None
    if item.share != {(BDIM["x"],): 1} or item.pitch != shapes.ONE or item.counters:
        return None
    size = t.bare(launch.at_launch(from_poly(item.limit, I64)))
    body = edits.body_of(event.fn)
    name = edits.host_name(launch, body, size) if size.op == "atom" else None
    if name is None or not edits.plain(block) or not body.lone(grid.start, grid.end):
        return None
    guard = edits.under_sizes(launch, [size]) if _can_be_0(launch, found, size) else []
    if guard is None:
        return None
    by = f"({body.source(block)})" if isinstance(block, (ir.Binary, ir.Cast)) else body.source(block)
    edit = EditDraft(body.file, grid.start, grid.end, f"{name} / {by} + ({name} % {by} != 0)")
    return FixDraft(True, "size the grid from the elements", (edit, *guard))


def _all_tested(launch: Launch, item: Coordinate) -> bool:
    """Whether the kernel tests the coordinate on the way to everything that it addresses with it."""
    assert launch.kernel is not None
    tested = {id(a) for c in launch.kernel.layout.coordinates if c.ids == item.ids for a in c.accesses}
    return all(
        id(a) in tested
        for a in launch.kernel.flow.accesses
        if a.obj.kind == "global"
        and (a.width > 1 or a.scalar is None or item.ids & kernels.ids_of(t.atoms_of(a.scalar)))
    )


def _quotient(launch: Launch, found: Short) -> Operation | None:
    """The one division that rounds down, with the place where it is written."""
    assert launch.grid is not None
    made = set(t.inside([launch.grid["xyz".index(found.axis)]]))
    rounded = [t.poly(p.args[0]) for p in made if p.op == "mod"]
    quotients = [p for p in made if p.op in ("div", "shr") and t.leaves(p) and t.poly(p.args[0]) not in rounded]
    return width.origin(launch.flow, quotients[0], launch.event) if len(quotients) == 1 else None


def _sizes_blocks_only(body: edits.Body, node: Node) -> bool:
    """Whether a value serves launches alone, not as a count of something else."""
    var = widening.holder(body.fn, node)
    if var is None:
        return True
    for use in body.uses(var):
        item: Node | None = use
        while isinstance(item, ir.Expr):
            outer = body.parent(item)
            if isinstance(outer, ir.Launch) and item in (outer.grid, outer.block):
                break
            if isinstance(outer, ir.VarDecl) and outer.var.type is DIM3:
                break
            if isinstance(outer, ir.Assign) and item is outer.target:
                break
            item = outer
        else:
            return False
    return True


def _ceiling(body: edits.Body, node: Node) -> str | None:
    """``n / t + (n % t != 0)`` for ``n / t``, ``n >> k`` and a dividend to which too little is added."""
    if not isinstance(node, ir.Binary) or node.op not in ("/", ">>") or not body.lone(node.start, node.end):
        return None
    size: Expr = node.left
    while isinstance(size, ir.Binary) and size.op in ("+", "-") and isinstance(size.right, ir.Const):
        size = size.left
    if isinstance(size, ir.Binary) and size.op in ("+", "-"):
        return None
    by = node.right
    if not edits.plain(size) or not edits.plain(by) or (node.op == ">>" and not isinstance(by, ir.Const)):
        return None
    n, d = (f"({body.source(x)})" if isinstance(x, (ir.Binary, ir.Cast)) else body.source(x) for x in (size, by))
    if node.op == ">>":
        d = str(1 << int(str(by.value))) if isinstance(by, ir.Const) else ""
    before, after = body.text[: node.start].rstrip()[-1:], body.text[node.end :].lstrip()[:1]
    text = f"{n} / {d} + ({n} % {d} != 0)"
    return text if before in (b"(", b",", b"=", b"{", b"<") and after in (b")", b",", b";", b"}", b">") else f"({text})"


def _can_be_0(launch: Launch, found: Short, size: Term) -> bool:
    """Whether the host lets a size of 0 through to the launch."""
    env = {**found.host, size: 0}
    return w.assumed(size) is None and all(w.allowed(c, env) for c in launch.conditions)
