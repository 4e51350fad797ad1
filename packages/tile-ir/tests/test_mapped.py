"""Memory of mapped files: given back, and there again when looked at."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tile_ir.contents import Contents
from tile_ir.mapped import give_back

PAGES = 64
SIZE = PAGES * mmap.PAGESIZE


def _resident(address: int) -> int:
    """Bytes of the mapping at an address that are in memory."""
    wanted = f"{address:x}-"
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    next(line for line in lines if line.startswith(wanted))
    return 1024 * int(next(line for line in lines if line.startswith("Rss:")).split()[1])


@pytest.fixture
def file(tmp_path: Path) -> mmap.mmap:
    path = tmp_path / "weights"
    path.write_bytes(bytes(range(256)) * (SIZE // 256))
    with path.open("rb") as opened:
        return mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="asks Linux what is in memory")
def test_a_digest_leaves_no_page_of_a_mapped_file_in_memory(file: mmap.mmap) -> None:
    array = np.frombuffer(file, np.uint8)
    Contents(array.data.toreadonly()).digest  # noqa: B018
    assert _resident(array.ctypes.data) == 0


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="asks Linux what is in memory")
def test_pages_that_others_see_a_part_of_stay(file: mmap.mmap) -> None:
    array = np.frombuffer(file, np.uint8)
    assert array.sum(dtype=np.int64)
    give_back(array[1 : 3 * mmap.PAGESIZE - 1].data)
    assert _resident(array.ctypes.data) == SIZE - mmap.PAGESIZE


def test_what_was_given_back_is_read_again(file: mmap.mmap) -> None:
    contents = Contents(memoryview(file))
    give_back(contents.view)
    assert bytes(contents.view) == bytes(range(256)) * (SIZE // 256)


def _writable() -> memoryview:
    memory = mmap.mmap(-1, SIZE)
    memory[:] = b"x" * SIZE
    return memoryview(memory)


@pytest.mark.parametrize(
    "make", [lambda: memoryview(b"x" * SIZE), lambda: memoryview(bytearray(b"x" * SIZE)), _writable]
)
def test_memory_of_other_kinds_keeps_its_content(make: Callable[[], memoryview]) -> None:
    view = make()
    give_back(view[mmap.PAGESIZE :])
    assert bytes(view) == b"x" * SIZE
