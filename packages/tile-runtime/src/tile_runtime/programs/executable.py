"""A compiled function on one device: binds buffers to its kernel list and runs it."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from tile_hal.errors import execution_error
from tile_hal.events import COMPLETED, FailedEvent
from tile_hal.host import HostBuffer
from tile_hal.interfaces import Buffer, Device, Direct, DirectArray, Event, Library
from tile_hal.submission import Prepared
from tile_ir.diagnostics import TileDeviceError
from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.inherited import inherited, takeable
from tile_ir.kernels import OUTPUT_ALIGN, BufferInfo, BufferKind, KernelList, StepKind, counted_steps

from tile_runtime import hazards
from tile_runtime.arrays import Array, numpy_dtype, overlaps_itself, raw_view
from tile_runtime.programs.packing import Packed, parted
from tile_runtime.programs.results import Result, maker, wrapper
from tile_runtime.recording import RECORDERS, recorded
from tile_runtime.tensor import Tensor, holder, host_array, in_place, result

if TYPE_CHECKING:
    from tile_runtime.programs.runnable import Runnable
    from tile_runtime.typed import Typed


HANDED_OVER_SECONDS = 1e-2
"""Work that is estimated above this, on all cores, is handed over when it is on Tensors alone: mostly it takes a fifth of the
estimate, and to hand it over and to hear that it is done takes up to 0.1 ms."""


def _read(kernels: KernelList, numbers: Mapping[str, int]) -> tuple[int, ...]:
    """The places of a list's inputs among a call's values."""
    return tuple(numbers[b.name] for b in kernels.buffers if b.kind is BufferKind.INPUT)


Pairs = tuple[tuple[int, int], ...]
"""Numbers of results, each with that of the argument whose memory it may take."""


@frozen
class Inheriting:
    """A program that takes all arguments but some, in whose memory results are then."""

    executable: Executable
    places: Mapping[int, int]
    """The number of the argument in whose memory a result is, by the number of the result."""

    def split(self, values: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """The arguments that are left, and for each result the Tensor in which it is, or None."""
        taken, count = self.places, len(self.executable.outputs)
        gone = set(taken.values())
        rest = [v for k, v in enumerate(values) if k not in gone]
        return rest, [values[taken[n]] if n in taken else None for n in range(count)]

    def at_once(self, values: Sequence[Any], out: Any, args: Sequence[Any]) -> Any:
        """See `Executable.at_once`; `out`, if given, names no memory but that of arguments, and what is taken are Tensors."""
        rest, results = self.split(values)
        if not all(type(values[k]) is Tensor for k in self.places.values()):
            return None
        given = results if out is None else self.executable.several(out)
        if len(given) != len(results) or any(a is not b for a, b in zip(given, results, strict=True)):
            return None
        if hazards.lent and any(id(t) in hazards.lent for t in results):
            return None
        return self.executable.at_once(rest, results, args)


class Executable:
    """Compiled code for one signature, ready to run from any thread."""

    __slots__ = (
        "_arguments",
        "_as_tensors",
        "_defers",
        "_direct",
        "_inputs",
        "_made_of",
        "_make",
        "_expects_more",
        "_inheriting",
        "_nothing_given",
        "_packed",
        "_packs",
        "_prepared",
        "_quick",
        "_result_types",
        "_results",
        "_single",
        "_types",
        "device",
        "taken",
        "typed",
        "used",
    )

    def __init__(
        self, device: Device, runnable: Runnable, library: Library, typed: Typed, like: Executable | None = None
    ) -> None:
        """`typed` is what was compiled: recordings say what runs by it. What is kept of constants and bound tensors is that of `like`."""
        self.device = device
        self.typed = typed
        self.used = 0
        """When it was last called, on the program cache's clock."""
        self._made_of = (runnable, library)
        self._inheriting: dict[Pairs, Inheriting | None] = {}
        self.taken: dict[object, Inheriting] = {}
        """What calls did that donated arguments of certain names, by these names; by None what those did that update."""
        kernels, shared = self._pack(runnable, library, like)
        self._prepared = Prepared(device, library, kernels, shared)
        self._bind(runnable, kernels)
        self._direct: Direct | None = None
        self._make = maker(self._results, device.memory)
        self._as_tensors = wrapper(self._results, device)
        self._single = len(self._results) == 1
        self._quick = device.capabilities.keeps_buffers
        """Submitting is a matter of microseconds and waits for nobody: no ticket is needed meanwhile."""
        self._defers = not self._quick and work_seconds(kernels) >= HANDED_OVER_SECONDS * device.target.machine.cores
        """A call on Tensors returns before its work is done."""
        self._expects_more = False
        if any(step.loop is not None and step.loop.count > 1 for step in kernels.steps):
            self.expect_more()  # its rounds are as many calls

    def _pack(
        self, runnable: Runnable, library: Library, like: Executable | None
    ) -> tuple[KernelList, Prepared | None]:
        """The list of every call, and the one that has its constants; what bound tensors alone decide is kept apart."""
        parts = parted(runnable.kernels)
        packed, prepared = (None, None) if like is None else (like._packed, like._prepared)
        self._packed = None if parts is None else packed or Packed(self.device, library, parts[0])
        numbers = {p.name: n for n, p in enumerate(runnable.inputs)}
        self._packs = () if parts is None else _read(parts[0], numbers)
        """The numbers of the bound inputs that are packed."""
        return runnable.kernels if parts is None else parts[1], prepared

    def _bind(self, runnable: Runnable, kernels: KernelList) -> None:
        """Say where arguments and results are among the bindings; what is packed comes behind the program's inputs."""
        listed = {b.id: b for b in kernels.buffers}
        order = [listed[i] for i in self._prepared.order]
        place = {(b.kind, b.name): k for k, b in enumerate(order)}
        packed, tensors = (self._packed.names, self._packed.tensors) if self._packed is not None else ((), ())
        inputs = [place.get((BufferKind.INPUT, name)) for name in (*(p.name for p in runnable.inputs), *packed)]
        self._inputs = [(k, n) for n, k in enumerate(inputs) if k is not None]
        """(position among the bindings, number) of every input that kernels read."""
        self._results = [
            Result(k, order[k], numpy_dtype(f"output {public!r}", order[k].dtype), math.prod(order[k].shape))
            for public, k in ((public, place[BufferKind.OUTPUT, name]) for public, name in runnable.outputs)
        ]
        self._nothing_given = (None,) * len(self._results)
        self._types = [(p.type.shape, p.type.dtype) for p in runnable.inputs]
        self._result_types = [(r.info.shape, r.info.dtype) for r in self._results]
        self._arguments = (*self._types, *((t.shape, t.dtype) for t in tensors))

    @property
    def outputs(self) -> tuple[BufferInfo, ...]:
        """One for each output, in header order."""
        return tuple(r.info for r in self._results)

    # --- results in the memory of arguments -----------------------------------------------------------------

    @property
    def inherits(self) -> bool:
        """Some result may be written in the memory of an argument that nobody needs any more."""
        return bool(self._made_of[0].kernels.inherits)

    def inheriting(self, wanted: Pairs) -> Inheriting | None:
        """The program with results written in the memory of arguments, as far as it allows what is `wanted`; None: nothing of it."""
        if not wanted or not self.inherits:
            return None
        if wanted not in self._inheriting:
            self._inheriting[wanted] = self._with(wanted)
        return self._inheriting[wanted]

    def _with(self, wanted: Pairs) -> Inheriting | None:
        runnable, library = self._made_of
        number = {(b.kind, b.name): b.id for b in runnable.kernels.buffers}
        pairs = {
            (number[BufferKind.OUTPUT, runnable.outputs[n][1]], number[BufferKind.INPUT, runnable.inputs[k].name]): (
                n,
                k,
            )
            for n, k in wanted
        }
        taken = takeable(runnable.kernels, pairs)
        if not taken:
            return None
        places = dict(pairs[pair] for pair in taken)
        inputs = tuple(p for k, p in enumerate(runnable.inputs) if k not in places.values())
        kernels = inherited(runnable.kernels, taken)
        made = Executable(self.device, replace(runnable, inputs=inputs, kernels=kernels), library, self.typed, self)
        return Inheriting(made.expect_more(), places)

    # --- direct calls: on arrays and tensors in host memory, with nothing in between ----------------------

    def expect_more(self) -> Executable:
        """Get ready for direct calls, which a program that runs but once does without."""
        if not self._expects_more:
            self._expects_more = True
            buffers: list[int | None] = [None] * len(self._arguments)
            for k, n in self._inputs:
                buffers[n] = self._prepared.order[k]
            read, written = (holder(self.device, written=w) for w in (False, True))
            arrays = [DirectArray(*type_, holder=read) for type_ in self._arguments]
            arrays += [DirectArray(*type_, written=True, holder=written) for type_ in self._result_types]
            with suppress(TileDeviceError):  # out of memory
                self._direct = self._prepared.direct(arrays, [*buffers, *(r.info.id for r in self._results)])
        return self

    def at_once(self, values: Sequence[Any], out: Any, args: Sequence[Any]) -> Any:
        """The result, or the tuple of results, of a direct call; None when it takes the ordinary way, nothing is done then.

        `values` and `out` are arrays and Tensors. Results that are not given are Tensors when one is among `args`,
        the values that the caller passed, or all values are a composition's own Tensors.
        """
        if RECORDERS:  # who measures needs one step after the other
            return None
        direct = self._direct
        if direct is None or self._defers:
            results = self._launched(values, out)
            if direct is None or results is not None:
                return results
        if self._packed is not None:
            values = (*values, *self._packed.current([values[n] for n in self._packs]))
        if out is not None:
            return self._into(direct, values, out)
        made = self._make()
        results = (made,) if self._single else made
        if not (direct.run(*values, *results) or self._in_place(direct, values, results)):
            return None
        for value in args:
            if type(value) is Tensor:
                return self._as_tensors(made)
        return made if args else self._as_tensors(made)

    def _into(self, direct: Direct, values: Sequence[Any], out: Any) -> Any:
        """The same, with results that are given."""
        results = (out,) if type(out) is np.ndarray else self._filled(out)
        writes = [] if type(out) is np.ndarray else [t for t in results if type(t) is Tensor]
        arrays = (*values, *results)
        done = hazards.in_holders(direct, arrays, writes) if writes else direct.run(*arrays)
        if not (done or self._in_place(direct, values, results)):
            return None
        return results[0] if self._single else tuple(results)

    def several(self, out: Any) -> Sequence[Any]:
        """What was given for the results; nothing, which does not fit, when the number is wrong."""
        given = list(cast("Sequence[Any]", out)) if isinstance(out, (tuple, list)) else [out]
        return given if len(given) == len(self._results) else ()

    def _filled(self, out: Any) -> Sequence[Any]:
        """The same, with Tensors for those that are not given."""
        given = self.several(out)
        if all(o is not None for o in given):
            return given
        return [self._tensor(r) if o is None else o for r, o in zip(self._results, given, strict=True)]

    def _in_place(self, direct: Direct, values: Sequence[Any], results: Sequence[Any]) -> bool:
        """A direct call in the memory of Tensors and arrays; False where there are no Tensors, or one is in use."""
        arrays: list[Any] = []
        reads, writes = self._taken(values, arrays), self._taken(results, arrays)
        if reads is None or writes is None:
            return False
        return bool(reads or writes) and hazards.at_once(reads, writes, direct, arrays)

    def _taken(self, values: Sequence[Any], arrays: list[Any]) -> list[Tensor] | None:
        """The Tensors among `values`, and the memory of all into `arrays`; None where one is on another device."""
        device, tensors = self.device, cast("list[Tensor]", [])
        for value in values:
            if type(value) is not Tensor:
                arrays.append(value)
            elif value.device is device:
                tensors.append(value)
                arrays.append(value.host)
            else:
                return None
        return tensors

    def _launched(self, values: Sequence[Any], out: Any) -> Any:
        """The results, still pending, of a call on nothing but this device's Tensors; None when anything does not fit."""
        if not values or not self._fit(values, self._types):
            return None
        if out is None:
            results = [self._tensor(r) for r in self._results]
        else:
            results = self._filled(out)
            if not self._fit(results, self._result_types) or not _apart(values, results):
                return None
        self._run_claimed(values, results)
        return results[0] if self._single else tuple(results)

    def _fit(self, values: Sequence[Any], types: Sequence[tuple[tuple[int, ...], DType]]) -> bool:
        """Whether these are Tensors of this device and of these types."""
        if len(values) != len(types):
            return False
        device = self.device
        for value, (shape, dtype) in zip(values, types, strict=True):
            if (
                type(value) is not Tensor
                or value.device is not device
                or value.shape != shape
                or value.dtype is not dtype
            ):
                return False
        return True

    # --- the ordinary way: buffers and events, on any device ----------------------------------------------

    def run_arrays(self, arrays: Sequence[Array], out: Sequence[Array | None] | None = None) -> list[Array]:
        """NumPy in (any layout), NumPy out; waits for the result.

        An array in `out` is written in place where kernels can and no input shares its memory, else by a copy.
        """
        memory = self.device.memory
        bindings: list[Any] = [None] * (len(self._inputs) + len(self._results))
        for k, n in self._inputs:
            bindings[k] = memory.wrap(raw_view(arrays[n])) or self._uploaded(arrays[n])
        for n, wanted in enumerate(self._results):
            given = None if out is None else self._writable(out[n], arrays)
            bindings[wanted.place] = given or memory.allocate(wanted.info.bytes)
        self._submit(bindings, ()).wait()
        given = out or self._nothing_given
        return [self._array(bindings[r.place], r, o) for r, o in zip(self._results, given, strict=True)]

    def takes(self, out: Array, inputs: Sequence[Any]) -> bool:
        """A quick yes for the one output of a function, writable, of the right type and apart from all inputs."""
        if len(self._results) != 1:
            return False
        (wanted,) = self._results
        if out.dtype != wanted.dtype or out.shape != wanted.info.shape or not out.flags.writeable:
            return False
        if overlaps_itself(out):
            return False
        return not any(type(x) is not np.ndarray or np.may_share_memory(out, x) for x in inputs)

    def _uploaded(self, array: Array) -> Buffer:
        buffer = self.device.memory.allocate(array.nbytes)
        if array.nbytes:
            self.device.memory.write(buffer, raw_view(np.ascontiguousarray(array))).wait()
        return buffer

    def _writable(self, out: Array | None, arrays: Sequence[Array]) -> Buffer | None:
        """The caller's own memory, when kernels can write it."""
        if out is None or not out.nbytes or not out.flags.c_contiguous or not out.dtype.isnative:
            return None
        if _address(out) % OUTPUT_ALIGN or any(np.may_share_memory(out, a) for a in arrays):
            return None
        return self.device.memory.wrap(raw_view(out))

    def _array(self, buffer: Buffer, wanted: Result, out: Array | None) -> Array:
        """The host array of a finished result: `out`, or the buffer's own memory where that outlives the mapping."""
        shape = wanted.info.shape
        if not wanted.info.bytes:
            return np.empty(shape, wanted.dtype) if out is None else out
        if out is None and not isinstance(buffer, HostBuffer):
            fresh = host_array(wanted.info.dtype, shape)
            self.device.memory.read(buffer, raw_view(fresh))
            return fresh
        view: Array = np.frombuffer(buffer.map_current(), wanted.dtype, wanted.size)
        if len(shape) != 1:
            view = view.reshape(shape)
        if out is not None and not np.may_share_memory(view, out):
            out[...] = view
        if out is None:
            return view
        if not isinstance(buffer, HostBuffer):
            buffer.unmap().wait()
        return out

    def run_tensors(self, tensors: Sequence[Tensor], out: Sequence[Tensor | None]) -> list[Tensor]:
        """Tensors in, Tensors out; returns at once, the results are pending. `out` shares memory with no input."""
        results = [self._tensor(r) if o is None else o for r, o in zip(self._results, out, strict=True)]
        self._run_claimed(tensors, results)
        return results

    def _run_claimed(self, tensors: Sequence[Tensor], results: Sequence[Tensor]) -> None:
        if self._packed is not None:
            tensors = (*tensors, *self._packed.current([tensors[n] for n in self._packs]))
        if self._quick:
            if hazards.unread:
                hazards.about_to_write(results)
            with hazards.alone():
                waits = hazards.awaited(tensors, results)
                hazards.enter(self._start(tensors, results, waits), tensors, results)
            return
        ticket, waits = hazards.claim(tensors, results)
        try:
            event = self._start(tensors, results, waits)
        except BaseException as problem:
            ticket.started(FailedEvent(problem))
            raise
        ticket.started(event)

    def _tensor(self, made: Result) -> Tensor:
        buffer, dtype, shape = self.device.memory.allocate(made.info.bytes), made.info.dtype, made.info.shape
        return result(self.device, dtype, shape, in_place(buffer, dtype, shape), buffer)

    def _start(self, tensors: Sequence[Tensor], results: Sequence[Tensor], waits: Sequence[Event]) -> Event:
        bindings: list[Any] = [None] * (len(self._inputs) + len(self._results))
        for k, n in self._inputs:
            bindings[k] = tensors[n].buffer
        for wanted, tensor in zip(self._results, results, strict=True):
            bindings[wanted.place] = tensor.buffer
        hosts = None if self._quick else [t.host for t in (*tensors, *results)]
        if hosts is not None and (waits or self._defers):
            event = self._handed_over(hosts, bindings, waits)
            if event is not None:
                if hazards.lent and any(id(t) in hazards.lent for t in (*tensors, *results)):
                    event.wait()
                return event
        return self._run(hosts, bindings, waits)

    def _handed_over(self, hosts: Sequence[Any], bindings: Sequence[Buffer], waits: Sequence[Event]) -> Event | None:
        """The program, run by a thread of the device's; None where there are none, or somebody measures."""
        if RECORDERS:
            return None

        def work() -> None:
            try:
                self._run(hosts, bindings, ()).wait()
            except Exception as problem:
                raise within(self.typed, execution_error(problem)) from problem

        return self.device.executor.defer(work, waits, sum(r.info.bytes for r in self._results))

    def _run(self, hosts: Sequence[Any] | None, bindings: Sequence[Buffer], waits: Sequence[Event]) -> Event:
        """The program, run on the caller where that is how the device works."""
        direct = None if RECORDERS or waits or hosts is None else self._direct
        if direct is not None and hosts is not None and direct.run(*hosts):
            return COMPLETED
        return self._submit(bindings, waits)

    def _submit(self, bindings: Sequence[Buffer], waits: Sequence[Event]) -> Event:
        if not RECORDERS:
            return self._prepared.run(bindings, waits)
        return recorded(self.typed, self._prepared, bindings, waits)


def within(typed: Typed, problem: TileDeviceError) -> TileDeviceError:
    """The failure of work that was handed over, which says what function it was, and where that is."""
    place = next(iter(typed.spans.values()), None)
    found = (replace(d, message=f"{d.message} (in {typed.name!r})", span=d.span or place) for d in problem.diagnostics)
    return TileDeviceError(tuple(found))


def work_seconds(kernels: KernelList) -> float:
    """Rough time of a run on one thread; 0 for kernels that do not say what they do."""
    steps = counted_steps(kernels.steps)
    launched = ((kernels.kernels[step.kernel], times) for step, times in steps if step.kind is StepKind.KERNEL)
    return sum(times * kernel.estimated_seconds for kernel, times in launched)


def _apart(values: Sequence[Tensor], results: Sequence[Tensor]) -> bool:
    """No result is given twice, or in the memory of an argument."""
    given = {id(r.buffer) for r in results}
    return len(given) == len(results) and given.isdisjoint([id(v.buffer) for v in values])


def _address(array: Array) -> int:
    try:
        return ctypes.addressof(ctypes.c_char.from_buffer(array.data))
    except (TypeError, ValueError):  # bfloat16 has no buffer
        return array.__array_interface__["data"][0]
