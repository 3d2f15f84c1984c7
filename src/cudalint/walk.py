"""Which files a run checks."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from cudalint.config import matches
from cudalint.frontend.source import HOSTS, holds_cuda, is_host, may_hold_cuda
from cudalint.lazy import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cudalint.config import Configs, Settings

CUDA = (".cu", ".cuh", ".hip")
MAYBE = (".c", ".cc", ".cpp", ".cxx", ".c++", ".h", ".hh", ".hpp", ".hxx", ".h++", ".inl", ".inc", ".ipp", ".tpp")
"""Headers and sources, which are checked when their content is CUDA."""
_ANY = (*CUDA, *MAYBE, *HOSTS)


class Target(NamedTuple):
    """A file to check. ``named``: the user gave it as an argument."""

    path: str
    settings: Settings
    named: bool


class Walk(NamedTuple):
    """``problems`` are arguments that could not be read, a line each; ``excluded`` counts files left out on purpose."""

    targets: list[Target]
    problems: list[str]
    excluded: int


def walk(arguments: Iterable[str], configs: Configs, *, force_exclude: bool = False) -> Walk:
    """The files of the arguments, each once, in the order of their paths.

    A file that is named is checked whatever it is called and holds; with ``force_exclude`` it is left
    out where a walk would leave it out for the configuration's ``exclude`` or for its content.
    """
    found: dict[str, Target] = {}
    problems: list[str] = []
    excluded = 0
    for argument in arguments:
        path = os.path.abspath(argument)
        if os.path.isdir(path):
            try:
                os.scandir(path).close()
            except OSError as error:
                problems.append(f"{argument}: {error.strerror}")
                continue
            settings = configs.of(path, path)
            left_out = _excluded(settings, path)
            if left_out and force_exclude:
                excluded += 1
                continue
            walker = _Walker(configs, path, obey=not left_out)
            for target in walker.files(path, _ignore_files_above(path)):
                found.setdefault(target.path, target)
            excluded += walker.excluded
            continue
        try:
            if not os.path.exists(path) or os.path.isfile(path):  # a pipe is told when it is read
                with open(path, "rb"):
                    pass
        except (OSError, ValueError) as error:
            problems.append(f"{argument}: {getattr(error, 'strerror', None) or error}")
            continue
        folder = os.path.dirname(path)
        settings = configs.of(folder, folder)
        if force_exclude and (_excluded(settings, path) or not is_cuda(path)):
            excluded += 1
        else:
            found[path] = Target(path, settings, True)
    return Walk([found[path] for path in sorted(found)], problems, excluded)


def _excluded(settings: Settings, path: str) -> bool:
    return matches(settings.config.base, settings.config.exclude, path)


def is_cuda(path: str) -> bool:
    """Is the file CUDA by its name or by its content, or is there CUDA in it? False for one that cannot be read."""
    if path.lower().endswith(CUDA):
        return True
    if not os.path.isfile(path):
        return False
    try:
        with open(path, "rb") as file:
            data = file.read()
            return may_hold_cuda(path, data) if is_host(path) else holds_cuda(data)
    except OSError:
        return False


class _Walker:
    """Links met on the way are not followed: no loops, and nothing outside the tree."""

    def __init__(self, configs: Configs, top: str, *, obey: bool) -> None:
        self._configs, self._top, self._obey = configs, top, obey
        self.excluded = 0

    def files(self, folder: str, ignores: tuple[_Ignore, ...]) -> Iterator[Target]:
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError:
            return  # a folder below the argument that may not be entered holds nothing for us
        settings = self._configs.of(folder, self._top)
        if folder != self._top and any(entry.name == "pyvenv.cfg" for entry in entries):
            return  # an environment: what is installed there is others' code
        if any(entry.name == ".gitignore" and entry.is_file() for entry in entries):
            ignores = (*ignores, _Ignore(folder))
        for entry in entries:
            name = entry.name
            if name.startswith("."):
                continue
            folderish = entry.is_dir(follow_symlinks=False)
            if not folderish:
                lower = name.lower()
                if not lower.endswith(_ANY):
                    continue
                if not entry.is_file(follow_symlinks=False):
                    continue
            if ignores and _is_ignored(ignores, entry.path, folderish):
                continue
            if self._obey and _excluded(settings, entry.path):
                self.excluded += 1
                continue
            if folderish:
                yield from self.files(entry.path, ignores)
            elif is_cuda(entry.path):
                yield Target(entry.path, settings, False)


class _Ignore:
    """One .gitignore, parsed when it is first asked."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._spec: Any = None

    def verdict(self, path: str, folderish: bool) -> bool | None:
        """True: ignored, False: kept by a ``!`` line, None: not mentioned."""
        if self._spec is None:
            from pathspec import GitIgnoreSpec

            try:
                with open(os.path.join(self._folder, ".gitignore"), encoding="utf-8", errors="replace") as file:
                    self._spec = GitIgnoreSpec.from_lines(file)
            except OSError:  # git cannot read it either
                self._spec = GitIgnoreSpec([])
        inside = os.path.relpath(path, self._folder).replace(os.sep, "/")
        if not folderish:
            included: bool | None = self._spec.check_file(inside).include
            return included
        verdict: bool | None = None
        # The last line that names a folder decides; the library weighs `!*/` less than `*`.
        for pattern in self._spec.patterns:
            if pattern.include is not None and pattern.match_file(inside + "/"):
                verdict = pattern.include
        return verdict


def _is_ignored(ignores: tuple[_Ignore, ...], path: str, folderish: bool) -> bool:
    for ignore in reversed(ignores):
        verdict = ignore.verdict(path, folderish)
        if verdict is not None:
            return verdict
    return False


def _ignore_files_above(folder: str) -> tuple[_Ignore, ...]:
    """The .gitignore files above ``folder`` in its repository, outermost first."""
    found: list[_Ignore] = []
    while not os.path.exists(os.path.join(folder, ".git")):
        above = os.path.dirname(folder)
        if above == folder:
            return ()  # no repository: a .gitignore above says nothing about this folder
        folder = above
        if os.path.isfile(os.path.join(folder, ".gitignore")):
            found.append(_Ignore(folder))
    return tuple(reversed(found))
