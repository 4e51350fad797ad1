"""Reductions split across the items of a group: a partial result per item, then one value for all of them."""

from __future__ import annotations

from itertools import product

from tile_ir.frozen import frozen
from tile_ir.ops import Aggregation
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Direction, Index, Load, Op, Reduce, Refinement, Statement, Store

from tile_opt.kernel.view import Stage, Use
from tile_opt.plan.tree import Straight


@frozen
class Total:
    """Merge the items' partial results, cell by cell, into cells that each item keeps."""

    partial: Refinement
    dims: tuple[str, ...]
    """What the subscripts of `partial` are called."""
    cell: str
    forms: tuple[Affine, ...]
    """The subscripts of the cell that a partial result belongs to, over `dims`."""
    shape: tuple[int, ...]
    """What the cells' buffer holds: tiles that do not divide a loop have partial results of no cell, too."""
    agg: Aggregation
    over: tuple[str, ...]
    """The items' indexes."""

    def straight(self) -> Straight:
        """For an item's block: all loads, then the reductions side by side, so that they share their barriers."""
        return Straight(tuple(self._statements()), frozenset({self.partial.into, self.cell}), frozenset({self.cell}))

    def _statements(self) -> list[Statement]:
        cells = list(enumerate(at for at in product(*map(range, self.partial.type.sizes)) if self._has_cell(at)))
        return [
            *(Load(self._name("own", k), self.partial.into, _at(at)) for k, at in cells),
            *(Reduce(self._name("all", k), self._name("own", k), self.agg, self.over) for k, _ in cells),
            *(s for k, at in cells for s in self._merge(k, at)),
        ]

    def _name(self, what: str, number: int) -> str:
        return f"${self.partial.into}_{what}{number or ''}"

    def _cell(self, at: tuple[int, ...]) -> tuple[Affine, ...]:
        values = {name: Affine((), n) for name, n in zip(self.dims, at, strict=False)}
        return tuple(f.substitute(values) for f in self.forms)

    def _has_cell(self, at: tuple[int, ...]) -> bool:
        return not any(
            f.is_const and not 0 <= f.const < size for f, size in zip(self._cell(at), self.shape, strict=True)
        )

    def _merge(self, number: int, at: tuple[int, ...]) -> list[Statement]:
        old, new = self._name("old", number), self._name("new", number)
        forms = self._cell(at)
        where = forms if any(f != Affine() for f in forms) else ()
        return [
            Load(old, self.cell, where),
            Op(new, self.agg.op, (old, self._name("all", number)), self.partial.type.dtype),
            Store(self.cell, new, where),
        ]


def _at(cell: tuple[int, ...]) -> tuple[Affine, ...]:
    return tuple(Affine((), n) for n in cell) if any(cell) else ()


def identities(name: str, partial: Refinement, agg: Aggregation, loops: tuple[Index, ...]) -> Stage:
    """What partial results start with, in every cell; `loops` are their dimensions."""
    cell = tuple(Affine.var(i.name) for i in loops) or (Affine(),)
    return Stage.start(name, loops, Use("acc", partial.into, cell, Direction.OUT), agg, partial.type.dtype)
