"""Kernels over rows (`kernel.rows_in_steps`) that keep what is their own in float32, where the program says shorter floats.

Loads widen, stores to memory round, and weights are rounded where a product takes them: their sums are those of what
they were before. Results are nearer to the exact ones than the program asks, and not bit by bit its own: for kernels whose
factors may be rounded anyway (`Options.reduced_precision`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass

from tile_ir.dtype import DType
from tile_ir.frozen import replace
from tile_ir.stripe.nodes import Const, Direction, Load, LoadIndex, Op, Refinement, Statement, Store

from tile_opt.kernel.rows_in_steps import RowsInSteps
from tile_opt.kernel.view import KernelView, Stage

SHORT = (DType.BFLOAT16, DType.FLOAT16)
WIDE = DType.FLOAT32


def unrounded(kinds: RowsInSteps) -> RowsInSteps:
    """The kernel with its own buffers of short floats in float32; what products take as their factors is rounded in front of them."""
    view, weights = kinds.view, dict.fromkeys(map(kinds.weights, kinds.lasts))
    short = {name: f"{name}_short" for name in weights if view.type_of(name).dtype in SHORT}
    factors = tuple(replace(a, into=short[a.into]) for a in view.allocs if a.into in short)
    products = {k: view.stages[k].with_buffers(short) if k in kinds.lasts else view.stages[k] for k in kinds.products}
    stages = [products.get(k, s) for k, s in enumerate(view.stages)]
    first = min(kinds.lasts)
    stages[first:first] = (_rounding(kinds, name, new) for name, new in short.items())
    split = replace(view, allocs=(*view.allocs, *factors), stages=tuple(stages))
    ready = _widened(split, tuple(products.values()), {*short.values()})
    wide = {**kinds.wide, **{new: kinds.wide[name] for name, new in short.items()}}
    return _renumbered(replace(kinds, view=ready, wide=wide), first, len(short))


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


def _renumbered(kinds: RowsInSteps, first: int, count: int) -> RowsInSteps:
    """With so many stages more in front of one, each of which walks rows."""
    moved = [k + count * (k >= first) for k in range(len(kinds.view.stages))]
    pieces, columns = ({moved[k]: n for k, n in m.items()} for m in (kinds.pieces, kinds.columns))
    pieces |= {k: kinds.view.stages[k].loops[0].name for k in range(first, first + count)}
    lasts, across = tuple(moved[k] for k in kinds.lasts), {b: moved[k] for b, k in kinds.across.items()}
    return replace(kinds, lasts=lasts, across=across, pieces=dict(sorted(pieces.items())), columns=columns)


def _widened(view: KernelView, products: tuple[Stage, ...], kept: Set[str]) -> KernelView:
    """The kernel with its own short floats in float32, but for some buffers; products widen their factors themselves."""
    allocs = tuple(a if a.into in kept else _wide(a) for a in view.allocs)
    dtypes = {u.buffer: view.type_of(u.buffer).dtype for u in view.uses}
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
