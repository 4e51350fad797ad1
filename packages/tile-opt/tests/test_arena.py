"""Where temporaries live, against the obvious way to find out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tile_opt.blocks.buffers import first_fit
from tile_opt.lowering.arena import ALIGN, Lifetime, overlapping, place

LIVES = st.builds(
    lambda size, first, length: Lifetime(size, first, first + length),
    st.integers(0, 300),
    st.integers(0, 9),
    st.integers(0, 5),
)


@given(st.lists(LIVES, max_size=12))
def test_each_temporary_is_as_low_as_it_fits(lives: list[Lifetime]) -> None:
    offsets, size = place(lives)
    placed: list[int] = []
    for number in sorted(range(len(lives)), key=lambda n: (-lives[n].bytes, n)):
        life = lives[number]
        beside = [n for n in placed if lives[n].bytes and lives[n].first <= life.last and life.first <= lives[n].last]
        busy = [(offsets[n], offsets[n] + lives[n].bytes) for n in beside]
        assert offsets[number] == (first_fit(life.bytes, busy, ALIGN) if life.bytes else offsets[number])
        placed.append(number)
    assert size == max((o + life.bytes for o, life in zip(offsets, lives, strict=True)), default=0)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 9)).map(lambda x: (x[0], x[0] + x[1])), max_size=12))
def test_overlapping_intervals_share_something(intervals: list[tuple[int, int]]) -> None:
    found = overlapping(intervals)
    for n, (low, high) in enumerate(intervals):
        others = {k for k, (a, b) in enumerate(intervals) if k != n and max(a, low) < min(b, high)}
        assert found[n] == others
