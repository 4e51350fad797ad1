"""What an item has of a buffer while rows are walked piece by piece: registers of its own, or its share of fragments."""

from __future__ import annotations

from tile_ir.dtype import DType
from tile_ir.frozen import frozen, replace
from tile_ir.matrix import Operand
from tile_ir.stripe.affine import Affine, Quasi
from tile_ir.stripe.nodes import Bind, Direction, Index, Refinement, Swizzle, TensorType

from tile_opt.kernel.view import Use, as_forms
from tile_opt.plan.steps.groups.copy import arranged, local_type
from tile_opt.plan.steps.groups.fragments import FRAGMENT, fragment_type
from tile_opt.plan.tree import GROUP_MEMORY, REGISTER


@frozen
class Cells:
    """Loops over what an item has, and where each element lies behind the buffer's own dimensions, which are 1."""

    loops: tuple[Index, ...]
    place: tuple[Quasi, ...]
    tiles: tuple[int, ...]
    """Sizes of the dimensions that `place` subscripts; of those in front of `operand`'s, if there is one."""
    operand: Operand | None = None
    """How the lanes of a sub-group share a matrix of elements."""
    panels: Swizzle | None = None
    """Of rows in local memory, where items leave their elements for others."""

    @property
    def one_by_one(self) -> Cells:
        """The same, element by element: several of them may be merged into one cell."""
        loops = (i if i.bind is Bind.LANE else replace(i, bind=Bind.UNROLL, lanes=1) for i in self.loops)
        return replace(self, loops=tuple(loops))

    def home(self, name: str, dtype: DType, rank: int = 0) -> Refinement:
        """A buffer with `rank` dimensions of its own, in registers or in the group's memory."""
        sizes = (1,) * rank + self.tiles
        if self.panels is not None:
            type, loc = arranged(local_type(sizes, range(len(sizes)), dtype), self.panels), GROUP_MEMORY
        elif self.operand is None:
            type, loc = TensorType.row_major(dtype, sizes, align=16), REGISTER
        else:
            type, loc = fragment_type(dtype, self.operand, sizes), FRAGMENT
        return Refinement.allocation(name, type, loc)

    def forms(self, rank: int = 0) -> tuple[Affine, ...]:
        """Subscripts of the element that the loops are at."""
        return as_forms((Affine(),) * rank + self.place)

    def use(self, name: str, home: Refinement, direction: Direction) -> Use:
        """An access to that element of a buffer in registers."""
        return Use(name, home.into, self.forms(len(home.type.sizes) - len(self.place)), direction)
