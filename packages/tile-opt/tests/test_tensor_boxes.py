"""Second factors of float32 that tensor copies bring, and round: no kernel rounds them before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from cProfile import Profile
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
from tile_ir.dtype import DType
from tile_ir.emit.walker import walk_statements
from tile_ir.machine import LocalMemory
from tile_ir.matrix import MATRIX_INSTRUCTIONS
from tile_ir.semtree.nodes import For, TeamMma, TensorCopy
from tile_ir.stripe import parse_program, print_program
from tile_opt import compile
from tile_opt.kernel.instructions import matches
from tile_opt.passes.kernels.tensor_tile import TensorTile
from tile_opt.plan.plan import TF32, Across, Plan
from tile_opt.plan.space.tensor.tiles import tiles_of
from tile_opt.plan.steps.groups.banks import takes_copies
from tile_opt.plan.text import parse_plans, print_plans
from tile_opt.proof.run import prove
from tile_opt.translate import to_stripe

F32 = DType.FLOAT32
BOXES = replace(ONLY_TEAMS, nodes=ONLY_TEAMS.nodes | {"TensorCopy"})
MANY = BOXES.resolved(cores=132)


def boxed(sample: Sample, *, shared: bool = False) -> list[Plan]:
    """Plans by tensor copies of factors as they are, best first; those of which groups share the depth."""
    target = MANY if shared else BOXES
    plans = TensorTile().candidates(view_of(sample, target), target)
    return [
        p
        for p in plans
        if any(s.dtype == TF32 for s in p.stagings)
        and all(s.level >= 0 for s in p.stagings)
        and shared is any(r.across is Across.GROUPS for r in p.reductions)
    ]


def agrees(sample: Sample, plan: Plan) -> None:
    """The products are right, and one kernel does it all; no element lies between two that TF32 has."""
    inputs = {n: (x.view(np.uint32) | 1).view(np.float32) for n, x in inputs_of(sample.program).items()}
    stripe = optimize_given(sample, BOXES, print_plans({"kernel_0": plan}))
    assert len(list(kernels_of(stripe))) == 1
    found = run_kernels(stripe, BOXES, inputs)
    near(found.reshape(-1, found.shape[-1]), sample, inputs, tf32, 1e-6)
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
    assert {s.operand for s in plan.stagings if s.dtype} == {"nn": {"A"}, "nt": {"A", "B"}, "tt": {"B"}}[layout]
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


def test_copies_that_are_rounded_are_brought_by_pieces() -> None:
    """No tensor copies round them once more, which bring rows of images later."""
    plans = list(TensorTile().candidates(view_of(matmul("tn", F32, 64, 64, 64), BOXES), BOXES))
    both = [p for p in plans if sum(s.level < 0 for s in p.stagings) == 2]
    assert both and not any(s.dtype for p in both for s in p.stagings)


def test_a_matrix_is_both_factors() -> None:
    """Its rows, and its columns, are two boxes of one array."""
    source = "function (A[M, K]) -> (R) { R[i, j : M, M] = +(A[i, k] * A[j, k]); }"
    sample = Sample(bound(source, F32, A=(70, 72)), lambda x: (x["A"], x["A"].T))
    plan = boxed(sample)[0]
    assert [s.dtype for s in plan.stagings if s.level == 2] == [TF32]
    agrees(sample, plan)


def test_boxes_of_later_steps_start_in_front_of_the_last_products() -> None:
    """Where these go on while the next step starts."""
    target = replace(BOXES, machine=replace(BOXES.machine, local=LocalMemory(bytes=160 << 10)))
    sample = matmul("nt", F32, 128, 128, 1024)
    plan = next(
        p
        for p in TensorTile().candidates(view_of(sample, target), target)
        if {c.size for c in p.levels[0].covers} == {128} and all(s.level >= 0 for s in p.stagings)
    )
    (kernel,) = compile(sample.program, target, plans={"kernel_0": plan}).kernels.kernels
    assert kernel.function is not None
    loop = next(s for s in walk_statements(kernel.function.body) if isinstance(s, For))
    kinds = [type(s) for s in loop.body.body if isinstance(s, (TensorCopy, TeamMma))]
    assert kinds == [TeamMma] * 3 + [TensorCopy] * 2 + [TeamMma]


WINDOWS = """function (D[N, X, C], K[T, O, C]) -> (R) {
    R[n, x, o : N, Y, O] = +(D[n, STEP*x + t - 1, c] * K[t, o, c]);
}"""


@pytest.mark.parametrize(("step", "size"), [(1, 9), (2, 17)], ids=["dense", "every second"])
def test_windows_begin_before_the_tensor_and_go_beyond(step: int, size: int) -> None:
    """Two images in a box of three dimensions, where negative places are no places of the one before."""
    program = bound(WINDOWS.replace("STEP", str(step)).replace("Y", "9"), F32, D=(3, size, 40), K=(3, 64, 40))

    def operands(x: Mapping[str, Array]) -> tuple[Array, Array]:
        wide = np.pad(x["D"], ((0, 0), (1, 1), (0, 0)))
        rows = np.stack([wide[:, t : t + 8 * step + 1 : step] for t in range(3)], axis=2)
        return rows.reshape(27, -1), x["K"].transpose(0, 2, 1).reshape(-1, 64)

    sample = Sample(program, operands)
    plan = next(p for p in boxed(sample) if {"n", "x"} <= {c.loop for c in p.levels[0].covers if c.size > 1})
    agrees(sample, plan)


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


def test_items_copy_where_the_device_does_not() -> None:
    """Each its share, rounded with ties to even, of which the inputs have some."""
    sample = matmul("nt", F32, 70, 44, 100)
    plan, inputs = boxed(sample)[0], {n: ties(x) for n, x in inputs_of(sample.program).items()}
    made = (optimize_given(sample, target, print_plans({"kernel_0": plan})) for target in (BOXES, ONLY_TEAMS))
    by_copies, by_items = (run_kernels(s, t, inputs) for s, t in zip(made, (BOXES, ONLY_TEAMS), strict=True))
    assert np.array_equal(by_copies, by_items)


def ties(x: Array) -> Array:
    """Every element between two that TF32 has."""
    return (x.view(np.uint32) & np.uint32(0xFFFFE000) | np.uint32(0x1000)).view(np.float32)


@pytest.mark.parametrize(("depth", "tries"), [(61, False), (64, True)])
def test_rows_that_no_tensor_copy_brings_are_refused_before_tiles_are_made(depth: int, tries: bool) -> None:
    """Rows of 61 words begin where no 16 bytes do, whatever the tile: no copy of one is planned to find that out."""
    view = view_of(matmul("nt", F32, 256, 256, depth), BOXES)
    found = [
        m for name in BOXES.matrix for m in matches(view, MATRIX_INSTRUCTIONS[name]) if takes_copies(m.instruction)
    ]
    profile = Profile()
    tiles = profile.runcall(lambda: [t for m in found for t in tiles_of(view, m, BOXES, boxes=True) if t.may_be_built])
    copies = sum(e.callcount for e in profile.getstats() if getattr(e.code, "co_name", "") == "group_copy")
    assert found and bool(tiles) is bool(copies) is tries


@pytest.mark.parametrize(("boxes", "steps"), [(False, {24, 32}), (True, {32})])
def test_tensor_copies_bring_whole_panels(boxes: bool, steps: set[int]) -> None:
    """Steps of 24 leave less of 72 behind the end than those of 32."""
    view = view_of(matmul("nt", F32, 256, 256, 72), BOXES)
    found = [
        m for name in BOXES.matrix for m in matches(view, MATRIX_INSTRUCTIONS[name]) if takes_copies(m.instruction)
    ]
    assert {t.deep for m in found for t in tiles_of(view, m, BOXES, boxes=boxes)} == steps


def test_few_tiles_are_tried_before_the_best_is_known() -> None:
    """Whether a plan may be built takes longer to find out than how fast it would be."""
    view, profile = view_of(matmul("nt", F32, 512, 512, 64), BOXES), Profile()
    assert profile.runcall(lambda: next(TensorTile().candidates(view, BOXES))).instruction is not None
    called = Counter[str]()
    for entry in profile.getstats():
        called[getattr(entry.code, "co_name", "")] += entry.callcount
    assert 0 < 2 * called["problems"] < called["seconds"]


def test_equal_boxes_are_shared_out_between_items_once() -> None:
    """Tiles of other columns copy the same box of the rows."""
    view = view_of(matmul("nt", F32, 512, 512, 64), BOXES)
    plans, profile = list(TensorTile().candidates(view, BOXES)), Profile()
    again = profile.runcall(lambda: list(TensorTile().candidates(view, BOXES)))
    assert plans == again and len(plans) > 1
    assert "copy_plan" not in {getattr(e.code, "co_name", "") for e in profile.getstats()}
