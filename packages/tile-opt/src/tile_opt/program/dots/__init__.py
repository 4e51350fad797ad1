"""Products of short factors by instructions that add up several of them in each lane (`tile_ir.dots`).

``+(int32(A) * int32(B))``, with numbers that A and B are counted from, and sums of floats that such integers were scaled to,
become sums of dot products of words; so do sums of products of bfloat16, where the user allows reduced precision. What packs constants into words runs once (`lowering.program.fixed_steps`).
"""

from __future__ import annotations

from dataclasses import field

from tile_ir.dots import DOTS
from tile_ir.frozen import frozen
from tile_ir.program.nodes import ConstantTensor, Contraction, Loop, Op, Program
from tile_ir.target import Target

from tile_opt.program.base import Rewrite, fixed_values, with_each
from tile_opt.program.dots.build import Builder
from tile_opt.program.dots.choose import Chooser
from tile_opt.program.dots.known import Known
from tile_opt.program.dots.match import SMALL, Matcher
from tile_opt.program.dots.words import Packing
from tile_opt.program.trees import Trees


@frozen
class DotProducts(Rewrite):
    """Sums of products of short factors by the dot products that `target` lists, where that leaves `gain` of the time or less.

    Integers are added up exactly. Scales of floats are taken out of the sum, which is then rounded once: the result is
    nearer to the true one than that of any order of float additions. Products of bfloat16 count subnormal numbers as zeros.
    """

    target: Target = field(default_factory=lambda: Target(""))
    gain: float = 0.8

    def apply(self, program: Program) -> Program:
        if self.target.nodes.isdisjoint(DOTS) and not self.target.matrix:
            return program
        types, fixed = program.types(), fixed_values(program)
        # What makes an 8-bit integer is none of a sum's business.
        seen = (op for op in program.ops if not isinstance(op, Loop) and op.type.dtype not in SMALL)
        matcher = Matcher(Trees(seen, types), Known.of(program.ops))
        given = {p.name for p in program.inputs} | {op.name for op in program.ops if isinstance(op, ConstantTensor)}
        chooser = Chooser(self.target, types, fixed, self.gain, given)
        packing = Packing(types, set(types), given)

        def dots(op: Op) -> list[Op]:
            match = matcher.match(op) if isinstance(op, Contraction) and op.name not in fixed else None
            choice = chooser.choice(match) if match is not None else None
            return [op] if match is None or choice is None else Builder(match, choice, packing).build()

        return with_each(program, dots)
