"""What an editor sends, as bytes: where it is not the protocol, that is said in one line, and the server ends."""

from __future__ import annotations

import json
import logging
import re
import sys
from typing import TYPE_CHECKING

from cudalint.errors import UsageError
from cudalint.report import visible

if TYPE_CHECKING:
    from typing import BinaryIO

_HEADER = re.compile(rb"Content-Length: (\d+)\r\n|(?!Content-Length)[A-Za-z-]+:[^\r\n]*\r\n|\r\n")
_LONGEST = 1 << 10
_MOST = 1 << 28
"""Bytes of a message. A text that is sent whole has a few; what has more is a slip, or meant to do harm."""


class Messages:
    """The bytes of a stream, header lines and bodies of messages."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def readline(self) -> bytes:
        line = self._stream.readline(_LONGEST)
        header = _HEADER.fullmatch(line)
        if line and header is None:
            raise UsageError(f"lsp: not the Language Server Protocol: {_shown(line)} is no header of a message")
        if header is not None and header[1] is not None and int(header[1]) > _MOST:
            raise UsageError(f"lsp: a message of {int(header[1])} bytes is refused: it may have {_MOST}")
        return line

    def read(self, size: int) -> bytes:
        body = self._stream.read(size)
        if len(body) < size:
            return b""  # cut off: whoever sent it is gone
        try:
            message = json.loads(body)
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            raise UsageError(f"lsp: not the Language Server Protocol: {_shown(body)} is no JSON object")
        return body


def _shown(data: bytes) -> str:
    text = visible(data[:40].decode("utf-8", "replace").strip())
    return f"'{text}{'…' if len(data) > 40 else ''}'"


class OneLine(logging.Handler):
    """Tells what the protocol's library has to say on stderr, a line each."""

    def emit(self, record: logging.LogRecord) -> None:
        fault = record.exc_info[1] if record.exc_info else None
        what = record.getMessage().partition("\n")[0]  # a traceback may follow
        why = f" ({type(fault).__name__}: {fault})" if fault is not None else ""
        print(visible(f"cudalint: lsp: {what}{why}"), file=sys.stderr)


__all__ = ["Messages", "OneLine"]
