"""What is said of the place the pointer is at: a launch, a kernel, a finding."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cudalint.findings import digits
from cudalint.report import visible, witness_text
from cudalint.rules.pages import pages

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cudalint.contracts.command import Contract, Seen
    from cudalint.contracts.launches import Kept
    from cudalint.findings import Finding, Span
    from cudalint.lsp.diagnostics import Verdict
    from cudalint.lsp.session import Snapshot

_WORD = re.compile(r"[A-Za-z_]\w*")
_MARK = {True: "✓", False: "✗", None: "?"}


def hover(
    snapshot: Snapshot, contracts: Sequence[Contract], verdicts: Mapping[str, Verdict], line: int, column: int
) -> tuple[str, Span | None] | None:
    """Markdown for a place and the span that it is about; None where there is nothing to say."""
    path = snapshot.text.path
    parts: list[str] = []
    about: Span | None = None
    for contract in contracts:
        launch = next((x for x in contract.launches if _holds(x.span, path, line, column)), None)
        if launch is not None:
            parts.append("\n".join(_launch(contract, launch)))
            about = about or launch.span
        elif _holds(contract.span, path, line, column) or _names(snapshot, contract, line, column):
            parts.append("\n".join(_contract(contract, path)))
    for finding in snapshot.shown:
        if _holds(finding.span, path, line, column):
            parts.append("\n".join(_finding(finding, verdicts.get(finding.fingerprint))))
            about = about or finding.span
    text = "\n\n---\n\n".join(dict.fromkeys(parts))
    return (text, about) if text else None


def _holds(span: Span, path: str, line: int, column: int) -> bool:
    return span.file == path and (span.line, span.column) <= (line, column) <= (span.end_line, span.end_column)


def _names(snapshot: Snapshot, contract: Contract, line: int, column: int) -> bool:
    """Is the word at the place the kernel's name?"""
    text = snapshot.lines[line - 1] if line <= len(snapshot.lines) else ""
    word = next((w[0] for w in _WORD.finditer(text) if w.start() < column <= w.end() + 1), None)
    return word == contract.kernel.rpartition("::")[2]


def _contract(contract: Contract, path: str) -> Iterator[str]:
    yield f"**kernel `{contract.kernel}`** asks of its launches:\n"
    for each in contract.requires:
        yield f"- `{each.text}`" + (" (stated)" if each.source == "stated" else "")
    if not contract.requires:
        yield "- nothing"
    yield ""
    for launch in contract.launches:
        where = f"line {launch.span.told_line}"
        if launch.span.file != path:
            where = f"{launch.span.file.replace(chr(92), '/').rpartition('/')[2]}, {where}"
        broken = [_kept(each) for each in launch.kept if each.holds is False]
        unknown = [f"cannot be told: `{each.requirement.text}`" for each in launch.kept if each.holds is None]
        yield f"- launched at {where}: {'; '.join(broken + unknown) or 'keeps to it'}"
    if not contract.launches:
        yield "No launch is visible."


def _launch(contract: Contract, launch: Seen) -> Iterator[str]:
    yield f"**launch of `{contract.kernel}`**\n"
    yield f"Provides: grid {_code(launch.grid)}, block {_code(launch.block)}\n"
    yield "Required:" if launch.kept else "Required: nothing"
    for each in launch.kept:
        yield f"- {_MARK[each.holds]} {_kept(each)}"


def _code(text: str | None) -> str:
    return "that cannot be told" if text is None else f"`{text}`"


def _kept(each: Kept) -> str:
    words = {True: "kept", False: "broken", None: "cannot be told"}[each.holds]
    sizes = ", ".join(f"{name} = {digits(value)}" for name, value in each.sizes.items())
    return f"`{each.requirement.text}`: {words}{f' at {sizes}' if sizes else ''}"


def _finding(finding: Finding, verdict: Verdict | None) -> Iterator[str]:
    yield f"**{finding.code} {finding.name}**: {visible(finding.message)}\n"
    if finding.witness is not None:
        yield f"Witness: {visible(witness_text(finding.witness))}\n"
    if verdict is not None:
        yield f"{verdict.line}\n"
        if verdict.table.strip():
            yield f"```text\n{verdict.table.rstrip()}\n```\n"
    page = pages()[finding.code]
    yield f"{page.text.rstrip()}\n\n[{page.code} {page.name}]({page.url})"
