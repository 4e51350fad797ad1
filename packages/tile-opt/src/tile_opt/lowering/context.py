"""Where lowering stands in a kernel: what a block knows of its parent, and one point of its iteration."""

from __future__ import annotations

from collections.abc import Mapping

from tile_ir.frozen import frozen
from tile_ir.stripe.affine import Affine, Quasi

from tile_opt.lowering.body import View
from tile_opt.lowering.forms import Scaled
from tile_opt.lowering.places import SCALAR, Lanes

Env = dict[str, Affine]
Condition = tuple[Affine, tuple[Scaled, ...]]
"""A form that must be >= 0, over global names."""


@frozen
class Context:
    """What a block is lowered in: its parent's index values and views, and the active vector index."""

    env: Mapping[str, Affine]
    views: Mapping[str, View]
    lanes: Lanes = SCALAR
    axes: frozenset[int] = frozenset()
    """Thread axes that enclosing blocks distribute their iterations over."""


@frozen
class Point:
    """Index values of a block so far, what is still to be checked, and the active vector index."""

    env: Env
    pending: tuple[Quasi, ...]
    lanes: Lanes
    axes: frozenset[int]
    masks: tuple[Condition, ...] = ()
    """What decides, lane by lane, who takes part."""
