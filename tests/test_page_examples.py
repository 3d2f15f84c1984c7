"""The pages' examples: the bad one is flagged where it says, by that rule and no other, the good one is clean."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from conftest import expected

from cudalint.rules.pages import Page, pages

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from conftest import Cudalint


def examples(page: Page, section: str) -> list[str]:
    """The ``cuda`` blocks of a section."""
    body = page.text.split(f"## {section}\n", 1)[1].split("\n## ", 1)[0]
    return re.findall(r"^```cuda\n(.*?)^```$", body, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", pages().values(), ids=pages())
def test_examples(page: Page, folder: Path, cudalint: Cudalint, write: Callable[..., Path]) -> None:
    if not page.default:
        write("cudalint.toml", f'extend-select = ["{page.code}"]\n')
    bad, good = examples(page, "Example"), examples(page, "Use instead")
    assert bad
    assert good
    # a folder each: files of one folder launch one another's kernels
    files = [
        write(f"{kind}{n}/k.cu", text) for kind, texts in (("bad", bad), ("good", good)) for n, text in enumerate(texts)
    ]
    wanted = {(p.relative_to(folder).as_posix(), line, code) for p in files for line, code in expected(p)}
    assert {code for _, _, code in wanted} <= {page.code}
    found = {(f["file"], f["line"], f["code"]) for f in cudalint.json("--no-cache", ".")}
    if wanted:
        assert found == wanted
    else:  # a fault that leaves no place for a comment: a file that cannot be read
        assert {(file[:3], code) for file, _, code in found} == {("bad", page.code)}
