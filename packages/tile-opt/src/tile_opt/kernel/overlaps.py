"""Windows of one stage that overlap: which of its loops they are, and the operations that are left where neighbours share."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from tile_ir.stripe.affine import names_in

from tile_opt.kernel.bodies import facts
from tile_opt.kernel.view import Stage
from tile_opt.kernel.work import merged_use


def overlaps(stage: Stage, cells: Collection[str], steps: Collection[str]) -> Iterator[tuple[str, str]]:
    """(cells, steps): of which all that the stage merges is the same for one cell and one step more or less, and has no end."""
    merged = merged_use(stage)
    if merged is None or facts(stage.body).indexes or any(u.extent for u in stage.uses):
        return
    moved = names_in(merged.forms)
    ended = names_in(stage.constraints)
    read = [f for u in stage.uses if u is not merged for f in u.forms]
    for cell in (n for n in cells if n in moved and n not in ended):
        for step in (n for n in steps if n not in moved | ended):
            if any(f.coefficient(cell) for f in read) and all(f.coefficient(cell) == f.coefficient(step) for f in read):
                yield cell, step


def fewest(cells: int, steps: int) -> tuple[float, int]:
    """Operations for each cell of windows of so many steps, and how many neighbouring cells share: a power of two."""
    found, block = [(float(steps), 1)], 2
    while cells % block == 0 and block <= steps:
        found.append(((steps + block * (block.bit_length() - 1) + 1) / block, block))
        block *= 2
    return min(found)


def left(stage: Stage, inner: Mapping[str, int]) -> float:
    """Share of the operations that are left of straight-line code over `inner`."""
    share, taken = 1.0, set[str]()
    for cell, step in overlaps(stage, inner, inner):
        if not taken & {cell, step}:
            taken |= {cell, step}
            share *= fewest(inner[cell], inner[step])[0] / inner[step]
    return share
