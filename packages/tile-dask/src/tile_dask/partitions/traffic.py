"""Bytes that a partition moves between workers, beside the fewest that its tasks could do with: a model, no network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from math import prod

from tile_opt.regions.boxes import Box

from tile_dask.partitions.chunks import Grid, Place
from tile_dask.partitions.stages import Stage
from tile_dask.partitions.tasks import Task, Tasks

Worker = int
Placing = Callable[[Grid, Place], Worker]


@dataclass(frozen=True, slots=True)
class Traffic:
    """What crosses from worker to worker."""

    workers: int
    tasks: int
    moved: int
    """Bytes: each piece of a chunk goes once to each worker that needs it."""
    least: int
    """Bytes of the distinct cells that workers need and do not have."""
    seconds: float
    """Of the slowest worker's transfers at the given bandwidth."""
    held: int
    """Bytes of the worker that holds most: its chunks of all arrays, were none let go, and what its largest task reads and writes."""

    @property
    def ratio(self) -> float:
        """Moved over least; 1.0 where nothing must be moved."""
        return self.moved / self.least if self.least else 1.0


def traffic(partition: Tasks, workers: int, bandwidth: float = 1e9) -> Traffic:
    """Every chunk on one of `workers` workers, neighbours together; `bandwidth` in bytes a second, into each worker."""
    placed = _blocks(workers)
    types = partition.types
    into, held, largest = ([0] * workers for _ in range(3))
    least = tasks = 0
    for array, grid in partition.inputs.items():
        for place in grid.places():
            held[placed(grid, place)] += grid.box(place).size * types[array].dtype.bytes
    for stage in partition.stages:
        fetched: dict[tuple[Worker, str, Place], set[Box]] = {}
        for task in partition.tasks(stage):
            tasks += 1
            worker = placed(stage.grid, task.place)
            made = prod(task.shape) * stage.task_type.bytes
            held[worker] += made
            largest[worker] = max(largest[worker], made + _read(partition, stage, task))
            for number, box in task.needs.reads:
                array = stage.reads[number]
                for place, part in partition.grid(array).parts(box):
                    home, chunk = partition.home(array, place)
                    if placed(partition.grid(home), chunk) != worker:
                        fetched.setdefault((worker, array, place), set()).add(part)
        for (worker, array, _), parts in fetched.items():
            size = types[array].dtype.bytes
            into[worker] += size * sum(p.size for p in _apart(parts))
            least += size * _distinct(parts)
    most = max(map(sum, zip(held, largest, strict=True)))
    return Traffic(workers, tasks, sum(into), least, max(into) / bandwidth, most)


def _read(partition: Tasks, stage: Stage, task: Task) -> int:
    """Bytes that a task reads."""
    return sum(box.size * partition.types[stage.reads[n]].dtype.bytes for n, box in task.needs.reads)


def _apart(parts: set[Box]) -> list[Box]:
    """Pieces as they are sent: one inside another goes with it."""
    return [p for p in parts if not any(p != q and p.within(q) for q in parts)]


def _distinct(parts: set[Box]) -> int:
    """Cells in the union of boxes."""
    boxes = _apart(parts)
    axes = range(len(boxes[0].low))
    lines = [sorted({e for b in boxes for e in (b.low[k], b.high[k])}) for k in axes]
    total = 0
    for cell in Grid(tuple(tuple(b - a for a, b in pairwise(e)) for e in lines)).places():
        low = tuple(lines[k][n] for k, n in enumerate(cell))
        if any(all(b.low[k] <= low[k] < b.high[k] for k in axes) for b in boxes):
            total += prod(lines[k][n + 1] - lines[k][n] for k, n in enumerate(cell))
    return total


def _blocks(workers: int) -> Placing:
    """Blocks of neighbouring chunks, as near to cubes as the number of workers allows."""

    def placed(grid: Grid, place: Place) -> Worker:
        along = _spread(workers, grid.counts)
        worker = 0
        for p, count, parts in zip(place, grid.counts, along, strict=True):
            worker = worker * parts + p * parts // count
        return worker

    return placed


@cache
def _spread(workers: int, counts: tuple[int, ...]) -> tuple[int, ...]:
    """Workers along each axis: the product is at most `workers`, each at most the chunks there are."""
    along = [1] * len(counts)
    for prime in _primes(workers):
        free = [k for k, n in enumerate(counts) if along[k] * prime <= n]
        if free:
            axis = max(free, key=lambda k: (counts[k] / along[k], -k))
            along[axis] *= prime
    return tuple(along)


def _primes(number: int) -> list[int]:
    found: list[int] = []
    factor = 2
    while number > 1:
        while number % factor == 0:
            found.append(factor)
            number //= factor
        factor += 1
    return sorted(found, reverse=True)
