"""Convolutions of one to three dimensions, channels last and channels first, strided, dilated, grouped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from classes.draw import sizes
from classes.work import Work, product, program

T = TypeVar("T")


@program
def conv(
    n: int, size: str, ci: int, co: int, kernel: int = 3, stride: int = 1, dilation: int = 1, groups: int = 1,
    layout: str = "last", dtype: str = "float32",
) -> Work:  # fmt: skip
    """A "same" convolution of images of `size` (such as 56x56): ci -> co channels; `layout` is last or first."""
    image, pad = sizes(size), dilation * (kernel - 1) // 2
    rank, window, inside = len(image), (kernel,) * len(image), ci // groups
    out = tuple((s + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1 for s in image)
    text = _text(rank, out, ci, co, groups, (stride, dilation, pad), layout)
    shapes = {"D": _data(n, image, ci, layout), "K": _filter(window, inside, co, layout)}
    first = (0, rank + 1, *range(1, rank + 1)), (rank + 1, rank, *range(rank)), (0, *range(2, rank + 2), 1)
    data, weights, back = (f".permute({order})" if layout == "last" else "" for order in first)
    return Work(
        text,
        shapes,
        torch=f"F.conv{rank}d(D, K, stride=stride, padding=pad, dilation=dilation, groups=groups){back}",
        arranged={"D": f"D{data}", "K": f"K{weights}"},
        names={"stride": stride, "pad": pad, "dilation": dilation, "groups": groups},
        operations=2.0 * n * product(out) * co * inside * kernel**rank,
        fused=True,
        length=inside * kernel**rank,
        dtype=dtype,
    )


@program
def conv_gradient(
    n: int, size: str, ci: int, co: int, kernel: int = 3, stride: int = 1, dilation: int = 1, groups: int = 1,
    layout: str = "last", dtype: str = "float32",
) -> Work:  # fmt: skip
    """Both gradients of `conv`, of the data and of the filter."""
    forward = conv(n, size, ci, co, kernel, stride, dilation, groups, layout, dtype)
    image, rank = sizes(size), len(sizes(size))
    out = tuple((s - 1) // stride + 1 for s in image)
    last = layout == "last"
    data = f".permute{(0, *range(2, rank + 2), 1)}" if last else ""
    weights = f".permute{(*range(2, rank + 2), 1, 0)}" if last else ""
    steps = f"[stride] * {rank}, [pad] * {rank}, [dilation] * {rank}, False, [0] * {rank}, groups"
    both = f"torch.ops.aten.convolution_backward(G, D, K, None, {steps}, [True, True, False])"
    return replace(
        forward,
        inputs={**forward.inputs, "G": _data(n, out, co, layout)},
        arranged={**forward.arranged, "G": forward.arranged["D"].replace("D", "G")},
        eager=f"(lambda d, k, _: (d{data}, k{weights}))(*{both})",
        gradients=("D", "K"),
        operations=2 * forward.operations,
        length=n * product(out),
    )


def _text(
    rank: int, out: Sequence[int], ci: int, co: int, groups: int, steps: tuple[int, int, int], layout: str
) -> str:
    """The Tile function: grouped channels are written as the sums g*inside + c and g*outside + o."""
    stride, dilation, pad = steps
    x, x_size, u, u_size = (list(names[:rank]) for names in ("xyz", "XYZ", "uvw", "UVW"))
    places = [f"{stride}*{a} + {dilation}*{b} - {pad}" for a, b in zip(x, u, strict=True)]
    source, target, limits = "c", "o", ""
    if groups > 1:
        inside, outside = ci // groups, co // groups
        source, target = f"{inside}*g + c", f"{outside}*g + o"
        limits = f", g < {groups}, c < {inside}, o < {outside}"
    data = f"D[{', '.join(_data('n', places, source, layout))}]"
    weights = f"K[{', '.join(_filter(u, 'c', target, layout))}]"
    result = (
        f"R[{', '.join(_data('n', x, target, layout))} : {', '.join(_data('N', list(map(str, out)), 'O', layout))}]"
    )
    heads = f"D[{', '.join(_data('N', x_size, 'I', layout))}], K[{', '.join(_filter(u_size, 'C', 'O', layout))}]"
    return f"function ({heads}) -> (R) {{ {result} = +({data} * {weights}){limits}; }}"


def _data(batch: T, space: Sequence[T], channel: T, layout: str) -> tuple[T, ...]:
    return (batch, *space, channel) if layout == "last" else (batch, channel, *space)


def _filter(space: Sequence[T], inside: T, outside: T, layout: str) -> tuple[T, ...]:
    return (*space, inside, outside) if layout == "last" else (outside, inside, *space)
