"""Colours for Tile text: a Pygments lexer, found by the name `tile` and for files that end in `.tile`.

Needs Pygments, which finds it by its entry point; nothing else imports this module.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar

from pygments.lexer import RegexLexer, bygroups, words  # pyright: ignore[reportUnknownVariableType] - has no annotations
from pygments.token import Comment, Error, Keyword, Name, Number, Operator, Punctuation, Whitespace

from tile_lang.builtins import BUILTINS
from tile_lang.lexer import CONSTANTS, KEYWORDS

_NAME = r"[A-Za-z][A-Za-z0-9_]*'?"
_RESERVED = tuple(word for word, kind in KEYWORDS.items() if kind == "RESERVED")
_SPOKEN = tuple(word for word, kind in KEYWORDS.items() if kind != "RESERVED")


class TileLexer(RegexLexer):
    """Functions of Tile: keywords, builtins, aggregations, indexes and tensors."""

    name = "Tile"
    aliases: ClassVar[Sequence[str]] = ["tile"]
    filenames: ClassVar[Sequence[str]] = ["*.tile"]
    flags = re.MULTILINE
    tokens: ClassVar[dict[str, list[Any]]] = {
        "root": [
            (r"\s+", Whitespace),
            (r"//[^\n]*", Comment.Single),
            (r"(=)(\s*)([+*<>=])(?=\s*\()", bygroups(Operator, Whitespace, Keyword.Type)),
            (words(_SPOKEN, prefix=r"\b", suffix=r"\b"), Keyword),
            (words(_RESERVED, prefix=r"\b", suffix=r"\b"), Keyword.Reserved),
            (words(tuple(CONSTANTS), prefix=r"\b", suffix=r"\b"), Number),
            (words(tuple(sorted(BUILTINS, key=len, reverse=True)), prefix=r"\b", suffix=r"\b(?=\s*\()"), Name.Builtin),
            (r"0[xXbBoO][0-9A-Fa-f]+", Number.Hex),
            (r"[0-9]+(?:\.[0-9]+)?[eE][+-]?[0-9]+|[0-9]+\.[0-9]+", Number.Float),
            (r"[0-9]+(?:_[0-9]+)*", Number.Integer),
            (rf"[#$]{_NAME}", Name),
            (r"[A-Z][A-Za-z0-9_]*'?", Name.Class),
            (_NAME, Name.Variable),
            (r"->|==|!=|<=|>=|<<|>>|[-+*/=<>&|^~?]", Operator),
            (r"\[\[|\]\]|[\[\](){},:;.]", Punctuation),
            (r".", Error),
        ],
    }
