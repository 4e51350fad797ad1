"""repeat_small: small reductions are recomputed by every work group of their consumer, which saves a kernel launch.

Statistics of long rows come in chunks. A kernel puts these together, and another one then goes over all elements. Where
chunks are few, every group of that one may put them together for itself: it reads them from a cache, while to launch a
kernel and to wait for it takes as long as moving megabytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from tile_ir.stripe.nodes import Program
from tile_ir.target import Target

from tile_opt.blocks.buffers import (
    in_the_way,
    with_joined,
)
from tile_opt.kernel.repeated import Repeated, repeated, stretches
from tile_opt.kernel.view import KernelView, close_kernel
from tile_opt.passes.choosing import Choice, Choices, ChoosingPass, Chosen, results
from tile_opt.passes.joining import Kernels

GROUPS_EACH = 4
"""Groups for each compute unit, so that some read while others wait for one another."""
WAITED = 2
"""Times as long as an empty kernel that one of few elements takes: it waits for what it reads, and others for it."""
BESIDE = 32
"""Neighbouring cells that a group has side by side."""


@dataclass(frozen=True)
class RepeatSmall(ChoosingPass):
    """Let groups that go over at most `stretch` elements each repeat reductions of at most `most` elements for each cell.

    Items take no more than that at once: of 2**15 elements a softmax took up to 1.5 times as long as with kernels of their own.
    """

    most: int = 1 << 10
    stretch: int = 1 << 12

    def choose(self, program: Program, target: Target) -> Choices:
        if target.machine.occupancy is None:
            return Choices(program, ())
        pairs = _Pairs(program, self, target)
        for last in range(len(pairs.kernels)):
            pairs.join(last)
        fused = any(c.chosen is Chosen.FUSED for c in pairs.choices)
        return Choices(with_joined(program, pairs.kernels) if fused else program, tuple(pairs.choices))


class _Pairs(Kernels):
    """The kernels of a program, of which some become part of the one that reads their results."""

    def __init__(self, program: Program, options: RepeatSmall, target: Target) -> None:
        super().__init__(program)
        self.options, self.machine = options, target.machine
        self.counts_groups = "LastGroup" in target.nodes

    def join(self, last: int) -> None:
        """Kernel `last` with the one whose results it reads, where each group had better repeat that."""
        reader = self.views[last]
        first = None if reader is None else self._producer(last, reader)
        maker = None if first is None else self.views[first]
        if reader is None or first is None or maker is None:
            return
        best = next(self._candidates(maker, reader), None)
        if best is None:
            return
        seconds, saved = self._seconds(maker, reader, best), WAITED * self.machine.launch.kernel
        chosen = Chosen.FUSED if seconds < saved else Chosen.APART
        self.choices.append(Choice(chosen, results([maker]), results([reader]), seconds, saved))
        if chosen is Chosen.FUSED:
            made = repeated(maker, reader, best)
            self.kernels[first], self.kernels[last] = None, close_kernel(made)
            self.views[first], self.views[last] = None, made

    def _producer(self, last: int, reader: KernelView) -> int | None:
        """The one kernel that makes temporaries which `reader` alone reads, and that may run as late."""
        made = {n for b in reader.reads() & self.temps for n in self.users[b] if n != last and self._writes(n, b)}
        for first in sorted(made):
            view = self.views[first]
            if view is None or not view.writes() <= reader.reads() & self.temps:
                continue
            alone = all(self.users[b] <= {first, last} for b in view.writes())
            between = (self.kernels[k] for k in range(first + 1, last))
            if alone and not in_the_way(between, view.reads(), view.writes(), self.wholes):
                return first
        return None

    def _writes(self, number: int, buffer: str) -> bool:
        view = self.views[number]
        return view is not None and buffer in view.writes()

    def _candidates(self, maker: KernelView, reader: KernelView) -> Iterator[Repeated]:
        """Stretches that leave every unit some groups, the longest first.

        Columns that meet in a group read memory in short pieces: the last group of a kernel puts together what it made of them.
        """
        put_together = self.counts_groups and bool(maker.reads() & self.temps)
        longest = max((i.range for s in maker.stages for i in s.loops), default=0)
        total = prod(i.range for i in reader.loops)
        if 1 < longest <= self.options.most:
            for repeat in stretches(maker, reader, self.options.stretch, BESIDE):
                if (
                    not (put_together and repeat.beside > 1)
                    and total >= GROUPS_EACH * self.machine.cores * repeat.size * repeat.beside
                ):
                    yield repeat

    def _seconds(self, maker: KernelView, reader: KernelView, repeat: Repeated) -> float:
        """What all groups together take to read what `maker` reads, from the last cache."""
        read = sum(
            prod(i.range for i in s.loops) * maker.type_of(u.buffer).dtype.bytes
            for s in maker.stages
            for u in s.uses
            if u.reads and not maker.is_local(u.buffer)
        )
        times = prod(i.range for i in reader.loops) / repeat.size
        bandwidth = self.machine.caches[-1].bandwidth * self.machine.cores * self.machine.clock_ghz * 1e9
        return times * read / bandwidth
