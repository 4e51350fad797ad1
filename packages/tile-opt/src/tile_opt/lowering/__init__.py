"""Mechanical lowering of Stripe to kernel lists: no heuristics, no names of targets.

Every choice is a field of the scheduled program; this package only spells it out. Modules, outermost
first: `program` (buffers, steps, dependencies), `kernel` (parameters, launch grid), `nest` and `loops`
(indexes, constraints), `body`, `scalars` and `memory` (statements), `builder` and `forms` (arithmetic).
"""

from __future__ import annotations

from tile_ir.kernels import KernelList
from tile_ir.stripe.nodes import Program
from tile_ir.target import Target

from tile_opt.lowering.body import LoweringError


def lower(program: Program, target: Target) -> KernelList:
    """Lower a program, scheduled or not, to the kernel list that the target's backend takes.

    With ``codegen: "semtree"`` each kernel becomes a semtree function; with ``"stripe"`` the whole program is one
    kernel, its scheduled main block. LoweringError means that a pass broke a convention.
    """
    if target.codegen == "stripe":
        from tile_opt.lowering.accelerator import lower_whole

        return lower_whole(program, target)
    from tile_opt.lowering.program import lower as lower_kernels

    return lower_kernels(program, target)


__all__ = ["LoweringError", "lower"]
