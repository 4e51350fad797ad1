"""Where temporaries live: byte offsets in one arena, shared by buffers that are never live at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tile_opt.blocks.buffers import first_fit

ALIGN = 64


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A temporary's size and the first and last step that touch it."""

    bytes: int
    first: int
    last: int

    def meets(self, other: Lifetime) -> bool:
        return self.first <= other.last and other.first <= self.last


def place(lifetimes: Sequence[Lifetime]) -> tuple[tuple[int, ...], int]:
    """An offset for each temporary and the arena's size; the largest are placed first, each as low as it fits."""
    offsets = [0] * len(lifetimes)
    placed: list[int] = []
    size = 0
    for number in sorted(range(len(lifetimes)), key=lambda n: (-lifetimes[n].bytes, n)):
        life = lifetimes[number]
        busy = [(offsets[n], offsets[n] + lifetimes[n].bytes) for n in placed if lifetimes[n].meets(life)]
        at = offsets[number] = first_fit(life.bytes, busy, ALIGN)
        placed.append(number)
        size = max(size, at + life.bytes)
    return tuple(offsets), size


@dataclass(frozen=True, slots=True)
class Touch:
    """The buffers that a step reads and writes."""

    reads: frozenset[int]
    writes: frozenset[int]


def dependencies(steps: Sequence[Touch], overlaps: Sequence[frozenset[int]]) -> list[tuple[int, ...]]:
    """Earlier steps that each step must wait for, without those that others imply.

    `overlaps[b]` are the buffers that share bytes with buffer b, itself included.
    """
    writer: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    ancestors: list[int] = []
    result: list[tuple[int, ...]] = []
    for number, step in enumerate(steps):
        wanted: set[int] = {writer[o] for b in step.reads for o in overlaps[b] if o in writer}
        for buffer in step.writes:
            for other in overlaps[buffer]:
                wanted.update(readers.get(other, ()))
                if other in writer:
                    wanted.add(writer[other])
        kept, reach = _reduced(wanted, ancestors)
        ancestors.append(reach)
        result.append(kept)
        for buffer in step.writes:
            writer[buffer] = number
            readers[buffer] = []
        for buffer in step.reads - step.writes:
            readers.setdefault(buffer, []).append(number)
    return result


def _reduced(wanted: set[int], ancestors: Sequence[int]) -> tuple[tuple[int, ...], int]:
    """`wanted` without steps that another wanted step already waits for; and all steps waited for, as bits."""
    kept: list[int] = []
    reach = 0
    for step in sorted(wanted, reverse=True):
        if not reach >> step & 1:
            kept.append(step)
            reach |= ancestors[step] | 1 << step
    return tuple(reversed(kept)), reach
