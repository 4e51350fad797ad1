"""Reading tensors between their cells, at places that data gives.

A place has one coordinate for each axis that is sampled. Coordinates lie in float tensors with as many dimensions as
the result, broadcast to it: so the weights of two axes are computed apart, once for all channels. The axes themselves are
one, in row-major order: where a place's cell lies in it is computed once for all channels, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

from tile_ir.frozen import frozen

from tile_runtime.ops.text import aligned, at, contraction, function, names, reshaped
from tile_runtime.ops.values import Value, apply

_LINEAR = {0: "1 - {f}", 1: "{f}"}
_CUBIC = {
    -1: "((-0.75 * ({f} + 1) + 3.75) * ({f} + 1) - 6) * ({f} + 1) + 3",
    0: "(1.25 * {f} - 2.25) * {f} * {f} + 1",
    1: "(1.25 * (1 - {f}) - 2.25) * (1 - {f}) * (1 - {f}) + 1",
    2: "((-0.75 * (2 - {f}) + 3.75) * (2 - {f}) - 6) * (2 - {f}) + 3",
}
KERNELS: dict[str, dict[int, str]] = {"nearest": {0: "1"}, "linear": _LINEAR, "cubic": _CUBIC}
"""The weights of cells around a place: offsets from the cell below it, and what they are of the fraction f."""


@frozen
class Sampled:
    """An axis that is sampled, of `size` cells: its coordinates are the tensor `place`, of shape `shape`."""

    place: str
    shape: tuple[int, ...]
    size: int
    step: int
    """Elements from one cell to the next."""

    def taps(self, kernel: str, padding: str, aligned_corners: bool) -> list[str]:
        """Statements for tap k: where its cell lies ``placeIk``, its weight ``placeWk``, whether it is inside ``placeMk``."""
        p = self.place
        statements = [f"{p}B = floor({p});", f"{p}F = {p} - {p}B;"]
        for k, (offset, weight) in enumerate(KERNELS[kernel].items()):
            cell = f"{p}B + ({offset})"
            inside = reflected(cell, self.size, aligned_corners) if padding == "reflection" else cell
            statements += [
                f"{p}I{k} = as_int(min(max({inside}, 0), {self.size - 1}), 32) * {self.step};",
                f"{p}W{k} = {weight.format(f=f'{p}F')};",
                f"{p}M{k} = ({cell} >= 0) & ({cell} <= {self.size - 1});",
            ]
        return statements


def reflected(place: str, size: int, aligned_corners: bool) -> str:
    """`place` mirrored at both ends of `size` cells until it lies between: their centres, or their outer edges."""
    low, span = (0.0, size - 1.0) if aligned_corners else (-0.5, float(size))
    if not span:
        return f"0 * ({place})"
    turn = f"(({place}) - {low} - {2 * span} * floor((({place}) - {low}) / {2 * span}))"
    return f"({low + span} - abs({turn} - {span}))"


def sampled(names: Sequence[str], shape: tuple[int, ...], sizes: Sequence[int]) -> list[Sampled]:
    """The axes of an image of such `sizes`, with coordinates of one shape."""
    return [
        Sampled(name, shape, size, prod(sizes[k + 1 :]))
        for k, (name, size) in enumerate(zip(names, sizes, strict=True))
    ]


def samples(
    target: str, image: str, sizes: Sequence[int], axes: Sequence[Sampled], kernel: str, padding: str = "border"
) -> tuple[list[str], list[str]]:
    """Statements for all taps of all axes, and the weighted values that they give, to be added up.

    `image` has a hole ``{}`` for the subscript of all axes as one, such as ``X[i0, i1, {}]``.
    """
    index = names(len(sizes))
    shape = tuple(map(max, zip(*(a.shape for a in axes), strict=True)))
    statements: list[str] = []
    terms: list[str] = []
    for taps in product(range(len(KERNELS[kernel])), repeat=len(axes)):
        pairs = [(axis, k) for axis, k in zip(axes, taps, strict=True)]
        name, cell = (f"{target}{letter}{''.join(map(str, taps))}" for letter in "VJ")
        statements.append(f"{cell} = {' + '.join(f'{a.place}I{k}' for a, k in pairs)};")
        statements.append(contraction(name, sizes, index, "=", image.format(at(cell, aligned(shape, index)))))
        weighted = f"{name} * ({' * '.join(f'{a.place}W{k}' for a, k in pairs)})"
        inside = " & ".join(f"{a.place}M{k}" for a, k in pairs)
        terms.append(f"({inside} ? {weighted} : 0)" if padding == "zeros" else weighted)
    return statements, terms


def grid_sampled(
    image: Value, grid: Value, kernel: str, padding: str = "zeros", aligned_corners: bool = False, moved: bool = True
) -> Value:
    """[N, C, *spatial] at the places of a grid, [N, *places, axes], whose last axis counts those of the image backwards.

    Coordinates go from -1 to 1: from edge to edge, or from centre to centre of the outermost cells (`aligned_corners`).
    `kernel` is one of KERNELS; `padding` says what is beyond: zeros, the border, or a reflection. Places beyond are `moved`
    to where the padding has them from; else only the cells around them are.
    """
    rank = len(image.shape) - 2
    sizes, points = (*image.shape[:2], *grid.shape[1:-1]), (grid.shape[0], 1, *grid.shape[1:-1])
    index = names(len(sizes))
    axes = sampled(names(rank, "P"), points, image.shape[2:])
    beyond = padding if moved else "zeros"
    statements = [f"Z = {reshaped('X', (*image.shape[:2], prod(image.shape[2:])))};"]
    for k, axis in enumerate(axes):
        # The grid's coordinates begin with the last axis.
        normal = at("G", (index[0], *index[2:], rank - 1 - k))
        statements += [
            contraction(f"N{k}", points, (index[0], "0", *index[2:]), "=", normal),
            f"R{k} = {'round_even' if kernel == 'nearest' else 'ident'}({_unnormalised(f'N{k}', axis.size, aligned_corners)});",
            f"P{k} = {_kept_inside(f'R{k}', axis.size, aligned_corners, beyond)};",
            *axis.taps(kernel, padding, aligned_corners),
        ]
    gathered, terms = samples("Y", f"Z[{index[0]}, {index[1]}, {{}}]", sizes, axes, kernel, padding)
    text = function("XG", "Y", *statements, *gathered, f"Y = {' + '.join(terms)};")
    return apply(text, image, grid)


def _unnormalised(place: str, size: int, aligned_corners: bool) -> str:
    """From -1 … 1 to cells."""
    return f"({place} + 1) / 2 * {size - 1}" if aligned_corners else f"(({place} + 1) * {size} - 1) / 2"


def _kept_inside(place: str, size: int, aligned_corners: bool, padding: str) -> str:
    low, high = (0.0, size - 1.0) if aligned_corners else (-0.5, size - 0.5)
    kept = {"border": f"min(max({place}, 0), {size - 1})", "reflection": reflected(place, size, aligned_corners)}
    return f"({place} < {low}) | ({place} > {high}) ? {kept[padding]} : {place}" if padding in kept else place
