"""Where accesses to memory begin, so that those side by side are known."""

from __future__ import annotations

from tile_ir.frozen import frozen
from tile_ir.semtree.nodes import Binary, Const, Expr, Type, Var


@frozen
class Place:
    """A pointer, an index without its constant part, and that part."""

    pointer: str
    base: Expr | None
    offset: int

    @staticmethod
    def of(pointer: Expr, index: Expr) -> Place | None:
        if not isinstance(pointer, Var):
            return None
        match index:
            case Const(value):
                return Place(pointer.name, None, int(value))
            case Binary("add", base, Const(value)):
                return Place(pointer.name, base, int(value))
            case _:
                return Place(pointer.name, index, 0)

    def beside(self, other: Place) -> bool:
        return self.pointer == other.pointer and self.base == other.base

    def index(self, offset: int, type: Type) -> Expr:
        """The index with another constant part."""
        last = Const(offset, type)
        if self.base is None:
            return last
        return Binary("add", self.base, last, type) if offset else self.base
