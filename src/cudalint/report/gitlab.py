"""GitLab's code quality report: an array of what its merge requests show."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudalint.report import visible, witness_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudalint.findings import Finding
    from cudalint.report import Report

_SEVERITIES = {"error": "critical", "warning": "major", "note": "info"}


def render(report: Report) -> Iterator[str]:
    import json

    issues = [
        {
            "description": visible(_description(f)),
            "check_name": f"{f.code} {f.name}",
            "fingerprint": f.fingerprint,
            "severity": _SEVERITIES[f.level],
            "location": {
                "path": visible(report.relative(f.span.file)),
                "lines": {"begin": f.span.line, "end": f.span.end_line},
            },
        }
        for f in report.findings
    ]
    yield json.dumps(issues, indent=2) + "\n"


def _description(f: Finding) -> str:
    """One line, which is all that a merge request shows."""
    return f"{f.message} ({witness_text(f.witness)})" if f.witness is not None else f.message
