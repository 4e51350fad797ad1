"""Lines that two cores write: pieces of rows that end within a line, whole lines, and whole rows."""

from __future__ import annotations

import pytest
from model_support import kernel, processor
from tile_opt.model.caches import dealt
from tile_opt.model.scheduled import read
from tile_opt.model.sharing import AT_ONCE, contended
from tile_opt.plan.text import parse_plans

PRODUCT = "function (A[M, L], B[L, N]) -> (C) { C[i, j : M, N] = +(A[i, k] * B[k, j]); }"
PLAN = """plan kernel_0 {{
  grid {dealt}
  serial i:4
  serial k:1
  unroll i:1
  vector j:1 x16
}}"""
TARGET = processor("xeon", 2)
ROWS = 40


def seconds(dealt: str, columns: int) -> float:
    block = kernel(PRODUCT, TARGET, parse_plans(PLAN.format(dealt=dealt)), A=(ROWS, 8), B=(8, columns))
    return contended(read(block), TARGET.machine, 2)


def test_pieces_that_end_within_a_line_go_from_core_to_core() -> None:
    """Both ends of a core's piece of each row; rows of 88 bytes begin anywhere but for their multiples of 8."""
    machine = TARGET.machine
    transfer = machine.caches[-1].latency / (machine.clock_ghz * 1e9) / AT_ONCE
    assert seconds("j:16", 22) == pytest.approx(2 * ROWS * (64 - 8) / 64 * transfer)


@pytest.mark.parametrize(("dealt", "columns"), [("j:16", 32), ("i:20", 22), ("i:4", 22)])
def test_whole_lines_and_whole_rows_stay_with_their_core(dealt: str, columns: int) -> None:
    assert seconds(dealt, columns) == 0


def test_rows_within_a_line_share_its_way() -> None:
    """Three columns on two cores: each line of five rows travels once, not with every row."""
    source = "function (A[M, N]) -> (O) { O[j, i : N, M] = =(A[i, j]); }"
    plans = parse_plans("plan kernel_0 {\n  grid i:1\n  vector j:1 x16\n}")
    block, machine = kernel(source, TARGET, plans, A=(3, 1600)), TARGET.machine
    transfer = machine.caches[-1].latency / (machine.clock_ghz * 1e9) / AT_ONCE
    assert 0 < contended(read(block), machine, 2) <= 2 * 3 * 1600 * 4 / 64 * transfer


def test_one_core_shares_with_nobody() -> None:
    block = kernel(PRODUCT, TARGET, parse_plans(PLAN.format(dealt="j:16")), A=(ROWS, 8), B=(8, 22))
    assert contended(read(block), TARGET.machine, 1) == 0


@pytest.mark.parametrize(
    ("cores", "loop", "parts"), [(2, "i_g", 2), (4, "i_g", 4), (8, "j_g", 2), (16, "j_g", 4), (99, "j_g", 4)]
)
def test_each_core_takes_a_run_of_groups(cores: int, loop: str, parts: int) -> None:
    """Four times four groups: halves are of the outer loop, so each core reads all that the inner one moves."""
    tree = read(kernel(PRODUCT, TARGET, parse_plans(PLAN.format(dealt="i:8 j:16")), A=(32, 8), B=(8, 64)))
    found = dealt(tree, cores)
    assert found is not None
    assert (found[0].name.split(".")[0], found[1]) == (loop, parts)
