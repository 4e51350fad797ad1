"""Where elements are: the buffers, arrays and registers of a kernel, positions in them, and the lanes that are active."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.semtree.nodes import Expr, Var
from tile_ir.stripe.affine import Affine

from tile_opt.lowering.arranged import Arrangement
from tile_opt.lowering.forms import Scaled
from tile_opt.lowering.fragments import FragmentMap


class Home(Enum):
    """Where the elements of a root live."""

    PARAM = "param"
    """Behind a kernel parameter."""
    ARRAY = "array"
    """An array variable (private or local)."""
    REG = "reg"
    """Named variables; positions are static."""
    FRAGMENT = "fragment"
    """Named variables that hold a lane's part of the matrices of a sub-group."""
    TILE = "tile"
    """Tile registers by their numbers."""


@dataclass(slots=True, eq=False)
class Root:
    """A whole buffer, array or register tile, as the kernel sees it."""

    name: str
    dtype: DType
    home: Home
    elements: int
    ptr: Var | None = None
    align: int = 1
    """Known alignment of element 0 in bytes."""
    solid: int = 0
    """Elements of a row that lie side by side: what is between padded rows, nothing ever writes."""
    shared: bool = False
    """Other work items see what is stored."""
    chunk: int = 1
    """Elements per variable of a register tile, or per tile register."""
    variables: Sequence[Var] = ()
    fragments: FragmentMap | None = None
    first: int = 0
    """The number of the first tile register."""
    arrangement: Arrangement | None = None
    """Of a local array that only copies and teams of sub-groups reach."""
    read: bool = False
    written: bool = False


@frozen
class Position:
    """An element of a root: ``affine + sum(quasi) + dynamic``; the lane symbol makes it a vector of elements."""

    affine: Affine
    quasi: tuple[Scaled, ...] = ()
    dynamic: Expr | None = None
    """A variable of the index type, one lane or as many as the active vector index."""
    step: int = 1
    """The dynamic part is a multiple of this many elements."""


@frozen
class Lanes:
    """The active vector index: its symbol and number of lanes; "" and 1 outside any."""

    symbol: str = ""
    count: int = 1
    mask: Var | None = None
    """Lanes that take part; the others load zero, and store nothing."""
    some: bool = False
    """One of them does wherever this code runs: what all lanes read is loaded as without a mask."""
    filled: int = 0
    """Iterations of the loop that is unrolled around them, one alone: it may take what is between lanes some steps apart."""

    def stride(self, position: Position) -> int | None:
        """Elements between neighbouring lanes; None when it is not constant."""
        if not self.symbol:
            return 0
        dynamic = position.dynamic
        if dynamic is not None and dynamic.type.lanes > 1:
            return None
        if any(self.symbol in form.num.names for _, form in position.quasi):
            return None
        return position.affine.coefficient(self.symbol)


SCALAR = Lanes()
