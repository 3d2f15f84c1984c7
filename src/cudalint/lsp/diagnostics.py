"""Findings as an editor shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lsprotocol import types
from pygls.uris import from_fs_path

from cudalint import engine
from cudalint.lazy import NamedTuple
from cudalint.report import visible, witness_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cudalint.findings import Finding, Related
    from cudalint.lsp.text import Lines

_SEVERITY = {
    "error": types.DiagnosticSeverity.Error,
    "warning": types.DiagnosticSeverity.Warning,
    "note": types.DiagnosticSeverity.Information,
}


class Verdict(NamedTuple):
    """What an experiment made of a finding: one line, and the table of its runs. ``ground`` is the text it is about."""

    line: str
    table: str
    ground: str


def uri_of(path: str) -> str:
    return from_fs_path(path) or ""


def diagnostic(finding: Finding, lines_of: Callable[[str], Lines], verdict: Verdict | None) -> types.Diagnostic:
    """The finding with its witness, its advice and the verdict on it. ``lines_of`` gives the lines of a file."""
    message = [finding.message]
    if finding.witness is not None:
        message.append(f"Witness: {visible(witness_text(finding.witness))}")
    if verdict is not None:
        message.append(verdict.line)
    if finding.help:
        message.append(f"Help: {finding.help}")
    return types.Diagnostic(
        range=lines_of(finding.span.file).range(finding.span),
        severity=_SEVERITY[finding.level],
        code=finding.code,
        code_description=types.CodeDescription(finding.url),
        source="cudalint",
        message="\n".join(message),
        tags=[types.DiagnosticTag.Unnecessary] if finding.code == engine.UNUSED else None,
        related_information=[_related(each, lines_of) for each in finding.related] or None,
        data={"fingerprint": finding.fingerprint},
    )


def _related(related: Related, lines_of: Callable[[str], Lines]) -> types.DiagnosticRelatedInformation:
    span = related.span
    return types.DiagnosticRelatedInformation(
        types.Location(uri_of(span.file), lines_of(span.file).range(span)), related.message
    )


def verdict_of(answer: Mapping[str, Any], ground: str) -> Verdict:
    """The verdict that an experiment's process told."""
    return Verdict(answer["line"], answer["table"], ground)
