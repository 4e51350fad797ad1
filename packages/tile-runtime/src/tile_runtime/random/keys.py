"""Keys, and the bits that follow from them."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from tile_hal.interfaces import Device
from tile_ir.diagnostics import Diagnostic, TileTypeError
from tile_ir.dtype import DType

from tile_runtime.checks import described, wrong_kind
from tile_runtime.numpy.operands import Operand, Result, called, made
from tile_runtime.operators import Operators
from tile_runtime.ops.moving import reshaped
from tile_runtime.ops.text import at, cast, contraction, function
from tile_runtime.ops.threefry import threefry
from tile_runtime.ops.values import Value, apply
from tile_runtime.pending import Pending
from tile_runtime.tensor import checked_shape

Shape = int | Sequence[int]
MOST = 2**31 - 1
"""Numbers that one call draws at most: places are counted in int32."""


def key(seed: int, device: Device | str | None = None) -> Result:
    """The key of a seed, an integer from 0 to before 2**64 or an integer scalar of 32 bits: uint32[2]."""
    if isinstance(seed, Operators):
        if seed.shape or not seed.dtype.is_integer:
            raise _wrong_seed(seed)
        return called(partial(apply, function("S", "K", f"A = {cast('S', DType.UINT32)};", *_pair("0 * A", "A"))), seed)
    try:
        number = operator.index(seed)
    except TypeError:
        raise _wrong_seed(seed) from None
    if not 0 <= number < 2**64:
        raise _wrong_seed(seed)
    return made(np.array([number >> 32, number & 0xFFFFFFFF], np.uint32), device)


def _wrong_seed(seed: object) -> TileTypeError:
    return wrong_kind("a seed is an integer from 0 to before 2**64", seed, "such as tile.key(0)")


def _pair(high: str, low: str) -> tuple[str, ...]:
    """Statements that put two words beside each other in K."""
    join = contraction("K", (2,), ("1",), "=", at("L", ()), "default P")
    return (f"H = {high};", f"L = {low};", contraction("P", (2,), ("0",), "=", at("H", ())), join)


def split(key: Operand, n: int = 2) -> Any:
    """`n` keys from one, as uint32[n, 2], which unpacks: ``key, other = split(key)``. The old key is not used again."""
    count = operator.index(n)
    if count < 1:
        raise wrong_kind("the number of keys is an integer of at least 1", n, "such as tile.random.split(key, 3)")
    return _settled(called(partial(_split, count=count), checked_key(key)))


def _split(key: Value, count: int) -> Value:
    high, low = _words(key, (count,))
    first = contraction("P", (count, 2), ("i0", "0"), "=", "H[i0]")
    return apply(
        function("HL", "K", first, contraction("K", (count, 2), ("i0", "1"), "=", "L[i0]", "default P")), high, low
    )


def fold_in(key: Operand, number: int | Operand) -> Result:
    """A key from a key and an integer (of 32 bits, a tensor's too): of a step, a layer, a worker."""
    if not isinstance(number, Operators):
        number = np.array(operator.index(number) & 0xFFFFFFFF, np.uint32)
    return _settled(called(_folded, checked_key(key), number))


def _settled(key: Any) -> Any:
    """Keys are computed at once: what is drawn by them is then the same program for every key."""
    if isinstance(key, Pending):
        key.settle()
    return key


def _folded(key: Value, number: Value) -> Value:
    low = apply(function("N", "L", f"L = {cast('N', DType.UINT32)};"), number)
    first, second = apply(threefry(), *_halves(key), np.zeros((), np.uint32), low)
    return apply(
        function(
            "HL",
            "K",
            contraction("P", (2,), ("0",), "=", "H[]"),
            contraction("K", (2,), ("1",), "=", "L[]", "default P"),
        ),
        first,
        second,
    )


def bits(key: Operand, shape: Shape = (), dtype: Any = DType.UINT32) -> Result:
    """Random bits, in an unsigned dtype."""
    from tile_runtime.arrays import dtype_of

    found = dtype_of(dtype)
    if found.is_signed or not found.is_integer:
        raise wrong_kind("bits have an unsigned dtype", dtype, "such as tile.random.bits(key, (3,), 'uint8')")
    return called(partial(bits_of, shape=shape_of(shape), dtype=found), checked_key(key))


def bits_of(key: Value, shape: Sequence[int], dtype: DType) -> Value:
    """See `bits`, among symbols."""
    text = f"({cast('H', dtype)} << 32) | {cast('L', dtype)}" if dtype.bits == 64 else cast("(H ^ L)", dtype)
    return apply(function("HL", "B", f"B = {text};"), *words_of(key, shape))


def words_of(key: Value, shape: Sequence[int]) -> tuple[Value, Value]:
    """Two independent words of 32 bits for each cell."""
    high, low = _words(key, (math.prod(shape),))
    return reshaped(high, shape), reshaped(low, shape)


def _words(key: Value, shape: tuple[int]) -> tuple[Value, Value]:
    count = shape[0]
    if count > MOST:
        raise TileTypeError(
            Diagnostic("TILE-E545", f"{count} random numbers at once", hint="split the key, and draw parts")
        )
    zeros = contraction("Z", (count,), ("i0",), "=", "K[]")
    first, second = _halves(key)
    place = apply(function("K", "C", zeros, f"C = {cast('index(Z, 0)', DType.UINT32)};"), first)
    return apply(threefry(), first, second, np.zeros((), np.uint32), place)


def _halves(key: Value) -> list[Value]:
    return [apply(function("K", "H", contraction("H", (), (), "+", f"K[{k}]")), key) for k in (0, 1)]


def shape_of(shape: Shape) -> tuple[int, ...]:
    return checked_shape((shape,) if isinstance(shape, int) else shape)


def checked_key(key: Any) -> Any:
    """The key; TileTypeError for what is none."""
    dtype, shape = getattr(key, "dtype", None), getattr(key, "shape", None)
    if shape == (2,) and (dtype is DType.UINT32 or dtype == np.uint32):
        return _settled(key)
    hint = "make one with tile.key(seed)"
    if shape is not None and len(shape) == 2 and shape[1] == 2:
        hint = "these are several keys: take one, keys[0], or map over them with tile.vmap"
    raise TileTypeError(Diagnostic("TILE-E545", f"a key is uint32[2], not {described(key)}", hint=hint))
