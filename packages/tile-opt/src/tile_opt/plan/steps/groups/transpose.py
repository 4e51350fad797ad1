"""Operands that run along another loop than the output, by way of local memory: both sides in long pieces.

A group takes a tile. Its items first copy the operand's part along the operand's own contiguous loops, then walk the
tile along the output's. Both walks deal the same items out, in another order: their numbers are cut into fields, and
the items of each loop are a run of them.

Of elements narrower than a word, the tile may lie as the output does: items turn blocks of a word each way in registers,
and both sides meet local memory in whole words.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from math import gcd, prod

from tile_ir.frozen import frozen, replace
from tile_ir.names import claim
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Bind, Block, Direction, Index, Layout, Refinement, Sync, TensorType

from tile_opt.kernel.strides import flat_stride, limits_inside, row_starts
from tile_opt.kernel.view import KernelView, Stage, Use
from tile_opt.plan.plan import Plan, Staging
from tile_opt.plan.steps.digits import lanes_agree, split
from tile_opt.plan.steps.groups.banks import BANK_BYTES, bank_conflicts
from tile_opt.plan.steps.groups.parts import inner_and_edges, item_kernel
from tile_opt.plan.tree import GROUP_MEMORY, REGISTER, Node

Read = tuple[str, tuple[Affine, ...]]
"""A buffer, and where it is read: what has a tile of its own."""
Items = tuple[tuple[str, int], ...]
"""How many items lie along each loop, the loop whose items are neighbours first; a loop may come again, farther apart."""
BANKS = 32
"""Items that meet all banks of local memory, a word each."""


@frozen
class Walk:
    """One way to take a tile: per loop its items, the lanes of an access, and the tile's iterations.

    `across` are neighbours along another loop that an item takes with each access: together a block that it turns.
    """

    items: Items
    lanes: tuple[str, int]
    tile: dict[str, int]
    across: tuple[str, int] = ("", 1)

    def count(self, loop: str) -> int:
        """Items along the loop."""
        return prod(count for n, count in self.items if n == loop)

    def steps(self, loop: str) -> int:
        """Accesses of each item along the loop."""
        return self.tile[loop] // (self.count(loop) * self.wide(loop))

    def wide(self, loop: str) -> int:
        return self.lanes[1] if loop == self.lanes[0] else self.across[1] if loop == self.across[0] else 1

    def loops(self, name: str, turned: bool = False) -> tuple[Index, ...]:
        """What each item does one after the other: straight-line code, with vectors along blocks' other side where they are `turned`."""
        steps = tuple(Index(f"{n}_{name}", self.steps(n), bind=Bind.UNROLL) for n in self.tile if self.steps(n) > 1)
        block = [(f"{name}_b", self.across[1]), (f"{name}_v", self.lanes[1])]
        (beside, count), (along, lanes) = reversed(block) if turned else block
        inner = (Index(beside, count, bind=Bind.UNROLL), Index(along, lanes, bind=Bind.VECTOR, lanes=lanes))
        return (*steps, *(i for i in inner if i.range > 1))

    def form(self, loop: str, name: str, fields: dict[str, Affine]) -> Affine:
        """The iteration within the tile."""
        wide = self.wide(loop)
        form = fields.get(loop, Affine()) * wide
        if self.steps(loop) > 1:
            form = form + Affine.var(f"{loop}_{name}", self.count(loop) * wide)
        return form + Affine.var(f"{name}_v" if loop == self.lanes[0] else f"{name}_b") if wide > 1 else form


def shares(items: int, tile: Mapping[str, int], order: Sequence[str], lanes: int = 1) -> Items:
    """How many items lie along each loop in `order`; the first goes in vectors of `lanes`."""
    found: list[tuple[str, int]] = []
    for k, n in enumerate(order):
        taken = gcd(items, tile[n] // (1 if k else lanes))
        found.append((n, taken))
        items //= taken
    return tuple(found)


def copy_walk(view: KernelView, use: Use, tile: dict[str, int], items: int, most: int) -> Walk:
    """The walk along the operand's memory: wide accesses of at most `most` bytes where they are aligned."""
    order = sorted((n for n in tile), key=lambda n: abs(flat_stride(view, use, n)) or 1 << 62)
    lanes = max(1, most // view.type_of(use.buffer).dtype.bytes)
    while lanes > 1 and (tile[order[0]] % lanes or not _aligned(view, use, order[0], lanes)):
        lanes //= 2
    return Walk(shares(items, tile, order, lanes), (order[0], lanes), tile)


def turning_walk(view: KernelView, use: Use, tile: dict[str, int], items: int, across: tuple[str, int]) -> Walk:
    """The walk in blocks of a word each way, whose items meet all banks where a block's other side lies along local memory."""
    loop, count = across
    near, lanes = copy_walk(view, use, tile, items, BANK_BYTES).lanes
    beside = {**tile, loop: tile[loop] // count, near: tile[near] // lanes}
    first = shares(items, {n: min(size, BANKS // lanes) for n, size in beside.items()}, (near,))
    left = {n: size // dict(first).get(n, 1) for n, size in beside.items()}
    order = (loop, near, *(n for n in tile if n not in across and n != near))
    return Walk((*first, *shares(items // first[0][1], left, order)), (near, lanes), tile, across)


def _aligned(view: KernelView, use: Use, loop: str, lanes: int) -> bool:
    whole = gcd(view.ranges[loop], row_starts(view, use, (i.name for i in view.loops if i.name != loop))) % lanes == 0
    agree = all(lanes_agree(limit, loop, lanes) for limit in _inside(view, use))
    return flat_stride(view, use, loop) == 1 and whole and agree


def _inside(view: KernelView, use: Use) -> tuple[Affine, ...]:
    """What keeps an access inside its buffer where the stage's constraints do not count."""
    return limits_inside(use.forms, view.type_of(use.buffer).sizes, view.ranges)


class Turn:
    """Builds the kernel of a view whose stages have no loops of their own."""

    def __init__(self, view: KernelView, plan: Plan, most: int) -> None:
        self.view = view
        self.most = most
        self.staged = {s.operand: s for s in plan.stagings}
        splits = {i.name: split(plan, i) for i in view.loops}
        self.tile = {c.loop: c.size for c in plan.bound(Bind.GRID)[0].covers}
        self.grid = tuple(d.index for s in splits.values() for d in s.bound(Bind.GRID))
        self.base = {n: sum((d.form for d in s.bound(Bind.GRID)), Affine()) for n, s in splits.items()}
        named = [c.loop for level in plan.bound(Bind.GROUP) for c in level.covers]
        counts = {n: next((d.index.range for d in splits[n].bound(Bind.GROUP)), 1) for n in named}
        lanes = next(((n, s.lanes) for n, s in splits.items() if s.lanes > 1), (named[-1], 1))
        self.walk = Walk(tuple((n, counts[n]) for n in reversed(named)), lanes, self.tile)
        self.taken = {r.into for r in view.refs}

    @cached_property
    def _uses(self) -> list[Use]:
        return [u for u in self.view.uses if u.buffer in self.staged]

    @cached_property
    def _walks(self) -> dict[Read, Walk]:
        """How each operand is copied."""
        return {_read(u): self._copied(u) for u in self._uses}

    def _copied(self, use: Use) -> Walk:
        """In blocks where the tile lies as the results do, in vectors of whole words."""
        count, (along, lanes) = BANK_BYTES // self.view.type_of(use.buffer).dtype.bytes, self.walk.lanes
        if count > 1 and lanes % count == 0 and self.staged[use.buffer].order[-1:] == (along,):
            return turning_walk(self.view, use, self.tile, self._total, (along, count))
        return copy_walk(self.view, use, self.tile, self._total, self.most)

    @cached_property
    def _total(self) -> int:
        return prod(count for _, count in self.walk.items)

    @cached_property
    def _fields(self) -> list[int]:
        return _fields([self.walk.items, *(w.items for w in self._walks.values())], self._total)

    def cycles(self, lanes: int) -> int:
        """What `lanes` neighbouring items wait for the banks of local memory."""
        return sum(self._cycles(u, min(lanes, self._total)) for u in self._uses)

    def _cycles(self, use: Use, lanes: int) -> int:
        walk = self._walks[_read(use)]
        type = self._tile(use, self.staged[use.buffer], walk).type
        width, found = type.dtype.bytes, 0
        for each, name in ((walk, "c"), (self.walk, "s")):
            within, _ = self._at(each, name, self._fields)
            flat = sum((within[n] * step for n, step in zip(self.tile, type.strides, strict=True)), Affine())
            at = [flat.evaluate(self._item(flat.names, lane)) * width for lane in range(lanes)]
            vector, lanes_ = (f"{name}_b", each.across[1]) if each.across[0] else (f"{name}_v", each.lanes[1])
            side_by_side = flat.coefficient(vector) == 1
            wide = lanes_ * width if side_by_side and not any(a % (lanes_ * width) for a in at) else width
            accesses = prod(self.tile.values()) * width // (self._total * wide)
            found += accesses * max(1, wide // BANK_BYTES) * bank_conflicts(at, max(BANK_BYTES, wide))
        return found

    def _item(self, names: tuple[str, ...], number: int) -> dict[str, int]:
        """The fields of an item's number; 0 for every other name."""
        values = dict.fromkeys(names, 0)
        for k, size in enumerate(self._fields):
            values[f"item{k}"], number = number % size, number // size
        return values

    def build(self) -> Block:
        """The scheduled kernel."""
        uses, walks, fields = self._uses, self._walks, self._fields
        first = {_read(u): u for u in reversed(uses)}
        tiles = {r: self._tile(u, self.staged[u.buffer], walks[r]) for r, u in first.items()}
        blocks = {r: self._block(u, walks[r]) for r, u in first.items() if walks[r].across[0]}
        copies = [self._copies(u, tiles[r], blocks.get(r), walks[r], fields) for r, u in first.items()]
        parts: list[Node] = [*(stage for stages in copies for stage in stages), Sync()]
        parts += [self._turned(s, tiles, fields) for s in self.view.stages]
        items = tuple(Index(f"item{k}", size, bind=Bind.GROUP) for k, size in reversed(list(enumerate(fields))))
        versions = inner_and_edges(parts, (*self.grid, *items), {i.name for i in self.grid})
        return item_kernel(self.view, self.grid, items, versions, (*tiles.values(), *blocks.values()))

    def _tile(self, use: Use, staging: Staging, walk: Walk) -> Refinement:
        """Dimensions in the order of the view's loops; memory in the order of the operand's, rows padded."""
        strides: dict[str, int] = {}
        step = 1
        inner = set(staging.order)
        near = dict.fromkeys((*staging.order[::-1], *(n for n, _ in walk.items), *self.tile))
        for loop in near:
            if inner and loop not in inner:
                step, inner = step + staging.pad, set[str]()
            strides[loop] = step
            step *= self.tile[loop]
        sizes = tuple(self.tile[n] for n in self.tile)
        type = TensorType(self.view.type_of(use.buffer).dtype, sizes, Layout(tuple(strides[n] for n in self.tile), 16))
        name = claim(f"{use.buffer}_tile", self.taken)
        return Refinement.allocation(name, type, GROUP_MEMORY)

    def _at(self, walk: Walk, name: str, fields: list[int]) -> tuple[dict[str, Affine], tuple[Affine, ...]]:
        """Iterations within the tile, and what keeps whole accesses inside the loops."""
        forms = _runs(walk.items, fields)
        within = {n: walk.form(n, name, forms) for n in self.tile}
        limits: list[Affine] = []
        for loop, tile in self.tile.items():
            if self.view.ranges[loop] % tile:
                first = (self.base[loop] + within[loop]).substitute({f"{name}_v": Affine(), f"{name}_b": Affine()})
                limits.append(first * -1 + (self.view.ranges[loop] - walk.wide(loop)))
        return within, tuple(limits)

    def _block(self, use: Use, walk: Walk) -> Refinement:
        """Registers of an item for all blocks that it turns."""
        sizes = tuple(i.range for i in walk.loops("c"))
        type = TensorType.row_major(self.view.type_of(use.buffer).dtype, sizes)
        return Refinement.allocation(claim(f"{use.buffer}_block", self.taken), type, REGISTER)

    def _copies(
        self, use: Use, tile: Refinement, block: Refinement | None, walk: Walk, fields: list[int]
    ) -> tuple[Stage, ...]:
        """The operand's part to local memory, by way of registers where items turn blocks."""
        within, limits = self._at(walk, "c", fields)
        place = {n: self.base[n] + within[n] for n in within}
        source = replace(use, name="src").substitute(place)
        first = {"c_v": Affine()}
        limits = (*limits, *(f.substitute(place).substitute(first) for f in _inside(self.view, use)))
        target = Use("dst", tile.into, tuple(within[n] for n in self.tile), Direction.OUT)
        name, loops = f"copy_{use.buffer}", walk.loops("c")
        if block is None:
            return (Stage.copy(name, loops, source, target, limits),)
        held = Use("dst", block.into, tuple(Affine.var(i.name) for i in loops), Direction.OUT)
        kept = replace(held, name="src", dir=Direction.IN)
        return (
            Stage.copy(f"fetch_{use.buffer}", loops, source, held, limits),
            Stage.copy(name, walk.loops("c", turned=True), kept, target),
        )

    def _turned(self, stage: Stage, tiles: dict[Read, Refinement], fields: list[int]) -> Stage:
        within, limits = self._at(self.walk, "s", fields)
        moved = stage.substitute({n: self.base[n] + within[n] for n in within})
        local = tuple(within[n] for n in self.tile)
        uses = tuple(
            replace(new, buffer=tiles[_read(old)].into, forms=local) if old.buffer in self.staged else new
            for old, new in zip(stage.uses, moved.uses, strict=True)
        )
        # A vector's lanes all meet a constraint, or none.
        first, (loop, lanes) = {"s_v": Affine()}, self.walk.lanes
        pairs = zip(stage.constraints, moved.constraints, strict=True)
        own = (c.substitute(first) if lanes_agree(old, loop, lanes) else c for old, c in pairs)
        return replace(moved, loops=self.walk.loops("s"), uses=uses, constraints=(*own, *limits))


def _read(use: Use) -> Read:
    return use.buffer, use.forms


def reaches(walks: Iterable[Sequence[tuple[str, int]]]) -> set[int]:
    """Where the fields of an item's number have to end, so that every loop's items are a run of whole fields."""
    return {prod(count for _, count in items[:k]) for items in walks for k in range(len(items) + 1)}


def _fields(walks: list[Items], total: int) -> list[int]:
    """Sizes of the fields of an item's number, lowest first, so that every loop's items are a run of whole fields."""
    return [high // low for low, high in pairwise(sorted(reaches(walks) | {total}))]


def _runs(items: Items, fields: list[int]) -> dict[str, Affine]:
    """The number of the item along each loop, as a form of the fields."""
    forms: dict[str, Affine] = {}
    beside: dict[str, int] = {}
    number = 0
    for loop, count in items:
        form, step = forms.get(loop, Affine()), 1
        apart = beside.get(loop, 1)
        while step < count:
            form = form + Affine.var(f"item{number}", step * apart)
            step *= fields[number]
            number += 1
        forms[loop], beside[loop] = form, apart * count
    return forms
