"""tensor_tile: contractions on the device's matrix instructions, where the user allows reduced precision.

Which bodies an instruction computes is found by its own data (`kernel.instructions`); kernels that do not fit are left
to the passes that follow.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from tile_ir.matrix import MATRIX_INSTRUCTIONS
from tile_ir.target import Target

from tile_opt.kernel.instructions import match_of
from tile_opt.kernel.view import KernelView
from tile_opt.passes.scheduling import Built, SchedulingPass, refused
from tile_opt.plan.plan import Plan
from tile_opt.plan.space.tensor import plans
from tile_opt.plan.tensor_tiles import build_tensor_tiles, problems


@dataclass(frozen=True)
class TensorTile(SchedulingPass):
    """Matrix instructions for contractions whose operands a group can copy into local memory."""

    name: ClassVar[str] = "tensor_tile"
    faster: bool = False
    """Only where that is predicted to be faster than `group_tile`, to which the other contractions are left."""

    def candidates(self, view: KernelView, target: Target) -> Iterator[Plan]:
        yield from plans(view, target, faster=self.faster)

    def accepts(self, plan: Plan) -> bool:
        return plan.instruction is not None

    def build(self, view: KernelView, plan: Plan, target: Target) -> Built:
        assert plan.instruction is not None
        instruction = MATRIX_INSTRUCTIONS.get(plan.instruction.name)
        match = instruction and match_of(view, instruction, dict(plan.instruction.loops))
        if not match:
            raise refused(f"{plan.instruction.name!r} does not compute what kernel {view.name!r} does with these loops")
        for problem in problems(view, match, plan):
            raise refused(f"the plan of kernel {view.name!r} cannot be built: {problem}")
        return Built(build_tensor_tiles(view, match, plan, collective="MatrixLoad" in target.nodes))
