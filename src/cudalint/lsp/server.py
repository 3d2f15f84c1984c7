"""The server: which texts are open, when they are checked, and what is answered.

The event loop only receives and sends; one thread (:mod:`~cudalint.lsp.lane`) analyses, one process at a time for a
text experiments (:mod:`~cudalint.lsp.proving`). The newest text wins: a check that a later change has overtaken is
dropped, before it begins or when it is done.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from lsprotocol import types
from pygls.capabilities import get_capability
from pygls.exceptions import JsonRpcException, JsonRpcParseError
from pygls.lsp.server import LanguageServer

from cudalint import __version__
from cudalint.errors import UsageError
from cudalint.lsp.diagnostics import diagnostic, uri_of
from cudalint.lsp.lane import Lane
from cudalint.lsp.session import Session, Text, path_of
from cudalint.lsp.text import Lines
from cudalint.lsp.wire import Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from cudalint.contracts.command import Contract
    from cudalint.lsp.diagnostics import Verdict
    from cudalint.lsp.proving import Proving
    from cudalint.lsp.session import Snapshot

T = TypeVar("T")
DEBOUNCE = 0.1
"""Seconds without a change before an edited text is checked."""
_LANGUAGES = ("cuda", "cuda-cpp", "cuda-c++", "cuda_cpp", "hip")


class Open:
    """An open text: as it is, and what was last found in it."""

    def __init__(self, uri: str, text: Text, version: int, lines: Lines) -> None:
        self.uri, self.text, self.version, self.lines = uri, text, version, lines
        self.snapshot: Snapshot | None = None
        self.check: asyncio.Task[None] | None = None
        self.contracts: tuple[Snapshot, list[Contract]] | None = None
        self.edits: tuple[Snapshot, dict[str, list[types.TextEdit]]] | None = None
        """What was computed of the actions that are put off."""
        self.verdicts: dict[str, Verdict] = {}
        self.proving: Proving | None = None


class Server(LanguageServer):
    def __init__(self) -> None:
        # Whole texts: a client and a server that take other characters for line ends would soon disagree on the rest.
        super().__init__("cudalint", __version__, types.TextDocumentSyncKind.Full, protocol_cls=Protocol)
        self.open: dict[str, Open] = {}
        self.session = Session()
        self.lane = Lane(self.session.tidy, self.session.forget)
        self.elsewhere: dict[str, Snapshot] = {}
        """By the path of a text: what its check found in files that are not open."""
        self.told: set[str] = set()
        self.watching = False
        """Whether the client tells what changes on disk."""
        self.shut_down = False
        self._running: set[asyncio.Task[None]] = set()

    def report_server_error(self, error: Exception, source: Any) -> None:
        """What is no JSON has no handler that would answer it."""
        if source is JsonRpcException and isinstance(error, (ValueError, RecursionError)):
            protocol = self.protocol
            assert isinstance(protocol, Protocol)
            protocol.refuse(None, JsonRpcParseError(f"a message is no JSON: {error}"))
        else:
            super().report_server_error(error, source)

    def warm_up(self) -> None:
        async def warm_up() -> None:
            with suppress(TimeoutError):
                await self.lane.run(self.session.warm_up)

        self.start(warm_up())

    def start(self, what: Coroutine[Any, Any, None]) -> None:
        """Begin something that nobody waits for."""
        task = asyncio.get_running_loop().create_task(what)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    # Texts

    def lines_of(self, path: str, snapshot: Snapshot | None = None) -> Lines:
        """The lines of a file that findings mention."""
        if path in self.open:
            return self.open[path].lines
        text = snapshot.sources.get(path) if snapshot is not None else None
        return Lines(text or "", self.encoding)

    @property
    def encoding(self) -> str:
        return str(types.PositionEncodingKind(self.workspace.position_encoding or "utf-16").value)

    def put(self, uri: str, content: str, version: int, language: str | None = None) -> Open | None:
        """Take a text as it is now; None for what is no file."""
        path = path_of(uri)
        if path is None:
            return None
        folders = (path_of(each) for each in self.workspace.folders)
        around = [f for f in folders if f is not None and path.startswith(f.rstrip(os.sep) + os.sep)]
        one = self.open.get(path)
        cuda = language.lower() in _LANGUAGES if language is not None else one is not None and one.text.cuda
        text, lines = Text(path, content, max(around, key=len, default=None), cuda), Lines(content, self.encoding)
        if one is None:
            one = self.open[path] = Open(uri, text, version, lines)
        else:
            one.text, one.version, one.lines = text, version, lines
        return one

    def texts(self) -> dict[str, bytes]:
        return {path: one.text.data for path, one in self.open.items()}

    def close(self, uri: str) -> None:
        one = self.open.pop(path_of(uri) or "", None)
        if one is None:
            return
        if one.check is not None:
            one.check.cancel()
        if one.proving is not None:
            one.proving.give_up()
        self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(one.uri, []))
        gone = self.elsewhere.pop(one.text.path, None)
        self.publish_elsewhere([one.text.path, *(f.span.file for f in (gone.elsewhere if gone is not None else ()))])
        for other in self.open.values():
            if _beside(other, one):
                self.schedule(other, spread=False)

    # Checks

    def schedule(self, one: Open, delay: float = 0.0, *, spread: bool = True) -> None:
        """Check a text, unless it changes again before ``delay`` is over; with ``spread``, then those beside it."""
        if one.check is not None:
            one.check.cancel()
        one.check = asyncio.get_running_loop().create_task(self._check(one, delay, spread))

    def schedule_all(self) -> None:
        for one in self.open.values():
            self.schedule(one, spread=False)

    async def _check(self, one: Open, delay: float, spread: bool) -> None:
        await asyncio.sleep(delay)
        text, texts, before, split = one.text, self.texts(), one.snapshot, one.lines.lines
        if not text.checked:
            self.publish(one, None)
            return
        try:
            snapshot = await self.compute(lambda: self.session.check(text, texts, before, split), text.path)
        except UsageError as fault:  # what was found stays: the configuration is being edited, perhaps
            self.tell(f"cudalint: {fault}", types.MessageType.Error)
            return
        if snapshot is None:
            return
        for problem in snapshot.problems:
            self.tell(f"cudalint: {problem}", types.MessageType.Warning)
        self.publish(one, snapshot)
        if spread:
            for other in [o for o in self.open.values() if o is not one and _beside(o, one)]:
                if other.check is None or other.check.done():
                    self.schedule(other, spread=False)

    def publish(self, one: Open, snapshot: Snapshot | None) -> None:
        """Show what was found in a text, and in files that are not open."""
        path = one.text.path
        one.snapshot = snapshot
        if snapshot is not None:
            one.verdicts = {
                f.fingerprint: verdict
                for f in snapshot.shown
                if (verdict := one.verdicts.get(f.fingerprint)) and verdict.ground == snapshot.ground(f)
            }
        shown = self.diagnostics(one)
        self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(one.uri, shown, one.version))
        before = self.elsewhere.pop(path, None)
        if snapshot is not None and snapshot.elsewhere:
            self.elsewhere[path] = snapshot
        self.publish_elsewhere(f.span.file for s in (before, snapshot) if s is not None for f in s.elsewhere)
        if get_capability(self.client_capabilities, "workspace.code_lens.refresh_support"):
            self.workspace_code_lens_refresh(None)

    def publish_elsewhere(self, paths: Iterable[str]) -> None:
        """Show what the open texts' checks found in files that are not open themselves."""
        for path in set(paths) - self.open.keys():
            found = {f.fingerprint: (f, s) for s in self.elsewhere.values() for f in s.elsewhere if f.span.file == path}
            shown = [
                diagnostic(f, lambda p, s=s: self.lines_of(p, s), None)  # type: ignore[misc]  # s is the one of its turn
                for f, s in found.values()
            ]
            self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri_of(path), shown))

    def diagnostics(self, one: Open) -> list[types.Diagnostic]:
        snapshot = one.snapshot
        if snapshot is None:
            return []
        verdicts = one.verdicts
        return [
            diagnostic(f, lambda path: self.lines_of(path, snapshot), verdicts.get(f.fingerprint))
            for f in snapshot.shown
        ]

    async def compute(self, job: Callable[[], T], path: str) -> T | None:
        """The answer of what has to be computed about a text; None, and the client is told, where that takes too
        long."""
        try:
            return await self.lane.run(job)
        except TimeoutError as late:
            self.tell(f"cudalint: {os.path.basename(path)}: {late}", types.MessageType.Warning)
            return None

    def tell(self, message: str, level: types.MessageType) -> None:
        """Say something once."""
        if message not in self.told:
            self.told.add(message)
            self.window_show_message(types.ShowMessageParams(level, message))

    async def current(self, uri: str) -> tuple[Open, Snapshot] | None:
        """A text and what was found in it, once checks that are under way are done; None for one that has none."""
        one = self.open.get(path_of(uri) or "")
        while one is not None and one.check is not None and not one.check.done():
            await asyncio.wait({one.check})
        return None if one is None or one.snapshot is None else (one, one.snapshot)


def _beside(one: Open, other: Open) -> bool:
    """May a change of one matter to the other: are they in one folder, or does one mention the other's name?"""
    a, b = one.text.path, other.text.path
    return (
        os.path.dirname(a) == os.path.dirname(b)
        or os.path.basename(a) in other.text.text
        or os.path.basename(b) in one.text.text
    )
