"""GitHub's workflow commands: an annotation a finding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudalint.report import witness_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudalint.report import Report

_COMMANDS = {"error": "error", "warning": "warning", "note": "notice"}


def render(report: Report) -> Iterator[str]:
    for f in report.findings:
        span = f.span
        fields = {"file": report.relative(span.file), "line": span.line, "endLine": span.end_line}
        if span.line == span.end_line:  # columns are refused where the lines differ
            fields |= {"col": span.column, "endColumn": span.end_column}
        fields["title"] = f"{f.code} {f.name}"
        properties = ",".join(f"{key}={_property(str(value))}" for key, value in fields.items())
        lines = [f.message, f.witness and f"witness: {witness_text(f.witness)}", f.help and f"help: {f.help}", f.url]
        yield f"::{_COMMANDS[f.level]} {properties}::{_data(chr(10).join(line for line in lines if line))}\n"


def _data(text: str) -> str:
    text = "".join(c if c.isprintable() or c in "\r\n" else "\ufffd" for c in text)
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
