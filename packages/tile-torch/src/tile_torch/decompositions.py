"""How operators are divided before Tile sees them: into core ATen operators, but for those that are better left whole."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, cast

import torch
from torch._decomp import core_aten_decompositions, get_decompositions  # pyright: ignore[reportUnknownVariableType]

from tile_torch.registry import Overload

aten = torch.ops.aten

_divided = cast("Callable[[Any], dict[Any, Callable[..., Any]]]", get_decompositions)

KEPT: tuple[Overload, ...] = (
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
    table: dict[Any, Callable[..., Any]] = {**core_aten_decompositions(), **_divided(EXTRA)}
    for kept in KEPT:
        table.pop(kept, None)
    return table
