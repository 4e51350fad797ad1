"""Images between products lie with their channels last: the same sums, and what others see stays as it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from tensor_support import bound
from tile_ir.dtype import DType
from tile_ir.program.nodes import Program
from tile_ir.stripe import interpret
from tile_opt.program import ChannelsLast
from tile_opt.translate import to_stripe

BF16 = DType.BFLOAT16
ALWAYS = ChannelsLast(dtypes=frozenset({BF16}), least=0)
SHAPES = {
    "X": (2, 8, 5, 4),
    "K": (16, 8, 3, 3),
    "L": (8, 16, 3, 3),
    "M": (16, 8, 1, 1),
    "B": (16, 1, 1),
    "S": (2, 16, 1, 1),
    "T": (1, 16, 5, 4),
}
WHOLE = SHAPES | {"T": (2, 16, 5, 4)}
EVEN = SHAPES | {"X": (2, 8, 4, 4)}
FIRST = "P[n, o, y, x : N, 16, H, W] = +(X[n, c, y + i - 1, x + j - 1] * K[o, c, i, j]);"
LAST = "R[n, o, y, x : N, 8, H, W] = +(Q[n, c, y + i - 1, x + j - 1] * L[o, c, i, j]);"
BETWEEN = {
    "nothing": "Q = P;",
    "a bias": "Q = relu(P + B);",
    "gates": "Q = P * S;",
    "a whole image": "Q = P + T;",
    "a shortcut": "F[n, o, y, x : N, 16, H, W] = +(X[n, c, y, x] * M[o, c, 0, 0]); Q = relu(P + F + B);",
    "windows of each channel": "F = relu(P + B); Q[n, c, y, x : N, 16, H, W] = +(F[n, c, y + i - 1, x + j - 1] * K[c, 0, i, j]);",
    "a pool": "F = relu(P + B); Q[n, c, y, x : N, 16, H, W] = >(F[n, c, y + i - 1, x + j - 1]), i < 3, j < 3;",
}  # fmt: skip


def program(
    between: str, last: str = LAST, results: str = "R", shapes: Mapping[str, tuple[int, ...]] = SHAPES
) -> Program:
    body = f"function (X[N, C, H, W], K, L, M, B, S, T) -> ({results}) {{ {FIRST} {between} {last} }}"
    return bound(body, BF16, **shapes)


def results(of: Program) -> Mapping[str, np.ndarray]:
    rng = np.random.default_rng(0)  # integers, whose sums are exact
    given = {p.name: rng.integers(-1, 2, p.type.shape).astype(BF16.numpy) for p in of.inputs}
    return interpret.run(to_stripe(of), given)


@pytest.mark.parametrize("between", BETWEEN)
def test_everything_between_products_has_its_channels_last(between: str) -> None:
    given = program(BETWEEN[between])
    after = ALWAYS.apply(given)
    types = after.types()
    images = [n for n, t in given.types().items() if t.shape == (2, 16, 5, 4)]
    assert images and {types[n].shape for n in images} == {(2, 5, 4, 16)}
    assert types["R"].shape == (2, 8, 5, 4)
    np.testing.assert_array_equal(results(after)["R"], results(given)["R"])


@pytest.mark.parametrize("default", ["T", "P"])
def test_defaults_lie_as_results_do(default: str) -> None:
    """Nothing turns one that no call changes: what is made of it stays, too."""
    given = program(
        f"F[n, o, y, x : N, 16, H, W] = +(X[n, c, y, x] * M[o, c, 0, 0]) default {default}; Q = F + P;", shapes=WHOLE
    )
    given = replace(given, inputs=tuple(replace(p, bound=p.name == "T") for p in given.inputs))
    after = ALWAYS.apply(given)
    assert after.types()["F"].shape == {"T": (2, 16, 5, 4), "P": (2, 5, 4, 16)}[default]
    np.testing.assert_array_equal(results(after)["R"], results(given)["R"])


@pytest.mark.parametrize(
    ("given", "rewrite"),
    [
        (program(BETWEEN["a bias"]), ChannelsLast(dtypes=frozenset({BF16}))),
        (program(BETWEEN["a bias"]), ChannelsLast(least=0)),
        (program(BETWEEN["a bias"], results="R, Q"), ALWAYS),
        (program(BETWEEN["a bias"] + "V = reshape(Q, 2, 320); R = V + V;", ""), ALWAYS),
        (program("Q = P;", LAST.replace("y + i - 1, x + j - 1", "y, x").replace("i, j", "0, 0"), shapes=EVEN), ALWAYS),
    ],
    ids=[
        "few products",
        "another dtype",
        "a caller sees it",
        "another shape of it",
        "rows that are copied as they lie",
    ],
)
def test_what_stays(given: Program, rewrite: ChannelsLast) -> None:
    types = given.types()
    assert {n: t.shape for n, t in rewrite.apply(given).types().items() if n in types} == {
        n: t.shape for n, t in types.items()
    }
