"""StableHLO modules as plans of Tile programs."""

from __future__ import annotations

from jaxlib.mlir import ir

from tile_jax.lowering.errors import refusal
from tile_jax.lowering.plan import Plan
from tile_jax.lowering.walk import Walk

__all__ = ["Plan", "lower"]


def lower(module: ir.Module) -> Plan:
    """The plan of a module's function ``main``: StableHLO or CHLO, of static shapes.

    One TileTypeError (TILE-E970) names every operation that is not supported, with JAX's name and line of it.
    """
    walk = Walk(module)
    plan = walk.plan(walk.functions["main"])
    if plan is None:
        raise refusal(walk.problems) from walk.cause
    return plan
