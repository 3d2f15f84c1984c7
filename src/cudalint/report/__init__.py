"""The reports: one module a format, each with ``render(report) -> Iterator[str]`` (pieces of text)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from cudalint.findings import digits
from cudalint.lazy import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cudalint.findings import Finding, Span, Witness

FORMATS = ("full", "concise", "json", "sarif", "github", "gitlab", "junit")


class Report(NamedTuple):
    """What a report is made of. ``source`` gives a file's text as UTF-8; ``unread`` files are not among ``files``."""

    findings: Sequence[Finding]
    problems: Sequence[str]
    source: Callable[[str], bytes]
    files: int
    cwd: str
    colour: bool = False
    unread: int = 0

    def relative(self, path: str) -> str:
        """The printed path: relative to the working directory with ``/``, absolute when outside it."""
        inside = path
        prefix = self.cwd if self.cwd.endswith(os.sep) else self.cwd + os.sep
        if path.startswith(prefix):
            inside = path[len(prefix) :]
        return inside.replace(os.sep, "/")

    def place(self, span: Span, *, column: bool = True) -> str:
        """Where a region begins, for people: ``k.cu:12:5``; in a notebook by the cell, ``n.ipynb:cell 3:12:5``."""
        begin = span.cell or span
        head = self.relative(span.file) + (f":cell {span.cell.number}" if span.cell is not None else "")
        return f"{head}:{begin.line}" + (f":{begin.column}" if column else "")


def render(name: str, report: Report) -> Iterator[str]:
    """The report in one of FORMATS."""
    from importlib import import_module

    pieces: Iterator[str] = import_module(f"cudalint.report.{name}").render(report)
    return pieces


def visible(text: str) -> str:
    """``text`` on one line and without what a terminal would obey: source text and file names are not ours."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " if c in "\t\n\r" else "\ufffd" for c in text)


def witness_text(witness: Witness) -> str:
    """The witness on one line: sizes, launch, thread, what goes wrong."""
    parts = [f"{name} = {digits(size)}" for name, size in witness.sizes.items()]
    if witness.grid is not None:
        parts.append(f"grid {_triple(witness.grid)}")
    if witness.block is not None:
        parts.append(f"block {_triple(witness.block)}")
    if witness.thread is not None:
        parts.append(f"thread {_triple(witness.thread[1])} of block {_triple(witness.thread[0])}")
    case = ", ".join(parts)
    values = "; ".join(
        f"{name} {digits(value) if isinstance(value, int) else value}" for name, value in witness.values.items()
    )
    return ": ".join(part for part in (case, values) if part)


def _triple(triple: tuple[int, int, int]) -> str:
    return f"({triple[0]}, {triple[1]}, {triple[2]})"
