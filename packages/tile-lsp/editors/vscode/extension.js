// Starts the language server for Tile files, and for Python files with Tile in their strings.
"use strict";

const { commands, window, workspace } = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

let client;

function makeClient() {
  const [command, ...args] = workspace.getConfiguration("tile").get("server.command", ["tile-lsp"]);
  const documentSelector = [{ language: "tile" }, { language: "python", pattern: "**/*.py" }];
  return new LanguageClient("tile", "Tile", { command, args }, { documentSelector });
}

async function start() {
  client = makeClient();
  try {
    await client.start();
  } catch (problem) {
    client = undefined;
    window.showErrorMessage(
      `The Tile language server cannot be started (${problem.message}). Install the package tile-lsp, or set tile.server.command.`
    );
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

async function activate(context) {
  context.subscriptions.push(commands.registerCommand("tile.restartServer", restart));
  await start();
}

module.exports = { activate, deactivate: stop };
