"""Running one compiled program at every level: reference, Stripe, and any device."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tile_hal
import tile_lang
from tile_hal.interfaces import Buffer, Device
from tile_ir.kernels import BufferKind
from tile_ir.program.nodes import Program, TensorType
from tile_ir.stripe import interpret
from tile_opt.compiled import Compiled

Array = np.ndarray[Any, Any]
ROOT = Path(__file__).parents[2]
PACKAGES = sorted(p.parent for p in ROOT.glob("packages/*/src"))


def bind(source: str, types: Mapping[str, TensorType]) -> Program:
    return tile_lang.bind(tile_lang.parse(source), types)


def on_stripe(compiled: Compiled, inputs: Mapping[str, Array], scheduled: bool = True) -> dict[str, Array]:
    """Outputs by public name, of the Stripe interpreter."""
    stripe = compiled.stripe if scheduled else compiled.stripe_initial
    found = interpret.run(stripe, {n: inputs[n] for n in stripe.inputs})
    return {public: found[n] for (public, _), n in zip(compiled.program.outputs, stripe.outputs, strict=True)}


def on_device(device: Device, compiled: Compiled, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Outputs by public name; they hold garbage before the run, so that a cell that nothing writes shows."""
    kernels = compiled.kernels
    library = device.compiler.build(kernels)
    buffers: dict[int, Buffer] = {}
    outputs: dict[str, int] = {}
    for info in kernels.buffers:
        if info.kind is BufferKind.INPUT:
            buffers[info.id] = _buffer(device, inputs[info.name])
        elif info.kind is BufferKind.OUTPUT:
            buffers[info.id] = _buffer(device, np.full(info.bytes, 0x5A, np.uint8))
            outputs[info.name] = info.id
    tile_hal.submit(device, library, kernels, buffers).wait()
    infos = {b.id: b for b in kernels.buffers}
    results: dict[str, Array] = {}
    for (public, _), name in zip(compiled.program.outputs, compiled.stripe.outputs, strict=True):
        info = infos[outputs[name]]
        flat = np.frombuffer(buffers[info.id].map_current(), info.dtype.numpy, int(np.prod(info.shape, dtype=np.int64)))
        results[public] = flat.reshape(info.shape).copy()
        buffers[info.id].unmap().wait()
    return results


def _buffer(device: Device, array: Array) -> Buffer:
    buffer = device.memory.allocate(max(array.nbytes, 1))
    if array.nbytes:
        buffer.map_discard()[: array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        buffer.unmap().wait()
    return buffer


def python(code: str, **environment: str) -> str:
    """What a fresh interpreter prints."""
    import os

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | environment, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
