"""Repairs: the fixes of findings, put into the sources until none is left."""

from __future__ import annotations

import os
import re
from collections import Counter
from typing import TYPE_CHECKING

from cudalint.engine import UNUSED
from cudalint.frontend.source import decode, encode
from cudalint.lazy import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping

    from cudalint.engine import Result
    from cudalint.findings import Edit, Finding

    Check = Callable[[Mapping[str, bytes], Iterable[str] | None], Result]

_PASSES = 10
"""A repair may uncover another finding; more rounds than this mean that two repairs undo each other."""
_LINE_END = re.compile(r"\r\n?|\n")
_LINE = re.compile(r"[^\n]*\n|[^\n]+")


class Repaired(NamedTuple):
    """``texts`` are the new contents of files (bytes on disk, by absolute path), ``before`` the old ones; ``fixed``
    counts the findings that the repairs did away with; ``result`` is what is left, in the repaired files."""

    result: Result
    texts: dict[str, bytes]
    before: dict[str, bytes]
    fixed: int


def repair(result: Result, again: Check, overlay: Mapping[str, bytes], *, unsafe: bool) -> Repaired:
    """Repair what was found, in memory; only files that were checked are changed.

    ``again(texts, paths)`` checks once more with these contents: the files ``paths``, or all that were
    checked first (None). ``overlay`` are contents that stand for what is on disk. A repair after which something else
    stands in the file that has no repair is taken back.
    """
    checked = {target.path for target in result.targets}
    texts: dict[str, bytes] = {}
    before: dict[str, bytes] = {}
    refused: set[str] = set()
    fixed = 0
    left, seen = result, checked

    def with_fixes(chosen: Iterable[Finding]) -> dict[str, bytes]:
        new = {}
        for path, edits in _edits(chosen).items():
            if path not in before:
                before[path] = overlay[path] if path in overlay else _read(path)
            new[path] = edited(texts.get(path, before[path]), edits)
        return new

    def worse(new: Mapping[str, bytes], now: Result) -> set[str]:
        had = Counter((f.span.file, f.code) for f in left.findings)
        has = Counter((f.span.file, f.code) for f in now.findings if not _wanted(f, unsafe) and f.code != UNUSED)
        return {place[0] for place, n in has.items() if n > had[place] and place[0] in new and place[0] in seen}

    for _ in range(_PASSES):
        chosen = _chosen([f for f in left.findings if f.fingerprint not in refused], checked, unsafe)
        if not chosen:
            break
        new = with_fixes(chosen)
        now = again({**texts, **new}, sorted(new))
        if suspect := worse(new, now):
            for finding in chosen:
                alone = with_fixes([finding])
                if not suspect.isdisjoint(alone) and worse(alone, again({**texts, **alone}, sorted(alone))):
                    refused.add(finding.fingerprint)
            chosen = [f for f in chosen if f.fingerprint not in refused]
            if not chosen:
                continue
            new = with_fixes(chosen)
            now = again({**texts, **new}, sorted(new))
        fixed += _gone(left, now, new)
        texts.update(new)
        left, seen = now, set(new)
    before = {path: before[path] for path in texts}
    rest = again(texts, None) if texts else result
    fixed += _gone(result, rest, checked - texts.keys())
    if refused:  # offered no more: it would be taken back again
        rest = rest._replace(findings=[f._replace(fix=None) if f.fingerprint in refused else f for f in rest.findings])
    return Repaired(rest, texts, before, fixed)


def _gone(before: Result, after: Result, files: Container[str]) -> int:
    """How many findings in some files are not there any more: a repair may be that of several."""
    had, has = (Counter((f.span.file, f.code) for f in x.findings if f.span.file in files) for x in (before, after))
    return (had - has).total()


def fixable(findings: Iterable[Finding], *, unsafe: bool) -> int:
    """How many of the findings have a fix: a safe one, or any."""
    return sum(_wanted(f, unsafe) for f in findings)


def _wanted(finding: Finding, unsafe: bool) -> bool:
    return finding.fix is not None and (unsafe or finding.fix.applicability == "safe")


def _chosen(findings: Iterable[Finding], checked: set[str], unsafe: bool) -> list[Finding]:
    """Findings to repair at once: their whole fixes lie in checked files, and none touches another."""
    edits: dict[str, list[Edit]] = {}
    chosen = []
    for finding in findings:
        if finding.fix is None or not _wanted(finding, unsafe):
            continue
        new = [edit for edit in finding.fix.edits if edit not in edits.get(edit.span.file, ())]
        if all(e.span.file in checked and not any(map(e.touches, edits.get(e.span.file, ()))) for e in new):
            chosen.append(finding)
            for edit in new:
                edits.setdefault(edit.span.file, []).append(edit)
    return chosen


def _edits(chosen: Iterable[Finding]) -> dict[str, list[Edit]]:
    """The edits of some findings by file, those that several share once."""
    edits: dict[str, list[Edit]] = {}
    for finding in chosen:
        for edit in finding.fix.edits if finding.fix is not None else ():
            mine = edits.setdefault(edit.span.file, [])
            if edit not in mine:
                mine.append(edit)
    return edits


def edited(data: bytes, edits: Iterable[Edit]) -> bytes:
    """The content of a file with the edits made: encoding, byte order mark and line ends stay."""
    before = decode(data)
    text = before.raw.decode()
    ends = list(_LINE_END.finditer(text))
    starts = [0, *(end.end() for end in ends)]
    newline = ends[0][0] if ends else "\n"
    pieces: list[str] = []
    at = 0
    for edit in sorted(edits, key=lambda edit: edit.span):
        _, line, column, end_line, end_column, _ = edit.span
        pieces += (text[at : starts[line - 1] + column - 1], edit.text.replace("\n", newline))
        at = starts[end_line - 1] + end_column - 1
    return encode("".join(pieces) + text[at:], before)


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def unwritten(repaired: Repaired, found: Result, again: Check, paths: Container[str]) -> Repaired:
    """What was repaired of what was ``found`` if the repaired texts of some files do not stand on disk."""
    texts = {path: text for path, text in repaired.texts.items() if path not in paths}
    left = again(texts, None)
    everywhere = {target.path for target in found.targets}
    return Repaired(left, texts, {path: repaired.before[path] for path in texts}, _gone(found, left, everywhere))


def write(texts: Mapping[str, bytes]) -> dict[str, str]:
    """Put the contents on disk, each in one step, the file's mode kept; a line for each path that cannot be written."""
    problems = {}
    for path, data in texts.items():
        real = os.path.realpath(path)
        beside = f"{real}.{os.getpid()}.tmp"
        try:
            with open(real, "r+b"):  # asks for leave: a new file in its place would not
                pass
            with open(beside, "wb") as file:
                file.write(data)
            os.chmod(beside, os.stat(real).st_mode & 0o7777)
            os.replace(beside, real)
        except OSError as fault:
            if os.path.exists(beside):
                os.unlink(beside)
            problems[path] = f"{path}: cannot be written ({fault.strerror}): it is left as it was"
    return problems


def diff(repaired: Repaired, relative: Callable[[str], str]) -> Iterator[str]:
    """The changes as a unified diff that ``patch -p1`` and ``git apply`` take."""
    from difflib import unified_diff

    for path, new in sorted(repaired.texts.items()):
        old, now = (_LINE.findall(decode(data).raw.decode()) for data in (repaired.before[path], new))
        name = relative(path).lstrip("/")
        for line in unified_diff(old, now, f"a/{name}", f"b/{name}"):
            yield line if line.endswith("\n") else line + "\n\\ No newline at end of file\n"
