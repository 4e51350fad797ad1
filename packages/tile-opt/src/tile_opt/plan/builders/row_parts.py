"""What a plan says of a kernel over rows that are walked piece by piece: the parts from which `plan.builders.rows_in_steps` builds it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from functools import cached_property

from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Index, Order, Refinement, Sync

from tile_opt.kernel.rows_in_steps import RowsInSteps
from tile_opt.kernel.view import KernelView, Use
from tile_opt.plan.builders.cells import Cells
from tile_opt.plan.builders.row_near import Near
from tile_opt.plan.plan import Plan
from tile_opt.plan.tree import Nest, Node

PIECES = 1
"""The level whose points are pieces of a row."""


@dataclass(frozen=True, slots=True)
class Piece:
    """`count` scores of each row: those of piece `number`, each of which has `size`."""

    number: Affine
    size: int
    count: int

    @property
    def start(self) -> Affine:
        """The first score."""
        return self.number * self.size

    @property
    def whole(self) -> bool:
        return self.count == self.size


@dataclass(frozen=True, slots=True)
class Sharers:
    """The items that share rows, as local memory tells their parts apart."""

    row: Affine
    """Of the group, at the loops over an item's rows."""
    number: Affine
    """Of the item, among those that share its rows."""
    count: int
    meet: Sync
    """All of them are here."""


@dataclass(frozen=True)
class RowParts(ABC):
    """The products of a kernel on the items of groups, and what these have of everything else."""

    kinds: RowsInSteps
    plan: Plan
    share: str = ""
    """The shared loop over groups that have some pieces of a row each; empty where one has all."""

    @property
    def view(self) -> KernelView:
        return self.kinds.view

    # --- sizes ------------------------------------------------------------------------------------------

    @cached_property
    def row(self) -> str:
        """The shared loop of which a group has several iterations."""
        shared = {i.name for i in self.view.loops}
        found = [c.loop for c in self.plan.levels[0].covers if c.loop in shared and c.size > 1]
        if len(found) != 1:
            raise ValueError(f"a group of {self.view.name!r} has several rows, all of one loop")
        return found[0]

    @cached_property
    def size(self) -> int:
        """Scores of a row in one piece."""
        return self.plan.levels[PIECES].covers[0].size

    @cached_property
    def rows(self) -> int:
        """Rows of a group."""
        return self.plan.tile(self.row, 0, self.view.ranges[self.row])

    @property
    def corner(self) -> Affine:
        """The first row of a group."""
        tiles = -(-self.view.ranges[self.row] // self.rows)
        return Affine.var(f"{self.row}_g", self.rows) if tiles > 1 else Affine()

    # --- pieces -----------------------------------------------------------------------------------------

    @cached_property
    def loop(self) -> Index:
        """The pieces of a group; where it has all, those that are whole."""
        count = self.each if self.share else self.view.ranges[self.kinds.row] // self.size
        return Index(self.loop_name, count, order=Order.ORDERED)

    @cached_property
    def count(self) -> int:
        """Pieces of a row."""
        return -(-self.view.ranges[self.kinds.row] // self.size)

    @cached_property
    def each(self) -> int:
        """Those that a group has at most."""
        return -(-self.count // self.view.ranges[self.share]) if self.share else self.count

    @property
    def start(self) -> Affine:
        """The first one of a group."""
        return Affine.var(f"{self.share}_g", self.each) if self.share else Affine()

    @property
    def loop_name(self) -> str:
        return f"{self.kinds.row}_piece"

    @cached_property
    def whole(self) -> Piece:
        own = Affine.var(self.loop.name) if self.loop.range > 1 else Affine()
        return Piece(self.start + own, self.size, self.size)

    @cached_property
    def rest(self) -> Piece | None:
        """What is left of a row behind the whole pieces."""
        whole, left = divmod(self.view.ranges[self.kinds.row], self.size)
        return Piece(Affine((), whole), self.size, left) if left else None

    @property
    def together(self) -> bool:
        """The rest is one more piece of the loop, so that products stand in the text once."""
        return False

    def wanted(self, piece: Piece) -> tuple[Affine, ...]:
        """What is >= 0 for groups to some row of which the piece means something: others leave it out."""
        del piece
        return ()

    # --- what items have --------------------------------------------------------------------------------

    @cached_property
    @abstractmethod
    def rows_of_item(self) -> Cells:
        """One for each row."""

    @abstractmethod
    def cells(self, buffer: str) -> Cells:
        """What an item has of one of the kernel's own buffers."""

    @abstractmethod
    def where(self, number: int, piece: Piece) -> dict[str, Affine]:
        """Iterations of the kernel's loops, and of the stage's own, at an item's cells of what the stage goes over."""

    @abstractmethod
    def over(self, number: int) -> Cells:
        """What a stage other than a product goes over."""

    @abstractmethod
    def limits(self, number: int, piece: Piece, names: Set[str]) -> tuple[Affine, ...]:
        """What keeps a stage's cells inside these loops, each >= 0, where tiles reach beyond."""

    @cached_property
    @abstractmethod
    def sharers(self) -> Sharers:
        """The items that have the same rows."""

    @cached_property
    def near(self) -> Mapping[Use, Near]:
        """Accesses of pieces to memory for which items have the elements in registers."""
        return {}

    # --- what they do -----------------------------------------------------------------------------------

    @abstractmethod
    def begun(self) -> Iterator[Node]:
        """Before the first piece."""

    @abstractmethod
    def scored(self, number: int, piece: Piece) -> Iterator[Node]:
        """The scores of a piece that one of the stages gives."""

    def weighing(self, piece: Piece) -> Iterator[Node]:
        """Before the scores of a piece are weighed."""
        del piece
        yield from ()

    @abstractmethod
    def valued(self, number: int, piece: Piece) -> Iterator[Node]:
        """The sums of values with its weights, by one of the stages."""

    @abstractmethod
    def around(self, body: tuple[Node, ...], own: tuple[Refinement, ...], shared: tuple[Refinement, ...]) -> Nest:
        """Groups and their items around what each item does; `own` are its registers, `shared` is more of local memory."""
