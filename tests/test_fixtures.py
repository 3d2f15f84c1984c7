"""The fixtures: every file is flagged at its marked lines by the marked codes, and nowhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from conftest import ROOT, Cudalint, expected

if TYPE_CHECKING:
    from pathlib import Path

FOLDERS = sorted(p for p in (ROOT / "fixtures").iterdir() if p.is_dir())


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_fixtures(folder: Path) -> None:
    files = [p for p in folder.rglob("*") if p.is_file() and p.name != "cudalint.toml"]
    assert files
    wanted = {(str(p.relative_to(ROOT)), line, code) for p in files for line, code in expected(p)}
    found = Cudalint(ROOT).json("--no-cache", str(folder.relative_to(ROOT)))
    got = {(f["file"], f["line"], f["code"]) for f in found}
    wrong = [f"{place[0]}:{place[1]}: {place[2]} is not found" for place in sorted(wanted - got)]
    wrong += [f"{place[0]}:{place[1]}: {place[2]} is not expected" for place in sorted(got - wanted)]
    assert not wrong, "\n".join(wrong)
