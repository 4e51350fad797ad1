"""Conditions on the lanes of a vector: which statements can leave lanes out, and the mask that says which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tile_ir.frozen import replace
from tile_ir.ops import Aggregation
from tile_ir.semtree.nodes import Binary, Expr
from tile_ir.stripe import nodes as stripe

from tile_opt.lowering.builder import Builder
from tile_opt.lowering.context import Condition, Point
from tile_opt.lowering.forms import at_lane, sign
from tile_opt.lowering.places import Lanes

REGISTERS = "REG"
"""The unit whose elements are read one by one, or as columns of a tile, whichever lanes take part."""


def every(conditions: Sequence[Expr]) -> Expr:
    """The conjunction of conditions, at least one."""
    total, *rest = conditions
    for condition in rest:
        total = Binary("bit_and", total, condition, condition.type)
    return total


def masked(builder: Builder, point: Point) -> Lanes:
    """The point's lanes with the mask that its constraints make."""
    lanes = point.lanes
    if not point.masks:
        return lanes
    found = [builder.lane_mask(*c, lanes.symbol, lanes.count) for c in point.masks]
    mask = found[0] if len(found) == 1 else builder.let("mask", every(found))
    return replace(lanes, mask=mask, some=all(_holds_first(builder, c, lanes.symbol) for c in point.masks))


def _holds_first(builder: Builder, condition: Condition, lane: str) -> bool:
    """The first lane always meets the condition: a loop's last vector, of which some lanes are too many."""
    affine, quasi = condition
    open_ = any(lane in form.num.names for _, form in quasi)
    return not open_ and sign(at_lane(affine, lane, 0), quasi, builder.ranges) is True


def is_maskable(statement: stripe.Statement, block: stripe.Block, steps: Mapping[str, int]) -> bool:
    """Whether lanes can be left out of a statement; `steps` are elements between lanes of the block's views."""
    match statement:
        case stripe.Load(src=view, at=()):
            return steps.get(view) in (0, 1) or block.ref(view).loc.unit == REGISTERS
        case stripe.Store(dst=view, at=(), atomic=False):
            agg = block.ref(view).agg
            return steps.get(view) == 1 or (steps.get(view) == 0 and agg not in (None, Aggregation.ASSIGN))
        case stripe.Op() | stripe.Const() | stripe.LoadIndex():
            return True
        case _:
            return False
