"""A compiled function on one device: binds buffers to its kernel list and runs it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from tile_hal.interfaces import Buffer, Device, Event, Library
from tile_hal.submission import Prepared
from tile_ir.diagnostics import Diagnostic, TileTypeError
from tile_ir.kernels import BufferInfo, BufferKind, KernelList

from tile_runtime.arrays import raw_view
from tile_runtime.tensor import Tensor, host_view, record

if TYPE_CHECKING:
    from tile_opt.compiler import Compiled

OUTPUT_ALIGNMENT = 64
"""Bytes: kernels may assume that outputs start on a cache line."""


class Executable:
    """Compiled code for one signature, ready to run from any thread."""

    def __init__(self, device: Device, compiled: Compiled, library: Library) -> None:
        kernels: KernelList = compiled.kernels
        self.device = device
        self.compiled = compiled
        self.library = library
        self._prepared = Prepared(device, library, kernels)
        user = {b.id: b for b in kernels.buffers}
        order = [user[i] for i in self._prepared.order]
        self._slots = _Slots(order, compiled)
        self._outputs = [self._slots.info(n) for n in self._slots.output_names]
        self._dtypes = [b.dtype.numpy for b in self._outputs]

    def run_arrays(self, arrays: Sequence[np.ndarray[Any, Any]], out: Sequence[Any] | None) -> list[Any]:
        """NumPy in, NumPy out; waits for the result."""
        memory = self.device.memory
        inputs = [self._upload(a) for a in arrays]
        results = [memory.allocate(b.bytes) for b in self._outputs]
        if out is not None:
            results = [self._given(r, o) for r, o in zip(results, out, strict=True)]
        self._start(inputs, results, ()).wait()
        return [self._array(k, r, out) for k, r in enumerate(results)]

    def _upload(self, array: np.ndarray[Any, Any]) -> Buffer:
        view = raw_view(array)
        buffer = self.device.memory.wrap(view)
        if buffer is not None:
            return buffer
        buffer = self.device.memory.allocate(array.nbytes)
        if array.nbytes:
            buffer.map_discard()[: array.nbytes] = array.reshape(-1).view(np.uint8).data
        buffer.unmap().wait()
        return buffer

    def _given(self, fresh: Buffer, out: Any) -> Buffer:
        """The caller's own memory when kernels can write it in place; else a buffer that is copied afterwards."""
        if not isinstance(out, np.ndarray) or not out.flags.c_contiguous:  # pyright: ignore[reportUnknownMemberType]
            return fresh
        if out.__array_interface__["data"][0] % OUTPUT_ALIGNMENT:  # pyright: ignore[reportUnknownMemberType]
            return fresh
        return self.device.memory.wrap(raw_view(out)) or fresh  # pyright: ignore[reportUnknownArgumentType]

    def _array(self, k: int, buffer: Buffer, out: Sequence[Any] | None) -> Any:
        info = self._outputs[k]
        view = buffer.map_current()
        host = np.frombuffer(view, self._dtypes[k], self._slots.sizes[k]).reshape(info.shape) if info.bytes else np.empty(info.shape, self._dtypes[k])
        if out is None:
            return host
        if not np.shares_memory(host, out[k]):
            out[k][...] = host
        return out[k]

    def run_tensors(self, tensors: Sequence[Tensor], out: Sequence[Tensor] | None) -> list[Tensor]:
        """Tensors in, tensors out; returns at once, the results are pending."""
        results = list(out) if out is not None else [Tensor(self.device, b.shape, b.dtype) for b in self._outputs]
        waits = [e for t in tensors for e in t.pending(write=False)]
        waits += [e for t in results for e in t.pending(write=True)]
        event = self._start([t.buffer for t in tensors], [t.buffer for t in results], waits)
        record(tensors, results, event)
        return results

    def _start(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], waits: Sequence[Event]) -> Event:
        return self._prepared.run(self._slots.arranged(inputs, outputs), waits)


class _Slots:
    """Where each program input and output goes among the kernel list's user buffers."""

    def __init__(self, order: list[BufferInfo], compiled: Compiled) -> None:
        program = compiled.program
        place = {(b.kind, b.name): k for k, b in enumerate(order)}
        self._order = order
        # Stripe may have to call an output otherwise (one named like an input); positions agree.
        self.output_names = list(compiled.stripe.outputs)
        inputs = [place.get((BufferKind.INPUT, p.name)) for p in program.inputs]
        self._inputs = [(k, n) for n, k in enumerate(inputs) if k is not None]
        self._outputs = [(place[BufferKind.OUTPUT, name], n) for n, name in enumerate(self.output_names)]
        self.sizes = [int(np.prod(self.info(n).shape, dtype=np.int64)) for n in self.output_names]

    def info(self, output: str) -> BufferInfo:
        return next(b for b in self._order if b.kind is BufferKind.OUTPUT and b.name == output)

    def arranged(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer]) -> list[Buffer]:
        """Bindings in the order the prepared kernel list takes them."""
        bindings: list[Any] = [None] * len(self._order)
        for k, n in self._inputs:
            bindings[k] = inputs[n]
        for k, n in self._outputs:
            bindings[k] = outputs[n]
        return bindings


def check_out(names: Sequence[str], infos: Sequence[Any], out: Sequence[Any], inputs: Sequence[Any]) -> None:
    """TileTypeError when a given output has the wrong shape or dtype, cannot be written, or overlaps an input."""
    for name, info, value in zip(names, infos, out, strict=True):
        if tuple(value.shape) != info.shape or _dtype_name(value) != str(info.dtype):
            given = f"{_dtype_name(value)}{list(value.shape)}"
            raise _bad_out(f"output {name!r} is {info.dtype}{list(info.shape)}, the array given for it is {given}")
        if isinstance(value, np.ndarray) and not value.flags.writeable:  # pyright: ignore[reportUnknownMemberType]
            raise _bad_out(f"the array given for output {name!r} is read-only")
        if any(_overlaps(value, x) for x in inputs):
            raise _bad_out(f"the memory given for output {name!r} overlaps an input", "pass a copy of the input")
    if any(_overlaps(a, b) for k, a in enumerate(out) for b in out[:k]):
        raise _bad_out("two given outputs overlap")


def _dtype_name(value: Any) -> str:
    return str(getattr(value.dtype, "name", value.dtype)) if isinstance(value, np.ndarray) else str(value.dtype)  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType]


def _overlaps(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return bool(np.may_share_memory(a, b))  # pyright: ignore[reportUnknownArgumentType]
    return a is b or (isinstance(a, Tensor) and isinstance(b, Tensor) and a.buffer is b.buffer)


def _bad_out(message: str, hint: str | None = None) -> TileTypeError:
    return TileTypeError(Diagnostic("TILE-E505", message, hint=hint))


__all__ = ["Executable", "check_out", "host_view"]
