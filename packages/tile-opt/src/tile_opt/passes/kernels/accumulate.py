"""accumulate: aggregate into a local buffer and write the output once, instead of updating memory each time."""

from __future__ import annotations

from dataclasses import dataclass

from tile_ir.stripe.nodes import Block
from tile_ir.target import Target

from tile_opt.kernel.accumulators import accumulated
from tile_opt.kernel.merge_stages import merge_stages
from tile_opt.kernel.view import close_kernel, open_kernel
from tile_opt.passes.base import KernelPass


@dataclass(frozen=True)
class Accumulate(KernelPass):
    """Give each reduction of a kernel an accumulator of its own per iteration of the shared loops.

    Applies where the aggregated cell depends on shared loops only. When the kernel itself initialises the
    cell, the accumulator replaces it and is stored at the end; otherwise it is merged into it.
    """

    def rewrite(self, kernel: Block, target: Target) -> Block:
        view = open_kernel(kernel)
        if view is None:
            return kernel
        rewritten = accumulated(view)
        return kernel if rewritten is view else close_kernel(merge_stages(rewritten))
