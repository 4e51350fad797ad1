"""schedule: run a block's statements from a bounded, banked local memory; swap blocks move data in and out.

A backward list scheduling: from the last statement to the first, each statement on an execution unit gets local
copies of the views that it touches. A copy lives from its producer (or a swap-in) to its last use. When the memory
is full, the copy whose earlier use is farthest away is given up: it is swapped in again behind the statement that
needed the room, and its producer swaps it out.

The iterations of a block with loops are one walk, whose copies are made anew in each of them, except for operands
that a bank has already from an earlier iteration: those have a place of their own around the loops
(`tile_opt.blocks.residence`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import ClassVar

from tile_ir.hardware import HardwareModel, hardware_model
from tile_ir.names import claim
from tile_ir.stripe.affine import Affine, DivMod, DivModOp
from tile_ir.stripe.nodes import Block, Direction, Location, Order, Program, Refinement, Statement, number_of
from tile_ir.stripe.walk import blocks_in, buffers_named, buffers_written
from tile_ir.target import Target

from tile_opt.analysis.sets import Sets
from tile_opt.blocks.accesses import writes_all
from tile_opt.blocks.buffers import first_fit
from tile_opt.blocks.residence import (
    Links,
    LoopOrder,
    Residence,
    candidates,
    links_of,
    loop_orders,
    view_of,
    wrapped,
)
from tile_opt.blocks.split import iterations
from tile_opt.blocks.swaps import Clip, clip, local_copy, move
from tile_opt.blocks.tree import rebase, rewrite_matching
from tile_opt.kernel.work import nbytes
from tile_opt.passes.accelerator.compute_deps import with_deps
from tile_opt.passes.accelerator.memory_placement import size_of
from tile_opt.passes.accelerator.prune import contents_needed, without_dead_stores
from tile_opt.passes.base import Pass


@dataclass(frozen=True)
class Schedule(Pass):
    """Schedule every block with all tags `reqs`.

    `mem_KiB` is the size of one of the `num_banks` banks of `mem_loc`, `alignment` in bytes; `xfer_loc` moves data.
    `allow_out_of_range_accesses` lets transfers clip views that reach outside their buffer (halos, last tiles);
    without it statements with such views stay in the far memory. The iterations of a block with loops take the
    banks and units in turn; `pipeline_depth` copies of each buffer let that many iterations of a bank overlap.
    With `resident`, an operand stays in its bank while the bank's next iteration needs the very same view, loops
    run in the order that moves the least, and banks give each other what they share where the target's model
    has a transfer unit between them that is faster than the far memory.
    """

    places: ClassVar[tuple[str, ...]] = ("mem_loc", "xfer_loc")
    reqs: tuple[str, ...] = ()
    mem_loc: str = "SRAM"
    mem_KiB: float = 64
    alignment: int = 16
    xfer_loc: str = "DMA"
    allow_out_of_range_accesses: bool = False
    num_banks: int = 1
    pipeline_depth: int = 1
    resident: bool = True

    def apply(self, program: Program, target: Target) -> Program:
        model = hardware_model(target.model) if target.model else None
        sets = Sets()

        def scheduled(block: Block, parents: tuple[Block, ...]) -> Block:
            # What the entry block holds are the user's buffers: they are the far memory.
            return self._scheduled(block, parents, model, sets) if parents else block

        return rewrite_matching(program, self.reqs, scheduled, inner_first=True)

    def _scheduled(self, block: Block, parents: tuple[Block, ...], model: HardwareModel | None, sets: Sets) -> Block:
        """The walk that leaves the fewest statements to far memory and moves the least; what stays may take too much room."""
        counts = {name: unit.count for name, unit in model.exec_units.items()} if model else {}
        walk = _Backward(self, block, parents, counts, sets)
        cost, best = walk.run()
        for plan, links in self._plans(walk, model):
            other, made = _Backward(self, plan.block, parents, counts, sets, links, plan.residences).run()
            if other < cost:
                cost, best = other, made
        return best

    def _plans(self, walk: _Backward, model: HardwareModel | None) -> Iterator[tuple[LoopOrder, Links]]:
        block = walk.block
        names = candidates(block, walk.parents, sorted(walk.wanted)) if self.resident and walk.in_turn else []
        for far in dict.fromkeys(block.ref(n).loc.unit for n in names):
            links = links_of(model, far, self.mem_loc, self.xfer_loc, self.num_banks)
            if links is not None:
                mine = [n for n in names if block.ref(n).loc.unit == far]
                yield from ((plan, links) for plan in loop_orders(block, mine, links, walk.depth))


@dataclass(slots=True)
class _Slot:
    """A buffer's copy in local memory while the walk is inside its life."""

    copy: Refinement
    bank: int
    offset: int
    size: int

    @property
    def interval(self) -> tuple[int, int]:
        return self.offset, self.offset + self.size


@dataclass(slots=True)
class _Backward:
    """The walk from the last statement to the first; `made` is the new body in reverse."""

    options: Schedule
    block: Block
    parents: tuple[Block, ...]
    counts: Mapping[str, int]
    sets: Sets
    links: Links = field(default_factory=Links)
    residences: Mapping[str, Residence] = field(default_factory=dict[str, Residence])
    """Operands that stay in their banks from one iteration to the next."""
    made: list[Statement] = field(default_factory=list[Statement])
    slots: dict[str, _Slot] = field(default_factory=dict[str, _Slot])
    all_slots: list[_Slot] = field(default_factory=list[_Slot])
    far: set[str] = field(default_factory=set[str])
    """Buffers whose far copy somebody needs at this point."""
    copies: list[Refinement] = field(default_factory=list[Refinement])
    taken: set[str] = field(default_factory=set[str])
    loaded: set[str] = field(default_factory=set[str])
    """Buffers whose far copy is read in somewhere."""
    home: set[str] = field(default_factory=set[str])
    """Allocations of the block that stay in far memory for some use."""
    resident: list[Refinement] = field(default_factory=list[Refinement])
    """Allocations around the block, where operands stay."""
    views: list[Refinement] = field(default_factory=list[Refinement])
    wanted: set[str] = field(default_factory=set[str])
    """Buffers that some statement would have in local memory, whether or not they fit."""
    remote: int = 0
    """Statements of execution units that had to be left to far memory."""
    moved: float = 0.0
    """Bytes that transfers move in all iterations; between banks they count by their time."""

    @property
    def capacity(self) -> int:
        return int(self.options.mem_KiB * 1024)

    @property
    def depth(self) -> int:
        """Copies of each buffer; an inner block with an ordered loop would choose among them by that loop."""
        inner = [i for s in self.block.body if isinstance(s, Block) for i in s.indexes]
        return 1 if any(i.order is Order.ORDERED for i in inner) or not self.in_turn else self.options.pipeline_depth

    @property
    def in_turn(self) -> bool:
        """Iterations take banks in turn, so that the walk sees one bank only."""
        return iterations(self.block) > 1

    def run(self) -> tuple[tuple[int, float], Block]:
        """The scheduled block, after what it costs."""
        self.taken = {n for r in self.block.refs for n in (r.into, r.source)}
        self.far = {r.into for r in self.block.refs if r.dir in (Direction.OUT, Direction.INOUT)}
        if not all(self._allocate(name) for name in self.residences):
            return (len(self.block.body) + 1, 0.0), self.block
        for number in range(len(self.block.body) - 1, -1, -1):
            statement = self.block.body[number]
            wanted = self._operands(statement)
            self.wanted.update(wanted)
            if isinstance(statement, Block) and wanted and self._make_room(number, wanted):
                self._local(statement, wanted)
            else:
                self._remote(statement)
        for name in list(self.slots):
            self._swap_in(name)
        return (self.remote, self.moved), self._finished()

    # --- which statements, which views ---------------------------------------------------------------

    def _computes(self, block: Block) -> bool:
        """Whether an execution unit does the block; transfer units move data for others."""
        if block.loc is None or block.loc.unit == self.options.xfer_loc:
            return False
        return not self.counts or block.loc.unit in self.counts

    def _operands(self, statement: Statement) -> list[str]:
        """Buffers to have in local memory for a statement; none when it works on far memory."""
        if not isinstance(statement, Block) or not self._computes(statement):
            return []
        if self._inner_bytes(statement):
            return []
        names = list(dict.fromkeys(r.source for r in statement.refs if r.source))
        refs = {r.into: r for r in self.block.refs}
        for name in names:
            where = self._clip(name)
            whole = where is not None and (where.always or self.options.allow_out_of_range_accesses)
            if not whole or refs[name].versions != 1 or 0 in refs[name].type.sizes or refs[name].agg is not None:
                return []
            if any(r.type.reshapes(refs[name].type) for r in statement.refs if r.source == name):
                return []
        return [n for n in names if refs[n].loc.unit != self.options.mem_loc]

    def _inner_bytes(self, statement: Statement) -> int:
        """Local bytes that an inner block has for itself in every bank."""
        if not isinstance(statement, Block):
            return 0
        allocs = [
            r
            for b in blocks_in(statement)
            for r in b.refs
            if r.dir is Direction.ALLOC and r.loc.unit == self.options.mem_loc
        ]
        return max((r.offset + size_of(r) for r in allocs), default=0)

    def _clip(self, name: str) -> Clip | None:
        return clip(self.block.ref(name), self.block, self.parents)

    # --- room ----------------------------------------------------------------------------------------

    def _make_room(self, number: int, wanted: Sequence[str]) -> bool:
        """Give every wanted buffer a slot, giving up others where needed; False when they cannot all fit."""
        before = dict(self.slots)
        given_up: list[str] = []
        for name in sorted(wanted, key=lambda n: (n not in self.slots, -self._bytes(n))):
            while name not in self.slots and not self._allocate(name):
                others = [n for n in self.slots if n not in wanted and n not in self.residences]
                if not others:
                    self.slots = before
                    return False
                victim = max(others, key=lambda n: (self._distance(n, number), self._bytes(n)))
                given_up.append(victim)
                del self.slots[victim]
        for name in given_up:
            self._reload(before[name], name)
        return True

    def _distance(self, name: str, number: int) -> int:
        """Statements back to the next use of a buffer, in the direction of the walk."""
        for back in range(number - 1, -1, -1):
            if name in buffers_named(self.block.body[back]):
                return number - back
        return number + 1

    def _bytes(self, name: str) -> int:
        return nbytes(self.block.ref(name).type) * (
            self.residences[name].copies if name in self.residences else self.depth
        )

    def _allocate(self, name: str) -> bool:
        size = self._bytes(name)
        # Iterations that overlap must not meet in each other's bytes, so in turns nothing shares while there is room.
        spaces = [self.slots.values()] if not self.in_turn else [self.all_slots, self.slots.values()]
        for bank, space in product(range(1 if self.in_turn else self.options.num_banks), spaces):
            blocked = [s.interval for s in space if s.bank == bank]
            offset = first_fit(size, blocked, self.options.alignment)
            if offset + size <= self.capacity:
                self.slots[name] = _Slot(self._copy(name, bank, offset), bank, offset, size)
                self.all_slots.append(self.slots[name])
                return True
        return False

    def _copy(self, name: str, bank: int, offset: int) -> Refinement:
        """The buffer's copy in local memory, as the block sees it."""
        ref, wanted, residence = (
            self.block.ref(name),
            claim(f"{name}_{self.options.mem_loc}", self.taken),
            self.residences.get(name),
        )
        if residence is None:
            self.copies.append(local_copy(ref, wanted, self._bank(bank), offset, self.depth, self.options.alignment))
            return self.copies[-1]
        loc, versions = Location(self.options.mem_loc), residence.copies * self.links.banks
        self.resident.append(local_copy(ref, wanted, loc, offset, versions, self.options.alignment))
        self.views.append(view_of(self.resident[-1], wanted, residence.copy, Direction.INOUT))
        return self.views[-1]

    def _bank(self, bank: int) -> Location:
        at = self._turn(self.options.num_banks) if self.in_turn else Affine((), bank)
        return Location(self.options.mem_loc, (at,))

    def _turn(self, count: int) -> Affine | DivMod:
        """The number of the iteration modulo `count`; ordered loops stay where they are."""
        form = number_of([i for i in self.block.indexes if i.value is None and i.order is Order.FREE])
        return DivMod(form, count, DivModOp.MOD) if count > 1 and form.terms else Affine()

    # --- statements ----------------------------------------------------------------------------------

    def _remote(self, statement: Statement) -> None:
        """The statement works on far memory, and on the local bytes of its own blocks."""
        need = self._inner_bytes(statement)
        names = buffers_named(statement)
        reads = contents_needed(statement)
        self.remote += isinstance(statement, Block) and self._computes(statement)
        # Bytes of an inner block's own that lie on what stays makes the plan worse than any.
        self.remote += len(self.block.body) * any(self.slots[n].offset < need for n in self.residences)
        for name in [n for n, s in self.slots.items() if n not in self.residences and (n in names or s.offset < need)]:
            self._reload(self.slots.pop(name), name)
        self.home |= names
        self.far |= reads | (names - reads)
        self.made.append(statement)

    def _local(self, block: Block, wanted: Sequence[str]) -> None:
        writes = buffers_written(block)
        for name in wanted:
            if name in writes and name in self.far:
                self._swap_out(name)
        moved: Statement = block
        for name in wanted:
            moved = rebase(moved, name, self.slots[name].copy)
        assert isinstance(moved, Block)
        self.made.append(replace(moved, loc=self._unit(block, wanted), deps=()))
        for name in wanted:
            if name in writes and self._fills(block, name):
                del self.slots[name]

    def _fills(self, block: Block, name: str) -> bool:
        """The block writes every cell of the buffer that exists, so that nothing need be there before."""
        where = self._clip(name)
        alone = replace(self.block, body=(block,))
        return where is not None and writes_all(alone, name, self.block.ref(name).type.sizes, where.inside, self.sets)

    def _unit(self, block: Block, wanted: Sequence[str]) -> Location | None:
        count = self.counts.get(block.loc.unit, 0) if block.loc else 0
        if block.loc is None or block.loc.at or not count:
            return block.loc
        at = self._turn(count) if self.in_turn else Affine((), self.slots[wanted[-1]].bank % count)
        return replace(block.loc, at=(at,))

    # --- swaps ---------------------------------------------------------------------------------------

    def _reload(self, slot: _Slot, name: str) -> None:
        """The copy begins its life here: behind whatever comes next in the walk."""
        where = self._clip(name)
        assert where is not None
        ref, residence = self.block.ref(name), self.residences.get(name)
        if residence is not None and self.links.between:
            into, access = claim(f"{slot.copy.into}_first", self.taken), (residence.first, *slot.copy.access[1:])
            self.views.append(replace(slot.copy, dir=Direction.IN, into=into, access=access))
            self.made.append(
                move(slot.copy, self.views[-1], self.links.between, where, "share", residence.pass_guard())
            )
        guard = () if residence is None else residence.load_guard(self.links)
        self.made.append(move(slot.copy, ref, self.options.xfer_loc, where, "swap_in", guard))
        self.moved += nbytes(ref.type) * (iterations(self.block) if residence is None else residence.cost(self.links))
        self.far.add(name)
        self.home.add(name)
        self.loaded.add(name)

    def _swap_in(self, name: str) -> None:
        slot = self.slots.pop(name)
        if self.block.ref(name).dir is not Direction.ALLOC or name in self.home:
            self._reload(slot, name)

    def _swap_out(self, name: str) -> None:
        where = self._clip(name)
        assert where is not None
        self.made.append(move(self.block.ref(name), self.slots[name].copy, self.options.xfer_loc, where, "swap_out"))
        self.moved += nbytes(self.block.ref(name).type) * iterations(self.block)
        self.far.discard(name)
        self.home.add(name)

    def _finished(self) -> Block:
        used = {n for s in self.made for n in buffers_named(s)}
        refs = [
            replace(r, dir=Direction.INOUT) if r.dir is Direction.OUT and r.into in self.loaded else r
            for r in self.block.refs
        ]
        kept = [r for r in refs if r.dir is not Direction.ALLOC or r.into in used]
        copies = [c for c in reversed(self.copies) if c.into in used]
        body = tuple(replace(s, deps=()) for s in reversed(self.made))
        block = without_dead_stores(replace(self.block, refs=(*kept, *self.views, *copies), body=body))
        block = with_deps(block, _sharing(copies))
        return wrapped(block, self.parents, self.resident) if self.resident else block


def _sharing(copies: Sequence[Refinement]) -> dict[str, frozenset[str]]:
    """For each local copy those that lie on some of its bytes."""
    spans = {c.into: (c.loc, c.offset, c.offset + size_of(c)) for c in copies}
    return {
        name: frozenset(o for o, (other, x, y) in spans.items() if o != name and other == loc and x < high and low < y)
        for name, (loc, low, high) in spans.items()
    }
