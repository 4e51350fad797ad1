"""A scalar operation means the same for every layout of its operands: full, broadcast, strided, reversed, single."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tile_ir import numerics
from tile_ir.dots import DOTS
from tile_ir.dtype import DType
from tile_ir.ops import OPS, ScalarOp, Signature

pytest.importorskip("ml_dtypes")
Array = Any

FLOATS = (0.0, -0.0, 0.5, -0.5, 1, 2, 3, np.inf, -np.inf, np.nan, 1e-40, 65504, 1 / 3, 0.25, -2, 1e30, 100.5, 1e-3, 0.7)
INTEGERS = (0, 1, 2, 3, 7, 31, 255, -1, -128, 2**31 - 1, -(2**31))
WHOLE = [d for d in DType if not d.is_float]
KINDS = {Signature.MATH: [d for d in DType if d.is_float], Signature.BITS: WHOLE, Signature.SHIFT: WHOLE}
CASES = [(op, d) for op in OPS.values() if op.name not in DOTS for d in KINDS.get(op.signature, [*DType])]
CASES += [(OPS[dot.name], dot.c) for dot in DOTS.values()]


def samples(dtype: DType) -> Array:
    if dtype.is_float:
        return numerics.cast_array(np.asarray(FLOATS, np.float64), dtype)
    return numerics.cast_array(np.asarray(INTEGERS, np.int64), dtype)


LAYOUTS: dict[str, Callable[[Array, int], Array]] = {
    "a scalar broadcast": lambda x, n: x if x.ndim else np.asarray(x),
    "one element broadcast": lambda x, n: x if x.ndim else x[None],
    "stretched without a copy": lambda x, n: np.broadcast_to(x, (n,)),
    "every third element": lambda x, n: np.repeat(np.broadcast_to(x, (n,)), 3)[::3],
    "backwards in memory": lambda x, n: np.ascontiguousarray(np.broadcast_to(x, (n,))[::-1])[::-1],
    "a column of a table": lambda x, n: np.asfortranarray(np.tile(np.broadcast_to(x, (n,)), (4, 1)))[1],
}


def bits(x: Array) -> bytes:
    return np.ascontiguousarray(x).tobytes()


def full(x: Array, n: int) -> Array:
    return np.ascontiguousarray(np.broadcast_to(x, (n,)))


@pytest.mark.parametrize(("op", "dtype"), CASES, ids=lambda x: getattr(x, "name", str(x)))
def test_the_layout_of_operands_does_not_change_a_bit(op: ScalarOp, dtype: DType) -> None:
    values = samples(dtype)
    result = DType.BOOL if op.signature is Signature.COMPARE else dtype
    n = len(values)
    for place, others in itertools.product(range(op.arity), itertools.product(values, repeat=min(op.arity, 2) - 1)):
        operands = [np.asarray(x) for x in (others or values[:1])] * 2
        operands = [*operands[:place], values, *operands[place : op.arity - 1]]
        expected = bits(numerics.apply(op.name, [full(x, n) for x in operands], result))
        for name, layout in LAYOUTS.items():
            found = numerics.apply(op.name, [layout(x, n) for x in operands], result)
            assert bits(found) == expected, (name, others, place)
        single = [numerics.apply(op.name, [full(x, n)[k] for x in operands], result) for k in range(n)]
        assert bits(np.stack(single)) == expected, ("single elements", others, place)


def test_a_broadcast_half_is_an_exponent_like_others() -> None:
    base = np.asarray([-np.inf, -0.0], np.float32)
    for half in (np.float32(0.5), np.full(2, 0.5, np.float32)):
        np.testing.assert_array_equal(numerics.apply("pow", [base, half], DType.FLOAT32), [np.inf, 0.0])
