"""Flat kernels: every access an offset and one stride per index, constraints one-sided."""

from __future__ import annotations

from math import prod

from tile_ir.frozen import frozen, replace

from tile_opt.explain.text import grid, inequality, stride_rows
from tile_opt.kernel.strides import flat_offset, flat_stride
from tile_opt.kernel.view import KernelView, Stage, Use
from tile_opt.kernel.work import merged_use


@frozen
class Access:
    """One tensor access: element bytes, offset and a stride per index, in elements."""

    name: str
    bytes: int
    offset: int
    strides: tuple[int, ...]
    limit: int
    """Elements of the buffer."""
    vector: int = 1


@frozen
class Constraint:
    """``left · indexes <= right``."""

    left: tuple[int, ...]
    right: int

    def __str__(self) -> str:
        return inequality(self.left, self.right)


@frozen
class FlatKernel:
    """A contraction (or an elementwise kernel) as tables; `accesses[0]` is the output. Indexes sorted by name."""

    names: tuple[str, ...]
    ranges: tuple[int, ...]
    accesses: tuple[Access, ...]
    constraints: tuple[Constraint, ...]
    post_ops: tuple[str, ...] = ()
    post_inputs: tuple[int, ...] = ()
    """Bytes per element of each further tensor that the output operations read."""
    outputs: int = 1
    """Tensors the kernel writes."""
    contraction: bool = True
    comment: str = ""

    @property
    def output(self) -> Access:
        return self.accesses[0]

    @property
    def inputs(self) -> tuple[Access, ...]:
        return self.accesses[1:]

    @property
    def points(self) -> int:
        return prod(self.ranges)

    @property
    def output_indexes(self) -> tuple[int, ...]:
        """Positions of the indexes that move the output."""
        return tuple(k for k, s in enumerate(self.output.strides) if s)

    def table(self) -> str:
        """The flatten table: ranges, strides, offsets and constraints."""
        columns = [(a.name, a.strides, a.offset) for a in self.accesses]
        rows = [*stride_rows(self.names, self.ranges, columns), ["vec", "", *(str(a.vector) for a in self.accesses)]]
        return "\n".join([*grid(rows), *(f"Constraint: {c}" for c in self.constraints)])


def flatten(view: KernelView) -> FlatKernel | None:
    """The flat form of a fused kernel's contraction with its output operations; None without a contraction.

    `view` is a kernel in normal form (see `kernel.view`), before tiling.
    """
    stage = next((s for s in view.stages if merged_use(s) is not None), None)
    if stage is None:
        return None
    out = merged_use(stage)
    assert out is not None
    loops = sorted((*view.loops, *stage.loops), key=lambda i: i.name)
    names = tuple(i.name for i in loops)
    reads = [u for u in stage.uses if u.reads and not u.writes and u.buffer != out.buffer]
    accesses = (_output(view, stage, names), *(_access(view, u, names) for u in reads))
    constraints = tuple(Constraint(tuple(-c.coefficient(n) for n in names), c.const) for c in stage.constraints)
    return FlatKernel(names, tuple(i.range for i in loops), accesses, constraints, comment=view.comment)


def _access(view: KernelView, use: Use, names: tuple[str, ...]) -> Access:
    type = view.type_of(use.buffer)
    strides = tuple(flat_stride(view, use, n) for n in names)
    return Access(use.buffer, type.dtype.bytes, flat_offset(view, use), strides, prod(type.sizes))


def _output(view: KernelView, stage: Stage, names: tuple[str, ...]) -> Access:
    """The contraction's output as it lies in memory, also where the kernel keeps it in registers."""
    out = merged_use(stage)
    assert out is not None
    if not view.is_local(out.buffer):
        return _access(view, out, names)
    final = next(u for s in reversed(view.stages) for u in s.uses if u.writes and not view.is_local(u.buffer))
    return replace(_access(view, final, names), name=out.buffer)
