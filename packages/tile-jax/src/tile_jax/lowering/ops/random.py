"""Random bits and numbers, by Threefry: the same on every device. Other platforms give other bits for the same state."""

from __future__ import annotations

from math import prod

import numpy as np
from tile_ir.dtype import DType
from tile_runtime.ops.moving import joined, sliced
from tile_runtime.ops.threefry import threefry
from tile_runtime.ops.values import Value, apply, is_known

from tile_jax.lowering.elements import converted, elementwise
from tile_jax.lowering.op import Op, Shape
from tile_jax.lowering.ops.moving import reshaped
from tile_jax.lowering.registry import operation


def random_words(key: Value, count: Value, size: int) -> Value:
    """`size` words of 32 bits under a key, counted from `count` on; both uint64 scalars."""
    half = -(-size // 2)
    places = elementwise("({0} + {1})", count, np.arange(half, dtype=np.uint64), shape=(half,))
    words = [part for value in (key, places) for part in _halves(value)]
    first, second = apply(threefry(), *words)
    return sliced(joined([first, second], 0), [slice(0, size)])


def _halves(value: Value) -> tuple[Value, Value]:
    return tuple(converted(elementwise(f"({{0}} >> {k})", value), DType.UINT32) for k in (0, 32))  # pyright: ignore[reportReturnType]


@operation("stablehlo.rng_bit_generator")
def rng_bit_generator(op: Op) -> tuple[Value, Value]:
    """The next state, and bits; the state's first number is the key, the second one counts."""
    made = op.results[1]
    words = prod(made.shape) * max(made.dtype.bits // 32, 1)
    state = converted(op.values[0], DType.UINT64)
    if tuple(state.shape) not in ((2,), (3,)):
        raise op.unsupported(f"its state has the shape {list(state.shape)}, not 2 or 3 numbers of 64 bits")
    key, count = (reshaped(sliced(state, [slice(k, k + 1)]), ()) for k in (0, 1))
    bits = _of_width(random_words(key, count, words), made.dtype, made.shape)
    steps = np.array([0, words, 0][: state.shape[0]], np.uint64)
    after = elementwise("({0} + {1})", state, steps, shape=state.shape)
    return converted(after, op.dtype()), bits


def _of_width(words: Value, dtype: DType, shape: Shape) -> Value:
    """Words of 32 bits as integers of another width."""
    if dtype.bits == 64:
        half = prod(shape)
        low, high = (converted(sliced(words, [slice(k * half, (k + 1) * half)]), DType.UINT64) for k in (0, 1))
        words = elementwise("({0} | ({1} << 32))", low, high)
    return reshaped(converted(words, dtype), shape)


@operation("stablehlo.rng")
def rng(op: Op) -> Value:
    """Numbers between two bounds, or around a mean; each operation of a program has a stream of its own."""
    made = op.result()
    size = prod(made.shape)
    if not is_known(op.values[2]):
        raise op.unsupported("its shape is computed")
    op.walk.streams += 1
    words = random_words(np.array(op.walk.streams, np.uint64), np.array(0, np.uint64), 2 * size)
    one, other = (reshaped(sliced(words, [slice(k * size, (k + 1) * size)]), made.shape) for k in (0, 1))
    low, high = (converted(v, DType.FLOAT64 if made.dtype is DType.FLOAT64 else DType.FLOAT32) for v in op.values[:2])
    unit = [elementwise("((as_float({0} >> 9, 32) + 0.5) * 1.1920928955078125e-07)", v) for v in (one, other)]
    if op.text("rng_distribution") == "NORMAL":
        text = "({0} + {1} * sqrt(-2 * log({2})) * cos(6.283185307179586 * {3}))"
        return converted(elementwise(text, low, high, *unit, shape=made.shape), made.dtype)
    drawn = elementwise("({0} + ({1} - {0}) * {2})", low, high, unit[0], shape=made.shape)
    return converted(elementwise("floor({0})", drawn) if made.dtype.is_integer else drawn, made.dtype)
