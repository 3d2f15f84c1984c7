"""Type nodes, declarators and class layout to :mod:`cudalint.ir.types`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from cudalint.frontend.declare import CLASSES, TYPES, TypeDecl, split, template_names
from cudalint.frontend.fold import fold
from cudalint.ir.nodes import Const, Expr, Ref, Var
from cudalint.ir.types import (
    BIT_FIELD,
    BUILTIN_NAMES,
    DIM3,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    Array,
    Int,
    Param,
    Ptr,
    Struct,
    Type,
    Unknown,
)  # fmt: skip
from cudalint.lazy import NamedTuple

if TYPE_CHECKING:
    from tree_sitter import Node

    from cudalint.frontend.declare import Declarations
    from cudalint.frontend.scope import Scope

#: The type of ``auto`` until its initialiser is known.
AUTO = Unknown("auto without an initialiser")
FUNCTION = Unknown("a function")

#: The class behind a project's Struct. Weak, so that an edited file's tree does not stay.
class_of: WeakValueDictionary[Struct, TypeDecl] = WeakValueDictionary()
#: The template arguments of a Struct, project's or not.
arguments_of: dict[Struct, tuple[Type | int | None, ...]] = {}

_STD_CLASSES = frozenset({
    "vector", "array", "string", "pair", "tuple", "complex", "unique_ptr", "shared_ptr", "map", "unordered_map", "set",
    "list", "deque", "span", "function", "optional", "mutex", "thread", "atomic", "initializer_list", "string_view",
    "ofstream", "ifstream", "stringstream", "ostringstream", "mt19937", "ostream", "istream", "fstream", "queue",
    "bitset", "valarray", "chrono", "numeric_limits", "unordered_set", "priority_queue", "stack", "exception",
})  # fmt: skip
_TENSORS = frozenset({"at::Tensor", "torch::Tensor"})
_NAMESPACES_OF_TENSOR = frozenset({"at", "torch"})
_CLASS_NAMESPACES = ("wmma::fragment", "cub::", "thrust::", "at::", "torch::", "nvcuda::wmma::fragment", "cuda::")
_GROUPS = frozenset({
    "thread_block", "grid_group", "thread_group", "coalesced_group", "multi_grid_group", "cluster_group",
    "thread_block_tile", "plus", "less", "greater", "bit_and", "bit_or", "bit_xor", "experimental",
})  # fmt: skip
#: How deep classes may be instantiated in one another: recursive templates end by specialisations.
INSTANCES = 12


def _runtime_class(name_: str, /, **fields: Type) -> Struct:
    result = Struct(name_)
    result.fields = fields
    return result


#: Classes of the CUDA runtime whose members size launches.
_RUNTIME_CLASSES = {
    class_.name: class_
    for class_ in (
        _runtime_class(
            "cudaLaunchConfig_t", gridDim=DIM3, blockDim=DIM3, dynamicSmemBytes=U64,
            stream=Unknown("a stream"), attrs=Unknown("launch attributes"), numAttrs=U32,
        ),
        *(
            _runtime_class(
                name, multiProcessorCount=I32, maxThreadsPerBlock=I32, maxThreadsPerMultiProcessor=I32,
                maxBlocksPerMultiProcessor=I32, warpSize=I32, sharedMemPerBlock=U64, sharedMemPerMultiprocessor=U64,
                sharedMemPerBlockOptin=U64, totalGlobalMem=U64, totalConstMem=U64, regsPerBlock=I32, clockRate=I32,
                maxGridSize=Array(I32, 3), maxThreadsDim=Array(I32, 3), major=I32, minor=I32, l2CacheSize=I32,
                memoryBusWidth=I32, memoryClockRate=I32, name=Array(I8, 256), cooperativeLaunch=I32,
            )
            for name in ("cudaDeviceProp", "hipDeviceProp_t")
        ),
    )
}  # fmt: skip


class Flags(NamedTuple):
    """The specifiers of a declaration."""

    const: bool = False
    constexpr: bool = False
    static: bool = False
    extern: bool = False
    shared: bool = False
    constant: bool = False
    device: bool = False


_NESTED = 100
"""Templates that are arguments of one another."""
_NO_FLAGS = Flags()
_FLAG_WORDS = {
    "const": "const", "constexpr": "constexpr", "static": "static", "extern": "extern", "__shared__": "shared",
    "__constant__": "constant", "__device__": "device", "__managed__": "device",
}  # fmt: skip


def library_class(name: str, arguments: tuple[Type | int | None, ...]) -> Struct:
    """``name<arguments>`` of a library. The members of a tuple have numbers for names."""
    texts = ", ".join("?" if v is None else str(v) for v in arguments)
    result = Struct(f"{name}<{texts}>")
    arguments_of[result] = arguments
    if name in ("std::pair", "std::tuple"):
        names = ("first", "second") if name == "std::pair" else map(str, range(len(arguments)))
        members = (v if isinstance(v, Type) else Unknown(f"a member of {name}") for v in arguments)
        result.fields = dict(zip(names, members))
    if name == "std::array" and len(arguments) == 2:
        element, extent = arguments
        if isinstance(element, Type) and isinstance(extent, int):
            result.packed_size = Array(element, extent).size
    return result


class Typer:
    """Resolves types where a name is used: in ``prefix`` (namespaces and class) of a file.

    ``names`` are the names of the blocks around: variables, types, and template values as constants.
    """

    def __init__(self, declarations: Declarations, prefix: str) -> None:
        self.declarations = declarations
        self.file = declarations.file
        self.s = declarations.source
        self.scope: Scope = declarations.scope
        self.prefix = prefix
        self.names: dict[str, Var | Type | Const] = {}
        self.instances = self.enclosing = 0

    # Given by the expression layer.
    def expr(self, node: Node) -> Expr:
        raise NotImplementedError  # given by a layer above

    def initialiser(self, node: Node, type_: Type) -> Expr:
        raise NotImplementedError  # given by a layer above

    def nested(self, declarations: Declarations, prefix: str) -> Typer:
        """Another of the same class, elsewhere."""
        return type(self)(declarations, prefix)

    def text(self, node: Node) -> str:
        return self.s[node.start_byte : node.end_byte]

    def bind_templates(
        self,
        lists: tuple[Node, ...],
        bindings: dict[str, Type | int] | None,
        arguments: tuple[Type | int | None, ...] = (),
    ) -> list[Var]:
        """Declare the template parameters of ``lists`` (``arguments`` are for the last); returns those left open."""
        from cudalint.ir.nodes import Var

        opened = []
        for number, list_ in enumerate(lists):
            given = arguments if number == len(lists) - 1 else ()
            kinds = template_names(self.s, list_)
            nodes = [child for child in list_.named_children if child.type.endswith("parameter_declaration")]
            for position, ((name, kind), node) in enumerate(zip(kinds, nodes, strict=False)):
                if not name:
                    continue
                bound: Type | int | None = given[position] if position < len(given) else None
                if bindings is not None and name in bindings:
                    bound = bindings[name]
                if bound is None and given and position >= len(given):
                    bound = self.default_argument(node, kind)
                if kind == "type":
                    self.names[name] = bound if isinstance(bound, Type) else Param(name)
                    continue
                type_, _, declarators = self.specified(node.children)
                declared = self.declare(type_, declarators[0])[1] if declarators else type_
                if declared is AUTO:
                    declared = I32 if isinstance(bound, int) else Unknown("a template parameter of type auto")
                start, end = node.start_byte, node.end_byte
                if isinstance(bound, int):
                    self.names[name] = Const(
                        start, end, declared, declared.wrap(bound) if isinstance(declared, Int) else bound, name
                    )
                else:
                    variable = Var(name, declared, "template", start, end, const=True)
                    default = self.default_argument(node, kind)
                    variable.usual = (default,) if isinstance(default, int) else ()
                    self.names[name] = variable
                    opened.append(variable)
        return opened

    def default_argument(self, node: Node, kind: str) -> Type | int | None:
        default = node.child_by_field_name("default_type" if kind == "type" else "default_value")
        if default is None:
            return None
        return self.type_of(default) if kind == "type" else fold(self.expr(default))

    # Types.

    def type_of(self, node: Node) -> Type:
        """The type that a type node names; ``AUTO`` for ``auto``."""
        kind = node.type
        if kind == "primitive_type":
            return BUILTIN_NAMES.get(self.text(node)) or Unknown(f"type '{self.text(node)}'")
        if kind in ("type_identifier", "identifier", "namespace_identifier", "field_identifier"):
            return self.named(self.text(node))
        if kind == "sized_type_specifier":
            return self.sized(node)
        if kind == "placeholder_type_specifier":
            return AUTO
        if kind == "type_descriptor":
            type_, _, declarators = self.specified(node.children)
            return self.declare(type_, declarators[0])[1] if declarators else type_
        if kind == "template_type" or kind == "template_function":
            return self.template(self.text(node.children[0]), node.children[-1])
        if kind == "qualified_identifier":
            return self.qualified(node)
        if kind == "dependent_type":
            return self.type_of(node.children[-1])
        if kind in CLASSES or kind == "enum_specifier":
            return self.class_type(node)
        if kind == "decltype":
            inner = [c for c in node.named_children if c.type != "auto"]
            if not inner:
                return AUTO
            return (
                self.type_of(inner[0])
                if inner[0].type in ("type_descriptor", "primitive_type")
                else self.expr(inner[0]).type
            )
        return Unknown(f"type '{self.text(node)[:40]}'")

    def sized(self, node: Node) -> Type:
        words = self.text(node).split()
        base = [w for w in words if w not in ("unsigned", "signed", "long", "short", "const", "volatile")]
        unsigned = "unsigned" in words
        if base == ["char"]:
            return U8 if unsigned else I8
        if base == ["double"]:
            return F64
        if base and base != ["int"]:
            return self.named(base[0])
        if "short" in words:
            return U16 if unsigned else I16
        if "long" in words:
            return U64 if unsigned else I64
        return U32 if unsigned else I32

    def named(self, name: str) -> Type:
        """The type called ``name``, without template arguments."""
        found = self.find_type(name)
        return found if found is not None else Unknown(f"type '{name}' is not declared in the project")

    def find_type(self, name: str) -> Type | None:
        """As :meth:`named`, but None when nothing declares ``name`` as a type."""
        local = self.names.get(name)
        if local is not None:
            return local if isinstance(local, Type) else None
        decl: TypeDecl | None = None
        if self.prefix.endswith(">") and re.sub(r"<.*", "", self.prefix).rpartition("::")[2] == name:
            # Inside of a specialisation its name is the class itself.
            decl = self.declarations.types.get(self.prefix)
        decl = decl or self.scope.type(name, self.prefix)
        if decl is not None:
            return self.resolve(decl, self.own_arguments(decl) if decl.templates else ())
        if "::" in name:
            name = self.scope.expand(name)
            head, _, last = name.rpartition("::")
            if head in ("std", "cuda::std", "") and last in BUILTIN_NAMES:
                return BUILTIN_NAMES[last]
            if head == "std":
                return Struct(name) if last in _STD_CLASSES else None
            if head == "cooperative_groups":
                return Struct(name) if last in _GROUPS else None
            if name in _TENSORS:
                return Struct("at::Tensor")
            outer = self.find_type(head)
            if isinstance(outer, Struct):
                return self.member_type(outer, last)
            return None
        found = BUILTIN_NAMES.get(name) or _RUNTIME_CLASSES.get(name)
        if found is None and name in _STD_CLASSES and name in ("string", "vector", "array", "pair", "complex"):
            return Struct(f"std::{name}")
        if found is None and "cooperative_groups" in self.scope.usings and name in _GROUPS:
            return Struct(f"cooperative_groups::{name}")
        if found is None and name == "Tensor" and not _NAMESPACES_OF_TENSOR.isdisjoint(
            (*self.scope.usings, self.prefix.partition("::")[0])
        ):  # fmt: skip
            return Struct("at::Tensor")
        return found

    def own_arguments(self, decl: TypeDecl) -> tuple[Type | int | None, ...]:
        """The arguments of a class template that is named inside of itself: its own parameters, as they are bound."""
        inside = self.prefix == decl.qualname or self.prefix.startswith(f"{decl.qualname}::")
        if decl.kind != "class" or not inside or len(decl.templates) != 1:
            return ()
        result: list[Type | int | None] = []
        for name, _ in template_names(decl.declarations.source, decl.templates[0]):
            bound = self.names.get(name)
            if isinstance(bound, Type):
                result.append(bound)
            elif isinstance(bound, Const) and isinstance(bound.value, int):
                result.append(bound.value)
            else:
                result.append(None)
        return tuple(result)

    def qualified(self, node: Node) -> Type:
        """``ns::T``, ``A<int>::type``, ``std::vector<T>``."""
        scopes: list[Node] = []
        last = node
        while last.type == "qualified_identifier":
            children = last.children
            if children[0].type != "::":
                scopes.append(children[0])
            last = children[-1]
        if last.type in ("dependent_name", "template_method"):
            return Unknown(f"type '{self.text(node)[:60]}'")
        for index, scope in enumerate(scopes):
            if scope.type == "template_type":
                # A member of an instance: resolve the instance, then the member in it.
                path = "::".join([self.text(s) for s in scopes[:index]] + [self.text(scope.children[0])])
                return self.of_instance(self.template(path, scope.children[-1]), [*scopes[index + 1 :], last])
        path = "::".join(self.text(s) for s in scopes)
        if last.type in ("template_type", "template_function"):
            name = self.text(last.children[0])
            return self.template(f"{path}::{name}" if path else name, last.children[-1])
        name = self.text(last)
        if len(scopes) == 1:
            local = self.names.get(path)
            if isinstance(local, Struct):
                return self.member_type(local, name) or Unknown(f"type '{path}::{name}'")
            if isinstance(local, Type):
                return Unknown(f"type '{path}::{name}' depends on a template parameter")
        found = self.find_type(f"{path}::{name}" if path else name)
        return found if found is not None else Unknown(f"type '{self.text(node)}' is not declared in the project")

    def of_instance(self, outer: Type, rest: list[Node]) -> Type:
        for node in rest:
            name = self.text(node.children[0] if node.type in ("template_type", "template_function") else node)
            found = self.member_type(outer, name) if isinstance(outer, Struct) else None
            if found is None:
                return Unknown(f"member type '{name}' of '{outer}'")
            outer = found
        return outer

    def member_type(self, outer: Struct, name: str) -> Type | None:
        """The type ``outer::name``."""
        decl = class_of.get(outer)
        if decl is None:
            if name in ("TempStorage", "iterator", "const_iterator") or outer.name.startswith(
                ("cub::", "cooperative_groups::")
            ):
                return Struct(f"{outer.name}::{name}")
            if name == "value_type" and outer in arguments_of:
                first = arguments_of[outer][0]
                return first if isinstance(first, Type) else None
            if name == "size_type" and outer.name.startswith("std::"):
                return U64
            return None
        inner = decl.declarations.types.get(f"{decl.qualname}::{name}")
        if inner is None:
            return None
        return self.resolve(inner, (), arguments_of.get(outer, ()), decl)

    def template(self, name: str, arguments: Node) -> Type:
        """``name<arguments>``."""
        if self.enclosing == _NESTED:
            return Unknown(f"template '{name}' in too many others")
        decl = None if name in self.names else self.scope.type(name, self.prefix)
        self.enclosing += 1
        try:
            values = tuple(self.argument(child) for child in arguments.named_children)
        finally:
            self.enclosing -= 1
        folded = tuple(v if isinstance(v, Type) else fold(v) for v in values)
        special = self.specialisation(name, decl, folded)
        if special is not None:
            return self.resolve(*special)
        if decl is not None:
            return self.resolve(decl, folded)
        full = self.scope.expand(name)
        head, _, last = full.rpartition("::")
        if not head and last in _STD_CLASSES:
            head, full = "std", f"std::{last}"
        elif full == "texture":
            head = "std"
        elif not head and "cooperative_groups" in self.scope.usings and last == "thread_block_tile":
            head, full = "cooperative_groups", f"cooperative_groups::{last}"
        if (
            (head == "std" and (last in _STD_CLASSES or last == "texture"))
            or (head == "cooperative_groups" and last in _GROUPS)
            or full.startswith(_CLASS_NAMESPACES)
        ):
            return library_class(full, folded)
        if head == "std" and last.endswith("_t") and folded:
            return self.trait(last, folded)
        return Unknown(f"type '{full}<...>' is not declared in the project")

    def specialisation(
        self, name: str, primary: TypeDecl | None, arguments: tuple[Type | int | None, ...]
    ) -> tuple[TypeDecl, tuple[Type | int | None, ...]] | None:
        """The specialisation that ``name<arguments>`` means and the arguments of its own parameters."""
        best: tuple[int, TypeDecl, tuple[Type | int | None, ...]] | None = None
        last = name.rpartition("::")[2]
        for declarations in self.scope.closure:
            for decl in declarations.specialisations.get(last, ()):
                if decl.arguments is None or (primary is not None and primary.scope != decl.scope):
                    continue
                typer = self.nested(declarations, decl.scope)
                typer.bind_templates(decl.templates[-1:], None)
                patterns = [typer.argument(node) for node in decl.arguments.named_children]
                bound: dict[str, Type | int] = {}
                if len(patterns) != len(arguments) or not all(map(fits, patterns, arguments, [bound] * len(patterns))):
                    continue
                names = template_names(declarations.source, decl.templates[-1]) if decl.templates else []
                if best is None or len(bound) < best[0]:
                    best = len(bound), decl, tuple(bound.get(parameter) for parameter, _ in names)
        return best and best[1:]

    def trait(self, name: str, arguments: tuple[Type | int | None, ...]) -> Type:
        first = arguments[0]
        if name in (
            "remove_reference_t",
            "remove_const_t",
            "remove_cv_t",
            "decay_t",
            "remove_cvref_t",
            "type_identity_t",
        ):
            return first if isinstance(first, Type) else Unknown(f"std::{name}")
        if name == "conditional_t" and len(arguments) == 3 and isinstance(first, int):
            chosen = arguments[1] if first else arguments[2]
            return chosen if isinstance(chosen, Type) else Unknown(f"std::{name}")
        if name in ("make_unsigned_t", "make_signed_t") and isinstance(first, Int):
            return Int(first.bits, name == "make_signed_t")
        return Unknown(f"std::{name}")

    def argument(self, node: Node) -> Type | Expr:
        """A template argument: a type or a value."""
        if node.type == "type_descriptor":
            children = node.children
            if len(children) == 1:
                inner = children[0]
                if inner.type == "type_identifier":
                    name = self.text(inner)
                    local = self.names.get(name)
                    if isinstance(local, Type):
                        return local
                    if local is not None or (
                        self.scope.type(name, self.prefix) is None and self.scope.value(name, self.prefix) is not None
                    ):
                        return self.expr(inner)
                elif inner.type == "qualified_identifier":
                    found = self.qualified(inner)
                    if isinstance(found, Unknown):
                        value = self.expr(inner)
                        if not isinstance(value.type, Unknown):
                            return value
                    return found
            return self.type_of(node)
        if node.type == "identifier":
            found_type = self.find_type(self.text(node))
            if found_type is not None:
                return found_type
        return self.expr(node)

    def class_type(self, node: Node) -> Type:
        """``struct S``, ``enum E``, with a body or without."""
        name = node.child_by_field_name("name")
        body = node.child_by_field_name("body")
        if node.type == "enum_specifier" and body is not None:
            return self.local_enum(node)
        if body is None:
            if name is None:
                return Unknown("an unnamed class")
            return self.type_of(name)
        decl = self.declared_class(node, self.text(name) if name is not None else None)
        return self.resolve(decl, ())

    def declared_class(self, node: Node, name: str | None) -> TypeDecl:
        """The TypeDecl of a class specifier with a body: the file's, or a new one for a local class."""
        if name is not None:
            for decl in self.declarations.types_by_name.get(name, ()):
                if decl.start == node.start_byte:
                    return decl
        decl = TypeDecl(
            self.declarations,
            "class",
            name or f"class@{node.start_byte}",
            f"{self.prefix}@{node.start_byte}",
            node,
            (),
            True,
        )
        self.local_classes = [*getattr(self, "local_classes", []), decl]
        return decl

    def local_enum(self, _node: Node) -> Type:
        return I32

    def resolve(
        self, decl: TypeDecl, arguments: tuple[Type | int | None, ...],
        outer: tuple[Type | int | None, ...] = (), within: TypeDecl | None = None,
    ) -> Type:  # fmt: skip
        """The type behind a declaration, with these template arguments; ``outer`` are those of the class around it."""
        if decl.kind == "enum":
            base = decl.node.child_by_field_name("base")
            return self.nested(decl.declarations, decl.scope).type_of(base) if base is not None else I32
        key = (arguments, outer)
        found = decl.resolved.get(key)
        if found is not None:
            return found
        if self.instances >= INSTANCES:
            return Unknown(f"type '{decl.qualname}' nests too deeply")
        typer = self.nested(decl.declarations, decl.qualname if decl.kind == "class" else decl.scope)
        typer.instances = self.instances + 1
        if decl.in_class and "@" in decl.scope:
            typer.names = dict(self.names)
        if decl.templates:
            around = decl.templates if decl.in_class and within is not None else decl.templates[:-1]
            if outer and around:
                typer.bind_templates(around, None, outer)
            if not (decl.in_class and within is not None and around is decl.templates):
                typer.bind_templates(decl.templates if not outer else decl.templates[-1:], None, arguments)
        if decl.kind == "alias":
            decl.resolved[key] = Unknown(f"type '{decl.qualname}' refers to itself")
            found = decl.resolved[key] = typer.alias(decl)
            return found
        shown = arguments if decl.arguments is None else ()
        texts = ", ".join("?" if v is None else str(v) for v in shown)
        name = re.sub(r"@\d+", "", decl.qualname).removeprefix("::")
        file = decl.declarations.file
        # The two readings of a file may lay a class out differently.
        identity: object = file.path if file.reading == "device" else (file.path, file.reading)
        if "@" in decl.qualname:
            identity = (identity, decl.start)
        elif outer or decl.arguments is not None:
            identity = (identity, outer, arguments)
        result = Struct(f"{name}<{texts}>" if shown else name, identity)
        decl.resolved[key] = result
        class_of[result] = decl
        if arguments or outer:
            arguments_of[result] = arguments or outer
        typer.layout(decl, result)
        return result

    def alias(self, decl: TypeDecl) -> Type:
        if decl.declarator is None:
            type_node = decl.node.children[-2] if decl.node.children[-1].type == ";" else decl.node.children[-1]
            return self.type_of(type_node)
        base = split(decl.node.children)[0]
        if base is None:
            return Unknown(f"type '{decl.qualname}'")
        if base.type in CLASSES and base.child_by_field_name("body") is not None:
            for other in self.declarations.types.values():
                if other.start == base.start_byte and other.kind == "class":
                    return self.declare(self.resolve(other, ()), decl.declarator)[1]
        return self.declare(self.type_of(base), decl.declarator)[1]

    def layout(self, decl: TypeDecl, result: Struct) -> None:
        """Fill in fields, size and alignment of a class."""
        fields: dict[str, Type] = {}
        result.fields = fields
        result.defaults, result.fixed, result.refs, result.bases, result.built = {}, set(), set(), [], False
        union = decl.node.type == "union_specifier"
        size: int | None = 0
        align = 1
        body: Node | None = None
        for child in decl.node.children:
            kind = child.type
            if kind == "field_declaration_list":
                body = child
            elif kind == "alignas_qualifier":
                wanted = fold(self.expr(child.named_children[0])) if child.named_children else None
                align = max(align, wanted or 1)
            elif kind == "attribute_specifier":
                text = self.text(child)
                aligned = re.search(r"aligned\w*\s*\(\s*(\d+)", text)
                align = max(align, int(aligned[1]) if aligned else 1)
                size = None if "packed" in text else size
            elif kind == "base_class_clause":
                for base in child.named_children:
                    if base.type in TYPES:
                        type_ = self.type_of(base)
                        if isinstance(type_, Struct) and type_.fields is not None:
                            result.bases.append(type_)
                            fields.update(type_.fields)
                            result.defaults.update(type_.defaults)
                            result.fixed.update(type_.fixed)
                            result.refs.update(type_.refs)
                            result.built = result.built or type_.built
                        size = (
                            self.place(size, type_, union)
                            if size is not None and getattr(type_, "fields", None)
                            else size
                        )
                        if not isinstance(type_, Struct) or type_.size is None:
                            size = None
                        align = max(align, alignment(type_))
        for child in body.children if body is not None else ():
            kind = child.type
            result.built = result.built or _is_constructor(child)
            if kind == "declaration" or kind == "function_definition":
                if "virtual" in (c.type for c in child.children):
                    size = None
                continue
            if kind != "field_declaration":
                continue
            type_node, declarators = split(child.children)
            if type_node is None:
                continue
            if type_node.type == "enum_specifier" and not declarators:
                continue
            type_, flags, _ = self.specified(child.children)
            if flags.static or (flags.constexpr and not declarators):
                continue
            narrow = {c.prev_sibling.id for c in child.children if c.type == "bitfield_clause" and c.prev_sibling}
            starts = _defaults(child) if child.child_by_field_name("default_value") is not None else {}
            values = {value.id for value in starts.values()}
            if not declarators and isinstance(type_, Struct) and type_.fields is not None:
                fields.update(type_.fields)
                size = self.place(size, type_, union)
                align = max(align, alignment(type_))
            for declarator in declarators:
                if declarator.type == "bitfield_clause" or declarator.id in values:
                    continue
                if declarator.type == "function_declarator" and not _is_pointer(declarator):
                    continue
                name, field, ref = self.declare(type_, declarator)
                if name is None:
                    continue
                if declarator.id in narrow:
                    field = BIT_FIELD
                fields[self.text(name)] = field
                if flags.const and not isinstance(field, Ptr):
                    result.fixed.add(self.text(name))
                if ref:
                    result.refs.add(self.text(name))
                if declarator.id in starts:
                    result.defaults[self.text(name)] = self.initialiser(starts[declarator.id], field)
                size = None if field is BIT_FIELD else self.place(size, Ptr(field) if ref else field, union)
                align = max(align, 8 if ref else alignment(field))
        result.align = align
        # An earlier reading of the same file may have left another size.
        result.packed_size = None if size is None else max(1, -(-size // align) * align)

    @staticmethod
    def place(size: int | None, field: Type, union: bool) -> int | None:
        """The size of a class after one more field."""
        width = field.size
        if size is None or width is None:
            return None
        if union:
            return max(size, width)
        align = alignment(field)
        return -(-size // align) * align + width

    # Declarations.

    def specified(self, children: list[Node]) -> tuple[Type, Flags, list[Node]]:
        """The base type, the specifiers and the declarators of a declaration with these children."""
        type_: Type | None = None
        words: dict[str, bool] | None = None
        declarators: list[Node] = []
        for child in children:
            kind = child.type
            if kind == "type_qualifier" or kind == "storage_class_specifier":
                flag = _FLAG_WORDS.get(self.s[child.start_byte : child.end_byte])
                if flag is not None:
                    words = words or {}
                    words[flag] = True
            elif type_ is None and kind in TYPES:
                type_ = self.type_of(child)
            elif kind == "extern" or kind == "__device__" or kind == "static":
                words = words or {}
                words[_FLAG_WORDS[kind]] = True
            elif kind.endswith("declarator") or kind in (
                "identifier",
                "field_identifier",
                "type_identifier",
                "qualified_identifier",
            ):
                declarators.append(child)
        flags = _NO_FLAGS if words is None else Flags(**words)
        return type_ or Unknown("no type is written"), flags, declarators

    def declare(self, type_: Type, node: Node) -> tuple[Node | None, Type, bool]:
        """The name node, the type and whether it is a reference, of a declarator over ``type_``."""
        ref = False
        while True:
            kind = node.type
            if kind == "identifier" or kind == "field_identifier" or kind == "type_identifier":
                return node, type_, ref
            inner: Node | None = None
            if kind == "array_declarator" or kind == "abstract_array_declarator":
                extent: int | Expr | None = None
                for child in node.children:
                    child_kind = child.type
                    if (
                        child_kind.endswith("declarator")
                        or (child_kind == "identifier" and inner is None and child.start_byte == node.start_byte)
                        or child_kind in ("field_identifier", "type_identifier")
                    ):
                        inner = child
                    elif child.is_named and child_kind != "type_qualifier":
                        value = self.expr(child)
                        folded = fold(value)
                        extent = folded if folded is not None else value
                type_ = Array(type_, extent)
            elif kind == "function_declarator" or kind == "abstract_function_declarator":
                type_ = FUNCTION
                inner = node.children[0] if node.children[0].type != "parameter_list" else None
            else:
                if kind == "pointer_declarator" or kind == "abstract_pointer_declarator":
                    type_ = Ptr(type_)
                elif kind == "reference_declarator" or kind == "abstract_reference_declarator":
                    ref = True
                elif kind == "qualified_identifier":
                    return node, type_, ref
                for child in node.children:
                    child_kind = child.type
                    if child_kind.endswith("declarator") or child_kind in (
                        "identifier",
                        "field_identifier",
                        "type_identifier",
                        "qualified_identifier",
                    ):
                        inner = child
                        break
            if inner is None:
                return None, type_, ref
            node = inner

    def const_of(self, node: Node, flags: Flags, ref: bool) -> bool:
        """Whether the variable itself is const: by the declarator for a pointer, else by the specifiers."""
        while node.type in ("init_declarator", "array_declarator"):
            node = node.children[0]
        if node.type == "pointer_declarator":
            return flags.constexpr or any(c.type == "type_qualifier" and self.text(c) == "const" for c in node.children)
        return (flags.const or flags.constexpr) and not ref


def _defaults(field: Node) -> dict[int, Node]:
    """What the members of a ``field_declaration`` start as, by their declarators' ids."""
    found: dict[int, Node] = {}
    of: Node | None = None
    for number, child in enumerate(field.children):
        role = field.field_name_for_child(number)
        if role == "declarator":
            of = child
        elif role == "default_value" and of is not None:
            found[of.id] = child
    return found


def _is_constructor(node: Node) -> bool:
    """Whether a member of a class is a constructor that does something."""
    if node.type == "template_declaration":
        node = node.named_children[-1]
    if node.type not in ("declaration", "function_definition") or node.child_by_field_name("type") is not None:
        return False
    declarator = node.child_by_field_name("declarator")
    named = declarator.child_by_field_name("declarator") if declarator is not None else None
    given = ("default_method_clause", "delete_method_clause")
    return named is not None and named.type == "identifier" and not any(x.type in given for x in node.children)


def _is_pointer(node: Node) -> bool:
    return node.children[0].type == "parenthesized_declarator"


def alignment(type_: Type) -> int:
    """The alignment of a type in bytes; 1 where it is not known."""
    while isinstance(type_, Array):
        type_ = type_.element
    if isinstance(type_, Struct):
        return type_.align or 1
    return type_.size or 1


def fits(pattern: Type | Expr, actual: Type | int | None, bound: dict[str, Type | int]) -> bool:
    """Whether a template argument fits a specialisation's, binding the specialisation's own parameters."""
    if isinstance(pattern, Expr):
        if isinstance(pattern, Ref) and pattern.var.kind == "template":
            if isinstance(actual, int):
                bound[pattern.var.name] = actual
            return not isinstance(actual, Type)
        return isinstance(actual, int) and fold(pattern) == actual
    if not isinstance(actual, Type):
        return False
    if isinstance(pattern, Param):
        return bound.setdefault(pattern.name, actual) is actual
    if pattern is actual:
        return True
    if isinstance(pattern, Ptr) and isinstance(actual, Ptr):
        return fits(pattern.element, actual.element, bound)
    if isinstance(pattern, Struct) and isinstance(actual, Struct):
        template = class_of.get(pattern)
        if template is None or class_of.get(actual) is not template:
            return False
        wanted, given = arguments_of.get(pattern, ()), arguments_of.get(actual, ())
        return len(wanted) == len(given) > 0 and all(
            fits(x, y, bound) if isinstance(x, Type) else x == y is not None for x, y in zip(wanted, given)
        )
    return False


def decay(type_: Type) -> Type:
    """The type of an expression used as a value: an array is a pointer to its first element."""
    return Ptr(type_.element) if isinstance(type_, Array) else type_
