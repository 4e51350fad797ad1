"""Lanes of vectors: picked, put in, moved, and merged into one value."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from tile_ir.dtype import DType
from tile_ir.emit.pieces import EQUALITY, POSTFIX, PREFIX, Expansion, Piece, call
from tile_ir.semtree.errors import SemtreeError
from tile_ir.semtree.nodes import Binary, Expr, Extract, Insert, Iota, ReduceLanes, Shuffle, Splat, Type, Var

from hal_opencl.emit import helpers
from hal_opencl.emit.types import register, tag
from hal_opencl.emit.waiting_values import WaitingValues


class LaneExpressions(WaitingValues):
    """Expressions that tell the lanes of a vector apart."""

    def _splat(self, node: Splat) -> Expansion:
        sign = "-" if node.type.dtype is DType.BOOL else ""
        if node.type.lanes == 1:
            return self.expand(node.value)
        return PREFIX, [f"({self.type_name(node.type)})({sign}", (node.value, PREFIX if sign else 0), ")"]

    def _extract(self, node: Extract) -> Expansion:
        if node.vector.type.lanes == 1:
            return self.expand(node.vector)
        lane: list[Piece] = [(node.vector, POSTFIX), f".s{node.lane:x}"]
        return (EQUALITY, [*lane, " != 0"]) if node.type.dtype is DType.BOOL else (POSTFIX, lane)

    def _insert(self, node: Insert) -> Expansion:
        t = node.type
        if t.lanes == 1:
            return self.expand(node.value)
        values: dict[int, Expr] = {}
        base: Expr = node
        while isinstance(base, Insert):
            values.setdefault(base.lane, base.value)
            base = base.vector
        if len(values) == t.lanes or (isinstance(base, Var) and len(values) > 1):
            return self._lanes(t, values, base)
        name = self.helper(f"insert_{tag(t)}_{node.lane}", helpers.insert, t, f"{node.lane:x}")
        return call(name, (node.vector, node.value))

    def _lanes(self, t: Type, values: dict[int, Expr], base: Expr) -> Expansion:
        """A vector written lane by lane."""
        pieces: list[Piece] = [f"({self.type_name(t)})("]
        sign = "-" if t.dtype is DType.BOOL else ""
        for lane in range(t.lanes):
            pieces.append(", " if lane else "")
            pieces += (
                [sign, (values[lane], PREFIX if sign else 0)] if lane in values else [(base, POSTFIX), f".s{lane:x}"]
            )
        return PREFIX, [*pieces, ")"]

    def _shuffle(self, node: Shuffle) -> Expansion:
        left, right, lanes = node.left.type, node.right.type, node.lanes
        if len(lanes) == 1:
            source, lane = (node.left, lanes[0]) if lanes[0] < left.lanes else (node.right, lanes[0] - left.lanes)
            return self.expand(Extract(source, lane, node.type))
        if left.lanes > 1 and max(lanes) < left.lanes:
            return POSTFIX, [(node.left, POSTFIX), ".s" + "".join(f"{n:x}" for n in lanes)]
        if left.lanes == 1 and left.dtype is DType.BOOL:
            raise SemtreeError("OpenCL has no shuffle of single bools")
        name = f"pick_{tag(left)}_{tag(right)}_" + "_".join(map(str, lanes))
        return call(self.helper(name, helpers.select_lanes, left, right, lanes), (node.left, node.right))

    def _iota(self, node: Iota) -> Expansion:
        t = node.type
        if t.lanes == 1:
            return self.literal(0, t)
        numbers = ", ".join(self._text(self.literal(n, t.scalar)) for n in range(t.lanes))
        return PREFIX, [f"({self.type_name(t)})({numbers})"]

    def _reduce_lanes(self, node: ReduceLanes) -> Expansion:
        if node.value.type.lanes == 1:
            return self.expand(node.value)
        op = node.agg.op
        name = self.helper(f"reduce_{op}_{tag(node.value.type)}", self._reduction, op, node.value.type)
        return call(name, (node.value,))

    def _reduction(self, name: str, op: str, t: Type) -> str:
        """Lane i with lane i + lanes/2, then the halves again."""
        result = register(t.dtype)
        lines = [f"{result} {name}({self.type_name(t)} v) {{"]
        current, lanes, number = "v", t.lanes, 0
        while lanes > 1:
            lanes //= 2
            part = Type(t.dtype, lanes)
            self._scopes.append({"low": f"{current}.lo", "high": f"{current}.hi"})
            # A single lane of a mask is 0 or -1: its arithmetic stays on such numbers.
            text = self.expression(Binary(op, Var("low", part), Var("high", part), part))
            self._scopes.pop()
            kind = "char" if t.dtype is DType.BOOL and lanes == 1 else self.type_name(part)
            lines.append(f"    {kind} v{number} = {text};")
            current, number = f"v{number}", number + 1
        return "\n".join([*lines, f"    return {current}{' != 0' if t.dtype is DType.BOOL else ''};", "}"])

    _handlers: ClassVar[dict[type, Callable[..., Expansion]]] = {
        **WaitingValues._handlers, Splat: _splat, Extract: _extract, Insert: _insert, Shuffle: _shuffle,
        Iota: _iota, ReduceLanes: _reduce_lanes,
    }  # fmt: skip
