"""Read the text of a picture with PP-OCRv4: find lines, turn those that stand on their heads, read them.

    python integration/examples/ocr.py [PICTURE] [--device llvm] [--output demo-output]

Without a picture it draws one, with a line upside down. The picture with boxes and text is saved as ocr.png.
Needs Pillow, and the models of `python3 dev.py models`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import wheels
from PIL import Image, ImageDraw, ImageFont

Array = np.ndarray[Any, Any]
Run = Callable[[Array], Array]
"""A model of one input and one output."""

LINES = ("Tile runs neural networks", "on every device, 2026", "Invoice 2041-77, page 3", "Total: 318.50 EUR")
UPSIDE_DOWN = 2
"""Which of the lines is drawn so."""
THRESHOLD = 0.3
"""From which probability on a pixel belongs to text."""
UNCLIP = 1.6
"""Lines are found shrunk: area over perimeter times this is what boxes grow by."""
GRID = 4
"""Pixels of a cell in which text is sought."""
HEIGHT = 48
STEP = 160
"""Widths of lines are rounded up to multiples of this: each new one is compiled once."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of text: its box (left, top, right, bottom), the text, and how sure the model is of it."""

    box: tuple[int, int, int, int]
    text: str
    score: float
    turned: bool


@dataclass(frozen=True, slots=True)
class Reader:
    """The three networks, and the characters that the last one tells apart."""

    detect: Run
    orient: Run
    recognise: Run
    characters: Sequence[str]

    def read(self, picture: Image.Image) -> list[Line]:
        """The lines of a picture, from top to bottom."""
        boxes = self.boxes(picture)
        crops = [picture.crop(b) for b in boxes]
        turned = [self._is_turned(c) for c in crops]
        upright = [c.transpose(Image.Transpose.ROTATE_180) if t else c for c, t in zip(crops, turned, strict=True)]
        if not crops:
            return []
        scores = self.recognise(np.stack(_same_width(upright)))
        decoded = [decode(s, self.characters) for s in scores]
        return [Line(b, text, sure, t) for b, (text, sure), t in zip(boxes, decoded, turned, strict=True)]

    def boxes(self, picture: Image.Image) -> list[tuple[int, int, int, int]]:
        """Where lines are."""
        width, height = (-(-n // 32) * 32 for n in picture.size)
        page = Image.new("RGB", (width, height), "white")
        page.paste(picture)
        return text_boxes(self.detect(normalised(page)[None])[0, 0])

    def _is_turned(self, crop: Image.Image) -> bool:
        scaled = _scaled(crop, 192)
        padded = np.zeros((1, 3, HEIGHT, 192), np.float32)
        padded[0, :, :, : scaled.shape[2]] = scaled
        return bool(self.orient(padded)[0, 1] > 0.9)


def load(device: str | None = None) -> Reader:
    """The networks on Tile."""
    import tile_onnx

    det, cls, rec = (tile_onnx.load(wheels.model(n), device) for n in ("det", "cls", "rec"))
    return Reader(_one(det), _one(cls), _one(rec), characters(rec.metadata))


def _one(model: Any) -> Run:
    return lambda x: np.asarray(next(iter(model(x).values())))


def characters(metadata: Mapping[str, str]) -> list[str]:
    """What the classes of the recognition network stand for: nothing, the characters of its metadata, a space."""
    return ["", *metadata["character"].splitlines(), " "]


def normalised(picture: Image.Image) -> Array:
    """Float32 [3, height, width] from -1 to 1."""
    pixels = np.asarray(picture.convert("RGB"), np.float32) / 127.5 - 1
    return np.ascontiguousarray(pixels.transpose(2, 0, 1))


def _scaled(crop: Image.Image, widest: int) -> Array:
    width = min(widest, max(1, round(crop.width * HEIGHT / crop.height)))
    return normalised(crop.resize((width, HEIGHT), Image.Resampling.BILINEAR))


def _same_width(crops: Sequence[Image.Image]) -> list[Array]:
    scaled = [_scaled(c, 4096) for c in crops]
    width = -(-max(s.shape[2] for s in scaled) // STEP) * STEP
    return [np.pad(s, ((0, 0), (0, 0), (0, width - s.shape[2]))) for s in scaled]


def text_boxes(probability: Array) -> list[tuple[int, int, int, int]]:
    """Boxes around what hangs together above the threshold, from top to bottom."""
    height, width = (n // GRID * GRID for n in probability.shape)
    cells = probability[:height, :width].reshape(height // GRID, GRID, width // GRID, GRID).max((1, 3)) > THRESHOLD
    left = {(int(y), int(x)) for y, x in np.argwhere(cells)}
    found: list[tuple[int, int, int, int]] = []
    while left:
        part = _connected(left)
        rows, columns = [y for y, _ in part], [x for _, x in part]
        box = (min(columns) * GRID, min(rows) * GRID, (max(columns) + 1) * GRID, (max(rows) + 1) * GRID)
        if len(part) > 3:
            found.append(_grown(box, probability.shape))
    return sorted(found, key=lambda b: (b[1], b[0]))


def _connected(left: set[tuple[int, int]]) -> list[tuple[int, int]]:
    """Takes cells that hang together out of a set."""
    part, stack = list[tuple[int, int]](), [left.pop()]
    while stack:
        y, x = stack.pop()
        part.append((y, x))
        near = {(y + 1, x), (y - 1, x), (y, x + 1), (y, x - 1)} & left
        left -= near
        stack += near
    return part


def _grown(box: tuple[int, int, int, int], size: tuple[int, ...]) -> tuple[int, int, int, int]:
    left, top, right, bottom = box
    by = round((right - left) * (bottom - top) * UNCLIP / (2 * (right - left + bottom - top)))
    return max(0, left - by), max(0, top - by), min(size[1], right + by), min(size[0], bottom + by)


def decode(scores: Array, characters: Sequence[str]) -> tuple[str, float]:
    """The text of [places, classes]: repeated classes count once, class 0 is nothing; and the mean probability."""
    best = scores.argmax(1)
    kept = (best != 0) & (best != np.concatenate([[0], best[:-1]]))
    sure = float(scores.max(1)[kept].mean()) if kept.any() else 0.0
    return "".join(characters[k] for k in best[kept]), sure


def drawn(lines: Sequence[str] = LINES, upside_down: int | None = UPSIDE_DOWN) -> Image.Image:
    """A white page, 640 by 352, with lines of text in Pillow's own font."""
    page = Image.new("RGB", (640, 352), "white")
    font = ImageFont.load_default(34)
    for k, text in enumerate(lines):
        strip = Image.new("RGB", (600, 56), "white")
        ImageDraw.Draw(strip).text((10, 6), text, fill=(20, 30, 60), font=font)
        page.paste(strip.transpose(Image.Transpose.ROTATE_180) if k == upside_down else strip, (20, 20 + 80 * k))
    return page


def annotated(picture: Image.Image, lines: Sequence[Line]) -> Image.Image:
    """The picture, and beside it boxes with what was read in them."""
    both = Image.new("RGB", (2 * picture.width, picture.height), "white")
    both.paste(picture)
    pen, font = ImageDraw.Draw(both), ImageFont.load_default(24)
    for line in lines:
        left, top, right, bottom = line.box
        colour = (200, 60, 30) if line.turned else (20, 120, 60)
        pen.rectangle(line.box, outline=colour, width=2)
        pen.rectangle((left + picture.width, top, right + picture.width, bottom), outline=colour)
        pen.text((left + picture.width + 8, top + 8), line.text, fill=colour, font=font)
    return both


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("picture", nargs="?", type=Path, help="a picture of text (default: one is drawn)")
    parser.add_argument("--device", help="a device id such as llvm or opencl:0 (default: the best there is)")
    parser.add_argument("--output", type=Path, default=Path("demo-output"), help="folder of ocr.png")
    options = parser.parse_args(arguments)
    picture = Image.open(options.picture).convert("RGB") if options.picture else drawn()
    lines = load(options.device).read(picture)
    for line in lines:
        print(f"{line.score:.3f}  {'turned ' if line.turned else ''}{line.text}")
    options.output.mkdir(parents=True, exist_ok=True)
    annotated(picture, lines).save(options.output / "ocr.png")
    print(f"saved {options.output / 'ocr.png'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
