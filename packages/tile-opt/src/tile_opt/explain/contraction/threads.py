"""Thread plans and grid packing."""

from __future__ import annotations

from math import prod

from tile_ir.frozen import frozen
from tile_ir.powers import power_of_two
from tile_ir.target import HardwareSettings

from tile_opt.explain.contraction.cost import output_plan
from tile_opt.explain.contraction.flat import FlatKernel
from tile_opt.explain.contraction.read_plan import Group, ReadPlan


@frozen
class Split:
    """An index (or load group) divided into `threads` that step together and `loops` in each thread."""

    name: str
    range: int
    threads: int

    @property
    def loops(self) -> int:
        return -(-self.range // self.threads)

    def __str__(self) -> str:
        return f"{self.name}: {self.threads} threads x {self.loops}"


@frozen
class Grid:
    """Work groups per dimension and, per output index, how its group number is unpacked."""

    groups: tuple[int, int, int]
    bases: tuple[tuple[str, str], ...]


def load_plan(plan: ReadPlan, settings: HardwareSettings) -> tuple[Split, ...]:
    """Threads that load one input: contiguous groups first, then the widest share of a power of two."""
    wide = settings.mem_width // (plan.access.bytes * plan.access.vector)
    ordered = sorted(plan.groups, key=lambda g: _load_rank(g, wide))
    left = settings.threads
    splits: list[Split] = []
    for g in ordered:
        threads = min(left, power_of_two(g.range))
        left //= threads
        splits.append(Split(g.name, g.range, threads))
    return tuple(splits)


def _load_rank(group: Group, wide: int) -> tuple[int, float]:
    if group.stride < wide / 2:
        return (0, group.stride)
    return (1, -group.range / power_of_two(group.range))


def compute_plan(flat: FlatKernel, tile: tuple[int, ...], settings: HardwareSettings) -> tuple[Split, ...]:
    """Threads of the inner loops: the output plan's, then what is left over splits the reduction."""
    out = output_plan(flat, tile, settings)
    splits = [Split(flat.names[k], tile[k], t) for k, t in zip(out.order, out.threads, strict=True)]
    left = settings.threads // prod(out.threads)
    for k, name in enumerate(flat.names):
        if k in out.order:
            continue
        threads = min(left, power_of_two(tile[k]))
        left //= threads
        splits.append(Split(name, tile[k], threads))
    return tuple(splits)


def pack_grid(flat: FlatKernel, tile: tuple[int, ...]) -> Grid:
    """Output tiles over three grid dimensions: awkward counts first, each into the emptiest dimension."""
    counts = {k: -(-flat.ranges[k] // tile[k]) for k in flat.output_indexes}
    by_stride = sorted((k for k in counts if counts[k] > 1), key=lambda k: (abs(flat.output.strides[k]), -k))
    order = sorted(by_stride, key=lambda k: (counts[k] == power_of_two(counts[k]), counts[k]))
    groups = [1, 1, 1]
    members: list[list[int]] = [[], [], []]
    for k in order:
        d = groups.index(min(groups))
        members[d].append(k)
        groups[d] *= counts[k]
    bases = dict.fromkeys(counts, "0")
    for d, inside in enumerate(members):
        bases |= _unpacked(d, inside, counts, tile, groups[d])
    return Grid((groups[0], groups[1], groups[2]), tuple((flat.names[k], bases[k]) for k in counts))


def _unpacked(d: int, inside: list[int], counts: dict[int, int], tile: tuple[int, ...], whole: int) -> dict[int, str]:
    """Members of a dimension from the last placed (fastest) to the first."""
    bases: dict[int, str] = {}
    below = 1
    for k in reversed(inside):
        text = f"g{d}"
        if below * counts[k] != whole:
            text = f"{text} % {below * counts[k]}"
        if below > 1:
            text = f"{text} / {below}"
        if tile[k] > 1:
            text = f"({text}) * {tile[k]}" if " " in text else f"{text} * {tile[k]}"
        bases[k] = text
        below *= counts[k]
    return bases
