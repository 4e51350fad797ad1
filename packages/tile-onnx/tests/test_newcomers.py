"""Sizes that a model has not met yet: ONNX's reference runs them until a program would have paid for itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
import tile_onnx
from onnx_models import peer
from tile_ir.diagnostics import TileError
from tile_onnx.newcomers import ALIKE
from tile_runtime.tensor import Tensor, asarray

Array = np.ndarray[Any, Any]

CACHE = """
    <ir_version: 9, opset_import: ["" : 20]>
    step (float[B, P, 3] past, float[B, S, 3] new) => (float[B, T, 3] present, float[B, S, 3] y)
    <float two = {2}> {
        present = Concat<axis = 1>(past, new) t = Transpose<perm = [0, 2, 1]>(present) s = MatMul(new, t) g = Gelu(s)
        p = Softmax<axis = -1>(g) o = MatMul(p, present) y = Mul(o, two) }"""
LAST = np.ones((1, 1, 3), np.float32)


def grown(model: Any, steps: int, past: int = 2) -> Array:
    """The cache of a first call and `steps` more that grow it."""
    cache = np.ones((1, past, 3), np.float32)
    for _ in range(steps + 1):
        found = model.run({"past": cache, "new": LAST})
        scores = LAST @ found["present"].transpose(0, 2, 1)
        assert found["y"].shape == (*scores.shape[:2], 3)
        np.testing.assert_allclose(found["y"], np.full((1, 1, 3), 2), rtol=1e-6)
        cache = found["present"]
    return cache


def test_a_cache_that_grows_needs_one_program() -> None:
    model = tile_onnx.load(onnx.parser.parse_model(CACHE), "interp")
    assert grown(model, 20).shape == (1, 23, 3)
    assert model._engine.walks == 1


def test_like_calls_in_a_row_get_a_program() -> None:
    model = tile_onnx.load(onnx.parser.parse_model(CACHE), "interp")
    grown(model, 0)
    walks: list[int] = []
    for _ in range(ALIKE + 1):
        grown(model, 0, past=5)
        walks.append(model._engine.walks)
    assert walks == [1] * (ALIKE - 1) + [2, 2]


def test_prepared_sizes_have_their_program() -> None:
    model = tile_onnx.load(onnx.parser.parse_model(CACHE), "interp")
    grown(model, 0)
    model.prepare({"past": (1, 7, 3), "new": (1, 1, 3)})
    newcomers: Any = model._engine._newcomers
    grown(model, 0, past=7)
    assert model._engine.walks == 2 and not newcomers._spent


def test_tensors_stay_tensors() -> None:
    model = tile_onnx.load(onnx.parser.parse_model(CACHE), "interp")
    grown(model, 0)
    found = model.run({"past": asarray(np.ones((1, 9, 3), np.float32), "interp"), "new": LAST})
    assert model._engine.walks == 1 and all(isinstance(v, Tensor) for v in found.values())


BRANCH = """
    <ir_version: 9, opset_import: ["" : 20, "own" : 1]>
    branch (float[N] x, bool c) => (float[M] y, float[N] z) {
        w = own.twice(x)
        y = If(c) <then_branch = a () => (float[M] r) { r = Add(w, x) }, else_branch = b () => (float[M] r) { r = Concat<axis = 0>(x, w) }>
        z = Identity(x) }
    <domain: "own", opset_import: ["" : 20]> twice (u) => (v) { v = Add(u, u) }"""


@pytest.mark.parametrize("way", [True, False])
def test_branches_and_functions(way: bool) -> None:
    model = tile_onnx.load(onnx.parser.parse_model(BRANCH), "interp")
    for size in (2, 3, 4, 5, 6):
        x = np.arange(size, dtype=np.float32)
        found = model.run({"x": x, "c": np.array(way)})
        np.testing.assert_array_equal(found["y"], 3 * x if way else np.concatenate([x, 2 * x]))
        found["z"][:] = 9  # results belong to the caller
        assert x[0] == 0


def test_wrong_inputs_are_named_as_ever() -> None:
    model = tile_onnx.load(onnx.parser.parse_model(CACHE), "interp")
    grown(model, 0)
    with pytest.raises(TileError, match="present"):
        model.run({"past": np.ones((2, 4, 3), np.float32), "new": LAST})
    assert grown(model, 3).shape == (1, 6, 3)
    assert model._engine.walks == 2  # one to say what was wrong


SLOW = """
    <ir_version: 9, opset_import: ["" : 20]>
    slow (float[N, 1, W] x) => (float[N, 1, W] y) { y = MaxPool<kernel_shape = [1], strides = [1]>(x) }"""


def test_what_the_reference_does_slowly_gets_programs() -> None:
    model = tile_onnx.load(onnx.parser.parse_model(SLOW), "interp")
    for size in (3, 4, 5):
        model.run({"x": np.ones((1, 1, size), np.float32)})
    assert model._engine.walks == 3


SPLIT = """
    <ir_version: 9, opset_import: ["" : 21, "com.microsoft" : 1]>
    step (float[B, S, 96] q, float[B, 2, P, 16] k, float[B, 2, P, 16] v, int32[B] last, int32[1] total, float[32, 8] cos, float[32, 8] sin)
    => (float[B, S, 32] y, float[B, 2, T, 16] nk, float[B, 2, T, 16] nv) {
        y, nk, nv = com.microsoft.GroupQueryAttention<num_heads = 2, kv_num_heads = 2, do_rotary = 1>(q, , , k, v, last, total, cos, sin) }"""


def test_caches_of_onnx_runtime_grow_without_programs() -> None:
    rng = np.random.default_rng(0)
    model = tile_onnx.load(onnx.parser.parse_model(SPLIT), "interp")
    tables = {n: rng.standard_normal((32, 8)).astype(np.float32) for n in ("cos", "sin")}
    cache = {n: rng.standard_normal((1, 2, 3, 16)).astype(np.float32) for n in "kv"}
    for past in range(3, 9):
        counts = {"last": np.array([past], np.int32), "total": np.array([past + 1], np.int32)}
        feeds = {"q": rng.standard_normal((1, 1, 96)).astype(np.float32), **cache, **counts, **tables}
        found = model.run(feeds)
        wanted = peer(onnx.parser.parse_model(SPLIT), feeds)
        for name, value in wanted.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-5)
        cache = {"k": found["nk"], "v": found["nv"]}
    assert model._engine.walks == 2  # the first call found that the number of keys matters
