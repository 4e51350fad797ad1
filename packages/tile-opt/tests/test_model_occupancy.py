"""Groups on multiprocessors: how many are held at once, in which rounds they run, and what their accesses take."""

from __future__ import annotations

import pytest
from explain_support import MULTIPROCESSOR
from tile_ir.stripe.parser import parse_block
from tile_opt.model.arithmetic import Work, straight_line
from tile_opt.model.occupancy import LONELY, hindrance, resident, rounds
from tile_opt.model.scheduled import read

KERNEL = """0: #kernel #scheduled block [g:4 #grid] ( // kernel
    in<DRAM> A[0] float32(65536:1)
    out<DRAM> B[0] float32(65536:1) {{align=128}}
) {{
  0: block [g = g, i:256 #group] ( // items
      in<DRAM> A[{at}] float32(1:1)
      out<DRAM> B[256*g + i] float32(1:1) {{align=128}}
  ) {{
    0: $a = load(A)
    1: $b = {op}($a):float32
    2: B = store($b)
  }}
}}
"""


def work(op: str = "neg", at: str = "256*g + i") -> Work:
    """Of what an item does."""
    (items,) = read(parse_block(KERNEL.format(op=op, at=at))).inner
    return straight_line(items, MULTIPROCESSOR)


@pytest.mark.parametrize(
    ("items", "registers", "local", "held"),
    [(128, 132, 0, 3), (128, 128, 0, 4), (100, 128, 0, 4), (256, 24, 0, 8), (128, 64, 56 << 10, 4), (1024, 80, 0, 0)],
)
def test_registers_items_and_local_memory_bound_what_is_held(items: int, registers: int, local: int, held: int) -> None:
    """Registers are given out by eights, items by sub-groups, and a group takes some local memory for itself."""
    assert resident(items, registers, local, MULTIPROCESSOR) == held


def test_a_last_round_has_the_groups_that_are_left() -> None:
    cores = MULTIPROCESSOR.cores
    assert list(rounds(cores, 3, MULTIPROCESSOR)) == [(1, 1)]
    assert list(rounds(3 * cores + 1, 3, MULTIPROCESSOR)) == [(1, 3), (1, 1)]
    assert list(rounds(2 * cores + 1, 2, MULTIPROCESSOR)) == [(1, 2), (1, 2)]  # two at once do not spread evenly


def test_sub_groups_keep_their_slots() -> None:
    """Three on four slots leave one idle; nobody covers for a group that waits for itself."""
    assert hindrance(3, 1, MULTIPROCESSOR) == pytest.approx(4 / 3)
    assert hindrance(2, 4, MULTIPROCESSOR) == 1
    assert hindrance(1, 8, MULTIPROCESSOR) == LONELY


def test_a_cast_to_the_same_type_is_no_instruction() -> None:
    assert work("cast").issue < work("neg").issue


def test_each_line_that_a_sub_group_reads_takes_a_turn() -> None:
    """One element of each of 32 lines: as many turns as lines, though sectors of them would pass in fewer."""
    assert work(at="32*i").load - work().load == 31
