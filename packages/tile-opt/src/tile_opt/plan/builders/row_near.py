"""What belongs to rows in memory: in gradients of attention what its forward found of each query, or of the results.

Items would ask for it where a piece uses it, behind a branch for each row where tiles reach beyond the last one. They load it
into registers once, before all pieces.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tile_ir.names import claim
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Direction, Refinement

from tile_opt.kernel.rows_in_steps import RowsInSteps
from tile_opt.kernel.view import Stage, Use
from tile_opt.plan.builders.cells import Cells


@dataclass(frozen=True, slots=True)
class Near:
    """A buffer's elements for an item's rows, in registers."""

    source: Use
    """An access to memory that stages of pieces have in common."""
    cells: Cells
    home: Refinement

    def use(self, name: str) -> Use:
        """The access where an item has the element."""
        return self.cells.use(name, self.home, Direction.IN)

    def loaded(self, at: Mapping[str, Affine], limits: tuple[Affine, ...]) -> Stage:
        """From memory, at these iterations of the kernel's loops."""
        source = self.source.substitute({**at})
        target = self.cells.use("dst", self.home, Direction.OUT)
        return Stage.copy(f"load_{self.home.into}", self.cells.loops, source, target, limits)


def near(kinds: RowsInSteps, row: str, cells: Cells) -> dict[Use, Near]:
    """By each access of the stages between products to what the loop over rows moves, and none of a piece."""
    found, made, taken = dict[Use, Near](), dict[Use, Near](), {*kinds.view.buffers}
    for use in _of_rows(kinds, row):
        source = Use("src", use.buffer, use.forms, Direction.IN)
        if source not in made:
            home = cells.home(claim(f"{use.buffer}_near", taken), kinds.view.type_of(use.buffer).dtype)
            made[source] = Near(source, cells, home)
        found[use] = made[source]
    return found


def _of_rows(kinds: RowsInSteps, row: str) -> Iterator[Use]:
    view, around = kinds.view, {i.name for i in kinds.view.loops}
    for k in kinds.pieces:
        for use in view.stages[k].uses if k not in kinds.products else ():
            moved = {n for f in use.forms for n in f.names}
            if use.dir is Direction.IN and not use.extent and not view.is_local(use.buffer) and row in moved <= around:
                yield use
