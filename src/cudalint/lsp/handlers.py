"""What the server answers to which message, and how it is run."""

from __future__ import annotations

import logging
import os
import signal
import sys

from lsprotocol import types
from pygls.capabilities import get_capability

from cudalint.config import FILES
from cudalint.errors import UsageError
from cudalint.lsp import actions, answers, lenses
from cudalint.lsp.server import DEBOUNCE, Server
from cudalint.lsp.session import path_of
from cudalint.lsp.wire import Messages, OneLine
from cudalint.project import SOURCES


def server() -> Server:
    """The server with its handlers."""
    ls = Server()

    @ls.feature(types.INITIALIZED)
    async def initialized(_: types.InitializedParams) -> None:
        ls.warm_up()
        if get_capability(ls.client_capabilities, "workspace.did_change_watched_files.dynamic_registration"):
            ls.watching = True
            endings = ",".join(sorted({ending[1:] for ending in SOURCES}))
            globs = [f"**/{{{','.join(FILES)}}}", f"**/*.{{{endings}}}"]
            options = types.DidChangeWatchedFilesRegistrationOptions([types.FileSystemWatcher(g) for g in globs])
            kind = types.WORKSPACE_DID_CHANGE_WATCHED_FILES
            await ls.client_register_capability_async(
                types.RegistrationParams([types.Registration("cudalint-files", kind, options)])
            )

    @ls.feature(types.TEXT_DOCUMENT_DID_OPEN)
    async def did_open(params: types.DidOpenTextDocumentParams) -> None:
        it = params.text_document
        if one := ls.put(it.uri, it.text, it.version, it.language_id):
            ls.schedule(one)

    @ls.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    async def did_change(params: types.DidChangeTextDocumentParams) -> None:
        it = params.text_document
        if params.content_changes and (one := ls.put(it.uri, params.content_changes[-1].text, it.version)):
            ls.schedule(one, DEBOUNCE)

    @ls.feature(types.TEXT_DOCUMENT_DID_SAVE)
    async def did_save(params: types.DidSaveTextDocumentParams) -> None:
        one = ls.open.get(path_of(params.text_document.uri) or "")
        if not ls.watching:  # nobody tells what else changed on disk
            await ls.lane.run(ls.session.forget)
        if one is not None:
            one.snapshot = None  # what stood where the text cannot be read is not shown any longer
            ls.schedule(one)
        elif os.path.basename(params.text_document.uri) in FILES:
            ls.schedule_all()

    @ls.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    async def did_close(params: types.DidCloseTextDocumentParams) -> None:
        ls.close(params.text_document.uri)

    @ls.feature(types.WORKSPACE_DID_CHANGE_WATCHED_FILES)
    async def did_change_files(params: types.DidChangeWatchedFilesParams) -> None:
        changed = {path_of(each.uri) for each in params.changes}
        if not changed <= ls.open.keys():
            await ls.lane.run(ls.session.forget)
            ls.schedule_all()

    @ls.feature(types.WORKSPACE_DID_CHANGE_CONFIGURATION)
    async def did_change_configuration(_: types.DidChangeConfigurationParams) -> None:
        ls.schedule_all()

    @ls.feature(types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS)
    async def did_change_folders(_: types.DidChangeWorkspaceFoldersParams) -> None:
        for one in list(ls.open.values()):
            ls.put(one.uri, one.text.text, one.version)
        ls.schedule_all()

    @ls.feature(types.TEXT_DOCUMENT_HOVER)
    async def hover(params: types.HoverParams) -> types.Hover | None:
        return await answers.hover_at(ls, params)

    kinds = [types.CodeActionKind.QuickFix, actions.FIX_ALL]

    @ls.feature(types.TEXT_DOCUMENT_CODE_ACTION, types.CodeActionOptions(kinds, resolve_provider=True))
    async def code_action(params: types.CodeActionParams) -> list[types.CodeAction]:
        return await answers.actions_at(ls, params)

    @ls.feature(types.CODE_ACTION_RESOLVE)
    async def resolve(action: types.CodeAction) -> types.CodeAction:
        return await answers.resolve(ls, action)

    @ls.feature(types.TEXT_DOCUMENT_CODE_LENS)
    async def code_lens(params: types.CodeLensParams) -> list[types.CodeLens]:
        return await answers.lenses_of(ls, params)

    @ls.command(actions.OPEN)
    async def open_page(url: str) -> None:
        if get_capability(ls.client_capabilities, "window.show_document.support"):
            await ls.window_show_document_async(types.ShowDocumentParams(url, external=True))
        else:
            ls.window_show_message(types.ShowMessageParams(types.MessageType.Info, url))

    @ls.command(actions.APPLY)
    async def apply(uri: str, what: str) -> None:
        await answers.apply(ls, uri, what)

    @ls.command(lenses.CONFIRM)
    async def confirm(uri: str, fingerprints: list[str]) -> None:
        ls.start(answers.confirm(ls, uri, fingerprints))

    @ls.feature(types.SHUTDOWN)
    def shutdown(_: None) -> None:
        ls.shut_down = True
        for one in ls.open.values():
            if one.proving is not None:
                one.proving.give_up()

    return ls


def run() -> int:
    """Serve on stdin and stdout until the client is done; 0 if it said so first, as the protocol has it, else 1."""
    if sys.stdin is None:
        raise UsageError("lsp: stdin is closed: an editor starts this")
    log = logging.getLogger("pygls")
    log.propagate, log.handlers = False, [OneLine(logging.WARNING)]
    wire = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what anything prints, a library of C too, is not for the client
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))  # a thread waits for the client: nothing else would end it
    ls = server()
    ls.start_io(Messages(sys.stdin.buffer), wire)  # type: ignore[arg-type]  # all that is asked of it is there
    return int(not ls.shut_down)


__all__ = ["run", "server"]
