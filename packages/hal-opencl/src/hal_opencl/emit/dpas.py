"""Intel's matrix instructions: functions of ``cl_intel_subgroup_matrix_multiply_accumulate`` and its extension for TF32.

They take bits: two 16-bit elements of a column in a word, the upper row in its low half. 16-bit values are floats in the
text around them (`hal_opencl.emit.types`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tile_ir.dtype import DType
from tile_ir.matrix import MatrixInstruction

FUNCTIONS: Mapping[str, str] = {
    "dpas_m8n16k16_bf16": "intel_sub_group_bf16_bf16_matrix_mad_k16",
    "dpas_m8n16k16_f16": "intel_sub_group_f16_f16_matrix_mad_k16",
    "dpas_m8n16k8_tf32": "intel_sub_group_tf32_tf32_matrix_mad_k8",
}
"""The matrix instructions of `tile_ir.matrix` that can be written so."""
_HALVED, _TF32 = (f"cl_intel_subgroup_matrix_multiply_accumulate{end}" for end in ("", "_tf32"))
EXTENSIONS = {DType.BFLOAT16: _HALVED, DType.FLOAT16: _HALVED, DType.FLOAT32: _TF32}
"""The extension that has products of factors of a dtype."""
HALF = "#pragma OPENCL EXTENSION cl_khr_fp16 : enable"


def size_attribute(subgroup: int) -> str:
    """How a kernel says what sub-groups it has."""
    return f"__attribute__((intel_reqd_sub_group_size({subgroup}))) " if subgroup > 1 else ""


def multiply(name: str, instruction: MatrixInstruction) -> str:
    """The product of one sub-group; operands and result are the registers of a lane, in order."""
    a, b, c = (operand.registers for operand in (instruction.a, instruction.b, instruction.c))
    bits = _BITS[instruction.a.dtype]
    factors = ", ".join((_HALVES[bits](a) if bits else "a", _WORDS[bits](b) if bits else "b"))
    return (
        f"float{c} {name}(float{a} a, float{b} b, float{c} c) {{\n"
        f"    return {FUNCTIONS[instruction.name]}({factors}, c);\n}}"
    )


_BITS = {DType.FLOAT32: "", DType.BFLOAT16: "bfloat16", DType.FLOAT16: "float16"}
_HALVES: Mapping[str, Callable[[int], str]] = {
    "bfloat16": lambda count: f"as_short{count}(convert_ushort{count}(as_uint{count}(a) >> 16))",
    "float16": lambda count: f"as_short{count}(convert_half{count}(a))",
}
"""The first factor's elements, each as the 16 bits that it has in memory."""
_WORDS: Mapping[str, Callable[[int], str]] = {
    "bfloat16": lambda count: (
        f"as_int{count // 2}((as_uint{count // 2}(b.even) >> 16) | (as_uint{count // 2}(b.odd) & 0xffff0000u))"
    ),
    "float16": lambda count: f"as_int{count // 2}(convert_half{count}(b))",
}
"""The second factor's elements, two in a word."""
