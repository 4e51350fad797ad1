"""Texts that are read piece by piece: the same findings as of the whole, and only what changed is read."""

from itertools import islice
from pathlib import Path

import pytest
from tile_ir.diagnostics import Diagnostic, Source, TileError
from tile_lang import parse
from tile_lang.ast import Function
from tile_lang.examples import TUTORIAL
from tile_lang.mutations import mutants
from tile_lang.pieces import Reader

ERRORS = sorted((Path(__file__).parent / "errors").glob("*.tile"))


def whole(text: str) -> tuple[Function | None, list[Diagnostic]]:
    """What the parser says of the text."""
    try:
        return parse(text), []
    except TileError as error:
        return None, list(error.diagnostics)


def same(reader: Reader, text: str) -> None:
    """The pieces say it, too, and put it at the same places."""
    function, expected = whole(text)
    found = reader.read(Source(text))
    assert list(found.diagnostics) == expected, text
    assert "".join(p.piece.text for p in found.pieces) == text
    if function is not None:
        assert found.function == function
        assert [found.place(s.span) for s in found.function.statements] == [s.span for s in function.statements]


@pytest.mark.parametrize("path", ERRORS, ids=lambda p: p.stem)
def test_every_mistake_is_found_piece_by_piece(path: Path) -> None:
    same(Reader(), path.read_text())


def test_mutated_texts_are_told_the_same() -> None:
    reader = Reader()
    for mutant in islice(mutants(7), 500):
        same(reader, mutant.text)


def test_only_what_changed_is_read_again() -> None:
    text = max((e.source for e in TUTORIAL), key=len)
    reader = Reader()
    before = reader.read(Source(text))
    place = text.rindex(";")
    after = reader.read(Source(text[:place] + " + 1" + text[place:]))
    fresh = {id(p.piece) for p in after.pieces} - {id(p.piece) for p in before.pieces}
    assert len(fresh) == 1


def test_equal_statements_have_places_of_their_own() -> None:
    text = "function (A) -> (B) { B = A; B = A; }"
    pieces = Reader().read(Source(text))
    assert pieces.function is not None
    assert [pieces.place(s.span).start for s in pieces.function.statements] == [22, 29]
