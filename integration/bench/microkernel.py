"""Register-tile matmul micro-kernels on the llvm device: are the emitted loops as fast as the processor multiplies?

For every tile it builds the semtree that lowering makes of one matmul tile (per k: load the B vectors, broadcast
each A scalar, fused multiply-add into REG variables), runs it on operands that stay in the L1/L2 caches
and compares with the peak that a loop of independent FMAs of the same width reaches on the same thread.
Run ``python integration/bench/microkernel.py [--asm]``.
"""

from __future__ import annotations

import argparse
import re
import time
from dataclasses import dataclass

import numpy as np
import tile_hal
from tile_ir.dtype import DType
from tile_ir.kernels import Kernel, KernelList
from tile_ir.semtree.nodes import (
    Access,
    Assign,
    Binary,
    Block,
    Const,
    Expr,
    Fma,
    For,
    Function,
    Let,
    Load,
    Param,
    Splat,
    Statement,
    Store,
    Type,
    Var,
)

F32, I64 = Type(DType.FLOAT32), Type(DType.INT64)
POINTER = Type(DType.FLOAT32, ptr=True)


@dataclass(frozen=True, slots=True)
class Tile:
    """`rows` by ``vectors * lanes`` accumulators over `depth` steps; A is packed by columns, B by rows."""

    rows: int
    vectors: int
    lanes: int = 16
    depth: int = 256

    @property
    def columns(self) -> int:
        return self.vectors * self.lanes

    @property
    def flops(self) -> int:
        return 2 * self.rows * self.columns * self.depth


def number(value: int) -> Const:
    return Const(value, I64)


def plus(base: Expr, offset: int) -> Expr:
    return Binary("add", base, number(offset), I64) if offset else base


def matmul_tile(tile: Tile, repeats: int) -> Kernel:
    """`repeats` times the whole tile, results stored each time."""
    vector, align = Type(DType.FLOAT32, tile.lanes), 4 * tile.lanes
    cells = [(r, v) for r in range(tile.rows) for v in range(tile.vectors)]
    start = [Let(f"acc{r}_{v}", Const(0.0, vector), mutable=True) for r, v in cells]
    step: list[Statement] = [
        Let("a", Binary("mul", Var("k", I64), number(tile.rows), I64)),
        Let("b", Binary("mul", Var("k", I64), number(tile.columns), I64)),
    ]
    step += [
        Let(f"b{v}", Load(Var("B", POINTER), plus(Var("b", I64), v * tile.lanes), vector, align=align))
        for v in range(tile.vectors)
    ]
    for r in range(tile.rows):
        step.append(Let(f"a{r}", Splat(Load(Var("A", POINTER), plus(Var("a", I64), r), F32), vector)))
        step += [
            Assign(f"acc{r}_{v}", Fma(Var(f"a{r}", vector), Var(f"b{v}", vector), Var(f"acc{r}_{v}", vector), vector))
            for v in range(tile.vectors)
        ]
    end = [
        Store(Var("C", POINTER), number(r * tile.columns + v * tile.lanes), Var(f"acc{r}_{v}", vector), align=align)
        for r, v in cells
    ]
    inner = For("k", number(0), number(tile.depth), 1, Block(tuple(step)))
    return kernel(Block((*start, inner, *end)), repeats, tile)


def peak_loop(tile: Tile, repeats: int) -> Kernel:
    """The same number of FMAs in `rows * vectors` independent chains without any loads."""
    vector = Type(DType.FLOAT32, tile.lanes)
    names = [f"x{n}" for n in range(tile.rows * tile.vectors)]
    start: list[Statement] = [Let("m", Load(Var("B", POINTER), number(0), vector))]
    start += [Let(name, Load(Var("A", POINTER), number(n), vector), mutable=True) for n, name in enumerate(names)]
    step = tuple(Assign(n, Fma(Var(n, vector), Var("m", vector), Var("m", vector), vector)) for n in names)
    end = [Store(Var("C", POINTER), number(n * tile.lanes), Var(name, vector)) for n, name in enumerate(names)]
    return kernel(Block((*start, For("k", number(0), number(tile.depth), 1, Block(step)), *end)), repeats, tile)


def kernel(body: Block, repeats: int, tile: Tile) -> Kernel:
    sizes = {"C": tile.rows * tile.columns, "A": tile.rows * tile.depth + 64, "B": tile.columns * tile.depth}
    params = tuple(
        Param(name, POINTER, Access.WRITE if name == "C" else Access.READ, 64, size) for name, size in sizes.items()
    )
    loop = For("repeat", number(0), number(repeats), 1, body)
    block: object = None
    return Kernel("tile", block, Function("tile", params, Block((loop,))), (1, 1, 1), tile.flops * repeats)  # type: ignore[arg-type]


def gflops(device: tile_hal.Device, made: Kernel, rounds: int) -> tuple[float, tile_hal.Library, np.ndarray]:
    """Best rate of `rounds` launches."""
    library = device.compiler.build(KernelList((made,), (), (), device.target))
    runner = device.executor.prepare(library, 0)
    assert made.function is not None
    buffers = [device.memory.allocate(4 * p.elements) for p in made.function.params]
    generator = np.random.default_rng(0)
    for buffer in buffers:
        np.frombuffer(buffer.map_discard(), np.float32)[:] = generator.uniform(0, 0.5, buffer.nbytes // 4)
    best = float("inf")
    for _ in range(rounds):
        started = time.perf_counter()
        runner.run(buffers).wait()
        best = min(best, time.perf_counter() - started)
    return made.flops / best / 1e9, library, np.frombuffer(buffers[0].map_current(), np.float32)


def spills(assembly: str) -> int:
    """Vector register spills and reloads in the innermost loop that has FMAs."""
    loops = re.findall(r"^(\.LBB\S+):((?:(?!^\.LBB).)*?\bj\w+\s+\1$)", assembly, re.MULTILINE | re.DOTALL)
    bodies = [text for _, text in loops if "vfmadd" in text or "fmla" in text]
    return sum(len(re.findall(r"[xyz]mm\d+.*rsp|rsp.*[xyz]mm\d+", body)) for body in bodies)


TILES = (Tile(14, 2), Tile(6, 4), Tile(8, 2), Tile(12, 2), Tile(8, 3), Tile(6, 2, 8), Tile(4, 3, 8))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--asm", action="store_true", help="print the assembly of the first tile")
    parser.add_argument("--rounds", type=int, default=60)
    options = parser.parse_args()
    device = tile_hal.device("llvm")
    for tile in TILES:
        repeats = max(1, int(2e7 / tile.flops))
        peak, _, _ = gflops(device, peak_loop(tile, repeats), options.rounds)
        rate, library, result = gflops(device, matmul_tile(tile, repeats), options.rounds)
        text = library.assembly()
        assert np.isfinite(result).all()
        print(
            f"{tile.rows:2d} x {tile.columns:2d} ({tile.lanes} lanes): {rate:6.1f} GF/s,"
            f" FMA loop {peak:6.1f}, {rate / peak:4.0%}, spills in the loop: {spills(text)}"
        )
        if options.asm and tile is TILES[0]:
            print(text)


if __name__ == "__main__":
    main()
