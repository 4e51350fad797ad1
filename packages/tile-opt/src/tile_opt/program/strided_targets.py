"""Elements that a contraction puts down with a step become a digit of their dimension.

``Y[2*i + 1 : 2*N] = =(X[i])`` leaves every second cell empty. Of ``Z[i, 1 : N, 2] = =(X[i])`` they are a column, and Y is Z in another
shape: what goes along rows meets both columns at once, where it had walked all cells, and then those that something is put in.
The other column may be there already: ``default`` is in digits, too, where it has the same ones. Gradients of what is read with a step
are such statements. What is computed of Y element by element is computed of Z.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from tile_ir.frozen import frozen
from tile_ir.names import claim
from tile_ir.program.nodes import Contraction, Elementwise, Op, Poly, Program, Reshape, TensorType

from tile_opt.program.base import Rewrite, with_each

Digits = tuple[tuple[Poly, int], ...]
"""Formulas of a dimension's digits, and the sizes of these."""


@frozen
class StridedTargets(Rewrite):
    """Give contractions that move elements, and sum up none, a dimension more for each that they walk with a step."""

    rows: bool = True
    """Steps over whole rows, too: processors rather take these as they are."""

    def apply(self, program: Program) -> Program:
        types = program.types()
        return with_each(program, _Work(self.rows, dict(types), set(types)).op)


@dataclass(slots=True)
class _Work:
    rows: bool
    types: dict[str, TensorType]
    taken: set[str]
    cut: dict[str, str] = field(default_factory=dict[str, str])
    """By the name of a tensor what holds its elements in digits."""

    def op(self, op: Op) -> Iterator[Op]:
        """What takes the place of an operation."""
        match op:
            case Contraction(default=under) if _moves(op) and (under is None or under in self.cut):
                yield from self._contraction(op)
            case Elementwise() if any(a in self.cut for a in op.args):
                yield from self._elementwise(op)
            case _:
                yield op

    def _contraction(self, op: Contraction) -> Iterator[Op]:
        counts = Counter(n for f in op.output for n in f.names)
        cut = [_digits(f, size, counts) for f, size in zip(op.output, op.type.shape, strict=True)]
        whole = [digit for digits in cut for digit in digits]
        shape, under = tuple(size for _, size in whole), op.default and self.cut[op.default]
        apart = not self.rows and any(len(digits) > 1 for digits in cut[:-1])
        if len(whole) == len(cut) or apart or (under and self.types[under].shape != shape):
            yield op
            return
        output = tuple(f for f, _ in whole)
        yield from self._cut(op, replace(op, type=replace(op.type, shape=shape), output=output, default=under))

    def _elementwise(self, op: Elementwise) -> Iterator[Op]:
        """In digits, where all operands have them, or their shape, or none."""
        shapes = {self.types[self.cut[a]].shape for a in op.args if isinstance(a, str) and a in self.cut}
        whole = [a for a in op.args if isinstance(a, str) and self.types[a].shape]
        if len(shapes) > 1 or any(self.types[a].shape != op.type.shape for a in whole):
            yield op
            return
        (shape,) = shapes
        for name in dict.fromkeys(a for a in whole if a not in self.cut):
            self.cut[name] = claim(f"{name}_digits", self.taken)
            self.types[self.cut[name]] = replace(self.types[name], shape=shape)
            yield Reshape(self.cut[name], self.types[self.cut[name]], name, op.origin)
        args = tuple(self.cut[a] if isinstance(a, str) and a in whole else a for a in op.args)
        yield from self._cut(op, replace(op, type=replace(op.type, shape=shape), args=args))

    def _cut(self, op: Contraction | Elementwise, made: Contraction | Elementwise) -> Iterator[Op]:
        """The operation in digits, and what it was made of, whose shape others see."""
        name = self.cut[op.name] = claim(f"{op.name}_digits", self.taken)
        self.types[name] = made.type
        yield replace(made, name=name)
        yield Reshape(op.name, op.type, name, op.origin)


def _moves(op: Contraction) -> bool:
    """One element is loaded for each cell."""
    put = {n for f in op.output for n in f.names}
    return len(op.loads) == 1 and set(op.indexes) == put


def _digits(formula: Poly, size: int, counts: Mapping[str, int]) -> Digits:
    """The cells of a dimension: those of one step after another, in each of which there is one; all of them where it has no step."""
    if len(formula.terms) != 1 or not formula.is_integral:
        return ((formula, size),)
    ((name, coefficient),) = formula.terms
    step, first = int(coefficient), int(formula.const)
    if not step > 1 == counts[name] or size % step or not 0 <= first < step:
        return ((formula, size),)
    return (Poly.of({name: 1}), size // step), (Poly.of({}, first), step)
