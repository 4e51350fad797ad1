"""Tile text for tensors of any rank: lists of index names, headers, subscripts that broadcast, literals, casts.

A converter writes one function for all ranks and axes: indexes are ``i0, i1, …``, sizes are numbers in the text.

    >>> names(3)
    ('i0', 'i1', 'i2')
    >>> contraction("Y", (2, 1, 4), ("i0", "0", "i2"), "+", "X[i0, i1, i2]")
    'Y[i0, 0, i2 : 2, 1, 4] = +(X[i0, i1, i2]);'
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence

from tile_ir.dtype import DType, Kind

Names = tuple[str, ...]
Shape = tuple[int, ...]


def names(rank: int, letter: str = "i") -> Names:
    """`rank` index names: ``i0``, ``i1``, …"""
    return tuple(f"{letter}{k}" for k in range(rank))


def listed(items: Iterable[object]) -> str:
    """``a, b, c``."""
    return ", ".join(map(str, items))


def at(tensor: str, subscripts: Iterable[object]) -> str:
    """``X[i0, i1]``; of a scalar, ``X[]``."""
    return f"{tensor}[{listed(subscripts)}]"


def aligned(shape: Sequence[int], indexes: Sequence[str]) -> Names:
    """Subscripts of a tensor of `shape` that broadcasts, as in NumPy, to where `indexes` count: 0 where it has one."""
    return tuple(
        "0" if size == 1 else index for size, index in zip(shape, indexes[len(indexes) - len(shape) :], strict=True)
    )


def at_axes(names: Sequence[str], axes: Collection[int], what: str = "0") -> Names:
    """`names` with `what` in the place of each of `axes`."""
    return tuple(what if axis in axes else name for axis, name in enumerate(names))


def without(items: Sequence[str], axes: Collection[int]) -> Names:
    """`items` except those at `axes`."""
    return tuple(item for axis, item in enumerate(items) if axis not in axes)


def contraction(
    target: str, sizes: Sequence[int], subscripts: Sequence[str], aggregation: str, body: str, *more: str
) -> str:
    """``Y[i0 : 4] = +(X[i0, i1]);`` with constraints, or ``default T``, in `more`."""
    where = "".join(f", {c}" if not c.startswith("default ") else f" {c}" for c in more)
    return f"{target}[{listed(subscripts)} : {listed(sizes)}] = {aggregation}({body}){where};"


def function(inputs: Iterable[str], outputs: Iterable[str], *statements: str) -> str:
    """A Tile function; inputs are names, which take any shape."""
    return f"function ({listed(inputs)}) -> ({listed(outputs)}) {{ {' '.join(statements)} }}"


def expression(inputs: str, value: str) -> str:
    """A function of one elementwise statement: ``expression("A, B", "A + B")``."""
    return f"function ({inputs}) -> (Y) {{ Y = {value}; }}"


def reshaped(value: str, shape: Iterable[int]) -> str:
    """`value` in another shape, as text."""
    return f"reshape({listed((value, *shape))})"


def wide(name: str, dtype: DType) -> str:
    """`name` as text, in float32 where it is a narrower float: functions of several steps round once, at their end."""
    return f"as_float({name}, 32)" if dtype in (DType.FLOAT16, DType.BFLOAT16) else name


def literal(number: float) -> str:
    """`number` exactly, as an operand: negative ones stand in brackets."""
    return f"({number!r})" if math.copysign(1, number) < 0 else repr(number)


def saturated(value: str, zero: str | None, dtype: DType) -> str:
    """A float32 value rounded half to even, with its zero point added, in the range of an integer dtype, as text."""
    point = f" + {cast(zero, DType.FLOAT32)}" if zero not in (None, "0") else ""
    return cast(f"(round_even({value}){point})", dtype)


def less(value: str, zero: str | None, dtype: DType) -> str:
    """A quantised value less its zero point, both widened to `dtype`, as text."""
    point = f" - {cast(zero, dtype)}" if zero is not None and zero != "0" else ""
    return f"({cast(value, dtype)}{point})"


_CASTS = {Kind.FLOAT: "as_float", Kind.SIGNED: "as_int", Kind.UNSIGNED: "as_uint", Kind.BOOL: "as_bool"}


def cast(value: str, dtype: DType) -> str:
    """`value` converted to `dtype`, as text."""
    return f"{_conversion(dtype)}({value}, {1 if dtype is DType.BOOL else dtype.bits})"


def bits_as(value: str, dtype: DType) -> str:
    """The bits of `value` as another dtype of its width, as text."""
    return f"bits_{_conversion(dtype)}({value})"


def _conversion(dtype: DType) -> str:
    return "as_bfloat" if dtype is DType.BFLOAT16 else _CASTS[dtype.kind]


def affine(index: str, step: int, start: int) -> str:
    """``step * index + start`` as a subscript."""
    scaled = index if step == 1 else f"{step}*{index}"
    return scaled if not start else f"{scaled} {'+' if start > 0 else '-'} {abs(start)}"
