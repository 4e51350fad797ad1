"""Expressions of Tensors are computed when somebody looks, once, in one program; what they read may change meanwhile."""

from __future__ import annotations

from threading import Thread
from typing import Any

import numpy as np
import pytest
import tile_runtime as tile
from tile_runtime import pending
from tile_runtime.ops import elementwise
from tile_runtime.pending import Pending
from tile_runtime.tensor import Tensor

ONES = np.ones((2, 3), np.float32)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The results of each program that is run for pending tensors."""
    found: list[Any] = []
    program = pending._program

    def noted(graph: Any, results: Any) -> Any:
        found.append(list(results))
        return program(graph, results)

    monkeypatch.setattr(pending, "_program", noted)
    return found


def test_nothing_is_computed_before_somebody_looks(calls: list[Any]) -> None:
    x = tile.asarray(ONES)
    y = ((x + 1) * 2).sum(axis=0)
    assert type(y) is Pending and isinstance(y, Tensor) and not calls
    assert y.shape == (3,) and y.dtype == "float32" and y.device is x.device and len(y) == 3 and not calls
    np.testing.assert_array_equal(y.numpy(), [8, 8, 8])
    assert type(y) is Tensor and len(calls) == 1
    np.testing.assert_array_equal(y.numpy(), [8, 8, 8])
    assert len(calls) == 1


def test_what_somebody_holds_is_computed_with_it_and_once(calls: list[Any]) -> None:
    x = tile.asarray(ONES)
    middle = x + 1
    last = middle * (middle - 3)
    assert float(last.sum()) == -12
    assert len(calls) == 1 and type(middle) is Tensor and type(last) is Tensor
    assert float((middle * 1).sum()) == 12 and len(calls) == 2


def test_the_next_expression_of_the_same_form_compiles_nothing() -> None:
    x = tile.asarray(ONES)
    (x * 2.5 + 1).numpy()
    before = len(pending._programs)
    for k in range(5):
        y = tile.asarray(ONES * k)
        np.testing.assert_allclose((y * float(k) + k).numpy(), ONES * k * k + k)
    assert len(pending._programs) == before


def test_a_tensor_that_changes_is_read_first() -> None:
    x, y = tile.asarray(ONES), tile.asarray(ONES)
    made, out = x + 1, tile.asarray(ONES)
    with x.mmap_current() as view:
        view[...] = 7
    assert float(made.sum()) == 12
    double = tile.Function("function (A) -> (B) { B = A * 2; }")
    late = out + y
    double(x, out=out)
    assert float(late.sum()) == 12 and float(out.sum()) == 84
    late = y * 3
    double(y, out=y, donate="A")
    assert float(late.sum()) == 18 and float(y.sum()) == 12


def test_what_is_pending_is_mapped_waited_for_and_written_to() -> None:
    x, double = tile.asarray(ONES), tile.Function("function (A) -> (B) { B = A * 2; }")
    mapped, discarded, out, given = x + 1, x + 1, x + 1, x + 1
    with mapped.mmap_current() as view:
        view[...] *= 2
    with discarded.mmap_discard() as view:
        view[...] = 5
    double(x, out=out)
    double(given, out=given, donate="A")
    assert (x + 2).wait().dtype == "float32"
    assert [float(t.sum()) for t in (mapped, discarded, out, given)] == [24, 30, 12, 24]


def test_an_array_may_change_after_it_was_used() -> None:
    host = ONES.copy()
    y = tile.asarray(ONES) + host
    host[...] = 9
    assert float(y.sum()) == 12


def test_long_chains_are_computed_in_parts() -> None:
    x = tile.asarray(ONES)
    for _ in range(3 * pending.DEPTH):
        x = x + 1
    np.testing.assert_array_equal(x.numpy(), ONES + 3 * pending.DEPTH)


def test_functions_take_them(calls: list[Any]) -> None:
    add = tile.Function("function (A, B) -> (C) { C = A + B; }")
    x = tile.asarray(ONES)
    found = add(x * 2, x)
    assert isinstance(found, Tensor)
    np.testing.assert_array_equal(found.numpy(), 3 * ONES)
    np.testing.assert_array_equal(add(ONES, x * 3).numpy(), 4 * ONES)
    bound = tile.placeholder("float32", (2, 3), "p")
    np.testing.assert_array_equal(tile.compose([bound], [add(bound, x + 1)])(ONES), 3 * ONES)
    gradient = tile.vjp(add, wrt=["A"])
    np.testing.assert_array_equal(np.asarray(gradient(x + 1, x, x * 5)), 5 * ONES)


def test_numpy_hands_over() -> None:
    x = tile.asarray(ONES)
    assert isinstance(ONES + x, Tensor)
    assert isinstance(np.float32(2) * x, Tensor)
    assert isinstance(np.sin(x), np.ndarray)
    np.testing.assert_array_equal((ONES - x).numpy(), 0 * ONES)


def test_threads_may_share_one() -> None:
    x = tile.asarray(ONES)
    shared, found = (x + 1) * 3, list[float]()
    threads = [Thread(target=lambda: found.append(float((shared * 1).sum()))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [36.0] * 8


def test_numbers_and_texts() -> None:
    x = tile.asarray(ONES)
    assert x.sum().item() == 6 and int(x.sum()) == 6 and [1, 2][(x.sum() > 5).astype("int32")] == 2
    assert (x + 1).tolist() == [[2.0] * 3] * 2
    assert [row.tolist() for row in x] == ONES.tolist()
    text = repr(x + 1)
    assert text.startswith("Tensor([[2., 2., 2.],") and "dtype=float32" in text and x.device.id in text
    assert (
        repr(tile.Tensor(x.device, (1000, 1000), "int8"))
        == f"Tensor(shape=(1000, 1000), dtype=int8, device={x.device.id!r})"
    )


def test_dtypes_compare_with_numpys() -> None:
    x = tile.asarray(ONES)
    assert x.dtype == np.float32 and x.dtype == "float32" and x.dtype == np.dtype("float32")
    assert x.dtype != np.float64 and x.dtype != "complex64" and x.dtype != None  # noqa: E711
    assert np.dtype(x.dtype) == np.float32 and np.zeros(2, x.dtype).dtype == np.float32


def test_an_operator_of_the_same_dtypes_is_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    x = tile.asarray(np.arange(4, dtype=np.int16))
    first = (x / 3 + 1).numpy()
    monkeypatch.setattr(elementwise, "expression", lambda *_: pytest.fail("the operator was written again"))
    np.testing.assert_array_equal((x[1:] / 3 + 1).numpy(), first[1:])
