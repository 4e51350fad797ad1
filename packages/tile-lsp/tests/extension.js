// Runs the extension with an editor and a client that only note what is asked of them; prints the notes as JSON.
"use strict";

const Module = require("module");
const path = require("path");

const notes = [];
const failing = process.argv[3] === "failing";
const vscode = {
  workspace: { getConfiguration: () => ({ get: (_name, usual) => usual }) },
  window: { showErrorMessage: (text) => notes.push(["error", text]) },
  commands: { registerCommand: (name, run) => (notes.push(["command", name]), { run }) },
};
class LanguageClient {
  constructor(id, _name, server, options) {
    notes.push(["client", id, server, options.documentSelector.map((d) => d.language)]);
  }
  async start() {
    if (failing) throw new Error("spawn tile-lsp ENOENT");
    notes.push(["start"]);
  }
  async stop() {
    notes.push(["stop"]);
  }
}
const known = { vscode, "vscode-languageclient/node": { LanguageClient } };
const load = Module._load;
Module._load = (name, ...rest) => known[name] ?? load(name, ...rest);

async function main() {
  const extension = require(path.resolve(process.argv[2]));
  const context = { subscriptions: [] };
  await extension.activate(context);
  await context.subscriptions[0].run();
  await extension.deactivate();
  console.log(JSON.stringify(notes));
}

main();
