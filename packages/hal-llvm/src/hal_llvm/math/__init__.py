"""Math functions as LLVM IR: our own polynomials for float32 and float64 at any lane count. Of float64, pow and fmod are the C
library's where processors do not fuse, and so are sines of large numbers.

Every lane does the same instructions whatever the lane count, so a scalar gives the same bits as a
vector. Bounds: OpenCL's full profile (exp, log 3 ulp; sin, cos, asin, acos, sinh, cosh 4; tan, atan,
tanh 5; pow 16), over the whole range. fmod is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tile_ir.diagnostics import TileInternalError
from tile_ir.dtype import DType

from hal_llvm.emit.code import Code
from hal_llvm.emit.types import register, suffix
from hal_llvm.math import error, exponential, hyperbolic, power, remainder, trigonometry
from hal_llvm.math.lanes import Lanes
from hal_llvm.math.library import of_library

_INTRINSICS = {
    **{name: name for name in ("sqrt", "floor", "ceil", "trunc", "round")},
    "round_even": "roundeven",
}
"""Exact functions that every processor has, or LLVM expands."""

_INLINE: dict[str, Callable[[Lanes, str], str]] = {
    "exp": exponential.exp,
    "log": exponential.log,
    "tanh": exponential.tanh,
    "asin": trigonometry.asin,
    "acos": trigonometry.acos,
    "atan": trigonometry.atan,
    "expm1": exponential.expm1,
    "log1p": exponential.log1p,
    "erf": error.erf,
}
"""Short enough to be written where they are used."""

_OUTLINED: dict[str, Callable[..., str]] = {
    "sinh": exponential.sinh,
    "cosh": exponential.cosh,
    "sin": trigonometry.sin,
    "cos": trigonometry.cos,
    "tan": trigonometry.tan,
    "pow": power.pow_,
    "atan2": trigonometry.atan2,
    "fmod": remainder.fmod,
    "erfc": error.erfc,
    "asinh": hyperbolic.asinh,
    "acosh": hyperbolic.acosh,
    "atanh": hyperbolic.atanh,
}
"""Long ones become a function per lane count."""

_FUSING = frozenset({"fmod", "pow"})
"""Those whose steps in float64 are exact where multiplications fuse with additions."""


def call(code: Code, name: str, args: Sequence[str], dtype: DType, lanes: int) -> str:
    """The value of a math function of float32 or float64 operands."""
    llvm_type = register(dtype, lanes)
    if name == "recip":
        return code.let(f"fdiv {llvm_type} {Lanes(code, register(dtype), lanes).const(1.0)}, {args[0]}")
    if name in _INTRINSICS:
        return code.intrinsic(f"llvm.{_INTRINSICS[name]}", llvm_type, *args)
    if name not in _INLINE and name not in _OUTLINED:
        raise TileInternalError(f"the llvm device has no math function {name!r}")
    v = Lanes(code, register(dtype), lanes)
    if dtype is DType.FLOAT64 and name in _FUSING and not v.fused:
        return of_library(code, name, args, lanes)
    if name in _INLINE:
        return _INLINE[name](v, args[0])
    symbol = f"math.{name}.{suffix(llvm_type)}"
    code.module.helper(symbol, lambda: _function(code, symbol, name, len(args), v))
    return code.call_local(symbol, llvm_type, *((llvm_type, arg) for arg in args))


def _function(caller: Code, symbol: str, name: str, arity: int, like: Lanes) -> str:
    code = Code(caller.module)
    v = Lanes(code, like.element, like.lanes)
    params = [f"%x{n}" for n in range(arity)]
    code.emit(f"ret {v.f} {_OUTLINED[name](v, *params)}")
    header = ", ".join(f"{v.f} {p}" for p in params)
    return (
        f'define internal {v.f} @{symbol}({header}) noinline nounwind "prefer-vector-width"="512" {{\n{code.body()}\n}}'
    )
