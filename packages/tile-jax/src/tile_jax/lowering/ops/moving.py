"""Constants, and operations that move elements: other shapes and orders, slices, pads and joins."""

from __future__ import annotations

import numpy as np
from tile_ir.dtype import DType
from tile_runtime.ops import moving
from tile_runtime.ops.text import affine, at, bits_as, contraction, function, names
from tile_runtime.ops.values import Array, Value, apply, is_known

from tile_jax.lowering import tensors
from tile_jax.lowering.elements import compact, converted, counted, elementwise, full
from tile_jax.lowering.op import Op, Shape
from tile_jax.lowering.registry import operation


@operation("stablehlo.constant", "chlo.constant", elementwise=True)
def constant(op: Op) -> Array:
    return tensors.constant(op.attribute("value"))


@operation("chlo.constant_like", elementwise=True)
def constant_like(op: Op) -> Array:
    return full(op.attribute("value").value, op.dtype(), op.shape())


@operation("stablehlo.iota", "stablehlo.dynamic_iota")
def iota(op: Op) -> Array:
    made = op.result()
    return counted(made.shape, op.number("iota_dimension"), made.dtype)


def reshaped(value: Value, shape: Shape) -> Value:
    """The same elements in another shape; one that is everywhere stays one."""
    if is_known(value) and value.size and compact(value).size == 1:
        return np.broadcast_to(compact(value).reshape(()), shape)
    return moving.reshaped(value, shape)


@operation("stablehlo.reshape", "stablehlo.dynamic_reshape", elementwise=True)
def reshape(op: Op) -> Value:
    """In regions of scalars only a scalar to itself."""
    return op.values[0] if op.lifted else reshaped(op.values[0], op.result().shape)


@operation("stablehlo.transpose")
def transpose(op: Op) -> Value:
    return moving.permuted(op.values[0], op.list("permutation"))


@operation("stablehlo.broadcast_in_dim", "stablehlo.dynamic_broadcast_in_dim", elementwise=True)
def broadcast_in_dim(op: Op) -> Value:
    """Axis `k` of the operand becomes axis ``broadcast_dimensions[k]``; new axes and those of size 1 repeat."""
    return op.values[0] if op.lifted else placed(op.values[0], op.list("broadcast_dimensions"), op.result().shape)


def placed(value: Value, axes: Shape, sizes: Shape) -> Value:
    """`value`, whose axis k is axis ``axes[k]`` of `sizes`, repeated along all others."""
    if is_known(value):
        order = np.argsort(axes)
        apart = [1] * len(sizes)
        for axis, size in zip(axes, value.shape, strict=True):
            apart[axis] = size
        return np.broadcast_to(_with_axes(value.transpose(order), apart), sizes)
    index = names(len(sizes))
    subscripts = ["0" if size == 1 else index[axis] for axis, size in zip(axes, value.shape, strict=True)]
    if tuple(value.shape) == sizes and tuple(axes) == tuple(range(len(sizes))):
        return value
    if not value.shape or all(n == 1 for n in value.shape):
        return moving.expanded(moving.reshaped(value, (1,) * len(sizes)), sizes)
    return apply(function("X", "Y", contraction("Y", sizes, index, "=", at("X", subscripts))), value)


def _with_axes(value: Array, shape: list[int]) -> Array:
    """`value` with axes of size 1 put in, without copying what is broadcast."""
    kept = iter(range(value.ndim))
    own = list(value.shape)
    index: list[slice | None] = []
    k = next(kept, None)
    for size in shape:
        if k is not None and own[k] == size:
            index.append(slice(None))
            k = next(kept, None)
        else:
            index.append(None)
    return value[tuple(index)]


@operation("stablehlo.broadcast")
def broadcast(op: Op) -> Value:
    sizes, rank = op.result().shape, len(op.shape())
    return placed(op.values[0], tuple(range(len(sizes) - rank, len(sizes))), sizes)


@operation("stablehlo.slice")
def slice_(op: Op) -> Value:
    every = zip(op.list("start_indices"), op.list("limit_indices"), op.list("strides"), strict=True)
    return moving.sliced(op.values[0], [slice(*each) for each in every])


@operation("stablehlo.real_dynamic_slice")
def slice_by_operands(op: Op) -> Value:
    every = zip(op.ints(1), op.ints(2), op.ints(3), strict=True)
    return moving.sliced(op.values[0], [slice(*each) for each in every])


@operation("stablehlo.pad")
def pad(op: Op) -> Value:
    return padded(op, op.list("edge_padding_low"), op.list("interior_padding"))


@operation("stablehlo.dynamic_pad")
def dynamic_pad(op: Op) -> Value:
    return padded(op, op.ints(2), op.ints(4))


def padded(op: Op, low: Shape, interior: Shape) -> Value:
    """Cells of the second operand in front, behind and between; negative counts in front and behind crop."""
    value, fill = op.values[:2]
    sizes, index = op.result().shape, names(len(low))
    if tuple(value.shape) == sizes and not any(low) and not any(interior):
        return value
    target = [affine(i, inside + 1, before) for i, inside, before in zip(index, interior, low, strict=True)]
    if is_known(fill) and fill.item() == 0:
        return apply(function("X", "Y", contraction("Y", sizes, target, "=", at("X", index))), value)
    text = contraction("Y", sizes, target, "=", at("X", index), "default F")
    return apply(function("XF", "Y", text), value, fill)


@operation("stablehlo.concatenate")
def concatenate(op: Op) -> Value:
    return moving.joined(list(op.values), op.number("dimension"))


@operation("stablehlo.reverse")
def reverse(op: Op) -> Value:
    return moving.flipped(op.values[0], op.list("dimensions"))


@operation("stablehlo.get_dimension_size")
def get_dimension_size(op: Op) -> Array:
    return full(op.shape()[op.number("dimension")], DType.INT32)


@operation("stablehlo.bitcast_convert")
def bitcast_convert(op: Op) -> Value:
    """The same bits; wider elements come apart along a new last axis, or are put together along the last one."""
    value, before, after = op.values[0], op.dtype(), op.result().dtype
    if DType.BOOL in (before, after) and before is not after:
        raise op.unsupported("the bits of truth values have no other type")
    if before.bits == after.bits:
        return value if before is after else elementwise(bits_as("{0}", after), value, shape=op.shape())
    unsigned, wide = DType[f"UINT{before.bits}"], max(before.bits, after.bits)
    bits = value if before is unsigned else elementwise(bits_as("{0}", unsigned), value)
    made = _apart(bits, after.bits) if before.bits == wide else _together(bits, after.bits)
    return (
        made
        if after is DType[f"UINT{after.bits}"]
        else elementwise(bits_as("{0}", after), made, shape=op.result().shape)
    )


def _apart(value: Value, width: int) -> Value:
    """Words of `width` bits along a new last axis, lowest first."""
    own = value.dtype.bits if not is_known(value) else 8 * value.itemsize
    shifts = np.arange(0, own, width).astype(f"uint{own}")
    column = moving.reshaped(value, (*value.shape, 1))
    return converted(
        elementwise("({0} >> {1})", column, shifts, shape=(*value.shape, len(shifts))), DType[f"UINT{width}"]
    )


def _together(value: Value, width: int) -> Value:
    """One word of `width` bits of those along the last axis, lowest first."""
    shape, count = tuple(value.shape[:-1]), value.shape[-1]
    words = [moving.reshaped(w, shape) for w in moving.parts(value, len(shape), [1] * count)]
    made, step = converted(words[0], DType[f"UINT{width}"]), width // count
    for k, word in enumerate(words[1:], 1):
        made = elementwise(
            f"({{0}} | ({{1}} << {k * step}))", made, converted(word, DType[f"UINT{width}"]), shape=shape
        )
    return made
