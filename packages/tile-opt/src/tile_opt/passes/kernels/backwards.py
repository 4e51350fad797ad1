"""backwards: a kernel that reads again what one before it has just walked through begins at the end, which caches still hold."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Bind, Block, Direction, Program, Statement
from tile_ir.stripe.walk import with_indexes
from tile_ir.target import Target

from tile_opt.blocks.tree import kernels_of, with_kernels
from tile_opt.passes.base import Pass


@dataclass(frozen=True)
class Backwards(Pass):
    """Turn the grid around where the largest operand of at least `share` of the last cache was walked in its order last.

    Groups begin about in the order of their numbers. Results do not depend on it.
    """

    name: ClassVar[str] = "backwards"
    share: float = 0.25

    def apply(self, program: Program, target: Target) -> Program:
        caches = target.machine.caches
        least = self.share * (caches[-1].bytes if caches else target.settings.l2_bytes)
        ends: dict[str, bool] = {}
        """Buffer -> whether whoever touched it last went backwards."""
        made: list[Statement] = []
        for kernel in kernels_of(program):
            if isinstance(kernel, Block):
                large = {r.source: r.type.nbytes for r in kernel.refs if r.source and r.type.nbytes >= least}
                read = [
                    r.source
                    for r in kernel.refs
                    if r.dir is not Direction.OUT and r.source in large and r.source in ends
                ]
                back = bool(read) and not ends[max(read, key=lambda b: large[b])]
                kernel = _turned(kernel) if back else kernel
                ends |= dict.fromkeys(large, back)
            made.append(kernel)
        return with_kernels(program, tuple(made)) if made != list(kernels_of(program)) else program


def _turned(kernel: Block) -> Block:
    """The kernel with every loop of its grid in the other direction."""
    grid = (i for i in kernel.indexes if i.bind is Bind.GRID)
    values = {i.name: Affine.var(i.name, -1) + (i.range - 1) for i in grid}
    refs = (replace(r, access=tuple(f.substitute(values) for f in r.access)) for r in kernel.refs)
    constraints = (c.substitute(values) for c in kernel.constraints)
    body = (with_indexes(s, values) for s in kernel.body)
    return replace(kernel, constraints=tuple(constraints), refs=tuple(refs), body=tuple(body))
