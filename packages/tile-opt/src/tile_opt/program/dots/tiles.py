"""Which sums of dot products go to instructions on tile registers: the indexes of rows and columns, and the time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from tile_ir.dots import DotProduct
from tile_ir.frozen import frozen
from tile_ir.matrix import MatrixInstruction
from tile_ir.matrix.x86 import TILED_INSTRUCTIONS
from tile_ir.stripe.affine import Affine, names_in
from tile_ir.target import Target

from tile_opt.program.dots.match import Factor, Match

APART = 2
"""Cycles of a result that is stored by itself."""
BUSY = 0.5
"""Share of the time in which the instruction runs, loads beside it."""


@frozen
class Tiling:
    """Rows, columns and words of a sum that an instruction takes tile by tile; beyond their ends, the kernel fills tiles up."""

    instruction: MatrixInstruction
    rows: str
    columns: str
    apart: int = 0
    """Results whose columns do not lie side by side."""

    def side(self, index: str) -> int:
        """Iterations of an index in a tile; 1 for those beside the tiles."""
        m, n, _ = self.instruction.shape
        return {self.rows: m, self.columns: n}.get(index, 1)

    def cycles(self, target: Target, ranges: Mapping[str, int], index: str, words: int) -> float:
        """Of all products of whole tiles, of which so many words have factors."""
        machine = target.machine
        depth = up(words, self.instruction.shape[2])
        points = prod(up(n, self.side(name)) for name, n in ranges.items() if name != index) * depth
        times = points / prod(self.instruction.shape)
        return times * machine.slots(self.instruction.name) / machine.ports.fma / BUSY + self.apart * APART


def up(count: int, unit: int) -> int:
    return -(-count // unit) * unit


def tilings(target: Target, match: Match, dot: DotProduct, index: str, pair: tuple[Factor, Factor]) -> Iterator[Tiling]:
    """Every instruction that adds up such products, with the longest rows, and columns that lie side by side in the result if some do.

    Windows that overlap are rows, which are copied together. Fewer rows or columns than a tile has are filled up, too:
    `Tiling.cycles` counts what that wastes.
    """
    left, right = pair
    if any(slides(f, match) for f in right.leaf.forms) and not any(slides(f, match) for f in left.leaf.forms):
        return
    kept = names_in(match.output)
    long = {n for n, size in match.ranges.items() if size > 1}
    rows = [n for n in kept & left.names & long - right.names if _steps(left, n)]
    last = {n for n, step in (match.output[-1].terms if match.output else ()) if step == 1}
    beside = [n for n in match.ranges if n in kept & right.names & long - left.names and _steps(right, n) == 1]
    columns = sorted(beside, key=lambda n: n not in last)
    for name in target.matrix:
        instruction = TILED_INSTRUCTIONS.get(name)
        if instruction is None or instruction.product != dot.name or not rows or not columns:
            continue
        if index in left.names:
            apart = 0 if columns[0] in last else prod(match.ranges[n] for n in kept)
            yield Tiling(instruction, max(rows, key=lambda n: (match.ranges[n], n)), columns[0], apart)


def slides(form: Affine, match: Match) -> bool:
    """Windows slide along a dimension, one into the other."""
    return sum(match.ranges[n] > 1 for n in form.names) > 1


def _steps(factor: Factor, index: str) -> int:
    """By how much the one subscript of the factor that goes along the index does so; 0 where there are several, or it goes down."""
    steps = [f.coefficient(index) for f in factor.leaf.forms if index in f.names]
    return max(0, int(steps[0])) if len(steps) == 1 else 0
