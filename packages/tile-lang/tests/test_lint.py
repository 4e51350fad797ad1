"""Warnings about what is probably not meant, and none about what is."""

from __future__ import annotations

import pytest
from tile_ir.diagnostics import Severity
from tile_lang import lint, parse
from tile_lang.codes import CODES
from tile_lang.examples import TUTORIAL


@pytest.mark.parametrize(
    ("statement", "index"),
    [
        ("O[i : N] = +(A[i + j]);", "j"),
        ("O[i : N] = >(A[2*i - k]), i < 4;", "k"),
        ("O[i : N] = +(A[i + j] * B[k + i]), k < 3;", "j"),
        ("O[i + j : N] = >(A[i]);", "j"),
        ("O[i : N] = +(A[i]), i + j < 5;", "j"),
        ("O[i : N] = +(A[i + j]), j < 3;", None),
        ("O[i : N] = +(A[i + j] * B[j]);", None),
        ("O[i + j : N] = +(A[i] * B[j]);", None),
        ("O[] = +(A[i]);", None),
        ("O[2*i : N] = +(A[i / 2]);", None),
        ("O[i : N] = +(A[clamp(i + k - 1)]), k < 3;", None),
    ],
)
def test_an_index_that_takes_every_value_is_pointed_out(statement: str, index: str | None) -> None:
    found = lint(parse(f"function (A[N], B[M]) -> (O) {{ {statement} }}"))
    assert [d.span.text for d in found if d.span] == ([index] if index else [])
    assert all(d.severity is Severity.WARNING and d.code in CODES for d in found)


def test_functions_that_nobody_calls() -> None:
    text = "function f(X) -> (Y) { Y = half(X); } function half(X) -> (Y) { Y = X / 2; } function (A) -> (O) { O = A; }"
    (found,) = lint(parse(text))
    assert (found.code, found.span and found.span.text) == ("TILE-W151", "f")


def test_of_the_tutorial_the_pool_without_a_window_is_pointed_out() -> None:
    (source,) = {e.source for e in TUTORIAL if lint(parse(e.source))}
    assert "O[i: N / 2] = >(I[2 * i + j]);" in source
