"""How long a scheduled kernel takes on a target, and why: read from Stripe alone, so for any schedule whoever made it."""

from __future__ import annotations

from tile_ir.stripe.nodes import Block
from tile_ir.target import Target

from tile_opt.model.causes import Cause, Estimate
from tile_opt.model.multiprocessor import on_multiprocessors
from tile_opt.model.processor import on_processor
from tile_opt.model.scheduled import read

__all__ = ["Cause", "Estimate", "estimate"]


def estimate(kernel: Block, target: Target) -> Estimate:
    """The predicted time of one run of `kernel`, a scheduled top block, on the machine of `target`, and its causes.

    The kernel is taken to run again and again, so what fits in a cache is there. Sizes must be known.
    """
    tree = read(kernel)
    return on_multiprocessors(tree, target.machine) if target.machine.is_gpu else on_processor(tree, target.machine)
