"""What comments state that the source cannot: ``// cudalint: requires(gridDim.x * blockDim.x >= n): why``.

``assume(condition)`` says that a condition holds where the comment stands; ``requires(condition)``, above a
kernel or in it, what each of its launches has to keep to. Either is read as the assertion that it is, in its place.
"""

from __future__ import annotations

import re

from cudalint.frontend.conditions import evaluate
from cudalint.frontend.parse import descendants, parse
from cudalint.lazy import NamedTuple, pattern

WORDS = ("assume", "requires")
_STATED = pattern(
    rb"""(?://|/\*)[\s*]*cudalint:[ \t]*(?P<word>assume|requires)\b"""
    rb"""(?:[ \t]*\((?P<condition>.*?)\)[ \t]*(?::.*?)?\s*(?:\*/)?\Z)?""",
    re.DOTALL,
)
# Strings are matched so that what looks like a comment in them stays.
LEXEME = pattern(
    rb"""//(?:\\\r?\n|[^\r\n])*|/\*.*?(?:\*/|\Z)|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])*'"""
    rb"""|R"([^()\\\s]{0,16})\(.*?\)\1\"""",
    re.DOTALL,
)
_ONE_LINE = bytes.maketrans(b"\r\n", b"  ")


_DIRECTIVE = pattern(rb"^[ \t]*#.*$", re.MULTILINE)
_CALL = b"assert("
_PLACES = b";{}:"
"""What stands before a statement."""


class Stated(NamedTuple):
    """A comment that states something: [``start``, ``end``) of the file. ``fault`` says in words why it cannot be used.

    ``condition`` is what it states, as written.
    """

    word: str
    condition: bytes
    start: int
    end: int
    fault: str | None


def stated(raw: bytes) -> list[Stated]:
    """The conditions that a file's comments state, in order."""
    found: list[Stated] = []
    if b"cudalint:" not in raw:
        return found
    before, at = b";", 0
    for lexeme in LEXEME.finditer(raw):
        start, end = lexeme.span()
        code = _DIRECTIVE.sub(b"", raw[at:start]).rstrip()
        before, at = code[-1:] or before, end
        if lexeme[0][:1] != b"/":
            line = raw[raw.rfind(b"\n", 0, start) + 1 : start]
            before = before if line.lstrip().startswith(b"#") else b'"'
            continue
        match = _STATED.match(lexeme[0]) if b"cudalint:" in lexeme[0] else None
        if match is not None:
            word, condition = match["word"].decode(), (match["condition"] or b"").strip()
            fault = _fault(word, match["condition"], before)
            found.append(Stated(word, condition, start, end, fault))
    return found


def _fault(word: str, condition: bytes | None, before: bytes) -> str | None:
    if condition is None:
        return f"'cudalint: {word}' needs a condition in parentheses, like {word}(n > 0), and a colon before a reason"
    if not condition.strip():
        return f"'cudalint: {word}()' states nothing"
    if not _is_condition(condition):
        return f"'{condition.decode('utf-8', 'replace').strip()}' is no condition"
    undefined = _undefined(condition)
    if undefined is not None:
        return f"'{undefined}' is undefined"
    if not _NAME.search(condition):
        return f"'{condition.decode('utf-8', 'replace').strip()}' says nothing of a size or a launch"
    if before not in _PLACES:
        return f"'cudalint: {word}' must stand where a statement may"
    return None


def _undefined(condition: bytes) -> str | None:
    """The operation in a condition that has no value: of it nothing would follow, or everything."""
    text = b"bool stated = (" + condition + b");"
    for node in descendants(parse(text).root_node):
        operator = node.child_by_field_name("operator") if node.type == "binary_expression" else None
        right = node.child_by_field_name("right")
        if operator is None or right is None or operator.type not in _PARTIAL:
            continue
        by = text[right.start_byte : right.end_byte]
        if not _NAME.search(by):
            value = evaluate(by, {})
            if value == 0 if operator.type in "/%" else not 0 <= value < 64:
                return text[node.start_byte : node.end_byte].decode("utf-8", "replace")
    return None


def _is_condition(text: bytes) -> bool:
    """Is the text one expression without an effect?"""
    depth = 0
    for character in text:
        depth += (character == 0x28) - (character == 0x29)
        if depth < 0 or character == 0x3B:
            return False
    root = parse(b"bool stated = (" + text + b");").root_node
    return not root.has_error and not any(node.type in (*_EFFECTS, *_TEXTS) for node in descendants(root))


_PARTIAL = ("/", "%", "<<", ">>")
_TEXTS = ("string_literal", "raw_string_literal", "concatenated_string")
_EFFECTS = ("assignment_expression", "update_expression", "comma_expression", "lambda_expression")
_NAME = pattern(rb"\b(?!true\b|false\b|nullptr\b)[A-Za-z_]\w*")


def as_assertions(raw: bytes) -> bytes:
    """``raw`` with the comments that state something as ``assert(condition);``, of the same length."""
    pieces: list[bytes] = []
    done = 0
    for each in stated(raw):
        if each.fault is None:
            comment = raw[each.start : each.end]
            code = _CALL + each.condition.translate(_ONE_LINE) + b");"
            # The condition stays where it is, if there is room for what comes after it.
            at = min(comment.index(each.condition) - len(_CALL), len(comment) - len(code))
            pieces += (raw[done : each.start], (b" " * at + code).ljust(len(comment)))
            done = each.end
    return b"".join(pieces) + raw[done:]
