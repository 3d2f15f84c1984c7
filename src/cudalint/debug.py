"""``cudalint debug``: what a stage of the analysis made of a file, for people who work on it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from cudalint.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudalint.facts.events import Event
    from cudalint.frontend.source import SourceFile


def show(stage: str, path: str) -> Iterator[str]:
    """The stage's view of a file, or of the CUDA texts in it, in pieces; UsageError where it cannot be read."""
    from cudalint.config import Configs
    from cudalint.engine import Worker
    from cudalint.select import Layer

    absolute = os.path.abspath(path)
    folder = os.path.dirname(absolute)
    settings = Configs(Layer("the command line")).of(folder, folder)
    project = Worker({}).project(settings)
    file = project.file(absolute)
    if file.error is not None:
        raise UsageError(f"{path}: {file.error}")
    files = list(project.texts(absolute).values()) or [file]
    if stage == "source":
        return (piece for each in files for piece in _source(each))
    from cudalint.facts import analyse

    def pieces(file: SourceFile) -> Iterator[str]:
        units = analyse(project, file.path, settings.config)
        return _ir(file, units) if stage == "ir" else {"facts": _facts, "uniformity": _uniformity}[stage](units)

    return (piece for each in files for piece in pieces(each))


def _source(file: SourceFile) -> Iterator[str]:
    """The expanded text, a host reading after it where that differs; each line with the line that it comes from."""
    for reading in (file, file.host) if file.host is not file else (file,):
        assumed = b", ".join(reading.scan.assumed).decode()
        yield f"// {file.path}, {reading.reading} reading{f', {assumed} taken as defined' if assumed else ''}\n"
        at = 0
        for line in reading.text.splitlines(keepends=True):
            if line.strip():
                start = at + len(line) - len(line.lstrip())
                yield f"{reading.span(start, start + 1).line:>6}  {line.decode('utf-8', 'replace').rstrip()}\n"
            at += len(line)


def _ir(file: SourceFile, units: Iterator[Any]) -> Iterator[str]:
    """Every function with a body, lowered: by what each variable's type was settled, then the tree.

    A kernel template comes once for each binding that a visible launch gives it.
    """
    from cudalint.facts.model import Kernel
    from cudalint.origins import settled

    bound: dict[Any, list[Any]] = {}
    for unit in units:
        if isinstance(unit, Kernel):
            bound.setdefault(unit.decl, []).append(unit.bindings)
    for reading in (file, file.host) if file.host is not file else (file,):
        for declaration in reading.declarations.functions:
            host = declaration.kind == "host"
            if declaration.has_body and (reading is not file if host and file.host is not file else reading is file):
                line = reading.span(declaration.start, declaration.end).line
                for bindings in bound.get(declaration, [()]):
                    function, origins = settled(declaration, dict(bindings))
                    params = ", ".join(f"{param.name}: {param.type}" for param in function.params)
                    with_ = f" [{', '.join(f'{name} = {value}' for name, value in bindings)}]" if bindings else ""
                    name = f"{function.kind} {declaration.qualname}{with_}"
                    yield f"{name}({params}) -> {function.returns}  # line {line}\n"
                    for var, origin in sorted(origins.items(), key=lambda item: item[0].start):
                        place = reading.span(var.start, var.end).line
                        yield f"  {var.name or '(unnamed)'}: {var.type}  # line {place}, {origin}\n"
                    yield from _tree(function.body, "  ", reading)
                    yield "\n"


def _facts(units: Iterator[Any]) -> Iterator[str]:
    """What kernels do to memory under which conditions, their loops, and what launches pass."""
    from cudalint.facts import terms as t
    from cudalint.facts.model import Kernel, Launch

    for unit in units:
        if isinstance(unit, Kernel):
            yield _heading(unit)
            for loop in unit.flow.loops:
                steps = ", ".join(
                    f"{var.name} = {_term(i.init)} + pass * {_term(i.step)}"
                    if i.step is not None
                    else f"{var.name} from {_term(i.init)}"
                    for var, i in loop.inductions.items()
                )
                yield f"  line {_line(loop.fn, loop.node)}: loop while {_term(loop.cond)}: {steps}\n"
            for access in unit.flow.accesses:
                index = t.show_poly(access.scalar) if access.scalar is not None else _term(access.index)
                verb = {"r": "reads", "w": "writes", "rw": "updates", "atomic": "atomically updates"}[access.mode]
                conditions = _conditions(access.guard)
                yield (
                    f"  line {_line(access.fn, access.node)}: {verb} {access.obj.kind} {access.obj.name}[{index}]"
                    f"{' x ' + str(access.width) if access.width > 1 else ''}{conditions}\n"
                )
            yield "\n"
        elif isinstance(unit, Launch):
            node = unit.event.node
            grid, block = (
                "(" + ", ".join(map(t.show, triple)) + ")" if triple else "not visible"
                for triple in (unit.grid, unit.block)
            )
            line = _line(unit.event.fn, node)
            yield f"launch of {node.kernel or 'a function pointer'} in {unit.host.name}  # line {line}\n"
            yield f"  grid {grid}, block {block}{_conditions(unit.event.guard)}\n"
            for formal, actual in unit.mapping.items():
                if formal.data.kind == "param":
                    yield f"  {formal.data.name} = {t.show(actual)}\n"
            yield "\n"


def _uniformity(units: Iterator[Any]) -> Iterator[str]:
    """A kernel's barriers, collectives and returns, with the conditions on the way and how far threads share them."""
    from cudalint.facts import terms as t
    from cudalint.facts.events import chain
    from cudalint.facts.model import Kernel

    levels = ("uniform", "warp-uniform", "unknown", "thread-dependent")
    for unit in units:
        if not isinstance(unit, Kernel):
            continue
        yield _heading(unit)
        uniformity = unit.uniformity()
        flow = unit.flow
        events: list[tuple[Event, str]] = [(e, f"barrier {e.name}") for e in flow.barriers]
        events += [(e, "return") for e in flow.returns]
        events += [(e, f"collective {e.name}") for e in flow.collectives]
        for event, name in sorted(events, key=lambda item: item[0].seq):
            yield f"  line {_line(event.fn, event.node)}: {name}\n"
            for guard in reversed(list(chain(event.guard))):
                level = levels[uniformity.divergent(guard)]
                yield f"    {guard.why} on line {_line(guard.fn, guard.node)}: {t.show(guard.term)}: {level}\n"
        yield "\n"


def _heading(kernel: Any) -> str:
    bound = ", ".join(f"{name} = {value}" for name, value in kernel.bindings)
    line = kernel.decl.file.span(kernel.decl.name_start, kernel.decl.name_end).line
    kind = "kernel" if kernel.is_kernel else "device function"
    name = f"{kernel.name} [{bound}]" if bound else kernel.name
    return f"{kind} {name}, visible launches: {len(kernel.launches)}  # line {line}\n"


def _term(term: Any) -> str:
    from cudalint.facts import terms as t

    return t.show(term) if term is not None else "?"


def _conditions(guard: Any) -> str:
    from cudalint.facts import terms as t
    from cudalint.facts.events import conjuncts

    found = [t.show(x) for x in conjuncts(guard) if x is not t.TRUE]
    return f" where {' && '.join(reversed(found))}" if found else ""


def _line(function: Any, node: Any) -> int:
    return int(function.file.span(node.start, node.start + 1).line)


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
