"""What no tile of a contraction on matrix instructions takes less than, before any is made."""

from __future__ import annotations

from math import prod

from tile_ir.target import Target

from tile_opt.kernel.instructions import Match, volume
from tile_opt.kernel.view import KernelView
from tile_opt.model.contraction import contraction
from tile_opt.model.group_cost import GroupCost, beside


def least_seconds(view: KernelView, match: Match, target: Target) -> float:
    """Whole instructions at their full rate beside both factors once through memory, and the launch."""
    machine, instruction, work = target.machine, match.instruction, contraction(view)
    sides = {loop for _, loop in match.loops}
    points = volume(view, match) * prod(extent for n, extent in view.ranges.items() if n not in sides)
    cycles = points / prod(instruction.shape) / (machine.rate(instruction.name) or 1.0)
    seconds = cycles / max(1, machine.cores) / (machine.clock_ghz * 1e9)
    if work is None:
        return seconds
    return beside((seconds, GroupCost(work, machine, 0).read)) + machine.launch.kernel
