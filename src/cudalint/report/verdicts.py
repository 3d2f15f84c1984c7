"""The report of ``cudalint confirm``: a verdict a finding, and a table of its runs, sizes down and launches across."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudalint.findings import NOTHING, digits, plural
from cudalint.lazy import NamedTuple
from cudalint.report import visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cudalint.findings import Case, Evidence, Finding, Prediction
    from cudalint.report import Report

_COLOURS = {"confirmed": "1;31", "not-reproduced": "1;32", "inconclusive": "1;33", "not-run": "1;36"}
_WORDS = {"confirmed": "confirmed", "not-reproduced": "not reproduced", "inconclusive": "inconclusive",
          "not-run": "not run"}  # fmt: skip


#: What is counted where that is no element of an array.
_COUNTED = {"divergent-barrier": "thread", "absent-lane": "lane", "misaligned": "byte", "wrap": "value"}


class Verdict(NamedTuple):
    """What is printed: ``title`` says of what, ``columns`` are the runs, one group of cases a launch; ``asked`` tells
    that it is of a kernel that was put through an experiment, finding or not."""

    title: str
    evidence: Evidence
    columns: Sequence[tuple[str, Sequence[Case]]]
    asked: bool = False


def render(report: Report) -> Iterator[str]:
    """The verdicts of a report's findings, and how many there are of each."""
    verdicts = []
    for f in report.findings:
        at = report.place(f.span)
        verdicts.append(Verdict(f"{at}: {f.code} {f.name}{_in(f)}", f.evidence, [("", f.evidence.cases)]))
    yield from tables(verdicts, colour=report.colour)


def _in(finding: Finding) -> str:
    return f" in {finding.function}" if finding.function else ""


def tables(verdicts: Sequence[Verdict], *, colour: bool = False) -> Iterator[str]:
    for verdict in verdicts:
        yield from _verdict(verdict, colour)
    if verdicts:
        counts = [(word, sum(v.evidence.verdict == word for v in verdicts)) for word in _WORDS]
        yield ", ".join(f"{digits(n)} {_WORDS[word]}" for word, n in counts if n) + "\n"
    else:
        yield f"{plural(0, 'finding')} to confirm\n"


def _verdict(verdict: Verdict, colour: bool) -> Iterator[str]:
    evidence = verdict.evidence
    word = _WORDS[evidence.verdict]
    shown = f"\x1b[{_COLOURS[evidence.verdict]}m{word}\x1b[0m" if colour else word
    at = f" at {_sizes(evidence.sizes)}" if evidence.sizes and evidence.verdict == "confirmed" else ""
    reason = f"{at}: {evidence.reason}" if evidence.reason else at
    yield f"{visible(verdict.title)}: {shown}{visible(reason)}\n"
    if evidence.prediction is not None and evidence.verdict == "confirmed":
        yield from _predicted(evidence, evidence.prediction, asked=verdict.asked)
    if evidence.wrong:
        yield f"  wrong {_counted(evidence.symptom)}s: {_wrong(evidence.wrong)}\n"
    yield from _table(verdict.columns)
    yield from _notes(verdict)
    yield "\n"


def _sizes(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name} = {digits(value)}" for name, value in sizes.items())


def _predicted(evidence: Evidence, prediction: Prediction, *, asked: bool) -> Iterator[str]:
    if prediction.words == NOTHING:
        if asked:
            yield "  not predicted: check says nothing of it\n"
        return
    words = f"{prediction.words} at {_sizes(prediction.sizes)}" if prediction.sizes else prediction.words
    yield f"  predicted {visible(words)}: {held(evidence, prediction)}\n"


def held(evidence: Evidence, prediction: Prediction) -> str:
    """Whether a prediction held; where it did not, what came of that run."""
    if prediction.held is not False:
        return "held" if prediction.held else "not run"
    sizes = prediction.sizes.items()
    results = [c.result for c in evidence.cases if sizes <= c.sizes.items() and c.result != "inconclusive"]
    if all(x == "ok" for x in results):
        return "did not hold, nothing is wrong in that run"
    return "did not hold, another element, thread or access is wrong in that run"


def _counted(symptom: str | None) -> str:
    """What the wrong indices of a symptom number."""
    return _COUNTED.get(symptom or "", "element")


def _cell(case: Case) -> str:
    """The result of a run, which says whose number it has where that is no element's."""
    who = _counted(case.symptom)
    return case.result.replace("@", f"@{who} ") if who in ("thread", "lane") else case.result


def _wrong(places: Sequence[Mapping[str, Any]]) -> str:
    """Each wrong index once, with those who should have handled it, or did what was wrong."""
    found: dict[int, dict[str, None]] = {}
    for each in places:
        who = found.setdefault(each["index"], {})
        if each["block"] is not None:
            later = f", after {plural(each['pass'], 'turn')} of the grid" if each["pass"] else ""
            who.setdefault(f"block {_short(each['block'])}, thread {_short(each['thread'])}{later}")
    return "; ".join(f"{index} ({'; '.join(who)})" if who else str(index) for index, who in found.items())


def _notes(verdict: Verdict) -> Iterator[str]:
    """Why a run came to nothing, or what was wrong in it where no index says so, unless the first line does."""
    found: dict[str, dict[str, None]] = {}
    for _, cases in verdict.columns:
        for case in cases:
            if case.note and case.note != verdict.evidence.reason and case.result in ("inconclusive", "wrong", "hang"):
                found.setdefault(case.note, {}).setdefault(_row(case))
    for note, rows in found.items():
        yield f"  {'; '.join(rows)}: {visible(note)}\n"


def _row(case: Case) -> str:
    return ", ".join(f"{name} = {value}" for name, value in case.sizes.items()) or "no sizes"


def _short(triple: Sequence[int]) -> str:
    return str(triple[0]) if tuple(triple[1:]) == (0, 0) else str(tuple(triple))


def _table(groups: Sequence[tuple[str, Sequence[Case]]]) -> Iterator[str]:
    """Sizes down, launches across."""
    rows: dict[str, dict[str, str]] = {}
    columns: dict[str, None] = {}
    for title, cases in groups:
        for case in cases:
            size = _row(case)
            column = f"{title}: {case.launch}" if title else case.launch
            columns.setdefault(column)
            rows.setdefault(size, {})[column] = _cell(case)
    if not rows:
        return
    table = [["", *columns], *([size, *(cells.get(c, "") for c in columns)] for size, cells in rows.items())]
    widths = [max(len(line[k]) for line in table) for k in range(len(columns) + 1)]
    for line in table:
        yield "  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() + "\n"


__all__ = ["Verdict", "render", "tables"]
