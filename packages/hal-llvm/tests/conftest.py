"""Builds and runs hand-written semtree on the llvm device; what tests share is beside them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hal_llvm.driver import LlvmDevice
from tile_ir.dtype import DType, from_numpy
from tile_ir.kernels import Kernel, KernelList
from tile_ir.semtree.nodes import Access, Block, Function, Param, Statement, Type

sys.path.insert(0, str(Path(__file__).parent))

Array = npt.NDArray[Any]
Case = tuple[Sequence[Statement], Sequence[Array]]


@pytest.fixture(scope="session")
def device() -> LlvmDevice:
    return LlvmDevice()


def make_kernel(
    body: Sequence[Statement],
    arrays: Sequence[Array],
    groups: tuple[int, int, int] = (1, 1, 1),
    helpers: tuple[Function, ...] = (),
    flops: int = 1,
) -> Kernel:
    params = tuple(
        Param(f"p{n}", Type(from_numpy(a.dtype), ptr=True), Access.READWRITE, 1, a.size) for n, a in enumerate(arrays)
    )
    function = Function("f", params, Block(tuple(body)), helpers=helpers)
    return Kernel("f", None, function, groups, flops)  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def build(device: LlvmDevice) -> Callable[[Sequence[Kernel]], list[Any]]:
    """Kernels compiled together, ready to run."""

    def build_all(kernels: Sequence[Kernel]) -> list[Any]:
        library = device.compiler.build(KernelList(tuple(kernels), (), (), device.target))
        return [device.executor.prepare(library, n) for n in range(len(kernels))]

    return build_all


@pytest.fixture(scope="session")
def launch(device: LlvmDevice, build: Callable[[Sequence[Kernel]], list[Any]]) -> Callable[..., list[Array]]:
    """Run one body on copies of the arrays p0, p1, …; gives the arrays afterwards."""

    def run(body: Sequence[Statement], *arrays: Array, **options: Any) -> list[Array]:
        (kernel,) = build([make_kernel(body, arrays, **options)])
        buffers = [device.memory.allocate(a.nbytes) for a in arrays]
        for buffer, a in zip(buffers, arrays, strict=True):
            buffer.as_array(a.dtype)[:] = a.ravel()
        kernel.run(buffers).wait()
        return [b.as_array(a.dtype)[: a.size] for b, a in zip(buffers, arrays, strict=True)]

    return run


@pytest.fixture(scope="session")
def launch_all(device: LlvmDevice, build: Callable[[Sequence[Kernel]], list[Any]]) -> Callable[..., list[Array]]:
    """Run many bodies compiled as one module; gives the first array of each afterwards."""

    def run(cases: Sequence[Case]) -> list[Array]:
        kernels = build([make_kernel(body, arrays) for body, arrays in cases])
        results: list[Array] = []
        for kernel, (_, arrays) in zip(kernels, cases, strict=True):
            buffers = [device.memory.wrap(memoryview(np.array(a).view(np.uint8))) for a in arrays]
            kernel.run(buffers).wait()
            results.append(buffers[0].as_array(arrays[0].dtype))
        return results

    return run


_EDGES: dict[str, list[float]] = {
    "f": [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, -2.5, np.inf, -np.inf, np.nan, 3.0, 255.7, -129.2, 65504.0, 1e-7, 3e9],
    "i": [0, 1, -1, 2, -2, 3, 7, -7, 100, -100],
    "u": [0, 1, 2, 3, 7, 100, 200],
}


@pytest.fixture(scope="session")
def samples() -> Callable[[DType, int], Array]:
    """`count` values of a dtype with its edge cases, shuffled by the seed."""

    def make(dtype: DType, seed: int, count: int = 192) -> Array:
        generator = np.random.default_rng(seed)
        if dtype is DType.BOOL:
            return generator.integers(0, 2, count).astype(bool)
        if dtype.is_float:
            values = generator.normal(0, 10, count)
            edges = [*_EDGES["f"], 1e-40]
        else:
            info = np.iinfo(dtype.numpy)
            values = generator.integers(info.min, info.max, count, dtype.numpy, endpoint=True)
            edges = [*_EDGES["i" if dtype.is_signed else "u"], int(info.min), int(info.max), int(info.max) - 1]
        out = values.astype(dtype.numpy)
        with np.errstate(over="ignore"):
            # Edge values in every second place, so that they also meet each other.
            picks = generator.integers(0, len(edges), (count + 1) // 2)
            out[::2] = np.array([dtype.numpy.type(edges[p]) for p in picks], dtype.numpy)
        return out

    return make
