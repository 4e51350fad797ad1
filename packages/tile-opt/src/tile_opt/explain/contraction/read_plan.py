"""Read plans: which indexes of an input are loaded as one, and where they lie in shared memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tile_ir.frozen import frozen

from tile_opt.explain.contraction.flat import Access
from tile_opt.explain.text import grid


@frozen
class Group:
    """Indexes merged for loading: `range` positions `stride` apart in global, `local` apart in shared memory."""

    name: str
    range: int
    stride: int
    local: int = 0


@frozen
class ReadPlan:
    """How one input's tile is staged: its groups, elements in shared memory, and wide loads per tile."""

    access: Access
    groups: tuple[Group, ...]
    size: int
    loads: int
    scales: tuple[tuple[str, int], ...]
    """For each index of the access: its multiple of its group's stride (negative strides count down)."""

    @property
    def bytes(self) -> int:
        return self.size * self.access.bytes * self.access.vector

    def table(self) -> str:
        """Range, global and local stride per group, shortest range first."""
        rows = [["", "Range", "Global", "Local"]]
        for g in sorted(self.groups, key=lambda g: g.range):
            rows.append([g.name, str(g.range), str(g.stride), str(g.local)])
        return "\n".join(grid(rows))


def read_plan(access: Access, names: Sequence[str], tile: Sequence[int], mem_width: int) -> ReadPlan:
    """The plan for a tile; `mem_width` is the bytes of one useful memory transaction."""
    groups, scales = _merged(access, names, tile)
    laid_out, size = _layout(groups)
    wide = mem_width // (access.bytes * access.vector)
    total = 1
    for g in groups:
        total *= g.range
    best = max((min(wide, g.stride * g.range) // g.stride for g in groups), default=1)
    loads = total // max(best, 1) if groups else 1
    return ReadPlan(access, laid_out, size, loads, scales)


def _merged(
    access: Access, names: Sequence[str], tile: Sequence[int]
) -> tuple[list[Group], tuple[tuple[str, int], ...]]:
    """Indexes by rising stride; each joins the first group whose stride divides its own without a gap."""
    order = sorted((k for k, s in enumerate(access.strides) if s), key=lambda k: abs(access.strides[k]))
    groups: list[Group] = []
    scales: list[tuple[str, int]] = []
    for k in order:
        stride, extent = access.strides[k], tile[k]
        sign = 1 if stride > 0 else -1
        for n, g in enumerate(groups):
            quotient, rest = divmod(abs(stride), g.stride)
            if rest == 0 and g.range >= quotient:
                grown = replace(g, name=f"{g.name}_{names[k]}", range=g.range + quotient * (extent - 1))
                groups[n] = grown
                scales.append((names[k], quotient * sign))
                break
        else:
            groups.append(Group(names[k], extent, abs(stride)))
            scales.append((names[k], sign))
    return groups, tuple(scales)


def _layout(groups: list[Group]) -> tuple[tuple[Group, ...], int]:
    """Odd ranges first, then by falling range; sizes are padded to be odd, so that banks do not collide."""
    order = sorted(groups, key=lambda g: (g.range % 2 == 0, -g.range))
    size, padded = 1, False
    laid_out: list[Group] = []
    for g in order:
        laid_out.append(replace(g, local=size))
        size *= g.range
        if size % 2 == 0:
            size, padded = size + 1, True
    return tuple(laid_out), size - padded
