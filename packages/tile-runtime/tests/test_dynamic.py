"""Functions with a dynamic first dimension: the same results as compiled for each size, without compiling for each."""

from __future__ import annotations

import logging
import pickle
import warnings
from typing import Any

import numpy as np
import pytest
import tile_runtime as tile
from tile_runtime import numpy
from tile_runtime.dynamic import RowsLowered

LAYER = """function (X[N, K], W[K, M], B[M]) -> (Y, L) {
    Z[n, m : N, M] = +(X[n, k] * W[k, m]); Y = relu(Z + B); L[n : N] = >(Y[n, m]); }"""
SIZES = (1, 3, 8, 17, 31, 100, 1000)


def _arguments(rows: int, width: int = 5) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(rows)
    return tuple(rng.standard_normal(s).astype(np.float32) for s in ((rows, width), (width, 3), (3,)))


@pytest.mark.parametrize("device", ["llvm", "interp"])
@pytest.mark.parametrize("width", [4, 5])
def test_every_size_gives_what_its_own_program_gives(device: str, width: int) -> None:
    one, each = tile.Function(LAYER, dynamic="N"), tile.Function(LAYER)
    sizes = SIZES if device == "llvm" else SIZES[1:4:2]
    for rows in sizes:
        given = _arguments(rows, width)
        for found, expected in zip(one(*given, device=device), each(*given, device=device), strict=True):
            assert found.shape == expected.shape
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_narrow_rows_are_filled_up() -> None:
    """Rows of one byte, many of which share the place where a view may begin."""
    function = tile.Function("function (X[N], T[R]) -> (Y) { Y = gather(T, X); }", dynamic="N")
    table = np.arange(9, dtype=np.uint8)
    for rows in (1, 15, 16, 17, 40, 0):
        given = np.arange(rows, dtype=np.int32) % 9
        assert np.array_equal(function(given, table), table[given])


def test_a_new_size_compiles_nothing_once_its_pieces_are_there(caplog: pytest.LogCaptureFixture) -> None:
    function = tile.Function(LAYER + "// sizes", dynamic="N")
    evaluator = tile.Evaluator("llvm")
    with caplog.at_level(logging.INFO, logger="tile.compile"):
        for rows in (32, 36, 40, 44):
            evaluator(function, *_arguments(rows, 4))
        compiled = len(caplog.records)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for rows in range(29, 45):
                evaluator(function, *_arguments(rows, 4))
    assert compiled == 4
    assert len(caplog.records) - compiled <= 1  # 30


def test_sizes_of_calls_displace_no_pieces() -> None:
    function = tile.Function(LAYER + "// pieces", dynamic="N")
    evaluator = tile.Evaluator("llvm")
    for rows in range(45, 65):
        evaluator(function, *_arguments(rows, 4))
    assert len(evaluator._pieces) == 5  # pyright: ignore[reportPrivateUsage] - of 48, 52, 56, 60 and 64 rows


def test_only_pieces_are_tuned(monkeypatch: pytest.MonkeyPatch) -> None:
    tuned: list[tuple[int, ...]] = []

    def best(lowered: Any, trials: int) -> Any:
        tuned.append(lowered.program.inputs[0].type.shape)
        return lowered

    monkeypatch.setattr("tile_runtime.measuring.tuning.best", best)
    function = tile.Function(LAYER, dynamic="N")
    evaluator = tile.Evaluator("llvm", tile_trials=2)
    for rows in (12, 23, 24, 25):
        evaluator.lower(function, *_arguments(rows, 4))
    assert tuned == [(12, 4), (24, 4), (26, 4)]


def test_tensors_outputs_of_the_caller_and_bare_inputs() -> None:
    function = tile.Function("function (X[N, K], W[K]) -> (Y, Z, V) { Y = X * W; Z = X; V = W + 1; }", dynamic="N")
    x, w = np.arange(44, dtype=np.float32).reshape(11, 4), np.arange(4, dtype=np.float32)
    y, z, v = function(tile.asarray(x), tile.asarray(w))
    assert np.array_equal(y.numpy(), x * w) and np.array_equal(z.numpy(), x) and np.array_equal(v.numpy(), w + 1)
    out = tuple(np.empty_like(a) for a in (x, x, w))
    assert function(x, w, out=out)[0] is out[0]
    assert np.array_equal(out[0], x * w)


def test_it_is_known_again_in_another_process() -> None:
    function = tile.Function(LAYER, dynamic="N")
    again = pickle.loads(pickle.dumps(function))
    assert again.key == function.key != tile.Function(LAYER).key
    assert again.dynamic == ("X",)


def test_stages_are_those_of_the_pieces() -> None:
    lowered = tile.Function(LAYER, dynamic="N").lower(*_arguments(1011, 500))
    assert lowered.explain().startswith("function: rows 960 + 51 of 52")
    assert isinstance(lowered, RowsLowered)
    assert lowered.source and set(lowered.pieces) == {960, 52}
    with pytest.raises(tile.TileDeviceError, match="runs in pieces of 960, 52 rows"):
        lowered.stripe  # noqa: B018


def test_gradients_and_compositions_of_it_are_ordinary() -> None:
    function = tile.Function("function (X[N, K]) -> (S) { S[n : N] = +(X[n, k] * X[n, k]); }", dynamic="N")
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert np.allclose(tile.vjp(function, wrt="X")(x, np.ones(3, np.float32)), 2 * x)


def test_what_mixes_rows_is_refused_at_the_first_call() -> None:
    function = tile.Function("function (X[N, K]) -> (Y) { Y[k : K] = +(X[n, k]); }", dynamic="N")
    with pytest.raises(tile.TileTypeError, match=r"TILE-E547: 'Y' cannot be computed for any number of rows") as error:
        function(np.ones((8, 3), np.float32))
    assert "^" in str(error.value)


def _network(weights: dict[str, Any], x: Any) -> tuple[Any, Any]:
    h = numpy.relu(x @ weights["a"] + weights["b"])
    return numpy.softmax(h, axis=-1), h.max(axis=1)


def test_python_functions_take_any_number_of_rows_too() -> None:
    rng = np.random.default_rng(0)
    weights = {"a": rng.standard_normal((6, 5)).astype(np.float32), "b": rng.standard_normal(5).astype(np.float32)}
    one, each = tile.jit(_network, dynamic="x"), tile.jit(_network)
    for rows in (8, 5, 13, 1, 0):
        x = rng.standard_normal((rows, 6)).astype(np.float32)
        for found, expected in zip(one(weights, x), each(weights, x), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


ONES = np.ones((4, 3), np.float32)


def _by_their_number(x: Any) -> Any:
    return x / x.shape[0]


def _down_columns(x: Any) -> Any:
    return x.sum(axis=0)


def _beside(x: Any, y: Any) -> Any:
    return x + y


def _apart(x: Any, y: Any) -> Any:
    return x + 1, y * 2


def _plain(x: Any) -> Any:
    return x + 1


MISTAKES: dict[str, tuple[Any, tuple[Any, ...], str]] = {
    "number": (_by_their_number, (ONES,), "computes with the number of rows"),
    "column": (_down_columns, (ONES,), "together with other rows"),
    "fixed": (_beside, (ONES, ONES), "works for 4 rows, and not for 5"),
    "scalar": (_plain, (np.float32(3),), "have one first dimension"),
}


@pytest.mark.parametrize(("function", "given", "message"), MISTAKES.values(), ids=MISTAKES)
def test_python_functions_that_are_not_by_rows(function: Any, given: tuple[Any, ...], message: str) -> None:
    with pytest.raises(tile.TileTypeError, match=f"TILE-E547.*{message}"):
        tile.jit(function, dynamic="x")(*given)


def test_dynamic_arguments_have_the_same_rows() -> None:
    with pytest.raises(tile.TileTypeError, match=r"these are x float32\[4, 3\], y float32\[3\]"):
        tile.jit(_apart, dynamic=("x", "y"))(ONES, ONES[0])


@pytest.mark.parametrize(("name", "message"), [("K", "not the first dimension"), ("Q", "no input has a dimension 'Q'")])
def test_a_dimension_that_cannot_be_dynamic_is_named_at_once(name: str, message: str) -> None:
    with pytest.raises(tile.TileTypeError, match=message):
        tile.Function(LAYER, dynamic=name)
