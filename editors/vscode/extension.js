// Starts `cudalint lsp` and gives it the CUDA sources, and what may be CUDA.
"use strict";

const vscode = require("vscode");
const { LanguageClient, TransportKind } = require("vscode-languageclient/node");

/** @type {LanguageClient | undefined} */
let client;

async function start() {
  const [command, ...args] = vscode.workspace.getConfiguration("cudalint").get("command");
  const languages = ["cuda-cpp", "cuda", "cpp", "c", "python"];
  client = new LanguageClient(
    "cudalint",
    "cudalint",
    { command, args, transport: TransportKind.stdio },
    { documentSelector: languages.map((language) => ({ scheme: "file", language })) },
  );
  try {
    await client.start();
  } catch (fault) {
    client = undefined;
    vscode.window.showErrorMessage(`cudalint: ${command} does not start (pip install 'cudalint[lsp]'): ${fault.message}`);
  }
}

async function stop() {
  const running = client;
  client = undefined;
  await running?.stop();
}

async function restart() {
  await stop();
  await start();
}

exports.activate = async (context) => {
  context.subscriptions.push(
    vscode.commands.registerCommand("cudalint.restart", restart),
    vscode.workspace.onDidChangeConfiguration((event) => event.affectsConfiguration("cudalint") && restart()),
  );
  await start();
};

exports.deactivate = stop;
