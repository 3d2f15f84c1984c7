"""Texts as an editor counts them, and the way from one version of a text to the next."""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

from lsprotocol import types

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudalint.findings import Span

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|\Z)")
_COMPARED = 4_000_000
"""Pairs of lines up to which it is worth while to look for what two changes left between them."""
_WIDTH = {types.PositionEncodingKind.Utf8: "utf-8", types.PositionEncodingKind.Utf16: "utf-16-le"}


class Lines:
    """The lines of a text. The editor's positions are 0-based and count code units of the encoding that was agreed on;
    ours are 1-based and count code points. Lines end where the protocol says: not at a form feed or U+2028."""

    def __init__(self, text: str, encoding: str) -> None:
        self.lines = _LINE.findall(text)
        if len(self.lines) > 1 and not self.lines[-1] and self.lines[-2] and self.lines[-2][-1] not in "\r\n":
            self.lines.pop()  # the empty match at the very end of a last line
        self._encoding = _WIDTH.get(types.PositionEncodingKind(encoding))

    @property
    def newline(self) -> str:
        """How the first line ends."""
        return self.lines[0][len(self.lines[0].rstrip("\r\n")) :] or "\n"

    def position(self, line: int, column: int) -> types.Position:
        text = self.lines[line - 1][: column - 1] if line <= len(self.lines) else ""
        return types.Position(line - 1, self._units(text))

    def _units(self, text: str) -> int:
        if self._encoding is None or text.isascii():
            return len(text)
        size = len(text.encode(self._encoding, "surrogatepass"))
        return size // 2 if self._encoding == "utf-16-le" else size

    def range(self, span: Span) -> types.Range:
        return types.Range(self.position(span.line, span.column), self.position(span.end_line, span.end_column))

    def place(self, position: types.Position) -> tuple[int, int]:
        """The line and column of an editor's position; one inside a character is taken to be before it."""
        if position.line >= len(self.lines):
            return len(self.lines) + 1, 1
        text = self.lines[position.line].rstrip("\r\n")
        if self._encoding is None or text.isascii():
            return position.line + 1, min(position.character, len(text)) + 1
        units = 0
        for column, character in enumerate(text, 1):
            units += self._units(character)
            if units > position.character:
                return position.line + 1, column
        return position.line + 1, len(text) + 1


class Moves:
    """Where the lines of a text are in a later version of it."""

    def __init__(self, old: Sequence[str], new: Sequence[str]) -> None:
        most = min(len(old), len(new))
        same = next((i for i in range(most) if old[i] != new[i]), most)
        after = next((i for i in range(most - same) if old[-1 - i] != new[-1 - i]), most - same)
        blocks: list[tuple[int, int, int]] = []
        one, other = old[same : len(old) - after], new[same : len(new) - after]
        if one and other and len(one) * len(other) < _COMPARED:
            # Mostly there is one change; what lies between two is looked at line by line.
            between = SequenceMatcher(None, one, other, autojunk=False).get_matching_blocks()
            blocks = [(same + a, same + b, size) for a, b, size in between]
        self._blocks = [(0, 0, same), *blocks, (len(old) - after, len(new) - after, after)]

    def line(self, line: int) -> int | None:
        """The line's number now; None if it is among those that were changed."""
        for start, now, size in self._blocks:
            if start < line <= start + size:
                return line - start + now
        return None

    def span(self, span: Span) -> Span | None:
        """The span now; None if one of its lines was changed."""
        first, last = self.line(span.line), self.line(span.end_line)
        if first is None or last is None or last - first != span.end_line - span.line:
            return None
        return span._replace(line=first, end_line=last)
