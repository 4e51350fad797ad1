"""The stages of a partition, and the tasks that each consists of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from tile_ir.contents import Contents
from tile_ir.program.nodes import Program, TensorType
from tile_opt.regions.region import Walks

from tile_dask.partitions.chunks import Grid, Place, stacked
from tile_dask.partitions.stages import Stage
from tile_dask.partitions.sweep import Found, Sweep


class Task(NamedTuple):
    """One call of a kernel: a chunk of an array, or a partial result of it."""

    place: Place
    """The chunk that it computes."""
    split: Place
    """Which chunk of the reduced indexes; empty where there are none."""
    needs: Found
    """The boxes that it reads, and the numbers that it is given."""
    shape: tuple[int, ...]
    """Of what it computes."""


@dataclass(frozen=True)
class Tasks:
    """Arrays, and the stages of tasks that make them from each other.

    `stages` are in an order in which each reads inputs, constants and earlier stages only.
    """

    program: Program
    """What is computed, loops written out."""
    inputs: Mapping[str, Grid]
    constants: Mapping[str, tuple[TensorType, Contents]]
    """Arrays that are known, by name."""
    stages: tuple[Stage, ...]
    outputs: tuple[tuple[str, str], ...]
    """(public name, array): the array of a stage, an input, a constant, or a stack."""
    stacks: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Arrays whose rows along the first axis are arrays of stages, each with a first axis of one cell."""
    _programs: dict[tuple[Sweep, int], Program] = field(
        default_factory=dict[tuple[Sweep, int], Program], repr=False, compare=False
    )
    _alike: dict[Program, Program] = field(default_factory=dict[Program, Program], repr=False, compare=False)
    _sweeps: dict[tuple[Walks, Grid], Sweep] = field(
        default_factory=dict[tuple[Walks, Grid], Sweep], repr=False, compare=False
    )

    def grid(self, array: str) -> Grid:
        """How an array is cut."""
        return self.grids[array]

    @cached_property
    def grids(self) -> dict[str, Grid]:
        known = {name: Grid.single(type.shape) for name, (type, _) in self.constants.items()}
        found = {**self.inputs, **known, **{s.name: s.grid for s in self.stages}}
        return found | {name: stacked(found[rows[0]], len(rows)) for name, rows in self.stacks.items()}

    def home(self, array: str, place: Place) -> tuple[str, Place]:
        """The array, and the chunk of it, that a chunk is made as: another where the array is a stack."""
        if array not in self.stacks:
            return array, place
        return self.stacks[array][place[0]], (0, *place[1:])

    @cached_property
    def types(self) -> dict[str, TensorType]:
        """Of all arrays."""
        known = {p.name: p.type for p in self.program.inputs} | {n: type for n, (type, _) in self.constants.items()}
        return known | {s.name: s.type for s in self.stages}

    def tasks(self, stage: Stage) -> Iterator[Task]:
        """The tasks of a stage, in row-major order of chunks; partial results of one chunk follow each other."""
        found = self._sweep(stage).all()
        splits = list(stage.splits.places())
        for place in stage.grid.places():
            shape = tuple([sizes[n] for sizes, n in zip(stage.grid.sizes, place, strict=True)])
            for split in splits:
                yield Task(place, split, found[(*split, *place)], shape)

    def kernel(self, stage: Stage, task: Task) -> Program:
        """The program that a task runs: the same object for all tasks of one form, those of other rounds too."""
        key = (self._sweep(stage), task.needs.form)
        if key not in self._programs:
            region = self._sweep(stage).forms[task.needs.form]
            program = stage.walker.program(region, TensorType(stage.task_type, task.shape))
            self._programs[key] = self._alike.setdefault(program, program)
        return self._programs[key]

    def _sweep(self, stage: Stage) -> Sweep:
        key = (stage.walker, stage.tasks)
        if key not in self._sweeps:
            self._sweeps[key] = Sweep(*key)
        return self._sweeps[key]
