"""Contractions on tile registers: whatever the shape, by the instruction, with the results that the instruction defines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tile_lang
from lowering_support import execute
from tensor_support import instructions
from test_dots import bound
from tile_ir.dots import DOTS
from tile_ir.dtype import DType, from_numpy
from tile_ir.machine import Cache, InstructionRate
from tile_ir.matrix.x86 import PRODUCTS, TILED_INSTRUCTIONS
from tile_ir.program.nodes import Program, TensorType
from tile_ir.stripe import interpret
from tile_ir.stripe.nodes import Program as Stripe
from tile_ir.stripe.parser import parse_program
from tile_ir.stripe.printer import print_program
from tile_ir.target import Options, PassConfig, Target
from tile_lang.evaluate import evaluate
from tile_opt.lower_kernels import lower_kernels
from tile_opt.pipeline import optimize, schedule
from tile_opt.program import DotProducts
from tile_opt.proof import prove
from tile_opt.translate import to_stripe

Array = Any
CPU = Target.preset("cpu")
RATES = tuple(InstructionRate(name, 1 / 16) for name in PRODUCTS) + tuple(
    InstructionRate(name, 1 / 256) for name in DOTS
)
"""Dot products in vector lanes are slow here, so that small products of tiles pay, too."""
FUSED = ("inline", "fuse", "accumulate", "matrix_tile", "schedule_kernels")
TILES = replace(
    CPU, nodes=CPU.nodes | {"TileStep", "Fma", "Bitcast", *DOTS}, matrix=tuple(PRODUCTS), options=Options(reduced_precision=True),
    settings=replace(CPU.settings, vector_bytes=64, registers=32, masks=True), passes=tuple(PassConfig(n) for n in FUSED),
    machine=replace(CPU.machine, instructions=RATES),
)  # fmt: skip
WHOLE = ("inline", "in_place", "fuse", "merge", "ungroup", "accumulate", "matrix_tile", "schedule_kernels")
AMX = replace(TILES, passes=tuple(PassConfig(n) for n in WHOLE))
"""With the passes that see neighbouring dimensions as one."""
MATMUL = {
    "nn": ("A[M, K], B[K, N]", "A[m, k] * B[k, n]"),
    "tn": ("A[K, M], B[K, N]", "A[k, m] * B[k, n]"),
    "nt": ("A[M, K], B[N, K]", "A[m, k] * B[n, k]"),
}


def bfloat16() -> Any:
    return pytest.importorskip("ml_dtypes").bfloat16


def drawn(dtype: Any, *shape: int) -> Array:
    draw = np.random.default_rng(sum(shape))
    if np.dtype(dtype).kind in "iu":
        info = np.iinfo(dtype)
        return draw.integers(info.min, info.max + 1, shape).astype(dtype)
    return draw.standard_normal(shape).astype(dtype)


def on_tiles(
    source: str, arrays: Mapping[str, Array], target: Target = TILES, gain: float = float("inf")
) -> tuple[Program, Stripe]:
    """The program with dot products wherever there are any (or where they leave `gain` of the time), and as it is scheduled."""
    types = {n: TensorType(from_numpy(a.dtype), a.shape) for n, a in arrays.items()}
    program = tile_lang.bind(tile_lang.parse(source), types)
    made = DotProducts(target=target, gain=gain).apply(program)
    return made, optimize(to_stripe(made), target, verify=True)


def result_of(stripe: Stripe, arrays: Mapping[str, Array], target: Target = TILES) -> Array:
    """What the interpreter of kernels makes of it, which does as the instruction does."""
    return next(iter(execute(lower_kernels(stripe, target, verify=True), arrays).values()))


def near(got: Array, a: Array, b: Array, want: Array) -> None:
    """Within the roundings of sums of float32 in any order, and one of the result."""
    size = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64))
    step = 2.0**-8 if got.dtype != np.float32 else 2.0**-24 * (a.shape[-1] + 4)
    assert (np.abs(got.astype(np.float64) - want) <= step * size).all()


@pytest.mark.parametrize(("m", "n", "step"), [(16, 80, (16, 32)), (80, 16, (48, 16)), (96, 96, (32, 32))])
def test_a_step_has_sums_enough_to_hide_how_long_one_takes(m: int, n: int, step: tuple[int, int]) -> None:
    """One tile of columns meets up to four of rows; of these each is used once, and they take turns in two registers."""
    a, b = drawn(bfloat16(), m, 64), drawn(bfloat16(), 64, n)
    header, body = MATMUL["nn"]
    source = f"function ({header}) -> (O) {{ O[m, n : M, N] = +({body}); }}"
    types = {name: TensorType(DType.BFLOAT16, x.shape) for name, x in (("A", a), ("B", b))}
    program = DotProducts(target=TILES, gain=float("inf")).apply(tile_lang.bind(tile_lang.parse(source), types))
    scheduled = schedule(to_stripe(program), TILES)
    (plan,) = (d.plan for d in scheduled.decisions.values() if d.plan.instruction)
    covers = {c.loop: c.size for level in plan.levels[1:-1] for c in level.covers}
    assert (covers["m"], covers["n"]) == step
    near(
        result_of(on_tiles(source, {"A": a, "B": b})[1], {"A": a, "B": b}),
        a,
        b,
        a.astype(np.float64) @ b.astype(np.float64),
    )


@pytest.mark.diagonal(2)
@pytest.mark.parametrize("layout", MATMUL)
@pytest.mark.parametrize(("m", "n", "k"), [(32, 32, 32), (17, 34, 45), (7, 34, 45), (20, 5, 64)])
def test_products_of_bfloat16(layout: str, m: int, n: int, k: int) -> None:
    header, body = MATMUL[layout]
    a, b = drawn(bfloat16(), m, k), drawn(bfloat16(), k, n)
    arrays = {"A": a.T.copy() if layout[0] == "t" else a, "B": b.T.copy() if layout[1] == "t" else b}
    _, stripe = on_tiles(f"function ({header}) -> (O) {{ O[m, n : M, N] = +({body}); }}", arrays)
    assert "tdpbf16ps" in instructions(stripe)
    want = a.astype(np.float64) @ b.astype(np.float64)
    near(result_of(stripe, arrays), a, b, want)


@pytest.mark.parametrize(
    ("layout", "dtype"), [("nn", "bfloat16"), ("nn", "int8"), ("nt", "bfloat16"), ("tn", "bfloat16")]
)
def test_words_are_made_where_panels_are(layout: str, dtype: str) -> None:
    """No kernel packs a factor: what each tile reads is packed on the way to its panel, and read from there."""
    header, body = MATMUL[layout]
    kind: Any = np.int8 if dtype == "int8" else bfloat16()
    a, b = drawn(kind, 64, 128), drawn(kind, 128, 48)
    arrays = {"A": a.T.copy() if layout[0] == "t" else a, "B": b.T.copy() if layout[1] == "t" else b}
    wide = "as_int({}, 32)" if dtype == "int8" else "{}"
    code = (
        f"function ({header}) -> (O) {{ X = {wide.format('A')}; Y = {wide.format('B')}; O[m, n : M, N] = +({body}); }}"
    )
    source = code.replace("A[m", "X[m").replace("A[k", "X[k").replace("* B[", "* Y[")
    _, stripe = on_tiles(source, arrays)
    assert instructions(stripe)
    assert len(lower_kernels(stripe, TILES).kernels) == 1
    near(result_of(stripe, arrays), a, b, a.astype(np.float64) @ b.astype(np.float64))


@pytest.mark.parametrize(("m", "n", "k"), [(18, 19, 40), (33, 21, 37)])
def test_no_kernel_fills_up_tiles(m: int, n: int, k: int) -> None:
    """Copies inside the kernel end in zeros; the last term of an odd sum is added to what tiles hold."""
    header, body = MATMUL["nn"]
    a, b = drawn(bfloat16(), m, k), drawn(bfloat16(), k, n)
    a[0, -1] = 1e30
    _, stripe = on_tiles(f"function ({header}) -> (O) {{ O[m, n : M, N] = +({body}); }}", {"A": a, "B": b})
    assert "tdpbf16ps" in instructions(stripe)
    assert len(lower_kernels(stripe, TILES).kernels) == 1
    near(result_of(stripe, {"A": a, "B": b}), a, b, a.astype(np.float64) @ b.astype(np.float64))


def test_tiles_that_zeros_fill_up_are_proved() -> None:
    """And refuted where a copy leaves out a word."""
    header, body = MATMUL["nn"]
    arrays = {"A": drawn(bfloat16(), 18, 40), "B": drawn(bfloat16(), 40, 19)}
    program, stripe = on_tiles(f"function ({header}) -> (O) {{ O[m, n : M, N] = +({body}); }}", arrays)
    text = print_program(stripe)
    assert text.count("19 - k >= 0") > 0
    assert prove(to_stripe(program), stripe).proved
    assert not prove(to_stripe(program), parse_program(text.replace("19 - k >= 0", "18 - k >= 0"))).proved


def test_the_last_bytes_of_a_sum_are_added_to_what_tiles_hold() -> None:
    header, body = MATMUL["nn"]
    a, b = drawn(np.int8, 18, 67), drawn(np.int8, 67, 19)
    source = f"function ({header}) -> (O) {{ X = as_int(A, 32); Y = as_int(B, 32); O[m, n : M, N] = +({body}); }}"
    _, stripe = on_tiles(source.replace("A[m", "X[m").replace("* B", "* Y"), {"A": a, "B": b})
    assert "tdpbssd" in instructions(stripe)
    assert len(lower_kernels(stripe, TILES).kernels) == 1
    np.testing.assert_array_equal(result_of(stripe, {"A": a, "B": b}), a.astype(np.int32) @ b.astype(np.int32))


def test_each_tile_of_a_copy_lies_in_one_piece() -> None:
    a, b = drawn(bfloat16(), 32, 64), drawn(bfloat16(), 64, 48)
    header, body = MATMUL["nn"]
    _, stripe = on_tiles(f"function ({header}) -> (O) {{ O[m, n : M, N] = +({body}); }}", {"A": a, "B": b})
    assert "B_words_l2[0, 0, 0] int32(3:512, 32:16, 16:1)" in print_program(stripe)


def test_the_next_rows_are_asked_for_while_these_are_multiplied() -> None:
    """Each of two tiles of columns asks for half of them, a line of each row in a step; rows that are copied are not asked for."""
    a, b = drawn(bfloat16(), 96, 64), drawn(bfloat16(), 64, 64)
    header, body = MATMUL["nn"]
    source = f"function ({header}) -> (O) {{ O[m, n : M, N] = +({body}); }}"
    target = replace(TILES, settings=replace(TILES.settings, cores=1))
    program, stripe = on_tiles(source, {"A": a, "B": b}, target)
    asked = [
        line
        for line in print_program(stripe).splitlines()
        if "in<DRAM> src = A_view" in line and "tile_row" not in line
    ]
    assert [line.split("[")[1].split("]")[0] for line in asked] == [
        f"{32 + row} + 32*m_t + 16*n_t, 16*k_t" for row in range(16)
    ]
    assert prove(to_stripe(program), stripe).proved
    near(result_of(stripe, {"A": a, "B": b}, target), a, b, a.astype(np.float64) @ b.astype(np.float64))
    copied = on_tiles(source, {"A": a[:, :40].copy(), "B": b[:40].copy()}, target)[1]
    assert "fetch_line" not in print_program(copied)


@pytest.mark.parametrize(
    ("k", "dtype", "lines"),
    [
        (256, "bfloat16", [f"{row}4*k_t, 0" for row in ("", "1 + ", "2 + ", "3 + ")]),
        (1000, "bfloat16", ["k_t, 0"]),
        (96, "bfloat16", []),
        (1024, "int8", [f"{row}2*k_t, {column}" for row in ("", "1 + ") for column in (0, 16)]),
    ],
)
def test_lines_of_results_are_asked_for_in_turn_while_they_are_computed(k: int, dtype: str, lines: list[str]) -> None:
    """Of those of bfloat16 32 columns are a line, of int32 16; with few steps, each would ask for more than come meanwhile."""
    sizes = (32, k), (k, 32)
    a, b = (drawn(np.int8, *s) if dtype == "int8" else drawn(bfloat16(), *s) for s in sizes)
    whole = "X = as_int(A, 32); Y = as_int(B, 32);" if dtype == "int8" else "X = A; Y = B;"
    source = f"function (A[M, K], B[K, N]) -> (O) {{ {whole} O[m, n : M, N] = +(X[m, k] * Y[k, n]); }}"
    program, stripe = on_tiles(source, {"A": a, "B": b}, replace(TILES, settings=replace(TILES.settings, cores=1)))
    claimed = [line for line in print_program(stripe).splitlines() if "dst = O[" in line and "k_t" in line]
    assert [line.split("O[")[1].split("]")[0] for line in claimed] == lines
    assert prove(to_stripe(program), stripe).proved


@pytest.mark.parametrize(("n", "asks"), [(128, True), (70, True), (32, False)])
def test_panels_ask_for_rows_that_lie_apart(n: int, asks: bool) -> None:
    """A group's piece of each row is followed by others' pieces; whole rows follow each other, and any processor foresees them."""
    a, b = drawn(bfloat16(), 32, 64), drawn(bfloat16(), 64, n)
    header, body = MATMUL["nn"]
    target = replace(TILES, settings=replace(TILES.settings, cores=2))
    source = f"function ({header}) -> (O) {{ O[m, n : M, N] = +({body}); }}"
    program, stripe = on_tiles(source, {"A": a, "B": b}, target)
    text = print_program(stripe)
    assert ("src = B[16 + 2*k" in text and "src = B[17 + 2*k" in text) == asks
    assert prove(to_stripe(program), stripe).proved
    near(result_of(stripe, {"A": a, "B": b}, target), a, b, a.astype(np.float64) @ b.astype(np.float64))


@pytest.mark.parametrize(
    ("cores", "near", "columns", "groups"),
    [(1, 1 << 21, 256, 1), (2, 1 << 21, 32, 8), (1, 1 << 17, 32, 8), (8, 1 << 21, 32, 8)],
)
def test_groups_pack_what_stays_near_and_are_no_more_than_keep_cores_busy(
    cores: int, near: int, columns: int, groups: int
) -> None:
    """Panels of a group take a quarter of the second cache at most; one core has few groups, of several none waits long for another."""
    caches = (Cache(1, 1 << 15, 8), Cache(2, near, 16), Cache(3, 1 << 24, 16))
    target = replace(
        TILES, machine=replace(TILES.machine, caches=caches), settings=replace(TILES.settings, cores=cores)
    )
    a, b = drawn(bfloat16(), 96, 512), drawn(bfloat16(), 512, 256)
    header, body = MATMUL["nn"]
    source = f"function ({header}) -> (O) {{ O[m, n : M, N] = +({body}); }}"
    types = {n: TensorType(DType.BFLOAT16, x.shape) for n, x in (("A", a), ("B", b))}
    program = DotProducts(target=target, gain=float("inf")).apply(tile_lang.bind(tile_lang.parse(source), types))
    (plan,) = (d.plan for d in schedule(to_stripe(program), target).decisions.values() if d.plan.instruction)
    covers = {c.loop: c.size for c in plan.levels[0].covers}
    assert covers["n"] == columns
    assert -(-256 // covers["n"]) * -(-96 // covers["m"]) == groups


def test_what_others_read_too_is_packed_once() -> None:
    a, b = drawn(bfloat16(), 32, 64), drawn(bfloat16(), 64, 32)
    source = """function (A[M, K], C[M, K], B[K, N]) -> (O, P) {
        O[m, n : M, N] = +(A[m, k] * B[k, n]); P[m, n : M, N] = +(C[m, k] * B[k, n]); }"""
    arrays = {"A": a, "B": b, "C": -a}
    _, stripe = on_tiles(source, arrays)
    assert len(lower_kernels(stripe, TILES).steps) == 3
    want = a.astype(np.float64) @ b.astype(np.float64)
    near(interpret.run(stripe, arrays)["P"], a, b, -want)


def test_products_of_float16() -> None:
    """Factors of different dtypes have no instruction."""
    a, b = drawn(np.float16, 20, 36), drawn(np.float16, 36, 16)
    source = "function (A[M, K], B[K, N]) -> (O) { O[m, n : M, N] = +(A[m, k] * B[k, n]); }"
    _, stripe = on_tiles(source, {"A": a, "B": b})
    assert "tdpfp16ps" in instructions(stripe)
    size = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64))
    got = result_of(stripe, {"A": a, "B": b})
    assert got.dtype == np.float16
    assert (np.abs(got.astype(np.float64) - a.astype(np.float64) @ b.astype(np.float64)) <= 2.0**-11 * 1.1 * size).all()
    mixed = on_tiles(source, {"A": a, "B": b.astype(bfloat16())})[1]
    assert not instructions(mixed)


FORMS = {
    "batches": ("A[B, M, K], C[B, K, N]", "O[b, m, n : 2, 20, 16] = +(A[b, m, k] * C[b, k, n]);", ((2, 20, 32), (2, 32, 16)), "bmk,bkn->bmn"),
    "one matrix for all batches": ("A[B, M, K], C[K, N]", "O[b, m, n : 2, 20, 16] = +(A[b, m, k] * C[k, n]);", ((2, 20, 32), (32, 16)), "bmk,kn->bmn"),
    "two sums": ("A[M, J, K], C[J, K, N]", "O[m, n : 18, 16] = +(A[m, j, k] * C[j, k, n]);", ((18, 2, 36), (2, 36, 16)), "mjk,jkn->mn"),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_other_forms(form: str) -> None:
    header, body, shapes, letters = FORMS[form]
    arrays = {n: drawn(bfloat16(), *s) for n, s in zip("AC", shapes, strict=True)}
    _, stripe = on_tiles(f"function ({header}) -> (O) {{ {body} }}", arrays)
    assert "tdpbf16ps" in instructions(stripe)
    a, c = (x.astype(np.float64) for x in arrays.values())
    want, size = np.einsum(letters, a, c), np.einsum(letters, np.abs(a), np.abs(c))
    assert (np.abs(result_of(stripe, arrays).astype(np.float64) - want) <= 2.0**-8 * size).all()


@pytest.mark.parametrize(
    ("dtypes", "zero"),
    [
        ((np.uint8, np.int8), ""),
        ((np.int8, np.uint8), " - 3"),
        ((np.int8, np.int8), " - 3"),
        ((np.uint8, np.uint8), ""),
    ],
)
def test_products_of_bytes_are_exact(dtypes: tuple[Any, Any], zero: str) -> None:
    source = f"""function (A[M, K], B[K, N]) -> (O) {{
        P = as_int(A, 32){zero}; Q = as_int(B, 32); O[m, n : M, N] = +(P[m, k] * Q[k, n]); }}"""
    arrays = {"A": drawn(dtypes[0], 20, 70), "B": drawn(dtypes[1], 70, 17)}
    made, stripe = on_tiles(source, arrays)
    assert instructions(stripe) & {"tdpbusd", "tdpbssd", "tdpbuud"}
    (want,) = evaluate(made, arrays).values()
    exact = (arrays["A"].astype(np.int32) - (3 if zero else 0)) @ arrays["B"].astype(np.int32)
    np.testing.assert_array_equal(want, exact)
    np.testing.assert_array_equal(result_of(stripe, arrays), exact)


def test_panels_of_constants_are_copied_once() -> None:
    a, b = drawn(bfloat16(), 17, 40), drawn(bfloat16(), 40, 64)
    program = bound(
        "function (A[M, K], B[K, N]) -> (O) { O[m, n : M, N] = +(A[m, k] * B[k, n]); }", {"A": a, "B": b}, ("B",)
    )
    made = DotProducts(target=TILES, gain=float("inf")).apply(program)
    stripe = optimize(to_stripe(made), TILES, verify=True)
    assert "tdpbf16ps" in instructions(stripe)
    kernels = lower_kernels(stripe, TILES, verify=True)
    written = {kernels.buffers[s.buffers[0]].name for s in kernels.steps if s.once}
    assert any("B_words" in name and "panels" in name for name in written)
    (got,) = execute(kernels, {"A": a}).values()
    near(got, a, b, a.astype(np.float64) @ b.astype(np.float64))


def test_what_follows_is_stored_from_the_same_kernel() -> None:
    """Nothing beyond the end is stored, or read of what the products are combined with."""
    source = """function (A[M, K], B[K, N], V[N], R[M, N]) -> (O) {
        P[m, n : M, N] = +(A[m, k] * B[k, n]); Q = P + V + R; O = (Q > 0 ? Q : 0); }"""
    arrays = {"A": drawn(bfloat16(), 18, 40), "B": drawn(bfloat16(), 40, 19)}
    arrays |= {"V": drawn(bfloat16(), 19), "R": drawn(bfloat16(), 18, 19)}
    _, stripe = on_tiles(source, arrays)
    assert "tdpbf16ps" in instructions(stripe)
    a, b, v, r = (x.astype(np.float64) for x in arrays.values())
    size = np.abs(a) @ np.abs(b) + np.abs(v) + np.abs(r)
    assert (
        np.abs(result_of(stripe, arrays).astype(np.float64) - np.maximum(a @ b + v + r, 0)) <= 3 * 2.0**-8 * size
    ).all()


def test_kernels_on_tiles_are_no_part_of_chains() -> None:
    """A chain has plans for lanes alone, however short the way from what fills up its rows."""
    arrays = {"A": drawn(bfloat16(), 2, 24, 64), "B": drawn(bfloat16(), 64, 32)}
    source = "function (A[Z, M, K], B[K, N]) -> (O) { O[z, m, n : Z, M, N] = +(A[z, m, k] * B[k, n]); }"
    chains = replace(TILES, passes=tuple(PassConfig(n) for n in ("inline", "fuse", "tile_pipelines", *FUSED[2:])))
    assert "tdpbf16ps" in instructions(on_tiles(source, arrays, chains)[1])


def test_rows_along_the_sum_are_read_as_they_are() -> None:
    """Nothing copies the first factor, and the second one only where it lies the other way."""
    for layout, copies in (("nn", 1), ("nt", 0), ("tn", 2)):
        inputs, product = MATMUL[layout]
        shapes = (32, 64) if layout[0] == "n" else (64, 32), (64, 48) if layout[1] == "n" else (48, 64)
        arrays = {n: drawn(bfloat16(), *shape) for n, shape in zip("AB", shapes, strict=True)}
        program, stripe = on_tiles(f"function ({inputs}) -> (O) {{ O[m, n : M, N] = +({product}); }}", arrays)
        assert sum(op.name.endswith("_words") for op in program.ops) == copies  # type: ignore[union-attr]
        assert "tdpbf16ps" in instructions(stripe)


def test_the_user_allows_it_and_few_rows_do_not_pay() -> None:
    a, b = drawn(bfloat16(), 32, 32), drawn(bfloat16(), 32, 32)
    source = "function (A[M, K], B[K, N]) -> (O) { O[m, n : M, N] = +(A[m, k] * B[k, n]); }"
    exact = replace(TILES, options=Options())
    assert not instructions(on_tiles(source, {"A": a, "B": b}, exact)[1])
    assert not instructions(on_tiles(source, {"A": a[:4], "B": b}, gain=0.8)[1])


def test_every_product_of_tiles_is_one_of_dot_products() -> None:
    assert {i.product for i in TILED_INSTRUCTIONS.values()} <= DOTS.keys()
