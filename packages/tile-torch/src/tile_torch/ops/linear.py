"""Products of matrices, and what is added to them."""

from __future__ import annotations

import torch
from tile_ir.dtype import DType
from tile_runtime.ops.matmul import product
from tile_runtime.ops.text import cast, function, wide
from tile_runtime.ops.values import Value, apply

from tile_torch.call import Call, Number, written
from tile_torch.registry import operator

aten = torch.ops.aten


@operator(aten.mm.default, aten.bmm.default, aten.mv.default, aten.dot.default)
def mm(call: Call, x: Value, other: Value) -> Value:
    """Of matrices, stacks of them, and vectors."""
    return apply(function("AB", "C", product(x.shape, other.shape).statement("C", "A", "B")), x, other)


@operator(aten._int_mm.default)
def int_mm(call: Call, x: Value, other: Value) -> Value:
    """Of matrices of 8-bit integers, in 32 bits."""
    statement = product(x.shape, other.shape).statement("C", "P", "Q")
    widened = (f"{name} = {cast(given, DType.INT32)};" for name, given in (("P", "A"), ("Q", "B")))
    return apply(function("AB", "C", *widened, statement), x, other)


@operator(aten.addmm.default, aten.baddbmm.default, aten.addmv.default)
def addmm(call: Call, x: Value, left: Value, right: Value, beta: Number = 1, alpha: Number = 1) -> Value:
    """``beta * x + alpha * (left @ right)``; x broadcasts, and is not looked at where beta is 0."""
    dtype = call.dtype
    statement = product(left.shape, right.shape).statement("P", "A", "B")
    term = _scaled("P", alpha, dtype)
    if beta == 0:
        return apply(function("AB", "Y", statement, f"Y = {cast(term, dtype)};"), left, right)
    total = f"({term} + {_scaled('X', beta, dtype)})"
    return apply(function("ABX", "Y", statement, f"Y = {cast(total, dtype)};"), left, right, x)


def _scaled(name: str, factor: Number, dtype: DType) -> str:
    value = wide(name, dtype)
    return value if factor == 1 else f"{written(factor, dtype.accumulator)} * {value}"
