"""Contractions by teams of sub-groups on copies of their factors: rounded, turned, or with rows filled up."""

from __future__ import annotations

import numpy as np
import pytest
from tensor_support import Sample, bound, inputs_of, matmul, near, optimize_given, run_kernels, tf32, view_of
from test_tensor_teams import TEAMS
from tile_ir.diagnostics import TileDeviceError, TilePlanError
from tile_ir.dtype import DType
from tile_ir.frozen import replace
from tile_ir.matrix import MATRIX_INSTRUCTIONS, ROUND
from tile_ir.stripe import interpret
from tile_ir.stripe.nodes import Block, Direction, Program
from tile_ir.stripe.parser import parse_program
from tile_ir.stripe.printer import print_program
from tile_ir.stripe.walk import blocks_in
from tile_opt.passes.base import kernels_of
from tile_opt.passes.kernels.tensor_tile import TensorTile
from tile_opt.plan.plan import Plan
from tile_opt.plan.text import print_plans
from tile_opt.translate import to_stripe

BF16, F32 = DType.BFLOAT16, DType.FLOAT32
ONLY_TEAMS = replace(TEAMS, matrix=tuple(n for n, i in MATRIX_INSTRUCTIONS.items() if i.team > 1))
"""So that small products go to them, too."""


def plan_for(sample: Sample) -> Plan:
    """The best plan with copies before the kernel."""
    found = TensorTile().candidates(view_of(sample, ONLY_TEAMS), ONLY_TEAMS)
    return next(plan for plan in found if any(s.level < 0 for s in plan.stagings))


def roundings(stripe: Program) -> int:
    """Blocks whose loads are rounded."""
    kernels = (k for k in kernels_of(stripe) if isinstance(k, Block))
    return sum(b.instr is not None and b.instr.name == ROUND for k in kernels for b in blocks_in(k))


def agrees(sample: Sample, copies: int) -> Program:
    """The products of so many copies are right on both interpreters, rounded on the one that rounds."""
    inputs = inputs_of(sample.program)
    stripe = optimize_given(sample, ONLY_TEAMS, print_plans({"kernel_0": plan_for(sample)}))
    assert len(list(kernels_of(stripe))) == copies + 1
    (name,) = stripe.outputs
    for program in (to_stripe(sample.program), stripe):
        near(interpret.run(program, inputs)[name], sample, inputs, lambda x: x.astype(np.float64), 1e-6)
    near(run_kernels(stripe, ONLY_TEAMS, inputs), sample, inputs, tf32, 1e-6)
    text = print_program(stripe)
    assert print_program(parse_program(text)) == text
    return stripe


def test_float32_is_rounded_and_turned_before() -> None:
    assert roundings(agrees(matmul("tn", F32, 60, 32, 36), 2)) >= 2


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_rows_of_copies_run_along_the_depth(layout: str) -> None:
    plan = plan_for(matmul(layout, F32, 70, 40, 68))
    assert plan.instruction is not None and plan.instruction.name.endswith("k8_tf32")
    assert {s.operand: s.order[-1] for s in plan.stagings if s.level < 0} == {"A": "k", "B": "k"}


@pytest.mark.parametrize(("k", "last", "copies"), [(40, "k", 1), (33, "j", 2)])
def test_rows_of_16_bits_are_filled_up(k: int, last: str, copies: int) -> None:
    """Along the depth where that leaves whole chunks, else along the other side, whose surplus reaches no result."""
    sample = matmul("nn", BF16, 64, 37, k)
    assert not roundings(agrees(sample, copies))
    assert [s.order[-1] for s in plan_for(sample).stagings if s.operand == "B" and s.level < 0] == [last]


def test_windows_slide_along_the_copies() -> None:
    source = "function (D[X, C], K[T, C, O]) -> (R) { R[x, o : 64, O] = +(D[x + t - 1, c] * K[t, c, o]); }"

    def operands(x: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:  # pyright: ignore[reportMissingTypeArgument]
        padded = np.pad(x["D"], ((1, 1), (0, 0)))
        taps = np.stack([padded[t : t + 64] for t in range(3)], axis=1)
        return taps.reshape(64, -1), x["K"].reshape(-1, 32)

    sample = Sample(bound(source, F32, D=(64, 32), K=(3, 32, 32)), operands)  # pyright: ignore[reportArgumentType]
    stripe = agrees(sample, 2)
    copies = [k for k in kernels_of(stripe) if isinstance(k, Block)][:2]
    assert [r.type.sizes for k in copies for r in k.refs if r.dir is Direction.OUT] == [(64, 32), (3, 32, 32)]


def test_a_plan_without_copies_is_refused() -> None:
    sample = matmul("nt", F32, 64, 32, 64)
    plan = plan_for(sample)
    bare = replace(plan, stagings=tuple(s for s in plan.stagings if s.unit == "LOCAL"))
    with pytest.raises((TilePlanError, TileDeviceError), match="rounded before"):
        optimize_given(sample, ONLY_TEAMS, print_plans({"kernel_0": bare}))


def test_products_that_copies_do_not_pay_for_keep_single_sub_groups() -> None:
    small, large = matmul("nn", F32, 128, 128, 64), matmul("nn", F32, 4096, 4096, 4096)
    first = [next(TensorTile().candidates(view_of(s, TEAMS), TEAMS)).instruction for s in (small, large)]
    assert [MATRIX_INSTRUCTIONS[i.name].team for i in first if i] == [1, 4]
