"""``--repro``: an experiment as one script that anybody with a GPU, CuPy and NumPy can run."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from cudalint.confirm.prelude import PRELUDE
from cudalint.confirm.watch import DEVICE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cudalint.confirm.experiment import Bench, Plan
    from cudalint.confirm.gpu import Experiment
    from cudalint.confirm.runner import Outcome, Proof
    from cudalint.findings import Evidence

_HEAD = '''\
#!/usr/bin/env python3
"""{title}

{text}

Run it with Python, NumPy and CuPy on a machine with an NVIDIA GPU. It compiles and runs the kernel below, nothing
else of its file. Exit code 1: the fault shows; 0: it does not; 2: it cannot be run.
"""
'''


def script(experiment: Experiment | None, title: str = "", text: str = "", judge: Any = None) -> str:
    """The text of the script; without an experiment the one that reads experiments on stdin (``--serve``).

    ``judge`` are the symptoms that count, ``text`` says in words what was expected and seen."""
    head = _HEAD.format(title=title or "Runs experiments that it reads on stdin.", text=text or "Written by cudalint.")
    parts = [head]
    if experiment is not None:
        made = experiment.slice
        parts.append(f"\nINCLUDES = {_raw(made.includes)}\n\nKERNEL = {_raw(made.body)}\n")
        parts.append(
            "\n# The same with the edits by which accesses, arrivals and wraps are told.\n"
            f"WATCHED = {_raw(made.watched or '')}\n"
        )
        parts.append(f"\nEXPERIMENT = {_literal({**experiment.data, **(judge or {})})}\n")
        parts.append(f"\nPRELUDE = {_raw(PRELUDE)}\n\nWATCH = {_raw(DEVICE)}\n")
        parts.append('\nEXPERIMENT["source"] = INCLUDES + PRELUDE + KERNEL\n')
        parts.append('EXPERIMENT["watched"] = INCLUDES + PRELUDE + WATCH + WATCHED\n')
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "child.py")
    with open(path, encoding="utf-8") as file:
        runner = file.read().replace("from __future__ import annotations\n\n", "", 1)
    head, parts[0] = parts[0], ""
    body = "".join(parts)
    end = f'\n\nif __name__ == "__main__":\n    sys.exit(main({"EXPERIMENT" if experiment is not None else "None"}))\n'
    return f"{head}\nfrom __future__ import annotations\n{body}\n{runner}{end}"


def _raw(text: str) -> str:
    """A text as a Python literal that reads like the text."""
    if "'''" in text or "\r" in text or text.endswith(("'", "\\")):
        return repr(text)
    return f"r'''{text}'''"


def _literal(value: Any, depth: int = 0) -> str:
    """Nested dicts over several lines, the rest on one."""
    if not isinstance(value, dict) or not value or depth > 1:
        return repr(value)
    inner = "".join(f"{'    ' * (depth + 1)}{key!r}: {_literal(each, depth + 1)},\n" for key, each in value.items())
    return "{\n" + inner + "    " * depth + "}"


_SYMPTOMS = {"arrivals": "divergent-barrier", "absent": "absent-lane", "outside": "outside", "wraps": "wrap",
             "buffers": "never-written"}  # fmt: skip
_TOOLS = {"outside": "memcheck", "outside-shared": "memcheck", "divergent-barrier": "synccheck", "race": "racecheck",
          "stale-read": "initcheck"}  # fmt: skip

_SAID = ("Invalid", "Misaligned", "Uninitialized", "Barrier error", "Race reported", "Error: Race", "Warning: Race")


def made(
    title: str, evidence: Evidence, bench: Bench, plan: Plan, outcomes: Iterable[Outcome]
) -> tuple[str | None, str]:
    """The script of the run that the evidence is about, or else of the first one, with the symptom it looks for; None
    and why where there is nothing to run."""
    from cudalint.confirm.gpu import Experiment
    from cudalint.confirm.runner import shown
    from cudalint.sim.values import Unsupported

    outcomes = tuple(outcomes)
    chosen = shown(bench, plan, outcomes) or next((o for o in outcomes if o.setups), None)
    if chosen is None or not chosen.setups:
        return None, "nothing of it runs on a GPU"
    try:
        experiment = Experiment(bench.kernel, list(chosen.setups), plan.watch)
    except Unsupported as why:
        return None, str(why)
    symptoms = _judge(chosen)
    extra = {
        "judge": symptoms,
        "places": _places(experiment, plan, chosen),
        "whole": sorted(bench.whole() & set(experiment.buffers)),
    }
    sizes = ", ".join(f"{k} = {v}" for k, v in chosen.trial.sizes.items())
    said = f"Expected: {evidence.prediction.words}." if evidence.prediction is not None else ""
    seen = chosen.fault.text if chosen.fault is not None else "no fault was seen"
    how = "the simulator" if evidence.grade == "simulated" else "a GPU"
    text = "\n".join(x for x in (said, f"With {sizes or 'this launch'}, on {how}: {seen}.") if x)
    return script(experiment, _plain(f"cudalint {title}"), _plain(text), extra), symptoms[0]


def named(proofs: Iterable[Proof]) -> Iterator[tuple[str, str | None, str]]:
    """(file name, text, symptom) of each script, no two of one name."""
    taken: dict[str, int] = {}
    for proof in proofs:
        if proof.script is not None:
            name = file_name(proof.code, proof.kernel, proof.line)
            count = taken[name] = taken.get(name, 0) + 1
            yield (name if count == 1 else f"{name.removesuffix('.py')}-{count}.py"), *proof.script


def _plain(text: str) -> str:
    """A text as it can stand in a docstring: no escape, no quotes, and nothing that is no UTF-8."""
    return text.encode("utf-8", "replace").decode().replace("\\", "/").replace('"""', "'")


def _judge(outcome: Outcome) -> list[str]:
    """The symptoms that count: that of the fault, else those of what the oracle looked at."""
    found = [outcome.fault.symptom] if outcome.fault is not None else []
    found = found or list(dict.fromkeys(_SYMPTOMS[x] for x in sorted(outcome.asked) if x in _SYMPTOMS)) or ["refused"]
    if "outside" in found:
        found.append("outside-shared")
    if "divergent-barrier" in found:
        found.append("hang")
    return found


def _places(experiment: Experiment, plan: Plan, outcome: Outcome) -> list[int] | None:
    """The sites at which a wrap counts: the oracle is asked about each."""
    from cudalint.confirm.oracle import Run
    from cudalint.sim import Observation, Thread, Wrap
    from cudalint.sim.observe import Site

    found = []
    for number, site in enumerate(experiment.watch.sites):
        if site.what in ("wrap", "convert"):
            seen = Observation()
            kinds = ("convert",) if site.what == "convert" else ("signed", "unsigned")
            nowhere = Thread((0, 0, 0), (0, 0, 0))
            seen.wraps = [Wrap(k, site.name, 0, nowhere, Site(site.node, site.file)) for k in kinds]
            if plan.oracle(Run(outcome.setups[0], seen)) is not None:
                found.append(number)
    return found


def sanitize(text: str, symptom: str) -> str:
    """What compute-sanitizer says of a script's kernel as it is, in one line."""
    import subprocess
    import sys
    import tempfile

    tool = _TOOLS.get(symptom, "memcheck")
    with tempfile.TemporaryDirectory(prefix="cudalint-") as folder:
        name = os.path.join(folder, "script.py")
        with open(name, "w", encoding="utf-8") as file:
            file.write(text)
        looked_at = ["--kernel-name-exclude", "kernel_substring=cupy"]
        command = ["compute-sanitizer", "--tool", tool, *looked_at, sys.executable, name, "--plain"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        except subprocess.TimeoutExpired:
            return f"compute-sanitizer {tool}: no end within 120 s"
    said = [x.removeprefix("=========").strip() for x in done.stdout.splitlines() if x.startswith("=========")]
    summary = next((x for x in said if "SUMMARY" in x), "no summary")
    if " 0 " in summary:
        return f"compute-sanitizer {tool} saw nothing"
    # What the tool says of a thread: more telling than what the program said of the failure that came of it.
    first = next((k for k, x in enumerate(said) if x.startswith(_SAID)), None)
    more = [] if first is None else said[first : first + 3]
    return f"compute-sanitizer {tool}: {'; '.join([summary, *more])}"


def file_name(code: str, kernel: str, line: int) -> str:
    """``CL202-scale-line12.py``."""
    return f"{code}-{re.sub(r'[^A-Za-z0-9_]+', '-', kernel).strip('-')}-line{line}.py"


__all__ = ["file_name", "made", "named", "sanitize", "script"]
