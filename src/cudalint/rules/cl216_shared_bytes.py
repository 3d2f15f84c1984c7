"""CL216 shared-bytes: too few bytes of shared memory for what the kernel indexes, or more than a launch may have."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cudalint.facts import extents, kernels, search
from cudalint.facts import terms as t
from cudalint.facts import witness as w
from cudalint.facts.events import Designator, chain, conjuncts, conjuncts_of
from cudalint.facts.expressions import from_poly
from cudalint.facts.ids import BDIM, TID
from cudalint.facts.uniformity import expand
from cudalint.findings import Witness, digits, plural
from cudalint.frontend.lower import template_arguments
from cudalint.ir import nodes as ir
from cudalint.ir.types import I64, Float, Int, Type
from cudalint.lazy import NamedTuple, pattern
from cudalint.rules import launches, support
from cudalint.rules.draft import Draft, EditDraft, FixDraft

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudalint.confirm.experiment import Bench, Plan
    from cudalint.confirm.harness import Values
    from cudalint.confirm.oracle import Fault, Run
    from cudalint.facts.events import Access
    from cudalint.facts.kernels import Case
    from cudalint.facts.model import Launch
    from cudalint.facts.terms import Poly, Term
    from cudalint.frontend.source import SourceFile
    from cudalint.rules.support import Triple

CODES = ("CL216",)

USUAL = 48 * 1024
"""Bytes of shared memory that a block may have without an opt-in."""
_OPT_IN = pattern(rb"FuncSetAttribute\s*(?:<[^;(]*>)?\s*\(")
_WORD = re.compile(rb"[A-Za-z_]\w*")
_SCANS = 6
"""Sizes at which the threads of a block are tried one by one."""
_LARGE = 64
_DECIDED = frozenset({"param", "bdim", "gdim", "tid", "bid", "loop", "count"})
_OF_BLOCK = frozenset({"param", "bdim", "gdim", "bid"})
_MOST = 24
"""Different accesses of a kernel that are looked at."""


class _Outside(NamedTuple):
    """Host sizes at which threads of the first block come to byte ``last`` and ``passed`` are there. ``thread`` is the
    one whose bytes, from ``first`` on, are the first that are outside."""

    case: Case
    host: dict[Term, int]
    thread: Triple
    access: Access
    first: int
    last: int
    passed: int


def check(launch: Launch) -> Iterator[Draft]:
    """One finding a launch: bytes that are missing, else bytes that no launch gets."""
    passed = _passed(launch)
    if passed is None or any(not isinstance(x.type, Int) for x in (passed, *t.leaves(passed))):
        return
    if launch.kernel is not None and launch.kernel.flow.complete:
        for access in _dynamic(launch):
            found = _outside(launch, access, passed)
            if found is not None:
                yield _missing(launch, found)
                return
    if passed.op == "const":
        draft = _refused(launch, int(passed.data))
        if draft is not None:
            yield draft


def _passed(launch: Launch) -> Term | None:
    """The bytes of dynamic shared memory that the launch asks for; None where that cannot be seen."""
    if launch.shared is None:
        # What a configuration object holds may have been put there elsewhere.
        return None if launch.event.node.form.startswith("cudaLaunchKernelEx") else t.const(0, I64)
    return launch.shared


def _dynamic(launch: Launch) -> list[Access]:
    """The accesses to the dynamic part of shared memory, one of those that are alike."""
    assert launch.kernel is not None
    found: dict[object, Access] = {}
    for access in launch.kernel.flow.accesses:
        if access.obj.kind == "shared" and access.obj.var is not None and access.obj.var.extern:
            address = frozenset(access.scalar.items()) if access.scalar is not None else None
            found.setdefault((access.obj, address, access.width, frozenset(conjuncts(access.guard))), access)
    return list(found.values())[:_MOST]


# --- too few ------------------------------------------------------------------------------------


def _outside(launch: Launch, access: Access, passed: Term) -> _Outside | None:
    """The smallest sizes found at which a thread that gets to the access is beyond the bytes that are passed."""
    size = access.obj.element.size if access.obj.element is not None else None
    if launch.grid is None or launch.block is None or not size:
        return None
    nothing = passed.op == "const" and passed.data == 0
    p = expand(access.scalar) if access.scalar is not None else None
    if p is None and not nothing:
        return None
    if p is not None and _fits(launch, p, access.width, size, passed):
        return None
    begins = _begins(p or {})
    needed = _made_of(launch, p or {}, begins)
    if any(t.leaves(x) for x in launch.block) and not {*TID.values(), *BDIM.values()}.isdisjoint(_leaves(p or {})):
        needed |= search.leaves_of(launch.block)
    if not nothing and needed != t.leaves(passed):
        return None  # sizes that have nothing to do with each other cannot be compared
    leaves = search.ordered([passed], [*launch.grid, *launch.block, *needed])
    if not all(search.is_size(x) or x.data.kind == "device" for x in t.leaves(passed)):
        return None
    scans = 0
    inner = search.leaves_of(launch.block)
    one_by_one = p is not None and (_falls(p) or any(kernels.ids_of([x]) for x in conjuncts(access.guard)))

    def outside(env: dict[Term, int]) -> _Outside | None:
        nonlocal scans
        case = kernels.case(launch, env)
        if case is None or not case.possible or (inner and not _usual(case)):
            return None
        case.values.update(begins)
        have = int(t.evaluate(passed, env))
        scans += one_by_one
        found = _furthest(case, access, p) if p is not None and scans <= _SCANS else None
        if found is None and nothing:
            found = _anyone(case, access)
        if found is None:
            return None
        thread, element = found
        first, last = element * size, (element + access.width) * size - 1
        return _Outside(case, env, thread, access, first, last, have) if first >= 0 and last >= have >= 0 else None

    tries = search.edges(launch, [passed, *launch.grid, *launch.block])

    def is_outside(env: dict[Term, int]) -> bool:
        return outside(env) is not None

    env = search.smallest(is_outside, leaves, launch, tries, block_leaves=inner)
    if env is None and scans > _SCANS and not inner:
        # Of a tile of several axes the thread that gets furthest is there only where all sizes are a block's.
        env = {x: w.assumed(x) or _LARGE for x in leaves}
        scans = 0
        if not all(w.allowed(c, env) for c in launch.conditions) or not w.holds(is_outside, env):
            return None
    found = outside(env) if env is not None else None
    if env is None or found is None:
        return None
    if p is not None:
        found = _nearest(found, p, size)
    # What is missing at the smallest sizes alone is what the kernel takes for granted of them.
    large = {x: v if x in inner or w.assumed(x) is not None else max(v, _LARGE) for x, v in env.items()}
    if large != env and all(w.allowed(c, large) for c in launch.conditions):
        scans = 0
        return found if w.holds(is_outside, large) else None
    return found


def _usual(case: Case) -> bool:
    """Whether a block that the caller chooses is one of whole warps, and more than one."""
    x, y, z = case.block
    return x * y * z % 32 == 0 and x * y * z > 32


def _fits(launch: Launch, p: Poly, width: int, size: int, passed: Term) -> bool:
    """The usual case, seen without a search: the last thread's last byte is within those that are passed."""
    if _falls(p):
        return False
    for axis in "xyz":
        p = extents.replaced(p, {(TID[axis],): 1}, {(BDIM[axis],): 1, (): -1})
    top = t.poly(launch.at_launch(from_poly(t.add(t.scale(p, size), {(): width * size}), I64)))
    return all(c <= 0 for c in t.add(top, t.poly(passed), -1).values())


def _falls(p: Poly) -> bool:
    """Whether an address is less far for a later thread."""
    return any(c < 0 for m, c in p.items() if m)


def _leaves(p: Poly) -> set[Term]:
    return {x for item in t.atoms_of(p) for x in t.leaves(item)}


def _begins(p: Poly) -> dict[Term, int]:
    """The first values of the counters in an address whose loops have no number of passes, as those that halve."""
    loops = [x for x in _leaves(p) if x.data.kind == "loop" and x.data.data is not None]
    first = {x: x.data.data.init for x in loops}
    return {x: int(init.data) for x, init in first.items() if init is not None and init.op == "const"}


def _made_of(launch: Launch, p: Poly, begins: dict[Term, int]) -> set[Term]:
    """The sizes of the host that an address is made of."""
    known = {*TID.values(), *BDIM.values(), *begins}
    found: set[Term] = set()
    for item in _leaves(p) - known:
        if item.data.kind == "count":
            trips = kernels.trips(item.data.data)
            for part in trips or ():
                found |= _made_of(launch, part, begins) if item not in _leaves(part) else set()
        else:
            found |= t.leaves(launch.at_launch(item))
    return found


def _furthest(case: Case, access: Access, p: Poly) -> tuple[Triple, int] | None:
    """The thread of the first block that gets furthest in an access, and the element there."""
    for term in conjuncts(access.guard):
        # `for (i = threadIdx.x; i < n; i += blockDim.x)`: all threads together come to n - 1.
        item = kernels.coordinate(term)
        if item is None or item.loop is None or len(item.ids) != 1 or item.thread is None or item.counters:
            continue
        axis = item.thread.data.axis
        if item.index.get((item.thread,)) != 1 or item.index.get((item.loop.counter, BDIM[axis])) != 1:
            step = {m: c for m, c in item.index.items() if item.loop.counter in m}
            each = {tuple(x for x in m if x is not item.loop.counter): c for m, c in step.items()}
            if item.index.get((item.thread,)) != 1 or case.number(each) != case.block["xyz".index(axis)]:
                continue
        top = extents.replaced(p, item.index, t.add(item.limit, {(): 1}, -1))
        if kernels.ids_of(t.atoms_of(top)) or (last := case.size(item) - 1) < 0:
            continue
        thread = support.on_axis(axis, last % case.block["xyz".index(axis)])
        here = case.of((0, 0, 0), thread)
        return (thread, here.peak(top)) if _gets_there(here, access) else None
    x, y, z = case.block
    last_thread = (x - 1, y - 1, z - 1)
    if not _gets_there(case.of((0, 0, 0), last_thread), access, anyone=True):
        return None
    asks = any(kernels.ids_of([term]) for term in conjuncts(access.guard))
    best: tuple[Triple, int] | None = None
    # The last thread first: where it gets there, the others need not be asked whether they do.
    threads = (
        [(i, j, k) for k in reversed(range(z)) for j in reversed(range(y)) for i in reversed(range(x))]
        if (asks or _falls(p)) and x * y * z <= 1024
        else [last_thread]
    )
    for thread in threads:
        here = case.of((0, 0, 0), thread)
        if (best is None or here.peak(p) >= best[1]) and _runs(here, p) and _gets_there(here, access):
            best = thread, here.peak(p)
    return best


def _nearest(found: _Outside, p: Poly, size: int) -> _Outside:
    """The same case with the thread whose element is the first that is outside; loops are as they were found."""
    x, y, z = found.case.block
    if any(item.op == "atom" and item.data.kind == "count" for item in t.atoms_of(p)) or x * y * z > 1024:
        return found
    for thread in ((i, j, k) for k in range(z) for j in range(y) for i in range(x)):
        here = found.case.of((0, 0, 0), thread)
        first = here.peak(p) * size
        if found.passed < first + found.access.width * size and first < found.first and _gets_there(here, found.access):
            found = found._replace(thread=thread, first=first)
    return found


def _runs(case: Case, p: Poly) -> bool:
    """Whether the loops that an address is made of run at all."""
    for item in t.atoms_of(p):
        if item.op == "atom" and item.data.kind == "count":
            found = kernels.trips(item.data.data)
            if found is None or case.number(found[0]) < 0:
                return False
    return True


def _gets_there(case: Case, access: Access, *, data: bool = False, anyone: bool = False) -> bool:
    """Whether nothing keeps the thread from the access. What the launch decides has to be known, and what decides for
    one thread and not for another too, unless ``data`` may be as it likes. With ``anyone`` only conditions count that
    are the same for all threads of the block."""
    for guard in chain(access.guard):
        if guard.why == "loop" and guard.loop is not None:
            found = kernels.trips(guard.loop) if not anyone else None
            try:
                if found is not None and case.number(found[0]) < 0:
                    return False
            except t.Undefined:
                if not data:
                    return False
            if found is None and not anyone and case.truth(guard.term) is False:
                return False
            continue
        for term in conjuncts_of(guard.term):
            if anyone and any(x.data.kind not in _OF_BLOCK for x in t.leaves(term)):
                continue
            holds = case.truth(term)
            if holds is False:
                return False
            if holds is None:
                by_data = any(x.data.kind not in _DECIDED for x in t.leaves(term))
                if not by_data or (kernels.ids_of([term]) and not data):
                    return False
    return True


def _anyone(case: Case, access: Access) -> tuple[Triple, int] | None:
    """The first thread, where any access at all is outside and the address is not known."""
    here = case.of((0, 0, 0), (0, 0, 0))
    return ((0, 0, 0), 0) if _gets_there(here, access, data=True) else None


def _missing(launch: Launch, found: _Outside) -> Draft:
    event, access = launch.event, found.access
    assert launch.kernel is not None
    names = launches.words(found.host)
    at = f"at {names} " if names else ""
    some = f"{plural(found.passed, 'byte')} of dynamic shared memory" if found.passed else "no dynamic shared memory"
    width = found.access.width * (found.access.obj.element.size or 1) if found.access.obj.element is not None else 1
    end = found.first + width - 1
    span = f"byte {digits(found.first)}" if width == 1 else f"bytes {digits(found.first)} to {digits(end)}"
    others = f", and others come to byte {digits(found.last)}" if found.last > end else ""
    return Draft(
        "CL216", event.fn, event.fn.file, event.node.start, event.node.end,
        f"the launch of {launch.kernel.decl.name} passes {some}: {at}a thread uses "
        f"`{support.text(access.fn, access.node)}`, {span} of it{others}",
        "pass the bytes that the kernel indexes as the launch's third argument, elements times their size",
        Witness(
            search.sizes_of(found.host), found.case.grid, found.case.block, ((0, 0, 0), found.thread),
            {"bytes passed": found.passed, "first byte outside": max(found.first, found.passed)},
        ),
        ((access.fn.file, access.node.start, access.node.end, "used here"), *support.calls(access),
         *launches.callers(launch)),
        fix=_passed_on(launch) if not found.passed else None,
    )  # fmt: skip


def _passed_on(launch: Launch) -> FixDraft | None:
    """The bytes as the launch's third argument: of one element a thread, or of a known number."""
    event, kernel = launch.event, launch.kernel
    node = event.node
    if node.form != "<<<>>>" or node.shared is not None or node.block is None or kernel is None or event.stack:
        return None
    arrays = {access.obj: access.obj for access in _dynamic(launch)}
    if len(arrays) != 1 or kernel.function.template:
        return None
    (array,) = arrays
    size = array.element.size if array.element is not None else None
    if array.var is None or not isinstance(array.element, (Int, Float)) or not size:
        return None
    reach: Poly = {}
    for access in _dynamic(launch):
        if access.scalar is None or access.width > 1:
            return None
        top = _top(expand(access.scalar))
        if top is None or any(kernels.ids_of([x]) for x in conjuncts(access.guard)):
            continue  # looked at below
        more = t.constant(t.add(top, reach, -1)) if reach else 1
        if more is None:
            return None
        reach = top if more > 0 else reach
    text = event.fn.file.text
    block = node.block.args[0] if isinstance(node.block, ir.Construct) and len(node.block.args) == 1 else node.block
    count = t.constant(reach)
    if count is not None and 0 < count * size <= USUAL:
        number = str(count)
    elif reach == {(BDIM["x"],): 1} and isinstance(block, (ir.Ref, ir.Const)) and isinstance(block.type, Int):
        start, end = event.fn.file.origin(block.start, block.end)
        number = event.fn.file.raw[start:end].decode("utf-8", "replace")
    else:
        return None
    enough = launch.at_launch(from_poly(t.scale(reach, size), I64))
    if any(_outside(launch, access, enough) is not None for access in _dynamic(launch)):
        return None
    closing = re.compile(rb">\s*>\s*>").search(text, node.block.end)
    if closing is None or text[node.block.end : closing.start()].strip(b" \t\n)"):
        return None
    at = len(text[: closing.start()].rstrip())
    edit = EditDraft(event.fn.file, at, at, f", {number} * sizeof({array.element})")
    return FixDraft(True, "pass the bytes of shared memory", (edit,))


def _top(p: Poly) -> Poly | None:
    """How many elements a block comes to, where its threads go one by one along x."""
    if any(x.op != "atom" or x.data.kind not in ("tid", "bdim") for x in t.atoms_of(p)) or _falls(p):
        return None
    for axis in "xyz":
        p = extents.replaced(p, {(TID[axis],): 1}, {(BDIM[axis],): 1, (): -1})
    return t.add(p, {(): 1})


# --- too many -----------------------------------------------------------------------------------


def _static(launch: Launch) -> int:
    """Bytes of the kernel's ``__shared__`` arrays, those of known size."""
    if launch.kernel is None:
        return 0
    total = 0
    for obj in launch.kernel.flow.objects.values():
        size = obj.element.size if obj.element is not None else None
        if obj.kind == "shared" and obj.var is not None and not obj.var.extern and obj.extent and size:
            total += obj.extent * size
    return total


def _refused(launch: Launch, dynamic: int) -> Draft | None:
    """More than 48 KB: arrays of a known size never compile, dynamic bytes need the opt-in for the kernel."""
    static = _static(launch)
    if static + dynamic <= USUAL or (static <= USUAL and _opted_in(launch)):
        return None
    event = launch.event
    name = event.node.kernel or "the kernel"
    if static > USUAL:
        what = f"the `__shared__` arrays of {name} take {digits(static)} bytes, and may take {digits(USUAL)}"
        advice = "make them smaller, or use dynamic shared memory with cudaFuncSetAttribute"
    else:
        beside = f" beside {digits(static)} bytes of its own arrays" if static else ""
        what = (
            f"the launch of {name} asks for {digits(dynamic)} bytes of dynamic shared memory{beside}, and without an "
            f"opt-in a block gets {digits(USUAL)} in all: the driver refuses the launch, and the kernel never runs"
        )
        advice = f"call cudaFuncSetAttribute({name}, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes) before"
    grid, block = _dimensions(launch.grid), _dimensions(launch.block)
    return Draft(
        "CL216", event.fn, event.fn.file, event.node.start, event.node.end, what, advice,
        Witness({}, grid, block, None, {"bytes of shared memory": static + dynamic, "limit": USUAL}),
        launches.callers(launch),
    )  # fmt: skip


def _dimensions(parts: tuple[Term, Term, Term] | None) -> Triple | None:
    if parts is None or any(x.op != "const" for x in parts):
        return None
    x, y, z = (int(x.data) for x in parts)
    return x, y, z


def _opted_in(launch: Launch) -> bool:
    """Whether something may have raised the limit for this kernel: a call that is given it, in the host function or in
    the files in sight. A call whose kernel is not named there may mean this one; one that is given another instance of
    its template does not."""
    event = launch.event
    name = event.node.kernel.rsplit("::", 1)[-1]
    target = launch.kernel.decl if launch.kernel is not None else None
    own = event.kernel.targs if event.kernel is not None else event.node.targs
    for x in (x for call in launch.flow.calls for x in call.args if isinstance(x, Designator)):
        same = x.decl is target or x.decl.name == name
        if same and not _are_others(list(map(_number, x.targs)), list(map(_number, own))):
            return True
    files = {event.fn.file, launch.flow.function.file}
    if target is not None:
        files.add(target.file)
    return any(_raises(file, name, list(map(_number, own))) for file in files)


def _number(given: Type | ir.Expr) -> int | None:
    """A template argument that is a plain number, or true or false."""
    return given.value if isinstance(given, ir.Const) and isinstance(given.value, int) else None


def _are_others(given: list[int | None], own: list[int | None]) -> bool:
    """Whether two instances of a template surely are not the same: one argument is another number."""
    return any(a is not None and b is not None and a != b for a, b in zip(given, own))


def _raises(file: SourceFile, name: str, own: list[int | None]) -> bool:
    text = file.text
    for match in _OPT_IN.finditer(text):
        call = text[match.end() : text.find(b";", match.end())]
        named = re.match(rb"[\s(&]*(?:\w+::)*%s\s*<" % name.encode(), call)
        given = template_arguments(call.decode("utf-8", "replace"), named.end()) if named else []
        if _are_others(list(map(_literal, given)), own):
            continue
        words = {x.decode() for x in _WORD.findall(call.split(b",", 1)[0])}
        others = [f for w in words for f in file.declarations.functions_by_name.get(w, ()) if f.kind == "kernel"]
        if name in words or not others:
            return True
    return False


def _literal(text: str) -> int | None:
    """The value of a number, or of true or false, as written."""
    text = text.strip(" \t\r\n()")
    if text in ("true", "false"):
        return int(text == "true")
    return int(text) if text.isdigit() else None


# --- the experiment -----------------------------------------------------------------------------


def experiment_cl216(bench: Bench) -> Plan:
    """Accesses outside of shared memory as large as the launch makes it, and a launch that is refused for its size."""
    from cudalint.confirm.experiment import Plan, oracle

    launch = bench.launch

    def host(values: Values) -> Fault | None:
        passed = _passed(launch) if launch is not None else None
        if launch is None or passed is None:
            return None
        try:
            dynamic = int(t.evaluate(passed, values))
        except t.Undefined:
            return None
        total = _static(launch) + dynamic
        if total <= USUAL or (dynamic and _opted_in(launch)):
            return None
        return oracle.Fault("refused", f"the launch is refused: {total} bytes of shared memory without an opt-in")

    return Plan(bench.trials(), _beyond, host=host)


def _beyond(run: Run) -> Fault | None:
    """Accesses outside of shared memory."""
    from cudalint.confirm.oracle import Fault, Wrong, thread_name

    for event in run.seen.outside or ():
        if event.space == "shared" and not event.dimension:
            text = (
                f"{thread_name(*event.thread)} uses `{event.buffer}[{event.element}]`, of {event.extent} elements"
                f" (line {event.site.line})"
            )
            return Fault("outside", text, event.element, (Wrong(event.element, *event.thread),), event.extent)
    return None
