"""Sizes that PyTorch leaves open, and the numbers they stand for in one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch.fx import Node

Bindings = Mapping[Any, int]
"""What each symbol of a graph's sizes is."""


@dataclass(frozen=True, slots=True)
class OpenSizes:
    """The symbols of a graph's sizes, and where the arguments of a call show what they are."""

    symbols: tuple[Any, ...]
    places: tuple[tuple[int, int | None], ...]
    """For each symbol an argument, and a dimension of it; None where the argument is the size itself."""

    @staticmethod
    def of(placeholders: Sequence[Node]) -> OpenSizes:
        """Those of a graph with these inputs."""
        found: dict[Any, tuple[int, int | None]] = {}
        for place, node in enumerate(placeholders):
            expected = node.meta.get("val")
            sizes = enumerate(expected.shape) if isinstance(expected, torch.Tensor) else [(None, expected)]
            for dimension, size in sizes:
                if isinstance(size, torch.SymInt) and _node(size).expr.is_symbol:
                    found.setdefault(_node(size).expr, (place, dimension))
        return OpenSizes(tuple(found), tuple(found.values()))

    def numbers(self, arguments: Sequence[Any]) -> tuple[int, ...]:
        """What the symbols are for these arguments: tensors, integers, SymInts with a hint."""
        return tuple(
            hint(arguments[place] if dimension is None else arguments[place].shape[dimension])
            for place, dimension in self.places
        )

    def bindings(self, numbers: Sequence[int]) -> Bindings:
        """The symbols with their numbers."""
        return dict(zip(self.symbols, numbers, strict=True))


RAGGED = -1
"""Stands for the length of a dimension whose rows have lengths of their own: no size that a graph computes with."""


def hint(size: Any) -> int:
    """An integer, or what a SymInt was when the graph was traced."""
    known = _node(size).hint if isinstance(size, torch.SymInt) and hasattr(_node(size), "hint") else size
    ragged = isinstance(known, torch.SymInt) and _node(known).is_nested_int()
    return RAGGED if ragged else int(known)


def _node(value: torch.SymInt | torch.SymFloat | torch.SymBool) -> Any:
    """PyTorch's expression behind a size."""
    return cast(Any, value).node


def resolved(value: Any, known: Bindings) -> Any:
    """`value`, in which sizes are numbers; lists and tuples throughout."""
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return _number(value, known)
    if isinstance(value, (list, tuple)):
        return [resolved(v, known) for v in cast("Sequence[Any]", value)]
    return value


def _number(value: torch.SymInt | torch.SymFloat | torch.SymBool, known: Bindings) -> int | float | bool:
    kinds = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}
    return kinds[type(value)](_node(value).expr.xreplace(known))


def shape_of(tensor: torch.Tensor, known: Bindings) -> tuple[int, ...]:
    """The shape of a traced tensor."""
    return tuple(resolved(size, known) for size in tensor.shape)


def strides_of(tensor: torch.Tensor, known: Bindings) -> tuple[int, ...]:
    """The strides of a traced tensor, in elements."""
    return tuple(resolved(step, known) for step in tensor.stride())


def dense_order(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...] | None:
    """The order of axes in which a tensor of such strides is contiguous; None where it has gaps or overlaps."""
    order = sorted(range(len(shape)), key=lambda k: (-strides[k], k)) if 0 not in shape else list(range(len(shape)))
    step = 1
    for k in reversed(order):
        if shape[k] > 1 and strides[k] != step and 0 not in shape:
            return None
        step *= shape[k]
    return _settled(order, shape)


def _settled(order: list[int], shape: Sequence[int]) -> tuple[int, ...]:
    """The order itself, or the natural one where only axes of one element are elsewhere."""
    large = [k for k in order if shape[k] > 1]
    return tuple(range(len(shape))) if large == sorted(large) else tuple(order)
