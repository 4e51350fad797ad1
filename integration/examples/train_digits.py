"""Train a small convolutional network on scikit-learn's 8×8 digits; layers, loss and update are written in Tile.

    python integration/examples/train_digits.py [--device llvm] [--epochs 30] [--output demo-output]

Forward pass, backward pass and the update of every weight are one program. Exit code 0 when at least 97 % of the test
digits are recognised, otherwise 1. Needs scikit-learn; with matplotlib it draws digits-loss.png.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import tile_runtime as tile
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

Array = np.ndarray[Any, Any]

GOAL = 0.97
BATCH = 64
MOMENTUM = 0.9
TESTED = 360
"""How many of the 1797 digits are kept for the test."""

CONVOLUTION = tile.Function("""
function (I[N, H, W, CI], K[KH, KW, CI, CO], B[CO]) -> (O) {
    S[n, y, x, co : N, H, W, CO] = +(I[n, y + i - 1, x + j - 1, ci] * K[i, j, ci, co]);
    O = relu(S + B);
}""")
POOL = tile.Function("""
function (I[N, H, W, C]) -> (O) {
    O[n, y, x, c : N, H / 2, W / 2, C] = >(I[n, 2*y + i, 2*x + j, c]), i < 2, j < 2;
}""")
DENSE = tile.Function("""
function (I[N, H, W, C], M[K, L], B[L]) -> (O) {
    F = reshape(I, N, K);
    S[n, l : N, L] = +(F[n, k] * M[k, l]);
    O = S + B;
}""")
LOSS = tile.Function("""
function (X[N, L], T[N]) -> (O) {
    P = builtin_logsoftmax(X, N, L);
    Q = index(P, 1) == reshape(T, N, 1) ? P : 0;
    S[] = +(Q[n, l]);
    O = -S / N;
}""")
MOVE = tile.Function("function (V, G, M[]) -> (O) { O = M * V + G; }")
STEP = tile.Function("function (W, V, R[]) -> (O) { O = W - R * V; }")

SHAPES = {
    "K1": (3, 3, 1, 16),
    "B1": (16,),
    "K2": (3, 3, 16, 32),
    "B2": (32,),
    "M": (2 * 2 * 32, 10),
    "B3": (10,),
}

console = Console(width=None if sys.stdout.isatty() else 100, highlight=False)


def logits(x: Any, k1: Any, b1: Any, k2: Any, b2: Any, m: Any, b3: Any) -> Any:
    """The network: two convolutions with pooling, one dense layer; [N, 8, 8, 1] to [N, 10]."""
    hidden = POOL(CONVOLUTION(x, k1, b1))
    hidden = POOL(CONVOLUTION(hidden, k2, b2))
    return DENSE(hidden, m, b3)


@dataclass
class Trainer:
    """The weights on a device, and the programs that use and change them."""

    device: Any
    seed: int = 0
    weights: list[Any] = field(init=False)

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        self.weights = [tile.asarray(_initial(rng, s), device=self.device) for s in SHAPES.values()]
        velocities = [tile.asarray(np.zeros(s, np.float32), device=self.device) for s in SHAPES.values()]
        x = tile.placeholder("float32", (BATCH, 8, 8, 1), name="X")
        t = tile.placeholder("int32", (BATCH,), name="T")
        rate = tile.placeholder("float32", (), name="R")
        given = [tile.placeholder("float32", s, name=n) for n, s in SHAPES.items()]
        model = tile.compose([x, t, *given], [LOSS(logits(x, *given), t)])
        slopes = tile.vjp(model, tuple(SHAPES))(x, t, *self.weights, np.float32(1))
        moved = [MOVE(v, g, np.float32(MOMENTUM)) for v, g in zip(velocities, slopes, strict=True)]
        fresh = [STEP(w, v, rate) for w, v in zip(self.weights, moved, strict=True)]
        updates = [*zip(velocities, moved, strict=True), *zip(self.weights, fresh, strict=True)]
        self.step = tile.compose([x, t, rate], [model(x, t, *self.weights)], updates=updates)
        tests = tile.placeholder("float32", (TESTED, 8, 8, 1), name="X")
        self.predict = tile.compose([tests], [logits(tests, *self.weights)])

    def accuracy(self, images: Array, labels: Array) -> float:
        scores = np.asarray(self.predict(images, device=self.device))
        return float(np.mean(scores.argmax(1) == labels))

    def epoch(self, images: Array, labels: Array, rate: float, order: Array) -> Iterator[float]:
        """One pass over the images in batches: the loss of each."""
        for start in range(0, len(order) - BATCH + 1, BATCH):
            batch = order[start : start + BATCH]
            yield float(self.step(images[batch], labels[batch], np.float32(rate), device=self.device))


def _initial(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Normal numbers scaled by the inputs of a unit; zeros for biases."""
    if len(shape) == 1:
        return np.zeros(shape, np.float32)
    return (rng.normal(size=shape) * np.sqrt(2 / np.prod(shape[:-1]))).astype(np.float32)


def digits(seed: int = 0) -> tuple[Array, Array, Array, Array]:
    """Training images and labels, test images and labels; images [N, 8, 8, 1] between 0 and 1."""
    from sklearn.datasets import load_digits

    data = load_digits()
    order = np.random.default_rng(seed).permutation(len(data.target))
    images = (data.images[order][..., None] / 16).astype(np.float32)
    labels = data.target[order].astype(np.int32)
    return images[TESTED:], labels[TESTED:], images[:TESTED], labels[:TESTED]


def train(trainer: Trainer, epochs: int, data: tuple[Array, Array, Array, Array]) -> tuple[list[float], list[float]]:
    """Losses by step and test accuracies by epoch, with a progress bar."""
    images, labels, tests, answers = data
    rng = np.random.default_rng(1)
    losses: list[float] = []
    accuracies: list[float] = []
    columns = (
        TextColumn("epoch {task.fields[epoch]}"),
        BarColumn(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("training", total=epochs * (len(images) // BATCH), epoch=0, note="")
        for epoch in range(epochs):
            rate = 0.1 * (1 - epoch / epochs) + 0.002
            for loss in trainer.epoch(images, labels, rate, rng.permutation(len(images))):
                losses.append(loss)
                progress.update(task, advance=1)
            accuracies.append(trainer.accuracy(tests, answers))
            note = f"loss {np.mean(losses[-20:]):.3f}, test accuracy {accuracies[-1]:.1%}"
            progress.update(task, epoch=epoch + 1, note=note)
    return losses, accuracies


def plot(losses: Sequence[float], accuracies: Sequence[float], folder: Path) -> Path | None:
    """Draw the loss and the accuracy; None without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        return None
    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    folder.mkdir(parents=True, exist_ok=True)
    figure, left = plt.subplots(figsize=(7, 4))
    left.semilogy(losses, linewidth=0.8, color="tab:blue")
    left.set_xlabel("step")
    left.set_ylabel("training loss (cross-entropy)", color="tab:blue")
    right = left.twinx()
    ends = np.arange(1, len(accuracies) + 1) * len(losses) / len(accuracies)
    right.plot(ends, 100 * np.asarray(accuracies), color="tab:orange")
    right.set_ylabel("test accuracy, %", color="tab:orange")
    right.set_ylim(80, 100)
    left.set_title("A convolutional network in Tile on 8×8 digits")
    figure.tight_layout()
    path = folder / "digits-loss.png"
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return path


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", help="a device id such as llvm or opencl:0 (default: the best there is)")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--output", type=Path, default=Path("demo-output"), help="folder of the loss plot")
    options = parser.parse_args(arguments)
    device = tile.device(options.device)
    data = digits()
    console.print(
        f"\n[bold]device[/]   {device.id}  {device.name}\n[bold]digits[/]   {len(data[0])} to learn, {TESTED} to test"
    )
    trainer = Trainer(device)
    start = perf_counter()
    losses, accuracies = train(trainer, options.epochs, data)
    seconds = perf_counter() - start
    path = plot(losses, accuracies, options.output)
    good = accuracies[-1] >= GOAL
    console.print(
        f"{len(losses)} steps in {seconds:.1f} s, loss {np.mean(losses[-20:]):.4f}, "
        f"test accuracy [bold {'green' if good else 'red'}]{accuracies[-1]:.2%}[/]"
        + (f"; saved {path}" if path else "")
    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
