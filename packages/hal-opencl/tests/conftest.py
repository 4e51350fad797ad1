"""Hand-written semtree on the OpenCL devices of this machine; PoCL's caches stay in a temporary folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

Array = npt.NDArray[Any]


@pytest.fixture(scope="session", autouse=True)
def _private_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    os.environ.setdefault("POCL_CACHE_DIR", str(tmp_path_factory.mktemp("pocl")))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`device` is every OpenCL device; without one its tests are skipped."""
    if "device" not in metafunc.fixturenames:
        return
    from hal_opencl.driver import OpenCLDriver

    devices = [device for found in OpenCLDriver().device_sets() for device in found.devices]
    none = pytest.param(None, marks=pytest.mark.skip(reason="no OpenCL device: pip install pocl-binary-distribution"))
    metafunc.parametrize("device", devices or [none], ids=[d.id for d in devices] or ["none"], scope="session")


@pytest.fixture(scope="session")
def launch() -> Callable[..., list[Array]]:
    """Run a function on copies of the arrays of its parameters; gives the arrays afterwards."""
    from tile_ir.kernels import Kernel, KernelList
    from tile_ir.stripe.nodes import Block

    def run(
        device: Any, function: Any, arrays: Sequence[Array], groups: tuple[int, int, int] = (1, 1, 1)
    ) -> list[Array]:
        kernels = KernelList((Kernel(function.name, Block(function.name), function, groups),), (), (), device.target)
        kernel = device.executor.prepare(device.compiler.build(kernels), 0)
        buffers = [device.memory.allocate(a.nbytes) for a in arrays]
        for buffer, array in zip(buffers, arrays, strict=True):
            buffer.map_discard()[:] = array.tobytes()
            buffer.unmap().wait()
        event = kernel.run(buffers)
        results: list[Array] = []
        for buffer, array in zip(buffers, arrays, strict=True):
            results.append(np.frombuffer(bytes(buffer.map_current([event])), array.dtype).copy())
            buffer.unmap().wait()
        return results

    return run


@pytest.fixture
def fails_once(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Have a function of `binding` run out of memory at first; the list that it gives is of the calls."""
    from hal_opencl import binding

    def install(name: str, times: int = 1) -> list[str]:
        real, called = getattr(binding, name), list[str]()

        def scarce(*args: Any) -> Any:
            called.append(name)
            if len(called) <= times:
                raise binding.cl.MemoryError("test", binding.cl.status_code.MEM_OBJECT_ALLOCATION_FAILURE)
            return real(*args)

        monkeypatch.setattr(binding, name, scarce)
        return called

    return install
