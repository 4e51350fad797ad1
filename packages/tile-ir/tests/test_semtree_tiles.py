"""Tile registers in semtree: their text, rules and exact meaning."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tile_ir import numerics
from tile_ir.dots import DOTS, WORD
from tile_ir.dtype import DType
from tile_ir.matrix.x86 import PRODUCTS, TILED_INSTRUCTIONS, tile_product
from tile_ir.semtree import SemtreeRuntimeError, launch, parse_function, print_function
from tile_ir.semtree import errors as err
from tile_ir.semtree.verify import verify

INTEGERS = [name for name, dot in PRODUCTS.items() if DOTS[dot].c is WORD]


def function(body: str, total: str = "float32") -> Any:
    params = f"readwrite global {total}* c, read global int32* a, read global int32* b"
    return parse_function(f"function f({params}) group(1, 1, 1) {{\n{body}\n}}")


def product(name: str, pitch: int = 20) -> str:
    return f"""
    tile_step tile_load(0), c[3, pitch=16];
    tile_step tile_load(4), a[0, pitch={pitch}];
    tile_step tile_load(6), b[2, pitch=16];
    tile_step {name}(0, 4, 6);
    tile_step tile_store(0), c[3, pitch=16];"""


def words(count: int, seed: int, choices: Any = None) -> Any:
    draw = np.random.default_rng(seed)
    bits = draw.integers(0, 256, count * 4, np.uint8) if choices is None else draw.choice(choices, count * 4)
    return bits.astype(np.uint8).view(np.int32)


def halves(*shape: int, seed: int) -> Any:
    """Words of two bfloat16 each, none of which is subnormal or no number."""
    values = np.random.default_rng(seed).standard_normal((*shape, 2)).astype(np.float32)
    return (values.view(np.uint32) >> 16).astype(np.uint16).view(np.int32)[..., 0]


def test_the_text_is_read_back() -> None:
    made = function(product("tdpbf16ps"))
    verify(made)
    assert parse_function(print_function(made)) == made


@pytest.mark.parametrize("name", INTEGERS)
def test_products_of_integers_add_up_dot_products(name: str) -> None:
    a, b = words(16 * 20, 1), words(16 * 16 + 2, 2)
    c = words(16 * 16 + 3, 3)
    want = c[3:].reshape(16, 16).copy()
    left, right = a.reshape(16, 20)[:, :16], b[2:].reshape(16, 16)
    for k in range(16):
        pair = [np.ascontiguousarray(x) for x in np.broadcast_arrays(left[:, k, None], right[None, k, :])]
        want = numerics.apply(PRODUCTS[name], [*pair, want], WORD)
    launch(function(product(name), "int32"), (1, 1, 1), [c, a, b])
    np.testing.assert_array_equal(c[3:].reshape(16, 16), want)


def exact(c: float, a: Any, b: Any) -> float:
    """``TDPBF16PS`` of one cell, from its definition in fractions: float32 operations in their order, subnormals as zeros."""

    def nearest(x: Fraction) -> Fraction:
        value = (
            np.float32(float(x))
            if abs(x) < 2**100 and x.denominator < 2**50
            else np.float32(x.numerator / x.denominator)
        )
        return Fraction(0) if abs(value) < 2.0**-126 else Fraction(float(value))

    sums = [Fraction(0), Fraction(0)]
    for x, y in zip(a, b, strict=True):
        for q in range(2):
            sums[q] = nearest(sums[q] + Fraction(float(x[q])) * Fraction(float(y[q])))
    return float(nearest(Fraction(c) + nearest(sums[0] + sums[1])))


def test_products_of_bfloat16_are_rounded_in_the_order_that_is_said() -> None:
    a, b = halves(16, 16, seed=1), halves(16, 16, seed=2)
    c = np.random.default_rng(3).standard_normal((16, 16)).astype(np.float32)
    got = tile_product("tdpbf16ps", c, a, b)
    split = [(x.view(np.uint16).reshape(16, 16, 2).astype(np.uint32) << 16).view(np.float32) for x in (a, b)]
    for m, n in ((0, 0), (3, 7), (15, 15), (8, 1)):
        assert got[m, n] == exact(float(c[m, n]), split[0][m], split[1][:, n])


def test_products_of_float16_count_subnormal_factors() -> None:
    draw = np.random.default_rng(4)
    x, y = ((draw.standard_normal((16, 16, 2)) * scale).astype(np.float16) for scale in (1.0, 2.0**-16))
    got = tile_product("tdpfp16ps", np.ones((16, 16), np.float32), *(v.view(np.int32)[..., 0] for v in (x, y)))
    assert (np.abs(y[y != 0]) < np.finfo(np.float16).tiny).any()
    for m, n in ((0, 0), (3, 7), (15, 15), (8, 1)):
        assert got[m, n] == exact(1.0, x[m].astype(np.float32), y[:, n].astype(np.float32))


def test_products_that_float32_does_not_hold_are_added_unrounded() -> None:
    def words_of(first: float, second: float) -> Any:
        return np.array([np.float32(v).view(np.uint32) >> 16 for v in (first, second)], np.uint32).view(np.int32)

    def product(rows: Any, columns: Any) -> Any:
        with np.errstate(all="ignore"):
            return tile_product("tdpbf16ps", np.zeros((1, 1), np.float32), rows[None, :], columns[:, None])

    assert product(words_of(-(2.0**127), 2.0**127), words_of(1.0, 2.0)) == 2.0**127
    assert product(words_of(2.0**-126, -(2.0**-70)), words_of(1.5, 2.0**-80)) == np.float32(1.5 * 2.0**-126)
    assert np.isnan(product(words_of(np.inf, -np.inf), words_of(1.0, 1.0)))


@pytest.mark.parametrize(
    ("a", "b", "c"), [(2.0**-130, 1.0, 0.0), (1.0, 2.0**-130, 0.0), (2.0**-70, 2.0**-60, 0.0), (0.0, 0.0, 2.0**-130)]
)
def test_subnormal_numbers_are_zeros(a: float, b: float, c: float) -> None:
    def words_of(value: float) -> Any:
        return np.full((16, 16), np.float32(value).view(np.uint32) >> 16, np.uint32).view(np.int32)

    got = tile_product("tdpbf16ps", np.full((16, 16), c, np.float32), words_of(a), words_of(b))
    assert not got.any()


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("tile_step tdpfancy(0, 1, 2);", err.UnknownOperation),
        ("tile_step tdpbf16ps(0, 1);", err.UnknownOperation),
        ("tile_step tdpbf16ps(0, 1, 1);", err.LaneError),
        ("tile_step tile_load(8), a[0, pitch=16];", err.LaneError),
        ("tile_step tile_load(0);", err.PointerExpected),
        ("tile_step tile_zero(0), a[0, pitch=16];", err.PointerExpected),
        ("tile_step tile_load(0), a[0, pitch=8];", err.IllegalDtype),
        ("tile_step fetch_line(0), a[0];", err.UnknownOperation),
        ("tile_step fetch_line();", err.PointerExpected),
        ("tile_step claim_line(0), c[0];", err.UnknownOperation),
        ("tile_step tile_store(0), a[0, pitch=16];", err.AccessViolation),
    ],
)
def test_mistakes_are_found(body: str, error: type) -> None:
    with pytest.raises(error):
        verify(function(body))


@pytest.mark.parametrize(("name", "total"), [("tdpbf16ps", "float32"), ("tdpbssd", "int32")])
def test_registers_of_zeros_begin_any_sum(name: str, total: str) -> None:
    a, b = halves(16, 16, seed=1).ravel(), halves(16, 16, seed=2).ravel()
    loaded = product(name, 16).replace("c[3,", "c[0,").replace("b[2,", "b[0,")
    zeroed = loaded.replace("tile_load(0), c[0, pitch=16]", "tile_zero(0)")
    begun, kept = np.zeros(256, total), np.ones(256, total)
    launch(function(loaded, total), (1, 1, 1), [begun, a, b])
    launch(function(zeroed, total), (1, 1, 1), [kept, a, b])
    np.testing.assert_array_equal(kept, begun)


@pytest.mark.parametrize("name", ["fetch_line", "claim_line"])
def test_asking_for_a_line_changes_nothing_wherever_it_is(name: str) -> None:
    made = function(f"tile_step {name}(), c[1000000];")
    verify(made)
    assert parse_function(print_function(made)) == made
    arrays = [np.ones(256, np.float32), words(256, 1), words(256, 2)]
    before = [a.copy() for a in arrays]
    launch(made, (1, 1, 1), arrays)
    for now, then in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(now, then)


def test_registers_and_rows_that_are_not_there() -> None:
    arrays = [np.zeros(256, np.float32), np.zeros(256, np.int32), np.zeros(256, np.int32)]
    with pytest.raises(SemtreeRuntimeError, match="tile register 0 is read"):
        launch(function("tile_step tile_store(0), c[0, pitch=16];"), (1, 1, 1), arrays)
    with pytest.raises(SemtreeRuntimeError, match="out of bounds"):
        launch(function("tile_step tile_load(0), a[1, pitch=16];"), (1, 1, 1), arrays)


def test_an_instruction_has_one_lane_and_whole_tiles() -> None:
    for instruction in TILED_INSTRUCTIONS.values():
        assert (instruction.lanes, instruction.shape, instruction.c.registers) == (1, (16, 16, 16), 256)
        assert instruction.c.dtype in (DType.INT32, DType.FLOAT32)
