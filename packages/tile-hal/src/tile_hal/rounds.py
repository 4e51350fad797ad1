"""Loops of a kernel list: as nested steps for devices that run them themselves, and round by round for all others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from tile_ir.kernels import Loop, Step, Window

from tile_hal.events import join
from tile_hal.interfaces import Buffer, Event, Kernel, LoopStep, Memory, Turning

S = TypeVar("S")


def nested(
    steps: Sequence[Step],
    bound: Mapping[int, Any],
    sizes: Mapping[int, int],
    kernels: Mapping[int, Kernel],
    make: Callable[..., S],
    depth: int = 0,
) -> list[S | LoopStep]:
    """Steps as a device takes them: `make` is `DirectStep` or `BatchStep`; `bound` has what each buffer is, `sizes` its bytes."""
    made: list[S | LoopStep] = []
    for step in steps:
        if step.loop is None:
            buffers = tuple(bound[b] for b in step.buffers)
            made.append(make(step.kind, buffers, sizes[step.buffers[0]], kernels.get(step.kernel)))
        else:
            windows = step.loop.windows
            inner = {**bound, **{w.id: _turning(w, bound, depth) for w in windows}}
            inside = {**sizes, **{w.id: w.bytes for w in windows}}
            made.append(
                LoopStep(step.loop.count, tuple(nested(step.loop.steps, inner, inside, kernels, make, depth + 1)))
            )
    return made


def _turning(window: Window, bound: Mapping[int, Any], depth: int) -> Turning:
    first, cycle = (tuple(bound[b] for b in group) for group in (window.first, window.cycle))
    return Turning(first, cycle, window.bytes, window.start, window.stride, depth)


Launch = Callable[[Step, Mapping[int, Buffer], Sequence[Event]], Event]
"""Start one step, which is no loop, on these buffers after these events."""


def run_rounds(
    loop: Loop, buffers: Mapping[int, Buffer], waits: Sequence[Event], memory: Memory, launch: Launch
) -> tuple[Event, list[Buffer]]:
    """Run a loop's steps round by round; the last round's event, and the buffers that it needs.

    Each round but the last is waited for, so that memory is needed for one. Where the device has no views of buffers, rows
    are copied through the host.
    """
    kept: list[Buffer] = []
    tail = list(waits)
    for number in range(loop.count):
        here = dict(buffers)
        staged: list[tuple[Window, Buffer]] = []
        for window in loop.windows:
            here[window.id], own = _seen(window, number, buffers, memory, tail)
            if own:
                staged.append((window, here[window.id]))
            kept.append(here[window.id])
        tail = _round(loop, here, tail, memory, launch, kept)
        for window, buffer in staged:
            _deliver(window, number, buffer, buffers, tail)
        if number < loop.count - 1:
            join(tail).wait()
            tail, kept = [], []
    return join(tail), kept


def _round(
    loop: Loop, here: Mapping[int, Buffer], tail: list[Event], memory: Memory, launch: Launch, kept: list[Buffer]
) -> list[Event]:
    events: list[Event] = []
    for step in loop.steps:
        waits = [events[d] for d in step.deps] if step.deps else tail
        if step.loop is None:
            events.append(launch(step, here, waits))
        else:
            event, more = run_rounds(step.loop, here, waits, memory, launch)
            events.append(event)
            kept += more
    return events


def _seen(
    window: Window, number: int, buffers: Mapping[int, Buffer], memory: Memory, tail: Sequence[Event]
) -> tuple[Buffer, bool]:
    """What a window is in a round, and whether that is a copy."""
    base, start = window.at(number)
    whole = buffers[base]
    if start == 0 and whole.nbytes == window.bytes:
        return whole, False
    view = memory.view(whole, start, window.bytes)
    if view is not None:
        return view, False
    copy = memory.allocate(window.bytes)
    if not window.written and window.bytes:
        copy.map_discard()[:] = _bytes(whole, tail)[start : start + window.bytes]
        whole.unmap().wait()
        copy.unmap().wait()
    return copy, True


def _deliver(window: Window, number: int, made: Buffer, buffers: Mapping[int, Buffer], tail: Sequence[Event]) -> None:
    """Put a row that a round wrote where it belongs."""
    if not window.written or not window.bytes:
        return
    base, start = window.at(number)
    _bytes(buffers[base], tail)[start : start + window.bytes] = _bytes(made, tail)
    buffers[base].unmap().wait()
    made.unmap().wait()


def _bytes(buffer: Buffer, tail: Sequence[Event]) -> memoryview:
    return buffer.map_current(tail).cast("B")
