"""The stages by which the items of a group that share a scan hand on what their runs hold.

total[s] = what run s makes of nothing: the aggregate of its elements, or what its linear steps make of 0
factor[s] = what run s multiplies with, where its steps are linear and no aggregation
carry[s] = carry of the tile, taken through runs 0 to s - 1: aggregated with each total, or ``factor * carry + total``
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from tile_ir.frozen import frozen, replace
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import (
    Bind,
    Const,
    Direction,
    Index,
    Load,
    Location,
    Op,
    Order,
    Refinement,
    Statement,
    Store,
    Sync,
    TensorType,
)

from tile_opt.kernel.view import KernelView, Stage, Use
from tile_opt.plan.steps.groups.carries import carry_of, dependent, moving_uses
from tile_opt.plan.steps.groups.linear import times
from tile_opt.plan.steps.groups.scan_shares import RUN, Piece, Shares
from tile_opt.plan.tree import REGISTER, Node

KEPT = 64
"""Elements that an item keeps in registers."""
_FACTOR = "$factor"


@frozen
class Total:
    """Something that runs hold: in a register of an item, and in the group's memory for all of them."""

    name: str
    own: Refinement
    every: Refinement
    nothing: int | float
    """What it is of no steps."""


class Scanned(Protocol):
    """A kernel whose groups go along rows of a scan, tile by tile."""

    view: KernelView
    scan: Stage
    cell: Index
    cells: int
    """Of a tile."""
    shares: Shares

    def local(self, wanted: str, type: TensorType) -> Refinement: ...
    def made(self, wanted: str, type: TensorType, loc: Location) -> Refinement: ...
    def scanned(self, tiles: Mapping[str, Refinement], kept: Mapping[str, Refinement], piece: Piece) -> Stage: ...


class SharedScan:
    """The stages of one group."""

    def __init__(self, group: Scanned, tiles: Mapping[str, Refinement]) -> None:
        carry = carry_of(group.view, group.scan)
        if carry is None:
            raise ValueError(f"stage {group.scan.name!r} carries nothing that its items could find on their own")
        self.group, self.carry, self.shares, self.tiles = group, carry, group.shares, tiles
        self.kept = self._kept_elements()
        name, dtype = carry.buffer, carry.dtype
        self.total = self._total("total", f"{name}_run", 0 if carry.agg is None else carry.agg.identity(dtype))
        self.factor = None if carry.agg is not None else self._total("factor", f"{name}_factor", 1)
        self.totals = (self.total,) if self.factor is None else (self.total, self.factor)
        self.end = group.local(f"{name}_end", TensorType.row_major(dtype, (self.shares.rows,), align=16))
        self.spans = self._spans() if self.shares.spans > 1 and self.factor is None else None
        follows = group.view.stages[-1] is not group.scan
        self.goes_on = group.cell.range > group.cells or follows
        own = (*(r for t in self.totals for r in (t.own, t.every)), *(self.spans or ()), *self.kept.values())
        self.allocs = (*own, *((self.end,) if self.goes_on else ()))

    def _total(self, name: str, wanted: str, nothing: int | float) -> Total:
        # Items of a row read the same entry, those of other rows lie in other banks.
        every = TensorType.row_major(self.carry.dtype, (self.shares.rows, self.shares.runs + 1), align=16)
        own = self.group.made(wanted, TensorType.row_major(self.carry.dtype, (1,)), REGISTER)
        return Total(name, own, self.group.local(f"{wanted}s", every), self.carry.dtype.number(nothing))

    def _spans(self) -> tuple[Refinement, Refinement]:
        """What is in front of an item's run in its span, and the aggregates of a row's spans."""
        group, name, shares, dtype = self.group, self.carry.buffer, self.shares, self.carry.dtype
        ahead = group.made(f"{name}_front", TensorType.row_major(dtype, (1,)), REGISTER)
        spans = TensorType.row_major(dtype, (shares.rows, shares.spans + 1), align=16)
        return ahead, group.local(f"{name}_spans", spans)

    def _kept_elements(self) -> dict[str, Refinement]:
        """Registers for what elements are made of, by the access that reads it."""
        read = {s.src for s in self._elements(self.group.scan.body) if isinstance(s, Load)}
        moving = [u for u in moving_uses(self.group.view, self.group.scan) if u.name in read]
        if len(moving) * self.shares.length > KEPT:
            return {}
        types = {
            u.name: TensorType.row_major(self.group.view.type_of(u.buffer).dtype, (self.shares.length,)) for u in moving
        }
        return {u.name: self.group.made(f"{u.buffer}_run", types[u.name], REGISTER) for u in moving}

    def kept_of(self, piece: Piece) -> dict[str, Refinement]:
        """What an item keeps of its run; nothing of one that ends with the row, where it reads as far as that goes."""
        return {} if piece.ragged and not self.shares.teamed else self.kept

    @property
    def _carried(self) -> Use:
        use = next(u for u in self.group.scan.uses if u.buffer == self.carry.buffer)
        return replace(use, name="carry", dir=Direction.INOUT, agg=None)

    def before(self, piece: Piece) -> Iterator[Node]:
        """What every run holds, and what is in front of this item's."""
        for total in self.totals:
            yield self._empty(_at(total.name, total.own), total.nothing)
        yield self._summed(piece)
        for total in self.totals:
            entry = Use("entry", total.every.into, (self.shares.row, self.shares.run), Direction.OUT)
            yield _moved(f"hand_{total.name}", replace(_at(total.name, total.own), dir=Direction.IN), entry)
        yield Sync()
        if self.spans is None:
            yield self._taken("take_in", self._carried, self.total.every, Affine(), self.shares.run)
        else:
            yield from self._through(*self.spans)

    def _through(self, ahead: Refinement, spans: Refinement) -> Iterator[Node]:
        """What is in front of the item's run in its span, then the spans in front of that."""
        shares, front, total = self.shares, _at("front", ahead), self.total
        place = shares.at((RUN, 1))
        yield self._empty(front, total.nothing)
        yield self._taken("take_runs", front, total.every, shares.own_span * shares.span, place)
        entry = Use("entry", spans.into, (shares.row, shares.own_span), Direction.OUT)
        both = (Load("$old", "front"), Load("$x", "total"), *self._joined, Store("entry", "$new"))
        read = (replace(front, dir=Direction.IN), replace(_at("total", total.own), dir=Direction.IN))
        yield Stage("hand_span", (), (place + -(shares.span - 1),), (*read, entry), both)
        yield Sync()
        yield self._taken("take_spans", self._carried, spans, Affine(), shares.own_span)
        both = (Load("$old", "carry"), Load("$x", "front"), *self._joined, Store("carry", "$new"))
        yield Stage("take_front", (), (), (read[0], self._carried), both)

    @property
    def _joined(self) -> tuple[Op, ...]:
        """``$new``, which is ``$old`` taken through a run that holds ``$x``."""
        dtype = self.carry.dtype
        if self.carry.agg is not None:
            return (Op("$new", self.carry.agg.value, ("$old", "$x"), dtype),)
        return Op("$scaled", "mul", (_FACTOR, "$old"), dtype), Op("$new", "add", ("$scaled", "$x"), dtype)

    def _empty(self, use: Use, nothing: int | float) -> Stage:
        """No steps, in the place of `use`."""
        start = Const("$z", nothing, self.carry.dtype)
        return Stage("empty", (), (), (replace(use, dir=Direction.OUT),), (start, Store(use.name, "$z")))

    def _taken(self, name: str, into: Use, source: Refinement, start: Affine, count: Affine) -> Stage:
        """`count` entries of the item's row from `start` on."""
        most = count.bounds({i.name: (0, i.range - 1) for i in self.shares.indexes})[1]
        earlier = Index("earlier", most, order=Order.ORDERED)
        known = (count + Affine.var(earlier.name, -1) + -1,)
        entry = Use("entry", source.into, (self.shares.row, start + Affine.var(earlier.name)), Direction.IN)
        scale = [] if self.factor is None else [replace(entry, name="scale", buffer=self.factor.every.into)]
        loads = (Load("$old", into.name), Load("$x", "entry"), *(Load(_FACTOR, u.name) for u in scale))
        body = (*loads, *self._joined, Store(into.name, "$new"))
        return Stage(name, (earlier,), known, (entry, *scale, into), body)

    def _summed(self, piece: Piece) -> Stage:
        """The elements of this item's run."""
        stage, kept = self.group.scanned(self.tiles, {}, piece), self.kept_of(piece)
        read = {s.src for s in self._elements(stage.body) if isinstance(s, Load)}
        cell = (Affine.var(stage.loops[0].name),)
        keep = tuple(Use(f"keep_{n}", k.into, cell, Direction.OUT) for n, k in kept.items())
        loops = tuple(replace(i, bind=Bind.UNROLL if keep else i.bind) for i in stage.loops)
        uses = tuple(replace(u, dir=Direction.IN) for u in stage.uses if u.name in read)
        totals = tuple(_at(t.name, t.own) for t in self.totals)
        return replace(
            stage, name="total", loops=loops, uses=(*uses, *keep, *totals), body=(*self._steps(stage, kept),)
        )

    def _steps(self, stage: Stage, kept: Mapping[str, Refinement]) -> Iterator[Statement]:
        """An element taken into the totals, and what is `kept` of it."""
        elements = [*self._elements(stage.body)]
        yield from elements
        yield from (Store(f"keep_{s.src}", s.dst) for s in elements if isinstance(s, Load) and s.src in kept)
        yield from (Load(old, "total") for old in self.carry.olds)
        yield from self._changing(stage.body)
        yield Store("total", self.carry.new)
        if self.factor is not None:
            found = times(stage.body, self.carry.olds, self.carry.new, _FACTOR)
            assert found is not None
            yield from (Load(_FACTOR, "factor"), *found[0], Store("factor", found[1]))

    def _elements(self, body: Sequence[Statement]) -> Iterator[Statement]:
        """What makes the element that is taken in."""
        behind = dependent(body, self.carry.olds)
        for s in body:
            match s:
                case Load() | Op() if s.dst in behind:
                    pass
                case Store():
                    pass
                case _:
                    yield s

    def _changing(self, body: Sequence[Statement]) -> Sequence[Op]:
        """What makes the new value of the old one, and of the element."""
        behind, wanted, found = dependent(body, self.carry.olds), {self.carry.new}, list[Op]()
        for s in reversed(body):
            if isinstance(s, Op) and s.dst in wanted & behind:
                wanted |= set(s.args)
                found.insert(0, s)
        return found

    def handed(self) -> Iterator[Stage]:
        """The item of the last run hands the carried value on."""
        if self.goes_on:
            last = (self.shares.run + -(self.shares.runs - 1),)
            end = Use("end", self.end.into, (self.shares.row,), Direction.OUT)
            yield replace(_moved("hand_end", replace(self._carried, dir=Direction.IN), end), constraints=last)

    def taken_over(self) -> Iterator[Stage]:
        """All items of a row take it."""
        if self.goes_on:
            end = Use("end", self.end.into, (self.shares.row,), Direction.IN)
            yield _moved("take_end", end, replace(self._carried, dir=Direction.OUT))


def _at(name: str, register: Refinement) -> Use:
    """An item's register."""
    return Use(name, register.into, (Affine(),), Direction.INOUT)


def _moved(name: str, source: Use, target: Use) -> Stage:
    """``target = source``, once."""
    return Stage(name, (), (), (source, target), (Load("$x", source.name), Store(target.name, "$x")))
