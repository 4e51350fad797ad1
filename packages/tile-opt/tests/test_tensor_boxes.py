"""Second factors of float32 that tensor copies bring, and round: no kernel rounds them before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from tensor_support import (
    Array,
    Sample,
    bound,
    inputs_of,
    kernels_of,
    matmul,
    near,
    optimize_given,
    run_kernels,
    tf32,
    view_of,
)
from test_tensor_copied import ONLY_TEAMS
from tile_ir.diagnostics import TilePlanError
from tile_ir.dtype import DType
from tile_ir.emit.walker import walk_statements
from tile_ir.semtree.nodes import TensorCopy
from tile_ir.stripe import parse_program, print_program
from tile_opt import compile
from tile_opt.passes.kernels.tensor_tile import TensorTile
from tile_opt.plan.plan import TF32, Across, Plan
from tile_opt.plan.text import parse_plans, print_plans
from tile_opt.proof.run import prove
from tile_opt.translate import to_stripe

F32 = DType.FLOAT32
BOXES = replace(ONLY_TEAMS, nodes=ONLY_TEAMS.nodes | {"TensorCopy"})
MANY = BOXES.resolved(cores=132)


def boxed(sample: Sample, *, shared: bool = False) -> list[Plan]:
    """Plans by tensor copies, best first; those of which groups share the depth."""
    target = MANY if shared else BOXES
    plans = TensorTile().candidates(view_of(sample, target), target)
    return [
        p
        for p in plans
        if any(s.dtype == TF32 for s in p.stagings) and shared is any(r.across is Across.GROUPS for r in p.reductions)
    ]


def agrees(sample: Sample, plan: Plan) -> None:
    """The products are right, and one kernel does it all; no element lies between two that TF32 has."""
    inputs = {n: (x.view(np.uint32) | 1).view(np.float32) for n, x in inputs_of(sample.program).items()}
    stripe = optimize_given(sample, BOXES, print_plans({"kernel_0": plan}))
    assert len(list(kernels_of(stripe))) == 1
    near(run_kernels(stripe, BOXES, inputs), sample, inputs, tf32, 1e-6)
    text = print_program(stripe)
    assert print_program(parse_program(text)) == text


@pytest.mark.parametrize(
    ("layout", "m", "n", "k"),
    [("nn", 64, 64, 64), ("nt", 70, 44, 100), ("tt", 72, 40, 136)],
    ids=["whole", "edges", "steps"],
)
def test_boxes_bring_a_factor_that_lies_along_the_depth(layout: str, m: int, n: int, k: int) -> None:
    """Behind the ends of the tensor they bring zeros."""
    sample = matmul(layout, F32, m, n, k)
    plan = boxed(sample)[0]
    (staging,) = (s for s in plan.stagings if s.dtype)
    assert staging.operand == ("B" if layout == "tt" else "A") or layout == "nt"
    assert parse_plans(print_plans({"kernel_0": plan}))["kernel_0"] == plan
    agrees(sample, plan)


def test_the_text_of_the_copies() -> None:
    """A box a step, at the group's first row and the step's first column."""
    sample = matmul("nn", F32, 128, 64, 200)
    (kernel,) = compile(sample.program, BOXES, plans={"kernel_0": boxed(sample)[0]}).kernels.kernels
    assert kernel.function is not None
    copies = [s for s in walk_statements(kernel.function.body) if isinstance(s, TensorCopy)]
    assert copies and {(s.sizes, s.strides, s.box[1]) for s in copies} == {((128, 200), (200, 1), 32)}


def test_windows_slide_over_boxes() -> None:
    """A loop goes around the steps: what is copied for its next round is so where there is one."""
    source = "function (D[X, C], K[T, C, O]) -> (R) { R[x, o : 70, O] = +(D[x + t, c] * K[t, c, o]); }"

    def operands(x: Mapping[str, Array]) -> tuple[Array, Array]:
        return np.stack([x["D"][t : t + 70] for t in range(3)], axis=1).reshape(70, -1), x["K"].reshape(-1, 64)

    sample = Sample(bound(source, F32, D=(72, 64), K=(3, 64, 64)), operands)
    agrees(sample, next(p for p in boxed(sample) if any(s.dtype and s.operand == "D" for s in p.stagings)))


def test_schedules_with_boxes_are_proved() -> None:
    """In Stripe each item copies its share, and zeros for what is outside."""
    sample = matmul("nn", F32, 70, 40, 72)
    initial = to_stripe(sample.program)
    stripe = optimize_given(sample, BOXES, print_plans({"kernel_0": boxed(sample)[0]}))
    assert prove(initial, stripe, seconds=60).proved


def test_shares_end_with_the_tensor() -> None:
    plans = boxed(matmul("nn", F32, 32, 32, 4096), shared=True)
    assert plans and all(s.level >= 0 for s in plans[0].stagings)


@pytest.mark.parametrize(
    ("layout", "m", "n", "k"), [("tn", 64, 64, 64), ("nn", 64, 64, 66)], ids=["rows across", "rows of no 16 bytes"]
)
def test_others_are_rounded_before(layout: str, m: int, n: int, k: int) -> None:
    assert not boxed(matmul(layout, F32, m, n, k))


def test_a_device_without_them_refuses() -> None:
    sample = matmul("nn", F32, 64, 64, 64)
    with pytest.raises(TilePlanError, match="has no tensor copies"):
        optimize_given(sample, ONLY_TEAMS, print_plans({"kernel_0": boxed(sample)[0]}))
