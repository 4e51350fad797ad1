"""Buffers that are parts of others, in kernels that know the same cells by two names."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

from tile_ir.frozen import replace
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Direction, Refinement

from tile_opt.kernel.unify import is_indirect
from tile_opt.kernel.view import KernelView, Use


def in_wholes(view: KernelView, refs: Mapping[str, Refinement]) -> KernelView | None:
    """`view` with parts named as cells of the whole, where they meet something else in it that the kernel names.

    So what is compared by name, such as which loops stages share, is compared. None where data subscripts such a
    part: it is clamped to the part's size. `refs` are main's.
    """
    named = [refs[r.into] for r in view.refs]
    pairs = combinations(named, 2) if any(map(_is_part, named)) else ()
    met = {r.into for pair in pairs if _meet(*pair) for r in pair if _is_part(r)}
    if not met:
        return view
    if any(is_indirect(s, u) for s in view.stages for u in s.uses if u.buffer in met):
        return None
    found: dict[str, Refinement] = {}
    for ref in view.refs:
        whole = refs[ref.into].source if ref.into in met else ref.into
        same = ref if whole == ref.into else replace(ref, into=whole, source=whole, type=refs[whole].type)
        found.setdefault(whole, same)
    moved = view.map_uses(lambda use: _moved(use, refs) if use.buffer in met else use)
    return replace(moved, refs=tuple(found.values()))


def writes_parts_of_rows(view: KernelView, buffer: str, row: int) -> bool:
    """Whether no access writes all of the `row` cells that the buffer's last dimension has."""
    ranges = view.ranges
    lasts = (u.forms[-1] for u in view.uses if u.writes and u.buffer == buffer)
    return all(sum(abs(step) * (ranges.get(name, 1) - 1) for name, step in form.terms) < row - 1 for form in lasts)


def _is_part(ref: Refinement) -> bool:
    return ref.source not in ("", ref.into) and ref.dir is not Direction.IN


def _moved(use: Use, refs: Mapping[str, Refinement]) -> Use:
    part = refs[use.buffer]
    forms = tuple(form + start for form, start in zip(use.forms, _starts(part), strict=True))
    return replace(use, buffer=part.source, forms=forms)


def _meet(one: Refinement, other: Refinement) -> bool:
    """Whether two buffers have cells in common."""
    if len({r.source if _is_part(r) else r.into for r in (one, other)}) > 1:
        return False
    return all(a.start < b.stop and b.start < a.stop for a, b in zip(_box(one), _box(other), strict=True))


def _box(ref: Refinement) -> list[range]:
    """The cells of each dimension of the whole."""
    return [range(start, start + size) for start, size in zip(_starts(ref), ref.type.sizes, strict=True)]


def _starts(ref: Refinement) -> list[int]:
    """Where a buffer begins in the whole, which may be itself."""
    return [form.const if isinstance(form, Affine) else 0 for form in ref.access]
