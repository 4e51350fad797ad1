"""Compiling a program with loops, part by part."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Protocol

from tile_ir.kernels import KernelList
from tile_ir.program.nodes import Loop, Program
from tile_ir.stripe.nodes import Block, Direction, Refinement
from tile_ir.stripe.nodes import Program as StripeProgram
from tile_ir.target import Target

from tile_opt.compiled import Compiled
from tile_opt.loops.divide import divide, has_loops
from tile_opt.loops.link import Linker
from tile_opt.loops.repeated import Repeated
from tile_opt.loops.round import Round, round_of
from tile_opt.loops.rows import laid_out
from tile_opt.loops.serial import is_small, may_be_small, serial, takes_serial
from tile_opt.loops.walked import FUSED, takes_walks, walked
from tile_opt.lower_kernels import lower_kernels
from tile_opt.lowering.endless import is_endless
from tile_opt.translate.build import whole


class Parts(Protocol):
    """Compiles programs without loops."""

    def compiled(self, program: Program, first: int = 0) -> Compiled:
        """The stages of one; its kernels are numbered from `first` on."""
        ...

    def scheduled(self, program: Program, initial: StripeProgram, timings: dict[str, float]) -> Compiled:
        """The stages from unscheduled Stripe on."""
        ...

    def fused(self, program: Program, label: str, first: int = 0) -> StripeProgram | None:
        """What the passes up to `label` make of one; None where there is no such pass."""
        ...


def compile_parts(program: Program, target: Target, parts: Parts) -> Compiled:
    """The stages of a program with loops; `parts` compiles those that have none.

    The Stripe of the whole has the program's buffers only: that of the kernels is in `parts`.
    """
    work = _Linked(target, parts)
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
class _Linked:
    """The parts that have been compiled so far."""

    target: Target
    parts: Parts
    compiled: list[Compiled] = field(default_factory=list[Compiled])
    count: int = 0
    """Of the kernels that they began with."""

    def linked(self, program: Program) -> tuple[KernelList, StripeProgram]:
        single = self._serial(program)
        program = laid_out(program, self.target.settings.view_align, single)
        linker = Linker(program, self.target)
        for piece in divide(program):
            if isinstance(piece, Program):
                linker.part(piece, self.kernels(piece))
            elif piece.results in single:
                linker.part(*single[piece.results])
            else:
                round = round_of(piece, program)
                Repeated(linker, round).link(self.kernels(round.body))
        return linker.finish(), _outline(linker)

    def _serial(self, program: Program) -> dict[tuple[str, ...], tuple[Program, KernelList]]:
        """The loops of a program that are one kernel each, by their results: as parts of it."""
        found: dict[tuple[str, ...], tuple[Program, KernelList]] = {}
        for op in program.ops:
            if isinstance(op, Loop) and op.count and not has_loops(op.body):
                made = self._in_one(round_of(op, program), program)
                if made is not None:
                    found[op.results] = made
        return found

    def _in_one(self, round: Round, program: Program) -> tuple[Program, KernelList] | None:
        """A loop as one kernel, where it is better that."""
        if takes_walks(self.target):
            return self._walked(round, program)
        return self._small(round, program) if takes_serial(self.target) and may_be_small(round.loop) else None

    def _walked(self, round: Round, program: Program) -> tuple[Program, KernelList] | None:
        body = self.parts.fused(round.body, FUSED, self.count)
        made = None if body is None else walked(round, body, program, f"kernel_{self.count}_rounds")
        if made is None:
            return None
        compiled = self.parts.scheduled(made.part, made.stripe, {})
        if any(map(is_endless, compiled.kernels.kernels)):
            return None
        self._add(compiled)
        return made.part, compiled.kernels

    def _small(self, round: Round, program: Program) -> tuple[Program, KernelList] | None:
        body = self.parts.compiled(round.body, self.count)
        name = f"kernel_{self.count}_rounds"
        made = serial(round, body.stripe, program, name) if is_small(body.kernels) else None
        if made is None:
            return None
        kernels = lower_kernels(made.stripe, self.target)
        if any(map(is_endless, kernels.kernels)):
            return None
        decisions = {kernel: replace(d, within=d.within or name) for kernel, d in body.decisions.items()}
        self._add(replace(body, stripe=made.stripe, kernels=kernels, decisions=decisions))
        return made.part, kernels

    def kernels(self, program: Program) -> KernelList:
        """Of a part, or of a loop's body."""
        if has_loops(program):
            return self.linked(program)[0]
        found = self.parts.compiled(program, self.count)
        self._add(found)
        return found.kernels

    def _add(self, found: Compiled) -> None:
        self.compiled.append(found)
        self.count += sum(isinstance(s, Block) for main in found.stripe_initial.entry.body for s in main.body)  # type: ignore[union-attr]


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
