"""CL402 unguarded-neighbour and CL403 row-wrap-neighbour: no test keeps a neighbour within its array or its row."""

from __future__ import annotations

from itertools import islice
from math import gcd
from typing import TYPE_CHECKING

from cudalint.facts import shapes
from cudalint.facts import terms as t
from cudalint.facts.events import Pointer, Record, chain, conjuncts
from cudalint.facts.expressions import from_poly
from cudalint.facts.ids import BDIM, BID, TID
from cudalint.facts.uniformity import expand
from cudalint.findings import Witness, digits, plural
from cudalint.ir.types import I64, Struct
from cudalint.lazy import NamedTuple
from cudalint.rules import launches, support
from cudalint.rules.draft import Draft
from cudalint.rules.trials import Trial, Visit, trials, unreached, value, visits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from cudalint.confirm.experiment import Bench, Plan
    from cudalint.confirm.oracle import Fault, Run
    from cudalint.facts.events import Access, Obj, Value
    from cudalint.facts.kernels import Case, Coordinate
    from cudalint.facts.model import Kernel, Launch
    from cudalint.facts.terms import Poly, Term

CODES = ("CL402", "CL403")

_TRIES = 10
_IDS = frozenset([*TID.values(), *BID.values()])
_PLAIN = frozenset({"tid", "bid", "bdim", "gdim", "count", "param"})


class _Neighbour(NamedTuple):
    """An access beside a tested index: ``base`` is the index that is tested, ``address`` what is touched."""

    access: Access
    address: Poly
    base: Coordinate


class _Row(NamedTuple):
    """An access in a plane with rows of ``pitch`` elements: its ``row``, and the row that is tested."""

    access: Access
    row: Poly
    base: Coordinate
    pitch: Term

    @property
    def offset(self) -> Poly:
        return t.add(self.row, self.base.index, -1)


class _Beyond(NamedTuple):
    """A thread that comes to ``element`` of an array (a row) whose elements are 0 … ``extent`` - 1; -1: not known."""

    trial: Trial
    visit: Visit
    element: int
    extent: int


def check_neighbour(kernel: Kernel) -> Iterator[Draft]:
    """One finding for each test and side: a[i - c] or a[i + c] where only i is tested."""
    told: set[tuple[Term, bool]] = set()
    for item in _neighbours(kernel):
        if len({x.data.axis for x in item.base.ids if x.data.kind == "tid"}) > 1 or _pitch(item.address) is not None:
            continue
        found = _outside(kernel, item)
        if found is not None and (item.base.term, found.element < 0) not in told:
            told.add((item.base.term, found.element < 0))
            yield _draft(kernel, item.access, found)


def check_rows(kernel: Kernel) -> Iterator[Draft]:
    """One finding for each array and side: (y - c) * w + x or (y + c) * w + x where only y is tested."""
    told: set[tuple[object, bool]] = set()
    rows = [row for access in _plain(kernel) if (row := _row(kernel, access)) is not None]
    for item in rows:
        found = _off_plane(kernel, item, [x for x in rows if x.access.obj is item.access.obj])
        if found is not None and (item.access.obj, found.element < 0) not in told:
            told.add((item.access.obj, found.element < 0))
            yield _draft(kernel, item.access, found)


def check_row(kernel: Kernel) -> Iterator[Draft]:
    """One finding for each array and side: y * w + x - c or + c with no test of the column on that side."""
    told: set[tuple[object, bool]] = set()
    for access in _plain(kernel):
        address = expand(access.scalar or {})
        pitch = _pitch(address)
        if pitch is None:
            continue
        column, row = _parts(address, pitch)
        if any(x.data.kind == "param" for m in (*column, *row) for x in m):
            continue
        found = _wrapped(kernel, access, column, pitch)
        if found is not None and (access.obj, found.element < 0) not in told:
            told.add((access.obj, found.element < 0))
            yield _row_draft(kernel, access, found)


# --- which accesses ---------------------------------------------------------------------------------


def _plain(kernel: Kernel) -> Iterator[Access]:
    """Accesses to global memory at sums of launch ids, counters and parameters."""
    if not kernel.is_kernel or not kernel.flow.complete:
        return
    for access in kernel.flow.accesses:
        if access.obj.kind != "global" or not access.scalar or access.obj.origin:
            continue
        if all(x.op == "atom" and x.data.kind in _PLAIN for x in t.atoms_of(expand(access.scalar))):
            yield access


def _neighbours(kernel: Kernel) -> Iterator[_Neighbour]:
    for access in _plain(kernel):
        address = expand(access.scalar or {})
        for term in conjuncts(access.guard):
            base = kernel.layout.coordinate(term)
            if base is None or not base.ids:
                continue
            offset = t.add(address, base.index, -1)
            # A constant or a counter beside the tested index; a multiple of a size is a plane away.
            if (offset or _touched(access) > 1) and all(_is_small(m) for m in offset):
                yield _Neighbour(access, address, base)
                break


def _touched(access: Access) -> int:
    """The elements from the address on up to the last that is touched: of a pack that is one member's alone."""
    fields = list(access.element.fields or ()) if isinstance(access.element, Struct) else []
    if not access.part or access.part[0] not in fields or access.width % len(fields):
        return access.width
    return (fields.index(access.part[0]) + 1) * (access.width // len(fields))


def _is_small(monomial: tuple[Term, ...]) -> bool:
    return len(monomial) <= 1 and all(x.op == "atom" and x.data.kind == "count" for x in monomial)


def _pitch(address: Poly) -> Term | None:
    """The parameter that an axis is multiplied by, where the address has rows of another axis' elements."""
    found = shapes.axes(address)
    if len(found) != 2:
        return None
    scales = [a.scale for a in found.values() if a.thread]
    unit = [s for s in scales if t.constant(s) == 1]
    rows = [s for s in scales if len(s) == 1 and all(c == 1 and len(m) == 1 for m, c in s.items())]
    if len(unit) != 1 or len(rows) != 1:
        return None
    ((pitch,),) = rows[0]
    return pitch if pitch.data.kind == "param" else None


def _parts(address: Poly, pitch: Term) -> tuple[Poly, Poly]:
    """Column and row of an address."""
    column = {m: c for m, c in address.items() if pitch not in m}
    row: Poly = {}
    for monomial, factor in address.items():
        if pitch in monomial:
            at = monomial.index(pitch)
            row[monomial[:at] + monomial[at + 1 :]] = factor
    return column, row


def _row(kernel: Kernel, access: Access) -> _Row | None:
    """The row of an access beside a tested one, in a plane whose rows are as long as the test of the column says."""
    address = expand(access.scalar or {})
    pitch = _pitch(address)
    if pitch is None:
        return None
    column, row = _parts(address, pitch)
    down = across = None
    for term in conjuncts(access.guard):
        base = kernel.layout.coordinate(term)
        if base is None or len({x.data.axis for x in base.ids if x.data.kind == "tid"}) != 1:
            continue
        if all(_is_small(m) for m in t.add(row, base.index, -1)):
            down = base
        elif all(_is_small(m) for m in t.add(column, base.index, -1)) and _size(base) == {(pitch,): 1}:
            across = base
    return _Row(access, row, down, pitch) if down is not None and across is not None and _size(down) else None


def _size(base: Coordinate) -> Poly:
    """``i < n``, ``i < n - 1``: the size is what is left without the constant."""
    return {m: c for m, c in base.limit.items() if m}


# --- which threads ----------------------------------------------------------------------------------


def _outside(kernel: Kernel, item: _Neighbour) -> _Beyond | None:
    access = item.access
    address = from_poly(item.address, I64)
    # `i < n`, `i < n - 1`: the size is what is left without the constant.
    size = {m: c for m, c in item.base.limit.items() if m}
    limit = from_poly(size, I64) if size and _ends_there(kernel, item) else None
    constant = item.address.get((), 0)
    if constant >= 0 and limit is None and not _allocated(kernel, access):
        return None
    guards = [g.term for g in chain(access.guard) if g.why != "assert"]
    for trial in islice(trials(kernel, [address, *guards, *([limit] if limit is not None else [])]), _TRIES):
        extent = _extent(access, trial)
        if extent is None and limit is not None:
            extent = value(limit, trial.env)
        if _moved(kernel, access, trial):
            continue
        for visit in visits(access, trial, [address]):
            at = value(address, visit.env)
            if not isinstance(at, int):
                continue
            if at < 0:
                return _Beyond(trial, visit, at, extent if isinstance(extent, int) else -1)
            if isinstance(extent, int) and 0 < extent < at + _touched(access):
                return _Beyond(trial, visit, max(at, extent), extent)
    return None


def _on_both_sides(item: _Row, others: list[_Row]) -> bool:
    """Whether rows before and behind a thread's own are touched, so that the plane ends where the test ends."""
    sides = {(c > 0) - (c < 0) for x in others for c in [t.constant(x.offset)] if c is not None}
    return {-1, 1} <= sides or t.constant(item.offset) is None


def _off_plane(kernel: Kernel, item: _Row, others: list[_Row]) -> _Beyond | None:
    """The first thread that comes to a row in front of the plane; to one behind it where rows on both sides of the
    thread's own are read."""
    access = item.access
    if not item.offset:
        return None
    both = _on_both_sides(item, others)
    row, address = from_poly(item.row, I64), from_poly(expand(access.scalar or {}), I64)
    height = from_poly(_size(item.base), I64)
    guards = [g.term for g in chain(access.guard) if g.why != "assert"]
    for trial in islice(trials(kernel, [row, address, height, item.pitch, *guards]), _TRIES):
        rows, width = value(height, trial.env), value(item.pitch, trial.env)
        if _moved(kernel, access, trial) or not isinstance(rows, int) or not isinstance(width, int):
            continue
        for visit in visits(access, trial, [row, height]):
            at, element = value(row, visit.env), value(address, visit.env)
            if not isinstance(at, int) or not isinstance(element, int):
                continue
            if at < 0 and element < 0:
                return _Beyond(trial, visit, element, rows * width)
            if both and at >= rows > 0 and element >= rows * width > 0 and not _allocated(kernel, access):
                return _Beyond(trial, visit, element, rows * width)
    return None


def _ends_there(kernel: Kernel, item: _Neighbour) -> bool:
    """Whether the array ends where the test of the index ends: a pack at the tested index itself, one of elements that
    a thread has to itself, or an array read on both sides of it (one that is read at i and i + 1 alone may well have
    an element more)."""
    offset = t.add(item.address, item.base.index, -1)
    if not offset or _is_share(kernel, item, t.constant(offset)):
        return True
    form, base = _form(item.base.index)
    low, high = _reads(kernel).get((item.access.obj, form), (base, base))
    return low < base < high


def _form(index: Poly) -> tuple[frozenset[tuple[tuple[Term, ...], int]], int]:
    """A polynomial without its constant, and that."""
    return frozenset((m, c) for m, c in index.items() if m), index.get((), 0)


def _reads(kernel: Kernel) -> dict[object, tuple[int, int]]:
    """Per array, and per what its addresses are but for a constant, the least and the largest of their constants."""
    known = kernel.answers.get("reads")
    if isinstance(known, dict):
        return known
    found: dict[object, tuple[int, int]] = {}
    for access in kernel.flow.accesses:
        if access.scalar is not None:
            form, constant = _form(expand(access.scalar))
            low, high = found.get((access.obj, form), (constant, constant))
            found[access.obj, form] = min(low, constant), max(high, constant)
    kernel.answers["reads"] = found
    return found


def _is_share(kernel: Kernel, item: _Neighbour, offset: int | None) -> bool:
    """Whether the tested index goes in steps that are larger than the offset, and its own element is touched as well:
    each thread has some elements in a row, and only the first of them is tested. Where others of the kernel's arrays
    are touched in packs there, the size is a multiple of theirs."""
    step = gcd(*(c for m, c in item.base.index.items() if m))
    if offset is None or not 0 < offset < step:
        return False
    beside = [a for a in kernel.flow.accesses if a.obj.kind == "global" and item.base.term in conjuncts(a.guard)]
    own = any(a.obj is item.access.obj and a.scalar and expand(a.scalar) == item.base.index for a in beside)
    return own and all(a.width == 1 for a in beside)


def _allocated(kernel: Kernel, access: Access) -> bool:
    return any(
        (p := launch.objects().get(access.obj)) is not None and p.obj.bytes is not None for launch in kernel.launches
    )  # fmt: skip


def _extent(access: Access, trial: Trial) -> int | None:
    """The elements that the host allocates, where it shows that."""
    passed = trial.launch.objects().get(access.obj) if trial.launch is not None else None
    size = access.obj.element.size if access.obj.element is not None else None
    if passed is None or passed.pieces or passed.obj.bytes is None or not size:
        return None
    found = value(passed.obj.bytes, trial.env)
    return found // size if isinstance(found, int) else None


def _moved(kernel: Kernel, access: Access, trial: Trial) -> bool:
    """Whether the launch (or any, for the kernel by itself) passes a pointer into an array, with room before it, or
    one that somebody else put into the argument it is taken from: it may be such a one."""
    launched = [trial.launch] if trial.launch is not None else kernel.launches
    return any(_may_be_inside(x, x.objects().get(access.obj)) for x in launched)


def _may_be_inside(launch: Launch, passed: Pointer | None) -> bool:
    """Whether a pointer that a launch passes may point into an array."""
    return passed is not None and (bool(passed.pieces) or _holds(launch.flow.params.values(), passed.obj))


def _holds(arguments: Iterable[Value], obj: Obj) -> bool:
    """Whether a pointer to an object is a member of one of a host function's arguments."""
    members = [x for argument in arguments if isinstance(argument, Record) for x in argument.fields.values()]
    return any(isinstance(x, Pointer) and x.obj is obj for x in members) or (bool(members) and _holds(members, obj))


def _wrapped(kernel: Kernel, access: Access, column: Poly, pitch: Term) -> _Beyond | None:
    at, address = from_poly(column, I64), from_poly(expand(access.scalar or {}), I64)
    if not column.get((), 0) and not any(x.data.kind == "count" for m in column for x in m):
        return None
    if not _both_tested(kernel, access, column):
        return None
    guards = [g.term for g in chain(access.guard) if g.why != "assert"]
    outside = None
    for trial in islice(trials(kernel, [at, pitch, address, *guards]), _TRIES):
        width = value(pitch, trial.env)
        if _moved(kernel, access, trial) or not isinstance(width, int) or width < 2:
            continue
        for visit in visits(access, trial, [at, t.const(width)]):
            place, element = value(at, visit.env), value(address, visit.env)
            if isinstance(place, int) and not 0 <= place < width:
                found = _Beyond(trial, visit, place, width)
                if isinstance(element, int) and element >= 0:
                    return found
                outside = outside or found  # in front of the array: an element of another row tells more
    return outside


def _both_tested(kernel: Kernel, access: Access, column: Poly) -> bool:
    """Whether both coordinates are tested, each by itself: others are CL501's and CL502's."""
    ids = {x for m in expand(access.scalar or {}) for x in m if x.data.kind == "tid"}
    tested: set[Term] = set()
    for term in conjuncts(access.guard):
        item = kernel.layout.coordinate(term)
        if item is not None and len({x for x in item.ids if x.data.kind == "tid"}) == 1:
            tested |= item.ids
    return bool(column) and ids <= tested


# --- words ------------------------------------------------------------------------------------------


def _draft(kernel: Kernel, access: Access, found: _Beyond) -> Draft:
    trial, visit = found.trial, found.visit
    where = launches.thread_words((visit.block, visit.thread), trial.grid, trial.block)
    at = f"at {launches.told(trial.sizes)} " if trial.sizes else ""
    exact = unreached(kernel, trial)
    element = support.element(access, found.element)
    end = f", of {plural(found.extent, 'element')}" if found.element >= 0 else ""
    values: dict[str, int | str] = {"index": element}
    if found.extent >= 0:
        values["elements"] = found.extent
    return Draft(
        "CL402", access.fn, access.fn.file, access.node.start, access.node.end,
        f"the tests bound the index, not what `{support.text(access.fn, access.node)}` touches beside it: {at}{where} "
        f"comes to element {digits(element)}{end}{support.EXACT if exact else ''}",
        "test the neighbour itself, or clamp or wrap its index",
        Witness(trial.sizes, None if exact else trial.grid, trial.block, (visit.block, visit.thread), values),
        (*support.launched_at(kernel, 1), *support.calls(access)),
        "warning" if exact else None,
    )  # fmt: skip


def _row_draft(kernel: Kernel, access: Access, found: _Beyond) -> Draft:
    trial, visit = found.trial, found.visit
    where = launches.thread_words((visit.block, visit.thread), trial.grid, trial.block)
    at = f"at {launches.told(trial.sizes)} " if trial.sizes else ""
    element = value(from_poly(expand(access.scalar or {}), I64), visit.env)
    other = "an element of the row above" if found.element < 0 else "an element of the row below"
    if isinstance(element, int) and element < 0:
        other = f"element {element}"
    exact = unreached(kernel, trial)
    return Draft(
        "CL403", access.fn, access.fn.file, access.node.start, access.node.end,
        f"no test keeps `{support.text(access.fn, access.node)}` within its row: {at}{where} asks for column "
        f"{found.element} of {found.extent} and gets {other}{support.EXACT if exact else ''}",
        "test the column and the row of the neighbour apart, or clamp or wrap its column",
        Witness(
            trial.sizes, None if exact else trial.grid, trial.block, (visit.block, visit.thread),
            {"column": found.element, "columns": found.extent},
        ),
        (*support.launched_at(kernel, 1), *support.calls(access)),
        "warning" if exact else None,
    )  # fmt: skip


def experiment_cl402(bench: Bench) -> Plan:
    """Accesses outside of buffers that end where the tests of the index end."""
    from cudalint.confirm.experiment import Plan, oracle
    from cudalint.sim.values import Unsupported

    if any(_may_be_inside(launch, p) for launch in bench.kernel.launches for p in launch.objects().values()):
        raise Unsupported("a pointer into an array")
    chosen = bench if bench.witness is None or bench.as_predicted() else bench.alone()
    ends = {x.access.obj.name for x in _neighbours(chosen.kernel) if _ends_there(chosen.kernel, x)}
    chosen.harness.ending = frozenset(ends)
    chosen.harness.adjusted = _planes(chosen)
    said = bench.witness.values.get("index") if bench.witness is not None else None

    def judge(run: Run) -> Fault | None:
        return oracle.outside(run, element=said if isinstance(said, int) else None)

    trials = [chosen.of_the_block_named(x) for x in chosen.trials()]
    return Plan(trials, judge, first=("index",), anywhere=True, bench=chosen)


def _planes(bench: Bench, *, own_row: bool = False) -> Callable[[Obj, int, Case], int]:
    """Makes buffers that are no larger than the plane whose rows are touched, where the host does not say; with
    ``own_row``, also where threads touch their own rows only."""
    rows = [row for access in _plain(bench.kernel) if (row := _row(bench.kernel, access)) is not None]
    planes: dict[Obj, Poly] = {}
    for item in rows:
        others = [x for x in rows if x.access.obj is item.access.obj]
        if _on_both_sides(item, others) or (own_row and not any(x.offset for x in others)):
            planes[item.access.obj] = t.multiply(_size(item.base), {(item.pitch,): 1}) or {}
    passed = bench.launch.objects() if bench.launch is not None else {}

    def ending(obj: Obj, extent: int, case: Case) -> int:
        plane = planes.get(obj)
        if not plane or ((known := passed.get(obj)) is not None and known.obj.bytes is not None):
            return extent
        try:
            return case.number(plane)
        except t.Undefined:
            return extent

    return ending


def experiment_cl403(bench: Bench) -> Plan:
    """The neighbour of a corner lies outside of the buffer as well; another is read by a thread of another row."""
    from cudalint.confirm.experiment import Plan, oracle
    from cudalint.sim.values import Unsupported

    chosen = bench if bench.witness is None or bench.as_predicted() else bench.alone()
    chosen.harness.adjusted = _planes(chosen, own_row=True)

    def judge(run: Run) -> Fault | None:
        found = oracle.outside(run)
        if found is None and bench.witness is not None:
            rows = _own_rows(chosen)
            if rows is None:
                raise Unsupported("a neighbour of another row that lies within the buffer")
            found = _of_another_row(run, *rows)
        return found

    return Plan(chosen.trials(), judge, watch=frozenset({"writes", "reads"}), anywhere=True, bench=chosen)


def _own_rows(bench: Bench) -> tuple[str, Term, Term] | None:
    """The array that is flagged, the row that each thread means to read of it, and how long its rows are; None where a
    thread reads several rows."""
    names = bench.accessed.names if bench.accessed is not None else ()
    found = None
    for access in bench.kernel.flow.accesses:
        if access.obj.name in names and access.mode != "w":
            address = expand(access.scalar or {})
            pitch = _pitch(address)
            if pitch is None:
                return None
            read = access.obj.name, from_poly(_parts(address, pitch)[1], I64), pitch
            if found not in (None, read):
                return None
            found = read
    return found


def _of_another_row(run: Run, name: str, row: Term, pitch: Term) -> Fault | None:
    """The first thread that reads the first or last element of a row that is not its own."""
    from cudalint.confirm import oracle

    state, width = run.seen.buffers.get(name), run.setup.values.get(pitch, 0)
    if state is None or width < 1 or run.seen.end != "done":
        return None
    block = {BDIM[x]: run.setup.block[i] for i, x in enumerate("xyz")}
    ends = [x for first in range(0, state.extent, width) for x in (first, first + width - 1)][:_MOST_ENDS]
    for number, element in ((int(n), e) for each in state.readers(ends) for n, e in zip(each, ends)):
        if number >= 0:
            at, thread = oracle.place(number, run.setup.grid, run.setup.block)
            own = value(row, {**run.setup.values, **block, **support.coordinates(at, thread)})
            if own is not None and own != element // width:
                who = oracle.thread_name(at, thread)
                text = f"{who} reads `{name}[{element}]`, which is of row {element // width} and not of its own, {own}"
                return oracle.Fault("wrong-value", text, element, (oracle.Wrong(element, at, thread),))
    return None


_MOST_ENDS = 1 << 14
"""Ends of rows that are looked at."""
