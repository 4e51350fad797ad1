"""The type an expression has by its operands: what text need not say and the verifier demands."""

from __future__ import annotations

from tile_ir.dtype import DType
from tile_ir.semtree.nodes import (
    Binary,
    Call,
    Compare,
    Expr,
    Extract,
    Fma,
    Insert,
    Load,
    Mma,
    ReduceLanes,
    Round,
    Select,
    Shuffle,
    SubgroupOp,
    Type,
    Unary,
    WorkId,
)  # fmt: skip

INDEX_DTYPES = (DType.INT32, DType.INT64)


def natural_type(expr: Expr) -> Type | None:
    """The type that the operands determine; None where the node itself states it (literals, casts, variables …).

    A Load's is one element of its pointer, an Mma's is that of its accumulator, a dot product's that of its last operand.
    """
    match expr:
        case Unary(_, value) | Round(value) | SubgroupOp(_, (value, *_)) | Call(_, (*_, value)):
            return value.type
        case Binary(_, left) | Fma(left) | Select(_, left) | Insert(left) | Mma(_, _, _, (left, *_)):
            return left.type
        case Compare(_, left):
            return Type(DType.BOOL, left.type.lanes)
        case Extract(vector) | ReduceLanes(_, vector):
            return vector.type.scalar
        case Shuffle(left, _, lanes):
            return Type(left.type.dtype, len(lanes))
        case Load(ptr):
            return Type(ptr.type.dtype, ptr.type.lanes)
        case WorkId():
            return Type(DType.INT32)
        case _:
            return None


def is_memory(t: Type) -> bool:
    """True for pointers and arrays: what Load and Store may address."""
    return t.ptr or t.count > 0
