"""Products of bfloat16 matrices on tile registers (AMX), beside PyTorch, and as a share of what the same threads could multiply just then.

A neighbour on a host's physical core may halve what a processor multiplies, for milliseconds. So each product runs between two probes
on the same threads, each with as many multiply-adds as the product has, on registers alone: the share is their mean time over its own.
Run ``python integration/bench/tile_products.py [--rounds 61] [512 1024 2048]``; sizes are of square matrices.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import tile_hal
import tile_runtime as tile
from machine import I64, POINTER, Probe
from rounds import PAUSE, Contestant
from tile_ir.dtype import DType
from tile_ir.matrix.x86 import LOAD_TILE, ROWS_OF_TILE, STORE_TILE, WORDS_OF_ROW, ZERO_TILE
from tile_ir.semtree.nodes import (
    Access,
    Binary,
    Block,
    Cast,
    Const,
    For,
    Function,
    IdKind,
    Param,
    Space,
    Statement,
    TileStep,
    Type,
    Var,
    WorkId,
)

INSTRUCTION = "tdpbf16ps"
CELLS = ROWS_OF_TILE * WORDS_OF_ROW
PRODUCTS = ((0, 4, 6), (1, 4, 7), (2, 5, 6), (3, 5, 7))
"""Registers of a step: four sums that do not wait for one another."""
STEP = 2 * len(PRODUCTS) * CELLS * 2 * WORDS_OF_ROW
"""Operations of a step: each word is two elements."""
WORDS = Type(DType.INT32, space=Space.GLOBAL, ptr=True)
SOURCE = "function (A[M, K], B[K, N]) -> (O) { O[m, n : M, N] = +(A[m, k] * B[k, n]); }"


class TileProbe(Probe):
    """Measures products of tiles that stay in registers, on each of so many threads of the CPU."""

    @classmethod
    def of(cls, flops: float, threads: int) -> TileProbe:
        """Of so many operations, on all threads together."""
        return cls(tile_hal.device("llvm"), threads, steps=round(flops / STEP / threads))

    @property
    def flops(self) -> int:
        return STEP * self.steps * self.groups

    def _function(self) -> Function:
        tiles, none = Var("B", WORDS), Const(0, I64)
        first = [TileStep(ZERO_TILE, (tile,)) for tile in range(4)]
        first += [TileStep(LOAD_TILE, (tile,), tiles, none, WORDS_OF_ROW) for tile in range(4, 8)]
        step = Block(tuple(TileStep(INSTRUCTION, registers) for registers in PRODUCTS))
        at = Binary("mul", Cast(WorkId(IdKind.GLOBAL, 0), I64), Const(CELLS, I64), I64)
        last = TileStep(STORE_TILE, (0,), Var("C", POINTER), at, WORDS_OF_ROW)
        body: tuple[Statement, ...] = (*first, For("k", none, Const(self.steps, I64), 1, step), last)
        params = (
            Param("C", POINTER, Access.WRITE, 64, CELLS * self.groups),
            Param("B", WORDS, Access.READ, 64, CELLS),
        )
        return Function("probe", params, Block(body), (1, 1, 1))


@dataclass(frozen=True, slots=True)
class Sample:
    """Seconds of the product in one round, of PyTorch's, and of the probes around the first."""

    tile: float
    peer: float
    probe: float

    @property
    def share(self) -> float:
        return self.probe / self.tile


def measured(runs: Mapping[str, Contestant], probe: Probe, rounds: int) -> list[Sample]:
    """So many rounds; each contestant runs once before it is timed, so that its threads are awake and its operands near."""
    found: list[Sample] = []
    for _ in range(rounds):
        time.sleep(PAUSE)
        runs["tile"]()
        before, own, after = probe.seconds(), _elapsed(runs["tile"]), probe.seconds()
        time.sleep(PAUSE)
        runs["peer"]()
        found.append(Sample(own, _elapsed(runs["peer"]), (before + after) / 2))
    return found


def contestants(side: int, threads: int) -> dict[str, Contestant]:
    """The product of two matrices by Tile, checked, and by PyTorch."""
    import torch

    torch.set_num_threads(threads)
    generator, device = np.random.default_rng(0), tile.device("llvm")
    a, b = (generator.standard_normal((side, side), np.float32).astype(ml_dtypes.bfloat16) for _ in "ab")
    product, evaluator = tile.Function(SOURCE), tile.Evaluator(device, short_products=True)
    left, right = tile.asarray(a, device=device), tile.asarray(b, device=device)
    out = evaluator(product, left, right)
    x, y = (torch.as_tensor(v.astype(np.float32)).bfloat16() for v in (a, b))
    np.testing.assert_allclose(out.numpy().astype(np.float32), (x @ y).float().numpy(), rtol=2.0**-6, atol=2.0**-3)
    return {"tile": lambda: evaluator(product, left, right, out=out).wait(), "peer": lambda: x @ y}


def _elapsed(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def line(side: int, samples: Sequence[Sample]) -> str:
    """Medians, with the quartiles of shares and ratios."""
    shares, ratios = ([f"{q:.2f}" for q in statistics.quantiles(v, n=4)] for v in _ratios(samples))
    own, peer = (statistics.median(v) * 1e6 for v in ([s.tile for s in samples], [s.peer for s in samples]))
    shown = f"{own:.0f} us, PyTorch {peer:.0f} us: {ratios[1]} ({ratios[0]}-{ratios[2]})"
    return f"{side:5d}: {shown}; share of the probe {shares[1]} ({shares[0]}-{shares[2]})"


def _ratios(samples: Sequence[Sample]) -> tuple[list[float], list[float]]:
    return [s.share for s in samples], [s.peer / s.tile for s in samples]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sides", nargs="*", type=int, default=[512, 1024, 2048])
    parser.add_argument("--rounds", type=int, default=61)
    options = parser.parse_args()
    threads = tile_hal.device("llvm").target.settings.cores
    for side in options.sides:
        samples = measured(contestants(side, threads), TileProbe.of(2.0 * side**3, threads), options.rounds)
        print(line(side, samples), flush=True)


if __name__ == "__main__":
    main()
