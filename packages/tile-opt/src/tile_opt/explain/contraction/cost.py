"""The cost of a tile: ten counters and a score from a roofline, occupancy and thread use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from tile_ir.frozen import frozen
from tile_ir.powers import power_of_two
from tile_ir.target import HardwareSettings

from tile_opt.explain.contraction.flat import FlatKernel
from tile_opt.explain.contraction.read_plan import ReadPlan, read_plan


@frozen
class OutputPlan:
    """Threads along each output index (in plan order) and what a tile's outputs take."""

    order: tuple[int, ...]
    threads: tuple[int, ...]
    outputs: int
    """Wide stores per tile."""
    local_size: int
    """Accumulators of all threads together."""


@frozen
class TileCost:
    """Counters of one tile size and their verdict; names as the log prints them."""

    tile: tuple[int, ...]
    to: int
    wg: int
    il: int
    sm: int
    regs: int
    mr: int
    mw: int
    op: int
    rp: int
    tu: int
    flops_per_byte: float = 0.0
    occupancy: int = 0
    roof_ratio: float = 0.0
    occ_ratio: float = 0.0
    thread_ratio: float = 0.0
    score: float = -1.0
    verdict: str = ""
    """"over memory" or "over regs" when the tile does not fit."""

    def text(self) -> str:
        """The lines of the tile optimizer's log."""
        lines = [
            f"Computing cost for tile size: {list(self.tile)}",
            f"Compute score: to={self.to} wg={self.wg} il={self.il} sm={self.sm} or={self.regs} mr={self.mr} "
            f"mw={self.mw} op={self.op} rp={self.rp} tu={self.tu}",
        ]
        if self.verdict:
            return "\n".join([*lines, self.verdict])
        lines.append(f"flops_per_byte={self.flops_per_byte:g} occupancy={self.occupancy}")
        lines.append(
            f"roof_ratio={self.roof_ratio:g} occ_ratio={self.occ_ratio:g} "
            f"thread_ratio={self.thread_ratio:g} score={self.score:g}"
        )
        return "\n".join(lines)


def output_plan(flat: FlatKernel, tile: Sequence[int], settings: HardwareSettings) -> OutputPlan:
    """Distribute threads over the output indexes of a tile."""
    strides = flat.output.strides
    order = sorted(flat.output_indexes, key=lambda k: (abs(strides[k]), -k))
    wide = max(1, settings.mem_width // (flat.output.bytes * flat.output.vector))
    left = settings.threads
    threads = [1] * len(order)
    if order:
        threads[0] = power_of_two(min(wide, left, tile[order[0]]))
        left //= threads[0]
    while left > 1 and (best := _best_index(order, threads, tile, settings.threads)) is not None:
        threads[best] *= 2
        left //= 2
    outputs = prod(-(-tile[k] // wide) if strides[k] == 1 else tile[k] for k in order)
    local = settings.threads * prod(-(-tile[k] // t) for k, t in zip(order, threads, strict=True))
    return OutputPlan(tuple(order), tuple(threads), outputs, local)


def _best_index(order: Sequence[int], threads: Sequence[int], tile: Sequence[int], most: int) -> int | None:
    best: int | None = None
    best_nice, best_threads = False, most
    for n, k in enumerate(order):
        if threads[n] >= tile[k]:
            continue
        nice = tile[k] % (2 * threads[n]) == 0
        if (nice and not best_nice) or threads[n] < best_threads:
            best, best_nice, best_threads = n, nice, threads[n]
    return best


def read_plans(flat: FlatKernel, tile: Sequence[int], settings: HardwareSettings) -> tuple[ReadPlan, ...]:
    return tuple(read_plan(a, flat.names, tile, settings.mem_width) for a in flat.inputs)


def tile_cost(flat: FlatKernel, tile: Sequence[int], settings: HardwareSettings) -> TileCost:
    """The cost of one tile size."""
    out = output_plan(flat, tile, settings)
    reads = read_plans(flat, tile, settings)
    counts = [-(-r // t) for r, t in zip(flat.ranges, tile, strict=True)]
    groups = prod(counts[k] for k in flat.output_indexes)
    op = min(settings.threads, prod(tile))
    produced = prod(tile[k] for k in flat.output_indexes)
    element = flat.output.bytes * flat.output.vector
    shared = 0 if settings.use_global else sum(r.bytes for r in reads)
    cost = TileCost(
        tuple(tile),
        to=flat.points * (len(flat.post_ops) + (2 if flat.contraction else 0)) * flat.output.vector,
        wg=groups,
        il=prod(counts) // groups,
        sm=shared + (settings.threads * element if produced < op else 0),
        regs=out.local_size * element,
        mr=sum(r.loads for r in reads) * settings.mem_width + out.outputs * sum(flat.post_inputs),
        mw=out.outputs * settings.mem_width * flat.outputs,
        op=op,
        rp=_rollups(produced, op),
        tu=max(op, prod(out.threads)),
    )
    return _scored(cost, settings)


def _rollups(produced: int, op: int) -> int:
    steps = 0
    while produced < op:
        produced *= 2
        steps += 1
    return steps


def _scored(cost: TileCost, settings: HardwareSettings) -> TileCost:
    if cost.sm > settings.max_mem:
        return replace(cost, verdict="over memory")
    if cost.regs > settings.max_regs:
        return replace(cost, verdict="over regs")
    moved = cost.wg * (cost.il * cost.mr + cost.mw)
    intensity = cost.to / moved
    goal = settings.goal_flops_per_byte
    roof = min(intensity, goal) / goal
    occupancy = min(cost.wg, settings.goal_groups)
    occupied = occupancy / settings.goal_groups
    used = cost.tu / settings.threads
    return replace(
        cost,
        flops_per_byte=intensity,
        occupancy=occupancy,
        roof_ratio=roof,
        occ_ratio=occupied,
        thread_ratio=used,
        score=roof * occupied * used,
    )
