"""What flows between the nodes of a graph while it is imported."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np
from tile_ir.dtype import DType
from tile_runtime.ops.values import Array, tile_dtype
from tile_runtime.symbols import Symbol


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """A value that the host will hold when the model runs, of a dtype that no device program has (such as float8)."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


class Poison:
    """What a node that is not supported gives: whatever needs it is passed over."""


Leaf = Array | Symbol | Held | Poison | None
Value = Any
"""An array (known now), a Symbol (on the device), a Held, a list of values (a sequence), or None (an absent optional)."""


def is_array(value: object) -> TypeGuard[Array]:
    """Whether the numbers are known."""
    return isinstance(value, np.ndarray)


def frozen(value: Value) -> Value:
    """The value, whose array nobody may write to from now on: constants are read in place, not copied."""
    if isinstance(value, np.ndarray):
        value.flags.writeable = False
    return value  # pyright: ignore[reportUnknownVariableType]


def is_list(value: object) -> TypeGuard[list[Any]]:
    """Whether it is a sequence."""
    return isinstance(value, list)


def leaves(value: Value) -> Iterator[Leaf]:
    """The value itself, or every value of a sequence."""
    if isinstance(value, list):
        for item in value:  # pyright: ignore[reportUnknownVariableType]
            yield from leaves(item)
    else:
        yield value


def is_known(value: Value) -> bool:
    """Whether nothing in it has to be computed."""
    return all(leaf is None or isinstance(leaf, np.ndarray) for leaf in leaves(value))


def dtype_of(value: Value) -> DType | None:
    """The Tile dtype of an array or Symbol; None where Tile has none."""
    return value.dtype if isinstance(value, Symbol) else tile_dtype(value.dtype)


def described(value: Value) -> str:
    """Type and shape, as errors show them: `float32[1,3,8,8]`."""
    if value is None:
        return "(absent)"
    if isinstance(value, Poison):
        return "(unknown)"
    if isinstance(value, list):
        return f"sequence of {len(value)}"  # pyright: ignore[reportUnknownArgumentType]
    dtype = "string" if value.dtype == np.dtype(object) else value.dtype
    return f"{dtype}[{','.join(map(str, value.shape))}]"
