"""Copies of boxes of tensors that a group starts together: the box is a view of a parameter, and of a group's array."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tile_ir.matrix import TENSOR_COPY
from tile_ir.semtree.nodes import TensorCopy
from tile_ir.stripe import nodes as stripe
from tile_ir.stripe.affine import Affine

from tile_opt.lowering.body import LoweringError
from tile_opt.lowering.builder import Builder
from tile_opt.lowering.matrix import Views, panel

Places = Callable[[stripe.Refinement, Mapping[str, Affine]], tuple[Affine, ...]]
"""Where a refinement of the block begins along each dimension, at a point of the block's own indexes."""


def is_tensor_copy(instr: stripe.Instr | None) -> bool:
    """Whether the whole block is such a copy."""
    return instr is not None and instr.name == TENSOR_COPY


def emit_tensor_copy(builder: Builder, block: stripe.Block, views: Views, places: Places) -> None:
    """The copy of `block`, whose one statement is a transfer; its instruction runs over the items and what each of them moves.

    Its parameters are the tensor's sizes, those of the box, and from which to which element of the tensor this steps.
    """
    assert block.instr is not None
    (transfer,) = block.body
    if not isinstance(transfer, stripe.Transfer):
        raise LoweringError(f"{block.instr}: {block.name!r} does more than to copy")
    first = {name: Affine() for name, _ in block.instr.sizes}
    source, target = (views(first)[name] for name in (transfer.src, transfer.dst))
    corner = places(next(r for r in block.refs if r.into == transfer.src), first)
    if source.root.ptr is None or source.quasi or source.offset != _sum(corner, source.strides):
        raise LoweringError(f"{block.instr}: where the box of {source.root.name!r} begins is not known")
    array, to, _ = panel(builder, block, target)
    source.root.read = target.root.written = True
    # As they follow one another in local memory.
    order = sorted(range(len(corner)), key=lambda d: -target.strides[d])
    at = tuple(builder.index(corner[d]) for d in order)
    said = (*block.instr.params, *source.strides)
    sizes, box, steps, strides = (tuple(said[n + d] for d in order) for n in range(0, len(said), len(order)))
    builder.emit(TensorCopy(array, to, source.root.ptr, at, sizes, strides, box, steps, transfer.group))
    builder.forget_loads()


def _sum(corner: Sequence[Affine], strides: Sequence[int]) -> Affine:
    """Elements from the tensor's first to the box's."""
    return sum((at * stride for at, stride in zip(corner, strides, strict=True)), start=Affine())
