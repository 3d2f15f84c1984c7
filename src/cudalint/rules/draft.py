"""What a rule yields: a finding before it is placed in the user's file, named and numbered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudalint.lazy import NamedTuple

if TYPE_CHECKING:
    from cudalint.findings import Level, Witness
    from cudalint.frontend.source import SourceFile
    from cudalint.ir.nodes import Function


class EditDraft(NamedTuple):
    """Replace ``file.text[start:end]`` by ``text``."""

    file: SourceFile
    start: int
    end: int
    text: str


class FixDraft(NamedTuple):
    """A repair: ``safe`` keeps what the program computes wherever it was right."""

    safe: bool
    title: str
    edits: tuple[EditDraft, ...]


class Draft(NamedTuple):
    """One defect at ``file.text[start:end]``; name, URL and usual level come from the rule's page."""

    code: str
    function: Function | None
    file: SourceFile
    start: int
    end: int
    message: str
    help: str
    witness: Witness | None = None
    related: tuple[tuple[SourceFile, int, int, str], ...] = ()
    """Other places that belong to the finding: (file, start, end in its text, one line that says why)."""
    level: Level | None = None
    """Overrides the page's level."""
    form: str | None = None
    """``pedantic``: the opt-in form of a default rule."""
    fix: FixDraft | None = None
