"""Tile registers: AMX's instructions in machine code for a processor that has them."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hal_llvm.amx import instructions
from hal_llvm.binding import Processor
from hal_llvm.compiler import assembly, machine_for
from hal_llvm.cpu import present
from hal_llvm.emit.module import emit_module
from tile_ir.kernels import Kernel
from tile_ir.semtree import parse_function

AMX = Processor(
    "x86_64-unknown-linux-gnu",
    "x86-64-v4",
    "+avx512f,+avx512dq,+avx512bw,+avx512vl,+avx2,+fma,+sse2,+prfchw,+amx-tile,+amx-bf16,+amx-int8",
)
PARAMS = "readwrite global float32* c, read global int32* a, read global int32* b"
FP16 = replace(AMX, features=f"{AMX.features},+amx-fp16")
BODY = """function f(readwrite global float32* c, read global int32* a, read global int32* b) group(1, 1, 1) {
    tile_step tile_load(0), c[0, pitch=16];
    tile_step tile_zero(1);
    for (k = 0; k < 64; k += 1) {
        tile_step fetch_line(), a[16 * k + 16384];
        tile_step claim_line(), c[16 * k];
        tile_step tile_load(4), a[16 * k, pitch=1024];
        tile_step tile_load(6), b[256 * k, pitch=16];
        tile_step tdpbf16ps(0, 4, 6);
        tile_step tdpbusd(1, 4, 6);
    }
    tile_step tile_store(0), c[0, pitch=16];
}"""


def kernel() -> Kernel:
    return Kernel("f", None, parse_function(BODY), (4, 1, 1))  # type: ignore[arg-type]


def test_instructions_of_tiles() -> None:
    """Registers are set up once, before the loop over groups, and cleared behind it; nothing else touches them."""
    code = assembly(emit_module([kernel()], machine_for(AMX)).text, AMX)
    body = code[code.index("body0:") : code.index("kernel0:")] if "body0:" in code else code
    found = re.findall(r"\b(ldtilecfg|tilerelease|tileloadd|tilestored|tdpbf16ps|tdpbusd|sttilecfg|tilezero)\b", body)
    assert found == [
        "ldtilecfg",
        "tileloadd",
        "tilezero",
        "tileloadd",
        "tileloadd",
        "tdpbf16ps",
        "tdpbusd",
        "tilestored",
        "tilerelease",
    ]
    assert re.search(r"tdpbf16ps\s+%tmm6, %tmm4, %tmm0", body)
    assert re.search(r"tdpbusd\s+%tmm6, %tmm4, %tmm1", body)
    assert re.findall(r"\bprefetch\w+", body) == ["prefetcht1", "prefetchw"]


def test_products_of_float16_where_the_processor_has_them() -> None:
    assert "tdpfp16ps" not in instructions(present(AMX.features))
    assert "tdpfp16ps" in instructions(present(FP16.features))
    made = Kernel("f", None, parse_function(BODY.replace("tdpbf16ps", "tdpfp16ps")), (4, 1, 1))  # type: ignore[arg-type]
    code = assembly(emit_module([made], machine_for(FP16)).text, FP16)
    assert re.search(r"tdpfp16ps\s+%tmm6, %tmm4, %tmm0", code)


ROUNDED = """function f(write global bfloat16* o, read global int32* a, read global float32* c) group(1, 1, 1) {{
    alloc private float32[256] s;
    {first}
    tile_step tile_load(4), a[0, pitch=16];
    tile_step tdpbf16ps(0, 4, 5);
    tile_step tile_store(0), s[0, pitch=16];
    {then}
    let x = s[0]:float32x16;
    o[0] = bfloat16x16(x);
}}"""


@pytest.mark.parametrize(
    ("first", "then", "asks"),
    [
        ("tile_step tile_zero(0);", "", False),
        ("tile_step tile_load(0), c[0, pitch=16];", "", True),
        ("tile_step tile_zero(0);", "s[0] = c[0];", True),
    ],
    ids=["sums of products", "a tile that was given", "another number"],
)
def test_sums_of_products_are_rounded_without_a_look(first: str, then: str, asks: bool) -> None:
    """The instruction that rounds takes subnormal numbers for zeros, but there are none among them."""
    function = parse_function(ROUNDED.format(first=first, then=then))
    rounding = replace(AMX, features=f"{AMX.features},+avx512bf16")
    code = assembly(emit_module([Kernel("f", None, function, (1, 1, 1))], machine_for(rounding)).text, rounding)  # type: ignore[arg-type]
    assert "vcvtneps2bf16" in code
    assert ("vfpclassps" in code) == asks
