"""Complex numbers: Tile has none, and computes with their parts.

A complex value of a graph is a pair of values. What moves or adds numbers is done to each part; products and functions are
formulas of parts (`complex_functions`, `complex_elementary`), transforms of Fourier products with cosines and sines (`fourier`). Tensors that go in and out are their parts
side by side, as they lie in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, TypeVar, cast

import numpy as np
import torch
from tile_ir.dtype import DType
from tile_runtime.ops.moving import joined, reshaped, sliced
from tile_runtime.ops.values import Value, dtype_of

from tile_torch.call import Call, Unsupported
from tile_torch.registry import Overload, find

aten = torch.ops.aten
PARTS: dict[torch.dtype, DType] = {torch.complex64: DType.FLOAT32, torch.complex128: DType.FLOAT64}
"""The dtypes of the parts of complex numbers."""
Formula = Callable[..., Any]
AnyFormula = TypeVar("AnyFormula", bound=Formula)
_table: dict[Overload, Formula] = {}


@dataclass(frozen=True, slots=True, eq=False)
class Complex:
    """A value by its parts."""

    real: Value
    imag: Value

    @property
    def shape(self) -> tuple[int, ...]:
        """That of each part."""
        return tuple(self.real.shape)


def is_complex(traced: object) -> bool:
    """Whether a traced value is a tensor of complex numbers."""
    return isinstance(traced, torch.Tensor) and traced.dtype in PARTS


def apart(value: Value) -> Complex:
    """The numbers whose parts lie along the last axis of a tensor."""
    shape = tuple(value.shape[:-1])
    whole = [slice(None)] * len(shape)
    return Complex(*(reshaped(sliced(value, [*whole, slice(k, k + 1)]), shape) for k in range(2)))


def together(value: Complex) -> Value:
    """A tensor with the parts along its last axis."""
    return joined([reshaped(part, (*value.shape, 1)) for part in (value.real, value.imag)], len(value.shape))


def parts(value: Any) -> tuple[Any, Any]:
    """Both parts of an operand: a real one has a second part of None."""
    return (value.real, value.imag) if isinstance(value, (Complex, complex)) else (value, None)


# --- operators ---------------------------------------------------------------------------------------------


def formula(*targets: Overload) -> Callable[[AnyFormula], AnyFormula]:
    """Registers what operators give of complex numbers, called as converters are."""

    def register(function: AnyFormula) -> AnyFormula:
        _table.update(dict.fromkeys(targets, function))
        return function

    return register


@cache
def formulas() -> Mapping[Overload, Formula]:
    """Every formula by its operator."""
    for name in ("complex_functions", "complex_elementary", "fourier"):
        import_module(f"tile_torch.{name}")
    return _table


def converted(call: Call, arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """What an operator gives that takes or makes complex numbers; Unsupported where it has no form for them."""
    found = formulas().get(call.target)
    if found is not None:
        return found(call, *arguments, **named)
    if call.target in _EACH:
        return _each(call, arguments, named)
    raise Unsupported("Tile has no complex numbers, and computes this operator with real ones alone")


# --- each part ---------------------------------------------------------------------------------------------

_MOVING = (
    aten.view.default, aten._unsafe_view.default, aten.reshape.default, aten.squeeze.default, aten.squeeze.dim,
    aten.squeeze.dims, aten.unsqueeze.default, aten.permute.default, aten.t.default, aten.transpose.int, aten.expand.default,
    aten.repeat.default, aten.slice.Tensor, aten.select.int, aten.flip.default, aten.roll.default, aten.index.Tensor,
    aten.index_select.default, aten.gather.default, aten.constant_pad_nd.default, aten.clone.default, aten.alias.default,
    aten.detach.default, aten.neg.default, aten.sum.default, aten.sum.dim_IntList, aten.mean.default, aten.mean.dim,
    aten.embedding.default, aten.split_with_sizes.default, aten.unbind.int, aten.diagonal.default, aten.copy.default,
    aten.slice_scatter.default, aten.select_scatter.default, aten.diagonal_scatter.default, aten.scatter.src,
    aten.scatter_add.default, aten.index_put.default, aten._unsafe_index_put.default, aten.cumsum.default, aten.unfold.default,
    aten.unfold_backward.default, aten.as_strided.default,
)  # fmt: skip
_SUMS = (aten.add.Tensor, aten.sub.Tensor, aten.add.Scalar, aten.sub.Scalar)
_ADDING = (*_SUMS, aten.cat.default, aten.where.self)
"""Operators in which a real operand is a complex one whose other part is 0."""
_EACH = frozenset({*_MOVING, *_ADDING})


def _each(call: Call, arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """The operator on real parts, and on imaginary ones."""
    converter = find(call.target)
    if converter is None:
        raise Unsupported("Tile has no converter for it")
    imag = _side(arguments, 1)
    if call.target in _ADDING:
        imag = [_nothing(one, of, call.target in _SUMS) for one, of in zip(imag, arguments, strict=True)]
    given = (_side(arguments, 0), imag)
    sides = [converter(call, *own, **_side(dict(named), k)) for k, own in enumerate(given)]
    if isinstance(sides[0], (tuple, list)):
        return [Complex(*parts) for parts in zip(*sides, strict=True)]
    return Complex(*sides)


def _side(given: Any, k: int) -> Any:
    """Arguments as the real (0) or the imaginary (1) part has them."""
    match given:
        case Complex() | complex():
            return (given.real, given.imag)[k]
        case list() | tuple():
            return [_side(v, k) for v in cast("Sequence[Any]", given)]
        case dict():
            return {name: _side(v, k) for name, v in cast("dict[str, Any]", given).items()}
        case _:
            return given


def _nothing(imag: Any, given: Any, numbers: bool) -> Any:
    """The imaginary part of an operand: zeros of a real one, and of real `numbers`; conditions are as they are."""
    match given:
        case Complex() | complex():
            return imag
        case list() | tuple():
            pairs = zip(imag, cast("Sequence[Any]", given), strict=True)
            return [_nothing(one, of, numbers) for one, of in pairs]
        case bool() | int() | float():
            return 0 if numbers else given
        case _ if dtype_of(given) is DType.BOOL:
            return given
        case _:
            return np.zeros(given.shape, dtype_of(given).numpy)
