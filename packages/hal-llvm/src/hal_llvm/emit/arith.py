"""Scalar and vector arithmetic of every dtype, as `tile_ir.numerics` defines it, without branches (but for one that is seldom taken).

float16 and bfloat16 compute in float32 and round once per operation.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tile_ir.dtype import DType

from hal_llvm.emit import reciprocal
from hal_llvm.emit.code import Code
from hal_llvm.emit.types import held, literal, register, spread, suffix

ROUNDED = 16
"""Lanes that AVX512-BF16 rounds at once. It takes subnormal numbers for zeros, so vectors with one go another way."""
_SUBNORMAL = 1 << 5
"""The class of subnormal numbers, of vfpclassps."""
HALVES = (DType.FLOAT16, DType.BFLOAT16)


def widen(code: Code, value: str, dtype: DType, lanes: int) -> str:
    """A float16 or bfloat16 value as float32; others as they are."""
    wide = register(DType.FLOAT32, lanes)
    if dtype is DType.FLOAT16:
        return code.let(f"fpext {register(dtype, lanes)} {value} to {wide}")
    if dtype is DType.BFLOAT16:
        bits = spread("i32", lanes)
        word = code.let(f"zext {spread('i16', lanes)} {value} to {bits}")
        high = code.let(f"shl {bits} {word}, {literal(16, DType.INT32, lanes)}")
        return code.let(f"bitcast {bits} {high} to {wide}")
    return value


def narrow(code: Code, value: str, dtype: DType, lanes: int) -> str:
    """A float32 value rounded to float16 or bfloat16 (nearest even); for other dtypes as it is."""
    wide = register(DType.FLOAT32, lanes)
    if dtype is DType.FLOAT16:
        return code.let(f"fptrunc {wide} {value} to {register(dtype, lanes)}")
    return _round_bfloat16(code, value, lanes) if dtype is DType.BFLOAT16 else value


def _round_bfloat16(code: Code, value: str, lanes: int) -> str:
    by_one = code.module.machine.rounds_bfloat16 and lanes == ROUNDED
    return (_round_by_instruction if by_one else _round_by_integers)(code, value, lanes)


def _round_by_instruction(code: Code, value: str, lanes: int) -> str:
    """A vector without subnormal numbers at once."""
    wide, small = register(DType.FLOAT32, lanes), spread("i16", lanes)
    if value in code.normal:
        return _rounded(code, value, lanes)
    found = code.call("llvm.x86.avx512.fpclass.ps.512", spread("i1", lanes), (wide, value), ("i32", str(_SUBNORMAL)))
    mask = code.let(f"bitcast {spread('i1', lanes)} {found} to i{lanes}")
    plain, rare, after = (code.fresh(name) for name in ("rounded", "subnormal", "narrowed"))
    code.branch(code.let(f"icmp eq i{lanes} {mask}, 0"), plain, rare, seldom=True)
    code.block(plain)
    quick = _rounded(code, value, lanes)
    code.jump(after)
    code.block(rare)
    exact = _round_by_integers(code, value, lanes)
    code.jump(after)
    code.block(after)
    return code.let(f"phi {small} [ {quick}, %{plain} ], [ {exact}, %{rare} ]")


def _rounded(code: Code, value: str, lanes: int) -> str:
    """By the instruction alone."""
    wide = register(DType.FLOAT32, lanes)
    short = code.call("llvm.x86.avx512bf16.cvtneps2bf16.512", spread("bfloat", lanes), (wide, value))
    return code.let(f"bitcast {spread('bfloat', lanes)} {short} to {spread('i16', lanes)}")


def _round_by_integers(code: Code, value: str, lanes: int) -> str:
    """To nearest, ties to even; NaNs become quiet."""
    bits, wide, small = spread("i32", lanes), register(DType.FLOAT32, lanes), spread("i16", lanes)

    def const(number: int) -> str:
        return literal(number, DType.INT32, lanes)

    word = code.let(f"bitcast {wide} {value} to {bits}")
    high = code.let(f"lshr {bits} {word}, {const(16)}")
    odd = code.let(f"and {bits} {high}, {const(1)}")
    bias = code.let(f"add {bits} {odd}, {const(0x7FFF)}")
    rounded = code.let(f"add {bits} {word}, {bias}")
    shifted = code.let(f"lshr {bits} {rounded}, {const(16)}")
    quiet = code.let(f"or {bits} {high}, {const(0x40)}")
    nan = code.let(f"fcmp uno {wide} {value}, {value}")
    chosen = select(code, nan, quiet, shifted, bits, lanes)
    return code.let(f"trunc {bits} {chosen} to {small}")


def select(code: Code, cond: str, then: str, other: str, llvm_type: str, lanes: int) -> str:
    """Lanewise choice by an ``i1`` mask."""
    return code.let(f"select {spread('i1', lanes)} {cond}, {llvm_type} {then}, {llvm_type} {other}")


# --- unary -----------------------------------------------------------------------------------------


def unary(code: Code, op: str, value: str, dtype: DType, lanes: int) -> str:
    """neg, abs or bit_not."""
    return _UNARY[op](code, value, dtype, lanes)


def _neg(code: Code, value: str, dtype: DType, lanes: int) -> str:
    t = register(dtype, lanes)
    if dtype is DType.BOOL:
        return value
    if dtype is DType.BFLOAT16:
        return code.let(f"xor {t} {value}, {literal(0x8000, DType.INT16, lanes)}")
    return code.let(
        f"fneg {t} {value}"
        if dtype.is_float
        else f"sub {t} zeroinitializer, {value}"
        if lanes > 1
        else f"sub {t} 0, {value}"
    )


def _abs(code: Code, value: str, dtype: DType, lanes: int) -> str:
    t = register(dtype, lanes)
    if dtype is DType.BFLOAT16:
        return code.let(f"and {t} {value}, {literal(0x7FFF, DType.INT16, lanes)}")
    if dtype.is_float:
        return code.intrinsic("llvm.fabs", t, value)
    if not dtype.is_signed:
        return value
    return code.call(f"llvm.abs.{suffix(t)}", t, (t, value), ("i1", "false"))


def _bit_not(code: Code, value: str, dtype: DType, lanes: int) -> str:
    return code.let(f"xor {register(dtype, lanes)} {value}, {literal(-1, dtype, lanes)}")


_UNARY: dict[str, Callable[[Code, str, DType, int], str]] = {"neg": _neg, "abs": _abs, "bit_not": _bit_not}

# --- binary ----------------------------------------------------------------------------------------


def binary(code: Code, op: str, left: str, right: str, dtype: DType, lanes: int) -> str:
    """add sub mul div mod max min and bit_and bit_or bit_xor on operands of one type."""
    if dtype is DType.BOOL:
        return code.let(f"{_BOOL[op]} {register(dtype, lanes)} {left}, {right}")
    if not dtype.is_float:
        return _INTEGER[op](code, left, right, dtype, lanes)
    if op == "add" and dtype in HALVES and (zero := literal(0.0, dtype, lanes)) in (left, right):
        return _beside_zero(code, left if right == zero else right, dtype, lanes)
    compute = DType.FLOAT32 if dtype in HALVES else dtype
    a, b = widen(code, left, dtype, lanes), widen(code, right, dtype, lanes)
    if op in _FLOAT:
        result = code.let(f"{_FLOAT[op]} {register(compute, lanes)} {a}, {b}")
    else:
        result = _float_minmax(code, op, a, b, compute, lanes)
    return narrow(code, result, dtype, lanes)


def _beside_zero(code: Code, value: str, dtype: DType, lanes: int) -> str:
    """A half float and 0, added: only -0 changes, so that nothing is widened and rounded. Sums of parts that lie apart are full of these."""
    held_as, bits = register(dtype, lanes), spread("i16", lanes)
    word = value if held_as == bits else code.let(f"bitcast {held_as} {value} to {bits}")
    minus = code.let(f"icmp eq {bits} {word}, {literal(0x8000, DType.INT16, lanes)}")
    chosen = select(code, minus, literal(0, DType.INT16, lanes), word, bits, lanes)
    return chosen if held_as == bits else code.let(f"bitcast {bits} {chosen} to {held_as}")


_BOOL = {
    "add": "or", "sub": "xor", "mul": "and", "div": "and", "max": "or", "min": "and",
    "bit_and": "and", "bit_or": "or", "bit_xor": "xor",
}  # fmt: skip
_MINMAX = {"max": ("llvm.maximum", "ogt"), "min": ("llvm.minimum", "olt")}
_FLOAT = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}


def _float_minmax(code: Code, op: str, a: str, b: str, dtype: DType, lanes: int) -> str:
    t, mask = register(dtype, lanes), spread("i1", lanes)
    intrinsic, better_when = _MINMAX[op]
    if code.module.machine.native_minmax:
        return code.intrinsic(intrinsic, t, a, b)
    if _is_number(a):
        a, b = b, a
    # `b > a ? b : a` is one maxps, which gives a when either is NaN.
    better = code.let(f"fcmp {better_when} {t} {b}, {a}")
    best = code.let(f"select {mask} {better}, {t} {b}, {t} {a}")
    if _is_number(b):
        return best
    nan = code.let(f"fcmp uno {t} {b}, {b}")
    return code.let(f"select {mask} {nan}, {t} {b}, {t} {best}")


def _is_number(operand: str) -> bool:
    """A constant that is not NaN."""
    text = operand.removeprefix("splat (float ").removeprefix("splat (double ").rstrip(")")
    return text.startswith("0x") and (int(text, 16) & ~(1 << 63)) <= 0x7FF << 52


def _plain(instruction: str) -> Callable[[Code, str, str, DType, int], str]:
    def emit(code: Code, left: str, right: str, dtype: DType, lanes: int) -> str:
        return code.let(f"{instruction} {register(dtype, lanes)} {left}, {right}")

    return emit


def _int_minmax(which: str) -> Callable[[Code, str, str, DType, int], str]:
    def emit(code: Code, left: str, right: str, dtype: DType, lanes: int) -> str:
        return code.intrinsic(f"llvm.{'s' if dtype.is_signed else 'u'}{which}", register(dtype, lanes), left, right)

    return emit


def _harmless(operand: str, dtype: DType) -> int:
    """The bits of a constant divisor that needs no guard: neither 0 nor -1; 0 for others."""
    text = operand.removeprefix("splat (").rstrip(")").split(" ")[-1]
    return int(text) if text.isdigit() and int(text) != (1 << dtype.bits) - 1 else 0


def _divide(code: Code, left: str, right: str, dtype: DType, lanes: int) -> str:
    if by := _harmless(right, dtype):  # LLVM multiplies instead
        if reciprocal.takes(by, dtype, lanes):
            return reciprocal.over(code, left, by, dtype, lanes)
        return code.let(f"{'s' if dtype.is_signed else 'u'}div {register(dtype, lanes)} {left}, {right}")
    zero, safe = _safe_divisor(code, left, right, dtype, lanes)
    quotient = _quotient(code, left, safe, dtype, lanes)
    return select(code, zero, literal(0, dtype, lanes), quotient, register(dtype, lanes), lanes)


def _safe_divisor(code: Code, left: str, right: str, dtype: DType, lanes: int) -> tuple[str, str]:
    """Where the divisor is 0, and a divisor that never traps (MIN / -1 becomes MIN / 1)."""
    t, mask = register(dtype, lanes), spread("i1", lanes)
    if held(lanes) > lanes:  # what fills a register up may be anything, but must be it every time
        left, right = code.let(f"freeze {t} {left}"), code.let(f"freeze {t} {right}")
    zero = code.let(f"icmp eq {t} {right}, {literal(0, dtype, lanes)}")
    bad = zero
    if dtype.is_signed:
        lowest = code.let(f"icmp eq {t} {left}, {literal(dtype.min_value, dtype, lanes)}")
        minus = code.let(f"icmp eq {t} {right}, {literal(-1, dtype, lanes)}")
        wraps = code.let(f"and {mask} {lowest}, {minus}")
        bad = code.let(f"or {mask} {zero}, {wraps}")
    return zero, select(code, bad, literal(1, dtype, lanes), right, t, lanes)


def _quotient(code: Code, left: str, right: str, dtype: DType, lanes: int) -> str:
    sign = "s" if dtype.is_signed else "u"
    t = register(dtype, lanes)
    if lanes == 1 or dtype.bits == 64:
        return code.let(f"{sign}div {t} {left}, {right}")
    # Exact: with so many digits more than the integers have no quotient is rounded onto the next one.
    wide = register(DType.FLOAT32 if dtype.bits <= 16 else DType.FLOAT64, lanes)
    a = code.let(f"{sign}itofp {t} {left} to {wide}")
    b = code.let(f"{sign}itofp {t} {right} to {wide}")
    ratio = code.let(f"fdiv {wide} {a}, {b}")
    return code.let(f"fpto{sign}i {wide} {ratio} to {t}")


def _floor_mod(code: Code, left: str, right: str, dtype: DType, lanes: int) -> str:
    t, mask = register(dtype, lanes), spread("i1", lanes)
    zero, safe = ("", right) if _harmless(right, dtype) else _safe_divisor(code, left, right, dtype, lanes)
    rest = code.let(f"{'s' if dtype.is_signed else 'u'}rem {t} {left}, {safe}")
    if dtype.is_signed:
        some = code.let(f"icmp ne {t} {rest}, {literal(0, dtype, lanes)}")
        mixed = code.let(f"xor {t} {rest}, {safe}")
        apart = code.let(f"icmp slt {t} {mixed}, {literal(0, dtype, lanes)}")
        fix = code.let(f"and {mask} {some}, {apart}")
        moved = code.let(f"add {t} {rest}, {safe}")
        rest = select(code, fix, moved, rest, t, lanes)
    return select(code, zero, literal(0, dtype, lanes), rest, t, lanes) if zero else rest


_INTEGER: dict[str, Callable[[Code, str, str, DType, int], str]] = {
    "add": _plain("add"),
    "sub": _plain("sub"),
    "mul": _plain("mul"),
    "div": _divide,
    "mod": _floor_mod,
    "max": _int_minmax("max"),
    "min": _int_minmax("min"),
    "bit_and": _plain("and"),
    "bit_or": _plain("or"),
    "bit_xor": _plain("xor"),
}


def shift(code: Code, op: str, value: str, dtype: DType, count: str, count_dtype: DType, lanes: int) -> str:
    """bit_left or bit_right with a count of any integer dtype; a count outside [0, width) gives 0 or the sign."""
    if dtype is DType.BOOL:
        byte = code.let(f"zext {spread('i1', lanes)} {value} to {spread('i8', lanes)}")
        moved = shift(code, op, byte, DType.UINT8, count, count_dtype, lanes)
        return code.let(f"icmp ne {spread('i8', lanes)} {moved}, {literal(0, DType.UINT8, lanes)}")
    t = register(dtype, lanes)
    count, count_dtype = _integer_count(code, count, count_dtype, lanes)
    out = code.let(f"icmp uge {register(count_dtype, lanes)} {count}, {literal(dtype.bits, count_dtype, lanes)}")
    amount = _resize(code, count, count_dtype, dtype, lanes)
    signed_right = op == "bit_right" and dtype.is_signed
    limit = literal(dtype.bits - 1 if signed_right else 0, dtype, lanes)
    safe = select(code, out, limit, amount, t, lanes)
    instruction = "shl" if op == "bit_left" else "ashr" if dtype.is_signed else "lshr"
    moved = code.let(f"{instruction} {t} {value}, {safe}")
    return moved if signed_right else select(code, out, literal(0, dtype, lanes), moved, t, lanes)


def _integer_count(code: Code, count: str, dtype: DType, lanes: int) -> tuple[str, DType]:
    if dtype is not DType.BOOL:
        return count, dtype
    return code.let(f"zext {spread('i1', lanes)} {count} to {spread('i8', lanes)}"), DType.UINT8


def _resize(code: Code, value: str, source: DType, target: DType, lanes: int) -> str:
    if source.bits == target.bits:
        return value
    way = "trunc" if source.bits > target.bits else "sext" if source.is_signed else "zext"
    resized = code.let(f"{way} {register(source, lanes)} {value} to {register(target, lanes)}")
    if lanes > 1 and (source, target) == (DType.INT32, DType.INT64):
        code.words[resized] = value
    return resized


# --- comparison, fused multiply-add, casts ----------------------------------------------------------


_COMPARE = {
    "cmp_eq": ("oeq", "eq"), "cmp_ne": ("une", "ne"), "cmp_lt": ("olt", "lt"),
    "cmp_gt": ("ogt", "gt"), "cmp_le": ("ole", "le"), "cmp_ge": ("oge", "ge"),
}  # fmt: skip


def compare(code: Code, op: str, left: str, right: str, dtype: DType, lanes: int) -> str:
    """An ``i1`` mask; NaN is unequal to everything."""
    ordered, integer = _COMPARE[op]
    if dtype.is_float:
        a, b = widen(code, left, dtype, lanes), widen(code, right, dtype, lanes)
        compute = DType.FLOAT32 if dtype in HALVES else dtype
        return code.let(f"fcmp {ordered} {register(compute, lanes)} {a}, {b}")
    sign = "" if integer in ("eq", "ne") else "s" if dtype.is_signed else "u"
    return code.let(f"icmp {sign}{integer} {register(dtype, lanes)} {left}, {right}")


def fma(code: Code, a: str, b: str, c: str, dtype: DType, lanes: int) -> str:
    """``a * b + c`` rounded once (float16 and bfloat16: in float32, then once more); integers wrap."""
    if not dtype.is_float:
        return binary(code, "add", binary(code, "mul", a, b, dtype, lanes), c, dtype, lanes)
    compute = DType.FLOAT32 if dtype in HALVES else dtype
    wide = [widen(code, x, dtype, lanes) for x in (a, b, c)]
    return narrow(code, code.intrinsic("llvm.fma", register(compute, lanes), *wide), dtype, lanes)


def cast(code: Code, value: str, source: DType, target: DType, lanes: int) -> str:
    """Convert: integers wrap, float to integer saturates (NaN gives 0), to bool is ``!= 0``, half floats go through float32."""
    if source is target:
        return value
    if target is DType.BOOL:
        return compare(code, "cmp_ne", value, literal(0, source, lanes), source, lanes)
    if source.is_float:
        return _cast_float(code, value, source, target, lanes)
    if not target.is_float:
        return _cast_integer(code, value, source, target, lanes)
    compute = DType.FLOAT32 if target in HALVES else target
    way = "sitofp" if source.is_signed else "uitofp"
    wide = code.let(f"{way} {register(source, lanes)} {value} to {register(compute, lanes)}")
    return narrow(code, wide, target, lanes)


def _cast_integer(code: Code, value: str, source: DType, target: DType, lanes: int) -> str:
    if source is DType.BOOL:
        return code.let(f"zext {register(source, lanes)} {value} to {register(target, lanes)}")
    return _resize(code, value, source, target, lanes)


def _cast_float(code: Code, value: str, source: DType, target: DType, lanes: int) -> str:
    value = widen(code, value, source, lanes)
    wide = DType.FLOAT32 if source in HALVES else source
    to = register(target, lanes)
    if not target.is_float:
        if lanes > 1 and not code.module.machine.native_saturation:
            return _saturate(code, value, wide, target, lanes)
        name = f"llvm.fpto{'s' if target.is_signed else 'u'}i.sat.{suffix(to)}.{suffix(register(wide, lanes))}"
        return code.call(name, to, (register(wide, lanes), value))
    goal = DType.FLOAT32 if target in HALVES else target
    if goal is not wide:
        way = "fpext" if goal.bits > wide.bits else "fptrunc"
        value = code.let(f"{way} {register(wide, lanes)} {value} to {register(goal, lanes)}")
    return narrow(code, value, target, lanes)


def _saturate(code: Code, value: str, source: DType, target: DType, lanes: int) -> str:
    """A saturating conversion of vectors, which LLVM would do lane by lane on x86."""
    t, to = register(source, lanes), register(target, lanes)
    low, high = int(target.min_value), int(target.max_value)
    top = np.array(high).astype(source.numpy)
    if int(top) > high:
        top = np.nextafter(top, source.numpy.type(0))

    def clamp(predicate: str, x: str, limit: float) -> str:
        edge = literal(limit, source, lanes)
        return select(code, code.let(f"fcmp {predicate} {t} {x}, {edge}"), edge, x, t, lanes)

    inside = clamp("olt", clamp("ogt", value, float(top)), float(low))
    number = code.let(f"fcmp ord {t} {value}, {value}")
    inside = select(code, number, inside, literal(0, source, lanes), t, lanes)
    width = max(32, target.bits)
    wide = spread(f"i{width}", lanes)
    result = code.let(f"fpto{'s' if target.is_signed or target.bits < 32 else 'u'}i {t} {inside} to {wide}")
    if width > target.bits:
        result = code.let(f"trunc {wide} {result} to {to}")
    if int(top) == high:
        return result
    over = code.let(f"fcmp ogt {t} {value}, {literal(float(top), source, lanes)}")
    return select(code, over, literal(high, target, lanes), result, to, lanes)
