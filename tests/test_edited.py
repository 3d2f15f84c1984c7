"""An edited text is checked again only where the edit matters, and that gives what a check of all of it gives."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from conftest import ROOT

from cudalint import edited, engine
from cudalint.engine import Options
from cudalint.frontend.source import SourceFile

if TYPE_CHECKING:
    from pathlib import Path

    from cudalint.findings import Finding

FILES = sorted((ROOT / "fixtures").rglob("*.cu"))
OPENING = re.compile(rb"\)\s*(?:const)?\s*\{")
CHANGED = {b"<": b"<=", b"/": b"*", b"n": b"(n + 1)", b"*": b"+"}
TOKEN = re.compile(rb"\b\d+\b|<(?![<=])|/(?![/*])|\bn\b|\*(?!/)")


def found(path: Path, text: bytes, worker: engine.Worker | None) -> list[Finding]:
    options = Options(stdin=(str(path), text), texts={str(path): text}, isolated=True)
    return engine.check([], options, worker).findings


def edits(text: bytes) -> list[bytes]:
    """The text with a declaration in the first line of a function, in a line of its own, or with another token."""
    opening = [m.end() for m in OPENING.finditer(text)]
    tokens = list(TOKEN.finditer(text))
    one, other = opening[len(text) % len(opening)], opening[-1]
    made = [text[:one] + b" int typed = 0;" + text[one:], text[:other] + b"\n    int typed = 0;" + text[other:]]
    made += [b"// more\n\n" + text, text.replace(b"\n}\n", b"\n}\n\n// more\n", 1), text + b"\n"]
    for token in tokens[len(text) % 5 :: max(1, len(tokens) // 3)]:
        new = CHANGED.get(token[0]) or b"%d" % (int(token[0]) + 1)
        made.append(text[: token.start()] + new + text[token.end() :])
    return made


@pytest.mark.parametrize("part", range(8))
def test_an_edit_gives_what_a_check_of_the_whole_gives(part: int) -> None:
    for path in FILES[part * 3 :: 61]:
        text = path.read_bytes()
        worker = engine.Worker({}, edits=True)
        found(path, text, worker)
        for new in edits(text):
            assert found(path, new, worker) == found(path, new, None), (path.name, new.decode())


HELPED = b"""\
__device__ float twice(float x) { return 2.0f * x; }
__global__ void one(float *x, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] = twice(x[i]); }
__global__ void other(float *x, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] = 0.0f; }
void run(float *x, int n) { one<<<n / 256, 256>>>(x, n); }
void rest(float *x, int n) { other<<<n / 256, 256>>>(x, n); }
void all(float *x, int n) { run(x, n); rest(x, n); }
"""


def concerned(old: bytes, new: bytes) -> set[str] | None:
    before = edited.Outline(SourceFile("/k.cu", old))
    edit = edited.edit(before, edited.Outline(SourceFile("/k.cu", new), before))
    return None if edit is None else set(edit.names)


def test_an_edit_concerns_who_names_the_function_and_whom_hosts_name() -> None:
    text = HELPED.rpartition(b"void all")[0]
    assert concerned(text, text) == set()
    assert concerned(text, text.replace(b"2.0f", b"3.0f")) == {"twice", "one", "run"}
    assert concerned(text, text.replace(b"0.0f", b"1.0f")) == {"other", "rest"}
    assert concerned(text, text.replace(b"one<<<n /", b"one<<<n + 1 /")) == {"one", "run"}
    assert concerned(HELPED, HELPED.replace(b"2.0f", b"3.0f")) == {"twice", "one", "run", "other", "rest", "all"}


def test_blank_lines_and_comments_between_functions_concern_nothing() -> None:
    for line in (b"\n", b"// twice\n", b"/* twice\n   or thrice */\n\n"):
        for before in (b"__device__", b"__global__ void other", b"void rest"):
            assert concerned(HELPED, HELPED.replace(before, line + before)) == set()
    assert concerned(HELPED, HELPED + b"\n// the end") == set()


def test_what_stands_outside_of_functions_concerns_everything() -> None:
    for line in (
        b"#define N 256\n",
        b"int size;\n",
        b"void more();\n",
        b"// cudalint: assume(n < 5)\n",
        b'char s[] = R"(\n)";\n',
    ):
        assert concerned(HELPED, line + HELPED) is None
    assert concerned(HELPED, HELPED.replace(b"void run", b"void ran")) is None
    assert concerned(HELPED, HELPED.replace(b"{ run", b"{\n#define N 1\n run")) is None
