"""Sums of products of short factors as dot products of words, and what is added to them outside the sum.

With a factor ``x - z`` stored as ``y = x - z + c``, the sum of ``(y - c) * (w - d)`` is that of ``y * w``, less c times the
sum of w, less d times the sum of y, and c * d for each term. All of it is exact, as integers wrap alike in any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np
from tile_ir.contents import Contents
from tile_ir.dots import WORD
from tile_ir.dtype import DType
from tile_ir.names import claim
from tile_ir.ops import Aggregation
from tile_ir.program.nodes import (
    ConstantTensor,
    Constraint,
    Contraction,
    Elementwise,
    Literal,
    Op,
    Operand,
    Poly,
    ScalarStatement,
    TensorLoad,
    TensorType,
)
from tile_ir.stripe.affine import Affine, names_in

from tile_opt.analysis import poly
from tile_opt.program.dots.choose import Choice, slides
from tile_opt.program.dots.match import Match
from tile_opt.program.dots.words import Packing, Stored, in_words, is_words, word
from tile_opt.program.trees import Body, Leaf, Tree, as_dtype, leaves


@dataclass(slots=True)
class Builder:
    """The operations in place of one contraction."""

    match: Match
    choice: Choice
    packing: Packing
    ops: list[Op] = field(default_factory=list[Op])

    def build(self) -> list[Op]:
        """They end with one of the contraction's name."""
        chosen, op = self.choice, self.match.op
        a, b = (self._words(s, dim) for s, dim in zip(chosen.stored, chosen.dims, strict=True))
        left, right = (self._center(s) for s in chosen.stored)
        steps: list[tuple[str, Operand]] = [("add", self._end(q)) for q in self._ends()]
        if not _is_zero(left):
            steps.append(("sub", self._product(self._sum(b, 1), left)))
        if not _is_zero(right):
            steps.append(("sub", self._product(self._sum(a, 0), right)))
        if not _is_zero(left) and not _is_zero(right):
            terms = Literal(prod(self.match.ranges[n] for n in self.match.reduced), WORD)
            steps.append(("add", self._product(self._product(left, right), terms)))
        scale = self._scale()
        last = not steps and scale is None and op.type.dtype is chosen.dot.c
        total: Operand = self._dot(a, b, op.name if last else claim(f"{op.name}_dot", self.packing.taken))
        for k, (fn, term) in enumerate(steps):
            done = k + 1 == len(steps) and scale is None and op.type.dtype is chosen.dot.c
            total = self._elementwise(fn, total, term, op.name if done else "")
        if scale is not None:
            wide = self._cast(total, DType.FLOAT32, self._name("wide"))
            self._elementwise("mul", wide, scale, op.name)
        elif op.type.dtype is not chosen.dot.c:
            self._cast(total, op.type.dtype, op.name)
        return self.ops

    # --- operands ---------------------------------------------------------------------------------------

    def _words(self, stored: Stored, dim: int) -> Leaf:
        """An element of a factor's words."""
        choice, depth = self.choice, self.choice.dot.depth
        last = self._last(stored.leaf, dim) if choice.tiling is not None else None
        tensor = self.packing.words(stored, dim, depth, self.ops, choice.apart, last)
        last = None if is_words(stored, dim, self.packing.types[stored.leaf.tensor], depth) else last
        found = in_words(stored.leaf, dim, choice.index, choice.index, depth, stored.pads, last)
        return Leaf(tensor, found.forms, WORD)

    def _last(self, leaf: Leaf, dim: int) -> int | None:
        """The dimension of words that tiles load side by side, where another is behind it.

        Words of an element of a window are, where windows slide along what is behind them; else those of a tile's columns.
        """
        behind = leaf.forms[dim + 1 :]
        if any(slides(f, self.match) for f in behind):
            return dim
        columns = self.choice.tiling.columns if self.choice.tiling is not None else ""
        return next((d for d, f in enumerate(leaf.forms[:-1]) if f == Affine.var(columns)), None) if behind else None

    def _add(self, op: Contraction | Elementwise) -> str:
        self.ops.append(op)
        self.packing.types[op.name] = op.type
        return op.name

    def _name(self, ending: str) -> str:
        return claim(f"{self.match.op.name}_{ending}", self.packing.taken)

    # --- contractions -----------------------------------------------------------------------------------

    def _ends(self) -> range:
        """The terms behind the last whole word, where they are added by themselves."""
        choice = self.choice
        return range(choice.words * choice.dot.depth, self.match.ranges[choice.index]) if choice.apart else range(0)

    def _end(self, number: int) -> str:
        """A term of each sum."""
        op, index, dtype = self.match.op, self.choice.index, self.choice.dot.c
        loads = tuple(
            TensorLoad(
                f"${n}", s.leaf.tensor, tuple(poly(f.substitute({index: Affine((), number)})) for f in s.leaf.forms)
            )
            for n, s in zip("ab", self.choice.stored, strict=True)
        )
        wide = tuple(ScalarStatement(f"$w{n}", "cast", (f"${n}",), dtype) for n in "ab")
        body = (*wide, ScalarStatement("$t", "mul", ("$wa", "$wb"), dtype))
        indexes = tuple(n for n in op.indexes if n != index)
        return self._add(Contraction(
            self._name("end"), TensorType(dtype, op.type.shape), Aggregation.ASSIGN, indexes, op.output,
            tuple(Constraint(Poly.of({n: 1}), self.match.ranges[n]) for n in indexes), loads, body, "$t", dtype,
            text=f"{op.name}: term {number}", origin=op.origin,
        ))  # fmt: skip

    def _dot(self, a: Leaf, b: Leaf, name: str) -> str:
        """The sum of the words' products."""
        op = self.match.op
        loads = (
            TensorLoad("$a", a.tensor, tuple(map(poly, a.forms))),
            TensorLoad("$b", b.tensor, tuple(map(poly, b.forms))),
        )
        cuts = () if self.choice.padded else self.match.cuts
        made = self._contraction(name, op.type.shape, op.output, op.indexes, loads, ("$a", "$b"), cuts)
        return self._add(made)

    def _sum(self, factor: Leaf, side: int) -> str:
        """The sum of one factor, once for each of the other's terms, where the result moves with it at all."""
        op, names = self.match.op, names_in(factor.forms)
        kept = [bool(names & set(f.names)) for f in op.output]
        output = tuple(f if keep else Poly() for f, keep in zip(op.output, kept, strict=True))
        shape = tuple(n if keep else 1 for n, keep in zip(op.type.shape, kept, strict=True))
        names |= names_in(output)
        ones, loads = self._ones()
        loads = (TensorLoad("$f", factor.tensor, tuple(map(poly, factor.forms))), *loads)
        args: tuple[Operand, Operand] = ("$f", ones) if side == 0 else (ones, "$f")
        indexes = tuple(n for n in op.indexes if n in names)
        made = self._contraction(self._name("sum"), shape, output, indexes, loads, args, ())
        times = prod(self.match.ranges[n] for n in self.match.reduced if n not in names)
        return str(self._product(self._add(made), Literal(times, WORD)))

    def _ones(self) -> tuple[Operand, tuple[TensorLoad, ...]]:
        """A factor of 1 for each number that the packed index takes, and of 0 behind the last."""
        bits, count = WORD.bits // self.choice.dot.depth, self.match.ranges[self.choice.index]
        ones = [sum(1 << bits * q for q in range(self.choice.dot.depth) if w + q < count) for w in self._starts()]
        if len(set(ones)) == 1:
            return word(ones[0]), ()
        type = TensorType(WORD, (len(ones),))
        name = self._name("ones")
        self.ops.append(ConstantTensor(name, type, Contents(np.array(ones, np.int32).tobytes())))
        self.packing.types[name] = type
        return "$ones", (TensorLoad("$ones", name, (Poly.of({self.choice.index: 1}),)),)

    def _starts(self) -> range:
        """The number of the first factor of each word."""
        return range(0, self.choice.words * self.choice.dot.depth, self.choice.dot.depth)

    def _contraction(
        self,
        name: str,
        shape: tuple[int, ...],
        output: tuple[Poly, ...],
        indexes: tuple[str, ...],
        loads: tuple[TensorLoad, ...],
        args: tuple[Operand, Operand],
        cuts: tuple[tuple[Affine, int], ...],
    ) -> Contraction:
        ranges = {**self.match.ranges, self.choice.index: self.choice.words}
        bounds = [(Poly.of({n: 1}), ranges[n]) for n in indexes] + [(poly(f), n) for f, n in cuts]
        dot, total = self.choice.dot, self.choice.dot.c
        zero = Literal(0.0 if total.is_float else 0, total)
        body = (ScalarStatement("$dot", dot.name, (*args, zero), total),)
        limits = tuple(Constraint(f, n, self.match.op.origin) for f, n in bounds)
        return Contraction(
            name, TensorType(total, shape), Aggregation.SUM, indexes, output, limits, loads, body, "$dot", total,
            text=self.match.op.text, origin=self.match.op.origin,
        )  # fmt: skip

    # --- elementwise ------------------------------------------------------------------------------------

    def _type(self, operand: Operand) -> TensorType:
        return TensorType(operand.dtype, ()) if isinstance(operand, Literal) else self.packing.types[operand]

    def _product(self, a: Operand, b: Operand) -> Operand:
        """The product of two integers, computed here where both are known."""
        if isinstance(a, Literal) and isinstance(b, Literal):
            return word(int(a.value) * int(b.value))
        for one, other in ((a, b), (b, a)):
            if isinstance(one, Literal) and one.value == 1:
                return other
        return self._elementwise("mul", a, b, "")

    def _cast(self, operand: Operand, dtype: DType, name: str) -> str:
        shape = self._type(operand).shape
        return self._add(Elementwise(name, TensorType(dtype, shape), "cast", (operand,), origin=self.match.op.origin))

    def _elementwise(self, fn: str, a: Operand, b: Operand, name: str) -> str:
        types = [self._type(x) for x in (a, b)]
        shape = np.broadcast_shapes(types[0].shape, types[1].shape)
        type = TensorType(types[0].dtype, shape)
        return self._add(Elementwise(name or self._name("part"), type, fn, (a, b), origin=self.match.op.origin))

    # --- what a result's cell knows ---------------------------------------------------------------------

    def _center(self, stored: Stored) -> Operand:
        """What a factor of 0 is stored as."""
        if isinstance(stored.zero, int):
            return Literal(stored.zero + stored.offset, WORD)
        body = Body()
        value = body.add(as_dtype(stored.zero, WORD))
        zero = self._spread(body, value, [stored.zero], WORD, "zero")
        return zero if not stored.offset else self._elementwise("add", zero, Literal(stored.offset, WORD), "")

    def _scale(self) -> str | None:
        """All scales as one value that is broadcast to the result; None for a sum that has none."""
        op = self.match.op
        if op.type.dtype is self.choice.dot.c or self.choice.dot.c.is_float:
            return None
        body = Body()
        result: Operand = Literal(1.0, DType.FLOAT32)
        for k, scale in enumerate(self.match.scales):
            part = body.add(scale)
            result = part if k == 0 else self._times(body, result, part)
        return self._spread(body, result, self.match.scales, DType.FLOAT32, "scale")

    def _spread(self, body: Body, result: Operand, trees: Sequence[Tree], dtype: DType, ending: str) -> str:
        """A value that is the same for all terms of a cell, as a tensor that broadcasts to the result."""
        op = self.match.op
        names = {n for leaf in (x for t in trees for x in leaves(t)) for f in leaf.forms for n in f.names}
        output = tuple(f if names & set(f.names) else Poly() for f in op.output)
        shape = tuple(n if f.terms else 1 for f, n in zip(output, op.type.shape, strict=True))
        indexes = tuple(n for n in op.indexes if n in names_in(output))
        limits = tuple(Constraint(Poly.of({n: 1}), self.match.ranges[n]) for n in indexes)
        return self._add(Contraction(
            self._name(ending), TensorType(dtype, shape), Aggregation.ASSIGN, indexes, output, limits,
            tuple(body.loads), tuple(body.statements), result, dtype, text=f"{op.name}: {ending}", origin=op.origin,
        ))  # fmt: skip

    @staticmethod
    def _times(body: Body, a: Operand, b: Operand) -> str:
        name = f"$p{len(body.statements)}"
        body.statements.append(ScalarStatement(name, "mul", (a, b), DType.FLOAT32))
        return name


def _is_zero(operand: Operand) -> bool:
    return isinstance(operand, Literal) and operand.value == 0
