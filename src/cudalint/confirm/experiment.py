"""Experiments: which runs show a rule's fault in a kernel, and which oracle judges them.

A rule's module makes them: ``experiment_clxxx(bench) -> Plan``, from a kernel and one launch of it (or
none), never from a finding, so that a sound kernel can be put through it. What the rule itself says of
that launch, before anything runs, is the prediction.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any, Literal

from cudalint.confirm import oracle
from cudalint.confirm.harness import Harness, replaced
from cudalint.facts import kernels
from cudalint.facts.events import conjuncts
from cudalint.facts.ids import BDIM, BID, TID
from cudalint.facts.terms import Undefined, atoms_of, evaluate, leaves
from cudalint.facts.uniformity import expand
from cudalint.ir.types import Int
from cudalint.lazy import NamedTuple
from cudalint.rules.launches import are_records, division, has_tail

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cudalint.confirm.harness import Setup, Triple, Values
    from cudalint.confirm.oracle import Fault, Run
    from cudalint.facts.events import Obj
    from cudalint.facts.model import Kernel, Launch
    from cudalint.facts.terms import Term
    from cudalint.findings import Witness
    from cudalint.sim.observe import Outside, Race

AS_LAUNCHED, BY_ITSELF = "as launched", "by itself"
"""What a run's launch is called: a visible one, or one that is made up for a kernel that is judged by itself."""
PRIME = 7
_LARGE = 1 << 23
MOST = 12
"""Runs in an experiment, unless asked for more."""


class Trial(NamedTuple):
    """One run: sizes by name, and what replaces the launch's own dimensions. ``blocks`` are the linear numbers of
    those to run, ``tail`` stands for the first and the last ones."""

    sizes: Mapping[str, int]
    grid: Triple | None = None
    block: Triple | None = None
    label: str = AS_LAUNCHED
    blocks: Sequence[int] | Literal["all", "tail"] = "all"
    loops: Literal["all", "ends"] = "all"


class Plan(NamedTuple):
    """``reference`` makes the launch to compare with; ``first`` names the witness's values that may be the first wrong
    index; ``refusal`` tells that a refused launch is the fault; ``host`` looks at the host's side of a case
    first, and ends it where it finds the fault there."""

    trials: Sequence[Trial]
    oracle: Callable[[Run], Fault | None]
    reference: Callable[[Setup], tuple[Triple, Triple]] | None = None
    first: tuple[str, ...] = ()
    watch: frozenset[str] = frozenset({"writes"})
    refusal: bool = False
    unrun: bool = False
    """Whether the driver takes the launch is all that is asked: a simulated kernel need not run."""
    host: Callable[[Values], Fault | None] | None = None
    anywhere: bool = False
    """The prediction holds wherever the fault shows: data decides, and names no size."""
    bench: Bench | None = None
    """Where it is to be run, if not on the bench it was asked for (the kernel by itself)."""
    block: Triple | None = None
    """The block that is asked for instead of the launch's own."""


class Bench:
    """What a rule's experiment is built from. ``launch`` is None where the kernel is judged by itself."""

    def __init__(
        self, code: str, kernel: Kernel, launch: Launch | None, witness: Witness | None,
        flagged: oracle.Flagged | None = None,
    ) -> None:  # fmt: skip
        self.harness = Harness(kernel, launch)
        self.code, self.flagged = code, flagged
        names = {x.data.spelled: x.data.name for x in self.harness.sizes}
        self.witness = witness and witness._replace(sizes={names.get(k, k): v for k, v in witness.sizes.items()})
        self.kernel, self.launch = self.harness.kernel, self.harness.launch

    def alone(self) -> Bench:
        """The kernel by itself, its own parameters as sizes."""
        return self if self.launch is None else Bench(self.code, self.kernel, None, self.witness, self.flagged)

    @property
    def accessed(self) -> oracle.Flagged | None:
        """What is flagged, where that is itself an access of the kernel: a fault has to show there."""
        at = self.flagged
        if at is None:
            return None
        accesses = self.kernel.flow.accesses
        objects = {a.obj for a in accesses if (a.fn.file, a.node.start, a.node.end) == at[:3]}
        if any(_dynamic(x) for x in objects):
            objects |= {a.obj for a in accesses if _dynamic(a.obj)}  # one array, whatever its names
        return at._replace(names=frozenset(x.name for x in objects)) if objects else None

    def own(self, places: list[oracle.Place]) -> list[oracle.Place]:
        """Of places in the source the flagged one, with those around it and in it; all where none is flagged."""
        if self.flagged is None:
            return places
        file, start, end = self.flagged[:3]
        mine = [x for x in places if x[0] is file and (start <= x[1] <= x[2] <= end or x[1] <= start <= end <= x[2])]
        return mine or places

    def at_flagged(self, race: Race) -> bool:
        """Whether a race is of what is flagged, if an access is."""
        flagged = self.accessed
        sites = [race.site] if race.earlier is None else [race.site, race.earlier]
        return flagged is None or any(oracle.stands_at(x, flagged[:3]) for x in sites)

    def as_predicted(self) -> bool:
        """Whether the launch itself has the dimensions of the witness at its sizes."""
        if self.launch is None or self.witness is None:
            return False
        found = self.harness.dimensions(self.harness.assignment(dict(self.witness.sizes)))
        return found == (self.witness.grid, self.witness.block)

    def of_the_block_named(self, trial: Trial) -> Trial:
        """The run at the sizes that are named, of the block that is named alone: of each place in the source only the
        first few accesses outside are noted."""
        witness = self.witness
        if witness is None or witness.thread is None or not self.as_predicted():
            return trial
        if [dict(trial.sizes)] != self.predicted():
            return trial
        (x, y, z), (gx, gy, _) = witness.thread[0], witness.grid or (1, 1, 1)
        return trial._replace(blocks=[x + gx * (y + gy * z)])

    @property
    def main(self) -> str | None:
        """The size that is varied first."""
        return self.harness.sizes[0].data.name if self.harness.sizes else None

    def threads(self) -> int:
        """Threads of a block, along the first axis where it has several."""
        block = self.harness.block()
        if self.launch is not None:
            found = self.harness.dimensions(self.harness.assignment(self._all(611)))
            block = found[1] if found is not None else block
        return max(1, block[0])

    def _all(self, value: int, others: int | None = None, of: str | None = None) -> dict[str, int]:
        """Every size at ``value``, or the one ``of`` that name (the first) alone and the rest at ``others``."""
        result = {}
        for leaf in self.harness.sizes:
            chosen = value if others is None or leaf.data.name == (of or self.main) else others
            result[leaf.data.name] = max(leaf.data.lo, min(chosen, leaf.data.hi))
        return result

    def predicted(self) -> list[dict[str, int]]:
        """The sizes of the witness, if the rule has one, with usual values for those it does not name."""
        if self.witness is None:
            return []
        usual = {x.data.name: v for x, v in self.harness.assignment({}).items()}
        mine = {x.data.name for x in self.harness.sizes}
        named = {k: v for k, v in self.witness.sizes.items() if k in mine or (k in usual and usual[k] != v)}
        return [{**self._all(self.threads() + 1, 5), **named}]

    def around(self, *more: int, zero: bool = False) -> list[dict[str, int]]:
        """Sizes that tell: 1, t - 1, t, t + 1, a prime times t plus 1, ``more``, and those of the witness."""
        if not self.harness.sizes:
            return self.predicted()[:1] or [{}]
        t = self.threads()
        numbers = sorted({1, max(1, t - 1), t, t + 1, PRIME * t + 1, *more, *([0] if zero else [])})
        others = None if len(self.harness.sizes) == 1 else 5
        found = [self._all(n, others) for n in numbers]
        if others is not None:
            found += [self._all(n) for n in (t - 1, t + 1) if n > 0]
        for sizes in self.predicted():
            if sizes not in found:
                found.append(sizes)
        return found

    def trials(self, *more: int, zero: bool = False, **how: Any) -> list[Trial]:
        """A run at each of those sizes, the smallest first."""
        found = sorted(self.around(*more, zero=zero), key=lambda s: tuple(s.values()) or (0,))
        kept = found[:MOST]
        return [Trial(s, **how) for s in [*kept, *(p for p in self.predicted() if p not in kept)]]

    def let_in(self, plan: Plan) -> Plan:
        """The plan with runs at the sizes next to its own that the host's checks let through, where they let none of
        its own through."""
        harness = self.harness
        own = [(x, None if x.block is None else x.block[0]) for x in plan.trials if x.label == AS_LAUNCHED]
        if any(harness.reached(harness.assignment(trial.sizes, block)) for trial, block in own):
            return plan
        found: list[Trial] = []
        for trial, block in own:
            sizes = harness.let_in(trial.sizes, block)
            blocks = trial.blocks if isinstance(trial.blocks, str) else "all"
            if sizes is not None and (moved := trial._replace(sizes=sizes, blocks=blocks)) not in found:
                found.append(moved)
        return plan._replace(trials=[*plan.trials, *found])

    def totals(self) -> list[int]:
        """T and T + 1, where the launch comes to T elements however large its size is."""
        main = self.main
        if main is None or self.launch is None:
            return []
        reached = set()
        for n in (1 << 20, 1 << 21):
            host = self.harness.assignment(self._all(n, None if len(self.harness.sizes) == 1 else 5))
            found = self.harness.dimensions(host)
            if found is None:
                return []
            reached.add(self.harness.reach({**self.harness.kernel_values(host)}, *found))
        total = reached.pop()
        return [total, total + 1] if not reached and total is not None and 0 < total <= _LARGE else []

    def clipped(self, *numbers: int, of: str | None = None) -> list[dict[str, int]]:
        """Large sizes (``of`` the one of that name, else of the main one), each cut to what its type holds, and the
        sizes of the witness."""
        found: list[dict[str, int]] = []
        for n in sorted(numbers):
            sizes = self._all(n, 5, of)
            if sizes not in found:
                found.append(sizes)
        return [*found, *(s for s in self.predicted() if s not in found)]

    def sparse(self, *numbers: int, of: str | None = None) -> list[Trial]:
        """Runs of the first and last blocks alone at large sizes, loops at their ends."""
        return [Trial(s, blocks="tail", loops="ends") for s in self.clipped(*numbers, of=of)]

    @property
    def named(self) -> str | None:
        """The size that the witness needs to be large."""
        mine = {leaf.data.name for leaf in self.harness.sizes}
        sizes = {k: v for k, v in self.witness.sizes.items() if k in mine} if self.witness is not None else {}
        return max(sizes, key=lambda k: sizes[k], default=None)

    def together(self, *numbers: int, many: int = 2) -> list[Trial]:
        """Runs of the first and last blocks with so ``many`` sizes at a time at a large number, the others at 1."""
        leaves = [x for x in self.harness.sizes if not x.data.axis]
        found: list[dict[str, int]] = []
        for group in combinations(leaves, min(many, len(leaves))):
            for n in numbers:
                sizes = {x.data.name: max(x.data.lo, min(n if x in group else 1, x.data.hi)) for x in leaves}
                if sizes not in found:
                    found.append(sizes)
        found = found[:MOST]
        found += [sizes for sizes in self.predicted() if sizes not in found]
        return [Trial(sizes, blocks="tail", loops="ends") for sizes in found]

    def one_block(self, setup: Setup) -> tuple[Triple, Triple]:
        """A launch of one block along every axis whose coordinates loops step over the data."""
        grid = list(self.harness.cover(setup.values, setup.block))
        block = list(setup.block)
        for at, axis in enumerate("xyz"):
            if all(c.loop is not None for c in self.kernel.layout.coordinates if axis in c.axes):
                grid[at] = 1
            if not self._uses(axis):
                block[at] = 1
        thinned = block[0], block[1], block[2]
        fits = self.harness.shape.fit(thinned) == thinned
        return (grid[0], grid[1], grid[2]), thinned if fits else setup.block

    def _uses(self, axis: str) -> bool:
        """Whether the place of a thread along an axis, or the extent of the block there, counts for anything."""
        flow = self.kernel.flow
        terms = [x for a in flow.accesses for x in (a.index, *(d for d, _ in a.dims)) if x is not None]
        for event in (*flow.accesses, *flow.barriers, *flow.returns):
            terms.extend(conjuncts(event.guard))
        ids = kernels.ids_of(terms) | {x for term in terms for x in leaves(term)}
        return TID[axis] in ids or BDIM[axis] in ids

    def independent(self) -> bool:
        """Whether what the kernel computes may not depend on the launch: every index over the data starts at a place
        in the grid, ends at a size, and alone says what is touched."""
        blocks = set(BID.values())
        for item in self.kernel.layout.coordinates:
            if any(x.op != "atom" and blocks & kernels.ids_of([x]) for x in atoms_of(item.index)):
                return False
            for access in item.accesses:
                rest = replaced(expand(access.scalar or {}), item.index, {})
                if any(blocks & item.ids & kernels.ids_of(x for x in leaves(y) if x.data.kind != "load")
                       for y in atoms_of(rest)):  # fmt: skip
                    return False
        return bool(self.kernel.layout.coordinates)

    def whole(self) -> frozenset[str]:
        """Buffers of which each element below a tested size is written: by stores at the tested index itself."""
        found = set()
        for item in self.kernel.layout.coordinates:
            for access in item.accesses:
                data = any(x.data.kind == "load" for c in conjuncts(access.guard) for x in leaves(c))
                if access.mode != "r" and access.scalar and expand(access.scalar) == item.index and not data:
                    found.add(access.obj.name)
        return frozenset(found)

    def fewer(self, run: Run) -> Fault | None:
        """A grid smaller than the elements need, as the host computes it, though the driver would refuse either."""
        grid, _ = self.covering(run.setup)
        for axis, have, need in zip("xyz", run.setup.grid, grid):
            if have < need:
                text = f"the host computes {have} blocks on {axis}, and {need} are needed"
                return oracle.Fault("never-written", text)
        return None

    def products(self, *kinds: str) -> list[tuple[Any, int, int]]:
        """Where the kernel forms products in which launch built-ins of these kinds take part."""
        found = []
        for operation in self.kernel.flow.operations:
            if {x.data.kind for x in leaves(operation.term)} & set(kinds):
                found.append((operation.fn.file, operation.node.start, operation.node.end))
        return found

    def has_wrapped(self, event: Outside) -> bool:
        """Whether an access outside is what an index that wrapped comes to: it lies before the start of its buffer, and
        no data says where."""
        if event.element >= 0:
            return False
        file, node = event.site.file, event.site.node
        here = (a for a in self.kernel.flow.accesses if a.fn.file is file and a.node.start == node.start)
        return not any(_of_data(x) for a in here for x in atoms_of(a.scalar or {}))

    def narrowed(self, host: Values) -> Fault | None:
        """What the host's arithmetic makes of a size or of the grid, where the mathematical value is another."""
        launch = self.launch
        if launch is None or launch.grid is None:
            return None
        bounding = {x for c in self.kernel.layout.coordinates for x in atoms_of(c.limit)}
        bounding = {y for x in bounding for y in leaves(x)}
        items = [(f"`{f.data.name}`", a, f.type) for f, a in launch.mapping.items() if f in bounding]
        items += [(f"the grid on {axis}", a, None) for axis, a in zip("xyz", launch.grid)]
        for name, term, type_ in items:
            try:
                kept, meant = evaluate(term, host), evaluate(term, host, exact=False)
            except Undefined:
                continue
            if isinstance(type_, Int) and isinstance(kept, int):
                kept = type_.wrap(kept)
            if kept != meant:
                return oracle.Fault("wrap", f"{name} is {kept} in the machine's arithmetic, {meant} was meant")
        return None

    def covering(self, setup: Setup) -> tuple[Triple, Triple]:
        """A launch of the same blocks that comes to every element."""
        harness = self.harness
        block = harness.wide(setup.values, _positive(setup.grid), _positive(setup.block))
        if self.launch is not None and has_tail(self.launch, self.launch.grid or ()):
            return _positive(setup.grid), block  # what is left over is handled elsewhere
        grid = list(harness.cover(setup.values, block, _positive(setup.grid)))
        if self.launch is not None:
            for at, axis in enumerate("xyz"):
                shared = division(self.launch.grid[at]) if self.launch.grid is not None else None
                if shared is None or are_records(self.launch, axis, shared[1]):
                    continue
                if not any(BID[axis] in c.ids for c in self.kernel.layout.coordinates):
                    grid[at] = max(grid[at], harness.divided(at, setup.host))
        return (grid[0], grid[1], grid[2]), block


def _dynamic(obj: Obj) -> bool:
    return obj.kind == "shared" and obj.var is not None and obj.var.extern


def _of_data(term: Term) -> bool:
    """Whether a term, or what a loop makes of it, is made of what is loaded."""
    seen: set[Term] = set()
    stack = [term]
    while stack:
        item = stack.pop()
        if item in seen:
            continue
        seen.add(item)
        stack.extend(item.args)
        if item.op == "atom" and item.data.kind == "load":
            return True
        if item.op == "atom" and item.data.kind in ("loop", "exit") and item.data.data is not None:
            stack.extend(x for x in (item.data.data.init, item.data.data.next) if x is not None)
    return False


def _positive(grid: Triple) -> Triple:
    return max(1, grid[0]), max(1, grid[1]), max(1, grid[2])


__all__ = ["AS_LAUNCHED", "BY_ITSELF", "Bench", "Plan", "Trial", "oracle"]
