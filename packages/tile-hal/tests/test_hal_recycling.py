"""Large blocks of host memory: used again, never twice at a time, and bounded."""

from __future__ import annotations

import gc
import os
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tile_hal import host_memory
from tile_hal.host import HostMemory
from tile_hal.recycling import ALIGNMENT, LARGE, PAGE, PLACES, Recycler

SIZE = 2 * LARGE


def taken(recycler: Recycler, nbytes: int) -> Any:
    return recycler.array((nbytes,), np.uint8, nbytes)


def address(array: Any) -> int:
    return array.__array_interface__["data"][0]


def roomy(times: int) -> Recycler:
    """One that may keep so many blocks, after as many were in use at once."""
    recycler = Recycler(times * SIZE)
    taken(recycler, times * SIZE)
    recycler.clear()
    return recycler


def test_what_is_given_up_is_used_again() -> None:
    recycler = roomy(4)
    first = taken(recycler, SIZE)
    where = address(first)
    del first
    assert recycler.kept == SIZE
    other, again = taken(recycler, SIZE // 2), taken(recycler, SIZE)
    assert address(again) == where and other.nbytes == SIZE // 2 and recycler.kept == 0


def test_blocks_begin_at_different_places_in_a_page() -> None:
    recycler = Recycler(8 * SIZE)
    places = {address(block) % PAGE for block in [taken(recycler, SIZE) for _ in range(PLACES)]}
    assert len(places) == PLACES and all(p % ALIGNMENT == 0 and 512 < p < PAGE - 512 for p in places)


def test_what_is_lent_is_an_array_like_any_other() -> None:
    """Its memory is no array's, so that views refer to itself; copies have nothing to do with it."""
    recycler = Recycler(4 * SIZE)
    array = taken(recycler, SIZE)
    view, copy = array[1:][2:].view(np.int8), array.copy()
    assert type(array) is np.ndarray and view.base is array and array.flags.writeable and not array.flags.owndata
    del array, copy
    assert recycler.kept == 0
    del view
    assert recycler.kept == SIZE


def test_a_view_keeps_its_block() -> None:
    recycler = Recycler(4 * SIZE)
    part = taken(recycler, SIZE)[5:21].view(np.float32).reshape(2, 2).T
    assert recycler.kept == 0
    part[:] = 7
    assert not np.may_share_memory(taken(recycler, SIZE), part) and (part == 7).all()
    del part
    assert recycler.kept == 2 * SIZE


def test_no_more_than_agreed_is_kept() -> None:
    recycler = roomy(3)
    blocks = [taken(recycler, SIZE + k) for k in range(5)]
    while blocks:
        del blocks[0]
    assert recycler.kept == 2 * SIZE + 4 + 3
    assert taken(recycler, 4 * SIZE).nbytes == 4 * SIZE
    assert recycler.kept == SIZE + 4, "it took the place of the oldest, and is too large to be kept"
    recycler.clear()
    assert recycler.kept == 0


def test_what_waits_needs_no_more_memory_than_was_ever_in_use() -> None:
    """A block of another size takes the place of those that wait, and waits itself in theirs."""
    recycler = Recycler(9 * SIZE)
    pair = [taken(recycler, SIZE), taken(recycler, SIZE)]
    del pair
    assert recycler.kept == 2 * SIZE
    for k in range(1, 5):
        other = taken(recycler, SIZE + k)
        assert recycler.kept <= SIZE
        del other
        assert recycler.kept <= 2 * SIZE + k


def test_a_few_blocks_may_wait_beside_those_of_other_sizes() -> None:
    recycler = Recycler(9 * SIZE, few=3 * SIZE)
    for k in (0, 1, 0, 1, 0, 1):
        taken(recycler, SIZE + k)
    assert recycler.made == 2 and recycler.kept == 2 * SIZE + 1


def test_what_waits_is_given_back_before_memory_is_out(monkeypatch: pytest.MonkeyPatch) -> None:
    recycler = roomy(4)
    taken(recycler, SIZE)
    real, asked = np.empty, list[int]()

    def tight(nbytes: int, dtype: Any) -> Any:
        asked.append(nbytes - PAGE)
        if recycler.kept:
            raise MemoryError
        return real(nbytes, dtype)

    monkeypatch.setattr(np, "empty", tight)
    assert taken(recycler, SIZE + 1).nbytes == SIZE + 1
    assert asked == [SIZE + 1] * 2


def test_the_collector_may_give_blocks_up_at_any_time() -> None:
    """Also while the lock is held: the block is let go then."""
    recycler = Recycler(4 * SIZE)
    gc.collect()  # so that it does not run by itself in a moment
    cycle: list[Any] = [taken(recycler, SIZE)]
    cycle.append(cycle)
    del cycle
    with recycler._lock:
        gc.collect()
    assert recycler.kept == 0 and taken(recycler, SIZE).nbytes == SIZE


def test_no_block_is_in_use_twice() -> None:
    """Four threads take, mark, check and drop blocks of three sizes."""
    recycler = Recycler(6 * SIZE)

    def work(seed: int) -> int:
        rng, held = random.Random(seed), list[tuple[int, Any]]()
        for step in range(300):
            if held and rng.random() < 0.5:
                mark, block = held.pop(rng.randrange(len(held)))
                assert (block[:: LARGE // 8] == mark).all()
            else:
                mark, block = (seed * 7 + step) % 251, taken(recycler, LARGE + 64 * rng.randrange(3))
                block[:: LARGE // 8] = mark
                held.append((mark, block))
            del held[:-5]
        return len(held)

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(work, range(4))) > 0
    gc.collect()
    assert 0 < recycler.kept <= 6 * SIZE and not recycler._lent


def test_containers_bound_what_there_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "free").write_text("max\n")
    (tmp_path / "tight").write_text(f"{1 << 25}\n")
    for names, size in ((["tight", "free"], 1 << 25), (["free", "none"], HostMemory().size_goal / 0.85)):
        monkeypatch.setattr(host_memory, "MEMORY_LIMITS", [str(tmp_path / n) for n in names])
        assert HostMemory().size_goal == pytest.approx(0.85 * size, abs=1)
    assert host_memory._recycler().most <= 1 << 30


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_child_begins_with_nothing_kept() -> None:
    """Another thread may hold the lock while a process forks."""
    first = host_memory._recycler()
    with first._lock:
        child = os.fork()
        if not child:
            os._exit(0 if host_memory._recycler() is not first and HostMemory().allocate(SIZE).nbytes == SIZE else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_host_memory_takes_large_blocks_from_what_was_given_up() -> None:
    memory = HostMemory()
    buffer = memory.allocate(SIZE + 12345)
    where = buffer.address
    assert where % 64 == 0
    del buffer
    assert memory.allocate(SIZE + 12345).address == where


def test_trimmed_memory_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    recycler = Recycler(4 * SIZE)
    monkeypatch.setattr(host_memory, "_recycler", lambda: recycler)
    memory = HostMemory()
    memory.allocate(SIZE)
    assert recycler.kept == SIZE
    memory.trim()
    assert recycler.kept == 0
