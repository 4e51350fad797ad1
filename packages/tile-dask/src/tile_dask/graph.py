"""The tasks of a partition as a dask graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dask._task_spec import DataNode, Task, TaskRef
from dask.highlevelgraph import MaterializedLayer
from tile_ir.dtype import DType
from tile_ir.program.nodes import Program

from tile_dask.boxes import Piece, Read, Slices
from tile_dask.kernels import Code, Device, Kernel
from tile_dask.partitions import Box, Grid, Partition
from tile_dask.partitions.chunks import Place
from tile_dask.partitions.merges import FAN
from tile_dask.partitions.partition import combining
from tile_dask.partitions.stages import Stage
from tile_dask.partitions.tasks import Task as Work
from tile_dask.work import compute, edge, result

Key = Any
THIN = 1 << 18
"""Bytes that an edge must save, against the whole chunk, to be a task of its own."""
CARRIED = 1 << 20
"""Bytes of kernels that tasks of a graph carry themselves."""


class _Layout(NamedTuple):
    """How a box lies in the chunks it meets."""

    read: Read
    sources: tuple[tuple[Place, Slices | None], ...]
    """Chunks, counted from the first one; with the part of it where an edge is enough."""


class Results(MaterializedLayer):
    """The chunks of a result, as NumPy arrays; those of the layer `kept` are the same wherever they were made."""

    def __init__(self, mapping: Mapping[Key, Any], kept: str | None) -> None:
        super().__init__(mapping)  # pyright: ignore[reportUnknownMemberType]
        self.kept = kept


class Graph:
    """Collects the tasks, a layer for each array; `names` are the keys' names of the arrays that are there already."""

    def __init__(self, partition: Partition, names: Mapping[str, str], label: str, token: str, device: Device) -> None:
        self._partition, self._device = partition, device
        self._label, self._token = label, token
        made = [*(s.name for s in partition.stages), *partition.stacks]
        self.results = {array: f"{label}-{array}-{token}" for _, array in partition.outputs if array in made}
        """The names of the dask arrays that come of it."""
        kept = {
            name: f"{label}-{name}-kept-{token}" if name in self.results else f"{label}-{name}-{token}" for name in made
        }
        self.names = {**names, **kept}
        """The names of the arrays that tasks read."""
        self.layers: dict[str, dict[Key, Any]] = {}
        """Tasks by key, by layer: those of an array are in the layer of its name."""
        self.needs: dict[str, set[str]] = {}
        """The layers that a layer's tasks need."""
        self._kernels: list[Kernel] = []
        self._carried = CARRIED
        """Bytes of kernels that further tasks may carry."""
        self._numbers: dict[int, int] = {}
        """The number of a kernel, by the identity of its program, which the partition and `_combining` keep."""
        self._layouts: dict[object, _Layout] = {}
        self._beside: dict[Key, list[Key]] = {}
        """By edge: the chunks of the same array that lie in the boxes which it is for."""
        self._combining: dict[object, Program] = {}
        self._kernel_layer = f"{label}-kernels-{token}"
        self._layer(self._kernel_layer)[self._kernel_layer] = DataNode(self._kernel_layer, self._kernels)
        for stage in partition.stages:
            self._stage(stage)
        for array, name in self.results.items():
            self._result(array, name)

    def _layer(self, name: str, *needs: str) -> dict[Key, Any]:
        self.needs.setdefault(name, set()).update(needs)
        return self.layers.setdefault(name, {})

    def _stage(self, stage: Stage) -> None:
        name = self.names[stage.name]
        tasks = self._layer(name, self._kernel_layer)
        waiting: list[TaskRef] = []
        for task in self._partition.tasks(stage):
            key = (f"{name}-partial", *task.place, *task.split) if stage.merge else (name, *task.place)
            tasks[key] = self._task(stage, task, key)
            if stage.merge:
                waiting.append(TaskRef(key))
                if len(waiting) == stage.splits.chunks:
                    self._combine(stage, task, waiting)
                    waiting = []

    def _result(self, array: str, name: str) -> None:
        """The chunks of a result: tasks that wait for what is on a device; dask makes one of each and what it waits for."""
        chunks = self._layer(name)
        for place in self._partition.grids[array].places():
            home, chunk = self._partition.home(array, place)
            self.needs[name].add(self.names[home])
            chunks[(name, *place)] = Task((name, *place), result, TaskRef((self.names[home], *chunk)))

    @property
    def materialized(self) -> dict[str, MaterializedLayer]:
        """The layers, as dask wants them."""
        kept = {name: None if a in self._partition.stacks else self.names[a] for a, name in self.results.items()}
        return {
            name: Results(tasks, kept[name]) if name in kept else MaterializedLayer(tasks)
            for name, tasks in self.layers.items()
        }

    def _task(self, stage: Stage, task: Work, key: Key) -> Task:
        program = self._partition.kernel(stage, task)
        given: list[TaskRef] = []
        layers = self.needs[self.names[stage.name]]
        reads = tuple([self._read(stage.reads[n], box, given, layers) for n, box in task.needs.reads])
        number = self._kernel(program, stage.name)
        return Task(key, compute, *self._chosen(number), task.place, reads, task.needs.numbers, *given)

    def _chosen(self, number: int) -> tuple[Any, int]:
        """Kernels as a task is given them, and which one of them it runs.

        All kernels are one piece of data, which each worker gets once. One for each kernel would be many tasks without inputs, which
        dask holds back behind the chunks of the arrays: tasks would wait for their kernels until all chunks are there. The first
        tasks carry theirs: they need not wait until the scheduler has had a worker make that piece of data, and the others get it.
        """
        kernel = self._kernels[number]
        if kernel.packed > self._carried:
            return TaskRef(self._kernel_layer), number
        self._carried -= kernel.packed
        return (kernel,), 0

    def _kernel(self, program: Program, of: str) -> int:
        """The number of a kernel."""
        if id(program) not in self._numbers:
            self._numbers[id(program)] = len(self._kernels)
            self._kernels.append(Kernel(Code.of(program), f"{self._label}, {of}", self._device))
        return self._numbers[id(program)]

    # --- what a task reads ---------------------------------------------------------------------------

    def _read(self, array: str, box: Box, given: list[TaskRef], layers: set[str]) -> Read:
        """What a task is told about a box; the chunks and edges that hold it are added to `given`, theirs to `layers`."""
        layout, first = self._layout(array, box)
        chunks: list[Key] = []
        edges: list[Key] = []
        for step, edge_part in layout.sources:
            home, place = self._partition.home(array, tuple([a + b for a, b in zip(first, step, strict=True)]))
            name = self.names[home]
            key = (name, *place) if edge_part is None else self._edge(name, place, edge_part)
            (chunks if edge_part is None else edges).append(key)
            given.append(TaskRef(key))
            layers.add(name if edge_part is None else _edges(name))
        for key in edges:
            self._beside[key] += chunks
        return layout.read

    def _layout(self, array: str, box: Box) -> tuple[_Layout, Place]:
        """How a box lies in the chunks it meets, and the first of these; boxes that lie alike share it."""
        grid = self._partition.grids[array]
        met = grid.meeting(box)
        first = tuple([run.start for run in met])
        starts = tuple([ends[n] for ends, n in zip(grid.ends, first, strict=True)])
        sizes = tuple([sizes[run.start : run.stop] for sizes, run in zip(grid.sizes, met, strict=True)])
        here = box.relative(starts)
        key = (array, here, sizes)
        if key not in self._layouts:
            self._layouts[key] = _laid_out(here, Grid(sizes), self._partition.types[array].dtype)
        return self._layouts[key], first

    def _edge(self, name: str, place: Place, part: Slices) -> Key:
        layer = _edges(name)
        key = (layer, *place, *[end for s in part for end in (s.start, s.stop)])
        tasks = self.layers.get(layer)
        if tasks is None:
            tasks = self._layer(layer, name)
        if key not in tasks:
            beside = self._beside[key] = []
            tasks[key] = Task(key, edge, TaskRef((name, *place)), part, beside)
        return key

    # --- partial results -----------------------------------------------------------------------------

    def _combine(self, stage: Stage, task: Work, partial: list[TaskRef]) -> None:
        """A tree over the partial results of one chunk, always of the same form: the same bits in every run."""
        level, shape = 0, task.shape
        while len(partial) > 1 or not level:
            groups = [partial[n : n + FAN] for n in range(0, len(partial), FAN)]
            last = len(groups) == 1
            partial = [self._combined(stage, task, (level, n), shape, g, last) for n, g in enumerate(groups)]
            level += 1

    def _combined(
        self, stage: Stage, task: Work, node: Place, shape: Sequence[int], group: list[TaskRef], last: bool
    ) -> TaskRef:
        name = self.names[stage.name]
        key = (name, *task.place) if last else (f"{name}-combined", *task.place, *node)
        kernel = self._kernel(self._combiner(stage, len(group), tuple(shape), last), stage.name)
        read = Read(tuple(shape), stage.acc.numpy, (Piece(_all(shape), None),))
        self.layers[name][key] = Task(key, compute, *self._chosen(kernel), task.place, (read,) * len(group), (), *group)
        return TaskRef(key)

    def _combiner(self, stage: Stage, count: int, shape: tuple[int, ...], last: bool) -> Program:
        key = (stage.name, count, shape, last)
        if key not in self._combining:
            self._combining[key] = combining(stage, count, shape, last=last)
        return self._combining[key]


def _edges(name: str) -> str:
    """The layer of an array's edges."""
    return f"{name}-edge"


def _laid_out(box: Box, chunks: Grid, dtype: DType) -> _Layout:
    pieces: list[Piece] = []
    sources: list[tuple[Place, Slices | None]] = []
    for place, part in chunks.parts(box):
        chunk = chunks.box(place)
        inside = None if part == chunk else _slices(part.relative(chunk.low))
        thin = 2 * part.size < chunk.size and (chunk.size - part.size) * dtype.bytes >= THIN
        sources.append((place, inside if thin else None))
        pieces.append(Piece(_slices(part.relative(box.low)), None if thin else inside))
    return _Layout(Read(box.shape, dtype.numpy, tuple(pieces)), tuple(sources))


def _slices(box: Box) -> Slices:
    return tuple([slice(a, b) for a, b in zip(box.low, box.high, strict=True)])


def _all(shape: Sequence[int]) -> Slices:
    return tuple(slice(0, n) for n in shape)
