"""Plans for processors with vector registers and caches, best first."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from tile_ir.target import Target

from tile_opt.kernel.view import KernelView
from tile_opt.plan.plan import Plan
from tile_opt.plan.space.cpu import operands as cpu_operands
from tile_opt.plan.space.cpu.across import copied_plan
from tile_opt.plan.space.cpu.apart import apart_plan
from tile_opt.plan.space.cpu.facts import Facts
from tile_opt.plan.space.cpu.interleaved import interleaved_plan
from tile_opt.plan.space.cpu.short_rows import short_rows_plan
from tile_opt.plan.space.cpu.slabs import slab_plan
from tile_opt.plan.space.cpu.streams import row_plan, stream_plan, walking_plan
from tile_opt.plan.space.cpu.tile_plans import tile_plan
from tile_opt.plan.space.cpu.tiles import different, tiles

FEW = 4
"""Register tiles worth a closer look, or tiles and vectors along the output together."""


def plans(view: KernelView, target: Target, group_ops: int = 1 << 16) -> Iterator[Plan]:
    """The plans of a kernel; `group_ops` is the least work of a group, in scalar operations and accesses."""
    yield from (plan for _, plan in ranked(view, target, group_ops))


def ranked(view: KernelView, target: Target, group_ops: int) -> Iterator[tuple[float, Plan]]:
    """The plans, each with how many times as long as the first tile it takes; inf where that is not known."""
    facts = Facts(view, target, group_ops)
    tiled = facts.heavy or cpu_operands.lies_scattered(facts)
    stream = stream_plan(facts)
    if facts.lanes > 1 and tiled and facts.merged is not None and facts.main.loops:
        found = tiles(facts)
        slabs = slab_plan(facts, found) if facts.heavy else None
        if slabs is not None:
            yield inf, slabs
        for tile in different(found, FEW if stream is None else FEW - 1):
            walking = walking_plan(facts, tile.vector) if tile.vector in facts.shared and not tile.packed else None
            yield inf if walking or slabs else tile.cycles / found[0].cycles, walking or tile_plan(facts, tile)
    short = short_rows_plan(facts) if not facts.heavy else None
    if short is not None:
        yield inf, short
    apart = apart_plan(facts) if not facts.heavy else None
    if apart is not None:
        yield inf, apart
    interleaved = interleaved_plan(facts)
    if interleaved is not None:
        yield inf, interleaved
    copied = copied_plan(facts, stream) if stream is not None else None
    if copied is not None:
        yield inf, copied
    if stream is not None:
        yield inf, stream
    yield inf, row_plan(facts)
