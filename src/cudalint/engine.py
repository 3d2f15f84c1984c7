"""From paths to findings: what is read, which checks run on it, and what of their drafts is reported."""

from __future__ import annotations

import gc
import os
import re
import sys
import time
from typing import TYPE_CHECKING, Any

from cudalint.config import Configs, Settings, matches
from cudalint.errors import Stopped
from cudalint.findings import Evidence, Finding, Fix, Related, Span, plural
from cudalint.frontend.given import WORD as CONFIRM
from cudalint.frontend.source import host_of, is_host
from cudalint.frontend.stated import WORDS
from cudalint.lazy import NamedTuple
from cudalint.rules.pages import pages
from cudalint.rules.registry import checks
from cudalint.select import Layer
from cudalint.suppress import LEXEME, Directive, directives
from cudalint.walk import CUDA, Target, walk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from cudalint.changed import Changes
    from cudalint.edited import Edit as Edited
    from cudalint.edited import Outline
    from cudalint.facts.model import HostFunction, Kernel, Launch
    from cudalint.findings import Level
    from cudalint.frontend.source import SourceFile
    from cudalint.ir.nodes import FunctionDecl
    from cudalint.project import Project
    from cudalint.rules.draft import Draft, EditDraft, FixDraft

GAP, UNUSED = "CL001", "CL002"
_GARBAGE = 500_000
"""New objects that are worth a collection."""
_MOST_HELD = 3 << 20
"""Bytes of source that are held at once: a byte takes about 100 in trees, declarations and lowered functions."""
_MANY = 40
"""Files from which several processes pay, unless told how many."""
_SEVERITY: tuple[Level, ...] = ("error", "warning", "note")
_STATIC = Evidence()
_REST = "the rest was checked; nothing is said about what could not be read"
_STATED = "the forms are assume(condition) and requires(condition), with a colon before a reason"
_GIVEN = "what cannot be inferred is given by name, like confirm(n=611, block=256, alpha=2.0)"
_FORMS = "the forms are ignore[CODE], ignore-next-line[CODE], ignore-file[CODE], and disable[CODE] with enable[CODE]"


class Options(NamedTuple):
    """A run, as the command line asks for it."""

    line: Layer = Layer("the command line")
    config: str | None = None
    isolated: bool = False
    force_exclude: bool = False
    jobs: int | None = None
    baseline: str | None = None
    compile_commands: str | None = None
    stdin: tuple[str, bytes] | None = None
    """A file's name and the text to take for its content."""
    write_baseline: str | None = None
    changed_since: str | None = None
    """A git revision: report only what concerns a change since then."""
    texts: Mapping[str, bytes] = {}
    """Contents that stand for what is on disk, by absolute path."""
    only: frozenset[str] | None = None
    """Of the files, check those with these paths."""
    folder: str | None = None
    """The root of a text's project where nothing marks one: the folder that is open in an editor."""


class Result(NamedTuple):
    """``problems`` are lines for stderr that make the run fail (exit 2); ``held_back`` counts findings that a
    suppression or the baseline keeps from the report; ``source`` gives a file's text (UTF-8) as it was checked.
    ``files`` were checked, ``unread`` could not be.
    ``worker`` and ``targets`` are what checked which files, for whoever has more to ask about them.
    """

    findings: list[Finding]
    problems: list[str]
    files: int
    excluded: int
    lines: int
    seconds: float
    held_back: int
    source: Callable[[str], bytes]
    worker: Worker
    targets: Sequence[Target]
    unread: int
    marks: Sequence[str] = ()
    """What a baseline knows each finding by, in their order; only where one is read or written."""
    places: Sequence[Span] = ()
    """Where a suppression speaks for each finding, in their order: at the definition of a macro used several times."""


class Placed(NamedTuple):
    """A finding, and the macro whose body made it (its name and the span of its definition), if one did. ``changed``:
    it concerns what differs from the revision that is asked about."""

    finding: Finding
    macro: tuple[str, Span] | None = None
    changed: bool = True
    unit: tuple[str, str] = ("", "")
    """What the rule was asked about: kind and function."""

    @property
    def key(self) -> tuple[str, Span]:
        return self.finding.code, self.finding.span.place


class Checked(NamedTuple):
    """What one file gave: every finding of the selected rules, in whatever file it stands, before suppression."""

    findings: list[Placed]
    directives: dict[str, list[Directive]]
    problems: list[str]
    lines: int
    read: bool = True


class _Former(NamedTuple):
    """What the rules last ``said`` of a file; ``order`` numbers its units as they were met."""

    settings: Settings
    outline: Outline
    said: list[Placed]
    order: dict[tuple[str, str], int]


def check(paths: Sequence[str], options: Options, worker: Worker | None = None) -> Result:
    """Check files and folders. UsageError for a wrong selector, configuration, baseline or database.

    With the ``worker`` of an earlier check, what does not depend on the texts that changed since is not read again;
    what is on disk is taken to be as it was.
    """
    began = time.perf_counter()
    configs = Configs(options.line, config=options.config, isolated=options.isolated)
    accepted: frozenset[str] = frozenset()
    if options.baseline is not None:
        from cudalint import baseline

        accepted = baseline.read(options.baseline)
    overlay = dict(options.texts)
    if options.stdin is not None:
        path = os.path.abspath(options.stdin[0])
        overlay.setdefault(path, options.stdin[1])
        targets, problems, excluded = _overlaid(path, configs, options)
    else:
        targets, problems, excluded = walk(paths, configs, force_exclude=options.force_exclude)
    if options.only is not None:
        targets = [target for target in targets if target.path in options.only]
    files = len(targets)
    if options.compile_commands is not None:
        from cudalint import compdb

        compdb.read(options.compile_commands)  # a wrong one is an error before anything is checked
    before = None
    if options.changed_since is not None:
        from cudalint import changed

        folders = {os.path.dirname(target.path) for target in targets} or {os.getcwd()}
        before = changed.since(options.changed_since, folders, overlay)
    if worker is None:
        worker = Worker(overlay, options.compile_commands, before=before)
    targets = worker.turn_to(overlay, targets)

    merged: dict[tuple[str, Span], Placed] = {}
    found: dict[str, list[Directive]] = {}
    lines = unread = 0
    for checked in _each(worker, targets, options.jobs, problems):
        for placed in checked.findings:
            merged[placed.key] = _merge(merged[placed.key], placed) if placed.key in merged else placed
        found.update(checked.directives)
        problems.extend(checked.problems)
        lines += checked.lines
        unread += not checked.read

    source = _Sources(overlay)
    used: set[tuple[str, tuple[int, int]]] = set()
    suppressed = {placed.key for placed in merged.values() if _speaking(placed, found, used)}
    for target, finding in _unused(worker, targets, found, used):
        placed = Placed(finding, changed=worker.changed(target, finding))
        merged[placed.key] = placed
        if _speaking(placed, found, used):
            suppressed.add(placed.key)
    roots = {target.path: target.settings.root for target in targets}
    groups: dict[tuple[str, Span], list[Placed]] = {}
    for placed in _numbered(merged.values(), source, roots):
        if placed.key not in suppressed:
            place = placed.macro[1] if placed.macro else placed.finding.span
            groups.setdefault((placed.finding.code, place), []).append(placed)
    groups = {place: group for place, group in groups.items() if any(p.changed for p in group)}
    marks = _marks(options, merged.values(), source)
    new = [group for group in groups.values() if accepted.isdisjoint(marks.get(p.key, "") for p in group)]
    final = [_one(group) for group in new]
    return Result(
        final, _distinct(problems), files - unread, excluded, lines, time.perf_counter() - began,
        len(suppressed) + len(groups) - len(final), source.__getitem__, worker, targets, unread,
        [marks.get(group[0].key, "") for group in new],
        [group[0].macro[1] if group[0].macro and len(group) > 1 else group[0].finding.span for group in new],
    )  # fmt: skip


def _marks(options: Options, everything: Iterable[Placed], source: _Sources) -> dict[tuple[str, Span], str]:
    """What a baseline knows findings by: fingerprints whose paths begin at the baseline itself, so that neither
    the folder cudalint is run from nor what marks the project's root matters.
    """
    anchor = options.baseline or options.write_baseline
    if anchor is None:
        return {}
    folder = os.path.dirname(os.path.realpath(anchor))
    return {placed.key: placed.finding.fingerprint for placed in _numbered(everything, source, {}, folder)}


def _overlaid(path: str, configs: Configs, options: Options) -> tuple[list[Target], list[str], int]:
    folder = os.path.dirname(path)
    settings = configs.of(folder, options.folder or folder)
    if options.force_exclude and matches(settings.config.base, settings.config.exclude, path):
        return [], [], 1
    return [Target(path, settings, True)], [], 0


class Worker:
    """Checks files one by one; holds the projects, so that what files share is read once."""

    def __init__(
        self, overlay: dict[str, bytes], compile_commands: str | None = None, targets: frozenset[str] = frozenset(),
        before: Mapping[str, bytes | None] | None = None, *, edits: bool = False,
    ) -> None:  # fmt: skip
        """With ``edits`` it keeps what it found in a file, for when that is checked again after an edit."""
        self._overlay, self._compile_commands, self._targets = overlay, compile_commands, targets
        self._before = before
        # Nearly all that is made lives until its file is done: garbage is collected between files.
        gc.disable()
        # Lowering bounds how deep it follows a source, but a level of source may take six of Python's.
        sys.setrecursionlimit(max(sys.getrecursionlimit(), 5000))
        self._projects: dict[Settings, Project] = {}
        self._changes: dict[Settings, Changes] = {}
        self._others: dict[tuple[object, ...], list[Placed]] = {}
        """What files that are not checked themselves give: those that include a checked one, or use its macros."""
        self._stopped = False
        self._former: dict[str, _Former] | None = {} if edits else None
        """Files of which only what an edit concerns may have to be checked again."""

    def turn_to(self, overlay: dict[str, bytes], targets: Iterable[Target]) -> list[Target]:
        """Take other contents, and check other files, from now on. Returns them with the CUDA texts that are in them,
        as files of their own."""
        changed = {p for p in overlay.keys() | self._overlay.keys() if overlay.get(p) != self._overlay.get(p)}
        if self._former is not None:
            self._former = {p: known for p, known in self._former.items() if changed <= {p}}
        self._overlay = overlay
        self._others.clear()
        if self._projects:
            from cudalint.facts.analysis import forget_words

            for project in self._projects.values():
                forget_words(project, project.replace(overlay))
        found = []
        for target in targets:
            if host_of(target.path) is None:
                found.append(target)
                if is_host(target.path):
                    found += (target._replace(path=path) for path in self._texts(target))
        self._targets = frozenset(target.path for target in found)
        return found

    def _texts(self, target: Target) -> Iterator[str]:
        """The texts in a notebook or a Python file that are to be checked. A fault is told when the file is."""
        from cudalint.frontend.source import holds_cuda

        try:
            texts = self.project(target.settings).texts(target.path)
        except Exception:
            return
        for path, file in texts.items():
            if path.lower().endswith(CUDA) or holds_cuda(file.raw):
                yield path

    def check(self, target: Target) -> Checked:
        """Every finding of the selected rules on one file; once it is told to stop, those up to there, and none of
        further files. Never raises but for Ctrl-C."""
        found = Checked([], {}, [], 0)
        if self._stopped:
            return found
        self._tidy()
        try:
            file = self.project(target.settings).file(target.path)
        except Exception as fault:
            found.problems.append(internal(target.path, "while reading it", fault))
            return found._replace(read=False)
        if file.error is not None:
            if target.named:
                found.problems.append(f"{_shown(target.path)}: {file.error}")
            elif GAP in target.settings.selection.codes:
                span = Span(target.path, 1, 1, 1, 1)
                message, advice = f"the file was not checked: {file.error}", "exclude it if it is no source"
                gap = self._gap(target, span, message, advice)
                found.findings.append(Placed(gap, changed=self.changed(target, gap)))
            return found._replace(read=False)
        if is_host(target.path):
            if GAP in target.settings.selection.codes:
                gaps = (Placed(gap, changed=self.changed(target, gap)) for gap in self._gaps(target, file))
                self._guard(target, "while reading it", found, lambda: found.findings.extend(gaps))
            return found._replace(findings=[p for p in found.findings if self._wanted(target, p.finding)])
        found = found._replace(lines=len(_LINE_END.findall(file.raw)) + (file.raw[-1:] not in (b"\n", b"\r", b"")))
        if GAP in target.settings.selection.codes:
            gaps = (Placed(gap, changed=self.changed(target, gap)) for gap in self._gaps(target, file))
            self._guard(target, "while looking for gaps", found, lambda: found.findings.extend(gaps))
        try:
            self._run_again(target, file, found)
            includers, users = "in the files that include it", "in the files that use its macros"
            self._guard(target, includers, found, lambda: self._from_includers(target, file, found))
            self._guard(target, users, found, lambda: self._first_uses(target, found))
        except Stopped:
            self._stopped = True
            found.problems.append(f"{_shown(target.path)} takes too long: not all of it was checked")
        kept = [placed for placed in found.findings if self._wanted(target, placed.finding)]
        for path in {path for p in kept for path in _places(p)} | {target.path}:
            found.directives[path] = directives(self.project(target.settings).file(path).raw)
        return found._replace(findings=kept)

    def _tidy(self) -> None:
        full = sum(project.held for project in self._projects.values()) > _MOST_HELD
        if full:
            for project in self._projects.values():
                project.trim()
            gc.unfreeze()
        if full or gc.get_count()[0] > _GARBAGE:
            # What outlives a collection (files, their trees and functions) stays until it is trimmed: it is frozen, so
            # that no later collection looks at it.
            gc.collect()
            gc.freeze()

    def _from_includers(self, target: Target, file: SourceFile, found: Checked) -> None:
        """What stands in this file and is seen from a kernel of a file that includes it and is not checked itself:
        so one header gives the same findings as the whole project."""
        project = self.project(target.settings)
        including = [path for path in project.cuda_including(target.path) if path not in self._targets]
        if not including or not any(function.has_body for function in file.declarations.functions):
            return
        for path in including:
            others = self._other(target, path, into=target.path)
            found.findings.extend(placed for placed in others if placed.finding.span.text.file == target.path)

    def _first_uses(self, target: Target, found: Checked) -> None:
        """The first use of each macro whose body made a finding here, where it stands in a file that is not checked
        itself: so the finding stands at the same place whichever of the macro's users is checked."""
        project = self.project(target.settings)
        firsts: dict[tuple[str, tuple[str, Span]], Placed] = {}
        for placed in found.findings:
            if placed.macro is not None:
                known = firsts.setdefault((placed.finding.code, placed.macro), placed)
                if placed.finding.span.place < known.finding.span.place:
                    firsts[placed.finding.code, placed.macro] = placed
        for (code, (name, body)), placed in firsts.items():
            for path in sorted({body.text.file, *project.including(body.text.file)}):
                if path >= placed.finding.span.text.file:
                    break
                if path in self._targets or name.encode() not in project.content(path):
                    continue
                others = self._other(target, path, codes=frozenset((code,)))
                same = (p for p in others if p.macro == placed.macro and p.finding.code == code)
                first = next((p for p in same if self._counts(target, p)), None)
                if first is not None:
                    found.findings.append(first)
                    break

    def _other(
        self, target: Target, path: str, *, codes: frozenset[str] | None = None, into: str | None = None
    ) -> list[Placed]:
        """The findings of a file that is not checked itself, by the settings of one that is: those of ``codes``, and
        of what calls functions of the file ``into``, if given."""
        key = (path, target.settings, codes, into)
        if key not in self._others:
            other = Checked([], {}, [], 0)
            self._run(target._replace(path=path), other, codes, into)
            self._others[key] = other.findings
        return self._others[key]

    def _counts(self, target: Target, placed: Placed) -> bool:
        """Is the finding reported at all: is its file not excluded, its code not ignored, and no suppression there?"""
        if not self._wanted(target, placed.finding):
            return False
        project = self.project(target.settings)
        return not _speaking(placed, {path: directives(project.file(path).raw) for path in _places(placed)}, set())

    def span(self, target: Target, start: tuple[int, int], end: tuple[int, int]) -> Span:
        """Where the user sees what stands between two places (line and column) of a target."""
        if host_of(target.path) is None:
            return Span(target.path, *start, *end)
        from cudalint.frontend.embedded import Embedded

        text = self.project(target.settings).file(target.path)
        assert isinstance(text, Embedded)
        return text.outward(start, end)

    def project(self, settings: Settings) -> Project:
        """The project that files with these settings belong to."""
        if settings not in self._projects:
            from cudalint.project import Project

            self._projects[settings] = Project(
                settings.root, settings, overlay=self._overlay, compile_commands=self._compile_commands
            )
        return self._projects[settings]

    def changed(self, target: Target, about: Finding | Kernel | Launch | HostFunction) -> bool:
        """Whether something differs from the revision that is asked about: in a unit, or around a finding that is
        about no unit. True where none is asked about."""
        if self._before is None:
            return True
        from cudalint.changed import Changes

        if target.settings not in self._changes:
            self._changes[target.settings] = Changes(self.project(target.settings), self._before)
        changes = self._changes[target.settings]
        return changes.at(about.span) if isinstance(about, Finding) else changes.of_unit(about)

    def _run_again(self, target: Target, file: SourceFile, found: Checked) -> None:
        """Run the rules; of a file that was checked before, on what an edit concerns."""
        if self._former is None or host_of(target.path) is not None:
            self._run(target, found)
            return
        from cudalint import edited

        former = self._former.pop(target.path, None)
        if former is not None and (former.settings != target.settings or not all(p.unit[1] for p in former.said)):
            former = None
        outline = edited.Outline(file, former and former.outline)
        edit = former and edited.edit(former.outline, outline)
        stays: list[Placed] = []
        order: dict[tuple[str, str], int] = {}
        if edit is not None and former is not None:
            moved = [(p, _moved(p, edit)) for p in former.said]
            edit = edited.widened(edit, (p.unit[1] for p, now in moved if now is None), outline)
            stays = [now for _, now in moved if now is not None and now.unit[1] not in edit.names]
            order = former.order
        ran = Checked([], {}, found.problems, 0)
        try:
            self._run(target, ran, through=edit and edit.names, order=order)
        finally:
            # Of what several units say, the first is reported: they keep their order.
            said = sorted(stays + ran.findings, key=lambda p: order.get(p.unit, -1))
            found.findings.extend(said)
        if not found.problems:
            self._former[target.path] = _Former(target.settings, outline, said, order)

    def _run(
        self, target: Target, found: Checked, codes: frozenset[str] | None = None, into: str | None = None,
        through: frozenset[str] | None = None, order: dict[tuple[str, str], int] | None = None,
    ) -> None:  # fmt: skip
        selection = target.settings.selection
        chosen = (selection.codes | selection.forms) & codes if codes is not None else selection.codes | selection.forms
        by_subject = self._guard(target, "in the rules", found, lambda: checks(chosen))
        if not by_subject:
            return
        from cudalint.facts import analyse

        where = "in the analysis"
        units = analyse(
            self.project(target.settings), target.path, target.settings.config, into, through,
            lambda fault: self._fault(target, where, found, fault),
            lambda decl, what: self._left(target, found, decl, what),
        )  # fmt: skip
        while (unit := self._guard(target, where, found, lambda: next(units, None))) is not None:
            name = _unit(unit)
            if order is not None:
                order.setdefault(name, len(order))
            for each in by_subject.get(type(unit).__name__, ()):

                def drafts(
                    run: Callable[[Any], Iterable[Draft]] = each.run, unit: Any = unit, name: tuple[str, str] = name
                ) -> None:
                    for draft in run(unit):
                        if draft.code in (selection.codes if draft.form is None else selection.forms):
                            placed = place(draft, target.settings)
                            found.findings.append(placed._replace(changed=self.changed(target, unit), unit=name))

                self._guard(target, f"in {each.name}", found, drafts)

    def _guard(self, target: Target, where: str, found: Checked, step: Callable[[], Any]) -> Any:
        """Run a step; a fault in it costs that step alone and is told."""
        try:
            return step()
        except Exception as fault:
            self._fault(target, where, found, fault)
            return None

    def _fault(self, target: Target, where: str, found: Checked, fault: Exception) -> None:
        what = _what(fault)
        if not any(what in problem for problem in found.problems):  # every rule that asks meets the same fault
            found.problems.append(internal(target.path, where, fault))

    def _left(self, target: Target, found: Checked, decl: FunctionDecl, what: str) -> None:
        """Something of a file is not looked at, from a function on."""
        if GAP in target.settings.selection.codes:
            span = decl.file.span(decl.name_start, decl.name_end)
            gap = self._gap(target, span, what)
            found.findings.append(Placed(gap, changed=self.changed(target, gap)))

    def _gaps(self, target: Target, file: SourceFile) -> Iterator[Finding]:
        """The regions that could not be read: by the preprocessor, and by the parser."""
        regions = {(gap.start, gap.end): f"this region was not checked: {gap.why}" for gap in file.gaps}
        for start, end, missing in file.declarations.gaps:
            start, end = file.origin(start, end)
            if any(gap.start <= start <= gap.end for gap in file.gaps):
                continue
            message = "this region was not understood and not checked"
            if missing:
                what = missing.replace("_", " ") if missing.isidentifier() else f"`{missing}`"
                message = f"{what} is missing here, and what stands around it may not have been checked"
            regions.setdefault((start, end), message)
        for jump in file.declarations.jumps:
            regions.setdefault(file.origin(*jump), "a jump is not followed: this function was not checked")
        for place in file.declarations.nested:
            regions.setdefault(file.origin(*place), "this is nested too deeply and was not checked")
        for (start, end), message in sorted(regions.items()):
            yield self._gap(target, file.raw_span(start, end), message)

    def _gap(self, target: Target, span: Span, message: str, advice: str = _REST) -> Finding:
        page = pages()[GAP]
        level = target.settings.level_of(page, page.level)
        return Finding(GAP, page.name, level, None, message, page.url, span, None, (), None, None, _STATIC, "", advice)

    def _wanted(self, target: Target, finding: Finding) -> bool:
        path, settings = finding.span.file, target.settings
        if path not in (target.path, host_of(target.path)) and matches(
            settings.config.base, settings.config.exclude, path
        ):
            return False
        return not settings.ignored(path, pages()[finding.code])


def _moved(placed: Placed, edit: Edited) -> Placed | None:
    """The finding where it stands after an edit elsewhere; None where that matters to it."""
    finding, body = edit.finding(placed.finding), edit.span(placed.macro[1]) if placed.macro else None
    if finding is None or (placed.macro is not None and body is None):
        return None
    return placed._replace(finding=finding, macro=(placed.macro[0], body) if placed.macro and body else None)


def _unit(unit: Kernel | Launch | HostFunction) -> tuple[str, str]:
    decl = unit.decl if hasattr(unit, "decl") else unit.event.fn.within
    return type(unit).__name__, decl.name if decl is not None else ""


def place(draft: Draft, settings: Settings) -> Placed:
    """The draft where the user sees it, under its page's name."""
    page = pages()[draft.code]
    function = draft.function
    finding = Finding(
        code=draft.code,
        name=page.name,
        level=settings.level_of(page, draft.level or page.level),
        form=draft.form,
        message=draft.message,
        url=page.url,
        span=draft.file.span(draft.start, draft.end),
        function=function.within.qualname if function is not None and function.within is not None else None,
        related=tuple(Related(file.span(start, end), text) for file, start, end, text in draft.related),
        witness=draft.witness,
        fix=draft.fix and _placed_fix(draft.fix),
        evidence=_STATIC,
        fingerprint="",
        help=draft.help,
    )
    use = draft.file.macro_use(draft.start)
    if use is None or use.body is None or draft.file.origin(draft.start, draft.end) != (use.start, use.end):
        return Placed(finding)  # not in a macro, or in an argument of one
    return Placed(finding, (use.name, use.body))


def _placed_fix(fix: FixDraft) -> Fix | None:
    """The fix in the user's files; none where a macro made what it would change, or it cannot be written there."""
    edits = [edit.file.replacing(edit.start, edit.end, edit.text) for edit in fix.edits]
    made = tuple(edit for edit in edits if edit is not None)
    if len(made) != len(edits):
        return None
    return Fix("safe" if fix.safe and not _loses_comment(fix.edits) else "unsafe", fix.title, made)


def _loses_comment(edits: Iterable[EditDraft]) -> bool:
    """Whether a comment stands in what edits replace, and in nothing that they put there."""
    written = "".join(edit.text for edit in edits).encode()
    return any(
        lexeme["comment"] is not None and lexeme["comment"] not in written
        for edit in edits
        for lexeme in LEXEME.finditer(edit.file.text, edit.start, edit.end)
    )


def _merge(one: Placed, other: Placed) -> Placed:
    """One defect found twice (two instantiations, two units): the first's words, both's related places."""
    finding = _with_related(one.finding, other.finding.level, other.finding.related)
    return one._replace(finding=finding, changed=one.changed or other.changed)


def _with_related(finding: Finding, level: Level, related: Iterable[Related]) -> Finding:
    level = min(finding.level, level, key=_SEVERITY.index)
    told: dict[tuple[Span, str], Related] = {}
    for each in (*finding.related, *related):
        told.setdefault((each.span.place, each.message), each)
    return finding._replace(level=level, related=tuple(told.values()))


def _one(group: list[Placed]) -> Finding:
    """The finding of a macro's body stands at its first use; the body and the other uses are related."""
    first = group[0]
    if first.macro is None:
        return first.finding
    name, body = first.macro
    related = [Related(body, f"the macro {name} is defined here")]
    level = first.finding.level
    for placed in group[1:]:
        related.append(Related(placed.finding.span, f"{name} is used here too"))
        level = min(level, placed.finding.level, key=_SEVERITY.index)
    return _with_related(first.finding, level, related)


def _places(placed: Placed) -> Iterator[str]:
    """The files in which a suppression may speak for the finding."""
    yield placed.finding.span.text.file
    if placed.macro is not None:
        yield placed.macro[1].text.file


def _speaking(placed: Placed, found: dict[str, list[Directive]], used: set[tuple[str, tuple[int, int]]]) -> bool:
    """Does a directive, at the finding or at its macro's body, speak for it? Those that do are added to ``used``."""
    spans = [placed.finding.span] if placed.macro is None else [placed.finding.span, placed.macro[1]]
    speaking = {
        (span.file, directive.start)
        for span in (span.text for span in spans)
        for directive in found.get(span.file, ())
        if directive.covers(placed.finding, span)
    }
    used |= speaking
    return bool(speaking)


def _unused(
    worker: Worker, targets: Sequence[Target], found: dict[str, list[Directive]], used: set[tuple[str, tuple[int, int]]]
) -> Iterator[tuple[Target, Finding]]:
    """CL002, for the suppressions whose rules ran. A literal that is part of several texts needs to be right in one."""
    spoke = {
        worker.span(target, directive.start, directive.end).place
        for target in targets
        if host_of(target.path) is not None
        for directive in found.get(target.path, ())
        if (target.path, directive.start) in used
    }
    for target in targets:
        settings, path = target.settings, target.path
        if not found.get(path) or UNUSED not in settings.selection.codes:
            continue
        page = pages()[UNUSED]
        shown = host_of(path) or path
        if settings.ignored(shown, page):
            continue
        for directive in found[path]:
            if directive.fault is not None:
                forms = _GIVEN if directive.word == CONFIRM else _STATED if directive.word in WORDS else _FORMS
                message, advice = directive.fault, forms
            elif directive.word == "enable" or directive.codes == {UNUSED} or (path, directive.start) in used:
                continue
            else:
                named = [pages()[code] for code in sorted(directive.codes)]
                due = [each for each in named if each.default] or named
                ran = settings.selection.codes if named else settings.selection.forms
                if not ran or any(each.code not in ran or settings.ignored(shown, each) for each in due):
                    continue
                what = named[0].name if len(named) == 1 else "finding of these rules"
                message = f"'{directive.word}[{directive.selector}]' suppresses nothing: no {what} here"
                advice = "remove it"
            span = worker.span(target, directive.start, directive.end)
            if span.place in spoke:
                continue
            level = settings.level_of(page, page.level)
            yield (
                target,
                Finding(
                    UNUSED, page.name, level, None, message, page.url, span, None, (), None, None, _STATIC, "", advice
                ),
            )


_LINE_END = re.compile(rb"\r\n|\r|\n")
_TOKENS = re.compile(rb"\w+|[^\w\s]")
_COMMENTS = re.compile(rb"//[^\r\n]*|/\*.*?\*/", re.DOTALL)


def _numbered(
    everything: Iterable[Placed], source: _Sources, roots: dict[str, str], base: str | None = None
) -> Iterator[Placed]:
    """The findings in order, with fingerprints that survive edits elsewhere in the file. Paths begin at the
    project's root, or at ``base``.
    """
    split: dict[str, list[bytes]] = {}
    ordinals: dict[bytes, int] = {}
    default_root = next(iter(roots.values()), os.getcwd())
    for placed in sorted(everything, key=lambda p: (p.finding.span[:3], p.key)):
        from hashlib import sha256  # not without a finding: it loads OpenSSL

        f = placed.finding
        path, text_span = f.span.file, f.span.text
        if text_span.file not in split:
            split[text_span.file] = _LINE_END.split(source[text_span.file])
        text = b"\n".join(split[text_span.file][text_span.line - 1 : text_span.end_line])[:4096]
        if f.code != UNUSED:  # which is about a comment
            text = _COMMENTS.sub(b" ", text)
        start = roots.get(path, default_root) if base is None else base
        inside = os.path.relpath(path if base is None else os.path.realpath(path), start).replace(os.sep, "/")
        name = "\0".join((f.code, inside, f.function or "")).encode("utf-8", "surrogateescape")
        key = name + b"\0" + b" ".join(_TOKENS.findall(text))
        ordinals[key] = ordinals.get(key, -1) + 1
        fingerprint = sha256(key + b"\0%d" % ordinals[key]).hexdigest()[:20]
        yield placed._replace(finding=f._replace(fingerprint=fingerprint))


class _Sources(dict[str, bytes]):
    """Files' texts as the user sees them, in UTF-8; empty for one that cannot be read."""

    def __init__(self, overlay: dict[str, bytes]) -> None:
        super().__init__()
        self._overlay = overlay

    def __missing__(self, path: str) -> bytes:
        from cudalint.frontend.source import MAX_HOST, MAX_SOURCE, decode, read

        host = host_of(path)
        if host is not None:
            from cudalint.frontend.embedded import texts_of

            self.update(texts_of(host, self._overlay))  # all of them: one reading of the host gives them
            raw = self.get(path, b"")
        elif path in self._overlay:
            raw = decode(self._overlay[path]).raw
        else:
            raw = decode(read(path, MAX_HOST if is_host(path) else MAX_SOURCE)[0]).raw
        self[path] = raw
        return raw


def _shown(path: str) -> str:
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative


def internal(path: str, where: str, fault: Exception) -> str:
    """What is said of a fault of ours; it costs no other file's results."""
    if os.environ.get("CUDALINT_DEBUG"):
        import traceback

        traceback.print_exception(fault)
    return f"{_shown(path)}{_INTERNAL}{where}: {_what(fault)} (CUDALINT_DEBUG=1 shows where; please report it)"


_INTERNAL = ": internal error "


def _distinct(problems: Iterable[str]) -> list[str]:
    """The same fault of ours in several files is told once."""
    files: dict[str, list[str]] = {}
    for problem in problems:
        path, internal, fault = problem.partition(_INTERNAL)
        files.setdefault(internal + fault if internal else problem, []).append(path if internal else "")
    more = {fault: f" and {plural(len(paths) - 1, 'more file')}" for fault, paths in files.items() if len(paths) > 1}
    return [f"{paths[0]}{more.get(fault, '') if paths[0] else ''}{fault}" for fault, paths in files.items()]


def _what(fault: Exception) -> str:
    return f"{type(fault).__name__}: {fault}".partition("\n")[0][:200]


def _each(worker: Worker, targets: list[Target], jobs: int | None, problems: list[str]) -> Iterator[Checked]:
    """Each file's result, in the order of the files, from one process or several."""
    if jobs is None:
        jobs = _cores() if len(targets) > _MANY else 1
    jobs = min(jobs, len(targets))
    if jobs <= 1:
        yield from map(worker.check, targets)
        return
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing import active_children, get_context

    context = get_context("fork") if sys.platform == "linux" else get_context("spawn")
    done = 0
    with ProcessPoolExecutor(jobs, context, _start, (worker,)) as pool:
        try:
            results = pool.map(_check, targets, chunksize=max(1, min(16, len(targets) // (4 * jobs))))
        except OSError:  # the system gives no more processes, or no more open files
            results = None
            for child in active_children():
                child.kill()
        try:
            for checked in results or ():
                done += 1
                yield checked
        except BrokenProcessPool:
            last = f"; {len(targets) - done} of {len(targets)} files were not checked"
            problems.append(f"a worker process died (out of memory?){last}; --jobs 1 shows at which file")
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    if results is None:
        yield from map(worker.check, targets)


def _cores() -> int:
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


_worker: Worker


def _start(worker: Worker) -> None:
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent answers for Ctrl-C
    global _worker
    _worker = worker


def _check(target: Target) -> Checked:
    return _worker.check(target)
