"""What the functions take: Tensors, Symbols, arrays and Python numbers."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from tile_hal.interfaces import Device

from tile_runtime import tensor
from tile_runtime.checks import described
from tile_runtime.operators import Operators
from tile_runtime.ops import elementwise
from tile_runtime.ops.values import apply, as_array, no_tensor
from tile_runtime.pending import through
from tile_runtime.symbols import constant, making

Operand = Any
"""A Tensor, a Symbol, a NumPy array, or a Python number beside one of them."""
Result = Any
"""A Tensor that is computed when somebody looks, or a Symbol where one was given."""
Axes = int | Sequence[int] | None


def called(function: Callable[..., Any], *operands: Operand, **named: Any) -> Result:
    """`function`, which is made for Symbols, on any operands; without a Tensor among them the first goes to the default device."""
    values = [as_array(v) for v in operands]
    if not any(isinstance(v, Operators) for v in values):
        values = [v if elementwise.is_number(v) else made(v) for v in values]
        if all(map(elementwise.is_number, values)):
            values[0] = made(values[0])
    return through(partial(function, **named) if named else function, *values)


def made(value: Any, device: Device | str | None = None) -> Any:
    """An array as a Tensor; as a constant of the program, whatever its device, where a Python function is traced."""
    return constant(value) if making.get() and device is None else tensor.asarray(value, device)


def elementary(name: str, *operands: Operand) -> Result:
    """An operator of `ops.elementwise`; Python numbers become tensors of the dtype that they meet."""
    values = [as_array(v) for v in operands]
    source, *tensors = elementwise.form(name, _comparable(values) if name in elementwise.COMPARISONS else values)
    return called(partial(apply, source), *tensors)


def _comparable(values: list[Operand]) -> list[Operand]:
    """Both operands as they are; zeros and 1 or -1 where one is an integer beyond all that the dtype of the other holds."""
    met, numbers = elementwise.meeting(values), [v for v in values if elementwise.is_number(v)]
    if len(numbers) == len(values) or all(elementwise.holds(met, v) for v in numbers):
        return values
    return [(1 if v > 0 else -1) if elementwise.is_number(v) else called(elementwise.nothing, v) for v in values]


def shape_of(x: Operand) -> tuple[int, ...]:
    """The shape of a tensor or an array; TypeError for what is neither."""
    try:
        return tuple(x.shape)
    except AttributeError:
        raise no_tensor(x) from None


def integer_of(what: str, given: Any) -> int:
    """`given`, which is called `what`, as an integer; TypeError for what is none."""
    try:
        return operator.index(given)
    except TypeError:
        raise TypeError(f"{what} is an integer, not {described(given)}: such as {what}=2") from None


def count_of(what: str, given: Any) -> int:
    """`given`, which is called `what`, as an integer of at least 0; TypeError for what is none, ValueError for less."""
    if (count := integer_of(what, given)) < 0:
        raise ValueError(f"{what} is at least 0, not {count}")
    return count


def numbers_of(what: str, given: Any, *, whole: bool = False) -> npt.NDArray[Any]:
    """A number or several, integers where they are `whole`, as an array; TypeError for anything else."""
    found = np.asarray(given)
    if found.size and found.dtype.kind not in ("iu" if whole else "biuf"):
        kind, such = ("an integer", 2) if whole else ("a number", 0.5)
        raise TypeError(f"{what} is {kind} or several, not {described(given)}: such as {what}={such}")
    return found


def integers_of(what: str, given: Any) -> tuple[int, ...]:
    """One integer, or several, as a tuple; TypeError for anything else."""
    try:
        return tuple(map(operator.index, given)) if hasattr(given, "__iter__") else (operator.index(given),)
    except TypeError:
        raise TypeError(f"{what} is an integer or several, not {described(given)}: such as {what}=(2, 3)") from None


def several(arrays: Sequence[Operand]) -> list[Operand]:
    """Tensors in a list; TypeError where they are in none."""
    if isinstance(arrays, str) or not hasattr(arrays, "__iter__"):
        raise TypeError(f"several tensors are wanted, not {described(arrays)}: such as [a, b]")
    return list(arrays)


def axis_of(rank: int, axis: int) -> int:
    """An axis counted from the front; IndexError where there is no such, TypeError for what is no integer."""
    if not hasattr(axis, "__index__"):
        raise TypeError(f"an axis is one integer, not {described(axis)}")
    place = operator.index(axis)
    if not -rank <= place < rank:
        raise IndexError(f"axis {axis} of a tensor with {rank} dimensions")
    return place % rank


def axes_of(rank: int, axis: Axes) -> tuple[int, ...]:
    """Axes counted from the front: all of them for None. ValueError for one that is named twice."""
    if axis is None:
        return tuple(range(rank))
    given = axis if isinstance(axis, Sequence) else (axis,)
    found = tuple(axis_of(rank, a) for a in given)
    if len(set(found)) < len(found):
        raise ValueError(f"axes {tuple(given)} name one twice")
    return found
