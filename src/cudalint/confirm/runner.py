"""Runs experiments and gives verdicts: one for each finding, or for kernels that are named (``--as``)."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, Protocol

from cudalint import sim
from cudalint.confirm import oracle as oracles
from cudalint.confirm.experiment import AS_LAUNCHED, BY_ITSELF, MOST, Bench, Plan, Trial
from cudalint.confirm.harness import Unready
from cudalint.facts import analyse
from cudalint.facts import terms as t
from cudalint.facts.model import HostFunction, Kernel
from cudalint.facts.model import Launch as VisibleLaunch
from cudalint.facts.uniformity import expand
from cudalint.findings import NOTHING, Case, Evidence, Prediction
from cudalint.ir.types import Int
from cudalint.lazy import NamedTuple
from cudalint.rules.registry import checks, experiment
from cudalint.sim.machine import OUT_OF_TIME
from cudalint.sim.values import Stop, Unsupported

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from cudalint.confirm.harness import Setup, Triple
    from cudalint.confirm.oracle import Fault
    from cudalint.confirm.picture import Picture
    from cudalint.engine import Placed, Result, Worker
    from cudalint.findings import Finding, Witness
    from cudalint.rules.draft import Draft
    from cudalint.walk import Target

ADVICE = frozenset({"CL504", "CL207", "CL208", "CL210"})
#: Rules of kernels that compare an access with what a launch says of how large the array is.
_OF_EXTENTS = frozenset({"CL209", "CL212", "CL214"})
NO_LAUNCH = "no launch is visible, and it is what says how large the grid and the arrays are"
REFUSED = "the host's checks let none of these sizes through"
UNTOLD = "the source does not show how large the launch is"
POINTED = "it is launched through a pointer: which sizes may come to it is not known"
#: Of a launch too large to run whole, so many blocks at each end are run.
_ENDS = 2
_WHOLE = 1 << 24
"""Threads up to which a launch is run whole."""
_SMALL = 1 << 16
"""The same for a run of the first and last blocks."""
#: Steps of a run: where few blocks run, one that goes on for longer does not get anywhere new.
_BUDGET, _SPARSE_BUDGET = 100_000, 20_000
TIMEOUT = 20.0


class Limits(NamedTuple):
    """What the command line asks for: sizes of the main parameter, a block's size, seconds for an experiment, and
    where it is to be run."""

    sizes: tuple[int, ...] = ()
    block: int | None = None
    timeout: float = TIMEOUT
    backend: Backend | None = None
    scripts: bool = False
    """Whether each proof is to have a script that shows it."""
    pictures: bool = False
    """Whether of each run there is to be kept what can be drawn."""


class Backend(Protocol):
    """Where kernels are run. ``grade`` is what its evidence is worth: ``simulated`` or ``measured``."""

    grade: Literal["simulated", "measured"]

    def run(
        self, bench: Bench, plan: Plan, trial: Trial, setups: list[Setup], until: float | None
    ) -> list[sim.Observation]:
        """What a launch shows, and the one that it is compared with, if there is one and the first could be run."""


class Outcome(NamedTuple):
    """One run of an experiment. ``word``: ok, wrong, refused, hang, inconclusive or not launched. ``setups`` are its
    launches, ``asked`` the fields of the observation that the oracle looked at, ``seen`` what the runs showed."""

    trial: Trial
    word: str
    fault: Fault | None
    setup: Setup | None
    reason: str | None = None
    setups: tuple[Setup, ...] = ()
    asked: frozenset[str] = frozenset()
    seen: tuple[sim.Observation, ...] = ()
    picture: Picture | None = None

    @property
    def cell(self) -> str:
        """As the table has it."""
        if self.word == "wrong" and self.fault is not None and self.fault.first is not None:
            return f"wrong@{self.fault.first}"
        return self.word


class Proof(NamedTuple):
    """The verdict on one kernel and launch. ``line`` is where the launch stands (the kernel, without one)."""

    code: str
    kernel: str
    path: str
    line: int
    evidence: Evidence
    outcomes: tuple[Outcome, ...]
    script: tuple[str | None, str] | None = None
    """The text of a script that shows it and the symptom that it looks for; None and the reason why there is none."""
    about: Outcome | None = None
    """The run that a confirmed verdict is about."""


def _foretold(bench: Bench, grid: Triple) -> list[int]:
    """The linear number of the block that the rule names, in the grid that it speaks of."""
    witness = bench.witness
    if witness is None or witness.thread is None or witness.grid != grid:
        return []
    x, y, z = witness.thread[0]
    return [x + grid[0] * (y + grid[1] * z)]


def _tail(grid: Triple, block: Triple, sizes: Iterable[int], foretold: Iterable[int]) -> list[int]:
    """The linear numbers of the first and the last blocks, of those at the end of the first row, of those that come to
    the last element in a loop over the grid, and those ``foretold``."""
    gx, gy, gz = grid
    total = gx * gy * gz
    turns = {(n - 1) // block[0] % gx for n in sizes if n > 0 and total > 0 and block[0] > 0}
    ends = (total - 1 - i for i in range(_ENDS))
    found = {0, 1, *turns, *foretold, gx - 1, gx, total - gx, *ends}
    return sorted(b for b in found if 0 <= b < total)


class Simulator:
    """The backend that runs kernels on the CPU, of a large launch the blocks that matter."""

    grade: Literal["simulated", "measured"] = "simulated"

    def run(
        self, bench: Bench, plan: Plan, trial: Trial, setups: list[Setup], until: float | None
    ) -> list[sim.Observation]:
        found: list[sim.Observation] = []
        for setup in setups:
            if not found or found[-1].end not in ("refused", "inconclusive"):
                found.append(_run(bench, plan, trial, setup, until))
        return found


SIMULATOR = Simulator()


class Asked:
    """An observation that notes which of its fields an oracle looks at."""

    def __init__(self, seen: sim.Observation) -> None:
        self._seen, self._fields = seen, set[str]()

    def __getattr__(self, name: str) -> Any:
        self._fields.add(name)
        return getattr(self._seen, name)

    @property
    def _unseen(self) -> set[str]:
        """The fields that the oracle asked for and that were not observed."""
        return self._fields & getattr(self._seen, "unseen", set())


def _run(bench: Bench, plan: Plan, trial: Trial, setup: Setup, until: float | None) -> sim.Observation:
    grid, block = setup.grid, setup.block
    total = grid[0] * grid[1] * grid[2]
    blocks: Any = trial.blocks
    threads = total * max(1, block[0] * block[1] * block[2])
    large = threads > _SMALL or max(trial.sizes.values(), default=0) > _SMALL
    if plan.unrun:
        blocks = []
    elif (blocks == "all" and threads > _WHOLE) or (blocks == "tail" and large):
        blocks = _tail(grid, block, trial.sizes.values(), _foretold(bench, grid))
    elif blocks == "tail":
        blocks = "all"
    elif blocks != "all":
        blocks = [b for b in blocks if 0 <= b < total]
    return sim.run(sim.Launch(
        bench.kernel.function, grid, block, setup.args, setup.shared, blocks, watch=plan.watch, loops=trial.loops,
        cooperative=True, budget=_BUDGET if trial.blocks == "all" else _SPARSE_BUDGET, until=until,
    ))  # fmt: skip


_FIELDS = {
    "races": "races", "uninitialised": "reads of memory that nothing has written", "misaligned": "misaligned accesses",
    "outside": "every access", "absent": "every collective", "buffers": "who writes what", "arrivals": "arrivals",
    "wraps": "arithmetic", "divergent": "arrivals",
}  # fmt: skip


def attempt(
    bench: Bench, plan: Plan, trial: Trial, until: float | None = None, backend: Backend = SIMULATOR
) -> Outcome:
    """Run one trial and judge it; inconclusive where it is not done by ``until`` (of the monotonic clock)."""
    harness = bench.harness
    for leaf in harness.sizes:
        number = trial.sizes.get(leaf.data.name, 0)
        if isinstance(leaf.type, Int) and not leaf.type.lo <= number <= leaf.type.hi:
            why_not = f"{leaf.data.name} = {number} does not fit {leaf.type}"
            return Outcome(trial, "inconclusive", None, None, why_not)
    host = harness.assignment(trial.sizes, None if trial.block is None else trial.block[0])
    if trial.label in (AS_LAUNCHED, BY_ITSELF) and not harness.reached(host):
        return Outcome(trial, "not launched", None, None)
    if plan.host is not None:
        seen = plan.host(host)
        if seen is not None:
            return Outcome(trial, "wrong" if seen.symptom != "refused" else "refused", seen, None)
    try:
        harness.current = host
        setup = harness.setup(host, trial.grid, trial.block)
        if plan.reference is not None:
            # Buffers are as large as the larger launch needs them.
            grid, block = plan.reference(setup)
            if all(a >= b for a, b in zip((*grid, *block), (*setup.grid, *setup.block))):
                setup = setup._replace(args=harness.setup(host, grid, block).args)
        setups, same = [setup], False
        if plan.reference is not None:
            grid, block = plan.reference(setup)
            same = (grid, block) == (setup.grid, setup.block)
            if not same:
                # The same buffers: only the launch differs.
                setups.append(harness.setup(host, grid, block)._replace(args=setup.args))
        observed = backend.run(bench, plan, trial, setups, until)
        seen_run = observed[0]
        asked = Asked(seen_run)
        run = oracles.Run(setup, asked, flagged=bench.accessed)  # type: ignore[arg-type]  # it stands for one
        made = Outcome(trial, "ok", None, setup, None, tuple(setups), frozenset(), tuple(observed))
        if seen_run.end == "refused":
            fault = plan.oracle(run) if plan.refusal else None
            return made._replace(word="refused", fault=fault, reason=seen_run.launch_error)
        if plan.reference is not None and seen_run.end != "inconclusive":
            reference = seen_run if same else observed[1] if len(observed) > 1 else None
            if reference is not None and reference.end in ("inconclusive", "refused"):
                why = reference.reason or f"no launch to compare with: {reference.launch_error}"
                return made._replace(word="inconclusive", reason=why)
            run = run._replace(repaired=setups[-1], reference=reference)
        fault = plan.oracle(run)
        made = made._replace(asked=frozenset(asked._fields))
    except (Unready, Unsupported, Stop) as why:
        return Outcome(trial, "inconclusive", None, None, str(why))
    if fault is not None:
        return made._replace(word="hang" if fault.symptom == "hang" else "wrong", fault=fault)
    if seen_run.end == "no-end":
        return made._replace(word="hang", reason=f"does not end: {seen_run.reason}")
    if seen_run.end in ("inconclusive", "fault"):
        return made._replace(word="inconclusive", reason=seen_run.reason or seen_run.end)
    if asked._unseen:
        what = ", ".join(sorted({_FIELDS[x] for x in asked._unseen}))
        return made._replace(word="inconclusive", reason=f"a run on a GPU does not show {what}")
    return made


def prove(
    bench: Bench, plan: Plan, timeout: float = TIMEOUT, backend: Backend = SIMULATOR, *, pictures: bool = False
) -> tuple[Evidence, tuple[Outcome, ...]]:
    """Run an experiment and compare what it shows with what the rule predicts; with ``pictures``, keep what can be
    drawn of each run."""
    if bench.launch is None or _untold(bench) is not None:
        own = [x._replace(label=BY_ITSELF) if x.label == AS_LAUNCHED else x for x in plan.trials]
        plan = plan._replace(trials=own)
    if pictures:
        plan = plan._replace(watch=plan.watch | {"writes"}, unrun=False)
    until = time.monotonic() + timeout * max(1.0, len(plan.trials) / MOST)
    late = f"{OUT_OF_TIME} after {timeout:g} s"
    said = bench.predicted()
    # What was predicted first, while there is time.
    order = sorted(range(len(plan.trials)), key=lambda k: (dict(plan.trials[k].sizes) not in said, k))
    done: dict[int, Outcome] = {}
    for k in order:
        trial = plan.trials[k]
        if time.monotonic() > until:
            done[k] = Outcome(trial, "inconclusive", None, None, late)
        else:
            done[k] = attempt(bench, plan, trial, until, backend)
            if pictures:
                from cudalint.confirm.picture import picture

                done[k] = done[k]._replace(picture=picture(done[k]))
            for seen in done[k].seen:
                seen.release()
            if done[k].reason == OUT_OF_TIME:
                done[k] = done[k]._replace(reason=late)
    outcomes = [done[k] for k in sorted(done)]
    return verdict(bench, plan, outcomes)._replace(grade=backend.grade), tuple(outcomes)


def _untold(bench: Bench) -> str | None:
    """Why a launch cannot be run as it is, of which no rule says anything either."""
    launch, unseen = bench.launch, bench.harness.untold
    if launch is None or bench.witness is not None:
        return None
    if unseen:
        return f"{UNTOLD}: {', '.join(f'`{t.show(x)}`' for x in unseen)}"
    return UNTOLD if launch.grid is None or launch.block is None else None


def verdict(bench: Bench, plan: Plan, outcomes: Sequence[Outcome]) -> Evidence:
    """What the outcomes say: confirmed (with the case that was predicted where it came out so, else the smallest
    failing one), not reproduced, or why neither."""
    cases = tuple(_case(o) for o in outcomes)
    foreseen = _foreseen(bench, plan, outcomes)
    failing = shown(bench, plan, outcomes)
    prediction = _prediction(bench, plan, outcomes, foreseen)
    if failing is not None and failing.fault is not None:
        fault = failing.fault
        grid, block = (failing.setup.grid, failing.setup.block) if failing.setup is not None else (None, None)
        return Evidence(
            "simulated", "confirmed", fault.text, dict(failing.trial.sizes), grid, block, fault.symptom, fault.first,
            tuple(w.to_json() for w in fault.wrong), prediction, cases,
        )  # fmt: skip
    unknown = next((o for o in outcomes if o.word in ("inconclusive", "hang")), None)
    ran = [o for o in outcomes if o.word in ("ok", "refused")]
    late = unknown is not None and (unknown.reason or "").startswith(OUT_OF_TIME)
    if unknown is not None and (late or not ran or bench.witness is not None):
        return Evidence("simulated", "inconclusive", unknown.reason, prediction=prediction, cases=cases)
    if not outcomes:
        return Evidence("simulated", "inconclusive", "no case to run", prediction=prediction, cases=cases)
    if not ran:
        return Evidence("simulated", "inconclusive", REFUSED, prediction=prediction, cases=cases)
    forgiven = None
    if bench.witness is not None and any(getattr(s, "watched", False) and s.absent for o in outcomes for s in o.seen):
        forgiven = "the lanes that are named had exited by then, and this GPU waits for none of them"
    indices = bench.harness.indices()
    if forgiven is None and indices and any("outside" in o.asked for o in outcomes):
        names = " and ".join(f"`{x}`" for x in sorted(indices))
        forgiven = f"the indices that {names} {'holds' if len(indices) == 1 else 'hold'} were made to lie within range"
    return Evidence("simulated", "not-reproduced", forgiven, prediction=prediction, cases=cases)


def shown(bench: Bench, plan: Plan, outcomes: Sequence[Outcome]) -> Outcome | None:
    """The run that a confirmed verdict is about: the one that was foreseen, else the smallest that fails where the
    finding is, else the smallest failing one."""
    failing = [o for o in outcomes if o.fault is not None]
    here = [o for o in failing if o.fault is not None and not o.fault.elsewhere]
    return _foreseen(bench, plan, outcomes) or next(iter(here or failing), None)


def _case(outcome: Outcome) -> Case:
    setup = outcome.setup
    return Case(
        dict(outcome.trial.sizes), outcome.trial.label, setup.grid if setup else None, setup.block if setup else None,
        outcome.cell, outcome.fault.text if outcome.fault is not None else outcome.reason,
        outcome.fault.symptom if outcome.fault is not None else None,
    )  # fmt: skip


def _foreseen(bench: Bench, plan: Plan, outcomes: Sequence[Outcome]) -> Outcome | None:
    """The run that shows what the rule said before any."""
    witness = bench.witness
    if witness is None or not _is_its_block(witness, plan):
        return None
    said = set(_said_first(witness, plan))
    (sizes,) = bench.predicted()
    failing = [o for o in outcomes if o.fault is not None and not o.fault.elsewhere]
    here = [o for o in failing if dict(o.trial.sizes) == sizes]
    # A sum that is wrong has no element of its own: that it is wrong from this size on is what was said.
    for o in [*here, *failing] if plan.anywhere else here:
        if (not said or _is_value(o) or not said.isdisjoint(_places(bench, o))) and _by(witness, o):
            return o
    return None


def _said_first(witness: Witness, plan: Plan) -> list[int]:
    return [v for name in plan.first if isinstance(v := witness.values.get(name), int)]


def _prediction(bench: Bench, plan: Plan, outcomes: Sequence[Outcome], foreseen: Outcome | None) -> Prediction:
    """Whether what the rule said before any run is what the runs show."""
    witness = bench.witness
    if witness is None:
        return Prediction(NOTHING, {}, None, not any(o.fault is not None for o in outcomes))
    said = _said_first(witness, plan)
    (sizes,) = bench.predicted()
    ran = _is_its_block(witness, plan) and any(
        dict(o.trial.sizes) == sizes and o.word not in ("inconclusive", "not launched") for o in outcomes
    )
    held = True if foreseen is not None else False if ran else None
    words = ", ".join(f"{name}: {value}" for name, value in witness.values.items())
    return Prediction(words, dict(witness.sizes), said[0] if said else None, held)


def _is_its_block(witness: Witness, plan: Plan) -> bool:
    """Whether the block that the command line asks for, if any, is the one that was spoken of."""
    return plan.block is None or witness.block in (None, plan.block)


def _by(witness: Witness, outcome: Outcome) -> bool:
    """Whether a thread that did wrong is the one that was named, where one was and the same launch shows threads."""
    fault, setup = outcome.fault, outcome.setup
    if witness.thread is None or fault is None or fault.threads is None or setup is None:
        return True
    if (witness.grid, witness.block or setup.block) != (setup.grid, setup.block):
        return True
    return bool((fault.threads == oracles.number(setup.grid, setup.block, *witness.thread)).any())


def _is_value(outcome: Outcome) -> bool:
    return outcome.fault is not None and outcome.fault.symptom == "wrong-value"


def _places(bench: Bench, outcome: Outcome) -> Iterator[int]:
    """The wrong indices, as elements and as coordinates of the threads that should have handled them."""
    fault, setup = outcome.fault, outcome.setup
    if fault is None or fault.first is None:
        return
    yield fault.first
    yield from (wrong.at for wrong in fault.wrong)
    if fault.owner is not None and setup is not None:
        owners = [fault.owner, *((w.block, w.thread) for w in fault.wrong if w.block and w.thread and not w.turn)]
        for here in (setup.case.of(*owner) for owner in owners):
            for item in bench.kernel.layout.coordinates:
                try:
                    yield here.peak(expand(item.index))
                except t.Undefined:
                    continue


# --- findings -----------------------------------------------------------------------------------


class Subject(NamedTuple):
    """A kernel with the launches to try, and what the rule says of it."""

    kernel: Kernel
    launches: tuple[VisibleLaunch | None, ...]
    witness: Witness | None
    flagged: oracles.Flagged | None = None


def subjects(unit: Kernel | VisibleLaunch | HostFunction, draft: Draft | None) -> Iterator[Subject]:
    """What a finding about a unit is to be shown on."""
    witness, flagged = (None, None) if draft is None else (draft.witness, _flagged(draft))
    if isinstance(unit, Kernel):
        yield Subject(unit, tuple(unit.launches) or (None,), witness, flagged)
    elif isinstance(unit, VisibleLaunch):
        if unit.kernel is not None:
            yield Subject(unit.kernel, (unit,) if unit.own is None else (unit.own, unit), witness, flagged)
    else:
        for launch in unit.launches:
            if launch.kernel is not None:
                yield Subject(launch.kernel, (launch,), witness, flagged)


def _flagged(draft: Draft) -> oracles.Flagged:
    return oracles.Flagged(draft.file, draft.start, draft.end, related=tuple(x[:3] for x in draft.related))


def proofs(code: str, subject: Subject, limits: Limits) -> Iterator[Proof]:
    """The verdicts on a subject, one a launch; the first that confirms ends it."""
    make = experiment(code)
    for launch in subject.launches:
        path, line = _where(subject.kernel, launch)
        outcomes: tuple[Outcome, ...] = ()
        script = about = None
        if make is None:
            evidence = Evidence("static", "not-run", "advice" if code in ADVICE else "no experiment for this rule")
        elif not subject.kernel.is_kernel:
            evidence = Evidence("simulated", "inconclusive", "a device function that no visible kernel calls")
        elif launch is None and subject.kernel.pointed and subject.witness is None:
            evidence = Evidence("simulated", "inconclusive", POINTED)
        else:
            try:
                bench = Bench(code, subject.kernel, launch, subject.witness, subject.flagged)
                untold = _untold(bench)
                if untold is not None and _is_of_launches(code):
                    raise Unready(untold)
                plan = make(bench)
                bench = plan.bench or bench
                plan = _sized(bench, plan, limits)
                evidence, outcomes = prove(
                    bench, plan, limits.timeout, limits.backend or SIMULATOR, pictures=limits.pictures
                )
                about = shown(bench, plan, outcomes)
                if launch is None and evidence.verdict == "not-reproduced" and _is_of_launches(code):
                    evidence = evidence._replace(verdict="inconclusive", reason=NO_LAUNCH)
                if limits.scripts:
                    from cudalint.confirm.repro import made

                    where = f"{path.replace(os.sep, '/').rpartition('/')[2]}:{line}"
                    script = made(f"{code}: kernel {subject.kernel.name} ({where})", evidence, bench, plan, outcomes)
            except (Unready, Unsupported) as why:
                evidence = Evidence("simulated", "inconclusive", str(why))
            except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as fault:
                # A kernel of a kind that nobody thought of: said, not guessed, and the other findings go on.
                if os.environ.get("CUDALINT_DEBUG"):
                    raise
                evidence = Evidence("simulated", "inconclusive", f"unsupported: {type(fault).__name__}: {fault}")
        proof = Proof(code, subject.kernel.name, path, line, evidence, outcomes, script, about)
        yield proof
        if _rank(proof) == (_ORDER.index("confirmed"), False):
            return


def _is_of_launches(code: str) -> bool:
    """Whether a rule speaks of launches, or of what the host says at one: a kernel by itself shows nothing of that."""
    return code in _OF_EXTENTS or "Kernel" not in checks(frozenset({code}))


def _rank(proof: Proof) -> tuple[int, bool]:
    """Proofs in the order of what they show; one of another access than the flagged one comes after its like."""
    fault = proof.about.fault if proof.about is not None else None
    return _ORDER.index(proof.evidence.verdict), fault is not None and fault.elsewhere


def _where(kernel: Kernel, launch: VisibleLaunch | None) -> tuple[str, int]:
    if launch is None:
        span = kernel.decl.file.span(kernel.decl.name_start, kernel.decl.name_end)
    else:
        span = launch.event.fn.file.span(launch.event.node.start, launch.event.node.end)
    return span.file, span.line


#: The launches that a grid-stride kernel must not depend on, in blocks that it can have.
LAUNCHES = (((1, 1, 1), (1, 1, 1)), ((1, 1, 1), (256, 1, 1)), ((160, 1, 1), (256, 1, 1)), ((10000, 1, 1), (32, 1, 1)))


def _at(trial: Trial, sizes: dict[str, int], block: Triple | None) -> Trial:
    """A run at other sizes, or of another block: blocks that are named by their numbers were those of its own."""
    same = (sizes, block) == (dict(trial.sizes), trial.block)
    blocks = trial.blocks if same or isinstance(trial.blocks, str) else "all"
    return trial._replace(sizes=sizes, block=block, blocks=blocks)


def _sized(bench: Bench, plan: Plan, limits: Limits) -> Plan:
    """The plan at the sizes and the block that the command line gives, or else the sizes that a comment gives."""
    stated = {x.data.name: int(bench.harness.given[x.data.name]) for x in bench.harness.sizes
              if x.data.name in bench.harness.given}  # fmt: skip
    if not limits.sizes and limits.block is None and not stated:
        return bench.let_in(plan)
    block = None if limits.block is None else (limits.block, 1, 1)
    trials: list[Trial] = []
    for trial in (_at(x, {**x.sizes, **stated}, x.block or block) for x in plan.trials):
        if trial not in trials:
            trials.append(trial)
    main = bench.main
    if limits.sizes and main is not None:
        base = {**(plan.trials[0].sizes if plan.trials else {}), **stated}
        first = plan.trials[0] if plan.trials else Trial({})
        trials = [_at(first, {**base, main: n}, block) for n in limits.sizes]
        if any(c.strides_grid for c in bench.kernel.layout.coordinates):
            trials += [
                _at(first, {**base, main: n}, b)._replace(grid=g, label=f"<<<{g[0]},{b[0]}>>>")
                for g, b in dict.fromkeys((g, bench.harness.shape.fit(b)) for g, b in LAUNCHES)
                for n in limits.sizes
            ]
    return plan._replace(trials=trials, block=block)


_ORDER = ("confirmed", "inconclusive", "not-reproduced", "not-run")


def confirm(
    result: Result, worker: Worker, targets: Iterable[Target], limits: Limits, progress: Callable[[str], None]
) -> dict[tuple[str, Any], Proof]:
    """The best verdict for each finding of a run, by (code, span)."""
    from cudalint.engine import place

    waiting: dict[tuple[str, Any], Finding] = {(f.code, f.span): f for f in result.findings}
    found: dict[tuple[str, Any], Proof] = {}
    mine = {f.span.file for f in result.findings}
    for target in sorted(targets, key=lambda x: x.path not in mine):
        codes = frozenset(code for code, _ in waiting)
        if not waiting:
            break
        for unit, draft in drafts(worker, target, codes):
            placed: Placed = place(draft, target.settings)
            key = placed.finding.code, placed.finding.span
            finding = waiting.get(key)
            if finding is None:
                continue
            progress(f"{finding.span.file}:{finding.span.line}: {finding.code}")
            best: Proof | None = None
            for subject in subjects(unit, draft):
                for proof in proofs(finding.code, subject, limits):
                    if best is None or _rank(proof) < _rank(best):
                        best = proof
            if best is not None:
                found[key] = best
                del waiting[key]
    for key, finding in waiting.items():
        page_only = finding.code.startswith("CL0")
        reason = "about the file, nothing to run" if page_only else "no kernel of it can be seen"
        evidence = Evidence("static", "not-run" if page_only else "inconclusive", reason)
        found[key] = Proof(finding.code, finding.function or "", finding.span.file, finding.span.line, evidence, ())
    return found


def drafts(
    worker: Worker, target: Target, codes: frozenset[str]
) -> Iterator[tuple[Kernel | VisibleLaunch | HostFunction, Draft]]:
    """What the rules of ``codes`` say of a file, each with the unit that they say it of. A fault of ours, which the
    check has told, costs one unit or one rule."""
    by_subject = checks(codes)
    project = worker.project(target.settings)
    if project.file(target.path).error is not None:
        return
    for unit in analyse(project, target.path, target.settings.config, told=lambda fault: None):
        for each in by_subject.get(type(unit).__name__, ()):
            with suppress(Exception):
                for draft in each.run(unit):
                    if draft.code in codes:
                        yield unit, draft


def trial_of(
    code: str, kernel_name: str | None, worker: Worker, targets: Iterable[Target], limits: Limits
) -> Iterator[list[Proof]]:
    """The experiment of a rule on every kernel (or those of one name), one list of proofs a kernel."""
    by_subject = checks(frozenset({code}))
    for target in targets:
        project = worker.project(target.settings)
        if project.file(target.path).error is not None:
            continue
        units = list(analyse(project, target.path, target.settings.config))
        said: list[tuple[Any, Draft]] = [
            (unit, draft)
            for unit in units
            for each in by_subject.get(type(unit).__name__, ())
            for draft in each.run(unit)
            if draft.code == code
        ]
        for kernel in units:
            if not isinstance(kernel, Kernel) or not kernel.is_kernel:
                continue
            if kernel_name is not None and kernel_name not in (kernel.name, kernel.decl.name):
                continue
            found: list[Proof] = []
            for launch in kernel.launches or [None]:  # type: ignore[list-item]  # a kernel by itself
                draft = _said(said, kernel, launch)
                witness, flagged = (None, None) if draft is None else (draft.witness, _flagged(draft))
                found.extend(proofs(code, Subject(kernel, (launch,), witness, flagged), limits))
            yield found


def _said(said: list[tuple[Any, Draft]], kernel: Kernel, launch: VisibleLaunch | None) -> Draft | None:
    """What the rule says of a kernel at a launch, beforehand."""
    for unit, draft in said:
        if unit is kernel or unit is launch or (isinstance(unit, HostFunction) and launch in unit.launches):
            return draft
    return None


__all__ = ["Limits", "Outcome", "Proof", "confirm", "proofs", "prove", "shown", "subjects", "trial_of"]
