"""Kernels that see what they exchange with other dimensions: one has a loop over all rows, another over planes and their rows.

The analysis of each contraction joins loops as far as its own operands allow. Kernels that become one need loops over the
same cells: the finest dimensions that any of them has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from math import prod

from tile_ir.frozen import replace
from tile_ir.names import claim
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Index, TensorType, number_of, row_major_strides

from tile_opt.kernel.view import KernelView, Use, is_parallel

Sizes = tuple[int, ...]


def with_same_dimensions(views: Sequence[KernelView], buffers: Iterable[str]) -> tuple[KernelView, ...]:
    """The kernels, which see `buffers` alike where that takes nothing but loops that are split."""
    found = tuple(views)
    for buffer in sorted(buffers):
        sizes = _finest({v.type_of(buffer) for v in found if buffer in v.buffers})
        made = tuple(_seen_as(v, buffer, sizes) if buffer in v.buffers else v for v in found)
        found = tuple(v for v in made if v is not None) if None not in made else found
    return found


def _finest(types: Iterable[TensorType]) -> Sizes:
    """The dimensions of which those of all types consist; () where there are none, or they are all the same."""
    steps = {s for t in types for s, n in zip(t.strides, t.sizes, strict=True) if n > 1}
    total = {prod(t.sizes) for t in types}
    bounds = sorted(steps | total, reverse=True)
    sizes = tuple(a // b for a, b in pairwise(bounds))
    dense = len(total) == 1 and bounds[-1] == 1 and all(a % b == 0 for a, b in pairwise(bounds))
    alike = len({t.sizes for t in types}) == 1
    return sizes if dense and not alike and all(map(_is_dense, types)) else ()


def _is_dense(type: TensorType) -> bool:
    dims = sorted((s, n) for s, n in zip(type.strides, type.sizes, strict=True) if n > 1)
    return [s for s, _ in dims] == [prod(n for _, n in dims[:k]) for k in range(len(dims))]


def _seen_as(view: KernelView, buffer: str, sizes: Sizes) -> KernelView | None:
    """`view` with these dimensions of a buffer; None where it has no loops for them."""
    if not sizes:
        return None
    parts = _parts(view.type_of(buffer), sizes)
    wanted: dict[str, Sizes] = {}
    for use in (u for u in view.uses if u.buffer == buffer):
        if use.extent:
            return None
        for form, dims in zip(use.forms, parts, strict=True):
            if len(dims) > 1:
                (name,) = form.names if len(form.names) == 1 else ("",)
                ranges = tuple(sizes[d] for d in dims)
                if form != Affine.var(name) or wanted.setdefault(name, ranges) != ranges:
                    return None
    return _with_dimensions(view, buffer, sizes, parts, wanted)


def _parts(type: TensorType, sizes: Sizes) -> list[list[int]]:
    """The new dimensions of which each of the old ones consists."""
    steps = row_major_strides(sizes)
    pairs = zip(type.strides, type.sizes, strict=True)
    return [[d for d, step in enumerate(steps) if n > 1 and s <= step < s * n] for s, n in pairs]


def _with_dimensions(
    view: KernelView, buffer: str, sizes: Sizes, parts: list[list[int]], wanted: Mapping[str, Sizes]
) -> KernelView | None:
    ranges = {i.name: i.range for i in view.loops if is_parallel(i)}
    if any(ranges.get(n) != prod(r) for n, r in wanted.items()):
        return None
    taken = view.taken
    digits = {n: tuple(Index(claim(n, taken), r) for r in found) for n, found in wanted.items()}
    values = {n: number_of(found) for n, found in digits.items()}

    def seen(use: Use) -> Use:
        if use.buffer != buffer:
            return use.substitute(values)
        order = sorted((d, f) for form, dims in zip(use.forms, parts, strict=True) for d, f in _split(form, dims))
        return replace(use, forms=tuple(f.substitute(values) for _, f in order))

    def _split(form: Affine, dims: list[int]) -> list[tuple[int, Affine]]:
        if len(dims) < 2:
            return [(d, form) for d in dims]
        return [(d, Affine.var(i.name)) for d, i in zip(dims, digits[form.names[0]], strict=True)]

    stages = tuple(replace(s.substitute(values), uses=tuple(map(seen, s.uses))) for s in view.stages)
    return replace(
        view,
        loops=tuple(d for i in view.loops for d in digits.get(i.name, (i,))),
        stages=stages,
        refs=tuple(
            replace(r, type=_typed(r.type, sizes), access=(Affine(),) * len(sizes)) if r.into == buffer else r
            for r in view.refs
        ),
        constraints=tuple(c.substitute(values) for c in view.constraints),
    )


def _typed(type: TensorType, sizes: Sizes) -> TensorType:
    return TensorType.row_major(type.dtype, sizes, align=type.layout.align)
