"""The bytes of constants: shared, hashed once, equal by what they are."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from tile_ir.contents import SHORT, Contents


@pytest.mark.parametrize("size", [0, 1, SHORT, SHORT + 1, 10_000])
def test_equal_by_their_bytes(size: int) -> None:
    data = np.random.default_rng(size).bytes(size)
    a, b = Contents(data), Contents(memoryview(bytearray(data)).toreadonly())
    assert a == b and hash(a) == hash(b) and a.digest == b.digest and len(a) == size
    other = Contents(data[:-1] + bytes([data[-1] ^ 1])) if size else Contents(b"x")
    assert a != other and a != data
    assert pickle.loads(pickle.dumps(b)) == a


def test_memory_is_shared_and_read_only() -> None:
    array = np.arange(12, dtype=np.float32)
    with pytest.raises(ValueError, match="read-only"):
        Contents(array.data)
    with pytest.raises(ValueError, match="no gaps"):
        Contents(array[::2].data.toreadonly())
    held = Contents(array.data.toreadonly())
    assert np.shares_memory(np.frombuffer(held.view, np.float32), array)
    assert len(Contents(np.empty((0, 3)).data.toreadonly())) == 0
