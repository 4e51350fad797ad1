"""Pictures of arrays as PNG files, and curves as SVG: what the gallery and the notebooks' pages are made with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def stretched(values: Array) -> Array:
    """Numbers as bytes, from the smallest as 0 to the largest as 255; bytes as they are."""
    if values.dtype == np.uint8:
        return values
    span = float(np.ptp(values)) or 1.0
    return (255 * (values.astype(np.float64) - float(values.min())) / span).astype(np.uint8)


def side_by_side(pictures: Sequence[Array], height: int, gap: int = 8) -> Array:
    """Grey or coloured pictures of one height beside one another, on white; uint8 [height, width, 3]."""
    from PIL import Image

    scaled: list[Array] = []
    for picture in pictures:
        image = Image.fromarray(stretched(picture)).convert("RGB")
        width = max(1, round(image.width * height / image.height))
        method = Image.Resampling.NEAREST if image.height < height else Image.Resampling.LANCZOS
        scaled += [np.asarray(image.resize((width, height), method)), np.full((height, gap, 3), 255, np.uint8)]
    return np.concatenate(scaled[:-1], 1)


def save(picture: Array, file: Path) -> None:
    from PIL import Image

    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(picture).save(file, optimize=True)


def curve(values: Sequence[float], label: str, file: Path) -> None:
    """A falling line with its ends named, as an SVG of 640 × 220."""
    low, high = min(values), max(values)
    across = 560 / max(1, len(values) - 1)
    points = " ".join(
        f"{50 + k * across:.1f},{190 - 160 * (v - low) / (high - low or 1):.1f}" for k, v in enumerate(values)
    )
    text = 'font-family="sans-serif" font-size="13" fill="#888"'
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 220" role="img" aria-label="{label}">'
        f'<polyline points="{points}" fill="none" stroke="#c2571a" stroke-width="2"/>'
        f'<text x="6" y="34" {text}>{high:.3g}</text><text x="6" y="194" {text}>{low:.3g}</text>'
        f'<text x="50" y="214" {text}>{label}, {len(values)} steps</text></svg>\n',
        "utf-8",
    )
