"""Groups on multiprocessors: how many are held at once, in which rounds they run, and what their accesses take."""

from __future__ import annotations

from dataclasses import replace

import pytest
from explain_support import MULTIPROCESSOR
from tile_ir.machine import Machine
from tile_ir.stripe.parser import parse_block
from tile_opt.model.arithmetic import Work, straight_line
from tile_opt.model.causes import Estimate
from tile_opt.model.coalescing import sent
from tile_opt.model.multiprocessor import _asked, _sent, _sub_groups, on_multiprocessors
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


STORED = """0: #kernel #scheduled block [g:4 #grid] ( // kernel
    in<DRAM> A[0] float32(65536:1)
    out<DRAM> B[0] float32(65536:1) {{align=128}}
) {{
  0: block [g = g, i:32 #group, u:8 #{bind}] ( // items
      in<DRAM> A[i] float32(1:1)
      out<DRAM> B[{at}] float32(1:1) {{align=4}}
  ) {{
    0: $a = load(A)
    1: B = store($a)
  }}
}}
"""
"""Items that store eight elements each, a kilobyte in all."""


TOGETHER = """0: #kernel #scheduled block [g:4 #grid] ( // kernel
    in<DRAM> A[0, 0] float16(64:16, 16:1) {align=128}
    none new@0x00000000<LOCAL:group> A_local[0, 0] float16(16:16, 16:1) {align=16}
    none new@0x00000000<REG:subgroup> A_fragments[0, 0] float16(16:16, 16:1) {align=16, fragment={lane=[4*(d0%8), d1/2, -4*(d1/8)], register=[2*(d0/8), d1%2, 4*(d1/8)]}}
) {
  0: block [g = g, warp:2 #subgroup] ( // warps
      in<DRAM> A[16*g, 0] float16(16:16, 16:1) {align=16}
      inout<LOCAL:group> A_local[0, 0] float16(16:16, 16:1) {align=16}
      inout<REG:subgroup> A_fragments[0, 0] float16(16:16, 16:1) {align=16, fragment={lane=[4*(d0%8), d1/2, -4*(d1/8)], register=[2*(d0/8), d1%2, 4*(d1/8)]}}
  ) {
    0: block [lane:32 #lane] ( // copy
        in<DRAM> src = A[lane/2, 8*(lane%2)] float16(1:16, 8:1)
        out<LOCAL:group> dst = A_local[lane/2, 8*(lane%2)] float16(1:16, 8:1) {align=16}
    ) {
      0: dst = transfer(src)
    }
    1: block [row:16, column:16] instr "matrix_load(row:16, column:16)" ( // load
        in<LOCAL:group> src = A_local[row, column] float16(1:16, 1:1) {align=16}
        out<REG:subgroup> dst = A_fragments[row, column] float16(1:16, 1:1) {align=16, fragment={lane=[4*(d0%8), d1/2, -4*(d1/8)], register=[2*(d0/8), d1%2, 4*(d1/8)]}}
    ) {
      0: $x = load(src)
      1: dst = store($x)
    }
  }
}
"""
"""A copy past registers, and what the lanes of a sub-group load together."""


def work(op: str = "neg", at: str = "256*g + i", machine: Machine = MULTIPROCESSOR) -> Work:
    """Of what an item does."""
    (items,) = read(parse_block(KERNEL.format(op=op, at=at))).inner
    return straight_line(items, machine)


def asked(at: str, machine: Machine) -> float:
    """Share of the traffic of groups that read what `at` says that is left where one at once is on each multiprocessor."""
    tree = read(parse_block(KERNEL.format(op="neg", at=at)))
    (buffer,) = {a.buffer for t in tree.walk() for a in t.accesses.values() if a.reads}
    return _asked(buffer, tree, machine, 1)


def causes(machine: Machine, at: str) -> dict[str, float]:
    """Seconds by cause of groups that read what `at` says."""
    kernel = parse_block(KERNEL.format(op="neg", at=at))
    return {c.name: c.seconds for c in on_multiprocessors(read(kernel), machine).causes}


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


def test_signs_are_part_of_what_takes_them() -> None:
    machine = replace(MULTIPROCESSOR, functions=replace(MULTIPROCESSOR.functions, sign=0))
    assert work("neg", machine=machine).issue == work("cast").issue == work("neg").issue - 1


def test_copies_past_registers_and_loads_of_matrices_take_their_bytes_turns() -> None:
    """Half a kilobyte each, by instructions of one sub-group."""
    (warps,) = read(parse_block(TOGETHER)).inner
    for block in warps.inner:
        found = straight_line(block, MULTIPROCESSOR)
        assert found.load == 4 and 0 < found.issue < 8
    assert warps.inner[1].passes * _sub_groups(warps.inner[1], MULTIPROCESSOR.occupancy) == 4 * 2


def test_what_groups_ask_for_together_is_answered_together() -> None:
    """Four groups at once on four multiprocessors read the same, or each its own."""
    near, last = MULTIPROCESSOR.caches
    merging = replace(MULTIPROCESSOR, cores=4, caches=(near, replace(last, merged=0.5)))
    assert asked("i", merging) == 1 - 0.5 * 3 / 4
    assert asked("256*g + i", merging) == pytest.approx(1)
    assert asked("i", replace(merging, caches=(near, last))) == 1


@pytest.mark.parametrize(
    ("at", "bind", "sectors"),
    [
        ("256*g + 32*u + i", "unroll", 8 * 4),
        ("256*g + 8*i + u", "unroll", 8 * 32),
        ("256*g + 8*i + u", "vector(lanes=4)", 2 * 32),
        ("256*g + 8*i + u + 1", "vector(lanes=4)", 8 * 32),
    ],
)
def test_each_store_sends_the_sectors_that_it_touches(at: str, bind: str, sectors: int) -> None:
    """Neighbours side by side fill them; items that keep neighbours of their own send each in parts, vectors where they are aligned."""
    tree = read(parse_block(STORED.format(at=at, bind=bind)))
    (items,) = tree.inner
    (stored,) = (a for a in items.accesses.values() if a.writes)
    assert sent(stored, items, MULTIPROCESSOR) == sectors
    assert _sent(tree, MULTIPROCESSOR) == 4 * sectors


def test_sectors_that_are_stored_in_parts_take_their_time() -> None:
    """Eight times as many on the way to the last cache; what is fetched is the same."""
    ways = ("256*g + 32*u + i", "256*g + 8*i + u")
    kernels = [read(parse_block(STORED.format(at=at, bind="unroll"))) for at in ways]
    whole, parts = (on_multiprocessors(tree, MULTIPROCESSOR) for tree in kernels)
    assert _moved(parts) > 4 * _moved(whole) and parts.traffic == whole.traffic


def _moved(estimate: Estimate) -> float:
    """Megabytes between near caches and the last."""
    return next(float(c.note.split()[0]) for c in estimate.causes if c.name == "L2")


def test_beside_products_of_rounded_factors_functions_are_the_processors_own() -> None:
    """On fragments an exponential is two instructions; everywhere else it is as exact as in other kernels."""
    own = replace(MULTIPROCESSOR, functions=replace(MULTIPROCESSOR.functions, approximate=2, others=0))
    lanes = parse_block(KERNEL.format(op="exp", at="32*g + i").replace("i:256 #group", "i:32 #lane"))
    found = {m: straight_line(read(lanes).inner[0], m) for m in (own, MULTIPROCESSOR)}
    assert (found[own].shuffle, found[own].fma) == (2, 0)
    assert found[MULTIPROCESSOR].fma == MULTIPROCESSOR.functions.exp == work("exp", machine=own).fma


def test_nothing_hides_how_a_kernel_begins_and_ends() -> None:
    slow = replace(MULTIPROCESSOR, launch=replace(MULTIPROCESSOR.launch, fill=2e-6))
    assert causes(slow, "i")["launch"] == pytest.approx(causes(MULTIPROCESSOR, "i")["launch"] + 2e-6)
