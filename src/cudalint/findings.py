"""The finding: what a rule says, and the contract of ``--output-format json``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from cudalint.lazy import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

Level = Literal["error", "warning", "note"]


def digits(value: int) -> str:
    """An integer for people: thousands are separated from 10,000 on."""
    return str(value) if abs(value) < 10_000 else f"{value:,}"


def plural(value: int, noun: str) -> str:
    """``1 element``, ``2 elements``."""
    return f"{digits(value)} {noun}" + ("" if value == 1 else "s")


class Cell(NamedTuple):
    """A place in a notebook as people know it: the cell's number among all cells, from 1 on, and a place in it."""

    number: int
    line: int
    column: int


class Inside(NamedTuple):
    """A region of a CUDA text that a notebook or a Python file holds; ``file`` is the text's own path."""

    file: str
    line: int
    column: int
    end_line: int
    end_column: int
    cell: Cell | None


class Span(NamedTuple):
    """A region of a file as the user sees it: 1-based lines and columns in code points, end exclusive."""

    file: str
    """Absolute path."""
    line: int
    column: int
    end_line: int
    end_column: int
    inside: Inside | None = None

    @property
    def text(self) -> Span | Inside:
        """The region in the CUDA text: that of the file itself, but for a notebook or a Python file."""
        return self if self.inside is None else self.inside

    @property
    def cell(self) -> Cell | None:
        return None if self.inside is None else self.inside.cell

    @property
    def told_line(self) -> int:
        """The line by which a message tells the place: in a notebook that of the cell."""
        return self.line if self.cell is None else self.cell.line

    @property
    def place(self) -> Span:
        """The region of the file alone."""
        return self if self.inside is None else self._replace(inside=None)


class Related(NamedTuple):
    """Another place that belongs to the finding, with one line that says why."""

    span: Span
    message: str


class Witness(NamedTuple):
    """The smallest case at which the fault shows, computed from the source.

    ``sizes`` maps the runtime sizes' names to values; ``grid`` and ``block`` are the launch (x, y, z), of which a case
    beside the visible launches has no grid;
    ``thread`` is (blockIdx, threadIdx), each (x, y, z); ``values`` holds what goes wrong, in words and
    numbers (``{"first element without a thread": 256}``).
    """

    sizes: Mapping[str, int]
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    thread: tuple[tuple[int, int, int], tuple[int, int, int]] | None = None
    values: Mapping[str, int | str] = {}


class Edit(NamedTuple):
    """Replace ``span`` by ``text``."""

    span: Span
    text: str

    def touches(self, other: Edit) -> bool:
        """Do the two, of one file, overlap or meet?"""
        return self.span[1:3] <= other.span[3:5] and other.span[1:3] <= self.span[3:5]


class Fix(NamedTuple):
    applicability: Literal["safe", "unsafe"]
    title: str
    edits: tuple[Edit, ...]


#: What is predicted of a kernel that the rule says nothing of.
NOTHING = "no fault"


class Prediction(NamedTuple):
    """What was said before anything ran: in ``words``, at ``sizes``, with the ``first`` wrong index if it was named;
    ``held`` tells whether the run showed just that; None where that case was not run."""

    words: str
    sizes: Mapping[str, int]
    first: int | None
    held: bool | None


class Case(NamedTuple):
    """One run of an experiment: ``result`` is ok, wrong@index, refused, hang, inconclusive or not launched."""

    sizes: Mapping[str, int]
    launch: str
    grid: tuple[int, int, int] | None
    block: tuple[int, int, int] | None
    result: str
    note: str | None
    symptom: str | None = None
    """What is wrong in it: part of the text report, not of the JSON."""


class Evidence(NamedTuple):
    """How well a finding is proved: ``grade`` static, simulated or measured; ``verdict`` as in the README.

    After an experiment: the case that was predicted where it failed so, else the smallest failing one (``sizes``,
    ``grid``, ``block``), its ``symptom``, the ``first_wrong`` index and up to ten ``wrong`` ones, the ``prediction``,
    and all ``cases`` that were run.
    """

    grade: Literal["static", "simulated", "measured"] = "static"
    verdict: Literal["not-run", "confirmed", "not-reproduced", "inconclusive"] = "not-run"
    reason: str | None = None
    sizes: Mapping[str, int] | None = None
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    symptom: str | None = None
    first_wrong: int | None = None
    wrong: tuple[Mapping[str, Any], ...] = ()
    prediction: Prediction | None = None
    cases: tuple[Case, ...] = ()


class Finding(NamedTuple):
    """One defect at one place. See :func:`to_json` for the published form."""

    code: str
    name: str
    level: Level
    form: str | None
    message: str
    url: str
    span: Span
    function: str | None
    """Qualified name of the function the finding stands in; None for a finding about the file."""
    related: tuple[Related, ...]
    witness: Witness | None
    fix: Fix | None
    evidence: Evidence
    fingerprint: str
    help: str
    """What to do about it, one sentence; part of the full report, not of the JSON."""


def _span_json(span: Span, relative: Any) -> dict[str, Any]:
    return {
        "file": relative(span.file), "line": span.line, "column": span.column,
        "end_line": span.end_line, "end_column": span.end_column,
        **({} if span.cell is None else {"cell": span.cell._asdict()}),
    }  # fmt: skip


def evidence_json(evidence: Evidence) -> dict[str, Any]:
    """The evidence as documented: three fields before ``confirm``, all of them after it."""
    shown = {"grade": evidence.grade, "verdict": evidence.verdict, "reason": evidence.reason}
    if evidence.grade == "static":
        return shown
    return {
        **shown, "sizes": evidence.sizes and dict(evidence.sizes),
        "grid": evidence.grid and list(evidence.grid), "block": evidence.block and list(evidence.block),
        "symptom": evidence.symptom, "first_wrong": evidence.first_wrong, "wrong": [dict(w) for w in evidence.wrong],
        "prediction": evidence.prediction and evidence.prediction._asdict(),
        "cases": [{k: v for k, v in case._asdict().items() if k != "symptom"} for case in evidence.cases],
    }  # fmt: skip


def to_json(finding: Finding, relative: Any) -> dict[str, Any]:
    """The finding as the documented JSON object; ``relative`` turns an absolute path into the printed one."""
    witness, fix = finding.witness, finding.fix
    return {
        "code": finding.code, "name": finding.name, "level": finding.level, "form": finding.form,
        "message": finding.message, "url": finding.url,
        **_span_json(finding.span, relative), "function": finding.function,
        "related": [{**_span_json(r.span, relative), "message": r.message} for r in finding.related],
        "witness": witness and {
            "sizes": dict(witness.sizes),
            "grid": witness.grid and list(witness.grid), "block": witness.block and list(witness.block),
            "thread": witness.thread and {"block": list(witness.thread[0]), "thread": list(witness.thread[1])},
            "values": dict(witness.values),
        },
        "fix": fix and {
            "applicability": fix.applicability, "title": fix.title,
            "edits": [{**_span_json(e.span, relative), "text": e.text} for e in fix.edits],
        },
        "evidence": evidence_json(finding.evidence), "fingerprint": finding.fingerprint,
    }  # fmt: skip
