"""Expressions: one handler per node, walked without recursion."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from tile_ir.diagnostics import TileInternalError
from tile_ir.dots import DOTS
from tile_ir.dtype import DType
from tile_ir.emit.walker import children
from tile_ir.semtree.nodes import (
    Binary,
    Bitcast,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    Extract,
    Fma,
    IdKind,
    Insert,
    Iota,
    Limit,
    Load,
    ReduceLanes,
    Select,
    Shuffle,
    Splat,
    Unary,
    Var,
    WorkId,
)

from hal_llvm.emit import arith, memory
from hal_llvm.emit.code import Code
from hal_llvm.emit.dots import dot
from hal_llvm.emit.types import held, literal, of, register
from hal_llvm.math import call as math_call


@dataclass(slots=True)
class Variable:
    """A mutable variable, and what it holds at the current position."""

    value: str
    llvm_type: str


@dataclass(slots=True)
class Scope:
    """Variables in sight, with the log that takes them out of sight again."""

    values: dict[str, str | Variable] = field(default_factory=dict[str, "str | Variable"])
    log: list[tuple[str, str | Variable | None]] = field(default_factory=list["tuple[str, str | Variable | None]"])
    groups: tuple[str, str, str] = ("0", "0", "0")
    """The work group's numbers (i64)."""

    def bind(self, name: str, value: str | Variable) -> None:
        self.log.append((name, self.values.get(name)))
        self.values[name] = value

    def restore(self, mark: int) -> None:
        """Forget what was bound since the log had `mark` entries."""
        while len(self.log) > mark:
            name, old = self.log.pop()
            if old is None:
                del self.values[name]
            else:
                self.values[name] = old


MOST_AHEAD = 8
"""Values computed ahead of a loop: most of them take a register all along it."""


@dataclass(slots=True)
class Ahead:
    """What is computed before a loop begins, because each of its iterations would compute the same."""

    values: set[str] = field(default_factory=set[str])
    lines: list[int] = field(default_factory=list[int])
    """Where the code has what computes them."""
    innermost: bool = True
    """No loop is in it, which needs the registers itself."""


def displaced(index: Expr) -> tuple[Expr, int]:
    """A subscript as what varies of it and a constant number of elements."""
    if (
        isinstance(index, Binary)
        and index.op == "add"
        and isinstance(index.right, Const)
        and index.type.dtype.bits == 64
    ):
        return index.left, int(index.right.value)
    return index, 0


def _parts(expr: Expr) -> tuple[Expr, ...]:
    """What is computed before a node: its children, but of subscripts only what varies."""
    parts = children(expr)
    return (parts[0], displaced(parts[1])[0], *parts[2:]) if isinstance(expr, Load) else parts


class Expressions:
    """Emits expressions into `code`, looking variables up in `scope`."""

    def __init__(self, code: Code, scope: Scope) -> None:
        self.code = code
        self.scope = scope
        self._ahead: Ahead | None = None
        """What stays the same in the loop that is emitted."""

    def value(self, root: Expr) -> str:
        """The operand that holds `root`; equal objects are computed once, literals and variables where they are used."""
        if type(root) in _LEAVES:
            return _LEAVES[type(root)](self, root)
        done: dict[int, str] = {}
        stack: list[tuple[Expr, tuple[Expr, ...] | None]] = [(root, None)]
        while stack:
            expr, parts = stack.pop()
            if id(expr) in done:
                continue
            if parts is None:
                parts = _parts(expr)
                waiting = [(part, None) for part in parts if type(part) not in _LEAVES]
                if waiting:
                    stack.append((expr, parts))
                    stack += reversed(waiting)
                    continue
            handler = self._handlers.get(type(expr))
            if handler is None:
                raise TileInternalError(f"the llvm device has no {type(expr).__name__} node")
            operands = [_LEAVES[type(p)](self, p) if type(p) in _LEAVES else done[id(p)] for p in parts]
            done[id(expr)] = self._computed(handler, expr, operands)
        return done[id(root)]

    def _computed(self, handler: Callable[..., str], expr: Expr, operands: Sequence[str]) -> str:
        """A node's value, made ahead of the loop around it where it stays the same: LLVM leaves loads beside stores."""
        ahead, first = self._ahead, len(self.code.lines)
        value = handler(self, expr, *operands)
        if ahead is not None and len(ahead.values) < MOST_AHEAD and self._stays(ahead, expr, operands):
            ahead.values.add(value)
            ahead.lines += range(first, len(self.code.lines))
        return value

    def _stays(self, ahead: Ahead, expr: Expr, operands: Sequence[str]) -> bool:
        """The loop's iterations compute the same, which may be done whether or not they do."""
        match expr:
            case Load(_, Const(place), mask=None):
                return 0 <= place <= self.code.unwritten.get(operands[0], 0) - expr.type.lanes
            case Shuffle() | Splat():
                return all(operand in ahead.values for operand in operands)
            case _:
                return False

    def const(self, node: Const) -> str:
        """A literal."""
        return literal(node.value, node.type.dtype, node.type.lanes)

    def variable(self, node: Var) -> str:
        """What a variable in sight holds."""
        found = self.scope.values.get(node.name)
        if found is None:
            raise TileInternalError(f"semtree variable {node.name!r} is not defined here")
        return found.value if isinstance(found, Variable) else found

    def address(self, pointer: str, varying: str, index: Expr, dtype: DType) -> str:
        """Address of element `index`, whose part that varies (`displaced`) is known; elements beside it share that one's."""
        code, index_type = self.code, of(index.type)
        displacement = displaced(index)[1]
        if not displacement:
            near = self._near(pointer, index, dtype)
            return near or memory.address(code, pointer, varying, index_type, dtype)
        name = f"{pointer}[{varying}]"
        base = self.scope.values.get(name)
        if not isinstance(base, str):
            base = memory.address(code, pointer, varying, index_type, dtype, inside=False)
            self.scope.bind(name, base)
        return memory.address(code, base, str(displacement), index_type, dtype, inside=False)

    def _near(self, pointer: str, index: Expr, dtype: DType) -> str:
        """Address of a place that data chooses in a part of a buffer, where all lanes begin to count; "" for any other."""
        match index:
            case Binary("add", Var() as part, Var() as place) if self.variable(place) in self.code.picked_words:
                start = memory.address(self.code, pointer, self.variable(part), of(index.type), dtype, inside=False)
                return memory.address(self.code, start, self.variable(place), of(index.type), dtype, inside=False)
            case _:
                return ""

    def ahead_of_loop(self) -> Callable[[], None]:
        """Here, at the end of the only block that leads to a loop, goes what stays the same in it; gives what ends the loop."""
        place, around = self.code.reserve(), self._ahead
        self._ahead = ahead = Ahead()
        if around is not None:
            around.innermost = False

        def leave() -> None:
            self._ahead = around
            if ahead.innermost:
                self.code.move(ahead.lines, place)

        return leave

    def _load(self, node: Load, pointer: str, index: str, mask: str | None = None) -> str:
        where = self.address(pointer, index, node.index, node.type.dtype)
        return memory.load(self.code, where, node.type, node.align, mask)

    def _unary(self, node: Unary, value: str) -> str:
        return arith.unary(self.code, node.op, value, node.type.dtype, node.type.lanes)

    def _binary(self, node: Binary, left: str, right: str) -> str:
        dtype, lanes = node.type.dtype, node.type.lanes
        if node.op in ("bit_left", "bit_right"):
            return arith.shift(self.code, node.op, left, dtype, right, node.right.type.dtype, lanes)
        return arith.binary(self.code, node.op, left, right, dtype, lanes)

    def _compare(self, node: Compare, left: str, right: str) -> str:
        return arith.compare(self.code, node.op, left, right, node.left.type.dtype, node.left.type.lanes)

    def _fma(self, node: Fma, a: str, b: str, c: str) -> str:
        return arith.fma(self.code, a, b, c, node.type.dtype, node.type.lanes)

    def _select(self, node: Select, cond: str, then: str, other: str) -> str:
        lanes = node.cond.type.lanes  # a scalar condition chooses whole vectors
        return arith.select(self.code, cond, then, other, of(node.type), lanes)

    def _cast(self, node: Cast, value: str) -> str:
        return arith.cast(self.code, value, node.value.type.dtype, node.type.dtype, node.type.lanes)

    def _bitcast(self, node: Bitcast, value: str) -> str:
        source, target = of(node.value.type), of(node.type)
        return value if source == target else self.code.let(f"bitcast {source} {value} to {target}")

    def _call(self, node: Call, *args: str) -> str:
        dtype, lanes = node.type.dtype, node.type.lanes
        if node.name in DOTS:
            return dot(self.code, node.name, args, held(lanes))
        wide = [arith.widen(self.code, arg, dtype, lanes) for arg in args]
        compute = DType.FLOAT32 if dtype in arith.HALVES else dtype
        return arith.narrow(self.code, math_call(self.code, node.name, wide, compute, lanes), dtype, lanes)

    def _splat(self, node: Splat, value: str) -> str:
        return self.code.splat(register(node.type.dtype), node.type.lanes, value)

    def _extract(self, node: Extract, vector: str) -> str:
        if node.vector.type.lanes == 1:
            return vector
        if vector in self.code.words:
            return self._word(self.code.words[vector], held(node.vector.type.lanes), node.lane)
        return self.code.let(f"extractelement {of(node.vector.type)} {vector}, i64 {node.lane}")

    def _word(self, vector: str, lanes: int, lane: int) -> str:
        """A lane of int32 as int64: two leave the vector at once, where a wider vector would hold half as many."""
        pairs = self.code.let(f"bitcast <{lanes} x i32> {vector} to <{lanes // 2} x i64>")
        pair = self.code.let(f"extractelement <{lanes // 2} x i64> {pairs}, i64 {lane // 2}")
        high = pair if lane % 2 else self.code.let(f"shl i64 {pair}, 32")
        word = self.code.let(f"ashr i64 {high}, 32")
        self.code.picked_words.add(word)
        return word

    def _insert(self, node: Insert, vector: str, value: str) -> str:
        if node.type.lanes == 1:
            return value
        return self.code.let(
            f"insertelement {of(node.type)} {vector}, {register(node.type.dtype)} {value}, i64 {node.lane}"
        )

    def _shuffle(self, node: Shuffle, left: str, right: str) -> str:
        code, element, count = self.code, register(node.type.dtype), node.left.type.lanes
        vector = of(node.left.type)
        if count == 1:
            vector = f"<1 x {element}>"
            left, right = (code.let(f"insertelement {vector} poison, {element} {x}, i64 0") for x in (left, right))
        picks = [lane if lane < count else lane - count + held(count) for lane in node.lanes]
        picked = code.picked((vector, left), right, picks)
        if len(node.lanes) > 1:
            return picked
        return code.let(f"extractelement <1 x {element}> {picked}, i64 0")

    def _iota(self, node: Iota) -> str:
        dtype, lanes = node.type.dtype, node.type.lanes
        if lanes == 1:
            return literal(0, dtype)
        element = register(dtype)
        return f"<{', '.join(f'{element} {literal(lane, dtype)}' for lane in range(held(lanes)))}>"

    def _reduce_lanes(self, node: ReduceLanes, value: str) -> str:
        code, dtype, lanes = self.code, node.value.type.dtype, node.value.type.lanes
        while lanes > 1:
            low, high = lanes // 2, lanes - lanes // 2
            # An odd lane out stays for the next round.
            left = self._lanes(value, dtype, lanes, range(low))
            right = self._lanes(value, dtype, lanes, range(low, 2 * low))
            rest = [self._lanes(value, dtype, lanes, range(2 * low, lanes))] if lanes % 2 else []
            value = arith.binary(code, node.agg.op, left, right, dtype, low)
            if rest:
                value = self._append(value, dtype, low, rest[0])
            lanes = high
        return value

    def _lanes(self, value: str, dtype: DType, lanes: int, picks: range) -> str:
        vector = register(dtype, lanes)
        if len(picks) == 1:
            return self.code.let(f"extractelement {vector} {value}, i64 {picks[0]}")
        return self.code.picked((vector, value), "poison", picks)

    def _append(self, value: str, dtype: DType, lanes: int, last: str) -> str:
        element, vector = register(dtype), register(dtype, lanes + 1)
        if lanes == 1:
            value = self.code.let(f"insertelement {vector} poison, {element} {value}, i64 0")
        elif held(lanes) <= lanes:
            value = self.code.picked((register(dtype, lanes), value), "poison", range(held(lanes + 1)))
        return self.code.let(f"insertelement {vector} {value}, {element} {last}, i64 {lanes}")

    def _limit(self, node: Limit) -> str:
        dtype = node.type.dtype
        return literal(dtype.min_value if node.which == "min" else dtype.max_value, dtype, node.type.lanes)

    def _work_id(self, node: WorkId) -> str:
        if node.kind is IdKind.LOCAL:
            return literal(0, node.type.dtype)
        group = self.scope.groups[node.axis]
        if group == "0" or node.type.dtype.bits == 64:
            return group
        return self.code.let(f"trunc i64 {group} to {of(node.type)}")

    _handlers: ClassVar[dict[type, Callable[..., str]]] = {
        Load: _load,
        Unary: _unary,
        Binary: _binary,
        Compare: _compare,
        Fma: _fma,
        Select: _select,
        Cast: _cast,
        Bitcast: _bitcast,
        Call: _call,
        Splat: _splat,
        Extract: _extract,
        Insert: _insert,
        Shuffle: _shuffle,
        Iota: _iota,
        ReduceLanes: _reduce_lanes,
        Limit: _limit,
        WorkId: _work_id,
    }


_LEAVES: dict[type, Callable[[Expressions, Any], str]] = {Const: Expressions.const, Var: Expressions.variable}
"""Nodes that take no instruction."""
