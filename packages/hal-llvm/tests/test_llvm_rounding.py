"""Rounding to bfloat16: every class of numbers, by whichever instructions the processor has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hal_llvm.binding import Processor
from hal_llvm.compiler import assembly, machine_for
from hal_llvm.emit.module import emit_module
from tile_ir.dtype import DType
from tile_ir.kernels import Kernel
from tile_ir.semtree.nodes import Access, Block, Cast, Const, For, Function, Load, Param, Statement, Store, Type, Var

Array = npt.NDArray[Any]
I64 = Type(DType.INT64)
AVX512 = "+avx512f,+avx512dq,+avx512bw,+avx512vl,+avx2,+fma,+sse2"
DTYPES = (DType.BFLOAT16, DType.FLOAT32)
ENDS = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
"""Lower halves: what is left alone, ties, and their neighbours."""


def rounding(count: int, lanes: int) -> list[Statement]:
    """``p0[i] = bfloat16(p1[i])`` for all i."""
    i, target, source = Var("i", I64), *(Var(f"p{n}", Type(d, ptr=True)) for n, d in enumerate(DTYPES))
    store = Store(target, i, Cast(Load(source, i, Type(DType.FLOAT32, lanes)), Type(DType.BFLOAT16, lanes)))
    return [For("i", Const(0, I64), Const(count, I64), lanes, Block((store,)))]


def defined(bits: Array) -> Array:
    """To nearest, ties to even; NaNs keep their sign and become quiet."""
    nearest = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return np.where(np.isnan(bits.view(np.float32)), bits >> 16 | 0x40, nearest).astype(np.uint16)


@pytest.mark.parametrize("lanes", [1, 8, 16, 32])
def test_every_upper_half(lanes: int, launch: Callable[..., list[Array]]) -> None:
    """Vectors with subnormal numbers, without any, and with all kinds beside each other."""
    kind = pytest.importorskip("ml_dtypes").bfloat16
    ordered = (np.arange(1 << 16, dtype=np.uint32)[:, None] << 16 | ENDS).ravel()
    bits = np.concatenate([ordered, np.random.default_rng(lanes).permutation(ordered)])
    got, _ = launch(rounding(bits.size, lanes), np.zeros(bits.size, kind), bits.view(np.float32))
    np.testing.assert_array_equal(got.view(np.uint16), defined(bits))


@pytest.mark.parametrize(("features", "instruction"), [("", False), (",+avx512bf16", True)])
def test_the_instruction(features: str, instruction: bool) -> None:
    processor = Processor("x86_64-unknown-linux-gnu", "x86-64-v4", AVX512 + features)
    access = (Access.WRITE, Access.READ)
    params = tuple(Param(f"p{n}", Type(d, ptr=True), a) for n, (d, a) in enumerate(zip(DTYPES, access, strict=True)))
    kernel = Kernel("f", None, Function("f", params, Block(tuple(rounding(64, 16)))), (1, 1, 1))  # type: ignore[arg-type]
    text = emit_module([kernel], machine_for(processor)).text
    assert ("vcvtneps2bf16" in assembly(text, processor)) == instruction
