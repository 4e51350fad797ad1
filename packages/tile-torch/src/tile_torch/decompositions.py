"""How operators are divided before Tile sees them: as PyTorch divides them, but for those that have converters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, cast

import torch
import torch._prims as prims
from torch._decomp import core_aten_decompositions, decomposition_table  # pyright: ignore[reportUnknownVariableType]
from torch._ops import OpOverload

from tile_torch import divisions, transformer
from tile_torch.complexes import formulas
from tile_torch.registry import converters

aten = torch.ops.aten

TRACERS: frozenset[Any] = frozenset({aten.lift.default, aten.lift_fresh.default})
"""Operators that PyTorch's tracer has a use for."""

Divisions = dict[Any, Callable[..., Any]]


@cache
def decompositions() -> Divisions:
    """The table for AOTAutograd."""
    known = {*converters(), *formulas()}
    core = cast("Divisions", core_aten_decompositions())
    table = {op: rule for op, rule in {**dict(_further()), **core}.items() if op not in known}
    return {**table, **divisions.DIVIDED, **transformer.DIVIDED}


def _further() -> Iterator[tuple[Any, Callable[..., Any]]]:
    """What PyTorch can divide beyond core ATen, into operators of ATen, and without other random numbers than its own."""
    for op, rule in cast("Divisions", decomposition_table).items():
        if not isinstance(op, OpOverload) or op in TRACERS or torch.Tag.nondeterministic_seeded in op.tags:
            continue
        if op.__name__.partition(".")[0].removeprefix("special_") not in prims.__all__:
            yield op, rule
