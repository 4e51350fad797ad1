"""Aggregates over windows that overlap, in straight-line code: what neighbouring windows share is aggregated once.

Four sums of 15 neighbours take 60 additions. The twelve elements that all four share take twelve; what two of them share
besides takes two more for each pair, and each sum then has one element left, and what its pair has. Integers wrap, so that
any order gives the same; floats round as a sum of as many terms may.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tile_ir.frozen import frozen, replace
from tile_ir.ops import Aggregation
from tile_ir.stripe.affine import Affine, names_in
from tile_ir.stripe.nodes import STATIC, Bind, Const, Direction, Index, Load, Refinement, Store, TensorType

from tile_opt.kernel.bodies import Body
from tile_opt.kernel.overlaps import fewest, overlaps
from tile_opt.kernel.view import Stage, Use
from tile_opt.kernel.work import merged_use
from tile_opt.plan.tree import REGISTER, Nest, Node


def with_shared_overlaps(node: Node, registers: Mapping[str, TensorType]) -> Node:
    """A stage that aggregates windows of neighbouring cells into `registers`, in fewer operations; other nodes as they are."""
    found = max(_overlaps(node, registers), key=lambda o: o.saved, default=None) if isinstance(node, Stage) else None
    return node if found is None else found.nest()


def _overlaps(stage: Stage, registers: Mapping[str, TensorType]) -> Iterator[Overlap]:
    """Every way that takes fewer operations, where no cell has an end of its own."""
    merged = merged_use(stage)
    if merged is None or merged.buffer not in registers or names_in(stage.constraints) & {*stage.loop_names}:
        return
    static = {i.name: i for i in stage.loops if i.bind in STATIC}
    straight = [n for n, i in static.items() if i.bind is Bind.UNROLL]
    for cells, steps in overlaps(stage, straight, static):
        _, block = fewest(static[cells].range, static[steps].range)
        if block > 1:
            yield Overlap(stage, merged, registers[merged.buffer], static[cells], static[steps], block)


@frozen
class Overlap:
    """A stage whose windows along `steps` slide from cell to cell of `cells`; each `block` of them share."""

    stage: Stage
    merged: Use
    type: TensorType
    """Of what it merges into."""
    cells: Index
    steps: Index
    block: int

    @property
    def saved(self) -> float:
        """Times fewer operations."""
        return self.steps.range / fewest(self.block, self.steps.range)[0]

    @property
    def levels(self) -> int:
        """Times that blocks are halved until each cell is by itself."""
        return self.block.bit_length() - 1

    def nest(self) -> Nest:
        """What all cells of a block share, then what its halves share besides, and so on."""
        nodes = [self._empty(), self._merged(0)]
        for level in range(1, self.levels + 1):
            nodes += [self._handed_on(level), self._merged(level)]
        allocs = tuple(self._alloc(level) for level in range(self.levels))
        registers = {self.merged.buffer: self.type} | {a.into: a.type for a in allocs}
        body = tuple(with_shared_overlaps(n, registers) for n in nodes)
        return Nest(f"{self.stage.name}_shared", (), body, self.stage.constraints, self.stage.guard, allocs)

    # --- loops ----------------------------------------------------------------------------------------

    def _loops(self, level: int) -> tuple[Index, ...]:
        """Over blocks, and the parts of a block at a level: halves of each part of the level before."""
        parts = (self._index("p", 1 << (level - 1)), self._index("h", 2)) if level else ()
        return (self._index("b", self.cells.range // self.block), *parts)

    def _index(self, name: str, size: int) -> Index:
        return Index(f"{self.steps.name}_{name}", size, bind=Bind.UNROLL)

    def _var(self, name: str, coefficient: int = 1) -> Affine:
        return Affine.var(f"{self.steps.name}_{name}", coefficient)

    def _part(self, level: int) -> Affine:
        return self._var("p", 2) + self._var("h") if level else Affine()

    def _elements(self, level: int) -> tuple[Index, Affine]:
        """The elements that each part of a level has besides, and where they lie behind the block's first."""
        if level == 0:
            return self._index("e", self.steps.range - self.block + 1), self._var("e") + (self.block - 1)
        size = self.block >> level
        halves = self._var("p", 2 * size) + self._var("h", self.steps.range - size + 1)
        return self._index("e", size), halves + self._var("e") + (size - 1)

    @property
    def _others(self) -> tuple[Index, ...]:
        """Loops over other cells."""
        moved = names_in(self.merged.forms) - {self.cells.name}
        return tuple(i for i in self.stage.loops if i.name in moved)

    # --- buffers --------------------------------------------------------------------------------------

    def _alloc(self, level: int) -> Refinement:
        sizes = (self.cells.range // self.block, 1 << level, *(i.range for i in self._others))
        type = TensorType.row_major(self.type.dtype, sizes, align=16)
        return Refinement.allocation(f"{self.merged.buffer}_{self.steps.name}_{level}", type, REGISTER)

    def _use(self, name: str, level: int, part: Affine, dir: Direction, agg: Aggregation | None = None) -> Use:
        """What parts of a level have; those of the last are the cells."""
        if level < self.levels:
            forms = (self._var("b"), part, *(Affine.var(i.name) for i in self._others))
            return Use(name, self._alloc(level).into, forms, dir, agg)
        cell = {self.cells.name: self._var("b", self.block) + part}
        return replace(self.merged.substitute(cell), name=name)

    # --- stages ---------------------------------------------------------------------------------------

    def _empty(self) -> Stage:
        agg, dtype = self.merged.agg, self.type.dtype
        assert agg is not None
        body = (Const("$z", agg.identity(dtype), dtype), Store("dst", "$z"))
        return self._stage(
            "empty", (*self._loops(0), *self._others), (self._use("dst", 0, Affine(), Direction.OUT),), body
        )

    def _handed_on(self, level: int) -> Stage:
        """What a part has at first: that of which it is a half."""
        source = self._use("src", level - 1, self._var("p"), Direction.IN)
        target = self._use("dst", level, self._part(level), Direction.OUT)
        body = (Load("$x", "src"), Store("dst", "$x"))
        return self._stage(f"half{level}", (*self._loops(level), *self._others), (source, target), body)

    def _merged(self, level: int) -> Stage:
        """Its elements besides."""
        elements, at = self._elements(level)
        loops = [i for i in self.stage.loops if i not in (self.cells, self.steps)]
        moved = {self.cells.name: self._var("b", self.block), self.steps.name: at}
        target = self._use(self.merged.name, level, self._part(level), self.merged.dir, self.merged.agg)
        uses = (target if u is self.merged else u.substitute(moved) for u in self.stage.uses)
        return self._stage(f"level{level}", (*self._loops(level), elements, *loops), tuple(uses), self.stage.body)

    def _stage(self, name: str, loops: tuple[Index, ...], uses: tuple[Use, ...], body: Body) -> Stage:
        single = {i.name: Affine() for i in loops if i.range == 1}
        found = Stage(f"{self.stage.name}_{name}", tuple(i for i in loops if i.range > 1), (), uses, body)
        return found.substitute(single)
