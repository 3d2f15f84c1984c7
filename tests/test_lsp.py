"""``cudalint lsp``, driven over stdin and stdout by a client library, from start to exit."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pygls", reason="the language server needs pygls: pip install 'cudalint[lsp]'")

from lsprotocol import types as t
from pygls.lsp.client import LanguageClient

from cudalint.lsp import lane

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from pathlib import Path

PATIENCE = 60
KERNEL = """\
__global__ void scale(float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= 2.0f;
}
"""
LAUNCH = """\
void run(float *x, int n) {
    scale<<<n / 256, 256>>>(x, n);
}
"""
FAULTY = KERNEL + LAUNCH
RACE = """\
__global__ void sum(const float *x, float *out, int n) {
    __shared__ float s[256];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    s[threadIdx.x] = x[i];
    __syncthreads();
    out[i] = s[255 - threadIdx.x];
}
"""


class Editor:
    """An editor with one folder open. It keeps the diagnostics of each file and what it was told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.client = client = LanguageClient("tests", "1")
        self.texts: dict[str, str] = {}
        self.versions: dict[str, int] = {}
        self.shown: dict[str, list[t.Diagnostic]] = {}
        self.said: list[str] = []
        self.progress: list[Any] = []
        self.pages: list[str] = []
        self.registered: list[t.Registration] = []
        self.news = asyncio.Condition()
        self.cancel_progress = False

        @client.feature(t.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        async def published(params: t.PublishDiagnosticsParams) -> None:
            async with self.news:
                name = params.uri.rpartition("/")[2]
                if params.version is None or params.version == self.versions.get(name):
                    self.shown[name] = list(params.diagnostics)
                self.news.notify_all()

        @client.feature(t.WINDOW_SHOW_MESSAGE)
        async def said(params: t.ShowMessageParams) -> None:
            async with self.news:
                self.said.append(params.message)
                self.news.notify_all()

        @client.feature(t.WINDOW_SHOW_DOCUMENT)
        async def page(params: t.ShowDocumentParams) -> t.ShowDocumentResult:
            self.pages.append(params.uri)
            return t.ShowDocumentResult(True)

        @client.feature(t.WORKSPACE_APPLY_EDIT)
        async def edited(params: t.ApplyWorkspaceEditParams) -> t.ApplyWorkspaceEditResult:
            self.apply(params.edit)
            return t.ApplyWorkspaceEditResult(True)

        @client.feature(t.WINDOW_WORK_DONE_PROGRESS_CREATE)
        async def create(_: t.WorkDoneProgressCreateParams) -> None:
            return None

        @client.feature(t.PROGRESS)
        async def progressed(params: t.ProgressParams) -> None:
            async with self.news:
                self.progress.append(params.value)
                self.news.notify_all()
            if self.cancel_progress:
                client.window_work_done_progress_cancel(t.WorkDoneProgressCancelParams(params.token))

        @client.feature(t.CLIENT_REGISTER_CAPABILITY)
        async def register(params: t.RegistrationParams) -> None:
            async with self.news:
                self.registered += params.registrations
                self.news.notify_all()

    async def start(self, capabilities: t.ClientCapabilities) -> t.InitializeResult:
        await self.client.start_io(sys.executable, "-m", "cudalint", "lsp", cwd=self.folder)
        folders = [t.WorkspaceFolder(self.folder.as_uri(), self.folder.name)]
        begun = await self.client.initialize_async(t.InitializeParams(capabilities, workspace_folders=folders))
        self.client.initialized(t.InitializedParams())
        return begun

    async def end(self) -> int:
        """Say goodbye as the protocol has it; the server's exit code."""
        await asyncio.wait_for(self.client.shutdown_async(None), PATIENCE)
        self.client.exit(None)
        return await self.gone()

    async def gone(self) -> int:
        server = self.client._server
        assert server is not None
        assert server.stderr is not None
        noise = (await asyncio.wait_for(server.stderr.read(), PATIENCE)).decode()
        assert "Traceback" not in noise, noise
        await asyncio.wait_for(self.client.stop(), PATIENCE)
        assert server.returncode is not None
        return server.returncode

    def uri(self, name: str) -> str:
        return (self.folder / name).as_uri()

    def at(self, name: str) -> t.TextDocumentIdentifier:
        return t.TextDocumentIdentifier(self.uri(name))

    def open(self, name: str, text: str, language: str = "cuda") -> None:
        self.texts[name], self.versions[name] = text, 1
        self.client.text_document_did_open(
            t.DidOpenTextDocumentParams(t.TextDocumentItem(self.uri(name), language, 1, text))
        )

    def change(self, name: str, text: str) -> None:
        self.texts[name] = text
        self.versions[name] += 1
        self.shown.pop(name, None)
        self.client.text_document_did_change(
            t.DidChangeTextDocumentParams(
                t.VersionedTextDocumentIdentifier(uri=self.uri(name), version=self.versions[name]),
                [t.TextDocumentContentChangeWholeDocument(text)],
            )
        )

    def save(self, name: str) -> None:
        (self.folder / name).write_text(self.texts[name])
        self.shown.pop(name, None)
        self.client.text_document_did_save(t.DidSaveTextDocumentParams(self.at(name)))

    def close(self, name: str) -> None:
        self.shown.pop(name, None)
        self.versions.pop(name)
        self.client.text_document_did_close(t.DidCloseTextDocumentParams(self.at(name)))

    async def until(self, what: Callable[[], bool]) -> None:
        async with self.news:
            await asyncio.wait_for(self.news.wait_for(what), PATIENCE)

    async def diagnostics(self, name: str) -> list[t.Diagnostic]:
        """Those of the text as it is now."""
        await self.until(lambda: name in self.shown)
        return self.shown[name]

    async def codes(self, name: str) -> list[tuple[int, str]]:
        """(line, code) of each diagnostic, lines counted from 1."""
        return [(d.range.start.line + 1, str(d.code)) for d in await self.diagnostics(name)]

    async def hover(self, name: str, line: int, character: int) -> str:
        found = await self.client.text_document_hover_async(t.HoverParams(self.at(name), t.Position(line, character)))
        if found is None:
            return ""
        assert isinstance(found.contents, t.MarkupContent)
        return found.contents.value

    async def actions(self, name: str, line: int, *only: str) -> dict[str, Any]:
        """The code actions on a line by title."""
        where = t.Range(t.Position(line, 0), t.Position(line, 200))
        context = t.CodeActionContext([], only=list(only) or None)
        found = await self.client.text_document_code_action_async(t.CodeActionParams(self.at(name), where, context))
        return {action.title: action for action in found or ()}

    def apply(self, edit: t.WorkspaceEdit) -> None:
        """Make an edit, in texts of which every character is one code unit."""
        changes = dict(edit.changes or {})
        for each in edit.document_changes or ():
            assert isinstance(each, t.TextDocumentEdit)
            assert each.text_document.version == self.versions[each.text_document.uri.rpartition("/")[2]]
            changes[each.text_document.uri] = each.edits  # type: ignore[assignment]  # plain edits alone
        for uri, edits in changes.items():
            name = uri.rpartition("/")[2]
            text = self.texts[name]
            starts = [0]
            for line in text.split("\n"):
                starts.append(starts[-1] + len(line) + 1)
            for e in sorted(edits, key=lambda e: e.range.start, reverse=True):
                begin, end = (starts[p.line] + p.character for p in (e.range.start, e.range.end))
                text = text[:begin] + e.new_text + text[end:]
            self.change(name, text)


FULL = t.ClientCapabilities(
    workspace=t.WorkspaceClientCapabilities(
        workspace_edit=t.WorkspaceEditClientCapabilities(document_changes=True),
        did_change_watched_files=t.DidChangeWatchedFilesClientCapabilities(dynamic_registration=True),
    ),
    text_document=t.TextDocumentClientCapabilities(
        code_action=t.CodeActionClientCapabilities(
            resolve_support=t.ClientCodeActionResolveOptions(properties=["edit"]), data_support=True
        )
    ),
    window=t.WindowClientCapabilities(
        work_done_progress=True, show_document=t.ShowDocumentClientCapabilities(support=True)
    ),
)


@contextlib.asynccontextmanager
async def editing(folder: Path, capabilities: t.ClientCapabilities | None = None) -> AsyncIterator[Editor]:
    editor = Editor(folder)
    await editor.start(capabilities or t.ClientCapabilities())
    yield editor
    assert await editor.end() == 0


@pytest.fixture
def session(tmp_path: Path) -> Callable[..., None]:
    """Runs a coroutine with an editor in an empty folder, which is a repository."""
    (tmp_path / ".git").mkdir()

    def run(
        what: Callable[[Editor], Coroutine[Any, Any, None]], capabilities: t.ClientCapabilities | None = None
    ) -> None:
        async def whole() -> None:
            async with editing(tmp_path, capabilities) as editor:
                await what(editor)

        asyncio.run(whole())

    return run


def test_a_finding_is_shown_repaired_and_gone(session: Callable[..., None]) -> None:
    async def edit(editor: Editor) -> None:
        editor.open("k.cu", FAULTY)
        (found,) = await editor.diagnostics("k.cu")
        assert (found.code, found.severity, found.source) == ("CL203", t.DiagnosticSeverity.Error, "cudalint")
        assert found.code_description is not None
        assert found.code_description.href.endswith("rules/CL203-floor-div-grid.md")
        assert found.range == t.Range(t.Position(5, 4), t.Position(5, 33))
        assert "Witness: n = 257, grid (1, 1, 1), block (256, 1, 1)" in found.message
        (related,) = found.related_information or ()
        assert related.location == t.Location(editor.uri("k.cu"), t.Range(t.Position(0, 16), t.Position(0, 21)))
        fixes = [a for a in (await editor.actions("k.cu", 5)).values() if getattr(a, "is_preferred", False)]
        assert [a.title for a in fixes] == ["CL203: round the number of blocks up"]
        assert [d.code for d in fixes[0].diagnostics] == ["CL203"]
        editor.apply(fixes[0].edit)
        assert await editor.codes("k.cu") == []

    session(edit)


def test_the_unsaved_text_counts_and_closing_clears(session: Callable[..., None]) -> None:
    async def edit(editor: Editor) -> None:
        (editor.folder / "k.cu").write_text(KERNEL)
        editor.open("k.cu", KERNEL)
        assert await editor.codes("k.cu") == []
        editor.change("k.cu", FAULTY)
        assert await editor.codes("k.cu") == [(6, "CL203")]
        editor.save("k.cu")
        assert await editor.codes("k.cu") == [(6, "CL203")]
        editor.close("k.cu")
        assert await editor.diagnostics("k.cu") == []

    session(edit)


def test_headers_are_checked_when_they_hold_cuda(session: Callable[..., None]) -> None:
    async def edit(editor: Editor) -> None:
        editor.open("k.h", FAULTY, "cpp")
        editor.open("k.cuh", FAULTY, "cpp")
        editor.open("plain.h", "int half(int n);\n", "cpp")
        assert await editor.codes("k.h") == [(6, "CL203")]
        assert await editor.codes("k.cuh") == [(6, "CL203")]
        assert await editor.codes("plain.h") == []

    session(edit)


def _in_python(cuda: str) -> str:
    return f'import cupy\n\nmodule = cupy.RawModule(code="""\n{cuda}""")\n'


def test_cuda_in_a_string_of_python_is_at_home(session: Callable[..., None]) -> None:
    async def edit(editor: Editor) -> None:
        editor.open("a.py", _in_python(FAULTY), "python")
        editor.open("b.py", "import os\n", "python")
        (found,) = await editor.diagnostics("a.py")
        assert found.range == t.Range(t.Position(8, 4), t.Position(8, 33))
        assert await editor.diagnostics("b.py") == []
        # a kernel of the same name in a string is no other definition for a source beside it
        editor.open("launch.cu", LAUNCH)
        editor.open("kernel.cu", KERNEL)
        await editor.until(lambda: [d.code for d in editor.shown.get("launch.cu", [])] == ["CL203"])
        lenses = await editor.client.text_document_code_lens_async(t.CodeLensParams(editor.at("a.py")))
        assert [lens.range.start.line for lens in lenses or ()] == [3]
        assert "launched at line 9: " in await editor.hover("a.py", 3, 18)
        actions = await editor.actions("a.py", 8)
        editor.apply(actions["Ignore CL203 on this line"].edit)
        assert await editor.codes("a.py") == []
        ignored = FAULTY.replace("(x, n);\n}", "(x, n); // cudalint: ignore[CL203]\n}")
        assert editor.texts["a.py"] == _in_python(ignored)
        editor.change("a.py", _in_python(FAULTY))
        editor.apply((await editor.actions("a.py", 8))["Ignore CL203 in this file"].edit)
        assert await editor.codes("a.py") == []
        editor.change("a.py", _in_python(FAULTY))
        editor.apply((await editor.actions("a.py", 8))["CL203: round the number of blocks up"].edit)
        assert await editor.codes("a.py") == []
        # half a line of Python: what was known is still shown
        editor.change("a.py", _in_python(FAULTY))
        assert await editor.codes("a.py") == [(9, "CL203")]
        editor.change("a.py", _in_python(FAULTY) + "x = (\n")
        assert (9, "CL203") in await editor.codes("a.py")

    session(edit)


def test_a_notebook_that_is_open_as_text(session: Callable[..., None]) -> None:
    async def edit(editor: Editor) -> None:
        cell = {"cell_type": "code", "source": ["%%cu\n", *FAULTY.splitlines(keepends=True)]}
        editor.open("b.ipynb", json.dumps({"cells": [cell]}, indent=1) + "\n", "json")
        assert await editor.codes("b.ipynb") == [(12, "CL203")]
        editor.apply((await editor.actions("b.ipynb", 11))["CL203: round the number of blocks up"].edit)
        assert await editor.codes("b.ipynb") == []
        source = "".join(json.loads(editor.texts["b.ipynb"])["cells"][0]["source"])
        assert "n % 256" in source

    session(edit)


def test_what_is_found_in_a_file_that_is_not_open_is_shown_there(session: Callable[..., None]) -> None:
    async def edit(editor: Editor) -> None:
        (editor.folder / "sum.cuh").write_text(RACE.replace("sum(", "sum_all("))
        source = '#include "sum.cuh"\nvoid run(const float *x, float *out, int n) {\n    sum_all<<<(n + 255) / 256, 256>>>(x, out, n);\n}\n'
        editor.open("main.cu", source)
        await editor.diagnostics("main.cu")
        editor.open("sum.cuh", RACE.replace("sum(", "sum_all("))
        first = await editor.codes("sum.cuh")
        assert first
        editor.close("sum.cuh")
        await editor.until(lambda: "sum.cuh" in editor.shown)
        editor.close("main.cu")
        await editor.until(lambda: editor.shown.get("sum.cuh") == [] and editor.shown.get("main.cu") == [])

    session(edit)


def test_a_change_in_one_text_is_seen_in_the_one_beside_it(session: Callable[..., None]) -> None:
    async def edit(editor: Editor) -> None:
        editor.open("kernels.cuh", KERNEL)
        editor.open("main.cu", '#include "kernels.cuh"\n' + LAUNCH)
        assert await editor.codes("main.cu") == [(3, "CL203")]
        stride = KERNEL.replace("if (i < n) x", "for (; i < n; i += gridDim.x * blockDim.x) x")
        editor.change("kernels.cuh", stride)
        await editor.until(lambda: not [d for d in editor.shown.get("main.cu", [1]) if d == 1 or d.code == "CL203"])

    session(edit)


def test_a_broken_line_keeps_the_rest_and_what_was_known(session: Callable[..., None]) -> None:
    async def edit(editor: Editor) -> None:
        text = RACE + "\n" + FAULTY
        editor.open("k.cu", text)
        before = await editor.codes("k.cu")
        assert {code for _, code in before} == {"CL301", "CL203"}
        for broken in (
            "    float y = x[\n",
            "    if (n > (\n",
            '    char *s = "\n',
            "    for (int k = 0; k < {\n",
            "    }\n",
            "    {\n",
        ):
            # in the launching function, in the kernel with a barrier, and in a kernel of no findings
            for after in ("int n) {\n    scale", "__shared__ float s[256];\n", "void scale(float *x, int n) {\n"):
                at = text.index(after) + after.index("\n") + 1
                editor.change("k.cu", text[:at] + broken + text[at:])
                now = {(line, code) for line, code in await editor.codes("k.cu") if code not in ("CL001", "CL002")}
                line = text[:at].count("\n")
                assert now >= {(n + (n > line), code) for n, code in before}, (broken, after)
        editor.change("k.cu", text)
        assert await editor.codes("k.cu") == before

    session(edit)


def test_a_finding_whose_line_changed_while_the_text_is_broken_goes(session: Callable[..., None]) -> None:
    async def edit(editor: Editor) -> None:
        editor.open("k.cu", FAULTY)
        assert await editor.codes("k.cu") == [(6, "CL203")]
        editor.change("k.cu", FAULTY.replace("n / 256, 256>>>(x, n);", "n / 256, 256>>>(x, "))
        assert "CL203" not in [code for _, code in await editor.codes("k.cu")]

    session(edit)


def test_saving_a_broken_text_shows_what_check_says_of_it(session: Callable[..., None]) -> None:
    async def edit(editor: Editor) -> None:
        editor.open("k.cu", FAULTY)
        await editor.diagnostics("k.cu")
        editor.change("k.cu", FAULTY.replace("int n) {\n    scale", "int n) {\n    if (n > (\n    scale"))
        assert "CL203" in [code for _, code in await editor.codes("k.cu")]
        editor.save("k.cu")
        shown = await editor.codes("k.cu")
        told = subprocess.run(
            [sys.executable, "-m", "cudalint", "check", "--output-format", "concise", "k.cu"],
            cwd=editor.folder, capture_output=True, text=True, check=False,
        ).stdout  # fmt: skip
        assert [code for _, code in shown] == [
            w for line in told.splitlines() for w in line.split() if w.startswith("CL")
        ]

    session(edit)


def test_text_without_any_sense_is_survived(session: Callable[..., None]) -> None:
    async def edit(editor: Editor) -> None:
        editor.open("k.cu", FAULTY)
        await editor.diagnostics("k.cu")
        for text in ("", "\0", "}" * 500, "(" * 5000, "\ud800", "__global__ void k(", "#if 1\n", "\f\u2028" + FAULTY):
            editor.change("k.cu", text)
            await editor.diagnostics("k.cu")
        editor.change("k.cu", FAULTY)
        assert await editor.codes("k.cu") == [(6, "CL203")]

    session(edit)


@pytest.mark.parametrize(("encoding", "units"), [(None, 2), ("utf-16", 2), ("utf-8", 4), ("utf-32", 1)])
def test_positions_count_what_was_agreed_on(session: Callable[..., None], encoding: str | None, units: int) -> None:
    general = t.GeneralClientCapabilities(
        position_encodings=None if encoding is None else [t.PositionEncodingKind(encoding)]
    )

    async def edit(editor: Editor) -> None:
        text = FAULTY.replace("    scale<<<", "/*😀*/ scale<<<")
        editor.open("k.cu", text)
        (found,) = await editor.diagnostics("k.cu")
        assert found.range.start == t.Position(5, 5 + units)
        assert found.range.end == t.Position(5, 5 + units + 29)
        assert "CL203" in await editor.hover("k.cu", 5, 5 + units)
        assert "CL203" not in await editor.hover("k.cu", 5, 2)

    session(edit, t.ClientCapabilities(general=general))


def test_lines_end_where_the_protocol_says(session: Callable[..., None]) -> None:
    async def edit(editor: Editor) -> None:
        editor.open("k.cu", "// a form feed \f and a separator \u2028 end no line\r\n" + FAULTY.replace("\n", "\r\n"))
        assert await editor.codes("k.cu") == [(7, "CL203")]

    session(edit)


def test_actions_ignore_on_the_line_and_in_the_file(session: Callable[..., None]) -> None:
    async def edit(editor: Editor) -> None:
        for title in ("Ignore CL203 on this line", "Ignore CL203 in this file"):
            name = f"{title[-4:]}.cu"
            editor.open(name, FAULTY)
            await editor.diagnostics(name)
            action = (await editor.actions(name, 5))[title]
            if action.edit is None:
                action = await editor.client.code_action_resolve_async(action)
            editor.apply(action.edit)
            assert await editor.codes(name) == []
        assert "// cudalint: ignore[CL203]" in editor.texts["line.cu"].splitlines()[5]
        assert editor.texts["file.cu"].startswith("// cudalint: ignore-file[CL203]\n")

    session(edit, FULL)


def test_all_fixes_of_a_file_are_one_action_computed_when_chosen(session: Callable[..., None]) -> None:
    async def edit(editor: Editor) -> None:
        twice = FAULTY + LAUNCH.replace("run", "again")
        editor.open("k.cu", twice)
        assert await editor.codes("k.cu") == [(6, "CL203"), (9, "CL203")]
        (action,) = (await editor.actions("k.cu", 0, "source.fixAll")).values()
        assert (action.kind, action.edit) == ("source.fixAll.cudalint", None)
        action = await editor.client.code_action_resolve_async(action)
        editor.apply(action.edit)
        assert await editor.codes("k.cu") == []

    session(edit, FULL)


def test_a_client_that_cannot_resolve_gets_the_edit_at_once(session: Callable[..., None]) -> None:
    async def edit(editor: Editor) -> None:
        editor.open("k.cu", FAULTY)
        await editor.diagnostics("k.cu")
        (action,) = (await editor.actions("k.cu", 0, "source.fixAll")).values()
        editor.apply(action.edit)
        assert await editor.codes("k.cu") == []

    session(edit)


def test_a_client_that_cannot_resolve_waits_for_no_repair_it_did_not_ask_for(session: Callable[..., None]) -> None:
    async def edit(editor: Editor) -> None:
        editor.open("k.cu", FAULTY)
        await editor.diagnostics("k.cu")
        assert [*await editor.actions("k.cu", 0)] == []
        assert "Make all safe fixes of cudalint" not in await editor.actions("k.cu", 5)

    session(edit)


def test_a_client_that_cannot_resolve_has_the_edit_sent_when_it_chooses(session: Callable[..., None]) -> None:
    async def edit(editor: Editor) -> None:
        for title in ("Make all safe fixes of cudalint", "Ignore CL203 on this line"):
            name = f"{title[:4]}.cu"
            editor.open(name, FAULTY)
            (found,) = await editor.diagnostics(name)
            what = "safe" if "safe" in title else found.data["fingerprint"]
            chosen = t.ExecuteCommandParams("cudalint.apply", arguments=[editor.uri(name), what])
            # the client's library takes an action that has a command for a command
            action = (await editor.actions(name, 5))[title]
            assert str({"title": title, "command": chosen.command, "arguments": chosen.arguments}) == action.command
            await editor.client.workspace_execute_command_async(chosen)
            assert await editor.codes(name) == []
        # of a text that has no such finding (any more)
        await editor.client.workspace_execute_command_async(
            t.ExecuteCommandParams("cudalint.apply", arguments=[editor.uri(name), "gone"])
        )
        assert await editor.codes(name) == []

    session(edit, t.ClientCapabilities(workspace=t.WorkspaceClientCapabilities(apply_edit=True)))


def test_the_page_opens_outside(session: Callable[..., None]) -> None:
    async def edit(editor: Editor) -> None:
        editor.open("k.cu", FAULTY)
        await editor.diagnostics("k.cu")
        assert "Read about CL203 floor-div-grid" in await editor.actions("k.cu", 5)
        page = "https://github.com/cudalint/cudalint/blob/main/rules/CL203-floor-div-grid.md"
        await editor.client.workspace_execute_command_async(t.ExecuteCommandParams("cudalint.open", arguments=[page]))
        assert editor.pages == [page]

    session(edit, FULL)


def test_hovers_tell_the_rule_the_contract_and_the_launch(session: Callable[..., None]) -> None:
    async def edit(editor: Editor) -> None:
        editor.open("k.cu", FAULTY)
        contract = await editor.hover("k.cu", 0, 18)
        assert "**kernel `scale`** asks of its launches" in contract
        assert "- `gridDim.x * blockDim.x >= n`" in contract
        assert "launched at line 6: `gridDim.x * blockDim.x >= n`: broken at n = 1" in contract
        launch = await editor.hover("k.cu", 5, 20)
        assert "Provides: grid `n / 256`, block `256`" in launch
        assert "✗ `gridDim.x * blockDim.x >= n`: broken" in launch
        assert "# floor-div-grid (CL203)" in launch
        assert await editor.hover("k.cu", 3, 0) == ""

    session(edit)


def test_a_launch_of_a_kernel_in_a_header_is_held_against_its_contract(session: Callable[..., None]) -> None:
    async def edit(editor: Editor) -> None:
        (editor.folder / "k.cuh").write_text(KERNEL)
        editor.open("main.cu", '#include "k.cuh"\n' + LAUNCH.replace("n / 256", "(n + 255) / 256"))
        assert "✓ `gridDim.x * blockDim.x >= n`: kept" in await editor.hover("main.cu", 2, 8)

    session(edit)


def test_confirm_shows_its_verdict_and_its_progress(session: Callable[..., None]) -> None:
    async def edit(editor: Editor) -> None:
        editor.open("k.cu", FAULTY)
        await editor.diagnostics("k.cu")
        (lens,) = await editor.client.text_document_code_lens_async(t.CodeLensParams(editor.at("k.cu"))) or ()
        assert lens.command is not None
        assert (lens.range.start.line, lens.command.title) == (0, "confirm 1 finding")
        editor.shown.pop("k.cu")
        command = t.ExecuteCommandParams(lens.command.command, arguments=lens.command.arguments)
        await editor.client.workspace_execute_command_async(command)
        (found,) = await editor.diagnostics("k.cu")
        assert "Confirmed by the simulator at n = 257" in found.message
        assert [p["kind"] if isinstance(p, dict) else p.kind for p in editor.progress] == ["begin", "report", "end"]
        (lens,) = await editor.client.text_document_code_lens_async(t.CodeLensParams(editor.at("k.cu"))) or ()
        assert lens.command is not None
        assert lens.command.title == "1 of 1 finding confirmed: run again"
        assert "wrong@256" in await editor.hover("k.cu", 5, 20)
        editor.change("k.cu", "// moved\n" + FAULTY)
        (found,) = await editor.diagnostics("k.cu")
        assert "Confirmed" in found.message
        editor.change("k.cu", FAULTY.replace("2.0f", "3.0f"))
        (found,) = await editor.diagnostics("k.cu")
        assert "Confirmed" not in found.message  # it was of another kernel

    session(edit, FULL)


def test_confirm_can_be_given_up(session: Callable[..., None]) -> None:
    async def edit(editor: Editor) -> None:
        editor.open("k.cu", FAULTY)
        await editor.diagnostics("k.cu")
        (lens,) = await editor.client.text_document_code_lens_async(t.CodeLensParams(editor.at("k.cu"))) or ()
        assert lens.command is not None
        editor.cancel_progress = True
        editor.shown.pop("k.cu")
        command = t.ExecuteCommandParams(lens.command.command, arguments=lens.command.arguments)
        await editor.client.workspace_execute_command_async(command)
        (found,) = await editor.diagnostics("k.cu")
        assert "Confirmed" not in found.message

    session(edit, FULL)


def test_a_changed_configuration_is_obeyed(session: Callable[..., None]) -> None:
    async def edit(editor: Editor) -> None:
        await editor.until(lambda: bool(editor.registered))
        assert editor.registered[0].method == t.WORKSPACE_DID_CHANGE_WATCHED_FILES
        config = editor.folder / "cudalint.toml"

        def configure(text: str) -> None:
            config.write_text(text)
            editor.shown.pop("k.cu", None)
            change = t.FileEvent(config.as_uri(), t.FileChangeType.Changed)
            editor.client.workspace_did_change_watched_files(t.DidChangeWatchedFilesParams([change]))

        editor.open("k.cu", FAULTY)
        assert await editor.codes("k.cu") == [(6, "CL203")]
        configure('ignore = ["CL203"]\n')
        assert await editor.codes("k.cu") == []
        configure('level = { CL203 = "note" }\n')
        (found,) = await editor.diagnostics("k.cu")
        assert found.severity == t.DiagnosticSeverity.Information
        configure('ignor = ["CL203"]\n')
        await editor.until(lambda: any("unknown key 'ignor'" in said for said in editor.said))
        configure('exclude = ["k.cu"]\n')
        assert await editor.codes("k.cu") == []

    session(edit, FULL)


def test_a_client_without_watching_has_the_configuration_read_at_the_next_change(session: Callable[..., None]) -> None:
    async def edit(editor: Editor) -> None:
        editor.open("k.cu", FAULTY)
        assert await editor.codes("k.cu") == [(6, "CL203")]
        (editor.folder / "pyproject.toml").write_text('[tool.cudalint]\nignore = ["CL203"]\n')
        editor.change("k.cu", FAULTY + "\n")
        assert await editor.codes("k.cu") == []

    session(edit)


def test_files_that_change_on_disk_are_read_again(session: Callable[..., None]) -> None:
    async def edit(editor: Editor) -> None:
        header = editor.folder / "k.cuh"
        header.write_text(KERNEL)
        editor.open("main.cu", '#include "k.cuh"\n' + LAUNCH)
        assert await editor.codes("main.cu") == [(3, "CL203")]
        header.write_text(KERNEL.replace("if (i < n) x", "for (; i < n; i += gridDim.x * blockDim.x) x"))
        editor.shown.pop("main.cu")
        change = t.FileEvent(header.as_uri(), t.FileChangeType.Changed)
        editor.client.workspace_did_change_watched_files(t.DidChangeWatchedFilesParams([change]))
        assert "CL203" not in [code for _, code in await editor.codes("main.cu")]

    session(edit, FULL)


def test_a_workspace_folder_is_the_root_where_nothing_marks_one(tmp_path: Path) -> None:
    async def edit() -> None:
        (tmp_path / "include").mkdir()
        (tmp_path / "src").mkdir()
        (tmp_path / "include" / "k.cuh").write_text(KERNEL)
        async with editing(tmp_path) as editor:
            editor.open("src/main.cu", '#include "k.cuh"\n' + LAUNCH)
            editor.versions["main.cu"] = 1
            assert await editor.codes("main.cu") == [(3, "CL203")]
            folder = t.WorkspaceFolder(tmp_path.as_uri(), "")
            editor.shown.pop("main.cu")
            event = t.WorkspaceFoldersChangeEvent(added=[], removed=[folder])
            editor.client.workspace_did_change_workspace_folders(t.DidChangeWorkspaceFoldersParams(event))
            assert await editor.codes("main.cu") == [(3, "CL204")]  # the kernel is not seen any longer

    asyncio.run(edit())


def test_requests_are_cancelled_and_overlap(session: Callable[..., None]) -> None:
    async def edit(editor: Editor) -> None:
        editor.open("k.cu", FAULTY)
        where = t.HoverParams(editor.at("k.cu"), t.Position(0, 18))
        lost = asyncio.ensure_future(
            editor.client.protocol.send_request_async(t.TEXT_DOCUMENT_HOVER, where, msg_id="lost")
        )
        await asyncio.sleep(0)
        editor.client.cancel_request(t.CancelParams("lost"))
        with pytest.raises(Exception, match="cancel"):
            await asyncio.wait_for(lost, PATIENCE)
        answers = [editor.hover("k.cu", 0, 18), editor.hover("k.cu", 5, 20), editor.actions("k.cu", 5)]
        for number in range(20):  # typing goes on while they wait
            editor.change("k.cu", FAULTY + "\n" * number)
        contract, launch, actions = await asyncio.wait_for(asyncio.gather(*answers), PATIENCE)
        assert "kernel `scale`" in contract
        assert "launch of `scale`" in launch
        assert "Ignore CL203 on this line" in actions
        assert await editor.codes("k.cu") == [(6, "CL203")]

    session(edit)


def test_only_the_newest_text_is_checked(session: Callable[..., None]) -> None:
    async def edit(editor: Editor) -> None:
        seen: list[int | None] = []
        editor.open("k.cu", FAULTY)
        await editor.diagnostics("k.cu")

        published = editor.client.protocol.fm.features[t.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS]

        async def note(params: t.PublishDiagnosticsParams) -> None:
            seen.append(params.version)
            await published(params)

        editor.client.protocol.fm.features[t.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS] = note
        for number in range(30):
            editor.change("k.cu", FAULTY + "\n" * number)
        await editor.diagnostics("k.cu")
        assert seen == [31]

    session(edit)


def test_what_a_library_prints_does_not_reach_the_client(tmp_path: Path) -> None:
    async def edit() -> None:
        loud = "import os, sys\nfrom cudalint.lsp import session\nusual = session.Session.check\n"
        loud += "def check(*a):\n    print('hello')\n    os.write(1, b'hello')\n    return usual(*a)\n"
        loud += "session.Session.check = check\nfrom cudalint.cli import main\nsys.exit(main(['lsp']))\n"
        editor = Editor(tmp_path)
        await editor.client.start_io(sys.executable, "-c", loud)
        await editor.client.initialize_async(t.InitializeParams(t.ClientCapabilities()))
        editor.client.initialized(t.InitializedParams())
        editor.open("k.cu", FAULTY)
        assert await editor.codes("k.cu") == [(6, "CL203")]
        assert await editor.end() == 0

    asyncio.run(edit())


SPIN = """\
import sys
from cudalint import engine
from cudalint.lsp import lane
usual = engine.Worker._guard
def guard(self, target, where, found, step):
    while "cl408" in where and b"spin" in self.project(target.settings).content(target.path):
        pass
    return usual(self, target, where, found, step)
engine.Worker._guard = guard
lane.LIMIT, lane.GRACE = {limit}, 0
from cudalint.cli import main
sys.exit(main(["lsp"]))
"""


@contextlib.asynccontextmanager
async def spinning(folder: Path, limit: float) -> AsyncIterator[Editor]:
    """An editor whose server never comes to the end of a rule where the text says ``spin``."""
    editor = Editor(folder)
    await editor.client.start_io(sys.executable, "-c", SPIN.replace("{limit}", str(limit)))
    await editor.client.initialize_async(t.InitializeParams(t.ClientCapabilities()))
    editor.client.initialized(t.InitializedParams())
    yield editor
    assert await editor.end() == 0


def test_a_check_that_takes_too_long_ends_with_what_it_has(tmp_path: Path) -> None:
    async def edit() -> None:
        async with spinning(tmp_path, 5) as editor:
            editor.open("k.cu", RACE + "// spin")
            assert await editor.codes("k.cu") == [(4, "CL301")]
            [said] = editor.said
            assert said.endswith("k.cu takes too long: not all of it was checked")
            editor.change("k.cu", KERNEL + RACE)
            assert await editor.codes("k.cu") == [(8, "CL301")]

    asyncio.run(edit())


def test_a_job_that_takes_too_long_does_not_hold_up_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane, "LIMIT", 0.1)
    stopped: list[None] = []

    def spin() -> None:
        while True:
            with contextlib.suppress(Exception):
                int("spin")

    async def work() -> None:
        jobs = lane.Lane(lambda: None, lambda: stopped.append(None))
        with pytest.raises(TimeoutError):
            await jobs.run(spin)
        assert stopped == [None]
        assert await jobs.run(lambda: 1) == 1

    asyncio.run(work())


def test_a_check_that_a_change_has_overtaken_does_not_go_on(tmp_path: Path) -> None:
    async def edit() -> None:
        async with spinning(tmp_path, 1e9) as editor:
            editor.open("k.cu", RACE + "// spin")
            editor.change("k.cu", RACE + "// spin, still")
            await asyncio.sleep(0.5)  # that it is under way
            editor.change("k.cu", RACE)
            assert await editor.codes("k.cu") == [(4, "CL301")]
            assert not editor.said

    asyncio.run(edit())


def test_an_exit_without_a_shutdown_is_told_by_the_exit_code(tmp_path: Path) -> None:
    async def edit() -> None:
        editor = Editor(tmp_path)
        await editor.start(t.ClientCapabilities())
        editor.open("k.cu", FAULTY)
        editor.client.exit(None)
        assert await editor.gone() == 1

    asyncio.run(edit())


def test_the_server_ends_when_its_client_is_gone(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "cudalint", "lsp", "--stdio"], cwd=tmp_path, input=b"", capture_output=True,
        timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, b"")


def test_without_pygls_one_line_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "pygls.py").write_text("raise ImportError('No module named pygls')\n")
    code = "import sys; sys.path.insert(0, sys.argv[1]); from cudalint.cli import main; sys.exit(main(['lsp']))"
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "pip install 'cudalint[lsp]'" in done.stderr


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        (b"garbage\n\n", "'garbage' is no header of a message"),
        (b"Content-Length: many\r\n\r\n{}", "'Content-Length: many' is no header of a message"),
        (b"\xff\x1b[31m\x00\r\n", "is no header of a message"),
        (b"Content-Length: 999999999999\r\n\r\n{}", "a message of 999999999999 bytes is refused"),
    ],
)
def test_what_is_not_the_protocol_is_told_in_one_line(cudalint, sent, told) -> None:
    done = cudalint("lsp", stdin=sent)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("cudalint: lsp: ")
    assert told in done.stderr
    assert "\x1b" not in done.stderr


def answers(cudalint, *messages: Any) -> list[tuple[Any, int | None]]:
    """The request, and the code of the error if it is one, of what the server answers."""
    bodies = [x if isinstance(x, bytes) else json.dumps({"jsonrpc": "2.0", **x}).encode() for x in messages]
    done = cudalint("lsp", stdin=b"".join(b"Content-Length: %d\r\n\r\n%b" % (len(x), x) for x in bodies))
    found = re.findall(r'\{"(?:id|error|result|jsonrpc)".*?(?=Content-Length|\Z)', done.stdout, re.DOTALL)
    said = [json.loads(text) for text in found]
    return [(x["id"], x.get("error", {}).get("code")) for x in said if "id" in x and "method" not in x]


START = {"id": 1, "method": "initialize", "params": {"processId": None, "rootUri": None, "capabilities": {}}}


@pytest.mark.parametrize("params", [{}, None, [1], {"textDocument": 1}])
def test_a_request_with_bad_parameters_is_answered(cudalint, params) -> None:
    bad = {"id": 2, "method": "textDocument/hover", "params": params}
    assert answers(cudalint, START, bad, {"id": 3, "method": "shutdown"}) == [(1, None), (2, -32602), (3, None)]


@pytest.mark.parametrize("arguments", [None, [], ["a"], ["a", 5], ["a", ["b"], "c"]])
def test_a_command_with_bad_arguments_is_answered(cudalint, arguments) -> None:
    bad = {"id": 2, "method": "workspace/executeCommand", "params": {"command": "cudalint.confirm"}}
    if arguments is not None:
        bad["params"]["arguments"] = arguments
    assert answers(cudalint, START, bad, {"id": 3, "method": "shutdown"}) == [(1, None), (2, -32602), (3, None)]


@pytest.mark.parametrize(
    ("body", "code"), [(b"[}", -32700), (b"[" * 200_000, -32700), (b"[1]", -32600), (b"1", -32600)]
)
def test_a_message_that_is_no_object_is_answered(cudalint, body, code) -> None:
    assert answers(cudalint, body, START) == [(None, code), (1, None)]


def test_what_comes_at_the_wrong_time_is_answered(cudalint) -> None:
    assert answers(cudalint, START, {**START, "id": 2}) == [(1, None), (2, -32600)]
    late = {
        "id": 3,
        "method": "textDocument/hover",
        "params": {"textDocument": {"uri": "file:///a.cu"}, "position": {"line": 0, "character": 0}},
    }
    assert answers(cudalint, START, {"id": 2, "method": "shutdown"}, late) == [(1, None), (2, None), (3, -32600)]


def test_an_interrupt_ends_it_without_a_word(tmp_path: Path) -> None:
    body = json.dumps({"jsonrpc": "2.0", **START}).encode()
    command = [sys.executable, "-m", "cudalint", "lsp"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=tmp_path, stdin=pipe, stdout=pipe, stderr=pipe) as server:
        assert server.stdin and server.stdout and server.stderr
        server.stdin.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        server.stdin.flush()
        server.stdout.readline()
        server.send_signal(signal.SIGINT)
        assert server.wait(PATIENCE) == 130
        assert server.stderr.read() == b""


def test_messages_without_sense_are_told_and_the_next_one_is_read(cudalint) -> None:
    senseless = b'{"jsonrpc": "2.0", "method": "textDocument/didOpen", "params": {"textDocument": 1}}'
    done = cudalint("lsp", stdin=b"".join(b"Content-Length: %d\r\n\r\n%s" % (len(x), x) for x in (senseless, b"{}")))
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert len(lines) >= 2
    assert all(line.startswith("cudalint: lsp: Unable to ") for line in lines)
