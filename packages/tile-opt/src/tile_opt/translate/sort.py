"""A sort, and where its lines lie: what all algorithms for it know."""

from __future__ import annotations

from collections.abc import Sequence

from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.program.nodes import Argsort
from tile_ir.program.printer import print_op
from tile_ir.stripe.affine import Affine

from tile_opt.translate.build import Kernel
from tile_opt.translate.context import Context

PLACE = DType.INT32
"""Of the places that elements came from."""


@frozen
class Sort:
    """Elements of a line stand along one axis of the argument and the result, and together in all other buffers."""

    context: Context
    op: Argsort

    @property
    def dtype(self) -> DType:
        return self.context.dtype(self.op.arg)

    @property
    def extent(self) -> int:
        """Elements of a line."""
        return self.context.shape(self.op.arg)[self.op.axis]

    @property
    def wanted(self) -> int:
        """Elements of a line of the result."""
        return self.op.type.shape[self.op.axis]

    @property
    def lines(self) -> tuple[int, ...]:
        """The shape without the axis."""
        return tuple(n for d, n in enumerate(self.op.type.shape) if d != self.op.axis)

    @property
    def turned(self) -> bool:
        """Elements of a line do not stand together in the argument and the result."""
        return self.op.axis != len(self.lines)

    @property
    def result(self) -> str:
        return self.context.buffers[self.op.name]

    def outside(self, cell: Sequence[Affine]) -> tuple[Affine, ...]:
        """Where the last of these forms counts along the axis, and the others say which line."""
        *line, element = cell
        return (*line[: self.op.axis], element, *line[self.op.axis :])

    def kernel(self) -> Kernel:
        return self.context.kernel(print_op(self.op), ("argsort",), self.op.origin)
