"""Elementwise arithmetic, mathematics, comparisons, logic and bits, as XLA defines them for every dtype."""

from __future__ import annotations

from collections.abc import Iterable

from tile_ir.dtype import DType
from tile_runtime.ops.moving import reshaped
from tile_runtime.ops.text import bits_as
from tile_runtime.ops.values import Value, dtype_of, is_known

from tile_jax.lowering.elements import converted, elementwise, where
from tile_jax.lowering.op import Op
from tile_jax.lowering.registry import operation

_UNARY = {
    "abs": "abs({0})",
    "negate": "(-{0})",
    "not": "(~{0})",
    "ceil": "ceil({0})",
    "floor": "floor({0})",
    "round_nearest_afz": "round({0})",
    "round_nearest_even": "round_even({0})",
    "sign": "sign({0})",
    "is_finite": "isfinite({0})",
    "exponential": "exp({0})",
    "exponential_minus_one": "expm1({0})",
    "log": "log({0})",
    "log_plus_one": "log1p({0})",
    "logistic": "sigmoid({0})",
    "sqrt": "sqrt({0})",
    "sine": "sin({0})",
    "cosine": "cos({0})",
    "tan": "tan({0})",
    "tanh": "tanh({0})",
    "real": "{0}",
}
_CHLO_UNARY = {
    **{f: f"{f}({{0}})" for f in ("asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "tan")},
    "erf": "erf({0})",
    "erfc": "erfc({0})",
    "square": "({0} * {0})",
    "is_inf": "(abs({0}) == inf)",
    "is_pos_inf": "({0} == inf)",
    "is_neg_inf": "({0} == -inf)",
}
_STEPS = {
    "rsqrt": "(1 / sqrt({0}))",
    # One step of Newton's mends what the power rounds; zeros and infinities are their own roots.
    "cbrt": "({0} == 0 | abs({0}) == inf | isnan({0}) ? {0} : sign({0}) * (2 * pow(abs({0}), {third}) "
    "+ abs({0}) / (pow(abs({0}), {third}) * pow(abs({0}), {third}))) / 3)",
}
_ALL = "all"
_BINARY: dict[str, dict[DType | str, str]] = {
    "add": {DType.BOOL: "({0} | {1})", _ALL: "({0} + {1})"},
    "subtract": {DType.BOOL: "({0} ^ {1})", _ALL: "({0} - {1})"},
    "multiply": {DType.BOOL: "({0} & {1})", _ALL: "({0} * {1})"},
    "maximum": {DType.BOOL: "({0} | {1})", _ALL: "max({0}, {1})"},
    "minimum": {DType.BOOL: "({0} & {1})", _ALL: "min({0}, {1})"},
    "and": {_ALL: "({0} & {1})"},
    "or": {_ALL: "({0} | {1})"},
    "xor": {_ALL: "({0} ^ {1})"},
    "atan2": {_ALL: "atan2({0}, {1})"},
    "shift_left": {_ALL: "({0} << {1})"},
}
_DIRECTIONS = {"EQ": "==", "NE": "!=", "LT": "<", "LE": "<=", "GT": ">", "GE": ">="}


def _sizes(op: Op) -> tuple[int, ...] | None:
    """The shape of the result; None in a lifted region and of CHLO's broadcasting forms, where the operands' say it."""
    return None if op.lifted else op.result().shape


def _stablehlo(names: Iterable[str]) -> list[str]:
    return [f"stablehlo.{name}" for name in names]


def _broadcasting(names: Iterable[str]) -> list[str]:
    return [f"chlo.broadcast_{name}" for name in names]


def _word(op: Op) -> str:
    return op.name.partition(".")[2].removeprefix("broadcast_")


def _operands(op: Op) -> list[Value]:
    """The operands, those of CHLO's broadcasting forms with the axes that `broadcast_dimensions` gives the smaller one."""
    if not op.has("broadcast_dimensions"):
        return list(op.values)
    axes, sizes = op.list("broadcast_dimensions"), op.result().shape
    return [_aligned(v, axes, len(sizes)) for v in op.values]


def _aligned(value: Value, axes: tuple[int, ...], rank: int) -> Value:
    if len(value.shape) == rank:
        return value
    placed = dict(zip(axes, value.shape, strict=True))
    return reshaped(value, [placed.get(k, 1) for k in range(rank)])


@operation(*_stablehlo(_UNARY), elementwise=True)
def unary(op: Op) -> Value:
    return elementwise(_UNARY[_word(op)], op.values[0], shape=_sizes(op))


@operation(*(f"chlo.{name}" for name in _CHLO_UNARY), elementwise=True)
def function(op: Op) -> Value:
    return elementwise(_CHLO_UNARY[_word(op)], op.values[0], shape=_sizes(op))


@operation(*_stablehlo(_STEPS), elementwise=True)
def in_steps(op: Op) -> Value:
    """Functions of several steps round once, at their end."""
    dtype = op.dtype()
    computed = dtype.accumulator
    template = _STEPS[_word(op)].replace("{third}", repr(1 / 3))
    made = elementwise(template, converted(op.values[0], computed), shape=_sizes(op))
    return converted(made, dtype)


@operation(*_stablehlo(_BINARY), *_broadcasting(_BINARY), elementwise=True)
def binary(op: Op) -> Value:
    by_dtype = _BINARY[_word(op)]
    return elementwise(by_dtype.get(op.dtype(), by_dtype[_ALL]), *_operands(op), shape=_sizes(op))


@operation("stablehlo.divide", "chlo.broadcast_divide", elementwise=True)
def divide(op: Op) -> Value:
    """Integers divided by 0 give -1, all bits set."""
    values = _operands(op)
    if op.dtype().is_float or _never_zero(values[1]):
        return elementwise("({0} / {1})", *values, shape=_sizes(op))
    zero = elementwise("({0} - {0})", values[0])
    return elementwise("({1} == 0 ? ~{2} : {0} / {1})", *values, zero, shape=_sizes(op))


@operation("stablehlo.remainder", "chlo.broadcast_remainder", elementwise=True)
def remainder(op: Op) -> Value:
    """With the sign of the dividend; integers by 0 are the dividend."""
    values = _operands(op)
    if op.dtype().is_float or _never_zero(values[1]):
        return elementwise("fmod({0}, {1})", *values, shape=_sizes(op))
    return elementwise("({1} == 0 ? {0} : fmod({0}, {1}))", *values, shape=_sizes(op))


def _never_zero(value: Value) -> bool:
    return is_known(value) and bool((value != 0).all())


@operation("stablehlo.power", "chlo.broadcast_power", elementwise=True)
def power(op: Op) -> Value:
    values, dtype = _operands(op), op.dtype()
    if dtype.is_integer:
        return _integer_power(values[0], values[1], dtype, _sizes(op))
    if is_known(values[1]) and values[1].size and bool((values[1] == 2).all()):
        return elementwise("({0} * {0})", values[0], shape=_sizes(op))
    return elementwise("pow({0}, {1})", *values, shape=_sizes(op))


def _integer_power(base: Value, exponent: Value, dtype: DType, sizes: tuple[int, ...] | None) -> Value:
    """By squaring, wrapping; a negative exponent gives 0 unless the base is 1 or -1."""
    made, square = elementwise("({0} * 0 + 1)", base), base
    for bit in range(dtype.bits - dtype.is_signed):
        made = elementwise(f"(({{1}} >> {bit} & 1) == 1 ? {{0}} * {{2}} : {{0}})", made, exponent, square)
        square = elementwise("({0} * {0})", square)
    if dtype.is_signed:
        kept = "(({1} == 1) | ({1} == -1) ? {0} : {0} * 0)"
        made = elementwise(f"({{2}} < 0 ? {kept} : {{0}})", made, base, exponent)
    return elementwise("{0}", made, shape=sizes)


_FILLING = {"shift_right_logical": "UINT", "shift_right_arithmetic": "INT"}


@operation(*_stablehlo(_FILLING), *_broadcasting(_FILLING), elementwise=True)
def shift_right(op: Op) -> Value:
    """Zeros come in at the top, of signed integers too; or copies of the highest bit, of unsigned ones too."""
    dtype = op.dtype()
    shifted = DType[f"{_FILLING[_word(op)]}{dtype.bits}"]
    bits = [converted(v, shifted) for v in _operands(op)]
    return converted(elementwise("({0} >> {1})", *bits, shape=_sizes(op)), dtype)


@operation("stablehlo.select", "chlo.broadcast_select", elementwise=True)
def select(op: Op) -> Value:
    return where(*_operands(op), shape=_sizes(op))


@operation("stablehlo.clamp", elementwise=True)
def clamp(op: Op) -> Value:
    low, value, high = op.values
    return elementwise("min(max({1}, {0}), {2})", low, value, high, shape=_sizes(op))


@operation("stablehlo.compare", "chlo.broadcast_compare", elementwise=True)
def compare(op: Op) -> Value:
    """Floats as IEEE 754 compares them, or in its total order: -NaN, -inf … -0, 0 … inf, NaN."""
    values, sign = _operands(op), _DIRECTIONS[op.text("comparison_direction")]
    if op.text("compare_type") == "TOTALORDER" and op.dtype().is_float:
        values = [ordered(v) for v in values]
    return elementwise(f"({{0}} {sign} {{1}})", *values, shape=_sizes(op))


def ordered(value: Value) -> Value:
    """Integers that are ordered as IEEE 754's total order orders floats."""
    dtype = dtype_of(value)
    integer = DType[f"INT{dtype.bits}"]
    bits = elementwise(bits_as("{0}", integer), value)
    return elementwise(f"({{0}} < 0 ? {{0}} ^ {integer.max_value} : {{0}})", bits, shape=value.shape)


@operation("stablehlo.convert", elementwise=True)
def convert(op: Op) -> Value:
    """Floats beyond an integer's range give its limit, NaN gives 0."""
    return converted(op.values[0], op.result().dtype)


@operation("stablehlo.popcnt", elementwise=True)
def popcnt(op: Op) -> Value:
    return _counted_bits(op.values[0], op.dtype())


@operation("stablehlo.count_leading_zeros", elementwise=True)
def count_leading_zeros(op: Op) -> Value:
    dtype = op.dtype()
    smeared = converted(op.values[0], DType[f"UINT{dtype.bits}"])
    shift = 1
    while shift < dtype.bits:
        smeared = elementwise(f"({{0}} | ({{0}} >> {shift}))", smeared)
        shift *= 2
    return _counted_bits(elementwise("(~{0})", smeared), dtype)


def _counted_bits(value: Value, dtype: DType) -> Value:
    """How many bits are set: neighbours are added, then pairs of them, and so on."""
    unsigned, width = converted(value, DType[f"UINT{dtype.bits}"]), 1
    while width < dtype.bits:
        mask = sum(((1 << width) - 1) << at for at in range(0, dtype.bits, 2 * width))
        unsigned = elementwise(f"(({{0}} & {mask}) + (({{0}} >> {width}) & {mask}))", unsigned)
        width *= 2
    return converted(elementwise("{0}", unsigned, shape=value.shape), dtype)


@operation("stablehlo.imag", elementwise=True)
def imag(op: Op) -> Value:
    return elementwise("({0} * 0)", op.values[0], shape=_sizes(op))


@operation("stablehlo.reduce_precision", elementwise=True)
def reduce_precision(op: Op) -> Value:
    """Rounded to so many bits of exponent and mantissa, ties to even; beyond the largest exponent an infinity."""
    dtype, exponent, mantissa = op.dtype(), op.number("exponent_bits"), op.number("mantissa_bits")
    own_mantissa, own_exponent = _LAYOUTS[dtype]
    unsigned = DType[f"UINT{dtype.bits}"]
    bits = elementwise(bits_as("{0}", unsigned), op.values[0])
    if mantissa < own_mantissa:
        drop = own_mantissa - mantissa
        half, keep = (1 << (drop - 1)) - 1, ((1 << dtype.bits) - 1) ^ ((1 << drop) - 1)
        bits = elementwise(f"(({{0}} + ((({{0}} >> {drop}) & 1) + {half})) & {keep})", bits)
    if exponent < own_exponent:
        bits = _less_range(bits, dtype, exponent)
    made = elementwise(bits_as("{0}", dtype), bits, shape=op.values[0].shape)
    return elementwise("(isnan({1}) ? {1} : {0})", made, op.values[0], shape=op.values[0].shape)


_LAYOUTS = {DType.FLOAT16: (10, 5), DType.BFLOAT16: (7, 8), DType.FLOAT32: (23, 8), DType.FLOAT64: (52, 11)}
"""Bits of mantissa and exponent."""


def _less_range(bits: Value, dtype: DType, exponent: int) -> Value:
    """Bits of a float, with an infinity or zero of its sign where its exponent does not fit in so many bits."""
    own_mantissa, own_exponent = _LAYOUTS[dtype]
    field = ((1 << own_exponent) - 1) << own_mantissa
    bias, reduced = (1 << (own_exponent - 1)) - 1, (1 << (exponent - 1)) - 1
    most, least = (bias + reduced) << own_mantissa, (bias - reduced) << own_mantissa
    sign = 1 << (dtype.bits - 1)
    return elementwise(
        f"(({{0}} & {field}) > {most} ? ({{0}} & {sign}) | {field} : ({{0}} & {field}) <= {least} ? {{0}} & {sign} : {{0}})",
        bits,
    )


@operation("chlo.mulhi", elementwise=True)
def high_product(op: Op) -> Value:
    """The upper half of the product of two integers."""
    dtype = op.dtype()
    if dtype.bits == 64:
        raise op.unsupported("Tile has no integers of 128 bits to multiply in", "multiply halves of 32 bits")
    wide = DType[f"{'INT' if dtype.is_signed else 'UINT'}{2 * dtype.bits}"]
    made = elementwise(
        f"(({{0}} * {{1}}) >> {dtype.bits})", *(converted(v, wide) for v in _operands(op)), shape=_sizes(op)
    )
    return converted(made, dtype)
