"""What is in editors/: grammars that are the language's, an extension that starts the server, settings that can be read."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tile_ir.diagnostics import Source
from tile_lang.build import BORDERS
from tile_lang.builtins import BUILTINS
from tile_lang.examples import TUTORIAL
from tile_lang.lexer import CONSTANTS, KEYWORDS, PUNCTUATION, lex

HERE = Path(__file__).parent
PACKAGE = HERE.parent
VSCODE = PACKAGE / "editors" / "vscode"
NODE = shutil.which("node")
MODULES = os.environ.get("TILE_NODE_MODULES")
"""Where vscode-textmate and vscode-oniguruma are; `dev.py editors` says so."""
needs_node = pytest.mark.skipif(NODE is None, reason="Node.js is not here")
needs_engine = pytest.mark.skipif(NODE is None or MODULES is None, reason="`dev.py editors` installs the engine")


def generator() -> Any:
    spec = importlib.util.spec_from_file_location("generate_grammar", PACKAGE / "tools" / "generate_grammar.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MAKER = generator()
RULES: dict[str, dict[str, Any]] = MAKER.repository()


@pytest.mark.parametrize("name", MAKER.GRAMMARS)
def test_grammars_are_what_the_tables_give(name: str) -> None:
    assert (VSCODE / "syntaxes" / name).read_text("utf-8") == MAKER.text(name), "run tools/generate_grammar.py"


def includes(rule: Any) -> Iterator[str]:
    for one in rule.get("patterns", ()):
        yield one["include"]


def test_every_rule_is_there_and_used() -> None:
    used = {i for rule in (MAKER.grammar(), *RULES.values()) for i in includes(rule)}
    assert used == {f"#{name}" for name in RULES}


def test_patterns_take_their_words_whole() -> None:
    """Longest first: no word, and no operator, is cut by one that begins it."""
    words = {
        "builtin": [f"{n}(" for n in (*BUILTINS, "assert_fits")], "border": [f"{n}(" for n in BORDERS], "constant": [*CONSTANTS],
        "operator": [s for s, kind in PUNCTUATION.items() if kind not in MAKER._BRACKETS],
        "keyword": [w for w, kind in KEYWORDS.items() if kind != "RESERVED"],
        "reserved": [w for w, kind in KEYWORDS.items() if kind == "RESERVED"],
    }  # fmt: skip
    for rule, given in words.items():
        for word in given:
            found = re.match(RULES[rule]["match"], word)
            assert found and found[0] == word.rstrip("("), (rule, word)
    assert not re.search(RULES["builtin"]["match"], "expo(A) exp2 (A) my_exp (A)")
    assert re.match(RULES["aggregation"]["match"], "= >(A)") and not re.match(
        RULES["aggregation"]["match"], "= A + (B)"
    )


def test_the_extension_has_what_it_names() -> None:
    package = json.loads((VSCODE / "package.json").read_text("utf-8"))
    json.loads((VSCODE / "language-configuration.json").read_text("utf-8"))
    files = [package["main"], *(g["path"] for g in package["contributes"]["grammars"])]
    files += [one["configuration"] for one in package["contributes"]["languages"]]
    assert all((VSCODE / name).exists() for name in files)
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text("utf-8"))["project"]
    assert package["version"] == project["version"]
    assert (
        package["contributes"]["configuration"]["properties"]["tile.server.command"]["default"][0] in project["scripts"]
    )


def run(script: str, *arguments: str, **more: Any) -> str:
    assert NODE is not None
    done = subprocess.run([NODE, str(HERE / script), *arguments], capture_output=True, text=True, check=True, **more)
    return done.stdout


@needs_node
def test_the_extension_starts_stops_and_complains() -> None:
    client = ["client", "tile", {"command": "tile-lsp", "args": []}, ["tile", "python"]]
    notes = json.loads(run("extension.js", str(VSCODE / "extension.js")))
    assert notes == [["command", "tile.restartServer"], client, ["start"], ["stop"], client, ["start"], ["stop"]]
    notes = json.loads(run("extension.js", str(VSCODE / "extension.js"), "failing"))
    assert "Install the package tile-lsp" in notes[2][1] and len([n for n in notes if n[0] == "error"]) == 2


def test_settings_of_helix_can_be_read() -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", (PACKAGE / "editors" / "README.md").read_text("utf-8"), re.DOTALL)
    settings = tomllib.loads(text)
    assert settings["language"][0]["language-servers"] == [*settings["language-server"]]


# --- with the engine -----------------------------------------------------------------------------


def tokenised(*texts: tuple[str, str]) -> list[list[tuple[int, int, list[str]]]]:
    given = json.dumps([{"grammar": grammar, "text": text} for grammar, text in texts])
    env = os.environ | {"NODE_PATH": str(MODULES)}
    return json.loads(run("textmate.js", str(VSCODE / "syntaxes"), input=given, env=env))


def kinds(source: str, tokens: list[tuple[int, int, list[str]]]) -> Iterator[tuple[str, str]]:
    for start, end, scopes in tokens:
        yield source[start:end], scopes[-1]


OF_KIND = {"ID": ("variable.other.tensor", "entity.name.function", "entity.other.attribute"), "INT": ("constant.numeric",), "FLOAT": ("constant.numeric",),
           "IDX": ("variable.parameter.index", "support.function", "entity.name.function", "entity.other.attribute"),
           "FUNCTION": ("keyword",), "DEFAULT": ("keyword",), "NO_DEFRACT": ("keyword",)}  # fmt: skip
ALL = """function between(X, Low) -> (Y) { Y = X < Low ? Low : X; }
function (A[N, M], #a, I[K]) -> (B) {  // a comment
    [[pid(a, B)]] B[i, $J, I[k] : N, M, K + 1] = >(A[clamp(i + 2j - 1), j] * A[I[k], inf]), j < 3 no_defract default A;
    C = between(exp(A), 1.5e-3) != inf ? ~A << 2 : assert_x(A);
}"""


@needs_engine
def test_the_engine_sees_the_tokens_of_the_language() -> None:
    """Every token of the lexer is in one of the grammar's, and that has a scope of its kind."""
    sources = [ALL, *(e.source for e in TUTORIAL)]
    for source, tokens in zip(sources, tokenised(*(("source.tile", s) for s in sources)), strict=True):
        for token in lex(Source(source)).tokens[:-1]:
            scopes = next(s for start, end, s in tokens if start <= token.start and token.end <= end)
            expected = OF_KIND.get(token.kind, ("keyword.operator", "punctuation"))
            assert scopes[-1].startswith(expected) or token.text in CONSTANTS, (source[token.start : token.end], scopes)
    found = set(kinds(ALL, tokenised(("source.tile", ALL))[0]))
    assert {("exp", "support.function.builtin.tile"), ("between", "entity.name.function.tile"), ("between", "entity.name.function.call.tile"),
            ("clamp", "support.function.border.tile"), (">", "keyword.operator.aggregation.tile"), ("// a comment", "comment.line.double-slash.tile"),
            ("inf", "constant.language.tile"), ("#a", "variable.other.tensor.tile")} <= found  # fmt: skip


@needs_engine
def test_the_engine_sees_tile_in_python() -> None:
    source = 'a = tile.Function("""\nfunction (A) -> (B) { B = exp(A); }\n""") + tile'
    (tokens,) = tokenised(("source.python", source))
    found = set(kinds(source, tokens))
    assert {
        ("exp", "support.function.builtin.tile"),
        ("A", "variable.other.tensor.tile"),
        ("tile", "variable.python"),
    } <= found
    assert [s for start, _, s in tokens if start == source.rindex("tile")] == [["source.python", "variable.python"]]
