"""How operators are divided before Tile sees them: into core ATen operators, but for those that are better left whole."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch._decomp import core_aten_decompositions, get_decompositions
from torch._ops import OpOverload

aten = torch.ops.aten

KEPT: tuple[OpOverload, ...] = (
    aten.native_dropout.default,  # PyTorch draws its mask
    aten.bernoulli.default,
    aten._embedding_bag.default,
    aten.silu.default,
    aten.tanh_backward.default,
    aten.sigmoid_backward.default,
    aten.threshold_backward.default,
)
"""Operators that PyTorch would divide, and that have converters of their own."""

EXTRA: tuple[Any, ...] = (
    aten.native_layer_norm_backward,
    aten.native_group_norm_backward,
    aten.native_batch_norm_backward,
)
"""Operators that are divided further than core ATen does."""


@cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """The table for AOTAutograd."""
    table = dict(core_aten_decompositions()) | dict(get_decompositions(EXTRA))
    for kept in KEPT:
        table.pop(kept, None)
    return table
