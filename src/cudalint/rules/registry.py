"""Finds the rules. A rule is a function ``check…`` in a module ``cl*.py`` of this package.

Its only parameter's annotation names what it is asked about (``Kernel``, ``Launch``, ``HostFunction``,
``Unit``); the module's ``CODES`` say which codes it may yield. Nothing else registers it. The
experiment that shows a rule's fault is the function ``experiment_clxxx`` beside it.
"""

from __future__ import annotations

import os
import re
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from cudalint import rules
from cudalint.lazy import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cudalint.rules.draft import Draft

_CODES = re.compile(rb"^CODES\b[^=\n]*=\s*\(([^)]*)\)", re.MULTILINE)


class Check(NamedTuple):
    """``name`` is the module's and the function's, for an error message."""

    name: str
    run: Callable[..., Iterable[Draft]]


@cache
def _modules() -> dict[str, tuple[str, ...]]:
    """The rule modules and their codes, read without importing them: most runs need few of them."""
    found = {}
    for folder in rules.__path__:
        for entry in sorted(os.listdir(folder)):
            if entry.startswith("cl") and entry.endswith(".py"):
                with open(os.path.join(folder, entry), "rb") as file:
                    line = _CODES.search(file.read())
                if line is None:
                    raise ValueError(f'{entry}: a rule module needs CODES = ("CLxxx", …)')
                found[entry[:-3]] = tuple(code.decode() for code in re.findall(rb"CL\d+", line[1]))
    return found


@cache
def checks(codes: frozenset[str]) -> dict[str, tuple[Check, ...]]:
    """The checks that may yield one of ``codes``, by the name of the class that they are asked about."""
    found: dict[str, list[Check]] = {}
    for name, yields in _modules().items():
        if codes.isdisjoint(yields):
            continue
        module = import_module(f"{rules.__name__}.{name}")
        for attribute, value in vars(module).items():
            if attribute.startswith("check") and getattr(value, "__module__", None) == module.__name__:
                found.setdefault(_subject(value), []).append(Check(f"{name}.{attribute}", value))
    return {subject: tuple(each) for subject, each in found.items()}


@cache
def experiment(code: str) -> Callable[..., Any] | None:
    """What makes the experiment of a rule from a :class:`~cudalint.confirm.experiment.Bench`; None for advice."""
    for name, yields in _modules().items():
        if code in yields:
            module = import_module(f"{rules.__name__}.{name}")
            found: Callable[..., Any] | None = getattr(module, f"experiment_{code.lower()}", None)
            return found
    return None


def _subject(function: Callable[..., object]) -> str:
    (annotation,) = (kind for name, kind in function.__annotations__.items() if name != "return")
    return str(annotation).rpartition(".")[2]
