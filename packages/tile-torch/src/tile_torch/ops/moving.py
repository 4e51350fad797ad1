"""Moving elements: other shapes, orders and sizes, parts and joins."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from tile_runtime.ops.moving import expanded, flipped, joined, padded, parts, permuted, repeated, reshaped, sliced
from tile_runtime.ops.values import Value, dtype_of

from tile_torch.call import Call, Number, axes, axis
from tile_torch.registry import operator

aten = torch.ops.aten


@operator(
    aten.view.default,
    aten._unsafe_view.default,
    aten.reshape.default,
    aten.squeeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.unsqueeze.default,
)
def view(call: Call, x: Value, *how: object, **named: object) -> Value:
    """The same elements in the shape that PyTorch says."""
    return reshaped(x, call.shape)


@operator(aten.permute.default)
def permute(call: Call, x: Value, dims: Sequence[int]) -> Value:
    return permuted(x, [axis(d, len(x.shape)) for d in dims])


@operator(aten.t.default)
def t(call: Call, x: Value) -> Value:
    return permuted(x, range(len(x.shape))[::-1])


@operator(aten.transpose.int)
def transpose(call: Call, x: Value, dim0: int, dim1: int) -> Value:
    order = list(range(len(x.shape)))
    if order:
        first, second = axis(dim0, len(order)), axis(dim1, len(order))
        order[first], order[second] = second, first
    return permuted(x, order)


@operator(aten.expand.default)
def expand(call: Call, x: Value, size: Sequence[int], implicit: bool = False) -> Value:
    return expanded(x, call.shape)


@operator(aten.repeat.default)
def repeat(call: Call, x: Value, repeats: Sequence[int]) -> Value:
    shape = (*(1,) * (len(repeats) - len(x.shape)), *x.shape)
    return repeated(reshaped(x, shape), repeats)


@operator(aten.slice.Tensor)
def slice_(
    call: Call, x: Value, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Value:
    """Bounds beyond the ends are the ends."""
    along = axis(dim, len(x.shape))
    return sliced(x, [slice(start, end, step) if k == along else slice(None) for k in range(len(x.shape))])


@operator(aten.select.int)
def select(call: Call, x: Value, dim: int, index: int) -> Value:
    along = axis(dim, len(x.shape))
    place = index + x.shape[along] if index < 0 else index
    whole = [slice(place, place + 1) if k == along else slice(None) for k in range(len(x.shape))]
    return reshaped(sliced(x, whole), call.shape)


@operator(aten.cat.default)
def cat(call: Call, tensors: Sequence[Value], dim: int = 0) -> Value:
    """One behind the other, in the dtype to which all are promoted; old-style empty tensors are left out."""
    present = [x for x in tensors if tuple(x.shape) != (0,) or len(call.shape) == 1]
    alike = [x if dtype_of(x) is call.dtype else call.elementwise("{0}", x) for x in present]
    return joined(alike, axis(dim, len(call.shape)))


@operator(aten.split_with_sizes.default)
def split_with_sizes(call: Call, x: Value, split_sizes: Sequence[int], dim: int = 0) -> tuple[Value, ...]:
    return tuple(parts(x, axis(dim, len(x.shape)), split_sizes))


@operator(aten.split.Tensor)
def split(call: Call, x: Value, split_size: int, dim: int = 0) -> tuple[Value, ...]:
    along = axis(dim, len(x.shape))
    return tuple(parts(x, along, [call.type(k)[0][along] for k in range(len(call.types))]))


@operator(aten.unbind.int)
def unbind(call: Call, x: Value, dim: int = 0) -> tuple[Value, ...]:
    along = axis(dim, len(x.shape))
    pieces = parts(x, along, [1] * x.shape[along])
    return tuple(reshaped(p, call.type(k)[0]) for k, p in enumerate(pieces))


@operator(aten.flip.default)
def flip(call: Call, x: Value, dims: Sequence[int]) -> Value:
    return flipped(x, axes(dims, len(x.shape)) if dims else ())


@operator(aten.constant_pad_nd.default)
def constant_pad(call: Call, x: Value, pad: Sequence[int], value: Number = 0) -> Value:
    """Pads count from the last axis, and crop where they are negative."""
    rank = len(x.shape)
    before, after = [0] * rank, [0] * rank
    for k in range(len(pad) // 2):
        before[rank - 1 - k], after[rank - 1 - k] = pad[2 * k], pad[2 * k + 1]
    fill = None if value == 0 else torch.tensor(value).numpy().astype(dtype_of(x).numpy)
    return padded(x, before, after, fill=fill)


@operator(aten.diagonal.default)
def diagonal(call: Call, x: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    """The elements whose places along two axes differ by `offset`, along a new last axis."""
    from tile_runtime.ops.text import at, contraction, function, names
    from tile_runtime.ops.values import apply

    rank = len(x.shape)
    first, second = axis(dim1, rank), axis(dim2, rank)
    index = names(rank - 1)
    others = iter(index[:-1])
    last = index[-1]
    places = {first: f"{last} + {max(0, -offset)}", second: f"{last} + {max(0, offset)}"}
    subscripts = [places[k] if k in places else next(others) for k in range(rank)]
    return apply(function("X", "Y", contraction("Y", call.shape, index, "=", at("X", subscripts))), x)
