"""Convolutions of any rank, strides, dilations, padding and groups, and transposed ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tile_runtime.ops.text import Shape, at, contraction, function, listed
from tile_runtime.ops.values import Value, apply
from tile_runtime.ops.windows import Window


def convolution(target: str, inputs: str, weights: str, window: Window, shape: Sequence[int], groups: int) -> str:
    """The statement ``target = inputs * weights`` over a window.

    [N, C, *spatial] and [O, C/groups, *kernel], of `shape`, give [N, O, *window.sizes]; `shape` begins with N, O, C/groups.
    """
    batch, out, own = shape[:3]
    sizes = (batch, out, *window.sizes)
    o, c, more = grouped(out // groups, own, groups)
    image = at(inputs, ("n", c, *window.subscripts()))
    return contraction(
        target, sizes, ("n", o, *window.places), "+", f"{image} * {at(weights, (o, 'c', *window.cells))}", *more
    )


def grouped(out: int, own: int, groups: int) -> tuple[str, str, tuple[str, ...]]:
    """Subscripts of output and input channels, `out` and `own` in each group, and what bounds them."""
    if groups == 1:
        return "o", "c", ()
    o = f"{out}*g + o" if out > 1 else "g"
    c = f"{own}*g + c" if own > 1 else "g + c"
    return o, c, (*((f"o < {out}",) if out > 1 else ()), f"c < {own}")


def convolved(value: Value, weights: Value, bias: Value, window: Window, groups: int = 1) -> Value:
    """[N, C, *spatial] and [O, C/groups, *kernel] give [N, O, *window.sizes], with `bias` [O] added where there is one."""
    shape = (value.shape[0], *weights.shape[:2])
    product = convolution("P", "X", "W", window, shape, groups)
    return with_bias(bias, {"X": value, "W": weights}, (*shape[:2], *window.sizes), product)


def transposed(value: Value, weights: Value, bias: Value, window: Window, groups: int = 1) -> Value:
    """[N, C, *spatial] and [C, O/groups, *kernel] give [N, O, *window.sizes]; see `windows.spreading`."""
    sizes, product = transposed_convolution("P", "X", "W", window, (value.shape[0], *weights.shape[:2]), groups)
    return with_bias(bias, {"X": value, "W": weights}, sizes, product)


def transposed_convolution(
    target: str, inputs: str, weights: str, window: Window, shape: Sequence[int], groups: int
) -> tuple[Shape, str]:
    """Sizes of the result, and the statement; `shape` is N, C, O/groups."""
    batch, channels, own = shape
    o, c, more = grouped(own, channels // groups, groups)
    sizes = (batch, own * groups, *window.sizes)
    # Input cell y of the image adds to the cells that a forward convolution would read for output cell y.
    target_channel = "o" if own > 1 or groups == 1 else "0"
    image, kernel = at(inputs, ("n", c, *window.places)), at(weights, (c, target_channel, *window.cells))
    return sizes, contraction(target, sizes, ("n", o, *window.subscripts()), "+", f"{image} * {kernel}", *more)


def with_bias(bias: Value, given: Mapping[str, Value], shape: Sequence[int], *statements: str) -> Value:
    """`statements`, which give P of `shape`, [N, O, …], from `given`; and the bias of each channel where there is one."""
    if bias is None:
        return apply(function(given, "P", *statements), *given.values())
    added = f"Y = P + reshape(Bias, {listed((shape[1], *(1,) * (len(shape) - 2)))});"
    return apply(function((*given, "Bias"), "Y", *statements, added), *given.values(), bias)
