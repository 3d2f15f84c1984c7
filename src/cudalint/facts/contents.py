"""What the elements of the host's initialised arrays and containers hold, until something may have changed them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudalint.facts import terms as t
from cudalint.facts.assigned import exposed
from cudalint.facts.events import Pointer, chain
from cudalint.facts.state import State
from cudalint.facts.terms import Term
from cudalint.ir import nodes as ir
from cudalint.ir.types import Float, Int

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudalint.facts.events import Value


_MOST = 64
"""Elements that are followed: an array with more is a table, which is not indexed by constants."""


class Contents(State):
    """Elements by their constant indices.

    An object is one on all paths, so what was stored later stands with the guard of the store, and counts only where
    that still holds. Kernels' local arrays differ by thread and are not followed.
    """

    def hold(self, pointer: Pointer, values: Sequence[Term], extent: int | None = None) -> None:
        """``pointer`` is to an object that was initialised with ``values``, its other elements to ``extent`` with 0."""
        type_ = pointer.element
        if not self.device and 0 < max(len(values), extent or 0) <= _MOST and isinstance(type_, (Int, Float)):
            every = [*values, *[t.ZERO] * ((extent or 0) - len(values))]
            self.held[pointer.obj] = {i: (None, t.convert(x, type_)) for i, x in enumerate(every)}

    def follow(self, pointer: Pointer) -> None:
        """``pointer`` is to an array that was just declared: its elements hold what is stored there from here on."""
        if not self.device and 0 < (pointer.obj.extent or 0) <= _MOST and isinstance(pointer.element, (Int, Float)):
            self.held[pointer.obj] = {}

    def held_at(self, pointer: Pointer) -> Term | None:
        """The element that a pointer is to, where it is known."""
        known = self.held.get(pointer.obj)
        guard, value = known.get(_number(pointer), (None, None)) if known is not None else (None, None)
        return value if guard is None or any(x is guard for x in chain(self.guard)) else None

    def hold_at(self, pointer: Pointer, value: Term | None) -> None:
        """``value`` (None: something) was stored there."""
        for obj in pointer.obj.either:
            self.held.pop(obj, None)
        known = self.held.get(pointer.obj)
        if known is None:
            return
        number, container = _number(pointer), pointer.obj.origin[:1]
        # Containers that were copied are one value until one of them is stored to.
        shared = bool(container) and sum(x is container[0] for x in self.env.values()) > 1
        if number is None or shared:
            del self.held[pointer.obj]
        elif value is None:
            known.pop(number, None)
        else:
            known[number] = self.guard, value

    def forget_elements(self, value: Value | None) -> None:
        """An array or a container may have been changed as a whole."""
        if isinstance(value, Pointer):
            for obj in (value.obj, *value.obj.either):
                self.held.pop(obj, None)
        elif isinstance(value, Term):
            self.listed.pop(value, None)
            for (container, _), pointer in self.elements.items():
                if container is value:
                    self.held.pop(pointer.obj, None)

    def forget_exposed(self, node: Any) -> None:
        """What runs more than once may have changed what it names before it comes to read it."""
        if not self.held and not self.listed:
            return
        for var in exposed(node):
            place: Any = self.aliases.get(var, ("var", var))
            self.forget_elements(self.env.get(place[1]) if place[0] == "var" else place[1])

    def list_elements(self, container: Term, node: ir.Construct) -> None:
        """A container was made: from a list of numbers, perhaps."""
        inputs = container.data.inputs
        while len(node.args) == 1 and isinstance(inner := node.args[0], ir.Construct):  # `({a, b})`, `{{a, b}}`
            node, inputs = inner, inputs[0].data.inputs if inputs and inputs[0].op == "atom" else ()
        braced = self.fn.file.text[node.end - 1 : node.end] == b"}"
        if braced and not self.device and len(inputs) == len(node.args) and all(type(x.type) is Int for x in inputs):
            self.listed[container] = inputs


def _number(pointer: Pointer) -> int | None:
    """The element that a pointer is to, counted from the first one; None where that is not known."""
    if pointer.element is not pointer.obj.element or len(pointer.pieces) != 1:
        return None
    index = pointer.pieces[0][0]
    return index.data if index.op == "const" and isinstance(index.data, int) else None
