"""Scales and shifts behind a contraction with constant weights: the weights take up the scale, once.

``(X·W - m)·s + b``, a convolution and its batch normalisation, becomes ``X·(W·s) + (b - m·s)``. Sums are then rounded in
other places, so it is done where that is allowed (`Options.fold_scales`, and under `fast_math`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from tile_ir.diagnostics import Span
from tile_ir.frozen import frozen
from tile_ir.names import claim
from tile_ir.ops import Aggregation
from tile_ir.program.liveness import used_by
from tile_ir.program.macros import literal
from tile_ir.program.nodes import (
    Contraction,
    Elementwise,
    Literal,
    Op,
    Operand,
    Poly,
    Program,
    Reshape,
    TensorLoad,
    TensorType,
)

from tile_opt.program.base import Rewrite, fixed_values, with_each


@frozen
class FoldScales(Rewrite):
    """Sums of products with a constant or bound factor take up what multiplies, divides and shifts them by such values."""

    def apply(self, program: Program) -> Program:
        work = _Folding.of(program)
        folds = [fold for op in program.ops if isinstance(op, Contraction) and (fold := work.fold(op)) is not None]
        if not folds:
            return program
        gone = {op.name for fold in folds for op in (fold.product, *fold.steps)}
        made = {fold.steps[-1].name: work.made(fold) for fold in folds}
        return with_each(program, lambda op: _instead(op, gone, made))


def _instead(op: Op, gone: set[str], made: dict[str, list[Op]]) -> Sequence[Op]:
    if not isinstance(op, Contraction | Elementwise) or op.name not in gone:
        return (op,)
    return made.get(op.name, ())


@frozen
class _Fold:
    """A contraction, which of its factors is fixed, and the operations behind it that only scale and shift."""

    product: Contraction
    factor: TensorLoad
    steps: tuple[Elementwise, ...]
    dim: int | None
    """The dimension of the factor along which the scale varies."""


@dataclass(slots=True)
class _Folding:
    fixed: dict[str, TensorType]
    readers: dict[str, list[Op | None]]
    """Who reads a value; None for an output of the program."""
    taken: set[str]
    types: dict[str, TensorType]
    new: list[Op] = field(default_factory=list[Op])
    origin: Span | None = None

    @staticmethod
    def of(program: Program) -> _Folding:
        readers: dict[str, list[Op | None]] = {}
        for op in program.ops:
            for name in used_by(op):
                readers.setdefault(name, []).append(op)
        for _, value in program.outputs:
            readers.setdefault(value, []).append(None)
        types = program.types()
        return _Folding(fixed_values(program), readers, set(types), types)

    # --- what can be folded ---------------------------------------------------------------------------

    def fold(self, op: Contraction) -> _Fold | None:
        """What is behind a contraction, if that scales it and one of its factors can take the scale up."""
        if op.name in self.fixed or not self._is_product(op):
            return None
        steps = self._steps(op)
        scales = [other for step in steps if step.fn in ("mul", "div") for other in self._others(step)]
        if not scales:
            return None
        varying = {k for scale in scales for k in _varying(self._shape(scale), len(op.type.shape))}
        if len(varying) > 1:
            return None
        for load in op.loads:
            if load.tensor in self.fixed:
                dim = next(iter(self._dims(op, load, varying)), None) if varying else None
                if not varying or dim is not None:
                    return _Fold(op, load, steps, dim)
        return None

    def _is_product(self, op: Contraction) -> bool:
        """A sum of products of floats, each factor of which is there once."""
        dtype = op.type.dtype
        read = [a for s in op.body for a in s.args if isinstance(a, str)]
        factors = [load.dst for load in op.loads] + [s.dst for s in op.body]
        return (
            op.agg is Aggregation.SUM
            and op.default is None
            and dtype is op.acc
            and dtype.is_float
            and all(s.fn == "mul" and s.dtype is dtype for s in op.body)
            and all(self._dtype(load.tensor) is dtype for load in op.loads)
            and sorted([*read, str(op.result)]) == sorted(factors)
        )

    def _steps(self, op: Contraction) -> tuple[Elementwise, ...]:
        """The operations behind one another that are the only readers of a value, up to the last that scales or shifts."""
        steps: list[Elementwise] = []
        value = op.name
        while True:
            readers = self.readers.get(value, [])
            step = readers[0] if len(readers) == 1 else None
            if not isinstance(step, Elementwise) or step.type != op.type or not self._is_affine(step, value):
                return tuple(steps)
            steps.append(step)
            value = step.name

    def _is_affine(self, step: Elementwise, value: str) -> bool:
        """``value + f``, ``value - f``, ``value * f`` or ``value / f`` with a fixed f of the same dtype, or swapped."""
        if step.fn not in ("add", "sub", "mul", "div") or step.args.count(value) != 1:
            return False
        (other,) = (a for a in step.args if a != value)
        swapped = step.args[0] != value
        known = isinstance(other, Literal) or other in self.fixed
        return known and self._dtype(other) is step.type.dtype and not (swapped and step.fn in ("sub", "div"))

    def _others(self, step: Elementwise) -> list[Operand]:
        return [a for a in step.args if isinstance(a, Literal) or a in self.fixed]

    def _dims(self, op: Contraction, load: TensorLoad, varying: set[int]) -> list[int]:
        """The dimension of a factor that one subscript of the result, and nothing else, runs along."""
        (k,) = varying
        form = op.output[k]
        if len(form.names) != 1 or form != Poly.of({form.names[0]: 1}):
            return []
        found = [d for d, f in enumerate(load.formulas) if form.names[0] in f.names]
        shape = self._shape(load.tensor)
        return [d for d in found if len(found) == 1 and load.formulas[d] == form and shape[d] == op.type.shape[k]]

    def _shape(self, operand: Operand) -> tuple[int, ...]:
        return () if isinstance(operand, Literal) else self.types[operand].shape

    def _dtype(self, operand: Operand) -> object:
        return operand.dtype if isinstance(operand, Literal) else self.types[operand].dtype

    # --- what becomes of it ---------------------------------------------------------------------------

    def made(self, fold: _Fold) -> list[Op]:
        """The operations in place of the last one of a fold."""
        self.new = []
        scale, shift = self._totals(fold)
        last = fold.steps[-1]
        weights = self._scaled(fold, scale)
        loads = tuple(replace(x, tensor=weights) if x is fold.factor else x for x in fold.product.loads)
        name = last.name if shift is None else claim(f"{fold.product.name}_scaled", self.taken)
        self.new.append(replace(fold.product, name=name, loads=loads))
        if shift is not None:
            self.new.append(Elementwise(last.name, last.type, "add", (name, shift), origin=last.origin))
        return self.new

    def _totals(self, fold: _Fold) -> tuple[Operand, Operand | None]:
        """One scale and one shift that do what all steps do."""
        scale: Operand = literal(1, fold.product.type.dtype)
        shift: Operand | None = None
        for step in fold.steps:
            (other,) = self._others(step)
            self.origin = step.origin
            if step.fn in ("mul", "div"):
                scale = other if step.fn == "mul" and _is_one(scale) else self._emit(step.fn, scale, other)
                shift = None if shift is None else self._emit(step.fn, shift, other)
            elif step.fn == "add":
                shift = other if shift is None else self._emit("add", shift, other)
            else:
                shift = self._emit("sub", literal(0, step.type.dtype) if shift is None else shift, other)
        return scale, shift

    def _scaled(self, fold: _Fold, scale: Operand) -> str:
        """The weights times the scale."""
        weights = str(fold.factor.tensor)
        type = self.types[weights]
        if isinstance(scale, str):
            wanted = tuple(n if d == fold.dim else 1 for d, n in enumerate(type.shape))
            if self._shape(scale) != wanted:
                scale = self._add(Reshape(self._name(scale), TensorType(type.dtype, wanted), scale, origin=self.origin))
        return self._add(Elementwise(self._name(weights), type, "mul", (weights, scale), origin=fold.product.origin))

    def _emit(self, fn: str, a: Operand, b: Operand) -> str:
        """An operation on fixed values."""
        dtype = next(self.types[x].dtype if isinstance(x, str) else x.dtype for x in (a, b))
        shape = np.broadcast_shapes(self._shape(a), self._shape(b))
        return self._add(Elementwise(self._name("scale"), TensorType(dtype, shape), fn, (a, b), origin=self.origin))

    def _name(self, wanted: str) -> str:
        return claim(f"{wanted}_folded", self.taken)

    def _add(self, op: Elementwise | Reshape) -> str:
        self.new.append(op)
        self.types[op.name] = self.fixed[op.name] = op.type
        return op.name


def _is_one(operand: Operand) -> bool:
    return isinstance(operand, Literal) and operand.value == 1


def _varying(shape: tuple[int, ...], rank: int) -> list[int]:
    """The dimensions of a result of some rank along which an operand of `shape` is not the same."""
    return [rank - len(shape) + d for d, n in enumerate(shape) if n != 1]
