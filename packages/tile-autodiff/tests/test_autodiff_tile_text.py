"""Gradients as Tile source: the slide's example, and source that binds to the same function."""

from __future__ import annotations

import re

import numpy as np
import pytest
import tile_lang
from autodiff_support import bound, cotangents, spread
from tile_autodiff import gradient, to_tile
from tile_ir.diagnostics import TileTypeError

SLIDE = """function (I[N, H, W, CI], K[KH, KW, CI, CO]) -> (O) {
    O[n, y, x, co: N, H/3, W/3, CO] = +(I[n, 3*y + 2*j, 3*x + 2*i, ci] * K[j, i, ci, co]);
}"""
SLIDE_GRADIENT = """function (DO[N, OH, OW, CO], K[KH, KW, CI, CO]) -> (DI) {
    DI[n, 3*y + 2*j, 3*x + 2*i, ci: N, 3*OH, 3*OW, CI] = +(DO[n, y, x, co] * K[j, i, ci, co]);
}"""


def _sum_of_terms(text: str) -> str:
    """Formulas with their terms in one order."""
    return re.sub(r"(\d\*\w) \+ (\d\*\w)", lambda m: " + ".join(sorted(m.groups())), text)


def test_the_slides_gradient() -> None:
    inputs = {"I": spread(2, 9, 12, 3), "K": spread(2, 2, 3, 4)}
    program = gradient(bound(SLIDE, inputs), ["I"])
    (statement,) = to_tile(program, {"d_O": "DO", "d_I": "DI"}).splitlines()[1:-1]
    sizes = {"N": 2, "3*OH": 9, "3*OW": 12, "CI": 3}
    want = SLIDE_GRADIENT.splitlines()[1].replace("ci: ", "ci : ")
    for name, size in sizes.items():
        want = re.sub(rf"(?<=[:,]) {re.escape(name)}(?=[,\]])", f" {size}", want, count=1)
    assert _sum_of_terms(statement) == _sum_of_terms(want)


def test_the_slides_program_computes_the_gradient() -> None:
    inputs = {"I": spread(2, 9, 12, 3), "K": spread(2, 2, 3, 4)}
    ours = gradient(bound(SLIDE, inputs), ["I"])
    seed = spread(2, 3, 4, 4)
    theirs = bound(SLIDE_GRADIENT, {"DO": seed, "K": inputs["K"]})
    got = tile_lang.evaluate(ours, {**inputs, "d_O": seed})["d_I"]
    np.testing.assert_allclose(
        got, tile_lang.evaluate(theirs, {"DO": seed, "K": inputs["K"]})["DI"], rtol=1e-12, atol=1e-14
    )


@pytest.mark.parametrize(
    ("source", "shapes"),
    [
        ("function (A[N], B[M]) -> (O) { O[i : N / 2] = >(A[2*i + j] * B[j]), j < 2; }", {"A": (7,), "B": (3,)}),
        ("function (A, B) -> (O) { O = sigmoid(A) * pow(B, -2) + (A < B ? abs(A) : -B); }", {"A": (3, 4), "B": (4,)}),
        ("function (A[N], B[M]) -> (O) { O[2*i : M] = +(A[i]) default B; }", {"A": (2,), "B": (5,)}),
        ("function (A, B) -> (O) { O = gather(A, as_int(B, 32)) + reverse_grad(A, 2); }", {"A": (3, 3), "B": (3,)}),
        ("function (A[N], B) -> (O) { O[x : 2 * N] = +(A[(x - 1) / 2]) no_defract; P = B; }", {"A": (3,), "B": (2,)}),
    ],
)
def test_printed_source_means_the_same(source: str, shapes: dict[str, tuple[int, ...]]) -> None:
    inputs = {n: spread(*s) for n, s in shapes.items()}
    program = bound(source, inputs)
    values = {**inputs, **cotangents(program)}
    for one in (program, gradient(program, ["A"]), gradient(program, ["B"])):
        given = {p.name: values[p.name] for p in one.inputs}
        try:
            text = to_tile(one)
        except TileTypeError as problem:
            assert "Scatter" in str(problem) or "body" in str(problem)
            continue
        want = tile_lang.evaluate(one, given)
        got = tile_lang.evaluate(bound(text, given), given)
        for name in want:
            np.testing.assert_array_equal(got[name], want[name], err_msg=text)


def test_what_tile_cannot_say_is_an_error() -> None:
    inputs = {"A": spread(4)}
    with pytest.raises(TileTypeError, match="TILE-E805"):
        to_tile(gradient(bound("function (A[N]) -> (O) { O[] = *(A[i]); }", inputs), ["A"]))


def test_infinities_casts_and_bits_are_written_as_the_language_has_them() -> None:
    inputs = {"A": np.array([1.5, -np.inf, np.nan, 3.0], np.float32)}
    source = "function (A) -> (O) { B = A > -inf ? as_bfloat(A, 16) : inf; O = bits_as_int(as_float(B, 32)) + 1; }"
    program = bound(source, inputs)
    again = bound(to_tile(program), inputs)
    first, second = (tile_lang.evaluate(p, inputs)["O"] for p in (program, again))
    np.testing.assert_array_equal(first, second)
    assert "inf" in to_tile(program) and "as_bfloat" in to_tile(program)
