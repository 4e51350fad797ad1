"""Schedules for matrix instructions: how many warps share a group's tile, and how the operands pass through local memory.

Tiles of ``mma.sync`` and their rates were measured on an H200.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from tile_ir.matrix import LANES, MatrixInstruction
from tile_ir.target import HardwareSettings

from tile_opt.kernel.view import KernelView
from tile_opt.model.candidate import Candidate
from tile_opt.plan.banks import COPY_BYTES
from tile_opt.plan.plans import Roles, TensorPlan, WarpTile

WARP_TILES = (
    WarpTile(2, 2, 4, 8, 1.0, 2),
    WarpTile(2, 2, 4, 4, 0.8, 3),
    WarpTile(2, 2, 2, 4, 0.55, 5),
    WarpTile(2, 2, 1, 2, 0.25, 8),
)
ALONE = 0.5
"""Share of its rate that a multiprocessor keeps, about, with the fewest groups; measured on an H200."""


@dataclass(frozen=True, slots=True)
class TensorModel:
    """Chooses the plan of a contraction; `local_bytes` is what a group may keep in local memory."""

    settings: HardwareSettings
    local_bytes: int

    def plan(self, view: KernelView, roles: Roles) -> TensorPlan | None:
        """The plan with the best predicted rate; None where the reduction does not divide or nothing fits."""
        step = self._step(view.ranges[roles.reduction], roles.instruction)
        if step is None:
            return None
        best: tuple[float, TensorPlan | None] = (0.0, None)
        for share, plan in self._weighed(view, roles, step):
            if share > best[0]:
                best = share, plan
        return best[1]

    def candidates(self, view: KernelView, plan: TensorPlan) -> tuple[Candidate, ...]:
        """The tiles that were weighed against those of `plan`."""
        names = plan.roles.rows, plan.roles.columns
        return tuple(
            Candidate(
                tuple(zip(names, (p.rows, p.columns), strict=True)), share,
                note=f"{p.warps} warps x {p.shape.tall} by {p.shape.wide} instructions",
            )
            for share, p in self._weighed(view, plan.roles, plan.step)
        )  # fmt: skip

    def _weighed(self, view: KernelView, roles: Roles, step: int) -> Iterator[tuple[float, TensorPlan]]:
        """(predicted share of the best rate, plan) of every tile that fits; idle multiprocessors and edges cost."""
        extents = view.ranges
        beside = prod(i.range for i in view.loops if i.name not in (roles.rows, roles.columns))
        for shape in WARP_TILES:
            plan = self._staged(TensorPlan(roles, shape, step, 3), extents[roles.reduction])
            if plan is None or plan.warps * LANES > self.settings.threads:
                continue
            down, across = -(-extents[roles.rows] // plan.rows), -(-extents[roles.columns] // plan.columns)
            useful = extents[roles.rows] * extents[roles.columns] / (down * plan.rows * across * plan.columns)
            yield useful * self._rate(shape, beside * down * across), plan

    def _rate(self, shape: WarpTile, groups: int) -> float:
        """Share of the best rate while so many groups run: some multiprocessors idle, others hold few groups at last."""
        cores = max(1, self.settings.cores)
        waves, rest = divmod(groups, cores * shape.resident)
        last = -(-rest // cores)
        turns = waves * shape.resident + last / (ALONE + (1 - ALONE) * last / shape.resident)
        return shape.rate * groups / (cores * turns)

    def _staged(self, plan: TensorPlan, extent: int) -> TensorPlan | None:
        """The plan with as many stages as the reduction and local memory allow, at least two."""
        width = plan.roles.instruction.dtype.bytes
        unit = COPY_BYTES // width
        # Neighbours in memory follow the reduction, or not; the pitch is padded.
        each = width * sum(max(n * (plan.step + unit), plan.step * (n + 2 * unit)) for n in (plan.rows, plan.columns))
        most = min(plan.stages, self.local_bytes // each, extent // plan.step + 1)
        return TensorPlan(plan.roles, plan.shape, plan.step, most) if most >= 2 else None

    def _step(self, extent: int, instruction: MatrixInstruction) -> int | None:
        """Two instructions deep where that divides."""
        k = instruction.shape[2]
        return next((step for step in (2 * k, k) if extent % step == 0), None)
