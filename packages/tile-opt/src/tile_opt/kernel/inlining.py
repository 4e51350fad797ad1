"""A kernel that makes a buffer element by element, as part of what reads it: its body in place of their loads."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from tile_ir.frozen import frozen
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Const, Load, LoadIndex, Op, Statement, Store
from tile_ir.stripe.walk import renamed, with_scalars

from tile_opt.kernel.regroup import fresh_all
from tile_opt.kernel.unify import plain_loop
from tile_opt.kernel.view import KernelView, Stage, Use
from tile_opt.kernel.work import is_elementwise, is_heavy

_PLAIN = (Load, Const, Op, LoadIndex, Store)


def producer_of(view: KernelView, temps: Collection[str]) -> Use | None:
    """The one access an inlinable kernel writes: a whole temporary, each cell once, by plain loops."""
    if len(view.stages) != 1 or view.loops or view.allocs:
        return None
    stage = view.stages[0]
    outs = [u for u in stage.uses if u.writes]
    if len(outs) != 1 or outs[0].buffer not in temps or not _flat_elementwise(stage):
        return None
    sizes = view.type_of(outs[0].buffer).sizes
    named = [plain_loop(f, stage, s) for f, s in zip(outs[0].forms, sizes, strict=True) if s != 1]
    covers = None not in named and len(set(named)) == len(named) == len([i for i in stage.loops if i.range > 1])
    return outs[0] if covers and all(f.is_const for f, s in zip(outs[0].forms, sizes, strict=True) if s == 1) else None


def _flat_elementwise(stage: Stage) -> bool:
    if stage.constraints or stage.guard or not is_elementwise(stage):
        return False
    return all(isinstance(s, Const | Op | LoadIndex) or (isinstance(s, Load | Store) and not s.at) for s in stage.body)


def is_operand(view: KernelView, stage: Stage, buffer: str) -> bool:
    """The stage is a product that reads the buffer in rows and columns, which tiles of it may be copies of."""
    forms = [f for u in stage.uses if u.buffer == buffer for f in u.forms]
    plain = all(f.is_const or (len(f.terms) == 1 and f.terms[0][1] == 1) for f in forms)
    return plain and is_heavy(view, stage)


def inlined(reader: KernelView, view: KernelView, producer: Use) -> KernelView:
    """`reader` computing itself what `view` writes by the access `producer`."""
    stages = tuple(inlined_stage(s, view.stages[0], producer) for s in reader.stages)
    refs = {r.into: r for r in reader.refs if r.into != producer.buffer}
    refs |= {r.into: r for r in view.refs if r.into != producer.buffer and r.into not in refs}
    return replace(reader, stages=stages, refs=tuple(refs.values()))


def computed(stage: Stage, made: Mapping[str, KernelView]) -> Stage:
    """`stage` computing itself what it reads of the buffers that the kernels `made`, of one stage each, write."""
    for buffer in {u.buffer for u in stage.uses if u.reads} & made.keys():
        (producer,) = made[buffer].stages
        stage = inlined_stage(stage, producer, next(u for u in producer.uses if u.writes))
    return stage


def with_sources(view: KernelView, made: Mapping[str, KernelView]) -> KernelView:
    """`view` with a reference to all that the kernels `made` read."""
    known = {r.into for r in view.refs}
    refs = {r.into: r for maker in made.values() for r in maker.refs if r.into in maker.reads() - known}
    return replace(view, refs=(*view.refs, *refs.values())) if refs else view


def inlined_stage(stage: Stage, producer: Stage, out: Use) -> Stage:
    """`stage` computing itself what `producer` writes by the access `out`."""
    while True:
        use = next((u for u in stage.uses if u.buffer == out.buffer), None)
        if use is None:
            return stage
        stage = _inlined_use(stage, use, producer, out)


def _inlined_use(stage: Stage, use: Use, producer: Stage, out: Use) -> Stage:
    """Replace the loads through `use` by the producer's body at the point the use subscripts.

    The longer of the two bodies keeps its names: in a long chain that is the producer's, which every step would rename.
    """
    point = {name: theirs for mine, theirs in zip(out.forms, use.forms, strict=True) for name in mine.names}
    point |= {i.name: Affine() for i in producer.loops if i.name not in point}
    moved = producer.substitute(point)
    inner = _Body(moved.body, tuple(u for u in moved.uses if u.name != out.name))
    outer = _Body(stage.body, tuple(u for u in stage.uses if u is not use))
    if len(inner.statements) > len(outer.statements) and all(isinstance(s, _PLAIN) for s in outer.statements):
        outer = outer.apart_from(inner, {use.name}).sharing(inner, use.name)
    else:
        inner = inner.apart_from(outer, {out.name, use.name})
    body, stored = inner.without_store(out.name)
    return replace(stage, uses=inner.uses + outer.uses, body=_spliced(outer.statements, use.name, body, stored))


@frozen
class _Body:
    """Statements, and the accesses that they go through."""

    statements: tuple[Statement, ...]
    uses: tuple[Use, ...]

    @property
    def scalars(self) -> set[str]:
        return {s.dst for s in self.statements if isinstance(s, (Load, Const, Op, LoadIndex))}

    def apart_from(self, other: _Body, kept: set[str]) -> _Body:
        """The same under names that `other` does not use; accesses called `kept` keep theirs."""
        uses = fresh_all((u.name for u in self.uses), {u.name for u in other.uses} | kept)
        scalars: dict[str, str] = {}
        taken = other.scalars
        made = tuple(renamed(s, scalars, uses, taken) for s in self.statements)
        return _Body(made, tuple(replace(u, name=uses[u.name]) for u in self.uses))

    def sharing(self, early: _Body, use: str) -> _Body:
        """The same without loads of what `early` has loaded, which will stand at the first load through `use`."""
        at = next(k for k, s in enumerate(self.statements) if isinstance(s, Load) and s.src == use)
        if not all(isinstance(s, (Load, Const, LoadIndex)) for s in self.statements[:at]):
            return self
        written = {u.buffer for u in self.uses if u.writes}
        known = {(u.buffer, u.forms): u.name for u in early.uses if not u.extent}
        twice = {u.name: known.get((u.buffer, u.forms)) for u in self.uses if not u.extent and u.buffer not in written}
        loaded = {s.src: s.dst for s in early.statements if isinstance(s, Load) and not s.at}
        alias: dict[str, str] = {}
        kept: list[Statement] = []
        for s in self.statements:
            scalar = loaded.get(twice.get(s.src) or "") if isinstance(s, Load) and not s.at else None
            if isinstance(s, Load) and scalar is not None:
                alias[s.dst] = scalar
            else:
                kept.append(with_scalars(s, alias))
        read = {s.src for s in kept if isinstance(s, Load)}
        return _Body(tuple(kept), tuple(u for u in self.uses if u.writes or u.name in read))

    def without_store(self, out: str) -> tuple[tuple[Statement, ...], str]:
        """The statements but the store through `out`, and the scalar that it stores."""
        stored = next(s.src for s in self.statements if isinstance(s, Store) and s.dst == out)
        return tuple(s for s in self.statements if not isinstance(s, Store)), stored


def _spliced(body: tuple[Statement, ...], use: str, inner: tuple[Statement, ...], stored: str) -> tuple[Statement, ...]:
    """`body` with the loads from `use` replaced by `inner` (once), their scalars by `stored`."""
    out: list[Statement] = []
    alias: dict[str, str] = {}
    placed = False
    for s in body:
        if isinstance(s, Load) and s.src == use:
            if not placed:
                out.extend(inner)
                placed = True
            alias[s.dst] = stored
        else:
            out.append(with_scalars(s, alias))
    return tuple(out)
