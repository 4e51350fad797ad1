"""Chains along which groups walk: one kernel, the same results, for any aggregation, size and edge; and where they do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from lowering_support import check, random_inputs
from test_group_chains import POINTWISE
from test_item_chains import BLUR, TWICE, stripe_of, target
from tile_ir.dtype import DType
from tile_ir.frozen import replace
from tile_ir.stripe import interpret
from tile_ir.stripe.nodes import Bind, Block, Direction, Program
from tile_ir.stripe.walk import blocks_in
from tile_ir.target import Target
from tile_opt.blocks.tree import kernels_of
from tile_opt.passes.kernels import item_chains
from tile_opt.pipeline import schedule
from tile_opt.plan.plan import Plan
from tile_opt.plan.text import parse_plans, print_plans

LARGEST = """function (A[H, W], K[T]) -> (O) {
    P[y, x : H, W] = >(A[y, x + t - HALF] * K[t]);
    O[y, x : H, W] = >(P[y + t - HALF, x] + K[t]);
}"""

BESIDE = """function (A[H, W], B[H, W], K[T]) -> (O) {
    P[y, x : H, W] = +(A[y, x + t - HALF] * K[t]);
    Q[y, x : H, W] = >(B[y, x + t - 1]), t < 3;
    R = P + Q;
    O[y, x : H, W] = +(R[y + t - HALF, x] * K[t]);
}"""
"""Two parts that a third one takes in the same step."""

NORMS = """function (A[N, C, H, W]) -> (O) {
    S[n, k, h, w : N, 1, H, W] = +(A[n, c, h, w]), k < 1;
    D = A - S / 3.0;
    Q = D * D;
    V[n, k, h, w : N, 1, H, W] = +(Q[n, c, h, w]), k < 1;
    O = D / sqrt(V / 3.0 + 0.00001);
}"""


def copying(local: int = 49152, cores: int = 132) -> Target:
    """A device that copies into so many bytes of local memory while it computes."""
    plain = target()
    settings = replace(plain.settings, max_mem=local, threads=256)
    machine = replace(plain.machine, cores=cores)
    return replace(plain, settings=settings, machine=machine, nodes=plain.nodes | {"AsyncCopy", "AsyncWait"})


@pytest.fixture
def small_strips(monkeypatch: pytest.MonkeyPatch) -> None:
    """Strips that small pictures have several of, and nothing else."""
    monkeypatch.setattr(item_chains, "RUNS", ())
    monkeypatch.setattr(item_chains, "WIDE", ())
    monkeypatch.setattr(item_chains, "STRIP", 16)
    monkeypatch.setattr(item_chains, "TURNS", (4,))


def scheduled(
    source: str, dtype: DType, height: int, width: int, taps: int, on: Target
) -> tuple[Program, Program, Plan]:
    pictures = {name: (height, width) for name in "AB" if f"{name}[" in source}
    stripe = stripe_of(source.replace("HALF", str(taps // 2)), dtype, **pictures, K=(taps,))
    made = schedule(stripe, on, verify=True)
    return stripe, made.program, next(iter(made.decisions.values())).plan


def walks(plan: Plan) -> bool:
    return any(level.ordered for level in plan.levels)


def names(program: Program) -> set[str]:
    return {b.name for k in kernels_of(program) if isinstance(k, Block) for b in blocks_in(k)}


@pytest.mark.usefixtures("small_strips")
@pytest.mark.parametrize(
    ("source", "dtype"),
    [
        (BLUR, DType.FLOAT32),
        (BLUR, DType.FLOAT16),
        (LARGEST, DType.INT32),
        (POINTWISE, DType.FLOAT32),
        (BESIDE, DType.FLOAT32),
    ],
)
@pytest.mark.parametrize(("height", "width", "taps"), [(60, 24, 3), (61, 19, 5)])
def test_groups_walk_along_strips(source: str, dtype: DType, height: int, width: int, taps: int) -> None:
    """Whole vectors, and rows that are none: their results meet in local memory."""
    whole = width % 8 == 0
    on = copying({DType.FLOAT16: 900}.get(dtype, 3200 if source is BESIDE else 1500), cores=1)
    width = width // 2 * 2 if dtype is DType.FLOAT16 else width
    stripe, made, plan = scheduled(source, dtype, height, width, taps, on)
    assert walks(plan) and len(list(kernels_of(made))) == 1
    assert ("give_results" in names(made)) is not whole
    inputs = {name: np.rint(value).astype(value.dtype) for name, value in random_inputs(stripe).items()}
    expected = interpret.run(stripe, inputs)
    if dtype is DType.FLOAT16:
        for name, value in expected.items():
            np.testing.assert_allclose(interpret.run(made, inputs)[name], value, rtol=2e-2)
    else:
        check(made, inputs, on, expected=expected)


@pytest.mark.usefixtures("small_strips")
def test_what_lies_beyond_the_edges_is_not_multiplied() -> None:
    """Zeros that are copied in its place would be NaN times infinity."""
    stripe, made, plan = scheduled(BLUR, DType.FLOAT32, 45, 22, 5, copying(1500, cores=1))
    assert walks(plan)
    inputs: dict[str, Any] = random_inputs(stripe)
    inputs = {name: np.abs(value) + 1 for name, value in inputs.items()}
    inputs["K"][0], inputs["A"][7, 9] = np.inf, np.nan
    expected = interpret.run(stripe, inputs)["O"]
    np.testing.assert_allclose(interpret.run(made, inputs)["O"], expected, rtol=1e-5)
    assert np.isfinite(expected[:2, :2]).all()


@pytest.mark.parametrize(("taps", "walked"), [(5, False), (15, True), (25, True), (31, False)])
def test_long_windows_are_walked_along(taps: int, walked: bool) -> None:
    """As far as an item has registers for what it keeps."""
    _, made, plan = scheduled(BLUR, DType.FLOAT32, 4096, 4096, taps, copying())
    assert walks(plan) is walked
    if walked:  # nor do loops subscript registers, which would make memory of them
        blocks = (b for k in kernels_of(made) if isinstance(k, Block) for b in blocks_in(k))
        loops = {i.name for b in blocks for i in b.indexes if i.bind is Bind.NONE and i.range > 1}
        assert loops == {"step"}


@pytest.mark.usefixtures("small_strips")
def test_half_a_vector_of_narrow_results_is_stored_at_once() -> None:
    """Items have as many cells as a vector has sums."""
    _, made, _ = scheduled(BLUR, DType.FLOAT16, 60, 24, 5, copying(900, cores=1))
    blocks = (b for k in kernels_of(made) if isinstance(k, Block) for b in blocks_in(k))
    stored = [b for b in blocks if any(r.dir is Direction.OUT and r.type.dtype is DType.FLOAT16 for r in b.refs)]
    assert any(i.bind is Bind.VECTOR and i.lanes == 4 for b in stored for i in b.indexes)


def test_only_where_copies_run_beside_and_nobody_needs_what_others_keep() -> None:
    waiting = replace(copying(), nodes=target().nodes)
    for source, on in ((BLUR, waiting), (TWICE, copying())):
        stripe = stripe_of(source.replace("HALF", "7"), DType.FLOAT32, A=(4096, 4096), K=(15,))
        assert not any(walks(d.plan) for d in schedule(stripe, on).decisions.values())


@pytest.mark.usefixtures("small_strips")
def test_rows_that_are_shorter_than_a_vector_are_a_vector_in_local_memory() -> None:
    source = BLUR.replace("[y, x : H, W] = +(A", "[y, x : H, W - 1] = +(A")
    stripe, made, _ = scheduled(source, DType.UINT8, 33, 8, 7, copying(900, cores=1))
    blocks = [b for k in kernels_of(made) if isinstance(k, Block) for b in blocks_in(k)]
    assert {r.type.sizes[-1] for b in blocks for r in b.refs if r.into == "P" and r.dir is Direction.ALLOC} == {16}
    inputs: dict[str, Any] = random_inputs(stripe)
    np.testing.assert_array_equal(interpret.run(made, inputs)["O"], interpret.run(stripe, inputs)["O"])


@pytest.mark.usefixtures("small_strips")
def test_the_plan_is_text_that_builds_the_same_kernel() -> None:
    stripe, made, plan = scheduled(BLUR, DType.FLOAT32, 45, 19, 5, copying(1500, cores=1))
    text = print_plans({"kernel_1": plan})
    assert "ordered serial y:4 y_1:4" in text and "stage A in LOCAL by group versions 3" in text
    again = schedule(stripe, copying(1500, cores=1), plans=parse_plans(text), verify=True)
    assert again.program == made


def test_chains_whose_parts_lie_otherwise_are_left_alone() -> None:
    """A short row on which all parts seem to walk: who reads a sum has not the cells of who made it."""
    on = copying()
    caches = tuple(replace(c, bytes=60 << 20, shared=132, merged=0.5) if c.level == 2 else c for c in on.machine.caches)
    on = replace(on, machine=replace(on.machine, caches=caches))
    stripe = stripe_of(NORMS, DType.FLOAT32, A=(197, 3, 96, 127))
    assert not any(walks(d.plan) for d in schedule(stripe, on).decisions.values())
