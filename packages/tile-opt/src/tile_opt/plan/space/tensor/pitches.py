"""Pitches of factors in local memory, by which the lanes that load a fragment at once meet different banks."""

from __future__ import annotations

from collections.abc import Collection
from math import gcd

from tile_ir.frozen import replace
from tile_ir.matrix import LANES, LINES, elements
from tile_ir.stripe.affine import Affine

from tile_opt.kernel.instructions import Match
from tile_opt.kernel.view import KernelView
from tile_opt.plan.builders.tensor_plans import in_panels
from tile_opt.plan.builders.tensor_tiles import TensorTile
from tile_opt.plan.plan import Plan, Staging
from tile_opt.plan.steps.groups.banks import BANK_BYTES, COPY_BYTES, bank_conflicts, padding
from tile_opt.plan.steps.groups.copy import GroupCopy, local_type, order_of


def whole_piece(view: KernelView, match: Match, name: str) -> int:
    """Bytes of a factor that lie together, and where 16 bytes may begin, wherever its rows are read."""
    use, width, piece = match.main.use(name), match.instruction.a.dtype.bytes, COPY_BYTES
    type, sides = view.type_of(use.buffer), dict(match.loops).values()
    for form, stride, size in zip(use.forms, type.strides, type.sizes, strict=True):
        if stride > 1:
            piece = gcd(piece, stride * width) if size > 1 else piece
            continue
        others = (c for n, c in form.terms if c > 1 or n not in sides)
        piece = gcd(piece, form.const * width, *(c * width for c in others))
    return piece


def padded(view: KernelView, match: Match, plan: Plan, copies: Collection[Staging], *, collective: bool) -> Plan:
    """The plan whose copies of factors meet the fewest bank conflicts; with `collective` lanes load 16-bit fragments together."""
    boxes = () if match.instruction.team > 1 else TensorTile(view, match, plan).boxes
    together = collective and match.instruction.a.dtype.bytes == 2

    def laid(staging: Staging) -> Staging:
        if match.instruction.team > 1:
            return in_panels(match, plan, staging)
        mine = [c for c in boxes if c.use.buffer == staging.operand]
        return replace(staging, pad=max(_pitch(match, c, staging, together) for c in mine))

    return replace(plan, stagings=tuple(laid(s) if s in copies else s for s in plan.stagings))


def _pitch(match: Match, copy: GroupCopy, staging: Staging, collective: bool) -> int:
    """Elements behind each row of a copy; with `collective` the lanes of a sub-group load 16-bit fragments together."""
    order, dtype = order_of(copy.use, staging), copy.source.dtype
    row = copy.box.extents[order[-1]]
    lanes = _first(match, copy, order[-1], collective)

    def conflicts(pad: int) -> int:
        strides = local_type(copy.box.extents, order, dtype, pad).strides
        at = [sum(f.const * s for f, s in zip(forms, strides, strict=True)) * dtype.bytes for forms in lanes]
        return bank_conflicts(at, COPY_BYTES if collective else max(BANK_BYTES, dtype.bytes))

    return min(padding(row, dtype.bytes), key=conflicts)


def _first(match: Match, copy: GroupCopy, contiguous: int, collective: bool) -> list[tuple[Affine, ...]]:
    """Subscripts of the elements of the first fragment that lanes fetch at once."""
    left, loops = copy.use.name == match.left, dict(match.loops)
    names = [f"{loops[role]}_i" for role in (("m", "k") if left else ("k", "n"))]
    operand = match.instruction.a if left else match.instruction.b
    places = [elements(operand)[lane, 0] for lane in range(LANES)]
    if collective:
        # Lines follow the coordinate that is contiguous in local memory.
        rows = names[0] not in copy.box.inside[contiguous].names
        places = [(n, 0) if rows else (0, n) for n in range(LINES)]
    zero = {n: Affine() for f in copy.box.inside for n in f.names}
    at = ({names[0]: Affine((), row), names[1]: Affine((), column)} for row, column in places)
    return [tuple(f.substitute(zero | values) for f in copy.box.inside) for values in at]
