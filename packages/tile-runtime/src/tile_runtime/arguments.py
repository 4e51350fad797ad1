"""Matching what a caller passes with a function's inputs; errors name the argument."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from tile_ir.diagnostics import Diagnostic, TileTypeError
from tile_ir.dtype import DType, from_numpy

from tile_runtime.arrays import readable

if TYPE_CHECKING:
    from tile_ir.program.nodes import TensorType

    from tile_runtime.signature import Signature

TYPES = 4096
"""Types that are kept: an expression of small tensors asks for some in each of its operators."""


def collect(function: Signature, args: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """Values by input name, bound inputs included; TileTypeError for missing, surplus, unknown or double ones."""
    names = function.arguments
    if len(args) > len(names):
        raise mismatch(function, f"takes {_count(len(names))} ({', '.join(names)}), {len(args)} were given")
    values: dict[str, Any] = dict(zip(names, args, strict=False))
    for name, value in named.items():
        if name not in names:
            raise unknown_name(function, "input", name, names)
        if name in values:
            raise mismatch(function, f"got input {name!r} twice, by position and by name")
        values[name] = value
    missing = [n for n in names if n not in values]
    if missing:
        raise mismatch(function, f"misses input {', '.join(map(repr, missing))}", f"its inputs are {', '.join(names)}")
    everything = {**function.bound, **values} if function.bound else values
    return {n: everything[n] for n in function.inputs}


def _count(number: int) -> str:
    return "1 input" if number == 1 else f"{number} inputs"


def mismatch(function: Signature, message: str, hint: str | None = None) -> TileTypeError:
    """An error about the inputs or outputs of `function`."""
    return TileTypeError(Diagnostic("TILE-E504", f"function {function.name!r} {message}", hint=hint))


def unknown_name(function: Signature, kind: str, name: object, names: Sequence[str]) -> TileTypeError:
    """An error for a `kind` ("input", "output") that `function` does not have."""
    close = get_close_matches(str(name), names, n=1)
    known = f"its {kind}s are {', '.join(names)}" if names else f"it has no {kind}s to give"
    return mismatch(function, f"has no {kind} {name!r}", f"did you mean {close[0]!r}? {known}" if close else known)


def input_type(name: str, value: Any) -> TensorType:
    """The Tile type of an argument: anything with `shape` and a Tile `dtype`, or what NumPy can make an array of."""
    dtype = getattr(value, "dtype", None)
    if isinstance(dtype, DType):
        return _type(dtype, tuple(value.shape))
    array = value if type(value) is np.ndarray and value.dtype.kind in "biuf" else readable(name, value)  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    try:
        return _type(from_numpy(array.dtype), array.shape)  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType]
    except TypeError:  # float128 and its like; `readable` words the error
        readable(name, value)
        raise


@lru_cache(TYPES)
def _type(dtype: DType, shape: tuple[int, ...]) -> TensorType:
    from tile_ir.program.nodes import TensorType

    return TensorType(dtype, shape)
