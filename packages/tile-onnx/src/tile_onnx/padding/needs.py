"""What a program needs so that it may run on padded inputs."""

from __future__ import annotations

from dataclasses import dataclass

from tile_ir.frozen import frozen
from tile_ir.program.nodes import Op


class Refused(Exception):
    """Padding would change results, as far as is known: the operation of the larger program, and why."""

    def __init__(self, op: Op | None, why: str) -> None:
        super().__init__(why)
        self.op = op
        self.why = why

    @property
    def text(self) -> str:
        """Why, with what a user calls the operation."""
        origin = self.op.origin if self.op is not None else None
        label = origin.label if origin is not None else ""
        return f"node {label!r}: {self.why}" if label else self.why


class OtherForm(Refused):
    """The two programs are made of other operations."""


@dataclass(frozen=True, slots=True, order=True)
class Mask:
    """Cells of a tensor behind the smaller size of `axis` are `neutral` where load `load` of operation `op` reads it."""

    op: int
    load: int
    tensor: str
    axis: int
    neutral: int | float


@frozen
class Needs:
    """Of a pair of programs. Operations are counted, numbers are (operation, place among its literals)."""

    masks: frozenset[Mask] = frozenset()
    literals: frozenset[tuple[int, int]] = frozenset()
    constants: frozenset[int] = frozenset()

    def __or__(self, other: Needs) -> Needs:
        return Needs(self.masks | other.masks, self.literals | other.literals, self.constants | other.constants)

    def __le__(self, other: Needs) -> bool:
        return self.masks <= other.masks and self.literals <= other.literals and self.constants <= other.constants

    def __bool__(self) -> bool:
        return bool(self.masks or self.literals or self.constants)
