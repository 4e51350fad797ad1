"""Tile functions over dask arrays give what they give over whole arrays."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import dask.array
import numpy as np
import pytest
import tile_dask
import tile_runtime as tile
from functions import BLUR, MATMUL, numbers
from hypothesis import given, settings
from hypothesis import strategies as st
from tile_dask import graph
from tile_dask.boxes import Piece, Read, assembled
from tile_dask.work import edge
from tile_hal.host import HostMemory
from tile_runtime import numpy as tnp

da: Any = dask.array

CONV = tile.Function(
    """
function (D[N, X, Y, CI], K[I, J, CO, CI]) -> (R) {
    O[n, x, y, co : N, X, Y, CO] = +(D[n, x + i - 1, y + j - 1, ci] * K[i, j, co, ci]);
    R = (O > 0 ? O : 0);
}""",
    name="conv.tile",
)
STATISTICS = tile.Function(
    """
function (X[M, N]) -> (Mean, Largest) {
    S[j : N] = +(X[i, j]);
    Mean = S / 64;
    Largest[j : N] = >(X[i, j]);
}""",
    name="statistics.tile",
)


ATTENTION = tile.Function(
    """
function (Q[N, D], K[M, D], V[M, E]) -> (O) {
    S[i, j : N, M] = +(Q[i, d] * K[j, d]);
    T[i, 0 : N, 1] = >(S[i, j]);
    P = exp(S - T);
    L[i, 0 : N, 1] = +(P[i, j]);
    W[i, e : N, E] = +(P[i, j] * V[j, e]);
    O = W / L;
}""",
    name="attention.tile",
)


@st.composite
def chunks(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    return tuple(_sizes(n, sorted(draw(st.sets(st.integers(1, n - 1), max_size=3)))) for n in shape)


def _sizes(size: int, cuts: list[int]) -> tuple[int, ...]:
    ends = [0, *cuts, size]
    return tuple(b - a for a, b in pairwise(ends))


@given(st.data())
@settings(max_examples=6, deadline=None)
def test_any_chunks_give_the_same_product(data: st.DataObject) -> None:
    a, b = numbers(6, 8), numbers(8, 5, seed=1)
    c = tile_dask.apply(
        MATMUL, da.from_array(a, data.draw(chunks((6, 8)))), da.from_array(b, data.draw(chunks((8, 5))))
    )
    np.testing.assert_array_equal(c.compute(), a @ b)


@given(st.data())
@settings(max_examples=6, deadline=None)
def test_any_chunks_give_the_same_blur_thinner_than_the_halo_or_not(data: st.DataObject) -> None:
    x = numbers(9, 7)
    y = tile_dask.apply(
        BLUR, da.from_array(x, data.draw(chunks((9, 7)))), steps=2, exchange=data.draw(st.integers(1, 2))
    )
    np.testing.assert_array_equal(y.compute(), BLUR(BLUR(x)))


def test_results_are_lazy_and_follow_the_arrays_chunks() -> None:
    a, b = da.zeros((6, 8), chunks=(3, 4), dtype="float32"), da.zeros((8, 4), chunks=(4, 2), dtype="float32")
    c = tile_dask.apply(MATMUL, a, b)
    assert (c.chunks, c.dtype, type(c._meta)) == (((3, 3), (2, 2)), np.float32, np.ndarray)


def test_out_chunks_cut_results_as_dask_writes_chunks() -> None:
    a, b = numbers(6, 8), numbers(8, 4)
    c = tile_dask.apply(MATMUL, da.from_array(a, (3, 4)), b, out_chunks=(2, -1))
    assert c.chunks == ((2, 2, 2), (4,))
    np.testing.assert_array_equal(c.compute(), a @ b)


def test_several_outputs_come_as_a_tuple_and_share_what_they_read() -> None:
    x = numbers(64, 6)
    mean, largest = tile_dask.apply(STATISTICS, da.from_array(x, (16, 3)), out_chunks={"Largest": 2})
    np.testing.assert_array_equal(mean.compute(), x.sum(0) / 64)
    np.testing.assert_array_equal(largest.compute(), x.max(0))
    assert largest.chunks == ((2, 2, 2),)


def test_a_convolution_and_its_gradient() -> None:
    d, k = numbers(2, 8, 8, 3), numbers(3, 3, 4, 3, seed=1)
    dd = da.from_array(d, (1, 4, 4, 3))
    r = tile_dask.apply(CONV, dd, k)
    np.testing.assert_array_equal(r.compute(), CONV(d, k))
    gradient = tile.vjp(CONV, wrt=("D", "K"))
    gd, gk = tile_dask.apply(gradient, dd, k, r)
    want = gradient(d, k, CONV(d, k))
    np.testing.assert_array_equal(gd.compute(), want[0])
    np.testing.assert_array_equal(gk.compute(), want[1])


def test_compositions_bound_tensors_and_constants() -> None:
    x = tile.placeholder("float32", (8, 6), name="x")
    w, b = tile.asarray(numbers(6, 5, seed=1)), numbers(8, 5, seed=2)
    add = tile.Function("function (A, B) -> (C) { C = A + B; }")
    f = tile.compose([x], [add(MATMUL(x, w), tile.constant(b))])
    a = numbers(8, 6)
    np.testing.assert_array_equal(tile_dask.apply(f, da.from_array(a, (3, 2))).compute(), a @ w.numpy() + b)


def test_scalars_and_index_values() -> None:
    f = tile.Function("function (X[N], S) -> (Y) { I = index(X, 0); Y = X * S + I; }")
    x = numbers(10)
    y = tile_dask.apply(f, da.from_array(x, 3), np.float32(2))
    np.testing.assert_array_equal(y.compute(), x * 2 + np.arange(10))


def test_loops_are_cut_by_rounds() -> None:
    x = numbers(12, 6)
    f = tile.compose([p := tile.placeholder("float32", (12, 6), name="x")], [tile.repeat(BLUR, p, 4)])
    np.testing.assert_array_equal(tile_dask.apply(f, da.from_array(x, (4, 6))).compute(), f(x))


BLEND = tile.Function("function (A, X) -> (B) { B = 0.5 * A + X; }")


def _scan(reverse: bool) -> Any:
    """A composition of a scan that carries a blur on, and stacks it."""

    def step(carry: Any, row: Any) -> tuple[Any, Any]:
        carry = BLUR(BLEND(carry, row))
        return carry, carry

    a, x = tile.placeholder("float32", (9, 8), name="a"), tile.placeholder("float32", (3, 9, 8), name="x")
    return tile.compose([a, x], list(tile.scan(step, a, x, reverse=reverse)))


@pytest.mark.parametrize("reverse", [False, True])
def test_what_rounds_stack_is_cut_by_rounds_and_has_gradients(reverse: bool) -> None:
    f, a, x = _scan(reverse), numbers(9, 8), numbers(3, 9, 8, seed=1)
    cut = da.from_array(a, (4, 3)), da.from_array(x, (2, 5, 3))
    last, rows = tile_dask.apply(f, *cut)
    assert rows.chunks[0] == (1, 1, 1)
    for found, want in zip((last, rows), f(a, x), strict=True):
        np.testing.assert_array_equal(found.compute(), want)
    again = tile_dask.apply(f, *cut, out_chunks={f.outputs[1]: (2, 5, 8)})[1]
    assert again.chunks == ((2, 1), (5, 4), (8,))
    np.testing.assert_array_equal(again.compute(), rows.compute())
    gradient = tile.vjp(f, wrt=("a", "x"))
    given = (a, x, last.compute(), rows.compute())
    for found, want in zip(tile_dask.apply(gradient, *cut, last, rows), gradient(*given), strict=True):
        np.testing.assert_allclose(found.compute(), want, rtol=1e-5, atol=1e-5)


def test_numbers_of_a_key_are_drawn_chunk_by_chunk() -> None:
    k, x = tile.placeholder("uint32", (2,), name="k"), tile.placeholder("float32", (12, 10), name="x")
    f = tile.compose([x, k], [x * tile.random.uniform(k, (12, 10))])
    a, key = numbers(12, 10), np.asarray(tile.random.key(3))
    np.testing.assert_array_equal(tile_dask.apply(f, da.from_array(a, (7, 10)), key).compute(), f(a, key))


ARRAYS: dict[str, Any] = {
    "argmax": lambda x: tnp.argmax(x, axis=0),
    "running sum": lambda x: tnp.cumulative_sum(x, axis=0),
    "sorted": lambda x: tnp.sort(x, axis=1),
    "padded": lambda x: tnp.pad(x, ((2, 1), (0, 3))),
    "in one row": lambda x: tnp.reshape(x, (-1,)),
    "backwards": lambda x: x[9:1:-2, ::3],
    "beside itself": lambda x: tnp.concat([x, x * 2], axis=0),
    "below the diagonal": lambda x: tnp.tril(x @ tnp.permute_dims(x, (1, 0))),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_functions_of_arrays_over_unequal_chunks(name: str) -> None:
    x, p = numbers(11, 7), tile.placeholder("float32", (11, 7), name="x")
    f = tile.compose([p], [ARRAYS[name](p)])
    found = tile_dask.apply(f, da.from_array(x, ((1, 1, 9), (2, 5))))
    np.testing.assert_array_equal(found.compute(scheduler="sync"), f(x))


def test_chunks_of_any_dtype_are_put_together() -> None:
    """NumPy's own text for bfloat16 names no dtype."""
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    for dtype in (bfloat16, np.float16, np.uint8, np.int64, np.bool_):
        total = tile.Function("function (X[M, N]) -> (Y) { Y[j : N] = >(X[i, j]); }")
        x = abs(numbers(11, 7)).astype(dtype)
        np.testing.assert_array_equal(tile_dask.apply(total, da.from_array(x, (4, 3))).compute(), x.max(0))


def test_fixed_chunks_give_the_same_bits_twice() -> None:
    a = da.from_array(np.random.default_rng(0).normal(size=(6, 64)).astype(np.float32), (6, 8))
    b = da.from_array(np.random.default_rng(1).normal(size=(64, 6)).astype(np.float32), (8, 6))
    first, second = (tile_dask.apply(MATMUL, a, b).compute(scheduler="threads") for _ in range(2))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("part", [(slice(7, 8), slice(0, 9)), (slice(0, 8), slice(0, 1)), (slice(2, 4), slice(3, 9))])
def test_edges_do_not_keep_their_chunks(part: tuple[slice, slice]) -> None:
    """Those that are contiguous least of all: a view of them would be as good an array."""
    chunk = np.arange(72.0).reshape(8, 9)
    found = edge(chunk, part)
    assert found.flags.owndata and found.flags.c_contiguous and (found == chunk[part]).all()


def test_the_memory_of_large_boxes_is_used_again() -> None:
    """New pages are cleared by the system, which takes as long as the copies."""
    half = np.ones((256, 509), np.float32)
    pieces = tuple(Piece((slice(low, low + 256), slice(0, 509)), None) for low in (0, 256))
    taken: list[int] = []
    for _ in range(3):
        taken.append(HostMemory().usage.allocations)
        box = assembled(Read((512, 509), np.dtype("f4"), pieces), iter([half, 2 * half]))
        assert (box[[0, 511], 7] == [1, 2]).all()
        del box
    assert np.diff(taken).tolist() == [1, 0]


def test_equal_work_has_equal_keys() -> None:
    x = da.from_array(numbers(8, 8), (4, 4))
    assert tile_dask.apply(BLUR, x).name == tile_dask.apply(BLUR, x).name != tile_dask.apply(BLUR, x, steps=2).name


def test_names_of_tasks_are_the_functions() -> None:
    y = tile_dask.apply(BLUR, da.zeros((8, 8), chunks=4, dtype="float32"))
    assert all(
        str(key[0] if isinstance(key, tuple) else key).startswith(("blur", "zeros")) for key in y.__dask_graph__()
    )


def test_only_chunks_of_the_arrays_are_tasks_without_inputs() -> None:
    """dask holds back what many tasks without inputs give; were it kernels, all chunks would come to lie in memory."""
    x = da.zeros((12, 12), chunks=4, dtype="float32")
    y = tile_dask.apply(BLUR, x)
    tasks = tile_dask.apply(tile.vjp(BLUR, wrt=("X",)), x, y).__dask_graph__()
    first = {key[0] if isinstance(key, tuple) else key for key, task in tasks.items() if not task.dependencies}
    assert sorted(name.rsplit("-", 1)[0] for name in first) == ["blur-kernels", "vjp_blur-kernels", "zeros_like"]
    assert sum(not task.dependencies for task in tasks.values()) == x.npartitions + 2


def test_the_partition_is_printed() -> None:
    assert "float32[8, 8]" in tile_dask.partition(BLUR, da.zeros((8, 8), chunks=4, dtype="float32")).explain()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: tile_dask.apply(BLUR, x, x), "takes 1 input"),
        (lambda x: tile_dask.apply(BLUR, x, steps=0), "steps is a whole number"),
        (lambda x: tile_dask.apply(BLUR, x, out_chunks={"Z": 3}), "no output 'Z'"),
        (lambda x: tile_dask.apply(BLUR, x, out_chunks=(3, (4, 5))), "does not cut"),
        (lambda x: tile_dask.apply(BLUR, x[x[:, 0] > 0]), "unknown sizes"),
        (lambda x: tile_dask.apply(STATISTICS, x, out_chunks=2), "has 2 outputs"),
        (lambda x: tile_dask.apply(BLUR, x.astype("complex64")), "argument 'X': Tile has no element type"),
        (lambda x: tile_dask.apply("blur", x), "function"),
        (lambda x: tile_dask.apply(MATMUL, x, x[:3]), "M|L|size"),
    ],
)
def test_wrong_use_is_our_error(call: Any, message: str) -> None:
    with pytest.raises(tile.TileTypeError, match=message):
        call(da.zeros((8, 8), chunks=4, dtype="float32"))


def test_an_error_in_a_task_names_function_and_chunk() -> None:
    y = tile_dask.apply(BLUR, da.zeros((8, 8), chunks=4, dtype="float32"), device="nowhere")
    with pytest.raises(tile.TileError) as caught:
        y.compute()
    assert re.search(r"in chunk \([01], [01]\) of blur, Y", "\n".join(getattr(caught.value, "__notes__", [])))


def test_attention_over_chunks_of_keys_needs_no_rechunk() -> None:
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=s).astype(np.float32) for s in ((24, 8), (64, 8), (64, 4)))
    found = tile_dask.apply(ATTENTION, q, da.from_array(k, (8, 8)), da.from_array(v, (8, 4)))
    s = q.astype(np.float64) @ k.T.astype(np.float64)
    p = np.exp(s - s.max(1, keepdims=True))
    np.testing.assert_allclose(found.compute(), p @ v / p.sum(1, keepdims=True), rtol=1e-5)
    layers = {str(key[0] if isinstance(key, tuple) else key).rsplit("-", 1)[0] for key in found.__dask_graph__()}
    assert not any("rechunk" in name for name in layers)
    scores = [key for key in found.__dask_graph__() if "partial" in str(key)]
    assert len(scores) == 8  # one task for each chunk of keys: nothing else reads them


def test_the_first_tasks_carry_their_kernels_and_the_others_share_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the first chunks need not wait until the scheduler has had a worker make the piece of data with all kernels."""
    a = numbers(40, 10)
    x = da.from_array(a, (10, 10))
    for room, waiting in ((graph.CARRIED, 0), (0, x.npartitions)):
        monkeypatch.setattr(graph, "CARRIED", room)
        y = tile_dask.apply(BLUR, x)
        needs = [str(key) for task in y.__dask_graph__().values() for key in getattr(task, "dependencies", ())]
        assert sum("kernels" in key for key in needs) == waiting
        np.testing.assert_array_equal(y.compute(), BLUR(a))
