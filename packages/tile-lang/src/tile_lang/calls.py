"""A call of a built-in function in hand, and what a function is."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tile_ir.diagnostics import Span
from tile_ir.frozen import frozen

from tile_lang.dims import as_integer
from tile_lang.scope import Scope
from tile_lang.values import Const, Tensor, Value, describe, fail


@frozen
class Call:
    """A call in hand: its arguments and where they stand."""

    scope: Scope
    name: str
    args: Sequence[Value]
    spans: Sequence[Span]
    span: Span

    def scalar(self, k: int) -> Tensor | Const:
        """Argument k as a tensor or constant."""
        return self.scope.scalar(self.args[k], self.spans[k], f"argument {k + 1} of {self.name}")

    def scalars(self) -> list[Tensor | Const]:
        return [self.scalar(k) for k in range(len(self.args))]

    def tensor(self, k: int) -> Tensor:
        """Argument k as a tensor; constants become rank-0 tensors."""
        return self.scope.tensor(self.args[k], self.spans[k], f"argument {k + 1} of {self.name}")

    def real_tensor(self, k: int) -> Tensor:
        """Argument k, which must not be a constant."""
        value = self.scalar(k)
        if isinstance(value, Const):
            fail("TILE-E136", f"argument {k + 1} of {self.name} must be a tensor, not {describe(value)}", self.spans[k])
        return value

    def integer(self, k: int) -> int:
        """Argument k, which must be an integer constant."""
        value = self.args[k]
        number = as_integer(value.value) if isinstance(value, Const) else None
        if number is None:
            message = f"argument {k + 1} of {self.name} must be an integer constant, not {describe(value)}"
            fail("TILE-E129", message, self.spans[k])
        return number

    def axis(self, k: int, x: Tensor) -> int:
        """Argument k as an axis of `x`; 0 where it is left out."""
        axis, rank = self.integer(k) if k < len(self.args) else 0, len(x.type.shape)
        if not 0 <= axis < rank:
            message = f"axis {axis} is out of range: {self.name} is given {x.type}, of rank {rank}"
            span = self.spans[k] if k < len(self.args) else self.span
            fail("TILE-E117", message, span, "axes are counted from 0" if axis >= rank else None)
        return axis

    def sizes(self, first: int) -> tuple[int, ...]:
        """Arguments from `first` on as sizes."""
        found = tuple(self.integer(k) for k in range(first, len(self.args)))
        for k, size in enumerate(found):
            if size < 0:
                fail("TILE-E113", f"the size {size} is negative", self.spans[first + k])
        return found


@frozen
class Builtin:
    """How many arguments a function takes (`most` None: any number), how a call is bound, and where its sizes begin."""

    least: int
    most: int | None
    bind: Callable[[Call], Value]
    sizes: int | None = None
