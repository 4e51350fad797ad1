"""What a text is made of: functions with their inputs and tensors, and the kind of every token."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tile_lang.builtins import BUILTINS
from tile_lang.lexer import CONSTANTS, KEYWORDS, Token
from tile_lang.pieces import Kind, Placed

from tile_lsp.document import Analysis
from tile_lsp.names import Names, Occurrence, Role


@dataclass(slots=True)
class Symbol:
    """A function, an input or a tensor; characters [start, end) are all of it, `name` is where it is called so."""

    name: str
    role: Role
    start: int
    end: int
    name_start: int
    name_end: int
    detail: str = ""
    children: list[Symbol] = field(default_factory=list["Symbol"])


def symbols(analysis: Analysis) -> list[Symbol]:
    """The functions of a text, each with what it defines."""
    functions: list[Symbol] = []
    defined: dict[int, list[Occurrence]] = {}
    for one in analysis.names.all:
        if one.defines:
            defined.setdefault(one.piece, []).append(one)
    for number, placed in enumerate(analysis.pieced.pieces):
        own = defined.get(number, [])
        end = placed.start + placed.piece.length
        if placed.piece.kind is Kind.HEADER and len(placed.piece.lexed.tokens) > 1:
            functions.append(_function(placed, own))
        elif functions:
            functions[-1].end = end
        if functions:
            functions[-1].children += [
                _symbol(analysis, o, placed, end) for o in own if o.role in (Role.INPUT, Role.TENSOR)
            ]
    return functions


def _function(placed: Placed, own: list[Occurrence]) -> Symbol:
    first = placed.piece.lexed.tokens[0]
    start, end = placed.start + first.start, placed.start + placed.piece.length
    name = next((o for o in own if o.role is Role.FUNCTION), None)
    if name is None:
        return Symbol("function", Role.FUNCTION, start, end, start, placed.start + first.end)
    return Symbol(name.name, Role.FUNCTION, start, end, name.start, name.end)


def _symbol(analysis: Analysis, one: Occurrence, placed: Placed, end: int) -> Symbol:
    first = placed.start + placed.piece.lexed.tokens[0].start
    start, stop = (one.start, one.end) if one.role is Role.INPUT else (first, end)
    return Symbol(one.name, one.role, start, stop, one.start, one.end, shape(analysis, one) or "")


def shape(analysis: Analysis, one: Occurrence) -> str | None:
    """What a tensor, an input or a size is: ``[N, 1]``."""
    known = analysis.known.get(analysis.names.functions.get(one.function))
    return known.describe(one.name) if known else None


def hints(analysis: Analysis) -> list[tuple[int, str]]:
    """Shapes that the text does not show, each with the place behind the name that it belongs to."""
    found: list[tuple[int, str]] = []
    for one in analysis.names.all:
        if one.defines and one.role is Role.TENSOR and analysis.text[one.end : one.end + 1] != "[":
            known = shape(analysis, one)
            if known is not None and "[" in known:
                found.append((one.end, known))
    return found


# --- tokens --------------------------------------------------------------------------------------

TYPES = (
    "keyword",
    "function",
    "parameter",
    "variable",
    "typeParameter",
    "property",
    "number",
    "operator",
    "comment",
    "decorator",
)
MODIFIERS = ("declaration", "defaultLibrary")
_OF_ROLE = {
    Role.INPUT: "parameter", Role.TENSOR: "variable", Role.SIZE: "typeParameter", Role.INDEX: "property",
    Role.FUNCTION: "function", Role.BORDER: "keyword", Role.ATTRIBUTE: "decorator",
}  # fmt: skip
_PUNCTUATION = {"LPAR", "RPAR", "LSQB", "RSQB", "LDSQB", "RDSQB", "LBRACE", "RBRACE", "COMMA", "COLON", "SEMI", "DOT"}


@dataclass(frozen=True, slots=True)
class Coloured:
    """Characters [start, end) of a text, and the positions of their kind in `TYPES` and `MODIFIERS`."""

    start: int
    end: int
    kind: int
    modifiers: int = 0


def colours(analysis: Analysis) -> list[Coloured]:
    """The kind of every token and comment, in order."""
    names = {o.start: o for o in analysis.names.all}
    local = {o.name for o in analysis.names.all if o.role is Role.FUNCTION and o.defines}
    found: list[Coloured] = []
    for placed in analysis.pieced.pieces:
        for token in placed.piece.lexed.tokens[:-1]:
            coloured = _coloured(token, placed.start, names, local)
            if coloured is not None:
                found.append(coloured)
        found += (
            Coloured(placed.start + c.start, placed.start + c.end, TYPES.index("comment"))
            for c in placed.piece.lexed.comments
        )
    return sorted((c for c in found if c.end <= len(analysis.text)), key=lambda c: c.start)


def _coloured(token: Token, shift: int, names: dict[int, Occurrence], local: set[str]) -> Coloured | None:
    start, end = token.start + shift, token.end + shift
    one = names.get(start)
    if one is not None:
        builtin = one.role is Role.FUNCTION and one.name in BUILTINS and one.name not in local
        return Coloured(start, end, TYPES.index(_OF_ROLE[one.role]), one.defines | builtin << 1)
    kind = _kind(token)
    return None if kind is None else Coloured(start, end, TYPES.index(kind))


def _kind(token: Token) -> str | None:
    if token.kind in ("INT", "FLOAT") or token.text in CONSTANTS:
        return "number"
    if token.text in KEYWORDS:
        return "keyword"
    return None if token.kind in _PUNCTUATION else "operator"


def defined_functions(names: Names) -> Iterator[Occurrence]:
    """The functions that a text defines."""
    return (o for o in names.all if o.role is Role.FUNCTION and o.defines)
