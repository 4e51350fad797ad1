"""Scatter: initial values, then an aggregating store with subscripts that are values, then what nothing fell on.

Loops are ordered where two cells of the updates may meet in one of the result: sums round as in row-major order, and
the last value that ``=`` gives stays. A loop is free where its coordinate is itself a subscript.
"""

from __future__ import annotations

from tile_ir.dtype import DType
from tile_ir.ops import Aggregation
from tile_ir.program.nodes import Lookup, Poly, Scatter, coordinates
from tile_ir.program.printer import print_op
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Order

from tile_opt.program.literals import rests_at_identity
from tile_opt.translate.build import Kernel, Loop, Scalar, Stage, cell_of, loops_over
from tile_opt.translate.context import Context, fill
from tile_opt.translate.gather import looked_up


def scatter(context: Context, op: Scatter) -> None:
    """``out[subscripts…] = agg(updates[i0, i1, …])`` over the default or zeros: kernels for each step, as wide as it is."""
    if 0 in op.type.shape:
        return
    target = context.buffers[op.name]
    nothing = 0 in context.shape(op.updates)
    if nothing or op.agg is Aggregation.ASSIGN:
        _prefill(context, op, target)
        if not nothing:
            _place(context, op, target)
    elif rests_at_identity(op, context.makers):
        _from_identity(context, op, target)
    else:
        _aggregate(context, op, target)


def _kernel(context: Context, op: Scatter) -> Kernel:
    return context.kernel(print_op(op), ("scatter",), op.origin)


def _prefill(context: Context, op: Scatter, target: str) -> None:
    """Every cell gets the default, or 0."""
    if op.default is None:
        _fill(context, op, target, op.type.shape, op.type.dtype.number(0))
        return
    kernel = _kernel(context, op)
    stage = kernel.stage("default", loops_over(op.type.shape))
    cell = cell_of(op.type.shape)
    stage.store(target, cell, stage.load(context.buffers[op.default], cell))
    context.add(kernel)


def _fill(context: Context, op: Scatter, buffer: str, shape: tuple[int, ...], value: int | float | bool) -> None:
    kernel = _kernel(context, op)
    fill(kernel, "init", buffer, shape, value)
    context.add(kernel)


def _from_identity(context: Context, op: Scatter, target: str) -> None:
    """No flags: what nothing falls on stays as it is."""
    shape, dtype = op.type.shape, op.type.dtype
    accumulator = target if op.acc is dtype else context.temporary(f"{target}_acc", op.acc, shape)
    _fill(context, op, accumulator, shape, op.acc.number(op.agg.identity(op.acc)))
    _place(context, op, accumulator)
    if accumulator != target:
        kernel = _kernel(context, op)
        stage = kernel.stage("cast", loops_over(shape))
        stage.store(target, cell_of(shape), stage.load(accumulator, cell_of(shape)).cast(dtype))
        context.add(kernel)


def _aggregate(context: Context, op: Scatter, target: str) -> None:
    """Partial results from the identity on, with flags for the cells that got a value."""
    shape, flags = op.type.shape, _flagged(op, context.shape(op.updates))
    accumulator = context.temporary(f"{target}_acc", op.acc, shape)
    hit = context.temporary(f"{target}_hit", DType.BOOL, flags)
    _fill(context, op, accumulator, shape, op.acc.number(op.agg.identity(op.acc)))
    _fill(context, op, hit, flags, False)
    _place(context, op, accumulator)
    _flag(context, op, hit, flags)
    _select(context, op, target, accumulator, hit, flags)


def _select(context: Context, op: Scatter, target: str, accumulator: str, hit: str, flags: tuple[int, ...]) -> None:
    """The accumulator where something fell, elsewhere 0 or the default."""
    shape, dtype = op.type.shape, op.type.dtype
    kernel = _kernel(context, op)
    stage = kernel.stage("select", loops_over(shape))
    cell = cell_of(shape)
    flag = stage.load(hit, tuple(f if n == m else Affine() for f, n, m in zip(cell, shape, flags, strict=True)))
    value = stage.load(accumulator, cell).cast(dtype)
    stage.store(target, cell, flag.choose(value, _otherwise(context, op, stage)))
    context.add(kernel)


def _otherwise(context: Context, op: Scatter, stage: Stage) -> Scalar:
    if op.default is None:
        return stage.const(op.type.dtype.number(0), op.type.dtype)
    return stage.load(context.buffers[op.default], cell_of(op.type.shape))


def _place(context: Context, op: Scatter, buffer: str) -> None:
    """Each value to its cell of `buffer`."""
    cells, kernel = context.shape(op.updates), _kernel(context, op)
    stage = kernel.stage("scatter", _loops(op, cells))
    cell = looked_up(context, stage, op.subscripts, op.type.shape, cells)
    value = stage.load(context.buffers[op.updates], cell_of(cells)).cast(kernel.dtype(buffer))
    stage.store(buffer, cell, value, agg=None if op.agg is Aggregation.ASSIGN else op.agg, clamp=True)
    context.add(kernel)


def _flag(context: Context, op: Scatter, hit: str, flags: tuple[int, ...]) -> None:
    """True for each cell that a value falls on; one flag where a whole line is written together."""
    cells, kernel = context.shape(op.updates), _kernel(context, op)
    lines = {k for k, n in enumerate(flags) if n != op.type.shape[k]}
    kept = tuple(Poly() if k in lines else s for k, s in enumerate(op.subscripts))
    named = {n for s in kept for f in (s.formulas if isinstance(s, Lookup) else (s,)) for n in f.names}
    loops = [loop for loop in _loops(op, cells) if loop[0] in named]
    # All that fall on one flag store the same.
    stage = kernel.stage("hit", [(n, r) for n, r, *_ in loops])
    cell = looked_up(context, stage, kept, flags, cells)
    stage.store(hit, cell, stage.const(True, DType.BOOL), clamp=True)
    context.add(kernel)


def _flagged(op: Scatter, cells: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of the flags: 1 where all cells of a dimension get values together."""
    data = {n for s in op.subscripts if isinstance(s, Lookup) for f in s.formulas for n in f.names}
    bare = {f: k for k, f in enumerate(coordinates(len(cells))) if f.names[0] not in data}
    return tuple(
        1 if isinstance(s, Poly) and s in bare and cells[bare[s]] == n else n
        for s, n in zip(op.subscripts, op.type.shape, strict=True)
    )


def _loops(op: Scatter, cells: tuple[int, ...]) -> list[Loop]:
    free = {s.names[0] for s in op.subscripts if isinstance(s, Poly) and s in coordinates(len(cells))}
    loops: list[Loop] = [(n, r) if n in free else (n, r, Order.ORDERED) for n, r, *_ in loops_over(cells)]
    return sorted(loops, key=len)
