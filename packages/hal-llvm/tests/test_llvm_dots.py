"""Dot products of words: the right instruction on every processor, and what the definition says on this one."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hal_llvm.binding import Processor, host
from hal_llvm.compiler import assembly, machine_for
from hal_llvm.cpu import host_target, present
from hal_llvm.dots import forms
from hal_llvm.emit.module import emit_module
from tile_ir import numerics
from tile_ir.dots import DOTS, WORD
from tile_ir.dtype import DType
from tile_ir.kernels import Kernel
from tile_ir.semtree.nodes import Access, Block, Call, Const, For, Function, Load, Param, Statement, Store, Type, Var

I64 = Type(DType.INT64)
X86, ARM = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"
AVX512 = "+avx512f,+avx512dq,+avx512bw,+avx512vl,+avx2,+fma,+sse2"
COUNT = 1920
LANES = (1, 2, 3, 4, 5, 8, 12, 16, 20, 32)

CASES = [
    ("dot4_u8s8", 16, Processor(X86, "x86-64-v4", f"{AVX512},+avx512vnni"), r"vpdpbusd\s.*%zmm"),
    ("dot4_u8s8", 5, Processor(X86, "x86-64-v4", f"{AVX512},+avx512vnni"), r"vpdpbusd\s.*%ymm"),
    ("dot4_u8s8", 8, Processor(X86, "x86-64-v3", "+avx2,+fma,+avxvnni,+sse2"), r"\{vex\}\s+vpdpbusd\s.*%ymm"),
    ("dot2_s16s16", 16, Processor(X86, "x86-64-v4", f"{AVX512},+avx512vnni"), r"vpdpwssd\s.*%zmm"),
    ("dot2_s16s16", 16, Processor(X86, "x86-64-v4", AVX512), r"vpmaddwd\s.*%zmm"),
    ("dot2_s16s16", 8, Processor(X86, "x86-64-v3", "+avx2,+fma,+sse2"), r"vpmaddwd\s.*%ymm"),
    ("dot2_s16s16", 4, Processor(X86, "x86-64", "+sse2"), r"pmaddwd\s.*%xmm"),
    ("dot4_s8s8", 4, Processor(ARM, "generic", "+neon,+dotprod"), r"sdot\s+v\d+\.4s, v\d+\.16b"),
    ("dot4_u8u8", 4, Processor(ARM, "generic", "+neon,+dotprod"), r"udot\s+v\d+\.4s, v\d+\.16b"),
    ("dot4_u8s8", 4, Processor(ARM, "generic", "+neon,+i8mm,+dotprod"), r"usdot\s+v\d+\.4s, v\d+\.16b"),
    ("dot2_bf16bf16", 16, Processor(X86, "x86-64-v4", f"{AVX512},+avx512bf16"), r"vdpbf16ps\s.*%zmm"),
    ("dot2_bf16bf16", 5, Processor(X86, "x86-64-v4", f"{AVX512},+avx512bf16"), r"vdpbf16ps\s.*%ymm"),
    ("dot4_s8s8", 8, Processor(X86, "x86-64-v3", "+avx2,+fma,+avxvnni,+avxvnniint8,+sse2"), r"vpdpbssd\s.*%ymm"),
    ("dot4_u8u8", 4, Processor(X86, "x86-64-v3", "+avx2,+fma,+avxvnni,+avxvnniint8,+sse2"), r"vpdpbuud\s.*%xmm"),
]


INTEGERS = {name for name, dot in DOTS.items() if dot.c.is_integer}


def pointers_of(op: str) -> list[Type]:
    """Of the result, two words and the addend."""
    return [Type(dtype, ptr=True) for dtype in (DOTS[op].c, WORD, WORD, DOTS[op].c)]


def body(op: str, lanes: int) -> list[Statement]:
    """``p0[i] = op(p1[i], p2[i], p3[i])`` for all i."""
    i, pointers = Var("i", I64), pointers_of(op)
    loads = [Load(Var(f"p{n}", p), i, Type(p.dtype, lanes)) for n, p in enumerate(pointers)]
    store = Store(Var("p0", pointers[0]), i, Call(op, tuple(loads[1:]), Type(pointers[0].dtype, lanes)))
    return [For("i", Const(0, I64), Const(COUNT, I64), lanes, Block((store,)))]


def kernel(op: str, lanes: int) -> Kernel:
    params = [Param(f"p{n}", p, Access.READ if n else Access.WRITE) for n, p in enumerate(pointers_of(op))]
    return Kernel(op, None, Function("f", tuple(params), Block(tuple(body(op, lanes)))), (1, 1, 1))  # type: ignore[arg-type]


@pytest.mark.parametrize(("op", "lanes", "processor", "text"), CASES, ids=[f"{c[3][:12]}-{c[1]}" for c in CASES])
def test_the_instruction(op: str, lanes: int, processor: Processor, text: str) -> None:
    code = assembly(emit_module([kernel(op, lanes)], machine_for(processor)).text, processor)
    assert re.search(text, code), code


def test_targets_list_what_there_is() -> None:
    def listed(processor: Processor) -> set[str]:
        return set(host_target(processor.triple, processor.features, 1, cpus=()).nodes & DOTS.keys())

    assert listed(CASES[0][2]) == {"dot4_u8s8", "dot2_s16s16"}
    assert listed(CASES[4][2]) == {"dot2_s16s16"}
    assert listed(CASES[7][2]) == {"dot4_s8s8", "dot4_u8u8"}
    assert listed(CASES[10][2]) == {"dot2_bf16bf16", "dot2_s16s16"}
    assert listed(CASES[-1][2]) == INTEGERS
    assert listed(Processor(ARM, "generic", "+neon")) == set()


@pytest.mark.parametrize("op", DOTS)
def test_this_machine_computes_the_definition(launch_all: Any, op: str) -> None:
    if op not in forms(present(host().features)):
        pytest.skip(f"this processor has no {op}")
    draw = np.random.default_rng(5)
    bytes_ = draw.choice(np.array([0, 1, 0x7F, 0x80, 0xFF, 0x42], np.uint8), (3, COUNT * 4))
    total = DOTS[op].c
    a, b, c = (row.view(dtype.numpy) for row, dtype in zip(bytes_, (WORD, WORD, total), strict=True))
    with np.errstate(all="ignore"):
        want = numerics.apply(op, [a, b, c], total)
    cases = [(body(op, lanes), [np.zeros(COUNT, total.numpy), a, b, c]) for lanes in LANES]
    for lanes, got in zip(LANES, launch_all(cases), strict=True):
        np.testing.assert_array_equal(got, want, err_msg=f"{lanes} lanes")
