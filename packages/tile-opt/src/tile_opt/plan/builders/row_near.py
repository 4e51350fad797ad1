"""What belongs to rows in memory: in gradients of attention what its forward found of each query, or of the results.

Items would ask for it where a piece uses it, behind a branch for each row where tiles reach beyond the last one. They load it
into registers once, before all pieces. What belongs to the scores of a piece, such as the same of each query where keys have the rows,
is under way while the piece is waited for, and multiplied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tile_ir.names import claim
from tile_ir.stripe.affine import Affine, names_in
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


def near(kinds: RowsInSteps, accesses: Iterable[tuple[Use, Use]], cells: Cells) -> dict[Use, Near]:
    """By each access, the elements for it; those of one place have one home."""
    found, made, taken = dict[Use, Near](), dict[Use, Near](), {*kinds.view.buffers}
    for use, source in accesses:
        if source not in made:
            home = cells.home(claim(f"{use.buffer}_near", taken), kinds.view.type_of(use.buffer).dtype)
            made[source] = Near(source, cells, home)
        found[use] = made[source]
    return found


def of_rows(kinds: RowsInSteps, row: str) -> Iterator[tuple[Use, Use]]:
    """Accesses of the stages between products to what the loop over rows moves, and none of a piece."""
    for _, use in _between(kinds):
        if row in names_in(use.forms) <= {i.name for i in kinds.view.loops}:
            yield use, Use("src", use.buffer, use.forms, Direction.IN)


def of_pieces(kinds: RowsInSteps, row: str) -> Iterator[tuple[Use, Use]]:
    """Of the same, accesses to what the loop over scores moves, and none of the rows; by the loop of the first product."""
    around = {i.name for i in kinds.view.loops} - {row}
    for k, use in _between(kinds):
        own = kinds.pieces[k]
        if own in names_in(use.forms) <= around | {own}:
            forms = tuple(f.substitute({own: Affine.var(kinds.row)}) for f in use.forms)
            yield use, Use("src", use.buffer, forms, Direction.IN)


def _between(kinds: RowsInSteps) -> Iterator[tuple[int, Use]]:
    view = kinds.view
    for k in kinds.pieces:
        for use in view.stages[k].uses if k not in kinds.products else ():
            if use.dir is Direction.IN and not use.extent and not view.is_local(use.buffer):
                yield k, use
