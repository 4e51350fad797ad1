"""Sorting as graphics processors are given it, run by an OpenCL device: elements that find their own places."""

from __future__ import annotations

import numpy as np
import pytest
import tile_hal
import tile_opt
from hal_opencl.families import family_target
from stack import bind, on_device
from tile_hal.interfaces import Device
from tile_ir.dtype import from_numpy
from tile_ir.program.nodes import TensorType
from tile_ir.target import Target
from tile_lang.evaluate import evaluate

LARGE = family_target("gpu-nvidia").resolved(cores=4)
SMALL = LARGE.resolved(threads=16)
"""Groups of few items, which hold runs of 64 elements."""


def devices() -> list[Device]:
    return [d for d in tile_hal.devices() if d.id.startswith("opencl") and d.capabilities.executes]


@pytest.mark.skipif(not devices(), reason="no OpenCL device")
@pytest.mark.parametrize(
    ("target", "shape", "dtype", "sorted_"),
    [
        (LARGE, (3, 1000), "float32", "argsort(X, 1)"),
        (SMALL, (200, 5), "int64", "argsort(X, 0)"),
        (SMALL, (7, 300), "float32", "element(top_k(X, 5, 1), 1)"),
        (SMALL, (2, 500), "uint8", "element(top_k(X, 100, 1), 1)"),
        (SMALL, (2, 150), "float32", "argsort(X, 1)"),
        (SMALL, (150,), "int16", "element(top_k(X, 40, 0), 0)"),
        (LARGE, (33, 2), "float32", "element(top_k(X, 1, 1), 1)"),
    ],
)
def test_places_are_the_references(target: Target, shape: tuple[int, ...], dtype: str, sorted_: str) -> None:
    x = np.random.default_rng(0).integers(0, 99, shape).astype(dtype)
    if dtype == "float32":
        x.flat[::7], x.flat[::5], x.flat[1::5] = np.nan, 0.0, -0.0
    program = bind(f"function (X) -> (O) {{ O = {sorted_}; }}", {"X": TensorType(from_numpy(x.dtype), shape)})
    compiled = tile_opt.compile(program, target, verify=True)
    found = on_device(devices()[0], compiled, {"X": x})["O"]
    np.testing.assert_array_equal(found, evaluate(program, {"X": x})["O"])


@pytest.mark.skipif(not devices(), reason="no OpenCL device")
def test_keys_that_come_last_are_not_taken_for_what_fills_runs() -> None:
    """The smallest of unsigned numbers have the largest code when the order is descending."""
    x = np.zeros((300,), np.uint8)
    program = bind(
        "function (X) -> (O) { O = element(top_k(X, 3, 0), 1); }", {"X": TensorType(from_numpy(x.dtype), x.shape)}
    )
    compiled = tile_opt.compile(program, SMALL, verify=True)
    np.testing.assert_array_equal(on_device(devices()[0], compiled, {"X": x})["O"], [0, 1, 2])


def test_lines_that_a_group_holds_are_sorted_by_one_kernel() -> None:
    types = {"X": TensorType(from_numpy(np.dtype(np.float32)), (300, 1000))}
    compiled = tile_opt.compile(bind("function (X) -> (O) { O = argsort(X, 1); }", types), LARGE)
    (step,) = compiled.kernels.steps
    assert compiled.kernels.kernels[step.kernel].groups[0] == 300
