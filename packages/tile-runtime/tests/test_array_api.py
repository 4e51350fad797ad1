"""`tile_runtime.numpy` has what the array API names, with its parameters, but for what is listed with a reason."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import tile_runtime as tile
from tile_runtime import numpy as tnp
from tile_runtime.numpy.standard import DIFFERENT, EXTENSIONS, FUNCTIONS, NAMES, REFUSED

PAGE = Path(__file__).parents[3] / "docs" / "array-api.md"


def _agrees(name: str) -> bool:
    """Whether calls by the standard work: parameters by place stand first, in its order, and all others have its names."""
    by_place, _, by_name = (part.split(", ") for part in FUNCTIONS[name].partition(" | "))
    given = inspect.signature(getattr(tnp, name)).parameters.values()
    placed = [p.name for p in given if p.kind is not p.KEYWORD_ONLY]
    named = {p.name for p in given if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)}
    return placed[: len(by_place)] == by_place and {n for n in by_name if n} <= named


def test_every_name_of_the_standard_is_there_or_refused() -> None:
    assert {n for n in (*FUNCTIONS, *NAMES) if not hasattr(tnp, n)} == set(REFUSED)
    assert [n for n in EXTENSIONS if hasattr(tnp, n)] == ["linalg"]
    assert {n for n in FUNCTIONS if hasattr(tnp, n)} <= set(tnp.__all__)


def test_parameters_are_those_of_the_standard_but_for_the_listed() -> None:
    there = [n for n in FUNCTIONS if n not in REFUSED]
    assert {n for n in there if not _agrees(n)} == set(DIFFERENT)


def test_the_page_lists_all() -> None:
    text = PAGE.read_text()
    for name, reason in {**REFUSED, **EXTENSIONS, **DIFFERENT}.items():
        assert f"| `{name}` | {reason} |" in text, name


X = np.array([[3, -1, 4], [1, -5, 9]], np.float32)
SIGNS = np.array([-0.0, 0.0, -2], np.float32)


def _functions(x: Any) -> tuple[Any, ...]:
    return (
        tnp.diff(x),
        tnp.diff(x, axis=0, n=1, prepend=tnp.zeros((1, 3))),
        tnp.diff(x, n=2, append=x),
        tnp.count_nonzero(x > 0, axis=1),
        tnp.copysign(x, SIGNS),
        tnp.isin(x, np.array([4, 1, np.nan, -7], np.float32)),
        tnp.isin(x, np.zeros(0, np.float32), invert=True),
        tnp.cumulative_sum(x, axis=1, include_initial=True),
        tnp.cumulative_prod(x, axis=-2, include_initial=True),
    )


EXPECTED = (
    np.diff(X),
    np.diff(X, axis=0, prepend=np.zeros((1, 3), np.float32)),
    np.diff(X, n=2, append=X),
    np.count_nonzero(X > 0, axis=1),
    np.copysign(X, SIGNS),
    np.isin(X, [4, 1, -7]),
    np.ones_like(X, bool),
    np.hstack([np.zeros((2, 1)), np.cumsum(X, 1)]),
    np.vstack([np.ones((1, 3)), np.cumprod(X, 0)]),
)


def test_differences_counts_and_members() -> None:
    for got, want in zip(_functions(tile.asarray(X)), EXPECTED, strict=True):
        np.testing.assert_array_equal(np.asarray(got), want)
    assert tnp.broadcast_shapes((3, 1), (4,)) == (3, 4)
