"""Programs of several steps against the sum of their well-scheduled parts, on drawn sizes.

    python integration/bench/programs.py [--seed N] [--per-family 2] [--rounds 15] [--families blur,layer] [--json FILE]

A part is one step by itself, in the layout that suits it, with the transposes that lead there and back: what a program costs
that leaves every choice between its steps to its author. Exit code 0 when no program takes more than 1.3 times its parts.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from typing import cast

os.environ |= {"TILE_CACHE": "off", "TILE_NUM_THREADS": os.environ.get("TILE_NUM_THREADS", "1")}

import numpy as np
import tile_runtime as tile
from classes.draw import Draw
from on_host import repeated
from rich.console import Console
from rich.table import Table

REQUIRED = 1.3
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """A function's text and the shapes of its inputs."""

    text: str
    shapes: tuple[Shape, ...]


@dataclass(frozen=True, slots=True)
class Whole:
    """A program and its parts; `chained` functions are applied one after the other, in one composition."""

    name: str
    program: Step | tuple[Step, ...]
    parts: tuple[Step, ...]


Family = Callable[[Draw], Whole]
PRODUCT = "function (A[M, K], B[K, N]) -> (C) { C[m, n : M, N] = +(A[m, k] * B[k, n]); }"


def _permuted(shape: Shape, order: str) -> Step:
    """A transpose of a tensor."""
    axes = [f"a{d}" for d in range(len(shape))]
    out = [axes[int(d)] for d in order]
    sizes = [f"N{d}" for d in order]
    heads = ", ".join(f"N{d}" for d in range(len(shape)))
    return Step(
        f"function (A[{heads}]) -> (B) {{ B[{', '.join(out)} : {', '.join(sizes)}] = =(A[{', '.join(axes)}]); }}",
        (shape,),
    )


def product_and_transpose(draw: Draw) -> Whole:
    """A product that is also wanted transposed."""
    m, n, k = (draw.size(100, 1200) for _ in range(3))
    text = (
        "function (A[M, K], B[K, N]) -> (C, D) { C[m, n : M, N] = +(A[m, k] * B[k, n]); D[n, m : N, M] = =(C[m, n]); }"
    )
    parts = (Step(PRODUCT, ((m, k), (k, n))), _permuted((m, n), "10"))
    return Whole(f"{m}x{k}x{n}", Step(text, ((m, k), (k, n))), parts)


def weight_gradient(draw: Draw) -> Whole:
    """A convolution's weight gradient with the filters outside."""
    n, side, ci, co = draw.pick(1, 2, 4), draw.size(7, 40), draw.size(16, 200), draw.size(16, 200)
    taps = draw.pick(1, 3, 5)
    product = f"+(D[n, y + i - {taps // 2}, x + j - {taps // 2}, c] * G[n, y, x, f])"
    heads, inputs = "function (D[N, H, W, C], G[N, H, W, F]) -> (K)", ((n, side, side, ci), (n, side, side, co))
    whole = Step(f"{heads} {{ K[f, c, i, j : F, C, {taps}, {taps}] = {product}; }}", inputs)
    part = Step(f"{heads} {{ K[i, j, c, f : {taps}, {taps}, C, F] = {product}; }}", inputs)
    return Whole(f"{n}x{side}x{side}x{ci}>{co} {taps}x{taps}", whole, (part, _permuted((taps, taps, ci, co), "3201")))


def channels_first(draw: Draw) -> Whole:
    """A convolution in NCHW and OIHW."""
    n, side, ci, co = draw.pick(1, 1, 4), draw.size(7, 56), draw.size(16, 300), draw.size(16, 300)
    taps = draw.pick(1, 3, 3, 5)
    at = f"y + i - {taps // 2}, x + j - {taps // 2}"
    first = f"""function (D[N, C, H, W], K[F, C, I, J]) -> (R) {{
        R[n, f, y, x : N, F, H, W] = +(D[n, c, {at}] * K[f, c, i, j]); }}"""
    last = f"""function (D[N, H, W, C], K[I, J, C, F]) -> (R) {{
        R[n, y, x, f : N, H, W, F] = +(D[n, {at}, c] * K[i, j, c, f]); }}"""
    around = (
        _permuted((n, ci, side, side), "0231"),
        _permuted((co, ci, taps, taps), "2310"),
        _permuted((n, side, side, co), "0312"),
    )
    part = Step(last, ((n, side, side, ci), (taps, taps, ci, co)))
    whole = Step(first, ((n, ci, side, side), (co, ci, taps, taps)))
    return Whole(f"{n}x{ci}x{side}x{side}>{co} {taps}x{taps}", whole, (part, *around))


def grouped(draw: Draw) -> Whole:
    """A grouped 1x1 convolution, beside one group as a product for each group."""
    side, groups, ci, co = draw.size(7, 56), draw.pick(2, 4, 8, 32), draw.size(4, 64), draw.size(4, 64)
    whole = Step(
        "function (D[H, W, G, C], K[G, C, F]) -> (R) { R[y, x, g, f : H, W, G, F] = +(D[y, x, g, c] * K[g, c, f]); }",
        ((side, side, groups, ci), (groups, ci, co)),
    )
    together = Step(PRODUCT, ((side * side * groups, ci), (ci, co)))
    return Whole(f"{side}x{side} {groups}x{ci}>{co}", whole, (together,))


def layer(draw: Draw) -> Whole:
    """Few rows times a weight matrix with the results outside: x @ W.T."""
    m, n, k = draw.size(4, 64), draw.size(1000, 9000), draw.size(256, 1500)
    whole = "function (A[M, K], B[N, K]) -> (C) { C[m, n : M, N] = +(A[m, k] * B[n, k]); }"
    return Whole(
        f"{m}x{k}x{n}", Step(whole, ((m, k), (n, k))), (_permuted((n, k), "10"), Step(PRODUCT, ((m, k), (k, n))))
    )


def composed(draw: Draw) -> Whole:
    """Ten steps in one composition, beside ten calls."""
    n, w = draw.size(16, 500), draw.size(32, 500)
    dense = Step(
        "function (X[N, K], W[K, O]) -> (Y) { Z[n, o : N, O] = +(X[n, k] * W[k, o]); Y = relu(Z); }", ((n, w), (w, w))
    )
    return Whole(f"{n}x{w}", (dense,) * 10, (dense,) * 10)


def _pass(source: str, made: str, axis: int, rank: int, taps: int) -> str:
    axes = [f"i{d}" for d in range(rank)]
    reads = [f"{a} + t - {taps // 2}" if d == axis else a for d, a in enumerate(axes)]
    sizes = ", ".join(f"N{d}" for d in range(rank))
    return f"{made}[{', '.join(axes)} : {sizes}] = +({source}[{', '.join(reads)}] * K[t]);"


def blur(draw: Draw) -> Whole:
    """A separable blur over every axis of two or three, some times."""
    rank = draw.pick(2, 2, 3)
    shape = tuple(draw.size(*((200, 4000) if rank == 2 else (40, 250))) for _ in range(rank))
    taps, times = draw.pick(3, 5, 9, 15), draw.pick(1, 1, 2)
    order = [*range(rank)] * times
    if draw.number(2):
        order.reverse()
    heads = f"function (A[{', '.join(f'N{d}' for d in range(rank))}], K[T]) -> (O)"
    names = ["A", *(f"P{n}" for n in range(len(order) - 1)), "O"]
    lines = [_pass(a, b, axis, rank, taps) for a, b, axis in zip(names, names[1:], order, strict=False)]
    whole = Step(f"{heads} {{ {' '.join(lines)} }}", (shape, (taps,)))
    parts = tuple(Step(f"{heads} {{ {_pass('A', 'O', axis, rank, taps)} }}", (shape, (taps,))) for axis in order)
    return Whole(f"{'x'.join(map(str, shape))} {taps} along {''.join(map(str, order))}", whole, parts)


def stencil(draw: Draw) -> Whole:
    """Some steps of a difference scheme, beside as many calls of one step."""
    rank = draw.pick(2, 3)
    shape = tuple(draw.size(*((200, 3000) if rank == 2 else (40, 200))) for _ in range(rank))
    steps = draw.pick(2, 3, 4)
    heads = f"function (U0[{', '.join(f'N{d}' for d in range(rank))}])"
    lines = [_difference(n, rank) for n in range(steps)]
    one = Step(f"{heads} -> (U1) {{ {lines[0]} }}", (shape,))
    whole = Step(f"{heads} -> (U{steps}) {{ {' '.join(lines)} }}", (shape,))
    return Whole(f"{'x'.join(map(str, shape))} {steps} steps", whole, (one,) * steps)


def _difference(n: int, rank: int) -> str:
    axes = [f"i{d}" for d in range(rank)]
    sizes = ", ".join(f"N{d}" for d in range(rank))
    moves = [(d, s) for d in range(rank) for s in ("- 1", "+ 1")]
    lines = [
        f"S{n}_{m}[{', '.join(axes)} : {sizes}] = +(U{n}[{', '.join(f'{a} {s}' if e == d else a for e, a in enumerate(axes))}]);"
        for m, (d, s) in enumerate(moves)
    ]
    total = " + ".join(f"S{n}_{m}" for m in range(len(moves)))
    return f"{' '.join(lines)} U{n + 1} = U{n} + 0.1 * ({total} - {2 * rank} * U{n});"


FAMILIES: tuple[Family, ...] = (
    product_and_transpose, weight_gradient, channels_first, grouped, layer, composed, blur, stencil,
)  # fmt: skip


# --- measuring -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Row:
    """What was measured of one program, on one core unless TILE_NUM_THREADS says otherwise; seconds are the best of the rounds."""

    family: str
    name: str
    seconds: float
    parts: float
    """Of all parts, one after the other."""
    kernels: int

    @property
    def ratio(self) -> float:
        """Of the program's seconds over those of its parts together."""
        return self.seconds / self.parts


def measured(family: str, whole: Whole, evaluator: tile.Evaluator, rounds: int) -> Row:
    """The program and its parts in turn."""
    run, kernels = _program(whole.program, evaluator)
    steps = [_program(part, evaluator)[0] for part in whole.parts]
    ours, parts = repeated(run), repeated(lambda: [step() for step in steps])
    seconds = [(ours(), parts()) for _ in range(rounds)]
    return Row(family, whole.name, min(s for s, _ in seconds), min(p for _, p in seconds), kernels)


def _program(steps: Step | tuple[Step, ...], evaluator: tile.Evaluator) -> tuple[Callable[[], object], int]:
    """A call of a program, and the number of its kernels."""
    if isinstance(steps, Step):
        return _call(evaluator, tile.Function(steps.text), _tensors(steps.shapes, evaluator))
    x = symbol = tile.placeholder("float32", steps[0].shapes[0], "x")
    for step in steps:
        symbol = tile.Function(step.text)(symbol, *_tensors(step.shapes[1:], evaluator))
    return _call(evaluator, tile.compose([x], [symbol]), _tensors(steps[0].shapes[:1], evaluator))


def _call(evaluator: tile.Evaluator, function: object, values: list[tile.Tensor]) -> tuple[Callable[[], object], int]:
    def run() -> None:
        made = evaluator(function, *values)  # pyright: ignore[reportArgumentType]
        for result in cast("tuple[tile.Tensor, ...]", made if isinstance(made, tuple) else (made,)):
            result.wait()

    steps = evaluator.lower(function, *values).kernels.steps  # pyright: ignore[reportArgumentType]
    return run, sum(not (step.once or step.bound) for step in steps)


def _tensors(shapes: Sequence[Shape], evaluator: tile.Evaluator) -> list[tile.Tensor]:
    random = np.random.default_rng(0)
    return [tile.asarray(random.standard_normal(s, np.float32) * np.float32(0.1), evaluator.device) for s in shapes]


def rows(seed: int, per_family: int, rounds: int, families: Sequence[Family] = FAMILIES) -> Iterator[Row]:
    """The families' programs, one after the other."""
    evaluator = tile.Evaluator("llvm")
    for family in families:
        for number in range(per_family):
            whole = family(Draw(seed, family.__name__, number))
            yield measured(family.__name__.replace("_", " "), whole, evaluator, rounds)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--seed", type=int, default=date.today().toordinal(), help="of the sizes; another one every day"
    )
    parser.add_argument("--per-family", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--families", default="", help="comma-separated beginnings of their names")
    parser.add_argument("--json", help="write the rows to this file")
    options = parser.parse_args(arguments)
    wanted = tuple(f for f in FAMILIES if f.__name__.startswith(tuple(options.families.split(","))))
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 140)
    found: list[Row] = []
    table = Table("family", "program", "ms", "parts, ms", "kernels", f"ratio (<= {REQUIRED})")
    for row in rows(options.seed, options.per_family, options.rounds, wanted):
        found.append(row)
        verdict = "" if row.ratio <= REQUIRED else " !"
        table.add_row(
            row.family,
            row.name,
            f"{row.seconds * 1e3:.3g}",
            f"{row.parts * 1e3:.3g}",
            str(row.kernels),
            f"{row.ratio:.2f}{verdict}",
        )
    console.print(table, f"seed {options.seed}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump([asdict(r) | {"ratio": r.ratio} for r in found], file, indent=1)
    return 0 if all(row.ratio <= REQUIRED for row in found) else 1


if __name__ == "__main__":
    sys.exit(main())
