"""Reductions split across the items of a group: a partial result per item, then one value for all of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

from tile_ir.dtype import DType
from tile_ir.names import claim
from tile_ir.ops import Aggregation
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Const, Direction, Load, Op, Reduce, Refinement, Statement, Store, TensorType

from tile_opt.kernel.view import KernelView, Stage, Use
from tile_opt.plan.nest import REGISTER


@dataclass(frozen=True, slots=True)
class Total:
    """Merge the items' partial results, cell by cell, into cells that each item keeps."""

    partial: str
    cell: str
    agg: Aggregation
    dtype: DType
    sizes: tuple[int, ...]
    """Of `partial`; the last dimensions of `cell` are the same."""
    rank: int
    """Dimensions of `cell`."""
    over: tuple[str, ...]
    """The items' indexes."""

    def statements(self) -> list[Statement]:
        """For an item's block: all loads, then the reductions side by side, so that they share their barriers."""
        cells = list(enumerate(product(*map(range, self.sizes))))
        return [
            *(Load(self._name("own", k), self.partial, self._at(at)) for k, at in cells),
            *(Reduce(self._name("all", k), self._name("own", k), self.agg, self.over) for k, _ in cells),
            *(s for k, at in cells for s in self._merge(k, at)),
        ]

    def _name(self, what: str, number: int) -> str:
        return f"${self.partial}_{what}{number or ''}"

    def _at(self, at: tuple[int, ...], rank: int = 0) -> tuple[Affine, ...]:
        leading = max(0, rank - len(at))
        return tuple(Affine((), n) for n in (*(0,) * leading, *at)) if any(at) else ()

    def _merge(self, number: int, at: tuple[int, ...]) -> list[Statement]:
        old, new = self._name("old", number), self._name("new", number)
        where = self._at(at, self.rank)
        return [
            Load(old, self.cell, where),
            Op(new, self.agg.value, (old, self._name("all", number)), self.dtype),
            Store(self.cell, new, where),
        ]


def partial_results(
    view: KernelView, stage: Stage, merged: Use, sizes: tuple[int, ...], own: tuple[Affine, ...], taken: set[str]
) -> tuple[Stage, Stage, Refinement]:
    """(what starts the partial results, `stage` merging into them, their registers): a cell per point of `own`."""
    assert merged.agg is not None
    name = claim(f"{merged.buffer}_partial", taken)
    dtype = view.type_of(merged.buffer).dtype
    shape = sizes or (1,)
    type = TensorType.row_major(dtype, shape, align=16)
    alloc = Refinement(Direction.ALLOC, name, "", (Affine(),) * len(shape), type, loc=REGISTER)
    cell = own or (Affine(),)
    loops = tuple(i for i in stage.loops if any(i.name in f.names for f in own))
    body = (Const("$z", merged.agg.identity(dtype), dtype), Store("acc", "$z"))
    start = Stage(f"{stage.name}_start", loops, (), (Use("acc", name, cell, Direction.OUT),), body)
    target = replace(merged, buffer=name, forms=cell)
    return start, replace(stage, uses=tuple(target if u.name == merged.name else u for u in stage.uses)), alloc
