"""The lines above kernels from which their findings can be confirmed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lsprotocol import types

from cudalint.engine import GAP, UNUSED
from cudalint.findings import plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cudalint.findings import Finding
    from cudalint.lsp.diagnostics import Verdict
    from cudalint.lsp.session import Region, Snapshot
    from cudalint.lsp.text import Lines

CONFIRM = "cudalint.confirm"


def lenses(
    snapshot: Snapshot, uri: str, lines: Lines, verdicts: Mapping[str, Verdict], *, busy: bool
) -> Iterator[types.CodeLens]:
    """One on each kernel with findings: its own, and those of launches that point at it. What belongs to no kernel of
    the text is on the function that it stands in."""
    found: dict[Region, list[Finding]] = {}
    for finding in snapshot.shown:
        if finding.code not in (GAP, UNUSED) and finding not in snapshot.kept:
            functions = snapshot.functions(finding)
            for region in [r for r in functions if r.kernel] or functions[:1]:
                found.setdefault(region, []).append(finding)
    for region, findings in found.items():
        known = [verdicts[f.fingerprint] for f in findings if f.fingerprint in verdicts]
        title = f"confirm {plural(len(findings), 'finding')}"
        if busy:
            title = "confirming …"
        elif known:
            confirmed = sum(v.line.startswith("Confirmed") for v in known)
            title = f"{confirmed} of {plural(len(findings), 'finding')} confirmed: run again"
        command = types.Command(title, CONFIRM, arguments=[uri, [f.fingerprint for f in findings]])
        at = lines.position(region.line, 1)
        yield types.CodeLens(types.Range(at, at), command)
