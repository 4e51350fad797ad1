"""How a kernel comes about: one function through every stage, and the pages of explain, as they are on the machine that made them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tile_lang
import tile_runtime as tile

from pages.markdown import details, fenced

SOFTMAX = """function (X[N, M]) -> (S) {
    A[n, 0 : N, 1] = >(X[n, m]);
    E = exp(X - A);
    T[n, 0 : N, 1] = +(E[n, m]);
    S = E / T;
}"""
MATMUL = "function (A[M, L], B[L, N]) -> (R) {\n    C[i, j : M, N] = +(A[i, k] * B[k, j]);\n    R = relu(C);\n}"
CONVOLUTION = """function (D[N, X, Y, CI], K[I, J, CO, CI]) -> (R) {
    O[n, x, y, co : N, X, Y, CO] = +(D[n, x+i-1, y+j-1, ci] * K[i, j, co, ci]);
    R = relu(O);
}"""
EXPLAINED = {
    "A softmax": ("softmax", SOFTMAX, ((256, 1024),)),
    "A product and its ReLU": ("matmul", MATMUL, ((512, 512), (512, 512))),
    "A convolution and its ReLU": ("convolution", CONVOLUTION, ((1, 56, 56, 64), (3, 3, 64, 64))),
}
HEAD = """\
# How a kernel comes about

A softmax in four statements, followed through the compiler; every text below is what the compiler held when this page was made.
[Architecture](architecture.md) says what each stage is for, [Reading what the compiler did](explain.md) how to read the pages at the end.
"""
STAGES = (
    ("The text", "Two contractions, two elementwise statements; no loops, no buffers.", "tile"),
    ("Bound to shapes", "Every value has a type, and every contraction its index tuples and its scalar body.", "text"),
    ("As loops", "Unscheduled: a block of loops for each statement, with its exact bounds.", "text"),
    (
        "Scheduled",
        "One kernel: what each row needs stays where it is used; loops are tiles, vectors and work groups.",
        "text",
    ),
    ("The plan", "Those decisions alone, as text that can be changed and given back.", "text"),
    ("For the device", "LLVM's language, before LLVM's own work; on other devices OpenCL C.", "llvm"),
)


def page(folder: Path) -> str:
    """The text; explain's pages are written below `folder`."""
    lowered = tile.Function(SOFTMAX, "softmax.tile").lower(_drawn((256, 1024)), device="llvm")
    texts = (
        SOFTMAX,
        tile_lang.print_program(lowered.program),
        str(lowered.stripe_after("initial")),
        str(lowered.stripe),
        str(lowered.plans),
        lowered.source,
    )
    return "\n".join([HEAD, *_stages(texts), *_explained(folder)])


def _stages(texts: tuple[str, ...]) -> Iterator[str]:
    for (title, says, language), text in zip(STAGES, texts, strict=True):
        block = fenced(text, language)
        lines = text.count("\n")
        yield f"## {title}\n\n{says}\n\n{block if lines < 60 else details(f'{lines} lines', block)}"


def _explained(folder: Path) -> Iterator[str]:
    yield "## Explained\n\nThe same, as `tile explain --html` shows it: move over a line of source or a kernel.\n"
    for title, (name, source, shapes) in EXPLAINED.items():
        lowered = tile.Function(source, f"{name}.tile").lower(*map(_drawn, shapes), device="llvm")
        file = folder / "assets" / "explain" / f"{name}.html"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(lowered.explain_html(), "utf-8")
        link = f"assets/explain/{name}.html"
        yield f'### {title}\n\n<iframe src="{link}" title="{title}" loading="lazy"></iframe>\n\n[On a page of its own]({link})\n'


def _drawn(shape: tuple[int, ...]) -> Any:
    return np.random.default_rng(0).standard_normal(shape, np.float32)
