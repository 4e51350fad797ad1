"""Multiply-adds of a tile there and back: what is written for NVIDIA's compiler, run on the devices of this machine."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hal_opencl import compiler
from hal_opencl.emit.dialect import PLAIN, Dialect
from hal_opencl.emit.source import Source, emit_kernel
from tile_ir.kernels import Kernel
from tile_ir.semtree.parser import parse_function
from tile_ir.stripe import nodes as stripe

ROWS, VECTORS, STEPS = 8, 2, 5
CELL = re.compile(r"(\w+)\.s(\d) = fma\((\w+), (\w+)\.s\2, \1\.s\2\);")


def tile(rows: int = ROWS, vectors: int = VECTORS, between: str = "") -> str:
    """Two steps of a sum in each round of a loop: the outer products of columns of `a` and rows of `b`."""
    sums = [f"c{r}_{v}" for r in range(rows) for v in range(vectors)]
    lines = [f"var {name} = 0.0f32x4;" for name in sums] + [f"for (k = 0; k < {STEPS}; k += 1) {{"]
    for half in range(2):
        lines += [f"let b{half}_{v} = b[(k * 2 + {half}) * {4 * vectors} + {4 * v}]:float32x4;" for v in range(vectors)]
        for r in range(rows):
            lines += [
                f"let a{half}_{r} = a[(k * 2 + {half}) * {rows} + {r}];",
                f"let t{half}_{r} = splat(a{half}_{r}, 4);",
            ]
            lines += [between] if between and r == 1 else []
            lines += [f"c{r}_{v} = fma(t{half}_{r}, b{half}_{v}, c{r}_{v});" for v in range(vectors)]
    lines += ["}", *(f"out[{4 * n}] = {name};" for n, name in enumerate(sums))]
    params = "readwrite global float32* out, read global float32* a, read global float32* b"
    return "\n".join([f"function f({params}) group(1, 1, 1) {{", *lines, "}"])


def text(source: str, dialect: Dialect = PLAIN) -> str:
    return emit_kernel(Kernel("f", stripe.Block("b"), parse_function(source), (1, 1, 1)), dialect).text


def test_rows_go_there_and_back() -> None:
    cells = CELL.findall(text(tile(), Dialect(ptx=True)))
    step = len(cells) // 2
    assert step == ROWS * VECTORS * 4
    for half, part in enumerate((cells[:step], cells[step:])):
        there = [(str(lane), f"b{half}_{v}") for v in range(VECTORS) for lane in range(4)]
        for row in range(ROWS):
            found = part[8 * row : 8 * row + 8]
            assert [(lane, vector) for _, lane, _, vector in found] == (there[::-1] if row % 2 else there)
            assert {scalar for _, _, scalar, _ in found} == {f"a{half}_{row}"}
            assert [name for name, *_ in found] == [f"c{row}_{v[-1]}" for _, _, _, v in found]


@pytest.mark.parametrize(
    "source",
    [
        tile(rows=4, vectors=2),
        tile(between="out[0] = a0_0;"),
        tile(between="c0_0 = c1_0;"),
        tile().replace("fma(t0_3, b0_1", "fma(t0_2, b0_1"),
        tile().replace("fma(t0_3, b0_1, c3_1)", "fma(t0_3, b0_0, c3_1)"),
    ],
    ids=["long rows", "a store between", "a sum read between", "a hole", "one vector twice"],
)
def test_what_is_no_whole_tile_stays_as_it_is(source: str) -> None:
    first = text(source, Dialect(ptx=True)).split("b1_0 =")[0]
    assert not CELL.findall(first) and first == text(source).split("b1_0 =")[0]


def test_sums_are_the_same(device: Any, launch: Callable[..., list[Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((2 * STEPS, n)).astype(np.float32) for n in (ROWS, 4 * VECTORS))
    out = np.zeros((ROWS, 4 * VECTORS), np.float32)
    plain = launch(device, parse_function(tile()), [out, a, b])[0]

    def turned(kernel: Kernel, dialect: Dialect) -> Source:
        made = emit_kernel(kernel, replace(dialect, ptx=True))
        assert CELL.search(made.text)
        return made

    monkeypatch.setattr(compiler, "emit_kernel", turned)
    found = launch(device, parse_function(tile()), [out, a, b])[0]
    assert (found == plain).all()
    np.testing.assert_allclose(found.reshape(out.shape), a.T @ b, rtol=1e-5, atol=1e-5)
