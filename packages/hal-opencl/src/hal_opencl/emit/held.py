"""Weights that work items multiply out of their registers: what they store for a product of teams, and alone read again there.

A team's first factor may lie in its items' registers as well as in local memory. Where each item stores just the elements that
it would then hold, nobody else has to see them: there is no fence behind the stores, which would wait for all copies under way,
no barrier, and no array.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import prod

import numpy as np
import numpy.typing as npt
from tile_ir.emit.walker import blocks, children, map_block, walk_expr, walk_statements
from tile_ir.frozen import replace
from tile_ir.matrix import CHUNK_BYTES, LANES, MATRIX_INSTRUCTIONS, PANEL_BYTES, elements, instruction_of
from tile_ir.semtree.nodes import (
    Alloc,
    Binary,
    Block,
    Cast,
    Const,
    Expr,
    For,
    Function,
    IdKind,
    Let,
    Space,
    Store,
    TeamMma,
    Var,
    WorkId,
)  # fmt: skip

from hal_opencl.emit.copies import products_of_teams
from hal_opencl.emit.meetings import without_barriers
from hal_opencl.emit.types import HALVES

Places = npt.NDArray[np.int64]
"""A subscript of each item."""
Scope = Mapping[str, Places | None]
"""The constants that are known to be integers of items alone; None for others of these names."""
PAIR = 2
"""Elements of 16 bits in a register."""
SINGLE = 16, 8, 16
"""Shape of the instruction of one sub-group whose first factor its lanes hold as those of a team do."""


@dataclass(frozen=True, slots=True)
class Held:
    """A function without the arrays of weights that are in registers, and what stands for these."""

    function: Function
    arrays: frozenset[str] = frozenset()
    registers: tuple[str, ...] = ()
    """Names for these; each has a pair of elements."""
    stores: Mapping[int, tuple[str, int]] = field(default_factory=dict[int, tuple[str, int]])
    """By the `id` of a store, the register that it fills, and from which of its elements on."""
    factors: Mapping[int, tuple[str, ...]] = field(default_factory=dict[int, tuple[str, ...]])
    """By the `id` of a product, the registers of its first factor."""

    @property
    def straight(self) -> bool:
        """There are registers, and each is filled in one place: no branch makes weights of the end of a row."""
        return 0 < len(self.stores) == len(self.registers)


def held(function: Function) -> Held:
    """The function with all weights in registers that may be there."""
    sites, arrays = _Sites(function.group_size), _candidates(function)
    if arrays:
        sites.find(function.body, {})
    found = {a: made for a in arrays if (made := _registers(a, sites)) is not None}
    if not found:
        return Held(function)
    body = map_block(function.body, None, lambda s: () if isinstance(s, Alloc) and s.name in found else (s,))
    registers = tuple(n for made in found.values() for n in made.names)
    stores = {key: place for made in found.values() for key, place in made.stores.items()}
    factors = {key: names for made in found.values() for key, names in made.factors.items()}
    return Held(replace(function, body=without_barriers(body, {*found})), frozenset(found), registers, stores, factors)


def _candidates(function: Function) -> list[str]:
    """Arrays of local memory that plain stores fill, and that products of teams read as rows of their first factor."""
    if function.helpers or not any(products_of_teams(function)):
        return []
    local = [s for s in walk_statements(function.body) if isinstance(s, Alloc) and s.type.space is Space.LOCAL]
    names = {s.name for s in local if s.type.dtype in HALVES}
    for statement in walk_statements(function.body):
        match statement:
            case Store(ptr=Var(), index=index, value=value, mask=None) if value.type.lanes <= PAIR:
                others = (index, value)
            case TeamMma(a=Var(), a_panels=0, rounded=False):
                others = (e for e in children(statement) if e is not statement.a)
            case _:
                others = children(statement)
        names -= {e.name for e in walk_expr(*others) if isinstance(e, Var)}
    return [s.name for s in local if s.name in names]


@dataclass(frozen=True, slots=True)
class _Registers:
    """What stands for one array."""

    names: tuple[str, ...]
    stores: Mapping[int, tuple[str, int]]
    factors: Mapping[int, tuple[str, ...]]


def _registers(array: str, sites: _Sites) -> _Registers | None:
    """None where items store other elements than those that they hold of a factor."""
    names, factors, stores = dict[bytes, str](), dict[int, tuple[str, ...]](), dict[int, tuple[str, int]]()
    for product, at in ((p, at) for p, at in sites.products if p.a == Var(array, p.a.type)):
        if at is None:
            return None
        pairs = (pair.tobytes() for pair in sites.pairs(product, at))
        factors[id(product)] = tuple(names.setdefault(pair, f"{array}_{len(names)}") for pair in pairs)
    for store, at in ((s, at) for s, at in sites.stores if s.ptr == Var(array, s.ptr.type)):
        first = 0 if at is None else int(at[0]) % PAIR
        name = None if at is None else names.get((at - first).tobytes())
        if name is None or first + store.value.type.lanes > PAIR:
            return None
        stores[id(store)] = name, first
    filled = {name for name, _ in stores.values()}
    return _Registers(tuple(names.values()), stores, factors) if filled == {*names.values()} else None


class _Sites:
    """The stores of a function, and its products of teams, with the places that items mean, where these are known."""

    def __init__(self, group_size: tuple[int, int, int]) -> None:
        self.items = np.arange(prod(group_size))
        along, across, _ = group_size
        self.axes = self.items % along, self.items // along % across, self.items // (along * across)
        self.stores: list[tuple[Store, Places | None]] = []
        self.products: list[tuple[TeamMma, Places | None]] = []

    def find(self, block: Block, scope: Scope) -> None:
        """Those of the block, where these constants are known."""
        known = dict(scope)
        for statement in block.body:
            match statement:
                case Let(name, value, mutable):
                    known[name] = None if mutable else self._value(value, known)
                case Store():
                    self.stores.append((statement, self._value(statement.index, known)))
                case TeamMma():
                    self.products.append((statement, self._value(statement.a_index, known)))
                case _:
                    pass
            for part in (statement,) if isinstance(statement, Block) else blocks(statement):
                self.find(part, {**known, statement.var: None} if isinstance(statement, For) else known)

    def pairs(self, product: TeamMma, at: Places) -> Iterator[Places]:
        """Where neighbours of the first factor lie that an item holds, register by register."""
        instruction = MATRIX_INSTRUCTIONS[product.instruction]
        single = instruction_of(SINGLE, instruction.a.dtype)
        assert single is not None
        part, lane = np.divmod(self.items, LANES)
        row, chunk = (n // instruction.a.dtype.bytes for n in (PANEL_BYTES, CHUNK_BYTES))
        for register in range(0, single.a.registers, PAIR):
            m, k = np.array([elements(single.a)[n, register] for n in range(LANES)])[lane].T
            flat = at + (part % instruction.team * instruction.sides["m"] + m) * row + k
            yield flat ^ flat // row % (row // chunk) * chunk

    def _value(self, expr: Expr, known: Scope) -> Places | None:
        """An integer of each item; None where it depends on something else."""
        if expr.type.lanes != 1 or not expr.type.dtype.is_integer:
            return None
        match expr:
            case Const(value):
                return np.full_like(self.items, int(value))
            case Var(name):
                return known.get(name)
            case WorkId(IdKind.LOCAL, axis):
                return self.axes[axis]
            case Cast(value):
                return self._value(value, known)
            case Binary(op, left, right) if op in _OPERATIONS:
                a, b = self._value(left, known), self._value(right, known)
                return None if a is None or b is None else _OPERATIONS[op](a, b)
            case _:
                return None


def _of_naturals(operation: Callable[[Places, Places], Places]) -> Callable[[Places, Places], Places | None]:
    """For operations that mean another thing where numbers have wrapped around."""
    return lambda a, b: operation(a, b) if a.min() >= 0 < b.min() + 1 else None


_OPERATIONS: Mapping[str, Callable[[Places, Places], Places | None]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "bit_xor": np.bitwise_xor, "bit_and": np.bitwise_and,
    "bit_or": np.bitwise_or, "bit_right": _of_naturals(np.right_shift), "div": _of_naturals(np.floor_divide),
    "mod": _of_naturals(np.remainder),
}  # fmt: skip
