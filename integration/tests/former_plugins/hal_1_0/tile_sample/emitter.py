"""Semtree to Python: the text of a kernel, and the values that its names stand for."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from keyword import kwlist
from typing import Any

import numpy as np
import numpy.typing as npt
from tile_ir.dtype import DType
from tile_ir.emit.clike import CLikePrinter, Close, Item
from tile_ir.emit.pieces import ADDITIVE, ATOM, POSTFIX, TERNARY, Expansion, Piece, call
from tile_ir.emit.walker import children, walk_expr
from tile_ir.semtree import nodes as ir
from tile_ir.semtree import scalars

ARITHMETIC = {"add": "+", "sub": "-", "mul": "*"}
"""Operators that mean in NumPy's floats what they mean in Tile."""
COMPARISONS = {"cmp_lt": "<", "cmp_le": "<=", "cmp_gt": ">", "cmp_ge": ">=", "cmp_eq": "==", "cmp_ne": "!="}
DEEPEST = 30
"""Nested operations in one line; Python's parser gives up at about 200."""


def elements(array: npt.NDArray[Any]) -> Any:
    """A view whose items are what kernels compute with: NumPy scalars for floats, Python's int and bool otherwise."""
    return array.data if array.dtype.kind in "iub" else array


class PythonPrinter(CLikePrinter):
    """Prints a kernel as a Python function of its buffers and the three numbers of a group."""

    indent = " "
    max_indent = 99

    def __init__(self) -> None:
        self.namespace: dict[str, Any] = {"inf": math.inf, "nan": math.nan, "elements": elements, "zeros": np.zeros}
        super().__init__(reserved=[*kwlist, "bool", "range", *self.namespace])
        self._groups = [self.names.fresh(f"group_{axis}") for axis in "xyz"]
        self._steps: dict[int, str] = {}

    def define(self, key: Hashable, hint: str, make: Callable[[], Any]) -> str:
        """The name in the text of a value outside the text, which `make` gives."""
        name = self.names.get(key, hint)
        if name not in self.namespace:
            self.namespace[name] = make()
        return name

    def kind(self, dtype: DType) -> str:
        """The NumPy scalar type of a dtype."""
        return self.define(dtype, dtype.value, lambda: dtype.numpy.type)

    # --- expressions

    def instruction(self, op: str, args: Sequence[ir.Expr], t: ir.Type) -> Expansion:
        """A call of the function that computes `op`."""
        types = tuple(arg.type for arg in args)
        return call(self.define((op, types, t), f"{op}_{t.dtype.value}", lambda: scalars.operation(op, types, t)), args)

    def special(self, expr: ir.Expr) -> Expansion | None:
        if id(expr) in self._steps:
            return ATOM, [self._steps[id(expr)]]
        match expr:
            case ir.Binary(op, left, right, t) if op in ARITHMETIC and t.dtype.is_float:
                return ADDITIVE, self.infix(left, ARITHMETIC[op], right)
            case ir.Compare(op, left, right):
                return ATOM, ["bool(", *self.infix(left, COMPARISONS[op], right), ")"]
            case ir.Unary(op) | ir.Binary(op) | ir.Call(op):
                return self.instruction(op, children(expr), expr.type)
            case ir.Select(cond, then, other):
                return TERNARY, [(then, POSTFIX), " if ", (cond, POSTFIX), " else ", (other, POSTFIX)]
            case ir.WorkId(kind, axis):  # a group is one item here, so that both have the same number
                return ATOM, ["0" if kind is ir.IdKind.LOCAL else self._groups[axis]]
            case _:
                return None

    def infix(self, left: ir.Expr, symbol: str, right: ir.Expr) -> list[Piece]:
        """Parentheses around all but names and calls: Python's precedence is not C's."""
        return [(left, POSTFIX), f" {symbol} ", (right, POSTFIX)]

    def cast(self, value: ir.Expr, t: ir.Type) -> Expansion:
        hint = f"{t.dtype.value}_of_{value.type.dtype.value}"
        return call(self.define(("cast", value.type, t), hint, lambda: scalars.cast(value.type, t)), (value,))

    def literal(self, value: float, t: ir.Type) -> Expansion:
        if t.dtype.is_float:
            return ATOM, [f"{self.kind(t.dtype)}({float(value)!r})"]
        return ATOM, [repr(bool(value) if t.dtype is DType.BOOL else int(value))]

    def expression(self, expr: ir.Expr, least: int = 0) -> str:
        """The text of an expression, after a line for each part that is used twice or nests too deeply."""
        self._steps, depth = {}, dict[int, int]()
        uses = Counter(id(child) for node in walk_expr(expr) for child in children(node))
        for node in walk_expr(expr):
            depth[id(node)] = 1 + max((depth[id(child)] for child in children(node)), default=-1)
            if depth[id(node)] > DEEPEST or (uses[id(node)] > 1 and depth[id(node)]):
                name, depth[id(node)] = self.names.fresh("step"), 0
                self.line(f"{name} = {super().expression(node)}")
                self._steps[id(node)] = name
        return super().expression(expr, least)

    # --- statements

    def signature(self, function: ir.Function) -> str:
        params = [self.declare(param.name) for param in function.params]
        return f"def {self.declare_global(function.name)}({', '.join([*params, *self._groups])}):"

    def line(self, text: str) -> None:
        # Assignments, stores and the ends of blocks come from the base class, with C's punctuation.
        if text := text.rstrip("; {}"):
            super().line(text)

    def suite(self, block: ir.Block, scopes: int = 1) -> list[Item]:
        """The statements of a block whose head is printed, and its end."""
        blank = all(isinstance(statement, ir.Comment) for statement in block.body)
        return [*block.body, *([ir.Block()] if blank else []), Close(scopes=scopes)]

    def write_let(self, node: ir.Let) -> None:
        value = self.expression(node.value)
        self.line(f"{self.declare(node.name)} = {value}")

    def write_alloc(self, node: ir.Alloc) -> None:
        self.line(f"{self.declare(node.name)} = elements(zeros({node.type.count}, {self.kind(node.type.dtype)}))")

    def write_for(self, node: ir.For) -> Sequence[Item]:
        start, stop = self.expression(node.start), self.expression(node.stop)
        self._scopes.append({})
        self.begin(f"for {self.declare(node.var)} in range({start}, {stop}, {node.step}):")
        return self.suite(node.body, scopes=2)

    def write_if(self, node: ir.If) -> Sequence[Item]:
        self.begin(f"if {self.expression(node.cond)}:")
        return [*self.suite(node.then), *(["else:", *self.suite(node.other)] if node.other else [])]

    def write_block(self, node: ir.Block) -> Sequence[Item]:
        self.line("" if node.body else "pass")
        return ["if True:", *self.suite(node)] if node.body else []

    def write_comment(self, node: ir.Comment) -> None:
        for text in node.text.splitlines():
            self.line("# " + ascii(text)[1:-1])
