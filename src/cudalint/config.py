"""The configuration: ``[tool.cudalint]`` of a ``pyproject.toml``, ``cudalint.toml`` or ``.cudalint.toml``.

A file is checked under the nearest one up its tree. Reading is lazy: where there is none, no TOML
parser is loaded.
"""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING, Any, cast

from cudalint.errors import UsageError, closest, refuse_endless
from cudalint.lazy import NamedTuple, pattern
from cudalint.select import Layer, Selection, resolve, validate, weight

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cudalint.findings import Level
    from cudalint.rules.pages import Page

FILES = (".cudalint.toml", "cudalint.toml", "pyproject.toml")
LEVELS = ("error", "warning", "note")
_KEY = rb"""(?:[\w-]+|"[^"\n]*"|'[^'\n]*')"""
_DEEP_KEY = pattern(rb"(?<![\w-])(?:%s[ \t]*\.[ \t]*){500}" % _KEY)
"""A key of more parts than anybody writes: to read it takes the square of their number."""


class Config(NamedTuple):
    """The configuration as written. Globs and paths are relative to ``base``.

    ``max_elements``: larger sizes are taken as impossible (None: no limit). ``block_size`` threads a
    block and ``sm_count`` multiprocessors are assumed where the source shows none.
    """

    base: str
    file: str | None = None
    select: tuple[str, ...] | None = None
    ignore: tuple[str, ...] = ()
    extend_select: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    per_file_ignores: tuple[tuple[str, tuple[str, ...]], ...] = ()
    include_paths: tuple[str, ...] = ()
    defines: tuple[tuple[str, str], ...] = ()
    max_elements: int | None = None
    block_size: int = 256
    sm_count: int = 40
    level: tuple[tuple[str, Level], ...] = ()


class Settings(NamedTuple):
    """What a file is checked under. ``root`` is its project's, absolute; fingerprints and includes start there."""

    root: str
    config: Config
    selection: Selection

    def level_of(self, page: Page, level: Level) -> Level:
        """``level`` unless the configuration overrides it; the most specific selector decides."""
        weighed = [(weight(selector, page), to) for selector, to in self.config.level]
        return max(weighed, key=lambda item: item[0], default=(0, level))[1] if any(w for w, _ in weighed) else level

    def ignored(self, path: str, page: Page) -> bool:
        """Does a ``per-file-ignores`` glob that matches ``path`` name the rule?"""
        return any(
            any(weight(s, page) for s in selectors) and matches(self.config.base, (glob,), path)
            for glob, selectors in self.config.per_file_ignores
        )


def matches(base: str, globs: tuple[str, ...], path: str) -> bool:
    """Does one of ``globs``, written as in a .gitignore that lies in ``base``, match ``path``?"""
    if not globs:
        return False
    inside = os.path.relpath(path, base).replace(os.sep, "/")
    return not inside.startswith("../") and _spec(globs).match_file(inside)


_specs: dict[tuple[str, ...], Any] = {}


def _spec(globs: tuple[str, ...]) -> Any:
    if globs not in _specs:
        from pathspec import GitIgnoreSpec

        _specs[globs] = GitIgnoreSpec.from_lines(globs)
    return _specs[globs]


class Configs:
    """Finds each file's settings. ``line`` is what the command line selects, on top of the configuration."""

    def __init__(self, line: Layer, *, config: str | None = None, isolated: bool = False) -> None:
        self._line = line
        self._isolated = isolated
        self._fixed = read(config, os.getcwd(), required=True) if config else None
        self._found: dict[str, Config | None] = {}
        self._git: dict[str, str | None] = {}
        self._settings: dict[tuple[str, str | None], Settings] = {}
        resolve((line,))  # a wrong selector is an error even where no file is checked

    def of(self, folder: str, argument: str) -> Settings:
        """The settings of files in ``folder``; ``argument`` is the folder that the user named (both absolute)."""
        config = self._fixed or (None if self._isolated else self._nearest(folder))
        if config is not None and config is not self._fixed:
            root = os.path.dirname(cast("str", config.file))
        else:
            root = self._repository(folder) or argument
        key = (root, config and config.file)
        if key not in self._settings:
            config = config or Config(root)
            layer = Layer(_shown(config.file), config.select, config.extend_select, config.ignore)
            self._settings[key] = Settings(root, config, resolve((layer, self._line)))
        return self._settings[key]

    def _nearest(self, folder: str) -> Config | None:
        if folder not in self._found:
            found = next((c for name in FILES if (c := read(os.path.join(folder, name), folder))), None)
            if found is not None:
                for other in FILES[FILES.index(os.path.basename(found.file or "")) + 1 :]:
                    if _configures(path := os.path.join(folder, other), folder):
                        text = f"{_shown(found.file)} counts, and what {_shown(path)} says of cudalint does not"
                        print(f"cudalint: {text}", file=sys.stderr)
            above = os.path.dirname(folder)
            self._found[folder] = found or (self._nearest(above) if above != folder else None)
        return self._found[folder]

    def _repository(self, folder: str) -> str | None:
        if folder not in self._git:
            above = os.path.dirname(folder)
            if os.path.exists(os.path.join(folder, ".git")):
                self._git[folder] = folder
            else:
                self._git[folder] = self._repository(above) if above != folder else None
        return self._git[folder]


def _configures(path: str, base: str) -> bool:
    """Whether a file has a configuration, a wrong one included."""
    try:
        return read(path, base) is not None
    except UsageError:
        return True


def read(path: str, base: str, *, required: bool = False) -> Config | None:
    """The configuration in a file, or None if there is none in it; UsageError if it is wrong."""
    refuse_endless(path, _shown(path))
    if not required and os.path.isdir(path):
        raise UsageError(f"{_shown(path)}: is no ordinary file")
    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        if not required:
            return None
        raise UsageError(f"{_shown(path)}: no such configuration file") from None
    except OSError as error:
        raise UsageError(f"{_shown(path)}: cannot be read ({error.strerror})") from None
    shared = os.path.basename(path) == "pyproject.toml"
    if shared and b"cudalint" not in data:
        return Config(base, os.path.abspath(path)) if required else None
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    if _DEEP_KEY.search(data) is not None:
        raise UsageError(f"{_shown(path)}: a key has too many parts")
    try:
        table: Any = tomllib.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{_shown(path)}: line {line} is not UTF-8") from None
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise UsageError(f"{_shown(path)}: not valid TOML: {error}") from None
    if shared:
        tool = table.get("tool", {})
        table = tool.get("cudalint") if isinstance(tool, dict) else None
        if table is None:
            return Config(base, os.path.abspath(path)) if required else None
    return _parse(table, base, os.path.abspath(path))


def _shown(path: str | None) -> str:
    if path is None:
        return "the defaults"
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative


def _parse(table: Any, base: str, path: str) -> Config:
    where = _shown(path)
    if not isinstance(table, dict):
        raise UsageError(f"{where}: 'tool.cudalint' must be a table")
    fields: dict[str, Any] = {}
    for key, value in table.items():
        if key not in _KEYS:
            raise UsageError(f"{where}: unknown key '{key}'{closest(key, _KEYS)}")
        try:
            fields[key.replace("-", "_")] = _KEYS[key](value)
        except ValueError as error:
            raise UsageError(f"{where}: '{key}' must be {error}") from None
    config = Config(base, path, **fields)
    for key in ("select", "extend_select", "ignore"):
        validate(getattr(config, key) or (), f"'{key.replace('_', '-')}' of {where}")
    for _, selectors in config.per_file_ignores:
        validate(selectors, f"'per-file-ignores' of {where}")
    validate((selector for selector, _ in config.level), f"'level' of {where}")
    for folder in config.include_paths:
        if not os.path.isdir(os.path.join(base, folder)):
            raise UsageError(f"{where}: 'include-paths': there is no folder '{folder}'")
    return config


def _strings(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ValueError('a list of strings, like ["CL301"]')
    return tuple(value)


def _globs(value: Any) -> tuple[str, ...]:
    globs = _strings(value)
    for glob in globs:
        if not _can_match(glob):
            raise ValueError(f"a list of globs, and '{glob}' matches nothing")
    return globs


def _can_match(glob: str) -> bool:
    """Is it a pattern of a .gitignore that some path may match?"""
    try:
        return any(pattern.regex is not None for pattern in _spec((glob,)).patterns)
    except (ValueError, re.error):
        return False


def _ignores(value: Any) -> tuple[tuple[str, tuple[str, ...]], ...]:
    try:
        ignores = tuple((glob, _strings(selectors)) for glob, selectors in value.items())
    except (AttributeError, ValueError):
        raise ValueError('a table from globs to lists of rules, like { "tests/*" = ["CL204"] }') from None
    _globs([glob for glob, _ in ignores])
    return ignores


def _levels(value: Any) -> tuple[tuple[str, Level], ...]:
    if not isinstance(value, dict) or not all(level in LEVELS for level in value.values()):
        raise ValueError('a table from rules to error, warning or note, like { CL301 = "warning" }')
    return tuple(value.items())


def _defines(value: Any) -> tuple[tuple[str, str], ...]:
    """``NAME`` (then 1) or ``NAME=VALUE``, as after a compiler's ``-D``."""
    try:
        pairs = [each.partition("=") for each in _strings(value)]
    except ValueError:
        pairs = []
    if not isinstance(value, list) or len(pairs) != len(value) or not all(name.isidentifier() for name, _, _ in pairs):
        raise ValueError('a list of macros, like ["USE_FAST", "TILE=32"]')
    return tuple((name, text if equals else "1") for name, equals, text in pairs)


def _positive(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value < 1 << 63:
        raise ValueError("a whole number of at least 1, and of 63 bits at most")
    return value


def _block(value: Any) -> int:
    if not 1 <= _positive(value) <= 1024:
        raise ValueError("a number of threads from 1 to 1024")
    return _positive(value)


_KEYS: Mapping[str, Callable[[Any], Any]] = {
    "select": _strings,
    "ignore": _strings,
    "extend-select": _strings,
    "exclude": _globs,
    "per-file-ignores": _ignores,
    "include-paths": _strings,
    "defines": _defines,
    "max-elements": _positive,
    "block-size": _block,
    "sm-count": _positive,
    "level": _levels,
}
