"""Builders for unscheduled kernels: a kernel block holds stages, a stage is one flat loop nest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tile_ir.diagnostics import Span
from tile_ir.dtype import DType
from tile_ir.frozen import replace
from tile_ir.names import fresh
from tile_ir.ops import Aggregation
from tile_ir.program.nodes import Operand
from tile_ir.stripe.affine import Affine, Quasi
from tile_ir.stripe.nodes import (
    Block,
    Const,
    Direction,
    Index,
    Load,
    LoadIndex,
    Op,
    Order,
    Refinement,
    Statement,
    Store,
    TensorType,
)

from tile_opt import formulas

Loop = tuple[str, int] | tuple[str, int, Order]
ALIGN = 64
"""Byte alignment of every buffer that the compiler allocates."""


@dataclass(frozen=True, slots=True, eq=False)
class Scalar(formulas.Scalar["Scalar"]):
    """A scalar of a stage."""

    stage: Stage
    name: str
    dtype: DType

    def do(self, op: str, others: tuple[Scalar, ...], dtype: DType) -> Scalar:
        return self.stage.op(op, (self, *others), dtype)

    def number(self, value: float, dtype: DType) -> Scalar:
        return self.stage.const(value, dtype)

    def cast(self, dtype: DType) -> Scalar:
        """As `dtype`; the same scalar when nothing changes."""
        return self if dtype is self.dtype else self.do("cast", (), dtype)


Cell = Sequence[Quasi | Scalar]
"""Subscripts of a buffer: forms of the stage's loops, and scalars, which choose from all of a dimension."""


class Stage:
    """One loop nest over a flat statement list, under construction inside a kernel."""

    def __init__(
        self,
        kernel: Kernel,
        name: str,
        loops: Sequence[Loop],
        constraints: Sequence[Quasi] = (),
        *,
        origin: Span | None = None,
    ) -> None:
        self.kernel = kernel
        self.name = name
        self.indexes = tuple(Index(n, r, order=o[0] if o else Order.FREE) for n, r, *o in loops)
        self.constraints = tuple(constraints)
        self.origin = origin
        self._refs: dict[str, Refinement] = {}
        self._body: list[Statement] = []
        self._scalars: set[str] = set()
        self._constants: dict[tuple[type, str, DType], Scalar] = {}

    # --- scalars ---------------------------------------------------------------------------------

    def _scalar(self, hint: str, dtype: DType) -> Scalar:
        name = fresh(f"${hint}", self._scalars)
        self._scalars.add(name)
        return Scalar(self, name, dtype)

    def const(self, value: int | float | bool, dtype: DType) -> Scalar:
        """A constant; equal ones are shared."""
        key = (type(value), repr(value), dtype)
        if key not in self._constants:
            made = self._constants[key] = self._scalar("c", dtype)
            self._body.append(Const(made.name, value, dtype, origin=self.origin))
        return self._constants[key]

    def const_of(self, operand: Operand) -> Scalar:
        """The constant a literal operand stands for; TypeError for a name."""
        if isinstance(operand, str):
            raise TypeError(f"{operand} is not a literal")
        return self.const(operand.value, operand.dtype)

    def op(self, name: str, args: Sequence[Scalar], dtype: DType, hint: str = "t") -> Scalar:
        made = self._scalar(hint, dtype)
        self._body.append(Op(made.name, name, tuple([a.name for a in args]), dtype, origin=self.origin))
        return made

    def index(self, value: Quasi, dtype: DType = DType.INT32) -> Scalar:
        made = self._scalar("i", dtype)
        self._body.append(LoadIndex(made.name, value, dtype, origin=self.origin))
        return made

    # --- memory ----------------------------------------------------------------------------------

    def load(self, buffer: str, cell: Cell, *, clamp: bool = False) -> Scalar:
        """Load a cell of a buffer; with `clamp` scalars among its subscripts lead to the nearest one that there is."""
        ref, at = self._ref(buffer, cell, Direction.IN, None)
        made = self._scalar(buffer, self.kernel.dtype(buffer))
        self._body.append(Load(made.name, ref, at, clamp and bool(at), origin=self.origin))
        return made

    def store(
        self, buffer: str, cell: Cell, src: Scalar, *, agg: Aggregation | None = None, clamp: bool = False,
        atomic: bool = False,
    ) -> None:  # fmt: skip
        """Store a scalar to a cell, merged with what that holds when `agg` is given.

        `atomic` where iterations in any order, or at once, may store to a cell, or data says that no two do.
        """
        ref, at = self._ref(buffer, cell, Direction.OUT if agg is None else Direction.INOUT, agg)
        self._body.append(Store(ref, src.name, at, clamp and bool(at), atomic, origin=self.origin))

    def _ref(
        self, buffer: str, cell: Cell, direction: Direction, agg: Aggregation | None
    ) -> tuple[str, tuple[Quasi | str, ...]]:
        """The view of `buffer` that has the cell, and where in it: an equal one is reused, reading and writing one cell is INOUT."""
        whole = self.kernel.use(buffer, direction)
        access = tuple([Affine() if isinstance(f, Scalar) else f for f in cell])
        shape, at = (1,) * len(access), ()
        if access != (*cell,):
            shape = tuple([n if isinstance(f, Scalar) else 1 for f, n in zip(cell, whole.sizes, strict=True)])
            at = tuple([f.name if isinstance(f, Scalar) else Affine() for f in cell])
        for name, ref in self._refs.items():
            if ref.source == buffer and ref.access == access and ref.type.sizes == shape and ref.agg is agg:
                if ref.dir is not direction:
                    self._refs[name] = replace(ref, dir=Direction.INOUT)
                return name, at
        name = fresh(buffer, self._refs)
        view = TensorType(whole.dtype, shape, whole.layout)
        self._refs[name] = Refinement(direction, name, buffer, access, view, agg)
        return name, at

    def build(self) -> Block:
        return Block(
            self.name,
            self.indexes,
            self.constraints,
            refs=tuple(self._refs.values()),
            body=tuple(self._body),
            tags=frozenset(("stage",)),
            origin=self.origin,
        )


class Kernel:
    """A kernel block under construction; `tensors` are the buffers of main it may name."""

    def __init__(
        self,
        name: str,
        tensors: Mapping[str, TensorType],
        *,
        comment: str = "",
        tags: Sequence[str] = (),
        origin: Span | None = None,
    ) -> None:
        self.name = name
        self.comment = comment
        self.tags = frozenset(("kernel", *tags))
        self.origin = origin
        self._tensors = tensors
        self._locals: dict[str, TensorType] = {}
        self._used: dict[str, set[Direction]] = {}
        self._stages: list[Stage] = []

    def stage(self, name: str, loops: Sequence[Loop], constraints: Sequence[Quasi] = ()) -> Stage:
        made = Stage(self, name, loops, constraints, origin=self.origin)
        self._stages.append(made)
        return made

    def alloc(self, wanted: str, dtype: DType, shape: tuple[int, ...]) -> str:
        """A temporary of this kernel; gives the name it got."""
        name = fresh(wanted, {**self._tensors, **self._locals})
        self._locals[name] = TensorType.row_major(dtype, shape, ALIGN)
        return name

    def use(self, buffer: str, direction: Direction) -> TensorType:
        """Note that a stage reads or writes `buffer`; gives its type."""
        local = self._locals.get(buffer)
        if local is not None:
            return local
        self._used.setdefault(buffer, set()).add(direction)
        return self._tensors[buffer]

    def dtype(self, buffer: str) -> DType:
        return (self._locals.get(buffer) or self._tensors[buffer]).dtype

    def size(self, buffer: str) -> tuple[int, ...]:
        return (self._locals.get(buffer) or self._tensors[buffer]).sizes

    def build(self) -> Block:
        """The kernel block. What it writes is OUT: every cell is written before it is read."""
        refs = [
            Refinement(
                Direction.IN if directions == {Direction.IN} else Direction.OUT,
                name,
                name,
                whole(self._tensors[name]),
                self._tensors[name],
            )
            for name, directions in self._used.items()
        ]
        refs += [Refinement.allocation(name, t) for name, t in self._locals.items()]
        return Block(
            self.name,
            refs=tuple(refs),
            body=tuple(stage.build() for stage in self._stages),
            tags=self.tags,
            comment=self.comment,
            origin=self.origin,
        )


def whole(tensor: TensorType) -> tuple[Affine, ...]:
    """The access of a view that starts at the buffer's origin."""
    return (Affine(),) * len(tensor.sizes)


def loops_over(shape: Sequence[int]) -> list[Loop]:
    """Loops i0, i1, … over a shape; dimensions of size 1 get none."""
    return [(f"i{d}", size) for d, size in enumerate(shape) if size != 1]


def cell_of(shape: Sequence[int]) -> tuple[Affine, ...]:
    """The cell that `loops_over` visits."""
    return tuple(Affine.var(f"i{d}") if size != 1 else Affine() for d, size in enumerate(shape))


def broadcast_cell(operand: Sequence[int], result: Sequence[int]) -> tuple[Affine, ...]:
    """The cell of an operand for each cell of a result, by NumPy's rule: stretched dimensions stay at 0."""
    skip = len(result) - len(operand)
    cell = cell_of(result)[skip:]
    return tuple(form if size != 1 else Affine() for form, size in zip(cell, operand, strict=True))
