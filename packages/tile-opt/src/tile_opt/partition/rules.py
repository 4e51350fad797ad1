"""What a rule says about one operation: which cells a box of its result needs, and the operation for that box alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from tile_ir.diagnostics import Diagnostic, Span, TileTypeError
from tile_ir.program.nodes import Gather, Op, Poly, TensorType

from tile_opt.partition.boxes import Box


class Cut(NamedTuple):
    """What computing a box of a result takes."""

    form: Any
    """Hashable; equal for boxes that are computed by one and the same operation. Only the rule looks into it."""
    reads: tuple[Box | None, ...]
    """The cells read of each operand; None: none."""
    numbers: tuple[int, ...] = ()
    """What differs between boxes of one form: given to the operation as integer scalars."""


class Source(NamedTuple):
    """An operand as a task has it: a value that holds at least the cells that are read."""

    name: str
    type: TensorType
    at: tuple[int, ...]
    """Where the cells that are read begin in it."""
    shape: tuple[int, ...]
    """How many are read along each axis."""


Fresh = Callable[[str], str]
"""Gives a name that nothing else has."""


class Rule(Protocol):
    """One operation of a program, for any box of its result."""

    operands: tuple[str, ...]
    """The values it reads, one for each place that reads it."""

    def cut(self, box: Box) -> Cut: ...

    def ops(
        self,
        cut: Cut,
        name: str,
        type: TensorType,
        sources: Sequence[Source | None],
        numbers: Sequence[str],
        new: Fresh,
    ) -> list[Op]:
        """The operations that compute a box, as `name`, from cells of the operands (None: nothing is read)."""
        ...


def exactly(source: Source, ops: list[Op], new: Fresh) -> str:
    """The name of a value that holds the cells read and no others; what makes it is added to `ops`."""
    if source.shape == source.type.shape:
        return source.name
    name = new(f"{source.name}_part")
    subscripts = tuple(Poly.of({f"i{k}": 1}, low) for k, low in enumerate(source.at))
    ops.append(Gather(name, TensorType(source.type.dtype, source.shape), source.name, subscripts))
    return name


def refused(what: str, origin: Span | None, hint: str | None = None) -> TileTypeError:
    """The error for what cannot be computed chunk by chunk."""
    return TileTypeError(Diagnostic("TILE-E560", what, origin, hint))
