"""The launch built-ins as atoms: one each, shared by all flows."""

from __future__ import annotations

from cudalint.facts import terms as t
from cudalint.facts.terms import THREAD, Atom, Term
from cudalint.ir.types import U32

_LIMITS = {"x": (1 << 31) - 1, "y": 65535, "z": 65535}
_BLOCK_LIMITS = {"x": 1024, "y": 1024, "z": 64}
_SPECIALS = {"threadIdx": "tid", "blockIdx": "bid", "blockDim": "bdim", "gridDim": "gdim"}


def special_atom(which: str, axis: str) -> Term:
    """The atom of a launch built-in; one per built-in, so flows of different functions share it."""
    kind = _SPECIALS[which]
    high = _BLOCK_LIMITS[axis] if kind in ("tid", "bdim") else _LIMITS[axis]
    low, high = (0, high - 1) if kind in ("tid", "bid") else (1, high)
    return t.atom(
        Atom(kind, f"{which}.{axis}", low, high, axis=axis, level=THREAD if kind == "tid" else 0), U32
    )  # fmt: skip


SPECIALS: dict[tuple[str, str], Term] = {(w, a): special_atom(w, a) for w in _SPECIALS for a in "xyz"}
TID = {a: SPECIALS["threadIdx", a] for a in "xyz"}
BID = {a: SPECIALS["blockIdx", a] for a in "xyz"}
BDIM = {a: SPECIALS["blockDim", a] for a in "xyz"}
GDIM = {a: SPECIALS["gridDim", a] for a in "xyz"}
