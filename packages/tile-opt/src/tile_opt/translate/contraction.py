"""Contractions: initialise, aggregate, then fill what no tuple wrote and cast.

Partial results start at the aggregation's identity; a cell without a valid tuple holds 0 or the
default tensor's value. Which cells those are is known as sets of cells, or remembered in a hit flag.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.ops import Aggregation
from tile_ir.program.nodes import Contraction, Literal, Operand
from tile_ir.stripe.affine import Affine, names_in

from tile_opt.analysis import FlatDomain, Region, analyze, check_assigned_once, uncovered
from tile_opt.translate.build import Kernel, Loop, Scalar, Stage, cell_of, loops_over
from tile_opt.translate.context import Context, fill

WASTE = 2
"""Times the cells of a result that partial results may have, where some combinations of indexes choose none."""


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
    kernel = _kernel(context, op)
    target = context.buffers[op.name]
    if domain.empty:
        _prefill(context, op, kernel, target)
    elif op.agg is Aggregation.ASSIGN:
        _assign(context, op, domain, kernel, target)
    else:
        kernel = _aggregate(context, op, domain, kernel, target)
    context.add(kernel)


def _kernel(context: Context, op: Contraction) -> Kernel:
    return context.kernel(op.text or f"{op.name} = …", _tags(op), op.origin)


def _tags(op: Contraction) -> tuple[str, ...]:
    comb = f"comb_op_{op.body[-1].fn}" if op.body else "no_comb_op"
    return ("contraction", f"agg_op_{op.agg.value}", comb)


def _prefill(context: Context, op: Contraction, kernel: Kernel, target: str) -> None:
    """Every cell gets the default, or 0."""
    shape = op.type.shape
    if op.default is None:
        fill(kernel, "zero", target, shape, op.type.dtype.number(0))
        return
    stage = kernel.stage("default", loops_over(shape))
    cell = cell_of(shape)
    stage.store(target, cell, stage.load(context.buffers[op.default], cell))


def _assign(context: Context, op: Contraction, domain: FlatDomain, kernel: Kernel, target: str) -> None:
    if uncovered(domain, op.type.shape, context.sets) != ():
        _prefill(context, op, kernel, target)
    stage = kernel.stage("assign", _loops(domain), domain.constraints)
    stage.store(target, domain.output, _body(context, op, domain, stage).cast(op.acc).cast(op.type.dtype))


def _aggregate(context: Context, op: Contraction, domain: FlatDomain, kernel: Kernel, target: str) -> Kernel:
    """The kernel, or one after it."""
    plain_sum = op.agg is Aggregation.SUM and op.default is None
    results = _results(op, domain, context)
    written = results if plain_sum else domain
    rest = () if written is None else uncovered(written, op.type.shape, context.sets)
    if rest is None and plain_sum and op.acc is op.type.dtype:  # zeros that the sums are added to
        results, rest = None, ()
    elif rest is None and plain_sum:  # in a kernel of its own: zeros are not where an item's results are
        _prefill(context, op, kernel, target)
        context.add(kernel)
        kernel, rest = _kernel(context, op), ()
    elif results is not None and rest and plain_sum:  # so are those of a few cells
        kernel, rest = _rest_before(context, op, domain, kernel, target, rest), ()
    partial = _by_cell(op, domain) if results is None or rest is None else _by_index(results)
    own = partial.target == partial.cell and op.acc is op.type.dtype and rest is not None
    accumulator = target if own else kernel.alloc(f"{target}_acc", op.acc, partial.sizes)
    _stages(_Plan(context, op, domain, kernel, target, accumulator, rest), partial)
    return kernel


def _rest_before(
    context: Context, op: Contraction, domain: FlatDomain, kernel: Kernel, target: str, rest: tuple[Region, ...]
) -> Kernel:
    """A kernel for each region of cells that no tuple writes; the one after them."""
    for number, region in enumerate(rest):
        _fill_region(_Plan(context, op, domain, kernel, target, target, rest), region, number)
        context.add(kernel)
        kernel = _kernel(context, op)
    return kernel


def _results(op: Contraction, domain: FlatDomain, context: Context) -> FlatDomain | None:
    """What chooses a cell of the result: the indexes of its subscripts and the constraints of these alone.

    None where each subscript moves with one index step by step, so that cells are as good a name, and where several tuples
    choose one cell.
    """
    if all(len(f.terms) < 2 and all(abs(step) == 1 for _, step in f.terms) for f in domain.output):
        return None
    moving = names_in(domain.output)
    pairs = [(n, r) for n, r in domain.extents.items() if n in moving]
    if prod(r for _, r in pairs) > WASTE * op.type.size:
        return None
    names, ranges = zip(*pairs, strict=True)
    limits = [c for c in domain.constraints if moving.issuperset(c.names)]
    bounds = {n: (0, r - 1) for n, r in pairs}
    inside = (s for f, n in zip(domain.output, op.type.shape, strict=True) for s in (f, f * -1 + (n - 1)))
    limits += (side for side in inside if side.bounds(bounds)[0] < 0 and side not in limits)
    results = FlatDomain(names, ranges, tuple(limits), domain.output, ())
    return results if context.sets.injective(names, (*results.box, *limits), results.output) else None


@frozen
class _Partial:
    """Where partial results lie: `sizes` of them, of which those with negative `limits` are none."""

    sizes: tuple[int, ...]
    cell: tuple[Affine, ...]
    """A partial result's place, and ..."""
    target: tuple[Affine, ...]
    """... the cell of the result that it becomes."""
    taken: tuple[Affine, ...]
    """The place by the contraction's indexes."""
    limits: tuple[Affine, ...] = ()


def _by_cell(op: Contraction, domain: FlatDomain) -> _Partial:
    """Where the cells of the result are."""
    return _Partial(op.type.shape, cell_of(op.type.shape), cell_of(op.type.shape), domain.output)


def _by_index(results: FlatDomain) -> _Partial:
    """By the indexes that choose a cell, each of which an item can then have for itself.

    By the cell's subscripts, like ``2*i + k``, they would be an item's for whole dimensions at once.
    """
    names, sizes = zip(*((name, size) for name, size, *_ in _loops(results)), strict=True)
    cell = cell_of(sizes)
    chosen = dict(zip(names, cell, strict=True))
    target = tuple(f.substitute(chosen) for f in results.output)
    limits = tuple(c.substitute(chosen) for c in results.constraints)
    return _Partial(sizes, cell, target, tuple(Affine.var(n) for n in names), limits)


def _stages(plan: _Plan, partial: _Partial) -> None:
    """Initialise, aggregate, cast, and fill what no tuple wrote."""
    op, kernel, accumulator = plan.op, plan.kernel, plan.accumulator
    hit = kernel.alloc(f"{plan.target}_hit", DType.BOOL, partial.sizes) if plan.rest is None else None
    stage = kernel.stage("init", loops_over(partial.sizes))  # all, whatever of them a schedule adds up
    stage.store(accumulator, partial.cell, stage.const(op.acc.number(op.agg.identity(op.acc)), op.acc))
    if hit is not None:
        fill(kernel, "init_hit", hit, partial.sizes, False)
    stage = kernel.stage("acc", _loops(plan.domain), plan.domain.constraints)
    value = _body(plan.context, op, plan.domain, stage)
    stage.store(accumulator, partial.taken, value.cast(op.acc), agg=op.agg)
    if hit is not None:
        stage.store(hit, partial.taken, stage.const(True, DType.BOOL), agg=Aggregation.MAX)
        _select(plan, hit)
    elif accumulator != plan.target:
        _finish(plan, partial)
    for k, region in enumerate(plan.rest or ()):
        _fill_region(plan, region, k)


def _finish(plan: _Plan, partial: _Partial) -> None:
    """Cast the accumulator to the output."""
    stage = plan.kernel.stage("cast", loops_over(partial.sizes), partial.limits)
    stage.store(plan.target, partial.target, stage.load(plan.accumulator, partial.cell).cast(plan.op.type.dtype))


def _select(plan: _Plan, hit: str) -> None:
    """The accumulator where some tuple wrote, elsewhere 0 or the default."""
    shape = plan.op.type.shape
    stage = plan.kernel.stage("select", loops_over(shape))
    cell = cell_of(shape)
    flag = stage.load(hit, cell)
    value = stage.load(plan.accumulator, cell).cast(plan.op.type.dtype)
    stage.store(plan.target, cell, flag.choose(value, _otherwise(plan, stage, cell)))


def _fill_region(plan: _Plan, region: Region, number: int) -> None:
    loops: list[Loop] = list(zip(region.names, region.ranges, strict=True))
    stage = plan.kernel.stage(f"rest_{number}", loops, region.constraints)
    stage.store(plan.target, region.cell, _otherwise(plan, stage, region.cell))


def _otherwise(plan: _Plan, stage: Stage, cell: tuple[Affine, ...]) -> Scalar:
    if plan.op.default is None:
        return stage.const(plan.op.type.dtype.number(0), plan.op.type.dtype)
    return stage.load(plan.context.buffers[plan.op.default], cell)


def _loops(domain: FlatDomain) -> list[Loop]:
    """Indexes of the output first, by dimension, then the reduction's."""
    order = {name: (1, len(domain.output)) for name in domain.names}
    for dim, form in reversed(list(enumerate(domain.output))):
        order.update(dict.fromkeys(form.names, (0, dim)))
    table = domain.extents
    coarse = {n: -max((abs(f.coefficient(n)) for f in domain.output), default=0) for n in domain.names}
    return [(name, table[name]) for name in sorted(domain.names, key=lambda n: (order[n], coarse[n], n))]


def _body(context: Context, op: Contraction, domain: FlatDomain, stage: Stage) -> Scalar:
    """The result of the contraction's loads and scalar statements."""
    values: dict[str, Scalar] = {}

    def scalar(arg: Operand) -> Scalar:
        return stage.const_of(arg) if isinstance(arg, Literal) else values[arg]

    for load, access in zip(op.loads, domain.accesses, strict=True):
        given = load.tensor
        values[load.dst] = stage.load(context.buffers[given], access) if isinstance(given, str) else scalar(given)
    for s in op.body:
        values[s.dst] = stage.op(s.fn, [scalar(a) for a in s.args], s.dtype, op.name)
    return scalar(op.result)
