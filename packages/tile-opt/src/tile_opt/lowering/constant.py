"""Steps that depend on constants and bound inputs alone, such as the packing of a layer's weights: they are run once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence, Set

from tile_ir.kernels import BufferKind

from tile_opt.lowering.arena import Touch

SPACE = 8
"""Times as many bytes as it reads that a step may leave in memory for good."""
SMALL = 1 << 20
"""Bytes that any step may leave."""


def fixed_steps(
    steps: Sequence[Touch], given: Set[int], kinds: Mapping[int, BufferKind], sizes: Mapping[int, int]
) -> frozenset[int]:
    """Numbers of the steps whose operands, and theirs, are among the buffers `given`.

    What they write are temporaries that no other step writes, of which `kinds` knows.
    """
    writers: defaultdict[int, set[int]] = defaultdict(set)
    for number, step in enumerate(steps):
        for buffer in step.writes:
            writers[buffer].add(number)
    found = {n for n, step in enumerate(steps) if step.reads and _is_worth(step, sizes)}

    def fixed(buffer: int) -> bool:
        return kinds.get(buffer) is BufferKind.TEMP and writers[buffer] <= found

    while True:
        kept = {
            n
            for n in found
            if all(fixed(b) for b in steps[n].writes) and all(b in given or fixed(b) for b in steps[n].reads)
        }
        if kept == found:
            return frozenset(kept)
        found = kept


def _is_worth(step: Touch, sizes: Mapping[int, int]) -> bool:
    return sum(sizes[b] for b in step.writes) <= max(SMALL, SPACE * sum(sizes[b] for b in step.reads))
