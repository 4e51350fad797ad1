"""What a rule says about one operation: which cells a box of its result needs, and the operation for that box alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from tile_ir.diagnostics import Diagnostic, Span, TileTypeError
from tile_ir.ops import Aggregation
from tile_ir.program.copies import copied
from tile_ir.program.nodes import (
    Elementwise,
    Gather,
    Literal,
    Op,
    Operand,
    Poly,
    TensorType,
    coordinates,
)

from tile_opt.regions.boxes import Box


class Cut(NamedTuple):
    """What computing a box of a result takes."""

    form: Any
    """Hashable; equal for boxes that are computed by one and the same operation. Only the rule looks into it."""
    reads: tuple[Box | None, ...]
    """The cells read of each operand; None: none."""
    numbers: tuple[int, ...] = ()
    """What differs between boxes of one form: given to the operation as integer scalars, or as their values."""


class Source(NamedTuple):
    """An operand as a task has it: a value that holds at least the cells that are read."""

    name: str
    type: TensorType
    at: tuple[int, ...]
    """Where the cells that are read begin in it."""
    shape: tuple[int, ...]
    """How many are read along each axis."""

    @property
    def whole(self) -> bool:
        """All of it is read, and nothing beyond."""
        return self.shape == self.type.shape and not any(self.at)

    def beyond(self, axis: int) -> bool:
        """Some cells that are read are none of its cells."""
        return self.at[axis] < 0 or self.at[axis] + self.shape[axis] > self.type.shape[axis]


Fresh = Callable[[str], str]
"""Gives a name that nothing else has."""


@dataclass(slots=True)
class Emission:
    """The operations that compute one box, as a rule writes them down."""

    form: Any
    """As the rule's cut gave it."""
    name: str
    """What the box is to be called."""
    type: TensorType
    sources: Sequence[Source | None]
    """The operands; None: nothing is read."""
    numbers: Sequence[Operand]
    new: Fresh
    origin: Span | None
    ops: list[Op] = field(default_factory=list[Op])

    def given(self, number: int) -> Source:
        """An operand of which something is read, maybe beyond its cells."""
        found = self.sources[number]
        assert found is not None
        return found

    def source(self, number: int) -> Source:
        """An operand of which something is read; where that is beyond its cells, a copy in a frame of zeros."""
        found = self.given(number)
        if not any(found.beyond(axis) for axis in range(len(found.at))):
            return found
        framed = self.new(f"{found.name}_framed")
        type = TensorType(found.type.dtype, found.shape)
        cells = coordinates(len(found.at))
        places = tuple(cell + Poly.of({}, low) for cell, low in zip(cells, found.at, strict=True))
        sizes = (*zip(cells, found.shape, strict=True), *zip(places, found.type.shape, strict=True))
        self.ops.append(copied(framed, type, cells, found.name, places, sizes, origin=self.origin))
        return Source(framed, type, (0,) * len(found.at), found.shape)

    def exactly(self, source: Source, name: str | None = None) -> str:
        """The name of a value that holds the cells read and no others; with a name it is made, and called so."""
        if source.whole and name is None:
            return source.name
        made = name or self.new(f"{source.name}_part")
        subscripts = tuple(Poly.of({f"i{k}": 1}, low) for k, low in enumerate(source.at))
        self.ops.append(Gather(made, TensorType(source.type.dtype, source.shape), source.name, subscripts))
        return made

    def fill(self, name: str, value: Operand) -> str:
        """A box of one value, or of another box's."""
        self.ops.append(Elementwise(name, self.type, "ident", (value,), origin=self.origin))
        return name

    def start(self, agg: Aggregation, *, default: bool, partial: bool) -> str | None:
        """What cells hold that nothing is written to: the last operand, or the identity of partial results; None: zeros."""
        if default:
            return self.exactly(self.source(-1))
        if not partial or agg is Aggregation.SUM:
            return None
        dtype = self.type.dtype
        return self.fill(self.new(f"{self.name}_identity"), Literal(agg.identity(dtype), dtype))


class Rule(Protocol):
    """One operation of a program, for any box of its result."""

    operands: tuple[str, ...]
    """The values it reads, one for each place that reads it."""

    def cut(self, box: Box) -> Cut: ...

    def emit(self, out: Emission) -> None:
        """Write down the operations that compute a box from cells of the operands."""
        ...


def refused(what: str, origin: Span | None, hint: str | None = None) -> TileTypeError:
    """The error for what cannot be computed chunk by chunk."""
    return TileTypeError(Diagnostic("TILE-E560", what, origin, hint))
