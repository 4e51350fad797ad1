"""A program and the grids of its inputs, cut into tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from tile_ir.contents import Contents
from tile_ir.diagnostics import Diagnostic, TileTypeError
from tile_ir.names import claim
from tile_ir.program.nodes import Elementwise, Param, Program, TensorType

from tile_opt.partition.boxes import Grid, Place, stacked
from tile_opt.partition.costs import kept
from tile_opt.partition.region import Walker
from tile_opt.partition.stages import Stage, Stages
from tile_opt.partition.sweep import Found, Sweep
from tile_opt.partition.unroll import Unrolled, repeated, unrolled


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
class Partition:
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
    _sweeps: dict[tuple[Walker, Grid], Sweep] = field(
        default_factory=dict[tuple[Walker, Grid], Sweep], repr=False, compare=False
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

    def explain(self, workers: int | None = None) -> str:
        """Tasks, bytes moved and computed again, and memory of a task, as a table.

        With `workers`, every task is placed on one of so many: the bytes that move between them, the fewest that could, and
        the most that one holds.
        """
        from tile_opt.partition.explain import explained

        return explained(self, workers)


def partition(
    program: Program,
    grids: Mapping[str, Grid],
    out: Mapping[str, Grid] | None = None,
    *,
    steps: int = 1,
    exchange: int | None = None,
) -> Partition:
    """Cut a program whose inputs are cut by `grids` (an input that is missing is one chunk).

    `out` says how outputs are cut, by their public names; the others follow what they are computed from. With `steps`
    the program is applied so many times, its outputs the first inputs of the next time; tasks compute `exchange` of
    these steps, or rounds of a loop, between two exchanges of cells (None: chosen by the bytes that it saves).
    TileTypeError for grids that do not fit, and for what cannot be computed chunk by chunk exactly.
    """
    given = _checked({p.name: p.type for p in program.inputs}, grids, "input")
    wanted = _checked(_outputs(program), out or {}, "output")
    inner = repeated(program, steps) if steps > 1 else unrolled(program)
    inner, chosen = _chosen(inner, wanted, out or {})
    stages = Stages(inner.program, given, chosen, inner.stacks)
    arrays = kept(stages, inner.rounds, exchange)
    return _assembled(inner, stages, given, arrays)


def _chosen(inner: Unrolled, wanted: Mapping[str, Grid], out: Mapping[str, Grid]) -> tuple[Unrolled, dict[str, Grid]]:
    """The grids that are asked for by value; a stack that is to be cut in a certain way is copied once more."""
    types = inner.program.types()
    ops, outputs, taken = list(inner.program.ops), dict(inner.program.outputs), set(types)
    for public, value in inner.program.outputs:
        if public in out and value in inner.stacks:
            outputs[public] = claim(f"{value}_cut", taken)
            ops.append(Elementwise(outputs[public], types[value], "ident", (value,)))
    program = replace(inner.program, ops=tuple(ops), outputs=tuple(outputs.items()))
    return replace(inner, program=program), {value: wanted[p] for p, value in outputs.items() if p in out}


def _assembled(inner: Unrolled, stages: Stages, given: Mapping[str, Grid], arrays: frozenset[str]) -> Partition:
    constants = {n: (op.type, op.contents) for n, op in stages.constants.items()}
    found = tuple(stages.stage(name, arrays) for name in stages.made(arrays))
    return Partition(stages.program, given, constants, found, inner.program.outputs, inner.stacks)


def _outputs(program: Program) -> dict[str, TensorType]:
    types = program.types()
    return {public: types[value] for public, value in program.outputs}


def _checked(types: Mapping[str, TensorType], grids: Mapping[str, Grid], what: str) -> dict[str, Grid]:
    """Every grid, or a TileTypeError for one that does not fit."""
    for name, grid in grids.items():
        if name not in types:
            raise _wrong(f"there is no {what} {name!r}", f"{what}s are {', '.join(types)}")
        if grid.shape != types[name].shape:
            raise _wrong(
                f"the chunks of {what} {name!r} add up to {list(grid.shape)}, its shape is {list(types[name].shape)}"
            )
    return {name: grids.get(name, Grid.single(type.shape)) for name, type in types.items()}


def _wrong(message: str, hint: str | None = None) -> TileTypeError:
    return TileTypeError(Diagnostic("TILE-E561", message, hint=hint))


def combining(stage: Stage, count: int, shape: Sequence[int], *, last: bool) -> Program:
    """What combines `count` partial results of a chunk, in order; the last such task gives the array's dtype."""
    agg = stage.aggregation
    assert agg is not None
    type = TensorType(stage.acc, tuple(shape))
    inputs = tuple(Param(f"P{n}", type) for n in range(count))
    names = ["P0", *(f"S{n}" for n in range(1, count))]
    ops = [Elementwise(names[n], type, agg.op, (names[n - 1], f"P{n}")) for n in range(1, count)]
    result = names[-1]
    if last and stage.acc is not stage.type.dtype:
        result = "R"
        ops.append(Elementwise(result, TensorType(stage.type.dtype, tuple(shape)), "cast", (names[-1],)))
    return Program(f"{stage.name}_combined", inputs, tuple(ops), (("R", result),))
