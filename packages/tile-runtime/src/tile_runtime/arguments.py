"""Matching what a caller passes with a function's inputs; errors name the argument."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tile_ir.diagnostics import Diagnostic, TileTypeError
from tile_ir.dtype import from_numpy

from tile_runtime.arrays import readable

if TYPE_CHECKING:
    from tile_lang.program import TensorType

    from tile_runtime.function import Callable_


def collect(function: Callable_, args: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """Values by input name, bound inputs included; TileTypeError for missing, surplus, unknown or double ones."""
    names = function.arguments
    if len(args) > len(names):
        raise _mismatch(function, f"takes {len(names)} inputs ({', '.join(names)}), {len(args)} were given")
    values: dict[str, Any] = dict(zip(names, args, strict=False))
    for name, value in named.items():
        if name not in names:
            raise _mismatch(function, f"has no input {name!r}", hint=f"its inputs are {', '.join(names)}")
        if name in values:
            raise _mismatch(function, f"got input {name!r} twice, by position and by name")
        values[name] = value
    missing = [n for n in names if n not in values]
    if missing:
        raise _mismatch(function, f"misses input {', '.join(map(repr, missing))}")
    everything = {**function.bound, **values} if function.bound else values
    return {n: everything[n] for n in function.inputs}


def _mismatch(function: Callable_, message: str, hint: str | None = None) -> TileTypeError:
    return TileTypeError(Diagnostic("TILE-E504", f"function {function.name!r} {message}", hint=hint))


def input_type(name: str, value: Any) -> TensorType:
    """The Tile type of an argument: anything with `shape` and `dtype`, or what NumPy can make an array of."""
    from tile_ir.dtype import DType
    from tile_lang.program import TensorType

    dtype = getattr(value, "dtype", None)
    if isinstance(dtype, DType):
        return TensorType(dtype, tuple(value.shape))
    array = readable(name, value)
    return TensorType(from_numpy(array.dtype), array.shape)
