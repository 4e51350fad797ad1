"""What becomes an array and what every task computes again, by bytes handed on and operations done twice."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tile_ir.program.nodes import Contraction, Gather
from tile_opt.regions.boxes import Box

from tile_dask.partitions.chunks import Place
from tile_dask.partitions.speeds import CHOICES, PROCESSOR
from tile_dask.partitions.stages import Stage, Stages

HANDED_ON = 0.5e9
"""Bytes a second from one task to another, on another machine at worst."""
TASK = 1e-3
"""Seconds that an engine spends on a task."""
HOP = 24e-3
"""Seconds from the end of a task, by way of the engine's scheduler, until a part of what it made is on another worker."""


def kept(stages: Stages, exchange: int | None) -> frozenset[str]:
    """The values that are arrays: outputs, constants, split reductions, rounds that are exchanged, and what is dear."""
    program = stages.program
    inputs = {p.name for p in program.inputs}
    arrays = {value for _, value in program.outputs} | set(stages.constants) | set(stages.splits) | inputs
    arrays.update(row for rows in stages.stacks.values() for row in rows)
    rounds = [values for loop in stages.loops for values in loop[1:]]
    if rounds:
        every = exchange or (1 if stages.stacks else _exchange(stages, rounds, frozenset(arrays)))
        arrays.update(name for n, values in enumerate(rounds, 1) if n % every == 0 for name in values)
    return _with_dear(stages, arrays)


def _with_dear(stages: Stages, arrays: set[str]) -> frozenset[str]:
    """Add values whose repeated computation costs more than handing them on, the first of them first."""
    candidates = {op.name: op for op in stages.program.ops if isinstance(op, Contraction | Gather)}
    waiting = [name for name in candidates if name not in arrays | stages.inner]
    while waiting:
        computed = _computed(stages, frozenset(arrays))
        dear = next((name for name in waiting if _dear(stages, name, computed.get(name, 0))), None)
        if dear is None:
            break
        arrays.add(dear)
        waiting = waiting[waiting.index(dear) + 1 :]
    return frozenset(arrays)


def _computed(stages: Stages, arrays: frozenset[str]) -> dict[str, int]:
    """Cells of each value that all tasks compute, from the chunk in the middle of each stage."""
    total: dict[str, int] = {}
    for name in stages.made(arrays):
        stage = stages.stage(name, arrays)
        for number, cells in stage.walker.cells(stage.walker.region(stage.middle)).items():
            value = stage.values[number]
            total[value] = total.get(value, 0) + cells * stage.tasks.chunks
    return total


def _dear(stages: Stages, name: str, cells: int) -> bool:
    """Computing `cells` cells instead of each once takes longer than an array of them."""
    type, grid = stages.types[name], stages.grids[name]
    again = (cells - type.size) * _work(stages, name) / PROCESSOR.computed
    return again > 2 * type.nbytes / HANDED_ON + grid.chunks * TASK


def _work(stages: Stages, name: str) -> float:
    """Scalar operations for a cell."""
    op = stages.makers[name]
    if not isinstance(op, Contraction):
        return 1.0
    points = prod(stages.domain(op).ranges)
    return max(1.0, points / max(1, op.type.size)) * max(1, len(op.body))


def _exchange(stages: Stages, rounds: Sequence[tuple[str, ...]], arrays: frozenset[str]) -> int:
    """Rounds between two exchanges for which one round costs least; about as many behind the last exchange as before it."""
    few = [_shared(len(rounds), exchanges) for exchanges in (1, 2, 3)]
    choices = [n for n in sorted({*CHOICES, *few}) if n <= min(len(rounds), stages.speed.most)]
    best = min(choices, key=lambda n: (_round_cost(stages, rounds, arrays, n), n))
    return _shared(len(rounds), _shared(len(rounds), best))


def _shared(rounds: int, by: int) -> int:
    """Rounds for each of so many, or how many have so many each: the last one has fewer."""
    return -(-rounds // by)


def _round_cost(stages: Stages, rounds: Sequence[tuple[str, ...]], arrays: frozenset[str], every: int) -> float:
    """Seconds of a round where so many are computed between exchanges, seen at a chunk in the middle."""
    last = rounds[every - 1]
    ends = arrays.union(last)
    return sum(_stage_cost(stages, stages.stage(name, ends)) for name in last if name in stages.makers) / every


def _stage_cost(stages: Stages, stage: Stage) -> float:
    region = stage.walker.region(stage.middle)
    operations = sum(cells * _work(stages, stage.values[n]) for n, cells in stage.walker.cells(region).items())
    moved = pieces = 0
    for number, read in region.reads:
        name = stage.reads[number]
        parts = stages.grids[name].parts(read)
        pieces += len(parts)
        moved += beyond(read, parts) * stages.types[name].dtype.bytes
    return operations / stages.speed.computed + moved / HANDED_ON + pieces * TASK + (HOP if moved else 0)


def beyond(read: Box, parts: Sequence[tuple[Place, Box]]) -> int:
    """Cells of a box that a task reads of chunks other than the one it reads most of."""
    return read.size - max((part.size for _, part in parts), default=0)
