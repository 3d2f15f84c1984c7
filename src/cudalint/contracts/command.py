"""``cudalint contract``: each kernel's contract, and whether the launches one can see keep to it."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from cudalint.errors import say
from cudalint.findings import digits
from cudalint.lazy import NamedTuple
from cudalint.report import visible

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Iterator

    from cudalint.contracts.infer import Requirement
    from cudalint.contracts.launches import Kept
    from cudalint.facts.model import Kernel
    from cudalint.facts.terms import Term
    from cudalint.findings import Span
    from cudalint.project import Project
    from cudalint.report import Report
    from cudalint.walk import Target


class Seen(NamedTuple):
    """A visible launch: what it makes of every requirement, and its grid and block in the host's terms where they can
    be told."""

    span: Span
    kept: list[Kept]
    grid: str | None
    block: str | None


class Contract(NamedTuple):
    """A kernel's contract; ``span`` is its name."""

    kernel: str
    span: Span
    requires: list[Requirement]
    launches: list[Seen]


def contracts(target: Target, project: Project, *, elsewhere: bool = False) -> list[Contract]:
    """The contracts of a file's kernels, in order; the instances of a template that ask for the same as one. With
    ``elsewhere``, those of the kernels of other files that it launches, too."""
    from cudalint.facts import analyse
    from cudalint.facts.model import Kernel, Launch

    found: dict[tuple[Any, ...], Contract] = {}
    for unit in analyse(project, target.path, target.settings.config):
        launched = unit.kernel if isinstance(unit, Launch) and elsewhere else None
        kernel = unit if isinstance(unit, Kernel) else launched
        if kernel is not None and kernel.is_kernel and (kernel.decl.file.path == target.path) is (kernel is unit):
            new = _contract(kernel)
            key = (new.span, *(each.text for each in new.requires))
            old = found.get(key)
            more = [] if old is None else [x for x in old.launches if x not in new.launches]
            found[key] = new._replace(launches=more + new.launches)
    return sorted(found.values(), key=lambda each: each.span)


def _contract(kernel: Kernel) -> Contract:
    from cudalint.contracts.infer import requirements
    from cudalint.contracts.launches import kept

    decl = kernel.decl
    requires = requirements(kernel)
    launches = []
    for launch in kernel.launches:
        event = launch.event
        span = event.fn.file.span(event.node.start, event.node.end)
        kept_to = [kept(each, launch) for each in requires]
        launches.append(Seen(span, kept_to, _extents(launch.grid), _extents(launch.block)))
    return Contract(kernel.name, decl.file.span(decl.name_start, decl.name_end), requires, launches)


def _extents(triple: tuple[Term, Term, Term] | None) -> str | None:
    """A grid or a block in words, trailing ones left out."""
    from cudalint.facts.terms import show

    if triple is None:
        return None
    shown = [show(each) for each in triple]
    while len(shown) > 1 and shown[-1] == "1":
        shown.pop()
    return shown[0] if len(shown) == 1 else f"({', '.join(shown)})"


def run(options: argparse.Namespace) -> int:
    """Exit code 0: every launch one can see keeps to its kernel's contract, 1: one does not, 2: misuse."""
    from cudalint.cli import write_out
    from cudalint.config import Configs
    from cudalint.engine import Worker, internal
    from cudalint.frontend.source import host_of
    from cudalint.report import Report
    from cudalint.select import Layer
    from cudalint.walk import walk

    configs = Configs(Layer("the command line"), config=options.config, isolated=options.isolated)
    targets, problems, _ = walk(options.paths or ["."], configs, force_exclude=False)
    worker = Worker({})
    targets = worker.turn_to({}, targets)
    found: list[Contract] = []
    for target in targets:
        project = worker.project(target.settings)
        error = project.file(target.path).error
        if error is None:
            try:
                each = contracts(target, project)
            except Exception as fault:
                problems.append(internal(target.path, "in its contracts", fault))
                continue
            # Launches in Python are not seen: of a body that asks for nothing there is nothing to say.
            silent = host_of(target.path) is not None
            found += [x for x in each if x.requires or x.launches or not silent]
        elif target.named:
            problems.append(f"{target.path}: {error}")
    for problem in problems:
        say(problem)
    report = Report([], [], lambda path: b"", 0, os.getcwd())
    write_out(options, _json(found, report.relative) if options.output_format == "json" else _text(found, report))
    broken = any(each.holds is False for contract in found for launch in contract.launches for each in launch.kept)
    return 2 if problems else int(broken and not options.exit_zero)


def _text(found: Iterable[Contract], report: Report) -> Iterator[str]:
    for contract in found:
        yield visible(f"{report.place(contract.span, column=False)}: {contract.kernel}") + "\n"
        for each in contract.requires:
            yield f"  requires {each.text}" + (" (stated)\n" if each.source == "stated" else "\n")
        if not contract.requires:
            yield "  no requirement is seen\n"
        for span, all_kept, *_ in contract.launches:
            file = "" if span.file == contract.span.file else f"{report.relative(span.file)}, "
            if span.cell is not None and contract.span.cell is not None and span.cell[0] != contract.span.cell[0]:
                file += f"cell {span.cell.number}, "
            parts = [f"{_broken(each)}" for each in all_kept if each.holds is False]
            parts += [f"cannot be told: {each.requirement.text}" for each in all_kept if each.holds is None]
            yield visible(f"  launched at {file}line {span.told_line}: {'; '.join(parts) or 'keeps to it'}") + "\n"
        if not contract.launches:
            yield "  no launch is visible\n"
        yield "\n"


def _broken(each: Kept) -> str:
    sizes = ", ".join(f"{name} = {digits(value)}" for name, value in each.sizes.items())
    return f"broken{f' at {sizes}' if sizes else ''}: {each.requirement.text}"


def _place(span: Span, relative: Callable[[str], str]) -> dict[str, Any]:
    return {
        "file": relative(span.file), "line": span.line, **({} if span.cell is None else {"cell": span.cell._asdict()}),
    }  # fmt: skip


def _json(found: Iterable[Contract], relative: Callable[[str], str]) -> Iterator[str]:
    rows = []
    for contract in found:
        launches = []
        for span, all_kept, *_ in contract.launches:
            sides: dict[str, Any] = _place(span, relative)
            for name, holds in (("holds", True), ("broken", False), ("unknown", None)):
                sides[name] = [each.requirement.text for each in all_kept if each.holds is holds]
            sides["sizes"] = {each.requirement.text: dict(each.sizes) for each in all_kept if each.sizes}
            launches.append(sides)
        requires = [{"kind": each.kind, "text": each.text, "source": each.source} for each in contract.requires]
        rows.append(
            {"kernel": contract.kernel, **_place(contract.span, relative),
             "requires": requires, "launches": launches}
        )  # fmt: skip
    yield json.dumps(rows, indent=2) + "\n"
