"""What becomes of a program's loops before anything is compiled."""

from __future__ import annotations

from tile_ir.program.nodes import Program

from tile_opt.loops.divide import has_loops
from tile_opt.loops.inline import inlined
from tile_opt.loops.several import several


def prepared(program: Program) -> Program:
    """The program without loops of one round, and with fewer rounds where several are one."""
    return several(inlined(program)) if has_loops(program) else program
