"""Large programs, and what compiling them may take: every one grows in proportion to its size."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import tile_lang
import tile_runtime as tile
from rounds import Contestant
from rows import Growth, Limit
from tile_ir.diagnostics import TileError
from tile_ir.dtype import DType
from tile_ir.program.nodes import TensorType
from tile_runtime.function import BaseFunction

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


def _lowered(function: BaseFunction) -> tile.Lowered:
    values = [tile.placeholder("float32", (CELLS,), name) for name in function.inputs]
    return function.lower(*values, device="llvm")


def _limit(name: str, most: float, size: int, make: Callable[[int], str], work: Callable[[str], None]) -> Limit:
    def prepare(small: bool) -> Mapping[str, Contestant]:
        return {"tile": _timed(work, make(max(8, size // 100) if small else size))}

    return Limit(f"{name}, CPU seconds", most, "s", prepare)


def _timed(work: Callable[[str], None], text: str) -> Contestant:
    def run() -> float:
        start = time.process_time()
        work(text)
        return time.process_time() - start

    return run


GROWTH = 5.0
"""Times as long that four times the program may take."""


def _growth(name: str, size: int, make: Callable[[int], str], work: Callable[[str], None]) -> Growth:
    def prepare(small: bool) -> Mapping[str, Contestant]:
        quarter = max(8, size // 400) if small else size // 4
        return {"tile": _timed(work, make(4 * quarter)), "a quarter": _timed(work, make(quarter))}

    return Growth(f"{name}, four times the size", GROWTH, prepare)


@dataclass(frozen=True)
class Kind:
    """Programs of one kind, what is done with them, and the CPU seconds that those of `size` may take."""

    name: str
    what: str
    most: float
    size: int
    make: Callable[[int], str]
    work: Callable[[str], None]


KINDS = (
    Kind("chain", "compiling a chain of 2,000 statements", 3, 2_000, chain, compiled),
    Kind("chain-long", "compiling a chain of 20,000 statements", 30, 19_990, chain, compiled),
    Kind("outputs", "compiling 5,000 outputs", 10, 5_000, outputs, compiled),
    Kind("inputs", "compiling 3,000 inputs", 10, 3_000, inputs, compiled),
    Kind("terms", "reading an expression of 10⁵ terms", 2, 99_000, terms, read),
    Kind("mistakes", "19,000 undefined names", 2, 19_000, undefined, read),
    Kind("punctuation", "10⁶ characters of punctuation", 5, 1_000_000, punctuation, read),
    Kind("gradient", "the gradient of a chain of 2,000", 10, 2_000, chain, differentiated),
)

ROWS: dict[str, Limit | Growth] = {
    **{f"large-{k.name}": _limit(k.what, k.most, k.size, k.make, k.work) for k in KINDS},
    **{f"growth-{k.name}": _growth(k.what, k.size, k.make, k.work) for k in KINDS if k.name != "chain-long"},
}
