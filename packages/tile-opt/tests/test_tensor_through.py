"""Factors of teams of sub-groups that go through registers: rounded and turned there; rounds of sums that follow without a stop."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np
import pytest
from tensor_support import (
    Array,
    Sample,
    bound,
    inputs_of,
    matmul,
    near,
    optimize_given,
    run_kernels,
    scheduled,
    tf32,
    view_of,
)
from test_tensor_copied import ONLY_TEAMS, convolution, roundings
from tile_ir.diagnostics import TilePlanError
from tile_ir.dtype import DType
from tile_ir.emit.walker import walk_statements
from tile_ir.semtree.nodes import Assign, Insert
from tile_ir.stripe.nodes import Program
from tile_ir.stripe.parser import parse_program
from tile_ir.stripe.printer import print_program
from tile_opt.lower_kernels import lower_kernels
from tile_opt.passes.base import kernels_of
from tile_opt.passes.kernels.tensor_tile import TensorTile
from tile_opt.plan.plan import Plan
from tile_opt.plan.text import parse_plans, print_plans
from tile_opt.proof import prove
from tile_opt.translate import to_stripe

BF16, F32 = DType.BFLOAT16, DType.FLOAT32


def plan_for(sample: Sample) -> Plan:
    """The best plan without copies before the kernel: float32 factors go through registers."""
    found = TensorTile().candidates(view_of(sample, ONLY_TEAMS), ONLY_TEAMS)
    return next(plan for plan in found if all(s.level >= 0 for s in plan.stagings))


def agrees(sample: Sample, rounding: bool) -> Program:
    """The best plan without copies before it: one kernel, proved, and right; it rounds."""
    inputs = inputs_of(sample.program)
    stripe = optimize_given(sample, ONLY_TEAMS, print_plans({"kernel_0": plan_for(sample)}))
    assert len(list(kernels_of(stripe))) == 1 and (roundings(stripe) > 0) is rounding
    report = prove(to_stripe(sample.program), stripe, seconds=30)
    assert "1 proved" in str(report), str(report)
    near(run_kernels(stripe, ONLY_TEAMS, inputs), sample, inputs, tf32, 1e-6)
    text = print_program(stripe)
    assert print_program(parse_program(text)) == text
    return stripe


@pytest.mark.parametrize(("layout", "m", "n", "k"), [("tt", 61, 32, 35), ("tn", 64, 32, 40)])
def test_float32_is_rounded_and_turned_on_its_way(layout: str, m: int, n: int, k: int) -> None:
    """Rows that begin anywhere, too, and zeros behind the end of the sum."""
    agrees(matmul(layout, F32, m, n, k), rounding=True)


@pytest.mark.parametrize(("columns", "last"), [(125, "j"), (21, "k")])
def test_rows_of_16_bits_that_begin_anywhere_go_on_as_they_are(columns: int, last: str) -> None:
    """Turned where they make no whole panels: columns of an instruction that has 32, and not 128."""
    sample = matmul("tn", BF16, 61, columns, 35)
    plan = plan_for(sample)
    assert plan.instruction is not None and plan.instruction.name.startswith("wgmma")
    assert {s.operand for s in plan.stagings if s.unit == "REG"} == {"A", "B"}
    assert {s.operand: s.order[-1] for s in plan.stagings if s.unit == "LOCAL" and s.operand != "R"} == {
        "A": "i",
        "B": last,
    }
    assert not roundings(agrees(sample, rounding=False))


def test_vectors_on_their_way_are_moved_whole() -> None:
    """Taken apart, halves would be converted between a load and the registers that it fills: a wait for it."""
    sample = matmul("tn", BF16, 61, 40, 35)
    stripe = optimize_given(sample, ONLY_TEAMS, print_plans({"kernel_0": plan_for(sample)}))
    (kernel,) = lower_kernels(stripe, ONLY_TEAMS).kernels
    assert kernel.function is not None
    given = [s for s in walk_statements(kernel.function.body) if isinstance(s, Assign) and s.value.type.dtype is BF16]
    assert {s.value.type.lanes for s in given} == {1, 8}
    assert not any(isinstance(s.value, Insert) for s in given)


WEIGHTS = "function (D[N, C, X], G[N, O, X]) -> (R) { R[o, c : O, C] = +(D[n, c, x] * G[n, o, x]); }"
"""Of a convolution of one tap."""
FETCHED = {
    "rows that begin anywhere": (matmul("tn", BF16, 789, 789, 789), 1),
    "few results": (
        Sample(bound(WEIGHTS, BF16, D=(11, 64, 3025), G=(11, 512, 3025)), lambda given: (given["G"], given["D"])),
        24,
    ),
}
"""And how many groups share a sum, at least: an H200 took 20 and 32 us; 28 and 44 where groups had 64 x 32 and 128 x 32."""


@pytest.mark.parametrize("name", FETCHED)
def test_what_is_fetched_element_by_element_serves_many_results(name: str) -> None:
    """Groups of a core issue such copies one after the other, however many there are."""
    sample, ways = FETCHED[name]
    busy = ONLY_TEAMS.resolved(cores=132)
    plan = next(TensorTile().candidates(view_of(sample, busy), busy))
    assert prod(c.size for c in plan.levels[0].covers) >= 64 * 128
    assert prod(r.ways for r in plan.reductions) >= ways


def test_two_loops_are_shared_where_one_leaves_cores_idle() -> None:
    """142 steps of 17 images for one tile and 132 cores: shares of two steps are 71."""
    sample = Sample(bound(WEIGHTS, BF16, D=(17, 64, 9025), G=(17, 128, 9025)), lambda given: (given["G"], given["D"]))
    busy = ONLY_TEAMS.resolved(cores=132)
    plan = next(TensorTile().candidates(view_of(sample, busy), busy))
    assert prod(c.size for c in plan.levels[0].covers) == 64 * 128
    assert all(r.ways > 1 for r in plan.reductions) and 110 < prod(r.ways for r in plan.reductions) <= 132


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_rows_in_local_memory_run_along_the_depth(layout: str) -> None:
    plan = plan_for(matmul(layout, F32, 72, 40, 68))
    assert plan.instruction is not None and plan.instruction.name.endswith("k8_tf32")
    assert {s.operand: s.order[-1] for s in plan.stagings if s.unit == "LOCAL"} == {"A": "k", "B": "k"}
    assert {s.operand for s in plan.stagings if s.unit == "REG"} == {"A", "B"}
    text = print_plans({"kernel_0": plan})
    assert dict(parse_plans(text)) == {"kernel_0": plan}


def test_both_factors_go_through_registers_or_none() -> None:
    sample = matmul("nt", F32, 64, 32, 64)
    text = print_plans({"kernel_0": plan_for(sample)})
    line = next(line for line in text.splitlines() if "stage A in REG" in line)
    with pytest.raises(TilePlanError, match="rounded before"):
        optimize_given(sample, ONLY_TEAMS, text.replace(line + "\n", ""))


def gradient(dtype: DType, n: int, x: int, y: int) -> Sample:
    """Of weights of two taps: a sum over images and pixels, of which no loop is as long as a panel."""
    source = """function (D[N, X, Y, C], E[N, X, Y, O]) -> (R) {
        R[u, c, o : 2, C, O] = +(D[n, x + u - 1, y, c] * E[n, x, y, o]); }"""

    def operands(given: Mapping[str, Array]) -> tuple[Array, Array]:
        data = np.pad(given["D"].astype(np.float32), ((0, 0), (1, 0), (0, 0), (0, 0)))
        taps = np.stack([data[:, u : u + x].reshape(-1, 64).T for u in range(2)])
        return taps, given["E"].astype(np.float32).reshape(-1, 32)

    return Sample(bound(source, dtype, D=(n, x, y, 64), E=(n, x, y, 32)), operands)


@pytest.mark.parametrize(("dtype", "x", "y"), [(BF16, 2, 2), (F32, 2, 2)])
def test_copies_run_ahead_of_several_rounds(dtype: DType, x: int, y: int) -> None:
    """A step of all images is a round, for each pixel: those under way are of this row, or of the next one."""
    sample = gradient(dtype, 16, x, y)
    plan = plan_for(sample)
    assert plan.tile("n", 2, 16) == 16
    agrees(sample, rounding=dtype is F32)


@pytest.mark.parametrize("dtype", [BF16, F32], ids=str)
def test_rows_are_put_as_they_were_fetched_wherever_windows_begin(dtype: DType) -> None:
    """The middle one of three taps begins on a multiple of pieces, the others beside it: all are fetched alike."""
    agrees(convolution(True, dtype, 52, 24, 64, 3, 1, 1), rounding=dtype is F32)


def test_rounds_need_no_barrier_between_them() -> None:
    """One in front of each step's products, and none behind a round; behind all of them groups meet to store what they have set."""
    text = print_program(scheduled(gradient(BF16, 16, 3, 4).program, ONLY_TEAMS))
    assert text.count("sync(scope=group") == text.count("multiply") + text.count("// give_")
