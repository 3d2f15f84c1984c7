"""Which rules run: selectors resolved over the pages.

A selector is ``ALL``, a group, a prefix (``CL3``), a code or a name, in rising order of weight. Where
several speak about one rule the weightiest decides, and between equals ``ignore`` wins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cudalint.errors import UsageError, closest
from cudalint.rules.pages import GROUPS, Page, by_name, pages

if TYPE_CHECKING:
    from collections.abc import Iterable

_EXACT = 100


class Selection(NamedTuple):
    """``codes`` run; of ``forms`` the opt-in form (pedantic) is kept too."""

    codes: frozenset[str]
    forms: frozenset[str]


class Layer(NamedTuple):
    """What one place (the configuration, the command line) says. ``where`` names it in errors."""

    where: str
    select: tuple[str, ...] | None = None
    extend: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()


def weight(selector: str, page: Page, *, form: bool = False) -> int:
    """How specifically ``selector`` names the rule (with ``form``: its opt-in form); 0 if it does not."""
    if selector == "ALL":
        return 1
    if form:
        return 10 if selector == "pedantic" else 0
    if selector in (page.code, page.name):
        return _EXACT
    if selector == page.group:
        return 10
    if selector.startswith("CL") and page.code.startswith(selector):
        return 7 + len(selector)  # CL1 weighs as much as the group of its rules
    return 0


def validate(selectors: Iterable[str], where: str) -> None:
    """Raise UsageError for a selector that names nothing."""
    for selector in selectors:
        if selector in GROUPS or selector == "ALL":
            continue
        if not any(weight(selector, page) for page in pages().values()):
            known = ["ALL", *GROUPS, *by_name()]
            raise UsageError(f"unknown rule '{selector}' in {where}{closest(selector, known)}")


def resolve(layers: Iterable[Layer]) -> Selection:
    """The layers in rising order of authority; one that has ``select`` replaces what is below it."""
    codes = {page.code for page in pages().values() if page.default}
    forms: set[str] = set()
    for layer in layers:
        validate((*(layer.select or ()), *layer.extend, *layer.ignore), layer.where)
        if layer.select is not None:
            codes, forms = set(), set()
        chosen = (*(layer.select or ()), *layer.extend)
        for page in pages().values():
            against = max((weight(s, page) for s in layer.ignore), default=0)
            for form, into in ((False, codes), (True, forms)):
                wanted = max((weight(s, page, form=form) for s in chosen), default=0)
                if wanted > against:
                    into.add(page.code)
                elif against:
                    into.discard(page.code)
    return Selection(frozenset(codes), frozenset(forms))
