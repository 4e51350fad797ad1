"""Results in the memory of donated, updated and carried tensors: what is scattered into them copies nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tile_runtime as tile
from tile_ir.kernels import KernelList, Step

N, D = 40, 8
PRODUCT = "function (X[B, D], W[E, D]) -> (Y) { Y[i, e : B, E] = +(X[i, d] * W[e, d]); }"
INTO = "function (K[N, D], X[B, D], P[B]) -> (R) { R[P[i], d : N, D] = =(X[i, d]) default K; }"
PLACED = "function (K[N, D], X[B, D]) -> (R) { R[i + 5, d : N, D] = =(X[i, d]) default K; }"
READ_AFTER = """function (K[N, D], X[B, D], P[B]) -> (R, S) {
    R[P[i], d : N, D] = =(X[i, d]) default K; S[n : N] = +(R[n, d] * K[n, d]); }"""
READ_BEFORE = """function (K[N, D], X[B, D], P[B]) -> (R) {
    S[d : D] = +(K[n, d]); Y = X + S; R[P[i], d : N, D] = =(Y[i, d]) default K; }"""
TWO = """function (K[N, D], V[N, D], X[B, D], P[B]) -> (R, S, T) {
    Y = 2 * X; R[P[i], d : N, D] = =(X[i, d]) default K; S[P[i], d : N, D] = =(Y[i, d]) default V;
    T[n : N] = +(R[n, d] * S[n, d]); }"""


def given(text: str) -> dict[str, np.ndarray[Any, Any]]:
    draw = np.random.default_rng(1)
    values = {"K": (N, D), "V": (N, D), "X": (3, D)}
    made = {
        n: draw.integers(-9, 9, s).astype(np.float32) for n, s in values.items() if f"{n}[" in text.partition("->")[0]
    }
    return made | ({"P": np.array([7, 2, 39], np.int32)} if "P[B]" in text else {})


def tensors(values: dict[str, np.ndarray[Any, Any]]) -> list[tile.Tensor]:
    return [tile.asarray(v, device="llvm") for v in values.values()]


def address(tensor: tile.Tensor) -> int:
    assert tensor.host is not None
    return tensor.host.ctypes.data


@pytest.mark.parametrize("text", [INTO, READ_BEFORE, PLACED])
def test_a_scatter_into_a_donated_tensor_writes_there(text: str) -> None:
    function, values = tile.Function(text), given(text)
    want = function(*values.values(), device="interp")
    for _ in range(2):  # the ordinary way, then the quick one
        old, *rest = tensors(values)
        place = address(old)
        made = function(old, *rest, out=old, donate="K")
        assert made is old and address(made) == place
        np.testing.assert_array_equal(made.numpy(), want)


def test_several_donated_tensors_and_a_result_of_its_own() -> None:
    function, values = tile.Function(TWO), given(TWO)
    want = function(*values.values(), device="interp")
    for _ in range(2):
        k, v, *rest = tensors(values)
        places = [address(k), address(v)]
        made = function(k, v, *rest, donate=("K", "V"))
        assert [address(t) for t in made[:2]] == places and made[2] is not k
        for found, expected in zip(made, want, strict=True):
            np.testing.assert_array_equal(found.numpy(), expected)


def test_what_is_read_again_is_copied() -> None:
    function, values = tile.Function(READ_AFTER), given(READ_AFTER)
    want = function(*values.values(), device="interp")
    old, *rest = tensors(values)
    assert not function.lower(*values.values(), device="llvm").kernels.inherits
    for found, expected in zip(function(old, *rest, donate="K"), want, strict=True):
        np.testing.assert_array_equal(found.numpy(), expected)


def test_a_tensor_given_twice_is_copied_and_so_is_memory_that_belongs_to_an_array() -> None:
    text = INTO.replace("X[B, D]", "X[N, D]").replace("P[B]", "P[N]")
    function, k = tile.Function(text), tile.asarray(given(INTO)["K"], device="llvm")
    order = np.arange(N, dtype=np.int32)[::-1].copy()
    before = k.numpy()
    np.testing.assert_array_equal(function(k, k, order, donate="K").numpy(), before[::-1])
    theirs = before.copy()
    lent = tile.from_dlpack(theirs, device="llvm")
    for _ in range(2):
        function(lent, tile.asarray(before, device="llvm"), tile.asarray(order, device="llvm"), donate="K").wait()
        np.testing.assert_array_equal(theirs, before)


def test_an_array_that_is_donated_is_not_taken_whatever_was_called_before() -> None:
    function, values = tile.Function(INTO), given(INTO)
    want = function(*values.values(), device="interp")
    function(*tensors(values), donate="K")
    for _ in range(2):
        array, (_, *rest) = values["K"].copy(), tensors(values)
        made = function(array, *rest, donate="K")
        assert isinstance(made, tile.Tensor)
        np.testing.assert_array_equal(made.numpy(), want)
        np.testing.assert_array_equal(array, values["K"])


def test_updates_of_a_composition_write_in_place() -> None:
    values = given(INTO)
    cache = tile.asarray(values["K"], device="llvm")
    x, p = tile.placeholder("float32", (3, D), "X"), tile.placeholder("int32", (3,), "P")
    step = tile.compose([x, p], [], updates=[(cache, tile.Function(INTO)(cache, x, p))])
    place, want = address(cache), values["K"].copy()
    for k in range(3):
        step(values["X"] + k, values["P"] - k)
        want[values["P"] - k] = values["X"] + k
        np.testing.assert_array_equal(cache.numpy(), want)
    assert address(cache) == place


def steps_of_rounds(kernels: KernelList) -> list[Step]:
    return [inner for step in kernels.steps if step.loop is not None for inner in step.loop.steps]


@pytest.mark.parametrize("device", ["llvm", "interp"])
def test_what_a_loop_carries_stays_where_it_is(device: str) -> None:
    step, draw = tile.Function(INTO), np.random.default_rng(2)
    k, xs = draw.random((4000, D), np.float32), draw.random((6, 1, D), np.float32)
    ps = draw.integers(0, 4000, (6, 1)).astype(np.int32)

    def moved(cache: Any, row: Any) -> Any:
        return step(cache, *row), row[0] * 2

    @tile.jit(device=device)
    def filled(k: Any, xs: Any, ps: Any) -> Any:
        return tile.scan(moved, k, (xs, ps))

    made, _ = filled(k, xs, ps)
    want = k.copy()
    for x, p in zip(xs, ps, strict=True):
        want[p] = x
    np.testing.assert_array_equal(np.asarray(made), want)
    kernels = filled.lower(k, xs, ps).kernels
    assert steps_of_rounds(kernels) and not any(inner.copies for inner in steps_of_rounds(kernels))
    assert kernels.inherits  # donated, it would not even be copied once


@pytest.mark.parametrize("bound", [False, True])
def test_what_is_kept_of_weights_is_there_once(bound: bool) -> None:
    """Of constants, or bound tensors: the program that writes in place has what the other one has made of them."""
    weights = np.random.default_rng(3).integers(-9, 9, (512, 512)).astype(np.float32)
    rows, places = weights[:4], np.arange(4, dtype=np.int32)
    x, p = tile.placeholder("float32", (4, 512), "X"), tile.placeholder("int32", (4,), "P")
    cache = tile.asarray(np.zeros((8, 512), np.float32), device="llvm")
    held = tile.asarray(weights, device="llvm") if bound else tile.constant(weights)
    y = tile.Function(PRODUCT)(x, held)
    evaluator = tile.Evaluator("llvm")

    def grown(step: Any) -> int:
        before = evaluator.memory
        evaluator(step, rows, places)
        after = evaluator.memory
        assert before is not None and after is not None
        return after.used - before.used

    plain = tile.compose([x, p], [y])
    updating = tile.compose([x, p], [], updates=[(cache, tile.Function(INTO)(cache, y, p))])
    assert weights.nbytes <= (once := grown(plain)) and grown(updating) < 1.5 * once
    np.testing.assert_array_equal(cache.numpy()[:4], rows @ weights.T)


def test_of_packed_weights_what_the_program_reads_stays() -> None:
    """A copy that is turned first, and packed then, is there for the packing alone."""
    weights = np.random.default_rng(3).integers(-9, 9, (512, 512)).astype(np.float32)
    x, held = tile.placeholder("float32", (4, 512), "X"), tile.asarray(weights, device="llvm")
    product = tile.compose([x], [tile.Function(PRODUCT)(x, held)])
    evaluator = tile.Evaluator("llvm")
    before = evaluator.memory
    for factor in (1, 2):  # what was written to is packed again
        with held.mmap_discard() as there:
            there[...] = weights * factor
        np.testing.assert_array_equal(evaluator(product, weights[:4]), weights[:4] @ weights.T * factor)
    after = evaluator.memory
    assert before is not None and after is not None
    assert after.used - before.used < 1.5 * weights.nbytes
