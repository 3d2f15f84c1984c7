"""``compile_commands.json``: of each command only what says how to read the file.

That is ``-I``, ``-isystem``, ``-D``, ``-std`` and ``-include``, as far as they stay inside the project.
Nothing is ever run.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from cudalint.errors import UsageError, refuse_endless
from cudalint.lazy import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

_JOINED = ("-I", "-D", "-isystem", "-include", "-std=", "--std=")


class Flags(NamedTuple):
    """How one file is compiled. Paths are absolute; ``standard`` is like ``c++17``."""

    include_paths: tuple[str, ...] = ()
    defines: tuple[tuple[str, str], ...] = ()
    includes: tuple[str, ...] = ()
    standard: str | None = None

    def inside(self, root: str) -> Flags:
        """Without what leaves the project."""
        under = root.rstrip(os.sep) + os.sep
        return self._replace(
            include_paths=tuple(p for p in self.include_paths if (p + os.sep).startswith(under)),
            includes=tuple(p for p in self.includes if p.startswith(under)),
        )


def read(path: str) -> dict[str, Flags]:
    """The flags of each file, by absolute path; UsageError if it is no such database."""
    import json

    refuse_endless(path)
    try:
        with open(path, encoding="utf-8") as file:
            entries = json.load(file)
        base = os.path.dirname(os.path.abspath(path))
        found: dict[str, Flags] = {}
        for entry in entries:
            folder = os.path.join(base, entry["directory"])
            name = os.path.normpath(os.path.join(folder, entry["file"]))
            found.setdefault(name, _flags(_words(entry), folder))
        return found
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise UsageError(f"{path}: not a compile_commands.json") from None


def _words(entry: dict[str, Any]) -> list[str]:
    if "arguments" in entry:
        return [str(word) for word in entry["arguments"]]
    import shlex

    return shlex.split(entry["command"])


def _flags(words: list[str], folder: str) -> Flags:
    include_paths: list[str] = []
    includes: list[str] = []
    defines: dict[str, str] = {}
    standard = None
    for flag, value in _options(words):
        if flag in ("-I", "-isystem"):
            include_paths.append(os.path.normpath(os.path.join(folder, value)))
        elif flag == "-include":
            includes.append(os.path.normpath(os.path.join(folder, value)))
        elif flag == "-D":
            name, equals, text = value.partition("=")
            defines[name] = text if equals else "1"
        else:
            standard = value
    return Flags(tuple(dict.fromkeys(include_paths)), tuple(defines.items()), tuple(dict.fromkeys(includes)), standard)


def _options(words: list[str]) -> Iterator[tuple[str, str]]:
    """The options that count, as (flag, value), however they are joined."""
    rest = iter(words)
    for word in rest:
        flag = next((flag for flag in _JOINED if word.startswith(flag)), None)
        if flag is None:
            continue
        value = word[len(flag) :].lstrip("=") if flag in ("-isystem", "-include") else word[len(flag) :]
        value = value or next(rest, "")
        if value:
            yield flag, value
