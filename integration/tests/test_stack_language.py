"""Rules of the language that users rely on, on every device."""

from __future__ import annotations

import numpy as np
import pytest
import tile_runtime as tile
from tile_hal.interfaces import Device
from tile_ir.diagnostics import TileError


def function(header: str, *lines: str) -> tile.Function:
    return tile.Function(header + " {\n    " + "\n    ".join(lines) + "\n}")


@pytest.mark.parametrize("agg", ["+", "*", ">", "<", "="])
def test_a_cell_that_nothing_writes_is_zero(device: Device, agg: str) -> None:
    skipping = function("function (A[N]) -> (O)", f"O[2*i + 1 : 2*N + 3] = {agg}(A[i]);")
    data = np.array([-3, -2, -1, 5], np.float32)
    expected = np.zeros(11, np.float32)
    expected[1:9:2] = data
    np.testing.assert_array_equal(skipping(data, device=device), expected)


@pytest.mark.parametrize("agg", ["+", "*", ">", "<"])
def test_an_empty_domain_gives_zeros(device: Device, agg: str) -> None:
    empty = function("function (A[N]) -> (O)", f"O[i : 3] = {agg}(A[i + j]), j + 99 < 5;")
    np.testing.assert_array_equal(empty(np.ones(7, np.float32), device=device), np.zeros(3, np.float32))


def test_the_broken_max_pool_is_the_global_maximum(device: Device) -> None:
    broken = function("function (I[N]) -> (O)", "O[i : N / 2] = >(I[2 * i + j]);")
    data = -np.arange(1, 12, dtype=np.float32)
    np.testing.assert_array_equal(broken(data, device=device), np.full(5, data.max()))


def test_minus_infinity_and_nan_are_ordinary_values(device: Device) -> None:
    largest = function("function (A[N, M]) -> (O)", "O[n : N] = >(A[n, m]);")
    data = np.array([[-np.inf, -np.inf], [np.nan, 1], [2, -np.inf]], np.float32)
    np.testing.assert_array_equal(largest(data, device=device), np.array([-np.inf, np.nan, 2], np.float32))


MISTAKES = {
    "written twice": (("O[i : N] = =(A[i + j]), j < 2;",), "O[i : N] = =(A[i + j]), j < 2"),
    "unbounded": (("O[i : N] = +(A[i + j - k]);",), "j"),
    "unbounded with a constraint": (("O[i : N] = >(A[2*i + 3*j - k]), i < 3;",), "j"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_has_a_place(device: Device, name: str) -> None:
    lines, words = MISTAKES[name]
    with pytest.raises(TileError) as caught:
        function("function (A[N]) -> (O)", *lines)(np.ones(8, np.float32), device=device)
    (diagnostic, *_) = caught.value.diagnostics
    assert diagnostic.code.startswith("TILE-E")
    assert diagnostic.span is not None
    text = str(caught.value)
    assert ":2:" in text and "^" in text and words in text


def test_several_mistakes_are_reported_from_one_run() -> None:
    with pytest.raises(TileError) as caught:
        tile.Function("function (A[N], B) -> (O, P) {\n    O[i : N] = +(A[i], ;\n    P = B + ;\n}")
    assert len(caught.value.diagnostics) >= 2


def test_awkward_inputs(device: Device) -> None:
    double = function("function (A) -> (B)", "B = A + A;")
    base = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
    frozen = base.copy()
    frozen.flags.writeable = False
    for array in (base.T, base[::2, ::-1, 1::2], base.astype(">f4"), np.array(3, np.float32), base[:, :0], frozen):
        np.testing.assert_array_equal(double(array, device=device), array + array)


def test_outputs_come_in_header_order(device: Device) -> None:
    two = function("function (A[N]) -> (S, D)", "D = A * 2;", "S[] = +(A[i]);")
    total, doubled = two(np.arange(5, dtype=np.int32), device=device)
    assert total == 10
    np.testing.assert_array_equal(doubled, 2 * np.arange(5))


def test_tensors_stay_on_their_device(device: Device) -> None:
    add = function("function (A, B) -> (C)", "C = A + B;")
    a = tile.asarray(np.arange(6, dtype=np.float32), device=device)
    b = add(a, a)
    assert isinstance(b, tile.Tensor)
    np.testing.assert_array_equal(add(b, a).numpy(), 3 * np.arange(6, dtype=np.float32))
