"""Teams of items that share the reduction of a group's tile: their partial results meet in local memory.

Half of the teams hand their cells over, the other half adds them to its own, until the first team has all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Bind, Direction, Index, Load, Refinement, Store, Sync, TensorType

from tile_opt.kernel.view import Stage, Use
from tile_opt.plan.tree import GROUP_MEMORY, Node


@frozen
class Teams:
    """The teams of one group; `out` is the accumulator as an item uses it, `run` the loops over its cells."""

    index: Index
    items: tuple[Index, ...]
    """Those of one team."""
    run: tuple[Index, ...]
    out: Use
    dtype: DType
    name: str

    @property
    def half(self) -> int:
        """Teams that hand their cells over at first."""
        return -(-self.index.range // 2)

    @property
    def buffer(self) -> Refinement:
        """Cells of half of the teams; neighbouring items lie side by side, each with a vector of its own."""
        sizes = (self.half, *(i.range for i in self._order))
        type = TensorType.row_major(self.dtype, sizes, align=16)
        return Refinement.allocation(self.name, type, GROUP_MEMORY)

    @property
    def _order(self) -> tuple[Index, ...]:
        vectors = tuple(i for i in self.run if i.bind is Bind.VECTOR)
        return (*(i for i in self.run if i not in vectors), *self.items, *vectors)

    @property
    def first(self) -> Affine:
        """>= 0 for the items of the team that has all in the end."""
        return Affine.var(self.index.name, -1)

    def combined(self) -> Iterator[Node]:
        """The first team's cells with those of all others."""
        left = self.index.range
        while left > 1:
            half = -(-left // 2)
            team = Affine.var(self.index.name)
            yield Sync()
            yield self._stage(
                "hand", -half, self._moving(self.out, self._at(-half)), (team + -half, team * -1 + (left - 1))
            )
            yield Sync()
            yield self._stage(
                "take", 0, (self._local(self._at(0), Direction.IN), self.out), (team * -1 + (left - half - 1),)
            )
            left = half

    def _at(self, shift: int) -> tuple[Affine, ...]:
        """A cell in the buffer, of the team whose number is `shift` more."""
        return (Affine.var(self.index.name) + shift, *(Affine.var(i.name) for i in self._order))

    def _local(self, forms: Sequence[Affine], direction: Direction) -> Use:
        return Use("shared", self.name, tuple(forms), direction)

    def _moving(self, out: Use, forms: Sequence[Affine]) -> tuple[Use, Use]:
        return Use("own", out.buffer, out.forms, Direction.IN), self._local(forms, Direction.OUT)

    def _stage(self, verb: str, shift: int, uses: tuple[Use, Use], constraints: tuple[Affine, ...]) -> Stage:
        source, target = uses
        body = (Load("$x", source.name), Store(target.name, "$x"))
        return Stage(f"{verb}_{self.out.buffer}{-shift or ''}", self.run, constraints, uses, body)
