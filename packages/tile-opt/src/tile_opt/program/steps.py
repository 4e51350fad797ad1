"""Operations in the place of one, under construction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tile_ir.diagnostics import Span
from tile_ir.dtype import DType
from tile_ir.names import claim
from tile_ir.ops import OPS, Aggregation, Signature
from tile_ir.program.macros import literal
from tile_ir.program.nodes import (
    Argsort,
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

    def add(self, op: Argsort | Contraction | Gather | IndexOf | Reshape | Scatter) -> str:
        """Append an operation; its name."""
        self.ops.append(op)
        self._made[op.name] = op.type
        return op.name

    def cells(self, shape: tuple[int, ...]) -> Cells:
        """What is computed for each cell of a tensor of this shape."""
        return Cells(self, shape)


@dataclass(slots=True)
class Cells:
    """Scalars of one cell, computed of what tensors hold at its coordinates: one operation, however often each is used."""

    steps: Steps
    shape: tuple[int, ...]
    _loads: list[TensorLoad] = field(default_factory=list[TensorLoad])
    _body: list[ScalarStatement] = field(default_factory=list[ScalarStatement])
    _dtypes: dict[str, DType] = field(default_factory=dict[str, DType])

    def load(self, tensor: str) -> str:
        """The element of a tensor at the cell, by NumPy's rule of broadcasting."""
        type, name = self.steps.type(tensor), f"$x{len(self._loads)}"
        skip = len(self.shape) - len(type.shape)
        places = coordinates(len(self.shape))[skip:]
        forms = tuple(f if n != 1 else Poly() for f, n in zip(places, type.shape, strict=True))
        self._loads.append(TensorLoad(name, tensor, forms))
        self._dtypes[name] = type.dtype
        return name

    def do(self, fn: str, *args: Operand | int | float, dtype: DType | None = None) -> str:
        """``fn(args…)``; numbers are of the other operand's dtype, or of `dtype`, the result's."""
        kind = next((self._dtypes[a] for a in args[-2:] if isinstance(a, str)), dtype)
        assert kind is not None
        operands = tuple(literal(a, kind) if isinstance(a, int | float) else a for a in args)
        result = DType.BOOL if OPS[fn].signature is Signature.COMPARE else dtype or kind
        name = f"$t{len(self._body)}"
        self._body.append(ScalarStatement(name, fn, operands, result))
        self._dtypes[name] = result
        return name

    def dtype(self, value: str) -> DType:
        """That of a scalar."""
        return self._dtypes[value]

    def cast(self, value: str, dtype: DType) -> str:
        """`value` as `dtype`; itself where it is that."""
        return value if self._dtypes[value] is dtype else self.do("cast", value, dtype=dtype)

    def bits(self, value: str, dtype: DType) -> str:
        """The bits of `value` as a dtype of the same width."""
        return self.do("bitcast", value, dtype=dtype)

    def where(
        self, test: str, then: Operand | int | float, other: Operand | int | float, dtype: DType | None = None
    ) -> str:
        return self.do("cond", test, then, other, dtype=dtype)

    def store(self, value: str) -> str:
        """The tensor of the value of every cell."""
        dtype, places = self._dtypes[value], coordinates(len(self.shape))
        limits = tuple(Constraint(f, n, self.steps.origin) for f, n in zip(places, self.shape, strict=True))
        names = tuple(f.names[0] for f in places)
        made = Contraction(
            self.steps.name(), TensorType(dtype, self.shape), Aggregation.ASSIGN, tuple(sorted(names)), places, limits,
            tuple(self._loads), tuple(self._body), value, dtype, no_defract=True, origin=self.steps.origin,
        )  # fmt: skip
        return self.steps.add(made)
