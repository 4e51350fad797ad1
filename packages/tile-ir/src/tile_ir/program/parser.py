"""Parse the text form of a Program, which `tile_ir.program.printer` describes: ``parse_program(print_program(p)) == p``."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple, TypeVar

from tile_ir.contents import Contents
from tile_ir.diagnostics import Diagnostic, Source, Span, TileSyntaxError
from tile_ir.dtype import DType
from tile_ir.ops import Aggregation
from tile_ir.program.nodes import (
    Argsort,
    ConstantTensor,
    Constraint,
    Contraction,
    CustomGradient,
    Elementwise,
    Gather,
    IndexOf,
    Literal,
    Lookup,
    Loop,
    Op,
    Operand,
    Param,
    Poly,
    Prng,
    Program,
    Reshape,
    ScalarStatement,
    Scatter,
    Subscript,
    TensorLoad,
    TensorType,
)

T = TypeVar("T")

_NAME = re.compile(r"[A-Za-z_$][\w$.']*")
_SPECIAL = {"inf": math.inf, "nan": math.nan, "true": True, "false": False}


class _Token(NamedTuple):
    kind: str
    text: str
    start: int


_TOKENS = re.compile(
    r"(?P<space>\s+|//[^\n]*)"
    r"|(?P<string>\"(?:[^\"\\\n]|\\.)*\")"
    r"|(?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)"
    r"|(?P<name>[A-Za-z_$][\w$.']*)"
    r"|(?P<mark>->|[-+*/<>=()\[\]{}:;,])"
)


def parse_program(text: str | Source) -> Program:
    """Read the text form; TileSyntaxError (TILE-E150) says what is expected where."""
    source = text if isinstance(text, Source) else Source(text, "<program>")
    reader = _Reader(source)
    program = reader.program()
    reader.take("end")
    return program


class _Reader:
    """A cursor over the tokens with one method per rule."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.tokens = list(self._lex())
        self.at = 0

    def _lex(self) -> list[_Token]:
        tokens: list[_Token] = []
        position, text = 0, self.source.text
        while position < len(text):
            match = _TOKENS.match(text, position)
            if match is None:
                raise self._error(f"unexpected character {text[position]!r}", position, position + 1)
            if match.lastgroup != "space":
                tokens.append(_Token(str(match.lastgroup), match.group(), position))
            position = match.end()
        return [*tokens, _Token("end", "", len(text))]

    def _error(self, message: str, start: int, end: int) -> TileSyntaxError:
        return TileSyntaxError(Diagnostic("TILE-E150", message, Span(self.source, start, end)))

    # --- tokens ---

    @property
    def next(self) -> _Token:
        return self.tokens[self.at]

    def fail(self, wanted: str) -> TileSyntaxError:
        """The error that something else is expected here."""
        token = self.next
        found = token.text or "the end"
        return self._error(f"expected {wanted}, found {found}", token.start, token.start + max(1, len(token.text)))

    def take(self, kind: str) -> str:
        """The text of the next token, which must be of a kind or be a mark or word."""
        token = self.next
        if kind not in (token.kind, token.text):
            raise self.fail({"end": "the end"}.get(kind, kind))
        self.at += 1
        return token.text

    def skip(self, text: str) -> bool:
        """Whether the next token is this one, which is then consumed."""
        if self.next.text != text or self.next.kind == "string":
            return False
        self.at += 1
        return True

    def sequence(self, item: Callable[[], T], closing: str) -> tuple[T, ...]:
        """Items separated by commas up to a closing mark, which is consumed."""
        items: list[T] = []
        while not self.skip(closing):
            if items:
                self.take(",")
            items.append(item())
        return tuple(items)

    # --- parts ---

    def name(self) -> str:
        return self._string() if self.next.kind == "string" else self.take("name")

    def _string(self) -> str:
        try:
            text = json.loads(self.next.text)
        except ValueError:
            raise self.fail("a string as in JSON") from None
        self.at += 1
        return str(text)

    def integer(self) -> int:
        sign = -1 if self.skip("-") else 1
        if not self.next.text.isdecimal():
            raise self.fail("an integer")
        return sign * int(self.take("number"))

    def number(self) -> int | float | bool:
        negative = self.skip("-")
        token = self.next
        if token.kind == "name" and token.text in _SPECIAL:
            value = _SPECIAL[self.take("name")]
        elif token.text.isdecimal():
            value = int(self.take("number"))
        else:
            value = float(self.take("number"))
        return -value if negative else value

    def dtype(self) -> DType:
        if self.next.text not in _DTYPES:
            raise self.fail("a dtype")
        return _DTYPES[self.take("name")]

    def type(self) -> TensorType:
        dtype = self.dtype()
        self.take("[")
        return TensorType(dtype, self.sequence(self.integer, "]"))

    def operand(self) -> Operand:
        token = self.next
        if token.kind == "string" or (token.kind == "name" and token.text not in _SPECIAL):
            return self.name()
        value = self.number()
        self.take(":")
        return Literal(value, self.dtype())

    def poly(self) -> Poly:
        total = self._term(-1 if self.skip("-") else 1)
        while self.next.text in ("+", "-"):
            total = total + self._term(-1 if self.take("mark") == "-" else 1)
        return total

    def _term(self, sign: int) -> Poly:
        if self.next.kind == "name":
            return Poly.of({self.take("name"): sign})
        value = Fraction(self.integer())
        if self.skip("/"):
            value /= self.integer()
        return Poly.of({self.take("name"): sign * value}) if self.skip("*") else Poly(const=sign * value)

    def constraint(self) -> Constraint:
        formula = self.poly()
        self.take("<")
        return Constraint(formula, self.integer())

    # --- program and statements ---

    def program(self) -> Program:
        self.take("program")
        name = self.name()
        self.take("(")
        inputs = self.sequence(self._param, ")")
        self.take("->")
        self.take("(")
        outputs = self.sequence(self._output, ")")
        self.take("{")
        ops: list[Op] = []
        gradients: list[CustomGradient] = []
        while not self.skip("}"):
            if self.next.text == "gradient" and self.tokens[self.at + 1].text == "of":
                gradients.append(self._gradient())
            else:
                ops.append(self._statement())
            self.take(";")
        return Program(name, inputs, tuple(ops), outputs, tuple(gradients))

    def _gradient(self) -> CustomGradient:
        names: list[tuple[str, ...]] = []
        for word in ("gradient", "of", "(", "by", "("):
            self.take(word)
            if word == "(":
                names.append(self.sequence(self.name, ")"))
        return CustomGradient(names[1], names[0], self.program())

    def _param(self) -> Param:
        name = self.name()
        self.take(":")
        return Param(name, self.type(), self.skip("bound"))

    def _output(self) -> tuple[str, str]:
        public = self.name()
        self.take("=")
        return public, self.name()

    def _statement(self) -> Op:
        if self.skip("("):
            return self._loop()
        name = self.name()
        if self.skip("["):
            return self._contraction(name)
        state = self.name() if self.skip(",") else None
        self.take(":")
        type_ = self.type()
        self.take("=")
        fn = self.take("name")
        self.take("(")
        if state is not None:
            op: Op = Prng(name, state, type_, self.name())
        elif fn in self._special():
            op = self._special()[fn](name, type_)
        else:
            return self._elementwise(name, type_, fn)
        self.take(")")
        return op

    def _loop(self) -> Loop:
        results = self.sequence(self.name, ")")
        self.take(":")
        self.take("(")
        types = self.sequence(self.type, ")")
        self.take("=")
        self.take("loop")
        count = self.integer()
        carries, slices, captured = map(self._group, ("from", "over", "with"))
        reverse = self.skip("reverse")
        checkpoint = self.integer() if self.skip("checkpoint") else 0
        return Loop(results, types, self.program(), count, carries, slices, captured, reverse, checkpoint)

    def _group(self, word: str) -> tuple[str, ...]:
        self.take(word)
        self.take("(")
        return self.sequence(self.name, ")")

    def _special(self) -> dict[str, Callable[[str, TensorType], Op]]:
        return {
            "index": lambda name, type_: IndexOf(name, type_, self.integer()),
            "reshape": lambda name, type_: Reshape(name, type_, self.name()),
            "argsort": self._argsort,
            "gather": self._gather,
            "scatter": self._scatter,
            "constant": lambda name, type_: ConstantTensor(name, type_, Contents(self._bytes())),
        }

    def _argsort(self, name: str, type_: TensorType) -> Argsort:
        arg = self.name()
        self.take(",")
        axis = self.integer()
        descending = self.skip(",")
        if descending:
            self.take("descending")
        return Argsort(name, type_, arg, axis, descending)

    def _gather(self, name: str, type_: TensorType) -> Gather:
        data = self.name()
        self.take("[")
        return Gather(name, type_, data, self.sequence(self._subscript, "]"))

    def _scatter(self, name: str, type_: TensorType) -> Scatter:
        agg, updates = self._aggregation(), self.name()
        self.take(",")
        self.take("[")
        subscripts = self.sequence(self._subscript, "]")
        return Scatter(name, type_, updates, subscripts, agg, self.name() if self.skip("default") else None)

    def _subscript(self) -> Subscript:
        """A formula, or the name of a tensor with formulas in brackets."""
        if self.next.kind not in ("name", "string") or self.tokens[self.at + 1].text != "[":
            return self.poly()
        tensor = self.name()
        self.take("[")
        return Lookup(tensor, self.sequence(self.poly, "]"))

    def _bytes(self) -> bytes:
        start = self.at
        try:
            return bytes.fromhex(self._string())
        except ValueError:
            self.at = start
            raise self.fail("hexadecimal digits in quotes") from None

    def _elementwise(self, name: str, type_: TensorType, fn: str) -> Elementwise:
        args: list[Operand] = []
        params: list[int | float] = []
        while not self.skip(")"):
            if self.skip(";"):
                params.append(self.number())
                continue
            if args:
                self.take(",")
            args.append(self.operand())
        return Elementwise(name, type_, fn, tuple(args), tuple(params))

    def _contraction(self, name: str) -> Contraction:
        output = self.sequence(self.poly, ":")
        shape = self.sequence(self.integer, "]")
        self.take(":")
        dtype = self.dtype()
        self.take("=")
        agg = self._aggregation()
        self.take("(")
        result = self.operand()
        self.take(":")
        acc = self.dtype()
        self.take(")")
        self.take("over")
        self.take("[")
        indexes = self.sequence(lambda: self.take("name"), "]")
        self.take("where")
        constraints = self.sequence(self.constraint, "{")
        loads, body = self._body()
        default = self.name() if self.skip("default") else None
        no_defract = self.skip("no_defract")
        text = self.name() if self.next.kind == "string" else ""
        return Contraction(
            name,
            TensorType(dtype, shape),
            agg,
            indexes,
            output,
            constraints,
            loads,
            body,
            result,
            acc,
            default,
            no_defract,
            text,
        )

    def _aggregation(self) -> Aggregation:
        if self.next.text not in _AGGREGATIONS:
            raise self.fail("an aggregation: + * > < or =")
        return _AGGREGATIONS[self.take("mark")]

    def _body(self) -> tuple[tuple[TensorLoad, ...], tuple[ScalarStatement, ...]]:
        loads: list[TensorLoad] = []
        body: list[ScalarStatement] = []
        while not self.skip("}"):
            dst = self.name()
            if self.skip(":"):
                dtype = self.dtype()
                self.take("=")
                fn = self.take("name")
                self.take("(")
                body.append(ScalarStatement(dst, fn, self.sequence(self.operand, ")"), dtype))
            else:
                self.take("=")
                tensor = self.operand()
                self.take("[")
                loads.append(TensorLoad(dst, tensor, self.sequence(self.poly, "]")))
            self.take(";")
        return tuple(loads), tuple(body)


_DTYPES = {d.value: d for d in DType}
_AGGREGATIONS = {a.symbol: a for a in Aggregation}
