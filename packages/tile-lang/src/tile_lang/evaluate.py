"""The reference evaluator: what a Program means, in plain NumPy. It is slow, and it defines the language.

Elementwise operations and casts are `tile_ir.numerics`. A contraction lists its valid index tuples in
lexicographic order (`tile_lang.domain`), computes the body for all of them, merges the values of each output
cell one after another in the `acc` dtype, and rounds once to the result's dtype. A cell that no tuple writes
holds the `default` tensor's value, or 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from tile_ir import numerics
from tile_ir.diagnostics import Diagnostic, TileTypeError
from tile_ir.dtype import DType, from_numpy
from tile_ir.ops import OPS, Aggregation
from tile_ir.program.macros import MACROS, expand
from tile_ir.program.nodes import (
    Argsort,
    ConstantTensor,
    Contraction,
    Elementwise,
    Gather,
    IndexOf,
    Literal,
    Loop,
    Operand,
    Poly,
    Prng,
    Program,
    Reshape,
    ScalarStatement,
    Scatter,
    Subscript,
    TensorLoad,
    TensorType,
)

from tile_lang.domain import evaluate_form, tuples

Array = npt.NDArray[Any]
Values = dict[str, Array]

STREAMS = 2048
_WIDE = {DType.FLOAT16: DType.FLOAT32, DType.BFLOAT16: DType.FLOAT32}


def evaluate(program: Program, inputs: Mapping[str, npt.ArrayLike]) -> dict[str, Array]:
    """Run `program`; gives its outputs by public name, as new C-ordered arrays.

    `inputs` maps each input's name to an array of exactly its shape and dtype. TileTypeError names an input
    that is missing, unknown, or of another type, and an ``=`` contraction's cell that is written twice.
    """
    values = _inputs(program, inputs)
    for op in program.ops:
        _EVALUATORS[type(op)](op, values)
    return {public: np.array(values[name], order="C") for public, name in program.outputs}


def _inputs(program: Program, inputs: Mapping[str, npt.ArrayLike]) -> Values:
    problems: list[Diagnostic] = []
    values: Values = {}
    for param in program.inputs:
        if param.name not in inputs:
            problems.append(Diagnostic("TILE-E105", f"input {param.name} is missing"))
            continue
        array = np.asarray(inputs[param.name])
        if array.dtype != param.type.dtype.numpy or array.shape != param.type.shape:
            found = f"{array.dtype}[{', '.join(map(str, array.shape))}]"
            problems.append(Diagnostic("TILE-E105", f"input {param.name} must be {param.type}, not {found}"))
        values[param.name] = array
    known = {p.name for p in program.inputs}
    problems += [Diagnostic("TILE-E105", f"{name} is not an input") for name in inputs if name not in known]
    if problems:
        raise TileTypeError(problems)
    return values


def literal_array(literal: Literal) -> Array:
    """A 0-d array of the literal's dtype."""
    wide = _WIDE.get(literal.dtype, literal.dtype)
    return numerics.cast_array(np.asarray(literal.value, wide.numpy), literal.dtype)


def _operand(operand: Operand, values: Mapping[str, Array]) -> Array:
    return literal_array(operand) if isinstance(operand, Literal) else values[operand]


def scalar_statements(statements: list[ScalarStatement], values: Mapping[str, Array]) -> Values:
    """Run SSA statements over arrays; gives all names that they define."""
    local = dict(values)
    for s in statements:
        local[s.dst] = numerics.apply(s.fn, [_operand(a, local) for a in s.args], s.dtype)
    return local


# --- elementwise ---------------------------------------------------------------------------------


def _elementwise(op: Elementwise, values: Values) -> None:
    if op.fn not in OPS and op.fn not in MACROS:
        raise TileTypeError(Diagnostic("TILE-E114", f"there is no elementwise function {op.fn}", op.origin))
    statements = expand(op.fn, op.args, op.type.dtype)
    result = scalar_statements(statements, values)[statements[-1].dst]
    values[op.name] = np.broadcast_to(numerics.cast_array(result, op.type.dtype), op.type.shape)


def _index_of(op: IndexOf, values: Values) -> None:
    extent = op.type.shape[op.axis]
    shape = [1] * len(op.type.shape)
    shape[op.axis] = extent
    coordinates = np.arange(extent, dtype=op.type.dtype.numpy).reshape(shape)
    values[op.name] = np.broadcast_to(coordinates, op.type.shape)


def _reshape(op: Reshape, values: Values) -> None:
    given = np.ascontiguousarray(values[op.arg])
    values[op.name] = given.reshape(-1).view(op.type.dtype.numpy).reshape(op.type.shape)


def _constant(op: ConstantTensor, values: Values) -> None:
    dtype = op.type.dtype.numpy.newbyteorder("<")
    values[op.name] = np.frombuffer(op.data, dtype).astype(op.type.dtype.numpy).reshape(op.type.shape)


# --- contractions --------------------------------------------------------------------------------


def _contraction(op: Contraction, values: Values) -> None:
    table = tuples(op.constraints, op.indexes)
    cells = _flat_cells(op, table)
    # Reading happens at valid tuples only, where every subscript is in range.
    local = {load.dst: _load(load, op, table, values) for load in op.loads}
    local = scalar_statements(list(op.body), local)
    contributions = numerics.cast_array(_operand(op.result, local), op.acc)
    contributions = np.broadcast_to(contributions, (len(table),))
    if op.agg is Aggregation.ASSIGN:
        _check_written_once(op, cells)
    _settle(op, _merge(op.agg, op.acc, contributions, cells, op.type.size), cells, values)


def _settle(op: Contraction | Scatter, total: Array, cells: Array, values: Values) -> None:
    """Round the totals; cells without a contribution get the default, or 0."""
    hit = np.zeros(op.type.size, bool)
    hit[cells] = True
    result = numerics.cast_array(total, op.type.dtype).reshape(op.type.shape)
    otherwise = values[op.default] if op.default is not None else np.zeros(op.type.shape, op.type.dtype.numpy)
    values[op.name] = np.where(hit.reshape(op.type.shape), result, otherwise)


def _subscripts(formulas: tuple[Poly, ...], op: Contraction, table: Array) -> tuple[Array, ...]:
    return tuple(evaluate_form(f, op.indexes, table)[0].astype(np.int64) for f in formulas)


def _flat_cells(op: Contraction, table: Array) -> Array:
    cell = np.zeros(len(table), np.int64)
    for subscript, extent in zip(_subscripts(op.output, op, table), op.type.shape, strict=True):
        cell = cell * extent + subscript
    return cell


def _load(load: TensorLoad, op: Contraction, table: Array, values: Values) -> Array:
    if isinstance(load.tensor, Literal):
        return literal_array(load.tensor)
    tensor = values[load.tensor]
    if not load.formulas:
        return np.broadcast_to(tensor, (len(table),))
    return np.asarray(tensor[_subscripts(load.formulas, op, table)])


def _merge(agg: Aggregation, acc: DType, contributions: Array, cells: Array, size: int) -> Array:
    """The aggregate of every cell, one contribution after another in order."""
    # Selecting needs no rounding, so that 16-bit floats may be compared as float32.
    wide = _WIDE.get(acc, acc)
    contributions = numerics.cast_array(contributions, wide)
    start = 0 if agg is Aggregation.ASSIGN else agg.identity(wide)
    total = np.full(size, start, wide.numpy)
    with np.errstate(all="ignore"):
        if agg is Aggregation.ASSIGN:
            total[cells] = contributions
        else:
            numerics.AGGREGATION_UFUNCS[agg].at(total, cells, contributions)
    return numerics.cast_array(total, acc)


def _check_written_once(op: Contraction, cells: Array) -> None:
    unique, counts = np.unique(cells, return_counts=True)
    if not np.any(counts > 1):
        return
    first = np.unravel_index(int(unique[counts > 1][0]), op.type.shape)
    cell = f"{op.name}[{', '.join(str(int(k)) for k in first)}]"
    message = f"'=' assigns {cell} {int(counts[counts > 1][0])} times"
    hint = "constrain the indexes so that each cell has one value, or use another aggregation"
    raise TileTypeError(Diagnostic("TILE-E132", message, op.origin, hint))


# --- gather, scatter, random numbers -------------------------------------------------------------


def _cells(
    subscripts: tuple[Subscript, ...], shape: tuple[int, ...], extents: tuple[int, ...], values: Values
) -> tuple[Array, ...]:
    """The cell of a tensor of `extents` that each cell of `shape` stands for, one array of `shape` per dimension."""
    table = np.stack([c.reshape(-1) for c in np.indices(shape)], axis=-1) if shape else np.zeros((1, 0), np.int64)
    names = [f"i{k}" for k in range(len(shape))]

    def place(formula: Poly) -> Array:
        return evaluate_form(formula, names, table)[0].astype(np.int64).reshape(shape)

    def subscript(given: Subscript, extent: int) -> Array:
        if isinstance(given, Poly):
            return place(given)
        found = np.asarray(values[given.tensor][tuple(map(place, given.formulas))])
        return np.asarray(np.clip(found.astype(object), 0, extent - 1), np.int64)

    return tuple(subscript(s, n) for s, n in zip(subscripts, extents, strict=True))


def _gather(op: Gather, values: Values) -> None:
    data = values[op.data]
    if not data.size:
        values[op.name] = np.zeros(op.type.shape, op.type.dtype.numpy)
        return
    values[op.name] = np.asarray(data[_cells(op.subscripts, op.type.shape, data.shape, values)])


def _scatter(op: Scatter, values: Values) -> None:
    updates = values[op.updates]
    shape = op.type.shape if updates.size else ()
    cells = _cells(op.subscripts, updates.shape, shape, values) if op.type.size and updates.size else ()
    flat = np.ravel_multi_index(cells, shape).reshape(-1) if cells else np.zeros(updates.size, np.int64)
    if not op.type.size:
        values[op.name] = np.zeros(op.type.shape, op.type.dtype.numpy)
        return
    _settle(op, _merge(op.agg, op.acc, updates.reshape(-1), flat, op.type.size), flat, values)


def _argsort(op: Argsort, values: Values) -> None:
    """By rank among the distinct values, so that one stable sort serves both directions and every dtype."""
    array = values[op.arg]
    if from_numpy(array.dtype).is_float:
        # NumPy tells the NaNs of bfloat16 apart from one another.
        array = array.astype(np.float64)
    rank = (
        np.unique(array, return_inverse=True)[1].reshape(array.shape) if array.size else np.zeros(array.shape, np.int64)
    )
    order = np.argsort(-rank if op.descending else rank, axis=op.axis, kind="stable")
    values[op.name] = order.take(range(op.type.shape[op.axis]), op.axis).astype(op.type.dtype.numpy)


def prng_draw(state: Array, count: int) -> tuple[Array, Array]:
    """`count` uniform float32 values and the next state, from a uint32 [3, 2048] state.

     Element e is step ``e // 2048`` of stream ``e % 2048``: one three-component Tausworthe generator per stream
    . Only the streams that draw in the last, partial round step there.
    """
    state = state.copy()
    drawn = np.zeros(count, np.float32)
    for start in range(0, count, STREAMS):
        width = min(STREAMS, count - start)
        s1, s2, s3 = state[:, :width]
        s1 = ((s1 & np.uint32(0xFFFFFFFE)) << np.uint32(12)) ^ (((s1 << np.uint32(13)) ^ s1) >> np.uint32(19))
        s2 = ((s2 & np.uint32(0xFFFFFFF8)) << np.uint32(4)) ^ (((s2 << np.uint32(2)) ^ s2) >> np.uint32(25))
        s3 = ((s3 & np.uint32(0xFFFFFFF0)) << np.uint32(17)) ^ (((s3 << np.uint32(3)) ^ s3) >> np.uint32(11))
        state[:, :width] = s1, s2, s3
        drawn[start : start + width] = (s1 ^ s2 ^ s3).astype(np.float32) / np.float32(4294967296.0)
    return drawn, state


def _prng(op: Prng, values: Values) -> None:
    drawn, state = prng_draw(values[op.seed], TensorType(op.type.dtype, op.type.shape).size)
    values[op.value] = drawn.reshape(op.type.shape)
    values[op.state] = state


# --- loops ---------------------------------------------------------------------------------------


def _loop(op: Loop, values: Values) -> None:
    carried = [values[n] for n in op.carries]
    stacked = op.types[len(carried) :]
    stacks = [np.zeros(t.shape, t.dtype.numpy) for t in stacked]
    for round in reversed(range(op.count)) if op.reverse else range(op.count):
        given = [*carried, *(values[n][round] for n in op.slices), *(values[n] for n in op.captured)]
        made = list(evaluate(op.body, {p.name: v for p, v in zip(op.body.inputs, given, strict=True)}).values())
        carried = made[: len(carried)]
        for stack, row in zip(stacks, made[len(carried) :], strict=True):
            stack[round] = row
    values.update(zip(op.results, (*carried, *stacks), strict=True))


_EVALUATORS: dict[type, Callable[[Any, Values], None]] = {
    Elementwise: _elementwise,
    IndexOf: _index_of,
    Reshape: _reshape,
    ConstantTensor: _constant,
    Contraction: _contraction,
    Gather: _gather,
    Argsort: _argsort,
    Scatter: _scatter,
    Prng: _prng,
    Loop: _loop,
}
