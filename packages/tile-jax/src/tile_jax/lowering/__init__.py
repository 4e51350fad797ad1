"""StableHLO to Tile: `lowered` makes a program of what JAX hands over."""

from __future__ import annotations

from tile_jax.lowering.module import lowered, program

__all__ = ["lowered", "program"]
