"""How far apart in memory neighbouring iterations of a loop touch a buffer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import gcd

from tile_ir.stripe.affine import Affine, intervals

from tile_opt.kernel.view import KernelView, Use


def flat_stride(view: KernelView, use: Use, loop: str) -> int:
    """Elements between the accesses of consecutive iterations of `loop`."""
    strides = view.type_of(use.buffer).strides
    return sum([form.coefficient(loop) * s for form, s in zip(use.forms, strides, strict=True)])


def flat_offset(view: KernelView, use: Use) -> int:
    """Element that the access touches when all loops are at 0."""
    strides = view.type_of(use.buffer).strides
    return sum(form.const * s for form, s in zip(use.forms, strides, strict=True))


def row_starts(view: KernelView, use: Use, loops: Iterable[str]) -> int:
    """Elements on multiples of which rows begin: the first one, and those that `loops` lead to."""
    return gcd(flat_offset(view, use), *(flat_stride(view, use, n) for n in loops))


def limits_inside(forms: tuple[Affine, ...], sizes: tuple[int, ...], extents: Mapping[str, int]) -> tuple[Affine, ...]:
    """Constraints (each >= 0) that keep subscripts inside a buffer; none where the loops' extents already do."""
    ranges = intervals(extents)
    limits: list[Affine] = []
    for form, size in zip(forms, sizes, strict=True):
        low, high = form.bounds(ranges)
        limits += [form] if low < 0 else []
        limits += [form * -1 + (size - 1)] if high >= size else []
    return tuple(limits)


def has_all_cells(use: Use, sizes: tuple[int, ...], extents: Mapping[str, int]) -> bool:
    """Whether a buffer of these `sizes` has the cells that `use` is at for all iterations of loops of these `extents`."""
    return not limits_inside(use.forms, sizes, extents)


def decided_outside(constraint: Affine, inside: Mapping[str, tuple[int, int]]) -> Affine:
    """A constraint (>= 0) without the loops `inside` where, by what the others are multiples of, none of their values decides it.

    ``2047 - o - 16*v`` with o below 16 is ``2047 - 16*v``: tiles of 16 end where the buffer does.
    """
    outer = tuple(t for t in constraint.terms if t[0] not in inside)
    inner = Affine(tuple(t for t in constraint.terms if t[0] in inside))
    low, high = inner.bounds(inside)
    step = gcd(*(c for _, c in outer))
    if not outer or constraint.const % step + low < 0 or constraint.const % step + high >= step:
        return constraint
    return Affine(outer, constraint.const)
