"""Colours of Tile text."""

from __future__ import annotations

import pytest

pytest.importorskip("pygments")

from pygments.token import Error, Keyword, Name
from tile_lang.builtins import BUILTINS
from tile_lang.examples import TUTORIAL, Example
from tile_lang.highlighting import TileLexer


@pytest.mark.parametrize("example", TUTORIAL, ids=lambda e: e.name)
def test_every_example_has_colours_and_loses_nothing(example: Example) -> None:
    tokens = list(TileLexer(ensurenl=False, stripnl=False).get_tokens(example.source))
    assert "".join(value for _, value in tokens) == example.source
    assert Error not in {kind for kind, _ in tokens}


def kinds(text: str) -> dict[str, object]:
    return {value: kind for kind, value in TileLexer().get_tokens(text)}


def test_words_have_the_colours_of_what_they_are() -> None:
    found = kinds("function (A[N]) -> (B) { S[] = +(A[i]); B = exp(A - S); }")
    assert found["function"] is Keyword
    assert found["exp"] is Name.Builtin
    assert found["i"] is Name.Variable
    assert found["A"] is Name.Class
    assert kinds("S[] = >(A[i]);")[">"] is Keyword.Type


def test_every_builtin_is_known() -> None:
    assert all(kinds(f"B = {name}(A);")[name] is Name.Builtin for name in BUILTINS)
