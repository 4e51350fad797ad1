"""Kernel lists of pieces, linked to one that computes all rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from tile_ir.frozen import frozen
from tile_ir.kernels import KernelList, Loop, Step, StepKind, Window
from tile_ir.program.nodes import ConstantTensor, Program, TensorType
from tile_ir.target import Target
from tile_opt.loops.link import Linker, ports
from tile_opt.loops.repeated import inside
from tile_opt.loops.rows import row_bytes

from tile_runtime.rows.runs import Run


@frozen
class Piece:
    """A function compiled for a certain number of rows."""

    program: Program
    kernels: KernelList


def joined(
    program: Program, rows: Set[str], parts: Sequence[Run], pieces: Mapping[int, Piece], target: Target
) -> KernelList:
    """`program`, part by part; `rows` are its values that have rows, `pieces` what computes so many of them.

    Its kernels are those of the parts' pieces, one part after the other.
    """
    work = _Join(Linker(program, target), rows)
    for part in parts:
        work.add(part, pieces[part.rows])
    return work.linker.finish()


@dataclass(slots=True)
class _Join:
    linker: Linker
    rows: Set[str]
    _windows: list[Window] = field(default_factory=list[Window])
    """Those of the part that is being added."""

    def add(self, part: Run, piece: Piece) -> None:
        """Compute the rows of a part next."""
        self._windows = []
        filled: list[tuple[int, Window]] = []
        known = self._inputs(part, piece) | self._outputs(part, piece, filled)
        steps = self.linker.embedded(piece.kernels, known)
        for step in steps:
            if step.once or step.bound:
                self.linker.launch(step)
        self.linker.loop(Loop(1, tuple(self._windows), inside(steps)))
        for made, whole in filled:
            self._copy(whole, self._part_of(made, whole.bytes))

    def _inputs(self, part: Run, piece: Piece) -> dict[int, int]:
        """What stands for each input of a piece: what has rows is filled up with zeros where there are too few."""
        ins, _ = ports(piece.kernels)
        found: dict[int, int] = {}
        for b, mine, its in zip(ins, self.linker.program.inputs, piece.program.inputs, strict=True):
            place = found[b] = self.linker.value(mine.name)
            if mine.name in self.rows:
                rows = self._rows_of(place, part, mine.type)
                found[b] = self._filled(mine.name, its.type, rows) if part.filled else self._through(rows)
        return found

    def _outputs(self, part: Run, piece: Piece, filled: list[tuple[int, Window]]) -> dict[int, int]:
        """What stands for each output; `filled` gets those of which only some rows are wanted, and where these go."""
        _, outs = ports(piece.kernels)
        types, seen = self.linker.program.types(), self._given()
        found: dict[int, int] = {}
        for b, (_, mine), (_, value) in zip(outs, self.linker.program.outputs, piece.program.outputs, strict=True):
            type = piece.program.types()[value]
            if mine in seen:  # the linker copies it
                found[b] = self.linker.temporary(f"{mine}_again", type)
                continue
            seen.add(mine)
            place = found[b] = self.linker.value(mine)
            if mine in self.rows:
                rows = replace(self._rows_of(place, part, types[mine]), written=True)
                found[b] = self.linker.temporary(f"{mine}_filled", type) if part.filled else self._through(rows)
                if part.filled:
                    filled.append((found[b], rows))
        return found

    def _given(self) -> set[str]:
        """Values that nothing computes."""
        program = self.linker.program
        return {p.name for p in program.inputs} | {op.name for op in program.ops if isinstance(op, ConstantTensor)}

    # --- rows of a buffer ---------------------------------------------------------------------------------

    def _rows_of(self, buffer: int, part: Run, type: TensorType) -> Window:
        """The rows of a part, in a buffer of all rows."""
        size = row_bytes(type)
        return self._part_of(buffer, part.used * size, part.start * size)

    def _part_of(self, buffer: int, nbytes: int, start: int = 0) -> Window:
        return Window(next(self.linker.windows), (), (buffer,), nbytes, start, nbytes)

    def _through(self, window: Window) -> int:
        self._windows.append(window)
        return window.id

    def _filled(self, name: str, type: TensorType, rows: Window) -> int:
        """A buffer for a whole piece that begins with these rows; the others are zero."""
        buffer = self.linker.temporary(f"{name}_filled", type)
        self._zeros(buffer, rows.bytes, type.nbytes)
        self._copy(replace(self._part_of(buffer, rows.bytes), written=True), rows)
        return buffer

    def _zeros(self, buffer: int, start: int, end: int) -> None:
        """Zeros in a buffer, from a byte on where a view may begin there, else in all of it."""
        if start % self.linker.target.settings.view_align:
            self.linker.launch(Step(StepKind.FILL, -1, (buffer,)))
        else:
            rest = replace(self._part_of(buffer, end - start, start), written=True)
            self.linker.loop(Loop(1, (rest,), (Step(StepKind.FILL, -1, (rest.id,)),)))

    def _copy(self, target: Window, source: Window) -> None:
        self.linker.loop(Loop(1, (target, source), (Step(StepKind.COPY, -1, (target.id, source.id)),)))
