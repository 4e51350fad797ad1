"""Compiling takes time in proportion to the program: four times the statements cost at most five times the work.

Work is counted in calls of Python functions, which are the same on a busy machine and on another one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import pytest
import tile_lang
import tile_runtime as tile
from tile_ir.diagnostics import TileError
from tile_ir.dtype import DType
from tile_ir.program.nodes import TensorType

GROWTH = 5.0
"""At most, for four times the size."""
ROW = np.ones(64, np.float32)


def chain(count: int) -> str:
    """One elementwise statement after the other."""
    steps = "".join(f"B{k + 1} = tanh(B{k} + A); " for k in range(count))
    return f"function (A[N]) -> (B{count}) {{ B0 = A; {steps}}}"


def outputs(count: int) -> str:
    names = ", ".join(f"B{k}" for k in range(count))
    return f"function (A[N]) -> ({names}) {{ {''.join(f'B{k} = A + {k}; ' for k in range(count))}}}"


def inputs(count: int) -> str:
    names = [f"A{k}" for k in range(count)]
    return f"function ({', '.join(f'{n}[N]' for n in names)}) -> (B) {{ B = {' + '.join(names)}; }}"


def terms(count: int) -> str:
    return f"function (A[N]) -> (B) {{ B = {' + '.join(['A'] * count)}; }}"


def undefined(count: int) -> str:
    """So many mistakes."""
    return f"function (A[N]) -> (B) {{ {''.join(f'C{k} = Undefined{k} + A; ' for k in range(count))}B = A; }}"


def punctuation(count: int) -> str:
    return "function (A) -> (B) {" + ("@;+=?:" * count)[:count]


def compiled(text: str, values: int = 1) -> None:
    assert tile.Function(text).lower(*[ROW] * values, device="llvm").kernels.kernels


def read(text: str) -> None:
    try:
        tile_lang.bind(tile_lang.parse(text), {"A": TensorType(DType.FLOAT32, (64,))})
    except TileError as error:
        assert str(error)


def differentiated(text: str) -> None:
    assert tile.vjp(tile.Function(text), wrt="A").lower(ROW, ROW, device="llvm").kernels.kernels


CASES: dict[str, tuple[Callable[[int], object], int]] = {
    "a chain of statements": (lambda n: compiled(chain(n)), 150),
    "outputs": (lambda n: compiled(outputs(n)), 40),
    "inputs": (lambda n: compiled(inputs(n), n), 150),
    "terms of an expression": (lambda n: read(terms(n)), 1_000),
    "undefined names": (lambda n: read(undefined(n)), 500),
    "punctuation": (lambda n: read(punctuation(n)), 4_000),
}


def calls(work: Callable[[int], object], size: int) -> int:
    """Functions that are called, Python's own among them."""
    count = 0

    def note(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        work(size)
    finally:
        sys.setprofile(None)
    return count


def growth(work: Callable[[int], object], size: int) -> float:
    work(4)  # imports
    return calls(work, 4 * size) / calls(work, size)


@pytest.mark.parametrize("name", CASES)
def test_four_times_the_size_is_at_most_five_times_the_work(name: str) -> None:
    assert growth(*CASES[name]) <= GROWTH


@pytest.mark.slow
def test_gradients_of_chains_grow_with_their_depth() -> None:
    assert growth(lambda n: differentiated(chain(n)), 100) <= GROWTH


def test_a_hundred_mistakes_are_shown_and_the_rest_are_counted() -> None:
    with pytest.raises(TileError) as caught:
        tile.Function(undefined(350)).lower(ROW)
    found = caught.value.diagnostics
    assert len(found) == 101 and {d.code for d in found[:-1]} == {"TILE-E101"}
    assert (found[-1].code, found[-1].message) == ("TILE-E051", "250 more errors are not shown")
