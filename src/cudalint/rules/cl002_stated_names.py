"""CL002 unused-ignore: an ``assume(…)`` or ``requires(…)`` that names what is not there, and is not used for that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudalint.errors import closest
from cudalint.frontend.stated import stated
from cudalint.ir import nodes as ir
from cudalint.rules.draft import Draft
from cudalint.rules.edits import inner

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudalint.facts.model import HostFunction, Kernel

CODES = ("CL002",)
_BUILT_IN = ("gridDim", "blockDim")


def check_kernel(kernel: Kernel) -> Iterator[Draft]:
    """Names in what a kernel's comments state."""
    yield from _unknown(kernel.function)


def check_host(host: HostFunction) -> Iterator[Draft]:
    """Names in what a host function's comments state."""
    yield from _unknown(host.function)


def _unknown(function: ir.Function) -> Iterator[Draft]:
    comments = [x for x in stated(function.file.raw) if x.fault is None]
    if not comments:
        return
    declared = [x.var.name for x in inner(function.body) if isinstance(x, ir.VarDecl)]
    names = [*(x.name for x in function.params), *(_BUILT_IN if function.kind != "host" else ())]
    for call in inner(function.body):
        if not isinstance(call, ir.Call) or call.name != "assert":
            continue
        start, _ = function.file.origin(call.start, call.end)
        comment = next((x for x in comments if x.start <= start < x.end), None)
        if comment is None:
            continue
        for name, node in {x.name: x for x in inner(call) if isinstance(x, ir.Name)}.items():
            there = closest(name, dict.fromkeys([*names, *declared])) or f": {function.name} has {', '.join(names)}"
            yield Draft(
                "CL002", function, function.file, node.start, node.end,
                f"'{comment.word}' is not used for '{name}', which nothing in the project declares{there}",
                "name a parameter, a variable, a member or a constant",
            )  # fmt: skip
