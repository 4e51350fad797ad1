"""Register tiles of products: which operands are copied, and that the copies keep the meaning."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from math import prod

import numpy as np
import pytest
from contraction_samples import contraction, p
from explain_support import compiled
from model_support import processor as reference
from program_samples import random_inputs
from tile_ir.dtype import DType
from tile_ir.machine import Cache, Machine, Pages, VectorUnit
from tile_ir.program.nodes import Param, Program, TensorType
from tile_ir.semtree.verify import OPTIONAL_NODES
from tile_ir.stripe.interpret import run
from tile_ir.stripe.nodes import Bind, Block
from tile_ir.stripe.walk import blocks_in
from tile_ir.target import HardwareSettings, PassConfig, Target
from tile_lang import bind, parse
from tile_lang.evaluate import evaluate
from tile_opt.blocks.tree import kernels_of
from tile_opt.kernel.segments import cover_masked
from tile_opt.kernel.view import open_kernel
from tile_opt.model.estimate import estimate
from tile_opt.pipeline import Scheduled, schedule
from tile_opt.plan.build import build_all
from tile_opt.plan.space.cpu.facts import Facts
from tile_opt.plan.space.cpu.tiles import Tile, fastest_cycles, tiles
from tile_opt.program import ConvertOnce
from tile_opt.translate import to_stripe

PASSES = tuple(PassConfig(n) for n in ("inline", "fuse", "merge", "accumulate", "schedule_kernels"))


def processor(cores: int, room: int = 1 << 20) -> Target:
    """Caches of `room` bytes, so that small operands lie afar."""
    caches = (Cache(1, room >> 5, latency=5, bandwidth=64), Cache(2, room, 16, latency=15, bandwidth=40),
              Cache(3, room << 4, 16, latency=150, bandwidth=12))  # fmt: skip
    settings = HardwareSettings(vector_bytes=64, registers=32, cores=cores, masks=True, l3_bytes=room << 4)
    machine = Machine(vector=VectorUnit(32, 64), caches=caches, cores=cores)
    return Target("processor", settings, nodes=OPTIONAL_NODES, passes=PASSES, machine=machine)


def product(m: int, k: int, n: int, *, rows: str = "ik", columns: str = "kj") -> Program:
    """``C[i, j] = +(A[rows] * B[columns])``."""
    sizes, x = dict(zip("ikj", (m, k, n), strict=True)), {name: p(**{name: 1}) for name in "ikj"}
    loads = [([x[c] for c in names], [sizes[c] for c in names]) for names in (rows, columns)]
    params = tuple(Param(name, TensorType(DType.FLOAT32, tuple(s))) for name, (_, s) in zip("AB", loads, strict=True))
    made = contraction(([x["i"], x["j"]], [m, n]), *loads, name="C")
    return Program("product", params, (made,), (("C", "C"),))


def scheduled(program: Program, target: Target) -> Scheduled:
    return schedule(to_stripe(program), target, verify=True)


def copied(made: Scheduled) -> set[str]:
    (decision,) = made.decisions.values()
    return {s.operand for s in decision.plan.stagings if s.unit != "REG"}


@pytest.mark.parametrize("cores", [1, 2, 16])
@pytest.mark.parametrize(("m", "k", "n"), [(771, 1024, 1534), (2048, 2048, 2048), (600, 3000, 700)])
def test_both_operands_are_copied_where_steps_go_from_page_to_page(m: int, k: int, n: int, cores: int) -> None:
    assert copied(scheduled(product(m, k, n, rows="ki"), processor(cores))) == {"A", "B"}


@pytest.mark.parametrize("cores", [1, 2])
def test_steps_from_page_to_page_are_copied_however_few_where_each_is_read_often(cores: int) -> None:
    assert copied(scheduled(product(1024, 32, 4096, rows="ki"), processor(cores))) == {"A", "B"}


def test_copies_of_long_operands_are_short_code() -> None:
    made = scheduled(product(771, 1024, 1534, rows="ki"), processor(2))
    blocks = [b for k in kernels_of(made.program) if isinstance(k, Block) for b in blocks_in(k)]
    straight = [prod(i.range for i in b.indexes if i.bind in (Bind.UNROLL, Bind.VECTOR)) for b in blocks]
    assert max(straight) <= 512


def test_an_operand_whose_steps_follow_each_other_stays_in_place() -> None:
    assert copied(scheduled(product(771, 1024, 1534), processor(2))) == {"B"}


@pytest.mark.parametrize("n", [40, 56, 64])
def test_an_operand_no_wider_than_a_tile_lies_in_sequence(n: int) -> None:
    assert copied(scheduled(product(40, 1800, n, rows="ki"), processor(1))) == set()


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize(("batch", "m", "k", "n"), [(31, 373, 512, 35), (20, 144, 144, 128), (64, 50, 300, 20)])
def test_lanes_along_a_batch_would_copy_each_operand_for_every_row_of_the_other(
    batch: int, m: int, k: int, n: int, cores: int
) -> None:
    z, i, j, d = (p(**{name: 1}) for name in "zijd")
    out, rows, columns = ([z, i, j], [batch, m, n]), ([z, i, d], [batch, m, k]), ([z, d, j], [batch, k, n])
    types = (TensorType(DType.FLOAT32, tuple(sizes)) for _, sizes in (rows, columns))
    params = tuple(Param(name, type) for name, type in zip("AB", types, strict=True))
    program = Program("batched", params, (contraction(out, rows, columns, name="C"),), (("C", "C"),))
    (decision,) = scheduled(program, processor(cores)).decisions.values()
    found = tiles(Facts(decision.view, processor(cores), 1))
    along = [t for t in found if t.vector == "z"]
    assert along and all(t.copied > batch * k * n * m / 2 for t in along)
    assert found[0].vector != "z"


@pytest.mark.parametrize(("m", "rows"), [(2, "ik"), (28, "ik"), (28, "ki"), (33, "ik")])
def test_few_rows_times_a_large_matrix_read_it_in_slabs_where_it_lies(m: int, rows: str) -> None:
    (decision,) = scheduled(product(m, 1721, 630, rows=rows), processor(2)).decisions.values()
    assert decision.plan.reason.startswith("slabs") and all(s.unit == "REG" for s in decision.plan.stagings)
    (grid,) = decision.plan.bound(Bind.GRID)
    assert [c.loop for c in grid.covers] == ["j"] and -(-630 // grid.covers[0].size) == 2
    side_by_side = max(c.size for level in decision.plan.levels for c in level.covers if c.loop == "k")
    assert side_by_side == (8 if m < 7 else 16), "few rows, which processors fetch ahead, and more where results weigh"


def test_what_is_small_or_used_often_or_lies_along_the_sum_is_not_read_in_slabs() -> None:
    for program in (product(28, 1721, 100), product(36, 1721, 630), product(28, 1721, 630, columns="jk")):
        (decision, *_) = scheduled(program, processor(2)).decisions.values()
        assert not decision.plan.reason.startswith("slabs")


@pytest.mark.parametrize("cores", [1, 3])
def test_slabs_keep_the_meaning(cores: int) -> None:
    program = product(5, 177, 300)
    made = scheduled(program, processor(cores, room=1 << 15))
    (decision,) = made.decisions.values()
    assert decision.plan.reason.startswith("slabs")
    inputs = random_inputs(program)
    np.testing.assert_allclose(run(made.program, inputs)["C"], evaluate(program, inputs)["C"], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("cores", [1, 2])
def test_a_small_operand_across_long_sums_is_copied_beside_a_large_one_along_them(cores: int) -> None:
    program, target = product(3, 530, 70, rows="ki", columns="jk"), processor(cores, room=1 << 17)
    target = replace(target, machine=replace(target.machine, caches=(Cache(1, 1 << 13), *target.machine.caches[1:])))
    made = scheduled(program, target)
    (decision,) = made.decisions.values()
    assert [r.loop for r in decision.plan.reductions] == ["k"] and copied(made) == {"A"}
    inputs = random_inputs(program)
    np.testing.assert_allclose(run(made.program, inputs)["C"], evaluate(program, inputs)["C"], rtol=1e-4, atol=1e-4)


def test_copies_of_both_operands_keep_the_meaning() -> None:
    program = product(50, 140, 130, rows="ki")
    target = processor(1, room=1 << 12)
    target = replace(target, machine=replace(target.machine, pages=Pages(256)))
    made = scheduled(program, target)
    assert copied(made) == {"A", "B"}
    inputs = random_inputs(program)
    np.testing.assert_allclose(run(made.program, inputs)["C"], evaluate(program, inputs)["C"], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("n", [400, 416, 449])
def test_rows_from_afar_are_read_in_long_runs(n: int) -> None:
    """The first look at each row is waited for: a tile's vectors lie side by side there."""
    near, afar = (scheduled(product(72, 120, n), processor(1, room)) for room in (1 << 22, 1 << 16))
    widths = [sum(c.size for level in plan.levels for c in level.covers if c.loop == "j" and c.size > 1) for plan in
              (next(iter(made.decisions.values())).plan for made in (near, afar))]  # fmt: skip
    assert widths[0] <= widths[1] == 64


@pytest.mark.parametrize("vectors", [1, 2, 3])
def test_masked_lanes_count_as_the_tiles_have_them(vectors: int) -> None:
    (kernel,) = kernels_of(to_stripe(product(8, 8, 64)))
    view = open_kernel(kernel) if isinstance(kernel, Block) else None
    assert view is not None
    facts = Facts(view, processor(1), 1 << 16)
    for extent in range(1, 100):
        made = cover_masked(0, extent, vectors * facts.lanes, facts.lanes)
        whole = sum(s.count * max(s.size, facts.lanes) for s in made)
        assert facts.slots(extent, vectors * facts.lanes) == whole


def test_tiles_are_tall_where_the_second_cache_delivers_the_vectors() -> None:
    """Three rows of four vectors would want a line of weights every one and a half cycles, more than there is."""
    source = (
        "function (I[N, X, Y, Z, C], K[U, V, W, C, O]) -> (R)"
        " { R[n, x, y, z, o : N, X, Y, Z, O] = +(I[n, x + u - 1, y + v - 1, z + w - 1, c] * K[u, v, w, c, o]); }"
    )
    made = compiled(source, reference("xeon", 2), I=(4, 12, 14, 14, 32), K=(3, 3, 3, 32, 64))
    (plan,) = made.plans.values()
    ((*_, rows),) = (level.covers for level in plan.bound(Bind.UNROLL))
    level = max(k for k, each in enumerate(plan.levels) if each.bind is Bind.NONE and each.cover(rows.loop))
    assert plan.tile(rows.loop, level, 14) >= 5


def test_weights_of_gathered_cells_are_kept_for_all_rows_that_share_them() -> None:
    """What is gathered is the kernel's own; one operand in memory alone is no product."""
    source = """function (Z[C, N], I[R, S], W[R, S], U[R, S]) -> (O) {
        G = gather(Z, as_int(I, 32), 1); H = gather(Z, as_int(I + 1, 32), 1); V = %s; O[c, r : C, R] = +(V[c, r, s]); }"""
    pairs = (1470, 4)
    for value, tiled in (("G * W + H * U", True), ("G * W", False)):
        made = compiled(source % value, reference("zen4"), Z=(64, 2500), I=pairs, W=pairs, U=pairs)
        assert any(d.plan.reason == "register tile" for d in made.decisions.values()) == tiled


@pytest.mark.parametrize(("m", "k", "n"), [(64, 64, 64), (200, 576, 100), (7, 512, 2048), (512, 27, 33)])
def test_the_fastest_tile_is_found_among_those_that_are_weighed_whole(m: int, k: int, n: int) -> None:
    (kernel,) = kernels_of(to_stripe(product(m, k, n)))
    assert isinstance(kernel, Block)
    view = open_kernel(kernel)
    assert view is not None
    target = processor(1)
    assert fastest_cycles(view, target) == tiles(Facts(view, target, 1))[0].cycles


def best(program: Program) -> Tile:
    *_, decision = scheduled(program, processor(1)).decisions.values()
    return tiles(Facts(decision.view, processor(1), 1))[0]


@pytest.mark.parametrize("m", [7, 11, 13])
@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.BFLOAT16, DType.INT8])
def test_what_is_converted_when_it_is_loaded_is_converted_for_all_rows_of_a_tile(m: int, dtype: DType) -> None:
    """Tiles of one row would convert it for each: as much work as the products."""
    text = "function (A[M, K], B[N, K]) -> (C) { W = as_float(B, 32); C[i, j : M, N] = +(A[i, k] * W[j, k]); }"
    program = bind(parse(text), {"A": TensorType(DType.FLOAT32, (m, 256)), "B": TensorType(dtype, (256, 256))})
    tile = best(ConvertOnce().apply(program))
    assert tile.vector == "k" and {n for n, _ in tile.rows} == {"i", "j"}


@pytest.mark.parametrize(("n", "vector"), [(4, "k"), (9, "k"), (16, "j"), (17, "k"), (24, "j")])
def test_columns_that_leave_lanes_empty_are_summed_along_the_rows(n: int, vector: str) -> None:
    assert best(product(256, 256, n)).vector == vector
    assert best(product(256, 256, n, columns="jk")).vector == vector


# --- few registers: sixteen of eight lanes ------------------------------------------------------------


def ranked(program: Program) -> list[Tile]:
    *_, decision = scheduled(program, narrow()).decisions.values()
    return tiles(Facts(decision.view, narrow(), 1))


def narrow() -> Target:
    made = processor(1)
    settings = replace(made.settings, vector_bytes=32, registers=16, masks=False)
    return replace(made, settings=settings, machine=replace(made.machine, vector=VectorUnit(16, 32)))


@pytest.mark.parametrize("sizes", [(480, 480, 480), (488, 488, 488), (96, 256, 64)])
def test_sums_of_a_tile_are_more_than_just_hide_their_latency(sizes: tuple[int, int, int]) -> None:
    """Where both take as long, whatever disturbs one is lost."""
    tile, ports = ranked(product(*sizes))[0], narrow().machine.ports
    assert tile.vectors * prod(n for _, n in tile.rows) > ports.fma * ports.fma_latency


def test_rows_that_are_left_over_wait_for_their_sums() -> None:
    """One row takes nearly as long as five: seven tiles of three rows are faster than four and one."""
    found = [(t.vectors, t.size("i")) for t in ranked(product(21, 256, 512)) if t.vector == "j"]
    assert found.index((3, 3)) < found.index((2, 5))


@pytest.mark.parametrize(("sizes", "rows"), [((33, 770, 218), "ki"), ((253, 805, 11), "ik")])
def test_products_of_a_few_million_steps_get_the_tile_that_caches_suit(sizes: tuple[int, int, int], rows: str) -> None:
    """Tiles differ by a quarter that their ranking takes for alike: rows of four vectors come from the second cache for each two rows."""
    made = scheduled(product(*sizes, rows=rows), narrow())
    (decision,) = made.decisions.values()
    plans = (decision.plan, *islice(decision.others(narrow()), 3))
    times = [estimate(build_all(decision.view, plan).kernel, narrow()).seconds for plan in plans]
    assert times[0] <= 1.05 * min(times) < max(times) / 1.15
