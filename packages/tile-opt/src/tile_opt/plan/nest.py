"""What schedules of kernels have in common: locations, and the buffers that blocks pass down."""

from __future__ import annotations

from dataclasses import replace

from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Block, Direction, Index, Refinement, Statement

from tile_opt.kernel.view import KernelView, Stage, direction_of
from tile_opt.plan.tree import ARRAY, GROUP_MEMORY, REGISTER, element

__all__ = ["ARRAY", "GROUP_MEMORY", "REGISTER", "element", "inout", "scheduled", "whole_refs"]


def scheduled(
    view: KernelView, grid: tuple[Index, ...], body: tuple[Statement, ...], shared: tuple[Refinement, ...] = ()
) -> Block:
    """The block of a scheduled kernel: a grid over `body`, with the view's buffers whole and what a group shares."""
    return Block(
        view.name,
        indexes=grid,
        refs=whole_refs(view, view.stages) + shared,
        body=body,
        tags=view.tags | {"scheduled"},
        comment=view.comment,
        origin=view.origin,
    )


def inout(ref: Refinement) -> Refinement:
    """The whole of a parent's buffer, to read and write."""
    return replace(ref, dir=Direction.INOUT, source=ref.into, access=(Affine(),) * len(ref.type.sizes))


def whole_refs(view: KernelView, stages: tuple[Stage, ...]) -> tuple[Refinement, ...]:
    """The buffers that `stages` use, passed down whole with the direction of their uses."""
    uses = [u for s in stages for u in s.uses]
    return tuple(
        replace(r, dir=direction_of(mine), source=r.into, access=(Affine(),) * len(r.type.sizes))
        for r in view.refs
        if (mine := [u for u in uses if u.buffer == r.into])
    )
