"""CUDA in strings of Python: which strings are given to a library that compiles them, and where each character of
theirs is written.

Nothing is executed: strings are read from the syntax. A name stands for the strings that are assigned to it.
"""

from __future__ import annotations

import ast
import re
import warnings
from itertools import islice, product, takewhile
from typing import TYPE_CHECKING

from cudalint.frontend.embedded import Found, Layer
from cudalint.frontend.preprocess import Gap
from cudalint.frontend.source import holds_cuda
from cudalint.frontend.taken import OPTIONAL, TAKES
from cudalint.lazy import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cudalint.frontend.taken import Form, Text

_MOST_STEPS = 16
"""Names behind names that are followed."""
_MOST_TEXTS = 16
"""Texts that one argument may be, by branches."""
_LITERAL = re.compile(rb"""([A-Za-z]{0,2})("{3}|'{3}|"|')""")
_BETWEEN = re.compile(rb"(?:\s|\\\r?\n|#[^\r\n]*)*")
_ENDS = {quote: re.compile(rb"(?:[^\\]|\\.)*?" + quote, re.DOTALL) for quote in (b'"""', b"'''", b'"', b"'")}
_ESCAPE = re.compile(
    rb"\\(?:\r\n|[0-7]{1,3}|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|N\{[^}]*\}|.)|\r\n?", re.DOTALL
)
_NEWLINE = re.compile(rb"\r\n?")
_SIMPLE = {
    b"\\": b"\\", b"'": b"'", b'"': b'"', b"a": b"\a", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t",
    b"v": b"\v", b"\n": b"", b"\r": b"", b"\r\n": b"",
}  # fmt: skip
_LINE_END = re.compile(rb"\r\n?|\n")
_INSIDE_CUPY = re.compile(r"cupy\._?core\.(?:\w+\.)?")
"""Where CuPy keeps what it offers."""
_COOKIE = re.compile(rb"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
_READABLE = frozenset(("utf-8", "utf8", "ascii", "us-ascii", "latin-1", "latin1", "iso-8859-1", "cp1252"))


class Unreadable(Exception):
    """An expression whose value is not known before the program runs."""

    def __init__(self, node: ast.expr, why: str) -> None:
        super().__init__(why)
        self.node, self.why = node, why
        self.shown = False
        """Whether literals in it show that it is CUDA."""


def read_module(raw: bytes) -> Found:
    """The CUDA texts of a Python file."""
    for line in raw.split(b"\n", 2)[:2]:
        cookie = _COOKIE.match(line)
        if cookie is not None and cookie[1].decode().lower().replace("_", "-") not in _READABLE and not raw.isascii():
            why = f"the file's encoding, {cookie[1].decode()}, is not read"
            return Found({}, [Gap(0, 0, why)])
    try:
        tree = parse(raw)
    except SyntaxError as fault:
        starts = _line_starts(raw)
        at = starts[min(fault.lineno or 1, len(starts)) - 1]
        return Found({}, [Gap(at, at, f"the file is no Python that this version reads: {fault.msg}")])
    return read(raw, tree, None)


def parse(raw: bytes) -> ast.Module:
    """SyntaxError for whatever cannot be parsed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(raw.decode())
        except SyntaxError:
            raise
        except (ValueError, RecursionError, MemoryError) as fault:
            raise SyntaxError(f"{type(fault).__name__}: {fault}") from None


def read(raw: bytes, tree: ast.Module, below: Layer | None) -> Found:
    """The CUDA texts of a module. ``below`` is where its text comes from, if that is no file of its own."""
    found = Found({}, [])
    module = _Module(raw, tree)
    seen: set[tuple[bytes | tuple[int, int], ...]] = set()
    passed: set[tuple[int, int]] = set()
    for call in module.calls():
        try:
            texts = module.texts(call)
        except RecursionError:
            continue
        except Unreadable as why:
            start, end = module.range(why.node)
            if why.shown and (start, end) not in passed:
                passed.add((start, end))
                if below is not None:
                    start, end = below.outer(start, end)
                found.passed.append(Gap(start, end, str(why)))
            continue
        for parts in texts:
            key = tuple(part if isinstance(part, bytes) else module.range(part) for part in parts)
            if key in seen:
                continue
            seen.add(key)
            layer = module.layer(parts, below)
            if layer is not None:
                found.texts[f"string {len(found.texts) + 1}.cu"] = layer
            else:
                places = [place for place in key if not isinstance(place, bytes)]
                start, end = places[0][0], places[-1][1]
                if below is not None:
                    start, end = below.outer(start, end)
                found.passed.append(Gap(start, end, "where its characters are written cannot be told"))
    return found


Scope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef


class _Call(NamedTuple):
    """A call that takes CUDA, and what it is given by name."""

    form: Form
    given: dict[str, ast.expr]
    scopes: tuple[Scope, ...]


class _Assigned(NamedTuple):
    value: ast.expr | None
    """None: whatever it is, no expression gives it (a loop's target, a parameter)."""
    end: tuple[int, int]
    """Line and column from which on it holds."""
    plain: bool
    """It is done whenever its scope is: it stands in no branch."""


class _Module:
    def __init__(self, raw: bytes, tree: ast.Module) -> None:
        self._raw = raw
        self._starts = _line_starts(raw)
        self._calls: list[tuple[ast.Call, tuple[Scope, ...]]] = []
        self._imports: dict[str, str] = {}
        self._stars: list[str] = []
        self._names: dict[Scope, dict[str, list[_Assigned]]] = {}
        self._visit(tree)

    def _visit(self, tree: ast.Module) -> None:
        stack: list[tuple[ast.AST, ast.AST, tuple[Scope, ...]]] = [(tree, tree, (tree,))]
        self._names[tree] = {}
        while stack:
            node, parent, scopes = stack.pop()
            inner = scopes
            if isinstance(node, ast.Call):
                self._calls.append((node, scopes))
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    self._imports[alias.asname or alias.name.partition(".")[0]] = (
                        alias.name if alias.asname else alias.name.partition(".")[0]
                    )
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for alias in node.names:
                    if alias.name == "*":
                        self._stars.append(node.module)
                    else:
                        self._imports[alias.asname or alias.name] = f"{node.module}.{alias.name}"
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
                inner = (*scopes, node)
                names = self._names[node] = {}
                if not isinstance(node, ast.ClassDef):
                    arguments = node.args
                    every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
                    for each in (*every, arguments.vararg, arguments.kwarg):
                        if each is not None:
                            names.setdefault(each.arg, []).append(_Assigned(None, (0, 0), True))
            for target, value in _assignments(node):
                assigned = _Assigned(value, _end(target if value is None else value), parent is scopes[-1])
                self._names[scopes[-1]].setdefault(target.id, []).append(assigned)
            stack.extend((child, node, inner) for child in ast.iter_child_nodes(node))
        self._calls.sort(key=lambda call: (call[0].lineno, call[0].col_offset))

    def calls(self) -> Iterator[_Call]:
        """The calls of functions that take CUDA, in order."""
        for call, scopes in self._calls:
            form = TAKES.get(_INSIDE_CUPY.sub("cupy.", self._full_name(call.func) or ""))
            if form is not None:
                placed = takewhile(lambda argument: not isinstance(argument, ast.Starred), call.args)
                given = dict(zip(form.arguments, placed, strict=False))
                given |= {each.arg: each.value for each in call.keywords if each.arg is not None}
                yield _Call(form, given, scopes)

    def texts(self, call: _Call) -> list[Text]:
        """The texts that a call may compile; Unreadable if it may be another."""
        form = call.form
        choices = [self._choices(call, part) or [[]] for part in form.parts]
        named: dict[str, Text] = {}
        if not form.whole:
            for part in OPTIONAL:
                try:
                    (named[part],) = self._choices(call, part)
                except (Unreadable, ValueError):
                    named[part] = []
        made = (form.text(named | dict(zip(form.parts, each, strict=True))) for each in product(*choices))
        return [text for text in islice(made, _MOST_TEXTS) if text is not None]

    def _choices(self, call: _Call, part: str) -> list[Text]:
        """The texts that an argument may be."""
        argument = call.given.get(part)
        if argument is None:
            return []
        try:
            return self.strings(argument, call.scopes, 0)
        except Unreadable as why:
            # A part is CUDA by where it stands, a whole text by what is in it.
            shows = holds_cuda if call.form.whole else bytes.strip
            why.shown = self._shows(argument, call.scopes, 0, shows)
            raise

    def _full_name(self, node: ast.expr) -> str | None:
        """What a dotted name means by the imports."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return None
        head = self._imports.get(node.id)
        if head is None:
            stars = [f"{module}.{node.id}" for module in self._stars if f"{module}.{node.id}" in TAKES]
            if not stars:
                return None
            head = stars[0]
        return ".".join((head, *reversed(parts)))

    def strings(self, node: ast.expr, scopes: tuple[Scope, ...], step: int) -> list[Text]:
        """The texts that an expression may be; Unreadable if it may be another."""
        if step > _MOST_STEPS:
            raise Unreadable(node, "it is put together from too many names")
        if isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)):
            return [[node]]
        if isinstance(node, ast.Constant) and node.value is None:
            return []
        if isinstance(node, ast.Name):
            assigned, around = self._assigned(node, scopes)
            if not assigned:
                raise Unreadable(node, "it is CUDA of which a part is in another file")
            result: list[Text] = []
            for each in assigned:
                if each.value is None:
                    raise Unreadable(node, "it is CUDA that is put together when the program runs")
                result += [text for text in self.strings(each.value, around, step + 1) if text not in result]
            return result[:_MOST_TEXTS]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            first, second = (self.strings(x, scopes, step) for x in (node.left, node.right))
            return [one + other for one in first for other in second][:_MOST_TEXTS]
        if isinstance(node, (ast.List, ast.Tuple)):
            parts: Text = []
            for element in node.elts:
                texts = self.strings(element, scopes, step)
                if len(texts) != 1:
                    raise Unreadable(node, "it is CUDA that is put together when the program runs")
                parts += [b"\n", *texts[0]] if parts else texts[0]
            return [parts] if parts else []
        encoded = _encoded(node)
        if encoded is not None:
            return self.strings(encoded, scopes, step)
        how = "by an f-string" if isinstance(node, ast.JoinedStr) else "when the program runs"
        raise Unreadable(node, f"it is CUDA that is put together {how}")

    def _assigned(
        self, node: ast.Name, scopes: tuple[Scope, ...], *, every: bool = False
    ) -> tuple[list[_Assigned], tuple[Scope, ...]]:
        """What a name may be: what its own scope last assigned to it before, in branches or not (unless ``every`` value
        is asked for), or all that a scope around assigns."""
        for depth in range(len(scopes), 0, -1):
            scope = scopes[depth - 1]
            if isinstance(scope, ast.ClassDef) and depth != len(scopes):
                continue
            assigned = self._names[scope].get(node.id)
            if assigned:
                if depth == len(scopes) and not every:
                    use = node.lineno, node.col_offset
                    before = sorted((x for x in assigned if x.end <= use), key=lambda x: x.end)
                    last = max((i for i, each in enumerate(before) if each.plain), default=0)
                    assigned = before[last:] or assigned
                return assigned, scopes[:depth]
        return [], ()

    def _shows(self, node: ast.expr, scopes: tuple[Scope, ...], step: int, shows: Callable[[bytes], object]) -> bool:
        """Is there CUDA in the literals of an expression, or behind its names?"""
        for each in ast.walk(node):
            if isinstance(each, ast.Constant) and isinstance(each.value, (str, bytes)):
                if shows(_bytes(each.value)):
                    return True
            elif isinstance(each, ast.Name) and step < _MOST_STEPS:
                assigned, around = self._assigned(each, scopes, every=True)
                values = [x.value for x in assigned if x.value is not None and x.value is not node]
                if any(self._shows(value, around, step + 4, shows) for value in values):
                    return True
        return False

    def range(self, node: ast.expr) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._starts[node.lineno - 1] + node.col_offset, self._starts[node.end_lineno - 1] + node.end_col_offset

    def layer(self, parts: Text, below: Layer | None) -> Layer | None:
        """The text that some literals make; None if where it is written cannot be told. What is written nowhere stands
        at the literal behind it."""
        writer = _Writer(self._raw)
        layer = Layer(writer.write, below)
        literals = iter([self.range(part) for part in parts if not isinstance(part, bytes)])
        at = next(literals)
        for part in parts:
            if isinstance(part, bytes):
                layer.add(part, at[0], at[0], -1)
                continue
            before = len(layer.text)
            if not writer.read(layer, *at) or layer.text[before:] != _bytes(part.value):  # type: ignore[arg-type]  # a str or bytes
                return None
            at = next(literals, (at[1], at[1]))
        return layer


def _bytes(literal: str | bytes) -> bytes:
    return literal.encode("utf-8", "replace") if isinstance(literal, str) else literal


def _assignments(node: ast.AST) -> Iterator[tuple[ast.Name, ast.expr | None]]:
    if isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Name):
                yield target, node.value
            else:
                yield from ((x, None) for x in ast.walk(target) if isinstance(x, ast.Name))
    elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)):
        if isinstance(node.target, ast.Name) and node.value is not None:
            yield node.target, node.value
    elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        yield node.target, None
    elif isinstance(node, (ast.For, ast.AsyncFor)):
        yield from ((x, None) for x in ast.walk(node.target) if isinstance(x, ast.Name))


def _end(node: ast.expr) -> tuple[int, int]:
    return node.end_lineno or node.lineno, node.end_col_offset or 0


def _encoded(node: ast.expr) -> ast.expr | None:
    """The text behind ``text.encode()``, ``str.encode(text)`` and ``bytes(text, …)``."""
    if not isinstance(node, ast.Call):
        return None
    if isinstance(node.func, ast.Attribute) and node.func.attr == "encode":
        if isinstance(node.func.value, ast.Name) and node.func.value.id == "str":
            return node.args[0] if node.args else None
        return node.func.value
    if isinstance(node.func, ast.Name) and node.func.id == "bytes" and node.args:
        return node.args[0]
    return None


class _Token(NamedTuple):
    kind: type
    """str or bytes."""
    raw: bool
    quote: str
    node: tuple[int, int]


class _Writer:
    """Reads the literals of a text, and spells what is put into them."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._tokens: list[_Token] = []
        self._texts: dict[tuple[int, int], tuple[int, int]] = {}
        """By the range of literals that are one expression: the range of their text."""

    def read(self, layer: Layer, start: int, end: int) -> bool:
        """Add the literals, one behind the other, of a range; False if there is anything else."""
        raw, node, at = self._raw, (start, end), len(layer.text)
        if node in self._texts:
            return False
        while (start := _BETWEEN.match(raw, start, end).end()) < end:  # type: ignore[union-attr]  # it matches anything
            head = _LITERAL.match(raw, start, end)
            if head is None or not set(head[1].lower()) <= set(b"rub"):
                return False
            tail = _ENDS[head[2]].match(raw, head.end(), end)
            if tail is None:
                return False
            prefix = head[1].lower()
            token = _Token(bytes if b"b" in prefix else str, b"r" in prefix, head[2].decode(), node)
            self._tokens.append(token)
            _add_body(layer, raw, head.end(), tail.end() - len(head[2]), token, len(self._tokens) - 1)
            start = tail.end()
        self._texts[node] = at, len(layer.text)
        return True

    def write(self, layer: Layer, start: int, end: int, new: str) -> str | None:
        first, last = layer.pieces[layer.index(start)], layer.pieces[layer.index(max(end - 1, start))]
        if first.token < 0 or last.token < 0:
            return None
        token = self._tokens[first.token]
        if token != self._tokens[last.token]:
            return None
        spelled = new
        if not token.raw:
            spelled = spelled.replace("\\", "\\\\").replace(token.quote, "\\" + token.quote)
            if len(token.quote) == 1:
                spelled = spelled.replace("\n", "\\n").replace("\r", "\\r")
        # Read again, it must be what was meant: not every text can be written in every literal.
        at, stop = self._texts[token.node]
        meant = bytes(layer.text[at:start]) + new.encode() + bytes(layer.text[end:stop])
        (begin, finish), (hold, leave) = token.node, layer.held(start, end)
        literal = b"(" + self._raw[begin:hold] + spelled.encode() + self._raw[leave:finish] + b")"
        try:
            tree = parse(literal)
        except SyntaxError:
            return None
        statement = tree.body[0]
        value = statement.value if isinstance(statement, ast.Expr) else None
        if not isinstance(value, ast.Constant) or not isinstance(value.value, (str, bytes)):
            return None
        return spelled if _bytes(value.value) == meant else None


def _add_body(layer: Layer, raw: bytes, start: int, end: int, token: _Token, number: int) -> None:
    """The characters between the quotes."""
    at = start
    for match in (_NEWLINE if token.raw else _ESCAPE).finditer(raw, start, end):
        text = _meaning(match[0], token.kind)
        if text is None:
            continue  # a backslash that means itself
        layer.add(raw[at : match.start()], at, match.start(), number)
        layer.add(text, match.start(), match.end(), number)
        at = match.end()
    layer.add(raw[at:end], at, end, number)


def _meaning(escape: bytes, kind: type) -> bytes | None:
    if escape[:1] == b"\r":
        return b"\n"
    rest = escape[1:]
    if kind is bytes and rest[:1] in (b"u", b"U", b"N"):
        return None
    if rest in _SIMPLE:
        return _SIMPLE[rest]
    digits = rest.lstrip(b"xuU")
    if rest[:1] in b"xuU" and len(rest) > 1:
        return _character(int(digits or b"0", 16))
    if rest[:1] in b"01234567":
        return _character(int(rest, 8))
    if rest[:2] == b"N{":
        import unicodedata

        try:
            return unicodedata.lookup(rest[2:-1].decode()).encode()
        except (KeyError, UnicodeDecodeError):
            return None
    return None


def _character(point: int) -> bytes:
    try:
        return chr(point).encode("utf-8", "replace")
    except (ValueError, OverflowError):
        return b""


def _line_starts(raw: bytes) -> list[int]:
    return [0, *(match.end() for match in _LINE_END.finditer(raw))]
