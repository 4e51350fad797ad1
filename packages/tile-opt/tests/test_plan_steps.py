"""Every step of a plan keeps the meaning of random kernels, by the Stripe interpreter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from model_support import kernel, processor
from program_samples import programs, random_inputs
from tile_ir.program.nodes import Program
from tile_ir.semtree.verify import OPTIONAL_NODES
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.interpret import run
from tile_ir.stripe.nodes import Bind, Block, Order
from tile_ir.stripe.verify import verify
from tile_ir.stripe.walk import blocks_in
from tile_ir.target import HardwareSettings, PassConfig, Target
from tile_opt.blocks.tree import kernels_of, with_kernels
from tile_opt.kernel.segments import Segment, cover_masked, powers_of_two
from tile_opt.kernel.view import KernelView, Stage, open_kernel
from tile_opt.kernel.work import merged_use
from tile_opt.pipeline import optimize
from tile_opt.plan.build import build
from tile_opt.plan.check import PlanCheck
from tile_opt.plan.space.cpu.plans import plans
from tile_opt.plan.steps.bind import Binding, bind
from tile_opt.plan.steps.distribute import distribute, gathered
from tile_opt.plan.steps.edges import Tiling, tile
from tile_opt.plan.steps.reduce import Ways, keep_partials
from tile_opt.plan.steps.split import hoist, into_stage, joined, split
from tile_opt.plan.steps.stage import Copy, stage_input, stage_sums
from tile_opt.plan.text import parse_plans
from tile_opt.plan.tree import Around, Nest, close_tree, innermost, map_stages, nests_of, open_tree, stages_of
from tile_opt.translate import to_stripe

SETTINGS = settings(max_examples=40, suppress_health_check=list(HealthCheck))
FRONT = Target(
    "front", HardwareSettings(), passes=tuple(PassConfig(n) for n in ("inline", "fuse", "merge", "accumulate"))
)
Step = Callable[[KernelView, Nest, st.DataObject], Nest]


def keeps_meaning(program: Program, data: st.DataObject, *steps: Step) -> None:
    """Every kernel in normal form goes through `steps`; the program's results stay what they were."""
    flat = optimize(to_stripe(program), FRONT)
    kernels = [_stepped(b, data, steps) if isinstance(b, Block) else b for b in kernels_of(flat)]
    made = with_kernels(flat, tuple(kernels))
    verify(made)
    inputs = random_inputs(program)
    same(run(made, inputs), run(flat, inputs))


def same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    for name, array in expected.items():
        tolerance = 1e-2 if array.dtype.itemsize == 2 else 1e-5
        np.testing.assert_allclose(found[name], array, rtol=tolerance, atol=1e-5, err_msg=name)


def _stepped(block: Block, data: st.DataObject, steps: tuple[Step, ...]) -> Block:
    view = open_kernel(block)
    if view is None:
        return block
    tree = open_tree(view)
    for step in steps:
        tree = step(view, tree, data)
    return close_tree(view, tree)


def names_of(nest: Nest) -> set[str]:
    """Names of all loops in the tree."""
    found = {i.name for n in nests_of(nest) for i in n.loops}
    return found | {i.name for s in stages_of(nest) for i in s.loops}


def free_loops(nest: Nest) -> list[str]:
    return [i.name for i in nest.loops if i.order is Order.FREE and i.bind is Bind.NONE]


def splitting(view: KernelView, tree: Nest, data: st.DataObject) -> Nest:
    """One loop of each innermost nest in blocks of any size."""

    def step(nest: Nest, _: Around) -> Nest:
        loops = free_loops(nest)
        if not loops:
            return nest
        loop = data.draw(st.sampled_from(loops))
        return split(nest, loop, data.draw(st.integers(1, 5)), f"{loop}_s{len(names_of(tree))}")

    return joined(innermost(tree, step, Around.of(view)))


def tiling(view: KernelView, tree: Nest, data: st.DataObject) -> Nest:
    """One loop of each innermost nest in segments, within blocks or not."""

    def step(nest: Nest, around: Around) -> Nest:
        loops = free_loops(nest)
        if not loops:
            return nest
        loop = nest.loop(data.draw(st.sampled_from(loops)))
        assert loop is not None
        size = data.draw(st.integers(1, 5))
        full = loop.range // size
        segments = (*((Segment(0, full, size),) if full else ()), *powers_of_two(full * size, loop.range))
        if size == 4 and data.draw(st.booleans()):
            segments = cover_masked(0, loop.range, size, 4)
        name = f"{loop.name}_t{len(names_of(tree))}"
        chunk = data.draw(st.integers(0, 3)) if full else 0
        plain = Tiling(loop.name, segments, name, size=size)
        if not chunk:
            return tile(nest, plain, around)
        grid = f"{name}_g"
        outer = split(nest, loop.name, chunk * size, grid, count=-(-plain.count // chunk))
        inner = replace(plain, base=Affine.var(grid, chunk * size), chunk=chunk)
        return innermost(outer, lambda n, a: tile(n, inner, a), around)

    return joined(innermost(tree, step, Around.of(view)))


def hoisting(view: KernelView, tree: Nest, data: st.DataObject) -> Nest:
    return innermost(tree, lambda n, _: hoist(n, *data.draw(st.permutations(free_loops(n)))[:2]), Around.of(view))


def distributing(view: KernelView, tree: Nest, data: st.DataObject) -> Nest:
    return innermost(tree, lambda n, _: distribute(n), Around.of(view))


def binding(view: KernelView, tree: Nest, data: st.DataObject) -> Nest:
    """Loops of stages in another order, unrolled, and one across lanes."""

    def step(stage: Stage) -> Stage:
        names = [i.name for i in stage.loops if i.order is Order.FREE]
        chosen = data.draw(st.permutations(names)) if names else []
        bindings = {n: Binding(data.draw(st.sampled_from((Bind.NONE, Bind.UNROLL)))) for n in chosen}
        bindings |= {n: Binding(Bind.VECTOR, 4) for n in chosen[-1:]}
        ordered = any(i.order is Order.ORDERED for i in stage.loops)
        return stage if ordered else bind(stage, bindings, chosen)

    return map_stages(tree, step)


def staging(view: KernelView, tree: Nest, data: st.DataObject) -> Nest:
    """Copies of an operand: packed by loops, or of the box that is touched."""

    def step(nest: Nest, around: Around) -> Nest:
        reads = sorted(view.reads() - view.writes())
        if not reads or not all(isinstance(n, Stage) for n in nest.body):
            return nest
        operand = data.draw(st.sampled_from(reads))
        uses = [(s, u) for s in nest.body if isinstance(s, Stage) for u in s.uses if u.buffer == operand]
        if not uses:
            return nest
        stage, use = data.draw(st.sampled_from(uses))
        inner = {*nest.loop_names, *stage.loop_names}
        names = sorted({n for f in use.forms for n in f.names} & inner)
        order = tuple(data.draw(st.permutations(names))) if data.draw(st.booleans()) else ()
        return stage_input(nest, Copy(operand, f"{operand}_copy", order, pad=data.draw(st.integers(0, 2))), around)

    return innermost(tree, step, Around.of(view))


def own_nests(tree: Nest, view: KernelView, step: Callable[[Nest, Around], Nest]) -> Nest:
    """`step` on every stage as a nest of its own; its loops go back into the stages."""

    def each(nest: Nest, around: Around) -> Nest:
        inside = around.within(nest)
        body = tuple(step(gathered(n), inside) if isinstance(n, Stage) else n for n in nest.body)
        return replace(nest, body=body)

    made = innermost(tree, each, Around.of(view))
    return innermost(made, lambda n, _: distribute(n), Around.of(view))


def summing(view: KernelView, tree: Nest, data: st.DataObject) -> Nest:
    """Accumulators of every stage that aggregates."""

    def step(nest: Nest, around: Around) -> Nest:
        (stage,) = (s for s in nest.body if isinstance(s, Stage))
        use = merged_use(stage)
        return nest if use is None else stage_sums(nest, use.buffer, f"{use.buffer}_own", around)

    return own_nests(tree, view, step)


def keeping_partials(view: KernelView, tree: Nest, data: st.DataObject) -> Nest:
    """A partial result per iteration of one or two loops that do not move the cell."""

    def step(nest: Nest, around: Around) -> Nest:
        (stage,) = (s for s in nest.body if isinstance(s, Stage))
        use = merged_use(stage)
        loops = [i for i in nest.loops if i.order is Order.FREE]
        free = [i for i in loops if use is not None and all(i.name not in f.names for f in use.forms)]
        if use is None or not free:
            return nest
        ways = {i.name: Ways(i.range) for i in data.draw(st.permutations(free))[: data.draw(st.integers(1, 2))]}
        return keep_partials(distribute(nest), ways, f"{use.buffer}_parts", around)

    return own_nests(tree, view, step)


def shaping(view: KernelView, tree: Nest, data: st.DataObject) -> Nest:
    """Single stages with their loops, and nests joined."""
    return joined(joined(tree))


@given(programs(), st.data())
@SETTINGS
def test_blocks_and_segments(program: Program, data: st.DataObject) -> None:
    keeps_meaning(program, data, splitting, tiling, splitting, tiling)


@given(programs(), st.data())
@SETTINGS
def test_loops_move_into_stages(program: Program, data: st.DataObject) -> None:
    keeps_meaning(program, data, hoisting, tiling, distributing, binding, shaping)


@given(programs(), st.data())
@SETTINGS
def test_copies_of_operands(program: Program, data: st.DataObject) -> None:
    keeps_meaning(program, data, tiling, staging, tiling, distributing)


@given(programs(), st.data())
@SETTINGS
def test_accumulators(program: Program, data: st.DataObject) -> None:
    keeps_meaning(program, data, tiling, distributing, summing, binding)


@given(programs(), st.data())
@SETTINGS
def test_partial_results(program: Program, data: st.DataObject) -> None:
    keeps_meaning(program, data, tiling, distributing, keeping_partials, binding)


def test_a_stage_takes_the_loops_of_a_nest() -> None:
    stage = Stage("s", (), (), (), ())
    nest = gathered(replace(stage, loops=(), constraints=()))
    assert into_stage(nest) == stage


TINY = HardwareSettings(vector_bytes=16, registers=16, cores=2)


@given(programs(), st.integers(0, 3))
@SETTINGS
def test_every_plan_of_a_processor_keeps_the_meaning(program: Program, number: int) -> None:
    flat = optimize(to_stripe(program), FRONT)
    target = Target("tiny", TINY, nodes=OPTIONAL_NODES)

    def scheduled(block: Block) -> Block:
        view = open_kernel(block)
        if view is None:
            return block
        found = list(islice(plans(view, target, 16), number + 1))
        PlanCheck(view, found[-1], target, {}).before()
        return build(view, found[-1])

    made = with_kernels(flat, tuple(scheduled(b) if isinstance(b, Block) else b for b in kernels_of(flat)))
    verify(made)
    inputs = random_inputs(program)
    same(run(made, inputs), run(flat, inputs))


def test_what_holds_around_a_tile_need_not_be_asked_in_it() -> None:
    """Blocks of four do not divide nine lags: where there is a lag at all, most of its products need no border."""
    source = "function (X[N], Y[N]) -> (R) { R[l : 9] = +(X[n] * Y[n + l - 4]); }"
    plan = "plan kernel_0 {\n grid l:4\n serial l:1\n serial n:16\n vector n:1 x4\n reduce n across lanes x16\n}"
    block = kernel(source, processor("zen4"), parse_plans(plan), X=(72,), Y=(72,))
    vectors = [b for b in blocks_in(block) if any(i.bind is Bind.VECTOR and i.range > 1 for i in b.indexes)]
    assert vectors and not any(b.constraints for b in vectors)
