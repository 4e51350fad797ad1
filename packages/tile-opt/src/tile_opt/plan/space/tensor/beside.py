"""Loops that the rows of a group's tile may follow beside the instruction's own."""

from __future__ import annotations

from collections.abc import Iterator

from tile_ir.powers import power_of_two

from tile_opt.kernel.instructions import Match, is_box
from tile_opt.kernel.view import KernelView


def loops_beside(view: KernelView, match: Match) -> Iterator[str]:
    """Loops that rows may follow beside the instruction's: those of the first factor alone."""
    left, right = match.main.use(match.left), match.main.use(match.right)
    sides = {loop for _, loop in match.loops}
    others = {n for f in right.forms for n in f.names} | sides
    for loop in view.loops:
        moves = loop.name not in others and any(loop.name in f.names for f in left.forms)
        if moves and is_box(left, sides | {loop.name}):
            yield loop.name


def shares(view: KernelView, match: Match, units: int, beside: str | None) -> list[int]:
    """Of so many instructions along rows, those that may follow the instruction's own loop, where a second one has the others."""
    most = power_of_two(-(-view.ranges[dict(match.loops)["m"]] // match.instruction.sides["m"]))
    others = power_of_two(view.ranges[beside]) if beside else 1
    return [n for n in (1 << bit for bit in range(units.bit_length() - 1)) if n <= most and units // n <= others]
