"""Operands that stay in a bank of local memory from one iteration of a schedule to a later one."""

from __future__ import annotations

from collections import Counter
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from program_samples import random_inputs
from slides_support import SCHEDULE, bound, config, local_allocations, same_results
from test_slides_passes import main_text
from tile_ir.dtype import DType
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Block, Direction, Index, Order, Program, Refinement, TensorType
from tile_ir.stripe.parser import parse_program
from tile_ir.stripe.walk import blocks_in
from tile_ir.target import Target
from tile_opt.blocks.residence import Links, residence
from tile_opt.blocks.tree import main_of
from tile_opt.passes.accelerator.memory_placement import size_of
from tile_opt.pipeline import optimize
from tile_opt.translate import to_stripe

MATMUL = bound("function (A[M, K], B[K, N]) -> (R) { R[i, j : M, N] = +(A[i, k] * B[k, j]); }", A=(12, 4), B=(4, 8))


def machine(network: int, banks: int = 2) -> dict[str, Any]:
    """A model with a DMA engine of 8 bytes a cycle and a network of `network` between the banks."""
    srams = [f"SRAM[{k}]" for k in range(banks)]
    ways = [("DRAM[0]", "DMA[0]", 8), ("DMA[0]", "DRAM[0]", 8), ("DMA[0]", srams, 8), (srams, "DMA[0]", 8)]
    ways += [(srams, "NOC[0]", network), ("NOC[0]", srams, network)]
    return {
        "clock_mhz": 1,
        "mem_units": {"DRAM": {"count": 1, "size_KiB": 64}, "SRAM": {"count": banks, "size_KiB": 1}},
        "exec_units": {"DSP": {"count": banks, "ops_per_cycle": 1}},
        "tx_units": {"DMA": {"count": 1}, "NOC": {"count": 1}},
        "buses": [{"sources": a, "sinks": b, "bytes_per_cycle": n} for a, b, n in ways],
    }


def tiled(sizes: dict[str, int], model: dict[str, Any] | None = None, **options: Any) -> Program:
    """MATMUL in tiles of these sizes, scheduled; it still gives what it gave."""
    steps = (
        config("unstage"), config("locate_block", reqs=("kernel",), loc="DSP"),
        config("tile", reqs=("agg_op_add",), sizes=sizes, outer_set=("tiled",)), config("prune"),
        config("schedule", reqs=("tiled",), **{**SCHEDULE, "mem_KiB": 1, "num_banks": 2, "pipeline_depth": 2, **options}),
    )  # fmt: skip
    before = to_stripe(MATMUL)
    after = optimize(before, Target("t", model=model or {}), passes=steps, verify=True)
    same_results(before, after, random_inputs(MATMUL))
    return after


def nest_of(program: Program) -> Block:
    return next(b for b in blocks_in(main_of(program)) if "tiled" in b.tags)


def transfers(program: Program) -> Counter[str]:
    """How often each buffer is moved, over all iterations; "B by NOC" where the unit is not the DMA engine."""
    nest, counts = nest_of(program), Counter[str]()
    loops = {i.name: range(i.range) for i in nest.indexes}
    for point in product(*loops.values()):
        env = dict(zip(loops, point, strict=True))
        for statement in nest.body:
            unit = getattr(statement, "unit", "") or (
                statement.loc.unit if isinstance(statement, Block) and statement.loc else ""
            )
            if unit in ("DMA", "NOC") and all(g.evaluate(env) >= 0 for g in getattr(statement, "guard", ())):
                source = (
                    statement.src
                    if hasattr(statement, "src")
                    else next(r.source for r in statement.refs if r.dir is Direction.IN)
                )
                counts[source if unit == "DMA" else f"{source} by {unit}"] += 1
    return counts


def test_an_operand_that_no_loop_moves_comes_to_each_bank_once() -> None:
    always, kept = tiled({"i": 2}, resident=False), tiled({"i": 2})
    assert transfers(always) == {"A": 6, "B": 6, "R_SRAM": 6}
    assert transfers(kept) == {"A": 6, "B": 2, "R_SRAM": 6}
    (home,) = [
        r
        for r in local_allocations(main_of(kept))
        if r.into not in {x.into for x in nest_of(kept).refs if not x.source}
    ]
    assert home.versions == 2, "one copy in each of two banks: nothing is loaded behind it"
    assert all(i.order is Order.ORDERED for i in nest_of(kept).indexes), "iterations leave it to later ones"


def test_an_operand_that_an_outer_loop_moves_comes_to_each_bank_once_per_turn_of_that_loop() -> None:
    kept = tiled({"i": 4, "j": 2})
    assert [(i.name, i.range) for i in nest_of(kept).indexes] == [("i", 3), ("j", 4)]
    assert transfers(kept) == {"A": 6, "B": 12, "R_SRAM": 12}, "3 rows of tiles in 2 banks"


def test_an_operand_that_the_bank_decides_stays_for_good() -> None:
    kept = tiled({"i": 2, "j": 4})
    assert [(i.name, i.range) for i in nest_of(kept).indexes] == [("i", 6), ("j", 2)]
    assert transfers(kept) == {"A": 12, "B": 2, "R_SRAM": 12}, "each bank sees one column of tiles"


def test_the_loops_run_in_the_order_that_moves_the_least() -> None:
    """By rows A would come 12 times of 32 bytes and B 18 times of 48, by columns it is 18 and 6 times."""
    by_columns = tiled({"i": 2, "j": 3})
    assert [(i.name, i.range) for i in nest_of(by_columns).indexes] == [("j", 3), ("i", 6)]
    assert transfers(by_columns) == {"A": 18, "B": 6, "R_SRAM": 18}


def test_what_stays_must_fit_beside_the_rest() -> None:
    """B takes 128 bytes, two copies of the tiles of A and R 192; two copies of all three would be 448."""
    for room, resident, loads in ((448, True, 2), (448, False, 6), (320, True, 2), (320, False, 0), (304, True, 0)):
        made = tiled({"i": 2}, mem_KiB=room / 1024, resident=resident)
        assert transfers(made)["B"] == loads
        homes = {r.into for b in blocks_in(main_of(made)) if "resident" in b.tags for r in b.refs}
        spans = [r.offset + size_of(r) // (2 if r.into in homes else 1) for r in local_allocations(main_of(made))]
        assert max(spans, default=0) <= room and bool(spans) is bool(loads)


@pytest.mark.parametrize("source", ["in T[0]", "in U[0]"])
def test_an_operand_that_iterations_write_does_not_stay(source: str) -> None:
    kernel = f"""#kernel block<DSP> [i:64] ( in A[i] f32(1:1) out T[i] f32(1:1) ) {{ $a = load(A) T = store($a) }}
      #kernel block<DSP> [i:64] ( in A[i] f32(1:1) out U[i] f32(1:1) ) {{ $a = load(A) U = store($a) }}
      #tiled block [o:7] ( {source} as X f32(8:1) out T[8*o + 8] f32(8:1) out B[8*o] f32(8:1) ) {{
        block<DSP> [i:8] ( in X[i] f32(1:1) out T[i] f32(1:1) out B[i] f32(1:1) ) {{ $x = load(X) T = store($x) B = store($x) }} }}
      #kernel block<DSP> [i:8] ( in T[i] f32(1:1) out B[i + 56] f32(1:1) ) {{ $t = load(T) B = store($t) }}"""
    text = main_text(kernel.replace(f"{source} as X", f"in X = {source[3:]}"), "T", "U")
    before = parse_program(text)
    after = optimize(before, Target("t"), passes=[config("schedule", reqs=("tiled",), **SCHEDULE)], verify=True)
    assert any("resident" in b.tags for b in blocks_in(after.entry)) is (source == "in U[0]")


@pytest.mark.parametrize(("network", "shared"), [(64, True), (8, False), (4, False)])
def test_banks_give_each_other_what_they_share_where_that_is_faster(network: int, shared: bool) -> None:
    made = tiled({"i": 2}, machine(network))
    assert transfers(made)["B"] == (1 if shared else 2)
    assert transfers(made)["B_SRAM_first by NOC"] == (1 if shared else 0)


def test_neighbouring_banks_share_an_operand_that_changes_too_soon_to_stay() -> None:
    """Four banks, runs of two tiles: no bank sees a tile of A twice in a row, but each is loaded only once."""
    made = tiled({"i": 2, "j": 4}, machine(64, banks=4), num_banks=4)
    loads = transfers(made)
    assert loads["A"] + loads["A_SRAM_first by NOC"] == 12
    assert loads["B"] + loads["B_SRAM_first by NOC"] <= 12 and loads["A"] + loads["B"] <= 8


def test_a_model_with_other_banks_than_the_schedule_keeps_every_load() -> None:
    assert transfers(tiled({"i": 2}, machine(64, banks=3)))["B"] == 6


@settings(max_examples=300)
@given(
    st.lists(st.tuples(st.integers(1, 5), st.booleans()), min_size=1, max_size=4),
    st.integers(1, 8), st.integers(1, 3), st.booleans(),
)  # fmt: skip
def test_every_iteration_finds_its_view_in_its_own_bank(
    dims: list[tuple[int, bool]], banks: int, depth: int, near: bool
) -> None:
    loops = [Index(f"i{k}", n) for k, (n, _) in enumerate(dims)]
    names = [i.name for i, (_, named) in zip(loops, dims, strict=True) if named]
    ref = Refinement(
        Direction.IN, "A", "A", tuple(map(Affine.var, names)), TensorType.row_major(DType.INT8, (1,) * len(names))
    )
    links = Links(banks, "NOC", 0.1) if near else Links(banks)
    found = residence(ref, loops, links, depth)
    if found is None:
        return
    held: dict[int, tuple[int, ...]] = {}
    moved = Counter[str]()
    for time, point in enumerate(product(*(range(i.range) for i in loops))):
        env = {i.name: v for i, v in zip(loops, point, strict=True)}
        copy, first = (f.evaluate(env) % (banks * found.copies) for f in (found.copy, found.first))
        assert copy % banks == time % banks
        if all(g.evaluate(env) >= 0 for g in found.load_guard(links)):
            held[copy] = tuple(env[n] for n in names)
            moved["far"] += 1
        elif near and all(g.evaluate(env) >= 0 for g in found.pass_guard()):
            assert first % banks != copy % banks
            held[copy] = held[first]
            moved["near"] += 1
        assert held[copy] == tuple(env[n] for n in names)
    assert moved["far"] + 0.1 * moved["near"] == pytest.approx(found.cost(links))
    assert moved["far"] < time + 1
