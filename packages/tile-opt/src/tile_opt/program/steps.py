"""Operations in the place of one, under construction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from tile_ir.contents import Contents
from tile_ir.diagnostics import Span
from tile_ir.dtype import DType
from tile_ir.names import claim
from tile_ir.ops import Aggregation
from tile_ir.program.macros import literal
from tile_ir.program.nodes import (
    Argsort,
    ConstantTensor,
    Constraint,
    Contraction,
    Gather,
    IndexOf,
    Op,
    Operand,
    Poly,
    Reshape,
    ScalarStatement,
    Scatter,
    TensorLoad,
    TensorType,
    coordinates,
)

from tile_opt import formulas


@dataclass(slots=True)
class Steps:
    """Operations, each with a name of its own that begins with `stem`."""

    stem: str
    types: Mapping[str, TensorType]
    taken: set[str]
    origin: Span | None = None
    ops: list[Op] = field(default_factory=list[Op])
    _made: dict[str, TensorType] = field(default_factory=dict[str, TensorType])

    def name(self) -> str:
        return claim(f"{self.stem}_{len(self.ops)}", self.taken)

    def type(self, name: str) -> TensorType:
        return self._made[name] if name in self._made else self.types[name]

    def add(self, op: Argsort | ConstantTensor | Contraction | Gather | IndexOf | Reshape | Scatter) -> str:
        """Append an operation; its name."""
        self.ops.append(op)
        self._made[op.name] = op.type
        return op.name

    def constant(self, value: float, dtype: DType) -> str:
        """A tensor of one element."""
        data = np.array(value, dtype.numpy).tobytes()
        return self.add(ConstantTensor(self.name(), TensorType(dtype, ()), Contents(data), self.origin))

    def cells(self, shape: tuple[int, ...]) -> Cells:
        """What is computed for each cell of a tensor of this shape."""
        return Cells(self, shape)


@dataclass(frozen=True, slots=True, eq=False)
class Scalar(formulas.Scalar["Scalar"]):
    """A scalar of one cell."""

    cells: Cells
    operand: Operand
    dtype: DType

    def do(self, op: str, others: tuple[Scalar, ...], dtype: DType) -> Scalar:
        return self.cells.do(op, (self, *others), dtype)

    def number(self, value: float, dtype: DType) -> Scalar:
        return self.cells.number(value, dtype)

    def cast(self, dtype: DType) -> Scalar:
        """As `dtype`; itself where it is that."""
        return self if dtype is self.dtype else self.do("cast", (), dtype)


@dataclass(slots=True)
class Cells:
    """Scalars of one cell, computed of what tensors hold at its coordinates: one operation, however often each is used."""

    steps: Steps
    shape: tuple[int, ...]
    _loads: list[TensorLoad] = field(default_factory=list[TensorLoad])
    _body: list[ScalarStatement] = field(default_factory=list[ScalarStatement])

    def load(self, tensor: str) -> Scalar:
        """The element of a tensor at the cell, by NumPy's rule of broadcasting."""
        type, name = self.steps.type(tensor), f"$x{len(self._loads)}"
        skip = len(self.shape) - len(type.shape)
        places = coordinates(len(self.shape))[skip:]
        forms = tuple(f if n != 1 else Poly() for f, n in zip(places, type.shape, strict=True))
        self._loads.append(TensorLoad(name, tensor, forms))
        return Scalar(self, name, type.dtype)

    def number(self, value: float, dtype: DType) -> Scalar:
        return Scalar(self, literal(value, dtype), dtype)

    def do(self, fn: str, args: tuple[Scalar, ...], dtype: DType) -> Scalar:
        """``fn(args…)``."""
        name = f"$t{len(self._body)}"
        self._body.append(ScalarStatement(name, fn, tuple([a.operand for a in args]), dtype))
        return Scalar(self, name, dtype)

    def store(self, value: Scalar) -> str:
        """The tensor of the value of every cell."""
        dtype, places = value.dtype, coordinates(len(self.shape))
        limits = tuple(Constraint(f, n, self.steps.origin) for f, n in zip(places, self.shape, strict=True))
        names = tuple(f.names[0] for f in places)
        made = Contraction(
            self.steps.name(), TensorType(dtype, self.shape), Aggregation.ASSIGN, tuple(sorted(names)), places, limits,
            tuple(self._loads), tuple(self._body), value.operand, dtype, no_defract=True, origin=self.steps.origin,
        )  # fmt: skip
        return self.steps.add(made)
