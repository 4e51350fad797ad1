"""Wrong uses: each is one of the project's errors, with a code and what to do, and changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tile_runtime as tile
from hypothesis import given
from hypothesis import strategies as st
from tile_runtime.arrays import overlaps_itself

Array = np.ndarray[Any, Any]

SOURCE = "function (A) -> (B) { B = A + 1; }"


@pytest.mark.parametrize(
    ("source", "name", "message", "hint"),
    [
        (3, None, "not int 3", "a string"),
        (None, None, "not None", "a string"),
        (SOURCE.encode(), None, "not bytes", "decode"),
        (Path("f.tile"), None, "not (Posix|Windows)Path", "from_file"),
        (SOURCE, 7, "the name of a function is text, not int 7", "a string"),
    ],
)
def test_a_source_that_is_no_text(source: Any, name: Any, message: str, hint: str) -> None:
    with pytest.raises(tile.TileTypeError, match=message) as error:
        tile.Function(source, name)
    (found,) = error.value.diagnostics
    assert found.code == "TILE-E515"
    assert hint in (found.hint or "")


@pytest.mark.parametrize("count", [1, 2])
def test_two_inputs_of_one_name(count: int) -> None:
    """However many arguments there are: each by position, or one for both."""
    twice = tile.Function("function (A[N], A[N]) -> (B) { B = A; }")
    with pytest.raises(tile.TileTypeError, match="A is an input twice"):
        twice(*[np.zeros(3, np.float32)] * count, device="interp")


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "plus.tile"
    path.write_text(SOURCE, encoding="utf-8-sig")
    assert tile.Function.from_file(path).source == SOURCE
    path.write_text(SOURCE, encoding="utf-16")
    with pytest.raises(tile.TileSyntaxError, match="not UTF-8 text") as error:
        tile.Function.from_file(path)
    assert "save it as UTF-8" in str(error.value)
    with pytest.raises(tile.TileSyntaxError, match="byte-order mark") as error:
        tile.Function("\ufeff" + SOURCE)
    assert "utf-8-sig" in (error.value.diagnostics[0].hint or "")


P = tile.placeholder("float32", (3,), "P")
A3 = np.ones(3, np.float32)
SWAPPED = np.array(0, ">f4")
"""Of the other byte order, which no device reads: large views of others are read where they lie."""
WRONG: list[tuple[str, Any]] = [
    ("neither an array nor made of numbers: None", lambda f: f(None, A3)),
    ("neither an array nor made of numbers: dict {1: 2}", lambda f: f({1: 2}, A3)),
    ("neither an array nor made of numbers: <tile Function", lambda f: f(f, A3)),
    ("neither an array nor made of numbers: list \\[1, 'a'\\]", lambda f: f([1, "a"], A3)),
    ("'A' holds an integer beyond int32", lambda f: f(2**70, A3)),
    ("'A' holds an integer beyond int32", lambda f: f([0, 2**70], A3)),
    ("'A' holds an integer beyond int32", lambda f: f([2**63], A3)),
    ("'A' must be copied into C order", lambda f: f(np.broadcast_to(SWAPPED, (1 << 30, 1 << 30)), A3)),
    ("a tensor has 1152921504606846976 elements", lambda f: f(np.broadcast_to(np.float32(0), (1 << 30, 1 << 30)), A3)),
    ("donate is the name of an input, or several, not int 3", lambda f: f(A3, A3, donate=3)),
    ("gives 1 result \\(C\\), out has 0", lambda f: f(A3, A3, out=())),
    ("name of a placeholder is text, not int 3", lambda f: tile.placeholder("float32", (3,), 3)),  # type: ignore[arg-type]
    ("None is no dtype", lambda f: tile.Tensor("llvm", (3,), None)),
    ("the inputs of a composition are a list", lambda f: tile.compose(P, [f(P, P)])),  # type: ignore[arg-type]
    ("the outputs of a composition are a list", lambda f: tile.compose([P], f(P, P))),
    ("the updates of a composition are a list", lambda f: tile.compose([P], [f(P, P)], 3)),  # type: ignore[arg-type]
    ("input ndarray array.* is not a placeholder", lambda f: tile.compose([A3], [f(P, P)])),  # type: ignore[arg-type]
    ("wrt is the name of an input, or several, not int 3", lambda f: tile.vjp(f, 3)),
    ("wrt is the name of an input, or several, not None", lambda f: tile.jvp(f, None)),
    ("a Tile function is wanted, not int 3", lambda f: tile.vjp(3, "A")),  # type: ignore[arg-type]
    ("a Tile function is wanted, not int 3", lambda f: tile.hessian_vector_product(3, "A")),  # type: ignore[arg-type]
    ("a Tile function is wanted, not int 3", lambda f: tile.custom_vjp(3)),  # type: ignore[arg-type]
    ("a Tile function is wanted, not int 3", lambda f: tile.eval_shape(3, A3)),  # type: ignore[arg-type]
    ("a Tile function is wanted, not str 'A'", lambda f: tile.Evaluator()("A", A3)),  # type: ignore[arg-type]
    ("a Tile function is wanted, not int 3", lambda f: tile.Invoker(3)),  # type: ignore[arg-type]
    ("a gradient is a Python function or a Tile function", lambda f: tile.custom_vjp(f, 3)),  # type: ignore[arg-type]
    ("cannot be called with 4 arguments", lambda f: tile.vjp(tile.custom_vjp(f)(lambda a: a), "A")(A3, A3, A3)),
    ("tile_trials is an integer", lambda f: tile.Evaluator(tile_trials="3")),  # type: ignore[arg-type]
    ("reduced_precision is True or False", lambda f: tile.Evaluator(reduced_precision="no")),  # type: ignore[arg-type]
    ("fast_math is True or False", lambda f: tile.Evaluator(fast_math=1)),  # type: ignore[arg-type]
    ("values of inputs are a mapping", lambda f: tile.Invoker(f).set_inputs([A3])),  # type: ignore[arg-type]
    ("a file is named by a string", lambda f: tile.Function.from_file(3)),  # type: ignore[arg-type]
    ("a file is named by a string", lambda f: tile.Function.from_file("a\0b")),
]


@pytest.mark.parametrize(("message", "call"), WRONG, ids=[str(k) for k in range(len(WRONG))])
def test_wrong_kinds_of_arguments(add: tile.Function, message: str, call: Any) -> None:
    with pytest.raises(tile.TileError, match=message) as error:
        call(add)
    assert error.value.diagnostics[0].code.startswith("TILE-E")
    assert len(str(error.value)) < 400


def test_a_masked_array_does_not_lose_its_mask(add: tile.Function) -> None:
    plain, masked = np.ones(3, np.float32), np.ma.array([1, 2, 3], mask=[0, 1, 0], dtype=np.float32)
    for call in (lambda: add(plain, masked), lambda: tile.eval_shape(add, plain, masked)):
        with pytest.raises(tile.TileTypeError, match=r"'B' is a masked array.*\n.*filled"):
            call()
    with pytest.raises(tile.TileTypeError, match="'value' is a masked array"):
        tile.asarray(masked)
    with pytest.raises(tile.TileTypeError, match="output 'C' is masked"):
        add(plain, plain, out=masked)
    np.testing.assert_array_equal(add(plain, masked.filled(0)), [2, 1, 4])


def _strided(shape: tuple[int, ...], strides: tuple[int, ...]) -> Array:
    return np.lib.stride_tricks.as_strided(np.zeros(64, np.float32), shape, strides)


@pytest.mark.parametrize("strides", [(0, 4), (4, 0), (4, 4), (8, 4), (2, 4)])
def test_an_output_that_overlaps_itself(add: tile.Function, strides: tuple[int, int]) -> None:
    a = np.ones((3, 3), np.float32)
    out = _strided((3, 3), strides)
    for given_out in (out, (out,)):
        with pytest.raises(tile.TileTypeError, match="output 'C' overlaps itself"):
            add(a, a, out=given_out)
    assert not out.any()


_SLICE = st.builds(slice, st.integers(-4, 4), st.integers(-4, 5), st.sampled_from([-3, -2, -1, 1, 2, 3]))


@given(st.lists(_SLICE, min_size=3, max_size=3), st.permutations(range(3)), st.booleans())
def test_slices_and_transposes_do_not_overlap_themselves(cuts: list[slice], order: list[int], diagonal: bool) -> None:
    array = np.zeros((4, 4, 5))[tuple(cuts)].transpose(order)
    assert not overlaps_itself(array.diagonal(0, 0, 2) if diagonal else array)


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(-3, 9)), min_size=1, max_size=3))
def test_no_overlap_is_missed(axes: list[tuple[int, int]]) -> None:
    shape, steps = zip(*axes, strict=True)
    array = np.lib.stride_tricks.as_strided(np.zeros(99, np.int8)[49:], shape, steps)
    places = {int(np.dot(steps, point)) for point in np.ndindex(shape)}
    assert overlaps_itself(array) or len(places) == array.size
