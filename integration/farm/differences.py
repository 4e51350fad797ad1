"""Gradients against finite differences of the function that they are the gradients of, in float64."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import tile_autodiff
import tile_lang
from tile_ir.diagnostics import Source
from tile_ir.dtype import DType
from tile_ir.ops import Aggregation
from tile_ir.program.macros import MACROS
from tile_ir.program.nodes import Contraction, Elementwise, Op, Prng, Program, TensorType

from farm.sample import Array, Arrays, Sample

SMOOTH = (
    "add",
    "sub",
    "mul",
    "neg",
    "ident",
    "exp",
    "sin",
    "cos",
    "tanh",
    "atan",
    "sigmoid",
    "cast",
    "erf",
    "erfc",
    "asinh",
    "gelu",
    "silu",
    "softplus",
)
"""Elementwise functions that have every derivative everywhere."""
AGGREGATIONS = (Aggregation.SUM, Aggregation.PROD, Aggregation.ASSIGN)
STEP, TOLERANCE = 1e-5, 2e-5


def derivatives_agree(sample: Sample) -> bool:
    """Compare the sample's gradient with differences along one direction; False where they cannot be compared.

    AssertionError where they differ.
    """
    program = _wide(sample)
    if program is None:
        return False
    for _ in range(sample.order - 1):
        program = tile_autodiff.gradient(program, sample.wrt)
    if not all(_smooth(op) for op in program.ops):
        return False
    gradient = tile_autodiff.gradient(program, sample.wrt)
    random = np.random.default_rng(sample.data)
    inputs: Arrays = {p.name: _filled(random, p.type) for p in gradient.inputs}
    direction: Arrays = {n: random.uniform(-1, 1, inputs[n].shape) for n in sample.wrt}
    slopes = tile_lang.evaluate(gradient, inputs)
    analytic = sum(float(np.sum(slopes[f"d_{n}"] * direction[n])) for n in sample.wrt)
    beside = [_beside(program, inputs, direction, sign * STEP) for sign in (1, -1)]
    if any(not np.array_equal(beside[0][name], beside[1][name]) for name in _chosen(program)):
        return False
    ahead, behind = (_scalar(program, inputs, results) for results in beside)
    numeric, scale = (ahead - behind) / (2 * STEP), max(1.0, abs(ahead), abs(behind))
    if not np.isfinite(numeric) or scale > 1e6:
        return False
    assert abs(analytic - numeric) <= TOLERANCE * max(scale, abs(analytic), abs(numeric)), (
        f"the derivative is {analytic:.9g}, the difference quotient {numeric:.9g}"
    )
    return True


def _wide(sample: Sample) -> Program | None:
    """The program with float64 for every float; None where it has casts to other dtypes."""
    wide = {n: TensorType(DType.FLOAT64, t.shape) if t.dtype.is_float else t for n, t in sample.types.items()}
    program = tile_lang.bind(tile_lang.parse(Source(sample.source)), wide)
    return program if all(t.dtype is DType.FLOAT64 or not t.dtype.is_float for t in program.types().values()) else None


def _smooth(op: Op) -> bool:
    match op:
        case Elementwise():
            return op.fn in SMOOTH or (op.fn in MACROS and op.fn == "sigmoid")
        case Contraction():
            return op.agg in AGGREGATIONS and all(s.fn in SMOOTH for s in op.body)
        case _:
            return not isinstance(op, Prng)


def _filled(random: np.random.Generator, type_: TensorType) -> Array:
    if type_.dtype.is_float:
        return random.uniform(-1, 1, type_.shape).astype(type_.dtype.numpy)
    return random.integers(0, 2, type_.shape).astype(type_.dtype.numpy)


def _chosen(program: Program) -> tuple[str, ...]:
    """Values of whole numbers: where elements come from. A function has no derivative where it begins to choose others."""
    return tuple(name for name, type_ in program.types().items() if not type_.dtype.is_float)


def _beside(program: Program, inputs: Arrays, direction: Arrays, step: float) -> Arrays:
    """The outputs a step away, by their public names, and the chosen values, by their own."""
    moved = {p.name: inputs[p.name] + step * direction.get(p.name, 0) for p in program.inputs if p.name in direction}
    given = {p.name: moved.get(p.name, inputs[p.name]) for p in program.inputs}
    return tile_lang.evaluate(replace(program, outputs=(*((n, n) for n in _chosen(program)), *program.outputs)), given)


def _scalar(program: Program, inputs: Arrays, results: Arrays) -> float:
    """The outputs' inner product with the cotangents."""
    return sum(float(np.sum(results[public] * inputs[f"d_{public}"])) for public, _ in program.outputs)
