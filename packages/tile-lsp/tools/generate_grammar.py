"""Writes the TextMate grammars of editors/vscode/syntaxes from the language's own tables; a test compares.

python tools/generate_grammar.py
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tile_lang.build import BORDERS
from tile_lang.builtins import BUILTINS
from tile_lang.lexer import CONSTANTS, KEYWORDS, PUNCTUATION

FOLDER = Path(__file__).parents[1] / "editors" / "vscode" / "syntaxes"
SCHEMA = "https://raw.githubusercontent.com/martinring/tmlanguage/master/tmlanguage.json"
NAME = r"[A-Za-z][A-Za-z0-9_]*'?"
_BRACKETS = {"LPAR", "RPAR", "LSQB", "RSQB", "LDSQB", "RDSQB", "LBRACE", "RBRACE", "COMMA", "COLON", "SEMI", "DOT"}


def words(names: Iterable[str]) -> str:
    """A pattern for whole words, longest first."""
    return r"\b(?:" + "|".join(sorted(map(re.escape, names), key=lambda n: (-len(n), n))) + r")\b"


def operators() -> str:
    """A pattern for what is neither bracket nor separator, longest first."""
    found = (s for s, kind in PUNCTUATION.items() if kind not in _BRACKETS)
    return "|".join(map(re.escape, sorted(found, key=lambda s: (-len(s), s))))


def _match(pattern: str, scope: str) -> dict[str, Any]:
    return {"match": pattern, "name": f"{scope}.tile"}


def _captured(pattern: str, *scopes: str) -> dict[str, Any]:
    return {"match": pattern, "captures": {str(k): {"name": f"{s}.tile"} for k, s in enumerate(scopes, 1)}}


def _between(begin: str, end: str, scope: str, *patterns: str, **more: Any) -> dict[str, Any]:
    marks = {"0": {"name": f"{more.pop('marks', 'punctuation.section.brackets')}.tile"}}
    return {"begin": begin, "end": end, "name": f"{scope}.tile", "beginCaptures": marks, "endCaptures": marks,
            "patterns": [{"include": f"#{p}"} for p in patterns]}  # fmt: skip


def repository() -> dict[str, Any]:
    """The rules by name."""
    spoken = [word for word, kind in KEYWORDS.items() if kind != "RESERVED"]
    reserved = [word for word, kind in KEYWORDS.items() if kind == "RESERVED"]
    builtins = [name for name in BUILTINS if name != "assert_"]
    return {
        "comment": _match(r"//.*$", "comment.line.double-slash"),
        "definition": _captured(rf"\b(function)\s+({NAME})", "keyword.declaration", "entity.name.function"),
        "aggregation": _captured(r"(=)\s*([+*<>=])(?=\s*\()", "keyword.operator.assignment", "keyword.operator.aggregation"),
        "keyword": _match(words(spoken), "keyword.control"),
        "reserved": _match(words(reserved), "invalid.illegal.reserved"),
        "constant": _match(words(CONSTANTS), "constant.language"),
        "builtin": _match(rf"(?:{words(builtins)}|\bassert_[A-Za-z0-9_]*'?)(?=\s*\()", "support.function.builtin"),
        "border": _match(rf"{words(BORDERS)}(?=\s*\()", "support.function.border"),
        "call": _match(rf"(?<![A-Za-z0-9_#$]){NAME}(?=\s*\()", "entity.name.function.call"),
        "number": _match(r"\b[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?", "constant.numeric"),
        "tensor": _match(rf"#{NAME}|(?<![A-Za-z0-9_#$])[A-Z][A-Za-z0-9_]*'?", "variable.other.tensor"),
        "index": _match(rf"\${NAME}|(?<![A-Z_a-z#$])[a-z][A-Za-z0-9_]*'?", "variable.parameter.index"),
        "operator": _match(operators(), "keyword.operator"),
        "punctuation": _match(r"[(){},:;.\]]", "punctuation"),
        "attribute": _between(r"\[\[", r"\]\]", "meta.attribute", "comment", "label", "separator", marks="punctuation.definition.attribute"),
        "label": _match(NAME, "entity.other.attribute-name"),
        "subscript": _between(
            r"\[", r"\]", "meta.subscript", "comment", "subscript", "border", "call", "number", "tensor", "index", "operator", "separator"
        ),
        "separator": _match(r"[(),:]", "punctuation"),
    }  # fmt: skip


ORDER = ("comment", "attribute", "subscript", "definition", "aggregation", "keyword", "reserved", "constant", "builtin", "call",
         "number", "tensor", "index", "operator", "punctuation")  # fmt: skip


def grammar() -> dict[str, Any]:
    """Tile itself."""
    return {
        "$schema": SCHEMA,
        "name": "Tile",
        "scopeName": "source.tile",
        "fileTypes": ["tile"],
        "patterns": [{"include": f"#{name}"} for name in ORDER],
        "repository": repository(),
    }


def inside_python() -> dict[str, Any]:
    """Tile in the strings of Python that `Function` is called with."""
    marks = {"1": {"name": "storage.type.string.python"}, "2": {"name": "punctuation.definition.string.python"}}
    return {
        "$schema": SCHEMA,
        "scopeName": "source.tile.embedded.python",
        "injectionSelector": "L:source.python -comment -string",
        "patterns": [
            {
                "begin": r"(?<=\bFunction\()([rR]?)(\"\"\"|''')",
                "end": r"\2",
                "beginCaptures": marks,
                "endCaptures": {"0": {"name": "punctuation.definition.string.python"}},
                "contentName": "meta.embedded.block.tile",
                "patterns": [{"include": "source.tile"}],
            }
        ],
    }


GRAMMARS = {"tile.tmLanguage.json": grammar, "tile-in-python.tmLanguage.json": inside_python}


def text(name: str) -> str:
    """What the file of that name should hold."""
    return json.dumps(GRAMMARS[name](), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for name in GRAMMARS:
        (FOLDER / name).write_text(text(name), encoding="utf-8")
