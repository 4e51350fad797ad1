"""What PyTorch draws: its own generator makes the numbers before each run, in the order of the graph."""

from __future__ import annotations

from functools import partial
from itertools import zip_longest
from typing import Any

import torch
from tile_runtime.ops.values import Value, dtype_of

from tile_torch.call import Call, Shape
from tile_torch.dtypes import torch_dtype
from tile_torch.registry import operator

aten = torch.ops.aten

LIBRARY: Any = torch.library.Library("tile", "FRAGMENT")
LIBRARY.define("dropout_mask(Tensor like, float p) -> Tensor", tags=(torch.Tag.nondeterministic_seeded,))


@torch.library.impl(LIBRARY, "dropout_mask", "CompositeExplicitAutograd")
def dropout_mask(like: torch.Tensor, p: float) -> torch.Tensor:
    """What PyTorch's dropout draws for a tensor that lies as this one: true where an element stays."""
    return aten.native_dropout.default(torch.empty_like(like), p, True)[1]


@torch.library.impl(LIBRARY, "dropout_mask", "Meta")
def _mask_type(like: torch.Tensor, p: float) -> torch.Tensor:
    return torch.empty_like(like, dtype=torch.bool)


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
    torch.ops.tile.dropout_mask.default,
)
def drawn(call: Call, *given: Any, **how: Any) -> Value:
    """Numbers that depend on no tensor but for its shape and dtype."""
    like = tuple(_lying(v, strides) for v, strides in zip_longest(given, call.strides))
    return call.draw(partial(call.target, *like, **{n: v for n, v in how.items() if n != "pin_memory"}))


def _lying(value: Any, strides: Shape | None) -> Any:
    """A tensor that lies as PyTorch believes: it draws in the order of memory."""
    return value if strides is None else torch.empty_strided(value.shape, strides, dtype=torch_dtype(dtype_of(value)))
