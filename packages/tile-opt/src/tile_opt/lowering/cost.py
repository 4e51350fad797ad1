"""What one launch of a kernel costs: arithmetic operations and compulsory traffic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from tile_ir.stripe import nodes as stripe

from tile_opt.lowering.allocate import extent
from tile_opt.lowering.kernel import Slot, Source

FREE = frozenset({"ident", "cast", "cond"})
"""Operations that move or convert a value and are not counted as arithmetic."""


def flops(kernel: stripe.Block) -> int:
    """Operations and merges times the points of their index boxes (constraints are not subtracted)."""
    total = 0
    stack: list[tuple[stripe.Block, int]] = [(kernel, 1)]
    while stack:
        block, outer = stack.pop()
        points = outer * prod(i.range for i in block.indexes if i.value is None)
        merging = {r.into for r in block.refs if r.agg is not None and r.agg is not stripe.Aggregation.ASSIGN}
        for statement in block.body:
            match statement:
                case stripe.Block():
                    stack.append((statement, points))
                case stripe.Op(name=name) if name not in FREE:
                    total += points
                case stripe.Store(dst=dst) if dst in merging:
                    total += points
                case stripe.Reduce():
                    total += points
                case _:
                    pass
    return total


def traffic(kernel: stripe.Block, slots: Sequence[Slot], sources: Mapping[str, Source], used: Sequence[int]) -> int:
    """Bytes of the buffers touched, each once; at most what the kernel's own views of it span."""
    spans: dict[int, int] = {}
    for ref in kernel.refs:
        if ref.source:
            number = sources[ref.source].slot
            whole = extent(slots[number].type)
            seen = _span(ref, kernel)
            spans[number] = min(whole, max(seen, spans.get(number, 0)))
    return sum(spans.get(n, 0) * slots[n].type.dtype.bytes for n in used if n >= 0)


def _span(ref: stripe.Refinement, kernel: stripe.Block) -> int:
    """Elements that the views of all iterations cover at most."""
    points = 1
    names = {n for form in ref.access for n in form.names}
    for index in kernel.indexes:
        if index.name in names:
            points *= index.range
    return points * prod(ref.type.sizes)
