"""Copies of boxes of tensors that a group starts together: the box is a view of a parameter, and of a group's array."""

from __future__ import annotations

from collections.abc import Iterator

from tile_ir.matrix import TENSOR_COPY
from tile_ir.semtree.nodes import Expr, TensorCopy
from tile_ir.stripe import nodes as stripe
from tile_ir.stripe.affine import Affine

from tile_opt.lowering.body import LoweringError, View
from tile_opt.lowering.builder import Builder
from tile_opt.lowering.matrix import Views, panel


def is_tensor_copy(instr: stripe.Instr | None) -> bool:
    """Whether the whole block is such a copy."""
    return instr is not None and instr.name == TENSOR_COPY


def emit_tensor_copy(builder: Builder, block: stripe.Block, views: Views) -> None:
    """The copy of `block`, whose one statement is a transfer; its instruction runs over the items and what each of them moves.

    Its parameters are the tensor's sizes, then those of the box.
    """
    assert block.instr is not None
    (transfer,) = block.body
    if not isinstance(transfer, stripe.Transfer):
        raise LoweringError(f"{block.instr}: {block.name!r} does more than to copy")
    found = views({name: Affine() for name, _ in block.instr.sizes})
    source, target = found[transfer.src], found[transfer.dst]
    if source.root.ptr is None or source.quasi:
        raise LoweringError(f"{block.instr}: where the box of {source.root.name!r} begins is not known")
    array, to, _ = panel(builder, block, target)
    at = tuple(_coordinates(builder, source))
    source.root.read = target.root.written = True
    sizes, box = block.instr.params[: len(at)], block.instr.params[len(at) :]
    builder.emit(TensorCopy(array, to, source.root.ptr, at, sizes, tuple(source.strides), box, transfer.group))
    builder.forget_loads()


def _coordinates(builder: Builder, view: View) -> Iterator[Expr]:
    """The first element's place along each dimension; of these, outermost first, each is dense in the one before."""
    rest = view.offset
    for stride in view.strides:
        whole = Affine.of([(n, c // stride) for n, c in rest.terms if c % stride == 0], rest.const // stride)
        rest = rest - whole * stride
        yield builder.index(whole)
    if rest != Affine():
        raise LoweringError(f"{view.root.name!r}: a box begins between its elements")
