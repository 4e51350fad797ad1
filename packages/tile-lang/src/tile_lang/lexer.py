"""Tokens of Tile text, for the parser and the formatter: comments are kept aside, nothing is dropped silently.

A spelling that other languages have and Tile has not (``&&``, ``.5``, ``_x``) becomes one diagnostic and the
token that was probably meant, so that the parser goes on without a second error.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from tile_ir.diagnostics import Diagnostic, Source, Span

from tile_lang.limits import Limits


class Token(NamedTuple):
    """A terminal of tile.lark; `text` is the name without its ``#`` or ``$`` for an escaped name."""

    kind: str
    text: str
    start: int
    end: int


KEYWORDS = {
    "function": "FUNCTION",
    "default": "DEFAULT",
    "no_defract": "NO_DEFRACT",
    "polynomial": "RESERVED",
    "expression": "RESERVED",
    "contraction": "RESERVED",
}

PUNCTUATION = {
    "(": "LPAR", ")": "RPAR", "[": "LSQB", "]": "RSQB", "[[": "LDSQB", "]]": "RDSQB", "{": "LBRACE", "}": "RBRACE",
    ",": "COMMA", ":": "COLON", ";": "SEMI", "?": "QUESTION", "->": "ARROW", ".": "DOT",
    "=": "EQUAL", "==": "EQEQ", "!=": "NE", "<": "LT", ">": "GT", "<=": "LE", ">=": "GE", "<<": "SHL", ">>": "SHR",
    "+": "PLUS", "-": "MINUS", "*": "STAR", "/": "SLASH", "&": "AMP", "|": "BAR", "^": "CARET", "~": "TILDE",
}  # fmt: skip

CONSTANTS = frozenset({"inf", "nan"})
"""Words that are numbers where an expression stands; inside an index formula they name indexes like any other word."""

_NAME = r"[A-Za-z][A-Za-z0-9_]*'?"
_MASTER = re.compile(
    r"[ \t\r\n]*+(?:"
    r"(?P<comment>//[^\n]*)"
    r"|(?P<hex>0[xXbBoO][0-9A-Fa-f]+(?![0-9A-Za-z_']))"
    r"|(?P<grouped>[0-9]+(?:_[0-9]+)+)"
    r"|(?P<FLOAT>[0-9]+(?:\.[0-9]+)+[eE][+-]?[0-9]+|[0-9]+\.?[eE][+-]?[0-9]+|[0-9]+\.[0-9]+)"
    r"|(?P<bare_point>[0-9]+\.(?!\.)|\.[0-9]+(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<INT>[0-9]+)"
    rf"|(?P<escaped>[#$]{_NAME})"
    r"|(?P<hash_comment>#[^\n]*)"
    rf"|(?P<name>{_NAME})"
    r"|(?P<block_comment>/\*(?:[^*]|\*(?!/))*(?:\*/)?)"
    r"|(?P<foreign>@|&&|\|\||\*\*|(?:[+\-*/]|<<|>>)=(?!=)|:=|\+\+(?=;)|%|!(?!=))"
    r"|(?P<punct>\[\[|\]\]|->|==|!=|<=|>=|<<|>>|[-.*/+=<>\[\](){},&|^~:;?])"
    r"|(?P<underscore>_[A-Za-z0-9_]*)"
    r"|(?P<string>\"[^\"\n]*\"?)"
    r"|(?P<unknown>.))",
    re.DOTALL,
)

_FOREIGN = {
    "&&": ("&", "use '&' on boolean tensors"),
    "||": ("|", "use '|' on boolean tensors"),
    "**": ("*", "write pow(A, B)"),
    "@": ("*", "a matrix product is a statement of its own: C[i, j : M, N] = +(A[i, k] * B[k, j]);"),
    "%": ("/", "write mod(A, B), which has the sign of B, or fmod(A, B), which has that of A"),
    "!": ("~", "write 'A == 0', or '~A' for boolean tensors"),
    ":=": ("=", "write '='"),
}
_BASES = {"x": 16, "o": 8, "b": 2}
_REASSIGN = "tensors are assigned once: write 'B = A + C;' with a new name, or 'O[i : N] = +(A[i]);' for a sum"
BYTE_ORDER_MARK = "\ufeff"
_MARK_AT_START = "some editors begin files with it; read such a file with encoding='utf-8-sig'"


@dataclass(slots=True)
class Lexed:
    """All tokens (the last is ``$END``), the comments beside them, and what was wrong with the characters."""

    source: Source
    tokens: list[Token]
    comments: list[Token]
    diagnostics: list[Diagnostic]

    def lexical_error_at(self, start: int, end: int) -> bool:
        """True when a reported character lies in [start, end)."""
        starts = [d.span.start for d in self.diagnostics if d.span]
        return bisect_left(starts, start) < bisect_left(starts, end)


def lex(source: Source) -> Lexed:
    """Split a text into tokens; never raises."""
    lexed = Lexed(source, [], [], [])
    tokens, attribute = lexed.tokens, False
    for match in _MASTER.finditer(source.text):
        kind = match.lastgroup or ""
        text, (start, end) = match[kind], match.span(kind)
        if kind == "name":
            tokens.append(Token(KEYWORDS.get(text) or _name_kind(text), text, start, end))
        elif kind == "punct" and (attribute or text != "]]"):
            tokens.append(Token(PUNCTUATION[text], text, start, end))
            if text in ("[[", "]]"):
                attribute = text == "[["
        elif kind == "punct":
            tokens += [Token("RSQB", "]", start, start + 1), Token("RSQB", "]", start + 1, end)]
        elif kind in ("INT", "FLOAT"):
            tokens.append(_number(lexed, Token(kind, text, start, end)))
        elif kind == "comment":
            lexed.comments.append(Token("COMMENT", text.rstrip(), start, end))
        elif kind == "unknown" and len(lexed.diagnostics) >= MOST_REPORTED:
            continue
        elif kind == "escaped":
            tokens.append(Token("ID" if text[0] == "#" else "IDX", text[1:], start, end))
        else:
            _repair(lexed, kind, Token(kind, text, start, end))
    tokens.append(Token("$END", "", len(source.text), len(source.text)))
    return lexed


def _name_kind(text: str) -> str:
    return "ID" if text[0] <= "Z" else "IDX"


def _number(lexed: Lexed, token: Token) -> Token:
    if token.text.count(".") < 2:
        return token
    _report(lexed, token, "TILE-E009", f"{_quote(token.text)} has more than one decimal point")
    return token._replace(text="1.0")


def _repair(lexed: Lexed, kind: str, token: Token) -> None:
    replacement = _REPAIRS[kind](lexed, token)
    if replacement is not None:
        lexed.tokens.append(replacement)


def _hex(lexed: Lexed, token: Token) -> Token:
    base = _BASES[token.text[1].lower()]
    digits = token.text[2:].lower()
    whole = len(digits) < 28 and all(d in "0123456789abcdef"[:base] for d in digits)
    hint = f"write {int(digits, base)}" if whole else "write it in decimal digits"
    _report(lexed, token, "TILE-E009", f"{_quote(token.text)} is not a Tile number: numbers are decimal", hint)
    return token._replace(kind="INT", text="1")


def _grouped(lexed: Lexed, token: Token) -> Token:
    plain = token.text.replace("_", "")
    _report(lexed, token, "TILE-E009", f"{_quote(token.text)} is not a Tile number", f"write {_short(plain)}")
    return token._replace(kind="INT", text=plain)


def _bare_point(lexed: Lexed, token: Token) -> Token:
    text = token.text
    fixed = "0" + text if text[0] == "." else text + "0"
    _report(
        lexed, token, "TILE-E009", f"{_quote(text)} needs digits on both sides of the point", f"write {_short(fixed)}"
    )
    return token._replace(kind="FLOAT", text=fixed)


def _foreign(lexed: Lexed, token: Token) -> Token:
    text = token.text
    meant, hint = _FOREIGN.get(text, ("=", _REASSIGN))
    _report(lexed, token, "TILE-E008", f"Tile has no operator {_quote(text)}", hint)
    return token._replace(kind=PUNCTUATION[meant], text=meant)


def _underscore(lexed: Lexed, token: Token) -> Token:
    kind = _name_kind(token.text.lstrip("_")[:1] or "X")
    shown = "X" if kind == "ID" else "x"
    hint = f"put a letter in front, as in '{shown}{_short(token.text)}'"
    _report(lexed, token, "TILE-E002", "a name cannot start with an underscore", hint)
    return token._replace(kind=kind)


def _block_comment(lexed: Lexed, token: Token) -> None:
    _report(
        lexed,
        token._replace(end=token.start + 2),
        "TILE-E002",
        "Tile has no /* */ comments",
        "start each line of the comment with //",
    )


def _hash_comment(lexed: Lexed, token: Token) -> None:
    shown = token._replace(end=token.start + 1)
    _report(lexed, shown, "TILE-E002", "comments of Tile do not start with #", "start the comment with //")


def _string(lexed: Lexed, token: Token) -> Token:
    named = _DTYPE.fullmatch(token.text[1:-1])
    hint = None if named is None else f"write as_{named['kind']}(X, {named['bits']})"
    _report(lexed, token, "TILE-E002", "Tile has no strings", hint)
    return token._replace(kind="ID")


_DTYPE = re.compile(r"(?P<kind>u?int|b?float)(?P<bits>8|16|32|64)")
"""A dtype as NumPy and others call it in a string."""


def _unknown(lexed: Lexed, token: Token) -> None:
    name = _quote(token.text) if token.text.isprintable() else f"U+{ord(token.text):04X}"
    if token.text == BYTE_ORDER_MARK:
        name += " (a byte-order mark)"
        hint = _MARK_AT_START if token.start == 0 else "remove it; editors do not show it"
    elif token.text == "\0":
        hint = "the text is binary, or is encoded as UTF-16"
    else:
        hint = "Tile text is ASCII outside comments" if ord(token.text) > 126 else None
    _report(lexed, token, "TILE-E002", f"the character {name} is not part of Tile", hint)


_REPAIRS: dict[str, Callable[[Lexed, Token], Token | None]] = {
    "hex": _hex,
    "grouped": _grouped,
    "bare_point": _bare_point,
    "foreign": _foreign,
    "underscore": _underscore,
    "block_comment": _block_comment,
    "hash_comment": _hash_comment,
    "string": _string,
    "unknown": _unknown,
}


MOST_REPORTED = 1_000
"""Bad characters of one text that are reported; nobody reads so many."""


def _report(lexed: Lexed, token: Token, code: str, message: str, hint: str | None = None) -> None:
    if len(lexed.diagnostics) < MOST_REPORTED:
        lexed.diagnostics.append(Diagnostic(code, message, Span(lexed.source, token.start, token.end), hint))


def _quote(text: str) -> str:
    return f"'{_short(text)}'"


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:20] + "…" + text[-10:]


# --- limits ----------------------------------------------------------------------------------------------------

_OPEN = {"LPAR", "LSQB", "LDSQB", "LBRACE"}
_CLOSE = {"RPAR", "RSQB", "RDSQB", "RBRACE"}
_NAMES = {"ID", "IDX"}
_PLAIN = frozenset(PUNCTUATION.values()) - _OPEN - _CLOSE - {"COMMA", "SEMI", "QUESTION", "MINUS", "TILDE"}
"""What changes no depth."""
_OPERAND_END = {"ID", "IDX", "INT", "FLOAT", "RPAR", "RSQB"}


def check_limits(lexed: Lexed, limits: Limits) -> None:
    """Raise TileLimitError for too long names or numbers and for too deep nesting; one pass, no recursion."""
    questions = [0]
    prefixes = 0
    previous = ""
    for token in lexed.tokens:
        kind = token.kind
        if kind in _PLAIN or (kind in _NAMES and len(token.text) <= limits.max_name_length):  # most are
            prefixes, previous = 0, kind
            continue
        prefixes = prefixes + 1 if kind in ("MINUS", "TILDE") and previous not in _OPERAND_END else 0
        if kind in _OPEN:
            questions.append(questions[-1])
        elif kind in _CLOSE and len(questions) > 1:
            questions.pop()
        elif kind == "QUESTION":
            questions[-1] += 1
        elif kind in ("COMMA", "SEMI") and len(questions) > 1:
            questions[-1] = questions[-2]
        elif kind in ("INT", "FLOAT") and token.end - token.start > limits.max_literal_digits:
            limits.check("max_literal_digits", token.end - token.start, _token_span(lexed, token))
        elif kind in _NAMES:
            limits.check("max_name_length", len(token.text), _token_span(lexed, token))
        # The braces of the function are no nesting of expressions.
        depth = len(questions) - 2 + questions[-1] + prefixes
        if depth > limits.max_nesting:
            limits.check("max_nesting", depth, _token_span(lexed, token))
        previous = kind


def _token_span(lexed: Lexed, token: Token) -> Span:
    return Span(lexed.source, token.start, token.end)
