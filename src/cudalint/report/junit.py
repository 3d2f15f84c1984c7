"""JUnit's XML, as CI systems read it: a suite a file, a failed test a finding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudalint.report import visible, witness_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from xml.etree.ElementTree import Element

    from cudalint.findings import Finding
    from cudalint.report import Report


def render(report: Report) -> Iterator[str]:
    from xml.etree.ElementTree import Element, SubElement, indent, tostring

    by_file: dict[str, list[Finding]] = {}
    for f in report.findings:
        by_file.setdefault(visible(report.relative(f.span.file)), []).append(f)
    root = Element("testsuites", name="cudalint")
    for path, findings in by_file.items():
        suite = SubElement(root, "testsuite", name=path)
        for f in findings:
            name = f"{f.code} {f.name} at {f.span.line}:{f.span.column}"
            case = SubElement(suite, "testcase", classname=path, name=name, file=path, line=str(f.span.line))
            if f.level == "note":  # does not fail the run
                SubElement(case, "system-out").text = _details(f, path)
            else:
                SubElement(case, "failure", type=f.level, message=visible(f.message)).text = _details(f, path)
    if report.problems or not by_file:  # a report without a test is taken for a broken one
        suite = SubElement(root, "testsuite", name="cudalint")
        case = SubElement(suite, "testcase", classname="cudalint", name="run")
        for problem in report.problems[:1]:  # one a test
            error = SubElement(case, "error", type="problem", message=visible(problem))
            error.text = "\n".join(map(visible, report.problems))
    for suite in root:
        _count(suite)
    _count(root)
    indent(root)
    yield '<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(root, encoding="unicode") + "\n"


def _count(element: Element) -> None:
    for name, tag in (("tests", "testcase"), ("failures", "failure"), ("errors", "error")):
        element.set(name, str(sum(1 for _ in element.iter(tag))))


def _details(f: Finding, path: str) -> str:
    at = f"{path}:{f.span.line}:{f.span.column}"
    lines = [at, f.message, f.witness and f"witness: {witness_text(f.witness)}", f.help and f"help: {f.help}", f.url]
    return "\n".join(visible(line) for line in lines if line)
