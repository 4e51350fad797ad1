"""Applying Tile functions to dask arrays."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, cast

import dask.array
import numpy as np
from dask.base import tokenize
from dask.highlevelgraph import HighLevelGraph
from tile_ir.diagnostics import Diagnostic, TileTypeError
from tile_ir.program.nodes import Loop, Program, TensorType
from tile_ir.recent import Recent
from tile_runtime.arguments import collect, input_type
from tile_runtime.checks import check_function
from tile_runtime.function import BaseFunction
from tile_runtime.typed import program_digest

from tile_dask.graph import Graph
from tile_dask.kernels import Device, speed_of
from tile_dask.partitions import PROCESSOR, Grid, Partition
from tile_dask.partitions import partition as cut
from tile_dask.persisting import results

da = cast("Any", dask.array)
"""dask's annotations leave most of its results unknown."""
DaskArray = Any
PARTITIONS = 8
"""Ways to cut functions that are kept: who applies one again and again need not wait for it."""
_partitions: Recent[Hashable, Partition] = Recent(PARTITIONS)
Chunks = Any
"""As dask writes chunks: a number of cells, a tuple of sizes for each axis, -1 for a whole axis."""


def apply(
    function: BaseFunction,
    *arrays: Any,
    out_chunks: Chunks | Mapping[str, Chunks] = None,
    device: Device = None,
    steps: int = 1,
    exchange: int | None = None,
    **named: Any,
) -> Any:
    """`function` of dask arrays (and NumPy arrays, Tensors and numbers beside them), as dask arrays: lazy.

    Results are cut as the arrays are that they follow, or by `out_chunks`: for the only result, or by output name.
    `device` names the device of the workers, or is a function that a worker calls to know its own; None is the
    worker's default. With `steps` the function is applied so many times, each time to what it gave; tasks compute
    `exchange` steps, or rounds of a loop, before they look at their neighbours again (None: chosen by what that costs).

    Several outputs come as a tuple. TileTypeError for arguments that do not fit, unknown chunk sizes, and what cannot
    be computed chunk by chunk exactly; the error of a device names function and chunk, when it is computed.
    """
    values, program = _typed(function, arrays, named)
    part = _partition(function, program, values, out_chunks, device, steps, exchange)
    token = tokenize(program_digest(program), *[_name(v) for v in values.values()], part.grids, device, steps, exchange)
    names = {n: _chunks(v) for n, v in values.items()}
    names |= {n: f"{function.name}-{n}-{token}" for n in part.constants}
    found = {**values, **{n: _known(part, n, names[n]) for n in part.constants}}
    graph = Graph(part, names, function.name, token, device)
    whole = _joined(graph, found.values())
    results = [_result(part, array, graph.results.get(array), whole, found) for _, array in part.outputs]
    return results[0] if len(results) == 1 else tuple(results)


def partition(
    function: BaseFunction,
    *arrays: Any,
    out_chunks: Chunks | Mapping[str, Chunks] = None,
    device: Device = None,
    steps: int = 1,
    exchange: int | None = None,
    **named: Any,
) -> Partition:
    """How `apply` would cut the work: print `.explain()` of it."""
    values, program = _typed(function, arrays, named)
    return _partition(function, program, values, out_chunks, device, steps, exchange)


# --- arguments ------------------------------------------------------------------------------------------


def _typed(
    function: BaseFunction, arrays: Sequence[Any], named: Mapping[str, Any]
) -> tuple[dict[str, DaskArray], Program]:
    """Every input as a dask array, and the program for their types."""
    check_function(function)
    if function.updates:
        raise _error(f"{function!r} updates tensors, which have no place among chunks", "return what it updates")
    given = collect(function, arrays, named)
    types = {name: _type(name, value) for name, value in given.items()}
    program = function.bind(types)
    return {p.name: _array(given[p.name], p.type) for p in program.inputs}, program


def _type(name: str, value: Any) -> TensorType:
    if not isinstance(value, da.Array):
        return input_type(name, value)
    if any(math.isnan(n) for n in value.shape):
        raise _error(f"the chunks of {name!r} have unknown sizes", "call its compute_chunk_sizes() before")
    element = input_type(name, np.empty(0, value.dtype)).dtype
    return TensorType(element, tuple(map(int, value.shape)))


def _array(value: Any, type: TensorType) -> DaskArray:
    if isinstance(value, da.Array):
        return value
    known = np.asarray(value, type.dtype.numpy)
    return da.from_array(known, chunks=-1 if known.ndim else ())


def _name(array: DaskArray) -> str:
    return array.name


def _chunks(array: DaskArray) -> str:
    """The name of its chunks, where tasks find them: those of a result of ours may be on a device."""
    layer = results(array)
    return array.name if layer is None or layer.kept is None else layer.kept


# --- chunks -----------------------------------------------------------------------------------------------


def _partition(
    function: BaseFunction,
    program: Program,
    values: Mapping[str, DaskArray],
    out_chunks: Chunks | Mapping[str, Chunks],
    device: Device,
    steps: int,
    exchange: int | None,
) -> Partition:
    for what, number in (("steps", steps), ("exchange", exchange if exchange is not None else 1)):
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise _error(f"{what} is a whole number from 1, not {number!r}")
    grids = {name: Grid(tuple(tuple(map(int, axis)) for axis in value.chunks)) for name, value in values.items()}
    wanted = _wanted(function, program, out_chunks)
    has_rounds = steps > 1 or any(isinstance(op, Loop) for op in program.ops)
    speed = speed_of(device) if has_rounds else PROCESSOR
    key = (program_digest(program), *(tuple(g.items()) for g in (grids, wanted)), steps, exchange, speed)
    return _partitions.get(key, lambda: cut(program, grids, wanted, steps=steps, exchange=exchange, speed=speed))


def _wanted(function: BaseFunction, program: Program, chunks: Chunks | Mapping[str, Chunks]) -> dict[str, Grid]:
    """Grids of the outputs that are to be cut in a certain way."""
    if chunks is None:
        return {}
    types = program.types()
    outputs = {public: types[value] for public, value in program.outputs}
    if not isinstance(chunks, Mapping):
        if len(outputs) > 1:
            raise _error(f"{function.name!r} has {len(outputs)} outputs", f"out_chunks={{{next(iter(outputs))!r}: …}}")
        chunks = {next(iter(outputs)): chunks}
    return {str(name): _grid(str(name), wanted, outputs) for name, wanted in cast("Mapping[Any, Any]", chunks).items()}


def _grid(name: str, chunks: Chunks, outputs: Mapping[str, TensorType]) -> Grid:
    if name not in outputs:
        raise _error(f"there is no output {name!r} to cut", f"outputs are {', '.join(outputs)}")
    type = outputs[name]
    try:
        sizes = da.core.normalize_chunks(chunks, shape=type.shape, dtype=type.dtype.numpy)
    except (ValueError, TypeError, KeyError) as problem:
        raise _error(f"out_chunks={chunks!r} does not cut {type}: {problem}") from None
    return Grid(tuple(tuple(map(int, axis)) for axis in sizes))


# --- results ----------------------------------------------------------------------------------------------


def _known(part: Partition, name: str, key: str) -> DaskArray:
    type, contents = part.constants[name]
    array = np.frombuffer(contents.view, type.dtype.numpy).reshape(type.shape)
    return da.from_array(array, chunks=-1 if type.shape else (), name=key)


def _joined(graph: Graph, arrays: Iterable[DaskArray]) -> HighLevelGraph:
    """The tasks, behind those of the arrays that they read."""
    before = HighLevelGraph.merge(*(a.__dask_graph__() for a in arrays))
    needs: dict[str, set[str]] = {**before.dependencies, **graph.needs}
    return HighLevelGraph({**before.layers, **graph.materialized}, needs)


def _result(
    part: Partition, array: str, name: str | None, graph: HighLevelGraph, given: Mapping[str, DaskArray]
) -> DaskArray:
    if name is None:
        return given[array]
    type = part.types[array]
    meta = np.empty((0,) * len(type.shape), type.dtype.numpy)
    return da.Array(graph, name, part.grids[array].sizes, meta=meta)


def _error(message: str, hint: str | None = None) -> TileTypeError:
    return TileTypeError(Diagnostic("TILE-E562", message, hint=hint))
