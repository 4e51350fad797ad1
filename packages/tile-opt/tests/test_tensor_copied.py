"""Contractions by teams of sub-groups on copies of their factors: rounded, turned, or with rows filled up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tensor_support import Array, Sample, bound, inputs_of, matmul, near, optimize_given, run_kernels, tf32, view_of
from test_tensor_teams import TEAMS
from tile_ir.diagnostics import TileDeviceError, TilePlanError
from tile_ir.dtype import DType
from tile_ir.frozen import replace
from tile_ir.machine import LocalMemory
from tile_ir.matrix import MATRIX_INSTRUCTIONS, ROUND, TF32_BITS
from tile_ir.semtree.nodes import PRODUCTS
from tile_ir.stripe.nodes import Block, Direction, Program, Wait
from tile_ir.stripe.parser import parse_program
from tile_ir.stripe.printer import print_program
from tile_ir.stripe.walk import blocks_in
from tile_ir.target import Target
from tile_opt.compiler import compile
from tile_opt.passes.base import kernels_of
from tile_opt.passes.kernels.tensor_tile import TensorTile
from tile_opt.pipeline import schedule
from tile_opt.plan.panels import copied_before
from tile_opt.plan.plan import Plan
from tile_opt.plan.space.gpu.copied import copy_seconds
from tile_opt.plan.text import print_plans
from tile_opt.program import ConvertOnce, rewrite
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


def rounding_as_they_read(sample: Sample, target: Target) -> Iterator[Plan]:
    """Plans whose items round what they read of the first factor."""
    plans = TensorTile().candidates(view_of(sample, target), target)
    return (plan for plan in plans if any(s.unit == "REG" and s.level == 3 for s in plan.stagings))


def agrees(sample: Sample, copies: int, plan: Plan | None = None, target: Target = ONLY_TEAMS) -> Program:
    """The products of so many copies are right."""
    inputs = inputs_of(sample.program)
    stripe = optimize_given(sample, target, print_plans({"kernel_0": plan or plan_for(sample)}))
    assert len(list(kernels_of(stripe))) == copies + 1
    near(run_kernels(stripe, target, inputs), sample, inputs, tf32, 1e-6)
    text = print_program(stripe)
    assert print_program(parse_program(text)) == text
    return stripe


def test_float32_is_rounded_and_turned_before() -> None:
    sample = matmul("tn", F32, 60, 32, 36)
    plans = TensorTile().candidates(view_of(sample, ONLY_TEAMS), ONLY_TEAMS)
    both = next(plan for plan in plans if sum(s.level < 0 for s in plan.stagings) == 2)
    assert roundings(agrees(sample, 2, both)) >= 2


@pytest.mark.diagonal(2)
@pytest.mark.parametrize("k", [68, 164])
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_the_first_factor_is_rounded_by_the_items_that_read_it(layout: str, k: int) -> None:
    """The second one by a copy, whose rows run along the depth; those of the first one run as they do in memory."""
    sample = matmul(layout, F32, 70, 40, k)
    plan = next(rounding_as_they_read(sample, ONLY_TEAMS))
    assert plan.instruction is not None and plan.instruction.name.endswith("k8_tf32")
    (copied,) = (s for s in plan.stagings if s.level < 0)
    (held,) = (s for s in plan.stagings if s.unit == "REG")
    assert (copied.order[-1], held.level, {copied.operand, held.operand}) == ("k", 3, {"A", "B"})
    products = [b.instr for b in blocks_in(agrees(sample, 1, plan).entry) if b.instr is not None and b.instr.sizes]
    assert products and all(i.params == (TF32_BITS,) for i in products)


def test_rows_of_half_a_team_go_on_in_the_panel_of_another_loop() -> None:
    """32 float32 channels are a panel: those of the next tap are the other half of the team's rows."""
    source = "function (D[X, Y, C], E[X, Z, O]) -> (R) { R[v, c, o : 3, C, O] = +(D[x, z + v, c] * E[x, z, o]); }"

    def operands(x: Mapping[str, Array]) -> tuple[Array, Array]:
        taps = [x["D"][:, v : v + 2].reshape(-1, 32).T for v in range(3)]
        return np.stack(taps), x["E"].reshape(-1, 32)

    sample = Sample(bound(source, F32, D=(32, 4, 32), E=(32, 2, 32)), operands)
    plans = rounding_as_they_read(sample, ONLY_TEAMS)
    agrees(sample, 1, next(p for p in plans if p.tile("v", 0, 3) > 1 and p.tile("c", 0, 32) == 32))


def test_rows_of_bytes_end_with_zeros_that_are_bytes() -> None:
    source = "function (A[M, K], B[N, K]) -> (R) { P = as_int(A, 32); Q = as_int(B, 32); R[i, j : M, N] = +(P[i, k] * Q[j, k]); }"
    converted = rewrite(bound(source, DType.INT8, A=(33, 20), B=(32, 20)), (ConvertOnce(uses=1 << 62, alike=True),))
    sample = Sample(converted, lambda x: (x["A"], x["B"].T))
    inputs = {n: np.random.default_rng(0).integers(-128, 128, (m, 20), np.int8) for n, m in {"A": 33, "B": 32}.items()}
    stripe = optimize_given(sample, ONLY_TEAMS, print_plans({"kernel_0": plan_for(sample)}))
    assert "// behind" in print_program(stripe)
    want = inputs["A"].astype(np.int32) @ inputs["B"].astype(np.int32).T
    np.testing.assert_array_equal(run_kernels(stripe, ONLY_TEAMS, inputs), want)


def test_columns_that_are_no_whole_panels_are_turned_before() -> None:
    """160 of 16 bits are two panels and a half, in which neighbours cannot lie; rows along the depth are whole ones."""
    source = "function (D[X, C], K[T, C, O]) -> (R) { R[x, o : 33, O] = +(D[x + t, c] * K[t, c, o]); }"

    def operands(x: Mapping[str, Array]) -> tuple[Array, Array]:
        return np.stack([x["D"][t : t + 33] for t in range(2)], axis=1).reshape(33, -1), x["K"].reshape(-1, 160)

    sample, name = Sample(bound(source, BF16, D=(34, 16), K=(2, 16, 160)), operands), "wgmma_m64n160k16_bf16"
    found = TensorTile().candidates(view_of(sample, ONLY_TEAMS), ONLY_TEAMS)
    wide = [p for p in found if p.instruction is not None and p.instruction.name == name]
    copied = [p for p in wide if any(s.level < 0 for s in p.stagings)]
    assert {(s.operand, s.order[-1]) for p in copied for s in p.stagings if s.level < 0} == {("K", "c")}
    assert all(s.unit != "LOCAL" or s.order[-1] == "c" for p in wide for s in p.stagings if s.operand == "K")
    agrees(sample, 1, copied[0])


def test_two_steps_in_turn_have_registers_that_products_go_on_reading() -> None:
    """One would write what those of the step before still read."""
    local = replace(ONLY_TEAMS.machine.local or LocalMemory(), bytes=228 << 10)
    target = replace(ONLY_TEAMS, machine=replace(ONLY_TEAMS.machine, local=local))
    sample = matmul("tn", F32, 128, 128, 384)
    large = (p for p in rounding_as_they_read(sample, target) if prod(p.tile(n, 0, 128) for n in "ij") == 128 * 128)
    blocks = list(blocks_in(agrees(sample, 1, next(large), target).entry))
    (steps,) = (b for b in blocks if b.name.endswith("_steps"))
    inside = [b for b in steps.body if isinstance(b, Block)]
    # Copies start in front of the last product of each.
    assert [b.name for b in inside] == ["multiply", "copy_A", "copy_B", "multiply"] * 2
    assert [i.range for b in inside[:4] for i in b.indexes if i.name == "k_i_t" and i.range > 1] == [3]
    assert [w.pending for w in steps.body if isinstance(w, Wait) and w.group == PRODUCTS] == [1, 1]


@pytest.mark.parametrize(("k", "last", "copies"), [(40, "k", 1), (33, "j", 2)])
def test_rows_of_16_bits_are_filled_up(k: int, last: str, copies: int) -> None:
    """Along the depth where that leaves whole chunks, else along the other side, whose surplus reaches no result."""
    sample = matmul("nn", BF16, 64, 37, k)
    assert not roundings(agrees(sample, copies))
    assert [s.order[-1] for s in plan_for(sample).stagings if s.operand == "B" and s.level < 0] == [last]


def convolution(
    first: bool, dtype: DType, size: int, ci: int, co: int, taps: int, stride: int, dilation: int
) -> Sample:
    """Windows of one dimension, "same" but for every `stride`-th place alone; channels `first` or last."""
    pad, places = dilation * (taps - 1) // 2, -(-size // stride)
    at = f"{stride}*x + {dilation}*t - {pad}"
    head, body = ("D[C, X], K[O, C, T]", "R[o, x : O, {n}] = +(D[c, {at}] * K[o, c, t]);") if first else (
        "D[X, C], K[T, C, O]", "R[x, o : {n}, O] = +(D[{at}, c] * K[t, c, o]);")  # fmt: skip
    source = f"function ({head}) -> (R) {{ {body.format(n=places, at=at)} }}"
    shapes = {"D": (ci, size), "K": (co, ci, taps)} if first else {"D": (size, ci), "K": (taps, ci, co)}

    def operands(x: Mapping[str, Array]) -> tuple[Array, Array]:
        data, weights = (x["D"].T, x["K"].transpose(2, 1, 0)) if first else (x["D"], x["K"])
        padded = np.pad(data, ((pad, pad + stride), (0, 0)))
        windows = [padded[t * dilation :][: places * stride : stride] for t in range(taps)]
        left, right = np.stack(windows, axis=1).reshape(places, -1), weights.reshape(-1, co)
        return (right.T, left.T) if first else (left, right)

    return Sample(bound(source, dtype, **shapes), operands)


def test_windows_slide_along_the_copies() -> None:
    stripe = agrees(convolution(False, F32, 64, 32, 32, 3, 1, 1), 2)
    copy = next(k for k in kernels_of(stripe) if isinstance(k, Block))
    assert [prod(r.type.sizes) for r in copy.refs if r.dir is Direction.OUT] in ([64 * 32], [3 * 32 * 32])


@pytest.mark.parametrize(
    ("dtype", "channels", "stride", "copies"),
    [(BF16, 32, 2, {"D": 0, "K": 0}), (BF16, 37, 1, {"D": 27, "K": 0}), (F32, 33, 1, {"D": 31, "K": 31})],
    ids=["skipped", "no whole pieces", "rounded"],
)
def test_windows_of_rows_without_pieces_are_turned(
    dtype: DType, channels: int, stride: int, copies: dict[str, int]
) -> None:
    """Neighbours along windows begin anywhere, so that rows of the copy are those of channels: whole lines, with zeros behind them."""
    sample = convolution(True, dtype, 64 * stride, channels, 64, 3, stride, 1)
    stripe = agrees(sample, 2)
    staged = {s.operand: s for s in plan_for(sample).stagings if s.level < 0}
    assert staged["D"].order[-1] == "c" and {n: s.pad for n, s in staged.items()} == copies
    cleared = [b for k in kernels_of(stripe) if isinstance(k, Block) for b in blocks_in(k) if b.name == "behind"]
    assert len(cleared) == sum(s.order[-1] == "c" and s.pad > 0 for s in staged.values())


def test_zeros_behind_the_depth_are_proved_to_add_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILE_VERIFY", "prove")
    sample = convolution(False, BF16, 64, 37, 40, 3, 1, 1)
    found = compile(sample.program, ONLY_TEAMS, plans={"kernel_0": plan_for(sample)})
    assert found.proof is not None and "3 proved" in str(found.proof)


@given(
    first=st.booleans(), dtype=st.sampled_from([BF16, DType.FLOAT16, F32]), size=st.integers(150, 700),
    ci=st.integers(16, 300), co=st.integers(32, 300), taps=st.sampled_from([1, 3, 7]), stride=st.integers(1, 3),
    dilation=st.integers(1, 2),
)  # fmt: skip
@settings(max_examples=12)
def test_teams_take_every_convolution_of_many_channels(
    first: bool, dtype: DType, size: int, ci: int, co: int, taps: int, stride: int, dilation: int
) -> None:
    """Whatever the layout, the dtype, the step and the sizes, no shape is left to arithmetic of items."""
    sample = convolution(first, dtype, size, ci, co, taps, stride, dilation)
    assert any(True for _ in TensorTile().candidates(view_of(sample, ONLY_TEAMS), ONLY_TEAMS))


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


def test_both_gradients_read_one_copy() -> None:
    """Of rows that begin anywhere; it counts once, so that the second one takes it even where another one would do better."""
    source = """function (D[N, C, X], K[O, C, U], G[N, O, X]) -> (A, B) {
        A[n, c, x + u - 1 : N, C, X] = +(G[n, o, x] * K[o, c, u]);
        B[o, c, u : O, C, U] = +(G[n, o, x] * D[n, c, x + u - 1]);
    }"""
    program = bound(source, BF16, D=(4, 64, 37), K=(64, 64, 3), G=(4, 64, 37))
    made = schedule(to_stripe(program), ONLY_TEAMS)
    copied = [str(d.view.comment).split()[3] for d in made.decisions.values() if "panels of" in d.view.comment]
    assert sorted(copied) == ["D,", "G,", "K,"]
    second = made.decisions["kernel_1"]
    _, _, panels = copied_before(second.view, second.plan)
    counted = {p.operand.buffer: copy_seconds(second.view, (p,), ONLY_TEAMS.machine) > 0 for p in panels}
    assert counted == {"D": True, "G": False}
