"""Which values become arrays between tasks, and the stage of tasks that makes each.

A value is computed again by every task that needs it, halos and all, unless it is a result, a reduction over an axis
that is cut, or dearer to compute again than to hand on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from tile_ir.dtype import DType
from tile_ir.names import claim
from tile_ir.ops import Aggregation
from tile_ir.program.liveness import defined_by, live_ops, used_by
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
)

from tile_opt.analysis import FlatDomain, Sets, analyze, uncovered
from tile_opt.partition import grids as follow
from tile_opt.partition.boxes import Grid
from tile_opt.partition.contraction import ContractionRule
from tile_opt.partition.pointwise import ArgsortRule, ElementwiseRule, GatherRule, IndexRule
from tile_opt.partition.region import Walker
from tile_opt.partition.reshape import ReshapeRule
from tile_opt.partition.rules import Rule, refused


@dataclass(frozen=True)
class Stage:
    """Tasks that compute one array, chunk by chunk."""

    name: str
    """The array."""
    type: TensorType
    grid: Grid
    splits: Grid
    """Chunks of the indexes that are reduced, when partial results are combined; no axes else."""
    walker: Walker
    aggregation: Aggregation | None
    """How partial results are combined."""
    acc: DType
    """Of partial results."""

    @property
    def task_type(self) -> DType:
        return self.acc if self.aggregation else self.type.dtype


class Stages:
    """A program's values, as far as cutting them is decided."""

    def __init__(self, program: Program, given: Mapping[str, Grid], wanted: Mapping[str, Grid]) -> None:
        """`given` are the grids of inputs; `wanted` those of some values, by name."""
        self.sets = Sets()
        self.grids: dict[str, Grid] = dict(given)
        self._wanted = wanted
        self._domains: dict[str, FlatDomain] = {}
        self.splits: dict[str, dict[str, tuple[int, ...]]] = {}
        """Sizes of the chunks of reduced indexes, by contraction."""
        self.constants = {op.name: op for op in program.ops if isinstance(op, ConstantTensor)}
        self.program = self._follow(program)
        self.types = self.program.types()
        self._makers = {name: op for op in self.program.ops for name in defined_by(op)}
        self._walkers: dict[object, Walker] = {}

    # --- grids ---------------------------------------------------------------------------------------

    def _follow(self, program: Program) -> Program:
        """Find the grid of every value, and the reductions to split; those that leave cells unwritten become two."""
        types = program.types()
        ops: list[Op] = []
        for op in program.ops:
            for made in self._divided(op, types, set(types)):
                types[made.name] = made.type  # pyright: ignore[reportAttributeAccessIssue]
                ops.append(made)
                self._cut(made, types)
        return replace(program, ops=tuple(ops), gradients=())

    def _cut(self, op: Op, types: dict[str, TensorType]) -> None:
        found = self._grid(op, types)
        for name in defined_by(op):
            self.grids[name] = self._wanted.get(name, found)

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
                return follow.argsort_grid(op, types, self.grids)
            case IndexOf():
                return follow.index_grid(op, self.grids)
            case ConstantTensor():
                return Grid.single(op.type.shape)
            case Prng() | Scatter() | Loop():
                raise refused(*_REFUSED[type(op)], origin=op.origin)

    def domain(self, op: Contraction) -> FlatDomain:
        if op.name not in self._domains:
            self._domains[op.name] = analyze(op, self.sets)
        return self._domains[op.name]

    def _divided(self, op: Op, types: dict[str, TensorType], taken: set[str]) -> list[Op]:
        """A split reduction that leaves cells unwritten, as one that starts from the identity and one that says which it wrote."""
        if not isinstance(op, Contraction):
            return [op]
        domain = self.domain(op)
        cuts = follow.reduction_cuts(op, domain, types, self.grids)
        if not cuts:
            return [op]
        covers = uncovered(domain, op.type.shape, self.sets) == ()
        if covers or (op.agg is Aggregation.SUM and op.default is None):
            self.splits[op.name] = cuts
            return [op]
        return self._with_hits(op, domain, cuts, taken)

    def _with_hits(
        self, op: Contraction, domain: FlatDomain, cuts: dict[str, tuple[int, ...]], taken: set[str]
    ) -> list[Op]:
        found, hits, was = (claim(f"{op.name}_{what}", taken) for what in ("found", "hits", "hit"))
        for name in (found, hits):
            self._domains[name], self.splits[name] = domain, cuts
        value = replace(op, name=found, default=None)
        one = Literal(1, DType.INT32)
        hit = replace(
            op, name=hits, type=TensorType(DType.INT32, op.type.shape), agg=Aggregation.MAX, body=(), result=one,
            acc=DType.INT32, default=None,
        )  # fmt: skip
        written = Elementwise(was, TensorType(DType.BOOL, op.type.shape), "cmp_eq", (hits, one))
        other = Literal(0, op.type.dtype) if op.default is None else op.default
        return [value, hit, written, Elementwise(op.name, op.type, "cond", (was, found, other), origin=op.origin)]

    # --- stages --------------------------------------------------------------------------------------

    def stage(self, name: str, arrays: frozenset[str]) -> Stage:
        """The stage that makes `name` of the arrays in `arrays`."""
        op = self._makers.get(name)
        cuts = self.splits.get(name, {})
        acc = op.acc if isinstance(op, Contraction) else self.types[name].dtype
        agg = op.agg if cuts and isinstance(op, Contraction) else None
        walker = self._walker(name, arrays - {name})
        return Stage(name, self.types[name], self.grids[name], Grid(tuple(cuts.values())), walker, agg, acc)

    def reads(self, name: str, arrays: frozenset[str]) -> tuple[str, ...]:
        """The arrays that a stage reads."""
        return tuple(p.name for p in self._program(name, arrays - {name}).inputs)

    def _walker(self, name: str, arrays: frozenset[str]) -> Walker:
        program = self._program(name, arrays)
        return Walker(program, tuple(self._rule(op) for op in program.ops))

    def _program(self, name: str, arrays: frozenset[str]) -> Program:
        """What computes a value from arrays."""
        ops: list[Op] = []
        inputs: dict[str, None] = {}
        stack, seen = [name], {name}
        while stack:
            value = stack.pop()
            op = None if value in arrays else self._makers.get(value)
            if op is None:
                inputs[value] = None
                continue
            ops.append(op)
            for operand in used_by(op):
                if operand not in seen:
                    seen.add(operand)
                    stack.append(operand)
        chosen = {id(op) for op in ops}
        ordered = live_ops([op for op in self.program.ops if id(op) in chosen], [name])
        given = tuple(Param(n, self.types[n]) for n in sorted(inputs, key=self._order.__getitem__))
        return Program(name, given, ordered, ((name, name),))

    @cached_property
    def _order(self) -> dict[str, int]:
        return {name: n for n, name in enumerate(self.types)}

    def _rule(self, op: Op) -> Rule:
        match op:
            case Elementwise():
                return ElementwiseRule(op, self.types)
            case Contraction():
                return ContractionRule(op, self.domain(op), self.sets, tuple(self.splits.get(op.name, {})))
            case Gather():
                return GatherRule(op, self.types)
            case Reshape():
                return ReshapeRule(op, self.types[op.arg].shape)
            case Argsort():
                return ArgsortRule(op, self.types)
            case IndexOf():
                return IndexRule(op)
            case _:
                raise AssertionError(type(op).__name__)


_REFUSED = {
    Prng: (
        "random numbers are drawn one after the other from a state, so they cannot be drawn chunk by chunk",
        "draw them before, and give them as an array",
    ),
    Scatter: (
        "a scatter may write any cell from any chunk, so it cannot be computed chunk by chunk",
        "scatter within chunks, or write it as a contraction over the places that are compared",
    ),
    Loop: ("a loop inside a loop is not cut into tasks", None),
}
