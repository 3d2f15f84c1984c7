"""What a module defines at its head, at less cost: a check of one file uses few of these."""

from __future__ import annotations

import re
from collections import namedtuple
from typing import TYPE_CHECKING, Any, AnyStr, cast

if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple
else:

    class _Meta(type):
        """typing's own compiles each annotation, to no end where annotations are strings: half of a class's cost."""

        def __new__(cls, name, bases, body):  # noqa: ARG004  # bases: what a metaclass is given
            fields = body.get("__annotations__", {})
            defaults = [body.pop(field) for field in fields if field in body]
            made = namedtuple(name, fields, defaults=defaults, module=body["__module__"])
            for attribute, value in body.items():
                setattr(made, attribute, value)
            return made

    NamedTuple = type.__new__(_Meta, "NamedTuple", (), {})


class _Pattern:
    def __init__(self, *arguments: Any) -> None:
        self._arguments = arguments

    def __getattr__(self, name: str) -> Any:
        value = getattr(re.compile(*self._arguments), name)
        setattr(self, name, value)
        return value


def pattern(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """A regular expression that is compiled when it is first used."""
    return cast("re.Pattern[AnyStr]", _Pattern(text, flags))
