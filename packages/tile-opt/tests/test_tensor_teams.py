"""Contractions on instructions that teams of sub-groups execute from swizzled local memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod

import numpy as np
import pytest
from tensor_support import (
    MULTIPROCESSOR,
    TENSOR,
    Array,
    Sample,
    agree,
    bound,
    inputs_of,
    matmul,
    near,
    optimize_given,
    run_kernels,
    scheduled,
    view_of,
    whole,
)
from test_plan_again import other
from tile_ir.diagnostics import TilePlanError
from tile_ir.dtype import DType
from tile_ir.emit.walker import walk_statements
from tile_ir.machine import LocalMemory
from tile_ir.matrix import LANES, MATRIX_INSTRUCTIONS, WGMMA
from tile_ir.semtree import launch, parse_function
from tile_ir.semtree.nodes import AsyncCopy, Binary, For, TeamMma
from tile_ir.semtree.verify import OPTIONAL_NODES
from tile_ir.stripe.hashing import structural_hash
from tile_ir.stripe.nodes import Block, Direction, Scope, Wait
from tile_ir.stripe.parser import parse_program
from tile_ir.stripe.printer import print_program
from tile_ir.stripe.walk import blocks_in
from tile_ir.target import Target
from tile_opt.compiler import compile
from tile_opt.kernel.view import KernelView
from tile_opt.model.estimate import estimate
from tile_opt.passes.base import kernels_of
from tile_opt.passes.kernels.tensor_tile import TensorTile
from tile_opt.plan.names import Names, renamed
from tile_opt.plan.plan import Across, Plan, Staging
from tile_opt.plan.text import print_plans
from tile_opt.semtree.legalise import legalise, used_nodes

BF16, F16 = DType.BFLOAT16, DType.FLOAT16
TEAMS = replace(
    TENSOR,
    matrix=tuple(MATRIX_INSTRUCTIONS),
    machine=replace(MULTIPROCESSOR, local=replace(MULTIPROCESSOR.local or LocalMemory(), bytes=64 << 10)),
)

LARGE = replace(TEAMS.machine, local=replace(TEAMS.machine.local or LocalMemory(), bytes=228 << 10))
BUSY_TEAMS = replace(TEAMS, machine=LARGE).resolved(cores=132)
"""Many cores, each with local memory for several steps of large tiles."""


def plan_for(sample: Sample, target: Target = TEAMS) -> Plan:
    return next(TensorTile().candidates(view_of(sample, target), target))


@pytest.mark.parametrize(
    ("layout", "dtype", "m", "n", "k"),
    [("nn", BF16, 64, 128, 64), ("nt", F16, 70, 40, 72), ("tt", BF16, 64, 32, 136)],
    ids=["panels", "edges", "steps"],
)
def test_products_of_teams(layout: str, dtype: DType, m: int, n: int, k: int) -> None:
    sample = matmul(layout, dtype, m, n, k)
    stripe = agree(sample, TEAMS)
    found = plan_for(sample)
    assert found.instruction is not None and MATRIX_INSTRUCTIONS[found.instruction.name].team == 4
    text = print_program(stripe)
    assert print_program(parse_program(text)) == text


def test_a_convolution_by_teams() -> None:
    """Rows of 64 pixels, one tap a step: padding is zero in the swizzled rows, too."""
    source = "function (D[X, C], K[T, C, O]) -> (R) { R[x, o : 64, O] = +(D[x + t - 1, c] * K[t, c, o]); }"

    def operands(x: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:  # pyright: ignore[reportMissingTypeArgument]
        padded = np.pad(x["D"].astype(np.float32), ((1, 1), (0, 0)))
        taps = np.stack([padded[t : t + 64] for t in range(3)], axis=1)
        return taps.reshape(64, -1), x["K"].astype(np.float32).reshape(-1, 32)

    agree(Sample(bound(source, BF16, D=(64, 64), K=(3, 64, 32)), operands), TEAMS)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("layout", "dtype", "k", "pads"), [("nt", BF16, 88, {"A": 16, "B": 16}), ("nn", F16, 24, {"A": 32, "B": 0})]
)
def test_rows_of_short_steps_are_padded_to_whole_panels(
    layout: str, dtype: DType, k: int, pads: dict[str, int]
) -> None:
    """Nothing is copied, nor multiplied, that is an instruction or more behind the end of the depth."""
    sample = matmul(layout, dtype, 64, 64, k)
    plan = plan_for(sample)
    assert {s.operand: s.pad for s in plan.stagings if s.unit == "LOCAL" and s.level == 2} == pads
    agree(sample, TEAMS)


@pytest.mark.parametrize(("layout", "m", "n"), [("nn", 64, 96), ("nt", 70, 40)], ids=["pairs of a row", "rows across"])
def test_short_results_are_stored_side_by_side(layout: str, m: int, n: int) -> None:
    """A sub-group's lanes hold pairs, and store whole pieces of 16 bytes out of local memory; TF32's results are sectors as they are."""
    sample = matmul(layout, F16, m, n, 64)
    (staging,) = (s for s in plan_for(sample).stagings if s.operand == "R")
    assert (staging.unit, staging.scope, staging.pad) == ("LOCAL", Scope.SUBGROUP, 8)
    agree(sample, TEAMS)
    wide = matmul("nt", DType.FLOAT32, m, n, 64)
    assert not [s for s in plan_for(wide).stagings if s.operand == "R"]


@pytest.mark.parametrize(("tail", "given"), [("R = reshape(P, M*N);", False), ("R = -P;", True)])
def test_flat_results_do_not_leave_through_local_memory(tail: str, given: bool) -> None:
    """A box of a few rows and columns of a matrix in one dimension would have all columns between them."""
    source = f"function (A[M, K], B[N, K]) -> (R) {{ P[i, j : M, N] = +(A[i, k] * B[j, k]); {tail} }}"
    sample = Sample(bound(source, F16, A=(4096, 64), B=(4096, 64)), lambda x: (x["A"], x["B"].T))
    assert any(s.operand == "R" for s in plan_for(sample, BUSY_TEAMS).stagings) is given


@pytest.mark.parametrize(
    ("m", "k", "local", "ahead", "behind"),
    [(128, 1024, 160, 2, 1), (128, 1024, 112, 2, 0), (128, 256, 160, 4, 0), (64, 1024, 160, 5, 0)],
    ids=["four versions", "three versions", "few steps", "short steps"],
)
def test_products_of_a_step_go_on_while_the_next_ones_start(
    m: int, k: int, local: int, ahead: int, behind: int
) -> None:
    """A copy is then a step less ahead, and overwrites what was read two steps before."""
    near = replace(TEAMS.machine.local or LocalMemory(), bytes=local << 10)
    target = replace(TEAMS, machine=replace(TEAMS.machine, local=near))
    text = print_program(scheduled(matmul("nn", BF16, m, 128, k).program, target))
    assert text.count("// copy_step_") == ahead
    assert ("wait(group=1, pending=1)" in text) is (behind > 0)
    assert text.rindex("wait(group=1, pending=0)") > text.rfind("wait(group=1, pending=1)")


def test_copies_of_a_factor_share_a_place_and_differ_by_constants() -> None:
    """Addressing modes absorb these; a variable of each would be two instructions more."""
    sample = matmul("nn", BF16, 128, 128, 512)
    function = compile(sample.program, TEAMS, plans={"kernel_0": plan_for(sample)}).kernels.kernels[0].function
    assert function is not None
    loop = next(s for s in walk_statements(function.body) if isinstance(s, For))
    copies = [s for s in walk_statements(loop.body) if isinstance(s, AsyncCopy)]
    indexes = [(s.dst, s.dst_index.left if isinstance(s.dst_index, Binary) else s.dst_index) for s in copies]
    assert len(copies) > 2 and len(set(indexes)) == 2


def test_factors_lie_in_swizzled_panels_and_the_last_step_waits_for_its_products() -> None:
    stripe = scheduled(matmul("nn", BF16, 64, 64, 256).program, TEAMS)
    (kernel,) = (k for k in kernels_of(stripe) if isinstance(k, Block))
    blocks = list(blocks_in(kernel))
    allocs = [r for b in blocks for r in b.refs if r.dir is Direction.ALLOC and r.loc.scope is Scope.GROUP]
    boxes = {r.into: r for r in allocs if r.into in ("A_local", "B_local")}
    assert {r.type.layout.panel for r in boxes.values()} == {64}
    assert {r.type.layout.align for r in boxes.values()} == {1024} and all(r.versions > 2 for r in boxes.values())
    products = [b for b in blocks if b.instr and b.instr.name in {i.name for i in WGMMA}]
    waits = [s for b in blocks for s in b.body if isinstance(s, Wait) and s.group == 1]
    assert products and waits and waits[-1].pending == 0


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("swizzle bits=3 base=3 shift=6", "swizzle bits=2 base=3 shift=6", "with swizzle"),
        ("serial k:64", "serial k:32", "and pad 32"),
        ("serial k:64", "serial k:128", "at most 64 deep"),
        ("subgroup i:16", "subgroup i:32", "of them are a team"),
    ],
)
def test_plans_that_no_team_can_share_are_refused(old: str, new: str, says: str) -> None:
    sample = matmul("nn", BF16, 64, 64, 128)
    text = print_plans({view_of(sample, TEAMS).name: plan_for(sample)})
    assert old in text
    with pytest.raises(TilePlanError, match=says):
        optimize_given(sample, TEAMS, text.replace(old, new))


@pytest.mark.parametrize(("seconds", "copied"), [(4e-6, []), (0.0, ["B"])])
def test_rows_that_begin_between_sixteen_bytes_go_through_registers(seconds: float, copied: list[str]) -> None:
    """Or are copied before, where another kernel costs little."""
    target = replace(TEAMS, machine=replace(TEAMS.machine, launch=replace(TEAMS.machine.launch, kernel=seconds)))
    plan = next(TensorTile().candidates(view_of(matmul("nn", BF16, 64, 33, 64), target), target))
    assert plan.instruction is not None and plan.instruction.name.startswith("wgmma")
    assert [s.operand for s in plan.stagings if s.level < 0] == copied


@pytest.mark.parametrize(("columns", "straight"), [(44, True), (42, False)], ids=["eight bytes", "four bytes"])
def test_pieces_of_eight_bytes_go_straight_to_local_memory(columns: int, straight: bool) -> None:
    """Smaller ones are too many for a team: they are left to single sub-groups where those lose little."""
    sample = matmul("nn", F16, 70, columns, 76)
    plan = plan_for(sample)
    assert plan.instruction is not None and all(s.unit == "LOCAL" for s in plan.stagings)
    assert plan.instruction.name.startswith("wgmma") is straight
    agree(sample, TEAMS)


PRODUCT = """function product(readwrite global float32* out, read global float32* in) group(128, 1, 1) subgroup(32) {
    alloc local float16[1024] a [align=1024];
    alloc local float16[2048] b [align=1024];
    let item = local_id(0);
    for (n = 0; n < 8; n += 1) { a[item * 8 + n] = float16(in[item * 8 + n]); }
    for (n = 0; n < 16; n += 1) { b[item * 16 + n] = float16(in[1024 + item * 16 + n]); }
    barrier("group", "local");
    var c = 1.0f32x4;
    var d = 0.0f32x4;
    var e = 0.0f32x4;
    var f = 0.0f32x4;
    team_mma "wgmma_m64n32k16_f16" = a[0, panels=1024] * b[0], (c, d, e, f);
    async_wait(1, 0);
    out[item * 16] = c;
    out[item * 16 + 4] = d;
    out[item * 16 + 8] = e;
    out[item * 16 + 12] = f;
}"""


@pytest.mark.slow
def test_a_team_product_for_targets_without_them() -> None:
    """One of the instruction in the hardware's layouts, beside loops of every item, and NumPy on unswizzled factors."""
    function = parse_function(PRODUCT)
    portable = legalise(function, OPTIONAL_NODES - {"TeamMma"})
    assert "TeamMma" not in used_nodes(portable) and any(isinstance(s, TeamMma) for s in function.body.body)
    data = np.random.default_rng(0).integers(-4, 5, 3072).astype(np.float32)
    results: list[np.ndarray] = []  # pyright: ignore[reportMissingTypeArgument]
    for each in (function, portable):
        out = np.zeros(2048, np.float32)
        launch(each, (1, 1, 1), [out, data])
        results.append(out)
    assert results[0].tobytes() == results[1].tobytes()
    left, right = (_unswizzled(data[s]) for s in (slice(0, 1024), slice(1024, 3072)))
    want = left[:16].T @ right.reshape(32, 64)[:, :16].T
    item, piece, register = np.meshgrid(np.arange(128), np.arange(4), np.arange(4), indexing="ij")
    rows = item // 32 * 16 + item % 32 // 4 + 8 * (register // 2)
    columns = 8 * piece + item % 4 * 2 + register % 2
    assert (results[0].reshape(128, 4, 4) == want[rows, columns] + (piece == 0)).all()


def _unswizzled(flat: np.ndarray) -> np.ndarray:  # pyright: ignore[reportMissingTypeArgument]
    """Rows of 64 elements of 16 bits, eight of which stay together."""
    at = np.arange(flat.size)
    return flat[at ^ (at // 64 % 8 * 8)].reshape(-1, 64)


@pytest.mark.parametrize(("columns", "taken"), [(96, 96), (94, 96), (128, 128), (384, 256), (400, 192)])
def test_instructions_of_other_widths_leave_fewer_columns_empty(columns: int, taken: int) -> None:
    """Where those of a power of two would leave more of them: 384 are three times 128 as well. Wide ones fill the cores otherwise."""
    view, widths = view_of(matmul("nt", BF16, 4096, columns, 512), BUSY_TEAMS), set[int]()
    for plan in TensorTile().candidates(view, BUSY_TEAMS):
        assert plan.instruction is not None
        widths.add(MATRIX_INSTRUCTIONS[plan.instruction.name].sides["n"])
    assert taken in widths and (96 in widths) is (taken == 96)


@pytest.mark.parametrize("rows", [2, 3, 4])
def test_teams_multiply_two_rows(rows: int) -> None:
    """As many queries may share keys, and tokens weights: what memory gives takes longer than the rows that are filled up."""
    view = view_of(matmul("nt", BF16, rows, 512, 512), BUSY_TEAMS)
    plan = next(TensorTile().candidates(view, BUSY_TEAMS))
    assert plan.instruction is not None and MATRIX_INSTRUCTIONS[plan.instruction.name].team > 1
    assert dict(plan.instruction.loops)["m"] == "i"


def test_rows_of_images_leave_few_behind_their_ends() -> None:
    """88 rows and columns: 16 or 32 of one, and the others of a group's along the other."""
    source = """function (D[N, X, Y, C], K[O, C, I, J]) -> (R) {
        R[n, x, y, o : N, X, Y, O] = +(D[n, x + i - 1, y + j - 1, c] * K[o, c, i, j]); }"""
    sample = Sample(bound(source, BF16, D=(8, 88, 88, 64), K=(128, 64, 3, 3)), lambda x: (x["D"], x["K"]))
    view = view_of(sample, BUSY_TEAMS)
    plan = next(TensorTile().candidates(view, BUSY_TEAMS))
    tile = {n: plan.tile(n, 0, view.ranges[n]) for n in view.ranges}
    places = prod(-(-view.ranges[n] // tile[n]) * tile[n] for n in ("n", "x", "y"))
    assert places <= 1.1 * 8 * 88 * 88


def _wide_groups(target: Target) -> Target:
    """A group may have as many work items as devices say, not only as many as is usual."""
    assert target.machine.occupancy is not None
    occupancy = replace(target.machine.occupancy, group_items=1024)
    return replace(target, machine=replace(target.machine, occupancy=occupancy))


def _items(view: KernelView, plan: Plan) -> int:
    """Work items of a group."""
    group, warp = (prod(plan.tile(i.name, level, i.range) for i in view.loops) for level in range(2))
    return group // warp * LANES


def test_many_teams_share_what_a_step_copies_of_few_columns() -> None:
    view = view_of(matmul("nt", F16, 1 << 16, 160, 2048), BUSY_TEAMS)
    few, many = (next(TensorTile().candidates(view, t)) for t in (BUSY_TEAMS, _wide_groups(BUSY_TEAMS)))
    assert (_items(view, few), _items(view, many)) == (256, 384)


def test_no_group_has_more_teams_than_registers() -> None:
    """Of 256 columns two have all that a core has."""
    target = _wide_groups(BUSY_TEAMS)
    view = view_of(matmul("nt", F16, 4096, 4096, 1024), target)
    found = defaultdict[int, set[int]](set)
    for plan in TensorTile().candidates(view, target):
        assert plan.instruction is not None
        found[MATRIX_INSTRUCTIONS[plan.instruction.name].sides["n"]].add(_items(view, plan))
    assert found[128] == {128, 256, 384, 512}
    assert found[192] == {128, 256, 384}
    assert found[256] == {128, 256}


def test_products_of_three_teams() -> None:
    sample, target = matmul("nt", F16, 170, 64, 16), _wide_groups(TEAMS)
    view = view_of(sample, target)
    plan = next(p for p in TensorTile().candidates(view, target) if _items(view, p) == 3 * 4 * LANES)
    stripe, inputs = optimize_given(sample, target, print_plans({view.name: plan})), inputs_of(sample.program)
    near(run_kernels(stripe, target, inputs), sample, inputs, whole, 1e-5)


def test_a_core_has_two_groups_where_each_has_a_step_less_under_way() -> None:
    view = view_of(matmul("nt", BF16, 4096, 4096, 4096), BUSY_TEAMS)
    found = [p for p in TensorTile().candidates(view, BUSY_TEAMS) if p.tile("i", 0, 0) == p.tile("j", 0, 0) == 128]
    assert {s.versions for p in found for s in p.stagings if s.operand != "R"} == {3, 4}


@pytest.mark.parametrize(("depth", "shared"), [(4096, True), (512, False)])
def test_groups_share_long_sums_where_few_cores_would_copy_all_factors(depth: int, shared: bool) -> None:
    """A core copies no faster beside idle ones; short sums take less than putting shares together."""
    view = view_of(matmul("nt", BF16, 64, 1024, depth), BUSY_TEAMS)
    plan = next(TensorTile().candidates(view, BUSY_TEAMS))
    assert any(r.across is Across.GROUPS for r in plan.reductions) is shared


def test_an_instruction_of_a_team_takes_its_time_in_an_estimate() -> None:
    """About 10 µs on a large processor; that of its products one by one would be thousands of times longer."""
    sample = matmul("nt", BF16, 1024, 1024, 1024)
    view = view_of(sample, BUSY_TEAMS)
    plan = next(TensorTile().candidates(view, BUSY_TEAMS))
    found = estimate(TensorTile().build(view, plan, BUSY_TEAMS).kernel, BUSY_TEAMS)
    assert 2e-6 < found.seconds < 2e-4


MATMUL = "P[i, j : M, N] = +(A[i, k] * B[j, k]);"
RESIDUALS: Mapping[str, tuple[str, Mapping[str, tuple[int, ...]], Callable[[Mapping[str, Array]], Array]]] = {
    "rows": (
        f"function (A[M, K], B[N, K], S[M, N]) -> (R) {{ {MATMUL} Q = P + S; R = (Q > 0 ? Q : 0); }}",
        {"A": (70, 64), "B": (36, 64), "S": (70, 36)},
        lambda x: np.maximum(x["A"] @ x["B"].T + x["S"], 0),
    ),
    "two, and one of columns": (
        f"function (A[M, K], B[N, K], S[M, N], U[N], V[M, N]) -> (R) {{ {MATMUL} Q = P * U + S; R = Q + V; }}",
        {"A": (64, 64), "B": (96, 64), "S": (64, 96), "U": (96,), "V": (64, 96)},
        lambda x: x["A"] @ x["B"].T * x["U"] + x["S"] + x["V"],
    ),
    "a part": (
        f"function (A[M, K], B[N, K], S[X, Y]) -> (R) {{ {MATMUL} T[i, j : 64, 64] = =(S[i + 1, j + 2]); R = P + T; }}",
        {"A": (64, 64), "B": (64, 64), "S": (66, 68)},
        lambda x: x["A"] @ x["B"].T + x["S"][1:65, 2:66],
    ),
    "a factor": (
        f"function (A[M, K], B[N, K]) -> (R) {{ {MATMUL} R = P + A; }}",
        {"A": (64, 64), "B": (64, 64)},
        lambda x: x["A"] @ x["B"].T + x["A"],
    ),
    "planes": (
        "function (A[N, C, P], B[O, C], S[N, O, P]) -> (R) {"
        " Q[n, o, p : N, O, P] = +(A[n, c, p] * B[o, c]); R = Q + S; }",
        {"A": (2, 64, 72), "B": (40, 64), "S": (2, 40, 72)},
        lambda x: np.einsum("ncp,oc->nop", x["A"], x["B"]) + x["S"],
    ),
}  # fmt: skip
"""Programs that add to products, and their meaning."""


@pytest.mark.parametrize("name", RESIDUALS)
def test_what_results_are_made_of_comes_through_local_memory(name: str) -> None:
    source, shapes, meaning = RESIDUALS[name]
    program = bound(source, BF16, **shapes)
    sample = Sample(program, lambda x: (x["A"], x["B"]))
    rng = np.random.default_rng(0)  # integers, whose sums are exact
    inputs = {n: rng.integers(-1, 2, shape).astype(BF16.numpy) for n, shape in shapes.items()}
    operands = {n for n in shapes if n in "SV" or (name == "a factor" and n == "A")}
    assert {s.operand for s in plan_for(sample).stagings if s.level == 1} == {"R", *operands}
    stripe = scheduled(program, TEAMS)
    wanted = meaning({n: x.astype(np.float64) for n, x in inputs.items()})
    assert np.array_equal(run_kernels(stripe, TEAMS, inputs).astype(np.float64), wanted)


def test_what_results_meet_twice_comes_once() -> None:
    """A copy for each use took more local memory than there is."""
    source = f"function (A[M, K], B[N, K], S[M, N]) -> (R) {{ {MATMUL} Q = P * S; T = S * S; R = Q + T; }}"
    stripe = scheduled(bound(source, BF16, A=(64, 64), B=(96, 64), S=(64, 96)), TEAMS)
    (kernel,) = (k for k in kernels_of(stripe) if isinstance(k, Block))
    refs = [r for b in blocks_in(kernel) for r in b.refs]
    parts = {r.into for r in refs if r.dir is Direction.ALLOC and "_part" in r.into}
    assert len(parts) == 2, parts


@pytest.mark.parametrize(("k", "columns"), [(64, 128), (2048, 256)], ids=["short sums", "long sums"])
def test_groups_whose_results_take_long_share_a_core(k: int, columns: int) -> None:
    """Setting results is not beside anything in a lone group: where sums are short, two smaller ones are better."""
    source = (
        "function (A[N, C, P], B[O, C], S[N, O, P]) -> (R)"
        " { Q[n, o, p : N, O, P] = +(A[n, c, p] * B[o, c]); T = Q + S; R = (T > 0 ? T : 0); }"
    )
    program = bound(source, BF16, A=(32, k, 3136), B=(256, k), S=(32, 256, 3136))
    plan = plan_for(Sample(program, lambda x: (x["A"], x["B"])), BUSY_TEAMS)
    assert plan.tile("o", 0, 256) == columns


def test_results_that_take_longest_leave_in_pieces_of_two_sectors() -> None:
    """Rows of an instruction along memory leave in pieces of one: 17.0 µs instead of 14.6 on an H200. One step lies in local memory once."""
    plan = plan_for(matmul("nn", BF16, 2480, 2480, 56), BUSY_TEAMS)
    assert plan.instruction is not None and dict(plan.instruction.loops)["m"] == "i"
    assert {s.versions for s in plan.stagings if s.operand in "AB"} == {1}


@pytest.mark.parametrize(
    ("dtype", "taken"), [(BF16, True), (DType.FLOAT32, False)], ids=["of two bytes", "as fragments"]
)
def test_products_of_few_terms_are_what_storing_them_takes(dtype: DType, taken: bool) -> None:
    """Whole rows out of local memory 40 µs instead of 64 by items, fragments of float32 107 instead of 79 (an H200)."""
    view = view_of(matmul("nt", dtype, 8192, 8192, 16), BUSY_TEAMS)
    plan = next(TensorTile(faster=True).candidates(view, BUSY_TEAMS), None)
    assert (plan is not None) is taken


def test_pieces_of_results_are_whole_sectors() -> None:
    """Rows of an instruction follow images and pixels: four of these were parts of sectors, and took 256 µs instead of 128 on an H200."""
    source = """function (D[N, X, Y, C], K[I, J, O, C]) -> (R) {
        R[n, o, x, y : N, O, X / 2, Y / 2] = +(D[n, 2 * x + i - 3, 2 * y + j - 3, c] * K[i, j, o, c]); }"""
    sample = Sample(bound(source, F16, D=(32, 128, 128, 64), K=(7, 7, 64, 64)), lambda x: (x["D"], x["K"]))
    plan = plan_for(sample, BUSY_TEAMS)
    assert plan.tile("y", 0, 64) * F16.bytes >= 32


def test_results_of_shares_go_through_local_memory_whatever_the_kernel_calls_them() -> None:
    """The plan names what the whole kernel has, so that it fits an equal one, and may be given."""
    source = "function (D[K, P], G[O, K]) -> (R) { R[o, p : O, P] = +(D[k, p] * G[o, k]); }"
    sample = Sample(bound(source, BF16, D=(192, 49), G=(64, 192)), lambda x: (x["G"], x["D"]))
    view, scheduler = view_of(sample, BUSY_TEAMS), TensorTile()
    plan = next(p for p in scheduler.candidates(view, BUSY_TEAMS) if _shares_through_local_memory(p))
    new = other(view)
    there = renamed(plan, Names.of(view), Names.of(new))
    assert there is not None
    built, again = (scheduler.build(v, p, BUSY_TEAMS) for v, p in ((view, plan), (new, there)))
    assert structural_hash(built.kernel) == structural_hash(again.kernel)
    stripe, inputs = optimize_given(sample, BUSY_TEAMS, print_plans({"kernel_0": plan})), inputs_of(sample.program)
    near(run_kernels(stripe, BUSY_TEAMS, inputs), sample, inputs, whole, 1e-5)


def _shares_through_local_memory(plan: Plan) -> bool:
    kept = [s for s in plan.stagings if s.unit == "LOCAL"]
    return any(r.across is Across.GROUPS for r in plan.reductions) and len(kept) > 2


@pytest.mark.parametrize(("tail", "m"), [("R = -P;", 150), ("R = P + S;", 128)])
def test_rows_that_lie_side_by_side_leave_together(tail: str, m: int) -> None:
    """A sub-group has few of them: those of all sub-groups are set in one place, and what is added to them comes there."""
    source = f"function (A[M, K], B[N, K], S[N, M]) -> (R) {{ P[j, i : N, M] = +(A[i, k] * B[j, k]); {tail} }}"
    program = bound(source, BF16, A=(m, 64), B=(40, 64), S=(40, m))
    sample = Sample(program, lambda x: (x["B"], x["A"].T), lambda p, x: p + x["S"] if "S" in tail else -p)
    view = view_of(sample, TEAMS)
    plan = next(p for p in TensorTile().candidates(view, TEAMS) if p.instruction and ("m", "i") in p.instruction.loops)
    factors = tuple(s for s in plan.stagings if s.level == 2)
    given = (
        Staging("R", 1, "LOCAL", ("j", "i"), Scope.GROUP, 8),
        Staging("S", 1, "LOCAL", ("j", "i"), Scope.GROUP, 8, versions=3),
    )
    whole_plan = replace(plan, stagings=factors + given[: 1 + ("S" in tail)])
    stripe = optimize_given(sample, TEAMS, print_plans({view.name: whole_plan}))
    inputs = inputs_of(program)
    near(run_kernels(stripe, TEAMS, inputs), sample, inputs, whole, 1e-5)
