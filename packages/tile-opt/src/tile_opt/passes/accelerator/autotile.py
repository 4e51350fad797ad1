"""autotile: blocks become tiles whose views fit a memory unit, of sizes that a cost model chooses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from tile_ir.diagnostics import Diagnostic, TileDeviceError
from tile_ir.hardware import hardware_model
from tile_ir.names import claim
from tile_ir.stripe.nodes import Bind, Block, Program
from tile_ir.target import Target

from tile_opt.blocks.split import can_split, split
from tile_opt.blocks.tree import rewrite_matching
from tile_opt.kernel.view import KernelView, loops_of
from tile_opt.model.memory_tile import Candidate, TileRules, TileSearch, is_tileable
from tile_opt.passes.scheduling import Decision, Scheduled, SchedulingPass, refused
from tile_opt.plan.build import Built
from tile_opt.plan.plan import Cover, Level, Plan

FEW = 8
"""Plans that are offered."""


@dataclass(frozen=True)
class Autotile(SchedulingPass):
    """Blocks with tags `reqs` become tiles that fit `memory`; a plan's only level says how large.

    A tile's views take at most the unit's size (or `mem_KiB`) divided by `pipeline_depth`; `only_po2` and `only_even`
    restrict sizes to powers of two and divisors; `acc_idxs` lets reduction loops be tiled; `min_count` tiles are
    wanted at least; a block that fits whole stays one tile with `elide_trivial` unless tiles are wanted.
    """

    memory: str = ""
    reqs: tuple[str, ...] = ()
    outer_set: tuple[str, ...] = ()
    inner_set: tuple[str, ...] = ()
    only_po2: bool = False
    only_even: bool = False
    pipeline_depth: int = 1
    mem_KiB: float = 0
    acc_idxs: bool = True
    min_count: int = 1
    input_cost: float = 1.0
    output_cost: float = 1.0
    split_factor: float = 0.001
    cache_width: int = 0
    elide_trivial: bool = False
    exclude: tuple[str, ...] = ()

    def schedule(self, program: Program, target: Target, given: Mapping[str, Plan] | None = None) -> Scheduled:
        """`program` with its blocks tiled; a block that not even the smallest tile of fits the memory stays as it is."""
        decisions: dict[str, Decision] = {}
        names: set[str] = set()
        self._rules(target)

        def tiled(block: Block, _: object) -> Block:
            if not (is_tileable(block) and can_split(block)) or block.tags.intersection(self.exclude):
                return block
            view = loops_of(block, claim(block.name, names))
            decided = self.decided(view, target, given or {})
            if decided is None:
                return block
            decisions[view.name] = Decision(view, decided[0], self, view.name in (given or {}))
            return decided[1].kernel

        return Scheduled(rewrite_matching(program, self.reqs, tiled), decisions)

    def candidates(self, view: KernelView, target: Target) -> Iterator[Plan]:
        search = TileSearch(_block(view), self._rules(target))
        return (self._plan(search, tile) for tile in islice(search.ranked(), FEW))

    def build(self, view: KernelView, plan: Plan, target: Target) -> Built:
        block = _block(view)
        if [level.bind for level in plan.levels] != [Bind.NONE] or plan.stagings or plan.reductions or plan.edges:
            raise refused(f"the plan of {view.name!r} is one serial level: the tile of each loop")
        search = TileSearch(block, self._rules(target))
        sizes = tuple(plan.tile(n, 0, extent) for n, extent in zip(search.names, search.ranges, strict=True))
        tile = search.evaluate(sizes)
        if tile.bytes > search.rules.capacity:
            raise refused(f"a tile of {view.name!r} takes {tile.bytes} of {search.rules.capacity} bytes")
        if self.elide_trivial and sizes == search.ranges:
            return Built(block)
        return Built(split(block, dict(zip(search.names, sizes, strict=True)), self.outer_set, self.inner_set))

    def _plan(self, search: TileSearch, tile: Candidate) -> Plan:
        covers = tuple(Cover(name, size) for name, size in zip(search.names, tile.sizes, strict=True))
        place = f" of {self.memory}" if self.memory else ""
        reason = f"a tile's views take {tile.bytes} of {search.rules.capacity} bytes{place}"
        return Plan((Level(Bind.NONE, covers),), reason=reason)

    def _rules(self, target: Target) -> TileRules:
        return TileRules(
            self._capacity(target), self.only_po2, self.only_even, self.acc_idxs, self.min_count,
            self.input_cost, self.output_cost, self.split_factor, self.cache_width,
        )  # fmt: skip

    def _capacity(self, target: Target) -> int:
        """Bytes for one tile: a unit of `memory`, or `mem_KiB`, shared by the tiles in flight."""
        if self.mem_KiB:
            return int(self.mem_KiB * 1024) // self.pipeline_depth
        names: tuple[str, ...] = ()
        if target.model:
            units = hardware_model(target.model).mem_units
            if self.memory in units:
                return units[self.memory].bytes // self.pipeline_depth
            names = tuple(units)
        hint = f"memories: {', '.join(names)}" if names else "the target has no hardware model; give mem_KiB"
        raise TileDeviceError(Diagnostic("TILE-E412", f"autotile: there is no memory unit {self.memory!r}", hint=hint))


def _block(view: KernelView) -> Block:
    assert view.block is not None, f"{view.name} was opened by loops_of"
    return view.block
