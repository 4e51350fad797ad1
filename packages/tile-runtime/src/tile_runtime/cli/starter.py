"""The files of a new project: a function in Tile that blurs an image, and what is around it."""

from __future__ import annotations

import json
from collections.abc import Mapping


def files(name: str) -> Mapping[str, str]:
    """Text by path, for a project that is imported as `name`."""
    distribution = name.replace("_", "-")
    texts = {
        "README.md": _README,
        "pyproject.toml": _PROJECT,
        f"src/{name}/__init__.py": _PYTHON,
        f"src/{name}/{name}.tile": _TILE,
        f"tests/test_{name}.py": _TEST,
        f"{name}.ipynb": _notebook(),
    }
    return {place: text.replace("@name@", name).replace("@dist@", distribution) for place, text in texts.items()}


_README = """\
# @dist@

A function in [Tile](src/@name@/@name@.tile), called from Python.

```sh
pip install '.[test]'                           # once: what the tests need
python -m pytest                                # it does what NumPy does
tile check src/@name@/@name@.tile               # mistakes; `tile fmt` for the layout
tile bench src/@name@/@name@.tile               # for the shapes that its first line states, or with -s 'X=[480,640]'
tile explain src/@name@/@name@.tile             # what the compiler made of it
tile --help                                     # and what else there is
```
"""

_PROJECT = """\
[build-system]
requires = ["hatchling>=1.24"]
build-backend = "hatchling.build"

[project]
name = "@dist@"
version = "0.1.0"
description = "A function in Tile"
requires-python = ">=3.11"
dependencies = ["numpy>=1.26"]          # and tile-runtime, which is installed from its repository

[project.optional-dependencies]
test = ["pytest>=8"]

[tool.hatch.build.targets.wheel]
packages = ["src/@name@"]

[tool.pytest.ini_options]
pythonpath = ["src"]
"""

_TILE = """\
// shapes: X=float32[480,640] K=float32[3,3]
// Each cell becomes the weighted sum of its neighbours; beyond the edges the last cells go on.
function (X[M, N], K[I, J]) -> (Y) {
    Y[m, n : M, N] = +(X[clamp(m + i - (I - 1) / 2), clamp(n + j - (J - 1) / 2)] * K[i, j]);
}
"""

_PYTHON = '''\
"""A filter for images, written in Tile."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tile_runtime as tile

blur = tile.Function.from_file(Path(__file__).with_name("@name@.tile"))
"""``blur(image, weights)``: an image of any size, and weights with an odd number of rows and columns."""

BOX = np.full((3, 3), 1 / 9, np.float32)
"""Weights of the plain mean."""
'''

_TEST = '''\
"""The filter against NumPy."""

import numpy as np
from @name@ import BOX, blur


def expected(image: np.ndarray, weights: np.ndarray) -> np.ndarray:
    rows, columns = weights.shape
    padded = np.pad(image, ((rows // 2, rows // 2), (columns // 2, columns // 2)), "edge")
    windows = np.lib.stride_tricks.sliding_window_view(padded, weights.shape)
    return np.einsum("mnij,ij->mn", windows, weights)


def test_blur() -> None:
    image = np.random.default_rng(0).random((48, 64), np.float32)
    np.testing.assert_allclose(blur(image, BOX), expected(image, BOX), rtol=1e-5)
    wide = np.random.default_rng(1).random((5, 3), np.float32)
    np.testing.assert_allclose(blur(image, wide), expected(image, wide), rtol=1e-5)
'''

_CELLS = (
    ("markdown", "# @dist@\n\nA function in Tile, from Python."),
    ("code", "import sys\n\nsys.path.insert(0, 'src')  # not needed once the project is installed\n\nimport numpy as np\nfrom @name@ import BOX, blur"),
    ("code", "image = np.zeros((9, 9), np.float32)\nimage[4, 4] = 9\nblur(image, BOX).round(1)"),
    ("markdown", "What the compiler made of it:"),
    ("code", "blur.lower(image, BOX)"),
    ("markdown", "`%load_ext tile_runtime` brings `%%tile NAME`: a cell whose text is a function."),
)  # fmt: skip


def _notebook() -> str:
    cells = [_cell(number, kind, text) for number, (kind, text) in enumerate(_CELLS)]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    document = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(document, indent=1) + "\n"


def _cell(number: int, kind: str, text: str) -> dict[str, object]:
    source = text.splitlines(keepends=True)
    cell: dict[str, object] = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, "source": source}
    return cell if kind == "markdown" else {**cell, "execution_count": None, "outputs": []}
