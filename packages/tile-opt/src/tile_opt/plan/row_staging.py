"""Rows on their way through local memory: step by step a group copies a piece, and reduces it from there.

steps [step] { piece of A -> local; piece of B -> local; Sync; merge into the item's partial result; Sync }
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tile_ir.names import claim
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import (
    Bind,
    Block,
    Direction,
    Index,
    Load,
    Order,
    Refinement,
    Statement,
    Store,
    Sync,
    TensorType,
)
from tile_ir.target import HardwareSettings

from tile_opt.kernel.strides import flat_stride
from tile_opt.kernel.unify import is_indirect
from tile_opt.kernel.view import KernelView, Stage, Use, close_stage
from tile_opt.kernel.work import merged_use
from tile_opt.plan.nest import GROUP_MEMORY, whole_refs
from tile_opt.plan.row_split import STEP, RowSplit


@dataclass(frozen=True, slots=True)
class StagedSteps:
    """A reduction whose operands are copied in front of each step, by stages with the same split."""

    copies: tuple[Stage, ...]
    merge: Stage
    step: tuple[Index, ...]
    """The loop over the steps, where there are several."""

    @property
    def stages(self) -> tuple[Stage, ...]:
        return (*self.copies, self.merge)

    def names(self) -> set[str]:
        return {n for s in self.stages for n in s.names()}

    def substitute(self, values: dict[str, Affine]) -> StagedSteps:
        return replace(
            self, copies=tuple(c.substitute(values) for c in self.copies), merge=self.merge.substitute(values)
        )

    def block(self, view: KernelView, buffers: Mapping[str, Refinement], outer: tuple[str, ...]) -> Block:
        """The loop in a parent that has the loops `outer` and sees `buffers`."""
        used = self.names()
        inside = {r.into: r for r in whole_refs(replace(view, refs=tuple(buffers.values())), self.stages)}
        *copies, merge = (close_stage(s, inside, (*outer, STEP)) for s in self.stages)
        # The second barrier holds the next step's copies back until every item has read this step's.
        body: tuple[Statement, ...] = (*copies, Sync(), merge, Sync())
        passed = tuple(Index(n, 1, Affine.var(n)) for n in outer if n in used)
        return Block(f"{self.merge.name}_steps", indexes=passed + self.step, refs=tuple(inside.values()), body=body)


# --- the decision ----------------------------------------------------------------------------------


def with_staging(view: KernelView, split: RowSplit, settings: HardwareSettings) -> RowSplit:
    """`split` with the buffers to stage: all that reductions read along the row, or none and the reason."""
    operands = [u for s in view.stages for u in row_operands(view, s)]
    needed = _local_bytes(view, split)
    if not operands:
        return replace(split, note="no reduction reads a row of memory that is its own")
    if settings.use_global:
        return replace(split, note="the target's use_global asks for reads straight from memory")
    if needed > settings.max_mem:
        return replace(split, note=f"staging takes {needed} bytes of local memory, the target has {settings.max_mem}")
    return replace(split, staged=tuple(dict.fromkeys(u.buffer for u in operands)))


def row_operands(view: KernelView, stage: Stage) -> tuple[Use, ...]:
    """What a reduction reads of memory element by element along its loop; nothing for any other stage."""
    if merged_use(stage) is None or not stage.loops:
        return ()
    loop = stage.loops[0].name
    plain = [u for u in stage.uses if u.dir is Direction.IN and not u.extent and not is_indirect(stage, u)]
    return tuple(u for u in plain if not view.is_local(u.buffer) and flat_stride(view, u, loop) == 1)


def _local_bytes(view: KernelView, split: RowSplit) -> int:
    """Local memory of a group: the pieces, and the partial results of each reduction that has some."""
    total = 0
    for stage in view.stages:
        pieces = {(u.buffer, u.forms) for u in row_operands(view, stage)}
        total += sum(split.piece * view.type_of(buffer).dtype.bytes for buffer, _ in pieces)
        merged = merged_use(stage)
        if merged is not None and stage.loops:
            total += split.items * view.type_of(merged.buffer).dtype.bytes
    return total


# --- the schedule ----------------------------------------------------------------------------------


def staged_steps(
    view: KernelView, stage: Stage, operands: frozenset[str], split: RowSplit, taken: set[str]
) -> tuple[StagedSteps, list[Refinement]]:
    """`stage`, which walks the row by `split`, with the uses `operands` in local memory; and that memory."""
    pieces: dict[tuple[str, tuple[Affine, ...]], Refinement] = {}
    uses: list[Use] = []
    for use in stage.uses:
        key = (use.buffer, use.forms)
        if use.name not in operands:
            uses.append(use)
            continue
        if key not in pieces:
            pieces[key] = _piece(view, use, split, taken)
        uses.append(replace(use, buffer=pieces[key].into, forms=(split.within(),)))
    merge = replace(stage, loops=split.lanes(), uses=tuple(uses), constraints=split.inside())
    copies = tuple(_copy(*key, piece, split) for key, piece in pieces.items())
    return StagedSteps(copies, merge, _step(merge, split)), list(pieces.values())


def _piece(view: KernelView, use: Use, split: RowSplit, taken: set[str]) -> Refinement:
    type = TensorType.row_major(view.type_of(use.buffer).dtype, (split.piece,), align=16)
    return Refinement(Direction.ALLOC, claim(f"{use.buffer}_local", taken), "", (Affine(),), type, loc=GROUP_MEMORY)


def _copy(buffer: str, forms: tuple[Affine, ...], piece: Refinement, split: RowSplit) -> Stage:
    """Neighbouring items copy neighbouring elements of memory."""
    source = Use("src", buffer, forms, Direction.IN)
    target = Use("dst", piece.into, (split.within(),), Direction.OUT)
    body = (Load("$x", "src"), Store("dst", "$x"))
    return Stage(f"stage_{buffer}", split.lanes(), split.inside(), (source, target), body)


def _step(merge: Stage, split: RowSplit) -> tuple[Index, ...]:
    """A plain loop, so that code does not grow with the row; unrolled only for what registers hold of each step."""
    kept = any(STEP in f.names for u in merge.uses for f in u.forms)
    return tuple(replace(i, order=Order.ORDERED, bind=i.bind if kept else Bind.NONE) for i in split.stepping())
