"""``--repro``: an experiment as one script that anybody with a GPU, CuPy and NumPy can run."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from cudalint.confirm.prelude import PRELUDE
from cudalint.confirm.watch import DEVICE

if TYPE_CHECKING:
    from cudalint.confirm.gpu import Experiment

_HEAD = '''\
#!/usr/bin/env python3
"""{title}

{text}

Run it with Python, NumPy and CuPy on a machine with an NVIDIA GPU. It compiles and runs the kernel below, nothing
else of its file. Exit code 1: the fault shows; 0: it does not; 2: it cannot be run.
"""
'''


def script(experiment: Experiment | None, title: str = "", text: str = "", judge: Any = None) -> str:
    """The text of the script; without an experiment the one that reads experiments on stdin (``--serve``).

    ``judge`` are the symptoms that count, ``text`` says in words what was expected and seen."""
    head = _HEAD.format(title=title or "Runs experiments that it reads on stdin.", text=text or "Written by cudalint.")
    parts = [head]
    if experiment is not None:
        made = experiment.slice
        parts.append(f"\nINCLUDES = {_raw(made.includes)}\n\nKERNEL = {_raw(made.body)}\n")
        parts.append(
            "\n# The same with the edits by which accesses, arrivals and wraps are told.\n"
            f"WATCHED = {_raw(made.watched or '')}\n"
        )
        parts.append(f"\nEXPERIMENT = {_literal({**experiment.data, **(judge or {})})}\n")
        parts.append(f"\nPRELUDE = {_raw(PRELUDE)}\n\nWATCH = {_raw(DEVICE)}\n")
        parts.append('\nEXPERIMENT["source"] = INCLUDES + PRELUDE + KERNEL\n')
        parts.append('EXPERIMENT["watched"] = INCLUDES + PRELUDE + WATCH + WATCHED\n')
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "child.py")
    with open(path, encoding="utf-8") as file:
        runner = file.read().replace("from __future__ import annotations\n\n", "", 1)
    head, parts[0] = parts[0], ""
    body = "".join(parts)
    end = f'\n\nif __name__ == "__main__":\n    sys.exit(main({"EXPERIMENT" if experiment is not None else "None"}))\n'
    return f"{head}\nfrom __future__ import annotations\n{body}\n{runner}{end}"


def _raw(text: str) -> str:
    """A text as a Python literal that reads like the text."""
    if "'''" in text or "\r" in text or text.endswith(("'", "\\")):
        return repr(text)
    return f"r'''{text}'''"


def _literal(value: Any, depth: int = 0) -> str:
    """Nested dicts over several lines, the rest on one."""
    if not isinstance(value, dict) or not value or depth > 1:
        return repr(value)
    inner = "".join(f"{'    ' * (depth + 1)}{key!r}: {_literal(each, depth + 1)},\n" for key, each in value.items())
    return "{\n" + inner + "    " * depth + "}"


def file_name(code: str, kernel: str, line: int) -> str:
    """``CL202-scale-line12.py``."""
    return f"{code}-{re.sub(r'[^A-Za-z0-9_]+', '-', kernel).strip('-')}-line{line}.py"


__all__ = ["file_name", "script"]
