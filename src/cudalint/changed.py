"""``--changed-since``: what differs from a revision, and which findings that concerns.

Files are compared by their parts: a function that only moved, or whose comments or line ends differ, is the same.
"""

from __future__ import annotations

import os
import re
import subprocess
from typing import TYPE_CHECKING

from cudalint.errors import UsageError
from cudalint.facts.model import HostFunction, Kernel, Launch
from cudalint.frontend.declare import syntax_of
from cudalint.frontend.embedded import Host
from cudalint.frontend.source import HOSTS, SourceFile, host_of
from cudalint.lazy import NamedTuple
from cudalint.project import INCLUDE, SOURCES
from cudalint.suppress import LEXEME

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from cudalint.findings import Span
    from cudalint.ir.nodes import FunctionDecl
    from cudalint.project import Project

_TOKEN = re.compile(rb"\w+|[^\w\s]")
_WORD = re.compile(rb"[A-Za-z_]\w*")
_DEFINE = re.compile(rb"^[ \t]*#[ \t]*define[ \t]+(\w+)((?:\\(?:\r\n|\n|\r)|[^\r\n])*)", re.MULTILINE)
_AROUND = ("template_declaration", "linkage_specification")


# What git knows

_EMPTY = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
"""The tree without a file."""


def since(revision: str, folders: Iterable[str], overlay: Mapping[str, bytes]) -> dict[str, bytes | None]:
    """The files that differ from ``revision`` in the repositories of some folders, by real path, with what they were;
    None for one that is new. ``overlay`` has texts that stand for what is on disk."""
    if not revision or revision.startswith("-"):
        raise UsageError(f"--changed-since: '{revision}' is no revision")
    before: dict[str, bytes | None] = {}
    for top in sorted({_repository(folder) for folder in folders}):
        before.update(_differing(top, revision))
    for path in map(os.path.realpath, overlay):
        if path not in before:
            before[path] = _on_disk(path)
    return before


def _repository(folder: str) -> str:
    top = os.path.realpath(folder)
    while not os.path.exists(os.path.join(top, ".git")):
        above = os.path.dirname(top)
        if above == top:
            raise UsageError(f"--changed-since: {folder} is not in a git repository")
        top = above
    return top


def _differing(top: str, revision: str) -> Iterator[tuple[str, bytes | None]]:
    diff = _git(
        top, "diff", "--raw", "-z", "--no-abbrev", "-M", "--no-ext-diff", "--ignore-submodules=all",
        _commit(top, revision), "--",
    )  # fmt: skip
    was: dict[str, bytes] = {}
    fields = iter(diff.split(b"\0"))
    for head in fields:
        if not head:
            break
        _, _, blob, _, status = head.split()
        name = next(fields)
        if status.startswith(b"R"):
            name = next(fields)
        was[_path(top, name)] = blob
    for name in _git(top, "ls-files", "--others", "--exclude-standard", "-z").split(b"\0"):
        if name:
            was[_path(top, name)] = b""
    # What is no source by its name and yet included counts as new.
    kinds = (*SOURCES, *HOSTS)
    wanted = sorted({blob for path, blob in was.items() if blob.strip(b"0") and path.lower().endswith(kinds)})
    answer = _git(top, "cat-file", "--batch", given=b"".join(blob + b"\n" for blob in wanted))
    texts = dict(zip(wanted, _blobs(answer), strict=True))
    for path, blob in was.items():
        yield path, texts.get(blob)


def _commit(top: str, revision: str) -> str:
    """The revision's commit; of a submodule the one that the repository around it had then."""
    around = os.fsdecode(_git(top, "rev-parse", "--show-superproject-working-tree").rstrip(b"\r\n"))
    if not around:
        return _git(top, "rev-parse", "--verify", "--quiet", revision + "^{commit}", missing=revision).decode().strip()
    inside = os.path.relpath(top, os.path.realpath(around)).replace(os.sep, "/")
    entry = _git(around, "ls-tree", _commit(around, revision), "--", inside).split()
    return entry[2].decode() if entry else _EMPTY


def _path(top: str, name: bytes) -> str:
    return os.path.join(top, os.path.normpath(os.fsdecode(name)))


def _blobs(answer: bytes) -> Iterator[bytes | None]:
    at = 0
    while (end := answer.find(b"\n", at)) >= 0:
        head = answer[at:end].split()
        at = end + 1
        if head[-1] == b"missing":
            yield None
        else:
            size = int(head[-1])
            yield answer[at : at + size]
            at += size + 1


def _git(top: str, *arguments: str, given: bytes = b"", missing: str | None = None) -> bytes:
    """What git answers; UsageError where it fails, in which case ``missing`` is a revision that it does not know."""
    try:
        done = subprocess.run(
            ["git", "-C", top, *arguments], input=given, capture_output=True, check=False,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
        )  # fmt: skip
    except OSError as fault:
        raise UsageError(f"--changed-since needs git, which cannot be run ({fault.strerror})") from None
    if done.returncode == 0:
        return done.stdout
    said = done.stderr.decode("utf-8", "replace").strip().partition("\n")[0]
    if missing is not None and not said:
        shallow = os.path.exists(os.path.join(top, ".git", "shallow"))
        hint = "; the clone is shallow: fetch more of its history" if shallow else ""
        raise UsageError(f"--changed-since: '{missing}' is no revision of {top}{hint}")
    raise UsageError(f"--changed-since: {said or 'git failed'}")


def _on_disk(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return None


# What of it concerns a finding


class _Parts(NamedTuple):
    """A file's functions by qualified name (an overloaded one has several texts), its macros, and all the rest."""

    functions: Mapping[str, frozenset[bytes]]
    macros: Mapping[bytes, list[bytes]]
    outside: bytes


_NOTHING = _Parts({}, {}, b"")


class Changes:
    """Asks of the files of one project what differs from ``before`` (see :func:`since`)."""

    def __init__(self, project: Project, before: Mapping[str, bytes | None]) -> None:
        self._project, self._before = project, before
        self._compared: dict[str, tuple[_Parts, _Parts] | None] = {}
        self._macros: dict[str, frozenset[bytes]] = {}
        self._outside: dict[str, bool] = {}
        self._functions: dict[tuple[str, tuple[int, int]], bool] = {}

    def of_unit(self, unit: Kernel | Launch | HostFunction) -> bool:
        """Does anything differ that the unit is made of: its functions, the macros that they use, and whatever stands
        outside of functions in files that they see?"""
        return any(map(self._function, unit_functions(unit)))

    def at(self, span: Span) -> bool:
        """Does anything differ for what stands at a place: in the function around it, else in the rest of its file?"""
        path, line = span.text.file, span.line
        file = self._project.file(path)
        if file.error is not None or isinstance(file, Host):
            return os.path.realpath(path) in self._before
        for decl in file.declarations.functions:
            start, end = _span(decl)
            if file.position(start)[0] <= line <= file.position(end)[0]:
                return self._function(decl)
        return self._differs(path)

    def _function(self, decl: FunctionDecl) -> bool:
        key = decl.file.path, _span(decl)
        if key not in self._functions:
            self._functions[key] = self._function_differs(decl)
        return self._functions[key]

    def _function_differs(self, decl: FunctionDecl) -> bool:
        path = decl.file.path
        if any(self._differs(file.path) for file in self._project.unit(path)):
            return True
        compared, macros = self._parts(path), self._changed_macros(path)
        if compared is None and not macros:
            return False
        text = _code(_raw(decl))
        if compared is not None and text not in compared[0].functions.get(decl.qualname, ()):
            return True
        return not macros.isdisjoint(_WORD.findall(text))

    def _parts(self, path: str) -> tuple[_Parts, _Parts] | None:
        """A file as it was and as it is; None where it is as it was."""
        if path not in self._compared:
            host, file = host_of(path), self._project.file(path)
            real = os.path.realpath(host or path)
            self._compared[path] = None
            if real in self._before:
                was = self._before[real]
                before = None
                if was is not None:
                    before = SourceFile(path, was, self._project) if host is None else self._former(host, was, file)
                self._compared[path] = _NOTHING if before is None else self._split(before), self._split(file)
        return self._compared[path]

    def _former(self, host: str, was: bytes, file: SourceFile) -> SourceFile | None:
        """The text of a notebook or Python file that was: the same one, wherever it stood, or that of its name."""
        texts = Host(host, was, self._project).sources
        return next((text for text in texts.values() if text.raw == file.raw), texts.get(file.path))

    def _split(self, file: SourceFile) -> _Parts:
        functions: dict[str, set[bytes]] = {}
        rest = bytearray(file.raw)
        for reading in dict.fromkeys((file, file.host)):
            for decl in reading.declarations.functions:
                start, end = _span(decl)
                functions.setdefault(decl.qualname, set()).add(_code(file.raw[start:end]))
                rest[start:end] = b" " * (end - start)
        macros: dict[bytes, list[bytes]] = {}
        outside = _uncommented(bytes(rest))
        for name, body in _DEFINE.findall(outside):
            macros.setdefault(name, []).append(_code(body))
        outside = INCLUDE.sub(lambda line: self._include(file.path, line), _DEFINE.sub(b"", outside))
        return _Parts({name: frozenset(texts) for name, texts in functions.items()}, macros, _code(outside))

    def _include(self, path: str, line: re.Match[bytes]) -> bytes:
        """An ``#include`` as far as it says anything: nothing is read of what is not the project's."""
        target = self._project.resolve(path, line[2].decode(errors="replace").strip(), line[1] == b"<")
        return line[0] if target is not None else b""

    def _differs(self, path: str) -> bool:
        """Whether a file differs outside of its functions and macros, or uses a macro there that does."""
        if path not in self._outside:
            compared = self._parts(path)
            differs = compared is not None and compared[0].outside != compared[1].outside
            if not differs and (macros := self._changed_macros(path)):
                now = compared[1] if compared is not None else self._split(self._project.file(path))
                differs = not macros.isdisjoint(_WORD.findall(now.outside))
            self._outside[path] = differs
        return self._outside[path]

    def _changed_macros(self, path: str) -> frozenset[bytes]:
        """The macros that differ, of those that a file sees, and the ones that use them."""
        if path not in self._macros:
            changed: set[bytes] = set()
            for file in self._project.unit(path):
                compared = self._parts(file.path)
                if compared is not None:
                    old, new = compared[0].macros, compared[1].macros
                    changed.update(name for name in {*old, *new} if old.get(name) != new.get(name))
            if changed:
                others = {
                    name.encode(): set(_WORD.findall(macro.file.raw[macro.start : macro.end]))
                    for name, macro in self._project.file(path).macros.items()
                    if macro.file is not None
                }
                while more := {name for name, words in others.items() if name not in changed and words & changed}:
                    changed |= more
            self._macros[path] = frozenset(changed)
        return self._macros[path]


def unit_functions(unit: Kernel | Launch | HostFunction) -> Iterator[FunctionDecl]:
    """The functions that a unit is made of: a kernel or host function with what it calls; of each launch the function
    in which it stands, what that calls by name, and the ones from which it is reached."""
    if isinstance(unit, HostFunction):
        yield unit.decl
        yield from unit.flow.callees
        return
    kernel = unit.kernel if isinstance(unit, Launch) else unit
    if kernel is not None:
        yield kernel.decl
        yield from kernel.flow.callees
    for launch in unit.launches if isinstance(unit, Kernel) else [unit]:
        for function in dict.fromkeys((launch.event.fn, launch.host, *(x.host for _, x in launch.callers))):
            if function.within is not None:
                yield function.within
        if launch.event.fn.within is not None:
            words = set(_WORD.findall(_raw(launch.event.fn.within)))
            yield from (callee for callee in launch.flow.callees if callee.name.encode() in words)


def _raw(decl: FunctionDecl) -> bytes:
    start, end = _span(decl)
    return decl.file.raw[start:end]


def _span(decl: FunctionDecl) -> tuple[int, int]:
    """Where a function stands in its file, with its ``template <…>`` or ``extern "C"``."""
    node = syntax_of(decl).node
    while node.parent is not None and node.parent.type in _AROUND:
        node = node.parent
    return decl.file.origin(node.start_byte, node.end_byte)


def _code(text: bytes) -> bytes:
    """What of a text means something: its tokens, and the comments that cudalint reads."""
    return b" ".join(_TOKEN.findall(_uncommented(text)))


def _uncommented(text: bytes) -> bytes:
    return LEXEME.sub(lambda m: b" " if m["comment"] and b"cudalint:" not in m["comment"] else m[0], text)
