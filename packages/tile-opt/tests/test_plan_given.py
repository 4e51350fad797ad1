"""A plan from outside, however odd, is refused in a sentence or gives the program's results."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import islice

import numpy as np
import pytest
import tile_lang
from explain_support import GPU as EXPLAINED
from hypothesis import given, settings
from hypothesis import strategies as st
from lowering_support import check, random_inputs
from tile_ir.diagnostics import Source, TilePlanError
from tile_ir.dtype import DType
from tile_ir.program.nodes import TensorType
from tile_ir.stripe import interpret
from tile_ir.stripe.nodes import Bind, Program, Scope
from tile_ir.target import HardwareSettings, PassConfig, Target
from tile_opt.passes.scheduling import Decision
from tile_opt.pipeline import schedule
from tile_opt.plan.plan import Across, Cover, Edge, Level, Plan, Reduction, Staging
from tile_opt.plan.text import parse_plans, print_plans
from tile_opt.translate import to_stripe

NAMES = ("inline", "fuse", "merge", "accumulate")
SETTINGS = HardwareSettings(vec_size=4, vector_bytes=16, registers=16, l1_bytes=256, l2_bytes=1024, l3_bytes=64)
CPU = Target("tiny", SETTINGS, passes=tuple(PassConfig(n) for n in (*NAMES, "schedule_kernels")))
ROWS = replace(
    EXPLAINED, settings=replace(EXPLAINED.settings, threads=32, max_mem=8192, buffer_align=16),
    passes=tuple(PassConfig(n) for n in (*NAMES, "gpu_tile")),
)  # fmt: skip
TILES = replace(ROWS, passes=(*ROWS.passes[:-1], PassConfig("group_tile"), PassConfig("gpu_tile")))
MASKED = replace(CPU, settings=replace(SETTINGS, masks=True))
TARGETS = {"cpu": CPU, "cpu with masks": MASKED, "gpu rows": ROWS, "gpu tiles": TILES}
BINDS = {
    "cpu": (Bind.GRID, Bind.NONE, Bind.NONE, Bind.UNROLL, Bind.VECTOR),
    "cpu with masks": (Bind.GRID, Bind.NONE, Bind.NONE, Bind.UNROLL, Bind.VECTOR),
    "gpu rows": (Bind.GRID, Bind.GROUP, Bind.NONE, Bind.UNROLL, Bind.VECTOR),
    "gpu tiles": (Bind.GRID, Bind.GROUP, Bind.NONE, Bind.UNROLL, Bind.VECTOR),
}
PROGRAMS = {
    "matmul": ("(A[M, L], B[L, N]) -> (C) { C[i, j : M, N] = +(A[i, k] * B[k, j]); }", {"A": (7, 5), "B": (5, 9)}),
    "conv": ("(D[X, C], K[I, C, O]) -> (R) { R[x, o : X, O] = +(D[x+i-1, c] * K[i, c, o]); }",
             {"D": (9, 3), "K": (3, 3, 6)}),
    "rows": ("(A[M, N]) -> (S) { X[m, 0 : M, 1] = >(A[m, n]); E = exp(A - X); T[m, 0 : M, 1] = +(E[m, n]); S = E / T; }",
             {"A": (5, 11)}),
    "transpose": ("(A[M, N]) -> (B) { B[n, m : N, M] = =(A[m, n]); }", {"A": (6, 10)}),
    "thin transpose": ("(A[L, M, N]) -> (B) { B[l, n, m : L, N, M] = =(A[l, m, n]); }", {"A": (2, 300, 3)}),
    "sum": ("(A[M, N]) -> (S) { S[n : N] = +(A[m, n]); }", {"A": (13, 6)}),
    "all": ("(A[M, N]) -> (S) { S[] = +(A[m, n]); }", {"A": (9, 7)}),
    "chain": ("(A, B) -> (C) { X = A * B; Y = exp(X); C = Y + A; }", {"A": (3, 50), "B": (3, 50)}),
    "distances": ("(A[M, K], B[N, K]) -> (D) { X[m, n, k : M, N, K] = =(A[m, k]); Y[m, n, k : M, N, K] = =(B[n, k]); Z = X - Y; W = Z * Z; D[m, n : M, N] = +(W[m, n, k]); }",
                  {"A": (6, 5), "B": (7, 5)}),
    "last": ("(A[N]) -> (B) { B[i/2 : 5] = >(A[i]); }", {"A": (10,)}),
}  # fmt: skip


@cache
def kernels(name: str, target: str) -> tuple[Program, dict[str, Decision]]:
    """A program and what its kernels are planned as."""
    source, shapes = PROGRAMS[name]
    types = {n: TensorType(DType.FLOAT32, s) for n, s in shapes.items()}
    stripe = to_stripe(tile_lang.bind(tile_lang.parse(Source(f"function {source}", name)), types))
    return stripe, dict(schedule(stripe, TARGETS[target]).decisions)


@st.composite
def plans(draw: st.DrawFn, decision: Decision, target: str) -> Plan:
    """Mostly sensible: levels over the kernel's loops, each covering no more than the last."""
    left = dict(decision.view.ranges)
    binds = BINDS[target]
    levels: list[Level] = []
    for bind in draw(st.lists(st.sampled_from(binds), max_size=5)):
        names = draw(st.lists(st.sampled_from(sorted(left)), max_size=2, unique=True)) if left else []
        covers: list[Cover] = []
        for name in names:
            left[name] = draw(st.integers(1, left[name])) if draw(st.integers(0, 9)) else draw(st.integers(1, 20))
            covers.append(Cover(name, left[name]))
        levels.append(Level(bind, tuple(covers), draw(st.sampled_from([1, 4, 4, 2])) if bind is Bind.VECTOR else 1))
    if draw(st.integers(0, 4)):
        levels.sort(key=lambda level: binds.index(level.bind))
    loops = st.sampled_from(sorted(decision.view.ranges))
    operands = sorted({u.buffer for s in decision.view.stages for u in s.uses})
    stagings = draw(st.lists(st.builds(
        Staging, st.sampled_from(operands), st.integers(-1, max(0, len(levels) - 1)), st.sampled_from(["L2", "REG", "LOCAL"]),
        st.lists(loops, max_size=2, unique=True).map(tuple), st.sampled_from([Scope.THREAD, Scope.GROUP]), st.integers(0, 2),
    ), max_size=1))  # fmt: skip
    own = [loop.name for stage in decision.view.stages for loop in stage.loops]
    reduced = st.sampled_from(own or ["none"])
    ways = st.builds(Reduction, reduced, st.sampled_from([Across.LANES, Across.SERIAL, *Across]), st.integers(1, 6))
    reductions = draw(st.lists(ways, max_size=2, unique_by=lambda r: r.loop)) if own else ()
    edges = draw(st.lists(st.tuples(loops, st.sampled_from(Edge)), max_size=2, unique_by=lambda e: e[0]))
    return Plan(tuple(levels), tuple(stagings), tuple(reductions), tuple(edges))


@pytest.mark.filterwarnings("ignore::tile_ir.diagnostics.TilePlanWarning")
@pytest.mark.diagonal(2)
@pytest.mark.parametrize("target", BINDS)
@pytest.mark.parametrize("name", PROGRAMS)
@settings(max_examples=12)
@given(data=st.data())
def test_a_given_plan_is_refused_or_right(name: str, target: str, data: st.DataObject) -> None:
    stripe, decisions = kernels(name, target)
    kernel = data.draw(st.sampled_from(sorted(decisions)))
    plan = data.draw(plans(decisions[kernel], target))
    try:
        made = schedule(stripe, TARGETS[target], plans={kernel: plan}, verify=True)
    except TilePlanError as refusal:
        assert all(d.message and d.span for d in refusal.diagnostics)
        return
    inputs = random_inputs(stripe)
    check(made.program, inputs, TARGETS[target], reference=stripe)


@pytest.mark.diagonal(2)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_compilers_own_plans_are_accepted_and_right(name: str, target: str) -> None:
    """What `tile plan` prints may be given back, and so may what it would consider next."""
    stripe, decisions = kernels(name, target)
    inputs = random_inputs(stripe)
    expected = interpret.run(stripe, inputs)
    for kernel, decision in decisions.items():
        for plan in (decision.plan, *islice(decision.others(TARGETS[target]), 5)):
            text = print_plans({kernel: plan})
            made = schedule(stripe, TARGETS[target], plans=parse_plans(text), verify=True)
            assert made.decisions[kernel].plan == plan
            got = interpret.run(made.program, inputs)
            for output, value in expected.items():
                np.testing.assert_allclose(got[output], value, rtol=2e-5, atol=2e-5, err_msg=text)


def test_levels_that_cover_more_than_a_loop_have_one_point() -> None:
    stripe, decisions = kernels("transpose", "cpu")
    ((kernel, decision),) = decisions.items()
    first, second = (loop.name for loop in decision.view.loops)
    tiles = (
        Level(Bind.NONE, (Cover(second, 64),)),
        Level(Bind.NONE, (Cover(first, 4),)),
        Level(Bind.NONE, (Cover(second, 16),)),
    )
    made = schedule(stripe, CPU, plans={kernel: Plan((*tiles, Level(Bind.UNROLL, (Cover(second, 1),))))}, verify=True)
    inputs = random_inputs(stripe)
    expected, got = interpret.run(stripe, inputs), interpret.run(made.program, inputs)
    np.testing.assert_array_equal(got["B"], expected["B"])


def test_a_reduction_shared_by_one_group_is_not_shared() -> None:
    stripe, decisions = kernels("matmul", "gpu tiles")
    (kernel,) = decisions
    plan = Plan((Level(Bind.GROUP, ()),), reductions=(Reduction("k", Across.GROUPS, 1),))
    made = schedule(stripe, TILES, plans={kernel: plan}, verify=True)
    assert set(made.decisions) == {kernel}
    inputs = random_inputs(stripe)
    np.testing.assert_allclose(interpret.run(made.program, inputs)["C"], interpret.run(stripe, inputs)["C"], rtol=2e-5)
