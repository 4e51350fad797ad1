"""A program and the grids of its inputs, cut into tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tile_ir.diagnostics import Diagnostic, TileTypeError
from tile_ir.names import claim
from tile_ir.program.nodes import Elementwise, Param, Program, TensorType
from tile_ir.target import Target
from tile_opt.explain.data import ErrorReport
from tile_opt.program.share import ShareCommon

from tile_dask.partitions.bounds import partition_bounds
from tile_dask.partitions.cascades import with_cascades
from tile_dask.partitions.chunks import Grid
from tile_dask.partitions.costs import kept
from tile_dask.partitions.explain import explained, told
from tile_dask.partitions.merges import merged
from tile_dask.partitions.speeds import PROCESSOR, Speed
from tile_dask.partitions.stages import Stage, Stages
from tile_dask.partitions.tasks import Tasks
from tile_dask.partitions.unroll import Unrolled, repeated, unrolled


@dataclass(frozen=True)
class Partition(Tasks):
    """A program cut into tasks."""

    def explain(self, workers: int | None = None, target: Target | None = None) -> str:
        """Tasks, bytes moved and computed again, and memory of a task, as a table.

        With `workers`, every task is placed on one of so many: the bytes that move between them, the fewest that could, and
        the most that one holds. With the `target` of the workers' devices every kernel is compiled, and a bound on the rounding
        error of each output is printed.
        """
        table = explained(self, workers)
        return table if target is None else f"{table}\n\n{told(self.error_bounds(target))}"

    def error_bounds(self, target: Target) -> Mapping[str, ErrorReport]:
        """A certified bound on the rounding error of each output, by its public name, on devices of `target`: its kernels and the
        trees that combine partial results."""
        return {name: ErrorReport.of(name, bound) for name, bound in partition_bounds(self, target).items()}


def partition(
    program: Program,
    grids: Mapping[str, Grid],
    out: Mapping[str, Grid] | None = None,
    *,
    steps: int = 1,
    exchange: int | None = None,
    speed: Speed = PROCESSOR,
) -> Partition:
    """Cut a program whose inputs are cut by `grids` (an input that is missing is one chunk).

    `out` says how outputs are cut, by their public names; the others follow what they are computed from. With `steps`
    the program is applied so many times, its outputs the first inputs of the next time; tasks compute `exchange` of
    these steps, or rounds of a loop, between two exchanges of cells (None: chosen by what it costs on devices of `speed`).
    TileTypeError for grids that do not fit, and for what cannot be computed chunk by chunk exactly.
    """
    given = _checked({p.name: p.type for p in program.inputs}, grids, "input")
    wanted = _checked(_outputs(program), out or {}, "output")
    program = _shared(program)
    inner = repeated(program, steps) if steps > 1 else unrolled(program)
    inner, chosen = _chosen(inner, wanted, out or {})
    stages = with_cascades(Stages(inner.program, given, chosen, inner.stacks, inner.loops, speed), inner.program)
    arrays = kept(stages, exchange)
    return _assembled(inner, stages, given, arrays)


def _shared(program: Program) -> Program:
    """What is computed twice is computed once, unless two outputs, which may be cut in two ways, became one."""
    found = ShareCommon(bypass_copies=False).apply(program)
    values = [len({value for _, value in each.outputs}) for each in (program, found)]
    return found if values[0] == values[1] else program


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
    assert stage.merge is not None
    type = TensorType(stage.acc, tuple(shape))
    inputs = tuple(Param(f"P{n}", type) for n in range(count))
    ops, result = merged(stage.merge, inputs)
    if last and stage.acc is not stage.type.dtype:
        ops.append(Elementwise("R", TensorType(stage.type.dtype, tuple(shape)), "cast", (result,)))
        result = "R"
    return Program(f"{stage.name}_combined", inputs, tuple(ops), (("R", result),))
