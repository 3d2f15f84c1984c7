"""Name lookup over a file and the project files it includes."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from cudalint.frontend.declare import Declarations, TypeDecl, ValueDecl
from cudalint.frontend.literals import number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cudalint.frontend.source import SourceFile
    from cudalint.ir.nodes import FunctionDecl
    from cudalint.ir.types import Type

_D = TypeVar("_D", TypeDecl, ValueDecl)


class Scope:
    """What the names of a file mean.

    ``prefix`` in every lookup is the namespace and class the name is used in (``ns::Cls``). The
    nearest enclosing scope wins, then using directives and declarations, then the only sensible
    suffix (``detail::f`` for ``ns::detail::f`` used outside of ``ns``). A header may leave functions
    and constants to the files that include it: they are looked for there where it has none itself.
    """

    __slots__ = ("_functions", "_types", "_values", "aliases", "closure", "file", "using_names", "usings")

    def __init__(self, file: SourceFile) -> None:
        self.file = file
        self.closure: list[Declarations] = list(_closure(file))
        self.usings = list(dict.fromkeys(ns for d in self.closure for _, ns in d.usings))
        self.using_names: dict[str, list[str]] = {}
        self.aliases: dict[str, str] = {"cg": "cooperative_groups"}
        for declarations in self.closure:
            for _, target in declarations.using_names:
                self.using_names.setdefault(target.rpartition("::")[2], []).append(target)
            self.aliases.update(declarations.aliases)
        self._types: dict[tuple[str, str], TypeDecl | None] = {}
        self._values: dict[tuple[str, str], ValueDecl | None] = {}
        self._functions: dict[tuple[str, str], list[FunctionDecl]] = {}

    def type(self, name: str, prefix: str = "") -> TypeDecl | None:
        """The type called ``name`` (qualified or not, without template arguments)."""
        key = (name, prefix)
        if key not in self._types:
            self._types[key] = self._nearest(name, prefix, lambda d, last: d.types_by_name.get(last))
        return self._types[key]

    def value(self, name: str, prefix: str = "") -> ValueDecl | None:
        """The namespace-scope variable, static member or enumerator called ``name``."""
        key = (name, prefix)
        if key not in self._values:
            self._values[key] = self._nearest(name, prefix, lambda d, last: d.values_by_name.get(last))
        return self._values[key]

    def functions(self, name: str, prefix: str = "") -> list[FunctionDecl]:
        """The overloads of ``name``: definitions before prototypes, the nearest scope's only."""
        key = (name, prefix)
        found = self._functions.get(key)
        if found is None:
            found = self._functions[key] = self._overloads(name, prefix)
        return found

    def expand(self, name: str) -> str:
        """``name`` with a leading ``::`` dropped and a leading namespace alias replaced."""
        if name.startswith("::"):
            name = name[2:]
        first, colons, rest = name.partition("::")
        if colons and first in self.aliases:
            return f"{self.aliases[first]}::{rest}"
        return name

    def _paths(self, name: str, prefix: str) -> Iterator[str]:
        while prefix:
            yield f"{prefix}::{name}"
            prefix = prefix.rpartition("::")[0]
        yield name
        for namespace in self.usings:
            yield f"{namespace}::{name}"
        yield from self.using_names.get(name, ())

    def _nearest(self, name: str, prefix: str, find: Callable[[Declarations, str], list[_D] | None]) -> _D | None:
        name = self.expand(name)
        last = name.rpartition("::")[2]
        found = [decl for declarations in self.closure for decl in find(declarations, last) or ()]
        if not found:
            return None
        for path in self._paths(name, prefix):
            same = [decl for decl in found if decl.qualname == path]
            if same:
                return next((decl for decl in same if getattr(decl, "defines", True)), same[0])
        suffix = "::" + name
        qualified = "::" in name
        ending = [d for d in found if d.qualname.endswith(suffix) and (qualified or not d.in_class)]
        return max(ending, key=lambda d: _shared(d.qualname, prefix)) if ending else None

    def _overloads(self, name: str, prefix: str) -> list[FunctionDecl]:
        name = self.expand(name)
        last = name.rpartition("::")[2]
        found = [f for declarations in self.closure for f in declarations.functions_by_name.get(last, ())]
        if not found and last == name:
            found = self._lent(name)
        if not found:
            return []
        chosen: list[FunctionDecl] = []
        for path in self._paths(name, prefix):
            chosen = [f for f in found if f.qualname == path]
            if chosen:
                break
        else:
            suffix = "::" + name
            qualified = "::" in name
            ending = [f for f in found if f.qualname.endswith(suffix) and (qualified or not f.owner)]
            if ending:
                best = max(ending, key=lambda f: _shared(f.qualname, prefix)).qualname
                chosen = [f for f in ending if f.qualname == best]
        return sorted(chosen, key=lambda f: not f.has_body)

    def _lent(self, name: str) -> list[FunctionDecl]:
        """The overloads that the files have which include this one; none where they differ."""
        each = []
        for file in self._lenders(name):
            found = [f for f in file.declarations.functions_by_name.get(name, ()) if f.has_body and not f.owner]
            if found:
                each.append(found)
        texts = {tuple(f.file.text[f.start : f.end] for f in found) for found in each}
        return each[0] if len(texts) == 1 else []

    def constant(self, name: str) -> tuple[Type, int | float] | None:
        """What a macro that the files have which include this one says, where that is a number and they agree."""
        macros = [macro for file in self._lenders(name) if (macro := file.macros.get(name)) is not None]
        said = {macro.body for macro in macros if macro.params is None and len(macro.tokens) == 1}
        if len(said) != 1 or any(macro.body not in said for macro in macros):
            return None
        type_, value = number(said.pop().decode("utf-8", "replace"))
        return (type_, value) if value is not None else None

    def _lenders(self, name: str) -> list[SourceFile]:
        env = self.file.env
        return [file for path in env.lending(self.file.path, name) if (file := env.file(path)).error is None]


def _shared(qualname: str, prefix: str) -> int:
    """How many leading components two names share."""
    count = 0
    for a, b in zip(qualname.split("::"), prefix.split("::"), strict=False):
        if a != b:
            break
        count += 1
    return count


def _closure(file: SourceFile) -> Iterator[Declarations]:
    seen = {id(file)}
    stack = [file]
    while stack:
        current = stack.pop()
        yield current.declarations
        for included in reversed(current.includes):
            if id(included) not in seen:
                seen.add(id(included))
                stack.append(included)
