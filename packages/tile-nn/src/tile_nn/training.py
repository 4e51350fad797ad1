"""One step of training as one program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tile_runtime as tile

from tile_nn.optimizers import Optimizer


def training_step(loss: Callable[..., Any], optimizer: Optimizer, *, has_aux: bool = False) -> Any:
    """A function ``(params, state, *batch) -> (params, state, value)``, compiled for each form of its arguments.

    ``loss(params, *batch)`` gives a float scalar, or with `has_aux` a pair of it and a tree, both of which come as
    `value`. Loss, derivatives and update are one submission. The memory of Tensors in `params` and `state` receives
    their successors: use what the step returns. Begin with ``optimizer.init(params)``. It runs where the parameters are.
    """
    value_and_grad = tile.value_and_grad(loss, has_aux=has_aux)

    def step(params: Any, state: Any, *batch: Any) -> tuple[Any, Any, Any]:
        value, slopes = value_and_grad(params, *batch)
        return (*optimizer.update(params, slopes, state), value)

    return tile.jit(step, donate=("params", "state"))
