"""What a program makes of bound tensors alone, such as packed weights: kept where later steps read it, and made again once one of them was written to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import replace

from tile_hal.events import COMPLETED, FailedEvent
from tile_hal.interfaces import Device, Library
from tile_hal.submission import Prepared
from tile_ir import forking
from tile_ir.kernels import BufferInfo, BufferKind, KernelList, Step

from tile_runtime import hazards
from tile_runtime.tensor import Tensor


class Packed:
    """Tensors that follow from bound ones."""

    def __init__(self, device: Device, library: Library, kernels: KernelList) -> None:
        """`kernels` is the first of `parted`."""
        results = [b for b in kernels.buffers if b.kind is BufferKind.OUTPUT]
        self.tensors = [Tensor(device, b.shape, b.dtype) for b in results]
        """One for each result, in the order of the buffers."""
        self.names = tuple(b.name for b in results)
        self._prepared = Prepared(device, library, kernels)
        self._seen: list[int] | None = None
        """How often each input had been written to when the results were made."""
        self._making = forking.rlock()

    def current(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """The results for these bound tensors, the list's inputs."""
        if [t.writes for t in inputs] != self._seen:
            with self._making:
                self._make(inputs)
        return self.tensors

    def _make(self, inputs: Sequence[Tensor]) -> None:
        seen = [t.writes for t in inputs]
        if seen == self._seen:
            return
        ticket, waits = hazards.claim(inputs, self.tensors)
        try:
            self._prepared.run_once([*(t.buffer for t in inputs), *(t.buffer for t in self.tensors)], waits)
        except BaseException as problem:
            ticket.started(FailedEvent(problem))
            raise
        ticket.started(COMPLETED)
        if self._seen is None:
            self._prepared.trim()
        self._seen = seen


def parted(kernels: KernelList) -> tuple[KernelList, KernelList] | None:
    """A program as what bound inputs alone decide, and the rest, which takes its results as inputs; None without such steps."""
    early = [n for n, step in enumerate(kernels.steps) if step.bound]
    if not early:
        return None
    late = [n for n, step in enumerate(kernels.steps) if not step.bound]
    temporary = {b.id for b in kernels.buffers if b.kind is BufferKind.TEMP}
    made = temporary & _touched(kernels, early) & _touched(kernels, late)
    empty = {b.id for b in kernels.buffers if b.kind is BufferKind.OUTPUT} - _touched(
        kernels, range(len(kernels.steps))
    )
    rest = _part(kernels, late, dict.fromkeys(made, BufferKind.INPUT), empty)
    return _part(kernels, early, dict.fromkeys(made, BufferKind.OUTPUT)), replace(rest, arenas=kernels.arenas[:1])


def _touched(kernels: KernelList, numbers: Iterable[int]) -> set[int]:
    return {b for n in numbers for b in kernels.steps[n].buffers}


def _part(
    kernels: KernelList, numbers: Sequence[int], kinds: dict[int, BufferKind], more: Set[int] = frozenset()
) -> KernelList:
    """Some steps with what is done once for them, the buffers of other kinds that they touch, and `more` buffers."""
    steps = kernels.steps
    wanted = {*more, *(b for n in numbers if not steps[n].once for b in steps[n].buffers)}
    for n in reversed(range(len(steps))):
        if steps[n].once and wanted.intersection(steps[n].buffers):
            wanted.update(steps[n].buffers)
    kept = [
        n for n, s in enumerate(steps) if (s.once and wanted.issuperset(s.buffers)) or (n in numbers and not s.once)
    ]
    place = {n: k for k, n in enumerate(kept)}
    made = tuple(_renumbered(steps[n], place) for n in kept)
    buffers = tuple(_seen(b, kinds) for b in kernels.buffers if b.id in wanted)
    constants = tuple(c for c in kernels.constants if any(b.name == c.name for b in buffers))
    return replace(kernels, buffers=buffers, steps=made, constants=constants, arenas=())


def _renumbered(step: Step, place: dict[int, int]) -> Step:
    return replace(step, deps=tuple(place[d] for d in step.deps if d in place), bound=False)


def _seen(info: BufferInfo, kinds: dict[int, BufferKind]) -> BufferInfo:
    kind = kinds.get(info.id)
    return info if kind is None else replace(info, kind=kind, arena=0, offset=0)
