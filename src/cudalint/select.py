"""Which rules run: selectors resolved over the pages.

A selector is ``ALL``, a group, a prefix (``CL3``), a code or a name, in rising order of weight, in small letters
or capitals. Where several speak about one rule the weightiest decides, and between equals ``ignore`` wins.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from cudalint.errors import UsageError, closest
from cudalint.lazy import NamedTuple, pattern
from cudalint.rules.pages import GROUPS, Page, by_name, pages

if TYPE_CHECKING:
    from collections.abc import Iterable

_EXACT = 100
_CODE = pattern(r"CL\d\w*")


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


@cache
def canonical(selector: str) -> str:
    """The selector as the pages spell it: codes, prefixes and ALL in capitals, names and groups in small letters."""
    upper = selector.upper()
    return upper if upper in ("ALL", "CL") or _CODE.fullmatch(upper) else selector.lower()


def named(selector: str) -> frozenset[str]:
    """The codes of the rules that the selector names; none if it names nothing (or only an opt-in form)."""
    return frozenset(page.code for page in pages().values() if weight(selector, page))


def suggestion(selector: str) -> str:
    """What to say after "unknown rule": the rules of that family, or the name that is nearest."""
    code = canonical(selector)
    if not _CODE.fullmatch(code):
        return closest(code, ("ALL", *GROUPS, *by_name()))
    family = sorted(named(code[:3]))
    return f"; the rules of {code[:3]} are {', '.join(family)}" if family else "; 'cudalint rules' lists them"


def one_rule(word: str) -> Page:
    """The page of a code or name. UsageError for what names no rule or several."""
    page = by_name().get(canonical(word))
    if page is None:
        several = sorted(named(word))
        if several:
            kind = "group" if canonical(word) in GROUPS else "prefix"
            raise UsageError(f"'{word}' is a {kind}; its rules are {', '.join(several)}")
        raise UsageError(f"unknown rule '{word}'{suggestion(word)}")
    return page


def weight(selector: str, page: Page, *, form: bool = False) -> int:
    """How specifically ``selector`` names the rule (with ``form``: its opt-in form); 0 if it does not."""
    selector = canonical(selector)
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
        if not is_selector(selector):
            raise UsageError(f"unknown rule '{selector}' in {where}{suggestion(selector)}")


def is_selector(selector: str) -> bool:
    """Whether it may stand where rules are selected."""
    return canonical(selector) in GROUPS or bool(named(selector))


def resolve(layers: Iterable[Layer]) -> Selection:
    """The layers in rising order of authority; one that has ``select`` replaces what is below it."""
    codes = {page.code for page in pages().values() if page.default}
    forms: set[str] = set()
    for layer in layers:
        validate((*(layer.select or ()), *layer.extend, *layer.ignore), layer.where)
        if layer.select == ():
            raise UsageError(f"'select' in {layer.where} names no rule, so nothing would be checked")
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
