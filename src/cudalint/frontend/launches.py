"""Kernel launches in all their forms."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudalint.frontend.calls import Calls, signature, takes
from cudalint.frontend.declare import qualified_text
from cudalint.frontend.parse import comma_separated
from cudalint.ir.nodes import (
    AddrOf,
    Cast,
    Construct,
    Expr,
    Index,
    Launch,
    Ref,
    Var,
)
from cudalint.ir.types import (
    DIM3,
    I32,
    VOID,
    Struct,
    Type,
)

if TYPE_CHECKING:
    from tree_sitter import Node

    from cudalint.ir.nodes import FunctionDecl, LaunchForm

_LAUNCH_CALLS: dict[str, LaunchForm] = {
    "cudaLaunchKernel": "cudaLaunchKernel", "cudaLaunchCooperativeKernel": "cudaLaunchCooperativeKernel",
    "cudaLaunchKernelEx": "cudaLaunchKernelEx", "cudaLaunchKernelExC": "cudaLaunchKernelEx",
    "hipLaunchKernelGGL": "hipLaunchKernelGGL", "hipLaunchKernel": "cudaLaunchKernel",
    "hipLaunchCooperativeKernel": "cudaLaunchCooperativeKernel",
}  # fmt: skip
_KERNEL_WRAPPERS = frozenset({"reinterpret_cast", "static_cast", "HIP_KERNEL_NAME", "HIP_SYMBOL", "KERNEL_NAME"})


class Launches(Calls):
    """Adds launches to :class:`~cudalint.frontend.calls.Calls`.

    ``configs`` holds what was assigned to the fields of each ``cudaLaunchConfig_t``, None for a
    field that was assigned twice.
    """

    configs: dict[Var, dict[str, Expr | None]]

    def kernel_name(self, node: Node) -> tuple[str, Expr | None, list[Type | Expr], Struct | None]:
        """The kernel that an expression names: name, callee when it is a value, template arguments, class."""
        while True:
            kind = node.type
            if kind == "parenthesized_expression" and node.child_count == 3:
                node = node.children[1]
            elif kind == "cast_expression" or (kind == "pointer_expression" and node.children[0].type == "&"):
                node = node.children[-1]
            elif kind == "call_expression":
                function, arguments = node.children[0], node.children[-1]
                named = arguments.named_children
                text = self.text(function.children[0] if function.type == "template_function" else function)
                if text in _KERNEL_WRAPPERS and len(named) == 1:
                    node = named[0]
                else:
                    return "", self.expr(node), [], None
            else:
                break
        if kind == "identifier":
            name = self.text(node)
            found = self.names.get(name)
            if isinstance(found, Var):
                return "", Ref(node.start_byte, node.end_byte, found), [], None
            return name, None, [], None
        if kind == "template_function":
            return self.text(node.children[0]), None, [self.argument(c) for c in node.children[-1].named_children], None
        if kind == "qualified_identifier":
            last, templated = node, False
            while last.type == "qualified_identifier":
                templated = templated or last.children[0].type == "template_type"
                last = last.children[-1]
            if last.type == "dependent_name":
                last = last.children[-1]
            targs = (
                [self.argument(c) for c in last.children[-1].named_children]
                if last.type in ("template_function", "template_type")
                else []
            )
            outer = self.qualified_outer(node) if templated else None
            return qualified_text(self.s, node), None, targs, outer if isinstance(outer, Struct) else None
        return "", self.expr(node), [], None

    def kernel(
        self, name: str, args: list[Expr] | None, targs: list[Type | Expr], class_: Struct | None
    ) -> FunctionDecl | None:
        if not name:
            return None
        candidates = self.scope.functions(name, self.prefix)
        if self.this is not None and not candidates:
            candidates = self.methods(self.this, name)
        if class_ is not None:
            candidates = self.methods(class_, name.rpartition("::")[2]) or candidates
        candidates = [f for f in candidates if f.kind == "kernel"]
        if not candidates:
            return None
        if args is None:
            fitting = [f for f in candidates if bool(f.template) == bool(targs)] or candidates
            return fitting[0]
        chosen = self.choose(candidates, args, targs)
        if chosen is None and len({f.qualname for f in candidates}) == 1:
            # A null stands for any pointer, a class for what it converts to: with one kernel there is no doubt.
            fitting = [f for f in candidates if takes(signature(f), len(args))]
            chosen = fitting[0] if fitting and len({tuple(f.params) for f in fitting}) == 1 else None
        return chosen

    def kernel_call(self, n: Node, function: Node, config: Node, arguments: Node) -> Expr:
        name, callee, targs, class_ = self.kernel_name(function)
        parts: list[Expr | None] = [self.initialiser_dim(c) for c in config.named_children]
        args = self.arguments(arguments)
        parts += [None] * (4 - len(parts))
        target = self.kernel(name, args, targs, class_)
        return Launch(
            n.start_byte, n.end_byte, VOID, name, "<<<>>>", parts[0], parts[1], parts[2], parts[3], args,
            callee=callee, targs=targs, target=target,
        )  # fmt: skip

    def initialiser_dim(self, node: Node) -> Expr:
        """A launch dimension; braces make a dim3."""
        if node.type == "initializer_list":
            return self.braced(node, DIM3)
        if node.type == "parenthesized_expression" and self.file.text[node.start_byte : node.start_byte + 1] == b"{":
            # The parser saw parentheses.
            return Construct(
                node.start_byte, node.end_byte, DIM3, [self.expr(n) for n in comma_separated(node.children[1])]
            )
        return self.expr(node)

    def launch_call(self, n: Node, name: str, arguments: Node) -> Expr | None:
        form = _LAUNCH_CALLS.get(name)
        if form is None:
            return None
        nodes = arguments.named_children
        a, b = n.start_byte, n.end_byte
        if name.startswith("cudaLaunchKernelEx"):
            if len(nodes) < 2:
                return None
            kernel, callee, targs, class_ = self.kernel_name(nodes[1])
            args: list[Expr] | None
            if name.endswith("C"):
                args = self.traced_array(nodes[2]) if len(nodes) > 2 else None
            else:
                args = [self.expr(c) for c in nodes[2:]]
            grid, block, shared, stream = self.traced_config(nodes[0])
            target = self.kernel(kernel, args, targs, class_)
            return Launch(
                a, b, I32, kernel, form, grid, block, shared, stream, args, callee=callee, targs=targs, target=target
            )
        if form == "hipLaunchKernelGGL":
            if len(nodes) < 5:
                return None
            kernel, callee, targs, class_ = self.kernel_name(nodes[0])
            grid, block = self.initialiser_dim(nodes[1]), self.initialiser_dim(nodes[2])
            shared, stream = self.expr(nodes[3]), self.expr(nodes[4])
            args = [self.expr(c) for c in nodes[5:]]
            target = self.kernel(kernel, args, targs, class_)
            return Launch(
                a, b, VOID, kernel, form, grid, block, shared, stream, args, callee=callee, targs=targs, target=target
            )
        if len(nodes) < 4:
            return None
        kernel, callee, targs, class_ = self.kernel_name(nodes[0])
        grid, block = self.initialiser_dim(nodes[1]), self.initialiser_dim(nodes[2])
        args = self.traced_array(nodes[3])
        shared = self.expr(nodes[4]) if len(nodes) > 4 else None
        stream = self.expr(nodes[5]) if len(nodes) > 5 else None
        target = self.kernel(kernel, args, targs, class_)
        return Launch(
            a, b, I32, kernel, form, grid, block, shared, stream, args, callee=callee, targs=targs, target=target
        )

    def traced_array(self, node: Node) -> list[Expr] | None:
        """The kernel's arguments behind ``args`` in ``void* args[] = {&a, &b}``."""
        value = self.expr(node)
        while isinstance(value, Cast):
            value = value.operand
        if isinstance(value, AddrOf) and isinstance(value.operand, Index) and isinstance(value.operand.base, Ref):
            value = value.operand.base
        init = value.var.init if isinstance(value, Ref) and value.var.kind == "local" else value
        if not isinstance(init, Construct):
            return None
        result = []
        for arg in init.args:
            while isinstance(arg, Cast):
                arg = arg.operand
            if not isinstance(arg, AddrOf):
                return None
            result.append(arg.operand)
        return result

    def traced_config(self, node: Node) -> tuple[Expr | None, Expr | None, Expr | None, Expr | None]:
        """grid, block, shared bytes and stream assigned to a ``cudaLaunchConfig_t`` before this launch."""
        value = self.expr(node)
        if isinstance(value, AddrOf):
            value = value.operand
        if not isinstance(value, Ref):
            return None, None, None, None
        fields = self.configs.get(value.var, {})
        if not fields and isinstance(value.var.init, Construct) and len(value.var.init.args) >= 2:
            init: list[Expr | None] = [*value.var.init.args, None, None]
            return init[0], init[1], init[2], init[3]
        return fields.get("gridDim"), fields.get("blockDim"), fields.get("dynamicSmemBytes"), fields.get("stream")
