"""What is answered to requests about a text: once checks that are under way are done, and from the thread that analyses
wherever there is something to compute."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING
from uuid import uuid4

from lsprotocol import types
from pygls.capabilities import get_capability

from cudalint.lsp import actions, lenses
from cudalint.lsp.diagnostics import diagnostic, uri_of, verdict_of
from cudalint.lsp.hover import hover
from cudalint.lsp.proving import Proving

if TYPE_CHECKING:
    from cudalint.contracts.command import Contract
    from cudalint.findings import Finding
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
    only = [str(getattr(kind, "value", kind)) for kind in params.context.only or ()]
    lines_of = functools.partial(ls.lines_of, snapshot=snapshot)

    def shown(finding: Finding) -> types.Diagnostic:
        return diagnostic(finding, lines_of, one.verdicts.get(finding.fingerprint))

    def offered() -> list[types.CodeAction]:
        every = [*actions.fix_all(snapshot, one.uri)]
        if not only or any(_within(types.CodeActionKind.QuickFix.value, kind) for kind in only):
            change = functools.partial(edit, ls)
            every = [*actions.actions(snapshot, params.range, one.uri, lines_of, change, shown), *every]
        return [a for a in every if not only or any(_within(_kind(a), kind) for kind in only)]

    every = await ls.compute(offered, one.text.path) or []
    later = get_capability(ls.client_capabilities, "text_document.code_action.resolve_support.properties")
    if "edit" in (later or ()):
        return every
    if get_capability(ls.client_capabilities, "workspace.apply_edit"):
        return [_as_command(action) for action in every]
    # Nothing can be put off: all of the text is repaired for a client that asks for a kind of action, not in passing.
    return [await resolve(ls, action) for action in every if only or not actions.repairs_all(action)]


def _as_command(action: types.CodeAction) -> types.CodeAction:
    """The action for a client that cannot ask for the edit: where that was put off, the server sends it."""
    if action.data is not None:
        action.command = types.Command(action.title, actions.APPLY, arguments=[action.data["uri"], action.data["what"]])
        action.data = None
    return action


async def apply(ls: Server, uri: str, what: str) -> None:
    """Have the client make an edit that was put off."""
    change = await put_off(ls, uri, what)
    if change is not None:
        await ls.workspace_apply_edit_async(types.ApplyWorkspaceEditParams(change))


async def resolve(ls: Server, action: types.CodeAction) -> types.CodeAction:
    """The action with its edit, where that was put off."""
    if isinstance(action.data, dict):
        action.edit = await put_off(ls, action.data["uri"], action.data["what"])
    return action


async def put_off(ls: Server, uri: str, what: str) -> types.WorkspaceEdit | None:
    """The edit of an action that was put off; None where the text has no such finding any more."""
    found = await ls.current(uri)
    if found is None:
        return None
    one, snapshot = found
    if one.edits is None or one.edits[0] is not snapshot:
        one.edits = (snapshot, {})
    known = one.edits[1]
    if what not in known:
        texts, lines = ls.texts(), one.lines

        def edits() -> list[types.TextEdit]:
            if what not in actions.REPAIRS:
                finding = next((f for f in snapshot.shown if f.fingerprint == what), None)
                return [] if finding is None else actions.ignore_line(finding, snapshot, lines)
            new = ls.session.repaired(snapshot.text, texts, unsafe=what == actions.ALL)
            return [] if new is None else actions.whole_text(new, lines)

        made = await ls.compute(edits, snapshot.text.path)
        if made is None:
            return None
        known[what] = made
    return edit(ls, {snapshot.text.path: known[what]}) if known[what] else None


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


def _within(kind: str, asked: str) -> bool:
    return f"{kind}.".startswith(f"{asked}.")


def _kind(action: types.CodeAction) -> str:
    return str(getattr(action.kind, "value", action.kind))
