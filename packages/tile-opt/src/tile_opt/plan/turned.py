"""Operands that run along another loop than the output: read as they lie, they waste most of each line of memory."""

from __future__ import annotations

from dataclasses import dataclass

from tile_opt.kernel.strides import flat_stride
from tile_opt.kernel.view import KernelView, Use
from tile_opt.kernel.work import is_elementwise


@dataclass(frozen=True, slots=True)
class TransposePlan:
    """The loop contiguous in the operands that are turned, the loop contiguous in the output, and those operands."""

    across: str
    along: str
    turned: tuple[str, ...]


def plan_transpose(view: KernelView, side: int) -> TransposePlan | None:
    """The plan for one elementwise stage with operands contiguous along another loop; None when there are none.

    Loops shorter than `side`, that of the squares, are not worth it.
    """
    if len(view.stages) != 1 or view.allocs or view.stages[0].loops or not is_elementwise(view.stages[0]):
        return None
    stage = view.stages[0]
    if stage.constraints or any(u.extent for u in stage.uses):
        return None
    along = _contiguous(view, [u for u in stage.uses if u.writes])
    reads = [u for u in stage.uses if u.reads]
    turned = [u for u in reads if along is not None and flat_stride(view, u, along) not in (0, 1)]
    across = _contiguous(view, turned)
    if along is None or across is None or across == along or not turned:
        return None
    if min(view.ranges[along], view.ranges[across]) < side:
        return None
    return TransposePlan(across, along, tuple(u.name for u in turned))


def _contiguous(view: KernelView, uses: list[Use]) -> str | None:
    for loop in reversed(view.loops):
        if uses and all(flat_stride(view, u, loop.name) == 1 for u in uses):
            return loop.name
    return None
