"""Element types of Tile tensors and the one promotion table every stage shares.

The rules stand in `docs/language.md`.
"""

from __future__ import annotations

from enum import Enum
from functools import cache
from math import copysign
from typing import Any

import numpy as np
import numpy.typing as npt


class Kind(Enum):
    """The arithmetic family of a dtype."""

    BOOL = "bool"
    SIGNED = "int"
    UNSIGNED = "uint"
    FLOAT = "float"


class DType(Enum):
    """An element type; the value is its name in Tile, Stripe and semtree text."""

    BOOL = "bool"
    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    UINT8 = "uint8"
    UINT16 = "uint16"
    UINT32 = "uint32"
    UINT64 = "uint64"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT32 = "float32"
    FLOAT64 = "float64"

    __hash__ = object.__hash__  # members are unique, and Enum's own goes by way of Python code

    def __str__(self) -> str:
        return self.value

    def __eq__(self, other: object) -> bool:
        """Also to a NumPy dtype or a name of it: ``tensor.dtype == np.float32``."""
        if self is other:
            return True
        if other is None or isinstance(other, (DType, Enum)):
            return False
        try:
            return from_numpy(other) is self  # pyright: ignore[reportArgumentType]
        except TypeError:
            return False

    @property
    def dtype(self) -> np.dtype[Any]:
        """The same for NumPy, which takes what has this as a dtype: ``np.dtype(tensor.dtype)``."""
        return self.numpy

    @property
    def kind(self) -> Kind:
        return _KINDS[self]

    @property
    def bits(self) -> int:
        """Width in bits (8 for bool: one byte holds 0 or 1)."""
        return _BITS[self]

    @property
    def bytes(self) -> int:
        return _BITS[self] // 8

    @property
    def is_float(self) -> bool:
        return _KINDS[self] is Kind.FLOAT

    @property
    def is_integer(self) -> bool:
        """True for the signed and unsigned integers, not for bool."""
        return _KINDS[self] in (Kind.SIGNED, Kind.UNSIGNED)

    @property
    def is_signed(self) -> bool:
        return _KINDS[self] is Kind.SIGNED

    @property
    def accumulator(self) -> DType:
        """The dtype in which sums and products of this dtype accumulate."""
        return DType.FLOAT32 if self in (DType.FLOAT16, DType.BFLOAT16) else self

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype; bfloat16 needs the `ml_dtypes` extra and raises ImportError without it."""
        return _numpy_dtype(self)

    @property
    def min_value(self) -> int | float:
        """The smallest value: -inf for floats, 0 for bool."""
        return _limits(self)[0]

    @property
    def max_value(self) -> int | float:
        """The largest value: inf for floats, 1 for bool."""
        return _limits(self)[1]

    def number(self, value: int | float) -> int | float | bool:
        """The value as Python's number of this kind."""
        return float(value) if self.is_float else bool(value) if self is DType.BOOL else int(value)


_KINDS: dict[DType, Kind] = {
    d: Kind.BOOL
    if d.value == "bool"
    else Kind.FLOAT
    if "float" in d.value
    else Kind.UNSIGNED
    if d.value.startswith("uint")
    else Kind.SIGNED
    for d in DType
}
_BITS: dict[DType, int] = {
    d: 8 if d is DType.BOOL else int(d.value.lstrip("abcdefghijklmnopqrstuvwxyz")) for d in DType
}


@cache
def _numpy_dtype(dtype: DType) -> np.dtype[Any]:
    if dtype is DType.BFLOAT16:
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(dtype.value)


@cache
def _limits(dtype: DType) -> tuple[int | float, int | float]:
    if dtype.is_float:
        return (float("-inf"), float("inf"))
    if dtype is DType.BOOL:
        return (0, 1)
    if dtype.is_signed:
        return (-(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1)
    return (0, (1 << dtype.bits) - 1)


def from_numpy(dtype: npt.DTypeLike) -> DType:
    """The DType of a NumPy dtype of any byte order; TypeError when Tile has none."""
    return _from_numpy(np.dtype(dtype))


@cache
def _from_numpy(dtype: np.dtype[Any]) -> DType:
    name = dtype.newbyteorder("=").name
    try:
        return DType(name)
    except ValueError:
        raise TypeError(f"Tile has no element type for NumPy dtype {name!r}") from None


def promote(left: DType, right: DType) -> DType:
    """The dtype of an operation on two tensors: symmetric, and a float wins over any integer.

    Floats: the wider; float16 with bfloat16 gives float32. Integers of one signedness: the wider.
    Signed with unsigned: the narrowest signed type that holds both, at most int64. Bool yields.
    """
    if left is right:
        return left
    if left.is_float or right.is_float:
        return _promote_floats(left, right)
    if left is DType.BOOL or right is DType.BOOL:
        return right if left is DType.BOOL else left
    if left.kind is right.kind:
        return left if left.bits >= right.bits else right
    signed, unsigned = (left, right) if left.is_signed else (right, left)
    bits = min(64, max(signed.bits, unsigned.bits * 2))
    return DType(f"int{bits}")


def _promote_floats(left: DType, right: DType) -> DType:
    if not (left.is_float and right.is_float):
        return left if left.is_float else right
    if left.bits == right.bits:
        return DType.FLOAT32
    return left if left.bits > right.bits else right


def same_number(left: float, right: float) -> bool:
    """Equal as constants are: 0.0 and -0.0 are two numbers, and NaN equals itself."""
    if left == right:
        return left != 0 or copysign(1, left) == copysign(1, right)
    return left != left and right != right
