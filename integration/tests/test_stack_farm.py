"""The farm itself: some hundred cases of it, and that it finds, reduces and reports what is planted."""

from __future__ import annotations

from random import Random

from farm.draw import draw
from farm.report import markdown
from farm.sample import Sample
from farm.ways import ways
from farm.workers import Farm
from tile_ir.diagnostics import TileError

BACKENDS = ("stripe", "interp", "llvm", "differences")


def test_some_hundred_cases() -> None:
    harvest = Farm(20_260, BACKENDS, 1, 3600.0, 0, 25).run()
    assert not harvest.failures, markdown(harvest, harvest.failures, "found by the default run")
    assert harvest.total("same") > 150


def test_a_program_follows_from_its_number_alone() -> None:
    for number in range(40):
        first, second = draw(3, number), draw(3, number)
        assert first == second
        if first is not None and second is not None:
            several = [[*ways(s, Random(number), 2, BACKENDS)] for s in (first, second)]
            assert several[0] == several[1]


def test_programs_are_of_every_kind() -> None:
    drawn = [s for n in range(400) if (s := draw(1, n)) is not None]
    kinds = {s.kind for s in drawn}
    assert {"contraction", "matmul", "window", "rows", "scan", "gather", "scatter", "mutated source"} <= kinds
    assert {s.order for s in drawn} == {0, 1, 2}
    sizes = {size for s in drawn for t in s.types.values() for size in t.shape}
    assert {0, 1, 13, 16, 31, 64} <= sizes
    assert len({t.dtype for s in drawn for t in s.types.values()}) >= 12
    assert _refused(drawn) < len(drawn) // 20


def _refused(samples: list[Sample]) -> int:
    count = 0
    for sample in samples:
        try:
            assert sample.program
        except TileError:
            count += 1
    return count
