"""NumPy's functions of Tensors and Symbols.

Of Symbols, as inside of `tile.jit`, they are Tile's own. Of Tensors the operators are; whoever calls another of
NumPy's functions by its name looks at the numbers, and gets NumPy's arrays.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from math import prod
from typing import Any, cast

import numpy as np

from tile_runtime.above import functions

Function = Callable[..., Any]


def _shape(x: Any) -> tuple[int, ...]:
    return tuple(x.shape)


def _rank(x: Any) -> int:
    return len(x.shape)


def _size(x: Any) -> int:
    return prod(x.shape)


_SIZES: dict[Any, Function] = {np.shape: _shape, np.ndim: _rank, np.size: _size}
"""What no numbers are asked for."""
_OPERATORS = frozenset(
    [
        "add",
        "subtract",
        "multiply",
        "divide",
        "floor_divide",
        "remainder",
        "power",
        "matmul",
        "bitwise_and",
        "bitwise_or",
        "bitwise_xor",
        "left_shift",
        "right_shift",
        "less",
        "less_equal",
        "greater",
        "greater_equal",
        "equal",
        "not_equal",
    ]
)
"""What Python's operators between arrays and Tensors call."""


@cache
def _ours(function: Any) -> Function | None:
    """The function of Tile's that a function or ufunc of NumPy's is; None where there is none."""
    library, name, home = functions.module, function.__name__, np
    if (getattr(function, "__module__", None) or "").endswith("linalg"):
        library, home = library.linalg, np.linalg
    theirs = getattr(home, name, None) is function
    return getattr(library, name) if theirs and name in library.__all__ else None


def ufunc(operands: tuple[Any, ...], function: np.ufunc, method: str, named: dict[str, Any], kind: type) -> Any:
    """A ufunc of `operands`, of which those of class `kind` are Tensors and Symbols."""
    ours = _ours(function) if function.__name__ in _OPERATORS or _symbolic(operands, kind) else None
    if ours is not None and method == "__call__" and not named:
        return ours(*operands)
    return getattr(function, method)(*_hosted(operands, kind), **_hosted(named, kind))


def function(function: Function, given: tuple[Any, ...], named: dict[str, Any], kind: type) -> Any:
    """A function of NumPy's; one with parameters that Tile's has not is NumPy's too, which refuses Symbols."""
    if function in _SIZES and not named and len(given) == 1:
        return _SIZES[function](*given)
    ours = _ours(function) if _symbolic((*given, *named.values()), kind) else None
    wanted = {name: value for name, value in named.items() if value is not None}
    if ours is not None and _fits(ours, given, wanted):
        return ours(*given, **wanted)
    return function(*_hosted(given, kind), **_hosted(named, kind))


def _symbolic(value: Any, kind: type) -> bool:
    """Whether it is a Symbol, or has one inside of tuples and lists."""
    if isinstance(value, (tuple, list)):
        return any(_symbolic(v, kind) for v in cast("list[Any]", value))
    return isinstance(value, kind) and value.symbolic  # pyright: ignore[reportAttributeAccessIssue]


def _fits(function: Function, given: tuple[Any, ...], named: dict[str, Any]) -> bool:
    try:
        inspect.signature(function).bind(*given, **named)
    except TypeError:
        return False
    return True


def _hosted(value: Any, kind: type) -> Any:
    """The numbers of Tensors, inside of tuples, lists and dicts too."""
    if isinstance(value, kind):
        return np.asarray(value)
    if isinstance(value, (tuple, list)):
        items = cast("list[Any]", value)
        return type(items)([_hosted(v, kind) for v in items])
    if isinstance(value, dict):
        return {k: _hosted(v, kind) for k, v in cast("dict[Any, Any]", value).items()}
    return value
