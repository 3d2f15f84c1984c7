"""``--add-ignore``: suppressions for what was found, put into the sources as comments."""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import TYPE_CHECKING

from cudalint.errors import UsageError
from cudalint.findings import Span, plural
from cudalint.fix import edited
from cudalint.frontend.embedded import sources
from cudalint.frontend.source import MAX_HOST, decode, encode, is_host, read
from cudalint.lazy import NamedTuple
from cudalint.suppress import LEXEME, directives

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from cudalint.engine import Result

_WIDTH = 120
"""Columns; where a comment would reach beyond, it gets a line of its own."""
_LINE = re.compile(rb"([^\r\n]*)(\r\n|\r|\n|\Z)")


class Ignored(NamedTuple):
    """``written`` says what stands where now; ``problems``, of files that cannot be written, ``left``, of findings for
    which no comment can speak, and ``summary`` are lines for people."""

    problems: list[str]
    written: list[str]
    left: list[str]
    summary: str


def ignore(
    result: Result, again: Callable[[Mapping[str, bytes]], Result], told: Callable[[Span], str], reason: str,
    write: Callable[[Mapping[str, bytes]], Mapping[str, str]],
) -> Ignored:  # fmt: skip
    """Suppress what was found. ``again`` checks once more, with these contents; ``told`` names a place; ``write`` puts
    contents (bytes on disk, by absolute path) there and says of which paths it could not."""
    reason = reason.strip()
    if not reason.isprintable() or reason.endswith(("\\", "??/")) or "cudalint:" in reason:
        raise UsageError("--add-ignore: a reason is one line of text, and no backslash ends it")
    wanted: dict[str, list[tuple[Span, str]]] = {}
    for finding, place in zip(result.findings, result.places, strict=True):
        wanted.setdefault(place.file, []).append((place, finding.code))
    texts: dict[str, bytes] = {}
    comments: dict[str, list[tuple[Span, str]]] = {}
    for path, places in wanted.items():
        data, error = read(path, MAX_HOST)
        if error is None and decode(data).error is None:
            new, comments[path] = add_at(path, data, places, reason)
            if new != data:
                texts[path] = new
    failed = write(texts)
    texts = {path: text for path, text in texts.items() if path not in failed}
    written = [f"{told(at)}: {what}" for path, made in comments.items() if path not in failed for at, what in made]
    known = {finding.fingerprint for finding in result.findings}
    left = [f for f in again(texts).findings if f.fingerprint in known] if texts else result.findings
    summary = f"{plural(len(result.findings) - len(left), 'finding')} ignored in {plural(len(texts), 'file')}"
    unspoken = [f for f in left if f.span.file not in failed]
    rest = [f"{told(f.span)}: {f.code} {f.name} is left: no comment can speak for it" for f in unspoken]
    return Ignored([*failed.values()], written, rest, summary)


def add_at(
    path: str, data: bytes, wanted: Iterable[tuple[Span, str]], reason: str = ""
) -> tuple[bytes, list[tuple[Span, str]]]:
    """A file with suppressions of codes at places in it; and what was written where. In a notebook or a Python file
    they stand in the CUDA text, and there are none where that cannot be written."""
    lines: dict[str, dict[int, set[str]]] = {}
    for span, code in wanted:
        if span.inside is not None or not is_host(path):
            lines.setdefault(span.text.file, {}).setdefault(span.text.line, set()).add(code)
    if not is_host(path):
        new, written = add(data, lines.get(path, {}), reason)
        return new, [(Span(path, line, 1, line, 1), comment) for line, comment in written]
    texts, edits = sources(path, data), []
    comments: dict[str, list[tuple[int, str]]] = {}
    for name, places in lines.items():
        new, written = add(texts[name].raw, places, reason)
        made = texts[name].rewritten(new)
        if made is not None:
            edits += made
            comments[name] = written
    new = edited(data, edits) if edits else data
    texts = sources(path, new)
    return new, [(texts[name].outward((at, 1), (at, 1)), what) for name, told in comments.items() for at, what in told]


def add(data: bytes, wanted: Mapping[int, Iterable[str]], reason: str = "") -> tuple[bytes, list[tuple[int, str]]]:
    """A file with suppressions of the codes that are wanted at its lines; and what was written, with the lines where
    it stands now. Encoding and line ends stay."""
    before = decode(data)
    text = _Text(before.raw)
    for line, codes in sorted(wanted.items()):
        text.ignore(line, ", ".join(sorted(codes)), f": {reason}" if reason else "")
    raw, written = text.joined()
    return encode(raw.decode(), before), written


class _Text:
    """Lines (without their ends), and what is to be written within, behind and above them."""

    def __init__(self, raw: bytes) -> None:
        lines = [(match.start(), match[1].decode(), match[2].decode()) for match in _LINE.finditer(raw)]
        if len(lines) > 1 and lines[-1][0] == len(raw):  # behind the last line end
            del lines[-1]
        self._lines = [line for _, line, _ in lines]
        self._line_ends = [end for _, _, end in lines]
        self._stops = [start + len(line.encode()) for start, line, _ in lines]
        self._spans = [lexeme.span() for lexeme in LEXEME.finditer(raw)]
        self._directives = directives(raw)
        self._above: dict[int, list[str]] = {}
        self._written: dict[int, str] = {}

    def ignore(self, line: int, codes: str, reason: str) -> None:
        if self._extend(line, codes):
            return
        text = self._lines[line - 1]
        comment = f"// cudalint: ignore[{codes}]{reason}"
        if self._ends(line) and len(text) + 1 + len(comment) <= _WIDTH:
            self._lines[line - 1] = f"{text.rstrip()} {comment}"
            self._written[line] = comment
        elif self._ends(line - 1):
            self._put_above(line, text, f"// cudalint: ignore-next-line[{codes}]{reason}")
        else:
            first, last = line, line
            while not self._ends(first - 1):
                first -= 1
            while last < len(self._lines) and not self._ends(last):
                last += 1
            self._put_above(first, text, f"// cudalint: disable[{codes}]{reason}")
            self._put_above(last + 1, text, f"// cudalint: enable[{codes}]")

    def _put_above(self, line: int, text: str, comment: str) -> None:
        indent = text[: len(text) - len(text.lstrip(" \t"))]
        self._above.setdefault(line, []).append(indent + comment)

    def _extend(self, line: int, codes: str) -> bool:
        """Name the codes in a comment that speaks for the line already, if there is one."""
        for directive in self._directives:
            if directive.lines != (line, line) or directive.fault or not directive.word.startswith("ignore"):
                continue
            number, column = directive.end
            text = self._lines[number - 1]
            stop = text.index("]", column - 1)
            self._lines[number - 1] = f"{text[:stop].rstrip()}, {codes}{text[stop:]}"
            begin = text.rindex("cudalint:", 0, column)
            self._written[number] = f"{self._lines[number - 1][begin : stop + len(codes) + 3]}"
            return True
        return False

    def _ends(self, line: int) -> bool:
        """May a comment stand at the end of a line, and another line below it: does nothing there go on?"""
        if line == 0:
            return True
        if self._lines[line - 1].rstrip().endswith(("\\", "??/")):
            return False
        stop = self._stops[line - 1]
        at = bisect_right(self._spans, (stop,)) - 1
        return at < 0 or self._spans[at][1] <= stop

    def joined(self) -> tuple[bytes, list[tuple[int, str]]]:
        newline = self._line_ends[0] or "\n"
        pieces: list[str] = []
        written: list[tuple[int, str]] = []
        lines = [*zip(self._lines, self._line_ends, strict=True), ("", "")]
        number = 0
        for line, (text, end) in enumerate(lines, 1):
            for comment in self._above.get(line, ()):
                if pieces and not pieces[-1]:
                    pieces[-1] = newline
                number += 1
                written.append((number, comment.strip()))
                pieces += (comment, newline)
            number += 1
            if line in self._written:
                written.append((number, self._written[line]))
            pieces += (text, end)
        return "".join(pieces).encode(), written
