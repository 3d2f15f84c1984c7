"""CL207 partial-warp-block: a block whose last warp is never full."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudalint.facts import witness as w
from cudalint.findings import Witness, plural
from cudalint.rules import launches
from cudalint.rules.draft import Draft

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudalint.facts.model import Launch

CODES = ("CL207",)

_WARP, _THREADS = 32, 1024


def check(launch: Launch) -> Iterator[Draft]:
    sides = [launch.known_block(axis) for axis in "xyz"]
    x, y, z = (side or 0 for side in sides)
    threads = x * y * z
    if not 1 < threads <= _THREADS or threads % _WARP == 0 or not all(w.allowed(c, {}) for c in launch.conditions):
        return
    idle = -threads % _WARP
    event = launch.event
    yield Draft(
        "CL207", event.fn, event.fn.file, event.node.start, event.node.end,
        f"a block of {threads} threads is no multiple of 32: {plural(idle, 'lane')} of its last warp "
        f"{'is' if idle == 1 else 'are'} idle, in every block",
        "use a multiple of 32 threads a block, with a guard for what is left over",
        Witness({}, None, (x, y, z), None, {"idle lanes in every block": idle}), launches.callers(launch),
    )  # fmt: skip
