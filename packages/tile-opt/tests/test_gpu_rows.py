"""Kernels that memory bounds, on groups of items: same results whatever the shape, plans that print, read and check."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import pytest
import tile_lang
from explain_support import FRONT, GPU
from hypothesis import given, settings
from hypothesis import strategies as st
from lowering_support import check, random_inputs
from tile_ir.diagnostics import Source
from tile_ir.dtype import DType
from tile_ir.machine import LocalMemory
from tile_ir.program.nodes import TensorType
from tile_ir.semtree.printer import print_function
from tile_ir.stripe import interpret
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Bind, Block, Direction, Index, Program
from tile_ir.stripe.walk import blocks_in
from tile_ir.target import PassConfig, Target
from tile_opt.blocks.tree import kernels_of
from tile_opt.kernel.view import KernelView, open_kernel
from tile_opt.passes.kernels.gpu_tile import GpuTile
from tile_opt.pipeline import optimize
from tile_opt.plan.check import PlanCheck
from tile_opt.plan.plan import Cover, Level, Plan
from tile_opt.plan.space.gpu.rows import KEPT
from tile_opt.plan.steps.digits import lanes_agree, split
from tile_opt.plan.text import parse_plans, print_plans
from tile_opt.translate import to_stripe

BEFORE = (PassConfig("scan"), *FRONT)
SIZES = st.sampled_from([1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 31, 32, 33, 40])
DTYPES = st.sampled_from([DType.FLOAT32, DType.FLOAT32, DType.FLOAT16, DType.INT16, DType.UINT8, DType.FLOAT64])


def target(threads: int = 32, cores: int = 2, max_mem: int = 16384) -> Target:
    hardware = replace(GPU.settings, threads=threads, cores=cores, max_mem=max_mem)
    machine = replace(GPU.machine, local=LocalMemory(), cores=132)
    return replace(GPU, settings=hardware, machine=machine, passes=(*BEFORE, PassConfig("gpu_tile")))


def stripe_of(source: str, dtype: DType = DType.FLOAT32, **shapes: tuple[int, ...]) -> Program:
    function = tile_lang.parse(Source(source, "sample.tile"))
    return to_stripe(tile_lang.bind(function, {n: TensorType(dtype, s) for n, s in shapes.items()}))


def agree(stripe: Program, on: Target, sign: int = 0) -> None:
    """The scheduled program's kernels against the unscheduled one; with a sign all inputs have it."""
    scheduled = optimize(stripe, on, verify=True)
    # Whole numbers: sums in another order have the same value.
    inputs = {name: np.rint(value).astype(value.dtype) for name, value in random_inputs(stripe).items()}
    if sign:
        inputs = {name: (sign * (np.abs(value) + 1)).astype(value.dtype) for name, value in inputs.items()}
    expected = interpret.run(stripe, inputs)
    if not any(v.dtype == np.float16 for v in expected.values()):
        check(scheduled, inputs, on, expected=expected)
        return
    got = interpret.run(scheduled, inputs)
    for name, value in expected.items():
        np.testing.assert_allclose(got[name], value, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("columns", [5, 32, 64])
@pytest.mark.parametrize("cell", ["i, M - 1 - j", "i, j - 1", "i, 0"])
def test_items_do_not_share_rows_of_results_that_others_read(cell: str, columns: int) -> None:
    """Nothing makes an item wait for what another one stores to a kernel's result."""
    source = f"function (A[N, M]) -> (X, O) {{ X = A + 1.0; O[i, j : N, M] = =(X[{cell}]); }}"
    agree(stripe_of(source, A=(3, columns)), target())


@pytest.mark.parametrize("threads", [2, 32])
@pytest.mark.parametrize("agg", "=+>")
def test_items_wait_for_what_one_of_them_scatters(agg: str, threads: int) -> None:
    """All subscripts but the data are 0, of what is stored and of what is loaded."""
    body = f"P = V + 1.0; S[I[i] : 8] = {agg}(P[i]); T[i : N] = =(S[I[i]]); O = T - P;"
    front = tile_lang.parse(Source(f"function (V[N], I[N]) -> (O) {{ {body} }}", "sample.tile"))
    types = {"V": TensorType(DType.FLOAT32, (2,)), "I": TensorType(DType.INT32, (2,))}
    agree(to_stripe(tile_lang.bind(front, types)), target(threads))


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Reductions over any axes, row operations along any axis, permutations, windows, chains with broadcasts."""
    rank = draw(st.integers(1, 4))
    shape = tuple(draw(SIZES) for _ in range(rank))
    while np.prod(shape) > 1500:
        shape = tuple(max(1, n // 2) for n in shape)
    names, loops = [f"N{k}" for k in range(rank)], [f"i{k}" for k in range(rank)]
    sizes, everywhere = ", ".join(names), ", ".join(loops)
    kind = draw(st.sampled_from(["reduce", "normalise", "statistics", "permute", "window", "chain", "scan"]))
    dtype = draw(DTYPES) if kind not in ("normalise", "statistics", "scan") else DType.FLOAT32
    outputs = "R"
    match kind:
        case "reduce":
            kept = [k for k in range(rank) if draw(st.booleans())]
            cells = f"[{', '.join(loops[k] for k in kept)}" + (
                f" : {', '.join(names[k] for k in kept)}]" if kept else "]"
            )
            body = f"R{cells} = {draw(st.sampled_from('+><'))}(X[{everywhere}]);"
        case "normalise":
            axis = draw(st.integers(0, rank - 1))
            cell = ", ".join("z" if k == axis else n for k, n in enumerate(loops))
            cells = ", ".join("1" if k == axis else n for k, n in enumerate(names))
            body = (
                f"M[{cell} : {cells}] = >(X[{everywhere}]), z < 1; E = exp(X - M);"
                f" S[{cell} : {cells}] = +(E[{everywhere}]), z < 1; R = E / S;"
            )
        case "statistics":
            over = [k for k in range(rank) if draw(st.booleans())]
            first, within = (_kept(loops, names, axes) for axes in (over, [k for k in over if draw(st.booleans())]))
            body = (
                f"A{first[0]} = >(X[{everywhere}]){first[1]}; D = X - A; S{within[0]} = +(D[{everywhere}]){within[1]};"
                " U = S * 2; W = sqrt(U * U + 1) / 3; R = D / W;"
            )
            outputs = draw(st.sampled_from(["R", "R, U", "R, S", "U, W, R"]))
        case "permute":
            order = draw(st.permutations(range(rank)))
            turned, turned_sizes = ", ".join(loops[k] for k in order), ", ".join(names[k] for k in order)
            body = f"R[{turned} : {turned_sizes}] = =(X[{everywhere}]);"
        case "window":
            near = ", ".join([f"{loops[0]} + t - 1", *loops[1:]])
            body = f"R[{everywhere} : {sizes}] = >(X[{near}]), t < 3;"
        case "scan":
            last = ", ".join([*loops[:-1], "k"])
            body = f"R[{everywhere} : {sizes}] = +(X[{last}]), {loops[-1]} - k < {names[-1]};"
        case _:
            body = "A = X + X; B = max(A, X); R = B * 2;"
    return stripe_of(f"function (X[{sizes}]) -> ({outputs}) {{ {body} }}", dtype, X=shape)


def _kept(loops: list[str], names: list[str], over: list[int]) -> tuple[str, str]:
    """Cells of a reduction over these axes, which stay as axes of one element, and its constraints."""
    cell = ", ".join(f"z{k}" if k in over else n for k, n in enumerate(loops))
    sizes = ", ".join("1" if k in over else n for k, n in enumerate(names))
    return f"[{cell} : {sizes}]", "".join(f", z{k} < 1" for k in over)


@settings(max_examples=20, deadline=None)
@given(programs(), st.sampled_from([4, 16, 32, 64]), st.sampled_from([1, 2, 16]), st.sampled_from([256, 16384]))
def test_random_programs_keep_their_meaning(stripe: Program, threads: int, cores: int, max_mem: int) -> None:
    agree(stripe, target(threads, cores, max_mem))


BLUR = """function (X[H, W]) -> (R) {
    A[y, x : H, W] = +(X[y + i - 1, x]), i < 3;
    R[y, x : H, W] = +(A[y, x + j - 1]), j < 3;
}"""
SOFTMAX = "function (X[M, N]) -> (R) { R = builtin_softmax(X, M, N); }"
CUMULATIVE = "function (X[M, N]) -> (R) { R[i, j : M, N] = +(X[i, k]), j - k < N; }"
SUM = "function (X[M, N]) -> (R) { R[i : M] = +(X[i, j]); }"
COLUMNS = "function (X[M, N]) -> (R) { R[j : N] = +(X[i, j]); }"
ALL = "function (X[M, N, P, Q]) -> (R) { R[n : N] = +(X[m, n, p, q]); }"
TURNED = "function (X[M, N]) -> (R) { R[j, i : N, M] = =(X[i, j]); }"


@pytest.mark.diagonal(3)
@pytest.mark.parametrize("source", [BLUR, SOFTMAX, SUM, COLUMNS, TURNED])
@pytest.mark.parametrize("shape", [(5, 63), (5, 64), (5, 65), (63, 5), (64, 8), (2, 1100)])
def test_shapes_around_powers_of_two(source: str, shape: tuple[int, int]) -> None:
    agree(stripe_of(source, X=shape), target())


def test_a_row_too_long_for_local_memory_lies_in_the_devices() -> None:
    agree(stripe_of(BLUR, X=(5, 90)), target(max_mem=128))


@pytest.mark.parametrize("shape", [(33, 40), (64, 64), (40, 133)])
def test_scans_of_many_rows(shape: tuple[int, int]) -> None:
    agree(stripe_of(CUMULATIVE, X=shape), target())


@pytest.mark.parametrize("shape", [(70, 16), (70, 33)])
@pytest.mark.parametrize("along", [0, 1])
def test_scans_cut_into_blocks(shape: tuple[int, int], along: int) -> None:
    on = target(cores=64)
    on = replace(on, passes=(PassConfig("scan", options={"block": 20}), *on.passes[1:]))
    source = CUMULATIVE if along else "function (X[M, N]) -> (R) { R[i, j : M, N] = +(X[k, j]), i - k < M; }"
    agree(stripe_of(source, X=shape[:: 1 - 2 * along]), on)


@pytest.mark.diagonal(2)
@pytest.mark.parametrize("order", ["ijk", "kij", "ikj", "jik", "jki", "kji"])
@pytest.mark.parametrize("shape", [(5, 3, 20), (3, 33, 12)])
def test_sums_that_are_reduced_again(shape: tuple[int, int, int], order: str) -> None:
    """Items keep a partial result for each element of the row that they sum for."""
    sizes = dict(zip("ijk", shape, strict=True))
    source = f"""function (X[A, B, C]) -> (R) {{
        T[i, j : {sizes["i"]}, {sizes["j"]}] = +(X[{", ".join(order)}]); R[i : {sizes["i"]}] = >(T[i, j]); }}"""
    agree(stripe_of(source, X=tuple(sizes[n] for n in order)), target())


# --- plans -----------------------------------------------------------------------------------------


def views(stripe: Program, on: Target) -> list[KernelView]:
    """The kernels as the pass meets them."""
    flat = optimize(stripe, replace(on, passes=on.passes[:-1]), verify=False)
    opened = [open_kernel(k) for k in kernels_of(flat)]  # pyright: ignore[reportArgumentType]
    return [v for v in opened if v is not None]


@pytest.mark.parametrize(
    ("source", "shape"),
    [(SOFTMAX, (64, 256)), (SUM, (64, 1000)), (COLUMNS, (1000, 64)), (ALL, (8, 16, 12, 12)), (TURNED, (96, 200)),
     (BLUR, (16, 64)), (CUMULATIVE, (64, 96))],
)  # fmt: skip
def test_plans_are_accepted_when_they_are_given_back(source: str, shape: tuple[int, ...]) -> None:
    on = target(threads=256)
    for view in views(stripe_of(source, X=shape), on):
        for plan in GpuTile().candidates(view, on):
            assert parse_plans(print_plans({view.name: plan}))[view.name] == plan
            PlanCheck(view, plan, on, {}).before()


def plan_of(source: str, on: Target, dtype: DType = DType.FLOAT32, **shapes: tuple[int, ...]) -> Plan:
    (view,) = views(stripe_of(source, dtype, **shapes), on)
    return next(GpuTile().candidates(view, on))


def items(plan: Plan, **extents: int) -> int:
    return plan.points(1, extents)


@pytest.mark.parametrize(("columns", "items"), [(6000, 64), (20000, 64), (33536, 32)])
def test_more_items_share_few_long_columns(columns: int, items: int) -> None:
    """Two groups of narrow ones are at work on a unit at once; of many groups the wide ones read memory faster."""
    source = "function (X[M, N]) -> (R) { T[z, j : 1, N] = +(X[i, j]), z < 1; R = X - T; }"
    plan = plan_of(source, target(threads=256, cores=132), X=(1000, columns))
    assert plan.reason == f"{items} items share a column"


def test_short_rows_share_a_group() -> None:
    plan = plan_of(SOFTMAX, target(threads=256, cores=2), X=(4096, 256))
    assert (items(plan, i0_1=4096, i1=256), plan.tile("i0_1", 0, 4096)) == (256, 32)


@pytest.mark.parametrize(("length", "narrow", "wide"), [(9, 4, 4), (31, 8, 8), (127, 16, 16), (1001, 64, 128)])
def test_items_of_rows_that_begin_anywhere_have_as_many_bytes(length: int, narrow: int, wide: int) -> None:
    """Half precision takes no more of them than float32; rows shorter than 33 elements are no work for eight.

    There are too few rows for groups that copy tiles of them.
    """
    on = target(threads=256, cores=2)
    for dtype, expected in ((DType.FLOAT16, narrow), (DType.FLOAT32, wide)):
        assert f" {expected} items share a row" in f" {plan_of(SOFTMAX, on, dtype, X=(1000, length)).reason}"


@pytest.mark.parametrize(("length", "items"), [(63, 8), (127, 8), (255, 16)])
def test_fewer_items_share_rows_that_are_only_read(length: int, items: int) -> None:
    plan = plan_of(SUM, target(threads=256, cores=2), DType.FLOAT16, X=(4096, length))
    assert f" {items} items share a row" in f" {plan.reason}"


@pytest.mark.parametrize(("agg", "sign"), [(">", -1), ("<", 1)])
def test_items_that_share_a_row_start_from_the_identity(agg: str, sign: int) -> None:
    source = f"function (X[M, N]) -> (R) {{ R[i : M] = {agg}(X[i, j]); }}"
    on = target(threads=64)
    assert plan_of(source, on, X=(3, 210)).reductions
    agree(stripe_of(source, X=(3, 210)), on, sign)


def test_the_statistics_of_images_take_several_loops_at_once() -> None:
    plan = plan_of(ALL, target(threads=64, cores=1), X=(8, 16, 12, 12))
    assert len({r.loop for r in plan.reductions}) == 2


def test_loops_that_all_stages_walk_alike_are_one_row() -> None:
    """What lies side by side of an image: both stages of its normalisation read it in full rows."""
    source = """function (X[N, C, H, W]) -> (R) {
        S[a, c, b, d : 1, C, 1, 1] = +(X[n, c, h, w]), a < 1, b < 1, d < 1; D = X - S; Q = D * D;
        V[a, c, b, d : 1, C, 1, 1] = +(Q[n, c, h, w]), a < 1, b < 1, d < 1; R = D / sqrt(V); }"""
    stripe = stripe_of(source, X=(3, 4, 6, 7))
    (view,) = views(stripe, target(threads=32, cores=1))
    assert {tuple(sorted(i.range for i in s.loops)) for s in view.stages if len(s.loops) > 1} == {(3, 42)}
    agree(stripe, target(threads=32, cores=1))


@pytest.mark.parametrize("images", [2, 3])
def test_an_item_keeps_no_more_than_it_has_registers_for(images: int) -> None:
    """Loops that each item runs for itself count, too."""
    source = """function (X[N, C, L]) -> (R) {
        S[a, c, b : 1, C, 1] = +(X[n, c, l]), a < 1, b < 1; D = X - S; Q = D * D;
        V[a, c, b : 1, C, 1] = +(Q[n, c, l]), a < 1, b < 1; R = D / sqrt(V); }"""
    on = target(threads=256, cores=1)
    plan = plan_of(source, on, X=(images, 64, 28 * 256))
    kept = prod(c.size for level in plan.bound(Bind.GROUP) for c in level.covers)
    assert not plan.stagings or kept * images <= KEPT


def test_whole_steps_of_a_ragged_row_ask_nothing() -> None:
    source = "function (X[M, N]) -> (R) { R[i : M] = +(X[i, j]); }"
    stripe, on = stripe_of(source, X=(3, 1003)), target(threads=4)
    (kernel,) = kernels_of(optimize(stripe, on, verify=True))
    assert isinstance(kernel, Block)
    steps = [b for b in blocks_in(kernel) if any(i.bind is Bind.NONE and i.range > 1 for i in b.indexes)]
    assert [bool(b.constraints) for b in steps] == [False]
    agree(stripe, on)


@pytest.mark.parametrize("step", [1, 2, 3])
def test_windows_are_no_rows(step: int) -> None:
    """Whatever lies side by side in memory: an item finds its window alone, without waiting for others."""
    source = f"function (X[N, H, W]) -> (R) {{ R[n, y, x : N, 40, 40] = >(X[n, {step}*y + i, {step}*x + j]), i < 3, j < 3; }}"
    plan = plan_of(source, target(threads=256, cores=2), X=(64, 122, 122))
    assert plan.reason == "an item per element"


@pytest.mark.parametrize("channels", [2, 4, 7])
def test_few_channels_of_many_pixels_are_a_row(channels: int) -> None:
    """The last digit of a dimension that groups of channels share lies along memory; of so few groups columns would be few."""
    source = (
        f"function (X[N, P, C]) -> (S) {{ Y = reshape(X, N, P, 32, {channels}); S[n, g : N, 32] = +(Y[n, p, g, c]); }}"
    )
    plan = plan_of(source, target(threads=256, cores=132), X=(16, 2304, 32 * channels))
    assert plan.reason == "256 items share a row"


def test_what_is_narrower_goes_wider() -> None:
    source = "function (X) -> (R) { R = X + X; }"
    widths = {
        dtype: next(
            level.lanes
            for level in next(
                GpuTile().candidates(views(stripe_of(source, dtype, X=(1 << 16,)), target())[0], target())
            ).levels
            if level.bind is Bind.VECTOR
        )
        for dtype in (DType.FLOAT64, DType.FLOAT32, DType.FLOAT16, DType.UINT8)
    }
    assert list(widths.values()) == [2, 4, 8, 16]


# --- steps -----------------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 300), st.sampled_from([1, 2, 4]), st.integers(1, 8), st.integers(1, 5), st.booleans())
def test_digits_meet_every_iteration_once(extent: int, lanes: int, count: int, steps: int, dealt: bool) -> None:
    each = lanes * steps
    plan = Plan(
        (
            Level(Bind.GRID, (Cover("n", each * count),)),
            Level(Bind.GROUP, (Cover("n", each, lanes if dealt else 0),)),
            Level(Bind.UNROLL, (Cover("n", lanes),)),
            Level(Bind.VECTOR, (Cover("n", 1),), lanes=lanes),
        )
    )
    made = split(plan, Index("n", extent))
    whole = [_met(made.form, made.inside(), {d.index.name: d.index.range for d in made.digits})]
    tail = made.tail()
    if tail is not None:
        whole.append(_met(tail.form, (), {d.index.name: d.index.range for d in tail.digits}))
    assert sorted(n for met in whole for n in met) == list(range(extent))


def _met(form: Affine, limits: tuple[Affine, ...], ranges: dict[str, int]) -> list[int]:
    points: list[dict[str, int]] = [{}]
    for name, extent in ranges.items():
        points = [{**p, name: n} for p in points for n in range(extent)]
    inside: Any = [p for p in points if all(c.evaluate(p) >= 0 for c in limits)]
    return [form.evaluate(p) for p in inside]


@pytest.mark.parametrize(
    ("constraint", "agree"),
    [(Affine.var("n") + -8, True), (Affine.var("n") + -7, False), (Affine.var("n", -1) + 7, True),
     (Affine.var("n", -1) + 8, False), (Affine.var("n") + Affine.var("m", 2), False), (Affine.var("m"), True)],
)  # fmt: skip
def test_lanes_agree_on_multiples_of_their_number(constraint: Affine, agree: bool) -> None:
    assert lanes_agree(constraint, "n", 4) is agree
    if agree and "m" not in constraint.names:
        for first in range(0, 32, 4):
            assert len({constraint.evaluate({"n": first + lane}) >= 0 for lane in range(4)}) == 1


SHOWN = """function (X[M, N]) -> (Y, U) {
    T[i, z : M, 1] = >(X[i, j]), z < 1; U = T * 2.0; E = X - U; S[i, z : M, 1] = +(E[i, j]), z < 1; Y = E / S; }"""


def test_what_one_item_stores_no_other_reads() -> None:
    """Nothing would make them wait: each makes it for itself, and one of them stores it."""
    on = target(threads=256)
    (view,) = views(stripe_of(SHOWN, X=(64, 256)), on)
    built = GpuTile().build(view, next(GpuTile().candidates(view, on)), on).kernel
    reads = {r.source for r in built.refs if r.dir is Direction.IN}
    assert {r.source for r in built.refs if r.dir is Direction.OUT} == {"U", "Y"} and reads == {"X"}
    agree(stripe_of(SHOWN, X=(5, 40)), target())


BESIDE = """function (X[M, N, C]) -> (R, U) {
    A[i, y, z : M, 1, 1] = +(X[i, j, c]), y < 1, z < 1; D = X - A; S[i, z, c : M, 1, C] = +(D[i, j, c]), z < 1;
    U = S * 2.0; W = sqrt(U * U + 1.0) / 3.0; R = D / W; }"""


@pytest.mark.parametrize("shape", [(40, 100, 1), (9, 100, 3), (9, 100, 8), (9, 3, 100), (3, 16, 16), (1, 64, 1)])
def test_what_is_stored_by_one_item_beside_what_all_need_is_made_by_all(shape: tuple[int, int, int]) -> None:
    """The stage that makes `U` makes `W`, too: no item is without it because another one stores `U`."""
    agree(stripe_of(BESIDE, X=shape), target(threads=256))
    agree(stripe_of(BESIDE, X=shape), target())


@pytest.mark.parametrize(("dtype", "pads"), [(DType.UINT8, {4}), (DType.FLOAT32, {1, 3})], ids=str)
def test_rows_of_a_turned_tile_lie_in_different_banks(dtype: DType, pads: set[int]) -> None:
    """Neither side comes out in words, for which items would turn blocks."""
    (view,) = views(stripe_of(TURNED, dtype, X=(255, 255)), target(threads=256))
    plan = next(GpuTile().candidates(view, target(threads=256)))
    assert {s.pad for s in plan.stagings} <= pads


def test_kernels_on_one_large_buffer_take_turns_at_its_ends() -> None:
    """The second begins with what the first had last: that is in the device's cache still."""
    on = target(threads=32)
    cache = replace(on.machine.caches[-1], bytes=1 << 10)
    small = replace(on, machine=replace(on.machine, caches=(cache,)))
    source = "function (X[M, N]) -> (R) { T[i : M] = +(X[i, j]); S[] = +(T[i]); R = X + S; }"
    stripe = stripe_of(source, X=(64, 64))
    inputs = {name: np.rint(value) for name, value in random_inputs(stripe).items()}
    for device, turns in ((small, 1), (on, 0)):
        kernels = check(optimize(stripe, device), inputs, device, reference=stripe).kernels
        texts = [print_function(k.function) for k in kernels if k.function is not None]
        assert sum(" - group_id(0)" in text for text in texts) == turns


@pytest.mark.parametrize("source", ["B[j : N] = +(A[i, j]);", "B[i : M] = >(A[i, j]);", "B = tanh(A);"])
def test_groups_of_one_item_have_plans(source: str) -> None:
    """Whatever a target's document says."""
    agree(stripe_of(f"function (A[M, N]) -> (B) {{ {source} }}", A=(40, 50)), target(threads=1))


@pytest.mark.parametrize(("length", "kernels"), [(300, 1), (1200, 2)])
def test_a_row_that_data_chooses_from_is_fused_with_what_shares_its_making(length: int, kernels: int) -> None:
    """Items that go over rows of another length would each make all of it."""
    types = {"U": TensorType(DType.FLOAT32, (4000, 300)), "J": TensorType(DType.INT32, (4000, length))}
    source = Source(
        "function (U[N, K], J[N, M]) -> (O) { V = exp(U); O[n, m : N, M] = =(V[n, J[n, m]]); }", "sample.tile"
    )
    stripe = to_stripe(tile_lang.bind(tile_lang.parse(source), types))
    assert len(views(stripe, target())) == kernels
