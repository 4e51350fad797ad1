"""Stores that pass the caches by: only where they fill whole lines. Lines that are written in parts are fetched ahead."""

from __future__ import annotations

from tile_ir.frozen import replace

from tile_opt.kernel.view import Stage, Use
from tile_opt.plan.tree import Around

LINE = 64
"""Bytes: a line that is written in parts, at different times, goes to memory once for each part."""
VECTOR = (LINE // 2, LINE)
"""Bytes of vectors of which one, or two, are written to a line."""
LONG = 16
"""Lines in sequence from which on the parts at both ends do not count."""


def lines_filled(stage: Stage, around: Around) -> Stage:
    """The stage without the hint to stream what it writes where lines stay half written."""
    uses = tuple(replace(u, hint=_hint(u, stage, around)) if u.hint and u.writes else u for u in stage.uses)
    return stage if uses == stage.uses else replace(stage, uses=uses)


def _hint(use: Use, stage: Stage, around: Around) -> str:
    """To stream what the innermost loops write in sequence: it is long, or is whole lines wherever the other loops are.

    Where they write a vector in each of many rows, and go on along the rows later, lines of these are fetched before.
    """
    ranges = {n: high + 1 for n, (_, high) in around.ranges.items()} | {i.name: i.range for i in stage.loops}
    strides = [(around.stride(use, n), count) for n, count in reversed(ranges.items()) if count > 1]
    run, width = 1, around.buffers[use.buffer].type.dtype.bytes
    while strides and strides[0][0] in (0, run):
        stride, count = strides.pop(0)
        run *= count if stride else 1
    rest = [stride for stride, _ in strides]
    if run * width >= LONG * LINE or all(stride * width % LINE == 0 for stride in (run, *rest)):
        return use.hint
    return "prefetch" if run * width in VECTOR and run in rest else ""
