"""Which share of a contraction's steps its groups go through, where constraints over several loops leave steps out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product

from tile_ir.stripe.affine import Affine

from tile_opt.kernel.instructions import Match

TRIED = 8
"""Tiles along a loop that are asked, at most."""


def left(match: Match, ranges: Mapping[str, int], sizes: Mapping[str, int], idle: float) -> float:
    """Share of the time in which groups would go through all steps; `sizes` are those of tiles and of steps.

    Where cores have many groups, that of all steps; the longest group alone counts where there are no more groups than
    cores, of which there are so many for each group.
    """
    if not match.cuts:
        return 1.0
    depth = dict(match.loops)["k"]
    names = sorted({n for c in match.cuts for n in c.names} - {depth})
    *groups, steps = (_starts(ranges[n], sizes.get(n, 1)) for n in (*names, depth))
    found = (dict(zip(names, group, strict=True)) for group in product(*groups))
    shares = [_share(match.cuts, group, (depth, steps), sizes) for group in found]
    mean = sum(shares) / len(shares)
    return mean + (max(shares) - mean) * min(1.0, idle)


def _share(
    cuts: Sequence[Affine], group: Mapping[str, int], depth: tuple[str, Sequence[int]], sizes: Mapping[str, int]
) -> float:
    """Of the steps of a group that begins there."""
    loop, steps = depth
    return sum(_counts(cuts, {**group, loop: step}, sizes) for step in steps) / len(steps)


def _counts(cuts: Iterable[Affine], first: Mapping[str, int], sizes: Mapping[str, int]) -> bool:
    """Every constraint holds somewhere in a step."""
    spans = {n: (at, at + sizes.get(n, 1) - 1) for n, at in first.items()}
    return all(c.bounds(spans)[1] >= 0 for c in cuts)


def _starts(extent: int, size: int) -> list[int]:
    """First iterations of some tiles, evenly apart."""
    count = -(-extent // size)
    tried = min(count, TRIED)
    return [size * (n * (count - 1) // max(1, tried - 1)) for n in range(tried)]
