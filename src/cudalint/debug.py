"""``cudalint debug``: what a stage of the analysis made of a file, for people who work on it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from cudalint.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudalint.frontend.source import SourceFile


def show(stage: str, path: str) -> Iterator[str]:
    """The stage's view of a file, in pieces; UsageError where the file cannot be read."""
    from cudalint.config import Configs
    from cudalint.engine import Worker
    from cudalint.select import Layer

    absolute = os.path.abspath(path)
    folder = os.path.dirname(absolute)
    file = Worker({}).project(Configs(Layer("the command line")).of(folder, folder)).file(absolute)
    if file.error is not None:
        raise UsageError(f"{path}: {file.error}")
    return {"source": _source, "ir": _ir}[stage](file)


def _source(file: SourceFile) -> Iterator[str]:
    """The expanded text, a host reading after it where that differs; each line with the line that it comes from."""
    for reading in (file, file.host) if file.host is not file else (file,):
        yield f"// {file.path}, {reading.reading} reading\n"
        at = 0
        for line in reading.text.splitlines(keepends=True):
            if line.strip():
                start = at + len(line) - len(line.lstrip())
                yield f"{reading.span(start, start + 1).line:>6}  {line.decode('utf-8', 'replace').rstrip()}\n"
            at += len(line)


def _ir(file: SourceFile) -> Iterator[str]:
    """Every function with a body, lowered."""
    for reading in (file, file.host) if file.host is not file else (file,):
        for declaration in reading.declarations.functions:
            host = declaration.kind == "host"
            if declaration.has_body and (reading is not file if host and file.host is not file else reading is file):
                function = declaration.lower()
                span = reading.span(declaration.start, declaration.end)
                params = ", ".join(f"{param.name}: {param.type}" for param in function.params)
                yield f"{function.kind} {declaration.qualname}({params}) -> {function.returns}  # line {span.line}\n"
                yield from _tree(function.body, "  ", reading)
                yield "\n"


def _tree(node: Any, indent: str, file: SourceFile, label: str = "") -> Iterator[str]:
    """A node, what is plain of it on one line, its child nodes below."""
    from cudalint.ir.nodes import Node, Var

    fields = [name for kind in type(node).__mro__ for name in getattr(kind, "__slots__", ())]
    values = [(name, getattr(node, name, None)) for name in fields if name not in ("start", "end")]
    children: list[tuple[str, Node]] = []
    plain: list[str] = []
    for name, value in values:
        items = list(value) if isinstance(value, (list, tuple)) else [value]
        nodes = [item for item in items if isinstance(item, Node)]
        if nodes:
            children.extend((f"{name}[{i}]" if len(items) > 1 else name, item) for i, item in enumerate(nodes))
        elif isinstance(value, Var):
            plain.append(f"{value.name} ({value.kind} {value.type})")
        elif value not in (None, "", [], (), False):
            plain.append(f"{name}={value}")
    line = file.span(node.start, node.start + 1).line
    yield f"{indent}{label and label + ': '}{type(node).__name__} {' '.join(plain)}".rstrip() + f"  # {line}\n"
    for name, child in children:
        yield from _tree(child, indent + "  ", file, name)
