"""Constants of one number become literals, and powers by multiples of a half products and roots."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tile_ir.contents import Contents
from tile_ir.dtype import DType, from_numpy
from tile_ir.program.nodes import ConstantTensor, Contraction, Elementwise, Literal, Program, TensorType
from tile_lang import bind, parse
from tile_lang.evaluate import evaluate
from tile_opt.program import DropDead, Literals, Powers, rewrite

SPECIAL = [0.0, -0.0, 1.0, -1.0, 2.0, -2.5, np.inf, -np.inf, np.nan, 1e-40, 1e-45, 3e38, 8e37, 1e30, -1e20, 1e-30]
HALVES = [k / 2 for k in range(-8, 9) if k not in (0, 2)]


def power(exponent: float, dtype: str, size: int) -> Program:
    return bind(
        parse(f"function (X[N]) -> (Y) {{ Y = pow(X, {exponent}); }}"), {"X": TensorType(DType(dtype), (size,))}
    )


def computed(program: Program, **given: Any) -> dict[str, Any]:
    with np.errstate(all="ignore"):
        return dict(evaluate(program, given))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("exponent", HALVES)
def test_powers_by_halves_are_products_and_roots_of_the_same_values(exponent: float, dtype: str) -> None:
    sizes = np.random.default_rng(3).lognormal(0, 20, 500)
    x = np.concatenate([np.array(SPECIAL), sizes]).astype(dtype)
    program = power(exponent, dtype, len(x))
    written = Powers().apply(program)
    assert "pow" not in {op.fn for op in written.ops if isinstance(op, Elementwise)}
    with np.errstate(all="ignore"):
        expected = np.power(x.astype(np.longdouble), np.longdouble(exponent)).astype(dtype)
    found = computed(written, X=x)["Y"]
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(np.where(finite, 0, found), np.where(finite, 0, expected))
    np.testing.assert_array_equal(np.signbit(found[finite]), np.signbit(expected[finite]))
    np.testing.assert_array_max_ulp(found[finite], expected[finite], 8)


@pytest.mark.parametrize(("exponent", "dtype"), [(1.7, "float32"), (5, "float32"), (0.25, "float64"), (3, "float16")])
def test_other_powers_stay(exponent: float, dtype: str) -> None:
    program = power(exponent, dtype, 4)
    assert Powers().apply(program) is program


@pytest.mark.parametrize(
    "value", [np.float32(0.1), np.float16(3), np.float64(-np.inf), np.int64(-7), np.uint8(200), np.True_]
)
def test_constants_without_dimensions_are_literals_where_they_are_read(value: Any) -> None:
    dtype = from_numpy(value.dtype)
    types = {"X": TensorType(dtype, (3,)), "C": TensorType(dtype, ())}
    program = bind(parse("function (X[N], C[]) -> (Y, Z) { Y = X * C; Z[i : N] = +(X[i] * C[]); }"), types)
    constant = ConstantTensor("C", types["C"], Contents(value.tobytes()))
    bound = Program("main", program.inputs[:1], (constant, *program.ops), program.outputs)
    written = Literals().apply(bound)
    read = [a for op in written.ops if isinstance(op, Elementwise) for a in op.args]
    read += [load.tensor for op in written.ops if isinstance(op, Contraction) for load in op.loads]
    assert "C" not in read
    assert Literal(value.item(), dtype) in read
    x = np.array([0, 1, 1], value.dtype)
    for name, expected in computed(bound, X=x).items():
        np.testing.assert_array_equal(computed(written, X=x)[name], expected)


@pytest.mark.parametrize(("value", "kept"), [(np.int16(-7), 0), (np.uint8(200), 0), (np.float32(2), 2)])
def test_what_integers_give_is_a_number_as_well(value: Any, kept: int) -> None:
    """Functions of floats are the device's own."""
    dtype = from_numpy(value.dtype)
    types = {"X": TensorType(dtype, (3,)), "C": TensorType(dtype, ())}
    program = bind(parse("function (X[N], C) -> (Y) { Y = C == 0 ? X : X * (C + C); }"), types)
    constant = ConstantTensor("C", types["C"], Contents(value.tobytes()))
    bound = Program("main", program.inputs[:1], (constant, *program.ops), program.outputs)
    written = rewrite(bound, (Literals(), DropDead()))
    assert sum(isinstance(op, Elementwise) and not op.type.shape for op in written.ops) == kept
    x = np.array([0, 1, 3], value.dtype)
    np.testing.assert_array_equal(computed(written, X=x)["Y"], computed(bound, X=x)["Y"])


def test_bfloat16_needs_no_dtype_of_numpy() -> None:
    type = TensorType(DType.BFLOAT16, ())
    constant = ConstantTensor("C", type, Contents(b"\xc0\xbf"))
    op = Elementwise("Y", TensorType(DType.BFLOAT16, (2,)), "mul", ("X", "C"))
    program = Program("main", (), (constant, op), (("Y", "Y"),))
    assert Literals().apply(program).ops[1] == Elementwise("Y", op.type, "mul", ("X", Literal(-1.5, DType.BFLOAT16)))
