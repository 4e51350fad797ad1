"""What PyTorch draws: its own generator makes the numbers before each run, in the order of the graph."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from tile_runtime.ops.moving import expanded
from tile_runtime.ops.values import Value, dtype_of

from tile_torch.call import Call
from tile_torch.dtypes import torch_dtype
from tile_torch.registry import operator

aten = torch.ops.aten


@operator(aten.native_dropout.default)
def native_dropout(call: Call, x: Value, p: float, train: bool | None) -> tuple[Value, Value | None]:
    """Elements kept with probability ``1 - p``, and scaled by what that loses; the mask beside them."""
    if train is False or (p == 0 and not call.wants(1)):
        return x, _everything(call)
    lying = partial(torch.empty_strided, call.shape, call.strides[0] or (), dtype=torch_dtype(call.dtype))
    mask = call.draw(lambda: aten.native_dropout.default(lying(), p, True)[1])
    return call.elementwise("({1} ? {0} * {2} : {0} * 0)", x, mask, 0.0 if p == 1 else 1 / (1 - p)), mask


@operator(
    aten.rand.default,
    aten.randn.default,
    aten.randint.default,
    aten.randint.low,
    aten.randperm.default,
    aten.bernoulli.p,
    aten.rand_like.default,
    aten.randn_like.default,
    aten.randint_like.default,
    aten.randint_like.low_dtype,
    aten.uniform.default,
    aten.normal_functional.default,
    aten.exponential.default,
    aten.log_normal.default,
    aten.cauchy.default,
    aten.geometric.default,
)
def drawn(call: Call, *given: Any, **how: Any) -> Value:
    """Numbers that depend on no tensor but for its shape and dtype."""
    like = tuple(torch.empty(v.shape, dtype=torch_dtype(dtype_of(v))) if hasattr(v, "shape") else v for v in given)
    return call.draw(partial(call.target, *like, **{n: v for n, v in how.items() if n != "pin_memory"}))


def _everything(call: Call) -> Value:
    """A mask that keeps all; None where nobody looks."""
    return expanded(np.asarray(True), call.shape) if call.wants(1) else None
