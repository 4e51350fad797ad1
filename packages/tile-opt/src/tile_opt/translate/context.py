"""What the translation of one program shares: buffer names, types, the ISL context, the kernels so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tile_ir.diagnostics import Span
from tile_ir.dtype import DType
from tile_ir.names import fresh, plain
from tile_ir.program.liveness import defined_by
from tile_ir.program.nodes import ConstantTensor, Literal, Op, Operand, Program, Reshape
from tile_ir.program.nodes import TensorType as ProgramType
from tile_ir.stripe.nodes import Block, TensorType
from tile_ir.target import Target

from tile_opt.analysis.sets import Sets
from tile_opt.program.literals import one_number
from tile_opt.translate.build import ALIGN, Kernel, cell_of, loops_over


@dataclass(slots=True)
class Context:
    """Tables of one translation; `buffers` maps names of the program to buffers of main."""

    program: Program
    target: Target
    """What an operation with several algorithms chooses by."""
    first: int = 0
    """The number of the first kernel."""
    sets: Sets = field(default_factory=Sets)
    types: dict[str, ProgramType] = field(default_factory=dict[str, ProgramType])
    buffers: dict[str, str] = field(default_factory=dict[str, str])
    tensors: dict[str, TensorType] = field(default_factory=dict[str, TensorType])
    outputs: list[str] = field(default_factory=list[str])
    views: dict[str, str] = field(default_factory=dict[str, str])
    """Buffers of main that are others' bytes under another type."""
    reshaped: dict[str, str] = field(default_factory=dict[str, str])
    """Views of what is given, by the values that are reshapes of it."""
    copies: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """(output buffer, value) pairs for outputs that need a copy."""
    kernels: list[Block] = field(default_factory=list[Block])
    makers: dict[str, Op] = field(default_factory=dict[str, Op])
    """What computes each value but the inputs."""
    done: set[str] = field(default_factory=set[str])
    """Values that the kernel of an operation before theirs makes."""

    @staticmethod
    def of(program: Program, target: Target, first: int = 0) -> Context:
        """Name the buffers: inputs and outputs keep their public names where those are plain, other values yield to them."""
        context = Context(program, target, first, types=program.types())
        for param in program.inputs:
            context._declare(param.name, param.name, align=1)
        held = {p.name for p in program.inputs} | {op.name for op in program.ops if isinstance(op, ConstantTensor)}
        for public, value in program.outputs:
            if value in held:
                name = context._buffer(public, context.types[value])
                context.copies.append((name, value))
            else:
                held.add(value)
                name = context._declare(value, public)
            context.outputs.append(name)
        for op in program.ops:
            for name in defined_by(op):
                context.makers[name] = op
                if name not in context.buffers:
                    context._declare(name, name)
        return context

    def _declare(self, value: str, wanted: str, align: int = ALIGN) -> str:
        self.buffers[value] = self._buffer(wanted, self.types[value], align)
        return self.buffers[value]

    def _buffer(self, wanted: str, type_: ProgramType, align: int = ALIGN) -> str:
        name = fresh(plain(wanted), self.tensors)
        self.tensors[name] = TensorType.row_major(type_.dtype, type_.shape, align)
        return name

    def temporary(self, wanted: str, dtype: DType, shape: tuple[int, ...]) -> str:
        """Another buffer of main."""
        return self._buffer(wanted, ProgramType(dtype, shape))

    def looked_up(self, value: str) -> str:
        """The buffer in which subscripts that are values find a value's cells: a reshaped input or constant is that itself.

        Such subscripts do not divide into those of another shape, so that a copy could never be inlined.
        """
        made, source = self.makers.get(value), value
        while isinstance(made, Reshape) and made.type.dtype is self.types[made.arg].dtype:
            source = made.arg
            made = self.makers.get(source)
        if source == value or not (made is None or isinstance(made, ConstantTensor)):
            return self.buffers[value]
        if value not in self.reshaped:
            given = self.buffers[source]
            name = self._buffer(f"{given}_reshaped", self.types[value], self.tensors[given].layout.align)
            self.reshaped[value], self.views[name] = name, given
        return self.reshaped[value]

    def kernel(self, comment: str, tags: Sequence[str], origin: Span | None) -> Kernel:
        return Kernel(
            f"kernel_{self.first + len(self.kernels)}",
            self.tensors,
            comment=" ".join(comment.split()),
            tags=tags,
            origin=origin,
        )

    def add(self, kernel: Kernel) -> None:
        self.kernels.append(kernel.build())

    def shape(self, value: str) -> tuple[int, ...]:
        return self.types[value].shape

    def literal(self, value: str) -> Literal | None:
        """The one number that all elements of a value are; None where that is not known."""
        return one_number(self.makers, value)

    def dtype(self, operand: Operand) -> DType:
        return operand.dtype if isinstance(operand, Literal) else self.types[operand].dtype


def fill(kernel: Kernel, name: str, buffer: str, shape: Sequence[int], value: int | float | bool) -> None:
    """A stage that stores one constant to every cell of a buffer."""
    stage = kernel.stage(name, loops_over(shape))
    stage.store(buffer, cell_of(shape), stage.const(value, kernel.dtype(buffer)))
