"""What flows between operators: NumPy arrays, whose numbers are known now, and Symbols; and Tile text applied to them."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, TypeGuard, cast

import numpy as np
from tile_ir.dtype import DType, from_numpy

from tile_runtime.checks import described
from tile_runtime.symbols import Symbol, constant
from tile_runtime.symbols import apply as apply_function

if TYPE_CHECKING:
    from tile_runtime.function import Function

TEXTS = 4096
"""Tile texts that are kept parsed."""

Array = np.ndarray[Any, Any]
Value = Any
"""An array (known now), a Symbol (on the device), or None (an operand that is absent)."""


class NotInTile(Exception):
    """A tensor is of a dtype that Tile has not: strings, 8- and 4-bit floats, complex numbers."""


def is_known(value: Value) -> TypeGuard[Array]:
    """Whether nothing has to be computed to have its numbers."""
    return isinstance(value, np.ndarray)


def symbol(value: Value) -> Symbol:
    """A value as a symbol: numbers that are known are a constant."""
    return constant(np.array(value, order="C")) if is_known(value) else value


@cache
def tile_dtype(dtype: np.dtype[Any]) -> DType | None:
    """The Tile dtype of a NumPy dtype; None where Tile has none (strings, 8- and 4-bit floats, 4-bit integers …)."""
    try:
        return from_numpy(dtype)
    except TypeError:
        return None


def dtype_of(value: Value) -> DType:
    """The Tile dtype of an array or Symbol; NotInTile where there is none, TypeError for what is neither."""
    try:
        found = value.dtype if isinstance(value, Symbol) else tile_dtype(value.dtype)
    except AttributeError:
        raise no_tensor(value) from None
    if found is None:
        raise NotInTile(f"Tile has no {value.dtype}")
    return found


def no_tensor(value: object) -> TypeError:
    """The error for a value that has neither a shape nor a dtype."""
    return TypeError(
        f"a tensor or an array is wanted, not {described(value)}: tile_runtime.asarray makes one of numbers"
    )


def as_array(value: Value) -> Value:
    """A number of NumPy's, which it makes of arrays without dimensions, as an array; anything else as it is."""
    return np.asarray(cast("Any", value)) if isinstance(value, np.generic) else value


def apply(source: str, *values: Value) -> Any:
    """A Tile function, given as text, on Symbols and arrays: a Symbol or a tuple of them; nothing is computed yet.

    NotInTile where a tensor's dtype is none of Tile's, TypeError where a value is no tensor.
    """
    tensors = [as_array(v) for v in values]
    for tensor in tensors:
        dtype_of(tensor)
    function = parsed(source)
    return apply_function(function, dict(zip(function.inputs, tensors, strict=True)))


@lru_cache(TEXTS)
def parsed(source: str) -> Function:
    """The function of a text."""
    from tile_runtime.function import Function

    return Function(source)
