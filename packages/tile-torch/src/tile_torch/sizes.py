"""Sizes that PyTorch leaves open, and the numbers they stand for in one call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch.fx import Node

Bindings = Mapping[Any, int | float]
"""What each symbol of a graph's sizes is."""
Sizes = tuple[int | float | None, ...]
"""What each symbol is in one call; None where only numbers that the graph computes decide it."""


@dataclass(frozen=True, slots=True)
class Shown:
    """Where an argument of a call shows what a symbol is: the argument, or a dimension of it, is `expression`, which has no
    other symbol."""

    place: int
    dimension: int | None
    symbol: Any
    expression: Any

    def number(self, arguments: Sequence[Any]) -> int | float | None:
        """What the symbol is for these arguments; None where that is not known before the graph runs."""
        found = hint(arguments[self.place] if self.dimension is None else arguments[self.place].shape[self.dimension])
        if self.expression.is_symbol or found in (RAGGED, None):
            return found
        return int(_solved(self.expression, self.symbol, found))


@dataclass(frozen=True, slots=True)
class OpenSizes:
    """The symbols of a graph's sizes, and where the arguments of a call show what they are."""

    shown: tuple[Shown, ...]

    @staticmethod
    def of(placeholders: Sequence[Node]) -> OpenSizes:
        """Those of a graph with these inputs: where a size is a symbol itself is looked at before where it is computed of one."""
        found: dict[Any, Shown] = {}
        every = [shown for place, node in enumerate(placeholders) for shown in _shown(place, node.meta.get("val"))]
        for shown in sorted(every, key=lambda shown: not shown.expression.is_symbol):
            found.setdefault(shown.symbol, shown)
        return OpenSizes(tuple(found.values()))

    def numbers(self, arguments: Sequence[Any]) -> Sizes:
        """What the symbols are for these arguments: tensors, numbers, SymInts with a hint."""
        return tuple(shown.number(arguments) for shown in self.shown)

    def bindings(self, numbers: Sizes) -> Bindings:
        """The symbols with their numbers, as far as these are known."""
        return {shown.symbol: n for shown, n in zip(self.shown, numbers, strict=True) if n is not None}


def _shown(place: int, traced: Any) -> Iterator[Shown]:
    """What an argument shows."""
    sizes = enumerate(traced.shape) if isinstance(traced, torch.Tensor) else [(None, traced)]
    for dimension, size in sizes:
        symbols = _symbols(size)
        if len(symbols) == 1:
            yield Shown(place, dimension, next(iter(symbols)), _node(cast(Sized, size)).expr)


def _solved(expression: Any, symbol: Any, size: int | float) -> Any:
    """What a symbol is, of which a size consists: no size is negative."""
    roots: Mapping[Any, int] = (expression - size).as_poly(symbol).ground_roots()
    return max(n for n in roots if n.is_integer)


RAGGED = -1
"""Stands for the length of a dimension whose rows have lengths of their own: no size that a graph computes with."""


Sized = torch.SymInt | torch.SymFloat | torch.SymBool


def hint(size: Any) -> int | float | None:
    """A number, or what a SymInt was when the graph was traced; None where nobody knew."""
    known = _node(size).hint if isinstance(size, Sized) and hasattr(_node(size), "hint") else size
    ragged = isinstance(known, torch.SymInt) and _node(known).is_nested_int()
    if ragged:
        return RAGGED
    return known if isinstance(known, float | None) else int(cast(int, known))


def _node(value: Sized) -> Any:
    """PyTorch's expression behind a size."""
    return cast(Any, value).node


def resolved(value: Any, known: Bindings) -> Any:
    """`value`, in which sizes are numbers; lists and tuples throughout."""
    if isinstance(value, Sized):
        return _number(value, known)
    if isinstance(value, (list, tuple)):
        return [resolved(v, known) for v in cast("Sequence[Any]", value)]
    return value


def _number(value: Sized, known: Bindings) -> int | float | bool:
    kinds = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}
    return kinds[type(value)](_node(value).expr.xreplace(known))


def _symbols(size: Any) -> Any:
    return _node(size).expr.free_symbols if isinstance(size, Sized) else ()


def is_open(traced: Any, known: Bindings) -> bool:
    """Whether a traced value is, or has, a size that numbers decide, which are not there before the graph runs."""
    sizes = (
        (*traced.shape, *traced.stride(), traced.storage_offset()) if isinstance(traced, torch.Tensor) else (traced,)
    )
    return any(symbol not in known for size in sizes for symbol in _symbols(size))


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
