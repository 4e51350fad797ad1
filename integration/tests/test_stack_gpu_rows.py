"""Rows and columns as graphics processors are given them, run by an OpenCL device: several kernels beside each other."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tile_hal
import tile_opt
from hal_opencl.families import family_target
from stack import bind, on_device
from tile_hal.interfaces import Device
from tile_ir.dtype import DType
from tile_ir.program.nodes import TensorType
from tile_opt.plan.steps.groups.last_group import waits_for_all

Array = npt.NDArray[Any]
SOFTMAX = """function (X[M, N]) -> (R) {
    T[i, z : M, 1] = >(X[i, j]), z < 1; E = exp(X - T); S[i, z : M, 1] = +(E[i, j]), z < 1; R = E / S; }"""
NORM = """function (X[M, N]) -> (R) {
    T[z, j : 1, N] = +(X[i, j]), z < 1; D = X - T / M; Q = D * D; V[z, j : 1, N] = +(Q[i, j]), z < 1; R = D / sqrt(V / M); }"""
SHOWN = """function (X[M, N]) -> (R, U) {
    T[i, z : M, 1] = >(X[i, j]), z < 1; U = T * 2.0; E = X - U; S[i, z : M, 1] = +(E[i, j]), z < 1; R = E / S; }"""
BESIDE = """function (X[M, N]) -> (R, U) {
    S[i, z : M, 1] = +(X[i, j]), z < 1; U = S * 2.0; W = sqrt(U * U + 1.0) / 3.0; R = X / W; }"""
SUMS = "function (X[M, N]) -> (R) { R[i, j : M, N] = +(X[i, k]), j - k < N; }"
DOWN = "function (X[M, N]) -> (R) { R[i, j : M, N] = +(X[k, j]), i - k < M; }"
TURN = "function (X[M, N]) -> (R) { R[j, i : N, M] = =(X[i, j]); }"


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def norm(x: Array) -> Array:
    return (x - x.mean(0)) / x.std(0)


def shown(x: Array) -> Array:
    e = x - 2 * x.max(1, keepdims=True)
    return e / e.sum(1, keepdims=True)


def beside(x: Array) -> Array:
    return x / (np.sqrt(4 * x.sum(1, keepdims=True) ** 2 + 1) / 3)


WHOLE = "function (X[M, N]) -> (R) { R[] = +(X[i, j]); }"
WIDEST = "function (X[M, N]) -> (R) { R[j : N] = >(X[i, j]); }"
TWO = """function (X[M, N]) -> (R, U) { S[] = +(X[i, j]); R = S / 3.0; U = sqrt(S * S + 1.0); }"""


CASES: dict[str, tuple[str, tuple[int, int], str, Callable[[Array], Array]]] = {
    "long rows": (SOFTMAX, (2, 70001), "float32", softmax),
    "short rows of an odd length": (SOFTMAX, (20001, 3), "float32", softmax),
    "long columns": (NORM, (9000, 20), "float32", norm),
    "a row's result is shown": (SHOWN, (40, 1000), "float32", shown),
    "one result of two is shown": (BESIDE, (40, 1000), "float32", beside),
    "scan of scans": (SUMS, (2, 40000), "float32", lambda x: np.cumsum(x, 1)),
    "scan of columns": (DOWN, (3000, 40), "float32", lambda x: np.cumsum(x, 0)),
    "scan of short rows": (SUMS, (50, 333), "float32", lambda x: np.cumsum(x, 1)),
    "whole sum by the last group": (WHOLE, (700, 701), "float32", np.sum),
    "columns by the last group": (WIDEST, (30000, 24), "float32", lambda x: x.max(0)),
    "two results of the last group": (TWO, (700, 701), "float32", lambda x: x.sum() / 3),
    "bytes turned": (TURN, (300, 260), "uint8", np.transpose),
}


def devices() -> list[Device]:
    return [d for d in tile_hal.devices() if d.id.startswith("opencl") and d.capabilities.executes]


@pytest.mark.skipif(not devices(), reason="no OpenCL device")
@pytest.mark.parametrize("family", ["gpu-nvidia", "gpu-amd"])
@pytest.mark.parametrize("name", CASES)
def test_values_are_numpys(name: str, family: str) -> None:
    source, shape, dtype, expected = CASES[name]
    x = (np.random.default_rng(0).normal(3, 1, shape) if dtype == "float32" else np.arange(shape[0] * shape[1])).astype(
        dtype
    )
    target = family_target(family).resolved(cores=4)
    compiled = tile_opt.compile(bind(source, {"X": TensorType(DType(dtype), x.reshape(shape).shape)}), target)
    found = on_device(devices()[0], compiled, {"X": x.reshape(shape)})["R"]
    np.testing.assert_allclose(found, expected(x.reshape(shape).astype(float)), 2e-4, 2e-6)


@pytest.mark.skipif(not devices(), reason="no OpenCL device")
def test_calls_beside_each_other_count_their_groups_apart() -> None:
    """Counts belong to queues: calls of several threads are on several of them."""
    x = np.arange(96 * 13000, dtype=np.int32).reshape(13000, 96) % 19
    source = "function (X[M, N]) -> (R) { R[j : N] = +(X[i, j]); }"
    compiled = tile_opt.compile(
        bind(source, {"X": TensorType(DType.INT32, x.shape)}), family_target("gpu-nvidia").resolved(cores=64)
    )
    (kernel,) = compiled.kernels.kernels
    assert waits_for_all(kernel.stripe) is not None and kernel.stripe.indexes  # tiles of columns
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: on_device(devices()[0], compiled, {"X": x})["R"], range(24)))
    for each in found:
        np.testing.assert_array_equal(each, x.sum(0))
