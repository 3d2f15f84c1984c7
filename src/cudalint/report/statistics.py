"""``--statistics``: findings by rule, and what was read."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from cudalint.findings import digits, plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cudalint.findings import Finding


def render(findings: Sequence[Finding], *, files: int, lines: int, seconds: float, held_back: int) -> Iterator[str]:
    """``held_back``: findings that a suppression or the baseline keeps from the report."""
    counts = Counter((f.code, f.name, f.level) for f in findings)
    width = max((len(digits(count)) for count in counts.values()), default=1)
    for (code, name, level), count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        yield f"{digits(count):>{width}}  {code}  {level:<7}  {name}\n"
    hidden = f", {digits(held_back)} more suppressed or in the baseline" if held_back else ""
    read = f"{plural(files, 'file')}, {plural(lines, 'line')}, {seconds:.2f} s"
    yield f"{plural(len(findings), 'finding')}{hidden} in {read}\n"
