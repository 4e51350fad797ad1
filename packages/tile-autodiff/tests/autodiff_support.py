"""Central differences on the reference evaluator, for the tests of this package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tile_autodiff
import tile_lang
from tile_ir.dtype import from_numpy
from tile_ir.program.nodes import Program, TensorType

Array = npt.NDArray[Any]
Arrays = dict[str, Array]
RNG = np.random.default_rng(7)


def bound(source: str, inputs: Mapping[str, Array]) -> Program:
    """The program of `source` for inputs like these."""
    types = {n: TensorType(from_numpy(a.dtype), a.shape) for n, a in inputs.items()}
    return tile_lang.bind(tile_lang.parse(source), types)


def floats(program: Program) -> list[str]:
    return [p.name for p in program.inputs if p.type.dtype.is_float]


def cotangents(program: Program, rng: np.random.Generator | None = None) -> Arrays:
    """A random cotangent per output, by the name it has in the gradient."""
    types, rng = program.types(), rng or np.random.default_rng(3)
    found: Arrays = {}
    for public, value in program.outputs:
        t = types[value]
        found[f"d_{public}"] = np.asarray(rng.uniform(-1, 1, t.shape) * (1 if t.dtype.is_float else 5)).astype(
            t.dtype.numpy
        )
    return found


def objective(program: Program, inputs: Mapping[str, Array], weights: Mapping[str, Array]) -> float:
    """The cotangents' inner product with the float outputs."""
    results = tile_lang.evaluate(program, inputs)
    types = program.types()
    return sum(
        float(np.sum(results[public] * weights[f"d_{public}"]))
        for public, value in program.outputs
        if types[value].dtype.is_float
    )


def differences(program: Program, inputs: Mapping[str, Array], weights: Mapping[str, Array], name: str) -> Array:
    """Central differences of the objective with respect to one float64 input."""
    step = 1e-6
    result = np.zeros(inputs[name].shape)
    for cell in np.ndindex(*inputs[name].shape):
        ends: list[float] = []
        for sign in (1, -1):
            moved = np.array(inputs[name])
            moved[cell] += sign * step
            ends.append(objective(program, {**inputs, name: moved}, weights))
        result[cell] = (ends[0] - ends[1]) / (2 * step)
    return result


def check(
    program: Program, inputs: Mapping[str, Array], wrt: Sequence[str] | None = None, tolerance: float = 1e-6
) -> Arrays:
    """Compare the gradient with central differences; gives the gradients."""
    names = list(wrt or floats(program))
    weights = cotangents(program)
    results = tile_lang.evaluate(tile_autodiff.gradient(program, names), {**inputs, **weights})
    for name in names:
        want = differences(program, inputs, weights, name)
        np.testing.assert_allclose(results[f"d_{name}"], want, rtol=tolerance, atol=tolerance, err_msg=f"d_{name}")
    return results


def check_source(
    source: str, inputs: Mapping[str, Array], wrt: Sequence[str] | None = None, tolerance: float = 1e-6
) -> Arrays:
    return check(bound(source, inputs), inputs, wrt, tolerance)


def spread(*shape: int) -> Array:
    """Irregular float64 numbers between -2 and 2, far enough apart for central differences, none near 0."""
    count = int(np.prod(shape))
    steps = np.arange(1, count + 1) * 2 / max(count, 1)
    values = (steps + RNG.uniform(-0.3, 0.3, count) * 2 / max(count, 1)) * RNG.choice([-1, 1], count)
    return RNG.permutation(values).reshape(shape)
