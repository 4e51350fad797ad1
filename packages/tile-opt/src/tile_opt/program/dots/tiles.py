"""Which sums of dot products go to instructions on tile registers: the indexes of rows and columns, and the time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from tile_ir.dots import DotProduct
from tile_ir.frozen import frozen
from tile_ir.matrix import MatrixInstruction
from tile_ir.matrix.x86 import TILED_INSTRUCTIONS
from tile_ir.stripe.affine import names_in
from tile_ir.target import Target

from tile_opt.program.dots.match import Factor, Match

BUSY = 0.5
"""Share of the time in which the instruction runs, loads beside it."""


@frozen
class Tiling:
    """Rows, columns and words of a sum that an instruction takes tile by tile; beyond their ends, the kernel fills tiles up."""

    instruction: MatrixInstruction
    rows: str
    columns: str

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
        return times * machine.slots(self.instruction.name) / machine.ports.fma / BUSY


def up(count: int, unit: int) -> int:
    return -(-count // unit) * unit


def tilings(target: Target, match: Match, dot: DotProduct, index: str, pair: tuple[Factor, Factor]) -> Iterator[Tiling]:
    """Every instruction that adds up such products, with the longest rows; columns lie side by side in the result.

    Fewer rows or columns than a tile has are filled up, too: `Tiling.cycles` counts what that wastes.
    """
    left, right = pair
    kept = names_in(match.output)
    long = {n for n, size in match.ranges.items() if size > 1}
    rows = [n for n in kept & left.names & long - right.names if _steps(left, n)]
    last = {n for n, step in (match.output[-1].terms if match.output else ()) if step == 1}
    columns = [n for n in last & right.names & long - left.names if _steps(right, n) == 1]
    for name in target.matrix:
        instruction = TILED_INSTRUCTIONS.get(name)
        if instruction is None or instruction.product != dot.name or not rows or not columns:
            continue
        if index in left.names:
            yield Tiling(instruction, max(rows, key=lambda n: (match.ranges[n], n)), columns[0])


def _steps(factor: Factor, index: str) -> int:
    """By how much the one subscript of the factor that goes along the index does so; 0 where there are several, or it goes down."""
    steps = [f.coefficient(index) for f in factor.leaf.forms if index in f.names]
    return max(0, int(steps[0])) if len(steps) == 1 else 0
