"""Partial results of a contraction on matrix instructions, put together by the last group of each tile.

    kernel [tiles] {
      all groups [shares]: the products of a share; partial results to memory
      Sync of the device
      the last one: accumulators in fragments; init; shares { add partial results }; output stages
    }

A kernel of its own would take longer to begin than this takes, where the partial results of a tile are few. They lie as
the lanes have them, so that each lane finds its own: nothing is beyond the end of a loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from tile_ir.dtype import DType
from tile_ir.frozen import replace
from tile_ir.machine import Machine
from tile_ir.semtree.nodes import MOST_COUNTS
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Bind, Block, Index, Refinement, TensorType
from tile_ir.target import Target

from tile_opt.kernel.instructions import Match
from tile_opt.kernel.view import KernelView, Stage
from tile_opt.plan.builders.tensor_plans import in_tile, staged_results
from tile_opt.plan.builders.tensor_tiles import TensorTile
from tile_opt.plan.plan import Plan
from tile_opt.plan.steps.groups.fragments import LANE, LANE_INDEXES
from tile_opt.plan.steps.groups.last_group import grid, last_group
from tile_opt.plan.steps.groups.share_reduction import SharedReduction
from tile_opt.plan.steps.groups.tensorise import on_fragments
from tile_opt.plan.tree import Nest, Node, close_tree

NODE = "LastGroup"
FETCHED = 40
"""Bytes a cycle that a core fetches, about (an H200: 37 to 44)."""


def results_of(match: Match) -> tuple[str, str]:
    """The loops along which an instruction's results lie, columns last."""
    loops = dict(match.loops)
    return loops["m"], loops["n"]


def is_joined(cells: int, tiles: int, ways: int, target: Target) -> bool:
    """The last group of each tile puts the partial results of its cells together: the device counts groups, and they are few."""
    return ways <= most_ways(cells, target) and tiles <= MOST_COUNTS


def most_ways(cells: int, target: Target) -> int:
    """Partial results of so many cells that a group reads before a kernel of its own would even begin; 0 where none arrives last."""
    begun = target.machine.launch.kernel - joining_seconds(0, target.machine)
    each = joining_seconds(cells, target.machine) - joining_seconds(0, target.machine)
    return max(0, int(begun / each)) if NODE in target.nodes else 0


def joining_seconds(cells: int, machine: Machine) -> float:
    """What the last group of a tile takes for so many partial results, all shares together."""
    cycles = machine.memory.latency * machine.clock_ghz + cells * DType.FLOAT32.bytes / FETCHED
    return machine.launch.arrival + cycles / (machine.clock_ghz * 1e9)


def build_joined(match: Match, plan: Plan, parts: SharedReduction, *, collective: bool) -> tuple[Block, Refinement]:
    """The kernel of a plan of partial results whose last groups put these together, and the buffer of these.

    The plan has none of `tensor_checks.problems`.
    """
    whole = replace(plan, stagings=tuple(s for s in plan.stagings if s.operand not in staged_results(plan)))
    first = _Partial(parts.partial, match, whole, collective, parts=parts)
    then = _Combined(parts.combining, match, whole, collective, parts=parts)
    made = Refinement.allocation(parts.buffer.into, first.partial)
    kernel, last = (close_tree(_with(tile.view, made), tile.nest()) for tile in (first, then))
    return last_group(kernel, last, {name: name for name in grid(last)}), made


def _with(view: KernelView, made: Refinement) -> KernelView:
    """The kernel with the partial results as they lie."""
    refs = (replace(r, type=made.type, access=made.access) if r.source == made.into else r for r in view.refs)
    return replace(view, refs=tuple(refs))


@dataclass(frozen=True, kw_only=True)
class _Shares(TensorTile):
    """A tile some of whose stages pass partial results on."""

    parts: SharedReduction

    @property
    def _passed(self) -> str:
        return self.parts.buffer.into

    def _as_lanes_have_them(self, stage: Stage, share: tuple[Affine, ...]) -> Stage:
        """A stage on partial results over the sub-group's tile."""
        *beside, rows, columns = (Index(in_tile(n), size) for n, size in self.warp.items())
        at = stage.substitute(self._at)
        moved = on_fragments(at, self.match.instruction, tuple(beside), rows, columns, {*self.sums})
        forms = (*share, *(form for form, _ in self._place(moved)))
        uses = (replace(u, forms=forms) if u.buffer == self._passed else u for u in moved.uses)
        return replace(moved, uses=tuple(uses))

    def _place(self, stage: Stage) -> tuple[tuple[Affine, int], ...]:
        """Where a stage's lanes have their elements: a subscript, and its range, for each dimension behind the shares."""
        lanes = {i.name for i in LANE_INDEXES}
        *outer, last = (i for i in stage.loops if i.name not in lanes)
        shares = {f"{n}_g" for n in self.parts.shares}
        around = (i for i in (*self.grid, *self.warps, *outer) if i.name not in shares)
        each = ((Affine.var(i.name), i.range) for i in around)
        return *each, (LANE, prod(i.range for i in LANE_INDEXES)), (Affine.var(last.name), last.range)


class _Partial(_Shares):
    """What all groups do."""

    @property
    def partial(self) -> TensorType:
        """Of all partial results."""
        (stored,) = (s for s in self.view.stages if any(u.buffer == self._passed for u in s.uses))
        whole = self.parts.buffer.type
        sizes = (size for _, size in self._place(self._as_lanes_have_them(stored, ())))
        return TensorType.row_major(whole.dtype, (*whole.sizes[: len(self.parts.shares)], *sizes), align=64)

    def _beside(self, stage: Stage) -> Iterator[Node]:
        if any(u.buffer == self._passed for u in stage.uses):
            yield self._as_lanes_have_them(stage, tuple(Affine.var(f"{n}_g") for n in self.parts.shares))
        else:
            yield from super()._beside(stage)


class _Combined(_Shares):
    """What the last group of a tile does."""

    def nest(self) -> Nest:
        body = tuple(n for stage in self.view.stages for n in self._beside(stage))
        warps = Nest(f"{self.view.name}_warps", self.warps, body, allocs=(*self.sums.values(),))
        return Nest(self.view.name, self.grid, (warps,))

    def _beside(self, stage: Stage) -> Iterator[Node]:
        if stage is not self.parts.added:
            yield from super()._beside(stage)
            return
        share = tuple(Affine.var(i.name) for i in stage.loops)
        added = self._as_lanes_have_them(replace(stage, loops=()), share)
        yield Nest(stage.name, tuple(replace(i, bind=Bind.UNROLL) for i in stage.loops), (added,))
