"""matrix_tile: schedules contractions on a CPU's tile registers (AMX).

Which bodies an instruction computes is found by its own data (`kernel.instructions`); kernels that do not fit are left
to the passes that follow.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from tile_ir.matrix.x86 import TILED_INSTRUCTIONS
from tile_ir.target import Target

from tile_opt.kernel.view import KernelView
from tile_opt.passes.scheduling import SchedulingPass, refused
from tile_opt.plan.build import Built, build_widened
from tile_opt.plan.builders.widened import on_whole_tiles
from tile_opt.plan.plan import Edge, Plan
from tile_opt.plan.space.cpu.matrix import plans


@dataclass(frozen=True)
class MatrixTile(SchedulingPass):
    """Instructions on tile registers for sums of dot products of words."""

    computes_on_the_way: ClassVar[bool] = True

    def candidates(self, view: KernelView, target: Target) -> Iterator[Plan]:
        yield from plans(view, target)

    def accepts(self, plan: Plan) -> bool:
        return plan.instruction is not None

    def build(self, view: KernelView, plan: Plan, target: Target) -> Built:
        assert plan.instruction is not None
        known = TILED_INSTRUCTIONS.get(plan.instruction.name)
        loops = dict(plan.instruction.loops)
        found = on_whole_tiles(view, known) if known is not None else []
        chosen = next((w for w in found if dict(w.match.loops) == loops), None)
        if chosen is None:
            raise refused(f"{plan.instruction.name!r} does not compute what kernel {view.name!r} does with these loops")
        rows = loops["m"]
        return build_widened(chosen.unfilled(rows) if plan.edge(rows) is Edge.PAD else chosen, plan)
