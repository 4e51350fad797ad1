"""A compiled function on one device: binds buffers to its kernel list and runs it."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from tile_hal.events import FailedEvent
from tile_hal.host import HostBuffer
from tile_hal.interfaces import Buffer, Device, Library
from tile_hal.submission import Prepared
from tile_ir.kernels import OUTPUT_ALIGN, BufferInfo, BufferKind

from tile_runtime import hazards
from tile_runtime.arrays import Array, numpy_dtype, overlaps_itself, raw_view
from tile_runtime.tensor import Tensor

if TYPE_CHECKING:
    from tile_opt.compiler import Compiled


class Executable:
    """Compiled code for one signature, ready to run from any thread."""

    __slots__ = ("_inputs", "_nothing_given", "_prepared", "_results", "device", "outputs", "used")

    def __init__(self, device: Device, compiled: Compiled, library: Library) -> None:
        self.device = device
        self.used = 0
        """When it was last called, on the program cache's clock."""
        self._prepared = Prepared(device, library, compiled.kernels)
        listed = {b.id: b for b in compiled.kernels.buffers}
        order = [listed[i] for i in self._prepared.order]
        place = {(b.kind, b.name): k for k, b in enumerate(order)}
        inputs = [place.get((BufferKind.INPUT, p.name)) for p in compiled.program.inputs]
        self._inputs = [(k, n) for n, k in enumerate(inputs) if k is not None]
        """(position among the bindings, number) of every input that kernels read."""
        # Stripe may have to call an output otherwise (one named like an input); positions agree.
        places = [place[BufferKind.OUTPUT, name] for name in compiled.stripe.outputs]
        self.outputs: tuple[BufferInfo, ...] = tuple(order[k] for k in places)
        """One for each output, in header order."""
        self._results = [
            (k, b.bytes, numpy_dtype(f"output {public!r}", b.dtype), math.prod(b.shape), b.shape)
            for k, b, (public, _) in zip(places, self.outputs, compiled.program.outputs, strict=True)
        ]

        self._nothing_given = (None,) * len(self._results)

    def run_arrays(self, arrays: Sequence[Array], out: Sequence[Array | None] | None = None) -> list[Array]:
        """NumPy in (any layout), NumPy out; waits for the result.

        An array in `out` is written in place where kernels can and no input shares its memory, else by a copy.
        """
        memory = self.device.memory
        bindings: list[Any] = [None] * (len(self._inputs) + len(self._results))
        for k, n in self._inputs:
            bindings[k] = memory.wrap(raw_view(arrays[n])) or self._uploaded(arrays[n])
        for n, (k, nbytes, _, _, _) in enumerate(self._results):
            given = None if out is None else self._in_place(out[n], arrays)
            bindings[k] = given or memory.allocate(nbytes)
        self._prepared.run(bindings).wait()
        given = out or self._nothing_given
        return [self._array(bindings[r[0]], r, o) for r, o in zip(self._results, given, strict=True)]

    def takes(self, out: Array, inputs: Sequence[Any]) -> bool:
        """A quick yes for the one output of a function, writable, of the right type and apart from all inputs."""
        if len(self._results) != 1:
            return False
        _, _, dtype, _, shape = self._results[0]
        if out.dtype != dtype or out.shape != shape or not out.flags.writeable or overlaps_itself(out):
            return False
        return not any(type(x) is not np.ndarray or np.may_share_memory(out, x) for x in inputs)

    def _uploaded(self, array: Array) -> Buffer:
        buffer = self.device.memory.allocate(array.nbytes)
        if array.nbytes:
            view = buffer.map_discard()
            np.frombuffer(view, np.uint8, array.nbytes)[:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            buffer.unmap().wait()
        return buffer

    def _in_place(self, out: Array | None, arrays: Sequence[Array]) -> Buffer | None:
        """The caller's own memory, when kernels can write it."""
        if out is None or not out.nbytes or not out.flags.c_contiguous or not out.dtype.isnative:
            return None
        if _address(out) % OUTPUT_ALIGN or any(np.may_share_memory(out, a) for a in arrays):
            return None
        return self.device.memory.wrap(raw_view(out))

    def _array(
        self, buffer: Buffer, result: tuple[int, int, np.dtype[Any], int, tuple[int, ...]], out: Array | None
    ) -> Array:
        """The host array of a finished result: `out`, or the buffer's own memory where that outlives the mapping."""
        _, nbytes, dtype, size, shape = result
        if not nbytes:
            return np.empty(shape, dtype) if out is None else out
        view: Array = np.frombuffer(buffer.map_current(), dtype, size)
        if len(shape) != 1:
            view = view.reshape(shape)
        if out is not None and not np.may_share_memory(view, out):
            out[...] = view
        if isinstance(buffer, HostBuffer):
            return view if out is None else out
        fresh = view.copy() if out is None else out
        buffer.unmap().wait()
        return fresh

    def run_tensors(self, tensors: Sequence[Tensor], out: Sequence[Tensor | None]) -> list[Tensor]:
        """Tensors in, Tensors out; returns at once, the results are pending. `out` shares memory with no input."""
        results = [
            Tensor(self.device, b.shape, b.dtype) if o is None else o for o, b in zip(out, self.outputs, strict=True)
        ]
        bindings: list[Any] = [None] * (len(self._inputs) + len(self._results))
        for k, n in self._inputs:
            bindings[k] = tensors[n].buffer
        for (k, *_), tensor in zip(self._results, results, strict=True):
            bindings[k] = tensor.buffer
        ticket, waits = hazards.claim(tensors, results)
        try:
            event = self._prepared.run(bindings, waits)
        except BaseException as problem:
            ticket.started(FailedEvent(problem))
            raise
        ticket.started(event)
        return results


def _address(array: Array) -> int:
    try:
        return ctypes.addressof(ctypes.c_char.from_buffer(array.data))
    except (TypeError, ValueError):  # bfloat16 has no buffer
        return array.__array_interface__["data"][0]
