"""Launches of a kernel with numbers for everything that all threads share, to ask what single threads do there.

A rule that finds a fault by trying asks for the trials of the terms that matter to it: the visible launches
first, with sizes that their host functions let through, then the kernel by itself.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

from cudalint.facts import kernels, search
from cudalint.facts import terms as t
from cudalint.facts import witness as w
from cudalint.facts.events import chain
from cudalint.ir.types import Int
from cudalint.lazy import NamedTuple
from cudalint.rules import support

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cudalint.facts.events import Event, Loop
    from cudalint.facts.model import Kernel, Launch
    from cudalint.facts.terms import Poly, Term
    from cudalint.rules.support import Triple

_MOST_BLOCKS = 4
"""Further blocks in which a kernel is tried."""
_LAUNCH_KINDS = frozenset({"tid", "bid", "bdim", "gdim"})
_SHOWN = frozenset({"device", "argc"})


class Trial(NamedTuple):
    """A launch with numbers. ``launch`` is None where the kernel is taken by itself. ``env`` holds the values of the
    kernel's atoms but for the thread's own coordinates and for data; ``sizes`` are those chosen, by name."""

    launch: Launch | None
    env: dict[Term, int]
    grid: Triple
    block: Triple
    sizes: dict[str, int]

    def at(self, block_index: Triple, thread_index: Triple) -> dict[Term, int]:
        """The values as one thread sees them."""
        return {**self.env, **support.coordinates(block_index, thread_index)}

    def blocks(self) -> list[Triple]:
        """Blocks that tell: the first, its neighbours along each axis, the last."""
        x, y, z = self.grid
        return list(dict.fromkeys([
            (0, 0, 0), (min(1, x - 1), 0, 0), (0, min(1, y - 1), 0), (0, 0, min(1, z - 1)), (x - 1, 0, 0),
            (x - 1, y - 1, z - 1),
        ]))  # fmt: skip

    def threads(self) -> Iterator[Triple]:
        """The threads of a block in the order of their ranks."""
        x, y, z = self.block
        return ((i, j, k) for k in range(z) for j in range(y) for i in range(x))


def trials(
    kernel: Kernel, terms: Iterable[Term], *, alone: bool = True, shared: bool = False, promised: bool = True,
    at: Launch | None = None,
) -> Iterator[Trial]:  # fmt: skip
    """The trials for ``terms``, induction variables of which are written over the passes of their loops.

    Atoms that differ from thread to thread and are not made of launch built-ins (data) get no value; with ``shared``
    those that all lanes of a warp share get one, and one warp is to be looked at.
    Without ``alone`` only visible launches are tried, and with it too where a launched kernel tells its last block
    from the rest: how many blocks its sizes get is the host's to say. What the host promises the kernel alone is what
    it checks before each visible launch; of one that is launched through a pointer that is not known, and the kernel is
    not tried. Without ``promised`` it is, and with sizes too that every visible launch refuses. ``at`` is a visible
    launch of which alone there are to be trials.
    """
    own = [support.over_passes(x) for x in terms]
    uniformity = kernel.uniformity()
    leaves = {x for term in own for x in t.leaves(term)}
    data = {x for x in leaves if x.data.kind not in _LAUNCH_KINDS and _is_data(x, uniformity.level(x), shared)}
    for launch in shown(kernel) if at is None else (at,):
        constants = support.passed_constants(launch, own)
        # `n` of `for (…) n *= extents[i]`: a size that no parameter is
        totals = [x for x in search.leaves_of(launch.mapping.values()) if x.data.kind == "exit"]
        for case in support.assignments_at(launch, [launch.at_launch(x) for x in own], data):
            env = support.with_parameters(launch, case.env)
            made = {x.data.name: case.env[x] for x in totals if x in case.env}
            yield Trial(launch, env, case.grid, case.block, {**constants, **made, **case.named})
    alone = alone and not (promised and kernel.pointed)
    if alone and at is None and not (kernel.launches and any(map(counts_blocks, own))):
        for case in support.assignments_alone(kernel, own, data):
            # What the host checks before each of the launches that one can see is a promise to the kernel.
            if not promised or not kernel.launches or any(_lets_through(x, case.env) for x in kernel.launches):
                yield Trial(None, case.env, case.grid, case.block, case.named)


def _is_data(leaf: Term, level: int, shared: bool) -> bool:
    """Whether an atom gets no value: it differs between threads, or is a constant that nobody here can see."""
    info = leaf.data
    if info.kind == "load" and shared:
        return level > t.WARP_UNIFORM
    return level > t.UNIFORM or w.unseen(leaf) or getattr(info.data, "kind", "") == "template"


def counts_blocks(term: Term) -> bool:
    """Whether a term tests a block's number against that of all blocks, as ``blockIdx.x == gridDim.x - 1`` does."""
    return any(
        x.op in ("eq", "lt", "le") and {leaf.data.kind for leaf in t.leaves(x)} == {"bid", "gdim"}
        for x in t.inside([term])
    )


def shown(kernel: Kernel) -> list[Launch]:
    """The visible launches whose dimensions the source shows: made of sizes, constants and what the device says."""
    return [
        x for x in kernel.launches
        if x.grid is not None and x.block is not None
        and all(search.is_size(leaf) or leaf.data.kind in _SHOWN for d in (*x.grid, *x.block) for leaf in t.leaves(d))
    ]  # fmt: skip


def others(kernel: Kernel) -> list[Launch]:
    """Of the visible launches after the first those in known blocks other than any before: what is sound in one block
    may not be in another."""
    found: dict[tuple[int | None, ...], Launch] = {}
    for launch in shown(kernel):
        found.setdefault(tuple(launch.known_block(a) for a in "xyz"), launch)
    return [launch for block, launch in found.items() if None not in block][1 : _MOST_BLOCKS + 1]


def unreached(kernel: Kernel, trial: Trial) -> bool:
    """Whether it took a trial beside the visible launches to show a fault: each of them has been tried, or its host
    function refuses these sizes."""
    if trial.launch is not None or not kernel.launches:
        return False
    known = set(shown(kernel))
    return all(x in known or not _lets_through(x, trial.env) for x in kernel.launches)


def _lets_through(launch: Launch, env: dict[Term, int]) -> bool:
    """Whether the host's checks allow the values that the kernel's parameters have in a trial."""
    host = {}
    for formal, actual in launch.mapping.items():
        while actual.op == "cast":
            actual = actual.args[0]
        if actual.op == "atom" and formal in env:
            host[actual] = env[formal]
    return all(w.allowed(c, host) for c in launch.conditions)


def value(term: Term, env: dict[Term, int]) -> Any:
    """The value of a term; None where it has none."""
    try:
        return t.evaluated(term, env)
    except OverflowError:
        return None


_MOST_PLACES = 14
"""Places along one axis at which threads are looked at."""
_MOST_PASSES = 1_000
"""Combinations of passes of the loops around an event at which one thread is looked at."""


class Visit(NamedTuple):
    """A thread that comes to an event: its block's and its own number, and all values there, passes of loops too."""

    block: Triple
    thread: Triple
    env: dict[Term, Any]


def visits(event: Event, trial: Trial, terms: Iterable[Term], *, every: bool = False) -> Iterator[Visit]:
    """Threads that come to ``event`` in a trial: those at the ends of a block and beside the numbers that its
    conditions and ``terms`` name, on the first and the last pass of each loop around it.

    With ``every`` all threads of the blocks are looked at, in the order of their ranks, on the second pass too.
    A condition that only data decides keeps a thread away; one that all threads share and that has no value does not.
    """
    guards = [support.over_passes(g.term) for g in chain(event.guard)]
    loops = [g.loop for g in chain(event.guard) if g.loop is not None]
    # Each condition is asked where what it is made of is known: once, for each block, each thread, or each pass.
    common, of_block, of_thread, of_pass = _staged(guards)
    if not all(_holds(x, trial.env) for x in common):
        return
    known = {abs(int(c)) for c in w.constants([*guards, *terms])}
    fixed = _fixed(trial, guards)
    places = [_places(extent, sorted(known | {n % extent for n in fixed})) for extent in trial.block]
    lasts = {x: last_pass(x, trial.env) for x in loops if _is_common(x)}
    for block in trial.blocks():
        if not all(_holds(x, trial.at(block, _FIRST)) for x in of_block):
            continue
        for i, j, k in trial.threads() if every else product(*places):
            thread = i, j, k
            here = trial.at(block, thread)
            if all(_holds(x, here) for x in of_thread):
                for env in _passes(loops, here, (0, 1) if every else (0,), lasts):
                    if all(_holds(x, env) for x in of_pass):
                        yield Visit(block, thread, env)


_FIRST = (0, 0, 0)
_COMMON = frozenset({"param", "name", "size", "bdim", "gdim", "device"})


def _staged(guards: list[Term]) -> tuple[list[Term], list[Term], list[Term], list[Term]]:
    """The conditions that are the same for all threads, for those of a block, for all passes of a thread, the rest."""
    stages: tuple[list[Term], list[Term], list[Term], list[Term]] = ([], [], [], [])
    for term in guards:
        kinds = {x.data.kind for x in t.leaves(term)} - _COMMON
        stages[0 if not kinds else 1 if kinds == {"bid"} else 2 if kinds <= {"bid", "tid"} else 3].append(term)
    return stages


def _is_common(loop: Loop) -> bool:
    """Whether all threads make as many passes of a loop, each time they come to it."""
    atoms = [x for p in kernels.trips(loop) or () for item in t.atoms_of(p) for x in t.leaves(item)]
    return all(x.data.kind in _COMMON for x in atoms)


def _fixed(trial: Trial, guards: list[Term]) -> set[int]:
    """The sizes that the launch passes as constants: their ends lie wherever in a block they lie."""
    passed = trial.launch.mapping if trial.launch is not None else {}
    tested = {x for term in guards for x in t.leaves(term) if isinstance(x.type, Int)}
    return {trial.env[x] for x in tested if x in trial.env and x in passed and passed[x].op == "const"}


def _places(extent: int, known: Iterable[int]) -> list[int]:
    ends = [0, extent - 1, 1, extent - 2]
    beside = [v for c in known for v in (c - 1, c, c + 1)]
    return list(dict.fromkeys(v for v in (*ends, *beside) if 0 <= v < extent))[:_MOST_PLACES]


def _passes(
    loops: list[Loop], env: dict[Term, Any], early: tuple[int, ...], lasts: dict[Loop, int | None]
) -> Iterator[dict[Term, Any]]:
    """The values of a thread on the ``early`` passes and the last of each loop, as far as there are so many; a loop
    whose passes cannot be counted has its first. Of so many loops in one another that these are too many, the inner
    ones are looked at on their last alone. ``lasts`` are the last passes that are the same for all threads."""
    envs = [env]
    for loop in reversed(loops):  # the outermost first: what an inner one does may hang on it
        following: list[dict[Term, Any]] = []
        if len(envs) * (len(early) + 1) > _MOST_PASSES:
            early = ()
        for each in envs:
            last = lasts[loop] if loop in lasts else last_pass(loop, each)
            end = max(last or 0, 0)
            following += [{**each, loop.counter: k} for k in sorted({*(k for k in early if k <= end), end})]
        envs = following
    return iter(envs)


def last_pass(loop: Loop, env: dict[Term, Any]) -> int | None:
    """The number of a loop's last pass for one thread, negative where it has none; None where that is not known."""
    found = kernels.trips(loop)
    if found is None:
        return None
    distance, step = (number(p, env) for p in found)
    return distance // step if distance is not None and step is not None and step > 0 else None


def number(p: Poly, env: dict[Term, Any]) -> int | None:
    """The value of a polynomial; None where an atom has none."""
    total = 0
    for monomial, factor in p.items():
        for item in monomial:
            found = env.get(item)
            if found is None:
                found = value(item, env)
            if not isinstance(found, int):
                return None
            factor *= found
        total += factor
    return total


def _holds(term: Term, env: dict[Term, Any]) -> bool:
    found = value(term, env)
    if found is None:
        return all(x.data.level < t.UNKNOWN and not x.data.inputs and x.data.kind != "tid" for x in t.leaves(term))
    return bool(found)
