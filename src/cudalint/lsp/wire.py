"""What an editor sends, as bytes: where these are no messages, that is said in one line, and the server ends; a message
that makes no sense is answered with an error of the protocol."""

from __future__ import annotations

import logging
import re
import sys
from typing import TYPE_CHECKING, Any

from lsprotocol import types
from pygls.exceptions import JsonRpcException, JsonRpcInvalidParams, JsonRpcInvalidRequest
from pygls.protocol import LanguageServerProtocol
from pygls.protocol.language_server import lsp_method

from cudalint.errors import UsageError
from cudalint.report import visible

if TYPE_CHECKING:
    from collections.abc import Generator
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
        return body if len(body) == size else b""  # cut off: whoever sent it is gone


class Protocol(LanguageServerProtocol):
    """The library's protocol, which answers what it cannot follow too."""

    def structure_message(self, data: dict[str, Any]) -> Any:
        try:
            return super().structure_message(data)
        except JsonRpcException:
            if "id" not in data or "method" not in data:
                raise
            self.refuse(data["id"], JsonRpcInvalidParams(f"the parameters are none of {data['method']}"))
            return None

    def handle_message(self, message: Any) -> None:
        if message is None:
            return  # it has been answered
        method = getattr(message, "method", None)
        if not hasattr(message, "jsonrpc"):
            self.refuse(None, JsonRpcInvalidRequest("a message is an object with a member 'jsonrpc'"))
        elif method is not None and hasattr(message, "id") and self._shutdown:
            self.refuse(message.id, JsonRpcInvalidRequest("the server was shut down"))
        elif method == types.INITIALIZE and self._workspace is not None:
            self.refuse(message.id, JsonRpcInvalidRequest("the server was initialized before"))
        else:
            super().handle_message(message)

    def refuse(self, request: str | int | None, why: JsonRpcException) -> None:
        error = {"code": why.code, "message": why.message}
        self._send_data({"jsonrpc": self.VERSION, "id": request, "error": error})  # null where it is not known

    @lsp_method(types.WORKSPACE_EXECUTE_COMMAND)
    def lsp_workspace__execute_command(self, params: types.ExecuteCommandParams) -> Generator[Any, Any, Any]:
        params.arguments = params.arguments or ()  # none are counted as well
        return (yield from super().lsp_workspace__execute_command(params))


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


__all__ = ["Messages", "OneLine", "Protocol"]
