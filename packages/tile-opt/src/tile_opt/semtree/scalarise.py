"""Vectors as one scalar variable per lane, for targets without vector nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tile_ir.emit.walker import children, map_block, variables, with_children
from tile_ir.semtree.nodes import (
    Assign,
    Binary,
    Block,
    Const,
    Expr,
    Extract,
    Function,
    If,
    Insert,
    Iota,
    Let,
    Load,
    ReduceLanes,
    Select,
    Shuffle,
    Splat,
    Statement,
    Store,
    Var,
)  # fmt: skip


def scalarise(function: Function) -> Function:
    """An equal function without vector values. Arrays and pointers of vectors are not taken (ValueError)."""
    if any(p.type.lanes > 1 for p in function.params):
        raise ValueError(f"{function.name} has a parameter that points to vectors")
    return replace(function, body=map_block(function.body, None, _Lanes().statement))


def _name(name: str, lane: int) -> str:
    return f"{name}_lane{lane}"


class _Lanes:
    """One statement's expressions, taken apart."""

    def __init__(self) -> None:
        self.memo: dict[tuple[int, int], Expr] = {}
        self.keep: list[Expr] = []
        self.temporaries = 0

    def statement(self, statement: Statement) -> Sequence[Statement]:
        self.memo.clear()
        self.keep.clear()
        match statement:
            case Let(name, value, mutable) if value.type.lanes > 1:
                return [Let(_name(name, n), self.lane(value, n), mutable) for n in range(value.type.lanes)]
            case Assign(name, value) if value.type.lanes > 1:
                return self._assign(name, value)
            case Store() if statement.value.type.lanes > 1:
                return self._store(statement)
            case _:
                return (self._scalar(statement),)

    def _scalar(self, statement: Statement) -> Statement:
        """Vectors inside a scalar statement: lanes that are extracted or combined."""
        return with_children(statement, [self.lane(e, 0) for e in children(statement)])

    def _bound(self, value: Expr) -> tuple[list[Statement], list[Expr]]:
        """All lanes in variables, read before anything is written."""
        lets: list[Statement] = []
        parts: list[Expr] = []
        for n in range(value.type.lanes):
            part = self.lane(value, n)
            if not isinstance(part, (Const, Var)):
                name = f"lane_value{self.temporaries}"
                self.temporaries += 1
                lets.append(Let(name, part))
                part = Var(name, part.type)
            parts.append(part)
        return lets, parts

    def _assign(self, name: str, value: Expr) -> Sequence[Statement]:
        own = {name}
        if not own & variables(value) or _lanewise(value):
            return [Assign(_name(name, n), self.lane(value, n)) for n in range(value.type.lanes)]
        lets: list[Statement] = []
        parts: list[Expr] = []
        for n in range(value.type.lanes):
            part = self.lane(value, n)
            temporary = f"lane_value{self.temporaries}"
            self.temporaries += 1
            lets.append(Let(temporary, part))
            parts.append(Var(temporary, part.type))
        return [*lets, *(Assign(_name(name, n), p) for n, p in enumerate(parts))]

    def _store(self, store: Store) -> Sequence[Statement]:
        lets, parts = self._bound(store.value)
        result = lets
        for n, part in enumerate(parts):
            scalar = Store(store.ptr, _offset(store.index, n), part, None, 0, store.hint)
            if store.mask is None:
                result.append(scalar)
            else:
                result.append(If(self.lane(store.mask, n), Block((scalar,))))
        return result

    # one lane of an expression

    def lane(self, expr: Expr, lane: int) -> Expr:
        """Lane `lane` of a vector expression; a scalar expression is the same in every lane."""
        key = (id(expr), lane)
        found = self.memo.get(key)
        if found is None:
            rule = _RULES.get(type(expr), _Lanes.each)
            found = self.memo[key] = rule(self, expr, lane)
            self.keep.append(expr)
        return found

    def each(self, expr: Expr, lane: int) -> Expr:
        """Operations that work lane by lane."""
        new = with_children(expr, [self.lane(c, lane) for c in children(expr)])
        return new if new.type.lanes == 1 else replace(new, type=new.type.scalar)

    def const(self, expr: Expr, lane: int) -> Expr:
        assert isinstance(expr, Const)
        return Const(expr.value, expr.type.scalar) if expr.type.lanes > 1 else expr

    def var(self, expr: Expr, lane: int) -> Expr:
        assert isinstance(expr, Var)
        vector = expr.type.lanes > 1 and not expr.type.ptr and not expr.type.count
        return Var(_name(expr.name, lane), expr.type.scalar) if vector else expr

    def load(self, expr: Expr, lane: int) -> Expr:
        assert isinstance(expr, Load)
        if expr.type.lanes == 1:
            return self.each(expr, 0)
        index = _offset(self.lane(expr.index, 0), lane)
        if expr.mask is None:
            return Load(expr.ptr, index, expr.type.scalar)
        # A suppressed lane reads element 0 of the access's buffer instead, which is always there.
        mask = self.lane(expr.mask, lane)
        safe = Select(mask, index, Const(0, index.type), index.type)
        zero = Const(0.0 if expr.type.dtype.is_float else 0, expr.type.scalar)
        return Select(mask, Load(expr.ptr, safe, expr.type.scalar), zero, expr.type.scalar)

    def splat(self, expr: Expr, lane: int) -> Expr:
        assert isinstance(expr, Splat)
        return self.lane(expr.value, 0)

    def extract(self, expr: Expr, lane: int) -> Expr:
        assert isinstance(expr, Extract)
        return self.lane(expr.vector, expr.lane)

    def insert(self, expr: Expr, lane: int) -> Expr:
        assert isinstance(expr, Insert)
        return self.lane(expr.value, 0) if lane == expr.lane else self.lane(expr.vector, lane)

    def shuffle(self, expr: Expr, lane: int) -> Expr:
        assert isinstance(expr, Shuffle)
        source, width = expr.lanes[lane], expr.left.type.lanes
        return self.lane(expr.left, source) if source < width else self.lane(expr.right, source - width)

    def iota(self, expr: Expr, lane: int) -> Expr:
        return Const(lane, expr.type.scalar)

    def reduce(self, expr: Expr, lane: int) -> Expr:
        """The same tree as the node's: lane i with lane i + half."""
        assert isinstance(expr, ReduceLanes)
        parts = [self.lane(expr.value, n) for n in range(expr.value.type.lanes)]
        while len(parts) > 1:
            half = len(parts) // 2
            parts = [Binary(expr.agg.op, parts[n], parts[n + half], expr.type) for n in range(half)]
        return parts[0]


def _lanewise(value: Expr) -> bool:
    """True when lane n of the value needs only lane n of every variable."""
    return not any(isinstance(e, (Shuffle, Extract, Insert, ReduceLanes)) for e in _nodes(value))


def _nodes(value: Expr) -> list[Expr]:
    found = [value]
    for node in found:
        found.extend(children(node))
    return found


def _offset(index: Expr, lane: int) -> Expr:
    return Binary("add", index, Const(lane, index.type), index.type) if lane else index


_RULES: dict[type, Callable[[_Lanes, Expr, int], Expr]] = {
    Const: _Lanes.const, Var: _Lanes.var, Load: _Lanes.load, Splat: _Lanes.splat, Extract: _Lanes.extract,
    Insert: _Lanes.insert, Shuffle: _Lanes.shuffle, Iota: _Lanes.iota, ReduceLanes: _Lanes.reduce,
}  # fmt: skip
