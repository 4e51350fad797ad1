"""Constants, and where elements stand."""

from __future__ import annotations

import numpy as np
from tile_runtime.symbols import Symbol

from tile_jax.lowering.registry import Op, Value, operation


@operation("stablehlo.constant")
def constant(op: Op) -> Value:
    """Numbers known now."""
    return op.attributes("value")


@operation("stablehlo.broadcast_in_dim")
def broadcast(op: Op) -> Value:
    """Repeats elements along new axes, and along axes of extent 1."""
    (a,) = op.operands
    assert not isinstance(a, Symbol)
    shape = [1] * len(op.type.shape)
    for k, axis in enumerate(op.attributes("broadcast_dimensions")):
        shape[axis] = a.shape[k]
    return np.broadcast_to(a.reshape(shape), op.type.shape)
