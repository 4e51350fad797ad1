"""Scalar operations of a block body as semtree, uniform values kept scalar until lanes force a splat."""

from __future__ import annotations

from tile_ir.dtype import DType
from tile_ir.frozen import replace
from tile_ir.ops import OPS, Signature
from tile_ir.semtree.nodes import Binary, Bitcast, Call, Compare, Const, Expr, Select, Type, Unary
from tile_ir.stripe.nodes import Op

from tile_opt.lowering.builder import Builder

_UNARY = frozenset({"neg", "abs", "bit_not"})


def operation(builder: Builder, op: Op, args: tuple[Expr, ...]) -> Expr:
    """The value of `op`: an operand, or a variable bound to it once per region."""
    if op.name == "ident":
        return args[0]
    if op.name == "cast":
        return builder.cast(args[0], op.dtype)
    if op.name == "bitcast":
        return builder.pure("bitcast", args, Bitcast(args[0], Type(op.dtype, args[0].type.lanes)))
    signature = OPS[op.name].signature
    lanes = max(a.type.lanes for a in args)
    if signature is Signature.SHIFT and op.dtype is DType.BOOL:
        byte = (builder.cast(args[0], DType.UINT8), args[1])
        return builder.cast(operation(builder, replace(op, dtype=DType.UINT8), byte), DType.BOOL)
    if signature is Signature.SHIFT:
        args = (args[0], shift_count(builder, args[1], args[0].type.dtype))
    if lanes > 1:
        args = tuple(builder.splat(a, lanes) for a in args)
    hint = op.dst.lstrip("$") or "t"
    return builder.pure(op.name, args, _node(op.name, signature, args, Type(op.dtype, lanes)), hint)


def _node(name: str, signature: Signature, args: tuple[Expr, ...], type: Type) -> Expr:
    match signature:
        case Signature.SELECT:
            return Select(args[0], args[1], args[2], type)
        case Signature.COMPARE:
            return Compare(name, args[0], args[1], type)
        case Signature.MATH | Signature.DOT:
            return Call(name, args, type)
        case _ if name in _UNARY:
            return Unary(name, args[0], type)
        case _:
            return Binary(name, args[0], args[1], type)


def shift_count(builder: Builder, count: Expr, dtype: DType) -> Expr:
    """A shift count in the dtype of the shifted value; counts out of range stay out of range."""
    source = count.type.dtype
    if source is dtype:
        return count
    if source.bits > dtype.bits:
        width = Const(dtype.bits, count.type)
        low = builder.pure("min", (count, width), Binary("min", count, width, count.type))
        count = low
        if source.is_signed:
            zero = Const(0, count.type)
            negative = builder.pure(
                "cmp_lt", (low, zero), Compare("cmp_lt", low, zero, Type(DType.BOOL, low.type.lanes))
            )
            count = builder.pure("cond", (negative, width, low), Select(negative, width, low, low.type))
    return builder.cast(count, dtype)


def clamped(builder: Builder, value: Expr, size: int, low: int = -1, high: int | None = None) -> Expr:
    """A subscript, known to lie between `low` and `high`, clamped to [0, size) and converted to the index type."""
    type = value.type
    last = max(size - 1, 0)
    if type.dtype.is_signed and low < 0:
        zero = Const(0, type)
        value = _bounded(builder, "max", value, zero)
    if last < (type.dtype.max_value if high is None else high):
        value = _bounded(builder, "min", value, Const(last, type))
    return builder.cast(value, builder.index_type.dtype)


def _bounded(builder: Builder, name: str, value: Expr, limit: Const) -> Expr:
    if isinstance(value, Const):
        bound = max if name == "max" else min
        return Const(bound(int(value.value), int(limit.value)), value.type)
    return builder.pure(name, (value, limit), Binary(name, value, limit, value.type), "n")
