"""The model's lines and conflicts against a simulator of set-associative caches, on two machines that need not be here."""

from __future__ import annotations

from collections import Counter
from cProfile import Profile
from dataclasses import replace

import pytest
from cache_simulator import GAP, Sets, in_random_pages, misses, trace
from explain_support import COPY, MATMUL, SOFTMAX
from hypothesis import given, settings
from hypothesis import strategies as st
from model_support import kernel, machine, processor
from tile_ir.machine import Cache, Pages
from tile_ir.stripe.nodes import Block
from tile_ir.target import Target
from tile_opt.model.caches import traffic
from tile_opt.model.footprint import Box, footprint_sets, union
from tile_opt.model.scheduled import read
from tile_opt.plan.text import parse_plans

ROWS = "function (X[N, M]) -> (R) { R[i : N] = +(X[i, j]); }"
COLUMNS = "function (X[N, M]) -> (R) { R[j : M] = +(X[i, j]); }"
STENCIL = "function (A[H, W]) -> (B) { B[y, x : H, W] = +(A[y+i-1, x]), i < 3; }"
CONV = """function (D[N, X, Y, CI], K[I, J, CI, CO]) -> (O) {
    O[n, x, y, co : N, X, Y, CO] = +(D[n, x+i-1, y+j-1, ci] * K[i, j, ci, co]);
}"""
MACHINES = ("zen4", "xeon")

CASES = {
    "a panel whose rows are a power of two apart": (MATMUL, {"A": (12, 768), "B": (768, 1024)}),
    "the same, a line further apart": (MATMUL, {"A": (12, 768), "B": (768, 1040)}),
    "rows of four pages": (MATMUL, {"A": (12, 224), "B": (224, 4096)}),
    "all in the first level": (MATMUL, {"A": (24, 48), "B": (48, 64)}),
    "all in the second level": (MATMUL, {"A": (60, 120), "B": (120, 128)}),
    "a convolution": (CONV, {"D": (1, 16, 16, 16), "K": (3, 3, 16, 32)}),
    "row sums": (ROWS, {"X": (260, 600)}),
    "column sums": (COLUMNS, {"X": (160, 1000)}),
    "softmax": (SOFTMAX, {"A": (32, 1000)}),
    "a stencil": (STENCIL, {"A": (64, 1024)}),
    "a transpose": (COPY, {"A": (96, 160)}),
}


def huge(target: Target) -> Target:
    """The target with addresses that caches see as they are."""
    return replace(target, machine=replace(target.machine, pages=Pages(huge_from=1)))


IN_PLACE = """plan kernel_0 {
  grid j:64
  serial i:6
  serial k:1
  unroll i:1
  vector j:1 x16
}"""
"""A product of matrices that reads its operands where they are."""


def fetched(block: Block, target: Target) -> list[float]:
    """Lines that the model expects the first two levels to fetch."""
    counts = [c for lines in traffic(read(block), target.machine).values() for c in lines.values()]
    return [sum(c[level] for c in counts) for level in (0, 1)]


@pytest.mark.diagonal(4)
@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("case", CASES)
def test_lines_are_those_of_a_simulator(name: str, case: str) -> None:
    source, shapes = CASES[case]
    target = huge(processor(name))
    block = kernel(source, target, parse_plans(IN_PLACE if source == MATMUL else ""), **shapes)
    model, simulated = fetched(block, target), misses(trace(block), target.machine.caches[:2])
    for lines, right in zip(model, simulated, strict=True):
        assert right / 1.4 - 40 <= lines <= right * 1.4 + 40, (model, simulated)


@pytest.mark.diagonal(2)
@pytest.mark.parametrize("name", MACHINES)
def test_a_power_of_two_loses_the_panel_and_a_line_of_padding_keeps_it(name: str) -> None:
    target = huge(processor(name))
    ways = target.machine.caches[1].ways
    rows = 64 * ways  # of 4 KB: every line falls into one of 32 sets per 128 KB
    plans = parse_plans(IN_PLACE)
    lost, kept = (fetched(kernel(MATMUL, target, plans, A=(12, rows), B=(rows, n)), target)[1] for n in (1024, 1040))
    assert lost > 1.5 * kept


@pytest.mark.parametrize("name", MACHINES)
def test_of_a_level_that_others_use_less_stays_than_of_one_alone(name: str) -> None:
    """Of walks in a circle all is lost from `loses` times the size on, nothing below `keeps`, and more and more in between."""
    target = processor(name)
    *near, last = target.machine.caches

    def lost(share: float, keeps: float, loses: float) -> float:
        levels = (*near, replace(last, bytes=4 << 20, keeps=keeps, loses=loses))
        block = kernel(ROWS, target, X=(256, int(4 * 1024 * share)))
        found = traffic(read(block), replace(target.machine, caches=levels))
        return sum(c[2] for lines in found.values() for c in lines.values()) * last.line / (4 << 20) / share

    alone, others = ([lost(share, *level) for share in (0.25, 0.5, 0.9, 1.5)] for level in ((0.6, 1.4), (0.3, 1.2)))
    assert alone[:2] == [0, 0] and others[0] == 0 and 0.1 < others[1] < others[2] < 1
    assert alone[2] < others[2] and alone[3] > 0.95 and others[3] > 0.95


TRANSPOSE = "function (A[N, M]) -> (O) { O[j, i : M, N] = =(A[i, j]); }"
IN_REGISTERS = """plan kernel_0 {{
  {copy}
  serial i:{rows}
  serial j:16
    stage A in REG as [i, j]
  unroll j:1
  vector i:1 x{rows}
}}"""
COPIED = """serial j:48
  serial i:96
    stage O in L1 as [j, i] pad 16
"""


def fetched_again(block: Block, cache: Cache, buffer: int) -> float:
    """How often a level fetches each line of a buffer, on average: they are numbered as the kernel names them."""
    lines, start = trace(block) // cache.line, (buffer + 1) * GAP // cache.line
    found = [n for n in Sets(cache).fetched(lines.tolist()) if start <= n < start + GAP // cache.line]
    return len(found) / len(set(found))


@pytest.mark.parametrize("name", MACHINES)
def test_operands_whose_rows_share_a_set_are_fetched_once_where_a_tile_has_few_of_them(name: str) -> None:
    """Rows of 4,100 bytes: a tile of 16 loses the line that the next tile goes on with, one of 8 keeps it."""
    target = huge(processor(name))
    plans = [parse_plans(IN_REGISTERS.format(copy="", rows=rows)) for rows in (16, 8)]
    many, few = (
        fetched_again(kernel(TRANSPOSE, target, plan, A=(32, 1025)), target.machine.caches[0], 0) for plan in plans
    )
    assert few < 1.3 < 1.6 < many


@pytest.mark.parametrize("name", MACHINES)
def test_results_whose_rows_share_a_set_are_fetched_once_where_a_copy_stores_whole_rows(name: str) -> None:
    target = huge(processor(name))
    plans = [parse_plans(IN_REGISTERS.format(copy=copy, rows=16)) for copy in ("", COPIED)]
    tiles, copied = (
        fetched_again(kernel(TRANSPOSE, target, plan, A=(1025, 48)), target.machine.caches[0], 1) for plan in plans
    )
    assert copied < 1.3 < 1.6 < tiles


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([c for name in MACHINES for c in machine(name).caches[:2]]),
    st.integers(1, 3000), st.integers(1, 600), st.sampled_from([0, 0, 4, 64, 192]), st.integers(1, 512),
)  # fmt: skip
def test_sets_are_counted_row_by_row(cache: Cache, rows: int, lines: int, more: int, run: int) -> None:
    stride = lines * 64 * (64 if more in (0, 4) else 1) + more
    run = min(run, stride - 63)  # no two rows share a line
    touched = [at for r in range(rows) for at in range(r * stride // 64, (r * stride + run - 1) // 64 + 1)]
    sets = Counter(line % (cache.bytes // cache.line // cache.ways) for line in touched)
    sharing = sum(n * n for n in sets.values()) / len(touched)
    assert footprint_sets(rows, stride, run, cache) == pytest.approx(sharing / cache.ways)


def test_rows_beside_a_power_of_two_crowd_few_sets() -> None:
    cache = machine("zen4").caches[0]
    assert footprint_sets(176, 2052, 64, cache, 4096) > 1.5 > 1.0 > footprint_sets(176, 2892, 64, cache, 4096)


def test_very_many_rows_fall_into_all_sets() -> None:
    """More rows than are looked at one by one, beside each other in a large page: no set has more than its share.

    Most rows touch a further line.
    """
    cache = machine("zen4").caches[-1]
    rows, stride = 58_057, 300
    assert footprint_sets(rows, stride, stride, cache) < 1.3 * rows * stride / cache.bytes


def test_small_pages_are_spread_over_the_sets() -> None:
    cache = machine("xeon").caches[1]
    exact, spread = (footprint_sets(1024, 4096, 256, cache, page) for page in (0, 4096))
    assert exact == pytest.approx(2.0) and spread == pytest.approx(2.0)
    exact, spread = (footprint_sets(512, 1 << 17, 64, cache, page) for page in (0, 4096))
    assert exact == pytest.approx(32.0) and spread == pytest.approx(1.0)


@pytest.mark.parametrize("name", MACHINES)
def test_random_pages_lose_about_what_the_expectation_says(name: str) -> None:
    target = processor(name)
    block = kernel(MATMUL, target, parse_plans(IN_PLACE), A=(12, 128), B=(128, 1024))
    counts = [c for lines in traffic(read(block), target.machine).values() for c in lines.values()]
    simulated = misses(in_random_pages(trace(block), 4096), target.machine.caches[:2])
    assert simulated[1] - 2500 <= sum(c[1] for c in counts) <= simulated[1] + 2500


@pytest.mark.diagonal(2)
@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize(("rows", "columns"), [(300, 1024), (40, 1024), (700, 1024)])
def test_translations_are_those_of_a_simulator(name: str, rows: int, columns: int) -> None:
    target = processor(name)
    small = replace(machine(name).pages, huge_from=0)
    target = replace(target, machine=replace(target.machine, pages=small))
    block = kernel(MATMUL, target, parse_plans(IN_PLACE), A=(12, rows), B=(rows, columns))
    counts = [c for lines in traffic(read(block), target.machine).values() for c in lines.values()]
    levels = [Cache(1, t.entries * 4096, t.entries, 4096) for t in target.machine.pages.tlbs]
    simulated = misses(trace(block), levels)
    model = [sum(c[3 + n] for c in counts if len(c) > 3) for n in range(len(levels))]
    for found, right in zip(model, simulated, strict=True):
        assert right / 1.5 - 200 <= found <= right * 1.5 + 200, (model, simulated)


def test_translations_fall_into_no_sets() -> None:
    """A page of each of 50 rows, again and again, is what 72 translations hold, however the rows lie."""
    target = processor("zen4")
    target = replace(target, machine=replace(target.machine, pages=replace(target.machine.pages, huge_from=0)))
    plan = parse_plans("plan kernel_0 {\n  serial j:16\n  serial i:1\n  vector j:1 x16\n}")
    lines = traffic(read(kernel(COLUMNS, target, plan, X=(50, 2048))), target.machine)
    assert sum(c[3] for buffers in lines.values() for c in buffers.values() if len(c) > 3) < 1000


def test_fewer_rows_further_on_are_rows_of_their_own() -> None:
    """Eight rows of a tile, and the four of the last one: they lie apart, in whichever order they are looked at."""
    boxes = [Box(0, 640, ((24_000, 8),)), Box(24_000 * 896, 640, ((24_000, 4),))]
    assert sum(b.lines(64) for b in union(boxes, 64)) == sum(b.lines(64) for b in boxes)
    assert union([*boxes, Box(24_000 * 8, 640, ((24_000, 2),))], 64)[0] == Box(0, 640, ((24_000, 10),))


def test_what_a_block_touches_is_found_once() -> None:
    """Of five blocks and six accesses: each that one block alone has is taken over by the blocks around it."""
    source, shapes = CASES["a convolution"]
    target, profile = processor("zen4"), Profile()
    tree = read(kernel(source, target, {}, **shapes))
    profile.runcall(traffic, tree, target.machine)
    found = sum(e.callcount for e in profile.getstats() if getattr(e.code, "co_name", "") == "box")
    assert found < 2 * sum(len(t.accesses) for t in tree.walk())
