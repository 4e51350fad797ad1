"""What is kept by what it was made for."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from tile_ir.recent import Recent


def test_the_one_asked_for_longest_ago_goes_first() -> None:
    kept: Recent[str, int] = Recent(2)
    assert [kept.get(k, lambda n=n: n) for n, k in enumerate("abac")] == [0, 1, 0, 3]
    assert len(kept) == 2
    assert kept.get("a", lambda: 9) == 0
    assert kept.get("b", lambda: 9) == 9


def test_none_is_a_value() -> None:
    kept: Recent[str, int | None] = Recent(2)
    assert kept.get("a", lambda: None) is None
    assert kept.get("a", lambda: 1) is None


def test_errors_leave_no_trace() -> None:
    kept: Recent[str, float] = Recent(2)
    with pytest.raises(ZeroDivisionError):
        kept.get("a", lambda: 1 / 0)
    assert kept.get("a", lambda: 1.0) == 1.0


def test_all_threads_get_one_value() -> None:
    kept: Recent[int, object] = Recent(8)
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda n: kept.get(n % 4, object), range(400)))
    assert len(set(map(id, found))) == 4
