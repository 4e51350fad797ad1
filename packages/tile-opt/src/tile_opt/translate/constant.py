"""Constant tensors: their bytes go into the program, no kernel computes them."""

from __future__ import annotations

from tile_ir.program.nodes import ConstantTensor

from tile_opt.translate.context import Context


def constant(context: Context, op: ConstantTensor) -> None:
    """Nothing to run; `translate.program.to_stripe` lists the buffer."""
