"""Steps of a kernel list that share addresses: they wait for one another, and what a step reads is still there.

Temporaries that are never needed at once share bytes of an arena, and steps run at once unless one waits for the other.
Three claims make that safe, for any order that the waits allow: of two steps that touch the same bytes, one of which
writes them, the later waits for the earlier, directly or not; what a step writes lies nowhere among its other buffers; and the last step before a reader that wrote any of the
bytes wrote them as the buffer that is read. (A step that writes a buffer, too, may start it itself: that is the matter of
its kernel's own proof.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from tile_ir.kernels import BufferInfo, BufferKind, KernelList, Step, StepKind

from tile_opt.lowering.accesses import accesses
from tile_opt.proof.report import Finding, Verdict

CLAIM = "shared addresses"


def findings(kernels: KernelList) -> tuple[Finding, ...]:
    """One finding for each step; a refuted one names the step or the buffer that is in its way."""
    run = _Order(kernels)
    return tuple(
        Finding(_name(kernels, step), CLAIM, Verdict.REFUTED if problem else Verdict.PROVED, problem)
        for step, problem in zip(kernels.steps, run.problems(), strict=True)
    )


def _name(kernels: KernelList, step: Step) -> str:
    return kernels.kernels[step.kernel].name if step.kind is StepKind.KERNEL else step.kind.value


@dataclass(slots=True)
class _Cells:
    """Bytes [start, stop) of an arena, or a buffer of its own: what has touched them, in order."""

    start: int
    stop: int
    owner: int
    """The buffer as which they were written last; -1 before."""
    writer: int = -1
    readers: list[int] = field(default_factory=list[int])
    """Since the last writer."""


class _Order:
    """Steps in the order of the list, and what each waits for."""

    def __init__(self, kernels: KernelList) -> None:
        self.kernels = kernels
        self.before: list[int] = []
        """For each step the steps that it waits for, directly or not, as bits."""
        self.places: dict[tuple[str, int], list[_Cells]] = {}

    def problems(self) -> Iterator[str]:
        for number, step in enumerate(self.kernels.steps):
            self.before.append(sum({1 << d for d in step.deps}))
            for d in step.deps:
                self.before[number] |= self.before[d]
            yield next(self._problems(number, step), "")

    def _problems(self, number: int, step: Step) -> Iterator[str]:
        touched = [
            (self.kernels.buffers[b], *access)
            for b, access in zip(step.buffers, accesses(self.kernels.kernels, step), strict=True)
        ]
        for buffer, reads, writes in touched:
            for cells in self._cells(buffer):
                yield from self._meets(number, buffer, cells, reads, writes)
        yield from self._apart(touched)
        for buffer, reads, writes in touched:
            for cells in self._cells(buffer):
                if writes:
                    cells.writer, cells.owner, cells.readers = number, buffer.id, []
                elif reads:
                    cells.readers.append(number)

    def _apart(self, touched: list[tuple[BufferInfo, bool, bool]]) -> Iterator[str]:
        """What one step writes lies nowhere among its other buffers."""
        for written, _, writes in touched:
            own = {id(c) for c in self._cells(written)} if writes else set[int]()
            for other in (b for b, _, _ in touched if b.id != written.id):
                if own & {id(c) for c in self._cells(other)}:
                    yield f"{written.name} is written where {other.name} lies"

    def _meets(self, number: int, buffer: BufferInfo, cells: _Cells, reads: bool, writes: bool) -> Iterator[str]:
        others = [cells.writer] if cells.writer >= 0 else []
        for other in [*others, *(cells.readers if writes else [])]:
            if other != number and not self.before[number] >> other & 1:
                yield f"{buffer.name} is touched without waiting for step {other}, {_name(self.kernels, self.kernels.steps[other])}"
        if reads and not writes and cells.owner not in (-1, buffer.id):
            yield f"{buffer.name} is read where {self.kernels.buffers[cells.owner].name} was written"

    def _cells(self, buffer: BufferInfo) -> list[_Cells]:
        """The pieces of memory that a buffer is made of, cut where others begin or end."""
        if not buffer.bytes:
            return []
        shared = buffer.kind is BufferKind.TEMP
        place = ("arena", buffer.arena) if shared else (buffer.kind.value, buffer.id)
        if place not in self.places:
            self.places[place] = self._cut(buffer.arena) if shared else [_Cells(0, buffer.bytes, -1)]
        start = buffer.offset if shared else 0
        return [c for c in self.places[place] if start <= c.start < start + buffer.bytes]

    def _cut(self, arena: int) -> list[_Cells]:
        temps = [b for b in self.kernels.buffers if b.kind is BufferKind.TEMP and b.arena == arena and b.bytes]
        ends = sorted({e for b in temps for e in (b.offset, b.offset + b.bytes)})
        return [_Cells(a, b, -1) for a, b in pairwise(ends)]
