"""Elements taken from where data says."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from tile_ir.dtype import DType
from tile_runtime.ops.gather import chosen, taken_along, wrapped
from tile_runtime.ops.moving import reshaped
from tile_runtime.ops.text import aligned, at, names
from tile_runtime.ops.values import Value, apply, dtype_of

from tile_torch.call import Call, axis
from tile_torch.registry import operator

aten = torch.ops.aten


@operator(aten.embedding.default)
def embedding(
    call: Call,
    weight: Value,
    indices: Value,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Value:
    return chosen(weight, indices, 0)


@operator(aten.index_select.default)
def index_select(call: Call, x: Value, dim: int, index: Value) -> Value:
    if not x.shape:
        return x
    return reshaped(
        chosen(x, reshaped(index, (call.shape[axis(dim, len(x.shape))],)), axis(dim, len(x.shape))), call.shape
    )


@operator(aten.gather.default)
def gather(call: Call, x: Value, dim: int, index: Value, sparse_grad: bool = False) -> Value:
    if not x.shape or not index.shape:
        found = taken_along(reshaped(x, x.shape or (1,)), reshaped(index, index.shape or (1,)), 0)
        return reshaped(found, call.shape)
    return taken_along(x, index, axis(dim, len(x.shape)))


@operator(aten.index.Tensor, aten._unsafe_index.Tensor)
def index(call: Call, x: Value, indices: Sequence[Value]) -> Value:
    """As NumPy's indexing by integer tensors, some absent; they broadcast, and negative numbers count from the ends."""
    given = {k: i for k, i in enumerate(indices) if i is not None}
    if any(dtype_of(i) is DType.BOOL or dtype_of(i) is DType.UINT8 for i in given.values()):
        hint = "torch.where keeps the shape; or compute it outside of the compiled function"
        raise call.unsupported("the shape of what a mask selects depends on data", hint)
    shape, broadcast = tuple(x.shape), np.broadcast_shapes(*(i.shape for i in given.values()))
    at_front = max(given) - min(given) + 1 != len(given)
    rest = [k for k in range(len(shape)) if k not in given]
    start = 0 if at_front else min(given)
    result = names(len(rest) + len(broadcast))
    own, others = result[start : start + len(broadcast)], iter((*result[:start], *result[start + len(broadcast) :]))
    letters = {k: f"I{n}" for n, k in enumerate(given)}
    subscripts = [
        at(letters[k], aligned(given[k].shape, own)) if k in given else next(others) for k in range(len(shape))
    ]
    values = [wrapped(i, shape[k]) for k, i in given.items()]
    return _taken(call.shape, subscripts, x, list(letters.values()), values)


def _taken(
    sizes: Sequence[int], subscripts: Sequence[str], x: Value, letters: list[str], indices: list[Value]
) -> Value:
    from tile_runtime.ops.text import contraction, function

    body = contraction("Y", sizes, names(len(sizes)), "=", at("X", subscripts))
    return apply(function(["X", *letters], "Y", body), x, *indices)
