"""Results of stencils with borders are put together from pieces: the same bits, and interiors read no framed copy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from tile_ir.dtype import DType
from tile_ir.program.liveness import used_by
from tile_ir.program.nodes import Contraction, Program, TensorType
from tile_lang import bind, parse
from tile_lang.evaluate import evaluate
from tile_opt.program import BorderPieces

MODES = ("clamp", "reflect", "symmetric", "wrap", "zero", "")
PIECES = BorderPieces(least=1, step=0)
SHAPE = (21, 34)
TWO_PASSES = """function (A[H, W], K[T]) -> (B) {
    R[y, x : H, W] = +(A[y, MODE(x + t - 1)] * K[t]);
    B[y, x : H, W] = +(R[MODE(y + t - 1), x] * K[t]); }"""
SHARPENED = TWO_PASSES.replace("-> (B)", "-> (C)").replace("; }", "; C = max(A + 2 * (A - B), 0); }")
FOUR = """function (A[H, W]) -> (B) {
    N[y, x : H, W] = =(A[MODE(y - 1), x]); S[y, x : H, W] = =(A[MODE(y + 2), x]); E[y, x : H, W] = =(A[y, MODE(x + 1)]);
    B = A + 2 * (N + S - 2 * E); }"""
LARGEST = "function (A[H, W]) -> (B) { B[y, x : H, W] = >(A[MODE(y + i - 1), MODE(x + j - 2)]), i < 3, j < 5; }"
STRIDED = "function (A[H, W]) -> (B) { B[y, x : (H + 1) / 2, W] = +(A[MODE(2 * y + i - 1), x]), i < 3; }"
MIRRORED = "function (A[H, W]) -> (B) { B[y, x : H, W] = +(A[MODE(H - y + i - 2), x]), i < 3; }"
SUMMED = "function (A[H, W]) -> (B) { P[y, x : H, W] = +(A[MODE(y + i - 1), x]), i < 3; B[x : W] = +(P[y, x]); }"
BOTH = """function (A[H, W]) -> (B, C) {
    P[y, x : H, W] = +(A[y, MODE(x + i - 1)]), i < 3; B = P * P; C[y, x : H, W] = +(P[MODE(y + i - 1), x]), i < 3; }"""
PROGRAMS = {
    "two passes": TWO_PASSES, "sharpened": SHARPENED, "four neighbours": FOUR, "largest": LARGEST, "strided": STRIDED,
    "mirrored": MIRRORED, "summed": SUMMED, "two results": BOTH,
}  # fmt: skip


def bound(text: str, mode: str, shape: tuple[int, ...] = SHAPE, dtype: DType = DType.INT32) -> Program:
    types = {"A": TensorType(dtype, shape), "K": TensorType(dtype, (3,))}
    function = parse(text.replace("MODE", mode))
    return bind(function, {n: t for n, t in types.items() if f"{n}[" in text.partition("->")[0]})


def agree(program: Program, seed: int = 0) -> Program:
    """The program in pieces, when it computes the same bits."""
    draw = np.random.default_rng(seed)
    given = {p.name: draw.integers(-99, 99, p.type.shape).astype(p.type.dtype.numpy) for p in program.inputs}
    made = PIECES.apply(program)
    want, found = evaluate(program, given), evaluate(made, given)
    for name, value in want.items():
        np.testing.assert_array_equal(found[name], value)
    return made


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_pieces_give_the_same_bits(name: str, mode: str) -> None:
    agree(bound(PROGRAMS[name], mode))


def read_whole(program: Program) -> set[str]:
    """What the largest operations read."""
    large = [op for op in program.ops if isinstance(op, Contraction) and op.type.size > 0.75 * 21 * 34]
    return {name for op in large for name in used_by(op)}


@pytest.mark.parametrize("mode", [m for m in MODES if m])
def test_an_interior_of_two_passes_reads_what_is_given_and_is_laid_into_the_result_once(mode: str) -> None:
    made = agree(bound(TWO_PASSES, mode))
    *_, first, second, laid = made.ops
    assert [op.type.shape for op in (first, second, laid)] == [(21, 32), (19, 32), (21, 34)]  # type: ignore[union-attr]
    assert set(used_by(first)) == {"A", "K"}
    assert sum(isinstance(op, Contraction) and op.type.shape == SHAPE for op in made.ops) == 5


@pytest.mark.parametrize("text", ["MODE(y + i - 9)", "MODE(y + i)", "MODE(2 * y + 3 * i - 40)"])
def test_what_has_no_large_interior_stays(text: str) -> None:
    program = bound(
        "function (A[H, W]) -> (B) { B[y, x : H, W] = +(A[FORM, x]), i < 19; }".replace("FORM", text), "wrap"
    )
    assert agree(program) is program


def test_a_long_chain_is_put_together_again_and_again() -> None:
    steps = " ".join(f"X{k + 1}[y, x : H, W] = +(X{k}[clamp(y + i - 1), x]), i < 3;" for k in range(9)).replace(
        "X0[", "A["
    )
    program = bound(f"function (A[H, W]) -> (X9) {{ {steps} }}", "", (60, 8))
    made = agree(program)
    whole = {op.name for op in made.ops if isinstance(op, Contraction) and op.type.shape == (60, 8)}
    assert {"X2", "X4", "X9"} <= whole and not {"X1", "X3", "X6"} & whole


def test_weighted_sums_over_channels_keep_their_copy_in_a_frame() -> None:
    text = """function (A[H, W, C], K[T, C, D]) -> (B) {
        B[y, x, d : H, W, D] = +(A[y, clamp(x + t - 1), c] * K[t, c, d]); }"""
    types = {"A": TensorType(DType.FLOAT32, (9, 40, 8)), "K": TensorType(DType.FLOAT32, (3, 8, 8))}
    program = bind(parse(text), types)
    assert PIECES.apply(program) is program


def test_what_reads_a_concatenation_stays() -> None:
    text = """function (A[H, W], K[T]) -> (B) {
        P[i, j : H + T, W] = =(A[i, j]); C[H + i, j : H + T, W] = =(K[i]), j < W default P; B = 2 * C; }"""
    program = bound(text, "")
    assert PIECES.apply(program) is program


def test_a_small_copy_stays() -> None:
    program = bound(TWO_PASSES, "clamp")
    assert BorderPieces().apply(program) is program


@pytest.mark.parametrize(("mode", "stays"), [("", True), ("clamp", False)])
def test_what_loads_under_a_condition_needs_no_pieces_for_frames_of_zeros(mode: str, stays: bool) -> None:
    program = bound(FOUR, mode)
    assert (replace(PIECES, zeros=False).apply(program) is program) == stays
    assert PIECES.apply(program) is not program


def drawn(draw: Random) -> tuple[str, tuple[int, ...]]:
    """A chain of stencils of any rank, with any border along any axis, and its shape."""
    rank = draw.randint(1, 3)
    shape = tuple(draw.randint(7, 19) for _ in range(rank))
    cells = [f"i{k}" for k in range(rank)]
    sizes = [f"N{k}" for k in range(rank)]
    lines, last = list[str](), "A"
    for step in range(draw.randint(1, 3)):
        reads, limits = subscripts(draw, cells)
        aggregation = draw.choice("+><")
        lines.append(
            f"P{step}[{', '.join(cells)} : {', '.join(sizes)}] = {aggregation}({last}[{', '.join(reads)}]){limits};"
        )
        last = f"P{step}"
        if draw.random() < 0.5:
            lines.append(f"Q{step} = {draw.choice([last, 'A'])} - 2 * {last};")
            last = f"Q{step}"
    return f"function (A[{', '.join(sizes)}]) -> (R) {{ {' '.join(lines)} R = {last} + 1; }}", shape


def subscripts(draw: Random, cells: Sequence[str]) -> tuple[list[str], str]:
    reads, limits = list[str](), ""
    for axis, cell in enumerate(cells):
        width = draw.choice([1, 1, 2, 3])
        form = f"{cell} + k{axis} - {draw.randint(0, 2)}" if width > 1 else f"{cell} - {draw.randint(-1, 1)}"
        limits += f", k{axis} < {width}" if width > 1 else ""
        mode = draw.choice([*MODES[:-1], None, None])
        reads.append(cell if mode is None and width == 1 else f"{mode or 'clamp'}({form})")
    return reads, limits


@pytest.mark.diagonal(2)
@pytest.mark.parametrize("seed", range(60))
def test_drawn_chains_give_the_same_bits(seed: int) -> None:
    text, shape = drawn(Random(seed))
    agree(bound(text, "", shape), seed)
