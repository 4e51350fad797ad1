"""What is left of a compilation once its code is there: enough to run it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tile_ir.frozen import frozen
from tile_ir.kernels import KernelList
from tile_ir.program.nodes import Param

if TYPE_CHECKING:
    from tile_opt.compiled import Compiled


@frozen
class Runnable:
    """A kernel list, with or without the kernels' bodies, and what its user's buffers are called."""

    inputs: tuple[Param, ...]
    """Called as their buffers are."""
    outputs: tuple[tuple[str, str], ...]
    """(public name, name of its buffer) of each output, in header order."""
    kernels: KernelList

    @staticmethod
    def of(compiled: Compiled) -> Runnable:
        # Stripe may have to call them otherwise (an output like an input, what is no identifier); positions agree.
        program, stripe = compiled.program, compiled.stripe
        inputs = tuple(replace(p, name=name) for p, name in zip(program.inputs, stripe.inputs, strict=True))
        public = (name for name, _ in program.outputs)
        return Runnable(inputs, tuple(zip(public, stripe.outputs, strict=True)), compiled.kernels)
