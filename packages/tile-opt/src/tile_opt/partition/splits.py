"""How many chunks of a reduced index one task takes: partial results are handed on once each, chunks serve many tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tile_ir.program.nodes import Contraction, TensorType

from tile_opt.analysis import FlatDomain, Sets
from tile_opt.regions.boxes import Grid
from tile_opt.regions.contraction import ContractionRule

Cuts = dict[str, tuple[int, ...]]
"""Sizes of the chunks of each reduced index."""
READ = 2
"""Bytes that a task may read for each byte that it makes, before its sum is split: what its memory is bounded by."""


@dataclass(frozen=True)
class Reduction:
    """A contraction whose reduced indexes are cut, and the grid of its result."""

    op: Contraction
    domain: FlatDomain
    sets: Sets
    grid: Grid
    types: Mapping[str, TensorType]

    def coarser(self, cuts: Cuts) -> Cuts:
        """Neighbouring chunks joined as far as a task's reads stay small beside what it makes; no cuts: all of them."""
        for index in reversed(cuts):
            cuts = self._joined(cuts, index)
        return {index: sizes for index, sizes in cuts.items() if len(sizes) > 1}

    def _joined(self, cuts: Cuts, index: str) -> Cuts:
        """The longest runs of chunks of one index, halved until they fit."""
        run = len(cuts[index])
        while run > 1:
            trial = {**cuts, index: joined(cuts[index], run)}
            if self._fits(trial):
                return trial
            run = -(-run // 2)
        return cuts

    def _fits(self, cuts: Cuts) -> bool:
        rule = ContractionRule(self.op, self.domain, self.sets, tuple(cuts))
        tasks = Grid((*cuts.values(), *self.grid.sizes))
        middle = tasks.box(tuple(n // 2 for n in tasks.counts))
        reads = zip(rule.operands, rule.cut(middle).reads, strict=True)
        read = sum(box.size * self.types[name].dtype.bytes for name, box in reads if box is not None)
        made = self.grid.box(tuple(n // 2 for n in self.grid.counts)).size * self.op.acc.bytes
        return read <= READ * made


def joined(sizes: tuple[int, ...], run: int) -> tuple[int, ...]:
    """Runs of so many neighbours, added up."""
    return tuple(sum(sizes[k : k + run]) for k in range(0, len(sizes), run))
