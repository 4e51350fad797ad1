"""How operators are divided before Tile sees them: as PyTorch divides them, but for those that have converters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, cast

import torch
import torch._prims as prims
from torch._decomp import core_aten_decompositions, decomposition_table  # pyright: ignore[reportUnknownVariableType]
from torch._ops import OpOverload

from tile_torch import transformer
from tile_torch.complexes import formulas
from tile_torch.registry import converters

aten = torch.ops.aten

TRACERS: frozenset[Any] = frozenset({aten.lift.default, aten.lift_fresh.default})
"""Operators that PyTorch's tracer has a use for."""

Divisions = dict[Any, Callable[..., Any]]


def _addbmm(input: Any, batch1: Any, batch2: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    total = alpha * torch.bmm(batch1, batch2).sum(0)
    return (beta * input + total if beta else total).to(input.dtype)


def _trilinear(
    i1: Any, i2: Any, i3: Any, expand1: Any, expand2: Any, expand3: Any, sumdim: Any, unroll_dim: int = 1
) -> Any:
    first, second, third = (_widened(i, places) for i, places in ((i1, expand1), (i2, expand2), (i3, expand3)))
    return (first * second * third).sum(sumdim)


def _widened(tensor: Any, places: Any) -> Any:
    for place in sorted(places):
        tensor = tensor.unsqueeze(place)
    return tensor


OWN: Divisions = {aten.addbmm.default: _addbmm, aten._trilinear.default: _trilinear}
"""What PyTorch has no decomposition of."""


@cache
def decompositions() -> Divisions:
    """The table for AOTAutograd."""
    known = {*converters(), *formulas()}
    core = cast("Divisions", core_aten_decompositions())
    table = {op: rule for op, rule in {**dict(_further()), **core}.items() if op not in known}
    return {**table, **OWN, **transformer.DIVIDED}


def _further() -> Iterator[tuple[Any, Callable[..., Any]]]:
    """What PyTorch can divide beyond core ATen, into operators of ATen, and without other random numbers than its own."""
    for op, rule in cast("Divisions", decomposition_table).items():
        if not isinstance(op, OpOverload) or op in TRACERS or torch.Tag.nondeterministic_seeded in op.tags:
            continue
        if op.__name__.partition(".")[0].removeprefix("special_") not in prims.__all__:
            yield op, rule
