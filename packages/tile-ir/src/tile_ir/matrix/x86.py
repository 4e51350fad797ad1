"""Instructions of x86 processors on tile registers (AMX): one lane holds whole matrices.

A tile register has 16 rows of 64 bytes, which hold words of several factors side by side (`tile_ir.dots`), or sums. A
product adds up dot products of words: of 16 rows of a first factor, with words along them, and of 16 columns of a second
one, whose rows are words that follow each other. Integers wrap. Of 16-bit floats, the low and the high factors of all 16 words are
added up apart, in the order of the words, with one rounding per product; the two sums are added, and that is added to the tile.
Roundings are to nearest, ties to even, and subnormal numbers count as zeros throughout, but for factors of float16 (``TDPBF16PS`` and
``TDPFP16PS`` in Intel's SDM).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tile_ir.dots import DOTS, WORD, DotProduct
from tile_ir.matrix.definition import MatrixInstruction, Operand, registers
from tile_ir.numerics import flushed, fma32, halves

Array = npt.NDArray[Any]

TILES = 8
"""Tile registers of a thread."""
TILE = "TILE"
"""The memory unit of tile registers in Stripe; its index is the number of the first one."""
ROWS_OF_TILE = 16
WORDS_OF_ROW = 16
"""Words in a row of a tile."""
LOAD_TILE, STORE_TILE = "tile_load", "tile_store"
"""Instructions that move a tile between a register and rows of memory."""
ZERO_TILE = "tile_zero"
"""The instruction that fills a register with zeros."""
FETCH_LINE, CLAIM_LINE = FETCHES = ("fetch_line", "claim_line")
"""Instructions that ask for a line of memory, so that a later load, or store, finds it near; it may be beyond a buffer's end."""
PRODUCTS: Mapping[str, str] = {
    "tdpbf16ps": "dot2_bf16bf16",
    "tdpfp16ps": "dot2_f16f16",
    "tdpbusd": "dot4_u8s8",
    "tdpbssd": "dot4_s8s8",
    "tdpbuud": "dot4_u8u8",
}
"""By instruction, the dot product of words that it adds up."""


def _instruction(name: str, dot: DotProduct) -> MatrixInstruction:
    places = (registers(ROWS_OF_TILE, 1, WORDS_OF_ROW),), (registers(WORDS_OF_ROW, 1, 1),)
    words = Operand(WORD, *places)
    return MatrixInstruction(name, words, words, Operand(dot.c, *places), product=dot.name)


TILED_INSTRUCTIONS: Mapping[str, MatrixInstruction] = {n: _instruction(n, DOTS[dot]) for n, dot in PRODUCTS.items()}
"""By name; a target lists in its ``matrix`` those that its emitter can write."""


def is_tile_step(name: str) -> bool:
    """Whether an instruction is one on tile registers."""
    return name in TILED_INSTRUCTIONS or name in (LOAD_TILE, STORE_TILE, ZERO_TILE, *FETCHES)


def tile_product(name: str, c: Array, a: Array, b: Array) -> Array:
    """The instruction's result: c with the products of the words of a (rows, words) and b (words, columns)."""
    dot = DOTS[PRODUCTS[name]]
    if dot.c.is_float:
        return _float_product(c, *(flushed(halves(x, dot.a)) for x in (a.astype(np.int32), b.astype(np.int32))))
    left = np.ascontiguousarray(a).view(dot.a.numpy).reshape(*a.shape, dot.depth).astype(np.int64)
    right = np.ascontiguousarray(b).view(dot.b.numpy).reshape(*b.shape, dot.depth).astype(np.int64)
    return (c + np.einsum("mkq,knq->mn", left, right)).astype(np.int32)


def _float_product(c: Array, a: Array, b: Array) -> Array:
    """Of the factors a (rows, words, 2) and b (words, columns, 2)."""
    sums: Array = np.zeros((2, *c.shape), np.float32)
    rows, columns = a.transpose(1, 2, 0)[..., None], b.transpose(0, 2, 1)[:, :, None]
    products, exact = _products(rows, columns)
    for k in range(len(rows)):
        sums = flushed(sums + products[k] if exact else fma32(rows[k], columns[k], sums))
    return flushed(flushed(c.astype(np.float32)) + flushed(sums[0] + sums[1]))


def _products(a: Array, b: Array) -> tuple[Array, bool]:
    """The products of 16-bit floats in float32, and whether none was rounded, so that adding them is a fused addition."""
    products = a * b
    return products, bool((products == a.astype(np.float64) * b).all())
