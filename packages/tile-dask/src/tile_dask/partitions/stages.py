"""Which values become arrays between tasks, and the stage of tasks that makes each.

A value is computed again by every task that needs it, halos and all, unless it is a result, a reduction over an axis
that is cut, or dearer to compute again than to hand on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType

from tile_ir.dtype import DType
from tile_ir.names import claim
from tile_ir.ops import Aggregation
from tile_ir.program.liveness import defined_by, used_by
from tile_ir.program.nodes import (
    Argsort,
    ConstantTensor,
    Contraction,
    Elementwise,
    Gather,
    IndexOf,
    Literal,
    Loop,
    Op,
    Param,
    Prng,
    Program,
    Reshape,
    Scatter,
    TensorType,
    results_of,
)
from tile_ir.program.rename import renamed
from tile_opt.analysis import FlatDomain, Sets, analyze, uncovered
from tile_opt.regions.boxes import Box
from tile_opt.regions.contraction import ContractionRule
from tile_opt.regions.operations import rule_of
from tile_opt.regions.region import Walker, Walks
from tile_opt.regions.rules import refused

from tile_dask.partitions import grids as follow
from tile_dask.partitions.chunks import Grid, stacked
from tile_dask.partitions.frames import Rounds
from tile_dask.partitions.merges import Cascade, Merge
from tile_dask.partitions.rounds import looped
from tile_dask.partitions.speeds import PROCESSOR, Speed
from tile_dask.partitions.unroll import Carried

Cuts = dict[str, tuple[int, ...]]
"""Sizes of the chunks of each reduced index."""
READ = 2
"""Bytes that a task may read for each byte that it makes, before its sum is split: what its memory is bounded by."""


@dataclass(frozen=True)
class Reduction:
    """A contraction whose reduced indexes are cut, and the grid of its result.

    Partial results are handed on once for each task: one may take several chunks.
    """

    op: Contraction
    domain: FlatDomain
    sets: Sets
    grid: Grid
    types: Mapping[str, TensorType]

    def coarser(self, cuts: Cuts) -> Cuts:
        """Neighbouring chunks joined as far as a task's reads stay small beside what it makes; no cuts: all of them."""
        for index in reversed(cuts):
            cuts = self._joined(cuts, index)
        return {index: sizes for index, sizes in cuts.items() if len(sizes) > 1}

    def _joined(self, cuts: Cuts, index: str) -> Cuts:
        """The longest runs of chunks of one index, halved until they fit."""
        run = len(cuts[index])
        while run > 1:
            trial = {**cuts, index: joined(cuts[index], run)}
            if self._fits(trial):
                return trial
            run = -(-run // 2)
        return cuts

    def _fits(self, cuts: Cuts) -> bool:
        rule = ContractionRule(self.op, self.domain, self.sets, tuple(cuts))
        tasks = Grid((*cuts.values(), *self.grid.sizes))
        middle = tasks.box(tuple(n // 2 for n in tasks.counts))
        reads = zip(rule.operands, rule.cut(middle).reads, strict=True)
        read = sum(box.size * self.types[name].dtype.bytes for name, box in reads if box is not None)
        made = self.grid.box(tuple(n // 2 for n in self.grid.counts)).size * self.op.acc.bytes
        return read <= READ * made


def joined(sizes: tuple[int, ...], run: int) -> tuple[int, ...]:
    """Runs of so many neighbours, added up."""
    return tuple(sum(sizes[k : k + run]) for k in range(0, len(sizes), run))


@dataclass(frozen=True)
class Stage:
    """Tasks that compute one array, chunk by chunk."""

    name: str
    """The array."""
    type: TensorType
    grid: Grid
    splits: Grid
    """Chunks of the indexes that are reduced, when partial results are combined; no axes else."""
    reads: tuple[str, ...]
    """The arrays that tasks read, as the walker numbers them."""
    values: tuple[str, ...]
    """What the walker's operations compute."""
    walker: Walks
    """Shared by stages that compute alike."""
    merge: Merge | None
    """How partial results are combined."""
    acc: DType
    """Of partial results."""

    @property
    def task_type(self) -> DType:
        return self.acc if self.merge else self.type.dtype

    @cached_property
    def tasks(self) -> Grid:
        """A chunk for each task: those of the reduced indexes, then those of the array."""
        return Grid((*self.splits.sizes, *self.grid.sizes))

    @property
    def middle(self) -> Box:
        """The box of a task away from the borders, where there is one."""
        return self.tasks.box(tuple(n // 2 for n in self.tasks.counts))


class Stages:
    """A program's values, as far as cutting them is decided."""

    def __init__(
        self,
        program: Program,
        given: Mapping[str, Grid],
        wanted: Mapping[str, Grid],
        stacks: Mapping[str, tuple[str, ...]],
        loops: tuple[Carried, ...] = (),
        speed: Speed = PROCESSOR,
        cascades: Mapping[str, Cascade] = MappingProxyType({}),
    ) -> None:
        """`given` are the grids of inputs; `wanted` those of some values, by name; `stacks` have rows that are values, rounds of `loops` too.

        `cascades` are those that the program was rewritten for, by the array that each has.
        """
        self.sets = Sets()
        self.grids: dict[str, Grid] = dict(given)
        self._given = given, wanted, stacks, loops, speed
        self.loops, self.speed = loops, speed
        self._wanted = {**wanted, **{name: cascade.grid for name, cascade in cascades.items()}}
        self._cascades = cascades
        self.inner = frozenset(value for cascade in cascades.values() for value in cascade.inner)
        """Values of a part of the reduced indexes only: they are no arrays."""
        self.stacks = stacks
        self._stack_of = {row: name for name, rows in stacks.items() for row in rows}
        self.splits: dict[str, dict[str, tuple[int, ...]]] = {}
        """Sizes of the chunks of reduced indexes, by contraction."""
        self.constants = {op.name: op for op in program.ops if isinstance(op, ConstantTensor)}
        self.program = self._follow(program)
        self.types = self.program.types()
        self.makers = {name: op for op in self.program.ops for name in defined_by(op)}
        """The operation that computes each value."""
        self._walkers: dict[object, Walker] = {}
        self._rounds: dict[object, Rounds] = {}

    def again(self, program: Program, cascades: Mapping[str, Cascade]) -> Stages:
        """Those of another program that has the same inputs and outputs."""
        return Stages(program, *self._given, cascades)

    # --- grids ---------------------------------------------------------------------------------------

    def _follow(self, program: Program) -> Program:
        """Find the grid of every value, and the reductions to split; those that leave cells unwritten become two."""
        types = program.types()
        ops: list[Op] = []
        for op in program.ops:
            for made in self._divided(op, types):
                types.update(results_of(made))
                ops.append(made)
                self._cut(made, types)
        return replace(program, ops=tuple(ops), gradients=())

    def _cut(self, op: Op, types: dict[str, TensorType]) -> None:
        found = self._grid(op, types)
        for name in defined_by(op):
            self.grids[name] = self._wanted.get(name, found)
            self._cut_stack(name)

    def _cut_stack(self, row: str) -> None:
        """The first row that is made says how all rows of its stack are cut."""
        stack = self._stack_of.get(row)
        if stack is not None and stack not in self.grids:
            self.grids[stack] = stacked(self.grids[row], len(self.stacks[stack]))
            self._wanted.update(dict.fromkeys(self.stacks[stack], self.grids[row]))

    def _grid(self, op: Op, types: dict[str, TensorType]) -> Grid:
        match op:
            case Elementwise():
                return follow.elementwise_grid(op, types, self.grids)
            case Contraction():
                return follow.contraction_grid(op, self.domain(op), types, self.grids)
            case Gather():
                return follow.gather_grid(op, types, self.grids)
            case Reshape():
                return follow.reshape_grid(op, types, self.grids)
            case Argsort():
                return follow.argsort_grid(op, self.grids)
            case IndexOf():
                return follow.index_grid(op, self.grids)
            case ConstantTensor():
                return Grid.single(op.type.shape)
            case Scatter():
                return follow.scatter_grid(op, self.grids)
            case Prng() | Loop():
                raise refused(_REFUSED[type(op)][0], op.origin, _REFUSED[type(op)][1])

    def domain(self, op: Contraction) -> FlatDomain:
        return analyze(op, self.sets)

    def _divided(self, op: Op, types: dict[str, TensorType]) -> list[Op]:
        """A split reduction that leaves cells unwritten, as one that starts from the identity and one that says which it wrote."""
        if not isinstance(op, Contraction | Scatter) or op.name in self.inner:
            return [op]
        if op.name in self._cascades:
            if cuts := self._cascades[op.name].cuts:
                self.splits[op.name] = dict(cuts)
            return [op]
        cuts = self._cuts(op, types)
        if not cuts:
            return [op]
        if op.default is None and (op.agg is Aggregation.SUM or self._covers(op)):
            self.splits[op.name] = cuts
            return [op]
        return self._with_hits(op, cuts, set(types))

    def _cuts(self, op: Contraction | Scatter, types: dict[str, TensorType]) -> dict[str, tuple[int, ...]]:
        if isinstance(op, Scatter):
            return follow.scatter_cuts(op, self.grids)
        domain = self.domain(op)
        cuts = follow.reduction_cuts(op, domain, types, self.grids)
        grid = self._wanted.get(op.name) or self._grid(op, types)
        return Reduction(op, domain, self.sets, grid, types).coarser(cuts)

    def _covers(self, op: Contraction | Scatter) -> bool:
        """Every cell of the result is written."""
        return isinstance(op, Contraction) and uncovered(self.domain(op), op.type.shape, self.sets) == ()

    def _with_hits(self, op: Contraction | Scatter, cuts: dict[str, tuple[int, ...]], taken: set[str]) -> list[Op]:
        found, hits, was = (claim(f"{op.name}_{what}", taken) for what in ("found", "hits", "hit"))
        self.splits |= {found: cuts, hits: cuts}
        one = Literal(1, DType.INT32)
        written = Elementwise(was, TensorType(DType.BOOL, op.type.shape), "cmp_eq", (hits, one))
        other = Literal(0, op.type.dtype) if op.default is None else op.default
        chosen = Elementwise(op.name, op.type, "cond", (was, found, other), origin=op.origin)
        return [replace(op, name=found, default=None), *self._hits(op, hits, one, taken), written, chosen]

    def _hits(self, op: Contraction | Scatter, name: str, one: Literal, taken: set[str]) -> list[Op]:
        """1 in the cells that an operation writes; anything else where it does not."""
        type = TensorType(DType.INT32, op.type.shape)
        if isinstance(op, Contraction):
            changes = {"agg": Aggregation.MAX, "body": (), "result": one, "acc": DType.INT32, "default": None}
            return [replace(op, name=name, type=type, **changes)]
        ones = claim(f"{name}_ones", taken)
        given = Elementwise(ones, TensorType(DType.INT32, self.grids[op.updates].shape), "ident", (one,))
        return [given, replace(op, name=name, type=type, updates=ones, agg=Aggregation.MAX, default=None)]

    # --- stages --------------------------------------------------------------------------------------

    def stage(self, name: str, arrays: frozenset[str]) -> Stage:
        """The stage that makes `name` of the arrays in `arrays`."""
        op = self.makers.get(name)
        cuts = self.splits.get(name, {})
        type = self.types[name]
        if found := looped(name, arrays - {name}, self):
            walker = self._rounds.setdefault(found.key, found.rounds)
            return Stage(name, type, self.grids[name], Grid(()), found.reads, found.values, walker, None, type.dtype)
        program = self.between(name, arrays - {name})
        cascade = self._cascades.get(name)
        merge, acc = (op.agg, op.acc) if cuts and isinstance(op, Contraction | Scatter) else (None, type.dtype)
        split = cascade.reduced if cascade else {name: tuple(cuts)}
        reads = tuple(p.name for p in program.inputs)
        values = tuple(defined_by(op)[0] for op in program.ops)
        walker = self._walker(program, split if cuts else {}, len(cuts))
        merge = cascade.merge if cascade and cuts else merge
        return Stage(name, type, self.grids[name], Grid(tuple(cuts.values())), reads, values, walker, merge, acc)

    def made(self, arrays: frozenset[str]) -> list[str]:
        """The arrays that stages make, in the order in which they are made."""
        return [n for op in self.program.ops for n in defined_by(op) if n in arrays and n not in self.constants]

    def _walker(self, program: Program, split: Mapping[str, tuple[str, ...]], axes: int) -> Walker:
        """The walker of a program some of whose values are reduced over parts of `axes` indexes, which `split` names for each."""
        named, names = _plainly_named(program)
        reduced = {names[value]: indexes for value, indexes in split.items()}
        key = (named, tuple(reduced.items()))
        if key not in self._walkers:
            types = named.types()
            rules = (rule_of(op, types, self.sets, reduced.get(defined_by(op)[0], ())) for op in named.ops)
            self._walkers[key] = Walker(named, tuple(rules), reduced, axes)
        return self._walkers[key]

    def between(self, name: str, arrays: frozenset[str]) -> Program:
        """What computes a value from arrays."""
        ops: list[Op] = []
        inputs: dict[str, None] = {}
        stack, seen = [name], {name}
        while stack:
            value = stack.pop()
            op = None if value in arrays else self.makers.get(value)
            if op is None:
                inputs[value] = None
                continue
            ops.append(op)
            for operand in used_by(op):
                if operand not in seen:
                    seen.add(operand)
                    stack.append(operand)
        ordered = sorted(ops, key=lambda op: self._order[defined_by(op)[0]])
        given = tuple(Param(n, self.types[n]) for n in sorted(inputs, key=self._order.__getitem__))
        return Program(name, given, tuple(ordered), ((name, name),))

    @cached_property
    def _order(self) -> dict[str, int]:
        return {name: n for n, name in enumerate(self.types)}


def _plainly_named(program: Program) -> tuple[Program, dict[str, str]]:
    """The same program with values called by their order, equal for rounds of a loop; and what each is called then."""
    names = {p.name: f"a{n}" for n, p in enumerate(program.inputs)}
    for n, value in enumerate(v for op in program.ops for v in defined_by(op)):
        names[value] = f"v{n}"
    inputs = tuple(Param(names[p.name], p.type) for p in program.inputs)
    ops = tuple(renamed(op, names) for op in program.ops)
    return Program("chunk", inputs, ops, tuple(("R", names[v]) for _, v in program.outputs)), names


_REFUSED: dict[type, tuple[str, str | None]] = {
    Prng: (
        "random numbers are drawn one after the other from a state, so they cannot be drawn chunk by chunk",
        "draw them by a key (tile.random), which any chunk can do by itself; or before, as an array that is given",
    ),
    Loop: ("a loop inside a loop is not cut into tasks", None),
}
