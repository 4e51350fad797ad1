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
    aten.batch_norm_backward,
    aten._batch_norm_with_update_functional,
    aten._fused_rms_norm_backward,
    aten.linalg_vector_norm,
    aten.dist,
    aten.ldexp,
    aten.narrow_copy,
    aten.view_copy,
    aten.permute_copy,
    aten.unbind_copy,
)
"""Operators that are divided further than core ATen does."""


def _addbmm(input: Any, batch1: Any, batch2: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    total = alpha * torch.bmm(batch1, batch2).sum(0)
    return (beta * input + total if beta else total).to(input.dtype)


OWN: dict[Overload, Callable[..., Any]] = {aten.addbmm.default: _addbmm}
"""What PyTorch has no decomposition of."""


@cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """The table for AOTAutograd."""
    table: dict[Any, Callable[..., Any]] = {**core_aten_decompositions(), **_divided(EXTRA), **OWN}
    for kept in KEPT:
        table.pop(kept, None)
    return table
