"""Permutations of odd sizes as graphics processors are given them, run by an OpenCL device: every element gets to its place."""

from __future__ import annotations

import numpy as np
import pytest
import tile_hal
import tile_opt
from hal_opencl.families import family_target
from stack import bind, on_device
from tile_hal.interfaces import Device
from tile_ir.dtype import DType
from tile_ir.program.nodes import TensorType

NAMES = "abcde"
CASES = [
    ((5, 97, 891), (2, 1, 0), "float32"),
    ((5, 891, 97), (2, 1, 0), "float16"),
    ((97, 855, 5), (2, 1, 0), "float32"),
    ((2, 3, 112, 224), (0, 2, 3, 1), "uint8"),
    ((3007, 5), (1, 0), "float32"),
    ((5, 3007), (1, 0), "float32"),
    ((9, 3, 5, 31, 57), (4, 3, 2, 1, 0), "int16"),
    ((96, 130, 2), (1, 0, 2), "int8"),
    ((97, 85, 3), (1, 0, 2), "uint8"),
    ((31, 2, 45, 6), (2, 1, 0, 3), "float16"),
    ((61, 90, 5), (1, 0, 2), "float32"),
]


def devices() -> list[Device]:
    return [d for d in tile_hal.devices() if d.id.startswith("opencl") and d.capabilities.executes]


@pytest.mark.skipif(not devices(), reason="no OpenCL device")
@pytest.mark.parametrize(("shape", "order", "dtype"), CASES, ids=str)
def test_every_element_gets_to_its_place(shape: tuple[int, ...], order: tuple[int, ...], dtype: str) -> None:
    loops, sizes = NAMES[: len(shape)], NAMES[: len(shape)].upper()
    turned = ", ".join(loops[k] for k in order) + " : " + ", ".join(sizes[k] for k in order)
    source = f"function (X[{', '.join(sizes)}]) -> (R) {{ R[{turned}] = =(X[{', '.join(loops)}]); }}"
    x = np.random.default_rng(0).integers(0, 250, shape).astype(dtype)
    compiled = tile_opt.compile(
        bind(source, {"X": TensorType(DType(dtype), shape)}), family_target("gpu-nvidia").resolved(cores=4)
    )
    assert any("goes through local memory" in p.reason for p in compiled.plans.values())
    np.testing.assert_array_equal(on_device(devices()[0], compiled, {"X": x})["R"], x.transpose(order))


@pytest.mark.skipif(not devices(), reason="no OpenCL device")
@pytest.mark.parametrize("family", ["gpu-nvidia", "gpu-amd"])
def test_operands_that_turn_alike_keep_tiles_of_their_own(family: str) -> None:
    source = """function (A[N, M], B[N, M]) -> (R) {
        S[j, i : M, N] = =(A[i, j]); T[j, i : M, N] = =(B[i, j]); R = S - T; }"""
    a, b = np.random.default_rng(0).integers(0, 250, (2, 70, 96)).astype(np.float32)
    type = TensorType(DType.FLOAT32, a.shape)
    compiled = tile_opt.compile(bind(source, {"A": type, "B": type}), family_target(family).resolved(cores=4))
    assert any("goes through local memory" in p.reason for p in compiled.plans.values())
    np.testing.assert_array_equal(on_device(devices()[0], compiled, {"A": a, "B": b})["R"], (a - b).T)
