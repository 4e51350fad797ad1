"""Values of 16 bits on their way from memory (`hal_opencl.emit.waiting`), as OpenCL C."""

from __future__ import annotations

from tile_ir.emit.pieces import Piece
from tile_ir.semtree.nodes import Expr, Load, Type, Var

from hal_opencl.emit.expressions import OpenCLExpressions
from hal_opencl.emit.types import bits


class WaitingValues(OpenCLExpressions):
    """What is assigned to variables in which values wait: bits, whole words of them where the assembler asks for that."""

    def _as_in_memory(self, value: Expr) -> str:
        """The bits of a loaded value, of a variable that holds such, or of zero."""
        match value:
            case Load(ptr, index, t):
                return self.pieces(self._bits_at(ptr, index, t, value.align))
            case Var(name):
                return self.lookup(name)
            case _:
                return "0" if value.type.lanes == 1 else f"({self._waits_as(value.type.lanes)})(0)"

    def _bits_at(self, ptr: Expr, index: Expr, t: Type, align: int) -> list[Piece]:
        """16-bit elements from memory, as they wait."""
        where, space, held = self._address(ptr, index), self.spaces[ptr.type.space], self._waits_as(t.lanes)
        if t.lanes == 1 or (align and align % (t.lanes * t.dtype.bytes) == 0):
            return [f"*({f'{space} const {held}*'.strip()})(", *where, ")"]
        loaded: list[Piece] = [f"vload{t.lanes}(0, ({space} const ushort*)(", *where, "))"]
        return loaded if held == bits(t.lanes) else [f"as_{held}(", *loaded, ")"]
