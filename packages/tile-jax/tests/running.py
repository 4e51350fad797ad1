"""Runs cases on a Tile device and on JAX's own CPU, and compares."""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import numpy as np
import tile_runtime as tile
from drawing import Array, Case
from tile_jax.lowering import program
from tile_runtime.evaluator import Evaluator


@cache
def evaluator(device: str) -> Evaluator:
    return Evaluator(tile.device(device))


def lowered(case: Case) -> Any:
    """The module that JAX makes of a case for the platform, with CHLO's operations still in it."""
    traced = jax.jit(case.function, keep_unused=True).trace(*case.arguments)
    return traced.lower(lowering_platforms=("tile",)).compiler_ir("stablehlo")


def computed(module: Any, arguments: tuple[Array, ...], device: str) -> list[Array]:
    """What a module gives on a Tile device."""
    own = evaluator(device)
    given = [tile.asarray(np.array(a, order="C"), own.device) for a in arguments]
    return [np.asarray(made.numpy()) for made in program(module).run([given], [own])[0]]


def check(case: Case, device: str = "llvm") -> Any:
    """AssertionError unless a case gives the same as on JAX's CPU; the module that was run."""
    module = lowered(case)
    wanted = [np.asarray(leaf) for leaf in jax.tree.leaves(jax.jit(case.function)(*case.arguments))]
    for got, want in zip(computed(module, case.arguments, device), wanted, strict=True):
        compare(got, want, case.tolerance)
    return module


def compare(got: Array, want: Array, tolerance: float) -> None:
    """Equal shapes, dtypes, NaNs and infinities; numbers as near as `tolerance`, a part of the largest one."""
    assert (got.dtype, got.shape) == (want.dtype, want.shape), f"{got.dtype}{got.shape}, not {want.dtype}{want.shape}"
    if want.dtype == bool or want.dtype.kind in "iu":
        far = np.abs(got.astype(float) - want.astype(float))
        assert not np.any(far > tolerance * max(1.0, float(np.max(np.abs(want.astype(float)), initial=0)))), (
            f"{got}\n{want}"
        )
        return
    one, other = got.astype(np.float64), want.astype(np.float64)
    np.testing.assert_array_equal(np.isnan(one), np.isnan(other))
    whole = np.isfinite(other)
    np.testing.assert_array_equal(one[~whole & ~np.isnan(other)], other[~whole & ~np.isnan(other)])
    size = np.max(np.abs(other[whole]), initial=0)
    worst = np.max(np.abs(one[whole] - other[whole]), initial=0)
    assert worst <= tolerance * max(size, 1e-6), f"off by {worst:.3g} beside {size:.3g}:\n{got}\n{want}"


def operands(module: Any) -> dict[str, set[str]]:
    """The operations that stand in a module, and the element types of their first operands (of results where none)."""
    found: dict[str, set[str]] = {}
    stack = [module.operation]
    while stack:
        operation = stack.pop()
        values = [*operation.operands, *operation.results][:1]
        own = found.setdefault(operation.name, set())
        own |= {
            str(v.type).rstrip(">").split("x")[-1].removeprefix("tensor<") for v in values if "tensor" in str(v.type)
        }
        stack += [o.operation for region in operation.regions for block in region.blocks for o in block.operations]
    return found
