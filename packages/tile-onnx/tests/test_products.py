"""Products of matrices and tensors beside ONNX Runtime and NumPy: stacks, vectors, transposes, any equation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tile_onnx
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of
from peer import SEEDS, a_model, check, numbers
from tile_ir.diagnostics import TileError

MATMUL = arrays_of.mutually_broadcastable_shapes(signature=np.matmul.signature, max_dims=3, max_side=4)
LIMITS = {"rtol": 1e-4, "atol": 1e-4}


@given(st.sampled_from(["float32", "float64", "int32", "int64"]), MATMUL, SEEDS, st.booleans())
@settings(max_examples=25)
def test_matmul(dtype: str, shapes: Any, seed: int, constant: bool) -> None:
    operands = [numbers(dtype, s, seed + k) for k, s in enumerate(shapes.input_shapes)]
    check("MatMul", operands, constant=[1] if constant else [], **LIMITS)


def test_matmul_of_half_floats_adds_in_single() -> None:
    check("MatMul", [numbers("float16", (3, 300), 0, scale=1), numbers("float16", (300, 4), 1, scale=1)], atol=0.1)


@given(st.tuples(*[st.integers(1, 6)] * 3), st.integers(0, 7), st.sampled_from(["none", "row", "full"]), SEEDS)
@settings(max_examples=20)
def test_gemm(sizes: tuple[int, int, int], flips: int, bias: str, seed: int) -> None:
    m, k, n = sizes
    a = numbers("float32", (k, m) if flips & 1 else (m, k), seed)
    b = numbers("float32", (n, k) if flips & 2 else (k, n), seed + 1)
    c = {"none": None, "row": numbers("float32", (n,), 2), "full": numbers("float32", (m, n), 2)}[bias]
    attributes = {"transA": flips & 1, "transB": flips >> 1 & 1}
    scales = {"alpha": 0.5, "beta": 2.0} if flips & 4 else {}
    check("Gemm", [a, b, *([] if c is None else [c])], attributes | scales, **LIMITS)


EQUATIONS = {
    "ij,jk->ik": [(2, 3), (3, 4)],
    "ij,jk": [(2, 3), (3, 4)],
    "...ij,...jk->...ik": [(2, 1, 2, 3), (5, 3, 4)],
    "ii->i": [(3, 3)],
    "ii": [(3, 3)],
    "ij->": [(3, 4)],
    "ij->ji": [(3, 4)],
    "b...->...": [(2, 3, 4)],
    "bij,bjk,bkl->bil": [(2, 3, 4), (2, 4, 5), (2, 5, 2)],
    "i,i,i->": [(4,), (4,), (4,)],
    "ij,kj,k->ik": [(2, 3), (4, 3), (4,)],
    "aB,Bc->ac": [(2, 3), (3, 4)],
    "bhqd,bhkd->bhqk": [(2, 2, 3, 4), (2, 2, 5, 4)],
    "ij,ij->ij": [(2, 3), (1, 3)],
    "i,j->ij": [(2,), (3,)],
    "ij,k->": [(2, 3), (4,)],
    ",ij->ij": [(), (2, 3)],
}


def as_numpy_does(equation: str, shapes: list[tuple[int, ...]], seed: int) -> None:
    operands = [np.asarray(numbers("float64", shape, seed + k)) for k, shape in enumerate(shapes)]
    model = tile_onnx.load(a_model("Einsum", operands, {"equation": equation}))
    found = model.run({f"x{k}": v for k, v in enumerate(operands)})["y0"]
    np.testing.assert_allclose(found, np.einsum(equation, *operands), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("equation", EQUATIONS)
def test_equations(equation: str) -> None:
    as_numpy_does(equation, EQUATIONS[equation], 0)


@st.composite
def equations(draw: Any) -> tuple[str, list[tuple[int, ...]]]:
    """Operands of distinct letters each, and a result of some of them in any order."""
    sizes = dict(zip("abcde", draw(st.lists(st.integers(1, 4), min_size=5, max_size=5)), strict=True))
    terms = draw(st.lists(st.permutations("abcde").map(lambda p: p[:3]), min_size=1, max_size=4))
    terms = [term[: draw(st.integers(0, 3))] for term in terms]
    used = sorted({letter for term in terms for letter in term})
    result = draw(st.permutations(used))[: draw(st.integers(0, len(used)))] if used else []
    return f"{','.join(map(''.join, terms))}->{''.join(result)}", [tuple(sizes[c] for c in term) for term in terms]


@given(equations(), SEEDS)
@settings(max_examples=20)
def test_random_equations(what: tuple[str, list[tuple[int, ...]]], seed: int) -> None:
    as_numpy_does(*what, seed)


@given(st.tuples(*[st.integers(1, 5)] * 3), st.sampled_from(["uint8", "int8"]), st.integers(0, 3), SEEDS)
@settings(max_examples=15)
def test_integer_products(sizes: tuple[int, int, int], dtype: str, zeros: int, seed: int) -> None:
    m, k, n = sizes
    a, b = numbers("uint8", (2, m, k), seed), numbers(dtype, (k, n), seed + 1)
    points = [np.array(3, "uint8") if zeros & 1 else None, numbers(dtype, (n,), 5) if zeros & 2 else None]
    check("MatMulInteger", [a, b, *points], constant=[k + 2 for k, p in enumerate(points) if p is not None])


@pytest.mark.parametrize("rows", [1, 2, 3, 7, 20])
def test_determinants(rows: int) -> None:
    values = numbers("float64", (2, 2, rows, rows), rows, scale=1)
    values[0, 0, 0] = values[0, 0, -1]  # with two rows alike there is none
    found = tile_onnx.load(a_model("Det", [values])).run({"x0": values})["y0"]
    np.testing.assert_allclose(found, np.linalg.det(values), rtol=1e-9, atol=1e-8)


@pytest.mark.parametrize(
    ("op", "shapes"),
    [
        ("MatMul", [(2, 3), (4, 5)]),
        ("MatMul", [(), (4, 5)]),
        ("MatMul", [(2, 2, 3), (3, 3, 5)]),
        ("Gemm", [(3,), (3, 5)]),
        ("Gemm", [(2, 3), (4, 5)]),
        ("Conv", [(1, 3, 5, 5), (4, 2, 3, 3)]),
        ("Attention", [(1, 2, 3, 4), (1, 3, 3, 4), (1, 3, 3, 4)]),
        ("Attention", [(1, 2, 3, 4), (1, 2, 3, 5), (1, 2, 3, 4)]),
        ("Attention", [(1, 2, 3, 4), (1, 2, 3, 4), (1, 2, 5, 4)]),
        ("Attention", [(1, 2, 8), (1, 2, 8), (1, 2, 8)]),
    ],
)
def test_what_does_not_fit_is_refused(op: str, shapes: list[tuple[int, ...]]) -> None:
    operands = [numbers("float32", shape, 0) for shape in shapes]
    with pytest.raises(TileError, match=op):
        tile_onnx.load(a_model(op, operands, opset=23)).run({f"x{k}": np.asarray(v) for k, v in enumerate(operands)})
