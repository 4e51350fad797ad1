"""A partition as a table: what each stage costs, from the chunk in the middle of it."""

from __future__ import annotations

from collections.abc import Mapping

from tile_opt.explain.data import ErrorReport
from tile_opt.explain.text import size
from tile_opt.regions.region import Region

from tile_dask.partitions.costs import beyond
from tile_dask.partitions.merges import Below
from tile_dask.partitions.stages import Stage
from tile_dask.partitions.tasks import Tasks
from tile_dask.partitions.traffic import traffic

HEADER = ("array", "type", "chunks", "splits", "tasks", "reads of a task", "moved", "again", "memory")
MEANING = """\
moved: cells that a task reads of chunks other than the one it reads most of; again: cells that several tasks of the stage compute;
memory: what a task reads and writes."""


def explained(partition: Tasks, workers: int | None = None) -> str:
    """The table, then what its columns mean, then what so many workers exchange."""
    rows = [HEADER, *(_row(partition, stage) for stage in partition.stages)]
    widths = [max(len(row[k]) for row in rows) for k in range(len(HEADER))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    merges = [f"{s.name}: {s.merge}" for s in partition.stages if isinstance(s.merge, Below)]
    return "\n".join([*lines, "", MEANING, *merges, *([_between(partition, workers)] if workers else [])])


def told(bounds: Mapping[str, ErrorReport]) -> str:
    """The bounds on rounding errors."""
    return "\n".join(["Rounding errors:", *(f"  {name}  {bound.text}" for name, bound in bounds.items())])


def _between(partition: Tasks, workers: int) -> str:
    found = traffic(partition, workers)
    return (
        f"{workers} workers: {found.tasks} tasks; {size(found.moved)} moved, {size(found.least)} at least;"
        f" at most {size(found.held)} on one, with all its chunks of every array and its largest task."
    )


def _row(partition: Tasks, stage: Stage) -> tuple[str, ...]:
    region = stage.walker.region(stage.middle)
    moved = memory = 0
    reads: list[str] = []
    for number, box in region.reads:
        array = stage.reads[number]
        each = partition.types[array].dtype.bytes
        moved += beyond(box, partition.grids[array].parts(box)) * each
        memory += box.size * each
        reads.append(f"{array}[{', '.join(map(str, box.shape))}]")
    memory += stage.grid.box(tuple(n // 2 for n in stage.grid.counts)).size * stage.task_type.bytes
    return (
        stage.name,
        str(stage.type),
        _counts(stage.grid.counts),
        _counts(stage.splits.counts) if stage.merge else "-",
        str(stage.tasks.chunks),
        " ".join(reads),
        size(moved),
        f"{_again(partition, stage, region):.0%}",
        size(memory),
    )


def _again(partition: Tasks, stage: Stage, region: Region) -> float:
    """Cells that the tasks of a stage compute more than once, for each cell of the values they compute."""
    tasks = stage.tasks.chunks
    types = partition.program.types()
    computed = {stage.values[n]: cells for n, cells in stage.walker.cells(region).items()}
    inner = [(cells * tasks, types[name].size) for name, cells in computed.items() if name != stage.name]
    return sum(max(0, cells - size) for cells, size in inner) / max(1, sum(size for _, size in inner))


def _counts(counts: tuple[int, ...]) -> str:
    return "x".join(map(str, counts)) or "1"
