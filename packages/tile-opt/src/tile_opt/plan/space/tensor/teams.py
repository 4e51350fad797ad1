"""Teams of a group that multiplies by matrix instructions: how many there may be, and what their items hold."""

from __future__ import annotations

from collections.abc import Mapping

from tile_ir.matrix import MatrixInstruction

from tile_opt.model.multiprocessor import OWN_REGISTERS

FEW = (2, 1)
"""Teams of sub-groups in a group, the preferred ones first."""
MANY: Mapping[int, tuple[int, ...]] = {64: (4, 3), 128: (4, 3), 160: (3,), 192: (3,)}
"""More of them, which share what a step copies of so many columns. A core has no registers for more; two groups of 80 to 112 columns
side by side are as fast, and of 32 faster (an H200: convolutions by 3, 5 and 15 %)."""
CROWDED = 1.05
"""Times longer than predicted that many teams take: no other group of the core hides what they wait for together (an H200)."""
ADDRESSES = 24
"""Registers of an item beside its fragments and those that every kernel takes."""


def teams_of(instruction: MatrixInstruction) -> tuple[int, ...]:
    """Teams that a group may have."""
    return FEW + MANY.get(instruction.sides["n"], ())


def crowded(instruction: MatrixInstruction, warps: tuple[int, int]) -> float:
    """Times longer because a group with so many sub-groups along rows and columns has many teams."""
    return CROWDED if instruction.team > 1 and warps[0] > max(FEW) * instruction.team else 1.0


def item_registers(instruction: MatrixInstruction, tall: int, wide: int) -> int:
    """Of an item whose sub-group has `tall` by `wide` instructions, or one of a team, whose factors are in local memory."""
    a, b, c = (o.registers * o.dtype.bytes // 4 for o in (instruction.a, instruction.b, instruction.c))
    fragments = tall * wide * c + tall * a + wide * b
    if instruction.team > 1:
        fragments = c * instruction.sides["n"] // instruction.c.sizes[1]
    return fragments + OWN_REGISTERS + ADDRESSES
