"""What is known of the texts that are open: checks, contracts and repairs. One thread uses it at a time."""

from __future__ import annotations

import gc
import os
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from cudalint import engine
from cudalint.engine import GAP, UNUSED, Options, Result
from cudalint.frontend.source import holds_cuda, is_host, may_hold_cuda
from cudalint.lazy import NamedTuple
from cudalint.lsp.text import Moves
from cudalint.walk import CUDA

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cudalint.contracts.command import Contract
    from cudalint.findings import Finding, Span
    from cudalint.walk import Target

_GARBAGE = 50_000
"""New objects that are worth a collection once an answer is out."""


class Text(NamedTuple):
    """An open text. ``folder`` is the workspace folder that holds it; ``cuda``: the editor says that it is CUDA."""

    path: str
    text: str
    folder: str | None
    cuda: bool

    @property
    def data(self) -> bytes:
        return self.text.encode("utf-8", "replace")

    @property
    def checked(self) -> bool:
        """A source of CUDA by its name, a header or source that is CUDA by what is in it, or a file with CUDA in it."""
        if is_host(self.path):
            return may_hold_cuda(self.path, self.data)
        return self.cuda or self.path.lower().endswith(CUDA) or holds_cuda(self.data)


class Region(NamedTuple):
    """A function with a body: its lines, that of its name, and whether all of them were understood."""

    kernel: bool
    line: int
    first: int
    last: int
    whole: bool


class Snapshot(NamedTuple):
    """What a check found in a text. ``kept`` are findings of an earlier version that stand where this one cannot be
    read; ``sources`` are the texts of the files that findings mention."""

    text: Text
    lines: list[str]
    findings: list[Finding]
    kept: list[Finding]
    regions: list[Region]
    problems: list[str]
    sources: Mapping[str, str]
    targets: Sequence[Target]

    @property
    def shown(self) -> list[Finding]:
        """The findings in this text."""
        return [f for f in (*self.findings, *self.kept) if f.span.file == self.text.path]

    @property
    def elsewhere(self) -> list[Finding]:
        return [f for f in self.findings if f.span.file != self.text.path]

    def functions(self, finding: Finding) -> list[Region]:
        """The functions of this text in which the finding or a place that belongs to it stands."""
        spans = [s for s in (finding.span, *(r.span for r in finding.related)) if s.file == self.text.path]
        return [r for r in self.regions if any(r.first <= s.line and s.end_line <= r.last for s in spans)]

    def ground(self, finding: Finding) -> str:
        """The text that the finding is about: what was shown of it holds as long as that stays."""
        return "\0".join("".join(self.lines[r.first - 1 : r.last]) for r in self.functions(finding))


class Session:
    def __init__(self) -> None:
        self._worker = engine.Worker({}, edits=True)
        self._frozen = False

    def forget(self) -> None:
        """Files on disk changed: read everything again."""
        self._worker = engine.Worker({}, edits=True)

    def _check(self, text: Text, texts: Mapping[str, bytes]) -> Result:
        run = Options(stdin=(text.path, text.data), texts=texts, force_exclude=True, folder=text.folder)
        return engine.check([], run, self._worker)

    def check(self, text: Text, texts: Mapping[str, bytes], before: Snapshot | None, split: list[str]) -> Snapshot:
        """Check a text, as the other ``texts`` are now. UsageError for a wrong configuration."""
        result = self._check(text, texts)
        regions = self._regions(result)
        gaps = result.unread or any(f.code == GAP and f.span.file == text.path for f in result.findings)
        gaps = gaps or not all(region.whole for region in regions)
        kept = list(_kept(before, split, result.findings, regions)) if before is not None and gaps else []
        mentioned = {s.file for f in result.findings for s in (f.span, *(r.span for r in f.related))} - {text.path}
        sources = {path: result.source(path).decode() for path in mentioned}
        return Snapshot(text, split, result.findings, kept, regions, result.problems, sources, result.targets)

    def _regions(self, result: Result) -> list[Region]:
        found = []
        for target in result.targets:
            file = result.worker.project(target.settings).file(target.path)
            if file.error is not None:
                continue
            gaps = [(gap.start, gap.end) for gap in file.gaps]
            gaps += [file.origin(start, end) for start, end, _ in file.declarations.gaps]
            functions = [f for f in file.declarations.functions if f.has_body and f.file is file]
            ranges = [file.origin(f.start, f.end) for f in functions]
            starts, ends = sorted(start for start, _ in ranges), sorted(end for _, end in ranges)
            for function, (start, end) in zip(functions, ranges, strict=True):
                span = file.raw_span(start, end)
                line = file.position(file.origin(function.name_start, function.name_end)[0])[0]
                # A brace too many ends a function early: what is amiss up to its neighbours may be about it.
                before, after = bisect_right(ends, start), bisect_left(starts, end)
                begin = ends[before - 1] if before else 0
                stop = starts[after] if after < len(starts) else len(file.raw)
                whole = not any(begin <= last and first <= stop for first, last in gaps)
                found.append(Region(function.kind == "kernel", line, span.line, span.end_line, whole))
        return found

    def contracts(self, of: Snapshot, texts: Mapping[str, bytes]) -> list[Contract]:
        """The contracts of the kernels of a text, and of those that it launches from another file."""
        from cudalint.contracts.command import contracts

        self._worker.turn_to(dict(texts), of.targets)
        found: list[Contract] = []
        for target in of.targets:
            project = self._worker.project(target.settings)
            if project.file(target.path).error is None:
                found += contracts(target, project, elsewhere=True)
        return found

    def repaired(self, text: Text, texts: Mapping[str, bytes], *, unsafe: bool) -> str | None:
        """The text with all its fixes; None if none can be made."""
        from cudalint import fix
        from cudalint.frontend.source import decode

        run = Options(stdin=(text.path, text.data), folder=text.folder)

        def again(new: Mapping[str, bytes], paths: Iterable[str] | None) -> Result:
            only = None if paths is None else frozenset(paths)
            return engine.check([], run._replace(texts={**texts, **new}, only=only))

        result = again({}, None)
        repaired = fix.repair(result, again, texts, unsafe=unsafe)
        data = repaired.texts.get(text.path)
        return None if data is None else decode(data).raw.decode()

    @staticmethod
    def warm_up() -> None:
        """Load what every check needs, so that the first one does not wait for it."""
        from cudalint.frontend.parse import parse
        from cudalint.rules.pages import pages
        from cudalint.rules.registry import checks

        checks(frozenset(pages()))
        parse(b"")

    def tidy(self) -> None:
        """Collect what the last check left behind, while nobody waits for an answer."""
        if gc.get_count()[0] > _GARBAGE:
            gc.collect()
            if not self._frozen:
                self._frozen = True
                gc.freeze()  # modules and pages stay: no collection looks at them again


def _kept(before: Snapshot, split: list[str], now: list[Finding], regions: list[Region]) -> Iterable[Finding]:
    """The findings of the version before that are still to be shown, where they stand now: those that stand, with all
    that belongs to them, on lines nobody changed, and of which a part cannot be read at the moment."""
    moves = Moves(before.lines, split)
    found = {f.fingerprint for f in now}

    def unread(span: Span | None) -> bool:
        if span is None:
            return True
        around = [r for r in regions if r.first <= span.line and span.end_line <= r.last]
        return not around or not all(r.whole for r in around)

    path = before.text.path
    for finding in before.shown:
        span = moves.span(finding.span)
        if span is None or finding.code in (GAP, UNUSED) or finding.fingerprint in found:
            continue
        places = [moves.span(r.span) for r in finding.related if r.span.file == path]
        if unread(span) or any(map(unread, places)):
            related = tuple(
                r if r.span.file != path else r._replace(span=moves.span(r.span) or span) for r in finding.related
            )
            yield finding._replace(span=span, related=related, fix=None)  # its edits are of another text


def path_of(uri: str) -> str | None:
    """The file behind a URI; None for what is no file."""
    from pygls.uris import to_fs_path, uri_scheme

    if uri_scheme(uri) != "file":
        return None
    path = to_fs_path(uri)
    return None if path is None else os.path.abspath(path)
