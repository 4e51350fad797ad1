"""Contractions: initialise, aggregate, then fill what no tuple wrote and cast.

Partial results start at the aggregation's identity; a cell without a valid tuple holds 0 or the
default tensor's value. Which cells those are is known as sets of cells, or remembered in a hit flag.
"""

from __future__ import annotations

from dataclasses import dataclass

from tile_ir.dtype import DType
from tile_ir.ops import Aggregation
from tile_ir.program.nodes import Contraction, Literal, Operand
from tile_ir.stripe.affine import Affine

from tile_opt.analysis import FlatDomain, Region, analyze, check_assigned_once, uncovered
from tile_opt.translate.build import Kernel, Loop, Stage, cell_of, loops_over
from tile_opt.translate.context import Context, cast_to, fill


@dataclass(slots=True)
class _Plan:
    """The parts of one contraction's kernel that its stages share."""

    context: Context
    op: Contraction
    domain: FlatDomain
    kernel: Kernel
    target: str
    """The output buffer."""
    accumulator: str
    """Where partial results live: the output, or a temporary of the accumulator dtype."""
    rest: tuple[Region, ...] | None
    """Cells that no tuple writes; None when only a flag can tell."""


def contraction(context: Context, op: Contraction) -> None:
    """One kernel per contraction."""
    shape = op.type.shape
    domain = analyze(op, context.sets)
    if op.agg is Aggregation.ASSIGN:
        check_assigned_once(op, domain, context.sets)
    if 0 in shape:
        return
    kernel = context.kernel(op.text or f"{op.name} = …", _tags(op), op.origin)
    target = context.buffers[op.name]
    if domain.empty:
        _prefill(context, op, kernel, target)
    elif op.agg is Aggregation.ASSIGN:
        _assign(context, op, domain, kernel, target)
    else:
        _aggregate(context, op, domain, kernel, target)
    context.add(kernel)


def _tags(op: Contraction) -> tuple[str, ...]:
    comb = f"comb_op_{op.body[-1].fn}" if op.body else "no_comb_op"
    return ("contraction", f"agg_op_{op.agg.value}", comb)


def _prefill(context: Context, op: Contraction, kernel: Kernel, target: str) -> None:
    """Every cell gets the default, or 0."""
    shape = op.type.shape
    if op.default is None:
        fill(kernel, "zero", target, shape, _zero(op.type.dtype))
        return
    stage = kernel.stage("default", loops_over(shape))
    cell = cell_of(shape)
    stage.store(target, cell, stage.load(context.buffers[op.default], cell))


def _assign(context: Context, op: Contraction, domain: FlatDomain, kernel: Kernel, target: str) -> None:
    if uncovered(domain, op.type.shape, context.sets) != ():
        _prefill(context, op, kernel, target)
    stage = kernel.stage("assign", _loops(domain), domain.constraints)
    value, dtype = _body(context, op, domain, stage)
    value = cast_to(stage, cast_to(stage, value, dtype, op.acc), op.acc, op.type.dtype)
    stage.store(target, domain.output, value)


def _aggregate(context: Context, op: Contraction, domain: FlatDomain, kernel: Kernel, target: str) -> None:
    shape = op.type.shape
    plain_sum = op.agg is Aggregation.SUM and op.default is None
    rest = () if plain_sum else uncovered(domain, shape, context.sets)
    own = op.acc is op.type.dtype and rest is not None
    accumulator = target if own else kernel.alloc(f"{target}_acc", op.acc, shape)
    plan = _Plan(context, op, domain, kernel, target, accumulator, rest)
    hit = kernel.alloc(f"{target}_hit", DType.BOOL, shape) if rest is None else None

    fill(kernel, "init", accumulator, shape, _identity(op))
    if hit is not None:
        fill(kernel, "init_hit", hit, shape, False)
    stage = kernel.stage("acc", _loops(domain), domain.constraints)
    value, dtype = _body(context, op, domain, stage)
    stage.store(accumulator, domain.output, cast_to(stage, value, dtype, op.acc), agg=op.agg)
    if hit is not None:
        stage.store(hit, domain.output, stage.const(True, DType.BOOL), agg=Aggregation.MAX)
        _select(plan, hit)
    elif accumulator != target:
        _finish(plan)
    for k, region in enumerate(rest or ()):
        _fill_region(plan, region, k)


def _finish(plan: _Plan) -> None:
    """Cast the accumulator to the output."""
    shape = plan.op.type.shape
    stage = plan.kernel.stage("cast", loops_over(shape))
    cell = cell_of(shape)
    value = stage.load(plan.accumulator, cell)
    stage.store(plan.target, cell, cast_to(stage, value, plan.op.acc, plan.op.type.dtype))


def _select(plan: _Plan, hit: str) -> None:
    """The accumulator where some tuple wrote, elsewhere 0 or the default."""
    dtype, shape = plan.op.type.dtype, plan.op.type.shape
    stage = plan.kernel.stage("select", loops_over(shape))
    cell = cell_of(shape)
    flag = stage.load(hit, cell)
    value = cast_to(stage, stage.load(plan.accumulator, cell), plan.op.acc, dtype)
    stage.store(plan.target, cell, stage.op("cond", (flag, value, _otherwise(plan, stage, cell)), dtype))


def _fill_region(plan: _Plan, region: Region, number: int) -> None:
    loops: list[Loop] = list(zip(region.names, region.ranges, strict=True))
    stage = plan.kernel.stage(f"rest_{number}", loops, region.constraints)
    stage.store(plan.target, region.cell, _otherwise(plan, stage, region.cell))


def _otherwise(plan: _Plan, stage: Stage, cell: tuple[Affine, ...]) -> str:
    if plan.op.default is None:
        return stage.const(_zero(plan.op.type.dtype), plan.op.type.dtype)
    return stage.load(plan.context.buffers[plan.op.default], cell)


def _zero(dtype: DType) -> int | float | bool:
    return 0.0 if dtype.is_float else False if dtype is DType.BOOL else 0


def _identity(op: Contraction) -> int | float | bool:
    value = op.agg.identity(op.acc)
    return float(value) if op.acc.is_float else bool(value) if op.acc is DType.BOOL else value


def _loops(domain: FlatDomain) -> list[Loop]:
    """Indexes of the output first, by dimension, then the reduction's."""
    order = {name: (1, len(domain.output)) for name in domain.names}
    for dim, form in reversed(list(enumerate(domain.output))):
        order.update(dict.fromkeys(form.names, (0, dim)))
    table = dict(zip(domain.names, domain.ranges, strict=True))
    coarse = {n: -max((abs(f.coefficient(n)) for f in domain.output), default=0) for n in domain.names}
    return [(name, table[name]) for name in sorted(domain.names, key=lambda n: (order[n], coarse[n], n))]


def _body(context: Context, op: Contraction, domain: FlatDomain, stage: Stage) -> tuple[str, DType]:
    """Loads and scalar statements of the contraction; gives the result and its dtype."""
    values: dict[str, tuple[str, DType]] = {}
    for load, access in zip(op.loads, domain.accesses, strict=True):
        if isinstance(load.tensor, Literal):
            values[load.dst] = (stage.const_of(load.tensor), load.tensor.dtype)
        else:
            values[load.dst] = (stage.load(context.buffers[load.tensor], access), context.dtype(load.tensor))

    def scalar(arg: Operand) -> str:
        return stage.const_of(arg) if isinstance(arg, Literal) else values[arg][0]

    for s in op.body:
        values[s.dst] = (stage.op(s.fn, [scalar(a) for a in s.args], s.dtype, op.name), s.dtype)
    if isinstance(op.result, Literal):
        return scalar(op.result), op.result.dtype
    return values[op.result]
