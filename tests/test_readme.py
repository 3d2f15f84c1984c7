"""The README says what is so: its table of rules is made from their pages. Run this file to make it anew."""

from __future__ import annotations

import re
from pathlib import Path

from cudalint.rules.pages import GROUPS, pages

README = Path(__file__).resolve().parents[1] / "README.md"
_BLOCK = re.compile(r"(?<=<!-- rules: begin -->\n).*?(?=<!-- rules: end -->)", re.DOTALL)


def table() -> str:
    rows = ["| Code | Name | Level | What it finds |", "| --- | --- | --- | --- |"]
    for group in GROUPS:
        for page in pages().values():
            if page.group == group:
                level = page.level if page.default else f"{page.level}, opt-in"
                link = f"[{page.code}](rules/{page.url.rpartition('/')[2]})"
                rows.append(f"| {link} | {page.name} | {level} | {page.summary} |")
    return "\n".join(rows) + "\n"


def test_the_table_of_rules_is_up_to_date():
    (block,) = _BLOCK.findall(README.read_text(encoding="utf-8"))
    assert block == table(), "run: python tests/test_readme.py"


def test_the_commands_are_where_ci_looks_for_them():
    text = README.read_text(encoding="utf-8")
    for name, says in (("check", "cudalint check fixtures/"), ("test", "pytest")):
        (command,) = re.findall(rf"<!-- command: {name} -->\n```\w*\n(.*?)\n```", text, re.DOTALL)
        assert says in command
        assert "pip install" in command


if __name__ == "__main__":
    README.write_text(_BLOCK.sub(lambda _: table(), README.read_text(encoding="utf-8")), encoding="utf-8")
