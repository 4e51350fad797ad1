"""Products of groups of rows with matrices of their own, as layers of experts have them."""

from __future__ import annotations

import torch
from tile_runtime.ops.grouped import rows_with_own, sums_of_own
from tile_runtime.ops.moving import permuted
from tile_runtime.ops.values import Value

from tile_torch.call import Call
from tile_torch.ops.linear import mm
from tile_torch.registry import named, operator

aten = torch.ops.aten


@operator(aten._grouped_mm.default)
def grouped_mm(
    call: Call, left: Value, right: Value, offs: Value = None, bias: Value = None, out_dtype: object = None
) -> Value:
    """`offs` says where the groups end: of rows on the left, of columns on the right, or of what is added up."""
    if bias is not None:
        raise call.unsupported("it has a bias", "add the bias to its result")
    match len(left.shape), len(right.shape):
        case 2, 3:
            return rows_with_own(left, right, offs)
        case 3, 2:
            return permuted(rows_with_own(permuted(right, (1, 0)), permuted(left, (0, 2, 1)), offs), (1, 0))
        case 2, 2:
            return sums_of_own(permuted(left, (1, 0)), right, offs)
        case _:
            return mm(call, left, right)


@named("transformers::grouped_mm_fallback")
def grouped_rows(call: Call, input: Value, weight: Value, offs: Value) -> Value:
    return rows_with_own(input, weight, offs)


@named("transformers::grouped_mm_fallback_backward")
def grouped_rows_backward(
    call: Call, input: Value, weight: Value, offs: Value, grad_output: Value
) -> tuple[Value, Value]:
    """The gradients of rows and matrices."""
    return rows_with_own(grad_output, permuted(weight, (0, 2, 1)), offs), sums_of_own(input, grad_output, offs)
