"""Narrow stores side by side become stores of whole vectors, whose lanes come together by shuffles.

Interleaved results leave one element, or a few, at a time: ``Y[2*n + i]`` with lanes along n, tiles that are transposed
in registers and have few columns. Neighbours that are stored in one straight line of code are one vector, made of the few
registers that their elements come from. The simplifier then drops what took them apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tile_ir.emit.walker import map_block, walk_expr
from tile_ir.frozen import frozen, replace
from tile_ir.semtree.nodes import (
    Binary,
    Block,
    Comment,
    Const,
    Expr,
    Extract,
    For,
    Function,
    If,
    Let,
    Load,
    Shuffle,
    Splat,
    Statement,
    Store,
    Var,
    While,
)  # fmt: skip

SOURCES = 8
"""Registers at most that a vector comes together from: each but the first takes a shuffle."""

Lane = tuple[Var, int]
"""A lane of a vector variable."""


def join_stores(function: Function, register: int) -> Function:
    """An equal function, for a device whose vector registers have so many bytes."""
    pairs = ((p.name, p.alias_of) for p in function.params if p.alias_of is not None)
    shared = frozenset(name for pair in pairs for name in pair)

    def joined(block: Block) -> Block:
        several = sum(isinstance(s, Store) and _is_narrow(s, register) for s in block.body) > 1
        return _Straight(register, shared).block(block) if several else block

    def statement(old: Statement) -> Sequence[Statement]:
        match old:
            case For(body=body) | While(body=body):
                return (replace(old, body=joined(body)),)
            case If(then=then, other=other):
                return (replace(old, then=joined(then), other=None if other is None else joined(other)),)
            case Block():
                return (joined(old),)
            case _:
                return (old,)

    return replace(function, body=joined(map_block(function.body, None, statement)))


@frozen
class _Place:
    """Where a store begins: a pointer, an index without its constant part, and that part."""

    pointer: str
    base: Expr | None
    offset: int

    @staticmethod
    def of(store: Store) -> _Place | None:
        if not isinstance(store.ptr, Var):
            return None
        match store.index:
            case Const(value):
                return _Place(store.ptr.name, None, int(value))
            case Binary("add", base, Const(value)):
                return _Place(store.ptr.name, base, int(value))
            case index:
                return _Place(store.ptr.name, index, 0)

    def beside(self, other: _Place) -> bool:
        return self.pointer == other.pointer and self.base == other.base


@dataclass(slots=True)
class _Straight:
    """One block: what its vectors are made of, and the stores that may yet be joined."""

    register: int
    shared: frozenset[str]
    """Parameters that may be one another's memory."""
    known: dict[str, Expr] = field(default_factory=dict[str, Expr])
    done: list[Statement | None] = field(default_factory=list["Statement | None"])
    waiting: dict[int, tuple[int, Store]] = field(default_factory=dict[int, tuple[int, Store]])
    """Stores with their places in `done`, by offset."""
    cells: set[int] = field(default_factory=set[int])
    """What they write, each cell once: their order does not matter."""
    place: _Place | None = None
    """Of one of those that wait."""

    def block(self, block: Block) -> Block:
        for statement in block.body:
            self._take(statement)
        self._settle()
        found = tuple(s for s in self.done if s is not None)
        return block if len(found) == len(block.body) else Block(found)

    def _take(self, statement: Statement) -> None:
        match statement:
            case Let(name, value, False):
                if self._waits_for(value):
                    self._settle()
                self.known[name] = value
            case Store() if (place := self._narrow(statement)) is not None:
                cells = range(place.offset, place.offset + statement.value.type.lanes)
                if self.place is None or not place.beside(self.place) or not self.cells.isdisjoint(cells):
                    self._settle()
                self.place = place
                self.waiting[place.offset] = len(self.done), statement
                self.cells.update(cells)
            case Comment():
                pass
            case _:
                self._settle()
                self.known.clear()
        self.done.append(statement)

    def _waits_for(self, value: Expr) -> bool:
        """It may read what is yet to be stored."""
        return self.place is not None and any(
            isinstance(e, Load) and self._same_memory(e.ptr, self.place.pointer) for e in walk_expr(value)
        )

    def _same_memory(self, pointer: Expr, stored: str) -> bool:
        if not isinstance(pointer, Var):
            return True
        return pointer.name == stored or {pointer.name, stored} <= self.shared

    def _narrow(self, store: Store) -> _Place | None:
        """The place of a store that leaves out no lane, and has half of a register's at most."""
        return _Place.of(store) if _is_narrow(store, self.register) else None

    # what waits

    def _settle(self) -> None:
        """Join what lies side by side."""
        offsets, run = sorted(self.waiting), list[int]()
        for offset, after in pairwise([*offsets, None]):
            assert offset is not None
            run.append(offset)
            if after != offset + self.waiting[offset][1].value.type.lanes:
                self._join(run)
                run = []
        self.waiting.clear()
        self.cells.clear()
        self.place = None

    def _join(self, run: Sequence[int]) -> None:
        """Stores of a run without gaps, as whole vectors from its beginning on."""
        width, at = self.register // self.waiting[run[0]][1].value.type.dtype.bytes, 0
        while at < len(run):
            count, lanes = 0, 0
            while at + count < len(run) and lanes < width:
                lanes += self.waiting[run[at + count]][1].value.type.lanes
                count += 1
            if lanes != width:
                return
            self._whole(run[at : at + count], width)
            at += count

    def _whole(self, run: Sequence[int], width: int) -> None:
        """One vector instead of several, where it is made of few registers."""
        stores = [self.waiting[offset][1] for offset in run]
        lanes = [lane for s in stores for lane in _lanes(s.value, self.known)]
        if None in lanes:
            return
        found = [lane for lane in lanes if lane is not None]
        sources = list({v.name: v for v, _ in found}.values())
        alike = all(v.type.lanes == sources[0].type.lanes <= width for v in sources)
        if not alike or 2 * len(sources) > len(stores) or len(sources) > SOURCES:
            return
        for offset in run:
            self.done[self.waiting[offset][0]] = None
        align = stores[0].align or stores[0].value.type.dtype.bytes
        self.done.append(replace(stores[0], value=_gathered(found, sources, width), align=align))


def _is_narrow(store: Store, register: int) -> bool:
    type = store.value.type
    plain = store.mask is None and not store.hint and not isinstance(store.value, Const)
    return plain and 2 * type.lanes * type.dtype.bytes <= register


def _lanes(value: Expr, known: Mapping[str, Expr]) -> list[Lane | None]:
    """The lane of a vector variable that each lane of a value is."""
    match value:
        case Var(name, type) if name in known and _moves(known[name]):
            return _lanes(known[name], known)
        case Var(_, type):
            return [(value, n) if type.lanes > 1 else None for n in range(type.lanes)]
        case Extract(vector, lane):
            return [_lanes(vector, known)[lane]]
        case Splat(scalar, type):
            return _lanes(scalar, known) * type.lanes
        case Shuffle(left, right, picks):
            both = _lanes(left, known) + _lanes(right, known)
            return [both[p] for p in picks]
        case _:
            return [None] * value.type.lanes


def _moves(value: Expr) -> bool:
    """It moves lanes, and computes nothing."""
    return isinstance(value, (Var, Extract, Splat, Shuffle))


def _gathered(lanes: Sequence[Lane], sources: Sequence[Var], width: int) -> Expr:
    """A vector of these lanes: two registers are shuffled, and each further one adds its own."""
    type = sources[0].type.vector(width)
    first, second = sources[0].name, sources[min(1, len(sources) - 1)].name
    start = {first: 0, second: sources[0].type.lanes if second != first else 0}
    picks = tuple(start[v.name] + n if v.name in start else 0 for v, n in lanes)
    value: Expr = Shuffle(sources[0], sources[min(1, len(sources) - 1)], picks, type)
    for source in sources[2:]:
        picks = tuple(width + n if v.name == source.name else k for k, (v, n) in enumerate(lanes))
        value = Shuffle(value, _widened(source, width), picks, type)
    return value


def _widened(source: Var, width: int) -> Expr:
    """A register with so many lanes; what the added ones hold does not matter."""
    own = source.type.lanes
    picks = (*range(own), *[0] * (width - own))
    return source if own == width else Shuffle(source, source, picks, source.type.vector(width))
