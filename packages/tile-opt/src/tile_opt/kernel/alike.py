"""When kernels are the same but for names: what is found of some of them holds for the others."""

from __future__ import annotations

from collections.abc import Iterable

from tile_ir.stripe.hashing import structural_hash
from tile_ir.stripe.nodes import Block


def structure(kernels: Iterable[Block]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """What each kernel is, and which of their buffers are the same: equal for others of which this is so, too."""
    numbers: dict[str, int] = {}
    buffers = (
        (kernel, [numbers.setdefault(r.source or r.into, len(numbers)) for r in kernel.refs]) for kernel in kernels
    )
    return tuple([(structural_hash(kernel), tuple(found)) for kernel, found in buffers])
