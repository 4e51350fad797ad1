"""Train a convolutional network on scikit-learn's 8×8 digits with tile_nn.

    python integration/examples/digits.py [--device llvm] [--epochs 12]

Exit code 0 when at least 97 % of the test digits are recognised, otherwise 1. Needs scikit-learn, which brings the digits.
`train_digits.py` does the same with layers and updates written in Tile.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import tile_nn as nn
import tile_runtime as tile
from rich.console import Console
from tile_runtime import numpy as tnp

GOAL, BATCH, TESTED = 0.97, 64, 360


def network(params: Any, images: Any) -> Any:
    """[N, 1, 8, 8] to [N, 10]."""
    x = nn.max_pool(tnp.relu(nn.conv(params["first"], images)), 2)
    x = nn.max_pool(tnp.relu(nn.conv(params["second"], x)), 2)
    return nn.dense(params["out"], x.reshape(x.shape[0], -1))


def loss(params: Any, images: Any, labels: Any) -> Any:
    return nn.cross_entropy(network(params, images), labels).mean()


def parameters(key: Any) -> dict[str, Any]:
    first, second, third = tile.random.split(key, 3)
    return {
        "first": nn.init.conv(first, 1, 16, 3),
        "second": nn.init.conv(second, 16, 32, 3),
        "out": nn.init.dense(third, 2 * 2 * 32, 10),
    }


def digits() -> tuple[Any, Any]:
    """Images [N, 1, 8, 8] between 0 and 1, and labels, in an order drawn once."""
    package = find_spec("sklearn")
    if package is None or package.origin is None:
        raise SystemExit("the digits come with scikit-learn: pip install scikit-learn")
    # Its data alone: none of its code runs.
    table = np.loadtxt(Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz", np.int32, delimiter=",")
    table = np.random.default_rng(0).permutation(table)
    return (table[:, :64].reshape(-1, 1, 8, 8) / 16).astype(np.float32), table[:, 64]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", help="a device id such as llvm or opencl:0 (default: the best there is)")
    parser.add_argument("--epochs", type=int, default=12)
    options = parser.parse_args(arguments)
    device = tile.device(options.device)
    images, labels = digits()
    params = parameters(tile.key(0, device))
    optimizer = nn.adam(nn.cosine(4e-3, options.epochs * ((len(labels) - TESTED) // BATCH)))
    state, step = optimizer.init(params), nn.training_step(loss, optimizer)
    test = tile.jit(lambda params, *data: nn.accuracy(network(params, data[0]), data[1]))
    share = 0.0
    for epoch in (bar := nn.progress(range(options.epochs))):
        for batch in nn.batches((images[TESTED:], labels[TESTED:]), BATCH, seed=epoch):
            params, state, value = step(params, state, *batch)
            bar.show(loss=value)
        share = float(test(params, images[:TESTED], labels[:TESTED]).item())
    Console(highlight=False).print(f"{share:.1%} of {TESTED} digits are recognised")
    return 0 if share >= GOAL else 1


if __name__ == "__main__":
    raise SystemExit(main())
