"""merge: collapses two loops with consistent strides into a single longer loop."""

from __future__ import annotations

from dataclasses import dataclass

from tile_ir.stripe.nodes import Block
from tile_ir.target import Target

from tile_opt.kernel.merging import merged
from tile_opt.passes.base import KernelPass


@dataclass(frozen=True)
class Merge(KernelPass):
    """Merge shared loops with each other, and each stage's own loops with each other, while possible."""

    def rewrite(self, kernel: Block, target: Target) -> Block:
        return merged(kernel)
