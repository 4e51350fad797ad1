"""A Program as Tile source, where the language can say it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from tile_ir.diagnostics import Diagnostic, TileTypeError
from tile_ir.dtype import DType
from tile_ir.names import claim
from tile_ir.ops import OPS
from tile_ir.program.nodes import (
    Argsort,
    Constraint,
    Contraction,
    Elementwise,
    Gather,
    Literal,
    Op,
    Operand,
    Poly,
    Program,
    Reshape,
    ScalarStatement,
    Scatter,
    Subscript,
    TensorType,
    coordinates,
)
from tile_lang.printer import print_index, print_name


def to_tile(program: Program, names: Mapping[str, str] | None = None) -> str:
    """Tile source of `program`, with its sizes as numbers.

    Constraints that the ranges of the printed accesses imply are left out. `names` renames values. TileTypeError
    (TILE-E805) names an operation that Tile has no statement for: bodies beyond one, two or three accesses, constant
    tensors, random numbers.
    """
    printer = _Printer(program, dict(names or {}))
    lines = [f"    {line}" for op in program.ops for line in printer.lines(op)]
    lines += printer.copies()
    inputs = ", ".join(printer.name(p.name) for p in program.inputs)
    outputs = ", ".join(printer.public)
    return "\n".join([f"function ({inputs}) -> ({outputs}) {{", *lines, "}", ""])


def _fail(message: str) -> NoReturn:
    hint = "tile_lang.print_program can print every program"
    raise TileTypeError(Diagnostic("TILE-E805", message, hint=hint))


class _Printer:
    def __init__(self, program: Program, names: dict[str, str]) -> None:
        self.program = program
        self.types = program.types()
        inputs = [p.name for p in program.inputs]
        # A value takes the name of its first output, unless it is an input.
        first = {v: p for p, v in reversed(program.outputs) if v not in inputs}
        self._taken: set[str] = set()
        self._names = {n: self._fresh(names.get(n, n)) for n in inputs}
        self._public = {p: self._fresh(names.get(p, p)) for p, _ in program.outputs}
        for value in self.types:
            if value not in self._names:
                known = self._public.get(first.get(value, ""))
                self._names[value] = known or self._fresh(names.get(value, value))
        self.public = [print_name(self._public[p]) for p, _ in program.outputs]
        self._constants: dict[tuple[str, DType], str] = {}
        self._pending: list[str] = []

    def name(self, value: str) -> str:
        return print_name(self._names[value])

    def _fresh(self, name: str) -> str:
        """A name that Tile can spell and that nothing else has."""
        name = re.sub(r"\W", "_", name)
        return claim(name if name[:1].isalpha() else "X" + name, self._taken)

    def copies(self) -> list[str]:
        """Statements for outputs that are inputs, or that share a value with an earlier output."""
        lines: list[str] = []
        for public, (_, value) in zip(self.public, self.program.outputs, strict=True):
            if self.name(value) != public:
                lines.append(f"    {public} = {self.name(value)};")
        return lines

    def operand(self, value: Operand) -> str:
        return self.name(value) if isinstance(value, str) else _number(value)

    def lines(self, op: Op) -> list[str]:
        match op:
            case Elementwise():
                return [f"{self.name(op.name)} = {self._call(op)};"]
            case Reshape():
                sizes = "".join(f", {n}" for n in op.type.shape)
                return [f"{self.name(op.name)} = reshape({self.name(op.arg)}{sizes});"]
            case Argsort():
                return [self._argsort(op)]
            case Gather():
                return [self._gather(op)]
            case Scatter():
                return [self._scatter(op)]
            case Contraction():
                return self._contraction(op)
            case _:
                _fail(f"Tile has no statement for {type(op).__name__}")

    # --- gather and scatter ---

    def _argsort(self, op: Argsort) -> str:
        count, arg = op.type.shape[op.axis], self.name(op.arg)
        if count != self.types[op.arg].shape[op.axis]:
            if not op.descending:
                _fail(f"Tile has no statement for the first {count} places in order")
            return f"{self.name(op.name)} = element(top_k({arg}, {count}, {op.axis}), 1);"
        return f"{self.name(op.name)} = argsort({arg}, {op.axis}{', 1' if op.descending else ''});"

    def _gather(self, op: Gather) -> str:
        source = f"{self.name(op.data)}[{self._subscripts(op.subscripts)}]"
        return f"{self._target(op.name, coordinates(len(op.type.shape)), op.type.shape)} = =({source});"

    def _scatter(self, op: Scatter) -> str:
        cell = coordinates(len(self.types[op.updates].shape))
        text = f"{self._target(op.name, op.subscripts, op.type.shape)} = {op.agg.symbol}"
        text += f"({self.name(op.updates)}[{self._subscripts(cell)}])"
        return text + (f" default {self.name(op.default)};" if op.default is not None else ";")

    def _target(self, name: str, subscripts: tuple[Subscript, ...], shape: tuple[int, ...]) -> str:
        sizes = ", ".join(map(str, shape))
        return f"{self.name(name)}[{self._subscripts(subscripts)} : {sizes}]" if shape else f"{self.name(name)}[]"

    def _subscripts(self, subscripts: tuple[Subscript, ...]) -> str:
        return ", ".join(map(self._subscript, subscripts))

    def _subscript(self, subscript: Subscript) -> str:
        if isinstance(subscript, Poly):
            return _formula(subscript)
        return f"{self.name(subscript.tensor)}[{self._subscripts(subscript.formulas)}]"

    # --- elementwise ---

    def _call(self, op: Elementwise) -> str:
        args = [self.operand(a) for a in op.args]
        if op.fn == "cast":
            return _cast(args[0], op.type.dtype)
        if op.fn == "bitcast":
            return f"bits_as_{op.type.dtype.value.rstrip('0123456789')}({args[0]})"
        if op.fn == "cond":
            return f"{args[0]} ? {args[1]} : {args[2]}"
        if op.fn == "ident":
            return args[0]
        symbol = OPS[op.fn].symbol if op.fn in OPS else None
        if symbol is None:
            return f"{op.fn}({', '.join([*args, *map(repr, op.params)])})"
        return f"{args[0]} {symbol} {args[1]}" if len(args) == 2 else f"{symbol}{args[0]}"

    # --- contractions ---

    def _contraction(self, op: Contraction) -> list[str]:
        body = _Shape(op).text(self._access(op))
        text = f"{self._target(op.name, op.output, op.type.shape)} = {op.agg.symbol}({body})"
        text += "".join(f", {_formula(c.formula)} < {c.size}" for c in self._explicit(op))
        text += " no_defract" if op.no_defract else ""
        text += f" default {self.name(op.default)}" if op.default is not None else ""
        before = self._pending
        self._pending = []
        return [*before, text + ";"]

    def _access(self, op: Contraction) -> Callable[[Operand], str]:
        loads = {load.dst: load for load in op.loads}

        def access(operand: Operand) -> str:
            if isinstance(operand, Literal):
                return f"{self._constant(operand)}[]"
            load = loads[operand]
            if isinstance(load.tensor, Literal):
                return f"{self._constant(load.tensor)}[]"
            return f"{self.name(load.tensor)}[{', '.join(map(_formula, load.formulas))}]"

        return access

    def _constant(self, value: Literal) -> str:
        """The name of a literal: contraction bodies hold names only."""
        key = (repr(value.value), value.dtype)
        if key not in self._constants:
            name = self._constants[key] = self._fresh(f"C{len(self._constants)}")
            self._pending.append(f"{name} = {_number(value)};")
        return self._constants[key]

    def _explicit(self, op: Contraction) -> list[Constraint]:
        """Constraints that no access of the statement implies."""
        implied = [*zip(op.output, op.type.shape, strict=True)]
        for load in op.loads:
            if isinstance(load.tensor, str):
                implied += zip(load.formulas, self.types[load.tensor].shape, strict=True)
        have = {(c.formula, c.size) for c in op.constraints}
        extra = next((f"{f} < {n}" for f, n in implied if (f, n) not in have), None)
        if extra is not None:
            _fail(f"{op.name} is valid where {extra} does not hold")
        return [c for c in dict.fromkeys(op.constraints) if (c.formula, c.size) not in set(implied)]


class _Plain(_Printer):
    """One statement with the program's own names, for people to read."""

    def __init__(self, types: Mapping[str, TensorType]) -> None:
        self.types = dict(types)
        self._pending = []

    def name(self, value: str) -> str:
        return value

    def _constant(self, value: Literal) -> str:
        return _number(value)


def statement_text(op: Contraction, types: Mapping[str, TensorType]) -> str:
    """The Tile statement that a contraction is, for comments; empty if Tile has none."""
    try:
        return _Plain(types).lines(op)[-1]
    except TileTypeError:
        return ""


class _Shape:
    """Recognises the bodies that Tile has: A, A + B + …, A * B * …, A == B, A == B ? C; casts are implied."""

    def __init__(self, op: Contraction) -> None:
        self.op = op
        self.statements = {s.dst: s for s in op.body}

    def plain(self, operand: Operand) -> Operand:
        """Behind casts that the language inserts by itself."""
        while isinstance(operand, str) and operand in self.statements and self.statements[operand].fn == "cast":
            operand = self.statements[operand].args[0]
        return operand

    def text(self, access: Callable[[Operand], str]) -> str:
        s = self._statement(self.op.result)
        if s is None:
            return access(self.plain(self.op.result))
        if s.fn in ("add", "mul", "cmp_eq"):
            args = s.args if s.fn == "cmp_eq" else self._chain(s)
            return f" {OPS[s.fn].symbol} ".join(self._leaves(args, access))
        test = self._statement(s.args[0]) if s.fn == "cond" else None
        if test is None or test.fn != "cmp_eq" or not _is_zero(s.args[2]):
            _fail(f"the body of {self.op.name} is none that Tile has")
        left, right, then = self._leaves((*test.args, s.args[1]), access)
        return f"{left} == {right} ? {then}"

    def _chain(self, s: ScalarStatement) -> tuple[Operand, ...]:
        """The operands of a chain of one operator, as the language evaluates it: from the left."""
        first, *rest = s.args
        while (inner := self._statement(first)) is not None and inner.fn == s.fn:
            first, *more = inner.args
            rest = [*more, *rest]
        return (first, *rest)

    def _statement(self, operand: Operand) -> ScalarStatement | None:
        operand = self.plain(operand)
        return self.statements.get(operand) if isinstance(operand, str) else None

    def _leaves(self, args: Sequence[Operand], access: Callable[[Operand], str]) -> list[str]:
        if any(self._statement(a) is not None for a in args):
            _fail(f"the body of {self.op.name} is none that Tile has")
        return [access(self.plain(a)) for a in args]


def _is_zero(operand: Operand) -> bool:
    return isinstance(operand, Literal) and operand.value == 0


def _number(value: Literal) -> str:
    number = value.value
    if isinstance(number, bool):
        return "(1 == 1)" if number else "(1 == 0)"
    text = repr(abs(number))
    return f"(-{text})" if number < 0 else text


_CASTS = {"float": "as_float", "bfloat": "as_bfloat", "int": "as_int", "uint": "as_uint"}


def _cast(arg: str, dtype: DType) -> str:
    if dtype is DType.BOOL:
        return f"as_bool({arg})"
    family = dtype.value.rstrip("0123456789")
    return f"{_CASTS[family]}({arg}, {dtype.bits})"


def _formula(poly: Poly) -> str:
    """Index terms in name order, then the constant: ``2*j + 3*y - 1``; fractions as ``i/2``."""
    text = ""
    for name, c in poly.terms:
        size = abs(c)
        term = print_index(name) if size.numerator == 1 else f"{size.numerator}*{print_index(name)}"
        term += f"/{size.denominator}" if size.denominator != 1 else ""
        text += (" - " if c < 0 else " + ") + term if text else ("-" if c < 0 else "") + term
    if poly.const or not text:
        size = abs(poly.const)
        text += ((" - " if poly.const < 0 else " + ") if text else ("-" if poly.const < 0 else "")) + str(size)
    return text
