"""A kernel cache of its own for each test session, and an asynchronous device."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import tile_hal
import tile_runtime as tile
from tile_hal.builtin.common import load_target
from tile_hal.builtin.interp import InterpCompiler, InterpExecutor
from tile_hal.host import HostDevice, HostDeviceSet, supported_dtypes
from tile_ir.stripe.nodes import Bind
from tile_ir.target import Capabilities, PassConfig, Target
from tile_opt.blocks.split import split
from tile_opt.kernel.view import KernelView, close_kernel
from tile_opt.passes import PASSES
from tile_opt.passes.scheduling import SchedulingPass
from tile_opt.plan.build import Built
from tile_opt.plan.plan import Cover, Level, Plan
from tile_runtime import evaluator


@pytest.fixture(autouse=True, scope="session")
def private_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("kernels")
    patch = pytest.MonkeyPatch()
    patch.setenv("TILE_CACHE_DIR", str(folder))
    patch.delenv("TILE_DEVICE", raising=False)
    yield folder
    patch.undo()


@pytest.fixture(scope="session")
def add() -> tile.Function:
    return tile.Function("function (A, B) -> (C) { C = A + B; }")


@pytest.fixture(scope="session")
def matmul() -> tile.Function:
    return tile.Function("function (A[M, L], B[L, N]) -> (C) { C[i, j : M, N] = +(A[i, k] * B[k, j]); }")


@dataclass(frozen=True)
class Pieces(SchedulingPass):
    """A small scheduler: a serial loop over pieces of the first loop, in a few sizes."""

    sizes: tuple[int, ...] = (4, 2, 8)

    def candidates(self, view: KernelView, target: Target) -> Iterator[Plan]:
        for size in self.sizes if view.loops else ():
            yield Plan((Level(Bind.NONE, (Cover(view.loops[0].name, size),)),), reason="pieces")

    def build(self, view: KernelView, plan: Plan, target: Target) -> Built:
        (cover,) = plan.levels[0].covers
        sizes = {loop.name: loop.range for loop in view.loops} | {cover.loop: cover.size}
        return Built(replace(split(close_kernel(view), sizes), tags=frozenset({"kernel", "scheduled"})))


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> tile_hal.Device:
    """The device `interp` with `Pieces` as its scheduler."""
    device = tile_hal.device("interp")
    passes = tuple(PassConfig(name) for name in ("inline", "fuse", "merge", "pieces"))
    monkeypatch.setitem(PASSES, "pieces", f"{Pieces.__module__}:Pieces")
    monkeypatch.setattr(device, "target", replace(device.target, passes=passes))
    # Shared evaluators keep the target of their device.
    monkeypatch.setattr(evaluator, "_evaluators", {})
    return device


class LateQueue(tile_hal.HostQueue):
    """Everything runs later, on threads, and never sooner than `delay` seconds."""

    delay = 0.01

    def run(self, work: Any, dependencies: Sequence[Any] = (), *, profile: bool = False, inline: bool = True) -> Any:
        def late() -> None:
            time.sleep(self.delay)
            if self.fail.is_set():
                raise RuntimeError("the device broke")
            work()

        return super().run(late, dependencies, profile=profile, inline=False)

    @property
    def fail(self) -> threading.Event:
        return self.__dict__.setdefault("_fail", threading.Event())


class LateDriver(tile_hal.Driver):
    name = "late"
    api = (1, 0)

    def device_sets(self) -> Sequence[tile_hal.DeviceSet]:
        target = load_target("interp")
        can = Capabilities(dtypes=supported_dtypes(), nodes=target.nodes, is_async=True)
        executor = InterpExecutor(LateQueue(threads=2))
        device = HostDevice("late:0", "Asynchronous", target, can, InterpCompiler(target.nodes), executor)
        return (HostDeviceSet([device]),)


class LatePlugin:
    @tile_hal.hookimpl
    def tile_hal_driver(self) -> tile_hal.Driver:
        return LateDriver()


@pytest.fixture(scope="session")
def late() -> tile_hal.Device:
    """An asynchronous device that takes its time, so that a missing dependency shows."""
    if "late" not in tile_hal.drivers():
        tile_hal.register(LatePlugin(), name="late")
    return tile_hal.device("late")
