"""Functions that NVIDIA's processors have, as functions in front of a kernel: off by some units in float32's last place.

`of_floats` stand for float32 beside products whose factors were rounded. `of_halves` stand for 16-bit floats everywhere: what they
are off by is less than a hundredth of such a float's last place, and none loses a subnormal number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from tile_ir.dtype import DType
from tile_ir.semtree.nodes import Type

from hal_opencl.emit.types import lane, register

Maker = Callable[[str, Type], str]

_BITS_OF_E = f"{math.log2(math.e).hex()}f"
_LOG_OF_2 = f"{math.log(2).hex()}f"
_NEARLY_ITSELF = "0x1p-5f"
"""Below it, tanh is x - x**3 / 3 up to 2**-23 of it; from it on, a difference from 1 keeps 17 bits."""


def _instruction(text: str, operand: str = "{x}", result: str = "{y}") -> Maker:
    """The maker of a function that is one instruction a lane, between what makes its operand of x and the result of y."""

    def make(name: str, t: Type) -> str:
        F, lanes = register(DType.FLOAT32, t.lanes), range(t.lanes)
        lines = [f"{F} {name}({F} x) {{", f"    float {', '.join(f'r{n}' for n in lanes)};"]
        for n in lanes:
            given = operand.format(x=lane("x", n, t.lanes))
            lines.append(f'    asm("{text} %0, %1;" : "=f"(r{n}) : "f"({given}));')
        made = "r0" if t.lanes == 1 else f"({F})({', '.join(f'r{n}' for n in lanes)})"
        return "\n".join([*lines, f"    return {result.format(y=made)};", "}"])

    return make


def _tanh(name: str, t: Type) -> str:
    """1 - 2 / (exp(2 x) + 1)."""
    F = register(DType.FLOAT32, t.lanes)
    power = _instruction("ex2.approx.f32", "{x} * " + f"{(2 * math.log2(math.e)).hex()}f")(f"{name}_power", t)
    inverse = _instruction("rcp.approx.f32")(f"{name}_inverse", t)
    there = f"1.0f - 2.0f * {name}_inverse({name}_power(x) + 1.0f)"
    near = "x - x * x * x * 0x1.555556p-2f"
    return f"{power}\n{inverse}\n{F} {name}({F} x) {{\n    return fabs(x) < {_NEARLY_ITSELF} ? {near} : {there};\n}}"


of_floats: Mapping[str, Maker] = {
    # Off by 2**-22, and by 2**-24 of the argument, of the result; none is subnormal.
    "exp": _instruction("ex2.approx.ftz.f32", "{x} * " + _BITS_OF_E),
    # Off by a unit in the last place; for what is subnormal, and of what would be, infinity and 0.
    "recip": _instruction("rcp.approx.ftz.f32"),
}
_HALVES: Mapping[str, Maker] = {
    "exp": _instruction("ex2.approx.f32", "{x} * " + _BITS_OF_E),
    "recip": _instruction("rcp.approx.f32"),
    "sqrt": _instruction("sqrt.approx.f32"),
    "tanh": _tanh,
}
of_halves: Mapping[DType, Mapping[str, Maker]] = {
    DType.FLOAT16: _HALVES,
    # Off by 2**-22 beside 1, where the logarithm of the nearest bfloat16 is 2**-8, but that of the nearest float16 2**-11.
    DType.BFLOAT16: {**_HALVES, "log": _instruction("lg2.approx.f32", result="{y} * " + _LOG_OF_2)},
}
