"""The documented array of objects (see :func:`cudalint.findings.to_json`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudalint.findings import to_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudalint.report import Report


def render(report: Report) -> Iterator[str]:
    import json

    yield json.dumps([to_json(f, report.relative) for f in report.findings], indent=2) + "\n"
