"""Functions for any number of rows: compiled for a few numbers of them, run in one or two such pieces a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from tile_hal.interfaces import Library
from tile_hal.joined import JoinedLibrary
from tile_ir.diagnostics import Diagnostic, TileTypeError
from tile_ir.kernels import BufferKind, KernelList
from tile_ir.program.nodes import Program, TensorType

from tile_runtime.lowered import Lowered
from tile_runtime.programs.parts import LoweredInParts, Section
from tile_runtime.programs.runnable import Runnable
from tile_runtime.requirements import check_memory

if TYPE_CHECKING:
    from tile_lang.ast import Function as Syntax

    from tile_runtime.rows import Run
    from tile_runtime.signature import Signature

Types = Mapping[str, TensorType]


def inputs_with(dimension: str, syntax: Syntax) -> tuple[str, ...]:
    """The inputs whose first dimension has this name; TileTypeError where it stands elsewhere, or nowhere."""
    found: list[str] = []
    for param in syntax.inputs:
        names = [d.id for d in param.dims or ()]
        if dimension in names[1:]:
            raise _wrong(
                f"{dimension!r} is not the first dimension of input {param.name.id!r}, as a dynamic one must be"
            )
        if dimension in names:
            found.append(param.name.id)
    if not found:
        raise _wrong(f"no input has a dimension {dimension!r}, which is to be dynamic")
    return tuple(found)


def by_rows(function: Signature, types: Types, whole: Lowered, lower: Callable[[Types], Lowered]) -> Lowered:
    """`function` for these types, by pieces that `lower` gives for numbers of rows that calls share; `whole` is not compiled.

    TileTypeError (TILE-E547) where the function does not compute each row from that row of its inputs alone.
    """
    from tile_runtime.rows import least_rows, row_values, runs

    rows = _rows(function, types)
    program = function.bind(types)
    values = row_values(program, _with_one_more(function, types, rows))
    if rows == 0:
        return lower(types)
    known, given = program.types(), {p.name for p in program.inputs}
    moved = [known[n].nbytes // rows for n in values & (given | {value for _, value in program.outputs})]
    shared = sum(known[n].nbytes for n in given - values)
    parts = runs(rows, least_rows(moved, whole.target.settings.view_align), sum(moved), shared)
    if len(parts) == 1 and not parts[0].filled:
        return lower(types)
    pieces = {part.rows: lower(_resized(function, types, part.rows)) for part in parts}
    for piece in pieces.values():
        row_values(program, piece.program)
    return RowsLowered(whole, values, parts, pieces)


def _rows(function: Signature, types: Types) -> int:
    """The one first dimension of the inputs that are dynamic."""
    sizes = {types[n].shape[:1] for n in function.dynamic}
    if len(sizes) == 1 and () not in sizes:
        return sizes.pop()[0]
    given = ", ".join(f"{n} {types[n]}" for n in function.dynamic)
    raise _wrong(f"dynamic arguments have one first dimension, all the same; these are {given}")


def _with_one_more(function: Signature, types: Types, rows: int) -> Program:
    try:
        return function.bind(_resized(function, types, rows + 1))
    except TileTypeError as problem:
        reason = problem.diagnostics[0].message
        raise _wrong(f"{function.name!r} works for {rows} rows, and not for {rows + 1}: {reason}") from problem


def _resized(function: Signature, types: Types, rows: int) -> Types:
    """The types with so many rows."""
    dynamic = function.dynamic
    return {n: TensorType(t.dtype, (rows, *t.shape[1:])) if n in dynamic else t for n, t in types.items()}


class RowsLowered(LoweredInParts):
    """A function for a number of rows, by `pieces` that are compiled for others, by these."""

    def __init__(self, first: Lowered, values: Set[str], parts: Sequence[Run], pieces: Mapping[int, Lowered]) -> None:
        """`values` are those of the program of `first` that have rows."""
        super().__init__(first.typed, first.device, target=first.target, plans=first.given)
        self.runs, self.pieces = tuple(parts), pieces
        self._values = values

    @property
    def sections(self) -> Sequence[Section]:
        return [(f"Piece of {rows} rows:", piece) for rows, piece in self.pieces.items()]

    @property
    def summary(self) -> str:
        starts = (0, *(r.end for r in self.runs))
        return f"{self.typed.name}: rows {' + '.join(_told(r, end) for r, end in zip(self.runs, starts, strict=False))}"

    @property
    def no_stages(self) -> Diagnostic:
        message = f"{self.typed.name!r} runs in pieces of {', '.join(map(str, self.pieces))} rows"
        hint = "look at its pieces: lowered.pieces, by their number of rows, each with stripe, plans and kernels"
        return Diagnostic("TILE-E523", message, hint=hint)

    @cached_property
    def runnable(self) -> tuple[Runnable, Library]:
        ready = {rows: piece.runnable for rows, piece in self.pieces.items()}
        kernels = self._joined({rows: runnable.kernels for rows, (runnable, _) in ready.items()})
        check_memory(kernels, self.device, lambda: self.program)
        return _named(self.program, kernels), JoinedLibrary(
            [(ready[run.rows][1], len(ready[run.rows][0].kernels.kernels)) for run in self.runs]
        )

    def _joined(self, kernels: Mapping[int, KernelList]) -> KernelList:
        from tile_runtime.rows import Piece, joined

        pieces = {rows: Piece(self.pieces[rows].program, found) for rows, found in kernels.items()}
        return joined(self.program, self._values, self.runs, pieces, self.target)

    @property
    def kernels(self) -> KernelList:
        return self.runnable[0].kernels


def _told(run: Run, end: int) -> str:
    """A piece, where the one before it has ended."""
    used = f"{run.used} of {run.rows}" if run.filled else str(run.used)
    return used if run.start == end else f"{used} from row {run.start}"


def _named(program: Program, kernels: KernelList) -> Runnable:
    """A linked list, whose buffers stand in the program's order, with what these are called."""
    ins = [b.name for b in kernels.buffers if b.kind is BufferKind.INPUT]
    outs = [b.name for b in kernels.buffers if b.kind is BufferKind.OUTPUT]
    inputs = tuple(replace(p, name=name) for p, name in zip(program.inputs, ins, strict=True))
    return Runnable(inputs, tuple(zip((public for public, _ in program.outputs), outs, strict=True)), kernels)


def _wrong(message: str) -> TileTypeError:
    hint = "dynamic names the first dimension of inputs (tile.Function), or the arguments that have it (tile.jit)"
    return TileTypeError(Diagnostic("TILE-E547", message, hint=hint))
