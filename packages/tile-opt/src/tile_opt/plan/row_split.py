"""How the elements of a row fall to the items of a group."""

from __future__ import annotations

from dataclasses import dataclass

from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Bind, Index

ITEM, STEP, LANE = "item", "step", "lane"
MAX_UNROLLED = 16


@dataclass(frozen=True, slots=True)
class RowSplit:
    """Element ``wide * (items * step + item) + lane`` of a row of `extent` elements."""

    extent: int
    items: int
    wide: int
    staged: tuple[str, ...] = ()
    """Buffers whose rows reach their reductions through local memory."""
    note: str = ""
    """Why no row does, where that was asked for."""

    @property
    def piece(self) -> int:
        """Elements that the group takes in one step."""
        return min(self.extent, self.items * self.wide)

    @property
    def steps(self) -> int:
        return -(-self.extent // (self.items * self.wide))

    @property
    def ragged(self) -> bool:
        return self.steps * self.items * self.wide > self.extent

    def indexes(self) -> tuple[Index, ...]:
        return self.stepping() + self.lanes()

    def stepping(self) -> tuple[Index, ...]:
        bind = Bind.UNROLL if self.steps <= MAX_UNROLLED else Bind.NONE
        return (Index(STEP, self.steps, bind=bind),) if self.steps > 1 else ()

    def lanes(self) -> tuple[Index, ...]:
        return (Index(LANE, self.wide, bind=Bind.VECTOR, lanes=self.wide),) if self.wide > 1 else ()

    def form(self) -> Affine:
        step = Affine.var(STEP, self.wide * self.items) if self.steps > 1 else Affine()
        return self.within() + step

    def within(self) -> Affine:
        """The element's place in its step."""
        item = Affine.var(ITEM, self.wide)
        return item + Affine.var(LANE) if self.wide > 1 else item

    def inside(self) -> tuple[Affine, ...]:
        """What keeps whole accesses inside the row; all lanes of one agree, for `wide` divides the row."""
        if not self.ragged:
            return ()
        first = self.form() - Affine.var(LANE) if self.wide > 1 else self.form()
        return (first * -1 + (self.extent - self.wide),)
