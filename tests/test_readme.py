"""The README says what is so: its outputs are what the commands print, its table is made from the rules' pages.

Run this file to make both anew.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from cudalint.rules.pages import GROUPS, pages

README = Path(__file__).resolve().parents[1] / "README.md"
_TABLE = re.compile(r"(?<=<!-- rules: begin -->\n).*?(?=<!-- rules: end -->)", re.DOTALL)
_FILE = re.compile(r"<!-- file: (\S+) -->\n```\w*\n(.*?)```", re.DOTALL)
_OUTPUT = re.compile(r"(?<=<!-- output: )(.*?) -->\n```\n(.*?)(?=```)", re.DOTALL)


def table() -> str:
    rows = ["| Code | Name | Level | What it finds |", "| --- | --- | --- | --- |"]
    for group in GROUPS:
        for page in pages().values():
            if page.group == group:
                level = page.level if page.default else f"{page.level}, opt-in"
                link = f"[{page.code}](rules/{page.url.rpartition('/')[2]})"
                rows.append(f"| {link} | {page.name} | {level} | {page.summary} |")
    return "\n".join(rows) + "\n"


def output(command: str, text: str, folder: Path) -> str:
    """What a command prints in a folder that holds the README's CUDA files."""
    (folder / ".git").mkdir(exist_ok=True)
    for name, content in _FILE.findall(text):
        if name.endswith(".cu"):
            (folder / name).write_text(content, encoding="utf-8")
    program, *arguments = shlex.split(command)
    assert program == "cudalint"
    environment = {k: v for k, v in os.environ.items() if k != "FORCE_COLOR"}
    done = subprocess.run(
        [sys.executable, "-m", "cudalint", *arguments], cwd=folder, capture_output=True, check=False, env=environment
    )
    return done.stdout.decode() + done.stderr.decode()


def test_the_table_of_rules_is_up_to_date() -> None:
    (block,) = _TABLE.findall(README.read_text(encoding="utf-8"))
    assert block == table(), "run: python tests/test_readme.py"


def test_the_outputs_are_what_the_commands_print(tmp_path: Path) -> None:
    text = README.read_text(encoding="utf-8")
    found = _OUTPUT.findall(text)
    assert found
    for command, shown in found:
        assert shown == output(command, text, tmp_path), "run: python tests/test_readme.py"


def test_the_configuration_is_accepted(tmp_path: Path) -> None:
    text = README.read_text(encoding="utf-8")
    files = dict(_FILE.findall(text))
    (tmp_path / "cudalint.toml").write_text(files["cudalint.toml"], encoding="utf-8")
    (tmp_path / "include").mkdir()
    shown = output("cudalint check --select CL301 reverse.cu", text, tmp_path)
    assert "CL301" in shown
    assert "cudalint.toml" not in shown


def test_the_commands_are_where_ci_looks_for_them() -> None:
    text = README.read_text(encoding="utf-8")
    for name, says in (("check", "cudalint check fixtures/"), ("test", "pytest")):
        (command,) = re.findall(rf"<!-- command: {name} -->\n```\w*\n(.*?)\n```", text, re.DOTALL)
        assert says in command
        assert "pip install" in command


def _renewed(text: str) -> str:
    text = _TABLE.sub(lambda _: table(), text)
    with tempfile.TemporaryDirectory() as folder:
        return _OUTPUT.sub(lambda m: f"{m[1]} -->\n```\n{output(m[1], text, Path(folder))}", text)


if __name__ == "__main__":
    README.write_text(_renewed(README.read_text(encoding="utf-8")), encoding="utf-8")
