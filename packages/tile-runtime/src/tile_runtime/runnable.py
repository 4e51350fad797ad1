"""What is left of a compilation once its code is there: enough to run it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tile_ir.kernels import KernelList
from tile_ir.program.nodes import Param

if TYPE_CHECKING:
    from tile_opt.compiler import Compiled


@dataclass(frozen=True, slots=True)
class Runnable:
    """A kernel list, with or without the kernels' bodies, and what its user's buffers are called."""

    inputs: tuple[Param, ...]
    outputs: tuple[tuple[str, str], ...]
    """(public name, name of its buffer) of each output, in header order."""
    kernels: KernelList

    @staticmethod
    def of(compiled: Compiled) -> Runnable:
        # Stripe may have to call an output otherwise (one named like an input); positions agree.
        public = (name for name, _ in compiled.program.outputs)
        return Runnable(
            compiled.program.inputs, tuple(zip(public, compiled.stripe.outputs, strict=True)), compiled.kernels
        )
