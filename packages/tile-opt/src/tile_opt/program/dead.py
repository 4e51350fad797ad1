"""Drop operations that no output needs."""

from __future__ import annotations

from dataclasses import replace

from tile_ir.frozen import frozen
from tile_ir.program.liveness import live_ops
from tile_ir.program.nodes import Program

from tile_opt.program.base import Rewrite


@frozen
class DropDead(Rewrite):
    """Liveness from the outputs backwards; inputs stay, they are the program's signature."""

    def apply(self, program: Program) -> Program:
        kept = live_ops(program.ops, [value for _, value in program.outputs])
        return program if len(kept) == len(program.ops) else replace(program, ops=kept)
