"""What is answered to requests about a text: once checks that are under way are done, and from the thread that analyses
wherever there is something to compute."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING
from uuid import uuid4

from lsprotocol import types
from pygls.capabilities import get_capability

from cudalint.lsp import actions, lenses
from cudalint.lsp.diagnostics import uri_of, verdict_of
from cudalint.lsp.hover import hover
from cudalint.lsp.proving import Proving

if TYPE_CHECKING:
    from cudalint.contracts.command import Contract
    from cudalint.lsp.server import Open, Server
    from cudalint.lsp.session import Snapshot


async def hover_at(ls: Server, params: types.HoverParams) -> types.Hover | None:
    found = await ls.current(params.text_document.uri)
    if found is None:
        return None
    one, snapshot = found
    contracts = await contracts_of(ls, one, snapshot)
    line, column = one.lines.place(params.position)
    answer = hover(snapshot, contracts, one.verdicts, line, column)
    if answer is None:
        return None
    markdown, about = answer
    return types.Hover(
        types.MarkupContent(types.MarkupKind.Markdown, markdown), None if about is None else one.lines.range(about)
    )


async def contracts_of(ls: Server, one: Open, snapshot: Snapshot) -> list[Contract]:
    if one.contracts is None or one.contracts[0] is not snapshot:
        texts = ls.texts()
        found = await ls.compute(lambda: ls.session.contracts(snapshot, texts), one.text.path)
        one.contracts = (snapshot, found or [])
    return one.contracts[1]


async def actions_at(ls: Server, params: types.CodeActionParams) -> list[types.CodeAction]:
    found = await ls.current(params.text_document.uri)
    if found is None:
        return []
    one, snapshot = found
    told = {d.data["fingerprint"]: d for d in ls.diagnostics(one) if isinstance(d.data, dict)}
    lines_of = functools.partial(ls.lines_of, snapshot=snapshot)
    offered = await ls.compute(
        lambda: [
            *actions.actions(snapshot, params.range, lines_of, functools.partial(edit, ls), told),
            *actions.fix_all(snapshot, one.uri),
        ],
        one.text.path,
    )
    every = offered or []
    only = [str(getattr(kind, "value", kind)) for kind in params.context.only or ()]
    if only:
        every = [a for a in every if any(f"{_kind(a)}.".startswith(f"{kind}.") for kind in only)]
    later = get_capability(ls.client_capabilities, "text_document.code_action.resolve_support.properties")
    if "edit" not in (later or ()):
        every = [await resolve(ls, each) for each in every]
    return every


async def resolve(ls: Server, action: types.CodeAction) -> types.CodeAction:
    """The action with its edit, where that was put off."""
    if not isinstance(action.data, dict):
        return action
    found = await ls.current(action.data["uri"])
    if found is not None:
        one, snapshot = found
        unsafe, texts = bool(action.data["unsafe"]), ls.texts()
        new = await ls.compute(lambda: ls.session.repaired(snapshot.text, texts, unsafe=unsafe), snapshot.text.path)
        if new is not None:
            action.edit = edit(ls, {snapshot.text.path: actions.whole_text(new, one.lines)})
    return action


def edit(ls: Server, edits: actions.Edits) -> types.WorkspaceEdit:
    """The edits by file; with the versions that they are of where the client takes that."""
    uris = {path: ls.open[path].uri if path in ls.open else uri_of(path) for path in edits}
    if not get_capability(ls.client_capabilities, "workspace.workspace_edit.document_changes"):
        return types.WorkspaceEdit(changes={uris[path]: each for path, each in edits.items()})
    return types.WorkspaceEdit(
        document_changes=[
            types.TextDocumentEdit(
                types.OptionalVersionedTextDocumentIdentifier(
                    uris[path], ls.open[path].version if path in ls.open else None
                ),
                list(each),
            )
            for path, each in edits.items()
        ]
    )


async def lenses_of(ls: Server, params: types.CodeLensParams) -> list[types.CodeLens]:
    found = await ls.current(params.text_document.uri)
    if found is None:
        return []
    one, snapshot = found
    return list(lenses.lenses(snapshot, one.uri, one.lines, one.verdicts, busy=one.proving is not None))


async def confirm(ls: Server, uri: str, fingerprints: list[str]) -> None:
    """Run the experiments of some findings, and show the verdicts as they come."""
    found = await ls.current(uri)
    if found is None:
        return
    one, snapshot = found
    if one.proving is not None:
        one.proving.give_up()
    proving = one.proving = Proving()
    token = str(uuid4())
    shows = bool(get_capability(ls.client_capabilities, "window.work_done_progress"))
    if shows:
        await ls.work_done_progress.create_async(token)
        begin = types.WorkDoneProgressBegin("cudalint: confirming", cancellable=True, percentage=0)
        ls.work_done_progress.begin(token, begin)
        ls.work_done_progress.tokens[token].add_done_callback(lambda _: proving.give_up())
    grounds = {f.fingerprint: snapshot.ground(f) for f in snapshot.shown}
    try:
        async for said in proving.answers(snapshot.text, ls.texts(), fingerprints):
            if "at" in said and shows:
                report = types.WorkDoneProgressReport(message=said["at"], percentage=said["percent"])
                ls.work_done_progress.report(token, report)
            if "answer" in said and one.proving is proving:
                fingerprint = said["answer"]["fingerprint"]
                one.verdicts[fingerprint] = verdict_of(said["answer"], grounds.get(fingerprint, ""))
    finally:
        if shows:
            ls.work_done_progress.end(token, types.WorkDoneProgressEnd())
        if one.proving is proving:
            one.proving = None
        if ls.open.get(one.text.path) is one and (one.check is None or one.check.done()):
            ls.publish(one, one.snapshot)


def _kind(action: types.CodeAction) -> str:
    return str(getattr(action.kind, "value", action.kind))
