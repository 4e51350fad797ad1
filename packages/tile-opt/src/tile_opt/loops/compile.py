"""Compiling a program with loops, part by part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tile_ir.kernels import KernelList
from tile_ir.program.nodes import Program
from tile_ir.stripe.nodes import Block, Direction, Refinement
from tile_ir.stripe.nodes import Program as StripeProgram
from tile_ir.target import Target

from tile_opt.compiler import Compiled
from tile_opt.loops.divide import divide, has_loops
from tile_opt.loops.link import Linker
from tile_opt.loops.repeated import Repeated
from tile_opt.loops.rows import laid_out
from tile_opt.translate.build import whole

Part = Callable[[Program, int], Compiled]
"""Compiles a program without loops, its kernels numbered from here on."""


def compile_parts(program: Program, target: Target, part: Part) -> Compiled:
    """The stages of a program with loops; each of its parts is compiled by `part`.

    The Stripe of the whole has the program's buffers only: that of the kernels is in `parts`.
    """
    work = _Parts(target, part)
    kernels, outline = work.linked(program)
    timings: dict[str, float] = {}
    for found in work.compiled:
        for stage, seconds in found.timings.items():
            timings[stage] = timings.get(stage, 0.0) + seconds
    return Compiled(
        program,
        outline,
        outline,
        kernels,
        timings,
        next((found.passes for found in work.compiled), ()),
        {name: decision for found in work.compiled for name, decision in found.decisions.items()},
        tuple(choice for found in work.compiled for choice in found.choices),
        parts=tuple(work.compiled),
    )


@dataclass(slots=True)
class _Parts:
    """The parts that have been compiled so far."""

    target: Target
    part: Part
    compiled: list[Compiled] = field(default_factory=list[Compiled])
    count: int = 0
    """Of the kernels that they began with."""

    def linked(self, program: Program) -> tuple[KernelList, StripeProgram]:
        program = laid_out(program, self.target.settings.view_align)
        linker = Linker(program, self.target)
        for piece in divide(program):
            if isinstance(piece, Program):
                linker.part(piece, self.kernels(piece))
            else:
                repeated = Repeated(linker, piece)
                repeated.link(self.kernels(repeated.body))
        return linker.finish(), _outline(linker)

    def kernels(self, program: Program) -> KernelList:
        """Of a part, or of a loop's body."""
        if has_loops(program):
            return self.linked(program)[0]
        found = self.part(program, self.count)
        self.compiled.append(found)
        self.count += sum(isinstance(s, Block) for main in found.stripe_initial.entry.body for s in main.body)  # type: ignore[union-attr]
        return found.kernels


def _outline(linker: Linker) -> StripeProgram:
    """The program's buffers."""
    from tile_ir.stripe.nodes import TensorType

    inputs = tuple(linker.storages[linker.values[p.name]].name for p in linker.program.inputs)
    tensors = {s.name: TensorType.row_major(s.type.dtype, s.type.shape) for s in linker.storages}
    refs = tuple(
        Refinement(Direction.ALLOC, name, "", whole(tensors[name]), tensors[name], tags=frozenset(("user",)))
        for name in (*inputs, *linker.outputs)
    )
    main = Block("main", tags=frozenset(("main",)))
    entry = Block("program", refs=refs, body=(main,), tags=frozenset(("program",)), comment=linker.program.name)
    return StripeProgram(entry, (), inputs, tuple(linker.outputs))
