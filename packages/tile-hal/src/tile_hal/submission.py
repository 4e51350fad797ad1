"""The one place that executes a KernelList: temporaries, constants, steps in order, dependencies.

`submit` is for occasional calls; a caller that runs one kernel list often keeps its `Prepared`.
"""

from __future__ import annotations

import atexit
import contextlib
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from operator import itemgetter
from typing import Any, TypeVar

import numpy as np
from tile_ir import forking
from tile_ir.diagnostics import TileDeviceError, TileInternalError
from tile_ir.frozen import frozen
from tile_ir.kernels import BufferKind, KernelList, Step, StepKind, flat_steps
from tile_ir.mapped import give_back

from tile_hal.errors import Code, device_error
from tile_hal.events import COMPLETED, flatten, join
from tile_hal.interfaces import (
    Batch,
    BatchStep,
    Buffer,
    Device,
    Direct,
    DirectArray,
    DirectStep,
    Event,
    Library,
    LoopStep,
    Memory,
    Part,
    Result,
)
from tile_hal.joined import prepared
from tile_hal.recycling import LARGE
from tile_hal.rounds import Launch, nested, run_rounds
from tile_hal.workspaces import Workspaces

S = TypeVar("S")
MAX_DIRECT_BYTES = 1 << 26
"""Most bytes of temporaries of a direct call, which are its own: where there are more, no call is a small matter."""


class Submission(Event):
    """The completion of a submitted kernel list; keeps every buffer of it alive until then."""

    __slots__ = ("_event", "_kept")

    def __init__(self, event: Event, kept: object) -> None:
        self._event = event
        self._kept = kept

    @property
    def parts(self) -> tuple[Event, ...]:
        """The device's own events (see `tile_hal.flatten`)."""
        return (self._event,)

    def wait(self) -> Result:
        try:
            return self._event.wait()
        finally:
            if self._event.done:  # not after an interrupted wait
                self.release()

    @property
    def done(self) -> bool:
        return self._event.done

    def release(self) -> None:
        """Drop the buffers; only once the event is done."""
        self._kept = None
        with _pending_lock:
            _pending.pop(id(self), None)


_pending: dict[int, Submission] = {}
"""Unfinished submissions by identity: the HAL requires live buffers even when the caller drops the event."""
_pending_lock = forking.rlock()


def release_finished() -> int:
    """Drop what finished submissions kept alive (also done on every submission); the number still pending."""
    with _pending_lock:
        submissions = list(_pending.values())
    for submission in submissions:
        if submission.done:
            submission.release()
    return len(_pending)


def _keep(event: Event, kept: object) -> Event:
    if event.done:
        return event
    if _pending:
        release_finished()
    submission = Submission(event, kept)
    with _pending_lock:
        _pending[id(submission)] = submission
    return submission


def abandon() -> None:
    """Forget what is pending, so that the process can end although a device never finishes.

    For a process that ends now: the memory of pending work must not be used for anything else.
    """
    with _pending_lock:
        _abandoned.extend(_pending.values())
        _pending.clear()


_abandoned: list[Submission] = []


@atexit.register
def drain() -> None:
    """Wait for all submissions, whose failures stay with them: buffers must outlive the work on them, at exit too."""
    for submission in list(_pending.values()):
        with contextlib.suppress(Exception):
            submission.wait()


@frozen
class StepTime:
    """How long one step of a run took."""

    step: Step
    begin: float
    """When it was started, on the host's clock (`time.perf_counter`)."""
    seconds: float
    """As the device measured it; as the host saw it, where the device does not measure."""


class Prepared:
    """A kernel list made ready on a device: build it once, `run` it often, from any thread.

    Constants are uploaded when it is made. Temporaries are allocated per overlapping run and reused.
    """

    def __init__(self, device: Device, library: Library, kernel_list: KernelList, like: Prepared | None = None) -> None:
        """TileError when a kernel cannot be prepared (build errors surface here).

        The constants of `like`, whose list has the same buffers and more steps, are shared, and what follows from them.
        """
        self.device = device
        self._like = like
        self.kernel_list = kernel_list
        self._keeps = device.capabilities.keeps_buffers
        executor = device.executor
        used = sorted({step.kernel for step in flat_steps(kernel_list.steps) if step.kind is StepKind.KERNEL})
        self._kernels = {index: prepared(executor, library, index) for index in used}
        self._user = [b for b in kernel_list.buffers if b.kind in (BufferKind.INPUT, BufferKind.OUTPUT)]
        self.order: tuple[int, ...] = tuple(b.id for b in self._user)
        """Buffer ids in the order `run` takes its bindings: the INPUT and OUTPUT buffers as listed."""
        self._sizes = tuple(b.bytes for b in self._user)
        self._steps = _launches(kernel_list.steps)
        self._memory = device.memory
        self._provide()
        self._single = self._single_kernel()
        self._batch = self._all_steps() if self._keeps else None

    def run(self, bindings: Sequence[Buffer], dependencies: Sequence[Event] = (), *, profile: bool = False) -> Event:
        """Start all steps on `bindings` (ordered as `order`) after `dependencies`.

        The event is done when every step is; it raises the first step's TileDeviceError. TileDeviceError
        at once when a binding is missing or too small.
        """
        if len(bindings) != len(self._sizes):
            raise self._wrong_count(len(bindings))
        for buffer, size in zip(bindings, self._sizes, strict=True):
            if buffer.nbytes < size:
                raise self._too_small(bindings)
        if self._memory.losses != self._losses:
            self._provide()
        if self._batch is not None and not profile:
            event = self._batch.run(bindings, dependencies)
            if event is not None:
                return event
        if dependencies:
            dependencies = flatten(dependencies)
        if self._single is None:
            return self._run_steps(bindings, dependencies, profile)
        run, pick = self._single
        params = pick(bindings)
        event = run(params, dependencies, profile=profile) if profile else run(params, dependencies)
        if self._keeps:
            self.device.executor.flush()
            return event
        if event.done:
            return event
        self.device.executor.flush()
        return _keep(event, params)

    def run_once(self, bindings: Sequence[Buffer], dependencies: Sequence[Event] = ()) -> None:
        """The same for a list that is seldom run: done on return, and each temporary is there for the steps that use it alone."""
        if self._memory.losses != self._losses:
            self._provide()
        buffers, sizes = {**self._constants, **dict(zip(self.order, bindings, strict=True))}, self._bytes()
        steps = [launch.step for launch in self._steps]
        self._in_turn(steps, buffers, {*buffers}, lambda b: self._memory.allocate(sizes[b]), dependencies)

    def run_timed(self, bindings: Sequence[Buffer], dependencies: Sequence[Event] = ()) -> list[StepTime]:
        """The same as `run`, one step after the other, each of which is waited for; how long each of them took."""
        if len(bindings) != len(self._sizes):
            raise self._wrong_count(len(bindings))
        if self._memory.losses != self._losses:
            self._provide()
        for event in dependencies:
            event.wait()
        workspace = self._workspaces.acquire()
        buffers = {**self._constants, **workspace.buffers, **dict(zip(self.order, bindings, strict=True))}
        try:
            return [time for launch in self._steps for time in self._timed(launch.step, buffers)]
        finally:
            workspace.last = COMPLETED

    def _timed(self, step: Step, buffers: Mapping[int, Buffer]) -> list[StepTime]:
        """How long a step takes, or each start of each step of a loop."""
        if step.loop is None:
            return [self._time(step, buffers)]
        found: list[StepTime] = []

        def launch(inner: Step, here: Mapping[int, Buffer], after: Sequence[Event]) -> Event:
            del after  # each is waited for
            found.append(self._time(inner, here))
            return COMPLETED

        run_rounds(step.loop, buffers, (), self._memory, launch)
        return found

    def _time(self, step: Step, buffers: Mapping[int, Buffer]) -> StepTime:
        begin = time.perf_counter()
        event = self._launch(step, buffers, (), True)
        self.device.executor.flush()
        measured = event.wait().seconds
        return StepTime(step, begin, time.perf_counter() - begin if measured is None else measured)

    def direct(self, arrays: Sequence[DirectArray], buffers: Sequence[int | None]) -> Direct | None:
        """All steps as one function of NumPy arrays (see `Executor.direct`), or None.

        `buffers` has the id of the INPUT or OUTPUT buffer that each array stands for, None for one no kernel uses.
        """
        places: dict[int, Buffer | int] = {b: n for n, b in enumerate(buffers) if b is not None}
        if not set(self.order) <= set(places) or self._workspaces.nbytes > MAX_DIRECT_BYTES:
            return None
        bound = {**self._constants, **self._workspaces.allocate(), **places}
        steps = self._nested(bound, DirectStep)
        return None if steps is None else self.device.executor.direct(steps, arrays)

    def _all_steps(self) -> Batch | None:
        """The steps as a batch (see `Executor.batch`)."""
        temporaries = [b for b in self.kernel_list.buffers if b.kind is BufferKind.TEMP]
        parts = {b.id: Part(b.arena, b.offset, b.bytes) for b in temporaries}
        bound = {**self._constants, **parts, **{b: n for n, b in enumerate(self.order)}}
        steps = self._nested(bound, BatchStep)
        return None if steps is None else self.device.executor.batch(steps, len(self.order), self._workspaces.arenas)

    def _nested(self, bound: Mapping[int, Any], make: Callable[..., S]) -> list[S | LoopStep] | None:
        """The steps as the executor takes them; None where there are loops, and the device has none."""
        steps = [launch.step for launch in self._steps]
        if any(s.loop is not None for s in steps) and not self.device.capabilities.loops:
            return None
        return nested(steps, bound, {b.id: b.bytes for b in self.kernel_list.buffers}, self._kernels, make)

    def _single_kernel(self) -> tuple[Callable[..., Event], Callable[[Any], Any]] | None:
        """The fast path's kernel and parameter choice, when the list is one kernel on user buffers alone."""
        steps, order = [launch.step for launch in self._steps], self.order
        if len(steps) != 1 or steps[0].kind is not StepKind.KERNEL or not set(steps[0].buffers) <= set(order):
            return None
        positions = [order.index(b) for b in steps[0].buffers]
        pick: Callable[[Any], Any] = (
            itemgetter(*positions) if len(positions) > 1 else lambda b: tuple(b[p] for p in positions)
        )
        return self._kernels[steps[0].kernel].run, pick

    def _provide(self) -> None:
        """Memory that belongs to the list, with the constants in it."""
        self._losses = self._memory.losses
        self._workspaces = Workspaces(self._memory, self.kernel_list, self._keeps)
        needed = {b for launch in self._steps for b in launch.step.buffers}
        if self._like is not None:
            self._constants = {n: b for n, b in self._like.constants().items() if n in needed}
            return
        data = _constant_data(self.kernel_list)
        self._constants = {number: _placed(self._memory, *data[number]) for number in data if number in needed}
        self._run_once(needed, data)

    def constants(self) -> Mapping[int, Buffer]:
        """The memory of constants, and of what follows from them alone, by the numbers of the buffers."""
        if self._memory.losses != self._losses:
            self._provide()
        return self._constants

    def _run_once(self, needed: Collection[int], data: Mapping[int, _Data]) -> None:
        """Do what depends on constants alone, and keep its results.

        Constants that nothing else reads are in the device's memory from the first step that reads them to the last.
        """
        once = [step for step in self.kernel_list.steps if step.once]
        if not once:
            return
        memory, sizes, buffers = self._memory, self._bytes(), dict(self._constants)
        self._in_turn(
            once, buffers, needed, lambda b: _placed(memory, *data[b]) if b in data else memory.allocate(sizes[b])
        )
        self._constants = {number: b for number, b in buffers.items() if number in needed}
        self.trim()

    def trim(self) -> None:
        """Give back memory that only such steps had."""
        if not self._keeps:  # what others' queued commands may still use is the device's to give back
            self._memory.trim()

    def _bytes(self) -> dict[int, int]:
        return {b.id: b.bytes for b in self.kernel_list.buffers}

    def _in_turn(
        self,
        steps: Sequence[Step],
        buffers: dict[int, Buffer],
        kept: Collection[int],
        obtain: Callable[[int], Buffer],
        waits: Sequence[Event] = (),
    ) -> None:
        """Run steps one after the other. What is not `kept` is among the `buffers` from the first step that takes it to the last."""
        last = {b: number for number, step in enumerate(steps) for b in step.buffers}
        event: Event = COMPLETED
        for number, step in enumerate(steps):
            buffers.update((b, obtain(b)) for b in step.buffers if b not in buffers)
            event = self._launch(step, buffers, waits, False)
            event = event if self._keeps else _keep(event, [buffers[b] for b in step.buffers])
            gone = [b for b in step.buffers if last[b] == number and b not in kept]
            if gone or not self._keeps:
                event.wait()
            for b in gone:
                buffers.pop(b, None)
            waits = (event,)
        event.wait()

    def _run_steps(self, bindings: Sequence[Buffer], dependencies: Sequence[Event], profile: bool) -> Event:
        workspace = self._workspaces.acquire()
        buffers = {**self._constants, **workspace.buffers, **dict(zip(self.order, bindings, strict=True))}
        events: list[Event] = []
        try:
            for launch in self._steps:
                waits = [events[d] for d in launch.deps] if launch.deps else dependencies
                events.append(self._launch(launch.step, buffers, waits, profile))
        except BaseException:
            # What did start still uses the buffers.
            workspace.last = join(events) if self._keeps else _keep(join(events), buffers)
            raise
        finally:
            if events:
                self.device.executor.flush()
        ends = events if profile else [event for event, launch in zip(events, self._steps, strict=True) if launch.last]
        workspace.last = event = join(ends) if self._keeps else _keep(join(ends), buffers)
        return event

    def _launch(self, step: Step, buffers: Mapping[int, Buffer], waits: Sequence[Event], profile: bool) -> Event:
        if step.loop is not None:
            launch: Launch = lambda s, here, after: self._launch(s, here, after, profile)  # noqa: E731
            event, kept = run_rounds(step.loop, buffers, waits, self._memory, launch)
            return event if self._keeps else _keep(event, kept)
        params = [buffers[b] for b in step.buffers]
        executor = self.device.executor
        match step.kind:
            case StepKind.KERNEL:
                return self._kernels[step.kernel].run(params, waits, profile=profile)
            case StepKind.FILL:
                return executor.fill(params[0], waits)
            case StepKind.COPY:
                return executor.copy(params[1], params[0], waits)
            case StepKind.LOOP:
                raise TileInternalError("a loop step without a loop")

    def _wrong_count(self, count: int) -> TileDeviceError:
        names = ", ".join(b.name for b in self._user)
        return device_error(Code.PARAMETERS, f"this kernel list takes {len(self._user)} buffers ({names}), not {count}")

    def _too_small(self, bindings: Sequence[Buffer]) -> TileDeviceError:
        info, buffer = next((i, b) for i, b in zip(self._user, bindings, strict=True) if b.nbytes < i.bytes)
        shape = "×".join(map(str, info.shape)) or "scalar"
        return device_error(
            Code.SIZE_MISMATCH,
            f"buffer {info.name!r} ({info.dtype} {shape}) needs {info.bytes} bytes, the one given has {buffer.nbytes}",
        )


@frozen
class _Launch:
    """A step with what its position decides."""

    step: Step
    deps: tuple[int, ...]
    last: bool
    """No later step waits for this one."""


def _launches(steps: Sequence[Step]) -> list[_Launch]:
    """The steps of every run, by their position among themselves."""
    for number, step in enumerate(steps):
        if any(not 0 <= d < number for d in step.deps):
            raise TileInternalError(f"step {number} depends on {step.deps}: only earlier steps are allowed")
    place = {n: k for k, n in enumerate(n for n, step in enumerate(steps) if not step.once)}
    awaited = {d for n in place for d in steps[n].deps}
    return [_Launch(steps[n], tuple(place[d] for d in steps[n].deps if d in place), n not in awaited) for n in place]


_Data = tuple[memoryview, int]
"""The bytes of a constant, and those of one element."""


def _constant_data(kernels: KernelList) -> dict[int, _Data]:
    """What each constant buffer holds."""
    data = {constant.name: constant.data for constant in kernels.constants}
    found: dict[int, _Data] = {}
    for info in kernels.buffers:
        if info.kind is not BufferKind.CONST:
            continue
        if len(data.get(info.name, b"")) != info.bytes:
            raise TileInternalError(f"constant buffer {info.name!r} of {info.bytes} bytes has no data of that size")
        found[info.id] = data[info.name], info.dtype.bytes
    return found


def _placed(memory: Memory, data: memoryview, align: int) -> Buffer:
    """A constant in memory that the device reads: its own where that can be, so that its bytes are in a process once."""
    return _in_place(memory, data, align) or _uploaded(memory, data)


def _in_place(memory: Memory, data: memoryview, align: int) -> Buffer | None:
    """A large constant's own memory, where the device can read that: its bytes are in a process once."""
    if data.nbytes < LARGE or np.frombuffer(data, np.uint8).__array_interface__["data"][0] % align:
        return None
    return memory.wrap(data)


def _uploaded(memory: Memory, data: memoryview) -> Buffer:
    buffer = memory.allocate(data.nbytes)
    buffer.map_discard()[:] = data
    give_back(data)
    buffer.unmap().wait()
    return buffer


def submit(
    device: Device,
    library: Library,
    kernel_list: KernelList,
    bindings: Mapping[int, Buffer],
    dependencies: Sequence[Event] = (),
    *,
    profile: bool = False,
) -> Event:
    """Run `kernel_list` (built as `library`) on the buffers `bindings` names by id, after `dependencies`.

    `bindings` holds every INPUT and OUTPUT buffer; temporaries and constants are provided here. Errors
    as in `Prepared` and `Prepared.run`.
    """
    prepared = prepare(device, library, kernel_list)
    try:
        buffers = [bindings[number] for number in prepared.order]
    except KeyError as missing:
        name = next(b.name for b in kernel_list.buffers if b.id == missing.args[0])
        raise device_error(Code.PARAMETERS, f"no buffer is bound to {name!r} (id {missing})") from None
    return prepared.run(buffers, dependencies, profile=profile)


_SLOT = "_tile_hal_prepared"


def prepare(device: Device, library: Library, kernel_list: KernelList) -> Prepared:
    """The `Prepared` of a library, made once and kept with the library itself."""
    # In the library's own __dict__, so that it goes when the library does, whatever it refers to.
    cache: dict[tuple[int, int], Prepared] = vars(library).setdefault(_SLOT, {})
    key = (id(device), id(kernel_list))
    found = cache.get(key)
    if found is None:
        found = cache.setdefault(key, Prepared(device, library, kernel_list))
    return found
