"""Kernels over rows (`kernel.rows_in_steps`) that keep what is their own in float32, where the program says shorter floats.

Loads widen, stores to memory round, and weights are rounded where a product takes them: their sums are those of what
they were before. Results are nearer to the exact ones than the program asks, and not bit by bit its own: for kernels whose
factors may be rounded anyway (`Options.reduced_precision`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tile_ir.dtype import DType
from tile_ir.frozen import replace
from tile_ir.stripe.nodes import Const, Direction, Load, LoadIndex, Op, Refinement, Statement, Store

from tile_opt.kernel.rows_in_steps import RowsInSteps
from tile_opt.kernel.view import KernelView, Stage

SHORT = (DType.BFLOAT16, DType.FLOAT16)
WIDE = DType.FLOAT32


def unrounded(kinds: RowsInSteps) -> RowsInSteps:
    """The kernel with its own buffers of short floats in float32; what a product takes as its factor is rounded in front of it."""
    name, view = weights_of(kinds), kinds.view
    *firsts, values = (view.stages[k] for k in kinds.products)
    if view.type_of(name).dtype not in SHORT:
        return replace(kinds, view=_widened(view, (*firsts, values)))
    factor = next(a for a in view.allocs if a.into == name)
    short = replace(factor, into=f"{name}_short")
    taken = tuple(replace(u, buffer=short.into) if u.buffer == name else u for u in values.uses)
    product = replace(values, uses=taken)
    before, after = view.stages[: kinds.values], view.stages[kinds.values + 1 :]
    stages = (*before, _rounding(kinds, name, short.into), product, *after)
    split = replace(view, allocs=(*view.allocs, short), stages=stages)
    ready = _widened(split, (*firsts, product), short.into)
    return _renumbered(replace(kinds, view=ready, wide={**kinds.wide, short.into: kinds.wide[name]}))


def weights_of(kinds: RowsInSteps) -> str:
    """The buffer of the weights that the second product takes."""
    return next(u.buffer for u in kinds.view.stages[kinds.values].uses if u.buffer in kinds.wide)


def _rounding(kinds: RowsInSteps, name: str, short: str) -> Stage:
    """The stage that puts the weights `name` into `short`."""
    number, made = next(
        (k, u) for k in kinds.pieces for u in kinds.view.stages[k].uses if u.writes and u.buffer == name
    )
    loop = next(i for i in kinds.view.stages[number].loops if i.name == kinds.pieces[number])
    source = replace(made, name="src", dir=Direction.IN, agg=None)
    target = replace(made, name="dst", buffer=short)
    body = (Load("$x", "src"), Op("$short", "cast", ("$x",), kinds.view.type_of(name).dtype), Store("dst", "$short"))
    return Stage("rounding", (loop,), (), (source, target), body)


def _renumbered(kinds: RowsInSteps) -> RowsInSteps:
    """With one stage more in front of the second product, which walks rows."""
    new = kinds.values
    (loop,) = kinds.view.stages[new].loops
    pieces, columns = ({k + (k >= new): n for k, n in m.items()} for m in (kinds.pieces, kinds.columns))
    pieces = dict(sorted({**pieces, new: loop.name}.items()))
    return replace(kinds, values=new + 1, pieces=pieces, columns=columns)


def _widened(view: KernelView, products: tuple[Stage, ...], kept: str = "") -> KernelView:
    """The kernel with its own short floats in float32, but for one buffer; products widen their factors themselves."""
    allocs = tuple(a if a.into == kept else _wide(a) for a in view.allocs)
    dtypes = {u.buffer: view.type_of(u.buffer).dtype for s in view.stages for u in s.uses}
    dtypes |= {a.into: a.type.dtype for a in allocs}
    stages = (s if s in products else _Widening(s, dtypes).stage() for s in view.stages)
    return replace(view, allocs=allocs, stages=tuple(stages))


def _wide(alloc: Refinement) -> Refinement:
    short = alloc.type.dtype in SHORT
    return replace(alloc, type=replace(alloc.type, dtype=WIDE)) if short else alloc


@dataclass(frozen=True, slots=True)
class _Widening:
    """A stage whose scalars become float32."""

    before: Stage
    dtypes: Mapping[str, DType]
    """Of buffers, as they are from now on."""

    def stage(self) -> Stage:
        return replace(self.before, body=tuple(new for s in self.before.body for new in self._statements(s)))

    def _statements(self, statement: Statement) -> Iterator[Statement]:
        match statement:
            case Load(dst=dst, src=src) if self._dtype(src) in SHORT:
                yield from (replace(statement, dst=f"{dst}_short"), Op(dst, "cast", (f"{dst}_short",), WIDE))
            case Store(dst=dst, src=src) if self._dtype(dst) in SHORT:
                short = f"{src}_stored"
                yield from (Op(short, "cast", (src,), self._dtype(dst)), replace(statement, src=short))
            case Op(dst=dst, name="div", args=(left, right)) if statement.dtype in (*SHORT, WIDE):
                # Scores of a row, or of a column, have one divisor: what is divided by it is multiplied, many times.
                yield from (Op(f"{dst}_part", "recip", (right,), WIDE), Op(dst, "mul", (left, f"{dst}_part"), WIDE))
            case Op() | Const() | LoadIndex() if statement.dtype in SHORT:
                yield replace(statement, dtype=WIDE)
            case _:
                yield statement

    def _dtype(self, access: str) -> DType:
        return self.dtypes[self.before.use(access).buffer]
