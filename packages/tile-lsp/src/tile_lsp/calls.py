"""The call that is being written at a place: what the function takes, and which argument is in hand."""

from __future__ import annotations

from dataclasses import dataclass

from tile_lang.lexer import Token
from tile_lang.reference import BUILTINS

from tile_lsp.document import Analysis
from tile_lsp.outline import defined_functions


@dataclass(frozen=True, slots=True)
class Signature:
    """``clamp(x, low, high)``, where its parameters stand in that, the number of the one in hand, and what the function gives."""

    label: str
    parameters: tuple[tuple[int, int], ...]
    active: int
    says: str = ""


def signature(analysis: Analysis, offset: int) -> Signature | None:
    """The innermost call around a place; None where there is none of a known function."""
    placed = next((p for p in reversed(analysis.pieced.pieces) if p.start < offset), None)
    if placed is None:
        return None
    tokens = [t for t in placed.piece.lexed.tokens[:-1] if t.start + placed.start < offset]
    calls: list[tuple[str, int]] = []
    for before, token in zip([None, *tokens], tokens, strict=False):
        _step(calls, before, token)
    name, commas = next(((n, c) for n, c in reversed(calls) if n), ("", 0))
    found = _written(analysis, name)
    return None if found is None else _signature(*found, commas)


def _step(calls: list[tuple[str, int]], before: Token | None, token: Token) -> None:
    """One more token: brackets that open are calls where a name stands before them."""
    if token.kind in ("LPAR", "LSQB", "LDSQB"):
        called = token.kind == "LPAR" and before is not None and before.kind in ("ID", "IDX")
        calls.append((before.text if called and before is not None else "", 0))
    elif token.kind in ("RPAR", "RSQB", "RDSQB") and calls:
        calls.pop()
    elif token.kind == "COMMA" and calls:
        calls[-1] = (calls[-1][0], calls[-1][1] + 1)


def _written(analysis: Analysis, name: str) -> tuple[str, str] | None:
    """How a function is called, and what it gives."""
    own = next((f for f in defined_functions(analysis.names) if f.name == name), None)
    if own is not None:
        header = analysis.pieced.pieces[own.piece].piece.header
        inputs = ", ".join(i.span.text for i in header.inputs) if header else "…"
        return f"{name}({inputs})", ""
    entry = BUILTINS.get("assert_" if name.startswith("assert_") else name)
    return None if entry is None else (entry.call, entry.says)


def _signature(label: str, says: str, commas: int) -> Signature:
    start, end = label.index("(") + 1, label.rindex(")")
    places: list[tuple[int, int]] = []
    depth = first = 0
    for at in range(start, end + 1):
        depth += (label[at] == "[") - (label[at] == "]")
        if at == end or (label[at] == "," and depth == 0):
            begin = start if not places else first
            places.append((begin, at))
            first = at + 2
    many = label[start:end].endswith("…")  # the last one stands for any number
    return Signature(label, tuple(places), min(commas, len(places) - 1) if many else commas, says)
