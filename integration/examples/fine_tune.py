"""Teach an imported network something new by training its last layer.

    python integration/examples/fine_tune.py [--orientation] [--device llvm] [--steps 60]

The network is a small one that tells four patterns apart, whose last layer is forgotten first. With --orientation it is
PP-OCR's classifier of upright and upside-down text, which learns to tell words from numbers instead; that needs Pillow
and the models of `python3 dev.py models`. Forward pass, gradient (`tile.vjp` of the imported model) and update are one
program. Exit code 0 when nine of ten pictures that were kept back are told right, otherwise 1.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnx.parser
import tile_onnx
import tile_runtime as tile
from onnx import numpy_helper

Array = np.ndarray[Any, Any]

LOSS = tile.Function("""
function (P[N, L], T[N]) -> (O) {
    Q = index(P, 1) == reshape(T, N, 1) ? log(P + 0.0000001) : 0;
    S[] = +(Q[n, l]);
    O = -S / N;
}""")
"""Cross-entropy of probabilities."""
STEP = tile.Function("function (W, G, R[]) -> (O) { O = W - R * G; }")
GOAL = 0.9

NETWORK = """<ir_version: 8, opset_import: ["" : 17]> patterns (float[N, 1, 8, 8] image) => (float[N, 4] probabilities) {
    seen = Conv<pads = [1, 1, 1, 1]>(image, kernels, offsets)
    kept = Relu(seen)
    pooled = MaxPool<kernel_shape = [4, 4], strides = [4, 4]>(kept)
    features = Flatten(pooled)
    scores = Gemm(features, weights, bias)
    probabilities = Softmax(scores)
}"""


def network() -> onnx.ModelProto:
    """Fixed random kernels, and a last layer that knows nothing."""
    rng = np.random.default_rng(0)
    shapes = {"kernels": (12, 1, 3, 3), "offsets": (12,), "weights": (48, 4), "bias": (4,)}
    arrays = {n: np.zeros(s) if n in ("weights", "bias") else rng.normal(size=s) / 2 for n, s in shapes.items()}
    made = onnx.parser.parse_model(NETWORK)
    made.graph.initializer.extend(numpy_helper.from_array(a.astype(np.float32), n) for n, a in arrays.items())
    return made


def patterns(count: int, seed: int = 0) -> tuple[Array, Array]:
    """Noisy pictures [N, 1, 8, 8] of lines across, down, and along both diagonals; and which they are."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 4, count).astype(np.int32)
    y, x = np.mgrid[:8, :8]
    lines = np.stack([y, x, y + x, y - x])[labels] + rng.integers(0, 4, (count, 1, 1))
    return (((lines % 4 == 0) + 0.3 * rng.normal(size=lines.shape)).astype(np.float32)[:, None]), labels


def last_layer(model: tile_onnx.Model) -> list[str]:
    """The initializers of the last product of matrices, and of what is added to it."""
    found: list[str] = []
    for node in reversed(model.graph.nodes):
        found = [n for n in node.input if n in model.graph.constants] + found
        if node.op_type in ("Gemm", "MatMul") and found:
            return found
    raise SystemExit("the model has no product with constant weights")


class Trainer:
    """Weights on the device, and the program that uses and changes them."""

    def __init__(self, model: tile_onnx.Model, shape: tuple[int, ...], parameters: Sequence[str]) -> None:
        self._device = model.evaluator.device
        start = [model.graph.constants[n] for n in parameters]
        self.weights = [tile.asarray(np.array(w), device=self._device) for w in start]
        self.network = model.function({model.inputs[0].name: shape}, parameters)
        image = tile.placeholder("float32", shape, "image")
        labels = tile.placeholder("int32", shape[:1], "labels")
        rate = tile.placeholder("float32", (), "rate")
        given = [tile.placeholder("float32", w.shape, f"w{k}") for k, w in enumerate(start)]
        self.loss = tile.compose([image, labels, *given], [LOSS(self.network(image, *given), labels)])
        self.gradient = tile.vjp(self.loss, tuple(f"w{k}" for k in range(len(start))))
        slopes = self.gradient(image, labels, *self.weights, np.float32(1))
        fresh = [STEP(w, g, rate) for w, g in zip(self.weights, slopes, strict=True)]
        updates = list(zip(self.weights, fresh, strict=True))
        self._step = tile.compose([image, labels, rate], [self.loss(image, labels, *self.weights)], updates=updates)

    def step(self, images: Array, labels: Array, rate: float) -> float:
        """The loss before one step down its gradient."""
        return float(self._step(images, labels, np.float32(rate), device=self._device))

    def accuracy(self, images: Array, labels: Array) -> float:
        """The share of pictures that are told right."""
        scores = np.asarray(self.network(images, *self.weights, device=self._device))
        return float(np.mean(scores.argmax(1) == labels))


def words_and_numbers(count: int, seed: int = 0) -> tuple[Array, Array]:
    """Lines of text as the orientation network takes them, [N, 3, 48, 192]: words are 0, numbers 1."""
    import ocr
    from PIL import Image, ImageDraw, ImageFont

    rng, font = np.random.default_rng(seed), ImageFont.load_default(30)
    labels = rng.integers(0, 2, count).astype(np.int32)
    pictures: list[Array] = []
    for label in labels:
        text = "".join(rng.choice(list("0123456789" if label else "abcdefghijklmnopqrstuvwxyz"), 9))
        strip = Image.new("RGB", (192, ocr.HEIGHT), "white")
        ImageDraw.Draw(strip).text((int(rng.integers(2, 16)), int(rng.integers(0, 8))), text, fill="black", font=font)
        pictures.append(ocr.normalised(strip))
    return np.stack(pictures), labels


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--orientation", action="store_true", help="train PP-OCR's orientation classifier")
    parser.add_argument("--device", help="a device id such as llvm or opencl:0 (default: the best there is)")
    parser.add_argument("--steps", type=int, default=60)
    options = parser.parse_args(arguments)
    source, draw, batch, rate = network(), patterns, 64, 0.05
    if options.orientation:
        import wheels

        source, draw, batch, rate = wheels.model("cls"), words_and_numbers, 32, 0.3
    model = tile_onnx.load(source, options.device)
    parameters = last_layer(model)
    images, labels = draw(batch)
    trainer = Trainer(model, images.shape, parameters)
    print(f"training {', '.join(parameters)} on {model.evaluator.device.id}")
    tests = draw(batch, 1)
    print(f"told right before: {trainer.accuracy(*tests):.0%}")
    for k in range(options.steps):
        loss = trainer.step(images, labels, rate)
        if k % 10 == 0 or k == options.steps - 1:
            print(f"step {k:3}  loss {loss:.4f}")
    right = trainer.accuracy(*tests)
    print(f"told right now: {right:.0%}")
    return 0 if right >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
