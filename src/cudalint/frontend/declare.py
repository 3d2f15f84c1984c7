"""What a file declares, found without looking into function bodies.

Names are kept with their namespaces and classes (``ns::Cls::f``), template arguments dropped.
Types, constants and function bodies stay tree nodes here; :mod:`cudalint.frontend.lower` gives them
meaning when it is asked to.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from typing import TYPE_CHECKING, Any, Literal

from cudalint.frontend.parse import DEPTH, descendants, masked
from cudalint.ir.nodes import FunctionDecl
from cudalint.lazy import NamedTuple, pattern

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tree_sitter import Node

    from cudalint.frontend.scope import Scope
    from cudalint.frontend.source import SourceFile
    from cudalint.ir.nodes import FunctionKind, Var
    from cudalint.ir.types import Type

Arguments = tuple["Type | int | None", ...]
"""What a class template is given; None for what is open."""

# Plain texts are searched for far faster than a pattern of alternatives.
_LAUNCHES = ("<<<", "cudaLaunchKernel", "cudaLaunchCooperative", "hipLaunchKernelGGL")

CLASSES = frozenset({"struct_specifier", "class_specifier", "union_specifier"})
TYPES = CLASSES | {
    "primitive_type", "type_identifier", "sized_type_specifier", "placeholder_type_specifier", "qualified_identifier",
    "template_type", "enum_specifier", "dependent_type", "decltype", "splice_type_specifier",
}  # fmt: skip
#: Nodes of a declaration that neither are its type nor declare anything.
SPECIFIERS = frozenset({
    "storage_class_specifier", "type_qualifier", "alignas_qualifier", "attribute_specifier", "attribute_declaration",
    "ms_declspec_modifier", "ms_call_modifier", "virtual_specifier", "explicit_function_specifier", "launch_bounds",
    "__global__", "__device__", "__host__", "__forceinline__", "__noinline__", "virtual", "extern", "inline", "typedef",
    "typename", "requires_clause", "template_parameter_list", "constexpr", "consteval", "static", "friend", "comment",
})  # fmt: skip
_NESTING = pattern(r"[{]|\b(?:if|for|while|do|switch|try)\b")
_HOLDING = ("_statement", "_loop")
_DEEPEST = 200
"""Namespaces and classes in one another that are looked into; nobody writes so many."""
_WRAPPERS = frozenset({"pointer_declarator", "reference_declarator", "attributed_declarator", "init_declarator"})


class TypeDecl:
    """A named type: ``alias`` (typedef or using), ``class`` or ``enum``.

    ``node`` is the class or enum specifier, the ``alias_declaration`` or, for a typedef, the
    ``type_definition``, whose ``declarator`` names it. ``templates`` are the template parameter
    lists around it, outermost first. ``resolved`` caches the type by template arguments,
    ``constants`` the values of an enum's enumerators by those of its class. ``arguments`` is the
    template argument list of a specialisation, whose ``name`` includes it.
    """

    __slots__ = (
        "__weakref__", "arguments", "constants", "declarations", "declarator", "in_class", "kind", "name", "node",
        "qualname", "resolved", "scope", "start", "templates",
    )  # fmt: skip

    def __init__(
        self, declarations: Declarations, kind: Literal["alias", "class", "enum"], name: str, scope: str, node: Node,
        templates: tuple[Node, ...], in_class: bool, declarator: Node | None = None,
    ) -> None:  # fmt: skip
        self.declarations, self.kind, self.name, self.scope, self.node = declarations, kind, name, scope, node
        self.templates, self.in_class, self.declarator = templates, in_class, declarator
        self.qualname = f"{scope}::{name}" if scope else name
        self.start = node.start_byte
        self.resolved: dict[tuple[object, ...], Type] = {}
        self.constants: dict[Arguments, dict[str, int | None]] = {}
        self.arguments: Node | None = None


class ValueDecl:
    """A namespace-scope variable, a static member or an enumerator; ``lowered`` for the template arguments of its
    class that it was asked for with."""

    __slots__ = (
        "declarations", "declarator", "defines", "enum", "in_class", "lowered", "name", "node", "qualname", "scope",
        "templates",
    )  # fmt: skip

    def __init__(
        self, declarations: Declarations, name: str, scope: str, node: Node, declarator: Node,
        templates: tuple[Node, ...], in_class: bool, enum: TypeDecl | None = None, defines: bool = True,
    ) -> None:  # fmt: skip
        self.declarations, self.name, self.scope, self.node, self.declarator = (
            declarations,
            name,
            scope,
            node,
            declarator,
        )
        self.templates, self.in_class, self.enum, self.defines = templates, in_class, enum, defines
        self.qualname = f"{scope}::{name}" if scope else name
        self.lowered: dict[Arguments, Var] = {}


class Syntax:
    """The nodes behind a :class:`FunctionDecl`: what ``FunctionDecl.node`` holds.

    ``scope`` is where names inside are looked up from (the owner's members included), ``templates``
    the template parameter lists around it, of which the last is its own when ``own_template``.
    """

    __slots__ = (
        "body",
        "declarator",
        "has_launches",
        "inner",
        "named",
        "node",
        "own_template",
        "quiet",
        "scope",
        "signatures",
        "templates",
    )

    def __init__(
        self, node: Node, declarator: Node | None, inner: Node, body: Node | None, scope: str,
        templates: tuple[Node, ...], own_template: bool,
    ) -> None:  # fmt: skip
        self.node, self.declarator, self.inner, self.body, self.scope = node, declarator, inner, body, scope
        self.templates, self.own_template = templates, own_template
        self.has_launches = False
        self.quiet: bool | None = None
        self.named: list[list[str]] | None = None
        """The lists of template arguments that follow its name in its file; None: not looked for yet."""
        self.signatures: dict[tuple[object, ...], object] = {}


class Source(str):
    """A text with one character for each of its bytes, so that places in it are those of the syntax; a slice is the
    text that stands there."""

    __slots__ = ()

    def __getitem__(self, key: Any) -> str:
        found = super().__getitem__(key)
        return found if found.isascii() else found.encode("latin-1").decode("utf-8", "replace")


def in_bytes(name: str) -> str:
    """A name as it stands in a :class:`Source`."""
    return name if name.isascii() else name.encode().decode("latin-1")


class Declarations:
    """The declarations of one file.

    ``functions`` in order; ``types`` and ``values`` by qualified name, the last component of each
    name indexed in ``types_by_name`` and so on. ``usings`` are (scope, namespace) of using
    directives, ``specialisations`` the specialisations of class templates by the template's name;
    ``aliases`` maps a namespace alias or a using declaration's name to what it means.
    ``gaps`` are the (start, end) of the regions that could not be parsed, and what is missing there.
    ``launch_sites`` are the functions whose text holds a launch. ``masked`` is the text as
    it was parsed, ``source`` the same as a string with one character a byte.
    """

    __slots__ = (
        "_calls", "_changes", "_scope", "aliases", "file", "functions", "functions_by_name", "gaps", "has_launches",
        "launch_sites", "masked", "source", "specialisations", "types", "types_by_name",
        "using_names", "usings", "values", "values_by_name",
    )  # fmt: skip

    def __init__(self, file: SourceFile) -> None:
        self.file = file
        self.masked = masked(file.text)
        self.source = Source(self.masked.decode("latin-1")) if not self.masked.isascii() else self.masked.decode()
        self.functions: list[FunctionDecl] = []
        self.types: dict[str, TypeDecl] = {}
        self.values: dict[str, ValueDecl] = {}
        self.functions_by_name: dict[str, list[FunctionDecl]] = {}
        self.types_by_name: dict[str, list[TypeDecl]] = {}
        self.values_by_name: dict[str, list[ValueDecl]] = {}
        self.specialisations: dict[str, list[TypeDecl]] = {}
        self.usings: list[tuple[str, str]] = []
        self.using_names: list[tuple[str, str]] = []
        self.aliases: dict[str, str] = {}
        self.gaps: list[tuple[int, int, str]] = []
        self.launch_sites: list[FunctionDecl] = []
        self.has_launches = False
        self._scope: Scope | None = None
        self._calls: dict[str, frozenset[int] | None] = {}
        self._changes: dict[str, frozenset[int]] = {}

    @property
    def jumps(self) -> list[tuple[int, int]]:
        """The (start, end) of every ``goto`` in device code."""
        device = [f for f in self.functions if f.kind != "host" and f.has_body] if "goto" in self.source else []
        found = [node for f in device for node in descendants(syntax_of(f).node) if node.type == "goto_statement"]
        return sorted({(node.start_byte, node.end_byte) for node in found})

    @property
    def nested(self) -> list[tuple[int, int]]:
        """Per device function the (start, end) of what stands in so many statements that lowering gives it up."""
        found = []
        for f in self.functions:
            if f.kind == "host" or not f.has_body or len(_NESTING.findall(self.source, f.start, f.end)) < DEPTH:
                continue
            deep = []
            stack = [(child, -1) for child in syntax_of(f).node.named_children]  # the body itself counts for none
            while stack:
                node, depth = stack.pop()
                if node.type.endswith(_HOLDING):
                    depth += 1
                if depth > DEPTH:
                    deep.append(node)
                else:
                    stack.extend((child, depth) for child in node.named_children)
            if deep:
                found.append((min(x.start_byte for x in deep), max(x.end_byte for x in deep)))
        return found

    @property
    def scope(self) -> Scope:
        """Name lookup over this file and its include closure."""
        if self._scope is None:
            from cudalint.frontend.scope import Scope

            self._scope = Scope(self.file)
        return self._scope

    def calls(self, name: str) -> frozenset[int] | None:
        """Where the text calls a function by this name, but for what stands in the function itself; None where it
        perhaps calls it through a pointer."""
        if name not in self._calls:
            self._calls[name] = self._find_calls(re.escape(in_bytes(name)), self.functions_by_name.get(name, ()))
        return self._calls[name]

    def _find_calls(self, name: str, declared: Iterable[FunctionDecl]) -> frozenset[int] | None:
        named = rf"(?:(?:\b\w+\s*)?::\s*)*\b{name}\s*(?:<[^;{{}}()]*>\s*)?"
        if re.search(rf"[&,(=]\s*{named}[,;)}}]", self.source):
            return None
        found = (x.start() for x in re.finditer(rf"{named}\(", self.source))
        return frozenset(at for at in found if not any(x.start <= at < x.end for x in declared))

    def changes(self, name: str) -> frozenset[int]:
        """Where the text may change a variable by this name: it initialises, assigns or counts it, takes its address
        or hands it to a function."""
        if name not in self._changes:
            word = re.escape(in_bytes(name))
            pattern = (
                rf"(?:&|\+\+|--|>>)\s*(?:\w+\s*(?:\.|->)\s*)*({word})\b|[:,]\s*({word})\s*[({{]"
                rf"|\b({word})\s*(?:(?:[-+*/%&|^]|<<|>>)?=(?!=)|\+\+|--)"
                rf"|(?<!\bdim3)\((?:[^;(){{}}]*,)?\s*({word})\s*[,)]"
            )
            self._changes[name] = frozenset(
                place.start(place.lastindex or 0)  # where the name stands
                for start, end in self._statements(word)
                for place in re.compile(pattern).finditer(self.source, start, end)
            )
        return self._changes[name]

    def _statements(self, word: str) -> Iterator[tuple[int, int]]:
        """The stretches between braces and semicolons in which a word stands."""
        end = 0
        for found in re.finditer(rf"\b{word}\b", self.source):
            if found.start() >= end:
                start = max(self.source.rfind(sign, 0, found.start()) for sign in ";{}") + 1
                closing = re.compile(r"[;{}]").search(self.source, found.end())
                end = closing.end() if closing else len(self.source)
                yield start, end


def declare(file: SourceFile) -> Declarations:
    """The declarations of ``file``. Never fails; what cannot be read is in ``gaps``."""
    result = Declarations(file)
    _Walker(result).walk(file.tree.root_node, _Place())
    result.gaps = sorted([*result.gaps, *gaps_in(file.tree.root_node, result.source)])
    launches = sorted(match.start() for sign in _LAUNCHES for match in re.finditer(sign, result.source))
    result.has_launches = bool(launches)
    if launches:
        for function in result.functions:
            at = bisect_left(launches, function.start)
            if at < len(launches) and launches[at] < function.end:
                syntax_of(function).has_launches = True
                result.launch_sites.append(function)
    return result


def syntax_of(function: FunctionDecl) -> Syntax:
    node = function.node
    assert isinstance(node, Syntax)
    return node


def gaps_in(root: Node, source: str) -> list[tuple[int, int, str]]:
    """The (start, end) of what could not be parsed, in order, at most one a line.

    The third of each says what is missing there (empty: nothing is). A function that was found in the
    midst of an error is none of it; one whose parameters could not be read is, to its end.
    """
    found: list[tuple[int, int, str]] = []
    stack = [root] if root.has_error else []
    while stack:
        node = stack.pop()
        if node.is_missing:
            if not _lacking(node, source):
                found.append((node.start_byte, node.end_byte, node.type))
        elif node.is_error:
            functions = [child for child in node.children if child.type == "function_definition"]
            end = functions[0].start_byte if functions else node.end_byte
            alone = node.child_count == 1 and (_is_macro(node.children[0], source) or _before_name(node))
            if node.start_byte < end and not alone:
                found.append((node.start_byte, end, ""))
            stack.extend(functions)
        elif node.has_error:
            heads = [child for child in node.children if child.type.endswith("declarator")]
            unread = gaps_in(heads[0], source) if heads and node.type == "function_definition" else []
            if unread:
                found.append((unread[0][0], node.end_byte, unread[0][2]))
            else:
                stack.extend(node.children)
    merged: list[tuple[int, int, str]] = []
    for start, end, missing in sorted(found):
        if merged and source.find("\n", merged[-1][1], start) < 0:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]), merged[-1][2])
        else:
            merged.append((start, end, missing))
    return merged


_MACRO = pattern(r"[A-Z_][A-Z0-9_]+")


def _lacking(missing: Node, source: str) -> bool:
    """Whether it is the grammar that lacks something: instantiations without a declarator, uses of macros."""
    parent = missing.parent
    if parent is None or parent.type == "template_instantiation":
        return parent is not None
    return missing.type == ";" and parent.type == "expression_statement" and _is_macro(parent.children[0], source)


def _is_macro(node: Node, source: str) -> bool:
    """Whether ``node`` is ``MACRO(...)`` alone on its line: of a macro that no file of the project defines."""
    name = node.children[0] if node.type == "call_expression" else node
    if name.type not in ("identifier", "type_identifier"):
        return False
    before = source[source.rfind("\n", 0, node.start_byte) + 1 : node.start_byte]
    line_end = source.find("\n", node.end_byte)
    after = source[node.end_byte : line_end if line_end >= 0 else len(source)]
    return _MACRO.fullmatch(source, name.start_byte, name.end_byte) is not None and not before.strip() + after.strip()


def _before_name(node: Node) -> bool:
    """Whether ``node`` holds one word too many before the name of a function that was read: ``MACRO T f() { … }``."""
    parent, after = node.parent, node.next_sibling
    if parent is None or parent.type != "function_definition" or node.children[0].type != "identifier":
        return False
    return after is not None and function_declarator(after) is not None


def split(children: list[Node]) -> tuple[Node | None, list[Node]]:
    """The type node and the declarators of a declaration with these children."""
    type_: Node | None = None
    declarators = []
    for child in children:
        kind = child.type
        if type_ is None and kind in TYPES:
            type_ = child
        elif kind not in SPECIFIERS and child.is_named and kind not in ("compound_statement", "ERROR"):
            declarators.append(child)
    return type_, declarators


def function_declarator(node: Node) -> Node | None:
    """The function declarator that ``node`` declares a function with (not a pointer to one), or None."""
    while True:
        kind = node.type
        if kind == "function_declarator":
            inner = node.children[0]
            if inner.type == "parenthesized_declarator":
                named = inner.named_children
                # `int (f)(int)` declares f, `int (*f)(int)` a pointer.
                if not named or named[0].type not in ("identifier", "field_identifier"):
                    return None
            elif inner.type == "function_declarator":
                return None
            return node
        if kind not in _WRAPPERS:
            return None
        for child in node.children:
            if child.type.endswith("declarator"):
                node = child
                break
        else:
            return None


class _Place(NamedTuple):
    """Where a declaration stands: its namespace or class, and the template parameter lists around it."""

    scope: str = ""
    templates: tuple[Node, ...] = ()
    in_class: bool = False
    anonymous: bool = False

    def qualified(self, name: str) -> str:
        return f"{self.scope}::{name}" if self.scope else name


class _Walker:
    def __init__(self, into: Declarations) -> None:
        self.into = into
        self.source = into.source
        self.depth = 0
        self.handlers: dict[str, Callable[[Node, _Place], None]] = {
            "function_definition": self.function,
            "declaration": self.declaration,
            "field_declaration": self.declaration,
            "template_declaration": self.template,
            "namespace_definition": self.namespace,
            "linkage_specification": self.walk_children,
            "declaration_list": self.walk_children,
            "export_declaration": self.walk_children,
            "friend_declaration": self.friend,
            "struct_specifier": self.class_,
            "class_specifier": self.class_,
            "union_specifier": self.class_,
            "enum_specifier": self.enum,
            "type_definition": self.typedef,
            "alias_declaration": self.alias,
            "using_declaration": self.using,
            "namespace_alias_definition": self.namespace_alias,
            "ERROR": self.walk_children,
        }

    def text(self, node: Node) -> str:
        return self.source[node.start_byte : node.end_byte]

    def walk(self, node: Node, at: _Place) -> None:
        if self.depth >= _DEEPEST:
            self.into.gaps.append((node.start_byte, node.end_byte, ""))
            return
        self.depth += 1
        handlers = self.handlers
        for child in node.children:
            kind = child.type
            handler = handlers.get(kind)
            if handler is not None:
                handler(child, at)
            elif kind.startswith(("preproc_if", "preproc_el")):
                self.walk(child, at)
        self.depth -= 1

    walk_children = walk

    def namespace(self, node: Node, at: _Place) -> None:
        name, body, inline = "", None, False
        for child in node.children:
            kind = child.type
            if kind in ("namespace_identifier", "nested_namespace_specifier", "identifier"):
                name = re.sub(r"\s|\binline\b", "", self.text(child))
            elif kind == "declaration_list":
                body = child
            elif kind == "inline":
                inline = True
        inner = at.qualified(name) if name else at.scope
        if inline and name:
            self.into.usings.append((at.scope, inner))
        if body is not None:
            self.walk(body, _Place(inner, (), False, at.anonymous or not name))

    def template(self, node: Node, at: _Place) -> None:
        for child in node.children:
            if child.type == "template_parameter_list":
                at = at._replace(templates=(*at.templates, child))
                break
        self.walk(node, at)

    def friend(self, node: Node, at: _Place) -> None:
        # A friend defined in a class is a function of the namespace.
        if any(child.type == "function_definition" for child in node.children):
            self.walk(node, at._replace(scope=at.scope.rpartition("::")[0], in_class=False))

    def class_(self, node: Node, at: _Place) -> None:
        self.class_named(node, None, at)

    def class_named(
        self, node: Node, typedef_name: str | None, at: _Place
    ) -> None:  # fmt: skip
        name, body, specialised = typedef_name, None, None
        for child in node.children:
            kind = child.type
            if kind == "field_declaration_list":
                body = child
            elif kind == "type_identifier":
                name = self.text(child)
            elif kind in ("template_type", "qualified_identifier") and body is None:
                # The members of a specialisation must not be taken for the primary template's.
                name = re.sub(r"\s+", "", self.text(child))
                specialised = child if kind == "template_type" else None
            elif kind == "base_class_clause" and name is None:
                break
        if body is None:
            return
        if name is None:
            self.walk(body, at._replace(templates=()))
            return
        decl = TypeDecl(self.into, "class", name, at.scope, node, at.templates, at.in_class)
        if specialised is not None:
            decl.arguments = specialised.children[-1]
            self.into.specialisations.setdefault(self.text(specialised.children[0]), []).append(decl)
        self.add_type(decl)
        self.walk(body, _Place(decl.qualname, at.templates, True, at.anonymous))

    def enum(self, node: Node, at: _Place) -> None:
        self.enum_named(node, None, at)

    def enum_named(self, node: Node, name: str | None, at: _Place) -> None:
        scoped, body = False, None
        for child in node.children:
            kind = child.type
            if kind in ("class", "struct"):
                scoped = True
            elif kind == "type_identifier" and name is None:
                name = self.text(child)
            elif kind == "enumerator_list":
                body = child
        if body is None:
            return
        decl = TypeDecl(self.into, "enum", name or f"enum@{node.start_byte}", at.scope, node, at.templates, at.in_class)
        if name:
            self.add_type(decl)
        for child in body.children:
            if child.type == "enumerator":
                constant = self.text(child.children[0])
                if not scoped:
                    self.add_value(
                        ValueDecl(self.into, constant, at.scope, child, child, at.templates, at.in_class, decl)
                    )
                if name:
                    self.add_value(
                        ValueDecl(self.into, constant, decl.qualname, child, child, at.templates, True, decl)
                    )

    def typedef(self, node: Node, at: _Place) -> None:
        type_, declarators = split(node.children)
        if type_ is None:
            return
        plain = next((self.text(d) for d in declarators if d.type == "type_identifier"), None)
        if type_.type in CLASSES:
            self.class_named(type_, plain, at)
        elif type_.type == "enum_specifier":
            self.enum_named(type_, None, at)
        for declarator in declarators:
            name = declared_name(declarator)
            if name is not None:
                text = self.text(name)
                tag = type_.child_by_field_name("name")
                if tag is not None and declarator.type == "type_identifier" and self.text(tag) == text and (
                    type_.type in CLASSES or type_.type == "enum_specifier"
                ):  # fmt: skip
                    continue  # `typedef struct S S;` names no other type than S
                found = self.into.types.get(at.qualified(text))
                if found is None or found.node.id != type_.id:
                    self.add_type(
                        TypeDecl(self.into, "alias", text, at.scope, node, at.templates, at.in_class, declarator)
                    )

    def alias(self, node: Node, at: _Place) -> None:
        name = self.text(node.children[1])
        self.add_type(TypeDecl(self.into, "alias", name, at.scope, node, at.templates, at.in_class))

    def using(self, node: Node, at: _Place) -> None:
        named = node.named_children
        if not named:
            return
        target = re.sub(r"\s+", "", self.text(named[-1]))
        if any(child.type == "namespace" for child in node.children):
            self.into.usings.append((at.scope, target))
        else:
            self.into.using_names.append((at.scope, target))

    def namespace_alias(self, node: Node, _at: _Place) -> None:
        named = node.named_children
        if len(named) == 2:
            self.into.aliases[self.text(named[0])] = re.sub(r"\s+", "", self.text(named[1]))

    def declaration(self, node: Node, at: _Place) -> None:
        children = node.children
        type_, declarators = split(children)
        if type_ is not None and type_.type in CLASSES:
            self.class_(type_, at)
        elif type_ is not None and type_.type == "enum_specifier":
            self.enum(type_, at)
        words = None
        for declarator in declarators:
            kind = declarator.type
            inner = declarator if kind == "operator_cast" else function_declarator(declarator)
            if inner is not None:
                self.add_function(node, declarator, inner, None, at)
                continue
            if words is None:
                words = {self.text(c) for c in children if c.type in ("storage_class_specifier", "type_qualifier")}
            name_node = declared_name(declarator)
            if name_node is None or (at.in_class and not words & {"static", "constexpr"}):
                continue
            name, scope = self.text(name_node), at.scope
            if name_node.type == "qualified_identifier":
                scope, _, name = qualified_text(self.source, name_node).rpartition("::")
                scope = at.qualified(scope)
            # `constexpr int A::n;` beside a class that gives it its value is a declaration.
            valued = kind == "init_declarator" or any(child.type == "=" for child in children)
            defines = valued or not (words & {"extern", "const", "constexpr"})
            self.add_value(
                ValueDecl(self.into, name, scope, node, declarator, at.templates, at.in_class, None, defines)
            )

    def function(self, node: Node, at: _Place) -> None:
        body, declarator, inner = None, None, None
        for child in node.children:
            kind = child.type
            if kind in ("compound_statement", "try_statement"):
                body = child
            elif kind == "operator_cast":
                declarator = inner = child
            elif declarator is None and (kind in _WRAPPERS or kind == "function_declarator"):
                found = function_declarator(child)
                if found is not None:
                    declarator, inner = child, found
            elif (
                kind == "qualified_identifier"
                and declarator is None
                and child.named_children[-1].type == "operator_cast"
            ):
                declarator = inner = child
        if inner is not None:
            self.add_function(node, declarator, inner, body, at)
        elif body is not None:
            # `NAMESPACE_BEGIN {` and the like read as a function without parameters.
            self.walk(body, at)

    def add_function(
        self, node: Node, declarator: Node | None, inner: Node, body: Node | None, place: _Place
    ) -> None:  # fmt: skip
        scope, templates, in_class, anonymous = place
        name_node = inner.children[0] if inner.type == "function_declarator" else inner
        if name_node.type == "parenthesized_declarator":
            name_node = name_node.named_children[0]
        owner, at, own_template = scope if in_class else "", scope, len(templates) > 0
        if inner.type in ("operator_cast", "qualified_identifier"):
            name = re.sub(r"\s+", " ", self.text(inner).partition("(")[0]).strip()
            if inner.type == "qualified_identifier":
                owner, _, name = name.rpartition("::")
                owner = at = re.sub(r"<[^>]*>|\s+", "", owner)
        else:
            last = name_node
            while last.type == "qualified_identifier":
                last = last.children[-1]
            name = self.text(last.children[0] if last.type == "template_function" else last)
            if name_node.type == "qualified_identifier":
                prefix = qualified_text(self.source, name_node).rpartition("::")[0]
                at = f"{scope}::{prefix}" if scope and prefix else prefix or scope
                owner = at
                template_classes = self.text(name_node).count("<") - (last.type == "template_function")
                own_template = len(templates) > (1 if template_classes > 0 else 0)
            name_node = last
        if in_class:
            own_template = node.parent is not None and node.parent.type == "template_declaration"
        if name.startswith("operator"):
            name = (
                "operator" + re.sub(r"\s+", "", name[8:])
                if not name[8:9].isspace() or name[9:10] in "(+-*/<>=![&|^%~"
                else name
            )
        kernel = device = host = constexpr = static = False
        for child in node.children:
            kind = child.type
            if kind == "__global__":
                kernel = True
            elif kind == "__device__":
                device = True
            elif kind == "__host__":
                host = True
            elif kind == "type_qualifier":
                constexpr = constexpr or self.text(child) == "constexpr"
            elif kind == "storage_class_specifier":
                static = static or self.text(child) == "static"
            elif kind == ":" or child.start_byte >= inner.end_byte:
                break
        decl = FunctionDecl.__new__(FunctionDecl)
        decl.name, decl.owner = name, owner
        decl.qualname = f"{at}::{name}" if at else name
        space: FunctionKind = "host"
        if kernel:
            space = "kernel"
        elif (device and host) or (constexpr and not device and not host):
            space = "both"
        elif device:
            space = "device"
        decl.kind = space
        decl.file = self.into.file
        decl.start, decl.end = node.start_byte, node.end_byte
        decl.name_start, decl.name_end = name_node.start_byte, name_node.end_byte
        decl.params = parameter_names(self.source, parameter_list(inner))
        decl.template = template_names(self.source, templates[-1]) if own_template else []
        decl.static = (static and not in_class) or anonymous
        decl.has_body = body is not None and not inner.has_error  # without its parameters it cannot be judged
        decl._lowered = {}
        decl.node = Syntax(node, declarator, inner, body, at, templates, own_template)
        self.into.functions.append(decl)
        self.into.functions_by_name.setdefault(name, []).append(decl)

    def add_type(self, decl: TypeDecl) -> None:
        self.into.types.setdefault(decl.qualname, decl)
        self.into.types_by_name.setdefault(decl.name, []).append(decl)

    def add_value(self, decl: ValueDecl) -> None:
        known = self.into.values.get(decl.qualname)
        if known is None or (decl.defines and not known.defines):
            self.into.values[decl.qualname] = decl
        found = self.into.values_by_name.setdefault(decl.name, [])
        if decl.defines and found and not found[0].defines:
            found.insert(0, decl)
        else:
            found.append(decl)


def declared_name(node: Node) -> Node | None:
    """The name node that a declarator declares; None for an abstract one."""
    while True:
        kind = node.type
        if kind in ("identifier", "field_identifier", "type_identifier", "qualified_identifier", "primitive_type"):
            return node
        if not kind.endswith("declarator") or kind == "structured_binding_declarator":
            return None
        for child in node.children:
            kind = child.type
            if kind in (
                "identifier",
                "field_identifier",
                "type_identifier",
                "qualified_identifier",
                "primitive_type",
            ) or (kind.endswith("declarator")):
                node = child
                break
        else:
            return None


def qualified_text(source: str, node: Node) -> str:
    """A qualified name without template arguments: ``a::B<int>::f`` is ``a::B::f``."""
    parts = []
    while node.type == "qualified_identifier":
        children = node.children
        first = children[0]
        if first.type == "template_type":
            first = first.children[0]
        if first.type != "::":
            parts.append(source[first.start_byte : first.end_byte])
        node = children[-1]
    if node.type in ("template_type", "template_function"):
        node = node.children[0]
    parts.append(source[node.start_byte : node.end_byte])
    return "::".join(parts)


def parameter_list(inner: Node) -> Node | None:
    """The parameter list of a function declarator."""
    if inner.type in ("operator_cast", "qualified_identifier"):
        return None
    for child in inner.children:
        if child.type == "parameter_list":
            return child
    return None


def parameter_nodes(source: str, node: Node | None) -> list[Node]:
    """The declarations of a parameter list; none for ``(void)``."""
    if node is None:
        return []
    found = [c for c in node.children if c.type.endswith("parameter_declaration")]
    if len(found) == 1 and source[found[0].start_byte : found[0].end_byte] == "void":
        return []
    return found


def parameter_names(source: str, node: Node | None) -> list[str]:
    result = []
    for parameter in parameter_nodes(source, node):
        _, declarators = split(parameter.children)
        name = declared_name(declarators[0]) if declarators else None
        result.append(source[name.start_byte : name.end_byte] if name is not None else "")
    return result


def template_names(source: str, node: Node) -> list[tuple[str, str]]:
    """(name, "type" or "value") of each template parameter."""
    result = []
    for child in node.named_children:
        kind = child.type
        if kind in ("parameter_declaration", "optional_parameter_declaration", "variadic_parameter_declaration"):
            _, declarators = split(child.children)
            named = declared_name(declarators[0]) if declarators else None
            # `typename T::type N` apart, a parameter_declaration without a name is an unnamed value.
            result.append((source[named.start_byte : named.end_byte] if named is not None else "", "value"))
        elif kind.endswith("parameter_declaration"):
            if kind == "template_template_parameter_declaration":
                child = child.named_children[-1]
            names = [c for c in child.children if c.type == "type_identifier"]
            name = names[0] if names and (names[0].start_byte < _equals(child)) else None
            result.append((source[name.start_byte : name.end_byte] if name is not None else "", "type"))
    return result


def _equals(node: Node) -> int:
    for child in node.children:
        if child.type == "=":
            return child.start_byte
    return node.end_byte
