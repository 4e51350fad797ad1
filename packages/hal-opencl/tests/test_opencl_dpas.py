"""Intel's matrix instructions: the functions of OpenCL C that they are, and the devices that have them."""

from __future__ import annotations

import pytest
from hal_opencl.emit.dialect import PLAIN, Dialect
from hal_opencl.emit.dpas import EXTENSIONS
from hal_opencl.emit.source import emit_kernel
from tile_ir.kernels import Kernel
from tile_ir.matrix import DPAS, MatrixInstruction
from tile_ir.semtree import parse_function
from tile_ir.semtree.errors import SemtreeError
from tile_ir.stripe import nodes as stripe

INTEL = Dialect(subgroup_products=True)
GOLDEN = {
    "dpas_m8n16k16_bf16": """float8 tile_dpas_m8n16k16_bf16(float8 a, float16 b, float8 c) {
    return intel_sub_group_bf16_bf16_matrix_mad_k16(as_short8(convert_ushort8(as_uint8(a) >> 16)), as_int8((as_uint8(b.even) >> 16) | (as_uint8(b.odd) & 0xffff0000u)), c);
}""",
    "dpas_m8n16k16_f16": """float8 tile_dpas_m8n16k16_f16(float8 a, float16 b, float8 c) {
    return intel_sub_group_f16_f16_matrix_mad_k16(as_short8(convert_half8(a)), as_int8(convert_half16(b)), c);
}""",
    "dpas_m8n16k8_tf32": """float8 tile_dpas_m8n16k8_tf32(float4 a, float8 b, float8 c) {
    return intel_sub_group_tf32_tf32_matrix_mad_k8(a, b, c);
}""",
}


def text(instruction: MatrixInstruction, dialect: Dialect = INTEL, subgroup: int = 16) -> str:
    dtype, (m, n, k) = instruction.a.dtype.value, instruction.shape
    ra, rb = instruction.a.registers, instruction.b.registers
    source = f"""function product(readwrite global float32* c, read global {dtype}* a, read global {dtype}* b)
        group(16, 1, 1) subgroup({subgroup}) {{
    let l = local_id(0);
    c[l * 8] = mma({m}, {n}, {k}, [a[l * {ra}]:{dtype}x{ra}], [b[l * {rb}]:{dtype}x{rb}], [c[l * 8]:float32x8]);
}}"""
    return emit_kernel(Kernel("product", stripe.Block("b"), parse_function(source), (1, 1, 1)), dialect).text


@pytest.mark.parametrize("instruction", DPAS, ids=lambda i: i.name)
def test_products_are_functions_of_the_extension(instruction: MatrixInstruction) -> None:
    made = text(instruction)
    assert GOLDEN[instruction.name] in made
    assert f"{instruction.name}(" in made.split("kernel ")[1]
    assert (
        "kernel __attribute__((intel_reqd_sub_group_size(16))) __attribute__((reqd_work_group_size(16, 1, 1)))" in made
    )
    assert ("cl_khr_fp16 : enable" in made) == (instruction.a.dtype.value == "float16")


def test_what_has_no_such_functions_has_no_such_products() -> None:
    with pytest.raises(SemtreeError, match="needs PTX"):
        text(DPAS[0], PLAIN)
    with pytest.raises(SemtreeError, match="sub-groups of 16"):
        text(DPAS[0], subgroup=32)


def test_every_instruction_has_an_extension() -> None:
    assert {i.a.dtype for i in DPAS} == set(EXTENSIONS)
