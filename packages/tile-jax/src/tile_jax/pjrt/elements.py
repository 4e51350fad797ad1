"""Element types: PJRT's numbers for them, MLIR's names, and Tile's dtypes."""

from __future__ import annotations

from typing import NoReturn

from tile_ir.diagnostics import Diagnostic, TileTypeError
from tile_ir.dtype import DType

_LISTED = """
invalid bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 bfloat16 complex64 complex128
float8_e5m2 float8_e4m3fn float8_e4m3b11fnuz float8_e5m2fnuz float8_e4m3fnuz int4 uint4 token int2 uint2 float8_e4m3
float8_e3m4 float8_e8m0fnu float4_e2m1fn int1 uint1
"""
_NAMES = _LISTED.split()
"""NumPy's and ml_dtypes' names, in the order of PJRT's enumeration."""
COUNT = len(_NAMES)

NUMBERS: dict[DType, int] = {dtype: _NAMES.index(dtype.value) for dtype in DType}
_DTYPES = {number: dtype for dtype, number in NUMBERS.items()}
_COMPLEX = {_NAMES.index("complex64"): DType.FLOAT32, _NAMES.index("complex128"): DType.FLOAT64}
_COMPLEX_NUMBERS = {dtype: number for number, dtype in _COMPLEX.items()}


def is_complex(number: int) -> bool:
    """Whether one of PJRT's numbers is that of complex numbers."""
    return number in _COMPLEX


def number_of(dtype: DType, complex: bool) -> int:
    """PJRT's number for a dtype, or for the complex numbers whose parts have it."""
    return _COMPLEX_NUMBERS[dtype] if complex else NUMBERS[dtype]


def dtype_of(number: int) -> DType:
    """The dtype of one of PJRT's numbers, that of a complex number's parts; TileTypeError, naming it, for one that Tile has not."""
    return (
        _DTYPES.get(number)
        or _COMPLEX.get(number)
        or refuse(_NAMES[number] if 0 <= number < len(_NAMES) else f"number {number}")
    )


def refuse(name: str) -> NoReturn:
    """TileTypeError for an element type that Tile lacks."""
    known = ", ".join(d.value for d in DType)
    hint = f"Tile has {known}; jax.default_device(jax.devices('cpu')[0]) computes others"
    raise TileTypeError(Diagnostic("TILE-E952", f"arrays of {name} have no element type on Tile's devices", hint=hint))
