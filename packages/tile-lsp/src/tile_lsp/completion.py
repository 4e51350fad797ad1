"""What may be written at a place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tile_lang.build import BORDERS
from tile_lang.lexer import KEYWORDS

from tile_lsp.document import Analysis
from tile_lsp.names import Role
from tile_lsp.outline import shape


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A word, what it is (None: of the language), and what to say of it."""

    name: str
    role: Role | None
    detail: str = ""
    says: str = ""


def suggestions(analysis: Analysis, offset: int) -> list[Suggestion]:
    """The words for a place: within brackets indexes, sizes and borders, elsewhere tensors and functions."""
    return list(_in_brackets(analysis, offset) if _depth(analysis, offset) else _outside(analysis, offset))


def _depth(analysis: Analysis, offset: int) -> int:
    """How many square brackets of the statement are open at a place."""
    here = next((p for p in reversed(analysis.pieced.pieces) if p.start < offset), None)
    if here is None:
        return 0
    tokens = [t for t in here.piece.lexed.tokens if t.end + here.start <= offset]
    return sum((t.kind == "LSQB") - (t.kind == "RSQB") for t in tokens)


def _in_brackets(analysis: Analysis, offset: int) -> Iterator[Suggestion]:
    for one in analysis.names.visible(offset):
        if one.role in (Role.INDEX, Role.SIZE, Role.INPUT, Role.TENSOR):
            yield Suggestion(one.name, one.role, shape(analysis, one) or "")
    yield from (_border(name) for name in BORDERS)


def _outside(analysis: Analysis, offset: int) -> Iterator[Suggestion]:
    local: set[str] = set()
    for one in analysis.names.visible(offset):
        if one.role is Role.FUNCTION:
            local.add(one.name)
            yield Suggestion(one.name, one.role, "function of this text")
        elif one.role is not Role.INDEX:
            yield Suggestion(one.name, one.role, shape(analysis, one) or "")
    from tile_lang.reference import BUILTINS

    yield from (Suggestion(n, Role.FUNCTION, e.call, e.says) for n, e in BUILTINS.items() if n not in local)
    yield from (Suggestion(word, None) for word, kind in KEYWORDS.items() if kind != "RESERVED")


def _border(name: str) -> Suggestion:
    from tile_lang.reference import BORDERS as described

    return Suggestion(name, Role.BORDER, described[name].call, described[name].says)
