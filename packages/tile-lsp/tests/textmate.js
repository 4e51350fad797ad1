// Splits texts into tokens with the engine of Visual Studio Code: JSON [{grammar, text}] in, JSON [[[start, end, scopes]]] out.
"use strict";

const fs = require("fs");
const path = require("path");
const oniguruma = require("vscode-oniguruma");
const textmate = require("vscode-textmate");

const [, , syntaxes] = process.argv;
const FILES = { "source.tile": "tile.tmLanguage.json", "source.tile.embedded.python": "tile-in-python.tmLanguage.json" };
const PYTHON = { scopeName: "source.python", patterns: [{ match: "\\btile\\b", name: "variable.python" }] };

async function loadGrammar(scope) {
  if (scope === "source.python") return PYTHON;
  const file = path.join(syntaxes, FILES[scope]);
  return textmate.parseRawGrammar(fs.readFileSync(file, "utf-8"), file);
}

function split(grammar, text) {
  const found = [];
  let state = textmate.INITIAL;
  let start = 0;
  for (const line of text.split("\n")) {
    const { tokens, ruleStack } = grammar.tokenizeLine(line, state);
    for (const token of tokens) {
      found.push([start + token.startIndex, start + Math.min(token.endIndex, line.length), token.scopes]);
    }
    state = ruleStack;
    start += line.length + 1;
  }
  return found;
}

async function main() {
  const wasm = fs.readFileSync(path.join(path.dirname(require.resolve("vscode-oniguruma")), "onig.wasm"));
  await oniguruma.loadWASM(wasm.buffer.slice(wasm.byteOffset, wasm.byteOffset + wasm.byteLength));
  const onigLib = Promise.resolve({
    createOnigScanner: (patterns) => new oniguruma.OnigScanner(patterns),
    createOnigString: (text) => new oniguruma.OnigString(text),
  });
  const getInjections = (scope) => (scope === "source.python" ? ["source.tile.embedded.python"] : []);
  const registry = new textmate.Registry({ onigLib, loadGrammar, getInjections });
  const results = [];
  for (const { grammar, text } of JSON.parse(fs.readFileSync(0, "utf-8"))) {
    results.push(split(await registry.loadGrammar(grammar), text));
  }
  process.stdout.write(JSON.stringify(results));
}

main();
