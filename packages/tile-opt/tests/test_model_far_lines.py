"""Lines that come one by one: nothing fetches them ahead, stores wait for both that they straddle, and they go to memory sooner."""

from __future__ import annotations

from dataclasses import replace

import pytest
from model_support import kernel, processor
from tile_ir.target import Target
from tile_opt.model.arithmetic import straight_line
from tile_opt.model.estimate import estimate
from tile_opt.model.scheduled import read
from tile_opt.plan.text import parse_plans

TRANSPOSE = "function (A[N, M]) -> (O) { O[j, i : M, N] = =(A[i, j]); }"
CHAIN = "function (A[N, M]) -> (O) { O = A * 2 + 1; }"
TILES = parse_plans("""plan kernel_0 {
  serial i:16
  serial j:16
  stage A in REG as [i, j]
  unroll j:1
  vector i:1 x16
}""")
"""Tile after tile along the rows of A: those of the result are far apart."""


def seconds(source: str, target: Target, side: int, plans: bool = False) -> float:
    return estimate(kernel(source, target, TILES if plans else None, A=(side, side)), target).seconds


def straddling(target: Target, second: float, last: float) -> Target:
    first, *others = target.machine.caches
    caches = (first, *(replace(c, straddle=s) for c, s in zip(others, (second, last), strict=True)))
    return replace(target, machine=replace(target.machine, caches=caches))


def test_stores_wait_for_both_lines_that_they_straddle() -> None:
    plain = processor("xeon")
    dear = straddling(plain, 20, 60)
    assert seconds(TRANSPOSE, dear, 640, plans=True) == seconds(TRANSPOSE, plain, 640, plans=True)
    waits = seconds(TRANSPOSE, dear, 701, plans=True) - seconds(TRANSPOSE, plain, 701, plans=True)
    lines = 701 * 701 * 4 / 64
    assert 10 * lines < plain.machine.cycles(waits) < 130 * lines
    assert seconds(CHAIN, dear, 704) == seconds(CHAIN, plain, 704)
    assert seconds(CHAIN, dear, 701) == pytest.approx(seconds(CHAIN, plain, 701), rel=1e-9)  # one vector, the last


def test_lines_that_nothing_fetches_ahead_come_as_many_at_once_as_a_core_can_wait_for() -> None:
    many = processor("xeon")
    few = replace(many, machine=replace(many.machine, memory=replace(many.machine.memory, outstanding=6)))
    assert seconds(TRANSPOSE, few, 688, plans=True) > 1.3 * seconds(TRANSPOSE, many, 688, plans=True)
    assert seconds(CHAIN, few, 1600) == seconds(CHAIN, many, 1600)


def test_five_lanes_leave_in_two_pieces() -> None:
    """Four and one: those of a vector whose lanes are no power of two."""
    target = processor("zen4")
    (leaf,) = (
        leaf
        for leaf in read(kernel(TRANSPOSE, target, A=(5, 1600))).walk()
        if leaf.vector is not None and leaf.vector.lanes == 5 and any(a.writes and not a.buffer.in_registers for a in leaf.accesses.values())
        and leaf.points > 1000
    )  # fmt: skip
    rows = leaf.static[0].extent
    assert straight_line(leaf, target.machine).store == pytest.approx(2 * rows, rel=0.5)
    assert straight_line(leaf, target.machine).store >= 2 * rows


@pytest.mark.parametrize(("name", "past"), [("zen4", False), ("xeon", True)])
def test_transposes_pass_a_last_level_by_that_is_nearly_as_far_as_memory(name: str, past: bool) -> None:
    """Results of 2.5 MB: more than the second level holds, less than a quarter of the third."""
    target = processor(name)
    assert _passes(TRANSPOSE, target, 800) == past and not _passes(CHAIN, target, 800)


def test_transposes_whose_stores_straddle_lines_leave_by_a_copy_where_the_machine_waits_for_both() -> None:
    plain = processor("xeon", cores=4)
    for target, copied in ((plain, False), (straddling(plain, 6, 40), True)):
        written = {
            a.buffer.name
            for leaf in read(kernel(TRANSPOSE, target, A=(723, 723))).walk()
            for a in leaf.accesses.values()
            if a.writes
        }
        assert any(name.startswith("O_") for name in written) == copied


def _passes(source: str, target: Target, side: int) -> bool:
    made = read(kernel(source, target, A=(side, side)))
    return any(leaf.passing(a) is not None for leaf in made.walk() for a in leaf.accesses.values())
