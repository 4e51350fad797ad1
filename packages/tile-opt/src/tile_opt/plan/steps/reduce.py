"""Partial results of a reduction, side by side: one per lane, copy or item, combined when all are there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import gcd

from tile_ir.frozen import frozen, replace
from tile_ir.names import claim
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Bind, Direction, Index, Refinement, TensorType

from tile_opt.kernel.unify import is_indirect
from tile_opt.kernel.view import Stage, Use
from tile_opt.kernel.work import merged_use
from tile_opt.plan.tree import REGISTER, Around, Nest, Node, Ranges, each_stage, map_stages, spans, stages_of


@frozen
class Ways:
    """Partial results along one loop: its iterations in a whole tile, in vectors of so many lanes."""

    size: int
    lanes: int = 1


def keep_partials(nest: Nest, ways: Mapping[str, Ways], name: str, around: Around) -> Nest:
    """`nest`, whose stages aggregate into one buffer, with a partial result for each iteration of the loops `ways`.

    Stages where such a loop is no multiple of its lanes (remainders) aggregate directly. The partial results start at
    the identity in front, and are merged into the buffer after the nest.
    """
    wide = [s for s in stages_of(nest) if _is_wide(s, ways)]
    merged = [u for s in wide if (u := merged_use(s)) is not None and not is_indirect(s, u)]
    if not merged:
        return nest
    use = merged[0]
    whole = around.buffers[use.buffer].type
    windows = _windows(nest, use.buffer, ways, around)
    sizes = (*(w.size for w in windows), *(w.size for w in ways.values()))
    type = TensorType.row_major(whole.dtype, sizes, align=64)
    alloc = Refinement.allocation(name, type, REGISTER)
    way = tuple(Affine.var(n) for n in ways)

    def moved(stage: Stage) -> Stage:
        if not _is_wide(stage, ways):
            return stage
        uses = tuple(
            replace(u, buffer=name, forms=(*(w.inside(f) for w, f in zip(windows, u.forms, strict=True)), *way))
            if u.buffer == use.buffer
            else u
            for u in stage.uses
        )
        return replace(stage, uses=uses)

    inner = map_stages(replace(nest, guard=()), moved)
    partials = _Partials(alloc, use, ways, windows, around)
    body = (partials.start(), inner, *partials.finish(inner))
    return Nest(nest.name, body=body, guard=nest.guard, allocs=(alloc,))


@frozen
class _Window:
    """The cells of a dimension that a nest meets where the loops around it stand: `first`, and each `step` after it."""

    first: Affine
    step: int
    size: int

    def inside(self, form: Affine) -> Affine:
        """The number of the cell that a subscript in the nest means."""
        rest = form - self.first
        return Affine.of([(n, c // self.step) for n, c in rest.terms], rest.const // self.step)


def _windows(nest: Nest, buffer: str, ways: Mapping[str, Ways], around: Around) -> tuple[_Window, ...]:
    """One for each dimension. Cells beside them are another iteration's, which may run at the same time."""
    met: list[tuple[tuple[Affine, ...], Ranges]] = []

    def look(stage: Stage, inside: Around) -> Stage:
        if _is_wide(stage, ways):
            met.extend((u.forms, {**inside.ranges, **spans(stage.loops)}) for u in stage.uses if u.buffer == buffer)
        return stage

    each_stage(nest, look, around)
    sizes = around.buffers[buffer].type.sizes
    return tuple(_window([(forms[d], r) for forms, r in met], size, around) for d, size in enumerate(sizes))


def _window(met: Sequence[tuple[Affine, Ranges]], size: int, around: Around) -> _Window:
    """The whole dimension where the loops around the nest do not move all subscripts alike."""
    outer = {Affine.of([(n, c) for n, c in f.terms if n in around.ranges], 0) for f, _ in met}
    if len(outer) > 1:
        return _Window(Affine(), 1, size)
    (base,) = outer
    rests = [(f - base, r) for f, r in met]
    low = min(f.bounds(r)[0] for f, r in rests)
    high = max(f.bounds(r)[1] for f, r in rests)
    step = gcd(*(c for f, _ in rests for _, c in f.terms), *(f.const - low for f, _ in rests)) or 1
    return _Window(base + low, step, (high - low) // step + 1)


def _is_wide(stage: Stage, ways: Mapping[str, Ways]) -> bool:
    ranges = {i.name: i.range for i in stage.loops}
    return merged_use(stage) is not None and all(n in ranges and ranges[n] % w.lanes == 0 for n, w in ways.items())


def _held(node: Node, buffer: str) -> tuple[frozenset[Affine], tuple[Use, ...]]:
    """What holds wherever something is aggregated into a buffer, and all that do."""
    if isinstance(node, Stage):
        return frozenset((*node.constraints, *node.guard)), tuple(u for u in node.uses if u.buffer == buffer)
    if not isinstance(node, Nest):
        return frozenset(), ()
    inner = [(held, uses) for held, uses in (_held(n, buffer) for n in node.body) if uses]
    common = frozenset[Affine].intersection(*(held for held, _ in inner)) if inner else frozenset[Affine]()
    return common.union(node.constraints, node.guard), tuple(u for _, uses in inner for u in uses)


@frozen
class _Partials:
    """Where partial results are, what they are of, and which cells of it they are for."""

    alloc: Refinement
    use: Use
    ways: Mapping[str, Ways]
    windows: tuple[_Window, ...]
    around: Around

    def start(self) -> Stage:
        assert self.use.agg is not None
        loops, cell = self._cells(self.ways)
        target = Use("acc", self.alloc.into, cell, Direction.OUT)
        return Stage.start(f"{self.alloc.into}_start", loops, target, self.use.agg, self.alloc.type.dtype)

    def finish(self, nest: Nest) -> Iterator[Stage]:
        """Vectors of partial results into the first one, then its lanes into the cell."""
        name, ways = self.alloc.into, self.ways
        one = {n: replace(w, size=w.lanes) if w.lanes > 1 and w.size % w.lanes == 0 else w for n, w in ways.items()}
        loops, cell = self._cells(one)
        for n, w in ways.items():
            if w.size > one[n].size:
                taken = {*self.around.ranges, *(i.name for i in loops)}
                copy = Index(claim(f"{n}_copy", taken), w.size // w.lanes - 1, bind=Bind.UNROLL)
                step = {n: Affine.var(n) + Affine.var(copy.name, w.lanes) + w.lanes}
                part = Use("part", name, tuple(c.substitute(step) for c in cell), Direction.IN)
                out = Use("out", name, cell, Direction.INOUT, agg=self.use.agg)
                yield Stage.copy(f"{name}_{n}", (copy, *loops), part, out, value="$a")
        forms = tuple(w.first + c * w.step for w, c in zip(self.windows, cell, strict=False))
        part, out = Use("part", name, cell, Direction.IN), replace(self.use, name="out", forms=forms)
        limits = (*self._limits(forms, loops), *self._conditions(nest, cell))
        yield Stage.copy(f"{name}_merge", loops, part, out, tuple(dict.fromkeys(limits)), "$a")

    def _cells(self, ways: Mapping[str, Ways]) -> tuple[tuple[Index, ...], tuple[Affine, ...]]:
        """Loops over all partial results, and their subscripts; loops keep their names, so that they are bound alike."""
        rank = len(self.windows)
        taken = {*self.around.ranges, *ways}
        loops: list[Index] = []
        cell: list[Affine] = []
        for d, size in enumerate(self.alloc.type.sizes[:rank]):
            if size > 1:
                loops.append(Index(claim(_alone(self.use.forms[d]) or f"{self.alloc.into}_{d}", taken), size))
            cell.append(Affine.var(loops[-1].name) if size > 1 else Affine())
        return (*loops, *(Index(n, w.size) for n, w in ways.items())), (*cell, *(Affine.var(n) for n in ways))

    def _limits(self, forms: Sequence[Affine], loops: tuple[Index, ...]) -> Iterator[Affine]:
        """Constraints that keep subscripts in the buffer, where they may leave it: those of the stages do not hold here."""
        ranges = {**self.around.ranges, **spans(loops)}
        for form, size in zip(forms, self.around.buffers[self.use.buffer].type.sizes, strict=True):
            low, high = form.bounds(ranges)
            if low < 0:
                yield form
            if high >= size:
                yield form * -1 + (size - 1)

    def _conditions(self, nest: Nest, cell: Sequence[Affine]) -> Iterator[Affine]:
        """Those of the stages that depend on the cell alone: nobody may have set what lies beside these cells."""
        held, uses = _held(nest, self.alloc.into)
        met = {name: cell[d] for d in range(len(self.windows)) if (name := _same([u.forms[d] for u in uses]))}
        known = {*self.around.ranges, *met}
        yield from (c.substitute(met) for c in sorted(held, key=str) if known.issuperset(c.names))


def _same(forms: Sequence[Affine]) -> str:
    """The one loop that all of these are; "" for anything else."""
    return _alone(forms[0]) if len({*forms}) == 1 else ""


def _alone(form: Affine) -> str:
    """The one loop that moves a subscript step by step; "" for any other form."""
    return form.terms[0][0] if form.terms and form == Affine.var(form.terms[0][0]) else ""
