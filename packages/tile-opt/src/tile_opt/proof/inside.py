"""Accesses outside their buffer, or outside a view of it."""

from __future__ import annotations

from collections.abc import Iterator

from tile_ir.stripe.affine import Affine

from tile_opt.proof.sites import Access, Flat, Form, Site
from tile_opt.proof.spaces import DIM, Spaces, isl, sample


def outside(spaces: Spaces, flat: Flat, kernel: int) -> Iterator[tuple[Access, tuple[int, ...]]]:
    """The accesses of a kernel that leave their buffer or view, and the cell that they take there."""
    for access in flat.accesses:
        if access.site.kernel == kernel:
            if access.clamped:
                beyond = spaces.access(access).range().subtract(spaces.box(access.buffer.shape))
                if not beyond.is_empty():
                    yield access, sample(beyond)
                continue
            rank = len(access.buffer.type.sizes)
            cell = [*zip(access.at[len(access.at) - rank :], access.buffer.type.sizes, strict=True)]
            for form, size in (*cell, *access.windows):
                if not _clear(access.site, form, size) and (found := _beyond(spaces, access, form, size)):
                    yield access, found
                    break


def _clear(site: Site, form: Form, size: int) -> bool:
    """True when the loops' ranges alone keep a form within [0, size)."""
    ranges = {loop.name: (0, loop.range - 1) for loop in site.loops}
    low = high = 0
    for part in form:
        if not isinstance(part, Affine):
            return False
        least, most = part.bounds(ranges)
        low, high = low + least, high + most
    return low >= 0 and high < size


def _beyond(spaces: Spaces, access: Access, form: Form, size: int) -> tuple[int, ...] | None:
    """The cell touched where a form is outside [0, size), if it ever is."""
    values = spaces.forms(access.site, (form,))
    context = values.get_ctx()
    below = isl.Set.universe(values.get_space().range()).upper_bound_val(DIM, 0, isl.Val.int_from_si(context, -1))
    above = isl.Set.universe(values.get_space().range()).lower_bound_val(DIM, 0, isl.Val.int_from_si(context, size))
    wrong = values.intersect_range(below.union(above)).domain()
    if wrong.is_empty():
        return None
    return sample(spaces.access(access).intersect_domain(wrong).range())
