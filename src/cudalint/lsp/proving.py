"""Experiments in a process of their own: they take seconds, and can be given up.

The process reads one JSON object, ``path``, ``text``, ``texts``, ``folder`` and the ``fingerprints`` of the findings to
confirm; it writes JSON lines: ``at`` is what it is doing, ``answer`` the verdict on one finding.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import TYPE_CHECKING, Any

from cudalint.lazy import NamedTuple

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

    from cudalint.confirm.runner import Proof
    from cudalint.findings import Finding
    from cudalint.lsp.session import Text


class Proving:
    """One run of the process."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self.given_up = False

    async def answers(
        self, text: Text, texts: Mapping[str, bytes], fingerprints: Iterable[str]
    ) -> AsyncIterator[dict[str, Any]]:
        """What it says, as it says it."""
        asked = {
            "path": text.path, "text": text.text, "folder": text.folder, "fingerprints": list(fingerprints),
            "texts": {path: data.decode("utf-8", "replace") for path, data in texts.items()},
        }  # fmt: skip
        pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        process = self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", __name__, stdin=pipe, stdout=pipe, stderr=null, limit=1 << 24
        )
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            if self.given_up:
                process.kill()
            process.stdin.write(json.dumps(asked).encode())
            process.stdin.close()
            async for line in process.stdout:
                yield json.loads(line)
        except (BrokenPipeError, ConnectionResetError):
            pass  # it was given up while it was asked
        finally:
            self.give_up()
            await process.wait()

    def give_up(self) -> None:
        self.given_up = True
        if self._process is not None and self._process.returncode is None:
            self._process.kill()


def _line(finding: Finding) -> str:
    """The verdict on one line: the word, the sizes at which it showed, the reason."""
    evidence = finding.evidence
    sizes = ", ".join(f"{name} = {value}" for name, value in (evidence.sizes or {}).items())
    at = f" at {sizes}" if sizes and evidence.verdict == "confirmed" else ""
    reason = f": {evidence.reason}" if evidence.reason else ""
    return f"{evidence.verdict.replace('-', ' ').capitalize()} by the simulator{at}{reason}"


class _Said(NamedTuple):
    """Where the process writes to."""

    out: Any

    def say(self, **what: object) -> None:
        self.out.write(json.dumps(what) + "\n")
        self.out.flush()


def main() -> None:
    """Confirm some findings of one text."""
    from cudalint import engine
    from cudalint.confirm.runner import Limits, confirm
    from cudalint.report.verdicts import Verdict, tables

    asked = json.load(sys.stdin)
    said = _Said(os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8"))
    sys.stdout = sys.stderr  # what anything else prints is no answer
    texts = {path: text.encode() for path, text in asked["texts"].items()}
    data = asked["text"].encode("utf-8", "replace")
    run = engine.Options(stdin=(asked["path"], data), texts=texts, folder=asked["folder"])
    result = engine.check([], run)
    chosen = [f for f in result.findings if f.fingerprint in asked["fingerprints"]]
    for number, finding in enumerate(chosen):
        place = f"{finding.code} at line {finding.span.line}"
        said.say(at=place, percent=100 * number // len(chosen))
        found: dict[Any, Proof] = confirm(
            result._replace(findings=[finding]), result.worker, result.targets, Limits(), lambda _: None
        )
        proof = found[finding.code, finding.span]
        finding = finding._replace(evidence=proof.evidence)
        shown = tables([Verdict(place, proof.evidence, [("", proof.evidence.cases)])])
        said.say(answer={"fingerprint": finding.fingerprint, "verdict": proof.evidence.verdict, "line": _line(finding),
                         "table": "".join(shown).rpartition("\n\n")[0]})  # fmt: skip


if __name__ == "__main__":
    main()
