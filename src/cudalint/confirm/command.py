"""``cudalint confirm`` and ``check --confirm``."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any

from cudalint.confirm.runner import Limits, Proof, confirm, trial_of
from cudalint.errors import UsageError, closest, say

if TYPE_CHECKING:
    import argparse

    from cudalint.confirm.runner import Backend
    from cudalint.engine import Result
    from cudalint.findings import Finding
    from cudalint.report import Report
    from cudalint.report.html import Exhibit
    from cudalint.report.verdicts import Verdict

_PATIENCE = 2.0
"""Seconds after which a run says what it is at."""


def proved(result: Result, limits: Limits) -> tuple[Result, dict[Any, Proof]]:
    """The findings of a check with their evidence."""
    began = time.monotonic()

    def progress(what: str) -> None:
        if time.monotonic() - began > _PATIENCE and sys.stderr.isatty():
            print(f"\x1b[2K\rconfirming {os.path.relpath(what)}", end="", file=sys.stderr, flush=True)

    proofs = confirm(result, result.worker, result.targets, limits, progress)
    if sys.stderr.isatty():
        print("\x1b[2K\r", end="", file=sys.stderr)
    findings = [f._replace(evidence=proofs[f.code, f.span].evidence) for f in result.findings]
    return result._replace(findings=findings), proofs


def run(options: argparse.Namespace) -> int:
    """The command; returns the exit code."""
    from cudalint.engine import Options, check
    from cudalint.rules.pages import by_name, pages
    from cudalint.select import Layer

    if options.config and options.isolated:
        raise UsageError("--config and --isolated exclude each other")
    if options.kernel is not None and not options.code:
        raise UsageError("--kernel needs --as CODE")
    if options.kernel == "":
        raise UsageError("--kernel is empty: is a variable not set?")
    if options.repro is not None and os.path.exists(options.repro) and not os.path.isdir(options.repro):
        raise UsageError(f"--repro: {options.repro} is no folder")
    if options.html is not None and not os.path.isdir(os.path.dirname(os.path.abspath(options.html))):
        raise UsageError(f"--html: there is no folder for {options.html}")
    if options.html is not None and (not options.html or os.path.isdir(options.html)):
        raise UsageError(f"--html: {options.html or 'an empty name'} is no file")
    backend = _backend(options.backend)
    options.sanitizer = options.sanitizer and _sanitizes(backend)
    scripts = options.repro is not None or options.sanitizer
    limits = Limits(options.sizes, options.block, float(options.timeout), backend, scripts, options.html is not None)
    if options.code is not None:
        page = by_name().get(options.code) or by_name().get(options.code.upper())
        if page is None:
            raise UsageError(f"unknown rule '{options.code}'{closest(options.code, by_name())}")
        return _as(options, page.code, limits)
    select = None if options.select is None else tuple(options.select)
    line = Layer("the command line", select, tuple(options.extend_select), tuple(options.ignore))
    result = check(options.paths or ["."], Options(line, options.config, options.isolated))
    for problem in result.problems:
        say(problem)
    if not result.files and not result.problems:
        print(f"cudalint: no CUDA file to check in {' '.join(options.paths) or '.'}", file=sys.stderr)
    result, proofs = proved(result, limits)
    if options.repro is not None or options.sanitizer:
        _witnesses(options, [p for _, p in sorted(proofs.items(), key=lambda item: (item[0][1], item[0][0]))])
    if options.only_confirmed:
        result = result._replace(findings=[f for f in result.findings if f.evidence.verdict == "confirmed"])
    if options.html is not None:
        _page(options, [_exhibit(f, proofs[f.code, f.span], _report(result)) for f in result.findings], limits)
    _print(options, result)
    if result.problems:
        return 2
    assert pages
    return int(not options.exit_zero and any(f.level != "note" for f in result.findings))


def _backend(wanted: str) -> Backend | None:
    """Where kernels are to be run, said before they are: None is the simulator."""
    if wanted == "sim":
        return None
    from cudalint.confirm.child import HOW
    from cudalint.confirm.gpu import Gpu, available

    missing = available()
    try:
        if missing is not None:
            raise UsageError(missing)
        gpu = Gpu()
    except UsageError as why:
        if wanted == "cupy":
            more = f": {HOW}" if missing is not None else ""
            raise UsageError(f"--backend cupy: {why}{more}") from why
        print(f"cudalint: kernels are simulated: {why}", file=sys.stderr)
        return None
    print(f"cudalint: compiling kernels and running them on {gpu.name}", file=sys.stderr, flush=True)
    return gpu


def _sanitizes(backend: Backend | None) -> bool:
    """Whether compute-sanitizer can look at a kernel; where it cannot, a line says why."""
    import shutil

    why = "it looks at runs on a GPU, and kernels are simulated" if backend is None else None
    if why is None and shutil.which("compute-sanitizer") is None:
        why = "it is not on the PATH, and comes with the CUDA toolkit"
    if why is not None:
        print(f"cudalint: compute-sanitizer is not asked: {why}", file=sys.stderr)
    return why is None


def _witnesses(options: argparse.Namespace, proofs: list[Proof]) -> None:
    """Write the scripts of ``--repro``, and have compute-sanitizer look at them."""
    from cudalint.confirm.repro import named, sanitize

    for name, text, symptom in named(proofs):
        if text is None:
            print(f"cudalint: no script for {name}: {symptom}", file=sys.stderr)
            continue
        if options.repro is not None:
            try:
                os.makedirs(options.repro, exist_ok=True)
                with open(os.path.join(options.repro, name), "wb") as file:
                    file.write(text.encode())
            except OSError as fault:
                raise UsageError(f"--repro {options.repro}: cannot be written ({fault.strerror})") from fault
            print(f"cudalint: wrote {os.path.join(options.repro, name)}", file=sys.stderr)
        if options.sanitizer:
            print(f"cudalint: {name.removesuffix('.py')}: {sanitize(text, symptom)}", file=sys.stderr)


def _print(options: argparse.Namespace, result: Result) -> None:
    from cudalint.report import json, verdicts

    report = _report(result)._replace(colour=_colour(options))
    _write(options, "".join((json if options.output_format == "json" else verdicts).render(report)))


def _report(result: Result) -> Report:
    from cudalint.report import Report

    return Report(result.findings, result.problems, result.source, result.files, os.getcwd())


def _page(options: argparse.Namespace, exhibits: list[Exhibit], limits: Limits) -> None:
    """Write the page of ``--html``."""
    from cudalint.baseline import write_text
    from cudalint.report.html import page

    name = getattr(limits.backend, "name", None)
    where = f"Kernels were run on {name}" if name else "Kernels were simulated"
    write_text(options.html, "".join(page(exhibits, where)))
    print(f"cudalint: wrote {options.html}", file=sys.stderr)


def _exhibit(finding: Finding, proof: Proof, report: Report) -> Exhibit:
    """A finding with its proof, for the page."""
    from cudalint.report import witness_text
    from cudalint.report.html import Exhibit, Group

    text = finding.span.text
    marked = (text.column - 1, text.end_column - 1 if text.end_line == text.line else 1 << 30)
    return Exhibit(
        f"{finding.code} {finding.name}{f' in {finding.function}' if finding.function else ''}", finding.level,
        finding.message, report.place(finding.span), report.source(text.file), text.line,
        marked, finding.span.told_line - text.line + 1, witness_text(finding.witness) if finding.witness else "",
        finding.help, finding.url, finding.evidence, [Group("", proof.outcomes, proof.about)],
    )  # fmt: skip


def _colour(options: argparse.Namespace) -> bool:
    from cudalint.cli import _colour as wanted

    return options.output_file is None and wanted()


def _write(options: argparse.Namespace, text: str) -> None:
    from cudalint.cli import write_out

    write_out(options, [text])


def _as(options: argparse.Namespace, code: str, limits: Limits) -> int:
    """``--as CODE``: the experiment of a rule on kernels, whatever the rule says of them."""
    from cudalint.config import Configs
    from cudalint.engine import Worker
    from cudalint.report import Report, verdicts
    from cudalint.select import Layer
    from cudalint.walk import walk

    configs = Configs(Layer("the command line"), config=options.config, isolated=options.isolated)
    targets, problems, _ = walk(options.paths or ["."], configs, force_exclude=False)
    for problem in problems:
        say(problem)
    worker = Worker({})
    targets = worker.turn_to({}, targets)
    relative = Report([], [], lambda path: b"", 0, os.getcwd()).relative
    kernels = list(trial_of(code, options.kernel, worker, targets, limits))
    if options.repro is not None or options.sanitizer:
        _witnesses(options, [p for found in kernels for p in found])
    if options.kernel and not kernels:
        raise UsageError(f"no kernel '{options.kernel}' in {' '.join(options.paths) or '.'}")
    if options.only_confirmed:
        kernels = [kept for found in kernels if (kept := [p for p in found if p.evidence.verdict == "confirmed"])]
    if options.html is not None:
        _page(options, [_asked(code, found, relative) for found in kernels if found], limits)
    if options.output_format == "json":
        _write(options, _json([p for found in kernels for p in found], relative))
    else:
        shown = [_shown(code, found, relative) for found in kernels if found]
        _write(options, "".join(verdicts.tables(shown, colour=_colour(options))))
    if problems:
        return 2
    return int(not options.exit_zero and any(p.evidence.verdict == "confirmed" for found in kernels for p in found))


def _shown(code: str, found: list[Proof], relative: Any) -> Verdict:
    """One kernel's table: what confirms, or else the first verdict, with the runs of every launch as columns."""
    from cudalint.report.verdicts import Verdict

    best = min(found, key=lambda p: p.evidence.verdict != "confirmed")
    columns = [(f"line {p.line}" if len(found) > 1 else "", p.evidence.cases) for p in found]
    return Verdict(f"{relative(best.path)}:{best.line}: {code} on {best.kernel}", best.evidence, columns, asked=True)


def _asked(code: str, found: list[Proof], relative: Any) -> Exhibit:
    """One kernel of ``--as``, for the page: as :func:`_shown`."""
    from cudalint.report.html import Exhibit, Group

    best = min(found, key=lambda p: p.evidence.verdict != "confirmed")
    groups = [Group(f"line {p.line}" if len(found) > 1 else "", p.outcomes, p.about) for p in found]
    with open(best.path, "rb") as file:
        source = file.read()
    place = f"{relative(best.path)}:{best.line}"
    return Exhibit(
        f"{code} on {best.kernel}", "", "", place, source, best.line, None, 1, "", "", "", best.evidence, groups
    )


def _json(proofs: list[Proof], relative: Any) -> str:
    import json

    from cudalint.findings import evidence_json

    rows = [
        {"code": p.code, "kernel": p.kernel, "file": relative(p.path), "line": p.line,
         "evidence": evidence_json(p.evidence)}
        for p in proofs
    ]  # fmt: skip
    return json.dumps(rows, indent=2) + "\n"
