"""Functions of float64 of the C library, one lane after the other."""

from __future__ import annotations

from collections.abc import Sequence

from tile_ir.dtype import DType

from hal_llvm.emit.code import Code
from hal_llvm.emit.types import register

_NO_INTRINSIC = frozenset({"fmod"})
"""Functions for which LLVM has none."""


def of_library(code: Code, name: str, args: Sequence[str], lanes: int) -> str:
    """The C library's function of float64, lane by lane."""
    vector = register(DType.FLOAT64, lanes)
    if name not in _NO_INTRINSIC:
        return code.intrinsic(f"llvm.{name}", vector, *args)
    if lanes == 1:
        return code.call(name, vector, *((vector, arg) for arg in args))
    result = "poison"
    for lane in range(lanes):
        picked = [code.let(f"extractelement {vector} {arg}, i64 {lane}") for arg in args]
        value = code.call(name, "double", *(("double", arg) for arg in picked))
        result = code.let(f"insertelement {vector} {result}, double {value}, i64 {lane}")
    return result
