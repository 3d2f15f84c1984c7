"""Baselines: the findings of a day, so that only new ones are reported."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from cudalint.errors import UsageError, refuse_endless
from cudalint.frontend.source import HOSTS
from cudalint.project import SOURCES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudalint.findings import Finding

_VERSION = 1


def read(path: str) -> frozenset[str]:
    """The fingerprints in a baseline; UsageError if it is none."""
    import json

    refuse_endless(path)
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
        if data["version"] != _VERSION:
            raise UsageError(f"{path}: a baseline of version {data['version']}; this cudalint reads {_VERSION}")
        return frozenset(entry["fingerprint"] for entry in data["findings"])
    except FileNotFoundError:
        raise UsageError(f"{path}: no such baseline; --write-baseline makes one") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise UsageError(f"{path}: not a baseline that cudalint wrote") from None


def write(path: str, findings: Iterable[Finding], marks: Iterable[str]) -> None:
    """Write what the findings are known by. No line numbers: an edit elsewhere leaves the file as it is. Paths
    begin at the baseline."""
    import json

    entries = [
        {"fingerprint": mark, "code": f.code, "file": _beside(path, f.span.file), "function": f.function}
        for f, mark in zip(findings, marks, strict=True)
    ]
    write_text(path, json.dumps({"version": _VERSION, "findings": entries}, indent=1) + "\n")


def _beside(path: str, file: str) -> str:
    folder = os.path.dirname(os.path.realpath(path))
    return os.path.relpath(os.path.realpath(file), folder).replace(os.sep, "/")


def write_text(path: str, text: str, errors: str = "backslashreplace") -> None:
    """Replace a file in one step; UsageError if that cannot be done, or the file is a source. ``errors``: what is
    written for bytes of a name that are no UTF-8."""
    path = os.path.realpath(path)
    if path.lower().endswith((*SOURCES, *HOSTS)) and os.path.exists(path):
        raise UsageError(f"{path}: is a source file and is not overwritten; name another file for the output")
    in_place = os.path.exists(path) and not os.path.isfile(path)  # /dev/stdout, a named pipe
    beside = path if in_place else f"{path}.{os.getpid()}.tmp"
    try:
        with open(beside, "w", encoding="utf-8", errors=errors, newline="\n") as file:
            file.write(text)
        if not in_place:
            os.replace(beside, path)
    except OSError as error:
        if not in_place and os.path.exists(beside):
            os.unlink(beside)
        raise UsageError(f"{path}: cannot be written ({error.strerror})") from None
