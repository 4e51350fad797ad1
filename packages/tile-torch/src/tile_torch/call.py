"""What a converter sees of a node beside its operands."""

from __future__ import annotations

import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from tile_ir.dtype import DType
from tile_runtime.ops.text import Shape, cast, expression, listed, literal, names
from tile_runtime.ops.unsupported import Unsupported
from tile_runtime.ops.values import Array, Value, apply, dtype_of, is_known
from tile_runtime.symbols import Symbol
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as Promotion
from torch._prims_common import elementwise_dtypes  # pyright: ignore[reportUnknownVariableType]

from tile_torch.dtypes import DTYPES, torch_dtype
from tile_torch.registry import Overload

__all__ = ["Array", "Call", "Number", "Promotion", "Symbol", "Type", "Unsupported", "Value", "apply", "dtype_of"]

Number = bool | int | float
Type = tuple[Shape, DType]


_promoted = typing.cast("Callable[..., tuple[torch.dtype, torch.dtype]]", elementwise_dtypes)


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One node of a graph: its operator, and what PyTorch says its results are."""

    target: Overload
    types: tuple[Type | None, ...]
    """Shape and dtype of each result."""
    used: frozenset[int]
    """Results that something uses."""
    strides: tuple[Shape | None, ...]
    """Of each argument by position: how PyTorch believes it to lie in memory, in elements; None for what is no tensor."""
    offsets: tuple[int | None, ...]
    """Of each argument by position: where in its memory it begins, in elements."""
    draw: Callable[[Callable[[], torch.Tensor]], Value]
    """A value that PyTorch draws before each run of the program: `draw(function)`; functions are called in this order."""
    check: Callable[[Callable[[torch.Tensor], None], Value], None]
    """Has a function look at a value after each run, and raise where it is wrong: `check(function, value)`."""

    @property
    def name(self) -> str:
        """The operator's name, without its overload: ``add``."""
        return self.target.__name__.partition(".")[0]

    @property
    def shape(self) -> Shape:
        """The shape of the first result."""
        return self.type(0)[0]

    @property
    def dtype(self) -> DType:
        """The dtype of the first result."""
        return self.type(0)[1]

    def type(self, k: int) -> Type:
        """Shape and dtype of result `k`."""
        found = self.types[k]
        if found is None:
            raise self.unsupported(f"result {k} is no tensor")
        return found

    def wants(self, k: int) -> bool:
        """Whether something uses result `k`."""
        return k in self.used

    def unsupported(self, why: str, hint: str | None = None) -> Unsupported:
        """The error to raise for a node that cannot be converted; all of them are reported together."""
        return Unsupported(why, hint)

    def promoted(self, *values: Value, kind: Promotion = Promotion.DEFAULT) -> DType:
        """The dtype in which PyTorch's rules compute with these tensors and numbers, halves not yet widened."""
        _, result = _promoted(*map(sample, values), type_promotion_kind=kind)
        return DTYPES[result]

    def elementwise(self, text: str, *values: Value, dtype: DType | None = None) -> Value:
        """An expression of X0, X1, … in braces (``{0} + {1}``), which are tensors that broadcast, and numbers.

        Operands are converted to `dtype`, or to that of the result, and to float32 where that is a narrower float; the
        result is rounded once.
        """
        return elementwise(text, values, dtype or self.dtype, self.dtype)


def elementwise(text: str, values: Sequence[Value], dtype: DType, result: DType) -> Value:
    """See `Call.elementwise`."""
    computed = dtype.accumulator
    texts, tensors = operands(values, computed)
    value = text.format(*texts)
    inputs = listed(names(len(tensors), "X"))
    return apply(expression(inputs, cast(f"({value})", result)), *tensors)


def operands(values: Sequence[Value], dtype: DType) -> tuple[list[str], list[Value]]:
    """Text of these values in `dtype`, and the tensors that the texts call X0, X1, …: numbers are literals."""
    tensors = [v for v in values if not isinstance(v, bool | int | float)]
    rank = max((len(v.shape) for v in tensors if number(v) is None), default=-1)
    texts: list[str] = []
    kept: list[Value] = []
    for value in values:
        constant = number(value)
        if constant is not None and (isinstance(value, bool | int | float) or len(value.shape) <= rank):
            texts.append(written(constant, dtype))
        else:
            name = f"X{len(kept)}"
            texts.append(name if dtype_of(value) is dtype else cast(name, dtype))
            kept.append(value)
    return texts, kept


def written(value: Number, dtype: DType) -> str:
    """A number as an operand of `dtype`."""
    if dtype is DType.BOOL:
        return f"({int(bool(value))} == 1)"
    return literal(float(value) if dtype.is_float else int(value))


def number(value: Value) -> Number | None:
    """One number, known now; None for what is computed, and for arrays of several."""
    if isinstance(value, bool | int | float):
        return value
    return value.item() if is_known(value) and value.size == 1 else None


def sample(value: Value) -> Any:
    """A tensor without memory, of the dtype of `value`, that promotes as it does; numbers as they are."""
    if isinstance(value, bool | int | float):
        return value
    return _sample(dtype_of(value), len(value.shape))


@cache
def _sample(dtype: DType, rank: int) -> torch.Tensor:
    return torch.empty((1,) * rank, dtype=torch_dtype(dtype), device="meta")


def axis(value: int, rank: int) -> int:
    """An axis counted from the front; tensors without dimensions have axis 0, as in PyTorch."""
    return value + max(rank, 1) if value < 0 else value


def axes(values: Sequence[int] | int | None, rank: int) -> Shape:
    """Axes counted from the front; all of them where none are named."""
    given = (values,) if isinstance(values, int) else values
    return tuple(sorted({axis(v, rank) for v in given} & set(range(rank)))) if given else tuple(range(rank))
