"""Batches: the steps of a program as one command on one queue, which keeps their order by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any

from tile_hal.interfaces import Batch, BatchStep, Buffer, Event, LoopStep, Part, Turning
from tile_ir.diagnostics import TileInternalError
from tile_ir.kernels import StepKind

from hal_opencl import binding
from hal_opencl.commands import Command, Memory, Waits, copy, fill
from hal_opencl.events import Lanes
from hal_opencl.memory import DeviceBuffer, DeviceMemory

Place = tuple[int, int, int]
"""Number of a buffer, and start and bytes of a part of it; no bytes for all of it."""
Step = tuple[Any, Any]
"""Commands (see `_both`) and their places, some of which turn; or the rounds of a loop and its steps."""


class OpenCLBatch(Batch):
    """The first step waits for what the batch depends on; the event is the last one's.

    Buffers are numbered: those that a run passes, the arenas, and what the batch keeps.
    """

    def __init__(
        self,
        lanes: Lanes,
        memory: DeviceMemory,
        steps: Sequence[BatchStep | LoopStep],
        count: int,
        arenas: Sequence[int],
    ) -> None:
        """`steps` and `arenas` as in `Executor.batch`; parts start where views may."""
        self._lanes = lanes
        self._memory = memory
        self._arenas = list(arenas)
        kept = dict.fromkeys(b for b in places_of(steps) if isinstance(b, Buffer))
        self._kept = list(kept)
        self._numbers = {b: count + len(arenas) + n for n, b in enumerate(kept)}
        self._count = count
        self._steps = self._ready(steps)
        self._only = self._single()

    def _ready(self, steps: Sequence[BatchStep | LoopStep]) -> list[Step]:
        return [
            (step.count, self._ready(step.steps))
            if isinstance(step, LoopStep)
            else (_both(step), [self._place(b) for b in _order(step)])
            for step in steps
        ]

    def _place(self, buffer: Buffer | int | Part | Turning) -> Place | Turning:
        match buffer:
            case Turning():
                first, cycle = (tuple(map(self._place, group)) for group in (buffer.first, buffer.cycle))
                return replace(buffer, first=first, cycle=cycle)
            case int():
                return buffer, 0, 0
            case Part(arena, offset, nbytes):
                return self._count + arena, offset, nbytes
            case _:
                return self._numbers[buffer], 0, 0

    def _single(self) -> tuple[Command, Callable[[Any], Sequence[DeviceBuffer]]] | None:
        """The command and the choice of its buffers, where there is but one and no temporary."""
        ((commands, places), *more) = self._steps
        if more or self._arenas or isinstance(commands, int):
            return None
        numbers = [n for n, _, _ in places]
        return commands[1], itemgetter(*numbers) if len(numbers) > 1 else lambda buffers: (buffers[numbers[0]],)

    def run(self, buffers: Sequence[Buffer], dependencies: Sequence[Event] = ()) -> Event | None:
        context = self._memory.context
        for buffer in buffers:
            if type(buffer) is not DeviceBuffer or buffer.context is not context or not buffer.plain:
                return None
        if self._only is None:
            arenas = [self._memory.allocate(nbytes) for nbytes in self._arenas]
            given: list[Any] = [*buffers, *arenas, *self._kept]
            event = self._lanes.submit(self._commands, given, dependencies)
        else:
            command, pick = self._only
            event = self._lanes.submit(command, pick([*buffers, *self._kept] if self._kept else buffers), dependencies)
        self._lanes.begin()
        return event

    def _commands(self, queue: binding.RawQueue, buffers: Sequence[Any], waits: Waits) -> binding.RawEvent:
        event: binding.RawEvent = None
        steps = [*_unrolled(self._steps, ())]
        for left, ((between, seen), places) in zip(reversed(range(len(steps))), steps, strict=True):
            memory = [buffers[n].part(start, nbytes) if nbytes else buffers[n] for n, start, nbytes in places]
            command = between if left and not waits else seen
            try:
                event = command(queue, memory, waits)
            except binding.cl_error as problem:
                event = self._again(problem, command, queue, memory, waits)
            waits = None
        return event

    def _again(
        self, problem: Exception, command: Command, queue: binding.RawQueue, memory: Sequence[Memory], waits: Waits
    ) -> binding.RawEvent:
        """A step's second chance. When it fails for good, the steps before it still use the buffers, so they end first."""
        try:
            return self._lanes.again(problem, lambda: command(queue, memory, waits))
        except Exception:
            self._lanes.finish()
            raise


def places_of(steps: Sequence[BatchStep | LoopStep]) -> Iterator[Buffer | int | Part | Turning]:
    """All that steps have as buffers: what turns, and all that it can be, too."""
    for step in steps:
        if isinstance(step, LoopStep):
            yield from places_of(step.steps)
        else:
            yield from (p for buffer in step.buffers for p in _behind(buffer))


def _behind(buffer: Buffer | int | Part | Turning) -> Iterator[Buffer | int | Part | Turning]:
    yield buffer
    if isinstance(buffer, Turning):
        yield from (p for base in (*buffer.first, *buffer.cycle) for p in _behind(base))


def _unrolled(
    steps: Sequence[Step], rounds: tuple[int, ...]
) -> Iterator[tuple[tuple[Command, Command], Sequence[Place]]]:
    """Every command that is to be given, with its places in the `rounds` of the loops around it."""
    for what, inside in steps:
        if isinstance(what, int):
            for number in range(what):
                yield from _unrolled(inside, (*rounds, number))
        else:
            yield what, [p if isinstance(p, tuple) else _now(p, rounds) for p in inside]


def _now(turning: Turning, rounds: tuple[int, ...]) -> Place:
    """Where something is in a round."""
    number = rounds[turning.depth]
    base, offset = turning.at(number)
    place: Place = _now(base, rounds) if isinstance(base, Turning) else base
    if number < len(turning.first) or not turning.stride:
        return place
    return place[0], place[1] + offset, turning.nbytes


def _both(step: BatchStep) -> tuple[Command, Command]:
    """The command for between others, whose event nobody asks for, and the one with an event."""
    match step.kind:
        case StepKind.KERNEL:
            return step.kernel.enqueue_unseen, step.kernel.enqueue  # type: ignore[union-attr]
        case StepKind.FILL:
            return fill, fill
        case StepKind.COPY:
            return copy, copy
        case StepKind.LOOP:
            raise TileInternalError("a loop is no command")


def _order(step: BatchStep) -> Sequence[Buffer | int | Part | Turning]:
    """The buffers as the command takes them."""
    return step.buffers[::-1] if step.kind is StepKind.COPY else step.buffers
