"""What one launch of a kernel costs: arithmetic operations and compulsory traffic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from tile_ir.stripe import nodes as stripe
from tile_ir.stripe.affine import names_in

from tile_opt.lowering.kernel import Slot, Source
from tile_opt.lowering.points import OUTSIDE, Nest

FREE = frozenset({"ident", "cast", "cond"})
"""Operations that move or convert a value and are not counted as arithmetic."""


def flops(kernel: stripe.Block) -> int:
    """Operations and merges times the iterations that run them (see `points` for where that is a bound)."""
    total = 0
    stack: list[tuple[stripe.Block, Nest]] = [(kernel, OUTSIDE)]
    while stack:
        block, outside = stack.pop()
        nest = outside.inside(block)
        stack += [(s, nest) for s in block.body if isinstance(s, stripe.Block)]
        each = counted(block)
        if each:
            total += each * nest.points()
    return total


def counted(block: stripe.Block) -> int:
    """Operations and merges among the block's own statements."""
    merging = {r.into for r in block.refs if r.agg is not None and r.agg is not stripe.Aggregation.ASSIGN}
    count = 0
    for statement in block.body:
        match statement:
            case stripe.Op(name=name):
                count += name not in FREE
            case stripe.Store(dst=dst):
                count += dst in merging
            case stripe.Reduce():
                count += 1
            case _:
                pass
    return count


def traffic(kernel: stripe.Block, slots: Sequence[Slot], sources: Mapping[str, Source], used: Sequence[int]) -> int:
    """Bytes of the buffers touched, each once; at most what the kernel's own views of it span."""
    spans: dict[int, int] = {}
    for ref in kernel.refs:
        if ref.source:
            number = sources[ref.source].slot
            whole = slots[number].type.extent
            seen = _span(ref, kernel)
            spans[number] = min(whole, max(seen, spans.get(number, 0)))
    return sum(spans.get(n, 0) * slots[n].type.dtype.bytes for n in used if n >= 0)


def _span(ref: stripe.Refinement, kernel: stripe.Block) -> int:
    """Elements that the views of all iterations cover at most."""
    points = 1
    names = names_in(ref.access)
    for index in kernel.indexes:
        if index.name in names:
            points *= index.range
    return points * prod(ref.type.sizes)
