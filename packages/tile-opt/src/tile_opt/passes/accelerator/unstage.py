"""unstage: every stage becomes a kernel of its own in main: one flat block per operation, as the other passes for accelerators take them.

A kernel's own buffers become temporaries of main. The stage that sets an accumulator to its identity vanishes
into ``init=identity`` of the contraction where every cell is known to be reached.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tile_ir.names import claim
from tile_ir.stripe.nodes import Block, Const, Direction, Init, Program, Refinement, Statement, Store
from tile_ir.target import Target

from tile_opt.analysis import Sets
from tile_opt.analysis.coverage import uncovered
from tile_opt.analysis.domain import FlatDomain
from tile_opt.blocks.buffers import with_main_refs
from tile_opt.blocks.tree import main_of, with_kernels
from tile_opt.kernel.view import KernelView, Stage, Use, close_kernel, open_kernel
from tile_opt.kernel.work import MERGING
from tile_opt.passes.base import Pass

_STAGE_TAGS = {"init": "init", "init_hit": "init", "zero": "zero", "default": "default"}
"""Name of a helper stage of a contraction -> its tag; a contraction's other helpers count as elementwise."""


@dataclass(frozen=True)
class Unstage(Pass):
    """Flatten kernels without shared loops; `fold_init` merges initialisation into contractions."""

    fold_init: bool = True

    def apply(self, program: Program, target: Target) -> Program:
        sets = Sets()
        refs = list(main_of(program).refs)
        taken = {r.into for r in refs}
        types = {r.into: r.type for r in refs}
        kernels: list[Statement] = []
        for kernel in main_of(program).body:
            view = open_kernel(kernel) if isinstance(kernel, Block) else None
            if view is None or view.loops or any(r.type != types[r.source] or r.into != r.source for r in view.refs):
                kernels.append(kernel)
                continue
            view, made = _hoisted(view, taken)
            refs += made
            kernels += self._flat(view, sets)
        return with_main_refs(with_kernels(program, tuple(kernels)), tuple(refs))

    def _flat(self, view: KernelView, sets: Sets) -> list[Block]:
        stages = list(view.stages)
        folded: set[str] = set()
        for number in range(len(stages) - 1, 0, -1):
            buffer = _initialises(stages[number - 1], stages[number]) if self.fold_init else None
            if buffer is not None and _reaches_all(stages[number], buffer, view, sets):
                folded.add(stages[number].name)
                del stages[number - 1]
        blocks = [_kernel(view, s, alone=len(view.stages) == 1) for s in stages]
        return [_with_init(b, s.name in folded) for b, s in zip(blocks, stages, strict=True)]


def _hoisted(view: KernelView, taken: set[str]) -> tuple[KernelView, list[Refinement]]:
    """The kernel's buffers as temporaries of main, under names that are free there."""
    names = {a.into: claim(a.into, taken) for a in view.allocs}
    made = [replace(a, into=names[a.into], tags=a.tags | {"tmp"}) for a in view.allocs]
    refs = tuple(replace(m, dir=Direction.INOUT, source=m.into, tags=frozenset()) for m in made)
    stages = tuple(s.with_buffers(names) for s in view.stages)
    return replace(view, stages=stages, refs=view.refs + refs, allocs=()), made


def _initialises(first: Stage, second: Stage) -> str | None:
    """The buffer that `first` fills with the identity of what `second` aggregates into it."""
    match first.body, [u for u in second.uses if u.writes]:
        case (Const(dst, value, dtype), Store(_, src)), [Use() as out] if dst == src and out.agg in MERGING:
            alone = not any(u.buffer == out.buffer and u is not out for u in second.uses)
            same = first.uses[0].buffer == out.buffer and value == out.agg.identity(dtype) and not first.constraints
            return out.buffer if same and alone else None
        case _:
            return None


def _reaches_all(stage: Stage, buffer: str, view: KernelView, sets: Sets) -> bool:
    out = next(u for u in stage.uses if u.buffer == buffer)
    domain = FlatDomain(
        tuple(i.name for i in stage.loops), tuple(i.range for i in stage.loops), stage.constraints, out.forms, ()
    )
    return not stage.guard and uncovered(domain, view.type_of(buffer).sizes, sets) == ()


def _kernel(view: KernelView, stage: Stage, *, alone: bool) -> Block:
    """A flat kernel block: the stage's loops around its body."""
    names = {u.buffer for u in stage.uses}
    one = replace(view, stages=(stage,), refs=tuple(r for r in view.refs if r.into in names))
    (block,) = close_kernel(one).body
    assert isinstance(block, Block)
    name = view.name if alone else f"{view.name}_{stage.name}"
    return replace(block, name=name, tags=_tags(view, stage, alone), comment=view.comment, origin=view.origin)


def _tags(view: KernelView, stage: Stage, alone: bool) -> frozenset[str]:
    if "contraction" not in view.tags or alone or stage.name in ("acc", "assign"):
        return view.tags
    return frozenset(
        (
            "kernel",
            _STAGE_TAGS.get(stage.name, "eltwise"),
            *(() if stage.name in _STAGE_TAGS else (f"eltwise_{stage.name}",)),
        )
    )


def _with_init(block: Block, folded: bool) -> Block:
    if not folded:
        return block
    refs = tuple(replace(r, init=Init.IDENTITY) if r.agg is not None else r for r in block.refs)
    return replace(block, refs=refs)
