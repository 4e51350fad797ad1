"""Kernels that walk whole tensors side by side: each point of their loops meets the elements at its own place."""

from __future__ import annotations

from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Index

from tile_opt.kernel.bodies import facts
from tile_opt.kernel.view import KernelView, Stage, Use, is_parallel
from tile_opt.kernel.work import is_elementwise


def pointwise_sizes(view: KernelView) -> tuple[int, ...] | None:
    """The ranges of the loops that every stage has, in order; None where some stage does more than go over elements.

    All loops are in the stages. What is written, and what is read in full, is subscripted by all loops in order; a
    read may leave loops out (broadcasting). So stages of two such kernels of the same ranges can run one after the
    other for each point, in vectors along the last loop, and none of them loses anything by it.
    """
    first = tuple(i.range for i in view.stages[0].loops)
    if view.loops or view.allocs or view.constraints:
        return None
    return first if all(_is_pointwise(view, stage, first) for stage in view.stages) else None


def _is_pointwise(view: KernelView, stage: Stage, sizes: tuple[int, ...]) -> bool:
    plain = not (stage.constraints or stage.guard or facts(stage.body).indirect) and is_elementwise(stage)
    return (
        plain
        and tuple(i.range for i in stage.loops) == sizes
        and all(is_parallel(i) for i in stage.loops)
        and all(_is_in_place(view, use, stage.loops) for use in stage.uses)
    )


def _is_in_place(view: KernelView, use: Use, loops: tuple[Index, ...]) -> bool:
    """Loops subscript whole dimensions in their own order, all of them where the use writes."""
    whole = view.type_of(use.buffer)
    found: list[Index] = []
    for form, size in zip(use.forms, whole.sizes, strict=True):
        loop = next((i for i in loops if i.range == size and form == Affine.var(i.name)), None)
        if loop is not None:
            found.append(loop)
        elif size != 1 or form.const or form.terms:
            return False
    rest = iter(loops)
    in_order = all(loop in rest for loop in found)
    return in_order and whole.is_packed and (not use.writes or len(found) == len(loops))
