"""What a plan made of one kernel is, under other names, what it makes of an equal one."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from program_samples import programs
from test_passes import PIPELINE, target
from tile_ir.diagnostics import Source, Span
from tile_ir.program.nodes import Program
from tile_ir.stripe.hashing import structural_hash
from tile_ir.stripe.nodes import Refinement
from tile_ir.stripe.verify import verify_block
from tile_opt.kernel.view import KernelView, Stage
from tile_opt.pipeline import schedule
from tile_opt.plan.again import again
from tile_opt.plan.build import build
from tile_opt.plan.names import Names, renamed
from tile_opt.translate import to_stripe

PLACE = Span(Source("elsewhere"), 2, 4)


def other(view: KernelView) -> KernelView:
    """The kernel with other buffers, remarks, block names and places."""

    def ref(r: Refinement) -> Refinement:
        return replace(r, into=f"{r.into}_x", source=r.source and f"{r.source}_y")

    def stage(number: int, s: Stage) -> Stage:
        uses = tuple(replace(u, buffer=f"{u.buffer}_x") for u in s.uses)
        origin = Span(PLACE.source, number, 9)
        return replace(s, name=f"{s.name}_x", comment=f"stage {number}", uses=uses, origin=origin)

    stages = tuple(stage(n, s) for n, s in enumerate(view.stages))
    refs, allocs = tuple(map(ref, view.refs)), tuple(map(ref, view.allocs))
    return replace(view, name="other", comment="x", origin=PLACE, refs=refs, allocs=allocs, stages=stages)


@settings(deadline=None, max_examples=60)
@given(programs())
def test_under_other_names_it_is_what_building_again_gives(made: Program) -> None:
    scheduled = schedule(to_stripe(made), target(*PIPELINE))
    for decision in scheduled.decisions.values():
        view, plan = decision.view, decision.plan
        new = other(view)
        plan_there = renamed(plan, Names.of(view), Names.of(new))
        assert plan_there is not None
        got, expected = again(build(view, plan), view, new), build(new, plan_there)
        if got is None:  # one remark would have to become two
            assert len({s.comment for s in view.stages}) < len(view.stages) or view.comment
            continue
        verify_block(got)
        assert structural_hash(got) == structural_hash(replace(got)) == structural_hash(expected)
        assert (got.name, got.comment, got.origin, got.refs) == (new.name, new.comment, PLACE, expected.refs)
