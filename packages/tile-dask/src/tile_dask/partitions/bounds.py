"""Bounds on the rounding errors of a partition's results: those of its kernels on a device, and of the trees between them.

Each kernel is scheduled for the device and analysed, with the bounds of the arrays that it reads; of an array that all its kernels make,
the worst counts. Largest elements and the sums below them, which lie side by side in one array, have a bound each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.ops import Aggregation
from tile_ir.program.liveness import live_ops
from tile_ir.program.nodes import Contraction, Gather, Literal, Op, Param, Poly, Program
from tile_ir.target import Target
from tile_opt.compiler import compile as compiled
from tile_opt.rounding import Bound, error_bounds
from tile_opt.rounding.bound import added, applied, converted, multiplied, repeated, rounded, unit, worst

from tile_dask.partitions.merges import FAN, Below, Merge
from tile_dask.partitions.stages import Stage
from tile_dask.partitions.tasks import Task, Tasks


@frozen
class Beside:
    """The bounds of an array of largest elements and sums below them: the column where each begins, and its bound."""

    parts: tuple[tuple[int, Bound], ...]

    def within(self, first: int, last: int) -> Bound:
        """Of some columns."""
        ends = (*(begin for begin, _ in self.parts[1:]), last + 1)
        return worst(*(b for (begin, b), end in zip(self.parts, ends, strict=True) if begin <= last and end > first))


Known = Bound | Beside


class _Part(NamedTuple):
    """A program as it is analysed, and the bounds of its inputs."""

    program: Program
    inputs: Mapping[str, Bound]
    begins: tuple[int, ...]
    """The column where each output begins, where they lie side by side."""


def partition_bounds(partition: Tasks, target: Target) -> dict[str, Bound]:
    """A bound on the rounding error of each output, by its public name, when every task runs on such a device."""
    known: dict[str, Known] = dict.fromkeys((*partition.inputs, *partition.constants), Bound())
    found = _Analysed(target)
    for stage in partition.stages:
        parts = [*_parts(partition, stage, known)]
        bounds = [worst(*each) for each in zip(*map(found.bounds, parts), strict=True)]
        beside = Beside(tuple(zip(parts[0].begins, bounds, strict=True))) if parts[0].begins else bounds[0]
        known[stage.name] = _merged(stage, beside)
    known |= {name: worst(*(_whole(known[row]) for row in rows)) for name, rows in partition.stacks.items()}
    return {public: _whole(known[array]) for public, array in partition.outputs}


def _whole(known: Known) -> Bound:
    return known if isinstance(known, Bound) else worst(*(bound for _, bound in known.parts))


# --- the kernels of a stage -----------------------------------------------------------------------------------


def _parts(partition: Tasks, stage: Stage, known: Mapping[str, Known]) -> Iterator[_Part]:
    """Each kernel of a stage once."""
    seen: set[int] = set()
    for task in partition.tasks(stage):
        program = partition.kernel(stage, task)
        if id(program) not in seen:
            seen.add(id(program))
            yield _part(program, stage, task, known)


def _part(program: Program, stage: Stage, task: Task, known: Mapping[str, Known]) -> _Part:
    """What is read of arrays whose columns have several bounds is an input for each."""
    program, begins = _apart(program) if isinstance(stage.merge, Below) else (program, ())
    inputs: dict[str, Bound] = {p.name: Bound() for p in program.inputs}
    columns: dict[str, tuple[int, Beside]] = {}
    for given, (number, box) in zip(program.inputs, task.needs.reads, strict=False):
        bound = known[stage.reads[number]]
        inputs[given.name] = _whole(bound)
        if isinstance(bound, Beside):
            columns[given.name] = (box.low[-1], bound)
    ops: list[Op] = []
    for op in program.ops:
        if isinstance(op, Gather) and op.data in columns:
            inputs[op.name] = _read(op, *columns[op.data])
            program = replace(program, inputs=(*program.inputs, Param(op.name, op.type)))
        else:
            ops.append(op)
    return _Part(replace(program, ops=tuple(ops)), inputs, begins)


def _read(op: Gather, low: int, bounds: Beside) -> Bound:
    """The bound of what is read of an array from column `low` on."""
    column = op.subscripts[-1]
    if not isinstance(column, Poly):
        return _whole(bounds)
    ends = [int(step) * (op.type.shape[int(name[1:])] - 1) for name, step in column.terms]
    first = int(column.const) + low
    return bounds.within(first + sum(e for e in ends if e < 0), first + sum(e for e in ends if e > 0))


def _apart(program: Program) -> tuple[Program, tuple[int, ...]]:
    """A program that writes arrays side by side with each of them as an output, and the columns where they begin."""
    makers = {op.name: op for op in program.ops if isinstance(op, Contraction)}
    ((_, name),) = program.outputs
    found: list[tuple[int, str]] = []
    last: str | Literal | None = name
    while isinstance(last, str):
        op = makers[last]
        found.append(_written(op))
        last = op.default
    found.sort()
    outputs = tuple((f"R{n}", value) for n, (_, value) in enumerate(found))
    ops = live_ops(program.ops, [value for _, value in outputs])
    return replace(program, outputs=outputs, ops=ops), tuple(begin for begin, _ in found)


def _written(op: Contraction) -> tuple[int, str]:
    """What is written beside others, and the column of its first cell."""
    (load,) = op.loads
    assert isinstance(load.tensor, str)
    firsts = {form.names[0]: -form.const for form in load.formulas if form.terms}
    columns = op.output[-1]
    return int(columns.const + sum(step * firsts[name] for name, step in columns.terms)), load.tensor


class _Analysed:
    """What was found of each kernel; rounds of a loop have the same ones."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._found: dict[object, tuple[Bound, ...]] = {}

    def bounds(self, part: _Part) -> tuple[Bound, ...]:
        """Of a kernel's results."""
        key = (part.program, *part.inputs.values())
        if key not in self._found:
            self._found[key] = self._bounds(part)
        return self._found[key]

    def _bounds(self, part: _Part) -> tuple[Bound, ...]:
        made = compiled(part.program, self._target)
        known = zip(made.stripe.inputs, (part.inputs[p.name] for p in made.program.inputs), strict=True)
        found = error_bounds(made.stripe, self._target, {name: b for name, b in known if b != Bound()})
        return tuple(found[name] for name in made.stripe.outputs)


# --- trees ----------------------------------------------------------------------------------------------------


def _merged(stage: Stage, known: Known) -> Known:
    """The bound of an array from that of its partial results."""
    if stage.merge is None:
        return known
    count = stage.splits.chunks
    while count > 1:
        known = _level(stage.merge, known, min(FAN, count), stage.acc)
        count = -(-count // FAN)
    return converted(known, stage.acc, stage.type.dtype) if isinstance(known, Bound) else known


def _level(merge: Merge, known: Known, parts: int, acc: DType) -> Known:
    """Of so many partial results, combined in order."""
    if isinstance(known, Beside):
        largest, *sums = known.parts
        apart = added((largest[1], replace(largest[1], positive=False)), 1, acc)
        terms = ((begin, multiplied((bound, applied("exp", apart, acc)), acc)) for begin, bound in sums)
        return Beside((largest, *((begin, added((term,) * parts, parts - 1, acc)) for begin, term in terms)))
    if merge is Aggregation.SUM:
        return added((known,) * parts, parts - 1, acc)
    if merge is Aggregation.PROD:
        return rounded(repeated(known, parts), (parts - 1) * unit(acc))
    return known
