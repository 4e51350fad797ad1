"""Blur, Sobel edges and max-pool of a real photograph, composed into one program of four Tile functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import tile_runtime as tile
from timing import Stages

Array = np.ndarray[Any, Any]
HERE = Path(__file__).parent
REC709 = np.array([0.2126, 0.7152, 0.0722], np.float32)
BINOMIAL = np.array([1, 4, 6, 4, 1], np.float32) / 16
SMOOTH = np.array([1, 2, 1], np.float32)
DIFFERENCE = np.array([-1, 0, 1], np.float32)


@dataclass(frozen=True)
class Outcome:
    """The pictures by name (floats from 0 to 1, the photograph itself as uint8), and the largest error."""

    stages: Stages
    pictures: Mapping[str, Array]
    kernels: int
    error: float


def photograph() -> Array:
    """The astronaut Eileen Collins (NASA, public domain), uint8 [512, 512, 3], as scikit-image ships it."""
    from PIL import Image

    package = find_spec("skimage")
    if package is None or package.origin is None:
        raise SystemExit("the demo's photograph is part of scikit-image: pip install scikit-image")
    return np.asarray(Image.open(Path(package.origin).parent / "data" / "astronaut.png").convert("RGB"))


def run(device: Any, image: Array) -> Outcome:
    """The pipeline on `image` (uint8 [height, width, 3]), checked against NumPy."""
    stages = Stages()
    with stages.stage("compose", "four functions → one program"):
        pipeline = compose(image.shape)
    with stages.stage("compile"):
        lowered = pipeline.lower(image, device=device)
        _ = lowered.executable
    with stages.stage("first call"):
        pipeline(image, device=device)
    results, _ = stages.best("next calls", 5, lambda: pipeline(image, device=device), "best of 5")
    with stages.stage("compare with NumPy"):
        expected = reference(image)
        error = max(float(np.abs(r - e).max()) for r, e in zip(results, expected, strict=True))
    names = ("blurred", "edges", "pooled")
    return Outcome(
        stages, {"photograph": image, **dict(zip(names, results, strict=True))}, len(lowered.kernels.steps), error
    )


def compose(shape: tuple[int, ...]) -> Any:
    """One function: the image to its blurred version, edges and pooled edges."""
    image = tile.placeholder("uint8", shape, "Image")
    blurred = load("blur")(load("luminance")(image, REC709), BINOMIAL)
    edges = load("sobel")(blurred, SMOOTH, DIFFERENCE)
    return tile.compose([image], [blurred, edges, load("max_pool")(edges)])


def load(name: str) -> tile.Function:
    return tile.Function.from_file(HERE / f"{name}.tile")


def reference(image: Array) -> tuple[Array, Array, Array]:
    """The same in NumPy, float64."""
    light = image / 255.0 @ REC709.astype(np.float64)
    blurred = _along(_along(light, BINOMIAL, 0, "same"), BINOMIAL, 1, "same")
    weights = [_along(np.ones(n), BINOMIAL, 0, "same") for n in light.shape]
    blurred /= np.outer(*weights)
    across = _along(_along(blurred, DIFFERENCE[::-1], 1, "valid"), SMOOTH, 0, "valid")
    down = _along(_along(blurred, DIFFERENCE[::-1], 0, "valid"), SMOOTH, 1, "valid")
    edges = np.hypot(across, down)
    return blurred, edges, _pooled(edges)


def _along(image: Array, kernel: Array, axis: int, mode: Any) -> Array:
    return np.apply_along_axis(np.convolve, axis, image, kernel.astype(np.float64), mode)


def _pooled(image: Array) -> Array:
    height, width = (n + n % 2 for n in image.shape)
    padded = np.pad(image, ((0, height - image.shape[0]), (0, width - image.shape[1])))
    return padded.reshape(height // 2, 2, width // 2, 2).max((1, 3))


def save(pictures: Mapping[str, Array], folder: Path) -> list[Path]:
    """Each picture as NAME.png; floats are stretched so that their largest value is white."""
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    for number, (name, picture) in enumerate(pictures.items()):
        bytes_ = (
            picture if picture.dtype == np.uint8 else (255 * picture / max(float(picture.max()), 1e-9)).astype(np.uint8)
        )
        paths.append(folder / f"{number}-{name}.png")
        Image.fromarray(bytes_).save(paths[-1])
    return paths
