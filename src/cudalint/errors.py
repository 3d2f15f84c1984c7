"""Errors meant for the user: one clear line, exit code 2."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class UsageError(Exception):
    """The command line, the configuration or a file named by it is wrong; the text says which and how."""


class Stopped(BaseException):
    """The work is to end, wherever it is. No fault: what guards against faults lets it through."""


def say(problem: object) -> None:
    """One line about a problem on stderr; line ends in names are written out."""
    print("cudalint:", str(problem).replace("\n", "\\n"), file=sys.stderr)


def refuse_endless(path: str, shown: str | None = None) -> None:
    """UsageError for a named pipe or a device, which may never begin or never end; not for nothing at all
    (``/dev/null``), nor for what a shell hands over (``<(…)``)."""
    if path == os.devnull or path.startswith("/dev/fd/"):
        return
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        raise UsageError(f"{shown or path}: is no ordinary file")


def closest(word: str, known: Iterable[object]) -> str:
    """``"; did you mean 'x'?"`` for the known word nearest to ``word``, or nothing."""
    from difflib import get_close_matches

    words = [str(w) for w in known]
    match = get_close_matches(word, words, n=1, cutoff=0.7)
    return f"; did you mean '{match[0]}'?" if match else ""
