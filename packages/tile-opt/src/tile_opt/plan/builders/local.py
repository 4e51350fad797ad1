"""How much local memory the tiles of a team of sub-groups may take."""

from __future__ import annotations

from tile_ir.matrix import MATRIX_INSTRUCTIONS
from tile_ir.target import Target

RESERVED = 2048
"""Bytes of a core's local memory that no group may declare."""


def team_local_bytes(target: Target) -> int:
    """Nearly all that a core has, where the target has such instructions; else 0."""
    teams = any(MATRIX_INSTRUCTIONS[n].team > 1 for n in target.matrix if n in MATRIX_INSTRUCTIONS)
    return target.machine.local.bytes - RESERVED if teams and target.machine.local is not None else 0
