"""Windows that slide over the spatial axes of a tensor: what convolutions and pools share."""

from __future__ import annotations

from collections.abc import Sequence

from tile_ir.frozen import frozen

from tile_runtime.ops.text import Names, Shape, names


@frozen
class Window:
    """A window of `kernel` cells, `dilations` apart, that moves by `strides`; each field has a number for every axis."""

    kernel: Shape
    strides: Shape
    dilations: Shape
    before: Shape
    """Cells of padding in front of the first; negative ones crop."""
    after: Shape
    sizes: Shape
    """How many places it takes."""

    @property
    def places(self) -> Names:
        """The indexes that count places."""
        return names(len(self.kernel), "y")

    @property
    def cells(self) -> Names:
        """The indexes that count cells of the window."""
        return names(len(self.kernel), "k")

    def subscripts(self) -> Names:
        """Where cell `cells` at place `places` is, such as ``2*y0 + k0 - 1``."""
        every = zip(self.places, self.cells, self.strides, self.dilations, self.before, strict=True)
        return tuple(f"{_times(s, y)} + {_times(d, k)}{_less(b)}" for y, k, s, d, b in every)

    def constraints(self) -> tuple[str, ...]:
        """``k0 < 3``, …, for bodies in which nothing else bounds the cells."""
        return tuple(f"{k} < {size}" for k, size in zip(self.cells, self.kernel, strict=True))


def sliding(
    shape: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    before: Sequence[int],
    after: Sequence[int],
    upwards: bool = False,
) -> Window:
    """A window over spatial axes of `shape`; `upwards` keeps a last place that begins inside but does not fit."""
    every = zip(shape, spans(kernel, dilations), strides, before, after, strict=True)
    sizes = tuple(_places(*each, upwards) for each in every)
    return Window(tuple(kernel), tuple(strides), tuple(dilations), tuple(before), tuple(after), sizes)


def spreading(
    shape: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    before: Sequence[int],
    after: Sequence[int],
) -> Window:
    """The window of a transposed convolution of an image of `shape`: `sizes` are those of its output.

    `before` and `after` are cut off the full output; a negative `after` adds cells.
    """
    every = zip(shape, spans(kernel, dilations), strides, before, after, strict=True)
    sizes = tuple(s * (n - 1) + span - b - a for n, span, s, b, a in every)
    return Window(tuple(kernel), tuple(strides), tuple(dilations), tuple(before), tuple(after), sizes)


def spans(kernel: Sequence[int], dilations: Sequence[int]) -> list[int]:
    """How many cells a window covers along each axis, those between its own included."""
    return [d * (k - 1) + 1 for k, d in zip(kernel, dilations, strict=True)]


def _places(size: int, span: int, stride: int, before: int, after: int, upwards: bool) -> int:
    room = size + before + after - span
    if not upwards:
        return max(0, room // stride + 1)
    places = max(0, -(-room // stride) + 1)
    # The last window must begin inside the tensor or the padding in front of it.
    return places - 1 if (places - 1) * stride >= size + before else places


def _times(factor: int, index: str) -> str:
    return index if factor == 1 else f"{factor}*{index}"


def _less(count: int) -> str:
    return "" if not count else f" - {count}" if count > 0 else f" + {-count}"
