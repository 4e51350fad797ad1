"""Loads and stores of buffers, private arrays and named registers, scalar or one vector at a time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import gcd

from tile_ir.diagnostics import TileInternalError
from tile_ir.dots import DOTS
from tile_ir.frozen import frozen, replace
from tile_ir.kernels import STREAM_ALIGN
from tile_ir.ops import Aggregation
from tile_ir.powers import power_of_two
from tile_ir.semtree.nodes import (
    Atomic,
    Binary,
    Call,
    Const,
    Expr,
    Extract,
    Fma,
    Insert,
    Load,
    ReduceLanes,
    Shuffle,
    Splat,
    Store,
    Type,
    Var,
)  # fmt: skip
from tile_ir.stripe.affine import Affine

from tile_opt.lowering.builder import Builder, Scope, atom_key
from tile_opt.lowering.forms import Scaled, alignment, at_lane, without
from tile_opt.lowering.fragments import slot
from tile_opt.lowering.places import SCALAR, Home, Lanes, Position, Root
from tile_opt.lowering.transpose import columns

_MERGED = {
    Aggregation.SUM: "sum", Aggregation.PROD: "prod", Aggregation.MAX: "largest", Aggregation.MIN: "smallest"
}  # fmt: skip


SPREAD, FILLED = 4, 8
"""Steps between elements up to which loading all between them and shuffling is cheaper than one load each.

More where an unrolled loop takes what is in between out of the same loads, or elements have fewer bytes than `WORD`."""
WORD = 4
WIDE = 4
"""Lanes of a vector for which that pays, and steps as many as there are lanes: loads and shuffles are fewer than loads and inserts."""


@frozen
class Product:
    """A product that is added to a sum at once: ``mul`` of floats, or a dot product of words."""

    op: str
    factors: tuple[Expr, Expr]

    def added(self, left: Expr, right: Expr, total: Expr) -> Expr:
        """The sum with the product of `left` and `right` in it, rounded once."""
        if self.op in DOTS:
            return Call(self.op, (left, right, total), total.type)
        return Fma(left, right, total, total.type)

    def alone(self, left: Expr, right: Expr) -> Expr:
        """The product by itself."""
        if self.op in DOTS:
            type = Type(DOTS[self.op].c, left.type.lanes)
            return Call(self.op, (left, right, Const(0.0 if type.dtype.is_float else 0, type)), type)
        return Binary(self.op, left, right, left.type)


def _slots_of(root: Root) -> int:
    """How many elements the registers of a root have room for."""
    return len(root.variables) * root.chunk


def _variable(root: Root, slots: Sequence[int]) -> Var | None:
    """The vector that has these slots, and no other ones, in this order."""
    number, lane = divmod(slots[0], root.chunk)
    whole = root.chunk == len(slots) > 1 and lane == 0 and all(b - a == 1 for a, b in pairwise(slots))
    return root.variables[number] if whole else None


def widest_spread(lanes: int, width: int, filled: bool = False) -> int:
    """Steps between the lanes of a vector, elements of `width` bytes, up to which shuffles put it together."""
    return 0 if lanes < WIDE else min(lanes, FILLED if filled or width < WORD else SPREAD)


def _spreads(root: Root, stride: int, lanes: Lanes) -> bool:
    """Whether all elements from the first lane's to the last one's are loaded: that pays, and all hold something."""
    pays = stride <= widest_spread(lanes.count, root.dtype.bytes, stride == lanes.filled) and lanes.mask is None
    return pays and stride * (lanes.count - 1) < root.solid


class Memory:
    """Emits accesses through a builder."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder

    # reading

    def load(self, root: Root, position: Position, lanes: Lanes, hint: str = "x") -> Expr:
        """The element (one lane when it is the same for all), as a variable; repeated loads are shared."""
        root.read = True
        key = self._key(position, lanes)
        cached = self.builder.scope.loads.setdefault(id(root), {})
        found = cached.get(key)
        if found is None:
            found = cached[key] = self._load(root, position, lanes, hint)
        return found

    def _key(self, position: Position, lanes: Lanes) -> object:
        dynamic = None if position.dynamic is None else atom_key(position.dynamic)
        return (position.affine, position.quasi, dynamic, lanes.mask and lanes.mask.name)

    def _load(self, root: Root, position: Position, lanes: Lanes, hint: str) -> Expr:
        stride = lanes.stride(position)
        if root.home is Home.FRAGMENT:
            slots = self._slots(root, position, lanes)
            whole = _variable(root, slots)
            return (
                self.builder.let(hint, whole) if whole else self._assemble([self._slot(root, n) for n in slots], hint)
            )
        if root.home is Home.REG:
            return self._read_registers(root, position, lanes, stride, hint)
        if stride == 0:
            return self.builder.let(hint, self._element(root, position, lanes, Type(root.dtype)))
        if stride == 1:
            return self.builder.let(hint, self._element(root, position, lanes, Type(root.dtype, lanes.count)))
        if stride is not None and _spreads(root, abs(stride), lanes):
            return self._spread(root, position, lanes, stride, hint)
        parts = [
            self._element(root, self._lane(position, lanes, n), SCALAR, Type(root.dtype)) for n in range(lanes.count)
        ]
        return self._assemble(parts, hint)

    def _spread(self, root: Root, position: Position, lanes: Lanes, stride: int, hint: str) -> Expr:
        """Every so-many-th element, by shuffles of the vectors that hold all elements between the first and the last."""
        count, step, span = lanes.count, abs(stride), abs(stride) * (lanes.count - 1)
        start = without(position.affine, lanes.symbol) + min(0, stride * (count - 1))
        skipped = start.const % step
        if self._is_inside(root, replace(position, affine=start - skipped), step * count):
            start, last = start - skipped, step * count - 1  # the same loads for all of the neighbours in between
        else:
            skipped, last = 0, span
        start = start + Affine.var(lanes.symbol)
        places = [skipped + (n * stride if stride > 0 else span + n * stride) for n in range(count)]
        value: Expr | None = None
        for first in range(0, last + 1, count):
            at = min(first, last + 1 - count)
            part = self.load(root, replace(position, affine=start + at), lanes, hint)
            mine = tuple(p - at if first <= p < first + count else None for p in places)
            lane = tuple(p if p is not None else 0 for p in mine)
            if value is not None:
                lane = tuple(count + p if p is not None else n for n, p in enumerate(mine))
            value = self.builder.let(hint, Shuffle(part if value is None else value, part, lane, part.type))
        assert value is not None
        return value

    def _is_inside(self, root: Root, position: Position, count: int) -> bool:
        """So many elements from a position on all hold something, wherever the loops around stand."""
        low, high = self.builder.interval(position.affine, position.quasi)
        return position.dynamic is None and low >= 0 and high + count <= root.solid

    def _element(self, root: Root, position: Position, lanes: Lanes, type: Type) -> Expr:
        assert root.ptr is not None
        index, align = self._address(root, position, lanes)
        if type.lanes > 1:
            return Load(root.ptr, index, type, lanes.mask, align)
        return Load(root.ptr, index if lanes.mask is None else self._inside(root, position, index), type)

    def _inside(self, root: Root, position: Position, index: Expr) -> Expr:
        """The index of what all lanes read, somewhere in the buffer even where no lane takes part."""
        low, high = self.builder.interval(position.affine, position.quasi)
        if position.dynamic is None and low >= 0 and high < root.elements:
            return index
        last, type = self.builder.literal(root.elements - 1), self.builder.index_type
        return Binary("max", Binary("min", index, last, type), self.builder.literal(0), type)

    def _address(self, root: Root, position: Position, lanes: Lanes, least: int = 1) -> tuple[Expr, int]:
        """Index of lane 0, and the known alignment of its address in bytes, given that the buffer has at least one of `least`."""
        width = root.dtype.bytes
        start = without(position.affine, lanes.symbol or None)
        index = self._index(root, start, position.quasi, lanes.count)
        align = alignment(start, width, max(root.align, least))
        if position.dynamic is not None:
            index = Binary("add", index, position.dynamic, self.builder.index_type)
            align = gcd(align, position.step * width)
        for scale, _ in position.quasi:
            align = gcd(align, scale * width)
        return index, max(align, width)

    def _index(self, root: Root, start: Affine, quasi: tuple[Scaled, ...], lanes: int) -> Expr:
        """The index of an element, and of those behind it as far as an arrangement leaves them together."""
        if root.arrangement is None:
            return self.builder.index(start, quasi)
        if root.arrangement.together % lanes:
            raise TileInternalError(
                f"{root.name!r} is arranged for an instruction: {lanes} neighbours do not stay together"
            )
        return root.arrangement.index(self.builder, start, quasi)

    def _lane(self, position: Position, lanes: Lanes, lane: int) -> Position:
        """The position of one lane, as a scalar position."""
        dynamic = position.dynamic
        affine = position.affine
        if any(lanes.symbol in form.num.names for _, form in position.quasi):
            whole = self.builder.vector_index(affine, lanes.symbol, lanes.count, position.quasi)
            if dynamic is not None:
                dynamic = self.builder.splat(dynamic, lanes.count)
                whole = self.builder.pure("add", (whole, dynamic), Binary("add", whole, dynamic, whole.type), "n")
            return Position(Affine(), (), self._extract(whole, lane))
        if dynamic is not None and dynamic.type.lanes > 1:
            dynamic = self._extract(dynamic, lane)
        return Position(at_lane(affine, lanes.symbol, lane), position.quasi, dynamic, position.step)

    def _extract(self, vector: Expr, lane: int) -> Expr:
        if vector.type.lanes == 1:
            return vector
        if isinstance(vector, Const):
            return Const(vector.value, vector.type.scalar)
        return self.builder.pure(f"extract{lane}", (vector,), Extract(vector, lane, vector.type.scalar))

    def _assemble(self, parts: Sequence[Expr], hint: str) -> Expr:
        type = parts[0].type.vector(len(parts))
        first = self.builder.let(hint, parts[0])
        if len(parts) == 1:
            return first
        value: Expr = self.builder.let(hint, Splat(first, type))
        for lane, part in enumerate(parts[1:], 1):
            value = self.builder.let(hint, Insert(value, lane, part, type))
        return value

    # writing

    def store(self, root: Root, position: Position, value: Expr, lanes: Lanes, hint: str = "") -> None:
        """Store a scalar (or `lanes.count` lanes); to one cell from many lanes the last lane stays."""
        root.written = True
        self._forget(root)
        stride = lanes.stride(position)
        if root.home is Home.FRAGMENT:
            self._write_fragment(root, self._slots(root, position, lanes), value)
            return
        if root.home is Home.REG:
            self._write_registers(root, position, value, lanes, stride)
            return
        if stride == 0:
            value = self._extract(value, value.type.lanes - 1)
            self._put(root, position, value, lanes, hint)
        elif stride == 1:
            value = self.builder.splat(value, lanes.count)
            self._put(root, position, value, lanes, hint)
        else:
            for n in range(lanes.count):
                part = self._extract(value, n)
                self._put(root, self._lane(position, lanes, n), part, SCALAR, hint)
            return
        self.builder.scope.loads.setdefault(id(root), {})[self._key(position, lanes)] = value

    def _put(self, root: Root, position: Position, value: Expr, lanes: Lanes, hint: str) -> None:
        assert root.ptr is not None
        index, align = self._address(root, position, lanes, STREAM_ALIGN if hint == "streaming" else 1)
        wide = value.type.lanes > 1
        self.builder.emit(Store(root.ptr, index, value, lanes.mask if wide else None, align if wide else 0, hint))

    def _forget(self, root: Root) -> None:
        scope: Scope | None = self.builder.scope
        while scope is not None:
            scope.loads.pop(id(root), None)
            scope.columns.pop(id(root), None)
            scope = scope.parent

    def atomic(self, root: Root, position: Position, value: Expr, agg: Aggregation, lanes: Lanes) -> None:
        """Merge into memory indivisibly, lane by lane."""
        root.read = root.written = True
        self._forget(root)
        assert root.ptr is not None, "registers belong to one work item"
        for n in range(lanes.count):
            index, _ = self._address(root, self._lane(position, lanes, n) if lanes.symbol else position, SCALAR)
            self.builder.emit(Atomic(agg, root.ptr, index, self._extract(value, n)))

    def aggregate(
        self,
        root: Root,
        position: Position,
        agg: Aggregation,
        value: Expr,
        product: Product | None,
        lanes: Lanes,
        hint: str = "",
    ) -> None:
        """Merge `value`, or the product of two factors rounded once with the sum, into the cell's old value."""
        stride = lanes.stride(position)
        if stride == 0 and lanes.symbol:
            self._fold(root, position, agg, self._value(value, product), lanes, hint)
            return
        if stride is None or stride not in (0, 1):
            value = self._value(value, product)
            for n in range(lanes.count):
                where = self._lane(position, lanes, n)
                self._merge(root, where, agg, self._extract(value, n), None, SCALAR, hint)
            return
        self._merge(root, position, agg, value, product, lanes, hint)

    def _value(self, value: Expr, product: Product | None) -> Expr:
        if product is None:
            return value
        lanes = max(f.type.lanes for f in product.factors)
        left, right = (self.builder.splat(f, lanes) for f in product.factors)
        return self.builder.pure(product.op, (left, right), product.alone(left, right))

    def _fold(self, root: Root, position: Position, agg: Aggregation, value: Expr, lanes: Lanes, hint: str) -> None:
        """All lanes go to one cell: combine them first, those that take no part as the identity."""
        value = self.builder.splat(value, lanes.count)
        part = self._masked(value, Const(agg.identity(root.dtype), value.type), lanes)
        reduced = self.reduce_lanes(agg, part)
        where = Position(without(position.affine, lanes.symbol), position.quasi, position.dynamic, position.step)
        self._merge(root, where, agg, reduced, None, SCALAR, hint)

    def reduce_lanes(self, agg: Aggregation, value: Expr) -> Expr:
        """One scalar from all lanes: one tree, whose lanes behind the last one hold the identity."""
        count = value.type.lanes
        if count == 1:
            return self._extract(value, 0)
        whole = power_of_two(count)
        if whole > count:
            # Trees of what is left over would each take as many instructions as the whole one, and wait for each other.
            none = Const(agg.identity(value.type.dtype), value.type)
            picks = (*range(count), *[count] * (whole - count))
            value = self.builder.let("whole", Shuffle(value, none, picks, value.type.vector(whole)))
        return self.builder.let("r", ReduceLanes(agg, value, value.type.scalar))

    def _merge(
        self,
        root: Root,
        position: Position,
        agg: Aggregation,
        value: Expr,
        product: Product | None,
        lanes: Lanes,
        hint: str,
    ) -> None:
        variable = self._register(root, position, lanes)
        old = variable if variable is not None else self.load(root, position, lanes, "old")
        count = old.type.lanes
        if product is not None:
            left, right = (self.builder.splat(f, count) for f in product.factors)
            new = product.added(left, right, old)
        else:
            # The identity instead of a choice afterwards: that would lengthen the chain from step to step.
            none = Const(agg.identity(root.dtype), old.type)
            value = self._masked(self.builder.splat(value, count), none, lanes)
            new = Binary(agg.op, old, value, old.type)
        if variable is not None:
            root.read = root.written = True
            self._forget(root)
            self.builder.assign(variable, new if product is None else self._masked(new, variable, lanes))
            return
        merged = self.builder.let(_MERGED[agg], new)
        self.store(root, position, merged, lanes, hint)

    def _masked(self, value: Expr, other: Expr, lanes: Lanes) -> Expr:
        """`value` in the lanes that take part, `other` elsewhere."""
        if lanes.mask is None:
            return value
        if not isinstance(value, (Var, Const)):
            value = self.builder.let("x", value)
        return self.builder.let("x", self.builder.select(lanes.mask, value, other))

    # registers

    def _register(self, root: Root, position: Position, lanes: Lanes) -> Var | None:
        """The one variable that holds exactly this position, if there is one."""
        if root.home is not Home.REG:
            return None
        offset, width = position.affine.const, root.chunk
        whole = position.affine.terms == (((lanes.symbol, 1),) if lanes.symbol else ())
        if position.quasi or position.dynamic is not None or not whole:
            return None
        if width != lanes.count or offset % width or not 0 <= offset < root.elements:
            return None
        return root.variables[offset // width]

    def _read_registers(self, root: Root, position: Position, lanes: Lanes, stride: int | None, hint: str) -> Expr:
        variable = self._register(root, position, lanes)
        if variable is not None:
            return self.builder.let(hint, variable)
        offset = self._static(root, position, lanes)
        if stride == 0:
            return self.builder.let(hint, self._slot(root, offset))
        assert stride is not None
        if lanes.count > 1 and root.chunk > 1 and stride % root.chunk == 0:
            return self._column(root, offset, stride, lanes.count)
        return self._assemble([self._slot_or_zero(root, offset + stride * n) for n in range(lanes.count)], hint)

    def _column(self, root: Root, offset: int, stride: int, count: int) -> Expr:
        """One lane of each of so many registers; all their columns are made at once, and kept.

        A lane behind the last register is left out, whatever it has.
        """
        (first, lane), last = divmod(offset, root.chunk), len(root.variables) - 1
        numbers = tuple(min(first + stride // root.chunk * n, last) for n in range(count))
        cached = self.builder.scope.columns.setdefault(id(root), {})
        if numbers not in cached:
            lanes = power_of_two(max(root.chunk, count))
            cached[numbers] = columns(self.builder, [self._row(root.variables[n], lanes) for n in numbers])
        return cached[numbers][lane]

    def _row(self, register: Var, lanes: int) -> Expr:
        """A register with so many lanes; what the added ones hold does not matter."""
        row, given = self.builder.let("row", register), register.type.lanes
        picks = (*range(given), *[0] * (lanes - given))
        return row if given == lanes else self.builder.let("row", Shuffle(row, row, picks, row.type.vector(lanes)))

    def _write_registers(self, root: Root, position: Position, value: Expr, lanes: Lanes, stride: int | None) -> None:
        variable = self._register(root, position, lanes)
        if variable is not None:
            self.builder.assign(variable, self._masked(self.builder.splat(value, lanes.count), variable, lanes))
            return
        offset = self._static(root, position, lanes)
        assert stride is not None
        there = sum(offset + stride * n < _slots_of(root) for n in range(lanes.count))  # the others are never on
        for n in range(there if stride else 1):
            part = self._extract(value, n if stride else value.type.lanes - 1)
            if lanes.mask is not None:
                mine, old = self._extract(lanes.mask, n), self._slot(root, offset + stride * n)
                part = self.builder.let("x", self.builder.select(mine, part, old))
            self._write_slot(root, offset + stride * n, part)

    def _write_fragment(self, root: Root, slots: Sequence[int], value: Expr) -> None:
        whole = _variable(root, slots)
        if whole is not None:
            self.builder.assign(whole, self.builder.splat(value, len(slots)))
            return
        for n, place in enumerate(slots):
            self._write_slot(root, place, self._extract(value, n))

    def _static(self, root: Root, position: Position, lanes: Lanes) -> int:
        form = without(position.affine, lanes.symbol or None)
        assert form.is_const and not position.quasi and position.dynamic is None, f"{root.name} needs static positions"
        return form.const

    def _slots(self, root: Root, position: Position, lanes: Lanes) -> list[int]:
        """The registers, numbered over all variables, of an element per lane of the vector index."""
        assert root.fragments is not None
        if position.dynamic is not None:
            raise TileInternalError(f"fragments {root.name} need positions that are known")
        places = [self._lane(position, lanes, n) for n in range(lanes.count)] if lanes.symbol else [position]
        return [slot(root.fragments, p.affine, p.quasi, self.builder.lanes) for p in places]

    def _slot(self, root: Root, offset: int) -> Expr:
        variable = root.variables[offset // root.chunk]
        if root.chunk == 1:
            return variable
        return Extract(variable, offset % root.chunk, variable.type.scalar)

    def _slot_or_zero(self, root: Root, offset: int) -> Expr:
        """A slot, or zero behind the last one: only a lane that is left out can be there."""
        return (
            self._slot(root, offset)
            if offset < _slots_of(root)
            else Const(0.0 if root.dtype.is_float else 0, Type(root.dtype))
        )

    def _write_slot(self, root: Root, offset: int, value: Expr) -> None:
        variable = root.variables[offset // root.chunk]
        if root.chunk > 1:
            value = Insert(variable, offset % root.chunk, value, variable.type)
        self.builder.assign(variable, value)
