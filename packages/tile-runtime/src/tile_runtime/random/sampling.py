"""Numbers of several distributions."""

from __future__ import annotations

import operator
from functools import partial
from typing import Any

from tile_ir.dtype import DType

from tile_runtime.arrays import dtype_of
from tile_runtime.checks import wrong_kind
from tile_runtime.numpy.operands import Operand, Result, axis_of, called
from tile_runtime.ops.text import cast, function
from tile_runtime.ops.values import Value, apply
from tile_runtime.random.keys import Shape, bits_of, checked_key, shape_of, words_of

_UNIFORM = "as_float((H ^ L) >> 8, {0}) * 5.9604644775390625e-08"
"""A number in [0, 1)."""
_NORMAL = "sqrt(-2 * log((as_float(H >> 8, {0}) + 1) * 5.9604644775390625e-08)) * cos(as_float(L >> 8, {0}) * 3.7450702829238413e-07)"
"""Box and Muller's, of one number in (0, 1] and one in [0, 2π); at most 5.8."""


def _drawn(key: Operand, shape: Shape, dtype: Any, text: str, *operands: Operand) -> Result:
    """A function of H and L, two words for each cell, and of operands A, B, which broadcast to the shape."""
    found = dtype_of(dtype)
    if not found.is_float:
        raise wrong_kind("these numbers have a float dtype", dtype, "tile.random.randint draws integers")
    names = ("H", "L", *"AB"[: len(operands)])
    source = function(names, ("Y",), f"Y = {cast(text.format(found.accumulator.bits), found)};")

    def drawn(key: Value, *rest: Value) -> Value:
        return apply(source, *words_of(key, shape_of(shape)), *rest)

    return called(drawn, checked_key(key), *operands)


def uniform(key: Operand, shape: Shape = (), low: float = 0.0, high: float = 1.0, dtype: Any = DType.FLOAT32) -> Result:
    """Numbers from `low` to before `high` (which rounding may reach), in steps of 2**-24 of their distance."""
    span = float(high) - float(low)
    scaled = _UNIFORM if (low, high) == (0, 1) else f"{float(low)!r} + {span!r} * ({_UNIFORM})"
    return _drawn(key, shape, dtype, f"({scaled})")


def normal(key: Operand, shape: Shape = (), dtype: Any = DType.FLOAT32) -> Result:
    """Numbers of mean 0 and variance 1, by Box and Muller's method; none beyond 5.8."""
    return _drawn(key, shape, dtype, f"({_NORMAL})")


def exponential(key: Operand, shape: Shape = (), dtype: Any = DType.FLOAT32) -> Result:
    """Numbers of mean 1, at least 0."""
    return _drawn(key, shape, dtype, f"(-log1p(-({_UNIFORM})))")


def bernoulli(key: Operand, p: float | Operand = 0.5, shape: Shape | None = None) -> Result:
    """True with probability `p`, a number or a tensor; in its shape, or in one to which it broadcasts."""
    given = getattr(p, "shape", ()) if shape is None else shape
    return uniform(key, given) < p


def randint(key: Operand, shape: Shape, low: int, high: int, dtype: Any = DType.INT32) -> Result:
    """Integers from `low` to before `high`; the first of them come up more often by at most (high - low) / 2**32."""
    found, start, end = dtype_of(dtype), operator.index(low), operator.index(high)
    if not found.is_integer or not found.min_value <= start < end <= found.max_value + 1:
        hint = "such as tile.random.randint(key, (3,), 0, 10); low < high, both in the range of the dtype"
        raise wrong_kind(f"bounds are integers of {found}", (low, high), hint)
    wide = DType.UINT64 if found.bits == 64 else DType.UINT32
    return called(
        partial(_integers, shape=shape_of(shape), low=start, span=end - start, wide=wide, dtype=found), checked_key(key)
    )


def _integers(key: Value, shape: tuple[int, ...], low: int, span: int, wide: DType, dtype: DType) -> Value:
    number = "B" if span == 2**wide.bits else f"mod(B, {span})"
    text = function("B", "Y", f"Y = {cast(f'({number} + {low % 2**wide.bits})', dtype)};")
    return apply(text, bits_of(key, shape, wide))


def permutation(key: Operand, x: int | Operand, axis: int = 0) -> Result:
    """The numbers before `x` in random order (int32), or the parts of a tensor along `axis`."""
    from tile_runtime import numpy as tnp
    from tile_runtime.random.keys import bits

    size = x if isinstance(x, int) else x.shape[axis_of(len(x.shape), axis)]
    order = tnp.argsort(bits(key, (size,)))
    return order if isinstance(x, int) else tnp.take(x, order, axis=axis)


def categorical(key: Operand, logits: Operand, axis: int = -1, shape: Shape | None = None) -> Result:
    """For each row along `axis` one place (int32), with probability ``softmax(logits)``.

    With `shape`, that of the result, to which the rows broadcast: ``categorical(key, logits, shape=(100,))`` draws 100 from one row.
    """
    from tile_runtime import numpy as tnp

    along = axis_of(len(logits.shape), axis)
    if shape is None:
        return tnp.argmax(logits - tnp.log(exponential(key, logits.shape)), axis=along)
    rows, wanted = tnp.moveaxis(logits, along, -1), shape_of(shape)
    batch = rows.shape[:-1]
    if len(batch) > len(wanted) or any(n not in (1, m) for n, m in zip(batch[::-1], wanted[::-1], strict=False)):
        raise wrong_kind(
            f"rows of logits, of which there are {batch}, broadcast to the shape", shape, f"such as {batch}"
        )
    noise = -tnp.log(exponential(key, (*wanted, rows.shape[-1])))
    return tnp.argmax(rows + noise, axis=-1)
