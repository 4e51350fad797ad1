"""Convolutions on tile registers: windows are rows of tiles, whatever lies at their borders."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tile_lang
from lowering_support import execute
from tensor_support import instructions
from test_matrix_tile import AMX, TILES, bfloat16, drawn, on_tiles, result_of
from tile_ir.diagnostics import TilePlanError
from tile_ir.dtype import DType
from tile_ir.machine import Cache
from tile_ir.program.nodes import TensorType
from tile_ir.semtree import print_function
from tile_ir.stripe import interpret
from tile_ir.stripe.printer import print_program
from tile_ir.target import Options, Target
from tile_opt.compiler import compile
from tile_opt.plan.plan import Cover, Edge
from tile_opt.program import DotProducts
from tile_opt.proof import prove

Array = Any

CONVOLUTION = """function (X[N, H, W, C], F[I, J, C, D]) -> (O) {
    O[n, y, x, d : N, H, W, D] = +(X[n, y + i - 1, x + j - 1, c] * F[i, j, c, d]); }"""


def assert_convolved(got: Array, x: Array, f: Array, step: int = 1) -> None:
    """Of 3x3 windows with zeros around the image, `step` apart, within the roundings of sums in any order."""
    wide = np.pad(x.astype(np.float64), ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), axis=(1, 2))[:, ::step, ::step]
    want, size = (np.einsum("nyxcij,ijcd->nyxd", g(windows), g(f.astype(np.float64))) for g in (np.asarray, np.abs))
    assert (np.abs(got.astype(np.float64) - want) <= 2.0**-8 * size).all()


@pytest.mark.parametrize("sides", [(1, 6, 40), (2, 3, 33)], ids=str)
def test_filters_whose_dimensions_their_packing_takes_as_one(sides: tuple[int, int, int]) -> None:
    """The kernel that packs them sees rows and columns of a window as one dimension, the product sees two."""
    n, h, w = sides
    x, f = drawn(bfloat16(), n, h, w, 32), drawn(bfloat16(), 3, 3, 32, 16)
    types = {"X": TensorType(DType.BFLOAT16, x.shape), "F": TensorType(DType.BFLOAT16, f.shape)}
    compiled = compile(tile_lang.bind(tile_lang.parse(CONVOLUTION), types), AMX)
    (decision,) = compiled.decisions.values()
    assert decision.plan.instruction is not None
    assert_convolved(execute(compiled.kernels, {"X": x, "F": f})["O"], x, f)


def with_caches(second: int) -> Target:
    """One core with so many bytes of second cache."""
    caches = (Cache(1, 1 << 13, 8), Cache(2, second, 16), Cache(3, 1 << 24, 16))
    machine, settings = replace(AMX.machine, caches=caches), replace(AMX.settings, cores=1)
    return replace(AMX, machine=machine, settings=settings)


@pytest.mark.parametrize(
    ("second", "box"), [(1 << 20, {"y": 7, "x": 48}), (1 << 18, {"y": 4, "x": 32}), (1 << 13, None)]
)
def test_one_copy_of_rows_serves_the_windows_of_several(second: int, box: dict[str, int] | None) -> None:
    """As many as stay near; where not even a few do, each tile of rows has a copy of its own."""
    x, f = drawn(bfloat16(), 1, 7, 48, 32), drawn(bfloat16(), 3, 3, 32, 32)
    types = {"X": TensorType(DType.BFLOAT16, x.shape), "F": TensorType(DType.BFLOAT16, f.shape)}
    compiled = compile(tile_lang.bind(tile_lang.parse(CONVOLUTION), types), with_caches(second))
    (plan,) = (d.plan for d in compiled.decisions.values())
    (copy,) = (s for s in plan.stagings if s.operand.startswith("X"))
    covers = {c.loop: c.size for c in plan.levels[copy.level].covers}
    assert covers == (box or {"x": 16})
    assert_convolved(execute(compiled.kernels, {"X": x, "F": f})["O"], x, f)


@pytest.mark.parametrize(("h", "w", "step"), [(7, 7, 1), (17, 17, 1), (5, 5, 2)], ids=str)
def test_tiles_go_on_from_one_short_row_of_windows_to_the_next(h: int, w: int, step: int) -> None:
    """In a copy there are windows between rows that are computed, but not stored; the last of 17 rows has a copy of its own."""
    x, f = drawn(bfloat16(), 1, step * h, step * w, 32), drawn(bfloat16(), 3, 3, 32, 16)
    source = f"""function (X[N, H, W, C], F[I, J, C, D]) -> (O) {{
        O[n, y, x, d : 1, {h}, {w}, 16] = +(X[n, {step}*y + i - 1, {step}*x + j - 1, c] * F[i, j, c, d]); }}"""
    types = {"X": TensorType(DType.BFLOAT16, x.shape), "F": TensorType(DType.BFLOAT16, f.shape)}
    target = with_caches(1 << 20)
    program = DotProducts(target=target, gain=float("inf")).apply(tile_lang.bind(tile_lang.parse(source), types))
    compiled = compile(program, target)
    (plan,) = (d.plan for d in compiled.decisions.values())
    assert plan.edge("x") is Edge.PAD
    assert_convolved(execute(compiled.kernels, {"X": x, "F": f})["O"], x, f, step)


def test_short_rows_without_borders_go_on_in_a_copy_too() -> None:
    """No window leaves the image, but the rows of tiles leave those of windows."""
    source = """function (X[N, H, W, C], F[I, J, C, D]) -> (O) {
        O[n, y, x, d : 1, 7, 7, 16] = +(X[n, y + i, x + j, c] * F[i, j, c, d]); }"""
    arrays = {"X": drawn(bfloat16(), 1, 9, 9, 32), "F": drawn(bfloat16(), 3, 3, 32, 16)}
    types, target = {n: TensorType(DType.BFLOAT16, a.shape) for n, a in arrays.items()}, with_caches(1 << 20)
    program = DotProducts(target=target, gain=float("inf")).apply(tile_lang.bind(tile_lang.parse(source), types))
    compiled = compile(program, target)
    (plan,) = (d.plan for d in compiled.decisions.values())
    assert plan.edge("x") is Edge.PAD
    got = execute(compiled.kernels, arrays)["O"].astype(np.float64)
    windows = np.lib.stride_tricks.sliding_window_view(arrays["X"].astype(np.float64), (3, 3), axis=(1, 2))
    want = np.einsum("nyxcij,ijcd->nyxd", windows, arrays["F"].astype(np.float64))
    np.testing.assert_allclose(got, want, rtol=0.02, atol=0.2)


@pytest.mark.parametrize("step", [1, 2])
def test_images_channel_by_channel_are_packed_along_their_channels(step: int) -> None:
    """So that words of a window's element are side by side, and one copy of rows serves several windows."""
    x, f = drawn(bfloat16(), 1, 32, 4 * step, 16 * step), drawn(bfloat16(), 16, 32, 3, 3)
    source = f"""function (X[N, C, H, W], F[D, C, I, J]) -> (O) {{
        O[n, d, y, x : 1, 16, 4, 16] = +(X[n, c, {step}*y + i - 1, {step}*x + j - 1] * F[d, c, i, j]); }}"""
    types = {"X": TensorType(DType.BFLOAT16, x.shape), "F": TensorType(DType.BFLOAT16, f.shape)}
    program = DotProducts(target=AMX, gain=float("inf")).apply(tile_lang.bind(tile_lang.parse(source), types))
    compiled = compile(program, AMX)
    (plan,) = (d.plan for d in compiled.decisions.values() if d.plan.instruction)
    (copy,) = (s for s in plan.stagings if s.operand.startswith("X"))
    assert not copy.order
    got = execute(compiled.kernels, {"X": x, "F": f})["O"]
    assert_convolved(np.moveaxis(got, 1, -1), np.moveaxis(x, 1, -1), f.transpose(2, 3, 1, 0), step)


@pytest.mark.parametrize(("w", "d"), [(21, 20), (33, 16)], ids=str)
def test_results_channel_by_channel_are_stored_along_rows_of_tiles(w: int, d: int) -> None:
    """Registers turn tiles of the sum, so that no result is stored by itself, whatever remains of rows and columns."""
    x, f = drawn(bfloat16(), 1, 32, 1, w), drawn(bfloat16(), d, 32, 3, 3)
    source = """function (X[N, C, H, W], F[D, C, I, J]) -> (O) {
        P[n, d, y, x : N, D, H, W] = +(X[n, c, y + i - 1, x + j - 1] * F[d, c, i, j]);
        O = P * 2.0; }"""
    types = {"X": TensorType(DType.BFLOAT16, x.shape), "F": TensorType(DType.BFLOAT16, f.shape)}
    program = DotProducts(target=AMX, gain=float("inf")).apply(tile_lang.bind(tile_lang.parse(source), types))
    compiled = compile(program, AMX)
    texts = (print_function(k.function) for k in compiled.kernels.kernels if k.function is not None)
    assert ["extract(" in text for text in texts if "tdpbf16ps" in text] == [False]
    got = execute(compiled.kernels, {"X": x, "F": f})["O"].astype(np.float32) / 2
    assert_convolved(np.moveaxis(got, 1, -1), np.moveaxis(x, 1, -1), f.transpose(2, 3, 1, 0))


@pytest.mark.parametrize(("source", "sides", "copies"), [
    ("O[n, d, y, x : N, D, 8, 16] = +(X[n, c, 2*y, 2*x] * F[d, c])", "NCHW", True),
    ("O[n, y, x, d : N, 8, 16, D] = +(X[n, 2*y, 2*x, c] * F[d, c])", "NHWC", False),
])  # fmt: skip
def test_pixels_that_a_step_leaves_out_are_no_gaps_between_columns(source: str, sides: str, copies: bool) -> None:
    """A copy has those that are read side by side, so that channel by channel pixels are the columns of tiles, as they are stored.
    Few whole rows of channels are read where they are."""
    lengths = {"N": 1, "C": 64, "H": 16, "W": 32}
    types = {
        "X": TensorType(DType.BFLOAT16, tuple(lengths[n] for n in sides)),
        "F": TensorType(DType.BFLOAT16, (64, 64)),
    }
    text = f"function (X[{', '.join(sides)}], F[D, C]) -> (O) {{ {source}; }}"
    compiled = compile(tile_lang.bind(tile_lang.parse(text), types), AMX)
    (columns,) = (dict(d.plan.instruction.loops)["n"] for d in compiled.decisions.values() if d.plan.instruction)
    assert columns != "d"
    assert ("X_stepped" in print_program(compiled.stripe)) is copies


@pytest.mark.parametrize(("w", "rows"), [(14, {"y": 4, "x": 16}), (28, {"y": 2, "x": 32}), (64, {"y": 1, "x": 64})])
def test_rows_of_a_step_come_from_several_windows_of_one_copy(w: int, rows: dict[str, int]) -> None:
    """Four tiles of rows take each tile of columns, which is read once for all of them; those of a window's rows overlap in the copy."""
    x, f = drawn(bfloat16(), 1, 5, w, 32), drawn(bfloat16(), 3, 3, 32, 32)
    types = {"X": TensorType(DType.BFLOAT16, x.shape), "F": TensorType(DType.BFLOAT16, f.shape)}
    compiled = compile(tile_lang.bind(tile_lang.parse(CONVOLUTION), types), AMX)
    (plan,) = (d.plan for d in compiled.decisions.values())
    covers = {c.loop: c.size for level in plan.levels[2:-2] for c in level.covers}
    assert covers == {"d": 16, **rows}
    assert_convolved(execute(compiled.kernels, {"X": x, "F": f})["O"], x, f)


def test_windows_of_few_channels_are_rows_of_tiles() -> None:
    """The elements of a window's row fill words together, which three channels alone do not."""
    x, f = drawn(bfloat16(), 1, 9, 10, 3), drawn(bfloat16(), 7, 7, 3, 32)
    types = {"X": TensorType(DType.BFLOAT16, x.shape), "F": TensorType(DType.BFLOAT16, f.shape)}
    stem = CONVOLUTION.replace("i - 1", "i - 3").replace("j - 1", "j - 3")
    compiled = compile(tile_lang.bind(tile_lang.parse(stem), types), AMX)
    assert any(d.plan.instruction for d in compiled.decisions.values())
    result = execute(compiled.kernels, {"X": x, "F": f})["O"].astype(np.float64)
    framed = np.pad(x.astype(np.float64), ((0, 0), (3, 3), (3, 3), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(framed, (7, 7), (1, 2))
    np.testing.assert_allclose(
        result, np.einsum("nyxcij,ijcd->nyxd", windows, f.astype(np.float64)), rtol=0.02, atol=0.1
    )


@pytest.mark.parametrize("step", [1, 2])
def test_convolutions_without_borders(step: int) -> None:
    source = f"""function (X[N, H, W, C], K[I, J, C, D]) -> (O) {{
        O[n, y, x, d : 2, 1, 17, 16] = +(X[n, y + i, {step}*x + j, c] * K[i, j, c, d]); }}"""
    arrays = {"X": drawn(bfloat16(), 2, 2, 16 * step + 2, 32), "K": drawn(bfloat16(), 2, 2, 32, 16)}
    _, stripe = on_tiles(source, arrays)
    assert "tdpbf16ps" in instructions(stripe)
    x, k = (v.astype(np.float64) for v in arrays.values())
    windows = np.lib.stride_tricks.sliding_window_view(x, (2, 2), axis=(1, 2))[:, :, ::step]
    want, size = (np.einsum("nyxcij,ijcd->nyxd", f(windows), f(k)) for f in (np.asarray, np.abs))
    assert (np.abs(result_of(stripe, arrays).astype(np.float64) - want) <= 2.0**-8 * size).all()


@pytest.mark.parametrize("zero", ["", " - 7"])
def test_borders_of_integers_are_zeros(zero: str) -> None:
    source = f"""function (X[H, W, C], K[J, C, D]) -> (O) {{ P = as_int(X, 32){zero}; Q = as_int(K, 32);
        O[y, x, d : 1, 17, 16] = +(P[y, x + j - 1, c] * Q[j, c, d]); }}"""
    arrays = {"X": drawn(np.uint8, 1, 17, 48), "K": drawn(np.int8, 3, 48, 16)}
    _, stripe = on_tiles(source, arrays)
    assert "tdpbusd" in instructions(stripe)
    rows = np.pad(arrays["X"].astype(np.int32) - (7 if zero else 0), ((0, 0), (1, 1), (0, 0)))
    want = sum(rows[:, j : j + 17] @ arrays["K"][j].astype(np.int32) for j in range(3))
    np.testing.assert_array_equal(result_of(stripe, arrays), want)


@pytest.mark.parametrize("side", [7, pytest.param(14, marks=pytest.mark.slow)])
def test_convolutions_of_few_columns(side: int) -> None:
    """Images narrower than a tile fill it up."""
    arrays = {"X": drawn(bfloat16(), 2, side, side, 32), "F": drawn(bfloat16(), 3, 3, 32, 32)}
    _, stripe = on_tiles(CONVOLUTION, arrays)
    assert "tdpbf16ps" in instructions(stripe)
    assert_convolved(result_of(stripe, arrays), *arrays.values())


BORDERED = """function (X[H, W, C], K[J, C, D]) -> (O) {
    O[y, x, d : 1, 16, 16] = +(X[y, x + j - 1, c] * K[j, c, d]); }"""


def test_borders_are_zeros() -> None:
    arrays = {"X": drawn(bfloat16(), 1, 16, 32), "K": drawn(bfloat16(), 3, 32, 16)}
    _, stripe = on_tiles(BORDERED, arrays)
    assert "tdpbf16ps" in instructions(stripe)
    x, k = (v.astype(np.float64) for v in arrays.values())
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, ((0, 0), (1, 1), (0, 0))), 3, axis=1)
    want, size = (np.einsum("yxcj,jcd->yxd", f(windows), f(k)) for f in (np.asarray, np.abs))
    assert (np.abs(result_of(stripe, arrays).astype(np.float64) - want) <= 2.0**-8 * size).all()


def test_words_of_what_is_given_are_given_to_the_prover() -> None:
    """Every second row of them is copied, and two of their dimensions are one for the kernel that does."""
    source = """function (X[N, H, W, C], K[J, C, D]) -> (O) {
        O[n, y, x, d : 2, 3, 9, 16] = +(X[n, 2 * y, 2 * x + j - 1, c] * K[j, c, d]); }"""
    types = {"X": TensorType(DType.BFLOAT16, (2, 6, 17, 16)), "K": TensorType(DType.BFLOAT16, (3, 16, 16))}
    program = DotProducts(target=AMX, gain=float("inf")).apply(tile_lang.bind(tile_lang.parse(source), types))
    compiled = compile(program, AMX)
    assert "X_view_stepped" in print_program(compiled.stripe)
    assert prove(compiled.stripe_initial, compiled.stripe).proved


def test_infinite_factors_meet_the_zeros_of_borders_where_the_user_allows_it_alone() -> None:
    arrays = {"X": drawn(bfloat16(), 1, 16, 32), "K": drawn(bfloat16(), 3, 32, 16)}
    arrays["K"][:, 0, 0] = np.inf
    arrays["X"][..., 0] = 1
    ends = np.zeros((1, 16, 16), bool)
    ends[:, [0, -1], 0] = True
    exact = replace(TILES, options=Options())
    for target, shown in ((TILES, ends), (exact, np.zeros_like(ends))):
        _, stripe = on_tiles(BORDERED, arrays, target)
        assert ("tdpbf16ps" in instructions(stripe)) == (target is TILES)
        (got,) = dict(interpret.run(stripe, arrays)).values()
        assert (np.isnan(got.astype(np.float32)) == shown).all()
        assert np.isinf(got[~shown & (np.arange(16) == 0)].astype(np.float32)).all()


def test_padded_rows_go_on_in_a_copy_alone() -> None:
    """A plan from outside that makes none of whole rows is refused, and one that leaves steps no registers, too."""
    types = {"X": TensorType(DType.BFLOAT16, (1, 7, 7, 32)), "F": TensorType(DType.BFLOAT16, (3, 3, 32, 32))}
    program, target = tile_lang.bind(tile_lang.parse(CONVOLUTION), types), with_caches(1 << 20)
    ((name, decision),) = compile(program, target).decisions.items()
    plan = decision.plan
    assert plan.edge("x") is Edge.PAD
    assert compile(program, target, plans={name: plan}).decisions[name].plan == plan
    uncopied = replace(plan, stagings=tuple(s for s in plan.stagings if s.order or s.unit == "TILE"))
    ragged = tuple(replace(level, covers=tuple(_ragged(c) for c in level.covers)) for level in plan.levels)
    for wrong in (uncopied, replace(plan, levels=ragged)):
        with pytest.raises(TilePlanError):
            compile(program, target, plans={name: wrong})


def _ragged(cover: Cover) -> Cover:
    """No whole tiles of the rows that go on."""
    return replace(cover, size=24) if cover.loop == "x" else cover
