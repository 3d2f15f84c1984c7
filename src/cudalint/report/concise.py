"""One line a finding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudalint.report import visible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudalint.report import Report


def render(report: Report) -> Iterator[str]:
    for f in report.findings:
        at = f"{report.relative(f.span.file)}:{f.span.line}:{f.span.column}"
        yield visible(f"{at}: {f.level} {f.code} {f.name}: {f.message}") + "\n"
