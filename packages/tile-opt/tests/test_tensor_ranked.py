"""Tiles are ranked as they are needed: in the order of their seconds, and not made where none of them can be the best."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import pytest
from tensor_support import BUSY, bound, matmul, view_of
from tile_ir.dtype import DType
from tile_ir.frozen import replace
from tile_ir.matrix import WGMMA
from tile_opt.kernel import instructions
from tile_opt.kernel.instructions import match_of, matches, usable
from tile_opt.passes.kernels.tensor_tile import TensorTile
from tile_opt.plan.space.gpu.tiles import forecast, least_seconds
from tile_opt.plan.space.tensor import plans
from tile_opt.plan.space.tensor.later import Later, best_first
from tile_opt.plan.space.tensor.ranked import Ranked

F16 = DType.FLOAT16
TEAMS = replace(BUSY, matrix=("wgmma_m64n32k16_f16",))
FIRST = "function (D[N, C, X, Y], K[O, C, I, J]) -> (R) { R[n, o, x, y : N, O, X, Y] = +(D[n, c, x + i - 1, y + j - 1] * K[o, c, i, j]); }"


class Alone:
    """What takes so long."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds


def ranked(*found: Any) -> Iterator[Any]:
    return best_first(found)


def test_what_cannot_be_the_best_is_made_last() -> None:
    made: list[str] = []

    def later(name: str, least: float, *seconds: float) -> Later[Any]:
        def make() -> Iterable[Any]:
            made.append(name)
            return map(Alone, seconds)

        return Later(least, make)

    found = ranked(later("slow", 5, 7, 6), Alone(3), later("fast", 2, 4, 2.5))
    assert [next(found).seconds, next(found).seconds] == [2.5, 3] and made == ["fast"]
    assert [t.seconds for t in found] == [4, 6, 7] and made == ["fast", "slow"]


def test_equal_ones_keep_their_order_however_late_they_are_made() -> None:
    several = [Alone(1) for _ in range(4)]
    middle: Any = several[1:3]
    last: Later[Any] = Later(1, lambda: middle)
    assert [*ranked(several[0], last, several[3])] == several


def flat(found: Iterable[Ranked | Later[Ranked]]) -> Iterator[Ranked]:
    return chain.from_iterable(flat(t.made) if isinstance(t, Later) else (t,) for t in found)


def laters(found: Iterable[Ranked | Later[Ranked]]) -> Iterator[Later[Ranked]]:
    """Those among them, and those that these make."""
    for each in found:
        if isinstance(each, Later):
            yield each
            yield from laters(each.made)


def never(*asked: object) -> float:
    raise AssertionError(asked)


SAMPLES = {
    "few results": matmul("nn", F16, 64, 32, 2048),
    "channels first": replace(
        matmul("nn", F16, 64, 64, 64), program=bound(FIRST, F16, D=(8, 32, 14, 14), K=(32, 32, 3, 3))
    ),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_no_tile_takes_less_than_is_said_of_it_before_it_is_made(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []

    def checked(found: Iterable[Ranked | Later[Ranked]]) -> Iterator[Ranked]:
        entries = [*found]
        for later in laters(entries):
            assert all(t.seconds >= later.seconds * (1 - 1e-9) for t in flat([later]))
        assert [*best_first(entries)] == sorted(flat(entries), key=lambda t: t.seconds)
        counts.append(sum(isinstance(t, Later) for t in entries))
        return iter(())

    monkeypatch.setattr(plans, "best_first", checked)
    assert not [*TensorTile().candidates(view_of(SAMPLES[name], TEAMS), TEAMS)]
    assert counts[-1] > counts[0] > 0


@pytest.mark.parametrize("name", SAMPLES)
def test_items_are_forecast_to_take_longer_than_their_arithmetic(name: str) -> None:
    view = view_of(SAMPLES[name], BUSY)
    found = forecast(view, BUSY)
    assert found is not None and found / 8 < least_seconds(view, BUSY) <= found


def test_nobody_looks_for_tiles_of_items_where_instructions_are_surely_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "forecast", never)
    view = view_of(matmul("nn", F16, 2048, 2048, 2048), BUSY)
    assert next(TensorTile(faster=True).candidates(view, BUSY), None) is not None


def test_constraints_are_asked_of_the_match_that_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    view, (instruction,) = view_of(SAMPLES["channels first"], TEAMS), usable(TEAMS)
    found, asked = matches(view, instruction), list[object]()
    assert len(found) > 1 and all(m.bounds for m in found)

    def bounded(*given: object) -> object:
        asked.append(given)
        return found[-1]

    monkeypatch.setattr(instructions, "_bounded", bounded)
    assert match_of(view, instruction, dict(found[-1].loops)) == found[-1] and len(asked) == 1


def test_only_instructions_for_what_a_kernel_reads_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are 77 of teams alone; most are for other dtypes."""
    asked: list[DType] = []

    def recorded(view: Any, instruction: Any) -> list[Any]:
        asked.append(instruction.a.dtype)
        return []

    monkeypatch.setattr(plans, "matches", recorded)
    every = replace(BUSY, matrix=tuple(i.name for i in WGMMA))
    assert not list(TensorTile().candidates(view_of(matmul("nn", F16, 64, 64, 64), every), every))
    assert {*asked} == {F16}
