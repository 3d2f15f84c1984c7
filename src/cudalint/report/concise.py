"""One line a finding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudalint.report import visible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudalint.report import Report


def render(report: Report) -> Iterator[str]:
    for f in report.findings:
        yield visible(f"{report.place(f.span)}: {f.level} {f.code} {f.name}: {f.message}") + "\n"
