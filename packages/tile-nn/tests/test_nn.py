"""Layers beside NumPy, optimisers beside their papers' formulas, and a training that learns."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tile_nn as nn
import tile_runtime as tile
from rich.console import Console
from tile_runtime import numpy as tnp

RNG = np.random.default_rng(0)
KEY = np.uint32([0, 7])


def normal(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.standard_normal(shape).astype(np.float32)


def near(found: Any, want: Any, tolerance: float = 1e-5) -> None:
    np.testing.assert_allclose(np.asarray(found), np.asarray(want), rtol=tolerance, atol=tolerance)


# --- layers -----------------------------------------------------------------------------------------------


def test_dense_takes_any_axes_in_front() -> None:
    params, x = {"weights": normal(4, 3), "bias": normal(3)}, normal(2, 5, 4)
    near(nn.dense(params, x), x @ params["weights"] + params["bias"])


def convolved(x: Any, weights: Any, stride: int, before: tuple[int, int]) -> np.ndarray[Any, Any]:
    """One group, two axes, by the definition."""
    kernel = weights.shape[2:]
    x = np.pad(x, [(0, 0), (0, 0), *((b, k) for b, k in zip(before, kernel, strict=True))])
    sizes = [-(-(n - k) // stride) for n, k in zip(x.shape[2:], kernel, strict=True)]
    windows = np.lib.stride_tricks.sliding_window_view(x, kernel, (2, 3))[:, :, ::stride, ::stride]
    return np.einsum("ncyxij,ocij->noyx", windows[:, :, : sizes[0], : sizes[1]], weights)


def test_convolutions_pad_and_step() -> None:
    x, params = normal(2, 3, 6, 5), {"weights": normal(4, 3, 3, 3), "bias": normal(4)}
    bias = params["bias"].reshape(1, -1, 1, 1)
    same = convolved(x, params["weights"], 1, (1, 1))[:, :, :6, :5]
    near(nn.conv(params, x), same + bias, 1e-4)
    strided = nn.conv(params, x, stride=2, padding=1)
    near(strided, same[:, :, ::2, ::2] + bias, 1e-4)
    assert nn.conv(params, x, padding="valid").shape == (2, 4, 4, 3)
    assert nn.conv(nn.init.conv(KEY, 4, 8, 3, groups=2), normal(1, 4, 5, 5), groups=2, stride=2).shape == (1, 8, 3, 3)


def test_pools() -> None:
    x = normal(2, 3, 4, 6)
    parts = x.reshape(2, 3, 2, 2, 3, 2)
    near(nn.max_pool(x, 2), parts.max((3, 5)))
    near(nn.mean_pool(x, 2), parts.mean((3, 5)))


def test_norms() -> None:
    x, params = normal(3, 4, 5) * 3 + 1, {"scale": normal(4), "bias": normal(4)}
    scale, bias = (params[n].reshape(1, -1, 1) for n in ("scale", "bias"))
    last = x.transpose(0, 2, 1)
    want = (last - last.mean(-1, keepdims=True)) / np.sqrt(last.var(-1, keepdims=True) + 1e-5)
    near(nn.layer_norm(params, last), want * params["scale"] + params["bias"], 1e-4)
    square = last / np.sqrt((last**2).mean(-1, keepdims=True) + 1e-6)
    near(nn.rms_norm({"scale": params["scale"]}, last), square * params["scale"], 1e-4)
    groups = x.reshape(3, 2, 10)
    want = (groups - groups.mean(-1, keepdims=True)) / np.sqrt(groups.var(-1, keepdims=True) + 1e-5)
    near(nn.group_norm(params, x, 2), want.reshape(x.shape) * scale + bias, 1e-4)


def test_batch_norm_keeps_statistics() -> None:
    x, params = normal(6, 4, 5) * 3 + 1, nn.init.norm(4)
    made, statistics = nn.batch_norm(params, nn.init.batch_statistics(4), x, training=True)
    mean, variance = x.mean((0, 2)), x.var((0, 2))
    near(made, (x - mean[:, None]) / np.sqrt(variance[:, None] + 1e-5), 1e-4)
    near(statistics["mean"], 0.1 * mean)
    near(statistics["variance"], 0.9 + 0.1 * variance * 30 / 29, 1e-4)
    later, same = nn.batch_norm(params, statistics, x, training=False)
    assert same is statistics
    near(later, (x - 0.1 * mean[:, None]) / np.sqrt(np.asarray(statistics["variance"])[:, None] + 1e-5), 1e-4)


def test_attention_looks_where_it_may() -> None:
    q, k, v = normal(2, 3, 4), normal(2, 3, 4), normal(2, 3, 5)
    scores = np.where(np.tri(3, dtype=bool), q @ k.transpose(0, 2, 1) / 2, -np.inf)
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    want = shares / shares.sum(-1, keepdims=True) @ v
    near(nn.attention(q, k, v, causal=True), want)
    near(nn.attention(q, k, v, mask=np.tri(3, dtype=bool)), want)
    params, x = nn.init.self_attention(KEY, 6), normal(2, 5, 6)
    found = np.asarray(nn.self_attention(params, x, 2, causal=True))
    changed = np.array(x)
    changed[:, 3:] += 1  # what comes later changes nothing before it
    near(np.asarray(nn.self_attention(params, changed, 2, causal=True))[:, :3], found[:, :3])


def test_embedding_and_dropout() -> None:
    table = normal(7, 3)
    near(nn.embedding({"table": table}, np.int32([[0, 6], [2, 2]])), table[[[0, 6], [2, 2]]])
    x = np.ones((100, 100), np.float32)
    found = np.asarray(nn.dropout(KEY, x, 0.25))
    assert set(np.unique(found)) == {0, np.float32(1 / 0.75)}
    assert found.mean() == pytest.approx(1, abs=0.03)
    assert nn.dropout(None, x, 0.25) is x


# --- losses -----------------------------------------------------------------------------------------------


def test_losses() -> None:
    logits, labels = normal(5, 4) * 3, np.int32([0, 3, 1, 1, 2])
    shares = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    want = -shares[np.arange(5), labels]
    near(nn.cross_entropy(logits, labels), want)
    near(nn.cross_entropy(logits, labels, smoothing=0.1), 0.9 * want - 0.1 * shares.mean(-1))
    targets = np.float32([[0, 1, 0.5, 1]])
    p = 1 / (1 + np.exp(-logits))
    near(nn.binary_cross_entropy(logits, targets), -(targets * np.log(p) + (1 - targets) * np.log(1 - p)), 1e-4)
    near(nn.huber(np.float32([0.5, 3]), np.float32([0, 0])), [0.125, 2.5])
    near(nn.squared_error(logits, logits + 2), np.full((5, 4), 4))
    assert float(nn.accuracy(logits, logits.argmax(-1).astype(np.int32))) == 1


# --- optimisers -------------------------------------------------------------------------------------------


def stepped(optimizer: nn.Optimizer, params: Any, slopes: list[Any]) -> Any:
    update = tile.jit(optimizer.update)
    state = optimizer.init(params)
    for slope in slopes:
        params, state = update(params, slope, state)
    return params


def test_sgd_with_momentum() -> None:
    p, slopes = normal(3), [normal(3) for _ in range(3)]
    want, total = p.copy(), np.zeros(3, np.float32)
    for g in slopes:
        total = 0.9 * total + g + 0.1 * want
        want = want - 0.5 * total
    near(stepped(nn.sgd(0.5, momentum=0.9, weight_decay=0.1), {"p": p}, [{"p": g} for g in slopes])["p"], want)


def test_adamw_and_clipping() -> None:
    p, slopes = normal(3), [normal(3) * 10 for _ in range(3)]
    want, mean, square = p.astype(np.float64), np.zeros(3), np.zeros(3)
    for k, slope in enumerate(slopes, 1):
        g = slope / max(1, np.linalg.norm(slope) / 2)
        mean, square = 0.9 * mean + 0.1 * g, 0.999 * square + 0.001 * g * g
        change = mean / (1 - 0.9**k) / (np.sqrt(square / (1 - 0.999**k)) + 1e-8)
        want = want - 0.1 / k * (change + 0.01 * want)
    rate = lambda step: 0.1 / (step + 1).astype("float32")  # noqa: E731
    near(stepped(nn.clipped(nn.adamw(rate), 2.0), p, slopes), want, 1e-4)


def test_parameters_keep_their_dtype() -> None:
    params = {"p": np.float16([1, 2])}
    found = stepped(nn.adam(0.1), params, [{"p": np.float16([1, -1])}])
    assert found["p"].dtype == np.float16


def test_schedules() -> None:
    def at(schedule: Any, *steps: int) -> list[float]:
        return [float(schedule(step)) for step in steps]

    assert at(nn.linear(1, 0, 10), 0, 5, 20) == pytest.approx([1, 0.5, 0])
    assert at(nn.cosine(1, 10, end=0.5), 0, 5, 10) == pytest.approx([1, 0.75, 0.5])
    assert at(nn.exponential(1, 0.5, 10), 0, 10, 20) == pytest.approx([1, 0.5, 0.25])
    assert at(nn.piecewise([3, 2, 1], [5, 10]), 4, 5, 10) == pytest.approx([3, 2, 1])
    assert at(nn.warmup(4, nn.cosine(1, 10)), 0, 3, 4, 14) == pytest.approx([0.25, 1, 1, 0], abs=1e-6)
    compiled = tile.jit(nn.warmup(4, 0.5))
    assert [float(compiled(np.int32(k))) for k in (1, 9)] == pytest.approx([0.25, 0.5])


def test_training_learns_and_uses_the_same_memory() -> None:
    def network(params: Any, x: Any) -> Any:
        return nn.dense(params["out"], tnp.tanh(nn.dense(params["hidden"], x)))

    def loss(params: Any, x: Any, labels: Any) -> Any:
        logits = network(params, x)
        return nn.cross_entropy(logits, labels).mean(), {"accuracy": nn.accuracy(logits, labels)}

    x = normal(256, 2)
    labels = (x[:, 0] * x[:, 1] > 0).astype(np.int32)
    params = {"hidden": nn.init.dense(KEY, 2, 16), "out": nn.init.dense(KEY, 16, 2)}
    optimizer = nn.adam(0.03)
    step, state = nn.training_step(loss, optimizer, has_aux=True), optimizer.init(params)
    memory = params["hidden"]["weights"]
    aux: Any = None
    for epoch in range(30):
        for batch in nn.batches((x, labels), 64, seed=epoch):
            params, state, (_, aux) = step(params, state, *batch)
    assert params["hidden"]["weights"] is memory and int(state["step"].item()) == 120
    assert float(aux["accuracy"]) > 0.9


# --- files, batches, the bar ------------------------------------------------------------------------------


def test_checkpoints_go_round(tmp_path: Path) -> None:
    tree = {
        "layers": [{"w": normal(2, 3)}, {"w": np.float16([1, 2])}],
        "step": np.array(3, np.int64),
        "on": np.array([True]),
        "none": np.zeros((0, 3)),
    }
    file = tmp_path / "a.safetensors"
    nn.save(file, tree, {"note": "first"})
    back, metadata = nn.load(file, like=tree)
    assert metadata == {"note": "first"}
    for a, b in zip(tile.tree_leaves(back), tile.tree_leaves(tree), strict=True):
        assert isinstance(a, tile.Tensor) and a.shape == b.shape and np.dtype(a.dtype) == b.dtype
        np.testing.assert_array_equal(a, b)
    free, _ = nn.load(file)
    np.testing.assert_array_equal(free["layers"]["0"]["w"], tree["layers"][0]["w"])
    bfloat = tnp.asarray(normal(3)).astype("bfloat16")
    nn.save(file, bfloat)
    assert [p.name for p in tmp_path.iterdir()] == ["a.safetensors"]
    np.testing.assert_array_equal(nn.load(file)[0].numpy(), bfloat.numpy())


def damaged(tmp_path: Path) -> dict[str, tuple[Any, str]]:
    file, cut = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    nn.save(file, {"a": np.zeros(3, np.float32), "b": np.zeros(2, np.float32)})
    cut.write_bytes(file.read_bytes()[:-4])
    float8 = tmp_path / "c.safetensors"
    float8.write_bytes(file.read_bytes().replace(b'"F32","shape":[3]', b'"F64","shape":[1]', 1))
    return {
        "another network": (lambda: nn.load(file, like={"a": np.zeros(3, np.float32)}), "has, and this network does not"),
        "a missing tensor": (lambda: nn.load(file, like={"a": 0, "b": 0, "c": 0}), "lacks 1 of the tensors: c"),
        "another shape": (lambda: nn.load(file, like={"a": np.zeros(4, np.float32), "b": 0}), "a as float32[3]"),
        "a file that is cut off": (lambda: nn.load(cut), "no whole safetensors file"),
        "sizes that do not fit": (lambda: nn.load(float8), "no whole safetensors file"),
        "two of one name": (lambda: nn.save(file, {"a.b": np.zeros(1), "a": {"b": np.zeros(1)}}), "'a.b'"),
        "metadata": (lambda: nn.save(file, {}, {"epochs": 3}), "json.dumps"),  # type: ignore[dict-item]
    }  # fmt: skip


def test_wrong_files_are_told(tmp_path: Path) -> None:
    for call, text in damaged(tmp_path).values():
        with pytest.raises(tile.TileError) as caught:
            call()
        assert "TILE-E983" in str(caught.value) and text in str(caught.value)


def test_batches() -> None:
    data = {"x": np.arange(10), "y": np.arange(10) * 2}
    assert [len(b["x"]) for b in nn.batches(data, 4)] == [4, 4]
    drawn = list(nn.batches(data, 4, seed=1, partial=True))
    assert [len(b["x"]) for b in drawn] == [4, 4, 2]
    order = np.concatenate([b["x"] for b in drawn])
    assert sorted(order) == list(range(10)) and order.tolist() != list(range(10))
    assert all((b["y"] == b["x"] * 2).all() for b in drawn)


@pytest.mark.parametrize("terminal", [True, False])
def test_a_bar_is_for_terminals(terminal: bool) -> None:
    text = io.StringIO()
    steps = nn.progress(range(3), "learning", console=Console(file=text, force_terminal=terminal, width=100))
    for _ in steps:
        steps.show(loss=tile.asarray(np.float32(0.5)))
    assert ("learning" in text.getvalue() and "3/3" in text.getvalue() and "loss 0.5" in text.getvalue()) == terminal
    assert terminal or not text.getvalue()


X = np.ones((2, 3), np.float32)
WRONG = {
    "sizes of a layer": (lambda: nn.dense(nn.init.dense(KEY, 4, 5), X), "TILE-E981", "takes [..., 4]"),
    "channels last": (lambda: nn.conv(nn.init.conv(KEY, 3, 4, 3), np.ones((1, 5, 5, 3))), "TILE-E981", "channels"),
    "a window too large": (lambda: nn.max_pool(np.ones((1, 1, 2, 2), np.float32), 3), "TILE-E981", "does not fit"),
    "a padding": (lambda: nn.conv(nn.init.conv(KEY, 3, 4, 1), np.ones((1, 3, 2, 2)), padding="full"), "TILE-E982", "full"),
    "groups": (lambda: nn.init.conv(KEY, 3, 4, 1, groups=2), "TILE-E982", "divide"),
    "heads": (lambda: nn.self_attention(nn.init.self_attention(KEY, 6), np.ones((1, 2, 6)), 4), "TILE-E981", "4 heads"),
    "a rate": (lambda: nn.dropout(KEY, X, 1.5), "TILE-E982", "1.5"),
    "float labels": (lambda: nn.cross_entropy(X, X), "TILE-E981", "labels"),
    "shapes that broadcast": (lambda: nn.squared_error(X, X[:, :1]), "TILE-E981", "reshape"),
    "tokens": (lambda: nn.embedding(nn.init.embedding(KEY, 3, 2), X), "TILE-E981", "integers"),
    "a scale": (lambda: nn.init.dense(KEY, 3, 2, scale="xavier"), "TILE-E982", "glorot"),
    "a momentum": (lambda: nn.sgd(0.1, momentum=9), "TILE-E982", "momentum"),
    "a schedule": (lambda: nn.piecewise([1, 2], [3, 4]), "TILE-E982", "rates"),
    "batches": (lambda: list(nn.batches((X, X[:1]), 1)), "TILE-E981", "[1, 2]"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_use_is_told(name: str) -> None:
    call, code, text = WRONG[name]
    with pytest.raises(tile.TileError) as caught:
        call()
    assert code in str(caught.value) and text in str(caught.value)


def test_weights_have_the_spread_that_is_asked_for() -> None:
    for scale, want in (("glorot", math.sqrt(2 / 400)), ("he", math.sqrt(2 / 300)), (0.3, 0.3)):
        assert np.asarray(nn.init.dense(KEY, 300, 100, scale=scale)["weights"]).std() == pytest.approx(want, rel=0.03)
