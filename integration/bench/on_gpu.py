"""A case on a GPU: the same tensors on both sides, checked against float64, timed by the device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import Any

import numpy as np
import tile_runtime as tile
import torch
from classes import Class, instance
from contest import Ready, judged
from machine import CHAINS, Probe
from numpy.typing import NDArray
from peers import pytorch
from rounds import Contestant
from rows import OURS
from tile_hal.submission import Prepared
from tile_ir.dtype import DType

AHEAD = 2_000_000
"""Cycles of the device, about a millisecond: what the host needs to launch the kernels of one run."""


class OnGpu(Ready):
    """A case for an OpenCL device and for PyTorch on the same one."""

    @cached_property
    def cuda(self) -> list[torch.Tensor]:
        """The inputs, in device memory."""
        work, source = self.case.work, torch.Generator("cuda").manual_seed(0)
        return [_drawn(s, work.dtype_of(n), work.highest.get(n, 100), source) for n, s in work.inputs.items()]

    def given(self) -> list[tile.Tensor]:
        """The same values for Tile."""
        return [tile.asarray(_on_host(t), device=self.evaluator.device) for t in self.cuda]

    def contestants(self, class_: Class) -> tuple[dict[str, Contestant], list[str]]:
        """Beside ours PyTorch in each memory format, or ourselves in float32; samples are the device's own time."""
        self._check()
        allow_tf32(self.evaluator.reduced_precision)
        match class_.against:
            case "peers":
                return {OURS: self.sample(), **self._torch()}, []
            case "float32":
                wide = instance(self.case.program.name, {**self.case.values, "dtype": "float32"})
                return {OURS: self.sample(), "float32": OnGpu(wide, self.evaluator).sample()}, []
            case "issue slots":
                return {OURS: self.sample()}, []

    def sample(self) -> Callable[[], float]:
        """The seconds that the device spends in our kernels: behind `AHEAD`, as PyTorch's."""
        lowered, function = self.lowered, self.function
        prepared = Prepared(self.evaluator.device, lowered.library, lowered.kernels)
        named = dict(zip(function.inputs, self.inputs, strict=True))
        named |= dict(zip(function.outputs, self.outputs, strict=True))
        listed = {b.id: b.name for b in lowered.kernels.buffers}
        buffers = [named[listed[number]].buffer for number in prepared.order]
        before = Probe(self.evaluator.device, 1, steps=AHEAD // CHAINS)

        def seconds() -> float:
            begun = before.start()
            taken = prepared.run(buffers, (begun,), profile=True).wait().seconds
            return taken or 0.0

        return warm(seconds)

    def _torch(self) -> Mapping[str, Contestant]:
        made = pytorch.eager(self.case.work, self.cuda)
        return {name: warm(partial(cuda_seconds, run)) for name, run in made.items()}

    def _check(self) -> None:
        """On the device, where large results are."""
        wide = [t.double() if t.is_floating_point() else t for t in self.cuda]
        expected: Any = next(iter(pytorch.eager(self.case.work, wide).values()))()
        for got, want in zip(self.outputs, expected if isinstance(expected, tuple) else (expected,), strict=True):
            error = (_on_device(got, want.device) - want).abs().max() / want.abs().max().clamp(min=1e-30)
            judged(OURS, self.case.work, float(error), reduced=self.evaluator.reduced_precision)


def allow_tf32(allowed: bool) -> None:
    """For PyTorch, as `reduced_precision` does for us."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = allowed


def cuda_seconds(run: Callable[[], Any]) -> float:
    """Seconds that the device spends in one run: behind `AHEAD`, the host has launched all of it when it begins."""
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(AHEAD)
    start.record()
    run()
    stop.record()
    stop.synchronize()
    return start.elapsed_time(stop) / 1e3


def captured(run: Callable[[], Any]) -> tuple[Callable[[], float], Any]:
    """A sample of what a run takes, captured as a graph, so that the host does not count; and the run's result."""
    with torch.no_grad():
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(3):
                run()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = run()
    return partial(_replayed, graph, run), found


def _replayed(graph: torch.cuda.CUDAGraph, run: Callable[[], Any]) -> float:
    """The memory that a graph reads is that of what it was captured from: `run` is here so that it stays."""
    return cuda_seconds(graph.replay)


def device_seconds(run: Callable[[], Any]) -> float:
    """Seconds that Tile's device spends in the kernels of one run, by the event of each.

    What passes between two of them does not count: on an H200 the 86 kernels of GPT-2, 8 x 512, take 2.78 ms by their events,
    and 3.08 ms queued without any; the 57 of ResNet-50, batch 32, take 1.43 and 1.77.
    """
    with tile.profile() as profile:
        run()
    return profile.seconds


def warm(sample: Callable[[], float]) -> Callable[[], float]:
    """The middle one of three samples, after one that wakes the device up."""

    def middle() -> float:
        sample()
        return sorted(sample() for _ in range(3))[1]

    return middle


def copied(size: int) -> float:
    """Bytes a second of a copy that reads and writes `size` bytes in all; the best of several."""
    source = torch.empty(size // 2, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return size / min(cuda_seconds(lambda: target.copy_(source)) for _ in range(15))


def _drawn(shape: tuple[int, ...], dtype: str, highest: int, source: torch.Generator) -> torch.Tensor:
    wanted: torch.dtype = getattr(torch, dtype)
    if wanted.is_floating_point:
        return torch.randn(shape, generator=source, device="cuda").to(wanted)
    return torch.randint(highest, shape, generator=source, device="cuda", dtype=wanted)


def _on_host(tensor: torch.Tensor) -> NDArray[Any]:
    """An array of the tensor's dtype; NumPy's bfloat16 comes by way of float32."""
    if tensor.dtype == torch.bfloat16:
        return tensor.float().cpu().numpy().astype(DType.BFLOAT16.numpy)
    return tensor.cpu().numpy()


def _on_device(tensor: tile.Tensor, device: torch.device) -> torch.Tensor:
    """A result in float64, where PyTorch works."""
    array = tensor.numpy()
    return torch.from_numpy(array.astype(np.float32) if tensor.dtype is DType.BFLOAT16 else array).to(device).double()
