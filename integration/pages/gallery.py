"""The gallery: programs of integration/examples, run when the page is made, with the pictures that come out."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tile_runtime as tile

from pages.markdown import fenced
from pages.pictures import curve, save, side_by_side

EXAMPLES = Path(__file__).parents[1] / "examples"
HEAD = """\
# Gallery

Small programs of the repository, run when this page was made, on the CPU that made it.
"""


@dataclass(frozen=True, slots=True)
class Work:
    """A picture with its program: `make` writes the file and says a line about what came out."""

    title: str
    says: str
    source: str
    make: Callable[[Path], str]
    file: str


def page(folder: Path) -> str:
    """The text; the pictures are written below `folder`."""
    sys.path.insert(0, str(EXAMPLES))
    try:
        return "\n".join([HEAD, *(part for work in WORKS for part in _work(work, folder))])
    finally:
        sys.path.remove(str(EXAMPLES))


def _work(work: Work, folder: Path) -> Iterator[str]:
    told = work.make(folder / "assets" / "gallery" / work.file)
    yield f"## {work.title}\n\n{work.says}\n\n![{work.title}](assets/gallery/{work.file})\n\n{told}\n"
    text = (EXAMPLES / work.source).read_text("utf-8")
    yield fenced(text, "tile") if work.source.endswith(".tile") else f"`python integration/examples/{work.source}`\n"


def pipeline(file: Path) -> str:
    import photograph

    image = photograph.photograph()
    blurred, edges, _ = photograph.compose(image.shape)(image)
    save(side_by_side([image, blurred, edges], 320), file)
    return "Brightness, a 5 × 5 blur and Sobel's edges of a photograph (NASA, public domain), composed into one program. The blur:"


def wave(file: Path) -> str:
    import membrane

    start = membrane.drop(160)
    frames = [np.abs(membrane.waves(160, steps)(start, start)) ** 0.5 for steps in (40, 120, 240)]
    save(side_by_side(frames, 240), file)
    return "A drop on a membrane after 40, 120 and 240 steps, each picture one program. A step:"


def fractal(file: Path) -> str:
    import fractal

    count = fractal.escape(200, 480)(*fractal.plane(480))
    save(fractal.picture(count, 200), file)
    return f"{int(count.sum()):,} steps of z² + c over 480 × 480 points."


def digits(file: Path) -> str:
    import digits
    import tile_nn as nn

    images, labels = digits.digits()
    params = digits.parameters(tile.key(0))
    optimizer = nn.adam(4e-3)
    state, step = optimizer.init(params), nn.training_step(digits.loss, optimizer)
    for epoch in range(6):
        for batch in nn.batches((images[digits.TESTED :], labels[digits.TESTED :]), digits.BATCH, seed=epoch):
            params, state, _ = step(params, state, *batch)
    shown = images[: digits.TESTED]
    read = np.asarray(tile.jit(digits.network)(params, shown)).argmax(1)
    right = float((read == labels[: digits.TESTED]).mean())
    rows = [np.concatenate([*shown[row : row + 12, 0]], 1) for row in (0, 12)]
    save(side_by_side([255 - (255 * np.concatenate(rows)).astype(np.uint8)], 160), file)
    told = " ".join(map(str, read[:24]))
    return f"Read after six epochs: {told}; of {digits.TESTED} that it had not seen, {right:.1%} are right."


def transformer(file: Path) -> str:
    import characters
    import tile_nn as nn

    text, alphabet = characters.documentation()
    params = characters.parameters(tile.key(0), len(alphabet), characters.LENGTH, 48, characters.BLOCKS)
    optimizer = nn.adamw(4e-3)
    state, step = optimizer.init(params), nn.training_step(characters.loss, optimizer)
    rng, losses = np.random.default_rng(0), list[float]()
    for _ in range(150):
        starts = rng.integers(0, len(text) - characters.LENGTH - 1, (characters.BATCH, 1))
        params, state, value = step(params, state, text[starts + np.arange(characters.LENGTH + 1)])
        losses.append(float(value))
    curve(losses, "loss", file)
    return f"Two blocks of attention read Python's own documentation; the loss falls from {losses[0]:.2f} to {losses[-1]:.2f}."


WORKS = (
    Work("An image pipeline", "Four functions, one program: nothing between them is stored that need not be.", "blur.tile", pipeline,
         "pipeline.png"),
    Work("Waves", "The wave equation as a loop on the device, with a gradient through all of its steps.", "wave.tile", wave, "wave.png"),
    Work("A fractal", "A loop of elementwise steps: eight rounds at a time stay in registers.", "fractal.py", fractal, "fractal.png"),
    Work("Digits", "A convolutional network, trained: loss, derivatives and update are one submission.", "digits.py", digits, "digits.png"),
    Work("A transformer", "Attention, layer norms and Adam in forty lines.", "characters.py", transformer, "transformer.svg"),
)  # fmt: skip
