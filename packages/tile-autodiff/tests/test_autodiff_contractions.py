"""Gradients of contractions against central differences: aggregations, bodies, domains, ties, coverage."""

from __future__ import annotations

import numpy as np
import pytest
import tile_autodiff
import tile_lang
from autodiff_support import Array, Arrays, bound, check, check_source, spread
from tile_ir.diagnostics import TileTypeError

BODIES = {
    "one": "A[2*i + j]",
    "product": "A[2*i + j] * B[j]",
    "sum": "A[2*i + j] + B[j]",
    "twice": "A[i] * A[j]",
    "square": "A[i] * A[i]",
    "conditional": "X[2*i + j] == Y[j] ? C[i]",
    "constant_factor": "A[2*i + j] * Half[]",
    "constant_term": "Half[] + A[2*i + j]",
}
SHAPES = {"A": 9, "B": 3, "C": 4, "D": 4, "X": 9, "Y": 3}


def _inputs(text: str) -> Arrays:
    found = {n: spread(size) for n, size in SHAPES.items() if f"{n}[" in text or f"default {n}" in text}
    if "Y" in found:
        found["Y"][:] = found["X"][[0, 3, 6]]
    return found


def _source(statement: str, inputs: Arrays) -> str:
    header = ", ".join(f"{n}[N{n}]" for n in inputs)
    return f"function ({header}) -> (O) {{ Half = 0.5; {statement} }}"


@pytest.mark.parametrize("default", ["", " default D"])
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("agg", "+*><")
def test_every_aggregation_of_every_body(agg: str, body: str, default: str) -> None:
    statement = f"O[i : 4] = {agg}({BODIES[body]}), j < 3, i < 3{default};"
    inputs = _inputs(statement)
    check_source(_source(statement, inputs), inputs, [n for n in inputs if n not in "XY"])


@pytest.mark.parametrize("body", ["A[2*i + 1]", "A[2*i + 1] * B[i]", "A[2*i + 1] + B[i]", "X[i] == Y[i] ? C[i]"])
def test_assignment(body: str) -> None:
    inputs = _inputs(body) | {"D": spread(9)}
    check_source(_source(f"O[2*i : 9] = =({body}) default D;", inputs), inputs, [n for n in inputs if n not in "XY"])


def test_equality_bodies_have_no_gradient() -> None:
    inputs = {"A": spread(4), "B": spread(4)}
    result = check_source("function (A[N], B[N]) -> (O) { O[] = +(A[i] == B[j]); }", inputs)
    assert not result["d_A"].any()


@pytest.mark.parametrize(
    ("statement", "shape"),
    [
        ("O[i : 5] = +(A[i + j - 1]), j < 3;", (5,)),
        ("O[i : 5] = +(A[i - 2*j]), j < 3 no_defract;", (5,)),
        ("O[x : 6] = +(A[(x - 1) / 2]);", (3,)),
        ("O[3*i + j : 12] = >(A[i, j]), j < 3;", (4, 4)),
        ("O[i, j : 4, 4] = +(A[i + j]), i - j < 2;", (6,)),
        ("O[] = *(A[i, i]);", (4, 4)),
        ("O[i : 3] = +(A[i]), r + 2 < 4;", (5,)),
        ("O[i : 0] = +(A[i]);", (3,)),
        ("O[i : 4] = >(A[j]), i - j < 2, i < 2;", (4,)),
        ("O[i, j, k : 2, 3, 4] = +(A[k, j]);", (4, 3)),
        ("O[j, i : 3, 4] = +(A[i, j]);", (4, 3)),
        ("O[i : 4] = +(A[i, j, k]);", (4, 1, 3)),
        ("O[i : 2] = +(A[i, j]);", (4, 3)),
        ("O[] = +(A[i, j]), i < 2;", (4, 3)),
    ],
)
def test_domains(statement: str, shape: tuple[int, ...]) -> None:
    header = ", ".join(f"N{k}" for k in range(len(shape)))
    check_source(f"function (A[{header}]) -> (O) {{ {statement} }}", {"A": spread(*shape)})


def test_sums_over_axes_become_broadcasts() -> None:
    program = bound("function (A[N, M]) -> (O) { O[j : M] = +(A[i, j]); }", {"A": spread(3, 4)})
    text = tile_lang.print_program(tile_autodiff.gradient(program, ["A"]))
    assert "over [" not in text
    check(program, {"A": spread(3, 4)})


def _gradient(source: str, seed: Array | None = None, **inputs: Array) -> Array:
    program = bound(source, inputs)
    types = program.types()[program.outputs[0][1]]
    weights = {"d_O": np.ones(types.shape, types.dtype.numpy) if seed is None else seed}
    gradient = tile_autodiff.gradient(program, [next(iter(inputs))])
    return next(iter(tile_lang.evaluate(gradient, {**inputs, **weights}).values()))


def test_ties_share_the_gradient_equally() -> None:
    a = np.array([2.0, 5.0, 5.0, 5.0, 1.0])
    got = _gradient("function (A[N]) -> (O) { O[] = >(A[i]); }", A=a)
    np.testing.assert_array_equal(got, [0, 1 / 3, 1 / 3, 1 / 3, 0])


def test_ties_are_counted_within_the_constraints() -> None:
    a = np.array([5.0, 5.0, 5.0, 5.0])
    got = _gradient("function (A[N]) -> (O) { O[i : 2] = >(A[2*i + j]), j < 1; }", A=a)
    np.testing.assert_array_equal(got, [1, 0, 1, 0])


def test_a_repeated_winner_shares_with_itself() -> None:
    got = _gradient("function (A[N]) -> (O) { O[] = >(A[i]), r < 4; }", A=np.array([1.0, 3.0]))
    np.testing.assert_array_equal(got, [0, 1])


@pytest.mark.parametrize("agg", "><")
def test_a_nan_maximum_passes_no_gradient(agg: str) -> None:
    a = np.array([[1.0, np.nan, 2.0], [4.0, 3.0, 3.5]])
    got = _gradient(f"function (A[N, M]) -> (O) {{ O[i : N] = {agg}(A[i, j]); }}", A=a)
    assert not got[0].any() and got[1].sum() == 1


def test_default_receives_only_uncovered_cells() -> None:
    source = "function (D[M], A[N]) -> (O) { O[2*i : 5] = +(A[i]) default D; }"
    got = _gradient(source, np.arange(1.0, 6.0), D=np.ones(5), A=np.ones(2))
    np.testing.assert_array_equal(got, [0, 2, 0, 4, 5])


@pytest.mark.parametrize("zeros", [(), (1,), (1, 3), (0, 1, 3), (0, 1, 2, 3)])
def test_products_with_zeros_are_exact(zeros: tuple[int, ...]) -> None:
    a = np.array([2.0, -3.0, 0.5, 7.0])
    a[list(zeros)] = 0
    got = _gradient("function (A[N]) -> (O) { O[] = *(A[i]); }", A=a)
    np.testing.assert_array_equal(got, [np.prod(np.delete(a, k)) for k in range(4)])


@pytest.mark.parametrize("zeros", [(), (1,), (1, 3), (0, 1, 3)])
def test_second_derivatives_of_products_with_zeros(zeros: tuple[int, ...]) -> None:
    a = np.array([2.0, -3.0, 0.5, 7.0])
    a[list(zeros)] = 0
    program = bound("function (A[N]) -> (O) { O[] = *(A[i]); }", {"A": a})
    hvp = tile_autodiff.hessian_vector_product(program, ["A"])
    t = np.array([1.0, 10.0, 100.0, 1000.0])
    got = tile_lang.evaluate(hvp, {"A": a, "d_O": np.array(1.0), "t_A": t})["h_A"]
    want = [sum(t[m] * np.prod(np.delete(a, [k, m])) for m in range(4) if m != k) for k in range(4)]
    np.testing.assert_allclose(got, want, rtol=1e-13)


def test_the_domain_keeps_the_constraints_of_operands_that_vanish() -> None:
    inputs = {"A": spread(6), "B": spread(2)}
    program = bound("function (A[N], B[M]) -> (O) { O[i : 4] = +(A[i + k] + B[k]); }", inputs)
    result = check(program, inputs)
    assert result["d_A"].shape == (6,)


def test_half_precision_sums_round_once() -> None:
    a = np.full(4096, 0.1, np.float16)
    program = bound("function (W[], A[N]) -> (O) { O[i : N] = +(A[i] * W[]); }", {"W": np.array(1, np.float16), "A": a})
    seed = np.ones(4096, np.float16)
    got = tile_lang.evaluate(tile_autodiff.gradient(program, ["W"]), {"W": np.float16(1), "A": a, "d_O": seed})["d_W"]
    assert got.dtype == np.float16 and got == np.float16(4096 * float(np.float16(0.1)))


def test_integers_in_wrt_are_an_error_with_a_hint() -> None:
    program = bound("function (I[N]) -> (O) { O = I + 1; }", {"I": np.arange(3)})
    with pytest.raises(TileTypeError, match="TILE-E802") as raised:
        tile_autodiff.gradient(program, ["I"])
    assert raised.value.diagnostics[0].hint


def test_mistakes_in_wrt_are_collected() -> None:
    program = bound("function (A[N]) -> (O) { O = A; }", {"A": np.ones(3)})
    with pytest.raises(TileTypeError) as raised:
        tile_autodiff.gradient(program, ["B", "A", "A"])
    assert [d.code for d in raised.value.diagnostics] == ["TILE-E801", "TILE-E801"]


def test_no_names_at_all() -> None:
    program = bound("function (A[N]) -> (O) { O = A; }", {"A": np.ones(3)})
    with pytest.raises(TileTypeError, match="empty"):
        tile_autodiff.gradient(program, [])
