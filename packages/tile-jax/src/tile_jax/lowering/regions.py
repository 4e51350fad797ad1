"""What regions of two scalars compute: aggregations that Tile has, the place of the largest, or anything else."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
from tile_ir.dtype import DType
from tile_runtime.ops.moving import joined, sliced
from tile_runtime.ops.values import Array, Value, is_known

from tile_jax.lowering.counting import returned
from tile_jax.lowering.elements import compact
from tile_jax.lowering.mlir import Block, Node, Operation, ir
from tile_jax.lowering.op import Op

_AGGREGATIONS = {"add": "+", "multiply": "*", "maximum": ">", "minimum": "<"}
_OF_TRUTH = {"add": ">", "or": ">", "maximum": ">", "multiply": "<", "and": "<", "minimum": "<"}
"""The same of truth values, and what they have more."""


def aggregations(block: Block) -> list[str] | None:
    """For each result the aggregation of both its arguments, or ``=`` for the second; None where one is another function."""
    count = len(block.arguments) // 2
    found = [_aggregation(value, block, k, count) for k, value in enumerate(returned(block))]
    return None if None in found else [f for f in found if f is not None]


def _aggregation(value: Node, block: Block, k: int, count: int) -> str | None:
    own, other = block.arguments[k], block.arguments[k + count]
    if value == other:
        return "="
    if not isinstance(value, ir.OpResult):
        return None
    operation = value.owner
    given = list(operation.operands)
    if given not in ([own, other], [other, own]):
        return None
    truth = str(ir.RankedTensorType(value.type).element_type) == "i1"
    return (_OF_TRUTH if truth else _AGGREGATIONS).get(operation.name.partition(".")[2])


def subtracts(block: Block) -> bool:
    """Whether a region is the first of its two arguments less the second."""
    (*_, value) = returned(block)
    one = value.owner.operation if isinstance(value, ir.OpResult) else None
    return (
        len(block.arguments) == 2
        and one is not None
        and one.name == "stablehlo.subtract"
        and list(one.operands) == list(block.arguments)
    )


def neutral(aggregation: str, dtype: DType) -> float:
    """What changes nothing under an aggregation."""
    if aggregation in "+*":
        return int(aggregation == "*")
    if dtype is DType.BOOL:
        return int(aggregation == "<")
    if dtype.is_float:
        return -np.inf if aggregation == ">" else np.inf
    return dtype.min_value if aggregation == ">" else dtype.max_value


def is_neutral(value: Value, aggregation: str, dtype: DType) -> bool:
    """Whether a value is known, and changes nothing under an aggregation."""
    if not is_known(value):
        return False
    return bool((value.astype(np.float64 if dtype.is_float else value.dtype) == neutral(aggregation, dtype)).all())


def extreme(op: Op, block: Block, dtype: DType) -> str | None:
    """``argmax`` or ``argmin`` where the region keeps the larger or smaller value with its place, of equal ones the first.

    Such regions only compare: so what they do to every order of two values and two places is what they do.
    """
    if len(block.arguments) != 4 or not all(_only_compares(o.operation) for o in block.operations):
        return None
    probes = _probes(dtype, op.dtype(1))
    made = op.lift(block, probes)
    if not all(map(is_known, made)):
        return None
    for name in ("argmax", "argmin"):
        if all(
            np.array_equal(m, w, equal_nan=bool(dtype.is_float))
            for m, w in zip(made, _expected(name, probes), strict=True)
        ):
            return name
    return None


_COMPARING = {"compare", "select", "and", "or", "not", "xor", "minimum", "maximum", "return"}


def _only_compares(operation: Operation) -> bool:
    return operation.name.partition(".")[2] in _COMPARING


def _probes(dtype: DType, places: DType) -> list[Array]:
    numbers = [-1.0, 0.0, 1.0, np.nan] if dtype.is_float else [0, 1] if dtype is DType.BOOL else [1, 2, 3]
    pairs = [(0, 1), (1, 0)]
    every = [(a, i, b, j) for a, b in product(numbers, numbers) for i, j in pairs if i < j or not (a != a and b != b)]
    columns = zip(*every, strict=True)
    return [
        np.asarray(list(c), np.float64).astype(t.numpy)
        for c, t in zip(columns, (dtype, places, dtype, places), strict=True)
    ]


def _expected(name: str, probes: Sequence[Array]) -> tuple[Array, Array]:
    one, place, other, second = probes
    better = one > other if name == "argmax" else one < other
    first = np.isnan(one) & ~np.isnan(other) if one.dtype.kind == "f" else np.zeros(one.shape, bool)
    last = np.isnan(other) & ~np.isnan(one) if one.dtype.kind == "f" else np.zeros(one.shape, bool)
    same = (one == other) | ((one != one) & (other != other))
    left = ((better | first) & ~last) | (same & (place < second))
    return np.where(left, one, other), np.where(left, place, second)


def is_counted(value: Value, axis: int) -> bool:
    """Whether a value is known, and the number of each cell along an axis."""
    if not is_known(value):
        return False
    thin = compact(value)
    along = [value.shape[axis] if k == axis else 1 for k in range(value.ndim)]
    return list(thin.shape) == along and thin.reshape(-1).tolist() == list(range(value.shape[axis]))


def by_halves(op: Op, block: Block, values: Sequence[Value], axis: int) -> list[Value]:
    """Any associative region over an axis, which has a cell at least: neighbours are combined, then pairs of them."""
    parts = list(values)
    while parts[0].shape[axis] > 1:
        size = parts[0].shape[axis]
        evens, odds = ([_cells(v, slice(k, size // 2 * 2, 2), axis) for v in parts] for k in (0, 1))
        made = op.lift(block, [*evens, *odds])
        last = [_cells(v, slice(size - 1, size), axis) for v in parts]
        parts = [joined([m, rest], axis) for m, rest in zip(made, last, strict=True)] if size % 2 else made
    return parts


def _cells(value: Value, cells: slice, axis: int) -> Value:
    return sliced(value, [cells if k == axis else slice(None) for k in range(len(value.shape))])
