"""What calls will give, without compiling."""

from __future__ import annotations

from typing import Any, NamedTuple

from tile_ir.dtype import DType
from tile_ir.program.nodes import Program

from tile_runtime.arguments import collect, input_type
from tile_runtime.checks import check_function
from tile_runtime.function import BaseFunction
from tile_runtime.jit import Jitted, as_array
from tile_runtime.trees import unflatten


class ShapeDtype(NamedTuple):
    """What a result will be: `shape` and `dtype` (a `tile_ir` DType; `str(dtype)` is its name)."""

    shape: tuple[int, ...]
    dtype: DType


def eval_shape(function: BaseFunction | Jitted, *args: Any, **named: Any) -> Any:
    """The shape and dtype of each result, without compiling; arguments are arrays, Tensors or placeholders.

    One `ShapeDtype` or a tuple of them; of a function of arrays (`tile.jit`) a tree of them, as it returns tensors.
    """
    if isinstance(function, Jitted):
        made = function.traced(args, named, as_array)
        return unflatten(made.form, _results(made, made.program))
    check_function(function)
    values = collect(function, args, named)
    found = _results(function, function.bind({n: input_type(n, v) for n, v in values.items()}))
    return found[0] if len(found) == 1 else tuple(found)


def _results(function: BaseFunction, program: Program) -> list[ShapeDtype]:
    types, results = program.types(), set(function.results)
    return [ShapeDtype(types[v].shape, types[v].dtype) for n, v in program.outputs if n in results]
