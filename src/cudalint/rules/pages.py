"""The rules' pages (``rules/CL301-return-before-barrier.md``): the one source of a rule's metadata.

The pages lie beside this module in a wheel and at the top of the repository in a source checkout.
"""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING, cast

from cudalint import rules
from cudalint.lazy import NamedTuple

if TYPE_CHECKING:
    from cudalint.findings import Level

GROUPS = ("width", "launch", "barrier", "tail", "axis", "file", "pedantic")
URL = "https://github.com/cudalint/cudalint/blob/main/rules/"
_FENCE = "---\n"


class Page(NamedTuple):
    """A rule's metadata. ``fixable`` is safe, unsafe or no; ``default`` is false for an opt-in rule."""

    code: str
    name: str
    level: Level
    group: str
    default: bool
    fixable: str
    path: str

    @property
    def url(self) -> str:
        return URL + os.path.basename(self.path)

    @property
    def text(self) -> str:
        """The page's Markdown, front matter excluded."""
        with open(self.path, encoding="utf-8") as file:
            return file.read().split(_FENCE, 2)[2].lstrip("\n")

    @property
    def summary(self) -> str:
        """The first paragraph, on one line."""
        return " ".join(self.text.split("\n\n", 2)[1].split())


def _folders() -> list[str]:
    packaged = [os.path.join(folder, "pages") for folder in rules.__path__]
    checkout = os.path.join(os.path.dirname(rules.__file__ or ""), "..", "..", "..", "rules")
    return [os.path.normpath(folder) for folder in (*packaged, checkout) if os.path.isdir(folder)]


def _parse(path: str) -> Page:
    """The front matter: ``key: value`` lines between two ``---``, ``#`` starts a comment."""
    fields: dict[str, str] = {}
    with open(path, encoding="utf-8") as file:
        if file.readline() != _FENCE:
            raise ValueError(f"{path}: no front matter")
        for line in file:
            if line == _FENCE:
                break
            key, _, value = line.partition("#")[0].partition(":")
            if key.strip():
                fields[key.strip()] = value.strip()
    try:
        level = cast("Level", fields["level"])
        default = {"true": True, "false": False}[fields["default"]]
        return Page(fields["code"], fields["name"], level, fields["group"], default, fields["fixable"], path)
    except KeyError as missing:
        raise ValueError(f"{path}: front matter lacks or misspells {missing}") from None


@cache
def pages() -> dict[str, Page]:
    """Every rule's page by code, in the order of the codes."""
    found: dict[str, Page] = {}
    for folder in _folders():
        for name in os.listdir(folder):
            if name.startswith("CL") and name.endswith(".md"):
                page = _parse(os.path.join(folder, name))
                found.setdefault(page.code, page)
    return dict(sorted(found.items()))


@cache
def by_name() -> dict[str, Page]:
    """Every rule's page by code and by name."""
    return {key: page for page in pages().values() for key in (page.code, page.name)}
