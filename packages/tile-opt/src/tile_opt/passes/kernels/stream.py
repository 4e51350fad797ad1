"""stream: mark outputs too large for the last-level cache, so that their stores pass it by."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from tile_ir.stripe.nodes import Block
from tile_ir.target import Target

from tile_opt.kernel.view import close_kernel, open_kernel
from tile_opt.kernel.work import nbytes
from tile_opt.passes.base import KernelPass


@dataclass(frozen=True)
class Stream(KernelPass):
    """Give write-only accesses of buffers of at least `share` times the last-level cache the hint "streaming"."""

    name: ClassVar[str] = "stream"
    share: float = 0.25

    def rewrite(self, kernel: Block, target: Target) -> Block:
        view = open_kernel(kernel)
        if view is None:
            return kernel
        limit = self.share * target.settings.l3_bytes
        large = {b for b in view.writes() - view.reads() if nbytes(view.type_of(b)) >= limit}
        if not large:
            return kernel
        return close_kernel(view.map_uses(lambda u: replace(u, hint="streaming") if u.buffer in large else u))
