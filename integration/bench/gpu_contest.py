"""A case on a GPU: the same tensors on both sides, checked against float64, timed by the device."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import tile_runtime as tile
import torch
from classes.work import Case, instance
from contest import compared, tile_function
from peers import pytorch
from rows import OURS
from tile_hal.submission import Prepared
from tile_ir.dtype import DType


@dataclass
class OnDevice:
    """A case whose parts are made when they are first asked for."""

    case: Case
    evaluator: tile.Evaluator

    @cached_property
    def cuda(self) -> Mapping[str, torch.Tensor]:
        """The inputs, in device memory."""
        work, source = self.case.work, torch.Generator("cuda").manual_seed(0)
        return {n: _drawn(s, work.dtype_of(n), work.highest.get(n, 100), source) for n, s in work.inputs.items()}

    @cached_property
    def tensors(self) -> list[tile.Tensor]:
        """The same values for Tile."""
        return [tile.asarray(_on_host(t), device=self.evaluator.device) for t in self.cuda.values()]

    @cached_property
    def function(self) -> tile.Function | tile.Derivative:
        return tile_function(self.case.work)

    @cached_property
    def lowered(self) -> tile.Lowered:
        return self.evaluator.lower(self.function, *self.tensors)

    @cached_property
    def results(self) -> tuple[tile.Tensor, ...]:
        made: Any = self.evaluator(self.function, *self.tensors)
        return made if isinstance(made, tuple) else (made,)

    @cached_property
    def compile_seconds(self) -> float:
        """From text to what the driver accepted."""
        start = time.perf_counter()
        _ = self.lowered.library
        return time.perf_counter() - start

    def ours(self) -> Callable[[], float]:
        """A sample: the seconds that the device spent in our kernels."""
        lowered, function = self.lowered, self.function
        prepared = Prepared(self.evaluator.device, lowered.library, lowered.kernels)
        named = dict(zip(function.inputs, self.tensors, strict=True))
        named |= dict(zip(function.outputs, self.results, strict=True))
        listed = {b.id: b.name for b in lowered.kernels.buffers}
        buffers = [named[listed[number]].buffer for number in prepared.order]
        return lambda: prepared.run(buffers, profile=True).wait().seconds or 0.0

    def peers(self) -> Mapping[str, Callable[[], float]]:
        """A sample for each memory format: seconds between two events around one run."""
        made = pytorch.eager(self.case.work, list(self.cuda.values()))
        return {name: lambda run=run: cuda_seconds(run) for name, run in made.items()}

    def single(self) -> Mapping[str, Callable[[], float]]:
        """The same case in float32, by us."""
        wide = instance(self.case.program.name, {**self.case.values, "dtype": "float32"})
        return {"float32": OnDevice(wide, self.evaluator).ours()}

    def check(self) -> None:
        """Raises WrongResult when ours is wrong."""
        wide = [t.double() if t.is_floating_point() else t for t in self.cuda.values()]
        expected = next(iter(pytorch.eager(self.case.work, wide).values()))()
        listed: Sequence[torch.Tensor] = expected if isinstance(expected, tuple | list) else (expected,)
        compared(OURS, self.case.work, [r.numpy() for r in self.results], [e.cpu().numpy() for e in listed])


def cuda_seconds(run: Callable[[], Any]) -> float:
    """Seconds between two CUDA events around one run."""
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    run()
    stop.record()
    stop.synchronize()
    return start.elapsed_time(stop) / 1e3


def _drawn(shape: tuple[int, ...], dtype: str, highest: int, source: torch.Generator) -> torch.Tensor:
    wanted: torch.dtype = getattr(torch, dtype)
    if wanted.is_floating_point:
        return torch.randn(shape, generator=source, device="cuda").to(wanted)
    return torch.randint(highest, shape, generator=source, device="cuda", dtype=wanted)


def _on_host(tensor: torch.Tensor) -> Any:
    """An array of the tensor's dtype; NumPy's own bfloat16 comes by way of float32."""
    if tensor.dtype == torch.bfloat16:
        return tensor.float().cpu().numpy().astype(DType.BFLOAT16.numpy)
    return np.asarray(tensor.cpu().numpy())
