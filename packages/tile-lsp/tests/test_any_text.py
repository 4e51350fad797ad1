"""Whatever a text says, every question about every place of it has an answer."""

from __future__ import annotations

from itertools import islice

import pytest
from tile_lang.mutations import Mutant, mutants
from tile_lsp.calls import signature
from tile_lsp.completion import suggestions
from tile_lsp.document import Document
from tile_lsp.edits import formatted, mends
from tile_lsp.hover import hover
from tile_lsp.names import Role
from tile_lsp.outline import colours, hints, symbols
from tile_lsp.renaming import Refused, renamed

TEXTS = [*islice(mutants(5), 48)]


def ask_everything(document: Document) -> None:
    for text in document.texts:
        length = len(text.text)
        assert all(0 <= d.span.start <= d.span.end <= length + 1 for d in text.diagnostics if d.span)
        for one in (*colours(text), *text.names.all):
            assert 0 <= one.start < one.end <= length
        for symbol in symbols(text):
            assert 0 <= symbol.start <= symbol.name_start <= symbol.name_end <= symbol.end <= length
            assert all(
                symbol.start <= c.start <= c.name_start <= c.name_end <= c.end <= symbol.end for c in symbol.children
            )
        for offset in range(0, length + 1, 5):
            found = hover(text, offset)
            assert found is None or (found.text and found.start <= offset <= found.end)
            suggestions(text, offset)
            call = signature(text, offset)
            assert call is None or all(0 < a <= b < len(call.label) for a, b in call.parameters)
        assert all(place <= length for place, _ in hints(text))
        for one in text.names.all:
            assert one in text.names.same(one)
            try:
                renamed(text.names, one, "fresh" if one.role is Role.INDEX else "Fresh")
            except Refused:
                continue
        for diagnostic in text.diagnostics:
            assert all(title and edit.start <= edit.end for title, edit in mends(diagnostic))
        formatted(text.text)


@pytest.mark.parametrize("part", range(2))
def test_mutated_texts(part: int) -> None:
    """As the versions of one document, each after another: what is remembered of one must not disturb the next."""
    document = Document("a.tile")
    for mutant in TEXTS[part::2]:
        document.update(mutant.text)
        ask_everything(document)


@pytest.mark.parametrize("mutant", TEXTS[:4], ids=lambda m: str(m.number))
def test_mutated_texts_in_python(mutant: Mutant) -> None:
    document = Document("a.py")
    document.update(f'f = tile.Function("""{mutant.text}""")\ng = Function("function (A) -> (B) {{ B = A; }}")\n')
    ask_everything(document)
    assert len(document.texts) >= 1
