"""The type oracle of last resort: libclang, asked for what syntax and the project's headers leave unknown.

It is asked only when a finding can hinge on the answer, and imported only then. It reads nothing but
what it is handed: the file's expanded text, that of the project files it includes, and stub headers of
our own, all from memory. An answer that rests on an error is none: names that nothing declares become
opaque classes (left alone, libclang takes an unknown type for ``int``), recovered expressions carry no
type, and where a typedef still rests on a name that is not known there are no answers at all.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from typing import TYPE_CHECKING, Any

from cudalint.frontend.declare import syntax_of
from cudalint.frontend.lower import Lowerer
from cudalint.frontend.typing import arguments_of
from cudalint.ir.nodes import Call, Expr, Index, Member, Var
from cudalint.ir.types import (
    BOOL,
    BUILTIN_NAMES,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    VOID,
    Array,
    Int,
    Ptr,
    Struct,
    Type,
    Unknown,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tree_sitter import Node

    from cudalint.frontend.source import SourceFile
    from cudalint.ir.nodes import Function, FunctionDecl

#: Paths that exist in libclang's memory only. The unit includes the stubs, the headers and then the file.
_HOME = "/cudalint-memory/"
_MAIN, _UNIT = _HOME + "main.h", _HOME + "unit.cpp"
#: An LP64 target of which clang's driver searches the machine for no compiler, as it does for Linux.
_FLAGS = (
    "-x", "c++", "-target", "x86_64-unknown-fuchsia", "-nostdinc", "-nostdinc++", "-nobuiltininc",
    "-resource-dir=/nonexistent", "-fno-spell-checking", "-ferror-limit=0", "-w", "-fsyntax-only",
    "-ftemplate-depth=64", "-fconstexpr-steps=20000", "-fbracket-depth=512", "-Xclang", "-fno-recovery-ast-type",
)  # fmt: skip
_KEEP_GOING = 0x200
_ERROR = 3
_ROUNDS = 4
"""Times a file is parsed, each time with the names declared that were missing before."""
_MAX_TEXT = 512 << 10
"""Bytes of a unit that are handed to libclang; a larger one has no answers."""
_MAX_BODY = 20_000
"""Bytes of a function that is asked about: a longer one is a table of cases, dear to parse and told alike."""
_MAX_VIEWS = 4
"""Parses of one file that are kept: questions come function by function."""
_MAX_NAMES = 400
"""Missing names of a unit; one with more is no C++ that we can help with."""

#: The stub headers, and what a text must mention for them to be of use.
_STUBS = (
    ("base.h", b""), ("std.h", b"std|at::|torch|thrust"), ("groups.h", b"cooperative_groups"), ("cub.h", b"cub"),
    ("thrust.h", b"thrust"), ("tensor.h", b"at::|torch|c10"),
)  # fmt: skip
_stubs: dict[str, bytes] = {}
_vocabulary: set[str] = set()
_index: list[Any] = []


def _stub_texts() -> dict[str, bytes]:
    if not _stubs:
        folder = os.path.join(os.path.dirname(__file__), "stubs")
        for name, _ in _STUBS:
            with open(os.path.join(folder, name), "rb") as stream:
                _stubs[name] = stream.read()
    return _stubs


def known_names() -> set[str]:
    """Every word of the stubs: a name that is none of these is as unknown to libclang as it is to us."""
    if not _vocabulary:
        for text in _stub_texts().values():
            # The names of parameters in the stubs are shorter.
            _vocabulary.update(re.findall(r"\w{3,}", text.decode()))
    return _vocabulary


def _clang() -> Any:
    """libclang's index and bindings as one pair; None where they are not installed or do not load."""
    if not _index:
        try:
            from clang import cindex

            cindex.conf.lib.clang_isInvalidDeclaration.argtypes = [cindex.Cursor]
            _index.append((cindex.Index.create(), cindex))
        except Exception:  # of any kind: a missing package, a library that does not load or is too old
            _index.append(None)
    return _index[0]


_OPEN = frozenset({
    "a structured binding", "a call through a pointer", "arithmetic on a class type", "an overloaded operator()",
    "auto without an initialiser",
})  # fmt: skip
_OF_CLASS = ("member '", "method '", "element of", "a call of a value", "arithmetic")
_QUOTED = re.compile(r"'([^'<]*)")


def hopeful(expr: Expr) -> bool:
    """Whether libclang can know the type that ``expr`` lacks: most names it knows no better, and a parse takes time."""
    type_ = expr.type
    if not isinstance(type_, Unknown):
        return False
    if _in_stubs(type_) or type_.why.startswith("no overload"):
        return True
    # A member or method of a class of the project that syntax does not lead to: inherited, overloaded, a template's.
    base = expr.base if isinstance(expr, (Member, Index)) else None
    if isinstance(expr, Call):
        base = expr.receiver or expr.callee
    if base is None or not isinstance(base.type, Struct) or not type_.why.startswith(_OF_CLASS):
        return False
    return base.type.key is not None or base.type.name.partition("<")[0].rpartition("::")[2] in known_names()


def _in_stubs(type_: Unknown) -> bool:
    """Whether a type is unknown for a name that the stubs declare, or for a construct that only libclang resolves."""
    why = type_.why
    names = _QUOTED.findall(why)
    if not names:
        return why in _OPEN
    if "depends on" in why:
        return False
    # Of a member it is the class that has to be known.
    words = known_names()
    classes = names[1:] if why.startswith(("member", "method")) else names[:1]
    return any(all(part.strip() in words for part in name.split("::") if part) for name in classes if name.strip())


def answers(function: Function) -> bool:
    """Whether libclang knows a type that ``function`` was lowered without: else asking would lower the very same."""
    if function.answered is None:
        function.answered = False  # meanwhile: what two functions deduce from one another nobody knows
        function.answered = any(_answer(function.file, doubt) for doubt in function.doubts)
    return function.answered


def _answer(file: SourceFile, doubt: Expr | Var | tuple[FunctionDecl, dict[str, Type | int]]) -> Type | None:
    if isinstance(doubt, tuple):
        return _deduced(file, *doubt)
    if isinstance(doubt, Var):
        type_ = doubt.type
        return file.oracle.declared(doubt.start) if isinstance(type_, Unknown) and _in_stubs(type_) else None
    return file.oracle.type_of(doubt.start, doubt.end) if hopeful(doubt) else None


def _deduced(file: SourceFile, decl: FunctionDecl, bindings: dict[str, Type | int]) -> Type | None:
    """What a function of another file returns, where that takes the oracle of that file."""
    if not decl.has_body or decl.file is file or not answers(decl.lower(bindings)):
        return None
    return decl.lower(bindings, asked=True).returns


class Asking(Lowerer):
    """Lowers as :class:`Lowerer` does and asks the oracle of the file for each type that stays unknown."""

    def nested(self, declarations: Any, prefix: str) -> Lowerer:
        return Lowerer(declarations, prefix)

    def expr(self, node: Node) -> Expr:
        result = super().expr(node)
        result.type = _answer(self.file, result) or result.type
        return result

    def bind(self, name: str, meaning: Any) -> None:
        if type(meaning) is Var:
            meaning.type = _answer(self.file, meaning) or meaning.type
        super().bind(name, meaning)

    def deduced(self, decl: FunctionDecl, bindings: dict[str, Type | int]) -> Type:
        found = super().deduced(decl, bindings)
        return (_deduced(self.file, decl, bindings) if isinstance(found, Unknown) else None) or found


class _Node:
    """A cursor with its place in the main file; its children are made once."""

    __slots__ = ("_children", "cursor", "end", "start")

    def __init__(self, cursor: Any) -> None:
        self.cursor = cursor
        extent = cursor.extent
        self.start, self.end = extent.start.offset, extent.end.offset
        self._children: list[_Node] | None = None

    def children(self) -> list[_Node]:
        if self._children is None:
            self._children = [_Node(child) for child in self.cursor.get_children()]
        return self._children


class _View:
    """A parsed unit: the main file, where errors are in it, and the function that was kept whole."""

    __slots__ = ("errors", "main", "top", "unit")

    def __init__(self, unit: Any, main: Any, errors: list[int]) -> None:
        self.unit, self.main, self.errors = unit, main, errors
        self.top: _Node | None = None

    def faulty(self, start: int, end: int) -> bool:
        """Whether an error lies in [start, end)."""
        at = bisect_left(self.errors, start)
        return at < len(self.errors) and self.errors[at] < end


class Oracle:
    """What libclang makes of one file. Never raises: what it cannot tell is None.

    A question is answered in a parse of its function alone: of the unit's others only the head is read.
    """

    __slots__ = ("_answers", "_file", "_headers", "_kinds", "_missing", "_sources", "_views")

    def __init__(self, file: SourceFile) -> None:
        self._file = file
        self._answers: dict[tuple[int, ...], Type | None] = {}
        self._views: dict[int, _View | None] = {}
        self._sources: dict[str, SourceFile] = {}
        self._headers: list[tuple[str, bytes]] | None = None
        self._missing = _Missing()
        self._kinds: dict[Any, Type] = {}

    def type_of(self, start: int, end: int) -> Type | None:
        """The type of the expression at [start, end) of the file's text, references dropped."""
        return self._answer(self._expression, start, end)

    def declared(self, start: int) -> Type | None:
        """The type of the variable whose name is at ``start``."""
        return self._answer(self._variable, start)

    def _answer(self, ask: Callable[..., Type | None], *place: int) -> Type | None:
        """The same for every instance of a template: each place is asked about once."""
        if place not in self._answers:
            try:
                view = self._view(place[0])
                self._answers[place] = ask(view, *place) if view is not None else None
            except Exception:  # of any kind: the bindings refuse kinds of nodes and types that they do not know
                self._answers[place] = None
        return self._answers[place]

    def _expression(self, view: _View, start: int, end: int) -> Type | None:
        if view.top is None or view.faulty(start, end):
            return None
        found: _Node | None = None
        stack = [view.top]
        while stack:
            node = stack.pop()
            # The innermost of equal extent: conversions that C++ adds lie around what is written.
            if node.start == start and node.end == end and node.cursor.kind.is_expression():
                found = node
            stack.extend(c for c in node.children() if c.start <= start and end <= c.end)
        return self._type(found.cursor.type) if found is not None else None

    def _variable(self, view: _View, start: int) -> Type | None:
        cursor = self._at(view, start)
        if cursor is None or cursor.kind.name not in ("VAR_DECL", "PARM_DECL") or self._invalid(cursor):
            return None
        extent = cursor.extent
        if view.faulty(extent.start.offset, extent.end.offset):
            return None
        return self._type(cursor.type)

    # Parsing

    def _view(self, offset: int) -> _View | None:
        """The parse in which the function at ``offset`` is whole."""
        decl = None
        for each in self._file.declarations.functions:
            if each.has_body and each.start <= offset < each.end:
                decl = each
        if decl is None or decl.end - decl.start > _MAX_BODY:
            return None
        if decl.start not in self._views:
            while len(self._views) >= _MAX_VIEWS:
                del self._views[next(iter(self._views))]
            self._views[decl.start] = None  # unless this goes well
            clang = _clang()
            view = self._parse(clang[0], clang[1], decl) if clang is not None else None
            if view is not None:
                cursor = self._at(view, decl.name_start)
                view.top = _Node(cursor) if cursor is not None else None
            self._views[decl.start] = view
        return self._views[decl.start]

    def _parse(self, index: Any, cindex: Any, decl: FunctionDecl) -> _View | None:
        if self._headers is None:
            self._headers = self._unit()
            self._kinds = {getattr(cindex.TypeKind, name): type_ for name, type_ in _SCALARS.items()}
        if not self._headers:
            return None
        memory = [*self._headers, (_MAIN, _as_cpp(_heads(self._file, decl)))]
        flags = [*_FLAGS, f"-std={_standard(self._file)}"]
        missing = self._missing
        errors: list[tuple[str, int, str]] = []
        for _ in range(_ROUNDS):
            lines = [f'#include "{path}"' for path, _ in memory]
            stubs = sum(path not in self._sources for path, _ in memory)
            whole = "\n".join((*lines[:stubs], missing.declarations(), *lines[stubs:], "")).encode()
            parsed = index.parse(_UNIT, args=flags, unsaved_files=[*memory, (_UNIT, whole)], options=_KEEP_GOING)
            errors = []
            for each in parsed.diagnostics:
                if each.severity >= _ERROR:
                    at = each.location
                    errors.append((at.file.name if at.file else "", at.offset, each.spelling))
            before = len(missing.names)
            for path, offset, message in errors:
                source = self._sources.get(path)
                if source is not None:
                    missing.read(message, source.text, offset)
            if len(missing.names) == before or len(missing.names) > _MAX_NAMES:
                break
        for path, offset, message in errors:
            source = self._sources.get(path)
            if source is not None and _TYPE_ERROR.search(message) and _in_alias(source.text, offset):
                return None
        return _View(parsed, parsed.get_file(_MAIN), sorted(offset for path, offset, _ in errors if path == _MAIN))

    def _unit(self) -> list[tuple[str, bytes]]:
        """The stubs and project headers as libclang is to see them, by path; none where the unit is not for it."""
        unit = list(_in_order(self._file))
        if sum(len(file.text) for file in unit) > _MAX_TEXT or any(_DIRECTIVE.search(file.text) for file in unit):
            return []
        paths = [f"{_HOME}{number}.h" for number in range(len(unit) - 1)] + [_MAIN]
        self._sources = dict(zip(paths, unit, strict=True))
        stubs = _stub_texts()
        wanted = [name for name, words in _STUBS if any(re.search(words, file.text) for file in unit)]
        headers = [(path, _heads(file, None)) for path, file in self._sources.items() if path != _MAIN]
        return [*((_HOME + name, stubs[name]) for name in wanted), *headers]

    # Cursors

    def _at(self, view: _View, offset: int) -> Any:
        """The declaration whose name is at ``offset``."""
        from clang import cindex

        location = cindex.SourceLocation.from_offset(view.unit, view.main, offset)
        cursor = cindex.Cursor.from_location(view.unit, location)
        if cursor is None or not cursor.kind.is_declaration() or cursor.location.offset != offset:
            return None
        return cursor

    def _invalid(self, cursor: Any) -> bool:
        from clang import cindex

        return bool(cindex.conf.lib.clang_isInvalidDeclaration(cursor))

    # Types

    def _type(self, clang_type: Any, depth: int = 0) -> Type | None:
        canonical = clang_type.get_canonical()
        kind = canonical.kind
        scalar = self._kinds.get(kind)
        if scalar is not None:
            return scalar
        name = kind.name
        if depth > 8:
            return None
        if name in ("LVALUEREFERENCE", "RVALUEREFERENCE"):
            return self._type(canonical.get_pointee(), depth + 1)
        if name == "POINTER":
            inner = self._type(canonical.get_pointee(), depth + 1)
            return Ptr(inner) if inner is not None else None
        if name in ("CONSTANTARRAY", "INCOMPLETEARRAY"):
            inner = self._type(canonical.element_type, depth + 1)
            if inner is None:
                return None
            return Array(inner, canonical.element_count if name == "CONSTANTARRAY" else None)
        if name == "ENUM":
            # As everywhere in cudalint an enumeration without a 64-bit base counts as int: that is what it promotes to.
            base = self._type(canonical.get_declaration().enum_type, depth + 1)
            return base if isinstance(base, Int) and base.bits == 64 else I32
        if name == "RECORD":
            return self._record(canonical, depth)
        return None

    def _record(self, canonical: Any, depth: int) -> Type | None:
        cursor = canonical.get_declaration()
        if self._invalid(cursor):
            return None
        arguments = self._arguments(canonical, cursor, depth)
        if arguments is None:
            return None
        location = cursor.location
        path = location.file.name if location.file else ""
        source = self._sources.get(path)
        if source is not None:
            offset = location.offset
            for decl in source.declarations.types_by_name.get(cursor.spelling, ()):
                if decl.kind == "class" and decl.node.start_byte <= offset < decl.node.end_byte:
                    return Lowerer(decl.declarations, decl.scope).resolve(decl, arguments)
            return None
        if path == _UNIT or not path:
            return None  # a class that nobody declares
        scopes = [cursor.spelling]
        while (cursor := cursor.semantic_parent) is not None and cursor.kind.name in ("NAMESPACE", "STRUCT_DECL"):
            scopes.insert(0, cursor.spelling)
        if len(scopes) == 1 and not arguments:
            return BUILTIN_NAMES.get(scopes[0])
        full = "::".join(scopes)
        if not arguments:
            return Struct(full)
        result = Struct(f"{full}<{', '.join('?' if a is None else str(a) for a in arguments)}>")
        arguments_of.setdefault(result, arguments)
        return result

    def _arguments(self, canonical: Any, cursor: Any, depth: int) -> tuple[Type | int | None, ...] | None:
        """The template arguments of a class; None where one is a type that we cannot name."""
        found: list[Type | int | None] = []
        for number in range(max(0, canonical.get_num_template_arguments())):
            type_ = canonical.get_template_argument_type(number)
            if type_.kind.name != "INVALID":
                inner = self._type(type_, depth + 1)
                if inner is None:
                    return None
                found.append(inner)
            else:
                try:
                    integral = cursor.get_template_argument_kind(number).name == "INTEGRAL"
                except ValueError:  # a template as an argument: a kind that the bindings do not know
                    integral = False
                found.append(cursor.get_template_argument_value(number) if integral else None)
        return tuple(found)


_SCALARS: dict[str, Type] = {
    "BOOL": BOOL, "CHAR_S": I8, "CHAR_U": I8, "SCHAR": I8, "UCHAR": U8, "SHORT": I16, "USHORT": U16, "INT": I32,
    "UINT": U32, "LONG": I64, "ULONG": U64, "LONGLONG": I64, "ULONGLONG": U64, "FLOAT": F32, "DOUBLE": F64,
    "LONGDOUBLE": F64, "VOID": VOID, "WCHAR": I32, "CHAR16": U16, "CHAR32": U32,
}  # fmt: skip


def _in_order(file: SourceFile) -> Iterator[SourceFile]:
    """The project files of a unit, each after those it includes; ``file`` is the last."""
    seen = {id(file)}
    stack: list[tuple[SourceFile, Iterator[SourceFile]]] = [(file, iter(file.includes))]
    while stack:
        current, includes = stack[-1]
        for included in includes:
            if id(included) not in seen:
                seen.add(id(included))
                stack.append((included, iter(included.includes)))
                break
        else:
            stack.pop()
            yield current


def _standard(file: SourceFile) -> str:
    """The language standard that the compilation database gives the file, C++17 without one."""
    given = file.env.standard(file.path)
    return given if given is not None and re.fullmatch(r"(?:gnu|c)\+\+\w\w", given) else "gnu++17"


_DEDUCED = re.compile(rb"\b(?:auto|constexpr|consteval)\b")


def _heads(file: SourceFile, whole: FunctionDecl | None) -> bytes:
    """The file's text, of its functions but ``whole`` the heads only, every offset as it was.

    Bodies from which a type or a value is made stay.
    """
    result: bytearray | None = None
    for decl in file.declarations.functions:
        syntax = syntax_of(decl)
        body = syntax.body
        if decl is whole or body is None or body.type != "compound_statement":
            continue
        start, end = body.start_byte, body.end_byte
        if whole is not None and decl.start <= whole.start and whole.end <= decl.end:
            continue
        initialised = any(child.type == "field_initializer_list" for child in syntax.node.children)
        if initialised or _DEDUCED.search(file.text, decl.start, start):
            continue
        if result is None:
            result = bytearray(file.text)
        result[start:end] = b";" + b" " * (end - start - 1)
    return bytes(result) if result is not None else file.text


#: What would make libclang open a file: there should be none left after preprocessing, however it is spelled.
_DIRECTIVE = re.compile(rb"^[ \t]*(?:\#|%:|\?\?=|(?:export[ \t]+)?import\b)", re.MULTILINE)


def _as_cpp(text: bytes) -> bytes:
    """``text`` as C++ of the same length: ``k<<<g, b>>>(n)`` becomes the statements ``k;((g, b));(n)``.

    libclang does not show what a launch's configuration holds.
    """
    at = text.find(b"<<<")
    if at < 0:
        return text
    result = bytearray(text)
    while at >= 0:
        depth = 0
        for match in _BRACKETS.finditer(text, at + 3):
            sign = match.group()
            if sign == b">>>":
                if depth == 0:
                    result[at : at + 3] = b";(("
                    result[match.start() : match.end()] = b"));"
                    break
            else:
                depth += 1 if sign in b"([{" else -1
                if depth < 0:
                    break
        at = text.find(b"<<<", at + 3)
    return bytes(result)


_BRACKETS = re.compile(rb"[()\[\]{}]|>>>")
_TYPE_ERROR = re.compile(r"unknown type name|no type named|no template named|undeclared identifier|no member named")
_MESSAGES = (
    (re.compile(r"unknown type name '(\w+)'"), "class"),
    (re.compile(r"no type named '(\w+)' in namespace '([\w:]+)'"), "class"),
    (re.compile(r"no template named '(\w+)'(?: in namespace '([\w:]+)')?"), "template"),
    (re.compile(r"use of undeclared identifier '(\w+)'"), ""),
    (re.compile(r"no member named '(\w+)' in namespace '([\w:]+)'"), ""),
)  # fmt: skip
_TEMPLATE_USE = re.compile(rb"\w+\s*<[^;(){}]*>\s*(?:::|[\w&*])")
_ARGUMENT_END = re.compile(rb"\w+\s*[,>*&]")
_SCOPE_USE = re.compile(rb"\w+\s*::")


class _Missing:
    """Names that nothing declares, as the opaque classes and namespaces that they are taken for."""

    __slots__ = ("names",)

    def __init__(self) -> None:
        self.names: dict[tuple[str, str], str] = {}

    def read(self, message: str, text: bytes, offset: int) -> None:
        """Take the name that an error at ``offset`` of ``text`` is about."""
        for pattern, what in _MESSAGES:
            match = pattern.search(message)
            if match is None:
                continue
            groups = match.groups()
            name, scope = groups[0], (groups[1] if len(groups) > 1 else "") or ""
            if not what:
                if _TEMPLATE_USE.match(text, offset):
                    what = "template"
                elif _SCOPE_USE.match(text, offset):
                    what = "namespace"
                elif _in_alias(text, offset) or _is_argument(text, offset):
                    what = "class"
                else:
                    return  # a value: what it stands in has no type
            if what == "class" and _TEMPLATE_USE.match(text, offset):
                what = "template"
            self.names.setdefault((scope, name), what)
            return

    def declarations(self) -> str:
        lines = []
        for (scope, name), what in self.names.items():
            line = {
                "class": f"class {name};",
                "template": f"template <class...> class {name};",
                "namespace": f"namespace {name} {{}}",
            }[what]  # fmt: skip
            for part in reversed(scope.split("::") if scope else ()):
                line = f"namespace {part} {{ {line} }}"
            lines.append(line)
        return "\n".join(lines)


def _is_argument(text: bytes, offset: int) -> bool:
    """Whether the name at ``offset`` may be a template argument: that of a value would make no type either."""
    before = text[max(0, offset - 80) : offset].rstrip()
    return before.endswith((b"<", b",")) and _ARGUMENT_END.match(text, offset) is not None


def _in_alias(text: bytes, offset: int) -> bool:
    """Whether ``offset`` is in a typedef or an alias, from where an unknown type would spread as ``int``."""
    begin = max(text.rfind(sign, 0, offset) for sign in (b";", b"{", b"}")) + 1
    return re.match(rb"\s*(?:template\s*<[^;{}]*>\s*)?(?:typedef|using)\b", text[begin : offset + 1]) is not None
