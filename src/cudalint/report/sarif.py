"""SARIF 2.1.0, as code scanning services read it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudalint import __version__
from cudalint.findings import evidence_json
from cudalint.report import witness_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudalint.findings import Finding, Fix, Span
    from cudalint.report import Report
    from cudalint.rules.pages import Page

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def render(report: Report) -> Iterator[str]:
    import json

    from cudalint.rules.pages import pages

    index = {code: i for i, code in enumerate(pages())}
    run = {
        "tool": {
            "driver": {
                "name": "cudalint",
                "semanticVersion": __version__,
                "version": __version__,
                "informationUri": "https://github.com/cudalint/cudalint",
                "rules": [_rule(page) for page in pages().values()],
            }
        },
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {"SRCROOT": {"uri": _file_uri(report.cwd) + "/"}},
        "invocations": [
            {
                "executionSuccessful": not report.problems,
                "toolExecutionNotifications": [
                    {"level": "error", "message": {"text": problem}} for problem in report.problems
                ],
            }
        ],
        "results": [_result(f, index[f.code], report) for f in report.findings],
    }
    yield json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _rule(page: Page) -> dict[str, Any]:
    return {
        "id": page.code,
        "name": page.name,
        "shortDescription": {"text": page.summary},
        "fullDescription": {"text": page.summary},
        "help": {"text": page.text, "markdown": page.text},
        "helpUri": page.url,
        "defaultConfiguration": {"enabled": page.default, "level": page.level},
        "properties": {"tags": ["cuda", page.group], "fixable": page.fixable},
    }


def _result(f: Finding, index: int, report: Report) -> dict[str, Any]:
    lines = [f.message, f.witness and f"Witness: {witness_text(f.witness)}", f.help and f"Help: {f.help}"]
    location: dict[str, Any] = {"physicalLocation": _physical(f.span, report)}
    if f.function:
        location["logicalLocations"] = [{"fullyQualifiedName": f.function, "kind": "function"}]
    result: dict[str, Any] = {
        "ruleId": f.code,
        "ruleIndex": index,
        "level": f.level,
        "message": {"text": "\n".join(f"{line}." for line in lines if line)},
        "locations": [location],
        "partialFingerprints": {"cudalint/v1": f.fingerprint},
        "properties": {"form": f.form, "evidence": evidence_json(f.evidence)},
    }
    if f.related:
        result["relatedLocations"] = [
            {"id": i, "physicalLocation": _physical(r.span, report), "message": {"text": r.message}}
            for i, r in enumerate(f.related)
        ]
    if f.fix:
        result["fixes"] = [_fix(f.fix, report)]
    return result


def _fix(fix: Fix, report: Report) -> dict[str, Any]:
    files: dict[str, list[dict[str, Any]]] = {}
    for edit in fix.edits:
        change = {"deletedRegion": _region(edit.span), "insertedContent": {"text": edit.text}}
        files.setdefault(edit.span.file, []).append(change)
    changes = [{"artifactLocation": _artifact(path, report), "replacements": each} for path, each in files.items()]
    return {"description": {"text": f"{fix.title} ({fix.applicability})"}, "artifactChanges": changes}


def _physical(span: Span, report: Report) -> dict[str, Any]:
    return {"artifactLocation": _artifact(span.file, report), "region": _region(span)}


def _region(span: Span) -> dict[str, int]:
    return {
        "startLine": span.line, "startColumn": span.column, "endLine": span.end_line, "endColumn": span.end_column,
    }  # fmt: skip


def _artifact(path: str, report: Report) -> dict[str, str]:
    inside = report.relative(path)
    if inside == path:
        return {"uri": _file_uri(path)}
    from urllib.parse import quote

    return {"uri": quote(inside, errors="surrogateescape"), "uriBaseId": "SRCROOT"}


def _file_uri(path: str) -> str:
    from pathlib import PurePath

    return PurePath(path).as_uri()
