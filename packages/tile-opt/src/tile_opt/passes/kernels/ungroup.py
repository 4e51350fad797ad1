"""ungroup: splits the channel loops of grouped convolutions into loops over groups and over members of a group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tile_ir.stripe.nodes import Block
from tile_ir.target import Target

from tile_opt.kernel.groups import split_groups
from tile_opt.kernel.view import close_kernel, open_kernel
from tile_opt.passes.base import KernelPass


@dataclass(frozen=True)
class Ungroup(KernelPass):
    """Split shared loops where a stage searches the group that an iteration belongs to."""

    name: ClassVar[str] = "ungroup"

    def rewrite(self, kernel: Block, target: Target) -> Block:
        view = open_kernel(kernel)
        if view is None:
            return kernel
        split = split_groups(view)
        return kernel if split is view else close_kernel(split)
