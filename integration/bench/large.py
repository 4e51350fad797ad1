"""Large programs, and what compiling them may take: every one grows in proportion to its size."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import tile_lang
import tile_runtime as tile
from rounds import Contestant
from rows import Limit
from tile_ir.diagnostics import TileError
from tile_ir.dtype import DType
from tile_ir.program.nodes import TensorType

CELLS = 64


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
    return ("function (A) -> (B) {" + "@;+=?:" * count)[:count]


def compiled(text: str) -> None:
    """Down to machine code."""
    assert _lowered(tile.Function(text)).executable is not None


def planned(text: str) -> None:
    """Down to the kernels that a backend gets."""
    assert _lowered(tile.Function(text)).kernels.kernels


def differentiated(text: str) -> None:
    """The kernels of the derivative by A."""
    assert _lowered(tile.vjp(tile.Function(text), wrt="A")).kernels.kernels


def read(text: str) -> None:
    """Down to the typed program, or to the text of the error."""
    try:
        tile_lang.bind(tile_lang.parse(text), {"A": TensorType(DType.FLOAT32, (CELLS,))})
    except TileError as error:
        assert str(error)


def _lowered(function: tile.Function) -> tile.Lowered:
    values = [tile.placeholder("float32", (CELLS,), name) for name in function.inputs]
    return function.lower(*values, device="llvm")


def _limit(name: str, most: float, size: int, make: Callable[[int], str], work: Callable[[str], None]) -> Limit:
    def prepare(small: bool) -> Mapping[str, Contestant]:
        text = make(max(8, size // 100) if small else size)

        def run() -> float:
            start = time.process_time()
            work(text)
            return time.process_time() - start

        return {"tile": run}

    return Limit(f"{name}, CPU seconds", most, "s", prepare)


ROWS: dict[str, Limit] = {
    "large-chain": _limit("compiling a chain of 2,000 statements", 3, 2_000, chain, compiled),
    "large-chain-long": _limit("compiling a chain of 20,000 statements", 30, 19_990, chain, compiled),
    "large-outputs": _limit("compiling 5,000 outputs", 10, 5_000, outputs, compiled),
    "large-inputs": _limit("compiling 3,000 inputs", 10, 3_000, inputs, compiled),
    "large-terms": _limit("reading an expression of 10⁵ terms", 2, 99_000, terms, read),
    "large-mistakes": _limit("19,000 undefined names", 2, 19_000, undefined, read),
    "large-punctuation": _limit("10⁶ characters of punctuation", 5, 1_000_000, punctuation, read),
    "large-gradient": _limit("the gradient of a chain of 2,000", 10, 2_000, chain, differentiated),
}
