"""Throughput and latency of scalar operations on vectors: the issue port, the number of instructions, and cycles to the result."""

from __future__ import annotations

from collections.abc import Mapping
from math import frexp

from tile_ir.dots import DOTS
from tile_ir.dtype import DType, Kind
from tile_ir.machine import Machine

_FUNCTION: Mapping[str, str] = {
    "div": "div", "recip": "div", "sqrt": "sqrt", "exp": "exp", "log": "log", "tanh": "tanh", "pow": "pow",
    **dict.fromkeys(("sin", "cos", "tan"), "trigonometric"),
    **dict.fromkeys(("asin", "acos", "atan", "atan2", "sinh", "cosh"), "inverse"),
    **dict.fromkeys(("asinh", "acosh", "atanh"), "inverse_hyperbolic"),
    "expm1": "exp", "log1p": "log", "erf": "erf", "erfc": "erfc", "fmod": "remainder",
}  # fmt: skip
DIVISIONS = frozenset({"div", "recip", "sqrt"})
_OF_HALVES: Mapping[str, float] = {"exp": 1, "recip": 1, "sqrt": 1, "tanh": 3}
_APPROXIMATE: Mapping[DType, Mapping[str, float]] = {
    DType.FLOAT32: {"exp": 1, "recip": 1}, DType.FLOAT16: _OF_HALVES, DType.BFLOAT16: {**_OF_HALVES, "log": 1},
}  # fmt: skip
"""Functions that a graphics processor has instructions of its own for, and how many: off by more than a rounding of float32, which
16-bit floats do not show."""
_DOUBLE_DIVISION = 1.6
"""Times that a register of float64 takes as long as one of float32."""
_INTEGER_DIVISION = 12
"""Instructions for each element: there is none for vectors."""
_WHOLE_DIVISION, _GUARDS = 3, 6
"""Instructions beside the division of a register of floats that divide integers on vectors; those for divisors of 0 and -1."""
_FIXED_DIVISION, _LONG_FIXED_DIVISION = 8, 20
"""Instructions of a vector of integers by a constant: the upper half of a product, and what rounds it. That of 64-bit ones is four."""
_SHORT_BITS = 32
_INTEGER_PRODUCT = 2
NARROW: Mapping[DType, float] = {DType.FLOAT16: 1, DType.BFLOAT16: 2}
"""Instructions that widen a vector of 16-bit floats, or that store one."""
NARROW_ALONE: Mapping[DType, float] = {DType.FLOAT16: 4, DType.BFLOAT16: 3}
"""Instructions that widen one 16-bit float, and fill a vector with it: it comes from a register of integers."""
_HALF_ROUNDING = 2
"""Instructions that round a result to float16."""
_DIVIDED = 12
"""Cycles until a quotient or a root is there, beyond those in which the next one cannot start."""
_KEEPS_CONSTANTS = 32
"""Vector registers from which on the constants of a polynomial stay in them."""
_IN_A_ROW = 0.7
"""Share of a function's instructions that wait for the one before."""


def division(by: float, dtype: DType) -> str:
    """What divides by a constant: a product with its reciprocal where that is exact; all lanes of integers at once."""
    if dtype.is_float:
        return "mul" if abs(frexp(by)[0]) == 0.5 else "div"
    return "fixed_div"


def quotient(dtype: DType, of_vectors: bool) -> str:
    """What divides by what only the run knows: processors divide vectors of short integers as floats."""
    return "wide_div" if of_vectors and dtype.is_integer and dtype.bits <= _SHORT_BITS else "div"


def width(dtype: DType) -> int:
    """Bytes in which a value is computed."""
    return 4 if dtype in NARROW or dtype.kind is Kind.BOOL else dtype.bytes


def instructions(name: str, dtype: DType, machine: Machine, fragments: bool = False) -> tuple[str, float]:
    """(port, instructions of one vector); on `fragments` of products whose factors were rounded, functions need be no better."""
    own = _APPROXIMATE.get(dtype, {}).get(name) if fragments or dtype is not DType.FLOAT32 else None
    if own and machine.functions.approximate:
        return "shuffle", own * machine.functions.approximate
    if name in DOTS:
        return "fma", machine.slots(name)
    if name == "fixed_div":
        return "fma", _FIXED_DIVISION if dtype.bits <= _SHORT_BITS else _LONG_FIXED_DIVISION
    if name == "wide_div":
        return "fma", _wide_division(dtype, machine)
    if name == "mul":
        return "fma", 1 if dtype.is_float else _INTEGER_PRODUCT
    if name in ("max", "min") and dtype.is_float:
        return "add", machine.functions.minmax
    if name in ("abs", "neg") and dtype.is_float:
        return "add", machine.functions.sign
    field = _FUNCTION.get(name)
    if field is None:
        return "add", 1
    if not dtype.is_float:
        return "fma", _INTEGER_DIVISION
    return "fma", getattr(machine.functions, field) * (_longer(field, machine) if dtype is DType.FLOAT64 else 1)


def _wide_division(dtype: DType, machine: Machine) -> float:
    """As float32 up to 16 bits, else as float64, whose vectors have fewer lanes."""
    double = dtype.bits > 16
    registers = (8 if double else 4) / dtype.bytes
    return registers * (machine.functions.div * (_DOUBLE_DIVISION if double else 1) + _WHOLE_DIVISION) + _GUARDS


def _longer(field: str, machine: Machine) -> float:
    """Times as many instructions as for a vector of float32 that one of float64 takes."""
    if field in ("div", "sqrt"):
        return _DOUBLE_DIVISION
    return machine.functions.double if field in ("pow", "remainder") else machine.functions.long


def rounding(dtype: DType, machine: Machine) -> float:
    """Instructions that round a vector of results to 16 bits."""
    return machine.functions.bfloat if dtype is DType.BFLOAT16 else _HALF_ROUNDING


def _polynomial(name: str, dtype: DType) -> bool:
    return name in _FUNCTION and name not in DIVISIONS and dtype.is_float and dtype is not DType.FLOAT64


def beside(name: str, dtype: DType, cost: float, machine: Machine) -> float:
    """A function's comparisons and conversions, beside its `cost` of multiplications."""
    return cost * machine.functions.others if _polynomial(name, dtype) else 0.0


def constants(name: str, dtype: DType, cost: float, machine: Machine) -> float:
    """Loads of constants: where registers are few, each step of a polynomial fetches its own again."""
    few = not machine.is_gpu and machine.vector.registers < _KEEPS_CONSTANTS
    return cost if few and _polynomial(name, dtype) else 0.0


def latency(port: str, cost: float, machine: Machine, divided: float = 0) -> float:
    """Cycles of an operation; of a polynomial most steps wait for the one before.

    A processor's divider takes longer than it keeps others waiting, which is `divided` of the time for a whole register.
    """
    ports = machine.ports
    if divided and not machine.is_gpu:
        return _DIVIDED + cost * divided / ports.fma
    own = ports.fma_latency if port == "fma" else ports.add_latency
    return own * max(1.0, cost * _IN_A_ROW)
