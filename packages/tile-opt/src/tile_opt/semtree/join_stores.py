"""Narrow stores side by side become stores of whole vectors, whose lanes come together by shuffles.

Interleaved results leave one element, or a few, at a time: ``Y[2*n + i]`` with lanes along n, tiles that are transposed
in registers and have few columns. Neighbours that are stored in one straight line of code are one vector, made of the few
registers that their elements come from. The simplifier then drops what took them apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import gcd

from tile_ir.emit.walker import map_block, walk_expr, walk_statements
from tile_ir.frozen import replace
from tile_ir.names import claim
from tile_ir.semtree.nodes import (
    Access,
    Alloc,
    Block,
    Comment,
    Const,
    Expr,
    For,
    Function,
    If,
    Let,
    Load,
    Shuffle,
    Statement,
    Store,
    Var,
    While,
)  # fmt: skip

from tile_opt.semtree.places import Place
from tile_opt.semtree.side_by_side import SideBySide, source

SOURCES = 8
"""Registers at most that a vector comes together from: each but the first takes a shuffle."""


def join_stores(function: Function, register: int, aligned: bool = False) -> Function:
    """An equal function, for a device whose vector registers have so many bytes: 0 where it has none.

    Where vectors have to be `aligned`, those that are not would be stored element by element.
    """
    memory = _Memory.of(function)

    def joined(block: Block) -> Block:
        several = sum(isinstance(s, Store) and _is_narrow(s, register) for s in block.body) > 1
        return _Straight(register, memory, aligned).block(block) if several else block

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


@dataclass(frozen=True, slots=True)
class _Memory:
    """What a function's pointers say of one another, and the names that it has."""

    shared: frozenset[str]
    """Parameters that may be one another's memory."""
    steady: frozenset[str]
    """Parameters whose memory nothing writes."""
    names: set[str]

    @staticmethod
    def of(function: Function) -> _Memory:
        pairs = ((p.name, p.alias_of) for p in function.params if p.alias_of is not None)
        shared = frozenset(name for pair in pairs for name in pair)
        reads = frozenset(p.name for p in function.params if p.access is Access.READ)
        return _Memory(shared, reads - shared, _declared(function))


@dataclass(slots=True)
class _Straight:
    """One block: what its vectors are made of, and the stores that may yet be joined."""

    register: int
    memory: _Memory
    aligned: bool
    known: dict[str, Expr] = field(default_factory=dict[str, Expr])
    done: list[Statement | None] = field(default_factory=list["Statement | None"])
    waiting: dict[int, tuple[int, Store]] = field(default_factory=dict[int, tuple[int, Store]])
    """Stores with their places in `done`, by offset."""
    cells: set[int] = field(default_factory=set[int])
    """What they write, each cell once: their order does not matter."""
    place: Place | None = None
    """Of one of those that wait."""

    def block(self, block: Block) -> Block:
        for statement in block.body:
            self._take(statement)
        self._settle()
        return Block(tuple(s for s in self.done if s is not None)) if None in self.done else block

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
        return pointer.name == stored or {pointer.name, stored} <= self.memory.shared

    def _narrow(self, store: Store) -> Place | None:
        """The place of a store that leaves out no lane, and has less than a register."""
        return Place.of(store.ptr, store.index) if _is_narrow(store, self.register) else None

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
            if lanes != width or not self._whole(run[at : at + count], width):
                break
            at += count
        while width > 1 and at < len(run) and not self._computed(run[at:], width):
            width //= 2

    def _computed(self, run: Sequence[int], width: int) -> bool:
        """Fewer vectors of so many lanes instead of the stores, the last one from the end back, computed by fewer operations."""
        stores = [self.waiting[offset][1] for offset in run]
        lanes = [(s.value, n) for s in stores for n in range(s.value.type.lanes)]
        starts = [*range(0, len(lanes) - width + 1, width)]
        starts += [len(lanes) - width] if len(lanes) % width and starts else []
        if not 0 < len(starts) < len(stores) or self._is_torn(stores, starts, width):
            return False
        make = SideBySide(self.known, self.memory.steady, self._let, self.register)
        made = [make.vector(lanes[start : start + width]) for start in starts]
        if None in made:
            return False
        self._replace(run, [(start, value) for start, value in zip(starts, made, strict=True) if value is not None])
        return True

    def _is_torn(self, stores: Sequence[Store], starts: Sequence[int], width: int) -> bool:
        """Some vector of so many lanes does not begin at a multiple of its size, as it has to."""
        element = stores[0].value.type.dtype.bytes
        known = stores[0].align or element
        return self.aligned and any(gcd(known, start * element) % (width * element) for start in starts)

    def _let(self, value: Expr) -> Expr:
        """A variable that holds a value."""
        name = claim("whole", self.memory.names)
        self.done.append(Let(name, value))
        return Var(name, value.type)

    def _replace(self, run: Sequence[int], vectors: Sequence[tuple[int, Expr]]) -> None:
        """Vectors, each with its place in the run, instead of the stores."""
        stores = {offset - run[0]: self.waiting[offset][1] for offset in run}
        place = Place.of(stores[0].ptr, stores[0].index)
        assert place is not None
        for offset in run:
            self.done[self.waiting[offset][0]] = None
        for start, value in vectors:
            width = value.type.dtype.bytes
            first = stores.get(start)
            align = max(gcd(stores[0].align or width, start * width), first.align if first is not None else width)
            index = place.index(run[0] + start, stores[0].index.type)
            self.done.append(replace(stores[0], index=index, value=value, align=align))

    def _whole(self, run: Sequence[int], width: int) -> bool:
        """One vector instead of several, where it is made of few registers."""
        stores = [self.waiting[offset][1] for offset in run]
        lanes = [source(s.value, n, self.known) for s in stores for n in range(s.value.type.lanes)]
        found = [(value, lane) for value, lane in lanes if isinstance(value, Var) and value.type.lanes > 1]
        if len(found) < len(lanes):
            return False
        sources = list({v.name: v for v, _ in found}.values())
        if self._is_torn(stores, (0,), width):
            return False
        alike = all(v.type.lanes == sources[0].type.lanes <= width for v in sources)
        if not alike or 2 * len(sources) > len(stores) or len(sources) > SOURCES:
            return False
        self._replace(run, [(0, _gathered(found, sources, width))])
        return True


def _declared(function: Function) -> set[str]:
    statements = walk_statements(function.body)
    return {p.name for p in function.params} | {
        s.var if isinstance(s, For) else s.name for s in statements if isinstance(s, Let | Alloc | For)
    }


def _is_narrow(store: Store, register: int) -> bool:
    type = store.value.type
    plain = store.mask is None and store.hint in ("", "streaming") and not isinstance(store.value, Const)
    return plain and type.lanes * type.dtype.bytes < register


def _gathered(lanes: Sequence[tuple[Var, int]], sources: Sequence[Var], width: int) -> Expr:
    """A vector of these lanes: two registers are shuffled, and each further one adds its own."""
    type = sources[0].type.vector(width)
    first, second = sources[0].name, sources[min(1, len(sources) - 1)].name
    start = {first: 0, second: sources[0].type.lanes if second != first else 0}
    picks = tuple(start[v.name] + n if v.name in start else 0 for v, n in lanes)
    value: Expr = Shuffle(sources[0], sources[min(1, len(sources) - 1)], picks, type)
    for register in sources[2:]:
        picks = tuple(width + n if v.name == register.name else k for k, (v, n) in enumerate(lanes))
        value = Shuffle(value, _widened(register, width), picks, type)
    return value


def _widened(source: Var, width: int) -> Expr:
    """A register with so many lanes; what the added ones hold does not matter."""
    own = source.type.lanes
    picks = (*range(own), *[0] * (width - own))
    return source if own == width else Shuffle(source, source, picks, source.type.vector(width))
