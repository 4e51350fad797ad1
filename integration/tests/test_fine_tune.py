"""Training the last layer of an imported network: the gradient is that of NumPy, the loss falls."""

from __future__ import annotations

import fine_tune
import numpy as np
import onnx
import pytest
import tile_onnx

BATCH = 24


def softmax(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - scores.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def test_the_gradient_is_numpys() -> None:
    proto = fine_tune.network()
    model = tile_onnx.load(proto, "llvm")
    images, labels = fine_tune.patterns(BATCH)
    trainer = fine_tune.Trainer(model, images.shape, fine_tune.last_layer(model))
    rng = np.random.default_rng(1)
    w, b = (rng.normal(size=s).astype(np.float32) / 8 for s in ((48, 4), (4,)))
    del proto.graph.output[:]
    proto.graph.output.append(onnx.helper.make_tensor_value_info("features", 1, None))
    features = tile_onnx.load(proto, "llvm")(images)["features"].astype(np.float64)
    slope = (softmax(features @ w + b) - np.eye(4)[labels]) / BATCH
    found = trainer.gradient(images, labels, w, b, np.float32(1), device="llvm")
    for ours, wanted in zip(found, (features.T @ slope, slope.sum(0)), strict=True):
        np.testing.assert_allclose(ours, wanted, rtol=1e-3, atol=1e-5)


def test_the_loss_falls() -> None:
    model = tile_onnx.load(fine_tune.network(), "llvm")
    images, labels = fine_tune.patterns(BATCH)
    trainer = fine_tune.Trainer(model, images.shape, fine_tune.last_layer(model))
    losses = [trainer.step(images, labels, 0.05) for _ in range(30)]
    assert losses[0] == pytest.approx(np.log(4), rel=1e-4)
    assert losses[-1] < 0.6 * losses[0]


def test_a_model_without_weights_is_refused() -> None:
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> m (float[2] x) => (float[2] y) { y = Relu(x) }'
    )
    with pytest.raises(SystemExit, match="constant weights"):
        fine_tune.last_layer(tile_onnx.load(proto, "llvm"))
