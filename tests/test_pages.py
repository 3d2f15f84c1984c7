"""The rules' pages: front matter, sections, and that every rule has one and every page a rule."""

from __future__ import annotations

import re

import pytest
from conftest import ROOT

from cudalint.engine import GAP, UNUSED
from cudalint.rules.pages import GROUPS, pages
from cudalint.rules.registry import checks

SECTIONS = ["What it does", "Why it is bad", "Example", "Use instead", "When it is right to ignore", "References"]


@pytest.mark.parametrize("page", pages().values(), ids=pages())
def test_page(page):
    assert page.path.endswith(f"/rules/{page.code}-{page.name}.md")
    assert re.fullmatch(r"CL[0-5]\d\d", page.code)
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", page.name)
    assert page.level in ("error", "warning", "note")
    assert page.group in GROUPS
    assert page.fixable in ("safe", "unsafe", "no")
    assert page.text.startswith(f"# {page.name} ({page.code})\n\n")
    assert page.summary.endswith(".")
    assert len(page.summary) < 200
    sections = re.split(r"^## (.+)$", page.text, flags=re.MULTILINE)
    titles, bodies = sections[1::2], sections[2::2]
    # shown output and the like may have sections of their own
    assert [title for title in titles if title in SECTIONS] == SECTIONS
    assert all(body.strip() for body in bodies)


def test_every_file_in_rules_is_a_page():
    assert sorted(p.name for p in (ROOT / "rules").iterdir()) == [f"{p.code}-{p.name}.md" for p in pages().values()]


def test_every_rule_has_a_page_and_every_page_a_rule():
    from cudalint.rules import registry

    codes = [code for module in registry._modules().values() for code in module]
    assert len(codes) == len(set(codes))
    assert sorted({*codes, GAP, UNUSED}) == sorted(pages())


def test_every_check_says_what_it_is_asked_about():
    from cudalint.facts import model

    for subject, found in checks(frozenset(pages())).items():
        assert hasattr(model, subject), found
